//! Names of threads that got their names before the source was opened.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;

use flatcap_os::directory_handle::DirectoryHandle;
use flatcap_os::host::HostRoot;

use super::super::process::texts::with_path;
use super::task_table::ThreadName;

/// Maximum number of names that are kept. If there are more, all names are dropped and read again.
const NAMES_MAX: usize = 4096;

/// Reads the names of threads from /proc/TID/comm, and keeps these names.
#[derive(Debug)]
pub(super) struct ThreadNames {
    proc: DirectoryHandle,
    names: HashMap<u32, ThreadName>, // by thread id
}

impl ThreadNames {
    /// Opens the list of threads.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub(super) fn open(host: &HostRoot) -> io::Result<Self> {
        Ok(Self { proc: DirectoryHandle::open(&host.path("proc"))?, names: HashMap::new() })
    }

    /// Returns the name of a thread. Returns `None` if the thread has ended.
    pub(super) fn get(&mut self, thread: u32) -> Option<ThreadName> {
        if let Some(name) = self.names.get(&thread) {
            return Some(*name);
        }
        let name = self.read(thread)?;
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        self.names.insert(thread, name);
        Some(name)
    }

    /// Forgets the name of a thread that begins or ends, because another thread may get the same
    /// id.
    pub(super) fn forget(&mut self, thread: u32) {
        self.names.remove(&thread);
    }

    fn read(&self, thread: u32) -> Option<ThreadName> {
        let mut name = ThreadName::default();
        // The name has at most 15 bytes and a newline, which is replaced by the zero byte.
        let read = |path: &CStr| self.proc.open_file(path)?.read(&mut name);
        let length = with_path(thread, "/comm", read).ok()?;
        *name.get_mut(length.checked_sub(1)?)? = 0;
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{fixed_text, host_with};

    // Proves that a name is read without its newline, that a thread that has ended has no name, and
    // that a name is kept until its thread ends.
    #[test]
    fn names_are_read() {
        let host = host_with(&[("proc/5/comm", "a thread\n"), ("proc/6/comm", "fifteen bytes..\n")]);
        let mut names = ThreadNames::open(&HostRoot::new(host.path())).unwrap();
        assert_eq!(fixed_text(names.get(5).unwrap()), "a thread");
        assert_eq!(fixed_text(names.get(6).unwrap()), "fifteen bytes..");
        assert_eq!(names.get(7), None);
        std::fs::write(host.path().join("proc/5/comm"), "another\n").unwrap();
        assert_eq!(fixed_text(names.get(5).unwrap()), "a thread");
        names.forget(5);
        assert_eq!(fixed_text(names.get(5).unwrap()), "another");
    }
}
