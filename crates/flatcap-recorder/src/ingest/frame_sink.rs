//! Puts pushed frames into slabs for the recorder, with exact accounting.

use std::sync::atomic::{Ordering, fence};

use flatcap_lane::LaneFrame;
use flatcap_slab::{Causes, Loss, RANGES_MAX, SampleMeta, SlabProducer};
use flatcap_stream::ChecksumKind;

use super::limits::LANE_SLAB_BYTES;
use super::source_pool::PushedSource;

/// Minimum length of a frame of a lane in bytes, with an envelope and an empty checksum.
const FRAME_BYTES_MIN: usize = 68;
/// Free space that the queue must have before a lane's slab is read, in slabs. The frames of one
/// lane slab fill at most this many slabs, even if a loss precedes each frame. This number includes
/// the slab that was open before the first frame.
const QUEUE_SPACE_MIN: usize = LANE_SLAB_BYTES / FRAME_BYTES_MIN / RANGES_MAX + 2;

/// Accepts verified frames and losses.
#[derive(Debug)]
pub(super) struct FrameSink {
    producer: SlabProducer,
    checksum: ChecksumKind,
}

impl FrameSink {
    /// Creates a sink for frames with this checksum kind.
    pub(super) fn new(producer: SlabProducer, checksum: ChecksumKind) -> Self {
        Self { producer, checksum }
    }

    /// Returns whether the frames of a lane's slab can be queued. If the queue has no space, the
    /// frames remain in the lane, because the lane is the larger buffer.
    pub(super) fn has_space(&self) -> bool {
        self.producer.queue_space() >= QUEUE_SPACE_MIN
    }

    /// Adds a frame of a source. If samples are missing before the frame, their loss is added
    /// first.
    ///
    /// The frame is written to a slab before its sequence number counts as begun. If this process
    /// is killed between these two steps, the run does not account for the frame. In this case, the
    /// lane still contains the frame.
    pub(super) fn pass(&mut self, source: &mut PushedSource, frame: &LaneFrame, bytes: &[u8]) {
        let sample = frame.sample;
        self.lose(source, frame.missing, Causes::QueueFull);
        source.last_mono_ns = sample.mono_ns;
        let meta = SampleMeta {
            source: source.id,
            seq: sample.seq,
            mono_ns: sample.mono_ns,
            wall_offset_ns: sample.wall_ns.wrapping_sub_unsigned(sample.mono_ns),
        };
        self.producer.append_frame(&meta, bytes, self.checksum);
        // Because of the fence, a frame whose number counts as begun is in memory even after a kill
        // at any point.
        fence(Ordering::Release);
        self.begin(source, sample.seq.saturating_add(1));
    }

    /// Records that the next `count` samples of a source are lost.
    pub(super) fn lose(&mut self, source: &mut PushedSource, count: u64, causes: Causes) {
        if count == 0 {
            return;
        }
        let first_seq = source.next_seq;
        self.producer.report_loss(Loss { source: source.id, first_seq, count, causes });
        self.begin(source, first_seq.saturating_add(count));
    }

    /// Records the pending losses of a source if no sample follows for now.
    pub(super) fn end(&mut self, source: &PushedSource) {
        self.producer.flush_loss(source.id);
    }

    /// Marks all samples before `next_seq` as begun. From then on, the run accounts for these
    /// samples.
    fn begin(&mut self, source: &mut PushedSource, next_seq: u64) {
        self.producer.begin_sample(source.id, next_seq.saturating_sub(1));
        source.counters.begun.set(next_seq);
        source.next_seq = next_seq;
    }

    /// Queues the open slab if the slab is due before `next_ns` and the queue has space.
    pub(super) fn flush(&mut self, now_ns: u64, next_ns: u64) {
        if self.producer.queue_space() > 0 && self.producer.is_due(now_ns, next_ns) {
            self.producer.queue_open_slab(now_ns);
        }
    }

    /// Queues the open slab and closes the queue. The closed queue shows the recorder that no slab
    /// follows.
    pub(super) fn finish(self, now_ns: u64) {
        self.producer.finish(now_ns);
    }
}
