//! The configuration that applies without any file: every setting has its default.

use std::path::PathBuf;
use std::time::Duration;

use super::compress::CompressConfig;
use super::default;
use super::perf_event::PerfConfig;
use super::settings::{
    BufferingConfig, Config, ControlConfig, GroupConfig, GroupConfigs, RecorderConfig, StorageConfig,
    SyncSetting,
};
use super::source::{
    CgroupConfig, CpuShare, ProcessConfig, SourceConfig, SourceName, SyntheticConfig, SyntheticLayout,
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
            sources: SourceName::without_instances().map(SourceConfig::by_default).collect(),
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

impl SourceName {
    /// Returns the default period.
    fn default_period(self) -> Duration {
        match self {
            Self::Cpu => default::PERIOD_CPU,
            Self::Memory => default::PERIOD_MEMORY,
            Self::Vmstat => default::PERIOD_VMSTAT,
            Self::Load => default::PERIOD_LOAD,
            Self::Disk => default::PERIOD_DISK,
            Self::Network => default::PERIOD_NETWORK,
            Self::Pressure => default::PERIOD_PRESSURE,
            Self::Itself => default::PERIOD_SELF,
            Self::Synthetic => default::PERIOD_SYNTHETIC,
            Self::Schedstat => default::PERIOD_SCHEDSTAT,
            Self::Softirqs => default::PERIOD_SOFTIRQS,
            Self::Interrupts => default::PERIOD_INTERRUPTS,
            Self::Cpufreq => default::PERIOD_CPUFREQ,
            Self::Thermal => default::PERIOD_THERMAL,
            Self::Hwmon => default::PERIOD_HWMON,
            Self::Power => default::PERIOD_POWER,
            Self::Numa => default::PERIOD_NUMA,
            Self::Slab => default::PERIOD_SLAB,
            Self::Buddy => default::PERIOD_BUDDY,
            Self::Hugepages => default::PERIOD_HUGEPAGES,
            Self::Filesystem => default::PERIOD_FILESYSTEM,
            Self::Sockets => default::PERIOD_SOCKETS,
            Self::Snmp => default::PERIOD_SNMP,
            Self::Netstat => default::PERIOD_NETSTAT,
            Self::Softnet => default::PERIOD_SOFTNET,
            Self::Conntrack => default::PERIOD_CONNTRACK,
            Self::Ethtool => default::PERIOD_ETHTOOL,
            Self::Process => default::PERIOD_PROCESS,
            Self::Cgroup => default::PERIOD_CGROUP,
            Self::Perf => default::PERIOD_PERF,
            Self::Gpu => default::PERIOD_GPU,
            Self::File => default::PERIOD_FILE,
            Self::Command => default::PERIOD_COMMAND,
        }
    }
}

impl SourceConfig {
    /// Returns a source with its default settings.
    pub(super) fn by_default(name: SourceName) -> Self {
        let shape = SyntheticLayout::from_keyword(
            default::SYNTHETIC_SHAPE,
            default::SYNTHETIC_FIELDS,
            default::SYNTHETIC_PAYLOAD,
        );
        let synthetic = SyntheticConfig { shape, seed: default::SYNTHETIC_SEED };
        Self {
            name,
            instance: None,
            enabled: name.is_on_by_default(),
            period: name.default_period(),
            required: false,
            // The purpose of generated values is to load the recorder.
            budget: if name == SourceName::Synthetic { CpuShare::WHOLE } else { default::BUDGET },
            include: Vec::new(),
            exclude: Vec::new(),
            synthetic: (name == SourceName::Synthetic).then_some(synthetic),
            process: (name == SourceName::Process).then(|| ProcessConfig {
                users: Vec::new(),
                cgroups: Vec::new(),
                top: default::PROCESS_TOP,
                by: default::PROCESS_BY,
                command_lines: false,
                cgroup_paths: false,
            }),
            cgroup: (name == SourceName::Cgroup).then_some(CgroupConfig { depth: default::CGROUP_DEPTH }),
            perf: (name == SourceName::Perf)
                .then(|| PerfConfig { events: default::PERF_EVENTS.to_vec(), processes: Vec::new() }),
            text_source: None,
        }
    }
}
