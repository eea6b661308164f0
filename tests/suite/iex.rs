//! Import of captures of IEX's feeds: every message, field by field, is compared with a short
//! parser that shares no code with the importer.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flatcap_format::segment::{Advance, FrameKind, list};
use flatcap_schemas::market::iex::Message;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::rig::{CallResult, Rig};

#[path = "../generators/iex.rs"]
pub mod generator;

use generator::{Feed, File, Packet, Shape, Wrapping};

/// A message found by the parser.
#[derive(Debug, PartialEq, Eq)]
struct CapturedMessage {
    wall_ns: i64,
    session: u32,
    sequence: u64,
    send_ns: i64,
    /// Number of earlier begins of the sequence at 1.
    epoch: u32,
    /// The message as the feed sent it.
    message: Vec<u8>,
}

/// Parses a little-endian pcap in microseconds of Ethernet, IPv4 without options, UDP. Also returns
/// the offset of a cut end.
fn parse_capture(bytes: &[u8]) -> (Vec<CapturedMessage>, Option<usize>) {
    let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (mut seen, mut at, mut epoch, mut last) = (Vec::new(), 24, 0, 0);
    while at + 16 <= bytes.len() {
        let end = at + 16 + u32_at(at + 8) as usize;
        if end > bytes.len() {
            return (seen, Some(at));
        }
        let wall_ns = i64::from(u32_at(at)) * 1_000_000_000 + i64::from(u32_at(at + 4)) * 1000;
        let segment = at + 16 + 14 + 20 + 8;
        let (count, first) = (u16_at(segment + 14), u64_at(segment + 24));
        let mut message = segment + 40;
        for sequence in first..first + u64::from(count) {
            epoch += u32::from(sequence <= last);
            last = sequence;
            let length = usize::from(u16_at(message));
            seen.push(CapturedMessage {
                wall_ns,
                session: u32_at(segment + 8),
                sequence,
                send_ns: u64_at(segment + 32).cast_signed(),
                epoch,
                message: bytes[message + 2..message + 2 + length].to_vec(),
            });
            message += 2 + length;
        }
        at = end;
    }
    (seen, (at != bytes.len()).then_some(at))
}

/// Returns text as the feed sends it, padded with spaces.
fn spaced<const LENGTH: usize>(text: flatbuffers::Array<'_, u8, LENGTH>) -> Vec<u8> {
    text.iter().map(|byte| if byte == 0 { b' ' } else { byte }).collect()
}

/// Rebuilds the message as the feed sent it from the fields of a payload.
fn rebuilt_message(message: &Message<'_>) -> Vec<u8> {
    let time = message.header().timestamp_ns().to_le_bytes();
    let bytes = |kind: u8, code: u8, fields: &[&[u8]]| [&[kind, code][..], &time, &fields.concat()].concat();
    if let Some(of) = message.price_level() {
        let (symbol, size, price) = (spaced(of.symbol()), of.size().to_le_bytes(), of.price().to_le_bytes());
        return bytes(of.side().0, of.flags().bits(), &[&symbol, &size, &price]);
    }
    if let Some((kind, of)) =
        message.trade().map(|of| (b'T', of)).or_else(|| message.trade_break().map(|of| (b'B', of)))
    {
        let (size, price, id) =
            (of.size().to_le_bytes(), of.price().to_le_bytes(), of.trade_id().to_le_bytes());
        return bytes(kind, of.conditions().bits(), &[&spaced(of.symbol()), &size, &price, &id]);
    }
    if let Some(of) = message.quote() {
        let (bid, ask) = (of.bid_price().to_le_bytes(), of.ask_price().to_le_bytes());
        let (bids, asks) = (of.bid_size().to_le_bytes(), of.ask_size().to_le_bytes());
        return bytes(b'Q', of.flags().bits(), &[&spaced(of.symbol()), &bids, &bid, &ask, &asks]);
    }
    if let Some(of) = message.trading_status() {
        return bytes(b'H', of.status().0, &[&spaced(of.symbol()), &spaced(of.reason())]);
    }
    if let Some(of) = message.operational_halt() {
        return bytes(b'O', of.status().0, &[&spaced(of.symbol())]);
    }
    if let Some(of) = message.short_sale_price_test() {
        return bytes(b'P', of.in_effect(), &[&spaced(of.symbol()), &[of.detail().0]]);
    }
    if let Some(of) = message.system_event() {
        return bytes(b'S', of.event().0, &[]);
    }
    if let Some(of) = message.security_event() {
        return bytes(b'E', of.event().0, &[&spaced(of.symbol())]);
    }
    if let Some(of) = message.retail_liquidity() {
        return bytes(b'I', of.indicator().0, &[&spaced(of.symbol())]);
    }
    if let Some(of) = message.security_directory() {
        let (lot, close) = (of.round_lot().to_le_bytes(), of.adjusted_close().to_le_bytes());
        return bytes(b'D', of.flags().bits(), &[&spaced(of.symbol()), &lot, &close, &[of.tier().0]]);
    }
    if let Some(of) = message.official_price() {
        return bytes(b'X', of.type_().0, &[&spaced(of.symbol()), &of.price().to_le_bytes()]);
    }
    let of = message.auction().expect("a known kind");
    let fields: [&[u8]; 11] = [
        &spaced(of.symbol()),
        &of.paired_shares().to_le_bytes(),
        &of.reference_price().to_le_bytes(),
        &of.indicative_clearing_price().to_le_bytes(),
        &of.imbalance_shares().to_le_bytes(),
        &[of.imbalance_side().0, of.extensions()],
        &of.scheduled_time().to_le_bytes(),
        &of.book_clearing_price().to_le_bytes(),
        &of.collar_reference_price().to_le_bytes(),
        &of.lower_collar().to_le_bytes(),
        &of.upper_collar().to_le_bytes(),
    ];
    bytes(b'A', of.type_().0, &fields)
}

/// Returns every message of the segments, in order, with its sequence number.
fn recorded(rig: &Rig) -> Vec<(u64, CapturedMessage)> {
    let mut all = Vec::new();
    for listing in list(&[rig.data()]).unwrap() {
        let mut reader = listing.open().unwrap().unwrap();
        while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
            let Some(sample) = reader.sample(at).filter(|_| at.kind == FrameKind::Telemetry) else {
                continue;
            };
            let message = flatbuffers::root::<Message<'_>>(sample.payload).unwrap();
            let header = message.header();
            assert_eq!(header.unknown_bytes(), 0);
            let seen = CapturedMessage {
                wall_ns: sample.wall_ns,
                session: header.session(),
                sequence: header.sequence(),
                send_ns: header.send_ns(),
                epoch: header.epoch(),
                message: rebuilt_message(&message),
            };
            all.push((sample.seq, seen));
        }
    }
    all
}

fn import(rig: &Rig, kind: &str, file: &Path) -> CallResult {
    rig.call(&["import", kind, file.to_str().unwrap(), "--data-dir", "flatcap-data", "--json"])
}

/// Imports a capture and compares every message with the parser. Returns the report.
fn assert_import_matches(kind: &str, name: &str, content: &[u8], plain: &[u8], status: i32) -> Value {
    let rig = Rig::new();
    let called = import(&rig, kind, &rig.write(name, content));
    assert_eq!(called.status, Some(status), "{}", called.err);
    let (seen, _) = parse_capture(plain);
    let recorded = recorded(&rig);
    assert_eq!(recorded.len(), seen.len());
    for (number, ((seq, one), other)) in recorded.iter().zip(&seen).enumerate() {
        assert_eq!((*seq, one), (number as u64, other));
    }
    let verdict = rig.verify();
    assert_eq!(verdict["intact"], true, "{verdict}");
    called.json()
}

fn kinds(seen: &[CapturedMessage]) -> BTreeMap<char, usize> {
    let mut kinds = BTreeMap::new();
    for one in seen {
        *kinds.entry(char::from(one.message[0])).or_default() += 1;
    }
    kinds
}

/// Returns the real capture, compressed and plain.
fn real() -> Option<(Vec<u8>, Vec<u8>)> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let folder = std::env::var_os("FLATCAP_SHARED_DATA").map_or_else(beside, PathBuf::from);
    let Ok(packed) = std::fs::read(folder.join("iex/DEEP10.pcap.gz")) else {
        println!("skipped: no iex/DEEP10.pcap.gz in {}", folder.display());
        return None;
    };
    let mut plain = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut plain).unwrap();
    Some((packed, plain))
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn generated_packets(feed: Feed, messages: usize) -> Vec<Packet> {
    generator::packets(&Shape::real(feed, messages, 11))
}

// Proves that a real capture is imported completely, that its restarts are epochs, and that its cut
// end is reported with offset and status 3. Method: an independent parser, counts by kind, eleven
// restarts.
#[test]
fn the_real_capture_is_imported_completely() {
    let Some((packed, plain)) = real() else { return };
    let report = assert_import_matches("iex-deep", "any-name", &packed, &plain, 3);
    let (seen, cut) = parse_capture(&plain);
    assert_eq!(report["sources"][0]["recorded"], seen.len());
    assert_eq!(report["sources"][0]["lost"], 0);
    assert_eq!(report["skipped"]["restarts of the feed's numbers"], 11);
    assert_eq!(seen.last().unwrap().epoch, 11);
    assert_eq!(report["flaws"].as_array().unwrap().len(), 1);
    assert_eq!(report["flaws"][0]["offset"], cut.unwrap());
    assert_eq!(report["input_bytes"], plain.len());
    let kinds = kinds(&seen);
    let known =
        [('5', 14_627), ('8', 12_941), ('B', 73), ('E', 59), ('H', 93_638), ('O', 93_638), ('P', 93_636)];
    for (kind, count) in known.into_iter().chain([('S', 44), ('T', 83_343)]) {
        assert_eq!(kinds[&kind], count, "{kind}");
    }
}

// Proves that generated captures of both feeds are imported completely, with every kind of message.
// Method: the generator against the independent parser; plain and compressed.
#[test]
fn generated_captures_are_imported_completely() {
    for (feed, kind) in [(Feed::Deep, "iex-deep"), (Feed::Tops, "iex-tops")] {
        let plain = generator::capture(&generated_packets(feed, 12_000), File::Pcap, Wrapping::default());
        let report = assert_import_matches(kind, "plain", &plain, &plain, 0);
        assert_eq!(report["skipped"]["restarts of the feed's numbers"], 11);
        let report = assert_import_matches(kind, "packed", &gzip(&plain), &plain, 0);
        assert_eq!(report["sources"][0]["name"], kind);
        let wanted = if feed == Feed::Deep { "58ABDEHIOPSTX" } else { "ABDHIOPQSTX" };
        assert_eq!(kinds(&parse_capture(&plain).0).keys().collect::<String>(), wanted);
    }
}

// Proves that the same feed is imported from every kind of capture file, link header and option.
#[test]
fn every_kind_of_capture_is_imported() {
    let packets = generated_packets(Feed::Deep, 600);
    let plain = generator::capture(&packets, File::Pcap, Wrapping::default());
    for file in File::ALL {
        for (vlan_tags, ipv6, option_words) in [(0, false, 0), (1, false, 2), (2, true, 0)] {
            let wrapping = Wrapping { vlan_tags, ipv6, option_words };
            let content = generator::capture(&packets, file, wrapping);
            assert_import_matches("iex-deep", "capture", &content, &plain, 0);
        }
    }
}

// Proves that messages missing from a capture become gaps of their size, and that several files
// continue each other. Method: a feed with lost packets, split into two files.
#[test]
fn holes_are_gaps() {
    let packets = generated_packets(Feed::Deep, 6000);
    let kept = generator::lose(&packets, 3, 30);
    let count = |packets: &[Packet]| packets.iter().map(|packet| u64::from(packet.count)).sum::<u64>();
    let (one, other) = kept.split_at(kept.len() / 2);
    let rig = Rig::new();
    let paths = [one, other].map(|half| generator::capture(half, File::Pcap, Wrapping::default()));
    rig.write("one", &paths[0]);
    rig.write("other", &paths[1]);
    let called = rig.call(&["import", "iex-deep", "one", "other", "--data-dir", "flatcap-data", "--json"]);
    assert_eq!(called.status, Some(0), "{}", called.err);
    let source = &called.json()["sources"][0];
    let lost = count(&packets) - count(&kept);
    assert!(lost > 0);
    assert_eq!((&source["recorded"], &source["lost"]), (&count(&kept).into(), &lost.into()));
    let verdict = rig.verify();
    assert_eq!(verdict["intact"], true, "{verdict}");
    let messages = recorded(&rig);
    assert_eq!(messages.len() as u64, count(&kept));
    let end = messages.last().unwrap().0 + 1;
    assert_eq!(end, count(&packets), "a number for each message sent");
}

// Proves that mistakes are reported and leave no segment: the wrong feed, a file that is not a
// capture, a missing file, a directory.
#[test]
fn mistakes_are_reported() {
    let rig = Rig::new();
    let plain = generator::capture(&generated_packets(Feed::Tops, 300), File::Pcap, Wrapping::default());
    let called = import(&rig, "iex-deep", &rig.write("tops", &plain));
    assert_eq!(called.status, Some(1), "{}", called.err);
    assert!(
        called.err.contains("no segment of DEEP 1.0") && called.err.contains("iex-tops"),
        "{}",
        called.err
    );
    assert!(rig.segments("bin").is_empty());
    let called = import(&rig, "iex-deep", &rig.write("text", "symbol,price\nAAPL,1\n"));
    assert_eq!(called.status, Some(1));
    assert!(called.err.contains("not a capture") && called.err.contains("text"), "{}", called.err);
    for wrong in [rig.path("missing"), rig.path(".")] {
        let called = import(&rig, "iex-deep", &wrong);
        assert_eq!(called.status, Some(1), "{}", called.err);
        called.assert_no_panic();
    }
}
