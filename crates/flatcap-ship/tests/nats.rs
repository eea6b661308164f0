//! Announces shipped segments on a NATS server. If no server is installed, each test prints one
//! line and is skipped. .ci/run installs the server.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test says what it expects by failing, and waits for processes"
)]

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, stream};
use serde_json::Value;

use recordings::{TestSegment, write_run};

#[path = "../src/recordings.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod recordings;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flatcap-ship");
const USER: &str = "ship";
const PASSWORD: &str = "s3cret-of-the-bus";
/// The identity of the host, and its token in a subject.
const HOST: [&str; 2] = ["web-1.example.com", "web-1_example_com-a8652cfc"];

/// A NATS server with `JetStream`. The data of the server stays in a directory.
struct Server {
    folder: PathBuf,
    child: Child,
    port: u16,
}

impl Server {
    /// Starts a server with additional lines of configuration. If no server is installed, prints
    /// one line and returns `None`.
    fn start(folder: &Path, more: &str) -> Option<Self> {
        std::fs::create_dir_all(folder).unwrap();
        let child = run_server(folder, -1, more)?;
        let ports = folder.join(format!("nats-server_{}.ports", child.id()));
        let mut port = None;
        eventually("the server listens", || {
            let text = std::fs::read(&ports).unwrap_or_default();
            let listed: Value = serde_json::from_slice(&text).unwrap_or_default();
            let url = listed["nats"][0].as_str().map(str::to_owned);
            port = url.and_then(|url| url.rsplit_once(':')?.1.parse::<u16>().ok());
            port.is_some()
        });
        Some(Self { folder: folder.to_owned(), child, port: port.unwrap() })
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Kills the server, so that it cannot shut down in order.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again at the same address.
    fn restart(&mut self) {
        self.child = run_server(&self.folder, i32::from(self.port), &authorization()).unwrap();
        eventually("the server listens again", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// Calls `JetStream` as another client.
    fn call<T>(&self, work: impl AsyncFnOnce(jetstream::Context) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = ConnectOptions::with_user_and_password(USER.to_owned(), PASSWORD.to_owned());
            let client = options.connect(self.url()).await.unwrap();
            work(jetstream::new(client)).await
        })
    }

    fn create_stream(&self) {
        self.call(async |context| {
            let subjects = vec!["flatcap.segments.>".to_owned()];
            let config = stream::Config { name: "FLATCAP".to_owned(), subjects, ..stream::Config::default() };
            context.create_stream(config).await.unwrap();
        });
    }

    /// Returns the subject, the id and the body of each message of the stream.
    fn messages(&self) -> Vec<(String, String, Vec<u8>)> {
        self.call(async |context| {
            let stream = context.get_stream("FLATCAP").await.unwrap();
            let state = stream.get_info().await.unwrap().state;
            let mut messages = Vec::new();
            // For an empty stream both numbers are 0, which is not the number of a message.
            for sequence in state.first_sequence.max(1)..=state.last_sequence {
                let message = stream.get_raw_message(sequence).await.unwrap();
                let id = message.headers.get("Nats-Msg-Id").unwrap().to_string();
                messages.push((message.subject.to_string(), id, message.payload.to_vec()));
            }
            assert_eq!(messages.len() as u64, state.messages);
            messages
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may already have been killed.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A process that is ended even if the test fails.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // If the test did not fail, the process has already ended.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Returns the lines of configuration that allow the user of the tests.
fn authorization() -> String {
    format!("authorization {{ user: {USER}, password: \"{PASSWORD}\" }}\n")
}

fn run_server(folder: &Path, port: i32, more: &str) -> Option<Child> {
    let path = folder.join("nats.conf");
    let data = folder.display();
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\nports_file_dir: \"{data}\"\njetstream {{ store_dir: \"{data}/data\" }}\n\
         {more}\n"
    );
    std::fs::write(&path, text).unwrap();
    let log = std::fs::OpenOptions::new().append(true).create(true).open(folder.join("log")).unwrap();
    let mut command = Command::new("nats-server");
    command.arg("--config").arg(path).stdout(Stdio::null()).stderr(log);
    match command.spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            println!("skipped: nats-server cannot be started: {error}");
            None
        }
    }
}

/// Waits until a condition is true.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not within a minute: {what}");
}

/// A host that ships to a directory and announces its segments.
struct Host {
    folder: PathBuf,
    /// The environment variables of the process.
    environment: Vec<(&'static str, PathBuf)>,
}

impl Host {
    fn new(folder: &Path, url: &str, credentials: &str) -> Self {
        let path = folder.display();
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("credentials"), credentials).unwrap();
        let text = format!(
            "[ship]\ndata_dir = \"{path}/data\"\nto = \"file://{path}/lake\"\nhost = \"{}\"\ninterval = \"1s\"\n\
             status_file = \"{path}/status.json\"\n\
             [ship.nats]\nurl = \"{url}\"\ncredentials = \"{path}/credentials\"\noutbox = \"{path}/outbox\"\n",
            HOST[0]
        );
        std::fs::write(folder.join("ship.toml"), text).unwrap();
        Self { folder: folder.to_owned(), environment: Vec::new() }
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args([verb, "--config"]).arg(self.folder.join("ship.toml"));
        command.env_remove("SSL_CERT_FILE").envs(self.environment.iter().map(|(name, path)| (name, path)));
        command
    }

    /// Returns the exit status, the output and the errors of a call. Checks that none of them
    /// contains the password.
    fn call(&self, verb: &str) -> (Option<i32>, String, String) {
        let output = self.command(verb).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(!out.contains(PASSWORD) && !err.contains(PASSWORD), "{out}{err}");
        (output.status.code(), out, err)
    }

    fn write(&self, from: u64, to: u64) {
        let segment = TestSegment { samples: 20, ..TestSegment::default() };
        for number in from..to {
            TestSegment { number, ..segment.clone() }.write(&self.folder.join("data"));
        }
    }

    /// Returns the objects of the lake in a folder. Names with `#` belong to objects that are being
    /// put.
    fn objects(&self, folder: &str) -> Vec<PathBuf> {
        let (mut found, mut folders) = (Vec::new(), vec![self.folder.join("lake/v1").join(folder)]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.to_str().unwrap().contains('#') {
                    found.push(path);
                }
            }
        }
        found
    }

    /// Returns the manifests of the lake, by their names without folder.
    fn manifests(&self) -> BTreeMap<String, Vec<u8>> {
        let manifests = self.objects("_segments").into_iter().chain(self.objects("_snapshots"));
        let named = |path: PathBuf| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(&path).unwrap())
        };
        manifests.map(named).collect()
    }

    /// Asserts that a server has each manifest exactly once, and no other messages.
    fn assert_announced(&self, server: &Server, count: usize) {
        let messages = server.messages();
        let manifests = self.manifests();
        assert_eq!((manifests.len(), messages.len()), (count, count));
        for (subject, id, body) in messages {
            assert_eq!(subject, format!("flatcap.segments.{}", HOST[1]));
            assert!(manifests[&id] == body, "{id}");
            let manifest: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(manifest["identity"]["id"], HOST[0]);
        }
    }
}

// Proves that each manifest is one message of the stream. If the server is killed, `once` fails but
// still ships. All messages arrive exactly once when the server is back, also if they are sent
// again.
#[test]
fn nats_has_each_manifest_once() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = Server::start(&folder.path().join("nats"), &authorization()) else { return };
    server.create_stream();
    let host = Host::new(&folder.path().join("host"), &server.url(), &format!("{USER}\n{PASSWORD}\n"));
    let small = TestSegment { samples: 20, ..TestSegment::default() };
    write_run(&host.folder.join("data"), &small, 3);
    small.write(&host.folder.join("data/snapshots/20231114T221320Z-rule"));
    assert_eq!(host.call("check-config").0, Some(0));
    let (status, out, err) = host.call("once");
    assert!(status == Some(0) && out.ends_with("4 messages sent\n"), "{out}{err}");
    host.assert_announced(&server, 4);
    let (status, out, _) = host.call("once");
    assert!(status == Some(0) && out.ends_with("0 messages sent\n"), "{out}");

    server.kill();
    host.write(3, 5);
    let (status, out, err) = host.call("once");
    assert!(out.contains("2 segments shipped"), "{out}");
    let expected = "flatcap-ship: 2 messages unsent, kept for the next call: nats://127.0.0.1:";
    assert!(status == Some(1) && err.lines().last().unwrap().starts_with(expected), "{err}");
    assert_eq!(host.manifests().len(), 6);
    server.restart();
    let (status, out, err) = host.call("once");
    assert!(status == Some(0) && out.ends_with("0 rows, 0 bytes\n2 messages sent\n"), "{out}{err}");
    host.assert_announced(&server, 6);

    let folder = format!("v1/_segments/date=2023-11-14/host={}", HOST[0]);
    let names: Vec<String> = host
        .manifests()
        .keys()
        .filter(|id| !id.contains("rule"))
        .map(|id| format!("{folder}/{id}.json"))
        .collect();
    std::fs::write(host.folder.join("outbox/unsent"), names.join("\n")).unwrap();
    let (status, out, err) = host.call("once");
    assert!(status == Some(0) && out.ends_with("5 messages sent\n"), "{out}{err}");
    host.assert_announced(&server, 6);
}

// Proves that `kill -9` while segments are shipped loses no message, because a process that is not
// killed sends the missing ones. FLATCAP_KILLS sets the number of killed processes.
#[test]
fn nats_misses_nothing_after_kills() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(&folder.path().join("nats"), &authorization()) else { return };
    server.create_stream();
    let host = Host::new(&folder.path().join("host"), &server.url(), &format!("{USER}\n{PASSWORD}\n"));
    let kills = std::env::var("FLATCAP_KILLS").map_or(10, |kills| kills.parse::<u64>().unwrap());
    let (mut interrupted, mut written) = (0, 0);
    for kill in 0..kills {
        if kill % 5 == 0 {
            host.write(written, written + 2);
            written += 2;
        }
        let before = host.objects("").len();
        let mut child = host.command("once").stdout(Stdio::null()).spawn().unwrap();
        // Kill the process when it has put up to six more objects. A segment has six objects,
        // including its manifest.
        let wanted = before + usize::try_from(kill % 7).unwrap();
        while host.objects("").len() < wanted && child.try_wait().unwrap().is_none() {}
        child.kill().unwrap();
        interrupted += u64::from(child.wait().unwrap().code().is_none());
        let manifests = host.manifests();
        assert!(server.messages().iter().all(|(_, id, _)| manifests.contains_key(id)), "after kill {kill}");
    }
    assert!(interrupted > 0, "no process was killed before its end");
    let (status, _, err) = host.call("once");
    assert_eq!(status, Some(0), "{err}");
    host.assert_announced(&server, usize::try_from(written).unwrap());
}

// Proves that the service ships while the server is unavailable and reports unsent messages. The
// service sends these messages when the server is back, and ends at SIGTERM. A second process with
// the same outbox is refused.
#[test]
fn nats_comes_back_to_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = Server::start(&folder.path().join("nats"), &authorization()) else { return };
    server.create_stream();
    let host = Host::new(&folder.path().join("host"), &server.url(), &format!("{USER}\n{PASSWORD}\n"));
    host.write(0, 1);
    let mut service = Service(host.command("run").stdout(Stdio::null()).spawn().unwrap());
    let counts = || {
        let text = std::fs::read(host.folder.join("status.json")).unwrap_or_default();
        let state: Value = serde_json::from_slice(&text).unwrap_or_default();
        let number = |name: &str| state["messages"][name].as_u64();
        (state["segments"].as_u64(), number("sent"), number("unsent"))
    };
    eventually("the first message is sent", || counts() == (Some(1), Some(1), Some(0)));
    let (status, _, err) = host.call("once");
    assert!(status == Some(1) && err.contains("outbox: another flatcap-ship uses it"), "{err}");
    server.kill();
    host.write(1, 3);
    eventually("two messages wait", || counts() == (Some(3), Some(1), Some(2)));
    let (_, out, _) = host.call("status");
    assert!(out.contains("messages      1 sent since its start, 2 unsent, 0 dropped"), "{out}");
    server.restart();
    eventually("they are sent", || counts() == (Some(3), Some(3), Some(0)));
    host.assert_announced(&server, 3);
    assert!(Command::new("kill").args(["-TERM", &service.0.id().to_string()]).status().unwrap().success());
    assert_eq!(service.0.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read(host.folder.join("outbox/unsent")).unwrap(), b"");
}

// Proves that each error of the server states what to do, and that none contains the password. The
// errors are wrong credentials, no stream, a missing right, and a message that is too large.
#[test]
fn nats_errors_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let small = authorization() + "max_payload: 1KB\n";
    let Some(server) = Server::start(&folder.path().join("nats"), &small) else { return };
    let host = |name: &str, credentials: &str| {
        let host = Host::new(&folder.path().join(name), &server.url(), credentials);
        host.write(0, 1);
        host
    };
    let stranger = host("stranger", "a-token\n");
    let (status, _, err) = stranger.call("once");
    assert!(
        status == Some(1) && err.contains("authorization violation") && !err.contains("a-token"),
        "{err}"
    );
    std::fs::write(stranger.folder.join("credentials"), "").unwrap();
    let (status, _, err) = stranger.call("check-config");
    assert!(status == Some(2) && err.contains("neither a token"), "{err}");
    let known = host("known", &format!("{USER}\n{PASSWORD}\n"));
    let (status, _, err) = known.call("once");
    assert!(status == Some(1) && err.contains("1 message dropped") && err.contains("1024"), "{err}");
    assert_eq!(std::fs::read(known.folder.join("outbox/unsent")).unwrap(), b"", "it holds up nothing");

    let rights = "accounts { A { jetstream: enabled, users: [ { user: full, password: x }, \
        { user: bare, password: x, permissions: { publish: \"a\" } } ] } }\n";
    let Some(server) = Server::start(&folder.path().join("rights"), rights) else { return };
    for (user, expected) in [
        ("full", "no stream takes the subject flatcap.segments.web-1_example_com-a8652cfc"),
        ("bare", "nats: permissions violation for publish"),
    ] {
        let host = Host::new(&folder.path().join(user), &server.url(), &format!("{user}\nx\n"));
        host.write(0, 1);
        let (status, _, err) = host.call("once");
        assert!(status == Some(1) && err.to_lowercase().contains(expected), "{user}: {err}");
    }
}

// Proves that `tls://` checks the server's certificate against the roots of the system.
#[test]
fn nats_is_spoken_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let request = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ];
    let mut openssl = Command::new("openssl");
    openssl.args(request).arg("-keyout").arg(path("key.pem")).arg("-out").arg(path("cert.pem"));
    if !openssl.output().is_ok_and(|output| output.status.success()) {
        println!("skipped: openssl makes no certificate");
        return;
    }
    let tls = format!(
        "{}tls {{ cert_file: \"{}\", key_file: \"{}\" }}",
        authorization(),
        path("cert.pem").display(),
        path("key.pem").display()
    );
    let Some(server) = Server::start(&path("nats"), &tls) else { return };
    let url = format!("tls://localhost:{}", server.port);
    let mut host = Host::new(&path("host"), &url, &format!("{USER}\n{PASSWORD}\n"));
    host.write(0, 1);
    let (status, _, err) = host.call("once");
    assert!(status == Some(1) && err.contains("certificate"), "{err}");
    host.environment = vec![("SSL_CERT_FILE", path("cert.pem"))];
    let (status, _, err) = host.call("once");
    assert!(status == Some(1) && err.contains("no stream takes the subject"), "it is connected: {err}");
}
