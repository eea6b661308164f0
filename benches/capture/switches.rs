//! Measures what recording context switches costs. Budget: 1.1 us of CPU time for each switch while
//! `sched` is armed; during 100,000 switches a second for a minute, `sched` within its own budget
//! and lateness p99 of a sampler within 1.2 times.
//!
//! Two threads on one CPU exchange bytes by pipes, as `perf bench sched pipe` does, so that each
//! switch has a wakeup. The cost is the CPU time of both by their own clocks, with a recorder and
//! without in turns. Needs `CAP_PERFMON`.

use std::error::Error;
use std::io::{Read, Write};
use std::thread;

use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
use flatcap_os::clock::{NS_PER_S, monotonic_ns, thread_cpu_ns};
use flatcap_os::thread::pin_to_cpus;
use flatcap_tasks::{CpuHistory, Interval, RecordingFaults, SchedBatch, Timeline, TimelineObserver};

use crate::MeasuredRows;
use crate::numbers::{format_ns, median, range};
use crate::program::{Program, RunningRecorder, TIMEOUT_NS, sleep_ns};
use crate::table::{BenchLength, CaptureRow};

type Failure = Box<dyn Error + Send + Sync>;

const COST_TARGET_NS: f64 = 1_100.0;
const LATENESS_TARGET: f64 = 1.2;
/// Switches a second in the row of a flood.
const FLOOD_RATE: u64 = 100_000;
const NS_PER_MS: u64 = 1_000_000;
/// Room for the kernel's rings of many CPUs, and a budget that ends no turn of the cost.
const UNLIMITED: &str = "[recorder]\nmemory_max = \"512MiB\"\ncpu_budget = \"1000%\"\n\
                         [compress]\nenabled = false\n[source.sched]\nbudget = \"100%\"\n";
const ARMED: &str = "mode = \"armed\"\n[blackbox]\nwindow = \"10s\"\n";
/// Tables of `UNLIMITED` are continued by these; none: no recorder.
const COST_CONFIGS: [(&str, Option<(&str, &str)>); 5] = [
    ("without a recorder", None),
    ("always, wakeups = false", Some(("wakeups = false\n", ""))),
    ("armed, wakeups = false", Some(("wakeups = false\n", ARMED))),
    ("always", Some(("", ""))),
    ("armed", Some(("", ARMED))),
];

const DEFAULT_BUDGET: &str = "[recorder]\nmemory_max = \"512MiB\"\n";
/// Recorders during a flood of switches; `None`: without `sched`.
const FLOOD_CONFIGS: [(&str, Option<&str>); 3] = [
    ("without `sched`", None),
    ("with it", Some(DEFAULT_BUDGET)),
    ("with it and no budget", Some(UNLIMITED)),
];

/// The CPU time and switches of two threads that exchanged bytes.
#[derive(Debug, Clone, Copy, Default)]
struct ExchangeUse {
    switches: u64,
    cpu_ns: u64,
}

/// Exchanges bytes on CPU 0 for a while, at most `per_ms` switches in each millisecond.
fn exchange(duration_ns: u64, per_ms: Option<u64>) -> Result<ExchangeUse, Box<dyn Error>> {
    let (there, back) = (std::io::pipe()?, std::io::pipe()?);
    let (mut first_in, mut first_out) = (back.0, there.1);
    let (mut second_in, mut second_out) = (there.0, back.1);
    let first = move || -> Result<ExchangeUse, Failure> {
        pin_to_cpus(&[0])?;
        let (begin, before) = (monotonic_ns(), thread_cpu_ns());
        let mut round_trips = 0_u64;
        loop {
            let now = monotonic_ns();
            if now >= begin + duration_ns {
                break;
            }
            // A round trip has two switches.
            if per_ms.is_some_and(|per_ms| round_trips * 2 >= (now - begin) / NS_PER_MS * per_ms + per_ms) {
                sleep_ns(NS_PER_MS - (now - begin) % NS_PER_MS);
                continue;
            }
            first_out.write_all(&[0])?;
            first_in.read_exact(&mut [0])?;
            round_trips += 1;
        }
        Ok(ExchangeUse { switches: round_trips * 2, cpu_ns: thread_cpu_ns() - before })
    };
    let second = move || -> Result<u64, Failure> {
        pin_to_cpus(&[0])?;
        let before = thread_cpu_ns();
        // Ends when the first one drops its side.
        while second_in.read(&mut [0])? == 1 {
            second_out.write_all(&[0])?;
        }
        Ok(thread_cpu_ns() - before)
    };
    thread::scope(|scope| {
        let second = scope.spawn(second);
        let first = scope.spawn(first);
        let of_first = first.join().map_err(|_| "the first thread panicked")?;
        let of_second = second.join().map_err(|_| "the second thread panicked")?;
        let (mut used, other_ns) = (of_first.map_err(as_error)?, of_second.map_err(as_error)?);
        used.cpu_ns += other_ns;
        Ok(used)
    })
}

fn as_error(error: Failure) -> Box<dyn Error> {
    error
}

/// Starts a recorder, and waits until all of its sources record. Returns `None` if the recorder may
/// not record switches on this host, so that `sched` is absent.
fn recorder(
    program: &Program,
    config: &str,
    sources: &[String],
) -> Result<Option<RunningRecorder>, Box<dyn Error>> {
    let running = program.record(config, sources)?;
    let deadline = monotonic_ns() + TIMEOUT_NS;
    while monotonic_ns() < deadline {
        sleep_ns(100 * NS_PER_MS);
        let status = program.status().unwrap_or_default();
        let Some(running_sources) = status["sources"].as_array() else { continue };
        if running_sources.len() < sources.len() {
            return Ok(None);
        }
        if running_sources.iter().all(|source| source["begun"].as_u64().is_some_and(|begun| begun > 0)) {
            return Ok(Some(running));
        }
    }
    Err("the recorder did not begin".into())
}

fn row(name: &'static str, quantity: &str, target: &str) -> CaptureRow {
    CaptureRow {
        name,
        quantity: quantity.to_owned(),
        target: target.to_owned(),
        reached: "not permitted: needs CAP_PERFMON".to_owned(),
        met: None,
        details: String::new(),
    }
}

/// Measures the cost of one switch with each configuration.
pub fn cost(length: BenchLength) -> MeasuredRows {
    let (turns, turn_ns) = length.pick((15, 1_500 * NS_PER_MS), (1, 50 * NS_PER_MS));
    // A recorder does not start without any source.
    let sources = ["load@1s".to_owned(), "sched@10ms".to_owned()];
    let mut costs = [const { Vec::new() }; COST_CONFIGS.len()];
    for _ in 0..turns {
        for ((_, config), costs) in COST_CONFIGS.iter().zip(&mut costs) {
            let program = Program::new()?;
            let running = match config {
                None => None,
                Some((of_source, others)) => {
                    let config = format!("{UNLIMITED}{of_source}{others}");
                    let running = recorder(&program, &config, &sources)?;
                    if running.is_none() {
                        return Ok(vec![row(
                            "switch-cost",
                            "a context switch",
                            "<= 1.1 us more while armed",
                        )]);
                    }
                    running
                }
            };
            let used = exchange(turn_ns, None)?;
            costs.push(used.cpu_ns as f64 / used.switches.max(1) as f64);
            if let Some(running) = running {
                running.terminate(true)?;
            }
        }
    }
    let base = median(&costs[0]);
    let rows = COST_CONFIGS.iter().zip(&costs).map(|((name, config), costs)| {
        let (least, most) = range(costs);
        let (is_armed, more) = (config.is_some_and(|(_, others)| others == ARMED), median(costs) - base);
        CaptureRow {
            reached: match config {
                None => format_ns(base),
                Some(_) => format!("{} more", format_ns(more)),
            },
            met: is_armed.then_some(more <= COST_TARGET_NS),
            details: format!(
                "{} ({} to {}) in {turns} turns",
                format_ns(median(costs)),
                format_ns(least),
                format_ns(most)
            ),
            ..row(
                "switch-cost",
                &format!("CPU time of a switch with its wakeup: {name}"),
                if is_armed { "<= 1.1 us more" } else { "" },
            )
        }
    });
    Ok(rows.collect())
}

/// One turn during many switches.
struct FloodTurn {
    lateness_p99_ns: f64,
    switches_per_s: f64,
    core: f64,               // CPU time of the recorder, in cores
    faults: RecordingFaults, // of what `sched` recorded
}

/// The missing switches that a recording reports.
fn faults(program: &Program) -> Result<RecordingFaults, Box<dyn Error>> {
    struct Ignored;
    impl TimelineObserver for Ignored {
        fn interval(&mut self, _: &Interval, _: &CpuHistory) {}
    }
    let mut timeline = Timeline::new();
    let filter = ReplayFilter { sources: ["sched".to_owned()].into(), ..ReplayFilter::default() };
    let mut reader = MergedReader::open(&[program.data()], filter)?;
    while let Some(item) = reader.next()? {
        if let ReplayItem::Sample(sample) = item {
            timeline.add(sample.telemetry.seq, &SchedBatch::read(sample.telemetry.payload)?, &mut Ignored);
        }
    }
    Ok(timeline.faults())
}

fn flood_turn(config: Option<&str>, turn_ns: u64) -> Result<Option<FloodTurn>, Box<dyn Error>> {
    let program = Program::new()?;
    let sources: Vec<String> = ["cpu@1ms", "sched@10ms"].map(str::to_owned).into();
    let (sources, config) = match config {
        Some(config) => (&sources[..], config),
        None => (&sources[..1], ""),
    };
    let Some(running) = recorder(&program, config, sources)? else { return Ok(None) };
    let (begin, before) = (monotonic_ns(), running.coarse_cpu_ns()?);
    let used = exchange(turn_ns, Some(FLOOD_RATE / 1_000))?;
    let elapsed_ns = (monotonic_ns() - begin) as f64;
    let core = (running.coarse_cpu_ns()? - before) as f64 / elapsed_ns;
    running.terminate(true)?;
    let source = program.checked_info(true)?;
    let faults = if sources.len() > 1 { faults(&program)? } else { RecordingFaults::default() };
    let lateness_p99_ns = source.first().ok_or("no source")?.lateness_p99_ns;
    let switches_per_s = used.switches as f64 * 1e9 / elapsed_ns;
    Ok(Some(FloodTurn { lateness_p99_ns, switches_per_s, core, faults }))
}

/// Measures the lateness of a sampler during 100,000 switches a second, the CPU time of `sched`
/// with its budget, and its cost without one.
pub fn flood(length: BenchLength) -> MeasuredRows {
    let (turns, turn_ns) = length.pick((3, 60 * NS_PER_S), (1, NS_PER_S / 2));
    let target = format!("lateness p99 within {LATENESS_TARGET} x");
    let what = "100,000 switches a second beside `cpu@1ms`";
    let mut all = [const { Vec::new() }; FLOOD_CONFIGS.len()];
    for _ in 0..turns {
        for ((_, config), turns) in FLOOD_CONFIGS.iter().zip(&mut all) {
            let Some(turn) = flood_turn(*config, turn_ns)? else {
                return Ok(vec![row("switch-flood", what, &target)]);
            };
            turns.push(turn);
        }
    }
    let of = |turns: &[FloodTurn], value: fn(&FloodTurn) -> f64| {
        let values: Vec<f64> = turns.iter().map(value).collect();
        (median(&values), range(&values))
    };
    let (base, _) = of(&all[0], |turn| turn.lateness_p99_ns);
    let rows = FLOOD_CONFIGS.iter().zip(&all).map(|((name, config), turns)| {
        let (late, (least, most)) = of(turns, |turn| turn.lateness_p99_ns);
        let (core, _) = of(turns, |turn| turn.core);
        let (rate, _) = of(turns, |turn| turn.switches_per_s);
        let (stopped_ns, _) = of(turns, |turn| turn.faults.stopped_ns as f64);
        let lost: u64 = turns.iter().map(|turn| turn.faults.lost).sum();
        let is_judged = *config == Some(DEFAULT_BUDGET);
        CaptureRow {
            reached: format!("{:.2} x", late / base),
            met: is_judged.then_some(late <= base * LATENESS_TARGET),
            details: format!(
                "{} ({} to {}); recorder {:.1} % of a core; {rate:.0} switches/s; stopped for {} of {}; {lost} events \
                 lost in {turns} turns",
                format_ns(late),
                format_ns(least),
                format_ns(most),
                core * 100.0,
                format_ns(stopped_ns),
                format_ns(turn_ns as f64),
                turns = turns.len(),
            ),
            ..row("switch-flood", &format!("{what}: {name}"), if is_judged { &target } else { "" })
        }
    });
    Ok(rows.collect())
}
