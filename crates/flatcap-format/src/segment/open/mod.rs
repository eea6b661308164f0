//! Opens a file: its window, and its header and footer, wherever they are.

pub(super) mod block_search;
pub(super) mod file_window;
pub(super) mod header_and_footer;
pub(super) mod header_copy;
pub(super) mod torn_tail;
