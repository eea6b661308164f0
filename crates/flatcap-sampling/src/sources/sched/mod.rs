//! `sched`: all context switches and wakeups, and the begin and end of all threads, from the
//! kernel's rings (docs/ARCHITECTURE.md, "Scheduler, stacks and the kernel log").

mod cpu_rings;
mod event_batch;
mod switch_budget;
mod thread_table;
mod wakeup_tracepoint;

use std::io::{self, ErrorKind};
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::clock::{NS_PER_S, monotonic_ns, thread_cpu_ns};
use flatcap_os::host::HostFile;
use flatcap_os::perf_batch::SETTLE_NS;
use flatcap_tasks::PAYLOAD_NS_MAX;
use flatcap_tasks::schema::{SCHED, SCHED_ROOT};

use self::cpu_rings::{CpuRings, LIMITS};
use self::event_batch::{BuiltEvents, EventBatch, EventSpan, SampleState};
use self::switch_budget::{BudgetStep, STOP_NS, SwitchBudget};
use self::thread_table::ThreadTable;
use self::wakeup_tracepoint::WakeupTracepoint;
use super::core_list::{ONLINE, parse_core_list};
use super::perf_access::{PARANOID, denied, require_host_ids, require_short_period};
use super::ring_memory::RingSizes;
use super::{OpenContext, OwnKeys, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{Incomplete, OpenedSampler, OwnSettings, ReadError, Sampler, SchedConfig};

/// Interval between checks for CPUs that went online or offline.
const ONLINE_INTERVAL_NS: u64 = NS_PER_S;
/// CPU time that the kernel needs to record one switch (docs/BENCHMARKS.md, "Context switches").
/// The next constant is the CPU time for one wakeup.
const SWITCH_COST_NS: u64 = 1_000;
const WAKEUP_COST_NS: u64 = 500;

pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "sched",
    about: "Context switches, wakeups, and begin and end of threads.",
    root: SCHED_ROOT,
    schema: SCHED,
    files: &[PARANOID, ONLINE],
    // A frame contains the events of one period. A shorter period would cost more without adding
    // information, because each event has its own time.
    period: Duration::from_millis(10),
    refresh: "at each context switch; each event has its own time",
    needs: &["CAP_PERFMON"],
    hint: ": this kernel has no performance events (CONFIG_PERF_EVENTS)",
    keys: OwnKeys::Sched,
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let paranoid = host_file(context.host, PARANOID, SPEC.hint)?;
    let online = host_file(context.host, ONLINE, "")?;
    let OwnSettings::Sched(config) = context.settings.own else {
        return Err(Unavailable::of(ErrorKind::InvalidInput.into()));
    };
    require_host_ids(SPEC.name, context.host)?;
    require_short_period(context.settings.period)?;
    let mut numbers = Vec::new();
    parse_core_list(online.content(), &mut numbers);
    if numbers.is_empty() {
        return Err(Unavailable { file: ONLINE, error: ErrorKind::InvalidData.into(), hint: "" });
    }
    let tracepoint = if config.wakeups { WakeupTracepoint::find(context.host) } else { None };
    let number = tracepoint.map(|tracepoint| tracepoint.number);
    let rings = CpuRings::open(&numbers, number, config.ring).map_err(|error| {
        Unavailable::of(match error.kind() {
            ErrorKind::PermissionDenied => denied("recording", &error, paranoid.content()),
            kind => io::Error::new(kind, format!("cannot record context switches: {error}")),
        })
    })?;
    if config.wakeups && !rings.has_wakeups() {
        tracing::info!(
            source = "sched",
            "wakeups are not recorded: the number of sched:sched_waking is not known, or not allowed; pass it as the \
             credential sched_waking, as flatcap-scheduler.conf does"
        );
    }
    // Threads that begin after this time are in the rings.
    let opened_ns = monotonic_ns();
    let mut threads = ThreadTable::new();
    threads.add_existing(context.host).map_err(|error| Unavailable { file: "proc", error, hint: "" })?;
    Ok(OpenedSampler::built(SchedSampler {
        online,
        listed_content: Vec::new(),
        numbers,
        listed_ns: opened_ns,
        rings,
        batch: EventBatch::new(threads, tracepoint),
        budget: SwitchBudget::new(context.settings.budget, opened_ns),
        end_ns: opened_ns,
        read_ns: opened_ns,
        read_cpu_ns: 0,
    }))
}

/// Returns the sizes of the rings.
pub(super) fn ring_sizes(config: SchedConfig) -> RingSizes {
    let holders = ["rings of the kernel for sched", "copy of the rings of sched"];
    RingSizes { holders, ring_bytes: config.ring, limits: LIMITS }
}

#[derive(Debug)]
struct SchedSampler {
    online: HostFile,
    listed_content: Vec<u8>, // list of CPUs at the last update of the rings
    numbers: Vec<u32>,       // reused
    listed_ns: u64,
    rings: CpuRings,
    batch: EventBatch,
    budget: SwitchBudget,
    end_ns: u64, // end of the last sample
    read_ns: u64,
    read_cpu_ns: u64, // CPU time of the thread at `read_ns`
}

impl Sampler for SchedSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.read_ns = monotonic_ns();
        self.read_cpu_ns = thread_cpu_ns();
        self.rings.copy();
        if self.read_ns.saturating_sub(self.listed_ns) >= ONLINE_INTERVAL_NS {
            self.listed_ns = self.read_ns;
            self.online.read().map_err(|error| ReadError { file: ONLINE, error })?;
            let have_stopped = self.rings.close_stopped();
            let is_missing = self.rings.incomplete() != Incomplete::NONE;
            if have_stopped || is_missing || self.online.content() != self.listed_content {
                self.update_cpus();
            }
        }
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let begin_ns = self.end_ns;
        let until_ns = self.read_ns.saturating_sub(SETTLE_NS);
        self.rings.begin(begin_ns, until_ns.min(begin_ns.saturating_add(PAYLOAD_NS_MAX)));
        self.batch.begin();
        let Self { rings, batch, .. } = self;
        let (end_ns, malformed) = rings.take(|cpu, record| batch.add(cpu, record));
        self.batch.count_lost(malformed);
        let span = EventSpan { begin_ns, end_ns };
        self.end_ns = end_ns;
        let (stopped_ns, is_stopped) = self.budget.stopped(end_ns);
        let state = SampleState { span, has_wakeups: self.rings.has_wakeups(), stopped_ns, is_stopped };
        let built = self.batch.build(state, builder);
        if is_stopped {
            self.batch.forget_running();
        }
        self.spend(built);
        self.rings.incomplete() | built.incomplete
    }
}

impl SchedSampler {
    fn update_cpus(&mut self) {
        self.listed_content.clear();
        self.listed_content.extend_from_slice(self.online.content());
        if parse_core_list(&self.listed_content, &mut self.numbers) {
            self.rings.close_others(&self.numbers);
            // Threads that ran on a CPU whose ring was closed no longer run there.
            self.batch.keep_cpus(|cpu| self.rings.has(cpu));
            self.rings.open_missing(&self.numbers);
            // The set of rings may have changed, so the data is copied again.
            self.rings.copy();
        }
    }

    /// Charges the cost of the built events, and stops or resumes the recording of switches as the
    /// budget requires.
    fn spend(&mut self, built: BuiltEvents) {
        let own_ns = thread_cpu_ns().saturating_sub(self.read_cpu_ns);
        // A dropped record has the same cost as a recorded switch.
        let kernel_ns = (built.switches + built.dropped) * SWITCH_COST_NS + built.wakeups * WAKEUP_COST_NS;
        match self.budget.spend(monotonic_ns(), own_ns.saturating_add(kernel_ns)) {
            None => {}
            Some(BudgetStep::Stop { share, is_new }) => {
                self.rings.switch(false);
                if is_new {
                    let (percent, seconds) = (share / 100, STOP_NS / NS_PER_S);
                    tracing::warn!(
                        source = "sched",
                        "context switches cost {percent} % of a core, more than the budget of the source: they are not \
                         recorded for {seconds} s at a time"
                    );
                }
            }
            Some(BudgetStep::Resume) => self.rings.switch(true),
            Some(BudgetStep::Recovered) => {
                tracing::info!(source = "sched", "context switches are recorded again, within the budget");
            }
        }
    }
}
