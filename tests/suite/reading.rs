//! Reading of incomplete or damaged input: bad files, several directories, followers of killed
//! runs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::channel;
use std::time::Duration;

use flatcap::cli::{self, ExitStatus};
use flatcap_format::replay::{MergedReader, Notice, ReplayFilter, ReplayItem};
use flatcap_format::segment::{Advance, Elapsed, FrameKind, Marker, RecordingStart, SegmentReader, markers};

use crate::rig::{Rig, finish, signal};
use crate::seeking::{
    LateSlab, NAME_PREFIX, NS_PER_S, SAMPLES_PER_SEGMENT, SEGMENTS, STEP_S, json_report, write_run,
    write_slabs,
};

/// Returns samples and notices until the reader has no more.
fn read_all(reader: &mut MergedReader) -> (Vec<u64>, Vec<String>) {
    let (mut samples, mut notices) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next().unwrap() {
        match item {
            ReplayItem::Sample(sample) => samples.push(sample.telemetry.seq),
            ReplayItem::Notice(notice) => notices.push(match notice {
                Notice::Unrecovered(_) => "unrecovered".to_owned(),
                Notice::Truncated(_, offset) => format!("truncated at {offset}"),
                other => format!("{other:?}"),
            }),
            _ => {}
        }
    }
    (samples, notices)
}

/// Returns the segment files of a directory, in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.to_string_lossy().contains(".bin")).collect();
    files.sort();
    files
}

fn move_into(folder: &Path, file: &Path) {
    std::fs::rename(file, folder.join(file.file_name().unwrap())).unwrap();
}

// Proves that verify names a file that it cannot open, checks all others, and returns the status
// for loss; it fails only if nothing can be read. Method: a dangling link and a directory among
// segments.
#[test]
fn verify_continues_after_an_unreadable_file() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 0, 0xb, 1_700_000_000, [0, 0]);
    let last = files(folder.path()).pop().unwrap();
    std::fs::remove_file(last).unwrap();
    let link = folder.path().join("0000000003-20231114T221320Z-00000000000000aa.bin");
    std::os::unix::fs::symlink("/nonexistent/segment", &link).unwrap();
    std::fs::create_dir(folder.path().join("0000000004-20231114T221320Z-00000000000000ab.bin")).unwrap();
    let called = |path: &Path| {
        let args = ["flatcap".as_ref(), "verify".as_ref(), path.as_os_str()].map(OsString::from);
        let mut out = Vec::new();
        let outcome = cli::run(args, &mut out);
        (outcome, String::from_utf8(out).unwrap())
    };
    let (outcome, text) = called(folder.path());
    assert_eq!(outcome, ExitStatus::DataLoss, "{text}");
    assert!(text.contains(&format!("unreadable: {}: ", link.display())), "{text}");
    assert!(text.ends_with(&format!(
        "no damage found, but 2 file(s) could not be read: {} frames, 0 lost and explained, 0 unexplained\n",
        (SEGMENTS - 1) * SAMPLES_PER_SEGMENT
    )));
    let json = json_report("verify", folder.path());
    assert_eq!((json["unreadable"].as_array().unwrap().len(), &json["intact"]), (2, &true.into()));
    assert_eq!(called(&link).0, ExitStatus::Failed);
}

// Proves that times after the start follow the monotonic clock: a step of the wall clock neither
// adds nor hides samples. A run of another boot is placed by the wall clocks. Method: equal windows
// everywhere.
#[test]
fn elapsed_times_ignore_clock_steps() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 0, 1, 1_700_000_000, [-500, 3000]);
    let run_s = SEGMENTS * SAMPLES_PER_SEGMENT * STEP_S;
    write_run(folder.path(), 100, 2, 1_700_000_000 + 2 * run_s.cast_signed(), [0, 0]);
    let start = RecordingStart {
        run_id: 1,
        boot_id: None,
        mono_ns: 0,
        wall_ns: 1_700_000_000 * NS_PER_S.cast_signed(),
    };
    let within = |from_s: u64, to_s: u64| {
        let elapsed = Some(Elapsed { start: start.clone(), ns: from_s * NS_PER_S..to_s * NS_PER_S });
        let filter = ReplayFilter { elapsed, ..ReplayFilter::default() };
        read_all(&mut MergedReader::open(&[folder.path().to_owned()], filter).unwrap()).0
    };
    for from_s in (0..3 * run_s).step_by(77) {
        let to_s = from_s + 40;
        let of_run = |begin_s: u64| {
            (0..run_s / STEP_S).filter(move |seq| (from_s..to_s).contains(&(begin_s + seq * STEP_S)))
        };
        let expected: Vec<u64> = of_run(0).chain(of_run(2 * run_s)).collect();
        assert_eq!(within(from_s, to_s), expected, "{from_s}");
    }
}

// Proves that new segments of each directory are seen, whatever numbers other directories have.
// Method: two directories, one with higher numbers; then each gets another segment.
#[test]
fn new_segments_are_seen_in_each_directory() {
    let [high, low, later] = [0; 3].map(|_| tempfile::tempdir().unwrap());
    write_run(high.path(), 500, 1, 1_700_000_000, [0, 0]);
    write_run(low.path(), 0, 2, 1_700_000_000, [0, 0]);
    for folder in [&high, &low] {
        std::fs::create_dir(later.path().join(folder.path().file_name().unwrap())).unwrap();
        for file in files(folder.path()).split_off(2) {
            move_into(&later.path().join(folder.path().file_name().unwrap()), &file);
        }
    }
    let mut reader =
        MergedReader::open(&[high.path().to_owned(), low.path().to_owned()], ReplayFilter::default())
            .unwrap();
    assert_eq!(read_all(&mut reader).0.len() as u64, 4 * SAMPLES_PER_SEGMENT);
    for folder in [&low, &high] {
        let next = files(&later.path().join(folder.path().file_name().unwrap())).remove(0);
        move_into(folder.path(), &next);
        reader.refresh().unwrap();
        let (samples, notices) = read_all(&mut reader);
        assert_eq!(
            (samples, notices),
            ((2 * SAMPLES_PER_SEGMENT..3 * SAMPLES_PER_SEGMENT).collect(), vec![])
        );
    }
}

// Proves that dump --follow follows every named directory while the recording in the first one
// continues. Method: an open segment under a lock, and a segment published in the second directory.
#[test]
fn every_directory_is_followed() {
    let rig = Rig::new();
    let [first, second, later] = ["first", "second", "later"].map(|name| rig.path(name));
    for (folder, run_id) in [(&first, 1), (&second, 2)] {
        std::fs::create_dir(folder).unwrap();
        write_run(folder, 10 * (3 - run_id), run_id, 1_700_000_000, [0, 0]);
    }
    for file in files(&first).drain(..SEGMENTS as usize - 1) {
        std::fs::remove_file(file).unwrap();
    }
    std::fs::create_dir(&later).unwrap();
    let mut of_second = files(&second);
    of_second.drain(2..).for_each(|file| std::fs::remove_file(file).unwrap());
    move_into(&later, &of_second[1]);
    let lock = std::fs::File::create(first.join("flatcap.lock")).unwrap();
    lock.lock().unwrap();
    let mut follower =
        Follower(Some(rig.start(&["dump", "--follow", "--format", "jsonl", "first", "second"])));
    let lines = BufReader::new(follower.0.as_mut().unwrap().stdout.take().unwrap()).lines();
    let (sender, rows) = channel();
    std::thread::spawn(move || {
        for line in lines {
            let row: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            if sender.send(row["seq"].as_u64().unwrap()).is_err() {
                return;
            }
        }
    });
    let take = || -> Vec<u64> {
        (0..SAMPLES_PER_SEGMENT).map(|_| rows.recv_timeout(Duration::from_secs(60)).expect("a row")).collect()
    };
    let from = (SEGMENTS - 1) * SAMPLES_PER_SEGMENT;
    assert_eq!(take(), (from..from + SAMPLES_PER_SEGMENT).collect::<Vec<_>>());
    assert_eq!(take(), (0..SAMPLES_PER_SEGMENT).collect::<Vec<_>>());
    move_into(&second, &later.join(of_second[1].file_name().unwrap()));
    assert_eq!(take(), (SAMPLES_PER_SEGMENT..2 * SAMPLES_PER_SEGMENT).collect::<Vec<_>>());
    let child = follower.0.take().unwrap();
    signal(&child, "TERM");
    assert_eq!(finish(child).status, Some(0));
}

/// A child that is killed at the end of the test.
struct Follower(Option<Child>);

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

// Proves that a follower reports it when it moves past the segment of a killed run that was never
// completed, and not before. Method: an unsealed segment, then a segment of another run.
#[test]
fn a_follower_reports_unrecovered_segments() {
    let (folder, later) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_run(folder.path(), 0, 1, 1_700_000_000, [0, 0]);
    write_run(later.path(), 50, 2, 1_700_009_000, [0, 0]);
    files(folder.path()).drain(..SEGMENTS as usize - 2).for_each(|file| std::fs::remove_file(file).unwrap());
    let hidden = tempfile::tempdir().unwrap();
    let unsealed = files(folder.path()).pop().unwrap();
    move_into(hidden.path(), &unsealed);
    let mut reader = MergedReader::open(&[folder.path().to_owned()], ReplayFilter::default()).unwrap();
    assert_eq!(read_all(&mut reader).0.len() as u64, SAMPLES_PER_SEGMENT);
    move_into(folder.path(), &hidden.path().join(unsealed.file_name().unwrap()));
    reader.refresh().unwrap();
    assert_eq!(read_all(&mut reader).0.len() as u64, SAMPLES_PER_SEGMENT);
    move_into(folder.path(), &files(later.path())[0]);
    let mut looks = 0;
    let (samples, notices) = loop {
        reader.refresh().unwrap();
        looks += 1;
        match read_all(&mut reader) {
            (samples, notices) if samples.is_empty() && notices.is_empty() => assert!(looks < 1000),
            seen => break seen,
        }
    };
    assert_eq!((samples, notices), ((0..SAMPLES_PER_SEGMENT).collect(), vec!["unrecovered".to_owned()]));
    assert!(looks >= 100, "{looks}");
}

// Proves that a follower reports frames that the recorder truncated for lack of space, and reads
// the frames written in their place. Method: an unsealed segment is cut at a frame and continued.
#[test]
fn a_follower_reports_truncated_frames() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 0, 1, 1_700_000_000, [0, 0]);
    let unsealed = files(folder.path()).pop().unwrap();
    files(folder.path()).drain(..SEGMENTS as usize - 1).for_each(|file| std::fs::remove_file(file).unwrap());
    let whole = std::fs::read(&unsealed).unwrap();
    let mut frames = Vec::new();
    let mut reader = SegmentReader::open(&unsealed).unwrap();
    while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
        frames.extend((at.kind == FrameKind::Telemetry).then_some(at.offset as usize));
    }
    let hidden = folder.path().join("hidden");
    std::fs::rename(&unsealed, &hidden).unwrap();
    let mut reader = MergedReader::open(&[folder.path().to_owned()], ReplayFilter::default()).unwrap();
    assert_eq!(read_all(&mut reader), (vec![], vec![]));
    std::fs::rename(&hidden, &unsealed).unwrap();
    reader.refresh().unwrap();
    assert_eq!(read_all(&mut reader).0.len() as u64, SAMPLES_PER_SEGMENT);
    let (cut, from) = (frames[20], frames[25]);
    std::fs::write(&unsealed, &whole[..cut]).unwrap();
    assert_eq!(read_all(&mut reader), (vec![], vec![format!("truncated at {cut}")]));
    std::fs::write(&unsealed, [&whole[..cut], &whole[from..]].concat()).unwrap();
    let last = SEGMENTS * SAMPLES_PER_SEGMENT;
    assert_eq!(read_all(&mut reader), ((last - 5..last).collect(), vec![]));
}

// Proves that the markers of a segment, for which most samples are skipped, are those that reading
// everything finds. Method: all golden segments, some of which have several intervals.
#[test]
fn markers_are_found_without_the_samples() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found = 0;
    for path in files.filter(|path| path.extension().is_some_and(|ending| ending == "bin")) {
        let Ok(mut reader) = SegmentReader::open(&path) else { continue };
        let mut expected = Vec::new();
        while let Some(advance) = reader.advance().unwrap() {
            if let Advance::Frame(at) = advance
                && at.kind == FrameKind::Marker
            {
                expected.extend(Marker::decode(reader.payload(at)));
            }
        }
        found += expected.len();
        assert_eq!(
            markers(&mut SegmentReader::open(&path).unwrap()).unwrap(),
            expected,
            "{}",
            path.display()
        );
    }
    assert!(found > 5, "{found}");
}

/// Returns outcome and number of samples of a golden segment, of one source or all.
fn rows(path: &Path, source: Option<&str>) -> (ExitStatus, usize) {
    let mut args = vec!["flatcap".into(), "dump".into(), "--format".into(), "jsonl".into(), path.into()];
    args.extend(source.into_iter().flat_map(|source| [OsString::from("--source"), source.into()]));
    let mut out = Vec::new();
    let outcome = cli::run(args, &mut out);
    // Other lines are markers and gaps.
    (outcome, String::from_utf8(out).unwrap().lines().filter(|line| line.starts_with("{\"source\"")).count())
}

// Proves that a source described after the header can be selected, in sealed and unsealed segments,
// even if its descriptor is damaged and the footer has a copy. Method: a golden segment, cut and
// damaged.
#[test]
fn sources_described_later_can_be_selected() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/sealed-crc32.bin");
    let (mut frames, mut samples) = (Vec::new(), 0);
    let mut reader = SegmentReader::open(&golden).unwrap();
    let mut names = BTreeSet::new();
    while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
        samples += usize::from(at.kind == FrameKind::Telemetry);
        frames.push(at);
        names.extend(reader.header().sources.iter().map(|source| source.name.clone()));
    }
    let of_kind = |kind| frames.iter().find(|at| at.kind == kind).unwrap();
    let (descriptor, footer) = (of_kind(FrameKind::Descriptor), of_kind(FrameKind::Footer));
    let (outcome, later) = rows(&golden, Some("event-2"));
    assert!(outcome == ExitStatus::Done && later > 0, "{names:?}");
    let folder = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(&golden).unwrap();
    let path = folder.path().join("segment.bin");
    std::fs::write(&path, &bytes[..footer.offset as usize]).unwrap();
    assert_eq!(rows(&path, Some("event-2")).1, later, "not sealed");
    assert_eq!(rows(&path, Some("event-9")).0, ExitStatus::Usage);
    let mut damaged = bytes;
    damaged[descriptor.offset as usize + descriptor.bytes / 2] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    assert_eq!(rows(&path, None), (ExitStatus::DataLoss, samples), "one frame is damaged, no sample");
    assert_eq!(rows(&path, Some("event-2")).1, later);
}

// Proves that no verb prints control characters of names. Method: names of sources that would set
// the title, forge a line and clear the screen.
#[test]
fn control_characters_of_names_reach_no_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let slabs: Vec<_> = (0..2).map(|source| LateSlab { source, numbers: 0..3, written_s: 9 }).collect();
    write_slabs(folder.path(), &slabs, 2, false);
    let (data, first) = (folder.path().to_str().unwrap(), format!("{NAME_PREFIX}0"));
    let output = folder.path().join("exported");
    let output = output.to_str().unwrap();
    // CSV for a program has the names as they are.
    let calls: [&[&str]; 6] = [
        &["info"],
        &["verify"],
        &["dump"],
        &["dump", "--source", &first],
        &["dump", "--format", "jsonl"],
        &["export", "--to", "stream", "--output", output],
    ];
    for call in calls {
        let mut out = Vec::new();
        cli::run(["flatcap"].iter().chain(call).chain([&data]).map(OsString::from), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("all is well"), "{call:?}: {text}");
        let is_unsafe = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(is_unsafe) && !text.contains("\nall is well"), "{call:?}: {text:?}");
    }
}
