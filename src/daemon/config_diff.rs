//! Differences between two configurations: the settings that can change during a run, and a
//! description of all changes.
//!
//! Both compare the printed configuration, which has every key: a key that this module does not
//! know is reported as one that takes effect at the next start.

use crate::config::{Config, RecorderConfig, StorageConfig};

/// Longest value that is printed. A longer one is reported as changed.
const VALUE_BYTES_MAX: usize = 48;
/// Most differences that are listed.
const DIFFERENCES_MAX: usize = 32;

/// Returns `new` with all settings that cannot change during a run taken from `before`.
pub(super) fn applicable(before: &Config, new: &Config) -> Config {
    Config {
        recorder: RecorderConfig { cpu_budget: new.recorder.cpu_budget, ..before.recorder.clone() },
        storage: StorageConfig {
            checksum: before.storage.checksum,
            frame_max: before.storage.frame_max,
            ..new.storage.clone()
        },
        compress: new.compress.clone(),
        groups: new.groups.clone(),
        sources: new.sources.clone(),
        ..before.clone()
    }
}

/// Returns the differences, one phrase for each source or key of another table.
pub(super) fn differences(before: &Config, after: &Config) -> Vec<String> {
    let (before, after) = (tables(before), tables(after));
    let mut phrases = Vec::new();
    for table in &after {
        match before.iter().find(|other| other.name == table.name) {
            Some(other) => diff_table(other, table, &mut phrases),
            None => phrases.push(format!("{}: on", table.label())),
        }
    }
    let is_removed = |table: &&ConfigTable| after.iter().all(|other| other.name != table.name);
    phrases.extend(before.iter().filter(is_removed).map(|table| format!("{}: off", table.label())));
    phrases
}

/// Joins the differences into one line.
pub(super) fn one_line(differences: &[String]) -> String {
    let listed = differences.iter().take(DIFFERENCES_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    match differences.len().saturating_sub(DIFFERENCES_MAX) {
        0 => listed,
        more => format!("{listed}; and {more} more"),
    }
}

/// A table of the printed configuration.
struct ConfigTable {
    name: String,
    keys: Vec<ConfigKey>,
}

struct ConfigKey {
    name: String,
    value: String,
    shown: String, // the value without its secret
}

impl ConfigTable {
    /// The name in messages: a source is named without its prefix.
    fn label(&self) -> &str {
        self.name.strip_prefix("source.").unwrap_or(&self.name)
    }

    fn is_source(&self) -> bool {
        self.name.starts_with("source.")
    }

    fn key(&self, name: &str) -> Option<&ConfigKey> {
        self.keys.iter().find(|key| key.name == name)
    }
}

fn tables(config: &Config) -> Vec<ConfigTable> {
    let mut tables: Vec<ConfigTable> = Vec::new();
    // Both texts have the same lines.
    for (line, shown) in config.to_toml().lines().zip(config.to_toml_redacted().lines()) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            tables.push(ConfigTable { name: name.to_owned(), keys: Vec::new() });
        } else if let (Some((name, value)), Some(table)) = (line.split_once(" = "), tables.last_mut())
            && !line.starts_with('#')
        {
            let shown = shown.split_once(" = ").map_or("", |(_, shown)| shown);
            table.keys.push(ConfigKey {
                name: name.to_owned(),
                value: value.to_owned(),
                shown: shown.trim_matches('"').to_owned(),
            });
        }
    }
    tables
}

fn diff_table(before: &ConfigTable, after: &ConfigTable, phrases: &mut Vec<String>) {
    let mut changes = Vec::new();
    let removed = before.keys.iter().filter(|key| after.key(&key.name).is_none());
    changes.extend(removed.map(|key| (key.name.as_str(), format!("{} no longer", key.shown))));
    for key in &after.keys {
        let old = before.key(&key.name);
        if old.is_some_and(|old| old.value == key.value) {
            continue;
        }
        let is_short = |key: &ConfigKey| key.shown.len() <= VALUE_BYTES_MAX;
        let phrase = match old {
            Some(old) if old.shown != key.shown && is_short(old) && is_short(key) => {
                format!("{} -> {}", old.shown, key.shown)
            }
            None if is_short(key) => key.shown.clone(),
            _ => "changed".to_owned(),
        };
        changes.push((key.name.as_str(), phrase));
    }
    if !after.is_source() {
        phrases.extend(changes.into_iter().map(|(key, phrase)| format!("{}.{key}: {phrase}", after.name)));
    } else if !changes.is_empty() {
        let changes = changes.into_iter().map(|(key, phrase)| match (key, phrase.as_str()) {
            ("enabled", "false -> true") => "on".to_owned(),
            ("enabled", "true -> false") => "off".to_owned(),
            _ => format!("{key} {phrase}"),
        });
        phrases.push(format!("{}: {}", after.label(), changes.collect::<Vec<_>>().join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Config {
        Config::parse("test.toml", text).unwrap()
    }

    fn said(before: &str, after: &str) -> Vec<String> {
        differences(&parse(before), &parse(after))
    }

    // Proves that changes are described by source and key with the old and the new value, and that
    // nothing else is reported.
    #[test]
    fn differences_are_said() {
        assert!(said("", "[source.cpu]\nperiod = \"10ms\"\n").is_empty(), "the default, written out");
        let after = "[storage]\nsegment_age = \"5m\"\n[source.cpu]\nperiod = \"1ms\"\nbudget = \"5%\"\n\
                     [source.disk]\nenabled = false\n[source.snmp]\nenabled = true\n[group.fast]\ncpus = [0, 1]\n";
        assert_eq!(
            said("[storage]\nsegment_age = \"15m\"\n", after),
            [
                "storage.segment_age: 15m -> 5m",
                "group.fast.cpus: [] -> [0, 1]",
                "cpu: period 10ms -> 1ms, budget 10% -> 5%",
                "disk: off",
                "snmp: on",
            ]
        );
    }

    // Proves that added and removed instances are named, and that secrets and long values are not
    // printed.
    #[test]
    fn instances_and_secrets() {
        let command = |name: &str, word: &str| {
            format!("[source.command.{name}]\ncommand = [\"/bin/echo\", \"{word}\"]\nformat = \"pairs\"\n")
        };
        assert_eq!(said(&command("a", "1"), &command("b", "1")), ["command.b: on", "command.a: off"]);
        assert_eq!(
            said(&command("a", "--token=1"), &command("a", "--token=2")),
            ["command.a: command changed"]
        );
        assert_eq!(said(&command("a", &"x".repeat(99)), &command("a", "y")), ["command.a: command changed"]);
        let many: Vec<String> = (0..40).map(|k| k.to_string()).collect();
        assert!(one_line(&many).ends_with("; 31; and 8 more"));
    }

    // Proves that settings fixed at the start stay, that the others change, and that both are
    // reported separately.
    #[test]
    fn some_keys_wait_for_the_next_start() {
        let before = parse("");
        let wanted = parse(
            "[recorder]\ndata_dir = \"other\"\nmemory_max = \"128MiB\"\ncpu_budget = \"3%\"\n[buffering]\npoll_interval = \"20ms\"\n\
             [storage]\nchecksum = \"crc32\"\nframe_max = \"8MiB\"\nretain_age = \"1d\"\n",
        );
        let config = applicable(&before, &wanted);
        let live = differences(&before, &config);
        assert_eq!(live.len(), 2, "{live:?}");
        let waiting: Vec<String> = differences(&config, &wanted)
            .into_iter()
            .filter_map(|phrase| Some(phrase.split_once(':')?.0.to_owned()))
            .collect();
        let expected = [
            "recorder.data_dir",
            "recorder.memory_max",
            "buffering.poll_interval",
            "storage.checksum",
            "storage.frame_max",
        ];
        assert_eq!(waiting, expected);
    }
}
