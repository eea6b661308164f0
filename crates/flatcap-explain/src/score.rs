//! How unusual a value is.

use super::baseline::Baseline;
use super::measure::ValueClass;

/// The share of a departure from the level that counts as usual when a series has no peaks: so many
/// standard deviations.
const NOISE_FACTOR: f64 = 3.0;

/// More than this no departure scores, before the weight of its class: beyond twenty times the
/// usual, larger numbers are no more certain.
const SCORE_MAX: f64 = 3.0;

/// Returns how unusual a value is: 0 if it departs no further from the level than what is usual,
/// then rising with the logarithm of how many times further. Docs: "Ranking" in
/// docs/ARCHITECTURE.md.
pub(super) fn departure_score(value: f64, baseline: &Baseline, class: ValueClass) -> f64 {
    let departure = value - baseline.level;
    if class.is_upward_only() && departure < 0.0 {
        return 0.0;
    }
    let usual = if departure > 0.0 { baseline.high - baseline.level } else { baseline.level - baseline.low };
    let least = class.least_departure().max(class.least_relative() * baseline.level.abs());
    let scale = usual.max(NOISE_FACTOR * baseline.noise).max(least);
    let times = (departure.abs() / scale).max(1.0);
    class.weight() * SCORE_MAX * (1.0 - (-times.ln() / SCORE_MAX).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::BlockStats;

    fn usual(low: f64, level: f64, high: f64) -> Baseline {
        Baseline { level, noise: 0.0, low, high }
    }

    /// The score of a departure of so many times the usual one.
    fn scored(times: f64) -> f64 {
        SCORE_MAX * (1.0 - times.powf(-1.0 / SCORE_MAX))
    }

    fn score(value: f64, baseline: Baseline) -> f64 {
        departure_score(value, &baseline, ValueClass::TimeShare)
    }

    // Proves that a constant that changes by what matters has a score, and one that changes by less
    // has none.
    #[test]
    fn constants_that_change_count() {
        let constant = usual(0.0, 0.0, 0.0);
        assert!(score(0.0, constant).abs() < 1e-9);
        assert!(score(0.09, constant).abs() < 1e-9);
        assert!((score(1.0, constant) - scored(10.0)).abs() < 1e-9);
    }

    // Proves that a value within the usual peaks has no score however far it is from the level, and
    // one beyond them a score by how far.
    #[test]
    fn heavy_tails_are_usual() {
        let tails = usual(0.0, 0.1, 0.8);
        assert!(score(0.8, tails).abs() < 1e-9);
        assert!((score(1.5, tails) - scored(2.0)).abs() < 1e-9);
        let noisy = Baseline { level: 1.0, noise: 0.5, low: 1.0, high: 1.0 };
        assert!(score(2.5, noisy).abs() < 1e-9);
    }

    // Proves that a fall counts like a rise, except of a share of states.
    #[test]
    fn falls_count() {
        let busy = usual(8.0 / 9.0, 1.0, 1.1);
        assert!((score(0.0, busy) - scored(9.0)).abs() < 1e-9);
        assert!(departure_score(0.0, &busy, ValueClass::StateShare).abs() < 1e-9);
    }

    // Proves that one value of a thousand in the baseline does not hide another one later.
    #[test]
    fn a_single_outlier_hides_nothing() {
        let mut windows = vec![0.05_f32; 1000];
        windows[500] = 2.0;
        let blocks: Vec<_> =
            windows.chunks(50).filter_map(|chunk| BlockStats::of(&mut chunk.to_vec())).collect();
        let baseline = Baseline::of(&blocks.iter()).unwrap();
        assert!(score(2.0, baseline) > 1.8);
    }

    // Proves that what did not exist before is compared with nothing.
    #[test]
    fn new_elements_are_compared_with_nothing() {
        assert!(score(1.0, Baseline::NOTHING) > 1.5);
        assert!(departure_score(f64::from(256 << 20), &Baseline::NOTHING, ValueClass::Bytes) > 1.4);
    }
}
