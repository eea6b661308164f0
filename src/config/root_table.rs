//! Parses the tables of a configuration, from the root on, and registers all keys.

use super::compress::CompressConfig;
use super::default;
use super::diagnostics::{Diagnostics, KnownKey, ParsedValue};
use super::error::Problem;
use super::input_texts::InputTexts;
use super::instance::instance;
use super::settings::{
    BufferingConfig, Config, ControlConfig, GroupConfig, GroupConfigs, RecorderConfig, StorageConfig,
    SyncKeyword, SyncSetting,
};
use super::source::SourceConfig;
use super::source_table::{ParsedSourceKeys, source};
use super::syntax;
use super::table_reader::TableReader;
use super::validate::{self, ParsedKeys};
use crate::sampling::sources::CATALOG;

/// Returns all keys; those of instances under the names `file.name` and `command.name`.
pub(super) fn known_keys() -> Vec<KnownKey> {
    // The reader registers each key that it looks for, so there is no second list to maintain.
    // Instances have keys only if there is one.
    let tables = "[source.file.name]\n[source.command.name]\n";
    let texts = InputTexts::of_file("", tables);
    let mut walk = Diagnostics::new(&texts);
    if let Some(tree) = syntax::parse(&mut walk, 0, tables) {
        TableReader::root(&mut walk, tree, config);
    }
    walk.into_known()
}

/// Parses the root table and checks it across tables.
pub(super) fn config(root: &mut TableReader<'_, '_>) -> Config {
    // In the order of config/flatcap.toml: messages list tables and keys in the order of the calls.
    let (recorder, memory_max) = root.table("recorder", recorder);
    let (buffering, slab_size) = root.table("buffering", buffering);
    let (storage, frame_max) = root.table("storage", storage);
    let compress = root.table("compress", compress);
    let control = root.table("control", control);
    let groups = root.table("group", |table| {
        let groups = GroupConfigs::default();
        GroupConfigs {
            fast: table.table("fast", |table| group(table, &groups.fast)),
            slow: table.table("slow", |table| group(table, &groups.slow)),
            blocking: table.table("blocking", |table| group(table, &groups.blocking)),
        }
    });
    let (sources, written): (Vec<SourceConfig>, Vec<ParsedSourceKeys>) = root.table("source", |table| {
        let mut sources: Vec<(SourceConfig, ParsedSourceKeys)> = Vec::new();
        for spec in CATALOG {
            if spec.has_instances() {
                let read = |table: &mut TableReader<'_, '_>, word: String| instance(table, spec, word);
                sources.extend(table.table(spec.name, |table| table.instances(read)));
            } else {
                sources.push(table.table(spec.name, |table| source(table, spec)));
            }
        }
        sources.into_iter().unzip()
    });
    let config = Config { recorder, buffering, storage, compress, control, groups, sources };
    validate::across_tables(
        root,
        &config,
        &ParsedKeys { memory_max, slab_size, frame_max, sources: written },
    );
    config
}

fn recorder(table: &mut TableReader<'_, '_>) -> (RecorderConfig, ParsedValue<u64>) {
    let recorder = RecorderConfig::default();
    let data_dir = table.path_or_empty("data_dir", recorder.data_dir).value;
    let run_dir = table.path_or_empty("run_dir", recorder.run_dir).value;
    let host_root = table.path("host_root", recorder.host_root).value;
    let memory_max = table.size("memory_max", recorder.memory_max, &default::MEMORY_MAX_RANGE);
    let lock_memory = table.flag("lock_memory", recorder.lock_memory).value;
    let cpu_budget = table.cpu_share("cpu_budget", recorder.cpu_budget, &default::CPU_BUDGET_RANGE).value;
    let recorder = RecorderConfig {
        data_dir,
        run_dir,
        host_root,
        memory_max: memory_max.value,
        lock_memory,
        cpu_budget,
    };
    (recorder, memory_max)
}

fn buffering(table: &mut TableReader<'_, '_>) -> (BufferingConfig, ParsedValue<u64>) {
    let slab_size = table.pages("slab_size", default::SLAB_SIZE, &default::SLAB_SIZE_RANGE);
    let flush_interval =
        table.duration("flush_interval", default::FLUSH_INTERVAL, &default::FLUSH_INTERVAL_RANGE).value;
    let poll_interval =
        table.duration("poll_interval", default::POLL_INTERVAL, &default::POLL_INTERVAL_RANGE).value;
    // The range ends at 4 MiB, so this cannot fail.
    let bytes = usize::try_from(slab_size.value).unwrap_or(usize::MAX);
    (BufferingConfig { slab_size: bytes, flush_interval, poll_interval }, slab_size)
}

fn storage(table: &mut TableReader<'_, '_>) -> (StorageConfig, ParsedValue<u64>) {
    let checksum = table.keyword("checksum", default::CHECKSUM).value;
    // Defaults below depend on this size: otherwise a small or large segment would turn them into
    // errors that no text contains.
    let segment_size = table.size("segment_size", default::SEGMENT_SIZE, &default::SEGMENT_SIZE_RANGE);
    let segment_age = table.duration("segment_age", default::SEGMENT_AGE, &default::SEGMENT_AGE_RANGE).value;
    let sync = table.keyword("sync", default::SYNC);
    let sync_interval =
        table.duration("sync_interval", default::SYNC_INTERVAL, &default::SYNC_INTERVAL_RANGE);
    let is_unused = sync.value != SyncKeyword::Interval && !table.is_overridden(&sync_interval, &sync);
    // A rejected `sync` has its default value here, from which nothing follows.
    if sync.is_valid && is_unused && sync_interval.is_set() {
        table.reject(&sync_interval, Problem::IntervalUnused { sync: sync.value.as_str() });
    }
    let preallocate = default::PREALLOCATE.min(segment_size.value);
    let preallocate = table.size("preallocate", preallocate, &default::PREALLOCATE_RANGE);
    if segment_size.is_valid && preallocate.is_valid && preallocate.value > segment_size.value {
        table.reject(&preallocate, Problem::PreallocateTooLarge { segment_size: segment_size.value });
    }
    let least = segment_size.value.saturating_mul(default::RETAIN_SEGMENTS_MIN);
    let retain_bytes = default::RETAIN_BYTES.max(segment_size.value.saturating_mul(default::RETAIN_SEGMENTS));
    let retain_bytes = table.size("retain_bytes", retain_bytes, &default::RETAIN_BYTES_RANGE);
    if segment_size.is_valid && retain_bytes.is_valid && retain_bytes.value < least {
        table.reject(&retain_bytes, Problem::RetainTooLittle { least });
    }
    let retain_min = default::RETAIN_MIN.min(retain_bytes.value / default::RETAIN_MIN_SHARE);
    let retain_min = table.size("retain_min", retain_min, &default::RETAIN_MIN_RANGE);
    if retain_bytes.is_valid && retain_min.is_valid && retain_min.value > retain_bytes.value {
        table.reject(&retain_min, Problem::RetainMinTooLarge { retain_bytes: retain_bytes.value });
    }
    let retain_age = table.duration("retain_age", default::RETAIN_AGE, &default::RETAIN_AGE_RANGE).value;
    let min_free = table.min_free("min_free", default::MIN_FREE, &default::MIN_FREE_RANGE).value;
    let frame_max = table.size("frame_max", default::FRAME_MAX, &default::FRAME_MAX_RANGE);
    let storage = StorageConfig {
        checksum,
        segment_size: segment_size.value,
        segment_age,
        sync: SyncSetting::from_keyword(sync.value, sync_interval.value),
        preallocate: preallocate.value,
        retain_bytes: retain_bytes.value,
        retain_min: retain_min.value,
        retain_age,
        min_free,
        // Cannot fail, as the range ends at 1 GiB.
        frame_max: u32::try_from(frame_max.value).unwrap_or(u32::MAX),
    };
    (storage, frame_max)
}

fn compress(table: &mut TableReader<'_, '_>) -> CompressConfig {
    let compress = CompressConfig::default();
    let block_size =
        table.size("block_size", default::COMPRESS_BLOCK_SIZE, &default::COMPRESS_BLOCK_SIZE_RANGE);
    CompressConfig {
        enabled: table.flag("enabled", compress.enabled).value,
        while_recording: table.codec_or_off("while_recording", compress.while_recording).value,
        codec: table.codec("codec", compress.codec).value,
        layout: table.layout("layout", compress.layout).value,
        block_size: usize::try_from(block_size.value).unwrap_or(usize::MAX),
        cpu_budget: table
            .cpu_share("cpu_budget", compress.cpu_budget, &default::COMPRESS_CPU_BUDGET_RANGE)
            .value,
        io_budget: table.size("io_budget", compress.io_budget, &default::COMPRESS_IO_BUDGET_RANGE).value,
        sources: table.source_compression("sources").value,
    }
}

fn control(table: &mut TableReader<'_, '_>) -> ControlConfig {
    let control = ControlConfig::default();
    ControlConfig {
        enabled: table.flag("enabled", control.enabled).value,
        socket: table.socket_path("socket", control.socket).value,
        metrics_listen: table.socket_address("metrics_listen").value,
    }
}

fn group(table: &mut TableReader<'_, '_>, group: &GroupConfig) -> GroupConfig {
    let priority = table.number("priority", group.priority.into(), &default::PRIORITY_RANGE);
    let cpus = table.numbers("cpus", &default::CPUS_RANGE).value;
    GroupConfig {
        // Neither conversion can fail, as both ranges end far below the limits of the types.
        priority: u8::try_from(priority.value).unwrap_or(u8::MAX),
        cpus: cpus.into_iter().filter_map(|cpu| u32::try_from(cpu).ok()).collect(),
        timing: table.keyword("timing", group.timing).value,
        on_full: table.keyword("on_full", group.on_full).value,
    }
}
