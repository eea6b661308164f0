//! Imports streams of plain frames (`flatcap_stream`, flatstream 0.2.7) with the layout `[u32
//! length][checksum][payload]`, one file after the other.
//!
//! Each file becomes a source. The payloads of a file are kept byte for byte and numbered from 0.
//! The samples have no time, because a stream contains no times.

use std::path::{Path, PathBuf};

use damage::StreamDamage;
use flatcap_format::schema::segment::GapCause;
use flatcap_format::schema::{CompiledSchema, FieldValue, PathStep, SchemaError, SchemaTables, Visitor};
use flatcap_stream::{ChecksumKind, KindDeframer};
use search::StreamItem;

use super::source_name::{given_names, source_names};
use super::window::InputWindow;
use super::{ImportError, ImportJob, ImportProgress, ImportReport, ImportSource, RunWriter};

mod damage;
mod probe;
mod search;

/// A frame of up to this many times the frame limit is read completely. This limit distinguishes a
/// frame that is too long from a frame with a damaged length. A longer frame is treated as damage,
/// and its bytes are searched for frames.
const READ_LIMITS: usize = 2;
/// Maximum total size of the schema copies in a segment header, in bytes. The header contains one
/// copy per source. The size is far below a reader's limit for a header (docs/FORMAT.md).
const SCHEMAS_BYTES_MAX: usize = 16 << 20;

/// Options of a stream import. By default, the checksum is detected, payloads are opaque, and names
/// are derived from the files.
#[derive(Debug, Clone, Default)]
pub struct StreamOptions {
    /// The checksum of all files. With `None`, the importer detects the checksum of each file, and
    /// fails if the result is ambiguous.
    pub checksum: Option<ChecksumKind>,
    /// The schema of the payloads, if any.
    pub schema: Option<PayloadSchema>,
    /// Names of the sources, one per file. If the list is empty, the names are derived from the
    /// files.
    pub names: Vec<String>,
}

/// The schema of payloads.
#[derive(Debug, Clone)]
pub struct PayloadSchema {
    /// The file from which the schema comes, for error messages.
    pub path: PathBuf,
    /// Binary schema (.bfbs).
    pub schema: Vec<u8>,
    /// Full name of the root table, or `None` for the root table that the schema declares.
    pub root: Option<String>,
}

/// Imports the files.
///
/// Damage is skipped up to the next intact frame (docs/ARCHITECTURE.md, "The stream library"). If
/// the number of lost frames in a damaged range is unknown, the range uses one sample number of its
/// source. The importer uses memory for one frame or, at damage, for up to four times the frame
/// limit.
///
/// # Errors
/// Any [`ImportError`]. Samples imported before the error are kept.
pub fn import(
    files: &[PathBuf],
    options: &StreamOptions,
    job: ImportJob<'_, '_>,
) -> Result<ImportReport, ImportError> {
    let (plan, sources) = sources(files, options)?;
    let longest = (job.limits.frame_max as usize).saturating_mul(READ_LIMITS);
    let mut recording = RunWriter::begin(job.storage, job.limits)?;
    for source in sources {
        recording.add_source(source)?;
    }
    let (course, report) = (job.progress, ImportReport::default());
    let mut importer = StreamImporter {
        checksum: options.checksum,
        plan,
        payload_bytes_max: longest,
        recording,
        frames: 0,
        progress: course,
        report,
    };
    let result = (0..).zip(files).try_for_each(|(source, path)| importer.import_file(source, path));
    let StreamImporter { recording, mut report, .. } = importer;
    if let Err(error @ ImportError::Write(_)) = result {
        return Err(error);
    }
    let written = recording.finish();
    match result {
        Err(ImportError::Stopped) => report.stopped = true,
        result => result?,
    }
    report.totals = written?;
    Ok(report)
}

/// Returns the sources of an import, one per file, and the compiled schema.
fn sources(
    files: &[PathBuf],
    options: &StreamOptions,
) -> Result<(Option<CompiledSchema>, Vec<ImportSource>), ImportError> {
    let names = match &options.names[..] {
        [] => source_names(files, "stream"),
        given => given_names(given, files.len())?,
    };
    let (plan, root, schema) = match &options.schema {
        None => (None, String::new(), &[][..]),
        Some(typed) => {
            typed.check_size(files.len())?;
            let (plan, root) = compile(typed)?;
            (Some(plan), root, &typed.schema[..])
        }
    };
    let source =
        |name: String| ImportSource { name, labels: vec![], root: root.clone(), schema: schema.to_vec() };
    let mut sources: Vec<ImportSource> = names.into_iter().map(source).collect();
    for (source, file) in sources.iter_mut().zip(files) {
        source.labels.push(("file".to_owned(), file.display().to_string()));
    }
    Ok((plan, sources))
}

/// Returns the compiled schema and the full name of its root table.
fn compile(typed: &PayloadSchema) -> Result<(CompiledSchema, String), ImportError> {
    let option = typed.option();
    let failed = |error: SchemaError| ImportError::Options(format!("{option}: {}", with_cause(&error)));
    let tables = SchemaTables::read(&typed.schema).map_err(failed)?;
    let table_names = || tables.names.join(", ");
    let root = typed.root.clone().or(tables.root.clone()).ok_or_else(|| {
        ImportError::Options(format!(
            "{option}: it has no root type; choose one of its tables with --root: {}",
            table_names()
        ))
    })?;
    if !tables.names.contains(&root) {
        return Err(ImportError::Options(format!(
            "--root {root}: no such table in {}; it has {}",
            typed.path.display(),
            table_names()
        )));
    }
    Ok((CompiledSchema::compile(&typed.schema, &root).map_err(failed)?, root))
}

impl PayloadSchema {
    /// Returns the option that named the schema, in the form that errors show.
    fn option(&self) -> String {
        format!("--schema {}", self.path.display())
    }

    /// Checks that copies of the schema for this many sources fit into a header.
    fn check_size(&self, sources: usize) -> Result<(), ImportError> {
        let bytes = self.schema.len();
        if bytes.saturating_mul(sources) <= SCHEMAS_BYTES_MAX {
            return Ok(());
        }
        Err(ImportError::Options(format!(
            "{}: {bytes} bytes, once for each of {sources} files, exceed the limit of {SCHEMAS_BYTES_MAX} bytes in a \
             recording's header; import fewer files at once",
            self.option()
        )))
    }
}

fn with_cause(error: &SchemaError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {}", cause.to_string().trim_end()),
        None => error.to_string(),
    }
}

/// An import in progress.
struct StreamImporter<'s, 'w> {
    checksum: Option<ChecksumKind>,
    plan: Option<CompiledSchema>,
    payload_bytes_max: usize, // maximum payload that is read completely
    recording: RunWriter<'s>,
    frames: u64, // recorded
    progress: ImportProgress<'w>,
    report: ImportReport,
}

impl StreamImporter<'_, '_> {
    fn import_file(&mut self, source: u16, path: &Path) -> Result<(), ImportError> {
        let mut window = InputWindow::new(self.progress.open(path)?);
        let result = self.read_frames(source, path, &mut window);
        self.report.bytes += window.offset();
        if let Some(damage) = window.take_damage() {
            let at = window.offset() + window.unconsumed().len() as u64;
            self.report.add_flaw(path, at, None, damage);
        }
        result
    }

    fn read_frames(&mut self, source: u16, path: &Path, window: &mut InputWindow) -> Result<(), ImportError> {
        let kind = match self.checksum {
            Some(kind) => kind,
            // In an empty file, nothing is missing for any kind of checksum.
            None if !window.fill(1)? => return Ok(()),
            None => probe::detect_checksum(window, path, self.payload_bytes_max)?,
        };
        let deframer = KindDeframer::new(kind).with_max_frame_len(self.payload_bytes_max);
        let (mut damage, before) = (None::<StreamDamage>, self.frames);
        let end = loop {
            let found = match self.next_item(window, &deframer) {
                Ok(Some(found)) => found,
                Ok(None) => break Ok(()),
                // The last damaged range is reported below, even after a stop.
                Err(stop @ ImportError::Stopped) => break Err(stop),
                Err(error) => return Err(error),
            };
            let length = found.length();
            if let Some(next) = StreamDamage::from_item(&found, window, &deframer) {
                match &mut damage {
                    Some(hole) if hole.is_continued_by(&next) => hole.extend(&next),
                    _ => self.report_damage(source, path, damage.replace(next)),
                }
            } else {
                self.report_damage(source, path, damage.take());
                if let StreamItem::Repaired(_) = found {
                    let what =
                        "a frame's length was damaged and repaired by its checksum; the frame is imported";
                    self.report.add_flaw(path, window.offset(), Some(0), what);
                }
                let frame = window.unconsumed().get(..length).unwrap_or_default();
                self.record_payload(
                    source,
                    path,
                    window.offset(),
                    frame.get(kind.frame_bytes(0)..).unwrap_or_default(),
                )?;
            }
            window.consume(length);
        };
        if let Some(damage) = damage.as_mut().filter(|_| self.frames == before) {
            damage.reason += "; no intact frame with the checksum ";
            damage.reason += kind.name();
            damage.reason += " was found; try another --checksum";
        }
        self.report_damage(source, path, damage);
        end
    }

    /// Returns the next item, or `None` at the end of the file.
    #[inline]
    fn next_item(
        &mut self,
        window: &mut InputWindow,
        deframer: &KindDeframer,
    ) -> Result<Option<StreamItem>, ImportError> {
        if !window.fill(1)? {
            return Ok(None);
        }
        if !self.progress.should_continue(self.frames) {
            return Err(ImportError::Stopped);
        }
        search::next_item(window, deframer).map(Some)
    }

    /// Records a payload, or reports the reason why the payload is not recorded.
    fn record_payload(
        &mut self,
        source: u16,
        path: &Path,
        offset: u64,
        payload: &[u8],
    ) -> Result<(), ImportError> {
        let length = payload.len();
        if !self.recording.fits(length) {
            let what =
                format!("a frame of {length} bytes exceeds the frame limit; raise it with --frame-max");
            self.report.add_flaw(path, offset, Some(1), what);
            self.recording.skip(source, 1, GapCause::TooLarge);
            return Ok(());
        }
        if let Some(Err(error)) = self.plan.as_ref().map(|plan| plan.walk(payload, &mut CheckOnlyVisitor)) {
            self.report.add_flaw(path, offset, Some(1), format!("a frame does not fit the schema: {error}"));
            self.recording.skip(source, 1, GapCause::Damaged);
            return Ok(());
        }
        self.frames += 1;
        self.recording.append(source, 0, length, |place| place.copy_from_slice(payload))
    }

    /// Reports a damaged range.
    fn report_damage(&mut self, source: u16, path: &Path, damage: Option<StreamDamage>) {
        let Some(damage) = damage else { return };
        self.report.add_flaw(
            path,
            damage.offset,
            damage.count,
            format!("{} bytes: {}", damage.bytes, damage.reason),
        );
        // If the count is unknown, at least one frame is missing.
        self.recording.skip(source, damage.count.unwrap_or(1), GapCause::Damaged);
    }
}

/// Reads the whole payload and ignores it, to check that it can be read.
struct CheckOnlyVisitor;

impl Visitor for CheckOnlyVisitor {
    fn begin_object(&mut self, _place: PathStep<'_>) {}
    fn end_object(&mut self) {}
    fn begin_list(&mut self, _place: PathStep<'_>, _length: usize) {}
    fn end_list(&mut self) {}
    fn value(&mut self, _place: PathStep<'_>, _value: FieldValue<'_>) {}
}

#[cfg(test)]
mod tests {
    use flatcap_format::segment::{Advance, FrameKind, Gap, Verification, list};
    use flatcap_os::storage::DataDirectory;
    use flatcap_stream::Framer;

    use super::*;

    const FRAME_MAX: u32 = 2048;

    /// The result of an import, that is, the report, each source's numbers and payloads, and the
    /// gaps.
    struct ImportResult {
        report: ImportReport,
        payloads: Vec<(u16, u64, Vec<u8>)>,
        gaps: Vec<(u64, u64, u32)>,
    }

    fn try_import(files: &[(&str, Vec<u8>)], options: &StreamOptions) -> Result<ImportResult, ImportError> {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = files.iter().map(|(name, _)| folder.path().join(name)).collect();
        for (path, (_, bytes)) in paths.iter().zip(files) {
            std::fs::write(path, bytes).unwrap();
        }
        let storage = DataDirectory::open(&folder.path().join("data")).unwrap();
        let plan = crate::ImportLimits { segment_bytes: 64 << 10, frame_max: FRAME_MAX };
        let mut watch = |_| true;
        let job = ImportJob { storage: &storage, limits: plan, progress: ImportProgress::new(&mut watch) };
        let report = import(&paths, options, job)?;
        let (mut payloads, mut gaps, mut verification) = (Vec::new(), Vec::new(), Verification::default());
        for listing in list(&[storage.path().to_owned()]).unwrap() {
            let mut reader = listing.open().unwrap().unwrap();
            verification.verify(&mut reader, false, &mut |_| {}).unwrap();
            let mut reader = listing.open().unwrap().unwrap();
            while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
                if let Some(sample) = reader.sample(at).filter(|_| at.kind == FrameKind::Telemetry) {
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
        Ok(ImportResult { report, payloads, gaps })
    }

    fn named(kind: ChecksumKind) -> StreamOptions {
        StreamOptions { checksum: Some(kind), ..StreamOptions::default() }
    }

    fn stream(kind: ChecksumKind, payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        for payload in payloads {
            starts.push(bytes.len());
            kind.frame_and_write(&mut bytes, payload).unwrap();
        }
        (bytes, starts)
    }

    /// Returns pseudorandom bytes that differ for each seed.
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

    // Proves that every payload is recorded byte for byte and in order, for every checksum, whether
    // detected or given. The test also proves that each file is a source.
    #[test]
    fn every_payload_is_kept() {
        let mut payloads: Vec<Vec<u8>> =
            (0..400).map(|length| noise(length, usize::try_from(length).unwrap())).collect();
        payloads.extend([vec![0; 64], Vec::new(), vec![0; FRAME_MAX as usize - 64]]);
        payloads.rotate_left(200);
        for options in ChecksumKind::ALL
            .iter()
            .map(|kind| (*kind, named(*kind)))
            .chain(ChecksumKind::ALL.iter().map(|kind| (*kind, StreamOptions::default())))
        {
            let (kind, options) = options;
            let (bytes, _) = stream(kind, &payloads);
            let length = bytes.len() as u64;
            let files = [("a.bin", bytes.clone()), ("none", Vec::new()), ("a.dat", bytes)];
            let ImportResult { report, payloads: found, gaps } = try_import(&files, &options).unwrap();
            assert!(report.is_complete() && gaps.is_empty() && !report.stopped, "{kind}: {:?}", report.flaws);
            assert_eq!(report.bytes, 2 * length);
            let of = |source| found.iter().filter(move |(of, ..)| *of == source);
            for source in [0, 2] {
                assert!(of(source).map(|(.., payload)| payload).eq(&payloads), "{kind}");
                assert!(of(source).map(|(_, seq, _)| *seq).eq(0..payloads.len() as u64));
            }
            assert_eq!(of(1).count(), 0);
            let names: Vec<_> = report.totals.sources.iter().map(|source| source.name.as_str()).collect();
            assert_eq!(names, ["a", "none", "a-2"]);
        }
    }

    // Proves that damage loses only the damaged frame, is reported with its offset, and uses one
    // sample number. Method: each byte of a frame is changed.
    #[test]
    fn damage_loses_only_its_frame() {
        let payloads = texts(12);
        for kind in [ChecksumKind::Xxh3, ChecksumKind::Crc32] {
            let (bytes, starts) = stream(kind, &payloads);
            for at in starts[5]..starts[6] {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x21;
                let ImportResult { report, payloads: found, gaps } =
                    try_import(&[("a", damaged)], &named(kind)).unwrap();
                let [flaw] = &report.flaws[..] else { panic!("{:?}", report.flaws) };
                assert_eq!(flaw.offset, starts[5] as u64);
                let found: Vec<_> = found.into_iter().map(|(.., payload)| payload).collect();
                if flaw.count == Some(0) {
                    assert!(at < starts[5] + 4 && found == payloads, "only a damaged length is repaired");
                    continue;
                }
                let mut left = payloads.clone();
                left.remove(5);
                assert_eq!(found, left, "{kind}, byte {at}");
                assert_eq!(gaps, [(5, 1, GapCause::Damaged.bits())]);
            }
        }
    }

    // Proves that a stream truncated at any byte yields its complete frames and that the end is
    // reported.
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

    // Proves that damaged ranges longer than the search window are reported as one range, in
    // constant memory, and that the frames after such a range are found. The same holds in a gzip
    // file.
    #[test]
    fn long_damage_is_skipped_in_constant_memory() {
        let kind = ChecksumKind::Xxh3;
        let payloads = texts(300);
        let (bytes, starts) = stream(kind, &payloads);
        let (one, other) = (starts[100], starts[200]);
        let garbage = noise(77, 100_000);
        let zeros = vec![0; 100_003];
        let whole = [&bytes[..one], &garbage, &bytes[one..other], &zeros, &bytes[other..]].concat();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, &whole).unwrap();
        for content in [whole, packed.finish().unwrap()] {
            let ImportResult { report, payloads: found, gaps } =
                try_import(&[("a", content)], &StreamOptions::default()).unwrap();
            assert!(found.into_iter().map(|(.., payload)| payload).eq(payloads.clone()));
            assert_eq!(gaps, [(100, 1, GapCause::Damaged.bits())]);
            let told: Vec<_> = report.flaws.iter().map(|flaw| (flaw.offset, flaw.count)).collect();
            assert_eq!(
                told,
                [(one as u64, None), ((other + garbage.len()) as u64, Some(0))],
                "{:?}",
                report.flaws
            );
            assert!(report.flaws[0].what.starts_with("100000 bytes: "), "{:?}", report.flaws);
        }
    }

    // Proves that a frame above the limit is reported as such and skipped completely, while an
    // impossible length is treated as damage.
    #[test]
    fn too_long_frames_are_reported() {
        let kind = ChecksumKind::Crc32;
        let long = vec![5; FRAME_MAX as usize];
        let (mut bytes, starts) = stream(kind, &[b"one".to_vec(), long, b"two".to_vec()]);
        let end = bytes.len() as u64;
        bytes.extend_from_slice(&[0xFF; 8]);
        bytes.extend_from_slice(&stream(kind, &[b"three".to_vec()]).0);
        let ImportResult { report, payloads, gaps } = try_import(&[("a", bytes)], &named(kind)).unwrap();
        let payloads: Vec<_> = payloads.iter().map(|(_, seq, payload)| (*seq, &payload[..])).collect();
        assert_eq!(payloads, [(0, &b"one"[..]), (2, b"two"), (4, b"three")]);
        assert_eq!(gaps, [(1, 1, GapCause::TooLarge.bits()), (3, 1, GapCause::Damaged.bits())]);
        let told: Vec<_> = report.flaws.iter().map(|flaw| (flaw.offset, flaw.count)).collect();
        assert_eq!(told, [(starts[1] as u64, Some(1)), (end, None)]);
        assert!(report.flaws.iter().all(|flaw| flaw.what.contains("--frame-max")), "{:?}", report.flaws);
    }

    // Proves that with a schema only matching payloads are imported, and that the recording
    // contains the schema.
    #[test]
    fn payloads_are_checked_against_a_schema() {
        let bytes = std::fs::read("../../tests/data/schema/event.bfbs").unwrap();
        let good = std::fs::read("../../tests/data/schema/event.bin").unwrap();
        let (content, starts) =
            stream(ChecksumKind::Xxh3, &[good.clone(), b"not a table".to_vec(), good.clone()]);
        let tables = SchemaTables::read(&bytes).unwrap();
        let root = tables.root.clone().unwrap();
        for named in [None, Some(root.clone())] {
            let schema =
                Some(PayloadSchema { path: "event.bfbs".into(), schema: bytes.clone(), root: named });
            let options = StreamOptions { schema, ..StreamOptions::default() };
            let imported = try_import(&[("a", content.clone())], &options).unwrap();
            let found: Vec<_> = imported.payloads.iter().map(|(_, seq, payload)| (*seq, payload)).collect();
            assert_eq!(found, [(0, &good), (2, &good)]);
            assert_eq!((imported.report.flaws.len(), imported.report.flaws[0].offset), (1, starts[1] as u64));
        }
        let schema =
            Some(PayloadSchema { path: "event.bfbs".into(), schema: bytes, root: Some("NoSuch".into()) });
        let options = StreamOptions { schema, ..StreamOptions::default() };
        let error = try_import(&[("a", content)], &options).err().unwrap().to_string();
        assert!(error.contains("NoSuch") && tables.names.iter().all(|name| error.contains(name)), "{error}");
    }

    // Proves that input with an ambiguous or unknown checksum is rejected with advice, and that
    // invalid names are rejected.
    #[test]
    fn ambiguous_streams_are_rejected() {
        let error = |content: &[u8]| {
            try_import(&[("a", content.to_vec())], &StreamOptions::default()).err().unwrap().to_string()
        };
        assert!(error(b"time,price\n1,2\n").contains("--checksum"));
        let several = error(&[0; 24]);
        assert!(several.contains("crc32, crc16, none") && several.contains("--checksum"), "{several}");
        for names in [&["x"][..], &["x", "x"], &["x", "../y"], &["x", ""]] {
            let names = names.iter().map(ToString::to_string).collect();
            let options = StreamOptions { names, ..StreamOptions::default() };
            let result = try_import(&[("a", Vec::new()), ("b", Vec::new())], &options);
            assert!(matches!(result, Err(ImportError::Options(_))));
        }
    }
}
