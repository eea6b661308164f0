//! How do payloads become bytes in a row, and payloads again? The wire format, usable alone:
//!
//! ```text
//! [u32 LE: payload length][N bytes LE: checksum of the payload, N = 0, 2, 4 or 8][payload]
//! ```
//!
//! It is that of flatstream 0.2.7, byte for byte, and so are the names: docs/MIGRATION.md.
//!
//! | to | there is |
//! |---|---|
//! | write to any `Write` | [`StreamWriter`] with a [`Framer`]: [`DefaultFramer`], [`ChecksumFramer`], [`ChecksumKind`] |
//! | frame in memory | [`SliceFramer`] |
//! | read from any `Read` | [`StreamReader`] with a [`Deframer`]: [`DefaultDeframer`], [`ChecksumDeframer`], [`KindDeframer`] |
//! | read bytes in memory, or mapped | [`SliceReader`] with a [`SliceDeframer`] |
//! | decode what arrives in pieces | [`FrameDecoder`] |
//! | bound, observe, validate | [`FramerExt`], [`DeframerExt`], [`validation`] |
//! | give a burst's memory back | [`policy`] |
//! | continue a stream that was cut off | [`recover()`] |
//! | read on behind damage | [`salvage()`] |
//! | write and read messages of one shape fast | `FrameTemplate` (feature `template`) |
//!
//! Never: knows a file, a segment, a source or a thread; opens, seeks or truncates; imports another room;
//! takes memory for a length that has not met its limit.
//!
//! ```
//! use flatcap::stream::{DefaultDeframer, DefaultFramer, SliceReader, StreamWriter};
//!
//! let mut writer = StreamWriter::new(Vec::new(), DefaultFramer);
//! writer.write_payload(b"abc")?;
//! writer.write_payload(b"defg")?;
//! let bytes = writer.into_inner();
//! assert_eq!(bytes, b"\x03\0\0\0abc\x04\0\0\0defg");
//!
//! let payloads: Result<Vec<&[u8]>, _> = SliceReader::new(&bytes, DefaultDeframer::new()).collect();
//! assert_eq!(payloads?, [&b"abc"[..], b"defg"]);
//! # Ok::<(), flatcap::stream::Error>(())
//! ```

pub mod checksum;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod policy;
pub mod reader;
pub mod recover;
pub mod validation;
pub mod writer;

mod adapters;
mod copy;
mod decoder;
mod deframer;
#[cfg(feature = "template")]
mod fixed;
mod framer;
mod kind;
mod message;
#[cfg(feature = "template")]
mod place;
mod salvage;
mod slice;
#[cfg(feature = "template")]
mod template;
#[cfg(feature = "xxhash")]
mod xxh3;

/// Framers, deframers and their adapters, under the path that users of flatstream know.
pub mod framing {
    pub use super::adapters::{
        BoundedDeframer, BoundedFramer, DeframerExt, FramerExt, ObserverDeframer, ObserverFramer,
        ValidatingDeframer, ValidatingFramer,
    };
    pub use super::deframer::{
        ChecksumDeframer, DEFAULT_MAX_FRAME_LEN, DefaultDeframer, Deframer, Extent, Frame, SliceDeframer,
        Step,
    };
    pub use super::framer::{
        ChecksumFramer, DefaultFramer, FrameHeader, Framer, HEADER_BYTES_MAX, LENGTH_BYTES,
        MAX_WIRE_FRAME_LEN, SliceFramer,
    };
    pub use super::kind::{ChecksumKind, KindDeframer, UnknownChecksum};
}

/// How types become payloads, under the path that users of flatstream know.
pub mod traits {
    pub use super::message::{StreamDeserialize, StreamSerialize};
}

#[cfg(feature = "crc16")]
pub use checksum::Crc16;
#[cfg(feature = "crc32")]
pub use checksum::Crc32;
#[cfg(feature = "xxhash")]
pub use checksum::XxHash64;
pub use checksum::{Checksum, NoChecksum};
#[cfg(feature = "agent")]
pub(crate) use copy::{append, copy};
pub use decoder::FrameDecoder;
pub use error::{Error, ErrorKind, Result};
pub use framing::*;
pub use message::{StreamDeserialize, StreamSerialize};
pub use policy::{
    AdaptiveWatermarkPolicy, Clock, MemoryPolicy, MonotonicClock, NoOpPolicy, ReclamationInfo,
    ReclamationReason, SizeThresholdPolicy,
};
pub use reader::{Messages, StreamReader, TypedMessages};
pub use recover::{RecoveryEnd, RecoveryReport, recover, recover_file};
pub use salvage::{Content, Piece, Salvage, salvage};
pub use slice::SliceReader;
#[cfg(feature = "template")]
pub use template::{FrameTemplate, List, Patch, Scalar, Slot, TemplateError, View};
pub use validation::{
    CompositeValidator, NoValidator, SizeValidator, TableRootValidator, TypedValidator, Validator,
};
pub use writer::StreamWriter;
