//! Conditions on rows, which `--where` accepts. Conditions on rows are the part of the language
//! that needs only one sample.

use std::fmt::{self, Display};
use std::str::FromStr;

use super::condition::SampleCondition;
use super::limits;
use crate::error::ConditionError;

/// The error for a part that is not allowed in a condition on rows.
const REFUSAL: &str = "this needs earlier samples, and a row is one; only rules and check-trigger accept it";

/// A condition on the rows of a source. The condition is a [`SampleCondition`] that has no
/// transforms, and that tests only values of one sample.
///
/// The condition selects the rows for which it is true. A comparison with a field of a list may be
/// written without `any`, `all` and a selection of elements. In a row that is an element of the
/// list, such a comparison applies to this element. In other rows, such a comparison holds if it is
/// true for at least one element.
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

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a part that needs earlier samples is rejected. The error states the position of
    // the part, and which commands accept it. Also proves that errors about other mistakes state a
    // position.
    #[test]
    fn what_rows_cannot_have_is_refused() {
        let refused = |text: &str| text.parse::<RowCondition>().unwrap_err().to_string();
        for (text, at) in [
            ("a > 1 and b:rate > 2", 11),
            ("not changed(a)", 4),
            ("absent(disk, 1s)", 0),
            ("a = 1 or exited()", 9),
            ("mark(\"x\")", 0),
            ("(lateness(disk) + 1s) * 2 > 3s", 1),
        ] {
            let expected = format!("condition {text:?}, byte {at}: {REFUSAL}");
            assert_eq!(refused(text), expected);
        }
        assert_eq!(refused("a >"), r#"condition "a >", byte 3: expected a field or a number"#);
        assert!(refused("a =~ \"(\"").contains("byte 5: \"(\" is no regular expression"));
        assert!(refused("a =~ x").ends_with("expected a text in double quotes"));
        assert!(refused("a > 5MB").ends_with("unknown unit \"MB\"; MiB is 1024 KiB"));
        let large = "a > 1 or ".repeat(20_000);
        assert!(refused(&large).contains("more than 131072; "));
        assert!("a > 1 or ".repeat(4000).trim_end_matches(" or ").parse::<RowCondition>().is_ok());
    }
}
