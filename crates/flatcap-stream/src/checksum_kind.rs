//! Framing with a checksum type that is known only at run time, for example from a file header, a
//! setting or an argument.

use std::fmt;
use std::io::{Read, Write};
use std::str::FromStr;

#[cfg(feature = "crc16")]
use super::checksum::Crc16;
#[cfg(feature = "crc32")]
use super::checksum::Crc32;
#[cfg(feature = "xxhash")]
use super::checksum::XxHash64;
use super::checksum::{Checksum, NoChecksum};
use super::deframer::{
    DEFAULT_MAX_FRAME_LEN, DeframeStatus, Deframer, FrameLength, SliceDeframer, checksum_matches,
    deframe_slice, frame_length, read_rest,
};
use super::error::Result;
use super::framer::{ChecksumFramer, FrameHeader, Framer, LENGTH_BYTES, SliceFramer};

/// The checksum algorithm of a stream, which is the same for all payloads of the stream. The kind
/// is also a framer that uses this checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChecksumKind {
    /// [`NoChecksum`].
    None,
    /// [`Crc16`].
    #[cfg(feature = "crc16")]
    Crc16,
    /// [`Crc32`].
    #[cfg(feature = "crc32")]
    Crc32,
    /// [`XxHash64`].
    #[cfg(feature = "xxhash")]
    Xxh3,
}

/// Evaluates `$body` with `$checksum` bound to a value of the checksum type that the kind names.
/// `$body` is compiled separately for each kind.
macro_rules! with_checksum {
    ($kind:expr, $checksum:ident => $body:expr) => {
        match $kind {
            ChecksumKind::None => {
                let $checksum = NoChecksum;
                $body
            }
            #[cfg(feature = "crc16")]
            ChecksumKind::Crc16 => {
                let $checksum = Crc16;
                $body
            }
            #[cfg(feature = "crc32")]
            ChecksumKind::Crc32 => {
                let $checksum = Crc32;
                $body
            }
            #[cfg(feature = "xxhash")]
            ChecksumKind::Xxh3 => {
                let $checksum = XxHash64;
                $body
            }
        }
    };
}

impl ChecksumKind {
    /// All kinds of this build, from the widest to the narrowest. To identify the checksum of an
    /// unknown stream, try the kinds in this order.
    pub const ALL: &'static [Self] = &[
        #[cfg(feature = "xxhash")]
        Self::Xxh3,
        #[cfg(feature = "crc32")]
        Self::Crc32,
        #[cfg(feature = "crc16")]
        Self::Crc16,
        Self::None,
    ];

    /// Returns the number of bytes of the checksum in each frame, which is 0, 2, 4 or 8.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Self::None => NoChecksum::SIZE,
            #[cfg(feature = "crc16")]
            Self::Crc16 => Crc16::SIZE,
            #[cfg(feature = "crc32")]
            Self::Crc32 => Crc32::SIZE,
            #[cfg(feature = "xxhash")]
            Self::Xxh3 => XxHash64::SIZE,
        }
    }

    /// Returns the name of the checksum in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            #[cfg(feature = "crc16")]
            Self::Crc16 => "crc16",
            #[cfg(feature = "crc32")]
            Self::Crc32 => "crc32",
            #[cfg(feature = "xxhash")]
            Self::Xxh3 => "xxh3",
        }
    }

    /// Returns the length of a frame whose payload has `payload_bytes` bytes.
    #[inline]
    pub const fn frame_bytes(self, payload_bytes: usize) -> usize {
        LENGTH_BYTES + self.size() + payload_bytes
    }

    /// Returns the checksum of `payload`, which is in the low [`size`](Self::size) bytes of the
    /// value.
    #[inline]
    pub fn calculate(self, payload: &[u8]) -> u64 {
        with_checksum!(self, checksum => checksum.calculate(payload))
    }
}

impl ChecksumKind {
    /// Like [`frame_in_place`](SliceFramer::frame_in_place), but also writes the header to the
    /// start of `header_copy`. If the caller copied the header later, with loads that differ in
    /// size from the stores, the processor would stall until the stores complete.
    ///
    /// # Errors
    /// `InvalidFrame` if the format cannot express the payload, or if `frame` or `header_copy` is
    /// shorter than a header.
    #[inline]
    pub fn frame_in_place_with_copy(self, frame: &mut [u8], header_copy: &mut [u8]) -> Result<()> {
        with_checksum!(self, checksum => ChecksumFramer::new(checksum).frame_in_place_with_copy(frame, header_copy))
    }
}

impl Framer for ChecksumKind {
    #[inline]
    fn frame_and_write<W: Write>(&self, writer: &mut W, payload: &[u8]) -> Result<()> {
        with_checksum!(self, checksum => ChecksumFramer::new(checksum).frame_and_write(writer, payload))
    }
}

impl SliceFramer for ChecksumKind {
    #[inline]
    fn header_bytes(&self) -> usize {
        self.frame_bytes(0)
    }

    #[inline]
    fn header(&self, payload: &[u8]) -> Result<FrameHeader> {
        with_checksum!(self, checksum => FrameHeader::new(&checksum, payload))
    }

    #[inline]
    fn frame_in_place(&self, frame: &mut [u8]) -> Result<()> {
        with_checksum!(self, checksum => ChecksumFramer::new(checksum).frame_in_place(frame))
    }

    #[inline]
    fn frame_into(&self, output: &mut [u8], payload: &[u8]) -> Result<usize> {
        with_checksum!(self, checksum => ChecksumFramer::new(checksum).frame_into(output, payload))
    }
}

/// A deframer for a checksum type that is known only at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindDeframer {
    kind: ChecksumKind,
    max_frame_len: usize,
}

impl KindDeframer {
    /// Creates a deframer that accepts lengths up to [`DEFAULT_MAX_FRAME_LEN`].
    pub const fn new(kind: ChecksumKind) -> Self {
        Self { kind, max_frame_len: DEFAULT_MAX_FRAME_LEN }
    }

    /// Sets the limit on the length of payloads. Payloads that are longer than `max` bytes are
    /// rejected before memory is allocated for them.
    #[must_use]
    pub const fn with_max_frame_len(self, max: usize) -> Self {
        Self { max_frame_len: max, ..self }
    }

    /// Returns the limit on the length of payloads, in bytes.
    pub const fn max_frame_len(self) -> usize {
        self.max_frame_len
    }

    /// Returns the kind of checksum that this deframer verifies.
    pub const fn kind(&self) -> ChecksumKind {
        self.kind
    }
}

impl Deframer for KindDeframer {
    #[inline]
    fn read_after_length<R: Read>(
        &self,
        reader: &mut R,
        buffer: &mut Vec<u8>,
        payload_len: usize,
    ) -> Result<Option<usize>> {
        let max = self.max_frame_len;
        with_checksum!(self.kind, checksum => read_rest(&checksum, max, reader, buffer, payload_len))
    }
}

impl SliceDeframer for KindDeframer {
    #[inline]
    fn deframe<'a>(&self, bytes: &'a [u8]) -> Result<DeframeStatus<'a>> {
        with_checksum!(self.kind, checksum => deframe_slice(&checksum, self.max_frame_len, bytes))
    }

    #[inline]
    fn frame_length(&self, bytes: &[u8]) -> FrameLength {
        frame_length(self.header_bytes(), self.max_frame_len, bytes)
    }

    fn checksum_matches(&self, header: &[u8], payload: &[u8]) -> bool {
        with_checksum!(self.kind, checksum => checksum_matches(&checksum, header, payload))
    }

    #[inline]
    fn header_bytes(&self) -> usize {
        self.kind.frame_bytes(0)
    }

    #[inline]
    fn checksum_bytes(&self) -> usize {
        self.kind.size()
    }
}

impl fmt::Display for ChecksumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name that is not the name of a checksum of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownChecksum;

impl fmt::Display for UnknownChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown checksum; this build has")?;
        ChecksumKind::ALL.iter().try_for_each(|kind| write!(f, " {kind}"))
    }
}

impl std::error::Error for UnknownChecksum {}

impl FromStr for ChecksumKind {
    type Err = UnknownChecksum;

    fn from_str(name: &str) -> std::result::Result<Self, UnknownChecksum> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name).ok_or(UnknownChecksum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the printed name of each kind is parsed to the same kind.
    #[test]
    fn names_are_read_back() {
        for kind in ChecksumKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
        assert!("md5".parse::<ChecksumKind>().is_err());
    }

    // Proves that the wire format equals the format of flatstream 0.2.7. Method: the published
    // frames of "abc".
    #[cfg(all(feature = "crc16", feature = "crc32", feature = "xxhash"))]
    #[test]
    fn golden_bytes() {
        let golden: [(ChecksumKind, &[u8]); 4] = [
            (ChecksumKind::None, &[]),
            (ChecksumKind::Crc16, &[0xd6, 0x9d]),
            (ChecksumKind::Crc32, &[0xc2, 0x41, 0x24, 0x35]),
            (ChecksumKind::Xxh3, &[0x50, 0x39, 0x2f, 0x89, 0x94, 0x5f, 0xaf, 0x78]),
        ];
        for (kind, checksum) in golden {
            let mut frame = Vec::new();
            kind.frame_and_write(&mut frame, b"abc").unwrap();
            assert_eq!(frame, [&[3, 0, 0, 0], checksum, b"abc"].concat());
        }
    }
}
