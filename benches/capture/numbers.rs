//! Medians, quantiles and their formatting. Budget: none.

use std::error::Error;

/// The median; 0 if there are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The lowest and the highest value.
pub fn range(values: &[f64]) -> (f64, f64) {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (lowest, highest)
}

/// The smallest value that at least `share` (0 to 1) of the values do not exceed; 0 if there are
/// none. Sorts them.
pub fn quantile(values: &mut [u64], share: f64) -> f64 {
    values.sort_unstable();
    let at = ((values.len() as f64 * share).ceil() as usize).saturating_sub(1);
    values.get(at.min(values.len().saturating_sub(1))).map_or(0.0, |value| *value as f64)
}

/// Formats nanoseconds with a suitable unit.
pub fn format_ns(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// Fails if a count differs from the expected one.
pub fn ensure_equal(what: &str, found: u64, expected: u64) -> Result<(), Box<dyn Error>> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: {found}, expected {expected}").into())
}
