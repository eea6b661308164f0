//! Limits the length of a store's answers to list requests. The library collects such answers in
//! memory, so an endless answer would use up the memory.

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

/// Maximum length of an answer to a list request and of an error text, in bytes. A page of a list
/// has at most 5,000 names of at most 1 KiB, with the attributes of each.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Connects as the library does, and limits the length of answers.
#[derive(Debug)]
pub(crate) struct BoundedConnector;

#[derive(Debug)]
struct BoundedService(HttpClient);

/// A body that fails after `bytes_left` bytes.
#[derive(Debug)]
struct BoundedBody {
    body: HttpResponseBody,
    bytes_left: u64,
}

/// The answer is too long.
#[derive(Debug, thiserror::Error)]
#[error("the answer has more than {ANSWER_BYTES_MAX} bytes, the limit of a list; check the URL of the store")]
struct TooLong;

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(BoundedService(ReqwestConnector::default().connect(options)?)))
    }
}

#[async_trait]
impl HttpService for BoundedService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // All stores use this parameter for the folder of a list. Objects are read in parts of
        // known length.
        let is_list = request.uri().query().is_some_and(|query| query.contains("prefix="));
        let response = self.0.execute(request).await?;
        let is_bounded = is_list || !response.status().is_success();
        Ok(response.map(|body| {
            if is_bounded {
                HttpResponseBody::new(BoundedBody { body, bytes_left: ANSWER_BYTES_MAX })
            } else {
                body
            }
        }))
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
                return Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Decode, TooLong))));
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

    /// A body with this number of pieces of 1 MiB.
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

    /// A store whose answers have this number of MiB.
    #[derive(Debug)]
    struct TalkativeStore(u64);

    #[async_trait]
    impl HttpService for TalkativeStore {
        async fn call(&self, _request: HttpRequest) -> Result<HttpResponse, HttpError> {
            Ok(HttpResponse::new(HttpResponseBody::new(Pieces(self.0))))
        }
    }

    // Proves that an endless answer to a list request fails at the limit and that the error names
    // the reason. An answer as long as the limit is accepted, and objects may be longer.
    #[test]
    fn endless_lists_end() {
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
        assert_eq!(read(20, "/v1/object.parquet").unwrap().len(), 20 << 20);
    }
}
