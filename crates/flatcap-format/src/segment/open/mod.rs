//! Opens a file. Creates a window on the file, and finds the header and the footer, or their
//! replacements.

pub(super) mod block_search;
pub(super) mod file_window;
pub(super) mod header_and_footer;
pub(super) mod header_copy;
pub(super) mod torn_tail;
