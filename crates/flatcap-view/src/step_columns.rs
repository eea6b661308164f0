//! The extrema of a value over equal time steps, as a chart draws them.

use std::collections::VecDeque;

/// Maximum number of steps kept.
// This is twice the columns of a wide terminal, so that the values are still stored when the user
// steps back.
const COLUMNS_MAX: usize = 2048;

/// One time step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepColumn {
    /// The smallest and the largest value; `None` if the step has no value.
    pub extrema: Option<(f64, f64)>,
    /// Whether samples of this step were lost.
    pub is_lost: bool,
}

/// The extrema of a value, step by step.
#[derive(Debug, Clone)]
pub struct StepColumns {
    step_ns: i64,
    /// Index of the first step that is stored.
    first: i64,
    columns: VecDeque<StepColumn>,
}

impl StepColumn {
    fn include(&mut self, value: f64) {
        let (smallest, largest) = self.extrema.unwrap_or((value, value));
        self.extrema = Some((smallest.min(value), largest.max(value)));
    }
}

impl StepColumns {
    /// Creates steps of the given length. The first step contains the wall time `from_ns`.
    pub(super) fn new(step_ns: i64, from_ns: i64) -> Self {
        // A step of 0 would divide by zero.
        let step_ns = step_ns.max(1);
        Self { step_ns, first: from_ns.div_euclid(step_ns), columns: VecDeque::new() }
    }

    /// Returns the index of the step that contains a wall time.
    pub fn number(&self, wall_ns: i64) -> i64 {
        wall_ns.div_euclid(self.step_ns)
    }

    /// Returns the step with a given index.
    pub fn get(&self, number: i64) -> StepColumn {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.columns.get(place)).copied().unwrap_or_default()
    }

    /// Adds a value that holds from one wall time to another.
    pub(super) fn add(&mut self, from_ns: i64, to_ns: i64, value: f64) {
        self.change(from_ns, to_ns, |column| column.include(value));
    }

    /// Records that samples were lost between two wall times.
    pub(super) fn add_loss(&mut self, from_ns: i64, to_ns: i64) {
        self.change(from_ns, to_ns, |column| column.is_lost = true);
    }

    fn change(&mut self, from_ns: i64, to_ns: i64, change: impl Fn(&mut StepColumn)) {
        let kept = i64::try_from(COLUMNS_MAX).unwrap_or(i64::MAX);
        let last = self.number(to_ns);
        self.first = self.first.max({
            let earliest = last.saturating_sub(kept - 1);
            let dropped = earliest.saturating_sub(self.first).clamp(0, i64::MAX);
            let dropped = usize::try_from(dropped).unwrap_or(usize::MAX).min(self.columns.len());
            self.columns.drain(..dropped);
            earliest
        });
        let first = self.number(from_ns).max(self.first);
        for number in first..=last {
            let Ok(place) = usize::try_from(number - self.first) else { continue };
            if place >= self.columns.len() {
                self.columns.resize(place + 1, StepColumn::default());
            }
            if let Some(column) = self.columns.get_mut(place) {
                change(column);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a step has the smallest and largest value that held in the step, and that a step
    // without a value has no extrema. The number of steps is bounded.
    #[test]
    fn steps_have_their_extrema() {
        let mut steps = StepColumns::new(10, 100);
        steps.add(100, 100, 5.0);
        steps.add(101, 109, 1.0);
        steps.add(115, 131, 7.0);
        steps.add_loss(150, 151);
        let shown: Vec<_> = (10..=15).map(|number| steps.get(number).extrema).collect();
        let seven = Some((7.0, 7.0));
        assert_eq!(shown, [Some((1.0, 5.0)), seven, seven, seven, None, None]);
        steps.add(145, 149, 3.0);
        assert_eq!([14, 15].map(|number| steps.get(number).extrema.is_some()), [true, false]);
        assert!(steps.get(15).is_lost && !steps.get(14).is_lost);
        assert_eq!(steps.get(9), StepColumn::default());
        assert_eq!(steps.get(i64::MAX), StepColumn::default());
        steps.add(10_000_000, 10_000_000, 2.0);
        assert_eq!(steps.get(1_000_000).extrema, Some((2.0, 2.0)));
        assert_eq!(steps.get(10).extrema, None);
        assert!(steps.columns.len() <= COLUMNS_MAX);
    }
}
