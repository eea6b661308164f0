//! The HTTP server of the page. One thread serves all connections, and other threads answer
//! requests for data.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use flatcap_control::{Client, FirstDone, ListenerState, MARK_BYTES_MAX, first};
use flatcap_explain::{RecordingChoice, explain, find_spikes};
use flatcap_os::clock::NS_PER_S;
use flatcap_os::throttle::Throttle;
use flatcap_os::wake_event::WakeEvent;
use flatcap_text::stack_names::StackNames;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    HeaderValue, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request as Asked, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener as AsyncTcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use super::access::{PageAccess, new_token};
use super::api_error::ApiError;
use super::api_request::{ApiRequest, WallRange};
use super::assets::Asset;
use super::live::{LiveBody, LiveEvents, LiveHub};
use super::promql::PromqlService;
use super::recording_reader::RecordingReader;
use super::shown_paths::ShownPaths;
use super::work_budget::WorkBudget;
use super::worker::{ApiAnswer, PAGE_ANSWER_BYTES_MAX, Worker};
use crate::ViewError;

/// Time limit for the client to send the request line and headers, and the body.
const REQUEST_WAIT: Duration = Duration::from_secs(3);
/// Time limit for the client to receive an answer.
const READ_WAIT: Duration = Duration::from_secs(10);
/// Limit on the parameters in the body of a data source's request, in bytes.
const PARAMETERS_BYTES_MAX: usize = 64 << 10;
/// Size limit for the request line and headers together.
const HEADERS_BYTES_MAX: usize = 16 << 10;
/// Limit on the number of headers of a request.
const HEADERS_MAX: usize = 64;
/// CPU budget of all threads together, which is half of a core in the long run.
const CPU_NS_PER_S: u64 = NS_PER_S / 2;
/// Time for which unused budget accumulates. This allows a burst of 4 s of CPU time for the first
/// view of a large recording.
const BURST_NS: u64 = 8 * NS_PER_S;
/// Delay before connections are accepted again after a failure, such as too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Minimum length of an explained window, and minimum length of the baseline before it.
const BEFORE_MIN_NS: u64 = 10 * NS_PER_S;
const WINDOW_MIN_NS: u64 = 300_000_000;
/// Maximum number of spikes that the page lists.
const SPIKES_MAX: usize = 20;
/// Maximum number of suspects and of fields in an answer, and maximum length of each list of
/// causes.
const EXPLAINED_MAX: usize = 20;
/// Content security policy. The policy allows only scripts and styles from this origin, no inline
/// code, and no embedding in frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The recording shown on a page, and the address of the page.
#[derive(Debug)]
pub struct PageOptions {
    /// Segment files, or directories of segments.
    pub paths: Vec<std::path::PathBuf>,
    /// The host to show; `None` if all segments are from one host.
    pub host: Option<flatcap_format::replay::HostIdentity>,
    /// Name of the host.
    pub host_name: String,
    /// Connection to the recorder, which writes the marks and keeps the snapshots that the page
    /// requests.
    pub client: Option<Client>,
    /// The address and port on which the server listens. Port 0 selects any free port.
    pub listen: SocketAddr,
    /// The access token; `None` to create a token.
    pub token: Option<String>,
}

/// A server that is ready to run.
#[derive(Debug)]
pub struct PageServer {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
    ticket: Option<String>,
    shown: ShownPaths,
    client: Option<Client>,
    reader: RecordingReader,
}

/// A request to the recorder.
#[derive(Debug)]
enum RecorderOrder {
    /// Write a mark with this text.
    Mark(String),
    /// Keep a snapshot that covers this length of time up to now, and record this reason.
    Snapshot(Duration, String),
}

type PageBody = Either<Full<Bytes>, LiveBody>;

impl PageServer {
    /// Opens the recording and the port on which the server listens.
    ///
    /// # Errors
    /// The address is not a loopback address or is in use, or the recording cannot be read.
    pub fn bind(options: PageOptions) -> Result<Self, ViewError> {
        let PageOptions { paths, host, host_name, client, listen, token } = options;
        // The token is sent in clear text, so no other host may see the connection.
        if !listen.ip().is_loopback() {
            return Err(ViewError::NotLoopback(listen));
        }
        let shown = ShownPaths { paths, host, host_name, can_mark: client.is_some() };
        // The recording is opened before the port is bound, so that a wrong path is reported first.
        let reader = RecordingReader::open(shown.clone())?;
        let failed = |error| ViewError::Listen { address: listen, error };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let token = token.map_or_else(|| new_token().map_err(ViewError::Page), Ok)?;
        Ok(Self { listener, address, token, ticket: None, shown, client, reader })
    }

    /// Returns the address of the page.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the token, which all requests for recorded data need.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Creates and returns a ticket. The first page that presents the ticket receives the token.
    /// Other users of this host may see the command line that starts the browser, so the command
    /// line has only the ticket.
    ///
    /// # Errors
    /// Any error of getrandom(2).
    pub fn issue_ticket(&mut self) -> io::Result<String> {
        let ticket = new_token()?;
        self.ticket = Some(ticket.clone());
        Ok(ticket)
    }

    /// Serves until `stop` is sent or dropped.
    ///
    /// # Errors
    /// The kernel refuses a resource, such as a thread.
    pub fn run(self, stop: oneshot::Receiver<()>) -> io::Result<()> {
        let Self { listener, token, ticket, shown, client, reader, .. } = self;
        let throttle = Arc::new(Throttle::new(CPU_NS_PER_S).with_burst(BURST_NS));
        let ending = Arc::new(WakeEvent::new());
        let budget = WorkBudget::new(Arc::clone(&throttle), Arc::clone(&ending));
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        let limits = || (budget.clone(), PAGE_ANSWER_BYTES_MAX);
        let (quick, thread) = Worker::start("page-range", limits(), quick_answers(reader))?;
        threads.push(thread);
        let (slow, thread) = Worker::start("page-explain", limits(), slow_answers(shown.clone()))?;
        threads.push(thread);
        // A command to the recorder must not wait for other answers, because it refers to the
        // present.
        let (orders, thread) = Worker::start("page-orders", limits(), order_answers(client))?;
        threads.push(thread);
        let (promql, thread) = PromqlService::start(shown.clone(), budget.clone())?;
        threads.extend(thread);
        let (live, thread) = LiveHub::start(shown, budget)?;
        threads.push(thread);
        let access = PageAccess::new(token, ticket);
        let context = Rc::new(PageContext { access, quick, slow, orders, promql, live });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tasks = LocalSet::new();
        let served = tasks.block_on(&runtime, async {
            let listener = AsyncTcpListener::from_std(listener)?;
            let state = Rc::new(ListenerState::new(throttle));
            let accepting = accept(listener, context, state);
            // The server stops without waiting for open connections, because an open page keeps its
            // event connection indefinitely.
            let _stopped = first(stop, accepting).await;
            Ok(())
        });
        // Dropping the tasks closes the connections and the queues of the threads.
        drop(tasks);
        runtime.shutdown_background();
        // This ends all waits for the CPU budget, so that the threads can be joined.
        ending.set();
        for thread in threads {
            // A panic of the thread was reported when it happened.
            let _panicked = thread.join();
        }
        served
    }
}

/// Returns the function that answers requests for data of charts.
fn quick_answers(mut reader: RecordingReader) -> impl FnMut(&ApiRequest) -> Result<ApiAnswer, ApiError> {
    move |request| match request {
        ApiRequest::Sources => ApiAnswer::json(&reader.sources()?),
        ApiRequest::Fields => ApiAnswer::json(&reader.fields()?),
        ApiRequest::Range(request) => {
            let body = reader.range(request)?.encode();
            Ok(ApiAnswer { media_type: "application/octet-stream", body })
        }
        ApiRequest::Tasks(request) => {
            let body = reader.tasks(request)?.encode();
            Ok(ApiAnswer { media_type: "application/octet-stream", body })
        }
        ApiRequest::Samples { field, wall_ns } => ApiAnswer::json(&reader.samples(field, *wall_ns)?),
        ApiRequest::Marks => ApiAnswer::json(&reader.marks()?),
        _ => ApiAnswer::json(&reader.snapshots()),
    }
}

/// Returns the function that sends requests to the recorder.
fn order_answers(client: Option<Client>) -> impl FnMut(&RecorderOrder) -> Result<ApiAnswer, ApiError> {
    move |order| {
        let Some(client) = &client else {
            return Err(ApiError::new(
                StatusCode::CONFLICT,
                "no recorder runs here: marks and snapshots are of a running recording",
            ));
        };
        let said = match order {
            RecorderOrder::Mark(text) => client.mark(text)?,
            RecorderOrder::Snapshot(last, reason) => client.snapshot(*last, Duration::ZERO, reason)?,
        };
        Ok(text_answer(said))
    }
}

fn text_answer(text: String) -> ApiAnswer {
    ApiAnswer { media_type: "text/plain; charset=utf-8", body: (text + "\n").into_bytes() }
}

/// Returns the function that answers requests that may take seconds.
pub(super) fn slow_answers(shown: ShownPaths) -> impl FnMut(&ApiRequest) -> Result<ApiAnswer, ApiError> {
    let choice = RecordingChoice {
        paths: shown.paths,
        sources: std::collections::BTreeSet::default(),
        host: shown.host.clone(),
    };
    move |request| match request {
        ApiRequest::Spikes(WallRange { from_ns, to_ns }) => {
            let filter = flatcap_format::replay::ReplayFilter {
                since_ns: Some(*from_ns),
                until_ns: Some(*to_ns),
                host: choice.host.clone(),
                ..flatcap_format::replay::ReplayFilter::default()
            };
            let found = find_spikes(&choice, filter, SPIKES_MAX, &mut |_| {})?;
            ApiAnswer::json(&found)
        }
        ApiRequest::Explain(wall_ns) => {
            let length_ns = wall_ns.length_ns().max(WINDOW_MIN_NS);
            let middle_ns = wall_ns.from_ns.saturating_add_unsigned(wall_ns.length_ns() / 2);
            let mut found = explain(&choice, middle_ns, length_ns, BEFORE_MIN_NS, &mut |_| {})?;
            found.add_causes(&choice, |stacks, boot_id| {
                let names = StackNames::of(stacks, boot_id, &[]);
                move |object, offset| names.function(object, offset)
            })?;
            found.truncate(EXPLAINED_MAX);
            ApiAnswer::json(&found)
        }
        _ => Err(ApiError::bad("not a request of this kind")),
    }
}

/// The state shared by all connections.
struct PageContext {
    access: PageAccess,
    quick: Worker<ApiRequest>,
    slow: Worker<ApiRequest>,
    orders: Worker<RecorderOrder>,
    promql: PromqlService,
    live: LiveHub,
}

/// The condition under which a connection that sends an answer is closed.
enum AnswerEnd {
    /// The connection is closed after the time limit for receiving the answer.
    InTime,
    /// The connection is closed when the viewer is disconnected.
    WhenDropped(oneshot::Receiver<()>),
}

async fn accept(listener: AsyncTcpListener, context: Rc<PageContext>, state: Rc<ListenerState>) {
    loop {
        // Connections also use CPU time, so they also wait for the budget.
        state.wait_for_budget(|| {}).await;
        let Ok((connection, _)) = listener.accept().await else {
            sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        let Ok(slot) = state.acquire_slot(|| {}).await else { return };
        let (context, state) = (Rc::clone(&context), Rc::clone(&state));
        tokio::task::spawn_local(async move {
            state.charge(serve(connection, &context, &state)).await;
            drop(slot);
        });
    }
}

/// Serves one connection. A connection has only one request, as on the control socket.
async fn serve(connection: TcpStream, context: &PageContext, state: &ListenerState) {
    // Without this option, a small answer would wait until the client acknowledges earlier data.
    let _unsupported = connection.set_nodelay(true);
    let silent = state.add_silent();
    let (answered, is_answered) = oneshot::channel();
    let answered = Cell::new(Some(answered));
    let service = service_fn(|asked| {
        state.remove_silent(&silent);
        let answered = &answered;
        async move {
            let (response, end) = context.answer(asked).await;
            if let Some(answered) = answered.take() {
                let _taken = answered.send(end);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection_task = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_WAIT)
        .max_buf_size(HEADERS_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(connection), service);
    let slow = async {
        match is_answered.await {
            Ok(AnswerEnd::InTime) => sleep(READ_WAIT).await,
            Ok(AnswerEnd::WhenDropped(dropped)) => {
                let _dropped = dropped.await;
            }
            // The request ended without an answer. The other branch handles this case.
            Err(_) => pending::<()>().await,
        }
    };
    let done = first(first(connection_task, slow), silent.wait_for_displacement()).await;
    state.remove_silent(&silent);
    if let FirstDone::Left(FirstDone::Left(Err(error))) = done {
        tracing::debug!(%error, "page: a connection failed");
    }
}

impl PageContext {
    async fn answer(&self, asked: Asked<Incoming>) -> (Response<PageBody>, AnswerEnd) {
        let (mut response, end) = match self.respond(asked).await {
            Ok(answer) => answer,
            Err(ApiError { status, text }) => {
                let mut response = full(text + "\n", "text/plain; charset=utf-8");
                *response.status_mut() = status;
                (response, AnswerEnd::InTime)
            }
        };
        // No other page may embed or read an answer, and no injected script may run.
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        let same_origin = HeaderValue::from_static("same-origin");
        headers.insert(HeaderName::from_static("cross-origin-resource-policy"), same_origin.clone());
        headers.insert(HeaderName::from_static("cross-origin-opener-policy"), same_origin);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        (response, end)
    }

    async fn respond(&self, asked: Asked<Incoming>) -> Result<(Response<PageBody>, AnswerEnd), ApiError> {
        // The origin is checked before anything else, so that a page of another origin gets no
        // information.
        PageAccess::check_origin(asked.headers(), asked.uri())?;
        if matches!(asked.uri().path(), "/-/healthy" | "/-/ready") {
            // Prometheus gives the same answer. It has no recorded data, so the request needs no
            // token.
            return Ok((full("flatcap is healthy.\n", "text/plain; charset=utf-8"), AnswerEnd::InTime));
        }
        // The files of the page have no recorded data, so requests for them need no token.
        let Some(path) = asked.uri().path().strip_prefix("/api/v1") else {
            return Ok((asset(&asked)?, AnswerEnd::InTime));
        };
        if path == "/token" {
            let answer = text_answer(self.access.take_ticket(asked.headers())?);
            return Ok((full(answer.body, answer.media_type), AnswerEnd::InTime));
        }
        self.access.check_token(asked.headers())?;
        if is_promql_path(path) {
            return Ok((self.promql_response(asked).await?, AnswerEnd::InTime));
        }
        let request = ApiRequest::parse(asked.method(), path, asked.uri().query().unwrap_or_default())?;
        let answer = match request {
            ApiRequest::Live => {
                let LiveEvents { body, dropped } = self.live.join();
                let mut response = Response::new(Either::Right(body));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
                return Ok((response, AnswerEnd::WhenDropped(dropped)));
            }
            ApiRequest::Mark => {
                let text = limited_text(asked.into_body(), MARK_BYTES_MAX).await?;
                self.orders.ask(RecorderOrder::Mark(text)).await?
            }
            ApiRequest::Snapshot(seconds) => {
                let reason = limited_text(asked.into_body(), MARK_BYTES_MAX).await?;
                let last = Duration::from_secs(u64::from(seconds));
                self.orders.ask(RecorderOrder::Snapshot(last, reason)).await?
            }
            request @ (ApiRequest::Explain(_) | ApiRequest::Spikes(_)) => self.slow.ask(request).await?,
            request => self.quick.ask(request).await?,
        };
        Ok((full(answer.body, answer.media_type), AnswerEnd::InTime))
    }

    /// Answers a Prometheus data source. Answers and errors have the format of Prometheus.
    async fn promql_response(&self, asked: Asked<Incoming>) -> Result<Response<PageBody>, ApiError> {
        let (head, body) = asked.into_parts();
        let body = limited_text(body, PARAMETERS_BYTES_MAX).await;
        let path = head.uri.path().strip_prefix("/api/v1").unwrap_or_default();
        let query = head.uri.query().unwrap_or_default();
        let (status, answer) = self.promql.answer((&head.method, path), query, body).await?;
        let mut response = full(answer.body, answer.media_type);
        *response.status_mut() = status;
        Ok(response)
    }
}

/// Returns whether a path below /api/v1 is an endpoint of Prometheus.
fn is_promql_path(path: &str) -> bool {
    matches!(path, "/query" | "/query_range" | "/series" | "/labels" | "/metadata" | "/query_exemplars")
        || matches!(path, "/status/buildinfo" | "/rules" | "/alerts")
        || path.starts_with("/label/")
}

/// Returns a file of the page.
fn asset(asked: &Asked<Incoming>) -> Result<Response<PageBody>, ApiError> {
    let Some(asset) = Asset::find(asked.uri().path()) else {
        return Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "no such page; it is at /, and its data below /api/v1/",
        ));
    };
    if !matches!(*asked.method(), Method::GET | Method::HEAD) {
        return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "the page supports only GET, HEAD"));
    }
    let accepted = asked.headers().get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let knows_gzip = accepted.is_some_and(|accepted| {
        accepted.split(',').any(|coding| coding.split(';').next().is_some_and(|name| name.trim() == "gzip"))
    });
    let mut response = full(if knows_gzip { asset.compressed() } else { asset.plain() }, asset.media_type);
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    if knows_gzip {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Reads a body of at most `bytes_max` bytes within the time limit.
async fn limited_text(body: Incoming, bytes_max: usize) -> Result<String, ApiError> {
    let limited = Limited::new(body, bytes_max);
    let Ok(read) = timeout(REQUEST_WAIT, limited.collect()).await else {
        return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 3 s"));
    };
    let bytes = read
        .map_err(|_| {
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body exceeds {bytes_max} bytes"))
        })?
        .to_bytes();
    String::from_utf8(bytes.into()).map_err(|_| ApiError::bad("the body must be UTF-8"))
}

fn full(body: impl Into<Bytes>, media_type: &'static str) -> Response<PageBody> {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
