//! Measures the cost of sampling beyond the kernel's own work. Budget: the sampler threads at most
//! 1.25 x a bare loop that reads the same files at the same rate, the whole process at most 1.5 x,
//! and less than 10 % of a core.
//!
//! {cpu, memory, vmstat, disk, network, pressure} at 1 kHz, in turns with the bare loop: absolute
//! deadlines, a timer slack of 1 ns as with `precise`, one `pread` per file into a buffer that
//! holds all of it. CPU time is the scheduler's, user and system, over the middle of each turn.
//! Medians.
//!
//! `cargo bench --bench sources_cost`

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flatcap::cli::{self, ExitStatus};
use flatcap_os::{clock, thread, wake_event};
use flatcap_rivals::segments::median;

const TURNS: usize = 7;
const PERIOD_NS: u64 = 1_000_000;
const SETTLING: Duration = Duration::from_millis(1500);
const MEASURED: Duration = Duration::from_secs(3);
const SOURCES: [&str; 6] = ["cpu", "memory", "vmstat", "disk", "network", "pressure"];
const FILES: [&str; 9] = [
    "stat",
    "meminfo",
    "vmstat",
    "diskstats",
    "net/dev",
    "pressure/cpu",
    "pressure/memory",
    "pressure/io",
    "pressure/irq",
];

/// CPU time of this process's threads whose names have one of these prefixes, in nanoseconds
/// (/proc/PID/task/TID/schedstat).
fn spent_ns(prefixes: &[&str]) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs");
    let tasks = tasks.map(|task| task.expect("procfs").path());
    tasks
        .filter_map(|task| {
            let name = std::fs::read_to_string(task.join("comm")).ok()?;
            let spent = std::fs::read_to_string(task.join("schedstat")).ok()?;
            let is_meant = prefixes.iter().any(|prefix| name.starts_with(prefix));
            is_meant.then(|| spent.split(' ').next()?.parse::<u64>().ok())?
        })
        .sum()
}

/// Runs `body` and returns the CPU time of groups of threads during it, as shares of a core.
fn measured<const GROUPS: usize>(groups: [&[&str]; GROUPS], body: impl FnOnce() + Send) -> [f64; GROUPS] {
    std::thread::scope(|scope| {
        let running = scope.spawn(body);
        std::thread::sleep(SETTLING);
        let (begin, before) = (Instant::now(), groups.map(spent_ns));
        std::thread::sleep(MEASURED);
        let (elapsed, after) = (begin.elapsed().as_nanos() as f64, groups.map(spent_ns));
        running.join().expect("no panic");
        let mut shares = [0.0; GROUPS];
        for ((share, after), before) in shares.iter_mut().zip(after).zip(before) {
            *share = (after - before) as f64 / elapsed * 100.0;
        }
        shares
    })
}

fn record(folder: &std::path::Path) {
    let config = folder.join("cost.toml");
    std::fs::write(&config, "[group.fast]\ntiming = \"precise\"\n").expect("a disk");
    let sources = SOURCES.iter().flat_map(|name| ["--source".to_owned(), format!("{name}@1ms")]);
    let seconds = (SETTLING + MEASURED).as_millis() + 500;
    let arguments = ["flatcap".to_owned(), "record".to_owned(), "--quiet".to_owned()]
        .into_iter()
        .chain(["--config".to_owned(), config.display().to_string()])
        .chain(["--data-dir".to_owned(), folder.join("data").display().to_string()])
        .chain(["--for".to_owned(), format!("{seconds}ms")])
        .chain(sources);
    let outcome = cli::run(arguments.map(Into::into), &mut Vec::new());
    assert_eq!(outcome, ExitStatus::Done);
}

fn read_alone(stop: &AtomicBool) {
    std::fs::write("/proc/thread-self/comm", "bare").expect("procfs");
    thread::set_min_timer_slack().expect("Linux");
    let files: Vec<File> = FILES.iter().filter_map(|name| File::open(format!("/proc/{name}")).ok()).collect();
    let mut buffer = vec![0; 256 << 10];
    let never = wake_event::WakeEvent::new();
    let mut next = clock::monotonic_ns();
    while !stop.load(Ordering::Relaxed) {
        next += PERIOD_NS;
        never.wait_until(next);
        for file in &files {
            let bytes = file.read_at(&mut buffer, 0).expect("procfs");
            std::hint::black_box(&buffer[..bytes]);
        }
    }
}

fn main() {
    let folder = tempfile::tempdir().expect("a disk");
    let (mut bare, mut samplers, mut process) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sampler_ratios, mut process_ratios) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let all = ["sampler-", "recorder", "syncer", "signals", "recovery", "record"];
        let [sampler, whole] = measured([&all[..1], &all], || record(folder.path()));
        let stop = AtomicBool::new(false);
        let [alone] = measured([&["bare"]], || {
            std::thread::scope(|scope| {
                scope.spawn(|| read_alone(&stop));
                std::thread::sleep(SETTLING + MEASURED + Duration::from_millis(300));
                stop.store(true, Ordering::Relaxed);
            });
        });
        sampler_ratios.push(sampler / alone);
        process_ratios.push(whole / alone);
        bare.push(alone);
        samplers.push(sampler);
        process.push(whole);
    }
    println!("{:>28} {:>12} {:>10}   (medians of {TURNS} turns)", "", "of a core", "of bare");
    println!("{:>28} {:>11.2}%", "bare loop of preads", median(&mut bare));
    let rows = [("sampler threads", samplers, sampler_ratios), ("whole process", process, process_ratios)];
    for (name, mut share, mut ratio) in rows {
        println!("{name:>28} {:>11.2}% {:>9.2}x", median(&mut share), median(&mut ratio));
    }
}
