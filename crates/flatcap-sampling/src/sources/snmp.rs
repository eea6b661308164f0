//! `snmp`: counters of IP, ICMP, TCP, UDP and UDP-Lite, from /proc/net/snmp and, for IPv6,
//! /proc/net/snmp6.

use std::time::Duration;

use flatbuffers::{FlatBufferBuilder, VOffsetT};
use flatcap_os::host::RecordStructure;

use super::by_schema::{create_structs, push_struct, slot, values_of};
use super::counters::{CounterFile, CounterKeys, CounterLayout, CounterSet};
use super::network::namespace_path;
use super::text;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, OpenedSampler, ReadError, Sampler};

const SNMP: &str = "proc/net/snmp";
const SNMP6: &str = "proc/net/snmp6";
/// Maximum number of ICMP message types, that is, 256 types for each of two protocol versions.
const TYPES_MAX: usize = 512;
/// Names of the fields of the root table.
const COUNTERS: &str = "counters";
const TYPES: &str = "icmp_types";
/// Counts of messages of one type. The elements are version, type, received and sent, in the order
/// of the schema.
type IcmpMessages = [u64; 4];

/// `include` and `exclude` match fields, such as `tcp_in_errs` and `icmp_types`. A host without
/// IPv6 lacks the file for IPv6, so the fields of that file are absent.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "snmp",
    about: "Counters of TCP, UDP, IP and ICMP, versions 4 and 6.",
    root: "flatcap.host.Snmp",
    schema: include_bytes!("../../../../generated/host/snmp.bfbs"),
    files: &[SNMP, SNMP6],
    // The values count packets and are used as rates.
    period: Duration::from_millis(100),
    refresh: "at each packet",
    selects: "fields, such as tcp_in_errs and icmp_types",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let selection = context.selection();
    let files = [
        CounterFile {
            path: namespace_path(context.host, SNMP, "proc/1/net/snmp")?,
            layout: CounterLayout::Headed,
            records: RecordStructure::One,
            is_optional: false,
        },
        CounterFile {
            path: namespace_path(context.host, SNMP6, "proc/1/net/snmp6")?,
            layout: CounterLayout::Lines { section: b"", skip: 0 },
            records: RecordStructure::One,
            is_optional: true,
        },
    ];
    let keys = CounterKeys::of(&SPEC, COUNTERS, &selection);
    Ok(OpenedSampler::built(SnmpSampler {
        filled: vec![0; keys.bytes()],
        counters: CounterSet::open(context.host, &SPEC, &files, keys)?,
        types: Vec::new(),
        are_types_wanted: selection.matches(TYPES.as_bytes()),
        slots: [COUNTERS, TYPES].map(|field| slot(&SPEC, field)),
    }))
}

#[derive(Debug)]
struct SnmpSampler {
    counters: CounterSet,
    filled: Vec<u8>,          // reused
    types: Vec<IcmpMessages>, // reused
    are_types_wanted: bool,
    slots: [VOffsetT; 2], // slots of the counters and the types
}

impl Sampler for SnmpSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.counters.read()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let Self { counters, filled, types, are_types_wanted, slots: [counters_slot, types_slot] } = self;
        types.clear();
        let incomplete = counters.fill(filled, |section, name, value| {
            if *are_types_wanted { icmp_type(section, name, value, types) } else { Incomplete::NONE }
        });
        let types = create_structs(builder, types.len(), types.as_flattened().iter().copied());
        let table = builder.start_table();
        builder.push_slot_always(*types_slot, types);
        push_struct(builder, *counters_slot, values_of(filled));
        let root = builder.end_table(table);
        builder.finish_minimal(root);
        incomplete
    }
}

/// Adds the messages of one type, if the name denotes a type, as `IcmpMsg: InType3` and
/// `Icmp6OutType135` do. Other names are skipped.
fn icmp_type(section: &[u8], name: &[u8], value: Option<&[u8]>, types: &mut Vec<IcmpMessages>) -> Incomplete {
    let (version, name) = match (section, name.strip_prefix(b"Icmp6")) {
        (b"IcmpMsg:", _) => (4, name),
        (b"", Some(name)) => (6, name),
        _ => return Incomplete::NONE,
    };
    let (is_received, number) = match (name.strip_prefix(b"InType"), name.strip_prefix(b"OutType")) {
        (Some(number), _) => (true, number),
        (None, Some(number)) => (false, number),
        (None, None) => return Incomplete::NONE,
    };
    let Some(number) = text::number(number) else { return Incomplete::UNREADABLE };
    let mut incomplete = Incomplete::NONE;
    let count = text::value(value, &mut incomplete);
    let known = types.iter().position(|one| one.starts_with(&[version, number]));
    let index = known.unwrap_or(types.len());
    if known.is_none() && types.len() < TYPES_MAX {
        // The kernel omits a direction that has no messages, so the count of this direction is 0.
        types.push([version, number, 0, 0]);
    }
    match types.get_mut(index) {
        Some([_, _, received, _]) if is_received => *received = count,
        Some([_, _, _, sent]) => *sent = count,
        None => incomplete |= Incomplete::TOO_MANY,
    }
    incomplete
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::Command;

    use super::*;
    use crate::NameFilter;
    use crate::sources::counters::{CounterOrder, CounterWriter};
    use crate::sources::tests::{
        assert_damage_is_marked, decoded, fixture, sample_this_host, sample_under, values_at,
    };

    const TEXT: &str = "Ip: Forwarding DefaultTTL InReceives\nIp: 2 64 3\nIcmp: InMsgs\nIcmp: 4\n\
        IcmpMsg: InType3 OutType3 OutType8\nIcmpMsg: 5 6 7\nTcp: RtoMin MaxConn ActiveOpens\nTcp: 8 -1 9\n";
    const TEXT6: &str =
        "Ip6InReceives                   \t10\nIcmp6InType135  \t11\nUdpLite6MemErrors \t12\n";

    fn tree(snmp: &str, snmp6: Option<&str>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/net")).unwrap();
        std::fs::write(folder.path().join(SNMP), snmp).unwrap();
        if let Some(text) = snmp6 {
            std::fs::write(folder.path().join(SNMP6), text).unwrap();
        }
        folder
    }

    fn all_keys() -> CounterKeys {
        CounterKeys::of(&SPEC, COUNTERS, &NameFilter::default())
    }

    fn types(payload: &[u8]) -> Vec<(u64, u64, u64, u64)> {
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let types = decoded(&SPEC, payload)[TYPES].take();
        let fields = ["version", "type", "received", "sent"];
        let rows = types.as_array().unwrap().iter().map(|one| fields.map(|field| number(&one[field])));
        rows.map(|[version, number, received, sent]| (version, number, received, sent)).collect()
    }

    /// Returns all values of a payload, by `origin`.
    fn values(payload: &[u8]) -> BTreeMap<String, i64> {
        let mut values: BTreeMap<String, i64> = all_keys()
            .origins()
            .into_iter()
            .zip(values_at(&SPEC, COUNTERS, payload))
            .filter(|(_, value)| *value != text::ABSENT)
            .map(|(origin, value)| {
                let signed = origin == "Tcp:MaxConn";
                (
                    origin,
                    if signed {
                        f64::from_bits(value).to_string().parse().unwrap()
                    } else {
                        value.cast_signed()
                    },
                )
            })
            .collect();
        for (version, number, received, sent) in types(payload) {
            let lead = if version == 4 { "IcmpMsg:" } else { "Icmp6" };
            for (direction, count) in
                [("In", received), ("Out", sent)].into_iter().filter(|(_, count)| *count > 0)
            {
                values.insert(format!("{lead}{direction}Type{number}"), count.cast_signed());
            }
        }
        values
    }

    /// Returns the same values as found by an independent parser.
    fn naive(snmp: &str, snmp6: &str) -> BTreeMap<String, i64> {
        let lines: Vec<Vec<&str>> = snmp.lines().map(|line| line.split_whitespace().collect()).collect();
        let mut values = BTreeMap::new();
        for pair in lines.chunks(2) {
            for (name, value) in pair[0].iter().zip(&pair[1]).skip(1) {
                values.insert(format!("{}{name}", pair[0][0]), value.parse().unwrap());
            }
        }
        for line in snmp6.lines() {
            let (name, value) = line.split_once(char::is_whitespace).unwrap();
            values.insert(name.to_owned(), value.trim().parse().unwrap());
        }
        values
    }

    // Proves that every value ends up in its field, including a negative value, and that types of
    // messages have both directions.
    #[test]
    fn every_value_is_in_its_place() {
        let folder = tree(TEXT, Some(TEXT6));
        let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
        assert!(incomplete.is_none());
        assert_eq!(values(&payload), naive(TEXT, TEXT6));
        assert_eq!(types(&payload), [(4, 3, 5, 6), (4, 8, 0, 7), (6, 135, 11, 0)]);
        let counters = &decoded(&SPEC, &payload)[COUNTERS];
        for (field, value) in [
            ("ip_default_ttl", 64),
            ("icmp_in_msgs", 4),
            ("tcp_active_opens", 9),
            ("ip6_in_receives", 10),
            ("udp_lite6_mem_errors", 12),
        ] {
            assert_eq!(counters[field], value, "{field}");
        }
        assert_eq!(counters["tcp_max_conn"].as_f64(), Some(-1.0));
        assert!(counters["udp_in_datagrams"].is_null() && counters["tcp_in_segs"].is_null());
    }

    // Proves that a host without the second file is complete, and that unwanted values are absent.
    #[test]
    fn fields_are_chosen() {
        let folder = tree(TEXT, None);
        let (payload, incomplete) =
            sample_under(&SPEC, "exclude = [\"icmp*\", \"tcp_max_conn\"]", folder.path());
        assert!(incomplete.is_none());
        let counters = &decoded(&SPEC, &payload)[COUNTERS];
        assert!(types(&payload).is_empty() && counters["tcp_max_conn"].is_null());
        assert!(counters["icmp_in_msgs"].is_null() && counters["tcp_rto_min"] == 8, "{counters}");
    }

    // Proves that, in lines of message types, damaged text never causes a panic and a truncated
    // file is always marked.
    #[test]
    fn damaged_text_is_marked() {
        let text = b"IcmpMsg: InType3 OutType3\nIcmpMsg: 5 6\n";
        assert_damage_is_marked(text, |text| {
            let mut types = Vec::new();
            let keys = all_keys();
            let mut bytes = vec![0; keys.bytes()];
            let mut writer = CounterWriter::new(&keys, &mut bytes);
            let mut order = CounterOrder::default();
            writer.read_file(CounterLayout::Headed, &mut order, text, |section, name, value| {
                icmp_type(section, name, value, &mut types)
            });
            writer.incomplete.is_none() && types.len() == 1
        });
        let mut types = Vec::new();
        for number in 0..TYPES_MAX {
            let name = format!("Icmp6InType{number}");
            assert!(icmp_type(b"", name.as_bytes(), Some(b"1"), &mut types).is_none());
        }
        assert_eq!(icmp_type(b"", b"Icmp6InType999", Some(b"1"), &mut types), Incomplete::TOO_MANY);
        assert_eq!(icmp_type(b"", b"Icmp6InTypeX", Some(b"1"), &mut types), Incomplete::UNREADABLE);
        assert_eq!(icmp_type(b"", b"Icmp6InType1", None, &mut types), Incomplete::CUT);
    }

    // Proves that all values of files captured from other hosts are read, and that a naive parser
    // finds the same values.
    #[test]
    fn captured_hosts_are_read() {
        let (Some(snmp), Some(snmp6)) = (fixture("26231/net/snmp"), fixture("26231/net/snmp6")) else {
            return;
        };
        // In the archive, the mode of each file follows its content.
        let [snmp, snmp6] =
            [snmp, snmp6].map(|text| String::from_utf8(text).unwrap().replace("Mode: 644\n", ""));
        let folder = tree(&snmp, Some(&snmp6));
        let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
        assert!(incomplete.is_none());
        let ours = values(&payload);
        assert_eq!(ours, naive(&snmp, &snmp6));
    }

    // Proves that all values of this host are read and assigned to their names. Counters must lie
    // between the values that a naive parser finds before and after the sample.
    #[test]
    fn agrees_with_this_host() {
        let read = || {
            naive(
                &std::fs::read_to_string("/proc/net/snmp").unwrap(),
                &std::fs::read_to_string("/proc/net/snmp6").unwrap_or_default(),
            )
        };
        let before = read();
        let payload = sample_this_host(&SPEC);
        let after = read();
        let ours = values(&payload);
        for (name, last) in after {
            let (first, ours) = (before.get(&name).copied().unwrap_or(0), ours.get(&name).copied());
            // A gauge may rise and fall.
            let fits = ours.is_some_and(|ours| (first..=last).contains(&ours) || name == "Tcp:CurrEstab");
            assert!(fits, "{name}: {first} {ours:?} {last}");
        }
    }

    // Proves agreement with `nstat` of iproute2, which the test runs before and after the sample.
    #[test]
    fn agrees_with_nstat() {
        let read = || -> Option<BTreeMap<String, u64>> {
            let output = Command::new("nstat").args(["-asz"]).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            let pairs = text.lines().skip(1).filter_map(|line| {
                let mut words = line.split_whitespace();
                Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
            });
            Some(pairs.collect())
        };
        let (Some(before), payload, Some(after)) = (read(), sample_this_host(&SPEC), read()) else {
            println!("skipped: no nstat");
            return;
        };
        let ours = values(&payload);
        let mut compared = 0;
        for (name, first) in before {
            let Some(ours) = ours.iter().find(|(origin, _)| origin.replace(':', "") == name) else {
                continue;
            };
            let (ours, last) = (ours.1.cast_unsigned(), after[&name]);
            compared += 1;
            assert!(
                (first..=last).contains(&ours) || name == "TcpCurrEstab",
                "{name}: {first} {ours} {last}"
            );
        }
        assert!(compared > 100, "{compared}");
    }
}
