//! Answers a data source for Prometheus. One thread owns a reader.

use std::collections::BTreeSet;

use flatcap_format::metric::Metric;
use flatcap_format::query::Recording;
use flatcap_format::replay::recording_span;
use flatcap_promql::{Engine, EvaluationOptions, SeriesAnswer, TimeGrid};

use super::api_error::ApiError;
use super::promql_answers::{BuildInfoAnswer, MetadataAnswer, PromqlAnswer, ValueAnswer, maps};
use super::promql_request::{PromqlRequest, SeriesChoice};
use super::shown_paths::ShownPaths;
use super::worker::ApiAnswer;
use crate::os::clock::{monotonic_ns, read_clocks};
use crate::view::ViewError;

/// A growing recording is opened anew after this time: a reload may have added sources.
const OPEN_NS: u64 = 10_000_000_000;
const NS_PER_MS: i64 = 1_000_000;

/// Answers a data source for Prometheus.
#[derive(Debug)]
pub(super) struct PromqlReader {
    shown: ShownPaths,
    engine: Engine,
    opened_ns: u64,
}

impl PromqlReader {
    pub(super) fn open(shown: ShownPaths) -> Result<Self, ViewError> {
        let engine = Engine::new(Recording::open(&shown.paths)?);
        Ok(Self { shown, engine, opened_ns: monotonic_ns() })
    }

    pub(super) fn answer(&mut self, request: &PromqlRequest) -> Result<ApiAnswer, ApiError> {
        self.refresh()?;
        match request {
            PromqlRequest::Query { expression, at_ms, lookback_ms } => {
                let at_ms = match at_ms {
                    Some(at_ms) => *at_ms,
                    None => self.span_ms()?.1,
                };
                let options = self.options(*lookback_ms);
                let answer = self.engine.evaluate(expression, TimeGrid::instant(at_ms), &options)?;
                ApiAnswer::json(&ValueAnswer::instant(answer, at_ms))
            }
            PromqlRequest::QueryRange { expression, grid, lookback_ms } => {
                let answer = self.engine.evaluate(expression, *grid, &self.options(*lookback_ms))?;
                ApiAnswer::json(&ValueAnswer::range(answer, grid))
            }
            PromqlRequest::Series(of) => {
                let SeriesAnswer { series, warnings } = self.series(of)?;
                ApiAnswer::json(&PromqlAnswer::new(maps(&series), warnings))
            }
            PromqlRequest::LabelNames(of) => {
                let SeriesAnswer { series, warnings } = self.series(of)?;
                let names: BTreeSet<&str> =
                    series.iter().flat_map(|labels| labels.iter().map(|(name, _)| name)).collect();
                ApiAnswer::json(&PromqlAnswer::new(names, warnings))
            }
            PromqlRequest::LabelValues { label, of } if label == "__name__" && of.selectors.is_empty() => {
                let measured = self.engine.metrics().iter().filter(|metric| metric.is_measured());
                let names: BTreeSet<String> = measured.map(Metric::name).collect();
                ApiAnswer::json(&PromqlAnswer::new(names, Vec::new()))
            }
            PromqlRequest::LabelValues { label, of } => {
                let SeriesAnswer { series, warnings } = self.series(of)?;
                let values = series.iter().map(|labels| labels.get(label)).filter(|value| !value.is_empty());
                ApiAnswer::json(&PromqlAnswer::new(values.collect::<BTreeSet<&str>>(), warnings))
            }
            PromqlRequest::Metadata(name) => {
                let known = MetadataAnswer::of(self.engine.metrics(), name.as_deref());
                ApiAnswer::json(&PromqlAnswer::new(known, Vec::new()))
            }
            PromqlRequest::Exemplars => ApiAnswer::json(&PromqlAnswer::new([(); 0], Vec::new())),
            PromqlRequest::BuildInfo => {
                ApiAnswer::json(&PromqlAnswer::new(BuildInfoAnswer::new(), Vec::new()))
            }
        }
    }

    /// Opens the recording anew if it grows and was opened a while ago.
    fn refresh(&mut self) -> Result<(), ViewError> {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.opened_ns) >= OPEN_NS && self.shown.is_growing()? {
            self.engine = Engine::new(Recording::open(&self.shown.paths)?);
            self.opened_ns = now_ns;
        }
        Ok(())
    }

    fn options(&self, lookback_ms: i64) -> EvaluationOptions {
        EvaluationOptions { host: self.shown.host.clone(), lookback_ms }
    }

    /// Returns the times of the first and the last sample; of a growing recording until now.
    fn span_ms(&self) -> Result<(i64, i64), ViewError> {
        let now_ns = read_clocks().wall_ns;
        let span = recording_span(&self.shown.paths, self.shown.host.as_ref())?;
        let (from_ns, to_ns) = span.map_or((now_ns, now_ns), |span| (*span.start(), *span.end()));
        let to_ns = if self.shown.is_growing()? { now_ns } else { to_ns };
        Ok((from_ns.div_euclid(NS_PER_MS), to_ns.div_euclid(NS_PER_MS)))
    }

    fn series(&self, of: &SeriesChoice) -> Result<SeriesAnswer, ApiError> {
        let (first_ms, last_ms) = self.span_ms()?;
        let from_ms = of.from_ms.map_or(first_ms, |from_ms| from_ms.max(first_ms));
        // Of a time until now, what a recording that has ended has of it.
        let to_ms = of.to_ms.map_or(last_ms, |to_ms| to_ms.min(last_ms));
        let times_ns = (from_ms.saturating_mul(NS_PER_MS), to_ms.saturating_add(1).saturating_mul(NS_PER_MS));
        Ok(self.engine.series(&of.selectors, times_ns, self.shown.host.as_ref())?)
    }
}
