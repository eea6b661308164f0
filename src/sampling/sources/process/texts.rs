//! Texts of a process that are read only on request: its control group and its command line.

use std::ffi::CStr;
use std::io::{self, ErrorKind, Write};

use super::stat;
use crate::os::directory_handle::DirectoryHandle;
use crate::sampling::sources::text::{self, ABSENT};

/// Bytes read of `cmdline` and `cgroup`.
pub(super) const DETAIL_BYTES_MAX: usize = 4096;
/// Longest text of a process in a sample, its terminating zero byte included.
pub(super) const TEXT_BYTES: usize = 256;

/// The texts that are requested.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestedTexts {
    pub(super) groups: bool,
    pub(super) command_lines: bool,
}

/// Texts of a process.
#[derive(Debug)]
pub(super) struct ProcessTexts {
    pub(super) group: [u8; TEXT_BYTES],
    pub(super) command_line: [u8; TEXT_BYTES],
    pub(super) command_line_length: u64,
}

impl ProcessTexts {
    /// Creates texts before the first read.
    pub(super) fn empty() -> Box<Self> {
        Box::new(Self { group: [0; TEXT_BYTES], command_line: [0; TEXT_BYTES], command_line_length: ABSENT })
    }

    /// Reads the requested texts. Returns whether the group has changed.
    pub(super) fn read(
        &mut self,
        proc: &DirectoryHandle,
        pid: u32,
        buffer: &mut [u8],
        details: RequestedTexts,
    ) -> io::Result<bool> {
        let mut has_moved = false;
        if details.groups {
            let length = Self::read_file(proc, pid, "/cgroup", buffer)?;
            let (path, _) = stat::unified_group(buffer.get(..length).unwrap_or_default());
            // A path that does not fit is discarded: cut, it would be another group's.
            let path = path.and_then(text::name).unwrap_or([0; TEXT_BYTES]);
            has_moved = path != self.group;
            self.group = path;
        }
        if details.command_lines {
            let length = Self::read_file(proc, pid, "/cmdline", buffer)?;
            let words = buffer.get_mut(..length).unwrap_or_default();
            let end = words.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            let words = words.get_mut(..end).unwrap_or_default();
            words.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
            self.command_line = stat::text_prefix(words);
            self.command_line_length = words.len() as u64;
        }
        Ok(has_moved)
    }

    /// Returns the length of a file's content; 0 if this kernel lacks the file or denies access.
    fn read_file(proc: &DirectoryHandle, pid: u32, name: &str, buffer: &mut [u8]) -> io::Result<usize> {
        match with_path(pid, name, |path| proc.open_file(path)).and_then(|file| file.read(buffer)) {
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) => Ok(0),
            result => result,
        }
    }
}

/// Calls `call` with the path of a process's file below /proc.
pub(in crate::sampling::sources) fn with_path<T>(
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
