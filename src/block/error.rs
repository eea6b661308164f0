//! What is wrong with a block.

/// Why a block cannot be decoded. The caller adds file and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Its FlatBuffer, or what stands in it, is not as it must be.
    #[error("the block {0}")]
    Block(&'static str),
    /// A group of rows.
    #[error("a group of the block {0}")]
    Group(&'static str),
    /// A lane.
    #[error("a lane of the block {0}")]
    Lane(&'static str),
    /// What a codec has written.
    #[error("a part of the block {0}")]
    Part(&'static str),
}
