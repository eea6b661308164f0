//! Where does a value stand? The texts of all files and variables one behind the other, so that one number names a place in
//! any of them.

use std::ops::Range;

use super::error::Place;

/// The texts that make one configuration, in the order in which one lies over the other: files, then variables.
#[derive(Debug, Default)]
pub(super) struct Texts {
    whole: String,
    pieces: Vec<Piece>, // in the order of their spans
}

#[derive(Debug)]
struct Piece {
    /// The file's or the variable's.
    name: String,
    span: Range<usize>,
    /// Where the value of a variable begins; none for a file.
    value_start: Option<usize>,
}

/// A variable and the places of its name and its value.
#[derive(Debug, Clone)]
pub(super) struct Variable<'t> {
    pub(super) name: &'t str,
    pub(super) value: &'t str,
    pub(super) name_span: Range<usize>,
    pub(super) value_span: Range<usize>,
}

impl Texts {
    /// One file alone.
    pub(super) fn of_file(name: &str, text: &str) -> Self {
        let mut texts = Self::default();
        texts.add_file(name, text);
        texts
    }

    /// Adds a file. All files come before the first variable.
    pub(super) fn add_file(&mut self, name: &str, text: &str) {
        self.add(name, text, None);
    }

    /// Adds a variable.
    pub(super) fn add_variable(&mut self, name: &str, value: &str) {
        self.add(name, &format!("{name}={value}"), Some(name.len() + 1));
    }

    fn add(&mut self, name: &str, text: &str, value_at: Option<usize>) {
        let start = self.whole.len();
        self.whole.push_str(text);
        let span = start..self.whole.len();
        // The place behind a text's last character is its own, too: what is missing there is told there.
        self.whole.push('\n');
        self.pieces.push(Piece { name: name.to_owned(), span, value_start: value_at.map(|at| start + at) });
    }

    /// The files' texts, each with the place where it begins.
    pub(super) fn files(&self) -> impl Iterator<Item = (usize, &str)> {
        let files = self.pieces.iter().filter(|piece| piece.value_start.is_none());
        files.map(|piece| (piece.span.start, self.text(piece.span.clone())))
    }

    /// The variables.
    pub(super) fn variables(&self) -> impl Iterator<Item = Variable<'_>> {
        self.pieces.iter().filter_map(|piece| {
            let start = piece.value_start?;
            let (name_span, value_span) = (piece.span.start..start - 1, start..piece.span.end);
            let (name, value) = (self.text(name_span.clone()), self.text(value_span.clone()));
            Some(Variable { name, value, name_span, value_span })
        })
    }

    /// What stands there.
    pub(super) fn text(&self, span: Range<usize>) -> &str {
        self.whole.get(span).unwrap_or_default()
    }

    /// The place for a message. What no text says is looked for in the first file, where one would write it.
    pub(super) fn place(&self, offset: Option<usize>) -> Place {
        let at = offset.and_then(|offset| self.position(offset));
        let first = self.pieces.first().filter(|piece| piece.value_start.is_none());
        match (offset, at.and_then(|at| self.pieces.get(at))) {
            (Some(_), Some(piece)) if piece.value_start.is_some() => Place::Variable(piece.name.clone()),
            (Some(offset), Some(piece)) => {
                place(&piece.name, self.text(piece.span.clone()), offset - piece.span.start)
            }
            _ => first.map_or(Place::Default, |file| Place::File(file.name.clone())),
        }
    }

    /// Whether what stands at `offset` lies over what stands at `under`: in a later file, or in a variable over a file.
    pub(super) fn is_over(&self, offset: usize, under: usize) -> bool {
        let files = self.files().count();
        let layer = |offset| self.position(offset).map(|at| at.min(files));
        layer(offset) > layer(under)
    }

    /// Which file it stands in; none for a variable.
    pub(super) fn file_at(&self, offset: usize) -> Option<usize> {
        let at = self.position(offset)?;
        self.pieces.get(at).filter(|piece| piece.value_start.is_none()).map(|_| at)
    }

    fn position(&self, offset: usize) -> Option<usize> {
        self.pieces.partition_point(|piece| piece.span.start <= offset).checked_sub(1)
    }
}

/// Line and column of a byte of `text`; a byte order mark has no column.
pub(super) fn place(file: &str, text: &str, offset: usize) -> Place {
    let before = text.get(..offset).unwrap_or(text).trim_start_matches('\u{feff}');
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Place::Line {
        file: file.to_owned(),
        line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every place, ends and empty texts too, is told by the text it belongs to. Method: two files, one of them empty, and
    // two variables.
    #[test]
    fn places_belong_to_their_texts() {
        let mut texts = Texts::default();
        texts.add_file("a", "x\ny");
        texts.add_file("b", "");
        texts.add_file("c", "\u{feff}z");
        texts.add_variable("V", "");
        texts.add_variable("W", "w");
        let shown = |offset| texts.place(Some(offset)).to_string();
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
        assert_eq!(texts.place(None), Place::File("a".to_owned()));
        assert_eq!(Texts::default().place(None).to_string(), "built-in default");
        assert!(
            texts.is_over(4, 0) && texts.is_over(12, 5) && !texts.is_over(15, 12) && !texts.is_over(0, 4)
        );
        assert_eq!((texts.file_at(5), texts.file_at(12)), (Some(2), None));
    }
}
