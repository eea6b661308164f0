//! Checks a parsed expression, and makes the tree that is evaluated.

use std::time::Duration;

use promql_parser::label::Matchers;
use promql_parser::parser::{
    self, AggregateExpr, BinaryExpr, Call, Expr, LabelModifier, MatrixSelector, Offset,
    VectorMatchCardinality, VectorSelector,
};

use crate::aggregation::Aggregation;
use crate::error::PromqlError;
use crate::function::Function;
use crate::operator::{Operator, SetOperator};
use crate::plan::{AggregateNode, Binary, Cardinality, Matching, Node, SetOperation};
use crate::selection::Selection;
use crate::window::WindowShape;
use crate::window_function::{QUANTILE_OVER_TIME, WindowFunction};

/// Longest expression, in bytes.
const EXPRESSION_BYTES_MAX: usize = 4096;
/// Most operators and parentheses of an expression: its tree is walked by recursion.
const OPERATORS_MAX: usize = 256;
/// The bytes that make a tree deeper; words are taken for operators, too.
const OPERATORS: &[u8] = b"(+-*/%^<>=!";
const OPERATOR_WORDS: [&str; 4] = ["and", "or", "unless", "atan2"];

const SUBQUERY: &str = "a subquery, as [5m:1m],";

/// Makes the tree of an expression.
pub(crate) struct Planner {
    /// How long a sample counts after its time, where no window says it.
    pub(crate) lookback_ms: i64,
}

/// Parses an expression.
pub(crate) fn parse(expression: &str) -> Result<Expr, PromqlError> {
    if expression.len() > EXPRESSION_BYTES_MAX {
        return Err(PromqlError::Expression(format!(
            "the expression has {} bytes, at most {EXPRESSION_BYTES_MAX}",
            expression.len()
        )));
    }
    let is_operator = |word: &&str| OPERATOR_WORDS.iter().any(|own| own.eq_ignore_ascii_case(word));
    let signs = expression.bytes().filter(|byte| OPERATORS.contains(byte)).count();
    let operators =
        signs + expression.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_operator).count();
    if operators > OPERATORS_MAX {
        return Err(PromqlError::Expression(format!(
            "the expression has {operators} operators and parentheses, at most {OPERATORS_MAX}"
        )));
    }
    parser::parse(expression).map_err(|error| PromqlError::Expression(format!("not PromQL: {error}")))
}

/// Returns the names of all functions that are supported.
fn functions() -> Vec<&'static str> {
    let own = ["scalar", "time", "vector"];
    let mut names: Vec<&str> = WindowFunction::names().chain(Function::names()).chain(own).collect();
    names.sort_unstable();
    names
}

/// Parses a selector.
pub(crate) fn parse_selection(text: &str) -> Result<Selection, PromqlError> {
    match parse(text)? {
        Expr::VectorSelector(selector) => selection(&selector),
        other => Err(PromqlError::Expression(format!("{other} is no selector, such as flatcap_load_tasks"))),
    }
}

impl Planner {
    /// Returns the tree of an expression.
    pub(crate) fn plan(&self, expression: &Expr) -> Result<Node, PromqlError> {
        match expression {
            Expr::NumberLiteral(number) => Ok(Node::Number(number.val)),
            Expr::Paren(inner) => self.plan(&inner.expr),
            Expr::Unary(inner) => Ok(Node::Negative(Box::new(self.plan(&inner.expr)?))),
            Expr::VectorSelector(selector) => samples(selector, WindowFunction::Last, self.lookback_ms),
            Expr::Call(call) => self.call(call),
            Expr::Binary(binary) => self.binary(binary),
            Expr::Aggregate(aggregate) => self.aggregate(aggregate),
            Expr::MatrixSelector(selector) => Err(PromqlError::Expression(format!(
                "{selector} is a window; apply a function to it, such as rate({selector})"
            ))),
            Expr::Subquery(_) => Err(PromqlError::unsupported(SUBQUERY)),
            Expr::StringLiteral(_) => Err(PromqlError::unsupported("a text as a value")),
            Expr::Extension(_) => Err(PromqlError::unsupported("an extension")),
        }
    }

    fn call(&self, call: &Call) -> Result<Node, PromqlError> {
        let name = call.func.name;
        let arguments: Vec<&Expr> = call.args.args.iter().map(|argument| plain(argument)).collect();
        if arguments.iter().any(|argument| matches!(argument, Expr::Subquery(_))) {
            return Err(PromqlError::unsupported(SUBQUERY));
        }
        match (name, arguments.as_slice()) {
            ("time", []) => return Ok(Node::Time),
            ("scalar", [of]) => return Ok(Node::ScalarOf(Box::new(self.plan(of)?))),
            ("vector", [of]) => return Ok(Node::VectorOf(Box::new(self.plan(of)?))),
            (QUANTILE_OVER_TIME, [quantile, Expr::MatrixSelector(MatrixSelector { vs, range })]) => {
                let function = WindowFunction::Quantile(number(quantile, name)?);
                return samples(vs, function, milliseconds(*range));
            }
            (_, [Expr::MatrixSelector(MatrixSelector { vs, range })]) => {
                if let Some(function) = WindowFunction::named(name) {
                    return samples(vs, function, milliseconds(*range));
                }
            }
            (_, [of, parameters @ ..]) => {
                let numbers = parameters.iter().map(|parameter| number(parameter, name));
                // Which functions there are is said first.
                if Function::names().any(|known| known == name)
                    && let Some(function) = Function::named(name, &numbers.collect::<Result<Vec<f64>, _>>()?)
                {
                    return Ok(Node::Call(function, Box::new(self.plan(of)?)));
                }
            }
            _ => {}
        }
        let known = functions().join(", ");
        Err(PromqlError::Expression(format!(
            "the function {name} is not supported with these arguments; there are: {known}"
        )))
    }

    fn binary(&self, binary: &BinaryExpr) -> Result<Node, PromqlError> {
        let token = binary.op.to_string();
        let (left, right) = (self.plan(&binary.lhs)?, self.plan(&binary.rhs)?);
        let modifier = binary.modifier.clone().unwrap_or_default();
        if modifier.fill_values.lhs.is_some() || modifier.fill_values.rhs.is_some() {
            return Err(PromqlError::unsupported("the modifier fill"));
        }
        let matching = matching(modifier.matching.as_ref());
        if let Some(operator) = SetOperator::of(&token) {
            return Ok(Node::Set(Box::new(SetOperation { operator, left, right, matching })));
        }
        let Some(operator) = Operator::of(&token) else {
            return Err(PromqlError::unsupported(&format!("the operator {token}")));
        };
        let cardinality = match modifier.card {
            VectorMatchCardinality::ManyToOne(labels) => Cardinality::ManyToOne(labels.labels),
            VectorMatchCardinality::OneToMany(labels) => Cardinality::OneToMany(labels.labels),
            _ => Cardinality::OneToOne,
        };
        let returns_bool = modifier.return_bool;
        Ok(Node::Binary(Box::new(Binary { operator, left, right, returns_bool, matching, cardinality })))
    }

    fn aggregate(&self, aggregate: &AggregateExpr) -> Result<Node, PromqlError> {
        let name = aggregate.op.to_string();
        let parameter =
            aggregate.param.as_ref().map(|parameter| number(plain(parameter), &name)).transpose()?;
        let Some(aggregation) = Aggregation::named(&name, parameter) else {
            return Err(PromqlError::unsupported(&format!("the aggregation {name}")));
        };
        let grouping = match &aggregate.modifier {
            None => Matching::On(Vec::new()),
            modifier => matching(modifier.as_ref()),
        };
        Ok(Node::Aggregate(Box::new(AggregateNode {
            aggregation,
            of: self.plan(&aggregate.expr)?,
            grouping,
        })))
    }
}

/// Returns what a function makes of the samples of a selector.
fn samples(selector: &VectorSelector, function: WindowFunction, range_ms: i64) -> Result<Node, PromqlError> {
    if selector.at.is_some() {
        return Err(PromqlError::unsupported("the modifier @"));
    }
    let offset_ms = match &selector.offset {
        None => 0,
        Some(Offset::Pos(offset)) => milliseconds(*offset),
        Some(Offset::Neg(offset)) => milliseconds(*offset).saturating_neg(),
    };
    Ok(Node::Samples(selection(selector)?, WindowShape { function, range_ms, offset_ms }))
}

fn selection(selector: &VectorSelector) -> Result<Selection, PromqlError> {
    let Matchers { mut matchers, or_matchers } = selector.matchers.clone();
    if !or_matchers.is_empty() {
        return Err(PromqlError::unsupported("or between matchers"));
    }
    if let Some(name) = &selector.name {
        let own = promql_parser::label::Matcher::new_metric_name_matcher(name.clone());
        matchers.push(own.map_err(PromqlError::Expression)?);
    }
    Ok(Selection::new(matchers))
}

fn matching(modifier: Option<&LabelModifier>) -> Matching {
    match modifier {
        None => Matching::Ignoring(Vec::new()),
        Some(LabelModifier::Include(labels)) => Matching::On(labels.labels.clone()),
        Some(LabelModifier::Exclude(labels)) => Matching::Ignoring(labels.labels.clone()),
    }
}

/// Returns an expression without the parentheses around it.
fn plain(expression: &Expr) -> &Expr {
    match expression {
        Expr::Paren(inner) => plain(&inner.expr),
        other => other,
    }
}

/// Returns the number that a parameter is.
fn number(parameter: &Expr, of: &str) -> Result<f64, PromqlError> {
    match parameter {
        Expr::NumberLiteral(number) => Ok(number.val),
        Expr::Unary(inner) => Ok(-number(plain(&inner.expr), of)?),
        other => Err(PromqlError::Expression(format!("the parameter {other} of {of} must be a number"))),
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
