//! Models of both sides of a lane's protocol. The models are checked in every execution order that
//! the memory model allows.
//!
//! In the model, a system call of the reader consists of several relaxed loads or stores in the
//! reader's thread, in any order. The fences of the reader are the same as in the real code. A
//! frame consists of two values, so that a partly overwritten frame is detected.

use std::io;
use std::sync::{Arc, Mutex};

use flatcap_stream::ChecksumKind;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::layout::{CONTROL_BYTES, LaneBudget, LaneHeader};
use super::reader::{LaneBuffer, LaneClocks, LaneReader, ReaderMemory};
use super::writer::{LaneWriter, OnFullSlab, WriterMemory};

const PAYLOAD_BYTES: usize = 8;
const FRAME_BYTES: usize = 4 + 8 + 64 + PAYLOAD_BYTES;
const HALF_BYTES: usize = FRAME_BYTES / 2;
const SLABS: usize = 2;
const SOURCE: u16 = 7;

/// The offsets, within the first page, of the numbers that the reader and the writer use. These
/// numbers are `returned`, the wall offset, the flags, `begun` and `lost` of the slot, and the
/// states.
const NUMBERS: [usize; 9] = [128, 136, 144, 152, 160, 512, 520, 2048, 2056];
/// The offsets of the numbers that the reader reads.
const READ: [usize; 4] = [512, 520, 2048, 2056];

#[derive(Debug, Clone)]
struct ModelMemory(Arc<Content>);

#[derive(Debug)]
struct Content {
    page: Vec<u8>,
    numbers: Vec<AtomicU64>,
    /// Half frames. Each value is the index of this half frame's content in `bytes`.
    halves: Vec<AtomicU64>,
    // This mutex of std orders nothing in the model, because loom does not see it.
    bytes: Mutex<Vec<[u8; HALF_BYTES]>>,
    /// The writer's own copy of its bytes.
    own: Mutex<Vec<u8>>,
}

impl ModelMemory {
    fn new(header: &LaneHeader) -> Self {
        let mut page = header.first_page(0);
        page[256..258].copy_from_slice(&SOURCE.to_le_bytes());
        let number = |at: &usize| AtomicU64::new(u64::from_le_bytes(*page[*at..].first_chunk().unwrap()));
        let halves = SLABS * header.slab_bytes / HALF_BYTES;
        Self(Arc::new(Content {
            numbers: NUMBERS.iter().map(number).collect(),
            halves: (0..halves).map(|_| AtomicU64::new(0)).collect(),
            bytes: Mutex::new(vec![[0; HALF_BYTES]]),
            own: Mutex::new(vec![0; SLABS * header.slab_bytes]),
            page,
        }))
    }
}

impl WriterMemory for ModelMemory {
    fn number(&self, at: usize) -> &AtomicU64 {
        &self.0.numbers[NUMBERS.iter().position(|number| *number == at).unwrap()]
    }

    fn write<R>(&mut self, at: usize, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut own = self.0.own.lock().unwrap();
        let at = at - CONTROL_BYTES;
        let result = fill(&mut own[at..at + length]);
        // If only the payload is written, the payload is a part of the frame that is written next.
        if length == FRAME_BYTES {
            for (half, bytes) in (at / HALF_BYTES..).zip(own[at..at + length].as_chunks().0) {
                let mut known = self.0.bytes.lock().unwrap();
                known.push(*bytes);
                let place = known.len() as u64 - 1;
                drop(known);
                self.0.halves[half].store(place, Ordering::Relaxed);
            }
        }
        result
    }
}

impl ReaderMemory for ModelMemory {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        if offset < CONTROL_BYTES {
            let end = offset + bytes.len();
            bytes.copy_from_slice(&self.0.page[offset..end]);
            for at in READ.into_iter().filter(|at| (offset..end).contains(at)) {
                let number = self.number(at).load(Ordering::Relaxed);
                bytes[at - offset..][..8].copy_from_slice(&number.to_le_bytes());
            }
            return Ok(());
        }
        let first = (offset - CONTROL_BYTES) / HALF_BYTES;
        for (place, half) in bytes.as_chunks_mut::<HALF_BYTES>().0.iter_mut().zip(&self.0.halves[first..]) {
            let half = usize::try_from(half.load(Ordering::Relaxed)).unwrap();
            *place = self.0.bytes.lock().unwrap()[half];
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        for (at, number) in (usize::try_from(offset).unwrap()..).step_by(8).zip(bytes.as_chunks().0) {
            self.number(at).store(u64::from_le_bytes(*number), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Checks every execution order with at most this many preemptions. There is no time limit, because
/// a run that reaches a time limit would look like a successful check.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Writes `samples` samples. Samples that do not fit in the ring are counted as lost. At the same
/// time, the reader looks for frames `looks` times, and then reads to the end. Returns how many
/// samples were taken, and how many are missing.
fn transfer(frames_per_slab: usize, samples: u64, looks: usize, on_full: OnFullSlab) -> (u64, u64) {
    let header = LaneHeader {
        slabs: SLABS,
        slab_bytes: frames_per_slab * FRAME_BYTES,
        checksum: ChecksumKind::Xxh3,
        frame_max: 1000,
        run_id: 0,
        directory: (0, 0),
        boot: (0, 0),
        lane: 0,
        uid: 0,
        budget: LaneBudget::default(),
    };
    let memory = ModelMemory::new(&header);
    let mut writer = LaneWriter::new(memory.clone(), header);
    let mut reader = LaneReader::resume_at_start(header, SOURCE);
    writer.bind(0, SOURCE, 0);
    let writing = thread::spawn(move || {
        for number in 0..samples {
            if writer.ready(0, PAYLOAD_BYTES).is_ok() || writer.open_next(on_full) {
                writer
                    .push(0, PAYLOAD_BYTES, number, |payload| payload.copy_from_slice(&number.to_le_bytes()));
            } else {
                writer.lose(0);
            }
        }
    });
    let reading = {
        let memory = memory.clone();
        thread::spawn(move || {
            let (mut taken, mut missing) = (0, 0);
            for _ in 0..looks {
                take(&mut reader, &memory, &mut taken, &mut missing);
            }
            (reader, taken, missing)
        })
    };
    writing.join().unwrap();
    let (mut reader, mut taken, mut missing) = reading.join().unwrap();
    while take(&mut reader, &memory, &mut taken, &mut missing) {}
    let account = reader.accounts(&memory).unwrap()[0];
    assert_eq!(account.begun, samples);
    (taken, missing + account.begun - account.next_seq.unwrap())
}

/// Looks for frames once. Every frame must be whole and must be the next frame.
fn take(reader: &mut LaneReader, memory: &ModelMemory, taken: &mut u64, missing: &mut u64) -> bool {
    let clocks = LaneClocks { now_ns: &|| 1000, wall_offsets_ns: &[0] };
    let mut buffer = LaneBuffer::default();
    let Some(batch) = reader.look(memory, &mut buffer, &clocks).expect("no frame is refused") else {
        return false;
    };
    for frame in batch.frames {
        *missing += frame.missing;
        assert_eq!(frame.sample.seq, *taken + *missing);
        assert_eq!(
            batch.bytes[frame.offset + FRAME_BYTES - PAYLOAD_BYTES..][..8],
            frame.sample.seq.to_le_bytes()
        );
        *taken += 1;
    }
    reader.take(memory, &buffer).unwrap();
    true
}

// Proves that a reader never sees half a frame or a number that was not begun. Proves that every
// sample is taken or missing while slabs are given back and reused.
#[test]
fn model_slabs_given_back_are_used_again() {
    check(3, || {
        let (taken, missing) = transfer(1, 3, 1, OnFullSlab::Keep);
        assert_eq!(taken + missing, 3);
        assert!(taken >= 2, "what fits is kept");
    });
}

// Proves that a reader of an open slab never sees half a frame, and that every sample is taken or
// missing while the slab grows.
#[test]
fn model_an_open_slab_is_read_as_it_grows() {
    check(3, || {
        let (taken, missing) = transfer(2, 3, 1, OnFullSlab::Keep);
        assert_eq!((taken, missing), (3, 0), "all fit");
    });
}

// Proves that if a slab is overwritten while it is read, the whole slab is dropped and its samples
// are counted as missing.
#[test]
fn model_overwritten_slabs_are_given_up() {
    // The limit is two preemptions, because three take more than a quarter of an hour.
    check(2, || {
        let (taken, missing) = transfer(1, 3, 1, OnFullSlab::Overwrite);
        assert_eq!(taken + missing, 3);
        assert!(taken >= 1, "the newest is kept");
    });
}
