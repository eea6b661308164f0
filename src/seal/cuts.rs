//! Where does a block end? Decided on kinds and lengths of frames, for one frame after the other.

use crate::segment::FrameKind;

/// What packs badly is slow to unpack, and a seek unpacks a whole block: packed, a block has about one part in this many of its limit at most...
const STORED_PART: u64 = 8;
/// ...but unpacked no less than this, or its limit.
const LIMIT_MIN: usize = 1 << 20;

/// The limit of the next block, whose frames are expected to pack as those of the last one did. `limit` is that of all.
pub(super) fn next_limit(limit: usize, raw_bytes: u64, stored_bytes: u64) -> usize {
    let stored_max = limit as u64 / STORED_PART;
    let fitting = raw_bytes.saturating_mul(stored_max) / stored_bytes.max(1);
    usize::try_from(fitting).unwrap_or(limit).clamp(LIMIT_MIN.min(limit), limit)
}

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

    // Goal: what packs well has blocks of the whole limit, what packs badly shorter ones, never too short. Method: by hand.
    #[test]
    fn what_packs_badly_has_short_blocks() {
        const MIB: u64 = 1 << 20;
        for (raw_bytes, stored_bytes, expected) in [
            (4 * MIB, MIB / 20, 4 * MIB),
            (4 * MIB, MIB / 2, 4 * MIB),
            (4 * MIB, MIB, 2 * MIB),
            (2 * MIB, MIB / 2, 2 * MIB),
            (4 * MIB, 4 * MIB, MIB),
            (300, 400, MIB),
            (300, 0, 4 * MIB),
            (u64::MAX, 1, 4 * MIB),
        ] {
            let next = next_limit(4 << 20, raw_bytes, stored_bytes) as u64;
            assert_eq!(next, expected, "{raw_bytes} as {stored_bytes}");
        }
        assert_eq!(next_limit(64 << 10, 100, 100), 64 << 10);
    }

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
