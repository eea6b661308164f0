//! Pooled buffers of whole frames. Each slab lists the samples that it contains.

use std::sync::atomic::Ordering;

use flatcap_os::shared_memory::{SharedNumber, SharedSlice};
use flatcap_stream::HEADER_BYTES_MAX;

/// Maximum number of sample ranges in one slab. A slab that would need more ranges is queued early.
/// A range ends at a gap in the sequence numbers of its source. So this limit applies to the number
/// of losses within a slab, and not to the number of its frames.
pub const RANGES_MAX: usize = 256;
/// Maximum number of frames in one slab. This is the number of frames of the minimum length that
/// fit into 256 KiB, the size of one write. The shortest frame is only an envelope.
const FRAMES_MAX: usize = 4096;
/// Minimum length of a frame in a slab, in bytes. This is the length of an envelope.
const FRAME_BYTES_MIN: usize = 64;

/// Samples of one source with consecutive sequence numbers. All samples are in the same slab and
/// were stamped with the same wall offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRange {
    /// The source's id.
    pub source: u16,
    /// First sequence number.
    pub first_seq: u64,
    /// Last sequence number. The last sequence number is not below the first sequence number.
    pub last_seq: u64,
    /// Start of the first sample on `CLOCK_MONOTONIC`, in nanoseconds.
    pub first_mono_ns: u64,
    /// Start of the last sample on `CLOCK_MONOTONIC`, in nanoseconds.
    pub last_mono_ns: u64,
    /// Offset that is added to monotonic time to get wall time, in nanoseconds.
    pub wall_offset_ns: i64,
    /// Length of the frames of these samples, including headers, in bytes. 32 bits suffice for any
    /// slab, and fit into the padding next to `source`.
    pub bytes: u32,
}

/// Sizes of a committed frame, and the identity of its sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameMeta {
    /// Length of the frame, including the header.
    pub(super) bytes: usize,
    /// Length of the header.
    pub(super) header_bytes: usize,
    pub(super) source: u16,
    pub(super) seq: u64,
    pub(super) mono_ns: u64,
    pub(super) wall_offset_ns: i64,
}

impl SampleRange {
    /// A placeholder.
    const NONE: Self = Self {
        source: u16::MAX,
        first_seq: 0,
        last_seq: 0,
        first_mono_ns: 0,
        last_mono_ns: 0,
        wall_offset_ns: 0,
        bytes: 0,
    };

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.last_seq - self.first_seq + 1
    }
}

/// A buffer of whole frames of one group.
#[derive(Debug)]
pub struct Slab {
    buffer: SharedSlice,
    length: usize,           // <= the length of the buffer
    committed: SharedNumber, // the same, for crash recovery
    headers: Box<[u8]>,
    headers_bytes: usize, // <= the length of `headers`
    frames: usize,        // <= frames_max
    frames_max: usize,
    ranges: Vec<SampleRange>,
    /// Time at which the slab was queued, in monotonic nanoseconds.
    pub queued_ns: u64,
}

impl Slab {
    /// Creates an empty slab that stores its frames in `buffer`. `committed` will contain the
    /// number of bytes of the slab's whole frames.
    pub(super) fn new(buffer: SharedSlice, committed: SharedNumber) -> Self {
        let frames_max = Self::frames_max(buffer.bytes().len());
        let mut slab = Self {
            buffer,
            committed,
            length: 0,
            // The list is filled with ones, because zeroed memory may not be mapped yet. So the
            // memory is mapped now and not when a later frame is written.
            headers: vec![1; frames_max * HEADER_BYTES_MAX].into_boxed_slice(),
            headers_bytes: 0,
            frames: 0,
            frames_max,
            ranges: Vec::with_capacity(RANGES_MAX),
            queued_ns: 0,
        };
        slab.ranges.resize(RANGES_MAX, SampleRange::NONE);
        slab.ranges.clear();
        slab
    }

    /// Returns the maximum number of frames in a slab of this size.
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

    /// Returns the number of bytes that a slab of this size needs in addition to its buffer. These
    /// bytes are for the lists of headers and ranges.
    pub const fn overhead_bytes(bytes: usize) -> usize {
        Self::frames_max(bytes) * HEADER_BYTES_MAX + RANGES_MAX * size_of::<SampleRange>()
    }

    /// Returns the concatenated bytes of all frames.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes().get(..self.length).unwrap_or_default()
    }

    /// Returns the concatenated headers of all frames. A header contains the length and the stored
    /// checksum. A digest over the headers covers the frames, so the frames need not be read again.
    pub fn headers(&self) -> &[u8] {
        self.headers.get(..self.headers_bytes).unwrap_or_default()
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Returns the samples in the slab, as ranges.
    pub fn ranges(&self) -> &[SampleRange] {
        &self.ranges
    }

    /// Returns the size of the slab's buffer, in bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.bytes().len()
    }

    /// Returns whether the slab has no frame.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the start of the first sample in the slab, or `None` if the slab is empty.
    pub fn first_mono_ns(&self) -> Option<u64> {
        self.ranges.first().map(|run| run.first_mono_ns)
    }

    /// Marks the frames as no longer needed. Crash recovery ignores these frames.
    pub(super) fn release(&mut self) {
        self.committed.get().store(0, Ordering::Release);
    }

    /// Discards the frames and keeps the memory.
    pub fn clear(&mut self) {
        self.release();
        self.length = 0;
        self.headers_bytes = 0;
        self.frames = 0;
        self.ranges.clear();
    }

    /// Returns whether one more frame of `bytes` bytes fits.
    #[inline]
    pub(super) fn fits(&self, bytes: usize) -> bool {
        self.ranges.len() < RANGES_MAX
            && self.frames < self.frames_max
            && self.buffer.length().checked_sub(self.length).is_some_and(|free| bytes <= free)
    }

    /// Returns the space for a frame of `bytes` bytes and for a copy of its header, or `None` if
    /// the frame does not [fit](Self::fits). The caller writes the frame and the header, and then
    /// calls [`commit`](Self::commit).
    #[inline]
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<(&mut [u8], &mut [u8])> {
        let frame = self.buffer.bytes_mut().get_mut(self.length..self.length + bytes)?;
        Some((frame, self.headers.get_mut(self.headers_bytes..self.headers_bytes + HEADER_BYTES_MAX)?))
    }

    /// Adds the frame that the caller has written after the last committed frame.
    #[inline]
    pub(super) fn commit(&mut self, frame: FrameMeta) {
        let FrameMeta { bytes, header_bytes: head_bytes, source, seq, mono_ns, wall_offset_ns } = frame;
        self.headers_bytes += head_bytes;
        self.length += bytes;
        // Release ordering: if the new length is in memory when the process is killed, the frame's
        // bytes are also in memory.
        self.committed.get().store(self.length as u64, Ordering::Release);
        self.frames += 1;
        #[allow(clippy::cast_possible_truncation, reason = "no frame has more than 1 GiB")]
        let frame_bytes = bytes as u32;
        // Only a few sources share a slab, and the latest ranges are last. So this short search
        // finds the open range of the source.
        let open = self.ranges.iter_mut().rev().find(|run| run.source == source);
        match open {
            Some(run) if run.last_seq + 1 == seq && run.wall_offset_ns == wall_offset_ns => {
                run.last_seq = seq;
                run.last_mono_ns = mono_ns;
                run.bytes += frame_bytes;
            }
            _ => self.ranges.push(SampleRange {
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
    use flatcap_os::shared_memory::SharedMemory;

    use super::*;

    fn empty(bytes: usize) -> Slab {
        let mut memory = SharedMemory::anonymous(bytes + 64).unwrap();
        let committed = memory.allocate_number().unwrap();
        memory.align(64);
        Slab::new(memory.allocate(bytes).unwrap(), committed)
    }

    fn append(slab: &mut Slab, source: u16, seq: u64) -> bool {
        if !slab.fits(8) {
            return false;
        }
        slab.commit(FrameMeta {
            bytes: 8,
            header_bytes: 4,
            source,
            seq,
            mono_ns: 1000 + seq,
            wall_offset_ns: i64::from(seq > 100),
        });
        true
    }

    // Proves that the ranges name exactly the sequence numbers in a slab.
    #[test]
    fn runs_break_at_jumps_only() {
        let mut slab = empty(1024);
        for (source, seq) in [(1, 5), (2, 0), (1, 6), (2, 1), (1, 9), (2, 2)] {
            assert!(append(&mut slab, source, seq));
        }
        let seen: Vec<_> =
            slab.ranges().iter().map(|run| (run.source, run.first_seq, run.last_seq)).collect();
        assert_eq!(seen, [(1, 5, 6), (2, 0, 2), (1, 9, 9)]);
        assert_eq!(slab.ranges().iter().map(|run| run.bytes).collect::<Vec<_>>(), [16, 24, 8]);
        assert_eq!((slab.bytes().len(), slab.headers().len(), slab.frames()), (48, 24, 6));
        assert_eq!(slab.first_mono_ns(), Some(1005));
        slab.clear();
        assert!(slab.is_empty() && slab.ranges().is_empty() && slab.headers().is_empty());
        assert!(append(&mut slab, 1, 100) && append(&mut slab, 1, 101));
        assert_eq!(slab.ranges().len(), 2, "the wall clock was stepped between the two");
    }

    // Proves that the bytes, the frames or the ranges can fill a slab, and that the lists of the
    // slab never grow.
    #[test]
    fn a_slab_is_full_by_bytes_frames_or_runs() {
        let mut slab = empty(2 * FRAME_BYTES_MIN + 8);
        let frame =
            FrameMeta { bytes: 66, header_bytes: 12, source: 1, seq: 0, mono_ns: 0, wall_offset_ns: 0 };
        assert!(slab.fits(66) && slab.reserve(66).is_some());
        slab.commit(frame);
        assert!(slab.fits(66) && slab.reserve(66).is_some());
        slab.commit(FrameMeta { seq: 1, ..frame });
        assert!(!slab.fits(66));

        let mut slab = empty(1 << 20);
        let heads = slab.headers.len();
        assert_eq!((0..10_000).take_while(|k| append(&mut slab, 1, k * 2)).count(), RANGES_MAX);
        assert!(slab.ranges.capacity() == RANGES_MAX, "the list of runs never grows");
        slab.clear();
        assert_eq!((101..10_000).take_while(|seq| append(&mut slab, 1, *seq)).count(), FRAMES_MAX);
        assert_eq!(slab.headers.len(), heads, "nor does the list of headers");
    }
}
