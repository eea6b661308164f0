//! Tests a segment with the maximum number of sources, which all have the same name.

use flatcap_format::frame::Incomplete;
use flatcap_format::schema::{MetricKind, NewContent, NewField, NewTable, binary_schema, slot_of};
use flatcap_format::segment::{SealState, SegmentName, SourceInfo};
use flatcap_format::testing::{Folder, TimedSample, example, write_samples};

use super::*;

/// Number of sources, which is the maximum in a segment.
const SOURCES: u16 = 4096;
/// Number of samples of each source. The samples of the sources alternate.
const ROUNDS: u64 = 2;

// Proves that one query reads all sources of a name, each with its own column. If the time of the
// query grew with the cube of the number of sources, this test would take minutes.
#[test]
fn all_sources_of_one_name_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let field = NewField { kind: MetricKind::Gauge, ..NewField::new("depth", NewContent::Unsigned) };
    let table = NewTable { name: "Root".into(), fields: vec![field] };
    let schema = binary_schema(&[table], "Root").unwrap();
    let mut header = example();
    let source = |id: u16| SourceInfo {
        id,
        name: "orders".into(),
        labels: vec![("thread".into(), id.to_string())],
        root: "Root".into(),
        schema: schema.clone(),
        next_seq: 0,
        ..header.sources[0].clone()
    };
    header.sources = (0..SOURCES).map(source).collect();
    let samples = (0..ROUNDS).flat_map(|seq| (0..SOURCES).map(move |source| (seq, source)));
    let samples = samples.map(|(seq, source)| {
        let mut builder = flatbuffers::FlatBufferBuilder::new();
        let start = builder.start_table();
        builder.push_slot_always(slot_of(0), 10 * u64::from(source) + seq);
        let root = builder.end_table(start);
        builder.finish_minimal(root);
        let mono_ns = 1_000_000 * seq + u64::from(source);
        let (wall_ns, body) = (mono_ns.cast_signed(), builder.finished_data().to_vec());
        TimedSample { source, seq, mono_ns, wall_ns, incomplete: Incomplete::NONE, body }
    });
    let name = SegmentName { number: 7, created_s: 1_700_000_000, run_id: 5, state: SealState::Active };
    let sealed = write_samples(folder.path(), name, header, samples).seal().unwrap();
    sealed.publish(&Folder(folder.path().to_owned())).unwrap();

    let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
    let query = Query { fields: vec!["orders.depth".parse().unwrap()], ..Query::default() };
    let steps = Steps { step_ns: 1_000_000_000, aggregate: Some(Aggregate::Max) };
    let mut rows =
        recording.rows(&query, RowOptions { steps: Some(steps), ..RowOptions::default() }).unwrap();
    let mut found = Vec::new();
    while let Some(item) = rows.next().unwrap() {
        if let RowItem::Row(_) = item {
            found.extend(rows.columns().iter().map(|column| column.name.clone()).zip(rows.values().to_vec()));
        }
    }
    let expected =
        |id: u16| (format!("orders[{id}].depth"), HeldValue::Unsigned(10 * u64::from(id) + ROUNDS - 1));
    assert_eq!(found, (0..SOURCES).map(expected).collect::<Vec<_>>());
}
