//! A departure, which is a time at which a series differs from its usual range.

use super::baseline::Baseline;
use super::measure::{Measure, ValueClass};
use super::observation::SeriesInfo;
use super::process_exits::ProcessEnd;

/// The distance between the starts of successive windows, in nanoseconds.
// A shorter distance would only find the increments of counters in `USER_HZ`, which are 10 ms.
pub(super) const STEP_NS: u64 = 100_000_000;
/// Number of steps in a window.
// This is 300 ms, the length that `explain` analyzes.
pub(super) const WINDOW_STEPS: usize = 3;
pub(super) const WINDOW_NS: u64 = STEP_NS * WINDOW_STEPS as u64;
/// Time after which the series of a missing element end, in nanoseconds.
pub(super) const FORGETS_AFTER_NS: u64 = 10_000_000_000;

/// The largest departure of a series in a block.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Departure {
    pub(super) table: usize,
    pub(super) column: usize,
    pub(super) element: Option<u32>,
    pub(super) state: Option<Box<str>>,
    pub(super) class: ValueClass,
    /// Wall time of the departure. It is the middle of the window, unless a finer source gives a
    /// more exact time.
    pub(super) wall_ns: i64,
    /// The middle of the window in which the value was observed. A finer source may change
    /// `wall_ns`, but not this time.
    pub(super) observed_ns: i64,
    /// The time at which the element began, if it is new.
    pub(super) born_wall_ns: Option<i64>,
    pub(super) measure: Measure,
    /// The period of the source. The time of the departure is only known to this accuracy.
    pub(super) period_ns: u64,
    pub(super) value: f64,
    pub(super) usual: Baseline,
    pub(super) score: f64,
    /// Whether the value differs only from the earliest blocks of the baseline.
    pub(super) is_early: bool,
    /// The end of the process, if the departure is its end.
    pub(super) ended: Option<ProcessEnd>,
}

/// Returns a departure in the window that ends with a step, and the middle of this window.
pub(super) fn departure_at(
    step: u64,
    info: &SeriesInfo,
    (value, usual, score): (f64, Baseline, f64),
) -> (u64, Departure) {
    // The window reaches two steps back from the step at which it ends.
    let middle_ns = (step * STEP_NS + STEP_NS).saturating_sub(STEP_NS * WINDOW_STEPS as u64 / 2);
    let departure = Departure {
        table: info.table,
        column: info.column,
        element: info.element,
        state: info.state.clone(),
        class: info.measure.class,
        wall_ns: 0,
        observed_ns: 0,
        // This time is monotonic until `keep` converts it.
        born_wall_ns: info.born_ns.filter(|_| info.is_newcomer).map(u64::cast_signed),
        measure: info.measure,
        period_ns: 0,
        value,
        usual,
        score,
        is_early: false,
        ended: None,
    };
    (middle_ns, departure)
}
