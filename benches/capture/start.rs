//! Measures how soon a recorder takes its first sample while it recovers a crashed run. Budget: 50
//! ms from the start of the process.
//!
//! Six host sources at 1 kHz. Each run is killed by `kill -9` after some seconds and the next one
//! started at once, so each run but the first has a crashed one to recover. The time is from just
//! before the process is created to the earliest stamp in its files, both on `CLOCK_MONOTONIC`.

use std::collections::BTreeMap;

use flatcap_os::clock::NS_PER_S;

use crate::MeasuredRows;
use crate::numbers::{ensure_equal, format_ns, median, range};
use crate::program::{Program, each_sample, host_sources, sleep_ns};
use crate::table::{BenchLength, CaptureRow};

/// Samples at the beginning of a run that are searched for the earliest: slabs put at most this
/// many out of order.
const FIRST_SAMPLES: usize = 1000;

pub fn measure(length: BenchLength) -> MeasuredRows {
    let (runs, life_ns) = length.pick((21, 3 * NS_PER_S), (3, NS_PER_S));
    let program = Program::new()?;
    let mut started = Vec::new();
    for run in 1..=runs {
        let running = program.record("", &host_sources())?;
        started.push(running.started_ns);
        sleep_ns(life_ns);
        if run < runs {
            running.kill()?;
        } else {
            running.terminate(false)?;
        }
    }
    let mut first: BTreeMap<u64, u64> = BTreeMap::new(); // by run
    for mut reader in program.segments()? {
        let earliest = first.entry(reader.header().run_id).or_insert(u64::MAX);
        let mut remaining = FIRST_SAMPLES;
        each_sample(&mut reader, |mono_ns, _| {
            *earliest = (*earliest).min(mono_ns);
            remaining -= 1;
            remaining > 0
        })?;
    }
    let mut first: Vec<u64> = first.into_values().collect();
    first.sort_unstable();
    ensure_equal("runs in the files", first.len() as u64, runs)?;
    // The first run has nothing to recover.
    let start_times: Vec<f64> =
        started.iter().zip(&first).skip(1).map(|(started, first)| (first - started) as f64).collect();
    let (middle, (shortest, longest)) = (median(&start_times), range(&start_times));
    Ok(vec![
        CaptureRow {
            name: "start",
            quantity: "start to first sample, recovering a crashed run: median".to_owned(),
            target: "<= 50 ms".to_owned(),
            reached: format_ns(middle),
            met: Some(middle <= 50e6),
            details: format!("shortest {}", format_ns(shortest)),
        },
        CaptureRow {
            name: "start",
            quantity: format!("the same: longest of {}", start_times.len()),
            target: "<= 50 ms".to_owned(),
            reached: format_ns(longest),
            met: Some(longest <= 50e6),
            details: String::new(),
        },
    ])
}
