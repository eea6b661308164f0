//! Judges the source `sched` by threads whose behaviour is known: what a recording says of the time
//! that each ran, was ready and slept must agree with its own clocks and with the kernel's account
//! (`/proc/PID/task/TID/schedstat`), and, with `--perf`, with `perf sched timehist` on the same
//! stretch.
//!
//! Clocks and events mark the boundary of an interval at different places of a context switch,
//! which takes microseconds with events, and a host that is virtual loses time to others, which the
//! thread's clock leaves out. So the sums of a stretch differ by so much for each switch, and what
//! is judged is the difference per switch.
//!
//! `cargo bench --bench scheduler -- --help` lists the options. Needs `CAP_PERFMON`, and
//! `CAP_SYS_NICE` for the priority inversion.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    unnameable_types,
    reason = "a bench sleeps and prints"
)]

mod perf_sched;
mod recorded;
mod workload;

use std::error::Error;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use rustix::process::{Pid, Signal, kill_process};

use perf_sched::PerfRecording;
use workload::{ThreadAccount, WORKLOADS, Workload};

/// Judges the source `sched` by threads whose behaviour is known.
///
/// Ends with 1 if a time differs by more than the limit.
#[derive(Debug, Parser)]
#[command(name = "scheduler")]
struct Options {
    /// Largest difference, in microseconds per switch.
    #[arg(long, default_value_t = 20.0, value_name = "US")]
    limit: f64,
    /// How often each workload runs.
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Compare with `perf sched timehist`, too.
    #[arg(long)]
    perf: bool,
}

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let options = Options::parse_from(std::env::args_os().filter(|argument| argument != "--bench"));
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("scheduler: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all times agree.
fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let mut accounts: Vec<(&Workload, ThreadAccount)> = Vec::new();
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_flatcap"))
        .args(["record", "--quiet", "--source", "sched@10ms", "--data-dir"])
        .arg(&data)
        .env("RUNTIME_DIRECTORY", folder.path())
        // The rings of a hundred CPUs fit.
        .env("FLATCAP_RECORDER__MEMORY_MAX", "256MiB")
        .stdin(Stdio::null())
        .spawn()?;
    let perf = options.perf.then(|| PerfRecording::start(folder.path())).transpose()?;
    // Both have begun by then.
    std::thread::sleep(Duration::from_secs(2));
    for _ in 0..options.runs {
        for workload in WORKLOADS {
            accounts.extend((workload.run)()?.into_iter().map(|account| (workload, account)));
        }
    }
    // Events that are not older than the sampler's cut-off are in the next sample.
    std::thread::sleep(Duration::from_millis(200));
    let perf = perf.map(PerfRecording::end).transpose()?;
    end(&mut recorder)?;
    let of_threads = recorded::times(&data, accounts.iter().map(|(_, account)| account))?;
    println!("times in ms; what the recording has more than the clocks, in us per switch");
    println!(
        "{:<23}{:<15}{:>8}{:>8}{:>8}{:>9}{:>6}{:>6}{:>6}{:>6}",
        "workload", "thread", "running", "ready", "asleep", "switches", "d-run", "d-rdy", "d-slp", "d-prf"
    );
    let mut is_right = true;
    for ((workload, account), times) in accounts.iter().zip(&of_threads) {
        #[allow(clippy::cast_precision_loss, reason = "some seconds, thousands of switches")]
        let per_switch = |one_ns: u64, other_ns: u64| {
            (one_ns as f64 - other_ns as f64) / 1e3 / (times.switches + 1) as f64
        };
        let by_clocks = [
            per_switch(times.on_cpu_ns, account.running_ns),
            per_switch(times.ready_ns, account.ready_ns),
            per_switch(times.sleeping_ns, account.sleeping_ns()),
        ];
        let judged = if workload.wakes_idle_cpus { &by_clocks[..1] } else { &by_clocks };
        let perf_ns = perf.as_ref().map(|perf| perf.running_ns(account)).transpose()?;
        // perf(1) takes a thread to run from the last switch of its CPU on. If the kernel hides
        // that switch, perf contradicts the thread's own clock, and cannot be used to judge the
        // recording.
        let perf_ns =
            perf_ns.filter(|perf_ns| per_switch(*perf_ns, account.running_ns).abs() <= options.limit);
        let by_perf = perf_ns.map(|perf_ns| per_switch(times.on_cpu_ns, perf_ns));
        is_right &= judged.iter().chain(&by_perf).all(|us| us.abs() <= options.limit);
        let ms = |ns: u64| ns / 1_000_000;
        let (running, ready, asleep) = (ms(times.on_cpu_ns), ms(times.ready_ns), ms(times.sleeping_ns));
        print!("{:<23}{:<15}", workload.name, account.name);
        print!("{running:>8}{ready:>8}{asleep:>8}{:>9}", times.switches);
        for us in &by_clocks {
            print!("{us:>+6.1}");
        }
        println!("{:>6}", by_perf.map_or("-".to_owned(), |us| format!("{us:+.1}")));
    }
    println!("limit {} us per switch: {}", options.limit, if is_right { "kept" } else { "exceeded" });
    Ok(is_right)
}

/// Ends the recorder, and waits for it.
fn end(recorder: &mut Child) -> Result<(), Box<dyn Error>> {
    kill_process(Pid::from_child(recorder), Signal::INT)?;
    let status = recorder.wait()?;
    if status.success() { Ok(()) } else { Err(format!("the recorder ended with {status}").into()) }
}
