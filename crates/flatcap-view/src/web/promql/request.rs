//! Parses requests of a Prometheus data source to the endpoints of the HTTP API of Prometheus. Uses
//! no sockets.

use flatcap_format::duration::parse_duration;
use flatcap_promql::{EvaluationOptions, PromqlError, TimeGrid};
use hyper::{Method, StatusCode};

use crate::web::api_error::ApiError;

/// A request of a data source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PromqlRequest {
    /// `/query`: the value of an expression at one time.
    Query {
        expression: String,
        /// The time, in milliseconds since 1970; `None` for the newest sample.
        at_ms: Option<i64>,
        lookback_ms: i64,
    },
    /// `/query_range`: the values of an expression at several times.
    QueryRange { expression: String, grid: TimeGrid, lookback_ms: i64 },
    /// `/series`: labels of series.
    Series(SeriesChoice),
    /// `/labels`: names of labels.
    LabelNames(SeriesChoice),
    /// `/label/NAME/values`: the values of a label.
    LabelValues { label: String, of: SeriesChoice },
    /// `/metadata`: types and help of all metrics, or of one metric.
    Metadata(Option<String>),
    /// `/query_exemplars`: always empty.
    // Recordings have no exemplars.
    Exemplars,
    /// `/rules` or `/alerts`: always empty.
    // A page evaluates no rules, so there are none to list.
    NoRules(&'static str),
    /// `/status/buildinfo`: version and name of this server.
    BuildInfo,
}

/// Selects the series to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SeriesChoice {
    /// The selectors of the series. A series is listed if at least one selector matches. Empty for
    /// all series.
    pub(super) selectors: Vec<String>,
    /// The time range, in milliseconds since 1970; `None` for the range of the recording.
    pub(super) from_ms: Option<i64>,
    pub(super) to_ms: Option<i64>,
}

impl PromqlRequest {
    /// Parses a request from a method, a path below /api/v1, and the parameters in its query and
    /// body.
    pub(super) fn parse(method: &Method, path: &str, (query, body): (&str, &str)) -> Result<Self, ApiError> {
        if !matches!(*method, Method::GET | Method::POST) {
            return Err(ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("/api/v1{path} supports only GET, POST"),
            ));
        }
        let parameters = PromqlParameters::parse(query, body);
        match path {
            "/query" => Ok(Self::Query {
                expression: parameters.text("query")?,
                at_ms: parameters.time("time")?,
                lookback_ms: parameters.lookback_ms()?,
            }),
            "/query_range" => {
                let needed = |name: &str| {
                    parameters
                        .time(name)?
                        .ok_or_else(|| ApiError::bad(format!("the parameter {name} is missing")))
                };
                let step = parameters.text("step")?;
                let grid = TimeGrid::range(needed("start")?, needed("end")?, duration_ms("step", &step)?);
                Ok(Self::QueryRange {
                    expression: parameters.text("query")?,
                    grid: grid.map_err(ApiError::from)?,
                    lookback_ms: parameters.lookback_ms()?,
                })
            }
            "/series" => {
                let of = parameters.series_choice()?;
                if of.selectors.is_empty() {
                    return Err(ApiError::bad("the parameter match[] is missing"));
                }
                Ok(Self::Series(of))
            }
            "/labels" => Ok(Self::LabelNames(parameters.series_choice()?)),
            "/metadata" => Ok(Self::Metadata(parameters.find("metric"))),
            "/query_exemplars" => Ok(Self::Exemplars),
            "/rules" => Ok(Self::NoRules("groups")),
            "/alerts" => Ok(Self::NoRules("alerts")),
            "/status/buildinfo" => Ok(Self::BuildInfo),
            other => {
                let label = other.strip_prefix("/label/").and_then(|rest| rest.strip_suffix("/values"));
                let Some(label) = label.filter(|label| !label.is_empty() && !label.contains('/')) else {
                    return Err(ApiError::new(
                        StatusCode::NOT_FOUND,
                        "the values of a label are at /api/v1/label/NAME/values",
                    ));
                };
                Ok(Self::LabelValues { label: label.to_owned(), of: parameters.series_choice()? })
            }
        }
    }
}

/// The parameters of a request; a name may occur several times. Unknown parameters are ignored, as
/// in Prometheus.
// Data sources may send parameters that only newer versions of Prometheus know.
struct PromqlParameters(Vec<(String, String)>);

impl PromqlParameters {
    fn parse(query: &str, body: &str) -> Self {
        let of = |text: &str| form_urlencoded::parse(text.as_bytes()).into_owned().collect::<Vec<_>>();
        // The parameters of the body come first, as in the form parser of Go, which Prometheus
        // uses.
        let mut parameters = of(body);
        parameters.extend(of(query));
        Self(parameters)
    }

    fn find(&self, name: &str) -> Option<String> {
        let mut named = self.0.iter().filter(|(own, value)| own == name && !value.is_empty());
        named.next().map(|(_, value)| value.clone())
    }

    fn text(&self, name: &str) -> Result<String, ApiError> {
        self.find(name).ok_or_else(|| ApiError::bad(format!("the parameter {name} is missing")))
    }

    fn time(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.find(name).map(|text| time_ms(name, &text)).transpose()
    }

    fn lookback_ms(&self) -> Result<i64, ApiError> {
        match self.find("lookback_delta") {
            Some(text) => duration_ms("lookback_delta", &text),
            None => Ok(EvaluationOptions::default().lookback_ms),
        }
    }

    fn series_choice(&self) -> Result<SeriesChoice, ApiError> {
        let selectors = self.0.iter().filter(|(name, _)| name == "match[]" || name == "match");
        Ok(SeriesChoice {
            selectors: selectors.map(|(_, value)| value.clone()).collect(),
            from_ms: self.time("start")?,
            to_ms: self.time("end")?,
        })
    }
}

/// Parses a time: seconds since 1970, or a date with a time.
fn time_ms(name: &str, text: &str) -> Result<i64, ApiError> {
    if let Some(ms) = text.parse::<f64>().ok().and_then(milliseconds) {
        return Ok(ms);
    }
    let time = text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_millisecond);
    time.map_err(|_| {
        ApiError::bad(format!(
            "{name}={text} is no time: seconds since 1970, or such as 2026-11-22T20:05:37Z"
        ))
    })
}

/// Parses a duration: seconds, or a number with a unit.
fn duration_ms(name: &str, text: &str) -> Result<i64, ApiError> {
    if let Some(ms) = text.parse::<f64>().ok().and_then(milliseconds) {
        return Ok(ms);
    }
    let duration = parse_duration(text).ok();
    duration.and_then(|duration| i64::try_from(duration.as_millis()).ok()).ok_or_else(|| {
        ApiError::bad(format!("{name}={text} is no duration: seconds, or a number with a unit, such as 15s"))
    })
}

/// Converts seconds to milliseconds, rounded to the nearest.
#[allow(clippy::cast_possible_truncation, reason = "checked to be within i64")]
fn milliseconds(seconds: f64) -> Option<i64> {
    let ms = (seconds * 1000.0).round();
    // Larger numbers do not fit 64 bits.
    (ms.abs() < 9e18).then_some(ms as i64)
}

impl From<PromqlError> for ApiError {
    fn from(error: PromqlError) -> Self {
        let status = match &error {
            PromqlError::Expression(_) => StatusCode::BAD_REQUEST,
            PromqlError::Segment(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self::new(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str, query: &str, body: &str) -> Result<PromqlRequest, ApiError> {
        PromqlRequest::parse(&Method::POST, path, (query, body))
    }

    // Proves that times and steps are parsed as in Prometheus, from the query or the body, and that
    // each error names the invalid value.
    #[test]
    fn requests_are_read() {
        let grid = TimeGrid::range(1_700_000_000_000, 1_700_000_060_500, 15_000).unwrap();
        let wanted = PromqlRequest::QueryRange { expression: "1 + 1".to_owned(), grid, lookback_ms: 300_000 };
        let body = "query=1+%2B+1&start=1700000000&end=1700000060.5&step=15s";
        assert_eq!(parsed("/query_range", "", body).unwrap(), wanted);
        assert_eq!(parsed("/query_range", body, "").unwrap(), wanted);
        let dated = body.replace("1700000000&", "2023-11-14T22:13:20Z&").replace("15s", "15");
        assert_eq!(parsed("/query_range", &dated, "").unwrap(), wanted);
        assert_eq!(
            parsed("/query", "query=a&lookback_delta=10s", "").unwrap(),
            PromqlRequest::Query { expression: "a".to_owned(), at_ms: None, lookback_ms: 10_000 }
        );
        let of = SeriesChoice { selectors: vec!["a".into(), "b".into()], from_ms: Some(1000), to_ms: None };
        let asked = "match[]=a&match%5B%5D=b&start=1";
        assert_eq!(parsed("/series", asked, "").unwrap(), PromqlRequest::Series(of.clone()));
        let values = PromqlRequest::LabelValues { label: "device".to_owned(), of };
        assert_eq!(parsed("/label/device/values", asked, "").unwrap(), values);
        for (path, query, said) in [
            ("/query", "", "query is missing"),
            ("/query", "query=a&time=soon", "time=soon is no time"),
            ("/query_range", "query=a&start=1&end=2", "step is missing"),
            ("/query_range", "query=a&start=1&end=2&step=x", "step=x is no duration"),
            ("/query_range", "query=a&start=2&end=1&step=1", "before the start"),
            ("/query_range", "query=a&start=1&end=2&step=0", "the step is 0 ms"),
            ("/query_range", "query=a&start=1&end=1e300&step=1", "end=1e300 is no time"),
            ("/series", "", "match[] is missing"),
            ("/label/a/b/values", "", "/label/NAME/values"),
        ] {
            let error = parsed(path, query, "").unwrap_err();
            assert!(error.text.contains(said), "{path} {query}: {}", error.text);
        }
    }
}
