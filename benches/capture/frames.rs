//! Appends frames as fast as possible: producers fill slabs and wait while the queue is full
//! (`on_full "block"`), so nothing is lost. Budget: the budget of the rows that use it.
//!
//! Each frame is complete: envelope with a stamp, sequence number, length and XXH3-64. The clock is
//! read once per 128 frames, since no source is sampled this often; stamps in between are one
//! nanosecond apart.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::storage::Storage;
use flatcap_metrics::Metrics;
use flatcap_os::clock::{WallOffset, monotonic_ns};
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;
use flatcap_recorder::RecorderReport;
use flatcap_slab::{OnFull, SampleMeta, SlabProducer};

use crate::numbers::ensure_equal;
use crate::pipeline::Pipeline;

/// Frames between two clock reads.
const ROUND_FRAMES: u64 = 128;
/// Names of the producers' sources.
const NAMES: [&str; 8] = ["one", "two", "three", "four", "five", "six", "seven", "eight"];

/// When producers stop.
#[derive(Debug, Clone, Copy)]
pub enum ProduceUntil {
    /// After this many nanoseconds.
    Elapsed(u64),
    /// After this many frames per producer.
    Frames(u64),
}

/// The result of a run of producers.
pub struct ProduceResult {
    /// Frames of each producer.
    pub frames: Vec<u64>,
    /// From the first frame until everything was on disk, in nanoseconds.
    pub elapsed_ns: u64,
    /// The recorder's own counts.
    pub report: RecorderReport,
}

/// Runs `producers` (at most 8) that append frames with payloads of `payload_bytes`, envelope
/// included, and a recorder that writes them. Fails if a frame is lost.
pub fn produce(
    producers: usize,
    payload_bytes: usize,
    until: ProduceUntil,
    storage: Arc<dyn Storage>,
    retain_bytes: u64,
) -> Result<ProduceResult, Box<dyn Error>> {
    let mut pipeline = Pipeline::new(producers, &NAMES[..producers], 1000, OnFull::Block)?;
    let never = Arc::new(WakeEvent::new());
    let mut frame_producers = Vec::new();
    for source in (0..).take(producers) {
        frame_producers.push(FrameProducer {
            source,
            slab_producer: pipeline.slab_producer(&never)?,
            metrics: Arc::clone(&pipeline.metrics),
            wall_offset: Arc::clone(&pipeline.wall_offset),
            payload: (0..payload_bytes - ENVELOPE_BYTES).map(|at| (at * 7) as u8).collect(),
        });
    }
    let recording = pipeline.record(storage, retain_bytes)?;
    let go = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for frame_producer in frame_producers {
        let go = Arc::clone(&go);
        threads.push(thread::spawn("producer", move || {
            while !go.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            frame_producer.run(until)
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
        ensure_equal(&format!("{}: recorded", source.metrics.name), source.metrics.recorded.get(), *frames)?;
    }
    Ok(ProduceResult { frames, elapsed_ns, report })
}

struct FrameProducer {
    source: u16,
    slab_producer: SlabProducer,
    metrics: Arc<Metrics>,
    wall_offset: Arc<WallOffset>,
    payload: Vec<u8>,
}

impl FrameProducer {
    /// Appends until the limit is reached and returns the number of frames.
    fn run(mut self, until: ProduceUntil) -> u64 {
        let envelope = Envelope::new(self.source);
        let metrics = self.metrics.sources.get(usize::from(self.source)).expect("one a source");
        let bytes = ENVELOPE_BYTES + self.payload.len();
        let begin = monotonic_ns();
        let mut seq = 0;
        loop {
            let now = monotonic_ns();
            let remaining = match until {
                ProduceUntil::Elapsed(ns) if now - begin >= ns => 0,
                ProduceUntil::Elapsed(_) => ROUND_FRAMES,
                ProduceUntil::Frames(frames) => (frames - seq).min(ROUND_FRAMES),
            };
            if remaining == 0 {
                break;
            }
            let wall_offset_ns = self.wall_offset.get();
            for mono_ns in now..now + remaining {
                let meta = SampleMeta { source: self.source, seq, mono_ns, wall_offset_ns };
                self.slab_producer.begin_sample(self.source, seq);
                seq += 1;
                metrics.begun.set(seq);
                let stamp = Stamp {
                    mono_ns,
                    wall_ns: wall_offset_ns.wrapping_add_unsigned(mono_ns),
                    seq: meta.seq,
                    incomplete: Incomplete::NONE,
                    duration_ns: 100,
                };
                self.slab_producer.append(&meta, bytes, |place| envelope.write(place, &stamp, &self.payload));
            }
        }
        self.slab_producer.finish(monotonic_ns());
        seq
    }
}

/// Checks the recording with the program's own `verify`.
pub fn verify(directory: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let arguments = ["flatcap".into(), "verify".into(), "--json".into(), directory.as_os_str().to_owned()];
    let mut output = Vec::new();
    let outcome = flatcap::cli::run(arguments, &mut output);
    if outcome == flatcap::cli::ExitStatus::Done {
        return Ok(());
    }
    Err(format!("verify: {outcome:?}: {}", String::from_utf8_lossy(&output)).into())
}
