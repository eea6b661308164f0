//! Joins the values of several sources at the same time into rows, and returns whole samples.

pub(crate) mod held_value;
pub(crate) mod join;
pub(crate) mod layout;
mod leading_source;
mod merge;
pub(crate) mod options;
pub(crate) mod plain_rows;
pub(crate) mod reader;
pub(crate) mod samples;
mod selected_columns;
mod step_rows;
pub(crate) mod steps;
mod window;
