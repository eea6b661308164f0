//! Input that may be a pipe or a terminal. A stop request ends a read that waits for the writer.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::wake_event::WakeEvent;

/// Interval at which a waiting read checks whether a stop was requested. Polling is necessary
/// because the stop flag has no descriptor. A person does not notice an interval of this length,
/// and it costs only ten system calls per second.
const STOP_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// An open input.
#[derive(Debug)]
pub struct StoppableInput {
    file: File,
    stop: Option<Arc<WakeEvent>>, // none for a regular file, which never waits for a writer
}

/// The error of a read that was ended by a stop request.
#[derive(Debug, thiserror::Error)]
#[error("stopped while waiting for input")]
struct InputStopped;

impl StoppableInput {
    /// Opens a file. Does not wait for the writer of a FIFO. Setting `stop` ends waiting reads,
    /// except reads of a regular file.
    ///
    /// # Errors
    /// `IsADirectory`, or any error of the underlying system call.
    pub fn open(path: &Path, stop: Arc<WakeEvent>) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        Self::new(OpenOptions::new().read(true).custom_flags(flags).open(path)?, stop)
    }

    /// Returns standard input. Setting `stop` ends waiting reads, except reads of a regular file.
    ///
    /// # Errors
    /// `IsADirectory`, or any error of the underlying system call.
    pub fn stdin(stop: Arc<WakeEvent>) -> io::Result<Self> {
        // `io::Stdin` is not used, because `poll` does not see the bytes in its buffer.
        Self::new(File::from(io::stdin().as_fd().try_clone_to_owned()?), stop)
    }

    fn new(file: File, stop: Arc<WakeEvent>) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Self { file, stop: (!metadata.is_file()).then_some(stop) })
    }
}

impl Read for StoppableInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(stop) = &self.stop else { return self.file.read(buffer) };
        loop {
            wait_for_data(&self.file, stop)?;
            match self.file.read(buffer) {
                // Another reader of the pipe has already read the data.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

/// Waits until a read would return immediately. A FIFO that had no writer yet is not at its end,
/// because the kernel reports the end only after a writer has opened and closed the FIFO.
fn wait_for_data(file: &File, stop: &WakeEvent) -> io::Result<()> {
    while !stop.is_set() {
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&STOP_CHECK)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other(InputStopped))
}

/// Returns whether a read failed because a stop was requested.
pub fn is_stop(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(cause) if cause.is::<InputStopped>())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;
    use crate::thread;

    // Proves that opening or reading a FIFO without a writer ends at a stop, and that all bytes of
    // a writer are read. A read from a FIFO whose writer is silent also ends at a stop.
    #[test]
    fn a_stop_ends_the_wait_for_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
        let open = |stop: &Arc<WakeEvent>| StoppableInput::open(&path, Arc::clone(stop)).unwrap();

        let stop = Arc::new(WakeEvent::new());
        let mut waiting = open(&stop);
        let reader = thread::spawn("reader", move || waiting.read(&mut [0; 8]).unwrap_err()).unwrap();
        stop.set();
        assert!(is_stop(&reader.join().unwrap()));

        let stop = Arc::new(WakeEvent::new());
        let mut input = open(&stop);
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(b"abc").unwrap();
        let mut bytes = [0; 3];
        input.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"abc");
        writer.write_all(b"de").unwrap();
        drop(writer);
        assert_eq!(io::read_to_string(&mut input).unwrap(), "de");

        let mut input = open(&stop);
        let _silent = OpenOptions::new().write(true).open(&path).unwrap();
        stop.set();
        assert!(is_stop(&input.read(&mut bytes).unwrap_err()));
    }

    // Proves that a regular file is read even after a stop request, because a stop only ends waits.
    // A directory is rejected.
    #[test]
    fn a_regular_file_never_waits() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "content").unwrap();
        let stop = Arc::new(WakeEvent::new());
        stop.set();
        let input = StoppableInput::open(&folder.path().join("a"), Arc::clone(&stop)).unwrap();
        assert_eq!(io::read_to_string(input).unwrap(), "content");
        let error = StoppableInput::open(folder.path(), stop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }
}
