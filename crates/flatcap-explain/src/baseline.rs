//! The usual level and range of a series, computed from earlier blocks. Level and range are
//! quantiles, because a few outliers hardly change quantiles.

/// Four statistics of the windows in one block of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BlockStats {
    pub(super) median: f32,
    /// Median absolute deviation from the median.
    pub(super) deviation: f32,
    pub(super) min: f32,
    pub(super) max: f32,
}

/// The usual level and range of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Baseline {
    /// The usual level, which is the median.
    pub(super) level: f64,
    /// The standard deviation, estimated from the median absolute deviation.
    pub(super) noise: f64,
    /// The ends of the usual range. See [`PEAK_QUANTILE`].
    pub(super) low: f64,
    pub(super) high: f64,
    /// The smallest and the largest value in the baseline.
    pub(super) lowest: f64,
    pub(super) highest: f64,
    /// The number of blocks in the baseline, or 0 for a series that did not exist before.
    pub(super) blocks: u32,
}

/// This quantile of the blocks' largest values is the upper end of the usual range.
// With this quantile, a value that recurs every few blocks is usual, and a single earlier incident
// is not.
const PEAK_QUANTILE: f64 = 0.85;

/// For a normal distribution, the standard deviation divided by the median absolute deviation.
const DEVIATION_FACTOR: f64 = 1.4826;

/// Minimum number of blocks. With fewer blocks, the usual level is not known.
pub(super) const BLOCKS_MIN: usize = 4;

impl BlockStats {
    /// Returns the statistics of some windows, or `None` without windows. Changes the order of the
    /// windows.
    pub(super) fn of(windows: &mut [f32]) -> Option<Self> {
        let median = middle(windows)?;
        let (min, max) =
            windows.iter().fold((f32::MAX, f32::MIN), |(min, max), value| (min.min(*value), max.max(*value)));
        for value in windows.iter_mut() {
            *value = (*value - median).abs();
        }
        Some(Self { median, deviation: middle(windows)?, min, max })
    }

    /// Returns the statistics of a block in which the value never changed.
    pub(super) fn constant(value: f32) -> Self {
        Self { median: value, deviation: 0.0, min: value, max: value }
    }
}

impl Baseline {
    /// Returns the baseline of these blocks, or `None` for fewer than [`BLOCKS_MIN`] blocks.
    pub(super) fn of<'b>(blocks: &(impl ExactSizeIterator<Item = &'b BlockStats> + Clone)) -> Option<Self> {
        if blocks.len() < BLOCKS_MIN {
            return None;
        }
        let mut values = Vec::with_capacity(blocks.len());
        let mut of_blocks = |part: fn(&BlockStats) -> f32, share| {
            values.clear();
            values.extend(blocks.clone().map(part));
            quantile(&mut values, share)
        };
        let level = of_blocks(|block| block.median, 0.5);
        let noise = of_blocks(|block| block.deviation, 0.5) * DEVIATION_FACTOR;
        let high = of_blocks(|block| block.max, PEAK_QUANTILE);
        let low = of_blocks(|block| block.min, 1.0 - PEAK_QUANTILE);
        let lowest = of_blocks(|block| block.min, 0.0);
        let highest = of_blocks(|block| block.max, 1.0);
        // The level and the ends of the range are quantiles of different numbers, so the level may
        // lie outside the range.
        Some(Self {
            level,
            noise,
            low: low.min(level),
            high: high.max(level),
            lowest: lowest.min(level),
            highest: highest.max(level),
            blocks: u32::try_from(blocks.len()).unwrap_or(u32::MAX),
        })
    }

    /// Returns the baseline of a new element. For each block, `peaks` contains the largest value of
    /// the elements that were new in this block, or 0 if there were none. Returns `None` for fewer
    /// than [`BLOCKS_MIN`] blocks.
    pub(super) fn of_newcomers(mut peaks: Vec<f32>) -> Option<Self> {
        if peaks.len() < BLOCKS_MIN {
            return None;
        }
        let high = quantile(&mut peaks, PEAK_QUANTILE).max(0.0);
        Some(Self { high, highest: quantile(&mut peaks, 1.0).max(0.0), ..Self::NOTHING })
    }

    /// The baseline of an element that did not exist before.
    pub(super) const NOTHING: Self =
        Self { level: 0.0, noise: 0.0, low: 0.0, high: 0.0, lowest: 0.0, highest: 0.0, blocks: 0 };

    /// Returns whether all values of the baseline are equal.
    pub(super) fn is_constant(&self) -> bool {
        self.blocks > 0 && self.highest.total_cmp(&self.lowest).is_eq()
    }
}

/// Returns the smallest and the largest value, or `None` if there are no values.
pub(super) fn extremes(values: &[f32]) -> Option<(f32, f32)> {
    let first = *values.first()?;
    Some(values.iter().fold((first, first), |(min, max), value| (min.min(*value), max.max(*value))))
}

/// Returns the lower median. Changes the order of the values.
fn middle(values: &mut [f32]) -> Option<f32> {
    if values.is_empty() {
        return None;
    }
    // The lower of two middle values is used, so that the median is a value that occurred.
    let at = (values.len() - 1) / 2;
    Some(*values.select_nth_unstable_by(at, f32::total_cmp).1)
}

/// Returns an interpolated quantile, or 0 if there are no values. Changes the order of the values.
fn quantile(values: &mut [f32], share: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    #[allow(clippy::cast_precision_loss, reason = "few values")]
    let place = share * (values.len() - 1) as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the slice")]
    let below = place.floor() as usize;
    let (_, one, above) = values.select_nth_unstable_by(below, f32::total_cmp);
    let one = f64::from(*one);
    // `select_nth_unstable_by` does not sort the larger values, so the next value in order is the
    // smallest of them.
    let next = above.iter().copied().min_by(f32::total_cmp).map(f64::from);
    next.map_or(one, |next| one + (next - one) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(windows: &[f32], length: usize) -> Vec<BlockStats> {
        windows.chunks(length).filter_map(|chunk| BlockStats::of(&mut chunk.to_vec())).collect()
    }

    // Proves that the usual range of a steady series is its level, and that too few blocks have no
    // baseline.
    #[test]
    fn a_constant_has_no_range() {
        let constant = blocks(&[7.0; 50], 10);
        let baseline = Baseline::of(&constant.iter()).unwrap();
        let constant_level = Baseline { level: 7.0, low: 7.0, high: 7.0, ..Baseline::NOTHING };
        assert_eq!(baseline, Baseline { lowest: 7.0, highest: 7.0, blocks: 5, ..constant_level });
        assert_eq!(constant[0], BlockStats::constant(7.0));
        assert_eq!(Baseline::of(&constant[..3].iter()), None);
        assert_eq!(BlockStats::of(&mut []), None);
    }

    // Proves that recurring peaks belong to the usual range, and that a single peak does not.
    #[test]
    fn recurring_peaks_are_usual() {
        let mut windows = vec![1.0; 300];
        windows[105] = 90.0;
        let once = Baseline::of(&blocks(&windows, 10).iter()).unwrap();
        assert!(once.high < 1.1 && once.level < 1.1, "{once:?}");
        for block in 0..30 {
            if block % 3 == 0 {
                windows[block * 10 + 4] = 50.0;
            }
        }
        let often = Baseline::of(&blocks(&windows, 10).iter()).unwrap();
        assert!(often.level < 1.1 && often.high > 49.0, "{often:?}");
    }

    // Proves that the majority of the values determines level and noise.
    #[test]
    fn the_majority_counts() {
        let windows: Vec<f32> =
            (0..200_u8).map(|at| if at < 40 { 1000.0 } else { 10.0 + f32::from(at % 5) }).collect();
        let baseline = Baseline::of(&blocks(&windows, 20).iter()).unwrap();
        assert!((baseline.level - 12.0).abs() < 0.1, "{baseline:?}");
        assert!((baseline.noise - 1.4826).abs() < 0.01, "{baseline:?}");
    }
}
