//! Replaying: the same bytes again, to every kind of destination, at the asked pace.

use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use flatcap::schema::frame::TelemetryFrame;

use crate::rig::{Rig, finish, number, signal};

fn recorded() -> Rig {
    let rig = Rig::new();
    let args = ["--source", "synthetic@2ms", "--source", "load@20ms", "--source", "self@50ms"];
    rig.record_samples(&args, 8);
    rig
}

fn samples(stream: &[u8]) -> Vec<&[u8]> {
    crate::walker::payloads(stream).into_iter().filter(|payload| &payload[4..8] == b"FCTF").collect()
}

// Goal: a replay is a segment stream with the header first and the very frames of the recording. Method: compare
// payload by payload; then read the stream with info and dump.
#[test]
fn frames_come_back_byte_for_byte() {
    let rig = recorded();
    let file = std::fs::read(&rig.segments("bin")[0]).unwrap();
    let called = rig.call(&["replay", "flatcap-data", "--speed", "max"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    assert_eq!(
        crate::walker::payloads(&called.out)[0],
        crate::walker::payloads(&file)[0],
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

/// When the samples of a stream were taken, on the monotonic clock.
fn times(stream: &[u8]) -> Vec<u64> {
    let header = |payload| flatbuffers::root::<TelemetryFrame<'_>>(payload).unwrap().header();
    samples(stream).into_iter().map(|payload| header(payload).mono_ns()).collect()
}

// Goal: frames of different sources come in the order of time. Method: monotonic times of a full replay.
#[test]
fn frames_come_in_the_order_of_time() {
    let rig = recorded();
    let times = times(&rig.call(&["replay", "flatcap-data", "--speed", "max"]).out);
    assert!(times.is_sorted() && times.len() > 24);
}

// Goal: no frame comes before its time, at half the recorded pace and at a multiple of it. Method: a replay at each speed; it takes at
// least as long as its first and last sample are apart at that speed. Half the pace fails where the speed is ignored.
#[test]
fn the_pace_is_kept() {
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

// Goal: sources and times select. Method: one source, the middle of the recording, by the wall times of all of its samples.
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

// Goal: a Unix socket gets the stream, a UDP port one frame a datagram. Method: real sockets.
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
    // All of it finds room, should this thread not run for a while.
    let _refused = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 8 << 20);
    if rustix::process::geteuid().is_root() {
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20).unwrap();
    }
    let to = format!("udp:{}", socket.local_addr().unwrap());
    let child = rig.start(&["replay", "flatcap-data", "--speed", "5", "--to", &to]);
    let mut datagram = vec![0; 65_536];
    for payload in crate::walker::payloads(&expected) {
        let length = socket.recv(&mut datagram).unwrap();
        assert_eq!(&datagram[12..length], payload);
    }
    assert_eq!(finish(child).status, Some(0));
    let called = rig.call(&["replay", "flatcap-data", "--to", "unix:/nonexistent.sock"]);
    assert_eq!(called.status, Some(1));
    assert!(called.err.contains("cannot send to unix:/nonexistent.sock"), "{called:?}");
}

// Goal: --loop starts again until a signal, and a reader that goes away ends it quietly. Method: read more than one
// round, then stop; and close the pipe early.
#[test]
fn a_loop_goes_on_until_it_is_stopped() {
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
