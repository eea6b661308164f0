//! Provides the counter of lost samples as series. The counter is not a field of a source. Its
//! samples are computed from the gaps of the segments, as if a server had scraped the counter
//! regularly.

use std::collections::BTreeMap;

use flatcap_query::SourceLosses;
use flatcap_query::metric::{HostLabels, LOST_TOTAL};

use crate::error::PromqlError;
use crate::labels::{Labels, NAME};
use crate::selection::Selection;
use crate::series::{LabelledSeries, check_size};
use crate::series_scan::SeriesScan;
use crate::window::{MovingWindow, WindowShape};

/// Maximum interval between two samples of the counter, in milliseconds.
// This is the usual scrape interval.
const SCRAPE_MS: i64 = 15_000;
/// Minimum number of samples of the counter in a window.
const SAMPLES_MIN: i64 = 4;
/// Maximum number of samples of a series.
const SAMPLES_MAX: i64 = 1 << 22;
const NS_PER_MS: i64 = 1_000_000;

/// Returns the loss counters whose labels match the selection. Each counter has the losses of all
/// its runs.
pub(crate) fn counters(
    losses: Vec<SourceLosses>,
    selection: &Selection,
) -> BTreeMap<Labels, Vec<SourceLosses>> {
    let mut counters: BTreeMap<Labels, Vec<SourceLosses>> = BTreeMap::new();
    for of_source in losses {
        let labels = HostLabels::of(&of_source.run).losses(&of_source);
        let labels = Labels::new(labels.into_iter().chain([(NAME.to_owned(), LOST_TOTAL.to_owned())]));
        if selection.passes(&labels) {
            counters.entry(labels).or_default().push(of_source);
        }
    }
    counters
}

impl SeriesScan<'_> {
    /// Returns the series of the counter of lost samples that match a selector.
    pub(crate) fn read_losses(
        &self,
        selection: &Selection,
        shape: &WindowShape,
    ) -> Result<Vec<LabelledSeries>, PromqlError> {
        if !selection.passes_name(LOST_TOTAL) {
            return Ok(Vec::new());
        }
        let (first_ms, last_ms) = shape.span_ms(&self.grid);
        let samples = last_ms.saturating_sub(first_ms) / interval_ms(shape);
        if samples > SAMPLES_MAX {
            return Err(PromqlError::Evaluation(format!(
                "{LOST_TOTAL} has {samples} samples with a window of {} ms, at most {SAMPLES_MAX}; use a longer \
                 window or a shorter time",
                shape.range_ms
            )));
        }
        let counters = counters(self.recording.losses(self.host)?, selection);
        check_size(counters.len(), self.grid.steps())?;
        let series = counters.into_iter().map(|(labels, mut runs)| {
            runs.sort_by_key(|run| run.since_ns);
            let mut window = MovingWindow::default();
            let mut total = 0_u64;
            let next_begins = runs.iter().skip(1).map(|next| Some(next.since_ns)).chain([None]);
            for (run, next_ns) in runs.iter().zip(next_begins) {
                let end_ms = self.end_ms(run, next_ns);
                self.add_run(&mut window, (run, end_ms), &mut total, shape);
            }
            LabelledSeries { labels, values: window.complete(shape, &self.grid) }
        });
        Ok(series.filter(LabelledSeries::has_values).collect())
    }

    /// Returns the time of the last sample of the counter in a run, or `None` if the run continues.
    /// A run may lose samples after its last recorded sample, or record no samples. The next run of
    /// the same source begins at `next_ns`.
    fn end_ms(&self, run: &SourceLosses, next_ns: Option<i64>) -> Option<i64> {
        let latest_ns = run.losses.last().map_or(run.since_ns, |(ns, _)| *ns);
        let recorded_ns = self.run_ends.get(&run.run.run_id).copied();
        let end_ns = recorded_ns.or(next_ns.map(|_| latest_ns))?.max(latest_ns);
        Some(next_ns.map_or(end_ns, |next_ns| end_ns.min(next_ns)).div_euclid(NS_PER_MS))
    }

    /// Adds the counter's samples for one run, and adds the losses of this run to the total.
    fn add_run(
        &self,
        window: &mut MovingWindow,
        (run, end_ms): (&SourceLosses, Option<i64>),
        total: &mut u64,
        shape: &WindowShape,
    ) {
        let (first_ms, last_ms) = shape.span_ms(&self.grid);
        let begin_ms = run.since_ns.div_euclid(NS_PER_MS);
        let interval_ms = interval_ms(shape);
        let mut losses = run.losses.iter().peekable();
        // Earlier samples are outside all windows.
        let mut at_ms = begin_ms.max(first_ms.saturating_sub(interval_ms));
        while at_ms <= last_ms.min(end_ms.unwrap_or(last_ms)) {
            while let Some((_, count)) = losses.next_if(|(ns, _)| ns.div_euclid(NS_PER_MS) <= at_ms) {
                *total = total.saturating_add(*count);
            }
            #[expect(clippy::cast_precision_loss, reason = "values of Prometheus have 53 bits")]
            window.add((at_ms, *total as f64), shape, &self.grid);
            // The next sample is at the next multiple of the interval, or at the next loss.
            let next_ms = at_ms.div_euclid(interval_ms).saturating_add(1).saturating_mul(interval_ms);
            let loss_ms = losses.peek().map_or(next_ms, |(ns, _)| ns.div_euclid(NS_PER_MS));
            at_ms = next_ms.min(loss_ms);
        }
        // The counter continues in the next run, so losses after the last sample are also added to
        // the total.
        *total = losses.fold(*total, |total, (_, count)| total.saturating_add(*count));
        if let Some(end_ms) = end_ms {
            window.end(end_ms.saturating_add(1), shape, &self.grid);
        }
    }
}

/// Returns the interval between two samples of the counter, in milliseconds.
fn interval_ms(shape: &WindowShape) -> i64 {
    (shape.range_ms / SAMPLES_MIN).clamp(1, SCRAPE_MS)
}
