//! The unreadable text that caused a missing value in a sample, and the place of this text. The log
//! and `flatcap status` show the text and its place.
//!
//! A parser notes the text when it cannot read a value. The source then notes the file that
//! contains the text. Unreadable text is rare, so the notes should not slow down the parsing of
//! readable text. The note belongs to the sample that the current thread is building.

use std::cell::Cell;
use std::fmt::{self, Write as _};

use super::Incomplete;

/// Maximum length of a noted text, in bytes. This length is enough to find the text in its file.
const TEXT_BYTES_MAX: usize = 64;
/// Maximum length of the noted path of a file or name of an element, in bytes.
const FILE_BYTES_MAX: usize = 160;

/// The beginning of an unreadable text, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OddText {
    text: FixedText<TEXT_BYTES_MAX>,
    line: usize,                     // counted from 1; 0 if unknown
    address: usize,                  // of the text when it was noted, to find its content
    file: FixedText<FILE_BYTES_MAX>, // empty if unknown
}

/// A text that is truncated to a fixed maximum length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FixedText<const BYTES: usize> {
    bytes: [u8; BYTES],
    length: usize,
}

impl<const BYTES: usize> FixedText<BYTES> {
    const EMPTY: Self = Self { bytes: [0; BYTES], length: 0 };

    fn push(&mut self, text: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.length).zip(text) {
            *to = *from;
            self.length += 1;
        }
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl<const BYTES: usize> fmt::Write for FixedText<BYTES> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

thread_local! {
    static FIRST: Cell<Option<OddText>> = const { Cell::new(None) };
}

/// Notes the text of a value that cannot be read. `line` is the number of the text's line, counted
/// from 1, or 0 if the line is not known. Keeps the first text until [`take`] is called. Does not
/// allocate.
#[cold]
pub(super) fn note(text: &[u8], line: usize) {
    FIRST.with(|first| {
        if first.get().is_none() {
            let (file, address) = (FixedText::EMPTY, text.as_ptr().addr());
            let mut odd = OddText { text: FixedText::EMPTY, line, address, file };
            odd.text.push(text);
            first.set(Some(odd));
        }
    });
}

/// Notes the text of a value that cannot be read, and returns the reason why the value is missing.
#[cold]
pub(super) fn unreadable(text: &[u8]) -> Incomplete {
    note(text, 0);
    Incomplete::UNREADABLE
}

/// Returns `incomplete`, that is, the reasons why the content of a file lacks values. If there are
/// reasons, records the file as the place of the first noted text, unless the place is already
/// known. Special characters of names in the file's path are escaped.
#[inline]
pub(super) fn in_file(incomplete: Incomplete, content: &[u8], file: fmt::Arguments<'_>) -> Incomplete {
    if !incomplete.is_none() {
        set_file(content, file);
    }
    incomplete
}

/// Does the same as [`in_file`] for an element, such as a sensor, whose files have one value each.
#[inline]
pub(super) fn of_element(incomplete: Incomplete, name: impl FnOnce() -> String) -> Incomplete {
    if !incomplete.is_none() {
        set_file(b"", format_args!("{}", name().escape_debug()));
    }
    incomplete
}

#[cold]
fn set_file(content: &[u8], file: fmt::Arguments<'_>) {
    note(b"", 0);
    FIRST.with(|first| {
        let Some(mut odd) = first.get().filter(|odd| odd.file.length == 0) else { return };
        let _always_fits = odd.file.write_fmt(file);
        let at = odd.address.wrapping_sub(content.as_ptr().addr());
        // The text is a part of the content, so its line number can be determined. The whole line
        // is noted, because it gives more information than the value alone.
        if odd.line == 0
            && odd.text.length > 0
            && let Some(before) = content.get(..at)
        {
            odd.line = memchr::memchr_iter(b'\n', before).count() + 1;
            let begin = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
            let line = content.get(begin..at.saturating_add(odd.text.length)).unwrap_or_default();
            if line.len() <= TEXT_BYTES_MAX && !line.is_empty() {
                odd.text = FixedText::EMPTY;
                odd.text.push(line);
            }
        }
        first.set(Some(odd));
    });
}

/// Records that an element hangs, unless a text was noted before.
#[cold]
pub(super) fn note_hanging(name: &str) {
    note(format!("{name} does not answer").as_bytes(), 0);
}

/// Returns and removes the text that was noted since the last call.
pub(super) fn take() -> Option<OddText> {
    FIRST.with(Cell::take)
}

/// Restores a text that [`take`] has returned, unless another text was noted since then.
pub(super) fn restore(odd: Option<&OddText>) {
    if let Some(odd) = odd {
        FIRST.with(|first| first.set(first.get().or(Some(*odd))));
    }
}

impl OddText {
    /// Returns whether the file is known.
    pub(super) fn has_file(&self) -> bool {
        self.file.length > 0
    }
}

impl fmt::Display for OddText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        if self.has_file() {
            f.write_str(&String::from_utf8_lossy(self.file.get()))?;
            gap = " ";
        }
        if self.line > 0 {
            write!(f, "{gap}line {}", self.line)?;
            gap = ": ";
        }
        // If a file could not be read, there is no text to show.
        if self.text.length > 0 || gap.is_empty() {
            write!(f, "{gap}\"{}\"", self.text.get().escape_ascii())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that, since the last call, the first text is kept, shortened and escaped.
    #[test]
    fn the_first_text_is_kept() {
        assert_eq!(take(), None);
        note(&[b'x'; 100], 7);
        note(b"later", 8);
        assert_eq!(take().unwrap().to_string(), format!("line 7: \"{}\"", "x".repeat(64)));
        note(b"\xFF\x1B", 0);
        assert_eq!((take().unwrap().to_string().as_str(), take()), ("\"\\xff\\x1b\"", None));
    }

    // Proves that the file and the line of the first text are found, and that a file is named even
    // without a text.
    #[test]
    fn the_place_is_found() {
        let content = b"low 1\nhigh x 2\n";
        note(&content[11..12], 0);
        let lacks = in_file(Incomplete::UNREADABLE, content, format_args!("/a/{}", "events"));
        assert_eq!(lacks, Incomplete::UNREADABLE);
        let _later = of_element(Incomplete::CUT, || "/b".to_owned());
        assert_eq!(take().unwrap().to_string(), "/a/events line 2: \"high x\"");
        let _none = of_element(Incomplete::NONE, || unreachable!());
        assert_eq!(take(), None);
        let _file = of_element(Incomplete::CUT, || "y".repeat(500));
        assert_eq!(take().unwrap().to_string(), "y".repeat(FILE_BYTES_MAX));
        // A text that is not a part of this content has no line number.
        note(b"elsewhere", 0);
        let _file = in_file(Incomplete::CUT, content, format_args!("/d"));
        assert_eq!(take().unwrap().to_string(), "/d \"elsewhere\"");
    }
}
