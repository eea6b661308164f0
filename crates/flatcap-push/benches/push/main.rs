//! Measures a push of 64 bytes by one thread. For comparison, also measures an event of LTTng-UST
//! with the same bytes. The budget is 40 ns with CLOCK_MONOTONIC, 20 ns with the timestamp counter,
//! 15 ns with the counter and without checksum, and 2 ns without a recorder. A push must also take
//! at most a third of the time of LTTng-UST.
//!
//! The recorder is the one that the tests use. It runs in a thread of this process. Each batch fits
//! into the ring. LTTng-UST (Debian: liblttng-ust-dev, lttng-tools) records in snapshot mode into
//! its own buffers. Its consumer then writes nothing, so only the calls are compared. The two are
//! measured in alternating rounds, and each result is the median of the rounds.
//!
//! `cargo bench --package flatcap-push --bench push`

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::needless_for_each,
    reason = "a bench"
)]

#[path = "../../tests/push/fake_recorder.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the bench needs a part of it")]
mod fake_recorder;
mod lttng;

use std::hint::black_box;
use std::path::Path;

use fake_recorder::{FakeRecorder, LaneShape, SHAPE, now_ns};
use flatcap_push::{ClientOptions, OnFullLane, PushClient, PushSource, SourceOptions};
use flatcap_stream::ChecksumKind;

const ROUNDS: usize = 301;
const PUSHES: u64 = 3_000;
const PAYLOAD_BYTES: usize = 64;
/// Number of slabs of 64 KiB. A round fills fewer slabs.
const SLABS: usize = 8;

/// A client, and the recorder that receives its samples.
struct Subject {
    name: &'static str,
    budget_ns: f64,
    source: PushSource,
    recorder: Option<FakeRecorder>,
    pushed: u64,
    rounds_ns: Vec<f64>,
}

impl Subject {
    fn new(
        name: &'static str,
        budget_ns: f64,
        folder: &Path,
        checksum: Option<ChecksumKind>,
        use_counter: bool,
    ) -> Self {
        let socket = folder.join(name.replace(' ', "-"));
        let shape = |checksum| LaneShape { checksum, slabs: SLABS, ..SHAPE };
        let recorder = checksum.map(|checksum| FakeRecorder::start(&socket, shape(checksum)));
        let options = ClientOptions { socket: Some(socket), use_counter, ..ClientOptions::default() };
        let client = PushClient::open("bench", options).unwrap();
        let options =
            SourceOptions { name: "bench", on_full: OnFullLane::DropNewest, ..SourceOptions::default() };
        let source = client.source(options).unwrap();
        Self { name, budget_ns, source, recorder, pushed: 0, rounds_ns: Vec::new() }
    }

    /// Pushes one batch.
    fn round(&mut self) {
        // The payload is not changed between pushes. A processor stalls if it reads bytes that were
        // just written in smaller pieces, and that time would be the caller's.
        let payload = [7_u8; PAYLOAD_BYTES];
        // The first push is not measured, because the last lane of this thread belonged to another
        // subject.
        self.source.push(&payload).ok();
        let begin = now_ns();
        for _ in 0..PUSHES {
            black_box(self.source.push(black_box(&payload)).ok());
        }
        let passed = now_ns() - begin;
        #[allow(clippy::cast_precision_loss, reason = "less than a second")]
        self.rounds_ns.push(passed as f64 / PUSHES as f64);
        self.pushed += PUSHES + 1;
        if let Some(recorder) = &self.recorder {
            recorder.wait_until(|seen| seen.frames == self.pushed);
            assert_eq!(self.source.dropped(), 0);
        } else {
            assert_eq!(self.source.dropped(), self.pushed);
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn main() {
    let folder = tempfile::Builder::new().prefix("flatcap-bench-").tempdir().unwrap();
    let folder = folder.path();
    let mut subjects = [
        Subject::new("clock", 40.0, folder, Some(ChecksumKind::Xxh3), false),
        Subject::new("counter", 20.0, folder, Some(ChecksumKind::Xxh3), true),
        Subject::new("counter without checksum", 15.0, folder, Some(ChecksumKind::None), true),
        Subject::new("no recorder", 2.0, folder, None, false),
    ];
    let mut rival = lttng::Rival::start(folder);
    let mut rival_ns = Vec::new();
    for _ in 0..ROUNDS {
        subjects.iter_mut().for_each(Subject::round);
        rival_ns.extend(rival.as_mut().map(|rival| rival.round(PUSHES)));
    }
    println!("{:<26} {:>10} {:>10}", "push of 64 B", "ns", "budget");
    for subject in &subjects {
        println!("{:<26} {:>10.1} {:>10.1}", subject.name, median(&subject.rounds_ns), subject.budget_ns);
    }
    if rival_ns.is_empty() {
        println!("skipped: no LTTng-UST (apt-get install liblttng-ust-dev lttng-tools)");
        return;
    }
    println!("{:<26} {:>10.1}", "LTTng-UST", median(&rival_ns));
    for subject in &subjects {
        let ratios: Vec<f64> =
            rival_ns.iter().zip(&subject.rounds_ns).map(|(rival, own)| rival / own).collect();
        println!("LTTng-UST takes {:.1} x as long as {}", median(&ratios), subject.name);
    }
}
