//! Pairs message files with order-book files.

use std::collections::BTreeSet;

use super::input_file::LobsterFile;
use super::row::RowKind;

/// Returns pairs of a message file and an order-book file, as indices in input order. A file
/// without a partner has its own entry.
///
/// Files whose names give the same symbol, date, hours and levels are a pair. Among files whose
/// names give none of these parts, the first file of one kind is paired with the first file of the
/// other kind. If there are exactly two files, one of each kind, they are a pair if at most one of
/// their names gives these parts. Files whose names give different days are never paired.
pub(super) fn pairs(parts: &[LobsterFile]) -> Vec<(Option<usize>, Option<usize>)> {
    let described: Vec<_> = parts
        .iter()
        .map(|part| (part.kind == RowKind::Message, part.name.as_ref().map(|name| name.day.as_str())))
        .collect();
    pair_described(&described)
}

/// Returns a file that would be imported twice, because an earlier file has the same kind and name.
pub(super) fn find_duplicate(parts: &[LobsterFile]) -> Option<&LobsterFile> {
    let mut seen = BTreeSet::new();
    parts.iter().find(|part| {
        part.name
            .as_ref()
            .is_some_and(|name| !seen.insert((part.kind == RowKind::Message, name.day.as_str())))
    })
}

/// Pairs files. Each file is described by a flag for message files and by the day in its name.
fn pair_described(parts: &[(bool, Option<&str>)]) -> Vec<(Option<usize>, Option<usize>)> {
    let are_two_alone = matches!(parts, [(one, _), (other, _)] if one != other);
    let mut pairs: Vec<(Option<usize>, Option<usize>)> = Vec::new();
    for (index, (is_message, day)) in parts.iter().enumerate() {
        let is_partner = |other: Option<usize>| {
            let of_other = other.and_then(|other| parts.get(other)).map(|(_, day)| *day);
            of_other.is_some_and(|of_other| {
                of_other == *day || (are_two_alone && (of_other.is_none() || day.is_none()))
            })
        };
        let partner = pairs.iter_mut().find(|pair| match (is_message, &pair) {
            (true, (None, book)) => is_partner(*book),
            (false, (message, None)) => is_partner(*message),
            _ => false,
        });
        match (partner, is_message) {
            (Some(pair), true) => pair.0 = Some(index),
            (Some(pair), false) => pair.1 = Some(index),
            (None, true) => pairs.push((Some(index), None)),
            (None, false) => pairs.push((None, Some(index))),
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that files are paired by their names and by nothing else.
    #[test]
    fn parts_are_paired_by_their_names() {
        const M: bool = true;
        const B: bool = false;
        assert_eq!(pair_described(&[]), []);
        assert_eq!(pair_described(&[(B, Some("x"))]), [(None, Some(0))]);
        assert_eq!(pair_described(&[(B, Some("x")), (M, Some("x"))]), [(Some(1), Some(0))]);
        assert_eq!(pair_described(&[(M, Some("x")), (B, Some("y"))]), [(Some(0), None), (None, Some(1))]);
        assert_eq!(pair_described(&[(M, None), (B, Some("y"))]), [(Some(0), Some(1))]);
        assert_eq!(pair_described(&[(M, None), (B, None)]), [(Some(0), Some(1))]);
        assert_eq!(pair_described(&[(M, None), (M, None)]), [(Some(0), None), (Some(1), None)]);
        assert_eq!(
            pair_described(&[(M, Some("x")), (M, Some("y")), (B, Some("y")), (B, Some("x"))]),
            [(Some(0), Some(3)), (Some(1), Some(2))]
        );
        assert_eq!(
            pair_described(&[(M, None), (M, Some("y")), (B, None), (B, Some("x"))]),
            [(Some(0), Some(2)), (Some(1), None), (None, Some(3))]
        );
        assert_eq!(
            pair_described(&[(M, Some("x")), (B, Some("x")), (B, Some("x")), (M, Some("x"))]),
            [(Some(0), Some(1)), (Some(3), Some(2))]
        );
    }
}
