//! `view --web` as a user starts it: its address, its token, and the running recorder in a browser.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::rig::{Process, Rig, eventually};

/// A page that is served.
pub(super) struct Page {
    process: Process,
    /// The address with what follows #.
    address: String,
}

impl Page {
    pub(super) fn start(rig: &Rig, args: &[&str]) -> Self {
        Self::of(rig.start(&[&["view", "--web"], args].concat()))
    }

    fn of(mut child: Child) -> Self {
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { process: Process(Some(child)), address: address.trim().to_owned() }
    }

    fn port(&self) -> u16 {
        let rest = self.address.strip_prefix("http://127.0.0.1:").unwrap();
        rest.split('/').next().unwrap().parse().unwrap()
    }

    pub(super) fn token(&self) -> &str {
        self.address.split_once("#token=").unwrap().1
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port())).unwrap()
    }

    /// Asks for the sources.
    fn sources(&self, token: &str) -> String {
        self.ask("sources", token)
    }

    pub(super) fn ask(&self, path: &str, secret: &str) -> String {
        let mut stream = self.connect();
        let port = self.port();
        write!(
            stream,
            "GET /api/v1/{path} HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {secret}\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

// Proves that the printed address leads to the recording with the printed token alone, that a file
// keeps the token from call to call, and that a signal ends the page.
#[test]
fn the_address_has_the_token() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "cpu@10ms"], 5);
    let page = Page::start(&rig, &["flatcap-data"]);
    assert!(page.sources(page.token()).contains("\"name\":\"cpu\""));
    assert!(page.sources("wrong").starts_with("HTTP/1.1 401"));
    assert_eq!(page.process.end("TERM").status, Some(0));

    let tokens: Vec<String> = (0..2)
        .map(|_| {
            let page = Page::start(&rig, &["flatcap-data", "--token-file", "token"]);
            assert!(!page.address.contains("token"), "{}", page.address);
            let token = std::fs::read_to_string(rig.path("token")).unwrap();
            assert!(page.sources(token.trim()).starts_with("HTTP/1.1 200"));
            token
        })
        .collect();
    assert_eq!(tokens[0], tokens[1]);
    rig.write("short", "abc\n");
    let called = rig.call(&["view", "--web", "flatcap-data", "--token-file", "short"]);
    assert_eq!(called.status, Some(2), "{}", called.err);
    assert!(called.err.contains("--token-file short: it must have one token"), "{}", called.err);
    let called = rig.call(&["view", "--web", "flatcap-data", "--listen", "0.0.0.0:0"]);
    assert_eq!(called.status, Some(2), "{}", called.err);
    assert!(called.err.contains("0.0.0.0:0: a page is for this host alone"), "{}", called.err);
}

// Proves that --open starts the browser with a ticket, which gives the page the token once, and
// that the token is on no command line.
#[test]
fn the_browser_gets_a_ticket() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "cpu@10ms"], 5);
    std::fs::create_dir(rig.path("programs")).unwrap();
    let program = rig.write("programs/xdg-open", "#!/bin/sh\necho \"$1\" > opening && mv opening opened\n");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", rig.path("programs").display(), std::env::var("PATH").unwrap());
    let mut command = rig.command(&["view", "--web", "--open", "flatcap-data"]);
    let page =
        Page::of(command.env("PATH", path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    eventually("the browser", || rig.path("opened").exists());
    let opened = std::fs::read_to_string(rig.path("opened")).unwrap();
    let ticket = opened.trim().split_once("/#ticket=").unwrap().1;
    assert!(!opened.contains(page.token()) && page.sources(ticket).starts_with("HTTP/1.1 401"));
    let answer = page.ask("token", ticket);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.trim().ends_with(page.token()), "{answer}");
    assert!(page.ask("token", ticket).starts_with("HTTP/1.1 401"));
    assert_eq!(page.process.end("TERM").status, Some(0));
}

// Proves that viewers that never read and connections that send nothing keep nobody from an
// answer: a viewer too slow is dropped, and a silent connection makes place.
#[test]
fn silent_clients_keep_nobody_waiting() {
    let rig = Rig::new();
    let recorder = Process(Some(rig.start(&["record", "--quiet", "--source", "cpu@10ms"])));
    eventually("samples", || rig.has_samples(10));
    let page = Page::start(&rig, &[]);
    let port = page.port();
    let viewers: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = page.connect();
            let token = page.token();
            write!(
                stream,
                "GET /api/v1/live HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
            )
            .unwrap();
            stream
        })
        .collect();
    let silent: Vec<TcpStream> = (0..200).map(|_| page.connect()).collect();
    assert!(page.sources(page.token()).contains("\"is_growing\":true"));
    // One of the viewers reads, and gets events.
    let mut events = BufReader::new(viewers[0].try_clone().unwrap());
    events.get_ref().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut line = String::new();
    while !line.starts_with("data: {") {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0, "the events ended");
    }
    assert!(line.contains("\"until_ns\""), "{line}");
    drop((viewers, silent));
    assert_eq!(page.process.end("TERM").status, Some(0));
    assert_eq!(recorder.end("TERM").status, Some(0));
}

// Proves, in a real browser, that the page follows the running recorder, freezes and follows
// again, writes a mark into its recording, and keeps a snapshot of its ring.
#[test]
fn the_page_follows_the_recorder_in_a_browser() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let browser = Path::new("/usr/bin/chromium");
    let has_node = Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success());
    if !browser.exists() || !has_node || !root.join("web/node_modules").is_dir() {
        eprintln!("skipped: needs Debian's chromium, node, and npm ci in web/");
        return;
    }
    let rig = Rig::new();
    rig.write("flatcap.toml", "[blackbox]\nwindow = \"20s\"\n");
    let args =
        ["record", "--quiet", "--config", "flatcap.toml", "--source", "cpu@10ms", "--source", "memory@100ms"];
    let recorder = Process(Some(rig.start(&args)));
    eventually("samples", || rig.has_samples(10));
    let page = Page::start(&rig, &[]);
    let script = root.join("tests/browser/live.mjs");
    let output = Command::new("node").arg(script).arg(browser).arg(&page.address).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("the snapshot", || rig.call(&["snapshots", "--json"]).text().contains("\"the stall\""));
    assert_eq!(page.process.end("TERM").status, Some(0));
    assert_eq!(recorder.end("TERM").status, Some(0));
    assert!(rig.call(&["marks", "flatcap-data"]).text().contains("deploy 42 begins"));
}
