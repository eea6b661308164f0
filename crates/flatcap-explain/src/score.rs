//! Scores how unusual a value is. The score is similar to a z-score, but relative to the usual
//! departure of the series instead of its standard deviation.

use super::baseline::Baseline;
use super::measure::Measure;

/// The usual departure of a series without peaks, in standard deviations.
const NOISE_FACTOR: f64 = 3.0;

/// The maximum score of a departure, before the weight of its class.
// Beyond twenty times the usual departure, larger departures give no more certainty.
const SCORE_MAX: f64 = 3.0;

/// Assumed ratio of a departure to the usual departure if the usual departure is 0. An example is a
/// value of unknown scale that differs from a constant.
// There is no scale with which such a value can be compared.
const CONSTANT_TIMES: f64 = 20.0;

/// Maximum order of magnitude of a change from a constant value, relative to this value. With each
/// power of ten, the change gets a higher score.
const LEVELS_MAX: f64 = 6.0;

/// Minimum of the usual departure of a series of unknown scale, as a share of the range of all
/// earlier values.
// A change that happened one time within a minute may happen again, in both directions.
const RANGE_PART: f64 = 1.0 / 3.0;

/// Allowance for a short baseline. With n earlier blocks, the usual departure of unknown scale is
/// multiplied by 1 plus this number divided by n.
// A short time does not show the full range of a value.
const DOUBT_BLOCKS: f64 = 4.0;

/// Exponent for departures of unknown scale. The score of such a departure rises with this power of
/// the ratio to the usual departure. This score reaches the threshold of an event at four times the
/// usual departure, while other scores reach the threshold at eight times.
// An unknown scale has no smallest departure that matters. Such a limit would exclude normal noise
// but could also hide a change.
const RELATIVE_EXPONENT: f64 = 0.5;

/// Score from which an element clearly used more than usual.
pub(super) const CLEAR_SCORE: f64 = 0.75;
/// The weight of an element that waited, used less, or ended by itself.
pub(super) const EFFECT_PART: f64 = 0.4;

/// Returns the score of a value, which says how unusual the value is. The score is 0 if the value's
/// departure from the level is at most the usual departure. For larger departures, the score rises
/// with the ratio of the departure to the usual departure. See "Ranking" in the README of this
/// crate.
pub(super) fn departure_score(value: f64, baseline: &Baseline, measure: Measure) -> f64 {
    let departure = value - baseline.level;
    if (measure.class.is_upward_only() && departure < 0.0) || departure == 0.0 {
        return 0.0;
    }
    let usual = if departure > 0.0 { baseline.high - baseline.level } else { baseline.level - baseline.low };
    let least = measure.least_departure().max(measure.least_relative() * baseline.level.abs());
    let scale = usual.max(NOISE_FACTOR * baseline.noise).max(least);
    let (scale, exponent) = if measure.is_relative {
        let scale = scale.max(RANGE_PART * (baseline.highest - baseline.lowest));
        let doubt = if baseline.blocks > 0 { DOUBT_BLOCKS / f64::from(baseline.blocks) } else { 0.0 };
        (scale * (1.0 + doubt), RELATIVE_EXPONENT)
    } else {
        (scale, 1.0 / SCORE_MAX)
    };
    let times = if scale > 0.0 { (departure.abs() / scale).max(1.0) } else { CONSTANT_TIMES };
    let times = if measure.is_relative && baseline.is_constant() {
        // A value that was constant for n blocks may change once in n blocks.
        let levels = (departure / baseline.level).abs();
        // With a level of 0 the quotient is infinite or NaN.
        let magnitude = if levels.is_finite() { levels.max(1.0).log10().min(LEVELS_MAX) } else { 0.0 };
        times.min(f64::from(baseline.blocks) * (1.0 + magnitude))
    } else {
        times
    };
    measure.weight() * SCORE_MAX * (1.0 - times.powf(-exponent))
}

/// Returns the score of the part of a resource that an element used above its usual level. The
/// score is 0 if the element used at most what is usual for it.
///
/// In contrast to [`departure_score`], there is no smallest part that matters: the score rises with
/// the part, and the element with the largest part has the highest score.
pub(super) fn use_score(value: f64, baseline: &Baseline, measure: Measure) -> f64 {
    let more = value - baseline.level;
    let least_relative = measure.least_relative() * baseline.level.abs();
    let usual = (baseline.high - baseline.level).max(NOISE_FACTOR * baseline.noise).max(least_relative);
    if more <= usual || more <= 0.0 {
        return 0.0;
    }
    // The scale of the class also applies to imported processes.
    let part = more / measure.class.least_departure();
    // A part that only just exceeds the usual one may be chance.
    let certainty = 1.0 - (usual / more).powi(2);
    measure.weight() * SCORE_MAX * (1.0 - (1.0 + part).powf(-1.0 / SCORE_MAX)) * certainty
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::BlockStats;
    use crate::measure::ValueClass;

    fn usual(low: f64, level: f64, high: f64) -> Baseline {
        Baseline { level, low, high, lowest: low, highest: high, noise: 0.0, blocks: 30 }
    }

    fn of_class(class: ValueClass) -> Measure {
        Measure { class, ..Measure::STATE }
    }

    /// Returns the score of a departure that is `times` times the usual departure.
    fn scored(times: f64) -> f64 {
        SCORE_MAX * (1.0 - times.powf(-1.0 / SCORE_MAX))
    }

    fn score(value: f64, baseline: Baseline) -> f64 {
        departure_score(value, &baseline, of_class(ValueClass::TimeShare))
    }

    // Proves that a constant has a score if it changes by at least the least departure, and no
    // score if it changes by less.
    #[test]
    fn constants_that_change_count() {
        let constant = usual(0.0, 0.0, 0.0);
        assert!(score(0.0, constant).abs() < 1e-9);
        assert!(score(0.09, constant).abs() < 1e-9);
        assert!((score(1.0, constant) - scored(10.0)).abs() < 1e-9);
    }

    // Proves that a value within the usual peaks has no score, even if it is far from the level.
    // The score of a value beyond the peaks depends on its distance.
    #[test]
    fn heavy_tails_are_usual() {
        let tails = usual(0.0, 0.1, 0.8);
        assert!(score(0.8, tails).abs() < 1e-9);
        assert!((score(1.5, tails) - scored(2.0)).abs() < 1e-9);
        let noisy = Baseline { noise: 0.5, ..usual(1.0, 1.0, 1.0) };
        assert!(score(2.5, noisy).abs() < 1e-9);
    }

    // Proves that a decrease counts like an increase, except for a share of states.
    #[test]
    fn falls_count() {
        let busy = usual(8.0 / 9.0, 1.0, 1.1);
        assert!((score(0.0, busy) - scored(9.0)).abs() < 1e-9);
        assert!(departure_score(0.0, &busy, Measure::STATE).abs() < 1e-9);
    }

    // Proves that a single outlier among a thousand values of the baseline does not hide a later
    // outlier.
    #[test]
    fn a_single_outlier_hides_nothing() {
        let mut windows = vec![0.05_f32; 1000];
        windows[500] = 2.0;
        let blocks: Vec<_> =
            windows.chunks(50).filter_map(|chunk| BlockStats::of(&mut chunk.to_vec())).collect();
        let baseline = Baseline::of(&blocks.iter()).unwrap();
        assert!(score(2.0, baseline) > 1.8);
    }

    // Proves that an element that did not exist before is compared with 0.
    #[test]
    fn new_elements_are_compared_with_nothing() {
        assert!(score(1.0, Baseline::NOTHING) > 1.5);
        assert!(departure_score(f64::from(256 << 20), &Baseline::NOTHING, of_class(ValueClass::Bytes)) > 1.4);
    }

    // Proves that the score of a used part rises with the part, without a smallest part, and that
    // usual use has no score.
    #[test]
    fn the_larger_part_has_the_higher_score() {
        let of_time = of_class(ValueClass::TimeShare);
        let score = |value: f64, baseline| use_score(value, &baseline, of_time);
        let idle = usual(0.0, 0.0, 0.0);
        let scores: Vec<f64> = [0.001, 0.03, 0.3, 1.0, 2.0].map(|value| score(value, idle)).to_vec();
        assert!(scores.is_sorted_by(|one, next| one < next) && scores[0] > 0.0, "{scores:?}");
        assert!(score(0.0, idle).abs() < 1e-9);
        let busy = usual(0.2, 0.5, 0.8);
        assert!(score(0.8, busy).abs() < 1e-9 && score(0.1, busy).abs() < 1e-9);
        assert!(score(0.9, busy) > 0.0 && score(0.9, busy) < score(0.4, idle));
    }

    // Proves that a value of unknown scale is compared only with earlier values of the same series.
    // An increase, a decrease and a change of a constant depart. Noise and a peak that occurred
    // before do not depart.
    #[test]
    fn an_unknown_scale_is_that_of_the_past() {
        let unknown = Measure { is_relative: true, ..of_class(ValueClass::Count) };
        let score = |value: f64, baseline: &Baseline| departure_score(value, baseline, unknown);
        let noisy = Baseline { noise: 0.01, ..usual(11.9, 12.0, 12.1) };
        assert!(score(3.0, &noisy) > 2.0 && score(1e6, &noisy) > 2.9);
        assert!(score(12.3, &noisy) < 1.5);
        assert!(score(1e-6, &usual(0.0, 0.0, 0.0)) > 1.5, "a constant changes");
        assert!(score(0.0, &usual(0.0, 0.0, 0.0)).abs() < 1e-9);
        let constant = |blocks| score(3.0, &Baseline { blocks, ..usual(12.0, 12.0, 12.0) });
        assert!(constant(4) <= 1.5 && constant(30) > 2.0, "how long it was so counts");
        let once = Baseline { highest: 50.0, ..usual(9.0, 10.0, 11.0) };
        assert!(score(50.0, &once) < 1.5, "as before");
    }
}
