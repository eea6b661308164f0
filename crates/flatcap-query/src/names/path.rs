//! Paths of fields as users write them, such as `cpu.total.user`, `disk.devices[vda].reads` or
//! `process.processes[name=~"post.*"].user_time`.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::str::FromStr;

use flatcap_format::schema::LeafField;

use super::column_meaning::{ColumnMeaning, MeaningPart};
use super::path_text::{in_quotes, length_outside_quotes, quoted, quoted_name, read_quoted_value};
use crate::error::PathError;

/// A parsed path that selects fields.
///
/// ```text
/// path = part { "." part } [ "{" meaning { "," meaning } "}" ]
/// part = name [ "[" pick "]" ]
/// name = characters but .[]{}"=, | text in double quotes, with \ before a quote and a backslash
/// pick = "*" | value | test { "," test }
/// test = name ("=" | "!=" | "=~") value
/// meaning = type | unit | kind | "no unit" | unit in double quotes
/// ```
///
/// A value that contains one of `[]=!,"` is written in double quotes, with `\` before each quote in
/// the value. A backslash before a quote is written twice. Other backslashes are not escaped,
/// because regular expressions contain them. The first part may be the name of a source. If the
/// first part is in quotes, it is the whole name of the source, so `"db".pool.size` is not a field
/// of a source `db.pool`. A path that ends at an object or a list selects all fields in it. A
/// number in place of a name selects one element of the list before the number, so `cores.0.id` is
/// `cores[0].id`. The type, unit or kind of a field may differ between runs. A type, unit or kind
/// in braces selects only the runs in which the field has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    text: Box<str>,
    pub(super) parts: Vec<PathPart>,
    /// The required type, unit or kind of the field.
    pub(super) meaning: Vec<MeaningPart>,
}

/// A name, and the selected elements if the name belongs to a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathPart {
    pub(super) name: Box<str>,
    /// Whether the name is in quotes. If the first part is in quotes, it is the whole name of a
    /// source.
    pub(super) is_quoted: bool,
    pub(super) pick: Option<ElementPick>,
}

/// The selected elements of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ElementPick {
    /// All elements, written as `[*]`.
    All,
    /// The elements with this label, or with this value in a field that identifies them, written as
    /// `[vda]`.
    Named(Box<str>),
    /// The elements that pass all tests, written as `[name=~"post.*",pid!=1]`.
    Tests(Vec<IdentityTest>),
}

/// A test of a field that identifies or names an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdentityTest {
    /// The field's name in the element.
    pub(crate) field: Box<str>,
    /// The comparison.
    pub(crate) operator: TestOperator,
    /// The value with which the field is compared, or a regular expression for the whole value.
    pub(crate) value: Box<str>,
}

/// The operator of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestOperator {
    /// The value is equal to this string, written as `=`.
    Equal,
    /// The value differs from this string, written as `!=`.
    NotEqual,
    /// The whole value matches this regular expression, written as `=~`.
    Matches,
}

impl ElementPick {
    /// Returns the selection in the form in which it is written in brackets.
    pub(super) fn text(&self) -> String {
        match self {
            Self::All => "*".to_owned(),
            Self::Named(name) => quoted(name),
            Self::Tests(tests) => tests.iter().map(IdentityTest::text).collect::<Vec<_>>().join(","),
        }
    }
}

impl IdentityTest {
    fn text(&self) -> String {
        let operator = match self.operator {
            TestOperator::Equal => "=",
            TestOperator::NotEqual => "!=",
            TestOperator::Matches => "=~",
        };
        format!("{}{operator}{}", self.field, quoted(&self.value))
    }
}

impl FieldPath {
    /// Splits a list of paths at its commas, except commas in brackets, and parses each path.
    ///
    /// # Errors
    /// The error of the first path that is not well formed.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, PathError> {
        let (mut paths, mut rest) = (Vec::new(), text);
        loop {
            let (path, after) = rest.split_at(length_outside_quotes(rest, |next| next == ','));
            paths.push(path.parse()?);
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => return Ok(paths),
            }
        }
    }

    /// Returns whether the path may lead to a field of this source.
    pub(crate) fn may_be_of(&self, source: &str) -> bool {
        let mut rest = Some(source);
        for part in &self.parts {
            let Some(after) = rest.and_then(|rest| rest.strip_prefix(&*part.name)) else { return false };
            if after.is_empty() || part.is_quoted {
                return after.is_empty();
            }
            rest = after.strip_prefix('.');
        }
        false
    }

    /// Returns whether the path selects only certain elements of a list.
    pub fn picks_elements(&self) -> bool {
        self.parts.iter().any(|part| part.pick.as_ref().is_some_and(|pick| *pick != ElementPick::All))
    }

    /// Returns the path to the same fields in all elements.
    #[must_use]
    pub fn of_all_elements(&self) -> Self {
        let mut parts = self.parts.clone();
        parts
            .iter_mut()
            .filter(|part| part.pick.is_some())
            .for_each(|part| part.pick = Some(ElementPick::All));
        let text = |part: &PathPart| {
            let name = if part.is_quoted { in_quotes(&part.name).into() } else { quoted_name(&part.name) };
            format!("{name}{}", if part.pick.is_some() { "[*]" } else { "" })
        };
        let mut text = parts.iter().map(text).collect::<Vec<_>>().join(".");
        if !self.meaning.is_empty() {
            let meaning: Vec<String> = self.meaning.iter().map(MeaningPart::written).collect();
            text.extend(["{", &meaning.join(","), "}"]);
        }
        Self { text: text.into(), parts, meaning: self.meaning.clone() }
    }

    /// Returns the path to the same fields with any type, unit and kind.
    pub(crate) fn with_any_meaning(&self) -> Self {
        Self { meaning: Vec::new(), ..self.clone() }
    }

    /// Returns whether a field has the type, unit and kind that the path states.
    pub(super) fn fits(&self, leaf: &LeafField<'_>) -> bool {
        self.meaning.is_empty()
            || ColumnMeaning::of_leaf(leaf).is_some_and(|own| self.meaning.iter().all(|part| own.has(part)))
    }

    /// Returns the id in a path that begins with a source's name and an id, such as 3 in
    /// `orders[3].depth`.
    pub(crate) fn source_id(&self, source: &str) -> Option<u16> {
        let count = self.source_parts(source)?;
        match &self.parts.get(count.checked_sub(1)?)?.pick {
            Some(ElementPick::Named(id)) => id.parse().ok(),
            _ => None,
        }
    }

    /// If the path begins with the name of this source, returns the number of path parts that form
    /// the name.
    pub(super) fn source_parts(&self, source: &str) -> Option<usize> {
        let first = self.parts.first()?;
        if first.is_quoted {
            return (*first.name == *source).then_some(1);
        }
        // The name of a source may contain dots, so several parts may form one name.
        let names: Vec<&str> = source.split('.').collect();
        let (last, before) = self.parts.get(..names.len())?.split_last()?;
        let is_same = before.iter().chain([last]).zip(&names).all(|(part, name)| *part.name == **name);
        (is_same && before.iter().all(|part| part.pick.is_none())).then_some(names.len())
    }

    /// Returns the path as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Display for FieldPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for FieldPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let text = text.trim();
        let mut parser = PathParser { text, at: 0 };
        let parts = parser.parts()?;
        let meaning = parser.meaning()?;
        Ok(Self { text: text.into(), parts, meaning })
    }
}

struct PathParser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> PathParser<'t> {
    fn error(&self, what: &'static str) -> PathError {
        PathError { text: self.text.to_owned(), at: self.at, what }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn take(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    /// Reads all characters before the first occurrence of a character in `ends`.
    fn until(&mut self, ends: &[char]) -> &'t str {
        let rest = self.rest();
        let taken = rest.get(..rest.find(ends).unwrap_or(rest.len())).unwrap_or_default();
        self.at += taken.len();
        taken
    }

    fn parts(&mut self) -> Result<Vec<PathPart>, PathError> {
        let mut parts: Vec<PathPart> = Vec::new();
        loop {
            let start = self.at;
            let is_quoted = self.take("\"");
            let name = if is_quoted {
                Cow::Owned(self.quoted_name()?)
            } else {
                Cow::Borrowed(self.until(&['.', '[', ']', '{', '}', '"', '=', ',']))
            };
            if name.is_empty() && !is_quoted {
                return Err(self.error("a name is missing"));
            }
            let is_position = !is_quoted && name.bytes().all(|byte| byte.is_ascii_digit());
            match parts.last_mut() {
                Some(list) if is_position && list.pick.is_none() => {
                    list.pick = Some(ElementPick::Named(name.as_ref().into()));
                }
                _ if is_position => {
                    // The error states the position at which the number begins.
                    self.at = start;
                    return Err(self.error("a number must follow a list"));
                }
                _ => parts.push(PathPart { name: name.as_ref().into(), is_quoted, pick: None }),
            }
            if self.take("[") {
                let pick = self.pick()?;
                match parts.last_mut() {
                    Some(part) if part.pick.is_none() => part.pick = Some(pick),
                    _ => return Err(self.error("these elements were picked before")),
                }
            }
            if self.rest().is_empty() || self.rest().starts_with('{') {
                return Ok(parts);
            }
            if !self.take(".") {
                return Err(self.error("expected a dot, [ or the end of the path"));
            }
        }
    }

    /// Reads the part of a quoted name that follows the opening quote.
    fn quoted_name(&mut self) -> Result<String, PathError> {
        let mut name = String::new();
        let mut characters = self.rest().char_indices();
        while let Some((offset, character)) = characters.next() {
            match character {
                '"' => {
                    self.at += offset + 1;
                    return Ok(name);
                }
                '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
                other => name.push(other),
            }
        }
        Err(self.error("the closing quote is missing"))
    }

    fn pick(&mut self) -> Result<ElementPick, PathError> {
        if self.take("*]") {
            return Ok(ElementPick::All);
        }
        let mut tests = Vec::new();
        loop {
            let value = self.value()?;
            let operator = if self.take("=~") {
                TestOperator::Matches
            } else if self.take("!=") {
                TestOperator::NotEqual
            } else if self.take("=") {
                TestOperator::Equal
            } else if tests.is_empty() && self.take("]") {
                return Ok(ElementPick::Named(value));
            } else {
                return Err(self.error("expected ], =, != or =~"));
            };
            let start = self.at;
            let tested = self.value()?;
            // The expression is compiled already here, so that the error states its position in the
            // path.
            if operator == TestOperator::Matches && whole_match(&tested).is_err() {
                self.at = start;
                return Err(self.error("not a regular expression"));
            }
            tests.push(IdentityTest { field: value, operator, value: tested });
            if self.take("]") {
                return Ok(ElementPick::Tests(tests));
            }
            if !self.take(",") {
                return Err(self.error("expected ] or another test after a comma"));
            }
        }
    }

    /// Reads the end of the path, which is either empty or a type, unit and kind in braces.
    fn meaning(&mut self) -> Result<Vec<MeaningPart>, PathError> {
        let mut parts = Vec::new();
        if !self.take("{") {
            return Ok(parts);
        }
        loop {
            let is_quoted = self.rest().starts_with('"');
            let text =
                if is_quoted { self.value()? } else { self.until(&['{', '}', ',', '"']).trim().into() };
            if text.is_empty() && !is_quoted {
                return Err(self.error("a type, unit or kind is missing"));
            }
            parts.push(MeaningPart { text, is_quoted });
            if self.take("}") {
                break;
            }
            if !self.take(",") {
                return Err(self.error("expected } or a comma"));
            }
        }
        if self.rest().is_empty() {
            Ok(parts)
        } else {
            Err(self.error("expected the end of the path after }"))
        }
    }

    /// Reads a bare or quoted value.
    fn value(&mut self) -> Result<Box<str>, PathError> {
        if !self.take("\"") {
            let value = self.until(&['[', ']', '=', '!', ',', '"']).trim();
            return if value.is_empty() { Err(self.error("a value is missing")) } else { Ok(value.into()) };
        }
        let (value, length) =
            read_quoted_value(self.rest()).ok_or_else(|| self.error("the closing quote is missing"))?;
        self.at += length;
        Ok(value.into())
    }
}

/// Compiles a regular expression that must match a whole value.
pub(crate) fn whole_match(expression: &str) -> Result<regex::Regex, regex::Error> {
    /// Maximum size of a compiled expression, in bytes.
    // A short expression can describe a huge one.
    const COMPILED_BYTES_MAX: usize = 1 << 20;
    regex::RegexBuilder::new(&format!("^(?:{expression})$")).size_limit(COMPILED_BYTES_MAX).build()
}

#[cfg(test)]
mod tests {
    use flatcap_format::schema::is_plain_source_name;

    use super::super::path_text::{quoted_value, source_path};
    use super::*;

    fn parsed(text: &str) -> Vec<(String, Option<ElementPick>)> {
        let path: FieldPath = text.parse().unwrap();
        assert_eq!(path.to_string(), text);
        path.parts.into_iter().map(|part| (part.name.into(), part.pick)).collect()
    }

    fn refused(text: &str) -> String {
        text.parse::<FieldPath>().unwrap_err().to_string()
    }

    // Proves that each form of a path is parsed into its names and selections.
    #[test]
    fn paths_are_parsed() {
        let named = |name: &str| Some(ElementPick::Named(name.into()));
        assert_eq!(parsed("cpu.total"), [("cpu".into(), None), ("total".into(), None)]);
        assert_eq!(parsed("devices[vda].reads"), [("devices".into(), named("vda")), ("reads".into(), None)]);
        assert_eq!(parsed("cores.0.id"), [("cores".into(), named("0")), ("id".into(), None)]);
        assert_eq!(parsed("cores[*]"), [("cores".into(), Some(ElementPick::All))]);
        let tests = parsed(r#"processes[name=~"a[,]\"b.*",pid!=1]"#).remove(0).1;
        let test = |field: &str, operator, value: &str| IdentityTest {
            field: field.into(),
            operator,
            value: value.into(),
        };
        let expected =
            vec![test("name", TestOperator::Matches, "a[,]\"b.*"), test("pid", TestOperator::NotEqual, "1")];
        assert_eq!(tests, Some(ElementPick::Tests(expected)));
    }

    // Proves that a path to certain elements selects all elements after the element selections are
    // removed from it.
    #[test]
    fn picks_are_dropped() {
        let path = |text: &str| -> FieldPath { text.parse().unwrap() };
        for (text, all) in [("a[x].b", "a[*].b"), ("a.0.b[c=1]", "a[*].b[*]")] {
            assert!(path(text).picks_elements());
            assert_eq!(path(text).of_all_elements(), path(all));
        }
        assert!(!path("a[*].b").picks_elements() && !path("a.b").picks_elements());
    }

    // Proves that a list is split at its commas, except commas in brackets or quotes.
    #[test]
    fn lists_are_split_at_commas() {
        let list = r#"a.b,c[x=1,y=2].d,e["f,]"],g["h{i=\"]\",j=k}"].l"#;
        let paths = FieldPath::parse_list(list).unwrap();
        let texts: Vec<&str> = paths.iter().map(FieldPath::as_str).collect();
        assert_eq!(texts, ["a.b", "c[x=1,y=2].d", r#"e["f,]"]"#, r#"g["h{i=\"]\",j=k}"].l"#]);
    }

    // Proves that each mistake is reported with its position.
    #[test]
    fn mistakes_are_named() {
        assert_eq!(refused(""), r#"field path "", byte 0: a name is missing"#);
        assert_eq!(refused("a..b"), r#"field path "a..b", byte 2: a name is missing"#);
        assert!(refused("a[b").ends_with("byte 3: expected ], =, != or =~"));
        assert!(refused("a[]").ends_with("byte 2: a value is missing"));
        assert!(refused("a[b=~\"(\"]").ends_with("not a regular expression"));
        assert!(refused("a[\"b]").ends_with("the closing quote is missing"));
        assert!(refused("0.a").ends_with("byte 0: a number must follow a list"));
        assert!(refused("a.0[b]").ends_with("these elements were picked before"));
        assert!(refused("a[b]c").ends_with("expected a dot, [ or the end of the path"));
        assert!(refused("a.b{").ends_with("byte 4: a type, unit or kind is missing"));
        assert!(refused("a.b{x").ends_with("byte 5: expected } or a comma"));
        assert!(refused("a.b{x}.c").ends_with("byte 6: expected the end of the path after }"));
        assert!(refused("a.b}").ends_with("expected a dot, [ or the end of the path"));
        assert!(refused("a[b=c,d]").contains("expected ], =, != or =~"));
    }

    proptest::proptest! {
        // Proves that any string can select an element. The quoted form of the string is read back
        // unchanged in a path, a list of paths, a test and a condition.
        #[test]
        fn any_value_can_be_picked(
            any in "[^\u{0}]{0,12}",
            special in "[a-z\\.\\[\\]\"\\\\,=!*~() ]{0,8}",
            escapes in "[a\"\\\\]{0,6}",
        ) {
            for value in [any, special, escapes] {
                let quoted = quoted_value(&value);
                proptest::prop_assert_eq!(
                    read_quoted_value(&format!("{}\"", &quoted[1..])),
                    Some((value.clone(), quoted.len() - 1))
                );
                let text = format!("s.list[{quoted}].x");
                let named = Some(ElementPick::Named(value.as_str().into()));
                proptest::prop_assert_eq!(&parsed(&text)[1].1, &named);
                let list = FieldPath::parse_list(&format!("{text},a.b,{text}")).unwrap();
                proptest::prop_assert_eq!(list.len(), 3);
                proptest::prop_assert_eq!(&list[2].parts[1].pick, &named);
                let tests = parsed(&format!("s.list[name={quoted},other=1].x")).remove(1).1;
                let Some(ElementPick::Tests(tests)) = tests else { panic!("tests") };
                proptest::prop_assert_eq!(&*tests[0].value, value.as_str());
                let condition: crate::RowCondition =
                    format!("{text} = {quoted} and s.y > 1").parse().unwrap();
                let operands = &condition.condition.operands;
                proptest::prop_assert_eq!(&operands[0].path.parts[1].pick, &named);
                proptest::prop_assert_eq!(operands.len(), 2);
            }
        }

        // Proves that any name of a source can be written in a path and in a list of paths, and
        // that plain names are written unchanged.
        #[test]
        fn any_source_name_has_a_path(name in "[^\u{0}]{0,12}", other in "[a-z\\.\\[\\]\"\\\\,=!0-9 ]{1,8}") {
            for name in [name, other] {
                let text = source_path(&name, "a.b[*].c");
                let names = |path: &FieldPath| path.parts.iter().map(|part| part.name.to_string()).collect::<Vec<_>>();
                let expected: Vec<String> = if is_plain_source_name(&name) {
                    proptest::prop_assert!(text.starts_with(&name));
                    name.split('.').chain(["a", "b", "c"]).map(str::to_owned).collect()
                } else {
                    [&name, "a", "b", "c"].map(str::to_owned).into()
                };
                let path: FieldPath = text.parse().unwrap();
                proptest::prop_assert_eq!(names(&path), expected.clone());
                let again: FieldPath = path.of_all_elements().as_str().parse().unwrap();
                proptest::prop_assert_eq!(names(&again), expected.clone());
                let list = FieldPath::parse_list(&format!("{text},x,{text}")).unwrap();
                proptest::prop_assert_eq!(list.len(), 3);
                proptest::prop_assert_eq!(names(&list[2]), expected);
            }
        }
    }
}
