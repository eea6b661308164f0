//! Rules (alerts) of the flight recorder flatcap. A rule has conditions on the fields of recorded
//! samples. The conditions are evaluated sample by sample, at the sources' own rates.
//!
//! | to | use |
//! |---|---|
//! | parse a condition | [`SampleCondition`] |
//! | compile rules for some sources, and observe samples | [`TriggerEngine`] |
//! | decide which sources of a run rules see | [`RuleScope`], [`ScopedEngine`] |
//! | learn what fired, and which time is worth keeping | [`TriggerEvent`] |
//!
//! The crate starts no thread, and reads no clock and no file. Its results depend only on samples
//! and times. So a rule gives the same results in a replay of a recording as in the recorder.

mod compiler;
mod counts;
mod engine;
mod error;
mod event;
mod exits;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod limits;
mod machine;
mod program;
mod rule_scope;
mod rule_source;
mod series;
mod slot;
mod window;

pub use flatcap_query::language::SampleCondition;

pub use counts::TriggerCounts;
pub use engine::{TriggerEngine, TriggerRule};
pub use error::{RuleError, RuleProblem};
pub use event::{ComparedQuantity, TriggerChange, TriggerEvent};
pub use machine::{EPISODE_NS_MAX, FIRINGS_PER_DAY_MAX, Suppression, TriggerTimes};
pub use rule_scope::{RuleScope, ScopedEngine};
pub use rule_source::RuleSource;

#[cfg(test)]
mod counter_tests;
#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod row_tests;
