//! Reads a parsed TOML table by taking its keys out one by one; the keys that remain are unknown.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::default::{MIN_FREE_PERCENT_MAX, PAGE_BYTES};
use super::diagnostics::{Diagnostics, KnownKey, ParsedValue, UnknownKey, joined};
use super::error::Problem;
use super::expected_value::ExpectedValue;
use super::instance_name::{INSTANCES_MAX, is_instance_name};
use super::settings::{MinFree, SOCKET_PATH_BYTES_MAX};
use super::source::CpuShare;
use super::units::{UnitError, parse_duration, parse_size};
use crate::keyword::Keyword;
use crate::sampling::{ARG_BYTES_MAX, ARGV_MAX, Expression, PATTERNS_MAX, PROCESSES_MAX, Pattern};

/// A table from which keys are taken.
#[derive(Debug)]
pub(super) struct TableReader<'w, 't> {
    diagnostics: &'w mut Diagnostics<'t>,
    path: String,
    name_offset: Option<usize>, // offset of its name, for instances
    entries: DeTable<'t>,
}

impl<'t> TableReader<'_, 't> {
    /// Reads a whole document with `read`.
    pub(super) fn root<T>(
        walk: &mut Diagnostics<'t>,
        entries: DeTable<'t>,
        read: impl FnOnce(&mut TableReader<'_, 't>) -> T,
    ) -> T {
        let mut table = TableReader { diagnostics: walk, path: String::new(), name_offset: None, entries };
        let value = read(&mut table);
        table.finish();
        value
    }

    /// Reads the table `key` of this one with `read`; a missing table is an empty one.
    pub(super) fn table<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut TableReader<'_, 't>) -> T,
    ) -> T {
        let path = joined(&self.path, key);
        let wanted = ExpectedValue::Table(path.clone());
        let entries = self.take(key, wanted, DeTable::new(), |value, wanted| match value {
            DeValue::Table(entries) => Ok(entries),
            other => Err(wrong_type(&other, wanted)),
        });
        // Read even if the table is missing: that registers its keys, and gives each its default.
        let mut table = TableReader {
            diagnostics: &mut *self.diagnostics,
            path,
            name_offset: None,
            entries: entries.value,
        };
        let value = read(&mut table);
        table.finish();
        value
    }

    /// Reads each table of this one with `read`, which gets its name.
    pub(super) fn instances<T>(
        &mut self,
        mut read: impl FnMut(&mut TableReader<'_, 't>, String) -> T,
    ) -> Vec<T> {
        let mut instances = Vec::new();
        // Any name may be used here, so none is left for `finish` to report as unknown.
        for (key, value) in std::mem::take(&mut self.entries) {
            let name: String = key.get_ref().clone().into_owned();
            let DeValue::Table(entries) = value.into_inner() else {
                self.diagnostics.reject_at(
                    key.span().start,
                    &format!("[{}] {name}", self.path),
                    Problem::NoInstance { table: self.path.clone() },
                );
                continue;
            };
            if !is_instance_name(&name) {
                self.diagnostics.reject_key(key.span(), Problem::BadInstanceName);
                continue;
            }
            // Before the table is read, so that the limit bounds the work and the errors.
            if instances.len() == INSTANCES_MAX {
                self.diagnostics.reject_key(key.span(), Problem::TooManyInstances { limit: INSTANCES_MAX });
                break;
            }
            let path = joined(&self.path, &name);
            let mut table = TableReader {
                diagnostics: &mut *self.diagnostics,
                path,
                name_offset: Some(key.span().start),
                entries,
            };
            instances.push(read(&mut table, name));
            table.finish();
        }
        instances
    }

    /// Takes a size in bytes.
    pub(super) fn size(
        &mut self,
        key: &'static str,
        default: u64,
        range: &RangeInclusive<u64>,
    ) -> ParsedValue<u64> {
        self.take(key, ExpectedValue::Size(range.clone()), default, |value, wanted| match value {
            DeValue::String(text) => with_unit(parse_size(&text), range, wanted),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a size in bytes that is a multiple of the page size.
    pub(super) fn pages(
        &mut self,
        key: &'static str,
        default: u64,
        range: &RangeInclusive<u64>,
    ) -> ParsedValue<u64> {
        let mut given = self.size(key, default, range);
        if given.is_valid && !given.value.is_multiple_of(PAGE_BYTES) {
            given.is_valid = false;
            let wanted = ExpectedValue::Size(range.clone());
            self.diagnostics.reject(&given, Problem::NotMultiple { of: PAGE_BYTES, wanted });
        }
        given
    }

    /// Takes a size in bytes, or a share of the file system in percent.
    pub(super) fn min_free(
        &mut self,
        key: &'static str,
        default: MinFree,
        range: &RangeInclusive<u64>,
    ) -> ParsedValue<MinFree> {
        self.take(key, ExpectedValue::Share(MIN_FREE_PERCENT_MAX), default, |value, wanted| match value {
            DeValue::String(text) => match text.strip_suffix('%') {
                Some(percent) => match percent.trim_end_matches(' ').parse() {
                    Ok(percent) if percent > MIN_FREE_PERCENT_MAX => Err(Problem::TooLarge { wanted }),
                    Ok(percent) => Ok(MinFree::Percent(percent)),
                    Err(_) => Err(Problem::BadUnit { error: UnitError::NoNumber, wanted }),
                },
                None => with_unit(parse_size(&text), range, wanted).map(MinFree::Size),
            },
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a share of one core in percent, with up to two decimals.
    pub(super) fn cpu_share(
        &mut self,
        key: &'static str,
        default: CpuShare,
        range: &RangeInclusive<CpuShare>,
    ) -> ParsedValue<CpuShare> {
        self.take(key, ExpectedValue::CpuShare(range.clone()), default, |value, wanted| match value {
            DeValue::String(text) => {
                with_unit(basis_points(&text).map(CpuShare::of_basis_points), range, wanted)
            }
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a list of patterns; empty by default.
    pub(super) fn patterns(&mut self, key: &'static str) -> ParsedValue<Vec<Pattern>> {
        self.take(key, ExpectedValue::Patterns, Vec::new(), |value, wanted| match value {
            // Counted first, because each pattern is compiled.
            DeValue::Array(items) if items.len() > PATTERNS_MAX => Err(Problem::TooLarge { wanted }),
            DeValue::Array(items) => items
                .into_iter()
                .map(|item| match item.into_inner() {
                    DeValue::String(text) => Pattern::new(&text).map_err(|reason| Problem::BadPattern {
                        pattern: text.into_owned(),
                        reason,
                        wanted: wanted.clone(),
                    }),
                    other => Err(wrong_type(&other, wanted.clone())),
                })
                .collect(),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a duration.
    pub(super) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        range: &RangeInclusive<Duration>,
    ) -> ParsedValue<Duration> {
        self.take(key, ExpectedValue::Duration(range.clone()), default, |value, wanted| match value {
            DeValue::String(text) => with_unit(parse_duration(&text), range, wanted),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a whole number.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        default: u64,
        range: &RangeInclusive<u64>,
    ) -> ParsedValue<u64> {
        self.take(key, ExpectedValue::Number(range.clone()), default, |value, wanted| {
            whole(&value, range, wanted)
        })
    }

    /// Takes a list of whole numbers without duplicates; returns them sorted.
    pub(super) fn numbers(
        &mut self,
        key: &'static str,
        range: &RangeInclusive<u64>,
    ) -> ParsedValue<Vec<u64>> {
        self.take(key, ExpectedValue::Numbers(range.clone()), Vec::new(), |value, wanted| {
            let DeValue::Array(items) = value else { return Err(wrong_type(&value, wanted)) };
            let numbers = items.into_iter().map(|item| whole(&item.into_inner(), range, wanted.clone()));
            let mut numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
            // Sorted, so that the same numbers in another order are an equal configuration.
            numbers.sort_unstable();
            match numbers.windows(2).find(|pair| pair.first() == pair.last()) {
                Some(pair) => {
                    let twice = pair.first().copied().unwrap_or_default();
                    Err(Problem::DuplicateItem { item: twice.to_string() })
                }
                None => Ok(numbers),
            }
        })
    }

    /// Takes a boolean.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> ParsedValue<bool> {
        self.take(key, ExpectedValue::Flag, default, |value, wanted| match value {
            DeValue::Boolean(flag) => Ok(flag),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a keyword.
    pub(super) fn keyword<T: Keyword>(&mut self, key: &'static str, default: T) -> ParsedValue<T> {
        self.take(key, ExpectedValue::Keyword(T::keywords()), default, |value, wanted| match value {
            DeValue::String(text) => T::find(&text).ok_or(Problem::NotAllowed { wanted }),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a path that the system could open: not empty, without a zero byte.
    pub(super) fn path(&mut self, key: &'static str, default: PathBuf) -> ParsedValue<PathBuf> {
        self.take(key, ExpectedValue::Path, default, |value, wanted| match value {
            // System calls end a path at a zero byte; the error would come only when the path is
            // used.
            DeValue::String(text) if text.is_empty() || text.contains('\0') => {
                Err(Problem::BadPath { wanted })
            }
            DeValue::String(text) => Ok(PathBuf::from(text.into_owned())),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a path, or an empty string for none.
    pub(super) fn path_or_empty(&mut self, key: &'static str, default: PathBuf) -> ParsedValue<PathBuf> {
        self.take(key, ExpectedValue::Path, default, |value, wanted| match value {
            DeValue::String(text) if text.contains('\0') => Err(Problem::BadPath { wanted }),
            DeValue::String(text) => Ok(PathBuf::from(text.into_owned())),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes an absolute path.
    pub(super) fn absolute_path(&mut self, key: &'static str, default: PathBuf) -> ParsedValue<PathBuf> {
        self.take(key, ExpectedValue::AbsolutePath, default, |value, wanted| match value {
            DeValue::String(text) if is_absolute(&text) => Ok(PathBuf::from(text.into_owned())),
            DeValue::String(_) => Err(Problem::NotAbsolute { wanted }),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes an absolute path that fits into a socket address, or an empty string for none.
    pub(super) fn socket_path(&mut self, key: &'static str, default: PathBuf) -> ParsedValue<PathBuf> {
        let is_fit =
            |text: &str| text.is_empty() || (is_absolute(text) && text.len() <= SOCKET_PATH_BYTES_MAX);
        self.take(key, ExpectedValue::SocketPath, default, |value, wanted| match value {
            DeValue::String(text) if is_fit(&text) => Ok(PathBuf::from(text.into_owned())),
            DeValue::String(_) => Err(Problem::BadSocketPath { wanted }),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes an address to listen on, or an empty string for none. A port alone means the loopback
    /// address.
    pub(super) fn socket_address(&mut self, key: &'static str) -> ParsedValue<Option<SocketAddr>> {
        self.take(key, ExpectedValue::SocketAddress, None, |value, wanted| match value {
            DeValue::String(text) if text.is_empty() => Ok(None),
            DeValue::String(text) => {
                // `parse` alone would accept a plus sign before the port.
                let is_port = text.bytes().all(|byte| byte.is_ascii_digit());
                let port = || text.parse().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok();
                let address = if is_port { port() } else { text.parse().ok() };
                // The kernel would choose a free port for 0, which no scraper could know.
                let address = address.filter(|address| address.port() != 0);
                address.map(Some).ok_or(Problem::BadSocketAddress { wanted })
            }
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a program's absolute path and its arguments.
    pub(super) fn command(&mut self, key: &'static str) -> ParsedValue<Vec<String>> {
        let is_word = |word: &String| word.len() <= ARG_BYTES_MAX && !word.contains('\0');
        self.take(key, ExpectedValue::Command, Vec::new(), |value, wanted| {
            let words = texts(value, &wanted)?;
            let is_command = words.first().is_some_and(|program| is_absolute(program));
            if is_command && words.len() <= ARGV_MAX && words.iter().all(is_word) {
                Ok(words)
            } else {
                Err(Problem::BadCommand { wanted })
            }
        })
    }

    /// Takes a regular expression.
    pub(super) fn expression(&mut self, key: &'static str) -> ParsedValue<Option<Expression>> {
        self.take(key, ExpectedValue::Expression, None, |value, wanted| match value {
            DeValue::String(text) => {
                Expression::new(&text).map(Some).map_err(|reason| Problem::BadExpression { reason, wanted })
            }
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a list of keywords without duplicates; not empty.
    pub(super) fn keywords<T: Keyword + PartialEq>(
        &mut self,
        key: &'static str,
        default: Vec<T>,
    ) -> ParsedValue<Vec<T>> {
        self.take(key, ExpectedValue::Keywords(T::keywords()), default, |value, wanted| {
            let mut words = Vec::new();
            for text in texts(value, &wanted)? {
                match T::find(&text) {
                    Some(word) if words.contains(&word) => return Err(Problem::DuplicateItem { item: text }),
                    Some(word) => words.push(word),
                    None => return Err(Problem::NotAllowed { wanted }),
                }
            }
            if words.is_empty() { Err(Problem::NotAllowed { wanted }) } else { Ok(words) }
        })
    }

    /// Takes a list of numbers or names of processes; empty by default.
    pub(super) fn processes(&mut self, key: &'static str) -> ParsedValue<Vec<String>> {
        let is_process = |text: &String| (1..=63).contains(&text.len()) && !text.contains(['\0', '\n']);
        self.take(key, ExpectedValue::Processes, Vec::new(), |value, wanted| {
            let mut processes = texts(value, &wanted)?;
            let count = processes.len();
            processes.sort();
            processes.dedup();
            let is_fit =
                count <= PROCESSES_MAX && processes.len() == count && processes.iter().all(is_process);
            if is_fit { Ok(processes) } else { Err(Problem::NotAllowed { wanted }) }
        })
    }

    /// Reports a missing required key.
    pub(super) fn reject_missing<T>(&mut self, given: &ParsedValue<T>, wanted: ExpectedValue) {
        // A missing key has no location, so the name of its table stands for it. Only instances
        // have required keys, so the 0 is never used.
        self.diagnostics.reject_at(self.name_offset.unwrap_or(0), &given.key, Problem::Missing { wanted });
    }

    /// Returns whether a later layer (`by`) made this key irrelevant. The author of that layer may
    /// not know the key, and could not remove it, so it is no error.
    pub(super) fn is_overridden<T, U>(&self, given: &ParsedValue<T>, by: &ParsedValue<U>) -> bool {
        matches!((by.offset(), given.offset()), (Some(by), Some(given)) if self.diagnostics.overrides(by, given))
    }

    /// Reports a problem of a value that is valid by itself.
    pub(super) fn reject<T>(&mut self, given: &ParsedValue<T>, problem: Problem) {
        self.diagnostics.reject(given, problem);
    }

    pub(super) fn take<T>(
        &mut self,
        key: &'static str,
        wanted: ExpectedValue,
        default: T,
        parse: impl FnOnce(DeValue<'t>, ExpectedValue) -> Result<T, Problem>,
    ) -> ParsedValue<T> {
        // Before the key is looked up: suggestions and variables need the keys that no text has,
        // too.
        self.diagnostics.note_known(KnownKey { table: self.path.clone(), key, expected: wanted.clone() });
        let is_table = matches!(wanted, ExpectedValue::Table(_));
        let mut given = ParsedValue {
            value: default,
            key: match (is_table, self.path.as_str()) {
                (true, path) => format!("[{}]", joined(path, key)),
                (false, path) => format!("[{path}] {key}"),
            },
            span: None,
            is_valid: true,
        };
        let Some(value) = self.entries.remove(key) else {
            return given;
        };
        given.span = Some(value.span());
        if !is_table {
            self.diagnostics.note_value(joined(&self.path, key), value.span().start);
        }
        // After an error the default remains, so that everything else is still checked.
        match parse(value.into_inner(), wanted) {
            Ok(value) => given.value = value,
            Err(problem) => {
                given.is_valid = false;
                self.diagnostics.reject(&given, problem);
            }
        }
        given
    }

    /// Reports every key that was not taken.
    fn finish(self) {
        for (key, value) in &self.entries {
            self.diagnostics.note_unknown(UnknownKey {
                offset: key.span().start,
                table: self.path.clone(),
                key: key.get_ref().clone().into_owned(),
                is_table: matches!(value.get_ref(), DeValue::Table(_)),
            });
        }
    }
}

/// Parses a whole number within `range`.
fn whole(value: &DeValue<'_>, range: &RangeInclusive<u64>, wanted: ExpectedValue) -> Result<u64, Problem> {
    match value {
        DeValue::Integer(digits) if digits.as_str().starts_with('-') => Err(Problem::TooSmall { wanted }),
        // The parser keeps the digits as text: a number of more than 64 bits is too large, not
        // malformed.
        DeValue::Integer(digits) => match u64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => within(number, range, wanted),
            Err(_) if digits.as_str().is_empty() => {
                Err(Problem::WrongType { found: "an incomplete number", expected: wanted })
            }
            Err(_) => Err(Problem::TooLarge { wanted }),
        },
        other => Err(wrong_type(other, wanted)),
    }
}

/// Parses a percentage; returns hundredths of a percent, saturating.
fn basis_points(text: &str) -> Result<u32, UnitError> {
    let number = text.strip_suffix('%').ok_or(UnitError::NoUnit)?.trim_end_matches(' ');
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "00"));
    // No floating point, so that each share is exact. `parse` alone would accept a plus sign.
    let is_plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(fraction) {
        return Err(UnitError::NoNumber);
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 2 {
        return Err(UnitError::NotWhole { smallest: "hundredths of a percent" });
    }
    let fraction: u32 = format!("{fraction:0<2}").parse().map_err(|_| UnitError::NoNumber)?;
    // Only too many digits fail here; saturated, they are reported as above the range.
    let whole: u32 = whole.parse().unwrap_or(u32::MAX);
    Ok(whole.saturating_mul(100).saturating_add(fraction))
}

/// Checks that a parsed duration or size is within `range`.
pub(super) fn with_unit<T: PartialOrd>(
    value: Result<T, UnitError>,
    range: &RangeInclusive<T>,
    wanted: ExpectedValue,
) -> Result<T, Problem> {
    match value {
        Ok(value) => within(value, range, wanted),
        Err(error) => Err(Problem::BadUnit { error, wanted }),
    }
}

fn within<T: PartialOrd>(value: T, range: &RangeInclusive<T>, wanted: ExpectedValue) -> Result<T, Problem> {
    if value < *range.start() {
        return Err(Problem::TooSmall { wanted });
    }
    if value > *range.end() {
        return Err(Problem::TooLarge { wanted });
    }
    Ok(value)
}

/// Returns the strings of a list.
pub(super) fn texts(value: DeValue<'_>, wanted: &ExpectedValue) -> Result<Vec<String>, Problem> {
    let DeValue::Array(items) = value else {
        return Err(wrong_type(&value, wanted.clone()));
    };
    items
        .into_iter()
        .map(|item| match item.into_inner() {
            DeValue::String(text) => Ok(text.into_owned()),
            other => Err(wrong_type(&other, wanted.clone())),
        })
        .collect()
}

/// Returns whether a path is absolute and has no `..`.
fn is_absolute(path: &str) -> bool {
    let goes_up = path.split('/').any(|part| part == "..");
    path.len() > 1 && path.starts_with('/') && !path.contains('\0') && !goes_up
}

pub(super) fn wrong_type(value: &DeValue<'_>, wanted: ExpectedValue) -> Problem {
    let found = match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number without quotes",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    Problem::WrongType { found, expected: wanted }
}
