//! Options that determine how the values of a query become rows.

use super::steps::Steps;

/// Options that determine how the values of a query become rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowOptions {
    /// Whether a row is an element of a list. Otherwise, a row has the elements as columns.
    pub is_long: bool,
    /// Whether counters become their change per second.
    pub is_rate: bool,
    /// The steps, if a row is a step.
    pub steps: Option<Steps>,
    /// Whether the recording grows, so that the last step is not complete yet.
    pub is_growing: bool,
}
