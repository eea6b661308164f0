//! Measures how late ticks begin. Budget at 1 kHz: `precise` 1.2 x a bare loop of `clock_nanosleep`
//! at p50 and p99; `spin` p50 1 us and p99 10 us for 10 % of a core.
//!
//! Runs the real program with one synthetic source; lateness is taken from the segments' footers.
//! Turns are short and medians are over turns, so other work on the machine affects both sides
//! alike. The bare loop has a timer slack of 1 ns and reads the clock when it wakes up.

use std::error::Error;

use flatcap_os::clock::{NS_PER_S, monotonic_ns};

use crate::numbers::{format_ns, median, quantile, range};
use crate::program::{Program, sleep_ns};
use crate::table::{BenchLength, CaptureRow};
use crate::{MeasuredRows, bare};

const PERIOD_NS: u64 = 1_000_000;
const SPIN: &str = "[group.fast]\ntiming = \"spin\"\n";
const PRECISE: &str = "[group.fast]\ntiming = \"precise\"\n";

/// One turn of the program.
struct LatenessTurn {
    p50_ns: f64,
    p99_ns: f64,
    core: f64, // CPU time of the sampler thread, in cores
}

fn turn(config: &str, duration_ns: u64) -> Result<LatenessTurn, Box<dyn Error>> {
    let program = Program::new()?;
    let running = program.record(config, &["synthetic@1ms".to_owned()])?;
    let sampler = running.thread("sampler-fast")?;
    sleep_ns(NS_PER_S / 5);
    let (begin, before) = (monotonic_ns(), running.cpu_ns(sampler)?);
    sleep_ns(duration_ns);
    let core = (running.cpu_ns(sampler)? - before) as f64 / (monotonic_ns() - begin) as f64;
    running.terminate(false)?;
    let sources = program.checked_info(false)?;
    let source = sources.first().ok_or("no source")?;
    Ok(LatenessTurn { p50_ns: source.lateness_p50_ns, p99_ns: source.lateness_p99_ns, core })
}

pub fn spin(length: BenchLength) -> MeasuredRows {
    let row = |what: &str, target: &str, reached: String, met, beside| CaptureRow {
        name: "spin",
        quantity: format!("`timing = \"spin\"` at 1 kHz: {what}"),
        target: target.to_owned(),
        reached,
        met,
        details: beside,
    };
    if !Program::new()?.accepts(SPIN)? {
        let target = "p50 <= 1 us, p99 <= 10 us, <= 10 % of a core";
        return Ok(vec![row("lateness", target, "not supported".to_owned(), None, String::new())]);
    }
    let (turns, duration_ns) = length.pick((15, 3 * NS_PER_S), (1, NS_PER_S));
    let mut all = Vec::new();
    for _ in 0..turns {
        all.push(turn(SPIN, duration_ns)?);
    }
    let of = |value: fn(&LatenessTurn) -> f64| {
        let values: Vec<f64> = all.iter().map(value).collect();
        (median(&values), range(&values))
    };
    let turns_range = |(lowest, highest): (f64, f64)| {
        format!("{} to {} in {turns} turns", format_ns(lowest), format_ns(highest))
    };
    let (p50, p50_range) = of(|turn| turn.p50_ns);
    let (p99, p99_range) = of(|turn| turn.p99_ns);
    let (core, (least, most)) = of(|turn| turn.core * 100.0);
    Ok(vec![
        row("lateness p50", "<= 1 us", format_ns(p50), Some(p50 <= 1e3), turns_range(p50_range)),
        row("lateness p99", "<= 10 us", format_ns(p99), Some(p99 <= 10e3), turns_range(p99_range)),
        row(
            "CPU time of its thread",
            "<= 10 % of a core",
            format!("{core:.1} %"),
            Some(core <= 10.0),
            format!("{least:.1} to {most:.1} %"),
        ),
    ])
}

pub fn precise(length: BenchLength) -> MeasuredRows {
    let (turns, duration_ns) = length.pick((15, 3 * NS_PER_S), (1, NS_PER_S));
    let (mut ours, mut alone) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut ratios = [Vec::new(), Vec::new()];
    let mut cores = Vec::new();
    for _ in 0..turns {
        let turn = turn(PRECISE, duration_ns)?;
        let mut bare = bare::tick(PERIOD_NS, duration_ns, || {})?;
        let pairs = [
            (turn.p50_ns, quantile(&mut bare.lateness, 0.5)),
            (turn.p99_ns, quantile(&mut bare.lateness, 0.99)),
        ];
        for (at, (our, bare)) in pairs.into_iter().enumerate() {
            ours[at].push(our);
            alone[at].push(bare);
            ratios[at].push(our / bare);
        }
        cores.push(turn.core * 100.0);
    }
    let row = |at: usize, what: &str| {
        let (ratio, (lowest, highest)) = (median(&ratios[at]), range(&ratios[at]));
        CaptureRow {
            name: "precise",
            quantity: format!(
                "`timing = \"precise\"` at 1 kHz: lateness {what} against a bare clock_nanosleep"
            ),
            target: "<= 1.2 x".to_owned(),
            reached: format!("{ratio:.2} x"),
            met: Some(ratio <= 1.2),
            details: format!(
                "{} against {}; {lowest:.2} to {highest:.2} x in {turns} turns; {:.1} % of a core",
                format_ns(median(&ours[at])),
                format_ns(median(&alone[at])),
                median(&cores)
            ),
        }
    };
    Ok(vec![row(0, "p50"), row(1, "p99")])
}
