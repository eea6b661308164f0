//! Waits for sockets and for a stop request at the same time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::clock;

/// A flag that a thread can wait for together with sockets. Once set, it stays set.
#[derive(Debug)]
pub struct PollEvent(OwnedFd);

impl PollEvent {
    /// Creates an event that is not set.
    ///
    /// # Errors
    /// This process cannot open another descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Sets the event. Wakes every thread that waits for it.
    pub fn set(&self) {
        // The write fails only if the counter would overflow; then the event is already set.
        let _is_set = rustix::io::write(&self.0, &1_u64.to_le_bytes());
    }
}

impl AsFd for PollEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until the descriptor is readable, its peer has hung up, or the timeout has passed. Returns
/// true if the descriptor is readable or its peer has hung up, and false after a timeout or an
/// error.
pub fn wait_readable(descriptor: BorrowedFd<'_>, timeout_ns: u64) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    // If the call is interrupted or the kernel has no memory, the descriptor is reported as not
    // ready, and the caller polls again.
    poll(&mut polled, Some(&clock::timespec(timeout_ns))).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that an event is ready after it was set, and stays ready. An event that was not set is
    // not ready.
    #[test]
    fn a_set_event_is_ready() {
        let (one, other) = (PollEvent::new().unwrap(), PollEvent::new().unwrap());
        let ready = || [&one, &other].map(|event| wait_readable(event.as_fd(), 0));
        assert_eq!(ready(), [false, false]);
        other.set();
        other.set();
        assert_eq!((ready(), ready()), ([false, true], [false, true]));
    }
}
