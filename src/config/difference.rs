//! Finds the differences between two configurations, key by key. A reload can apply some of the
//! differences. All differences can be described.

use std::collections::BTreeMap;

use super::key::{Effect, Table};
use super::print::redacted;
use super::settings::Config;

/// Maximum length of a value that the description of a difference shows. For a longer value, the
/// description states only that it changed.
const VALUE_BYTES_MAX: usize = 48;

impl Config {
    /// Returns `new`, but with the values of `self` for all settings that a reload cannot change.
    #[must_use]
    pub fn with_reload_of(&self, new: &Self) -> Self {
        let (mut before, mut config) = (self.clone(), new.clone());
        let mut before: BTreeMap<_, _> = before.tables().into_iter().collect();
        for (name, table) in config.tables() {
            let Some(before) = before.get_mut(&name) else { continue };
            for spec in table.specs().into_iter().filter(|spec| spec.effect == Effect::Restart) {
                table.copy(spec.name, &mut **before);
            }
        }
        config
    }

    /// Returns the differences between `self` and a later configuration. There is one phrase for
    /// each source and for each key of any other table. Secrets are not shown.
    pub fn differences(&self, after: &Self) -> Vec<String> {
        let (mut before, mut after) = (self.clone(), after.clone());
        let mut before: BTreeMap<_, _> = before.tables().into_iter().collect();
        let mut phrases = Vec::new();
        for (name, table) in after.tables() {
            match before.remove(&name) {
                Some(before) => compare(&name, before, table, &mut phrases),
                None => phrases.push(format!("{}: on", shown_name(&name))),
            }
        }
        phrases.extend(before.keys().map(|name| format!("{}: off", shown_name(name))));
        phrases
    }
}

/// Returns the name of a table in the form that descriptions show. The name of a source is shown
/// without the prefix of its table.
fn shown_name(table: &str) -> &str {
    table.strip_prefix("source.").unwrap_or(table)
}

fn compare(name: &str, before: &mut dyn Table, after: &mut dyn Table, phrases: &mut Vec<String>) {
    let mut of_source = Vec::new();
    for spec in after.specs() {
        if after.is_same(spec.name, before) {
            continue;
        }
        match (spec.name, change(spec.name, before, after).as_str()) {
            (key, change) if name == shown_name(name) => phrases.push(format!("{name}.{key}: {change}")),
            ("enabled", "false -> true") => of_source.push("on".to_owned()),
            ("enabled", "true -> false") => of_source.push("off".to_owned()),
            (key, change) => of_source.push(format!("{key} {change}")),
        }
    }
    if !of_source.is_empty() {
        phrases.push(format!("{}: {}", shown_name(name), of_source.join(", ")));
    }
}

/// Describes the change of a key that has different values in two configurations.
fn change(key: &str, before: &mut dyn Table, after: &mut dyn Table) -> String {
    let shown = |table: &mut dyn Table| {
        let value = redacted(key, table.write(key)?);
        Some(value.trim_matches('"').to_owned())
    };
    let is_short = |value: &str| value.len() <= VALUE_BYTES_MAX;
    match (shown(before), shown(after)) {
        (Some(old), Some(new)) if old != new && is_short(&old) && is_short(&new) => format!("{old} -> {new}"),
        (Some(old), None) if is_short(&old) => format!("{old} no longer"),
        (None, Some(new)) if is_short(&new) => new,
        _ => "changed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Config {
        Config::parse("test.toml", text).unwrap()
    }

    fn said(before: &str, after: &str) -> Vec<String> {
        parse(before).differences(&parse(after))
    }

    // Proves that changes are described by source and key with the old and the new value, and that
    // nothing else is reported.
    #[test]
    fn differences_are_said() {
        assert!(said("", "[source.cpu]\nperiod = \"10ms\"\n").is_empty(), "the default, written out");
        assert!(said("", "[source.cpu]\nperiod = \"10000us\"\n").is_empty(), "in another unit");
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

    // Proves that a key that has no effect because of another key is reported if that other key
    // changes, and only then.
    #[test]
    fn keys_without_effect_are_no_difference() {
        let interval = "[storage]\nsync_interval = \"2s\"\n";
        assert_eq!(said("", interval), ["storage.sync_interval: 1s -> 2s"]);
        assert_eq!(
            said(interval, "[storage]\nsync = \"never\"\n"),
            ["storage.sync: interval -> never", "storage.sync_interval: 2s no longer"]
        );
        let wide = |fields: u32| format!("[source.synthetic]\nshape = \"wide\"\nfields = {fields}\n");
        assert_eq!(said("", &wide(9)), ["synthetic: shape point -> wide, fields 9, payload 0B"]);
        assert_eq!(said(&wide(8), &wide(9)), ["synthetic: fields 8 -> 9"]);
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
    }

    // Proves that a reload keeps the settings that are fixed at the start and changes the other
    // settings, and that both kinds are reported separately.
    #[test]
    fn some_keys_wait_for_the_next_start() {
        let before = parse("");
        let wanted = parse(
            "[recorder]\ndata_dir = \"other\"\nlabels = { role = \"db\" }\nmemory_max = \"128MiB\"\ncpu_budget = \"3%\"\n[buffering]\npoll_interval = \"20ms\"\n\
             [storage]\nchecksum = \"crc32\"\nframe_max = \"8MiB\"\nretain_age = \"1d\"\n\
             [control]\nenabled = false\n[source.file.a]\npath = \"/a\"\n",
        );
        let config = before.with_reload_of(&wanted);
        let live = before.differences(&config);
        assert_eq!(live, ["recorder.cpu_budget: 25% -> 3%", "storage.retain_age: 7d -> 1d", "file.a: on"]);
        let waiting: Vec<String> = config
            .differences(&wanted)
            .into_iter()
            .filter_map(|phrase| Some(phrase.split_once(':')?.0.to_owned()))
            .collect();
        let expected = [
            "recorder.data_dir",
            "recorder.labels",
            "recorder.memory_max",
            "buffering.poll_interval",
            "storage.checksum",
            "storage.frame_max",
            "control.enabled",
        ];
        assert_eq!(waiting, expected);
    }

    // Proves that a reload can change all settings except memory, directories, labels, the timing
    // of the queues, the socket, the checksum, the receipts and the largest frame. A reload could
    // change the same set of settings before each key had its own effect.
    #[test]
    fn keys_say_when_they_take_effect() {
        let mut config = crate::config::tables::with_every_key();
        let restart = config.tables().into_iter().flat_map(|(name, table)| {
            let specs = table.specs().into_iter().filter(|spec| spec.effect == Effect::Restart);
            specs.map(|spec| format!("{name}.{}", spec.name)).collect::<Vec<_>>()
        });
        let expected = [
            "recorder.data_dir",
            "recorder.run_dir",
            "recorder.host_root",
            "recorder.labels",
            "recorder.memory_max",
            "recorder.lock_memory",
            "buffering.slab_size",
            "buffering.flush_interval",
            "buffering.poll_interval",
            "storage.checksum",
            "storage.keep_until_shipped",
            "storage.frame_max",
            "blackbox.window",
            "blackbox.window_on_disk",
            "blackbox.memory_max",
            "blackbox.disk_period",
            "blackbox.keep_bytes",
            "blackbox.keep_count",
            "control.enabled",
            "control.socket",
            "control.metrics_listen",
            "push.enabled",
            "push.socket",
            "push.allow",
            "push.memory_max",
            "push.cpu_budget",
            "push.lane_size",
            "push.clients",
            "push.lanes",
            "push.sources",
            "push.user_bytes_per_second",
            "push.user_frames_per_second",
            "push.schema_max",
            "push.verify",
            "push.drain_interval",
        ];
        assert_eq!(restart.collect::<Vec<_>>(), expected);
    }
}
