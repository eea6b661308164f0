//! Walks the tree of an expression, and computes the values of each node for all steps.

use std::collections::BTreeSet;

use crate::aggregate::aggregate;
use crate::binary::{Operation, combine_sets};
use crate::error::PromqlError;
use crate::labels::Labels;
use crate::operator::Operator;
use crate::plan::{AggregateNode, Binary, Node, SetOperation};
use crate::series::{LabelledSeries, QueryValue, distinct};
use crate::series_scan::SeriesScan;

/// The evaluation of one expression.
#[derive(Debug)]
pub(crate) struct Evaluation<'r> {
    pub(crate) scan: SeriesScan<'r>,
    /// What could not be read.
    pub(crate) warnings: BTreeSet<String>,
}

impl Evaluation<'_> {
    /// Returns the value of a node.
    pub(crate) fn value(&mut self, node: &Node) -> Result<QueryValue, PromqlError> {
        match node {
            Node::Number(number) => Ok(QueryValue::Scalar(vec![*number; self.steps()])),
            Node::Time => Ok(QueryValue::Scalar((0..self.steps()).map(|step| self.seconds(step)).collect())),
            Node::Samples(selection, shape) => {
                let mut series = self.scan.read(selection, shape, &mut self.warnings)?;
                if shape.function.drops_name() {
                    for series in &mut series {
                        series.labels = series.labels.without_name();
                    }
                    series = distinct(series)?;
                }
                Ok(QueryValue::Vector(series))
            }
            Node::Negative(of) => match self.value(of)? {
                QueryValue::Scalar(numbers) => {
                    Ok(QueryValue::Scalar(numbers.iter().map(|number| -number).collect()))
                }
                QueryValue::Vector(series) => mapped(series, |value| Some(-value)),
            },
            Node::Call(function, of) => mapped(self.vector(of)?, |value| function.of(value)),
            Node::ScalarOf(of) => {
                let series = self.vector(of)?;
                let number = |step| {
                    let mut values = series.iter().filter_map(|series| series.at(step));
                    // Of no series or of several ones it is not a number.
                    values.next().filter(|_| values.next().is_none()).unwrap_or(f64::NAN)
                };
                Ok(QueryValue::Scalar((0..self.steps()).map(number).collect()))
            }
            Node::VectorOf(of) => {
                let values = self.scalar(of)?.into_iter().map(Some).collect();
                Ok(QueryValue::Vector(vec![LabelledSeries { labels: Labels::default(), values }]))
            }
            Node::Binary(binary) => self.binary(binary),
            Node::Set(set) => {
                let SetOperation { operator, left, right, matching } = &**set;
                let sides = (self.vector(left)?, self.vector(right)?);
                Ok(QueryValue::Vector(combine_sets(*operator, sides, matching)?))
            }
            Node::Aggregate(of) => {
                let AggregateNode { aggregation, of, grouping } = &**of;
                Ok(QueryValue::Vector(aggregate(*aggregation, grouping, self.vector(of)?)))
            }
        }
    }

    fn binary(&mut self, binary: &Binary) -> Result<QueryValue, PromqlError> {
        let Binary { operator, left, right, returns_bool, matching, cardinality } = binary;
        let operation = Operation { operator: *operator, returns_bool: *returns_bool };
        let vector = match (self.value(left)?, self.value(right)?) {
            (QueryValue::Scalar(left), QueryValue::Scalar(right)) => {
                return scalars(*operator, *returns_bool, (&left, &right));
            }
            (QueryValue::Vector(series), QueryValue::Scalar(numbers)) => {
                operation.with_number(series, &numbers, true)?
            }
            (QueryValue::Scalar(numbers), QueryValue::Vector(series)) => {
                operation.with_number(series, &numbers, false)?
            }
            (QueryValue::Vector(left), QueryValue::Vector(right)) => {
                operation.between((&left, &right), matching, cardinality)?
            }
        };
        Ok(QueryValue::Vector(vector))
    }

    fn vector(&mut self, node: &Node) -> Result<Vec<LabelledSeries>, PromqlError> {
        match self.value(node)? {
            QueryValue::Vector(series) => Ok(series),
            QueryValue::Scalar(_) => Err(PromqlError::Expression(
                "a number stands where series are needed; see vector()".to_owned(),
            )),
        }
    }

    fn scalar(&mut self, node: &Node) -> Result<Vec<f64>, PromqlError> {
        match self.value(node)? {
            QueryValue::Scalar(numbers) => Ok(numbers),
            QueryValue::Vector(_) => {
                Err(PromqlError::Expression("series stand where a number is needed; see scalar()".to_owned()))
            }
        }
    }

    fn steps(&self) -> usize {
        self.scan.grid.steps()
    }

    #[allow(clippy::cast_precision_loss, reason = "milliseconds since 1970 have 41 bits")]
    fn seconds(&self, step: usize) -> f64 {
        self.scan.grid.at(step) as f64 / 1000.0
    }
}

/// Returns the value of each value; the metric's name goes.
fn mapped(series: Vec<LabelledSeries>, of: impl Fn(f64) -> Option<f64>) -> Result<QueryValue, PromqlError> {
    let computed = series.into_iter().map(|series| LabelledSeries {
        labels: series.labels.without_name(),
        values: series.values.iter().map(|value| of((*value)?)).collect(),
    });
    Ok(QueryValue::Vector(distinct(computed.collect())?))
}

fn scalars(
    operator: Operator,
    returns_bool: bool,
    (left, right): (&[f64], &[f64]),
) -> Result<QueryValue, PromqlError> {
    if operator.is_comparison() && !returns_bool {
        return Err(PromqlError::Expression(
            "a comparison between two numbers needs the modifier bool, as in 1 < bool 2".to_owned(),
        ));
    }
    let values = left.iter().zip(right).map(|(left, right)| operator.apply(*left, *right));
    Ok(QueryValue::Scalar(values.collect()))
}
