//! A served page for tests.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;

use flatcap_os::thread;
use flatcap_recorder::snapshot::SnapshotRecord;
use serde_json::Value;
use tokio::sync::oneshot;

use super::{PageOptions, PageServer};
use crate::test_recording::{SPIKE, wall_ns, write_recording};

pub(super) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// A host name that would run a script in the page if the page used it as markup.
pub(super) const HOST: &str = "<script>document.title='taken'</script>\u{202e}";

/// A server of a page, which runs until this value is dropped.
pub(super) struct ServedPage {
    _folder: tempfile::TempDir,
    pub(super) address: SocketAddr,
    pub(super) ticket: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl ServedPage {
    pub(super) fn new() -> Self {
        Self::of(|folder| {
            write_recording(folder);
            write_snapshot(&folder.join("snapshots/oom-1"));
        })
    }

    /// Serves a directory after `write` has filled it.
    pub(super) fn of(write: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let options = PageOptions {
            paths: vec![folder.path().to_owned()],
            host: None,
            host_name: HOST.to_owned(),
            client: None,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            token: Some(TOKEN.to_owned()),
        };
        let mut server = PageServer::bind(options).unwrap();
        let (address, ticket) = (server.address(), server.issue_ticket().unwrap());
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn("page", move || server.run(stopped)).unwrap();
        Self { _folder: folder, address, ticket, stop: Some(stop), thread: Some(thread) }
    }

    /// Sends a request. Returns head and body of the answer.
    pub(super) fn ask(&self, line: &str, headers: &str, body: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        let text = format!("{line} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        (String::from_utf8(answer[..end].to_vec()).unwrap(), answer[end + 4..].to_vec())
    }

    pub(super) fn get(&self, path: &str) -> (String, Vec<u8>) {
        let headers = format!("Host: {}\r\nAuthorization: Bearer {TOKEN}\r\n", self.address);
        self.ask(&format!("GET /api/v1/{path}"), &headers, "")
    }

    pub(super) fn json(&self, path: &str) -> Value {
        let (head, body) = self.get(path);
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head} {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }
}

/// Writes `snapshot.json` for a snapshot around the spike. Also creates the directory of an
/// unpublished snapshot.
fn write_snapshot(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::create_dir(folder.with_extension("partial")).unwrap();
    let record = SnapshotRecord {
        name: "oom-1".to_owned(),
        reason: HOST.to_owned(),
        fired_wall_ns: wall_ns(SPIKE),
        first_wall_ns: wall_ns(SPIKE - 100),
        last_wall_ns: wall_ns(SPIKE + 50),
        ..SnapshotRecord::default()
    };
    std::fs::write(folder.join("snapshot.json"), serde_json::to_vec(&record).unwrap()).unwrap();
}

impl Drop for ServedPage {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}
