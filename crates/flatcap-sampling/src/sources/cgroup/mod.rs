//! `cgroup`: control groups (version 2) with their CPU time, memory, I/O, tasks and pressure, from
//! /sys/fs/cgroup.

mod block_devices;
mod io_stat;
mod tree;
mod values;

use std::ffi::CStr;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::clock::monotonic_ns;
use flatcap_os::directory_handle::DirectoryHandle;
use flatcap_os::host::HostRoot;
use flatcap_schemas::host::{Cgroup, CgroupArgs, CgroupCounters};

use self::tree::{CgroupTree, ControlGroup, GROUPS_MAX};
use self::values::{CgroupFileReader, FILE_COUNT, FILES, VALUE_COUNT};
use super::text::{self, ABSENT};
use super::{OpenContext, OwnKeys, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, OpenedSampler, OwnSettings, ReadError, Sampler, odd_text};

const DIRECTORY: &str = "sys/fs/cgroup";
/// Mount point of the unified tree on hosts that also mount version 1.
const HYBRID: &str = "sys/fs/cgroup/unified";
/// A file that every version 2 group has, the root included.
const CONTROLLERS_FILE: &str = "cgroup.controllers";
/// A file of every version 2 control group except the root of the host's tree.
const TYPE_FILE: &CStr = c"cgroup.type";
const V1_HINT: &str = ": only control groups of version 1 are mounted there; boot with \
     systemd.unified_cgroup_hierarchy=1 for version 2";
/// Interval between listings of the tree.
const LIST_INTERVAL_NS: u64 = 1_000_000_000;
/// Interval between examinations of the layers of block devices. An examination costs some
/// microseconds per device. A device that has not been seen before is examined immediately.
const DEVICES_INTERVAL_NS: u64 = 10 * LIST_INTERVAL_NS;

/// Maximum length of a path in a row. A row has the inode, the path and the length of the path,
/// then the values.
const PATH_BYTES: usize = 256;
const PATH_AT: usize = 8;
const LENGTH_AT: usize = PATH_AT + PATH_BYTES;
const VALUES_AT: usize = LENGTH_AT + 8;
const ROW_BYTES: usize = VALUES_AT + VALUE_COUNT * 8;
const _: () = assert!(size_of::<CgroupCounters>() == ROW_BYTES);
// All groups fit into a frame of the default `frame_max`, with space for its envelope.
const _: () = assert!(GROUPS_MAX * ROW_BYTES + (64 << 10) <= 16 << 20);

/// `include` and `exclude` match a group's path below the root, without a leading slash. The root
/// itself is `/`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "cgroup",
    about: "Control groups: time, memory, I/O, tasks, pressure.",
    root: "flatcap.host.Cgroup",
    schema: include_bytes!("../../../../../generated/host/cgroup.bfbs"),
    files: &[DIRECTORY, "sys/fs/cgroup/**/{cgroup.events,cpu.stat,memory.*,io.stat,pids.*,*.pressure}"],
    // A shorter default would be expensive, because a sample costs tens of microseconds per group.
    period: Duration::from_secs(1),
    is_on_by_default: true,
    refresh: "time, tasks and pages immediately or in batches; memory.stat every 2 s unless it is read; new groups are found once a second",
    selects: "paths below the root, such as system.slice/*; the root itself is /",
    hint: ": no control groups are mounted there",
    keys: OwnKeys::Cgroup,
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let unavailable = |error, hint| Unavailable { file: DIRECTORY, error, hint };
    let depth = match context.settings.own {
        OwnSettings::Cgroup(cgroup) => cgroup.depth,
        _ => 0,
    };
    let root = root(context.host)?;
    if root.open_file(TYPE_FILE).is_ok() {
        tracing::info!(
            source = SPEC.name,
            "the tree that is mounted begins at a group, mostly that of a container: groups of the host \
             that are not in it are not recorded"
        );
    }
    let tree = CgroupTree::new(root, depth, context.selection()).map_err(|error| unavailable(error, ""))?;
    Ok(OpenedSampler::built(CgroupSampler {
        tree,
        listed_ns: monotonic_ns(),
        reader: CgroupFileReader::new(context.host),
        devices_listed_ns: monotonic_ns(),
        rows: Vec::new(),
    }))
}

/// Returns the path of the unified tree, if it is mounted.
pub(super) fn tree_path(host: &HostRoot) -> Option<PathBuf> {
    let paths = [DIRECTORY, HYBRID].into_iter().map(|path| host.path(path));
    paths.into_iter().find(|path| path.join(CONTROLLERS_FILE).exists())
}

/// Opens the root of the unified tree.
fn root(host: &HostRoot) -> Result<DirectoryHandle, Unavailable> {
    let unavailable = |error, hint| Unavailable { file: DIRECTORY, error, hint };
    let is_unified = |path: &str| host.open(&format!("{path}/{CONTROLLERS_FILE}")).is_ok();
    let open = |path| DirectoryHandle::open(&host.path(path)).map_err(|error| unavailable(error, ""));
    DirectoryHandle::open(&host.path(DIRECTORY)).map_err(|error| unavailable(error, SPEC.hint))?;
    if is_unified(DIRECTORY) {
        return open(DIRECTORY);
    }
    if is_unified(HYBRID) {
        tracing::info!(
            "the control group controllers of this host are version 1: only CPU time and pressure \
             are recorded from the unified tree"
        );
        return open(HYBRID);
    }
    let is_version_1 = ["cpu", "memory", "cpu,cpuacct", "systemd", "pids"]
        .iter()
        .any(|name| host.directory(&format!("{DIRECTORY}/{name}")).is_ok());
    let hint = if is_version_1 { V1_HINT } else { SPEC.hint };
    Err(unavailable(ErrorKind::Unsupported.into(), hint))
}

#[derive(Debug)]
struct CgroupSampler {
    tree: CgroupTree,
    listed_ns: u64,
    devices_listed_ns: u64,
    reader: CgroupFileReader,
    rows: Vec<CgroupCounters>, // reused
}

impl Sampler for CgroupSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.listed_ns) >= LIST_INTERVAL_NS {
            self.listed_ns = now_ns;
            self.tree.list().map_err(|error| ReadError { file: DIRECTORY, error })?;
        }
        self.tree.read();
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let Self { tree, reader, rows, listed_ns, devices_listed_ns } = self;
        if listed_ns.saturating_sub(*devices_listed_ns) >= DEVICES_INTERVAL_NS {
            *devices_listed_ns = *listed_ns;
            reader.forget_devices();
        }
        let mut incomplete = tree.incomplete();
        rows.clear();
        tree.for_each(|group, raw| {
            let (row, lacks) = row(group, raw, reader);
            rows.push(row);
            incomplete |= lacks;
        });
        let groups = builder.create_vector(&self.rows);
        let root =
            Cgroup::create(builder, &CgroupArgs { count: self.tree.count() as u64, groups: Some(groups) });
        builder.finish_minimal(root);
        incomplete
    }
}

fn row(group: &mut ControlGroup, raw: &[u8], reader: &mut CgroupFileReader) -> (CgroupCounters, Incomplete) {
    let mut values = [ABSENT; VALUE_COUNT];
    let mut incomplete = Incomplete::NONE;
    let mut values_max = group.values_max;
    for file in 0..FILE_COUNT {
        if let Some(values_max) = values_max.get_mut(file) {
            let content = group.content(file, raw);
            let lacks = reader.read(file, content, &mut values, values_max);
            if !lacks.is_none() {
                let name = FILES.get(file).map(|name| name.to_bytes()).unwrap_or_default();
                let path =
                    format_args!("/{DIRECTORY}/{}/{}", group.path().escape_ascii(), name.escape_ascii());
                incomplete |= odd_text::in_file(lacks, content.unwrap_or_default(), path);
            }
        }
    }
    group.values_max = values_max;

    let mut bytes = [0; ROW_BYTES];
    let mut place = |at: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    let path = group.path();
    place(0, &group.id.to_le_bytes());
    place(PATH_AT, &text::suffix::<PATH_BYTES>(path));
    place(LENGTH_AT, &(path.len() as u64).to_le_bytes());
    for (index, value) in values.iter().enumerate() {
        place(VALUES_AT + index * 8, &value.to_le_bytes());
    }
    (CgroupCounters(bytes), incomplete)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use flatcap_os::wake_event::WakeEvent;

    use super::*;
    use crate::sources::tests::{open_sampler, sample_under};

    /// Creates a version 2 tree with a few groups.
    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join(DIRECTORY);
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join(CONTROLLERS_FILE), "cpu memory\n").unwrap();
        fs::write(root.join("cpu.stat"), "usage_usec 1\nuser_usec 2\nsystem_usec 3\n").unwrap();
        for path in ["b.slice", "a.slice", "a.slice/x.service", "a.slice/x.service/deep", "a-b.slice"] {
            group(&root.join(path), path.len());
        }
        folder
    }

    fn group(path: &Path, current: usize) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("memory.current"), format!("{current}\n")).unwrap();
    }

    fn memory_by_path(payload: &[u8]) -> Vec<(String, u64)> {
        let cgroup = flatbuffers::root::<Cgroup<'_>>(payload).unwrap();
        cgroup.groups().iter().map(|group| (path(group), group.memory_current())).collect()
    }

    fn path(group: &CgroupCounters) -> String {
        let bytes: Vec<u8> = group.path().iter().take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn next(sampler: &mut dyn Sampler) -> (Vec<u8>, Incomplete) {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        sampler.read().unwrap();
        let incomplete = sampler.build(0, &mut builder);
        (builder.finished_data().to_vec(), incomplete)
    }

    fn wait_for_listing() {
        WakeEvent::new().wait_until(monotonic_ns() + LIST_INTERVAL_NS + 50_000_000);
    }

    // Proves that a file that exists but cannot be opened (a symbolic link to itself) marks each
    // sample as incomplete.
    #[test]
    fn a_refusal_is_marked_each_time() {
        let folder = tree();
        let path = folder.path().join(DIRECTORY).join("b.slice");
        std::os::unix::fs::symlink("cpu.stat", path.join("cpu.stat")).unwrap();
        let mut sampler = open_sampler(&SPEC, "include = [\"b.slice\"]", folder.path()).unwrap();
        for _ in 0..3 {
            assert_eq!(next(&mut *sampler).1, Incomplete::UNREADABLE);
        }
    }

    // Proves that every value ends up in its field, for a group with all files.
    #[test]
    fn every_value_is_in_its_place() {
        let folder = tree();
        let path = folder.path().join(DIRECTORY).join("b.slice");
        let mut value = 100;
        let mut lines = |names: &str| {
            let line = |name: &str| {
                value += 1;
                format!("{name} {value}\n")
            };
            names.split(' ').map(line).collect::<String>()
        };
        fs::write(path.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let cpu = lines("usage_usec user_usec system_usec nr_periods nr_throttled throttled_usec");
        fs::write(path.join("cpu.stat"), cpu).unwrap();
        fs::write(path.join("memory.peak"), "107\n").unwrap();
        fs::write(path.join("memory.events"), lines("low high max oom oom_kill")).unwrap();
        let memory = "anon file kernel kernel_stack sock shmem file_mapped file_dirty file_writeback inactive_anon \
                      active_anon inactive_file active_file unevictable slab_reclaimable slab_unreclaimable slab \
                      workingset_refault_anon workingset_refault_file pgscan pgsteal pgfault pgmajfault";
        fs::write(path.join("memory.stat"), lines(memory)).unwrap();
        fs::write(path.join("io.stat"), "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n").unwrap();
        fs::write(path.join("pids.current"), "7\n").unwrap();
        fs::write(path.join("pids.max"), "8\n").unwrap();
        for (name, some) in [("cpu", 21), ("memory", 31), ("io", 41)] {
            let text = format!("some avg10=0.00 total={some}\nfull avg10=0.00 total={}\n", some + 1);
            fs::write(path.join(format!("{name}.pressure")), text).unwrap();
        }
        let (payload, incomplete) = sample_under(&SPEC, "include = [\"b.slice\"]", folder.path());
        let cgroup = flatbuffers::root::<Cgroup<'_>>(&payload).unwrap();
        assert_eq!((cgroup.count(), cgroup.groups().len(), incomplete), (6, 1, Incomplete::NONE));
        let found = cgroup.groups().get(0);
        assert_eq!((found.id(), found.path_length()), (fs::metadata(&path).unwrap().ino(), 7));
        assert_eq!((found.populated(), found.frozen()), (1, 0));
        assert_eq!((found.cpu_usage(), found.cpu_user(), found.cpu_system()), (101, 102, 103));
        assert_eq!(
            (found.cpu_periods(), found.cpu_throttled_periods(), found.cpu_throttled()),
            (104, 105, 106)
        );
        assert_eq!((found.memory_current(), found.memory_peak()), (7, 107));
        assert_eq!((found.memory_low(), found.memory_high(), found.memory_max()), (107, 108, 109));
        assert_eq!((found.memory_oom(), found.memory_oom_kill()), (110, 111));
        assert_eq!((found.anon(), found.file(), found.kernel(), found.sock()), (112, 113, 114, 116));
        assert_eq!((found.shmem(), found.file_mapped(), found.file_dirty()), (117, 118, 119));
        assert_eq!((found.file_writeback(), found.inactive_anon(), found.active_anon()), (120, 121, 122));
        assert_eq!((found.inactive_file(), found.active_file(), found.unevictable()), (123, 124, 125));
        assert_eq!((found.slab_reclaimable(), found.slab_unreclaimable(), found.slab()), (126, 127, 128));
        assert_eq!((found.workingset_refault_anon(), found.workingset_refault_file()), (129, 130));
        assert_eq!(
            (found.pgscan(), found.pgsteal(), found.pgfault(), found.pgmajfault()),
            (131, 132, 133, 134)
        );
        assert_eq!((found.read_bytes(), found.written_bytes(), found.reads()), (1, 2, 3));
        assert_eq!((found.writes(), found.discarded_bytes(), found.discards()), (4, 5, 6));
        assert_eq!((found.pids_current(), found.pids_max()), (7, 8));
        assert_eq!((found.cpu_some(), found.cpu_full(), found.memory_some()), (21, 22, 31));
        assert_eq!((found.memory_full(), found.io_some(), found.io_full()), (32, 41, 42));
    }

    // Proves that a group precedes its descendants, that `depth` limits the levels, and that
    // patterns match paths.
    #[test]
    fn depth_and_patterns_choose() {
        let folder = tree();
        let paths = |keys| {
            let (payload, _) = sample_under(&SPEC, keys, folder.path());
            memory_by_path(&payload).into_iter().map(|(path, _)| path).collect::<Vec<_>>()
        };
        let all = ["", "a-b.slice", "a.slice", "a.slice/x.service", "a.slice/x.service/deep", "b.slice"];
        assert_eq!(paths(""), all);
        assert_eq!(paths("depth = 0"), [""]);
        assert_eq!(paths("depth = 1"), ["", "a-b.slice", "a.slice", "b.slice"]);
        assert_eq!(paths("include = [\"a.slice/*\"]\nexclude = [\"*/deep\"]"), ["a.slice/x.service"]);
        assert_eq!(paths("include = [\"/\"]"), [""]);
    }

    // Proves that groups come and go without a restart. A new group with the name of a removed
    // group is treated as a different group, and a truncated file is marked.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a directory of the host gets another name")]
    fn groups_come_and_go() {
        let folder = tree();
        let root = folder.path().join(DIRECTORY);
        let mut sampler = open_sampler(&SPEC, "include = [\"*.slice\"]", folder.path()).unwrap();
        let (before, incomplete) = next(&mut *sampler);
        assert_eq!(incomplete, Incomplete::NONE);
        // The old group is kept, so that the new group cannot reuse its inode.
        fs::rename(root.join("b.slice"), folder.path().join("aside")).unwrap();
        group(&root.join("b.slice"), 70);
        group(&root.join("c.slice"), 80);
        fs::remove_dir_all(root.join("a-b.slice")).unwrap();
        wait_for_listing();
        let (after, incomplete) = next(&mut *sampler);
        let expected =
            [("a.slice", 7), ("b.slice", 70), ("c.slice", 80)].map(|(path, value)| (path.to_owned(), value));
        assert_eq!((memory_by_path(&after), incomplete), (expected.to_vec(), Incomplete::NONE));
        let id = |payload: &[u8]| {
            let cgroup = flatbuffers::root::<Cgroup<'_>>(payload).unwrap();
            cgroup.groups().iter().find(|group| path(group) == "b.slice").unwrap().id()
        };
        assert_ne!(id(&before), id(&after));

        fs::write(root.join("c.slice/memory.current"), "8").unwrap();
        let (cut, incomplete) = next(&mut *sampler);
        assert_eq!((memory_by_path(&cut)[2].1, incomplete), (ABSENT, Incomplete::CUT | Incomplete::MISSING));
    }

    // Proves that unusual and long paths are distinguished and never truncated within a character,
    // and that a thousand groups are read.
    #[test]
    fn odd_trees_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join(DIRECTORY);
        group(&root.join(OsStr::from_bytes(b"odd\xFF\xFEname")), 1);
        fs::write(root.join(CONTROLLERS_FILE), "").unwrap();
        let mut long = root.clone();
        (0..6).for_each(|_| long.push("\u{e4}".repeat(60)));
        group(&long, 2);
        (0..1000).for_each(|number| group(&root.join(format!("many/{number:04}")), number));
        let (payload, incomplete) = sample_under(&SPEC, "depth = 64", folder.path());
        let cgroup = flatbuffers::root::<Cgroup<'_>>(&payload).unwrap();
        assert_eq!((cgroup.groups().len(), incomplete), (1002, Incomplete::NONE));
        let found: Vec<_> = cgroup.groups().iter().map(|group| (path(group), group.path_length())).collect();
        assert_eq!(found[0], ("many/0000".to_owned(), 9));
        let cut = found.iter().find(|(_, length)| *length > 255).unwrap();
        assert!(cut.0.len() >= 250 && cut.0.chars().all(|c| c == '\u{e4}' || c == '/'), "{cut:?}");
        let mut all = cgroup.groups().iter();
        let odd = all.find(|group| group.path().iter().nth(3) == Some(0xFF)).unwrap();
        assert_eq!((odd.memory_current(), odd.path_length()), (1, 9));
    }

    // Proves that an io.stat with any number of devices is read completely.
    #[test]
    fn many_devices_are_added_up() {
        let folder = tree();
        let path = folder.path().join(DIRECTORY).join("b.slice/io.stat");
        let line =
            |disk| format!("8:{disk} rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6{}\n", " ".repeat(40));
        fs::write(path, (0..2000).map(line).collect::<String>()).unwrap();
        let (payload, incomplete) = sample_under(&SPEC, "include = [\"b.slice\"]", folder.path());
        let cgroup = flatbuffers::root::<Cgroup<'_>>(&payload).unwrap();
        assert_eq!((cgroup.groups().get(0).written_bytes(), incomplete), (4000, Incomplete::NONE));
    }

    // Proves that the error on a host with only version 1, or without control groups, names the
    // missing part. On a host with both versions, the unified tree is used.
    #[test]
    fn missing_version_2_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join(DIRECTORY);
        fs::create_dir_all(&root).unwrap();
        let error = || open_sampler(&SPEC, "", folder.path()).unwrap_err().to_string();
        assert!(error().contains("no control groups are mounted"), "{}", error());
        fs::create_dir(root.join("memory")).unwrap();
        assert!(error().contains("only control groups of version 1"), "{}", error());
        group(&root.join("unified/a"), 5);
        fs::write(root.join("unified").join(CONTROLLERS_FILE), "").unwrap();
        let (payload, _) = sample_under(&SPEC, "", folder.path());
        assert_eq!(memory_by_path(&payload), [("a".to_owned(), 5)]);
    }

    // Proves that the groups of this host agree with cpu.stat, which the test reads before and
    // after. A removed group is skipped at once. The test creates a group of its own if the host
    // allows that.
    #[test]
    fn agrees_with_this_host() {
        let mount = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let Some(mount) = mount.iter().map(Path::new).find(|path| path.join(CONTROLLERS_FILE).exists())
        else {
            return println!("skipped: no control groups of version 2");
        };
        let usage = || -> u64 {
            let text = fs::read_to_string(mount.join("cpu.stat")).unwrap();
            text.lines().next().unwrap().strip_prefix("usage_usec ").unwrap().parse().unwrap()
        };
        let before = usage();
        let (payload, incomplete) = sample_under(&SPEC, "depth = 0", Path::new("/"));
        let cgroup = flatbuffers::root::<Cgroup<'_>>(&payload).unwrap();
        assert_eq!(incomplete, Incomplete::NONE);
        assert!((before..=usage()).contains(&cgroup.groups().get(0).cpu_usage()));

        let own = mount.join(format!("flatcap-test-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&own) {
            return println!("skipped: {error}");
        }
        let name = own.file_name().unwrap().to_str().unwrap().to_owned();
        let begin = monotonic_ns();
        let mut sampler = open_sampler(&SPEC, &format!("include = [\"{name}\"]"), Path::new("/")).unwrap();
        let ids = |payload: &[u8]| -> Vec<u64> {
            let cgroup = flatbuffers::root::<Cgroup<'_>>(payload).unwrap();
            cgroup.groups().iter().map(CgroupCounters::id).collect()
        };
        let (payload, incomplete) = next(&mut *sampler);
        let inode = fs::metadata(&own).unwrap().ino();
        assert_eq!((ids(&payload), incomplete), (vec![inode], Incomplete::NONE));
        fs::remove_dir(&own).unwrap();
        fs::create_dir(&own).unwrap();
        let (payload, incomplete) = next(&mut *sampler);
        assert!(!ids(&payload).contains(&inode) && incomplete == Incomplete::NONE, "the old one is gone");
        // On a busy machine, the next listing may occur before these steps end.
        let is_early = monotonic_ns() - begin < LIST_INTERVAL_NS;
        assert!(ids(&payload).is_empty() || !is_early, "the new one is not yet listed");
        wait_for_listing();
        let (payload, _) = next(&mut *sampler);
        assert_eq!(ids(&payload), [fs::metadata(&own).unwrap().ino()]);
        fs::remove_dir(&own).unwrap();
    }
}
