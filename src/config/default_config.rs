//! The configuration that applies without any file: every setting has its default.

use std::path::PathBuf;

use super::compress::CompressConfig;
use super::default;
use super::settings::{
    BufferingConfig, Config, ControlConfig, GroupConfig, GroupConfigs, RecorderConfig, StorageConfig,
    SyncSetting,
};
use super::source::{CpuShare, SourceConfig};
use crate::sampling::sources::CATALOG;
use crate::sampling::{
    CgroupConfig, OwnKeys, PerfConfig, ProcessConfig, SourceSpec, SyntheticConfig, SyntheticLayout,
};

impl Default for Config {
    /// Returns the configuration that applies without any file.
    fn default() -> Self {
        Self {
            recorder: RecorderConfig::default(),
            buffering: BufferingConfig::default(),
            storage: StorageConfig::default(),
            compress: CompressConfig::default(),
            control: ControlConfig::default(),
            groups: GroupConfigs::default(),
            sources: CATALOG
                .iter()
                .filter(|spec| !spec.has_instances())
                .map(SourceConfig::by_default)
                .collect(),
        }
    }
}

impl Default for RecorderConfig {
    // Empty paths stand for defaults that depend on the environment, which this module does not
    // read.
    fn default() -> Self {
        Self {
            data_dir: PathBuf::new(),
            run_dir: PathBuf::new(),
            host_root: PathBuf::from(default::HOST_ROOT),
            memory_max: default::MEMORY_MAX,
            lock_memory: default::LOCK_MEMORY,
            cpu_budget: default::CPU_BUDGET,
        }
    }
}

impl Default for BufferingConfig {
    fn default() -> Self {
        Self {
            slab_size: usize::try_from(default::SLAB_SIZE).unwrap_or(usize::MAX),
            flush_interval: default::FLUSH_INTERVAL,
            poll_interval: default::POLL_INTERVAL,
        }
    }
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            checksum: default::CHECKSUM,
            segment_size: default::SEGMENT_SIZE,
            segment_age: default::SEGMENT_AGE,
            sync: SyncSetting::from_keyword(default::SYNC, default::SYNC_INTERVAL),
            preallocate: default::PREALLOCATE,
            retain_bytes: default::RETAIN_BYTES,
            retain_min: default::RETAIN_MIN,
            retain_age: default::RETAIN_AGE,
            min_free: default::MIN_FREE,
            frame_max: u32::try_from(default::FRAME_MAX).unwrap_or(u32::MAX),
        }
    }
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self { enabled: default::CONTROL, socket: PathBuf::new(), metrics_listen: None }
    }
}

impl Default for GroupConfigs {
    fn default() -> Self {
        let group = |timing| GroupConfig {
            timing,
            priority: default::PRIORITY,
            cpus: Vec::new(),
            on_full: default::ON_FULL,
        };
        Self {
            fast: group(default::TIMING_FAST),
            slow: group(default::TIMING_SLOW),
            blocking: group(default::TIMING_BLOCKING),
        }
    }
}

impl Default for CompressConfig {
    fn default() -> Self {
        Self {
            enabled: default::COMPRESS,
            while_recording: default::COMPRESS_WHILE_RECORDING,
            codec: default::COMPRESS_CODEC,
            layout: default::COMPRESS_LAYOUT,
            block_size: usize::try_from(default::COMPRESS_BLOCK_SIZE).unwrap_or(usize::MAX),
            cpu_budget: default::COMPRESS_CPU_BUDGET,
            io_budget: default::COMPRESS_IO_BUDGET,
            sources: Vec::new(),
        }
    }
}

impl SourceConfig {
    /// Returns a source with its default settings.
    pub(super) fn by_default(spec: &'static SourceSpec) -> Self {
        let shape = SyntheticLayout::from_keyword(
            default::SYNTHETIC_SHAPE,
            default::SYNTHETIC_FIELDS,
            default::SYNTHETIC_PAYLOAD,
        );
        let synthetic = SyntheticConfig { shape, seed: default::SYNTHETIC_SEED };
        Self {
            spec,
            instance: None,
            enabled: spec.is_on_by_default,
            period: spec.period,
            required: false,
            // The purpose of generated values is to load the recorder.
            budget: if spec.keys == OwnKeys::Synthetic { CpuShare::WHOLE } else { default::BUDGET },
            include: Vec::new(),
            exclude: Vec::new(),
            synthetic: (spec.keys == OwnKeys::Synthetic).then_some(synthetic),
            process: (spec.keys == OwnKeys::Process).then(|| ProcessConfig {
                users: Vec::new(),
                cgroups: Vec::new(),
                top: default::PROCESS_TOP,
                by: default::PROCESS_BY,
                command_lines: false,
                cgroup_paths: false,
            }),
            cgroup: (spec.keys == OwnKeys::Cgroup).then_some(CgroupConfig { depth: default::CGROUP_DEPTH }),
            perf: (spec.keys == OwnKeys::Perf)
                .then(|| PerfConfig { events: default::PERF_EVENTS.to_vec(), processes: Vec::new() }),
            text_source: None,
        }
    }
}
