//! A user who owns a data directory, or may write to it, cannot lead another account out of it
//! while that account reads or changes recordings there: not with a link, a FIFO, a socket or a
//! directory, and not by placing one there at any step of the work.

use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use flatcap_format::block::CompressionOptions;
use flatcap_format::segment::{DirectoryRecovery, Leftovers, SegmentName};
use flatcap_format::storage::Storage;
use flatcap_import::{ImportLimits, ImportSource, RunWriter};
use flatcap_os::storage::DataDirectory;
use flatcap_recorder::compress::{
    CompressJob, NamedSourceCompression, ReplaceJob, ReplaceMode, compress_segment,
};
use flatcap_stream::ChecksumKind;

use crate::crafted::{every_frame_kind, fixture};
use crate::hooked_storage::{HookedStorage, OperationKind};
use crate::rig::{Rig, finish, finish_within, signal};

/// An account without privileges.
const NOBODY: u32 = 65_534;
/// Maximum time for a call that waits for no other process, on the busiest machine.
const WATCHDOG: Duration = Duration::from_secs(120);
const SEALED: &str = "0000000007-20231114T221320Z-0123456789abcdef.bin";
const ACTIVE: &str = "0000000007-20231114T221320Z-0123456789abcdef.bin.active";

/// An object that is put in the place of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bait {
    /// A link to a secret file.
    Secret,
    /// A link to a segment that is not completed.
    Segment,
    /// A link to a missing file.
    Absent,
    Fifo,
    Socket,
    Directory,
}

const LINKS: [Bait; 3] = [Bait::Secret, Bait::Segment, Bait::Absent];
const OTHERS: [Bait; 3] = [Bait::Fifo, Bait::Socket, Bait::Directory];

/// Files of root that other accounts may not change, next to a directory of another account.
struct Scene {
    folder: tempfile::TempDir,
    before: Vec<(PathBuf, [i64; 6])>,
}

impl Scene {
    fn new(owner: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // The parent is open to other accounts, so that only the code under test protects the
        // files.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["victim", "data"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::write(path("victim/secret"), "root:SECRET").unwrap();
        std::fs::write(path("victim/segment"), torn()).unwrap();
        std::fs::set_permissions(path("victim/secret"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        chown(path("data"), Some(owner), Some(owner)).unwrap();
        let mut scene = Self { folder, before: Vec::new() };
        scene.before = scene.victims();
        scene
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Adds a file of the directory's owner.
    fn put(&self, name: &str, content: &[u8]) {
        let (path, owner) = (self.data().join(name), std::fs::metadata(self.data()).unwrap().uid());
        std::fs::write(&path, content).unwrap();
        chown(path, Some(owner), Some(owner)).unwrap();
    }

    /// Returns the attributes that change on any write or change of owner or mode.
    fn victims(&self) -> Vec<(PathBuf, [i64; 6])> {
        let entries = std::fs::read_dir(self.folder.path().join("victim")).unwrap();
        let mut victims: Vec<_> = entries
            .map(|entry| {
                let path = entry.unwrap().path();
                let of = std::fs::symlink_metadata(&path).unwrap();
                let numbers = [
                    of.uid().into(),
                    of.gid().into(),
                    of.mode().into(),
                    of.ctime(),
                    of.ctime_nsec(),
                    of.mtime(),
                ];
                (path, numbers)
            })
            .collect();
        victims.sort();
        victims
    }

    fn assert_untouched(&self, what: &str) {
        assert_eq!(self.victims(), self.before, "{what}");
    }
}

/// Returns a segment of some samples, without its end and with a torn tail.
fn torn() -> Vec<u8> {
    static TORN: OnceLock<Vec<u8>> = OnceLock::new();
    let make =
        || [every_frame_kind(ChecksumKind::Xxh3, &fixture("event.bfbs")).unsealed(), vec![7; 1000]].concat();
    TORN.get_or_init(make).clone()
}

/// Returns a sealed segment that is worth compressing.
fn sealed() -> Vec<u8> {
    let mut maker = every_frame_kind(ChecksumKind::Xxh3, &fixture("event.bfbs"));
    maker.samples(0, 100..400);
    maker.sealed()
}

/// Puts a bait under a name; an existing entry is moved away.
fn bait(scene: &Scene, name: &str, bait: Bait) {
    let path = scene.data().join(name);
    let owner = std::fs::metadata(scene.data()).unwrap().uid();
    if path.symlink_metadata().is_ok() {
        std::fs::rename(&path, scene.data().join(format!("stolen-{name}"))).unwrap();
    }
    match bait {
        Bait::Secret => symlink("../victim/secret", &path).unwrap(),
        Bait::Segment => symlink("../victim/segment", &path).unwrap(),
        Bait::Absent => symlink("../victim/absent", &path).unwrap(),
        Bait::Fifo => {
            rustix::fs::mknodat(
                rustix::fs::CWD,
                &path,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RWXU,
                0,
            )
            .unwrap();
        }
        Bait::Socket => drop(UnixListener::bind(&path).unwrap()),
        Bait::Directory => std::fs::create_dir(&path).unwrap(),
    }
    lchown(path, Some(owner), Some(owner)).unwrap();
}

/// Exchanges every file of a directory for a bait before one of the operations.
struct Attack {
    scene: Scene,
    at: usize, // operation
    bait: Bait,
    operations: AtomicUsize,
}

impl std::fmt::Debug for Attack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} before operation {}", self.bait, self.at)
    }
}

impl Attack {
    fn before_operation(&self) {
        if self.operations.fetch_add(1, Ordering::Relaxed) != self.at {
            return;
        }
        let names: Vec<String> = std::fs::read_dir(self.scene.data())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for name in &names {
            bait(&self.scene, name, self.bait);
        }
    }
}

/// Runs the work once for each of its operations and each link (the other baits take turns), in a
/// directory of an unprivileged account and in one of root, and checks the files next to the
/// directory. Each run has its own thread and a timeout.
fn attack(files: &[(&str, Vec<u8>)], work: fn(&dyn Storage)) {
    if !rustix::process::getuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let baits = LINKS.map(|link| [link; 3]).into_iter().chain([OTHERS]);
    for (owner, baits) in baits.flat_map(|baits| [NOBODY, 0].map(|owner| (owner, baits))) {
        for (at, bait) in baits.into_iter().cycle().enumerate() {
            let scene = Scene::new(owner);
            for (name, content) in files {
                scene.put(name, content);
            }
            let inner = DataDirectory::open(&scene.data()).unwrap();
            let attack = Arc::new(Attack { scene, at, bait, operations: AtomicUsize::new(0) });
            let hook = {
                let attack = Arc::clone(&attack);
                move |kind| {
                    if kind != OperationKind::Preallocate {
                        attack.before_operation();
                    }
                }
            };
            let hostile = HookedStorage::new(Arc::new(inner), hook);
            let (done, is_done) = mpsc::channel();
            std::thread::spawn(move || {
                work(&hostile);
                drop(hostile);
                done.send(()).unwrap();
            });
            is_done.recv_timeout(WATCHDOG).unwrap_or_else(|error| panic!("{attack:?}: {error}"));
            attack.scene.assert_untouched(&format!("{attack:?}"));
            if attack.operations.load(Ordering::Relaxed) <= at {
                assert!(at > 4, "{at}: fewer operations than the work has");
                break;
            }
        }
    }
}

// Proves that compression by root touches nothing outside the directory. Method: every file is
// exchanged for each kind of bait before each operation.
#[test]
fn compression_leaves_other_directories_alone() {
    attack(&[(SEALED, sealed())], |storage| {
        let ways = NamedSourceCompression { general: CompressionOptions::default(), sources: Vec::new() };
        let mut job = CompressJob {
            replace: ReplaceJob {
                storage,
                min_free: 0,
                replace_mode: ReplaceMode::ExchangeOrReplace,
                after_slice: &mut |_| true,
            },
            compression: &ways,
            block_bytes: 64 << 10,
        };
        // It may fail; only the files outside matter.
        let _outcome = compress_segment(&mut job, SegmentName::parse(SEALED).unwrap());
    });
}

// Proves the same for recovery by root, of a torn segment and of one whose damage makes it write a
// new file.
#[test]
fn recovery_leaves_other_directories_alone() {
    let mut damaged = every_frame_kind(ChecksumKind::Xxh3, &fixture("event.bfbs")).unsealed();
    let middle = damaged.len() - 300;
    damaged[middle..middle + 100].fill(0x55);
    for content in [torn(), damaged] {
        attack(&[(ACTIVE, content)], |storage| {
            let completion = DirectoryRecovery { storage, skip_run: None, only: None, dry_run: false };
            let _result = completion.run(&mut |_| Ok(Leftovers::default()), &mut |_, _| {});
        });
    }
}

// Proves the same for import by root, which writes as a recorder does.
#[test]
fn import_leaves_other_directories_alone() {
    attack(&[], |storage| {
        let plan = ImportLimits { segment_bytes: 1 << 20, frame_max: 1 << 16 };
        let Ok(mut recording) = RunWriter::begin(storage, plan) else { return };
        let source = ImportSource { name: "a".into(), labels: vec![], root: String::new(), schema: vec![] };
        let Ok(source) = recording.add_source(source) else { return };
        for _ in 0..20 {
            let _appended = recording.append(source, 0, 100, |payload| payload.fill(1));
        }
        let _finished = recording.finish();
    });
}

// Proves that every verb reports an object that is not a regular file, under the name of a segment
// or of the lock, and neither blocks on it nor follows it.
#[test]
fn irregular_files_are_reported_and_left_alone() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let rig = Rig::new();
    rig.write("in", [1, 0, 0, 0, 9]);
    let intact = sealed();
    let link = "a symbolic link";
    let called = [link, link, link, "a FIFO", "a socket", "a directory"];
    for (kind, called) in LINKS.into_iter().chain(OTHERS).zip(called) {
        let verbs: [(&[&str], &str); 9] = [
            (&["info", "DATA"], SEALED),
            (&["dump", "DATA"], SEALED),
            (&["replay", "--speed", "max", "DATA"], SEALED),
            (&["export", "--to", "stream", "--force", "-o", "OUT", "DATA"], SEALED),
            (&["compress", "DATA"], SEALED),
            (&["recover", "DATA"], ACTIVE),
            (&["compress", "DATA"], "flatcap.lock"),
            (&["recover", "DATA"], "flatcap.lock"),
            (&["import", "stream", "--checksum", "none", "--data-dir", "DATA", "in"], "flatcap.lock"),
        ];
        for (verb, name) in verbs {
            let scene = Scene::new(NOBODY);
            scene.put("0000000008-20231114T221320Z-0123456789abcdef.bin", &intact);
            bait(&scene, name, kind);
            let (data, out) = (scene.data(), scene.data().join("out"));
            let replaced = |arg: &&str| match *arg {
                "DATA" => data.to_str().unwrap().to_owned(),
                "OUT" => out.to_str().unwrap().to_owned(),
                arg => arg.to_owned(),
            };
            let args: Vec<String> = verb.iter().map(replaced).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let done = rig.call_within(&args, WATCHDOG);
            let what = format!("{args:?}, {kind:?} as {name}: {done:?}");
            scene.assert_untouched(&what);
            let said = format!("{}{}", String::from_utf8_lossy(&done.out), done.err);
            assert!(said.contains(called), "{what}");
            assert!(matches!(done.status, Some(1 | 3)), "{what}");
            if name == SEALED {
                assert_eq!(done.status, Some(3), "the rest is processed: {what}");
            }
        }
    }
}

// Proves that an attacker who exchanges the compressed file while root writes it gains nothing.
#[test]
fn a_concurrent_attacker_gains_nothing() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let rig = Rig::new();
    let scene = Scene::new(NOBODY);
    scene.put(SEALED, &sealed());
    let aside = format!("{SEALED}.compressing");
    let child = rig.start(&["compress", scene.data().to_str().unwrap()]);
    let mut is_exchanged = false;
    let ended = |child: &std::process::Child| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with('Z') || rest.is_empty())
    };
    while !is_exchanged && !ended(&child) {
        let path = scene.data().join(&aside);
        is_exchanged = std::fs::rename(&path, scene.data().join("stolen")).is_ok();
        if is_exchanged {
            let _exists = symlink("../victim/secret", path);
        }
    }
    let called = finish(child);
    scene.assert_untouched(&format!("{called:?}"));
    println!("exchanged while it was written: {is_exchanged}");
}

// Proves that files created by root in another user's directory belong to that user, whose recorder
// continues: root records, is killed, recovers, compresses, imports and exports; then the user
// records.
#[test]
fn files_created_by_root_belong_to_the_owner() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: needs root to act as another user");
        return;
    }
    let rig = Rig::new();
    let config = rig.write("seal.toml", "[compress]\nenabled = false\n");
    let as_nobody = |args: &[&str]| {
        let mut command = rig.command_as(NOBODY, args);
        finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    assert_eq!(as_nobody(&["sources"]).status, Some(0), "the rig now belongs to the account nobody");
    let config = config.to_str().unwrap();
    let record = ["record", "--quiet", "--config", config, "--source", "load@10ms", "--for", "200ms"];
    rig.write("in", [1, 0, 0, 0, 9]);
    rig.record_samples(&record[1..6], 3);
    let mut killed = rig.start(&["record", "--quiet", "--config", config, "--source", "load@10ms"]);
    crate::rig::eventually("an open segment", || rig.segments("active").len() == 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    for args in [
        &["recover", "flatcap-data"][..],
        &["compress", "flatcap-data"],
        &["import", "stream", "--checksum", "none", "--data-dir", "new/imported", "in"],
        &["export", "--to", "stream", "-o", "new/exported", "flatcap-data"],
    ] {
        let called = rig.call(args);
        assert_eq!(called.status, Some(0), "{called:?}");
    }
    for folder in ["flatcap-data", "new", "new/imported", "new/exported"] {
        let entries = std::fs::read_dir(rig.path(folder)).unwrap();
        for path in entries.map(|entry| entry.unwrap().path()).chain([rig.path(folder)]) {
            let of = std::fs::metadata(&path).unwrap();
            assert_eq!((of.uid(), of.gid()), (NOBODY, NOBODY), "{}", path.display());
        }
    }
    let called = as_nobody(&record);
    assert_eq!(called.status, Some(0), "{called:?}");
    let called = as_nobody(&["verify", "--json", "flatcap-data"]);
    assert_eq!((called.status, called.json()["intact"].as_bool()), (Some(0), Some(true)), "{called:?}");
}

// Proves that a FIFO in the place of the runtime directory blocks no verb.
#[test]
fn a_fifo_as_runtime_directory_blocks_nothing() {
    let rig = Rig::new();
    let fifo = rig.path("run");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    std::fs::create_dir(rig.path("data")).unwrap();
    std::fs::write(rig.path("data").join(SEALED), sealed()).unwrap();
    for args in [
        &["status"][..],
        &["mark", "x"],
        &["rotate"],
        &["reload"],
        &["flush"],
        &["recover", "data"],
        &["record", "--quiet", "--source", "load", "--for", "100ms"],
    ] {
        let mut command = rig.command(args);
        let child =
            command.env("RUNTIME_DIRECTORY", &fifo).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let called = finish_within(child.unwrap(), WATCHDOG);
        let expected = i32::from(!["recover", "record"].contains(&args[0]));
        assert_eq!(called.status, Some(expected), "{called:?}");
    }
}

// Proves that a replay ends at the first signal even if its output is not read.
#[test]
fn a_replay_ends_at_the_first_signal() {
    let rig = Rig::new();
    let mut maker = every_frame_kind(ChecksumKind::Xxh3, &fixture("event.bfbs"));
    maker.samples(0, 100..4000);
    rig.write("long.bin", maker.sealed());
    let child = rig.start(&["replay", "--speed", "max", "--loop", "long.bin"]);
    // The replay has begun once the pipe has data, and blocks once the pipe is full.
    let out = child.stdout.as_ref().unwrap();
    crate::rig::eventually("a full pipe", || rustix::io::ioctl_fionread(out).unwrap() >= 60 << 10);
    signal(&child, "TERM");
    let mut child = child;
    let unread = child.stdout.take();
    let called = finish_within(child, WATCHDOG);
    drop(unread);
    assert!(called.status.is_some(), "{called:?}");
}
