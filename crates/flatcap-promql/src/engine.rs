//! Evaluates expressions over one recording.

use std::collections::BTreeSet;

use flatcap_format::replay::HostIdentity;
use flatcap_query::Recording;
use flatcap_query::metric::{LOST_TOTAL, Metric, metrics};

use crate::error::PromqlError;
use crate::evaluation::Evaluation;
use crate::labels::Labels;
use crate::loss_series::counters;
use crate::planner::{Planner, parse, parse_selection};
use crate::selection::Selection;
use crate::series::QueryValue;
use crate::series_list::list_series;
use crate::series_scan::SeriesScan;
use crate::time_grid::TimeGrid;

/// Default time for which a sample is valid, the same as in Prometheus.
const LOOKBACK_MS: i64 = 300_000;

/// Evaluates expressions over one recording.
#[derive(Debug)]
pub struct Engine {
    recording: Recording,
    metrics: Vec<Metric>,
}

/// Options for the evaluation of an expression.
#[derive(Debug, Clone)]
pub struct EvaluationOptions {
    /// The host whose samples are used; `None` for all hosts.
    pub host: Option<HostIdentity>,
    /// Time for which a sample is valid, in milliseconds.
    pub lookback_ms: i64,
}

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryAnswer {
    /// The value.
    pub value: QueryValue,
    /// Descriptions of data that could not be read, each as a sentence.
    pub warnings: Vec<String>,
}

/// The series that match some selectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesAnswer {
    /// The labels of the series.
    pub series: BTreeSet<Labels>,
    /// Descriptions of samples that could not be read, each as a sentence.
    pub warnings: Vec<String>,
}

impl Default for EvaluationOptions {
    fn default() -> Self {
        Self { host: None, lookback_ms: LOOKBACK_MS }
    }
}

impl Engine {
    /// Creates an engine for a recording. The engine knows only the sources that the recording has
    /// now.
    pub fn new(recording: Recording) -> Self {
        Self { metrics: metrics(&recording), recording }
    }

    /// Returns the metrics of the recording.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// Returns the value of an expression at each step.
    ///
    /// # Errors
    /// Any [`PromqlError`].
    pub fn evaluate(
        &self,
        expression: &str,
        grid: TimeGrid,
        options: &EvaluationOptions,
    ) -> Result<QueryAnswer, PromqlError> {
        let node = Planner { lookback_ms: options.lookback_ms }.plan(&parse(expression)?)?;
        let host = options.host.as_ref();
        let run_ends = self.recording.run_ends(host)?;
        let scan = SeriesScan {
            recording: &self.recording,
            metrics: &self.metrics,
            host,
            grid,
            run_ends: &run_ends,
        };
        let mut evaluation = Evaluation { scan, steps: grid, warnings: BTreeSet::new() };
        let value = evaluation.value(&node)?;
        Ok(QueryAnswer { value, warnings: evaluation.warnings.into_iter().collect() })
    }

    /// Returns the labels of the series that match at least one selector. If there is no selector,
    /// returns the labels of all series. If the time range is longer than ten minutes, lists only
    /// the elements that existed in its last ten minutes.
    ///
    /// # Errors
    /// A selector is malformed, or the recording cannot be read.
    pub fn series(
        &self,
        selectors: &[String],
        times_ns: (i64, i64),
        host: Option<&HostIdentity>,
    ) -> Result<SeriesAnswer, PromqlError> {
        let mut selections =
            selectors.iter().map(|text| parse_selection(text)).collect::<Result<Vec<_>, _>>()?;
        let mut warnings = BTreeSet::new();
        let of = (&self.recording, self.metrics.as_slice());
        let mut series = list_series(of, &selections, host, times_ns, &mut warnings)?;
        if selections.is_empty() {
            selections.push(Selection::new(Vec::new()));
        }
        // The counter of lost samples is not a field, so it is listed separately.
        selections.retain(|selection| selection.passes_name(LOST_TOTAL));
        if !selections.is_empty() {
            let mut losses = self.recording.losses(host)?;
            losses.retain(|of_source| of_source.since_ns <= times_ns.1);
            for selection in &selections {
                series.extend(counters(losses.clone(), selection).into_keys());
            }
        }
        Ok(SeriesAnswer { series, warnings: warnings.into_iter().collect() })
    }
}
