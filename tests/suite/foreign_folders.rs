//! Files that root writes into another user's directory belong to that user. Root follows no link
//! of that user, anywhere in a path.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flatcap_format::testing::effort;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::rig::{CallResult, Rig};

/// An account without privileges.
const NOBODY: u32 = 65_534;
/// Maximum duration of a call, even on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(120);
/// The formats that consist of one file, with the name of the file.
const FILES: [(&str, &str); 6] = [
    ("csv", "a.csv"),
    ("jsonl", "a.jsonl"),
    ("arrow", "a.arrow"),
    ("mcap", "a.mcap"),
    ("perfetto", "a.pftrace"),
    ("openmetrics", "a.txt"),
];
/// The formats that consist of a directory.
const FOLDERS: [&str; 2] = ["parquet", "stream"];
/// The names of the directories in the path of an output.
const PARTS: [&str; 3] = ["a", "b", "c"];

/// Returns a rig with a recording of root, unless the test does not run as root.
fn rig_of_root() -> Option<Rig> {
    if !rustix::process::getuid().is_root() {
        println!("skipped: needs root");
        return None;
    }
    let rig = Rig::new();
    std::fs::set_permissions(rig.path("."), std::fs::Permissions::from_mode(0o755)).unwrap();
    rig.record_samples(&["--quiet", "--source", "load@10ms"], 3);
    rig.write("in.csv", "time,a\n2026-01-01T00:00:00Z,1\n");
    Some(rig)
}

/// Creates a directory with the nested directories `PARTS`, the deepest with a segment. All belong
/// to `owner`.
fn create_tree(rig: &Rig, name: &str, owner: u32) -> PathBuf {
    let root = rig.path(name);
    let mut folder = root.clone();
    for part in std::iter::once(&"").chain(&PARTS) {
        folder.push(part);
        std::fs::create_dir(&folder).unwrap();
        chown(&folder, Some(owner), Some(owner)).unwrap();
    }
    let segment = rig.segments("bin").remove(0);
    let copied = folder.join(segment.file_name().unwrap());
    std::fs::copy(segment, &copied).unwrap();
    chown(copied, Some(owner), Some(owner)).unwrap();
    root
}

/// Returns all files below a directory, with attributes that change at each write and at each
/// change of the owner.
fn everything(folder: &Path) -> Vec<(PathBuf, [i64; 5])> {
    let of = std::fs::symlink_metadata(folder).unwrap();
    let numbers = [of.uid().into(), of.gid().into(), of.mode().into(), of.ctime(), of.ctime_nsec()];
    let mut found = vec![(folder.to_owned(), numbers)];
    if of.is_dir() {
        for entry in std::fs::read_dir(folder).unwrap() {
            found.extend(everything(&entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

/// Returns the arguments of each verb that writes below a directory.
fn writing_calls(folder: &str) -> Vec<Vec<String>> {
    let call = |args: &str| args.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let files = FILES.iter().map(|(format, name)| {
        call(&format!("export flatcap-data --to {format} --source load --force -o {folder}/{name}"))
    });
    let folders = FOLDERS
        .iter()
        .map(|format| call(&format!("export flatcap-data --to {format} --force -o {folder}/{format}")));
    let others = [
        format!("import csv in.csv --data-dir {folder}/imported"),
        format!("record --quiet --for 50ms --source load --data-dir {folder}/recorded"),
        format!("compress {folder}"),
        format!("recover {folder}"),
        format!("manual {folder}/man"),
    ];
    files.chain(folders).chain(others.iter().map(|args| call(args))).collect()
}

fn call(rig: &Rig, args: &[String]) -> CallResult {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    rig.call_within(&args, WATCHDOG)
}

// Proves that all files and directories that an export of root creates in another user's directory
// belong to that user, in every format.
#[test]
fn exports_of_root_belong_to_the_owner_of_the_directory() {
    let Some(rig) = rig_of_root() else { return };
    let own = create_tree(&rig, "own", NOBODY);
    for args in writing_calls("own/a/new/deeper") {
        if args[0] == "export" {
            let called = call(&rig, &args);
            assert_eq!(called.status, Some(0), "{called:?}");
        }
    }
    let written = everything(&own.join("a/new"));
    for (_, name) in FILES {
        assert!(written.iter().any(|(path, _)| path.ends_with(name)), "{name}: {written:?}");
    }
    assert!(written.len() > FILES.len() + 4, "{written:?}");
    for (path, numbers) in written {
        assert_eq!(numbers[..2], [i64::from(NOBODY); 2], "{}", path.display());
    }
}

// Proves that no verb of root writes through a link of another user, at any depth of the path. The
// error names the link, and nothing beyond the link changes.
#[test]
fn links_of_others_are_refused_at_each_depth() {
    let Some(rig) = rig_of_root() else { return };
    let victim = create_tree(&rig, "victim", 0);
    let before = everything(&victim);
    for depth in 0..PARTS.len() {
        let name = format!("own{depth}");
        let own = create_tree(&rig, &name, NOBODY);
        let part: PathBuf = PARTS[..=depth].iter().collect();
        let link = own.join(&part);
        std::fs::remove_dir_all(&link).unwrap();
        symlink(victim.join(&part), &link).unwrap();
        lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
        for args in writing_calls(&format!("{name}/a/b/c")) {
            let called = call(&rig, &args);
            assert!(matches!(called.status, Some(1 | 3)), "{called:?}");
            let why = format!("{} is a symbolic link that belongs to user {NOBODY}", PARTS[depth]);
            assert!(called.err.contains(&why), "{depth}: {called:?}");
            assert_eq!(everything(&victim), before, "{depth}: {args:?}");
        }
    }
}

/// Ends the exchanges, also if the test fails.
struct ExchangeEnd<'a>(&'a AtomicBool);

impl Drop for ExchangeEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// Proves that nothing beyond a link changes if its owner exchanges the link and a directory as fast
// as possible while the verb runs.
#[test]
fn a_link_that_comes_and_goes_leads_nowhere() {
    let Some(rig) = rig_of_root() else { return };
    let victim = create_tree(&rig, "victim", 0);
    let before = everything(&victim);
    let own = create_tree(&rig, "own", NOBODY);
    let attempts = effort::by_hand(1, 52);
    for depth in 0..PARTS.len() {
        let part: PathBuf = PARTS[..=depth].iter().collect();
        let (directory, link) = (own.join(&part), rig.path(&format!("link{depth}")));
        symlink(victim.join(&part), &link).unwrap();
        lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _end = ExchangeEnd(&is_done);
            scope.spawn(|| {
                let mut exchanges = 0_u64;
                while !is_done.load(Ordering::Relaxed) || exchanges % 2 == 1 {
                    renameat_with(CWD, &directory, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                    exchanges += 1;
                }
            });
            for _ in 0..attempts {
                for args in writing_calls("own/a/b/c") {
                    // It may fail, or write into the directory; only the victim matters.
                    let _called = call(&rig, &args);
                    assert_eq!(everything(&victim), before, "{depth}: {args:?}");
                }
            }
        });
    }
}
