//! Computes quantiles of histograms whose buckets are series with the label `le`.

use std::collections::BTreeMap;

use crate::labels::Labels;
use crate::series::LabelledSeries;

/// The name of the label that contains the upper bound of a bucket.
const BOUND: &str = "le";

/// Upper bound and counts of a bucket.
type Bucket = (f64, Vec<Option<f64>>);

/// Returns the quantiles of each histogram, interpolated within a bucket as in Prometheus.
pub(crate) fn histogram_quantiles(quantiles: &[f64], buckets: Vec<LabelledSeries>) -> Vec<LabelledSeries> {
    let mut histograms: BTreeMap<Labels, Vec<Bucket>> = BTreeMap::new();
    for LabelledSeries { labels, values } in buckets {
        let Some(bound) = bound_of(labels.get(BOUND)) else { continue };
        histograms.entry(labels.without(&[BOUND.to_owned()])).or_default().push((bound, values));
    }
    let histograms = histograms.into_iter().map(|(labels, mut buckets)| {
        buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let values = quantiles.iter().enumerate().map(|(step, quantile)| {
            let counts =
                buckets.iter().filter_map(|(bound, values)| Some((*bound, values.get(step).copied()??)));
            quantile_of(*quantile, counts.collect())
        });
        LabelledSeries { labels, values: values.collect() }
    });
    histograms.filter(LabelledSeries::has_values).collect()
}

fn bound_of(text: &str) -> Option<f64> {
    if text == "+Inf" { Some(f64::INFINITY) } else { text.parse().ok() }
}

/// Returns a quantile from the cumulative counts of buckets. The buckets are sorted by ascending
/// bounds.
fn quantile_of(quantile: f64, mut counts: Vec<(f64, f64)>) -> Option<f64> {
    counts.first()?;
    if quantile.is_nan() {
        return Some(f64::NAN);
    }
    if quantile < 0.0 {
        return Some(f64::NEG_INFINITY);
    }
    if quantile > 1.0 {
        return Some(f64::INFINITY);
    }
    // The counts of buckets with the same bound are added.
    counts.dedup_by(|next, before| {
        let is_same = next.0.total_cmp(&before.0).is_eq();
        if is_same {
            before.1 += next.1;
        }
        is_same
    });
    // Buckets may come from different scrapes, so each count is raised at least to the count of the
    // next lower bound.
    let mut least = counts.first()?.1;
    for (_, count) in &mut counts {
        if *count > least {
            least = *count;
        } else if *count < least {
            *count = least;
        }
    }
    let (last_bound, total) = *counts.last()?;
    // Without the bucket `+Inf` the total is not known.
    if !last_bound.is_infinite() || counts.len() < 2 || total == 0.0 {
        return Some(f64::NAN);
    }
    let rank = quantile * total;
    let bucket = counts.iter().position(|(_, count)| *count >= rank).unwrap_or(counts.len() - 1);
    let before = bucket.checked_sub(1).and_then(|before| counts.get(before)).copied();
    let (bound, count) = counts.get(bucket).copied()?;
    // The last bucket has no upper bound, so nothing is interpolated in it.
    if bucket + 1 == counts.len() {
        return before.map(|(bound, _)| bound);
    }
    // A first bucket with a bound of at most 0 has no known lower bound.
    if bucket == 0 && bound <= 0.0 {
        return Some(bound);
    }
    // As in Prometheus, a first bucket with a positive bound begins at 0.
    let (start, below) = before.unwrap_or((0.0, 0.0));
    Some(start + (bound - start) * ((rank - below) / (count - below)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a quantile is interpolated within its bucket, and that a quantile in the last
    // bucket is the bucket's lower bound. Values that do not form a histogram have no quantile.
    #[test]
    fn quantiles_are_interpolated() {
        let inf = f64::INFINITY;
        let of = |quantile, counts: &[(f64, f64)]| quantile_of(quantile, counts.to_vec()).unwrap();
        let counts = [(1.0, 10.0), (2.0, 30.0), (inf, 40.0)];
        for (quantile, expected) in [(0.0, 0.0), (0.25, 1.0), (0.5, 1.5), (0.75, 2.0), (0.9, 2.0), (1.0, 2.0)]
        {
            assert!((of(quantile, &counts) - expected).abs() < 1e-12, "{quantile}");
        }
        assert!(of(0.5, &[(1.0, 10.0), (2.0, 30.0)]).is_nan() && of(0.5, &[(inf, 3.0)]).is_nan());
        assert!(of(-1.0, &counts) < 0.0 && of(2.0, &counts).is_infinite());
        // A bucket that was scraped later has a larger count than the last bucket.
        assert!((of(0.99, &[(0.1, 3.0), (1.0, 2.0), (inf, 2.0)]) - 0.099).abs() < 1e-12);
        assert_eq!(quantile_of(0.5, Vec::new()), None);
    }
}
