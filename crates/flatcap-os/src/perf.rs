//! Groups of `perf_event_open(2)` counters, which the kernel returns in one read.

use std::io;

use super::perf_event::{self, EventAttributes, EventFile, READ_GROUP, READ_TIME_ENABLED, READ_TIME_RUNNING};

pub use super::perf_event::CountTarget;

/// Maximum number of counters in a group.
pub(crate) const GROUP_MAX: usize = 32;
/// Number of words before the counts. These words are the number of counters, the time enabled and
/// the time running.
const HEADER_WORDS: usize = 3;

/// An event, as the kernel numbers it: `perf_event_attr.type` and `.config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventCode {
    /// Event type, such as hardware, software or cache.
    pub kind: u32,
    /// The number of the event within its type.
    pub config: u64,
}

/// The count of a counter and the times for which it was enabled and running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CounterValue {
    /// Number of events.
    pub value: u64,
    /// Time for which the counter was enabled, in nanoseconds.
    pub time_enabled: u64,
    /// Time for which the counter was running on the hardware, in nanoseconds.
    pub time_running: u64,
}

/// Counters that start and stop together.
#[derive(Debug)]
pub struct CounterGroup {
    target: CountTarget,
    counters: Vec<EventFile>, // the first is the leader; 1 <= len <= GROUP_MAX
}

impl CounterGroup {
    /// Opens a group of one counter. Does not start the counter.
    ///
    /// # Errors
    /// Any error of `perf_event_open(2)`. `NotFound` and some other errors mean that there is no
    /// such event. `PermissionDenied` means that the capability is missing.
    pub fn open(at: CountTarget, event: EventCode) -> io::Result<Self> {
        Ok(Self { target: at, counters: vec![open(at, event, None)?] })
    }

    /// Adds a counter.
    ///
    /// # Errors
    /// Any error of `perf_event_open(2)`. `InvalidInput` means that the processor cannot count this
    /// number of events at the same time.
    pub fn add(&mut self, event: EventCode) -> io::Result<()> {
        let leader = self.counters.first().filter(|_| self.counters.len() < GROUP_MAX);
        let leader = leader.ok_or(io::ErrorKind::InvalidInput)?;
        let counter = open(self.target, event, Some(leader))?;
        self.counters.push(counter);
        Ok(())
    }

    /// Starts all counters at the same time. A counter that is added to a running group would not
    /// count until the kernel next schedules the group.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn start(&self) -> io::Result<()> {
        self.counters.first().ok_or(io::ErrorKind::InvalidInput)?.start()
    }

    /// Stops all counters. The kernel also stops the counters of a core that goes offline.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    #[cfg(any(test, feature = "testing"))]
    pub fn stop(&self) -> io::Result<()> {
        self.counters.first().ok_or(io::ErrorKind::InvalidInput)?.stop()
    }

    /// Reads all counters with one call, in the order in which they were added. Does not allocate.
    ///
    /// # Errors
    /// `UnexpectedEof` if the kernel returns fewer counts than there are counters, or any error of
    /// the underlying system call.
    pub fn read(&self, mut count: impl FnMut(CounterValue)) -> io::Result<()> {
        let mut buffer = [0; (HEADER_WORDS + GROUP_MAX) * 8];
        let leader = self.counters.first().ok_or(io::ErrorKind::InvalidInput)?;
        let length = rustix::io::read(leader, &mut buffer)?;
        let (words, _) = buffer.get(..length).unwrap_or_default().as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let mut next = || words.next().ok_or(io::ErrorKind::UnexpectedEof);
        let (counters, time_enabled, time_running) = (next()?, next()?, next()?);
        if counters != self.counters.len() as u64 || length != (HEADER_WORDS + self.counters.len()) * 8 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        words.for_each(|value| count(CounterValue { value, time_enabled, time_running }));
        Ok(())
    }
}

/// Opens a counter of user and kernel code. The first counter of a group does not count until it is
/// started.
fn open(at: CountTarget, event: EventCode, leader: Option<&EventFile>) -> io::Result<EventFile> {
    let attributes = EventAttributes {
        kind: event.kind,
        config: event.config,
        read_format: READ_TIME_ENABLED | READ_TIME_RUNNING | READ_GROUP,
        flags: if leader.is_some() { 0 } else { perf_event::DISABLED },
        ..EventAttributes::default()
    };
    EventFile::open(at, attributes, leader)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOFTWARE: u32 = 1;
    const TASK_CLOCK: EventCode = EventCode { kind: SOFTWARE, config: 1 };
    const PAGE_FAULTS: EventCode = EventCode { kind: SOFTWARE, config: 2 };

    // Proves that the counts belong to this thread and are in the order of the counters. The test
    // touches new pages between two reads.
    #[test]
    fn a_group_counts() {
        let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let mut group = match CounterGroup::open(CountTarget::Thread(thread), TASK_CLOCK) {
            Ok(group) => group,
            Err(error) => {
                println!("skipped: no counters here: {error}");
                return;
            }
        };
        group.add(PAGE_FAULTS).unwrap();
        group.start().unwrap();
        let read = |group: &CounterGroup| {
            let mut counts = Vec::with_capacity(2);
            group.read(|count| counts.push(count)).unwrap();
            counts
        };
        let before = read(&group);
        let mut pages = memmap2::MmapMut::map_anon(4 << 20).unwrap();
        pages.fill(1);
        let after = read(&group);
        drop(pages);
        assert_eq!((before.len(), after.len()), (2, 2));
        assert!(after[1].value - before[1].value >= 2, "{before:?} {after:?}");
        assert!(after[0].value > before[0].value && after[0].time_running <= after[0].time_enabled);
        let wrong = EventCode { kind: SOFTWARE, config: 4711 };
        assert!(CounterGroup::open(CountTarget::Thread(thread), wrong).is_err() && group.add(wrong).is_err());
        assert_eq!(read(&group).len(), 2);
    }
}
