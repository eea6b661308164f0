//! Limits of rules: a rule is untrusted input until it is compiled, and its memory is bounded.

pub use flatcap_query::language::CONDITION_BYTES_MAX;

/// Maximum number of rules: each costs time at every sample.
pub const RULES_MAX: usize = 64;
/// Maximum number of samples in a window: about a minute at 1 kHz. A sample takes up to 24 bytes.
pub(crate) const WINDOW_SAMPLES_MAX: u64 = 65_536;
/// Maximum number of samples in the window of a quantile, which keeps them sorted: more would cost
/// microseconds per sample.
pub(crate) const QUANTILE_SAMPLES_MAX: u64 = 4_096;
/// Maximum number of list elements that a transform tracks: the processes of a large host. The
/// values of further elements are unknown.
pub(crate) const FOLLOWED_ELEMENTS_MAX: usize = 4_096;
/// Maximum number of samples in the windows of all elements of one field: 6 MiB. If there are more
/// elements than fit, the values of further elements are unknown.
pub(crate) const FIELD_SAMPLES_MAX: u64 = 262_144;
/// Number of distinct elements after which all are discarded and renumbered: processes come and go
/// as long as the recorder runs. An element takes about 350 bytes.
pub(crate) const NUMBERED_ELEMENTS_MAX: usize = 1 << 14;
/// A source that pauses for more than this many of its periods is restarted: rates and windows
/// across the pause would include unobserved time.
pub(crate) const PAUSE_PERIODS_MAX: u64 = 10;
/// ... and for more than this many nanoseconds, because a busy host delays fast sources by more
/// than a few periods.
pub(crate) const PAUSE_NS_MIN: u64 = 2_000_000_000;
