//! Checksum kinds and their numbers in the wire format. The frames in a block and the segments use
//! these numbers.

use flatcap_stream::ChecksumKind;

use crate::schema::segment as wire;

/// Returns the wire number of a checksum kind.
pub(crate) fn checksum_to_wire(kind: ChecksumKind) -> wire::ChecksumKind {
    match kind {
        ChecksumKind::None => wire::ChecksumKind::None,
        ChecksumKind::Crc16 => wire::ChecksumKind::Crc16,
        ChecksumKind::Crc32 => wire::ChecksumKind::Crc32,
        ChecksumKind::Xxh3 => wire::ChecksumKind::Xxh3,
    }
}

/// Returns the checksum kind with this wire number, or `None` if this build does not know it.
pub(crate) fn checksum_from_wire(kind: wire::ChecksumKind) -> Option<ChecksumKind> {
    ChecksumKind::ALL.iter().copied().find(|known| checksum_to_wire(*known) == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_format() {
        // Proves that each kind has its own wire number and that no other byte value is accepted.
        let kinds = [ChecksumKind::None, ChecksumKind::Crc16, ChecksumKind::Crc32, ChecksumKind::Xxh3];
        for number in 0..=u8::MAX {
            let kind = checksum_from_wire(wire::ChecksumKind(number));
            assert_eq!(kind, kinds.get(usize::from(number)).copied(), "{number}");
            assert!(kind.is_none_or(|kind| checksum_to_wire(kind).0 == number));
        }
    }
}
