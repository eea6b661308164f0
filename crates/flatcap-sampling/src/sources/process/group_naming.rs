//! Names control groups by their paths in the host's tree.
//!
//! The kernel writes the paths in /proc/PID/cgroup relative to the root of the *reader's* cgroup
//! namespace. By default a container has a cgroup namespace of its own. In this namespace, a group
//! of the host has a path such as `/../host.service`, and the container's own group has the path
//! `/`. The source `cgroup` reads the tree itself, so this module converts the paths to paths of
//! that tree.

use std::fs;
use std::path::Path;

use flatcap_os::host::HostRoot;

use super::stat::unified_group;
use crate::sources::cgroup;

/// Maximum number of groups that are searched for the recorder's own group. At this limit, the
/// search ends without a result.
const SEARCHED_MAX: usize = 1 << 16;
/// Maximum depth of the search for the recorder's own group.
const DEPTH_MAX: usize = 64;
/// The file with the processes of a group.
const PROCESSES: &str = "cgroup.procs";

/// How the paths that the kernel shows relate to the paths in the host's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GroupNaming {
    /// The paths are the same.
    AsShown,
    /// The paths are relative to this group of the tree.
    Below(Vec<u8>),
    /// The paths are relative to a group that was not found.
    Unknown,
}

impl GroupNaming {
    /// Finds the recorder's own group in the host's tree, and compares its path with the path that
    /// the kernel shows.
    pub(super) fn of(host: &HostRoot) -> Self {
        if !host.has_procfs() {
            return Self::AsShown; // a captured tree
        }
        let shown_at = |path: &Path| {
            let content = fs::read(path).ok()?;
            unified_group(&content).0.map(<[u8]>::to_vec)
        };
        let is_outside = |path: &[u8]| path == b"/.." || path.starts_with(b"/../");
        let is_first_outside = shown_at(&host.path("proc/1/cgroup")).is_some_and(|path| is_outside(&path));
        let unknown = if is_first_outside { Self::Unknown } else { Self::AsShown };
        let (Some(own), Some(tree)) = (shown_at(Path::new("/proc/self/cgroup")), cgroup::tree_path(host))
        else {
            return unknown;
        };
        let own_text = String::from_utf8_lossy(&own).into_owned();
        if has_own_process(&tree.join(own_text.trim_start_matches('/'))) {
            return Self::AsShown;
        }
        let mut searched = 0;
        let Some(found) = find_own(&tree, 0, &mut searched) else { return unknown };
        let found = found.strip_prefix(&tree).unwrap_or(&found).as_os_str().as_encoded_bytes();
        let found = [b"/", found].concat();
        let below = if own == b"/" { Some(&found[..]) } else { found.strip_suffix(&own[..]) };
        below.map_or(unknown, |root| Self::Below(root.to_vec()))
    }

    /// Writes the path of a group in the host's tree to `path`. Returns false if the path is
    /// unknown.
    pub(super) fn resolve(&self, shown: &[u8], path: &mut Vec<u8>) -> bool {
        path.clear();
        let mut root: &[u8] = match self {
            Self::AsShown => b"",
            Self::Below(root) => root,
            Self::Unknown => return false,
        };
        let mut rest = shown;
        while let Some(after) =
            rest.strip_prefix(b"/..").filter(|after| matches!(after.first(), None | Some(b'/')))
        {
            let Some(slash) = root.iter().rposition(|byte| *byte == b'/') else { return false };
            root = root.get(..slash).unwrap_or_default();
            rest = after;
        }
        path.extend_from_slice(root);
        if rest != b"/" || root.is_empty() {
            path.extend_from_slice(rest);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        true
    }
}

/// Returns the group that contains the recorder. It is either the group at this path or one of its
/// descendants.
fn find_own(path: &Path, depth: usize, searched: &mut usize) -> Option<std::path::PathBuf> {
    *searched += 1;
    if has_own_process(path) {
        return Some(path.to_owned());
    }
    let entries = fs::read_dir(path).ok().filter(|_| depth < DEPTH_MAX)?;
    for entry in entries.flatten() {
        if *searched >= SEARCHED_MAX {
            return None;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Some(found) = find_own(&entry.path(), depth + 1, searched)
        {
            return Some(found);
        }
    }
    None
}

fn has_own_process(group: &Path) -> bool {
    let own = std::process::id().to_string();
    fs::read_to_string(group.join(PROCESSES)).is_ok_and(|pids| pids.lines().any(|pid| pid == own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(naming: &GroupNaming, shown: &str) -> Option<String> {
        let mut path = b"before".to_vec();
        naming.resolve(shown.as_bytes(), &mut path).then(|| String::from_utf8(path).unwrap())
    }

    // Proves that paths relative to another group become paths of the tree. A path that leads out
    // of the tree is unknown.
    #[test]
    fn paths_become_those_of_the_tree() {
        let below = GroupNaming::Below(b"/fcns.slice/agent.scope".to_vec());
        for (shown, expected) in [
            ("/", Some("/fcns.slice/agent.scope")),
            ("/child", Some("/fcns.slice/agent.scope/child")),
            ("/..", Some("/fcns.slice")),
            ("/../host.service", Some("/fcns.slice/host.service")),
            ("/../..", Some("/")),
            ("/../../init.scope", Some("/init.scope")),
            ("/../../..", None),
            ("/..child", Some("/fcns.slice/agent.scope/..child")),
        ] {
            assert_eq!(resolved(&below, shown).as_deref(), expected, "{shown}");
        }
        for shown in ["/", "/a.slice/b", "/..a"] {
            assert_eq!(resolved(&GroupNaming::AsShown, shown).as_deref(), Some(shown));
        }
        assert_eq!(resolved(&GroupNaming::AsShown, "/../a"), None);
        assert_eq!(resolved(&GroupNaming::Unknown, "/a"), None);
    }

    // Proves that the recorder's own group is found wherever it is in the tree.
    #[test]
    fn the_own_group_is_found() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["a.slice/x", "b.slice/deep/agent", "c.slice"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
            fs::write(folder.path().join(path).join(PROCESSES), "1\n").unwrap();
        }
        assert_eq!(find_own(folder.path(), 0, &mut 0), None);
        let own = folder.path().join("b.slice/deep/agent");
        fs::write(own.join(PROCESSES), format!("1\n{}\n", std::process::id())).unwrap();
        assert_eq!(find_own(folder.path(), 0, &mut 0), Some(own));
    }
}
