//! The memory of a run's slabs. The memory is one mapping. If this run is killed, a later run can
//! read the mapping (docs/ARCHITECTURE.md). All numbers are u64, little-endian. Each part of the
//! layout begins at a multiple of 4,096 bytes.
//!
//! ```text
//!      0  magic "FCSLABS1"
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
//!     88  boot id, high half, then low half; 0 if the kernel reports none
//!   4096  per source: its next sequence number, stored before the sample begins
//!     ..  per slab, then per large slab: bytes of whole frames in it, stored when a frame is
//!         complete; 0 if empty
//!     ..  the slabs, then the large slabs: frames, one after the other
//!     ..  the run's notes: records, each in a frame, up to the end of the file
//! ```

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flatcap_os::shared_memory::{MappedPages, SharedMemory, SharedNumber, SharedSlice};
use flatcap_stream::ChecksumKind;

use super::notes::RunNotes;
use super::slab::Slab;

pub(super) const MAGIC: [u8; 8] = *b"FCSLABS1";
/// Alignment of each part, and the unit of slab sizes, in bytes. This is a page of mapped memory.
pub const PAGE_BYTES: usize = 4096;
const NUMBER_BYTES: usize = size_of::<u64>();
/// Maximum number of sources. The limit exists because a source id has 16 bits.
pub(super) const SOURCES_MAX: usize = 1 << 16;
/// Number of u64 fields in the header, including the magic.
pub(super) const HEADER_NUMBERS: usize = 13;
/// Suffix of the names of arena files. The run's id comes before the suffix.
pub(super) const ARENA_FILE_SUFFIX: &str = ".slabs";

const _: () = assert!(HEADER_NUMBERS * NUMBER_BYTES <= PAGE_BYTES);

/// The number and the size of the slabs of each class, and the number of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Number of sources. All source ids are below this count.
    pub sources: usize,
    /// Number of standard slabs.
    pub slabs: usize,
    /// Size of a standard slab, in bytes.
    pub slab_bytes: usize,
    /// Number of large slabs, for frames that do not fit a standard slab.
    pub large_slabs: usize,
    /// Size of a large slab, in bytes.
    pub large_slab_bytes: usize,
}

/// The run to which an arena belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The run's id.
    pub run_id: u64,
    /// Device and inode of the data directory.
    pub directory: (u64, u64),
    /// Checksum of each frame.
    pub checksum: ChecksumKind,
    /// Maximum length of a frame's payload, in bytes.
    pub frame_max: u32,
    /// The kernel's boot id. 0 if the kernel reports no boot id.
    pub boot: u128,
}

/// The slabs of a run, and the sequence counters of its sources.
#[derive(Debug)]
pub struct Arena {
    pub(super) geometry: Geometry,
    pub(super) slabs: Vec<Slab>,
    pub(super) large_slabs: Vec<Slab>,
    sequence_counters: Arc<SequenceCounters>,
    pages: MappedPages,
    notes: Option<RunNotes>,
}

/// The number of samples that each source has begun. The sampler that owns a source writes the
/// counter of this source.
#[derive(Debug)]
pub struct SequenceCounters(Box<[SharedNumber]>);

impl Geometry {
    /// Returns the size of the whole arena, in bytes.
    pub fn bytes(&self) -> usize {
        self.buffers_offset()
            + self.slabs * align_to_part(self.slab_bytes)
            + self.large_slabs * align_to_part(self.large_slab_bytes)
    }

    /// Returns the offset of the sequence counters.
    pub(super) fn counters_offset() -> usize {
        PAGE_BYTES
    }

    /// Returns the offset of the slabs' lengths.
    pub(super) fn lengths_offset(&self) -> usize {
        Self::counters_offset() + align_to_part(self.sources * NUMBER_BYTES)
    }

    fn buffers_offset(&self) -> usize {
        self.lengths_offset() + align_to_part((self.slabs + self.large_slabs) * NUMBER_BYTES)
    }

    /// Returns the offset and the size of a slab's buffer. Large slabs come after the standard
    /// slabs.
    pub(super) fn buffer(&self, slab: usize) -> (usize, usize) {
        let common = slab.min(self.slabs);
        let large = slab - common;
        let offset = self.buffers_offset()
            + common * align_to_part(self.slab_bytes)
            + large * align_to_part(self.large_slab_bytes);
        (offset, if slab < self.slabs { self.slab_bytes } else { self.large_slab_bytes })
    }
}

/// Returns the name of a run's arena file.
pub fn arena_file_name(run_id: u64) -> String {
    format!("{run_id:016x}{ARENA_FILE_SUFFIX}")
}

/// Returns whether a file has the name of an arena file.
pub(super) fn is_arena_file_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let run_id = name.strip_suffix(ARENA_FILE_SUFFIX).and_then(|run_id| u64::from_str_radix(run_id, 16).ok());
    run_id.is_some_and(|run_id| arena_file_name(run_id) == name)
}

/// Rounds a length up to the alignment of a part.
fn align_to_part(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

impl Arena {
    /// Lays out slabs in `memory`, which must be empty. Returns `None` if the memory is smaller
    /// than [`Geometry::bytes`].
    pub fn new(mut memory: SharedMemory, geometry: Geometry, owner: &Owner) -> Option<Self> {
        let mut header = memory.allocate(HEADER_NUMBERS * NUMBER_BYTES)?;
        memory.align(PAGE_BYTES);
        let begun = numbers(&mut memory, geometry.sources)?;
        let mut lengths = numbers(&mut memory, geometry.slabs + geometry.large_slabs)?.into_iter();
        let mut class = |count: usize, bytes: usize| -> Option<Vec<Slab>> {
            let slab = |_| {
                let buffer = memory.allocate(bytes)?;
                memory.align(PAGE_BYTES);
                Some(Slab::new(buffer, lengths.next()?))
            };
            (0..count).map(slab).collect()
        };
        let slabs = class(geometry.slabs, geometry.slab_bytes)?;
        let large_slabs = class(geometry.large_slabs, geometry.large_slab_bytes)?;
        write_header(&mut header, &geometry, owner);
        let (begun, pages) = (Arc::new(SequenceCounters(begun.into_boxed_slice())), memory.pages());
        Some(Self { geometry, slabs, large_slabs, sequence_counters: begun, pages, notes: None })
    }

    /// Creates slabs in anonymous memory, which is lost with the process.
    ///
    /// # Errors
    /// Fails if the kernel has no memory left.
    pub fn anonymous(geometry: Geometry) -> io::Result<Self> {
        let owner =
            Owner { run_id: 0, directory: (0, 0), checksum: ChecksumKind::None, frame_max: 0, boot: 0 };
        let memory = SharedMemory::anonymous(geometry.bytes())?;
        Self::new(memory, geometry, &owner).ok_or(io::ErrorKind::OutOfMemory.into())
    }

    /// Creates slabs in a file in `run_dir`. If this run is killed, a later run finds the file.
    ///
    /// # Errors
    /// Returns the same errors as [`SharedMemory::create`].
    pub fn file_backed(run_dir: &Path, geometry: Geometry, owner: &Owner) -> io::Result<Self> {
        let (memory, file) = SharedMemory::create(run_dir, geometry.bytes())?;
        let arena = Self::new(memory, geometry, owner).ok_or(io::ErrorKind::OutOfMemory)?;
        // The file becomes visible to others only when its header is complete. Without a complete
        // header, no later run could use the file.
        let end = file.publish(&arena_file_name(owner.run_id))?;
        Ok(Self { notes: Some(RunNotes::new(end, owner.checksum)), ..arena })
    }

    /// Takes the writer of the run's notes, which are at the end of the file. Returns `None` for
    /// anonymous memory.
    pub fn take_notes(&mut self) -> Option<RunNotes> {
        self.notes.take()
    }

    /// Returns the pages of the arena.
    pub fn pages(&self) -> MappedPages {
        self.pages.clone()
    }

    /// Returns the sequence counters, which the samplers share.
    pub fn sequence_counters(&self) -> Arc<SequenceCounters> {
        Arc::clone(&self.sequence_counters)
    }
}

/// Removes a part from the start of `memory` and returns its first `count` numbers.
fn numbers(memory: &mut SharedMemory, count: usize) -> Option<Vec<SharedNumber>> {
    let numbers = (0..count).map(|_| memory.allocate_number()).collect();
    memory.align(PAGE_BYTES);
    numbers
}

fn write_header(header: &mut SharedSlice, geometry: &Geometry, owner: &Owner) {
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
    let (magic, fields) = header.bytes_mut().split_at_mut(MAGIC.len());
    for (field, number) in fields.chunks_exact_mut(NUMBER_BYTES).zip(numbers) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    // The magic number is written last, so a header that has the magic number is complete.
    magic.copy_from_slice(&MAGIC);
}

/// Splits a boot id into its high and low half.
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

pub(super) fn checksum_from_number(number: u64) -> Option<ChecksumKind> {
    ChecksumKind::ALL.iter().copied().find(|kind| checksum_number(*kind) == number)
}

impl SequenceCounters {
    /// Marks that a sample has begun. `next_seq` is the sequence number after this sample.
    #[inline]
    pub fn set(&self, source: u16, next_seq: u64) {
        if let Some(number) = self.0.get(usize::from(source)) {
            number.get().store(next_seq, Ordering::Relaxed);
        }
    }
}
