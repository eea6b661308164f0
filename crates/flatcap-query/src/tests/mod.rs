//! Tests of whole queries. Most of the tests compare a query with a simpler reader.

mod batches;
mod conditions;
mod counter_samples;
mod engine;
mod identity;
mod many_sources;
mod overview;
mod overview_walk;
mod rates;
mod sample_rates;
pub(super) mod segment_files;
mod tasks;

use super::*;
