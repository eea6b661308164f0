//! Refusals of pushes: each limit names its key, and descriptors of a client hinder nobody.

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use flatcap_lane::{PushErrorCode, PushReply, PushRequest, SourceRegistration, VERSION};
use flatcap_push::OnFullLane;
use rustix::net::sockopt::set_socket_linger;

use crate::pushing::{
    RawClient, SEALED, client, count, memory, orders, payload, record, socket, verified_lost,
};
use crate::rig::{Rig, eventually, signal};

const SCHEMA: &[u8] = include_bytes!("../../generated/synthetic.bfbs");
const ROOT: &str = "flatcap.synthetic.Point";

fn registration(number: u32, name: &str) -> PushRequest {
    PushRequest::Source(SourceRegistration {
        number,
        period_ns: 0,
        name: name.to_owned(),
        root: ROOT.to_owned(),
        labels: Vec::new(),
    })
}

fn register(client: &RawClient, number: u32, name: &str) -> Option<String> {
    refusal(client.ask(&registration(number, name).encode(), &[memory(SCHEMA, SEALED).as_fd()]))
}

fn lane(client: &RawClient, bytes: u64) -> Option<String> {
    let request = PushRequest::Lane { bytes, thread: 1, thread_name: String::new() };
    refusal(client.ask(&request.encode(), &[]))
}

/// Returns the text of a refusal because of a limit.
fn refusal<T>(answer: Option<(PushReply, T)>) -> Option<String> {
    match answer {
        Some((PushReply::Error { code, text }, _)) => {
            assert_eq!(code, PushErrorCode::Limit, "{text}");
            Some(text)
        }
        _ => None,
    }
}

/// Registers and binds sources with new names until one is refused.
fn describe_until_refused(client: &RawClient) -> Option<String> {
    assert_eq!(lane(client, 1 << 18), None);
    (0..1_000).find_map(|number| {
        let refused = register(client, 0, &format!("orders{number}"));
        let bind = PushRequest::Bind { lane: number, source: 0 };
        refused
            .or_else(|| refusal(client.ask(&bind.encode(), &[])))
            // Each source has a lane, since it keeps its slot.
            .or_else(|| lane(client, 1 << 18))
    })
}

// Proves that each limit of pushes is stated when it is reached: the answer and a warning in the
// log name the key that raises it, and the metric counts the refusal.
#[test]
fn each_limit_names_its_key() {
    type Act = fn(&Path) -> Option<String>;
    let blackbox = "[blackbox]\nwindow = \"1s\"\nmemory_max = \"8MiB\"";
    let cases: [(&str, &str, Act, &str); 8] = [
        (
            "clients = 2",
            "",
            |path| {
                let _first = RawClient::welcome(path);
                let hello = PushRequest::Hello { version: VERSION, client: "second".into() };
                refusal(RawClient::connect(path).ask(&hello.encode(), &[]))
            },
            "[push] clients",
        ),
        (
            "lanes = 2",
            "",
            |path| {
                let client = RawClient::welcome(path);
                lane(&client, 1 << 18).or_else(|| lane(&client, 1 << 18))
            },
            "[push] lanes",
        ),
        ("memory_max = \"1MiB\"", "", |path| lane(&RawClient::welcome(path), 1 << 20), "[push] memory_max"),
        ("sources = 1", "", |path| register(&RawClient::welcome(path), 1, "orders"), "[push] sources"),
        (
            "schema_max = \"1KiB\"",
            "",
            |path| {
                let large = memory(&[7; 2048], SEALED);
                let request = registration(0, "orders").encode();
                refusal(RawClient::welcome(path).ask(&request, &[large.as_fd()]))
            },
            "[push] schema_max",
        ),
        (
            "memory_max = \"1GiB\"",
            "[storage]\nsegment_size = \"1MiB\"",
            |path| describe_until_refused(&RawClient::welcome(path)),
            "[storage] segment_size",
        ),
        (
            "memory_max = \"1GiB\"",
            blackbox,
            |path| describe_until_refused(&RawClient::welcome(path)),
            "[blackbox] memory_max",
        ),
        (
            "",
            "",
            |path| {
                let fire = PushRequest::Trigger { flags: 0, text: "again".into() };
                let client = RawClient::welcome(path);
                refusal(client.ask(&fire.encode(), &[])).or_else(|| refusal(client.ask(&fire.encode(), &[])))
            },
            "one trigger a second",
        ),
    ];
    for (push, more, act, key) in cases {
        let rig = Rig::new();
        let process = record(&rig, push, more);
        let text = act(&socket(&rig)).unwrap_or_else(|| panic!("{push} {more}: nothing is refused"));
        assert!(text.contains(key), "{text}");
        assert!(count(&rig, "refused") >= 1, "{key}");
        let called = process.end("TERM");
        let warned = called.err.lines().any(|line| line.contains("WARN") && line.contains(key));
        assert!(warned, "{key}: {}", called.err);
    }
}

/// Returns a connection whose close waits until the other end is closed, and that end.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let full = loop {
        if let Err(error) = stream.write_all(&[7; 1 << 13]) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    set_socket_linger(&stream, Some(Duration::from_secs(3600))).unwrap();
    (stream, other)
}

// Proves that descriptors whose close waits for a client delay no other client: sent with a
// request, with one that has too many, in the place of a schema, and left in the socket.
#[test]
fn descriptors_that_cannot_be_closed_delay_nobody() {
    let rig = Rig::new();
    let process = record(&rig, "", "");
    let path = socket(&rig);
    let hello = PushRequest::Hello { version: VERSION, client: "raw".into() }.encode();
    let mut others = Vec::new();
    let child = process.0.as_ref().unwrap();
    let mut send = |client: &RawClient, packet: &[u8], count: usize| {
        let (stream, other) = lingering();
        // The recorder is stopped until the message alone has the descriptor: whoever closes it
        // last waits.
        signal(child, "STOP");
        client.send(packet, &vec![stream.as_fd(); count]);
        drop(stream);
        signal(child, "CONT");
        others.push(other);
    };
    for count in [1, 8] {
        let refused = RawClient::connect(&path);
        send(&refused, &hello, count);
        assert!(matches!(refused.receive(), Some((PushReply::Error { .. }, _))));
    }
    let raw = RawClient::welcome(&path);
    send(&raw, &registration(0, "orders").encode(), 1);
    assert!(matches!(raw.receive(), Some((PushReply::Error { code: PushErrorCode::Schema, .. }, _))));
    // The recorder closes the connection at the first packet, with the second one in it.
    let last = RawClient::connect(&path);
    signal(child, "STOP");
    last.send(&[7], &[]);
    send(&last, &hello, 1);
    drop(last);
    let honest = client(&path);
    let orders = orders(&honest, OnFullLane::Block);
    orders.push(&payload(0)).unwrap();
    eventually("the honest frame", || count(&rig, "recorded") == 1);
    drop((orders, honest));
    process.end("TERM");
    assert_eq!(verified_lost(&rig), 0);
    drop(others);
}
