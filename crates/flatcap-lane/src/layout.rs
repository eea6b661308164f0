//! The memory of a lane (docs/PUSH.md, "Memory of a lane"). The module contains the offsets, the
//! header that the recorder writes only once, and numbers that are stored as pairs.

use flatcap_stream::ChecksumKind;

use super::envelope::ENVELOPE_BYTES;

/// Number of bytes before the slabs. The size is one page, which is read with one call.
pub const CONTROL_BYTES: usize = 4096;
/// Maximum number of sources of a lane.
pub(crate) const SLOTS: usize = 64;
/// Minimum number of slabs. Two are necessary because one slab is read while the other is written.
pub const SLABS_MIN: usize = 2;
/// Maximum number of slabs. This is the number of slab states that fit in the control page.
pub const SLABS_MAX: usize = 256;
/// Minimum size of a slab, in bytes. This is the size of a page.
pub const SLAB_BYTES_MIN: usize = 4 << 10;
/// Maximum size of a slab, in bytes. The length of such a slab fits the 23 bits of a state, and
/// longer frames are rare.
pub(crate) const SLAB_BYTES_MAX: usize = 4 << 20;
/// Minimum size of a ring that a client gets, in bytes.
pub const LANE_BYTES_MIN: u64 = 256 << 10;
/// Maximum size of a ring that a client gets, in bytes.
pub const LANE_BYTES_MAX: u64 = 16 << 20;
/// The id in a slot that has no source.
pub(crate) const NO_SOURCE: u16 = u16::MAX;
/// Length of a pair of a number and its complement, in bytes.
pub(crate) const PAIR_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"FCLANE01";
/// Count of the numbers in the header, including the magic number.
const HEADER_NUMBERS: usize = 16;
const NUMBER_BYTES: usize = size_of::<u64>();

/// Offset at which the reader stores the number of slabs that it has given back to the writer. Each
/// use of a slab is counted. The number is stored as a pair.
pub(crate) const RETURNED_AT: usize = 128;
/// Offset at which the difference between wall time and monotonic time is stored. The difference is
/// stored as a pair.
pub(crate) const WALL_OFFSET_AT: usize = 144;
/// Offset of the [`LaneFlags`].
pub(crate) const FLAGS_AT: usize = 160;
const IDS_AT: usize = 256;
const SLOTS_AT: usize = 512;
const SLOT_BYTES: usize = 16;
const STATES_AT: usize = 2048;

const _: () = assert!(IDS_AT + 2 * SLOTS <= SLOTS_AT && SLOTS_AT + SLOT_BYTES * SLOTS <= STATES_AT);
const _: () = assert!(NUMBER_BYTES * HEADER_NUMBERS <= RETURNED_AT);
const _: () = assert!(STATES_AT + NUMBER_BYTES * SLABS_MAX == CONTROL_BYTES);

/// The control page, which precedes the slabs.
pub(crate) type ControlPage = [u8; CONTROL_BYTES];

/// Flags that the recorder sets for the writer of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneFlags(u64);

impl LaneFlags {
    /// The recorder currently takes no frames, so the client counts samples as lost.
    #[cfg(all(test, not(flatcap_model)))]
    pub(crate) const PAUSED: Self = Self(1);
    /// The recorder does not read the lane any more.
    pub const ENDED: Self = Self(2);
    /// Offset of the flags in the lane's memory.
    pub const OFFSET: u64 = FLAGS_AT as u64;

    /// Returns the stored number.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// The budget and limits for pushed frames. All numbers are 0 if the version of the recorder does
/// not state them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneBudget {
    /// Maximum CPU time for the frames of all users, in nanoseconds per second.
    pub cpu_ns_per_second: u64,
    /// Maximum number of frames per second of this user. 0 means unlimited.
    pub user_frames_per_second: u64,
    /// Maximum number of bytes per second of this user. 0 means unlimited.
    pub user_bytes_per_second: u64,
}

/// The part of a lane that the recorder writes only once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneHeader {
    /// Number of slabs.
    pub slabs: usize,
    /// Size of a slab, in bytes.
    pub slab_bytes: usize,
    /// Checksum of each frame.
    pub checksum: ChecksumKind,
    /// Maximum length of a telemetry frame's payload, in bytes, including the envelope.
    pub frame_max: u32,
    /// The run's id.
    pub run_id: u64,
    /// Device and inode of the data directory.
    pub directory: (u64, u64),
    /// The high half and the low half of the kernel's boot id. 0 if the kernel reports no boot id.
    pub boot: (u64, u64),
    /// The lane's number, which is unique in the run.
    pub lane: u32,
    /// The client's user.
    pub uid: u32,
    /// The recorder's budget for pushes.
    pub budget: LaneBudget,
}

/// The reason why bytes are not a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LaneLayoutError {
    /// The bytes do not begin with the magic number of a lane.
    #[error("the memory does not begin with the magic of a lane")]
    Magic,
    /// The sizes contradict each other, are outside of the limits, or do not fit the memory.
    #[error(
        "the lane has {slabs} slabs of {slab_bytes} bytes in {bytes} bytes of memory; valid are 2 to 256 slabs of 4 KiB to 4 MiB, a power of two, after 4096 bytes"
    )]
    Sizes {
        /// The stored number of slabs.
        slabs: u64,
        /// The stored size of a slab, in bytes.
        slab_bytes: u64,
        /// Size of the memory, in bytes.
        bytes: u64,
    },
    /// A number has an invalid value.
    #[error("the number at offset {offset} of the lane is {value}, which has no meaning there")]
    Number {
        /// The number's offset.
        offset: usize,
        /// The number's value.
        value: u64,
    },
}

impl LaneHeader {
    /// Returns the size of the whole lane, in bytes.
    pub fn bytes(&self) -> u64 {
        (CONTROL_BYTES + self.slabs * self.slab_bytes) as u64
    }

    /// Returns the maximum length of a source's payload in a frame of this lane, in bytes.
    pub(crate) fn payload_max(&self) -> usize {
        let in_slab = self.slab_bytes - self.checksum.frame_bytes(ENVELOPE_BYTES);
        (self.frame_max as usize).saturating_sub(ENVELOPE_BYTES).min(in_slab)
    }

    /// Returns the first page of a new lane. The page must be written before other processes can
    /// access the lane. The other bytes of the lane are zero.
    pub fn first_page(&self, wall_offset_ns: i64) -> Vec<u8> {
        let mut page = vec![0; CONTROL_BYTES];
        let numbers = [
            u64::from_le_bytes(MAGIC),
            self.bytes(),
            self.slabs as u64,
            self.slab_bytes as u64,
            checksum_number(self.checksum),
            self.frame_max.into(),
            self.run_id,
            self.directory.0,
            self.directory.1,
            self.boot.0,
            self.boot.1,
            self.lane.into(),
            self.uid.into(),
            self.budget.cpu_ns_per_second,
            self.budget.user_frames_per_second,
            self.budget.user_bytes_per_second,
        ];
        let header: [u64; HEADER_NUMBERS] = numbers;
        for (place, number) in page.as_chunks_mut().0.iter_mut().zip(header) {
            *place = number.to_le_bytes();
        }
        let pairs = [(RETURNED_AT, 0), (WALL_OFFSET_AT, wall_offset_ns.cast_unsigned())];
        for (at, number) in pairs {
            put(&mut page, at, &encode_pair(number));
        }
        put(&mut page, IDS_AT, &[0xFF; 2 * SLOTS]);
        page
    }

    /// Reads the header of a lane whose memory has `bytes` bytes.
    ///
    /// # Errors
    /// Returns the reason why the bytes are not a lane.
    pub fn parse(page: &[u8], bytes: u64) -> Result<Self, LaneLayoutError> {
        if page.first_chunk() != Some(&MAGIC) {
            return Err(LaneLayoutError::Magic);
        }
        let number = |index: usize| number_at(page, index * NUMBER_BYTES);
        let (slabs, slab_bytes) = (number(2), number(3));
        let wrong_sizes = LaneLayoutError::Sizes { slabs, slab_bytes, bytes };
        let sizes = (usize::try_from(slabs), usize::try_from(slab_bytes));
        let (Ok(slabs), Ok(slab_bytes)) = sizes else { return Err(wrong_sizes) };
        let fits = (SLABS_MIN..=SLABS_MAX).contains(&slabs)
            && (SLAB_BYTES_MIN..=SLAB_BYTES_MAX).contains(&slab_bytes)
            && slab_bytes.is_power_of_two();
        if !fits || number(1) != bytes || (CONTROL_BYTES + slabs * slab_bytes) as u64 != bytes {
            return Err(wrong_sizes);
        }
        let wrong =
            |index: usize| LaneLayoutError::Number { offset: index * NUMBER_BYTES, value: number(index) };
        let small = |index: usize| u32::try_from(number(index)).map_err(|_| wrong(index));
        Ok(Self {
            slabs,
            slab_bytes,
            checksum: checksum_from_number(number(4)).ok_or(wrong(4))?,
            frame_max: small(5)?,
            run_id: number(6),
            directory: (number(7), number(8)),
            boot: (number(9), number(10)),
            lane: small(11)?,
            uid: small(12)?,
            budget: LaneBudget {
                cpu_ns_per_second: number(13),
                user_frames_per_second: number(14),
                user_bytes_per_second: number(15),
            },
        })
    }

    /// Returns the offset of the slab to which a use number belongs.
    pub(crate) fn slab_at(&self, use_number: u64) -> usize {
        CONTROL_BYTES + self.slab_index(use_number) * self.slab_bytes
    }

    /// Returns the offset of the slab state to which a use number belongs.
    pub(crate) fn state_at(&self, use_number: u64) -> usize {
        STATES_AT + self.slab_index(use_number) * NUMBER_BYTES
    }

    #[allow(clippy::cast_possible_truncation, reason = "less than the number of slabs")]
    fn slab_index(&self, use_number: u64) -> usize {
        (use_number % self.slabs as u64) as usize
    }
}

/// Returns a number as a pair, which consists of the number and its complement.
pub(crate) fn encode_pair(number: u64) -> [u8; PAIR_BYTES] {
    let mut bytes = [0; PAIR_BYTES];
    put(&mut bytes, 0, &number.to_le_bytes());
    put(&mut bytes, NUMBER_BYTES, &(!number).to_le_bytes());
    bytes
}

/// Returns the number of a pair, or `None` if the halves of the pair do not match.
#[inline]
pub(crate) fn pair(first: u64, second: u64) -> Option<u64> {
    (first == !second).then_some(first)
}

/// Returns the offset of the number `begun` of a slot. The number `lost` of the slot follows it.
#[inline]
pub(crate) fn begun_at(slot: u8) -> usize {
    SLOTS_AT + SLOT_BYTES * (usize::from(slot) % SLOTS)
}

/// Returns the offset of the number `lost` of a slot.
#[inline]
pub(crate) fn lost_at(slot: u8) -> usize {
    begun_at(slot) + NUMBER_BYTES
}

/// Returns the offset of the id of a slot.
pub(crate) fn id_at(slot: u8) -> usize {
    IDS_AT + 2 * (usize::from(slot) % SLOTS)
}

/// Reads the number at an offset. Returns 0 if the offset is beyond the end of the page.
pub(crate) fn number_at(page: &[u8], at: usize) -> u64 {
    page.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Reads the id of a slot.
pub(crate) fn id_of(page: &[u8], slot: u8) -> u16 {
    page.get(id_at(slot)..)
        .and_then(<[u8]>::first_chunk)
        .map_or(NO_SOURCE, |bytes| u16::from_le_bytes(*bytes))
}

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = page.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn checksum_number(kind: ChecksumKind) -> u64 {
    match kind {
        ChecksumKind::None => 0,
        ChecksumKind::Crc16 => 1,
        ChecksumKind::Crc32 => 2,
        ChecksumKind::Xxh3 => 3,
    }
}

fn checksum_from_number(number: u64) -> Option<ChecksumKind> {
    ChecksumKind::ALL.iter().copied().find(|kind| checksum_number(*kind) == number)
}
