//! Inlined copies and comparisons of short payloads. The inlined code avoids the function call that
//! the compiler emits if it does not know a length.

/// Maximum length of a copy that is inlined, in bytes. For longer copies, the inlined code takes
/// longer than the function call.
const SHORT_BYTES_MAX: usize = 64;

/// Copies `from` to `to`.
///
/// # Panics
/// Panics if the lengths of the two slices differ.
#[inline]
pub fn copy(to: &mut [u8], from: &[u8]) {
    match from.len() {
        33..=SHORT_BYTES_MAX => copy_ends::<32>(to, from),
        17..=32 => copy_ends::<16>(to, from),
        8..=16 => copy_ends::<8>(to, from),
        4..=7 => copy_ends::<4>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Like [`copy`], but inlines only the case of 32 to 64 bytes, for callers whose payloads mostly
/// have these lengths.
///
/// # Panics
/// Panics in the same cases as [`copy`].
#[inline]
pub fn copy_small(to: &mut [u8], from: &[u8]) {
    match from.len() {
        32..=SHORT_BYTES_MAX => copy_ends::<32>(to, from),
        _ => copy_other(to, from),
    }
}

#[inline(never)]
fn copy_other(to: &mut [u8], from: &[u8]) {
    copy(to, from);
}

/// Copies between N and 2 N bytes with two moves of N bytes each. The first N bytes and the last N
/// bytes may overlap.
#[inline]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "source and destination of a copy must have the same length");
    if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        if let Some(to) = to.first_chunk_mut() {
            *to = *first;
        }
        if let Some(to) = to.last_chunk_mut() {
            *to = *last;
        }
    }
}

/// Appends `from` to `to`.
#[inline]
pub fn append(to: &mut Vec<u8>, from: &[u8]) {
    match from.len() {
        65..=128 => append_ends::<64>(to, from),
        33..=64 => append_ends::<32>(to, from),
        17..=32 => append_ends::<16>(to, from),
        _ => to.extend_from_slice(from),
    }
}

/// Like [`copy_ends`], but appends the bytes to a vector.
#[inline]
fn append_ends<const N: usize>(to: &mut Vec<u8>, from: &[u8]) {
    let end = to.len() + from.len();
    if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        to.extend_from_slice(first);
        to.truncate(end - N);
        to.extend_from_slice(last);
    }
}

/// Returns whether both slices are equal.
#[inline]
pub fn equal(ours: &[u8], theirs: &[u8]) -> bool {
    ours.len() == theirs.len()
        && match ours.len() {
            0 => true,
            17..=32 => equal_ends::<16>(ours, theirs),
            8..=16 => equal_ends::<8>(ours, theirs),
            4..=7 => equal_ends::<4>(ours, theirs),
            _ => ours == theirs,
        }
}

/// Compares N to 2 N bytes in two parts, the first N bytes and the last N bytes, which may overlap.
#[inline]
fn equal_ends<const N: usize>(ours: &[u8], theirs: &[u8]) -> bool {
    // `&` instead of `&&` avoids a branch between the two comparisons.
    (ours.first_chunk::<N>() == theirs.first_chunk()) & (ours.last_chunk::<N>() == theirs.last_chunk())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a slice of every length is copied completely and that no byte outside the
    // destination is written.
    #[test]
    fn every_length() {
        let from: Vec<u8> = (1..=200).collect();
        for length in 0..=from.len() {
            let mut to = vec![0xFF; length + 2];
            copy(&mut to[1..=length], &from[..length]);
            assert_eq!(to[1..=length], from[..length]);
            assert_eq!((to[0], to[length + 1]), (0xFF, 0xFF));
            {
                let mut longer = vec![0xFF; 3];
                append(&mut longer, &from[..length]);
                assert_eq!(longer, [&[0xFF; 3], &from[..length]].concat());
            }
            {
                to.fill(0xFF);
                copy_small(&mut to[1..=length], &from[..length]);
                assert_eq!(to[1..=length], from[..length]);
                assert_eq!((to[0], to[length + 1]), (0xFF, 0xFF));
            }
        }
    }

    // Proves that every single-byte difference is found at every length.
    #[test]
    fn every_difference() {
        for length in 0..100_usize {
            let bytes: Vec<u8> = (0..100).take(length).collect();
            assert!(equal(&bytes, &bytes.clone()));
            assert!(!equal(&bytes, &[&bytes[..], &[0]].concat()));
            for at in 0..length {
                let mut other = bytes.clone();
                other[at] ^= 0x40;
                assert!(!equal(&bytes, &other), "{length} bytes, byte {at}");
            }
        }
    }
}
