//! Tests with intact and damaged captures.

use std::cell::Cell;
use std::io::Cursor;
use std::rc::Rc;

use super::*;
use crate::iex::generator::{self, Feed, File, Shape, Wrapping};

/// Time and payload of each datagram, the reasons why other packets are not datagrams, and the
/// report.
type CaptureContent = (Vec<(i64, Vec<u8>)>, Vec<SkipReason>, ImportReport);

fn read(bytes: &[u8]) -> Result<CaptureContent, ImportError> {
    let source = Box::new(Cursor::new(bytes.to_vec()));
    let input = Input::new(Path::new("a"), source, Rc::new(Cell::new(0))).unwrap();
    let mut capture = Capture::open(input)?;
    let (mut datagrams, mut others, mut report) = (Vec::new(), Vec::new(), ImportReport::default());
    let mut next_offset = 0;
    while let Some(packet) = capture.next(&mut report)? {
        assert!(packet.offset >= next_offset, "packets are in order");
        next_offset = packet.offset + 1;
        match datagram(packet.link, packet.bytes) {
            Ok(payload) => datagrams.push((packet.wall_ns, payload.to_vec())),
            Err(why) => others.push(why),
        }
    }
    assert_eq!(capture.bytes(), bytes.len() as u64, "all of it was read");
    Ok((datagrams, others, report))
}

fn packets(messages: usize) -> Vec<generator::Packet> {
    generator::packets(&Shape { epochs: 1, ..Shape::real(Feed::Deep, messages, 7) })
}

fn expected(packets: &[generator::Packet]) -> Vec<(i64, Vec<u8>)> {
    packets.iter().map(|packet| (packet.wall_ns, packet.segment.clone())).collect()
}

const WRAPPINGS: [Wrapping; 6] = [
    Wrapping { vlan_tags: 0, ipv6: false, option_words: 0 },
    Wrapping { vlan_tags: 1, ipv6: false, option_words: 0 },
    Wrapping { vlan_tags: 2, ipv6: false, option_words: 3 },
    Wrapping { vlan_tags: 0, ipv6: true, option_words: 0 },
    Wrapping { vlan_tags: 2, ipv6: true, option_words: 0 },
    Wrapping { vlan_tags: 0, ipv6: false, option_words: 10 },
];

// Proves that a capture that is longer than a window is read with the same result in every file
// format and encapsulation.
#[test]
fn all_files_and_links_are_read_alike() {
    let packets = packets(20_000);
    for file in File::ALL {
        for wrapping in WRAPPINGS {
            let bytes = generator::capture(&packets, file, wrapping);
            assert!(bytes.len() > SEARCH_BYTES);
            let (datagrams, others, report) = read(&bytes).unwrap();
            assert!(
                report.is_complete() && others.is_empty(),
                "{file:?} {wrapping:?}: {:?}",
                report.flaws.first()
            );
            assert!(datagrams == expected(&packets), "{file:?} {wrapping:?}");
        }
    }
}

// Proves that a truncated capture yields its complete packets and reports where it ends. The test
// truncates the capture at every byte.
#[test]
fn every_truncation_gives_complete_packets() {
    let packets = packets(30);
    for file in File::ALL {
        let bytes = generator::capture(&packets, file, Wrapping::default());
        let mut ends = vec![file.begin().len()];
        for packet in &packets {
            let mut record = Vec::new();
            file.packet(&mut record, packet.wall_ns, &generator::wrap(&packet.segment, Wrapping::default()));
            ends.push(ends.last().unwrap() + record.len());
        }
        for cut in 0..bytes.len() {
            let Ok((datagrams, _, report)) = read(&bytes[..cut]) else {
                assert!(cut < ends[0], "{file:?} {cut}");
                continue;
            };
            let whole = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
            assert!(datagrams == expected(&packets[..whole]), "{file:?} {cut}");
            let is_end = ends.contains(&cut) || cut < ends[0] && report.is_complete();
            assert_eq!(report.is_complete(), is_end, "{file:?} {cut}: {report:?}");
            if cut > ends[0] && !is_end {
                assert_eq!(report.flaws[0].offset, ends[whole] as u64, "{file:?} {cut}");
            }
        }
    }
}

// Proves that reading continues after damage and that structural damage is reported. After a
// flipped bit, at most the damaged packet and two neighbours are lost. After garbage of any length,
// at most one packet is lost.
#[test]
fn reading_continues_after_damage() {
    let packets = packets(30);
    for file in File::ALL {
        let begin = file.begin().len();
        let whole = generator::capture(&packets, file, Wrapping::default());
        let all = expected(&packets);
        for at in begin..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at * 5 % 8);
            let (datagrams, others, _) = read(&bytes).unwrap();
            let same = datagrams.iter().filter(|one| all.contains(one)).count();
            assert!(same + 3 >= packets.len(), "{file:?} byte {at}: {same} of {}", packets.len());
            assert!(others.len() <= 2, "{others:?}");
        }
        let (one, other) = packets.split_at(packets.len() / 2);
        for length in [1, 3, 16, 100, 5000, SEARCH_BYTES * 2] {
            for filler in [0_u8, 0xFF, 0x5A] {
                let mut bytes = generator::capture(one, file, Wrapping::default());
                bytes.resize(bytes.len() + length, filler);
                bytes.extend(&generator::capture(other, file, Wrapping::default())[begin..]);
                let (datagrams, _, report) = read(&bytes).unwrap();
                let found = all.iter().filter(|one| datagrams.contains(one)).count();
                assert!(found + 1 >= packets.len(), "{file:?} {length} of {filler}: {found}");
                assert!(!report.is_complete(), "{file:?} {length} of {filler}");
            }
        }
    }
}

// Proves that packets without a datagram are counted by reason, and that files of other formats are
// rejected because of their content.
#[test]
fn other_packets_have_a_reason() {
    let datagram = generator::wrap(b"payload", Wrapping::default());
    let changed = |at: usize, byte: u8| {
        let mut packet = datagram.clone();
        packet[at] = byte;
        packet
    };
    let cases = [
        (datagram[..13].to_vec(), "packets cut within their link header"),
        (changed(13, 6), "packets that are not IP"),
        (changed(12, 0x12), "packets that are not IP"),
        (changed(23, 6), "packets whose headers cannot be read"),
        (changed(23, 1), "packets that are not UDP"),
        (changed(20, 0x20), "fragments of IP packets"),
        (changed(21, 0x08), "fragments of IP packets"),
        (datagram[..36].to_vec(), "packets whose headers cannot be read"),
    ];
    for (packet, why) in cases {
        let mut bytes = File::Pcap.begin();
        File::Pcap.packet(&mut bytes, 5000, &packet);
        let (datagrams, others, _) = read(&bytes).unwrap();
        if why == "packets whose headers cannot be read" {
            assert!(datagrams.is_empty() && others.len() == 1, "{others:?}");
        } else {
            assert_eq!((datagrams.len(), &others[..]), (0, &[why][..]));
        }
    }
    for other in [&b""[..], b"PK\x03\x04", b"a,b,c\n1,2,3\n", &[0; 4000]] {
        let error = read(other).unwrap_err().to_string();
        assert!(error.contains("neither those of pcap nor those of pcapng"), "{error}");
    }
}

// Proves that packets in pcapng's obsolete block are reported, not skipped.
#[test]
fn obsolete_packets_are_reported() {
    let mut bytes = File::Pcapng.begin();
    let block = [&2_u32.to_le_bytes()[..], &36_u32.to_le_bytes(), &[0; 24], &36_u32.to_le_bytes()].concat();
    bytes.extend(block);
    File::Pcapng.packet(&mut bytes, 5000, &generator::wrap(b"payload", Wrapping::default()));
    let (datagrams, others, report) = read(&bytes).unwrap();
    assert_eq!((datagrams.len(), others.len(), report.flaws.len()), (1, 0, 1), "{report:?}");
    assert!(report.flaws[0].what.contains("editcap"), "{report:?}");
}

// Proves that Linux cooked captures of both versions and bare IP are read.
#[test]
fn other_links_are_read() {
    let ethernet = generator::wrap(b"payload", Wrapping::default());
    let ip = &ethernet[14..];
    let cooked = [&[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0], ip].concat();
    let mut head = [0; LINUX_COOKED_2_HEAD];
    head[0] = 8;
    let cooked_2 = [&head[..], ip].concat();
    for (link, packet) in [(113, &cooked[..]), (276, &cooked_2), (101, ip), (12, ip), (228, ip)] {
        let mut bytes = File::Pcap.begin();
        bytes[20..24].copy_from_slice(&u32::to_le_bytes(link));
        File::Pcap.packet(&mut bytes, 5000, packet);
        let (datagrams, others, _) = read(&bytes).unwrap();
        assert_eq!(datagrams, [(5000, b"payload".to_vec())], "{link}: {others:?}");
    }
    let (none, why) = (super::datagram(127, ip).is_err(), super::datagram(127, ip).unwrap_err());
    assert!(none && why.starts_with("packets of links that are not read"));
}

const LINUX_COOKED_2_HEAD: usize = 20;

// Proves that times are computed from the resolution and the offset of the interface, exactly to
// the nanosecond.
#[test]
fn times_are_those_of_the_interface() {
    let with = |options: &[u8], high: u32, low: u32| {
        let mut bytes = File::Pcapng.begin()[..28].to_vec();
        let length = u32::try_from(20 + options.len()).unwrap().to_le_bytes();
        bytes.extend([&1_u32.to_le_bytes()[..], &length, &[1, 0, 0, 0], &[0; 4], options, &length].concat());
        let head = [0, high, low, 4, 4].map(u32::to_le_bytes).concat();
        let length = 36_u32.to_le_bytes();
        bytes.extend([&6_u32.to_le_bytes()[..], &length, &head, &[9; 4], &length].concat());
        let input = Input::new(Path::new("a"), Box::new(Cursor::new(bytes)), Rc::new(Cell::new(0))).unwrap();
        let (mut capture, mut report) = (Capture::open(input).unwrap(), ImportReport::default());
        let wall_ns = capture.next(&mut report).unwrap().unwrap().wall_ns;
        assert!(report.is_complete(), "{report:?}");
        wall_ns
    };
    assert_eq!(with(&[], 0x0005_4D9A, 0x1B2C_3D4E), 0x0005_4D9A_1B2C_3D4E * 1000);
    assert_eq!(with(&[9, 0, 1, 0, 9, 0, 0, 0], 1, 2), (1 << 32) + 2);
    assert_eq!(with(&[9, 0, 1, 0, 0x81, 0, 0, 0], 0, 3), 1_500_000_000);
    assert_eq!(with(&[9, 0, 1, 0, 0, 0, 0, 0], 0, 7), 7_000_000_000);
    let offset = [&[9, 0, 1, 0, 0, 0, 0, 0, 14, 0, 8, 0][..], &(-5_i64).to_le_bytes()].concat();
    assert_eq!(with(&offset, 0, 7), 2_000_000_000);
    assert_eq!(with(&[9, 0, 1, 0, 0, 0, 0, 0], u32::MAX, 7), i64::MAX);
}
