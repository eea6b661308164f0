//! Reads segments, and collects the requested values of each source as rows of tables.

mod block_scan;
pub(crate) mod collector;
pub(crate) mod compared;
pub(crate) mod filter;
mod fixed_content;
mod frame_scan;
mod open_block;
mod open_element;
pub(crate) mod payload_reader;
mod row_visitor;
mod scalar_cells;
pub(crate) mod segment_scan;
pub(crate) mod step;
mod struct_rows;
mod table_rows;
pub(crate) mod task_feed;
mod template;
mod template_cache;
mod template_pool;
