//! What is different between two configurations: what of it may change while a run goes on, and the rest in words.
//!
//! Both are told from the printed configuration, which has every key: a key that is new to the program and not named here is one that
//! takes effect at the next start, and is said so.

use crate::config::{Agent, Config, Storage};

/// Longest value that is said; of a longer one only that it has changed.
const VALUE_BYTES_MAX: usize = 48;
/// Most differences that are said one by one.
const DIFFERENCES_MAX: usize = 32;

/// What is wanted, as far as it can hold while the run goes on; the rest as it is.
pub(super) fn in_force(before: &Config, wanted: &Config) -> Config {
    Config {
        agent: Agent { cpu_budget: wanted.agent.cpu_budget, ..before.agent.clone() },
        storage: Storage {
            checksum: before.storage.checksum,
            frame_max: before.storage.frame_max,
            ..wanted.storage.clone()
        },
        seal: wanted.seal.clone(),
        groups: wanted.groups.clone(),
        sources: wanted.sources.clone(),
        ..before.clone()
    }
}

/// What has changed, one phrase a source or a key of another table.
pub(super) fn differences(before: &Config, after: &Config) -> Vec<String> {
    let (before, after) = (tables(before), tables(after));
    let mut said = Vec::new();
    for table in &after {
        match before.iter().find(|other| other.name == table.name) {
            Some(other) => say_table(other, table, &mut said),
            None => said.push(format!("{}: on", table.place())),
        }
    }
    let is_gone = |table: &&Table| after.iter().all(|other| other.name != table.name);
    said.extend(before.iter().filter(is_gone).map(|table| format!("{}: off", table.place())));
    said
}

/// In one line.
pub(super) fn one_line(differences: &[String]) -> String {
    let said = differences.iter().take(DIFFERENCES_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    match differences.len().saturating_sub(DIFFERENCES_MAX) {
        0 => said,
        more => format!("{said}; and {more} more"),
    }
}

/// A table of the configuration as it is printed.
struct Table {
    name: String,
    keys: Vec<Key>,
}

struct Key {
    name: String,
    value: String,
    shown: String, // without its secret
}

impl Table {
    /// As people call it: a source by its name alone.
    fn place(&self) -> &str {
        self.name.strip_prefix("source.").unwrap_or(&self.name)
    }

    fn is_source(&self) -> bool {
        self.name.starts_with("source.")
    }

    fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

fn tables(config: &Config) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    // Line by line the same.
    for (line, shown) in config.to_toml().lines().zip(config.to_toml_redacted().lines()) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            tables.push(Table { name: name.to_owned(), keys: Vec::new() });
        } else if let (Some((name, value)), Some(table)) = (line.split_once(" = "), tables.last_mut())
            && !line.starts_with('#')
        {
            let shown = shown.split_once(" = ").map_or("", |(_, shown)| shown);
            table.keys.push(Key {
                name: name.to_owned(),
                value: value.to_owned(),
                shown: shown.trim_matches('"').to_owned(),
            });
        }
    }
    tables
}

fn say_table(before: &Table, after: &Table, said: &mut Vec<String>) {
    let mut phrases = Vec::new();
    let gone = before.keys.iter().filter(|key| after.key(&key.name).is_none());
    phrases.extend(gone.map(|key| (key.name.as_str(), format!("{} no longer", key.shown))));
    for key in &after.keys {
        let old = before.key(&key.name);
        if old.is_some_and(|old| old.value == key.value) {
            continue;
        }
        let is_short = |key: &Key| key.shown.len() <= VALUE_BYTES_MAX;
        let phrase = match old {
            Some(old) if old.shown != key.shown && is_short(old) && is_short(key) => {
                format!("{} -> {}", old.shown, key.shown)
            }
            None if is_short(key) => key.shown.clone(),
            _ => "changed".to_owned(),
        };
        phrases.push((key.name.as_str(), phrase));
    }
    if !after.is_source() {
        said.extend(phrases.into_iter().map(|(key, phrase)| format!("{}.{key}: {phrase}", after.name)));
    } else if !phrases.is_empty() {
        let phrases = phrases.into_iter().map(|(key, phrase)| match (key, phrase.as_str()) {
            ("enabled", "false -> true") => "on".to_owned(),
            ("enabled", "true -> false") => "off".to_owned(),
            _ => format!("{key} {phrase}"),
        });
        said.push(format!("{}: {}", after.place(), phrases.collect::<Vec<_>>().join(", ")));
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

    // Goal: what changed is said by source and key, from what to what, and nothing else is. Method: pairs of configurations.
    #[test]
    fn differences_are_said() {
        assert!(said("", "[source.cpu]\nperiod = \"10ms\"\n").is_empty(), "the default, in full");
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

    // Goal: instances come and go by name; a secret is not said, nor what is too long. Method: commands with and without.
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

    // Goal: what is fixed at the start stays, the rest is taken over, and both are told apart. Method: a change of each kind.
    #[test]
    fn some_keys_wait_for_the_next_start() {
        let before = parse("");
        let wanted = parse(
            "[agent]\ndata_dir = \"other\"\nmemory_max = \"128MiB\"\ncpu_budget = \"3%\"\n[handover]\ndrain = \"20ms\"\n\
             [storage]\nchecksum = \"crc32\"\nframe_max = \"8MiB\"\nretain_age = \"1d\"\n",
        );
        let config = in_force(&before, &wanted);
        let live = differences(&before, &config);
        assert_eq!(live.len(), 2, "{live:?}");
        let waiting: Vec<String> = differences(&config, &wanted)
            .into_iter()
            .filter_map(|phrase| Some(phrase.split_once(':')?.0.to_owned()))
            .collect();
        let expected =
            ["agent.data_dir", "agent.memory_max", "handover.drain", "storage.checksum", "storage.frame_max"];
        assert_eq!(waiting, expected);
    }
}
