//! Measures ticks kept and CPU time of six host sources at 1 kHz. Budget: 99.9 % of the ticks, or
//! as many as a bare loop of the same reads keeps; 1.5 % of a core for the recorder thread.
//!
//! Runs the real program in slices of ten seconds, in turns with a loop of one `pread` per file. A
//! tick is kept if its sample began before the next tick was due; both sides count missed ticks
//! alike. CPU time is the scheduler's, per thread.

use flatcap_os::clock::{NS_PER_S, monotonic_ns};

use crate::numbers::{median, range};
use crate::program::{Program, host_sources, sleep_ns};
use crate::table::{BenchLength, CaptureRow};
use crate::{MeasuredRows, bare};

const PERIOD_NS: u64 = 1_000_000;
const SETTLING_NS: u64 = NS_PER_S;
const SLICE_NS: u64 = 10 * NS_PER_S;
const THREADS: [&str; 3] = ["recorder", "syncer", "sampler-fast"];

pub fn measure(length: BenchLength) -> MeasuredRows {
    let (slices, slice_ns) = length.pick((6, SLICE_NS), (1, 2 * NS_PER_S));
    let (mut ours, mut alone) = ((0, 0), (0, 0)); // ticks kept, missed
    let mut cores = THREADS.map(|_| Vec::new());
    for _ in 0..slices {
        let program = Program::new()?;
        let running = program.record("", &host_sources())?;
        let mut threads = [0; THREADS.len()];
        for (thread, name) in threads.iter_mut().zip(THREADS) {
            *thread = running.thread(name)?;
        }
        sleep_ns(SETTLING_NS);
        let (begin, mut before) = (monotonic_ns(), [0; THREADS.len()]);
        for (before, thread) in before.iter_mut().zip(threads) {
            *before = running.cpu_ns(thread)?;
        }
        sleep_ns(slice_ns);
        let elapsed_ns = monotonic_ns() - begin;
        for ((core, before), thread) in cores.iter_mut().zip(before).zip(threads) {
            core.push((running.cpu_ns(thread)? - before) as f64 / elapsed_ns as f64 * 100.0);
        }
        running.terminate(false)?;
        for source in program.checked_info(false)? {
            ours.0 += source.recorded;
            ours.1 += source.missed;
        }
        let bare = bare::tick(PERIOD_NS, slice_ns + SETTLING_NS, bare::reads())?;
        alone.0 += bare.lateness.len() as u64;
        alone.1 += bare.missed;
    }
    let share = |(kept, missed): (u64, u64)| kept as f64 / (kept + missed) as f64 * 100.0;
    let (kept, bare) = (share(ours), share(alone));
    let [recorder, syncer, sampler] = &cores;
    let (recorder, (least, most)) = (median(recorder), range(recorder));
    Ok(vec![
        CaptureRow {
            name: "on-time",
            quantity: "six host sources at 1 kHz: ticks kept".to_owned(),
            target: "99.9 %, or as many as bare reads keep".to_owned(),
            reached: format!("{kept:.3} %"),
            met: Some(kept >= bare.min(99.9)),
            details: format!(
                "bare reads {bare:.3} %; missed {} of {}, the bare loop {} of {}",
                ours.1,
                ours.0 + ours.1,
                alone.1,
                alone.0 + alone.1
            ),
        },
        CaptureRow {
            name: "recorder",
            quantity: "six host sources at 1 kHz: CPU time of the recorder thread".to_owned(),
            target: "<= 1.5 % of a core".to_owned(),
            reached: format!("{recorder:.2} %"),
            met: Some(recorder <= 1.5),
            details: format!(
                "{least:.2} to {most:.2} % in {slices} slices; syncer {:.2} %, sampler {:.1} %",
                median(syncer),
                median(sampler)
            ),
        },
    ])
}
