//! What is computed: the tree of an expression, checked.

use crate::aggregation::Aggregation;
use crate::function::Function;
use crate::operator::{Operator, SetOperator};
use crate::selection::Selection;
use crate::window::WindowShape;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    Number(f64),
    /// The time of the step, in seconds.
    Time,
    /// The series of a selector, reduced to a value at each step.
    Samples(Selection, WindowShape),
    Negative(Box<Node>),
    /// A function of each value.
    Call(Function, Box<Node>),
    /// The value of a single series as a number.
    ScalarOf(Box<Node>),
    /// A number as a series without labels.
    VectorOf(Box<Node>),
    Binary(Box<Binary>),
    Set(Box<SetOperation>),
    Aggregate(Box<AggregateNode>),
}

/// An operator between two expressions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Binary {
    pub(crate) operator: Operator,
    pub(crate) left: Node,
    pub(crate) right: Node,
    /// A comparison returns 0 or 1 instead of the values for which it holds.
    pub(crate) returns_bool: bool,
    pub(crate) matching: Matching,
    pub(crate) cardinality: Cardinality,
}

/// An operator between two sets of series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SetOperation {
    pub(crate) operator: SetOperator,
    pub(crate) left: Node,
    pub(crate) right: Node,
    pub(crate) matching: Matching,
}

/// An aggregation over groups of series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AggregateNode {
    pub(crate) aggregation: Aggregation,
    pub(crate) of: Node,
    pub(crate) grouping: Matching,
}

/// Which labels count when series are matched or grouped; never the metric's name, unless it is
/// listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Matching {
    /// These alone: `on`, `by`.
    On(Vec<String>),
    /// All but these: `ignoring`, `without`.
    Ignoring(Vec<String>),
}

/// How many series of each side may match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cardinality {
    OneToOne,
    /// `group_left`, with the labels that are copied from the other side.
    ManyToOne(Vec<String>),
    /// `group_right`.
    OneToMany(Vec<String>),
}
