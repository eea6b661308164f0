//! Parses conditions in one pass, with bounded recursion, and reports the position of each error.

use std::str::FromStr;
use std::sync::Arc;

use super::condition::{
    Arithmetic, CompareClause, CompareSign, ExitTests, FieldOperand, RightSide, RuleTest, SampleCondition,
    Test, ValueTerm,
};
use super::limits;
use super::logic::Logic;
use super::scanner::Scanner;
use super::transform::{TRANSFORM_NAMES, Transform};
use crate::error::ConditionError;
use crate::names::path::FieldPath;
use crate::names::path_text::length_outside_quotes;

/// Aliases for the same field of all sources. Rules about the recorder itself need these aliases.
const ALIASES: [(&str, &str); 2] = [
    ("self.lateness_p99", "self.sources[*].lateness.p99_ns"),
    ("self.lateness_max", "self.sources[*].lateness.max_ns"),
];

/// Names of the tests within `exited` that refer to the way in which a process ended. All other
/// tests within `exited` refer to the process itself.
const TESTS_OF_ENDS: [&str; 2] = ["signal", "exit_code"];

impl FromStr for SampleCondition {
    type Err = ConditionError;

    /// Parses the condition of a rule.
    fn from_str(text: &str) -> Result<Self, ConditionError> {
        Self::parse(text, limits::CONDITION_BYTES_MAX, limits::OPERANDS_MAX)
    }
}

impl SampleCondition {
    /// Parses a condition, and returns an error if it exceeds these limits on bytes and fields.
    pub(super) fn parse(text: &str, bytes_max: usize, operands_max: usize) -> Result<Self, ConditionError> {
        let text = text.trim();
        if text.len() > bytes_max {
            return Err(ConditionError::TooLong { bytes: text.len(), bytes_max });
        }
        let mut reader = ConditionReader {
            scanner: Scanner::new(text),
            operands: Vec::new(),
            operands_max,
            needs_samples: None,
        };
        let start = reader.scanner.start();
        let parsed = reader.any(0)?;
        let root = reader.clause(parsed, start)?;
        if !reader.scanner.rest().is_empty() {
            return Err(reader.scanner.error("expected and, or, an operator or the end"));
        }
        let ConditionReader { operands, needs_samples, .. } = reader;
        Ok(Self { text: text.into(), root, operands, needs_samples })
    }
}

/// A parsed expression, which may be in parentheses.
enum Parsed {
    Value(ValueTerm),
    Clause(Logic<Test>),
}

/// Parses a condition.
struct ConditionReader<'t> {
    scanner: Scanner<'t>,
    operands: Vec<FieldOperand>,
    operands_max: usize,
    needs_samples: Option<usize>,
}

impl ConditionReader<'_> {
    /// Converts a parsed expression to a condition. Returns an error if the expression is a value.
    fn clause(&self, parsed: Parsed, start: usize) -> Result<Logic<Test>, ConditionError> {
        match parsed {
            Parsed::Clause(clause) => Ok(clause),
            Parsed::Value(_) if self.scanner.since(start).is_empty() => {
                Err(self.scanner.error("expected a condition"))
            }
            Parsed::Value(_) => {
                Err(self.scanner.error("expected a comparison, such as > 20%, after the value"))
            }
        }
    }

    fn value(&self, parsed: Parsed) -> Result<ValueTerm, ConditionError> {
        match parsed {
            Parsed::Value(value) => Ok(value),
            Parsed::Clause(_) => {
                Err(self.scanner.error("expected a number or a field before this, not a condition"))
            }
        }
    }

    fn any(&mut self, depth: usize) -> Result<Parsed, ConditionError> {
        self.joined(depth, "or", Self::all, Logic::Any)
    }

    fn all(&mut self, depth: usize) -> Result<Parsed, ConditionError> {
        self.joined(depth, "and", Self::single, Logic::All)
    }

    /// Parses conditions that are separated by a word such as `and`, and joins them.
    fn joined(
        &mut self,
        depth: usize,
        word: &str,
        part: fn(&mut Self, usize) -> Result<Parsed, ConditionError>,
        join: fn(Box<[Logic<Test>]>) -> Logic<Test>,
    ) -> Result<Parsed, ConditionError> {
        let start = self.scanner.start();
        let first = part(self, depth)?;
        if !self.scanner.take_word(word) {
            return Ok(first);
        }
        let mut parts = vec![self.clause(first, start)?];
        loop {
            let start = self.scanner.start();
            let next = part(self, depth)?;
            parts.push(self.clause(next, start)?);
            if !self.scanner.take_word(word) {
                return Ok(Parsed::Clause(join(parts.into())));
            }
        }
    }

    fn single(&mut self, depth: usize) -> Result<Parsed, ConditionError> {
        self.check_depth(depth)?;
        if self.scanner.take_word("not") {
            let start = self.scanner.start();
            let inner = self.single(depth + 1)?;
            let inner = self.clause(inner, start)?;
            return Ok(Parsed::Clause(Logic::Not(Box::new(inner))));
        }
        let start = self.scanner.start();
        for (name, is_every) in [("any", false), ("all", true)] {
            if self.scanner.take_function(name) {
                let inside = self.scanner.start();
                let inner = self.any(depth + 1)?;
                let inner = Box::new(self.clause(inner, inside)?);
                self.scanner.expect(")")?;
                let text = self.scanner.since(start).into();
                return Ok(test(Test::Elements { is_every, inner, text }));
            }
        }
        if let Some(function) = self.function(start)? {
            self.needs_samples.get_or_insert(start);
            return Ok(test(function));
        }
        let left = self.sum(depth)?;
        let rest = self.scanner.rest();
        let Some((token, operator)) = CompareSign::ALL.iter().find(|(token, _)| rest.starts_with(token))
        else {
            return Ok(left);
        };
        let left = self.value(left)?;
        self.scanner.at += token.len();
        let right = self.right_side(*operator, depth)?;
        let text = Arc::from(self.scanner.since(start));
        Ok(test(Test::Compare(CompareClause { text, left, operator: *operator, right })))
    }

    fn check_depth(&self, depth: usize) -> Result<(), ConditionError> {
        if depth < limits::NESTING_MAX {
            return Ok(());
        }
        Err(self
            .scanner
            .error(format!("more than {} parentheses and nots around each other", limits::NESTING_MAX)))
    }

    /// Parses a function whose result is a condition, such as `changed(FIELD)`.
    fn function(&mut self, start: usize) -> Result<Option<Test>, ConditionError> {
        let clause = if self.scanner.take_function("changed") {
            let begin = self.scanner.start();
            let path = self.path()?;
            let text = self.scanner.since(begin).into();
            let operand = self.operand(FieldOperand {
                path,
                transforms: vec![Transform::Changed],
                is_alias: false,
                text,
            })?;
            self.scanner.expect(")")?;
            Test::Changed { operand, text: self.scanner.since(start).into() }
        } else if self.scanner.take_function("absent") {
            let source = self.scanner.source_name()?;
            if !self.scanner.take(",") {
                return Err(self.scanner.error("expected a comma and a duration, as in absent(disk, 50ms)"));
            }
            let limit_ns = self.scanner.window()?;
            self.scanner.expect(")")?;
            Test::Rule(RuleTest::Absent { source, limit_ns })
        } else if self.scanner.take_function("exited") {
            let tests = self.exit_tests()?;
            Test::Rule(RuleTest::Exited(ExitTests { text: self.scanner.since(start).into(), ..tests }))
        } else if self.scanner.take_function("mark") {
            let expression = self.scanner.expression()?;
            self.scanner.expect(")")?;
            Test::Rule(RuleTest::Mark { expression, text: self.scanner.since(start).into() })
        } else {
            return Ok(None);
        };
        Ok(Some(clause))
    }

    /// Parses the tests of `exited`, which have the same syntax as a selection of elements.
    fn exit_tests(&mut self) -> Result<ExitTests, ConditionError> {
        let (mut of_process, mut of_end) = (Vec::new(), Vec::new());
        while !self.scanner.take(")") {
            let rest = self.scanner.rest();
            let end = length_outside_quotes(rest, |next| ",)".contains(next));
            let test = rest.get(..end).unwrap_or_default().trim();
            let name = test.split(['=', '!']).next().unwrap_or_default().trim();
            if name.is_empty() || name.len() == test.len() {
                return Err(self
                    .scanner
                    .error("expected a test, as in exited(name=\"postgres\", signal!=15)"));
            }
            let tests = if TESTS_OF_ENDS.contains(&name) { &mut of_end } else { &mut of_process };
            tests.push(test);
            self.scanner.at += end;
            self.scanner.take(",");
        }
        let picked = |list: &str, tests: &[&str]| -> Result<FieldPath, ConditionError> {
            let pick = if tests.is_empty() { "*".to_owned() } else { tests.join(",") };
            Ok(format!("process.{list}[{pick}].pid").parse()?)
        };
        let processes = (!of_process.is_empty()).then(|| picked("processes", &of_process)).transpose()?;
        let exits = picked("exits", &of_end)?;
        Ok(ExitTests { processes, exits, needs_events: !of_end.is_empty(), text: Arc::from("") })
    }

    /// Parses the right side of a comparison.
    fn right_side(&mut self, operator: CompareSign, depth: usize) -> Result<RightSide, ConditionError> {
        if operator == CompareSign::Matches {
            return self.scanner.expression().map(RightSide::Expression);
        }
        if self.scanner.rest().starts_with('"') {
            return self.scanner.quoted().map(|text| RightSide::Text(text.into()));
        }
        for truth in [true, false] {
            if self.scanner.take_word(if truth { "true" } else { "false" }) {
                return Ok(RightSide::Truth(truth));
            }
        }
        let right = self.sum(depth)?;
        self.value(right).map(RightSide::Value)
    }

    fn sum(&mut self, depth: usize) -> Result<Parsed, ConditionError> {
        let signs = [("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
        self.computed(depth, signs, Self::product)
    }

    fn product(&mut self, depth: usize) -> Result<Parsed, ConditionError> {
        let signs = [("*", Arithmetic::Multiply), ("/", Arithmetic::Divide)];
        self.computed(depth, signs, Self::factor)
    }

    /// Parses values that are separated by one of two operators.
    fn computed(
        &mut self,
        depth: usize,
        signs: [(&str, Arithmetic); 2],
        part: fn(&mut Self, usize) -> Result<Parsed, ConditionError>,
    ) -> Result<Parsed, ConditionError> {
        let mut left = part(self, depth)?;
        while let Some((_, operation)) = signs.iter().copied().find(|(sign, _)| self.scanner.take(sign)) {
            let first = self.value(left)?;
            let second = part(self, depth)?;
            let second = self.value(second)?;
            left = Parsed::Value(ValueTerm::Pair(operation, Box::new((first, second))));
        }
        Ok(left)
    }

    fn factor(&mut self, depth: usize) -> Result<Parsed, ConditionError> {
        if self.scanner.take("(") {
            self.check_depth(depth)?;
            let inner = self.any(depth + 1)?;
            self.scanner.expect(")")?;
            return Ok(inner);
        }
        let start = self.scanner.start();
        if self.scanner.take_function("lateness") {
            let source = self.scanner.source_name()?;
            self.scanner.expect(")")?;
            self.needs_samples.get_or_insert(start);
            return Ok(Parsed::Value(ValueTerm::Lateness(source)));
        }
        let rest = self.scanner.rest();
        // A minus begins a number only here, where a factor is expected. After a value, a minus is
        // an operator.
        let is_number = rest.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit());
        if is_number {
            self.scanner.number().map(ValueTerm::Number).map(Parsed::Value)
        } else {
            self.field().map(Parsed::Value)
        }
    }

    fn field(&mut self) -> Result<ValueTerm, ConditionError> {
        let start = self.scanner.start();
        let mut path = self.path()?;
        let alias = ALIASES.iter().find(|(name, _)| *name == path.as_str());
        if let Some((_, meant)) = alias {
            path = meant.parse()?;
        }
        let mut transforms = Vec::new();
        // Spaces are not skipped here, because a transform must directly follow its field.
        while self.scanner.text.get(self.scanner.at..).unwrap_or_default().starts_with(':') {
            if transforms.len() == limits::TRANSFORMS_MAX {
                return Err(self
                    .scanner
                    .error(format!("more than {} transforms of a field", limits::TRANSFORMS_MAX)));
            }
            self.needs_samples.get_or_insert(self.scanner.at);
            transforms.push(self.transform()?);
        }
        let text = self.scanner.since(start).into();
        self.operand(FieldOperand { path, transforms, is_alias: alias.is_some(), text }).map(ValueTerm::Field)
    }

    fn operand(&mut self, operand: FieldOperand) -> Result<usize, ConditionError> {
        if self.operands.len() == self.operands_max {
            return Err(self.scanner.error(format!("more than {} fields", self.operands_max)));
        }
        self.operands.push(operand);
        Ok(self.operands.len() - 1)
    }

    /// Parses a path. Outside of brackets, the path ends at a space, an operator, a colon, a comma
    /// or a parenthesis.
    fn path(&mut self) -> Result<FieldPath, ConditionError> {
        let rest = self.scanner.rest();
        let end = length_outside_quotes(rest, |next| next.is_whitespace() || "=!<>():,+*/".contains(next));
        let path = rest.get(..end).unwrap_or_default();
        if path.is_empty() {
            return Err(self.scanner.error("expected a field or a number"));
        }
        let path = path.parse()?;
        self.scanner.at += end;
        Ok(path)
    }

    fn transform(&mut self) -> Result<Transform, ConditionError> {
        let start = self.scanner.at;
        self.scanner.at += 1;
        let rest = self.scanner.text.get(self.scanner.at..).unwrap_or_default();
        let end = rest.find(|next: char| !next.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default();
        self.scanner.at += end;
        let (mut share, mut window_ns) = (None, None);
        if self.scanner.text.get(self.scanner.at..).is_some_and(|rest| rest.starts_with('(')) {
            self.scanner.at += 1;
            if name == "quantile" {
                share = Some(self.scanner.share()?);
                self.scanner.expect(",")?;
            }
            window_ns = Some(self.scanner.window()?);
            self.scanner.expect(")")?;
        }
        Transform::of(name, share, window_ns).ok_or_else(|| {
            let text = self.scanner.since(start).to_owned();
            self.scanner.at = start;
            self.scanner.error(format!("{text:?} is no transform; write {TRANSFORM_NAMES}"))
        })
    }
}

fn test(test: Test) -> Parsed {
    Parsed::Clause(Logic::Leaf(test))
}
