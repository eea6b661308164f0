//! The conformance files (tests/conformance/README.md): what a reader in any language must print.

use std::path::{Path, PathBuf};

use flatcap_format::block::{Codec, Layout};
use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::segment::{SampleSpan, SegmentReader, SourceInfo, SourceKind};
use flatcap_stream::ChecksumKind;
use serde_json::{Value, json};

use crate::corpus::{
    compressed, feature_bits, many_samples, numeric_samples, opaque, samples_with_hashes, way,
};
use crate::crafted::{
    MemoryFile, SegmentBuilder, WALL_NS, every_frame_kind, fixture, header, reader, source,
};
use crate::independent_reader;
use crate::rig::Rig;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// Appends a sample with its own times.
fn append(maker: &mut SegmentBuilder, source: u16, seq: u64, mono_ns: u64, body: &[u8]) {
    let wall_ns = WALL_NS + mono_ns.cast_signed();
    let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 7 };
    let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
    Envelope::new(source).write(&mut payload, &stamp, body);
    maker.append_payload(&payload);
    let span = SampleSpan {
        first_seq: seq,
        last_seq: seq,
        first_mono_ns: mono_ns,
        last_mono_ns: mono_ns,
        first_wall_ns: wall_ns,
        last_wall_ns: wall_ns,
    };
    maker.writer.count_samples(source, 1, span);
}

/// Returns samples of every type of value, and numbers at the limits of what JSON has.
fn types() -> Vec<u8> {
    let described = |id, name: &str| SourceInfo {
        name: name.to_owned(),
        root: format!("flatcap.test.{}{}", name[..1].to_uppercase(), &name[1..]),
        schema: fixture(&format!("{name}.bfbs")),
        ..source(id, &[])
    };
    let sources = vec![described(0, "shapes"), described(1, "marked")];
    let mut maker = SegmentBuilder::new(header(ChecksumKind::Xxh3, sources));
    let (shapes, marked) = (fixture("shapes.bin"), fixture("marked.bin"));
    append(&mut maker, 0, 0, 1_000, &shapes);
    append(&mut maker, 1, 0, 2_000, &marked);
    let short = [1e12, 1e13, 1e-6, 1e-7, -0.0, f32::MAX, f32::MIN_POSITIVE, 16_777_216.0];
    let floats = [f32::NAN, f32::INFINITY].into_iter().chain(short);
    for (seq, number) in (1..).zip(floats) {
        let mut changed = shapes.clone();
        let at = changed.windows(4).position(|window| window == 0.3_f32.to_le_bytes()).unwrap();
        changed[at..at + 4].copy_from_slice(&number.to_le_bytes());
        append(&mut maker, 0, seq, 2_000 + seq, &changed);
    }
    let load = marked.windows(8).position(|window| window == 0.25_f64.to_le_bytes()).unwrap();
    let long = [1e15, 1e16, 1e-5, 1e-6, 1e300, 5e-324, 123_456_789.125];
    for (seq, number) in (1..).zip([f64::NAN, f64::NEG_INFINITY].into_iter().chain(long)) {
        let mut changed = marked.clone();
        changed[load..load + 8].copy_from_slice(&number.to_le_bytes());
        append(&mut maker, 1, seq, 3_000 + seq, &changed);
    }
    maker.sealed()
}

/// Returns samples of two sources that step back in time between each other, and equal times.
fn order() -> Vec<u8> {
    let mut maker = SegmentBuilder::new(header(ChecksumKind::Crc32, vec![opaque(0), opaque(1)]));
    for seq in 0..20 {
        append(&mut maker, 0, seq, 10_000 + 1_000 * seq, &seq.to_le_bytes());
        if seq % 4 == 3 {
            // As a slab of a slower group: four samples at once, up to 3.5 us old.
            for late in seq - 3..=seq {
                append(&mut maker, 1, late, 9_500 + 1_000 * late + 500 * (late % 2), &[late as u8]);
            }
        }
    }
    maker.sealed()
}

/// Returns every file with its name and its reader level.
fn files() -> Vec<(String, u32, Vec<u8>)> {
    let schema = fixture("event.bfbs");
    let kind = ChecksumKind::Xxh3;
    let mut files = vec![
        ("order".to_owned(), 0, order()),
        ("types".to_owned(), 0, types()),
        ("unsealed".to_owned(), 0, every_frame_kind(kind, &schema).unsealed()),
    ];
    for kind in ChecksumKind::ALL {
        files.push((format!("raw-{kind}"), 0, every_frame_kind(*kind, &schema).sealed()));
    }
    let few = many_samples(ChecksumKind::Crc32, 1, 24);
    let types = types();
    let hashes = samples_with_hashes(ChecksumKind::None, 40);
    let many = many_samples(ChecksumKind::Crc16, 1, 90);
    let numeric = numeric_samples(kind, 300);
    for (name, level, raw, layout, codec, middle) in [
        ("rows", 1, &few, Layout::Row, Codec::None, 3),
        ("rows-zstd", 1, &types, Layout::Row, Codec::Zstd(1), 2),
        ("columns", 2, &few, Layout::Columnar, Codec::None, 1),
        ("columns-zstd", 2, &many, Layout::Columnar, Codec::Zstd(1), 2),
        ("columns-lz4", 2, &many, Layout::Columnar, Codec::Lz4, 1),
        ("rows-lz4", 2, &types, Layout::Row, Codec::Lz4, 1),
        ("ranges", 2, &hashes, Layout::Columnar, Codec::None, 1),
        ("numeric", 3, &numeric, Layout::Columnar, Codec::None, 1),
        ("rows-snappy", 3, &few, Layout::Row, Codec::Snappy, 1),
        ("columns-brotli", 3, &many, Layout::Columnar, Codec::Brotli(5), 1),
    ] {
        files.push((name.to_owned(), level, compressed(raw, way(layout, codec), middle)));
    }
    files.into_iter().map(|(name, level, bytes)| (format!("level{level}-{name}"), level, bytes)).collect()
}

/// Returns the list of sources: of the footer, or without one of header and descriptors.
fn sources(bytes: &[u8]) -> String {
    let mut reader = reader(&MemoryFile::of(bytes)).unwrap();
    while reader.advance().unwrap().is_some() {}
    let header = reader.footer().map_or(reader.header(), |footer| &footer.header);
    let kind = |kind| match kind {
        SourceKind::Host => "host",
        SourceKind::Agent => "agent",
        SourceKind::Synthetic => "synthetic",
        _ => "imported",
    };
    let row = |source: &SourceInfo| {
        let labels: serde_json::Map<String, Value> =
            source.labels.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
        json!({
            "id": source.id, "name": source.name, "kind": kind(source.kind), "period_ns": source.period_ns,
            "labels": labels, "root": source.root, "next_seq": source.next_seq,
        })
    };
    header.sources.iter().fold(String::new(), |text, source| text + &row(source).to_string() + "\n")
}

/// Returns what `dump` prints of a file.
fn dump(name: &str, bytes: &[u8]) -> String {
    let rig = Rig::new();
    rig.write(name, bytes);
    let called = rig.call(&["dump", "--format", "jsonl", name]);
    assert_eq!(called.status, Some(0), "{name}: {}", called.err);
    called.text()
}

/// Compares a text with the one in the folder, or writes it if requested.
fn compare(name: &str, now: &str) {
    let path = folder().join(name);
    if std::env::var_os("FLATCAP_CORPUS").is_some_and(|value| value == "write") {
        std::fs::write(path, now).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let differs = expected.lines().zip(now.lines()).find(|(expected, now)| expected != now);
    assert!(expected == now, "{name} differs: {differs:#?}");
}

// Proves that this program prints what tests/conformance says a reader must print, that each file
// needs exactly the reader level in its name, and that no file of the folder is left out.
#[test]
fn conformance_files_are_read_as_they_say() {
    let mut known = vec!["README.md".to_owned()];
    for (name, level, made) in files() {
        let file = format!("{name}.bin");
        let path = folder().join(&file);
        // Another version of a codec may compress the same bytes differently.
        if !path.exists() && std::env::var_os("FLATCAP_CORPUS").is_some_and(|value| value == "write") {
            std::fs::write(&path, &made).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        if level > 0 {
            let (_, used) = feature_bits(&bytes);
            assert_eq!((used & 1, u64::BITS - used.leading_zeros()), (1, level), "{name}: {used:#x}");
        }
        let reader = SegmentReader::open(Path::new(&path)).unwrap();
        assert_eq!(reader.compressed().is_some(), level > 0, "{name}");
        compare(&format!("{name}.jsonl"), &dump(&file, &bytes));
        compare(&format!("{name}.sources.jsonl"), &sources(&bytes));
        known.extend([file, format!("{name}.jsonl"), format!("{name}.sources.jsonl")]);
    }
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "{name} is not known");
    }
}

/// Returns a string as printed: escaped if it is not UTF-8.
fn escaped(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let chunks = bytes.utf8_chunks().map(|chunk| {
        let invalid = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        chunk.valid().replace('\\', "\\\\") + &invalid.collect::<String>()
    });
    chunks.collect()
}

// Proves that an independent reader of levels 0 and 1 finds the samples that the conformance files
// list, in the order of time, and that it refuses files of higher levels by their bits.
#[test]
fn an_independent_reader_finds_the_same_samples() {
    let mut read = 0;
    for (name, level, _) in files() {
        let bytes = std::fs::read(folder().join(format!("{name}.bin"))).unwrap();
        let listed = std::fs::read_to_string(folder().join(format!("{name}.jsonl"))).unwrap();
        let found = independent_reader::all_samples(&bytes);
        if level > 1 {
            assert_eq!(found.err(), Some(feature_bits(&bytes).1), "{name}");
            continue;
        }
        let found = found.unwrap_or_else(|bits| panic!("{name}: bits {bits}"));
        let lines = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        // Others are markers and gaps.
        let listed: Vec<Value> = lines.filter(|line| line.get("source").is_some()).collect();
        assert_eq!(found.len(), listed.len(), "{name}");
        for (sample, listed) in found.iter().zip(&listed) {
            let time = jiff::Timestamp::from_nanosecond(sample.wall_ns.into()).unwrap();
            let time = format!("{time:.9}");
            let expected = json!({
                "source": sample.source, "host": "host", "seq": sample.seq, "mono_ns": sample.mono_ns, "wall_ns": sample.wall_ns,
                "time": time, "duration_ns": sample.duration_ns, "flags": sample.flags, "data": &listed["data"],
            });
            assert_eq!(listed, &expected, "{name}");
            if let Some(payload) = listed["data"]["payload"].as_str() {
                assert_eq!(payload, escaped(&sample.payload), "{name}");
            }
            read += 1;
        }
    }
    assert!(read > 150, "{read}");
}
