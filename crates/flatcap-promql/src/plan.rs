//! The plan of an evaluation, which is the checked tree of an expression.

use crate::aggregation::Aggregation;
use crate::function::Function;
use crate::label_rule::LabelRule;
use crate::labels::Labels;
use crate::operator::{Operator, SetOperator};
use crate::selection::Selection;
use crate::window::WindowShape;

/// An expression.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Number(f64),
    /// The time of the step, in seconds.
    Time,
    /// The series of a selector, each reduced to a value at each step or at one fixed time.
    Samples(Selection, WindowShape, Option<FixedTime>),
    /// A function that is applied to windows of an expression's values.
    Subquery(Box<Subquery>),
    Negative(Box<Node>),
    /// A function that is applied to each value.
    Call(Function, Box<Node>),
    /// A function that is applied to each value and whose parameters are expressions.
    ComputedCall(Box<ComputedCall>),
    /// The value 1 with these labels, at the steps at which the expression has no value.
    Absent(Box<Node>, Labels),
    /// The series, sorted by value. If the order is descending, the largest value comes first.
    Sorted {
        of: Box<Node>,
        is_descending: bool,
    },
    /// The time of each value, which replaces the value.
    TimeOf(Box<Node>),
    /// The series, with labels that are computed from other labels.
    Relabelled(Box<Node>, LabelRule),
    /// A quantile of histograms, computed from the counts of their buckets.
    HistogramQuantile {
        quantile: Box<Node>,
        of: Box<Node>,
    },
    /// The value of a single series as a number.
    ScalarOf(Box<Node>),
    /// A number as a series without labels.
    VectorOf(Box<Node>),
    Binary(Box<Binary>),
    Set(Box<SetOperation>),
    Aggregate(Box<AggregateNode>),
}

/// A time that does not depend on the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FixedTime {
    First,
    Last,
    /// Milliseconds since 1970.
    At(i64),
}

/// A function that is applied to windows. The windows contain the values of an expression at the
/// steps of the subquery.
#[derive(Debug, Clone)]
pub(crate) struct Subquery {
    pub(crate) of: Node,
    pub(crate) shape: WindowShape,
    pub(crate) step_ms: i64,
    pub(crate) at: Option<FixedTime>,
}

/// A function that is applied to each value. Its parameters are numbers that may differ at each
/// step.
#[derive(Debug, Clone)]
pub(crate) struct ComputedCall {
    pub(crate) name: String,
    pub(crate) of: Node,
    pub(crate) parameters: Vec<Node>,
}

/// An operator between two expressions.
#[derive(Debug, Clone)]
pub(crate) struct Binary {
    pub(crate) operator: Operator,
    pub(crate) left: Node,
    pub(crate) right: Node,
    /// Whether a comparison returns 0 or 1 for each value (`bool`). Otherwise, it returns the
    /// values for which it is true.
    pub(crate) returns_bool: bool,
    pub(crate) matching: Matching,
    pub(crate) cardinality: Cardinality,
}

/// An operator between two sets of series.
#[derive(Debug, Clone)]
pub(crate) struct SetOperation {
    pub(crate) operator: SetOperator,
    pub(crate) left: Node,
    pub(crate) right: Node,
    pub(crate) matching: Matching,
}

/// An aggregation over groups of series.
#[derive(Debug, Clone)]
pub(crate) struct AggregateNode {
    pub(crate) aggregation: AggregationRule,
    pub(crate) of: Node,
    pub(crate) grouping: Matching,
}

/// The aggregation that is applied to the values of each group.
#[derive(Debug, Clone)]
pub(crate) enum AggregationRule {
    Fixed(Aggregation),
    /// An aggregation with a numeric parameter, which may differ at each step.
    Computed {
        name: String,
        parameter: Box<Node>,
    },
    /// The number of occurrences of each value. The value becomes this label.
    CountValues(String),
}

/// The labels by which series are matched or grouped. The metric's name is used only if it is
/// listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Matching {
    /// Only these labels: `on`, `by`.
    On(Vec<String>),
    /// All labels except these: `ignoring`, `without`.
    Ignoring(Vec<String>),
}

/// Number of series on each side that may match one series of the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cardinality {
    OneToOne,
    /// `group_left`, with the labels that are copied from the other side to the result.
    ManyToOne(Vec<String>),
    /// `group_right`.
    OneToMany(Vec<String>),
}
