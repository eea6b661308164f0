//! Limits of rules. A rule is untrusted input until it is compiled, and the memory of a rule must
//! be bounded.

pub use flatcap_query::language::CONDITION_BYTES_MAX;

/// Maximum number of rules. The number of rules is limited because each rule takes time for every
/// sample.
pub const RULES_MAX: usize = 64;
/// Maximum number of samples in a window, which is about a minute at 1 kHz. In memory, a sample of
/// a window has up to 32 bytes.
pub(crate) const WINDOW_SAMPLES_MAX: u64 = 65_536;
/// Maximum number of samples in the window of a quantile, which keeps its samples sorted. In a
/// larger window, inserting a sample would take microseconds.
pub(crate) const QUANTILE_SAMPLES_MAX: u64 = 4_096;
/// Maximum number of list elements that a transform tracks. A large host has about this many
/// processes. The values of further elements are unknown.
pub(crate) const FOLLOWED_ELEMENTS_MAX: usize = 4_096;
/// Maximum number of samples in the windows of all elements of one field. In total, these samples
/// take up to 8 MiB. If there are too many elements, the values of the elements that do not fit are
/// unknown.
pub(crate) const FIELD_SAMPLES_MAX: u64 = 262_144;
/// Maximum number of distinct elements. Above this limit, all elements are discarded and
/// renumbered. The limit is necessary because processes come and go as long as the recorder runs.
/// An element takes about 350 bytes.
pub(crate) const NUMBERED_ELEMENTS_MAX: usize = 1 << 14;
/// Maximum length of a pause of a source, as a number of its periods. After a longer pause, rates
/// and windows of the source restart, because otherwise they would include unobserved time.
pub(crate) const PAUSE_PERIODS_MAX: u64 = 10;
/// Minimum length of a pause after which rates and windows restart, in nanoseconds. This minimum is
/// necessary because a busy host delays fast sources by several periods.
pub(crate) const PAUSE_NS_MIN: u64 = 2_000_000_000;
