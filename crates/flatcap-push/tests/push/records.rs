//! Tests that log records, events and spans arrive as payloads of their schema.

use flatcap_format::schema::CompiledSchema;
use flatcap_push::{LogSink, PushLayer};
use log::{Level, LevelFilter, Log, Record};
use tracing_subscriber::layer::SubscriberExt;

use super::fake_recorder::{FakeRecorder, SHAPE, Seen};
use super::{client, place};

/// Returns the records as JSON, according to the schema that the client sent with the source.
fn records(seen: &Seen) -> Vec<String> {
    let schema = CompiledSchema::compile(&seen.schemas[0], &seen.sources[0].root).unwrap();
    let json = |payload: &Vec<u8>| {
        let mut text = Vec::new();
        schema.append_json(payload, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    };
    seen.samples.iter().map(|sample| json(&sample.payload)).collect()
}

// Proves that a record of `log` arrives with its text, level and source location, and that a record
// below the sink's level does not arrive.
#[test]
fn log_records_arrive() {
    let (_folder, socket) = place();
    let recorder = FakeRecorder::start(&socket, SHAPE);
    let client = client(&socket);
    let sink = LogSink::new(&client, "log", LevelFilter::Info).unwrap();
    let log = |level, text: &str| {
        sink.log(
            &Record::builder()
                .level(level)
                .target("payments")
                .file(Some("a.rs"))
                .line(Some(7))
                .args(format_args!("order {text}"))
                .build(),
        );
    };
    log(Level::Debug, "unseen");
    log(Level::Warn, "4711");
    recorder.wait_until(|seen| seen.frames == 1);
    assert_eq!(
        records(&recorder.seen.lock().unwrap()),
        [
            r#"{"severity":"warn","target":"payments","message":"order 4711","file":"a.rs","line":7,"duration_ns":0,"fields":[]}"#
        ]
    );
}

// Proves that events and ended spans of `tracing` arrive with their fields, and that numbers stay
// numbers.
#[test]
fn events_and_spans_arrive() {
    let (_folder, socket) = place();
    let recorder = FakeRecorder::start(&socket, SHAPE);
    let client = client(&socket);
    let layer = PushLayer::new(&client, "tracing").unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = tracing::info_span!("order", number = 4711, state = tracing::field::Empty);
        span.in_scope(|| tracing::error!(cost = 0.5, who = "bob", "too slow"));
        span.record("state", "done");
    });
    recorder.wait_until(|seen| seen.frames == 2);
    let records = records(&recorder.seen.lock().unwrap());
    assert!(
        records[0].contains(r#""severity":"error""#) && records[0].contains(r#""message":"too slow""#),
        "{}",
        records[0]
    );
    let fields =
        r#""fields":[{"name":"cost","text":null,"number":0.5},{"name":"who","text":"bob","number":null}]}"#;
    assert!(records[0].contains(fields), "{}", records[0]);
    assert!(records[1].contains(r#""message":"order""#), "{}", records[1]);
    let fields = r#""fields":[{"name":"number","text":null,"number":4711.0},{"name":"state","text":"done","number":null}]}"#;
    assert!(records[1].contains(fields), "{}", records[1]);
}
