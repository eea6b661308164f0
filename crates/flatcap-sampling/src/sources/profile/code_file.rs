//! The origin of code, that is, files and memory that processes map. Each file, and each memory
//! area with code, is stored only once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use flatcap_os::build_id::{ElfBuildId, FileContentId};
use flatcap_tasks::schema::CodeKind;

/// Maximum number of files that are known at the same time. Code of further files is unknown.
pub(super) const FILES_MAX: usize = 8192;
/// Maximum length of a path. Longer paths are truncated.
pub(super) const PATH_BYTES_MAX: usize = 1024;
/// Maximum number of lookups of a file. More than one may be needed, because the process that has
/// mapped the file may have ended.
const LOOKUPS_MAX: u8 = 3;
/// When the list reaches this many files for the first time, the files that no process maps any
/// more are removed.
const SWEEP_FILES_MIN: usize = 256;
/// Prefixes of names that the kernel gives to memory although they look like names of files.
const MEMORY_NAMES: [&[u8]; 5] = [b"//", b"/memfd:", b"/dev/zero", b"/SYSV", b"/anon_hugepage"];
/// Name of the vDSO, the small library of code that the kernel maps into user programs.
const VDSO: &[u8] = b"[vdso]";

/// A file or memory that has code.
#[derive(Debug)]
pub(super) struct CodeFile {
    /// Unique id of this `CodeFile`.
    pub(super) id: u64,
    /// The kind of the code's origin.
    pub(super) kind: CodeKind,
    /// Path of the file. Code outside of files has a name in brackets.
    pub(super) path: Box<str>,
    /// Number of the inode, or 0 if it is not known.
    pub(super) inode: u64,
    device: (u32, u32),
    reported_build_id: Option<ElfBuildId>, // reported by the kernel, with the mapping
    content: OnceLock<FileContentId>,
    lookups: AtomicU8,
}

/// The identity of a mapped file, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileIdentity<'p> {
    /// The path as the process sees it, or the name of memory without a file.
    pub(super) path: &'p [u8],
    /// The build id, if the kernel has read it.
    pub(super) build_id: Option<ElfBuildId>,
    /// Major and minor number of the device. Zero if there is a build id.
    pub(super) device: (u32, u32),
    /// Number of the inode. Zero if there is a build id.
    pub(super) inode: u64,
}

impl CodeFile {
    /// Creates an object that is not a mapped file.
    pub(super) fn other(id: u64, kind: CodeKind, name: &str, build_id: Option<ElfBuildId>) -> Self {
        Self {
            id,
            kind,
            path: name.into(),
            inode: 0,
            device: (0, 0),
            reported_build_id: build_id,
            content: build_id.map(FileContentId::BuildId).map_or_else(OnceLock::new, OnceLock::from),
            lookups: AtomicU8::new(LOOKUPS_MAX),
        }
    }

    fn new(id: u64, identity: &FileIdentity<'_>) -> Self {
        let (kind, path) = named(identity.path);
        let lookups = if kind == CodeKind::File && identity.inode != 0 { 0 } else { LOOKUPS_MAX };
        Self {
            inode: identity.inode,
            device: identity.device,
            lookups: AtomicU8::new(lookups),
            ..Self::other(id, kind, &path, identity.build_id)
        }
    }

    /// Returns the build id or the version, if one of them is known by now.
    pub(super) fn content(&self) -> Option<FileContentId> {
        self.content.get().copied()
    }

    /// Returns whether another lookup of the content is worthwhile. If so, this call counts it.
    pub(super) fn take_lookup(&self) -> bool {
        // Only one thread counts lookups, so no atomic addition is needed. The last lookup may
        // still be in progress, and then another lookup is useless.
        let lookups = self.lookups.load(Ordering::Relaxed);
        let is_worth_it = lookups < LOOKUPS_MAX && self.content().is_none();
        if is_worth_it {
            self.lookups.store(lookups + 1, Ordering::Relaxed);
        }
        is_worth_it
    }

    /// Undoes the count of the last lookup, which did not begin.
    pub(super) fn return_lookup(&self) {
        self.lookups.store(self.lookups.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    }

    /// Ends a lookup. If the lookup found nothing, there are no further lookups, because the file
    /// has neither a build id nor a version.
    pub(super) fn finish_lookup(&self, content: Option<FileContentId>) {
        match content {
            // This fails only if an earlier lookup has set the content.
            Some(content) => drop(self.content.set(content)),
            None => self.lookups.store(LOOKUPS_MAX, Ordering::Relaxed),
        }
    }

    fn is(&self, identity: &FileIdentity<'_>) -> bool {
        let (kind, path) = named(identity.path);
        (self.reported_build_id, self.device, self.inode, self.kind)
            == (identity.build_id, identity.device, identity.inode, kind)
            && *self.path == *path
    }
}

/// Returns the kind and the path or name by which an object is recorded.
fn named(path: &[u8]) -> (CodeKind, String) {
    let is_file = path == VDSO
        || path.first() == Some(&b'/') && !MEMORY_NAMES.iter().any(|name| path.starts_with(name));
    let mut text = String::from_utf8_lossy(path).into_owned();
    let whole = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=PATH_BYTES_MAX.min(text.len())).rev().find(whole).unwrap_or(0);
    text.truncate(end);
    if is_file || path.first() == Some(&b'[') {
        return (if is_file { CodeKind::File } else { CodeKind::Unknown }, text);
    }
    (CodeKind::Unknown, format!("[{}]", text.trim_start_matches('/')))
}

/// The files that processes map.
#[derive(Debug)]
pub(super) struct CodeFiles {
    files: HashMap<u64, Arc<CodeFile>>, // by the hash of their identity
    hasher: RandomState,
    next_id: u64,
    sweep_at: usize, // number of files that starts the next sweep
}

impl CodeFiles {
    /// Creates an empty list. The ids of its files begin at `first_id`.
    pub(super) fn new(first_id: u64) -> Self {
        let hasher = RandomState::new();
        Self { files: HashMap::new(), hasher, next_id: first_id, sweep_at: SWEEP_FILES_MIN }
    }

    /// Returns the file with this identity, or `None` if there are too many files.
    pub(super) fn get(&mut self, identity: &FileIdentity<'_>) -> Option<Arc<CodeFile>> {
        let hash = self.hasher.hash_one(identity);
        if let Some(known) = self.files.get(&hash).filter(|known| known.is(identity)) {
            return Some(Arc::clone(known));
        }
        if self.files.len() >= self.sweep_at {
            self.files.retain(|_, file| Arc::strong_count(file) > 1);
            self.sweep_at = (self.files.len() * 2).clamp(SWEEP_FILES_MIN, FILES_MAX);
        }
        if self.files.len() >= FILES_MAX {
            return None;
        }
        let file = Arc::new(CodeFile::new(self.next_id, identity));
        self.next_id += 1;
        self.files.insert(hash, Arc::clone(&file));
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(path: &str, inode: u64) -> FileIdentity<'_> {
        FileIdentity { path: path.as_bytes(), build_id: None, device: (8, 1), inode }
    }

    // Proves that files and memory are distinguished by the names that the kernel gives them.
    #[test]
    fn names_say_what_is_mapped() {
        for (name, kind, path) in [
            ("/usr/bin/a b", CodeKind::File, "/usr/bin/a b"),
            ("/lib/x.so (deleted)", CodeKind::File, "/lib/x.so (deleted)"),
            ("[vdso]", CodeKind::File, "[vdso]"),
            ("[heap]", CodeKind::Unknown, "[heap]"),
            ("//anon", CodeKind::Unknown, "[anon]"),
            ("/memfd:code (deleted)", CodeKind::Unknown, "[memfd:code (deleted)]"),
            ("anon_inode:[uring]", CodeKind::Unknown, "[anon_inode:[uring]]"),
            ("", CodeKind::Unknown, "[]"),
        ] {
            assert_eq!(named(name.as_bytes()), (kind, path.to_owned()), "{name}");
        }
        assert_eq!(named(b"/\xFF").1, "/\u{FFFD}");
        assert_eq!(named(format!("/{}", "\u{E4}".repeat(1000)).as_bytes()).1.len(), PATH_BYTES_MAX - 1);
    }

    // Proves that equal files are stored as one, and that a file that replaces another file is a
    // new one. The number of files is limited only while processes map them.
    #[test]
    fn files_are_known_once() {
        let mut files = CodeFiles::new(2);
        let first = files.get(&identity("/a", 1)).unwrap();
        assert!(Arc::ptr_eq(&first, &files.get(&identity("/a", 1)).unwrap()));
        let replaced = files.get(&identity("/a", 2)).unwrap();
        assert!(replaced.id != first.id && first.id >= 2);
        let mut held = Vec::new();
        for inode in 0..FILES_MAX as u64 * 2 {
            held.extend(files.get(&identity("/b", inode)));
        }
        assert_eq!(held.len(), FILES_MAX - 2);
        held.clear();
        for inode in 0..FILES_MAX as u64 * 2 {
            assert!(files.get(&identity("/c", inode)).is_some());
        }
        assert!(Arc::ptr_eq(&first, &files.get(&identity("/a", 1)).unwrap()));
    }

    // Proves that a build id is looked up only a few times if the lookup fails. It is not looked up
    // again after it was found or was found to be missing, and never if the kernel has reported it.
    #[test]
    fn lookups_are_limited() {
        let mut files = CodeFiles::new(0);
        let build_id = ElfBuildId::new(b"id");
        let content = build_id.map(FileContentId::BuildId);
        let file = files.get(&identity("/a", 1)).unwrap();
        assert!(file.take_lookup());
        file.return_lookup();
        assert!(file.take_lookup() && file.take_lookup() && file.take_lookup() && !file.take_lookup());
        let found = files.get(&identity("/b", 1)).unwrap();
        assert!(found.take_lookup());
        found.finish_lookup(content);
        assert!(!found.take_lookup() && found.content() == content);
        let without = files.get(&identity("/c", 1)).unwrap();
        assert!(without.take_lookup());
        without.finish_lookup(None);
        assert!(!without.take_lookup());
        let reported = files.get(&FileIdentity { build_id, ..identity("/d", 0) }).unwrap();
        assert!(!reported.take_lookup() && reported.content() == content);
        assert!(!files.get(&identity("//anon", 0)).unwrap().take_lookup());
    }
}
