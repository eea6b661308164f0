//! Which order books belong to which messages.

use std::collections::BTreeSet;

use super::{Kind, Part};

/// Pairs of a message part and an order-book part, as indices; what has no partner stands alone. In the order of the input.
///
/// Parts whose names say the same symbol, day, hours and levels belong together. So do parts whose names say nothing, the first of
/// each kind with the first of the other, and one of each kind that are alone, where only one of the two names says anything. Names that say
/// different days are never paired.
pub(super) fn pairs(parts: &[Part]) -> Vec<(Option<usize>, Option<usize>)> {
    let described: Vec<_> = parts
        .iter()
        .map(|part| (part.kind == Kind::Message, part.name.as_ref().map(|name| name.day.as_str())))
        .collect();
    pairs_of(&described)
}

/// A part of the same kind and name as one before it: it would be imported twice.
pub(super) fn repeated(parts: &[Part]) -> Option<&Part> {
    let mut seen = BTreeSet::new();
    parts.iter().find(|part| {
        part.name.as_ref().is_some_and(|name| !seen.insert((part.kind == Kind::Message, name.day.as_str())))
    })
}

/// The same of whether each is a message file, and the day that its name says.
fn pairs_of(parts: &[(bool, Option<&str>)]) -> Vec<(Option<usize>, Option<usize>)> {
    let are_two_alone = matches!(parts, [(one, _), (other, _)] if one != other);
    let mut pairs: Vec<(Option<usize>, Option<usize>)> = Vec::new();
    for (index, (is_message, day)) in parts.iter().enumerate() {
        let belongs = |other: Option<usize>| {
            let of_other = other.and_then(|other| parts.get(other)).map(|(_, day)| *day);
            of_other.is_some_and(|of_other| {
                of_other == *day || (are_two_alone && (of_other.is_none() || day.is_none()))
            })
        };
        let partner = pairs.iter_mut().find(|pair| match (is_message, &pair) {
            (true, (None, book)) => belongs(*book),
            (false, (message, None)) => belongs(*message),
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

    // Goal: parts are paired by what their names say and by nothing else. Method: lists by hand.
    #[test]
    fn parts_are_paired_by_their_names() {
        const M: bool = true;
        const B: bool = false;
        assert_eq!(pairs_of(&[]), []);
        assert_eq!(pairs_of(&[(B, Some("x"))]), [(None, Some(0))]);
        assert_eq!(pairs_of(&[(B, Some("x")), (M, Some("x"))]), [(Some(1), Some(0))]);
        assert_eq!(pairs_of(&[(M, Some("x")), (B, Some("y"))]), [(Some(0), None), (None, Some(1))]);
        assert_eq!(pairs_of(&[(M, None), (B, Some("y"))]), [(Some(0), Some(1))]);
        assert_eq!(pairs_of(&[(M, None), (B, None)]), [(Some(0), Some(1))]);
        assert_eq!(pairs_of(&[(M, None), (M, None)]), [(Some(0), None), (Some(1), None)]);
        assert_eq!(
            pairs_of(&[(M, Some("x")), (M, Some("y")), (B, Some("y")), (B, Some("x"))]),
            [(Some(0), Some(3)), (Some(1), Some(2))]
        );
        assert_eq!(
            pairs_of(&[(M, None), (M, Some("y")), (B, None), (B, Some("x"))]),
            [(Some(0), Some(2)), (Some(1), None), (None, Some(3))]
        );
        assert_eq!(
            pairs_of(&[(M, Some("x")), (B, Some("x")), (B, Some("x")), (M, Some("x"))]),
            [(Some(0), Some(1)), (Some(3), Some(2))]
        );
    }
}
