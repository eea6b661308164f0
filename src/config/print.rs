//! Prints a configuration in full as TOML: every key in the order of `config/flatcap.toml`, and
//! derived sizes as comments.

use super::compress::CompressConfig;
use super::default;
use super::diagnostics::joined;
use super::layers::ValueLocations;
use super::memory::MemoryBudget;
use super::settings::{Config, ControlConfig, GroupConfig, MinFree, SyncSetting};
use super::source::SourceConfig;
use super::table_compress::OFF;
use super::units::{format_duration, format_size};
use crate::sampling::{
    CgroupConfig, GroupName, Pattern, ProcessConfig, SyntheticConfig, SyntheticLayout, TextOrigin,
    TextSource, ValueFormat,
};

impl Config {
    /// Returns the whole configuration as TOML with all defaults, which [`Config::parse`] parses to
    /// an equal configuration. Keys without effect and derived sizes are comments.
    ///
    /// Bytes of a path that are not UTF-8, which only a command line can contain, become U+FFFD.
    pub fn to_toml(&self) -> String {
        self.to_toml_with(None)
    }

    /// As [`Config::to_toml`], with a comment after each value that has a location in `origins`.
    pub(super) fn to_toml_with(&self, origins: Option<&ValueLocations>) -> String {
        let mut lines = TomlWriter { written: Vec::new(), table: String::new(), locations: origins };
        lines.recorder(self);
        lines.buffering(self);
        lines.storage(self);
        lines.compress(&self.compress);
        lines.control(&self.control);
        for name in GroupName::ALL {
            lines.group(self, *name, self.groups.get(*name));
        }
        for source in &self.sources {
            lines.source(source);
        }
        lines.written.join("\n") + "\n"
    }

    /// As [`Config::to_toml`], for a recording that others will read: the values of keys whose
    /// names suggest a secret are replaced.
    pub fn to_toml_redacted(&self) -> String {
        self.to_toml().lines().map(|line| redacted(line) + "\n").collect()
    }
}

/// Words in the name of a key whose value is a secret.
const SECRET_WORDS: [&str; 6] = ["password", "passphrase", "secret", "token", "credential", "private"];

/// Returns a line of a configuration without its secret, if it has one. A comment may have one too.
fn redacted(line: &str) -> String {
    let names_secret = |text: &str| SECRET_WORDS.iter().any(|word| text.to_lowercase().contains(word));
    // Each line has a whole key: `quoted` escapes newlines, so no value continues on the next one.
    match line.split_once(" = ") {
        // An argument may be the name of a secret or the secret itself, so only the program is
        // kept.
        Some(("command", words)) if names_secret(words) => match words.split_once("\", ") {
            Some((program, _arguments)) => format!("command = {program}\", \"***\"]"),
            None => line.to_owned(),
        },
        Some((key, _)) if SECRET_WORDS.iter().any(|word| key.contains(word)) => format!("{key} = \"***\""),
        _ => line.to_owned(),
    }
}

struct TomlWriter<'o> {
    written: Vec<String>,
    /// The table of the next key.
    table: String,
    locations: Option<&'o ValueLocations>,
}

impl TomlWriter<'_> {
    fn recorder(&mut self, config: &Config) {
        let recorder = &config.recorder;
        self.table("recorder");
        self.quoted("data_dir", &recorder.data_dir.to_string_lossy());
        self.quoted("run_dir", &recorder.run_dir.to_string_lossy());
        self.quoted("host_root", &recorder.host_root.to_string_lossy());
        self.quoted("memory_max", &format_size(recorder.memory_max));
        self.plain("lock_memory", recorder.lock_memory);
        self.quoted("cpu_budget", &recorder.cpu_budget.to_string());
    }

    fn buffering(&mut self, config: &Config) {
        let buffering = &config.buffering;
        self.table("buffering");
        self.quoted("slab_size", &format_size(buffering.slab_size as u64));
        self.quoted("flush_interval", &format_duration(buffering.flush_interval));
        self.quoted("poll_interval", &format_duration(buffering.poll_interval));
        self.memory(&config.memory());
    }

    fn memory(&mut self, memory: &MemoryBudget) {
        self.note("memory used with these settings:");
        for term in memory.terms() {
            self.note(&format!("{:>8}  {} {}", format_size(term.bytes), term.count, term.holder));
        }
        self.note(&format!("{:>8}  sum, at most memory_max", format_size(memory.sum_bytes())));
    }

    fn storage(&mut self, config: &Config) {
        let storage = &config.storage;
        self.table("storage");
        self.quoted("checksum", storage.checksum.as_str());
        self.quoted("segment_size", &format_size(storage.segment_size));
        self.quoted("segment_age", &format_duration(storage.segment_age));
        self.quoted("sync", storage.sync.keyword().as_str());
        // As a key, the interval would be an error beside another `sync`.
        match storage.sync {
            SyncSetting::Interval(interval) => self.quoted("sync_interval", &format_duration(interval)),
            SyncSetting::Never | SyncSetting::Always => {
                self.unused_quoted("sync_interval", &format_duration(default::SYNC_INTERVAL));
            }
        }
        self.quoted("preallocate", &format_size(storage.preallocate));
        self.quoted("retain_bytes", &format_size(storage.retain_bytes));
        self.quoted("retain_min", &format_size(storage.retain_min));
        self.quoted("retain_age", &format_duration(storage.retain_age));
        match storage.min_free {
            MinFree::Size(bytes) => self.quoted("min_free", &format_size(bytes)),
            MinFree::Percent(percent) => self.quoted("min_free", &format!("{percent}%")),
        }
        self.quoted("frame_max", &format_size(u64::from(storage.frame_max)));
    }

    fn compress(&mut self, compress: &CompressConfig) {
        self.table("compress");
        self.plain("enabled", compress.enabled);
        self.quoted(
            "while_recording",
            &compress.while_recording.map_or_else(|| OFF.to_owned(), |codec| codec.to_string()),
        );
        self.quoted("codec", &compress.codec.to_string());
        self.quoted("layout", &compress.layout.to_string());
        self.quoted("block_size", &format_size(compress.block_size as u64));
        self.quoted("cpu_budget", &compress.cpu_budget.to_string());
        self.quoted("io_budget", &format_size(compress.io_budget));
        let sources: Vec<String> = compress.sources.iter().map(ToString::to_string).collect();
        self.texts("sources", sources.iter().map(String::as_str));
    }

    fn control(&mut self, control: &ControlConfig) {
        self.table("control");
        self.plain("enabled", control.enabled);
        self.quoted("socket", &control.socket.to_string_lossy());
        let address = control.metrics_listen.map(|address| address.to_string());
        self.quoted("metrics_listen", &address.unwrap_or_default());
    }

    fn group(&mut self, config: &Config, name: GroupName, group: &GroupConfig) {
        self.table(&format!("group.{}", name.as_str()));
        self.quoted("timing", group.timing.as_str());
        self.plain("priority", group.priority);
        let cpus: Vec<String> = group.cpus.iter().map(u32::to_string).collect();
        self.plain("cpus", format!("[{}]", cpus.join(", ")));
        self.quoted("on_full", group.on_full.as_str());
        let sources: Vec<_> = config.sources_of(name).map(SourceConfig::full_name).collect();
        let sources = if sources.is_empty() { "none".to_owned() } else { sources.join(", ") };
        self.note(&format!("sources: {sources}"));
    }

    fn source(&mut self, source: &SourceConfig) {
        self.table(&format!("source.{}", source.full_name()));
        self.plain("enabled", source.enabled);
        self.quoted("period", &format_duration(source.period));
        self.plain("required", source.required);
        self.quoted("budget", &source.budget.to_string());
        self.list("include", &source.include);
        self.list("exclude", &source.exclude);
        if let Some(SyntheticConfig { shape, seed }) = source.synthetic {
            self.quoted("shape", shape.keyword().as_str());
            match shape {
                SyntheticLayout::Wide { fields, payload_bytes } => {
                    self.plain("fields", fields);
                    self.quoted("payload", &format_size(u64::from(payload_bytes)));
                }
                SyntheticLayout::Point => {
                    self.note(&format!("fields = {}", default::SYNTHETIC_FIELDS));
                    self.unused_quoted("payload", &format_size(default::SYNTHETIC_PAYLOAD));
                }
            }
            self.plain("seed", seed);
        }
        if let Some(ProcessConfig { users, cgroups, top, by, command_lines, cgroup_paths }) = &source.process
        {
            self.list("users", users);
            self.list("cgroups", cgroups);
            self.plain("top", top);
            self.quoted("by", by.as_str());
            self.plain("command_lines", command_lines);
            self.plain("cgroup_paths", cgroup_paths);
        }
        if let Some(CgroupConfig { depth }) = source.cgroup {
            self.plain("depth", depth);
        }
        if let Some(perf) = &source.perf {
            self.texts("events", perf.events.iter().map(|event| event.as_str()));
            self.texts("processes", perf.processes.iter().map(String::as_str));
        }
        if let Some(readout) = &source.text_source {
            self.readout(readout);
        }
    }

    fn readout(&mut self, readout: &TextSource) {
        match &readout.origin {
            TextOrigin::File(path) => self.quoted("path", &path.to_string_lossy()),
            TextOrigin::Command(command) => {
                self.texts("command", command.argv.iter().map(String::as_str));
                self.quoted("timeout", &format_duration(command.timeout));
            }
        }
        self.quoted("format", readout.format.keyword().as_str());
        if let ValueFormat::Regex(expression) = &readout.format {
            self.quoted("pattern", expression.as_str());
        }
    }

    fn table(&mut self, name: &str) {
        if !self.written.is_empty() {
            self.written.push(String::new());
        }
        self.written.push(format!("[{name}]"));
        name.clone_into(&mut self.table);
    }

    fn plain(&mut self, key: &str, value: impl std::fmt::Display) {
        let origin = self.locations.and_then(|origins| origins.of(&joined(&self.table, key)));
        let comment = origin.map(|origin| format!(" # {origin}")).unwrap_or_default();
        self.written.push(format!("{key} = {value}{comment}"));
    }

    fn list(&mut self, key: &str, patterns: &[Pattern]) {
        self.texts(key, patterns.iter().map(Pattern::as_str));
    }

    fn texts<'a>(&mut self, key: &str, texts: impl Iterator<Item = &'a str>) {
        let items: Vec<String> = texts.map(quoted).collect();
        self.plain(key, format!("[{}]", items.join(", ")));
    }

    fn quoted(&mut self, key: &str, text: &str) {
        self.plain(key, quoted(text));
    }

    /// Writes a key without effect as a comment; as a key it would be an error.
    fn unused_quoted(&mut self, key: &str, text: &str) {
        self.note(&format!("{key} = {}", quoted(text)));
    }

    fn note(&mut self, text: &str) {
        self.written.push(format!("# {text}"));
    }
}

/// Returns the text as a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // TOML forbids control characters in strings. They end at U+009F, so four digits
            // suffice.
            c if c.is_control() => quoted.extend(format!("\\u{:04X}", u32::from(c)).chars()),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use flatcap_format::block::{Codec, Layout};
    use flatcap_format::testing::effort;
    use proptest::prelude::*;

    use super::*;
    use crate::config::{
        BufferingConfig, ChecksumSetting, CpuShare, GroupConfigs, OnFull, RecorderConfig,
        SourceCompressionConfig, StorageConfig, validate,
    };
    use crate::sampling::sources::{CATALOG, find};
    use crate::sampling::{
        CommandSpec, Expression, OwnKeys, PerfConfig, PerfEvent, ProcessRank, SourceSpec, Timing,
    };

    const FILE: &str = include_str!("../../config/flatcap.toml");

    /// Returns tables and keys in order, those in comments too.
    fn layout(text: &str) -> Vec<String> {
        let key = |line: &str| {
            let (key, _) = line.trim_start_matches("# ").split_once(" = ")?;
            key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then(|| key.to_owned())
        };
        text.lines()
            .filter_map(|line| if line.starts_with('[') { Some(line.to_owned()) } else { key(line) })
            .collect()
    }

    #[test]
    fn same_layout_as_the_file() {
        // Proves that tables and keys have the order of config/flatcap.toml, for each variant of a
        // setting.
        let mut config = Config::default();
        let expected = layout(FILE);
        assert!(expected.len() > 50);
        assert_eq!(layout(&config.to_toml()), expected);
        config.storage.sync = SyncSetting::Never;
        let synthetic = config.sources.iter_mut().find(|source| source.synthetic.is_some());
        synthetic.unwrap().synthetic =
            Some(SyntheticConfig { shape: SyntheticLayout::Wide { fields: 1, payload_bytes: 2 }, seed: 3 });
        assert_eq!(layout(&config.to_toml()), expected);
    }

    #[test]
    fn secrets_are_redacted() {
        // Proves that secrets are redacted and everything else is printed unchanged.
        assert_eq!(redacted("auth_token = \"abc\""), "auth_token = \"***\"");
        assert_eq!(redacted("# password = \"abc\""), "# password = \"***\"");
        assert_eq!(redacted("data_dir = \"secrets\""), "data_dir = \"secrets\"");
        assert_eq!(
            redacted("command = [\"/bin/x\", \"--Token\", \"abc\"]"),
            "command = [\"/bin/x\", \"***\"]"
        );
        assert_eq!(redacted("command = [\"/bin/x\", \"-v\"]"), "command = [\"/bin/x\", \"-v\"]");
        let config = Config::default();
        assert_eq!(config.to_toml_redacted(), config.to_toml(), "no key of today is secret");
    }

    #[test]
    fn derived_sizes_are_comments() {
        // Proves that the printed configuration shows how memory is used and which thread reads
        // which source.
        let text = Config::default().to_toml();
        for line in [
            "# memory used with these settings:",
            "#   192KiB  3 slabs being filled",
            "# 17216KiB  269 slabs queued",
            "# sources: cpu, memory, disk, network",
            "# sources: vmstat, load, pressure, self",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    fn duration(range: &std::ops::RangeInclusive<Duration>) -> impl Strategy<Value = Duration> + use<> {
        let nanoseconds = |end: &Duration| u64::try_from(end.as_nanos()).unwrap();
        (nanoseconds(range.start())..=nanoseconds(range.end())).prop_map(Duration::from_nanos)
    }

    fn group() -> impl Strategy<Value = GroupConfig> {
        let cpus = prop::collection::btree_set(0..=1023_u32, 0..4);
        (prop::sample::select(Timing::ALL), 0..=99_u8, cpus, prop::sample::select(OnFull::ALL)).prop_map(
            |(timing, priority, cpus, on_full)| GroupConfig {
                timing,
                priority,
                cpus: cpus.into_iter().collect(),
                on_full,
            },
        )
    }

    fn storage() -> impl Strategy<Value = StorageConfig> {
        let sync = prop_oneof![
            Just(SyncSetting::Never),
            Just(SyncSetting::Always),
            duration(&default::SYNC_INTERVAL_RANGE).prop_map(SyncSetting::Interval)
        ];
        let sizes = default::SEGMENT_SIZE_RANGE.prop_flat_map(|size| (Just(size), 0..=size));
        let age = duration(&default::SEGMENT_AGE_RANGE);
        let min_free = prop_oneof![
            (0..=1_u64 << 40).prop_map(MinFree::Size),
            (0..=default::MIN_FREE_PERCENT_MAX).prop_map(MinFree::Percent)
        ];
        let retain = (0..=1_u64 << 40, duration(&default::RETAIN_AGE_RANGE), min_free);
        let kind = prop::sample::select(ChecksumSetting::ALL);
        (kind, sizes, age, sync, (64 << 10)..=(1_u32 << 30), retain).prop_map(
            |(checksum, (segment_size, preallocate), segment_age, sync, frame_max, retain)| StorageConfig {
                checksum,
                segment_size,
                segment_age,
                sync,
                preallocate,
                retain_bytes: (2 * segment_size).max(4 << 20) + retain.0,
                retain_min: retain.0,
                retain_age: retain.1,
                min_free: retain.2,
                frame_max,
            },
        )
    }

    fn sources() -> impl Strategy<Value = Vec<SourceConfig>> {
        let shape = prop_oneof![
            Just(SyntheticLayout::Point),
            (1..=4096_u32, 0..=(1_u32 << 20))
                .prop_map(|(fields, payload_bytes)| SyntheticLayout::Wide { fields, payload_bytes })
        ];
        let synthetic =
            (shape, default::SYNTHETIC_SEED_RANGE).prop_map(|(shape, seed)| SyntheticConfig { shape, seed });
        let pattern = "[a-z*?]{1,8}".prop_map(|text| Pattern::new(&text).unwrap());
        let patterns = || prop::collection::vec(pattern.clone(), 0..3);
        let budget = (1..=10_000_u32).prop_map(CpuShare::of_basis_points);
        let each =
            (any::<bool>(), duration(&default::PERIOD_RANGE), any::<bool>(), budget, patterns(), patterns());
        let process =
            (
                patterns(),
                patterns(),
                0..=16_384_u32,
                prop::sample::select(ProcessRank::ALL),
                any::<bool>(),
                any::<bool>(),
            )
                .prop_map(|(users, cgroups, top, by, command_lines, cgroup_paths)| {
                    ProcessConfig { users, cgroups, top, by, command_lines, cgroup_paths }
                });
        let cgroup = (0..=64_u32).prop_map(|depth| CgroupConfig { depth });
        let own = (synthetic, process, cgroup);
        let specs = || CATALOG.iter().filter(|spec| !spec.has_instances());
        (prop::collection::vec(each, specs().count()), own).prop_map(move |(each, own)| {
            let (synthetic, process, cgroup) = own;
            let source = |(spec, each): (&'static SourceSpec, _)| {
                let (enabled, period, required, budget, include, exclude) = each;
                SourceConfig {
                    spec,
                    enabled,
                    period,
                    required,
                    budget,
                    include: if spec.has_filters() { include } else { Vec::new() },
                    exclude: if spec.has_filters() { exclude } else { Vec::new() },
                    synthetic: (spec.keys == OwnKeys::Synthetic).then_some(synthetic),
                    process: (spec.keys == OwnKeys::Process).then(|| process.clone()),
                    cgroup: (spec.keys == OwnKeys::Cgroup).then_some(cgroup),
                    ..SourceConfig::by_default(spec)
                }
            };
            specs().zip(each).map(source).collect()
        })
    }

    fn format() -> impl Strategy<Value = ValueFormat> {
        let expression = "[a-z \"'\u{e4}]{0,8}";
        let regex = |text: String| ValueFormat::Regex(Expression::new(&format!("{text}(\\S+)")).unwrap());
        prop_oneof![Just(ValueFormat::Pairs), expression.prop_map(regex)]
    }

    /// Instances of both kinds, sorted by name.
    fn instances() -> impl Strategy<Value = Vec<SourceConfig>> {
        let name = || "[a-z0-9_-]{1,32}";
        let path = || "/[a-z \"\\\\\u{e4}]{1,20}";
        let file = path().prop_map(|path| TextOrigin::File(path.into()));
        let arguments = prop::collection::vec("[^\0]{0,20}", 0..4);
        let timeout = duration(&default::TIMEOUT_RANGE);
        let command = (path(), arguments, timeout).prop_map(|(path, arguments, timeout)| {
            let words = std::iter::once(path).chain(arguments).collect();
            TextOrigin::Command(CommandSpec { argv: words, timeout, defined_in: None })
        });
        let files = prop::collection::btree_map(name(), (file, format(), any::<bool>()), 0..3);
        let commands = prop::collection::btree_map(name(), (command, format(), any::<bool>()), 0..3);
        (files, commands).prop_map(|(files, commands)| {
            let source = |name, (instance, (origin, format, enabled))| SourceConfig {
                instance: Some(instance),
                enabled,
                text_source: Some(TextSource { origin, format }),
                ..SourceConfig::by_default(find(name).unwrap())
            };
            let files = files.into_iter().map(|it| source("file", it));
            files.chain(commands.into_iter().map(|it| source("command", it))).collect()
        })
    }

    fn perf() -> impl Strategy<Value = PerfConfig> {
        let events = prop::sample::subsequence(PerfEvent::ALL, 1..=PerfEvent::ALL.len());
        let processes = prop::collection::btree_set("[a-zA-Z0-9/ :]{1,15}", 0..16);
        (events, processes)
            .prop_map(|(events, processes)| PerfConfig { events, processes: processes.into_iter().collect() })
    }

    fn control() -> impl Strategy<Value = ControlConfig> {
        let address = (any::<std::net::IpAddr>(), 1..=u16::MAX).prop_map(std::net::SocketAddr::from);
        let socket = prop_oneof![Just(String::new()), "/[a-z \u{e4}]{1,20}"].prop_map(PathBuf::from);
        (any::<bool>(), socket, prop::option::of(address))
            .prop_map(|(enabled, socket, metrics_listen)| ControlConfig { enabled, socket, metrics_listen })
    }

    fn compress() -> impl Strategy<Value = CompressConfig> {
        let codec = prop_oneof![
            prop::sample::select(vec![Codec::None, Codec::Lz4, Codec::Snappy]),
            (1..=19_u8).prop_map(Codec::Zstd),
            (0..=11_u8).prop_map(Codec::Brotli)
        ];
        let layout = || prop::sample::select(vec![Layout::Row, Layout::Columnar]);
        let name = prop_oneof![Just("cpu".to_owned()), "file\\.[a-z0-9_-]{1,32}"];
        let ways = prop::collection::btree_map(name, (codec.clone(), prop::option::of(layout())), 0..3);
        let sources = ways.prop_map(|ways| {
            ways.into_iter()
                .map(|(name, (codec, layout))| SourceCompressionConfig { name, codec, layout })
                .collect()
        });
        let sizes = (default::COMPRESS_BLOCK_SIZE_RANGE, default::COMPRESS_IO_BUDGET_RANGE);
        let cpu_budget = (10..=10_000_u32).prop_map(CpuShare::of_basis_points);
        let codecs = (prop::option::of(codec.clone()), codec);
        (any::<bool>(), codecs, layout(), sizes, cpu_budget, sources).prop_map(
            |(enabled, (while_recording, codec), layout, (block_size, io_budget), cpu_budget, sources)| {
                CompressConfig {
                    enabled,
                    while_recording,
                    codec,
                    layout,
                    block_size: usize::try_from(block_size).unwrap(),
                    cpu_budget,
                    io_budget,
                    sources,
                }
            },
        )
    }

    fn config() -> impl Strategy<Value = Config> {
        let path = || "[^\0]{1,20}".prop_map(PathBuf::from);
        let cpu_budget = (10..=100_000_u32).prop_map(CpuShare::of_basis_points);
        let recorder = (path(), path(), path(), default::MEMORY_MAX_RANGE, any::<bool>(), cpu_budget)
            .prop_map(|(data_dir, run_dir, host_root, memory_max, lock_memory, cpu_budget)| RecorderConfig {
                data_dir,
                run_dir,
                host_root,
                memory_max,
                lock_memory,
                cpu_budget,
            });
        let buffering = (
            4..=1024_usize,
            duration(&default::FLUSH_INTERVAL_RANGE),
            duration(&default::POLL_INTERVAL_RANGE),
        )
            .prop_map(|(pages, flush_interval, poll_interval)| BufferingConfig {
                slab_size: pages << 12,
                flush_interval,
                poll_interval,
            });
        let groups = (group(), group(), group()).prop_map(|(fast, slow, blocking)| GroupConfigs {
            fast,
            slow,
            blocking,
        });
        let sources = (sources(), perf(), instances()).prop_map(|(mut sources, perf, instances)| {
            let counters = sources.iter_mut().find(|source| source.perf.is_some()).unwrap();
            counters.perf = Some(perf);
            sources.extend(instances);
            sources
        });
        (recorder, buffering, storage(), compress(), control(), groups, sources).prop_map(
            |(recorder, buffering, storage, compress, control, groups, sources)| Config {
                recorder,
                buffering,
                storage,
                compress,
                control,
                groups,
                sources,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::of(64, 256)))]

        #[test]
        fn what_is_printed_reads_back(config in config()) {
            // Proves that a printed configuration is complete and exact for any values.
            prop_assume!(config.enabled_sources().next().is_some());
            prop_assume!(validate::memory(&config).is_ok());
            prop_assume!(validate::synthetic_frame(&config).is_ok());
            let text = config.to_toml();
            let again = Config::parse("printed.toml", &text);
            prop_assert_eq!(again.map_err(|errors| errors.to_string()), Ok(config), "{}", text);
        }
    }
}
