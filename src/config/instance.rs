//! Which instances does a file name, and what does each of them read?

use std::path::PathBuf;

use super::default;
use super::document::{WrittenSource, common};
use super::error::Problem;
use super::readout::{Command, Format, FormatWord, Origin, Readout};
use super::source::{Source, SourceName};
use super::table::Table;
use super::wanted::Wanted;

/// One instance of `name` from its own table.
pub(super) fn instance(
    table: &mut Table<'_, '_>,
    name: SourceName,
    instance: String,
) -> (Source, WrittenSource) {
    let (mut source, written) = common(table, Source::by_default(name));
    source.instance = Some(instance);
    let origin = match name {
        SourceName::Command => command(table),
        _ => file(table),
    };
    let format = format(table);
    source.readout = format.map(|format| Readout { origin, format });
    (source, written)
}

/// Where it is not given, that is noted as an error, and the result is a stand-in.
fn file(table: &mut Table<'_, '_>) -> Origin {
    let path = table.absolute_path("path", PathBuf::new());
    if !path.is_written() {
        table.miss(&path, Wanted::AbsolutePath);
    }
    Origin::File(path.value)
}

fn command(table: &mut Table<'_, '_>) -> Origin {
    let words = table.command("command");
    if !words.is_written() {
        table.miss(&words, Wanted::Command);
    }
    let timeout = table.duration("timeout", default::TIMEOUT, &default::TIMEOUT_RANGE).value;
    Origin::Command(Command { words: words.value, timeout, named_in: None })
}

/// None where the expression is missing or wrong, which is an error of its own.
fn format(table: &mut Table<'_, '_>) -> Option<Format> {
    let format = table.word("format", default::FORMAT);
    let expression = table.expression("pattern");
    if format.value == FormatWord::Pairs {
        if format.is_sound && expression.is_written() && !table.is_overruled(&expression, &format) {
            table.reject(&expression, Problem::RegexOnly);
        }
        return Some(Format::Pairs);
    }
    if !expression.is_written() {
        table.miss(&expression, Wanted::Expression);
    }
    expression.value.map(Format::Regex)
}
