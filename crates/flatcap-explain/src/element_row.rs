//! The rows of an element, and the numbers in these rows.

use flatcap_format::schema::{CountedValue, Growth};
use flatcap_query::{ColumnValues, ValueColumn};

use super::measure::Measure;
use super::observation::SeriesInfo;

/// Maximum time between the two samples from which a change is computed. A longer time without a
/// sample is a hole, not a slow change.
pub(super) const INTERVAL_MAX_NS: u64 = 300_000_000_000;

/// A row of an element, and the time since the previous sample of this element.
#[derive(Debug, Clone, Copy)]
pub(super) struct ElementRow {
    pub(super) row: usize,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// The time of the previous sample, whether or not that sample contains the element.
    pub(super) before_ns: u64,
    /// Whether the element is new and did not exist at `from_ns`.
    pub(super) is_born: bool,
    /// Whether a complete sample after the element's previous row lacks the element. If so, this is
    /// another element with the same identity.
    pub(super) is_another: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Integer(u64),
    Float(f64),
}

/// The element whose series are observed.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeriesPlace {
    pub(super) table: usize,
    pub(super) element: Option<u32>,
    pub(super) born_ns: Option<u64>,
}

impl SeriesPlace {
    pub(super) fn info(&self, column: usize, measure: Measure) -> SeriesInfo {
        SeriesInfo {
            table: self.table,
            column,
            element: self.element,
            measure,
            state: None,
            born_ns: self.born_ns,
            is_newcomer: self.born_ns.is_some(),
        }
    }
}

impl ElementRow {
    /// Returns the time since the element's previous sample, or `None` if there is a hole in
    /// between.
    #[inline]
    pub(super) fn interval_ns(&self) -> Option<u64> {
        // No rate can be computed from two samples with the same time.
        Some(self.to_ns.saturating_sub(self.from_ns)).filter(|ns| (1..=INTERVAL_MAX_NS).contains(ns))
    }
}

/// Returns the growth of a counter during a time, computed in the same way as in all outputs.
/// Returns `None` if the growth is unknown or negative.
pub(super) fn grown(before: Number, now: Number, wraps_at: Option<Number>, elapsed_ns: u64) -> Option<f64> {
    let wraps_at = wraps_at.map(Number::counted);
    let growth = Growth::between((0, before.counted()), (elapsed_ns, now.counted()), wraps_at);
    Some(growth.amount).filter(|amount| growth.is_known() && *amount >= 0.0)
}

/// Returns the growth of an integer counter.
pub(super) fn growth(before: Option<Number>, now: Option<Number>) -> Option<u64> {
    match (before?, now?) {
        (Number::Integer(before), Number::Integer(now)) => now.checked_sub(before),
        _ => None,
    }
}

impl Number {
    fn counted(self) -> CountedValue {
        match self {
            Self::Integer(number) => CountedValue::Unsigned(number),
            Self::Float(number) => CountedValue::Fraction(number),
        }
    }

    /// Returns the bits of the number. Values are compared by their bits.
    pub(super) fn bits(self) -> u64 {
        match self {
            Self::Integer(number) => number,
            Self::Float(number) => number.to_bits(),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "statistics: 53 bits are plenty")]
    pub(super) fn float(self) -> f64 {
        match self {
            Self::Integer(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}

#[inline]
pub(super) fn number(column: &ValueColumn, row: usize) -> Option<Number> {
    // Integers keep all 64 bits, so that small changes of large counters are exact.
    match &column.values {
        ColumnValues::Unsigned(values) if column.valid.has(row) => {
            values.get(row).copied().map(Number::Integer)
        }
        ColumnValues::Unsigned(_) => None,
        _ => column.number(row).filter(|number| number.is_finite()).map(Number::Float),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a length of time")]
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
