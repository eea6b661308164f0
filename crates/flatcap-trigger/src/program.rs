//! A compiled condition, and its evaluation with the current values.

use std::sync::Arc;

use flatcap_query::language::{Check, Comparison, Logic, Truth};
use regex::Regex;

use crate::event::ComparedQuantity;
use crate::exits::ExitWatch;
use crate::slot::FieldSlot;

/// A compiled condition.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) root: Logic<Check<ProgramInput, RuleCheck>>,
    pub(crate) reads: ProgramReads,
}

/// The inputs whose changes may change the result of a program.
#[derive(Debug, Default)]
pub(crate) struct ProgramReads {
    /// The sources whose samples may change the result.
    pub(crate) sources: Vec<usize>,
    /// The slots whose values are compared.
    pub(crate) slots: Vec<usize>,
    /// The sources whose absence is tested, each with the length of the absence in nanoseconds.
    pub(crate) absences: Vec<(usize, u64)>,
    /// Whether marks may change the result.
    pub(crate) marks: bool,
}

/// A value that a program reads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ProgramInput {
    Slot(usize),
    Lateness(usize),
}

/// A test that is not a comparison.
#[derive(Debug)]
pub(crate) enum RuleCheck {
    Absent { source: usize, limit_ns: u64, text: Arc<str> },
    Exited { watch: usize, text: Arc<str> },
    Mark { expression: Regex, text: Arc<str> },
}

/// The state of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceState {
    pub(crate) period_ns: u64,
    /// Time for which the values of the source stay valid, in nanoseconds.
    pub(crate) pause_ns: u64,
    pub(crate) last_ns: Option<u64>,
    /// Whether the last sample could be read.
    pub(crate) is_readable: bool,
    /// Delay of the last sample, in seconds. The delay is the actual start of the sample minus its
    /// expected start. The expected start is one period after the previous sample.
    pub(crate) lateness_s: f64,
}

/// The current values with which a program is evaluated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'e> {
    pub(crate) now_ns: u64,
    /// The time at which the observation started, in monotonic nanoseconds.
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
        // Most conditions are a single comparison. `Logic::evaluate` recurses, so only this call
        // can be inlined.
        match &self.root {
            Logic::Leaf(Check::Compare(comparison)) => inputs.compare(comparison, None),
            root => inputs.evaluate(root, None),
        }
    }

    /// Returns the comparisons and their values. `label` returns the name of an element of a
    /// source.
    pub(crate) fn describe(
        &self,
        inputs: &Inputs<'_>,
        label: &dyn Fn(usize, u32) -> Box<str>,
    ) -> Vec<ComparedQuantity> {
        let mut found = Vec::new();
        self.root.visit(&mut |check| inputs.describe(check, None, label, &mut found));
        found
    }
}

impl RuleCheck {
    fn evaluate(&self, inputs: &Inputs<'_>) -> Truth {
        match self {
            Self::Absent { source, limit_ns, .. } => {
                let Some(source) = inputs.sources.get(*source) else { return Truth::Unknown };
                // For a source without any sample, the time is measured from the start of the
                // observation. So a source that never starts is also found to be absent.
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

    /// Returns the text of the test as the user wrote it, if the test may be a reason for the
    /// firing.
    fn reason(&self, inputs: &Inputs<'_>) -> Option<&Arc<str>> {
        match self {
            Self::Absent { text, .. } => Some(text),
            // In an `or`, the other part may be the reason for the firing, so the test itself must
            // hold.
            Self::Exited { text, .. } | Self::Mark { text, .. } => {
                Some(text).filter(|_| self.evaluate(inputs) == Truth::True)
            }
        }
    }
}

impl Inputs<'_> {
    #[inline]
    fn compare(&self, comparison: &Comparison<ProgramInput>, row: Option<usize>) -> Truth {
        comparison.evaluate(&|input| self.value(*input, row))
    }

    /// Evaluates a condition on the element in `row`.
    fn evaluate(&self, logic: &Logic<Check<ProgramInput, RuleCheck>>, row: Option<usize>) -> Truth {
        logic.evaluate(&|check| match check {
            Check::Compare(comparison) => self.compare(comparison, row),
            Check::Elements(check) => match self.list(check.anchor) {
                None => Truth::Unknown,
                Some(list) => {
                    let rows = 0..list.rows.len();
                    check.joined(rows.map(|row| self.evaluate(&check.inner, Some(row))))
                }
            },
            Check::Other(check) => check.evaluate(self),
        })
    }

    /// Returns the slot of a list, or `None` if the values in the slot are no longer valid.
    fn list(&self, anchor: ProgramInput) -> Option<&FieldSlot> {
        let ProgramInput::Slot(slot) = anchor else { return None };
        self.slots.get(slot).filter(|slot| self.is_current(slot))
    }

    /// Adds a check and its values. For a list, describes the first element for which the condition
    /// holds. If there is no such element, describes the first element.
    fn describe(
        &self,
        check: &Check<ProgramInput, RuleCheck>,
        row: Option<(usize, &str)>,
        label: &dyn Fn(usize, u32) -> Box<str>,
        found: &mut Vec<ComparedQuantity>,
    ) {
        match check {
            Check::Compare(comparison) => {
                let value = comparison.left_value(&|input| self.value(*input, row.map(|(row, _)| row)));
                let dimension = comparison.dimension.as_ref().filter(|_| !value.is_nan());
                found.push(ComparedQuantity {
                    text: Arc::clone(&comparison.text),
                    value: dimension.map(|dimension| dimension.quantity(value)),
                    element: row.map(|(_, name)| name).filter(|name| !name.is_empty()).map(Into::into),
                });
            }
            Check::Elements(check) => {
                let ProgramInput::Slot(slot) = check.anchor else { return };
                let Some(slot) = self.slots.get(slot) else { return };
                let holds = |row: &usize| self.evaluate(&check.inner, Some(*row)) == Truth::True;
                let row = (0..slot.rows.len()).find(holds).unwrap_or(0);
                let Some(element) = slot.elements.get(row) else { return };
                let name = label(slot.plan.source, *element);
                check.inner.visit(&mut |check| self.describe(check, Some((row, &name)), label, found));
            }
            Check::Other(check) => {
                let text = check.reason(self).cloned();
                found.extend(text.map(|text| ComparedQuantity { text, value: None, element: None }));
            }
        }
    }

    /// Returns a value, or NaN if the value is unknown.
    #[inline]
    fn value(&self, input: ProgramInput, row: Option<usize>) -> f64 {
        match input {
            ProgramInput::Slot(slot) => self.slot_value(slot, row),
            ProgramInput::Lateness(source) => {
                self.sources.get(source).map_or(f64::NAN, |source| source.lateness_s)
            }
        }
    }

    /// Returns the value of a slot. For a list, returns the value in `row`. The value is NaN if it
    /// is unknown.
    #[inline]
    fn slot_value(&self, slot: usize, row: Option<usize>) -> f64 {
        let Some(slot) = self.slots.get(slot).filter(|slot| self.is_current(slot)) else { return f64::NAN };
        // A comparison within `any` may also read a field outside of the list. Such a field has one
        // value for all rows.
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
