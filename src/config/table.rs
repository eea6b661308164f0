//! How is a parsed TOML table emptied key by key, so that nothing in it goes unnoticed?

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::default::{KEEP_FREE_PERCENT_MAX, PAGE_BYTES};
use super::error::Problem;
use super::event::PROCESSES_MAX;
use super::pattern::{PATTERNS_MAX, Pattern};
use super::readout::{Expression, INSTANCES_MAX, WORD_BYTES_MAX, WORDS_MAX, is_instance_name};
use super::settings::{KeepFree, SOCKET_PATH_BYTES_MAX};
use super::source::CpuShare;
use super::units::{UnitError, parse_duration, parse_size};
use super::walk::{Given, Known, Unknown, Walk, joined};
use super::wanted::Wanted;
use super::word::Word;

/// A table of the document from which keys are taken.
#[derive(Debug)]
pub(super) struct Table<'w, 't> {
    walk: &'w mut Walk<'t>,
    path: String,
    at: Option<usize>, // where its name stands, for instances
    entries: DeTable<'t>,
}

impl<'t> Table<'_, 't> {
    /// Reads a whole document by `read`.
    pub(super) fn root<T>(
        walk: &mut Walk<'t>,
        entries: DeTable<'t>,
        read: impl FnOnce(&mut Table<'_, 't>) -> T,
    ) -> T {
        let mut table = Table { walk, path: String::new(), at: None, entries };
        let value = read(&mut table);
        table.finish();
        value
    }

    /// Reads the table `key` of this one by `read`; an absent table is an empty one.
    pub(super) fn table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Table<'_, 't>) -> T) -> T {
        let path = joined(&self.path, key);
        let wanted = Wanted::Table(path.clone());
        let entries = self.take(key, wanted, DeTable::new(), |value, wanted| match value {
            DeValue::Table(entries) => Ok(entries),
            other => Err(wrong_type(&other, wanted)),
        });
        let mut table = Table { walk: &mut *self.walk, path, at: None, entries: entries.value };
        let value = read(&mut table);
        table.finish();
        value
    }

    /// Reads each table of this one by `read`, with its name.
    pub(super) fn instances<T>(&mut self, mut read: impl FnMut(&mut Table<'_, 't>, String) -> T) -> Vec<T> {
        let mut instances = Vec::new();
        for (key, value) in std::mem::take(&mut self.entries) {
            let name: String = key.get_ref().clone().into_owned();
            let DeValue::Table(entries) = value.into_inner() else {
                self.walk.reject_at(
                    key.span().start,
                    &format!("[{}] {name}", self.path),
                    Problem::NoInstance { table: self.path.clone() },
                );
                continue;
            };
            if !is_instance_name(&name) {
                self.walk.reject_key(key.span(), Problem::BadInstanceName);
                continue;
            }
            if instances.len() == INSTANCES_MAX {
                self.walk.reject_key(key.span(), Problem::TooManyInstances { limit: INSTANCES_MAX });
                break;
            }
            let path = joined(&self.path, &name);
            let mut table = Table { walk: &mut *self.walk, path, at: Some(key.span().start), entries };
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
    ) -> Given<u64> {
        self.take(key, Wanted::Size(range.clone()), default, |value, wanted| match value {
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
    ) -> Given<u64> {
        let mut given = self.size(key, default, range);
        if given.is_sound && !given.value.is_multiple_of(PAGE_BYTES) {
            given.is_sound = false;
            let wanted = Wanted::Size(range.clone());
            self.walk.reject(&given, Problem::NotMultiple { of: PAGE_BYTES, wanted });
        }
        given
    }

    /// Takes a size in bytes, or a share of the file system in percent.
    pub(super) fn share(
        &mut self,
        key: &'static str,
        default: KeepFree,
        range: &RangeInclusive<u64>,
    ) -> Given<KeepFree> {
        self.take(key, Wanted::Share(KEEP_FREE_PERCENT_MAX), default, |value, wanted| match value {
            DeValue::String(text) => match text.strip_suffix('%') {
                Some(percent) => match percent.trim_end_matches(' ').parse() {
                    Ok(percent) if percent > KEEP_FREE_PERCENT_MAX => Err(Problem::TooLarge { wanted }),
                    Ok(percent) => Ok(KeepFree::Percent(percent)),
                    Err(_) => Err(Problem::BadUnit { error: UnitError::NoNumber, wanted }),
                },
                None => with_unit(parse_size(&text), range, wanted).map(KeepFree::Size),
            },
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a share of one core in percent, with up to two digits behind the point.
    pub(super) fn cpu_share(
        &mut self,
        key: &'static str,
        default: CpuShare,
        range: &RangeInclusive<CpuShare>,
    ) -> Given<CpuShare> {
        self.take(key, Wanted::CpuShare(range.clone()), default, |value, wanted| match value {
            DeValue::String(text) => {
                with_unit(basis_points(&text).map(CpuShare::of_basis_points), range, wanted)
            }
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a list of patterns; none where the file gives none.
    pub(super) fn patterns(&mut self, key: &'static str) -> Given<Vec<Pattern>> {
        self.take(key, Wanted::Patterns, Vec::new(), |value, wanted| match value {
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
    ) -> Given<Duration> {
        self.take(key, Wanted::Duration(range.clone()), default, |value, wanted| match value {
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
    ) -> Given<u64> {
        self.take(key, Wanted::Number(range.clone()), default, |value, wanted| whole(&value, range, wanted))
    }

    /// Takes a list of whole numbers, none of them twice; in order.
    pub(super) fn numbers(&mut self, key: &'static str, range: &RangeInclusive<u64>) -> Given<Vec<u64>> {
        self.take(key, Wanted::Numbers(range.clone()), Vec::new(), |value, wanted| {
            let DeValue::Array(items) = value else { return Err(wrong_type(&value, wanted)) };
            let numbers = items.into_iter().map(|item| whole(&item.into_inner(), range, wanted.clone()));
            let mut numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
            numbers.sort_unstable();
            match numbers.windows(2).find(|pair| pair.first() == pair.last()) {
                Some(pair) => {
                    let twice = pair.first().copied().unwrap_or_default();
                    Err(Problem::WordTwice { word: twice.to_string() })
                }
                None => Ok(numbers),
            }
        })
    }

    /// Takes a yes or no.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> Given<bool> {
        self.take(key, Wanted::Flag, default, |value, wanted| match value {
            DeValue::Boolean(flag) => Ok(flag),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes one of a few words.
    pub(super) fn word<T: Word>(&mut self, key: &'static str, default: T) -> Given<T> {
        self.take(key, Wanted::Word(T::words()), default, |value, wanted| match value {
            DeValue::String(text) => T::find(&text).ok_or(Problem::NotAllowed { wanted }),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a path that the system could open: not empty, no zero byte.
    pub(super) fn path(&mut self, key: &'static str, default: PathBuf) -> Given<PathBuf> {
        self.take(key, Wanted::Path, default, |value, wanted| match value {
            DeValue::String(text) if text.is_empty() || text.contains('\0') => {
                Err(Problem::BadPath { wanted })
            }
            DeValue::String(text) => Ok(PathBuf::from(text.into_owned())),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a path, or an empty text for none.
    pub(super) fn path_or_empty(&mut self, key: &'static str, default: PathBuf) -> Given<PathBuf> {
        self.take(key, Wanted::Path, default, |value, wanted| match value {
            DeValue::String(text) if text.contains('\0') => Err(Problem::BadPath { wanted }),
            DeValue::String(text) => Ok(PathBuf::from(text.into_owned())),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a path from the root on.
    pub(super) fn absolute_path(&mut self, key: &'static str, default: PathBuf) -> Given<PathBuf> {
        self.take(key, Wanted::AbsolutePath, default, |value, wanted| match value {
            DeValue::String(text) if is_absolute(&text) => Ok(PathBuf::from(text.into_owned())),
            DeValue::String(_) => Err(Problem::NotAbsolute { wanted }),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes an absolute path that fits into the address of a socket, or an empty text for none.
    pub(super) fn socket_path(&mut self, key: &'static str, default: PathBuf) -> Given<PathBuf> {
        let is_fit =
            |text: &str| text.is_empty() || (is_absolute(text) && text.len() <= SOCKET_PATH_BYTES_MAX);
        self.take(key, Wanted::SocketPath, default, |value, wanted| match value {
            DeValue::String(text) if is_fit(&text) => Ok(PathBuf::from(text.into_owned())),
            DeValue::String(_) => Err(Problem::BadSocketPath { wanted }),
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes an address to listen on; none where it is empty. A port alone is one of the loopback address.
    pub(super) fn socket_address(&mut self, key: &'static str) -> Given<Option<SocketAddr>> {
        self.take(key, Wanted::SocketAddress, None, |value, wanted| match value {
            DeValue::String(text) if text.is_empty() => Ok(None),
            DeValue::String(text) => {
                let is_port = text.bytes().all(|byte| byte.is_ascii_digit());
                let port = || text.parse().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok();
                let address = if is_port { port() } else { text.parse().ok() };
                let address = address.filter(|address| address.port() != 0);
                address.map(Some).ok_or(Problem::BadSocketAddress { wanted })
            }
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a program's absolute path and its arguments.
    pub(super) fn command(&mut self, key: &'static str) -> Given<Vec<String>> {
        let is_word = |word: &String| word.len() <= WORD_BYTES_MAX && !word.contains('\0');
        self.take(key, Wanted::Command, Vec::new(), |value, wanted| {
            let words = texts(value, &wanted)?;
            let is_command = words.first().is_some_and(|program| is_absolute(program));
            if is_command && words.len() <= WORDS_MAX && words.iter().all(is_word) {
                Ok(words)
            } else {
                Err(Problem::BadCommand { wanted })
            }
        })
    }

    /// Takes a regular expression.
    pub(super) fn expression(&mut self, key: &'static str) -> Given<Option<Expression>> {
        self.take(key, Wanted::Expression, None, |value, wanted| match value {
            DeValue::String(text) => {
                Expression::new(&text).map(Some).map_err(|reason| Problem::BadExpression { reason, wanted })
            }
            other => Err(wrong_type(&other, wanted)),
        })
    }

    /// Takes a list of some of a few words, none of them twice.
    pub(super) fn words<T: Word + PartialEq>(&mut self, key: &'static str, default: Vec<T>) -> Given<Vec<T>> {
        self.take(key, Wanted::Words(T::words()), default, |value, wanted| {
            let mut words = Vec::new();
            for text in texts(value, &wanted)? {
                match T::find(&text) {
                    Some(word) if words.contains(&word) => return Err(Problem::WordTwice { word: text }),
                    Some(word) => words.push(word),
                    None => return Err(Problem::NotAllowed { wanted }),
                }
            }
            if words.is_empty() { Err(Problem::NotAllowed { wanted }) } else { Ok(words) }
        })
    }

    /// Takes numbers or names of processes; none where the file gives none.
    pub(super) fn processes(&mut self, key: &'static str) -> Given<Vec<String>> {
        let is_process = |text: &String| (1..=63).contains(&text.len()) && !text.contains(['\0', '\n']);
        self.take(key, Wanted::Processes, Vec::new(), |value, wanted| {
            let mut processes = texts(value, &wanted)?;
            let count = processes.len();
            processes.sort();
            processes.dedup();
            let is_fit =
                count <= PROCESSES_MAX && processes.len() == count && processes.iter().all(is_process);
            if is_fit { Ok(processes) } else { Err(Problem::NotAllowed { wanted }) }
        })
    }

    /// Notes that a key is not there that must be.
    pub(super) fn miss<T>(&mut self, given: &Given<T>, wanted: Wanted) {
        self.walk.reject_at(self.at.unwrap_or(0), &given.key, Problem::Missing { wanted });
    }

    /// Whether a value gave a key its sense away: `by` lies over it, in a later file or a variable. Whoever wrote `by` need not
    /// know of it and could not take it back.
    pub(super) fn is_overruled<T, U>(&self, given: &Given<T>, by: &Given<U>) -> bool {
        matches!((by.offset(), given.offset()), (Some(by), Some(given)) if self.walk.is_over(by, given))
    }

    /// Notes what is wrong with a value that reads well by itself.
    pub(super) fn reject<T>(&mut self, given: &Given<T>, problem: Problem) {
        self.walk.reject(given, problem);
    }

    pub(super) fn take<T>(
        &mut self,
        key: &'static str,
        wanted: Wanted,
        default: T,
        parse: impl FnOnce(DeValue<'t>, Wanted) -> Result<T, Problem>,
    ) -> Given<T> {
        self.walk.note_known(Known { table: self.path.clone(), key, wanted: wanted.clone() });
        let is_table = matches!(wanted, Wanted::Table(_));
        let mut given = Given {
            value: default,
            key: match (is_table, self.path.as_str()) {
                (true, path) => format!("[{}]", joined(path, key)),
                (false, path) => format!("[{path}] {key}"),
            },
            span: None,
            is_sound: true,
        };
        let Some(value) = self.entries.remove(key) else {
            return given;
        };
        given.span = Some(value.span());
        if !is_table {
            self.walk.note_written(joined(&self.path, key), value.span().start);
        }
        match parse(value.into_inner(), wanted) {
            Ok(value) => given.value = value,
            Err(problem) => {
                given.is_sound = false;
                self.walk.reject(&given, problem);
            }
        }
        given
    }

    /// Notes every key that was not taken.
    fn finish(self) {
        for (key, value) in &self.entries {
            self.walk.note_unknown(Unknown {
                offset: key.span().start,
                table: self.path.clone(),
                key: key.get_ref().clone().into_owned(),
                is_table: matches!(value.get_ref(), DeValue::Table(_)),
            });
        }
    }
}

/// A whole number that must lie within `range`.
fn whole(value: &DeValue<'_>, range: &RangeInclusive<u64>, wanted: Wanted) -> Result<u64, Problem> {
    match value {
        DeValue::Integer(digits) if digits.as_str().starts_with('-') => Err(Problem::TooSmall { wanted }),
        DeValue::Integer(digits) => match u64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => within(number, range, wanted),
            Err(_) if digits.as_str().is_empty() => {
                Err(Problem::WrongType { found: "an unfinished number", wanted })
            }
            Err(_) => Err(Problem::TooLarge { wanted }),
        },
        other => Err(wrong_type(other, wanted)),
    }
}

/// A percentage in hundredths of a percent; saturates.
fn basis_points(text: &str) -> Result<u32, UnitError> {
    let number = text.strip_suffix('%').ok_or(UnitError::NoUnit)?.trim_end_matches(' ');
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "00"));
    let is_plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(fraction) {
        return Err(UnitError::NoNumber);
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 2 {
        return Err(UnitError::NotWhole { smallest: "hundredths of a percent" });
    }
    let fraction: u32 = format!("{fraction:0<2}").parse().map_err(|_| UnitError::NoNumber)?;
    let whole: u32 = whole.parse().unwrap_or(u32::MAX);
    Ok(whole.saturating_mul(100).saturating_add(fraction))
}

/// A duration or a size that must lie within `range`.
pub(super) fn with_unit<T: PartialOrd>(
    value: Result<T, UnitError>,
    range: &RangeInclusive<T>,
    wanted: Wanted,
) -> Result<T, Problem> {
    match value {
        Ok(value) => within(value, range, wanted),
        Err(error) => Err(Problem::BadUnit { error, wanted }),
    }
}

fn within<T: PartialOrd>(value: T, range: &RangeInclusive<T>, wanted: Wanted) -> Result<T, Problem> {
    if value < *range.start() {
        return Err(Problem::TooSmall { wanted });
    }
    if value > *range.end() {
        return Err(Problem::TooLarge { wanted });
    }
    Ok(value)
}

/// The texts of a list.
pub(super) fn texts(value: DeValue<'_>, wanted: &Wanted) -> Result<Vec<String>, Problem> {
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

/// Whether a path begins at the root and stays below it.
fn is_absolute(path: &str) -> bool {
    let goes_up = path.split('/').any(|part| part == "..");
    path.len() > 1 && path.starts_with('/') && !path.contains('\0') && !goes_up
}

pub(super) fn wrong_type(value: &DeValue<'_>, wanted: Wanted) -> Problem {
    let found = match value {
        DeValue::String(_) => "a text in quotes",
        DeValue::Integer(_) => "a number without quotes",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    Problem::WrongType { found, wanted }
}
