//! Encodes payload lengths. The lowest length comes first. For each payload, the excess over the
//! lowest length follows, in 0, 1, 2 or 4 bytes.

use crate::block::error::BlockError;

/// Replaces the contents of `out` with the encoded lengths.
pub(in crate::block) fn encode(lengths: impl Iterator<Item = u32> + Clone, out: &mut Vec<u8>) {
    let bounds = lengths.clone().fold((u32::MAX, 0), |(lowest, highest): (u32, u32), length| {
        (lowest.min(length), highest.max(length))
    });
    // If there are no lengths, the lowest bound is still u32::MAX. Taking the smaller of the two
    // bounds makes it 0.
    let (lowest, highest) = (bounds.0.min(bounds.1), bounds.1);
    let above = lengths.map(|length| length - lowest);
    out.clear();
    out.extend_from_slice(&lowest.to_le_bytes());
    match highest - lowest {
        0 => out.push(0),
        1..=0xFF => {
            out.push(1);
            out.extend(above.map(|above| (above & 0xFF) as u8));
        }
        0x100..=0xFFFF => {
            out.push(2);
            above.for_each(|above| out.extend_from_slice(&((above & 0xFFFF) as u16).to_le_bytes()));
        }
        _ => {
            out.push(4);
            above.for_each(|above| out.extend_from_slice(&above.to_le_bytes()));
        }
    }
}

/// Decodes `count` lengths from exactly these bytes. The caller must have checked `count` against a
/// limit.
pub(in crate::block) fn decode(bytes: &[u8], count: usize, lengths: &mut Vec<u32>) -> Result<(), BlockError> {
    const LENGTH: BlockError = BlockError::Part("does not have the length that its frames need");
    let (lowest, rest) = bytes.split_first_chunk::<4>().ok_or(LENGTH)?;
    let (width, column) = rest.split_first().ok_or(LENGTH)?;
    let lowest = u32::from_le_bytes(*lowest);
    if !matches!(width, 0 | 1 | 2 | 4) {
        return Err(BlockError::Part("has lengths of an unknown width"));
    }
    if column.len() != count * usize::from(*width) {
        return Err(LENGTH);
    }
    // An overflow becomes a length that no block can have, and later code refuses this length.
    let length = |above: u32| lowest.saturating_add(above);
    lengths.clear();
    match width {
        0 => lengths.resize(count, lowest),
        1 => lengths.extend(column.iter().map(|above| length(u32::from(*above)))),
        2 => lengths
            .extend(column.as_chunks().0.iter().map(|above| length(u32::from(u16::from_le_bytes(*above))))),
        _ => lengths.extend(column.as_chunks().0.iter().map(|above| length(u32::from_le_bytes(*above)))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_back_in_few_bytes() {
        // Proves that lengths round-trip in the smallest possible width, and that a list is refused
        // if it is truncated, too long or has an unknown width.
        let cases: [(&[u32], usize); 8] = [
            (&[], 0),
            (&[7], 0),
            (&[100; 9], 0),
            (&[0, 0xFF, 3], 1),
            (&[1000, 1255, 1100], 1),
            (&[5, 0x105], 2),
            (&[0, 0xFFFF], 2),
            (&[0, 0x1_0000, u32::MAX], 4),
        ];
        for (expected, width) in cases {
            let (mut bytes, mut lengths) = (vec![9], vec![9]);
            encode(expected.iter().copied(), &mut bytes);
            assert_eq!(bytes.len(), 5 + width * expected.len(), "{expected:?}");
            decode(&bytes, expected.len(), &mut lengths).unwrap();
            assert_eq!(lengths, expected);
            for cut in 0..bytes.len() {
                assert!(decode(&bytes[..cut], expected.len(), &mut lengths).is_err());
            }
            bytes.push(0);
            assert!(decode(&bytes, expected.len(), &mut lengths).is_err());
        }
        assert!(decode(&[0, 0, 0, 0, 3, 1, 1, 1], 1, &mut Vec::new()).is_err());
        let mut lengths = Vec::new();
        decode(&[0xFF, 0xFF, 0xFF, 0xFF, 1, 0xFF], 1, &mut lengths).unwrap();
        assert_eq!(lengths, [u32::MAX]);
    }
}
