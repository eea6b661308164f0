//! Replay: the same bytes, to every kind of destination, at the requested speed.

use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use flatcap_format::schema::frame::TelemetryFrame;

use crate::rig::{Rig, finish, number, signal};

fn recorded() -> Rig {
    let rig = Rig::new();
    let args = ["--source", "synthetic@2ms", "--source", "load@20ms", "--source", "self@50ms"];
    rig.record_samples(&args, 8);
    rig
}

fn samples(stream: &[u8]) -> Vec<&[u8]> {
    crate::independent_reader::payloads(stream)
        .into_iter()
        .filter(|payload| &payload[4..8] == b"FCTF")
        .collect()
}

// Proves that a replay is a segment stream: the header first, then exactly the frames of the
// recording. Method: compare payload by payload; then read the stream with info and dump.
#[test]
fn frames_are_replayed_byte_for_byte() {
    let rig = recorded();
    let file = std::fs::read(&rig.segments("bin")[0]).unwrap();
    let called = rig.call(&["replay", "flatcap-data", "--speed", "max"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(
        crate::independent_reader::payloads(&called.out)[0],
        crate::independent_reader::payloads(&file)[0],
        "the header first"
    );
    let (mut sent, mut stored) = (samples(&called.out), samples(&file));
    sent.sort_unstable();
    stored.sort_unstable();
    assert_eq!(sent, stored);

    rig.write("stream", &called.out);
    let info = rig.call(&["info", "--json", "stream"]);
    assert_eq!(info.status, Some(0), "{info:?}");
    assert_eq!(number(&info.json()["frames"]), stored.len() as u64);
    let dumped = rig.call(&["dump", "stream", "--source", "synthetic", "--format", "jsonl"]);
    let original = rig.call(&["dump", "flatcap-data", "--source", "synthetic", "--format", "jsonl"]);
    assert_eq!(dumped.text(), original.text());
}

/// Returns the monotonic times of the samples of a stream.
fn times(stream: &[u8]) -> Vec<u64> {
    let header = |payload| flatbuffers::root::<TelemetryFrame<'_>>(payload).unwrap().header();
    samples(stream).into_iter().map(|payload| header(payload).mono_ns()).collect()
}

// Proves that frames of different sources are replayed in the order of time.
#[test]
fn frames_are_replayed_in_the_order_of_time() {
    let rig = recorded();
    let times = times(&rig.call(&["replay", "flatcap-data", "--speed", "max"]).out);
    assert!(times.is_sorted() && times.len() > 24);
}

// Proves that no frame is sent before its time, at half the recorded speed and at a multiple of it:
// the replay takes at least the recorded time divided by the speed.
#[test]
fn the_speed_is_kept() {
    let rig = recorded();
    for speed in [0.5, 5.0] {
        let begin = Instant::now();
        let called = rig.call(&["replay", "flatcap-data", "--speed", &speed.to_string()]);
        let took = begin.elapsed();
        assert_eq!(called.status, Some(0), "{called:?}");
        let times = times(&called.out);
        let recorded = Duration::from_nanos(times[times.len() - 1] - times[0]);
        assert!(took >= recorded.div_f64(speed), "{speed}: {recorded:?} in {took:?}");
    }
}

// Proves that sources and times select samples. Method: one source, the middle of the recording, by
// the wall times of all its samples.
#[test]
fn a_replay_can_be_filtered() {
    let rig = recorded();
    let dumped = rig.call(&["dump", "flatcap-data", "--source", "synthetic", "--format", "jsonl"]).lines();
    let times: Vec<u64> = dumped.iter().map(|row| number(&row["wall_ns"])).collect();
    let wall = |at: usize| format!("@{}.{:09}", times[at] / 1_000_000_000, times[at] % 1_000_000_000);
    let (from, to) = (times.len() / 4, times.len() / 2);
    let one = ["replay", "flatcap-data", "--speed", "max", "--source", "synthetic"];
    let called = rig.call(&[&one[..], &["--since", &wall(from), "--until", &wall(to)]].concat());
    assert_eq!(samples(&called.out).len(), to - from);
    assert_eq!(samples(&rig.call(&one).out).len(), times.len());
    assert!(to > from);
}

// Proves that a Unix socket receives the stream, and a UDP port one frame per datagram.
#[test]
fn sockets_get_the_frames() {
    let rig = recorded();
    let expected = rig.call(&["replay", "flatcap-data", "--speed", "max"]).out;

    let path = rig.path("replay.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let child =
        rig.start(&["replay", "flatcap-data", "--speed", "max", "--to", &format!("unix:{}", path.display())]);
    let mut received = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
    assert_eq!(finish(child).status, Some(0));
    assert_eq!(received, expected);

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A large buffer, in case this thread does not run for a while.
    let _refused = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 8 << 20);
    if rustix::process::geteuid().is_root() {
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20).unwrap();
    }
    let to = format!("udp:{}", socket.local_addr().unwrap());
    let child = rig.start(&["replay", "flatcap-data", "--speed", "5", "--to", &to]);
    let mut datagram = vec![0; 65_536];
    for payload in crate::independent_reader::payloads(&expected) {
        let length = socket.recv(&mut datagram).unwrap();
        assert_eq!(&datagram[12..length], payload);
    }
    assert_eq!(finish(child).status, Some(0));
    let called = rig.call(&["replay", "flatcap-data", "--to", "unix:/nonexistent.sock"]);
    assert_eq!(called.status, Some(1));
    assert!(called.err.contains("cannot send to unix:/nonexistent.sock"), "{called:?}");
}

// Proves that --loop repeats until a signal, and that a closed pipe ends it without an error.
#[test]
fn a_loop_repeats_until_it_is_stopped() {
    let rig = recorded();
    let once = rig.call(&["replay", "flatcap-data", "--speed", "max"]).out.len();
    let mut child = rig.start(&["replay", "flatcap-data", "--speed", "max", "--loop"]);
    let mut out = child.stdout.take().unwrap();
    let mut bytes = vec![0; once * 2 + once / 2];
    out.read_exact(&mut bytes).unwrap();
    drop(out);
    let called = finish(child);
    assert_eq!((called.status, called.err.as_str()), (Some(0), ""), "a closed pipe ends quietly");

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = format!("udp:{}", socket.local_addr().unwrap());
    let child = rig.start(&["replay", "flatcap-data", "--loop", "--to", &to]);
    socket.recv(&mut vec![0; 65_536]).unwrap();
    signal(&child, "TERM");
    finish(child);
}
