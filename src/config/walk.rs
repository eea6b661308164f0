//! What was found in one pass over a document: what is wrong and where, and which keys there are?

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::{ConfigError, ConfigErrors, ERRORS_MAX, Problem};
use super::texts::Texts;
use super::wanted::Wanted;

/// Characters of a value that a message repeats.
const VALUE_CHARS_MAX: usize = 60;
/// Characters of a key that a message repeats; a longer one is compared with no known key.
const KEY_CHARS_MAX: usize = 60;
/// Jaro-Winkler similarity from which a known name is suggested: one slip in a short word, two in a long one.
const SIMILARITY_MIN: f64 = 0.8;

/// One pass over a document: what is wrong so far, and which keys there are.
#[derive(Debug)]
pub(super) struct Walk<'t> {
    texts: &'t Texts,
    found: Vec<Found>,
    unknown: Vec<Unknown>,
    known: Vec<Known>,
    written: BTreeMap<String, usize>,
}

/// What is wrong with one text or with several.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: Vec<Found>,
    uncounted: usize, // beyond those in `found`
}

/// A value that holds, and whether the file says so or it is the default.
#[derive(Debug, Clone)]
pub(super) struct Given<T> {
    pub(super) value: T,
    /// The table and the key.
    pub(super) key: String,
    /// Where the value stands; none for a default.
    pub(super) span: Option<Range<usize>>,
    /// False where the file's value was refused, so that `value` is a stand-in and no ground for more errors.
    pub(super) is_sound: bool,
}

/// A key that a table knows.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) table: String,
    pub(super) key: &'static str,
    pub(super) wanted: Wanted,
}

#[derive(Debug)]
struct Found {
    offset: Option<usize>,
    key: Option<String>,
    value: Option<String>,
    problem: Problem,
}

/// A key that no table took.
#[derive(Debug)]
pub(super) struct Unknown {
    /// Where the key stands.
    pub(super) offset: usize,
    pub(super) table: String,
    pub(super) key: String,
    /// Whether its value is a table.
    pub(super) is_table: bool,
}

impl<'t> Walk<'t> {
    pub(super) fn new(texts: &'t Texts) -> Self {
        let (found, unknown, known) = (Vec::new(), Vec::new(), Vec::new());
        Self { texts, found, unknown, known, written: BTreeMap::new() }
    }

    /// Notes that a table knows a key.
    pub(super) fn note_known(&mut self, known: Known) {
        self.known.push(known);
    }

    /// Notes that nothing takes a key; what was meant is worked out when all keys are known.
    pub(super) fn note_unknown(&mut self, unknown: Unknown) {
        self.unknown.push(unknown);
    }

    /// Notes what is wrong at `span`, whose text is the key.
    pub(super) fn reject_key(&mut self, span: Range<usize>, problem: Problem) {
        let key = Some(shortened(self.texts.text(span.clone()), KEY_CHARS_MAX));
        self.found.push(Found { offset: Some(span.start), key, value: None, problem });
    }

    /// Notes what is wrong with `key`, which stands or should stand at `offset`.
    pub(super) fn reject_at(&mut self, offset: usize, key: &str, problem: Problem) {
        let key = Some(shortened(key, 2 * KEY_CHARS_MAX));
        self.found.push(Found { offset: Some(offset), key, value: None, problem });
    }

    /// Notes what is wrong at `offset`, whatever stands there.
    pub(super) fn reject_text(&mut self, offset: usize, problem: Problem) {
        self.found.push(Found { offset: Some(offset), key: None, value: None, problem });
    }

    /// Notes what is wrong with the value at `span`, whose key is told.
    pub(super) fn reject_value(&mut self, span: Range<usize>, key: String, problem: Problem) {
        self.reject(&Given { value: (), key, span: Some(span), is_sound: false }, problem);
    }

    /// Notes what is wrong with a value; a default is shown by the problem, if at all.
    pub(super) fn reject<T>(&mut self, given: &Given<T>, problem: Problem) {
        let value = given.span.clone().map(|span| shortened(self.texts.text(span), VALUE_CHARS_MAX));
        self.found.push(Found { offset: given.offset(), key: Some(given.key.clone()), value, problem });
    }

    /// Notes where a key's value stands.
    pub(super) fn note_written(&mut self, key: String, offset: usize) {
        self.written.insert(key, offset);
    }

    /// Whether one place lies over another: in a later file, or in a variable over a file.
    pub(super) fn is_over(&self, offset: usize, under: usize) -> bool {
        self.texts.is_over(offset, under)
    }

    /// Which keys there are.
    pub(super) fn into_known(self) -> Vec<Known> {
        self.known
    }

    /// Where each key's value stands, by `table.key`.
    pub(super) fn written(&self) -> &BTreeMap<String, usize> {
        &self.written
    }

    /// What is wrong with a text whatever others say.
    pub(super) fn into_own_findings(mut self) -> Findings {
        // Only what can be kept is explained; a file of nothing but unknown keys costs no more than this.
        self.unknown.sort_by_key(|unknown| unknown.offset);
        let uncounted = self.unknown.len().saturating_sub(ERRORS_MAX);
        self.unknown.truncate(ERRORS_MAX);
        let explained: Vec<Found> = self.unknown.iter().map(|unknown| self.explain(unknown)).collect();
        self.found.retain(|found| !found.problem.is_of_several());
        self.found.extend(explained);
        Findings { found: self.found, uncounted }
    }

    /// What is wrong between keys, which may stand in several texts.
    pub(super) fn into_joint_findings(mut self) -> Findings {
        self.found.retain(|found| found.problem.is_of_several());
        Findings { found: self.found, uncounted: 0 }
    }

    fn explain(&self, unknown: &Unknown) -> Found {
        let is_table = |known: &&Known| matches!(known.wanted, Wanted::Table(_));
        let siblings = self.known.iter().filter(|known| known.table == unknown.table);
        let problem = if unknown.is_table {
            let keys: Vec<&str> = siblings.filter(is_table).map(|known| known.key).collect();
            let brackets = |key: &str| format!("[{}]", joined(&unknown.table, key));
            Problem::UnknownTable {
                near: nearest(&unknown.key, keys.iter().copied()).map(|key| brackets(&key)),
                known: keys.into_iter().map(brackets).collect(),
            }
        } else {
            let keys: Vec<&str> = siblings.filter(|known| !is_table(known)).map(|known| known.key).collect();
            let home = self.known.iter().find(|known| known.key == unknown.key && !is_table(known));
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
        Found { offset: Some(unknown.offset), key: Some(key), value: None, problem }
    }
}

impl Findings {
    /// Whether nothing is wrong.
    pub(super) fn is_none(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds others. No more are kept than can be told.
    pub(super) fn add(&mut self, others: Self) {
        self.found.extend(others.found);
        self.found.sort_by_key(|found| found.offset.unwrap_or(usize::MAX));
        self.uncounted += others.uncounted + self.found.len().saturating_sub(ERRORS_MAX);
        self.found.truncate(ERRORS_MAX);
    }

    /// Everything found, in the order of the texts; `first` are errors that stand in no text.
    pub(super) fn into_errors(self, texts: &Texts, mut first: Vec<ConfigError>) -> ConfigErrors {
        first.extend(self.found.into_iter().map(|found| ConfigError {
            place: texts.place(found.offset),
            key: found.key,
            value: found.value,
            problem: found.problem,
        }));
        ConfigErrors::new(first, self.uncounted)
    }
}

impl<T> Given<T> {
    /// Whether the file gives this value, be it good or bad.
    pub(super) fn is_written(&self) -> bool {
        self.span.is_some()
    }

    /// Where the value stands, for choosing the last of several.
    pub(super) fn offset(&self) -> Option<usize> {
        self.span.as_ref().map(|span| span.start)
    }
}

/// The name among `known` that was probably meant.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    if name.chars().count() > KEY_CHARS_MAX {
        return None;
    }
    let name = name.to_lowercase();
    known
        .map(|candidate| (strsim::jaro_winkler(&name, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate.to_owned())
}

/// The full name of a key or a table.
pub(super) fn joined(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

/// A key as it may be written: bare if it can be, else in quotes.
fn key_text(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) {
        shortened(key, KEY_CHARS_MAX)
    } else {
        format!("\"{}\"", shortened(key, KEY_CHARS_MAX))
    }
}

/// The text in one line, without control characters and not too long.
fn shortened(text: &str, chars_max: usize) -> String {
    let mut short = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == chars_max {
            short.push_str("...");
            break;
        }
        if c.is_control() {
            short.extend(c.escape_default());
        } else {
            short.push(c);
        }
    }
    short
}
