//! The server: connections on one thread, each with limits on what it takes and how long.
//!
//! One request a connection: whoever asks again connects again. So a connection has one course, and its limits add up to how long
//! it can stay. Those that come over TCP have places of their own, and never take those of the control socket.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request as Asked, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener as AsyncTcpListener, UnixListener as AsyncUnixListener};
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use super::exposition::{Exposition, Format, RunLabels};
use super::purse::Purse;
use super::request::{Answer, Caller};
use super::route::{Origin, Rejection, Route, may_change};
use crate::config::CpuShare;
use crate::metrics::{ControlMetrics, Metrics};
use crate::os::clock::{monotonic_ns, thread_cpu_ns};
use crate::os::local_socket::{LocalSocket, Peer, own_account, peer};

/// Connections at once of each listener. A further one displaces the oldest that has sent no request, or else waits for a place.
const CONNECTIONS_MAX: usize = 64;
/// No connection is displaced sooner than this: a request takes a moment to come over a long way.
const SILENT_MIN: Duration = Duration::from_millis(100);
/// A request's line and headers are there within this, or the connection ends.
const HEADERS_WAIT: Duration = Duration::from_secs(3);
/// A request's body is there within this, or it is refused.
const BODY_WAIT: Duration = Duration::from_secs(3);
/// An answer is taken within this, or the connection ends.
const READ_WAIT: Duration = Duration::from_secs(5);
/// Bytes of a request's line and headers together, and of what is read ahead; more are refused.
const HEADERS_BYTES_MAX: usize = 16 << 10;
/// Headers of a request; more are refused.
const HEADERS_MAX: usize = 64;
/// Bytes of a request's body; more are refused.
const BODY_BYTES_MAX: usize = 64 << 10;
/// At the end, answers that are under way have this long.
const END_WAIT: Duration = Duration::from_millis(300);
/// Where a connection cannot be taken (too many open files), it is tried again after this.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A server that is ready to be run on a thread of its own.
#[derive(Debug)]
pub struct Server {
    stop: oneshot::Receiver<()>,
    socket: Option<(LocalSocket, UnixListener)>,
    metrics_listener: Option<TcpListener>,
    caller: Caller,
    metrics: Arc<Metrics>,
    exposition: Exposition,
    cpu_budget: CpuShare,
}

/// Ends the server when it goes.
#[derive(Debug)]
#[must_use = "the server ends when this goes"]
pub struct ServerStop {
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// A server on these sockets.
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
        let cpu_budget = CpuShare::WHOLE;
        (
            Self { stop: stopped, socket, metrics_listener, caller, metrics, exposition, cpu_budget },
            ServerStop { _stop: stop },
        )
    }

    /// Each listener takes no more than a tenth of this: who asks without end waits, and the sources keep what the agent has.
    /// Without it, a tenth of a core.
    #[must_use]
    pub fn within(mut self, cpu_budget: CpuShare) -> Self {
        self.cpu_budget = cpu_budget;
        self
    }

    /// Serves until it is told to end; then the socket's file goes.
    ///
    /// # Errors
    /// The kernel refuses what it takes to wait for connections.
    pub fn run(self) -> io::Result<()> {
        let Self { stop, socket, metrics_listener, caller, metrics, exposition, cpu_budget } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tasks = LocalSet::new();
        let desk = Rc::new(Desk { caller, metrics, exposition, open: Cell::new(0), own: own_account() });
        let served = tasks.block_on(&runtime, async move {
            let mut doors = Vec::new();
            let mut open = |taking: tokio::task::JoinHandle<()>, door| doors.push((taking, door));
            let mut file = None;
            if let Some((socket, listener)) = socket {
                file = Some(socket);
                let listener = AsyncUnixListener::from_std(listener)?;
                let door = Rc::new(Door::new(cpu_budget));
                let taking = take_local(listener, Rc::clone(&desk), Rc::clone(&door));
                open(tokio::task::spawn_local(taking), door);
            }
            if let Some(listener) = metrics_listener {
                let listener = AsyncTcpListener::from_std(listener)?;
                let door = Rc::new(Door::new(cpu_budget));
                let taking = take_network(listener, Rc::clone(&desk), Rc::clone(&door));
                open(tokio::task::spawn_local(taking), door);
            }
            let _told_or_gone = stop.await;
            drop(file);
            // Nobody is taken any more, and the place for whoever would have come next is free.
            for (taking, _) in &doors {
                taking.abort();
            }
            let all_done = async {
                for (_, door) in doors {
                    let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
                    let _never_closed = door.places.acquire_many(all).await.map(SemaphorePermit::forget);
                }
            };
            let _in_time = timeout(END_WAIT, all_done).await;
            Ok(())
        });
        // Whoever is still connected is cut off with the tasks.
        drop(tasks);
        runtime.shutdown_background();
        served
    }
}

/// Binds the address for metrics.
///
/// # Errors
/// What the kernel says: the address is in use, or not one of this host.
pub fn listen_for_metrics(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What all connections share.
#[derive(Debug)]
struct Desk {
    caller: Caller,
    metrics: Arc<Metrics>,
    exposition: Exposition,
    open: Cell<u64>,
    own: (u32, u32),
}

/// A connection that is open, as it is counted.
struct Open<'a>(&'a Desk);

impl<'a> Open<'a> {
    fn new(desk: &'a Desk) -> Self {
        let open = Self(desk);
        open.count(desk.open.get() + 1);
        open
    }

    fn count(&self, open: u64) {
        self.0.open.set(open);
        self.0.metrics.control.connections_open.set(open);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.count(self.0.open.get().saturating_sub(1));
    }
}

/// What the connections of one listener share.
#[derive(Debug)]
struct Door {
    places: Arc<Semaphore>,
    silent: RefCell<VecDeque<Rc<Silent>>>, // the oldest first
    purse: RefCell<Purse>,
}

/// A connection that has sent no request yet.
#[derive(Debug)]
struct Silent {
    since_ns: u64,
    displaced: Notify,
}

impl Door {
    fn new(cpu_budget: CpuShare) -> Self {
        let purse = RefCell::new(Purse::new(cpu_budget.basis_points(), monotonic_ns()));
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self { places, silent: RefCell::default(), purse }
    }

    /// Waits until the purse is not empty.
    async fn rest(&self, metrics: &ControlMetrics) {
        loop {
            let wait_ns = self.purse.borrow_mut().wait_ns(monotonic_ns());
            if wait_ns == 0 {
                return;
            }
            metrics.pauses.add(1);
            sleep(Duration::from_nanos(wait_ns)).await;
        }
    }

    /// Waits for a place for a connection. If all are taken, the oldest connection that has sent no request gives up its own.
    async fn place(&self, metrics: &ControlMetrics) -> Result<OwnedSemaphorePermit, AcquireError> {
        loop {
            let oldest = self.silent.borrow().front().cloned();
            let free = Arc::clone(&self.places).acquire_owned();
            let Some(oldest) = oldest else { return free.await };
            let silent_for = Duration::from_nanos(monotonic_ns().saturating_sub(oldest.since_ns));
            if let Ok(place) = timeout(SILENT_MIN.saturating_sub(silent_for), free).await {
                return place;
            }
            // Unless it has spoken meanwhile.
            if self.hear(&oldest) {
                metrics.displaced.add(1);
                oldest.displaced.notify_one();
                return Arc::clone(&self.places).acquire_owned().await;
            }
        }
    }

    /// Notes a new connection.
    fn enter(&self) -> Rc<Silent> {
        let silent = Rc::new(Silent { since_ns: monotonic_ns(), displaced: Notify::new() });
        self.silent.borrow_mut().push_back(Rc::clone(&silent));
        silent
    }

    /// A connection has sent a request, or ends. Returns whether it was silent until now.
    fn hear(&self, connection: &Rc<Silent>) -> bool {
        let mut silent = self.silent.borrow_mut();
        let before = silent.len();
        silent.retain(|other| !Rc::ptr_eq(other, connection));
        silent.len() < before
    }

    /// What a future comes to, with each poll paid for.
    async fn paid<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let before_ns = thread_cpu_ns();
            let polled = future.as_mut().poll(context);
            self.purse.borrow_mut().spend(thread_cpu_ns().saturating_sub(before_ns));
            polled
        })
        .await
    }
}

async fn take_local(listener: AsyncUnixListener, desk: Rc<Desk>, door: Rc<Door>) {
    loop {
        door.rest(&desk.metrics.control).await;
        match listener.accept().await {
            Ok((connection, _)) => {
                let Ok(place) = door.place(&desk.metrics.control).await else { return };
                let (desk, door) = (Rc::clone(&desk), Rc::clone(&door));
                tokio::task::spawn_local(async move {
                    // Who cannot be asked for is told nothing.
                    if let Ok(peer) = peer(&connection) {
                        let origin = Origin::Local(peer);
                        door.paid(serve(TokioIo::new(connection), origin, &desk, &door)).await;
                    }
                    drop(place);
                });
            }
            Err(_too_many_files) => sleep(ACCEPT_AGAIN).await,
        }
    }
}

async fn take_network(listener: AsyncTcpListener, desk: Rc<Desk>, door: Rc<Door>) {
    loop {
        door.rest(&desk.metrics.control).await;
        match listener.accept().await {
            Ok((connection, _)) => {
                let Ok(place) = door.place(&desk.metrics.control).await else { return };
                let (desk, door) = (Rc::clone(&desk), Rc::clone(&door));
                tokio::task::spawn_local(async move {
                    door.paid(serve(TokioIo::new(connection), Origin::Network, &desk, &door)).await;
                    drop(place);
                });
            }
            Err(_too_many_files) => sleep(ACCEPT_AGAIN).await,
        }
    }
}

/// One connection from its begin to its end.
async fn serve<I>(connection: I, origin: Origin, desk: &Desk, door: &Door)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
{
    let control = &desk.metrics.control;
    control.connections.add(1);
    let _open = Open::new(desk);
    let silent = door.enter();
    let (answered, is_answered) = oneshot::channel();
    let answered = Cell::new(Some(answered));
    let service = service_fn(|asked| {
        let (origin, answered) = (&origin, &answered);
        door.hear(&silent);
        async move {
            let response = desk.answer(asked, origin).await;
            desk.metrics.control.requests.add(1);
            if response.status().is_client_error() || response.status().is_server_error() {
                desk.metrics.control.refused.add(1);
            }
            if let Some(answered) = answered.take() {
                // The connection waits for it.
                let _taken = answered.send(());
            }
            Ok::<_, Infallible>(response)
        }
    });
    let course = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WAIT)
        .max_buf_size(HEADERS_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(connection, service);
    let slow = async {
        if is_answered.await.is_err() {
            std::future::pending::<()>().await; // over without an answer: the other one knows
        }
        sleep(READ_WAIT).await;
    };
    let timed_out = match first(first(course, slow), silent.displaced.notified()).await {
        First::Left(First::Left(Ok(()))) | First::Right(()) => false,
        First::Left(First::Left(Err(error))) => error.is_timeout(),
        First::Left(First::Right(())) => true,
    };
    door.hear(&silent);
    control.timed_out.add(u64::from(timed_out));
}

enum First<A, B> {
    Left(A),
    Right(B),
}

/// Whichever is over first; the other one is given up.
async fn first<A: Future, B: Future>(left: A, right: B) -> First<A::Output, B::Output> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|context| {
        if let Poll::Ready(output) = left.as_mut().poll(context) {
            return Poll::Ready(First::Left(output));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}

impl Desk {
    async fn answer(&self, asked: Asked<Incoming>, origin: &Origin) -> Response<Full<Bytes>> {
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
        asked: Asked<Incoming>,
        origin: &Origin,
    ) -> Result<Response<Full<Bytes>>, Rejection> {
        let route = Route::find(asked.method(), asked.uri().path(), origin)?;
        let described = format!("{} {}", asked.method(), asked.uri().path());
        if route.changes() {
            may_change(origin, self.own)
                .inspect_err(|_| note(origin, &described, "refused: no right to it"))?;
        }
        let accept = asked.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let format = Format::accepted(accept);
        let body = if *asked.method() == Method::POST || *asked.method() == Method::PUT {
            read(asked.into_body()).await?
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
        if route.changes() {
            let said = match &answer {
                Ok(Answer::Done(said) | Answer::Status(said)) => said.clone(),
                Err(refusal) => format!("refused: {refusal}"),
            };
            note(origin, &described, &said);
        }
        Ok(match answer? {
            Answer::Status(json) => typed(json + "\n", "application/json"),
            Answer::Done(said) => text(said),
        })
    }
}

/// Who has asked for a change, and what came of it.
fn note(origin: &Origin, asked: &str, said: &str) {
    let Origin::Local(Peer { user, process, .. }) = origin else { return };
    let pid = process.unwrap_or_default();
    tracing::info!(request = asked, uid = user, pid, "control: {said}");
}

/// The whole body of a request.
async fn read(body: Incoming) -> Result<Bytes, Rejection> {
    let whole = timeout(BODY_WAIT, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let Ok(read) = whole else {
        let waited = BODY_WAIT.as_secs();
        return Err(Rejection::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not come within {waited} s"),
        ));
    };
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Rejection::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a body has at most {BODY_BYTES_MAX} bytes"),
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
