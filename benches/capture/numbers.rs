//! How do many figures become one? Medians and quantiles, and how they are written. Budget: none.

use std::error::Error;

/// The middle one; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Lowest and highest.
pub fn range(values: &[f64]) -> (f64, f64) {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (lowest, highest)
}

/// The value that `share` (0 to 1) of them do not exceed; 0 of none. Sorts them.
pub fn quantile(values: &mut [u64], share: f64) -> f64 {
    values.sort_unstable();
    let at = ((values.len() as f64 * share).ceil() as usize).saturating_sub(1);
    values.get(at.min(values.len().saturating_sub(1))).map_or(0.0, |value| *value as f64)
}

/// Nanoseconds as people read them.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// A count that must be what it is.
pub fn must_be_equal(what: &str, found: u64, expected: u64) -> Result<(), Box<dyn Error>> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: {found}, and it should be {expected}").into())
}
