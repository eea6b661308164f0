//! The entry point of the fuzz targets in fuzz/. Tests of this crate also use this module. No input
//! may cause a panic, or make a reader return a frame that was not checked.

#![allow(
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is the finding"
)]

use std::collections::BTreeMap;

use flatcap_stream::{ChecksumKind, DeframeStatus, KindDeframer, SliceDeframer};

use super::envelope;
use super::layout::{LaneBudget, LaneHeader, SLAB_BYTES_MIN};
use super::reader::{LaneBatch, LaneBuffer, LaneClocks, LaneReader};
use super::test_memory::{Mutation, TestMemory};
use super::writer::{LaneWriter, OnFullSlab, Refusal};

const WALL_OFFSET_NS: i64 = 1_700_000_000_000_000_000;
/// The sources' ids, by slot.
const SOURCES: [u16; 3] = [7, 9, 4095];
/// The time of the reader's clock, in nanoseconds.
const NOW_NS: u64 = 1 << 40;
/// Maximum number of batches. If the memory does not change, reading ends after fewer batches.
const BATCHES_MAX: usize = 4096;

/// A writer and a reader of one lane.
struct Ring {
    memory: TestMemory,
    writer: LaneWriter<TestMemory>,
    reader: LaneReader,
    on_full: OnFullSlab,
    now_ns: u64,
}

impl Ring {
    fn new(choice: u8) -> Self {
        let kinds = ChecksumKind::ALL;
        let header = LaneHeader {
            slabs: 2 + usize::from(choice >> 4 & 3),
            slab_bytes: SLAB_BYTES_MIN,
            checksum: kinds[usize::from(choice) % kinds.len()],
            frame_max: 2048,
            run_id: 1,
            directory: (2, 3),
            boot: (4, 5),
            lane: 6,
            uid: 1000,
            budget: LaneBudget::default(),
        };
        let memory = TestMemory::new(&header, WALL_OFFSET_NS);
        let (mut reader, mut writer) = (LaneReader::new(header), LaneWriter::new(memory.clone(), header));
        for (slot, source) in (0..).zip(SOURCES) {
            reader.bind(&memory, slot, source, u64::from(slot) * 100).unwrap();
            writer.bind(slot, source, u64::from(slot) * 100);
        }
        let on_full = if choice & 0x80 == 0 { OnFullSlab::Keep } else { OnFullSlab::Overwrite };
        Self { memory, writer, reader, on_full, now_ns: 1 }
    }

    /// Pushes one sample of a slot. The payload contains its own length.
    fn push(&mut self, slot: u8, payload_bytes: usize) {
        self.now_ns += 10;
        loop {
            match self.writer.ready(slot, payload_bytes) {
                Ok(()) => {
                    let fill = |payload: &mut [u8]| payload.fill(payload_bytes.to_le_bytes()[0]);
                    return self.writer.push(slot, payload_bytes, self.now_ns, fill);
                }
                Err(Refusal::SlabFull) if self.writer.open_next(self.on_full) => {}
                Err(_) => return self.writer.lose(slot),
            }
        }
    }
}

/// Reads a lane until no frame is left or the lane is refused. Checks all returned frames again.
fn read(reader: &mut LaneReader, memory: &TestMemory, taken: &mut Taken) {
    let clocks = LaneClocks { now_ns: &|| NOW_NS, wall_offsets_ns: &[WALL_OFFSET_NS] };
    let mut buffer = LaneBuffer::default();
    for _ in 0..BATCHES_MAX {
        match reader.look(memory, &mut buffer, &clocks) {
            Ok(Some(batch)) => taken.check(&batch, reader.header().checksum),
            Ok(None) | Err(_) => return,
        }
        reader.take(memory, &buffer).unwrap();
    }
    panic!("a reading without end");
}

/// The samples that were taken from a lane.
#[derive(Debug, Default)]
struct Taken {
    last_seq: BTreeMap<u16, u64>,
    last_mono_ns: u64,
    frames: u64,
    missing: u64,
}

impl Taken {
    fn check(&mut self, batch: &LaneBatch<'_>, kind: ChecksumKind) {
        let mut at = 0;
        for found in batch.frames {
            assert_eq!(found.offset, at, "frames follow each other");
            let deframer = KindDeframer::new(kind);
            let DeframeStatus::Frame(frame) = deframer.deframe(&batch.bytes[at..]).unwrap() else {
                panic!("a cut frame")
            };
            assert_eq!((frame.bytes().len(), found.header_bytes), (found.bytes, kind.frame_bytes(0)));
            let parts = envelope::split(frame.payload()).unwrap();
            assert_eq!(envelope::SampleHeader::parse(parts.header), found.sample);
            assert!(found.sample.mono_ns >= self.last_mono_ns && found.sample.mono_ns <= NOW_NS + 1_000_000);
            assert_eq!(found.sample.wall_ns, WALL_OFFSET_NS.wrapping_add_unsigned(found.sample.mono_ns));
            let last = self.last_seq.insert(found.sample.source, found.sample.seq);
            assert!(
                last.is_none_or(|last| last + 1 + found.missing == found.sample.seq),
                "{last:?} {found:?}"
            );
            self.last_mono_ns = found.sample.mono_ns;
            self.frames += 1;
            self.missing += found.missing;
            at += found.bytes;
        }
        assert_eq!(at, batch.bytes.len());
    }
}

/// Writes and reads a ring according to the first half of the input. Changes bytes of the ring
/// according to the second half, also during reads. Then reads the ring to its end, first with the
/// same reader, and then with a new reader that knows only the memory.
pub fn ring(data: &[u8]) {
    let (choice, data) = data.split_first().map_or((0, data), |(choice, data)| (*choice, data));
    let (steps, changes) = data.split_at(data.len() / 2);
    changed_ring(choice, steps, changes);
}

/// Like [`ring`], but the steps and the changes of bytes are separate arguments. Without changes,
/// each sample that was begun must be taken or missing.
pub(crate) fn changed_ring(choice: u8, steps: &[u8], changes: &[u8]) {
    let mut ring = Ring::new(choice);
    let mut taken = Taken::default();
    for &step in steps {
        match step {
            0..=9 => read(&mut ring.reader, &ring.memory, &mut taken),
            10..=19 => ring.writer.lose(step % 3),
            _ => ring.push(step % 3, usize::from(step) * 8),
        }
    }
    let mutations: Vec<Mutation> =
        changes.as_chunks::<4>().0.iter().map(|change| mutation(&ring.memory, *change)).collect();
    ring.memory.mutate(mutations.iter().copied());
    read(&mut ring.reader, &ring.memory, &mut taken);
    if mutations.is_empty() {
        let begun: u64 = (0..3).map(|slot| ring.writer.counts(slot)).map(|(begun, _)| begun).sum::<u64>();
        let accounts = ring.reader.accounts(&ring.memory).unwrap();
        let last: u64 = accounts.iter().map(|account| account.begun - account.next_seq.unwrap()).sum();
        assert_eq!(taken.frames + taken.missing + last, begun - 300, "begun = recorded + lost");
    }
    if let Ok(mut reader) = LaneReader::resume(&ring.memory, ring.memory.length() as u64) {
        read(&mut reader, &ring.memory, &mut Taken::default());
    }
}

/// Returns a change of a byte. Most changes are at important offsets.
fn mutation(memory: &TestMemory, [after, high, low, value]: [u8; 4]) -> Mutation {
    let at = usize::from(high) << 8 | usize::from(low);
    let at = match after >> 5 {
        0 => at % 168,           // header, pairs, flags
        1 => 256 + at % 128,     // ids
        2 => 512 + at % 48,      // slots
        3 | 4 => 2048 + at % 40, // states
        _ => 4096 + at % (memory.length() - 4096),
    };
    Mutation { after: usize::from(after & 7), at, value }
}
