//! Text encodings, and an input that is decoded to UTF-8.

use std::io::{self, Read};
use std::str::FromStr;

use crate::input::Input;
use crate::limited_input::{ElementBudget, LimitedInput};

/// Maximum number of bytes that are decoded in one step.
const CHUNK_BYTES: usize = 64 << 10;
/// Number of bytes at the start of a text in which UTF-16 without a byte order mark is recognized.
const LOOKED_AT_BYTES: usize = 1024;
/// The characters of Windows-1252 from 0x80 to 0x9F, where this encoding differs from Latin-1.
/// Bytes that Windows-1252 does not use are decoded as Latin-1.
const WINDOWS_1252: [char; 32] = [
    '\u{20AC}', '\u{81}', '\u{201A}', '\u{192}', '\u{201E}', '\u{2026}', '\u{2020}', '\u{2021}', '\u{2C6}',
    '\u{2030}', '\u{160}', '\u{2039}', '\u{152}', '\u{8D}', '\u{17D}', '\u{8F}', '\u{90}', '\u{2018}',
    '\u{2019}', '\u{201C}', '\u{201D}', '\u{2022}', '\u{2013}', '\u{2014}', '\u{2DC}', '\u{2122}', '\u{161}',
    '\u{203A}', '\u{153}', '\u{9D}', '\u{17E}', '\u{178}',
];

/// The encoding of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEncoding {
    /// UTF-8, including ASCII.
    Utf8,
    /// UTF-16, little-endian.
    Utf16Le,
    /// UTF-16, big-endian.
    Utf16Be,
    /// Windows-1252, which includes the printable characters of Latin-1.
    Latin1,
}

impl FromStr for TextEncoding {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Ok(match &*text.to_ascii_lowercase() {
            "utf-8" | "utf8" => Self::Utf8,
            "utf-16" | "utf-16le" | "utf16" | "utf16le" => Self::Utf16Le,
            "utf-16be" | "utf16be" => Self::Utf16Be,
            "latin1" | "latin-1" | "iso-8859-1" | "windows-1252" | "cp1252" => Self::Latin1,
            _ => return Err("no such encoding; use utf-8, utf-16le, utf-16be or latin1 (Windows-1252)"),
        })
    }
}

impl TextEncoding {
    /// Returns the name that options and messages use for the encoding.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
            Self::Latin1 => "latin1",
        }
    }

    /// Recognizes an encoding by its byte order mark. Without such a mark, recognizes UTF-16 by the
    /// zero byte in each ASCII character. Text in the other supported encodings has no zero bytes,
    /// and gives `None` unless it has a byte order mark.
    pub(super) fn of_start(start: &[u8]) -> Option<Self> {
        match start {
            [0xFF, 0xFE, ..] => return Some(Self::Utf16Le),
            [0xFE, 0xFF, ..] => return Some(Self::Utf16Be),
            [0xEF, 0xBB, 0xBF, ..] => return Some(Self::Utf8),
            _ => {}
        }
        let start = start.get(..LOOKED_AT_BYTES).unwrap_or(start);
        let zeros = |first: usize| start.iter().skip(first).step_by(2).filter(|byte| **byte == 0).count();
        let (even, odd) = (zeros(0), zeros(1));
        let are_many = |count: usize| count > 0 && count * 4 >= start.len();
        match (are_many(even), are_many(odd)) {
            (false, true) if even == 0 => Some(Self::Utf16Le),
            (true, false) if odd == 0 => Some(Self::Utf16Be),
            _ => None,
        }
    }

    /// Returns the length of the byte order mark of a text, in bytes.
    pub(super) fn mark_bytes(self, start: &[u8]) -> usize {
        match (self, start) {
            (Self::Utf8, [0xEF, 0xBB, 0xBF, ..]) => 3,
            (Self::Utf16Le, [0xFF, 0xFE, ..]) | (Self::Utf16Be, [0xFE, 0xFF, ..]) => 2,
            _ => 0,
        }
    }

    /// Decodes bytes to UTF-8. An incomplete character at the end stays in `bytes`, unless `is_end`
    /// says that the text ends here.
    pub(super) fn decode(self, bytes: &mut Vec<u8>, is_end: bool, text: &mut Vec<u8>) {
        let mut put = |character: char| {
            let mut place = [0; 4];
            text.extend_from_slice(character.encode_utf8(&mut place).as_bytes());
        };
        match self {
            Self::Utf8 => text.append(bytes),
            Self::Latin1 => {
                for byte in bytes.drain(..) {
                    let special = byte.checked_sub(0x80).and_then(|at| WINDOWS_1252.get(usize::from(at)));
                    put(special.copied().unwrap_or(char::from(byte)));
                }
            }
            Self::Utf16Le | Self::Utf16Be => {
                let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| self.unit(pair)).collect();
                let mut used = units.len();
                let is_half = units.last().is_some_and(|unit| (0xD800..0xDC00).contains(unit));
                if is_half && !is_end {
                    used -= 1;
                }
                let characters = char::decode_utf16(units.into_iter().take(used));
                characters.for_each(|result| put(result.unwrap_or(char::REPLACEMENT_CHARACTER)));
                bytes.drain(..used * 2);
                if is_end && !bytes.is_empty() {
                    bytes.clear();
                    put(char::REPLACEMENT_CHARACTER);
                }
            }
        }
    }

    fn unit(self, pair: &[u8]) -> u16 {
        let (first, second) = match pair {
            [first, second] => (u16::from(*first), u16::from(*second)),
            _ => (0, 0),
        };
        if self == Self::Utf16Le { first | second << 8 } else { second | first << 8 }
    }
}

/// An input that is decoded to UTF-8. With the encoding UTF-8, invalid bytes pass unchanged.
pub(super) struct DecodedInput {
    limited: LimitedInput,
    budget: ElementBudget,
    /// The start of the input, which `open` has read.
    start: io::Cursor<Vec<u8>>,
    /// The damage at which `open` stopped reading.
    damage: Option<io::Error>,
    encoding: TextEncoding,
    skipped: u64,
    bytes: Vec<u8>,
    text: Vec<u8>,
    taken: usize, // of the text
    has_ended: bool,
}

impl DecodedInput {
    /// Opens an input and reads up to `length` bytes of its start. If `is_line_enough`, the call
    /// stops waiting once it has the first line, because another program may still be writing the
    /// input.
    ///
    /// # Errors
    /// The input cannot be read. Damage does not make this call fail. Instead, the read after the
    /// last intact byte fails.
    pub(super) fn open(input: Input, length: usize, is_line_enough: bool) -> io::Result<Self> {
        let budget = ElementBudget::new();
        let mut limited = LimitedInput::new(input, budget.clone());
        let mut start = vec![0; length];
        let (mut filled, mut damage) = (0, None);
        while let Some(place) = start.get_mut(filled..).filter(|place| !place.is_empty()) {
            match limited.read(place) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if limited.input.is_damage(&error) => {
                    damage = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
            let text = start.get(..filled).unwrap_or_default();
            if is_line_enough && text.contains(&b'\n') {
                break;
            }
        }
        start.truncate(filled);
        let mut input = Self {
            limited,
            budget,
            start: io::Cursor::new(start),
            damage,
            encoding: TextEncoding::Utf8,
            skipped: 0,
            bytes: Vec::new(),
            text: Vec::new(),
            taken: 0,
            has_ended: false,
        };
        input.set_encoding(TextEncoding::of_start(input.start()).unwrap_or(TextEncoding::Utf8));
        Ok(input)
    }

    /// Returns the start of the input before decoding.
    pub(super) fn start(&self) -> &[u8] {
        self.start.get_ref()
    }

    /// Returns the decoded start of the input.
    pub(super) fn start_text(&self) -> Vec<u8> {
        let mut bytes =
            self.start().get(self.encoding.mark_bytes(self.start())..).unwrap_or_default().to_vec();
        let mut text = Vec::new();
        self.encoding.decode(&mut bytes, false, &mut text);
        text
    }

    /// Sets the encoding. Must be called before the first read.
    pub(super) fn set_encoding(&mut self, encoding: TextEncoding) {
        self.encoding = encoding;
        self.skipped = encoding.mark_bytes(self.start()) as u64;
        self.start.set_position(self.skipped);
    }

    pub(super) fn encoding(&self) -> TextEncoding {
        self.encoding
    }

    /// Returns the length of the byte order mark.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    pub(super) fn input(&self) -> &Input {
        &self.limited.input
    }

    /// Returns the number of decompressed bytes that were read.
    pub(super) fn bytes_read(&self) -> u64 {
        LimitedInput::bytes(&self.limited)
    }

    /// Reads the input after the part that `open` has already read.
    fn read_on(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.damage.take() {
            Some(error) => Err(error),
            None => self.limited.read(buffer),
        }
    }

    /// Starts the next line, which may again have the full maximum length.
    pub(super) fn renew_budget(&self) {
        self.budget.renew();
    }
}

impl Read for DecodedInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.encoding == TextEncoding::Utf8 {
            let read = self.start.read(buffer)?;
            return if read > 0 { Ok(read) } else { self.read_on(buffer) };
        }
        while self.taken == self.text.len() && !self.has_ended {
            self.text.clear();
            self.taken = 0;
            let kept = self.bytes.len();
            self.bytes.resize(kept + CHUNK_BYTES, 0);
            let mut place = std::mem::take(&mut self.bytes);
            let rest = place.get_mut(kept..).unwrap_or_default();
            let result = match self.start.read(rest)? {
                0 => self.read_on(rest),
                read => Ok(read),
            };
            place.truncate(kept + *result.as_ref().unwrap_or(&0));
            self.bytes = place;
            self.has_ended = result? == 0;
            self.encoding.decode(&mut self.bytes, self.has_ended, &mut self.text);
        }
        let rest = self.text.get(self.taken..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        let (Some(from), Some(to)) = (rest.get(..length), buffer.get_mut(..length)) else { return Ok(0) };
        to.copy_from_slice(from);
        self.taken += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn encoded(text: &str, encoding: TextEncoding) -> Vec<u8> {
        match encoding {
            TextEncoding::Utf8 => text.as_bytes().to_vec(),
            TextEncoding::Latin1 => text.chars().map(|character| u8::try_from(character).unwrap()).collect(),
            TextEncoding::Utf16Le => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            TextEncoding::Utf16Be => {
                text.encode_utf16().flat_map(|unit| [(unit >> 8) as u8, (unit & 255) as u8]).collect()
            }
        }
    }

    proptest! {
        // Proves that each encoding is decoded with reads of any size, with and without a byte
        // order mark.
        #[test]
        fn texts_are_decoded(text in "(a|\u{e9}|,|\n|\u{1F600}){0,40}", length in 1..9_usize, has_mark: bool) {
            for encoding in [TextEncoding::Utf8, TextEncoding::Utf16Le, TextEncoding::Utf16Be] {
                let marked = if has_mark { format!("\u{feff}{text}") } else { text.clone() };
                let source = Box::new(io::Cursor::new(encoded(&marked, encoding)));
                let input = Input::new(Path::new("a"), source, std::rc::Rc::default()).unwrap();
                let mut decoded = DecodedInput::open(input, length.max(4), false).unwrap();
                decoded.set_encoding(encoding);
                let mut found = Vec::new();
                let mut piece = vec![0; length];
                while let read @ 1.. = decoded.read(&mut piece).unwrap() {
                    found.extend_from_slice(&piece[..read]);
                }
                prop_assert_eq!(String::from_utf8(found).unwrap(), text.clone());
            }
        }
    }

    // Proves that encodings are recognized by byte order marks and by zero bytes, and that the
    // special characters of Windows-1252 are decoded.
    #[test]
    fn encodings_are_found() {
        let both = [TextEncoding::Utf16Le, TextEncoding::Utf16Be];
        for encoding in both {
            assert_eq!(TextEncoding::of_start(&encoded("\u{feff}\u{e9}", encoding)), Some(encoding));
            assert_eq!(TextEncoding::of_start(&encoded("time,a\n", encoding)), Some(encoding));
        }
        assert_eq!(TextEncoding::of_start(b"time,a\n"), None);
        assert_eq!(TextEncoding::of_start(b"time,a\0\n"), None);
        let mut text = Vec::new();
        TextEncoding::Latin1.decode(&mut vec![0x80, 0xB0, b'C'], true, &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "\u{20ac}\u{b0}C");
        assert!("ebcdic".parse::<TextEncoding>().unwrap_err().to_string().contains("use utf-8"));
    }
}
