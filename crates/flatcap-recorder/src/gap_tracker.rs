//! Tracks the gaps of all sources. The module records the samples that are in the files, and the
//! lost samples between them.

use std::sync::Arc;

use flatcap_format::segment::Gap;
use flatcap_metrics::Metrics;
use flatcap_slab::{LossLedger, RANGES_MAX, SampleRange};
use flatcap_stream::{ChecksumKind, HEADER_BYTES_MAX, SliceFramer};

use super::losses::{LossTracker, LostPart};

/// Maximum length of a gap frame, in bytes.
const GAP_FRAME_BYTES_MAX: usize = HEADER_BYTES_MAX + 100;

/// Finds the gaps between the samples that are written.
#[derive(Debug)]
pub(super) struct GapTracker {
    pub(super) losses: LossTracker,
    pub(super) progress: Vec<RecordedProgress>, // per source, by id
    ledger: Arc<LossLedger>,
    metrics: Arc<Metrics>,
}

/// The progress of a source in the files, and its values that were last logged.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecordedProgress {
    pub(super) next_seq: u64,
    pub(super) last_mono_ns: u64,
    pub(super) missed_before: u64,     // in earlier segments
    pub(super) incomplete_before: u64, // in earlier segments
    pub(super) stride: u64,            // as last marked in the file
    pub(super) logged_timed_out: u64,  // as last logged
    pub(super) seen_failed: u64,       // as last seen
    pub(super) logged_errno: u64,      // as last logged
    pub(super) logged_not_failed: u64, // when last logged
}

impl GapTracker {
    pub(super) fn new(ledger: Arc<LossLedger>, metrics: Arc<Metrics>) -> Self {
        let sources = metrics.sources.len();
        let mut tracker = Self { losses: LossTracker::default(), progress: Vec::new(), ledger, metrics };
        tracker.resize_sources(sources);
        tracker
    }

    /// Reads the losses that the samplers have reported in the ledger.
    pub(super) fn read_ledger(&mut self) {
        self.losses.read(&self.ledger);
    }

    /// Extends the state to `sources` sources.
    pub(super) fn resize_sources(&mut self, sources: usize) {
        self.progress.resize(
            sources.max(self.progress.len()),
            RecordedProgress { stride: 1, ..RecordedProgress::default() },
        );
        self.losses.resize_sources(sources);
    }

    /// Adds the initial state of the next source.
    pub(super) fn add_source(&mut self) {
        self.progress.push(RecordedProgress { stride: 1, ..RecordedProgress::default() });
        self.losses.add_source();
    }

    /// Frees the list of losses of a removed source, if the last sample of the source is in the
    /// files.
    pub(super) fn free_losses(&mut self, source: u16) {
        let place = usize::from(source);
        if let (Some(progress), Some(metrics)) = (self.progress.get(place), self.metrics.sources.get(place))
            && metrics.removed.get() == 1
            && progress.next_seq >= metrics.begun.get()
        {
            self.losses.free(source);
        }
    }

    /// Advances a source past a range of samples. Appends the gaps before that range to `gaps`.
    /// There is one gap, or several if some samples were thinned.
    pub(super) fn advance_source(&mut self, run: &SampleRange, gaps: &mut Vec<Gap>) {
        let Some(progress) = self.progress.get_mut(usize::from(run.source)) else { return };
        let first = progress.next_seq;
        if run.first_seq > first {
            let times = (progress.last_mono_ns, run.first_mono_ns);
            self.losses.parts(run.source, (first, run.first_seq), &self.ledger, |part| {
                gaps.push(gap_of(run.source, part, times));
            });
        }
        progress.next_seq = run.last_seq + 1;
        progress.last_mono_ns = run.last_mono_ns;
    }

    /// Returns the gaps for samples that were begun but are in no slab. Used at the end of a run.
    pub(super) fn last_gaps(&self, now: u64) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for (source, (metrics, progress)) in (0..).zip(self.metrics.sources.iter().zip(&self.progress)) {
            let (first, end) = (progress.next_seq, metrics.begun.get());
            if end > first {
                let times = (progress.last_mono_ns, now);
                self.losses.parts(source, (first, end), &self.ledger, |part| {
                    gaps.push(gap_of(source, part, times));
                });
            }
        }
        gaps
    }

    /// Counts a gap that [`last_gaps`](Self::last_gaps) returned and that is in the file. Advances
    /// the state of the source to the end of this gap. The gaps of a source must be passed in the
    /// order of their numbers.
    pub(super) fn count_last_gap(&mut self, gap: &Gap) {
        if let Some(progress) = self.progress.get_mut(usize::from(gap.source)) {
            progress.next_seq = gap.first + gap.count;
        }
        self.count_gap(gap);
    }

    /// Returns the losses that no gap covers yet, and the ledger, which has the causes of the
    /// losses that did not fit into the ledger.
    pub(super) fn reported(&self) -> (&LossTracker, &LossLedger) {
        (&self.losses, &self.ledger)
    }

    /// Counts the samples of a gap as lost or thinned. The gap must be in the file.
    pub(super) fn count_gap(&self, gap: &Gap) {
        let Some(source) = self.metrics.sources.get(usize::from(gap.source)) else { return };
        if gap.is_thinned() {
            source.thinned.add(gap.count);
        } else {
            source.lost.add(gap.count);
            source.causes.set(source.causes.get() | u64::from(gap.causes));
        }
    }
}

fn gap_of(source: u16, part: LostPart, (after_mono_ns, before_mono_ns): (u64, u64)) -> Gap {
    let LostPart { first, count, causes } = part;
    Gap { source, first, count, causes: causes.bits(), after_mono_ns, before_mono_ns }
}

/// Buffers for the gaps of a batch. There is usually at most one gap before each range of samples,
/// so these buffers usually do not grow. Only thinned samples between lost samples cause more gaps.
#[derive(Debug, Default)]
pub(super) struct GapBuffers {
    pub(super) gaps: Vec<Gap>,
    pub(super) frames: Vec<u8>,
    pub(super) headers: Vec<u8>,                // copies of the frames' headers
    pub(super) progress: Vec<RecordedProgress>, // before the batch
}

impl GapBuffers {
    pub(super) fn new(batch_slabs: usize, sources: usize) -> Self {
        let gaps = batch_slabs * RANGES_MAX;
        Self {
            gaps: Vec::with_capacity(gaps),
            frames: Vec::with_capacity(gaps * GAP_FRAME_BYTES_MAX),
            headers: Vec::with_capacity(gaps * HEADER_BYTES_MAX),
            progress: Vec::with_capacity(sources),
        }
    }

    /// Encodes the gaps as frames.
    pub(super) fn frame(&mut self, checksum: ChecksumKind) {
        self.frames.clear();
        self.headers.clear();
        for gap in &self.gaps {
            let payload = gap.encode();
            let header = checksum.header(&payload).expect("a gap is 100 bytes");
            self.headers.extend_from_slice(header.as_bytes());
            self.frames.extend_from_slice(header.as_bytes());
            self.frames.extend_from_slice(&payload);
        }
    }
}

/// Number of bytes that a recorder allocates at its start for losses and gaps, per source and per
/// slab of a batch.
pub const LOSS_BYTES: (usize, usize) =
    (LossTracker::SOURCE_BYTES, RANGES_MAX * (size_of::<Gap>() + GAP_FRAME_BYTES_MAX + HEADER_BYTES_MAX));
