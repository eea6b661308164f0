//! Merges the records in the rings of all CPUs up to a given time. The result is one sequence in
//! time order.
//!
//! Each ring is in time order, so the rings are merged, not sorted. An interrupt or the hypervisor
//! may delay the writing of a record. The record is then older than the record before it, or than
//! the start of the batch. The time of such a record is replaced by the time of its predecessor. So
//! times never decrease, and the order of events on a CPU is kept.

use std::ops::Range;

use super::perf_record::{PerfRecord, PerfRecords, RECORD_BYTES_MAX, SampleContent};
use super::perf_ring::PerfRing;

/// Minimum age of a record, in nanoseconds. Younger records stay in their ring for the next batch.
/// A CPU reads the time before it writes the record. A recent record may therefore still be
/// missing. For switch records, interrupts are off between reading the time and writing the record.
/// For fork, exit and mapping records, interrupts are on. If such a record is delayed for longer
/// than this minimum age, its time is replaced by the start of the next batch.
pub const SETTLE_NS: u64 = 100_000;

/// Limits of a batch. Records beyond the limits stay in the rings for the next batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Maximum number of bytes copied, in addition to one record per ring.
    pub bytes: usize,
    /// Maximum number of records. All records with the time of the last record belong to the batch,
    /// so it may have a few more.
    pub records: usize,
}

impl BatchLimits {
    /// Returns the memory needed for copies of `rings` rings, each of at least `ring_bytes` bytes.
    pub fn copied_bytes_max(self, rings: usize, ring_bytes: usize) -> usize {
        let copied = self.bytes.saturating_add(rings.saturating_mul(RECORD_BYTES_MAX));
        copied.min(rings.saturating_mul(PerfRing::data_bytes(ring_bytes)))
    }
}

/// A batch of records that were copied from some rings.
#[derive(Debug)]
pub struct PerfBatch {
    content: SampleContent,
    limits: BatchLimits,
    bytes: Vec<u8>,       // of all rings, one after the other
    parts: Vec<RingPart>, // one per ring
    heads: OldestHeads,   // of each ring that has more for the batch
    last_ns: u64,         // of the last record, or the begin of the batch
    end_ns: u64,          // > the begin
}

/// The copy of a part of one ring.
#[derive(Debug)]
struct RingPart {
    bytes: Range<usize>,
    waiting: usize, // in the ring when it was copied
    is_full: bool,  // what came later was dropped
    used: usize,    // bytes of which the records were taken
    malformed: u64, // records among them
}

/// The time of a ring's next record, and the ring. Entries are ordered by time, then by ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    time_ns: u64,
    ring: usize,
}

/// The heads of the rings as a binary heap, the oldest first. The heap of the standard library
/// gives no access to the second element. That element is needed because successive records often
/// come from the same ring.
#[derive(Debug)]
struct OldestHeads(Vec<Head>);

impl OldestHeads {
    fn first(&self) -> Option<Head> {
        self.0.first().copied()
    }

    fn second(&self) -> Option<Head> {
        let (left, right) = (self.0.get(1)?, self.0.get(2));
        Some(*right.filter(|right| *right < left).unwrap_or(left))
    }

    /// Replaces the first head, or removes it.
    fn replace_first(&mut self, head: Option<Head>) {
        let Some(own) = head.or_else(|| self.0.pop()) else { return };
        // Older children move up until `own` is older than its children.
        let (mut at, mut child) = (0, 1);
        while let Some(left) = self.0.get(child).copied() {
            let mut oldest = left;
            if let Some(right) = self.0.get(child + 1).filter(|right| **right < left) {
                (child, oldest) = (child + 1, *right);
            }
            if own <= oldest {
                break;
            }
            self.set(at, oldest);
            (at, child) = (child, 2 * child + 1);
        }
        self.set(at, own);
    }

    fn set(&mut self, at: usize, head: Head) {
        if let Some(place) = self.0.get_mut(at) {
            *place = head;
        }
    }
}

impl PerfBatch {
    /// Creates an empty batch for rings whose samples have this content. Reserves memory for copies
    /// of this number of rings, each of at least `ring_bytes`.
    pub fn new(content: SampleContent, limits: BatchLimits, rings: usize, ring_bytes: usize) -> Self {
        Self {
            content,
            limits,
            bytes: Vec::with_capacity(limits.copied_bytes_max(rings, ring_bytes)),
            parts: Vec::with_capacity(rings),
            heads: OldestHeads(Vec::with_capacity(rings)),
            last_ns: 0,
            end_ns: 0,
        }
    }

    /// Replaces the batch by copies of the rings' records. If the records exceed the limit, copies
    /// the same proportion of each ring.
    pub fn copy<'r>(&mut self, rings: impl Iterator<Item = &'r PerfRing> + Clone) {
        self.bytes.clear();
        self.parts.clear();
        self.parts.extend(rings.clone().map(|ring| {
            let waiting = ring.waiting();
            RingPart { bytes: 0..0, waiting, is_full: ring.is_full_with(waiting), used: 0, malformed: 0 }
        }));
        let total: usize = self.parts.iter().map(|part| part.waiting).sum();
        for (ring, part) in rings.zip(&mut self.parts) {
            let begin = self.bytes.len();
            ring.copy(&mut self.bytes, share(part.waiting, total, self.limits.bytes));
            part.bytes = begin..self.bytes.len();
        }
    }

    /// Starts the batch at `begin_ns`, the end of the previous batch. The batch ends at `until_ns`,
    /// or earlier if the limits require it, but always after `begin_ns`. The rings must have been
    /// copied at least [`SETTLE_NS`] after `until_ns`.
    pub fn begin(&mut self, begin_ns: u64, until_ns: u64) {
        let Self { content, bytes, parts, heads, .. } = self;
        heads.0.clear();
        let mut end_ns = until_ns;
        for (ring, part) in parts.iter_mut().enumerate() {
            (part.used, part.malformed) = (0, 0);
            let mut records = part.records(bytes, *content);
            let Some(first) = records.next() else {
                part.advance(&records, 0);
                continue;
            };
            heads.0.push(Head { time_ns: first.time.max(begin_ns), ring });
            if part.bytes.len() < part.waiting || part.is_full {
                // Records that were not copied, or that did not fit into the ring, are later than
                // the ring's last copied record. The batch therefore ends at that record, and the
                // next batch counts the lost records.
                end_ns = end_ns.min(records.last().map_or(first.time, |last| last.time));
            }
        }
        // A sorted array is a valid heap.
        heads.0.sort_unstable();
        // Always make progress, even if a ring has more records with the same time than were
        // copied.
        self.end_ns = end_ns.max(begin_ns.saturating_add(1));
        self.last_ns = begin_ns;
    }

    /// Passes the records of the batch to `take`, each with the index of its ring.
    ///
    /// A ring is read up to its first record after the end of the batch, even if an older record
    /// follows. So no record is in two batches.
    pub fn take(&mut self, mut take: impl FnMut(usize, &PerfRecord<'_>)) {
        let Self { content, limits, bytes, parts, heads, last_ns, end_ns } = self;
        let mut taken = 0;
        while let Some(Head { time_ns, ring }) = heads.first() {
            let Some(part) = parts.get_mut(ring).filter(|_| time_ns < *end_ns) else { return };
            // Successive records often come from the same CPU, so the records of this CPU are
            // passed on until another ring has an older record.
            let other = heads.second();
            let (mut records, malformed) = (part.records(bytes, *content), part.malformed);
            let mut floor_ns = time_ns;
            let is_beyond = |head: Head| other.is_some_and(|other| other < head);
            let next = loop {
                // A run of records of one CPU usually ends at a switch. The switch is decoded only
                // when it is the oldest record.
                if let Some(time_ns) = records.next_switch_time() {
                    let head = Head { time_ns: time_ns.max(floor_ns), ring };
                    if is_beyond(head) {
                        break Some(head);
                    }
                }
                let Some(record) = records.next() else {
                    part.advance(&records, malformed);
                    break None;
                };
                let time_ns = record.time.max(floor_ns);
                let head = Head { time_ns, ring };
                if taken >= limits.records && time_ns > *last_ns {
                    *end_ns = time_ns.min(*end_ns);
                }
                if time_ns >= *end_ns || is_beyond(head) {
                    break Some(head);
                }
                take(ring, &PerfRecord { time: time_ns, ..record });
                part.advance(&records, malformed);
                floor_ns = time_ns;
                *last_ns = time_ns;
                taken += 1;
            };
            heads.replace_first(next);
        }
    }

    /// Returns the end of the batch. The value is valid after the last record of the batch was
    /// taken. All records of the batch are before the end, and all later records are at or after
    /// it.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Releases the space of the taken records in the rings that were copied. Returns the number of
    /// malformed records, which are in no batch.
    pub fn release<'r>(&mut self, rings: impl Iterator<Item = &'r mut PerfRing>) -> u64 {
        let mut malformed = 0;
        for (ring, part) in rings.zip(self.parts.drain(..)) {
            ring.release(part.used);
            malformed += part.malformed;
        }
        self.heads.0.clear();
        malformed
    }
}

#[cfg(any(test, feature = "testing"))]
impl PerfBatch {
    /// Creates a batch from the bytes of rings, for tests of code that reads records.
    pub fn of_bytes(content: SampleContent, rings: &[Vec<u8>]) -> Self {
        Self::of_cut_bytes(content, rings, usize::MAX, usize::MAX)
    }

    /// Creates a batch from the bytes of rings, as if it had copied at most `bytes_max` bytes of
    /// each ring.
    fn of_cut_bytes(content: SampleContent, rings: &[Vec<u8>], bytes_max: usize, records: usize) -> Self {
        let mut batch = Self::new(content, BatchLimits { bytes: 0, records }, 0, 0);
        for ring in rings {
            let begin = batch.bytes.len();
            batch.bytes.extend(ring.iter().take(bytes_max));
            let bytes = begin..batch.bytes.len();
            batch.parts.push(RingPart { bytes, waiting: ring.len(), is_full: false, used: 0, malformed: 0 });
        }
        batch
    }

    /// Returns the number of bytes taken from each ring, and the number of malformed records.
    pub fn used(&self) -> (Vec<usize>, u64) {
        let used = self.parts.iter().map(|part| part.used).collect();
        (used, self.parts.iter().map(|part| part.malformed).sum())
    }
}

impl RingPart {
    /// Returns the records of the ring that were not taken.
    fn records<'b>(&self, bytes: &'b [u8], content: SampleContent) -> PerfRecords<'b> {
        PerfRecords::at(bytes.get(self.bytes.clone()).unwrap_or_default(), content, self.used)
    }

    /// Stores the progress of a reader. `malformed` is the number of malformed records before the
    /// first record of the reader.
    fn advance(&mut self, records: &PerfRecords<'_>, malformed: u64) {
        (self.used, self.malformed) = (records.position(), malformed + records.malformed());
    }
}

/// Returns how many bytes of a ring to copy, given the number of bytes waiting in this ring and in
/// all rings.
fn share(waiting: usize, total: usize, bytes_max: usize) -> usize {
    if total <= bytes_max {
        return waiting;
    }
    let part = waiting as u128 * bytes_max as u128 / total as u128;
    // Copies at least one whole record.
    usize::try_from(part).unwrap_or(0).saturating_add(RECORD_BYTES_MAX).min(waiting)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::perf_record::{RecordedEvent, ThreadId};

    /// Returns the bytes of a record that reports `count` lost records.
    fn record(time: u64, count: u64) -> Vec<u8> {
        let current = ThreadId { process: 0, thread: 0 };
        PerfRecord { time, current, event: RecordedEvent::Lost(count) }.encode()
    }

    fn batch(rings: &[Vec<u8>], bytes_max: usize, records: usize) -> PerfBatch {
        PerfBatch::of_cut_bytes(SampleContent::CallChain, rings, bytes_max, records)
    }

    /// Takes all records of a batch. Returns their times and counts, in the order of the batch.
    fn taken(batch: &mut PerfBatch, begin_ns: u64, until_ns: u64) -> Vec<(u64, u64)> {
        batch.begin(begin_ns, until_ns);
        let mut found = Vec::new();
        batch.take(|_, record| match record.event {
            RecordedEvent::Lost(count) => found.push((record.time, count)),
            other => panic!("{other:?}"),
        });
        found
    }

    proptest! {
        // Proves that each record is in exactly one batch, and that batches follow each other in
        // time. Each batch is in time order and in the order of each ring, whatever the copied
        // amount. The rings are nearly ordered and are read in steps; the last step covers all
        // times.
        #[test]
        fn each_record_is_in_one_batch(
            rings in prop::collection::vec(prop::collection::vec((0_u64..1000, 0_u64..4), 0..40), 1..4),
            copied_max in 1_usize..10,
            records_max in 1_usize..50,
            step in 1_u64..300,
        ) {
            let record_bytes = record(0, 0).len();
            let mut number = 0;
            let mut rings: Vec<Vec<u8>> = rings
                .into_iter()
                .map(|mut times| {
                    times.sort_unstable();
                    let bytes = times.into_iter().flat_map(|(time_ns, late_ns)| {
                        number += 1;
                        record(time_ns.saturating_sub(late_ns), number)
                    });
                    bytes.collect()
                })
                .collect();
            let mut read = Vec::new();
            let (mut begin_ns, mut until_ns) = (0, 0);
            for _ in 0..2000 {
                until_ns = (until_ns + step).min(1000);
                let mut batch = batch(&rings, copied_max * record_bytes + 8, records_max);
                let found = taken(&mut batch, begin_ns, until_ns);
                let end_ns = batch.end_ns();
                prop_assert!(end_ns > begin_ns && (end_ns <= until_ns || end_ns == begin_ns + 1));
                prop_assert!(found.is_sorted_by_key(|(time_ns, _)| *time_ns));
                prop_assert!(found.iter().all(|(time_ns, _)| (begin_ns..end_ns).contains(time_ns)));
                if let Some((last_ns, _)) = found.get(records_max..).and_then(<[_]>::last) {
                    prop_assert_eq!(found[records_max - 1].0, *last_ns, "more than the limit");
                }
                read.extend(found.iter().map(|(_, number)| *number));
                let (used, malformed) = batch.used();
                prop_assert_eq!(malformed, 0);
                for (ring, used) in rings.iter_mut().zip(used) {
                    drop(ring.drain(..used));
                }
                begin_ns = end_ns;
                if until_ns == 1000 && rings.iter().all(Vec::is_empty) {
                    break;
                }
            }
            // Numbers increase within a ring, but not across rings.
            read.sort_unstable();
            prop_assert_eq!(read, (1..=number).collect::<Vec<u64>>());
        }
    }

    // Proves that too many records are split into two batches, and that the split is at the same
    // time for all rings.
    #[test]
    fn records_are_limited() {
        let ring = |offset: u64| -> Vec<u8> {
            (0..100).flat_map(|number| record(number * 2 + offset, number)).collect()
        };
        let mut batch = batch(&[ring(0), ring(1)], usize::MAX, 100);
        assert_eq!((taken(&mut batch, 0, u64::MAX).len(), batch.end_ns()), (100, 100));
        assert_eq!(batch.used(), (vec![ring(0).len() / 2; 2], 0));
    }

    // Proves that records at the same time are in the order of their rings. The records of a ring
    // keep their order, even if a record is older than its predecessor or than the batch.
    #[test]
    fn late_records_keep_their_place() {
        let rings = [[record(7, 1), record(9, 2), record(8, 3)].concat(), record(9, 4), record(2, 5)];
        let mut batch = batch(&rings, usize::MAX, usize::MAX);
        assert_eq!(taken(&mut batch, 5, 20), [(5, 5), (7, 1), (9, 2), (9, 3), (9, 4)]);
    }

    // Proves that a partly copied ring ends the batch of all rings at its last record.
    #[test]
    fn a_cut_ring_ends_the_batch() {
        let whole = [record(1, 1), record(4, 2)].concat();
        let cut = [record(2, 3), record(3, 4), record(5, 5)].concat();
        let copied = cut.len() - 8;
        let mut batch = batch(&[whole, cut], copied, usize::MAX);
        assert_eq!((taken(&mut batch, 0, 10), batch.end_ns()), (vec![(1, 1), (2, 3)], 3));
    }

    // Proves that a record that follows a too young record is in the next batch, exactly once.
    // Malformed records are counted exactly once.
    #[test]
    fn malformed_records_are_counted_once() {
        let mut malformed = record(1, 1);
        malformed.truncate(16);
        malformed[6..8].copy_from_slice(&16_u16.to_ne_bytes());
        let ring = [record(1, 1), malformed.clone(), record(10, 2), malformed.clone(), record(5, 3)].concat();
        let mut first = batch(std::slice::from_ref(&ring), usize::MAX, usize::MAX);
        assert_eq!((taken(&mut first, 0, 7), first.end_ns()), (vec![(1, 1)], 7));
        assert_eq!(first.used(), (vec![record(1, 1).len()], 0));
        let rest = ring[record(1, 1).len()..].to_vec();
        let mut next = batch(&[rest, malformed.repeat(2)], usize::MAX, usize::MAX);
        assert_eq!((taken(&mut next, 7, 20), next.end_ns()), (vec![(10, 2), (10, 3)], 20));
        assert_eq!(next.used().1, 4);
        assert_eq!(next.release(std::iter::empty()), 0, "of no ring");
    }

    // Proves that the same proportion of each ring is copied, and that the reserved memory
    // suffices.
    #[test]
    fn copies_are_limited() {
        let waiting = [1 << 22, 1 << 21, RECORD_BYTES_MAX, 0];
        let (total, limits) = (waiting.iter().sum(), BatchLimits { bytes: 1 << 21, records: 0 });
        let copied = waiting.map(|waiting| share(waiting, total, limits.bytes));
        assert!(copied[0] > 1 << 20 && copied[1] > 1 << 19 && copied[1] < 1 << 20, "{copied:?}");
        assert_eq!(copied[2..], [RECORD_BYTES_MAX, 0]);
        assert!(copied.iter().sum::<usize>() <= limits.copied_bytes_max(4, 1 << 23));
        assert_eq!(share(5, 5, 5), 5);
        assert_eq!(limits.copied_bytes_max(2, 3 << 16), 2 << 18, "no more than the rings have");
    }
}
