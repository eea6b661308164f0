//! The checksums of the wire format, each named exactly and pinned by a known answer.
//!
//! | kind | bytes | algorithm | of ASCII "123456789" |
//! |---|---|---|---|
//! | `none` | 0 | - | - |
//! | `crc16` | 2 | CRC-16/XMODEM | 0x31C3 |
//! | `crc32` | 4 | CRC-32/ISO-HDLC | 0xCBF43926 |
//! | `xxh3` | 8 | XXH3-64, seed 0 | 0x72DCB18B67A17DFF |

use std::fmt;
use std::str::FromStr;

/// Which checksum protects each payload of a stream. A stream has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChecksumKind {
    /// No checksum: damage is found only where it breaks the framing.
    None,
    /// CRC-16/XMODEM.
    #[cfg(feature = "crc16")]
    Crc16,
    /// CRC-32/ISO-HDLC.
    #[cfg(feature = "crc32")]
    Crc32,
    /// XXH3-64 with seed 0.
    #[cfg(feature = "xxhash")]
    Xxh3,
}

impl ChecksumKind {
    /// Every kind that this build has, the longest first: the order in which an unknown stream is tried.
    pub const ALL: &'static [Self] = &[
        #[cfg(feature = "xxhash")]
        Self::Xxh3,
        #[cfg(feature = "crc32")]
        Self::Crc32,
        #[cfg(feature = "crc16")]
        Self::Crc16,
        Self::None,
    ];

    /// Bytes that the checksum takes in each frame: 0, 2, 4 or 8.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Self::None => 0,
            #[cfg(feature = "crc16")]
            Self::Crc16 => 2,
            #[cfg(feature = "crc32")]
            Self::Crc32 => 4,
            #[cfg(feature = "xxhash")]
            Self::Xxh3 => 8,
        }
    }

    /// The name as configuration and reports spell it.
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

    /// The checksum of `payload`, in the low [`size`](Self::size) bytes.
    #[inline]
    pub fn calculate(self, payload: &[u8]) -> u64 {
        match self {
            Self::None => nothing(payload),
            #[cfg(feature = "crc16")]
            Self::Crc16 => u64::from(CRC16.checksum(payload)),
            #[cfg(feature = "crc32")]
            Self::Crc32 => u64::from(crc32fast::hash(payload)),
            #[cfg(feature = "xxhash")]
            Self::Xxh3 => xxhash_rust::xxh3::xxh3_64(payload),
        }
    }
}

/// The checksum of kind none.
const fn nothing(_payload: &[u8]) -> u64 {
    0
}

#[cfg(feature = "crc16")]
const CRC16: crc::Crc<u16, crc::Table<16>> = crc::Crc::<u16, crc::Table<16>>::new(&crc::CRC_16_XMODEM);

impl fmt::Display for ChecksumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no checksum of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownChecksum;

impl fmt::Display for UnknownChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a checksum of this build; one of")?;
        ChecksumKind::ALL.iter().try_for_each(|kind| write!(f, " {kind}"))
    }
}

impl std::error::Error for UnknownChecksum {}

impl FromStr for ChecksumKind {
    type Err = UnknownChecksum;

    fn from_str(name: &str) -> Result<Self, UnknownChecksum> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name).ok_or(UnknownChecksum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: each kind is the algorithm it is named after. Method: the published check values.
    #[test]
    fn known_answers() {
        let check = b"123456789";
        assert_eq!(ChecksumKind::None.calculate(check), 0);
        #[cfg(feature = "crc16")]
        assert_eq!(ChecksumKind::Crc16.calculate(check), 0x31C3);
        #[cfg(feature = "crc32")]
        assert_eq!(ChecksumKind::Crc32.calculate(check), 0xCBF4_3926);
        #[cfg(feature = "xxhash")]
        assert_eq!(ChecksumKind::Xxh3.calculate(check), 0x72DC_B18B_67A1_7DFF);
    }

    // Goal: names are read back as they are printed. Method: all kinds.
    #[test]
    fn names_are_read_back() {
        for kind in ChecksumKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
        assert!("md5".parse::<ChecksumKind>().is_err());
    }
}
