//! Units in which the limits of settings are written.

// Units of sizes, in bytes.
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const TIB: u64 = 1 << 40;
// Units of durations, in nanoseconds.
pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000 * US;
pub(super) const SECOND: u64 = 1_000 * MS;
pub(super) const HOUR: u64 = 60 * 60 * SECOND;
pub(super) const DAY: u64 = 24 * HOUR;
// Unit of shares, in hundredths of a percent.
pub(super) const PERCENT: u64 = 100;
