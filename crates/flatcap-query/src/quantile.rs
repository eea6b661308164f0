//! Computes the rank of a quantile.

/// Returns the rank of a quantile among `count` sorted values. The smallest value has the rank 1.
/// The quantile is the smallest value such that at least this share of all values is less than or
/// equal to it. `share` is from 0 to 1. For example, the quantile 0.56 of 25 values has the rank
/// 14.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank: a recording has fewer than 2^53 values"
)]
pub fn quantile_rank(share: f64, count: usize) -> usize {
    // The float nearest to 0.56 is larger than 0.56, and 25 times this float is larger than 14.
    // Without the correction, the product would be rounded up to 15.
    const ROUNDING: f64 = 4.0 * f64::EPSILON;
    let rank = (share * count as f64 * (1.0 - ROUNDING)).ceil() as usize;
    rank.clamp(1, count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that shares in percent and per thousand have the rank that integer arithmetic gives.
    #[test]
    fn ranks_are_those_of_integers() {
        for count in 1..=4096 {
            for percent in 1..=100_u32 {
                let expected = (count * percent as usize).div_ceil(100);
                assert_eq!(quantile_rank(f64::from(percent) / 100.0, count), expected, "{percent} {count}");
            }
            assert_eq!(quantile_rank(0.999, count), (count * 999).div_ceil(1000), "{count}");
        }
        assert_eq!((quantile_rank(0.0, 5), quantile_rank(1.0, 0)), (1, 1));
    }
}
