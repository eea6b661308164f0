//! Strings of a process that are read only on request, which are its control group and its command
//! line.

use std::ffi::CStr;
use std::io::{self, ErrorKind, Write};

use flatcap_os::directory_handle::DirectoryHandle;

use super::group_naming::GroupNaming;
use super::stat;
use crate::sources::text::ABSENT;

/// Size of the buffer for the first read of `cmdline` and `cgroup`. Most contents are shorter.
pub(super) const DETAIL_BYTES: usize = 4096;
/// Maximum number of bytes that are read from such a file. With the usual stack limit, no command
/// line is longer.
const DETAIL_BYTES_MAX: usize = 2 << 20;
/// Maximum length of a string of a process in a sample, including its terminating zero byte.
pub(super) const TEXT_BYTES: usize = 256;

/// The strings that are requested.
#[derive(Debug, Clone)]
pub(super) struct RequestedTexts {
    pub(super) groups: Option<GroupNaming>,
    pub(super) command_lines: bool,
}

/// The strings of a process.
#[derive(Debug)]
pub(super) struct ProcessTexts {
    /// The whole path of the control group. Empty if the process has no group or the path is
    /// unknown.
    pub(super) group: Vec<u8>,
    /// Whether the process has a group that the recorder cannot name.
    pub(super) is_group_unknown: bool,
    pub(super) command_line: [u8; TEXT_BYTES],
    /// Length of the whole command line. The length is absent if the command line is longer than
    /// `DETAIL_BYTES_MAX`.
    pub(super) command_line_length: u64,
    next_group: Vec<u8>, // reused
}

impl ProcessTexts {
    /// Creates the strings before the first read.
    pub(super) fn empty() -> Box<Self> {
        Box::new(Self {
            group: Vec::with_capacity(TEXT_BYTES),
            is_group_unknown: false,
            command_line: [0; TEXT_BYTES],
            command_line_length: ABSENT,
            next_group: Vec::with_capacity(TEXT_BYTES),
        })
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
        if details.command_lines {
            let length = Self::read_file(proc, pid, "/cmdline", buffer)?;
            let words = buffer.get_mut(..length).unwrap_or_default();
            let end = words.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            let words = words.get_mut(..end).unwrap_or_default();
            words.iter_mut().take(TEXT_BYTES).filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
            self.command_line = stat::text_prefix(words);
            self.command_line_length = if length < DETAIL_BYTES_MAX { end as u64 } else { ABSENT };
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

    fn read(cgroup: &str, command_line: &[u8]) -> (Box<ProcessTexts>, usize) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("7")).unwrap();
        fs::write(folder.path().join("7/cgroup"), format!("0::{cgroup}\n")).unwrap();
        fs::write(folder.path().join("7/cmdline"), command_line).unwrap();
        let proc = DirectoryHandle::open(folder.path()).unwrap();
        let requested = RequestedTexts { groups: Some(GroupNaming::AsShown), command_lines: true };
        let mut texts = ProcessTexts::empty();
        let mut buffer = vec![0; DETAIL_BYTES];
        assert!(texts.read(&proc, 7, &mut buffer, &requested).unwrap());
        assert!(!texts.read(&proc, 7, &mut buffer, &requested).unwrap(), "it has not moved");
        (texts, buffer.len())
    }

    // Proves that long paths and command lines are read completely, and that the length of a
    // command line beyond the limit is absent.
    #[test]
    fn long_texts_are_whole() {
        let path = format!("/docker.slice{}", "/pod".repeat(1500));
        let (texts, _) = read(&path, &[&[b'x'; 7000][..], b"\0y\0\0"].concat());
        assert_eq!((texts.group.as_slice(), texts.is_group_unknown), (path.as_bytes(), false));
        assert_eq!(texts.command_line_length, 7002);
        assert_eq!(texts.command_line[..255], [b'x'; 255]);
        let (texts, buffer) = read("/", &vec![b'x'; DETAIL_BYTES_MAX + 1]);
        assert_eq!((texts.command_line_length, buffer), (ABSENT, DETAIL_BYTES_MAX));
    }

    // Proves that the path of a group outside of the visible tree is unknown and not the path of
    // another group.
    #[test]
    fn a_group_outside_is_unknown() {
        let (texts, _) = read("/a.slice", b"x\0");
        assert_eq!(texts.group, b"/a.slice");
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("7")).unwrap();
        fs::write(folder.path().join("7/cgroup"), "0::/../host.service\n").unwrap();
        let proc = DirectoryHandle::open(folder.path()).unwrap();
        let requested = RequestedTexts { groups: Some(GroupNaming::AsShown), command_lines: false };
        let mut texts = ProcessTexts::empty();
        assert!(!texts.read(&proc, 7, &mut vec![0; DETAIL_BYTES], &requested).unwrap());
        assert_eq!((texts.group.as_slice(), texts.is_group_unknown), (&b""[..], true));
    }
}
