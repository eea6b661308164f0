//! The contents of a block, that is, directories, groups, and the lengths of frames.

pub(super) mod directory;
pub(super) mod grouping;
pub(super) mod lengths;
