//! Determines the block boundaries from the kinds and lengths of the frames, one frame at a time.

use flatcap_format::segment::FrameKind;

/// The stored size of a block is at most about the general limit divided by this number. Data that
/// compresses poorly is slow to decompress, and a seek has to decompress an entire block.
const STORED_FRACTION: u64 = 8;
/// Lower bound on the limit of a block in raw bytes, unless the general limit of blocks is lower.
/// This lower bound has priority over `STORED_FRACTION`.
const LIMIT_MIN: usize = 1 << 20;

/// Returns the limit of the next block, assuming that its frames compress as well as the last block
/// did. The parameter `limit` is the general limit of blocks.
pub(super) fn next_limit(limit: usize, raw_bytes: u64, stored_bytes: u64) -> usize {
    let stored_max = limit as u64 / STORED_FRACTION;
    let fitting = raw_bytes.saturating_mul(stored_max) / stored_bytes.max(1);
    usize::try_from(fitting).unwrap_or(limit).clamp(LIMIT_MIN.min(limit), limit)
}

/// Returns whether a block of `filled` bytes ends before a frame. This is so if the frame does not
/// fit or is the footer. The footer gets a separate block, so that a reader that opens a compressed
/// segment decompresses only the block of the footer.
pub(super) fn ends_before(kind: FrameKind, bytes: usize, filled: usize, limit: usize) -> bool {
    filled > 0 && (filled.saturating_add(bytes) > limit || kind == FrameKind::Footer)
}

/// Returns whether a block of `filled` bytes ends after a frame. The header has a separate block.
/// An Index frame ends a nearly full block, because that block would otherwise get only the start
/// of the next interval.
pub(super) fn ends_after(kind: FrameKind, filled: usize, limit: usize) -> bool {
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

    // Proves that well compressible data gets blocks as long as the limit, and that other data gets
    // shorter blocks, but not shorter than the minimum.
    #[test]
    fn poorly_compressible_data_has_short_blocks() {
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

    /// Returns the lengths of the blocks made of these frames.
    fn blocks(frames: &[(FrameKind, usize)], limit: usize) -> Vec<usize> {
        let (mut blocks, mut filled) = (Vec::new(), 0);
        for (kind, bytes) in frames {
            if ends_before(*kind, *bytes, filled, limit) {
                blocks.push(std::mem::take(&mut filled));
            }
            filled += bytes;
            if ends_after(*kind, filled, limit) {
                blocks.push(std::mem::take(&mut filled));
            }
        }
        blocks.push(filled);
        blocks
    }

    // Proves that header and footer get separate blocks, and that a block exceeds the limit only if
    // it has a single frame. An Index frame ends a nearly full block.
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
