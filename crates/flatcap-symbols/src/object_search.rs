//! The possible locations of an object's files.

use std::path::{Component, Path, PathBuf};

use crate::build_id::BuildId;
use crate::code_location::{ObjectKey, ObjectKind};

/// Directory in which distributions install debug files that are named by build id.
const SYSTEM_TREE: &str = "/usr/lib/debug/.build-id";

/// A file that may belong to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileCandidate {
    pub(crate) path: PathBuf,
    /// Whether the file is in a directory that the user named. A file without a build id is
    /// accepted only in such a directory.
    pub(crate) is_named_by_user: bool,
}

/// Returns the files that may belong to an object, in order of preference.
pub(crate) fn candidates(object: &ObjectKey, directories: &[PathBuf]) -> Vec<FileCandidate> {
    let mut paths = Vec::new();
    let mut add = |path: PathBuf, is_named_by_user| paths.push(FileCandidate { path, is_named_by_user });
    let id = object.build_id.as_ref();
    let of_tree = |tree: &Path, id: &BuildId| [".debug", ""].map(|ending| id.path_in(tree, ending));
    let recorded = plain_path(&object.path);
    let name = recorded.and_then(Path::file_name).map(PathBuf::from);
    for directory in directories {
        let tree = id.map(|id| of_tree(&directory.join(".build-id"), id));
        tree.into_iter().flatten().for_each(|path| add(path, true));
        match object.kind {
            ObjectKind::File => {
                if let Some(inside) = recorded.and_then(|path| path.strip_prefix("/").ok()) {
                    add(directory.join(inside), true);
                }
                if let Some(name) = &name {
                    let mut debug_name = name.clone().into_os_string();
                    debug_name.push(".debug");
                    add(directory.join(name), true);
                    add(directory.join(debug_name), true);
                }
            }
            ObjectKind::Kernel | ObjectKind::KernelAddress => add(directory.join("vmlinux"), true),
            ObjectKind::Unknown => {}
        }
    }
    if let Some(path) = recorded.filter(|_| object.kind == ObjectKind::File) {
        add(path.to_path_buf(), false);
    }
    if let Some(id) = id {
        of_tree(Path::new(SYSTEM_TREE), id).into_iter().take(1).for_each(|path| add(path, false));
    }
    let mut seen = std::collections::HashSet::new();
    paths.retain(|candidate| seen.insert(candidate.path.clone()));
    paths
}

/// Returns a recorded path if it is absolute and has no parts that lead out of a directory.
fn plain_path(text: &str) -> Option<&Path> {
    let path = Path::new(text);
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    (path.is_absolute() && path.components().all(is_plain)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the named directories are searched before the file's own path and the system's
    // debug files. A path that leads out of a directory is not searched.
    #[test]
    fn named_directories_come_first() {
        let mut object = ObjectKey {
            kind: ObjectKind::File,
            path: "/usr/bin/app".to_owned(),
            build_id: BuildId::from_hex("abcdef"),
            version: None,
            process: None,
            boot_id: None,
        };
        let directories = [PathBuf::from("/d")];
        let paths = |object: &ObjectKey| -> Vec<String> {
            let found = candidates(object, &directories);
            found.iter().map(|candidate| candidate.path.display().to_string()).collect()
        };
        let system = "/usr/lib/debug/.build-id/ab/cdef.debug";
        let tree = ["/d/.build-id/ab/cdef.debug", "/d/.build-id/ab/cdef"];
        let own = ["/d/usr/bin/app", "/d/app", "/d/app.debug", "/usr/bin/app"];
        assert_eq!(paths(&object), [&tree[..], &own, &[system]].concat());
        object.path = "/usr/../../etc/shadow".to_owned();
        assert_eq!(paths(&object), [&tree[..], &[system]].concat());
        object.kind = ObjectKind::Kernel;
        assert_eq!(paths(&object), [&tree[..], &["/d/vmlinux", system]].concat());
    }
}
