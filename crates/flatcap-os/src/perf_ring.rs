//! Rings of `perf_event_open(2)`. A ring is a memory area for one CPU. The kernel fills the ring
//! with records, and this module empties the ring.
//!
//! The kernel never overwrites records. While a ring is full, new records are lost. Before the next
//! record that fits, the kernel writes a record with the number of lost records. Only this file and
//! `shared_memory` access memory through a raw pointer.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::host::page_bytes;
pub use super::perf_event::EventFile;
use super::perf_event::{self, CountTarget, EventAttributes, SOFTWARE, TRACEPOINT};
use super::perf_record::RECORD_BYTES_MAX;

/// Software events (`perf_event_attr.config`).
const CPU_CLOCK: u64 = 0;
const DUMMY: u64 = 9;

/// Offsets in the first page of a mapping (`struct perf_event_mmap_page`). The field at the first
/// offset is the end of the records that the kernel has written. The field at the second offset is
/// the start of the records that the reader has not released.
const HEAD_OFFSET: usize = 1024;
const TAIL_OFFSET: usize = HEAD_OFFSET + 8;

/// Maximum length of a usual record. The longest usual record is a file mapping, whose path has up
/// to 4 KiB.
const USUAL_RECORD_BYTES_MAX: usize = 4352;

/// The event that writes the records of a ring. Each record contains the running thread and the
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingEvent {
    /// Fork and exit of threads, and their names.
    Tasks,
    /// Context switches.
    Switches,
    /// A tracepoint, by its number in tracefs.
    Tracepoint(u64),
    /// The call chain of the running code. The ring also contains forks, exits, names and mappings
    /// of threads. Mappings have build ids if the kernel knows them (since Linux 5.12).
    CallChains {
        /// CPU time between two samples, in nanoseconds; the idle loop is not sampled. The kernel
        /// limits the depth of a chain, by default to 127 frames (`kernel.perf_event_max_stack`).
        interval_ns: u64,
    },
}

impl RingEvent {
    fn attributes(self) -> EventAttributes {
        const THREAD_AND_TIME: u64 = perf_event::SAMPLE_THREAD | perf_event::SAMPLE_TIME;
        const TASKS: u64 = perf_event::TASKS | perf_event::NAMES | perf_event::EXECS;
        let common = EventAttributes {
            sample_type: THREAD_AND_TIME,
            read_format: perf_event::READ_TIME_ENABLED,
            flags: perf_event::DISABLED | perf_event::ORIGIN_OF_ALL,
            ..EventAttributes::default()
        };
        let common = common.with_monotonic_clock();
        let software = EventAttributes { kind: SOFTWARE, config: DUMMY, ..common };
        match self {
            Self::Tasks => EventAttributes { flags: common.flags | TASKS, ..software },
            Self::Switches => EventAttributes { flags: common.flags | perf_event::SWITCHES, ..software },
            Self::Tracepoint(number) => EventAttributes {
                kind: TRACEPOINT,
                config: number,
                sample_period: 1,
                sample_type: THREAD_AND_TIME | perf_event::SAMPLE_RAW,
                ..common
            },
            // This is an interval, not a frequency, because the kernel rejects frequencies above a
            // limit that it lowers by itself. The kernel converts a frequency to an interval
            // anyway.
            Self::CallChains { interval_ns } => EventAttributes {
                config: CPU_CLOCK,
                sample_period: interval_ns,
                sample_type: THREAD_AND_TIME | perf_event::SAMPLE_CALL_CHAIN,
                flags: common.flags
                    | TASKS
                    | perf_event::EXCLUDE_IDLE
                    | perf_event::MAPPINGS
                    | perf_event::MAPPINGS_WITH_FILES
                    | perf_event::BUILD_IDS,
                ..software
            },
        }
    }

    /// Opens the event on a CPU, without starting it.
    fn open(self, cpu: u32) -> io::Result<EventFile> {
        let attributes = self.attributes();
        let open = |attributes| EventFile::open(CountTarget::Core(cpu), attributes, None);
        match open(attributes) {
            Err(error)
                if error.kind() == io::ErrorKind::InvalidInput
                    && attributes.flags & perf_event::BUILD_IDS != 0 =>
            {
                // Kernels before 5.12 reject the flag for build ids.
                open(EventAttributes { flags: attributes.flags & !perf_event::BUILD_IDS, ..attributes })
            }
            opened => opened,
        }
    }
}

/// A ring of one CPU.
#[derive(Debug)]
pub struct PerfRing {
    cpu: u32,
    event: EventFile,
    map: MmapRaw,      // a page of the kernel's numbers, then the ring
    data_start: usize, // data_start + data_bytes == map.len()
    data_bytes: usize, // a power of two
    tail: u64,         // how many bytes were released
    enabled_ns: u64,   // how long the event was on when that was last asked
}

impl PerfRing {
    /// Opens an event on a CPU with a ring of at least `bytes`. The size of the ring is a power of
    /// two and sufficient for the longest record. Does not start the event.
    ///
    /// # Errors
    /// `PermissionDenied` without the capability; `Other` if the memory exceeds what the user may
    /// lock; or any error of the underlying system calls.
    pub fn open(cpu: u32, event: RingEvent, bytes: usize) -> io::Result<Self> {
        let page = numbers_bytes();
        let data_bytes = Self::data_bytes(bytes);
        let event = event.open(cpu)?;
        let mut options = MmapOptions::new();
        let map = options.len(page.saturating_add(data_bytes)).populate().map_raw(event.as_fd().as_raw_fd());
        let map = map.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => io::Error::other(RingMemoryLimit { bytes: data_bytes }),
            _ => error,
        })?;
        Ok(Self { cpu, event, map, data_start: page, data_bytes, tail: 0, enabled_ns: 0 })
    }

    /// Returns the size of a ring that has at least `bytes` bytes. The kernel rejects sizes that
    /// are too large.
    pub fn data_bytes(bytes: usize) -> usize {
        let bytes = bytes.max(RECORD_BYTES_MAX).max(numbers_bytes());
        bytes.checked_next_power_of_two().unwrap_or(usize::MAX)
    }

    /// Returns the memory that the kernel allocates for a ring of at least `bytes` bytes.
    pub fn memory_bytes(bytes: usize) -> usize {
        Self::data_bytes(bytes).saturating_add(numbers_bytes())
    }

    /// Opens another event of the same CPU, which writes into the same ring. Does not start this
    /// event. At most one event of a ring may write samples. The events that write samples are
    /// [`RingEvent::Tracepoint`] and [`RingEvent::CallChains`].
    ///
    /// # Errors
    /// The same errors as [`open`](Self::open).
    pub fn add(&self, event: RingEvent) -> io::Result<EventFile> {
        let event = event.open(self.cpu)?;
        event.write_into(&self.event)?;
        Ok(event)
    }

    /// Returns the number of the CPU.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns the event with which the ring was opened.
    pub fn event(&self) -> &EventFile {
        &self.event
    }

    /// Returns whether the event was enabled at any time since the previous call. The kernel
    /// disables the event when the CPU goes offline, for example for a suspend, and does not enable
    /// the event again when the CPU returns.
    pub fn goes_on(&mut self) -> bool {
        let enabled_ns = self.read_enabled_ns().unwrap_or_default();
        std::mem::replace(&mut self.enabled_ns, enabled_ns) < enabled_ns
    }

    /// Returns how long the event has been enabled, in nanoseconds.
    fn read_enabled_ns(&self) -> io::Result<u64> {
        let mut numbers = [0; 16]; // a count and the time
        let read = rustix::io::read(self.event.as_fd(), &mut numbers)?;
        match numbers.last_chunk() {
            Some(time) if read == numbers.len() => Ok(u64::from_ne_bytes(*time)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Returns whether a ring that contains `waiting` bytes is so full that a record may not have
    /// fitted. If a record does not fit, the kernel drops it. The kernel reports the loss only
    /// before the next record that fits.
    pub(crate) fn is_full_with(&self, waiting: usize) -> bool {
        self.data_bytes.saturating_sub(waiting) < USUAL_RECORD_BYTES_MAX
    }

    /// Returns the number of bytes in the ring.
    pub fn waiting(&self) -> usize {
        // The order is Acquire, because the kernel writes the records before it advances the head.
        let head = self.number(HEAD_OFFSET).load(Ordering::Acquire);
        let waiting = usize::try_from(head.wrapping_sub(self.tail)).unwrap_or(usize::MAX);
        waiting.min(self.data_bytes)
    }

    /// Appends the oldest bytes of the ring to `buffer`, at most `bytes_max`. The last record may
    /// be truncated. The bytes stay in the ring until they are [released](Self::release).
    pub fn copy(&self, buffer: &mut Vec<u8>, bytes_max: usize) {
        let bytes = self.waiting().min(bytes_max);
        let mask = self.data_bytes as u64 - 1;
        let start = usize::try_from(self.tail & mask).unwrap_or(0);
        let before_end = bytes.min(self.data_bytes - start);
        buffer.extend_from_slice(self.data(start, before_end));
        buffer.extend_from_slice(self.data(0, bytes - before_end));
    }

    /// Releases the oldest `bytes` of the ring to the kernel.
    pub fn release(&mut self, bytes: usize) {
        self.tail = self.tail.wrapping_add(bytes.min(self.waiting()) as u64);
        // The order is Release, because the records must be copied before the kernel may overwrite
        // them.
        self.number(TAIL_OFFSET).store(self.tail, Ordering::Release);
    }

    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    fn number(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the eight bytes lie in the first page of the mapping, which lives as long as
        // `map`, at an address that is a multiple of 8. The kernel and this process access them
        // only atomically.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }

    /// Returns bytes of the ring. The bytes must lie between tail and head. `copy` requests no
    /// other bytes.
    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    fn data(&self, start: usize, length: usize) -> &[u8] {
        let start = start.min(self.data_bytes);
        let length = length.min(self.data_bytes - start);
        // SAFETY: the range lies within the mapping, which lives as long as `map`. The kernel does
        // not write between tail and head, and the tail cannot change while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(self.data_start + start), length) }
    }
}

/// Returns the size of the first page, which holds head and tail.
fn numbers_bytes() -> usize {
    usize::try_from(page_bytes()).unwrap_or(usize::MAX)
}

/// The kernel refuses to lock the memory of a ring.
#[derive(Debug, thiserror::Error)]
#[error(
    "the kernel refuses to lock {bytes} bytes for each CPU: raise LimitMEMLOCK= of the service, or \
     choose a smaller ring"
)]
struct RingMemoryLimit {
    bytes: usize,
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::Command;

    use super::*;
    use crate::clock::monotonic_ns;
    use crate::perf_record::{PerfRecord, PerfRecords, RecordedEvent, SampleContent};
    use crate::thread::pin_to_cpus;

    const RING_BYTES: usize = 1 << 17;
    /// Maximum number of times that a full ring is filled again.
    const FULL_RINGS_MAX: usize = 100;

    /// Opens a ring of CPU 0. Returns `None` if this host does not permit the ring.
    fn ring(event: RingEvent) -> Option<PerfRing> {
        match PerfRing::open(0, event, RING_BYTES) {
            Ok(ring) => Some(ring),
            Err(error) => {
                println!("skipped: no perf rings here: {error}");
                None
            }
        }
    }

    /// Returns the thread id of the calling thread.
    fn own_thread() -> u32 {
        u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap()
    }

    /// Runs `work` on a thread pinned to CPU 0.
    fn on_cpu_0(work: impl FnOnce() + Send + 'static) {
        let pinned = move || {
            assert!(pin_to_cpus(&[0]).unwrap().is_empty());
            work();
        };
        super::super::thread::spawn("pinned", pinned).unwrap().join().unwrap();
    }

    /// Starts a child, exchanges bytes with it, and stops the event `switches` when the child has
    /// ended. Returns the content of the ring, the start time, and the child's id.
    fn events_of_a_child(ring: &PerfRing, switches: &EventFile) -> (Vec<u8>, u64, u32) {
        let begin = monotonic_ns();
        let mut child = Command::new("cat");
        child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = child.spawn().unwrap();
        let pid = child.id();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        for _ in 0..100 {
            to.write_all(b"x").unwrap();
            from.read_exact(&mut [0]).unwrap();
        }
        drop(to);
        child.wait().unwrap();
        switches.stop().unwrap();
        let mut bytes = Vec::new();
        ring.copy(&mut bytes, usize::MAX);
        (bytes, begin, pid)
    }

    // Proves that switches, forks, execs and exits of this host arrive in order with their times
    // and threads. A stopped event writes nothing, and bytes that are not released are copied
    // again.
    #[test]
    fn a_ring_has_what_happens() {
        let Some(mut ring) = ring(RingEvent::Tasks) else { return };
        let switches = ring.add(RingEvent::Switches).unwrap();
        ring.event().start().unwrap();
        switches.start().unwrap();
        on_cpu_0(move || {
            let (mut bytes, mut begin, mut pid) = events_of_a_child(&ring, &switches);
            // On a busy host the ring may be full before the child has ended.
            for _ in 0..FULL_RINGS_MAX {
                let mut records = PerfRecords::new(&bytes, SampleContent::Tracepoint);
                let has_lost = records.any(|record| matches!(record.event, RecordedEvent::Lost(_)));
                if !has_lost && !ring.is_full_with(ring.waiting()) {
                    break;
                }
                ring.release(bytes.len());
                switches.start().unwrap();
                (bytes, begin, pid) = events_of_a_child(&ring, &switches);
            }
            let mut again = Vec::new();
            ring.copy(&mut again, bytes.len());
            assert!(again == bytes);
            let mut records = PerfRecords::new(&bytes, SampleContent::Tracepoint);
            let found: Vec<PerfRecord<'_>> = records.by_ref().collect();
            assert_eq!((records.position(), records.malformed()), (bytes.len(), 0));
            let own = own_thread();
            let own_switches = found.iter().filter(|record| match record.event {
                RecordedEvent::SwitchOut { next, .. } => {
                    (record.current.thread, next.thread) == (own, pid) && record.time > begin
                }
                _ => false,
            });
            let own_switches = own_switches.count();
            let position = |is_wanted: fn(&RecordedEvent<'_>, u32) -> bool| {
                found.iter().position(|record| is_wanted(&record.event, pid)).unwrap()
            };
            let fork = position(|event, pid| match event {
                RecordedEvent::Fork { child, .. } => child.thread == pid,
                _ => false,
            });
            let exec = position(|event, pid| match event {
                RecordedEvent::Name { thread, name, is_exec } => {
                    *is_exec && thread.thread == pid && name.starts_with(b"cat\0")
                }
                _ => false,
            });
            let exit = position(|event, pid| match event {
                RecordedEvent::Exit { thread, .. } => thread.thread == pid,
                _ => false,
            });
            assert_eq!(found[fork].current.thread, own);
            assert!(fork < exec && exec < exit, "{fork} {exec} {exit}");
            // A third thread may run in between, so a switch need not lead from one of the two
            // threads to the other.
            assert!(own_switches > 0);
            ring.release(bytes.len());
            ring.event().stop().unwrap();
            let mut rest = Vec::new();
            ring.copy(&mut rest, usize::MAX);
            ring.release(rest.len());
            assert_eq!(ring.waiting(), 0);
        });
    }

    // Proves that a full ring reports the number of lost records, and continues across its end. The
    // test fills the ring and then reads the switches in small steps.
    #[test]
    fn a_full_ring_counts_what_it_loses() {
        let Some(mut ring) = ring(RingEvent::Switches) else { return };
        ring.event().start().unwrap();
        on_cpu_0(move || {
            let mut child = Command::new("cat");
            child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
            let mut child = child.spawn().unwrap();
            let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let mut exchange = |times: usize| {
                for _ in 0..times {
                    to.write_all(b"x").unwrap();
                    from.read_exact(&mut [0]).unwrap();
                }
            };
            // Each exchange takes at least two switches of 64 bytes each.
            exchange(RING_BYTES / 128 + 100);
            assert!(ring.waiting() > RING_BYTES - RECORD_BYTES_MAX);
            let (mut lost, mut last_ns) = (0, 0);
            for _ in 0..4 {
                while ring.waiting() > 0 {
                    let mut bytes = Vec::new();
                    ring.copy(&mut bytes, RECORD_BYTES_MAX);
                    let mut records = PerfRecords::new(&bytes, SampleContent::Tracepoint);
                    for record in records.by_ref() {
                        assert!(record.time >= last_ns);
                        last_ns = record.time;
                        if let RecordedEvent::Lost(count) = record.event {
                            lost += count;
                        }
                    }
                    assert_eq!(records.malformed(), 0);
                    let position = records.position();
                    assert!(position > 0);
                    ring.release(position);
                }
                exchange(RING_BYTES / 128 / 4);
            }
            assert!(lost > 0);
            drop(to);
            child.wait().unwrap();
        });
    }
}
