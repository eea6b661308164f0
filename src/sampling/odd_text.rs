//! The text for which a sample lacks a value: kept for the log and for `flatcap status`.
//!
//! Parsers note it where they give up a value, which is rare, so that no reader pays for it. It
//! belongs to the sample that the thread builds.

use std::cell::Cell;
use std::fmt;

/// Bytes that are kept: enough to find the text.
const TEXT_BYTES_MAX: usize = 64;

/// The beginning of a text that is odd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OddText {
    text: [u8; TEXT_BYTES_MAX],
    length: usize,
    line: usize, // from 1; 0: unknown
}

thread_local! {
    static FIRST: Cell<Option<OddText>> = const { Cell::new(None) };
}

/// Notes the text of a value that cannot be read, and the line of its file, from 1; 0 if that is
/// not known. Keeps the first one until it is taken. Does not allocate.
#[cold]
pub(super) fn note(text: &[u8], line: usize) {
    FIRST.with(|first| {
        if first.get().is_none() {
            let mut odd = OddText { text: [0; TEXT_BYTES_MAX], length: 0, line };
            for (to, from) in odd.text.iter_mut().zip(text) {
                *to = *from;
                odd.length += 1;
            }
            first.set(Some(odd));
        }
    });
}

/// Records that an element hangs, unless another text was recorded before.
#[cold]
pub(super) fn note_hanging(name: &str) {
    note(format!("{name} does not answer").as_bytes(), 0);
}

/// Takes what was noted since the last call.
pub(super) fn take() -> Option<OddText> {
    FIRST.with(Cell::take)
}

impl fmt::Display for OddText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.get(..self.length).unwrap_or_default();
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(f, "\"{}\"", text.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the first text since the last call is kept, shortened and escaped.
    #[test]
    fn the_first_text_is_kept() {
        assert_eq!(take(), None);
        note(&[b'x'; 100], 7);
        note(b"later", 8);
        assert_eq!(take().unwrap().to_string(), format!("line 7: \"{}\"", "x".repeat(64)));
        note(b"\xFF\x1B", 0);
        assert_eq!((take().unwrap().to_string().as_str(), take()), ("\"\\xff\\x1b\"", None));
    }
}
