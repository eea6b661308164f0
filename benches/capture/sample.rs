//! Measures the sampler's own cost per sample. Budget: a mean of 75 ns from tick to slab, most of
//! it two clock reads; at 10 kHz 99.9 % of the ticks within 2 us.
//!
//! Calls `SamplerGroup::tick` as the daemon's thread does: it stamps, reads (`synthetic` reads
//! nothing), builds, writes envelope and checksum into the slab, and queues a slab that is full or
//! old. A consumer replaces the recorder: it polls every 10 ms and returns slabs to the pool. The
//! mean is over ticks that are always due, so it includes no sleep; bare clock reads take turns
//! with it. The distribution is of real ticks at 10 kHz, each after a sleep; it includes the clock
//! read that ends each measurement.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatcap_metrics::SourceMetrics;
use flatcap_os::clock::monotonic_ns;
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;
use flatcap_sampling::sources::synthetic::SyntheticSampler;
use flatcap_sampling::{GroupSource, OpenedSampler};
use flatcap_slab::{OnFull, SlabPool};

use crate::MeasuredRows;
use crate::numbers::{ensure_equal, format_ns, median, quantile, range};
use crate::pipeline::{Pipeline, ReadyGroup};
use crate::table::{BenchLength, CaptureRow};

const POLL_NS: u64 = 10_000_000;
/// Poll interval while waiting for free slabs.
const SPACE_POLL_NS: u64 = 100_000;
/// Ticks between two checks for free slabs: fewer than fit a slab.
const ROUND_TICKS: u64 = 256;
/// Ticks that are not counted: during these all slabs and their pages are used for the first time.
const WARM_UP_TICKS: u64 = 300_000;
const PACED_PERIOD_NS: u64 = 100_000;
/// Duration of paced ticks that are not counted: during these all slabs are used for the first
/// time.
const WARM_UP_NS: u64 = 2_000_000_000;

pub fn measure(length: BenchLength) -> MeasuredRows {
    let (turns, ticks) = length.pick((11, 2_000_000), (3, 200_000));
    let (mut means, mut clock_reads) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        clock_reads.push(clock_read_ns(ticks));
        means.push(busy_tick_ns(ticks)?);
    }
    let paced_turns = length.pick(5, 1);
    let (mut medians, mut p99, mut p999, mut longest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..paced_turns {
        let mut ticks = paced_tick_ns(length.pick(10_000_000_000, 500_000_000))?;
        medians.push(quantile(&mut ticks, 0.5));
        p99.push(quantile(&mut ticks, 0.99));
        p999.push(quantile(&mut ticks, 0.999));
        longest.push(quantile(&mut ticks, 1.0));
    }
    let (mean, clock, high) = (median(&means), median(&clock_reads), median(&p999));
    let (lowest, highest) = range(&means);
    Ok(vec![
        CaptureRow {
            name: "sample",
            quantity: "stamp, build, append, queue: mean per sample".to_owned(),
            target: "<= 75 ns".to_owned(),
            reached: format!("{mean:.1} ns"),
            met: Some(mean <= 75.0),
            details: format!(
                "{lowest:.1} to {highest:.1} in {turns} turns; of these two clock reads {:.1} ns",
                2.0 * clock
            ),
        },
        CaptureRow {
            name: "sample",
            quantity: "tick at 10 kHz, recorder idle between polls: p99.9".to_owned(),
            target: "<= 2 us".to_owned(),
            reached: format_ns(high),
            met: Some(high <= 2000.0),
            details: format!(
                "p50 {}, p99 {}, longest {}; each includes {} of measuring",
                format_ns(median(&medians)),
                format_ns(median(&p99)),
                format_ns(median(&longest)),
                format_ns(clock)
            ),
        },
    ])
}

/// The time of one clock read, in nanoseconds.
fn clock_read_ns(reads: u64) -> f64 {
    let begin = monotonic_ns();
    for _ in 0..reads {
        black_box(monotonic_ns());
    }
    (monotonic_ns() - begin) as f64 / reads as f64
}

/// Runs ticks that are always due and returns the mean time per tick, in nanoseconds.
fn busy_tick_ns(ticks: u64) -> Result<f64, Box<dyn Error>> {
    let (spent, _) = run_with_consumer(1, move |ready, slab_waiter| {
        let mut spent = 0;
        for round in 0..(WARM_UP_TICKS + ticks) / ROUND_TICKS {
            // Not counted: samplers never wait for free space.
            slab_waiter.wait();
            let begin = monotonic_ns();
            for _ in 0..ROUND_TICKS {
                black_box(ready.group.tick());
            }
            if round >= WARM_UP_TICKS / ROUND_TICKS {
                spent += monotonic_ns() - begin;
            }
        }
        spent
    })?;
    let rounds = (WARM_UP_TICKS + ticks) / ROUND_TICKS - WARM_UP_TICKS / ROUND_TICKS;
    Ok(spent as f64 / (rounds * ROUND_TICKS) as f64)
}

/// Runs ticks on their grid and returns the time of each, in nanoseconds.
fn paced_tick_ns(duration_ns: u64) -> Result<Vec<u64>, Box<dyn Error>> {
    let (spent, _) = run_with_consumer(PACED_PERIOD_NS, move |ready, _| {
        let mut spent = Vec::with_capacity((duration_ns / PACED_PERIOD_NS) as usize + 1);
        let never = WakeEvent::new();
        let (mut next, first) = (ready.start_ns, ready.start_ns + WARM_UP_NS);
        while next < first + duration_ns {
            never.wait_until(next);
            let begin = monotonic_ns();
            ready.group.tick();
            let end = monotonic_ns();
            if next >= first {
                spent.push(end - begin);
            }
            // As the group's own schedule: ticks that passed are missed.
            next += ((begin - next) / PACED_PERIOD_NS + 1) * PACED_PERIOD_NS;
        }
        spent
    })?;
    Ok(spent)
}

/// Lets busy turns wait for free slabs between two rounds, outside the measured time.
struct SlabWaiter {
    pool: Arc<SlabPool>,
    wake: Arc<WakeEvent>,
    least_free: usize,
}

impl SlabWaiter {
    fn wait(&self) {
        let never = WakeEvent::new();
        while self.pool.free() < self.least_free {
            self.wake.set();
            never.wait_until(monotonic_ns() + SPACE_POLL_NS);
        }
    }
}

/// Runs a group of one synthetic source while a consumer takes its slabs like the recorder. Fails
/// if a frame is lost.
fn run_with_consumer<T: Send + 'static>(
    period_ns: u64,
    body: impl FnOnce(&mut ReadyGroup, &SlabWaiter) -> T + Send + 'static,
) -> Result<(T, u64), Box<dyn Error>> {
    let mut pipeline = Pipeline::new(1, &["synthetic"], period_ns, OnFull::DropNewest)?;
    let source = GroupSource {
        id: 0,
        period_ns,
        budget: 10_000,
        sampler: OpenedSampler::fixed(SyntheticSampler::point(1)),
        offloaded: None,
        metrics: Arc::new(SourceMetrics::new("synthetic".to_owned(), period_ns)),
    };
    let mut ready = pipeline.group(vec![source])?;
    let mut inbox = pipeline.inbox();
    let (pool, wake) = (Arc::clone(&pipeline.pool), Arc::clone(&pipeline.wake));
    let slab_waiter =
        SlabWaiter { pool: Arc::clone(&pool), wake: Arc::clone(&wake), least_free: pool.free() / 2 };
    let ended = Arc::new(AtomicBool::new(false));
    let consumer = {
        let ended = Arc::clone(&ended);
        thread::spawn("recorder", move || {
            let mut frames = 0;
            loop {
                let is_last = ended.load(Ordering::Acquire);
                while let Ok(slab) = inbox.try_recv() {
                    frames += slab.frames() as u64;
                    pool.give_back(slab);
                }
                if is_last {
                    return frames;
                }
                wake.wait_until(monotonic_ns() + POLL_NS);
                wake.clear();
            }
        })?
    };
    let sampler = thread::spawn("sampler", move || {
        thread::set_min_timer_slack()?;
        let result = body(&mut ready, &slab_waiter);
        // Queues the open slab; since stop is set, it returns at once.
        ready.stop.set();
        ready.group.run();
        Ok::<_, std::io::Error>(result)
    })?;
    let result = sampler.join().map_err(|_panic| "the sampler ended by a panic")??;
    ended.store(true, Ordering::Release);
    pipeline.wake.set();
    let frames = consumer.join().map_err(|_panic| "the consumer ended by a panic")?;
    ensure_equal(
        "frames received",
        frames,
        pipeline.metrics.sources.get(0).map_or(0, |source| source.begun.get()),
    )?;
    Ok((result, frames))
}
