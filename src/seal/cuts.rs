//! Where does a block end? Decided on kinds and lengths of frames, for one frame after the other.

use crate::segment::FrameKind;

/// Whether a block that has `filled` bytes ends in front of a frame: it would not fit, or what follows has a block of its own, so that to open
/// a packed segment costs no other one.
pub(super) fn ends_in_front(kind: FrameKind, bytes: usize, filled: usize, limit: usize) -> bool {
    filled > 0 && (filled.saturating_add(bytes) > limit || kind == FrameKind::Footer)
}

/// Whether a block that has `filled` bytes ends behind a frame: the header has one to itself, and behind an Index frame the
/// next interval begins, which a block that is nearly full would only have the beginning of.
pub(super) fn ends_behind(kind: FrameKind, filled: usize, limit: usize) -> bool {
    match kind {
        FrameKind::Header => true,
        FrameKind::Index => filled >= limit - limit / 4,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use FrameKind::{Footer, Header, Index, Telemetry, Trailer};

    use super::*;

    /// Lengths of the blocks that these frames make.
    fn blocks(frames: &[(FrameKind, usize)], limit: usize) -> Vec<usize> {
        let (mut blocks, mut filled) = (Vec::new(), 0);
        for (kind, bytes) in frames {
            if ends_in_front(*kind, *bytes, filled, limit) {
                blocks.push(std::mem::take(&mut filled));
            }
            filled += bytes;
            if ends_behind(*kind, filled, limit) {
                blocks.push(std::mem::take(&mut filled));
            }
        }
        blocks.push(filled);
        blocks
    }

    // Goal: both ends have blocks of their own, none but that of one frame is longer than its limit, and an Index ends one that is nearly
    // full. Method: rows of frames.
    #[test]
    fn blocks_end_where_they_should() {
        let samples = |count: usize| vec![(Telemetry, 10); count];
        let ends = [(Footer, 50), (Trailer, 5)];
        let with = |inner: &[(FrameKind, usize)]| [&[(Header, 70)], inner, &ends].concat();
        assert_eq!(blocks(&with(&samples(25)), 100), [70, 100, 100, 50, 55]);
        assert_eq!(blocks(&with(&[(Telemetry, 500), (Telemetry, 1)]), 100), [70, 500, 1, 55]);
        let indexed = [samples(7), vec![(Index, 5)], samples(3), vec![(Index, 5)], samples(1)].concat();
        assert_eq!(blocks(&with(&indexed), 100), [70, 75, 45, 55]);
        assert_eq!(blocks(&with(&[]), 100), [70, 55]);
    }
}
