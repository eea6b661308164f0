//! The language of conditions, which rules, `check-trigger` and `--where` share: scanner, parser,
//! units, and an evaluation in three values. docs/ARCHITECTURE.md describes it.
//!
//! [`SampleCondition::bind`] binds a parsed condition to fields. Rules bind it to values of samples
//! over time, `--where` to the columns of a batch.

mod check;
mod condition;
mod decimal;
mod dimension;
mod limits;
mod logic;
mod lower;
mod parser;
mod row_condition;
mod scale;
mod scanner;
mod transform;
mod units;

pub use check::{Check, Comparison, ElementsCheck, ValueTest};
pub use condition::{ExitTests, FieldOperand, RuleTest, SampleCondition};
pub use dimension::{Dimension, UnitValue};
pub use limits::CONDITION_BYTES_MAX;
pub use logic::{Logic, Truth};
pub use lower::Binder;
pub use row_condition::RowCondition;
pub use scale::Scale;
pub use transform::Transform;
pub use units::CommonUnit;

pub(super) use check::Possible;
