//! Conditions on rows, as `--where` takes them: the part of the language that is about one sample.

use std::fmt::{self, Display};
use std::str::FromStr;

use super::super::error::ConditionError;
use super::condition::SampleCondition;
use super::limits;

/// The answer to a part that rows cannot have.
const REFUSAL: &str = "this needs earlier samples, and a row is one; only rules and check-trigger accept it";

/// A condition on the rows of a source: a [`SampleCondition`] without transforms, and without tests of
/// anything but the values of one sample.
///
/// It selects the rows for which it is true. In a row that is an element of a list, a comparison
/// outside of `any` and `all` that picks no elements is about this element. In other rows, it holds
/// if it holds for any element.
#[derive(Debug, Clone)]
pub struct RowCondition {
    pub(in super::super) condition: SampleCondition,
}

impl FromStr for RowCondition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let condition =
            SampleCondition::parse(text, limits::ROW_CONDITION_BYTES_MAX, limits::ROW_OPERANDS_MAX)?;
        match condition.needs_samples {
            None => Ok(Self { condition }),
            Some(at) => {
                Err(ConditionError::Syntax { text: condition.text.into(), at, what: REFUSAL.to_owned() })
            }
        }
    }
}

impl Display for RowCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(formatter)
    }
}
