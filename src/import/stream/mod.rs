//! Streams of plain frames (`flatcap::stream`, flatstream 0.2.7): `[u32 length][checksum][payload]`, one file after the other.
//!
//! Each file is a source of its own; its payloads are kept byte for byte, numbered from 0, without a time, since a stream has none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Course, ImportError, Job, Recording, Report, Source};
use crate::schema::segment::GapCause;
use crate::schema::{Place, Plan, SchemaError, Tables, Value, Visitor};
use crate::stream::{ChecksumKind, KindDeframer};
use hole::Hole;
use search::Found;
use window::Window;

mod hole;
mod name;
mod probe;
mod search;
mod window;

/// Frames of up to this many times the frame limit are read as a whole, so that one that is too long is told from one whose length is
/// damaged; a longer one is damage, and what is in it is searched.
const READ_LIMITS: usize = 2;
/// Most bytes that the schema may take in a header, once for each source: far below what a reader takes for one (docs/FORMAT.md).
const SCHEMAS_BYTES_MAX: usize = 16 << 20;

/// What is wanted. By default: the checksum as the files tell it, opaque payloads, names after the files.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The checksum of all files; none: each file tells its own, and is refused where it does not.
    pub checksum: Option<ChecksumKind>,
    /// How payloads are described; none: not at all.
    pub schema: Option<Typed>,
    /// Names of the sources, one a file; empty: after the files.
    pub names: Vec<String>,
}

/// A description of payloads.
#[derive(Debug, Clone)]
pub struct Typed {
    /// Binary schema (.bfbs).
    pub schema: Vec<u8>,
    /// Full name of the root table; none: the schema's own.
    pub root: Option<String>,
}

/// Imports the files.
///
/// What is no whole frame is passed over to the next one that is (docs/ARCHITECTURE.md, "Salvage"), and takes one number of its source,
/// since a stream does not say how many frames it was. Memory is a frame, and where there is damage four times the frame limit.
///
/// # Errors
/// Every kind of [`ImportError`]. What was imported before it is kept.
pub fn import(files: &[PathBuf], options: &Options, job: Job<'_, '_>) -> Result<Report, ImportError> {
    let (plan, sources) = sources(files, options)?;
    let longest = (job.plan.frame_max as usize).saturating_mul(READ_LIMITS);
    let mut recording = Recording::begin(job.storage, job.plan)?;
    for source in sources {
        recording.add_source(source)?;
    }
    let (course, report) = (job.course, Report::default());
    let mut importer =
        Importer { checksum: options.checksum, plan, longest, recording, frames: 0, course, report };
    let mut result = Ok(true);
    for (source, path) in (0..).zip(files) {
        result = importer.file(source, path);
        if !matches!(result, Ok(true)) {
            break;
        }
    }
    let Importer { recording, mut report, .. } = importer;
    if let Err(error @ ImportError::Write(_)) = result {
        return Err(error);
    }
    let written = recording.finish();
    report.stopped = !result?;
    report.written = written?;
    Ok(report)
}

/// The sources of an import, one a file, and how their payloads are read.
fn sources(files: &[PathBuf], options: &Options) -> Result<(Option<Plan>, Vec<Source>), ImportError> {
    let names = match &options.names[..] {
        [] => name::of_files(files),
        given => given_names(given, files.len())?,
    };
    let (plan, root, schema) = match &options.schema {
        None => (None, String::new(), &[][..]),
        Some(typed) => {
            let (plan, root) = compile(typed)?;
            (Some(plan), root, &typed.schema[..])
        }
    };
    if schema.len().saturating_mul(files.len()) > SCHEMAS_BYTES_MAX {
        let (bytes, count) = (schema.len(), files.len());
        return Err(ImportError::Options(format!(
            "--schema: {bytes} bytes, once for each of {count} files, are more than the {SCHEMAS_BYTES_MAX} that a \
             recording's header may have for them; import fewer files at once"
        )));
    }
    let source = |name: String| Source { name, labels: vec![], root: root.clone(), schema: schema.to_vec() };
    let mut sources: Vec<Source> = names.into_iter().map(source).collect();
    for (source, file) in sources.iter_mut().zip(files) {
        source.labels.push(("file".to_owned(), file.display().to_string()));
    }
    Ok((plan, sources))
}

fn given_names(given: &[String], files: usize) -> Result<Vec<String>, ImportError> {
    if given.len() != files {
        let names = given.len();
        let what = format!(
            "--name: {names} name(s) for {files} file(s); give one for each, in their order, or none"
        );
        return Err(ImportError::Options(what));
    }
    let mut taken = BTreeSet::new();
    match given.iter().find(|name| !name::is_valid(name) || !taken.insert(name.as_str())) {
        None => Ok(given.to_vec()),
        Some(name) => Err(ImportError::Options(format!(
            "--name {name:?}: a name is of 1 to 128 letters, digits, '.', '_' and '-', begins with neither '.' nor '-', and \
             no other source has it"
        ))),
    }
}

/// The way to read payloads, and the full name of their root.
fn compile(typed: &Typed) -> Result<(Plan, String), ImportError> {
    let failed = |error: SchemaError| ImportError::Options(format!("--schema: {}", said(&error)));
    let tables = Tables::read(&typed.schema).map_err(failed)?;
    let known = || tables.names.join(", ");
    let root = typed.root.clone().or(tables.root.clone()).ok_or_else(|| {
        ImportError::Options(format!(
            "--schema has no root type: name one of its tables with --root: {}",
            known()
        ))
    })?;
    if !tables.names.contains(&root) {
        return Err(ImportError::Options(format!(
            "--root {root}: no such table in the schema; it has {}",
            known()
        )));
    }
    Ok((Plan::compile(&typed.schema, &root).map_err(failed)?, root))
}

fn said(error: &SchemaError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {}", cause.to_string().trim_end()),
        None => error.to_string(),
    }
}

/// An import on its way.
struct Importer<'s, 'w> {
    checksum: Option<ChecksumKind>,
    plan: Option<Plan>,
    longest: usize, // payload that is read as a whole
    recording: Recording<'s>,
    frames: u64, // recorded
    course: Course<'w>,
    report: Report,
}

impl Importer<'_, '_> {
    /// Imports a file. Returns whether to go on.
    fn file(&mut self, source: u16, path: &Path) -> Result<bool, ImportError> {
        let mut window = Window::new(self.course.open(path)?);
        let result = self.read(source, path, &mut window);
        self.report.bytes += window.offset();
        if let Some(error) = window.take_damage() {
            let at = window.offset() + window.rest().len() as u64;
            self.report.flaw(path, at, None, format!("what gzip has packed is cut or damaged here: {error}"));
        }
        result
    }

    fn read(&mut self, source: u16, path: &Path, window: &mut Window) -> Result<bool, ImportError> {
        let kind = match self.checksum {
            Some(kind) => kind,
            // There is nothing in it: whatever its kind, nothing is missing.
            None if !window.fill(1)? => return Ok(true),
            None => probe::told(window, path, self.longest)?,
        };
        let deframer = KindDeframer::new(kind).with_max_frame_len(self.longest);
        let (mut hole, before) = (None::<Hole>, self.frames);
        let mut goes_on = true;
        while window.fill(1)? {
            goes_on = self.course.goes_on(self.frames);
            if !goes_on {
                break;
            }
            let found = search::next(window, &deframer)?;
            let length = found.length();
            if let Some(next) = Hole::of(&found, window, &deframer) {
                match &mut hole {
                    Some(hole) if hole.is_of(&next) => hole.add(&next),
                    _ => self.tell(source, path, hole.replace(next)),
                }
            } else {
                self.tell(source, path, hole.take());
                if let Found::Repaired(_) = found {
                    let what = "the length of a frame was damaged, and its checksum tells it: it is imported";
                    self.report.flaw(path, window.offset(), Some(0), what);
                }
                let frame = window.rest().get(..length).unwrap_or_default();
                self.take(
                    source,
                    path,
                    window.offset(),
                    frame.get(kind.frame_bytes(0)..).unwrap_or_default(),
                )?;
            }
            window.pass(length);
        }
        if let Some(hole) = hole.as_mut().filter(|_| self.frames == before) {
            hole.why += "; no whole frame with the checksum ";
            hole.why += kind.name();
            hole.why += " is anywhere: is it another one?";
        }
        self.tell(source, path, hole);
        Ok(goes_on)
    }

    /// Records a payload, or tells why not.
    fn take(&mut self, source: u16, path: &Path, offset: u64, payload: &[u8]) -> Result<(), ImportError> {
        let length = payload.len();
        if !self.recording.takes(length) {
            let what = format!(
                "a frame of {length} bytes is longer than the frame limit: raise it with --frame-max"
            );
            self.report.flaw(path, offset, Some(1), what);
            self.recording.skip(source, 1, GapCause::TooLarge);
            return Ok(());
        }
        if let Some(Err(error)) = self.plan.as_ref().map(|plan| plan.walk(payload, &mut Nothing)) {
            self.report.flaw(path, offset, Some(1), format!("a frame does not fit the schema: {error}"));
            self.recording.skip(source, 1, GapCause::Damaged);
            return Ok(());
        }
        self.frames += 1;
        self.recording.append(source, 0, length, |place| place.copy_from_slice(payload))
    }

    /// Notes a place without frames.
    fn tell(&mut self, source: u16, path: &Path, hole: Option<Hole>) {
        let Some(hole) = hole else { return };
        self.report.flaw(path, hole.offset, hole.count, format!("{} bytes: {}", hole.bytes, hole.why));
        // How many it were, nobody can say where the count is not known; one at least.
        self.recording.skip(source, hole.count.unwrap_or(1), GapCause::Damaged);
    }
}

/// Looks at all that a walk reads, and keeps nothing: whether it can be read is what is asked.
struct Nothing;

impl Visitor for Nothing {
    fn begin_object(&mut self, _place: Place<'_>) {}
    fn end_object(&mut self) {}
    fn begin_list(&mut self, _place: Place<'_>, _length: usize) {}
    fn end_list(&mut self) {}
    fn value(&mut self, _place: Place<'_>, _value: Value<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::storage::DataDirectory;
    use crate::segment::{Advance, FrameKind, Gap, Verification, list};
    use crate::stream::Framer;

    const FRAME_MAX: u32 = 2048;

    /// What an import of one file has come to: its report, and the numbers and payloads of each source.
    struct Imported {
        report: Report,
        payloads: Vec<(u16, u64, Vec<u8>)>,
        gaps: Vec<(u64, u64, u32)>,
    }

    fn try_import(files: &[(&str, Vec<u8>)], options: &Options) -> Result<Imported, ImportError> {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = files.iter().map(|(name, _)| folder.path().join(name)).collect();
        for (path, (_, bytes)) in paths.iter().zip(files) {
            std::fs::write(path, bytes).unwrap();
        }
        let storage = DataDirectory::open(&folder.path().join("data")).unwrap();
        let plan = crate::import::Plan { segment_bytes: 64 << 10, frame_max: FRAME_MAX };
        let mut watch = |_| true;
        let job = Job { storage: &storage, plan, course: Course::new(&mut watch) };
        let report = import(&paths, options, job)?;
        let (mut payloads, mut gaps, mut verification) = (Vec::new(), Vec::new(), Verification::default());
        for listing in list(&[storage.path().to_owned()]).unwrap() {
            let mut reader = listing.open().unwrap().unwrap();
            verification.segment(&mut reader, false, &mut |_| {}).unwrap();
            let mut reader = listing.open().unwrap().unwrap();
            while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
                if let Some(sample) = reader.telemetry(at).filter(|_| at.kind == FrameKind::Telemetry) {
                    assert_eq!(sample.wall_ns, 0);
                    payloads.push((sample.source, sample.seq, sample.payload.to_vec()));
                } else if at.kind == FrameKind::Gap {
                    gaps.extend(
                        Gap::decode(reader.payload(at)).map(|gap| (gap.first, gap.count, gap.causes)),
                    );
                }
            }
        }
        let verdict = verification.finish();
        assert!(verdict.is_intact() && verdict.unexplained() == 0, "{verdict:?}");
        Ok(Imported { report, payloads, gaps })
    }

    fn named(kind: ChecksumKind) -> Options {
        Options { checksum: Some(kind), ..Options::default() }
    }

    fn stream(kind: ChecksumKind, payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        for payload in payloads {
            starts.push(bytes.len());
            kind.frame_and_write(&mut bytes, payload).unwrap();
        }
        (bytes, starts)
    }

    /// Bytes that look like nothing, and are others for each seed.
    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        (0..length).map(|_| next()).collect()
    }

    fn texts(count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|index| noise(index as u64, 20 + index * 7 % 200)).collect()
    }

    // Goal: every payload is in the recording, byte for byte and in order, whatever its checksum, and each file is a source. Method: all
    // kinds as files of one import, found out and named; payloads of all lengths up to the limit, empty ones among them; an empty file.
    #[test]
    fn every_payload_is_kept() {
        let mut payloads: Vec<Vec<u8>> =
            (0..400).map(|length| noise(length, usize::try_from(length).unwrap())).collect();
        payloads.extend([vec![0; 64], Vec::new(), vec![0; FRAME_MAX as usize - 64]]);
        payloads.rotate_left(200);
        for options in ChecksumKind::ALL
            .iter()
            .map(|kind| (*kind, named(*kind)))
            .chain(ChecksumKind::ALL.iter().map(|kind| (*kind, Options::default())))
        {
            let (kind, options) = options;
            let (bytes, _) = stream(kind, &payloads);
            let length = bytes.len() as u64;
            let files = [("a.bin", bytes.clone()), ("none", Vec::new()), ("a.dat", bytes)];
            let Imported { report, payloads: found, gaps } = try_import(&files, &options).unwrap();
            assert!(report.is_whole() && gaps.is_empty() && !report.stopped, "{kind}: {:?}", report.flaws);
            assert_eq!(report.bytes, 2 * length);
            let of = |source| found.iter().filter(move |(of, ..)| *of == source);
            for source in [0, 2] {
                assert!(of(source).map(|(.., payload)| payload).eq(&payloads), "{kind}");
                assert!(of(source).map(|(_, seq, _)| *seq).eq(0..payloads.len() as u64));
            }
            assert_eq!(of(1).count(), 0);
            let names: Vec<_> = report.written.sources.iter().map(|source| source.name.as_str()).collect();
            assert_eq!(names, ["a", "none", "a-2"]);
        }
    }

    // Goal: damage costs what it hits, is told with its place, and takes a number. Method: each byte of a frame in the middle of a stream
    // changed, all kinds with a checksum that proves one frame.
    #[test]
    fn damage_costs_what_it_hits() {
        let payloads = texts(12);
        for kind in [ChecksumKind::Xxh3, ChecksumKind::Crc32] {
            let (bytes, starts) = stream(kind, &payloads);
            for at in starts[5]..starts[6] {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x21;
                let Imported { report, payloads: found, gaps } =
                    try_import(&[("a", damaged)], &named(kind)).unwrap();
                let [flaw] = &report.flaws[..] else { panic!("{:?}", report.flaws) };
                assert_eq!(flaw.offset, starts[5] as u64);
                let found: Vec<_> = found.into_iter().map(|(.., payload)| payload).collect();
                if flaw.count == Some(0) {
                    assert!(at < starts[5] + 4 && found == payloads, "a length alone is mended");
                    continue;
                }
                let mut left = payloads.clone();
                left.remove(5);
                assert_eq!(found, left, "{kind}, byte {at}");
                assert_eq!(gaps, [(5, 1, GapCause::Damaged.bits())]);
            }
        }
    }

    // Goal: a stream that is cut anywhere gives its whole frames and says where it ends. Method: every cut of a short stream, every kind.
    #[test]
    fn a_cut_stream_gives_its_whole_frames() {
        let payloads: Vec<Vec<u8>> = (5..9_usize).map(|length| noise(length as u64, length)).collect();
        for kind in ChecksumKind::ALL {
            let (bytes, mut starts) = stream(*kind, &payloads);
            starts.push(bytes.len());
            for cut in 1..bytes.len() {
                let imported = try_import(&[("a", bytes[..cut].to_vec())], &named(*kind)).unwrap();
                let whole = starts.iter().filter(|start| **start <= cut).count() - 1;
                assert!(
                    imported.payloads.iter().map(|(.., payload)| payload).eq(&payloads[..whole]),
                    "{kind}, {cut}"
                );
                let told: Vec<_> =
                    imported.report.flaws.iter().map(|flaw| (flaw.offset, flaw.count)).collect();
                let expected = (starts[whole] != cut).then_some((starts[whole] as u64, Some(1)));
                assert_eq!(told, Vec::from_iter(expected), "{kind}, {cut}");
            }
        }
    }

    // Goal: holes that are longer than what is searched at once are one hole, and what stands behind them is found. Method: noise and zeros
    // of many times the frame limit between frames; the whole of it once more packed by gzip.
    #[test]
    fn long_holes_are_passed_in_constant_memory() {
        let kind = ChecksumKind::Xxh3;
        let payloads = texts(300);
        let (bytes, starts) = stream(kind, &payloads);
        let (one, other) = (starts[100], starts[200]);
        let hole = noise(77, 100_000);
        let zeros = vec![0; 100_003];
        let whole = [&bytes[..one], &hole, &bytes[one..other], &zeros, &bytes[other..]].concat();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, &whole).unwrap();
        for content in [whole, packed.finish().unwrap()] {
            let Imported { report, payloads: found, gaps } =
                try_import(&[("a", content)], &Options::default()).unwrap();
            assert!(found.into_iter().map(|(.., payload)| payload).eq(payloads.clone()));
            assert_eq!(gaps, [(100, 1, GapCause::Damaged.bits())]);
            let told: Vec<_> = report.flaws.iter().map(|flaw| (flaw.offset, flaw.count)).collect();
            assert_eq!(
                told,
                [(one as u64, None), ((other + hole.len()) as u64, Some(0))],
                "{:?}",
                report.flaws
            );
            assert!(report.flaws[0].what.starts_with("100000 bytes: "), "{:?}", report.flaws);
        }
    }

    // Goal: a frame above the limit is told as that and passed over as a whole; a length beyond belief is damage. Method: both between
    // frames.
    #[test]
    fn too_long_frames_are_told() {
        let kind = ChecksumKind::Crc32;
        let long = vec![5; FRAME_MAX as usize];
        let (mut bytes, starts) = stream(kind, &[b"one".to_vec(), long, b"two".to_vec()]);
        let end = bytes.len() as u64;
        bytes.extend_from_slice(&[0xFF; 8]);
        bytes.extend_from_slice(&stream(kind, &[b"three".to_vec()]).0);
        let Imported { report, payloads, gaps } = try_import(&[("a", bytes)], &named(kind)).unwrap();
        let payloads: Vec<_> = payloads.iter().map(|(_, seq, payload)| (*seq, &payload[..])).collect();
        assert_eq!(payloads, [(0, &b"one"[..]), (2, b"two"), (4, b"three")]);
        assert_eq!(gaps, [(1, 1, GapCause::TooLarge.bits()), (3, 1, GapCause::Damaged.bits())]);
        let told: Vec<_> = report.flaws.iter().map(|flaw| (flaw.offset, flaw.count)).collect();
        assert_eq!(told, [(starts[1] as u64, Some(1)), (end, None)]);
        assert!(report.flaws.iter().all(|flaw| flaw.what.contains("--frame-max")), "{:?}", report.flaws);
    }

    // Goal: under a schema only payloads that fit it are imported, and the recording carries it. Method: good ones around a bad one; the
    // root found in the schema, named, and named wrongly.
    #[test]
    fn payloads_are_held_against_a_schema() {
        let bytes = std::fs::read("tests/data/schema/event.bfbs").unwrap();
        let good = std::fs::read("tests/data/schema/event.bin").unwrap();
        let (content, starts) =
            stream(ChecksumKind::Xxh3, &[good.clone(), b"not a table".to_vec(), good.clone()]);
        let tables = Tables::read(&bytes).unwrap();
        let root = tables.root.clone().unwrap();
        for named in [None, Some(root.clone())] {
            let schema = Some(Typed { schema: bytes.clone(), root: named });
            let options = Options { schema, ..Options::default() };
            let imported = try_import(&[("a", content.clone())], &options).unwrap();
            let found: Vec<_> = imported.payloads.iter().map(|(_, seq, payload)| (*seq, payload)).collect();
            assert_eq!(found, [(0, &good), (2, &good)]);
            assert_eq!((imported.report.flaws.len(), imported.report.flaws[0].offset), (1, starts[1] as u64));
        }
        let schema = Some(Typed { schema: bytes, root: Some("NoSuch".into()) });
        let options = Options { schema, ..Options::default() };
        let error = try_import(&[("a", content)], &options).err().unwrap().to_string();
        assert!(error.contains("NoSuch") && tables.names.iter().all(|name| error.contains(name)), "{error}");
    }

    // Goal: input that fits no checksum, or several, is refused with what to do, and what was imported before it is kept. Method: text; zeros;
    // behind a good file.
    #[test]
    fn what_cannot_be_told_is_refused() {
        let error = |content: &[u8]| {
            try_import(&[("a", content.to_vec())], &Options::default()).err().unwrap().to_string()
        };
        assert!(error(b"time,price\n1,2\n").contains("--checksum"));
        let several = error(&[0; 24]);
        assert!(several.contains("crc32, crc16, none") && several.contains("--checksum"), "{several}");
        for names in [&["x"][..], &["x", "x"], &["x", "../y"], &["x", ""]] {
            let names = names.iter().map(ToString::to_string).collect();
            let options = Options { names, ..Options::default() };
            let result = try_import(&[("a", Vec::new()), ("b", Vec::new())], &options);
            assert!(matches!(result, Err(ImportError::Options(_))));
        }
    }
}
