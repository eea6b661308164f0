//! How do payloads become bytes in a row, and payloads again? The wire format, usable alone:
//!
//! ```text
//! [u32 LE: payload length][N bytes LE: checksum of the payload, N = 0, 2, 4 or 8][payload]
//! ```
//!
//! Never: knows a file, a segment, a source or a thread; opens, seeks or truncates; imports another room;
//! takes memory for a length that has not met its limit.
//!
//! ```
//! use flatcap::stream::{ChecksumKind, SliceReader, StreamWriter};
//!
//! let mut writer = StreamWriter::new(Vec::new(), ChecksumKind::None);
//! writer.write_payload(b"abc")?;
//! writer.write_payload(b"defg")?;
//! let bytes = writer.into_inner();
//! assert_eq!(bytes, b"\x03\0\0\0abc\x04\0\0\0defg");
//!
//! let payloads: Result<Vec<_>, _> =
//!     SliceReader::new(&bytes, ChecksumKind::None).map(|frame| frame.map(|frame| frame.payload())).collect();
//! assert_eq!(payloads?, [&b"abc"[..], b"defg"]);
//! # Ok::<(), flatcap::stream::Error>(())
//! ```

mod checksum;
mod deframer;
mod error;
mod framer;
mod slice;
mod writer;

pub use checksum::{ChecksumKind, UnknownChecksum};
pub use deframer::{Deframer, Frame, Step};
pub use error::{Error, ErrorKind, Result};
pub use framer::{FrameHeader, HEADER_BYTES_MAX, LENGTH_BYTES, frame_bytes, seal};
pub use slice::SliceReader;
pub use writer::StreamWriter;
