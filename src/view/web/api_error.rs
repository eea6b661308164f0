//! Why a request of the page gets no answer.

use flatcap_explain::ExplainError;
use hyper::StatusCode;

use crate::control::ClientError;
use crate::view::ViewError;

/// Why a request gets no answer: a status of HTTP, and a line of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// The request is wrong.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// Too much is asked at once.
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
        let status = match &error {
            ClientError::Refused { status, .. } => StatusCode::from_u16(*status).ok(),
            _ => None,
        };
        Self::new(status.unwrap_or(StatusCode::BAD_GATEWAY), error.to_string())
    }
}
