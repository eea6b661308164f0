//! Checks a parsed expression, and builds the tree that is evaluated.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use promql_parser::label::{MatchOp, Matcher, Matchers};
use promql_parser::parser::{
    self, AggregateExpr, AtModifier, BinaryExpr, Call, Expr, LabelModifier, MatrixSelector, Offset,
    SubqueryExpr, VectorMatchCardinality, VectorSelector,
};

use crate::aggregation::Aggregation;
use crate::error::PromqlError;
use crate::function::Function;
use crate::label_rule::LabelRule;
use crate::labels::{Labels, NAME};
use crate::operator::{Operator, SetOperator};
use crate::plan::{
    AggregateNode, AggregationRule, Binary, Cardinality, ComputedCall, FixedTime, Matching, Node,
    SetOperation, Subquery,
};
use crate::selection::Selection;
use crate::window::WindowShape;
use crate::window_function::{PREDICT_LINEAR, QUANTILE_OVER_TIME, WindowFunction};

/// Maximum length of an expression, in bytes.
const EXPRESSION_BYTES_MAX: usize = 4096;
/// Maximum number of operators and parentheses of an expression.
// The tree of the expression is walked by recursion.
const OPERATORS_MAX: usize = 256;
/// The characters in an expression that can increase the depth of its tree. The words in
/// `OPERATOR_WORDS` can also increase the depth.
const OPERATORS: &[u8] = b"(+-*/%^<>=!";
const OPERATOR_WORDS: [&str; 4] = ["and", "or", "unless", "atan2"];

/// The default step of a subquery, in milliseconds.
// This is the usual interval between evaluations of rules.
const SUBQUERY_STEP_MS: i64 = 60_000;

/// Builds the tree of an expression.
pub(crate) struct Planner {
    /// Time for which a sample stays valid for a selector without a window.
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
    // The operators are counted in the text before parsing, because the parser recurses.
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
    let own = [
        "absent",
        "absent_over_time",
        "histogram_quantile",
        "label_join",
        "label_replace",
        "pi",
        "scalar",
        "sort",
        "sort_desc",
        "time",
        "timestamp",
        "vector",
    ];
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
            Expr::VectorSelector(selector) => self.current(selector, WindowFunction::Current),
            Expr::Call(call) => self.call(call),
            Expr::Binary(binary) => self.binary(binary),
            Expr::Aggregate(aggregate) => self.aggregate(aggregate),
            Expr::MatrixSelector(selector) => Err(PromqlError::Expression(format!(
                "{selector} is a window; apply a function to it, such as rate({selector})"
            ))),
            Expr::Subquery(subquery) => Err(PromqlError::Expression(format!(
                "{subquery} is a window; apply a function to it, such as max_over_time({subquery})"
            ))),
            Expr::StringLiteral(_) => Err(PromqlError::unsupported("a text as a value")),
            Expr::Extension(_) => Err(PromqlError::unsupported("an extension")),
        }
    }

    fn call(&self, call: &Call) -> Result<Node, PromqlError> {
        let name = call.func.name;
        let arguments: Vec<&Expr> = call.args.args.iter().map(|argument| plain(argument)).collect();
        match (name, arguments.as_slice()) {
            ("time", []) => return Ok(Node::Time),
            ("pi", []) => return Ok(Node::Number(std::f64::consts::PI)),
            (_, []) => {
                // As in Prometheus, a date function without an argument uses the time of the step.
                if let Some(function) = Function::named(name, &[]).filter(|own| own.is_of_calendar()) {
                    let now = Node::VectorOf(Box::new(Node::Time));
                    return Ok(Node::Call(function, Box::new(now)));
                }
            }
            ("scalar", [of]) => return Ok(Node::ScalarOf(Box::new(self.plan(of)?))),
            ("vector", [of]) => return Ok(Node::VectorOf(Box::new(self.plan(of)?))),
            ("absent", [of]) => {
                return Ok(Node::Absent(Box::new(self.plan(of)?), absent_labels(of)));
            }
            ("absent_over_time", [window]) => {
                let of = self.windows(window, |_| WindowFunction::Present)?;
                return Ok(Node::Absent(Box::new(of), absent_labels(window)));
            }
            ("sort" | "sort_desc", [of]) => {
                let is_descending = name == "sort_desc";
                return Ok(Node::Sorted { of: Box::new(self.plan(of)?), is_descending });
            }
            // For a selector, `timestamp` returns the times of the samples. For all other
            // expressions, it returns the time of the step.
            ("timestamp", [Expr::VectorSelector(selector)]) => {
                return self.current(selector, WindowFunction::CurrentTime);
            }
            ("timestamp", [of]) => return Ok(Node::TimeOf(Box::new(self.plan(of)?))),
            ("histogram_quantile", [quantile, of]) => {
                let (quantile, of) = (Box::new(self.plan(quantile)?), Box::new(self.plan(of)?));
                return Ok(Node::HistogramQuantile { quantile, of });
            }
            ("label_replace" | "label_join", [of, texts @ ..]) => {
                let rule = label_rule(name, texts)?;
                return Ok(Node::Relabelled(Box::new(self.plan(of)?), rule));
            }
            (QUANTILE_OVER_TIME, [quantile, window]) => {
                let quantile = number(quantile, name)?;
                return self.windows(window, |_| WindowFunction::Quantile(quantile));
            }
            (PREDICT_LINEAR, [window, after_s]) => {
                let after_s = number(after_s, name)?;
                // The prediction starts at the time of the step, regardless of the end of the
                // window.
                #[allow(clippy::cast_precision_loss, reason = "milliseconds of an offset")]
                return self.windows(window, |offset_ms| {
                    WindowFunction::Predicted(after_s + offset_ms as f64 / 1000.0)
                });
            }
            (_, [window @ (Expr::MatrixSelector(_) | Expr::Subquery(_))]) => {
                if let Some(function) = WindowFunction::named(name) {
                    return self.windows(window, |_| function);
                }
            }
            // If both the function is unknown and a parameter is wrong, the unknown function is
            // reported.
            (_, [of, parameters @ ..]) if Function::names().any(|known| known == name) => {
                if let Some(node) = self.value_function(name, of, parameters)? {
                    return Ok(node);
                }
            }
            _ => {}
        }
        let known = functions().join(", ");
        Err(PromqlError::Expression(format!(
            "the function {name} is not supported with these arguments; there are: {known}"
        )))
    }

    /// Returns the node of a function that is applied to each value. Returns `None` if no function
    /// has this name and these parameters.
    fn value_function(
        &self,
        name: &str,
        of: &Expr,
        parameters: &[&Expr],
    ) -> Result<Option<Node>, PromqlError> {
        let numbers: Result<Vec<f64>, _> =
            parameters.iter().map(|parameter| number(parameter, name)).collect();
        let of = self.plan(of)?;
        // Constant parameters are checked now. All other parameters may differ from step to step.
        if let Ok(numbers) = numbers {
            let function = Function::named(name, &numbers);
            return Ok(function.map(|function| Node::Call(function, Box::new(of))));
        }
        let parameters = parameters.iter().map(|parameter| self.plan(parameter)).collect::<Result<_, _>>()?;
        let name = name.to_owned();
        Ok(Some(Node::ComputedCall(Box::new(ComputedCall { name, of, parameters }))))
    }

    /// Returns the current values of a selector.
    fn current(&self, selector: &VectorSelector, function: WindowFunction) -> Result<Node, PromqlError> {
        samples(selector, function, self.lookback_ms)
    }

    /// Returns the node that applies a function to windows. The function may depend on the offset
    /// of the windows, in milliseconds.
    fn windows(
        &self,
        window: &Expr,
        function: impl FnOnce(i64) -> WindowFunction,
    ) -> Result<Node, PromqlError> {
        match window {
            Expr::MatrixSelector(MatrixSelector { vs, range }) => {
                samples(vs, function(offset_of(vs.offset.as_ref())), milliseconds(*range))
            }
            Expr::Subquery(SubqueryExpr { expr, offset, at, range, step }) => {
                let offset_ms = offset_of(offset.as_ref());
                let shape =
                    WindowShape { function: function(offset_ms), range_ms: milliseconds(*range), offset_ms };
                // The step is used as a divisor, so it is at least 1 ms.
                let step_ms = step.map_or(SUBQUERY_STEP_MS, milliseconds).max(1);
                let (of, at) = (self.plan(expr)?, at.as_ref().map(fixed_time));
                Ok(Node::Subquery(Box::new(Subquery { of, shape, step_ms, at })))
            }
            other => Err(PromqlError::Expression(format!(
                "{other} stands where a window is needed, such as x[5m]"
            ))),
        }
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
        let aggregation = match aggregate.param.as_ref().map(|parameter| plain(parameter)) {
            Some(Expr::StringLiteral(label)) if name == "count_values" => {
                AggregationRule::CountValues(label.val.clone())
            }
            Some(parameter) if number(parameter, &name).is_err() => {
                let parameter = Box::new(self.plan(parameter)?);
                AggregationRule::Computed { name, parameter }
            }
            parameter => {
                let parameter = parameter.map(|parameter| number(parameter, &name)).transpose()?;
                let Some(aggregation) = Aggregation::named(&name, parameter) else {
                    return Err(PromqlError::unsupported(&format!("the aggregation {name}")));
                };
                AggregationRule::Fixed(aggregation)
            }
        };
        let grouping = match &aggregate.modifier {
            // Without a modifier, all series are one group.
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

/// Returns the node that applies a function to the samples of a selector.
fn samples(selector: &VectorSelector, function: WindowFunction, range_ms: i64) -> Result<Node, PromqlError> {
    let offset_ms = offset_of(selector.offset.as_ref());
    let at = selector.at.as_ref().map(fixed_time);
    Ok(Node::Samples(selection(selector)?, WindowShape { function, range_ms, offset_ms }, at))
}

fn offset_of(offset: Option<&Offset>) -> i64 {
    match offset {
        None => 0,
        Some(Offset::Pos(offset)) => milliseconds(*offset),
        Some(Offset::Neg(offset)) => milliseconds(*offset).saturating_neg(),
    }
}

fn fixed_time(at: &AtModifier) -> FixedTime {
    match at {
        AtModifier::Start => FixedTime::First,
        AtModifier::End => FixedTime::Last,
        AtModifier::At(time) => FixedTime::At(match time.duration_since(UNIX_EPOCH) {
            Ok(after) => milliseconds(after),
            Err(before) => milliseconds(before.duration()).saturating_neg(),
        }),
    }
}

/// Returns the labels that a selector specifies, which become the labels of the result of `absent`.
fn absent_labels(of: &Expr) -> Labels {
    let selector = match of {
        Expr::VectorSelector(selector) => selector,
        Expr::MatrixSelector(MatrixSelector { vs, .. }) => vs,
        _ => return Labels::default(),
    };
    let mut stated: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for Matcher { op, name, value } in selector.matchers.matchers.iter().filter(|own| own.name != NAME) {
        // As in Prometheus, the label of an `=` matcher is removed if another matcher of this label
        // follows. A matcher before the `=` matcher does not remove the label.
        if let Some(known) = stated.get_mut(name.as_str()) {
            *known = None;
        } else if *op == MatchOp::Equal {
            stated.insert(name, Some(value));
        }
    }
    let stated = stated.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    Labels::new(stated)
}

/// Returns the rule of `label_replace` or `label_join` with these arguments.
fn label_rule(name: &str, arguments: &[&Expr]) -> Result<LabelRule, PromqlError> {
    let texts: Vec<&str> = arguments.iter().map(|argument| text(argument, name)).collect::<Result<_, _>>()?;
    match (name, texts.as_slice()) {
        ("label_replace", [to, replacement, from, pattern]) => {
            LabelRule::replace(to, replacement, from, pattern)
        }
        ("label_join", [to, separator, from @ ..]) => {
            LabelRule::join(to, separator, from.iter().map(|name| (*name).to_owned()).collect())
        }
        _ => Err(PromqlError::Expression(format!("{name} has too few arguments"))),
    }
}

/// Returns the string that is passed as an argument.
fn text<'e>(argument: &'e Expr, of: &str) -> Result<&'e str, PromqlError> {
    match argument {
        Expr::StringLiteral(literal) => Ok(&literal.val),
        other => Err(PromqlError::Expression(format!("the argument {other} of {of} must be a text"))),
    }
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

/// Returns the numeric value of a parameter.
fn number(parameter: &Expr, of: &str) -> Result<f64, PromqlError> {
    match parameter {
        Expr::NumberLiteral(number) => Ok(number.val),
        Expr::Unary(inner) => Ok(-number(plain(&inner.expr), of)?),
        // Parameters may be products, because alerts use for example 4 * 24 * 3600 for seconds.
        Expr::Binary(binary) => {
            let operator = Operator::of(&binary.op.to_string()).filter(|operator| !operator.is_comparison());
            let operator = operator.ok_or_else(|| no_number(parameter, of))?;
            Ok(operator.apply(number(plain(&binary.lhs), of)?, number(plain(&binary.rhs), of)?))
        }
        other => Err(no_number(other, of)),
    }
}

fn no_number(parameter: &Expr, of: &str) -> PromqlError {
    PromqlError::Expression(format!("the parameter {parameter} of {of} must be a number"))
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(expression: &str) -> Result<Node, PromqlError> {
        Planner { lookback_ms: 1 }.plan(&parse(expression)?)
    }

    // Proves that a parameter may be an expression of numbers, but not of series.
    #[test]
    fn parameters_may_be_computed_from_numbers() {
        let planned = |expression| format!("{:?}", plan(expression).unwrap());
        assert_eq!(
            planned("predict_linear(x[6h], 4 * (24 * 3600) - -1)"),
            planned("predict_linear(x[6h], 345601)")
        );
        assert_eq!(planned("quantile_over_time(90 / 100, x[1m])"), planned("quantile_over_time(0.9, x[1m])"));
        for other in ["predict_linear(x[1h], 3600 * time())", "predict_linear(x[1h], 1 > bool 2)"] {
            let error = plan(other).unwrap_err().to_string();
            assert!(error.contains("of predict_linear must be a number"), "{error}");
        }
    }
}
