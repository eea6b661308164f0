//! The result of one step in which a part of a segment is read.

use flatcap_format::replay::{Notice, WholeSegment};
use flatcap_format::segment::{FrameKind, Gap, Marker};

/// The result of one step.
#[derive(Debug)]
pub(crate) enum ScanStep {
    /// The step appended rows, or produced no item.
    Continue,
    Gap(Gap),
    Marker(Marker),
    Notice(Notice),
    End,
}

impl ScanStep {
    /// Returns the result for a frame that is not a sample.
    pub(super) fn of_frame(payload: &[u8], segment: &WholeSegment) -> Self {
        let step = match FrameKind::of(payload) {
            Some(FrameKind::Gap) => Gap::decode(payload).filter(|gap| is_wanted(gap, segment)).map(Self::Gap),
            Some(FrameKind::Marker) => Marker::decode(payload)
                .filter(|marker| segment.times.contains(marker.wall_ns, marker.mono_ns))
                .map(Self::Marker),
            _ => None,
        };
        step.unwrap_or(Self::Continue)
    }
}

/// Returns whether a gap is within the times that the query requests. A gap has no wall time.
fn is_wanted(gap: &Gap, segment: &WholeSegment) -> bool {
    // So the wall time is computed from the clock reading in the header.
    let offset_ns = segment.reader.header().clocks.wall_offset_ns();
    let wall_ns = offset_ns.wrapping_add_unsigned(gap.before_mono_ns);
    segment.times.contains(wall_ns, gap.before_mono_ns)
}
