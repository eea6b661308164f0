//! The work that culprits do for a short time, and decoys do in small amounts all the time.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The kinds of incidents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum IncidentKind {
    /// One thread computes.
    CpuBurst,
    /// Memory is allocated, touched and freed.
    MemoryBalloon,
    /// Many small writes, each with fsync.
    FsyncBurst,
    /// Hundreds of children that end at once.
    ForkStorm,
    /// Two threads send and receive over lo.
    LoopbackBurst,
    /// Threads wake each other.
    SwitchStorm,
    /// Writes to a device that is frozen or throttled.
    IoStall,
}

/// Work for one process. Ends after `length_ms`, or after `amount` of it is done: rounds, bytes,
/// writes, children or wake-ups.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkOrder {
    pub kind: IncidentKind,
    pub length_ms: u64,
    pub amount: u64,
    /// The threads of a switch storm wake each other by futex, otherwise through pipes.
    pub by_futex: bool,
    /// The directory in which files are written.
    pub folder: PathBuf,
}

/// Bytes touched before the time can be up, so that a balloon is one on a slow machine too.
const BALLOON_BYTES_MIN: usize = 200 << 20;
const PAGE_BYTES: usize = 4096;
/// Bytes of each small write.
const WRITE_BYTES: usize = 4096;
/// Bytes of each write to a throttled device, which takes a part of a second each.
const STALLED_WRITE_BYTES: usize = 16 << 10;
const SEND_BYTES: usize = 64 << 10;

impl WorkOrder {
    /// Does the work and returns how much of it was done.
    pub fn perform(&self) -> io::Result<u64> {
        let until = Instant::now() + Duration::from_millis(self.length_ms);
        match self.kind {
            IncidentKind::CpuBurst => Ok(compute(until, self.amount)),
            IncidentKind::MemoryBalloon => Ok(fill_memory(until, self.amount)),
            IncidentKind::FsyncBurst => write_and_sync(until, self.amount, WRITE_BYTES, &self.folder),
            IncidentKind::ForkStorm => start_children(until, self.amount),
            IncidentKind::LoopbackBurst => send_to_self(until, self.amount),
            IncidentKind::SwitchStorm if self.by_futex => Ok(switch_by_futex(until, self.amount)),
            IncidentKind::SwitchStorm => switch_through_pipes(until, self.amount),
            IncidentKind::IoStall => write_and_sync(until, self.amount, STALLED_WRITE_BYTES, &self.folder),
        }
    }
}

/// Computes; a round takes some microseconds.
pub fn compute(until: Instant, rounds: u64) -> u64 {
    let mut value = 1_u64;
    for round in 0..rounds {
        if Instant::now() >= until {
            return round;
        }
        for _ in 0..1000 {
            value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
    rounds
}

/// Touches each page of `bytes`, keeps them until the time is up, and frees them.
fn fill_memory(until: Instant, bytes: u64) -> u64 {
    let mut memory = vec![0_u8; bytes as usize];
    let mut touched = 0;
    for page in memory.chunks_mut(PAGE_BYTES) {
        if touched >= BALLOON_BYTES_MIN && Instant::now() >= until {
            break;
        }
        page[0] = 1;
        touched += page.len();
    }
    black_box(&mut memory);
    thread::sleep(until.saturating_duration_since(Instant::now()));
    touched as u64
}

fn write_and_sync(until: Instant, writes: u64, bytes: usize, folder: &Path) -> io::Result<u64> {
    let path = folder.join(format!("journal-{}", std::process::id()));
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(path)?;
    let content = vec![1_u8; bytes];
    for written in 0..writes {
        if Instant::now() >= until {
            return Ok(written);
        }
        file.write_all(&content)?;
        file.sync_all()?;
    }
    Ok(writes)
}

fn start_children(until: Instant, children: u64) -> io::Result<u64> {
    for started in 0..children {
        if Instant::now() >= until {
            return Ok(started);
        }
        Command::new("/bin/true").stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    }
    Ok(children)
}

fn send_to_self(until: Instant, bytes: u64) -> io::Result<u64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let drain = thread::spawn(move || io::copy(&mut receiver, &mut io::sink()));
    let content = vec![1_u8; SEND_BYTES];
    let mut sent = 0;
    while sent < bytes && Instant::now() < until {
        sender.write_all(&content)?;
        sent += content.len() as u64;
    }
    drop(sender);
    drain.join().map_err(|_| io::Error::other("the receiving thread panicked"))??;
    Ok(sent)
}

/// Two threads exchange one byte through two pipes.
fn switch_through_pipes(until: Instant, rounds: u64) -> io::Result<u64> {
    let (mut there, mut to_echo) = io::pipe()?;
    let (mut back, mut from_echo) = io::pipe()?;
    let echo = thread::spawn(move || -> io::Result<()> {
        let mut byte = [0];
        while there.read(&mut byte)? == 1 {
            from_echo.write_all(&byte)?;
        }
        Ok(())
    });
    let mut done = 0;
    while done < rounds && Instant::now() < until {
        to_echo.write_all(&[1])?;
        back.read_exact(&mut [0])?;
        done += 1;
    }
    // Ends the other thread.
    drop(to_echo);
    echo.join().map_err(|_| io::Error::other("the echoing thread panicked"))??;
    Ok(done)
}

/// Two threads take turns on one number: this one makes it odd, the other one even.
fn switch_by_futex(until: Instant, rounds: u64) -> u64 {
    const END: u64 = u64::MAX;
    let turn = AtomicU64::new(0);
    let mut done = 0;
    thread::scope(|scope| {
        let first = thread::current();
        let turn = &turn;
        let second = scope.spawn(move || {
            loop {
                match turn.load(Ordering::Acquire) {
                    END => return,
                    number if number % 2 == 1 => {
                        turn.store(number + 1, Ordering::Release);
                        first.unpark();
                    }
                    _ => thread::park(),
                }
            }
        });
        while done < rounds && Instant::now() < until {
            turn.store(2 * done + 1, Ordering::Release);
            second.thread().unpark();
            while turn.load(Ordering::Acquire) % 2 == 1 {
                thread::park();
            }
            done += 1;
        }
        turn.store(END, Ordering::Release);
        second.thread().unpark();
    });
    done
}
