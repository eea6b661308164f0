//! Copying payloads: short ones without the call that a copy of unknown length costs.

/// Longest copy that is done in place; beyond it the call is worth its price.
const SHORT_BYTES_MAX: usize = 64;

/// Copies `from` to `to`.
///
/// # Panics
/// The two have not the same length: a mistake of the caller.
#[inline]
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    match from.len() {
        33..=SHORT_BYTES_MAX => copy_ends::<32>(to, from),
        17..=32 => copy_ends::<16>(to, from),
        8..=16 => copy_ends::<8>(to, from),
        4..=7 => copy_ends::<4>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Copies from N to 2 N bytes as their first N and their last N, which may overlap: two moves of a known length.
#[inline]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "a copy is as long as its original");
    if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        if let Some(to) = to.first_chunk_mut() {
            *to = *first;
        }
        if let Some(to) = to.last_chunk_mut() {
            *to = *last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every length is copied whole and nothing beside it. Method: lengths around all bounds, marked surroundings.
    #[test]
    fn every_length() {
        let from: Vec<u8> = (1..=200).collect();
        for length in 0..=from.len() {
            let mut to = vec![0xFF; length + 2];
            copy(&mut to[1..=length], &from[..length]);
            assert_eq!(to[1..=length], from[..length]);
            assert_eq!((to[0], to[length + 1]), (0xFF, 0xFF));
        }
    }
}
