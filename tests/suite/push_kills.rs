//! Kill -9 of applications that push, of the recorder with its compressor, and of the shipper, at
//! random moments.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flatcap_format::testing::effort;
use flatcap_os::clock::monotonic_ns;
use flatcap_push::OnFullLane;
use flatcap_sampling::sources::synthetic::{point, value};

use crate::pushing::{self, SEED, client_named, gaps, orders, payload, rows, verified_lost};
use crate::rig::{Process, Rig, eventually, number, signal};

/// Number of kills, unless `FLATCAP_KILLS` sets another.
const KILLS: u64 = 6;
/// Longest time between two kills, and from a recorder to the next one, in microseconds.
const INTERVAL_US: u64 = 300_000;
/// Time between two pushes of an application, at least.
const PUSH_INTERVAL: Duration = Duration::from_micros(200);
/// Number of pushes after which it pauses, for longer than most recorders live. The samples pushed
/// before the pause are only in the lane at the start of the next recorder.
const PUSHES_AT_ONCE: u64 = 400;
const PAUSE: Duration = Duration::from_millis(600);
/// Memory of its lane.
const LANE_BYTES: u64 = 8 << 20;
/// The samples of an application are numbered from a multiple of this on.
const NUMBERS: u64 = 1 << 32;
/// Number of the application that is not killed before the end.
const PATIENT: u64 = 1 << 20;

/// Returns the number of kills in one data directory, and the pause of the application that
/// outlives them: longer than a recorder needs to compress what it finds at its start; by hand,
/// minutes.
fn patience() -> (u64, Duration) {
    effort::by_hand((10, Duration::from_secs(4)), (250, Duration::from_secs(150)))
}

/// Variable that makes a test of this file the application of another one: its push socket, its
/// file of what it has committed, its first number, and its pause in milliseconds.
const APPLICATION: &str = "FLATCAP_TEST_PUSH_KILLS";

// The application of the test below: pushes consecutive numbers, and notes how many it has pushed.
// It pauses from time to time.
#[test]
#[ignore = "started by other tests"]
fn application() {
    let arguments = std::env::var(APPLICATION).expect("from the test that starts this one");
    let [socket, committed, first, pause] = arguments.split('|').collect::<Vec<_>>()[..] else { panic!() };
    let pause = Duration::from_millis(pause.parse().unwrap());
    let committed = File::options().write(true).open(committed).unwrap();
    let first: u64 = first.parse().unwrap();
    // A lane for more than ten seconds: a recorder that has no processor for that long loses none.
    let client = client_named(&client_name(first), Path::new(socket), LANE_BYTES);
    let orders = orders(&client, OnFullLane::DropNewest);
    let mut pushed = 0_u64;
    loop {
        // A dropped sample is pushed again: each number is used once.
        if orders.push(&payload(first + pushed)).is_ok() {
            pushed += 1;
            committed.write_all_at(&pushed.to_le_bytes(), 0).unwrap();
            if pushed.is_multiple_of(PUSHES_AT_ONCE) {
                std::thread::sleep(pause);
            }
        }
        std::thread::sleep(PUSH_INTERVAL);
    }
}

/// Returns the name under which an application pushes.
fn client_name(first: u64) -> String {
    format!("application-{}", first / NUMBERS)
}

/// An application, and the file in which it notes how many samples it has committed.
struct CountingApplication {
    process: Process,
    committed: PathBuf,
    first: u64,
}

impl CountingApplication {
    fn start(rig: &Rig, number: u64, pause: Duration) -> Self {
        let first = number * NUMBERS;
        let committed = rig.write(&format!("committed-{number}"), 0_u64.to_le_bytes());
        let socket = pushing::socket(rig);
        let pause_ms = pause.as_millis();
        let arguments = format!("{}|{}|{first}|{pause_ms}", socket.display(), committed.display());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "push_kills::application", "--ignored", "--nocapture"])
            .env(APPLICATION, arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let application = Self { process: Process(Some(child)), committed, first };
        eventually("a sample of the application", || application.committed() > 0);
        application
    }

    /// Returns how many samples it has committed at least: one more may be on the way to its note.
    fn committed(&self) -> u64 {
        u64::from_le_bytes(std::fs::read(&self.committed).unwrap().try_into().unwrap())
    }
}

/// The program that ships the recording of a rig, and the lake to which it does.
struct Lake {
    program: PathBuf,
    python: PathBuf,
    data: PathBuf,
    folder: PathBuf,
}

impl Lake {
    /// Returns `None`, and prints one line, if `cargo test` has not built the program, or there is
    /// no Python with `DuckDB`, which .ci/run installs.
    fn of(rig: &Rig) -> Option<Self> {
        let program = Path::new(env!("CARGO_BIN_EXE_flatcap")).with_file_name("flatcap-ship");
        let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/judges/bin/python");
        let python = [installed, PathBuf::from("python3")].into_iter().find(|python| {
            let imports = Command::new(python).args(["-c", "import duckdb"]).output();
            imports.is_ok_and(|output| output.status.success())
        });
        let lake = python.filter(|_| program.exists()).map(|python| Self {
            program,
            python,
            data: rig.data(),
            folder: rig.path("lake"),
        });
        if lake.is_none() {
            println!("without a lake: no flatcap-ship, or no Python with duckdb");
        }
        lake
    }

    fn command(&self, verb: &str) -> Command {
        let to = format!("file://{}", self.folder.display());
        let mut command = Command::new(&self.program);
        command.arg(verb).arg("--data-dir").arg(&self.data).args(["--to", &to]);
        command
    }

    /// Starts the service.
    fn run(&self) -> Process {
        let mut command = self.command("run");
        Process(Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()))
    }

    /// Returns how many samples of a source the lake has, and how many different ones.
    fn counted(&self, source: &str) -> Vec<String> {
        let files = format!("{}/v1/hot/source={source}/**/*.parquet", self.folder.display());
        let query = format!("select count(*), count(distinct counter) from '{files}'");
        let script = format!("import duckdb\nprint(*duckdb.sql({query:?}).fetchall()[0])");
        let output = Command::new(&self.python).args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
    }
}

/// Starts a recorder that compresses what it has sealed, and what earlier ones have left.
fn compressing(rig: &Rig) -> Process {
    let config = rig.write("flatcap.toml", "[push]\nenabled = true\n");
    let args = ["record", "--quiet", "--config", config.to_str().unwrap(), "--source", "synthetic@10ms"];
    let mut command = rig.command(&args);
    command.env("FLATCAP_COMPRESS__ENABLED", "true").stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = Process(Some(command.spawn().unwrap()));
    eventually("the push socket", || pushing::is_open(rig));
    process
}

/// Kills the recorder, the shipper or the application, at random, and starts it again; then checks
/// the files and the lake.
fn kill_in_turns(seed: u64, kills: std::ops::Range<u64>) {
    let rig = Rig::new();
    let random = |kill: u64, what: u64| value(seed, kill, what);
    let mut recorder = compressing(&rig);
    let mut recorders = 0;
    let mut history = Vec::new();
    let lake = Lake::of(&rig);
    let mut shipper = lake.as_ref().map(Lake::run);
    let mut patient = CountingApplication::start(&rig, PATIENT, patience().1);
    let mut applications = vec![CountingApplication::start(&rig, 0, PAUSE)];
    for kill in kills.clone() {
        std::thread::sleep(Duration::from_micros(random(kill, 0) % INTERVAL_US));
        let number = applications.len() as u64;
        let application = applications.last_mut().unwrap();
        if random(kill, 3).is_multiple_of(3)
            && let Some((lake, shipper)) = lake.as_ref().zip(shipper.as_mut())
        {
            shipper.kill();
            *shipper = lake.run();
            history.push("the shipper".to_owned());
            continue;
        }
        if random(kill, 1).is_multiple_of(2) {
            // Without a service manager, its lanes are with it and with the recorder alone: both
            // may not be killed before what an earlier recorder has left is in the files.
            eventually("the rescue", || pushing::count(&rig, "lanes_waiting") == 0);
            application.process.kill();
            history.push(format!("application {}", number - 1));
            applications.push(CountingApplication::start(&rig, number, PAUSE));
            continue;
        }
        history.push(format!("the recorder beside application {}", number - 1));
        recorder.kill();
        recorders += 1;
        std::thread::sleep(Duration::from_micros(random(kill, 2) % INTERVAL_US));
        recorder = compressing(&rig);
        let name = client_name(applications.last().unwrap().first);
        eventually("the application at the new recorder", || pushing::has_recorded(&rig, &name));
    }
    let what = format!("kills {kills:?} of seed {seed}");
    applications.last_mut().unwrap().process.kill();
    // Its lane of an earlier run is with it alone until it has handed it over.
    let name = client_name(patient.first);
    eventually("the patient application at the last recorder", || pushing::has_recorded(&rig, &name));
    eventually("the rescue", || pushing::count(&rig, "lanes_waiting") == 0);
    patient.process.kill();
    applications.push(patient);
    eventually("no lane", || pushing::count(&rig, "lanes") == 0);
    eventually("the recovery", || {
        rig.status().is_some_and(|status| status["recorder"]["recovering"] == false)
    });
    eventually("the rescue", || pushing::count(&rig, "lanes_waiting") == 0);
    recorder.end("TERM").assert_no_panic();
    // Intact, and recorded + lost = begun for each source.
    let lost = verified_lost(&rig);
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    for row in rows(&rig, "orders") {
        let k = number(&row["data"]["counter"]);
        assert_eq!(number(&row["data"]["noise"]), point(SEED, k).noise, "{what}: {row}");
        *found.entry(k).or_default() += 1;
    }
    assert!(found.values().all(|count| *count == 1), "{what}: none is there twice");
    for application in &applications {
        let (first, committed) = (application.first, application.committed());
        let present = found.range(first..first + NUMBERS).count() as u64;
        let of_it = committed.saturating_sub(present);
        assert_eq!(of_it, 0, "{what}: of {committed} are missing from {first} on; killed: {history:?}");
        assert!(present <= committed + 1, "{what}: {present} of {committed}");
    }
    // Samples that a killed application was writing, or a killed recorder was taking of the host.
    assert!(lost <= applications.len() as u64 + recorders, "{what}: {lost}");
    if let Some(lake) = &lake {
        shipper.unwrap().kill();
        let once = lake.command("once").output().unwrap();
        // Half of the random values are above 2^63, and the lake lacks them; the verb reports it.
        assert!(matches!(once.status.code(), Some(0 | 3)), "{what}: {once:?}");
        let samples = found.len().to_string();
        assert_eq!(lake.counted("orders"), [samples.clone(), samples], "{what}: killed: {history:?}");
    }
    let causes: Vec<String> = gaps(&rig).into_iter().map(|(_, causes)| causes).collect();
    assert!(causes.iter().all(|cause| cause == "crash"), "{what}: {causes:?}");
}

// Proves that every sample that an application has committed is in the recording and in the lake
// exactly once, and that begun = recorded + lost for each of its sources. Applications, recorders
// and shippers are killed at random moments and started again, and applications pause and push
// again. One pauses for longer than several recorders live, and than their compressors need for
// its first samples.
#[test]
fn every_committed_sample_is_there_once() {
    let kills = std::env::var("FLATCAP_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let seed = monotonic_ns();
    let (at_once, _) = patience();
    for first in (0..kills).step_by(at_once as usize) {
        kill_in_turns(seed, first..kills.min(first + at_once));
    }
}

// Proves that the compressor loses no rescued frame. Method: an application pushes before a kill,
// and pushes again, which hands its lane over, while the segment of the killed run is being
// compressed or after that.
#[test]
fn a_rescue_during_a_compression_loses_nothing() {
    const BEFORE: u64 = 12_000;
    const IN_LANE: u64 = 1000;
    let rig = Rig::new();
    // So slow that the compression takes some seconds.
    let compress = "[compress]\ncodec = \"zstd:19\"\ncpu_budget = \"5%\"\n";
    let config = rig.write("flatcap.toml", format!("[push]\nenabled = true\n{compress}"));
    let record = || {
        let args = ["record", "--quiet", "--config", config.to_str().unwrap(), "--source", "synthetic@10ms"];
        let mut command = rig.command(&args);
        command.env_remove("FLATCAP_COMPRESS__ENABLED").stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = Process(Some(command.spawn().unwrap()));
        eventually("the push socket", || rig.status().is_some_and(|status| status["push"]["open"] == true));
        process
    };
    let mut recorder = record();
    let client = client_named("test", &pushing::socket(&rig), LANE_BYTES);
    let orders = orders(&client, OnFullLane::Block);
    let mut pushed = 0;
    let mut push = |count: u64| {
        for _ in 0..count {
            orders.push(&payload(pushed)).unwrap();
            pushed += 1;
        }
        pushed
    };
    push(BEFORE);
    eventually("frames", || pushing::count(&rig, "recorded") == BEFORE);
    signal(recorder.0.as_ref().unwrap(), "STOP");
    push(IN_LANE);
    recorder.kill();
    let recorder = record();
    eventually("the recovery", || {
        rig.status().is_some_and(|status| status["recorder"]["recovering"] == false)
    });
    // The compressor looks at the directory when a segment is sealed, and takes the oldest first.
    assert_eq!(rig.call(&["rotate"]).status, Some(0));
    let is_compressing = || {
        let mut entries = std::fs::read_dir(rig.data()).unwrap();
        entries.any(|entry| entry.unwrap().file_name().to_str().unwrap().ends_with(".compressing"))
    };
    let compressed = || rig.status().map_or(0, |status| number(&status["compression"]["segments"]));
    // On a fast machine it may have ended.
    eventually("the compression", || is_compressing() || compressed() > 0);
    let mut begun = 0;
    eventually("the rescue", || {
        // The client looks for the recorder once a second, when it pushes.
        std::thread::sleep(Duration::from_millis(20));
        begun = push(1);
        pushing::count(&rig, "lanes") >= 1 && pushing::count(&rig, "lanes_waiting") == 0
    });
    eventually("the end of the compression", || compressed() > 0 && !is_compressing());
    drop((orders, client));
    eventually("no lane", || pushing::count(&rig, "lanes") == 0);
    recorder.end("TERM").assert_no_panic();
    // The sample of the host that the recorder was taking when it was stopped.
    assert!(verified_lost(&rig) <= 1);
    let mut found: Vec<u64> =
        rows(&rig, "orders").iter().map(|row| number(&row["data"]["counter"])).collect();
    found.sort_unstable();
    assert_eq!(found, (0..begun).collect::<Vec<_>>(), "each once");
}
