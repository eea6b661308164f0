//! Describes the host of a recording. The module contains the names of the host, and readings of
//! its clocks that relate monotonic time to the time of day.

/// Values of the host's three clocks at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub mono_ns: u64,
    /// CLOCK_BOOTTIME, in nanoseconds. Boot time is the monotonic time plus the time that the host
    /// was suspended.
    pub boot_ns: u64,
    /// CLOCK_REALTIME, in nanoseconds since 1970, UTC.
    pub wall_ns: i64,
}

impl ClockReading {
    /// Returns the time that the host was suspended since its boot, in nanoseconds. This is boot
    /// time minus monotonic time.
    pub fn suspended_ns(&self) -> u64 {
        self.boot_ns.saturating_sub(self.mono_ns)
    }

    /// Returns wall time minus monotonic time, in nanoseconds.
    pub fn wall_offset_ns(&self) -> i64 {
        self.wall_ns.wrapping_sub_unsigned(self.mono_ns)
    }
}

/// The known parts of the host's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName {
    /// Host name (uname(2)).
    pub name: String,
    /// Content of /etc/machine-id, if present.
    pub machine_id: Option<String>,
    /// Content of `/proc/sys/kernel/random/boot_id`. It changes at each boot.
    pub boot_id: Option<String>,
    /// Names and values that the operator gave the host, such as its role and its site.
    pub labels: Vec<(String, String)>,
}
