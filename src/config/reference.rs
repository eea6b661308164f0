//! The reference of the configuration, which has every table and key with its meaning, limits and
//! default. config/flatcap.toml and flatcap.toml(5) are two forms of it.

use flatcap_sampling::sources::{CATALOG, find};

use super::key::{KeySpec, Table};
use super::source_table::COMMON;
use super::tables::{ANY_INSTANCE, with_every_key};

/// The text between the descriptions of the keys.
const PROSE: &str = include_str!("reference.md");

/// Placeholder in the prose for the names of the sources that may block.
const BLOCKING_SOURCES: &str = "{blocking}";

/// A part of the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferencePart {
    /// A paragraph.
    Text(String),
    /// Lines that are printed unchanged.
    Example(&'static str),
    /// The heading of a table.
    Table {
        /// The table's name, without brackets.
        name: String,
        /// The table's meaning; empty for tables whose keys already state it.
        about: &'static str,
    },
    /// Lines of TOML with the keys of this table that a [`ReferencePart::Entry`] describes.
    Defaults(Vec<String>),
    /// A key of this table.
    Key(ReferenceKey),
    /// A key that several tables have.
    Entry(ReferenceKey),
}

/// A key of the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceKey {
    /// The name.
    pub name: &'static str,
    /// The meaning of the key, including the limits.
    pub description: String,
    /// The default as TOML; `None` if there is no default, or if the default depends on the table.
    pub default: Option<String>,
    /// Whether this key has no effect because of the default of another key.
    pub is_unused: bool,
}

/// Returns the reference, in the order of the tables.
pub fn reference() -> Vec<ReferencePart> {
    let mut parts = Vec::new();
    let mut config = with_every_key();
    let mut sources = 0;
    for (name, table) in config.tables() {
        if name.ends_with(&format!(".{ANY_INSTANCE}")) {
            continue;
        }
        let is_source = name.starts_with("source.");
        sources += u32::from(is_source);
        if name == "group.fast" {
            parts.extend(prose("group"));
        } else if is_source && sources == 1 {
            parts.extend(prose("source"));
            parts.extend(COMMON.iter().map(|key| ReferencePart::Entry(reference_key(&key.spec, None))));
        }
        let spec = name.strip_prefix("source.").and_then(find);
        let about = spec.map_or("", |spec| spec.about);
        parts.push(ReferencePart::Table { name: name.clone(), about });
        let mut specs = table.specs();
        if is_source {
            let own = specs.split_off(COMMON.len());
            let lines =
                specs.iter().filter_map(|spec| Some(format!("{} = {}", spec.name, table.write(spec.name)?)));
            parts.push(ReferencePart::Defaults(lines.collect()));
            specs = own;
        }
        for spec in specs {
            let mut key = reference_key(spec, Some(&mut *table));
            if name == "group.slow" || name == "group.blocking" {
                key.description = format!("As in group.fast. {}", (spec.expected)().sentence());
            }
            parts.push(ReferencePart::Key(key));
        }
    }
    parts.extend(prose("instances"));
    parts.extend(prose("trigger"));
    parts
}

/// Returns a section of the prose, or an empty section if it does not exist.
fn section(name: &str) -> &'static str {
    let mut sections = PROSE.split("\n## ");
    let section = sections.find_map(|section| section.strip_prefix(name)?.strip_prefix("\n\n"));
    section.unwrap_or_default().trim_end()
}

/// Returns the parts of a section of the prose.
fn prose(name: &str) -> Vec<ReferencePart> {
    let mut parts = Vec::new();
    for paragraph in section(name).split("\n\n") {
        match paragraph.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(table) => parts.extend(own_keys(table)),
            None if paragraph.starts_with(' ') => parts.push(ReferencePart::Example(paragraph)),
            None => {
                let text = paragraph.replace('\n', " ").replace(BLOCKING_SOURCES, &blocking_sources());
                parts.push(ReferencePart::Text(text));
            }
        }
    }
    parts
}

fn blocking_sources() -> String {
    let blocking: Vec<_> = CATALOG.iter().filter(|spec| spec.may_block).map(|spec| spec.name).collect();
    blocking.join(", ")
}

/// Returns the keys that a table has in addition to the keys of all sources.
fn own_keys(name: &str) -> Vec<ReferencePart> {
    let mut config = with_every_key();
    let Some((_, table)) = config.tables().into_iter().find(|(of, _)| of == name) else { return Vec::new() };
    let common = if name.starts_with("source.") { COMMON.len() } else { 0 };
    let own = table.specs().into_iter().skip(common);
    own.map(|spec| ReferencePart::Entry(reference_key(spec, Some(&mut *table)))).collect()
}

/// Describes a key, with its default in `table`.
fn reference_key(spec: &KeySpec, table: Option<&mut dyn Table>) -> ReferenceKey {
    let value = table.and_then(|table| table.write(spec.name)).filter(|_| !spec.is_required);
    let is_unused = value.is_none() && spec.condition.is_some();
    let default = value.or_else(|| spec.condition?.default.map(str::to_owned));
    ReferenceKey { name: spec.name, description: spec.description(), default, is_unused }
}

#[cfg(test)]
mod tests {
    use toml::de::DeValue;

    use super::*;
    use crate::config::INSTANCE_NAME_BYTES_MAX;
    use crate::config::key::Condition;

    const FILE: &str = include_str!("../../config/flatcap.toml");
    /// Maximum width of a line in config/flatcap.toml, in columns.
    const COLUMNS_MAX: usize = 100;

    // Proves that every source and key has a description, that the description has the limits, and
    // that all text fits the width.
    #[test]
    fn everything_is_described() {
        let mut keys = 0;
        for part in reference() {
            match part {
                ReferencePart::Table { name, about } => {
                    assert!(about.ends_with('.') || !name.starts_with("source."), "{name}: {about}");
                }
                ReferencePart::Key(key) | ReferencePart::Entry(key) => {
                    keys += 1;
                    assert!(key.description.len() > 10 && key.description.ends_with('.'), "{key:?}");
                    assert!(!key.description.contains(['`', '\n']), "{key:?}");
                }
                _ => {}
            }
        }
        assert_eq!(keys, 7 + 3 + 12 + 8 + 6 + 3 + 15 + 3 * 4 + 6 + 4 + 8 + 1 + 2 + 3 + 2 + 1 + 3 + 4 + 10);
        let is_wide = |line: &&str| line.starts_with('#') && line.len() > COLUMNS_MAX;
        assert_eq!(FILE.lines().find(is_wide), None);
        assert!(FILE.contains(&format!("up to {INSTANCE_NAME_BYTES_MAX} of the letters")));
        let unwrapped = FILE.replace("\n# ", " ");
        for text in [
            "started at this size. From 256KiB to 64GiB.\nsegment_size = ",
            "Time between two syncs. From 1ms to 1h. Only with sync = \"interval\".\nsync_interval = ",
            "A change takes effect at the next start.\nmemory_max = ",
        ] {
            assert!(unwrapped.contains(text), "{text}");
        }
    }

    // Proves that a key that depends on another key has the default that its description states.
    #[test]
    fn defaults_of_conditional_keys_are_true() {
        let mut compared = 0;
        let mut config = with_every_key();
        for (name, table) in config.tables() {
            for spec in table.specs() {
                let Some(Condition { key, value, default: Some(default) }) = spec.condition else { continue };
                table.read(key, DeValue::String(value.into())).unwrap();
                assert_eq!(table.write(spec.name).as_deref(), Some(default), "{name}.{}", spec.name);
                compared += 1;
            }
        }
        assert_eq!(compared, 3);
    }
}
