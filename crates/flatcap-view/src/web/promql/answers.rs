//! Answers in the JSON format of the HTTP API of Prometheus.

use std::collections::{BTreeMap, BTreeSet};

use flatcap_promql::{LabelledSeries, Labels, QueryAnswer, QueryValue, TimeGrid};
use flatcap_query::metric::{LOST_TOTAL, Metric};
use hyper::StatusCode;
use serde::Serialize;

use crate::web::api_error::ApiError;

/// The Prometheus version whose semantics the answers follow.
const PROMETHEUS_VERSION: &str = "2.42.0";
/// Range of numbers that are written without an exponent, as in Prometheus.
const PLAIN_NUMBERS: std::ops::Range<f64> = 1e-6..1e21;

/// An answer of the query API, or an error.
#[derive(Debug, Serialize)]
pub(super) struct PromqlAnswer<T> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<T>,
    #[serde(rename = "errorType", skip_serializing_if = "Option::is_none")]
    error_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The value of an expression.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ValueAnswer {
    result_type: &'static str,
    result: ResultAnswer,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ResultAnswer {
    Scalar(Sample),
    Vector(Vec<VectorAnswer>),
    Matrix(Vec<MatrixAnswer>),
}

/// A sample of Prometheus: the time in seconds since 1970, and the value as a string.
type Sample = (f64, String);

#[derive(Debug, Serialize)]
struct VectorAnswer {
    metric: BTreeMap<String, String>,
    value: Sample,
}

#[derive(Debug, Serialize)]
struct MatrixAnswer {
    metric: BTreeMap<String, String>,
    values: Vec<Sample>,
}

/// Type and help text of a metric, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct MetadataAnswer {
    #[serde(rename = "type")]
    kind: &'static str,
    help: String,
    unit: &'static str,
}

/// Version and name of this server.
#[derive(Debug, Serialize)]
pub(super) struct BuildInfoAnswer {
    version: &'static str,
    application: &'static str,
    revision: &'static str,
}

impl<T> PromqlAnswer<T> {
    pub(super) fn new(data: T, warnings: Vec<String>) -> Self {
        Self { status: "success", data: Some(data), error_type: None, error: None, warnings }
    }
}

impl PromqlAnswer<()> {
    /// Returns an error in the format that data sources expect.
    pub(super) fn error(error: ApiError) -> Self {
        let error_type = match error.status {
            StatusCode::BAD_REQUEST | StatusCode::METHOD_NOT_ALLOWED => "bad_data",
            StatusCode::NOT_FOUND => "not_found",
            StatusCode::UNPROCESSABLE_ENTITY => "execution",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable",
            _ => "internal",
        };
        let (error_type, error) = (Some(error_type), Some(error.text));
        Self { status: "error", data: None, error_type, error, warnings: Vec::new() }
    }
}

impl ValueAnswer {
    /// Returns the value of an expression at one time.
    pub(super) fn instant(answer: QueryAnswer, at_ms: i64) -> PromqlAnswer<Self> {
        let time = seconds(at_ms);
        let data = match answer.value {
            QueryValue::Scalar(numbers) => {
                let number = numbers.first().copied().unwrap_or(f64::NAN);
                Self { result_type: "scalar", result: ResultAnswer::Scalar((time, number_text(number))) }
            }
            QueryValue::Vector(series) => {
                let result = series.iter().filter_map(|series| {
                    let value = series.values.first().copied().flatten()?;
                    Some(VectorAnswer { metric: map(&series.labels), value: (time, number_text(value)) })
                });
                Self { result_type: "vector", result: ResultAnswer::Vector(result.collect()) }
            }
        };
        PromqlAnswer::new(data, answer.warnings)
    }

    /// Returns the values of an expression at several times.
    pub(super) fn range(answer: QueryAnswer, grid: &TimeGrid) -> PromqlAnswer<Self> {
        let series = match answer.value {
            QueryValue::Scalar(numbers) => {
                vec![LabelledSeries {
                    labels: Labels::default(),
                    values: numbers.into_iter().map(Some).collect(),
                }]
            }
            QueryValue::Vector(series) => series,
        };
        let result = series.iter().map(|series| {
            let values = series.values.iter().enumerate();
            let sample = |(step, value): (usize, &Option<f64>)| {
                value.map(|value| (seconds(grid.at(step)), number_text(value)))
            };
            MatrixAnswer { metric: map(&series.labels), values: values.filter_map(sample).collect() }
        });
        let data = Self { result_type: "matrix", result: ResultAnswer::Matrix(result.collect()) };
        PromqlAnswer::new(data, answer.warnings)
    }
}

impl MetadataAnswer {
    /// Returns the type and the help text of each metric, by metric name.
    pub(super) fn of(metrics: &[Metric], name: Option<&str>) -> BTreeMap<String, [Self; 1]> {
        let wanted = metrics.iter().filter(|metric| metric.is_measured());
        let known = wanted.map(|metric| {
            let kind = if metric.is_counter() { "counter" } else { "gauge" };
            let help = metric.field.meaning.clone();
            (metric.name(), [Self { kind, help, unit: metric.unit.unwrap_or_default() }])
        });
        let help = "Samples that the recording reports as lost.".to_owned();
        let losses = (LOST_TOTAL.to_owned(), [Self { kind: "counter", help, unit: "" }]);
        known.chain([losses]).filter(|(own, _)| name.is_none_or(|name| name == own)).collect()
    }
}

impl BuildInfoAnswer {
    pub(super) fn new() -> Self {
        Self { version: PROMETHEUS_VERSION, application: "flatcap", revision: env!("CARGO_PKG_VERSION") }
    }
}

/// Returns the labels of series as JSON maps.
pub(super) fn maps(series: &BTreeSet<Labels>) -> Vec<BTreeMap<String, String>> {
    series.iter().map(map).collect()
}

fn map(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds since 1970 have 41 bits")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

fn number_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if number == 0.0 || number.is_nan() || PLAIN_NUMBERS.contains(&number.abs()) {
        return number.to_string();
    }
    format!("{number:e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that numbers have the format that clients of Prometheus parse.
    #[test]
    fn numbers_are_texts() {
        for (number, text) in [
            (1.5, "1.5"),
            (-0.0, "-0"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (1e300, "1e300"),
            (1e-9, "1e-9"),
            (123_456_789_012.0, "123456789012"),
        ] {
            assert_eq!(number_text(number), text);
        }
    }

    // Proves that answers and errors have the format of Prometheus.
    #[test]
    fn answers_have_the_form_of_prometheus() {
        let answer = QueryAnswer { value: QueryValue::Scalar(vec![2.0]), warnings: vec!["w".to_owned()] };
        assert_eq!(
            serde_json::to_string(&ValueAnswer::instant(answer, 1500)).unwrap(),
            r#"{"status":"success","data":{"resultType":"scalar","result":[1.5,"2"]},"warnings":["w"]}"#
        );
        let series = LabelledSeries { labels: Labels::default(), values: vec![None, Some(1.0)] };
        let answer = QueryAnswer { value: QueryValue::Vector(vec![series]), warnings: Vec::new() };
        let grid = TimeGrid::range(0, 1000, 1000).unwrap();
        assert_eq!(
            serde_json::to_string(&ValueAnswer::range(answer, &grid)).unwrap(),
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1.0,"1"]]}]}}"#
        );
        assert_eq!(
            serde_json::to_string(&PromqlAnswer::error(ApiError::bad("x"))).unwrap(),
            r#"{"status":"error","errorType":"bad_data","error":"x"}"#
        );
    }
}
