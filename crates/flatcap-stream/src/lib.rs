//! Writes a stream of payloads as frames and reads the payloads back.
//!
//! ```text
//! [u32 LE: payload length][N bytes LE: checksum of the payload, N = 0, 2, 4 or 8][payload]
//! ```
//!
//! The wire format and the public names are the same as in flatstream 0.2.7. See MIGRATION.md.
//!
//! | to | use |
//! |---|---|
//! | write to any `Write` | [`StreamWriter`] and [`DefaultFramer`], [`ChecksumFramer`] |
//! | frame in memory | [`SliceFramer`] |
//! | read from any `Read` | [`StreamReader`] and [`DefaultDeframer`], [`ChecksumDeframer`] |
//! | take the checksum at run time | [`ChecksumKind`] as a framer, [`KindDeframer`] |
//! | read bytes in memory, or mapped | [`SliceReader`] and a [`SliceDeframer`] |
//! | decode bytes that arrive in chunks | [`FrameDecoder`] |
//! | limit, observe, validate | [`FramerExt`], [`DeframerExt`], [`validation`] |
//! | release memory after a burst | [`policy`] |
//! | continue a stream that was cut off | [`recover()`] |
//! | read a damaged stream | [`salvage()`] |
//!
//! The library does not depend on files, segments, sources or threads. It does not open or truncate
//! files, and only `recover_file` seeks. It checks each length against its limit before it
//! allocates memory for it. The library runs on every platform that Rust's standard library
//! supports.
//!
//! ```
//! use flatcap_stream::{DefaultDeframer, DefaultFramer, SliceReader, StreamWriter};
//!
//! let mut writer = StreamWriter::new(Vec::new(), DefaultFramer);
//! writer.write_payload(b"abc")?;
//! writer.write_payload(b"defg")?;
//! let bytes = writer.into_inner();
//! assert_eq!(bytes, b"\x03\0\0\0abc\x04\0\0\0defg");
//!
//! let payloads: Result<Vec<&[u8]>, _> =
//!     SliceReader::new(&bytes, DefaultDeframer::new()).collect();
//! assert_eq!(payloads?, [&b"abc"[..], b"defg"]);
//! # Ok::<(), flatcap_stream::Error>(())
//! ```

pub mod checksum;
pub mod error;
#[cfg(any(all(test, feature = "flatstream"), feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(feature = "flatstream")]
pub mod policy;
#[cfg(feature = "flatstream")]
pub mod reader;
#[cfg(feature = "flatstream")]
pub mod recover;
pub mod resync;
pub mod short_bytes;
#[cfg(feature = "flatstream")]
pub mod validation;
#[cfg(feature = "flatstream")]
pub mod writer;

#[cfg(feature = "flatstream")]
mod adapters;
mod checksum_kind;
#[cfg(feature = "flatstream")]
mod decoder;
mod deframer;
mod framer;
#[cfg(feature = "flatstream")]
mod message;
mod salvage;
mod slice;
#[cfg(feature = "xxhash")]
mod xxh3;

/// Framers, deframers and their adapters, under the path that flatstream uses.
pub mod framing {
    #[cfg(feature = "flatstream")]
    pub use super::adapters::{
        BoundedDeframer, BoundedFramer, CheckedDeframer, CheckedFramer, DeframerExt, FramerExt, LengthLimit,
        Observer, ObserverDeframer, ObserverFramer, PayloadCheck, ValidatingDeframer, ValidatingFramer,
        Validation,
    };
    pub use super::checksum_kind::{ChecksumKind, KindDeframer, UnknownChecksum};
    pub use super::deframer::{
        ChecksumDeframer, DEFAULT_MAX_FRAME_LEN, DefaultDeframer, DeframeStatus, Deframer, Frame,
        FrameLength, SliceDeframer,
    };
    pub use super::framer::{
        ChecksumFramer, DefaultFramer, FrameHeader, Framer, HEADER_BYTES_MAX, LENGTH_BYTES,
        MAX_WIRE_FRAME_LEN, SliceFramer,
    };
}

/// The traits that convert between types and payloads, under the path that flatstream uses.
#[cfg(feature = "flatstream")]
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
#[cfg(feature = "flatstream")]
pub use decoder::FrameDecoder;
pub use error::{Error, ErrorKind, Result};
pub use framing::*;
#[cfg(feature = "flatstream")]
pub use message::{StreamDeserialize, StreamSerialize};
#[cfg(feature = "flatstream")]
pub use policy::{
    AdaptiveWatermarkPolicy, Clock, MemoryPolicy, MonotonicClock, NoOpPolicy, ReclamationInfo,
    ReclamationReason, SizeThresholdPolicy,
};
#[cfg(feature = "flatstream")]
pub use reader::{Messages, StreamReader, TypedMessages};
#[cfg(feature = "flatstream")]
pub use recover::{RecoveryEnd, RecoveryReport, recover, recover_file};
pub use salvage::{RegionContent, Salvage, SalvagedRegion, salvage};
pub use slice::SliceReader;
#[cfg(feature = "flatstream")]
pub use validation::{
    CompositeValidator, NoValidator, SizeValidator, TableRootValidator, TypedValidator, Validator,
};
#[cfg(feature = "flatstream")]
pub use writer::StreamWriter;
