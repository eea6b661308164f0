//! Crash recovery, which finds the offset at which an interrupted stream may be truncated and
//! continued.
//!
//! Only an end within a frame is a sign of an interrupted write. Any other failure may be caused by
//! damage in the middle of good data, a wrong checksum kind or a wrong limit, and is therefore an
//! error. A damaged length can also look like a torn tail. Use [`salvage`](super::salvage()) to
//! read the data after a damaged length.

use std::io::{Read, Seek, SeekFrom};

use super::deframer::Deframer;
use super::error::Result;

/// Specifies where a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryEnd {
    /// The stream ends after a whole frame.
    CleanEof,
    /// Within a frame.
    TornTail,
}

/// A report on the intact prefix of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Number of intact frames.
    pub frames: u64,
    /// Offset after the last intact frame.
    pub last_good_offset: u64,
    /// Specifies whether the stream ends after a whole frame or within a frame.
    pub end: RecoveryEnd,
}

/// Reads a stream to its end and reports its intact prefix. Offsets are relative to the current
/// position of `reader`. The deframer must consume exactly one frame per call, as all deframers of
/// this crate do.
///
/// # Errors
/// `ChecksumMismatch`, `InvalidFrame`, `Io`, and the errors of adapters. A torn tail is not an
/// error. The stream must not be truncated after an error.
#[allow(clippy::needless_pass_by_value, reason = "the signature of flatstream")]
pub fn recover<R: Read, D: Deframer>(reader: R, deframer: D) -> Result<RecoveryReport> {
    let mut source = CountingReader { source: reader, bytes: 0 };
    let mut buffer = Vec::new();
    let mut report = RecoveryReport { frames: 0, last_good_offset: 0, end: RecoveryEnd::CleanEof };
    loop {
        match deframer.read_and_deframe(&mut source, &mut buffer) {
            Ok(Some(_)) => {
                report.frames += 1;
                report.last_good_offset = source.bytes;
            }
            Ok(None) => return Ok(report),
            Err(error) if error.is_unexpected_eof() => {
                return Ok(RecoveryReport { end: RecoveryEnd::TornTail, ..report });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Like [`recover`], but reads from the start of a file. Afterwards the position of the file is
/// after the last intact frame. At this position, the caller may cut off a torn tail and continue
/// to write. This function does not truncate the file.
///
/// # Errors
/// Returns the same errors as [`recover`]. After an error, the position of the file is unspecified.
pub fn recover_file<R: Read + Seek, D: Deframer>(reader: &mut R, deframer: D) -> Result<RecoveryReport> {
    reader.seek(SeekFrom::Start(0))?;
    let report = recover(&mut *reader, deframer)?;
    reader.seek(SeekFrom::Start(report.last_good_offset))?;
    Ok(report)
}

/// A reader that counts the bytes that are read from a source.
struct CountingReader<R> {
    source: R,
    bytes: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::checksum_kind::{ChecksumKind, KindDeframer};
    use crate::framer::Framer;

    // Proves that the report is exact for a stream that is truncated at any byte, and that writing
    // may continue at the reported position.
    #[test]
    fn every_cut_can_be_continued() {
        for &kind in ChecksumKind::ALL {
            let mut bytes = Vec::new();
            let mut ends = vec![0];
            for payload in [&b"first"[..], b"", b"third payload"] {
                kind.frame_and_write(&mut bytes, payload).unwrap();
                ends.push(bytes.len());
            }
            for cut in 0..=bytes.len() {
                let mut file = Cursor::new(bytes[..cut].to_vec());
                file.set_position(3);
                let report = recover_file(&mut file, KindDeframer::new(kind)).unwrap();
                let whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
                assert_eq!(report.frames, whole as u64);
                assert_eq!(report.last_good_offset, ends[whole] as u64);
                assert_eq!(report.end == RecoveryEnd::CleanEof, cut == ends[whole]);
                assert_eq!(file.position(), ends[whole] as u64);
                file.get_mut().truncate(ends[whole]);
                kind.frame_and_write(&mut file, b"more").unwrap();
                let report = recover(&file.get_ref()[..], KindDeframer::new(kind)).unwrap();
                assert_eq!((report.frames, report.end), (whole as u64 + 1, RecoveryEnd::CleanEof));
            }
        }
    }

    // Proves that damage is reported as an error and never as a torn tail.
    #[cfg(feature = "crc16")]
    #[test]
    fn damage_is_an_error() {
        let mut bytes = Vec::new();
        ChecksumKind::Crc16.frame_and_write(&mut bytes, b"payload").unwrap();
        let deframer = KindDeframer::new(ChecksumKind::Crc16);
        bytes[9] ^= 1;
        assert!(recover(&bytes[..], deframer).unwrap_err().is_checksum_mismatch());
        assert!(recover(&bytes[..], deframer.with_max_frame_len(6)).unwrap_err().is_frame_too_large());
    }
}
