//! Tests of writer and reader together. Every sample arrives, is accounted for, or is refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use flatcap_stream::ChecksumKind;
use proptest::prelude::*;

use super::layout::LaneHeader;
use super::reader::{LaneBuffer, LaneClocks, LaneDefect, LaneReadError, LaneReader, ReaderMemory};
use super::test_memory::TestMemory;
use super::writer::{LaneWriter, OnFullSlab, Refusal};
use super::{LaneBudget, LaneFlags, LaneLayoutError, fuzzing};

fn header(slabs: usize) -> LaneHeader {
    LaneHeader {
        slabs,
        slab_bytes: 4096,
        checksum: ChecksumKind::Xxh3,
        frame_max: 65_536,
        run_id: 1,
        directory: (2, 3),
        boot: (4, 5),
        lane: 6,
        uid: 1000,
        budget: LaneBudget { cpu_ns_per_second: 7, user_frames_per_second: 8, user_bytes_per_second: 9 },
    }
}

fn lane(slabs: usize) -> (TestMemory, LaneWriter<TestMemory>, LaneReader) {
    let header = header(slabs);
    let memory = TestMemory::new(&header, 5);
    let (mut reader, mut writer) = (LaneReader::new(header), LaneWriter::new(memory.clone(), header));
    reader.bind(&memory, 3, 77, 10).unwrap();
    writer.bind(3, 77, 10);
    (memory, writer, reader)
}

fn clocks() -> LaneClocks<'static> {
    LaneClocks { now_ns: &|| 1000, wall_offsets_ns: &[5] }
}

/// Returns pseudorandom bytes (splitmix64), so that each ring can be reproduced.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let word = |index: u64| {
        let mut z = (seed << 20 | index).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    (0..length as u64).map(|index| word(index).to_le_bytes()[0]).collect()
}

/// Number of rings of a test. Under an interpreter (Miri), this number is smaller.
const RINGS: u64 = if cfg!(miri) { 10 } else { 10_000 };

// Proves that changes of a ring's bytes never make a reader panic, loop or return a frame that was
// not checked. The bytes change before or while the ring is read.
#[test]
fn mutated_rings_are_refused() {
    for seed in 0..RINGS {
        fuzzing::ring(&noise(seed, 1 + usize::try_from(seed % 90).unwrap()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    // Proves that if no bytes are changed, every sample that was begun is taken or missing. This
    // holds for any order of pushes, losses and looks, and for full rings that are kept or
    // overwritten.
    #[test]
    fn begun_is_recorded_plus_lost(choice: u8, steps in proptest::collection::vec(any::<u8>(), 0..120)) {
        fuzzing::changed_ring(choice, &steps, &[]);
    }
}

// Proves that a sample arrives with its number, its times and its payload, and that losses before
// it are reported.
#[test]
fn a_sample_arrives() {
    let (memory, mut writer, mut reader) = lane(2);
    let mut buffer = LaneBuffer::default();
    assert!(reader.look(&memory, &mut buffer, &clocks()).unwrap().is_none());
    writer.lose(3);
    writer.ready(3, 5).unwrap();
    writer.push(3, 5, 900, |payload| payload.copy_from_slice(b"hello"));
    for _ in 0..2 {
        let batch = reader.look(&memory, &mut buffer, &clocks()).unwrap().expect("until it is taken");
        let [frame] = batch.frames else { panic!("{batch:?}") };
        assert!(batch.bytes.ends_with(b"hello"));
        assert_eq!((frame.slot, frame.sample.source, frame.sample.seq, frame.missing), (3, 77, 11, 1));
        assert_eq!((frame.sample.mono_ns, frame.sample.wall_ns), (900, 905));
    }
    reader.take(&memory, &buffer).unwrap();
    assert!(reader.look(&memory, &mut buffer, &clocks()).unwrap().is_none());
    let accounts = reader.accounts(&memory).unwrap();
    let [account] = accounts[..] else { panic!("{accounts:?}") };
    assert_eq!((account.source, account.next_seq, account.begun), (77, Some(12), 12));
}

// Proves that a full ring is reported, that a slab is reused after it was given back, and that the
// writer requests the wake-up of the recorder only once.
#[test]
fn a_full_ring_waits_for_its_reader() {
    let (memory, mut writer, mut reader) = lane(4);
    let fill = |writer: &mut LaneWriter<TestMemory>| {
        let mut wakes = 0;
        loop {
            match writer.ready(3, 2000) {
                Ok(()) => writer.push(3, 2000, 1, |payload| payload.fill(1)),
                Err(Refusal::SlabFull) if writer.open_next(OnFullSlab::Keep) => {
                    wakes += u32::from(writer.should_wake());
                }
                Err(refusal) => return (refusal, wakes),
            }
        }
    };
    assert_eq!(fill(&mut writer), (Refusal::SlabFull, 1));
    assert_eq!(writer.counts(3), (14, 0));
    let mut buffer = LaneBuffer::default();
    let mut frames = 0;
    while let Some(batch) = reader.look(&memory, &mut buffer, &clocks()).unwrap() {
        frames += batch.frames.len();
        reader.take(&memory, &buffer).unwrap();
    }
    assert_eq!(frames, 4);
    assert_eq!(fill(&mut writer), (Refusal::SlabFull, 1));
    assert_eq!(writer.counts(3), (17, 0));
}

// Proves that a writer refuses samples as the recorder requires. The lane is paused or ended, the
// payload is longer than allowed, or the slot has no source.
#[test]
fn refusals_have_reasons() {
    let (memory, writer, _) = lane(2);
    assert_eq!(writer.ready(3, writer.header().payload_max()), Ok(()));
    assert_eq!(writer.ready(3, writer.header().payload_max() + 1), Err(Refusal::TooLarge));
    assert_eq!(writer.ready(3, usize::MAX), Err(Refusal::TooLarge));
    for slot in [0, 63, 64, 255] {
        assert_eq!(writer.ready(slot, 0), Err(Refusal::Unbound));
    }
    for (flags, refusal) in [(LaneFlags::PAUSED, Refusal::Paused), (LaneFlags::ENDED, Refusal::Ended)] {
        memory.write_at(&flags.bits().to_le_bytes(), LaneFlags::OFFSET).unwrap();
        assert_eq!(writer.ready(3, 1), Err(refusal));
    }
}

/// Reads one sample after the lane was changed, and returns the defect.
fn defect(change: impl FnOnce(&TestMemory, &mut LaneWriter<TestMemory>)) -> LaneDefect {
    let (memory, mut writer, mut reader) = lane(2);
    writer.push(3, 8, 900, |payload| payload.fill(1));
    change(&memory, &mut writer);
    match reader.look(&memory, &mut LaneBuffer::default(), &clocks()) {
        Err(LaneReadError::Defect { defect, .. }) => defect,
        other => panic!("{other:?}"),
    }
}

// Proves that each rule of the reader is enforced. A violation is refused with the defect that
// belongs to the rule.
#[test]
fn each_rule_has_its_defect() {
    let put = |at: u64, bytes: &'static [u8]| {
        move |memory: &TestMemory, _: &mut LaneWriter<TestMemory>| memory.write_at(bytes, at).unwrap()
    };
    assert_eq!(defect(put(2048, &[0xFF; 8])), LaneDefect::State);
    assert_eq!(defect(put(2048, &[1, 0x20, 0, 0, 0, 0, 0, 0])), LaneDefect::State);
    assert_eq!(defect(put(2048, &[83, 0, 0, 0, 0, 0, 0, 0])), LaneDefect::Length);
    assert_eq!(defect(put(4096, &[0xFF, 0xFF, 0, 0])), LaneDefect::Length);
    assert_eq!(defect(put(4096 + 12, &[1])), LaneDefect::Checksum);
    assert_eq!(
        defect(put(512 + 3 * 16, &[10, 0, 0, 0, 0, 0, 0, 0])),
        LaneDefect::Sequence { source_id: 77, seq: 10 }
    );
    assert_eq!(defect(|_, writer| writer.push(3, 8, 1_001_001, |_| ())), LaneDefect::Time(1_001_001));
    let other_source = |_: &TestMemory, writer: &mut LaneWriter<TestMemory>| {
        writer.bind(4, 78, 0);
        writer.push(4, 8, 900, |_| ());
    };
    assert_eq!(defect(other_source), LaneDefect::Source(78));
    let other_offset = |memory: &TestMemory, writer: &mut LaneWriter<TestMemory>| {
        memory.write_at(&super::layout::encode_pair(6), 144).unwrap();
        writer.push(3, 8, 900, |_| ());
    };
    assert_eq!(defect(other_offset), LaneDefect::WallTime(906));
    let skips = |memory: &TestMemory, writer: &mut LaneWriter<TestMemory>| {
        writer.lose(3);
        memory.write_at(&0_u64.to_le_bytes(), 512 + 3 * 16 + 8).unwrap();
        writer.push(3, 8, 900, |_| ());
    };
    assert_eq!(defect(skips), LaneDefect::Sequence { source_id: 77, seq: 12 });
}

// Proves that a number of the recorder is not used if only one half of the number was copied.
#[test]
fn half_a_number_is_not_believed() {
    let (memory, mut writer, mut reader) = lane(2);
    memory.write_at(&99_u64.to_le_bytes(), 144).unwrap();
    writer.push(3, 8, 900, |payload| payload.fill(1));
    let mut buffer = LaneBuffer::default();
    let batch = reader.look(&memory, &mut buffer, &clocks()).unwrap().unwrap();
    assert_eq!(batch.frames[0].sample.wall_ns, 905, "the offset before");
    assert!(writer.open_next(OnFullSlab::Keep));
    for wrong in
        [[1_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat(), super::layout::encode_pair(100).to_vec()]
    {
        memory.write_at(&wrong, 128).unwrap();
        assert!(!writer.open_next(OnFullSlab::Keep), "no slab was given back");
    }
}

// Proves that a header is read back as it was written. Proves that a header is refused if it
// violates the limits or does not fit the memory.
#[test]
fn headers_are_read_back() {
    for slabs in [2, 256] {
        let header = header(slabs);
        let page = header.first_page(-7);
        assert_eq!(LaneHeader::parse(&page, header.bytes()), Ok(header));
        assert!(matches!(LaneHeader::parse(&page, header.bytes() + 1), Err(LaneLayoutError::Sizes { .. })));
        // If the recorder states no budget, the lane has zeros at these offsets.
        let mut older = page.clone();
        older[13 * 8..16 * 8].fill(0);
        let without = LaneHeader { budget: LaneBudget::default(), ..header };
        assert_eq!(LaneHeader::parse(&older, header.bytes()), Ok(without));
        for at in 0..16 {
            for number in [0, 1, 3, 257, 1 << 32, (1 << 61) + 1, u64::MAX] {
                let mut page = page.clone();
                page[at * 8..][..8].copy_from_slice(&number.to_le_bytes());
                if let Ok(other) = LaneHeader::parse(&page, header.bytes()) {
                    assert_eq!((other.slabs, other.slab_bytes), (header.slabs, header.slab_bytes));
                }
            }
        }
    }
    assert!(LaneHeader::parse(&[], 0).is_err());
}

// Proves that one thread reads all samples that another thread pushes, in order, while both threads
// run.
#[test]
fn two_threads_lose_nothing() {
    const SAMPLES: u64 = if cfg!(miri) { 40 } else { 20_000 };
    let (memory, mut writer, mut reader) = lane(4);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..SAMPLES {
                while let Err(refusal) = writer.ready(3, 100) {
                    assert_eq!(refusal, Refusal::SlabFull);
                    if !writer.open_next(OnFullSlab::Keep) {
                        std::thread::yield_now();
                    }
                }
                writer.push(3, 100, number.min(1000), |payload| payload.fill(number.to_le_bytes()[0]));
            }
        });
        let mut buffer = LaneBuffer::default();
        let mut next = 10;
        while next < 10 + SAMPLES {
            let Some(batch) = reader.look(&memory, &mut buffer, &clocks()).unwrap() else {
                std::thread::yield_now();
                continue;
            };
            for frame in batch.frames {
                assert_eq!((frame.sample.seq, frame.missing), (next, 0));
                let last = batch.bytes[frame.offset + frame.bytes - 1];
                assert_eq!(last, (next - 10).to_le_bytes()[0]);
                next += 1;
            }
            reader.take(&memory, &buffer).unwrap();
        }
    });
}

// Proves that a reader that is slower than an overwriting writer returns only whole frames, and
// reports all other samples as missing.
#[test]
fn an_overwritten_ring_is_accounted_for() {
    const SAMPLES: u64 = if cfg!(miri) { 60 } else { 20_000 };
    let (memory, mut writer, mut reader) = lane(2);
    let (mut frames, mut missing) = (0, 0);
    std::thread::scope(|scope| {
        let ended = scope.spawn(move || {
            for number in 0..SAMPLES {
                while writer.ready(3, 500).is_err() {
                    assert!(writer.open_next(OnFullSlab::Overwrite));
                }
                writer.push(3, 500, number.min(1000), |payload| payload.fill(number.to_le_bytes()[0]));
            }
        });
        let mut buffer = LaneBuffer::default();
        loop {
            let is_last = ended.is_finished();
            while let Some(batch) = reader.look(&memory, &mut buffer, &clocks()).unwrap() {
                for frame in batch.frames {
                    missing += frame.missing;
                    assert_eq!(frame.sample.seq, 10 + frames + missing);
                    let last = batch.bytes[frame.offset + frame.bytes - 1];
                    assert_eq!(last, (frame.sample.seq - 10).to_le_bytes()[0]);
                    frames += 1;
                }
                reader.take(&memory, &buffer).unwrap();
            }
            if is_last {
                break;
            }
        }
    });
    assert_eq!(frames + missing, SAMPLES, "the newest are kept");
    assert_eq!(reader.accounts(&memory).unwrap()[0].begun, 10 + SAMPLES);
}
