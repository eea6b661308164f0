//! The times at which an expression is evaluated.

use crate::error::PromqlError;

/// Maximum number of steps of an answer, as in Prometheus.
pub const STEPS_MAX: usize = 11_000;

/// The times at which an expression is evaluated, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeGrid {
    start_ms: i64,
    step_ms: i64,
    steps: usize,
}

impl TimeGrid {
    /// Returns a grid with a single time.
    pub fn instant(at_ms: i64) -> Self {
        Self { start_ms: at_ms, step_ms: 1, steps: 1 }
    }

    /// Returns the times from `start_ms` to `end_ms`, both included, at intervals of `step_ms`.
    ///
    /// # Errors
    /// `Expression` if the end is before the start, the step is not positive, or there are more
    /// than [`STEPS_MAX`] steps.
    pub fn range(start_ms: i64, end_ms: i64, step_ms: i64) -> Result<Self, PromqlError> {
        if step_ms <= 0 {
            return Err(PromqlError::Expression(format!(
                "the step is {step_ms} ms; it must be positive, such as 1s"
            )));
        }
        let Some(length_ms) = end_ms.checked_sub(start_ms).filter(|length| *length >= 0) else {
            return Err(PromqlError::Expression(format!(
                "the end {end_ms} ms is before the start {start_ms} ms"
            )));
        };
        let steps = usize::try_from(length_ms / step_ms).unwrap_or(usize::MAX).saturating_add(1);
        if steps > STEPS_MAX {
            return Err(PromqlError::Expression(format!(
                "the answer would have {steps} steps, at most {STEPS_MAX}; use a longer step or a shorter time"
            )));
        }
        Ok(Self { start_ms, step_ms, steps })
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Returns the time of a step, in milliseconds since 1970.
    #[allow(clippy::cast_possible_wrap, reason = "at most STEPS_MAX steps")]
    pub fn at(&self, step: usize) -> i64 {
        self.start_ms.saturating_add((step as i64).saturating_mul(self.step_ms))
    }

    /// Returns the time of the last step.
    pub(crate) fn last_ms(&self) -> i64 {
        self.at(self.steps.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the start is a step, that the end is a step if it lies on the grid, and that the
    // last step is not after the end. Invalid ranges are rejected with an error that states their
    // numbers.
    #[test]
    fn grids_have_both_ends() {
        let grid = TimeGrid::range(1000, 2500, 500).unwrap();
        assert_eq!((grid.steps(), grid.at(0), grid.last_ms()), (4, 1000, 2500));
        assert_eq!(TimeGrid::range(1000, 2499, 500).unwrap().last_ms(), 2000);
        assert_eq!(TimeGrid::range(7, 7, 1).unwrap().steps(), 1);
        for (grid, said) in [
            (TimeGrid::range(0, -1, 1), "the end -1 ms is before the start 0 ms"),
            (TimeGrid::range(0, 1, 0), "the step is 0 ms"),
            (TimeGrid::range(i64::MIN, i64::MAX, 1), "before the start"),
            (TimeGrid::range(0, 11_000, 1), "11001 steps, at most 11000"),
        ] {
            let error = grid.unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
