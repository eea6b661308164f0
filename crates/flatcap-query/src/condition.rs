//! Conditions on rows as users write them: `reads > 1000 and not state = "idle"`.

use std::cmp::Ordering;
use std::fmt::{self, Display};
use std::str::FromStr;

use flatcap_format::schema::{ColumnType, FieldValue};

use super::error::ConditionError;
use super::path::{FieldPath, whole_match};
use super::path_text::{length_outside_quotes, read_quoted_value};

/// Maximum nesting of parentheses and `not`, because the parser is recursive.
const DEPTH_MAX: usize = 64;

/// A condition on the rows of a source, parsed.
///
/// `condition = all { "or" all }`, `all = single { "and" single }`, `single = "not" single | "("
/// condition ")" | path operator value`. Operators are `=`, `==`, `!=`, `<`, `<=`, `>`, `>=` and
/// `=~`, which matches a whole text with a regular expression. A value with spaces or parentheses
/// is written in double quotes.
///
/// A comparison with an absent value, or with NaN, is false. Integers are compared exactly with
/// integers. With other numbers, they are compared as the nearest 64-bit float.
#[derive(Debug, Clone)]
pub struct RowCondition {
    text: Box<str>,
    pub(super) root: ConditionNode,
    pub(super) comparisons: Vec<Comparison>,
}

/// A part of a condition.
#[derive(Debug, Clone)]
pub(super) enum ConditionNode {
    All(Vec<ConditionNode>),
    Any(Vec<ConditionNode>),
    Not(Box<ConditionNode>),
    /// The comparison with this number.
    Comparison(usize),
}

/// A comparison of a field with a value.
#[derive(Debug, Clone)]
pub(super) struct Comparison {
    pub(super) path: FieldPath,
    pub(super) operator: CompareOperator,
    value: Box<str>,
    number: Option<LiteralNumber>,
    expression: Option<regex::Regex>,
}

/// The operator of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompareOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Matches,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum LiteralNumber {
    Integer(i128),
    Float(f64),
}

/// The possible results of a part of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Possible {
    pub(super) is_true: bool,
    pub(super) is_false: bool,
}

impl RowCondition {
    /// Returns whether the condition holds, given the result of each comparison.
    pub(super) fn holds(&self, comparison: &dyn Fn(usize) -> bool) -> bool {
        self.root.holds(comparison)
    }

    /// Returns the possible results, given the possible results of each comparison.
    pub(super) fn possible(&self, comparison: &dyn Fn(usize) -> Possible) -> Possible {
        self.root.possible(comparison)
    }
}

impl ConditionNode {
    fn holds(&self, comparison: &dyn Fn(usize) -> bool) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(comparison)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(comparison)),
            Self::Not(part) => !part.holds(comparison),
            Self::Comparison(number) => comparison(*number),
        }
    }

    fn possible(&self, comparison: &dyn Fn(usize) -> Possible) -> Possible {
        let all = |parts: &[Self], test: fn(Possible) -> bool| {
            parts.iter().all(|part| test(part.possible(comparison)))
        };
        match self {
            // Parts may depend on each other. The result assumes that they do not, so it may
            // include impossible results.
            Self::All(parts) => Possible {
                is_true: all(parts, |part| part.is_true),
                is_false: !all(parts, |part| !part.is_false),
            },
            Self::Any(parts) => Possible {
                is_true: !all(parts, |part| !part.is_true),
                is_false: all(parts, |part| part.is_false),
            },
            Self::Not(part) => {
                let Possible { is_true, is_false } = part.possible(comparison);
                Possible { is_true: is_false, is_false: is_true }
            }
            Self::Comparison(number) => comparison(*number),
        }
    }
}

impl Comparison {
    /// Checks that this comparison is possible for values of a type. `path` is the full path of the
    /// column.
    ///
    /// # Errors
    /// The value or the operator does not fit the type.
    pub(super) fn check(
        &self,
        path: &str,
        column_type: ColumnType,
        type_name: &str,
    ) -> Result<(), ConditionError> {
        let error = |expected: &'static str| ConditionError::Type {
            path: path.to_owned(),
            type_name: type_name.to_owned(),
            operator: self.operator.spelled(),
            value: self.value.to_string(),
            expected,
        };
        match column_type {
            ColumnType::Text if self.operator.is_order() => Err(error("=, != or =~ and a text")),
            ColumnType::Text => Ok(()),
            _ if self.operator == CompareOperator::Matches => Err(error("another operator: =~ is for texts")),
            ColumnType::Bool if self.truth().is_none() || self.operator.is_order() => {
                Err(error("= or != and true or false"))
            }
            ColumnType::Bool => Ok(()),
            _ if self.number.is_none() => Err(error("a number")),
            _ => Ok(()),
        }
    }

    fn truth(&self) -> Option<bool> {
        match &*self.value {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// Returns whether a value passes the comparison.
    pub(super) fn passes(&self, value: FieldValue<'_>) -> bool {
        let order = match value {
            FieldValue::Absent => None,
            FieldValue::Text(text) => match &self.expression {
                Some(expression) => return expression.is_match(text),
                // The field is a number in another run. In this run, the comparison does not hold.
                None if self.operator.is_order() => None,
                None => Some(text.cmp(&self.value)),
            },
            FieldValue::Bool(value) => self.truth().map(|own| value.cmp(&own)),
            FieldValue::Unsigned(number) => self.order(i128::from(number)),
            FieldValue::Signed(number) => self.order(i128::from(number)),
            FieldValue::Float32(number) => self.float_order(f64::from(number)),
            FieldValue::Float(number) => self.float_order(number),
        };
        order.is_some_and(|order| self.operator.accepts(order))
    }

    #[allow(clippy::cast_precision_loss, reason = "documented")]
    fn order(&self, number: i128) -> Option<Ordering> {
        match self.number.filter(|_| self.expression.is_none())? {
            LiteralNumber::Integer(own) => Some(number.cmp(&own)),
            LiteralNumber::Float(own) => (number as f64).partial_cmp(&own),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "documented")]
    fn float_order(&self, number: f64) -> Option<Ordering> {
        match self.number.filter(|_| self.expression.is_none())? {
            LiteralNumber::Integer(own) => number.partial_cmp(&(own as f64)),
            LiteralNumber::Float(own) => number.partial_cmp(&own),
        }
    }

    /// Returns the possible results for values from `lowest` to `highest`.
    pub(super) fn possible(&self, lowest: FieldValue<'_>, highest: FieldValue<'_>) -> Possible {
        let order = |value: FieldValue<'_>| match value {
            FieldValue::Unsigned(number) => self.order(i128::from(number)),
            FieldValue::Signed(number) => self.order(i128::from(number)),
            FieldValue::Float32(number) => self.float_order(f64::from(number)),
            FieldValue::Float(number) => self.float_order(number),
            _ => None,
        };
        let (Some(low), Some(high)) = (order(lowest), order(highest)) else { return Possible::UNKNOWN };
        let orders = [Ordering::Less, Ordering::Equal, Ordering::Greater];
        let between = |order: &&Ordering| low <= **order && **order <= high;
        // Between two adjacent values there may be no equal value. The result `Equal` then only
        // widens the set.
        Possible {
            is_true: orders.iter().filter(between).any(|order| self.operator.accepts(*order)),
            is_false: orders.iter().filter(between).any(|order| !self.operator.accepts(*order)),
        }
    }
}

impl Possible {
    /// Both results, true and false, are possible.
    pub(super) const UNKNOWN: Self = Self { is_true: true, is_false: true };

    /// Returns the set with one known result.
    pub(super) fn known(result: bool) -> Self {
        Self { is_true: result, is_false: !result }
    }

    /// Returns the results of either set.
    pub(super) fn or(self, other: Self) -> Self {
        Self { is_true: self.is_true || other.is_true, is_false: self.is_false || other.is_false }
    }
}

impl CompareOperator {
    // Longer operators come first: `<` is a prefix of `<=`.
    const ALL: [(&'static str, Self); 8] = [
        ("<=", Self::LessOrEqual),
        (">=", Self::GreaterOrEqual),
        ("!=", Self::NotEqual),
        ("==", Self::Equal),
        ("=~", Self::Matches),
        ("=", Self::Equal),
        ("<", Self::Less),
        (">", Self::Greater),
    ];

    fn spelled(self) -> &'static str {
        Self::ALL.iter().rfind(|(_, operator)| *operator == self).map_or("", |(text, _)| text)
    }

    fn is_order(self) -> bool {
        matches!(self, Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual)
    }

    fn accepts(self, order: Ordering) -> bool {
        match self {
            Self::Equal | Self::Matches => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Display for RowCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for RowCondition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let mut parser = ConditionParser { text, at: 0, comparisons: Vec::new() };
        let root = parser.any(0)?;
        if !parser.rest().is_empty() {
            return Err(parser.error("expected and, or or the end"));
        }
        Ok(Self { text: text.trim().into(), root, comparisons: parser.comparisons })
    }
}

struct ConditionParser<'t> {
    text: &'t str,
    at: usize,
    comparisons: Vec<Comparison>,
}

impl<'t> ConditionParser<'t> {
    fn error(&self, what: &'static str) -> ConditionError {
        ConditionError::Syntax { text: self.text.to_owned(), at: self.at, what }
    }

    /// Returns the remaining text, without leading space.
    fn rest(&mut self) -> &'t str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn take(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    /// Takes this word, in upper or lower case, if it is not the beginning of a longer word.
    fn take_word(&mut self, word: &str) -> bool {
        let rest = self.rest();
        let is_next = rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
            && rest.get(word.len()..).is_some_and(|after| {
                after.is_empty() || after.starts_with(|next: char| next.is_whitespace() || next == '(')
            });
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    fn any(&mut self, depth: usize) -> Result<ConditionNode, ConditionError> {
        let mut parts = vec![self.all(depth)?];
        while self.take_word("or") {
            parts.push(self.all(depth)?);
        }
        Ok(ConditionNode::Any(parts))
    }

    fn all(&mut self, depth: usize) -> Result<ConditionNode, ConditionError> {
        let mut parts = vec![self.single(depth)?];
        while self.take_word("and") {
            parts.push(self.single(depth)?);
        }
        Ok(ConditionNode::All(parts))
    }

    fn single(&mut self, depth: usize) -> Result<ConditionNode, ConditionError> {
        if depth >= DEPTH_MAX {
            return Err(self.error("more than 64 parentheses and nots around each other"));
        }
        if self.take_word("not") {
            return Ok(ConditionNode::Not(Box::new(self.single(depth + 1)?)));
        }
        if self.take("(") {
            let inner = self.any(depth + 1)?;
            return if self.take(")") { Ok(inner) } else { Err(self.error("expected )")) };
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<ConditionNode, ConditionError> {
        let rest = self.rest();
        let end = path_end(rest);
        let path = rest.get(..end).unwrap_or_default().trim_end();
        if path.is_empty() {
            return Err(self.error("expected a field"));
        }
        let path: FieldPath = path.parse()?;
        self.at += end;
        let rest = self.rest();
        let Some((token, operator)) = CompareOperator::ALL.iter().find(|(token, _)| rest.starts_with(token))
        else {
            return Err(self.error("expected =, !=, <, <=, >, >= or =~ after the field"));
        };
        self.at += token.len();
        let value = self.value()?;
        let expression = (*operator == CompareOperator::Matches).then(|| whole_match(&value));
        let expression = expression.transpose().map_err(|_| self.error("not a regular expression"))?;
        let integer = value.parse().map(LiteralNumber::Integer).ok();
        let float = || value.parse().ok().filter(|number: &f64| !number.is_nan()).map(LiteralNumber::Float);
        let number = integer.or_else(float);
        let value = value.into();
        self.comparisons.push(Comparison { path, operator: *operator, value, number, expression });
        Ok(ConditionNode::Comparison(self.comparisons.len() - 1))
    }

    fn value(&mut self) -> Result<String, ConditionError> {
        if !self.take("\"") {
            let rest = self.rest();
            let end = rest.find(|next: char| next.is_whitespace() || next == ')').unwrap_or(rest.len());
            let value = rest.get(..end).unwrap_or_default();
            if value.is_empty() {
                return Err(self.error("expected a value"));
            }
            self.at += end;
            return Ok(value.to_owned());
        }
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (value, length) =
            read_quoted_value(rest).ok_or_else(|| self.error("the closing quote is missing"))?;
        self.at += length;
        Ok(value)
    }
}

/// Returns the length of the path with which a text begins: up to a space or an operator outside of
/// brackets.
fn path_end(text: &str) -> usize {
    length_outside_quotes(text, |next| next.is_whitespace() || "=!<>()".contains(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> RowCondition {
        text.parse().unwrap()
    }

    fn refused(text: &str) -> String {
        text.parse::<RowCondition>().unwrap_err().to_string()
    }

    /// Returns the results of a condition for the values 0 to 5 of its fields.
    fn results(text: &str) -> Vec<bool> {
        let condition = parsed(text);
        let holds = |value| {
            condition.holds(&|number| condition.comparisons[number].passes(FieldValue::Unsigned(value)))
        };
        (0..6).map(holds).collect()
    }

    // Proves that `and` has higher precedence than `or`, that `not` has the highest, and that
    // parentheses override both.
    #[test]
    fn words_bind_as_usual() {
        let rows = |rows: [u8; 6]| rows.map(|row| row == 1).to_vec();
        assert_eq!(results("a > 3"), rows([0, 0, 0, 0, 1, 1]));
        assert_eq!(results("a = 1 or a >= 2 and a < 4"), rows([0, 1, 1, 1, 0, 0]));
        assert_eq!(results("(a = 1 or a >= 2) AND a < 3"), rows([0, 1, 1, 0, 0, 0]));
        assert_eq!(results("not a = 1 and a != 3"), rows([1, 0, 1, 0, 1, 1]));
        assert_eq!(results("not(a<=1 or not a<5)"), rows([0, 0, 1, 1, 1, 0]));
        assert_eq!(results("a>2.5"), rows([0, 0, 0, 1, 1, 1]));
        let condition = parsed(r#"disk.devices[name=~"sd.*"].reads>=5 and state = "a b""#);
        assert_eq!(condition.comparisons[0].path.as_str(), r#"disk.devices[name=~"sd.*"].reads"#);
        assert!(condition.comparisons[1].passes(FieldValue::Text("a b")));
        assert_eq!(condition.to_string(), r#"disk.devices[name=~"sd.*"].reads>=5 and state = "a b""#);
    }

    // Proves that integers are compared exactly, and that absent values and NaN pass no comparison.
    #[test]
    fn values_are_compared_exactly() {
        let passes = |text: &str, value| parsed(text).comparisons[0].passes(value);
        assert!(passes("a > 18446744073709551614", FieldValue::Unsigned(u64::MAX)));
        assert!(!passes("a > 18446744073709551615", FieldValue::Unsigned(u64::MAX)));
        assert!(passes("a < -9223372036854775807", FieldValue::Signed(i64::MIN)));
        assert!(passes("a >= 1e3", FieldValue::Float32(1000.0)));
        for text in ["a = 1", "a != 1", "a < inf"] {
            assert!(!passes(text, FieldValue::Absent) && !passes(text, FieldValue::Float(f64::NAN)));
        }
        assert!(passes("a = true", FieldValue::Bool(true)) && !passes("a != true", FieldValue::Bool(true)));
        assert!(passes("a =~ post.*", FieldValue::Text("postgres")));
        assert!(!passes("a =~ post", FieldValue::Text("postgres")));
    }

    // Proves that the possible results for a range of values include the results for all values in
    // it, and that they are exact if a bound decides.
    #[test]
    fn possible_results_include_all_values() {
        for operator in ["=", "!=", "<", "<=", ">", ">="] {
            for literal in ["3", "2.5", "-1", "7"] {
                let condition = parsed(&format!("a {operator} {literal}"));
                let comparison = &condition.comparisons[0];
                for lowest in 0..6_u64 {
                    for highest in lowest..6 {
                        let possible =
                            comparison.possible(FieldValue::Unsigned(lowest), FieldValue::Unsigned(highest));
                        for value in lowest..=highest {
                            let passes = comparison.passes(FieldValue::Unsigned(value));
                            assert!(if passes { possible.is_true } else { possible.is_false });
                        }
                        if lowest == highest {
                            let passes = comparison.passes(FieldValue::Unsigned(lowest));
                            assert_eq!(possible, Possible::known(passes));
                        }
                    }
                }
            }
        }
        let condition = parsed("not (a > 3 and a < 5)");
        let possible = condition.possible(&|_| Possible::known(true));
        assert_eq!(possible, Possible::known(false));
    }

    // Proves that each mistake is reported with its position, and wrong types with the column.
    #[test]
    fn mistakes_are_named() {
        assert_eq!(refused("a >"), r#"condition "a >", byte 3: expected a value"#);
        assert_eq!(refused("a > 1 b"), r#"condition "a > 1 b", byte 6: expected and, or or the end"#);
        assert!(refused("").ends_with("byte 0: expected a field"));
        assert!(refused("(a > 1").ends_with("byte 6: expected )"));
        assert!(refused("a").contains("byte 1: expected =, !=, <"));
        assert!(refused("a =~ \"(\"").ends_with("not a regular expression"));
        assert!(refused("a = \"b").ends_with("the closing quote is missing"));
        assert!(refused("a..b > 1").contains("a name is missing"));
        assert!(refused(&"(".repeat(100)).contains("more than 64"));
        let check = |text: &str, column_type| {
            parsed(text).comparisons[0].check("s.a", column_type, "t").map_err(|error| error.to_string())
        };
        assert_eq!(
            check("a > x", ColumnType::Unsigned).unwrap_err(),
            r#"condition "s.a > x": s.a is t; compare it with a number"#
        );
        assert!(check("a < 3", ColumnType::Text).unwrap_err().contains("=, != or =~ and a text"));
        assert!(check("a =~ 3", ColumnType::Float).unwrap_err().contains("=~ is for texts"));
        assert!(check("a = 3", ColumnType::Bool).unwrap_err().contains("true or false"));
        assert!(check("a = 3", ColumnType::Text).is_ok() && check("a < 3", ColumnType::Signed).is_ok());
    }
}
