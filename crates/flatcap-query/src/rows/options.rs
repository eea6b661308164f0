//! Options that determine how the values of a query become rows.

use super::steps::Steps;

/// Options that determine how the values of a query become rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowOptions {
    /// Whether each row is an element of a list. Otherwise, the elements are columns of a row.
    pub is_long: bool,
    /// Whether counters are converted to their change per second.
    pub is_rate: bool,
    /// The steps, if each row is a step of time.
    pub steps: Option<Steps>,
    /// Whether the recording still grows, so that the last step is not complete yet.
    pub is_growing: bool,
}
