//! The hash budget: how many bytes searches in a file may hash without finding an intact frame.
//! Bounds the work on hostile input, which may have identifiers everywhere that claim long frames.

/// Bytes that may be hashed in vain at the start of the file...
pub(in crate::segment) const HASH_BUDGET_MIN: u64 = 64 << 20;
/// ...and in addition for each byte passed.
pub(in crate::segment) const HASH_BUDGET_PER_BYTE: u64 = 8;

/// Returns how many bytes may have been hashed in vain after `passed` bytes of the file.
pub(in crate::segment) fn hash_budget(passed: u64) -> u64 {
    HASH_BUDGET_MIN.saturating_add(passed.saturating_mul(HASH_BUDGET_PER_BYTE))
}
