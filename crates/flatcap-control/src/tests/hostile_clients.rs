//! Tests of the server on a real socket against hostile and slow clients.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flatcap_metrics::{Metrics, SourceMetrics};
use flatcap_os::clock::monotonic_ns;
use flatcap_os::local_socket::LocalSocket;
use flatcap_os::wake_event::WakeEvent;
use flatcap_text::quantity::CpuShare;

use crate::exposition::RunLabels;
use crate::request::{Answer, ControlRequest, Refusal, RefusalKind, calls};
use crate::server::{Server, ServerStop, listen_for_metrics};
use crate::{Client, ClientError};

/// Maximum time that a test waits. It is longer than any time limit of the server.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server, and a thread that answers requests in place of the daemon.
struct TestServer {
    folder: tempfile::TempDir,
    metrics: Arc<Metrics>,
    tcp: SocketAddr,
    stop: Option<ServerStop>,
    server: Option<JoinHandle<()>>,
    daemon: Option<JoinHandle<Vec<ControlRequest>>>,
    is_done: Arc<AtomicBool>,
}

impl TestServer {
    /// Starts a server with this number of sources, which determines the length of its answers.
    fn new(sources: usize) -> Self {
        Self::with_cpu_budget(sources, CpuShare::WHOLE)
    }

    fn with_cpu_budget(sources: usize, cpu_budget: CpuShare) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sources = (0..sources).map(|id| SourceMetrics::new(format!("source-{id}"), 1));
        let metrics = Arc::new(Metrics::new(sources, 256, Box::new([])));
        let wake = Arc::new(WakeEvent::new());
        let (caller, calls) = calls(Arc::clone(&wake));
        let socket = LocalSocket::listen(&folder.path().join("control.sock")).unwrap();
        let listener = listen_for_metrics("127.0.0.1:0".parse().unwrap()).unwrap();
        let tcp = listener.local_addr().unwrap();
        let run = RunLabels { run_id: "0000000000000001".to_owned(), start_wall_ns: 0 };
        let (server, stop) = Server::new(Some(socket), Some(listener), caller, Arc::clone(&metrics), run);
        let server = server.with_cpu_budget(cpu_budget);
        let server = flatcap_os::thread::spawn("control", move || server.run().unwrap()).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let daemon = {
            let is_over = Arc::clone(&is_over);
            let answer = move || {
                let mut asked = Vec::new();
                while !is_over.load(Ordering::Acquire) {
                    wake.wait_until(monotonic_ns() + 10_000_000);
                    wake.clear();
                    while let Some(call) = calls.next() {
                        asked.push(call.request.clone());
                        let kind = match call.request {
                            ControlRequest::Flush => Some(RefusalKind::Failed),
                            ControlRequest::Reload => Some(RefusalKind::Invalid),
                            ControlRequest::Log(_) => Some(RefusalKind::Busy),
                            _ => None,
                        };
                        let done = Answer::Done("done".to_owned());
                        call.answer(kind.map_or(Ok(done), |kind| {
                            Err(Refusal { kind, message: "the reason".to_owned() })
                        }));
                    }
                }
                asked
            };
            flatcap_os::thread::spawn("daemon", answer).unwrap()
        };
        Self {
            folder,
            metrics,
            tcp,
            stop: Some(stop),
            server: Some(server),
            daemon: Some(daemon),
            is_done: is_over,
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    fn connect(&self) -> UnixStream {
        let connection = UnixStream::connect(self.socket()).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection
    }

    /// Sends these bytes and returns the whole answer.
    fn send(&self, bytes: &[u8]) -> String {
        let mut connection = self.connect();
        // The server may answer and close the connection before it has read all bytes.
        let _cut = connection.write_all(bytes);
        answer_of(&mut connection)
    }

    fn ask(&self, line: &str, body: &str) -> String {
        let length = body.len();
        self.send(format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes())
    }

    /// Stops the server and returns the requests that the daemon received.
    fn finish(mut self) -> Vec<ControlRequest> {
        drop(self.stop.take());
        self.server.take().unwrap().join().unwrap();
        assert!(!self.socket().exists());
        self.is_done.store(true, Ordering::Release);
        self.daemon.take().unwrap().join().unwrap()
    }
}

fn answer_of(connection: &mut impl Read) -> String {
    let mut answer = Vec::new();
    match connection.read_to_end(&mut answer) {
        Ok(_) => {}
        // The server closed the connection with unread bytes.
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {}
        Err(error) => panic!("{error}"),
    }
    String::from_utf8(answer).unwrap()
}

fn status_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("nothing")
}

// Proves that each route is answered as documented, and that each kind of refusal has its
// documented answer.
#[test]
fn routes_are_answered() {
    let server = TestServer::new(1);
    for (line, body, status, text) in [
        ("GET /", "", "200", "POST /rotate"),
        ("GET /metrics", "", "200", "flatcap_source_begun_total{source=\"source-0\"} 0"),
        ("GET /metrics?name=x", "", "200", "# EOF"),
        ("HEAD /metrics", "", "200", ""),
        ("POST /rotate", "", "200", "done"),
        ("POST /mark", "deploy", "200", "done"),
        ("POST /mark", "two\nlines", "422", "control characters"),
        ("POST /reload", "", "422", "the reason"),
        ("POST /flush", "", "500", "the reason"),
        ("PUT /log-level", "debug", "503", "the reason"),
        ("GET /rotate", "", "405", "/rotate supports only POST"),
        ("DELETE /status", "", "405", "allow: GET, HEAD"),
        ("GET /../../etc/passwd", "", "404", "no such path"),
    ] {
        let answer = server.ask(line, body);
        assert_eq!(status_of(&answer), status, "{line}: {answer}");
        assert!(answer.contains(text), "{line}: {answer}");
    }
    let expected = [
        ControlRequest::Rotate,
        ControlRequest::Mark("deploy".to_owned()),
        ControlRequest::Reload,
        ControlRequest::Flush,
        ControlRequest::Log("debug".to_owned()),
    ];
    assert_eq!(server.metrics.control.requests.get(), 13);
    assert_eq!(server.metrics.control.refused.get(), 7);
    assert_eq!(server.finish(), expected);
}

// Proves that TCP serves metrics and nothing else.
#[test]
fn the_network_reads_metrics_alone() {
    let server = TestServer::new(1);
    for (line, status) in
        [("GET /metrics", "200"), ("GET /", "200"), ("GET /status", "404"), ("POST /rotate", "404")]
    {
        let mut connection = TcpStream::connect(server.tcp).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.write_all(format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let answer = answer_of(&mut connection);
        assert_eq!(status_of(&answer), status, "{line}: {answer}");
    }
    assert!(server.finish().is_empty());
}

// Proves that no input breaks the server and that no client stays connected. The inputs are invalid
// requests, oversized parts, and half a request followed by silence. The server still answers after
// each of these inputs.
#[test]
fn nonsense_is_refused() {
    let server = TestServer::new(1);
    let long_line = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let long_header = format!("GET /status HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(100_000));
    let many_headers = format!("GET /status HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(1_000));
    let large =
        format!("POST /mark HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n{}", "x".repeat(70_000));
    let chunks = format!(
        "POST /mark HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        "1000\r\n".to_owned() + &"x".repeat(4096) + "\r\n"
    );
    let endless = chunks.clone() + &("1000\r\n".to_owned() + &"x".repeat(4096) + "\r\n").repeat(40);
    for (bytes, statuses) in [
        (&b"\0\xff\xfe\r\n\r\n"[..], &["400"][..]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", &["400"]),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &["400", "505", "nothing"]),
        (b"GET /status\r\n\r\n", &["400"]),
        (long_line.as_bytes(), &["414", "431", "nothing"]),
        (long_header.as_bytes(), &["431", "nothing"]),
        (many_headers.as_bytes(), &["431", "nothing"]),
        (large.as_bytes(), &["413", "nothing"]),
        (endless.as_bytes(), &["413", "nothing"]),
        (b"POST /mark HTTP/1.1\r\nContent-Length: -1\r\n\r\n", &["400"]),
        (b"POST /mark HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", &["400"]),
        // These clients stop sending in the middle of the body or headers, or send nothing at all.
        (chunks.as_bytes(), &["408"]),
        (b"POST /mark HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf", &["408"]),
        (b"GET /status HTTP/1.1\r\nHos", &["408", "nothing"]),
        (b"", &["408", "nothing"]),
    ] {
        let answer = server.send(bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert!(statuses.contains(&status_of(&answer)), "{shown:?}: {answer}");
        assert_eq!(status_of(&server.ask("POST /rotate", "")), "200", "after {shown:?}");
    }
    assert!(server.metrics.control.timed_out.get() >= 2, "{:?}", server.metrics.control);
    assert!(server.finish().iter().all(|request| *request == ControlRequest::Rotate));
}

// Proves that the server disconnects clients that never read or never write. Also proves that a
// later client is answered before these clients are disconnected, although they outnumber the
// slots.
#[test]
fn idle_clients_are_disconnected() {
    let server = TestServer::new(400);
    let mut idle = Vec::new();
    for number in 0..80 {
        let mut connection = server.connect();
        if number % 2 == 0 {
            connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        }
        idle.push(connection);
    }
    let answer = server.ask("GET /metrics", "");
    assert!(answer.len() > 1 << 20 && answer.ends_with("# EOF\n"), "{} bytes", answer.len());
    let control = &server.metrics.control;
    assert!(control.timed_out.get() + control.displaced.get() >= 17, "{control:?}");
    let deadline_ns = monotonic_ns() + 4 * u64::try_from(PATIENCE.as_nanos()).unwrap();
    while control.connections_open.get() > 0 {
        assert!(monotonic_ns() < deadline_ns, "{control:?}");
        WakeEvent::new().wait_until(monotonic_ns() + 10_000_000);
    }
    drop(idle);
    assert!(server.finish().is_empty());
}

// Proves that a TCP client that constantly sends requests is delayed but answered, and does not use
// up the share of the control socket. The budget is so small that even the slowest machine exceeds
// it.
#[test]
fn constant_requests_are_throttled() {
    let server = TestServer::with_cpu_budget(100, CpuShare::of_basis_points(500));
    let control = &server.metrics.control;
    let ask = || {
        let mut connection = TcpStream::connect(server.tcp).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(answer_of(&mut connection).ends_with("# EOF\n"));
    };
    let deadline_ns = monotonic_ns() + 4 * u64::try_from(PATIENCE.as_nanos()).unwrap();
    while control.pauses.get() == 0 {
        assert!(monotonic_ns() < deadline_ns, "{control:?}");
        ask();
    }
    ask();
    let pauses = control.pauses.get();
    assert_eq!(status_of(&server.ask("POST /rotate", "")), "200");
    assert_eq!(control.pauses.get(), pauses, "no client uses TCP now");
    assert_eq!(server.finish(), [ControlRequest::Rotate]);
}

// Proves that clients that send no request, or only half a request, do not block other clients. If
// silent clients take all slots, the next client is answered before any silent client times out.
// The test is repeated if silent clients timed out because the machine is slow.
#[test]
fn silent_clients_are_displaced() {
    for _ in 0..10 {
        let server = TestServer::new(1);
        let control = &server.metrics.control;
        let mut idle: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(server.tcp).unwrap()).collect();
        idle.iter_mut().step_by(2).for_each(|half| half.write_all(b"GET /metrics HTTP/1.1\r\nHo").unwrap());
        let mut connection = TcpStream::connect(server.tcp).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(answer_of(&mut connection).ends_with("# EOF\n"));
        let (timed_out, displaced) = (control.timed_out.get(), control.displaced.get());
        server.finish();
        if timed_out == 0 {
            assert_eq!(displaced, 1, "as few as necessary");
            return;
        }
    }
    panic!("ten times the answer came after the silent clients timed out");
}

// Proves that the end of the server does not wait for idle clients, although their time limits have
// not passed. The test is repeated if these clients timed out because the machine is slow.
#[test]
fn the_end_waits_for_no_client() {
    for _ in 0..20 {
        let server = TestServer::new(1);
        let metrics = Arc::clone(&server.metrics);
        let idle: Vec<UnixStream> = (0..10).map(|_| server.connect()).collect();
        assert_eq!(status_of(&server.ask("POST /rotate", "")), "200");
        assert_eq!(metrics.control.connections.get(), 11);
        let is_in_time = metrics.control.timed_out.get() == 0;
        assert_eq!(server.finish(), [ControlRequest::Rotate]);
        drop(idle);
        if is_in_time && metrics.control.timed_out.get() == 0 {
            return;
        }
    }
    panic!("twenty times the end came after the idle clients timed out");
}

// Proves that the client executes each command and distinguishes errors. The errors are a missing
// socket, a stale socket, a file that is not a socket, and a socket that never answers.
#[test]
fn the_client_distinguishes_errors() {
    let server = TestServer::new(1);
    let client = |path: &Path| Client::find(Some(path)).unwrap();
    let there = client(&server.socket());
    assert_eq!(there.rotate().unwrap(), "done");
    assert_eq!(there.mark("deploy 42").unwrap(), "done");
    match there.flush().unwrap_err() {
        ClientError::Refused { status: 500, message } => assert_eq!(message, "the reason"),
        other => panic!("{other}"),
    }
    let path = |name: &str| server.folder.path().join(name);
    let said = |name: &str| client(&path(name)).rotate().unwrap_err().to_string();
    assert!(said("missing").ends_with("name another socket with --socket"), "{}", said("missing"));
    drop(std::os::unix::net::UnixListener::bind(path("dead")).unwrap());
    assert!(said("dead").contains("is dead"), "{}", said("dead"));
    std::fs::write(path("file"), "").unwrap();
    assert!(said("file").contains("refused"), "{}", said("file"));
    let mute = std::os::unix::net::UnixListener::bind(path("mute")).unwrap();
    let answering = std::thread::scope(|scope| {
        let asked = scope.spawn(|| client(&path("mute")).status().unwrap_err());
        let (connection, _) = mute.accept().unwrap();
        let error = asked.join().unwrap();
        drop(connection);
        error
    });
    assert!(matches!(answering, ClientError::TimedOut { seconds: 5, .. }), "{answering}");
    let wrong = std::thread::scope(|scope| {
        let asked = scope.spawn(|| client(&path("mute")).status().unwrap_err());
        mute.accept().unwrap().0.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
        asked.join().unwrap()
    });
    assert!(matches!(wrong, ClientError::InvalidAnswer { .. }), "{wrong}");
    server.finish();
}
