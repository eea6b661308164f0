//! Writes one line of CSV, field by field.

use csv_core::{WriteResult, Writer};

/// Length in bytes of the buffer into which the library writes quoted strings.
const QUOTED_BYTES: usize = 256;

/// A line of CSV. Numbers and times are copied unchanged. Only strings are searched for characters
/// that need quotes.
#[derive(Debug, Default)]
pub(super) struct CsvLine {
    bytes: Vec<u8>,
}

impl CsvLine {
    /// Empties the line.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds the field that `write` appends. It must be a number or a time, which needs no quotes.
    pub(super) fn push_plain(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.bytes.push(b',');
    }

    /// Adds a number.
    pub(super) fn push_number(&mut self, number: impl itoa::Integer) {
        self.push_plain(|bytes| bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()));
    }

    /// Adds a field with any string. The string is put in quotes if it needs them.
    pub(super) fn push_text(&mut self, text: &[u8]) {
        // If a line has only one field and it is empty, the library writes "". A row always has
        // several fields, so nothing is written for an empty string.
        if !text.is_empty() {
            self.quote(text);
        }
        self.bytes.push(b',');
    }

    /// Ends the line and returns it.
    pub(super) fn end(&mut self) -> &[u8] {
        if let Some(last) = self.bytes.last_mut() {
            *last = b'\n';
        }
        &self.bytes
    }

    fn quote(&mut self, mut text: &[u8]) {
        let mut writer = Writer::new();
        let mut output = [0; QUOTED_BYTES];
        loop {
            let (result, read, written) = writer.field(text, &mut output);
            self.bytes.extend(output.iter().take(written));
            text = text.get(read..).unwrap_or_default();
            if result == WriteResult::InputEmpty {
                break;
            }
        }
        let (_, written) = writer.finish(&mut output);
        self.bytes.extend(output.iter().take(written));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Proves that a line equals the line that the CSV library writes, for all strings.
        #[test]
        fn a_line_is_the_librarys(
            texts in prop::collection::vec("[a-c,\"\r\n \u{e9}]{0,8}|[a\"]{250,600}", 1..5),
            number in any::<i64>(),
        ) {
            let mut line = CsvLine::default();
            line.push_text(b"left from the line before");
            line.clear();
            let mut expected = csv::Writer::from_writer(Vec::new());
            line.push_plain(|bytes| bytes.extend_from_slice(number.to_string().as_bytes()));
            expected.write_field(number.to_string()).unwrap();
            for text in &texts {
                line.push_text(text.as_bytes());
                expected.write_field(text).unwrap();
            }
            expected.write_record(None::<&[u8]>).unwrap();
            prop_assert_eq!(line.end(), expected.into_inner().unwrap());
        }
    }
}
