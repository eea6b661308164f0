//! `cpu`: the time that processors spend in each state, from /proc/stat. The states are user, nice,
//! system, idle, iowait, irq, softirq, steal and guest. The source also counts context switches.

use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::{HostFile, RecordStructure};
use flatcap_schemas::host::{CoreTimes, Cpu, CpuArgs, CpuTimes};

use super::cursor::Cursor;
use super::text::{self, ABSENT};
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{CachedNameFilter, Incomplete, OpenedSampler, ReadError, Sampler, odd_text};

const FILE: &str = "proc/stat";
/// Maximum number of cores in one sample. Linux does not support more cores.
const CORES_MAX: usize = 8192;
/// Mask with one bit for each kind of line that has one number.
const ALL_LINES: u8 = (1 << 7) - 1;

pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "cpu",
    about: "Processor time by core and state, context switches, interrupts.",
    root: "flatcap.host.Cpu",
    schema: include_bytes!("../../../../generated/host/cpu.bfbs"),
    files: &[FILE],
    // Samples at 100 Hz show changes that a tool with one sample per second averages out. A sample
    // costs 6 us.
    period: Duration::from_millis(10),
    is_on_by_default: true,
    refresh: "times in steps of 10 ms, counts immediately",
    selects: "cores, such as cpu0",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    Ok(OpenedSampler::built(CpuSampler {
        file: host_file(context.host, FILE, "")?.with_records(RecordStructure::One),
        filter: CachedNameFilter::new(context.selection()),
        cores: Vec::new(),
    }))
}

#[derive(Debug)]
struct CpuSampler {
    file: HostFile,
    filter: CachedNameFilter,
    cores: Vec<CoreTimes>, // reused
}

/// The values that apply to the whole host, not to one core.
#[derive(Debug, PartialEq)]
struct CpuTotals {
    times: CpuTimes,
    context_switches: u64,
    forks: u64,
    interrupts: u64,
    softirqs: u64,
    running: u64,
    blocked: u64,
    boot_time: u64,
}

impl Sampler for CpuSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let (totals, lacks) = parse(self.file.content(), &mut self.filter, &mut self.cores);
        let incomplete = odd_text::in_file(lacks, self.file.content(), format_args!("/{FILE}"));
        let cores = builder.create_vector(&self.cores);
        let root = Cpu::create(
            builder,
            &CpuArgs {
                total: Some(&totals.times),
                context_switches: totals.context_switches,
                forks: totals.forks,
                interrupts: totals.interrupts,
                softirqs: totals.softirqs,
                running: totals.running,
                blocked: totals.blocked,
                boot_time: totals.boot_time,
                cores: Some(cores),
            },
        );
        builder.finish_minimal(root);
        incomplete
    }
}

/// Parses all values present, and returns the reasons why others are missing.
fn parse(
    content: &[u8],
    filter: &mut CachedNameFilter,
    cores: &mut Vec<CoreTimes>,
) -> (CpuTotals, Incomplete) {
    cores.clear();
    let mut seen = 0;
    let (mut cursor, mut lacks) = Cursor::of(content);
    let mut times = None;
    let [mut context_switches, mut forks, mut interrupts, mut softirqs] = [ABSENT; 4];
    let [mut running, mut blocked, mut boot_time] = [ABSENT; 3];
    let mut found = 0;
    while !cursor.is_at_end() {
        let name = cursor.word().unwrap_or_default();
        // The bit of `found` that represents this line, and the destination of the line's number.
        let place = match name {
            b"intr" => Some((&mut interrupts, 0)),
            b"ctxt" => Some((&mut context_switches, 1)),
            b"btime" => Some((&mut boot_time, 2)),
            b"processes" => Some((&mut forks, 3)),
            b"procs_running" => Some((&mut running, 4)),
            b"procs_blocked" => Some((&mut blocked, 5)),
            b"softirq" => Some((&mut softirqs, 6)),
            _ => None,
        };
        if let Some((place, line)) = place {
            *place = cursor.wrapped_number(&mut lacks);
            found |= 1 << line;
        } else if name == b"cpu" {
            times = Some(cpu_times(&mut cursor, &mut lacks));
        } else if let Some(core) = name.strip_prefix(b"cpu") {
            if filter.matches(seen, name) {
                push_core(cores, core, &mut cursor, &mut lacks);
            }
            seen += 1;
        }
        cursor.next_line();
    }
    // A line whose number cannot be read is treated as present.
    let is_there = times.is_some() && seen > 0 && found == ALL_LINES;
    lacks |= Incomplete::CUT.unless(is_there);
    let times = times.unwrap_or_else(|| cpu_times(&mut Cursor::of(b"").0, &mut lacks));
    let totals =
        CpuTotals { times, context_switches, forks, interrupts, softirqs, running, blocked, boot_time };
    (totals, lacks)
}

fn push_core(cores: &mut Vec<CoreTimes>, core: &[u8], cursor: &mut Cursor<'_>, lacks: &mut Incomplete) {
    match text::number(core) {
        None => *lacks |= odd_text::unreadable(core),
        Some(_) if cores.len() == CORES_MAX => *lacks |= Incomplete::TOO_MANY,
        Some(core) => cores.push(CoreTimes::new(core, &cpu_times(cursor, lacks))),
    }
}

fn cpu_times(cursor: &mut Cursor<'_>, lacks: &mut Incomplete) -> CpuTimes {
    let mut own = Incomplete::NONE;
    let [user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice] = cursor.numbers(&mut own);
    // Kernels before 2.6.33 have no value guest_nice, and kernels before 2.6.24 have no value
    // guest.
    if own == Incomplete::CUT && steal != ABSENT {
        own = Incomplete::NONE;
        let _complete = odd_text::take();
    }
    *lacks |= own;
    CpuTimes::new(user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, fixture, sample_this_host, sample_under};

    const TEXT: &[u8] = b"cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 11 12 13 14 15 16 17 18 19 20\n\
        cpu3 21 22 23 24 25 26 27 28 29 30\nintr 31 1 1\nctxt 32\nbtime 33\nprocesses 34\n\
        procs_running 35\nprocs_blocked 36\nsoftirq 37 1 1\n";

    // Proves that every value ends up in its field, and that cores keep their numbers.
    #[test]
    fn every_value_is_in_its_place() {
        let mut cores = Vec::new();
        let (totals, incomplete) = parse(TEXT, &mut CachedNameFilter::default(), &mut cores);
        assert!(incomplete.is_none());
        assert_eq!(totals.times, CpuTimes::new(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
        assert_eq!(cores.len(), 2);
        assert_eq!(cores[1], CoreTimes::new(3, &CpuTimes::new(21, 22, 23, 24, 25, 26, 27, 28, 29, 30)));
        let counts = (totals.interrupts, totals.context_switches, totals.boot_time, totals.forks);
        assert_eq!(counts, (31, 32, 33, 34));
        assert_eq!((totals.running, totals.blocked, totals.softirqs), (35, 36, 37));
    }

    // Proves that cores are selected by name, and that the total still covers all cores.
    #[test]
    fn cores_are_chosen_by_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), TEXT).unwrap();
        for (keys, expected) in [("exclude = [\"cpu0\"]", &[3][..]), ("include = [\"eth*\"]", &[])] {
            let (payload, incomplete) = sample_under(&SPEC, keys, folder.path());
            let cpu = flatbuffers::root::<Cpu<'_>>(&payload).unwrap();
            let cores: Vec<u64> = cpu.cores().iter().map(CoreTimes::core).collect();
            assert_eq!((cores.as_slice(), cpu.total().user(), incomplete), (expected, 1, Incomplete::NONE));
        }
    }

    // Proves that the lines of older kernels, which have eight or nine times, are complete. A line
    // with fewer times is marked.
    #[test]
    fn older_kernels_have_fewer_times() {
        let text = String::from_utf8(TEXT.to_vec()).unwrap();
        let _earlier = odd_text::take();
        for (kept, expected) in [(10, true), (9, true), (8, true), (7, false), (3, false)] {
            let line = |line: &str| match line.strip_prefix("cpu") {
                Some(_) => line.split_whitespace().take(kept + 1).collect::<Vec<_>>().join(" ") + "\n",
                None => format!("{line}\n"),
            };
            let text: String = text.lines().map(line).collect();
            let mut cores = Vec::new();
            let (totals, incomplete) = parse(text.as_bytes(), &mut CachedNameFilter::default(), &mut cores);
            assert_eq!(incomplete.is_none(), expected, "{text}");
            let guest = (totals.times.guest(), totals.times.guest_nice());
            let absent = |at, value| if kept >= at { value } else { ABSENT };
            assert_eq!(guest, (absent(9, 9), absent(10, 10)));
            assert_eq!((cores.len(), totals.times.user(), totals.running), (2, 1, 35));
            assert_eq!(odd_text::take().is_none(), expected);
        }
    }

    // Proves that damaged text never causes a panic and that a truncated file is always marked.
    #[test]
    fn damaged_text_is_marked() {
        assert_damage_is_marked(TEXT, |text| {
            parse(text, &mut CachedNameFilter::default(), &mut Vec::new()).1.is_none()
        });
        let (totals, incomplete) = parse(
            b"cpu 1 x 99999999999999999999 4 5 6 7 8 9 10\n",
            &mut CachedNameFilter::default(),
            &mut Vec::new(),
        );
        assert_eq!(incomplete, Incomplete::UNREADABLE | Incomplete::CUT);
        assert_eq!((totals.times.user(), totals.times.nice(), totals.times.system()), (1, ABSENT, ABSENT));
    }

    // Proves that a count that the kernel prints as negative is read modulo 2^32. Any other invalid
    // number makes only its own value absent, and is not reported as a truncated file. Its text is
    // noted.
    #[test]
    fn an_odd_number_costs_only_itself() {
        let text = String::from_utf8(TEXT.to_vec()).unwrap();
        let read = |processes: &str| {
            let text = text.replace("processes 34", processes);
            let parsed = parse(text.as_bytes(), &mut CachedNameFilter::default(), &mut Vec::new());
            (parsed.0.forks, parsed.0.running, parsed.1)
        };
        assert_eq!(read("processes -2045677862"), (2_249_289_434, 35, Incomplete::NONE));
        assert_eq!(read("processes -1"), (u64::from(u32::MAX), 35, Incomplete::NONE));
        let _earlier = odd_text::take();
        for odd in ["processes -2147483649", "processes -0", "processes -", "processes x", "processes 1.5"] {
            assert_eq!(read(odd), (ABSENT, 35, Incomplete::UNREADABLE), "{odd}");
            assert_eq!(odd_text::take().unwrap().to_string(), format!("line 7: \"{odd}\""));
        }
    }

    // Proves that the payload passes the verifier and agrees with a naive parser. Between the two
    // reads, counters may only grow.
    #[test]
    fn agrees_with_a_naive_reading() {
        let payload = sample_this_host(&SPEC);
        let cpu = flatbuffers::root::<Cpu<'_>>(&payload).unwrap();
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let naive = |name: &str| -> u64 {
            let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let cores = text.lines().filter(|line| line.starts_with("cpu")).count() - 1;
        assert_eq!(cpu.cores().len(), cores);
        assert_eq!(cpu.boot_time(), naive("btime"));
        for (ours, theirs) in [
            (cpu.context_switches(), naive("ctxt")),
            (cpu.forks(), naive("processes")),
            (cpu.total().user(), naive("cpu")),
        ] {
            assert!(ours <= theirs && theirs - ours < 1_000_000, "{ours} {theirs}");
        }
    }

    // Proves that the files captured from a host are read completely.
    #[test]
    fn a_captured_host_is_read() {
        let Some(text) = fixture(FILE) else { return };
        let mut cores = Vec::new();
        let (totals, _) = parse(&text, &mut CachedNameFilter::default(), &mut cores);
        assert!(cores.len() >= 2 && totals.context_switches != ABSENT);
    }
}
