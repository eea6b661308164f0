//! Tests with captures that are intact, repeated, out of order or damaged.

use flatcap_format::testing::memory::MemoryStorage;
use flatcap_schemas::market::iex::{Message, TradingStatusCode};
use proptest::prelude::*;

use super::fuzzing::{capture, frames, import};
use super::generator::{self, File, Packet, Random, Shape, Wrapping, lose};
use super::*;

fn shape(messages: usize, seed: u64) -> Shape {
    Shape { epochs: 3, ..Shape::real(generator::Feed::Deep, messages, seed) }
}

/// Returns the epoch and number of each recorded message, the number of lost messages, and the
/// report.
fn recorded(bytes: &[u8]) -> (Vec<(u32, u64)>, u64, ImportReport) {
    let shelf = MemoryStorage::default();
    let report = import(bytes, Feed::Deep, &shelf).unwrap();
    let (frames, lost) = frames(&shelf);
    let numbers = frames.iter().map(|(_, _, payload)| {
        let message = flatbuffers::root::<Message<'_>>(payload).unwrap();
        (message.header().epoch(), message.header().sequence())
    });
    (numbers.collect(), lost, report)
}

fn numbers(packets: &[Packet]) -> Vec<(u32, u64)> {
    let of = |packet: &Packet| {
        let (epoch, first) = (packet.epoch, packet.first);
        (first..first + u64::from(packet.count)).map(move |number| (epoch, number))
    };
    packets.iter().flat_map(of).collect()
}

fn pcap(packets: &[Packet]) -> Vec<u8> {
    generator::capture(packets, File::PcapNanoseconds, Wrapping::default())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    // Proves that two lines with losses and delays are merged into the feed, and that only messages
    // that are lost on both lines become gaps.
    #[test]
    fn two_lines_give_the_feed(seed in any::<u64>(), odds in 2_u64..40) {
        let packets = generator::packets(&shape(3000, seed));
        let lines = [lose(&packets, seed ^ 1, odds), lose(&packets, seed ^ 2, odds)];
        let mut random = Random(seed);
        let mut merged: Vec<Packet> = Vec::new();
        for line in &lines {
            for packet in line {
                let delay = i64::try_from(random.below(u64::try_from(reordering::HELD_NS_MAX).unwrap() / 2)).unwrap();
                merged.push(Packet { wall_ns: packet.wall_ns + delay, ..packet.clone() });
            }
        }
        merged.sort_by_key(|packet| packet.wall_ns);
        let (recorded, lost, report) = recorded(&pcap(&merged));
        let has = |packet: &&Packet| lines.iter().any(|line| line.contains(packet));
        let kept: Vec<Packet> = packets.iter().filter(has).cloned().collect();
        prop_assert!(recorded == numbers(&kept), "{report:?}");
        prop_assert_eq!(lost, (numbers(&packets).len() - recorded.len()) as u64);
        prop_assert_eq!(report.skipped["restarts of the feed's numbers"], 2);
    }

    // Proves that changed and truncated captures never panic, and that all recorded samples are
    // intact.
    #[test]
    fn changed_captures_never_panic(seed in any::<u64>(), kind in 0..5_usize, changes in 1..20_usize) {
        let packets = generator::packets(&shape(150, seed));
        let mut bytes = generator::capture(&packets, File::ALL[kind], Wrapping::default());
        let mut random = Random(seed);
        for _ in 0..changes {
            let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
            bytes[at] = u8::try_from(random.below(256)).unwrap();
        }
        capture(&bytes);
        let end = usize::try_from(random.below(bytes.len() as u64)).unwrap();
        capture(&bytes[..end]);
    }
}

// Proves that fuzz/corpus contains a capture of each kind, and that the properties of the fuzz
// target `capture` hold for these captures. The fuzz target begins with these captures. With
// FLATCAP_CORPUS=write, the test writes these captures.
#[test]
fn the_corpus_has_the_seeds() {
    let packets = generator::packets(&shape(40, 1));
    for file in File::ALL {
        let seed = generator::capture(&packets, file, Wrapping::default());
        capture(&seed);
        let name = format!("{file:?}").to_lowercase();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/capture").join(name);
        if std::env::var_os("FLATCAP_CORPUS").is_some_and(|value| value == "write") {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &seed).unwrap();
        }
        let is_current = std::fs::read(&path).is_ok_and(|bytes| bytes == seed);
        assert!(is_current, "{} is not the seed: FLATCAP_CORPUS=write", path.display());
    }
}

// Proves that every message is recorded exactly once with its number, epoch and time, and that
// repeats add nothing.
#[test]
fn a_repeat_is_nothing_new() {
    let packets = generator::packets(&shape(5000, 1));
    let (once, lost, report) = recorded(&pcap(&packets));
    assert_eq!((once == numbers(&packets), lost, report.is_complete()), (true, 0, true));
    let twice: Vec<Packet> = packets.iter().flat_map(|packet| [packet.clone(), packet.clone()]).collect();
    let (both, lost, report) = recorded(&pcap(&twice));
    assert_eq!((both == once, lost), (true, 0));
    let segments = packets.iter().filter(|packet| packet.count > 0).count();
    assert_eq!(report.skipped["repeated segments"], segments as u64);
}

// Proves that a capture that begins in the middle of the feed has no gap, that a new session begins
// an epoch, and that a packet in an already recorded gap is late.
#[test]
fn begin_session_and_lateness() {
    let packets = generator::packets(&Shape { epochs: 1, ..shape(3000, 2) });
    let middle: Vec<Packet> = packets[20..].to_vec();
    let (seen, lost, _) = recorded(&pcap(&middle));
    assert_eq!((seen == numbers(&middle), lost), (true, 0));

    let mut moved = packets.clone();
    let mut late = moved.remove(50);
    late.wall_ns += 5 * reordering::HELD_NS_MAX;
    let at = moved.partition_point(|packet| packet.wall_ns < late.wall_ns);
    moved.insert(at, late.clone());
    let (seen, lost, report) = recorded(&pcap(&moved));
    assert_eq!(lost, u64::from(late.count));
    assert_eq!(seen.len() as u64 + lost, numbers(&packets).len() as u64);
    assert_eq!(report.skipped["segments that arrived too late"], 1, "{report:?}");
    assert!(!report.skipped.contains_key("restarts of the feed's numbers"), "{report:?}");

    let other = generator::packets(&Shape {
        session: 5,
        begin_ns: packets.last().unwrap().wall_ns + 10_000_000_000,
        ..Shape { epochs: 1, ..shape(3000, 3) }
    });
    let both: Vec<Packet> = packets.iter().chain(&other).cloned().collect();
    let (seen, lost, report) = recorded(&pcap(&both));
    assert_eq!((seen.len(), lost), (numbers(&both).len(), 0));
    assert_eq!(seen.last().unwrap().0, 1);
    assert_eq!(report.skipped["restarts of the feed's numbers"], 1);
}

// Proves that captures in the wrong order are reported with advice, not skipped.
#[test]
fn captures_in_the_wrong_order_are_reported() {
    let packets = generator::packets(&Shape { epochs: 1, ..shape(500, 5) });
    let later = generator::packets(&Shape {
        session: 5,
        begin_ns: packets.last().unwrap().wall_ns + 10_000_000_000,
        ..Shape { epochs: 1, ..shape(500, 6) }
    });
    let both: Vec<Packet> = later.iter().chain(&packets).cloned().collect();
    let (seen, lost, report) = recorded(&pcap(&both));
    assert_eq!((seen.len(), lost), (numbers(&later).len(), 0));
    let missing: u64 = report.flaws.iter().filter_map(|flaw| flaw.count).sum();
    assert_eq!((missing, report.more_flaws), (numbers(&packets).len() as u64, 0));
    assert!(report.flaws.iter().all(|flaw| flaw.what.contains("in the order of their times")), "{report:?}");
}

// Proves that messages with an impossible time, or without a time, do not hide a restart.
#[test]
fn impossible_times_hide_nothing() {
    let packets = generator::packets(&Shape { epochs: 2, ..shape(2000, 8) });
    let mut changed = packets.clone();
    let first = changed.iter_mut().find(|packet| packet.count > 0).unwrap();
    first.segment[44..52].copy_from_slice(&i64::MAX.to_le_bytes());
    let (seen, lost, report) = recorded(&pcap(&changed));
    assert!(seen == numbers(&packets) && lost == 0, "{report:?}");
    assert_eq!(report.skipped["restarts of the feed's numbers"], 1);

    let mut twice = changed;
    let first = twice.iter().position(|packet| packet.count > 0).unwrap();
    // A message of two bytes has no time. The bytes after the message stay in the segment.
    let length = u16::from_le_bytes(*twice[first].segment[40..].first_chunk().unwrap());
    twice[first].segment.splice(40..42 + usize::from(length), [2, 0, b'!', 0]);
    let payload = u16::try_from(twice[first].segment.len() - 40).unwrap();
    twice[first].segment[12..14].copy_from_slice(&payload.to_le_bytes());
    twice.insert(first, twice[first].clone());
    let (seen, lost, report) = recorded(&pcap(&twice));
    assert!(seen == numbers(&packets) && lost == 0, "{report:?}");
    assert_eq!(report.skipped["restarts of the feed's numbers"], 1);
}

// Proves that a truncated segment yields its complete messages, that the rest is a gap caused by
// damage, and that a complete copy on the other line fills this gap.
#[test]
fn a_cut_segment_gives_what_it_has() {
    let packets = generator::packets(&Shape { epochs: 1, ..shape(3000, 4) });
    let at = packets.iter().position(|packet| packet.count > 20).unwrap();
    let mut cut = packets.clone();
    let length = cut[at].segment.len() - 30;
    cut[at].segment.truncate(length);
    let (seen, lost, report) = recorded(&pcap(&cut));
    assert!(lost > 0 && report.flaws.len() == 1, "{report:?}");
    assert_eq!(report.flaws[0].count, Some(lost));
    assert_eq!(seen.len() as u64 + lost, numbers(&packets).len() as u64);
    let mut both = cut;
    both.insert(at + 1, packets[at].clone());
    let (seen, lost, report) = recorded(&pcap(&both));
    assert_eq!((seen == numbers(&packets), lost, report.flaws.len()), (true, 0, 1));
}

// Proves that heartbeats reveal messages missing at the end.
#[test]
fn heartbeats_reveal_missing_messages() {
    let mut packets = generator::packets(&Shape { epochs: 1, ..shape(3000, 5) });
    let all = numbers(&packets).len() as u64;
    let lost_packet = packets.pop().unwrap();
    let mut heartbeat = lost_packet.clone();
    heartbeat.count = 0;
    heartbeat.first += u64::from(lost_packet.count);
    heartbeat.segment.truncate(generator::HEADER_BYTES);
    heartbeat.segment[12..16].fill(0);
    heartbeat.segment[24..32].copy_from_slice(&heartbeat.first.to_le_bytes());
    packets.push(heartbeat);
    let (seen, lost, _) = recorded(&pcap(&packets));
    assert_eq!((seen.len() as u64 + lost, lost), (all, u64::from(lost_packet.count)));
}

/// Returns a capture of one segment with these messages.
fn one_segment(messages: &[&[u8]]) -> Vec<u8> {
    let payload: Vec<u8> = messages
        .iter()
        .flat_map(|message| [&u16::try_from(message.len()).unwrap().to_le_bytes()[..], message].concat())
        .collect();
    let mut segment = vec![1, 0, 4, 0x80, 1, 0, 0, 0, 2, 0, 0, 0];
    segment.extend(u16::try_from(payload.len()).unwrap().to_le_bytes());
    segment.extend(u16::try_from(messages.len()).unwrap().to_le_bytes());
    segment.extend([0; 8]);
    segment.extend(1_u64.to_le_bytes());
    segment.extend(77_i64.to_le_bytes());
    segment.extend(payload);
    let packet = Packet { wall_ns: 1000, epoch: 0, first: 1, count: 0, segment };
    pcap(&[packet])
}

// Proves that messages with unknown types, lengths and codes are kept or counted, and that their
// meaning is never guessed.
#[test]
fn unknown_messages_are_kept() {
    let status =
        |code: u8, symbol: &[u8; 8]| [&[b'H', code][..], &5_i64.to_le_bytes(), symbol, b"T1  "].concat();
    let (known, odd) = (status(b'T', b"ZIEXT   "), status(b'?', b"        "));
    let longer = [status(b'H', b"ABCDEFGH"), vec![1, 2, 3]].concat();
    let bytes = one_segment(&[&known, &odd, &longer, b"z1234567890", &known[..12], b""]);
    let shelf = MemoryStorage::default();
    let report = import(&bytes, Feed::Deep, &shelf).unwrap();
    let (frames, _) = frames(&shelf);
    let messages: Vec<Message<'_>> =
        frames.iter().map(|(_, _, payload)| flatbuffers::root::<Message<'_>>(payload).unwrap()).collect();
    let status = |at: usize| messages[at].trading_status().unwrap();
    let symbol = |at: usize| status(at).symbol().iter().collect::<Vec<u8>>();
    assert_eq!(symbol(0), b"ZIEXT\0\0\0");
    assert_eq!(status(0).reason().iter().collect::<Vec<u8>>(), b"T1\0\0");
    assert_eq!((symbol(1), status(1).status()), (vec![0; 8], TradingStatusCode(b'?')));
    assert_eq!((symbol(2), messages[2].header().unknown_bytes()), (b"ABCDEFGH".to_vec(), 3));
    for (at, bytes) in [(3, &b"z1234567890"[..]), (4, &known[..12]), (5, b"")] {
        assert_eq!(messages[at].other().unwrap().bytes(), bytes);
    }
    assert_eq!(messages[0].header().send_ns(), 77);
    assert_eq!(messages[0].header().timestamp_ns(), 5);
    assert_eq!(report.flaws.len(), 1, "{report:?}");
    assert_eq!(report.skipped["unknown message types (bytes kept)"], 2);
    assert_eq!(report.skipped["fields after those of the specification"], 1);
}

// Proves that numbers beyond the specification are reported as damage and neither panic nor wrap.
#[test]
fn numbers_beyond_the_specification_are_damage() {
    for (first, is_taken) in
        [(i64::MAX.cast_unsigned() - 1, true), (i64::MAX.cast_unsigned(), false), (u64::MAX, false)]
    {
        let packet = generator::packets(&Shape { epochs: 1, ..shape(20, 7) });
        let mut packet = packet.into_iter().find(|packet| packet.count > 0).unwrap();
        packet.segment[14..16].copy_from_slice(&1_u16.to_le_bytes());
        packet.segment[24..32].copy_from_slice(&first.to_le_bytes());
        let (seen, _, report) = recorded(&pcap(&[packet]));
        assert_eq!((seen.len(), report.flaws.len()), (usize::from(is_taken), usize::from(!is_taken)));
    }
}

// Proves that the number of channels is limited, and that further channels are reported.
#[test]
fn channels_are_bounded() {
    let packets = generator::packets(&Shape { epochs: 1, ..shape(20, 6) });
    let mut many = Vec::new();
    for channel in 0..u32::try_from(CHANNELS_MAX).unwrap() + 2 {
        let mut packet = packets[0].clone();
        packet.segment[4..8].copy_from_slice(&channel.to_le_bytes());
        many.push(packet);
    }
    let shelf = MemoryStorage::default();
    let report = import(&pcap(&many), Feed::Deep, &shelf).unwrap();
    assert_eq!((report.totals.sources.len(), report.flaws.len()), (CHANNELS_MAX, 2));
    assert_eq!(report.totals.sources[1].name, "iex-deep.2");
    frames(&shelf);
}
