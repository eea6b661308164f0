//! Recording of this host: counts, signals, rotation, and errors at the start.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::{Process, Rig, assert_ticks, eventually, finish, has_segment, number, signal};

const DEFAULT_SOURCES: [&str; 8] = ["cpu", "memory", "vmstat", "load", "disk", "network", "pressure", "self"];

// Proves that the README's first command works: 3 s with the built-in defaults, after which every
// source has as many ticks, begun or missed, as its period implies for the time that the run took.
#[test]
fn three_seconds_of_this_host() {
    const RUN: Duration = Duration::from_secs(3);
    let rig = Rig::new();
    let begin = Instant::now();
    let called = rig.record(&["--for", "3s"]);
    let most = begin.elapsed();
    assert!(called.out.is_empty(), "data goes to files only");
    assert!(called.err.contains("flatcap explain"), "the summary suggests the next command: {}", called.err);
    let verified = rig.call(&["verify", "--json", "flatcap-data"]);
    assert_eq!(verified.status, Some(0), "{verified:?}");
    assert_eq!(verified.json()["intact"], true);
    assert_eq!(verified.json()["unexplained"], 0);

    let info = rig.info();
    let sources = info["sources"].as_array().unwrap();
    let names: Vec<&str> = sources.iter().map(|source| source["name"].as_str().unwrap()).collect();
    for name in DEFAULT_SOURCES {
        // Only a kernel without pressure stall information is expected to lack a source here.
        assert!(names.contains(&name) || name == "pressure", "{name} is missing among {names:?}");
    }
    for source in sources {
        let period_ns = number(&source["period_ns"]) as f64;
        assert_ticks(source, RUN, most);
        assert!(number(&source["recorded"]) > 0, "{source}");
        assert_eq!((number(&source["lost"]), &source["lost_causes"]), (0, &Value::Null), "{source}");
        let latency = |key: &str| ["p50", "p99", "max"].map(|quantile| number(&source[key][quantile]));
        for [p50, p99, max] in [latency("lateness_ns"), latency("read_duration_ns")] {
            assert!(0 < p50 && p50 <= p99 && p99 <= max, "{source}");
        }
        assert_eq!(source["requested_hz"], 1e9 / period_ns, "{source}");
        let achieved_hz = source["achieved_hz"].as_f64();
        assert!(achieved_hz.is_none_or(|hz| hz <= 1e9 / period_ns), "{source}");
    }
    let heads = called.err.lines().find(|line| line.trim_start().starts_with("source ")).unwrap();
    for head in ["requested Hz", "achieved Hz", "missed", "incomplete", "lateness p50", "read p50"] {
        assert!(heads.contains(head), "{head}: {heads}");
    }
    assert_eq!(info["segments"][0]["state"], "sealed");
}

// Proves that every sample at 10 kHz is recorded or explained, and has the right values. Method: 2
// s of the synthetic source, whose values are recomputed from each sequence number.
#[test]
fn ten_thousand_samples_a_second_are_accounted_for() {
    let rig = Rig::new();
    let begin = Instant::now();
    let called = rig.call(&["record", "--for", "2s", "--source", "synthetic@100us"]);
    let most = begin.elapsed();
    assert!(matches!(called.status, Some(0 | 3)), "{called:?}");
    let info = rig.info();
    let source = &info["sources"][0];
    let (recorded, lost) = (number(&source["recorded"]), number(&source["lost"]));
    assert_eq!(called.status == Some(3), lost > 0, "lost samples show in the exit status");
    assert_ticks(source, Duration::from_secs(2), most);

    let verify = rig.verify();
    assert_eq!((&verify["intact"], &verify["unexplained"]), (&Value::from(true), &Value::from(0)));
    assert_eq!((number(&verify["frames"]), number(&verify["lost"])), (recorded, lost));

    let mut seen = 0;
    let mut last_seq = None;
    for path in rig.segments("bin") {
        crate::independent_reader::samples(&path, |sample| {
            assert!(last_seq.is_none_or(|last| sample.seq > last), "in order");
            last_seq = Some(sample.seq);
            let point = flatbuffers::root::<flatcap_schemas::synthetic::Point<'_>>(sample.payload).unwrap();
            let expected = flatcap_sampling::sources::synthetic::point(0, sample.seq);
            assert_eq!(point.counter(), expected.counter);
            assert_eq!(point.wave().to_bits(), expected.wave.to_bits());
            assert_eq!(point.noise(), expected.noise);
            seen += 1;
        });
    }
    assert_eq!(seen, recorded);
}

// Proves that SIGTERM and SIGINT end a run cleanly, with everything sampled sealed and intact.
#[test]
fn a_terminated_run_is_sealed() {
    for name in ["TERM", "INT"] {
        let rig = Rig::new();
        let child = rig.start(&["record", "--source", "synthetic@1ms", "--source", "cpu", "--quiet"]);
        eventually("frames on disk", || has_segment(&rig.data(), 64 << 10));
        signal(&child, name);
        let called = finish(child);
        assert_eq!(called.status, Some(0), "{called:?}");
        assert_eq!(called.err, "", "a quiet run without errors prints nothing");
        assert_eq!(rig.segments("active").len(), 0);
        let verify = rig.verify();
        assert_eq!((&verify["intact"], &verify["unexplained"]), (&Value::from(true), &Value::from(0)));
        assert_eq!(number(&verify["lost"]), 0);
    }
}

// Proves that a reload without a configuration file is logged and changes nothing.
#[test]
fn a_hangup_without_a_change() {
    let rig = Rig::new();
    let is_said = || {
        let log = std::fs::read_to_string(rig.path("record.log")).unwrap();
        log.contains("reloaded: nothing has changed")
    };
    let mut is_hung_up = false;
    let args = ["--source", "synthetic@1ms"];
    rig.record_until(&args, "a reload", || {
        if !is_hung_up && rig.has_samples(10) {
            let pid = number(&rig.status().unwrap()["recorder"]["pid"]);
            let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
            is_hung_up = true;
        }
        is_said()
    });
}

// Proves that segments of 1 MiB contain every frame exactly once, in order, and that all but the
// newest are sealed during the run.
#[test]
fn rotation_keeps_every_frame_once() {
    let rig = Rig::new();
    let config = rig.write(
        "small.toml",
        "[storage]\nsegment_size = \"1MiB\"\n[source.synthetic]\nenabled = true\nperiod = \"200us\"\n\
         shape = \"wide\"\nfields = 100\n",
    );
    let child = rig.start(&["record", "--config", config.to_str().unwrap(), "--quiet"]);
    eventually("four segments", || rig.data().is_dir() && rig.segments("bin").len() >= 4);
    eventually("the newest, and at most one that is being published", || rig.segments("active").len() <= 2);
    signal(&child, "TERM");
    assert_eq!(finish(child).status, Some(0));

    let segments = rig.segments("bin");
    assert!(segments.len() >= 5);
    assert_eq!(rig.segments("active").len(), 0);
    let mut next = std::collections::BTreeMap::new();
    for path in &segments {
        assert!(path.metadata().unwrap().len() <= (1 << 20) + (64 << 10), "{}", path.display());
        crate::independent_reader::samples(path, |sample| {
            let expected = next.entry(sample.source).or_insert(0);
            assert_eq!(sample.seq, *expected, "each number once and in order");
            *expected += 1;
        });
    }
    assert_eq!(rig.verify()["intact"], true);
    let recorded: u64 =
        rig.info()["sources"].as_array().unwrap().iter().map(|source| number(&source["recorded"])).sum();
    assert_eq!(recorded, next.values().sum::<u64>());
}

// Proves that a segment is also closed by its age, and not earlier. Method: one second, with little
// data; the start times of the segments.
#[test]
fn rotation_by_age() {
    const AGE_NS: u64 = 1_000_000_000;
    let rig = Rig::new();
    let config = rig.write("aged.toml", "[storage]\nsegment_age = \"1s\"\n");
    let args = ["--config", config.to_str().unwrap(), "--source", "load@10ms"];
    rig.record_until(&args, "two segments", || rig.data().is_dir() && rig.segments("bin").len() >= 2);
    let begun_ns = |path| flatcap_format::segment::SegmentReader::open(path).unwrap().header().clocks.mono_ns;
    let begun_ns: Vec<u64> = rig.segments("bin").iter().map(|path| begun_ns(path)).collect();
    assert!(begun_ns.windows(2).all(|pair| pair[1] - pair[0] >= AGE_NS), "{begun_ns:?}");
    assert_eq!(rig.verify()["intact"], true);
}

// Proves that record and verify work with each kind of checksum.
#[test]
fn every_checksum_kind_records() {
    for kind in ["xxh3", "crc32", "crc16", "none"] {
        let rig = Rig::new();
        let config = rig.write("kind.toml", format!("[storage]\nchecksum = \"{kind}\"\n"));
        rig.record_samples(&["--config", config.to_str().unwrap()], 1);
        let called = rig.call(&["verify", "--json", "--strict", "flatcap-data"]);
        assert_eq!(called.status, Some(0), "{kind}: {called:?}");
        assert_eq!(rig.info()["segments"][0]["checksum"], kind);
    }
}

// Proves that a second run continues the numbering and does not change the files of the first.
#[test]
fn a_second_run_adds_a_segment() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "load@10ms"], 3);
    let first = rig.segments("bin");
    let before = std::fs::read(&first[0]).unwrap();
    rig.record_samples(&["--source", "load@10ms"], 3);
    let both = rig.segments("bin");
    assert_eq!(both.len(), 2);
    assert_eq!(both[0], first[0]);
    assert_eq!(std::fs::read(&first[0]).unwrap(), before);
    assert!(both[1].file_name().unwrap().to_str().unwrap().starts_with("0000000001-"));
    assert_eq!(rig.verify()["intact"], true);
}

// Proves that two recorders never share a directory.
#[test]
fn a_directory_in_use_is_refused() {
    let rig = Rig::new();
    let first = rig.start(&["record", "--source", "load", "--quiet"]);
    eventually("the first segment", || has_segment(&rig.data(), 1));
    let second = rig.call(&["record", "--for", "1s"]);
    assert_eq!(second.status, Some(1), "{second:?}");
    assert!(second.err.contains("in use by another recorder"), "{second:?}");
    assert_eq!(rig.info()["segments"][0]["state"], "active");
    let live = rig.call(&["verify", "--json", "flatcap-data"]);
    assert_eq!(live.status, Some(0), "a live segment is not damage: {live:?}");
    signal(&first, "TERM");
    assert_eq!(finish(first).status, Some(0));
}

// Proves that an unusable data directory is refused with its path: one below a file, and a file.
#[test]
fn an_unusable_directory_is_refused() {
    let rig = Rig::new();
    rig.write("file", "");
    for path in ["file/data", "file"] {
        let called = rig.call(&["record", "--for", "1s", "--data-dir", path]);
        assert_eq!(called.status, Some(1), "{called:?}");
        assert!(called.err.contains(&format!("the data directory {path}")), "{called:?}");
    }
}

// Proves that a source that this host lacks is skipped with a warning, or refused if it is
// required. Method: a host root with nothing but /proc/loadavg.
#[test]
fn missing_sources_are_skipped_or_refused() {
    let rig = Rig::new();
    std::fs::create_dir_all(rig.path("root/proc")).unwrap();
    rig.write("root/proc/loadavg", "0.10 0.20 0.30 1/200 4242\n");
    let config = |required| {
        format!(
            "[recorder]\nhost_root = \"{}\"\n[source.cpu]\nrequired = {required}\n",
            rig.path("root").display()
        )
    };
    let lenient = rig.write("lenient.toml", config(false));
    let called = rig.record_samples(&["--config", lenient.to_str().unwrap()], 1);
    assert!(called.err.contains("source=\"cpu\"") && called.err.contains("skipped: "), "{called:?}");
    let names: Vec<String> = rig.info()["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["load", "self"]);

    let strict = rig.write("strict.toml", config(true));
    let called = rig.call(&["record", "--config", strict.to_str().unwrap(), "--for", "100ms"]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains("source cpu: ") && called.err.contains("is required"), "{called:?}");
    let called = rig.call(&["record", "--config", lenient.to_str().unwrap(), "--source", "cpu"]);
    assert_eq!(called.status, Some(1), "named on the command line is required: {called:?}");
}

// Proves that a device that does not answer blocks only its own source, and not the end of the run.
// Method: a sensor that appears during the run and is a pipe without a writer, together with a
// second source.
#[test]
fn a_hung_sensor_blocks_no_other_source() {
    let rig = Rig::new();
    std::fs::create_dir_all(rig.path("root/proc")).unwrap();
    rig.write("root/proc/loadavg", "0.10 0.20 0.30 1/200 4242\n");
    for chip in ["root/sys/class/hwmon/hwmon0", "hwmon1"] {
        std::fs::create_dir_all(rig.path(chip)).unwrap();
        rig.write(&format!("{chip}/name"), "disk\n");
    }
    rig.write("root/sys/class/hwmon/hwmon0/temp1_input", "30000\n");
    let pipe = rig.path("hwmon1/temp1_input");
    if !Command::new("mkfifo").arg(pipe).status().is_ok_and(|status| status.success()) {
        return println!("skipped: no mkfifo");
    }
    let config =
        rig.write("hung.toml", format!("[recorder]\nhost_root = \"{}\"\n", rig.path("root").display()));
    let args =
        ["record", "--config", config.to_str().unwrap(), "--source", "hwmon@100ms", "--source", "load@10ms"];
    let recording = Process(Some(rig.start(&args)));
    eventually("samples of both", || rig.has_samples(2));
    std::fs::rename(rig.path("hwmon1"), rig.path("root/sys/class/hwmon/hwmon1")).unwrap();
    let of = |name: &str, key: &str| rig.source(name).map_or(0, |source| number(&source[key]));
    // Then no further sample is begun: the thread that reads the sensor is blocked for good.
    eventually("a read that does not return", || {
        let (hung, load) = (of("hwmon", "begun"), of("load", "recorded"));
        eventually("five ticks of the sensor", || of("load", "recorded") >= load + 50);
        of("hwmon", "begun") == hung && of("hwmon", "timed_out") > 0
    });
    let called = recording.end("TERM");
    assert_eq!(called.status, Some(3), "a sample is lost: {called:?}");
    let report = rig.info();
    let of = |name: &str, key: &str| {
        let mut sources = report["sources"].as_array().unwrap().iter();
        number(&sources.find(|source| source["name"] == name).unwrap()[key])
    };
    assert!(of("load", "lost") == 0 && of("hwmon", "lost") > 0, "{report}");
}

// Proves that a stop does not wait for the next tick. Method: an hourly source.
#[test]
fn a_stop_does_not_wait_for_a_tick() {
    let rig = Rig::new();
    let mut child = rig.start(&["record", "--source", "load@1h", "--quiet"]);
    eventually("the first frame", || has_segment(&rig.data(), 1) && rig.info()["frames"] == 1);
    signal(&child, "TERM");
    eventually("the end", || child.try_wait().unwrap().is_some());
    assert_eq!(finish(child).status, Some(0));
    assert_eq!(number(&rig.verify()["frames"]), 1, "the first tick is at the start");
}

// Proves that a second signal ends the program at once and leaves readable files. Method: a program
// whose standard error is a full pipe that is never read, so that it cannot stop by itself.
#[test]
fn a_second_signal_exits_at_once() {
    let rig = Rig::new();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let stderr = writer.try_clone().unwrap();
    let child = rig.command(&["record", "--source", "synthetic@1ms"]).stderr(stderr).spawn().unwrap();
    eventually("frames on disk", || rig.has_samples(51));
    // Ends with an error when the reader is dropped.
    std::thread::spawn(move || std::io::copy(&mut std::io::repeat(b'.'), &mut writer));
    let mut filled = 0;
    eventually("a full pipe", || {
        std::thread::sleep(Duration::from_millis(100));
        let before = std::mem::replace(&mut filled, rustix::io::ioctl_fionread(&reader).unwrap());
        filled > 0 && filled == before
    });
    signal(&child, "TERM");
    eventually("a sealed segment", || rig.segments("bin").len() == 1);
    signal(&child, "INT");
    let called = finish(child);
    assert_eq!(called.status, Some(1), "{called:?}");
    let called = rig.call(&["dump", "flatcap-data", "--format", "jsonl"]);
    assert!(called.lines().len() > 50, "{called:?}");
}

// Proves that a killed recorder leaves all written frames readable, and that its segment is
// reported as torn. Method: kill -9, then info, verify and dump.
#[test]
fn a_killed_run_is_readable() {
    let rig = Rig::new();
    let mut child = rig.start(&["record", "--source", "synthetic@1ms", "--quiet"]);
    eventually("frames on disk", || rig.has_samples(51));
    child.kill().unwrap();
    child.wait().unwrap();
    let info = rig.info();
    assert_eq!(info["segments"][0]["state"], "torn");
    assert!(number(&info["frames"]) > 50);
    let verify = rig.call(&["verify", "--json", "flatcap-data"]);
    assert_eq!(verify.status, Some(3));
    assert!(verify.json()["damage"][0]["what"].as_str().unwrap().starts_with("not sealed"), "{verify:?}");
    assert_eq!(verify.json()["unexplained"], 0);
    // The next run records at the same time, and recovers its files.
    rig.record_samples(&["--source", "load@10ms"], 3);
    assert_eq!((rig.segments("bin").len(), rig.segments("active").len()), (2, 0));
    let verify = rig.verify();
    assert_eq!((&verify["intact"], &verify["unexplained"]), (&Value::from(true), &Value::from(0)));
    assert_eq!(rig.info()["segments"][0]["recovered"], true);
}

// Proves that a recording contains its configuration: recorded, printed and parsed again.
#[test]
fn the_configuration_is_in_the_recording() {
    let rig = Rig::new();
    let own = "[storage]\nsegment_size = \"3MiB\"\nmin_free = \"0\"\n[source.load]\nperiod = \"20ms\"\n";
    let config = rig.write("own.toml", own);
    rig.record_samples(&["--config", config.to_str().unwrap()], 1);
    let called = rig.call(&["info", "flatcap-data", "--attachment", "flatcap.toml"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let kept = flatcap::config::Config::parse("flatcap.toml", &called.text()).unwrap();
    let own = flatcap::config::Config::read(&config).unwrap();
    assert_eq!((kept.storage, kept.sources), (own.storage, own.sources));
    let called = rig.call(&["info", "flatcap-data", "--attachment", "other"]);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(called.err.contains("they have flatcap.toml"), "{called:?}");
}

// Proves that recording does not need a standard error.
#[test]
fn a_run_needs_no_terminal() {
    let rig = Rig::new();
    let mut command = rig.command(&["record", "--source", "load@10ms"]);
    let child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    eventually("samples", || rig.has_samples(3));
    signal(&child, "TERM");
    assert_eq!(finish(child).status, Some(0));
    assert_eq!(rig.verify()["intact"], true);
}
