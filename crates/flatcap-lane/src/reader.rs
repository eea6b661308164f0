//! The reader of a lane, in the recorder (docs/PUSH.md, "Protocol"). The reader copies the bytes
//! that the writer has committed, checks the copy, and trusts nothing else.
//!
//! The reader does these steps for use `k`, of which it has taken `t` bytes (`k` and `t` start at
//! 0):
//!
//! 1. If the last look found no frames, read only the eight bytes of the slab state. If these bytes
//!    are the same as at the last look, nothing is new. Otherwise, read the first 4,096 bytes.
//!    Execute an acquire fence.
//! 2. Check the state of slab `k % slabs`. If the use in the state is older than `k`, nothing is
//!    new. If the use in the state is a newer use `g`, the slab was overwritten. Then continue with
//!    use `g - slabs + 1` and `t = 0`.
//! 3. Read the bytes from `t` up to the number of committed bytes. Execute an acquire fence.
//! 4. Read the first 4,096 bytes again. If the slab's use has changed or its number of committed
//!    bytes has decreased, discard the bytes and begin again. `begun` and `lost` in this page are
//!    at least as new as any frame that was read.
//! 5. Check the frames. If a check fails, repeat the reading once from step 1. If a check fails a
//!    second time, stop reading the lane.
//! 6. If the state in step 1 was closed and all its bytes are taken, execute a release fence and
//!    write `returned = k + 1` as a pair. Then continue with use `k + 1`.
//!
//! Reads and writes are `pread` and `pwrite`. The fences also order these calls, because the
//! kernel's copies are loads and stores of the same thread. If a kernel copies an aligned word of 8
//! bytes with more than one access, the reader may see a torn word. The complement in a pair and
//! step 4 detect a torn word.

use std::fmt;
use std::io;

use flatcap_stream::{DeframeStatus, KindDeframer, SliceDeframer};

use super::atomics::{Ordering, fence};
use super::envelope::{self, KNOWN_FLAGS, SampleHeader};
use super::layout::{
    CONTROL_BYTES, ControlPage, LaneFlags, LaneHeader, LaneLayoutError, NO_SOURCE, PAIR_BYTES, RETURNED_AT,
    SLOTS, WALL_OFFSET_AT, begun_at, encode_pair, id_at, id_of, lost_at, number_at, pair,
};
use super::slab_state::{SlabState, SlabUse, USES_MAX};

/// Maximum time by which a sample may be ahead of the reader's clock, in nanoseconds. Clocks of
/// different processors, and a converted timestamp counter, differ by less than this.
const AHEAD_MAX_NS: u64 = 1_000_000;
/// Maximum number of attempts of one look. The look starts again if the writer has overwritten the
/// bytes while they were read.
const OVERTAKEN_MAX: usize = 8;
/// After this number of readings with a violation in one look, the reader rejects the lane. One
/// reading is not enough, because it may copy a number while the writer stores the number.
const READINGS_MIN: usize = 2;

/// The memory of a lane, for its reader.
pub trait ReaderMemory {
    /// Reads exactly these bytes.
    ///
    /// # Errors
    /// Any error of the memory, including memory that is too short.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of these bytes.
    ///
    /// # Errors
    /// Any error of the memory.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

#[cfg(unix)]
impl ReaderMemory for std::fs::File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, offset)
    }
}

/// The bounds for the times of samples.
#[derive(Clone, Copy)]
pub struct LaneClocks<'a> {
    /// A function that returns CLOCK_MONOTONIC, in nanoseconds.
    pub now_ns: &'a dyn Fn() -> u64,
    /// All wall offsets that were in force since frames were last taken from the lane.
    pub wall_offsets_ns: &'a [i64],
}

impl fmt::Debug for LaneClocks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneClocks").field("wall_offsets_ns", &self.wall_offsets_ns).finish_non_exhaustive()
    }
}

/// A frame that was read and checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneFrame {
    /// Offset of the frame in the bytes of its [`LaneBatch`].
    pub offset: usize,
    /// Length of the frame, header included.
    pub bytes: usize,
    /// Length of the frame's header.
    pub header_bytes: usize,
    /// The source's slot.
    pub slot: u8,
    /// The frame's envelope.
    pub sample: SampleHeader,
    /// Number of samples that are missing before this sample.
    pub missing: u64,
}

/// Frames of one slab, in order and without gaps between them.
#[derive(Debug, Clone, Copy)]
pub struct LaneBatch<'a> {
    /// The bytes of the frames, in the form that a segment contains.
    pub bytes: &'a [u8],
    /// The description of each frame.
    pub frames: &'a [LaneFrame],
}

/// Memory for reading. The same buffer is used for all lanes, one after the other.
#[derive(Debug)]
pub struct LaneBuffer {
    page: Box<ControlPage>,
    page_after: Box<ControlPage>,
    bytes: Vec<u8>,
    frames: Vec<LaneFrame>,
    slots: Vec<SlotProgress>, // the progress after the frames are taken
}

impl Default for LaneBuffer {
    fn default() -> Self {
        let page = || Box::new([0; CONTROL_BYTES]);
        Self { page: page(), page_after: page(), bytes: Vec::new(), frames: Vec::new(), slots: Vec::new() }
    }
}

/// The counts of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotAccount {
    /// The slot.
    pub slot: u8,
    /// The source's id.
    pub source: u16,
    /// Number of the first sample that has not been taken yet, or `None` if no sample number of the
    /// slot is known.
    pub next_seq: Option<u64>,
    /// The number that the client will give to its next sample.
    pub begun: u64,
    /// Number of samples that the client has counted as lost. The count excludes samples that a
    /// jump of the sample numbers already accounts for.
    pub lost: u64,
}

/// The progress of reading a slot.
#[derive(Debug, Clone, Copy)]
struct SlotProgress {
    source: u16,           // or NO_SOURCE
    next_seq: Option<u64>, // `None`: any number may be the first
    explained: u64,        // part of `lost` that jumps have explained
    may_jump: bool,        // a slab was overwritten since the last frame
}

/// The reading end of a lane.
#[derive(Debug)]
pub struct LaneReader {
    header: LaneHeader,
    use_number: u64,
    taken: usize,  // bytes of this use
    is_last: bool, // the frames that were found end a closed use
    found: usize,  // bytes that were found and not taken yet
    /// The state of the slab's current use when the reader last found no frames. While the state
    /// stays the same, there are no frames.
    empty_state: Option<SlabState>,
    gives_back: bool, // whether slabs are given back after reading
    last_mono_ns: u64,
    slots: Box<[SlotProgress; SLOTS]>,
}

/// The reason why a lane cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LaneReadError {
    /// The memory cannot be read or written.
    #[error("the memory of the lane cannot be read: {0}")]
    Memory(#[from] io::Error),
    /// The memory is not a lane.
    #[error(transparent)]
    Layout(#[from] LaneLayoutError),
    /// The client has violated the protocol.
    #[error("use {use_number} of the lane, offset {offset}: {defect}")]
    Defect {
        /// The number of the slab's use.
        use_number: u64,
        /// Offset of the violation in the slab.
        offset: usize,
        /// The violation.
        defect: LaneDefect,
    },
}

/// A violation in a frame or in a slab's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LaneDefect {
    /// The state belongs to no use that the slab can have, or its number of bytes is impossible.
    #[error("the state of the slab is impossible")]
    State,
    /// The frame is longer than the limit, or the frame ends after the committed bytes.
    #[error("the frame's length is above the limit or beyond the committed bytes")]
    Length,
    /// The checksum is wrong.
    #[error("the frame's checksum is wrong")]
    Checksum,
    /// The envelope is truncated, has another layout, or has unknown flags.
    #[error("the frame's envelope is cut, has another shape than a sample's, or unknown flags")]
    Envelope,
    /// The id does not belong to a source in this lane.
    #[error("source {0} does not belong to the lane")]
    Source(u16),
    /// The sample number is repeated, was not begun, or jumps further than `lost` allows.
    #[error("sample {seq} of source {source_id} repeats, was not begun, or leaves out more than was lost")]
    Sequence {
        /// The source's id.
        source_id: u16,
        /// The sample's number.
        seq: u64,
    },
    /// The time is before the time of the last sample, or is in the future.
    #[error("the sample's time {0} ns is before the last sample's or in the future")]
    Time(u64),
    /// The wall time is not the monotonic time plus an offset that was in force.
    #[error("the sample's wall time {0} ns does not fit its monotonic time")]
    WallTime(i64),
}

/// The position of a violation in a slab.
struct Misfit {
    offset: usize,
    defect: LaneDefect,
}

impl LaneReader {
    /// Creates the reader of a new lane. The slabs of the lane must be unused.
    pub fn new(header: LaneHeader) -> Self {
        let slot = SlotProgress { source: NO_SOURCE, next_seq: Some(0), explained: 0, may_jump: false };
        Self {
            header,
            use_number: 0,
            taken: 0,
            is_last: false,
            found: 0,
            empty_state: None,
            gives_back: true,
            last_mono_ns: 0,
            slots: Box::new([slot; SLOTS]),
        }
    }

    /// Opens a lane of which only the memory is left. The memory has `bytes` bytes. The ids of the
    /// sources come from the memory, so the caller decides whether to trust each id. The sample
    /// numbers of each source may begin with any number. Frames that were already taken may be
    /// returned again. Taking frames changes nothing in the lane, so the next reader gets the same
    /// frames.
    ///
    /// # Errors
    /// The memory cannot be read, or is not a lane.
    pub fn resume(memory: &impl ReaderMemory, bytes: u64) -> Result<Self, LaneReadError> {
        let mut page = [0; CONTROL_BYTES];
        memory.read_at(&mut page, 0)?;
        let mut reader = Self::new(LaneHeader::parse(&page, bytes)?);
        reader.gives_back = false;
        for (number, slot) in (0_u8..).zip(reader.slots.iter_mut()) {
            *slot =
                SlotProgress { source: id_of(&page, number), next_seq: None, explained: 0, may_jump: true };
        }
        reader.use_number = returned(&page).filter(|uses| *uses <= USES_MAX).unwrap_or(0);
        Ok(reader)
    }

    /// Creates a reader of a new lane. The first slot has a source whose sample numbers begin with
    /// 0.
    #[cfg(all(test, flatcap_model))]
    pub(crate) fn resume_at_start(header: LaneHeader, source: u16) -> Self {
        let mut reader = Self::new(header);
        reader.slots[0].source = source;
        reader
    }

    /// Returns the lane's header.
    pub fn header(&self) -> &LaneHeader {
        &self.header
    }

    /// Binds a source to a slot that has no source. The next sample of the source has the number
    /// `next_seq`.
    ///
    /// # Errors
    /// Any error of the memory.
    pub fn bind(
        &mut self,
        memory: &impl ReaderMemory,
        slot: u8,
        source: u16,
        next_seq: u64,
    ) -> io::Result<()> {
        memory.write_at(&next_seq.to_le_bytes(), begun_at(slot) as u64)?;
        memory.write_at(&source.to_le_bytes(), id_at(slot) as u64)?;
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            *place = SlotProgress { source, next_seq: Some(next_seq), explained: 0, may_jump: false };
        }
        Ok(())
    }

    /// Sets the offset that the writer adds to monotonic time to get wall time. The writer uses the
    /// offset for its next sample and all later samples.
    ///
    /// # Errors
    /// Any error of the memory.
    pub fn set_wall_offset(&self, memory: &impl ReaderMemory, wall_offset_ns: i64) -> io::Result<()> {
        memory.write_at(&encode_pair(wall_offset_ns.cast_unsigned()), WALL_OFFSET_AT as u64)
    }

    /// Returns the wall offset in the memory of a lane that was [resumed](Self::resume), or `None`
    /// if the offset is not valid.
    ///
    /// # Errors
    /// Any error of the memory.
    pub fn wall_offset(&self, memory: &impl ReaderMemory) -> io::Result<Option<i64>> {
        let mut bytes = [0; PAIR_BYTES];
        memory.read_at(&mut bytes, WALL_OFFSET_AT as u64)?;
        Ok(pair(number_at(&bytes, 0), number_at(&bytes, PAIR_BYTES / 2)).map(u64::cast_signed))
    }

    /// Sets the flags. The flags state whether the recorder takes frames.
    ///
    /// # Errors
    /// Any error of the memory.
    pub fn set_flags(&self, memory: &impl ReaderMemory, flags: LaneFlags) -> io::Result<()> {
        memory.write_at(&flags.bits().to_le_bytes(), LaneFlags::OFFSET)
    }

    /// Reads and checks those frames of one slab that have not been taken yet. Returns `None` if
    /// there are no such frames. If the caller does not call [`take`](Self::take), the next call
    /// returns the same frames, and perhaps more frames.
    ///
    /// # Errors
    /// The memory cannot be read, or the client has violated the protocol. After an error, the lane
    /// must not be read again.
    pub fn look<'b>(
        &mut self,
        memory: &impl ReaderMemory,
        buffer: &'b mut LaneBuffer,
        clocks: &LaneClocks<'_>,
    ) -> Result<Option<LaneBatch<'b>>, LaneReadError> {
        self.found = 0;
        if self.is_still_empty(memory)? {
            return Ok(None);
        }
        let mut defects = 0;
        for _ in 0..OVERTAKEN_MAX {
            memory.read_at(buffer.page.as_mut_slice(), 0)?;
            // Acquire: the bytes below are not older than the states above.
            fence(Ordering::Acquire);
            let read = match self.committed(&buffer.page) {
                Ok(None) => {
                    self.empty_state = Some(self.state(&buffer.page));
                    return Ok(None);
                }
                Ok(Some(state)) => self.read(memory, buffer, state, clocks)?,
                Err(misfit) => Err(misfit),
            };
            match read {
                Ok(true) => {
                    let batch = LaneBatch { bytes: &buffer.bytes, frames: &buffer.frames };
                    return Ok(Some(batch));
                }
                Ok(false) => {}
                Err(Misfit { offset, defect }) => {
                    defects += 1;
                    if defects == READINGS_MIN {
                        return Err(LaneReadError::Defect { use_number: self.use_number, offset, defect });
                    }
                }
            }
        }
        // The writer overwrites slabs faster than they are read.
        Ok(None)
    }

    /// Takes the frames that the last call of [`look`](Self::look) placed in this buffer. Gives the
    /// slab back to the writer if the slab will have no more frames.
    ///
    /// # Errors
    /// Any error of the memory.
    pub fn take(&mut self, memory: &impl ReaderMemory, buffer: &LaneBuffer) -> io::Result<()> {
        for (slot, after) in self.slots.iter_mut().zip(&buffer.slots) {
            *slot = *after;
        }
        self.last_mono_ns = buffer.frames.last().map_or(self.last_mono_ns, |frame| frame.sample.mono_ns);
        self.taken += std::mem::take(&mut self.found);
        if self.is_last {
            self.is_last = false;
            self.advance(memory)?;
        }
        Ok(())
    }

    /// Returns the counts of all slots that have a source. If the writer has stopped and all frames
    /// were taken, the samples from `next_seq` up to `begun` are lost.
    ///
    /// # Errors
    /// Any error of the memory.
    pub fn accounts(&self, memory: &impl ReaderMemory) -> io::Result<Vec<SlotAccount>> {
        let mut page = [0; CONTROL_BYTES];
        memory.read_at(&mut page, 0)?;
        let bound = (0_u8..).zip(self.slots.iter()).filter(|(_, slot)| slot.source != NO_SOURCE);
        Ok(bound
            .map(|(number, slot)| SlotAccount {
                slot: number,
                source: slot.source,
                next_seq: slot.next_seq,
                begun: number_at(&page, begun_at(number)),
                lost: number_at(&page, lost_at(number)).saturating_sub(slot.explained),
            })
            .collect())
    }

    /// Returns whether the last look found no frames and no frame was added since then. Most lanes
    /// are idle, and reading the whole first page for this check would take too long.
    fn is_still_empty(&mut self, memory: &impl ReaderMemory) -> io::Result<bool> {
        let Some(state) = self.empty_state else { return Ok(false) };
        let mut word = [0; size_of::<u64>()];
        memory.read_at(&mut word, self.header.state_at(self.use_number) as u64)?;
        let is_same = SlabState(u64::from_le_bytes(word)) == state;
        self.empty_state = is_same.then_some(state);
        Ok(is_same)
    }

    /// Returns the state of the slab of this use.
    fn state(&self, page: &ControlPage) -> SlabState {
        SlabState(number_at(page, self.header.state_at(self.use_number)))
    }

    /// Returns the state of the next use with unread frames. Uses that were overwritten are
    /// skipped.
    fn committed(&mut self, page: &ControlPage) -> Result<Option<SlabState>, Misfit> {
        let slabs = self.header.slabs as u64;
        // Each step leads to a later use. On a consistent page, the number of steps is not higher
        // than the number of slabs.
        for _ in 0..=slabs {
            let state = self.state(page);
            let bytes = state.bytes();
            match state.compare(self.use_number, slabs) {
                SlabUse::Later(use_number) => {
                    self.use_number = use_number - slabs + 1;
                    self.taken = 0;
                    self.slots.iter_mut().for_each(|slot| slot.may_jump = true);
                }
                SlabUse::Earlier => return Ok(None),
                SlabUse::This if bytes <= self.header.slab_bytes && bytes >= self.taken => {
                    let is_news = bytes > self.taken || state.is_closed();
                    return Ok(is_news.then_some(state));
                }
                SlabUse::This | SlabUse::Impossible => break,
            }
        }
        Err(Misfit { offset: 0, defect: LaneDefect::State })
    }

    /// Reads the committed frames of the use. Returns false if the writer has overwritten the slab
    /// during the read, or if the slab has no more unread frames.
    fn read(
        &mut self,
        memory: &impl ReaderMemory,
        buffer: &mut LaneBuffer,
        state: SlabState,
        clocks: &LaneClocks<'_>,
    ) -> Result<Result<bool, Misfit>, LaneReadError> {
        buffer.bytes.resize(state.bytes() - self.taken, 0);
        buffer.frames.clear();
        let at = self.header.slab_at(self.use_number) + self.taken;
        memory.read_at(&mut buffer.bytes, at as u64)?;
        // Acquire: the states below are not older than the bytes above.
        fence(Ordering::Acquire);
        memory.read_at(buffer.page_after.as_mut_slice(), 0)?;
        let after = self.state(&buffer.page_after);
        if !after.is_same_use(state) || after.bytes() < state.bytes() {
            return Ok(Ok(false));
        }
        buffer.slots.clear();
        buffer.slots.extend_from_slice(self.slots.as_slice());
        if let Err(misfit) = self.check(buffer, clocks) {
            return Ok(Err(misfit));
        }
        if buffer.bytes.is_empty() {
            // The writer has closed the use without adding another frame.
            self.advance(memory)?;
            return Ok(Ok(false));
        }
        self.found = buffer.bytes.len();
        self.is_last = state.is_closed();
        Ok(Ok(true))
    }

    /// Continues with the next use, and gives the slab back.
    fn advance(&mut self, memory: &impl ReaderMemory) -> io::Result<()> {
        self.use_number += 1;
        self.taken = 0;
        if !self.gives_back {
            return Ok(());
        }
        // Release: the slab has been read before the writer gets it back.
        fence(Ordering::Release);
        memory.write_at(&encode_pair(self.use_number), RETURNED_AT as u64)
    }

    /// Checks the frames in the buffer and adds them to the list of frames.
    fn check(&self, buffer: &mut LaneBuffer, clocks: &LaneClocks<'_>) -> Result<(), Misfit> {
        let LaneBuffer { page_after, bytes, frames, slots, .. } = buffer;
        let deframer =
            KindDeframer::new(self.header.checksum).with_max_frame_len(self.header.frame_max as usize);
        let bounds = TimeBounds { latest_ns: (clocks.now_ns)().saturating_add(AHEAD_MAX_NS), clocks };
        let mut last_mono_ns = self.last_mono_ns;
        let mut offset = 0;
        while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
            let misfit = |defect| Misfit { offset: self.taken + offset, defect };
            let frame = match deframer.deframe(rest) {
                Ok(DeframeStatus::Frame(frame)) => frame,
                Err(error) if error.is_checksum_mismatch() => return Err(misfit(LaneDefect::Checksum)),
                Ok(DeframeStatus::Incomplete { .. }) | Err(_) => return Err(misfit(LaneDefect::Length)),
            };
            let parts = envelope::split(frame.payload()).ok_or_else(|| misfit(LaneDefect::Envelope))?;
            let sample = SampleHeader::parse(parts.header);
            if sample.flags & !KNOWN_FLAGS != 0 {
                return Err(misfit(LaneDefect::Envelope));
            }
            bounds.check(&sample, last_mono_ns).map_err(misfit)?;
            let (slot, missing) = number(slots, page_after, &sample).map_err(misfit)?;
            last_mono_ns = sample.mono_ns;
            let (length, header_bytes) = (frame.bytes().len(), frame.bytes().len() - frame.payload().len());
            frames.push(LaneFrame { offset, bytes: length, header_bytes, slot, sample, missing });
            offset += length;
        }
        Ok(())
    }
}

/// The permitted sample times of one reading.
struct TimeBounds<'a> {
    latest_ns: u64,
    clocks: &'a LaneClocks<'a>,
}

impl TimeBounds<'_> {
    fn check(&self, sample: &SampleHeader, last_mono_ns: u64) -> Result<(), LaneDefect> {
        if sample.mono_ns < last_mono_ns || sample.mono_ns > self.latest_ns {
            return Err(LaneDefect::Time(sample.mono_ns));
        }
        let is_in_force = |offset: &i64| offset.wrapping_add_unsigned(sample.mono_ns) == sample.wall_ns;
        let fits = self.clocks.wall_offsets_ns.iter().any(is_in_force);
        fits.then_some(()).ok_or(LaneDefect::WallTime(sample.wall_ns))
    }
}

/// Updates the counts of a slot from the number of a sample. Returns the slot of the sample, and
/// the number of samples that are missing before it.
fn number(
    slots: &mut [SlotProgress],
    page: &ControlPage,
    sample: &SampleHeader,
) -> Result<(u8, u64), LaneDefect> {
    let SampleHeader { source, seq, .. } = *sample;
    let found = (0_u8..).zip(slots).find(|(_, slot)| slot.source == source && source != NO_SOURCE);
    let (number, slot) = found.ok_or(LaneDefect::Source(source))?;
    let wrong = LaneDefect::Sequence { source_id: source, seq };
    let missing = seq.checked_sub(slot.next_seq.unwrap_or(seq)).ok_or(wrong)?;
    let lost = number_at(page, lost_at(number)).saturating_sub(slot.explained);
    if (missing > lost && !slot.may_jump) || seq >= number_at(page, begun_at(number)) {
        return Err(wrong);
    }
    // `lost` does not include overwritten samples, because the writer does not know how many
    // samples it overwrites.
    if !std::mem::take(&mut slot.may_jump) {
        slot.explained += missing;
    }
    slot.next_seq = Some(seq + 1);
    Ok((number, missing))
}

/// Returns the number of slab uses that were given back, or `None` if the stored number is not
/// valid.
fn returned(page: &ControlPage) -> Option<u64> {
    pair(number_at(page, RETURNED_AT), number_at(page, RETURNED_AT + 8))
}
