//! Times in seconds, the unit of all times in metrics.

use flatcap_os::clock::{NS_PER_S, read_clocks};

/// Converts nanoseconds to seconds: exact to the nanosecond up to a hundred days, to the
/// microsecond beyond.
#[allow(clippy::cast_precision_loss, reason = "53 bits of nanoseconds are a hundred days")]
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Converts wall clock nanoseconds to seconds since 1970, at present exact to a quarter of a
/// microsecond.
#[allow(
    clippy::cast_precision_loss,
    reason = "whole seconds are separate, so that the fraction is rounded once"
)]
pub(super) fn wall_seconds(ns: i64) -> f64 {
    ns.div_euclid(1_000_000_000) as f64 + ns.rem_euclid(1_000_000_000) as f64 / 1e9
}

/// Returns the current time in seconds since 1970.
pub(super) fn now_s() -> u64 {
    u64::try_from(read_clocks().wall_ns / NS_PER_S.cast_signed()).unwrap_or_default()
}
