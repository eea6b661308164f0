//! Compares answers about elements that end with a naive evaluation, and with a real Prometheus
//! that received the same samples and stale markers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::schema::{CompiledSchema, MetricKind, NewContent, NewField, NewTable, binary_schema};
use flatcap_format::segment::{
    Frames, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};
use flatcap_format::testing::{Folder, TableLayout, TableWriter, effort};
use flatcap_promql::{Engine, EvaluationOptions, QueryValue, TimeGrid};
use flatcap_query::Recording;
use flatcap_stream::{ChecksumKind, Framer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

const BEGIN_MS: i64 = 1_700_000_000_000;
const HOST: &str = "db1";
const DEVICES: &str = "flatcap_disk_devices_level";
const PROCESSES: &str = "flatcap_process_processes_size";
/// The lookback of this engine and of the real Prometheus, in milliseconds.
const LOOKBACK_MS: i64 = 20_000;

/// One sample of both sources.
#[derive(Debug, Clone, Default)]
struct Sample {
    /// Devices with their levels. Some levels are absent.
    devices: BTreeMap<u64, Option<u32>>,
    processes: BTreeMap<u64, u32>,
    /// Number of processes that exist but are not in the sample.
    skipped: u64,
    exits: BTreeSet<u64>,
}

/// Consecutive samples of a run of the recorder.
#[derive(Debug, Clone)]
struct Run {
    /// Time between the end of the previous run and the begin of this run.
    pause_ms: i64,
    period_ms: i64,
    samples: Vec<Sample>,
}

/// Name and label of a series.
type SeriesName = (&'static str, u64);
/// Values and ends by time.
type Events = BTreeMap<i64, Option<f64>>;

fn runs() -> impl Strategy<Value = Vec<Run>> {
    let devices = prop::collection::btree_map(0..5_u64, prop::option::weighted(0.8, 0..100_u32), 0..5);
    let processes = prop::collection::btree_map(0..6_u64, 0..100_u32, 0..6);
    let exits = prop::collection::btree_set(0..6_u64, 0..3);
    let sample = (devices, processes, prop_oneof![Just(0), 1..5_u64], exits)
        .prop_map(|(devices, processes, skipped, exits)| Sample { devices, processes, skipped, exits });
    let samples = prop::collection::vec(sample, 1..25);
    let run = (1..30_000_i64, prop_oneof![Just(100_i64), Just(1000), 1..2500_i64], samples);
    prop::collection::vec(run, 1..4).prop_map(|runs| {
        let run = |(pause_ms, period_ms, samples)| Run { pause_ms, period_ms, samples };
        runs.into_iter().map(run).collect()
    })
}

/// Returns the times of the first and the last sample of each run.
fn spans(runs: &[Run]) -> Vec<(i64, i64)> {
    let mut next_ms = BEGIN_MS;
    let span = |run: &Run| {
        let first_ms = next_ms + run.pause_ms;
        let last_ms = first_ms + run.period_ms * (i64::try_from(run.samples.len()).unwrap() - 1);
        next_ms = last_ms;
        (first_ms, last_ms)
    };
    runs.iter().map(span).collect()
}

/// Returns the events that a scraper of each sample would know: values, and the times from which a
/// series no longer exists.
fn naive_events(runs: &[Run]) -> BTreeMap<SeriesName, Events> {
    let mut series: BTreeMap<SeriesName, Events> = BTreeMap::new();
    for (run, (first_ms, last_ms)) in runs.iter().zip(spans(runs)) {
        let mut exited: BTreeSet<u64> = BTreeSet::new();
        let mut open: BTreeSet<u64> = BTreeSet::new();
        for (ms, sample) in (first_ms..).step_by(usize::try_from(run.period_ms).unwrap()).zip(&run.samples) {
            for device in 0..5 {
                let value = sample.devices.get(&device).copied().flatten().map(f64::from);
                series.entry((DEVICES, device)).or_default().insert(ms, value);
            }
            for process in 0..6 {
                let value = sample.processes.get(&process).copied().map(f64::from);
                if value.is_some() {
                    open.insert(process);
                }
                // The process may still be listed as existing when its end is listed, because
                // nobody has waited for it.
                if open.contains(&process) && sample.exits.contains(&process) {
                    exited.insert(process);
                }
                let is_over = sample.skipped == 0 || exited.contains(&process);
                if value.is_none() && is_over {
                    open.remove(&process);
                    exited.remove(&process);
                }
                if value.is_some() || is_over {
                    series.entry((PROCESSES, process)).or_default().insert(ms, value);
                }
            }
        }
        for events in series.values_mut() {
            events.insert(last_ms + 1, None);
        }
    }
    series
}

/// Returns the value of a series at a time.
fn naive_value(events: &Events, ms: i64) -> Option<f64> {
    events.range(ms - LOOKBACK_MS..=ms).next_back().and_then(|(_, value)| *value)
}

struct Tables {
    /// The name of the root table.
    name: &'static str,
    schema: Vec<u8>,
    root: TableLayout,
    element: TableLayout,
    exit: Option<TableLayout>,
}

fn field(name: &str, content: NewContent, kind: MetricKind, is_identity: bool) -> NewField {
    NewField { kind, is_identity, ..NewField::new(name, content) }
}

fn tables(name: &'static str, root: Vec<NewField>, element: Vec<NewField>, has_exits: bool) -> Tables {
    let names = |fields: &[NewField]| fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
    let (root_names, element_names) = (names(&root), names(&element));
    let state = |name: &str| field(name, NewContent::Unsigned, MetricKind::State, false);
    let exit = NewTable { name: "Exit".into(), fields: vec![state("pid"), state("start")] };
    let all = [
        NewTable { name: name.into(), fields: root },
        NewTable { name: "Element".into(), fields: element },
        exit,
    ];
    let schema = binary_schema(&all, name).unwrap();
    let layout = |root: &str, names: &[String]| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        TableLayout::new(&CompiledSchema::compile(&schema, root).unwrap(), &names).unwrap()
    };
    Tables {
        name,
        root: layout(name, &root_names),
        element: layout("Element", &element_names),
        exit: has_exits.then(|| layout("Exit", &["pid".to_owned(), "start".to_owned()])),
        schema: schema.clone(),
    }
}

fn device_tables() -> Tables {
    let list = field("devices", NewContent::Tables("Element".into()), MetricKind::Unknown, false);
    let name = field("name", NewContent::Unsigned, MetricKind::State, true);
    let level = field("level", NewContent::Float, MetricKind::Gauge, false);
    tables("Root", vec![list], vec![name, level], false)
}

fn process_tables() -> Tables {
    let list = field("processes", NewContent::Tables("Element".into()), MetricKind::Unknown, false);
    let exits = field("exits", NewContent::Tables("Exit".into()), MetricKind::Unknown, false);
    let skipped = field("skipped", NewContent::Unsigned, MetricKind::Gauge, false);
    let state = |name: &str| field(name, NewContent::Unsigned, MetricKind::State, true);
    let size = field("size", NewContent::Unsigned, MetricKind::Gauge, false);
    // Samples of this list may leave out elements, unless `skipped` is 0.
    let name = "flatcap.host.Process";
    tables(name, vec![list, exits, skipped], vec![state("pid"), state("start"), size], true)
}

fn device_payload(tables: &Tables, sample: &Sample) -> Vec<u8> {
    let mut writer = TableWriter::new();
    let root = writer.start(&tables.root);
    let list = tables.root.field("devices").unwrap();
    let list = writer.tables(root, list, &tables.element, sample.devices.len());
    for (index, (name, level)) in sample.devices.iter().enumerate() {
        writer.set(list.position(index), tables.element.field("name").unwrap(), *name);
        // NaN means that the value is absent.
        let level = level.map_or(f64::NAN, f64::from);
        writer.set(list.position(index), tables.element.field("level").unwrap(), level);
    }
    writer.finished().unwrap().to_vec()
}

fn process_payload(tables: &Tables, sample: &Sample) -> Vec<u8> {
    let (own, exit) = (&tables.element, tables.exit.as_ref().unwrap());
    let mut writer = TableWriter::new();
    let root = writer.start(&tables.root);
    writer.set(root, tables.root.field("skipped").unwrap(), sample.skipped);
    let list = writer.tables(root, tables.root.field("processes").unwrap(), own, sample.processes.len());
    for (index, (pid, size)) in sample.processes.iter().enumerate() {
        writer.set(list.position(index), own.field("pid").unwrap(), *pid);
        writer.set(list.position(index), own.field("start").unwrap(), 7_u64);
        writer.set(list.position(index), own.field("size").unwrap(), u64::from(*size));
    }
    let list = writer.tables(root, tables.root.field("exits").unwrap(), exit, sample.exits.len());
    for (index, pid) in sample.exits.iter().enumerate() {
        writer.set(list.position(index), exit.field("pid").unwrap(), *pid);
        writer.set(list.position(index), exit.field("start").unwrap(), 7_u64);
    }
    writer.finished().unwrap().to_vec()
}

fn header(run_id: u64, first_ms: i64, sources: [(&str, &Tables, i64); 2]) -> SegmentHeader {
    let wall_ns = first_ms * 1_000_000;
    let clocks = ClockReading { mono_ns: 1_000_000_000, boot_ns: 1_000_000_000, wall_ns };
    let source = |(id, (name, tables, period_ms)): (usize, (&str, &Tables, i64))| SourceInfo {
        id: u16::try_from(id).unwrap(),
        name: name.into(),
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: period_ms.unsigned_abs() * 1_000_000,
        root: tables.name.into(),
        schema: tables.schema.clone(),
        next_seq: 0,
    };
    SegmentHeader {
        segment: run_id,
        run_id,
        host: HostName { name: HOST.into(), machine_id: None, boot_id: None, labels: Vec::new() },
        agent_version: "0".into(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: 0,
        sources: sources.into_iter().enumerate().map(source).collect(),
        clock_table: vec![clocks],
        recorder_pid: 0,
    }
}

/// Writes the runs into a directory, each as one segment.
fn write(folder: &Path, runs: &[Run]) {
    let storage = Folder(folder.to_owned());
    let (devices, processes) = (device_tables(), process_tables());
    for (number, (run, (first_ms, _))) in (1..).zip(runs.iter().zip(spans(runs))) {
        let own = [("disk", &devices, run.period_ms), ("process", &processes, run.period_ms)];
        let header = header(number, first_ms, own);
        let created_s = first_ms / 1000;
        let name = SegmentName { number, created_s, run_id: number, state: SealState::Active };
        let mut segment = SegmentWriter::create(&storage, name, header, &[], 0).unwrap();
        let kind = segment.checksum();
        for (seq, sample) in (0..).zip(&run.samples) {
            let elapsed_ns = seq * run.period_ms.unsigned_abs() * 1_000_000;
            let (mono_ns, wall_ns) =
                (1_000_000_000 + elapsed_ns, first_ms * 1_000_000 + elapsed_ns.cast_signed());
            let bodies = [device_payload(&devices, sample), process_payload(&processes, sample)];
            for (id, body) in (0..).zip(&bodies) {
                let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 9 };
                let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
                Envelope::new(id).write(&mut payload, &stamp, body);
                let mut frame = Vec::new();
                kind.frame_and_write(&mut frame, &payload).unwrap();
                let (pieces, header) = (&mut [IoSlice::new(&frame)], &frame[..kind.frame_bytes(0)]);
                segment.append(Frames { pieces, headers: &[header], count: 1 }).unwrap();
                segment.count_samples(id, 1, SampleSpan::of(seq, mono_ns, wall_ns));
            }
        }
        segment.append_index(0).unwrap();
        segment.seal().unwrap().publish(&storage).unwrap();
    }
}

fn engine(folder: &Path) -> Engine {
    Engine::new(Recording::open(&[folder.to_owned()]).unwrap())
}

/// Returns the values of an expression at the steps, by the label of each series.
fn evaluated(engine: &Engine, expression: &str, grid: TimeGrid) -> BTreeMap<String, Vec<Option<f64>>> {
    let options = EvaluationOptions { lookback_ms: LOOKBACK_MS, ..EvaluationOptions::default() };
    let answer = engine.evaluate(expression, grid, &options).unwrap();
    let QueryValue::Vector(series) = answer.value else { panic!("{expression}") };
    let label = |labels: &flatcap_promql::Labels| format!("{}{}", labels.get("name"), labels.get("pid"));
    series.into_iter().map(|series| (label(&series.labels), series.values)).collect()
}

/// Returns the sum, number and largest value of a metric at a step.
fn naive_aggregates(events: &BTreeMap<SeriesName, Events>, metric: &str, ms: i64) -> [Option<f64>; 3] {
    let own = events.iter().filter(|((name, _), _)| *name == metric);
    let values: Vec<f64> = own.filter_map(|(_, events)| naive_value(events, ms)).collect();
    let some = |value: f64| Some(value).filter(|_| !values.is_empty());
    [some(values.iter().sum()), some(values.len() as f64), values.iter().copied().reduce(f64::max)]
}

// Proves that a series ends at the end of a run, and at the first sample without its element or
// value, unless the sample omits it on purpose. Sums, counts and maxima contain the elements that
// exist at each step. The result is compared with a naive evaluation of all samples.
#[test]
fn ended_elements_have_no_value() {
    let cases = effort::of(200, 10_000);
    let mut runner = TestRunner::new(Config { cases, ..Config::default() });
    let strategy = (runs(), 1..3000_i64, 0..2000_i64);
    let check = |(runs, step_ms, offset_ms): (Vec<Run>, i64, i64)| {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &runs);
        let events = naive_events(&runs);
        let (begin_ms, end_ms) = (BEGIN_MS + offset_ms, spans(&runs).last().unwrap().1 + LOOKBACK_MS + 3000);
        let step_ms = step_ms.max((end_ms - begin_ms) / 4000 + 1);
        let grid = TimeGrid::range(begin_ms, end_ms, step_ms).unwrap();
        let engine = engine(folder.path());
        for metric in [DEVICES, PROCESSES] {
            let found = evaluated(&engine, metric, grid);
            let own = events.iter().filter(|((name, _), _)| *name == metric);
            let naive: BTreeMap<String, Vec<Option<f64>>> = own
                .map(|((_, label), events)| {
                    let values = (0..grid.steps()).map(|step| naive_value(events, grid.at(step)));
                    (label.to_string(), values.collect::<Vec<_>>())
                })
                .filter(|(_, values)| values.iter().any(Option::is_some))
                .collect();
            prop_assert_eq!(found, naive, "{}", metric);
            for (place, function) in ["sum", "count", "max"].into_iter().enumerate() {
                let found = evaluated(&engine, &format!("{function}({metric})"), grid);
                let found = found.into_values().next().unwrap_or_else(|| vec![None; grid.steps()]);
                let naive =
                    (0..grid.steps()).map(|step| naive_aggregates(&events, metric, grid.at(step))[place]);
                prop_assert_eq!(found, naive.collect::<Vec<_>>(), "{}({})", function, metric);
            }
        }
        Ok(())
    };
    runner.run(&strategy, check).unwrap();
}

/// A running Prometheus that accepts samples.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

/// The value by which Prometheus marks the end of a series.
const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

impl Prometheus {
    /// Starts Prometheus. If the program is missing, prints a message and returns `None`.
    fn start(folder: &Path) -> Option<Self> {
        std::fs::write(folder.join("empty.yml"), "").unwrap();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.join("empty.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .arg(format!("--web.listen-address={free}"))
            .arg(format!("--query.lookback-delta={LOOKBACK_MS}ms"))
            .args([
                "--web.enable-remote-write-receiver",
                "--storage.tsdb.retention.time=100y",
                "--log.level=error",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn();
        let Ok(process) = process else {
            println!("skipped: prometheus is not here");
            return None;
        };
        let own = Self { process, address: free };
        // The time limit is generous, because Prometheus is usually ready within a second.
        for _ in 0..1200 {
            if own.ask("GET", "/-/ready", &[]).is_some_and(|(head, _)| head.contains(" 200 ")) {
                return Some(own);
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        panic!("prometheus is not ready");
    }

    /// Sends a request. Returns head and body of the response, or `None` if no program listens.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> Option<(String, Vec<u8>)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        // The request uses HTTP/1.0, because its answers are not chunked.
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/x-protobuf\r\n\
             Content-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        )
        .ok()?;
        stream.write_all(body).ok()?;
        let mut reader = BufReader::new(stream);
        let (mut head, mut answer) = (String::new(), Vec::new());
        while reader.read_line(&mut head).ok()? > 2 {}
        reader.read_to_end(&mut answer).ok()?;
        Some((head, answer))
    }

    /// Writes all values and ends, in time order.
    fn write(&self, events: &BTreeMap<SeriesName, Events>) {
        let mut by_time: BTreeMap<i64, Vec<(SeriesName, f64)>> = BTreeMap::new();
        for (name, events) in events {
            let mut is_open = false;
            for (ms, value) in events {
                // A scraper marks the end only of series that it has seen.
                if value.is_some() || is_open {
                    by_time.entry(*ms).or_default().push((*name, value.unwrap_or(STALE)));
                }
                is_open = value.is_some();
            }
        }
        let mut request = Vec::new();
        for (ms, values) in by_time {
            for ((metric, label), value) in values {
                let own = if metric == DEVICES { "name" } else { "pid" };
                let label = label.to_string();
                let mut labels = vec![("__name__", metric), ("host", HOST), (own, &*label)];
                labels.extend((metric == PROCESSES).then_some(("start", "7")));
                let mut series = Vec::new();
                for (name, value) in labels {
                    let mut text = Vec::new();
                    put_bytes(&mut text, 1, name.as_bytes());
                    put_bytes(&mut text, 2, value.as_bytes());
                    put_bytes(&mut series, 1, &text);
                }
                let mut sample = vec![(1 << 3) | 1];
                sample.extend(value.to_bits().to_le_bytes());
                sample.push(2 << 3);
                put_varint(&mut sample, ms.cast_unsigned());
                put_bytes(&mut series, 2, &sample);
                put_bytes(&mut request, 1, &series);
            }
        }
        let (head, body) = self.ask("POST", "/api/v1/write", &snappy(&request)).unwrap();
        assert!(head.contains(" 204 "), "{head} {}", String::from_utf8_lossy(&body));
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn put_varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    to.push(u8::try_from(number).unwrap());
}

/// Appends a length-delimited field of a protobuf message.
fn put_bytes(to: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    to.push((field << 3) | 2);
    put_varint(to, bytes.len() as u64);
    to.extend(bytes);
}

/// Returns these bytes as a snappy block that has only literals.
fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    put_varint(&mut block, bytes.len() as u64);
    for part in bytes.chunks(60) {
        block.push((u8::try_from(part.len()).unwrap() - 1) << 2);
        block.extend(part);
    }
    block
}

/// Returns elements that come and go every second for a minute, with a pause of the recorder.
fn busy_runs() -> Vec<Run> {
    let sample = |at: u64| {
        let is_there = |element: u64| !(at / 2 + element).is_multiple_of(3);
        let devices = (0..5).filter(|device| is_there(*device));
        let devices = devices
            .map(|device| (device, (at % 7 != device).then_some(u32::try_from(at * 10 + device).unwrap())));
        let skipped = u64::from(!at.is_multiple_of(4));
        let processes = (0..6).filter(|process| is_there(*process) && (skipped == 0 || process % 2 == 0));
        Sample {
            devices: devices.collect(),
            processes: processes
                .map(|process| (process, u32::try_from(at * 10 + process).unwrap()))
                .collect(),
            skipped,
            exits: (0..6).filter(|process| !is_there(*process) && at.is_multiple_of(3)).collect(),
        }
    };
    let run = |pause_ms, samples: std::ops::Range<u64>| Run {
        pause_ms,
        period_ms: 500,
        samples: samples.map(sample).collect(),
    };
    vec![run(1000, 0..60), run(12_000, 60..120)]
}

/// Returns expressions of many kinds over both metrics.
fn expressions() -> Vec<String> {
    let mut all = Vec::new();
    for (metric, label, other) in [(DEVICES, "name", PROCESSES), (PROCESSES, "pid", DEVICES)] {
        let selectors =
            [metric.to_owned(), format!("{metric}{{{label}=~\"1|2|3\"}}"), format!("{metric} offset 3s")];
        for selector in &selectors {
            all.push(selector.clone());
            for aggregation in ["sum", "count", "avg", "min", "max", "stddev", "stdvar", "group"] {
                all.push(format!("{aggregation}({selector})"));
                all.push(format!("{aggregation} by ({label}) ({selector})"));
                all.push(format!("{aggregation} without (start) ({selector} > 20)"));
            }
            for count in 1..4 {
                all.push(format!("bottomk({count}, {selector} + 0.001 * scalar(count({selector})))"));
                all.push(format!("quantile(0.{count}, {selector})"));
            }
            all.push(format!("count({selector}) or vector(0)"));
            all.push(format!("{selector} unless on (host) (sum by (host) ({other}) > 100)"));
            all.push(format!("sum by (host) ({selector}) / on (host) count by (host) ({other})"));
            all.push(format!("{selector} * on (host) group_left sum by (host) ({other})"));
        }
        for count in 1..3 {
            all.push(format!("topk({count} + 1, {metric})"));
            all.push(format!("quantile(scalar(min({metric})) / 1000 + 0.{count}, {metric})"));
            all.push(format!("predict_linear({metric}[7s], {count}0)"));
            all.push(format!("predict_linear({metric}[7s] offset 2s, {count}0)"));
            all.push(format!("max_over_time({metric}[{count}0s:1s])"));
            all.push(format!("rate(sum({metric})[{count}0s:700ms])"));
            all.push(format!("avg_over_time(count({metric})[{count}5s:2s] offset 1s)"));
            all.push(format!("{metric} @ 170000001{count}"));
            all.push(format!("sum_over_time({metric}[{count}s] @ end())"));
            all.push(format!("max_over_time(avg({metric} @ start())[{count}s:1s] @ 1700000030)"));
        }
        for expression in [
            "absent(M)",
            "absent(M{L=\"none\"})",
            "absent(M{L=\"1\"})",
            "absent(sum(M) > 100)",
            "absent_over_time(M{L=\"1\"}[2s])",
            "timestamp(M)",
            "timestamp(M + 0)",
            "timestamp(M offset 2s)",
            "sort(M)",
            "sort_desc(M)",
            "deriv(M[7s])",
            "deriv(M[30s] offset 3s)",
            "count_values(\"v\", M)",
            "count_values by (L) (\"v\", M / 7)",
            "clamp_max(M, scalar(max(M)) / 2)",
            "clamp_min(M, 2 * 20)",
            "clamp(M, scalar(min(M)) + 1, scalar(max(M)) - 1)",
            "round(M, scalar(count(M)))",
            "label_replace(M, \"to\", \"<$1>\", \"host\", \"(..).*\")",
            "label_replace(M, \"to\", \"${1}x\", \"L\", \"([12])\")",
            "label_replace(M, \"host\", \"\", \"host\", \"db1\")",
            "label_replace(M, \"to\", \"x\", \"host\", \"d\")",
            "label_join(M, \"to\", \"-\", \"host\", \"L\", \"none\")",
            "sum by (to) (label_join(M, \"to\", \"\", \"host\"))",
            "min_over_time(M[10s:])",
            // Limits that are NaN.
            "clamp_max(M, scalar(M))",
            "clamp_min(M, scalar(M))",
            "clamp(M, 0, scalar(M))",
            // Values that are NaN.
            "quantile(0.4, M / (M > bool 50) - M / (M > bool 50))",
            "quantile_over_time(0.4, (M / (M > bool 50) - M / (M > bool 50))[9s:1s])",
            "deriv((0 * M / 0)[9s:1s])",
            "max(0 / (M > bool 50))",
            // Comparisons that hold for at most one series.
            "M > on (host) max by (host) (M) - 0.5",
            "M == on (host) max by (host) (M)",
            "absent(M{L=\"a\", L=~\"b\"})",
            "absent(M{L=~\"b\", L=\"a\"})",
            "absent(M{L=\"a\", L=\"b\", L=\"c\"})",
            "absent((M{L=\"a\"}))",
            "absent_over_time((M{L=\"a\"}[2s]))",
            "absent_over_time(M{L=\"a\"}[2s:1s])",
            // Dates and angles.
            "hour() * 100 + minute()",
            "hour(M * 86400 * 31)",
            "minute(-61 * M)",
            "day_of_week(M * 86400 * 31)",
            "day_of_month(M * 86400 * 17)",
            "day_of_year(M * -86400 * 37)",
            "days_in_month(M * 86400 * 31)",
            "month(M * 86400 * 31)",
            "year(vector(time()) - M * 86400 * 365)",
            "sin(M) + cos(M) + tan(M)",
            "asin(M / 1000) + acos(M / 1000) + atan(M)",
            "sinh(M / 100) + cosh(M / 100) + tanh(M)",
            "asinh(M) + acosh(M) + atanh(M / 1000)",
            "deg(M) + rad(M) * pi()",
            "M atan2 (M - 20)",
            "3 atan2 M",
            "histogram_quantile(0.5, label_replace(M, \"le\", \"$1\", \"L\", \"(.*)\"))",
            "histogram_quantile(0.9, sum by (le) (label_replace(M, \"le\", \"$1\", \"L\", \"(.*)\") \
             or label_replace(sum(M), \"le\", \"+Inf\", \"\", \"\")))",
        ] {
            all.push(expression.replace('M', metric).replace('L', label));
        }
        for function in [
            "rate",
            "increase",
            "delta",
            "irate",
            "idelta",
            "resets",
            "changes",
            "avg_over_time",
            "min_over_time",
            "max_over_time",
            "sum_over_time",
            "count_over_time",
            "last_over_time",
            "present_over_time",
            "stddev_over_time",
            "stdvar_over_time",
        ] {
            for window in ["900ms", "2s", "7s", "15s"] {
                all.push(format!("{function}({metric}[{window}])"));
                all.push(format!("sum({function}({metric}[{window}] offset 1s))"));
            }
        }
    }
    all
}

/// Returns the values of an answer by their labels and times in milliseconds.
fn values_of(answer: &Value) -> BTreeMap<(String, i64), f64> {
    let mut found = BTreeMap::new();
    for series in answer["data"]["result"].as_array().unwrap() {
        for pair in series["values"].as_array().unwrap() {
            #[allow(clippy::cast_possible_truncation, reason = "milliseconds of this century")]
            let ms = (pair[0].as_f64().unwrap() * 1000.0).round() as i64;
            let value = pair[1].as_str().unwrap().parse().unwrap();
            found.insert((series["metric"].to_string(), ms), value);
        }
    }
    found
}

// Proves that a real Prometheus with the same values and stale markers gives the same answers, at
// each step, for hundreds of expressions.
#[test]
fn a_prometheus_ends_series_at_the_same_steps() {
    let folder = tempfile::tempdir().unwrap();
    let Some(prometheus) = Prometheus::start(folder.path()) else { return };
    let runs = busy_runs();
    let recording = folder.path().join("recording");
    std::fs::create_dir(&recording).unwrap();
    write(&recording, &runs);
    prometheus.write(&naive_events(&runs));
    let engine = engine(&recording);
    let options = EvaluationOptions { lookback_ms: LOOKBACK_MS, ..EvaluationOptions::default() };
    let (begin_ms, end_ms) = (BEGIN_MS, spans(&runs)[1].1 + LOOKBACK_MS + 2000);
    let mut differences = Vec::new();
    let all = expressions();
    for expression in &all {
        let grid = TimeGrid::range(begin_ms, end_ms, 730).unwrap();
        let own = engine.evaluate(expression, grid, &options).unwrap();
        let QueryValue::Vector(series) = own.value else { panic!("{expression}") };
        let mut found = BTreeMap::new();
        for series in series {
            let labels: serde_json::Map<String, Value> =
                series.labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            for (step, value) in series.values.iter().enumerate() {
                found.extend(
                    value.map(|value| ((Value::from(labels.clone()).to_string(), grid.at(step)), value)),
                );
            }
        }
        let mut encoded = String::new();
        for byte in expression.bytes() {
            write!(encoded, "%{byte:02x}").unwrap();
        }
        let path = format!(
            "/api/v1/query_range?query={encoded}&start={}&end={}&step=0.73",
            begin_ms as f64 / 1000.0,
            end_ms as f64 / 1000.0
        );
        let (_, body) = prometheus.ask("GET", &path, &[]).unwrap();
        let other = values_of(&serde_json::from_slice(&body).unwrap());
        let is_near = |one: f64, other: f64| {
            one.total_cmp(&other).is_eq()
                || (one.is_nan() && other.is_nan())
                || (one - other).abs() <= 1e-9 * other.abs().max(1e-6)
        };
        let differing =
            found.iter().find(|(key, value)| !other.get(*key).is_some_and(|own| is_near(**value, *own)));
        let missing = other.iter().find(|(key, _)| !found.contains_key(*key));
        if differing.is_some() || missing.is_some() {
            differences.push(format!("{expression}: own {differing:?}, Prometheus {missing:?}"));
        }
    }
    assert!(all.len() >= 400, "{}", all.len());
    assert!(differences.is_empty(), "{} of {}: {differences:#?}", differences.len(), all.len());
}
