//! Memory policies, which decide when a buffer that grew for one large message shrinks again.
//!
//! Without a policy, a reader's buffer and a writer's builder keep the size that their largest
//! message needed. A policy observes the message sizes and decides when the buffer shrinks to a
//! baseline. The policy is called once per message, and only while the buffer exceeds the baseline.

use std::time::{Duration, Instant};

/// Default size to which a buffer shrinks: 16 KiB.
pub const DEFAULT_BASELINE_CAPACITY: usize = 16 * 1024;

/// The reason for releasing memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReclamationReason {
    /// Enough messages in a row were far smaller than the buffer.
    MessageCount,
    /// The buffer was too large for at least the cool-down time.
    TimeCooldown,
    /// Enough small messages followed a large one.
    SizeThreshold,
}

/// Information about a release of memory. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReclamationInfo {
    /// The reason.
    pub reason: ReclamationReason,
    /// Size of the message that triggered the release.
    pub last_message_size: usize,
    /// Size of the buffer before the release.
    pub capacity_before: usize,
    /// Size of the buffer after the release. A reader shrinks its buffer at the next read, so that
    /// the last payload stays valid.
    pub capacity_after: usize,
}

/// Decides when memory is released.
pub trait MemoryPolicy: Send {
    /// Receives the size of each message while the buffer exceeds the baseline. Returns a reason if
    /// memory is to be released.
    fn should_reset(
        &mut self,
        last_message_size: usize,
        current_capacity: usize,
    ) -> Option<ReclamationReason>;

    /// Called after each release.
    fn on_reclaim(&mut self, _info: &ReclamationInfo) {}

    /// Returns the size to which the buffer shrinks, in bytes. Called only once, when the policy is
    /// installed.
    fn baseline_capacity(&self) -> usize {
        DEFAULT_BASELINE_CAPACITY
    }
}

/// Never releases memory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct NoOpPolicy;

impl MemoryPolicy for NoOpPolicy {
    fn should_reset(&mut self, _size: usize, _capacity: usize) -> Option<ReclamationReason> {
        None
    }
}

/// A clock for policies, which tests can replace.
pub trait Clock: Send {
    /// Returns the time since a fixed moment. Never decreases.
    fn now(&self) -> Duration;
}

/// The monotonic clock of the system.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// Creates a clock that starts now.
    #[allow(clippy::disallowed_methods, reason = "stream is usable alone, so it cannot use the os module")]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// Releases memory if the buffer stays several times as large as the messages, either for a number
/// of messages or for some time. A message that needs the whole buffer restarts the count, so that
/// the buffer does not shrink and grow with an oscillating load.
#[derive(Debug, Clone)]
pub struct AdaptiveWatermarkPolicy<C: Clock = MonotonicClock> {
    /// The buffer is too large for a message if it is at least this many times as large as the
    /// message.
    pub size_ratio_threshold: usize,
    /// Number of successive messages for which the buffer must be too large.
    pub messages_to_wait: u32,
    /// Time for which the buffer must be too large, as an alternative to the number of messages.
    pub cooldown: Option<Duration>,
    /// Size to which the buffer shrinks, in bytes.
    pub baseline_capacity: usize,
    oversized_messages: u32,
    oversized_since: Option<Duration>,
    clock: C,
}

impl AdaptiveWatermarkPolicy {
    /// Default ratio. A buffer that doubles when it grows is up to twice as large as needed. A
    /// buffer four times as large as needed is left over from a larger message.
    pub const DEFAULT_SIZE_RATIO_THRESHOLD: usize = 4;
    /// Default number of successive messages for which the buffer must be too large. One small
    /// message among large messages is not a change of load, but five small messages in a row are a
    /// change.
    pub const DEFAULT_MESSAGES_TO_WAIT: u32 = 5;

    /// Creates a policy that releases memory by message count, down to the default baseline.
    pub fn new(size_ratio_threshold: usize, messages_to_wait: u32) -> Self {
        Self::with_clock(size_ratio_threshold, messages_to_wait, MonotonicClock::new())
    }
}

impl<C: Clock> AdaptiveWatermarkPolicy<C> {
    /// Like `new`, but with the given clock.
    pub fn with_clock(size_ratio_threshold: usize, messages_to_wait: u32, clock: C) -> Self {
        Self {
            size_ratio_threshold,
            messages_to_wait,
            cooldown: None,
            baseline_capacity: DEFAULT_BASELINE_CAPACITY,
            oversized_messages: 0,
            oversized_since: None,
            clock,
        }
    }

    /// Also releases memory after the buffer was too large for the time `cooldown`.
    #[must_use]
    pub fn with_cooldown(mut self, cooldown: Duration) -> Self {
        self.cooldown = Some(cooldown);
        self
    }

    /// Sets the baseline in bytes.
    #[must_use]
    pub fn with_baseline(mut self, bytes: usize) -> Self {
        self.baseline_capacity = bytes;
        self
    }

    fn restart_count(&mut self) {
        self.oversized_messages = 0;
        self.oversized_since = None;
    }
}

impl Default for AdaptiveWatermarkPolicy {
    fn default() -> Self {
        Self::new(Self::DEFAULT_SIZE_RATIO_THRESHOLD, Self::DEFAULT_MESSAGES_TO_WAIT)
    }
}

impl<C: Clock> MemoryPolicy for AdaptiveWatermarkPolicy<C> {
    fn should_reset(
        &mut self,
        last_message_size: usize,
        current_capacity: usize,
    ) -> Option<ReclamationReason> {
        let needed = last_message_size.saturating_mul(self.size_ratio_threshold);
        // A buffer of any size is too large for an empty message, so such a message says nothing
        // about the load.
        if last_message_size == 0 || current_capacity < needed {
            self.restart_count();
            return None;
        }
        self.oversized_messages = self.oversized_messages.saturating_add(1);
        let has_cooled = self.cooldown.is_some_and(|cooldown| {
            let now = self.clock.now();
            now.saturating_sub(*self.oversized_since.get_or_insert(now)) >= cooldown
        });
        let reason = if has_cooled {
            ReclamationReason::TimeCooldown
        } else if self.oversized_messages >= self.messages_to_wait {
            ReclamationReason::MessageCount
        } else {
            return None;
        };
        self.restart_count();
        Some(reason)
    }

    fn baseline_capacity(&self) -> usize {
        self.baseline_capacity
    }
}

/// Releases memory after enough small messages in a row have followed a large one.
#[derive(Debug, Clone, Copy)]
pub struct SizeThresholdPolicy {
    /// A message that is longer than this many bytes is large.
    pub grow_above_bytes: usize,
    /// A message that is shorter than this many bytes is small.
    pub shrink_below_bytes: usize,
    /// Number of successive small messages after which memory is released.
    pub messages_to_wait: u32,
    /// Size to which the buffer shrinks, in bytes.
    pub baseline_capacity: usize,
    large_seen: bool,
    small_messages: u32,
}

impl SizeThresholdPolicy {
    /// Default limit of 1 MiB above which a message is large.
    pub const DEFAULT_GROW_ABOVE_BYTES: usize = 1 << 20;
    /// Default limit of 1 KiB below which a message is small.
    pub const DEFAULT_SHRINK_BELOW_BYTES: usize = 1 << 10;
    /// Default number of successive small messages that end a burst.
    pub const DEFAULT_MESSAGES_TO_WAIT: u32 = 8;

    /// Creates a policy that releases memory down to the default baseline.
    pub const fn new(grow_above_bytes: usize, shrink_below_bytes: usize, messages_to_wait: u32) -> Self {
        Self {
            grow_above_bytes,
            shrink_below_bytes,
            messages_to_wait,
            baseline_capacity: DEFAULT_BASELINE_CAPACITY,
            large_seen: false,
            small_messages: 0,
        }
    }

    /// Sets the baseline in bytes.
    #[must_use]
    pub const fn with_baseline(mut self, bytes: usize) -> Self {
        self.baseline_capacity = bytes;
        self
    }
}

impl Default for SizeThresholdPolicy {
    fn default() -> Self {
        Self::new(
            Self::DEFAULT_GROW_ABOVE_BYTES,
            Self::DEFAULT_SHRINK_BELOW_BYTES,
            Self::DEFAULT_MESSAGES_TO_WAIT,
        )
    }
}

impl MemoryPolicy for SizeThresholdPolicy {
    fn should_reset(
        &mut self,
        last_message_size: usize,
        _current_capacity: usize,
    ) -> Option<ReclamationReason> {
        let is_large = last_message_size > self.grow_above_bytes;
        self.large_seen |= is_large;
        if is_large || !self.large_seen || last_message_size >= self.shrink_below_bytes {
            self.small_messages = 0;
            return None;
        }
        self.small_messages = self.small_messages.saturating_add(1);
        if self.small_messages < self.messages_to_wait {
            return None;
        }
        self.large_seen = false;
        self.small_messages = 0;
        Some(ReclamationReason::SizeThreshold)
    }

    fn baseline_capacity(&self) -> usize {
        self.baseline_capacity
    }
}

/// The policy of a reader or writer, and its cached baseline.
pub(super) struct InstalledPolicy {
    policy: Box<dyn MemoryPolicy>,
    baseline: usize,
}

impl InstalledPolicy {
    pub(super) fn new(policy: impl MemoryPolicy + 'static) -> Self {
        Self { baseline: policy.baseline_capacity(), policy: Box::new(policy) }
    }

    #[inline]
    pub(super) fn baseline(&self) -> usize {
        self.baseline
    }

    /// Returns whether the buffer shrinks to the baseline after this message. If so, the caller
    /// shrinks the buffer and then calls [`notify`](Self::notify).
    #[inline]
    pub(super) fn should_reclaim(
        &mut self,
        last_message_size: usize,
        capacity: usize,
    ) -> Option<ReclamationInfo> {
        if capacity <= self.baseline {
            return None;
        }
        let reason = self.policy.should_reset(last_message_size, capacity)?;
        Some(ReclamationInfo {
            reason,
            last_message_size,
            capacity_before: capacity,
            capacity_after: self.baseline,
        })
    }

    pub(super) fn notify(&mut self, info: &ReclamationInfo) {
        self.policy.on_reclaim(info);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[derive(Clone, Default)]
    struct ManualClock(Arc<AtomicU64>);

    impl Clock for ManualClock {
        fn now(&self) -> Duration {
            Duration::from_secs(self.0.load(Relaxed))
        }
    }

    // Proves that only small messages in a row release memory.
    #[test]
    fn a_large_message_restarts_the_count() {
        let mut policy = AdaptiveWatermarkPolicy::new(4, 3);
        let reclaimed: Vec<_> = [100, 100, 300, 100, 0, 100, 100, 100, 100]
            .map(|size| policy.should_reset(size, 1000).is_some())
            .into_iter()
            .enumerate()
            .filter_map(|(index, answer)| answer.then_some(index))
            .collect();
        assert_eq!(reclaimed, [7]);
    }

    // Proves that the cool-down begins at the first message for which the buffer is too large, and
    // restarts after each release.
    #[test]
    fn the_cooldown_runs_from_the_first_oversized_message() {
        let clock = ManualClock::default();
        let mut policy = AdaptiveWatermarkPolicy::with_clock(4, u32::MAX, clock.clone())
            .with_cooldown(Duration::from_secs(10))
            .with_baseline(64);
        assert_eq!(policy.baseline_capacity(), 64);
        let mut ask = |second, size| {
            clock.0.store(second, Relaxed);
            policy.should_reset(size, 1000)
        };
        assert_eq!(ask(100, 10), None);
        assert_eq!(ask(109, 10), None);
        assert_eq!(ask(110, 10), Some(ReclamationReason::TimeCooldown));
        assert_eq!(ask(125, 10), None);
        assert_eq!(ask(130, 900), None);
        assert_eq!(ask(136, 10), None);
        assert_eq!(ask(146, 10), Some(ReclamationReason::TimeCooldown));
    }

    // Proves that small messages are counted only if they are in a row and follow a large message.
    #[test]
    fn thresholds() {
        let mut policy = SizeThresholdPolicy::new(1000, 10, 2);
        let sizes = [1, 1, 1, 1001, 1, 10, 1, 1, 1, 1];
        let answers = sizes.map(|size| policy.should_reset(size, 5000).is_some());
        assert_eq!(answers.iter().position(|&answer| answer), Some(7));
        assert_eq!(answers.iter().filter(|&&answer| answer).count(), 1);
    }
}
