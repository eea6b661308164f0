//! Does a disk that stands still for a minute change anything for the samplers? Budget: lateness p99 within 1.2 x of what it was
//! before, no more memory, and recorded + lost is what was begun.
//!
//! Lateness is measured in this process: while the recorder stands still nobody writes it down, and most frames of that minute are
//! given up. So group and recorder run here, six host sources at 1 kHz, on a storage whose every write, reservation and sync
//! waits while the disk is stalled; the group's histograms come to the bench instead of the recorder. Memory and counts are those of the real
//! program, whose recorder thread alone is held by `ptrace`.

use std::error::Error;
use std::io::{self, IoSlice};
use std::sync::Arc;

use flatcap::config::Config;
use flatcap::metrics::{Consumer, GroupLatencies, SourceMetrics, Total};
use flatcap::os::clock::{NS_PER_S, monotonic_ns};
use flatcap::os::event::Event;
use flatcap::os::host::HostRoot;
use flatcap::os::storage::{Attributes, DataDirectory, Entry, ReadAt, Space, Storage, StorageFile};
use flatcap::os::thread;
use flatcap::sampling::GroupSource;
use flatcap::sampling::sources::{CATALOG, Opening};
use flatcap::slab::OnFull;

use crate::lines::{Lines, ReadyGroup};
use crate::numbers::time;
use crate::program::{Program, SOURCES, host_sources, pause};
use crate::table::{Length, Row};
use crate::tracer::Held;
use crate::{Measured, machine};

const PERIOD_NS: u64 = 1_000_000;
/// A group publishes once a second: after so long only what came since is in its histograms.
const TURN_OVER_NS: u64 = 2_200_000_000;
const PROBES: u64 = 10;

pub fn measure(length: Length) -> Measured {
    let (calm_ns, stall_ns) = length.of((30 * NS_PER_S, 60 * NS_PER_S), (NS_PER_S, 2 * NS_PER_S));
    let mut rows = vec![stalled_storage(calm_ns, stall_ns, length)?];
    rows.extend(held_recorder(calm_ns, stall_ns)?);
    Ok(rows)
}

/// Lateness before, during and after.
fn stalled_storage(calm_ns: u64, stall_ns: u64, length: Length) -> Result<Row, Box<dyn Error>> {
    let folder = machine::disk_folder()?;
    let open = Arc::new(Event::new());
    open.set();
    let storage = Stalling { inner: Arc::new(DataDirectory::open(folder.path())?), open: Arc::clone(&open) };
    let mut lines = Lines::new(1, &SOURCES, PERIOD_NS, OnFull::DropNewest)?;
    let ReadyGroup { group, latencies, stop, .. } = lines.group(host_samplers()?)?;
    let recording = lines.record(Arc::new(storage), u64::MAX)?;
    let sampler = thread::spawn("sampler-fast", move || group.run())?;
    let before = lateness(&latencies, calm_ns);
    open.clear();
    let during = lateness(&latencies, stall_ns);
    open.set();
    let after = lateness(&latencies, calm_ns);
    stop.set();
    sampler.join().map_err(|_panic| "the sampler ended by a panic")?;
    let report = recording.finish()?;
    let lost: u64 = report.sources.iter().map(|source| source.lost).sum();
    let begun: u64 = report.sources.iter().map(|source| source.begun).sum();
    if lost == 0 && length == Length::Full {
        return Err("nothing was lost: the storage was not stalled".into());
    }
    let [before, during, after] = [before, during, after].map(|total| total.summary());
    let ratio = during.p99_ns as f64 / before.p99_ns as f64;
    Ok(Row {
        name: "stall",
        what: format!("disk stalled for {} s: lateness p99 beside before", stall_ns / NS_PER_S),
        target: "<= 1.2 x".to_owned(),
        reached: format!("{ratio:.2} x"),
        met: Some(ratio <= 1.2),
        beside: format!(
            "p99 before {}, stalled {}, after {} (p50 {}, {}, {}); of {begun} readings {lost} lost, all accounted for",
            time(before.p99_ns as f64),
            time(during.p99_ns as f64),
            time(after.p99_ns as f64),
            time(before.p50_ns as f64),
            time(during.p50_ns as f64),
            time(after.p50_ns as f64)
        ),
    })
}

/// What the group measures from now on, for so long.
fn lateness(latencies: &Consumer<GroupLatencies>, duration_ns: u64) -> Total {
    // What was measured under what went before goes.
    pause(TURN_OVER_NS);
    latencies.drain(GroupLatencies::clear);
    let mut total = Total::default();
    let end = monotonic_ns() + duration_ns.max(TURN_OVER_NS);
    while monotonic_ns() < end {
        pause(NS_PER_S / 2);
        latencies.drain(|interval| {
            interval.sources.iter().for_each(|source| total.add(&source.lateness));
            interval.clear();
        });
    }
    total
}

/// The six host sources, opened as the daemon does.
fn host_samplers() -> Result<Vec<GroupSource>, Box<dyn Error>> {
    let config = Config::default();
    let host = HostRoot::new("/");
    let mut sources = Vec::new();
    for (id, name) in (0..).zip(SOURCES) {
        let entry = CATALOG.iter().find(|entry| entry.name == name).ok_or("an unknown source")?;
        let source = config.sources.iter().find(|source| source.name.as_str() == name);
        let opening = Opening { host: &host, config: source.ok_or("an unknown source")? };
        let sampler = (entry.open)(&opening)?;
        let metrics = Arc::new(SourceMetrics::new(name.to_owned(), PERIOD_NS));
        sources.push(GroupSource {
            id,
            period_ns: PERIOD_NS,
            budget: 10_000,
            sampler,
            errand: None,
            metrics,
        });
    }
    Ok(sources)
}

/// Memory and counts.
fn held_recorder(calm_ns: u64, stall_ns: u64) -> Result<Vec<Row>, Box<dyn Error>> {
    let program = Program::new()?;
    let running = program.record("", &host_sources())?;
    let thread = running.thread("recorder")?;
    pause(calm_ns);
    let before = running.resident_bytes()?;
    let held = Held::hold(thread)?;
    let mut most = 0;
    for _ in 0..PROBES {
        pause(stall_ns / PROBES);
        most = most.max(running.resident_bytes()?);
    }
    held.release();
    pause(calm_ns.min(3 * NS_PER_S));
    let after = running.resident_bytes()?;
    running.terminate(true)?;
    let sources = program.balanced_info(true)?;
    let recorded: u64 = sources.iter().map(|source| source.recorded).sum();
    let lost: u64 = sources.iter().map(|source| source.lost).sum();
    let missed: u64 = sources.iter().map(|source| source.missed).sum();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let grown = mib(most.max(after).saturating_sub(before));
    Ok(vec![
        Row {
            name: "stall",
            what: format!("recorder held for {} s: growth of the resident set", stall_ns / NS_PER_S),
            target: "<= 1 %".to_owned(),
            reached: format!("{:.2} MiB ({:.1} %)", grown, grown / mib(before) * 100.0),
            met: Some(grown <= mib(before) / 100.0),
            beside: format!(
                "{:.2} MiB before, {:.2} at most while held, {:.2} after",
                mib(before),
                mib(most),
                mib(after)
            ),
        },
        Row {
            name: "stall",
            what: format!("recorder held for {} s: recorded + lost = begun", stall_ns / NS_PER_S),
            target: "exactly".to_owned(),
            reached: format!("{recorded} + {lost} = {}", recorded + lost),
            met: Some(true),
            beside: format!("each source's numbers say the same; {missed} ticks missed"),
        },
    ])
}

/// A storage that can be stalled: what writes, reserves or syncs waits until the event is set.
#[derive(Debug)]
struct Stalling {
    inner: Arc<dyn Storage>,
    open: Arc<Event>,
}

#[derive(Debug)]
struct StallingFile {
    inner: Arc<dyn StorageFile>,
    open: Arc<Event>,
}

impl Stalling {
    fn file(&self, inner: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(StallingFile { inner, open: Arc::clone(&self.open) })
    }
}

impl Storage for Stalling {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.open.wait();
        Ok(self.file(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.open.wait();
        Ok(self.file(self.inner.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.open.wait();
        self.inner.rename(from, to)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.open.wait();
        self.inner.exchange(one, other)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.open.wait();
        self.inner.replace(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.open.wait();
        self.inner.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.open.wait();
        self.inner.sync_directory()
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        self.inner.entries()
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }
}

impl ReadAt for StallingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }
}

impl StorageFile for StallingFile {
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.open.wait();
        self.inner.append(slices)
    }

    fn preallocate(&self, end: u64) -> io::Result<()> {
        self.open.wait();
        self.inner.preallocate(end)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.open.wait();
        self.inner.truncate(length)
    }

    fn allocated(&self) -> io::Result<u64> {
        self.inner.allocated()
    }

    fn attributes(&self) -> io::Result<Attributes> {
        self.inner.attributes()
    }

    fn set_attributes(&self, attributes: &Attributes) -> io::Result<()> {
        self.inner.set_attributes(attributes)
    }

    fn sync(&self) -> io::Result<()> {
        self.open.wait();
        self.inner.sync()
    }
}
