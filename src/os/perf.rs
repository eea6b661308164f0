//! Groups of `perf_event_open(2)` counters, which the kernel returns in one read.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Maximum number of counters in a group.
pub const GROUP_MAX: usize = 32;
/// Words before the counts: number of counters, time enabled, time running.
const HEADER_WORDS: usize = 3;
const FORMAT_TIME_ENABLED: u64 = 1;
const FORMAT_TIME_RUNNING: u64 = 2;
const FORMAT_GROUP: u64 = 8;
/// The first bit of the flags (`disabled`): the group does not count until it is enabled.
const DISABLED: u64 = if cfg!(target_endian = "big") { 1 << 63 } else { 1 };
const ENABLE: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(b'$', 0);
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// An event, in the kernel's numbers: `perf_event_attr.type` and `.config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventCode {
    /// Event type: hardware, software, cache.
    pub kind: u32,
    /// The event within its type.
    pub config: u64,
}

/// The core or thread in which events are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountTarget {
    /// A core, whatever thread runs there.
    Core(u32),
    /// A thread, on whatever core it runs.
    Thread(u32),
}

/// A count and its times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CounterValue {
    /// Number of events.
    pub value: u64,
    /// Time for which the counter was enabled, in nanoseconds.
    pub time_enabled: u64,
    /// Time for which the counter was running on the hardware, in nanoseconds.
    pub time_running: u64,
}

/// The oldest form of the kernel's `perf_event_attr` (64 bytes), which every kernel accepts.
#[repr(C)]
struct PerfEventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64, // 0, or `DISABLED` for the leader; so user code and kernel are both counted
    wakeup_events: u32,
    breakpoint: u32,
    config1: u64,
}

const ATTRIBUTES_BYTES: u32 = 64;
const _: () = assert!(size_of::<PerfEventAttributes>() == 64);

/// Counters that start and stop together.
#[derive(Debug)]
pub struct CounterGroup {
    target: CountTarget,
    counters: Vec<OwnedFd>, // the first is the leader; 1 <= len <= GROUP_MAX
}

impl CounterGroup {
    /// Opens a group of one counter, which is not started.
    ///
    /// # Errors
    /// Any error of `perf_event_open(2)`: `NotFound` and others if there is no such event,
    /// `PermissionDenied` without the capability.
    pub fn open(at: CountTarget, event: EventCode) -> io::Result<Self> {
        Ok(Self { target: at, counters: vec![open(at, event, None)?] })
    }

    /// Adds a counter.
    ///
    /// # Errors
    /// Any error of `perf_event_open(2)`: `InvalidInput` if the processor cannot count that many at
    /// once.
    pub fn add(&mut self, event: EventCode) -> io::Result<()> {
        let leader = self.counters.first().filter(|_| self.counters.len() < GROUP_MAX);
        let leader = leader.ok_or(io::ErrorKind::InvalidInput)?;
        let counter = open(self.target, event, Some(leader))?;
        self.counters.push(counter);
        Ok(())
    }

    /// Starts all counters at once. A counter added to a running group would not count until the
    /// kernel next schedules the group.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    #[allow(unsafe_code, reason = "neither the standard library nor rustix has this request")]
    pub fn start(&self) -> io::Result<()> {
        let leader = self.counters.first().ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the request PERF_EVENT_IOC_ENABLE takes no pointer, and the descriptor is a
        // counter's, which supports it.
        unsafe { rustix::ioctl::ioctl(leader, rustix::ioctl::NoArg::<ENABLE>::new()) }?;
        Ok(())
    }

    /// Reads all counters at once, in the order in which they were added. Does not allocate.
    ///
    /// # Errors
    /// `UnexpectedEof` if the kernel returns fewer counts than there are counters, or any error of
    /// the underlying system call.
    #[allow(clippy::host_endian_bytes, reason = "words of the kernel of this host, never stored")]
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

#[allow(unsafe_code, reason = "neither the standard library nor rustix has this system call")]
fn open(at: CountTarget, event: EventCode, leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let attributes = PerfEventAttributes {
        kind: event.kind,
        size: ATTRIBUTES_BYTES,
        config: event.config,
        sample_period: 0,
        sample_type: 0,
        read_format: FORMAT_TIME_ENABLED | FORMAT_TIME_RUNNING | FORMAT_GROUP,
        flags: if leader.is_some() { 0 } else { DISABLED },
        wakeup_events: 0,
        breakpoint: 0,
        config1: 0,
    };
    let id = |number: u32| i32::try_from(number).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let (thread, core) = match at {
        CountTarget::Core(core) => (-1, id(core)?),
        // 0 would mean the calling thread.
        CountTarget::Thread(thread) => (id(thread)?.max(1), -1),
    };
    // SAFETY: `attributes` is initialized, lives until the call returns, and is as long as its
    // `size` says. The kernel only reads it (it writes `size` only if it rejects a structure as too
    // long, which never happens for the oldest form).
    let file = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            libc::c_long::from(thread),
            libc::c_long::from(core),
            libc::c_long::from(leader.map_or(-1, AsRawFd::as_raw_fd)),
            CLOSE_ON_EXEC,
        )
    };
    let file = RawFd::try_from(file).unwrap_or(-1);
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor for us; no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOFTWARE: u32 = 1;
    const TASK_CLOCK: EventCode = EventCode { kind: SOFTWARE, config: 1 };
    const PAGE_FAULTS: EventCode = EventCode { kind: SOFTWARE, config: 2 };

    // Proves that the counts are those of this thread, in the order of the counters. Touches new
    // pages between two reads.
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
