//! One sample per step.

use std::collections::HashMap;

/// Selects the first sample of each source in each step.
#[derive(Debug)]
pub struct StepFilter {
    step_ns: u64,
    /// The step of the last selected sample, by source.
    last: HashMap<String, i128>,
}

impl StepFilter {
    /// Creates a filter with steps of this length, in nanoseconds.
    pub fn new(step_ns: u64) -> Self {
        Self { step_ns: step_ns.max(1), last: HashMap::new() }
    }

    /// Returns for each sample whether it is the first of its step. Steps begin at multiples of
    /// their length since 1970.
    pub fn select(&mut self, source: &str, wall_ns: &[i64]) -> Vec<bool> {
        let step_ns = i128::from(self.step_ns);
        let mut last = self.last.get(source).copied();
        let selected = wall_ns
            .iter()
            .map(|ns| {
                let step = i128::from(*ns).div_euclid(step_ns);
                last.replace(step) != Some(step)
            })
            .collect();
        if let Some(last) = last {
            self.last.insert(source.to_owned(), last);
        }
        selected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the first sample of each step is selected, per source, across batches, and before
    // 1970 as well.
    #[test]
    fn the_first_sample_of_a_step_is_selected() {
        let mut filter = StepFilter::new(100);
        assert_eq!(filter.select("a", &[-1, 0, 50, 99, 100]), [true, true, false, false, true]);
        assert_eq!(filter.select("b", &[110]), [true]);
        assert_eq!(filter.select("a", &[110, 350, 351]), [false, true, false]);
        assert!(filter.select("a", &[]).is_empty());
    }
}
