//! Prints a configuration in full as TOML, in the order of the reference.

use flatcap_sampling::GroupName;

use super::layers::ValueLocations;
use super::settings::Config;
use super::source::SourceConfig;
use super::tables::joined;

/// Words that mark a key's value as a secret if they occur in the key's name.
const SECRET_WORDS: [&str; 6] = ["password", "passphrase", "secret", "token", "credential", "private"];

impl Config {
    /// Returns the whole configuration as TOML with all defaults. [`Config::parse`] parses this
    /// text to an equal configuration. Keys without effect are comments.
    ///
    /// Bytes of a path that are not UTF-8 become U+FFFD. Only a command line can contain such
    /// bytes.
    pub fn to_toml(&self) -> String {
        self.to_toml_with(None, |_, value| value)
    }

    /// Like [`Config::to_toml`], but for a recording that others will read. The values of keys
    /// whose names suggest a secret are replaced.
    pub fn to_toml_redacted(&self) -> String {
        self.to_toml_with(None, redacted)
    }

    /// Like [`Config::to_toml`], but with a comment after each value that has a location in
    /// `origins`. `shown` returns the value to print for a key.
    pub(super) fn to_toml_with(
        &self,
        origins: Option<&ValueLocations>,
        shown: impl Fn(&str, String) -> String,
    ) -> String {
        let mut lines = Vec::new();
        for (name, table) in self.clone().tables() {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.push(format!("[{name}]"));
            for spec in table.specs() {
                let key = spec.name;
                if let Some(value) = table.write(key) {
                    let origin = origins.and_then(|origins| origins.of(&joined(&name, key)));
                    let comment = origin.map(|origin| format!(" # {origin}")).unwrap_or_default();
                    lines.push(format!("{key} = {}{comment}", shown(key, value)));
                } else if let Some(default) = spec.condition.and_then(|condition| condition.default) {
                    // The key is printed as a comment, because a key that has no effect would be an
                    // error.
                    lines.push(format!("# {key} = {default}"));
                }
            }
            if let Some(group) =
                GroupName::ALL.iter().find(|group| name == format!("group.{}", group.as_str()))
            {
                let sources: Vec<_> = self.sources_of(*group).map(SourceConfig::full_name).collect();
                let sources = if sources.is_empty() { "none".to_owned() } else { sources.join(", ") };
                lines.push(format!("# sources: {sources}"));
            }
        }
        lines.join("\n") + "\n"
    }
}

/// Returns the value of a key as TOML. If the value has a secret, the secret is replaced.
pub(super) fn redacted(key: &str, value: String) -> String {
    let names_secret = |text: &str| SECRET_WORDS.iter().any(|word| text.to_lowercase().contains(word));
    match value.split_once("\", ") {
        // An argument may be the name of a secret or the secret itself, so only the name of the
        // program is printed.
        Some((program, _arguments)) if matches!(key, "command" | "run") && names_secret(&value) => {
            format!("{program}\", \"***\"]")
        }
        _ if names_secret(key) => "\"***\"".to_owned(),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use flatcap_format::block::{Codec, Layout};
    use flatcap_format::testing::effort;
    use flatcap_os::host_log::HostLog;
    use flatcap_recorder::ingest::PayloadVerification;
    use flatcap_recorder::{MinFree, SyncPolicy};
    use flatcap_sampling::sources::{CATALOG, find};
    use flatcap_sampling::{
        CgroupConfig, CommandLines, CommandSpec, Expression, OwnKeys, Pattern, PerfConfig, PerfEvent,
        ProcessConfig, ProcessRank, ProfileConfig, SchedConfig, SourceSpec, SyntheticConfig, SyntheticLayout,
        TextOrigin, TextSource, Timing, ValueFormat,
    };
    use flatcap_slab::OnFull;
    use flatcap_stream::ChecksumKind;
    use proptest::prelude::*;

    use super::*;
    use crate::config::expected_value::ExpectedValue;
    use crate::config::source_table::by_default;
    use crate::config::tables::with_every_key;
    use crate::config::{
        BlackboxConfig, BufferingConfig, CompressConfig, ControlConfig, CpuShare, GroupConfig, GroupConfigs,
        PushConfig, RecorderConfig, SourceCompressionConfig, StorageConfig, TriggerConfig,
    };

    #[test]
    fn secrets_are_redacted() {
        // Proves that secrets are redacted and everything else is printed unchanged.
        let shown = |key: &str, value: &str| redacted(key, value.to_owned());
        assert_eq!(shown("auth_token", "\"abc\""), "\"***\"");
        assert_eq!(shown("data_dir", "\"secrets\""), "\"secrets\"");
        assert_eq!(shown("command", "[\"/bin/x\", \"--Token\", \"abc\"]"), "[\"/bin/x\", \"***\"]");
        assert_eq!(shown("command", "[\"/bin/x\", \"-v\"]"), "[\"/bin/x\", \"-v\"]");
        assert_eq!(shown("run", "[\"/bin/x\", \"--token=abc\"]"), "[\"/bin/x\", \"***\"]");
        let config = Config::default();
        assert_eq!(config.to_toml_redacted(), config.to_toml(), "no key of today is secret");
    }

    #[test]
    fn groups_name_their_sources() {
        // Proves that the printed configuration shows for each source the thread that reads it.
        let text = Config::default().to_toml();
        let slow = "# sources: vmstat, load, pressure, self, process, cgroup";
        for line in ["# sources: cpu, memory, disk, network", slow] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    fn expected(table: &str, key: &str) -> ExpectedValue {
        let known = with_every_key().known_keys();
        known.into_iter().find(|known| known.table == table && known.key == key).unwrap().expected
    }

    /// Generates any duration that a key accepts.
    fn duration(table: &str, key: &str) -> impl Strategy<Value = Duration> + use<> {
        let ExpectedValue::Duration(range) = expected(table, key) else { panic!("{table}.{key}") };
        range.prop_map(Duration::from_nanos)
    }

    /// Returns the range of all sizes or numbers that a key accepts.
    fn numbers(table: &str, key: &str) -> std::ops::RangeInclusive<u64> {
        match expected(table, key) {
            ExpectedValue::Size(range) | ExpectedValue::Number(range) => range,
            _ => panic!("{table}.{key}"),
        }
    }

    fn group() -> impl Strategy<Value = GroupConfig> {
        let cpus = prop::collection::btree_set(0..=1023_u32, 0..4);
        (
            prop::sample::select(Timing::ALL),
            0..=99_u8,
            cpus,
            prop::sample::select(vec![OnFull::DropNewest, OnFull::DropOldest, OnFull::Block]),
        )
            .prop_map(|(timing, priority, cpus, on_full)| GroupConfig {
                timing,
                priority,
                cpus: cpus.into_iter().collect(),
                on_full,
            })
    }

    fn storage() -> impl Strategy<Value = StorageConfig> {
        let sync = prop_oneof![
            Just(SyncPolicy::Never),
            Just(SyncPolicy::Always),
            duration("storage", "sync_interval")
                .prop_map(|interval| SyncPolicy::Interval(u64::try_from(interval.as_nanos()).unwrap()))
        ];
        let sizes = numbers("storage", "segment_size").prop_flat_map(|size| (Just(size), 0..=size));
        let age = duration("storage", "segment_age");
        let min_free = prop_oneof![
            Just(MinFree::Auto),
            (0..=1_u64 << 40).prop_map(MinFree::Bytes),
            (0..=9_000_u16).prop_map(MinFree::BasisPoints)
        ];
        let retain = (0..=1_u64 << 40, duration("storage", "retain_age"), min_free);
        let kind = prop::sample::select(ChecksumKind::ALL);
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
                keep_until_shipped: "".into(),
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
        let synthetic = (shape, numbers("source.synthetic", "seed"))
            .prop_map(|(shape, seed)| SyntheticConfig { shape, seed });
        let pattern = "[a-z*?]{1,8}".prop_map(|text| Pattern::new(&text).unwrap());
        let patterns = || prop::collection::vec(pattern.clone(), 0..3);
        let budget = (1..=10_000_u32).prop_map(CpuShare::of_basis_points);
        let each =
            (any::<bool>(), duration("source.cpu", "period"), any::<bool>(), budget, patterns(), patterns());
        let process = (
            patterns(),
            patterns(),
            duration("source.process", "full_interval"),
            [0..=16_384_u32, 0..=16_384_u32],
            prop::sample::select(ProcessRank::ALL),
            prop::sample::select(CommandLines::ALL),
            any::<bool>(),
        )
            .prop_map(
                |(users, cgroups, full_interval, [busiest, top], by, command_lines, cgroup_paths)| {
                    ProcessConfig {
                        users,
                        cgroups,
                        full_interval,
                        busiest,
                        top,
                        by,
                        command_lines,
                        cgroup_paths,
                    }
                },
            );
        let cgroup = (0..=64_u32).prop_map(|depth| CgroupConfig { depth });
        let sched = (any::<bool>(), 17..=26_usize)
            .prop_map(|(wakeups, bits)| SchedConfig { wakeups, ring: 1 << bits });
        let profile = (1..=999_u32).prop_map(|frequency| ProfileConfig { frequency });
        let own = (synthetic, process, cgroup, sched, profile);
        let specs = || CATALOG.iter().filter(|spec| !spec.has_instances());
        (prop::collection::vec(each, specs().count()), own).prop_map(move |(each, own)| {
            let (synthetic, process, cgroup, sched, profile) = own;
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
                    sched: (spec.keys == OwnKeys::Sched).then_some(sched),
                    profile: (spec.keys == OwnKeys::Profile).then_some(profile),
                    ..by_default(spec)
                }
            };
            specs().zip(each).map(source).collect()
        })
    }

    fn format() -> impl Strategy<Value = ValueFormat> {
        let expression = "[a-z \"'\u{e4}]{0,8}";
        let regex = |text: String| ValueFormat::Regex(Expression::new(&format!("{text}(\\S+)")).unwrap());
        prop_oneof![
            Just(ValueFormat::Pairs),
            Just(ValueFormat::Prometheus),
            Just(ValueFormat::Json),
            expression.prop_map(regex)
        ]
    }

    /// Generates instances of both kinds, sorted by name.
    fn instances() -> impl Strategy<Value = Vec<SourceConfig>> {
        let name = || "[a-z0-9_-]{1,32}";
        let path = || "/[a-z \"\\\\\u{e4}]{1,20}";
        let file = path().prop_map(|path| TextOrigin::File(path.into()));
        let arguments = prop::collection::vec("[^\0]{0,20}", 0..4);
        let timeout = duration("source.command.name", "timeout");
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
                ..by_default(find(name).unwrap())
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
        let sizes = (numbers("compress", "block_size"), numbers("compress", "io_budget"));
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

    fn blackbox() -> impl Strategy<Value = BlackboxConfig> {
        let lengths = (duration("blackbox", "window"), duration("blackbox", "disk_period"));
        let sizes = (numbers("blackbox", "memory_max"), numbers("blackbox", "keep_bytes"));
        (lengths, sizes, 1..=100_000_u32, any::<bool>()).prop_map(
            |((window, disk_period), (memory_max, keep_bytes), keep_count, window_on_disk)| BlackboxConfig {
                window,
                window_on_disk,
                memory_max,
                disk_period,
                keep_bytes,
                keep_count,
            },
        )
    }

    fn push() -> impl Strategy<Value = PushConfig> {
        let sizes =
            (numbers("push", "memory_max"), numbers("push", "lane_size"), numbers("push", "schema_max"));
        let counts = (1..=1024_u32, 1..=4096_u32, 1..=64_u32);
        let allow = prop::collection::btree_set("(user|group):[a-z0-9_-]{1,9}", 0..4);
        let verify = prop::sample::select(vec![
            PayloadVerification::All,
            PayloadVerification::First,
            PayloadVerification::None,
        ]);
        let named = prop::collection::btree_set("[a-z.\u{e4}]{1,9}", 0..4);
        let others = ("/[a-z]{1,9}", allow, named, verify, duration("push", "drain_interval"));
        let cpu_budget = (500..=100_000_u32).prop_map(CpuShare::of_basis_points);
        let rates = (numbers("push", "user_bytes_per_second"), 0..=1_000_000_000_u32, cpu_budget);
        (any::<bool>(), sizes, counts, rates, others).prop_map(
            |(enabled, (memory_max, lane_size, schema_max), (clients, lanes, sources), rates, others)| {
                let (user_bytes_per_second, user_frames_per_second, cpu_budget) = rates;
                let (socket, allow, rule_sources, verify, drain_interval) = others;
                PushConfig {
                    enabled,
                    socket: socket.into(),
                    allow: allow.into_iter().collect(),
                    memory_max,
                    cpu_budget,
                    lane_size,
                    clients,
                    lanes,
                    sources,
                    rule_sources: rule_sources.into_iter().collect(),
                    user_bytes_per_second,
                    user_frames_per_second,
                    schema_max,
                    verify,
                    drain_interval,
                }
            },
        )
    }

    /// Generates rules that need no source, sorted by name.
    fn triggers() -> impl Strategy<Value = Vec<TriggerConfig>> {
        let condition = "[a-z \u{e4}]{1,9}".prop_map(|text| format!("mark(\"{text}\")").parse().unwrap());
        let time = |key| duration("trigger.name", key);
        let times = (time("for"), time("before"), time("after"), time("hold_off"));
        let run = prop::collection::vec("/[a-z]{1,9}", 0..3);
        let settings = (
            any::<bool>(),
            condition.clone(),
            prop::option::of(condition),
            times,
            1..=10_000_u32,
            (0..=HostLog::ALL.len(), run),
        );
        prop::collection::btree_map("[a-z0-9_-]{1,32}", settings, 0..3).prop_map(|triggers| {
            let trigger = |(name, (enabled, when, clear, times, max_per_day, (logs, run)))| {
                let (for_time, before, after, hold_off) = times;
                let when = Some(when);
                let capture = HostLog::ALL.iter().copied().take(logs).collect();
                TriggerConfig {
                    name,
                    enabled,
                    when,
                    clear,
                    for_time,
                    before,
                    after,
                    hold_off,
                    max_per_day,
                    capture,
                    run,
                    run_defined_in: None,
                }
            };
            triggers.into_iter().map(trigger).collect()
        })
    }

    fn config() -> impl Strategy<Value = Config> {
        let path = || "[^\0]{1,20}".prop_map(PathBuf::from);
        let cpu_budget = (10..=100_000_u32).prop_map(CpuShare::of_basis_points);
        let labels =
            prop::collection::btree_map("[a-zA-Z_][a-zA-Z0-9_]{0,62}", "[a-z \"'\\\\\u{e4}]{1,9}", 0..4);
        let recorder =
            ((path(), path(), path(), labels), numbers("recorder", "memory_max"), any::<bool>(), cpu_budget)
                .prop_map(|((data_dir, run_dir, host_root, labels), memory_max, lock_memory, cpu_budget)| {
                    RecorderConfig {
                        data_dir,
                        run_dir,
                        host_root,
                        labels,
                        memory_max,
                        lock_memory,
                        cpu_budget,
                    }
                });
        let buffering =
            (4..=1024_usize, duration("buffering", "flush_interval"), duration("buffering", "poll_interval"))
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
        let sources = (sources, triggers());
        (recorder, buffering, storage(), compress(), blackbox(), (control(), push()), groups, sources)
            .prop_map(|(recorder, buffering, storage, compress, blackbox, sockets, groups, sources)| {
                let ((control, push), (sources, triggers)) = (sockets, sources);
                Config {
                    recorder,
                    buffering,
                    storage,
                    compress,
                    blackbox,
                    control,
                    push,
                    groups,
                    sources,
                    triggers,
                }
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::of(64, 256)))]

        #[test]
        fn what_is_printed_reads_back(config in config()) {
            // Proves that a printed configuration is complete and exact for any values.
            prop_assume!(config.enabled_sources().next().is_some());
            prop_assume!(config.check("config", |_| Ok(())).is_ok());
            let text = config.to_toml();
            let again = Config::parse("printed.toml", &text);
            prop_assert_eq!(again.map_err(|errors| errors.to_string()), Ok(config), "{}", text);
        }
    }
}
