//! Whoever owns a directory, or may write to it, leads nobody out of it who reads or changes the recordings there: not by a link, a
//! FIFO, a socket or a directory, and not by putting one there at any step of the work.

use std::io::{self, IoSlice};
use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use flatcap::block::Way;
use flatcap::import::{Plan, Recording, Source};
use flatcap::os::storage::{Attributes, DataDirectory, Entry, ReadAt, Space, Storage, StorageFile};
use flatcap::seal::{Job, NamedWays, Placing, pack};
use flatcap::segment::{Completion, Leftovers, SegmentName};
use flatcap::stream::ChecksumKind;

use crate::crafted::{begun, fixture};
use crate::rig::{Rig, finish, finish_within, signal};

/// An account without rights.
const NOBODY: u32 = 65_534;
/// How long a call may take that waits for nobody, on the busiest machine.
const WATCHDOG: Duration = Duration::from_secs(120);
const SEALED: &str = "0000000007-20231114T221320Z-0123456789abcdef.bin";
const ACTIVE: &str = "0000000007-20231114T221320Z-0123456789abcdef.bin.active";

/// What is put in the place of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bait {
    /// A link to a secret file.
    Secret,
    /// A link to a segment that nobody has completed.
    Segment,
    /// A link to a file that is not there.
    Absent,
    Fifo,
    Socket,
    Directory,
}

const LINKS: [Bait; 3] = [Bait::Secret, Bait::Segment, Bait::Absent];
const OTHERS: [Bait; 3] = [Bait::Fifo, Bait::Socket, Bait::Directory];

/// Files of root's that nobody else may touch, beside a directory of somebody else's.
struct Scene {
    folder: tempfile::TempDir,
    before: Vec<(PathBuf, [i64; 6])>,
}

impl Scene {
    fn new(owner: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // Others come this far, so that only what is asked protects what is beside it.
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

    /// Adds a file of the owner's.
    fn put(&self, name: &str, content: &[u8]) {
        let (path, owner) = (self.data().join(name), std::fs::metadata(self.data()).unwrap().uid());
        std::fs::write(&path, content).unwrap();
        chown(path, Some(owner), Some(owner)).unwrap();
    }

    /// All that a call, a write or a change of rights would leave a trace in.
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

/// A segment of some samples, without its end and with a torn tail.
fn torn() -> Vec<u8> {
    static TORN: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || [begun(ChecksumKind::Xxh3, &fixture("event.bfbs")).unsealed(), vec![7; 1000]].concat();
    TORN.get_or_init(make).clone()
}

/// A sealed segment that pays to be compressed.
fn sealed() -> Vec<u8> {
    let mut maker = begun(ChecksumKind::Xxh3, &fixture("event.bfbs"));
    maker.samples(0, 100..400);
    maker.sealed()
}

/// Puts a bait under a name, whatever has it.
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

/// A directory in which, before one of the operations, every file is exchanged for a bait.
#[derive(Debug)]
struct Hostile {
    inner: DataDirectory,
    attack: Arc<Attack>,
}

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
    fn step(&self) {
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

impl Hostile {
    fn file(&self, inner: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(HostileFile { inner, attack: Arc::clone(&self.attack) })
    }
}

impl Storage for Hostile {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.attack.step();
        Ok(self.file(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.attack.step();
        Ok(self.file(self.inner.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.attack.step();
        self.inner.rename(from, to)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.attack.step();
        self.inner.exchange(one, other)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.attack.step();
        self.inner.replace(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.attack.step();
        self.inner.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.attack.step();
        self.inner.sync_directory()
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        self.attack.step();
        self.inner.entries()
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }
}

#[derive(Debug)]
struct HostileFile {
    inner: Arc<dyn StorageFile>,
    attack: Arc<Attack>,
}

impl ReadAt for HostileFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }
}

impl StorageFile for HostileFile {
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.attack.step();
        self.inner.append(slices)
    }

    fn preallocate(&self, end: u64) -> io::Result<()> {
        self.inner.preallocate(end)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.attack.step();
        self.inner.truncate(length)
    }

    fn allocated(&self) -> io::Result<u64> {
        self.inner.allocated()
    }

    fn attributes(&self) -> io::Result<Attributes> {
        self.attack.step();
        self.inner.attributes()
    }

    fn set_attributes(&self, attributes: &Attributes) -> io::Result<()> {
        self.attack.step();
        self.inner.set_attributes(attributes)
    }

    fn sync(&self) -> io::Result<()> {
        self.attack.step();
        self.inner.sync()
    }
}

/// Does the work once for each of its operations and each link (of the other baits, another one for each operation), in a directory
/// of nobody's and in one of root's, and looks at what is beside the directory. Each time on a thread of its own, which is not waited
/// for for ever.
fn attack(files: &[(&str, Vec<u8>)], work: fn(&dyn Storage)) {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root has files that it must not lose to others");
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
            let hostile = Hostile { inner, attack: Arc::clone(&attack) };
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

// Goal: root that compresses a segment touches nothing beside the directory, whatever is exchanged there and when. Method: every
// file is exchanged for each kind of bait before each operation.
#[test]
fn compression_is_led_nowhere() {
    attack(&[(SEALED, sealed())], |storage| {
        let ways = NamedWays { general: Way::default(), sources: Vec::new() };
        let mut job = Job {
            storage,
            ways: &ways,
            block_bytes: 64 << 10,
            keep_free: 0,
            placing: Placing::ExchangeOrReplace,
            pace: &mut |_| true,
        };
        // Whether it fails is not the question.
        let _outcome = pack(&mut job, SegmentName::parse(SEALED).unwrap());
    });
}

// Goal: the same of root that completes what a killed run has left. Method: a torn segment, and one whose damage makes a new file of it.
#[test]
fn recovery_is_led_nowhere() {
    let mut damaged = begun(ChecksumKind::Xxh3, &fixture("event.bfbs")).unsealed();
    let middle = damaged.len() - 300;
    damaged[middle..middle + 100].fill(0x55);
    for content in [torn(), damaged] {
        attack(&[(ACTIVE, content)], |storage| {
            let completion = Completion { storage, spare_run: None, only: None, dry_run: false };
            let _result = completion.run(&mut |_| Ok(Leftovers::default()), &mut |_, _| {});
        });
    }
}

// Goal: the same of root that imports, which is how a recorder writes, too. Method: some frames of one source.
#[test]
fn writing_is_led_nowhere() {
    attack(&[], |storage| {
        let plan = Plan { segment_bytes: 1 << 20, frame_max: 1 << 16 };
        let Ok(mut recording) = Recording::begin(storage, plan) else { return };
        let source = Source { name: "a".into(), labels: vec![], root: String::new(), schema: vec![] };
        let Ok(source) = recording.add_source(source) else { return };
        for _ in 0..20 {
            let _appended = recording.append(source, 0, 100, |payload| payload.fill(1));
        }
        let _finished = recording.finish();
    });
}

// Goal: what is no regular file is reported by every verb under a segment's name and under the lock's, waited for by none, and led by
// none of them elsewhere. Method: each bait under each name, put there before the call; each verb as root in nobody's directory.
#[test]
fn baits_are_named_and_left() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root has files that it must not lose to others");
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
            (&["seal", "DATA"], SEALED),
            (&["recover", "DATA"], ACTIVE),
            (&["seal", "DATA"], "flatcap.lock"),
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
                assert_eq!(done.status, Some(3), "the rest is done: {what}");
            }
        }
    }
}

// Goal: root is led nowhere by somebody who exchanges the compressed file while it is written, and gives nothing away. Method: the
// program as root, an attacker at work beside it.
#[test]
fn an_attacker_beside_it_gets_nothing() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root has files that it must not lose to others");
        return;
    }
    let rig = Rig::new();
    let scene = Scene::new(NOBODY);
    scene.put(SEALED, &sealed());
    let aside = format!("{SEALED}.packing");
    let child = rig.start(&["seal", scene.data().to_str().unwrap()]);
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

// Goal: what root makes in another user's directory is that user's: the user's own recorder goes on. Method: root records, is killed,
// recovers, seals, imports and exports there; then that user records, completes and reads all of it.
#[test]
fn what_root_makes_belongs_to_the_owner() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can act as another user");
        return;
    }
    let rig = Rig::new();
    let config = rig.write("seal.toml", "[seal]\nenabled = false\n");
    let as_nobody = |args: &[&str]| {
        let mut command = rig.command_as(NOBODY, args);
        finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    assert_eq!(as_nobody(&["sources"]).status, Some(0), "the rig is nobody's from now on");
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
        &["seal", "flatcap-data"],
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

// Goal: a FIFO in the place of the directory of running agents hangs no verb. Method: root's calls, with a FIFO there.
#[test]
fn a_fifo_as_runtime_directory_hangs_nothing() {
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

// Goal: a replay ends at the first signal although nobody takes what it sends. Method: a pipe that is not read.
#[test]
fn a_replay_ends_at_the_first_signal() {
    let rig = Rig::new();
    let mut maker = begun(ChecksumKind::Xxh3, &fixture("event.bfbs"));
    maker.samples(0, 100..4000);
    rig.write("long.bin", maker.sealed());
    let child = rig.start(&["replay", "--speed", "max", "--loop", "long.bin"]);
    // It has begun once the pipe has something, and is held up once it is full.
    let out = child.stdout.as_ref().unwrap();
    crate::rig::eventually("a full pipe", || rustix::io::ioctl_fionread(out).unwrap() >= 60 << 10);
    signal(&child, "TERM");
    let mut child = child;
    let unread = child.stdout.take();
    let called = finish_within(child, WATCHDOG);
    drop(unread);
    assert!(called.status.is_some(), "{called:?}");
}
