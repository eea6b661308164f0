//! The kernel log, /dev/kmsg, which returns one record per read. The kernel's
//! `Documentation/ABI/testing/dev-kmsg` describes it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Maximum length of a record. The kernel truncates longer records. The kernel rejects a read into
/// a buffer that is too small for the record.
pub const RECORD_BYTES_MAX: usize = 8192;

/// An open kernel log. Reads never wait.
#[derive(Debug)]
pub struct KernelLog<F = File> {
    file: F,
}

/// The record at which reading starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStart {
    /// The oldest record that the kernel has.
    Oldest,
    /// The next record to be written.
    Next,
}

/// The outcome of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum RecordRead<'b> {
    /// The bytes of a record. [`KernelRecord::parse`] parses them.
    Record(&'b [u8]),
    /// The kernel has overwritten unread records. The next read returns the oldest remaining
    /// record.
    Overwritten,
    /// No further record has been written.
    End,
}

impl KernelLog {
    /// Opens the log.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_SYSLOG` if `kernel.dmesg_restrict` is 1; `NotFound` in most
    /// containers; or any error of the underlying system call.
    pub fn open(path: &Path, start: LogStart) -> io::Result<Self> {
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        let mut file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
        if start == LogStart::Next {
            file.seek(SeekFrom::End(0))?;
        }
        Ok(Self { file })
    }
}

impl<F: Read> KernelLog<F> {
    /// Creates a log from a reader that returns one record per read.
    #[cfg(any(test, feature = "testing"))]
    pub fn of(file: F) -> Self {
        Self { file }
    }

    /// Reads the next record into `buffer`, which has at least [`RECORD_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn read<'b>(&mut self, buffer: &'b mut [u8]) -> io::Result<RecordRead<'b>> {
        loop {
            match self.file.read(buffer) {
                Ok(0) => return Ok(RecordRead::End),
                Ok(length) => return Ok(RecordRead::Record(buffer.get(..length).unwrap_or_default())),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock => return Ok(RecordRead::End),
                    // `InvalidInput` means that the record is longer than `RECORD_BYTES_MAX`; the
                    // kernel has skipped it.
                    ErrorKind::BrokenPipe | ErrorKind::InvalidInput => return Ok(RecordRead::Overwritten),
                    _ => return Err(error),
                },
            }
        }
    }
}

/// A record of the kernel log: `priority,number,microseconds,flags;text`, followed by lines of the
/// form ` KEY=value`. These lines name a device and are ignored.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelRecord<'r> {
    /// Level of syslog(3), 0 to 7.
    pub priority: u8,
    /// Facility of syslog(3).
    pub facility: u8,
    /// Number of the record since boot.
    pub sequence: u64,
    /// Time of the record, in microseconds of the kernel log's clock.
    pub mono_us: u64,
    /// The escaped text, which [`unescape`] decodes.
    pub text: &'r [u8],
}

impl<'r> KernelRecord<'r> {
    /// Parses a record. Returns `None` if the record is malformed.
    pub fn parse(record: &'r [u8]) -> Option<Self> {
        let mut parts = record.splitn(2, |byte| *byte == b';');
        let mut prefix = std::str::from_utf8(parts.next()?).ok()?.split(',');
        let text = parts.next()?.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let origin = prefix.next()?.parse::<u32>().ok()?;
        Some(Self {
            priority: u8::try_from(origin & 7).ok()?,
            facility: u8::try_from(origin >> 3).ok()?,
            sequence: prefix.next()?.parse().ok()?,
            mono_us: prefix.next()?.parse().ok()?,
            text,
        })
    }
}

/// Appends the text of a record to `bytes`, with its escapes decoded. The kernel writes control
/// characters, backslashes and all bytes above 126 as escapes such as `\x0a`.
pub fn unescape(text: &[u8], bytes: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        let code = match rest {
            [b'\\', b'x', high, low, ..] => hexadecimal(*high).zip(hexadecimal(*low)),
            _ => None,
        };
        let (byte, length) = code.map_or((*first, 1), |(high, low)| (high << 4 | low, 4));
        bytes.push(byte);
        rest = rest.get(length..).unwrap_or(others);
    }
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// A log for tests. Each of its reads returns one record or error.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug)]
pub struct Records(pub Vec<io::Result<String>>);

#[cfg(any(test, feature = "testing"))]
impl Read for Records {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let record = self.0.remove(0)?;
        // The records of a test are shorter than any buffer for records.
        buffer.iter_mut().zip(record.bytes()).for_each(|(place, byte)| *place = byte);
        Ok(record.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Proves that the parts of a record are parsed, with and without the parts that only some
    // kernels write, and that a malformed record is rejected.
    #[test]
    fn records_are_parsed() {
        let record = KernelRecord::parse(b"30,3,10000001,-,caller=T1;a; b\n SUBSYSTEM=block\n").unwrap();
        let expected =
            KernelRecord { priority: 6, facility: 3, sequence: 3, mono_us: 10_000_001, text: b"a; b" };
        assert_eq!(record, expected);
        assert_eq!(KernelRecord::parse(b"4,7,8,-;").unwrap().text, b"");
        for malformed in [&b""[..], b"6,1,8,-", b";text", b"6,1;text", b"x,1,2,-;t", b"6,-1,2,-;t", b"\xFF;t"]
        {
            assert_eq!(KernelRecord::parse(malformed), None, "{malformed:?}");
        }
    }

    proptest! {
        // Proves that decoding the kernel's escapes restores any text.
        #[test]
        fn escapes_are_undone(text in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut escaped = Vec::new();
            for byte in &text {
                match byte {
                    b'\\' | 0..b' ' | 127.. => escaped.extend(format!("\\x{byte:02x}").into_bytes()),
                    _ => escaped.push(*byte),
                }
            }
            let mut bytes = Vec::new();
            unescape(&escaped, &mut bytes);
            prop_assert_eq!(bytes, text);
        }

        // Proves that no bytes make the parser fail, and that bytes that are not an escape are
        // unchanged.
        #[test]
        fn any_bytes_are_accepted(record in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _none = KernelRecord::parse(&record);
            let mut bytes = Vec::new();
            unescape(&record, &mut bytes);
            prop_assert!(bytes.len() <= record.len());
            prop_assert!(record.contains(&b'\\') || bytes == record);
        }
    }
}
