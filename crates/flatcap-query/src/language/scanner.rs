//! Reads the tokens of a condition: names, numbers with units, durations, strings and expressions.

use flatcap_format::duration::parse_duration;
use flatcap_format::units::Unit;
use regex::Regex;

use super::condition::NumberTerm;
use super::decimal::Decimal;
use super::dimension::Dimension;
use super::limits;
use crate::error::ConditionError;
use crate::names::path::whole_match;
use crate::names::path_text::read_quoted_value;

/// A string, and the position up to which it was read.
pub(super) struct Scanner<'t> {
    pub(super) text: &'t str,
    pub(super) at: usize,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn error(&self, what: impl Into<String>) -> ConditionError {
        ConditionError::Syntax { text: self.text.to_owned(), at: self.at, what: what.into() }
    }

    /// Returns the rest of the string, without leading spaces.
    pub(super) fn rest(&mut self) -> &'t str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    /// Returns the position of the next token.
    pub(super) fn start(&mut self) -> usize {
        self.rest();
        self.at
    }

    /// Returns the string from `start` to the current position.
    pub(super) fn since(&self, start: usize) -> &'t str {
        self.text.get(start..self.at).unwrap_or_default().trim()
    }

    pub(super) fn take(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    pub(super) fn expect(&mut self, token: &str) -> Result<(), ConditionError> {
        if self.take(token) { Ok(()) } else { Err(self.error(format!("expected {token}"))) }
    }

    /// Reads the expected word, unless it is only the prefix of a longer word. Ignores case.
    /// Returns whether the next token was the expected word.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let rest = self.rest();
        let is_next = rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
            && rest.get(word.len()..).is_some_and(|after| {
                after.is_empty()
                    || after.starts_with(|next: char| next.is_whitespace() || "()".contains(next))
            });
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    /// Reads the name of a function and the opening parenthesis. Returns whether the name and the
    /// parenthesis were read.
    pub(super) fn take_function(&mut self, name: &str) -> bool {
        let start = self.at;
        let is_next = self.take_word(name) && self.take("(");
        if !is_next {
            self.at = start;
        }
        is_next
    }

    /// Reads a number and its unit, such as `20%`, `5ms` or `64 MiB/s`.
    pub(super) fn number(&mut self) -> Result<NumberTerm, ConditionError> {
        let (start, rest) = (self.at, self.rest());
        let mut digits = rest.len();
        for (at, character) in rest.char_indices() {
            let is_exponent = matches!(character, 'e' | 'E')
                && rest.get(at + 1..).is_some_and(|next| {
                    next.trim_start_matches(['-', '+']).starts_with(|digit: char| digit.is_ascii_digit())
                });
            let is_sign = matches!(character, '-' | '+')
                && (at == 0 || rest.get(..at).is_some_and(|before| before.ends_with(['e', 'E'])));
            if !(character.is_ascii_digit() || character == '.' || is_exponent || is_sign) {
                digits = at;
                break;
            }
        }
        let number = rest.get(..digits).unwrap_or_default();
        let decimal = Decimal::parse(number)
            .ok_or_else(|| self.error(format!("{number:?} is no number of at most 30 digits")))?;
        self.at += digits;
        let (unit, is_rate) = self.unit()?;
        let dimension = (unit.is_some() || is_rate).then(|| Dimension::of_written(unit, is_rate));
        let amount = unit.map_or(Some(decimal), |unit| decimal.in_base(unit));
        let amount = amount.ok_or_else(|| self.error(format!("{number:?} has more than 30 digits")))?;
        Ok(NumberTerm { amount, dimension, text: self.since(start).into() })
    }

    /// Reads the unit of a number. A space may precede the unit. Returns the unit, and whether it
    /// is divided by seconds.
    fn unit(&mut self) -> Result<(Option<&'static Unit>, bool), ConditionError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let spaced = rest.trim_start_matches(' ');
        let is_apart = spaced.len() < rest.len();
        let unit = Unit::at_start(spaced);
        let after = spaced.get(unit.map_or(0, |unit| unit.name.len())..).unwrap_or_default();
        // After a space, a word that is not a unit may be `and`.
        if unit.is_none() && !is_apart && after.starts_with(char::is_alphabetic) {
            let end = after.find(|next: char| !next.is_alphabetic()).unwrap_or(after.len());
            return Err(self.error(unknown_unit(after.get(..end).unwrap_or_default())));
        }
        // `100/self.x` is a division by a field, so `/s` belongs to a unit only if no further
        // letter follows. A slash that is separated from the number is a division.
        let is_rate = !(is_apart && unit.is_none())
            && after.strip_prefix("/s").is_some_and(|after| {
                !after.starts_with(|next: char| next.is_alphanumeric() || matches!(next, '_' | '.' | '['))
            });
        if unit.is_some() || is_rate {
            self.at += rest.len() - after.len() + if is_rate { 2 } else { 0 };
        }
        Ok((unit, is_rate))
    }

    /// Reads the share that is the first argument of `:quantile(Q, W)`.
    pub(super) fn share(&mut self) -> Result<f64, ConditionError> {
        let rest = self.rest();
        let end = rest.find([',', ')']).unwrap_or(rest.len());
        let text = rest.get(..end).unwrap_or_default().trim();
        let share = text.parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0);
        let share =
            share.ok_or_else(|| self.error("a quantile needs a number above 0, at most 1, and a window"))?;
        self.at += end;
        Ok(share)
    }

    /// Reads the length of a window.
    pub(super) fn window(&mut self) -> Result<u64, ConditionError> {
        let rest = self.rest();
        let end = rest.find([',', ')']).unwrap_or(rest.len());
        let text = rest.get(..end).unwrap_or_default().trim();
        let duration = parse_duration(text)
            .map_err(|error| self.error(format!("{text:?} is no duration, such as 50ms: {error}")))?;
        let window_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        if !(1..=limits::WINDOW_NS_MAX).contains(&window_ns) {
            return Err(self.error(format!("{text}: a window is from 1ns to 1h")));
        }
        self.at += end;
        Ok(window_ns)
    }

    /// Reads the name of a source.
    pub(super) fn source_name(&mut self) -> Result<Box<str>, ConditionError> {
        let rest = self.rest();
        let end = rest.find([',', ')']).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default().trim();
        if name.is_empty() {
            return Err(self.error("expected the name of a source"));
        }
        self.at += end;
        Ok(name.into())
    }

    /// Reads a quoted regular expression, which must match the whole string.
    pub(super) fn expression(&mut self) -> Result<Regex, ConditionError> {
        let start = self.start();
        let text = self.quoted()?;
        whole_match(&text).map_err(|error| {
            self.at = start;
            let reason = match error {
                regex::Error::CompiledTooBig(limit) => format!("more than {limit} bytes when compiled"),
                // The earlier lines of the error repeat the expression with a caret below it. An
                // error of one line cannot show this, so only the last line is used.
                other => other.to_string().lines().last().unwrap_or_default().trim().to_owned(),
            };
            self.error(format!("{text:?} is no regular expression: {reason}"))
        })
    }

    /// Reads a string in double quotes.
    pub(super) fn quoted(&mut self) -> Result<String, ConditionError> {
        if !self.take("\"") {
            return Err(self.error("expected a text in double quotes"));
        }
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (value, length) =
            read_quoted_value(rest).ok_or_else(|| self.error("the closing quote is missing"))?;
        self.at += length;
        Ok(value)
    }
}

fn unknown_unit(unit: &str) -> String {
    let hint = match unit {
        "k" | "K" | "KB" | "kB" => "; KiB is 1024 bytes",
        "M" | "MB" => "; MiB is 1024 KiB",
        "G" | "GB" => "; GiB is 1024 MiB",
        "sec" => "; write s",
        _ => "; units are ns, us, ms, s, min, h, d, B, KiB, MiB, GiB, TiB, %, Hz, degC, V, A, W and /s",
    };
    format!("unknown unit {unit:?}{hint}")
}
