//! Holds the text of all inputs as one string. The inputs are files and variables. A single offset
//! therefore identifies a location in any input.

use std::ops::Range;

use super::error::ConfigLocation;

/// The inputs of one configuration. Files come first, then variables. Each input overrides the
/// earlier inputs.
#[derive(Debug, Default)]
pub(super) struct InputTexts {
    whole: String,
    inputs: Vec<InputText>, // sorted by span
}

#[derive(Debug)]
struct InputText {
    /// The path of the file or the name of the variable.
    name: String,
    span: Range<usize>,
    /// Offset of the value in the text of a variable; `None` for a file.
    value_start: Option<usize>,
}

/// A variable and the spans of its name and its value.
#[derive(Debug, Clone)]
pub(super) struct EnvVariable<'t> {
    pub(super) name: &'t str,
    pub(super) value: &'t str,
    pub(super) name_span: Range<usize>,
    pub(super) value_span: Range<usize>,
}

impl InputTexts {
    /// Returns inputs that consist of one file only.
    #[cfg(feature = "internals")]
    pub(super) fn of_file(name: &str, text: &str) -> Self {
        let mut texts = Self::default();
        texts.add_file(name, text);
        texts
    }

    /// Adds a file. All files must be added before the first variable.
    pub(super) fn add_file(&mut self, name: &str, text: &str) {
        self.add(name, text, None);
    }

    /// Adds a variable.
    pub(super) fn add_variable(&mut self, name: &str, value: &str) {
        // The name and the value form one text, so that an error can refer to either of them.
        self.add(name, &format!("{name}={value}"), Some(name.len() + 1));
    }

    fn add(&mut self, name: &str, text: &str, value_at: Option<usize>) {
        let start = self.whole.len();
        self.whole.push_str(text);
        let span = start..self.whole.len();
        // The offset after the last character belongs to this text, because an error may be located
        // there.
        self.whole.push('\n');
        self.inputs.push(InputText {
            name: name.to_owned(),
            span,
            value_start: value_at.map(|at| start + at),
        });
    }

    /// Returns the text of each file and the offset of the text.
    pub(super) fn files(&self) -> impl Iterator<Item = (usize, &str)> {
        let files = self.inputs.iter().filter(|piece| piece.value_start.is_none());
        files.map(|piece| (piece.span.start, self.text(piece.span.clone())))
    }

    /// Returns the variables.
    pub(super) fn variables(&self) -> impl Iterator<Item = EnvVariable<'_>> {
        self.inputs.iter().filter_map(|piece| {
            let start = piece.value_start?;
            // `start - 1` is the equals sign that `add_variable` wrote.
            let (name_span, value_span) = (piece.span.start..start - 1, start..piece.span.end);
            let (name, value) = (self.text(name_span.clone()), self.text(value_span.clone()));
            Some(EnvVariable { name, value, name_span, value_span })
        })
    }

    /// Returns the part of the inputs that a span covers.
    pub(super) fn text(&self, span: Range<usize>) -> &str {
        // If the span is wrong, the message quotes nothing. A wrong span never causes a panic.
        self.whole.get(span).unwrap_or_default()
    }

    /// Returns the location of an offset for a message. Without an offset, returns the first file,
    /// because the user would write a missing setting there.
    pub(super) fn location(&self, offset: Option<usize>) -> ConfigLocation {
        let at = offset.and_then(|offset| self.position(offset));
        let first = self.inputs.first().filter(|piece| piece.value_start.is_none());
        match (offset, at.and_then(|at| self.inputs.get(at))) {
            // The name is a sufficient location, because a variable has no lines.
            (Some(_), Some(piece)) if piece.value_start.is_some() => {
                ConfigLocation::Variable(piece.name.clone())
            }
            (Some(offset), Some(piece)) => {
                // `position` found a text that begins at or before the offset, so the subtraction
                // cannot underflow.
                line_and_column(&piece.name, self.text(piece.span.clone()), offset - piece.span.start)
            }
            _ => first.map_or(ConfigLocation::Default, |file| ConfigLocation::File(file.name.clone())),
        }
    }

    /// Returns whether the value at `offset` overrides the value at `under`. It does so if it is in
    /// a later file, or if it is in a variable and the other value is in a file.
    pub(super) fn overrides(&self, offset: usize, under: usize) -> bool {
        // All variables together are one layer. They come after the files, so their indices are at
        // least the number of files.
        let files = self.files().count();
        let layer = |offset| self.position(offset).map(|at| at.min(files));
        layer(offset) > layer(under)
    }

    /// Returns the index of the file that contains this offset; `None` for a variable.
    pub(super) fn file_at(&self, offset: usize) -> Option<usize> {
        // Files come before variables, so this index is also an index into the files that were
        // read.
        let at = self.position(offset)?;
        self.inputs.get(at).filter(|piece| piece.value_start.is_none()).map(|_| at)
    }

    fn position(&self, offset: usize) -> Option<usize> {
        // A newline follows each input. So no two inputs begin at the same offset, even if an input
        // is empty.
        self.inputs.partition_point(|piece| piece.span.start <= offset).checked_sub(1)
    }
}

/// Returns the line and column of a byte of `text`. A byte order mark takes no column.
pub(super) fn line_and_column(file: &str, text: &str, offset: usize) -> ConfigLocation {
    let before = text.get(..offset).unwrap_or(text).trim_start_matches('\u{feff}');
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    ConfigLocation::Line {
        file: file.to_owned(),
        line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that every offset maps to the right input, also at the end of an input and in an empty
    // input.
    #[test]
    fn locations_belong_to_their_texts() {
        let mut texts = InputTexts::default();
        texts.add_file("a", "x\ny");
        texts.add_file("b", "");
        texts.add_file("c", "\u{feff}z");
        texts.add_variable("V", "");
        texts.add_variable("W", "w");
        let shown = |offset| texts.location(Some(offset)).to_string();
        assert_eq!(shown(0), "a:1:1");
        assert_eq!(shown(3), "a:2:2");
        assert_eq!(shown(4), "b:1:1");
        assert_eq!(shown(5 + 3), "c:1:1");
        let starts: Vec<_> = texts.files().collect();
        assert_eq!(starts, [(0, "x\ny"), (4, ""), (5, "\u{feff}z")]);
        let variables: Vec<_> =
            texts.variables().map(|it| (it.name, it.value, it.value_span.start)).collect();
        assert_eq!(variables, [("V", "", 12), ("W", "w", 15)]);
        assert_eq!(
            (shown(12), shown(15)),
            ("environment variable V".into(), "environment variable W".into())
        );
        assert_eq!(texts.location(None), ConfigLocation::File("a".to_owned()));
        assert_eq!(InputTexts::default().location(None).to_string(), "built-in default");
        assert!(
            texts.overrides(4, 0)
                && texts.overrides(12, 5)
                && !texts.overrides(15, 12)
                && !texts.overrides(0, 4)
        );
        assert_eq!((texts.file_at(5), texts.file_at(12)), (Some(2), None));
    }
}
