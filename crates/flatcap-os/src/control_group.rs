//! The memory limit of this process's control group, for version 1 and version 2 of the interface.

use std::fs;
use std::path::{Path, PathBuf};

/// Values of at least this number mean "no limit". Without a limit, version 1 writes the largest
/// multiple of the page size.
const NO_LIMIT: u64 = 1 << 62;

/// The lowest memory limit of a process's control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Limit, in bytes.
    pub bytes: u64,
    /// The file that holds the limit.
    pub file: PathBuf,
}

/// Returns the lowest memory limit of this process's control group and its ancestors. Returns
/// `None` if there is no limit, or if this process cannot see the groups. If a group exceeds its
/// limit, the kernel kills a process of this group.
pub fn memory_limit() -> Option<MemoryLimit> {
    memory_limit_under(Path::new("/"))
}

fn memory_limit_under(root: &Path) -> Option<MemoryLimit> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let limits = memory_controllers(&groups, &mounts).into_iter().flat_map(|place| {
        let MemoryController { mount_point: top, group_path: group, file } = place;
        let directories: Vec<PathBuf> = group.ancestors().map(Path::to_owned).collect();
        directories.into_iter().filter_map(move |directory| {
            let file = top.join(directory).join(file);
            let text = fs::read_to_string(root.join(file.strip_prefix("/").ok()?)).ok()?;
            let bytes = text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT)?;
            Some(MemoryLimit { bytes, file })
        })
    });
    limits.min_by_key(|limit| limit.bytes)
}

/// A mounted memory controller. The group's directory and each directory above it, up to the mount
/// point, can hold a limit.
#[derive(Debug, PartialEq, Eq)]
struct MemoryController {
    mount_point: PathBuf, // the mount point
    group_path: PathBuf,  // relative to the mounted hierarchy
    file: &'static str,
}

/// Finds the mounts of the process's groups. `proc/self/cgroup` gives the path of each group from
/// the root of its hierarchy. A container may see only a part of this hierarchy.
fn memory_controllers(groups: &str, mounts: &str) -> Vec<MemoryController> {
    let place = |group: &str, file, is_match: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|mount| {
            // The fields of a line are (proc_pid_mountinfo(5)): ... root, mount point, options,
            // optional fields, "-", type, source, options of the file system.
            let (front, back) = mount.split_once(" - ")?;
            let (mut front, mut back) = (front.split(' ').skip(3), back.split(' '));
            let (above, top) = (front.next()?, front.next()?);
            let (kind, options) = (back.next()?, back.nth(1)?);
            // A group outside the mounted subtree is not visible, so only the mount point's limit
            // is read.
            let group = Path::new(group).strip_prefix(above).unwrap_or(Path::new("")).to_owned();
            is_match(kind, options).then(|| MemoryController {
                mount_point: PathBuf::from(top),
                group_path: group,
                file,
            })
        })
    };
    let found = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (hierarchy, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        if hierarchy == "0" && controllers.is_empty() {
            return place(group, "memory.max", &|kind, _| kind == "cgroup2");
        }
        if !controllers.split(',').any(|controller| controller == "memory") {
            return None;
        }
        let is_memory =
            |kind: &str, options: &str| kind == "cgroup" && options.split(',').any(|it| it == "memory");
        place(group, "memory.limit_in_bytes", &is_memory)
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a host root with these files.
    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn limit(files: &[(&str, &str)]) -> Option<(u64, String)> {
        let limit = memory_limit_under(host(files).path())?;
        Some((limit.bytes, limit.file.display().to_string()))
    }

    // Proves that the lowest limit among a group and its ancestors is found, for both versions and
    // in a container that sees only a part of the hierarchy. If there is no limit, no limit is
    // found.
    #[test]
    fn the_lowest_limit_is_found() {
        let (groups, mounts) = ("proc/self/cgroup", "proc/self/mountinfo");
        let service = "0::/system.slice/flatcap.service\n";
        let v2 = "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let of = |group: &str| format!("sys/fs/cgroup/{group}memory.max");
        let (own, slice) = (of("system.slice/flatcap.service/"), of("system.slice/"));
        let tree = [(groups, service), (mounts, v2), (&own, "67108864\n"), (&slice, "max\n")];
        let found = Some((67_108_864, "/sys/fs/cgroup/system.slice/flatcap.service/memory.max".to_owned()));
        assert_eq!(limit(&tree), found);
        let tree = [(groups, service), (mounts, v2), (&own, "max\n"), (&slice, "1000\n")];
        assert_eq!(limit(&tree), Some((1000, "/sys/fs/cgroup/system.slice/memory.max".to_owned())));
        assert_eq!(limit(&[(groups, service), (mounts, v2), (&own, "max\n")]), None);
        assert_eq!(limit(&[(groups, service)]), None);
        let v1 = "33 25 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                  35 25 0:31 /docker/7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let both = "5:cpu,cpuacct:/docker/7\n4:memory:/docker/7\n0::/\n";
        let (own, cpu) =
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/cpu/memory.limit_in_bytes");
        let tree = [(groups, both), (mounts, v1), (own, "2000\n"), (cpu, "1\n")];
        assert_eq!(limit(&tree), Some((2000, format!("/{own}"))));
        assert_eq!(limit(&[(groups, both), (mounts, v1), (own, "9223372036854771712\n")]), None);
        // In a process's own cgroup namespace, the group is the root.
        let own = "sys/fs/cgroup/memory.max";
        let tree = [(groups, "0::/\n"), (mounts, v2), (own, "3000\n")];
        assert_eq!(limit(&tree), Some((3000, format!("/{own}"))));
    }
}
