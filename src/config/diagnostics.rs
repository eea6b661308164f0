//! Diagnostics of one pass over a document: problems with their locations, and all known keys.

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::{ConfigError, ConfigErrors, ERRORS_MAX, Problem};
use super::expected_value::ExpectedValue;
use super::input_texts::InputTexts;
use super::renamed::renamed;

/// Characters of a value that a message shows.
const VALUE_CHARS_MAX: usize = 60;
/// Characters of a key that a message shows; a longer key gets no suggestion.
const KEY_CHARS_MAX: usize = 60;
/// Smallest Jaro-Winkler similarity for a suggestion: one typing error in a short word, two in a
/// long one.
const SIMILARITY_MIN: f64 = 0.8;

/// The problems and known keys of one pass over a document.
#[derive(Debug)]
pub(super) struct Diagnostics<'t> {
    texts: &'t InputTexts,
    findings: Vec<ConfigFinding>,
    unknown: Vec<UnknownKey>,
    known: Vec<KnownKey>,
    value_offsets: BTreeMap<String, usize>,
}

/// The problems of one text or of several.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: Vec<ConfigFinding>,
    uncounted: usize, // beyond those in `found`
}

/// The value of a key, from the configuration or the default.
#[derive(Debug, Clone)]
pub(super) struct ParsedValue<T> {
    pub(super) value: T,
    /// The table and the key.
    pub(super) key: String,
    /// Span of the value; `None` for a default.
    pub(super) span: Option<Range<usize>>,
    /// False if the configured value was rejected. `value` is then the default, and must not cause
    /// more errors.
    pub(super) is_valid: bool,
}

/// A key that a table accepts.
#[derive(Debug)]
pub(super) struct KnownKey {
    pub(super) table: String,
    pub(super) key: &'static str,
    pub(super) expected: ExpectedValue,
}

#[derive(Debug)]
struct ConfigFinding {
    offset: Option<usize>,
    key: Option<String>,
    value: Option<String>,
    problem: Problem,
}

/// A key that no table accepts.
#[derive(Debug)]
pub(super) struct UnknownKey {
    /// Offset of the key.
    pub(super) offset: usize,
    pub(super) table: String,
    pub(super) key: String,
    /// Whether its value is a table.
    pub(super) is_table: bool,
}

impl<'t> Diagnostics<'t> {
    pub(super) fn new(texts: &'t InputTexts) -> Self {
        let (found, unknown, known) = (Vec::new(), Vec::new(), Vec::new());
        Self { texts, findings: found, unknown, known, value_offsets: BTreeMap::new() }
    }

    /// Registers a key of a table.
    pub(super) fn note_known(&mut self, known: KnownKey) {
        self.known.push(known);
    }

    /// Reports an unknown key. The suggestion is made later, when all keys are registered.
    pub(super) fn note_unknown(&mut self, unknown: UnknownKey) {
        self.unknown.push(unknown);
    }

    /// Reports a problem at `span`, whose text is the key.
    pub(super) fn reject_key(&mut self, span: Range<usize>, problem: Problem) {
        let key = Some(shortened(self.texts.text(span.clone()), KEY_CHARS_MAX));
        self.findings.push(ConfigFinding { offset: Some(span.start), key, value: None, problem });
    }

    /// Reports a problem of `key`, which is or belongs at `offset`.
    pub(super) fn reject_at(&mut self, offset: usize, key: &str, problem: Problem) {
        // The key comes with its table here, each of which may be long.
        let key = Some(shortened(key, 2 * KEY_CHARS_MAX));
        self.findings.push(ConfigFinding { offset: Some(offset), key, value: None, problem });
    }

    /// Reports a problem at `offset`, without a key.
    pub(super) fn reject_text(&mut self, offset: usize, problem: Problem) {
        self.findings.push(ConfigFinding { offset: Some(offset), key: None, value: None, problem });
    }

    /// Reports a problem of the value of `key` at `span`.
    pub(super) fn reject_value(&mut self, span: Range<usize>, key: String, problem: Problem) {
        self.reject(&ParsedValue { value: (), key, span: Some(span), is_valid: false }, problem);
    }

    /// Reports a problem of a value. A default value is not shown, except by the problem itself.
    pub(super) fn reject<T>(&mut self, given: &ParsedValue<T>, problem: Problem) {
        // The text as written, for the operator to search for. The span is one of the concatenated
        // texts, so this works for any file and variable.
        let value = given.span.clone().map(|span| shortened(self.texts.text(span), VALUE_CHARS_MAX));
        self.findings.push(ConfigFinding {
            offset: given.offset(),
            key: Some(given.key.clone()),
            value,
            problem,
        });
    }

    /// Records the offset of a key's value.
    pub(super) fn note_value(&mut self, key: String, offset: usize) {
        self.value_offsets.insert(key, offset);
    }

    /// Returns whether the value at `offset` overrides the one at `under`.
    pub(super) fn overrides(&self, offset: usize, under: usize) -> bool {
        self.texts.overrides(offset, under)
    }

    /// Returns the known keys.
    pub(super) fn into_known(self) -> Vec<KnownKey> {
        self.known
    }

    /// Returns the offset of each key's value, by `table.key`.
    pub(super) fn value_offsets(&self) -> &BTreeMap<String, usize> {
        &self.value_offsets
    }

    /// Returns the problems of a text that no other text can fix.
    pub(super) fn into_local_findings(mut self) -> Findings {
        // Suggestions are made only for errors that are kept, which bounds the cost of a hostile
        // file. They are sorted before the cut, so that the first ones of the file are kept.
        self.unknown.sort_by_key(|unknown| unknown.offset);
        let uncounted = self.unknown.len().saturating_sub(ERRORS_MAX);
        self.unknown.truncate(ERRORS_MAX);
        let explained: Vec<ConfigFinding> =
            self.unknown.iter().map(|unknown| self.explain(unknown)).collect();
        // Another text may settle a conflict between keys, so only the merged tree is judged for
        // those.
        self.findings.retain(|found| !found.problem.is_cross_key());
        self.findings.extend(explained);
        Findings { found: self.findings, uncounted }
    }

    /// Returns the conflicts between keys, which may be in several texts.
    pub(super) fn into_cross_key_findings(mut self) -> Findings {
        // All other problems were found in the text that has them; the merged tree repeats some.
        self.findings.retain(|found| found.problem.is_cross_key());
        Findings { found: self.findings, uncounted: 0 }
    }

    fn explain(&self, unknown: &UnknownKey) -> ConfigFinding {
        let is_table = |known: &&KnownKey| matches!(known.expected, ExpectedValue::Table(_));
        let siblings = self.known.iter().filter(|known| known.table == unknown.table);
        // Only tables at the top level were renamed.
        let new_name = match (unknown.is_table, unknown.table.as_str()) {
            (true, "") => renamed(&unknown.key, ""),
            (true, _) => None,
            (false, table) => renamed(table, &unknown.key),
        };
        let problem = if let Some((table, key)) = new_name {
            let new = if key.is_empty() { format!("[{table}]") } else { format!("{key} in [{table}]") };
            Problem::Renamed { new }
        } else if unknown.is_table {
            let keys: Vec<&str> = siblings.filter(is_table).map(|known| known.key).collect();
            let brackets = |key: &str| format!("[{}]", joined(&unknown.table, key));
            Problem::UnknownTable {
                near: nearest(&unknown.key, keys.iter().copied()).map(|key| brackets(&key)),
                known: keys.into_iter().map(brackets).collect(),
            }
        } else {
            let keys: Vec<&str> = siblings.filter(|known| !is_table(known)).map(|known| known.key).collect();
            let home = self.known.iter().find(|known| known.key == unknown.key && !is_table(known));
            // A key that another table has is in the wrong place, not misspelt.
            let near = if home.is_some() { None } else { nearest(&unknown.key, keys.iter().copied()) };
            Problem::UnknownKey {
                near,
                elsewhere: home.map(|known| known.table.clone()),
                known: keys.into_iter().map(str::to_owned).collect(),
            }
        };
        let key = key_text(&unknown.key);
        let key = match (unknown.is_table, unknown.table.as_str()) {
            (true, table) => format!("[{}]", joined(table, &key)),
            (false, "") => key,
            (false, table) => format!("[{table}] {key}"),
        };
        ConfigFinding { offset: Some(unknown.offset), key: Some(key), value: None, problem }
    }
}

impl Findings {
    /// Returns whether there are no problems.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds other findings. Keeps at most [`ERRORS_MAX`] and counts the rest.
    pub(super) fn add(&mut self, others: Self) {
        self.found.extend(others.found);
        // Cut after each text, so that many hostile texts take no more memory than one. An offset
        // is also a position among the texts, so the order is that of the layers.
        self.found.sort_by_key(|found| found.offset.unwrap_or(usize::MAX));
        self.uncounted += others.uncounted + self.found.len().saturating_sub(ERRORS_MAX);
        self.found.truncate(ERRORS_MAX);
    }

    /// Returns all errors in the order of the texts; `first` are errors without a location in a
    /// text.
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

impl<T> ParsedValue<T> {
    /// Returns whether the configuration sets this key, validly or not.
    pub(super) fn is_set(&self) -> bool {
        self.span.is_some()
    }

    /// Returns the offset of the value, `None` for a default.
    pub(super) fn offset(&self) -> Option<usize> {
        self.span.as_ref().map(|span| span.start)
    }
}

/// Returns the most similar name among `known`, if it is similar enough.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    // The cost of a comparison grows with the product of both lengths.
    if name.chars().count() > KEY_CHARS_MAX {
        return None;
    }
    // All known names are in lower case, so capitals are no difference.
    let name = name.to_lowercase();
    known
        .map(|candidate| (strsim::jaro_winkler(&name, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate.to_owned())
}

/// Returns the full name of a key or a table.
pub(super) fn joined(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

/// Returns a key as written in TOML: bare if possible, else in quotes.
fn key_text(key: &str) -> String {
    // Without quotes, a key that contains a dot would read as a table and a key.
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) {
        shortened(key, KEY_CHARS_MAX)
    } else {
        format!("\"{}\"", shortened(key, KEY_CHARS_MAX))
    }
}

/// Returns the text in one line, with control characters escaped and cut to `chars_max` characters.
fn shortened(text: &str, chars_max: usize) -> String {
    let mut short = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == chars_max {
            short.push_str("...");
            break;
        }
        // A newline would end the line of the message; an escape sequence would reach the terminal.
        if c.is_control() {
            short.extend(c.escape_default());
        } else {
            short.push(c);
        }
    }
    short
}
