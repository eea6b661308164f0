//! The HTTP server. All connections are served on one thread, and each has limits on size and time.
//!
//! Each connection serves one request. So a connection stays open for at most the sum of its time
//! limits. TCP connections have separate slots and never take slots of the control socket.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flatcap_metrics::Metrics;
use flatcap_os::clock::NS_PER_S;
use flatcap_os::local_socket::{LocalSocket, PeerCredentials, own_account, peer_credentials};
use flatcap_os::throttle::Throttle;
use flatcap_text::quantity::CpuShare;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request as Asked, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener as AsyncTcpListener, TcpStream, UnixListener as AsyncUnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use super::connections::{FirstDone, ListenerState, first};
use super::exposition::{Exposition, ExpositionFormat, RunLabels};
use super::request::{Answer, Caller};
use super::route::{ClientOrigin, Rejection, Route, may_change};

/// Time limit for the request line and headers. After this time the connection is closed.
const HEADERS_WAIT: Duration = Duration::from_secs(3);
/// Time limit for the request body. After this time the request is refused.
const BODY_WAIT: Duration = Duration::from_secs(3);
/// Time limit for the client to receive the answer. After this time the connection is closed.
const READ_WAIT: Duration = Duration::from_secs(5);
/// Maximum size of the request line and headers together, in bytes. The limit also applies to data
/// that is read ahead.
const HEADERS_BYTES_MAX: usize = 16 << 10;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Maximum size of the body of a request, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;
/// The CPU time of each listener is `cpu_budget` divided by this number. Because of this limit,
/// frequent requests do not take the CPU time that the sources need.
const BUDGET_PART: u64 = 10;
/// A listener can save up the unused CPU time of at most this period, in nanoseconds. The saved
/// time suffices for a burst of a few requests, and is less than the `cpu_budget` of one second.
const BURST_NS: u64 = 8 * NS_PER_S;
/// Time limit for unfinished answers when the server ends.
const END_WAIT: Duration = Duration::from_millis(300);
/// Delay before connections are accepted again after a failure, for example because too many files
/// are open.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A server that is ready to run on a separate thread.
#[derive(Debug)]
pub struct Server {
    stop: oneshot::Receiver<()>,
    socket: Option<(LocalSocket, UnixListener)>,
    metrics_listener: Option<TcpListener>,
    caller: Caller,
    metrics: Arc<Metrics>,
    exposition: Exposition,
    budget: ListenerBudget,
}

/// The budgets that limit the CPU time of the listeners. Each listener gets a tenth of
/// `cpu_budget`. Clients that send too many requests wait, so that the sources keep their share of
/// CPU time. Clones share the same budget.
#[derive(Debug, Clone)]
pub struct ListenerBudget {
    socket: Arc<Throttle>,
    metrics: Arc<Throttle>,
}

impl ListenerBudget {
    fn new(cpu_budget: CpuShare) -> Self {
        let throttle = || Arc::new(Throttle::new(Self::cpu_ns(cpu_budget)).with_burst(BURST_NS));
        Self { socket: throttle(), metrics: throttle() }
    }

    fn cpu_ns(cpu_budget: CpuShare) -> u64 {
        u64::from(cpu_budget.basis_points()) * (NS_PER_S / 10_000) / BUDGET_PART
    }

    /// Changes the budget while the server runs.
    pub fn set(&self, cpu_budget: CpuShare) {
        self.socket.set_budget(Self::cpu_ns(cpu_budget));
        self.metrics.set_budget(Self::cpu_ns(cpu_budget));
    }
}

/// Ends the server when it is dropped.
#[derive(Debug)]
#[must_use = "the server ends when this is dropped"]
pub struct ServerStop {
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Creates a server on these sockets.
    pub fn new(
        socket: Option<LocalSocket>,
        metrics_listener: Option<TcpListener>,
        caller: Caller,
        metrics: Arc<Metrics>,
        run: RunLabels,
    ) -> (Self, ServerStop) {
        let (stop, stopped) = oneshot::channel();
        let socket = socket.and_then(|mut socket| {
            let listener = socket.take_listener()?;
            Some((socket, listener))
        });
        let exposition = Exposition::new(Arc::clone(&metrics), run);
        let budget = ListenerBudget::new(CpuShare::WHOLE);
        (
            Self { stop: stopped, socket, metrics_listener, caller, metrics, exposition, budget },
            ServerStop { _stop: stop },
        )
    }

    /// Limits each listener to a tenth of this CPU budget. The default is a tenth of a core.
    #[must_use]
    pub fn with_cpu_budget(mut self, cpu_budget: CpuShare) -> Self {
        self.budget = ListenerBudget::new(cpu_budget);
        self
    }

    /// Returns the handle that changes the budget while the server runs.
    pub fn budget(&self) -> ListenerBudget {
        self.budget.clone()
    }

    /// Serves requests until the server is stopped. Then removes the socket's file.
    ///
    /// # Errors
    /// Fails if the kernel refuses a resource that is needed to wait for connections.
    pub fn run(self) -> io::Result<()> {
        let Self { stop, socket, metrics_listener, caller, metrics, exposition, budget } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tasks = LocalSet::new();
        let context =
            Rc::new(ServerContext { caller, metrics, exposition, open: Cell::new(0), own: own_account() });
        let served = tasks.block_on(&runtime, async move {
            let mut listeners = Vec::new();
            let mut add = |task: tokio::task::JoinHandle<()>, door| listeners.push((task, door));
            let mut file = None;
            if let Some((socket, listener)) = socket {
                file = Some(socket);
                let listener = AsyncUnixListener::from_std(listener)?;
                let listener_state = Rc::new(ListenerState::new(budget.socket));
                let next = async move || Ok(listener.accept().await?.0);
                // A client whose credentials are unknown gets no answer.
                let origin =
                    |connection: &UnixStream| peer_credentials(connection).ok().map(ClientOrigin::Local);
                let taking = accept(next, origin, Rc::clone(&context), Rc::clone(&listener_state));
                add(tokio::task::spawn_local(taking), listener_state);
            }
            if let Some(listener) = metrics_listener {
                let listener = AsyncTcpListener::from_std(listener)?;
                let listener_state = Rc::new(ListenerState::new(budget.metrics));
                let next = async move || Ok(listener.accept().await?.0);
                let origin = |_: &TcpStream| Some(ClientOrigin::Network);
                let taking = accept(next, origin, Rc::clone(&context), Rc::clone(&listener_state));
                add(tokio::task::spawn_local(taking), listener_state);
            }
            let _stopped = stop.await;
            drop(file);
            // No more connections are accepted, and the slot that was reserved for the next
            // connection is free.
            for (taking, _) in &listeners {
                taking.abort();
            }
            let all_done = async {
                for (_, door) in listeners {
                    door.wait_for_end().await;
                }
            };
            let _in_time = timeout(END_WAIT, all_done).await;
            Ok(())
        });
        // Dropping the tasks closes the remaining connections.
        drop(tasks);
        runtime.shutdown_background();
        served
    }
}

/// Binds the address for metrics.
///
/// # Errors
/// Returns the kernel's error, for example if the address is in use or does not belong to this
/// host.
pub fn listen_for_metrics(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The state shared by all connections.
#[derive(Debug)]
struct ServerContext {
    caller: Caller,
    metrics: Arc<Metrics>,
    exposition: Exposition,
    open: Cell<u64>,
    own: (u32, u32),
}

/// An open connection, which is counted until it is dropped.
struct OpenConnection<'a>(&'a ServerContext);

impl<'a> OpenConnection<'a> {
    fn new(context: &'a ServerContext) -> Self {
        let open = Self(context);
        open.count(context.open.get() + 1);
        open
    }

    fn count(&self, open: u64) {
        self.0.open.set(open);
        self.0.metrics.control.connections_open.set(open);
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.count(self.0.open.get().saturating_sub(1));
    }
}

/// Serves the connections of one listener. Connections whose origin is unknown get no answer.
async fn accept<C>(
    next: impl AsyncFn() -> io::Result<C>,
    origin: impl Fn(&C) -> Option<ClientOrigin>,
    context: Rc<ServerContext>,
    listener_state: Rc<ListenerState>,
) where
    C: AsyncRead + AsyncWrite + Unpin + 'static,
{
    loop {
        let control = &context.metrics.control;
        listener_state.wait_for_budget(|| control.pauses.add(1)).await;
        let Ok(connection) = next().await else {
            // The error is that too many files are open.
            sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        let Ok(slot) = listener_state.acquire_slot(|| control.displaced.add(1)).await else { return };
        let (context, state) = (Rc::clone(&context), Rc::clone(&listener_state));
        let origin = origin(&connection);
        tokio::task::spawn_local(async move {
            if let Some(origin) = origin {
                state.charge(serve(TokioIo::new(connection), origin, &context, &state)).await;
            }
            drop(slot);
        });
    }
}

/// Serves one connection.
async fn serve<I>(
    connection: I,
    origin: ClientOrigin,
    context: &ServerContext,
    listener_state: &ListenerState,
) where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
{
    let control = &context.metrics.control;
    control.connections.add(1);
    let _open = OpenConnection::new(context);
    let silent = listener_state.add_silent();
    let (answered, is_answered) = oneshot::channel();
    let answered = Cell::new(Some(answered));
    let service = service_fn(|asked| {
        let (origin, answered) = (&origin, &answered);
        listener_state.remove_silent(&silent);
        async move {
            let response = context.answer(asked, origin).await;
            context.metrics.control.requests.add(1);
            if response.status().is_client_error() || response.status().is_server_error() {
                context.metrics.control.refused.add(1);
            }
            if let Some(answered) = answered.take() {
                // The time limit for the client to read the answer begins now.
                let _taken = answered.send(());
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection_task = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WAIT)
        .max_buf_size(HEADERS_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(connection, service);
    let slow = async {
        if is_answered.await.is_err() {
            // The connection ended without an answer. The other branch handles this.
            std::future::pending::<()>().await;
        }
        sleep(READ_WAIT).await;
    };
    let timed_out = match first(first(connection_task, slow), silent.wait_for_displacement()).await {
        FirstDone::Left(FirstDone::Left(Ok(()))) | FirstDone::Right(()) => false,
        FirstDone::Left(FirstDone::Left(Err(error))) => error.is_timeout(),
        FirstDone::Left(FirstDone::Right(())) => true,
    };
    listener_state.remove_silent(&silent);
    control.timed_out.add(u64::from(timed_out));
}

impl ServerContext {
    async fn answer(&self, asked: Asked<Incoming>, origin: &ClientOrigin) -> Response<Full<Bytes>> {
        self.respond(asked, origin).await.unwrap_or_else(|rejection| {
            let mut response = text(rejection.text);
            *response.status_mut() = rejection.status;
            if let Some(allow) = rejection.allow {
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
            }
            response
        })
    }

    async fn respond(
        &self,
        request: Asked<Incoming>,
        origin: &ClientOrigin,
    ) -> Result<Response<Full<Bytes>>, Rejection> {
        let route = Route::find(request.method(), request.uri().path(), origin)?;
        let described = format!("{} {}", request.method(), request.uri().path());
        if route.is_change() {
            may_change(origin, self.own)
                .inspect_err(|_| log_request(origin, &described, "refused: permission denied"))?;
        }
        let accept =
            request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let format = ExpositionFormat::from_accept(accept);
        let body = if *request.method() == Method::POST || *request.method() == Method::PUT {
            read(request.into_body()).await?
        } else {
            Bytes::new()
        };
        let Some(request) = route.request(&body)? else {
            return Ok(match route {
                Route::Metrics => typed(self.exposition.text(format), format.media_type()),
                _ => text(Route::index(origin).to_owned()),
            });
        };
        let answer = self.caller.ask(request).await;
        if route.is_change() {
            let message = match &answer {
                Ok(Answer::Done(said) | Answer::Status(said)) => said.clone(),
                Err(refusal) => format!("refused: {refusal}"),
            };
            log_request(origin, &described, &message);
        }
        Ok(match answer? {
            Answer::Status(json) => typed(json + "\n", "application/json"),
            Answer::Done(said) => text(said),
        })
    }
}

/// Logs a request for a change, its client and its result.
fn log_request(origin: &ClientOrigin, asked: &str, message: &str) {
    let ClientOrigin::Local(PeerCredentials { user, process, .. }) = origin else { return };
    let pid = process.unwrap_or_default();
    tracing::info!(request = asked, uid = user, pid, "control: {message}");
}

/// Reads the whole body of a request.
async fn read(body: Incoming) -> Result<Bytes, Rejection> {
    let whole = timeout(BODY_WAIT, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let Ok(read) = whole else {
        let waited = BODY_WAIT.as_secs();
        return Err(Rejection::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {waited} s"),
        ));
    };
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Rejection::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body exceeds {BODY_BYTES_MAX} bytes"),
        )),
        Err(error) => {
            Err(Rejection::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}")))
        }
    }
}

fn text(text: String) -> Response<Full<Bytes>> {
    let text = if text.ends_with('\n') { text } else { text + "\n" };
    typed(text, "text/plain; charset=utf-8")
}

fn typed(body: String, media_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a changed budget applies to listeners that already have the budget. If the budget
    // is one core, of which each listener gets a tenth, a millisecond of CPU time is paid for after
    // 10 ms. If the budget is a hundredth of a core, it is paid for after a second.
    #[test]
    fn a_changed_budget_applies_to_running_listeners() {
        let budget = ListenerBudget::new(CpuShare::WHOLE);
        let of_listeners = budget.clone();
        let wait_ns = |throttle: &Throttle| {
            throttle.charge(0, 1_000_000 + BURST_NS / 1000);
            throttle.wait_ns(0)
        };
        let before = [&of_listeners.socket, &of_listeners.metrics].map(|throttle| wait_ns(throttle));
        budget.set(CpuShare::of_basis_points(100));
        let after = [&of_listeners.socket, &of_listeners.metrics].map(|throttle| wait_ns(throttle));
        assert!(before.iter().zip(after).all(|(before, after)| *before < after), "{before:?} {after:?}");
    }
}
