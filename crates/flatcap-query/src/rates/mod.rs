//! Converts counters to their change per second, in columns and in whole samples.

pub(crate) mod counter_fields;
pub(crate) mod rate;
pub(crate) mod sample_rates;
