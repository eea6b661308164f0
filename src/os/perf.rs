//! Counters of `perf_event_open(2)`, several to a group, which the kernel hands out in one read.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Most counters in a group.
pub const GROUP_MAX: usize = 32;
/// Words in front of the counts: how many, time enabled, time running.
const HEAD_WORDS: usize = 3;
const FORMAT_TIME_ENABLED: u64 = 1;
const FORMAT_TIME_RUNNING: u64 = 2;
const FORMAT_GROUP: u64 = 8;
/// The first bit of a bit field: it counts only when it is told to, and its group with it.
const DISABLED: u64 = if cfg!(target_endian = "big") { 1 << 63 } else { 1 };
const ENABLE: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(b'$', 0);
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// What is counted, in the kernel's numbers: `perf_event_attr.type` and `.config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventCode {
    /// The kind: hardware, software, cache.
    pub kind: u32,
    /// Which one of its kind.
    pub config: u64,
}

/// Where it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// On a core, whatever runs there.
    Core(u32),
    /// In a thread, wherever it runs.
    Thread(u32),
}

/// A count and its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How often.
    pub value: u64,
    /// Nanoseconds in which it was to be counted.
    pub time_enabled: u64,
    /// Nanoseconds in which it was.
    pub time_running: u64,
}

/// The oldest form of the kernel's `perf_event_attr`, which every kernel takes: 64 bytes.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64, // but for the leader's none: in user code and kernel
    wakeup_events: u32,
    breakpoint: u32,
    config1: u64,
}

const ATTRIBUTES_BYTES: u32 = 64;
const _: () = assert!(size_of::<Attributes>() == 64);

/// Counters that run and stop together.
#[derive(Debug)]
pub struct CounterGroup {
    at: Where,
    counters: Vec<OwnedFd>, // the first one leads; 1 <= len <= GROUP_MAX
}

impl CounterGroup {
    /// A group of one counter, which does not count yet.
    ///
    /// # Errors
    /// What the kernel says: `NotFound` and others where it has no such event, `PermissionDenied` without the capability.
    pub fn open(at: Where, event: EventCode) -> io::Result<Self> {
        Ok(Self { at, counters: vec![open(at, event, None)?] })
    }

    /// Adds a counter.
    ///
    /// # Errors
    /// What the kernel says: `InvalidInput` where the processor cannot count so many at once.
    pub fn add(&mut self, event: EventCode) -> io::Result<()> {
        let leader = self.counters.first().filter(|_| self.counters.len() < GROUP_MAX);
        let leader = leader.ok_or(io::ErrorKind::InvalidInput)?;
        let counter = open(self.at, event, Some(leader))?;
        self.counters.push(counter);
        Ok(())
    }

    /// Lets all counters begin at once. One that joins a group under way would not count until the kernel next looks.
    ///
    /// # Errors
    /// What the kernel says.
    #[allow(unsafe_code, reason = "neither the standard library nor rustix has this request")]
    pub fn start(&self) -> io::Result<()> {
        let leader = self.counters.first().ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the request PERF_EVENT_IOC_ENABLE takes no pointer, and the descriptor is a counter's, which knows it.
        unsafe { rustix::ioctl::ioctl(leader, rustix::ioctl::NoArg::<ENABLE>::new()) }?;
        Ok(())
    }

    /// How many counters it has.
    pub fn len(&self) -> usize {
        self.counters.len()
    }

    /// Never: a group has its leader.
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    /// Reads all counters at once, in the order in which they were added. Allocates nothing.
    ///
    /// # Errors
    /// What the kernel says; `UnexpectedEof` where it gives less than there is.
    #[allow(clippy::host_endian_bytes, reason = "words of the kernel of this host, never stored")]
    pub fn read(&self, mut count: impl FnMut(Count)) -> io::Result<()> {
        let mut buffer = [0; (HEAD_WORDS + GROUP_MAX) * 8];
        let leader = self.counters.first().ok_or(io::ErrorKind::InvalidInput)?;
        let length = rustix::io::read(leader, &mut buffer)?;
        let (words, _) = buffer.get(..length).unwrap_or_default().as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let mut next = || words.next().ok_or(io::ErrorKind::UnexpectedEof);
        let (counters, time_enabled, time_running) = (next()?, next()?, next()?);
        if counters != self.counters.len() as u64 || length != (HEAD_WORDS + self.counters.len()) * 8 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        words.for_each(|value| count(Count { value, time_enabled, time_running }));
        Ok(())
    }
}

#[allow(unsafe_code, reason = "neither the standard library nor rustix has this system call")]
fn open(at: Where, event: EventCode, leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let attributes = Attributes {
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
        Where::Core(core) => (-1, id(core)?),
        // 0 would be the caller, 1 and more are others.
        Where::Thread(thread) => (id(thread)?.max(1), -1),
    };
    // SAFETY: `attributes` is initialized, lives until the call returns, is as long as its `size` says, and the kernel
    // only reads it (it writes `size` of one that it refuses for being too long, which the oldest form never is).
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
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Lets this process have as many files open as its administrator allows: each counter is one, and 1,024 are few.
pub fn open_more_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Whoever needs more than there are is told so by the call that fails.
    let _as_many_as_before = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOFTWARE: u32 = 1;
    const TASK_CLOCK: EventCode = EventCode { kind: SOFTWARE, config: 1 };
    const PAGE_FAULTS: EventCode = EventCode { kind: SOFTWARE, config: 2 };

    // Goal: counts are those of this thread, in the order in which they were asked for. Method: pages touched for the
    // first time between two reads.
    #[test]
    fn a_group_counts() {
        let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let mut group = match CounterGroup::open(Where::Thread(thread), TASK_CLOCK) {
            Ok(group) => group,
            Err(error) => {
                println!("passed over: no counters here: {error}");
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
        assert_eq!((before.len(), after.len(), group.len(), group.is_empty()), (2, 2, 2, false));
        assert!(after[1].value - before[1].value >= 2, "{before:?} {after:?}");
        assert!(after[0].value > before[0].value && after[0].time_running <= after[0].time_enabled);
        let wrong = EventCode { kind: SOFTWARE, config: 4711 };
        assert!(CounterGroup::open(Where::Thread(thread), wrong).is_err() && group.add(wrong).is_err());
        assert_eq!(read(&group).len(), 2);
    }
}
