//! Provides a header and a compressed segment for tests of readers.

use std::path::Path;

use flatcap_stream::ChecksumKind;

use crate::block::BlockEncoder;
use crate::block::SourceCompression;
use crate::host::{ClockReading, HostName};
use crate::segment::{Advance, CompressedWriter, SegmentHeader, SegmentReader, SourceInfo, SourceKind};

/// Returns a header with two sources. Every field of the header differs from its default.
pub fn example() -> SegmentHeader {
    SegmentHeader {
        segment: 7,
        run_id: 0x1234_5678_9abc_def0,
        host: HostName {
            name: "host".into(),
            machine_id: None,
            boot_id: Some("boot".into()),
            labels: Vec::new(),
        },
        agent_version: "0.1.0".into(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 16 << 20,
        clocks: ClockReading { mono_ns: 10, boot_ns: 20, wall_ns: 1_700_000_000_000_000_000 },
        reorder_window_ns: 5,
        sources: ["alpha", "beta"]
            .into_iter()
            .zip(0..)
            .map(|(name, id)| SourceInfo {
                id,
                name: name.into(),
                labels: vec![("unit".into(), "left".into())],
                kind: SourceKind::Synthetic,
                period_ns: 1_000_000,
                root: "flatcap.test.Root".into(),
                schema: vec![1, 2, 3, 4, 5],
                next_seq: 9,
            })
            .collect(),
        clock_table: vec![ClockReading { mono_ns: 1, boot_ns: 2, wall_ns: -3 }],
        recorder_pid: 4242,
    }
}

/// Compresses the file of a segment into blocks of about `block_bytes`.
pub fn compressed(path: &Path, block_bytes: usize) -> Vec<u8> {
    let raw = std::fs::read(path).unwrap();
    let mut reader = SegmentReader::open(path).unwrap();
    let footer = reader.footer().unwrap().clone();
    let (mut cuts, mut last) = (vec![0], 0);
    while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
        let end = at.offset + at.bytes as u64;
        let is_full = end - last >= block_bytes as u64 && end < footer.bytes;
        if at.offset == 0 || is_full || end == footer.bytes {
            cuts.push(end);
            last = end;
        }
    }
    cuts.push(raw.len() as u64);
    cuts.dedup();
    let ways = SourceCompression::default();
    let mut writer = CompressedWriter::begin(Vec::new(), &footer, ways.features()).unwrap();
    let mut encoder = BlockEncoder::new(ways);
    for source in &footer.header.sources {
        encoder.set_schema(source.id, &source.root, &source.schema);
    }
    let (first, mut payload) = (usize::try_from(cuts[1]).unwrap(), Vec::new());
    for pair in cuts.windows(2) {
        let frames = &raw[usize::try_from(pair[0]).unwrap()..usize::try_from(pair[1]).unwrap()];
        payload.clear();
        encoder.append_last(frames, pair[0], footer.header.checksum, &raw[..first], &mut payload).unwrap();
        writer.append_block(&payload, encoder.features(), &[]).unwrap();
    }
    let (bytes, length) = writer.finish().unwrap();
    assert_eq!(bytes.len() as u64, length);
    bytes
}
