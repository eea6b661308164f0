//! The processes of a recording: decoys, background load and the device that stalls.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use crate::activity::{IncidentKind, WorkOrder};
use crate::background::BACKGROUND;
use crate::decoy::{DECOYS, Decoy, WorkTimes, renamed};
use crate::judge::Incident;
use crate::random::SeededRandom;
use crate::stall::{StallDevice, StallMethod};

/// Shortest and longest incident, in milliseconds.
const LENGTH_MS: std::ops::RangeInclusive<u64> = 300..=2000;
const BALLOON_BYTES_MIN: u64 = 200 << 20;
const BALLOON_BYTES_MAX: u64 = 1 << 30;
/// A balloon takes at most this part of the memory, so that the machine does not swap.
const BALLOON_PART: u64 = 10;

/// All processes of a recording. They end when it is dropped.
#[derive(Debug)]
pub struct Workload {
    // Dropped in this order: decoys have files open on the device.
    decoys: Vec<Decoy>,
    background: Vec<BackgroundProcess>,
    stall: Result<StallDevice, String>,
    folder: PathBuf,
}

#[derive(Debug)]
struct BackgroundProcess(Child);

impl Drop for BackgroundProcess {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

impl Workload {
    /// Starts everything; files are written below `folder`.
    pub fn start(random: &mut SeededRandom, folder: &Path) -> Result<Self, Box<dyn Error>> {
        let mut decoys = Vec::new();
        for name in DECOYS {
            decoys.push(Decoy::start(name, random.bits(), folder)?);
        }
        let mut background = Vec::new();
        for name in BACKGROUND {
            let child = renamed(name, "--background", random.bits(), folder)?.spawn()?;
            background.push(BackgroundProcess(child));
        }
        let pids: Vec<u32> = decoys.iter().map(Decoy::pid).collect();
        let stall = StallDevice::create(folder, &pids);
        Ok(Self { decoys, background, stall, folder: folder.to_owned() })
    }

    /// Returns why a kind of incident is not possible on this machine, or `None` if it is possible.
    pub fn refusal(&self, kind: IncidentKind) -> Option<String> {
        match &self.stall {
            Err(error) if kind == IncidentKind::IoStall => Some(format!("io-stall: {error}")),
            _ => None,
        }
    }

    /// Fails if one of the background processes has ended.
    pub fn check(&mut self) -> Result<(), Box<dyn Error>> {
        for (process, name) in self.background.iter_mut().zip(BACKGROUND) {
            if let Some(status) = process.0.try_wait()? {
                return Err(format!("background process {name} ended with {status}").into());
            }
        }
        Ok(())
    }

    /// Makes a random decoy the culprit of an incident, and returns when that is over.
    pub fn cause(
        &mut self,
        kind: IncidentKind,
        length_ms_max: u64,
        random: &mut SeededRandom,
    ) -> Result<Incident, Box<dyn Error>> {
        let culprit = random.within(0..=self.decoys.len() as u64 - 1) as usize;
        let mut order = WorkOrder {
            kind,
            length_ms: random.within(*LENGTH_MS.start()..=length_ms_max.min(*LENGTH_MS.end())),
            amount: u64::MAX,
            by_futex: random.within(0..=1) == 1,
            folder: self.folder.clone(),
        };
        if kind == IncidentKind::MemoryBalloon {
            let most = BALLOON_BYTES_MAX.min(memory_bytes()? / BALLOON_PART).max(BALLOON_BYTES_MIN);
            order.amount = random.within(BALLOON_BYTES_MIN..=most);
        }
        let decoy = &mut self.decoys[culprit];
        let control_groups = control_groups(decoy.pid())?;
        let mut variant = String::new();
        let times = if let (Ok(device), IncidentKind::IoStall) = (&self.stall, kind) {
            let method = random.pick(&device.methods);
            method.name().clone_into(&mut variant);
            order.folder.clone_from(&device.mount);
            stalled(device, method, decoy, &order)?
        } else {
            if kind == IncidentKind::SwitchStorm {
                variant.push_str(if order.by_futex { "futex" } else { "pipes" });
            }
            decoy.order(&order)?;
            decoy.answer()?
        };
        Ok(Incident {
            kind: serde_json::to_value(kind)?.as_str().unwrap_or_default().to_owned(),
            culprit: decoy.name.to_owned(),
            pid: decoy.pid(),
            control_groups,
            begin_wall_ns: times.begin_wall_ns,
            end_wall_ns: times.end_wall_ns,
            amount: times.amount,
            variant,
            busy_before_percent: 0.0,
        })
    }
}

/// Lets a decoy write to the device while it is stalled.
fn stalled(
    device: &StallDevice,
    method: StallMethod,
    decoy: &mut Decoy,
    order: &WorkOrder,
) -> Result<WorkTimes, Box<dyn Error>> {
    device.set_stalled(method, true)?;
    let ordered = decoy.order(order);
    std::thread::sleep(Duration::from_millis(order.length_ms));
    // In any case: a decoy cannot end while it waits for the device.
    device.set_stalled(method, false)?;
    ordered?;
    decoy.answer()
}

/// Describes an incident in one line.
pub fn line_about(incident: &Incident) -> String {
    let Incident { kind, variant, culprit, pid, begin_wall_ns, amount, .. } = incident;
    let length_s = (incident.end_wall_ns - begin_wall_ns) as f64 / 1e9;
    let variant = if variant.is_empty() { String::new() } else { format!(" ({variant})") };
    format!("{kind}{variant} by {culprit}[{pid}] at {begin_wall_ns}, {length_s:.2} s, amount {amount}")
}

/// Returns the control groups of a process, in all hierarchies.
fn control_groups(pid: u32) -> Result<Vec<String>, Box<dyn Error>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let mut groups: Vec<String> =
        text.lines().filter_map(|line| Some(line.splitn(3, ':').nth(2)?.to_owned())).collect();
    groups.sort();
    groups.dedup();
    Ok(groups)
}

/// Returns the memory of this machine.
fn memory_bytes() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).ok_or("no MemTotal")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
