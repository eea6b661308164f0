//! Selects one sample per step of time.

use std::collections::HashMap;

/// Selects the first sample in each step, for each source of each host.
#[derive(Debug)]
pub struct StepFilter {
    step_ns: u64,
    /// For each source of the current host, the step of the last selected sample.
    last: HashMap<String, i128>,
    /// The name and machine id of the current host, and the steps of the other hosts.
    host: (String, Option<String>),
    others: HashMap<(String, Option<String>), HashMap<String, i128>>,
}

impl StepFilter {
    /// Creates a filter with steps of this length, in nanoseconds.
    pub fn new(step_ns: u64) -> Self {
        Self {
            step_ns: step_ns.max(1),
            last: HashMap::new(),
            host: Default::default(),
            others: HashMap::new(),
        }
    }

    /// Begins a run of this host. The following samples belong to this run. The filter continues
    /// with the steps of this host from its earlier runs.
    pub fn begin_run(&mut self, host: &str, machine_id: Option<&str>) {
        let host = (host.to_owned(), machine_id.map(str::to_owned));
        let next = self.others.remove(&host).unwrap_or_default();
        let last = std::mem::replace(&mut self.last, next);
        self.others.insert(std::mem::replace(&mut self.host, host), last);
        // The new run may belong to the same host, so its steps are taken out of the other hosts
        // again.
        self.last.extend(self.others.remove(&self.host).unwrap_or_default());
    }

    /// Returns, for each sample, whether it is the first sample of its step. Steps begin at
    /// multiples of their length since 1970.
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

    // Proves that each host has its own samples in a step, even if a sample of another host
    // precedes them.
    #[test]
    fn hosts_have_steps_of_their_own() {
        let mut filter = StepFilter::new(100);
        for (name, selected) in [("one", true), ("two", true), ("one", false), ("one", false)] {
            filter.begin_run(name, None);
            assert_eq!(filter.select("cpu", &[110]), [selected], "{name}");
        }
    }

    // Proves that the first sample of each step is selected, for each source, across batches, and
    // even before 1970.
    #[test]
    fn the_first_sample_of_a_step_is_selected() {
        let mut filter = StepFilter::new(100);
        assert_eq!(filter.select("a", &[-1, 0, 50, 99, 100]), [true, true, false, false, true]);
        assert_eq!(filter.select("b", &[110]), [true]);
        assert_eq!(filter.select("a", &[110, 350, 351]), [false, true, false]);
        assert!(filter.select("a", &[]).is_empty());
    }
}
