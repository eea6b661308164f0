//! Waits for many sockets and processes. The cost of a wait does not grow with their number.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::poll_event::wait_readable;

/// Maximum number of descriptors reported by one wait. The next wait reports the remaining ones
/// first.
const REPORTED_MAX: usize = 64;

/// Descriptors to wait for, each with a number chosen by the caller.
///
/// A descriptor leaves the set when it is closed.
#[derive(Debug)]
pub struct ReadySet(OwnedFd);

impl ReadySet {
    /// Creates an empty set.
    ///
    /// # Errors
    /// This process cannot open another descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    /// The kernel has no memory, or this user's limit (`fs.epoll.max_user_watches`) is reached.
    pub fn add(&self, descriptor: impl AsFd, number: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, descriptor, EventData::new_u64(number), EventFlags::IN)?)
    }

    /// Removes a descriptor from the set without closing it.
    pub fn remove(&self, descriptor: impl AsFd) {
        // The call fails only if the descriptor is not in the set.
        let _is_removed = epoll::delete(&self.0, descriptor);
    }

    /// Waits until at least one descriptor is readable, its peer has hung up, or the timeout has
    /// passed. Returns the numbers that the caller chose for these descriptors, or no numbers after
    /// an error.
    pub fn wait(&self, timeout_ns: u64) -> impl Iterator<Item = u64> + use<> {
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut reported = [none; REPORTED_MAX];
        // Before Linux 5.11, the timeout of epoll has a resolution of milliseconds. Therefore this
        // function polls the descriptor of the set.
        let count = if wait_readable(self.0.as_fd(), timeout_ns) {
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            // An interrupted call reports nothing; the caller polls again.
            epoll::wait(&self.0, &mut reported, Some(&at_once)).unwrap_or_default()
        } else {
            0
        };
        reported.into_iter().take(count).map(|event| event.data.u64())
    }
}

#[cfg(test)]
mod tests {
    use super::super::poll_event::PollEvent;
    use super::*;

    fn ready(set: &ReadySet) -> Vec<u64> {
        let mut numbers: Vec<u64> = set.wait(0).collect();
        numbers.sort_unstable();
        numbers
    }

    // Proves that a ready descriptor is reported by its number until it is removed or closed.
    #[test]
    fn what_is_ready_is_reported() {
        let set = ReadySet::new().unwrap();
        let [one, other, closed] = [(); 3].map(|()| PollEvent::new().unwrap());
        for (event, number) in [(&one, 7), (&other, u64::MAX), (&closed, 9)] {
            set.add(event, number).unwrap();
        }
        assert!(ready(&set).is_empty());
        other.set();
        closed.set();
        assert_eq!((ready(&set), ready(&set)), (vec![9, u64::MAX], vec![9, u64::MAX]));
        drop(closed);
        assert_eq!(ready(&set), [u64::MAX]);
        set.remove(&other);
        assert!(ready(&set).is_empty());
        set.add(&other, 8).unwrap();
        one.set();
        assert_eq!(ready(&set), [7, 8]);
    }

    // Proves that every descriptor is reported even if more are ready than one wait reports.
    #[test]
    fn each_has_its_turn() {
        let set = ReadySet::new().unwrap();
        let events: Vec<PollEvent> = (0..3 * REPORTED_MAX).map(|_| PollEvent::new().unwrap()).collect();
        for (number, event) in (0..).zip(&events) {
            set.add(event, number).unwrap();
            event.set();
        }
        let mut seen: Vec<u64> = (0..3).flat_map(|_| set.wait(0)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..events.len() as u64).collect::<Vec<_>>());
    }

    // Proves that adding a descriptor twice is an error.
    #[test]
    fn twice_is_refused() {
        let (set, event) = (ReadySet::new().unwrap(), PollEvent::new().unwrap());
        set.add(&event, 1).unwrap();
        assert_eq!(set.add(&event, 2).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
