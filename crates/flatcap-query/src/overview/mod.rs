//! Summarizes the values of fields in equal parts of time, so that they can be drawn.

pub(crate) mod cache;
pub(crate) mod drawn_value;
pub(crate) mod feed;
mod formula_fold;
pub(crate) mod formula_history;
pub(crate) mod pixel;
pub(crate) mod range_overview;
mod segment_overview;
pub(crate) mod series_cells;
pub(crate) mod series_rows;
mod table_fold;
mod thinned_numbers;
mod whole_samples;
