//! The checksums of the wire format, each with its exact name and check value. A checksum mismatch
//! is an error of the deframer.
//!
//! | type | bytes | algorithm | of ASCII "123456789" |
//! |---|---|---|---|
//! | [`NoChecksum`] | 0 | - | - |
//! | [`Crc16`] | 2 | CRC-16/XMODEM | 0x31C3 |
//! | [`Crc32`] | 4 | CRC-32/ISO-HDLC, not Castagnoli | 0xCBF43926 |
//! | [`XxHash64`] | 8 | XXH3-64, seed 0 | 0x72DCB18B67A17DFF |

use super::error::{Error, Result};
use super::short_bytes::copy;

/// Size of the widest checksum of the wire format, in bytes.
pub const CHECKSUM_BYTES_MAX: usize = 8;

/// A checksum algorithm for payloads. The width is known at compile time, so framing needs no
/// branch for the width.
///
/// A custom algorithm must implement only [`SIZE`](Self::SIZE) and [`calculate`](Self::calculate).
pub trait Checksum {
    /// Number of bytes of the checksum on the wire, 0 to 8. The low bytes of the value are written
    /// in little-endian order. The limit is checked when a framer or deframer with this checksum is
    /// compiled.
    const SIZE: usize;

    /// Returns the checksum of a payload. Only the low [`SIZE`](Self::SIZE) bytes of the checksum
    /// are written.
    fn calculate(&self, payload: &[u8]) -> u64;

    /// Copies `payload` to `output` and returns the checksum of `payload`. An algorithm that can
    /// copy and hash in one pass overrides this method.
    ///
    /// # Panics
    /// Panics if the lengths of `payload` and `output` differ.
    #[inline]
    fn copy_and_calculate(&self, payload: &[u8], output: &mut [u8]) -> u64 {
        copy(output, payload);
        self.calculate(payload)
    }

    /// Compares the checksum of `payload` with `expected`. Compares only the bytes that are on the
    /// wire, which are the low bytes.
    ///
    /// # Errors
    /// `ChecksumMismatch`.
    #[inline]
    fn verify(&self, expected: u64, payload: &[u8]) -> Result<()> {
        let mask = width_mask(Self::SIZE);
        let calculated = self.calculate(payload);
        if (calculated ^ expected) & mask == 0 {
            Ok(())
        } else {
            Err(Error::checksum_mismatch(expected & mask, calculated & mask))
        }
    }

    /// Encodes `value` at the start of `out` and returns the bytes that go on the wire.
    #[inline]
    fn write_bytes<'a>(&self, value: u64, out: &'a mut [u8; 8]) -> &'a [u8] {
        *out = value.to_le_bytes();
        out.get(..Self::SIZE).unwrap_or_default()
    }

    /// Decodes the value from the first [`SIZE`](Self::SIZE) bytes.
    ///
    /// # Panics
    /// Panics if `bytes` is shorter than the checksum.
    #[inline]
    fn read_bytes(&self, bytes: &[u8]) -> u64 {
        let mut value = [0; 8];
        let (low, _) = value.split_at_mut(Self::SIZE);
        let (stored, _) = bytes.split_at(Self::SIZE);
        low.copy_from_slice(stored);
        u64::from_le_bytes(value)
    }
}

/// Returns a mask that selects the bits of a checksum of `size` bytes.
#[inline]
pub(super) const fn width_mask(size: usize) -> u64 {
    match size {
        0 => 0,
        1..8 => (1 << (8 * size)) - 1,
        _ => u64::MAX,
    }
}

/// No checksum. Without a checksum, damage is detected only if it breaks the framing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct NoChecksum;

impl NoChecksum {
    /// Returns the only value of this type.
    pub const fn new() -> Self {
        Self
    }
}

impl Checksum for NoChecksum {
    const SIZE: usize = 0;

    #[inline]
    fn calculate(&self, _payload: &[u8]) -> u64 {
        0
    }

    #[inline]
    fn verify(&self, _expected: u64, _payload: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// CRC-16/XMODEM (polynomial 0x1021, initial value 0), sliced by 16 bytes.
#[cfg(feature = "crc16")]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Crc16;

#[cfg(feature = "crc16")]
impl Crc16 {
    /// Returns the only value of this type.
    pub const fn new() -> Self {
        Self
    }
}

#[cfg(feature = "crc16")]
static CRC16: crc::Crc<u16, crc::Table<16>> = crc::Crc::<u16, crc::Table<16>>::new(&crc::CRC_16_XMODEM);

#[cfg(feature = "crc16")]
impl Checksum for Crc16 {
    const SIZE: usize = 2;

    #[inline]
    fn calculate(&self, payload: &[u8]) -> u64 {
        CRC16.checksum(payload).into()
    }
}

/// CRC-32/ISO-HDLC, as in zlib and Ethernet. This is not the Castagnoli CRC.
#[cfg(feature = "crc32")]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Crc32;

#[cfg(feature = "crc32")]
impl Crc32 {
    /// Returns the only value of this type.
    pub const fn new() -> Self {
        Self
    }
}

#[cfg(feature = "crc32")]
impl Checksum for Crc32 {
    const SIZE: usize = 4;

    #[inline]
    fn calculate(&self, payload: &[u8]) -> u64 {
        crc32fast::hash(payload).into()
    }
}

/// XXH3-64 with seed 0, computed with the widest vector instructions of the processor. The value
/// does not depend on the width of the vector instructions.
#[cfg(feature = "xxhash")]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct XxHash64;

#[cfg(feature = "xxhash")]
impl XxHash64 {
    /// Returns the only value of this type.
    pub const fn new() -> Self {
        Self
    }
}

#[cfg(feature = "xxhash")]
impl Checksum for XxHash64 {
    const SIZE: usize = 8;

    #[inline]
    fn calculate(&self, payload: &[u8]) -> u64 {
        super::xxh3::hash(payload)
    }

    #[inline]
    fn copy_and_calculate(&self, payload: &[u8], output: &mut [u8]) -> u64 {
        super::xxh3::copy_and_hash(payload, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each type implements the algorithm that it is named after. Method: the results
    // are compared with the published check values.
    #[test]
    fn known_answers() {
        let check = b"123456789";
        assert_eq!(NoChecksum.calculate(check), 0);
        #[cfg(feature = "crc16")]
        assert_eq!(Crc16.calculate(check), 0x31C3);
        #[cfg(feature = "crc32")]
        assert_eq!(Crc32.calculate(check), 0xCBF4_3926);
        #[cfg(feature = "xxhash")]
        assert_eq!(XxHash64.calculate(check), 0x72DC_B18B_67A1_7DFF);
    }

    // Proves that XXH3 is correct on every code path. The expected values come from the reference
    // implementation (xxhsum 0.8.1). The input is the bytes 0, 1, 2, ... 250, 0, ... at lengths
    // around the limits of each path.
    #[cfg(feature = "xxhash")]
    #[test]
    fn xxh3_at_every_path() {
        let bytes: Vec<u8> = (0..5000_u32).map(|index| (index % 251) as u8).collect();
        for (length, expected) in XXH3_ANSWERS {
            assert_eq!(XxHash64.calculate(&bytes[..length]), expected, "{length} bytes");
        }
    }

    #[cfg(feature = "xxhash")]
    const XXH3_ANSWERS: [(usize, u64); 17] = [
        (0, 0x2D06_8005_38D3_94C2),
        (1, 0xC44B_DFF4_074E_ECDB),
        (3, 0x5F42_99FC_161C_9CBB),
        (4, 0x60DA_B036_A582_11F2),
        (8, 0x3A1C_2D7C_85AF_88F8),
        (9, 0xE961_2598_145B_B9DC),
        (16, 0x8355_E3A6_F617_70DB),
        (17, 0x9EF3_41A9_9DE3_7328),
        (128, 0x85C6_174C_7FF4_C46B),
        (129, 0xEC76_42B4_31BA_3E5A),
        (240, 0x375A_384D_957F_E865),
        (241, 0x02E8_CD95_421C_6D02),
        (256, 0x44F5_D90D_ACDE_463A),
        (1024, 0xE5D7_8BAF_A45B_2AA5),
        (1025, 0xE95C_4228_8F28_186E),
        (4096, 0x7135_FFA5_04F1_BC71),
        (5000, 0xB418_500F_C423_20EE),
    ];

    struct WideChecksum<const SIZE: usize>;

    impl<const SIZE: usize> Checksum for WideChecksum<SIZE> {
        const SIZE: usize = SIZE;

        fn calculate(&self, _payload: &[u8]) -> u64 {
            0x0123_4567_89AB_CDEF
        }
    }

    fn round_trip<const SIZE: usize>() {
        let mut out = [0; 8];
        let value = WideChecksum::<SIZE>.calculate(b"");
        let wire = WideChecksum::<SIZE>.write_bytes(value, &mut out).to_vec();
        assert_eq!(wire, value.to_le_bytes()[..SIZE]);
        assert_eq!(WideChecksum::<SIZE>.read_bytes(&wire), value & width_mask(SIZE));
        assert!(WideChecksum::<SIZE>.verify(WideChecksum::<SIZE>.read_bytes(&wire), b"").is_ok());
    }

    // Proves that a 64-bit value matches its truncated form on the wire, at every width.
    #[test]
    fn every_width_round_trips() {
        round_trip::<0>();
        round_trip::<1>();
        round_trip::<3>();
        round_trip::<7>();
        round_trip::<8>();
        assert!(WideChecksum::<3>.verify(0x55_CDEF, b"").is_err());
    }
}
