//! Conditions that are bound to fields, and their evaluation. Conditions of rules are evaluated for
//! each sample, and conditions of `--where` for each row.

use std::cmp::Ordering;
use std::sync::Arc;

use flatcap_format::schema::FieldValue;
use regex::Regex;

use super::condition::{Arithmetic, CompareSign};
use super::decimal::Threshold;
use super::dimension::Dimension;
use super::logic::{Logic, Truth};

/// A bound part of a condition. `V` is the type of a value, and `O` the type of a test that is not
/// a comparison.
#[derive(Debug)]
pub enum Check<V, O> {
    /// A comparison.
    Compare(Comparison<V>),
    /// A condition on the elements of a list.
    Elements(Box<ElementsCheck<V, O>>),
    /// A test that is neither a comparison nor a condition on elements.
    Other(O),
}

/// A comparison of two values.
#[derive(Debug)]
pub struct Comparison<V> {
    /// The comparison as the user wrote it.
    pub text: Arc<str>,
    pub(super) left: Term<V>,
    pub(super) sign: CompareSign,
    pub(super) right: Term<V>,
    /// The dimension of the left value. `None` if the left value is a string.
    pub dimension: Option<Dimension>,
}

/// A condition on each element of a list.
#[derive(Debug)]
pub struct ElementsCheck<V, O> {
    /// Whether the condition must hold for all elements. Otherwise, the condition must hold for at
    /// least one element.
    pub is_every: bool,
    /// Whether the condition applies to elements although the user did not write `any` or `all`. If
    /// so, in a row that is an element of the list, the condition applies only to this element.
    pub is_implicit: bool,
    /// A value of the list's elements. It identifies the list.
    pub anchor: V,
    /// Whether the result is unknown if the list has no elements.
    pub needs_element: bool,
    /// The condition on one element.
    pub inner: Logic<Check<V, O>>,
}

/// A number, in base units, that a comparison computes.
#[derive(Debug)]
pub(super) enum Term<V> {
    Number(f64),
    Value(V),
    Pair(Arithmetic, Box<(Self, Self)>),
}

/// A test that is applied to a value of a payload. The result is the number 1 or 0.
#[derive(Debug, Clone)]
pub struct ValueTest(pub(super) TestKind);

#[derive(Debug, Clone)]
pub(super) enum TestKind {
    /// The tested string equals this string.
    Text(Box<str>),
    /// The tested string matches this regular expression.
    Expression(Regex),
    /// The tested number passes this comparison.
    Number(NumberTest),
}

/// A comparison of a field with a number in the unit of the field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NumberTest {
    pub(super) sign: CompareSign,
    pub(super) threshold: Threshold,
}

/// The possible results of a part of a condition. The set does not contain the result `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Possible {
    pub(in super::super) is_true: bool,
    pub(in super::super) is_false: bool,
}

impl<V> Comparison<V> {
    /// Returns the left value, which is NaN if it is unknown.
    pub fn left_value(&self, value: &impl Fn(&V) -> f64) -> f64 {
        self.left.value(value)
    }

    /// Evaluates the comparison. The result is unknown if a value is NaN.
    #[inline]
    pub fn evaluate(&self, value: &impl Fn(&V) -> f64) -> Truth {
        // NaN has no order, so a comparison with an absent value is neither true nor false.
        let order = self.left.value(value).partial_cmp(&self.right.value(value));
        order.map_or(Truth::Unknown, |order| Truth::known(self.sign.accepts(order)))
    }
}

impl<V, O> ElementsCheck<V, O> {
    /// Returns the result for the list, given the result for each element.
    pub fn joined(&self, elements: impl Iterator<Item = Truth>) -> Truth {
        let mut elements = elements.peekable();
        if self.needs_element && elements.peek().is_none() {
            return Truth::Unknown;
        }
        Truth::joined(elements, self.is_every)
    }
}

impl<V> Term<V> {
    /// Returns the number, which is NaN if it is unknown.
    #[inline]
    fn value(&self, value: &impl Fn(&V) -> f64) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Value(own) => value(own),
            Self::Pair(operation, pair) => Self::combined(*operation, pair, value),
        }
    }

    /// Computes an operation on two numbers.
    fn combined(operation: Arithmetic, (left, right): &(Self, Self), value: &impl Fn(&V) -> f64) -> f64 {
        // This function is separate from `value`, because `value` can be inlined only if it does
        // not recurse. A condition mostly compares a field with a number.
        let (left, right) = (left.value(value), right.value(value));
        match operation {
            Arithmetic::Add => left + right,
            Arithmetic::Subtract => left - right,
            Arithmetic::Multiply => left * right,
            // An infinite quotient would make any `>` hold.
            Arithmetic::Divide if right == 0.0 => f64::NAN,
            Arithmetic::Divide => left / right,
        }
    }
}

impl ValueTest {
    /// Returns whether a value passes the test, or `None` for an absent value and for a value of
    /// another type.
    #[inline]
    pub fn passes(&self, value: FieldValue<'_>) -> Option<bool> {
        match (&self.0, value) {
            (TestKind::Text(wanted), FieldValue::Text(text)) => Some(**wanted == *text),
            (TestKind::Expression(wanted), FieldValue::Text(text)) => Some(wanted.is_match(text)),
            (TestKind::Number(test), value) => {
                test.threshold.order(value).map(|order| test.sign.accepts(order))
            }
            _ => None,
        }
    }

    /// Returns whether both tests give the same results.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (TestKind::Text(one), TestKind::Text(other)) => one == other,
            (TestKind::Expression(one), TestKind::Expression(other)) => one.as_str() == other.as_str(),
            (TestKind::Number(one), TestKind::Number(other)) => one == other,
            _ => false,
        }
    }
}

impl Possible {
    /// Both results are possible.
    pub(in super::super) const BOTH: Self = Self { is_true: true, is_false: true };
    /// The set in which neither true nor false is possible, so that the result is unknown.
    pub(in super::super) const NONE: Self = Self { is_true: false, is_false: false };

    /// Returns the set that contains only this result.
    pub(in super::super) fn of(result: Truth) -> Self {
        Self { is_true: result == Truth::True, is_false: result == Truth::False }
    }

    /// Returns the results that are in at least one of the two sets.
    pub(in super::super) fn or(self, other: Self) -> Self {
        Self { is_true: self.is_true || other.is_true, is_false: self.is_false || other.is_false }
    }
}

impl<V> Comparison<V> {
    /// Returns the value that is compared with a constant. Returns `None` if the comparison has
    /// another form.
    pub(in super::super) fn compared(&self) -> Option<&V> {
        match (&self.left, &self.right) {
            (Term::Value(value), Term::Number(_)) => Some(value),
            _ => None,
        }
    }

    /// Returns the possible results of a comparison whose only value is the result of a test. All
    /// tested values are within the given bounds.
    pub(in super::super) fn possible(
        &self,
        test: Option<&ValueTest>,
        (lowest, highest): (FieldValue<'_>, FieldValue<'_>),
    ) -> Possible {
        let Some(ValueTest(TestKind::Number(test))) = test else { return Possible::BOTH };
        let bounds = (test.threshold.order(lowest), test.threshold.order(highest));
        let (Some(low), Some(high)) = bounds else { return Possible::BOTH };
        // The range may contain values below and above the threshold, but no equal value. In this
        // case, the result `Equal` only widens the set.
        let orders = [Ordering::Less, Ordering::Equal, Ordering::Greater].into_iter();
        orders.filter(|order| low <= *order && *order <= high).fold(Possible::NONE, |all, order| {
            let passes = f64::from(u8::from(test.sign.accepts(order)));
            all.or(Possible::of(self.evaluate(&|_| passes)))
        })
    }
}

impl<L> Logic<L> {
    /// Returns whether the condition may have this result, given the possible results of each leaf.
    // Parts may depend on each other. This function assumes that they do not, so it may return true
    // for an impossible result.
    pub(in super::super) fn may_be(&self, result: bool, leaf: &impl Fn(&L) -> Possible) -> bool {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                let mut parts = parts.iter().map(|part| part.may_be(result, leaf));
                let needs_all = matches!(self, Self::All(_)) == result;
                if needs_all { parts.all(|may| may) } else { parts.any(|may| may) }
            }
            Self::Not(part) => part.may_be(!result, leaf),
            Self::Leaf(own) if result => leaf(own).is_true,
            Self::Leaf(own) => leaf(own).is_false,
        }
    }
}
