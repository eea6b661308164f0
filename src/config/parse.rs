//! Parses TOML texts into a [`Config`]. Each text is checked by itself, then the merged tree of all
//! of them.

use std::collections::BTreeMap;

use toml::de::DeTable;

use super::diagnostics::{Diagnostics, Findings};
use super::env;
use super::error::{ConfigError, ConfigErrors, ConfigLocation, Problem};
use super::file::FILE_BYTES_MAX;
use super::input_texts::InputTexts;
use super::merge::merge_over;
use super::root_table::config;
use super::settings::Config;
use super::syntax;
use super::table_reader::TableReader;

impl Config {
    /// Parses and checks a text; `file_name` is used in messages only.
    ///
    /// # Errors
    /// As [`Layers::read`](super::Layers::read), except those of the file system.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        if text.len() > FILE_BYTES_MAX {
            let problem = Problem::FileTooLarge { limit: FILE_BYTES_MAX as u64 };
            return Err(ConfigErrors::one(ConfigLocation::File(file_name.to_owned()), problem));
        }
        let texts = InputTexts::of_file(file_name, text);
        resolve(&texts, Vec::new()).map(|settled| settled.config)
    }
}

/// The configuration that all texts define together.
#[derive(Debug)]
pub(super) struct ResolvedConfig {
    pub(super) config: Config,
    /// The offset of the value of each key that a text sets, by `table.key`.
    pub(super) value_offsets: BTreeMap<String, usize>,
}

/// Checks texts, each by itself and all together; `unread` are the errors of texts that could not
/// be read.
///
/// If a text is missing or not TOML, conflicts between settings are not reported.
pub(super) fn resolve(texts: &InputTexts, unread: Vec<ConfigError>) -> Result<ResolvedConfig, ConfigErrors> {
    let mut findings = Findings::default();
    let mut merged = DeTable::new();
    // A text that is missing may have the key that settles a conflict.
    let mut is_whole = unread.is_empty();
    for (start, text) in texts.files() {
        let mut walk = Diagnostics::new(texts);
        match syntax::parse(&mut walk, start, text) {
            Some(tree) => {
                // Read for its errors alone, those of overridden values included: without that,
                // removing a drop-in could bring an old mistake to light.
                TableReader::root(&mut walk, tree.clone(), config);
                merge_over(&mut merged, tree);
            }
            None => is_whole = false,
        }
        findings.add(walk.into_local_findings());
    }
    let mut walk = Diagnostics::new(texts);
    // After the files, because a variable may mean an instance that they define.
    let tree = env::tree(&mut walk, texts, &merged);
    TableReader::root(&mut walk, tree.clone(), config);
    merge_over(&mut merged, tree);
    findings.add(walk.into_local_findings());
    let mut walk = Diagnostics::new(texts);
    let config = TableReader::root(&mut walk, merged, config);
    let written = walk.value_offsets().clone();
    if is_whole {
        findings.add(walk.into_cross_key_findings());
    }
    if is_whole && findings.is_empty() {
        Ok(ResolvedConfig { config, value_offsets: written })
    } else {
        Err(findings.into_errors(texts, unread))
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::block::{Codec, Layout};
    use proptest::prelude::*;

    use super::*;
    use crate::config::expected_value::ExpectedValue;
    use crate::config::root_table::known_keys;
    use crate::config::{
        BufferingConfig, CompressConfig, ControlConfig, RecorderConfig, SourceConfig, StorageConfig,
        SyncSetting, default,
    };
    use crate::sampling::sources::CATALOG;
    use crate::sampling::{
        GroupName, SourceSpec, SyntheticConfig, SyntheticLayout, TextOrigin, TextSource, ValueFormat,
    };

    const FILE: &str = include_str!("../../config/flatcap.toml");
    const MINIMAL: &str = include_str!("../../config/minimal.toml");

    /// Returns the sources without instances.
    fn single_sources() -> impl Iterator<Item = &'static SourceSpec> {
        CATALOG.iter().filter(|spec| !spec.has_instances())
    }

    fn source_of<'c>(config: &'c Config, name: &str) -> &'c SourceConfig {
        config.sources.iter().find(|source| source.spec.name == name).unwrap()
    }

    /// Returns all messages of a text, one per line.
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
        // Proves that the two keys shown as comments exist and have their default values.
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

    /// Returns the comments directly above line `index`.
    fn comments_above(lines: &[&str], index: usize) -> String {
        let start = lines[..index].iter().rposition(|line| !line.starts_with("# ")).map_or(0, |at| at + 1);
        lines[start..index].join(" ").replace("# ", "")
    }

    #[test]
    fn file_shows_every_key_with_its_limits() {
        // Proves that each known key has a line in its table, under a comment with its limits.
        let known_keys: Vec<_> =
            known_keys().into_iter().filter(|known| !known.table.contains(".name")).collect();
        let lines: Vec<&str> = FILE.lines().collect();
        let common = lines.iter().find(|line| line.starts_with("# A source is one kind")).unwrap();
        let common_at = lines.iter().position(|line| line == common).unwrap();
        let mut shown = 0;
        for known in &known_keys {
            let header = match &known.expected {
                ExpectedValue::Table(name)
                    if ["group", "source"].contains(&name.as_str())
                        || name.starts_with("source.file")
                        || name.starts_with("source.command") =>
                {
                    continue;
                }
                ExpectedValue::Table(name) => format!("[{name}]"),
                _ => format!("[{}]", known.table),
            };
            let header_at =
                lines.iter().position(|line| *line == header).unwrap_or_else(|| panic!("{header}"));
            if matches!(known.expected, ExpectedValue::Table(_)) {
                continue;
            }
            let end = lines[header_at + 1..].iter().position(|line| line.starts_with('['));
            let end = end.unwrap_or(lines.len() - header_at - 1);
            let is_key =
                |line: &&str| line.trim_start_matches("# ").starts_with(&format!("{} = ", known.key));
            let at = lines[header_at..header_at + 1 + end].iter().position(is_key);
            let at = header_at + at.unwrap_or_else(|| panic!("{header} {} is not shown", known.key));
            let is_common =
                ["enabled", "period", "required", "budget", "include", "exclude"].contains(&known.key);
            let comment = if is_common {
                let prefix = format!("# {}: ", known.key);
                lines[common_at..].iter().find(|line| line.starts_with(&prefix)).unwrap().to_string()
            } else {
                comments_above(&lines, at)
            };
            let limits = known.expected.limits().unwrap_or_default().replace("from ", "rom ");
            assert!(comment.contains(&limits), "{header} {}: {limits} not in: {comment}", known.key);
            assert!(comment.len() > 10, "{header} {} has no sentence", known.key);
            shown += 1;
        }
        assert_eq!(shown, 6 + 3 + 11 + 8 + 3 + 3 * 4 + single_sources().count() * 6 + 4 + 2 + 6 + 1);
    }

    #[test]
    fn minimal_example_parses() {
        // Proves that the example is valid and does what its comment says.
        let config = Config::parse("minimal.toml", MINIMAL).unwrap();
        let enabled: Vec<&str> = config.enabled_sources().map(|source| source.spec.name).collect();
        assert_eq!(enabled, ["cpu", "memory"]);
        assert_eq!(config.storage.segment_size, 64 << 20);
    }

    // Proves that each key sets its own field: each one gets a different value.
    #[test]
    fn every_key_sets_its_field() {
        let text = "[recorder]\ndata_dir = \"/d\"\nhost_root = \"/h\"\nmemory_max = \"128MiB\"\n\
            lock_memory = true\ncpu_budget = \"250.5%\"\n\
            [buffering]\nslab_size = \"128KiB\"\nflush_interval = \"6ms\"\npoll_interval = \"7ms\"\n\
            [storage]\nchecksum = \"crc16\"\nsegment_size = \"1GiB\"\nsegment_age = \"8s\"\nsync = \"interval\"\n\
            sync_interval = \"9s\"\npreallocate = \"1MiB\"\nframe_max = \"2MiB\"\n\
            [compress]\nenabled = false\nwhile_recording = \"lz4\"\ncodec = \"brotli:3\"\nlayout = \"row\"\nblock_size = \"2MiB\"\ncpu_budget = \"3%\"\n\
            io_budget = \"4MiB\"\nsources = [\"cpu=lz4\", \"file.a=none/columnar\"]\n\
            [control]\nenabled = false\nsocket = \"/s\"\nmetrics_listen = \"[::1]:9598\"\n\
            [group.fast]\ntiming = \"relaxed\"\npriority = 5\non_full = \"drop-oldest\"\n\
            [group.slow]\ntiming = \"precise\"\ncpus = [3, 0]\non_full = \"block\"\n\
            [group.blocking]\ntiming = \"spin\"\n[source.load]\nenabled = false\nperiod = \"11ms\"\nrequired = true\n\
            [source.synthetic]\nenabled = true\nshape = \"wide\"\nfields = 0x10\npayload = \"3KiB\"\nseed = 12\n";
        let config = Config::parse("f.toml", text).unwrap();
        let recorder = RecorderConfig {
            data_dir: "/d".into(),
            run_dir: "".into(),
            host_root: "/h".into(),
            memory_max: 128 << 20,
            lock_memory: true,
            cpu_budget: crate::config::CpuShare::of_basis_points(25_050),
        };
        assert_eq!(config.recorder, recorder);
        let ms = std::time::Duration::from_millis;
        assert_eq!(
            config.buffering,
            BufferingConfig { slab_size: 128 << 10, flush_interval: ms(6), poll_interval: ms(7) }
        );
        let storage = StorageConfig {
            checksum: crate::config::ChecksumSetting::Crc16,
            segment_size: 1 << 30,
            segment_age: ms(8000),
            sync: SyncSetting::Interval(ms(9000)),
            preallocate: 1 << 20,
            retain_bytes: default::RETAIN_BYTES,
            retain_min: default::RETAIN_MIN,
            retain_age: default::RETAIN_AGE,
            min_free: default::MIN_FREE,
            frame_max: 2 << 20,
        };
        assert_eq!(config.storage, storage);
        let compress = CompressConfig {
            enabled: false,
            while_recording: Some(Codec::Lz4),
            codec: Codec::Brotli(3),
            layout: Layout::Row,
            block_size: 2 << 20,
            cpu_budget: crate::config::CpuShare::of_basis_points(300),
            io_budget: 4 << 20,
            sources: ["cpu=lz4", "file.a=none/columnar"].map(|text| text.parse().unwrap()).into(),
        };
        assert_eq!(config.compress, compress);
        let control = ControlConfig {
            enabled: false,
            socket: "/s".into(),
            metrics_listen: Some("[::1]:9598".parse().unwrap()),
        };
        assert_eq!(config.control, control);
        let on_full = GroupName::ALL.iter().map(|name| config.groups.get(*name).on_full.as_str());
        assert_eq!(on_full.collect::<Vec<_>>(), ["drop-oldest", "block", "drop-newest"]);
        let groups = GroupName::ALL.iter().map(|name| config.groups.get(*name));
        let groups: Vec<_> =
            groups.map(|group| (group.timing.as_str(), group.priority, group.cpus.as_slice())).collect();
        let none: &[u32] = &[];
        assert_eq!(groups, [("relaxed", 5, none), ("precise", 0, &[0, 3]), ("spin", 0, none)]);
        let load = source_of(&config, "load");
        assert_eq!((load.enabled, load.period, load.required), (false, ms(11), true));
        let expected =
            SyntheticConfig { shape: SyntheticLayout::Wide { fields: 16, payload_bytes: 3 << 10 }, seed: 12 };
        let synthetic = source_of(&config, "synthetic");
        assert_eq!((synthetic.enabled, synthetic.synthetic), (true, Some(expected)));
    }

    #[test]
    fn invalid_compression_settings() {
        // Proves that each wrong value of [compress] is reported with its location and the valid
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
        // Proves that every TOML syntax of a table is understood, with the right location in
        // messages.
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
        // Proves that each key sets its field, and that instances are sorted by name.
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
        // Proves the message of each mistake, and the limit on the number of instances.
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
        // Proves that the examples in config/flatcap.toml are valid when uncommented, and show
        // every key.
        let (_, examples) = FILE.split_once("# Instances").unwrap();
        let uncommented: Vec<&str> =
            examples.lines().filter_map(|line| line.strip_prefix("#     ")).collect();
        let text = uncommented.join("\n");
        let config = Config::parse("flatcap.toml", &text).unwrap();
        let names: Vec<_> = config.sources.iter().filter(|source| source.instance.is_some()).collect();
        assert_eq!(names.len(), 2);
        for key in ["path", "format", "pattern", "command", "timeout"] {
            assert!(text.contains(&format!("{key} = ")), "{key}");
        }
    }

    #[test]
    fn commands_know_the_file_that_names_them() {
        // Proves that owner and mode of file and directory, which decide whether a command may run,
        // are those of the file that was read.
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
        // Proves that shorter segments need no second key.
        let config = Config::parse("f.toml", "[storage]\nsegment_size = \"1MiB\"\n").unwrap();
        assert_eq!(config.storage.preallocate, 1 << 20);
        let config = Config::parse("f.toml", "[storage]\npreallocate = \"0\"\n").unwrap();
        assert_eq!(config.storage.preallocate, 0);
    }

    #[test]
    fn all_errors_at_once_in_line_order() {
        // Proves that six mistakes of six kinds, in six tables, give six errors, sorted by line.
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
                 f.toml:6:10: [source.cpu] period = \"10\": no unit; write a number with ns, us, ms, s, m, h or d, \
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
        // Proves the message for a name that is misspelt, in the wrong table, or unknown.
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
            ("[seal]\nenabled = true", "f.toml:1:2: [seal]: was renamed; write [compress]"),
            (
                "[storage]\nkeep_free = \"1%\"",
                "f.toml:2:1: [storage] keep_free: was renamed; write min_free in [storage]",
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
                "f.toml:1:2: [zip]: no such table; the tables are [recorder], [buffering], [storage], [compress], [control], \
                 [group] and [source]",
            ),
        ]);
    }

    #[test]
    fn given_twice() {
        // Proves that the second of two equal keys or tables is the error, and the rest is still
        // checked.
        assert_errors(&[
            (
                "[recorder]\ndata_dir = \"a\"\ndata_dir = \"b\"\nx = 1",
                "f.toml:3:1: data_dir: given twice; keep one\n\
                 f.toml:4:1: [recorder] x: no such key here; the keys are data_dir, run_dir, host_root, \
                 memory_max, lock_memory and cpu_budget",
            ),
            ("[recorder]\n[recorder]", "f.toml:2:2: recorder: given twice; keep one"),
        ]);
    }

    #[test]
    fn wrong_types() {
        // Proves that each wrong type is named in the message.
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
        // Proves that both ends of a range, multiples, keywords and paths are checked; the limits
        // are valid.
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
                 KiB is 1024-based; write a number with B, KiB, MiB, GiB or TiB, from 16KiB to \
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
    fn listen_addresses() {
        // Proves that a port alone means the loopback address, and that no address is guessed.
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
        // Proves each rule between two keys, and that a default never makes a key of the file an
        // error.
        let off = |spec: &SourceSpec| format!("[source.{}]\nenabled = false\n", spec.name);
        let all_off = single_sources().map(off).collect::<Vec<_>>().concat();
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
                "f.toml:62:11: [source.gpu] enabled = false: no source is enabled; enable at least one",
            ),
        ]);
    }

    #[test]
    fn too_little_memory() {
        // Proves that the sum is shown, at the key or, for a default, at the file, and that the
        // suggested value suffices.
        let terms =
            "12 slabs queued (768KiB) + 3 slabs held for ordering (192KiB) + 2 slabs for frames of frame_max";
        let sum = "24 slab indexes (648KiB) + 9 frame builders (3276KiB) + 9 loss lists (344KiB) + \
             256 source slots (256KiB) + 4 gap buffers (164KiB) + 106 histograms (2145KiB)";
        assert_errors(&[
            (
                "[recorder]\nmemory_max = \"8MiB\"",
                &format!(
                    "f.toml:2:14: [recorder] memory_max = \"8MiB\": too little: 3 slabs being filled \
                     (192KiB) + 4 slabs being written (256KiB) + {terms} (32776KiB) + {sum} = 41017KiB exceeds \"8MiB\"; write at \
                     least \"41MiB\""
                ),
            ),
            ("[recorder]\nmemory_max = \"41MiB\"", "no error"),
            (
                "[storage]\nframe_max = \"32MiB\"",
                &format!(
                    "f.toml: [recorder] memory_max: too little: 3 slabs being filled (192KiB) + 4 slabs \
                     being written (256KiB) + {terms} (65544KiB) + {sum} = 73785KiB exceeds \"64MiB\"; write at least \"73MiB\""
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
        // Proves that a missing, a huge and a binary file are reported with their path, and a good
        // one is read.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.toml");
        let name = path.display().to_string();
        let read = || Config::read(&path).map_err(|errors| errors.to_string());
        assert_eq!(read(), Err(format!("{name}: cannot be read: No such file or directory (os error 2)")));
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
        // Proves that the number of messages of a hostile file is bounded and the rest is counted.
        let text = (0..1000).map(|number| format!("key{number} = {number}\n")).collect::<Vec<_>>().concat();
        let errors = Config::parse("f.toml", &text).unwrap_err();
        assert_eq!((errors.iter().count(), errors.more()), (100, 900));
        assert!(errors.to_string().ends_with("\nand 900 more"));
    }

    #[test]
    fn a_hostile_file_takes_no_time() {
        // Proves that no simple text takes quadratic time: a quarter of the size limit is parsed in
        // a moment even unoptimized; quadratic time would be hours.
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
            // Proves that random text, and the full file with random insertions, gives a value or
            // errors.
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
