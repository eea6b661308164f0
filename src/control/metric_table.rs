//! The table of all metrics: name, help text and where the value comes from.

use super::seconds::{now_s, seconds, wall_seconds};
use crate::metrics::{
    CompressionMetrics, DirectoryMetrics, GroupMetrics, LimitingBudget, Metrics, PublishedLatency,
    RecorderMetrics, SourceMetrics,
};
use crate::os::clock::monotonic_ns;
use crate::os::process_usage::ProcessUsage;

/// The value of a metric.
#[derive(Debug, Clone, Copy)]
pub(super) enum MetricValue {
    Integer(u64),
    Float(f64),
}

/// A metric family: one metric, or one for each value of a label.
#[derive(Debug)]
pub(super) struct MetricFamily<T> {
    pub(super) name: &'static str, // with the unit, without _total
    pub(super) help: &'static str,
    pub(super) is_counter: bool,
    pub(super) value: fn(&T) -> MetricValue,
}

/// The values behind the process metrics.
#[derive(Debug)]
pub(super) struct ProcessSnapshot {
    pub(super) usage: ProcessUsage,
    pub(super) start_wall_ns: i64,
}

/// A histogram in seconds.
#[derive(Debug)]
pub(super) struct HistogramFamily<T> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) latency: fn(&T) -> &PublishedLatency,
}

impl<T> MetricFamily<T> {
    /// A value that only increases.
    const fn counter(name: &'static str, help: &'static str, value: fn(&T) -> MetricValue) -> Self {
        Self { name, help, is_counter: true, value }
    }

    /// A value that increases and decreases.
    const fn gauge(name: &'static str, help: &'static str, value: fn(&T) -> MetricValue) -> Self {
        Self { name, help, is_counter: false, value }
    }
}

use MetricValue::{Float, Integer};

/// One metric per source.
pub(super) const SOURCES: &[MetricFamily<SourceMetrics>] = &[
    MetricFamily::gauge("flatcap_source_period_seconds", "Configured period of the source.", |source| {
        Float(seconds(source.period_ns.get()))
    }),
    MetricFamily::counter(
        "flatcap_source_begun",
        "Samples begun; each one is recorded, lost or in flight.",
        |source| Integer(source.begun.get()),
    ),
    MetricFamily::counter("flatcap_source_recorded", "Samples passed to the kernel for writing.", |source| {
        Integer(source.recorded.get())
    }),
    MetricFamily::counter(
        "flatcap_source_recorded_frames_bytes",
        "Bytes of the source's frames in the files.",
        |source| Integer(source.bytes.get()),
    ),
    MetricFamily::counter(
        "flatcap_source_lost",
        "Samples that the files report as lost, with the cause; losses of a source that always fails are reported with its next frame or at the end.",
        |source| Integer(source.lost.get()),
    ),
    MetricFamily::counter("flatcap_source_missed", "Ticks at which no sample was begun.", |source| {
        Integer(source.missed.get())
    }),
    MetricFamily::counter(
        "flatcap_source_incomplete",
        "Incomplete samples: some values are missing and marked as absent.",
        |source| Integer(source.incomplete.get()),
    ),
    MetricFamily::counter(
        "flatcap_source_failed",
        "Failed reads; their samples are counted as lost later.",
        |source| Integer(source.failed.get()),
    ),
    MetricFamily::counter(
        "flatcap_source_timed_out",
        "Reads that timed out; their samples are counted as lost later.",
        |source| Integer(source.timed_out.get()),
    ),
    MetricFamily::counter(
        "flatcap_source_cpu_seconds",
        "CPU time of the source's samples, including their share of the overhead.",
        |source| Float(seconds(source.spent.get())),
    ),
    MetricFamily::gauge(
        "flatcap_source_stride",
        "Number of periods per sample; more than 1 if a CPU budget limits the source.",
        |source| Integer(source.stride()),
    ),
    MetricFamily::gauge(
        "flatcap_source_limited_by_recorder",
        "1 if the budget of the whole recorder limits the source, else 0.",
        |source| {
            Integer(u64::from(
                source.stride() > 1 && source.stride_and_budget().1 == LimitingBudget::Recorder,
            ))
        },
    ),
];

/// One histogram per source.
pub(super) const SOURCE_LATENCIES: &[HistogramFamily<SourceMetrics>] = &[
    HistogramFamily {
        name: "flatcap_source_lateness_seconds",
        help: "Delay of a sample after its deadline.",
        latency: |source| &source.lateness,
    },
    HistogramFamily {
        name: "flatcap_source_read_duration_seconds",
        help: "Duration of one read of the source.",
        latency: |source| &source.read_duration,
    },
];

/// One metric per sampler group.
pub(super) const GROUPS: &[MetricFamily<GroupMetrics>] = &[
    MetricFamily::counter("flatcap_group_slabs", "Slabs queued for the recorder.", |group| {
        Integer(group.slabs.get())
    }),
    MetricFamily::counter(
        "flatcap_group_slabs_dropped",
        "Slabs dropped because the queue was full; their samples are lost.",
        |group| Integer(group.slabs_dropped.get()),
    ),
    MetricFamily::counter(
        "flatcap_group_waited_seconds",
        "Time that the group has waited for space in its queue.",
        |group| Float(seconds(group.waited_ns.get())),
    ),
];

/// Histograms of the whole process.
pub(super) const LATENCIES: &[HistogramFamily<RecorderMetrics>] = &[
    HistogramFamily {
        name: "flatcap_build_duration_seconds",
        help: "Time to build a payload; one build in 64 is timed.",
        latency: |recorder| &recorder.build,
    },
    HistogramFamily {
        name: "flatcap_queue_push_duration_seconds",
        help: "Time to queue a slab.",
        latency: |recorder| &recorder.enqueue,
    },
    HistogramFamily {
        name: "flatcap_queue_wait_duration_seconds",
        help: "Time from queueing a slab until the recorder takes it.",
        latency: |recorder| &recorder.queue_wait,
    },
    HistogramFamily {
        name: "flatcap_write_duration_seconds",
        help: "Time of one append to a segment.",
        latency: |recorder| &recorder.write,
    },
    HistogramFamily {
        name: "flatcap_sync_duration_seconds",
        help: "Time of one fdatasync call.",
        latency: |recorder| &recorder.sync,
    },
];

/// Metrics of the recorder thread.
pub(super) const RECORDER: &[MetricFamily<RecorderMetrics>] = &[
    MetricFamily::counter("flatcap_recorder_written_bytes", "Bytes appended to segments.", |recorder| {
        Integer(recorder.bytes.get())
    }),
    MetricFamily::counter("flatcap_recorder_slabs", "Slabs taken from the queues.", |recorder| {
        Integer(recorder.slabs.get())
    }),
    MetricFamily::counter("flatcap_recorder_segments_sealed", "Segments sealed and renamed.", |recorder| {
        Integer(recorder.segments_sealed.get())
    }),
    MetricFamily::counter(
        "flatcap_storage_errors",
        "Failed writes, syncs, file creations and renames.",
        |recorder| Integer(recorder.storage_errors.get()),
    ),
    MetricFamily::counter(
        "flatcap_storage_removed_segments",
        "Segments that were removed by others while they were open.",
        |recorder| Integer(recorder.segments_removed.get()),
    ),
    MetricFamily::counter(
        "flatcap_storage_stalls",
        "Completed storage calls of the recorder that took longer than one second.",
        |recorder| Integer(recorder.storage_stalls.get()),
    ),
    MetricFamily::gauge(
        "flatcap_queue_slabs",
        "Most slabs waiting in all queues during the last second.",
        |recorder| Integer(recorder.slabs_queued.get()),
    ),
    MetricFamily::gauge("flatcap_pool_slabs_free", "Free slabs at the end of the last second.", |recorder| {
        Integer(recorder.slabs_free.get())
    }),
    MetricFamily::gauge(
        "flatcap_losses_pending",
        "Lost samples not yet written as a gap, as of the last second.",
        |recorder| Integer(recorder.losses_pending.get()),
    ),
    MetricFamily::gauge(
        "flatcap_segment_open",
        "1 while a segment is open, 0 while samples are lost because no segment can be created.",
        |recorder| Integer(recorder.segment_open.get()),
    ),
    MetricFamily::gauge("flatcap_segment_number", "Number of the open segment.", |recorder| {
        Integer(recorder.segment_number.get())
    }),
    MetricFamily::gauge(
        "flatcap_segment_created_timestamp_seconds",
        "Creation time of the open segment, in seconds since 1970.",
        |recorder| Integer(recorder.segment_created_s.get()),
    ),
    MetricFamily::gauge("flatcap_segment_size_bytes", "Size of the open segment.", |recorder| {
        Integer(recorder.segment_bytes.get())
    }),
    MetricFamily::gauge("flatcap_segment_frames", "Frames in the open segment.", |recorder| {
        Integer(recorder.segment_frames.get())
    }),
];

/// Metrics of the data directory.
pub(super) const DIRECTORY: &[MetricFamily<DirectoryMetrics>] = &[
    MetricFamily::gauge(
        "flatcap_data_used_bytes",
        "Disk space used by the files of the data directory.",
        |directory| Integer(directory.bytes.get()),
    ),
    MetricFamily::gauge(
        "flatcap_data_reserved_bytes",
        "Disk space reserved for future segments (retain_min); part of the used space.",
        |directory| Integer(directory.reserved_bytes.get()),
    ),
    MetricFamily::gauge("flatcap_data_limit_bytes", "Limit of the used space (retain_bytes).", |directory| {
        Integer(directory.bytes_max.get())
    }),
    MetricFamily::gauge(
        "flatcap_filesystem_free_bytes",
        "Free space in the file system of the data directory.",
        |directory| Integer(directory.free_bytes.get()),
    ),
    MetricFamily::gauge(
        "flatcap_filesystem_min_free_bytes",
        "Minimum free space to keep in that file system (min_free).",
        |directory| Integer(directory.min_free_bytes.get()),
    ),
    MetricFamily::gauge("flatcap_filesystem_size_bytes", "Size of that file system.", |directory| {
        Integer(directory.total_bytes.get())
    }),
    MetricFamily::gauge(
        "flatcap_data_segments",
        "Sealed segments in the data directory, including those set aside.",
        |directory| Integer(directory.segments.get()),
    ),
    MetricFamily::gauge(
        "flatcap_data_oldest_timestamp_seconds",
        "Creation time of the oldest segment, in seconds since 1970; 0 if there is none.",
        |directory| Integer(directory.oldest_created_s.get()),
    ),
    MetricFamily::counter(
        "flatcap_data_removed_files",
        "Files removed by this run to stay within the limits.",
        |directory| Integer(directory.removed.get()),
    ),
];

/// Metrics of the compressor.
pub(super) const COMPRESSOR: &[MetricFamily<CompressionMetrics>] = &[
    MetricFamily::gauge(
        "flatcap_compress_enabled",
        "1 while compression of sealed segments is enabled, else 0.",
        |compression| Integer(compression.enabled.get()),
    ),
    MetricFamily::counter(
        "flatcap_compress_segments",
        "Sealed segments rewritten as compressed blocks.",
        |compression| Integer(compression.segments.get()),
    ),
    MetricFamily::counter(
        "flatcap_compress_raw_bytes",
        "Size of these segments before compression.",
        |compression| Integer(compression.raw_bytes.get()),
    ),
    MetricFamily::counter(
        "flatcap_compress_stored_bytes",
        "Size of these segments after compression.",
        |compression| Integer(compression.stored_bytes.get()),
    ),
    MetricFamily::counter(
        "flatcap_compress_skipped_segments",
        "Sealed segments left uncompressed because compression would save too little or because of a problem with them.",
        |compression| Integer(compression.skipped.get()),
    ),
    MetricFamily::counter(
        "flatcap_compress_failures",
        "Failed attempts to compress a segment.",
        |compression| Integer(compression.failures.get()),
    ),
    MetricFamily::gauge(
        "flatcap_compress_waiting_segments",
        "Sealed segments waiting for compression.",
        |compression| Integer(compression.waiting.get()),
    ),
    MetricFamily::gauge(
        "flatcap_compress_oldest_wait_seconds",
        "Time that the oldest of these segments has waited; 0 if there is none.",
        |compression| Float(seconds(compression.oldest_wait_ns(monotonic_ns()))),
    ),
    MetricFamily::counter(
        "flatcap_compress_cpu_seconds",
        "CPU time of all compression threads.",
        |compression| Float(seconds(compression.cpu_ns())),
    ),
    MetricFamily::counter(
        "flatcap_compress_guaranteed_cpu_seconds",
        "CPU time of compression within its guaranteed share, used when segments waited too long at idle priority.",
        |compression| Float(seconds(compression.guaranteed_cpu_ns.get())),
    ),
];

/// Metrics of the whole process and the control server.
pub(super) const DAEMON: &[MetricFamily<Metrics>] = &[
    MetricFamily::counter(
        "flatcap_storage_stalled_seconds",
        "Total time of storage calls longer than one second, including the current one.",
        |metrics| Float(seconds(metrics.stalled_ns(monotonic_ns()))),
    ),
    MetricFamily::gauge(
        "flatcap_source_cap_ratio",
        "CPU cap per source set by cpu_budget, as a share of a core; 0 if there is none.",
        |metrics| Float(seconds(metrics.source_cap.get())),
    ),
    MetricFamily::gauge(
        "flatcap_run_dir_in_use",
        "1 if unwritten samples are kept in run_dir and survive a kill of the process, else 0.",
        |metrics| Integer(metrics.daemon.run_dir_in_use.get()),
    ),
    MetricFamily::counter(
        "flatcap_config_reloads",
        "Completed configuration reloads, including failed ones.",
        |metrics| Integer(metrics.daemon.reloads.get()),
    ),
    MetricFamily::counter(
        "flatcap_config_reload_failures",
        "Configuration reloads that failed and changed nothing.",
        |metrics| Integer(metrics.daemon.reloads_failed.get()),
    ),
    MetricFamily::gauge(
        "flatcap_config_last_reload_successful",
        "1 if the configuration in effect is the one read last, else 0.",
        |metrics| Integer(metrics.daemon.config_current.get()),
    ),
    MetricFamily::gauge(
        "flatcap_config_fallback",
        "1 while the last good configuration is in effect because the configured one was refused at the start, else 0.",
        |metrics| Integer(metrics.daemon.config_fallback.get()),
    ),
    MetricFamily::gauge(
        "flatcap_config_last_reload_success_timestamp_seconds",
        "Time at which the configuration in effect was read, in seconds since 1970.",
        |metrics| Integer(metrics.daemon.config_read_s.get()),
    ),
    MetricFamily::counter(
        "flatcap_control_connections",
        "Connections accepted by the control server.",
        |metrics| Integer(metrics.control.connections.get()),
    ),
    MetricFamily::gauge(
        "flatcap_control_connections_open",
        "Open connections to the control server, including this one.",
        |metrics| Integer(metrics.control.connections_open.get()),
    ),
    MetricFamily::counter(
        "flatcap_control_connections_timed_out",
        "Connections closed because the client was too slow.",
        |metrics| Integer(metrics.control.timed_out.get()),
    ),
    MetricFamily::counter(
        "flatcap_control_connections_displaced",
        "Connections without a request that were closed in favor of newer ones.",
        |metrics| Integer(metrics.control.displaced.get()),
    ),
    MetricFamily::counter(
        "flatcap_control_pauses",
        "Pauses in accepting connections because answering had used up its share of cpu_budget.",
        |metrics| Integer(metrics.control.pauses.get()),
    ),
    MetricFamily::counter(
        "flatcap_control_requests",
        "Requests answered, including refused ones.",
        |metrics| Integer(metrics.control.requests.get()),
    ),
    MetricFamily::counter(
        "flatcap_control_requests_refused",
        "Requests refused for any reason.",
        |metrics| Integer(metrics.control.refused.get()),
    ),
    MetricFamily::counter(
        "flatcap_log_lines_suppressed",
        "Log lines suppressed because one place in the program logged too often.",
        |metrics| Integer(metrics.log_lines_suppressed.get()),
    ),
    MetricFamily::counter(
        "flatcap_log_lines_lost",
        "Log lines lost because the reader was too slow.",
        |metrics| Integer(metrics.log_lines_lost.get()),
    ),
    MetricFamily::gauge(
        "flatcap_wall_clock_timestamp_seconds",
        "Current wall clock time in seconds since 1970, the reference of all other timestamps.",
        |_| Integer(now_s()),
    ),
];

/// Metrics of the process, with the names that all Prometheus clients use.
pub(super) const PROCESS: &[MetricFamily<ProcessSnapshot>] = &[
    MetricFamily::counter("process_cpu_seconds", "CPU time of all threads.", |now| {
        Float(seconds(now.usage.cpu_ns))
    }),
    MetricFamily::gauge("process_resident_memory_bytes", "Resident memory.", |now| {
        Integer(now.usage.resident_bytes)
    }),
    MetricFamily::gauge("process_virtual_memory_bytes", "Mapped memory.", |now| {
        Integer(now.usage.virtual_bytes)
    }),
    MetricFamily::gauge("process_open_fds", "Open files.", |now| Integer(now.usage.open_files)),
    MetricFamily::gauge("process_max_fds", "Limit on open files.", |now| Integer(now.usage.open_files_max)),
    MetricFamily::gauge(
        "process_start_time_seconds",
        "Start time of the run, in seconds since 1970.",
        |now| Float(wall_seconds(now.start_wall_ns)),
    ),
];
