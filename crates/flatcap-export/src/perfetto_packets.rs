//! The messages of Perfetto's trace format that an export contains. The numbers of their fields are
//! defined in `protos/perfetto/trace` of the Perfetto project.

/// `perfetto.protos.TracePacket`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TracePacket {
    #[prost(message, optional, tag = "1")]
    pub(crate) ftrace_events: Option<FtraceEventBundle>,
    #[prost(message, optional, tag = "2")]
    pub(crate) process_tree: Option<ProcessTree>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(crate) trusted_packet_sequence_id: Option<u32>,
    #[prost(uint32, optional, tag = "13")]
    pub(crate) sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "6")]
    pub(crate) clock_snapshot: Option<ClockSnapshot>,
    #[prost(message, optional, tag = "11")]
    pub(crate) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub(crate) interned_data: Option<InternedData>,
    #[prost(message, optional, tag = "59")]
    pub(crate) defaults: Option<TracePacketDefaults>,
    #[prost(message, optional, tag = "60")]
    pub(crate) track_descriptor: Option<TrackDescriptor>,
    #[prost(message, optional, tag = "66")]
    pub(crate) perf_sample: Option<PerfSample>,
}

/// `perfetto.protos.ClockSnapshot`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(crate) clocks: Vec<Clock>,
    #[prost(uint32, optional, tag = "2")]
    pub(crate) primary_trace_clock: Option<u32>,
}

/// `perfetto.protos.ClockSnapshot.Clock`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) timestamp: Option<u64>,
}

/// `perfetto.protos.TrackDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "3")]
    pub(crate) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "8")]
    pub(crate) counter: Option<CounterDescriptor>,
}

/// `perfetto.protos.ProcessDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(crate) process_name: Option<String>,
}

/// `perfetto.protos.CounterDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CounterDescriptor {
    #[prost(string, optional, tag = "6")]
    pub(crate) unit_name: Option<String>,
}

/// `perfetto.protos.TrackEvent`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TrackEvent {
    #[prost(int32, optional, tag = "9")]
    pub(crate) event_type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub(crate) name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub(crate) counter_value: Option<i64>,
    #[prost(double, optional, tag = "44")]
    pub(crate) double_counter_value: Option<f64>,
}

/// `TrackEvent.Type`.
pub(crate) const SLICE_BEGIN: i32 = 1;
pub(crate) const SLICE_END: i32 = 2;
pub(crate) const INSTANT: i32 = 3;
pub(crate) const COUNTER: i32 = 4;

/// `BuiltinClock`.
pub(crate) const CLOCK_REALTIME: u32 = 1;
pub(crate) const CLOCK_MONOTONIC: u32 = 3;
pub(crate) const CLOCK_BOOTTIME: u32 = 6;

/// `TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED`, which marks the first packet of a
/// sequence.
pub(crate) const SEQUENCE_BEGINS: u32 = 1;
/// Field number of `Trace.packet`, encoded as the key of a length-delimited field.
pub(crate) const PACKET_KEY: u8 = 0x0a;

/// `perfetto.protos.ProcessTree`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    pub(crate) processes: Vec<TraceProcess>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) threads: Vec<TraceThread>,
}

/// `perfetto.protos.ProcessTree.Process`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TraceProcess {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) cmdline: Vec<String>,
    #[prost(bool, optional, tag = "9")]
    pub(crate) cmdline_is_comm: Option<bool>,
}

/// `perfetto.protos.ProcessTree.Thread`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TraceThread {
    #[prost(int32, optional, tag = "1")]
    pub(crate) tid: Option<i32>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) tgid: Option<i32>,
}

/// `perfetto.protos.FtraceEventBundle`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct FtraceEventBundle {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) event: Vec<FtraceEvent>,
}

/// `perfetto.protos.FtraceEvent`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct FtraceEvent {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) timestamp: Option<u64>,
    /// The id of the thread that ran.
    #[prost(uint32, optional, tag = "2")]
    pub(crate) pid: Option<u32>,
    #[prost(message, optional, tag = "4")]
    pub(crate) sched_switch: Option<SchedSwitch>,
    #[prost(message, optional, tag = "20")]
    pub(crate) sched_waking: Option<SchedWaking>,
}

/// `perfetto.protos.SchedSwitchFtraceEvent`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SchedSwitch {
    #[prost(string, optional, tag = "1")]
    pub(crate) prev_comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) prev_pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) prev_prio: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    pub(crate) prev_state: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub(crate) next_comm: Option<String>,
    #[prost(int32, optional, tag = "6")]
    pub(crate) next_pid: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    pub(crate) next_prio: Option<i32>,
}

/// `perfetto.protos.SchedWakingFtraceEvent`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SchedWaking {
    #[prost(string, optional, tag = "1")]
    pub(crate) comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) prio: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) success: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    pub(crate) target_cpu: Option<i32>,
}

/// `perfetto.protos.PerfSample`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PerfSample {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) cpu: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    pub(crate) pid: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) tid: Option<u32>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) callstack_iid: Option<u64>,
    #[prost(int32, optional, tag = "5")]
    pub(crate) cpu_mode: Option<i32>,
}

/// `perfetto.protos.InternedData`, which contains the strings and stacks to which later packets
/// refer by number.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct InternedData {
    #[prost(message, repeated, tag = "5")]
    pub(crate) function_names: Vec<InternedString>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) frames: Vec<TraceFrame>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) callstacks: Vec<TraceCallstack>,
    #[prost(message, repeated, tag = "16")]
    pub(crate) build_ids: Vec<InternedString>,
    #[prost(message, repeated, tag = "17")]
    pub(crate) mapping_paths: Vec<InternedString>,
    #[prost(message, repeated, tag = "19")]
    pub(crate) mappings: Vec<TraceMapping>,
}

/// `perfetto.protos.InternedString`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct InternedString {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) str: Option<Vec<u8>>,
}

/// `perfetto.protos.Mapping`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TraceMapping {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) build_id: Option<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    pub(crate) path_string_ids: Vec<u64>,
}

/// `perfetto.protos.Frame`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TraceFrame {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) function_name_id: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) mapping_id: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) rel_pc: Option<u64>,
}

/// `perfetto.protos.Callstack`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TraceCallstack {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    /// The ids of the frames, the outermost frame first.
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub(crate) frame_ids: Vec<u64>,
}

/// `perfetto.protos.TracePacketDefaults`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TracePacketDefaults {
    #[prost(message, optional, tag = "12")]
    pub(crate) perf_sample_defaults: Option<PerfSampleDefaults>,
}

/// `perfetto.protos.PerfSampleDefaults`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PerfSampleDefaults {
    #[prost(message, optional, tag = "1")]
    pub(crate) timebase: Option<Timebase>,
}

/// `perfetto.protos.PerfEvents.Timebase`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Timebase {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) period: Option<u64>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) counter: Option<i32>,
}

/// `PerfEvents.Counter.SW_CPU_CLOCK`.
pub(crate) const SW_CPU_CLOCK: i32 = 1;
/// `Profiling.CpuMode`.
pub(crate) const MODE_KERNEL: i32 = 1;
pub(crate) const MODE_USER: i32 = 2;
/// `TracePacket.SequenceFlags.SEQ_NEEDS_INCREMENTAL_STATE`, which marks a packet that refers to
/// interned data.
pub(crate) const SEQUENCE_CONTINUES: u32 = 2;
