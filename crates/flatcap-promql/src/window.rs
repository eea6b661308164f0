//! Selects the samples of a series that are in the window before each step.

use std::collections::VecDeque;

use crate::time_grid::TimeGrid;
use crate::window_function::WindowFunction;

/// The window of samples before each step, and the function that a selector applies to them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WindowShape {
    pub(crate) function: WindowFunction,
    /// Length of the window, in milliseconds. Both ends belong to the window.
    pub(crate) range_ms: i64,
    /// Time from the end of the window to the step to which the window belongs, in milliseconds.
    pub(crate) offset_ms: i64,
}

impl WindowShape {
    /// Returns the earliest and the latest time that lie in the window of at least one step.
    pub(crate) fn span_ms(&self, grid: &TimeGrid) -> (i64, i64) {
        let first = grid.at(0).saturating_sub(self.offset_ms).saturating_sub(self.range_ms);
        (first, grid.last_ms().saturating_sub(self.offset_ms))
    }
}

/// A window that moves over the samples of one series, with the values computed at the steps so
/// far.
#[derive(Debug, Default)]
pub(crate) struct MovingWindow {
    /// The samples in the window, each with its time in milliseconds and its value.
    samples: VecDeque<(i64, f64)>,
    values: Vec<Option<f64>>,
    last_ms: Option<i64>,
    /// Number of samples that functions have read from this window.
    visited: u64,
}

impl MovingWindow {
    /// Adds a sample. Adds only the first of several samples in the same millisecond. Ignores a
    /// sample that is earlier than the previous sample because the clock was set back.
    pub(crate) fn add(&mut self, (ms, value): (i64, f64), shape: &WindowShape, grid: &TimeGrid) {
        // After the clock is set back, a sample may be earlier than previous samples.
        if self.last_ms.is_some_and(|last| ms <= last) {
            return;
        }
        self.last_ms = Some(ms);
        self.settle(ms, shape, grid);
        // The function uses only the newest sample, so older samples are not stored.
        if shape.function.is_current() || shape.function == WindowFunction::Last {
            self.samples.clear();
        }
        self.samples.push_back((ms, value));
    }

    /// Ends the series at this time. The series then has no current value until its next sample. As
    /// in Prometheus, window functions still use the samples from before this time.
    pub(crate) fn end(&mut self, ms: i64, shape: &WindowShape, grid: &TimeGrid) {
        // The clock was set back, or another element has these labels in the same sample.
        if !shape.function.is_current() || self.last_ms.is_none_or(|last| ms <= last) {
            return;
        }
        self.settle(ms, shape, grid);
        self.samples.clear();
    }

    /// Returns the number of samples that the window holds.
    pub(crate) fn held(&self) -> usize {
        self.samples.len()
    }

    /// Returns the number of samples that functions have read from this window.
    pub(crate) fn visited(&self) -> u64 {
        self.visited
    }

    /// Returns the values at all steps.
    pub(crate) fn complete(mut self, shape: &WindowShape, grid: &TimeGrid) -> Vec<Option<f64>> {
        self.settle(i64::MAX, shape, grid);
        self.values
    }

    /// Computes the values at the steps whose windows end before a time.
    fn settle(&mut self, before_ms: i64, shape: &WindowShape, grid: &TimeGrid) {
        while self.values.len() < grid.steps() {
            let end_ms = grid.at(self.values.len()).saturating_sub(shape.offset_ms);
            let first_ms = end_ms.saturating_sub(shape.range_ms);
            // Samples are removed even if no step ends here. Otherwise, if the steps are long, the
            // samples between two windows would also be stored.
            while self.samples.front().is_some_and(|(ms, _)| *ms < first_ms) {
                self.samples.pop_front();
            }
            if end_ms >= before_ms {
                return;
            }
            let samples = &*self.samples.make_contiguous();
            self.visited = self.visited.saturating_add(samples.len() as u64);
            self.values.push(shape.function.of(samples, (first_ms, end_ms)));
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Proves that a series has no current value from its end to its next sample, and that
        // window functions still use all samples. For comparison, the test walks over all events
        // for each step.
        #[test]
        fn ended_series_have_no_current_value(
            events in prop::collection::btree_map(0..400_i64, any::<bool>(), 0..60),
            start in 0..200_i64,
            (step, steps) in (1..90_i64, 1..12_i64),
            (range_ms, offset_ms) in (0..150_i64, -40..90_i64),
        ) {
            let grid = TimeGrid::range(start, start + step * (steps - 1), step).unwrap();
            for function in [WindowFunction::Current, WindowFunction::Last, WindowFunction::Count] {
                let shape = WindowShape { function, range_ms, offset_ms };
                let mut window = MovingWindow::default();
                for (ms, is_end) in &events {
                    if *is_end {
                        window.end(*ms, &shape, &grid);
                    } else {
                        window.add((*ms, *ms as f64), &shape, &grid);
                        // This is the end of another element with the same labels.
                        window.end(*ms, &shape, &grid);
                    }
                }
                let found = window.complete(&shape, &grid);
                let naive: Vec<Option<f64>> = (0..grid.steps()).map(|step| {
                    let end = grid.at(step) - offset_ms;
                    let inside: Vec<_> = events.range(end - range_ms..=end).collect();
                    let samples = inside.iter().filter(|(_, is_end)| !**is_end);
                    let last = samples.clone().next_back().map(|(ms, _)| **ms as f64);
                    match function {
                        WindowFunction::Current => last.filter(|_| inside.last().is_some_and(|(_, is_end)| !**is_end)),
                        WindowFunction::Last => last,
                        _ => Some(samples.count() as f64).filter(|count| *count > 0.0),
                    }
                }).collect();
                prop_assert_eq!(found, naive);
            }
        }

        // Proves that a window contains exactly the samples from its start to its end, both
        // included, for any steps. For comparison, the test walks over all samples for each step.
        #[test]
        fn windows_have_their_samples(
            times in prop::collection::btree_set(0..400_i64, 0..60),
            start in 0..200_i64,
            (step, steps) in (1..90_i64, 1..12_i64),
            (range_ms, offset_ms) in (0..150_i64, -40..90_i64),
        ) {
            let grid = TimeGrid::range(start, start + step * (steps - 1), step).unwrap();
            for function in [WindowFunction::Sum, WindowFunction::Count, WindowFunction::Last] {
                let shape = WindowShape { function, range_ms, offset_ms };
                let mut window = MovingWindow::default();
                for ms in &times {
                    window.add((*ms, *ms as f64), &shape, &grid);
                    // A second sample in the same millisecond and an earlier sample are ignored.
                    window.add((*ms, 1e9), &shape, &grid);
                    window.add((*ms - 1, 1e9), &shape, &grid);
                }
                let found = window.complete(&shape, &grid);
                let naive: Vec<Option<f64>> = (0..grid.steps()).map(|step| {
                    let end = grid.at(step) - offset_ms;
                    let inside = times.iter().filter(|ms| (end - range_ms..=end).contains(ms));
                    let inside: Vec<f64> = inside.map(|ms| *ms as f64).collect();
                    let last = inside.last().copied()?;
                    Some(match function {
                        WindowFunction::Sum => inside.iter().sum(),
                        WindowFunction::Count => inside.len() as f64,
                        _ => last,
                    })
                }).collect();
                prop_assert_eq!(found, naive);
            }
        }
    }
}
