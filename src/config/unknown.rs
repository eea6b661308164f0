//! Finds unknown keys and tables in a document, and suggests the names that were probably meant.

use flatcap_format::schema::nearest_name;
use toml::de::{DeTable, DeValue};

use super::diagnostics::{At, Diagnostics, key_text};
use super::error::ERRORS_MAX;
use super::expected_value::ExpectedValue;
use super::name_hint::name_hint;
use super::settings::Config;
use super::tables::{KnownKey, joined, tables_of_tables};
use super::value_error::ValueError;

/// A key or a table that does not exist.
struct UnknownName {
    offset: usize,
    table: String,
    key: String,
    is_table: bool,
}

/// Reports everything in `rest`, which is the part of a document that remains after the keys of
/// `config` were taken out.
pub(super) fn report(walk: &mut Diagnostics<'_>, rest: &DeTable<'_>, config: &mut Config) {
    let mut tables: Vec<String> = config.tables().into_iter().map(|(name, _)| name).collect();
    tables.extend(tables_of_tables());
    let mut unknown = Vec::new();
    collect(walk, "", rest, &tables, &mut unknown);
    if unknown.is_empty() {
        return;
    }
    // Suggestions are made only for errors that are kept, because this bounds the cost of a hostile
    // file. The errors are sorted before the list is truncated, so that the first errors of the
    // file are kept.
    unknown.sort_by_key(|unknown| unknown.offset);
    walk.reject_more(unknown.len().saturating_sub(ERRORS_MAX));
    unknown.truncate(ERRORS_MAX);
    let keys = config.known_keys();
    for unknown in unknown {
        let at = At::Label(Some(unknown.offset), &unknown.label());
        walk.reject(at, unknown.problem(&keys, &tables));
    }
}

fn collect(
    walk: &mut Diagnostics<'_>,
    table: &str,
    rest: &DeTable<'_>,
    tables: &[String],
    unknown: &mut Vec<UnknownName>,
) {
    for (key, value) in rest {
        let name = joined(table, key.get_ref());
        match value.get_ref() {
            // Names of instances were checked before. Any other name with a dot belongs to no
            // table.
            DeValue::Table(inner) if tables.contains(&name) && !key.get_ref().contains('.') => {
                collect(walk, &name, inner, tables, unknown);
            }
            other if tables.contains(&name) && !key.get_ref().contains('.') => {
                let expected = ExpectedValue::Table(name.clone());
                let problem = ValueError::wrong_type(other).with_advice(&expected);
                walk.reject(At::Value(value.span(), &format!("[{name}]")), problem);
            }
            other => unknown.push(UnknownName {
                offset: key.span().start,
                table: table.to_owned(),
                key: key.get_ref().clone().into_owned(),
                is_table: matches!(other, DeValue::Table(_)),
            }),
        }
    }
}

impl UnknownName {
    fn label(&self) -> String {
        let key = key_text(&self.key);
        match (self.is_table, self.table.as_str()) {
            (true, table) => format!("[{}]", joined(table, &key)),
            (false, "") => key,
            (false, table) => format!("[{table}] {key}"),
        }
    }

    fn problem(&self, keys: &[KnownKey], tables: &[String]) -> String {
        if self.is_table {
            let names = self.sibling_tables(tables);
            let brackets = |key: &str| format!("[{}]", joined(&self.table, key));
            let near = nearest_name(&self.key, names.iter().copied()).map(brackets);
            let known: Vec<String> = names.into_iter().map(brackets).collect();
            return format!("no such table; {}", name_hint(near.as_deref(), &known, "the tables are"));
        }
        let names: Vec<&str> =
            keys.iter().filter(|known| known.table == self.table).map(|known| known.key).collect();
        // A key that exists in another table is in the wrong place and not misspelt.
        if let Some(home) = keys.iter().find(|known| known.key == self.key) {
            return format!("no such key here; it belongs in [{}]", home.table);
        }
        let near = nearest_name(&self.key, names.iter().copied());
        let known: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        format!("no such key here; {}", name_hint(near, &known, "the keys are"))
    }

    /// Returns the names of the tables that can be in the same outer table as this name.
    fn sibling_tables<'n>(&self, tables: &'n [String]) -> Vec<&'n str> {
        let mut names: Vec<&str> = Vec::new();
        for table in tables {
            let inner = match self.table.as_str() {
                "" => Some(table.as_str()),
                parent => table.strip_prefix(parent).and_then(|rest| rest.strip_prefix('.')),
            };
            let name = inner.and_then(|inner| inner.split('.').next());
            names.extend(name.filter(|name| !names.contains(name)));
        }
        names
    }
}
