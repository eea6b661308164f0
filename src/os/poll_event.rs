//! Waiting for sockets and for a stop at the same time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::clock;

/// A flag that a thread can wait for beside sockets. Once set, it stays set.
#[derive(Debug)]
pub struct PollEvent(OwnedFd);

impl PollEvent {
    /// Creates an event that is not set.
    ///
    /// # Errors
    /// The kernel refuses another descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Sets the event. Wakes every thread that waits for it.
    pub fn set(&self) {
        // Fails only if the counter overflows: then it is set.
        let _is_set = rustix::io::write(&self.0, &1_u64.to_le_bytes());
    }
}

impl AsFd for PollEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of the descriptors can be read or has ended, or until the time has passed.
/// Returns which of them can be read or have ended; none after an error.
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], timeout_ns: u64) -> Vec<bool> {
    let descriptors = descriptors.iter().copied();
    let mut polled: Vec<PollFd<'_>> =
        descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
    // Interrupted, or out of memory: nothing is ready, and the caller comes again.
    let _count = poll(&mut polled, Some(&clock::timespec(timeout_ns)));
    polled.iter().map(|polled| !polled.revents().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that an event is ready once it is set and stays so, beside one that is not.
    #[test]
    fn a_set_event_is_ready() {
        let (one, other) = (PollEvent::new().unwrap(), PollEvent::new().unwrap());
        let ready = || wait_readable(&[one.as_fd(), other.as_fd()], 0);
        assert_eq!(ready(), [false, false]);
        other.set();
        other.set();
        assert_eq!((ready(), ready()), (vec![false, true], vec![false, true]));
    }
}
