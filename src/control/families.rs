//! Every metric: what it is called, what it means, and where its number is.

use super::exposition::{Moment, now_s, seconds, wall_seconds};
use crate::metrics::{
    DirectoryMetrics, GroupMetrics, Limit, Metrics, PublishedLatency, RecorderMetrics, SealerMetrics,
    SourceMetrics,
};
use crate::os::clock::monotonic_ns;

/// A value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Whole(u64),
    Real(f64),
}

/// A metric, or one for each of several things.
#[derive(Debug)]
pub(super) struct Family<T> {
    pub(super) name: &'static str, // with its unit, without _total
    pub(super) help: &'static str,
    pub(super) is_counter: bool,
    pub(super) value: fn(&T) -> Number,
}

/// A histogram in seconds.
#[derive(Debug)]
pub(super) struct Histogram<T> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) of: fn(&T) -> &PublishedLatency,
}

impl<T> Family<T> {
    /// What only grows.
    const fn counter(name: &'static str, help: &'static str, value: fn(&T) -> Number) -> Self {
        Self { name, help, is_counter: true, value }
    }

    /// What goes up and down.
    const fn gauge(name: &'static str, help: &'static str, value: fn(&T) -> Number) -> Self {
        Self { name, help, is_counter: false, value }
    }
}

use Number::{Real, Whole};

/// One line a source each.
pub(super) const SOURCES: &[Family<SourceMetrics>] = &[
    Family::gauge("flatcap_source_period_seconds", "Configured period of the source.", |source| {
        Real(seconds(source.period_ns.get()))
    }),
    Family::counter(
        "flatcap_source_begun",
        "Readings begun; each is recorded, lost, or on its way.",
        |source| Whole(source.begun.get()),
    ),
    Family::counter("flatcap_source_recorded", "Readings handed to the kernel.", |source| {
        Whole(source.recorded.get())
    }),
    Family::counter("flatcap_source_recorded_frames_bytes", "Frames of the source in the files.", |source| {
        Whole(source.bytes.get())
    }),
    Family::counter(
        "flatcap_source_lost",
        "Readings that the files account for as lost, with the cause; of a source that fails all the time with its next frame, or at the end.",
        |source| Whole(source.lost.get()),
    ),
    Family::counter("flatcap_source_missed", "Ticks at which no reading was begun.", |source| {
        Whole(source.missed.get())
    }),
    Family::counter(
        "flatcap_source_partial",
        "Readings that lacked something and are marked so.",
        |source| Whole(source.partial.get()),
    ),
    Family::counter("flatcap_source_failed", "Readings that failed; lost, sooner or later.", |source| {
        Whole(source.failed.get())
    }),
    Family::counter(
        "flatcap_source_timed_out",
        "Readings that did not come back in time; lost, sooner or later.",
        |source| Whole(source.timed_out.get()),
    ),
    Family::counter(
        "flatcap_source_cpu_seconds",
        "What the readings took of a core, with what is done around them.",
        |source| Real(seconds(source.spent.get())),
    ),
    Family::gauge(
        "flatcap_source_stride",
        "Every how many periods the source is read; more than 1 where a budget was exceeded.",
        |source| Whole(source.stride()),
    ),
    Family::gauge(
        "flatcap_source_limited_by_agent",
        "1 where that is for the budget of the whole agent, else 0.",
        |source| Whole(u64::from(source.stride() > 1 && source.pace().1 == Limit::Agent)),
    ),
];

/// One histogram a source each.
pub(super) const SOURCE_LATENCIES: &[Histogram<SourceMetrics>] = &[
    Histogram {
        name: "flatcap_source_lateness_seconds",
        help: "Begin of a reading minus its deadline.",
        of: |source| &source.lateness,
    },
    Histogram {
        name: "flatcap_source_read_duration_seconds",
        help: "How long a reading took.",
        of: |source| &source.read_duration,
    },
];

/// One line a sampler group each.
pub(super) const GROUPS: &[Family<GroupMetrics>] = &[
    Family::counter("flatcap_group_slabs", "Slabs handed to the recorder.", |group| Whole(group.slabs.get())),
    Family::counter(
        "flatcap_group_slabs_dropped",
        "Slabs given up since the queue was full: their readings are lost.",
        |group| Whole(group.slabs_dropped.get()),
    ),
    Family::counter(
        "flatcap_group_waited_seconds",
        "Time that the group has waited for room in its queue.",
        |group| Real(seconds(group.waited_ns.get())),
    ),
];

/// Histograms of the whole agent.
pub(super) const LATENCIES: &[Histogram<RecorderMetrics>] = &[
    Histogram {
        name: "flatcap_build_duration_seconds",
        help: "Building a payload; one in 64 is timed.",
        of: |recorder| &recorder.build,
    },
    Histogram {
        name: "flatcap_hand_over_duration_seconds",
        help: "Handing a slab to the queue.",
        of: |recorder| &recorder.hand_over,
    },
    Histogram {
        name: "flatcap_queue_wait_duration_seconds",
        help: "From the hand-over of a slab to the recorder taking it.",
        of: |recorder| &recorder.queue_wait,
    },
    Histogram {
        name: "flatcap_write_duration_seconds",
        help: "One append to a segment.",
        of: |recorder| &recorder.write,
    },
    Histogram {
        name: "flatcap_sync_duration_seconds",
        help: "One fdatasync.",
        of: |recorder| &recorder.sync,
    },
];

/// The recorder's.
pub(super) const RECORDER: &[Family<RecorderMetrics>] = &[
    Family::counter("flatcap_recorder_written_bytes", "What was appended to segments.", |recorder| {
        Whole(recorder.bytes.get())
    }),
    Family::counter("flatcap_recorder_slabs", "Slabs taken from the queues.", |recorder| {
        Whole(recorder.slabs.get())
    }),
    Family::counter(
        "flatcap_recorder_segments_sealed",
        "Segments closed that have their final names.",
        |recorder| Whole(recorder.segments_sealed.get()),
    ),
    Family::counter(
        "flatcap_storage_errors",
        "Writes, syncs, creations and renames that failed.",
        |recorder| Whole(recorder.storage_errors.get()),
    ),
    Family::counter(
        "flatcap_storage_removed_segments",
        "Segments that somebody removed while they were open.",
        |recorder| Whole(recorder.segments_removed.get()),
    ),
    Family::counter(
        "flatcap_storage_stalls",
        "Calls of the storage that took the recorder longer than a second and have ended.",
        |recorder| Whole(recorder.storage_stalls.get()),
    ),
    Family::gauge(
        "flatcap_queue_slabs",
        "Most slabs that waited in all queues in the last second.",
        |recorder| Whole(recorder.slabs_queued.get()),
    ),
    Family::gauge(
        "flatcap_pool_slabs_free",
        "Slabs that were free when the last second ended.",
        |recorder| Whole(recorder.slabs_free.get()),
    ),
    Family::gauge(
        "flatcap_losses_pending",
        "Readings that are lost and will be counted so with the next Gap, when the last second ended.",
        |recorder| Whole(recorder.losses_pending.get()),
    ),
    Family::gauge(
        "flatcap_segment_open",
        "1 while a segment is open, 0 while readings are lost since none can be begun.",
        |recorder| Whole(recorder.segment_open.get()),
    ),
    Family::gauge("flatcap_segment_number", "Number of the open segment.", |recorder| {
        Whole(recorder.segment_number.get())
    }),
    Family::gauge(
        "flatcap_segment_created_timestamp_seconds",
        "When the open segment was begun, since 1970.",
        |recorder| Whole(recorder.segment_created_s.get()),
    ),
    Family::gauge("flatcap_segment_size_bytes", "What is in the open segment.", |recorder| {
        Whole(recorder.segment_bytes.get())
    }),
    Family::gauge("flatcap_segment_frames", "Frames in the open segment.", |recorder| {
        Whole(recorder.segment_frames.get())
    }),
];

/// The data directory's.
pub(super) const DIRECTORY: &[Family<DirectoryMetrics>] = &[
    Family::gauge("flatcap_data_used_bytes", "What the files of the data directory occupy.", |directory| {
        Whole(directory.bytes.get())
    }),
    Family::gauge(
        "flatcap_data_reserved_bytes",
        "Disk space reserved for segments to come (retain_min); part of what is used.",
        |directory| Whole(directory.reserved_bytes.get()),
    ),
    Family::gauge("flatcap_data_limit_bytes", "What they may occupy (retain_bytes).", |directory| {
        Whole(directory.bytes_max.get())
    }),
    Family::gauge(
        "flatcap_filesystem_free_bytes",
        "What is free in the data directory's file system.",
        |directory| Whole(directory.free_bytes.get()),
    ),
    Family::gauge(
        "flatcap_filesystem_keep_free_bytes",
        "What shall stay free in it (keep_free).",
        |directory| Whole(directory.keep_free_bytes.get()),
    ),
    Family::gauge("flatcap_filesystem_size_bytes", "The size of it.", |directory| {
        Whole(directory.total_bytes.get())
    }),
    Family::gauge(
        "flatcap_data_segments",
        "Closed segments in the data directory, with what was set aside of such.",
        |directory| Whole(directory.segments.get()),
    ),
    Family::gauge(
        "flatcap_data_oldest_timestamp_seconds",
        "When the oldest of them was begun, since 1970; 0 if there is none.",
        |directory| Whole(directory.oldest_created_s.get()),
    ),
    Family::counter(
        "flatcap_data_removed_files",
        "Files removed by this run to keep the limits.",
        |directory| Whole(directory.removed.get()),
    ),
];

/// The sealer's.
pub(super) const SEALER: &[Family<SealerMetrics>] = &[
    Family::gauge(
        "flatcap_seal_enabled",
        "1 while closed segments are rewritten as compressed blocks, else 0.",
        |sealer| Whole(sealer.enabled.get()),
    ),
    Family::counter("flatcap_seal_segments", "Closed segments rewritten as compressed blocks.", |sealer| {
        Whole(sealer.segments.get())
    }),
    Family::counter("flatcap_seal_raw_bytes", "What was in those.", |sealer| Whole(sealer.raw_bytes.get())),
    Family::counter("flatcap_seal_stored_bytes", "What they occupy since.", |sealer| {
        Whole(sealer.stored_bytes.get())
    }),
    Family::counter(
        "flatcap_seal_left_segments",
        "Closed segments left as they are: they would hardly become smaller, or something is wrong with them.",
        |sealer| Whole(sealer.left.get()),
    ),
    Family::counter("flatcap_seal_failures", "Times that rewriting a segment failed.", |sealer| {
        Whole(sealer.failures.get())
    }),
    Family::gauge(
        "flatcap_seal_waiting_segments",
        "Closed segments that are yet to be rewritten.",
        |sealer| Whole(sealer.waiting.get()),
    ),
    Family::gauge(
        "flatcap_seal_oldest_wait_seconds",
        "How long the oldest of those has waited; 0 if there is none.",
        |sealer| Real(seconds(sealer.oldest_wait_ns(monotonic_ns()))),
    ),
    Family::counter("flatcap_seal_cpu_seconds", "CPU time of compression, of all its threads.", |sealer| {
        Real(seconds(sealer.cpu_ns()))
    }),
    Family::counter(
        "flatcap_seal_guaranteed_cpu_seconds",
        "CPU time of compression with the guaranteed share, since segments had waited too long at idle priority.",
        |sealer| Real(seconds(sealer.guaranteed_cpu_ns.get())),
    ),
];

/// The agent's.
pub(super) const AGENT: &[Family<Metrics>] = &[
    Family::counter(
        "flatcap_storage_stalled_seconds",
        "How long such calls took, the one under way too.",
        |metrics| Real(seconds(metrics.stalled_ns(monotonic_ns()))),
    ),
    Family::gauge(
        "flatcap_source_cap_ratio",
        "What cpu_budget leaves each source, as a share of a core; 0 for no limit.",
        |metrics| Real(seconds(metrics.source_cap.get())),
    ),
    Family::gauge(
        "flatcap_run_dir_in_use",
        "1 if samples that are not written yet lie in run_dir and outlive a kill of the process, else 0.",
        |metrics| Whole(metrics.daemon.run_dir_in_use.get()),
    ),
    Family::counter("flatcap_config_reloads", "Reloads that were asked for and have ended.", |metrics| {
        Whole(metrics.daemon.reloads.get())
    }),
    Family::counter(
        "flatcap_config_reload_failures",
        "Those of them that changed nothing since something was wrong.",
        |metrics| Whole(metrics.daemon.reloads_failed.get()),
    ),
    Family::gauge(
        "flatcap_config_last_reload_successful",
        "1 if the configuration in effect is the one that was read last, else 0.",
        |metrics| Whole(metrics.daemon.config_current.get()),
    ),
    Family::gauge(
        "flatcap_config_fallback",
        "1 while the last good configuration is in effect since the one at the start was refused, else 0.",
        |metrics| Whole(metrics.daemon.config_fallback.get()),
    ),
    Family::gauge(
        "flatcap_config_last_reload_success_timestamp_seconds",
        "When the configuration in effect was read, since 1970.",
        |metrics| Whole(metrics.daemon.config_read_s.get()),
    ),
    Family::counter("flatcap_control_connections", "Connections taken by the control server.", |metrics| {
        Whole(metrics.control.connections.get())
    }),
    Family::gauge(
        "flatcap_control_connections_open",
        "Connections that are open, this one too.",
        |metrics| Whole(metrics.control.connections_open.get()),
    ),
    Family::counter(
        "flatcap_control_connections_timed_out",
        "Connections ended since the client was too slow.",
        |metrics| Whole(metrics.control.timed_out.get()),
    ),
    Family::counter(
        "flatcap_control_connections_displaced",
        "Connections ended since they had sent no request and a newer one needed the place.",
        |metrics| Whole(metrics.control.displaced.get()),
    ),
    Family::counter(
        "flatcap_control_pauses",
        "Times that nobody was taken for a while, since answering had taken its share of cpu_budget.",
        |metrics| Whole(metrics.control.pauses.get()),
    ),
    Family::counter("flatcap_control_requests", "Requests answered, refused ones too.", |metrics| {
        Whole(metrics.control.requests.get())
    }),
    Family::counter(
        "flatcap_control_requests_refused",
        "Requests refused, for whatever reason.",
        |metrics| Whole(metrics.control.refused.get()),
    ),
    Family::counter(
        "flatcap_log_lines_left_out",
        "Lines not logged since one place in the program had logged too often.",
        |metrics| Whole(metrics.log_lines_left_out.get()),
    ),
    Family::counter("flatcap_log_lines_lost", "Lines lost since nobody took them.", |metrics| {
        Whole(metrics.log_lines_lost.get())
    }),
    Family::gauge(
        "flatcap_wall_clock_timestamp_seconds",
        "The wall clock, since 1970: what the other times are measured by.",
        |_| Whole(now_s()),
    ),
];

/// The process's, by the names that all of Prometheus's clients use.
pub(super) const PROCESS: &[Family<Moment>] = &[
    Family::counter("process_cpu_seconds", "Time of all threads on processors.", |now| {
        Real(seconds(now.usage.cpu_ns))
    }),
    Family::gauge("process_resident_memory_bytes", "Resident memory.", |now| Whole(now.usage.resident_bytes)),
    Family::gauge("process_virtual_memory_bytes", "Mapped memory.", |now| Whole(now.usage.virtual_bytes)),
    Family::gauge("process_open_fds", "Open files.", |now| Whole(now.usage.open_files)),
    Family::gauge("process_max_fds", "How many there may be.", |now| Whole(now.usage.open_files_max)),
    Family::gauge("process_start_time_seconds", "When the run began, since 1970.", |now| {
        Real(wall_seconds(now.start_wall_ns))
    }),
];
