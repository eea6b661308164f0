//! A lane that is being read, with its memory, its sources and its state (open or ending).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::PoisonError;

use flatcap_lane::envelope::ENVELOPE_BYTES;
use flatcap_lane::{
    CONTROL_BYTES, LaneBatch, LaneBuffer, LaneClocks, LaneFlags, LaneFrame, LaneHeader, LaneReader,
};
use flatcap_os::clock::monotonic_ns;
use flatcap_os::sealed_memory::{create_fixed_length, free_pages_from};
use flatcap_slab::Causes;

use super::frame_sink::FrameSink;
use super::payload_verification::{PayloadVerification, is_valid};
use super::source_pool::{PushedSource, SourcePool};
use super::source_setup::RegisteredSource;
use super::user_rates::PushedAmount;

/// Maximum number of slabs read from a lane per turn, so that the other lanes are also read.
const SLABS_PER_TURN: u32 = 16;
/// Maximum duration of a turn. A turn ends after the slab during which this duration is exceeded.
/// The limit is needed because frames may be expensive to verify.
const TURN_NS: u64 = 2_000_000;
/// Limit on the slabs that are read after a lane has ended, as a multiple of the lane's slab count.
/// So a client that continues to write does not keep the lane open.
const LAST_ROUNDS_MAX: u32 = 2;

/// A lane.
#[derive(Debug)]
pub(super) struct Lane {
    /// The client that writes to the lane.
    pub(super) client: u64,
    memory: File,
    reader: LaneReader,
    sources: BTreeMap<u8, LaneSource>, // by slot
    begun_ns: u64,
    state: LaneState,
}

/// A source that is bound to a slot.
#[derive(Debug)]
struct LaneSource {
    registered: RegisteredSource,
    source: PushedSource,
    first_seq: u64,
    is_verified: bool, // the first payload was
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneState {
    /// The client may write to the lane.
    Open,
    /// The client must not write to the lane any more. The field contains the maximum number of
    /// slabs that may still be read.
    Ending { slabs_left: u32 },
}

/// The result of a turn of reading a lane.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LaneProgress {
    /// The lane had no new frames.
    Empty,
    /// New frames were read, and the lane is now empty.
    Frames,
    /// New frames were read, and the lane may have more frames.
    More,
    /// The recorder does not keep up, so the frames stay in the lane.
    Blocked,
    /// The client violated the protocol. The lane must not be read again. The message describes the
    /// violation.
    Defect(String),
}

/// The state that all lanes share while they are read.
#[derive(Debug)]
pub(super) struct LaneReading {
    pub(super) buffer: LaneBuffer,
    pub(super) sink: FrameSink,
    pub(super) check: PayloadVerification,
    /// The wall offsets that were in use in this run, with the newest offset last.
    pub(super) wall_offsets_ns: Vec<i64>,
    /// The amount that was read since the caller last set the field to zero.
    pub(super) amount: PushedAmount,
}

impl Lane {
    /// Creates the memory of a lane, which its client may map.
    ///
    /// # Errors
    /// The kernel has no free memory or no free descriptors.
    pub(super) fn create(client: u64, header: LaneHeader, wall_offset_ns: i64) -> io::Result<Self> {
        let memory = create_fixed_length("flatcap-lane", header.bytes())?;
        memory.write_all_at(&header.first_page(wall_offset_ns), 0)?;
        Ok(Self {
            client,
            memory,
            reader: LaneReader::new(header),
            sources: BTreeMap::new(),
            begun_ns: monotonic_ns(),
            state: LaneState::Open,
        })
    }

    /// Returns the memory of the lane, which is passed to the client.
    pub(super) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Returns the header of the lane.
    pub(super) fn header(&self) -> &LaneHeader {
        self.reader.header()
    }

    /// Returns the user of the lane's client.
    pub(super) fn uid(&self) -> u32 {
        self.reader.header().uid
    }

    /// Returns the length of the lane's memory, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.reader.header().bytes()
    }

    /// Returns whether the client may still use the lane.
    pub(super) fn is_open(&self) -> bool {
        self.state == LaneState::Open
    }

    /// Returns whether a source is bound to this slot.
    pub(super) fn is_bound(&self, slot: u8) -> bool {
        self.sources.contains_key(&slot)
    }

    /// Binds a source to a free slot. If writing to the lane's memory fails, returns the source.
    pub(super) fn bind(
        &mut self,
        slot: u8,
        registered: RegisteredSource,
        source: PushedSource,
    ) -> Result<(), PushedSource> {
        if self.reader.bind(&self.memory, slot, source.id, source.next_seq).is_err() {
            return Err(source);
        }
        let first_seq = source.next_seq;
        self.sources.insert(slot, LaneSource { registered, source, first_seq, is_verified: false });
        Ok(())
    }

    /// Updates the wall offset that the client reads.
    pub(super) fn set_wall_offset(&self, wall_offset_ns: i64) {
        // The write would fail only for lack of memory, and all memory of the lane is already
        // allocated.
        let _stays = self.reader.set_wall_offset(&self.memory, wall_offset_ns);
    }

    /// Marks the lane as ended, so that the client stops writing to it. The lane is still read
    /// until it is empty.
    pub(super) fn end(&mut self) {
        if self.is_open() {
            let _stays = self.reader.set_flags(&self.memory, LaneFlags::ENDED);
            let slabs = u32::try_from(self.reader.header().slabs).unwrap_or(u32::MAX);
            self.state = LaneState::Ending { slabs_left: slabs.saturating_mul(LAST_ROUNDS_MAX) };
        }
    }

    /// Passes on new frames, up to the limits of a turn.
    pub(super) fn read(&mut self, reading: &mut LaneReading) -> LaneProgress {
        let LaneReading { buffer, sink, check, wall_offsets_ns, amount } = reading;
        let clocks = LaneClocks { now_ns: &monotonic_ns, wall_offsets_ns };
        let begin_ns = monotonic_ns();
        for turn in 0..SLABS_PER_TURN {
            if self.state == (LaneState::Ending { slabs_left: 0 }) {
                return LaneProgress::Empty;
            }
            if !sink.has_space() {
                return LaneProgress::Blocked;
            }
            let batch = match self.reader.look(&self.memory, buffer, &clocks) {
                Ok(Some(batch)) => batch,
                Ok(None) if turn == 0 => return LaneProgress::Empty,
                Ok(None) => return LaneProgress::Frames,
                Err(error) => return LaneProgress::Defect(error.to_string()),
            };
            amount.frames += batch.frames.len() as u64;
            amount.bytes += batch.bytes.len() as u64;
            let now_ns = monotonic_ns();
            let bounds = (self.begun_ns, now_ns);
            if let Err(defect) = pass(&mut self.sources, &batch, *check, bounds, sink) {
                return LaneProgress::Defect(defect);
            }
            if let Err(error) = self.reader.take(&self.memory, buffer) {
                return LaneProgress::Defect(error.to_string());
            }
            if let LaneState::Ending { slabs_left } = &mut self.state {
                *slabs_left -= 1;
            }
            if now_ns.saturating_sub(begin_ns) > TURN_NS {
                break;
            }
        }
        LaneProgress::More
    }

    /// Ends the lane. Accounts for the samples that were begun but not passed on, and releases the
    /// lane's sources and its memory. `causes` are the causes of the missing samples that the
    /// client has not counted as lost.
    pub(super) fn finish(mut self, causes: Causes, sink: &mut FrameSink, pool: &mut SourcePool) {
        let now_ns = monotonic_ns();
        for account in self.reader.accounts(&self.memory).unwrap_or_default() {
            let Some(LaneSource { source, first_seq, .. }) = self.sources.get_mut(&account.slot) else {
                continue;
            };
            let bound = plausible_end(*first_seq, (self.begun_ns, now_ns));
            // Ignores a number that is not plausible.
            let end = if account.begun <= bound { account.begun } else { 0 };
            let missing = end.saturating_sub(source.next_seq);
            let counted = if causes == Causes::Damaged { 0 } else { missing.min(account.lost) };
            sink.lose(source, counted, Causes::QueueFull);
            sink.lose(source, missing - counted, causes);
        }
        for (_, LaneSource { registered, source, .. }) in self.sources {
            sink.end(&source);
            pool.give_back(registered.setup, source);
        }
        // The client may keep the memory mapped for as long as the client lives. The first page is
        // not freed, and shows the client that the lane has ended.
        let _kept = free_pages_from(&self.memory, CONTROL_BYTES as u64);
    }
}

/// Passes on the frames of a batch until a frame is refused.
fn pass(
    sources: &mut BTreeMap<u8, LaneSource>,
    batch: &LaneBatch<'_>,
    check: PayloadVerification,
    bounds: (u64, u64),
    sink: &mut FrameSink,
) -> Result<(), String> {
    for frame in batch.frames {
        let bytes = batch.bytes.get(frame.offset..frame.offset + frame.bytes).unwrap_or_default();
        let bound = sources.get_mut(&frame.slot).ok_or("a frame of a slot without a source")?;
        bound.check(frame, bytes, check, bounds)?;
        sink.pass(&mut bound.source, frame, bytes);
    }
    Ok(())
}

impl LaneSource {
    /// Makes the checks that the lane's reader cannot make. The sequence number must be plausible,
    /// the time must not be before the source's last sample, and the payload must match the schema.
    fn check(
        &mut self,
        frame: &LaneFrame,
        bytes: &[u8],
        check: PayloadVerification,
        bounds: (u64, u64),
    ) -> Result<(), String> {
        let (seq, mono_ns) = (frame.sample.seq, frame.sample.mono_ns);
        let name = self.registered.setup.name();
        if seq >= plausible_end(self.first_seq, bounds) {
            return Err(format!(
                "sample {seq} of {name}: no thread can have begun so many since the lane was made"
            ));
        }
        if mono_ns < self.source.last_mono_ns {
            return Err(format!("sample {seq} of {name}: its time {mono_ns} ns is before the last sample's"));
        }
        let is_due = match check {
            PayloadVerification::All => true,
            PayloadVerification::First => !self.is_verified,
            PayloadVerification::None => false,
        };
        if let Some(verifier) = self.registered.verifier.as_ref().filter(|_| is_due) {
            let payload = bytes.get(frame.header_bytes + ENVELOPE_BYTES..).unwrap_or_default();
            // No other thread uses the verifier, so the lock never waits.
            if !is_valid(&mut verifier.lock().unwrap_or_else(PoisonError::into_inner), payload) {
                return Err(format!(
                    "sample {seq} of {name}: its payload does not fit the schema of the source, or refers to the \
                     same bytes too often"
                ));
            }
        }
        self.is_verified = true;
        Ok(())
    }
}

/// Returns a sequence number that is greater than the number of any sample that a lane can
/// plausibly contain. The bound is based on the fact that a thread begins fewer than one sample per
/// nanosecond. If a client invents a sequence number, the bound limits the number of samples that
/// count as lost.
fn plausible_end(first_seq: u64, (begun_ns, now_ns): (u64, u64)) -> u64 {
    first_seq.saturating_add(now_ns.saturating_sub(begun_ns))
}
