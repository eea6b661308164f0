//! Errors of decoding a block.

/// The error for a block that uses features that its file does not announce (docs/FORMAT.md,
/// "Reader levels").
pub(super) const UNANNOUNCED: BlockError = BlockError::Block("uses features that its file does not announce");

/// The reason why a block cannot be decoded. The caller adds the file and the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The block's FlatBuffer or its contents are malformed.
    #[error("the block {0}")]
    Block(&'static str),
    /// A group of frames is malformed.
    #[error("a group of the block {0}")]
    Group(&'static str),
    /// A column is malformed.
    #[error("a column of the block {0}")]
    Column(&'static str),
    /// A compressed part is malformed.
    #[error("a part of the block {0}")]
    Part(&'static str),
}
