//! A disk that is full, failing or not writable, and the limits of the space that a recorder may
//! use.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use flatbuffers::root;
use flatcap_format::schema::segment::{Footer, Gap, GapCause, Trailer};
use serde_json::Value;

use crate::rig::{CallResult, Rig, eventually, finish, number, signal};
use crate::test_disk::{TestDisk, allocated};

const MIB: u64 = 1 << 20;
/// 1.6 MB/s.
const SOURCE: &str = "[source.synthetic]\nenabled = true\nperiod = \"1ms\"\nshape = \"wide\"\nfields = 200\n";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A running recorder, killed if the test fails.
struct Recording(Option<Child>);

impl Recording {
    fn start(rig: &Rig, storage: &str, source: &str, data: &Path) -> Self {
        let config = rig.write("disk.toml", format!("[storage]\n{storage}\n{source}"));
        let named = ["record", "--quiet", "--config", text(&config), "--source", "synthetic"];
        let mut command = rig.command(&[&named[..], &["--data-dir", text(data)]].concat());
        command.env_remove("FLATCAP_STORAGE__MIN_FREE");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().unwrap()))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    fn assert_alive(&mut self) {
        assert_eq!(self.child().try_wait().unwrap(), None, "the recorder has exited");
    }

    fn stop(mut self) -> CallResult {
        signal(self.child(), "TERM");
        finish(self.0.take().unwrap())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

/// The segments of a directory. A compressed copy that was not finished when its run ended is none.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let paths = allocated(directory).into_keys().map(|name| directory.join(name));
    let is_segment =
        |path: &PathBuf| path.extension().is_some_and(|ending| ending == "bin" || ending == "active");
    paths.filter(is_segment).collect()
}

fn length(directory: &Path) -> u64 {
    segments(directory).iter().filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Checks that the files are intact, that every missing sample is explained, and that every segment
/// has footer and trailer. Returns the verification report.
fn assert_explained(rig: &Rig, data: &Path) -> Value {
    let verify = rig.call(&["verify", "--json", text(data)]).json();
    assert_eq!(
        (&verify["intact"], &verify["unexplained"]),
        (&Value::from(true), &Value::from(0)),
        "{verify}"
    );
    for path in segments(data) {
        assert!(path.extension().is_some_and(|ending| ending == "bin"), "{} is not sealed", path.display());
        let bytes = std::fs::read(&path).unwrap();
        let payloads = crate::independent_reader::payloads(&bytes);
        let [.., footer, trailer] = payloads.as_slice() else { panic!("{}", path.display()) };
        root::<Footer<'_>>(footer).unwrap();
        root::<Trailer<'_>>(trailer).unwrap();
    }
    verify
}

/// Returns the number of samples in gaps, and the union of their causes.
fn gaps(data: &Path) -> (u64, GapCause) {
    let (mut count, mut causes) = (0, GapCause::empty());
    for path in segments(data) {
        let bytes = std::fs::read(path).unwrap();
        for payload in crate::independent_reader::payloads(&bytes) {
            if &payload[4..8] == b"FCGP" {
                let gap = root::<Gap<'_>>(payload).unwrap();
                count += gap.count();
                causes |= gap.causes();
            }
        }
    }
    (count, causes)
}

// Proves that a full disk retains the newest segments: segments shrink until eight of them fit, and
// the oldest are removed. Method: segments configured larger than a small tmpfs with a ballast
// file.
#[test]
fn a_full_disk_keeps_the_newest() {
    for storage in ["preallocate = \"0\"", "preallocate = \"1MiB\"\nmin_free = \"0%\""] {
        let rig = Rig::new();
        let Some(disk) = TestDisk::tmpfs(&rig, 8 * MIB) else { return };
        let (data, ballast) = (disk.path().join("data"), disk.path().join("ballast"));
        std::fs::write(&ballast, vec![1; 5 << 20]).unwrap();
        let recording =
            Recording::start(&rig, &format!("segment_size = \"64MiB\"\n{storage}"), SOURCE, &data);
        let newest =
            || segments(&data).last().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
        eventually("many segments", || newest().is_some_and(|name| name.as_str() >= "0000000020"));
        let called = recording.stop();
        let verify = assert_explained(&rig, &data);
        // If other work delays the syncer, there may be nothing to remove; samples without space
        // are then counted as lost.
        let (lost, causes) = gaps(&data);
        assert!(called.status == Some(if lost > 0 { 3 } else { 0 }), "{lost} {causes:?} {called:?}");
        assert_eq!(number(&verify["lost"]), lost);
        let left = segments(&data);
        assert!(left.len() >= 4 && !left[0].to_str().unwrap().contains("/0000000000-"), "{left:?}");
    }
}

// Proves that the last gaps, footer and trailer fit on a disk that stays full: their space is
// reserved. Method: as above, stopped while the disk is full; with the default minimum free space
// and without.
#[test]
fn the_end_of_a_segment_fits_on_a_full_disk() {
    for storage in ["preallocate = \"16MiB\"", "preallocate = \"0\"\nmin_free = \"0%\""] {
        let rig = Rig::new();
        let Some(disk) = TestDisk::tmpfs(&rig, 4 * MIB) else { return };
        let (data, ballast) = (disk.path().join("data"), disk.path().join("ballast"));
        let storage = format!("segment_size = \"64MiB\"\n{storage}");
        let mut recording = Recording::start(&rig, &storage, SOURCE, &data);
        eventually("a nearly full disk", || length(&data) > 2 * MIB);
        // Takes all remaining space.
        let _full = std::fs::write(&ballast, vec![1; 4 << 20]).unwrap_err();
        recording.assert_alive();
        let called = recording.stop();
        let verify = assert_explained(&rig, &data);
        let (lost, causes) = gaps(&data);
        assert!(called.status == Some(0) || lost > 0 && causes == GapCause::Storage, "{lost} {called:?}");
        assert_eq!(number(&verify["lost"]), lost);
    }
}

// Proves that, where sealed segments may be removed, a full disk costs the oldest of them and no
// sample. Method: segments of 256 KiB on a tmpfs of 4 MiB, three times as much as fits.
#[test]
fn a_full_disk_costs_the_oldest() {
    for preallocate in ["0", "256KiB"] {
        let rig = Rig::new();
        let Some(disk) = TestDisk::tmpfs(&rig, 4 * MIB) else { return };
        let data = disk.path().join("data");
        let storage =
            format!("segment_size = \"256KiB\"\npreallocate = \"{preallocate}\"\nmin_free = \"0%\"");
        let recording = Recording::start(&rig, &storage, SOURCE, &data);
        eventually("enough segments", || {
            segments(&data)
                .last()
                .is_some_and(|path| text(path.file_name().unwrap().as_ref()) >= "0000000040")
        });
        let called = recording.stop();
        assert_eq!(called.status, Some(0), "{called:?}");
        let verify = assert_explained(&rig, &data);
        assert_eq!(number(&verify["lost"]), 0);
        let left = segments(&data);
        assert!((8..=17).contains(&left.len()), "{left:?}");
        assert!(!left[0].to_str().unwrap().contains("/0000000000-"));
    }
}

// Proves that a directory that is read-only for a while costs nothing while the open segment
// continues, and that rotation resumes. Method: another user; the directory's mode is changed and
// restored.
#[test]
fn a_read_only_directory_is_waited_for() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to record as another user");
        return;
    }
    let rig = Rig::new();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(rig.data().parent().unwrap(), 0o755);
    let data = rig.data();
    std::fs::create_dir(&data).unwrap();
    std::os::unix::fs::chown(&data, Some(65534), Some(65534)).unwrap();
    let config =
        rig.write("disk.toml", format!("[storage]\nsegment_size = \"256KiB\"\nmin_free = \"0\"\n{SOURCE}"));
    mode(&config, 0o644);
    let mut command = Command::new("setpriv");
    crate::rig::without_settings(&mut command);
    let child = command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_flatcap")])
        .args([
            "record",
            "--quiet",
            "--source",
            "synthetic",
            "--config",
            text(&config),
            "--data-dir",
            text(&data),
        ])
        .current_dir(data.parent().unwrap())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut recording = Recording(Some(child));
    eventually("two segments", || segments(&data).len() >= 2);
    mode(&data, 0o555);
    let before = length(&data);
    eventually("the open segment continues", || length(&data) > before + MIB);
    recording.assert_alive();
    let refused = segments(&data).len();
    mode(&data, 0o755);
    eventually("rotation resumes", || segments(&data).len() >= refused + 3);
    let called = recording.stop();
    assert!(called.err.contains("Permission denied"), "{called:?}");
    assert_eq!(called.status, Some(3), "{called:?}");
    // A segment that could not be renamed keeps its name until the next run, or until recovery:
    let recovered = rig.call(&["recover", text(&data)]);
    assert_eq!(recovered.status, Some(0), "{recovered:?}");
    let verify = assert_explained(&rig, &data);
    assert_eq!(number(&verify["lost"]), 0, "the open segment contains every sample");
}

// Proves that a failing device costs only data in flight, and that recording resumes when it works
// again. Method: ext4 on a device with less space than it claims (ENOSPC on write-back, reported by
// fdatasync), which later gets the rest.
#[test]
fn a_failing_device_is_survived() {
    let rig = Rig::new();
    let Some(disk) = TestDisk::failing_ext4(&rig, 12 * MIB) else { return };
    let data = disk.path().join("data/records");
    let storage = "segment_size = \"1MiB\"\nsync_interval = \"100ms\"\nmin_free = \"0%\"";
    let mut recording = Recording::start(&rig, storage, SOURCE, &data);
    // A segment that waits for the syncer is `.active`, too, so the errors are asked for as well.
    let abandoned = || {
        let names = segments(&data);
        let active = names.iter().filter(|path| path.extension().is_some_and(|ending| ending == "active"));
        let errors = rig.status().map_or(0, |status| number(&status["storage"]["errors"]));
        active.count() >= 3 && errors > 0
    };
    eventually("segments whose sync has failed", abandoned);
    recording.assert_alive();
    disk.resize(200 * MIB);
    let count = segments(&data).len();
    let sealed = |from: usize| {
        let names = segments(&data);
        names.iter().skip(from).filter(|path| path.extension().is_some_and(|ending| ending == "bin")).count()
    };
    eventually("sealed segments again", || sealed(count) >= 2);
    let called = recording.stop();
    assert_eq!(called.status, Some(3), "{called:?}");
    assert!(called.err.contains("cannot sync a segment"), "{called:?}");
    // The kernel may discard pages that it could not write back. The damage and the missing samples
    // are then in segments whose sync failed, and in no others.
    let verify = rig.call(&["verify", "--json", text(&data)]).json();
    let is_abandoned = |row: &Value| row["path"].as_str().unwrap().ends_with(".active");
    let damage: Vec<&Value> = verify["damage"].as_array().unwrap().iter().collect();
    assert!(damage.iter().all(|row| is_abandoned(row)), "{verify}");
    for hole in verify["holes"].as_array().unwrap() {
        assert!(damage.iter().any(|row| row["path"] == hole["path"]), "{verify}");
    }
}

/// Returns the bytes that the directory surely held at one moment between two listings. Files only
/// grow, except for the cut when a segment is sealed, so the smaller of two sizes was there.
fn bytes_held(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> u64 {
    before.iter().filter_map(|(name, bytes)| Some(*bytes.min(after.get(name)?))).sum()
}

// Proves that the directory never exceeds its quota, that only sealed segments are removed, oldest
// first, and that foreign files stay. Method: more than 5 MB through 4 MiB, listed as fast as
// possible.
#[test]
fn the_quota_holds_at_full_speed() {
    const QUOTA: u64 = 4 * MIB;
    for preallocate in ["0", "256KiB"] {
        let rig = Rig::new();
        let data = rig.data();
        std::fs::create_dir(&data).unwrap();
        let foreign = [("notes.txt", 100_000), ("0000000000-20200101T000000Z-00000000000000zz.bin", 9000)];
        for (name, bytes) in foreign {
            std::fs::write(data.join(name), vec![7; bytes]).unwrap();
        }
        let source =
            "[source.synthetic]\nenabled = true\nperiod = \"200us\"\nshape = \"wide\"\nfields = 250\n";
        let storage = format!(
            "segment_size = \"256KiB\"\nretain_bytes = \"4MiB\"\npreallocate = \"{preallocate}\"\nmin_free = \"0%\""
        );
        let recording = Recording::start(&rig, &storage, source, &data);
        let (mut looks, mut most) = (0, 0);
        let mut before = allocated(&data);
        let (mut missing, mut gone) = (BTreeSet::new(), BTreeSet::new());
        let end = Instant::now() + crate::rig::WATCHDOG;
        while gone.len() <= 20 {
            assert!(Instant::now() < end, "{gone:?} gone within {:?}", crate::rig::WATCHDOG);
            let after = allocated(&data);
            most = most.max(bytes_held(&before, &after));
            let number_of = |name: &str| name.get(..10).and_then(|digits| digits.parse::<u64>().ok());
            let has = |number| after.keys().any(|name| number_of(name) == Some(number));
            // A file that was just renamed may be missing in one listing, and is present in the
            // next.
            gone.extend(missing.iter().copied().filter(|number| !has(*number)));
            missing.clear();
            // An open segment is renamed when it is sealed. One for which there is no space yet is
            // given up, without a sample in it.
            let is_open = |name: &str| name.ends_with(".active");
            for name in before.keys().filter(|name| !after.contains_key(*name) && !is_open(name)) {
                missing.insert(number_of(name).unwrap_or_else(|| panic!("{name} is gone")));
            }
            let oldest = after.keys().filter(|name| name.contains(".bin") && !name.contains("zz")).min();
            if let (Some(oldest), Some(last)) = (oldest.and_then(|name| number_of(name)), gone.last()) {
                assert!(oldest > *last, "{oldest} is there, {last} is gone");
            }
            before = after;
            looks += 1;
        }
        let called = recording.stop();
        // If other work delays the syncer, nothing is sealed and nothing can be removed. The quota
        // holds all the same, and samples without space are counted.
        let is_full = called.status == Some(3) && called.err.contains("cannot");
        assert!(called.status == Some(0) || is_full, "{called:?}");
        assert_eq!(rig.verify()["unexplained"], 0);
        assert!(most <= QUOTA && allocated(&data).values().sum::<u64>() <= QUOTA, "{most} of {QUOTA}");
        println!(
            "preallocate {preallocate}: at most {most} bytes of {QUOTA} in {looks} listings, {} removed",
            gone.len()
        );
        assert!(gone.len() > 20 && most > QUOTA / 2, "{most} {gone:?}");
        for (name, bytes) in foreign {
            assert_eq!(std::fs::read(data.join(name)).unwrap(), vec![7; bytes]);
        }
    }
}
