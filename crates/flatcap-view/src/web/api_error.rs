//! Errors of the page's API.

use flatcap_control::ClientError;
use flatcap_explain::ExplainError;
use hyper::StatusCode;

use crate::ViewError;

/// An error of the API: an HTTP status and a line of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Returns the error of an invalid request.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// Returns the error of too many concurrent requests.
    pub(super) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests are waiting; try again")
    }
}

impl From<ViewError> for ApiError {
    fn from(error: ViewError) -> Self {
        let status = match error {
            ViewError::NoSwitches => StatusCode::NOT_FOUND,
            ViewError::Query(_) => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl From<ExplainError> for ApiError {
    fn from(error: ExplainError) -> Self {
        let status = match error {
            ExplainError::NoSamples => StatusCode::NOT_FOUND,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self::new(status, error.to_string())
    }
}

impl From<ClientError> for ApiError {
    fn from(error: ClientError) -> Self {
        // The status that the recorder returned describes its refusal best.
        let status = match &error {
            ClientError::Refused { status, .. } => StatusCode::from_u16(*status).ok(),
            _ => None,
        };
        Self::new(status.unwrap_or(StatusCode::BAD_GATEWAY), error.to_string())
    }
}
