//! Steady state does not allocate: a counting allocator around a warm sampler thread and its slabs,
//! and around the decoding of its samples.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "an allocator is an unsafe trait; a test says what it expects by failing"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use flatcap::config::Config;
use flatcap_format::frame::Builders;
use flatcap_format::schema::{CompiledSchema, FieldValue, PathStep, Visitor};
use flatcap_metrics::{GroupLatencies, Metrics, SourceMetrics, exchange};
use flatcap_os::clock::monotonic_ns;
use flatcap_os::host::HostRoot;
use flatcap_os::wake_event::WakeEvent;
use flatcap_sampling::sources::self_source::SelfSampler;
use flatcap_sampling::sources::synthetic::SyntheticSampler;
use flatcap_sampling::sources::{CATALOG, find};
use flatcap_sampling::{
    CommandReceiver, GroupName, GroupSettings, GroupSource, OpenContext, OpenedSampler, SamplerGroup,
    SourceOpener, SourceSpec, Unavailable,
};
use flatcap_slab::{
    Arena, Geometry, LossLedger, OnFull, SlabPool, SlabProducer, SlabProducerSettings, slab_queue,
};
use flatcap_stream::ChecksumKind;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct CountingAllocator;

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread-local
// without a destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`, which is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System` through `alloc` or `realloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the pointer came from `System` through `alloc` or `realloc` above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Opens a source of the host in this directory with its default configuration.
fn open(entry: &SourceSpec, root: &Path) -> Result<OpenedSampler, Unavailable> {
    let expression = "format = \"regex\"\npattern = '^(\\w+): +(\\d+)'\nexclude = [\"Swap*\"]";
    let text = match entry.name {
        "file" => format!("[source.file.x]\npath = \"/proc/meminfo\"\n{expression}\n"),
        "perf" => format!("[source.perf]\nprocesses = [\"{}\", \"nobody-has-this\"]\n", std::process::id()),
        _ => String::new(),
    };
    open_with(entry, &text, root)
}

/// Opens a source of the host in this directory with this configuration.
fn open_with(entry: &SourceSpec, text: &str, root: &Path) -> Result<OpenedSampler, Unavailable> {
    let config = Config::parse("test.toml", text).unwrap();
    let source = config.sources.iter().find(|source| source.spec == entry).unwrap();
    entry.open(&OpenContext { host: &HostRoot::new(root), settings: source.settings() })
}

/// Creates a host tree with a few processes, none of which starts or exits.
#[allow(clippy::disallowed_methods, reason = "a tree of the test, not the recorder's")]
fn small_host() -> tempfile::TempDir {
    let host = tempfile::tempdir().unwrap();
    for process in ["1", "7", "1234"] {
        let folder = host.path().join("proc").join(process);
        std::fs::create_dir_all(&folder).unwrap();
        for file in ["stat", "io", "cgroup", "cmdline"] {
            std::fs::copy(Path::new("/proc/self").join(file), folder.join(file)).unwrap();
        }
        // The first word of the line is the process id.
        let stat = std::fs::read_to_string(folder.join("stat")).unwrap();
        let (_, rest) = stat.split_once(' ').unwrap();
        std::fs::write(folder.join("stat"), format!("{process} {rest}")).unwrap();
    }
    // Some values do not fit, and labels need to be sorted. Escapes in JSON would allocate.
    let metrics = "# TYPE a counter\na{y=\"1\",x=\"\\\"\"} 1 7\na 2\nb NaN\nc\nd 1e3\n";
    std::fs::write(host.path().join(PROMETHEUS), metrics).unwrap();
    std::fs::write(host.path().join(JSON), r#"{"a": [{"b": 1.5}, true, "x"], "c": -7}"#).unwrap();
    host
}

/// Files of `small_host`, and the formats of their values.
const PROMETHEUS: &str = "prometheus";
const JSON: &str = "json";
/// Name for the processes of `small_host`.
const SMALL_HOST: &str = "process of a small host";

/// Opens a source by its name; the error names the feature that this host lacks.
fn sampler(name: &str, metrics: &Arc<Metrics>, small_host: &Path) -> Result<OpenedSampler, Unavailable> {
    match name {
        "self" => {
            Ok(OpenedSampler::built(SelfSampler::new(SelfSampler::open_stat().unwrap(), Arc::clone(metrics))))
        }
        "point" => Ok(OpenedSampler::fixed(SyntheticSampler::point(1))),
        "wide" => Ok(OpenedSampler::fixed(SyntheticSampler::wide(1, 200, 100))),
        SMALL_HOST => open(find("process").unwrap(), small_host),
        PROMETHEUS | JSON => {
            let text =
                format!("[source.file.x]\npath = \"/{name}\"\nformat = \"{name}\"\nexclude = [\"d\"]\n");
            open_with(find("file").unwrap(), &text, small_host)
        }
        _ => open(find(name).unwrap(), Path::new("/")),
    }
}

fn geometry(sources: usize) -> Geometry {
    Geometry { sources, slabs: 8, slab_bytes: 64 << 10, large_slabs: 1, large_slab_bytes: 1 << 20 }
}

fn metrics(names: &[&str]) -> Arc<Metrics> {
    let counters = names.iter().map(|name| SourceMetrics::new((*name).to_owned(), 1));
    Arc::new(Metrics::new(counters, names.len(), Box::default()))
}

/// Names of the sources that read the host.
fn host_sources() -> impl Iterator<Item = &'static str> {
    let of_host = CATALOG.iter().filter(|spec| matches!(spec.opener, SourceOpener::Host(_)));
    of_host.map(|spec| spec.name)
}

/// Samples after which a group is warm.
const WARM_UP: u64 = 200;
/// Samples after these in which nothing may be allocated.
const SAMPLES: u64 = 500;
/// Deadline for a quiet interval on a host where other programs start all the time.
const WATCHDOG_NS: u64 = 120_000_000_000;

// Proves that a warm group allocates nothing between two ticks, for every source. Sources that see
// programs started by others get several tries; processes are also read on a small host of their
// own.
#[test]
fn a_warm_group_allocates_nothing() {
    let own = ["self", "point", "wide", PROMETHEUS, JSON, SMALL_HOST];
    let names: Vec<&str> = host_sources().chain(own).collect();
    let small_host = small_host();
    // Starting a program allocates; group `blocking` reads its sources on threads of their own.
    // `profile` allocates for what each program that starts on this host maps.
    let follows_programs = |name: &&str| ["command", "profile"].contains(name);
    let metrics = metrics(&names);
    for (id, name) in (0_u16..).zip(&names).filter(|(_, name)| !follows_programs(name)) {
        let sampler = match sampler(name, &metrics, small_host.path()) {
            Ok(sampler) => sampler,
            Err(missing) => {
                println!("skipped: {missing}");
                continue;
            }
        };
        let arena = Arena::anonymous(geometry(names.len())).unwrap();
        let begun = arena.sequence_counters();
        let pool = Arc::new(SlabPool::new(arena));
        let (queue, mut slabs) = slab_queue(4, OnFull::DropNewest);
        let (latencies, consumer) = exchange(|| GroupLatencies::new([id]));
        let producer = SlabProducer::new(SlabProducerSettings {
            pool: Arc::clone(&pool),
            queue,
            ledger: Arc::new(LossLedger::new(names.len())),
            wake: Arc::new(WakeEvent::new()),
            checksum: ChecksumKind::Xxh3,
            frame_max: 1 << 20,
            flush_interval_ns: 1_000_000,
            sequence_counters: begun,
            sources: names.len(),
            metrics: Arc::default(),
            stop: Arc::default(),
        });
        let counters = Arc::clone(metrics.sources.get(usize::from(id)).unwrap());
        let source =
            GroupSource { id, period_ns: 1, budget: 10_000, sampler, offloaded: None, metrics: counters };
        let mut group = SamplerGroup::new(GroupSettings {
            sources: vec![source],
            name: GroupName::Slow,
            thread: Config::default().thread(GroupName::Slow),
            start_ns: monotonic_ns(),
            wall_offset: Arc::new(flatcap_os::clock::WallOffset::default()),
            producer,
            metrics: Arc::clone(&metrics),
            latencies,
            commands: CommandReceiver::stop_only(Arc::new(WakeEvent::new())),
        })
        .unwrap();
        let mut run = |readings: u64| {
            let before = ALLOCATIONS.get();
            for _ in 0..readings {
                group.tick();
                while let Ok(slab) = slabs.try_recv() {
                    pool.give_back(slab);
                }
                consumer.drain(GroupLatencies::clear);
            }
            ALLOCATIONS.get() - before
        };
        run(WARM_UP);
        let begun = || metrics.sources.get(usize::from(id)).unwrap().begun.get();
        assert_eq!(begun(), WARM_UP, "{name} was read each time");
        // These sources allocate for programs started on this host during the test, so one quiet
        // interval is enough.
        let sees_others = ["cgroup", "perf", "process", "sched"].contains(name);
        if !sees_others {
            assert_eq!(run(SAMPLES), 0, "allocations of {name} in {SAMPLES} samples");
            assert_eq!(begun(), WARM_UP + SAMPLES, "{name} was read each time");
            if *name != SMALL_HOST {
                continue;
            }
        }
        assert!(has_quiet_interval(&mut run, sees_others), "{name} allocates");
    }
}

/// Returns whether samples allocate nothing, including those one second later, which do more work.
/// Retries only for sources that see programs started by others.
fn has_quiet_interval(run: &mut dyn FnMut(u64) -> u64, sees_others: bool) -> bool {
    let deadline_ns = monotonic_ns() + WATCHDOG_NS;
    loop {
        if run(20) == 0 {
            WakeEvent::new().wait_until(monotonic_ns() + 1_100_000_000);
            if run(2) == 0 {
                return true;
            }
        }
        if !sees_others || monotonic_ns() >= deadline_ns {
            return false;
        }
    }
}

/// Devices in /sys that are removed and added again: directory, and the files in it.
const DEVICES: [(&str, &[(&str, &str)]); 5] = [
    ("sys/class/thermal/thermal_zone1", &[("type", "acpitz"), ("temp", "-5000")]),
    ("sys/class/hwmon/hwmon1", &[("name", "nvme"), ("temp1_input", "42000"), ("temp1_label", "Composite")]),
    ("sys/class/power_supply/BAT1", &[("type", "Battery"), ("status", "Full"), ("capacity", "100")]),
    ("sys/class/powercap/intel-rapl:1", &[("name", "package-1"), ("energy_uj", "7")]),
    ("sys/devices/system/cpu/cpu1/cpufreq", &[("scaling_cur_freq", "3000000")]),
];

// Proves that sources of devices that come and go stop allocating once they have seen all devices.
// Method: a host tree whose devices are removed and added between 100 counted samples.
#[test]
#[allow(clippy::disallowed_methods, reason = "a tree of the test, not the recorder's")]
fn devices_that_come_and_go_allocate_nothing() {
    let host = tempfile::tempdir().unwrap();
    for (device, files) in DEVICES {
        for device in [device.to_owned(), device.replace('1', "0")] {
            let device = host.path().join(device);
            std::fs::create_dir_all(&device).unwrap();
            for (file, content) in files {
                std::fs::write(device.join(file), format!("{content}\n")).unwrap();
            }
        }
    }
    let config = Config::parse(
        "test.toml",
        &["thermal", "hwmon", "power", "cpufreq"]
            .map(|name| format!("[source.{name}]\nperiod = \"1s\"\n"))
            .concat(),
    )
    .unwrap();
    for name in ["thermal", "hwmon", "power", "cpufreq"] {
        let source = config.sources.iter().find(|source| source.spec.name == name).unwrap();
        let context = OpenContext { host: &HostRoot::new(host.path()), settings: source.settings() };
        let mut sampler = source.spec.open(&context).unwrap();
        let mut builders = Builders::default();
        let mut run = |readings: u64| {
            let mut allocations = 0;
            let mut lengths = std::collections::BTreeSet::new();
            for seq in 0..readings {
                for (at, (device, _)) in DEVICES.iter().enumerate() {
                    let [here, away] = [host.path().join(device), host.path().join(at.to_string())];
                    let [from, to] = if here.exists() { [here, away] } else { [away, here] };
                    std::fs::rename(from, to).unwrap();
                }
                let cores = ["0\n", "0-1\n"][usize::from(host.path().join(DEVICES[4].0).exists())];
                std::fs::write(host.path().join("sys/devices/system/cpu/online"), cores).unwrap();
                let before = ALLOCATIONS.get();
                sampler.read().unwrap();
                let builder = builders.for_size(4096);
                let OpenedSampler::Built(sampler) = &mut sampler else { panic!("{name} has a model") };
                let shortfall = sampler.build(seq, builder);
                allocations += ALLOCATIONS.get() - before;
                assert!(shortfall.is_none(), "{name}: {shortfall}");
                lengths.insert(builder.finished_data().len());
            }
            assert_eq!(lengths.len(), 2, "{name} sees devices removed and added");
            allocations
        };
        run(10);
        assert_eq!(run(100), 0, "allocations of {name} in 100 samples");
    }
}

/// Counts the values of a walk.
struct ValueCounter(u64);

impl Visitor for ValueCounter {
    fn begin_object(&mut self, _: PathStep<'_>) {}
    fn end_object(&mut self) {}
    fn begin_list(&mut self, _: PathStep<'_>, _: usize) {}
    fn end_list(&mut self) {}
    fn value(&mut self, _: PathStep<'_>, _: FieldValue<'_>) {
        self.0 += 1;
    }
}

// Proves that, once a schema is compiled, walks do not allocate, from the first payload on. Method:
// 1,000 samples of `cpu`.
#[test]
fn decoding_allocates_nothing() {
    let entry = find("cpu").unwrap();
    let mut sampler = open(entry, Path::new("/")).unwrap();
    let mut builders = Builders::default();
    let payloads: Vec<Vec<u8>> = (0..1000)
        .map(|seq| {
            let builder = builders.for_size(4096);
            sampler.read().unwrap();
            sampler.payload(seq, builder).0
        })
        .collect();
    let plan = CompiledSchema::compile(entry.schema, entry.root).unwrap();
    let mut count = ValueCounter(0);
    let before = ALLOCATIONS.get();
    for payload in &payloads {
        plan.walk(payload, &mut count).unwrap();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations in 1,000 payloads");
    assert!(count.0 >= 1000 * 28);
}
