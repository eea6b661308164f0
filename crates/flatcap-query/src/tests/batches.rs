//! Tests of the number of samples in a batch.

use flatcap_format::schema::{NewContent, NewField, NewTable, binary_schema, slot_of};
use flatcap_format::segment::{SealState, SegmentName, SourceInfo};
use flatcap_format::testing::{Folder, TimedSample, compressed, example, write_samples};

use super::*;

const TEXT_BYTES: usize = 256 << 10;
const SAMPLES: usize = 300;

// Proves that a batch ends after about 32 MiB of strings, even if the batch stores equal strings
// only one time. This limits the memory of a reader that writes a string for each row, such as an
// Arrow table.
#[test]
fn batches_of_long_texts_are_short() {
    check_batches(&vec![b'x'; TEXT_BYTES], 1);
}

// Proves that bytes that are not UTF-8 count with the length of their printed form, which is four
// times as long.
#[test]
fn batches_of_escaped_texts_are_short() {
    check_batches(&vec![0xff; TEXT_BYTES / 4], 4);
}

/// Checks the lengths of the batches for samples with a string. The printed form of the string is
/// `expansion` times as long as the string.
fn check_batches(text: &[u8], expansion: usize) {
    let printed_bytes = text.len() * expansion;
    let folder = tempfile::tempdir().unwrap();
    let table = NewTable { name: "test.Note".into(), fields: vec![NewField::new("text", NewContent::Text)] };
    let schema = binary_schema(&[table], "test.Note").unwrap();
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let text = builder.create_vector(text);
    let start = builder.start_table();
    builder.push_slot_always(slot_of(0), text);
    let root = builder.end_table(start);
    builder.finish_minimal(root);
    let body = builder.finished_data().to_vec();
    let samples = (0..SAMPLES as u64).map(|seq| {
        let (mono_ns, wall_ns) = (1000 * seq, 1_000_000 + 1000 * seq.cast_signed());
        TimedSample {
            source: 0,
            seq,
            mono_ns,
            wall_ns,
            incomplete: flatcap_format::frame::Incomplete::NONE,
            body: body.clone(),
        }
    });
    let mut header = example();
    header.sources.truncate(1);
    header.sources[0] = SourceInfo {
        id: 0,
        name: "note".into(),
        root: "test.Note".into(),
        schema,
        next_seq: 0,
        ..header.sources[0].clone()
    };
    let name = SegmentName { number: 7, created_s: 1_700_000_000, run_id: 5, state: SealState::Active };
    let sealed = write_samples(folder.path(), name, header, samples).seal().unwrap();
    sealed.publish(&Folder(folder.path().to_owned())).unwrap();
    let path = folder.path().join(sealed.name().to_string());
    for is_compressed in [false, true] {
        if is_compressed {
            let bytes = compressed(&path, 1 << 20);
            std::fs::write(&path, bytes).unwrap();
        }
        let recording = Recording::open(std::slice::from_ref(&path)).unwrap();
        let mut results = recording.query(&Query::default()).unwrap();
        let mut rows = Vec::new();
        while let Some(item) = results.next().unwrap() {
            if let QueryItem::Batch(batch) = item {
                rows.push(batch.rows());
            }
        }
        assert_eq!(rows.iter().sum::<usize>(), SAMPLES);
        let longest = rows.iter().max().unwrap() * printed_bytes;
        assert!(longest <= 40 << 20, "compressed: {is_compressed}: {rows:?}");
    }
}
