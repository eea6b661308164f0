//! Labels that are computed from other labels, by `label_replace` and `label_join`.

use regex::Regex;

use crate::error::PromqlError;
use crate::labels::Labels;

/// A rule that sets a label from other labels.
#[derive(Debug, Clone)]
pub(crate) enum LabelRule {
    /// If the pattern matches the whole value of the label `from`, the label `to` is set to the
    /// replacement. The replacement may refer to capture groups of the pattern.
    Replace { to: String, replacement: String, from: String, pattern: Regex },
    /// The label `to` is set to the values of the labels `from`, joined with the separator.
    Join { to: String, separator: String, from: Vec<String> },
}

impl LabelRule {
    /// Returns the rule of `label_replace(v, to, replacement, from, pattern)`.
    ///
    /// # Errors
    /// The pattern is not a regular expression, or `to` is not a valid label name.
    pub(crate) fn replace(
        to: &str,
        replacement: &str,
        from: &str,
        pattern: &str,
    ) -> Result<Self, PromqlError> {
        // As in Prometheus, the expression must match the whole value.
        let pattern = Regex::new(&format!("^(?:{pattern})$")).map_err(|error| {
            PromqlError::Expression(format!("label_replace: {pattern:?} is no regular expression: {error}"))
        })?;
        let to = checked(to)?;
        Ok(Self::Replace { to, replacement: replacement.to_owned(), from: from.to_owned(), pattern })
    }

    /// Returns the rule of `label_join(v, to, separator, from...)`.
    ///
    /// # Errors
    /// `to` is not a valid label name.
    pub(crate) fn join(to: &str, separator: &str, from: Vec<String>) -> Result<Self, PromqlError> {
        Ok(Self::Join { to: checked(to)?, separator: separator.to_owned(), from })
    }

    /// Applies the rule to labels.
    pub(crate) fn apply(&self, labels: &mut Labels) {
        match self {
            Self::Replace { to, replacement, from, pattern } => {
                let value = labels.get(from).to_owned();
                // As in Prometheus, labels stay unchanged if the pattern does not match.
                let Some(groups) = pattern.captures(&value) else { return };
                let mut text = String::new();
                groups.expand(replacement, &mut text);
                labels.set(to, &text);
            }
            Self::Join { to, separator, from } => {
                let values: Vec<&str> = from.iter().map(|name| labels.get(name)).collect();
                let text = values.join(separator);
                labels.set(to, &text);
            }
        }
    }
}

/// Returns the name if it is a valid label name.
fn checked(name: &str) -> Result<String, PromqlError> {
    let is_first = |first: char| first.is_ascii_alphabetic() || first == '_';
    if name.starts_with(is_first) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(name.to_owned());
    }
    Err(PromqlError::Expression(format!("{name:?} is no name of a label: letters, digits and _")))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that `label_replace` sets a label only if the pattern matches the whole value of the
    // other label, and that `label_join` joins labels. An empty replacement removes the label.
    #[test]
    fn labels_are_made_of_others() {
        let labels =
            || Labels::new([("a", "x-1"), ("b", "y")].map(|(name, value)| (name.into(), value.into())));
        let applied = |rule: LabelRule| {
            let mut labels = labels();
            rule.apply(&mut labels);
            labels.to_string()
        };
        let replaced =
            |to, text, from, pattern| applied(LabelRule::replace(to, text, from, pattern).unwrap());
        assert_eq!(replaced("c", "<$1>", "a", "(.*)-.*"), r#"{a="x-1", b="y", c="<x>"}"#);
        assert_eq!(replaced("c", "<$1>", "a", "(.*)-"), r#"{a="x-1", b="y"}"#);
        assert_eq!(replaced("b", "", "none", ""), r#"{a="x-1"}"#);
        let join = LabelRule::join("c", "/", vec!["b".into(), "none".into(), "a".into()]).unwrap();
        assert_eq!(applied(join), r#"{a="x-1", b="y", c="y//x-1"}"#);
        assert!(LabelRule::replace("c", "", "a", "(").is_err() && LabelRule::join("1", "", vec![]).is_err());
    }
}
