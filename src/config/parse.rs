//! Parses TOML inputs into a [`Config`]. Each input is checked separately. The tree that results
//! from merging all inputs is checked after that.

use std::collections::BTreeMap;

use flatcap_sampling::sources::CATALOG;
use toml::de::{DeTable, DeValue};

use super::diagnostics::{At, Diagnostics, Findings, label};
use super::env;
use super::error::{ConfigError, ConfigErrors, ConfigLocation};
use super::file::{FILE_BYTES_MAX, file_too_large};
use super::input_texts::InputTexts;
use super::instance_name::{INSTANCE_NAME_BYTES_MAX, INSTANCES_MAX, is_instance_name};
use super::key::Table;
use super::merge::merge_over;
use super::settings::Config;
use super::source::SourceConfig;
use super::source_table::instance;
use super::syntax;
use super::tables::{TRIGGER_TABLE, joined};
use super::trigger::{TRIGGERS_MAX, TriggerConfig};
use super::unknown;
use super::validate::{self, CheckScope};

impl Config {
    /// Parses and checks a text. `file_name` is used only in messages. Only
    /// [`Layers`](super::Layers) checks whether all buffers fit into `recorder.memory_max`.
    ///
    /// # Errors
    /// The same errors as [`Layers::read`](super::Layers::read), except errors of the file system.
    #[cfg(feature = "internals")]
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        if text.len() > FILE_BYTES_MAX {
            return Err(ConfigErrors::one(ConfigLocation::File(file_name.to_owned()), file_too_large()));
        }
        let texts = InputTexts::of_file(file_name, text);
        resolve(&texts, Vec::new(), CheckScope::default()).map(|resolved| resolved.config)
    }
}

/// The configuration that all texts define together.
#[derive(Debug)]
pub(super) struct ResolvedConfig {
    pub(super) config: Config,
    /// The offset of the value of each key that a text sets, by `table.key`.
    pub(super) value_offsets: BTreeMap<String, usize>,
}

/// Checks each input by itself, and then all inputs together. `unread` has the errors of inputs
/// that could not be read.
///
/// If a text is missing or not TOML, conflicts between settings are not reported.
pub(super) fn resolve(
    texts: &InputTexts,
    unread: Vec<ConfigError>,
    scope: CheckScope,
) -> Result<ResolvedConfig, ConfigErrors> {
    let mut findings = Findings::default();
    let mut merged = DeTable::new();
    // A missing text may have the key that resolves a conflict.
    let mut is_whole = unread.is_empty();
    for (start, text) in texts.files() {
        let mut walk = Diagnostics::new(texts);
        match syntax::parse(&mut walk, start, text) {
            Some(tree) => {
                // Each text is read separately to find its errors, including errors in values that
                // a later text overrides. Otherwise, an old mistake could appear after the operator
                // removes a drop-in.
                read(&mut walk, tree.clone());
                merge_over(&mut merged, tree);
            }
            None => is_whole = false,
        }
        findings.add(walk.into_local());
    }
    let mut walk = Diagnostics::new(texts);
    // Variables are read after the files, because a variable may refer to an instance that the
    // files define.
    let tree = env::tree(&mut walk, texts, &merged);
    read(&mut walk, tree.clone());
    merge_over(&mut merged, tree);
    findings.add(walk.into_local());
    // The errors in each single text were already found above. The merged tree can only add
    // conflicts between inputs.
    let mut walk = Diagnostics::new(texts);
    let mut config = read(&mut walk, merged);
    validate::derive_defaults(&mut config, &walk);
    if is_whole {
        validate::check(&mut config, &mut walk, scope);
        findings.add(walk.take_conflicts());
    }
    if is_whole && findings.is_empty() {
        Ok(ResolvedConfig { config, value_offsets: walk.into_offsets() })
    } else {
        Err(findings.into_errors(texts, unread))
    }
}

/// Reads all tables of a document, and reports each mistake that no other document can fix.
fn read(walk: &mut Diagnostics<'_>, mut tree: DeTable<'_>) -> Config {
    let mut config = Config::default();
    for spec in CATALOG.iter().filter(|spec| spec.has_instances()) {
        let names = instances(walk, &mut tree, &format!("source.{}", spec.name), INSTANCES_MAX);
        config.sources.extend(names.into_iter().map(|name| instance(spec, name)));
    }
    let names = instances(walk, &mut tree, TRIGGER_TABLE, TRIGGERS_MAX);
    config.triggers.extend(names.into_iter().map(TriggerConfig::new));
    for (name, table) in config.tables() {
        read_table(walk, &mut tree, &name, table);
    }
    for source in &mut config.sources {
        reject_useless_filters(walk, source);
    }
    unknown::report(walk, &tree, &mut config);
    config
}

/// Takes the keys of one table out of the document, and sets their values in `table`.
fn read_table(walk: &mut Diagnostics<'_>, tree: &mut DeTable<'_>, name: &str, table: &mut dyn Table) {
    let Some(entries) = table_at(tree, name) else { return };
    for spec in table.specs() {
        let Some(value) = entries.remove(spec.name) else { continue };
        let (key, span) = (joined(name, spec.name), value.span());
        // After an error, the setting keeps its default, so that all other settings are still
        // checked.
        let result = table.read(spec.name, value.into_inner());
        walk.note(key.clone(), span.clone(), result.is_ok());
        if let Err(problem) = result {
            walk.reject(At::Value(span, &label(&key)), problem);
        }
    }
}

/// Returns the names of the tables that the table at `path` contains. The operator chooses these
/// names. Removes names that are not valid from the document.
fn instances(walk: &mut Diagnostics<'_>, tree: &mut DeTable<'_>, path: &str, limit: usize) -> Vec<String> {
    let Some(entries) = table_at(tree, path) else { return Vec::new() };
    let mut instances = Vec::new();
    for (key, value) in std::mem::take(entries) {
        let name: String = key.get_ref().clone().into_owned();
        if !matches!(value.get_ref(), DeValue::Table(_)) {
            let label = format!("[{path}] {name}");
            let at = At::Label(Some(key.span().start), &label);
            let form = format!("write a table for each instance, such as [{path}.NAME]");
            walk.reject(at, format!("no such key here; {form}"));
        } else if !is_instance_name(&name) {
            let form = format!("write 1 to {INSTANCE_NAME_BYTES_MAX} of the letters a to z, digits, _ and -");
            walk.reject(At::Name(key.span()), format!("not a valid name; {form}"));
        } else if instances.len() == limit {
            // The number of instances is checked before the table is read, so that the limit also
            // bounds the work and the number of errors.
            let problem = format!("more than {limit} instances; merge or remove some");
            walk.conflict(At::Name(key.span()), problem);
            break;
        } else {
            walk.note_table(joined(path, &name), key.span().start);
            instances.push(name);
            entries.insert(key, value);
        }
    }
    instances
}

/// Rejects patterns for a source without filters, because such a source is always recorded as a
/// whole.
fn reject_useless_filters(walk: &mut Diagnostics<'_>, source: &mut SourceConfig) {
    if source.spec.has_filters() {
        return;
    }
    let table = format!("source.{}", source.full_name());
    for (key, patterns) in [("include", &mut source.include), ("exclude", &mut source.exclude)] {
        // Empty lists are accepted, because config/flatcap.toml has such lists for every source.
        if !patterns.is_empty() {
            patterns.clear();
            let problem = "has no effect: this source has no items to include or exclude; remove it";
            walk.reject(At::Key(&joined(&table, key)), problem.to_owned());
        }
    }
}

/// Returns the table at a path that consists of table names.
fn table_at<'a, 't>(tree: &'a mut DeTable<'t>, path: &str) -> Option<&'a mut DeTable<'t>> {
    path.split('.').try_fold(tree, |table, name| match table.get_mut(name)?.get_mut() {
        DeValue::Table(inner) => Some(inner),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use flatcap_format::block::{Codec, Layout};
    use flatcap_recorder::{MinFree, SyncPolicy};
    use flatcap_sampling::{
        BatchMode, GroupName, SchedConfig, SourceSpec, SyntheticConfig, SyntheticLayout, TextOrigin,
        TextSource, ValueFormat,
    };
    use flatcap_stream::ChecksumKind;
    use proptest::prelude::*;

    use super::*;
    use crate::config::{
        BufferingConfig, CompressConfig, ControlConfig, CpuShare, RecorderConfig, StorageConfig,
    };

    /// Returns the sources without instances.
    fn single_sources() -> impl Iterator<Item = &'static SourceSpec> {
        CATALOG.iter().filter(|spec| !spec.has_instances())
    }

    const FILE: &str = include_str!("../../config/flatcap.toml");
    const MINIMAL: &str = include_str!("../../config/minimal.toml");

    /// Returns all error messages for a text, one per line.
    fn errors(text: &str) -> String {
        Config::parse("f.toml", text).map_or_else(|errors| errors.to_string(), |_| "no error".to_owned())
    }

    fn assert_errors(cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            assert_eq!(errors(text), *expected, "{text}");
        }
    }

    #[test]
    fn file_and_default_agree() {
        // Proves that config/flatcap.toml, an empty file and the built-in defaults are equal.
        assert_eq!(Config::parse("flatcap.toml", FILE).unwrap(), Config::default());
        assert_eq!(Config::parse("empty.toml", "").unwrap(), Config::default());
    }

    #[test]
    fn file_shows_wide_shape_defaults() {
        // Proves that the two keys that the file shows as comments exist and have their default
        // values.
        let wide = FILE
            .replace("shape = \"point\"", "shape = \"wide\"")
            .replace("# fields = ", "fields = ")
            .replace("# payload = ", "payload = ");
        let written = Config::parse("wide.toml", &wide).unwrap();
        let defaults = Config::parse("wide.toml", "[source.synthetic]\nshape = \"wide\"\n").unwrap();
        assert_eq!(written, defaults);
        let shape = written.sources.iter().find_map(|source| source.synthetic).unwrap().shape;
        assert_eq!(shape, SyntheticLayout::Wide { fields: 64, payload_bytes: 0 });
    }

    #[test]
    fn minimal_example_parses() {
        // Proves that the example is valid and has the effect that its comment describes.
        let config = Config::parse("minimal.toml", MINIMAL).unwrap();
        let enabled: Vec<&str> = config.enabled_sources().map(|source| source.spec.name).collect();
        assert_eq!(enabled, ["cpu", "memory", "disk", "pressure", "process", "cgroup"]);
        assert_eq!(config.storage.segment_size, 64 << 20);
    }

    #[test]
    fn every_key_sets_its_field() {
        // Proves that each key sets its own field. Each key gets a different value in this test.
        let text = "[recorder]\ndata_dir = \"/d\"\nhost_root = \"/h\"\nlabels = { site = \"fra\", role = \"db\" }\nmemory_max = \"128MiB\"\n\
            lock_memory = true\ncpu_budget = \"250.5%\"\n\
            [buffering]\nslab_size = \"128KiB\"\nflush_interval = \"6ms\"\npoll_interval = \"7ms\"\n\
            [storage]\nchecksum = \"crc16\"\nsegment_size = \"1GiB\"\nsegment_age = \"8s\"\nsync = \"interval\"\n\
            sync_interval = \"9s\"\npreallocate = \"1MiB\"\nretain_bytes = \"6GiB\"\nretain_min = \"512MiB\"\n\
            retain_age = \"1min\"\nkeep_until_shipped = \"/r\"\nmin_free = \"2.5%\"\nframe_max = \"2MiB\"\n\
            [compress]\nenabled = false\nwhile_recording = \"lz4\"\ncodec = \"brotli:3\"\nlayout = \"row\"\nblock_size = \"2MiB\"\ncpu_budget = \"3%\"\n\
            io_budget = \"4MiB\"\nsources = [\"cpu=lz4\", \"file.a=none/columnar\"]\n\
            [control]\nenabled = false\nsocket = \"/s\"\nmetrics_listen = \"[::1]:9598\"\n\
            [group.fast]\ntiming = \"relaxed\"\npriority = 5\non_full = \"drop-oldest\"\n\
            [group.slow]\ntiming = \"precise\"\ncpus = [3, 0]\non_full = \"block\"\n\
            [group.blocking]\ntiming = \"spin\"\n";
        let config = Config::parse("f.toml", text).unwrap();
        let recorder = RecorderConfig {
            data_dir: "/d".into(),
            run_dir: "".into(),
            host_root: "/h".into(),
            labels: [("role", "db"), ("site", "fra")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            memory_max: 128 << 20,
            lock_memory: true,
            cpu_budget: CpuShare::of_basis_points(25_050),
        };
        assert_eq!(config.recorder, recorder);
        let ms = std::time::Duration::from_millis;
        assert_eq!(
            config.buffering,
            BufferingConfig { slab_size: 128 << 10, flush_interval: ms(6), poll_interval: ms(7) }
        );
        let storage = StorageConfig {
            checksum: ChecksumKind::Crc16,
            segment_size: 1 << 30,
            segment_age: ms(8000),
            sync: SyncPolicy::Interval(9_000_000_000),
            preallocate: 1 << 20,
            retain_bytes: 6 << 30,
            retain_min: 512 << 20,
            retain_age: ms(60_000),
            keep_until_shipped: "/r".into(),
            min_free: MinFree::BasisPoints(250),
            frame_max: 2 << 20,
        };
        assert_eq!(config.storage, storage);
        let compress = CompressConfig {
            enabled: false,
            while_recording: Some(Codec::Lz4),
            codec: Codec::Brotli(3),
            layout: Layout::Row,
            block_size: 2 << 20,
            cpu_budget: CpuShare::of_basis_points(300),
            io_budget: 4 << 20,
            sources: ["cpu=lz4", "file.a=none/columnar"].map(|text| text.parse().unwrap()).into(),
        };
        assert_eq!(config.compress, compress);
        let metrics_listen = Some("[::1]:9598".parse().unwrap());
        assert_eq!(config.control, ControlConfig { enabled: false, socket: "/s".into(), metrics_listen });
        let groups = GroupName::ALL.iter().map(|name| config.groups.get(*name));
        let groups = groups.map(|group| {
            (group.timing.as_str(), group.priority, format!("{:?} {:?}", group.cpus, group.on_full))
        });
        let group = |timing, priority, others: &str| (timing, priority, others.to_owned());
        let expected = [
            group("relaxed", 5, "[] DropOldest"),
            group("precise", 1, "[0, 3] Block"),
            group("spin", 0, "[] DropNewest"),
        ];
        assert!(groups.eq(expected));
    }

    #[test]
    fn labels_are_names_and_values() {
        // Proves that labels accept each notation of a table, and that the message names invalid
        // labels.
        let labels = |text: &str| Config::parse("f.toml", text).map(|config| config.recorder.labels.len());
        assert_eq!(labels("recorder.labels.role = \"db\"\n").unwrap(), 1);
        assert_eq!(labels("[recorder.labels]\nrole = \"db\"\nsite = \"fra\"\n").unwrap(), 2);
        assert_eq!(labels("[recorder]\nlabels = {}\n").unwrap(), 0);
        let advice = "write a table such as { role = \"db\", site = \"fra\" }, up to 32 labels";
        for (value, error) in [
            ("[\"role=db\"]", "wrong type: a list"),
            ("{ role = 1 }", "wrong type: a number without quotes"),
            ("{ \"my role\" = \"db\" }", "the label \"my role\" has an invalid name or value"),
            ("{ 1st = \"db\" }", "the label \"1st\" has"),
            ("{ role = \"\" }", "the label \"role\" has"),
            ("{ role = \"a\\nb\" }", "the label \"role\" has"),
        ] {
            let said = errors(&format!("[recorder]\nlabels = {value}\n"));
            assert!(said.contains(error) && said.contains(advice), "{value}: {said}");
        }
        let many: Vec<String> = (0..33).map(|number| format!("l{number} = \"x\"")).collect();
        assert!(errors(&format!("[recorder]\nlabels = {{ {} }}\n", many.join(", "))).contains("too large"));
    }

    #[test]
    fn every_key_of_a_source_sets_its_field() {
        // Proves that each key of a source sets its own field.
        let text = "[source.load]\nenabled = false\nperiod = \"11ms\"\nrequired = true\nbudget = \"12%\"\n\
            [source.disk]\ninclude = [\"a\"]\nexclude = [\"b\"]\n\
            [source.synthetic]\nenabled = true\nshape = \"wide\"\nfields = 0x10\npayload = \"3KiB\"\nseed = 12\n\
            [source.process]\nusers = [\"u\"]\ncgroups = [\"c\"]\ntop = 13\nby = \"io\"\ncommand_lines = \"full\"\n\
            cgroup_paths = false\n\
            [source.cgroup]\ndepth = 14\n\
            [source.perf]\nevents = [\"page-faults\"]\nprocesses = [\"p\"]\n\
            [source.sched]\nwakeups = false\nring = \"1MiB\"\nmode = \"armed\"\n\
            [source.profile]\nfrequency = 15\n";
        let config = Config::parse("f.toml", text).unwrap();
        let source = |name: &str| config.sources.iter().find(|source| source.full_name() == name).unwrap();
        let load = source("load");
        assert_eq!((load.enabled, load.period.as_millis(), load.required), (false, 11, true));
        assert_eq!(load.budget.basis_points(), 1_200);
        let disk = source("disk");
        assert_eq!((disk.include[0].as_str(), disk.exclude[0].as_str()), ("a", "b"));
        let wide =
            SyntheticConfig { shape: SyntheticLayout::Wide { fields: 16, payload_bytes: 3 << 10 }, seed: 12 };
        assert_eq!((source("synthetic").enabled, source("synthetic").synthetic), (true, Some(wide)));
        let process = source("process").process.as_ref().unwrap();
        assert_eq!((process.users[0].as_str(), process.cgroups[0].as_str(), process.top), ("u", "c", 13));
        assert_eq!((process.by.as_str(), process.command_lines.as_str()), ("io", "full"));
        assert!(!process.cgroup_paths);
        assert_eq!(source("cgroup").cgroup.unwrap().depth, 14);
        let perf = source("perf").perf.as_ref().unwrap();
        assert_eq!((perf.events[0].as_str(), perf.processes.join(" ")), ("page-faults", "p".to_owned()));
        assert_eq!(source("sched").sched, Some(SchedConfig { wakeups: false, ring: 1 << 20 }));
        assert_eq!((source("sched").mode, load.mode), (Some(BatchMode::Armed), None));
        assert_eq!(source("profile").profile.unwrap().frequency, 15);
    }

    #[test]
    fn invalid_compression_settings() {
        // Proves that each invalid value in [compress] is reported with its location and the valid
        // values.
        let codecs =
            "write \"none\", \"lz4\", \"snappy\", \"zstd:1\" to \"zstd:19\" or \"brotli:0\" to \"brotli:11\"";
        let way = "write a list such as [\"process=zstd:9/row\"] of NAME=CODEC/LAYOUT or NAME=CODEC, up to 256, no source twice";
        assert_errors(&[
            (
                "[compress]\ncodec = \"gzip\"",
                &format!("f.toml:2:9: [compress] codec = \"gzip\": not one of the allowed values; {codecs}"),
            ),
            (
                "[compress]\ncodec = \"zstd:20\"",
                &format!(
                    "f.toml:2:9: [compress] codec = \"zstd:20\": not one of the allowed values; {codecs}"
                ),
            ),
            (
                "[compress]\nwhile_recording = true",
                "f.toml:2:19: [compress] while_recording = true: wrong type: a boolean; write \"off\", \"none\", \"lz4\", \"snappy\", \
                 \"zstd:1\" to \"zstd:19\" or \"brotli:0\" to \"brotli:11\"",
            ),
            (
                "[compress]\nlayout = \"rows\"",
                "f.toml:2:10: [compress] layout = \"rows\": not one of the allowed values; write \"row\" or \"columnar\"",
            ),
            (
                "[compress]\nblock = \"1MiB\"",
                "f.toml:2:1: [compress] block: no such key here; did you mean block_size?",
            ),
            (
                "[compress]\ncpu_budget = \"200%\"",
                "f.toml:2:14: [compress] cpu_budget = \"200%\": too large; write a number with %, from 0.1% to 100%",
            ),
            (
                "[compress]\nsources = [\"cpu\"]",
                &format!(
                    "f.toml:2:11: [compress] sources = [\"cpu\"]: \"cpu\" is not NAME=CODEC/LAYOUT, such as process=zstd:9/row; {way}"
                ),
            ),
            (
                "[compress]\nsources = [\"cpus=lz4\"]",
                "f.toml:2:11: [compress] sources = [\"cpus=lz4\"]: no such source; did you mean cpu?",
            ),
            (
                "[compress]\nsources = [\"cpu=lz4\", \"cpu=none\"]",
                "f.toml:2:11: [compress] sources = [\"cpu=lz4\", \"cpu=none\"]: \"cpu\" is listed twice; keep one",
            ),
        ]);
    }

    #[test]
    fn dotted_and_inline_tables_are_tables() {
        // Proves that every TOML syntax for a table is accepted, and that error messages have the
        // right location.
        assert_eq!(errors("source.cpu.period = \"1ms\"\n"), "no error");
        assert_eq!(errors("source = { cpu = { enabled = false } }\n"), "no error");
        assert_eq!(
            errors("\u{feff}source.cpu = { enabled = 1 }\r\n"),
            "f.toml:1:26: [source.cpu] enabled = 1: wrong type: a number without quotes; write true \
             or false without quotes"
        );
    }

    #[test]
    fn instances_have_names_and_keys_of_their_own() {
        // Proves that each key of an instance sets its field, and that instances are sorted by
        // name.
        let text = "[source.file.raid]\npath = \"/proc/mdstat\"\nformat = \"regex\"\n\
            pattern = '(?<name>md\\d+) : (?<value>\\d+)'\nperiod = \"2s\"\nrequired = true\n\
            include = [\"md*\"]\n\
            [source.command.disk-heat]\ncommand = [\"/usr/bin/heat\", \"-x\"]\ntimeout = \"1s\"\n\
            [source.file.a]\npath = \"/a\"\nenabled = false\n";
        let config = Config::parse("f.toml", text).unwrap();
        let instances = &config.sources[single_sources().count()..];
        let names: Vec<_> = instances.iter().map(SourceConfig::full_name).collect();
        assert_eq!(names, ["file.a", "file.raid", "command.disk-heat"]);
        assert_eq!([0, 1, 2].map(|at: usize| instances[at].enabled), [false, true, true]);
        assert_eq!((instances[1].period.as_secs(), instances[1].required), (2, true));
        assert!(instances[1].include[0].matches("md0"));
        let readout = instances[1].text_source.as_ref().unwrap();
        assert_eq!(readout.origin, TextOrigin::File("/proc/mdstat".into()));
        assert!(matches!(&readout.format, ValueFormat::Regex(it) if it.name_group() == Some(1)));
        let TextOrigin::Command(command) = &instances[2].text_source.as_ref().unwrap().origin else {
            panic!()
        };
        assert_eq!((command.argv.join(" "), command.timeout.as_secs()), ("/usr/bin/heat -x".to_owned(), 1));
    }

    #[test]
    fn invalid_instances() {
        // Proves the message for each mistake in instances, and the limit on the number of
        // instances.
        let name = "1 to 32 of the letters a to z, digits, _ and -";
        assert_errors(&[
            (
                "[source.file]\npath = \"/x\"",
                "f.toml:2:1: [source.file] path: no such key here; write a table for each instance, such as \
                 [source.file.NAME]",
            ),
            (
                "[source.file.\"A b\"]\npath = \"/x\"",
                &format!("f.toml:1:14: \"A b\": not a valid name; write {name}"),
            ),
            (
                "[source.file.x]",
                "f.toml:1:14: [source.file.x] path: missing; write an absolute path in quotes, without \"..\"",
            ),
            (
                "[source.file.x]\npath = \"proc/a\"",
                "f.toml:2:8: [source.file.x] path = \"proc/a\": not an absolute path, or it contains \"..\"; \
                 write an absolute path in quotes, without \"..\"",
            ),
            (
                "[source.file.x]\npath = \"/a\"\npattern = \"(a)\"",
                "f.toml:3:11: [source.file.x] pattern = \"(a)\": has no effect with format = \"pairs\"; remove it or \
                 write format = \"regex\"",
            ),
            (
                "[source.command.x]\nformat = \"regex\"\npattern = \"(a\"",
                "f.toml:1:17: [source.command.x] command: missing; write a list such as [\"/usr/bin/program\", \
                 \"argument\"], an absolute path and up to 63 arguments of up to 4096 bytes\n\
                 f.toml:3:11: [source.command.x] pattern = \"(a\": not a regular expression for values: unclosed group; \
                 write a regular expression in quotes, of up to 1024 bytes",
            ),
            (
                "[source.command.x]\ncommand = [\"sh\"]\nformat = \"regex\"",
                "f.toml:1:17: [source.command.x] pattern: missing; write a regular expression in quotes, of up to 1024 \
                 bytes\n\
                 f.toml:2:11: [source.command.x] command = [\"sh\"]: not the absolute path of a program and its arguments; \
                 write a list such as [\"/usr/bin/program\", \"argument\"], an absolute path and up to 63 arguments of up \
                 to 4096 bytes",
            ),
            (
                "[source.command]\nx = 1",
                "f.toml:2:1: [source.command] x: no such key here; write a table for each instance, such as \
                 [source.command.NAME]",
            ),
            (
                "[source.perf]\nevents = [\"cycles\", \"cycles\"]",
                "f.toml:2:10: [source.perf] events = [\"cycles\", \"cycles\"]: \"cycles\" is listed twice; keep one",
            ),
        ]);
        let many = |count: usize| {
            (0..count).map(|at| format!("[source.file.n{at}]\npath = \"/x\"\n")).collect::<Vec<_>>().concat()
        };
        assert_eq!(errors(&many(64)), "no error");
        assert!(errors(&many(65)).ends_with("more than 64 instances; merge or remove some"));
    }

    #[test]
    fn file_shows_instances() {
        // Proves that the examples in config/flatcap.toml are valid after the comment signs are
        // removed, and that they show every key.
        let (_, examples) = FILE.split_once("# Instances").unwrap();
        let uncommented: Vec<&str> =
            examples.lines().filter_map(|line| line.strip_prefix("#     ")).collect();
        let text = uncommented.join("\n");
        let config = Config::parse("flatcap.toml", &text).unwrap();
        let names: Vec<_> = config.sources.iter().filter(|source| source.instance.is_some()).collect();
        assert_eq!(names.len(), 4);
        for key in ["path", "format", "pattern", "command", "timeout"] {
            assert!(text.contains(&format!("{key} = ")), "{key}");
        }
    }

    #[test]
    fn commands_know_the_file_that_names_them() {
        // Proves that a command has the owner and mode of the file that was read and of the file's
        // directory. These determine whether the command may run.
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.toml");
        std::fs::write(&path, "[source.command.x]\ncommand = [\"/bin/true\"]\n").unwrap();
        for (path, mode) in [(path.as_path(), 0o640), (directory.path(), 0o710)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let config = Config::read(&path).unwrap();
        let Some(TextSource { origin: TextOrigin::Command(command), .. }) =
            &config.sources.last().unwrap().text_source
        else {
            panic!()
        };
        let named_in = command.defined_in.as_ref().unwrap();
        assert_eq!((&named_in.path, named_in.file.mode, named_in.directory.mode), (&path, 0o640, 0o710));
    }

    #[test]
    fn a_small_segment_lowers_the_default_reservation() {
        // Proves that shorter segments can be configured without changing another key.
        let config = Config::parse("f.toml", "[storage]\nsegment_size = \"1MiB\"\n").unwrap();
        assert_eq!(config.storage.preallocate, 1 << 20);
        let config = Config::parse("f.toml", "[storage]\npreallocate = \"0\"\n").unwrap();
        assert_eq!(config.storage.preallocate, 0);
    }

    #[test]
    fn all_errors_at_once_in_line_order() {
        // Proves that six mistakes of different kinds, in six tables, give six errors, sorted by
        // line.
        let text = "[storage]\nchecksum = \"md5\"\nsegment_size = 5\n\n[source.cpu]\nperiod = \"10\"\n\
            peroid = \"10ms\"\n[source.radio]\nperiod = \"1ms\"\n[recorder]\nmemory_max = \"1MiB\"\n";
        let tables: Vec<String> = CATALOG.iter().map(|spec| format!("[source.{}]", spec.name)).collect();
        let (last, others) = tables.split_last().unwrap();
        let tables = format!("{} and {last}", others.join(", "));
        assert_eq!(
            errors(text),
            format!(
                "f.toml:2:12: [storage] checksum = \"md5\": not one of the allowed values; write \"xxh3\", \
                 \"crc32\", \"crc16\" or \"none\"\n\
                 f.toml:3:16: [storage] segment_size = 5: wrong type: a number without quotes; write a \
                 number with B, KiB, MiB, GiB or TiB, from 256KiB to 64GiB\n\
                 f.toml:6:10: [source.cpu] period = \"10\": no unit, as in 10s; write a number with ns, us, ms, s, m, h or d, \
                 from 50us to 1h\n\
                 f.toml:7:1: [source.cpu] peroid: no such key here; did you mean period?\n\
                 f.toml:8:9: [source.radio]: no such table; the tables are {tables}\n\
                 f.toml:11:14: [recorder] memory_max = \"1MiB\": too small; write a number with B, KiB, MiB, GiB or \
                 TiB, from 8MiB to 64GiB"
            )
        );
        assert_eq!(Config::parse("f.toml", text).unwrap_err().iter().count(), 6);
    }

    #[test]
    fn unknown_names() {
        // Proves the message for a name that is misspelt, unknown, or in the wrong table.
        assert_errors(&[
            (
                "[recorder]\ndatadir = \"x\"",
                "f.toml:2:1: [recorder] datadir: no such key here; did you mean data_dir?",
            ),
            (
                "[recorder]\npoll_interval = \"1ms\"",
                "f.toml:2:1: [recorder] poll_interval: no such key here; it belongs in [buffering]",
            ),
            ("memory_max = \"1GiB\"", "f.toml:1:1: memory_max: no such key here; it belongs in [recorder]"),
            ("zzz = 1", "f.toml:1:1: zzz: no such key here; keys belong in a table, such as [recorder]"),
            (
                "[buffering]\nqueue = 1",
                "f.toml:2:1: [buffering] queue: no such key here; the keys are slab_size, flush_interval and poll_interval",
            ),
            (
                "[source.cpu]\nfields = 1",
                "f.toml:2:1: [source.cpu] fields: no such key here; it belongs in [source.synthetic]",
            ),
            (
                "[buffering]\n\"a\\u001b\\n\" = 1",
                "f.toml:2:1: [buffering] \"a\\u{1b}\\n\": no such key here; the keys are slab_size, flush_interval and \
                 poll_interval",
            ),
            ("[sorce.cpu]", "f.toml:1:2: [sorce]: no such table; did you mean [source]?"),
            ("[source.cpus]", "f.toml:1:9: [source.cpus]: no such table; did you mean [source.cpu]?"),
            (
                "[group.main]",
                "f.toml:1:8: [group.main]: no such table; the tables are [group.fast], [group.slow] and \
                 [group.blocking]",
            ),
            (
                "[zip]",
                "f.toml:1:2: [zip]: no such table; the tables are [recorder], [buffering], [storage], [compress], \
                 [blackbox], [control], [push], [group], [source] and [trigger]",
            ),
        ]);
    }

    #[test]
    fn given_twice() {
        // Proves that the second of two keys or tables with the same name is the error, and that
        // the rest is still checked.
        assert_errors(&[
            (
                "[recorder]\ndata_dir = \"a\"\ndata_dir = \"b\"\nx = 1",
                "f.toml:3:1: data_dir: given twice; keep one\n\
                 f.toml:4:1: [recorder] x: no such key here; the keys are data_dir, run_dir, host_root, \
                 labels, memory_max, lock_memory and cpu_budget",
            ),
            ("[recorder]\n[recorder]", "f.toml:2:2: recorder: given twice; keep one"),
        ]);
    }

    #[test]
    fn wrong_types() {
        // Proves that the message names the type of each value that has the wrong type.
        let duration = "write a number with ns, us, ms, s, m, h or d, from 50us to 1h";
        for (value, found) in [
            ("10", "a number without quotes"),
            ("1.5", "a number with a fraction"),
            ("true", "a boolean"),
            ("10:00:00", "a date or time"),
            ("[\"1s\"]", "a list"),
            ("{}", "a table"),
        ] {
            assert_eq!(
                errors(&format!("[source.cpu]\nperiod = {value}")),
                format!("f.toml:2:10: [source.cpu] period = {value}: wrong type: {found}; {duration}")
            );
        }
        assert_errors(&[
            (
                "[source.synthetic]\nseed = \"1\"",
                "f.toml:2:8: [source.synthetic] seed = \"1\": wrong type: a string; write a \
                 whole number without quotes, from 0 to 9223372036854775807",
            ),
            (
                "[recorder]\ndata_dir = 1",
                "f.toml:2:12: [recorder] data_dir = 1: wrong type: a number without quotes; write a path \
                 in quotes",
            ),
            (
                "recorder = 5",
                "f.toml:1:12: [recorder] = 5: wrong type: a number without quotes; write the table \
                 [recorder] once",
            ),
            (
                "[[source.cpu]]\n[[source.cpu]]",
                "f.toml:1:1: [source.cpu] = [[source.cpu]]: wrong type: a list; write the table \
                 [source.cpu] once",
            ),
        ]);
    }

    #[test]
    fn values_beyond_their_limits() {
        // Proves that both limits of a range, multiples, keywords and paths are checked, and that
        // the limits themselves are valid.
        assert_errors(&[
            (
                "[source.cpu]\nperiod = \"0s\"",
                "f.toml:2:10: [source.cpu] period = \"0s\": too small; write a number with ns, us, ms, s, m, h or \
                 d, from 50us to 1h",
            ),
            (
                "[source.cpu]\nperiod = \"61m\"",
                "f.toml:2:10: [source.cpu] period = \"61m\": too large; write a number with ns, us, ms, s, m, h or \
                 d, from 50us to 1h",
            ),
            ("[source.cpu]\nperiod = \"50us\"\n[source.memory]\nperiod = \"1h\"", "no error"),
            (
                "[buffering]\nslab_size = \"65KiB\"",
                "f.toml:2:13: [buffering] slab_size = \"65KiB\": not a multiple of 4KiB; write a number with B, \
                 KiB, MiB, GiB or TiB, from 16KiB to 4MiB",
            ),
            (
                "[buffering]\nslab_size = \"64KB\"",
                "f.toml:2:13: [buffering] slab_size = \"64KB\": ambiguous unit \"KB\": 1000 or 1024; \
                 64KiB is 1024-based; write a number with B, KiB, MiB, GiB or TiB, from 16KiB to \
                 4MiB",
            ),
            (
                "[source.synthetic]\nseed = -1",
                "f.toml:2:8: [source.synthetic] seed = -1: too small; write a whole number without quotes, from 0 \
                 to 9223372036854775807",
            ),
            (
                "[source.synthetic]\nseed = 99999999999999999999",
                "f.toml:2:8: [source.synthetic] seed = 99999999999999999999: too large; write a whole number \
                 without quotes, from 0 to 9223372036854775807",
            ),
            (
                "[group.fast]\non_full = \"wait\"\n[group.slow]\non_full = \"drop\"",
                "f.toml:2:11: [group.fast] on_full = \"wait\": not one of the allowed values; write \
                 \"drop-newest\", \"drop-oldest\" or \"block\"\n\
                 f.toml:4:11: [group.slow] on_full = \"drop\": not one of the allowed values; write \
                 \"drop-newest\", \"drop-oldest\" or \"block\"",
            ),
            (
                "[source.cpu]\nbudget = \"0.001%\"",
                "f.toml:2:10: [source.cpu] budget = \"0.001%\": not a whole number of hundredths of a percent; write a number \
                 with %, from 0.01% to 100%",
            ),
            (
                "[recorder]\nhost_root = \"\"",
                "f.toml:2:13: [recorder] host_root = \"\": not a path: empty, or contains a zero byte; write a path in quotes",
            ),
        ]);
    }

    #[test]
    fn shares_of_a_file_system() {
        // Proves that a share has no sign and is at most 90 %, and that a size or "auto" is
        // accepted instead of a share.
        let wanted = "write \"auto\" or a number with B, KiB, MiB, GiB, TiB or %, from 0% to 90%, or a size";
        let min_free = |text: &str| errors(&format!("[storage]\nmin_free = \"{text}\""));
        for (text, error) in [
            ("+5%", "no number before the unit"),
            ("-5%", "negative"),
            ("300%", "too large"),
            ("90.01%", "too large"),
            ("5", "no unit, as in 5MiB"),
            ("2000TiB", "too large"),
            ("Auto", "no number before the unit"),
        ] {
            let expected = format!("f.toml:2:12: [storage] min_free = \"{text}\": {error}; {wanted}");
            assert_eq!(min_free(text), expected);
        }
        for text in ["0%", "90%", "12.5 %", "0", "1GiB", "auto"] {
            assert_eq!(min_free(text), "no error", "{text}");
        }
    }

    #[test]
    fn listen_addresses() {
        // Proves that a port alone means the loopback address, and that no other address is
        // assumed.
        let listen = |text: &str| {
            let config = Config::parse("f.toml", &format!("[control]\nmetrics_listen = \"{text}\""));
            config.map(|config| config.control.metrics_listen.map(|address| address.to_string()))
        };
        for (text, expected) in [
            ("", None),
            ("9598", Some("127.0.0.1:9598")),
            ("0.0.0.0:9598", Some("0.0.0.0:9598")),
            ("[::]:65535", Some("[::]:65535")),
        ] {
            assert_eq!(listen(text).unwrap().as_deref(), expected, "{text}");
        }
        let wanted = "write a port for this host alone, such as \"9598\", an address and a port, such as \
            \"0.0.0.0:9598\" or \"[::1]:9598\", or \"\" for none";
        for text in [
            ":9598",
            "localhost:9598",
            "0",
            "127.0.0.1:0",
            "70000",
            "127.0.0.1",
            "::1:9598",
            "+9598",
            " 9598",
        ] {
            assert_eq!(
                listen(text).unwrap_err().to_string(),
                format!(
                    "f.toml:2:18: [control] metrics_listen = \"{text}\": neither a port nor an address and a port; {wanted}"
                )
            );
        }
        let socket = |path: &str| errors(&format!("[control]\nsocket = \"{path}\""));
        assert_eq!(socket(""), "no error");
        assert_eq!(socket(&format!("/{}", "s".repeat(102))), "no error");
        for wrong in [format!("/{}", "s".repeat(103)), "run/control.sock".to_owned(), "/a\\u0000".to_owned()]
        {
            assert!(
                socket(&wrong).ends_with(
                    "not an absolute path, or too long for a socket; write an absolute path in quotes, of up to 103 \
                     bytes, or \"\""
                ),
                "{}",
                socket(&wrong)
            );
        }
    }

    #[test]
    fn cpu_and_scheduler_limits() {
        // Proves the limits of CPU shares, priorities, processors and timing keywords, and the form
        // of lists.
        assert_errors(&[
            (
                "[recorder]\ncpu_budget = \"0.09%\"",
                "f.toml:2:14: [recorder] cpu_budget = \"0.09%\": too small; write a number with %, from 0.1% to 1000%",
            ),
            (
                "[recorder]\ncpu_budget = \"1001%\"",
                "f.toml:2:14: [recorder] cpu_budget = \"1001%\": too large; write a number with %, from 0.1% to 1000%",
            ),
            ("[recorder]\ncpu_budget = \"0.1%\"\n[source.cpu]\nbudget = \"100%\"", "no error"),
            (
                "[recorder]\nlock_memory = 1",
                "f.toml:2:15: [recorder] lock_memory = 1: wrong type: a number without quotes; write true or \
                 false without quotes",
            ),
            (
                "[group.slow]\npriority = 100",
                "f.toml:2:12: [group.slow] priority = 100: too large; write a whole number without quotes, from 0 to 99",
            ),
            (
                "[group.slow]\ncpus = [0, 1024]",
                "f.toml:2:8: [group.slow] cpus = [0, 1024]: too large; write a list such as [0, 1] of whole numbers from \
                 0 to 1023",
            ),
            (
                "[group.slow]\ncpus = [2, 1, 2]",
                "f.toml:2:8: [group.slow] cpus = [2, 1, 2]: \"2\" is listed twice; keep one",
            ),
            (
                "[group.slow]\ncpus = \"0-3\"",
                "f.toml:2:8: [group.slow] cpus = \"0-3\": wrong type: a string; write a list such as \
                 [0, 1] of whole numbers from 0 to 1023",
            ),
            (
                "[group.fast]\ntiming = \"exact\"",
                "f.toml:2:10: [group.fast] timing = \"exact\": not one of the allowed values; write \"relaxed\", \
                 \"precise\" or \"spin\"",
            ),
        ]);
    }

    #[test]
    fn conflicting_settings() {
        // Proves each constraint between two keys, and that the default of another key never makes
        // a key in the file an error.
        let off = |spec: &SourceSpec| format!("[source.{}]\nenabled = false\n", spec.name);
        let all_off = single_sources().map(off).collect::<Vec<_>>().concat();
        let (last_line, last) = (all_off.lines().count(), single_sources().last().unwrap().name);
        let frame =
            "[storage]\nframe_max = \"64KiB\"\n[source.synthetic]\nenabled = true\nshape = \"wide\"\n";
        assert_errors(&[
            (
                "[storage]\nsegment_size = \"1MiB\"\npreallocate = \"2MiB\"",
                "f.toml:3:15: [storage] preallocate = \"2MiB\": larger than a segment; write at most \
                 segment_size, which is \"1MiB\"",
            ),
            (
                "[storage]\nsync = \"never\"\nsync_interval = \"1s\"",
                "f.toml:3:17: [storage] sync_interval = \"1s\": has no effect with sync = \"never\"; remove it \
                 or write sync = \"interval\"",
            ),
            ("[storage]\nsync = \"always\"", "no error"),
            (
                "[source.synthetic]\nfields = 64\npayload = \"0B\"",
                "f.toml:2:10: [source.synthetic] fields = 64: has no effect with shape = \"point\"; remove it \
                 or write shape = \"wide\"\n\
                 f.toml:3:11: [source.synthetic] payload = \"0B\": has no effect with shape = \"point\"; remove \
                 it or write shape = \"wide\"",
            ),
            (
                "[source.load]\ninclude = [\"x\"]\nexclude = []",
                "f.toml:2:11: [source.load] include = [\"x\"]: has no effect: this source has no items to \
                 include or exclude; remove it",
            ),
            (
                &format!("{frame}payload = \"64KiB\""),
                "f.toml:6:11: [source.synthetic] payload = \"64KiB\": a frame of 70144B exceeds frame_max, which is \
                 \"64KiB\"; lower payload or raise [storage] frame_max",
            ),
            (&format!("{frame}fields = 4096\npayload = \"28KiB\""), "no error"),
            (
                &all_off,
                &format!(
                    "f.toml:{last_line}:11: [source.{last}] enabled = false: no source is enabled; enable \
                     at least one"
                ),
            ),
        ]);
    }

    #[test]
    fn text_that_is_not_toml() {
        // Proves that the rest of a text with a syntax error is not checked.
        assert_errors(&[
            ("[recorder]\nx y", "f.toml:2:3: not TOML: key with no value, expected `=`"),
            (
                "[source.synthetic]\nseed = 0x",
                "f.toml:2:8: [source.synthetic] seed = 0x: wrong type: an incomplete number; write \
                 a whole number without quotes, from 0 to 9223372036854775807",
            ),
        ]);
    }

    #[test]
    fn files_that_cannot_be_read() {
        // Proves that a missing, a huge and a binary file are reported with their path, and that a
        // good file is read.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.toml");
        let name = path.display().to_string();
        let read = || Config::read(&path).map_err(|errors| errors.to_string());
        let missing = "No such file or directory (os error 2); create it, or correct its path";
        assert_eq!(read(), Err(format!("{name}: cannot be read: {missing}")));
        std::fs::write(&path, b"[recorder]\n# caf\xe9\n").unwrap();
        assert_eq!(read(), Err(format!("{name}:2:6: byte 16 is not UTF-8; save the file as UTF-8")));
        std::fs::write(&path, "#".repeat(FILE_BYTES_MAX)).unwrap();
        assert_eq!(read(), Ok(Config::default()));
        std::fs::write(&path, "#".repeat(FILE_BYTES_MAX + 1)).unwrap();
        let too_large = "larger than 1MiB, the limit of a configuration file";
        assert_eq!(read(), Err(format!("{name}: {too_large}")));
        assert_eq!(errors(&"#".repeat(FILE_BYTES_MAX + 1)), format!("f.toml: {too_large}"));
    }

    #[test]
    fn a_flood_of_errors_is_cut() {
        // Proves that the number of messages of a hostile file is bounded, and that the further
        // errors are counted.
        let text = (0..1000).map(|number| format!("key{number} = {number}\n")).collect::<Vec<_>>().concat();
        let errors = Config::parse("f.toml", &text).unwrap_err();
        assert_eq!((errors.iter().count(), errors.more()), (100, 900));
        assert!(errors.to_string().ends_with("\nand 900 more"));
    }

    #[test]
    fn a_hostile_file_takes_no_time() {
        // Proves that parsing a simple text never takes quadratic time. A text of a quarter of the
        // size limit is parsed in a moment even without optimization. A quadratic algorithm would
        // take hours.
        for piece in
            ["a\n", "[a]\n", "[a\n", "a=[\n", "a=1\n", "\"a\"=", "[", "a.", "a={", "x='''\n", "\u{e4}\n"]
        {
            let text = piece.repeat(FILE_BYTES_MAX / 4 / piece.len());
            let errors = Config::parse("f.toml", &text).unwrap_err();
            assert!(errors.iter().count() <= 100);
        }
        let text = (0..20_000).map(|number| format!("k{number} = 1\n")).collect::<Vec<_>>().concat();
        assert_eq!(Config::parse("f.toml", &text).unwrap_err().more(), 19_900);
    }

    proptest! {
        #[test]
        fn no_text_panics(
            text in any::<String>(),
            lines in prop::collection::vec((0..200_usize, "[\\[\\]a-z_.=\"{}#0-9 ]{0,12}"), 0..8),
        ) {
            // Proves that random text, and the full file with random insertions, gives either a
            // configuration or errors, and never causes a panic.
            let mut full: Vec<String> = FILE.lines().map(str::to_owned).collect();
            for (at, piece) in lines {
                full.insert(at.min(full.len()), piece);
            }
            for text in [text, full.join("\n")] {
                if let Err(errors) = Config::parse("f.toml", &text) {
                    prop_assert!(errors.iter().count() > 0);
                    prop_assert!(!errors.to_string().is_empty());
                }
            }
        }
    }
}
