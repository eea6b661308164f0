//! Replaying: the same bytes again, to every kind of destination, at the asked pace.

use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use crate::rig::{Rig, finish, number, signal};

fn recorded() -> Rig {
    let rig = Rig::new();
    rig.record(&[
        "--for",
        "500ms",
        "--source",
        "synthetic@2ms",
        "--source",
        "load@20ms",
        "--source",
        "self@50ms",
    ]);
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

// Goal: frames of different sources come in the order of time. Method: monotonic times of a full replay.
#[test]
fn frames_come_in_the_order_of_time() {
    let rig = recorded();
    let called = rig.call(&["replay", "flatcap-data", "--speed", "max"]);
    let times: Vec<u64> = samples(&called.out)
        .into_iter()
        .map(|payload| {
            flatbuffers::root::<flatcap::schema::frame::TelemetryFrame<'_>>(payload)
                .unwrap()
                .header()
                .mono_ns()
        })
        .collect();
    assert!(times.is_sorted());
}

// Goal: the pace is the recorded one, or a multiple. Method: half a second at 1 and at 5 times.
#[test]
fn the_pace_is_kept() {
    let rig = recorded();
    for (speed, least, most) in [("1", 480, 3000), ("5", 90, 2500)] {
        let begin = Instant::now();
        let called = rig.call(&["replay", "flatcap-data", "--speed", speed]);
        assert_eq!(called.status, Some(0), "{called:?}");
        let took = begin.elapsed();
        assert!(
            took >= Duration::from_millis(least) && took < Duration::from_millis(most),
            "{speed}: {took:?}"
        );
    }
}

// Goal: sources and times select. Method: one source, the middle of the recording.
#[test]
fn a_replay_can_be_filtered() {
    let rig = recorded();
    let called = rig.call(&[
        "replay",
        "flatcap-data",
        "--speed",
        "max",
        "--source",
        "synthetic",
        "--since",
        "+100ms",
        "--until",
        "+200ms",
    ]);
    let count = samples(&called.out).len();
    // Ticks that other work makes late are missed; the whole recording has at least twice as many all the same.
    assert!((25..=51).contains(&count), "{count} frames in 100 ms at 2 ms");
    let all = rig.call(&["replay", "flatcap-data", "--speed", "max", "--source", "synthetic"]);
    assert!(samples(&all.out).len() > 2 * count);
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
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
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

    let child = rig.start(&["replay", "flatcap-data", "--loop", "--to", "udp:127.0.0.1:9"]);
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, "TERM");
    let begin = Instant::now();
    finish(child);
    assert!(begin.elapsed() < Duration::from_secs(5));
}
