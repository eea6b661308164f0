//! Which settings do texts make? Every key is taken from its table, text by text and from what all of them say together.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::DeTable;

use super::check;
use super::default;
use super::error::{ConfigError, ConfigErrors, Place, Problem};
use super::event::Perf;
use super::file::FILE_BYTES_MAX;
use super::instance::instance;
use super::layers::Layers;
use super::merge::lay_over;
use super::seal::Seal;
use super::settings::{Agent, Config, Control, Group, Groups, Handover, Storage, Sync, SyncWord};
use super::source::{Cgroup, Process, Shape, ShapeWord, Source, SourceName, Synthetic};
use super::syntax;
use super::table::Table;
use super::texts::Texts;
use super::variable;
use super::walk::{Findings, Given, Known, Walk};

/// What checks across tables need to know of single keys.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) memory_max: Given<u64>,
    pub(super) slab_size: Given<u64>,
    pub(super) frame_max: Given<u64>,
    /// In the order of [`SourceName::ALL`], instances by their names.
    pub(super) sources: Vec<WrittenSource>,
}

/// What checks across tables need to know of one source.
#[derive(Debug)]
pub(super) struct WrittenSource {
    pub(super) enabled: Given<bool>,
    /// Whether the period was readable.
    pub(super) is_period_sound: bool,
    /// The synthetic source's.
    pub(super) payload: Option<Given<u64>>,
}

impl Config {
    /// Reads and checks the file at `path` and the drop-ins beside it, as [`Layers`] do; no environment.
    ///
    /// # Errors
    /// As [`Layers::read`].
    pub fn read(path: &Path) -> Result<Self, ConfigErrors> {
        Layers::file(path).read().map(|layered| layered.config)
    }

    /// Checks a text; `file_name` is for messages alone.
    ///
    /// # Errors
    /// As [`Layers::read`], without those of the file system.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        if text.len() > FILE_BYTES_MAX {
            let problem = Problem::FileTooLarge { limit: FILE_BYTES_MAX as u64 };
            return Err(ConfigErrors::one(Place::File(file_name.to_owned()), problem));
        }
        let texts = Texts::of_file(file_name, text);
        settle(&texts, Vec::new()).map(|settled| settled.config)
    }
}

/// What texts come to.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) config: Config,
    /// Where the value of each key stands that a text gives, by `table.key`.
    pub(super) written: BTreeMap<String, usize>,
}

/// Checks texts, each by itself and all together; `unread` are errors of those that could not be had.
///
/// While one of them is missing or no TOML, nothing is said of how they fit together.
pub(super) fn settle(texts: &Texts, unread: Vec<ConfigError>) -> Result<Settled, ConfigErrors> {
    let mut findings = Findings::default();
    let mut merged = DeTable::new();
    let mut is_whole = unread.is_empty();
    for (start, text) in texts.files() {
        let mut walk = Walk::new(texts);
        match syntax::parse(&mut walk, start, text) {
            Some(tree) => {
                Table::root(&mut walk, tree.clone(), document);
                lay_over(&mut merged, tree);
            }
            None => is_whole = false,
        }
        findings.add(walk.into_own_findings());
    }
    let mut walk = Walk::new(texts);
    let tree = variable::tree(&mut walk, texts, &merged);
    Table::root(&mut walk, tree.clone(), document);
    lay_over(&mut merged, tree);
    findings.add(walk.into_own_findings());
    let mut walk = Walk::new(texts);
    let config = Table::root(&mut walk, merged, document);
    let written = walk.written().clone();
    if is_whole {
        findings.add(walk.into_joint_findings());
    }
    if is_whole && findings.is_none() {
        Ok(Settled { config, written })
    } else {
        Err(findings.into_errors(texts, unread))
    }
}

/// All keys there are; those of instances by the names `file.name` and `command.name`.
pub(super) fn known_keys() -> Vec<Known> {
    let tables = "[source.file.name]\n[source.command.name]\n";
    let texts = Texts::of_file("", tables);
    let mut walk = Walk::new(&texts);
    if let Some(tree) = syntax::parse(&mut walk, 0, tables) {
        Table::root(&mut walk, tree, document);
    }
    walk.into_known()
}

fn document(root: &mut Table<'_, '_>) -> Config {
    let (agent, memory_max) = root.table("agent", agent);
    let (handover, slab_size) = root.table("handover", handover);
    let (storage, frame_max) = root.table("storage", storage);
    let seal = root.table("seal", seal);
    let control = root.table("control", control);
    let groups = root.table("group", |table| {
        let groups = Groups::default();
        Groups {
            fast: table.table("fast", |table| group(table, &groups.fast)),
            slow: table.table("slow", |table| group(table, &groups.slow)),
            blocking: table.table("blocking", |table| group(table, &groups.blocking)),
        }
    });
    let (sources, written): (Vec<Source>, Vec<WrittenSource>) = root.table("source", |table| {
        let single = SourceName::single();
        let single = single.map(|name| table.table(name.as_str(), |table| source(table, name)));
        let mut sources: Vec<(Source, WrittenSource)> = single.collect();
        for name in SourceName::ALL.iter().copied().filter(|name| name.has_instances()) {
            let read = |table: &mut Table<'_, '_>, word: String| instance(table, name, word);
            sources.extend(table.table(name.as_str(), |table| table.instances(read)));
        }
        sources.into_iter().unzip()
    });
    let config = Config { agent, handover, storage, seal, control, groups, sources };
    check::across_tables(root, &config, &Written { memory_max, slab_size, frame_max, sources: written });
    config
}

fn agent(table: &mut Table<'_, '_>) -> (Agent, Given<u64>) {
    let agent = Agent::default();
    let data_dir = table.path_or_empty("data_dir", agent.data_dir).value;
    let run_dir = table.path_or_empty("run_dir", agent.run_dir).value;
    let host_root = table.path("host_root", agent.host_root).value;
    let memory_max = table.size("memory_max", agent.memory_max, &default::MEMORY_MAX_RANGE);
    let lock_memory = table.flag("lock_memory", agent.lock_memory).value;
    let cpu_budget = table.cpu_share("cpu_budget", agent.cpu_budget, &default::CPU_BUDGET_RANGE).value;
    let agent = Agent { data_dir, run_dir, host_root, memory_max: memory_max.value, lock_memory, cpu_budget };
    (agent, memory_max)
}

fn handover(table: &mut Table<'_, '_>) -> (Handover, Given<u64>) {
    let slab_size = table.pages("slab_size", default::SLAB_SIZE, &default::SLAB_SIZE_RANGE);
    let hand_over = table.duration("hand_over", default::HAND_OVER, &default::HAND_OVER_RANGE).value;
    let drain = table.duration("drain", default::DRAIN, &default::DRAIN_RANGE).value;
    let bytes = usize::try_from(slab_size.value).unwrap_or(usize::MAX);
    (Handover { slab_size: bytes, hand_over, drain }, slab_size)
}

fn storage(table: &mut Table<'_, '_>) -> (Storage, Given<u64>) {
    let checksum = table.word("checksum", default::CHECKSUM).value;
    let segment_size = table.size("segment_size", default::SEGMENT_SIZE, &default::SEGMENT_SIZE_RANGE);
    let segment_age = table.duration("segment_age", default::SEGMENT_AGE, &default::SEGMENT_AGE_RANGE).value;
    let sync = table.word("sync", default::SYNC);
    let sync_interval =
        table.duration("sync_interval", default::SYNC_INTERVAL, &default::SYNC_INTERVAL_RANGE);
    let is_unused = sync.value != SyncWord::Interval && !table.is_overruled(&sync_interval, &sync);
    if sync.is_sound && is_unused && sync_interval.is_written() {
        table.reject(&sync_interval, Problem::IntervalUnused { sync: sync.value.as_str() });
    }
    let preallocate = default::PREALLOCATE.min(segment_size.value);
    let preallocate = table.size("preallocate", preallocate, &default::PREALLOCATE_RANGE);
    if segment_size.is_sound && preallocate.is_sound && preallocate.value > segment_size.value {
        table.reject(&preallocate, Problem::PreallocateTooLarge { segment_size: segment_size.value });
    }
    let least = segment_size.value.saturating_mul(default::RETAIN_SEGMENTS_MIN);
    let retain_bytes = default::RETAIN_BYTES.max(segment_size.value.saturating_mul(default::RETAIN_SEGMENTS));
    let retain_bytes = table.size("retain_bytes", retain_bytes, &default::RETAIN_BYTES_RANGE);
    if segment_size.is_sound && retain_bytes.is_sound && retain_bytes.value < least {
        table.reject(&retain_bytes, Problem::RetainTooLittle { least });
    }
    let retain_min = default::RETAIN_MIN.min(retain_bytes.value / default::RETAIN_MIN_SHARE);
    let retain_min = table.size("retain_min", retain_min, &default::RETAIN_MIN_RANGE);
    if retain_bytes.is_sound && retain_min.is_sound && retain_min.value > retain_bytes.value {
        table.reject(&retain_min, Problem::RetainMinTooLarge { retain_bytes: retain_bytes.value });
    }
    let retain_age = table.duration("retain_age", default::RETAIN_AGE, &default::RETAIN_AGE_RANGE).value;
    let keep_free = table.share("keep_free", default::KEEP_FREE, &default::KEEP_FREE_RANGE).value;
    let frame_max = table.size("frame_max", default::FRAME_MAX, &default::FRAME_MAX_RANGE);
    let storage = Storage {
        checksum,
        segment_size: segment_size.value,
        segment_age,
        sync: Sync::of(sync.value, sync_interval.value),
        preallocate: preallocate.value,
        retain_bytes: retain_bytes.value,
        retain_min: retain_min.value,
        retain_age,
        keep_free,
        frame_max: u32::try_from(frame_max.value).unwrap_or(u32::MAX),
    };
    (storage, frame_max)
}

fn seal(table: &mut Table<'_, '_>) -> Seal {
    let seal = Seal::default();
    let block_size = table.size("block_size", default::SEAL_BLOCK_SIZE, &default::SEAL_BLOCK_SIZE_RANGE);
    Seal {
        enabled: table.flag("enabled", seal.enabled).value,
        active: table.codec_or_off("active", seal.active).value,
        codec: table.codec("codec", seal.codec).value,
        layout: table.layout("layout", seal.layout).value,
        block_size: usize::try_from(block_size.value).unwrap_or(usize::MAX),
        cpu_budget: table.cpu_share("cpu_budget", seal.cpu_budget, &default::SEAL_CPU_BUDGET_RANGE).value,
        io_budget: table.size("io_budget", seal.io_budget, &default::SEAL_IO_BUDGET_RANGE).value,
        sources: table.ways("sources").value,
    }
}

fn control(table: &mut Table<'_, '_>) -> Control {
    let control = Control::default();
    Control {
        enabled: table.flag("enabled", control.enabled).value,
        socket: table.socket_path("socket", control.socket).value,
        metrics_listen: table.socket_address("metrics_listen").value,
    }
}

fn group(table: &mut Table<'_, '_>, group: &Group) -> Group {
    let priority = table.number("priority", group.priority.into(), &default::PRIORITY_RANGE);
    let cpus = table.numbers("cpus", &default::CPUS_RANGE).value;
    Group {
        priority: u8::try_from(priority.value).unwrap_or(u8::MAX),
        cpus: cpus.into_iter().filter_map(|cpu| u32::try_from(cpu).ok()).collect(),
        timing: table.word("timing", group.timing).value,
        on_full: table.word("on_full", group.on_full).value,
    }
}

fn source(table: &mut Table<'_, '_>, name: SourceName) -> (Source, WrittenSource) {
    let (mut source, mut written) = common(table, Source::by_default(name));
    if source.synthetic.is_some() {
        let (synthetic, payload) = synthetic(table);
        source.synthetic = Some(synthetic);
        written.payload = Some(payload);
    }
    source.process = source.process.map(|_| process(table));
    source.cgroup = source.cgroup.map(|cgroup| {
        let depth = table.number("depth", cgroup.depth.into(), &default::CGROUP_DEPTH_RANGE).value;
        Cgroup { depth: u32::try_from(depth).unwrap_or(u32::MAX) }
    });
    if let Some(perf) = source.perf {
        let events = table.words("events", perf.events).value;
        let processes = table.processes("processes").value;
        source.perf = Some(Perf { events, processes });
    }
    (source, written)
}

/// The keys that all sources have; the others are as in `source`.
pub(super) fn common(table: &mut Table<'_, '_>, source: Source) -> (Source, WrittenSource) {
    let enabled = table.flag("enabled", source.enabled);
    let period = table.duration("period", source.period, &default::PERIOD_RANGE);
    let required = table.flag("required", source.required).value;
    let budget = table.cpu_share("budget", source.budget, &default::BUDGET_RANGE).value;
    let [include, exclude] = ["include", "exclude"].map(|key| {
        let given = table.patterns(key);
        if !given.value.is_empty() && !source.name.has_choice() {
            table.reject(&given, Problem::NoChoice);
            return Vec::new();
        }
        given.value
    });
    let source =
        Source { enabled: enabled.value, period: period.value, required, budget, include, exclude, ..source };
    (source, WrittenSource { enabled, is_period_sound: period.is_sound, payload: None })
}

fn synthetic(table: &mut Table<'_, '_>) -> (Synthetic, Given<u64>) {
    let shape = table.word("shape", default::SYNTHETIC_SHAPE);
    let fields = table.number("fields", default::SYNTHETIC_FIELDS, &default::SYNTHETIC_FIELDS_RANGE);
    let payload = table.size("payload", default::SYNTHETIC_PAYLOAD, &default::SYNTHETIC_PAYLOAD_RANGE);
    let seed = table.number("seed", default::SYNTHETIC_SEED, &default::SYNTHETIC_SEED_RANGE).value;
    if shape.is_sound && shape.value == ShapeWord::Point {
        for given in [&fields, &payload] {
            if given.is_written() && !table.is_overruled(given, &shape) {
                table.reject(given, Problem::WideOnly);
            }
        }
    }
    (Synthetic { shape: Shape::of(shape.value, fields.value, payload.value), seed }, payload)
}

fn process(table: &mut Table<'_, '_>) -> Process {
    let users = table.patterns("users").value;
    let cgroups = table.patterns("cgroups").value;
    let top = table.number("top", default::PROCESS_TOP.into(), &default::PROCESS_TOP_RANGE).value;
    let by = table.word("by", default::PROCESS_BY).value;
    let command_lines = table.flag("command_lines", false).value;
    let cgroup_paths = table.flag("cgroup_paths", false).value;
    let top = u32::try_from(top).unwrap_or(u32::MAX);
    Process { users, cgroups, top, by, command_lines, cgroup_paths }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::block::{Codec, Layout};
    use crate::config::wanted::Wanted;
    use crate::config::{GroupName, Origin, Readout};

    const FILE: &str = include_str!("../../config/flatcap.toml");
    const MINIMAL: &str = include_str!("../../config/minimal.toml");

    /// All messages of a text, one a line.
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
        // Proves that config/flatcap.toml, an empty file and the built-in default are one.
        assert_eq!(Config::parse("flatcap.toml", FILE).unwrap(), Config::default());
        assert_eq!(Config::parse("empty.toml", "").unwrap(), Config::default());
    }

    #[test]
    fn file_shows_what_the_wide_shape_defaults_to() {
        // Proves that the two keys shown as comments are real, and their values the defaults.
        let wide = FILE
            .replace("shape = \"point\"", "shape = \"wide\"")
            .replace("# fields = ", "fields = ")
            .replace("# payload = ", "payload = ");
        let written = Config::parse("wide.toml", &wide).unwrap();
        let defaults = Config::parse("wide.toml", "[source.synthetic]\nshape = \"wide\"\n").unwrap();
        assert_eq!(written, defaults);
        let shape = written.sources.iter().find_map(|source| source.synthetic).unwrap().shape;
        assert_eq!(shape, Shape::Wide { fields: 64, payload_bytes: 0 });
    }

    /// The comments right above line `index`.
    fn comments_above(lines: &[&str], index: usize) -> String {
        let start = lines[..index].iter().rposition(|line| !line.starts_with("# ")).map_or(0, |at| at + 1);
        lines[start..index].join(" ").replace("# ", "")
    }

    #[test]
    fn file_shows_every_key_with_its_limits() {
        // Proves that each key the code knows has a line in its table, under a comment with its limits.
        let known_keys: Vec<_> =
            known_keys().into_iter().filter(|known| !known.table.contains(".name")).collect();
        let lines: Vec<&str> = FILE.lines().collect();
        let common = lines.iter().find(|line| line.starts_with("# A source is one kind")).unwrap();
        let common_at = lines.iter().position(|line| line == common).unwrap();
        let mut shown = 0;
        for known in &known_keys {
            let header = match &known.wanted {
                Wanted::Table(name)
                    if ["group", "source"].contains(&name.as_str())
                        || name.starts_with("source.file")
                        || name.starts_with("source.command") =>
                {
                    continue;
                }
                Wanted::Table(name) => format!("[{name}]"),
                _ => format!("[{}]", known.table),
            };
            let header_at =
                lines.iter().position(|line| *line == header).unwrap_or_else(|| panic!("{header}"));
            if matches!(known.wanted, Wanted::Table(_)) {
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
            let limits = known.wanted.limits().unwrap_or_default().replace("from ", "rom ");
            assert!(comment.contains(&limits), "{header} {}: {limits} not in: {comment}", known.key);
            assert!(comment.len() > 10, "{header} {} has no sentence", known.key);
            shown += 1;
        }
        assert_eq!(shown, 6 + 3 + 11 + 8 + 3 + 3 * 4 + SourceName::single().count() * 6 + 4 + 2 + 6 + 1);
    }

    #[test]
    fn minimal_example_parses() {
        // Proves that the example is valid and says what its comment promises.
        let config = Config::parse("minimal.toml", MINIMAL).unwrap();
        let enabled: Vec<&str> = config.enabled_sources().map(|source| source.name.as_str()).collect();
        assert_eq!(enabled, ["cpu", "memory"]);
        assert_eq!(config.storage.segment_size, 64 << 20);
    }

    #[test]
    fn every_key_arrives() {
        // Proves that no value lands in another field: each key gets a value of its own.
        let text = "[agent]\ndata_dir = \"/d\"\nhost_root = \"/h\"\nmemory_max = \"128MiB\"\n\
            lock_memory = true\ncpu_budget = \"250.5%\"\n\
            [handover]\nslab_size = \"128KiB\"\nhand_over = \"6ms\"\ndrain = \"7ms\"\n\
            [storage]\nchecksum = \"crc16\"\nsegment_size = \"1GiB\"\nsegment_age = \"8s\"\nsync = \"interval\"\n\
            sync_interval = \"9s\"\npreallocate = \"1MiB\"\nframe_max = \"2MiB\"\n\
            [seal]\nenabled = false\nactive = \"lz4\"\ncodec = \"brotli:3\"\nlayout = \"row\"\nblock_size = \"2MiB\"\ncpu_budget = \"3%\"\n\
            io_budget = \"4MiB\"\nsources = [\"cpu=lz4\", \"file.a=none/columnar\"]\n\
            [control]\nenabled = false\nsocket = \"/s\"\nmetrics_listen = \"[::1]:9598\"\n\
            [group.fast]\ntiming = \"relaxed\"\npriority = 5\non_full = \"drop-oldest\"\n\
            [group.slow]\ntiming = \"precise\"\ncpus = [3, 0]\non_full = \"block\"\n\
            [group.blocking]\ntiming = \"spin\"\n\
            [source.load]\nenabled = false\nperiod = \"11ms\"\nrequired = true\n\
            [source.synthetic]\nenabled = true\nshape = \"wide\"\nfields = 0x10\npayload = \"3KiB\"\nseed = 12\n";
        let config = Config::parse("f.toml", text).unwrap();
        let agent = Agent {
            data_dir: "/d".into(),
            run_dir: "".into(),
            host_root: "/h".into(),
            memory_max: 128 << 20,
            lock_memory: true,
            cpu_budget: crate::config::CpuShare::of_basis_points(25_050),
        };
        assert_eq!(config.agent, agent);
        let ms = std::time::Duration::from_millis;
        assert_eq!(config.handover, Handover { slab_size: 128 << 10, hand_over: ms(6), drain: ms(7) });
        let storage = Storage {
            checksum: crate::config::Checksum::Crc16,
            segment_size: 1 << 30,
            segment_age: ms(8000),
            sync: Sync::Interval(ms(9000)),
            preallocate: 1 << 20,
            retain_bytes: default::RETAIN_BYTES,
            retain_min: default::RETAIN_MIN,
            retain_age: default::RETAIN_AGE,
            keep_free: default::KEEP_FREE,
            frame_max: 2 << 20,
        };
        assert_eq!(config.storage, storage);
        let seal = Seal {
            enabled: false,
            active: Some(Codec::Lz4),
            codec: Codec::Brotli(3),
            layout: Layout::Row,
            block_size: 2 << 20,
            cpu_budget: crate::config::CpuShare::of_basis_points(300),
            io_budget: 4 << 20,
            sources: ["cpu=lz4", "file.a=none/columnar"].map(|text| text.parse().unwrap()).into(),
        };
        assert_eq!(config.seal, seal);
        let control = Control {
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
        let load = &config.sources[3];
        assert_eq!((load.enabled, load.period, load.required), (false, ms(11), true));
        let synthetic = Synthetic { shape: Shape::Wide { fields: 16, payload_bytes: 3 << 10 }, seed: 12 };
        assert_eq!((config.sources[8].enabled, config.sources[8].synthetic), (true, Some(synthetic)));
    }

    #[test]
    fn ways_to_seal_that_mean_nothing() {
        // Proves that each wrong value of [seal] is told with its place and what would be right.
        let codecs =
            "write \"none\", \"lz4\", \"snappy\", \"zstd:1\" to \"zstd:19\" or \"brotli:0\" to \"brotli:11\"";
        let way = "write a list such as [\"process=zstd:9/row\"] of NAME=CODEC/LAYOUT or NAME=CODEC, up to 256, no source twice";
        assert_errors(&[
            (
                "[seal]\ncodec = \"gzip\"",
                &format!("f.toml:2:9: [seal] codec = \"gzip\": not one of the allowed values; {codecs}"),
            ),
            (
                "[seal]\ncodec = \"zstd:20\"",
                &format!("f.toml:2:9: [seal] codec = \"zstd:20\": not one of the allowed values; {codecs}"),
            ),
            (
                "[seal]\nactive = true",
                "f.toml:2:10: [seal] active = true: true or false is not what belongs here; write \"off\", \"none\", \"lz4\", \"snappy\", \
                 \"zstd:1\" to \"zstd:19\" or \"brotli:0\" to \"brotli:11\"",
            ),
            (
                "[seal]\nlayout = \"rows\"",
                "f.toml:2:10: [seal] layout = \"rows\": not one of the allowed values; write \"row\" or \"columnar\"",
            ),
            (
                "[seal]\nblock = \"1MiB\"",
                "f.toml:2:1: [seal] block: no such key here; did you mean block_size?",
            ),
            (
                "[seal]\ncpu_budget = \"200%\"",
                "f.toml:2:14: [seal] cpu_budget = \"200%\": too large; write a number with %, from 0.1% to 100%",
            ),
            (
                "[seal]\nsources = [\"cpu\"]",
                &format!(
                    "f.toml:2:11: [seal] sources = [\"cpu\"]: \"cpu\" is not NAME=CODEC/LAYOUT, such as process=zstd:9/row; {way}"
                ),
            ),
            (
                "[seal]\nsources = [\"cpus=lz4\"]",
                "f.toml:2:11: [seal] sources = [\"cpus=lz4\"]: no such source; did you mean cpu?",
            ),
            (
                "[seal]\nsources = [\"cpu=lz4\", \"cpu=none\"]",
                "f.toml:2:11: [seal] sources = [\"cpu=lz4\", \"cpu=none\"]: \"cpu\" is named twice; keep one",
            ),
        ]);
    }

    #[test]
    fn dotted_and_inline_tables_are_tables() {
        // Proves that any way TOML has of writing a table is understood, and placed right in messages.
        assert_eq!(errors("source.cpu.period = \"1ms\"\n"), "no error");
        assert_eq!(errors("source = { cpu = { enabled = false } }\n"), "no error");
        assert_eq!(
            errors("\u{feff}source.cpu = { enabled = 1 }\r\n"),
            "f.toml:1:26: [source.cpu] enabled = 1: a number without quotes is not what belongs here; write true \
             or false without quotes"
        );
    }

    #[test]
    fn instances_have_names_and_keys_of_their_own() {
        // Proves that each key arrives, in the order of the names.
        let text = "[source.file.raid]\npath = \"/proc/mdstat\"\nformat = \"regex\"\n\
            pattern = '(?<name>md\\d+) : (?<value>\\d+)'\nperiod = \"2s\"\nrequired = true\n\
            include = [\"md*\"]\n\
            [source.command.disk-heat]\ncommand = [\"/usr/bin/heat\", \"-x\"]\ntimeout = \"1s\"\n\
            [source.file.a]\npath = \"/a\"\nenabled = false\n";
        let config = Config::parse("f.toml", text).unwrap();
        let instances = &config.sources[SourceName::single().count()..];
        let names: Vec<_> = instances.iter().map(Source::full_name).collect();
        assert_eq!(names, ["file.a", "file.raid", "command.disk-heat"]);
        assert_eq!([0, 1, 2].map(|at: usize| instances[at].enabled), [false, true, true]);
        assert_eq!((instances[1].period.as_secs(), instances[1].required), (2, true));
        assert!(instances[1].include[0].fits("md0"));
        let readout = instances[1].readout.as_ref().unwrap();
        assert_eq!(readout.origin, Origin::File("/proc/mdstat".into()));
        assert!(matches!(&readout.format, crate::config::Format::Regex(it) if it.name_group() == Some(1)));
        let Origin::Command(command) = &instances[2].readout.as_ref().unwrap().origin else { panic!() };
        assert_eq!((command.words.join(" "), command.timeout.as_secs()), ("/usr/bin/heat -x".to_owned(), 1));
    }

    #[test]
    fn instances_that_mean_nothing() {
        // Proves what each way to be wrong is told, and how many instances there may be.
        let name = "1 to 32 of the letters a to z, digits, _ and -";
        assert_errors(&[
            (
                "[source.file]\npath = \"/x\"",
                "f.toml:2:1: [source.file] path: no such key here; each has a name and a table of its own, such as \
                 [source.file.NAME]",
            ),
            (
                "[source.file.\"A b\"]\npath = \"/x\"",
                &format!("f.toml:1:14: \"A b\": not a name; write {name}"),
            ),
            (
                "[source.file.x]",
                "f.toml:1:14: [source.file.x] path: missing; write an absolute path in quotes, without \"..\"",
            ),
            (
                "[source.file.x]\npath = \"proc/a\"",
                "f.toml:2:8: [source.file.x] path = \"proc/a\": not an absolute path, or one with \"..\"; write an absolute path \
                 in quotes, without \"..\"",
            ),
            (
                "[source.file.x]\npath = \"/a\"\npattern = \"(a)\"",
                "f.toml:3:11: [source.file.x] pattern = \"(a)\": without effect, since format = \"pairs\"; remove it or \
                 write format = \"regex\"",
            ),
            (
                "[source.command.x]\nformat = \"regex\"\npattern = \"(a\"",
                "f.toml:1:17: [source.command.x] command: missing; write a list such as [\"/usr/bin/program\", \
                 \"argument\"], an absolute path and up to 63 arguments of up to 4096 bytes\n\
                 f.toml:3:11: [source.command.x] pattern = \"(a\": not a regular expression for values: unclosed group; write one \
                 in quotes, of up to 1024 bytes",
            ),
            (
                "[source.command.x]\ncommand = [\"sh\"]\nformat = \"regex\"",
                "f.toml:1:17: [source.command.x] pattern: missing; write one in quotes, of up to 1024 bytes\n\
                 f.toml:2:11: [source.command.x] command = [\"sh\"]: not a program's absolute path and its arguments; \
                 write a list such as [\"/usr/bin/program\", \"argument\"], an absolute path and up to 63 arguments of up \
                 to 4096 bytes",
            ),
            (
                "[source.command]\nx = 1",
                "f.toml:2:1: [source.command] x: no such key here; each has a name and a table of its own, such as \
                 [source.command.NAME]",
            ),
            (
                "[source.perf]\nevents = [\"cycles\", \"cycles\"]",
                "f.toml:2:10: [source.perf] events = [\"cycles\", \"cycles\"]: \"cycles\" is named twice; keep one",
            ),
        ]);
        let many = |count: usize| {
            (0..count).map(|at| format!("[source.file.n{at}]\npath = \"/x\"\n")).collect::<Vec<_>>().concat()
        };
        assert_eq!(errors(&many(64)), "no error");
        assert!(errors(&many(65)).ends_with("more than 64 of them; merge some, or leave them out"));
    }

    #[test]
    fn file_shows_instances() {
        // Proves that the examples in config/flatcap.toml are real once they are uncommented, and show every key.
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
        // Proves that what a command's run is judged by is what was read: owner and mode of file and directory.
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.toml");
        std::fs::write(&path, "[source.command.x]\ncommand = [\"/bin/true\"]\n").unwrap();
        for (path, mode) in [(path.as_path(), 0o640), (directory.path(), 0o710)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let config = Config::read(&path).unwrap();
        let Some(Readout { origin: Origin::Command(command), .. }) = &config.sources.last().unwrap().readout
        else {
            panic!()
        };
        let named_in = command.named_in.as_ref().unwrap();
        assert_eq!((&named_in.path, named_in.file.mode, named_in.directory.mode), (&path, 0o640, 0o710));
    }

    #[test]
    fn a_small_segment_lowers_the_default_reservation() {
        // Proves that shortening segments needs no second key.
        let config = Config::parse("f.toml", "[storage]\nsegment_size = \"1MiB\"\n").unwrap();
        assert_eq!(config.storage.preallocate, 1 << 20);
        let config = Config::parse("f.toml", "[storage]\npreallocate = \"0\"\n").unwrap();
        assert_eq!(config.storage.preallocate, 0);
    }

    #[test]
    fn all_errors_at_once_in_line_order() {
        // Proves that six mistakes of six kinds and tables give six errors, sorted by line.
        let text = "[storage]\nchecksum = \"md5\"\nsegment_size = 5\n\n[source.cpu]\nperiod = \"10\"\n\
            peroid = \"10ms\"\n[source.radio]\nperiod = \"1ms\"\n[agent]\nmemory_max = \"1MiB\"\n";
        let tables: Vec<String> =
            SourceName::ALL.iter().map(|name| format!("[source.{}]", name.as_str())).collect();
        let (last, others) = tables.split_last().unwrap();
        let tables = format!("{} and {last}", others.join(", "));
        assert_eq!(
            errors(text),
            format!(
                "f.toml:2:12: [storage] checksum = \"md5\": not one of the allowed values; write \"xxh3\", \
                 \"crc32\", \"crc16\" or \"none\"\n\
                 f.toml:3:16: [storage] segment_size = 5: a number without quotes is not what belongs here; write a \
                 number with B, KiB, MiB, GiB or TiB, from 256KiB to 64GiB\n\
                 f.toml:6:10: [source.cpu] period = \"10\": no unit; write a number with ns, us, ms, s, m, h or d, \
                 from 50us to 1h\n\
                 f.toml:7:1: [source.cpu] peroid: no such key here; did you mean period?\n\
                 f.toml:8:9: [source.radio]: no such table; the tables are {tables}\n\
                 f.toml:11:14: [agent] memory_max = \"1MiB\": too small; write a number with B, KiB, MiB, GiB or \
                 TiB, from 8MiB to 64GiB"
            )
        );
        assert_eq!(Config::parse("f.toml", text).unwrap_err().iter().count(), 6);
    }

    #[test]
    fn unknown_names() {
        // Proves what is said of a name that is misspelt, in the wrong table, or from nowhere.
        assert_errors(&[
            (
                "[agent]\ndatadir = \"x\"",
                "f.toml:2:1: [agent] datadir: no such key here; did you mean data_dir?",
            ),
            (
                "[agent]\ndrain = \"1ms\"",
                "f.toml:2:1: [agent] drain: no such key here; it belongs in [handover]",
            ),
            ("memory_max = \"1GiB\"", "f.toml:1:1: memory_max: no such key here; it belongs in [agent]"),
            ("zzz = 1", "f.toml:1:1: zzz: no such key here; a key stands in a table, such as [agent]"),
            (
                "[handover]\nqueue = 1",
                "f.toml:2:1: [handover] queue: no such key here; the keys are slab_size, hand_over and drain",
            ),
            (
                "[source.cpu]\nfields = 1",
                "f.toml:2:1: [source.cpu] fields: no such key here; it belongs in [source.synthetic]",
            ),
            (
                "[handover]\n\"a\\u001b\\n\" = 1",
                "f.toml:2:1: [handover] \"a\\u{1b}\\n\": no such key here; the keys are slab_size, hand_over and \
                 drain",
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
                "f.toml:1:2: [zip]: no such table; the tables are [agent], [handover], [storage], [seal], [control], \
                 [group] and [source]",
            ),
        ]);
    }

    #[test]
    fn given_twice() {
        // Proves that the second of two equal keys or tables is the error, and the rest is judged too.
        assert_errors(&[
            (
                "[agent]\ndata_dir = \"a\"\ndata_dir = \"b\"\nx = 1",
                "f.toml:3:1: data_dir: given twice; keep one\n\
                 f.toml:4:1: [agent] x: no such key here; the keys are data_dir, run_dir, host_root, \
                 memory_max, lock_memory and cpu_budget",
            ),
            ("[agent]\n[agent]", "f.toml:2:2: agent: given twice; keep one"),
        ]);
    }

    #[test]
    fn wrong_kinds_of_value() {
        // Proves that each kind of value is named where another one belongs.
        let duration = "write a number with ns, us, ms, s, m, h or d, from 50us to 1h";
        for (value, found) in [
            ("10", "a number without quotes"),
            ("1.5", "a number with a fraction"),
            ("true", "true or false"),
            ("10:00:00", "a date or time"),
            ("[\"1s\"]", "a list"),
            ("{}", "a table"),
        ] {
            assert_eq!(
                errors(&format!("[source.cpu]\nperiod = {value}")),
                format!(
                    "f.toml:2:10: [source.cpu] period = {value}: {found} is not what belongs here; {duration}"
                )
            );
        }
        assert_errors(&[
            (
                "[source.synthetic]\nseed = \"1\"",
                "f.toml:2:8: [source.synthetic] seed = \"1\": a text in quotes is not what belongs here; write a \
                 whole number without quotes, from 0 to 9223372036854775807",
            ),
            (
                "[agent]\ndata_dir = 1",
                "f.toml:2:12: [agent] data_dir = 1: a number without quotes is not what belongs here; write a path \
                 in quotes",
            ),
            (
                "agent = 5",
                "f.toml:1:9: [agent] = 5: a number without quotes is not what belongs here; write a table, \
                 [agent], once",
            ),
            (
                "[[source.cpu]]\n[[source.cpu]]",
                "f.toml:1:1: [source.cpu] = [[source.cpu]]: a list is not what belongs here; write a table, \
                 [source.cpu], once",
            ),
        ]);
    }

    #[test]
    fn values_beyond_their_limits() {
        // Proves that both ends of a range, multiples, words and paths are checked, limits included.
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
                "[handover]\nslab_size = \"65KiB\"",
                "f.toml:2:13: [handover] slab_size = \"65KiB\": not a multiple of 4KiB; write a number with B, \
                 KiB, MiB, GiB or TiB, from 16KiB to 4MiB",
            ),
            (
                "[handover]\nslab_size = \"64KB\"",
                "f.toml:2:13: [handover] slab_size = \"64KB\": \"KB\" is no unit here, since some read it as 1000 \
                 and some as 1024; KiB is 1024-based; write a number with B, KiB, MiB, GiB or TiB, from 16KiB to \
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
                "[agent]\nhost_root = \"\"",
                "f.toml:2:13: [agent] host_root = \"\": not a path, since it is empty or holds a zero byte; write a path in quotes",
            ),
        ]);
    }

    #[test]
    fn what_listens() {
        // Proves that a port alone means this host alone, and that no address is guessed.
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
                    "f.toml:2:18: [control] metrics_listen = \"{text}\": not a port, nor an address and a port; {wanted}"
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
    fn what_is_asked_of_the_processor_and_the_scheduler() {
        // Proves that shares, priorities, processors and words of timing have limits, and lists their form.
        assert_errors(&[
            (
                "[agent]\ncpu_budget = \"0.09%\"",
                "f.toml:2:14: [agent] cpu_budget = \"0.09%\": too small; write a number with %, from 0.1% to 1000%",
            ),
            (
                "[agent]\ncpu_budget = \"1001%\"",
                "f.toml:2:14: [agent] cpu_budget = \"1001%\": too large; write a number with %, from 0.1% to 1000%",
            ),
            ("[agent]\ncpu_budget = \"0.1%\"\n[source.cpu]\nbudget = \"100%\"", "no error"),
            (
                "[agent]\nlock_memory = 1",
                "f.toml:2:15: [agent] lock_memory = 1: a number without quotes is not what belongs here; write true or \
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
                "f.toml:2:8: [group.slow] cpus = [2, 1, 2]: \"2\" is named twice; keep one",
            ),
            (
                "[group.slow]\ncpus = \"0-3\"",
                "f.toml:2:8: [group.slow] cpus = \"0-3\": a text in quotes is not what belongs here; write a list such as \
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
    fn settings_that_do_not_fit_each_other() {
        // Proves each rule between two keys, and that a default is never blamed for a key in the file.
        let off = |name: SourceName| format!("[source.{}]\nenabled = false\n", name.as_str());
        let all_off = SourceName::single().map(off).collect::<Vec<_>>().concat();
        let frame =
            "[storage]\nframe_max = \"64KiB\"\n[source.synthetic]\nenabled = true\nshape = \"wide\"\n";
        assert_errors(&[
            (
                "[storage]\nsegment_size = \"1MiB\"\npreallocate = \"2MiB\"",
                "f.toml:3:15: [storage] preallocate = \"2MiB\": more than a segment holds; write at most \
                 segment_size, which is \"1MiB\"",
            ),
            (
                "[storage]\nsync = \"never\"\nsync_interval = \"1s\"",
                "f.toml:3:17: [storage] sync_interval = \"1s\": without effect, since sync = \"never\"; remove it \
                 or write sync = \"interval\"",
            ),
            ("[storage]\nsync = \"always\"", "no error"),
            (
                "[source.synthetic]\nfields = 64\npayload = \"0B\"",
                "f.toml:2:10: [source.synthetic] fields = 64: without effect, since shape = \"point\"; remove it \
                 or write shape = \"wide\"\n\
                 f.toml:3:11: [source.synthetic] payload = \"0B\": without effect, since shape = \"point\"; remove \
                 it or write shape = \"wide\"",
            ),
            (
                "[source.load]\ninclude = [\"x\"]\nexclude = []",
                "f.toml:2:11: [source.load] include = [\"x\"]: without effect, since this source has nothing to \
                 choose from; remove it",
            ),
            (
                &format!("{frame}payload = \"64KiB\""),
                "f.toml:6:11: [source.synthetic] payload = \"64KiB\": a frame of 70144B exceeds frame_max, which is \
                 \"64KiB\"; lower payload or raise [storage] frame_max",
            ),
            (&format!("{frame}fields = 4096\npayload = \"28KiB\""), "no error"),
            (&all_off, "f.toml:62:11: [source.gpu] enabled = false: no source is left; enable at least one"),
        ]);
    }

    #[test]
    fn memory_that_does_not_suffice() {
        // Proves that the sum is shown, at the key or, for a default, at the file, and that the advice holds.
        let terms = "12 slabs queued (768KiB) + 3 slabs looked at (192KiB) + 2 slabs for frames of frame_max";
        let sum = "24 lists of what is in a slab (648KiB) + 9 frame builders (3276KiB) + 9 lists of losses (344KiB) + \
             256 places for sources (256KiB) + 4 buffers of gaps (164KiB) + 106 histograms (2145KiB)";
        assert_errors(&[
            (
                "[agent]\nmemory_max = \"8MiB\"",
                &format!(
                    "f.toml:2:14: [agent] memory_max = \"8MiB\": too little: 3 slabs being filled \
                     (192KiB) + 4 slabs being written (256KiB) + {terms} (32776KiB) + {sum} = 41017KiB exceeds \"8MiB\"; write at \
                     least \"41MiB\""
                ),
            ),
            ("[agent]\nmemory_max = \"41MiB\"", "no error"),
            (
                "[storage]\nframe_max = \"32MiB\"",
                &format!(
                    "f.toml: [agent] memory_max: too little: 3 slabs being filled (192KiB) + 4 slabs \
                     being written (256KiB) + {terms} (65544KiB) + {sum} = 73785KiB exceeds \"64MiB\"; write at least \"73MiB\""
                ),
            ),
        ]);
    }

    #[test]
    fn text_that_is_not_toml() {
        // Proves that nothing is guessed about the rest of a broken text.
        assert_errors(&[
            ("[agent]\nx y", "f.toml:2:3: not TOML: key with no value, expected `=`"),
            (
                "[source.synthetic]\nseed = 0x",
                "f.toml:2:8: [source.synthetic] seed = 0x: an unfinished number is not what belongs here; write \
                 a whole number without quotes, from 0 to 9223372036854775807",
            ),
        ]);
    }

    #[test]
    fn files_that_cannot_be_read() {
        // Proves that a missing, a huge and a binary file are told with the path, and a good one is read.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.toml");
        let name = path.display().to_string();
        let read = || Config::read(&path).map_err(|errors| errors.to_string());
        assert_eq!(read(), Err(format!("{name}: cannot be read: No such file or directory (os error 2)")));
        std::fs::write(&path, b"[agent]\n# caf\xe9\n").unwrap();
        assert_eq!(read(), Err(format!("{name}:2:6: byte 13 is not UTF-8; save the file as UTF-8")));
        std::fs::write(&path, "#".repeat(FILE_BYTES_MAX)).unwrap();
        assert_eq!(read(), Ok(Config::default()));
        std::fs::write(&path, "#".repeat(FILE_BYTES_MAX + 1)).unwrap();
        let too_large = "larger than 1MiB, the limit of a configuration file";
        assert_eq!(read(), Err(format!("{name}: {too_large}")));
        assert_eq!(errors(&"#".repeat(FILE_BYTES_MAX + 1)), format!("f.toml: {too_large}"));
    }

    #[test]
    fn a_flood_of_errors_is_cut() {
        // Proves that the messages of a hostile file are bounded and the rest is counted.
        let text = (0..1000).map(|number| format!("key{number} = {number}\n")).collect::<Vec<_>>().concat();
        let errors = Config::parse("f.toml", &text).unwrap_err();
        assert_eq!((errors.iter().count(), errors.more()), (100, 900));
        assert!(errors.to_string().ends_with("\nand 900 more"));
    }

    #[test]
    fn a_hostile_file_takes_no_time() {
        // Proves that no simple text makes the work grow with its square: a quarter of the size limit is done in
        // a moment even unoptimized, where a square would take hours.
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
            // Proves that random text, and the full file with random pieces put in, ends in a value or in errors.
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
