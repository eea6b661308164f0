//! Measures how soon a recorder with full queues ends. Budget: 1 s from SIGTERM to the end of the
//! process, and nothing lost.
//!
//! A wide synthetic source runs at 20 kHz. `ptrace` stops the recorder thread until the queue is
//! nearly full; it may not overflow, since nothing may be lost. Then the thread continues and
//! SIGTERM follows at once. The fill level is computed from the files: samples stamped during the
//! stop were in the queue at its end.

use std::error::Error;

use flatcap::config::Config;
use flatcap::daemon::MemoryBudget;
use flatcap_os::clock::monotonic_ns;

use crate::MeasuredRows;
use crate::numbers::{format_ns, median, range};
use crate::program::{Program, each_sample, sleep_ns};
use crate::table::{BenchLength, CaptureRow};
use crate::tracer::StoppedThread;

const CONFIG: &str = "[source.synthetic]\nshape = \"wide\"\nfields = 64\n";
/// Share of the queue that is filled.
const FILL_SHARE: f64 = 0.88;

/// The result of one stop.
struct StopResult {
    elapsed_ns: u64,
    queued_bytes: u64,
}

pub fn measure(length: BenchLength) -> MeasuredRows {
    let turns = length.pick(9, 1);
    let (mut stop_times, mut queued) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        let stop = stop()?;
        stop_times.push(stop.elapsed_ns as f64);
        queued.push(stop.queued_bytes as f64 / f64::from(1 << 20));
    }
    let (middle, (shortest, longest)) = (median(&stop_times), range(&stop_times));
    let memory = MemoryBudget::of(&Config::parse("stop.toml", CONFIG)?);
    Ok(vec![CaptureRow {
        name: "stop",
        quantity: "SIGTERM to exit, queue three quarters full: longest".to_owned(),
        target: "<= 1 s, nothing lost".to_owned(),
        reached: format!("{}, nothing lost", format_ns(longest)),
        met: Some(longest <= 1e9),
        details: format!(
            "median {}, shortest {} of {turns}; {:.1} of {:.1} MiB were queued",
            format_ns(middle),
            format_ns(shortest),
            median(&queued),
            (memory.queued() * memory.slab_bytes) as f64 / f64::from(1 << 20)
        ),
    }])
}

fn stop() -> Result<StopResult, Box<dyn Error>> {
    let program = Program::new()?;
    let config = Config::parse("stop.toml", CONFIG)?;
    let running = program.record(CONFIG, &["synthetic@50us".to_owned()])?;
    let recorder = running.thread("recorder")?;
    sleep_ns(500_000_000);
    let begin = monotonic_ns();
    let stopped = StoppedThread::stop(recorder)?;
    // A slab is queued when its interval has passed or when it is full; at this rate both take
    // about as long.
    let full_ns =
        MemoryBudget::of(&config).queued() as f64 * config.buffering.flush_interval.as_nanos() as f64;
    sleep_ns((full_ns * FILL_SHARE) as u64);
    let end = monotonic_ns();
    stopped.release();
    let elapsed_ns = running.terminate(false)?;
    program.checked_info(false)?;
    let mut queued_bytes = 0;
    for mut reader in program.segments()? {
        each_sample(&mut reader, |mono_ns, bytes| {
            if (begin..end).contains(&mono_ns) {
                queued_bytes += bytes as u64;
            }
            true
        })?;
    }
    Ok(StopResult { elapsed_ns, queued_bytes })
}
