//! A recording of sixteen seconds with known values.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use flatbuffers::FlatBufferBuilder;
use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::segment::{
    Frames, Gap, Marker, MarkerOrigin, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter,
    SourceInfo, SourceKind,
};
use flatcap_format::storage::Storage;
use flatcap_os::storage::DataDirectory;
use flatcap_schemas::host::{
    Cgroup, CgroupArgs, CgroupCounters, CoreTimes, Cpu, CpuArgs, CpuTimes, Disk, DiskArgs, DiskCounters,
    InterfaceCounters, Network, NetworkArgs, Process, ProcessArgs, ProcessCounters,
};
use flatcap_stream::{ChecksumKind, SliceFramer};
use flatcap_tasks::schema;

pub(super) const START_NS: i64 = 1_700_000_000_000_000_000;
/// Monotonic time of the first tick.
// The host has already run for a while when the recording starts.
pub(super) const START_MONO_NS: u64 = 1_000_000_000_000;
/// Length of a tick, 10 ms.
pub(super) const TICK_NS: i64 = 10_000_000;
pub(super) const TICKS: u64 = 1600;
/// The tick of the sample in which the disk wrote 10 MiB more than in every other sample.
pub(super) const SPIKE: u64 = 1000;
/// Ticks whose cpu samples were lost.
pub(super) const LOST: std::ops::Range<u64> = 500..600;
/// Ticks during which the process `billing` uses all of one core.
pub(super) const BUSY: std::ops::Range<u64> = 1000..1100;
/// Tick at which a mark was written.
pub(super) const MARK: u64 = 1300;
/// A name with a color escape, a right-to-left override and a bell.
pub(super) const HOSTILE: &str = "\x1b[31m\u{202e}evil\x07";

const SOURCES: [(&str, &str, u64, &[u8]); 5] = [
    ("cpu", "flatcap.host.Cpu", 1, include_bytes!("../../../generated/host/cpu.bfbs")),
    ("disk", "flatcap.host.Disk", 1, include_bytes!("../../../generated/host/disk.bfbs")),
    ("network", "flatcap.host.Network", 1, include_bytes!("../../../generated/host/network.bfbs")),
    ("process", "flatcap.host.Process", 10, include_bytes!("../../../generated/host/process.bfbs")),
    ("cgroup", "flatcap.host.Cgroup", 100, include_bytes!("../../../generated/host/cgroup.bfbs")),
];

/// Returns the wall time of a tick.
pub(super) fn wall_ns(tick: u64) -> i64 {
    START_NS + tick.cast_signed() * TICK_NS
}

/// Returns the wall time of a monotonic time.
pub(super) fn wall_of(mono_ns: u64) -> i64 {
    START_NS + mono_ns.cast_signed() - START_MONO_NS.cast_signed()
}

fn mono_ns(tick: u64) -> u64 {
    START_MONO_NS + tick * TICK_NS.unsigned_abs()
}

pub(super) fn text<const N: usize>(text: &str) -> [u8; N] {
    std::array::from_fn(|at| text.as_bytes().get(at).copied().unwrap_or(0))
}

/// Writes a sample of two cores. The first core is busy half of the time.
fn cpu(tick: u64, builder: &mut FlatBufferBuilder<'_>) {
    let times = |user, idle| CpuTimes::new(user, 0, 0, idle, 0, 0, 0, 0, 0, 0);
    let busy = tick / 2;
    let cores = [CoreTimes::new(0, &times(busy, tick - busy)), CoreTimes::new(1, &times(0, tick))];
    let cores = Some(builder.create_vector(&cores));
    let total = times(busy, 2 * tick - busy);
    let args = CpuArgs { total: Some(&total), cores, running: 3, forks: 4 * tick, ..CpuArgs::default() };
    let root = Cpu::create(builder, &args);
    builder.finish_minimal(root);
}

/// Writes a sample of two disks. One disk is busy a tenth of the time and writes 100 KiB/s. The
/// other disk is idle.
fn disk(tick: u64, builder: &mut FlatBufferBuilder<'_>) {
    let mut devices = [DiskCounters([0; size_of::<DiskCounters>()]); 2];
    devices[0].set_name(&text("vda"));
    devices[0].set_writes(tick);
    devices[0].set_write_time(tick * 2);
    devices[0].set_io_time(tick);
    devices[0].set_sectors_written(tick * 2 + if tick >= SPIKE { 20_480 } else { 0 });
    devices[1].set_name(&text("vdb"));
    devices[1].set_minor(1);
    let devices = Some(builder.create_vector(&devices));
    let root = Disk::create(builder, &DiskArgs { devices });
    builder.finish_minimal(root);
}

/// Writes a sample of an interface that receives 1 MiB/s.
fn network(tick: u64, builder: &mut FlatBufferBuilder<'_>) {
    let mut interface = InterfaceCounters([0; size_of::<InterfaceCounters>()]);
    interface.set_name(&text("eth0"));
    interface.set_rx_bytes(tick * 1_048_576 / 100);
    interface.set_rx_packets(tick * 10);
    let interfaces = Some(builder.create_vector(&[interface]));
    let root = Network::create(builder, &NetworkArgs { interfaces });
    builder.finish_minimal(root);
}

/// Writes a sample of three processes. One process is busy a tenth of the time, one uses all of a
/// core for a second, and one has a hostile name.
fn process(tick: u64, builder: &mut FlatBufferBuilder<'_>) {
    let busy = tick.clamp(BUSY.start, BUSY.end) - BUSY.start;
    let all = [
        (10, "steady", "S", tick * 1_000_000, 50 << 20),
        (812, "billing", "R", busy * 10_000_000, 512 << 20),
        (666, HOSTILE, "S", 0, 1 << 20),
    ];
    let counters = all.map(|(pid, name, state, run_time, resident)| {
        // All fields that are not set below are absent.
        let mut counters = ProcessCounters([0xff; size_of::<ProcessCounters>()]);
        counters.set_pid(pid);
        counters.set_start(pid);
        counters.set_parent(1);
        counters.set_name(&text(name));
        counters.set_state(&text(state));
        counters.set_run_time(run_time);
        counters.set_resident_size(resident);
        counters
    });
    let processes = Some(builder.create_vector(&counters));
    let args = ProcessArgs {
        count: 3,
        processes,
        exits: Some(builder.create_vector::<flatcap_schemas::host::ProcessExit>(&[])),
        command_lines: Some(builder.create_vector::<flatcap_schemas::host::CommandLine>(&[])),
        groups: Some(builder.create_vector::<flatcap_schemas::host::ProcessGroup>(&[])),
        ..ProcessArgs::default()
    };
    let root = Process::create(builder, &args);
    builder.finish_minimal(root);
}

/// Writes a sample of two control groups: the root, and a service that uses half a core.
fn cgroup(tick: u64, builder: &mut FlatBufferBuilder<'_>) {
    let groups = [(1, "", 2), (7, "system.slice/db.service", 1)].map(|(id, path, part)| {
        let mut counters = CgroupCounters([0xff; size_of::<CgroupCounters>()]);
        counters.set_id(id);
        counters.set_path(&text(path));
        counters.set_cpu_usage(tick * 5_000 * part);
        counters.set_memory_current(part << 30);
        counters
    });
    let groups = Some(builder.create_vector(&groups));
    let root = Cgroup::create(builder, &CgroupArgs { count: 2, groups });
    builder.finish_minimal(root);
}

/// Returns the header of a segment that contains these sources. A source has a name, a root type, a
/// period in ticks, and a schema.
fn header(sources: &[(&str, &str, u64, &[u8])]) -> SegmentHeader {
    let clocks = ClockReading { mono_ns: START_MONO_NS, boot_ns: START_MONO_NS, wall_ns: START_NS };
    let source = |(id, (name, root, ticks, schema)): (usize, &(&str, &str, u64, &[u8]))| SourceInfo {
        id: u16::try_from(id).unwrap(),
        name: (*name).into(),
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: ticks * TICK_NS.unsigned_abs(),
        root: (*root).into(),
        schema: schema.to_vec(),
        next_seq: 0,
    };
    SegmentHeader {
        segment: 1,
        run_id: 1,
        host: HostName { name: "db1".into(), machine_id: None, boot_id: None, labels: Vec::new() },
        agent_version: "0".into(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: 0,
        sources: sources.iter().enumerate().map(source).collect(),
        clock_table: vec![clocks],
        recorder_pid: 0,
    }
}

/// Begins the first segment of a recording.
fn create(storage: &dyn Storage, sources: &[(&str, &str, u64, &[u8])]) -> SegmentWriter {
    let created_s = START_NS / 1_000_000_000;
    let name = SegmentName { number: 1, created_s, run_id: 1, state: SealState::Active };
    SegmentWriter::create(storage, name, header(sources), &[], 0).unwrap()
}

/// Writes the recording into a directory.
pub(super) fn write_recording(folder: &Path) {
    let mut recording = GrowingRecording::begin(folder);
    recording.grow(TICKS);
    recording.seal();
}

/// A recording that is being written.
pub(super) struct GrowingRecording {
    storage: Arc<dyn Storage>,
    writer: SegmentWriter,
    /// The next tick to write.
    tick: u64,
}

impl GrowingRecording {
    pub(super) fn begin(folder: &Path) -> Self {
        let storage = Arc::new(DataDirectory::open(folder).unwrap()) as Arc<dyn Storage>;
        let writer = create(&*storage, &SOURCES);
        Self { storage, writer, tick: 0 }
    }

    /// Writes all ticks before `until`.
    pub(super) fn grow(&mut self, until: u64) {
        let from = std::mem::replace(&mut self.tick, until);
        (from..until).for_each(|tick| write_tick(&mut self.writer, tick));
    }

    pub(super) fn seal(self) {
        self.writer.seal().unwrap().publish(&*self.storage).unwrap();
    }
}

fn write_tick(writer: &mut SegmentWriter, tick: u64) {
    if tick == MARK {
        let text = "deploy 1.2.3 \x1b[2J".to_owned();
        let marker =
            Marker { mono_ns: mono_ns(tick), wall_ns: wall_ns(tick), origin: MarkerOrigin::Person, text };
        writer.append_marker(&marker).unwrap();
    }
    if tick == LOST.end {
        let gap = Gap {
            source: 0,
            first: LOST.start,
            count: LOST.end - LOST.start,
            causes: 1,
            after_mono_ns: mono_ns(LOST.start - 1),
            before_mono_ns: mono_ns(LOST.end),
        };
        writer.append_gaps(&[gap]).unwrap();
    }
    for (id, (_, _, ticks, _)) in SOURCES.iter().enumerate() {
        let is_lost = id == 0 && LOST.contains(&tick);
        if tick.is_multiple_of(*ticks) && !is_lost {
            append(writer, u16::try_from(id).unwrap(), tick, tick / ticks);
        }
    }
}

fn append(writer: &mut SegmentWriter, source: u16, tick: u64, seq: u64) {
    let mut builder = FlatBufferBuilder::new();
    let build = [cpu, disk, network, process, cgroup][usize::from(source)];
    build(tick, &mut builder);
    append_payload(writer, source, (mono_ns(tick), seq), builder.finished_data());
}

/// Appends a sample that was read at a monotonic time.
fn append_payload(writer: &mut SegmentWriter, source: u16, (mono_ns, seq): (u64, u64), payload: &[u8]) {
    let mut body = payload.to_vec();
    body.resize(body.len().next_multiple_of(8), 0);
    let wall_ns = wall_of(mono_ns);
    let mut frame = vec![0; ENVELOPE_BYTES + body.len()];
    let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 0 };
    Envelope::new(source).write(&mut frame, &stamp, &body);
    let head = ChecksumKind::Xxh3.header(&frame).unwrap();
    let mut pieces = [IoSlice::new(head.as_bytes()), IoSlice::new(&frame)];
    writer.append(Frames { pieces: &mut pieces, headers: &[head.as_bytes()], count: 1 }).unwrap();
    writer.count_samples(source, 1, SampleSpan::of(seq, mono_ns, wall_ns));
}

/// The counters of a sample of the source `cpu`, as differences from the previous sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuCounts {
    pub(super) after_ns: u64,
    /// Number of lost samples between the previous sample and this sample.
    pub(super) lost: u64,
    /// Number of running tasks.
    pub(super) running: u32,
    /// New tasks, and the busy and idle time of the first core in jiffies. The second core is busy
    /// for one jiffy per new task, and is idle for the jiffies in which the first core is busy.
    pub(super) grown: [u64; 3],
}

/// A recording of the source `cpu` that is being written.
pub(super) struct CpuRecording {
    writer: SegmentWriter,
    mono_ns: u64,
    seq: u64,
    counts: [u64; 3],
}

impl CpuRecording {
    pub(super) fn begin(folder: &Path) -> Self {
        let storage = Arc::new(DataDirectory::open(folder).unwrap()) as Arc<dyn Storage>;
        let writer = create(&*storage, &SOURCES[..1]);
        Self { writer, mono_ns: START_MONO_NS, seq: 0, counts: [0; 3] }
    }

    /// Writes further samples.
    pub(super) fn grow(&mut self, samples: &[CpuCounts]) {
        for own in samples {
            let before_ns = self.mono_ns;
            self.mono_ns += own.after_ns;
            if own.lost > 0 && self.seq > 0 {
                let (first, count) = (self.seq, own.lost);
                let (after_mono_ns, before_mono_ns) = (before_ns, self.mono_ns);
                let gap = Gap { source: 0, first, count, causes: 1, after_mono_ns, before_mono_ns };
                self.writer.append_gaps(&[gap]).unwrap();
                self.seq += own.lost;
            }
            self.counts.iter_mut().zip(own.grown).for_each(|(count, grown)| *count += grown);
            let [forks, busy, idle] = self.counts;
            let times = |user, idle| CpuTimes::new(user, 0, 0, idle, 0, 0, 0, 0, 0, 0);
            let mut builder = FlatBufferBuilder::new();
            let cores = [CoreTimes::new(0, &times(busy, idle)), CoreTimes::new(1, &times(forks, busy))];
            let cores = Some(builder.create_vector(&cores));
            let total = times(busy, idle);
            let args = CpuArgs {
                total: Some(&total),
                cores,
                running: own.running.into(),
                forks,
                ..CpuArgs::default()
            };
            let root = Cpu::create(&mut builder, &args);
            builder.finish_minimal(root);
            append_payload(&mut self.writer, 0, (self.mono_ns, self.seq), builder.finished_data());
            self.seq += 1;
        }
    }
}

/// A sample of the scheduler source: its sequence number, the time when it was read, and its
/// payload.
pub(super) type SchedSample = (u64, u64, Vec<u8>);

/// Writes a recording of the cpu source and of these scheduler samples. Samples whose numbers are
/// missing are treated as lost.
pub(super) fn write_sched(folder: &Path, samples: &[SchedSample]) {
    let storage = Arc::new(DataDirectory::open(folder).unwrap()) as Arc<dyn Storage>;
    let sched = ("sched", schema::SCHED_ROOT, 1, schema::SCHED);
    let mut writer = create(&*storage, &[SOURCES[0], sched]);
    let (mut tick, mut next_seq, mut before_ns) = (0, 0, 0);
    for (seq, read_ns, payload) in samples {
        while mono_ns(tick) < *read_ns {
            append(&mut writer, 0, tick, tick);
            tick += 1;
        }
        if *seq > next_seq {
            let (first, count) = (next_seq, seq - next_seq);
            let (after_mono_ns, before_mono_ns) = (before_ns, *read_ns);
            let gap = Gap { source: 1, first, count, causes: 1, after_mono_ns, before_mono_ns };
            writer.append_gaps(&[gap]).unwrap();
        }
        append_payload(&mut writer, 1, (*read_ns, *seq), payload);
        (next_seq, before_ns) = (seq + 1, *read_ns);
    }
    writer.seal().unwrap().publish(&*storage).unwrap();
}

/// A source of a recording that [`write_sources`] writes.
pub(super) struct TestSource {
    pub(super) name: &'static str,
    pub(super) root: &'static str,
    pub(super) schema: &'static [u8],
    pub(super) labels: Vec<(String, String)>,
}

/// Writes a recording in which each source has the given number of samples, one every `ticks`
/// ticks. `payload` returns the payload of a sample, given the sample's source and sequence number.
pub(super) fn write_sources(
    folder: &Path,
    (samples, ticks): (u64, u64),
    sources: &[TestSource],
    mut payload: impl FnMut(usize, u64) -> Vec<u8>,
) {
    let storage = Arc::new(DataDirectory::open(folder).unwrap()) as Arc<dyn Storage>;
    let shapes: Vec<_> = sources.iter().map(|own| (own.name, own.root, ticks, own.schema)).collect();
    let mut header = header(&shapes);
    for (info, source) in header.sources.iter_mut().zip(sources) {
        info.labels.clone_from(&source.labels);
    }
    let created_s = START_NS / 1_000_000_000;
    let name = SegmentName { number: 1, created_s, run_id: 1, state: SealState::Active };
    let mut writer = SegmentWriter::create(&*storage, name, header, &[], 0).unwrap();
    for seq in 0..samples {
        for source in 0..sources.len() {
            let sample = (mono_ns(seq * ticks), seq);
            append_payload(&mut writer, u16::try_from(source).unwrap(), sample, &payload(source, seq));
        }
    }
    writer.seal().unwrap().publish(&*storage).unwrap();
}
