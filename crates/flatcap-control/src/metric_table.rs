//! The table of all metrics: name, help text and where the value comes from.

use flatcap_metrics::{
    CompressionMetrics, DirectoryMetrics, GroupMetrics, LimitingBudget, Metrics, PublishedLatency,
    PushMetrics, RecorderMetrics, RuleMetrics, SourceMetrics,
};
use flatcap_os::clock::monotonic_ns;
use flatcap_os::process_usage::ProcessUsage;

use super::seconds::{now_s, seconds, wall_seconds};

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

/// Defines a table of metrics: kind and name, value and help text of each.
macro_rules! families {
    ($(#[$doc:meta])* $table:ident: $of:ty, |$of_value:ident|
     $($kind:ident $name:literal, $value:expr, $help:literal;)*) => {
        $(#[$doc])*
        pub(super) const $table: &[MetricFamily<$of>] = &[$(MetricFamily::$kind($name, $help, |$of_value| {
            let _ = $of_value;
            $value
        })),*];
    };
}

families! {
    /// The metrics of each source.
    SOURCES: SourceMetrics, |source|
    gauge "flatcap_source_period_seconds", Float(seconds(source.period_ns.get())),
        "Configured period of the source.";
    counter "flatcap_source_begun", Integer(source.begun.get()),
        "Samples begun; each one is recorded, lost, thinned or in flight.";
    counter "flatcap_source_recorded", Integer(source.recorded.get()),
        "Samples passed to the kernel for writing.";
    counter "flatcap_source_recorded_frames_bytes", Integer(source.bytes.get()),
        "Bytes of the source's frames in the files.";
    counter "flatcap_source_lost", Integer(source.lost.get()),
        "Samples that the files report as lost, with the cause; losses of a source that always fails are reported with its next frame or at the end.";
    counter "flatcap_source_thinned", Integer(source.thinned.get()),
        "Samples left out of data_dir on purpose, by [blackbox] disk_period; the ring has them.";
    counter "flatcap_source_missed", Integer(source.missed.get()),
        "Ticks at which no sample was begun.";
    counter "flatcap_source_incomplete", Integer(source.incomplete.get()),
        "Incomplete samples: some values are missing and marked as absent.";
    counter "flatcap_source_failed", Integer(source.failed.get()),
        "Failed reads; their samples are counted as lost later.";
    counter "flatcap_source_timed_out", Integer(source.timed_out.get()),
        "Reads that timed out; their samples are counted as lost later.";
    counter "flatcap_source_cpu_seconds", Float(seconds(source.spent.get())),
        "CPU time of the source's samples, including their share of the overhead.";
    gauge "flatcap_source_stride", Integer(source.stride()),
        "Number of periods per sample; more than 1 if a CPU budget limits the source.";
    gauge "flatcap_source_limited_by_recorder",
        Integer(u64::from(source.stride() > 1 && source.stride_and_budget().1 == LimitingBudget::Recorder)),
        "1 if the budget of the whole recorder limits the source, else 0.";
}

/// The histograms of each source.
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

families! {
    /// The metrics of each sampler group.
    GROUPS: GroupMetrics, |group|
    counter "flatcap_group_slabs", Integer(group.slabs.get()),
        "Slabs queued for the recorder.";
    counter "flatcap_group_slabs_dropped", Integer(group.slabs_dropped.get()),
        "Slabs dropped because the queue was full; their samples are lost.";
    counter "flatcap_group_waited_seconds", Float(seconds(group.waited_ns.get())),
        "Time that the group has waited for space in its queue.";
}

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

families! {
    /// The metrics of each rule.
    RULES: RuleMetrics, |rule|
    counter "flatcap_trigger_fired", Integer(rule.fired.get()),
        "Firings of the rule.";
    counter "flatcap_trigger_extended", Integer(rule.extended.get()),
        "Firings shortly after another one, which they extend.";
    counter "flatcap_trigger_suppressed", Integer(rule.suppressed.get()),
        "Firings suppressed by hold_off or max_per_day.";
    counter "flatcap_trigger_evaluated", Integer(rule.evaluated.get()),
        "Evaluations of the rule.";
    counter "flatcap_trigger_unknown", Integer(rule.unknown.get()),
        "Evaluations whose result was unknown: a value was absent, or a window not filled.";
}

families! {
    /// Metrics of the recorder thread.
    RECORDER: RecorderMetrics, |recorder|
    counter "flatcap_recorder_written_bytes", Integer(recorder.bytes.get()),
        "Bytes appended to segments.";
    counter "flatcap_recorder_slabs", Integer(recorder.slabs.get()),
        "Slabs taken from the queues.";
    counter "flatcap_recorder_segments_sealed", Integer(recorder.segments_sealed.get()),
        "Segments sealed and renamed.";
    counter "flatcap_trigger_skipped", Integer(recorder.trigger_skipped.get()),
        "Samples that no rule has seen, because rules took too much time.";
    counter "flatcap_storage_errors", Integer(recorder.storage_errors.get()),
        "Failed writes, syncs, file creations and renames.";
    counter "flatcap_storage_removed_segments", Integer(recorder.segments_removed.get()),
        "Segments that were removed by others while they were open.";
    counter "flatcap_storage_stalls", Integer(recorder.storage_stalls.get()),
        "Completed storage calls of the recorder that took longer than one second.";
    gauge "flatcap_queue_slabs", Integer(recorder.slabs_queued.get()),
        "Most slabs waiting in all queues during the last second.";
    gauge "flatcap_pool_slabs_free", Integer(recorder.slabs_free.get()),
        "Free slabs at the end of the last second.";
    gauge "flatcap_losses_pending", Integer(recorder.losses_pending.get()),
        "Lost samples not yet written as a gap, as of the last second.";
    gauge "flatcap_segment_open", Integer(recorder.segment_open.get()),
        "1 while a segment is open, 0 while samples are lost because no segment can be created.";
    gauge "flatcap_segment_number", Integer(recorder.segment_number.get()),
        "Number of the open segment.";
    gauge "flatcap_segment_created_timestamp_seconds", Integer(recorder.segment_created_s.get()),
        "Creation time of the open segment, in seconds since 1970.";
    gauge "flatcap_segment_size_bytes", Integer(recorder.segment_bytes.get()),
        "Size of the open segment.";
    gauge "flatcap_segment_frames", Integer(recorder.segment_frames.get()),
        "Frames in the open segment.";
}

families! {
    /// Metrics of the data directory.
    DIRECTORY: DirectoryMetrics, |directory|
    gauge "flatcap_data_used_bytes", Integer(directory.bytes.get()),
        "Disk space used by the files of the data directory.";
    gauge "flatcap_data_reserved_bytes", Integer(directory.reserved_bytes.get()),
        "Disk space reserved for future segments (retain_min); part of the used space.";
    gauge "flatcap_data_kept_bytes", Integer(directory.kept_bytes.get()),
        "Newest history that is never removed to free space: as much of retain_min as the file system has space for.";
    gauge "flatcap_data_history_kept", Integer(directory.is_history_kept.get()),
        "Whether less than min_free is free and retain_min keeps the history: new samples are lost once the reserve is used up.";
    gauge "flatcap_data_limit_bytes", Integer(directory.bytes_max.get()),
        "Limit of the used space (retain_bytes).";
    gauge "flatcap_filesystem_free_bytes", Integer(directory.free_bytes.get()),
        "Free space in the file system of the data directory.";
    gauge "flatcap_filesystem_min_free_bytes", Integer(directory.min_free_bytes.get()),
        "Minimum free space to keep in that file system (min_free).";
    gauge "flatcap_filesystem_size_bytes", Integer(directory.total_bytes.get()),
        "Size of that file system.";
    gauge "flatcap_data_segments", Integer(directory.segments.get()),
        "Sealed segments in the data directory, including those set aside.";
    gauge "flatcap_data_oldest_timestamp_seconds", Integer(directory.oldest_created_s.get()),
        "Creation time of the oldest segment, in seconds since 1970; 0 if there is none.";
    counter "flatcap_data_removed_files", Integer(directory.removed.get()),
        "Files removed by this run to stay within the limits.";
}

families! {
    /// Metrics of the compressor.
    COMPRESSOR: CompressionMetrics, |compression|
    gauge "flatcap_compress_enabled", Integer(compression.enabled.get()),
        "1 while compression of sealed segments is enabled, else 0.";
    counter "flatcap_compress_segments", Integer(compression.segments.get()),
        "Sealed segments rewritten as compressed blocks.";
    counter "flatcap_compress_raw_bytes", Integer(compression.raw_bytes.get()),
        "Size of these segments before compression.";
    counter "flatcap_compress_stored_bytes", Integer(compression.stored_bytes.get()),
        "Size of these segments after compression.";
    counter "flatcap_compress_skipped_segments", Integer(compression.skipped.get()),
        "Sealed segments left uncompressed because compression would save too little or because of a problem with them.";
    counter "flatcap_compress_failures", Integer(compression.failures.get()),
        "Failed attempts to compress a segment.";
    gauge "flatcap_compress_waiting_segments", Integer(compression.waiting.get()),
        "Sealed segments waiting for compression.";
    gauge "flatcap_compress_oldest_wait_seconds", Float(seconds(compression.oldest_wait_ns(monotonic_ns()))),
        "Time that the oldest of these segments has waited; 0 if there is none.";
    counter "flatcap_compress_cpu_seconds", Float(seconds(compression.cpu_ns())),
        "CPU time of all compression threads.";
    counter "flatcap_compress_guaranteed_cpu_seconds", Float(seconds(compression.guaranteed_cpu_ns.get())),
        "CPU time of compression within its guaranteed share, used when segments waited too long at idle priority.";
}

families! {
    /// Metrics of the frames that applications push.
    PUSH: PushMetrics, |push|
    gauge "flatcap_push_open", Integer(push.is_open.get()),
        "1 while applications can push frames, else 0.";
    counter "flatcap_push_connections", Integer(push.connections.get()),
        "Connections to the push socket.";
    gauge "flatcap_push_clients", Integer(push.clients.get()),
        "Applications that are connected.";
    gauge "flatcap_push_lanes", Integer(push.lanes.get()),
        "Lanes of these applications.";
    gauge "flatcap_push_waiting_lanes", Integer(push.lanes_waiting.get()),
        "Lanes of killed runs that applications have handed over and that are not rescued yet.";
    gauge "flatcap_push_used_bytes", Integer(push.memory_bytes.get()),
        "Memory of the lanes and of what is kept of pushed sources.";
    gauge "flatcap_push_limit_bytes", Integer(push.memory_bytes_max.get()),
        "Maximum of that memory ([push] memory_max); 0 if applications may not push.";
    counter "flatcap_push_sources", Integer(push.sources.get()),
        "Sources that applications have pushed.";
    counter "flatcap_push_begun", Integer(push.begun.get()),
        "Pushed samples begun, as of the last look at their lanes; each one is recorded, lost or in flight.";
    counter "flatcap_push_recorded", Integer(push.recorded.get()),
        "Pushed samples passed to the kernel for writing.";
    counter "flatcap_push_recorded_frames_bytes", Integer(push.bytes.get()),
        "Bytes of pushed frames in the files.";
    counter "flatcap_push_lost", Integer(push.lost.get()),
        "Pushed samples that the files report as lost, with the cause.";
    counter "flatcap_push_refused_requests", Integer(push.refused.get()),
        "Requests of applications that were refused, for any reason.";
    counter "flatcap_push_denied_requests", Integer(push.denied.get()),
        "Part of the refused requests: those of users who may not push.";
    counter "flatcap_push_limited_requests", Integer(push.limited.get()),
        "Part of the refused requests: those that would exceed a limit, which the log names.";
    gauge "flatcap_push_description_bytes", Integer(push.description_bytes.get()),
        "Bytes that the descriptions of pushed sources take in each segment.";
    gauge "flatcap_push_limit_description_bytes", Integer(push.description_bytes_max.get()),
        "Maximum of those bytes: a quarter of a segment of the data directory or of the ring.";
    counter "flatcap_push_refused_lanes", Integer(push.lanes_refused.get()),
        "Lanes ended because their frames were refused.";
    counter "flatcap_push_waits", Integer(push.waits.get()),
        "Looks at a lane that was left, since the applications of its user had pushed more than allowed.";
    counter "flatcap_push_cpu_seconds", Float(seconds(push.cpu_ns.get())),
        "CPU time used for pushed frames, also by the recorder that writes them.";
    gauge "flatcap_push_limit_cpu_cores", Float(seconds(push.cpu_basis_points_max.get() * 100_000)),
        "Maximum of that time per second ([push] cpu_budget).";
    counter "flatcap_push_cpu_waits", Integer(push.cpu_waits.get()),
        "Pauses of all pushes, since they had used their CPU time.";
    counter "flatcap_push_accept_waits", Integer(push.accept_waits.get()),
        "Pauses in accepting connections to the push socket, since there were too many of users who may not push.";
    counter "flatcap_push_triggers", Integer(push.triggers.get()),
        "Triggers fired by applications.";
}

families! {
    /// Metrics of the whole process and the control server.
    DAEMON: Metrics, |metrics|
    gauge "flatcap_ring_held_seconds", Integer(metrics.ring.held_s.get()),
        "Time since the begin of the ring's oldest segment; 0 without a ring.";
    gauge "flatcap_ring_used_bytes", Integer(metrics.ring.bytes.get()),
        "Memory used by the files of the ring.";
    gauge "flatcap_ring_limit_bytes", Integer(metrics.ring.bytes_max.get()),
        "Maximum of that memory ([blackbox] memory_max).";
    counter "flatcap_ring_recorded", Integer(metrics.ring.recorded.get()),
        "Samples of all sources written to the ring.";
    counter "flatcap_ring_lost", Integer(metrics.ring.lost.get()),
        "Samples that the ring reports as lost.";
    counter "flatcap_snapshots_ordered", Integer(metrics.snapshots.ordered.get()),
        "Snapshots ordered by rules, people and signals.";
    counter "flatcap_snapshots_kept", Integer(metrics.snapshots.published.get()),
        "Snapshots published; overlapping orders become one.";
    counter "flatcap_snapshots_incomplete", Integer(metrics.snapshots.incomplete.get()),
        "Published snapshots that lack a part of their window.";
    counter "flatcap_snapshots_failed", Integer(metrics.snapshots.failed.get()),
        "Snapshots that could not be kept.";
    gauge "flatcap_snapshots_pending", Integer(metrics.snapshots.pending.get()),
        "Snapshots whose window has not ended.";
    gauge "flatcap_snapshots_used_bytes", Integer(metrics.snapshots.bytes.get()),
        "Disk space used by snapshots; part of that of the data directory.";
    counter "flatcap_ring_storage_errors", Integer(metrics.ring.storage_errors.get()),
        "Writes to the ring, and creations of its segments, that failed.";
    counter "flatcap_storage_stalled_seconds", Float(seconds(metrics.stalled_ns(monotonic_ns()))),
        "Total time of storage calls longer than one second, including the current one.";
    gauge "flatcap_source_cap_ratio", Float(seconds(metrics.source_cap.get())),
        "CPU cap per source set by cpu_budget, as a share of a core; 0 if there is none.";
    gauge "flatcap_run_dir_in_use", Integer(metrics.daemon.run_dir_in_use.get()),
        "1 if unwritten samples are kept in run_dir and survive a kill of the process, else 0.";
    counter "flatcap_config_reloads", Integer(metrics.daemon.reloads.get()),
        "Completed configuration reloads, including failed ones.";
    counter "flatcap_config_reload_failures", Integer(metrics.daemon.reloads_failed.get()),
        "Configuration reloads that failed and changed nothing.";
    gauge "flatcap_config_last_reload_successful", Integer(metrics.daemon.config_current.get()),
        "1 if the configuration in effect is the one read last, else 0.";
    gauge "flatcap_config_fallback", Integer(metrics.daemon.config_fallback.get()),
        "1 while the last good configuration is in effect because the configured one was refused at the start, else 0.";
    gauge "flatcap_config_last_reload_success_timestamp_seconds", Integer(metrics.daemon.config_read_s.get()),
        "Time at which the configuration in effect was read, in seconds since 1970.";
    counter "flatcap_control_connections", Integer(metrics.control.connections.get()),
        "Connections accepted by the control server.";
    gauge "flatcap_control_connections_open", Integer(metrics.control.connections_open.get()),
        "Open connections to the control server, including this one.";
    counter "flatcap_control_connections_timed_out", Integer(metrics.control.timed_out.get()),
        "Connections closed because the client was too slow.";
    counter "flatcap_control_connections_displaced", Integer(metrics.control.displaced.get()),
        "Connections without a request that were closed in favor of newer ones.";
    counter "flatcap_control_pauses", Integer(metrics.control.pauses.get()),
        "Pauses in accepting connections because answering had used up its share of cpu_budget.";
    counter "flatcap_control_requests", Integer(metrics.control.requests.get()),
        "Requests answered, including refused ones.";
    counter "flatcap_control_requests_refused", Integer(metrics.control.refused.get()),
        "Requests refused for any reason.";
    counter "flatcap_log_lines_suppressed", Integer(metrics.log_lines_suppressed.get()),
        "Log lines suppressed because one place in the program logged too often.";
    counter "flatcap_log_lines_lost", Integer(metrics.log_lines_lost.get()),
        "Log lines lost because the reader was too slow.";
    gauge "flatcap_wall_clock_timestamp_seconds", Integer(now_s()),
        "Current wall clock time in seconds since 1970, the reference of all other timestamps.";
}

families! {
    /// Metrics of the process, with the names that all Prometheus clients use.
    PROCESS: ProcessSnapshot, |now|
    counter "process_cpu_seconds", Float(seconds(now.usage.cpu_ns)),
        "CPU time of all threads.";
    gauge "process_resident_memory_bytes", Integer(now.usage.resident_bytes),
        "Resident memory.";
    gauge "process_virtual_memory_bytes", Integer(now.usage.virtual_bytes),
        "Mapped memory.";
    gauge "process_open_fds", Integer(now.usage.open_files),
        "Open files.";
    gauge "process_max_fds", Integer(now.usage.open_files_max),
        "Limit on open files.";
    gauge "process_start_time_seconds", Float(wall_seconds(now.start_wall_ns)),
        "Start time of the run, in seconds since 1970.";
}
