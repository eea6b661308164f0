//! Measures the ticks of the default host sources while applications overload the push socket.
//! Budget: at least 99.9 % of the ticks that are kept without this load, a lateness p99 of at most
//! 1.5 times, and each tick begun or counted as missed.
//!
//! Each storm is a thread that runs as fast as it can. On a machine with few processors, any busy
//! thread delays samplers, so the bench also measures the same number of busy loops, and samplers
//! with real-time priority (`group.fast.priority`), which no other thread delays.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_push::{OnFullLane, PushSource, SourceOptions};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Uid, geteuid};
use serde_json::Value;

use crate::MeasuredRows;
use crate::numbers::{format_ns, median};
use crate::program::{Program, sleep_ns, wait_for};
use crate::push::{PAYLOAD_BYTES, SMALL_LANE_BYTES, connected, opaque};
use crate::table::{BenchLength, CaptureRow};

const TICKS_TARGET: f64 = 99.9;
const LATENESS_TARGET: f64 = 1.5;
/// The real-time priority of samplers that run before all storms.
const REALTIME: u8 = 1;
/// A user who may not push.
const REFUSED_USER: u32 = 65_533;
const HONEST_PER_MS: u64 = 1000; // frames
const REGISTRATIONS: u64 = 10_000;
/// A schema that has lists of strings, and its root type.
const KMSG: (&[u8], &str) =
    (include_bytes!("../../crates/flatcap-tasks/generated/kmsg.bfbs"), "flatcap.kernel.Kmsg");

type StormResult = Result<(), Box<dyn Error>>;
/// The work of a storm.
type Act = fn(&Storm<'_>) -> StormResult;

/// A running storm.
struct Storm<'a> {
    socket: &'a Path,
    is_over: &'a AtomicBool,
    calls: &'a AtomicU64,
}

impl Storm<'_> {
    /// Calls `act` until the end of the storm, at most `limit` times.
    fn repeat(&self, limit: u64, mut act: impl FnMut(u64) -> StormResult) -> StormResult {
        for number in 0..limit {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            act(number)?;
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Connects as a user who may not push, and closes the connection.
fn connects(storm: &Storm<'_>) -> StormResult {
    // Only this thread changes its user: the system call itself acts on one thread.
    rustix::thread::set_thread_res_uid(None::<Uid>, Uid::from_raw(REFUSED_USER), None::<Uid>)?;
    let address = SocketAddrUnix::new(storm.socket)?;
    storm.repeat(u64::MAX, |_| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        if connect(&stream, &address).is_err() {
            std::thread::yield_now();
        }
        Ok(())
    })
}

fn honest(storm: &Storm<'_>) -> StormResult {
    let client = connected(storm.socket, "honest", 4 << 20)?;
    let orders = opaque(&client, OnFullLane::DropNewest)?;
    let begin = monotonic_ns();
    storm.repeat(u64::MAX, |ms| {
        for _ in 0..HONEST_PER_MS {
            let _dropped = orders.push(&[7; PAYLOAD_BYTES]);
        }
        if let Some(early) = (begin + (ms + 1) * 1_000_000).checked_sub(monotonic_ns()) {
            sleep_ns(early);
        }
        Ok(())
    })
}

/// Returns a payload of 28 KB that refers to one text 30 times: the recorder accepts up to 32 times
/// the bytes of the payload.
fn shared_text() -> Vec<u8> {
    const LINES: usize = 30;
    const TEXT: usize = 27_999;
    let mut bytes = vec![0; 8];
    let at = |bytes: &Vec<u8>| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let words = |bytes: &mut Vec<u8>, words: &[u16]| {
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    let table = at(&bytes);
    words(&mut bytes, &[6, 8, 4, 0]);
    let root = at(&bytes);
    bytes.extend((root - table).to_le_bytes());
    bytes.extend([0; 4]);
    let list = at(&bytes);
    bytes.extend(u32::try_from(LINES).unwrap_or(0).to_le_bytes());
    bytes.resize(bytes.len() + 4 * LINES, 0);
    bytes.extend([0; 2]); // aligns the table that follows its vtable
    let line_table = at(&bytes);
    words(&mut bytes, &[14, 8, 0, 0, 0, 0, 4]);
    let line = at(&bytes);
    bytes.extend((line - line_table).to_le_bytes());
    bytes.extend([0; 4]);
    let text = at(&bytes);
    bytes.extend(u32::try_from(TEXT).unwrap_or(0).to_le_bytes());
    bytes.extend("\u{20ac}".repeat(TEXT / 3).bytes());
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let mut put = |at: u32, value: u32| {
        let at = at as usize;
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    };
    put(0, root);
    put(root + 4, list - root - 4);
    put(line + 4, text - line - 4);
    for number in 0..u32::try_from(LINES).unwrap_or(0) {
        let place = list + 4 + 4 * number;
        put(place, line - place);
    }
    bytes
}

fn expensive_frames(storm: &Storm<'_>) -> StormResult {
    let client = connected(storm.socket, "expensive", 4 << 20)?;
    let options = SourceOptions { name: "lines", root: KMSG.1, schema: KMSG.0, ..SourceOptions::default() };
    let lines: PushSource = client.source(options)?;
    let payload = shared_text();
    storm.repeat(u64::MAX, |_| {
        if lines.push(&payload).is_err() {
            std::thread::yield_now();
        }
        Ok(())
    })
}

fn triggers(storm: &Storm<'_>) -> StormResult {
    storm.repeat(u64::MAX, |number| {
        let client = connected(storm.socket, "triggers", SMALL_LANE_BYTES)?;
        let _refused = client.trigger(&format!("x{number}"));
        Ok(())
    })
}

fn registrations(storm: &Storm<'_>) -> StormResult {
    storm.repeat(REGISTRATIONS, |_| {
        let client = connected(storm.socket, "registrations", SMALL_LANE_BYTES)?;
        let _refused = opaque(&client, OnFullLane::DropNewest)?.push(&[7; PAYLOAD_BYTES]);
        Ok(())
    })
}

fn busy_loop(storm: &Storm<'_>) -> StormResult {
    storm.repeat(u64::MAX, |_| {
        std::hint::spin_loop();
        Ok(())
    })
}

/// Ticks of all host sources during a storm.
struct HostTicks {
    kept: u64,
    missed: u64,
    lateness_p99_ns: f64,
    calls: u64,
}

impl HostTicks {
    fn share(&self) -> f64 {
        self.kept as f64 / (self.kept + self.missed) as f64 * 100.0
    }
}

/// The ticks of one source so far.
struct SourceTicks {
    period_ns: u64,
    begun: u64,
    missed: u64,
}

/// Returns the ticks of each source of the host, and the time of the answer.
fn ticks(program: &Program) -> Result<(Vec<SourceTicks>, u64), Box<dyn Error>> {
    let status = program.status()?;
    let sources = status["sources"].as_array().ok_or("status has no sources")?;
    let number = |value: &Value| value.as_u64().ok_or("status lacks a count of a source");
    let of_source = |source: &Value| -> Result<_, Box<dyn Error>> {
        let period_ns = number(&source["period_ns"])?;
        Ok(SourceTicks { period_ns, begun: number(&source["begun"])?, missed: number(&source["missed"])? })
    };
    Ok((sources.iter().map(of_source).collect::<Result<_, _>>()?, monotonic_ns()))
}

/// Records the default sources during these storms, with this real-time priority of the samplers.
/// Fails if a tick is neither begun nor missed.
fn during(storms: &[Act], priority: u8, length: BenchLength) -> Result<HostTicks, Box<dyn Error>> {
    // The age of a count in an answer of `status`. A smoke test may run on any host.
    let answer_ns = length.pick(NS_PER_S / 2, 20 * NS_PER_S);
    // From the start until ticks are counted, and as long as they are.
    let (settling_ns, duration_ns) = length.pick((2 * NS_PER_S, 60 * NS_PER_S), (NS_PER_S / 4, NS_PER_S));
    let program = Program::new()?;
    let config = format!(
        "[push]\nenabled = true\nallow = [\"user:{}\"]\n[blackbox]\nwindow = \"20s\"\n[compress]\nenabled = false\n\
         [group.fast]\npriority = {priority}\n[group.slow]\npriority = {priority}\n",
        geteuid().as_raw()
    );
    let running = program.record(&config, &[])?;
    let socket = program.push_socket();
    wait_for("the push socket", || Ok(socket.exists().then_some(())))?;
    sleep_ns(settling_ns);
    let (before, from_ns) = ticks(&program)?;
    let (is_over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let storm = Storm { socket: &socket, is_over: &is_over, calls: &calls };
    let (after, until_ns) = std::thread::scope(|scope| {
        let begin = |act: &Act| {
            let (act, storm) = (*act, &storm);
            scope.spawn(move || act(storm).map_err(|error| error.to_string()))
        };
        let threads: Vec<_> = storms.iter().map(begin).collect();
        sleep_ns(duration_ns);
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a storm panicked")??;
        }
        ticks(&program)
    })?;
    running.terminate(true)?;
    let mut host = HostTicks { kept: 0, missed: 0, lateness_p99_ns: 0.0, calls: calls.into_inner() };
    for (before, after) in before.iter().zip(&after) {
        let (kept, missed) = (after.begun - before.begun, after.missed - before.missed);
        let due = (until_ns - from_ns) / after.period_ns;
        // The status has the counts as of the last tick.
        let slack = 2 + answer_ns / after.period_ns;
        if (kept + missed).abs_diff(due) > slack {
            return Err(format!("{kept} ticks begun and {missed} missed of {due}").into());
        }
        host.kept += kept;
        host.missed += missed;
    }
    // The host sources come first.
    let found: Vec<_> = program.info()?.into_iter().take(after.len()).collect();
    host.lateness_p99_ns = median(&found.iter().map(|source| source.lateness_p99_ns).collect::<Vec<_>>());
    Ok(host)
}

/// Measures one row: the ticks during these storms.
fn row(name: &'static str, what: &str, acts: &[Act], length: BenchLength) -> MeasuredRows {
    let alone = during(&[], 0, length)?;
    let busy = during(&vec![busy_loop as Act; acts.len()], 0, length)?;
    let with = during(acts, 0, length)?;
    // Without the privilege, the samplers keep their priority, and the log says so.
    let first = during(acts, REALTIME, length)?;
    let share = with.share() / alone.share() * 100.0;
    let times = with.lateness_p99_ns / alone.lateness_p99_ns;
    Ok(vec![CaptureRow {
        name,
        quantity: format!("ticks of the default sources kept during {what}; lateness p99"),
        target: format!(">= {TICKS_TARGET} %, <= {LATENESS_TARGET} x"),
        reached: format!("{share:.3} %, {times:.2} x"),
        met: Some(share >= TICKS_TARGET && times <= LATENESS_TARGET),
        details: format!(
            "missed {} of {}; {} alone, {} with, {} with priority {REALTIME}; during busy loops {:.3} %, \
             {}; {} calls",
            with.missed,
            with.kept + with.missed,
            format_ns(alone.lateness_p99_ns),
            format_ns(with.lateness_p99_ns),
            format_ns(first.lateness_p99_ns),
            busy.share() / alone.share() * 100.0,
            format_ns(busy.lateness_p99_ns),
            with.calls
        ),
    }])
}

/// Measures a row of storms that need a second user.
fn row_of_root(name: &'static str, what: &str, acts: &[Act], length: BenchLength) -> MeasuredRows {
    if geteuid().is_root() {
        return row(name, what, acts, length);
    }
    eprintln!("capture: {name} is skipped: only root can connect as another user");
    Ok(Vec::new())
}

pub fn million(length: BenchLength) -> MeasuredRows {
    row("storm-frames", "1 million honest frames/s", &[honest], length)
}

pub fn expensive(length: BenchLength) -> MeasuredRows {
    row("storm-verify", "frames that are expensive to verify", &[expensive_frames], length)
}

pub fn triggered(length: BenchLength) -> MeasuredRows {
    row("storm-triggers", "triggers of new clients", &[triggers], length)
}

pub fn registered(length: BenchLength) -> MeasuredRows {
    row("storm-registrations", "10,000 registrations", &[registrations], length)
}

pub fn refused(length: BenchLength) -> MeasuredRows {
    row_of_root("storm-connections", "connections of a refused user", &[connects], length)
}

pub fn together(length: BenchLength) -> MeasuredRows {
    let all: [Act; 5] = [honest, expensive_frames, triggers, registrations, connects];
    row_of_root("storm-all", "all five storms", &all, length)
}
