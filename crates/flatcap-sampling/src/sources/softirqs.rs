//! `softirqs`: software interrupts by kind and core, from /proc/softirqs.

use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostFile;
use flatcap_schemas::host::{CoreSoftirqs, Softirqs, SoftirqsArgs};

use super::text;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{CachedNameFilter, Incomplete, OpenedSampler, ReadError, Sampler, odd_text};

const FILE: &str = "proc/softirqs";
/// Maximum number of cores in one sample. Linux does not support more cores.
const CORES_MAX: usize = 8192;

/// A function that sets a count in its field.
type SetCount = fn(&mut CoreSoftirqs, u64);
/// The kinds of software interrupts, by the names of their lines. Kinds that a later kernel adds
/// are skipped.
const KINDS: [(&[u8], SetCount); 11] = [
    (b"HI", CoreSoftirqs::set_hi),
    (b"TIMER", CoreSoftirqs::set_timer),
    (b"NET_TX", CoreSoftirqs::set_net_tx),
    (b"NET_RX", CoreSoftirqs::set_net_rx),
    (b"BLOCK", CoreSoftirqs::set_block),
    (b"IRQ_POLL", CoreSoftirqs::set_irq_poll),
    (b"BLOCK_IOPOLL", CoreSoftirqs::set_irq_poll),
    (b"TASKLET", CoreSoftirqs::set_tasklet),
    (b"SCHED", CoreSoftirqs::set_sched),
    (b"HRTIMER", CoreSoftirqs::set_hrtimer),
    (b"RCU", CoreSoftirqs::set_rcu),
];

/// `include` and `exclude` match cores by their names in the file, such as `CPU0`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "softirqs",
    about: "Software interrupts by kind and core.",
    root: "flatcap.host.Softirqs",
    schema: include_bytes!("../../../../generated/host/softirqs.bfbs"),
    files: &[FILE],
    // The counts of each core are used as rates. The total number is in cpu.
    period: Duration::from_millis(100),
    refresh: "at each software interrupt",
    selects: "cores, such as CPU0",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let file = host_file(context.host, FILE, "")?;
    let cores =
        SoftirqColumns { filter: CachedNameFilter::new(context.selection()), ..SoftirqColumns::default() };
    Ok(OpenedSampler::built(SoftirqsSampler { file, cores, kinds: 0 }))
}

#[derive(Debug)]
struct SoftirqsSampler {
    file: HostFile,
    cores: SoftirqColumns, // reused
    kinds: u32,            // bit k is set if KINDS[k] was present
}

/// The columns of the file.
#[derive(Debug, Default)]
struct SoftirqColumns {
    counts: Vec<CoreSoftirqs>,
    wanted: Vec<bool>, // whether each column is wanted
    filter: CachedNameFilter,
}

impl Sampler for SoftirqsSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let (kinds, lacks) = parse(self.file.content(), &mut self.cores);
        let mut incomplete = odd_text::in_file(lacks, self.file.content(), format_args!("/{FILE}"));
        incomplete |= Incomplete::MISSING.unless(kinds & self.kinds == self.kinds);
        self.kinds |= kinds;
        let cores = builder.create_vector(&self.cores.counts);
        let root = Softirqs::create(builder, &SoftirqsArgs { cores: Some(cores) });
        builder.finish_minimal(root);
        incomplete
    }
}

/// Parses all values present. Returns the kinds found, and the reasons why values are missing.
fn parse(content: &[u8], cores: &mut SoftirqColumns) -> (u32, Incomplete) {
    let (mut lines, mut incomplete) = text::whole_lines(content);
    let head = columns(lines.next().unwrap_or_default(), cores);
    incomplete |= head;
    let mut kinds = 0;
    for line in lines {
        let mut fields = text::fields(line);
        let Some(name) = fields.next().and_then(|name| name.strip_suffix(b":")) else {
            incomplete |= odd_text::unreadable(line);
            continue;
        };
        let Some((kind, (_, set))) = KINDS.iter().enumerate().find(|(_, (known, _))| *known == name) else {
            continue;
        };
        kinds |= 1 << kind;
        for core in &mut cores.counts {
            set(core, text::value(fields.next(), &mut incomplete));
        }
        // If there are more counts than cores, they cannot be assigned to cores.
        if fields.next().is_some() && head.is_none() {
            incomplete |= odd_text::unreadable(line);
        }
    }
    incomplete |= Incomplete::CUT.unless(kinds != 0 && !cores.counts.is_empty());
    let mut wanted = cores.wanted.iter();
    cores.counts.retain(|_| wanted.next().is_some_and(|is_wanted| *is_wanted));
    (kinds, incomplete)
}

/// Parses the numbers of the cores. If one of these numbers is invalid, all of them are discarded.
fn columns(line: &[u8], cores: &mut SoftirqColumns) -> Incomplete {
    cores.counts.clear();
    cores.wanted.clear();
    for (place, name) in text::fields(line).enumerate() {
        let Some(core) = name.strip_prefix(b"CPU").and_then(text::number) else {
            cores.counts.clear();
            return odd_text::unreadable(name);
        };
        if place == CORES_MAX {
            return Incomplete::TOO_MANY;
        }
        let mut counts = CoreSoftirqs([0xFF; size_of::<CoreSoftirqs>()]); // ABSENT in every counter
        counts.set_core(core);
        cores.counts.push(counts);
        cores.wanted.push(cores.filter.matches(place, name));
    }
    Incomplete::NONE
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sources::tests::{
        assert_damage_is_marked, fixture, open_sampler, sample_this_host, sample_under,
    };
    use crate::sources::text::ABSENT;

    const TEXT: &[u8] =
        b"        CPU0       CPU3       \n     HI:   1   21\n  TIMER:  2  22\n NET_TX: 3 23\n\
        NET_RX: 4 24\n BLOCK: 5 25\n IRQ_POLL: 6 26\n LATER: 9 9\n TASKLET: 7 27\n SCHED: 8 28\n\
        HRTIMER: 9 29\n    RCU: 10 30\n";

    /// Returns the values that a naive parser finds, by kind, with one value per core.
    fn naive(text: &str) -> BTreeMap<String, Vec<u64>> {
        let lines = text.lines().skip(1).map(|line| line.split_once(':').unwrap());
        lines
            .map(|(name, counts)| {
                let counts = counts.split_whitespace().map(|count| count.parse().unwrap()).collect();
                (name.trim().to_owned(), counts)
            })
            .collect()
    }

    fn by_kind(cores: &[CoreSoftirqs]) -> BTreeMap<String, Vec<u64>> {
        type GetCount = fn(&CoreSoftirqs) -> u64;
        let kinds: [(&str, GetCount); 10] = [
            ("HI", CoreSoftirqs::hi),
            ("TIMER", CoreSoftirqs::timer),
            ("NET_TX", CoreSoftirqs::net_tx),
            ("NET_RX", CoreSoftirqs::net_rx),
            ("BLOCK", CoreSoftirqs::block),
            ("IRQ_POLL", CoreSoftirqs::irq_poll),
            ("TASKLET", CoreSoftirqs::tasklet),
            ("SCHED", CoreSoftirqs::sched),
            ("HRTIMER", CoreSoftirqs::hrtimer),
            ("RCU", CoreSoftirqs::rcu),
        ];
        kinds.map(|(name, get)| (name.to_owned(), cores.iter().map(get).collect())).into()
    }

    // Proves that every value ends up in its field, whatever the order of the kinds.
    #[test]
    fn every_value_is_in_its_place() {
        let mut cores = SoftirqColumns::default();
        let text = String::from_utf8(TEXT.to_vec()).unwrap();
        let (head, lines) = text.split_once('\n').unwrap();
        let backwards: Vec<&str> = lines.lines().rev().collect();
        let backwards = format!("{head}\n{}\n", backwards.join("\n")).replace("IRQ_POLL", "BLOCK_IOPOLL");
        for text in [text.as_str(), &backwards] {
            assert_eq!(parse(text.as_bytes(), &mut cores).1, Incomplete::NONE);
            assert_eq!(cores.counts[0], CoreSoftirqs::new(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
            assert_eq!(cores.counts[1], CoreSoftirqs::new(3, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30));
        }
    }

    // Proves that damaged text never causes a panic, and that truncated files and lines with too
    // many or too few counts are always marked.
    #[test]
    fn damaged_text_is_marked() {
        let all = parse(TEXT, &mut SoftirqColumns::default()).0;
        assert_damage_is_marked(TEXT, |text| {
            let (kinds, incomplete) = parse(text, &mut SoftirqColumns::default());
            incomplete.is_none() && kinds == all
        });
        let mut cores = SoftirqColumns::default();
        let (_, incomplete) = parse(b" CPU0 CPU1\n HI: 1\n RCU: 1 2 3\n", &mut cores);
        assert_eq!(incomplete, Incomplete::CUT | Incomplete::UNREADABLE);
        assert_eq!((cores.counts[0].hi(), cores.counts[1].hi(), cores.counts[1].rcu()), (1, ABSENT, 2));
        let (_, incomplete) = parse(b" CPU0 CPUx\n HI: 1 2\n", &mut cores);
        assert!(cores.counts.is_empty() && incomplete == Incomplete::UNREADABLE | Incomplete::CUT);
    }

    // Proves that patterns skip cores, and that the others keep their counts.
    #[test]
    fn patterns_leave_cores_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), TEXT).unwrap();
        let (payload, incomplete) = sample_under(&SPEC, "exclude = [\"CPU0\"]", folder.path());
        assert_eq!(incomplete, Incomplete::NONE);
        let sample = flatbuffers::root::<Softirqs<'_>>(&payload).unwrap();
        assert_eq!(sample.cores().len(), 1);
        assert_eq!((sample.cores().get(0).core(), sample.cores().get(0).rcu()), (3, 30));
    }

    // Proves that a kind that disappears is marked, and that a kind that never existed is not.
    #[test]
    fn a_lost_kind_is_marked() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), "CPU0\nHI: 1\nRCU: 2\n").unwrap();
        let mut sampler = open_sampler(&SPEC, "", folder.path()).unwrap();
        for (text, expected) in [
            ("CPU0\nHI: 1\nRCU: 2\n", Incomplete::NONE),
            ("CPU0\nHI: 1\n", Incomplete::MISSING),
            ("CPU0 CPU1\nHI: 1 2\nRCU: 2 3\n", Incomplete::NONE),
        ] {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            sampler.read().unwrap();
            assert_eq!(sampler.build(0, &mut FlatBufferBuilder::new()), expected);
        }
    }

    // Proves agreement with a naive parser on this host, which the test runs before and after the
    // sample. Counters only grow.
    #[test]
    fn agrees_with_a_naive_reading() {
        let before = naive(&std::fs::read_to_string("/proc/softirqs").unwrap());
        let payload = sample_this_host(&SPEC);
        let after = naive(&std::fs::read_to_string("/proc/softirqs").unwrap());
        let sample = flatbuffers::root::<Softirqs<'_>>(&payload).unwrap();
        let cores: Vec<CoreSoftirqs> = sample.cores().iter().copied().collect();
        for (kind, ours) in by_kind(&cores) {
            assert_eq!(ours.len(), before[&kind].len());
            for (at, value) in ours.iter().enumerate() {
                assert!(before[&kind][at] <= *value && *value <= after[&kind][at], "{kind} of core {at}");
            }
        }
    }

    // Proves that the files captured from a host are read completely, and that a naive parser finds
    // the same values.
    #[test]
    fn a_captured_host_is_read() {
        let Some(text) = fixture(FILE) else { return };
        let mut cores = SoftirqColumns::default();
        assert_eq!(parse(&text, &mut cores).1, Incomplete::NONE);
        assert_eq!(by_kind(&cores.counts), naive(std::str::from_utf8(&text).unwrap()));
    }
}
