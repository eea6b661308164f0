//! The table of all metrics: the counters of each writer, with their meaning, kind and name. The
//! exposition, `docs/METRICS.md`, the state and the reports use this table. A comment is the
//! meaning that the exposition states, so it is plain text.
#![allow(
    clippy::doc_markdown,
    rustdoc::broken_intra_doc_links,
    reason = "help texts of Prometheus name keys and tables of the configuration without markup"
)]

use std::sync::Mutex;

use flatcap_format::segment::SourceSender;
use flatcap_os::clock::{NS_PER_S, monotonic_ns, process_cpu_ns, read_clocks};
use flatcap_os::process_usage::ProcessUsage;

use super::counter::Counter;
use super::latency::PublishedLatency;
use super::metric::{MetricReading, MetricTable, MetricUnit, RunMetric, metrics};

metrics! {
    /// Counters of one source. sampled (= begun) = recorded + lost + thinned + in flight. Each row
    /// names its writer.
    SourceMetrics {
        /// The source's name.
        pub name: String,
        /// The application that pushes it; `None` if this program reads it.
        pub sender: Option<SourceSender>,
        // Locked by the sampler for a new reason only.
        pub(super) incomplete_explanation: Mutex<Option<String>>,
        /// 2 x stride, plus 1 if `cpu_budget` is the limit; 0 until the first change.
        pub(super) stride_and_budget: Counter,
    }
    /// Configured period of the source.
    period_ns: gauge ns = "flatcap_source_period_seconds"; // daemon
    /// Samples begun; each one is recorded, lost, thinned or in flight.
    begun: counter = "flatcap_source_begun"; // sampler
    /// Samples passed to the kernel for writing.
    recorded: counter = "flatcap_source_recorded"; // recorder
    /// Bytes of the source's frames in the files.
    bytes: counter = "flatcap_source_recorded_frames_bytes"; // recorder
    /// Samples that the files report as lost, with the cause. If each read of a source fails, its
    /// losses are reported only when the recorder stops.
    lost: counter = "flatcap_source_lost"; // recorder
    /// Samples left out of data_dir on purpose, by [blackbox] disk_period. The ring contains them.
    thinned: counter = "flatcap_source_thinned"; // recorder
    /// Ticks at which no sample was begun.
    missed: counter = "flatcap_source_missed"; // sampler
    /// Incomplete samples: some values are missing and marked as absent.
    incomplete: counter = "flatcap_source_incomplete"; // sampler
    /// Failed reads; their samples are counted as lost later.
    failed: counter = "flatcap_source_failed"; // sampler
    /// Reads that timed out; their samples are counted as lost later.
    timed_out: counter = "flatcap_source_timed_out"; // sampler
    /// CPU time of the source's samples, including their share of the overhead.
    spent: counter ns = "flatcap_source_cpu_seconds"; // sampler
    /// Number of periods per sample; more than 1 if a CPU budget limits the source.
    gauge = "flatcap_source_stride", |source| source.stride();
    /// 1 if the budget of the whole recorder limits the source, else 0.
    gauge = "flatcap_source_limited_by_recorder", |source| source.is_limited_by_recorder().into();
    /// Delay of a sample after its deadline.
    lateness: histogram = "flatcap_source_lateness_seconds"; // recorder
    /// Duration of one read of the source.
    read_duration: histogram = "flatcap_source_read_duration_seconds"; // recorder
    /// 1 once a reload has removed the source: it is no longer read.
    removed: gauge; // daemon
    /// Union of the flags of the incomplete samples, which name the missing values.
    incomplete_flags: gauge; // sampler
    /// The kernel's error number of the last failure; 0 if the failure has no error number.
    last_errno: gauge; // sampler
    /// CPU demand within its own budget, in ns per second; 0 until known.
    demand: gauge; // sampler
    /// Union of the causes in the Gap frames of the source.
    causes: gauge; // recorder
}

metrics! {
    /// Counters of one sampler group, all written by its thread.
    GroupMetrics {
        /// The group's name.
        pub name: &'static str,
        /// The group's index among all groups that can exist.
        pub number: u64,
    }
    /// Slabs queued for the recorder.
    slabs: counter = "flatcap_group_slabs";
    /// Slabs dropped because the queue was full; their samples are lost.
    slabs_dropped: counter = "flatcap_group_slabs_dropped";
    /// Time that the group has waited for space in its queue.
    waited_ns: counter ns = "flatcap_group_waited_seconds";
    /// 1 while the thread of the group has real-time priority, else 0.
    realtime: gauge = "flatcap_group_realtime";
    /// Times at which the thread lost its real-time priority because it had used its share.
    realtime_yields: counter = "flatcap_group_realtime_yields";
}

metrics! {
    /// Counters of one rule, all written by the recorder that evaluates it.
    RuleMetrics {
        /// The rule's name.
        pub name: String,
    }
    /// Firings of the rule.
    fired: counter = "flatcap_trigger_fired";
    /// Firings shortly after an earlier firing. They extend the earlier one.
    extended: counter = "flatcap_trigger_extended";
    /// Firings suppressed by hold_off or max_per_day.
    suppressed: counter = "flatcap_trigger_suppressed";
    /// Evaluations of the rule.
    evaluated: counter = "flatcap_trigger_evaluated";
    /// Evaluations whose result was unknown: a value was absent, or a window not filled.
    unknown: counter = "flatcap_trigger_unknown";
    /// Values of list elements that are unknown to a rule, because the list has more elements than
    /// a transform of the rule can track.
    untracked: counter = "flatcap_trigger_untracked_values";
}

metrics! {
    /// Counters of the recorder thread, all written by it.
    RecorderMetrics {
        /// The kernel's error number of the last storage error; 0 if the error has no number.
        pub(super) last_storage_errno: Counter,
    }
    /// Time to build a payload; one build in 64 is timed.
    build: histogram = "flatcap_build_duration_seconds";
    /// Time to queue a slab.
    enqueue: histogram = "flatcap_queue_push_duration_seconds";
    /// Time from queueing a slab until the recorder takes it.
    queue_wait: histogram = "flatcap_queue_wait_duration_seconds";
    /// Time of one append to a segment.
    write: histogram = "flatcap_write_duration_seconds";
    /// Time of one fdatasync call.
    sync: histogram = "flatcap_sync_duration_seconds";
    /// Bytes appended to segments.
    bytes: counter = "flatcap_recorder_written_bytes";
    /// Slabs taken from the queues.
    slabs: counter = "flatcap_recorder_slabs";
    /// Segments sealed and renamed.
    segments_sealed: counter = "flatcap_recorder_segments_sealed";
    /// Samples that were not evaluated by rules, because the rules took too much time.
    trigger_skipped: counter = "flatcap_trigger_skipped";
    /// Failed writes, syncs, file creations and renames.
    storage_errors: counter = "flatcap_storage_errors";
    /// Segments that another process removed while they were open.
    segments_removed: counter = "flatcap_storage_removed_segments";
    /// Completed storage calls of the recorder that took longer than one second.
    storage_stalls: counter = "flatcap_storage_stalls";
    /// Largest number of slabs waiting in all queues during the last second.
    slabs_queued: gauge = "flatcap_queue_slabs";
    /// Free slabs at the end of the last second.
    slabs_free: gauge = "flatcap_pool_slabs_free";
    /// Lost samples not yet written as a gap, as of the last second.
    losses_pending: gauge = "flatcap_losses_pending";
    /// 1 while a segment is open, 0 while samples are lost because no segment can be created.
    segment_open: gauge = "flatcap_segment_open";
    /// Number of the open segment.
    segment_number: gauge = "flatcap_segment_number";
    /// Creation time of the open segment, in seconds since 1970.
    segment_created_s: gauge = "flatcap_segment_created_timestamp_seconds";
    /// Size of the open segment.
    segment_bytes: gauge = "flatcap_segment_size_bytes";
    /// Frames in the open segment.
    segment_frames: gauge = "flatcap_segment_frames";
    /// Frames in segments that were removed while they were open. They are counted as recorded but
    /// are no longer in the files.
    frames_removed: counter;
    /// Creation time of the open segment, in monotonic nanoseconds.
    segment_begun_ns: gauge;
    /// Loop iterations. The watchdog is not fed if the loop neither iterates nor waits for storage.
    iterations: counter;
    /// Start of the storage call in progress, in monotonic nanoseconds; 0 between calls.
    in_storage_since: gauge;
    /// Duration of the completed stalls, in nanoseconds.
    storage_stalled_ns: counter;
}

metrics! {
    /// The data directory as of the last scan, about once a second. One thread at a time writes it.
    DirectoryMetrics {}
    /// Disk space used by the files of the data directory.
    bytes: gauge = "flatcap_data_used_bytes";
    /// Disk space reserved for future segments (retain_min); part of the used space.
    reserved_bytes: gauge = "flatcap_data_reserved_bytes";
    /// Size of the newest history that is never removed to free space. It is the part of retain_min
    /// for which the file system has space.
    kept_bytes: gauge = "flatcap_data_kept_bytes";
    /// 1 if less than min_free is free while retain_min protects the history, else 0. New samples
    /// are then lost once the reserve is used up.
    is_history_kept: gauge = "flatcap_data_history_kept";
    /// Limit of the used space (retain_bytes).
    bytes_max: gauge = "flatcap_data_limit_bytes";
    /// Free space in the file system of the data directory.
    free_bytes: gauge = "flatcap_filesystem_free_bytes";
    /// Free space that must remain in the file system of the data directory (min_free).
    min_free_bytes: gauge = "flatcap_filesystem_min_free_bytes";
    /// Size of the file system of the data directory.
    total_bytes: gauge = "flatcap_filesystem_size_bytes";
    /// Sealed segments in the data directory, including those set aside.
    segments: gauge = "flatcap_data_segments";
    /// Creation time of the oldest segment, in seconds since 1970; 0 if there is none.
    oldest_created_s: gauge = "flatcap_data_oldest_timestamp_seconds";
    /// Files removed by this run to stay within the limits.
    removed: counter = "flatcap_data_removed_files";
    /// The lowest segment number among the closed segments and the files set aside.
    oldest_number: gauge;
    /// 1 while disk space is so low that the oldest segments are removed soon, else 0.
    is_space_low: gauge;
}

metrics! {
    /// Counters of compression. The planner thread writes all of them except the CPU time of the
    /// workers.
    CompressionMetrics {}
    /// 1 while compression of sealed segments is enabled, else 0.
    enabled: gauge = "flatcap_compress_enabled";
    /// Sealed segments rewritten as compressed blocks.
    segments: counter = "flatcap_compress_segments";
    /// Size of the compressed segments before compression.
    raw_bytes: counter = "flatcap_compress_raw_bytes";
    /// Size of the compressed segments after compression.
    stored_bytes: counter = "flatcap_compress_stored_bytes";
    /// Sealed segments left uncompressed because compression would save too little or because of a
    /// problem with them.
    skipped: counter = "flatcap_compress_skipped_segments";
    /// Failed attempts to compress a segment.
    failures: counter = "flatcap_compress_failures";
    /// Sealed segments waiting for compression.
    waiting: gauge = "flatcap_compress_waiting_segments";
    /// Time that the oldest segment has waited for compression; 0 if no segment waits.
    gauge ns = "flatcap_compress_oldest_wait_seconds",
        |compression| compression.oldest_wait_ns(monotonic_ns());
    /// CPU time of all compression threads.
    counter ns = "flatcap_compress_cpu_seconds", |compression| compression.cpu_ns();
    /// CPU time that compression took from its guaranteed share. The share is used when segments
    /// have waited too long at idle priority.
    guaranteed_cpu_ns: counter ns = "flatcap_compress_guaranteed_cpu_seconds";
    /// Time at which the oldest waiting segment began to wait, in monotonic nanoseconds. 0 if no
    /// segment waits.
    oldest_since_ns: gauge;
    /// CPU time of the planner thread, in nanoseconds.
    planner_cpu_ns: counter;
    /// CPU time of the worker at idle priority, in nanoseconds. Written by that worker.
    spare_cpu_ns: counter;
}

metrics! {
    /// Counters of pushed frames. The thread that reads lanes writes them, unless a row names
    /// another writer. Zeros if applications may not push.
    PushMetrics {}
    /// 1 while applications can push frames, else 0.
    is_open: gauge = "flatcap_push_open";
    /// Connections to the push socket.
    connections: counter = "flatcap_push_connections";
    /// Applications that are connected.
    clients: gauge = "flatcap_push_clients";
    /// Lanes of these applications.
    lanes: gauge = "flatcap_push_lanes";
    /// Lanes of killed runs that applications have handed over and that are not rescued yet.
    lanes_waiting: gauge = "flatcap_push_waiting_lanes";
    /// Memory of the lanes and of the stored data about pushed sources.
    memory_bytes: gauge = "flatcap_push_used_bytes";
    /// Limit on the memory of lanes and pushed sources ([push] memory_max). 0 if applications may
    /// not push.
    memory_bytes_max: gauge = "flatcap_push_limit_bytes"; // daemon
    /// Sources that applications have pushed.
    sources: counter = "flatcap_push_sources"; // daemon
    /// Pushed samples begun, as of the last look at their lanes; each one is recorded, lost or in
    /// flight.
    begun: counter = "flatcap_push_begun"; // daemon
    /// Pushed samples passed to the kernel for writing.
    recorded: counter = "flatcap_push_recorded"; // daemon
    /// Bytes of pushed frames in the files.
    bytes: counter = "flatcap_push_recorded_frames_bytes"; // daemon
    /// Pushed samples that the files report as lost, with the cause.
    lost: counter = "flatcap_push_lost"; // daemon
    /// Requests of applications that were refused, for any reason.
    refused: counter = "flatcap_push_refused_requests";
    /// Refused requests of users who may not push.
    denied: counter = "flatcap_push_denied_requests";
    /// Refused requests that would have exceeded a limit; the log names the limit.
    limited: counter = "flatcap_push_limited_requests";
    /// Bytes that the descriptions of pushed sources take in each segment.
    description_bytes: gauge = "flatcap_push_description_bytes";
    /// Limit on the bytes of source descriptions, which is a quarter of a segment of the data
    /// directory or of the ring.
    description_bytes_max: gauge = "flatcap_push_limit_description_bytes"; // daemon
    /// Lanes ended because their frames were refused.
    lanes_refused: counter = "flatcap_push_refused_lanes";
    /// Number of times that the recorder skipped a lane because the applications of its user had
    /// pushed more than allowed.
    waits: counter = "flatcap_push_waits";
    /// CPU time used for pushed frames, including the time of the recorder that writes them.
    cpu_ns: counter ns = "flatcap_push_cpu_seconds";
    /// Limit on the CPU time for pushed frames per second ([push] cpu_budget).
    cpu_ns_max: gauge ns = "flatcap_push_limit_cpu_cores"; // daemon
    /// Pauses in handling all pushes, because pushed frames had used up their CPU time.
    cpu_waits: counter = "flatcap_push_cpu_waits";
    /// Pauses in accepting connections to the push socket, because too many connections came from
    /// users who may not push.
    accept_waits: counter = "flatcap_push_accept_waits";
    /// Triggers fired by applications.
    triggers: counter = "flatcap_push_triggers";
    /// Frames that a user may push per second; 0: unlimited.
    user_frames_max: gauge; // daemon
    /// Bytes that a user may push per second; 0: unlimited.
    user_bytes_max: gauge; // daemon
    /// CPU time that this recorder has used for pushed frames.
    recorder_ns: counter; // each recorder its own
}

metrics! {
    /// Counters of the ring, all written by the daemon; zeros without a ring.
    RingMetrics {}
    /// Time since the begin of the ring's oldest segment; 0 without a ring.
    held_s: gauge = "flatcap_ring_held_seconds";
    /// Memory used by the files of the ring.
    bytes: gauge = "flatcap_ring_used_bytes";
    /// Limit on the memory of the ring ([blackbox] memory_max).
    bytes_max: gauge = "flatcap_ring_limit_bytes";
    /// Samples of all sources written to the ring.
    recorded: counter = "flatcap_ring_recorded";
    /// Samples that the ring reports as lost.
    lost: counter = "flatcap_ring_lost";
    /// Failed writes and file creations in the ring, which the table of [`Metrics`](super::Metrics)
    /// exposes.
    storage_errors: counter;
}

metrics! {
    /// Counters of snapshots, all written by their thread.
    SnapshotMetrics {}
    /// Snapshots requested by rules, people and signals.
    ordered: counter = "flatcap_snapshots_ordered";
    /// Snapshots published; overlapping orders become one.
    published: counter = "flatcap_snapshots_kept";
    /// Published snapshots that lack a part of their window.
    incomplete: counter = "flatcap_snapshots_incomplete";
    /// Snapshots that could not be kept.
    failed: counter = "flatcap_snapshots_failed";
    /// Snapshots whose window has not ended.
    pending: gauge = "flatcap_snapshots_pending";
    /// Disk space used by snapshots; included in the space of the data directory.
    bytes: gauge = "flatcap_snapshots_used_bytes";
    /// Windows whose copy has started.
    copies_begun: counter;
    /// Windows whose copy has ended.
    copies_ended: counter;
}

metrics! {
    /// Counters of the daemon, all written by its thread.
    DaemonMetrics {}
    /// 1 if unwritten samples are kept in run_dir and survive a kill of the process, else 0.
    run_dir_in_use: gauge = "flatcap_run_dir_in_use";
    /// Completed configuration reloads, including failed ones.
    reloads: counter = "flatcap_config_reloads";
    /// Configuration reloads that failed and changed nothing.
    reloads_failed: counter = "flatcap_config_reload_failures";
    /// 1 if the configuration in effect is the one read last, else 0.
    config_current: gauge = "flatcap_config_last_reload_successful";
    /// 1 while the last good configuration is in effect because the configured one was refused at
    /// the start, else 0.
    config_fallback: gauge = "flatcap_config_fallback";
    /// Time at which the configuration in effect was read, in seconds since 1970.
    config_read_s: gauge = "flatcap_config_last_reload_success_timestamp_seconds";
}

metrics! {
    /// Counters of the control server, all written by its thread.
    ControlMetrics {
        /// The highest value that [`Metrics::stalled_ns`] has returned.
        pub(super) stalled_ns: Counter,
    }
    /// Connections accepted by the control server.
    connections: counter = "flatcap_control_connections";
    /// Open connections to the control server, including this one.
    connections_open: gauge = "flatcap_control_connections_open";
    /// Connections closed because the client was too slow.
    timed_out: counter = "flatcap_control_connections_timed_out";
    /// Connections without a request that were closed in favor of newer ones.
    displaced: counter = "flatcap_control_connections_displaced";
    /// Pauses in accepting connections because answering had used up its share of cpu_budget.
    pauses: counter = "flatcap_control_pauses";
    /// Requests answered, including refused ones.
    requests: counter = "flatcap_control_requests";
    /// Requests refused for any reason.
    refused: counter = "flatcap_control_requests_refused";
}

metrics! {
    /// Counters of the log, written by the daemon.
    LogMetrics {}
    /// Log lines suppressed because one place in the program logged too often.
    lines_suppressed: counter = "flatcap_log_lines_suppressed";
    /// Log lines lost because the reader was too slow.
    lines_lost: counter = "flatcap_log_lines_lost";
}

metrics! {
    /// Metrics of the process at the time of the request.
    ProcessMetrics {
        /// Start of the run by the wall clock, in nanoseconds since 1970.
        pub start_wall_ns: u64,
    }
    /// Current wall clock time in seconds since 1970. All other timestamps refer to this clock.
    gauge = "flatcap_wall_clock_timestamp_seconds", |_process| wall_clock_s();
    /// CPU time of all threads.
    counter ns = "process_cpu_seconds", |_process| process_cpu_ns();
    /// Start time of the run, in seconds since 1970.
    gauge wall_ns = "process_start_time_seconds", |process| process.start_wall_ns;
}

// Absent if /proc cannot be read.
metrics! {
    impl ProcessUsage;
    /// Resident memory.
    gauge = "process_resident_memory_bytes", |usage| usage.resident_bytes;
    /// Mapped memory.
    gauge = "process_virtual_memory_bytes", |usage| usage.virtual_bytes;
    /// Open files.
    gauge = "process_open_fds", |usage| usage.open_files;
    /// Limit on open files.
    gauge = "process_max_fds", |usage| usage.open_files_max;
}

fn wall_clock_s() -> u64 {
    u64::try_from(read_clocks().wall_ns / NS_PER_S.cast_signed()).unwrap_or_default()
}
