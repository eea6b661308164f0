//! What does a sampler add to a reading? Budget: 75 ns a sample in the mean from tick to slab, of which two clock reads are most, and
//! at 10 kHz 999 of 1,000 ticks within 2 us.
//!
//! `Group::tick` as the daemon's thread calls it: due, stamped, read (nothing to read: `synthetic`), built, in its envelope with its
//! checksum in the slab, handed over when full or old. Somebody in the recorder's place looks every 10 ms and gives slabs back.
//! The mean is over ticks that are always due, so that it holds no sleep; it is taken in turns with bare clock reads. The
//! distribution is of real ticks at 10 kHz, each behind a sleep; it holds the clock read that ends each measurement.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatcap::metrics::SourceMetrics;
use flatcap::os::clock::monotonic_ns;
use flatcap::os::event::Event;
use flatcap::os::thread;
use flatcap::sampling::sources::synthetic::Synthetic;
use flatcap::sampling::{GroupSource, Opened};
use flatcap::slab::{OnFull, SlabPool};

use crate::Measured;
use crate::lines::{Lines, ReadyGroup};
use crate::numbers::{median, must_be_equal, quantile, range, time};
use crate::table::{Length, Row};

const POLL_NS: u64 = 10_000_000;
/// How often it is looked again whether there is room.
const LOOK_AGAIN_NS: u64 = 100_000;
/// Ticks between two looks at the room that is left: fewer than fit a slab.
const ROUND: u64 = 256;
/// Ticks that are not counted: in these all slabs are used for the first time, and their pages with them.
const WARM_UP_TICKS: u64 = 300_000;
const PACED_PERIOD_NS: u64 = 100_000;
/// Paced ticks that are not counted: in these all slabs are used for the first time.
const WARM_UP_NS: u64 = 2_000_000_000;

pub fn measure(length: Length) -> Measured {
    let (turns, ticks) = length.of((11, 2_000_000), (3, 200_000));
    let (mut means, mut clock_reads) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        clock_reads.push(clock_read_ns(ticks));
        means.push(busy(ticks)?);
    }
    let paced_turns = length.of(5, 1);
    let (mut medians, mut p99, mut p999, mut longest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..paced_turns {
        let mut ticks = paced(length.of(10_000_000_000, 500_000_000))?;
        medians.push(quantile(&mut ticks, 0.5));
        p99.push(quantile(&mut ticks, 0.99));
        p999.push(quantile(&mut ticks, 0.999));
        longest.push(quantile(&mut ticks, 1.0));
    }
    let (mean, clock, high) = (median(&means), median(&clock_reads), median(&p999));
    let (lowest, highest) = range(&means);
    Ok(vec![
        Row {
            name: "sample",
            what: "stamp, build, append, hand over: mean a sample".to_owned(),
            target: "<= 75 ns".to_owned(),
            reached: format!("{mean:.1} ns"),
            met: Some(mean <= 75.0),
            beside: format!(
                "{lowest:.1} to {highest:.1} in {turns} turns; two clock reads of it are {:.1} ns",
                2.0 * clock
            ),
        },
        Row {
            name: "sample",
            what: "each tick at 10 kHz, the recorder idle between polls: p99.9".to_owned(),
            target: "<= 2 us".to_owned(),
            reached: time(high),
            met: Some(high <= 2000.0),
            beside: format!(
                "p50 {}, p99 {}, longest {}; {} of each are the measuring",
                time(median(&medians)),
                time(median(&p99)),
                time(median(&longest)),
                time(clock)
            ),
        },
    ])
}

/// One clock read, in nanoseconds.
fn clock_read_ns(reads: u64) -> f64 {
    let begin = monotonic_ns();
    for _ in 0..reads {
        black_box(monotonic_ns());
    }
    (monotonic_ns() - begin) as f64 / reads as f64
}

/// Ticks that are always due. What one takes, in nanoseconds.
fn busy(ticks: u64) -> Result<f64, Box<dyn Error>> {
    let (spent, _) = beside_a_consumer(1, move |ready, room| {
        let mut spent = 0;
        for round in 0..(WARM_UP_TICKS + ticks) / ROUND {
            // Not counted: no sampler waits for room.
            room.wait();
            let begin = monotonic_ns();
            for _ in 0..ROUND {
                black_box(ready.group.tick());
            }
            if round >= WARM_UP_TICKS / ROUND {
                spent += monotonic_ns() - begin;
            }
        }
        spent
    })?;
    let rounds = (WARM_UP_TICKS + ticks) / ROUND - WARM_UP_TICKS / ROUND;
    Ok(spent as f64 / (rounds * ROUND) as f64)
}

/// Ticks on their grid. What each takes, in nanoseconds.
fn paced(duration_ns: u64) -> Result<Vec<u64>, Box<dyn Error>> {
    let (spent, _) = beside_a_consumer(PACED_PERIOD_NS, move |ready, _| {
        let mut spent = Vec::with_capacity((duration_ns / PACED_PERIOD_NS) as usize + 1);
        let never = Event::new();
        let (mut next, first) = (ready.start_ns, ready.start_ns + WARM_UP_NS);
        while next < first + duration_ns {
            never.wait_until(next);
            let begin = monotonic_ns();
            ready.group.tick();
            let end = monotonic_ns();
            if next >= first {
                spent.push(end - begin);
            }
            // The group's own grid: what has gone by is missed.
            next += ((begin - next) / PACED_PERIOD_NS + 1) * PACED_PERIOD_NS;
        }
        spent
    })?;
    Ok(spent)
}

/// By what the busy turns wait for room between two rounds, where it is not counted.
struct Room {
    pool: Arc<SlabPool>,
    wake: Arc<Event>,
    least_free: usize,
}

impl Room {
    fn wait(&self) {
        let never = Event::new();
        while self.pool.free() < self.least_free {
            self.wake.set();
            never.wait_until(monotonic_ns() + LOOK_AGAIN_NS);
        }
    }
}

/// Runs a group of one synthetic source, while somebody takes its slabs as the recorder does. Nothing may be lost.
fn beside_a_consumer<T: Send + 'static>(
    period_ns: u64,
    body: impl FnOnce(&mut ReadyGroup, &Room) -> T + Send + 'static,
) -> Result<(T, u64), Box<dyn Error>> {
    let mut lines = Lines::new(1, &["synthetic"], period_ns, OnFull::DropNewest)?;
    let source = GroupSource {
        id: 0,
        period_ns,
        budget: 10_000,
        sampler: Opened::fixed(Synthetic::point(1)),
        errand: None,
        metrics: Arc::new(SourceMetrics::new("synthetic".to_owned(), period_ns)),
    };
    let mut ready = lines.group(vec![source])?;
    let mut inbox = lines.inbox();
    let (pool, wake) = (Arc::clone(&lines.pool), Arc::clone(&lines.wake));
    let room = Room { pool: Arc::clone(&pool), wake: Arc::clone(&wake), least_free: pool.free() / 2 };
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
        thread::wake_precisely()?;
        let result = body(&mut ready, &room);
        // Hands over what it has: a set stop ends it at once.
        ready.stop.set();
        ready.group.run();
        Ok::<_, std::io::Error>(result)
    })?;
    let result = sampler.join().map_err(|_panic| "the sampler ended by a panic")??;
    ended.store(true, Ordering::Release);
    lines.wake.set();
    let frames = consumer.join().map_err(|_panic| "the consumer ended by a panic")?;
    must_be_equal(
        "frames that came",
        frames,
        lines.metrics.sources.get(0).map_or(0, |source| source.begun.get()),
    )?;
    Ok((result, frames))
}
