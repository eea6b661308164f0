//! Limits of rules. A rule is untrusted input until it is compiled, and the memory of a rule must
//! be bounded.

pub use flatcap_query::language::CONDITION_BYTES_MAX;

/// Maximum number of rules. The number is limited because each rule takes time at every sample.
pub const RULES_MAX: usize = 64;
/// Maximum number of samples in a window, which is about a minute at 1 kHz. A sample takes up to 24
/// bytes.
pub(crate) const WINDOW_SAMPLES_MAX: u64 = 65_536;
/// Maximum number of samples in the window of a quantile, which keeps its samples sorted. More
/// samples would take microseconds per sample.
pub(crate) const QUANTILE_SAMPLES_MAX: u64 = 4_096;
/// Maximum number of list elements that a transform tracks. This is the number of processes of a
/// large host. The values of further elements are unknown.
pub(crate) const FOLLOWED_ELEMENTS_MAX: usize = 4_096;
/// Maximum number of samples in the windows of all elements of one field. These samples take 6 MiB.
/// If there are more elements than fit, the values of further elements are unknown.
pub(crate) const FIELD_SAMPLES_MAX: u64 = 262_144;
/// Number of distinct elements after which all elements are discarded and renumbered. The limit is
/// necessary because processes come and go as long as the recorder runs. An element takes about 350
/// bytes.
pub(crate) const NUMBERED_ELEMENTS_MAX: usize = 1 << 14;
/// Maximum length of a pause of a source, as a number of its periods. After a longer pause, rates
/// and windows of the source restart, because otherwise they would include unobserved time.
pub(crate) const PAUSE_PERIODS_MAX: u64 = 10;
/// Minimum length of a pause after which rates and windows restart, in nanoseconds. It is needed
/// because a busy host delays fast sources by more than a few periods.
pub(crate) const PAUSE_NS_MIN: u64 = 2_000_000_000;
