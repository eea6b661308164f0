//! The contents of a block: its directory, its groups, and the lengths of its frames.

pub(super) mod directory;
pub(super) mod grouping;
pub(super) mod lengths;
