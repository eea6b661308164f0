//! How fast can frames be appended? Producers that fill slabs as fast as there is room and wait where there is none (`on_full =
//! "block"`), so that nothing is lost. Budget: the rows' that use it.
//!
//! Each frame is a real one: envelope with a stamp, number, length and XXH3-64. The clock is read once in 128 frames, as no source
//! is read so often; stamps between are a nanosecond apart.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatcap::frame::{ENVELOPE_BYTES, Envelope, Shortfall, Stamp};
use flatcap::metrics::Metrics;
use flatcap::os::clock::{WallOffset, monotonic_ns};
use flatcap::os::event::Event;
use flatcap::os::storage::Storage;
use flatcap::os::thread;
use flatcap::recorder::RecorderReport;
use flatcap::slab::{HandOver, OnFull, Reading};

use crate::lines::Lines;
use crate::numbers::must_be_equal;

/// Frames between two looks at the clock.
const ROUND: u64 = 128;
/// Names of the producers' sources.
const NAMES: [&str; 8] = ["one", "two", "three", "four", "five", "six", "seven", "eight"];

/// When producers end.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// After so many nanoseconds.
    Elapsed(u64),
    /// After so many frames each.
    Frames(u64),
}

/// What producers have come to.
pub struct Produced {
    /// Frames of each.
    pub frames: Vec<u64>,
    /// From the first frame until everything was on the medium, in nanoseconds.
    pub elapsed_ns: u64,
    /// The recorder's own account.
    pub report: RecorderReport,
}

/// Lets `producers` (at most 8) append frames with payloads of `payload_bytes`, envelope included, and the recorder write them.
/// Nothing may be lost.
pub fn produce(
    producers: usize,
    payload_bytes: usize,
    until: Until,
    storage: Arc<dyn Storage>,
    retain_bytes: u64,
) -> Result<Produced, Box<dyn Error>> {
    let mut lines = Lines::new(producers, &NAMES[..producers], 1000, OnFull::Block)?;
    let never = Arc::new(Event::new());
    let mut ends = Vec::new();
    for source in (0..).take(producers) {
        ends.push(Producer {
            source,
            hand_over: lines.hand_over(&never)?,
            metrics: Arc::clone(&lines.metrics),
            wall_offset: Arc::clone(&lines.wall_offset),
            payload: (0..payload_bytes - ENVELOPE_BYTES).map(|at| (at * 7) as u8).collect(),
        });
    }
    let recording = lines.record(storage, retain_bytes)?;
    let go = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for end in ends {
        let go = Arc::clone(&go);
        threads.push(thread::spawn("producer", move || {
            while !go.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            end.run(until)
        })?);
    }
    let begin = monotonic_ns();
    go.store(true, Ordering::Release);
    let mut frames = Vec::new();
    for thread in threads {
        frames.push(thread.join().map_err(|_panic| "a producer ended by a panic")?);
    }
    let report = recording.finish()?;
    let elapsed_ns = monotonic_ns() - begin;
    for (source, frames) in report.sources.iter().zip(&frames) {
        must_be_equal(&format!("{}: recorded", source.name), source.recorded, *frames)?;
    }
    Ok(Produced { frames, elapsed_ns, report })
}

struct Producer {
    source: u16,
    hand_over: HandOver,
    metrics: Arc<Metrics>,
    wall_offset: Arc<WallOffset>,
    payload: Vec<u8>,
}

impl Producer {
    /// Appends until it is to end; how many frames.
    fn run(mut self, until: Until) -> u64 {
        let envelope = Envelope::new(self.source);
        let metrics = self.metrics.sources.get(usize::from(self.source)).expect("one a source");
        let bytes = ENVELOPE_BYTES + self.payload.len();
        let begin = monotonic_ns();
        let mut seq = 0;
        loop {
            let now = monotonic_ns();
            let left = match until {
                Until::Elapsed(ns) if now - begin >= ns => 0,
                Until::Elapsed(_) => ROUND,
                Until::Frames(frames) => (frames - seq).min(ROUND),
            };
            if left == 0 {
                break;
            }
            let wall_offset_ns = self.wall_offset.get();
            for mono_ns in now..now + left {
                let reading = Reading { source: self.source, seq, mono_ns, wall_offset_ns };
                self.hand_over.begin(self.source, seq);
                seq += 1;
                metrics.begun.set(seq);
                let stamp = Stamp {
                    mono_ns,
                    wall_ns: wall_offset_ns.wrapping_add_unsigned(mono_ns),
                    seq: reading.seq,
                    shortfall: Shortfall::NONE,
                    duration_ns: 100,
                };
                self.hand_over.append(&reading, bytes, |place| envelope.write(place, &stamp, &self.payload));
            }
        }
        self.hand_over.finish(monotonic_ns());
        seq
    }
}

/// Whether what was recorded is whole, by the program's own `verify`.
pub fn verify(directory: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let arguments = ["flatcap".into(), "verify".into(), "--json".into(), directory.as_os_str().to_owned()];
    let mut said = Vec::new();
    let outcome = flatcap::cli::run(arguments, &mut said);
    if outcome == flatcap::cli::Outcome::Done {
        return Ok(());
    }
    Err(format!("verify: {outcome:?}: {}", String::from_utf8_lossy(&said)).into())
}
