//! Measures what applications that push cost the recorder. Budget: 4 million frames of 64 bytes a
//! second from one client into a segment, none lost; 0.2 % of a core for 64 clients that push
//! nothing; lateness p99 of samplers with hostile clients at most 1.1 times the lateness without.
//!
//! The clients are threads of this process, with the library that applications use. The rate is
//! that from the first push until the recorder has recorded the last frame, so that the lane's own
//! space does not count. The hostile clients register schemas that are none, write random bytes
//! into their lanes while the recorder reads them, and connect again when they are refused.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_push::{ClientOptions, OnFullLane, PushClient, PushSource, SourceOptions};

use crate::MeasuredRows;
use crate::numbers::{ensure_equal, format_ns, median, range};
use crate::program::{Program, RunningRecorder, TIMEOUT_NS, host_sources, sleep_ns, wait_for};
use crate::table::{BenchLength, CaptureRow};

pub const PAYLOAD_BYTES: usize = 64;
const RATE_TARGET: f64 = 4e6;
const IDLE_CLIENTS: usize = 64;
const IDLE_TARGET: f64 = 0.2;
const LATENESS_TARGET: f64 = 1.1;
/// Compression of what is recorded is not measured here.
const CONFIG: &str = "[push]\nenabled = true\nclients = 128\n[compress]\nenabled = false\n";
/// Of one client that pushes all the time.
const LANE_BYTES: u64 = 4 << 20;
/// So that each of many clients has one.
pub const SMALL_LANE_BYTES: u64 = 256 << 10;
/// From the end of one attack to the next. They do not take a whole processor: on few of them, that
/// would delay the samplers whatever the recorder does.
const ATTACK_INTERVAL_NS: u64 = 5_000_000;
const TIMEOUT: Duration = Duration::from_nanos(TIMEOUT_NS);

/// Connects an application, and waits for the recorder.
pub fn connected(socket: &Path, name: &str, ring_bytes: u64) -> Result<PushClient, Box<dyn Error>> {
    let socket = Some(socket.to_owned());
    let options = ClientOptions {
        socket,
        ring_bytes,
        block_limit: TIMEOUT,
        reply_limit: TIMEOUT,
        ..ClientOptions::default()
    };
    let client = PushClient::open(name, options)?;
    wait_for("a connection", || Ok(client.is_connected().then_some(())))?;
    Ok(client)
}

/// A source of bytes without a schema.
pub fn opaque(client: &PushClient, on_full: OnFullLane) -> Result<PushSource, Box<dyn Error>> {
    Ok(client.source(SourceOptions { name: "orders", on_full, ..SourceOptions::default() })?)
}

fn recorder(program: &Program, sources: &[String]) -> Result<RunningRecorder, Box<dyn Error>> {
    let running = program.record(CONFIG, sources)?;
    wait_for("the push socket", || Ok(program.push_socket().exists().then_some(())))?;
    Ok(running)
}

/// Pushes for so long, and returns how many frames a second were recorded.
fn recorded_per_s(duration_ns: u64) -> Result<f64, Box<dyn Error>> {
    let program = Program::new()?;
    let running = recorder(&program, &["load@1s".to_owned()])?;
    let client = connected(&program.push_socket(), "bench", LANE_BYTES)?;
    let orders = opaque(&client, OnFullLane::Block)?;
    let (begin, mut pushed) = (monotonic_ns(), 0_u64);
    while monotonic_ns() - begin < duration_ns {
        for _ in 0..1000 {
            orders.push(&[7; PAYLOAD_BYTES])?;
        }
        pushed += 1000;
    }
    wait_for("all frames are recorded", || {
        let recorded = program.status()?["push"]["recorded"].as_u64().unwrap_or_default();
        Ok((recorded >= pushed).then_some(()))
    })?;
    let elapsed_ns = monotonic_ns() - begin;
    drop((orders, client));
    running.terminate(false)?;
    let found = program.checked_info(false)?;
    ensure_equal("frames", found.iter().map(|source| source.recorded).max().unwrap_or(0), pushed)?;
    Ok(pushed as f64 / elapsed_ns as f64 * 1e9)
}

pub fn rate(length: BenchLength) -> MeasuredRows {
    let (turns, duration_ns) = length.pick((5, 4 * NS_PER_S), (1, NS_PER_S / 2));
    let rates = (0..turns).map(|_| recorded_per_s(duration_ns)).collect::<Result<Vec<_>, _>>()?;
    let (rate, (lowest, highest)) = (median(&rates), range(&rates));
    Ok(vec![CaptureRow {
        name: "push-rate",
        quantity: "pushed frames/s from one client to a segment, 64-byte payloads".to_owned(),
        target: format!(">= {:.0} million/s, none lost", RATE_TARGET / 1e6),
        reached: format!("{:.2} million/s, none lost", rate / 1e6),
        met: Some(rate >= RATE_TARGET),
        details: format!(
            "{:.2} to {:.2} in {turns} turns of {} s",
            lowest / 1e6,
            highest / 1e6,
            duration_ns as f64 / 1e9
        ),
    }])
}

/// Returns the recorder's share of a core, in percent, with this number of clients that push
/// nothing.
fn idle_share(clients: usize, duration_ns: u64) -> Result<f64, Box<dyn Error>> {
    let program = Program::new()?;
    let running = recorder(&program, &["load@1s".to_owned()])?;
    let connect = |number: usize| -> Result<_, Box<dyn Error>> {
        let client = connected(&program.push_socket(), &format!("idle-{number}"), SMALL_LANE_BYTES)?;
        let source = opaque(&client, OnFullLane::DropNewest)?;
        // So that it has a lane, as an application that pushes now and then.
        source.push(&[7; PAYLOAD_BYTES])?;
        Ok((client, source))
    };
    let held = (0..clients).map(connect).collect::<Result<Vec<_>, _>>()?;
    // After a second without a frame, the recorder looks at the lanes less often.
    sleep_ns(2 * NS_PER_S);
    let (begin, before) = (monotonic_ns(), running.process_cpu_ns()?);
    sleep_ns(duration_ns);
    let share = (running.process_cpu_ns()? - before) as f64 / (monotonic_ns() - begin) as f64 * 100.0;
    drop(held);
    running.terminate(false)?;
    Ok(share)
}

pub fn idle(length: BenchLength) -> MeasuredRows {
    let (turns, duration_ns) = length.pick((5, 10 * NS_PER_S), (1, NS_PER_S));
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        without.push(idle_share(0, duration_ns)?);
        with.push(idle_share(IDLE_CLIENTS, duration_ns)?);
    }
    let more = median(&with) - median(&without);
    let (lowest, highest) = range(&with);
    Ok(vec![CaptureRow {
        name: "push-idle",
        quantity: format!("{IDLE_CLIENTS} clients that push nothing: CPU time more"),
        target: format!("<= {IDLE_TARGET} % of a core"),
        reached: format!("{more:.3} %"),
        met: Some(more <= IDLE_TARGET),
        details: format!(
            "{:.3} % without; {:.3} % with ({lowest:.3} to {highest:.3} in {turns} turns)",
            median(&without),
            median(&with)
        ),
    }])
}

/// Returns the lanes that this process has open.
fn own_lanes() -> Vec<File> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let is_lane = |path: &std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("memfd:flatcap-lane"))
    };
    let lanes = entries.map(|entry| entry.path()).filter(is_lane);
    lanes.filter_map(|path| File::options().read(true).write(true).open(path).ok()).collect()
}

/// Attacks the recorder until `stop`.
fn attack(socket: &Path, stop: &AtomicBool, registrations: &AtomicU64) -> Result<(), Box<dyn Error>> {
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 33
    };
    while !stop.load(Ordering::Relaxed) {
        let client = connected(socket, "hostile", SMALL_LANE_BYTES)?;
        let schema = [0xA5; 4096];
        let options =
            SourceOptions { name: "raw", root: "no.Root", schema: &schema, ..SourceOptions::default() };
        // Refused, by the library or by the recorder.
        if let Ok(source) = client.source(options) {
            let _refused = source.push(&[7; PAYLOAD_BYTES]);
        }
        registrations.fetch_add(1, Ordering::Relaxed);
        let orders = opaque(&client, OnFullLane::DropNewest)?;
        for _ in 0..100 {
            let _dropped = orders.push(&[7; PAYLOAD_BYTES]);
        }
        for lane in own_lanes() {
            for _ in 0..50 {
                // Among the frames, or in the states of the slabs.
                let _gone = lane.write_at(&[next().to_le_bytes()[0]], 2048 + next() % 16_384);
            }
        }
        sleep_ns(ATTACK_INTERVAL_NS);
    }
    Ok(())
}

/// Returns the lateness p99 of the host's samplers, as a median over them, in nanoseconds.
fn lateness_p99_ns(registrations: Option<&AtomicU64>, duration_ns: u64) -> Result<f64, Box<dyn Error>> {
    let program = Program::new()?;
    let running = recorder(&program, &host_sources())?;
    let (socket, stop) = (program.push_socket(), AtomicBool::new(false));
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let attacker = registrations.map(|registrations| {
            scope.spawn(|| attack(&socket, &stop, registrations).map_err(|error| error.to_string()))
        });
        sleep_ns(duration_ns);
        stop.store(true, Ordering::Relaxed);
        match attacker.map(std::thread::ScopedJoinHandle::join) {
            Some(Ok(result)) => Ok(result?),
            Some(Err(_)) => Err("the attacker panicked".into()),
            None => Ok(()),
        }
    })?;
    running.terminate(true)?;
    // The host's sources come first; each connection numbers its own samples from 0.
    let found: Vec<_> = program.info()?.into_iter().take(host_sources().len()).collect();
    for source in &found {
        ensure_equal("recorded + lost", source.recorded + source.lost, source.last_seq + 1)?;
    }
    Ok(median(&found.iter().map(|source| source.lateness_p99_ns).collect::<Vec<f64>>()))
}

pub fn hostile(length: BenchLength) -> MeasuredRows {
    let (turns, duration_ns) = length.pick((6, 10 * NS_PER_S), (1, 2 * NS_PER_S));
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let registrations = AtomicU64::new(0);
    for _ in 0..turns {
        without.push(lateness_p99_ns(None, duration_ns)?);
        with.push(lateness_p99_ns(Some(&registrations), duration_ns)?);
    }
    let times = median(&with) / median(&without);
    Ok(vec![CaptureRow {
        name: "push-hostile",
        quantity: "six host sources at 1 kHz beside hostile clients: lateness p99".to_owned(),
        target: format!("<= {LATENESS_TARGET} x"),
        reached: format!("{times:.2} x"),
        met: Some(times <= LATENESS_TARGET),
        details: format!(
            "{} without, {} with, in {turns} turns; {} clients",
            format_ns(median(&without)),
            format_ns(median(&with)),
            registrations.load(Ordering::Relaxed)
        ),
    }])
}
