//! Parses the instances of the `file` and `command` sources.

use std::path::PathBuf;

use super::default;
use super::error::Problem;
use super::expected_value::ExpectedValue;
use super::source::{FormatKeyword, SourceConfig};
use super::source_table::{ParsedSourceKeys, common};
use super::table_reader::TableReader;
use crate::sampling::{CommandSpec, OwnKeys, SourceSpec, TextOrigin, TextSource, ValueFormat};

/// Parses one instance of a source from its table.
pub(super) fn instance(
    table: &mut TableReader<'_, '_>,
    spec: &'static SourceSpec,
    instance: String,
) -> (SourceConfig, ParsedSourceKeys) {
    let (mut source, written) = common(table, SourceConfig::by_default(spec));
    source.instance = Some(instance);
    let origin = match spec.keys {
        OwnKeys::Command => command(table),
        _ => file(table),
    };
    // Without a format an error was reported, so nothing uses the incomplete source.
    let format = format(table);
    source.text_source = format.map(|format| TextSource { origin, format });
    (source, written)
}

/// Parses the path of a `file` instance. A missing path is reported; the returned one is then
/// empty.
fn file(table: &mut TableReader<'_, '_>) -> TextOrigin {
    let path = table.absolute_path("path", PathBuf::new());
    if !path.is_set() {
        table.reject_missing(&path, ExpectedValue::AbsolutePath);
    }
    TextOrigin::File(path.value)
}

fn command(table: &mut TableReader<'_, '_>) -> TextOrigin {
    let words = table.command("command");
    if !words.is_set() {
        table.reject_missing(&words, ExpectedValue::Command);
    }
    let timeout = table.duration("timeout", default::TIMEOUT, &default::TIMEOUT_RANGE).value;
    // Which file defines the command is known only after the layers are merged.
    TextOrigin::Command(CommandSpec { argv: words.value, timeout, defined_in: None })
}

/// Parses the format. Returns `None` if the expression is missing or invalid, which is reported.
fn format(table: &mut TableReader<'_, '_>) -> Option<ValueFormat> {
    let format = table.keyword("format", default::FORMAT);
    let expression = table.expression("pattern");
    if format.value == FormatKeyword::Pairs {
        // A rejected format has its default value here, for which the pattern is not to blame.
        if format.is_valid && expression.is_set() && !table.is_overridden(&expression, &format) {
            table.reject(&expression, Problem::RegexOnly);
        }
        return Some(ValueFormat::Pairs);
    }
    if !expression.is_set() {
        table.reject_missing(&expression, ExpectedValue::Expression);
    }
    expression.value.map(ValueFormat::Regex)
}
