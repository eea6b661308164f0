//! The background load: three processes that are busy all the time, irregularly, and never the
//! culprit.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::activity::compute;
use crate::decoy::take_name;
use crate::random::SeededRandom;

/// The names of the background processes.
pub const BACKGROUND: [&str; 3] = ["batchd", "logship", "chatter"];

/// Files that the log writer keeps.
const LOG_FILES: u64 = 32;

/// Runs as the background process of this name, until the harness ends.
pub fn run(name: &str, seed: u64, folder: &Path) -> Result<(), Box<dyn Error>> {
    take_name(name)?;
    let random = SeededRandom::new(seed);
    match name {
        "batchd" => compute_in_bursts(random),
        "logship" => write_files(random, folder),
        "chatter" => exchange_messages(random),
        other => Err(format!("no background process is named {other}").into()),
    }
}

fn pause(random: &mut SeededRandom, range_ms: std::ops::RangeInclusive<u64>) {
    thread::sleep(Duration::from_millis(random.within(range_ms)));
}

/// Takes 5 to 15 % of a core, in bursts.
fn compute_in_bursts(mut random: SeededRandom) -> Result<(), Box<dyn Error>> {
    loop {
        let burst_ms = random.within(5..=60);
        let share_percent = random.within(5..=15);
        compute(Instant::now() + Duration::from_millis(burst_ms), u64::MAX);
        let pause_ms = burst_ms * (100 - share_percent) / share_percent;
        thread::sleep(Duration::from_millis(pause_ms));
    }
}

/// Writes small files, which the kernel brings to the disk when it likes.
fn write_files(mut random: SeededRandom, folder: &Path) -> Result<(), Box<dyn Error>> {
    loop {
        for _ in 0..random.within(1..=5) {
            let content = vec![b'x'; random.within(1 << 10..=64 << 10) as usize];
            std::fs::write(folder.join(format!("log-{}", random.within(1..=LOG_FILES))), content)?;
        }
        pause(&mut random, 50..=500);
    }
}

/// Sends itself small messages over lo, each of which is answered.
fn exchange_messages(mut random: SeededRandom) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    thread::spawn(move || {
        let mut message = [0; 4096];
        while let Ok(bytes @ 1..) = server.read(&mut message) {
            if server.write_all(&message[..bytes]).is_err() {
                return;
            }
        }
    });
    loop {
        let mut message = vec![1_u8; random.within(100..=4096) as usize];
        client.write_all(&message)?;
        client.read_exact(&mut message)?;
        pause(&mut random, 5..=100);
    }
}
