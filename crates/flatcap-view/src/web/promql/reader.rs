//! Answers a Prometheus data source. One thread owns a reader.

use std::collections::{BTreeMap, BTreeSet};

use flatcap_format::replay::recording_span;
use flatcap_os::clock::{monotonic_ns, read_clocks};
use flatcap_promql::{Engine, EvaluationOptions, SeriesAnswer, TimeGrid};
use flatcap_query::Recording;
use flatcap_query::metric::{LOST_TOTAL, Metric};

use super::answers::{BuildInfoAnswer, MetadataAnswer, PromqlAnswer, ValueAnswer, maps};
use super::request::{PromqlRequest, SeriesChoice};
use crate::ViewError;
use crate::web::api_error::ApiError;
use crate::web::shown_paths::ShownPaths;
use crate::web::worker::ApiAnswer;

/// Interval at which a growing recording is reopened.
// A reload of the configuration may have added sources.
const OPEN_NS: u64 = 10_000_000_000;
const NS_PER_MS: i64 = 1_000_000;

/// A reader that answers the requests of Prometheus data sources.
#[derive(Debug)]
pub(super) struct PromqlReader {
    shown: ShownPaths,
    /// The open recording; `None` before the first request.
    // The recording is opened late, because opening reads all headers and most pages have no data
    // source.
    opened: Option<OpenedRecording>,
}

#[derive(Debug)]
struct OpenedRecording {
    engine: Engine,
    opened_ns: u64,
}

impl PromqlReader {
    pub(super) fn new(shown: ShownPaths) -> Self {
        Self { shown, opened: None }
    }

    pub(super) fn answer(&mut self, request: &PromqlRequest) -> Result<ApiAnswer, ApiError> {
        let mut opened = match self.opened.take() {
            Some(opened) => opened,
            None => OpenedRecording::open(&self.shown)?,
        };
        let answer = opened.refresh(&self.shown).map_err(ApiError::from);
        let answer = answer.and_then(|()| self.answer_from(&opened.engine, request));
        // The recording is put back even after an error, because the next request may succeed.
        self.opened = Some(opened);
        answer
    }

    fn answer_from(&self, engine: &Engine, request: &PromqlRequest) -> Result<ApiAnswer, ApiError> {
        match request {
            PromqlRequest::Query { expression, at_ms, lookback_ms } => {
                let at_ms = match at_ms {
                    Some(at_ms) => *at_ms,
                    None => self.last_ms()?,
                };
                let options = self.options(*lookback_ms);
                let answer = engine.evaluate(expression, TimeGrid::instant(at_ms), &options)?;
                ApiAnswer::json(&ValueAnswer::instant(answer, at_ms))
            }
            PromqlRequest::QueryRange { expression, grid, lookback_ms } => {
                let answer = engine.evaluate(expression, *grid, &self.options(*lookback_ms))?;
                ApiAnswer::json(&ValueAnswer::range(answer, grid))
            }
            PromqlRequest::Series(of) => {
                let SeriesAnswer { series, warnings } = self.series(engine, of)?;
                ApiAnswer::json(&PromqlAnswer::new(maps(&series), warnings))
            }
            PromqlRequest::LabelNames(of) => {
                let SeriesAnswer { series, warnings } = self.series(engine, of)?;
                let names: BTreeSet<&str> =
                    series.iter().flat_map(|labels| labels.iter().map(|(name, _)| name)).collect();
                ApiAnswer::json(&PromqlAnswer::new(names, warnings))
            }
            PromqlRequest::LabelValues { label, of } if label == "__name__" && of.selectors.is_empty() => {
                let measured = engine.metrics().iter().filter(|metric| metric.is_measured());
                let (foreign, own): (Vec<&Metric>, Vec<&Metric>) =
                    measured.partition(|metric| metric.has_named_elements);
                let mut names: BTreeSet<String> = own.into_iter().map(Metric::name).collect();
                names.insert(LOST_TOTAL.to_owned());
                let mut warnings = Vec::new();
                if !foreign.is_empty() {
                    // Only the samples contain the names of recorded Prometheus metrics.
                    let fields = foreign.iter().map(|metric| metric.name());
                    let selectors = ["{__name__!~\"flatcap_.*\"}".to_owned()].into_iter().chain(fields);
                    let others = SeriesChoice { selectors: selectors.collect(), ..of.clone() };
                    let found = self.series(engine, &others)?;
                    names.extend(found.series.iter().map(|labels| labels.get(label).to_owned()));
                    warnings = found.warnings;
                }
                ApiAnswer::json(&PromqlAnswer::new(names, warnings))
            }
            PromqlRequest::LabelValues { label, of } => {
                let SeriesAnswer { series, warnings } = self.series(engine, of)?;
                let values = series.iter().map(|labels| labels.get(label)).filter(|value| !value.is_empty());
                ApiAnswer::json(&PromqlAnswer::new(values.collect::<BTreeSet<&str>>(), warnings))
            }
            PromqlRequest::Metadata(name) => {
                let known = MetadataAnswer::of(engine.metrics(), name.as_deref());
                ApiAnswer::json(&PromqlAnswer::new(known, Vec::new()))
            }
            PromqlRequest::Exemplars => ApiAnswer::json(&PromqlAnswer::new([(); 0], Vec::new())),
            PromqlRequest::NoRules(list) => {
                let none = BTreeMap::from([(*list, Vec::<String>::new())]);
                ApiAnswer::json(&PromqlAnswer::new(none, Vec::new()))
            }
            PromqlRequest::BuildInfo => {
                ApiAnswer::json(&PromqlAnswer::new(BuildInfoAnswer::new(), Vec::new()))
            }
        }
    }

    fn options(&self, lookback_ms: i64) -> EvaluationOptions {
        EvaluationOptions { host: self.shown.host.clone(), lookback_ms }
    }

    /// Returns the time of the last sample, or the current time if the recording grows.
    fn last_ms(&self) -> Result<i64, ViewError> {
        let now_ns = read_clocks().wall_ns;
        if self.shown.is_growing()? {
            return Ok(now_ns.div_euclid(NS_PER_MS));
        }
        let span = recording_span(&self.shown.paths, self.shown.host.as_ref())?;
        Ok(span.map_or(now_ns, |span| *span.end()).div_euclid(NS_PER_MS))
    }

    fn series(&self, engine: &Engine, of: &SeriesChoice) -> Result<SeriesAnswer, ApiError> {
        let last_ms = self.last_ms()?;
        // The end of a range is limited to the end of a recording that no longer grows.
        let to_ms = of.to_ms.map_or(last_ms, |to_ms| to_ms.min(last_ms));
        let from_ns = of.from_ms.map_or(i64::MIN, |from_ms| from_ms.saturating_mul(NS_PER_MS));
        let times_ns = (from_ns, to_ms.saturating_add(1).saturating_mul(NS_PER_MS));
        Ok(engine.series(&of.selectors, times_ns, self.shown.host.as_ref())?)
    }
}

impl OpenedRecording {
    fn open(shown: &ShownPaths) -> Result<Self, ViewError> {
        Ok(Self { engine: Engine::new(Recording::open(&shown.paths)?), opened_ns: monotonic_ns() })
    }

    /// Reopens the recording if it grows and was opened at least [`OPEN_NS`] ago.
    fn refresh(&mut self, shown: &ShownPaths) -> Result<(), ViewError> {
        if monotonic_ns().saturating_sub(self.opened_ns) >= OPEN_NS && shown.is_growing()? {
            *self = Self::open(shown)?;
        }
        Ok(())
    }
}
