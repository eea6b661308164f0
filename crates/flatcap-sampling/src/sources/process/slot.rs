//! The state of one process between samples: its open files, and the data that decides when to read
//! them again.

use std::io::{self, ErrorKind};

use flatcap_os::directory_handle::{DirectoryHandle, FileHandle};

use super::names::NameState;
use super::stat::{self, NAME_BYTES};
use super::texts::{ProcessTexts, RequestedTexts, with_path};
use crate::sources::text::ABSENT;

/// Maximum length of the content of `schedstat`, which is three numbers.
const SCHEDSTAT_BYTES_MAX: usize = 64;
/// Value of `detail_due_ns` if the details of a process are due in any pass. The next constant
/// means that the details of a process are due in the next full pass.
pub(super) const DUE_IN_ANY_PASS: u64 = 0;
pub(super) const DUE_IN_FULL_PASS: u64 = 1;

/// State kept for one process.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub(super) struct ProcessSlot {
    pub(super) files: ProcessFiles,
    pub(super) content: ContentSpan,
    pub(super) is_io_denied: bool,
    /// Whether the next pass reads the process even if its CPU clock has not advanced.
    pub(super) is_active: bool,
    pub(super) detail_due_ns: u64,
    pub(super) exit: ExitState,
    /// Whether, at the last sample, the files of the process reported that the process is gone.
    pub(super) is_gone: bool,
    /// The process's start time at the last sample.
    pub(super) start: u64,
    /// User id of the process.
    pub(super) user: u64,
    /// Whether the last sample recorded the process. A process that was not recorded is read only
    /// when its details are due.
    pub(super) is_wanted: bool,
    /// The name and user for which `is_wanted` was decided.
    pub(super) decided_for: Option<([u8; NAME_BYTES], u64)>,
    /// CPU time, and bytes read from and written to storage, at the last sample.
    pub(super) totals: [u64; 2],
    /// The value of `totals` at the last full pass.
    pub(super) totals_of_full_pass: [u64; 2],
    /// CPU time of all threads of the process, and the time for which its first thread waited for a
    /// processor. Both times are in nanoseconds, as of the last read.
    pub(super) run_time: u64,
    pub(super) wait_time: u64,
    /// The control group, if processes are selected by it.
    pub(super) texts: Option<ProcessTexts>,
    /// State of the names for people, and the time at which they are due.
    pub(super) names: NameState,
}

/// The open files of a process.
#[derive(Debug, Default)]
pub(super) struct ProcessFiles {
    pub(super) stat: Option<FileHandle>,
    io: Option<FileHandle>,
    schedstat: Option<FileHandle>,
}

impl ProcessFiles {
    /// Closes the files. Returns the number of files that were open.
    pub(super) fn close(&mut self) -> usize {
        let Self { stat, io, schedstat } = std::mem::take(self);
        [stat, io, schedstat].iter().flatten().count()
    }
}

/// State of a process's exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExitState {
    NotReported,
    /// The process may still be listed, until its parent has waited for it.
    Reported,
    /// The exit may be among the lost events. The next sample shows whether the process has exited.
    Uncertain,
}

/// Place of a process's content in the table's buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ContentSpan {
    pub(super) at: usize,
    /// Length of the content of `stat`, or 0 if the file was not read.
    pub(super) stat: usize,
    /// Length of the content of `io`, which follows the content of `stat`.
    pub(super) io: usize,
}

/// Content read for one process.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessContent<'a> {
    pub(super) stat: &'a [u8],
    /// The content of the file `io`, or `None` if it could not be read.
    pub(super) io: Option<&'a [u8]>,
    pub(super) is_io_denied: bool,
}

impl ProcessSlot {
    pub(super) fn new() -> Self {
        Self {
            files: ProcessFiles::default(),
            content: ContentSpan::default(),
            is_io_denied: false,
            is_active: false,
            detail_due_ns: DUE_IN_ANY_PASS,
            exit: ExitState::NotReported,
            is_gone: false,
            start: ABSENT,
            user: ABSENT,
            is_wanted: true,
            decided_for: None,
            totals: [0; 2],
            totals_of_full_pass: [0; 2],
            run_time: ABSENT,
            wait_time: ABSENT,
            texts: None,
            names: NameState::NEW,
        }
    }

    /// Clears the state of the process, but keeps the allocated buffers. Returns the number of
    /// files that were closed.
    pub(super) fn clear(&mut self) -> usize {
        let open = self.files.close();
        let texts = self.texts.take();
        // A later process with the same pid must start with a new state.
        *self = Self { texts, is_active: self.is_active, ..Self::new() };
        open
    }
}

impl ProcessSlot {
    /// Reads the user, and the control group if it is requested.
    pub(super) fn read_details(
        &mut self,
        proc: &DirectoryHandle,
        pid: u32,
        buffer: &mut Vec<u8>,
        details: &RequestedTexts,
    ) -> io::Result<()> {
        self.user = with_path(pid, "", |path| proc.ownership_of(path))?.user.into();
        self.is_io_denied = false;
        if details.groups.is_some() {
            let texts = self.texts.get_or_insert_with(ProcessTexts::empty);
            if texts.read(proc, pid, buffer, details)? {
                self.decided_for = None;
            }
        }
        Ok(())
    }

    /// Reads the time that the first thread of the process waited for a processor.
    pub(super) fn read_wait_time(
        &mut self,
        proc: &DirectoryHandle,
        pid: u32,
        files_open: &mut usize,
    ) -> io::Result<u64> {
        let mut content = [0; SCHEDSTAT_BYTES_MAX];
        let file = open_once(&mut self.files.schedstat, proc, pid, "/schedstat", files_open)?;
        let length = file.read(&mut content)?;
        Ok(stat::wait_time(content.get(..length).unwrap_or_default()))
    }

    /// Reads `io`. Returns the length of the content of `io`, or 0 if access is denied or this
    /// kernel lacks the file.
    pub(super) fn read_io(
        &mut self,
        proc: &DirectoryHandle,
        pid: u32,
        buffer: &mut [u8],
        files_open: &mut usize,
    ) -> io::Result<usize> {
        if self.is_io_denied {
            return Ok(0);
        }
        match open_once(&mut self.files.io, proc, pid, "/io", files_open).and_then(|io| io.read(buffer)) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                self.is_io_denied = true;
                *files_open -= usize::from(self.files.io.take().is_some());
                Ok(0)
            }
            // A kernel without I/O accounting has no such file.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            result => result,
        }
    }
}

/// Returns a file, and opens it first if it is not open.
pub(super) fn open_once<'a>(
    file: &'a mut Option<FileHandle>,
    proc: &DirectoryHandle,
    pid: u32,
    name: &str,
    files_open: &mut usize,
) -> io::Result<&'a FileHandle> {
    if file.is_none() {
        *file = Some(with_path(pid, name, |path| proc.open_file(path))?);
        *files_open += 1;
    }
    file.as_ref().ok_or_else(|| ErrorKind::NotFound.into())
}
