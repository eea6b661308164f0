//! Kinds of checksums as numbers of the wire: those of a block's frames, and of a segment's.

use crate::schema::segment as wire;
use crate::stream::ChecksumKind;

/// The number of a kind.
pub(crate) fn checksum_to_wire(kind: ChecksumKind) -> wire::ChecksumKind {
    match kind {
        ChecksumKind::None => wire::ChecksumKind::None,
        ChecksumKind::Crc16 => wire::ChecksumKind::Crc16,
        ChecksumKind::Crc32 => wire::ChecksumKind::Crc32,
        ChecksumKind::Xxh3 => wire::ChecksumKind::Xxh3,
    }
}

/// The kind with this number; none: one that this build has not.
pub(crate) fn checksum_from_wire(kind: wire::ChecksumKind) -> Option<ChecksumKind> {
    ChecksumKind::ALL.iter().copied().find(|known| checksum_to_wire(*known) == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_format() {
        // Goal: a kind has one number, which is told back, and no other number is a kind. Method: all numbers of a byte.
        let kinds = [ChecksumKind::None, ChecksumKind::Crc16, ChecksumKind::Crc32, ChecksumKind::Xxh3];
        for number in 0..=u8::MAX {
            let kind = checksum_from_wire(wire::ChecksumKind(number));
            assert_eq!(kind, kinds.get(usize::from(number)).copied(), "{number}");
            assert!(kind.is_none_or(|kind| checksum_to_wire(kind).0 == number));
        }
    }
}
