//! A compiled condition, and its evaluation over the current values.

use std::sync::Arc;

use regex::Regex;

use crate::condition::{Arithmetic, CompareSign};
use crate::event::ComparedQuantity;
use crate::exits::ExitWatch;
use crate::slot::FieldSlot;
use crate::truth::Truth;
use crate::unit::Dimension;

/// A compiled condition.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) root: Check,
    /// The sources whose samples may change the result.
    pub(crate) sources: Vec<usize>,
    /// The sources whose absence is tested, each with the time in nanoseconds.
    pub(crate) absences: Vec<(usize, u64)>,
    /// Whether marks may change the result.
    pub(crate) reads_marks: bool,
}

/// A part of a condition.
#[derive(Debug)]
pub(crate) enum Check {
    All(Box<[Check]>),
    Any(Box<[Check]>),
    Not(Box<Check>),
    Compare(CompiledComparison),
    Elements(Box<ElementsCheck>),
    Absent { source: usize, limit_ns: u64, text: Arc<str> },
    Exited { watch: usize, text: Arc<str> },
    Mark { expression: Regex, text: Arc<str> },
}

/// A comparison of two values.
#[derive(Debug)]
pub(crate) struct CompiledComparison {
    pub(crate) text: Arc<str>,
    pub(crate) left: Computed,
    pub(crate) sign: CompareSign,
    pub(crate) right: Computed,
    /// The dimension of the left value; `None` if it is a string.
    pub(crate) dimension: Option<Dimension>,
}

/// A condition on each element of a list.
#[derive(Debug)]
pub(crate) struct ElementsCheck {
    pub(crate) is_every: bool,
    /// A slot of the list.
    pub(crate) anchor: usize,
    /// Whether the result is unknown if the list has no elements.
    pub(crate) needs_element: bool,
    pub(crate) inner: Check,
}

/// A value in base units.
#[derive(Debug)]
pub(crate) enum Computed {
    Number(f64),
    Slot(usize),
    Lateness(usize),
    Pair(Arithmetic, Box<(Computed, Computed)>),
}

/// The state of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceState {
    pub(crate) period_ns: u64,
    /// Time in nanoseconds for which its values stay valid.
    pub(crate) pause_ns: u64,
    pub(crate) last_ns: Option<u64>,
    /// Whether the last sample could be read.
    pub(crate) is_readable: bool,
    /// Delay of the last sample, in seconds: how much later it began than one period after the
    /// previous sample.
    pub(crate) lateness_s: f64,
}

/// The current values, which a program is evaluated on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'e> {
    pub(crate) now_ns: u64,
    /// The start of the observation, in monotonic nanoseconds.
    pub(crate) start_ns: u64,
    pub(crate) slots: &'e [FieldSlot],
    pub(crate) sources: &'e [SourceState],
    pub(crate) watches: &'e [ExitWatch],
    /// The mark that is being observed.
    pub(crate) mark: Option<&'e str>,
}

impl Program {
    /// Evaluates the condition.
    #[inline]
    pub(crate) fn evaluate(&self, inputs: &Inputs<'_>) -> Truth {
        // Most conditions are one comparison. `Check::evaluate` recurses, so only this call can be
        // inlined.
        match &self.root {
            Check::Compare(comparison) => comparison.evaluate(inputs, None),
            root => root.evaluate(inputs, None),
        }
    }

    /// Returns the comparisons and their values. `label` names an element of a source.
    pub(crate) fn describe(
        &self,
        inputs: &Inputs<'_>,
        label: &dyn Fn(usize, u32) -> Box<str>,
    ) -> Vec<ComparedQuantity> {
        let mut found = Vec::new();
        self.root.describe(inputs, None, label, &mut found);
        found
    }
}

impl Check {
    fn evaluate(&self, inputs: &Inputs<'_>, row: Option<usize>) -> Truth {
        match self {
            Self::Compare(comparison) => comparison.evaluate(inputs, row),
            Self::All(parts) => every(parts.iter().map(|part| part.evaluate(inputs, row))),
            Self::Any(parts) => some(parts.iter().map(|part| part.evaluate(inputs, row))),
            Self::Not(part) => !part.evaluate(inputs, row),
            Self::Elements(check) => check.evaluate(inputs),
            Self::Absent { source, limit_ns, .. } => {
                let Some(source) = inputs.sources.get(*source) else { return Truth::Unknown };
                // A source without any sample counts from the start of the observation, so that one
                // that never starts is found absent too.
                let last_ns = source.last_ns.unwrap_or(inputs.start_ns);
                Truth::known(inputs.now_ns.saturating_sub(last_ns) >= *limit_ns)
            }
            Self::Exited { watch, .. } => {
                inputs.watches.get(*watch).map_or(Truth::Unknown, |watch| watch.truth)
            }
            Self::Mark { expression, .. } => {
                Truth::known(inputs.mark.is_some_and(|text| expression.is_match(text)))
            }
        }
    }

    fn describe(
        &self,
        inputs: &Inputs<'_>,
        row: Option<(usize, &str)>,
        label: &dyn Fn(usize, u32) -> Box<str>,
        found: &mut Vec<ComparedQuantity>,
    ) {
        let bare = |text: &Arc<str>| ComparedQuantity { text: Arc::clone(text), value: None, element: None };
        match self {
            Self::Compare(comparison) => found.push(comparison.describe(inputs, row)),
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.describe(inputs, row, label, found));
            }
            Self::Not(part) => part.describe(inputs, row, label, found),
            Self::Elements(check) => check.describe(inputs, label, found),
            Self::Absent { text, .. } => found.push(bare(text)),
            Self::Exited { text, .. } | Self::Mark { text, .. } => {
                // In an `or`, the other part may have fired.
                if self.evaluate(inputs, None) == Truth::True {
                    found.push(bare(text));
                }
            }
        }
    }
}

fn every(results: impl Iterator<Item = Truth>) -> Truth {
    let mut all = Truth::True;
    for result in results {
        all = all.and(result);
        if all == Truth::False {
            break;
        }
    }
    all
}

fn some(results: impl Iterator<Item = Truth>) -> Truth {
    !every(results.map(|result| !result))
}

impl ElementsCheck {
    fn evaluate(&self, inputs: &Inputs<'_>) -> Truth {
        let Some(slot) = inputs.slots.get(self.anchor) else { return Truth::Unknown };
        if !inputs.is_current(slot) || (slot.rows.is_empty() && self.needs_element) {
            return Truth::Unknown;
        }
        let results = (0..slot.rows.len()).map(|row| self.inner.evaluate(inputs, Some(row)));
        if self.is_every { every(results) } else { some(results) }
    }

    /// Describes the first element for which the condition holds, or else the first element.
    fn describe(
        &self,
        inputs: &Inputs<'_>,
        label: &dyn Fn(usize, u32) -> Box<str>,
        found: &mut Vec<ComparedQuantity>,
    ) {
        let Some(slot) = inputs.slots.get(self.anchor) else { return };
        let holds = |row: &usize| self.inner.evaluate(inputs, Some(*row)) == Truth::True;
        let row = (0..slot.rows.len()).find(holds).unwrap_or(0);
        let Some(element) = slot.elements.get(row) else { return };
        let name = label(slot.plan.source, *element);
        self.inner.describe(inputs, Some((row, &name)), label, found);
    }
}

impl CompiledComparison {
    #[inline]
    fn evaluate(&self, inputs: &Inputs<'_>, row: Option<usize>) -> Truth {
        let (left, right) = (self.left.value(inputs, row), self.right.value(inputs, row));
        // NaN differs from each number, so `!=` would hold for an unknown value.
        if left.is_nan() || right.is_nan() {
            return Truth::Unknown;
        }
        Truth::known(self.sign.holds(left, right))
    }

    fn describe(&self, inputs: &Inputs<'_>, row: Option<(usize, &str)>) -> ComparedQuantity {
        let value = self.left.value(inputs, row.map(|(row, _)| row));
        let dimension = self.dimension.as_ref().filter(|_| !value.is_nan());
        ComparedQuantity {
            text: Arc::clone(&self.text),
            value: dimension.map(|dimension| dimension.quantity(value)),
            element: row.map(|(_, name)| name).filter(|name| !name.is_empty()).map(Into::into),
        }
    }
}

impl Computed {
    /// Returns the value; NaN if it is unknown.
    #[inline]
    fn value(&self, inputs: &Inputs<'_>, row: Option<usize>) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Slot(slot) => inputs.slot_value(*slot, row),
            Self::Lateness(source) => {
                inputs.sources.get(*source).map_or(f64::NAN, |source| source.lateness_s)
            }
            Self::Pair(operation, pair) => Self::combined(*operation, pair, inputs, row),
        }
    }

    /// Computes an operation.
    fn combined(
        operation: Arithmetic,
        (left, right): &(Self, Self),
        inputs: &Inputs<'_>,
        row: Option<usize>,
    ) -> f64 {
        // Separate from `value`, which can be inlined only because it does not recurse. A
        // condition mostly compares a field with a number.
        let (left, right) = (left.value(inputs, row), right.value(inputs, row));
        match operation {
            Arithmetic::Add => left + right,
            Arithmetic::Subtract => left - right,
            Arithmetic::Multiply => left * right,
            // The quotient would be infinite, and any `>` would fire.
            Arithmetic::Divide if right == 0.0 => f64::NAN,
            Arithmetic::Divide => left / right,
        }
    }
}

impl Inputs<'_> {
    /// Returns the value of a slot, for a list the value in `row`; NaN if it is unknown.
    #[inline]
    fn slot_value(&self, slot: usize, row: Option<usize>) -> f64 {
        let Some(slot) = self.slots.get(slot).filter(|slot| self.is_current(slot)) else { return f64::NAN };
        // A comparison within `any` may also read a field outside of the list, which has one value
        // for all rows.
        match row.filter(|_| slot.plan.is_list) {
            Some(row) => slot.rows.get(row).copied().unwrap_or(f64::NAN),
            None => slot.value,
        }
    }

    /// Returns whether the values of a slot are still valid.
    #[inline]
    fn is_current(&self, slot: &FieldSlot) -> bool {
        self.sources.get(slot.plan.source).is_some_and(|source| {
            source.is_readable
                && source
                    .last_ns
                    .is_some_and(|last_ns| self.now_ns.saturating_sub(last_ns) <= source.pause_ns)
        })
    }
}
