//! How the values of a query become rows.

use super::steps::Steps;

/// How the values of a query become rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowOptions {
    /// A row is an element of a list; otherwise a row has the elements side by side.
    pub is_long: bool,
    /// Counters become their change per second.
    pub is_rate: bool,
    /// A row is a step.
    pub steps: Option<Steps>,
    /// The recording grows, so the last step is not complete yet.
    pub is_growing: bool,
}
