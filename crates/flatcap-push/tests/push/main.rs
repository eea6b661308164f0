//! Tests of the client with a recorder in this process. Each pushed sample arrives or is counted as
//! dropped.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::similar_names,
    clippy::case_sensitive_file_extension_comparisons,
    clippy::needless_for_each,
    reason = "tests, and a recorder that is none"
)]

mod fake_recorder;
mod interfaces;
mod records;

use std::path::PathBuf;
use std::time::Duration;

use fake_recorder::{FakeRecorder, LaneShape, SHAPE, now_ns};
use flatcap_lane::LaneBudget;
use flatcap_push::{ClientOptions, OnFullLane, PushClient, PushError, PushSource, SetupError, SourceOptions};

/// Returns a folder, and the path of a socket in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::Builder::new().prefix("flatcap-push-").tempdir().unwrap();
    let socket = folder.path().join("push.sock");
    (folder, socket)
}

/// Returns options with time limits that are long enough even if the recorder is a thread of a busy
/// machine.
fn patient(socket: &std::path::Path) -> ClientOptions {
    let limit = Duration::from_secs(3600);
    ClientOptions {
        socket: Some(socket.to_owned()),
        block_limit: limit,
        reply_limit: limit,
        ..ClientOptions::default()
    }
}

fn client(socket: &std::path::Path) -> PushClient {
    PushClient::open("test", patient(socket)).unwrap()
}

fn source(client: &PushClient, on_full: OnFullLane) -> PushSource {
    client.source(SourceOptions { name: "orders", on_full, ..SourceOptions::default() }).unwrap()
}

// Proves that samples of several sources arrive in order, with their payloads and with correct
// times, and that the recorder gets the descriptions of the sources.
#[test]
fn samples_arrive() {
    let (_folder, socket) = place();
    let recorder = FakeRecorder::start(&socket, SHAPE);
    let client = client(&socket);
    let labels = [("team", "payments")];
    let schema: Vec<u8> = (0..200_000_u32).map(|k| k.to_le_bytes()[0]).collect();
    let options = SourceOptions {
        name: "typed",
        root: "acme.Order",
        schema: &schema,
        labels: &labels,
        period: Duration::from_millis(5),
        on_full: OnFullLane::Block,
    };
    let (typed, opaque) = (client.source(options).unwrap(), source(&client, OnFullLane::Block));
    let before = now_ns();
    for k in 0..1000_usize {
        typed.push(&vec![7; k]).unwrap();
        opaque.push_with(8, |place| place.copy_from_slice(&k.to_le_bytes())).unwrap();
    }
    let after = now_ns();
    recorder.wait_until(|seen| seen.frames == 2000);
    assert!(client.is_connected() && client.last_error().is_empty());
    client.trigger("slow order 4711").unwrap();
    drop((typed, opaque, client));
    recorder.wait_until(|seen| seen.begun.len() == 2);
    let seen = recorder.seen.lock().unwrap();
    assert_eq!((seen.missing, seen.lanes, seen.connections), (0, 1, 1));
    assert_eq!(seen.begun.values().copied().collect::<Vec<_>>(), [1000, 1000]);
    assert_eq!(seen.triggers, ["slow order 4711"]);
    assert_eq!(seen.schemas, [schema]);
    assert_eq!((seen.sources[0].name.as_str(), seen.sources[0].root.as_str()), ("typed", "acme.Order"));
    assert_eq!(seen.sources[0].labels, [("team".to_owned(), "payments".to_owned())]);
    assert_eq!((seen.sources[0].period_ns, seen.sources[1].root.as_str()), (5_000_000, ""));
    for (index, sample) in seen.samples.iter().enumerate() {
        let k = index / 2;
        assert_eq!((usize::from(sample.source), sample.seq), (index % 2, k as u64));
        assert!((before..=after).contains(&sample.mono_ns));
        let payload = if sample.source == 0 { vec![7; k] } else { k.to_le_bytes().to_vec() };
        assert_eq!(sample.payload, payload);
    }
}

// Proves that a client knows the budget of its recorder after the first push, and no longer after
// the connection is lost. An older recorder states no budget.
#[test]
fn the_budget_is_that_of_the_recorder() {
    let (_folder, socket) = place();
    let recorder = FakeRecorder::start(&socket, SHAPE);
    let client = client(&socket);
    let orders = source(&client, OnFullLane::DropNewest);
    assert_eq!(client.budget(), None);
    orders.push(b"x").unwrap();
    let budget = client.budget().unwrap();
    assert_eq!(budget.cpu_ns_per_second, 500_000_000);
    assert_eq!((budget.user_frames_per_second, budget.user_bytes_per_second), (Some(1000), None));
    drop(recorder);
    while client.is_connected() {
        std::thread::yield_now();
    }
    assert_eq!(client.budget(), None);
    let older = LaneShape { budget: LaneBudget::default(), run_id: 2, ..SHAPE };
    let recorder = FakeRecorder::start(&socket, older);
    while recorder.seen.lock().unwrap().frames == 0 {
        orders.push(b"y").ok();
        std::thread::yield_now();
    }
    assert!(client.is_connected());
    assert_eq!(client.budget(), None);
}

// Proves that times from the timestamp counter are times of the same clock.
#[test]
fn the_counter_stamps_by_the_same_clock() {
    let (_folder, socket) = place();
    let recorder = FakeRecorder::start(&socket, SHAPE);
    let options = ClientOptions { use_counter: true, ..patient(&socket) };
    let client = PushClient::open("test", options).unwrap();
    let orders = source(&client, OnFullLane::Block);
    let before = now_ns();
    for _ in 0..1000 {
        orders.push(b"x").unwrap();
    }
    let after = now_ns();
    recorder.wait_until(|seen| seen.frames == 1000 || seen.refusal.is_some());
    let seen = recorder.seen.lock().unwrap();
    assert_eq!(seen.refusal, None);
    let slack = 1_000_000;
    assert!(seen.samples.iter().all(|sample| (before - slack..=after + slack).contains(&sample.mono_ns)));
}

// Proves that each thread has a separate lane, that a thread that begins later gets the lane of a
// thread that has ended, and that no sample is lost.
#[test]
fn threads_have_lanes() {
    const THREADS: u64 = 4;
    let (_folder, socket) = place();
    let recorder = FakeRecorder::start(&socket, SHAPE);
    let client = client(&socket);
    let orders = source(&client, OnFullLane::Block);
    for _ in 0..3 {
        let together = std::sync::Barrier::new(usize::try_from(THREADS).unwrap());
        std::thread::scope(|scope| {
            let push = |_| {
                let (orders, together) = (orders.clone(), &together);
                scope.spawn(move || {
                    orders.push(&[1]).unwrap();
                    together.wait();
                    (0..999).for_each(|_| orders.push(&[1; 100]).unwrap());
                })
            };
            // The threads are joined one by one, because the end of the scope does not wait for the
            // destructors of thread-local values.
            let threads: Vec<_> = (0..THREADS).map(push).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
    recorder.wait_until(|seen| seen.frames == 3 * THREADS * 1000);
    let seen = recorder.seen.lock().unwrap();
    assert_eq!((seen.lanes, seen.missing), (4, 0));
    assert_eq!(orders.dropped(), 0);
}

// Proves the effect of each policy on a ring that nobody reads. The newest or the oldest samples
// are dropped, and when the client ends, all samples that were begun are accounted for.
#[test]
fn a_full_ring_drops_as_configured() {
    for on_full in [OnFullLane::DropNewest, OnFullLane::DropOldest, OnFullLane::Block] {
        let (_folder, socket) = place();
        let shape = LaneShape { slab_bytes: 4096, reads: false, ..SHAPE };
        let recorder = FakeRecorder::start(&socket, shape);
        let options = ClientOptions { block_limit: Duration::from_micros(1), ..patient(&socket) };
        let client = PushClient::open("test", options).unwrap();
        let orders = source(&client, on_full);
        let pushed: Vec<_> = (0..100).map(|_| orders.push(&[1; 1000])).collect();
        let kept = pushed.iter().filter(|pushed| pushed.is_ok()).count() as u64;
        let expected = if on_full == OnFullLane::DropOldest { 100 } else { 12 };
        assert_eq!((kept, orders.dropped()), (expected, 100 - expected), "{on_full:?}");
        assert!(pushed.iter().all(|pushed| *pushed == Ok(()) || *pushed == Err(PushError::Full)));
        drop((orders, client));
        recorder.wait_until(|seen| seen.begun.len() == 1);
        assert_eq!(recorder.seen.lock().unwrap().begun[&0], 100, "{on_full:?}");
    }
}

// Proves that a sample that is too long is refused and counted, and that the next sample is
// accepted.
#[test]
fn a_sample_that_is_too_long_is_refused() {
    let (_folder, socket) = place();
    let recorder = FakeRecorder::start(&socket, SHAPE);
    let client = client(&socket);
    let orders = source(&client, OnFullLane::Block);
    assert_eq!(orders.push(&vec![0; 65_536]), Err(PushError::TooLarge));
    assert_eq!(orders.push(&vec![0; 65_536 - 76]), Ok(()));
    recorder.wait_until(|seen| seen.frames == 1 && seen.missing == 1);
    assert_eq!(orders.dropped(), 1);
}

// Proves that without a recorder only the pushes fail and are counted, and that a recorder that
// starts later is found.
#[test]
fn a_recorder_may_come_later() {
    let (_folder, socket) = place();
    let client = client(&socket);
    let orders = source(&client, OnFullLane::DropNewest);
    for _ in 0..1000 {
        assert_eq!(orders.push(b"x"), Err(PushError::NoRecorder));
    }
    assert_eq!(orders.dropped(), 1000);
    assert!(!client.is_connected() && client.trigger("x").is_err());
    let recorder = FakeRecorder::start(&socket, SHAPE);
    let mut dropped = 1000;
    while orders.push(b"x").is_err() {
        dropped += 1;
        std::thread::yield_now();
    }
    assert_eq!(orders.dropped(), dropped);
    recorder.wait_until(|seen| seen.frames == 1 && seen.sources.len() == 1);
}

// Proves that samples that a recorder has not read when it ends are given to the next recorder,
// each sample exactly once, and that the client continues with that recorder.
#[test]
fn a_killed_recorder_leaves_nothing_behind() {
    let (_folder, socket) = place();
    let first = FakeRecorder::start(&socket, LaneShape { reads: false, ..SHAPE });
    let client = client(&socket);
    let orders = source(&client, OnFullLane::DropNewest);
    for k in 0..100_u64 {
        orders.push(&k.to_le_bytes()).unwrap();
    }
    drop(first);
    for k in 100..200_u64 {
        orders.push(&k.to_le_bytes()).unwrap();
    }
    let second = FakeRecorder::start(&socket, LaneShape { run_id: 2, ..SHAPE });
    let mut next = 200_u64;
    while second.seen.lock().unwrap().frames == 0 {
        // During this time the old lane may be full.
        next += u64::from(orders.push(&next.to_le_bytes()).is_ok());
        std::thread::yield_now();
    }
    drop((orders, client));
    second.wait_until(|seen| seen.begun.len() == 1);
    let seen = second.seen.lock().unwrap();
    let mut found: Vec<u64> = [&seen.resumed, &seen.samples]
        .into_iter()
        .flatten()
        .map(|sample| u64::from_le_bytes(*sample.payload.first_chunk().unwrap()))
        .collect();
    assert!(seen.resumptions >= 2, "at once, and when the thread had stopped");
    assert_eq!(seen.samples[0].seq, 0, "the numbers of another run");
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, (0..next).collect::<Vec<_>>());
}

// Proves that a lane is given to one recorder after the other until one of them reports that the
// samples of the lane are in its files. After this report, no recorder gets the lane.
#[test]
fn a_lane_is_kept_until_it_is_rescued() {
    let (_folder, socket) = place();
    let killed = |run_id: u64| LaneShape { run_id, reads: false, rescues: false, ..SHAPE };
    let client = client(&socket);
    let orders = source(&client, OnFullLane::DropNewest);
    let mut next = 0_u64;
    let mut push_until = |recorder: &FakeRecorder, is_so: &dyn Fn(&fake_recorder::Seen) -> bool| {
        while !is_so(&recorder.seen.lock().unwrap()) {
            next += u64::from(orders.push(&next.to_le_bytes()).is_ok());
            std::thread::yield_now();
        }
    };
    let found = |recorder: &FakeRecorder, runs: usize| {
        recorder.wait_until(|seen| seen.resumptions >= runs);
        let seen = recorder.seen.lock().unwrap();
        let all = seen.resumed.iter().map(|sample| sample.payload.clone());
        all.collect::<std::collections::BTreeSet<_>>().len() as u64
    };
    let first = FakeRecorder::start(&socket, killed(1));
    push_until(&first, &|seen| seen.lanes == 1);
    orders.push(&u64::MAX.to_le_bytes()).unwrap();
    drop(first);
    // The lane was given two times, immediately and after the thread had stopped.
    let second = FakeRecorder::start(&socket, killed(2));
    push_until(&second, &|seen| seen.resumptions == 2);
    let in_first = found(&second, 2);
    assert!(in_first >= 1);
    drop(second);
    let third = FakeRecorder::start(&socket, LaneShape { run_id: 3, reads: false, ..SHAPE });
    push_until(&third, &|seen| seen.resumptions == 3);
    assert!(found(&third, 3) >= in_first, "that of the first again, and that of the second twice");
    drop(third);
    let fourth = FakeRecorder::start(&socket, LaneShape { run_id: 4, ..SHAPE });
    push_until(&fourth, &|seen| seen.resumptions == 2);
    drop((orders, client));
    assert_eq!(fourth.seen.lock().unwrap().resumptions, 2, "that of the third alone");
}

// Proves that samples of a source that the recorder refuses are dropped and counted, that the
// client returns the reason, and that other sources are accepted.
#[test]
fn a_refused_source_is_counted() {
    let (_folder, socket) = place();
    let recorder = FakeRecorder::start(&socket, SHAPE);
    let client = client(&socket);
    let refused = client.source(SourceOptions { name: "refused", ..SourceOptions::default() }).unwrap();
    assert_eq!(client.last_error(), "the name is refused");
    let orders = source(&client, OnFullLane::Block);
    for _ in 0..10 {
        assert_eq!(refused.push(b"x"), Err(PushError::NoRecorder));
        orders.push(b"x").unwrap();
    }
    assert_eq!((refused.dropped(), orders.dropped()), (10, 0));
    recorder.wait_until(|seen| seen.frames == 10);
}

// Proves that two clients of one thread do not disturb each other. If the function that fills a
// payload panics, or pushes a sample itself, no more than its own sample is lost.
#[test]
fn lanes_are_put_back() {
    let (_folder, socket) = place();
    let recorder = FakeRecorder::start(&socket, SHAPE);
    let (one, other) = (client(&socket), client(&socket));
    let (one, other) = (source(&one, OnFullLane::Block), source(&other, OnFullLane::Block));
    for _ in 0..10 {
        one.push(b"x").unwrap();
        other.push(b"x").unwrap();
    }
    let inner = one.clone();
    one.push_with(1, |_| assert_eq!(inner.push(b"y"), Err(PushError::Busy))).unwrap();
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| one.push_with(1, |_| panic!("in a test"))));
    assert!(panicked.is_err());
    one.push(b"x").unwrap();
    recorder.wait_until(|seen| seen.frames == 22);
    assert_eq!((one.dropped(), other.dropped()), (1, 0));
    assert_eq!(recorder.seen.lock().unwrap().missing, 0);
}

// Proves that the same source is set up only one time, that there are at most 64 sources, and that
// wrong names are refused.
#[test]
fn set_up_has_limits() {
    let (_folder, socket) = place();
    let client = client(&socket);
    let named = |name: &str| client.source(SourceOptions { name, ..SourceOptions::default() });
    for k in 0..64 {
        let name = format!("s{k}");
        named(&name).unwrap();
        named(&name).unwrap();
    }
    assert_eq!(named("one more").unwrap_err(), SetupError::TooManySources);
    for name in ["", "a\nb", &"x".repeat(65)] {
        assert_eq!(named(name).unwrap_err(), SetupError::Name);
        assert_eq!(PushClient::open(name, ClientOptions::default()).unwrap_err(), SetupError::Name);
    }
    let options = ClientOptions { socket: Some("x".repeat(108).into()), ..ClientOptions::default() };
    assert_eq!(PushClient::open("a", options).unwrap_err(), SetupError::Socket);
}
