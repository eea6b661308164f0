//! The kernel log, from payloads of the source `kmsg`.

use flatbuffers::{ForwardsUOffset, Vector};

use crate::error::PayloadError;
use crate::generated::kernel::{LogLine, root_as_kmsg};

/// A payload of the source `kmsg`, which has lines of the kernel log.
#[derive(Debug, Clone, Copy)]
pub struct LogBatch<'p> {
    lost: u64,
    lines: Vector<'p, ForwardsUOffset<LogLine<'p>>>,
}

/// A line of the kernel log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLineView<'p> {
    /// Time in nanoseconds of the kernel log's clock. This clock is `CLOCK_MONOTONIC` without the
    /// corrections of NTP, and deviates from `CLOCK_MONOTONIC` by up to 4 s a day.
    pub time_ns: u64,
    /// Sequence number of the line since boot.
    pub sequence: u64,
    /// Severity, where 0 is an emergency, 3 an error, 4 a warning, 6 information, and 7 a message
    /// for debugging.
    pub priority: u8,
    /// Facility, where 0 is the kernel. Other values are facilities of syslog(3).
    pub facility: u8,
    /// The text of the line, which may contain control characters.
    pub text: &'p str,
}

impl<'p> LogBatch<'p> {
    /// Checks a payload.
    ///
    /// # Errors
    /// Fails if the payload is malformed.
    pub fn read(payload: &'p [u8]) -> Result<Self, PayloadError> {
        let kmsg = root_as_kmsg(payload)?;
        Ok(Self { lost: kmsg.lost(), lines: kmsg.lines() })
    }

    /// Returns the number of lines that were lost since the source was opened, because the kernel
    /// overwrote the lines before they were read.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the lines, sorted by their sequence numbers.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = LogLineView<'p>> + use<'p> {
        self.lines.iter().map(|line| LogLineView {
            time_ns: line.time(),
            sequence: line.sequence(),
            priority: line.priority(),
            facility: line.facility(),
            text: line.text(),
        })
    }
}
