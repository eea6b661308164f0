//! The keys of the tables of sources, both the keys that all sources have and the keys that only
//! some sources have.

use std::path::PathBuf;
use std::time::Duration;

use flatcap_os::keyword::Keyword as _;
use flatcap_sampling::{
    BatchMode, CgroupConfig, CommandLines, CommandSpec, OwnKeys, PerfConfig, PerfEvent, ProcessConfig,
    ProcessRank, ProfileConfig, SchedConfig, SourceSpec, SyntheticConfig, SyntheticLayout, TextOrigin,
    TextSource, ValueFormat,
};
use flatcap_text::quantity::CpuShare;

use super::expected_value::ExpectedValue::{
    self, AbsolutePath, Command, CpuShare as Percent, Duration as Time, Expression as AnyExpression, Flag,
    Number, Patterns, Processes, Size,
};
use super::key::{Key, Keyed, keys};
use super::limits::{KIB, MIB, MS, SECOND, US};
use super::setting::variants;
use super::source::SourceConfig;

impl Keyed for SourceConfig {
    fn keys(&self) -> Vec<&'static Key<Self>> {
        COMMON.iter().chain(own_keys(self.spec.keys).into_iter().flatten()).collect()
    }
}

/// Returns the keys that only some sources have.
fn own_keys(keys: OwnKeys) -> [&'static [Key<SourceConfig>]; 2] {
    match keys {
        OwnKeys::None => [&[], &[]],
        OwnKeys::Synthetic => [SYNTHETIC, &[]],
        OwnKeys::Process => [PROCESS, &[]],
        OwnKeys::Cgroup => [CGROUP, &[]],
        OwnKeys::Perf => [PERF, &[]],
        OwnKeys::Sched => [SCHED, BATCHES],
        OwnKeys::Profile => [PROFILE, BATCHES],
        OwnKeys::Batches => [BATCHES, &[]],
        OwnKeys::File => [FILE, TEXT],
        OwnKeys::Command => [COMMAND, TEXT],
    }
}

/// Events that show whether processors stall. Bare-metal hosts have all of them, virtual machines
/// the last four.
const PERF_EVENTS: [PerfEvent; 9] = [
    PerfEvent::Cycles,
    PerfEvent::Instructions,
    PerfEvent::CacheReferences,
    PerfEvent::CacheMisses,
    PerfEvent::BranchMisses,
    PerfEvent::ContextSwitches,
    PerfEvent::CpuMigrations,
    PerfEvent::PageFaults,
    PerfEvent::TaskClock,
];

/// Returns a source with its default settings. If the source is an instance, its required keys are
/// not set.
pub(super) fn by_default(spec: &'static SourceSpec) -> SourceConfig {
    // The file that defines a command is known only after the layers are merged. The timeout is
    // half of the default period of a command.
    let command = CommandSpec { argv: Vec::new(), timeout: Duration::from_secs(5), defined_in: None };
    let text = |origin| Some(TextSource { origin, format: ValueFormat::Pairs });
    SourceConfig {
        spec,
        instance: None,
        enabled: spec.is_on_by_default,
        period: spec.period,
        required: false,
        // The budget is ten times the cost of any default source. vmstat at 1 kHz takes 2 %, and a
        // sample that is preempted by another task is measured as longer than it was. Generated
        // values have the budget of a whole core, because their purpose is to load the recorder.
        budget: match spec.keys {
            OwnKeys::Synthetic => CpuShare::WHOLE,
            _ => CpuShare::of_basis_points(1_000),
        },
        include: Vec::new(),
        exclude: Vec::new(),
        // The default layout is the smallest frame, because it shows the cost per frame. The seed
        // is fixed, so that two runs produce the same values.
        synthetic: (spec.keys == OwnKeys::Synthetic)
            .then_some(SyntheticConfig { shape: SyntheticLayout::Point, seed: 0 }),
        // All processes are recorded, because a recording without the process in question is
        // useless. The rank is CPU time, because operators ask about it first. Command lines and
        // groups are recorded, because `explain` names processes by them. A command line may
        // contain a password, which is removed.
        process: (spec.keys == OwnKeys::Process).then(|| ProcessConfig {
            users: Vec::new(),
            cgroups: Vec::new(),
            // Within a second, all exits of processes are reported, and the memory of idle
            // processes hardly changes.
            full_interval: Duration::from_secs(1),
            // A few processes of a host do most of its work. Reading 24 processes every 100 ms
            // costs 0.5 % of a core.
            busiest: 20,
            top: 0,
            by: ProcessRank::Cpu,
            command_lines: CommandLines::Scrubbed,
            cgroup_paths: true,
        }),
        // This depth includes slices, services, and the groups that a service manager or container
        // runtime creates below them.
        cgroup: (spec.keys == OwnKeys::Cgroup).then_some(CgroupConfig { depth: 8 }),
        perf: (spec.keys == OwnKeys::Perf)
            .then(|| PerfConfig { events: PERF_EVENTS.to_vec(), processes: Vec::new() }),
        // Without wakeups, it is not known which threads waited for a processor after a sleep. The
        // ring of 2 MiB holds 32,000 switches. At 50,000 switches per second on one CPU, the
        // group's thread may be 0.6 s late before the ring is full.
        sched: (spec.keys == OwnKeys::Sched).then_some(SchedConfig { wakeups: true, ring: 2 << 20 }),
        // The frequency is not 100. At 100, an event that occurs at each tick of the kernel would
        // be in every call chain or in none.
        profile: (spec.keys == OwnKeys::Profile).then_some(ProfileConfig { frequency: 99 }),
        // Events are always recorded by default, because there may be no ring.
        mode: matches!(spec.keys, OwnKeys::Sched | OwnKeys::Profile | OwnKeys::Batches)
            .then_some(BatchMode::Always),
        text_source: match spec.keys {
            OwnKeys::File => text(TextOrigin::File(PathBuf::new())),
            OwnKeys::Command => text(TextOrigin::Command(command)),
            _ => None,
        },
    }
}

/// Returns an instance whose required keys are not yet set.
pub(super) fn instance(spec: &'static SourceSpec, name: String) -> SourceConfig {
    SourceConfig { instance: Some(name), ..by_default(spec) }
}

keys! {
    pub(super) const COMMON of SourceConfig;

    /// Whether the source is read.
    enabled: Flag, Reload, |source| Some(&mut source.enabled);

    /// Time from one sample to the next.
    // If a sample takes a few microseconds, 20,000 samples per second are possible. For a period of
    // more than an hour, use cron. All sources have the same range, because all sources share one
    // scheduler.
    period: Time(50 * US..=60 * 60 * SECOND), Reload,
        |source| Some(&mut source.period);

    /// Whether flatcap refuses to start if this host lacks the source.
    required: Flag, Reload, |source| Some(&mut source.required);

    /// Share of one core that reading may use. Above it, the recorder reads the source only at
    /// every second tick, at every third, and so on. The source sched instead records no switches
    /// for 10s.
    // Budgets are counted in hundredths of a percent. The maximum is one core, because one thread
    // reads a source.
    budget: Percent(1..=10_000), Reload, |source| Some(&mut source.budget);

    /// Which devices, interfaces or lines to record; [] for all of them. Shell patterns for the
    /// whole name: * is any text (also with /), ? one character, [a-c] a set, {a,b} alternatives.
    include: Patterns, Reload, |source| Some(&mut source.include);

    /// Which devices, interfaces or lines not to record, even if `include` matches them.
    exclude: Patterns, Reload, |source| Some(&mut source.exclude);
}

keys! {
    const SYNTHETIC of SourceConfig;

    /// Layout of a sample, a few values or many.
    shape: variants::<SyntheticLayout>(), Reload,
        |source| Some(&mut source.synthetic.as_mut()?.shape);

    /// Count of 64-bit values.
    // 4,096 values are 32 KiB, half of the smallest `frame_max`.
    fields: Number(1..=4096), Reload,
        |source| match &mut source.synthetic.as_mut()?.shape {
            SyntheticLayout::Wide { fields, .. } => Some(fields),
            SyntheticLayout::Point => None,
        },
        only_with("shape", "wide", Some("64"));

    /// Bytes of padding after the values.
    // The maximum is many times larger than a slab of the default size.
    payload: Size(0..=MIB), Reload,
        |source| match &mut source.synthetic.as_mut()?.shape {
            SyntheticLayout::Wide { payload_bytes, .. } => Some(payload_bytes),
            SyntheticLayout::Point => None,
        },
        only_with("shape", "wide", Some("\"0B\""));

    /// The same seed gives the same values.
    // The largest integer of TOML has 63 bits.
    seed: Number(0..=i64::MAX.unsigned_abs()), Reload, |source| Some(&mut source.synthetic.as_mut()?.seed);
}

keys! {
    const PROCESS of SourceConfig;

    /// Users whose processes are recorded, by name or id; [] for all users.
    users: Patterns, Reload, |source| Some(&mut source.process.as_mut()?.users);

    /// Control groups whose processes are recorded, such as "/system.slice/*"; [] for all groups.
    cgroups: Patterns, Reload, |source| Some(&mut source.process.as_mut()?.cgroups);

    /// Interval at which all processes are read. Samples in between contain only the processes that
    /// have run since their last entry or wait, and the count of skipped processes.
    full_interval: Time(50 * US..=60 * 60 * SECOND), Reload,
        |source| Some(&mut source.process.as_mut()?.full_interval);

    /// Number of processes with the most CPU time since the last full sample, and of those with the
    /// most I/O, that are read between two full samples if the recorder cannot read CPU clocks.
    busiest: Number(0..=16_384), Reload, |source| Some(&mut source.process.as_mut()?.busiest);

    /// Number of recorded processes. They are the top ones by the key "by". 0 for all processes.
    // With command lines, more processes do not fit into a frame of the default `frame_max`.
    top: Number(0..=16_384), Reload, |source| Some(&mut source.process.as_mut()?.top);

    /// Property by which processes are ranked for `top`. CPU time and I/O are counted since the
    /// previous sample.
    by: ExpectedValue::keyword::<ProcessRank>(), Reload, |source| Some(&mut source.process.as_mut()?.by);

    /// Form in which command lines are recorded, at the begin of a process and once a minute. With
    /// scrubbed, parts that may be passwords, tokens or keys are replaced by ***. With full, they
    /// are recorded.
    command_lines: ExpectedValue::keyword::<CommandLines>(), Reload, |source| Some(&mut source.process.as_mut()?.command_lines);

    /// Whether the path of each process's control group is recorded, at the begin of a process and
    /// once a minute.
    cgroup_paths: Flag, Reload, |source| Some(&mut source.process.as_mut()?.cgroup_paths);
}

keys! {
    const CGROUP of SourceConfig;

    /// Number of levels of control groups that are recorded below the root of the tree. 0 for the
    /// root alone.
    // Nobody creates trees of more than 64 levels on purpose.
    depth: Number(0..=64), Reload, |source| Some(&mut source.cgroup.as_mut()?.depth);
}

keys! {
    const PERF of SourceConfig;

    /// Events that are counted on each processor; events that this host lacks are skipped.
    events: ExpectedValue::Keywords(PerfEvent::keywords()), Reload, |source| Some(&mut source.perf.as_mut()?.events);

    /// Processes whose events are also counted separately, while the processes run.
    processes: Processes, Reload, |source| Some(&mut source.perf.as_mut()?.processes);
}

keys! {
    const SCHED of SourceConfig;

    /// Whether wakeups are recorded, if this host allows it. Wakeups show whether a task slept or
    /// waited for a CPU.
    wakeups: Flag, Reload, |source| Some(&mut source.sched.as_mut()?.wakeups);

    /// Memory in which the kernel collects the events of one processor, rounded up to a power of
    /// two.
    // The longest event takes 64 KiB, so the ring must be larger. A ring of more than 64 MiB
    // outlasts any stall of a group.
    ring: Size(128 * KIB..=64 * MIB), Reload, |source| Some(&mut source.sched.as_mut()?.ring);
}

keys! {
    const PROFILE of SourceConfig;

    /// Call chains per second of processor time.
    // Each call chain costs some microseconds, and a thousand call chains a second are as
    // informative as ten thousand.
    frequency: Number(1..=999), Reload, |source| Some(&mut source.profile.as_mut()?.frequency);
}

keys! {
    const BATCHES of SourceConfig;

    /// Where events are recorded, in the data directory (always), or only in the ring of
    /// [blackbox], so that snapshots have them (armed).
    mode: ExpectedValue::keyword::<BatchMode>(), Reload, |source| source.mode.as_mut();
}

keys! {
    const FILE of SourceConfig;

    /// Absolute path of the file, without "..".
    path: AbsolutePath, Reload,
        |source| match &mut source.text_source.as_mut()?.origin {
            TextOrigin::File(path) => Some(path),
            TextOrigin::Command(_) => None,
        },
        required();
}

keys! {
    const COMMAND of SourceConfig;

    /// The program and its arguments.
    command: Command, Reload,
        |source| Some(&mut command_mut(source)?.argv),
        required();

    /// Maximum run time of the program. After this time, the program is killed together with its
    /// process group.
    // Starting a program may take as long as the minimum. A result later than the maximum is
    // useless.
    timeout: Time(10 * MS..=60 * SECOND), Reload,
        |source| Some(&mut command_mut(source)?.timeout);
}

keys! {
    const TEXT of SourceConfig;

    /// How values are found in the text: in each line a name and a number (pairs), wherever the
    /// pattern matches (regex), or by a known format (prometheus, json).
    format: variants::<ValueFormat>(), Reload, |source| Some(&mut source.text_source.as_mut()?.format);

    /// Regular expression that captures a value and optionally its name.
    pattern: AnyExpression, Reload,
        |source| match &mut source.text_source.as_mut()?.format {
            ValueFormat::Regex(expression) => Some(expression),
            ValueFormat::Pairs | ValueFormat::Prometheus | ValueFormat::Json => None,
        },
        only_with("format", "regex", None),
        required();
}

fn command_mut(source: &mut SourceConfig) -> Option<&mut CommandSpec> {
    match &mut source.text_source.as_mut()?.origin {
        TextOrigin::Command(command) => Some(command),
        TextOrigin::File(_) => None,
    }
}
