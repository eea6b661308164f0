//! How soon does a recorder record, with a crashed run to be recovered beside it? Budget: 50 ms from the process's start to the
//! first sample.
//!
//! Six host sources at 1 kHz. Each run is killed (`kill -9`) after some seconds and the next one started at once, so each but the
//! first has a crashed run beside it. The time is from just before the process is made to the earliest stamp in its file, both on
//! `CLOCK_MONOTONIC`.

use std::collections::BTreeMap;

use flatcap::os::clock::NS_PER_S;

use crate::Measured;
use crate::numbers::{median, must_be_equal, range, time};
use crate::program::{Program, each_sample, host_sources, pause};
use crate::table::{Length, Row};

/// Samples at a run's beginning among which its first one is: slabs hold no more out of order.
const LOOKED_AT: usize = 1000;

pub fn measure(length: Length) -> Measured {
    let (runs, life_ns) = length.of((21, 3 * NS_PER_S), (3, NS_PER_S));
    let program = Program::new()?;
    let mut started = Vec::new();
    for run in 1..=runs {
        let running = program.record("", &host_sources())?;
        started.push(running.started_ns);
        pause(life_ns);
        if run < runs {
            running.kill()?;
        } else {
            running.terminate(false)?;
        }
    }
    let mut first: BTreeMap<u64, u64> = BTreeMap::new(); // by run
    for mut reader in program.segments()? {
        let earliest = first.entry(reader.header().run_id).or_insert(u64::MAX);
        let mut left = LOOKED_AT;
        each_sample(&mut reader, |mono_ns, _| {
            *earliest = (*earliest).min(mono_ns);
            left -= 1;
            left > 0
        })?;
    }
    let mut first: Vec<u64> = first.into_values().collect();
    first.sort_unstable();
    must_be_equal("runs in the files", first.len() as u64, runs)?;
    // The first run has nothing to recover.
    let taken: Vec<f64> =
        started.iter().zip(&first).skip(1).map(|(started, first)| (first - started) as f64).collect();
    let (middle, (shortest, longest)) = (median(&taken), range(&taken));
    Ok(vec![
        Row {
            name: "start",
            what: "start to first sample, a crashed run to recover: median".to_owned(),
            target: "<= 50 ms".to_owned(),
            reached: time(middle),
            met: Some(middle <= 50e6),
            beside: format!("shortest {}", time(shortest)),
        },
        Row {
            name: "start",
            what: format!("the same: longest of {}", taken.len()),
            target: "<= 50 ms".to_owned(),
            reached: time(longest),
            met: Some(longest <= 50e6),
            beside: String::new(),
        },
    ])
}
