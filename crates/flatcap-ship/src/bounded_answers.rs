//! Limits the length of a store's responses. The library collects a response in memory, so an
//! endless response would exhaust the memory.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService, ReqwestConnector,
};

/// Maximum length of the response to a list request and of an error text, in bytes.
// A page of a list has at most 5,000 names of at most 1 KiB, with the attributes of each.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Maximum size of an object that is read, in bytes.
// This program writes objects of at most about 16 MiB.
pub(crate) const OBJECT_BYTES_MAX: u64 = 256 << 20;

/// HTTP statuses for a request without the right credentials.
const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;
/// Maximum length of the text of a refusal, in characters.
const REFUSAL_CHARS_MAX: usize = 500;

/// Connects in the same way as the library, but limits the length of responses.
#[derive(Debug)]
pub(crate) struct BoundedConnector;

#[derive(Debug)]
struct BoundedService(HttpClient);

/// The body of a response. Reading the body fails after `bytes_max` bytes.
#[derive(Debug)]
struct BoundedBody {
    body: HttpResponseBody,
    bytes_left: u64,
    bytes_max: u64,
}

/// The error for a response that is too long.
#[derive(Debug, thiserror::Error)]
#[error(
    "the answer has more than {bytes_max} bytes, the limit for such a request; check the URL of the store"
)]
struct TooLong {
    bytes_max: u64,
}

/// The error of a store that refuses list requests. The library would report such a refusal as a
/// temporary failure.
#[derive(Debug, thiserror::Error)]
#[error("the store refuses the list request with {status}: {text}; check the credentials and the URL")]
struct ListRefused {
    status: String,
    text: String,
}

/// Returns whether the same request would fail again. If so, repeating the request would only delay
/// the error.
pub(crate) fn is_final(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.any(|error| error.is::<TooLong>() || error.is::<ListRefused>())
}

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(BoundedService(ReqwestConnector::default().connect(options)?)))
    }
}

#[async_trait]
impl HttpService for BoundedService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // All stores use the parameter `prefix` for the folder of a list request.
        let is_list = request.uri().query().is_some_and(|query| query.contains("prefix="));
        let response = self.0.execute(request).await?;
        let status = response.status();
        // The body of a failed request is an error text, which is not longer than a list.
        let is_object = !is_list && status.is_success();
        let bytes_max = if is_object { OBJECT_BYTES_MAX } else { ANSWER_BYTES_MAX };
        let response = response
            .map(|body| HttpResponseBody::new(BoundedBody { body, bytes_left: bytes_max, bytes_max }));
        if is_list && matches!(status.as_u16(), UNAUTHORIZED | FORBIDDEN) {
            let text = response.into_body().bytes().await.unwrap_or_default();
            let text = String::from_utf8_lossy(&text).chars().take(REFUSAL_CHARS_MAX).collect();
            // The library does not repeat a request after an error of this kind.
            return Err(HttpError::new(
                HttpErrorKind::Decode,
                ListRefused { status: status.to_string(), text },
            ));
        }
        Ok(response)
    }
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            let Some(left) = self.bytes_left.checked_sub(bytes) else {
                return Poll::Ready(Some(Err(HttpError::new(
                    HttpErrorKind::Decode,
                    TooLong { bytes_max: self.bytes_max },
                ))));
            };
            self.bytes_left = left;
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;

    /// A body that consists of the given number of pieces of 1 MiB.
    #[derive(Debug)]
    struct Pieces(u64);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = HttpError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
            let left = self.0.checked_sub(1);
            self.0 = left.unwrap_or_default();
            Poll::Ready(left.map(|_| Ok(Frame::data(Bytes::from(vec![b'x'; 1 << 20])))))
        }
    }

    /// A store whose responses have the given size in MiB.
    #[derive(Debug)]
    struct TalkativeStore(u64);

    #[async_trait]
    impl HttpService for TalkativeStore {
        async fn call(&self, _request: HttpRequest) -> Result<HttpResponse, HttpError> {
            Ok(HttpResponse::new(HttpResponseBody::new(Pieces(self.0))))
        }
    }

    /// A store that refuses all requests.
    #[derive(Debug)]
    struct RefusingStore;

    #[async_trait]
    impl HttpService for RefusingStore {
        async fn call(&self, _request: HttpRequest) -> Result<HttpResponse, HttpError> {
            let mut response = HttpResponse::new("wrong key".to_owned().into());
            *response.status_mut() = FORBIDDEN.try_into().unwrap();
            Ok(response)
        }
    }

    // Proves that an endless list and the refusal of a list are final errors with their reason. The
    // refusal of an object is left to the library, which reports it as a refusal.
    #[test]
    fn final_answers_are_not_asked_for_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ask = |service: HttpClient, query: &str| {
            let service = BoundedService(service);
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = format!("http://store/bucket{query}").parse().unwrap();
            runtime.block_on(async { service.call(request).await?.into_body().bytes().await })
        };
        let list = "?list-type=2&prefix=v1";
        let stores = [HttpClient::new(RefusingStore), HttpClient::new(TalkativeStore(u64::MAX))];
        for (store, reason) in stores.into_iter().zip(["403 Forbidden: wrong key", "more than 16777216"]) {
            let error = ask(store, list).unwrap_err();
            let error = object_store::Error::Generic { store: "S3", source: Box::new(error) };
            assert!(is_final(&error) && error.to_string().contains(reason), "{error}");
        }
        let passing = object_store::Error::Generic { store: "S3", source: "connection reset".into() };
        assert!(!is_final(&passing));
        assert_eq!(ask(HttpClient::new(RefusingStore), "/v1/object").unwrap(), "wrong key");
    }

    // Proves that an endless response fails at the limit for its request, and that the error names
    // the limit. A response that is exactly as long as the limit is accepted. Objects may be longer
    // than lists.
    #[test]
    fn endless_answers_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = |mib: u64, query: &str| {
            let service = BoundedService(HttpClient::new(TalkativeStore(mib)));
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = format!("http://store/bucket{query}").parse().unwrap();
            runtime.block_on(async { service.call(request).await.unwrap().into_body().bytes().await })
        };
        for query in ["?list-type=2&prefix=v1", "?restype=container&comp=list&prefix=v1"] {
            let refused = read(u64::MAX, query).unwrap_err();
            assert!(refused.to_string().contains("more than 16777216 bytes"), "{refused}");
            assert_eq!(read(16, query).unwrap().len(), 16 << 20);
        }
        let object = "/v1/object.parquet";
        assert_eq!(read(20, object).unwrap().len(), 20 << 20);
        let refused = read(u64::MAX, object).unwrap_err();
        assert!(refused.to_string().contains("more than 268435456 bytes"), "{refused}");
    }
}
