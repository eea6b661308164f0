//! Where slabs lie: one stretch of memory a run, that a later run can read when this one was killed (docs/ARCHITECTURE.md,
//! "Rescue").
//!
//! ```text
//!      0  magic "FCSLABS1"            All numbers are u64, little-endian. Each part begins at a multiple of 4,096.
//!      8  run id
//!     16  data directory: device
//!     24  data directory: inode
//!     32  checksum kind (0 none, 1 crc16, 2 crc32, 3 xxh3)
//!     40  longest payload of a frame
//!     48  sources
//!     56  slabs
//!     64  bytes of a slab
//!     72  large slabs
//!     80  bytes of a large slab
//!     88  boot id, its high and its low half; 0 if the kernel tells none
//!   4096  for each source: its next sequence number, stored before the reading begins
//!     ..  for each slab, then each large one: bytes of whole frames in it, stored when a frame is finished; 0 is empty
//!     ..  the slabs, then the large ones: frames, one behind the other
//! ```

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::rescue::file_name;
use super::slab::Slab;
use crate::os::shared_memory::{Pages, Piece, SharedMemory, SharedNumber};
use crate::stream::ChecksumKind;

pub(super) const MAGIC: [u8; 8] = *b"FCSLABS1";
/// Each part begins at a multiple of this: a page.
const PART_BYTES: usize = 4096;
const NUMBER_BYTES: usize = size_of::<u64>();
/// Most sources: an id has 16 bits.
pub(super) const SOURCES_MAX: usize = 1 << 16;
/// Numbers of the header, the magic included.
pub(super) const HEADER_NUMBERS: usize = 13;

const _: () = assert!(HEADER_NUMBERS * NUMBER_BYTES <= PART_BYTES);

/// How many slabs of which size, for how many sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Sources with ids below it.
    pub sources: usize,
    /// Slabs of the common size.
    pub slabs: usize,
    /// Bytes of each.
    pub slab_bytes: usize,
    /// Slabs for frames that fit no common one.
    pub large_slabs: usize,
    /// Bytes of each.
    pub large_slab_bytes: usize,
}

/// Whose memory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The run's id.
    pub run_id: u64,
    /// Device and inode of the data directory.
    pub directory: (u64, u64),
    /// Checksum of each frame.
    pub checksum: ChecksumKind,
    /// Longest payload of a frame, in bytes.
    pub frame_max: u32,
    /// The kernel's boot id; 0 if it tells none.
    pub boot: u128,
}

/// The slabs of a run, and its sources' numbers.
#[derive(Debug)]
pub struct Arena {
    pub(super) geometry: Geometry,
    pub(super) slabs: Vec<Slab>,
    pub(super) large_slabs: Vec<Slab>,
    begun: Arc<Begun>,
    pages: Pages,
}

/// How many readings each source has begun. Written by the sampler that owns the source.
#[derive(Debug)]
pub struct Begun(Box<[SharedNumber]>);

impl Geometry {
    /// Bytes of the whole arena.
    pub fn bytes(&self) -> usize {
        self.buffers_at()
            + self.slabs * part(self.slab_bytes)
            + self.large_slabs * part(self.large_slab_bytes)
    }

    /// Offset of the sources' numbers.
    pub(super) fn begun_at() -> usize {
        PART_BYTES
    }

    /// Offset of the slabs' lengths.
    pub(super) fn lengths_at(&self) -> usize {
        Self::begun_at() + part(self.sources * NUMBER_BYTES)
    }

    fn buffers_at(&self) -> usize {
        self.lengths_at() + part((self.slabs + self.large_slabs) * NUMBER_BYTES)
    }

    /// Offset and size of a slab's buffer, the large ones behind the others.
    pub(super) fn buffer(&self, slab: usize) -> (usize, usize) {
        let common = slab.min(self.slabs);
        let large = slab - common;
        let at = self.buffers_at() + common * part(self.slab_bytes) + large * part(self.large_slab_bytes);
        (at, if slab < self.slabs { self.slab_bytes } else { self.large_slab_bytes })
    }
}

/// A length up to where the next part begins.
fn part(bytes: usize) -> usize {
    bytes.next_multiple_of(PART_BYTES)
}

impl Arena {
    /// Lays slabs out in `memory`, which has at least [`Geometry::bytes`] and nothing in it yet; none if it has less.
    pub fn new(mut memory: SharedMemory, geometry: Geometry, owner: &Owner) -> Option<Self> {
        let mut header = memory.take(HEADER_NUMBERS * NUMBER_BYTES)?;
        memory.align(PART_BYTES);
        let begun = numbers(&mut memory, geometry.sources)?;
        let mut lengths = numbers(&mut memory, geometry.slabs + geometry.large_slabs)?.into_iter();
        let mut class = |count: usize, bytes: usize| -> Option<Vec<Slab>> {
            let slab = |_| {
                let buffer = memory.take(bytes)?;
                memory.align(PART_BYTES);
                Some(Slab::new(buffer, lengths.next()?))
            };
            (0..count).map(slab).collect()
        };
        let slabs = class(geometry.slabs, geometry.slab_bytes)?;
        let large_slabs = class(geometry.large_slabs, geometry.large_slab_bytes)?;
        write_header(&mut header, &geometry, owner);
        let (begun, pages) = (Arc::new(Begun(begun.into_boxed_slice())), memory.pages());
        Some(Self { geometry, slabs, large_slabs, begun, pages })
    }

    /// Slabs in memory that goes with the process.
    ///
    /// # Errors
    /// The kernel has none.
    pub fn anonymous(geometry: Geometry) -> io::Result<Self> {
        let owner =
            Owner { run_id: 0, directory: (0, 0), checksum: ChecksumKind::None, frame_max: 0, boot: 0 };
        let memory = SharedMemory::anonymous(geometry.bytes())?;
        Self::new(memory, geometry, &owner).ok_or(io::ErrorKind::OutOfMemory.into())
    }

    /// Slabs in a file of `run_dir` that a later run finds if this one is killed.
    ///
    /// # Errors
    /// As [`SharedMemory::create`].
    pub fn kept(run_dir: &Path, geometry: Geometry, owner: &Owner) -> io::Result<Self> {
        let (memory, file) = SharedMemory::create(run_dir, geometry.bytes())?;
        let arena = Self::new(memory, geometry, owner).ok_or(io::ErrorKind::OutOfMemory)?;
        // Not before it says whose it is: nobody could tell what a kill has left.
        file.publish(&file_name(owner.run_id))?;
        Ok(arena)
    }

    /// The pages that all this lies in.
    pub fn pages(&self) -> Pages {
        self.pages.clone()
    }

    /// The sources' numbers, to be shared with the samplers.
    pub fn begun(&self) -> Arc<Begun> {
        Arc::clone(&self.begun)
    }
}

/// So many numbers, up to the end of a part.
fn numbers(memory: &mut SharedMemory, count: usize) -> Option<Vec<SharedNumber>> {
    let numbers = (0..count).map(|_| memory.take_number()).collect();
    memory.align(PART_BYTES);
    numbers
}

fn write_header(header: &mut Piece, geometry: &Geometry, owner: &Owner) {
    let (device, inode) = owner.directory;
    let (boot_high, boot_low) = boot_numbers(owner.boot);
    let numbers: [u64; HEADER_NUMBERS - 1] = [
        owner.run_id,
        device,
        inode,
        checksum_number(owner.checksum),
        owner.frame_max.into(),
        geometry.sources as u64,
        geometry.slabs as u64,
        geometry.slab_bytes as u64,
        geometry.large_slabs as u64,
        geometry.large_slab_bytes as u64,
        boot_high,
        boot_low,
    ];
    let (magic, places) = header.bytes_mut().split_at_mut(MAGIC.len());
    for (place, number) in places.chunks_exact_mut(NUMBER_BYTES).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    // Last, so that a header with it is whole.
    magic.copy_from_slice(&MAGIC);
}

/// A boot id as two numbers.
pub(super) fn boot_numbers(boot: u128) -> (u64, u64) {
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default();
    (half(boot >> 64), half(boot))
}

fn checksum_number(kind: ChecksumKind) -> u64 {
    match kind {
        ChecksumKind::None => 0,
        ChecksumKind::Crc16 => 1,
        ChecksumKind::Crc32 => 2,
        ChecksumKind::Xxh3 => 3,
    }
}

pub(super) fn checksum_of(number: u64) -> Option<ChecksumKind> {
    ChecksumKind::ALL.iter().copied().find(|kind| checksum_number(*kind) == number)
}

impl Begun {
    /// A reading begins: `next_seq` is the number of the one behind it.
    #[inline]
    pub fn set(&self, source: u16, next_seq: u64) {
        if let Some(number) = self.0.get(usize::from(source)) {
            number.get().store(next_seq, Ordering::Relaxed);
        }
    }
}
