//! `schedstat`: the time that tasks ran and the time that they waited for a processor (run queue
//! latency), by core, from /proc/schedstat.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostFile;
use flatcap_schemas::host::{CoreSchedule, Schedstat, SchedstatArgs};

use super::text::{self, ABSENT};
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{CachedNameFilter, Incomplete, OpenedSampler, ReadError, Sampler, odd_text};

const FILE: &str = "proc/schedstat";
const VERSION_HINT: &str = ": 15 to 17 are supported";
/// Maximum number of cores in one sample. Linux does not support more cores.
const CORES_MAX: usize = 8192;
/// Versions of the file in which the lines of cores have the same columns. Linux 2.6.39 and later
/// write these versions. In another version, the columns may have any meaning.
const VERSIONS: std::ops::RangeInclusive<u64> = 15..=17;
const COUNTERS: usize = 9;

/// `include` and `exclude` match cores by their names in the file, such as `cpu0`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "schedstat",
    about: "Run and wait time of each core.",
    root: "flatcap.host.Schedstat",
    schema: include_bytes!("../../../../generated/host/schedstat.bfbs"),
    files: &[FILE],
    // The scheduler's totals change at every context switch, and are used as rates.
    period: Duration::from_millis(100),
    refresh: "at each task switch",
    selects: "cores, such as cpu0",
    hint: ": this kernel was built without scheduler statistics (CONFIG_SCHEDSTATS)",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let file = host_file(context.host, FILE, SPEC.hint)?;
    let mut sampler =
        SchedstatSampler { file, cores: Vec::new(), filter: CachedNameFilter::new(context.selection()) };
    let (head, _) = parse(sampler.file.content(), &mut sampler.cores, &mut sampler.filter);
    if !VERSIONS.contains(&head.version) {
        let error = Error::new(ErrorKind::InvalidData, "unsupported version");
        return Err(Unavailable { file: FILE, error, hint: VERSION_HINT });
    }
    Ok(OpenedSampler::built(sampler))
}

#[derive(Debug)]
struct SchedstatSampler {
    file: HostFile,
    cores: Vec<CoreSchedule>, // reused
    filter: CachedNameFilter,
}

/// The header lines, which precede the lines of the cores.
#[derive(Debug, PartialEq)]
struct SchedstatHeader {
    version: u64,
    timestamp: u64,
}

impl Sampler for SchedstatSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let (SchedstatHeader { version, timestamp }, lacks) =
            parse(self.file.content(), &mut self.cores, &mut self.filter);
        let incomplete = odd_text::in_file(lacks, self.file.content(), format_args!("/{FILE}"));
        let cores = builder.create_vector(&self.cores);
        let root = Schedstat::create(builder, &SchedstatArgs { version, timestamp, cores: Some(cores) });
        builder.finish_minimal(root);
        incomplete
    }
}

/// Parses all values present, and returns the reasons why others are missing. The lines of cores
/// are used only if the version of the file is supported.
fn parse(
    content: &[u8],
    cores: &mut Vec<CoreSchedule>,
    filter: &mut CachedNameFilter,
) -> (SchedstatHeader, Incomplete) {
    cores.clear();
    let (lines, mut incomplete) = text::whole_lines(content);
    let mut head = SchedstatHeader { version: ABSENT, timestamp: ABSENT };
    let mut place = 0;
    for line in lines {
        let mut fields = text::fields(line);
        match fields.next() {
            Some(b"version") => head.version = text::value(fields.next(), &mut incomplete),
            Some(b"timestamp") => head.timestamp = text::value(fields.next(), &mut incomplete),
            Some(name) if name.starts_with(b"cpu") => {
                if VERSIONS.contains(&head.version) && filter.matches(place, name) {
                    incomplete |= push_core(cores, name, fields);
                }
                place += 1;
            }
            _ => {}
        }
    }
    if head.version != ABSENT && !VERSIONS.contains(&head.version) {
        incomplete |= Incomplete::UNREADABLE;
    }
    let is_there = head.version != ABSENT && head.timestamp != ABSENT && place > 0;
    (head, incomplete | Incomplete::CUT.unless(is_there))
}

fn push_core<'a>(
    cores: &mut Vec<CoreSchedule>,
    name: &[u8],
    mut fields: impl Iterator<Item = &'a [u8]>,
) -> Incomplete {
    let Some(core) = name.strip_prefix(b"cpu").and_then(text::number) else {
        return odd_text::unreadable(name);
    };
    if cores.len() == CORES_MAX {
        return Incomplete::TOO_MANY;
    }
    // The second counter is not used, because it is 0 since Linux 2.6.23.
    let ([yields, _, schedules, to_idle, wake_ups, local, run_time, wait_time, timeslices], mut incomplete) =
        text::numbers::<COUNTERS>(fields.by_ref());
    // A tenth counter could mean that the first nine counters have another order.
    if let Some(field) = fields.next() {
        incomplete |= odd_text::unreadable(field);
    }
    cores.push(CoreSchedule::new(
        core, yields, schedules, to_idle, wake_ups, local, run_time, wait_time, timeslices,
    ));
    incomplete
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, fixture, open_sampler, sample_under};

    const TEXT: &[u8] = b"version 15\ntimestamp 14\ncpu0 1 0 3 4 5 6 7 8 9\n\
        domain0 00000000,00000003 212 210 186\ncpu3 11 0 13 14 15 16 17 18 19\n";

    fn parse_all(text: &[u8], cores: &mut Vec<CoreSchedule>) -> (SchedstatHeader, Incomplete) {
        parse(text, cores, &mut CachedNameFilter::default())
    }

    // Proves that every value ends up in its field, for each version.
    #[test]
    fn every_value_is_in_its_place() {
        let mut cores = Vec::new();
        for (version, domain) in [("15", "domain0 03"), ("16", "domain0 03"), ("17", "domain0 MC 03")] {
            let text = String::from_utf8(TEXT.to_vec()).unwrap();
            let text = text.replace("15\n", &format!("{version}\n")).replace("domain0", domain);
            let (head, incomplete) = parse_all(text.as_bytes(), &mut cores);
            assert_eq!((head.timestamp, head.version.to_string().as_str()), (14, version));
            assert_eq!(incomplete, Incomplete::NONE);
            assert_eq!(cores.len(), 2);
            assert_eq!(cores[0], CoreSchedule::new(0, 1, 3, 4, 5, 6, 7, 8, 9));
            assert_eq!(cores[1], CoreSchedule::new(3, 11, 13, 14, 15, 16, 17, 18, 19));
        }
    }

    // Proves that damaged text never causes a panic and a truncated file is always marked. A file
    // that ends after its first core looks like the file of a host with one core, so the test
    // counts the cores.
    #[test]
    fn damaged_text_is_marked() {
        assert_damage_is_marked(TEXT, |text| {
            let mut cores = Vec::new();
            parse_all(text, &mut cores).1.is_none() && cores.len() == 2
        });
        let mut cores = Vec::new();
        let (_, incomplete) =
            parse_all(b"version 15\ntimestamp 1\ncpu0 1 x 99999999999999999999 4 5 6\n", &mut cores);
        assert_eq!(incomplete, Incomplete::UNREADABLE | Incomplete::CUT);
        assert_eq!(cores[0], CoreSchedule::new(0, 1, ABSENT, 4, 5, 6, ABSENT, ABSENT, ABSENT));
        let (_, incomplete) = parse_all(b"version 15\ntimestamp 1\ncpu0 1 2 3 4 5 6 7 8 9 10\n", &mut cores);
        assert_eq!(incomplete, Incomplete::UNREADABLE);
    }

    // Proves that unsupported versions are refused and their numbers are not used.
    #[test]
    fn other_versions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        for version in ["14", "18", "x"] {
            let text = String::from_utf8(TEXT.to_vec()).unwrap().replace("15\n", &format!("{version}\n"));
            let mut cores = Vec::new();
            let (_, incomplete) = parse_all(text.as_bytes(), &mut cores);
            assert!(cores.is_empty() && !incomplete.is_none(), "{version}");
            std::fs::write(folder.path().join(FILE), text).unwrap();
            let error = open_sampler(&SPEC, "", folder.path()).unwrap_err().to_string();
            assert_eq!(error, "/proc/schedstat: unsupported version: 15 to 17 are supported");
        }
    }

    // Proves that cores come and go, and that patterns exclude some cores.
    #[test]
    fn cores_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), TEXT).unwrap();
        let mut sampler = open_sampler(&SPEC, "exclude = [\"cpu1\"]", folder.path()).unwrap();
        let one = b"version 15\ntimestamp 15\ncpu1 2 0 2 2 2 2 2 2 2\ncpu3 21 0 23 24 25 26 27 28 29\n";
        for (text, expected) in [(TEXT, vec![0, 3]), (&one[..], vec![3]), (TEXT, vec![0, 3])] {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            sampler.read().unwrap();
            let mut builder = FlatBufferBuilder::new();
            assert_eq!(sampler.build(0, &mut builder), Incomplete::NONE);
            let sample = flatbuffers::root::<Schedstat<'_>>(builder.finished_data()).unwrap();
            let cores: Vec<u64> = sample.cores().iter().map(CoreSchedule::core).collect();
            assert_eq!(cores, expected);
        }
    }

    // Proves that the files captured from a host are read completely, and that a naive parser finds
    // the same values.
    #[test]
    fn a_captured_host_is_read() {
        let Some(captured) = fixture("./proc/schedstat") else { return };
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), &captured).unwrap();
        let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
        assert_eq!(incomplete, Incomplete::NONE);
        let sample = flatbuffers::root::<Schedstat<'_>>(&payload).unwrap();
        let text = String::from_utf8(captured).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let cores: Vec<&Vec<&str>> = lines.iter().filter(|line| line[0].starts_with("cpu")).collect();
        assert_eq!(sample.timestamp().to_string(), lines[1][1]);
        assert_eq!(sample.cores().len(), cores.len());
        for (ours, theirs) in sample.cores().iter().zip(cores) {
            assert_eq!(format!("cpu{}", ours.core()), theirs[0]);
            let values = [ours.yields(), 0, ours.schedules(), ours.schedules_to_idle(), ours.wake_ups()];
            let more = [ours.wake_ups_local(), ours.run_time(), ours.wait_time(), ours.timeslices()];
            let ours: Vec<String> = values.iter().chain(&more).map(u64::to_string).collect();
            assert_eq!(ours, theirs[1..]);
        }
    }
}
