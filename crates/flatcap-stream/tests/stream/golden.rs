//! Checks with the bytes that flatstream 0.2.7 wrote. This crate writes the same bytes, and all its
//! readers read these bytes. shared/data/README.md describes the files.

use std::fs;
use std::path::{Path, PathBuf};

use flatbuffers::{FlatBufferBuilder, Vector};
use flatcap_stream::{
    ChecksumKind, FrameDecoder, Framer, KindDeframer, RecoveryEnd, RegionContent, SliceFramer, SliceReader,
    StreamReader, StreamWriter, recover, salvage,
};

use crate::test_streams::{Random, push_to};

const FRAMES: usize = 2_000;

/// Returns the folder of golden files, if it exists.
fn golden() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/flatstream");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no golden files in {}", folder.display());
    None
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.split_whitespace().flat_map(str::chars);
    let digits: Vec<u8> = digits.map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    assert!(digits.len().is_multiple_of(2));
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Checks that all readers agree on an intact stream, and returns its payloads.
fn read_by_all(bytes: &[u8], kind: ChecksumKind) -> Vec<Vec<u8>> {
    let deframer = KindDeframer::new(kind).with_max_frame_len(1 << 20);
    let mut payloads = Vec::new();
    let mut reader = StreamReader::new(bytes, deframer);
    reader.process_all(push_to(&mut payloads)).unwrap();

    let sliced: Vec<&[u8]> = SliceReader::new(bytes, deframer).map(Result::unwrap).collect();
    assert_eq!(sliced, payloads);
    let parts = SliceReader::new(bytes, deframer).split(3);
    let split: Vec<&[u8]> = parts.into_iter().flatten().map(Result::unwrap).collect();
    assert_eq!(split, payloads);
    assert_eq!(in_random_pieces(bytes, deframer), payloads);

    let report = recover(bytes, deframer).unwrap();
    assert_eq!((report.frames, report.end), (payloads.len() as u64, RecoveryEnd::CleanEof));
    assert_eq!(report.last_good_offset, bytes.len() as u64);
    let salvaged: Vec<Vec<u8>> = salvage(bytes, deframer)
        .map(|piece| match piece.content {
            RegionContent::Frame(payload) => payload.to_vec(),
            other => panic!("{other:?} at {} of an intact stream", piece.offset),
        })
        .collect();
    assert_eq!(salvaged, payloads);
    payloads
}

fn in_random_pieces(bytes: &[u8], deframer: KindDeframer) -> Vec<Vec<u8>> {
    let mut random = Random::new(7);
    let mut decoder = FrameDecoder::new(deframer);
    let (mut payloads, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (mut piece, remaining) = rest.split_at(rest.len().min(random.below(97)));
        while !piece.is_empty() {
            let (taken, payload) = decoder.decode(piece).unwrap();
            payloads.extend(payload.map(<[u8]>::to_vec));
            piece = &piece[taken..];
        }
        rest = remaining;
    }
    assert!(decoder.is_between_frames());
    payloads
}

/// Writes the payloads in each way, checks that all ways write the same bytes, and returns these
/// bytes.
fn written_by_all(payloads: &[Vec<u8>], kind: ChecksumKind) -> Vec<u8> {
    let mut one_by_one = StreamWriter::new(Vec::new(), kind);
    for payload in payloads {
        one_by_one.write_payload(payload).unwrap();
    }
    let bytes = one_by_one.into_inner();
    let mut batch = StreamWriter::new(Vec::new(), kind);
    batch.write_payloads(payloads.iter().map(Vec::as_slice)).unwrap();
    assert_eq!(batch.into_inner(), bytes);
    let mut buffer = vec![0; bytes.len()];
    let mut end = 0;
    for payload in payloads {
        end += kind.frame_into(&mut buffer[end..], payload).unwrap();
    }
    assert_eq!(buffer, bytes);
    bytes
}

fn medium() -> Vec<u8> {
    let mut builder = FlatBufferBuilder::with_capacity(1_024);
    let root = builder.create_vector(&[0_u8; 1_024]);
    builder.finish(root, None);
    builder.finished_data().to_vec()
}

// Proves that frames equal the frames of flatstream 0.2.7 byte for byte. Method: each published
// frame is written by all framers and read by all readers.
#[test]
fn published_frames() {
    let Some(folder) = golden() else { return };
    let kinds = [
        ("default", ChecksumKind::None),
        ("crc16", ChecksumKind::Crc16),
        ("crc32", ChecksumKind::Crc32),
        ("xxhash64", ChecksumKind::Xxh3),
    ];
    for (name, kind) in kinds {
        for (size, payload) in [("empty", Vec::new()), ("small", b"abc".to_vec()), ("medium", medium())] {
            let bytes = unhex(&fs::read_to_string(folder.join(format!("{name}_{size}.hex"))).unwrap());
            let mut framed = Vec::new();
            kind.frame_and_write(&mut framed, &payload).unwrap();
            assert_eq!(framed, bytes, "{name}_{size}");
            assert_eq!(read_by_all(&bytes, kind), [payload], "{name}_{size}");
        }
    }
}

fn telemetry(index: usize) -> Vec<f64> {
    let i = index as f64;
    let all =
        [i * 0.01, (index % 200) as f64 * 0.5, 800.0 + i, 20.0 + (index % 40) as f64, 100.0 - i * 0.045];
    all[..=index % 5].to_vec()
}

// Proves that every value of a stream of flatstream 0.2.7 is read, and that the rewritten stream
// equals it byte for byte. Method: 2,000 frames under each checksum, every reader, and every way of
// writing, from payloads and from values.
#[test]
fn telemetry_streams() {
    let Some(folder) = golden() else { return };
    for &kind in ChecksumKind::ALL {
        let bytes = fs::read(folder.join(format!("telemetry_2000_{kind}.bin"))).unwrap();
        let payloads = read_by_all(&bytes, kind);
        assert_eq!(payloads.len(), FRAMES);
        assert_eq!(payloads.iter().map(Vec::len).sum::<usize>(), 64_000);
        let mut again = StreamWriter::new(Vec::new(), kind);
        let mut builder = FlatBufferBuilder::new();
        for (index, payload) in payloads.iter().enumerate() {
            let values: Vec<f64> = flatbuffers::root::<Vector<'_, f64>>(payload).unwrap().iter().collect();
            assert_eq!(values, telemetry(index), "message {index} under {kind}");
            builder.reset();
            let root = builder.create_vector(&values);
            builder.finish(root, None);
            again.write_finished(&mut builder).unwrap();
        }
        assert!(again.into_inner() == bytes, "built again under {kind}");
        assert!(written_by_all(&payloads, kind) == bytes, "written again under {kind}");
    }
}
