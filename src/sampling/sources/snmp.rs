//! `snmp`: counters of IP, ICMP, TCP, UDP and UDP-Lite, from /proc/net/snmp and, for IPv6,
//! /proc/net/snmp6.

use flatbuffers::FlatBufferBuilder;

use super::counters::{CounterFile, CounterKeys, CounterLayout, CounterSet};
use super::network::namespace_path;
use super::text;
use super::{OpenContext, SourceSpec, Unavailable};
use crate::os::host::RecordStructure;
use crate::sampling::{Incomplete, OpenedSampler, ReadError, Sampler};
use crate::schemas::host::{IcmpMessages, Snmp, SnmpArgs, SnmpCounters};

const SNMP: &str = "proc/net/snmp";
const SNMP6: &str = "proc/net/snmp6";
/// Maximum number of ICMP message types: each protocol version has 256.
const TYPES_MAX: usize = 512;
/// Name of the field of these types in a selection.
const TYPES: &[u8] = b"icmp_types";
const BYTES: usize = size_of::<SnmpCounters>();

/// `include` and `exclude` match fields, such as `tcp_in_errs` and `icmp_types`. A host without
/// IPv6 lacks the second file: its fields are absent.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "snmp",
    root: "flatcap.host.Snmp",
    schema: include_bytes!("../../../generated/host/snmp.bfbs"),
    files: &[SNMP, SNMP6],
    refresh: "at each packet",
    selects: "fields, such as tcp_in_errs and icmp_types",
    needs: &[],
    open,
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let selection = context.selection();
    let files = [
        CounterFile {
            path: namespace_path(context.host, SNMP, "proc/1/net/snmp"),
            layout: CounterLayout::Headed,
            records: RecordStructure::One,
            is_optional: false,
        },
        CounterFile {
            path: namespace_path(context.host, SNMP6, "proc/1/net/snmp6"),
            layout: CounterLayout::Lines { section: b"", skip: 0 },
            records: RecordStructure::One,
            is_optional: true,
        },
    ];
    let keys = CounterKeys::of(SPEC.schema, "flatcap.host.SnmpCounters", &selection);
    Ok(OpenedSampler::built(SnmpSampler {
        counters: CounterSet::open(context.host, &files, keys)?,
        types: Vec::new(),
        are_types_wanted: selection.matches(TYPES),
    }))
}

#[derive(Debug)]
struct SnmpSampler {
    counters: CounterSet,
    types: Vec<IcmpMessages>, // reused
    are_types_wanted: bool,
}

impl Sampler for SnmpSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.counters.read()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let Self { counters, types, are_types_wanted } = self;
        types.clear();
        let mut filled = SnmpCounters([0; BYTES]);
        let incomplete = counters.fill(&mut filled.0, |section, name, value| {
            if *are_types_wanted { icmp_type(section, name, value, types) } else { Incomplete::NONE }
        });
        let types = builder.create_vector(types);
        let root = Snmp::create(builder, &SnmpArgs { counters: Some(&filled), icmp_types: Some(types) });
        builder.finish_minimal(root);
        incomplete
    }
}

/// Adds the messages of one type, if the name is one: `IcmpMsg: InType3`, `Icmp6OutType135`. Other
/// names are skipped.
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
    let known = types.iter().position(|one| one.version() == version && one.type_() == number);
    let index = known.unwrap_or(types.len());
    if known.is_none() && types.len() < TYPES_MAX {
        // The kernel omits a direction without messages.
        types.push(IcmpMessages::new(version, number, 0, 0));
    }
    match types.get_mut(index) {
        Some(one) if is_received => one.set_received(count),
        Some(one) => one.set_sent(count),
        None => incomplete |= Incomplete::TOO_MANY,
    }
    incomplete
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::Command;

    use super::*;
    use crate::sampling::NameFilter;
    use crate::sampling::sources::counters::VALUE_BYTES;
    use crate::sampling::sources::tests::{assert_damage_is_marked, fixture, sample_this_host, sample_under};

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

    fn types(snmp: &Snmp<'_>) -> Vec<(u64, u64, u64, u64)> {
        snmp.icmp_types().iter().map(|one| (one.version(), one.type_(), one.received(), one.sent())).collect()
    }

    /// Returns all values of a payload, by `origin`.
    fn values(snmp: &Snmp<'_>) -> BTreeMap<String, i64> {
        let origins =
            CounterKeys::of(SPEC.schema, "flatcap.host.SnmpCounters", &NameFilter::default()).origins();
        let places = snmp.counters().0.chunks_exact(VALUE_BYTES);
        let mut values: BTreeMap<String, i64> = origins
            .into_iter()
            .zip(places.map(|place| u64::from_le_bytes(place.try_into().unwrap())))
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
        for (version, number, received, sent) in types(snmp) {
            let lead = if version == 4 { "IcmpMsg:" } else { "Icmp6" };
            for (direction, count) in
                [("In", received), ("Out", sent)].into_iter().filter(|(_, count)| *count > 0)
            {
                values.insert(format!("{lead}{direction}Type{number}"), count.cast_signed());
            }
        }
        values
    }

    /// The same by an independent parser.
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

    // Proves that every value ends up in its field, one of them negative, and that types of
    // messages have both directions.
    #[test]
    fn every_value_is_in_its_place() {
        let folder = tree(TEXT, Some(TEXT6));
        let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
        assert!(incomplete.is_none());
        let snmp = flatbuffers::root::<Snmp<'_>>(&payload).unwrap();
        assert_eq!(values(&snmp), naive(TEXT, TEXT6));
        assert_eq!(types(&snmp), [(4, 3, 5, 6), (4, 8, 0, 7), (6, 135, 11, 0)]);
        let counters = snmp.counters();
        assert_eq!(
            (counters.ip_default_ttl(), counters.icmp_in_msgs(), counters.tcp_active_opens()),
            (64, 4, 9)
        );
        assert_eq!((counters.ip6_in_receives(), counters.udp_lite6_mem_errors()), (10, 12));
        assert_eq!(counters.tcp_max_conn().to_bits(), (-1.0_f64).to_bits());
        assert_eq!((counters.udp_in_datagrams(), counters.tcp_in_segs()), (text::ABSENT, text::ABSENT));
    }

    // Proves that a host without the second file is complete, and that unwanted values are absent.
    #[test]
    fn fields_are_chosen() {
        let folder = tree(TEXT, None);
        let (payload, incomplete) =
            sample_under(&SPEC, "exclude = [\"icmp*\", \"tcp_max_conn\"]", folder.path());
        assert!(incomplete.is_none());
        let snmp = flatbuffers::root::<Snmp<'_>>(&payload).unwrap();
        let counters = snmp.counters();
        assert!(types(&snmp).is_empty() && counters.tcp_max_conn().is_nan());
        assert_eq!((counters.icmp_in_msgs(), counters.tcp_rto_min()), (text::ABSENT, 8));
    }

    // Proves that damaged text never panics and a cut file is always marked, in lines of message
    // types.
    #[test]
    fn damaged_text_is_marked() {
        let text = b"IcmpMsg: InType3 OutType3\nIcmpMsg: 5 6\n";
        assert_damage_is_marked(text, |text| {
            let mut types = Vec::new();
            let mut bytes = [0; BYTES];
            let keys = CounterKeys::of(SPEC.schema, "flatcap.host.SnmpCounters", &NameFilter::default());
            let mut writer = crate::sampling::sources::counters::CounterWriter::new(&keys, &mut bytes);
            let mut order = crate::sampling::sources::counters::CounterOrder::default();
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

    // Proves that all values of captured hosts are read, as by a naive parser.
    #[test]
    fn captured_hosts_are_read() {
        let (Some(snmp), Some(snmp6)) = (fixture("26231/net/snmp"), fixture("26231/net/snmp6")) else {
            return;
        };
        // The archive has the mode of each file after its content.
        let [snmp, snmp6] =
            [snmp, snmp6].map(|text| String::from_utf8(text).unwrap().replace("Mode: 644\n", ""));
        let folder = tree(&snmp, Some(&snmp6));
        let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
        assert!(incomplete.is_none());
        let ours = values(&flatbuffers::root::<Snmp<'_>>(&payload).unwrap());
        assert_eq!(ours, naive(&snmp, &snmp6));
    }

    // Proves that all values of this host are read and go to their names: counters are between
    // those that a naive parser finds before and after.
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
        let ours = values(&flatbuffers::root::<Snmp<'_>>(&payload).unwrap());
        for (name, last) in after {
            let (first, ours) = (before.get(&name).copied().unwrap_or(0), ours.get(&name).copied());
            // A gauge may go up and down.
            let fits = ours.is_some_and(|ours| (first..=last).contains(&ours) || name == "Tcp:CurrEstab");
            assert!(fits, "{name}: {first} {ours:?} {last}");
        }
    }

    // Proves agreement with `nstat` of iproute2, run before and after.
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
        let ours = values(&flatbuffers::root::<Snmp<'_>>(&payload).unwrap());
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
