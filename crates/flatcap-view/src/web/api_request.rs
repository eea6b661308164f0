//! Parses requests of the page, that is, paths and parameters of the API. Uses no sockets.

use std::collections::BTreeMap;

use hyper::{Method, StatusCode};

use super::api_error::ApiError;

/// Maximum number of pixels of a range.
// Few charts are wider, and an answer of ten series fits its limit.
pub(super) const PIXELS_MAX: u32 = 1536;
/// Maximum number of samples in an answer.
pub(super) const SAMPLES_MAX: usize = 5000;
/// Maximum length of an explained range in nanoseconds.
// The limit is needed because the whole range is read.
const EXPLAINED_MAX_NS: u64 = 3_600_000_000_000;
const EXPLAINED_REFUSAL: &str = "the selection is longer than 1 h; select a shorter time to explain";
/// Maximum length of a range searched for spikes.
// An hour of the default sources takes about 4 s of a core, which all answers share.
const SEARCHED_MAX_NS: u64 = 2 * 3_600_000_000_000;
const SEARCHED_REFUSAL: &str =
    "spikes are searched in at most 2 h; zoom in, or run flatcap spikes for the whole recording";
/// Maximum length of a snapshot in seconds.
// This is one day, which is more than most rings hold.
const SNAPSHOT_SECONDS_MAX: u32 = 86_400;
/// The list of the API's endpoints, which is also part of the answer to an unknown path.
const INDEX: &str = "GET /api/v1/sources, /fields, /range, /tasks, /samples, /explain, /spikes, /marks, /snapshots, /live; \
     POST /api/v1/mark, /snapshot";

/// A request of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApiRequest {
    /// The host, the time span and the sources of the recording.
    Sources,
    /// Charts and fields.
    Fields,
    /// The data of a chart.
    Range(RangeRequest),
    /// The data of the CPU timeline.
    Tasks(TasksRequest),
    /// The samples of a field.
    Samples {
        /// Path of the field.
        field: String,
        /// The time range of the samples, in wall nanoseconds.
        wall_ns: WallRange,
    },
    /// The differences between a window and its baseline.
    Explain(WallRange),
    /// The moments with the largest deviations from the baseline.
    Spikes(WallRange),
    /// Marks.
    Marks,
    /// Directories of snapshots.
    Snapshots,
    /// The live stream of new samples.
    Live,
    /// Write a mark.
    Mark,
    /// Keep a snapshot of the given number of seconds up to now.
    Snapshot(u32),
}

/// Request for the data of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RangeRequest {
    /// Title of a chart, or path of a field.
    pub(super) field: String,
    /// The time range of the chart, in wall nanoseconds.
    pub(super) wall_ns: WallRange,
    /// Width of the chart in pixels.
    pub(super) pixels: u32,
}

/// Request for the data of the CPU timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TasksRequest {
    /// The time range of the timeline, in wall nanoseconds.
    pub(super) wall_ns: WallRange,
    /// Width of the timeline in pixels.
    pub(super) pixels: u32,
    /// The process whose share of CPU time is reported separately.
    pub(super) process: Option<u32>,
}

/// A non-empty time range, in wall nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WallRange {
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
}

impl WallRange {
    pub(super) fn length_ns(self) -> u64 {
        self.to_ns.abs_diff(self.from_ns)
    }
}

impl ApiRequest {
    /// Parses a request from a method, a path below /api/v1 and a query string.
    pub(super) fn parse(method: &Method, path: &str, query: &str) -> Result<Self, ApiError> {
        let parameters = Parameters::parse(query)?;
        let (allowed, request) = match path {
            "/sources" => ("GET", Self::Sources),
            "/fields" => ("GET", Self::Fields),
            "/range" => (
                "GET",
                Self::Range(RangeRequest {
                    field: parameters.text("field")?,
                    wall_ns: parameters.range()?,
                    pixels: parameters.number("px", 1, PIXELS_MAX)?,
                }),
            ),
            "/tasks" => (
                "GET",
                Self::Tasks(TasksRequest {
                    wall_ns: parameters.range()?,
                    pixels: parameters.number("px", 1, PIXELS_MAX)?,
                    process: parameters.process()?,
                }),
            ),
            "/samples" => {
                ("GET", Self::Samples { field: parameters.text("field")?, wall_ns: parameters.range()? })
            }
            "/explain" => {
                ("GET", Self::Explain(parameters.range_within(EXPLAINED_MAX_NS, EXPLAINED_REFUSAL)?))
            }
            "/spikes" => ("GET", Self::Spikes(parameters.range_within(SEARCHED_MAX_NS, SEARCHED_REFUSAL)?)),
            "/marks" => ("GET", Self::Marks),
            "/snapshots" => ("GET", Self::Snapshots),
            "/live" => ("GET", Self::Live),
            "/mark" => ("POST", Self::Mark),
            "/snapshot" => ("POST", Self::Snapshot(parameters.number("last", 1, SNAPSHOT_SECONDS_MAX)?)),
            _ => return Err(ApiError::new(StatusCode::NOT_FOUND, format!("no such path; {INDEX}"))),
        };
        // The method is checked after the path, so that the error can name the method of this path.
        if method.as_str() != allowed {
            return Err(ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("/api/v1{path} supports only {allowed}"),
            ));
        }
        // Without this check, a misspelled parameter would be ignored.
        parameters.check_names(request.parameters())?;
        Ok(request)
    }

    /// Returns the names of the request's parameters.
    fn parameters(&self) -> &'static [&'static str] {
        match self {
            Self::Range(_) => &["field", "from", "to", "px"],
            Self::Tasks(_) => &["from", "to", "px", "process"],
            Self::Samples { .. } => &["field", "from", "to"],
            Self::Explain(_) | Self::Spikes(_) => &["from", "to"],
            Self::Snapshot(_) => &["last"],
            _ => &[],
        }
    }
}

/// The parameters of a request.
struct Parameters(BTreeMap<String, String>);

impl Parameters {
    fn parse(query: &str) -> Result<Self, ApiError> {
        let mut parameters = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            // A parameter with two values is refused, because programs differ in the value that
            // they use.
            if parameters.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                return Err(ApiError::bad(format!("the parameter {name} is there twice")));
            }
        }
        Ok(Self(parameters))
    }

    fn check_names(&self, known: &[&str]) -> Result<(), ApiError> {
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(ApiError::bad(format!("no parameter {name}; there are: {}", known.join(", ")))),
            None => Ok(()),
        }
    }

    fn text(&self, name: &str) -> Result<String, ApiError> {
        let value = self.0.get(name).filter(|value| !value.is_empty());
        value.cloned().ok_or_else(|| ApiError::bad(format!("the parameter {name} is missing")))
    }

    fn time(&self, name: &str) -> Result<i64, ApiError> {
        let text = self.text(name)?;
        text.parse().map_err(|_| {
            ApiError::bad(format!(
                "{name}={text} is no time: it must be nanoseconds since 1970, as an integer"
            ))
        })
    }

    fn number(&self, name: &str, least: u32, most: u32) -> Result<u32, ApiError> {
        let text = self.text(name)?;
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number
            .ok_or_else(|| ApiError::bad(format!("{name}={text} must be an integer from {least} to {most}")))
    }

    fn process(&self) -> Result<Option<u32>, ApiError> {
        self.0.contains_key("process").then(|| self.number("process", 0, u32::MAX)).transpose()
    }

    fn range(&self) -> Result<WallRange, ApiError> {
        let (from_ns, to_ns) = (self.time("from")?, self.time("to")?);
        if from_ns >= to_ns {
            return Err(ApiError::bad(format!("from={from_ns} must be before to={to_ns}")));
        }
        Ok(WallRange { from_ns, to_ns })
    }

    /// Returns the requested range if it is at most `most_ns` long. `refusal` is the error text for
    /// a longer range.
    fn range_within(&self, most_ns: u64, refusal: &str) -> Result<WallRange, ApiError> {
        let range = self.range()?;
        if range.length_ns() > most_ns { Err(ApiError::bad(refusal)) } else { Ok(range) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str, query: &str) -> Result<ApiRequest, ApiError> {
        ApiRequest::parse(&Method::GET, path, query)
    }

    // Proves that parameters are decoded, and that each error names the value and the limit.
    #[test]
    fn parameters_are_checked() {
        let range = parsed("/range", "field=disk.devices%5Bvda%5D.reads&from=-5&to=7&px=800").unwrap();
        let wanted = RangeRequest {
            field: "disk.devices[vda].reads".to_owned(),
            wall_ns: WallRange { from_ns: -5, to_ns: 7 },
            pixels: 800,
        };
        assert_eq!(range, ApiRequest::Range(wanted));
        for (path, query, said) in [
            ("/range", "field=a&from=1&to=2", "px is missing"),
            ("/range", "field=a&from=1&to=2&px=0", "px=0 must be an integer from 1 to 1536"),
            ("/range", "field=a&from=2&to=2&px=1", "from=2 must be before to=2"),
            ("/range", "field=a&from=1.5&to=2&px=1", "from=1.5 is no time"),
            ("/range", "field=a&field=b&from=1&to=2&px=1", "field is there twice"),
            ("/samples", "field=a&from=1&to=2&px=1", "no parameter px"),
            ("/tasks", "from=1&to=2&px=1537", "px=1537 must be an integer from 1 to 1536"),
            ("/tasks", "from=1&to=2&px=9&process=-1", "process=-1 must be an integer from 0"),
            ("/explain", "from=0&to=9000000000000", "longer than 1 h"),
            ("/spikes", "from=0&to=7200000000001", "at most 2 h; zoom in"),
            ("/nothing", "", "no such path"),
        ] {
            let error = parsed(path, query).unwrap_err();
            assert!(error.text.contains(said), "{path}?{query}: {}", error.text);
        }
        let wrong = ApiRequest::parse(&Method::POST, "/sources", "").unwrap_err();
        assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(parsed("/mark", "").unwrap_err().status, StatusCode::METHOD_NOT_ALLOWED);
    }
}
