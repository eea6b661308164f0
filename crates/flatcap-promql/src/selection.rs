//! Finds the series that a selector matches.

use flatcap_query::metric::Metric;
use promql_parser::label::{MatchOp, Matcher};

use crate::labels::{Labels, NAME};

/// The matchers of a selector. A series is selected only if all matchers accept it.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    matchers: Vec<Matcher>,
}

impl Selection {
    pub(crate) fn new(matchers: Vec<Matcher>) -> Self {
        Self { matchers }
    }

    /// Returns the metrics whose name matches. Also returns the metrics whose elements have
    /// separate metric names, because these names are not known yet. If the selector gives the
    /// exact name of another metric, returns only that metric. A field that contains a state is not
    /// a measurement. Such a field is returned only if the selector gives its exact name.
    pub(crate) fn metrics<'m>(&self, metrics: &'m [Metric]) -> Vec<&'m Metric> {
        let is_named = self.of_name().any(|matcher| matches!(matcher.op, MatchOp::Equal));
        let passes = |metric: &&Metric| {
            let name = metric.name();
            (is_named || metric.is_measured()) && self.of_name().all(|matcher| matcher.is_match(&name))
        };
        let found: Vec<&Metric> = metrics.iter().filter(passes).collect();
        if is_named && !found.is_empty() {
            return found;
        }
        let is_passing = |metric: &Metric| found.iter().any(|other| std::ptr::eq(*other, metric));
        // The metric names of elements are known only from the samples.
        metrics.iter().filter(|metric| metric.has_named_elements || is_passing(metric)).collect()
    }

    /// Returns whether the selector accepts this metric name, regardless of the other labels.
    pub(crate) fn passes_name(&self, name: &str) -> bool {
        self.of_name().all(|matcher| matcher.is_match(name))
    }

    /// Returns whether the selector accepts these labels. A missing label is treated as empty.
    pub(crate) fn passes(&self, labels: &Labels) -> bool {
        self.matchers.iter().all(|matcher| matcher.is_match(labels.get(&matcher.name)))
    }

    fn of_name(&self) -> impl Iterator<Item = &Matcher> {
        self.matchers.iter().filter(|matcher| matcher.name == NAME)
    }
}
