//! Clients that wish it no good, and those that are only slow, against a server on a real socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::exposition::RunLabels;
use super::request::{Answer, Refusal, RefusalKind, Request, calls};
use super::server::{Server, ServerStop, listen_for_metrics};
use super::{Client, ClientError};
use crate::metrics::{Metrics, SourceMetrics};
use crate::os::clock::monotonic_ns;
use crate::os::event::Event;
use crate::os::local_socket::LocalSocket;

/// Longer than any limit of the server.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server, and one that answers in the daemon's place.
struct Stage {
    folder: tempfile::TempDir,
    metrics: Arc<Metrics>,
    tcp: SocketAddr,
    stop: Option<ServerStop>,
    server: Option<JoinHandle<()>>,
    daemon: Option<JoinHandle<Vec<Request>>>,
    is_over: Arc<AtomicBool>,
}

impl Stage {
    /// With so many sources, for answers of any length.
    fn new(sources: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sources = (0..sources).map(|id| SourceMetrics::new(format!("source-{id}"), 1));
        let metrics = Arc::new(Metrics::new(sources, 256, Box::new([])));
        let bell = Arc::new(Event::new());
        let (caller, calls) = calls(Arc::clone(&bell));
        let socket = LocalSocket::listen(&folder.path().join("control.sock")).unwrap();
        let listener = listen_for_metrics("127.0.0.1:0".parse().unwrap()).unwrap();
        let tcp = listener.local_addr().unwrap();
        let run = RunLabels { run_id: "0000000000000001".to_owned(), start_wall_ns: 0 };
        let (server, stop) = Server::new(Some(socket), Some(listener), caller, Arc::clone(&metrics), run);
        let server = crate::os::thread::spawn("control", move || server.run().unwrap()).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let daemon = {
            let is_over = Arc::clone(&is_over);
            let answer = move || {
                let mut asked = Vec::new();
                while !is_over.load(Ordering::Acquire) {
                    bell.wait_until(monotonic_ns() + 10_000_000);
                    bell.clear();
                    while let Some(call) = calls.next() {
                        asked.push(call.request.clone());
                        let kind = match call.request {
                            Request::Flush => Some(RefusalKind::Failed),
                            Request::Reload => Some(RefusalKind::Invalid),
                            Request::Log(_) => Some(RefusalKind::Busy),
                            _ => None,
                        };
                        let done = Answer::Done("done".to_owned());
                        call.answer(kind.map_or(Ok(done), |kind| {
                            Err(Refusal { kind, message: "it says why".to_owned() })
                        }));
                    }
                }
                asked
            };
            crate::os::thread::spawn("daemon", answer).unwrap()
        };
        Self { folder, metrics, tcp, stop: Some(stop), server: Some(server), daemon: Some(daemon), is_over }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    fn connect(&self) -> UnixStream {
        let connection = UnixStream::connect(self.socket()).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection
    }

    /// All that comes back for these bytes.
    fn say(&self, bytes: &[u8]) -> String {
        let mut connection = self.connect();
        // The server may answer and end before it has read everything.
        let _cut = connection.write_all(bytes);
        answer_of(&mut connection)
    }

    fn ask(&self, line: &str, body: &str) -> String {
        let length = body.len();
        self.say(format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes())
    }

    /// Ends it, and says what the daemon was asked.
    fn finish(mut self) -> Vec<Request> {
        drop(self.stop.take());
        self.server.take().unwrap().join().unwrap();
        assert!(!self.socket().exists());
        self.is_over.store(true, Ordering::Release);
        self.daemon.take().unwrap().join().unwrap()
    }
}

fn answer_of(connection: &mut impl Read) -> String {
    let mut answer = Vec::new();
    match connection.read_to_end(&mut answer) {
        Ok(_) => {}
        // Cut off with bytes that nobody read.
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {}
        Err(error) => panic!("{error}"),
    }
    String::from_utf8(answer).unwrap()
}

fn status_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("nothing")
}

// Goal: each route is answered as the documents say, and refusals by their kinds. Method: every one by hand.
#[test]
fn routes_are_answered() {
    let stage = Stage::new(1);
    for (line, body, status, text) in [
        ("GET /", "", "200", "POST /rotate"),
        ("GET /metrics", "", "200", "flatcap_source_begun_total{source=\"source-0\"} 0"),
        ("GET /metrics?name=x", "", "200", "# EOF"),
        ("HEAD /metrics", "", "200", ""),
        ("POST /rotate", "", "200", "done"),
        ("POST /mark", "deploy", "200", "done"),
        ("POST /mark", "two\nlines", "422", "control characters"),
        ("POST /reload", "", "422", "it says why"),
        ("POST /flush", "", "500", "it says why"),
        ("PUT /log-level", "debug", "503", "it says why"),
        ("GET /rotate", "", "405", "/rotate takes POST"),
        ("DELETE /status", "", "405", "allow: GET, HEAD"),
        ("GET /../../etc/passwd", "", "404", "there is no such path"),
    ] {
        let answer = stage.ask(line, body);
        assert_eq!(status_of(&answer), status, "{line}: {answer}");
        assert!(answer.contains(text), "{line}: {answer}");
    }
    let expected = [
        Request::Rotate,
        Request::Mark("deploy".to_owned()),
        Request::Reload,
        Request::Flush,
        Request::Log("debug".to_owned()),
    ];
    assert_eq!(stage.metrics.control.requests.get(), 13);
    assert_eq!(stage.metrics.control.refused.get(), 7);
    assert_eq!(stage.finish(), expected);
}

// Goal: over TCP there are metrics and nothing else. Method: metrics, status, and a change.
#[test]
fn the_network_reads_metrics_alone() {
    let stage = Stage::new(1);
    for (line, status) in
        [("GET /metrics", "200"), ("GET /", "200"), ("GET /status", "404"), ("POST /rotate", "404")]
    {
        let mut connection = TcpStream::connect(stage.tcp).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.write_all(format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let answer = answer_of(&mut connection);
        assert_eq!(status_of(&answer), status, "{line}: {answer}");
    }
    assert!(stage.finish().is_empty());
}

// Goal: nothing that a client sends breaks the server, and nobody stays. Method: bytes that are no request, too much of each part,
// half of a request and then silence; the server answers behind each.
#[test]
fn nonsense_is_refused() {
    let stage = Stage::new(1);
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
        // Silent in the middle of the body, of the headers, and from the begin.
        (chunks.as_bytes(), &["408"]),
        (b"POST /mark HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf", &["408"]),
        (b"GET /status HTTP/1.1\r\nHos", &["408", "nothing"]),
        (b"", &["408", "nothing"]),
    ] {
        let answer = stage.say(bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert!(statuses.contains(&status_of(&answer)), "{shown:?}: {answer}");
        assert_eq!(status_of(&stage.ask("POST /rotate", "")), "200", "behind {shown:?}");
    }
    assert!(stage.metrics.control.timed_out.get() >= 2, "{:?}", stage.metrics.control);
    assert!(stage.finish().iter().all(|request| *request == Request::Rotate));
}

// Goal: clients that never read and clients that never write go after a while, and a client that comes after them is answered before. Method: more of both
// than there are places, with an answer that fills every buffer of the kernel.
#[test]
fn who_does_nothing_goes() {
    let stage = Stage::new(400);
    let mut idle = Vec::new();
    for number in 0..80 {
        let mut connection = stage.connect();
        if number % 2 == 0 {
            connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        }
        idle.push(connection);
    }
    let answer = stage.ask("GET /metrics", "");
    assert!(answer.len() > 1 << 20 && answer.ends_with("# EOF\n"), "{} bytes", answer.len());
    let control = &stage.metrics.control;
    assert!(control.timed_out.get() + control.displaced.get() >= 17, "{control:?}");
    let deadline_ns = monotonic_ns() + 4 * u64::try_from(PATIENCE.as_nanos()).unwrap();
    while control.connections_open.get() > 0 {
        assert!(monotonic_ns() < deadline_ns, "{control:?}");
        Event::new().wait_until(monotonic_ns() + 10_000_000);
    }
    drop(idle);
    assert!(stage.finish().is_empty());
}

// Goal: who asks over TCP without end is made to wait, is answered all the same, and takes nothing from the control socket's share.
// Method: requests one behind the other, until there was a pause, and one behind it; then one to the socket.
#[test]
fn who_asks_without_end_waits() {
    let stage = Stage::new(100);
    let control = &stage.metrics.control;
    let ask = || {
        let mut connection = TcpStream::connect(stage.tcp).unwrap();
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
    assert_eq!(status_of(&stage.ask("POST /rotate", "")), "200");
    assert_eq!(control.pauses.get(), pauses, "nobody asks over TCP now");
    assert_eq!(stage.finish(), [Request::Rotate]);
}

// Goal: clients that send no request, or only half of one, do not keep others out. Method: as many as there are places; the next one is answered while the
// time of none of them is over; a machine so slow that it was is given another try.
#[test]
fn silent_clients_give_way() {
    for _ in 0..10 {
        let stage = Stage::new(1);
        let control = &stage.metrics.control;
        let mut idle: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(stage.tcp).unwrap()).collect();
        idle.iter_mut().step_by(2).for_each(|half| half.write_all(b"GET /metrics HTTP/1.1\r\nHo").unwrap());
        let mut connection = TcpStream::connect(stage.tcp).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(answer_of(&mut connection).ends_with("# EOF\n"));
        let (timed_out, displaced) = (control.timed_out.get(), control.displaced.get());
        stage.finish();
        if timed_out == 0 {
            assert_eq!(displaced, 1, "no more than it takes");
            return;
        }
    }
    panic!("ten times the answer came when the time of silent clients was over");
}

// Goal: the end does not wait for clients. Method: end with idle ones that are still within their time, and see that it was not their time
// that was over; a machine so slow that it was is given another try.
#[test]
fn the_end_waits_for_nobody() {
    for _ in 0..20 {
        let stage = Stage::new(1);
        let metrics = Arc::clone(&stage.metrics);
        let idle: Vec<UnixStream> = (0..10).map(|_| stage.connect()).collect();
        assert_eq!(status_of(&stage.ask("POST /rotate", "")), "200");
        assert_eq!(metrics.control.connections.get(), 11);
        let is_in_time = metrics.control.timed_out.get() == 0;
        assert_eq!(stage.finish(), [Request::Rotate]);
        drop(idle);
        if is_in_time && metrics.control.timed_out.get() == 0 {
            return;
        }
    }
    panic!("twenty times the end came when the time of idle clients was over");
}

// Goal: the client does what the server says, and tells apart why not. Method: each order; no socket, a dead one, one that is none,
// one that never answers.
#[test]
fn the_client_says_why() {
    let stage = Stage::new(1);
    let client = |path: &Path| Client::find(Some(path)).unwrap();
    let there = client(&stage.socket());
    assert_eq!(there.rotate().unwrap(), "done");
    assert_eq!(there.mark("deploy 42").unwrap(), "done");
    match there.flush().unwrap_err() {
        ClientError::Refused { status: 500, message } => assert_eq!(message, "it says why"),
        other => panic!("{other}"),
    }
    let path = |name: &str| stage.folder.path().join(name);
    let said = |name: &str| client(&path(name)).rotate().unwrap_err().to_string();
    assert!(said("missing").ends_with("is an agent running?"), "{}", said("missing"));
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
    assert!(matches!(wrong, ClientError::Nonsense { .. }), "{wrong}");
    stage.finish();
}
