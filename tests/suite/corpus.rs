//! The golden corpus (tests/corpus/README.md): segments as they were once written, and what the verbs say of them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use flatcap::block::{Codec, Encoder, Layout, Way, Ways};
use flatcap::os::storage::ReadAt;
use flatcap::schema::segment::SegmentHeader;
use flatcap::segment::{
    ClockSync, Form, FrameKind, Gap, Marker, PackedWriter, SegmentReader, SourceInfo, SourceKind, Trailer,
};
use flatcap::stream::{ChecksumKind, SliceFramer};

use crate::crafted::{
    Maker, Memory, NUMBER, RUN, begun, fixture, framed, gap, header, marker, reader, see, source, sync,
    unknown,
};
use crate::rig::Rig;

/// Set to `write`, files are written anew instead of compared.
const VARIABLE: &str = "FLATCAP_CORPUS";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// Sets a number in the header's table, and its frame's checksum.
fn with_header(bytes: &[u8], kind: ChecksumKind, slot: u16, value: &[u8]) -> Vec<u8> {
    let end = see(bytes).unwrap().places[0].end;
    let mut payload = bytes[kind.frame_bytes(0)..end].to_vec();
    let table = flatbuffers::root::<SegmentHeader<'_>>(&payload).unwrap()._tab;
    let at = table.loc() + usize::from(table.vtable().get(slot));
    payload[at..at + value.len()].copy_from_slice(value);
    [&framed(kind, &payload), &bytes[end..]].concat()
}

/// A few samples without an index, so that nothing but the header's own checksum speaks of the header.
fn short(kind: ChecksumKind) -> Vec<u8> {
    let mut maker = Maker::new(header(kind, vec![source(0, &fixture("event.bfbs"))]));
    maker.samples(0, 0..3);
    maker.unsealed()
}

/// Files that this program wrote once and is not held to write again: of an earlier version, or by codecs whose next version may
/// pack the same bytes otherwise.
const WRITTEN_ONCE: [&str; 2] = ["earlier-sealed-xxh3", "packed-codecs"];

/// A described source, and opaque ones of every kind of field: so many samples of each.
fn rows(opaque: u16, samples: u64) -> Vec<u8> {
    let schema = fixture("event.bfbs");
    let nothing = |id: u16| SourceInfo {
        id,
        name: format!("opaque-{id}"),
        kind: SourceKind::Imported,
        period_ns: 0,
        root: String::new(),
        schema: Vec::new(),
        ..source(id, &schema)
    };
    let sources = std::iter::once(source(0, &schema)).chain((1..=opaque).map(nothing)).collect();
    let mut maker = Maker::new(header(ChecksumKind::Xxh3, sources));
    let mut noise = 1_u64;
    for seq in 0..samples {
        maker.samples(0, seq..seq + 1);
        for source in 1..=opaque {
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

/// A segment as blocks: the header, what is behind it, footer and trailer.
fn packed(raw: &[u8], ways: Ways) -> Vec<u8> {
    let seen = see(raw).unwrap();
    let footer = reader(&Memory::of(raw)).unwrap().footer().unwrap().clone();
    let content = seen.places[0].end..usize::try_from(footer.bytes).unwrap();
    let mut writer = PackedWriter::begin(Vec::new(), &footer).unwrap();
    let mut encoder = Encoder::new(ways);
    for source in footer.header.sources.iter().filter(|source| !source.is_opaque()) {
        encoder.describe(source.id, &source.root, &source.schema);
    }
    for run in [0..content.start, content.clone(), content.end..raw.len()] {
        let payload =
            encoder.encode(&raw[run.clone()], run.start as u64, ChecksumKind::Xxh3).unwrap().to_vec();
        writer.block(&payload, encoder.sizes()).unwrap();
    }
    writer.finish().unwrap().0
}

/// Every layout, coding and codec.
fn packed_by_codecs() -> Vec<u8> {
    let way = |layout, codec| Way { layout, codec };
    let sources = vec![
        (1, way(Layout::Columnar, Codec::Zstd(1))),
        (2, way(Layout::Columnar, Codec::Brotli(5))),
        (3, way(Layout::Row, Codec::Lz4)),
        (4, way(Layout::Columnar, Codec::Snappy)),
        (5, way(Layout::Row, Codec::Zstd(19))),
    ];
    packed(&rows(5, 600), Ways { general: Way::default(), sources })
}

/// Every file by its name.
fn files() -> Vec<(String, Vec<u8>)> {
    let schema = fixture("event.bfbs");
    let kind = ChecksumKind::Xxh3;
    let sealed = begun(kind, &schema).sealed();
    let unsealed = begun(kind, &schema).unsealed();
    let seen = see(&sealed).unwrap();
    let sample = seen.kinds.iter().rposition(|kind| *kind == FrameKind::Telemetry).unwrap();
    let sample = seen.places[sample - 2].clone();
    let changed = |at: usize, flip: u8| {
        let mut bytes = sealed.clone();
        bytes[at] ^= flip;
        bytes
    };
    let mut zeroed = sealed.clone();
    zeroed[sample.clone()].fill(0);
    let removed = [&sealed[..sample.start], &sealed[sample.end..]].concat();
    let recovered = {
        let maker = begun(kind, &schema);
        maker.writer.seal_recovered().unwrap().publish(&*maker.shelf).unwrap();
        maker.shelf.only_file()
    };
    let holding = {
        let mut maker = Maker::new(header(kind, vec![source(0, &schema)]));
        maker.samples(0, 0..1);
        maker.sample_of(0, 1, &short(kind));
        maker.samples(0, 2..3);
        maker.sealed()
    };
    let imported = {
        let described = SourceInfo { kind: SourceKind::Imported, period_ns: 0, ..source(0, &schema) };
        let nothing = SourceInfo { root: String::new(), schema: Vec::new(), ..described.clone() };
        let opaque = SourceInfo { id: 1, name: "opaque".into(), ..nothing };
        let mut maker = Maker::new(header(kind, vec![described, opaque]));
        maker.samples(0, 0..1);
        maker.sample_of(1, 0, b"bytes that nobody described");
        maker.sample_of(1, 1, b"");
        maker.samples(0, 1..2);
        maker.sealed()
    };
    let copied_header = {
        let form = Form { copies_header: true, ..Form::default() };
        let mut maker = Maker::in_form(header(kind, vec![source(0, &schema)]), form);
        maker.samples(0, 0..2);
        maker.writer.append_index(0).unwrap();
        maker.samples(0, 2..4);
        let mut bytes = maker.unsealed();
        bytes[100] ^= 0x10;
        bytes
    };
    let in_blocks = |layout| {
        packed(&rows(1, 12), Ways { general: Way { layout, codec: Codec::None }, sources: Vec::new() })
    };
    let columnar = in_blocks(Layout::Columnar);
    let mut files: Vec<(String, Vec<u8>)> = ChecksumKind::ALL
        .iter()
        .map(|kind| (format!("sealed-{kind}"), begun(*kind, &schema).sealed()))
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
        ("packed-row", in_blocks(Layout::Row)),
        ("packed-torn", columnar[..columnar.len() - 2000].to_vec()),
        ("recovered", recovered),
        ("removed-frame", removed),
        ("repaired-length", changed(sample.start + 1, 0x08)),
        ("torn", unsealed[..unsealed.len() - 20].to_vec()),
        ("unsealed", unsealed),
        ("zeroed-frame", zeroed),
    ] {
        files.push((name.to_owned(), bytes));
    }
    files.sort();
    files
}

/// What the verbs say of one file: it lies in the current directory, so that no path is in the text.
fn said(name: &str, bytes: &[u8], verbs: &[&[&str]]) -> String {
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
    // What a file occupies is the file system's own.
    let mut normal = String::new();
    for (at, piece) in text.split("\"bytes\":").enumerate() {
        let piece =
            if at == 0 { piece } else { piece.trim_start_matches(|digit: char| digit.is_ascii_digit()) };
        normal += if at == 0 { "" } else { "\"bytes\":\"*\"" };
        normal += piece;
    }
    normal
}

/// What tells of a file.
const VERBS: [&[&str]; 3] = [&["verify", "--json"], &["info", "--json"], &["dump", "--format", "jsonl"]];

fn is_written() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "write")
}

/// Compares, or writes where that was asked for.
fn same(name: &str, now: &[u8]) -> Option<String> {
    let path = folder().join(name);
    if is_written() {
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

// Goal: what was once written is written again, byte for byte. Method: each golden file is made again by the writer.
#[test]
fn the_corpus_is_written_again() {
    let wrong: Vec<String> =
        files().iter().filter_map(|(name, bytes)| same(&format!("{name}.bin"), bytes)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// Goal: what was once written is read as it always was. Method: the verbs on each golden file, against the text beside
// it; no file is there that is not read.
#[test]
fn the_corpus_is_read_as_ever() {
    let mut wrong = Vec::new();
    let mut known = BTreeSet::from(["README.md".to_owned()]);
    let mut all = files();
    all.extend(WRITTEN_ONCE.iter().map(|name| ((*name).to_owned(), packed_by_codecs())));
    for (name, made) in all {
        let path = folder().join(format!("{name}.bin"));
        if name == "packed-codecs" && is_written() && !path.exists() {
            std::fs::write(&path, &made).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap_or(made);
        // Thousands of samples that are no text are told by their frames.
        let verbs = if name == "packed-codecs" { &VERBS[..2] } else { &VERBS[..] };
        wrong.extend(same(&format!("{name}.txt"), said(&name, &bytes, verbs).as_bytes()));
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

// Goal: what codecs once packed comes out as it went in. Method: the golden file of all of them against the frames that were packed then.
#[test]
fn what_was_once_packed_unpacks() {
    let raw = rows(5, 600);
    let bytes = std::fs::read(folder().join("packed-codecs.bin")).unwrap();
    assert!(bytes.len() < raw.len() / 2, "{} of {}", bytes.len(), raw.len());
    let reader = reader(&Memory::of(bytes)).unwrap();
    let packed = reader.packed().unwrap();
    let mut unpacked = vec![0; raw.len()];
    assert_eq!(
        (packed.raw_bytes(), packed.read_all_at(&mut unpacked, 0).unwrap()),
        (raw.len() as u64, raw.len())
    );
    assert!(unpacked == raw);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

// Goal: the known answers in the document are those of the code. Method: read them out of docs/FORMAT.md, make each
// again, and read the frames back.
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

    // The same digest by the writer: a segment whose second interval holds known frames, walked by hand.
    let bytes = begun(ChecksumKind::Xxh3, &[]).sealed();
    let seen = see(&bytes).unwrap();
    let reader = SegmentReader::over(Path::new("x"), crate::crafted::Memory::of(bytes.clone())).unwrap();
    let mut previous = 0;
    for entry in &reader.footer().unwrap().index {
        let within =
            seen.places.iter().filter(|place| (entry.offset..entry.end()).contains(&(place.start as u64)));
        let heads: Vec<u8> = within.flat_map(|place| bytes[place.start..place.start + 12].to_vec()).collect();
        previous = digest(previous, &heads);
        assert_eq!(entry.digest, previous);
    }
}
