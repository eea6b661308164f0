//! Limits of rules: a rule is bad input until it is compiled, and its memory stays bounded.

/// Longest text of a condition, in bytes: a page of text that a person can still follow.
pub const CONDITION_BYTES_MAX: usize = 4096;
/// Deepest nesting of parentheses, `not`, `any` and `all`: parsing and evaluation recurse.
pub const NESTING_MAX: usize = 32;
/// Most fields in a condition.
pub const OPERANDS_MAX: usize = 64;
/// Most transforms of a field: `:rate:avg(50ms):max(1s)` are three.
pub const TRANSFORMS_MAX: usize = 4;
/// Most rules at once: each costs time at every sample.
pub const RULES_MAX: usize = 64;
/// Longest window, in nanoseconds: an hour. What is slower is no trigger.
pub const WINDOW_NS_MAX: u64 = 3_600_000_000_000;
/// Most samples in a window: a minute at 1 kHz. One takes up to 24 bytes.
pub const WINDOW_SAMPLES_MAX: u64 = 65_536;
/// Most samples in the window of a quantile, which keeps them sorted: more cost microseconds a
/// sample.
pub const QUANTILE_SAMPLES_MAX: u64 = 4_096;
/// Most elements of a list that a transform follows: the processes of a large host. Further ones
/// are unknown.
pub const FOLLOWED_ELEMENTS_MAX: usize = 4_096;
/// Most samples that the windows of all elements of one field hold: 6 MiB. With more elements
/// than fit, further ones are unknown.
pub const FIELD_SAMPLES_MAX: u64 = 262_144;
/// Largest compiled regular expression, in bytes: a short text can describe a huge one.
pub const EXPRESSION_SIZE_MAX: usize = 1 << 20;
/// Elements that are told apart before all are forgotten and numbered anew: processes come and go
/// as long as the recorder runs. One takes some 350 bytes.
pub const NUMBERED_ELEMENTS_MAX: usize = 1 << 14;
/// A source that pauses for more than this many of its periods begins anew: rates and windows
/// across the pause would say what nobody saw.
pub const PAUSE_PERIODS_MAX: u64 = 10;
/// ... and for more than this, in nanoseconds: a busy host delays fast sources by more than a few
/// periods.
pub const PAUSE_NS_MIN: u64 = 2_000_000_000;
