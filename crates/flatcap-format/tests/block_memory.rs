//! Limits the memory that a hostile block can make a reader allocate: an allocator that records the
//! peak, around blocks with false claims.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "an allocator is an unsafe trait; a test says what it expects by failing"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use flatbuffers::FlatBufferBuilder;
use flatcap_format::block::{BlockDecoder, BlockError, ColumnSelection};
use flatcap_format::schema::segment::{Block, BlockArgs, BlockGroup, BlockLayout, BlockPart, ChecksumKind};

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

struct CountingAllocator;

fn count_held(bytes: usize) {
    HELD.set(HELD.get().wrapping_add(bytes));
    PEAK.set(PEAK.get().max(HELD.get()));
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches thread-locals
// without destructors.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_held(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get().saturating_sub(layout.size()));
        // SAFETY: the pointer came from `System` through `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The sizes that a block claims.
#[derive(Clone, Copy)]
struct BlockClaims {
    raw_bytes: u64,
    frames: u32,
    group: BlockGroup,
}

/// Builds a block with these claims and with parts that `codec` compresses from zeros.
fn block(claim: BlockClaims, parts: &[(usize, u8)]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut list = Vec::new();
    for (bytes, codec) in parts {
        let zeros = vec![0; *bytes];
        let packed = match codec {
            1 => lz4_flex::block::compress(&zeros),
            2 => snap::raw::Encoder::new().compress_vec(&zeros).unwrap(),
            _ => zstd::bulk::compress(&zeros, 1).unwrap(),
        };
        list.push(BlockPart::new(packed.len() as u32, *bytes as u32, *codec));
        data.extend_from_slice(&packed);
    }
    let mut builder = FlatBufferBuilder::new();
    let data = builder.create_vector(&data);
    let parts = builder.create_vector(&list);
    let groups = builder.create_vector(&[claim.group]);
    let root = Block::create(
        &mut builder,
        &BlockArgs {
            raw_offset: 0,
            raw_bytes: claim.raw_bytes,
            frames: claim.frames,
            groups: Some(groups),
            parts: Some(parts),
            data: Some(data),
            checksum: ChecksumKind::Xxh3,
        },
    );
    builder.finish(root, Some("FCBK"));
    builder.finished_data().to_vec()
}

/// Returns the fault and the peak of memory held while finding it.
fn open(payload: &[u8]) -> (Option<BlockError>, usize) {
    let mut decoder = BlockDecoder::default();
    let before = HELD.get();
    PEAK.set(before);
    let fault = decoder.open(payload, &ColumnSelection::ALL).err();
    (fault, PEAK.get() - before)
}

#[test]
fn a_block_takes_no_more_memory_than_its_claims_allow() {
    // Proves that a block's claims bound the memory before anything is decompressed, and that
    // limits bound the claims. Method: bombs of each codec with small claims, and blocks that claim
    // too much.
    let group =
        |parts, frames, row_bytes, layout| BlockGroup::new(1, parts, frames, row_bytes, 0, layout, false);
    let mebi = 1 << 20;
    for codec in 1..=3 {
        for (layout, row_bytes) in
            [(BlockLayout::Matrix, 100), (BlockLayout::Payloads, 0), (BlockLayout::Copies, 0)]
        {
            let claim = BlockClaims { raw_bytes: 10_000, frames: 64, group: group(2, 64, row_bytes, layout) };
            let parts = [(0, 3), (64 * mebi, codec), (64 * mebi, codec)];
            let (fault, peak) = open(&block(claim, &parts));
            assert!(fault.is_some() && peak < 4 * mebi, "{codec} {layout:?}: {fault:?}, {peak} bytes");
        }
    }
    let beyond = [
        BlockClaims { raw_bytes: u64::MAX, frames: 1, group: group(2, 1, 0, BlockLayout::Payloads) },
        BlockClaims {
            raw_bytes: 1 << 20,
            frames: u32::MAX,
            group: group(2, u32::MAX, 0, BlockLayout::Payloads),
        },
        BlockClaims {
            raw_bytes: 1 << 20,
            frames: 60_000,
            group: group(2, 60_000, u32::MAX, BlockLayout::Matrix),
        },
    ];
    for claim in beyond {
        let (fault, peak) = open(&block(claim, &[(0, 3), (100, 3), (100, 3)]));
        assert!(fault.is_some() && peak < 4 * mebi, "{fault:?}, {peak} bytes");
    }
}
