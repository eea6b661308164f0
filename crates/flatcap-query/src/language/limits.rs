//! Limits of conditions. Limits on conditions are needed because a condition is untrusted input,
//! and parsing recurses.

/// Maximum length of the condition of a rule, in bytes. This length corresponds to a page of text,
/// which a person can still follow.
pub const CONDITION_BYTES_MAX: usize = 4096;
/// Maximum length of a condition on rows, in bytes. This limit is larger than the limit for rules,
/// because a program may have written the condition.
pub(super) const ROW_CONDITION_BYTES_MAX: usize = 1 << 17;
/// Maximum nesting of parentheses, `not`, `any` and `all`. The limit is needed because parsing and
/// evaluation recurse.
pub(super) const NESTING_MAX: usize = 32;
/// Maximum number of fields in the condition of a rule.
pub(super) const OPERANDS_MAX: usize = 64;
/// Maximum number of fields in a condition on rows.
pub(super) const ROW_OPERANDS_MAX: usize = 4096;
/// Maximum number of transforms of a field. For example, `:rate:avg(50ms):max(1s)` are three
/// transforms.
pub(super) const TRANSFORMS_MAX: usize = 4;
/// Maximum length of a window, in nanoseconds. The limit is one hour, because slower changes are
/// not events.
pub(super) const WINDOW_NS_MAX: u64 = 3_600_000_000_000;
