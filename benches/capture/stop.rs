//! How soon does a recorder end that has its queues full? Budget: 1 s from SIGTERM to the end of the process, and nothing lost.
//!
//! A wide synthetic source at 20 kHz; the recorder's thread is held by `ptrace` for as long as the queue takes to be nearly full (it may not
//! overflow, since nothing may be lost), let go, and the signal follows at once. How full the queue was is read from the file: what bears a stamp
//! of that time was in the queue when it ended.

use std::error::Error;

use flatcap::config::Config;
use flatcap::os::clock::monotonic_ns;

use crate::Measured;
use crate::numbers::{median, range, time};
use crate::program::{Program, each_sample, pause};
use crate::table::{Length, Row};
use crate::tracer::Held;

const CONFIG: &str = "[source.synthetic]\nshape = \"wide\"\nfields = 64\n";
/// How much of the queue is filled.
const FILLED: f64 = 0.88;

/// One stop.
struct Stop {
    elapsed_ns: u64,
    queued_bytes: u64,
}

pub fn measure(length: Length) -> Measured {
    let turns = length.of(9, 1);
    let (mut taken, mut queued) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        let stop = stop()?;
        taken.push(stop.elapsed_ns as f64);
        queued.push(stop.queued_bytes as f64 / f64::from(1 << 20));
    }
    let (middle, (shortest, longest)) = (median(&taken), range(&taken));
    let room = Config::parse("stop.toml", CONFIG)?.memory();
    Ok(vec![Row {
        name: "stop",
        what: "SIGTERM to the end, queue three quarters full: longest".to_owned(),
        target: "<= 1 s, nothing lost".to_owned(),
        reached: format!("{}, nothing lost", time(longest)),
        met: Some(longest <= 1e9),
        beside: format!(
            "median {}, shortest {} of {turns}; {:.1} MiB were queued, of {:.1}",
            time(middle),
            time(shortest),
            median(&queued),
            (room.queued() * room.slab_bytes) as f64 / f64::from(1 << 20)
        ),
    }])
}

fn stop() -> Result<Stop, Box<dyn Error>> {
    let program = Program::new()?;
    let config = Config::parse("stop.toml", CONFIG)?;
    let running = program.record(CONFIG, &["synthetic@50us".to_owned()])?;
    let recorder = running.thread("recorder")?;
    pause(500_000_000);
    let begin = monotonic_ns();
    let held = Held::hold(recorder)?;
    // A slab goes when its interval has passed, or earlier when it is full: at this rate about then.
    let full_ns = config.memory().queued() as f64 * config.handover.hand_over.as_nanos() as f64;
    pause((full_ns * FILLED) as u64);
    let end = monotonic_ns();
    held.release();
    let elapsed_ns = running.terminate(false)?;
    program.balanced_info(false)?;
    let mut queued_bytes = 0;
    for mut reader in program.segments()? {
        each_sample(&mut reader, |mono_ns, bytes| {
            if (begin..end).contains(&mono_ns) {
                queued_bytes += bytes as u64;
            }
            true
        })?;
    }
    Ok(Stop { elapsed_ns, queued_bytes })
}
