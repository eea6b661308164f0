//! What a recording of the scheduler lacks.

/// What the payloads so far lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordingFaults {
    /// Places at which samples of the source are missing.
    pub gaps: u64,
    /// Records that the kernel could not deliver, after those of the first payload, and places at
    /// which a switch is missing without a reason.
    pub lost: u64,
    /// How long switches were not recorded, in nanoseconds.
    pub stopped_ns: u64,
    /// Wakeups were not recorded: times that threads waited for a CPU are lower bounds, and sleeps
    /// include such times.
    pub lacks_wakeups: bool,
}

/// A time in which not all switches were recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordingHole {
    /// When it begins, in monotonic nanoseconds.
    pub begin_ns: u64,
    /// When it ends, in monotonic nanoseconds; after `begin_ns`.
    pub end_ns: u64,
    /// Why.
    pub cause: HoleCause,
}

/// Why switches were not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoleCause {
    /// They cost more than the budget of the source.
    Stopped,
    /// So many records are missing, at some moments of this time.
    LostRecords(u64),
    /// Samples of the source are missing.
    MissingSamples,
}
