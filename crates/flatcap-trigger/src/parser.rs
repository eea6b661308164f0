//! Parses conditions: one pass, bounded recursion, and the place of each mistake.

use std::sync::Arc;

use flatcap_format::duration::parse_duration;
use flatcap_format::query::FieldPath;
use regex::{Regex, RegexBuilder};

use crate::condition::{
    Arithmetic, Clause, CompareClause, CompareSign, ExitTests, FieldOperand, RightSide, ValueTerm,
};
use crate::error::RuleError;
use crate::limits;
use crate::transform::{TRANSFORM_NAMES, Transform};

/// Names for the same field of all sources, as rules about the recorder itself need them.
const ALIASES: [(&str, &str); 2] = [
    ("self.lateness_p99", "self.sources[*].lateness.p99_ns"),
    ("self.lateness_max", "self.sources[*].lateness.max_ns"),
];

/// Tests of `exited` that are about how a process ended; all others are about the process.
const TESTS_OF_ENDS: [&str; 2] = ["signal", "exit_code"];

/// What an expression in parentheses may be.
enum Parsed {
    Value(ValueTerm),
    Clause(Clause),
}

/// Reads a condition.
pub(crate) struct ConditionReader<'t> {
    text: &'t str,
    at: usize,
    operands: Vec<FieldOperand>,
}

impl<'t> ConditionReader<'t> {
    /// Parses a whole text.
    pub(crate) fn read(text: &'t str) -> Result<(Clause, Vec<FieldOperand>), RuleError> {
        if text.len() > limits::CONDITION_BYTES_MAX {
            return Err(RuleError::TooLong { bytes: text.len() });
        }
        let mut reader = Self { text, at: 0, operands: Vec::new() };
        let start = reader.start();
        let parsed = reader.any(0)?;
        let root = reader.clause(parsed, start)?;
        if !reader.rest().is_empty() {
            return Err(reader.error("expected and, or, an operator or the end"));
        }
        Ok((root, reader.operands))
    }

    fn error(&self, what: impl Into<String>) -> RuleError {
        RuleError::Syntax { text: self.text.to_owned(), at: self.at, what: what.into() }
    }

    /// Returns what is left, without leading space.
    fn rest(&mut self) -> &'t str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    /// Returns the place of the next part.
    fn start(&mut self) -> usize {
        self.rest();
        self.at
    }

    /// Returns the text from a place up to here.
    fn since(&self, start: usize) -> &'t str {
        self.text.get(start..self.at).unwrap_or_default().trim()
    }

    fn take(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    fn expect(&mut self, token: &str) -> Result<(), RuleError> {
        if self.take(token) { Ok(()) } else { Err(self.error(format!("expected {token}"))) }
    }

    /// Takes a word that is not the beginning of a longer one, in any case of letters.
    fn take_word(&mut self, word: &str) -> bool {
        let rest = self.rest();
        let is_next = rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
            && rest.get(word.len()..).is_some_and(|after| {
                after.is_empty()
                    || after.starts_with(|next: char| next.is_whitespace() || "()".contains(next))
            });
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    /// Takes the name of a function and its opening parenthesis.
    fn take_function(&mut self, name: &str) -> bool {
        let start = self.at;
        let is_next = self.take_word(name) && self.take("(");
        if !is_next {
            self.at = start;
        }
        is_next
    }

    /// Returns a part that must be a condition.
    fn clause(&self, parsed: Parsed, start: usize) -> Result<Clause, RuleError> {
        match parsed {
            Parsed::Clause(clause) => Ok(clause),
            Parsed::Value(_) if self.since(start).is_empty() => Err(self.error("expected a condition")),
            Parsed::Value(_) => Err(self.error("expected a comparison, such as > 20%, after the value")),
        }
    }

    fn value(&self, parsed: Parsed) -> Result<ValueTerm, RuleError> {
        match parsed {
            Parsed::Value(value) => Ok(value),
            Parsed::Clause(_) => Err(self.error("expected a number or a field before this, not a condition")),
        }
    }

    fn any(&mut self, depth: usize) -> Result<Parsed, RuleError> {
        self.joined(depth, "or", Self::all, Clause::Any)
    }

    fn all(&mut self, depth: usize) -> Result<Parsed, RuleError> {
        self.joined(depth, "and", Self::single, Clause::All)
    }

    /// Reads parts with a word between them.
    fn joined(
        &mut self,
        depth: usize,
        word: &str,
        part: fn(&mut Self, usize) -> Result<Parsed, RuleError>,
        join: fn(Vec<Clause>) -> Clause,
    ) -> Result<Parsed, RuleError> {
        let start = self.start();
        let first = part(self, depth)?;
        if !self.take_word(word) {
            return Ok(first);
        }
        let mut parts = vec![self.clause(first, start)?];
        loop {
            let start = self.start();
            let next = part(self, depth)?;
            parts.push(self.clause(next, start)?);
            if !self.take_word(word) {
                return Ok(Parsed::Clause(join(parts)));
            }
        }
    }

    fn single(&mut self, depth: usize) -> Result<Parsed, RuleError> {
        self.check_depth(depth)?;
        if self.take_word("not") {
            let start = self.start();
            let inner = self.single(depth + 1)?;
            let inner = self.clause(inner, start)?;
            return Ok(Parsed::Clause(Clause::Not(Box::new(inner))));
        }
        let start = self.start();
        for (name, is_every) in [("any", false), ("all", true)] {
            if self.take_function(name) {
                let inside = self.start();
                let inner = self.any(depth + 1)?;
                let inner = Box::new(self.clause(inner, inside)?);
                self.expect(")")?;
                let text = self.since(start).into();
                return Ok(Parsed::Clause(Clause::Elements { is_every, inner, text }));
            }
        }
        if let Some(function) = self.function(start)? {
            return Ok(Parsed::Clause(function));
        }
        let left = self.sum(depth)?;
        let rest = self.rest();
        let Some((token, operator)) = CompareSign::ALL.iter().find(|(token, _)| rest.starts_with(token))
        else {
            return Ok(left);
        };
        let left = self.value(left)?;
        self.at += token.len();
        let right = self.right_side(*operator, depth)?;
        let text = Arc::from(self.since(start));
        Ok(Parsed::Clause(Clause::Compare(CompareClause { text, left, operator: *operator, right })))
    }

    fn check_depth(&self, depth: usize) -> Result<(), RuleError> {
        if depth < limits::NESTING_MAX {
            return Ok(());
        }
        Err(self.error(format!("more than {} parentheses and nots around each other", limits::NESTING_MAX)))
    }

    /// Reads a function that is a condition by itself.
    fn function(&mut self, start: usize) -> Result<Option<Clause>, RuleError> {
        let clause = if self.take_function("changed") {
            let begin = self.start();
            let path = self.path()?;
            let text = self.since(begin).into();
            let operand = self.operand(FieldOperand {
                path,
                transforms: vec![Transform::Changed],
                is_alias: false,
                text,
            })?;
            self.expect(")")?;
            Clause::Changed { operand, text: self.since(start).into() }
        } else if self.take_function("absent") {
            let source = self.source_name()?;
            if !self.take(",") {
                return Err(self.error("expected a comma and a duration, as in absent(disk, 50ms)"));
            }
            let limit_ns = self.window()?;
            self.expect(")")?;
            Clause::Absent { source, limit_ns }
        } else if self.take_function("exited") {
            let tests = self.exit_tests()?;
            Clause::Exited(ExitTests { text: self.since(start).into(), ..tests })
        } else if self.take_function("mark") {
            let expression = self.expression()?;
            self.expect(")")?;
            Clause::Mark(expression)
        } else {
            return Ok(None);
        };
        Ok(Some(clause))
    }

    /// Reads the tests of `exited`, which are those of an element of a list.
    fn exit_tests(&mut self) -> Result<ExitTests, RuleError> {
        let (mut of_process, mut of_end) = (Vec::new(), Vec::new());
        while !self.take(")") {
            let rest = self.rest();
            let end = end_of(rest, |next| ",)".contains(next));
            let test = rest.get(..end).unwrap_or_default().trim();
            let name = test.split(['=', '!']).next().unwrap_or_default().trim();
            if name.is_empty() || name.len() == test.len() {
                return Err(self.error("expected a test, as in exited(name=\"postgres\", signal!=15)"));
            }
            let tests = if TESTS_OF_ENDS.contains(&name) { &mut of_end } else { &mut of_process };
            tests.push(test);
            self.at += end;
            self.take(",");
        }
        let picked = |list: &str, tests: &[&str]| -> Result<FieldPath, RuleError> {
            let pick = if tests.is_empty() { "*".to_owned() } else { tests.join(",") };
            Ok(format!("process.{list}[{pick}].pid").parse()?)
        };
        let processes = (!of_process.is_empty()).then(|| picked("processes", &of_process)).transpose()?;
        let exits = picked("exits", &of_end)?;
        Ok(ExitTests { processes, exits, needs_events: !of_end.is_empty(), text: Arc::from("") })
    }

    /// Reads what a value is compared with.
    fn right_side(&mut self, operator: CompareSign, depth: usize) -> Result<RightSide, RuleError> {
        if operator == CompareSign::Matches {
            return self.expression().map(RightSide::Expression);
        }
        if self.rest().starts_with('"') {
            return self.quoted().map(|text| RightSide::Text(text.into()));
        }
        for truth in [true, false] {
            if self.take_word(if truth { "true" } else { "false" }) {
                return Ok(RightSide::Truth(truth));
            }
        }
        let right = self.sum(depth)?;
        self.value(right).map(RightSide::Value)
    }

    fn sum(&mut self, depth: usize) -> Result<Parsed, RuleError> {
        let signs = [("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
        self.computed(depth, signs, Self::product)
    }

    fn product(&mut self, depth: usize) -> Result<Parsed, RuleError> {
        let signs = [("*", Arithmetic::Multiply), ("/", Arithmetic::Divide)];
        self.computed(depth, signs, Self::factor)
    }

    /// Reads values with one of two operators between them.
    fn computed(
        &mut self,
        depth: usize,
        signs: [(&str, Arithmetic); 2],
        part: fn(&mut Self, usize) -> Result<Parsed, RuleError>,
    ) -> Result<Parsed, RuleError> {
        let mut left = part(self, depth)?;
        while let Some((_, operation)) = signs.iter().copied().find(|(sign, _)| self.take(sign)) {
            let first = self.value(left)?;
            let second = part(self, depth)?;
            let second = self.value(second)?;
            left = Parsed::Value(ValueTerm::Pair(operation, Box::new((first, second))));
        }
        Ok(left)
    }

    fn factor(&mut self, depth: usize) -> Result<Parsed, RuleError> {
        if self.take("(") {
            self.check_depth(depth)?;
            let inner = self.any(depth + 1)?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.take_function("lateness") {
            let source = self.source_name()?;
            self.expect(")")?;
            return Ok(Parsed::Value(ValueTerm::Lateness(source)));
        }
        let rest = self.rest();
        let is_number = rest.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit());
        if is_number { self.number().map(Parsed::Value) } else { self.field().map(Parsed::Value) }
    }

    /// Reads a number and its unit: `20%`, `5ms`, `64 MiB/s`.
    fn number(&mut self) -> Result<ValueTerm, RuleError> {
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
        let value: f64 = number.parse().map_err(|_| self.error(format!("{number:?} is not a number")))?;
        self.at += digits;
        let unit = self.unit()?;
        let text = self.text.get(start..self.at).unwrap_or_default().trim().into();
        Ok(ValueTerm::Number { value, unit, text })
    }

    /// Takes the unit of a number; it may stand after a space.
    fn unit(&mut self) -> Result<Option<Box<str>>, RuleError> {
        use crate::unit::Dimension;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let spaced = rest.trim_start_matches(' ');
        let is_apart = spaced.len() < rest.len();
        let mut end = spaced.find(|next: char| !next.is_ascii_alphabetic()).unwrap_or(spaced.len());
        if end == 0 && spaced.starts_with('%') {
            end = 1;
        }
        let after = spaced.get(end..).unwrap_or_default();
        let is_rate = after.strip_prefix("/s").is_some_and(|after| {
            !after.starts_with(|next: char| next.is_alphanumeric() || matches!(next, '_' | '.' | '['))
        });
        // Apart from its number, a slash divides.
        end += if is_rate && !(is_apart && end == 0) { 2 } else { 0 };
        let unit = spaced.get(..end).unwrap_or_default();
        if unit.is_empty() {
            return Ok(None);
        }
        if Dimension::of_written(unit).is_none() {
            // A word after a space may be `and`.
            return if is_apart { Ok(None) } else { Err(self.error(unknown_unit(unit))) };
        }
        self.at += rest.len() - spaced.len() + end;
        Ok(Some(unit.into()))
    }

    fn field(&mut self) -> Result<ValueTerm, RuleError> {
        let start = self.start();
        let mut path = self.path()?;
        let alias = ALIASES.iter().find(|(name, _)| *name == path.as_str());
        if let Some((_, meant)) = alias {
            path = meant.parse()?;
        }
        let mut transforms = Vec::new();
        while self.text.get(self.at..).unwrap_or_default().starts_with(':') {
            if transforms.len() == limits::TRANSFORMS_MAX {
                return Err(self.error(format!("more than {} transforms of a field", limits::TRANSFORMS_MAX)));
            }
            transforms.push(self.transform()?);
        }
        let text = self.since(start).into();
        self.operand(FieldOperand { path, transforms, is_alias: alias.is_some(), text }).map(ValueTerm::Field)
    }

    fn operand(&mut self, operand: FieldOperand) -> Result<usize, RuleError> {
        if self.operands.len() == limits::OPERANDS_MAX {
            return Err(self.error(format!("more than {} fields", limits::OPERANDS_MAX)));
        }
        self.operands.push(operand);
        Ok(self.operands.len() - 1)
    }

    /// Reads a path up to space, an operator, a colon, a comma or a parenthesis outside of brackets.
    fn path(&mut self) -> Result<FieldPath, RuleError> {
        let rest = self.rest();
        let end = end_of(rest, |next| next.is_whitespace() || "=!<>():,+*/".contains(next));
        let path = rest.get(..end).unwrap_or_default();
        if path.is_empty() {
            return Err(self.error("expected a field or a number"));
        }
        let path = path.parse()?;
        self.at += end;
        Ok(path)
    }

    fn transform(&mut self) -> Result<Transform, RuleError> {
        let start = self.at;
        self.at += 1;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find(|next: char| !next.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default();
        self.at += end;
        let (mut share, mut window_ns) = (None, None);
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with('(')) {
            self.at += 1;
            if name == "quantile" {
                share = Some(self.share()?);
                self.expect(",")?;
            }
            window_ns = Some(self.window()?);
            self.expect(")")?;
        }
        Transform::of(name, share, window_ns).ok_or_else(|| {
            let text = self.since(start).to_owned();
            self.at = start;
            self.error(format!("{text:?} is no transform; write {TRANSFORM_NAMES}"))
        })
    }

    /// Reads the share of a quantile.
    fn share(&mut self) -> Result<f64, RuleError> {
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
    fn window(&mut self) -> Result<u64, RuleError> {
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
    fn source_name(&mut self) -> Result<Box<str>, RuleError> {
        let rest = self.rest();
        let end = rest.find([',', ')']).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default().trim();
        if name.is_empty() {
            return Err(self.error("expected the name of a source"));
        }
        self.at += end;
        Ok(name.into())
    }

    /// Reads a regular expression in quotes, which must match a whole text.
    fn expression(&mut self) -> Result<Regex, RuleError> {
        let start = self.start();
        let text = self.quoted()?;
        let built =
            RegexBuilder::new(&format!("^(?:{text})$")).size_limit(limits::EXPRESSION_SIZE_MAX).build();
        built.map_err(|error| {
            self.at = start;
            let reason = match error {
                regex::Error::CompiledTooBig(limit) => format!("more than {limit} bytes when compiled"),
                other => other.to_string().lines().last().unwrap_or_default().trim().to_owned(),
            };
            self.error(format!("{text:?} is no regular expression: {reason}"))
        })
    }

    /// Reads a text in double quotes.
    fn quoted(&mut self) -> Result<String, RuleError> {
        if !self.take("\"") {
            return Err(self.error("expected a text in double quotes"));
        }
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut value = String::new();
        let mut characters = rest.char_indices();
        while let Some((offset, character)) = characters.next() {
            match character {
                '"' => {
                    self.at += offset + 1;
                    return Ok(value);
                }
                // A regular expression has backslashes of its own: only a quote is escaped.
                '\\' if characters.as_str().starts_with('"') => {
                    value.push('"');
                    characters.next();
                }
                other => value.push(other),
            }
        }
        Err(self.error("the closing quote is missing"))
    }
}

/// Returns the length of a text up to a character that ends it, outside of brackets and quotes.
fn end_of(text: &str, is_end: impl Fn(char) -> bool) -> usize {
    let (mut is_inside, mut is_quoted) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            '"' => is_quoted = !is_quoted,
            '[' if !is_quoted => is_inside = true,
            ']' if !is_quoted => is_inside = false,
            other if !is_inside && !is_quoted && is_end(other) => return at,
            _ => {}
        }
    }
    text.len()
}

fn unknown_unit(unit: &str) -> String {
    let hint = match unit.trim_end_matches("/s") {
        "k" | "K" | "KB" | "kB" => "; KiB is 1024 bytes",
        "M" | "MB" => "; MiB is 1024 KiB",
        "G" | "GB" => "; GiB is 1024 MiB",
        "sec" => "; write s",
        _ => {
            "; units are ns, us, ms, s, min, h, d, B, KiB, MiB, GiB, TiB, %, Hz, degC, V, A, W and these with /s"
        }
    };
    format!("unknown unit {unit:?}{hint}")
}
