//! Diagnostics of one pass over a document. They contain the problems with their locations, and the
//! location of each key that is set.

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::{ConfigError, ConfigErrors, ERRORS_MAX};
use super::input_texts::InputTexts;

/// Maximum number of characters of a value that an error message shows.
const VALUE_CHARS_MAX: usize = 60;
/// Maximum number of characters of a key that an error message shows.
const KEY_CHARS_MAX: usize = 60;

/// The problems that one pass over a document finds, and the keys that the document sets. Keys have
/// their full names, `table.key`.
#[derive(Debug)]
pub(super) struct Diagnostics<'t> {
    texts: &'t InputTexts,
    local: Findings,
    conflicts: Findings,
    keys: BTreeMap<String, ParsedKey>,
    instances: BTreeMap<String, usize>, // offset of the name, by table
}

/// The problems of one input or of several inputs.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: Vec<ConfigFinding>,
    uncounted: usize, // beyond those in `found`
}

/// A key that a text sets.
#[derive(Debug)]
struct ParsedKey {
    /// Span of the value.
    span: Range<usize>,
    /// Whether the key accepts the value. If not, the setting keeps its default, and this default
    /// must not cause further errors.
    is_valid: bool,
}

/// The subject of a problem, and its location.
pub(super) enum At<'a> {
    /// The value of a key, or its default.
    Key(&'a str),
    /// The value of this key or table.
    Value(Range<usize>, &'a str),
    /// A key or table at this offset, or a key or table that is missing there.
    Label(Option<usize>, &'a str),
    /// The name at this span of the text.
    Name(Range<usize>),
    /// A part of the input that is not a key, at this offset.
    Offset(usize),
}

/// A problem and its location.
#[derive(Debug)]
struct ConfigFinding {
    offset: Option<usize>,
    key: Option<String>,
    value: Option<String>,
    problem: String,
}

impl<'t> Diagnostics<'t> {
    pub(super) fn new(texts: &'t InputTexts) -> Self {
        let (local, conflicts) = Default::default();
        Self { texts, local, conflicts, keys: BTreeMap::new(), instances: BTreeMap::new() }
    }

    /// Records that a key is set, and whether its value is valid.
    pub(super) fn note(&mut self, key: String, span: Range<usize>, is_valid: bool) {
        self.keys.insert(key, ParsedKey { span, is_valid });
    }

    /// Records the offset of the table of an instance.
    pub(super) fn note_table(&mut self, table: String, offset: usize) {
        self.instances.insert(table, offset);
    }

    /// Returns the offset of the table of an instance.
    pub(super) fn table_offset(&self, table: &str) -> Option<usize> {
        self.instances.get(table).copied()
    }

    /// Returns whether a text sets the key, whether or not the value is valid.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// Returns whether the operator intended the current value of a key. The operator intended a
    /// valid value, or the default of a key that is not set. The operator did not intend the
    /// default that replaces a rejected value, so no check uses it.
    pub(super) fn is_sound(&self, key: &str) -> bool {
        self.keys.get(key).is_none_or(|key| key.is_valid)
    }

    /// Returns the offset of a key's value; `None` if the key has its default.
    pub(super) fn offset(&self, key: &str) -> Option<usize> {
        self.keys.get(key).map(|key| key.span.start)
    }

    /// Returns the offset of the value of each key that is set.
    pub(super) fn into_offsets(self) -> BTreeMap<String, usize> {
        self.keys.into_iter().map(|(name, key)| (name, key.span.start)).collect()
    }

    /// Returns whether `key` has no effect because a later layer set the key `by`. That is not an
    /// error. The author of the later layer may not know `key` and could not remove it.
    pub(super) fn is_overridden(&self, key: &str, by: &str) -> bool {
        matches!((self.offset(by), self.offset(key)), (Some(by), Some(under)) if self.texts.overrides(by, under))
    }

    /// Reports a problem that no other text can fix.
    pub(super) fn reject(&mut self, at: At<'_>, problem: String) {
        let finding = self.finding(at, problem);
        self.local.found.push(finding);
    }

    /// Adds this number to the count of problems that are not listed.
    pub(super) fn reject_more(&mut self, uncounted: usize) {
        self.local.uncounted += uncounted;
    }

    /// Reports a conflict between keys. The keys may be in different inputs.
    pub(super) fn conflict(&mut self, at: At<'_>, problem: String) {
        let finding = self.finding(at, problem);
        self.conflicts.found.push(finding);
    }

    /// Returns the problems of a text that no other text can fix.
    pub(super) fn into_local(self) -> Findings {
        self.local
    }

    /// Removes the conflicts between keys from the diagnostics, and returns them.
    pub(super) fn take_conflicts(&mut self) -> Findings {
        std::mem::take(&mut self.conflicts)
    }

    fn finding(&self, at: At<'_>, problem: String) -> ConfigFinding {
        let (span, key, is_value) = match at {
            At::Offset(offset) => {
                return ConfigFinding { offset: Some(offset), key: None, value: None, problem };
            }
            At::Name(span) => (Some(span.clone()), shortened(self.texts.text(span), KEY_CHARS_MAX), false),
            At::Label(offset, label) => (offset.map(|offset| offset..offset), label.to_owned(), false),
            At::Value(span, label) => (Some(span), label.to_owned(), true),
            At::Key(key) => (self.keys.get(key).map(|key| key.span.clone()), label(key), true),
        };
        // The message shows the text as written, so that the operator can search for it. The span
        // refers to the concatenated inputs, so this works for any file or variable. A default is
        // not shown.
        let value = span.clone().filter(|_| is_value).map(|span| match self.texts.text(span) {
            "" => "\"\"".to_owned(),
            text => shortened(text, VALUE_CHARS_MAX),
        });
        // The label contains a key and its table, and both may be long.
        let key = Some(shortened(&key, 2 * KEY_CHARS_MAX));
        ConfigFinding { offset: span.map(|span| span.start), key, value, problem }
    }
}

impl Findings {
    /// Returns whether there are no problems.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds other findings. Keeps at most [`ERRORS_MAX`] problems and counts the rest.
    pub(super) fn add(&mut self, others: Self) {
        self.found.extend(others.found);
        // The list is truncated after each input, so that many hostile inputs take no more memory
        // than one input. Offsets increase from layer to layer, so the errors are in the order of
        // the layers.
        self.found.sort_by_key(|found| found.offset.unwrap_or(usize::MAX));
        self.uncounted += others.uncounted + self.found.len().saturating_sub(ERRORS_MAX);
        self.found.truncate(ERRORS_MAX);
    }

    /// Returns all errors in the order of the inputs. Before them come the errors in `first`, which
    /// have no location in an input.
    pub(super) fn into_errors(self, texts: &InputTexts, mut first: Vec<ConfigError>) -> ConfigErrors {
        first.extend(self.found.into_iter().map(|found| ConfigError {
            location: texts.location(found.offset),
            key: found.key,
            value: found.value,
            problem: found.problem,
        }));
        ConfigErrors::new(first, self.uncounted)
    }
}

/// Returns a key in the form that messages show, `[table] key`.
pub(super) fn label(key: &str) -> String {
    match key.rsplit_once('.') {
        Some((table, key)) => format!("[{table}] {key}"),
        None => key.to_owned(),
    }
}

/// Returns a key as written in TOML, without quotes if possible.
pub(super) fn key_text(key: &str) -> String {
    // A key that contains a dot needs quotes. Without quotes, it would be parsed as a table and a
    // key.
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) {
        shortened(key, KEY_CHARS_MAX)
    } else {
        format!("\"{}\"", shortened(key, KEY_CHARS_MAX))
    }
}

/// Returns the text on one line, truncated to `chars_max` characters and with control characters
/// escaped.
fn shortened(text: &str, chars_max: usize) -> String {
    let mut short = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == chars_max {
            short.push_str("...");
            break;
        }
        // A newline would end the line of the message, and an escape sequence would reach the
        // terminal.
        if c.is_control() {
            short.extend(c.escape_default());
        } else {
            short.push(c);
        }
    }
    short
}
