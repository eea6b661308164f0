//! The golden corpus (tests/corpus/README.md): segments as once written, and the output of the
//! verbs for them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use flatcap_format::block::{BlockEncoder, Codec, CompressionOptions, Layout, SourceCompression};
use flatcap_format::schema::segment::SegmentHeader;
use flatcap_format::segment::{
    ClockSync, CompressedWriter, FrameKind, Gap, Marker, SegmentOptions, SegmentReader, SourceInfo,
    SourceKind, Trailer,
};
use flatcap_format::storage::ReadAt;
use flatcap_stream::{ChecksumKind, SliceFramer};

use crate::crafted::{
    MemoryFile, NUMBER, RUN, SegmentBuilder, every_frame_kind, fixture, framed, gap, header, marker,
    read_contents, reader, source, sync, unknown, verify_bytes,
};
use crate::rig::Rig;

/// If set to `write`, files are written instead of compared.
const VARIABLE: &str = "FLATCAP_CORPUS";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// Sets a number in the header's table and updates the checksum of its frame.
fn with_header(bytes: &[u8], kind: ChecksumKind, slot: u16, value: &[u8]) -> Vec<u8> {
    let end = read_contents(bytes).unwrap().frames[0].end;
    let mut payload = bytes[kind.frame_bytes(0)..end].to_vec();
    let table = flatbuffers::root::<SegmentHeader<'_>>(&payload).unwrap()._tab;
    let at = table.loc() + usize::from(table.vtable().get(slot));
    payload[at..at + value.len()].copy_from_slice(value);
    [&framed(kind, &payload), &bytes[end..]].concat()
}

/// Returns a few samples without an index, so that only the header's own checksum covers the
/// header.
fn short(kind: ChecksumKind) -> Vec<u8> {
    let mut maker = SegmentBuilder::new(header(kind, vec![source(0, &fixture("event.bfbs"))]));
    maker.samples(0, 0..3);
    maker.unsealed()
}

/// Files that are not written again: of an earlier version, or by codecs whose next version may
/// compress the same bytes differently.
const WRITTEN_ONCE: [&str; 3] = ["earlier-sealed-xxh3", "packed-codecs", "packed-numeric"];

/// Files of thousands of samples, whose dump is omitted: `verify` and `info` cover their frames.
const NOT_DUMPED: [&str; 3] = ["packed-codecs", "packed-numeric", "packed-many-groups"];

/// Returns a source without a schema.
pub fn opaque(id: u16) -> SourceInfo {
    SourceInfo {
        name: format!("opaque-{id}"),
        kind: SourceKind::Imported,
        period_ns: 0,
        root: String::new(),
        ..source(id, &[])
    }
}

/// Returns an endless sequence of numbers without a pattern.
fn noise() -> impl Iterator<Item = u64> {
    let mut state = 1_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^ state >> 31
    })
}

/// Returns samples of one opaque source, each with a counter and a hash: the hash becomes a raw
/// range.
pub fn samples_with_hashes(kind: ChecksumKind, samples: u64) -> Vec<u8> {
    let mut maker = SegmentBuilder::new(header(kind, vec![opaque(0)]));
    let mut noise = noise();
    for seq in 0..samples {
        let mut body = (1000 * seq).to_le_bytes().to_vec();
        body.extend(noise.by_ref().take(6).flat_map(u64::to_le_bytes));
        body.extend_from_slice(&(seq / 7).to_le_bytes());
        maker.sample_of(0, seq, &body);
    }
    maker.sealed()
}

/// Returns samples of more than 256 shapes, eight of each: nine sources with payloads of 0 to 29
/// bytes.
fn samples_of_many_shapes() -> Vec<u8> {
    let mut maker = SegmentBuilder::new(header(ChecksumKind::Xxh3, (0..9).map(opaque).collect()));
    for seq in 0..240_u64 {
        for source in 0..9 {
            maker.sample_of(source, seq, &vec![b'a'; seq as usize % 30]);
        }
    }
    maker.sealed()
}

/// Returns samples of columns that the numeric codec makes smaller in each of its ways: decimals of
/// both lengths, floats of few bits, multiples, a skewed distribution, and walks of first and
/// second order.
pub fn numeric_samples(kind: ChecksumKind, samples: u64) -> Vec<u8> {
    let mut maker = SegmentBuilder::new(header(kind, vec![opaque(0)]));
    let mut noise = noise();
    let (mut walk, mut speed, mut place) = (1_u64 << 40, 1_u64 << 30, 1_u64 << 50);
    for seq in 0..samples {
        let mut next = || noise.next().unwrap();
        walk = walk.wrapping_add(next() >> 44);
        speed = speed.wrapping_add(next() >> 50).wrapping_sub(1 << 13);
        place = place.wrapping_add(speed);
        let decimal = f64::from((next() >> 48) as u32 % 10_000) / 100.0;
        let short = ((next() >> 50) as f32 * 0.1).to_bits();
        let quantized = f64::from((next() >> 40) as f32 / 3.0);
        let skew = next() % 40;
        let words = [
            decimal.to_bits(),
            u64::from(short) | 7 << 32,
            quantized.to_bits(),
            (next() >> 44) * 1000 + 7,
            next() >> (20 + skew),
            walk,
            place,
            (f64::from((next() % 90) as u32) * 305e-6 - 1.25).to_bits(),
        ];
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        maker.sample_of(0, seq, &body);
    }
    maker.sealed()
}

/// Returns samples of one described source and of `opaque` sources with every kind of field.
pub fn many_samples(kind: ChecksumKind, others: u16, samples: u64) -> Vec<u8> {
    let schema = fixture("event.bfbs");
    let sources = std::iter::once(source(0, &schema)).chain((1..=others).map(opaque)).collect();
    let mut maker = SegmentBuilder::new(header(kind, sources));
    let mut noise = 1_u64;
    for seq in 0..samples {
        maker.samples(0, seq..seq + 1);
        for source in 1..=others {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let few = f64::from((noise >> 61) as u32).sqrt();
            let decimal = f64::from((noise >> 48) as u32 % 10_000) / 100.0;
            let text = format!("request {:016x} took {:5} us ", noise.rotate_left(17), noise >> 50);
            let words = [seq * 1000, noise, few.to_bits(), decimal.to_bits()];
            let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            body.extend_from_slice(text.as_bytes());
            maker.sample_of(source, seq, &body);
        }
    }
    maker.sealed()
}

/// Returns options for all sources.
pub fn way(layout: Layout, codec: Codec) -> SourceCompression {
    SourceCompression { general: CompressionOptions { layout, codec }, sources: Vec::new() }
}

/// Rewrites a segment as blocks: the header, the frames after it in `middle` blocks, footer and
/// trailer.
pub fn compressed(raw: &[u8], ways: SourceCompression, middle: usize) -> Vec<u8> {
    let seen = read_contents(raw).unwrap();
    let footer = reader(&MemoryFile::of(raw)).unwrap().footer().unwrap().clone();
    let content = &seen.frames[1..seen.frames.len() - 2];
    let mut runs = vec![seen.frames[0].clone()];
    runs.extend(
        content.chunks(content.len().div_ceil(middle)).map(|run| run[0].start..run.last().unwrap().end),
    );
    runs.push(usize::try_from(footer.bytes).unwrap()..raw.len());
    let mut writer = CompressedWriter::begin(Vec::new(), &footer, ways.features()).unwrap();
    let mut encoder = BlockEncoder::new(ways);
    for source in footer.header.sources.iter().filter(|source| !source.is_opaque()) {
        encoder.set_schema(source.id, &source.root, &source.schema);
    }
    for run in runs {
        let mut payload = Vec::new();
        let first = &raw[..seen.frames[0].end];
        encoder
            .append_last(&raw[run.clone()], run.start as u64, footer.header.checksum, first, &mut payload)
            .unwrap();
        writer.append_block(&payload, encoder.features(), encoder.sizes()).unwrap();
    }
    writer.finish().unwrap().0
}

/// Returns a segment with every layout, encoding and codec.
fn compressed_by_codecs() -> Vec<u8> {
    let way = |layout, codec| CompressionOptions { layout, codec };
    let sources = vec![
        (1, way(Layout::Columnar, Codec::Zstd(1))),
        (2, way(Layout::Columnar, Codec::Brotli(5))),
        (3, way(Layout::Row, Codec::Lz4)),
        (4, way(Layout::Columnar, Codec::Snappy)),
        (5, way(Layout::Row, Codec::Zstd(19))),
    ];
    let ways = SourceCompression { general: CompressionOptions::default(), sources };
    compressed(&many_samples(ChecksumKind::Xxh3, 5, 600), ways, 1)
}

/// Returns an offset within the last block of a compressed file, which has footer and trailer.
fn within_last_block(bytes: &[u8]) -> usize {
    let blocks = reader(&MemoryFile::of(bytes)).unwrap().compressed().unwrap().blocks();
    let last = blocks.last().unwrap();
    usize::try_from(last.offset).unwrap() + last.bytes as usize / 2
}

/// Returns every file with its name.
fn files() -> Vec<(String, Vec<u8>)> {
    let schema = fixture("event.bfbs");
    let kind = ChecksumKind::Xxh3;
    let sealed = every_frame_kind(kind, &schema).sealed();
    let unsealed = every_frame_kind(kind, &schema).unsealed();
    let seen = read_contents(&sealed).unwrap();
    let sample = seen.kinds.iter().rposition(|kind| *kind == FrameKind::Telemetry).unwrap();
    let sample = seen.frames[sample - 2].clone();
    let changed = |at: usize, flip: u8| {
        let mut bytes = sealed.clone();
        bytes[at] ^= flip;
        bytes
    };
    let mut zeroed = sealed.clone();
    zeroed[sample.clone()].fill(0);
    let removed = [&sealed[..sample.start], &sealed[sample.end..]].concat();
    let recovered = {
        let maker = every_frame_kind(kind, &schema);
        maker.writer.seal_recovered().unwrap().publish(&*maker.storage).unwrap();
        maker.storage.only_file()
    };
    let holding = {
        let mut maker = SegmentBuilder::new(header(kind, vec![source(0, &schema)]));
        maker.samples(0, 0..1);
        maker.sample_of(0, 1, &short(kind));
        maker.samples(0, 2..3);
        maker.sealed()
    };
    let imported = {
        let described = SourceInfo { kind: SourceKind::Imported, period_ns: 0, ..source(0, &schema) };
        let nothing = SourceInfo { root: String::new(), schema: Vec::new(), ..described.clone() };
        let opaque = SourceInfo { id: 1, name: "opaque".into(), ..nothing };
        let mut maker = SegmentBuilder::new(header(kind, vec![described, opaque]));
        maker.samples(0, 0..1);
        maker.sample_of(1, 0, b"bytes that nobody described");
        maker.sample_of(1, 1, b"");
        maker.samples(0, 1..2);
        maker.sealed()
    };
    let copied_header = {
        let form = SegmentOptions { copies_header: true, ..SegmentOptions::default() };
        let mut maker = SegmentBuilder::with_options(header(kind, vec![source(0, &schema)]), form);
        maker.samples(0, 0..2);
        maker.writer.append_index(0).unwrap();
        maker.samples(0, 2..4);
        let mut bytes = maker.unsealed();
        bytes[100] ^= 0x10;
        bytes
    };
    let in_blocks = |layout| compressed(&many_samples(kind, 1, 12), way(layout, Codec::None), 1);
    let columns = |raw: &[u8], middle| compressed(raw, way(Layout::Columnar, Codec::None), middle);
    let columnar = in_blocks(Layout::Columnar);
    let mut files: Vec<(String, Vec<u8>)> = ChecksumKind::ALL
        .iter()
        .map(|kind| (format!("sealed-{kind}"), every_frame_kind(*kind, &schema).sealed()))
        .collect();
    for (name, bytes) in [
        ("compatible-bit", with_header(&short(kind), kind, SegmentHeader::VT_COMPATIBLE, &[0x10])),
        ("copied-header", copied_header),
        ("damaged-payload", changed(sample.end - 9, 0x04)),
        ("future-version", with_header(&short(kind), kind, SegmentHeader::VT_VERSION, &[2, 0])),
        ("holding-a-segment", holding),
        ("imported-and-opaque", imported),
        ("incompatible-bit", with_header(&short(kind), kind, SegmentHeader::VT_INCOMPATIBLE, &[0x20])),
        ("packed-columnar", columnar.clone()),
        ("packed-many-groups", columns(&samples_of_many_shapes(), 1)),
        ("packed-ranges", columns(&samples_with_hashes(kind, 40), 1)),
        ("packed-row", in_blocks(Layout::Row)),
        ("packed-several-blocks", columns(&sealed, 5)),
        ("packed-torn", columnar[..within_last_block(&columnar)].to_vec()),
        ("recovered", recovered),
        ("removed-frame", removed),
        ("repaired-length", changed(sample.start + 1, 0x08)),
        ("torn", unsealed[..unsealed.len() - 20].to_vec()),
        ("unsealed", unsealed),
        ("zeroed-frame", zeroed),
    ] {
        files.push((name.to_owned(), bytes));
    }
    for kind in [ChecksumKind::None, ChecksumKind::Crc16, ChecksumKind::Crc32] {
        files.push((format!("packed-of-{kind}"), columns(&many_samples(kind, 1, 24), 2)));
    }
    files.sort();
    files
}

/// Returns the output of the verbs for one file in the current directory, so that the text has no
/// paths.
fn verb_output(name: &str, bytes: &[u8], verbs: &[&[&str]]) -> String {
    let rig = Rig::new();
    let file = format!("{name}.bin");
    rig.write(&file, bytes);
    let mut text = String::new();
    for args in verbs {
        let called = rig.call(&[*args, &[&file]].concat());
        let status = called.status.unwrap();
        writeln!(text, "$ flatcap {} {file}", args.join(" ")).unwrap();
        writeln!(text, "{}{}status {status}\n", called.text(), called.err).unwrap();
    }
    // The bytes that a file occupies depend on the file system.
    let mut normal = String::new();
    for (at, piece) in text.split("\"bytes\":").enumerate() {
        let piece =
            if at == 0 { piece } else { piece.trim_start_matches(|digit: char| digit.is_ascii_digit()) };
        normal += if at == 0 { "" } else { "\"bytes\":\"*\"" };
        normal += piece;
    }
    normal
}

/// The verbs whose output is compared.
const VERBS: [&[&str]; 3] = [&["verify", "--json"], &["info", "--json"], &["dump", "--format", "jsonl"]];

fn is_write_requested() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "write")
}

/// Compares a file with the golden one, or writes it if requested.
fn compare_or_write(name: &str, now: &[u8]) -> Option<String> {
    let path = folder().join(name);
    if is_write_requested() {
        std::fs::write(&path, now).unwrap();
        return None;
    }
    match std::fs::read(&path) {
        Ok(golden) if golden == now => None,
        Ok(golden) if Path::new(name).extension() == Some(OsStr::new("txt")) => {
            let (golden, now) = (String::from_utf8_lossy(&golden), String::from_utf8_lossy(now));
            let differs = golden.lines().zip(now.lines()).find(|(golden, now)| golden != now);
            Some(format!("{name} differs: {differs:#?}"))
        }
        Ok(golden) => {
            let at = golden.iter().zip(now).position(|(golden, now)| golden != now);
            Some(format!("{name} differs, first at {at:?}; {} and {} bytes", golden.len(), now.len()))
        }
        Err(error) => Some(format!("{name}: {error}")),
    }
}

// Proves that the writer still produces each golden file, byte for byte.
#[test]
fn the_corpus_is_written_again() {
    let wrong: Vec<String> =
        files().iter().filter_map(|(name, bytes)| compare_or_write(&format!("{name}.bin"), bytes)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// Proves that each golden file is read as before. Method: compares the output of the verbs with the
// text next to the file, for every file of the folder.
#[test]
fn the_corpus_is_read_as_before() {
    let mut wrong = Vec::new();
    let mut known = BTreeSet::from(["README.md".to_owned()]);
    let mut all = files();
    let numeric =
        compressed(&numeric_samples(ChecksumKind::Xxh3, 2000), way(Layout::Columnar, Codec::None), 1);
    let once = [Vec::new(), compressed_by_codecs(), numeric];
    all.extend(WRITTEN_ONCE.iter().map(|name| (*name).to_owned()).zip(once));
    for (name, made) in all {
        let path = folder().join(format!("{name}.bin"));
        if is_write_requested() && !path.exists() {
            std::fs::write(&path, &made).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap_or(made);
        let verbs = if NOT_DUMPED.contains(&name.as_str()) { &VERBS[..2] } else { &VERBS[..] };
        wrong.extend(compare_or_write(&format!("{name}.txt"), verb_output(&name, &bytes, verbs).as_bytes()));
        known.extend([format!("{name}.bin"), format!("{name}.txt")]);
    }
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !known.contains(&name) {
            wrong.push(format!("{name} is not known"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// Proves that blocks of all codecs, once written, still decompress to the same frames.
#[test]
fn old_compressed_segments_decompress() {
    let kind = ChecksumKind::Xxh3;
    let files =
        [("packed-codecs", many_samples(kind, 5, 600)), ("packed-numeric", numeric_samples(kind, 2000))];
    for (name, raw) in files {
        let bytes = std::fs::read(folder().join(format!("{name}.bin"))).unwrap();
        assert!(bytes.len() < raw.len() / 2, "{name}: {} of {}", bytes.len(), raw.len());
        let reader = reader(&MemoryFile::of(bytes)).unwrap();
        let packed = reader.compressed().unwrap();
        let mut unpacked = vec![0; raw.len()];
        assert_eq!(
            (packed.raw_bytes(), packed.read_all_at(&mut unpacked, 0).unwrap()),
            (raw.len() as u64, raw.len())
        );
        assert!(unpacked == raw, "{name}");
    }
}

// Proves that compression and `compress --undo` give the same bytes back, for every golden raw file
// that is sealed and intact, in rows and in columns.
#[test]
fn undone_compression_gives_the_raw_file_back() {
    let mut restored = 0;
    for (name, bytes) in files() {
        let intact = verify_bytes(&bytes).is_ok_and(|report| report.is_intact());
        let is_raw = reader(&MemoryFile::of(bytes.clone())).is_ok_and(|reader| reader.compressed().is_none());
        if !intact || !is_raw {
            continue;
        }
        for layout in [Layout::Row, Layout::Columnar] {
            let rig = Rig::new();
            let file = "0000000007-20231114T221320Z-0123456789abcdef.bin";
            let packed = compressed(&bytes, way(layout, Codec::Zstd(1)), 3);
            rig.write(file, &packed);
            let called = rig.call(&["compress", "--undo", "--json", file]);
            assert_eq!(called.status, Some(0), "{name}: {}{}", called.text(), called.err);
            assert!(called.text().contains("\"outcome\":\"restored\""), "{name}: {}", called.text());
            assert!(std::fs::read(rig.path(file)).unwrap() == bytes, "{name}");
            restored += 1;
        }
    }
    assert!(restored >= 14, "{restored}");
}

/// Returns the `incompatible` bits of a compressed file's header and footer.
pub fn feature_bits(bytes: &[u8]) -> (u64, u64) {
    let kind = ChecksumKind::Xxh3;
    let payload = |at: usize| {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        &bytes[at + kind.frame_bytes(0)..at + kind.frame_bytes(length)]
    };
    let header = flatbuffers::root::<SegmentHeader<'_>>(payload(0)).unwrap();
    let trailer = bytes.len() - kind.frame_bytes(Trailer::PAYLOAD_BYTES);
    let trailer = Trailer::decode(payload(trailer)).unwrap();
    let footer = payload(usize::try_from(trailer.footer_offset).unwrap());
    let footer = flatbuffers::root::<flatcap_format::schema::segment::Footer<'_>>(footer).unwrap();
    (header.incompatible(), footer.header().incompatible())
}

// Proves that in a compressed file the header has the feature bits of its options, and the footer
// exactly the bits of the features that it uses.
#[test]
fn feature_bits_are_those_of_the_reader_levels() {
    let kind = ChecksumKind::Xxh3;
    let (plain, numeric) = (many_samples(kind, 0, 24), numeric_samples(kind, 700));
    let row = |codec| way(Layout::Row, codec);
    let columns = |codec| way(Layout::Columnar, codec);
    for (raw, ways, expected) in [
        (&plain, row(Codec::None), (1, 1)),
        (&plain, row(Codec::Zstd(3)), (1, 1)),
        (&plain, row(Codec::Lz4), (3, 3)),
        (&plain, row(Codec::Snappy), (5, 5)),
        (&plain, row(Codec::Brotli(1)), (5, 5)),
        (&plain, columns(Codec::None), (7, 3)),
        (&plain, columns(Codec::Zstd(1)), (7, 3)),
        (&plain, columns(Codec::Lz4), (7, 3)),
        (&numeric, columns(Codec::Zstd(1)), (7, 7)),
        (&numeric, columns(Codec::Snappy), (7, 7)),
    ] {
        assert_eq!(feature_bits(&compressed(raw, ways.clone(), 2)), expected, "{ways:?}");
    }
    let sources = vec![(1, CompressionOptions { layout: Layout::Row, codec: Codec::Brotli(1) })];
    let ways = SourceCompression { sources, ..row(Codec::None) };
    assert_eq!(feature_bits(&compressed(&plain, ways, 1)), (5, 1), "no samples of the other source");
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

// Proves that the known answers of docs/FORMAT.md agree with the code: they are parsed and
// recomputed, and the frames are read back.
#[test]
fn known_answers() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/FORMAT.md")).unwrap();
    let section = document.split("\n## 13. Known answers\n").nth(1).unwrap();
    let block = section.split("```").nth(1).unwrap();
    let mut answers: Vec<(String, String)> = Vec::new();
    for line in block.lines().skip(1) {
        match line.strip_prefix("    ") {
            Some(more) => answers.last_mut().unwrap().1 += more.trim(),
            None if line.is_empty() => {}
            None => answers.push((line.trim_end_matches(':').to_owned(), String::new())),
        }
    }
    let trailer = Trailer { footer_offset: 1_000, footer_length: 200, segment: NUMBER, run_id: RUN };
    let payloads = [
        ("Gap", gap(3, 10, 5).encode()),
        ("ClockSync", sync(5_000).encode()),
        ("Marker", marker("abc").encode()),
        ("Trailer", trailer.encode()),
        ("unknown", unknown()),
    ];
    assert_eq!(Gap::decode(&payloads[0].1), Some(gap(3, 10, 5)));
    assert_eq!(ClockSync::decode(&payloads[1].1), Some(sync(5_000)));
    assert_eq!(Marker::decode(&payloads[2].1), Some(marker("abc")));
    assert_eq!(Trailer::decode(&payloads[3].1), Some(trailer));
    let mut expected = Vec::new();
    let mut heads = Vec::new();
    for (name, payload) in &payloads {
        expected.push((format!("{name}, xxh3"), hex(&framed(ChecksumKind::Xxh3, payload))));
        heads.extend_from_slice(ChecksumKind::Xxh3.header(payload).unwrap().as_bytes());
    }
    // The digest, by an independent XXH3.
    let digest = |previous: u64, heads: &[u8]| {
        xxhash_rust::xxh3::xxh3_64(&[&previous.to_le_bytes()[..], heads].concat())
    };
    let first = digest(0, &heads);
    let second = digest(first, &[]);
    expected.push(("digest of the first interval, these five frames in it".into(), format!("{first:016x}")));
    expected.push(("digest of a second interval without frames".into(), format!("{second:016x}")));
    if answers != expected {
        let mut lines = String::new();
        for (name, answer) in &expected {
            writeln!(lines, "{name}:").unwrap();
            for chunk in answer.as_bytes().chunks(104) {
                writeln!(lines, "    {}", std::str::from_utf8(chunk).unwrap()).unwrap();
            }
        }
        panic!("the document should say:\n{lines}");
    }

    // The same digest by the writer, recomputed by hand for each interval of a segment.
    let bytes = every_frame_kind(ChecksumKind::Xxh3, &[]).sealed();
    let seen = read_contents(&bytes).unwrap();
    let reader = SegmentReader::over(Path::new("x"), crate::crafted::MemoryFile::of(bytes.clone())).unwrap();
    let mut previous = 0;
    for entry in &reader.footer().unwrap().index {
        let within =
            seen.frames.iter().filter(|place| (entry.offset..entry.end()).contains(&(place.start as u64)));
        let heads: Vec<u8> = within.flat_map(|place| bytes[place.start..place.start + 12].to_vec()).collect();
        previous = digest(previous, &heads);
        assert_eq!(entry.digest, previous);
    }
}
