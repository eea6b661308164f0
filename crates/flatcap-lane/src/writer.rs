//! The writer of a lane. The writer is a single producer (SPSC) that uses only loads and stores and
//! never waits (docs/PUSH.md, "Protocol").

use flatcap_stream::{ChecksumKind, SliceFramer};

use super::atomics::{AtomicU64, Ordering, fence};
use super::envelope::{ENVELOPE_BYTES, SampleHeader};
use super::layout::{
    FLAGS_AT, LaneFlags, LaneHeader, NO_SOURCE, RETURNED_AT, SLOTS, WALL_OFFSET_AT, begun_at, lost_at, pair,
};
use super::slab_state::SlabState;

/// The memory of a lane, for its writer.
pub trait WriterMemory {
    /// Returns the number at an offset of the first page. The offset is a multiple of 8.
    fn number(&self, at: usize) -> &AtomicU64;

    /// Calls `fill` with the `length` bytes at `at`. These bytes are within one slab. No other
    /// thread of this process may access these bytes.
    fn write<R>(&mut self, at: usize, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R;
}

/// The reaction of the writer to a full ring when it must open the next slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFullSlab {
    /// Keeps the ring unchanged.
    Keep,
    /// Overwrites the oldest slab.
    Overwrite,
}

/// The reason why a sample cannot be written now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The slot has no source.
    Unbound,
    /// The recorder currently takes no frames.
    Paused,
    /// The recorder does not read this lane any more.
    Ended,
    /// The payload is longer than a frame of this lane can have.
    TooLarge,
    /// The open slab has not enough free space. The caller then calls [`LaneWriter::open_next`].
    SlabFull,
}

/// The writer of a lane.
#[derive(Debug)]
pub struct LaneWriter<M> {
    memory: M,
    header: LaneHeader,
    checksum: ChecksumKind,
    payload_at: usize, // in a frame
    payload_max: usize,
    open_use: u64,
    slab_at: usize,      // of the open use
    state_at: usize,     // of the open use
    committed: usize,    // bytes of whole frames in the open use
    reusable: u64,       // uses below were given back, or overwritten
    is_wake_sent: bool,  // since the ring was last less than half full
    wall_offset_ns: i64, // the last whole one
    last_mono_ns: u64,   // of the last frame: times never step back in a lane
    slots: Box<[Slot; SLOTS]>,
}

/// A source of the lane. The numbers are copies of the numbers in the memory.
#[derive(Debug, Clone, Copy)]
struct Slot {
    source: u16, // or NO_SOURCE
    begun: u64,
    lost: u64,
}

impl<M: WriterMemory> LaneWriter<M> {
    /// Creates the writer of a new lane. The slabs of the lane must be unused.
    pub fn new(memory: M, header: LaneHeader) -> Self {
        let offset = u64::from_le(memory.number(WALL_OFFSET_AT).load(Ordering::Relaxed));
        Self {
            memory,
            checksum: header.checksum,
            payload_at: header.checksum.frame_bytes(ENVELOPE_BYTES),
            payload_max: header.payload_max(),
            open_use: 0,
            slab_at: header.slab_at(0),
            state_at: header.state_at(0),
            committed: 0,
            reusable: 0,
            is_wake_sent: false,
            wall_offset_ns: offset.cast_signed(),
            last_mono_ns: 0,
            slots: Box::new([Slot { source: NO_SOURCE, begun: 0, lost: 0 }; SLOTS]),
            header,
        }
    }

    /// Returns the lane's header.
    pub fn header(&self) -> &LaneHeader {
        &self.header
    }

    /// Returns the lane's memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Records that the recorder has bound a source to a slot. `source` is the id of the source,
    /// and `next_seq` is the number of its next sample.
    pub fn bind(&mut self, slot: u8, source: u16, next_seq: u64) {
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            *place = Slot { source, begun: next_seq, lost: 0 };
        }
    }

    /// Checks whether a sample with a payload of `payload_bytes` bytes can be written now. Does not
    /// begin a sample.
    ///
    /// # Errors
    /// Returns the reason why the sample cannot be written.
    #[inline]
    pub fn ready(&self, slot: u8, payload_bytes: usize) -> Result<(), Refusal> {
        let flags = self.memory.number(FLAGS_AT).load(Ordering::Relaxed);
        let is_bound = self.slots.get(usize::from(slot)).is_some_and(|slot| slot.source != NO_SOURCE);
        // The sum cannot overflow, because each number in it is at most the slab's length, which is
        // at most 4 MiB.
        if flags == 0
            && is_bound
            && payload_bytes <= self.payload_max
            && self.committed + self.payload_at + payload_bytes <= self.header.slab_bytes
        {
            return Ok(());
        }
        Err(self.refusal(is_bound, flags, payload_bytes))
    }

    #[cold]
    fn refusal(&self, is_bound: bool, flags: u64, payload_bytes: usize) -> Refusal {
        if flags & LaneFlags::ENDED.bits() != 0 {
            Refusal::Ended
        } else if !is_bound {
            Refusal::Unbound
        } else if flags != 0 {
            Refusal::Paused
        } else if payload_bytes > self.payload_max {
            Refusal::TooLarge
        } else {
            Refusal::SlabFull
        }
    }

    /// Writes a sample. The caller must have checked [`ready`](Self::ready) before. `fill` writes
    /// the payload of `payload_bytes` bytes.
    #[inline]
    pub fn push(&mut self, slot: u8, payload_bytes: usize, mono_ns: u64, fill: impl FnOnce(&mut [u8])) {
        self.payload(payload_bytes, fill);
        self.commit(slot, payload_bytes, mono_ns);
    }

    /// Calls `fill` with the bytes for the payload of the next sample. The caller must have checked
    /// [`ready`](Self::ready) with this length before. [`commit`](Self::commit) then turns the
    /// payload into a sample.
    #[inline]
    pub fn payload<R>(&mut self, payload_bytes: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let at = self.slab_at + self.committed + self.payload_at;
        self.memory.write(at, payload_bytes, fill)
    }

    /// Turns the payload that was written with [`payload`](Self::payload), or its first
    /// `payload_bytes` bytes, into a sample.
    ///
    /// # Panics
    /// Never panics, because a payload has at most 4 MiB.
    #[inline]
    pub fn commit(&mut self, slot: u8, payload_bytes: usize, mono_ns: u64) {
        let wall_offset_ns = self.wall_offset_ns();
        let Some(own) = self.slots.get_mut(usize::from(slot)) else { return };
        let seq = own.begun;
        own.begun += 1;
        // After this store, the sample is accounted for.
        self.memory.number(begun_at(slot)).store(own.begun.to_le(), Ordering::Relaxed);
        self.last_mono_ns = self.last_mono_ns.max(mono_ns);
        let sample = SampleHeader {
            mono_ns: self.last_mono_ns,
            wall_ns: wall_offset_ns.wrapping_add_unsigned(self.last_mono_ns),
            seq,
            source: own.source,
            flags: 0,
            duration_ns: 0,
        };
        let (checksum, payload_at) = (self.checksum, self.payload_at);
        let frame_bytes = payload_at + payload_bytes;
        self.memory.write(self.slab_at + self.committed, frame_bytes, |frame| {
            let (_, payload) = frame.split_at_mut(payload_at - ENVELOPE_BYTES);
            if let (Some(envelope), Ok(length)) = (payload.first_chunk_mut(), u32::try_from(payload_bytes)) {
                sample.write_envelope(envelope, length);
            }
            checksum.frame_in_place(frame).expect("a slab is shorter than 4 GiB");
        });
        self.committed += frame_bytes;
        // Release: a reader that sees this length also sees the frame.
        self.store_state(false, Ordering::Release);
    }

    /// Returns the current wall offset, or the previous offset while the offset is being changed.
    #[inline]
    fn wall_offset_ns(&mut self) -> i64 {
        let number = |at: usize| u64::from_le(self.memory.number(at).load(Ordering::Relaxed));
        if let Some(offset) = pair(number(WALL_OFFSET_AT), number(WALL_OFFSET_AT + 8)) {
            self.wall_offset_ns = offset.cast_signed();
        }
        self.wall_offset_ns
    }

    /// Counts a sample that was begun and is lost.
    pub fn lose(&mut self, slot: u8) {
        let Some(own) = self.slots.get_mut(usize::from(slot)).filter(|slot| slot.source != NO_SOURCE) else {
            return;
        };
        own.begun += 1;
        own.lost += 1;
        // The next store of a state makes both numbers visible to readers.
        self.memory.number(begun_at(slot)).store(own.begun.to_le(), Ordering::Relaxed);
        self.memory.number(lost_at(slot)).store(own.lost.to_le(), Ordering::Relaxed);
    }

    /// Closes the open slab and opens the next slab. If the ring is full and must not be
    /// overwritten, changes nothing and returns false.
    #[cold]
    pub fn open_next(&mut self, on_full: OnFullSlab) -> bool {
        let (next, slabs) = (self.open_use + 1, self.header.slabs as u64);
        self.note_returned();
        if next - self.reusable >= slabs {
            if on_full == OnFullSlab::Keep {
                return false;
            }
            self.reusable = next - slabs + 1;
        }
        self.store_state(true, Ordering::Release);
        self.open_use = next;
        self.committed = 0;
        self.slab_at = self.header.slab_at(next);
        self.state_at = self.header.state_at(next);
        self.store_state(false, Ordering::Relaxed);
        // Release: if a reader sees a byte that is written after this fence, the reader also sees
        // that the slab is in another use.
        fence(Ordering::Release);
        true
    }

    fn note_returned(&mut self) {
        // Acquire: the recorder finishes reading a slab before it gives the slab back.
        let first = self.memory.number(RETURNED_AT).load(Ordering::Acquire);
        let second = self.memory.number(RETURNED_AT + 8).load(Ordering::Acquire);
        if let Some(returned) = pair(u64::from_le(first), u64::from_le(second))
            && returned <= self.open_use + 1
        {
            self.reusable = self.reusable.max(returned);
        }
    }

    /// Returns whether the recorder should be woken. The recorder should be woken if more than half
    /// of the slabs are in use. After the method has returned true, it returns false until at most
    /// half of the slabs are in use again.
    pub fn should_wake(&mut self) -> bool {
        let is_half_full = (self.open_use + 1 - self.reusable) * 2 > self.header.slabs as u64;
        let is_due = is_half_full && !self.is_wake_sent;
        self.is_wake_sent = is_half_full;
        is_due
    }

    /// Returns how many samples of a slot were begun, and how many were counted as lost.
    pub fn counts(&self, slot: u8) -> (u64, u64) {
        self.slots.get(usize::from(slot)).map_or((0, 0), |slot| (slot.begun, slot.lost))
    }

    #[inline]
    fn store_state(&self, is_closed: bool, order: Ordering) {
        let state = SlabState::new(self.open_use, self.committed, is_closed);
        self.memory.number(self.state_at).store(state.0.to_le(), order);
    }
}
