//! The control group of a process, which is read with each sample only if processes are selected by
//! their groups.

use std::ffi::CStr;
use std::io::{self, ErrorKind, Write};

use flatcap_os::directory_handle::DirectoryHandle;

use super::group_naming::GroupNaming;
use super::stat;

/// Size of the buffer for the first read of `cgroup`. Most contents are shorter.
pub(super) const DETAIL_BYTES: usize = 4096;
/// Maximum number of bytes that are read from the file. The kernel writes less than a page per
/// hierarchy.
const DETAIL_BYTES_MAX: usize = 2 << 20;
/// Maximum length of a string of a process in a sample, including its terminating zero byte.
pub(super) const TEXT_BYTES: usize = 256;

/// The strings that are requested.
#[derive(Debug, Clone)]
pub(super) struct RequestedTexts {
    pub(super) groups: Option<GroupNaming>,
}

/// The strings of a process.
#[derive(Debug)]
pub(super) struct ProcessTexts {
    /// The whole path of the control group. Empty if the process has no group or the path is
    /// unknown.
    pub(super) group: Vec<u8>,
    /// Whether the process has a group that the recorder cannot name.
    pub(super) is_group_unknown: bool,
    next_group: Vec<u8>, // reused
}

impl ProcessTexts {
    /// Creates the strings before the first read.
    pub(super) fn empty() -> Self {
        Self {
            group: Vec::with_capacity(TEXT_BYTES),
            is_group_unknown: false,
            next_group: Vec::with_capacity(TEXT_BYTES),
        }
    }

    /// Reads the requested strings. Returns whether the group has changed. Allocates if a string is
    /// longer than all earlier strings.
    pub(super) fn read(
        &mut self,
        proc: &DirectoryHandle,
        pid: u32,
        buffer: &mut Vec<u8>,
        details: &RequestedTexts,
    ) -> io::Result<bool> {
        let mut has_moved = false;
        if let Some(naming) = &details.groups {
            let length = Self::read_file(proc, pid, "/cgroup", buffer)?;
            let (path, _) = stat::unified_group(buffer.get(..length).unwrap_or_default());
            self.next_group.clear();
            let is_known = path.is_none_or(|path| naming.resolve(path, &mut self.next_group));
            if !is_known {
                self.next_group.clear();
            }
            has_moved = self.next_group != self.group;
            self.is_group_unknown = !is_known;
            std::mem::swap(&mut self.group, &mut self.next_group);
        }
        Ok(has_moved)
    }

    /// Returns the length of a file's content, or 0 if this kernel lacks the file or denies access.
    fn read_file(proc: &DirectoryHandle, pid: u32, name: &str, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let file = with_path(pid, name, |path| proc.open_file(path));
        loop {
            let read = match &file {
                Ok(file) => file.read(buffer),
                Err(error) if is_refusal(error) => return Ok(0),
                Err(_) => return file.map(|_| 0),
            };
            match read {
                Err(error) if is_refusal(&error) => return Ok(0),
                Ok(length) if length == buffer.len() && length < DETAIL_BYTES_MAX => {
                    buffer.resize(2 * length, 0);
                }
                read => return read,
            }
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound)
}

/// Calls `call` with the path of a process's file below /proc.
pub(in crate::sources) fn with_path<T>(
    pid: u32,
    name: &str,
    call: impl FnOnce(&CStr) -> io::Result<T>,
) -> io::Result<T> {
    let mut path = [0_u8; 32];
    let mut rest = path.as_mut_slice();
    write!(rest, "{pid}{name}")?;
    // The rest of the path is zero bytes.
    call(CStr::from_bytes_until_nul(&path).map_err(|_| ErrorKind::InvalidInput)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(cgroup: &str) -> (ProcessTexts, bool) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("7")).unwrap();
        fs::write(folder.path().join("7/cgroup"), format!("0::{cgroup}\n")).unwrap();
        let proc = DirectoryHandle::open(folder.path()).unwrap();
        let requested = RequestedTexts { groups: Some(GroupNaming::AsShown) };
        let mut texts = ProcessTexts::empty();
        let mut buffer = vec![0; DETAIL_BYTES];
        let has_moved = texts.read(&proc, 7, &mut buffer, &requested).unwrap();
        assert!(!texts.read(&proc, 7, &mut buffer, &requested).unwrap(), "it has not moved");
        (texts, has_moved)
    }

    // Proves that long paths are read completely.
    #[test]
    fn long_texts_are_whole() {
        let path = format!("/docker.slice{}", "/pod".repeat(1500));
        let (texts, has_moved) = read(&path);
        assert_eq!(
            (texts.group.as_slice(), texts.is_group_unknown, has_moved),
            (path.as_bytes(), false, true)
        );
    }

    // Proves that the path of a group outside of the visible tree is unknown and not the path of
    // another group.
    #[test]
    fn a_group_outside_is_unknown() {
        let (texts, _) = read("/a.slice");
        assert_eq!(texts.group, b"/a.slice");
        let (texts, has_moved) = read("/../host.service");
        assert_eq!((texts.group.as_slice(), texts.is_group_unknown, has_moved), (&b""[..], true, false));
    }
}
