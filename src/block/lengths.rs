//! Lengths of payloads as a column: the lowest one, and what each is above it, in as few bytes as the largest of these needs.

use super::error::Fault;

/// Writes them.
pub(super) fn encode(lengths: impl Iterator<Item = u32> + Clone, out: &mut Vec<u8>) {
    let bounds = lengths.clone().fold((u32::MAX, 0), |(lowest, highest): (u32, u32), length| {
        (lowest.min(length), highest.max(length))
    });
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

/// Reads `count` of them from exactly these bytes. Memory for so many is the caller's to have limited.
pub(super) fn decode(bytes: &[u8], count: usize, lengths: &mut Vec<u32>) -> Result<(), Fault> {
    const LENGTH: Fault = Fault::Part("has another length than its frames need");
    let (lowest, rest) = bytes.split_first_chunk::<4>().ok_or(LENGTH)?;
    let (width, column) = rest.split_first().ok_or(LENGTH)?;
    let lowest = u32::from_le_bytes(*lowest);
    if !matches!(width, 0 | 1 | 2 | 4) {
        return Err(Fault::Part("has lengths of a width that this build does not know"));
    }
    if column.len() != count * usize::from(*width) {
        return Err(LENGTH);
    }
    // A sum that is no length stays one that no block can have.
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
        // Goal: every range takes as many bytes as it must, and a column that is cut, longer or of another width is refused. Method: lengths
        // at the bounds of each width; none at all; each byte less and one more.
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
