//! Lists all tables of a configuration with their names, in the order of the reference.

use flatcap_sampling::sources::CATALOG;

use super::expected_value::ExpectedValue;
use super::key::{KeySpec, Table};
use super::settings::{
    BlackboxConfig, BufferingConfig, CompressConfig, Config, ControlConfig, GroupConfigs, PushConfig,
    RecorderConfig, StorageConfig,
};
use super::source_table::{by_default, instance};
use super::trigger::TriggerConfig;

/// Placeholder for the name of an instance if no particular instance is meant.
pub(super) const ANY_INSTANCE: &str = "name";
/// Name of the table that contains one table per rule.
pub(super) const TRIGGER_TABLE: &str = "trigger";

/// A key that a table accepts.
#[derive(Debug)]
pub(super) struct KnownKey {
    pub(super) table: String,
    pub(super) key: &'static str,
    pub(super) expected: ExpectedValue,
}

impl Default for Config {
    /// Returns the configuration that applies without any file.
    fn default() -> Self {
        let single = CATALOG.iter().filter(|spec| !spec.has_instances());
        Self {
            recorder: RecorderConfig::default(),
            buffering: BufferingConfig::default(),
            storage: StorageConfig::default(),
            compress: CompressConfig::default(),
            blackbox: BlackboxConfig::default(),
            control: ControlConfig::default(),
            push: PushConfig::default(),
            groups: GroupConfigs::default(),
            sources: single.map(by_default).collect(),
            triggers: Vec::new(),
        }
    }
}

impl Config {
    /// Returns all tables with keys.
    pub(super) fn tables(&mut self) -> Vec<(String, &mut dyn Table)> {
        let GroupConfigs { fast, slow, blocking } = &mut self.groups;
        let mut tables: Vec<(String, &mut dyn Table)> = vec![
            ("recorder".to_owned(), &mut self.recorder),
            ("buffering".to_owned(), &mut self.buffering),
            ("storage".to_owned(), &mut self.storage),
            ("compress".to_owned(), &mut self.compress),
            ("blackbox".to_owned(), &mut self.blackbox),
            ("control".to_owned(), &mut self.control),
            ("push".to_owned(), &mut self.push),
            ("group.fast".to_owned(), fast),
            ("group.slow".to_owned(), slow),
            ("group.blocking".to_owned(), blocking),
        ];
        for source in &mut self.sources {
            tables.push((format!("source.{}", source.full_name()), source));
        }
        for trigger in &mut self.triggers {
            tables.push((format!("{TRIGGER_TABLE}.{}", trigger.name), trigger));
        }
        tables
    }

    /// Returns all keys of all tables.
    pub(super) fn known_keys(&mut self) -> Vec<KnownKey> {
        let mut known = Vec::new();
        for (table, settings) in self.tables() {
            let key = |spec: &KeySpec| KnownKey {
                table: table.clone(),
                key: spec.name,
                expected: (spec.expected)(),
            };
            known.extend(settings.specs().into_iter().map(key));
        }
        known
    }
}

/// Returns a configuration that has every key. It is the default configuration with a rule and one
/// instance of each source that has instances. All of them are named [`ANY_INSTANCE`].
pub(super) fn with_every_key() -> Config {
    let mut config = Config::default();
    let specs = CATALOG.iter().filter(|spec| spec.has_instances());
    config.sources.extend(specs.map(|spec| instance(spec, ANY_INSTANCE.to_owned())));
    config.triggers.push(TriggerConfig::new(ANY_INSTANCE.to_owned()));
    config
}

/// Returns the names of tables that contain only other tables and no keys.
pub(super) fn tables_of_tables() -> Vec<String> {
    let outer = ["group".to_owned(), "source".to_owned()];
    outer.into_iter().chain(tables_of_instances()).collect()
}

/// Returns the names of the tables in which the operator chooses the names of inner tables.
pub(super) fn tables_of_instances() -> Vec<String> {
    let kinds = CATALOG.iter().filter(|spec| spec.has_instances());
    kinds.map(|spec| format!("source.{}", spec.name)).chain([TRIGGER_TABLE.to_owned()]).collect()
}

/// Returns the full name of a key or a table.
pub(super) fn joined(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}
