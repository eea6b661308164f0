//! Alternatives that do the same work in turns: each time slice is compared with its neighbours.

use std::time::{Duration, Instant};

/// Does the work a number of times and returns a value of what it read, so that nothing is
/// optimized away.
pub type Work<'a> = Box<dyn FnMut(u64) -> u64 + Send + 'a>;

/// One alternative on one or several threads, each with its own buffer and message.
pub struct Runner<'a> {
    threads: Vec<Work<'a>>,
    /// Per thread and turn.
    calls: u64,
}

impl<'a> Runner<'a> {
    /// Creates a runner whose turn takes at least `turn`.
    pub fn new(threads: usize, turn: Duration, mut make: impl FnMut() -> Work<'a>) -> Self {
        let mut runner = Self { threads: (0..threads).map(|_| make()).collect(), calls: 1 };
        loop {
            let took = runner.turn() * runner.calls as f64;
            if took >= turn.as_secs_f64() {
                return runner;
            }
            // Grows almost to the target at once, so that calibration takes only a few turns.
            let missing = turn.as_secs_f64() / took.max(1e-9);
            runner.calls = (runner.calls as f64 * missing.clamp(1.2, 10.0)).ceil() as u64;
        }
    }

    /// Returns the seconds of one turn divided by its calls on one thread; several threads are
    /// timed until the last one ends.
    pub fn turn(&mut self) -> f64 {
        let calls = self.calls;
        let start = Instant::now();
        if let [work] = &mut self.threads[..] {
            std::hint::black_box(work(calls));
        } else {
            std::thread::scope(|scope| {
                for work in &mut self.threads {
                    scope.spawn(move || std::hint::black_box(work(calls)));
                }
            });
        }
        start.elapsed().as_secs_f64() / calls as f64
    }
}

/// Returns seconds per call, a row per alternative, a column per round. The turns of a round are
/// adjacent in time.
pub fn rounds(runners: &mut [Runner<'_>], rounds: usize) -> Vec<Vec<f64>> {
    let mut seconds = vec![Vec::with_capacity(rounds); runners.len()];
    for _ in 0..rounds {
        for (runner, seconds) in runners.iter_mut().zip(&mut seconds) {
            seconds.push(runner.turn());
        }
    }
    seconds
}

/// The median, and the bounds of the middle half.
#[derive(Debug, Clone, Copy)]
pub struct Quartiles {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Quartiles {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |part: f64| values[(part * (values.len() - 1) as f64).round() as usize];
        Self { low: at(0.25), median: at(0.5), high: at(0.75) }
    }

    /// Quartiles of the rounds' ratios `ours` / `other`.
    pub fn of_ratios(ours: &[f64], other: &[f64]) -> Self {
        Self::of(ours.iter().zip(other).map(|(ours, other)| ours / other))
    }
}
