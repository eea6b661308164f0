//! Tests requests of a Prometheus data source on a recording with known values. Compares the
//! answers with the known values, and with the answers of a real Prometheus that has the same
//! samples.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flatcap_os::clock::monotonic_ns;
use flatcap_os::wake_event::WakeEvent;
use hyper::Method;
use serde_json::Value;

use super::reader::PromqlReader;
use super::request::PromqlRequest;
use crate::test_recording::{LOST, TICKS, wall_ns, write_recording};
use crate::web::served_page::{ServedPage, TOKEN};
use crate::web::shown_paths::ShownPaths;

/// Expressions of every supported kind.
const EXPRESSIONS: [&str; 62] = [
    "1 + 2 * 3 ^ 2 % 7",
    "-(2 ^ 3 ^ 0)",
    "time()",
    "1 < bool 2",
    "flatcap_cpu_total_user_seconds_total",
    "flatcap_cpu_running",
    "flatcap_disk_devices_writes_total{name=\"vda\"}",
    "flatcap_disk_devices_writes_total{name!=\"vda\"}",
    "flatcap_disk_devices_writes_total{name=~\"vd.\", host=\"db1\"}",
    "flatcap_disk_devices_writes_total{name!~\"vda|sd.*\"}",
    "{__name__=~\"flatcap_disk_devices_(writes|reads)_total\"}",
    "flatcap_no_such_metric",
    "flatcap_cpu_total_user_seconds_total offset 3s",
    "sum_over_time(flatcap_cpu_total_user_seconds_total[1s] offset -2s)",
    "rate(flatcap_cpu_total_user_seconds_total[1s])",
    "rate(flatcap_cpu_cores_times_user_seconds_total[1500ms])",
    "rate(flatcap_network_interfaces_rx_bytes_total[777ms])",
    "rate(flatcap_disk_devices_sectors_written_bytes_total[2s] offset 1s)",
    "irate(flatcap_disk_devices_sectors_written_bytes_total[1s])",
    "increase(flatcap_disk_devices_sectors_written_bytes_total[5s])",
    "increase(flatcap_process_processes_run_time_seconds_total[3s])",
    "delta(flatcap_process_processes_resident_size_bytes[2s])",
    "idelta(flatcap_cpu_running[1s])",
    "resets(flatcap_cpu_forks_total[2s])",
    "changes(flatcap_cpu_total_user_seconds_total[1s])",
    "avg_over_time(flatcap_cpu_total_user_seconds_total[1s])",
    "min_over_time(flatcap_cpu_total_user_seconds_total[1s])",
    "max_over_time(flatcap_cpu_total_user_seconds_total[1s])",
    "sum_over_time(flatcap_cpu_total_user_seconds_total[1s])",
    "count_over_time(flatcap_cpu_total_user_seconds_total[1s])",
    "stddev_over_time(flatcap_cpu_total_user_seconds_total[1s])",
    "stdvar_over_time(flatcap_cpu_total_user_seconds_total[1s])",
    "last_over_time(flatcap_cpu_total_user_seconds_total[500ms])",
    "present_over_time(flatcap_cpu_total_user_seconds_total[500ms])",
    "quantile_over_time(0.9, flatcap_cpu_total_user_seconds_total[1s])",
    "sum(flatcap_process_processes_resident_size_bytes)",
    "sum by (name) (rate(flatcap_process_processes_run_time_seconds_total[1s]))",
    "sum without (pid, start) (flatcap_process_processes_resident_size_bytes)",
    "avg by (host) (flatcap_disk_devices_writes_total)",
    "min(flatcap_disk_devices_writes_total)",
    "max by (name) (flatcap_disk_devices_writes_total)",
    "count(flatcap_process_processes_resident_size_bytes)",
    "group by (host) (flatcap_disk_devices_writes_total)",
    "stddev(flatcap_process_processes_resident_size_bytes)",
    "stdvar(flatcap_disk_devices_writes_total)",
    "quantile(0.25, flatcap_process_processes_resident_size_bytes)",
    "topk(2, flatcap_process_processes_resident_size_bytes)",
    "bottomk(1, flatcap_process_processes_resident_size_bytes)",
    "flatcap_disk_devices_writes_total * 2 + 1",
    "100 - flatcap_disk_devices_writes_total",
    "flatcap_disk_devices_writes_total > 700",
    "flatcap_disk_devices_writes_total > bool 700",
    "700 < flatcap_disk_devices_writes_total",
    "flatcap_disk_devices_sectors_written_bytes_total / flatcap_disk_devices_writes_total",
    "flatcap_disk_devices_writes_total - on (name, host) flatcap_disk_devices_reads_total",
    "flatcap_cpu_cores_times_user_seconds_total / on (host) group_left flatcap_cpu_total_user_seconds_total",
    "flatcap_disk_devices_writes_total and on (name) flatcap_disk_devices_reads_total{name=\"vda\"}",
    "flatcap_disk_devices_writes_total or flatcap_cpu_running",
    "flatcap_disk_devices_writes_total unless on (name) flatcap_disk_devices_reads_total{name=\"vda\"}",
    "clamp(flatcap_disk_devices_writes_total, 100, 500)",
    "round(sqrt(abs(flatcap_disk_devices_writes_total)), 0.5)",
    "scalar(flatcap_cpu_running) * vector(2) + ceil(vector(1.5)) - floor(vector(1.5)) + log10(vector(100))",
];

/// Expressions that cause an error both here and in Prometheus.
const WRONG: [&str; 5] = [
    "rate(flatcap_cpu_running)",
    "sum(",
    "1 < 2",
    "flatcap_disk_devices_writes_total + on (host) flatcap_disk_devices_reads_total",
    "rate({__name__=~\"flatcap_disk_devices_(writes|reads)_total\"}[1s]) + ignoring(name, major, minor) vector(1)",
];

fn encoded(parameters: &[(&str, &str)]) -> String {
    let mut text = form_urlencoded::Serializer::new(String::new());
    text.extend_pairs(parameters);
    text.finish()
}

/// Returns the wall time of a tick in seconds, in the format of requests.
fn seconds(tick: u64) -> String {
    format!("{}.{:03}", wall_ns(tick) / 1_000_000_000, wall_ns(tick) / 1_000_000 % 1000)
}

fn asked(page: &ServedPage, path: &str, parameters: &[(&str, &str)]) -> Value {
    let (_, body) = page.get(&format!("{path}?{}", encoded(parameters)));
    serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{path} {parameters:?}"))
}

/// Returns the single value that an expression has at a tick.
fn value(page: &ServedPage, expression: &str, tick: u64) -> f64 {
    let answer = asked(page, "query", &[("query", expression), ("time", &seconds(tick))]);
    let result = answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{expression}: {answer}"));
    assert_eq!(result.len(), 1, "{expression}: {answer}");
    result[0]["value"][1].as_str().unwrap().parse().unwrap()
}

// Proves that values, rates and windows match the recording, even across lost samples, and that an
// expression has no value at a time without samples.
#[test]
fn expressions_have_the_recorded_values() {
    let page = ServedPage::new();
    let near = |found: f64, expected: f64| (found - expected).abs() < 1e-9 * expected.abs().max(1.0);
    let vda = "{name=\"vda\"}";
    for (expression, tick, expected) in [
        (format!("flatcap_disk_devices_writes_total{vda}"), 700, 700.0),
        (format!("flatcap_disk_devices_writes_total{vda} offset 1s"), 700, 600.0),
        // The disk writes 2 sectors in each tick, and a second has 100 ticks.
        (format!("rate(flatcap_disk_devices_sectors_written_bytes_total{vda}[1s])"), 900, 102_400.0),
        (
            format!("irate(flatcap_disk_devices_sectors_written_bytes_total{vda}[1s])"),
            1000,
            20_482.0 * 51_200.0,
        ),
        ("count_over_time(flatcap_cpu_running[1s])".to_owned(), 400, 101.0),
        // Half of the samples of this second were lost.
        ("count_over_time(flatcap_cpu_running[1s])".to_owned(), LOST.start + 50, 50.0),
        (
            "sum(rate(flatcap_process_processes_run_time_seconds_total{name=\"billing\"}[500ms]))".to_owned(),
            1080,
            1.0,
        ),
    ] {
        let found = value(&page, &expression, tick);
        assert!(near(found, expected), "{expression} at {tick}: {found}, not {expected}");
    }
    let none = asked(&page, "query", &[("query", "flatcap_cpu_running"), ("time", "1600000000")]);
    assert_eq!(none["data"]["result"], serde_json::json!([]));
    // The default time is the end of the recording, and a short lookback makes gaps visible.
    let end = asked(&page, "query", &[("query", "flatcap_cpu_forks_total")]);
    assert_eq!(end["data"]["result"][0]["value"][1], (4 * (TICKS - 1)).to_string());
    let lost = seconds(LOST.start + 50);
    let parameters = [("query", "flatcap_cpu_running"), ("time", lost.as_str()), ("lookback_delta", "100ms")];
    assert_eq!(asked(&page, "query", &parameters)["data"]["result"], serde_json::json!([]));
}

// Proves that metrics, labels and label values are listed, also for a request in the body, and that
// errors have the format that a data source shows.
#[test]
fn series_are_listed() {
    let page = ServedPage::new();
    let names = asked(&page, "label/__name__/values", &[]);
    let names: Vec<&str> =
        names["data"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(names.contains(&"flatcap_cpu_running") && names.contains(&"flatcap_disk_devices_reads_total"));
    let disks = asked(&page, "label/name/values", &[("match[]", "flatcap_disk_devices_reads_total")]);
    assert_eq!(disks["data"], serde_json::json!(["vda", "vdb"]));
    let labels = asked(&page, "labels", &[("match[]", "flatcap_disk_devices_reads_total")]);
    assert_eq!(labels["data"], serde_json::json!(["__name__", "host", "major", "minor", "name"]));
    let series =
        asked(&page, "series", &[("match[]", "flatcap_cpu_running"), ("match[]", "{name=\"eth0\"}")]);
    let series: Vec<String> = series["data"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert!(series.iter().any(|labels| labels.contains("flatcap_network_interfaces_rx_bytes_total")));
    assert!(!series.iter().any(|labels| labels.contains("vda")), "{series:?}");
    assert!(asked(&page, "label/pid/values", &[])["data"].to_string().contains("\"812\""));
    let known = asked(&page, "metadata", &[("metric", "flatcap_disk_devices_reads_total")]);
    assert_eq!(known["data"]["flatcap_disk_devices_reads_total"][0]["type"], "counter");
    assert_eq!(asked(&page, "status/buildinfo", &[])["data"]["application"], "flatcap");
    assert_eq!(asked(&page, "query_exemplars", &[])["data"], serde_json::json!([]));

    assert_eq!(asked(&page, "rules", &[])["data"], serde_json::json!({"groups": []}));
    assert_eq!(asked(&page, "alerts", &[])["data"], serde_json::json!({"alerts": []}));
    for path in ["/-/healthy", "/-/ready"] {
        let (head, _) = page.ask(&format!("GET {path}"), &format!("Host: {}\r\n", page.address), "");
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    }

    let headers = format!("Host: {}\r\nAuthorization: Bearer {TOKEN}\r\n", page.address);
    let form = encoded(&[("query", "1 + 1"), ("time", "7")]);
    let (head, body) = page.ask("POST /api/v1/query", &headers, &form);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(
        String::from_utf8(body).unwrap(),
        r#"{"status":"success","data":{"resultType":"scalar","result":[7.0,"2"]}}"#
    );
    for (path, parameters, status, said) in [
        ("query", vec![("query", "sum(")], "400", "not PromQL"),
        ("query", vec![("query", "histogram_count(x)")], "400", "the function histogram_count is not"),
        ("query", vec![("query", "x[5m:1m]")], "400", "is a window"),
        ("query", vec![("query", "{__name__=~\".+\"}")], "422", "at most 128"),
        (
            "query_range",
            vec![("query", "1"), ("start", "0"), ("end", "99999"), ("step", "1")],
            "400",
            "11000",
        ),
        ("label/x", vec![], "404", "/api/v1/label/NAME/values"),
    ] {
        let (head, body) = page.get(&format!("{path}?{}", encoded(&parameters)));
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{path} {parameters:?}: {head}");
        assert!(answer["error"].as_str().unwrap().contains(said), "{path} {parameters:?}: {answer}");
    }
    let (head, _) = page.ask("GET /api/v1/query?query=1", &format!("Host: {}\r\n", page.address), "");
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    let deep = format!("{}1{}", "(".repeat(2000), ")".repeat(2000));
    let answer = asked(&page, "query", &[("query", deep.as_str())]);
    assert!(answer["error"].as_str().unwrap().contains("at most 256"), "{answer}");
    let deep = "-".repeat(250) + "1";
    let answer = asked(&page, "query", &[("query", deep.as_str())]);
    assert_eq!(answer["data"]["result"][1], "1", "{answer}");
}

// Proves that every host panel of the dashboard has series in this recording.
#[test]
fn panels_of_the_host_have_series() {
    let page = ServedPage::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana/flatcap.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let of_host: Vec<&Value> = panels.filter(|panel| panel["datasource"]["uid"] == "${recording}").collect();
    assert!(of_host.len() >= 6, "{of_host:?}");
    for target in of_host.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let expression = target["expr"].as_str().unwrap().replace("$__rate_interval", "1s");
        let (start, end) = (seconds(100), seconds(1500));
        let parameters = [("query", &*expression), ("start", &*start), ("end", &*end), ("step", "1s")];
        let answer = asked(&page, "query_range", &parameters);
        let series = answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{expression}: {answer}"));
        assert!(!series.is_empty(), "{expression}: {answer}");
    }
}

/// A running Prometheus with the samples of a recording.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts Prometheus. Prints a message and returns `None` if a program is missing.
    fn start(recording: &Path, folder: &Path) -> Option<Self> {
        let exporter = std::env::current_exe().unwrap().parent()?.parent()?.join("flatcap-convert");
        if !exporter.exists() {
            println!("skipped: {} is not built", exporter.display());
            return None;
        }
        let (text, blocks) = (folder.join("metrics.txt"), folder.join("blocks"));
        let mut export = Command::new(exporter);
        export
            .args(["export", "--to=openmetrics", "--step-ns=1000000"])
            .arg(format!("--output={}", text.display()));
        assert!(export.arg("--").arg(recording).output().unwrap().status.success());
        let mut promtool = Command::new("promtool");
        promtool.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(&text).arg(&blocks);
        let Ok(made) = promtool.output() else {
            println!("skipped: promtool is not here");
            return None;
        };
        assert!(made.status.success(), "{made:?}");
        std::fs::write(folder.join("empty.yml"), "").unwrap();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.join("empty.yml").display()))
            .arg(format!("--storage.tsdb.path={}", blocks.display()))
            .arg(format!("--web.listen-address={free}"))
            .args(["--storage.tsdb.retention.time=100y", "--log.level=error"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(process) = process else {
            println!("skipped: prometheus is not here");
            return None;
        };
        let mut own = Self { process, address: free };
        own.wait_until_ready();
        Some(own)
    }

    fn wait_until_ready(&mut self) {
        // The timeout is generous: Prometheus has nothing to replay and is usually ready within a
        // second.
        for _ in 0..1200 {
            if let Some(status) = self.process.try_wait().unwrap() {
                let mut said = String::new();
                let _read = self.process.stderr.take().unwrap().read_to_string(&mut said);
                panic!("prometheus ended with {status}: {said}");
            }
            if self.get("/-/ready").is_some_and(|(head, _)| head.contains(" 200 ")) {
                return;
            }
            WakeEvent::new().wait_until(monotonic_ns() + 100_000_000);
        }
        panic!("prometheus is not ready");
    }

    /// Sends a request. Returns head and body of the answer, or `None` if the connection is
    /// refused.
    fn get(&self, path: &str) -> Option<(String, Value)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        // The request uses HTTP/1.0, because answers to such requests are not chunked.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address).ok()?;
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while reader.read_line(&mut head).ok()? > 2 {}
        let mut body = Vec::new();
        reader.read_to_end(&mut body).ok()?;
        Some((head, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Returns whether two numbers, one from each answer, are equal within the tolerance.
fn agree(own: &str, other: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().unwrap();
    let (own, other) = (number(own), number(other));
    own.total_cmp(&other).is_eq()
        || (own.is_nan() && other.is_nan())
        || (own - other).abs() <= 1e-9 * other.abs().max(1e-6)
}

/// Compares two results series by series and returns the first difference.
fn difference(own: &Value, other: &Value) -> Option<String> {
    if own["data"]["resultType"] != other["data"]["resultType"] {
        return Some(format!("{} and {}", own["data"]["resultType"], other["data"]["resultType"]));
    }
    let list = |answer: &Value| match answer["data"]["result"].as_array() {
        Some(series) if series.iter().all(Value::is_object) => series.clone(),
        _ => vec![serde_json::json!({"metric": {}, "value": answer["data"]["result"]})],
    };
    let (own, mut others) = (list(own), list(other));
    if own.len() != others.len() {
        return Some(format!("{} and {} series", own.len(), others.len()));
    }
    for series in own {
        let Some(place) = others.iter().position(|other| other["metric"] == series["metric"]) else {
            return Some(format!("Prometheus lacks {}", series["metric"]));
        };
        let other = others.swap_remove(place);
        let samples = |series: &Value| match series["values"].as_array() {
            Some(values) => values.clone(),
            None => vec![series["value"].clone()],
        };
        let (own, other) = (samples(&series), samples(&other));
        if own.len() != other.len() {
            return Some(format!("{}: {} and {} values", series["metric"], own.len(), other.len()));
        }
        for (own, other) in own.iter().zip(&other) {
            let is_same = own[0].as_f64() == other[0].as_f64()
                && agree(own[1].as_str().unwrap(), other[1].as_str().unwrap());
            if !is_same {
                return Some(format!("{}: {own} and {other}", series["metric"]));
            }
        }
    }
    None
}

// Proves that answers equal the answers of a real Prometheus with the same samples, with a
// tolerance of 1e-9. The test uses single times and ranges, at samples and between samples, across
// lost samples, and before the start.
#[test]
fn a_prometheus_gives_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    write_recording(&recording);
    let Some(prometheus) = Prometheus::start(&recording, folder.path()) else { return };
    // This reader has no CPU budget, unlike the reader of a page.
    let shown = ShownPaths { paths: vec![recording], host: None, host_name: String::new(), can_mark: false };
    let mut reader = PromqlReader::new(shown);
    let mut answer = |path: &str, parameters: &str| {
        let request = PromqlRequest::parse(&Method::GET, &format!("/{path}"), (parameters, ""));
        let answer = request.and_then(|request| reader.answer(&request)).ok()?;
        Some(serde_json::from_slice::<Value>(&answer.body).unwrap())
    };
    let between = format!("{}.{:03}", wall_ns(777) / 1_000_000_000, wall_ns(777) / 1_000_000 % 1000 + 3);
    let grids = [
        (seconds(0), seconds(TICKS - 1), "1s"),
        (seconds(LOST.start - 30), seconds(LOST.end + 130), "70ms"),
        (between.clone(), seconds(1100), "333ms"),
        // The range ends at the last sample, because the text format that Prometheus reads cannot
        // express the end of the run.
        (seconds(1500), seconds(TICKS - 1), "90ms"),
    ];
    let mut compared = 0;
    let mut differences = Vec::new();
    for expression in EXPRESSIONS.iter().chain(&WRONG) {
        let mut requests: Vec<(&str, String)> = grids
            .iter()
            .map(|(start, end, step)| {
                let parameters = [("query", *expression), ("start", start), ("end", end), ("step", step)];
                ("query_range", encoded(&parameters))
            })
            .collect();
        requests.push(("query", encoded(&[("query", *expression), ("time", &between)])));
        for (path, parameters) in requests {
            let own = answer(path, &parameters);
            let (_, other) = prometheus.get(&format!("/api/v1/{path}?{parameters}")).unwrap();
            let found = match (own, other["status"] == "success") {
                (Some(own), true) => difference(&own, &other),
                (None, false) => None,
                (own, _) => Some(format!("{own:?} and {}", other["error"])),
            };
            differences.extend(found.map(|found| format!("{expression} ({path} {parameters}): {found}")));
            compared += 1;
        }
    }
    assert_eq!(compared, 5 * (EXPRESSIONS.len() + WRONG.len()));
    assert!(differences.is_empty(), "{differences:#?}");
    for expression in EXPRESSIONS.iter().filter(|expression| !expression.contains("no_such")) {
        let answer = answer("query", &encoded(&[("query", *expression), ("time", &between)])).unwrap();
        assert_ne!(answer["data"]["result"], serde_json::json!([]), "{expression} compares nothing");
    }
    for expression in WRONG {
        let parameters = encoded(&[("query", expression), ("time", &between)]);
        assert_eq!(answer("query", &parameters), None, "{expression}");
    }
}
