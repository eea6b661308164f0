//! The types of settings. Each type defines how a value is read from TOML, checked and written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem::discriminant;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use flatcap_format::block::{Codec, Layout};
use flatcap_format::schema::nearest_name;
use flatcap_recorder::ingest::PayloadVerification;
use flatcap_recorder::{MinFree, SyncPolicy};
use flatcap_sampling::sources::CATALOG;
use flatcap_sampling::{
    ARG_BYTES_MAX, ARGV_MAX, Expression, PATTERNS_MAX, PROCESSES_MAX, Pattern, SyntheticLayout, ValueFormat,
};
use flatcap_slab::{OnFull, PAGE_BYTES};
use flatcap_stream::ChecksumKind;
use flatcap_text::quantity::{CpuShare, Quantity};
use flatcap_trigger::SampleCondition;
use toml::Spanned;
use toml::de::DeValue;

use super::compress::{COMPRESS_SOURCES_MAX, SourceCompressionConfig};
use super::expected_value::{
    ACCOUNT_BYTES_MAX, ACCOUNTS_MAX, ExpectedValue, FILE_SYSTEM_BYTES_MAX, LABEL_NAME_BYTES_MAX,
    LABEL_VALUE_BYTES_MAX, LABELS_MAX, MIN_FREE_POINTS_MAX, PUSHED_SOURCE_BYTES_MAX, PUSHED_SOURCES_MAX,
    SOCKET_PATH_BYTES_MAX,
};
use super::keyword_setting::KeywordSetting;
use super::value_error::ValueError;

/// The keyword that is written instead of a codec to turn compression off.
const OFF: &str = "off";
/// The keyword that is written instead of a size if the size follows from the host.
const AUTO: &str = "auto";
/// Maximum length of a process id or process name, in bytes. The kernel stores much shorter names.
const PROCESS_BYTES_MAX: usize = 63;
/// Default of `sync_interval`. A power loss costs at most one second of samples, and syncing takes
/// well under 1 ms per second.
pub(super) const SYNC_INTERVAL_NS: u64 = 1_000_000_000;
/// Placeholder for the pattern of a text source until its key is read. Without that key, the
/// configuration is refused.
const ANY_VALUE: &str = "(.*)";

/// A type of values that keys can have.
pub(super) trait Setting: Clone + PartialEq + 'static {
    /// Parses and checks a value. `expected` contains the limits.
    ///
    /// # Errors
    /// The value is not one of the expected values.
    fn read(value: DeValue<'_>, expected: &ExpectedValue) -> Result<Self, ValueError>;

    /// Returns the value as TOML. [`Setting::read`] parses this TOML to an equal value.
    fn write(&self, expected: &ExpectedValue) -> String;

    /// Returns whether a key has the same value in `self` and `other`. If several keys set parts of
    /// a value, only the part that the key of this type sets is compared.
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

/// Implements [`Setting`] for a type, given the bodies of `read` and `write`, and of `is_same` if
/// it differs from the default.
// This is a macro, because the signatures would take up half of this file.
macro_rules! setting {
    (
        $type:ty $(where $generic:ident)?:
        |$value:ident, $expected:tt| $read:expr,
        |$self:ident, $also_expected:tt| $write:expr
        $(, |$one:ident, $other:ident| $is_same:expr)?
    ) => {
        impl$(<$generic: KeywordSetting>)? Setting for $type {
            fn read($value: DeValue<'_>, $expected: &ExpectedValue) -> Result<Self, ValueError> {
                $read
            }

            fn write(&self, $also_expected: &ExpectedValue) -> String {
                let $self = self;
                $write
            }

            $(fn is_same(&self, $other: &Self) -> bool {
                let $one = self;
                $is_same
            })?
        }
    };
}

setting! {
    bool:
    |value, _| match value {
        DeValue::Boolean(flag) => Ok(flag),
        other => Err(ValueError::wrong_type(&other)),
    },
    |flag, _| flag.to_string()
}

/// Implements [`Setting`] for number types by conversion to and from 64 bits.
macro_rules! numbers {
    ($($type:ty: |$number:ident| $from:expr, |$value:ident| $into:expr;)+) => {$(
        setting! {
            $type:
            |value, expected| {
                let $number = number(&value, expected)?;
                $from
            },
            |value, expected| {
                let $value = value;
                let quantity = expected.quantity().map_or(Quantity::Count, |(quantity, _)| quantity);
                let text = quantity.format($into);
                if quantity == Quantity::Count { text } else { quoted(&text) }
            }
        }
    )+};
}

numbers! {
    u8: |number| Self::try_from(number).map_err(|_| ValueError::TooLarge), |value| u64::from(*value);
    u32: |number| Self::try_from(number).map_err(|_| ValueError::TooLarge), |value| u64::from(*value);
    u64: |number| Ok(number), |value| *value;
    usize: |number| Self::try_from(number).map_err(|_| ValueError::TooLarge), |value| *value as u64;
    Duration: |number| Ok(Self::from_nanos(number)),
        // The longest duration that any key accepts is ten years, which fits into 64 bits.
        |value| u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
    CpuShare: |number| match u32::try_from(number) {
        Ok(points) => Ok(Self::of_basis_points(points)),
        Err(_) => Err(ValueError::TooLarge),
    }, |value| u64::from(value.basis_points());
}

setting! {
    MinFree:
    |value, _| {
        let text = string(value)?;
        if text == AUTO {
            return Ok(Self::Auto);
        }
        if !text.ends_with('%') {
            let bytes = Quantity::Bytes.parse(&text)?;
            return within(bytes, &(0..=FILE_SYSTEM_BYTES_MAX)).map(Self::Bytes);
        }
        let points = within(Quantity::BasisPoints.parse(&text)?, &(0..=MIN_FREE_POINTS_MAX))?;
        u16::try_from(points).map(Self::BasisPoints).map_err(|_| ValueError::TooLarge)
    },
    |free, _| quoted(&match free {
        Self::Auto => AUTO.to_owned(),
        Self::Bytes(bytes) => Quantity::Bytes.format(*bytes),
        Self::BasisPoints(points) => Quantity::BasisPoints.format(u64::from(*points)),
    })
}

setting! {
    T where T:
    |value, _| Self::find(&string(value)?).ok_or(ValueError::NotAllowed),
    |word, _| quoted(word.keyword())
}

setting! {
    Vec<T> where T:
    |value, expected| {
        let mut words = Self::new();
        for text in strings(value)? {
            let word = T::find(&text).ok_or(ValueError::NotAllowed)?;
            if words.contains(&word) {
                return Err(ValueError::DuplicateItem { item: text });
            }
            words.push(word);
        }
        let is_fit = !words.is_empty() || matches!(expected, ExpectedValue::KeywordsOrNone(_));
        if is_fit { Ok(words) } else { Err(ValueError::NotAllowed) }
    },
    |words, _| list(words.iter().map(|word| quoted(word.keyword())))
}

/// An enum of another module that is the value of a key. The value of the key selects a variant. If
/// the variant has fields, each field has its own key.
pub(super) trait Variants: Sized {
    /// Returns each variant with its keyword and with the default values of its fields.
    fn variants() -> Vec<(&'static str, Self)>;
}

/// Returns the expectation that the value is the keyword of a variant.
pub(super) fn variants<T: Variants>() -> ExpectedValue {
    ExpectedValue::Keyword(T::variants().into_iter().map(|(word, _)| word).collect())
}

/// Implements [`Variants`] and [`Setting`] for the given types, from a list of their variants.
macro_rules! variants {
    ($($type:ty: $variants:expr;)+) => {$(
        impl Variants for $type {
            fn variants() -> Vec<(&'static str, Self)> {
                $variants
            }
        }

        setting! {
            $type:
            |value, _| {
                let word = string(value)?;
                let variant = Self::variants().into_iter().find(|(of, _)| *of == word);
                variant.map(|(_, variant)| variant).ok_or(ValueError::NotAllowed)
            },
            |variant, _| {
                let found = Self::variants().into_iter().find(|(_, of)| of.is_same(variant));
                quoted(found.map_or("", |(word, _)| word))
            },
            |one, other| discriminant(one) == discriminant(other)
        }
    )+};
}

variants! {
    ChecksumKind: Self::ALL.iter().map(|kind| (kind.name(), *kind)).collect();
    Layout: Self::ALL.iter().map(|layout| (layout.name(), *layout)).collect();
    OnFull:
        vec![("drop-newest", Self::DropNewest), ("drop-oldest", Self::DropOldest), ("block", Self::Block)];
    PayloadVerification: vec![("all", Self::All), ("first", Self::First), ("none", Self::None)];
    SyncPolicy: vec![
        ("never", Self::Never),
        ("interval", Self::Interval(SYNC_INTERVAL_NS)),
        ("always", Self::Always),
    ];
    // By default, the layout `wide` has as many fields as a sample of a typical host, without
    // padding.
    SyntheticLayout: vec![("point", Self::Point), ("wide", Self::Wide { fields: 64, payload_bytes: 0 })];
    ValueFormat: {
        let regex = Expression::new(ANY_VALUE).map(Self::Regex);
        let formats = [Self::Pairs].into_iter().chain(regex).chain([Self::Prometheus, Self::Json]);
        formats.map(|format| (format.name(), format)).collect()
    };
}

setting! {
    Expression:
    |value, _| Self::new(&string(value)?).map_err(|reason| ValueError::BadExpression { reason }),
    |expression, _| quoted(expression.as_str())
}

// A condition of a rule. An empty string means no condition.
setting! {
    Option<SampleCondition>:
    |value, expected| {
        let text = string(value)?;
        if text.is_empty() && *expected == ExpectedValue::ConditionOrEmpty {
            return Ok(None);
        }
        let parsed = text.parse::<SampleCondition>().map(Some);
        parsed.map_err(|error| ValueError::BadCondition { reason: error.to_string() })
    },
    |condition, _| quoted(condition.as_ref().map_or("", SampleCondition::as_str))
}

setting! {
    PathBuf:
    |value, expected| {
        let text = string(value)?;
        match expected {
            ExpectedValue::AbsolutePath if !is_absolute(&text) => Err(ValueError::NotAbsolute),
            ExpectedValue::SocketPath if !text.is_empty() && !is_socket_path(&text) => {
                Err(ValueError::BadSocketPath)
            }
            ExpectedValue::Path if text.is_empty() => Err(ValueError::BadPath),
            // System calls end a path at a zero byte, and without this check the error would come
            // only when the path is used.
            _ if text.contains('\0') => Err(ValueError::BadPath),
            _ => Ok(Self::from(text)),
        }
    },
    |path, _| quoted(&path.to_string_lossy())
}

// An address to listen on. If only a port is given, the address is the loopback address.
setting! {
    Option<SocketAddr>:
    |value, _| {
        let text = string(value)?;
        if text.is_empty() {
            return Ok(None);
        }
        // `parse` alone would accept a plus sign before the port.
        let is_port = text.bytes().all(|byte| byte.is_ascii_digit());
        let port = || text.parse().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok();
        let address = if is_port { port() } else { text.parse().ok() };
        // For port 0 the kernel would choose a free port, and no scraper could know its number.
        let address = address.filter(|address| address.port() != 0);
        address.map(Some).ok_or(ValueError::BadSocketAddress)
    },
    |address, _| quoted(&address.map(|address| address.to_string()).unwrap_or_default())
}

setting! {
    Vec<Pattern>:
    |value, _| {
        // The patterns are counted first, because each pattern must be compiled.
        if matches!(&value, DeValue::Array(items) if items.len() > PATTERNS_MAX) {
            return Err(ValueError::TooLarge);
        }
        let pattern = |text: String| {
            Pattern::new(&text).map_err(|reason| ValueError::BadPattern { pattern: text, reason })
        };
        strings(value)?.into_iter().map(pattern).collect()
    },
    |patterns, _| list(patterns.iter().map(|pattern| quoted(pattern.as_str())))
}

// A list of whole numbers without duplicates, sorted.
setting! {
    Vec<u32>:
    |value, expected| {
        let DeValue::Array(items) = value else { return Err(ValueError::wrong_type(&value)) };
        let mut numbers = Self::new();
        for item in items {
            let number = number(&item.into_inner(), expected)?;
            let number = u32::try_from(number).map_err(|_| ValueError::TooLarge)?;
            if numbers.contains(&number) {
                return Err(ValueError::DuplicateItem { item: number.to_string() });
            }
            numbers.push(number);
        }
        // The numbers are sorted, so that the same numbers in another order are an equal
        // configuration.
        numbers.sort_unstable();
        Ok(numbers)
    },
    |numbers, _| list(numbers.iter().map(ToString::to_string))
}

// The arguments of a command, accounts, names of pushed sources, or ids or names of processes.
setting! {
    Vec<String>:
    |value, expected| {
        let mut texts = strings(value)?;
        if texts.is_empty() && *expected == ExpectedValue::CommandOrNone {
            return Ok(texts);
        }
        if matches!(expected, ExpectedValue::Command | ExpectedValue::CommandOrNone) {
            let is_argument = |text: &String| text.len() <= ARG_BYTES_MAX && !text.contains('\0');
            let is_command = texts.first().is_some_and(|program| is_absolute(program));
            let is_fit = is_command && texts.len() <= ARGV_MAX && texts.iter().all(is_argument);
            return if is_fit { Ok(texts) } else { Err(ValueError::BadCommand) };
        }
        let is_process = |text: &String| {
            (1..=PROCESS_BYTES_MAX).contains(&text.len()) && !text.contains(['\0', '\n'])
        };
        let is_source = |text: &String| {
            (1..=PUSHED_SOURCE_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
        };
        let (count_max, is_item): (usize, &dyn Fn(&String) -> bool) = match expected {
            ExpectedValue::Accounts => (ACCOUNTS_MAX, &|text| is_account(text)),
            ExpectedValue::PushedSources => (PUSHED_SOURCES_MAX, &is_source),
            _ => (PROCESSES_MAX, &is_process),
        };
        let count = texts.len();
        texts.sort();
        texts.dedup();
        let is_fit = count <= count_max && texts.len() == count && texts.iter().all(is_item);
        if is_fit { Ok(texts) } else { Err(ValueError::NotAllowed) }
    },
    |texts, _| list(texts.iter().map(|text| quoted(text)))
}

// Labels. The names must be valid for Prometheus, so that labels can be exported unchanged.
setting! {
    BTreeMap<String, String>:
    |value, _| {
        let DeValue::Table(entries) = value else { return Err(ValueError::wrong_type(&value)) };
        if entries.len() > LABELS_MAX {
            return Err(ValueError::TooLarge);
        }
        let label = |(name, value): (Spanned<Cow<'_, str>>, Spanned<DeValue<'_>>)| {
            let (name, value) = (name.into_inner().into_owned(), string(value.into_inner())?);
            let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
            let is_name = starts_well
                && name.len() <= LABEL_NAME_BYTES_MAX
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let is_value = (1..=LABEL_VALUE_BYTES_MAX).contains(&value.len())
                && !value.contains(|c: char| c.is_control());
            if is_name && is_value { Ok((name, value)) } else { Err(ValueError::BadLabel { name }) }
        };
        entries.into_iter().map(label).collect()
    },
    |labels, _| {
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name} = {}", quoted(value))).collect();
        if labels.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", labels.join(", ")) }
    }
}

setting! {
    Codec:
    |value, _| string(value)?.parse().map_err(|_| ValueError::NotAllowed),
    |codec, _| quoted(&codec.to_string())
}

setting! {
    Option<Codec>:
    |value, expected| match value {
        DeValue::String(text) if text == OFF => Ok(None),
        other => Codec::read(other, expected).map(Some),
    },
    |codec, expected| codec.map_or_else(|| quoted(OFF), |codec| codec.write(expected))
}

setting! {
    Vec<SourceCompressionConfig>:
    |value, _| {
        let mut sources = Self::new();
        for text in strings(value)? {
            // The limit is checked before the search for the source's name, since the search is
            // quadratic in a long list.
            if sources.len() == COMPRESS_SOURCES_MAX {
                return Err(ValueError::TooLarge);
            }
            let source: SourceCompressionConfig =
                text.parse().map_err(|reason| ValueError::BadCompression { reason })?;
            // A misspelt name would otherwise silently leave the source with the general codec.
            if !source.names_a_source() {
                let known: Vec<String> = CATALOG.iter().map(|spec| spec.name.to_owned()).collect();
                let near = nearest_name(&source.name, known.iter().map(String::as_str)).map(str::to_owned);
                return Err(ValueError::UnknownSource { near, known });
            }
            if sources.iter().any(|other: &SourceCompressionConfig| other.name == source.name) {
                return Err(ValueError::DuplicateItem { item: source.name });
            }
            sources.push(source);
        }
        Ok(sources)
    },
    |sources, _| list(sources.iter().map(|source| quoted(&source.to_string())))
}

/// Returns the text as a TOML basic string.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // TOML forbids control characters in strings. The last control character is U+009F, so
            // four digits suffice.
            c if c.is_control() => quoted.extend(format!("\\u{:04X}", u32::from(c)).chars()),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn string(value: DeValue<'_>) -> Result<String, ValueError> {
    match value {
        DeValue::String(text) => Ok(text.into_owned()),
        other => Err(ValueError::wrong_type(&other)),
    }
}

fn strings(value: DeValue<'_>) -> Result<Vec<String>, ValueError> {
    match value {
        DeValue::Array(items) => items.into_iter().map(|item| string(item.into_inner())).collect(),
        other => Err(ValueError::wrong_type(&other)),
    }
}

/// Parses a number and checks that it is within the expected limits.
fn number(value: &DeValue<'_>, expected: &ExpectedValue) -> Result<u64, ValueError> {
    let number = match (expected.quantity(), value) {
        (Some((Quantity::Count, _)), DeValue::Integer(digits)) => {
            if digits.as_str().starts_with('-') {
                return Err(ValueError::TooSmall);
            }
            // The parser keeps the digits as a string, so a number of more than 64 bits is reported
            // as too large and not as malformed.
            u64::from_str_radix(digits.as_str(), digits.radix()).map_err(|_| match digits.as_str() {
                "" => ValueError::WrongType { found: "an incomplete number" },
                _ => ValueError::TooLarge,
            })?
        }
        (Some((quantity, _)), DeValue::String(text)) if quantity != Quantity::Count => {
            quantity.parse(text)?
        }
        _ => return Err(ValueError::wrong_type(value)),
    };
    let number = expected.quantity().map_or(Ok(number), |(_, range)| within(number, range))?;
    match expected {
        ExpectedValue::Pages(_) if !number.is_multiple_of(PAGE_BYTES as u64) => {
            Err(ValueError::NotMultiple { of: PAGE_BYTES as u64 })
        }
        _ => Ok(number),
    }
}

fn within(number: u64, range: &RangeInclusive<u64>) -> Result<u64, ValueError> {
    match number {
        number if number < *range.start() => Err(ValueError::TooSmall),
        number if number > *range.end() => Err(ValueError::TooLarge),
        number => Ok(number),
    }
}

/// Returns whether a path is absolute and has no `..`.
fn is_absolute(path: &str) -> bool {
    let goes_up = path.split('/').any(|part| part == "..");
    path.len() > 1 && path.starts_with('/') && !path.contains('\0') && !goes_up
}

/// Returns whether a string is `user:NAME` or `group:NAME`.
fn is_account(text: &str) -> bool {
    let name = text.strip_prefix("user:").or_else(|| text.strip_prefix("group:")).unwrap_or_default();
    (1..=ACCOUNT_BYTES_MAX).contains(&name.len()) && !name.contains(|c: char| c.is_control() || c == ':')
}

fn is_socket_path(path: &str) -> bool {
    is_absolute(path) && path.len() <= SOCKET_PATH_BYTES_MAX
}
