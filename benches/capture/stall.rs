//! Measures whether a disk that stalls for a minute affects the samplers. Budget: lateness p99
//! within 1.2 x of that before, no memory growth, and recorded + lost = begun.
//!
//! Lateness is measured in this process, since a stalled recorder does not write it and most frames
//! of that minute are lost. Group and recorder run here, six host sources at 1 kHz, on a storage
//! whose writes, preallocations and syncs wait during the stall; the group's histograms go to the
//! bench instead of the recorder. Memory and counts are measured on the real program, in which
//! `ptrace` stops only the recorder thread.

use std::error::Error;
use std::sync::Arc;

use flatcap::config::Config;
use flatcap_format::histogram::TotalHistogram;
use flatcap_metrics::{Consumer, GroupLatencies, SourceMetrics};
use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_os::host::HostRoot;
use flatcap_os::storage::DataDirectory;
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;
use flatcap_sampling::{GroupSource, OpenContext};
use flatcap_slab::OnFull;

use crate::hooked_storage::{HookedStorage, OperationKind};
use crate::numbers::format_ns;
use crate::pipeline::{Pipeline, ReadyGroup};
use crate::program::{Program, SOURCES, host_sources, sleep_ns};
use crate::table::{BenchLength, CaptureRow};
use crate::tracer::StoppedThread;
use crate::{MeasuredRows, machine};

const PERIOD_NS: u64 = 1_000_000;
/// A group publishes its histograms once a second: after this time they hold only newer values.
const PUBLISH_WAIT_NS: u64 = 2_200_000_000;
const PROBES: u64 = 10;

pub fn measure(length: BenchLength) -> MeasuredRows {
    let (calm_ns, stall_ns) = length.pick((30 * NS_PER_S, 60 * NS_PER_S), (NS_PER_S, 2 * NS_PER_S));
    let mut rows = vec![stalled_storage(calm_ns, stall_ns, length)?];
    rows.extend(stopped_recorder(calm_ns, stall_ns)?);
    Ok(rows)
}

/// Compares lateness before, during and after a stall of the storage.
fn stalled_storage(calm_ns: u64, stall_ns: u64, length: BenchLength) -> Result<CaptureRow, Box<dyn Error>> {
    let folder = machine::disk_folder()?;
    let open = Arc::new(WakeEvent::new());
    open.set();
    let storage = {
        let open = Arc::clone(&open);
        HookedStorage::new(Arc::new(DataDirectory::open(folder.path())?), move |kind| {
            if kind != OperationKind::Metadata {
                open.wait();
            }
        })
    };
    let mut pipeline = Pipeline::new(1, &SOURCES, PERIOD_NS, OnFull::DropNewest)?;
    let ReadyGroup { group, latencies, stop, .. } = pipeline.group(host_samplers()?)?;
    let recording = pipeline.record(Arc::new(storage), u64::MAX)?;
    let sampler = thread::spawn("sampler-fast", move || group.run())?;
    let before = lateness(&latencies, calm_ns);
    open.clear();
    let during = lateness(&latencies, stall_ns);
    open.set();
    let after = lateness(&latencies, calm_ns);
    stop.set();
    sampler.join().map_err(|_panic| "the sampler ended by a panic")?;
    let report = recording.finish()?;
    let lost: u64 = report.sources.iter().map(flatcap_recorder::SourceReport::lost).sum();
    let begun: u64 = report.sources.iter().map(|source| source.metrics.begun.get()).sum();
    if lost == 0 && length == BenchLength::Full {
        return Err("no samples were lost: the storage did not stall".into());
    }
    let [before, during, after] = [before, during, after].map(|total| total.summary());
    let ratio = during.p99_ns as f64 / before.p99_ns as f64;
    Ok(CaptureRow {
        name: "stall",
        quantity: format!("disk stalled for {} s: lateness p99 against before", stall_ns / NS_PER_S),
        target: "<= 1.2 x".to_owned(),
        reached: format!("{ratio:.2} x"),
        met: Some(ratio <= 1.2),
        details: format!(
            "p99 before {}, stalled {}, after {} (p50 {}, {}, {}); {lost} of {begun} samples lost, all reported",
            format_ns(before.p99_ns as f64),
            format_ns(during.p99_ns as f64),
            format_ns(after.p99_ns as f64),
            format_ns(before.p50_ns as f64),
            format_ns(during.p50_ns as f64),
            format_ns(after.p50_ns as f64)
        ),
    })
}

/// Collects the group's lateness for `duration_ns` from now.
fn lateness(latencies: &Consumer<GroupLatencies>, duration_ns: u64) -> TotalHistogram {
    // Discards values from before.
    sleep_ns(PUBLISH_WAIT_NS);
    latencies.drain(GroupLatencies::clear);
    let mut total = TotalHistogram::default();
    let end = monotonic_ns() + duration_ns.max(PUBLISH_WAIT_NS);
    while monotonic_ns() < end {
        sleep_ns(NS_PER_S / 2);
        latencies.drain(|interval| {
            interval.sources.iter().for_each(|source| source.lateness.add_to(&mut total));
            interval.clear();
        });
    }
    total
}

/// The six host sources, opened as in the daemon.
fn host_samplers() -> Result<Vec<GroupSource>, Box<dyn Error>> {
    let config = Config::default();
    let host = HostRoot::new("/");
    let mut sources = Vec::new();
    for (id, name) in (0..).zip(SOURCES) {
        let source = config.sources.iter().find(|source| source.spec.name == name);
        let source = source.ok_or("unknown source")?;
        let sampler = source.spec.open(&OpenContext { host: &host, settings: source.settings() })?;
        let metrics = Arc::new(SourceMetrics::new(name.to_owned(), PERIOD_NS));
        sources.push(GroupSource {
            id,
            period_ns: PERIOD_NS,
            budget: 10_000,
            sampler,
            offloaded: None,
            metrics,
        });
    }
    Ok(sources)
}

/// Measures memory and counts while the recorder thread is stopped.
fn stopped_recorder(calm_ns: u64, stall_ns: u64) -> Result<Vec<CaptureRow>, Box<dyn Error>> {
    let program = Program::new()?;
    let running = program.record("", &host_sources())?;
    let thread = running.thread("recorder")?;
    sleep_ns(calm_ns);
    let before = running.resident_bytes()?;
    let stopped = StoppedThread::stop(thread)?;
    let mut peak = 0;
    for _ in 0..PROBES {
        sleep_ns(stall_ns / PROBES);
        peak = peak.max(running.resident_bytes()?);
    }
    stopped.release();
    sleep_ns(calm_ns.min(3 * NS_PER_S));
    let after = running.resident_bytes()?;
    running.terminate(true)?;
    let sources = program.checked_info(true)?;
    let recorded: u64 = sources.iter().map(|source| source.recorded).sum();
    let lost: u64 = sources.iter().map(|source| source.lost).sum();
    let missed: u64 = sources.iter().map(|source| source.missed).sum();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let grown = mib(peak.max(after).saturating_sub(before));
    Ok(vec![
        CaptureRow {
            name: "stall",
            quantity: format!("recorder stopped for {} s: growth of the resident set", stall_ns / NS_PER_S),
            target: "<= 1 %".to_owned(),
            reached: format!("{:.2} MiB ({:.1} %)", grown, grown / mib(before) * 100.0),
            met: Some(grown <= mib(before) / 100.0),
            details: format!(
                "{:.2} MiB before, at most {:.2} while stopped, {:.2} after",
                mib(before),
                mib(peak),
                mib(after)
            ),
        },
        CaptureRow {
            name: "stall",
            quantity: format!("recorder stopped for {} s: recorded + lost = begun", stall_ns / NS_PER_S),
            target: "exactly".to_owned(),
            reached: format!("{recorded} + {lost} = {}", recorded + lost),
            met: Some(true),
            details: format!("the same by each source's sequence numbers; {missed} ticks missed"),
        },
    ])
}
