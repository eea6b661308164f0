//! Reads those lines of the host's kernel log or journal that are in a time window.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::kernel_log::{KernelLog, KernelRecord, LogStart, RECORD_BYTES_MAX, RecordRead};
use super::program::{self, KillHandle, ProgramEnd};
use crate::keywords;

/// Maximum number of bytes of a log that are kept. This is enough for thousands of lines. If the
/// limit is exceeded, the latest lines of the kernel log are returned, but the earliest lines of
/// the journal.
const LOG_BYTES_MAX: usize = 1 << 20;
const KERNEL_LOG: &str = "/dev/kmsg";
/// Maximum number of records that are read. The log has a few megabytes, but it grows while it is
/// read.
const RECORDS_MAX: usize = 1 << 20;
/// Length of the time before the window whose lines are also kept, in nanoseconds. These lines show
/// what led to the events in the window.
const LEAD_NS: u64 = 1_000_000_000;
/// Divisor for the maximum drift of the kernel log's clock from the monotonic clock. The maximum
/// drift is the elapsed time divided by this value. The kernel stamps lines by a clock that NTP
/// does not correct. A drift of 1/20,000 is 50 ppm, or 4 s a day.
const DRIFT_PART: u64 = 20_000;
const JOURNAL_PROGRAM: &str = "/usr/bin/journalctl";
/// Time limit for journalctl. Reading one minute of the journal usually takes milliseconds, but it
/// takes seconds if the journal is large and the disk is slow.
const JOURNAL_NS_MAX: u64 = 20_000_000_000;

keywords! {
    /// A log of the host.
    #[derive(Serialize, Deserialize)]
    pub enum HostLog {
        /// The kernel log, from /dev/kmsg.
        #[serde(rename = "kmsg")]
        Kernel = "kmsg",
        /// The journal of systemd-journald, read by journalctl.
        #[serde(rename = "journal")]
        Journal = "journal",
    }
}

/// A window of time in nanoseconds, both ends included, on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogWindow {
    /// The window on the wall clock.
    pub wall_ns: (i64, i64),
    /// The window on the monotonic clock.
    pub mono_ns: (u64, u64),
}

impl HostLog {
    /// Returns the file name under which the log of a window is attached.
    pub fn file_name(self) -> String {
        format!("{}.txt", self.as_str())
    }

    /// Returns the lines of a window as text, up to 1 MiB.
    ///
    /// # Errors
    /// The log is missing on this host, or this process may not read it.
    pub fn read(self, window: &LogWindow) -> io::Result<Vec<u8>> {
        match self {
            Self::Kernel => {
                kernel_lines(KernelLog::open(Path::new(KERNEL_LOG), LogStart::Oldest)?, window.mono_ns)
            }
            Self::Journal => journal_lines(window.wall_ns),
        }
    }
}

/// Reads the records of the kernel log and returns the records in the window. Keeps the kernel's
/// escapes, so that each record is one line.
fn kernel_lines(mut log: KernelLog<impl Read>, window_ns: (u64, u64)) -> io::Result<Vec<u8>> {
    let slack_ns = window_ns.1 / DRIFT_PART;
    let first_ns = window_ns.0.saturating_sub(LEAD_NS + slack_ns);
    let last_ns = window_ns.1.saturating_add(slack_ns);
    let (mut buffer, mut lines) = (vec![0; RECORD_BYTES_MAX], String::new());
    for _ in 0..RECORDS_MAX {
        let record = match log.read(&mut buffer)? {
            RecordRead::Record(record) => KernelRecord::parse(record),
            RecordRead::Overwritten => continue,
            RecordRead::End => break,
        };
        let Some(KernelRecord { priority, mono_us, text, .. }) = record else { continue };
        if (first_ns..=last_ns).contains(&mono_us.saturating_mul(1000)) {
            // Writing to a string cannot fail.
            let _infallible = writeln!(
                lines,
                "[{:5}.{:06}] {}: {}",
                mono_us / 1_000_000,
                mono_us % 1_000_000,
                LEVELS.get(usize::from(priority)).copied().unwrap_or("?"),
                String::from_utf8_lossy(text)
            );
        }
    }
    let excess = lines.len().saturating_sub(LOG_BYTES_MAX);
    let begin = if excess == 0 {
        0
    } else {
        lines.get(excess..).and_then(|rest| rest.find('\n')).map_or(lines.len(), |end| excess + end + 1)
    };
    Ok(lines.get(begin..).unwrap_or_default().as_bytes().to_vec())
}

/// Names of the syslog levels, by number.
const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];

/// Returns the journal lines of a window.
fn journal_lines((first_ns, last_ns): (i64, i64)) -> io::Result<Vec<u8>> {
    let time = |wall_ns: i64| {
        let us = wall_ns.div_euclid(1000);
        format!("@{}.{:06}", us.div_euclid(1_000_000), us.rem_euclid(1_000_000))
    };
    let since = first_ns.saturating_sub_unsigned(LEAD_NS);
    let words = [
        JOURNAL_PROGRAM.to_owned(),
        "--no-pager".to_owned(),
        "--quiet".to_owned(),
        "--utc".to_owned(),
        "--output=short-iso-precise".to_owned(),
        format!("--since={}", time(since)),
        format!("--until={}", time(last_ns)),
    ];
    let mut lines = Vec::new();
    let run = program::run(&words, JOURNAL_NS_MAX, &KillHandle::default(), &mut lines)?;
    match run.end {
        ProgramEnd::Exited(0) => {}
        ProgramEnd::OutputTooLong => {
            let end = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            lines.truncate(end.min(LOG_BYTES_MAX));
        }
        ProgramEnd::Exited(status) => {
            return Err(io::Error::other(format!("{JOURNAL_PROGRAM} ended with status {status}")));
        }
        ProgramEnd::Signalled(signal) => {
            return Err(io::Error::other(format!("{JOURNAL_PROGRAM} was killed by signal {signal}")));
        }
        ProgramEnd::TimedOut => {
            let limit_s = JOURNAL_NS_MAX / 1_000_000_000;
            return Err(io::Error::other(format!("{JOURNAL_PROGRAM} took longer than {limit_s} s")));
        }
    }
    if lines.is_empty() {
        // If journalctl may not read the journal, it prints nothing and succeeds.
        return Err(io::Error::other(
            "it has no lines of that time, or none that this user may read: members of systemd-journal read all",
        ));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::kernel_log::Records;

    fn log(records: Vec<io::Result<String>>) -> KernelLog<Records> {
        KernelLog::of(Records(records))
    }

    // Proves that the lines of the window and of the second before the window are returned with
    // level and time. An overwritten or malformed record affects no other record.
    #[test]
    fn kernel_lines_are_of_the_window() {
        let records = [
            "6,1,8000000,-;too early\n",
            "6,2,9500000,-;EXT4-fs (vda): mounted\n SUBSYSTEM=block\n DEVICE=b8:0\n",
            "30,3,10000001,-,caller=T1;systemd[1]: hello; again\n",
            "no record",
            "3,5,11999999,-;I/O error, dev vda\n",
            "3,6,12100000,-;too late\n",
        ];
        let mut records: Vec<io::Result<String>> = records.map(|text| Ok(text.to_owned())).into();
        records.insert(3, Err(ErrorKind::BrokenPipe.into()));
        let lines = kernel_lines(log(records), (10_000_000_000, 12_000_000_000)).unwrap();
        assert_eq!(
            String::from_utf8(lines).unwrap(),
            "[    9.500000] info: EXT4-fs (vda): mounted\n[   10.000001] info: systemd[1]: hello; again\n\
             [   11.999999] err: I/O error, dev vda\n"
        );
    }

    // Proves that an endless log is truncated to its latest lines, at a line boundary.
    #[test]
    fn kernel_lines_are_bounded() {
        let record = |number: usize| Ok(format!("6,{number},1000000,-;{number} {}\n", "x".repeat(1000)));
        let lines = kernel_lines(log((0..3000).map(record).collect()), (0, 2_000_000_000)).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        assert!(lines.len() <= LOG_BYTES_MAX && lines.len() > LOG_BYTES_MAX - 2000, "{}", lines.len());
        assert!(lines.starts_with("[    1.000000] info: ") && lines.contains("info: 2999 x"));
    }

    // Proves that a log that cannot be opened is an error, not an empty log.
    #[test]
    fn an_error_is_reported() {
        let refused = || io::Error::from(ErrorKind::PermissionDenied);
        let error = kernel_lines(log(vec![Err(refused())]), (0, 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }
}
