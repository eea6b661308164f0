//! The language of conditions, which rules, `check-trigger` and `--where` share. The implementation
//! consists of a scanner, a parser, units, and an evaluation in three-valued logic.
//! docs/ARCHITECTURE.md describes the language.
//!
//! [`SampleCondition::bind`] binds a parsed condition to fields. Rules bind the condition to values
//! of samples over time, and `--where` binds it to the columns of a batch.

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
