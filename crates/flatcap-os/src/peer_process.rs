//! The process at the other end of a connection, with its program and its control group, and
//! whether it is alive.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::poll_event::wait_readable;

/// A process.
#[derive(Debug)]
pub struct PeerProcess {
    descriptor: OwnedFd, // readable once it has ended
    /// The process's process id.
    pub id: i32,
    /// The path of the process's program; `None` if this user may not read the path.
    pub executable: Option<String>,
    /// The path of the process's control group (version 2); `None` if the process has no such
    /// group.
    pub control_group: Option<String>,
}

impl PeerProcess {
    /// Opens the process with this id.
    ///
    /// # Errors
    /// The process has ended, or this process cannot open another descriptor.
    pub fn open(id: i32) -> io::Result<Self> {
        let number = Pid::from_raw(id.max(0)).ok_or(io::ErrorKind::NotFound)?;
        let descriptor = pidfd_open(number, PidfdFlags::empty())?;
        let folder = PathBuf::from(format!("/proc/{id}"));
        let executable = fs::read_link(folder.join("exe")).ok();
        let groups = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
        let process = Self {
            descriptor,
            id,
            executable: executable.map(|path| path.to_string_lossy().into_owned()),
            control_group: groups.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned),
        };
        // If the process is still alive, its id was not reused during the reads above.
        if process.has_ended() { Err(io::ErrorKind::NotFound.into()) } else { Ok(process) }
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&self) -> bool {
        wait_readable(self.as_fd(), 0)
    }
}

impl AsFd for PeerProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    // Proves that a live process is described, and that its end is detected.
    #[test]
    fn a_process_is_known() {
        let own = PeerProcess::open(std::process::id().cast_signed()).unwrap();
        let program = std::env::current_exe().unwrap();
        assert_eq!(own.executable.as_deref(), program.to_str());
        assert!(!own.has_ended());
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = PeerProcess::open(child.id().cast_signed()).unwrap();
        assert!(!process.has_ended());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.has_ended());
        assert!(PeerProcess::open(child.id().cast_signed()).is_err() && PeerProcess::open(0).is_err());
    }
}
