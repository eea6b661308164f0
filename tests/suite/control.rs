//! Control of a running recorder: by its own verbs, by plain HTTP, by hostile clients, and without
//! a usable socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;

use crate::rig::{CallResult, Rig, eventually, finish, number, signal};

/// Maximum resident memory that an attack may add: connections, requests, and memory that the
/// allocator retains.
const ATTACK_KIB_MAX: u64 = 16 << 10;

/// Starts a recording and waits until its socket answers.
pub fn start(rig: &Rig, args: &[&str]) -> Child {
    let child = rig.start(&[&["record", "--quiet"], args].concat());
    eventually("a recorder that answers", || UnixStream::connect(rig.socket()).is_ok());
    child
}

/// Sends a request line with these headers and this body, and returns the response.
pub fn http_request(socket: &Path, line: &str, headers: &str, body: &str) -> String {
    let mut connection = UnixStream::connect(socket).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let request = format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

/// Ends a recording and checks, also by its files, that it has lost nothing.
fn end(rig: &Rig, child: Child) -> CallResult {
    signal(&child, "TERM");
    let called = finish(child);
    assert_eq!(called.status, Some(0), "{called:?}");
    let verify = rig.verify();
    let sums = (verify["intact"].as_bool(), number(&verify["unexplained"]), number(&verify["lost"]));
    assert_eq!(sums, (Some(true), 0, 0), "{verify}");
    called
}

fn status_line(answer: &str) -> &str {
    answer.lines().next().unwrap_or_default()
}

/// Returns the peak of the resident memory in KiB.
fn peak_kib(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

pub fn has_thread(child: &Child, name: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    tasks
        .flatten()
        .any(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
}

// Proves that `status` reports the state of a run, as JSON and as text, with the numbers of the
// run, and that recorder and socket are gone after the end.
#[test]
fn status_shows_the_running_recorder() {
    let rig = Rig::new();
    let child = start(&rig, &["--source", "cpu@10ms", "--source", "synthetic@1ms"]);
    let mut status = Value::Null;
    eventually("rates", || {
        let called = rig.call(&["status", "--json"]);
        assert_eq!(called.status, Some(0), "{called:?}");
        status = called.json();
        let sources = status["sources"].as_array().unwrap();
        let is_known =
            |source: &Value| source["achieved_hz"].is_number() && number(&source["lateness_ns"]["count"]) > 0;
        sources.iter().all(is_known) && number(&status["storage"]["data_bytes"]) > 0
    });
    assert_eq!(number(&status["recorder"]["pid"]), u64::from(child.id()));
    assert_eq!(status["recorder"]["data_dir"], rig.data().canonicalize().unwrap().to_str().unwrap());
    let segment = status["segment"]["name"].as_str().unwrap();
    assert!(rig.data().join(segment).is_file(), "{status}");
    assert!(segment.contains(status["recorder"]["run_id"].as_str().unwrap()), "{status}");
    assert!(number(&status["segment"]["frames"]) > 0 && number(&status["segment"]["bytes"]) > 0, "{status}");
    let free = number(&status["storage"]["free_bytes"]);
    assert!(free > 0 && number(&status["storage"]["total_bytes"]) >= free, "{status}");
    for (source, (name, hz)) in
        status["sources"].as_array().unwrap().iter().zip([("cpu", 100.0), ("synthetic", 1000.0)])
    {
        assert_eq!((source["name"].as_str(), source["requested_hz"].as_f64()), (Some(name), Some(hz)));
        let (begun, recorded) = (number(&source["begun"]), number(&source["recorded"]));
        assert!(recorded > 0 && recorded <= begun && number(&source["lost"]) == 0, "{source}");
        assert!(number(&source["bytes"]) >= 64 * recorded && number(&source["cost_ns"]) > 0, "{source}");
    }
    let page = rig.call(&["status"]);
    assert_eq!(page.status, Some(0), "{page:?}");
    let text = page.text();
    assert!(text.contains("synthetic") && text.contains(segment) && !text.contains('\x1b'), "{text}");
    end(&rig, child);
    assert!(!rig.socket().exists());
    let called = rig.call(&["status"]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains("no running flatcap") && called.err.contains("control.sock"), "{called:?}");
}

// Proves that `status` exits with 3 after losses: a source that can no longer be read.
#[test]
fn status_reports_losses() {
    let rig = Rig::new();
    let value = rig.write("value", "a 1\n");
    let config = rig.write("file.toml", format!("[source.file.x]\npath = {value:?}\n"));
    let child = start(&rig, &["--config", config.to_str().unwrap(), "--source", "file.x@10ms"]);
    std::fs::remove_file(&value).unwrap();
    eventually("a reported loss", || rig.call(&["status"]).status == Some(3));
    let page = rig.call(&["status"]).text();
    assert!(page.contains("file.x: ") && page.contains("the last one: No such file"), "{page}");
    signal(&child, "TERM");
    assert_eq!(finish(child).status, Some(3));
}

// Proves that each command to the recorder is executed and confirmed in one line.
#[test]
fn commands_are_executed() {
    let rig = Rig::new();
    let child = start(&rig, &["--source", "synthetic@10ms"]);
    let order = |args: &[&str]| {
        let called = rig.call(args);
        assert_eq!(called.status, Some(0), "{called:?}");
        assert_eq!(called.text().lines().count(), 1, "{called:?}");
    };
    order(&["mark", "deploy 42 begins"]);
    order(&["flush"]);
    order(&["rotate"]);
    eventually("a closed segment", || rig.segments("bin").len() == 1);
    order(&["reload"]);
    order(&["log-level", "debug"]);
    end(&rig, child);
    assert_eq!(rig.segments("bin").len(), 2);
    let dump = rig.call(&["dump", "--source", "synthetic"]).text();
    assert!(dump.lines().any(|line| line.starts_with("-- mark: ") && line.ends_with(" deploy 42 begins")));
}

// Proves that explain prints a long mark on four lines, and says that there is more.
#[test]
fn a_long_mark_is_cut_short() {
    let rig = Rig::new();
    let child = start(&rig, &["--source", "synthetic@10ms"]);
    let recorded = || rig.source("synthetic").map_or(0, |source| number(&source["recorded"]));
    eventually("samples before", || recorded() > 200);
    let (short, long) = ("of one line", "word ".repeat(300));
    for text in [short, long.trim_end()] {
        assert_eq!(rig.call(&["mark", text]).status, Some(0));
    }
    let then = recorded();
    eventually("samples after", || recorded() > then + 50);
    end(&rig, child);
    let marks = rig.call(&["marks", "--json"]).json();
    let at = marks[1]["time"].as_str().unwrap();
    let called = rig.call(&["explain", "--at", at]);
    let text = called.text();
    let mut lines = text.lines().skip_while(|line| !line.starts_with("marker "));
    assert!(lines.next().is_some_and(|line| line.ends_with(short)), "{called:?}");
    let of_long: Vec<&str> = lines.take(5).collect();
    assert!(of_long[0].starts_with("marker "), "{text}");
    assert!(of_long[1..4].iter().all(|line| line.starts_with("  word ") && line.len() <= 80), "{text}");
    assert_eq!(of_long[4], "  ...", "{text}");
}

// Proves that marks are listed with their times, in their order, counted by info, and shown by dump
// in each format that has a place for them; that a time of one selects what was around it.
#[test]
fn marks_are_shown() {
    let rig = Rig::new();
    let child = start(&rig, &["--source", "synthetic@10ms"]);
    for text in ["deploy 1.2.3", "rollback \"1.2.2\""] {
        assert_eq!(rig.call(&["mark", text]).status, Some(0));
        let before = rig.source("synthetic").map_or(0, |source| number(&source["recorded"]));
        eventually("samples", || {
            rig.source("synthetic").is_some_and(|source| number(&source["recorded"]) > before + 5)
        });
    }
    // Of a running recording, too.
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|mark| mark["text"].as_str().unwrap().to_owned()).collect()
    };
    let expected = ["deploy 1.2.3", "rollback \"1.2.2\""];
    assert_eq!(texts(&rig.call(&["marks", "--json"]).json()), expected);
    end(&rig, child);
    let marks = rig.call(&["marks", "--json"]).json();
    assert_eq!(texts(&marks), expected);
    for mark in marks.as_array().unwrap() {
        assert!(mark["origin"] == "person" && mark["host"] == rig.info()["hosts"][0]["name"], "{mark}");
        let time = mark["time"].as_str().unwrap();
        let around = rig.call(&["dump", "--format", "jsonl", "--around", time, "--window", "2ms"]).text();
        let line = format!("{{\"marker\":{mark}}}");
        let is_same = |found: &str| {
            let found: Value = serde_json::from_str(found).unwrap();
            found["marker"] == *mark
        };
        assert!(around.lines().any(is_same), "{line} in {around}");
    }
    let table = rig.call(&["marks", "--utc"]).text();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert!(rows[1].ends_with("person  deploy 1.2.3") && rows[1].contains("Z "), "{table}");
    assert_eq!(number(&rig.info()["marks"]), 2);
    assert!(rig.call(&["info"]).text().contains("marks: 2; flatcap marks lists them\n"));
    let called = rig.call(&["dump", "--format", "csv"]);
    assert!(!called.text().contains("deploy") && called.err.contains(" deploy 1.2.3\n"), "{called:?}");
    // A table is in the order of time.
    let table = rig.call(&["dump", "--source", "synthetic", "--utc"]).text();
    let times: Vec<&str> = table
        .lines()
        .skip(1)
        .map(|line| line.strip_prefix("-- mark: ").unwrap_or(line).split_whitespace().next().unwrap())
        .collect();
    assert!(times.is_sorted() && table.matches("-- mark: ").count() == 2, "{table}");
    rig.record_samples(&["--source", "load@10ms", "--data-dir", "other"], 1);
    assert!(rig.call(&["marks", "other"]).text().starts_with("no marks; flatcap mark TEXT"));
}

// Proves that metrics, and nothing else, are served over TCP if configured, and that an address in
// use costs a warning.
#[test]
fn metrics_are_served_over_tcp() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let rig = Rig::new();
    let config = rig.write("tcp.toml", format!("[control]\nmetrics_listen = \"{address}\"\n"));
    let config = config.to_str().unwrap();
    let called = rig.record(&["--for", "200ms", "--quiet", "--source", "cpu", "--config", config]);
    assert_eq!(called.err.matches("no metrics over TCP").count(), 1, "{called:?}");
    drop(listener);
    let child = start(&rig, &["--source", "cpu", "--config", config]);
    let answer = |line: &str| {
        let mut connection = std::net::TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        connection.write_all(format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(answer("GET /metrics").ends_with("# EOF\n"));
    for line in ["GET /status", "POST /rotate", "PUT /log-level"] {
        assert_eq!(status_line(&answer(line)), "HTTP/1.1 404 Not Found", "{line}");
    }
    end(&rig, child);
}

// Proves that invalid commands are refused with one line, from the verbs and from plain HTTP.
#[test]
fn invalid_commands_are_refused() {
    let rig = Rig::new();
    let child = start(&rig, &["--source", "cpu"]);
    let long = "x".repeat(4097);
    for (text, said) in [
        ("", "TEXT is empty; write one line of 1 to 4096 bytes"),
        (" ", "TEXT is empty"),
        ("two\nlines", "control characters"),
        ("\u{1b}[31mred", "control characters"),
        (long.as_str(), "TEXT has 4097 bytes; write one line of 1 to 4096 bytes"),
    ] {
        let called = rig.call(&["mark", text]);
        assert_eq!(called.status, Some(2), "{called:?}");
        assert!(called.err.contains(said) && called.err.lines().count() == 1, "{called:?}");
    }
    for (line, body, status) in [
        ("DELETE /status", "", "HTTP/1.1 405 Method Not Allowed"),
        ("GET /rotate", "", "HTTP/1.1 405 Method Not Allowed"),
        ("GET /nothing", "", "HTTP/1.1 404 Not Found"),
        ("POST /mark", "a\tb", "HTTP/1.1 422 Unprocessable Entity"),
        ("POST /mark", &"x".repeat(70_000), "HTTP/1.1 413 Payload Too Large"),
    ] {
        // The server may close the connection before it has read everything.
        let answer = std::panic::catch_unwind(|| http_request(&rig.socket(), line, "", body));
        assert!(answer.is_err() && body.len() > 4096 || status_line(&answer.unwrap()) == status, "{line}");
    }
    end(&rig, child);
}

// Proves that an account that may not send commands may read, and gets the reason. Method: an
// account with and without the recorder's group; the socket's mode lets both connect.
#[test]
fn only_the_recorders_group_may_send_commands() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let rig = Rig::new();
    let child = start(&rig, &["--source", "cpu"]);
    for folder in rig.folders() {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let called = |groups: &str, verb: &str| {
        let mut command = std::process::Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            groups,
            env!("CARGO_BIN_EXE_flatcap"),
            verb,
            "--socket",
        ]);
        CallResult::from(command.arg(rig.socket()).output().unwrap())
    };
    let (alone, member) = ("--clear-groups", "--groups=0,7");
    let closed = called(alone, "status");
    assert_eq!(closed.status, Some(1));
    assert!(closed.err.contains("user root and group root (mode 660)"), "{closed:?}");
    assert_eq!(called(member, "status").status, Some(0));
    std::fs::set_permissions(rig.socket(), std::fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(called(alone, "status").status, Some(0));
    let refused = called(alone, "rotate");
    assert_eq!(refused.status, Some(1));
    assert!(refused.err.contains("members of group 0"), "{refused:?}");
    // The recorder may refuse it for another reason; the permission is there.
    assert!(!called(member, "rotate").err.contains("members of group"));
    let err = end(&rig, child).err;
    assert!(err.contains("refused: permission denied") && err.contains("uid=65534"), "{err}");
}

// Proves that the socket of a dead recorder is replaced, that a foreign file or a live socket is
// left alone, and that recording continues without a socket, with one warning.
#[test]
fn an_occupied_socket_path_costs_a_warning() {
    for (what, said) in [
        ("stale", ""),
        ("file", "is not a socket"),
        ("directory", "is not a socket"),
        ("link", "is not a socket"),
        ("live", "another process answers there"),
    ] {
        let rig = Rig::new();
        let path = rig.socket();
        let mut live = None;
        match what {
            "stale" => drop(UnixListener::bind(&path).unwrap()),
            "live" => live = Some(UnixListener::bind(&path).unwrap()),
            "file" => std::fs::write(&path, "mine").unwrap(),
            "directory" => std::fs::create_dir(&path).unwrap(),
            _ => std::os::unix::fs::symlink("/etc/passwd", &path).unwrap(),
        }
        let kind = || std::fs::symlink_metadata(&path).map(|metadata| metadata.file_type());
        let before = kind().unwrap();
        let called = rig.record(&["--for", "300ms", "--quiet", "--source", "cpu"]);
        let warnings = called.err.lines().filter(|line| line.contains("no control socket")).count();
        assert_eq!(warnings, usize::from(!said.is_empty()), "{what}: {called:?}");
        assert!(called.err.contains(said), "{what}: {called:?}");
        if what == "stale" {
            assert!(kind().is_err(), "it is gone with the run");
        } else {
            assert_eq!(kind().unwrap(), before, "{what} is left as it was");
            assert_eq!(before.is_socket(), what == "live");
            if what != "live" {
                let asked = rig.call(&["status", "--socket", path.to_str().unwrap()]);
                assert!(
                    asked.status == Some(1) && asked.err.contains("it is not a socket"),
                    "{what}: {asked:?}"
                );
            }
        }
        drop(live);
    }
}

// Proves that a runtime directory that cannot be created costs one warning.
#[test]
fn a_missing_directory_costs_a_warning() {
    let rig = Rig::new();
    let mut command = rig.command(&["record", "--for", "300ms", "--quiet", "--source", "cpu"]);
    let called = CallResult::from(command.env("RUNTIME_DIRECTORY", "/proc/none").output().unwrap());
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(called.err.matches("no control socket").count(), 1, "{called:?}");
    assert!(called.err.contains("/proc/none/control.sock"), "{called:?}");
    assert!(!called.err.contains("cannot remove the memory"), "none was there: {called:?}");
}

// Proves that each of several recordings of one user has its own socket, that verbs require a
// choice among them, and that the next start removes the socket of a killed one.
#[test]
fn several_recordings_have_separate_sockets() {
    /// An account of this test alone: its directory under /dev/shm is shared by all its processes.
    const ACCOUNT: u32 = 65_117;
    if !rustix::process::getuid().is_root() {
        return;
    }
    let directory = format!("/dev/shm/flatcap-{ACCOUNT}");
    let (one, other) = (Rig::new(), Rig::new());
    let command = |rig: &Rig, args: &[&str]| {
        let mut command = rig.command_as(ACCOUNT, args);
        command.env_remove("RUNTIME_DIRECTORY").stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let record = ["record", "--quiet", "--source", "cpu"];
    let mut children = Vec::new();
    for rig in [&one, &other] {
        children.push(command(rig, &record).spawn().unwrap());
    }
    let status = |args: &[&str]| CallResult::from(command(&one, args).output().unwrap());
    let mut several = status(&["status"]);
    eventually("two that answer", || {
        several = status(&["status"]);
        several.err.contains("several recordings")
    });
    assert_eq!(several.status, Some(1));
    let listed: Vec<&str> = several.err.lines().filter(|line| line.contains("--socket /")).collect();
    assert_eq!(listed.len(), 2, "{several:?}");
    for (child, rig) in children.iter().zip([&one, &other]) {
        let data = rig.data().canonicalize().unwrap();
        let line = listed.iter().find(|line| line.contains(&format!("(pid {},", child.id()))).unwrap();
        assert!(line.contains(data.to_str().unwrap()), "{line}");
        let socket = line.split_whitespace().nth(1).unwrap();
        assert_eq!(
            number(&status(&["status", "--json", "--socket", socket]).json()["recorder"]["pid"]),
            u64::from(child.id())
        );
    }
    let mut killed = children.remove(0);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = status(&["status", "--json"]);
    assert_eq!(number(&left.json()["recorder"]["pid"]), u64::from(children[0].id()));
    let sockets = || {
        let entries = std::fs::read_dir(&directory).unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("control-")).count()
    };
    assert_eq!(sockets(), 2, "the socket of the killed one is still there");
    let again =
        CallResult::from(command(&one, &[&record[..], &["--for", "200ms"]].concat()).output().unwrap());
    assert_eq!(again.status, Some(0), "{again:?}");
    assert_eq!(sockets(), 1);
    signal(&children[0], "TERM");
    assert_eq!(finish(children.remove(0)).status, Some(0));
    assert_eq!(sockets(), 0);
    std::fs::remove_dir_all(&directory).unwrap();
}

// Proves that a socket that another account put in the user's place is not used. Method: a socket
// that listens and never answers, in root's directory with the name of another account.
#[test]
fn a_foreign_socket_is_not_used() {
    /// An account of this test alone.
    const ACCOUNT: u32 = 65_118;
    if !rustix::process::getuid().is_root() {
        return;
    }
    let directory = format!("/dev/shm/flatcap-{ACCOUNT}");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{directory}/control-00000000000000af.sock");
    let _gone = std::fs::remove_file(&path);
    let stranger = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let rig = Rig::new();
    let mut command = rig.command_as(ACCOUNT, &["mark", "a secret"]);
    let called = CallResult::from(command.env_remove("RUNTIME_DIRECTORY").output().unwrap());
    stranger.set_nonblocking(true).unwrap();
    let asked = stranger.accept();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains("no running flatcap"), "{called:?}");
    assert_eq!(asked.unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Connects without waiting. Returns none if the kernel refuses because too many connections wait.
fn connect_now(socket: &Path) -> Option<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&fd, &SocketAddrUnix::new(socket).unwrap()).ok()?;
    Some(UnixStream::from(fd))
}

// Proves that ten thousand connections cost no sample and little memory, and that the recorder
// still answers. Method: clients that stay idle, send half a request or never read; then 2,000
// requests by four threads; all while a source is recorded at 1 kHz.
#[test]
fn ten_thousand_connections_cost_nothing() {
    const TRIES: usize = 10_000;
    const REQUESTS: usize = 2_000;
    let rig = Rig::new();
    let child = start(&rig, &["--source", "synthetic@1ms", "--source", "cpu@10ms"]);
    let socket = rig.socket();
    http_request(&socket, "GET /metrics", "", "");
    eventually("mapped slabs", || !has_thread(&child, "map-slabs"));
    let before_kib = peak_kib(&child);
    let mut kept = Vec::new();
    let mut refused = 0;
    for number in 0..TRIES {
        let Some(mut connection) = connect_now(&socket) else {
            refused += 1;
            continue;
        };
        let bytes: &[u8] = match number % 3 {
            0 => b"",
            1 => b"GET /status HTTP/1.1\r\nHos",
            _ => b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        };
        match connection.write_all(bytes) {
            Err(error) if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                panic!("{error}")
            }
            _ => kept.push(connection),
        }
    }
    assert_eq!(kept.len() + refused, TRIES);
    assert!(refused > 0, "the kernel's backlog is limited");
    // After all earlier connections.
    let answer = loop {
        match UnixStream::connect(&socket) {
            Ok(_) => break http_request(&socket, "GET /status", "", ""),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    };
    assert_eq!(status_line(&answer), "HTTP/1.1 200 OK");
    drop(kept);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..REQUESTS / 4 {
                    assert_eq!(status_line(&http_request(&socket, "GET /", "", "")), "HTTP/1.1 200 OK");
                }
            });
        }
    });
    let metrics = http_request(&socket, "GET /metrics", "", "");
    let count = |name: &str| -> u64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
        line.parse().unwrap()
    };
    assert!(count("flatcap_control_connections_total") > REQUESTS as u64, "{metrics}");
    let given_up =
        ["timed_out", "displaced"].map(|how| count(&format!("flatcap_control_connections_{how}_total")));
    assert!(given_up.iter().sum::<u64>() > 0, "no idle connection was closed");
    assert!(count("flatcap_control_connections_open") <= 64);
    let added_kib = peak_kib(&child) - before_kib;
    assert!(added_kib < ATTACK_KIB_MAX, "{added_kib} KiB");
    println!("{refused} of {TRIES} tries refused by the kernel; {added_kib} KiB more resident at most");
    end(&rig, child);
}
