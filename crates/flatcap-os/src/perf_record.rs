//! Decodes the records that the kernel writes into a perf ring, from their bytes. This module calls
//! no system function.
//!
//! All events of a ring request that each record contains the thread and the time. So a record can
//! be decoded without knowing which event wrote it (`include/uapi/linux/perf_event.h` has the
//! layouts).

/// Maximum length of a record, because its length field has 16 bits.
pub const RECORD_BYTES_MAX: usize = 1 << 16;
/// Maximum length of a thread name, including its terminating zero byte.
pub const THREAD_NAME_BYTES: usize = 16;

/// Length of the header of a record, in bytes. The length field in the header has 16 bits.
const HEADER_BYTES: usize = 8;
/// Length of the origin of a record: process, thread and time. The origin comes first in a sample,
/// and last in every other record.
const ORIGIN_BYTES: usize = 16;
/// The length of a record is a multiple of this size, in bytes.
const WORD_BYTES: usize = 8;
/// Length of a switch record, which has the header, the other thread, and the origin.
const SWITCH_BYTES: usize = HEADER_BYTES + WORD_BYTES + ORIGIN_BYTES;

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;
const SWITCH_CPU_WIDE: u32 = 15;

/// Flags in the header.
const CPU_MODE: u16 = 7;
const CPU_MODE_KERNEL: u16 = 1;
const COMM_EXEC: u16 = 1 << 13;
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
const MMAP_BUILD_ID: u16 = 1 << 14;

/// Maximum length of a build id in a record.
const BUILD_ID_BYTES_MAX: usize = 20;
/// Protection bit of a mapping from which code can be run.
const PROT_EXEC: u32 = 4;

/// A thread, as its thread id and process id. Both ids are `u32::MAX` for a thread that has ended
/// and is no longer known, and 0 for the idle loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadId {
    /// Process id.
    pub process: u32,
    /// Thread id.
    pub thread: u32,
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerfRecord<'b> {
    /// Time on CLOCK_MONOTONIC, in nanoseconds.
    pub time: u64,
    /// The thread that ran on the CPU.
    pub current: ThreadId,
    /// The recorded event.
    pub event: RecordedEvent<'b>,
}

#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::panic,
    reason = "for tests, whose records fit"
)]
impl PerfRecord<'_> {
    /// Encodes the record as the kernel does, for tests of code that reads records.
    pub fn encode(&self) -> Vec<u8> {
        let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_ne_bytes()).collect() };
        let (kind, flags, mut body) = match self.event {
            RecordedEvent::SwitchOut { next, is_preempted } => {
                let flags = SWITCH_OUT | if is_preempted { SWITCH_OUT_PREEMPT } else { 0 };
                (SWITCH_CPU_WIDE, flags, words(&[next.process, next.thread]))
            }
            RecordedEvent::SwitchIn { previous } => {
                (SWITCH_CPU_WIDE, 0, words(&[previous.process, previous.thread]))
            }
            RecordedEvent::Fork { child, parent } => {
                let ids = [child.process, parent.process, child.thread, parent.thread, 0, 0];
                (FORK, 0, words(&ids))
            }
            RecordedEvent::Exit { thread, parent } => {
                (EXIT, 0, words(&[thread.process, parent, thread.thread, parent, 0, 0]))
            }
            RecordedEvent::Name { thread, name, is_exec } => {
                let flags = if is_exec { COMM_EXEC } else { 0 };
                (COMM, flags, [&words(&[thread.process, thread.thread])[..], &name].concat())
            }
            RecordedEvent::Tracepoint(data) => {
                let length = u32::try_from(data.len()).unwrap();
                (SAMPLE, 0, [&words(&[length])[..], data].concat())
            }
            RecordedEvent::CallChain(CallChain(addresses)) => {
                let count = addresses.len() as u64 / WORD_BYTES as u64;
                (SAMPLE, 0, [&count.to_ne_bytes()[..], addresses].concat())
            }
            RecordedEvent::Lost(count) => (LOST_SAMPLES, 0, count.to_ne_bytes().to_vec()),
            RecordedEvent::Mapping(_) | RecordedEvent::Other => panic!("no test needs it"),
        };
        body.resize(body.len().next_multiple_of(WORD_BYTES), 0);
        let origin = words(&[self.current.process, self.current.thread]);
        let origin = [&origin[..], &self.time.to_ne_bytes()].concat();
        let body = if kind == SAMPLE { [origin, body].concat() } else { [body, origin].concat() };
        let length = u16::try_from(HEADER_BYTES + body.len()).unwrap();
        [&kind.to_ne_bytes()[..], &flags.to_ne_bytes(), &length.to_ne_bytes(), &body].concat()
    }
}

/// The event that a record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedEvent<'b> {
    /// The current thread stops running.
    SwitchOut {
        /// The thread that runs from now on.
        next: ThreadId,
        /// Whether the current thread was still runnable.
        is_preempted: bool,
    },
    /// The current thread begins to run.
    SwitchIn {
        /// The thread that ran until now.
        previous: ThreadId,
    },
    /// A thread was created.
    Fork {
        /// The new thread.
        child: ThreadId,
        /// The thread that created the new thread.
        parent: ThreadId,
    },
    /// A thread ended.
    Exit {
        /// The thread.
        thread: ThreadId,
        /// Process id of its parent.
        parent: u32,
    },
    /// A thread changed its name.
    Name {
        /// The thread.
        thread: ThreadId,
        /// The name, padded with at least one zero byte.
        name: [u8; THREAD_NAME_BYTES],
        /// Whether the thread has started to run another program.
        is_exec: bool,
    },
    /// A process mapped a file, or executable memory.
    Mapping(MappingRecord<'b>),
    /// A tracepoint was hit. Contains its data, in the layout that the tracepoint's file `format`
    /// describes.
    Tracepoint(&'b [u8]),
    /// The current thread ran the code of this call chain.
    CallChain(CallChain<'b>),
    /// The ring was full, and this number of records is lost.
    Lost(u64),
    /// Any other record.
    Other,
}

/// A mapping of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingRecord<'b> {
    /// The thread that created the mapping.
    pub thread: ThreadId,
    /// The address of the mapping.
    pub address: u64,
    /// The length of the mapping in bytes.
    pub length: u64,
    /// The offset of the mapping in the file.
    pub file_offset: u64,
    /// The build id of the file; empty if it is not known.
    pub build_id: &'b [u8],
    /// Major and minor number of the file's device; zero if there is a build id.
    pub device: (u32, u32),
    /// Inode number of the file; zero if there is a build id.
    pub inode: u64,
    /// Whether the mapping is executable.
    pub is_executable: bool,
    /// Whether the kernel created the mapping.
    pub is_kernel: bool,
    /// Path of the file, as the process sees it; `//anon` or a name in brackets for other memory.
    pub path: &'b [u8],
}

/// The addresses of a call chain, from the innermost function outwards. Numbers from
/// [`CONTEXT_MIN`](Self::CONTEXT_MIN) on are markers that classify the addresses after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallChain<'b>(&'b [u8]);

impl CallChain<'_> {
    /// The addresses that follow belong to the kernel.
    pub const CONTEXT_KERNEL: u64 = 128_u64.wrapping_neg();
    /// The addresses that follow belong to the process.
    pub const CONTEXT_USER: u64 = 512_u64.wrapping_neg();
    /// Smallest marker; all addresses are lower.
    pub const CONTEXT_MIN: u64 = 4095_u64.wrapping_neg();

    /// Returns the addresses and the markers of the call chain, in sequence.
    pub fn addresses(self) -> impl Iterator<Item = u64> {
        let (words, _) = self.0.as_chunks();
        words.iter().map(|word| u64::from_ne_bytes(*word))
    }
}

/// The content of the samples in a ring, which depends on the ring's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleContent {
    /// Data of a tracepoint.
    Tracepoint,
    /// Call chains.
    CallChain,
}

/// The records in a byte range of a ring.
///
/// If the content of a record does not fit the record's length, the record is skipped and counted
/// as malformed. If the length of a record is impossible, all remaining bytes are skipped. A record
/// that is truncated at the end of the bytes is left for the next batch. However, if the first
/// record is truncated, its length is wrong, because at least [`RECORD_BYTES_MAX`] or the whole
/// ring was copied.
#[derive(Debug)]
pub struct PerfRecords<'b> {
    bytes: &'b [u8],
    content: SampleContent,
    position: usize, // <= bytes.len()
    malformed: u64,
}

impl<'b> PerfRecords<'b> {
    /// Reads records from bytes that start with a record.
    #[cfg(any(test, feature = "testing"))]
    pub fn new(bytes: &'b [u8], content: SampleContent) -> Self {
        Self::at(bytes, content, 0)
    }

    /// Reads records from `position` on, which must be the start of a record.
    pub fn at(bytes: &'b [u8], content: SampleContent, position: usize) -> Self {
        Self { bytes, content, position: position.min(bytes.len()), malformed: 0 }
    }

    /// Returns the position of the next record, which is the number of bytes read.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the number of malformed records.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns the time of the next record if it is a switch, as most scheduler records are. Does
    /// not decode the rest of the record.
    pub(crate) fn next_switch_time(&self) -> Option<u64> {
        let record: &[u8; SWITCH_BYTES] = self.bytes.get(self.position..)?.first_chunk()?;
        let mut header = RecordFields(record);
        let (kind, _flags, length) = (header.u32()?, header.u16()?, header.u16()?);
        let is_switch = kind == SWITCH_CPU_WIDE && usize::from(length) == SWITCH_BYTES;
        record.last_chunk().filter(|_| is_switch).map(|time| u64::from_ne_bytes(*time))
    }

    fn skip_all(&mut self) -> Option<PerfRecord<'b>> {
        self.position = self.bytes.len();
        self.malformed += 1;
        None
    }
}

impl<'b> Iterator for PerfRecords<'b> {
    type Item = PerfRecord<'b>;

    fn next(&mut self) -> Option<PerfRecord<'b>> {
        loop {
            let rest = self.bytes.get(self.position..).filter(|rest| !rest.is_empty())?;
            let mut fields = RecordFields(rest);
            let header = fields.u32().zip(fields.u16()).zip(fields.u16());
            let length = header.map_or(usize::MAX, |(_, length)| usize::from(length));
            let Some((((kind, flags), _), body)) = header.zip(rest.get(HEADER_BYTES..length)) else {
                let is_cut = self.position > 0 && length >= HEADER_BYTES;
                return if is_cut { None } else { self.skip_all() };
            };
            if !length.is_multiple_of(WORD_BYTES) {
                return self.skip_all();
            }
            self.position += length;
            match decode(kind, flags, body, self.content) {
                Some(record) => return Some(record),
                None => self.malformed += 1,
            }
        }
    }
}

/// Decodes the part of a record after its header. Returns `None` if the record is too short for its
/// kind.
fn decode(kind: u32, flags: u16, body: &[u8], content: SampleContent) -> Option<PerfRecord<'_>> {
    if kind == SAMPLE {
        let (origin, rest) = body.split_at_checked(ORIGIN_BYTES)?;
        let mut fields = RecordFields(rest);
        let event = match content {
            SampleContent::Tracepoint => {
                let length = usize::try_from(fields.u32()?).ok()?;
                RecordedEvent::Tracepoint(fields.take(length)?)
            }
            SampleContent::CallChain => {
                let bytes = usize::try_from(fields.u64()?).ok()?.checked_mul(WORD_BYTES)?;
                RecordedEvent::CallChain(CallChain(fields.take(bytes)?))
            }
        };
        return record(origin, event);
    }
    let (body, origin) = body.split_at_checked(body.len().checked_sub(ORIGIN_BYTES)?)?;
    let mut fields = RecordFields(body);
    let event = match kind {
        SWITCH_CPU_WIDE if flags & SWITCH_OUT != 0 => {
            RecordedEvent::SwitchOut { next: fields.thread()?, is_preempted: flags & SWITCH_OUT_PREEMPT != 0 }
        }
        SWITCH_CPU_WIDE => RecordedEvent::SwitchIn { previous: fields.thread()? },
        FORK | EXIT => {
            let [process, parent_process, thread, parent_thread] =
                [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
            let thread = ThreadId { process, thread };
            if kind == FORK {
                let parent = ThreadId { process: parent_process, thread: parent_thread };
                RecordedEvent::Fork { child: thread, parent }
            } else {
                RecordedEvent::Exit { thread, parent: parent_process }
            }
        }
        COMM => {
            let thread = fields.thread()?;
            let mut name = [0; THREAD_NAME_BYTES];
            // The last byte stays zero, whatever the record contains.
            let places = name.iter_mut().take(THREAD_NAME_BYTES - 1);
            for (place, byte) in places.zip(fields.text()) {
                *place = *byte;
            }
            RecordedEvent::Name { thread, name, is_exec: flags & COMM_EXEC != 0 }
        }
        MMAP2 => RecordedEvent::Mapping(mapping(flags, fields)?),
        LOST => {
            let _id = fields.u64()?;
            RecordedEvent::Lost(fields.u64()?)
        }
        LOST_SAMPLES => RecordedEvent::Lost(fields.u64()?),
        _ => RecordedEvent::Other,
    };
    record(origin, event)
}

fn record<'b>(origin: &'b [u8], event: RecordedEvent<'b>) -> Option<PerfRecord<'b>> {
    let mut origin = RecordFields(origin);
    Some(PerfRecord { current: origin.thread()?, time: origin.u64()?, event })
}

fn mapping(flags: u16, mut fields: RecordFields<'_>) -> Option<MappingRecord<'_>> {
    let thread = fields.thread()?;
    let (address, length, file_offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    // These bytes are either a build id and its length, or device and inode.
    let identity = fields.take(4 + BUILD_ID_BYTES_MAX)?;
    let (build_id, device, inode) = if flags & MMAP_BUILD_ID == 0 {
        let mut numbers = RecordFields(identity);
        (&[][..], (numbers.u32()?, numbers.u32()?), numbers.u64()?)
    } else {
        let length = usize::from(*identity.first()?);
        (identity.get(4..4 + length).unwrap_or_default(), (0, 0), 0)
    };
    let protection = fields.u32()?;
    let _flags = fields.u32()?;
    Some(MappingRecord {
        thread,
        address,
        length,
        file_offset,
        build_id,
        device,
        inode,
        is_executable: protection & PROT_EXEC != 0,
        is_kernel: flags & CPU_MODE == CPU_MODE_KERNEL,
        path: fields.text(),
    })
}

/// Fields of a record that have not been read yet.
struct RecordFields<'b>(&'b [u8]);

impl<'b> RecordFields<'b> {
    fn take(&mut self, bytes: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    fn thread(&mut self) -> Option<ThreadId> {
        Some(ThreadId { process: self.u32()?, thread: self.u32()? })
    }

    /// Returns the unread bytes up to the first zero byte.
    fn text(&self) -> &'b [u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CURRENT: ThreadId = ThreadId { process: 10, thread: 11 };
    const TIME: u64 = 1_000;

    /// Encodes a record from its parts. The origin comes first in a sample, and last in other
    /// records.
    fn bytes_of(kind: u32, flags: u16, parts: &[&[u8]]) -> Vec<u8> {
        let mut body = parts.concat();
        body.resize(body.len().next_multiple_of(WORD_BYTES), 0);
        let origin = [&words(&[CURRENT.process, CURRENT.thread])[..], &TIME.to_ne_bytes()].concat();
        let body = if kind == SAMPLE { [origin, body].concat() } else { [body, origin].concat() };
        let length = u16::try_from(HEADER_BYTES + body.len()).unwrap();
        [&kind.to_ne_bytes()[..], &flags.to_ne_bytes(), &length.to_ne_bytes(), &body].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn long_words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Returns one record of each decoded kind, with its expected event.
    fn examples() -> Vec<(Vec<u8>, SampleContent, RecordedEvent<'static>)> {
        let other = ThreadId { process: 20, thread: 21 };
        let parent = ThreadId { process: 30, thread: 31 };
        let task = [&words(&[20, 30, 21, 31])[..], &long_words(&[TIME])].concat();
        let mut name = [0; THREAD_NAME_BYTES];
        name[..6].copy_from_slice(b"worker");
        let mut build_id = vec![20, 0, 0, 0];
        build_id.extend(1..=20);
        let map = |identity: &[u8]| {
            let place = [&words(&[20, 21])[..], &long_words(&[0x1000, 0x2000, 0x3000])].concat();
            [&place[..], identity, &words(&[5, 2]), b"/usr/bin/worker\0"].concat()
        };
        let mapping = MappingRecord {
            thread: other,
            address: 0x1000,
            length: 0x2000,
            file_offset: 0x3000,
            build_id: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20],
            device: (0, 0),
            inode: 0,
            is_executable: true,
            is_kernel: false,
            path: b"/usr/bin/worker",
        };
        let tracepoint = SampleContent::Tracepoint;
        let switch = |is_preempted| RecordedEvent::SwitchOut { next: other, is_preempted };
        vec![
            (bytes_of(SWITCH_CPU_WIDE, SWITCH_OUT, &[&words(&[20, 21])]), tracepoint, switch(false)),
            (
                bytes_of(SWITCH_CPU_WIDE, SWITCH_OUT | SWITCH_OUT_PREEMPT, &[&words(&[20, 21])]),
                tracepoint,
                switch(true),
            ),
            (
                bytes_of(SWITCH_CPU_WIDE, 0, &[&words(&[20, 21])]),
                tracepoint,
                RecordedEvent::SwitchIn { previous: other },
            ),
            (bytes_of(FORK, 0, &[&task]), tracepoint, RecordedEvent::Fork { child: other, parent }),
            (bytes_of(EXIT, 0, &[&task]), tracepoint, RecordedEvent::Exit { thread: other, parent: 30 }),
            (
                bytes_of(COMM, COMM_EXEC, &[&words(&[20, 21]), b"worker\0"]),
                tracepoint,
                RecordedEvent::Name { thread: other, name, is_exec: true },
            ),
            (
                bytes_of(MMAP2, MMAP_BUILD_ID | 2, &[&map(&build_id)]),
                SampleContent::CallChain,
                RecordedEvent::Mapping(mapping),
            ),
            (
                bytes_of(MMAP2, CPU_MODE_KERNEL, &[&map(&[20; 24])]),
                SampleContent::CallChain,
                RecordedEvent::Mapping(MappingRecord {
                    build_id: &[],
                    device: (0x1414_1414, 0x1414_1414),
                    inode: 0x1414_1414_1414_1414,
                    is_kernel: true,
                    ..mapping
                }),
            ),
            (bytes_of(LOST, 0, &[&long_words(&[7, 42])]), tracepoint, RecordedEvent::Lost(42)),
            (bytes_of(LOST_SAMPLES, 0, &[&long_words(&[43])]), tracepoint, RecordedEvent::Lost(43)),
            (bytes_of(SAMPLE, 2, &[&words(&[4]), b"data"]), tracepoint, RecordedEvent::Tracepoint(b"data")),
            (
                bytes_of(SAMPLE, 2, &[&long_words(&[1]), b"address!"]),
                SampleContent::CallChain,
                RecordedEvent::CallChain(CallChain(b"address!")),
            ),
            (bytes_of(5, 0, &[&long_words(&[1, 2])]), tracepoint, RecordedEvent::Other),
        ]
    }

    // Proves that each kind of record is decoded with the kernel's layout, alone and among other
    // records.
    #[test]
    fn records_are_decoded() {
        let mut all = Vec::new();
        let mut expected = Vec::new();
        for (bytes, content, event) in examples() {
            let mut records = PerfRecords::new(&bytes, content);
            let record = PerfRecord { time: TIME, current: CURRENT, event };
            assert_eq!(records.next(), Some(record));
            assert_eq!((records.next(), records.position(), records.malformed()), (None, bytes.len(), 0));
            if content == SampleContent::Tracepoint {
                all.extend(bytes);
                expected.push(record);
            }
        }
        let records: Vec<PerfRecord<'_>> = PerfRecords::new(&all, SampleContent::Tracepoint).collect();
        assert_eq!(records, expected);
    }

    // Proves that a chain's addresses and contexts are read in order, and that a name of maximum
    // length is truncated by one byte.
    #[test]
    fn chains_and_names_are_read() {
        let chain = [CallChain::CONTEXT_KERNEL, 0xFFFF_8000_0000_0000, CallChain::CONTEXT_USER, 0x40_0000];
        let sample = bytes_of(SAMPLE, 2, &[&long_words(&[4]), &long_words(&chain)]);
        let record = PerfRecords::new(&sample, SampleContent::CallChain).next().unwrap();
        let RecordedEvent::CallChain(found) = record.event else { panic!("{record:?}") };
        assert!(found.addresses().eq(chain));
        assert!(chain.iter().filter(|address| **address >= CallChain::CONTEXT_MIN).count() == 2);
        let long = bytes_of(COMM, 0, &[&words(&[1, 1]), &[b'x'; 24]]);
        let record = PerfRecords::new(&long, SampleContent::Tracepoint).next().unwrap();
        let RecordedEvent::Name { name, .. } = record.event else { panic!("{record:?}") };
        assert_eq!(&name, b"xxxxxxxxxxxxxxx\0");
    }

    // Proves that a record that is too short for its kind, or claims more bytes than it has, is
    // skipped and counted. Later records are still read. The test truncates each example to every
    // possible record length.
    #[test]
    fn short_records_are_skipped() {
        let next = bytes_of(LOST_SAMPLES, 0, &[&long_words(&[1])]);
        let is_short = |bytes: &[u8], content| {
            let both = [bytes, &next].concat();
            let mut records = PerfRecords::new(&both, content);
            let found: Vec<PerfRecord<'_>> = records.by_ref().collect();
            assert_eq!(found.last().unwrap().event, RecordedEvent::Lost(1));
            assert_eq!((records.position(), found.len() as u64 + records.malformed()), (both.len(), 2));
            records.malformed() == 1
        };
        for (bytes, content, _) in examples() {
            for length in (HEADER_BYTES..bytes.len()).step_by(WORD_BYTES) {
                let mut cut = bytes[..length].to_vec();
                cut[6..8].copy_from_slice(&u16::try_from(length).unwrap().to_ne_bytes());
                assert!(is_short(&cut, content) || length >= HEADER_BYTES + ORIGIN_BYTES, "{cut:?}");
            }
        }
        let greedy = bytes_of(SAMPLE, 2, &[&words(&[5]), b"data"]);
        assert!(is_short(&greedy, SampleContent::Tracepoint));
        let greedy = bytes_of(SAMPLE, 2, &[&long_words(&[u64::MAX / 8 + 2]), b"address!"]);
        assert!(is_short(&greedy, SampleContent::CallChain));
    }

    // Proves that a record that is truncated at the end is left for the next batch, unless it can
    // never become complete.
    #[test]
    fn cut_records_stay() {
        let record = bytes_of(LOST_SAMPLES, 0, &[&long_words(&[1])]);
        let two = [&record[..], &record].concat();
        for cut in record.len()..two.len() {
            let mut records = PerfRecords::new(&two[..cut], SampleContent::Tracepoint);
            assert_eq!(records.by_ref().count(), 1, "{cut}");
            assert_eq!((records.position(), records.malformed()), (record.len(), 0), "{cut}");
        }
        for cut in 1..record.len() {
            let mut records = PerfRecords::new(&record[..cut], SampleContent::Tracepoint);
            assert_eq!((records.next(), records.position(), records.malformed()), (None, cut, 1));
        }
        for length in [0_u16, 7, 25] {
            let mut wrong = two.clone();
            wrong[6..8].copy_from_slice(&length.to_ne_bytes());
            let mut records = PerfRecords::new(&wrong, SampleContent::Tracepoint);
            assert_eq!((records.next(), records.position(), records.malformed()), (None, two.len(), 1));
        }
    }

    proptest! {
        // Proves that reading any bytes ends without a panic, and that the position never exceeds
        // the number of bytes.
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..400), chains: bool) {
            let content = if chains { SampleContent::CallChain } else { SampleContent::Tracepoint };
            let mut records = PerfRecords::new(&bytes, content);
            for record in records.by_ref() {
                if let RecordedEvent::CallChain(chain) = record.event {
                    prop_assert!(chain.addresses().count() * 8 <= bytes.len());
                }
            }
            prop_assert!(records.position() <= bytes.len());
            prop_assert!(bytes.is_empty() || records.position() > 0 || records.malformed() > 0);
        }

        // Proves that damage to one of many records never hides the records before it, and that the
        // number of records read is bounded by the input.
        #[test]
        fn damage_is_local(at in 0_usize..400, byte: u8, count in 1_usize..12) {
            let record = bytes_of(SWITCH_CPU_WIDE, SWITCH_OUT, &[&words(&[20, 21])]);
            let mut bytes = record.repeat(count);
            let at = at % bytes.len();
            bytes[at] = byte;
            let mut records = PerfRecords::new(&bytes, SampleContent::Tracepoint);
            let found: Vec<PerfRecord<'_>> = records.by_ref().collect();
            prop_assert!(found.len() >= at / record.len());
            prop_assert!(found.len() + usize::try_from(records.malformed()).unwrap() <= count * 4);
            prop_assert!(found.iter().take(at / record.len()).all(|found| found.time == TIME));
        }
    }
}
