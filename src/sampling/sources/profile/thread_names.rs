//! Names of threads that were not named while the source was open.

use std::ffi::CStr;
use std::io;

use super::super::process::texts::with_path;
use super::task_table::ThreadName;
use crate::os::directory_handle::DirectoryHandle;
use crate::os::host::HostRoot;

/// Reads names of threads, from /proc/TID/comm.
#[derive(Debug)]
pub(super) struct ThreadNames {
    proc: DirectoryHandle,
}

impl ThreadNames {
    /// Opens the list of threads.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub(super) fn open(host: &HostRoot) -> io::Result<Self> {
        Ok(Self { proc: DirectoryHandle::open(&host.path("proc"))? })
    }

    /// Reads the name of a thread. `None` if it has ended.
    pub(super) fn read(&self, thread: u32) -> Option<ThreadName> {
        let mut name = ThreadName::default();
        // At most 15 bytes and a newline, which is replaced by the zero byte.
        let read = |path: &CStr| self.proc.open_file(path)?.read(&mut name);
        let length = with_path(thread, "/comm", read).ok()?;
        *name.get_mut(length.checked_sub(1)?)? = 0;
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{fixed_text, host_with};

    // Proves that a name is read without its newline, and that a thread that is gone has none.
    #[test]
    fn names_are_read() {
        let host = host_with(&[("proc/5/comm", "a thread\n"), ("proc/6/comm", "fifteen bytes..\n")]);
        let names = ThreadNames::open(&HostRoot::new(host.path())).unwrap();
        assert_eq!(fixed_text(names.read(5).unwrap()), "a thread");
        assert_eq!(fixed_text(names.read(6).unwrap()), "fifteen bytes..");
        assert_eq!(names.read(7), None);
    }
}
