//! Batches of rows, and the columns that contain their values.

pub(crate) mod batch;
pub(crate) mod column;
pub(crate) mod counter_columns;
pub(crate) mod strided_rows;
pub(crate) mod text_column;
