//! Proves that readers and writers of the stream library do not allocate in steady state. Method: a
//! counting allocator.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "an allocator is an unsafe trait; a test says what it expects by failing"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use flatbuffers::FlatBufferBuilder;
use flatcap_stream::{
    ChecksumKind, FrameDecoder, Framer, KindDeframer, SliceFramer, SliceReader, StreamReader, StreamWriter,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct CountingAllocator;

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread-local
// without a destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`, which is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System` through `alloc` or `realloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the pointer came from `System` through `alloc` or `realloc` above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const LIMIT: usize = 1 << 20;

/// Returns payloads of many lengths, the longest first.
fn payloads() -> Vec<Vec<u8>> {
    (0..300_usize).rev().map(|index| vec![7; index * 13 % 900]).chain([vec![1; 2_000]]).rev().collect()
}

fn stream(kind: ChecksumKind) -> Vec<u8> {
    let mut bytes = Vec::new();
    for payload in payloads() {
        kind.frame_and_write(&mut bytes, &payload).unwrap();
    }
    bytes
}

/// Counts the allocations during `run`.
fn count(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

// Proves that the counter counts allocations.
#[test]
fn the_counter_counts() {
    assert_eq!(count(|| drop(std::hint::black_box(vec![1_u8; 100]))), 1);
}

// Proves that a reader that has read its longest payload allocates nothing, whether payloads are
// read with a callback or one by one. Method: 300 frames of each checksum after the longest frame.
#[test]
fn reading_from_a_source() {
    for &kind in ChecksumKind::ALL {
        let bytes = stream(kind);
        let deframer = KindDeframer::new(kind).with_max_frame_len(LIMIT);
        let mut read = 0;
        let mut reader = StreamReader::new(&bytes[..], deframer);
        reader.read_message().unwrap().unwrap();
        let mut add = |payload: &[u8]| {
            read += payload.len();
            Ok(())
        };
        let allocations = count(|| reader.process_all(&mut add).unwrap());
        assert_eq!(allocations, 0, "process_all under {kind}");
        let mut reader = StreamReader::new(&bytes[..], deframer);
        reader.read_message().unwrap().unwrap();
        let allocations = count(|| {
            let mut messages = reader.messages();
            while let Some(payload) = messages.next().unwrap() {
                read -= payload.len();
            }
        });
        assert_eq!((allocations, read), (0, 0), "messages under {kind}");
        let mut reader = StreamReader::with_capacity(&bytes[..], deframer, 2_000);
        assert_eq!(count(|| reader.process_all(|_| Ok(())).unwrap()), 0, "capacity reserved under {kind}");
    }
}

// Proves that a slice reader never allocates, not even for the first frame or when it skips frames.
#[test]
fn reading_from_a_slice() {
    for &kind in ChecksumKind::ALL {
        let bytes = stream(kind);
        let deframer = KindDeframer::new(kind).with_max_frame_len(LIMIT);
        let mut read = 0;
        let allocations = count(|| {
            read = SliceReader::new(&bytes, deframer).map(|payload| payload.unwrap().len()).sum();
            let mut reader = SliceReader::new(&bytes, deframer);
            while reader.skip_frame().unwrap().is_some() {}
        });
        assert_eq!(allocations, 0, "{kind}");
        assert_eq!(read, payloads().iter().map(Vec::len).sum::<usize>());
    }
}

// Proves that a decoder allocates nothing after its longest frame, and never for frames in one
// piece. Method: two rounds with pieces of many lengths, then the whole stream as one piece.
#[test]
fn decoding_pieces() {
    for &kind in ChecksumKind::ALL {
        let bytes = stream(kind);
        let mut frames = 0;
        let mut feed = |decoder: &mut FrameDecoder<KindDeframer>, length: usize| {
            for mut piece in bytes.chunks(length) {
                while !piece.is_empty() {
                    let (taken, payload) = decoder.decode(piece).unwrap();
                    frames += usize::from(payload.is_some());
                    piece = &piece[taken..];
                }
            }
        };
        let deframer = KindDeframer::new(kind).with_max_frame_len(LIMIT);
        let mut fresh = FrameDecoder::new(deframer);
        assert_eq!(count(|| feed(&mut fresh, bytes.len())), 0, "one piece under {kind}");
        let mut decoder = FrameDecoder::new(deframer);
        feed(&mut decoder, 7);
        let allocations =
            count(|| [1, 7, 100, 1_001].into_iter().for_each(|length| feed(&mut decoder, length)));
        assert_eq!(allocations, 0, "pieces under {kind}");
        assert_eq!(frames, 6 * payloads().len());
    }
}

// Proves that writing in expert mode to a sink with capacity allocates nothing. Method: a reused
// builder, payloads one by one and in batches, and framing in place, with every checksum.
#[test]
fn writing() {
    for &kind in ChecksumKind::ALL {
        let payloads = payloads();
        let bytes = stream(kind);
        let mut writer = StreamWriter::new(Vec::with_capacity(4 * bytes.len()), kind);
        let allocations = count(|| {
            for payload in &payloads {
                writer.write_payload(payload).unwrap();
            }
            writer.write_payloads(payloads.iter().map(Vec::as_slice)).unwrap();
        });
        assert_eq!(allocations, 0, "payloads under {kind}");
        assert_eq!(*writer.get_ref(), [&bytes[..], &bytes].concat());

        let mut builder = FlatBufferBuilder::with_capacity(4_096);
        writer.get_mut().clear();
        let mut build = || {
            for payload in &payloads {
                builder.reset();
                let root = builder.create_vector(payload);
                builder.finish(root, None);
                writer.write_finished(&mut builder).unwrap();
            }
            writer.get_mut().clear();
        };
        build();
        assert_eq!(count(build), 0, "finished builders under {kind}");

        let mut buffer = vec![0; bytes.len()];
        let mut end = 0;
        let allocations = count(|| {
            for payload in &payloads {
                end += kind.frame_into(&mut buffer[end..], payload).unwrap();
            }
        });
        assert_eq!((allocations, end), (0, buffer.len()), "in place under {kind}");
        assert_eq!(buffer, bytes);
    }
}

// Proves that writing in simple mode allocates nothing after the builder has grown.
#[test]
fn simple_writing() {
    let mut writer = StreamWriter::with_capacity(Vec::with_capacity(1 << 20), ChecksumKind::Xxh3, 1_024);
    let texts = ["a longer text than the others", "short", ""];
    writer.write_batch(&texts).unwrap();
    let allocations = count(|| (0..100).for_each(|_| writer.write_batch(&texts).unwrap()));
    assert_eq!(allocations, 0);
}
