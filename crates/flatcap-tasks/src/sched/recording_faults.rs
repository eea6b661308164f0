//! Missing parts of a recording of the scheduler.

/// The missing parts of the payloads so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordingFaults {
    /// Number of gaps in the samples of the source.
    pub gaps: u64,
    /// Number of records that were lost after the first payload. The count includes records that
    /// the kernel could not deliver, and switches that are missing for an unknown reason.
    pub lost: u64,
    /// Time for which switches were not recorded, in nanoseconds.
    pub stopped_ns: u64,
    /// Whether wakeups were not recorded. In that case, the times that threads waited for a CPU are
    /// lower bounds, because waits after a sleep are also counted as sleep.
    pub lacks_wakeups: bool,
}

/// A time range in which some switches were not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordingHole {
    /// Start of the hole in monotonic nanoseconds.
    pub begin_ns: u64,
    /// End of the hole in monotonic nanoseconds, which is after `begin_ns`.
    pub end_ns: u64,
    /// The reason why switches were not recorded.
    pub cause: HoleCause,
}

/// The reason why switches were not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoleCause {
    /// The switches exceeded the CPU budget of the source.
    Stopped,
    /// The given number of records is missing, at unknown times in the range.
    LostRecords(u64),
    /// Samples of the source are missing.
    MissingSamples,
}
