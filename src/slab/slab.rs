//! A pooled buffer of whole frames, and what is in it.

use std::sync::atomic::Ordering;

use crate::os::shared_memory::{Piece, SharedNumber};
use crate::stream::HEADER_BYTES_MAX;

/// Most runs that one slab can tell apart; a slab with more is handed over early. A run ends where a source's
/// numbers jump, so this bounds how many losses one slab can show, not how many frames it holds.
pub const RUNS_MAX: usize = 256;
/// Most frames that one slab holds: as many of the shortest (an envelope alone) as fit 256 KiB, the size of one write.
const FRAMES_MAX: usize = 4096;
/// Shortest frame there is in a slab: an envelope.
const FRAME_BYTES_MIN: usize = 64;

/// Readings of one source with consecutive sequence numbers, all in one slab, stamped under one pairing of the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The source's id.
    pub source: u16,
    /// First sequence number.
    pub first_seq: u64,
    /// Last sequence number, at least the first.
    pub last_seq: u64,
    /// Begin of the first reading, in monotonic nanoseconds.
    pub first_mono_ns: u64,
    /// Begin of the last reading, in monotonic nanoseconds.
    pub last_mono_ns: u64,
    /// What was added to monotonic time to get wall time, in nanoseconds.
    pub wall_offset_ns: i64,
    /// Bytes of their frames, headers too. No slab has more than 32 bits tell, and here they find room beside the source.
    pub bytes: u32,
}

/// What a slab is told of a frame that it keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    /// Length with header.
    pub(super) bytes: usize,
    /// Length of the header.
    pub(super) head_bytes: usize,
    pub(super) source: u16,
    pub(super) seq: u64,
    pub(super) mono_ns: u64,
    pub(super) wall_offset_ns: i64,
}

impl Run {
    /// A place for one.
    const NONE: Self = Self {
        source: u16::MAX,
        first_seq: 0,
        last_seq: 0,
        first_mono_ns: 0,
        last_mono_ns: 0,
        wall_offset_ns: 0,
        bytes: 0,
    };

    /// How many readings.
    pub fn count(&self) -> u64 {
        self.last_seq - self.first_seq + 1
    }
}

/// A buffer of whole frames of one group.
#[derive(Debug)]
pub struct Slab {
    buffer: Piece,
    length: usize,           // <= buffer's
    committed: SharedNumber, // the same, for whoever comes when this process was killed
    heads: Box<[u8]>,
    heads_bytes: usize, // <= heads'
    frames: usize,      // <= frames_max
    frames_max: usize,
    runs: Vec<Run>,
    /// When it was handed over, in monotonic nanoseconds.
    pub handed_over_ns: u64,
}

impl Slab {
    /// An empty slab over a piece of memory that is empty. `committed` tells how much of it are whole frames.
    pub(super) fn new(buffer: Piece, committed: SharedNumber) -> Self {
        let frames_max = Self::frames_max(buffer.bytes().len());
        let mut slab = Self {
            buffer,
            committed,
            length: 0,
            // Of ones, as zeros need not be written: the lists are in memory now and not at some later frame.
            heads: vec![1; frames_max * HEADER_BYTES_MAX].into_boxed_slice(),
            heads_bytes: 0,
            frames: 0,
            frames_max,
            runs: Vec::with_capacity(RUNS_MAX),
            handed_over_ns: 0,
        };
        slab.runs.resize(RUNS_MAX, Run::NONE);
        slab.runs.clear();
        slab
    }

    /// Most frames in a slab of so many bytes.
    const fn frames_max(bytes: usize) -> usize {
        let frames = bytes / FRAME_BYTES_MIN;
        if frames == 0 {
            1
        } else if frames > FRAMES_MAX {
            FRAMES_MAX
        } else {
            frames
        }
    }

    /// What a slab of so many bytes takes beside them: its lists of headers and runs.
    pub const fn side_bytes(bytes: usize) -> usize {
        Self::frames_max(bytes) * HEADER_BYTES_MAX + RUNS_MAX * size_of::<Run>()
    }

    /// The frames, one after the other.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes().get(..self.length).unwrap_or_default()
    }

    /// The headers (length and stored checksum) of all frames, one behind the other: what a digest covers, without a walk
    /// through the frames.
    pub fn heads(&self) -> &[u8] {
        self.heads.get(..self.heads_bytes).unwrap_or_default()
    }

    /// How many frames it holds.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// What is in it.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Size of its buffer.
    pub fn capacity(&self) -> usize {
        self.buffer.bytes().len()
    }

    /// Whether it holds no frame.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Begin of the first reading in it; none when empty.
    pub fn first_mono_ns(&self) -> Option<u64> {
        self.runs.first().map(|run| run.first_mono_ns)
    }

    /// Nobody needs the frames any more, not even after a kill.
    pub(super) fn release(&mut self) {
        self.committed.get().store(0, Ordering::Release);
    }

    /// Forgets the frames, keeps the memory.
    pub fn clear(&mut self) {
        self.release();
        self.length = 0;
        self.heads_bytes = 0;
        self.frames = 0;
        self.runs.clear();
    }

    /// Whether there is room for one more frame of `bytes`.
    #[inline]
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.runs.len() < RUNS_MAX
            && self.frames < self.frames_max
            && self.buffer.length().checked_sub(self.length).is_some_and(|left| bytes <= left)
    }

    /// Where there [is room](Self::has_room): the place of a frame of `bytes` and that of a copy of its header, both to be filled
    /// and then kept by [`commit`](Self::commit).
    #[inline]
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<(&mut [u8], &mut [u8])> {
        let frame = self.buffer.bytes_mut().get_mut(self.length..self.length + bytes)?;
        Some((frame, self.heads.get_mut(self.heads_bytes..self.heads_bytes + HEADER_BYTES_MAX)?))
    }

    /// Keeps the frame that was filled behind the last one.
    #[inline]
    pub(super) fn commit(&mut self, kept: Kept) {
        let Kept { bytes, head_bytes, source, seq, mono_ns, wall_offset_ns } = kept;
        self.heads_bytes += head_bytes;
        self.length += bytes;
        // The frame's bytes are in memory before its length says so, whenever the process is killed.
        self.committed.get().store(self.length as u64, Ordering::Release);
        self.frames += 1;
        #[allow(clippy::cast_possible_truncation, reason = "no frame has more than 1 GiB")]
        let frame_bytes = bytes as u32;
        // Few sources share a slab and the latest runs stand last, so a short walk finds the open run.
        let open = self.runs.iter_mut().rev().find(|run| run.source == source);
        match open {
            Some(run) if run.last_seq + 1 == seq && run.wall_offset_ns == wall_offset_ns => {
                run.last_seq = seq;
                run.last_mono_ns = mono_ns;
                run.bytes += frame_bytes;
            }
            _ => self.runs.push(Run {
                source,
                first_seq: seq,
                last_seq: seq,
                first_mono_ns: mono_ns,
                last_mono_ns: mono_ns,
                wall_offset_ns,
                bytes: frame_bytes,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::shared_memory::SharedMemory;

    fn empty(bytes: usize) -> Slab {
        let mut memory = SharedMemory::anonymous(bytes + 64).unwrap();
        let committed = memory.take_number().unwrap();
        memory.align(64);
        Slab::new(memory.take(bytes).unwrap(), committed)
    }

    fn append(slab: &mut Slab, source: u16, seq: u64) -> bool {
        if !slab.has_room(8) {
            return false;
        }
        slab.commit(Kept {
            bytes: 8,
            head_bytes: 4,
            source,
            seq,
            mono_ns: 1000 + seq,
            wall_offset_ns: i64::from(seq > 100),
        });
        true
    }

    // Goal: runs tell exactly which numbers are in a slab. Method: two interleaved sources, one with a jump.
    #[test]
    fn runs_break_at_jumps_only() {
        let mut slab = empty(1024);
        for (source, seq) in [(1, 5), (2, 0), (1, 6), (2, 1), (1, 9), (2, 2)] {
            assert!(append(&mut slab, source, seq));
        }
        let seen: Vec<_> = slab.runs().iter().map(|run| (run.source, run.first_seq, run.last_seq)).collect();
        assert_eq!(seen, [(1, 5, 6), (2, 0, 2), (1, 9, 9)]);
        assert_eq!(slab.runs().iter().map(|run| run.bytes).collect::<Vec<_>>(), [16, 24, 8]);
        assert_eq!((slab.bytes().len(), slab.heads().len(), slab.frames()), (48, 24, 6));
        assert_eq!(slab.first_mono_ns(), Some(1005));
        slab.clear();
        assert!(slab.is_empty() && slab.runs().is_empty() && slab.heads().is_empty());
        assert!(append(&mut slab, 1, 100) && append(&mut slab, 1, 101));
        assert_eq!(slab.runs().len(), 2, "the wall clock was stepped between the two");
    }

    // Goal: a slab is full by bytes, by frames or by runs, and never grows. Method: fill it each way.
    #[test]
    fn a_slab_is_full_by_bytes_frames_or_runs() {
        let mut slab = empty(2 * FRAME_BYTES_MIN + 8);
        let frame = Kept { bytes: 66, head_bytes: 12, source: 1, seq: 0, mono_ns: 0, wall_offset_ns: 0 };
        assert!(slab.has_room(66) && slab.reserve(66).is_some());
        slab.commit(frame);
        assert!(slab.has_room(66) && slab.reserve(66).is_some());
        slab.commit(Kept { seq: 1, ..frame });
        assert!(!slab.has_room(66));

        let mut slab = empty(1 << 20);
        let heads = slab.heads.len();
        assert_eq!((0..10_000).take_while(|k| append(&mut slab, 1, k * 2)).count(), RUNS_MAX);
        assert!(slab.runs.capacity() == RUNS_MAX, "the list of runs never grows");
        slab.clear();
        assert_eq!((101..10_000).take_while(|seq| append(&mut slab, 1, *seq)).count(), FRAMES_MAX);
        assert_eq!(slab.heads.len(), heads, "nor does the list of headers");
    }
}
