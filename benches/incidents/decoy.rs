//! The decoys: eight processes that do a little of everything all the time. One at a time becomes
//! the culprit of an incident.
//!
//! A decoy is this program again, under another name. It gets orders on standard input, one line of
//! JSON each, and answers each with the times of its work.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::activity::{IncidentKind, WorkOrder};
use crate::random::SeededRandom;
use crate::wall_ns;

/// The names of the decoys.
pub const DECOYS: [&str; 8] =
    ["billing", "api-gw", "reportgen", "cachewarm", "certwatch", "indexer", "mailer", "syncd"];

/// The time of a piece of work, measured by the process that did it.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkTimes {
    pub begin_wall_ns: i64,
    pub end_wall_ns: i64,
    /// The amount of work done, in the unit of the order's `amount`.
    pub amount: u64,
}

/// A decoy, seen from the harness. Killed when dropped.
#[derive(Debug)]
pub struct Decoy {
    pub name: &'static str,
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Decoy {
    /// Starts a decoy that writes below `folder`.
    pub fn start(name: &'static str, seed: u64, folder: &Path) -> Result<Self, Box<dyn Error>> {
        let mut child =
            renamed(name, "--decoy", seed, folder)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answers = BufReader::new(child.stdout.take().ok_or("a decoy without standard output")?);
        Ok(Self { name, child, answers })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order, which the decoy begins to carry out.
    pub fn order(&mut self, order: &WorkOrder) -> Result<(), Box<dyn Error>> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        let orders = self.child.stdin.as_mut().ok_or("a decoy without standard input")?;
        Ok(orders.write_all(&line)?)
    }

    /// Waits for the end of the ordered work.
    pub fn answer(&mut self) -> Result<WorkTimes, Box<dyn Error>> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line)
            .map_err(|error| format!("decoy {} answered \"{}\": {error}", self.name, line.trim()).into())
    }
}

impl Drop for Decoy {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Returns the command that starts this program again, with another name.
pub fn renamed(name: &str, role: &str, seed: u64, folder: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg0(name)
        .args([role, name, "--seed", &seed.to_string(), "--data-dir"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Ok(command)
}

/// Gives this process its name, and lets it end with the harness.
pub fn take_name(name: &str) -> Result<(), Box<dyn Error>> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_name(std::ffi::CString::new(name)?.as_c_str())?;
    Ok(())
}

/// Runs as a decoy until standard input ends.
pub fn run(name: &str, seed: u64, folder: &Path) -> Result<(), Box<dyn Error>> {
    take_name(name)?;
    let (sender, orders) = sync_channel::<String>(1);
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if line.is_ok_and(|line| sender.send(line).is_err()) {
                return;
            }
        }
    });
    let mut random = SeededRandom::new(seed);
    loop {
        match orders.recv_timeout(Duration::from_millis(random.within(400..=2500))) {
            Ok(line) => {
                let order: WorkOrder = serde_json::from_str(&line)?;
                let begin_wall_ns = wall_ns();
                let amount = order.perform()?;
                let times = WorkTimes { begin_wall_ns, end_wall_ns: wall_ns(), amount };
                let mut out = io::stdout().lock();
                writeln!(out, "{}", serde_json::to_string(&times)?)?;
                out.flush()?;
            }
            Err(RecvTimeoutError::Timeout) => {
                small_order(&mut random, folder).perform()?;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Returns a little work of a random kind.
fn small_order(random: &mut SeededRandom, folder: &Path) -> WorkOrder {
    let kind = random.pick(&[
        IncidentKind::CpuBurst,
        IncidentKind::MemoryBalloon,
        IncidentKind::FsyncBurst,
        IncidentKind::ForkStorm,
        IncidentKind::LoopbackBurst,
        IncidentKind::SwitchStorm,
    ]);
    let amount = match kind {
        IncidentKind::CpuBurst => u64::MAX,
        IncidentKind::MemoryBalloon => random.within(4..=24) << 20,
        IncidentKind::FsyncBurst => random.within(1..=4),
        IncidentKind::ForkStorm => random.within(1..=3),
        IncidentKind::LoopbackBurst => random.within(64..=1024) << 10,
        IncidentKind::SwitchStorm | IncidentKind::IoStall => random.within(20..=300),
    };
    let length_ms = if kind == IncidentKind::CpuBurst { random.within(3..=20) } else { 100 };
    WorkOrder { kind, length_ms, amount, by_futex: random.within(0..=1) == 1, folder: folder.to_owned() }
}
