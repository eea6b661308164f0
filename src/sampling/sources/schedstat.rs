//! `schedstat`: how long tasks ran and how long they waited for their turn, by core, from /proc/schedstat.

use std::io::{Error, ErrorKind};

use flatbuffers::FlatBufferBuilder;

use super::text::{self, ABSENT};
use super::{Entry, Opening, Unavailable, host_file};
use crate::os::host::HostFile;
use crate::sampling::{Chosen, Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{CoreSchedule, Schedstat, SchedstatArgs};

const FILE: &str = "proc/schedstat";
const HINT: &str = ": this kernel was built without scheduler statistics (CONFIG_SCHEDSTATS)";
const HINT_VERSION: &str = ": 15 to 17 are known";
/// Most cores in one sample; Linux is built for at most as many.
const CORES_MAX: usize = 8192;
/// Versions whose lines of cores are alike: Linux 2.6.39 and later. Another one may mean anything.
const VERSIONS: std::ops::RangeInclusive<u64> = 15..=17;
const COUNTERS: usize = 9;

/// Patterns of its configuration match cores by their names in the file: `cpu0`.
pub(super) const ENTRY: Entry = Entry {
    name: "schedstat",
    root: "flatcap.host.Schedstat",
    schema: include_bytes!("../../../generated/host/schedstat.bfbs"),
    files: &[FILE],
    refresh: "at each switch of tasks",
    selects: "cores, such as cpu0",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let file = host_file(opening.host, FILE, HINT)?;
    let mut sampler = SchedstatSampler { file, cores: Vec::new(), chosen: Chosen::new(opening.selection()) };
    let (head, _) = parse(sampler.file.content(), &mut sampler.cores, &mut sampler.chosen);
    if !VERSIONS.contains(&head.version) {
        let error = Error::new(ErrorKind::InvalidData, "a version of the file that is not known");
        return Err(Unavailable { file: FILE, error, hint: HINT_VERSION });
    }
    Ok(Opened::built(sampler))
}

#[derive(Debug)]
struct SchedstatSampler {
    file: HostFile,
    cores: Vec<CoreSchedule>, // reused
    chosen: Chosen,
}

/// What stands in front of the cores.
#[derive(Debug, PartialEq)]
struct Head {
    version: u64,
    timestamp: u64,
}

impl Sampler for SchedstatSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let (Head { version, timestamp }, shortfall) =
            parse(self.file.content(), &mut self.cores, &mut self.chosen);
        let cores = builder.create_vector(&self.cores);
        let root = Schedstat::create(builder, &SchedstatArgs { version, timestamp, cores: Some(cores) });
        builder.finish_minimal(root);
        shortfall
    }
}

/// Reads everything that is there; says what is not. No line is believed unless the version is known.
fn parse(content: &[u8], cores: &mut Vec<CoreSchedule>, chosen: &mut Chosen) -> (Head, Shortfall) {
    cores.clear();
    let (lines, mut shortfall) = text::whole_lines(content);
    let mut head = Head { version: ABSENT, timestamp: ABSENT };
    let mut place = 0;
    for line in lines {
        let mut fields = text::fields(line);
        match fields.next() {
            Some(b"version") => head.version = text::value(fields.next(), &mut shortfall),
            Some(b"timestamp") => head.timestamp = text::value(fields.next(), &mut shortfall),
            Some(name) if name.starts_with(b"cpu") => {
                if VERSIONS.contains(&head.version) && chosen.wants(place, name) {
                    shortfall |= push_core(cores, name, fields);
                }
                place += 1;
            }
            _ => {}
        }
    }
    if head.version != ABSENT && !VERSIONS.contains(&head.version) {
        shortfall |= Shortfall::UNREADABLE;
    }
    let is_there = head.version != ABSENT && head.timestamp != ABSENT && place > 0;
    (head, shortfall | Shortfall::CUT.unless(is_there))
}

fn push_core<'a>(
    cores: &mut Vec<CoreSchedule>,
    name: &[u8],
    mut fields: impl Iterator<Item = &'a [u8]>,
) -> Shortfall {
    let Some(core) = name.strip_prefix(b"cpu").and_then(text::number) else { return Shortfall::UNREADABLE };
    if cores.len() == CORES_MAX {
        return Shortfall::TOO_MANY;
    }
    // The second one is 0 since Linux 2.6.23.
    let ([yields, _, schedules, to_idle, wake_ups, local, run_time, wait_time, timeslices], mut shortfall) =
        text::numbers::<COUNTERS>(fields.by_ref());
    // A tenth one would make another order of the first nine thinkable.
    shortfall |= Shortfall::UNREADABLE.unless(fields.next().is_none());
    cores.push(CoreSchedule::new(
        core, yields, schedules, to_idle, wake_ups, local, run_time, wait_time, timeslices,
    ));
    shortfall
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{assert_composed, fixture, opened, sampled_under};

    const TEXT: &[u8] = b"version 15\ntimestamp 14\ncpu0 1 0 3 4 5 6 7 8 9\n\
        domain0 00000000,00000003 212 210 186\ncpu3 11 0 13 14 15 16 17 18 19\n";

    fn whole(text: &[u8], cores: &mut Vec<CoreSchedule>) -> (Head, Shortfall) {
        parse(text, cores, &mut Chosen::default())
    }

    // Goal: every value is in its place, for each version. Method: values all different; domains as each version has them.
    #[test]
    fn every_value_is_in_its_place() {
        let mut cores = Vec::new();
        for (version, domain) in [("15", "domain0 03"), ("16", "domain0 03"), ("17", "domain0 MC 03")] {
            let text = String::from_utf8(TEXT.to_vec()).unwrap();
            let text = text.replace("15\n", &format!("{version}\n")).replace("domain0", domain);
            let (head, shortfall) = whole(text.as_bytes(), &mut cores);
            assert_eq!((head.timestamp, head.version.to_string().as_str()), (14, version));
            assert_eq!(shortfall, Shortfall::NONE);
            assert_eq!(cores.len(), 2);
            assert_eq!(cores[0], CoreSchedule::new(0, 1, 3, 4, 5, 6, 7, 8, 9));
            assert_eq!(cores[1], CoreSchedule::new(3, 11, 13, 14, 15, 16, 17, 18, 19));
        }
    }

    // Goal: damaged text never panics, and a cut file is never called whole. Method: every cut, every byte replaced. A file
    // that ends after its first core looks like that of a host with one core: the cores are counted.
    #[test]
    fn damaged_text_is_marked() {
        assert_composed(TEXT, |text| {
            let mut cores = Vec::new();
            whole(text, &mut cores).1.is_none() && cores.len() == 2
        });
        let mut cores = Vec::new();
        let (_, shortfall) =
            whole(b"version 15\ntimestamp 1\ncpu0 1 x 99999999999999999999 4 5 6\n", &mut cores);
        assert_eq!(shortfall, Shortfall::UNREADABLE | Shortfall::CUT);
        assert_eq!(cores[0], CoreSchedule::new(0, 1, ABSENT, 4, 5, 6, ABSENT, ABSENT, ABSENT));
        let (_, shortfall) = whole(b"version 15\ntimestamp 1\ncpu0 1 2 3 4 5 6 7 8 9 10\n", &mut cores);
        assert_eq!(shortfall, Shortfall::UNREADABLE);
    }

    // Goal: numbers of a version that is not known are not taken for something. Method: versions around the known ones; open.
    #[test]
    fn other_versions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        for version in ["14", "18", "x"] {
            let text = String::from_utf8(TEXT.to_vec()).unwrap().replace("15\n", &format!("{version}\n"));
            let mut cores = Vec::new();
            let (_, shortfall) = whole(text.as_bytes(), &mut cores);
            assert!(cores.is_empty() && !shortfall.is_none(), "{version}");
            std::fs::write(folder.path().join(FILE), text).unwrap();
            let error = opened(&ENTRY, "", folder.path()).unwrap_err().to_string();
            assert_eq!(error, "/proc/schedstat: a version of the file that is not known: 15 to 17 are known");
        }
    }

    // Goal: cores come and go, and patterns leave some out. Method: a file that changes between two samples.
    #[test]
    fn cores_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), TEXT).unwrap();
        let mut sampler = opened(&ENTRY, "exclude = [\"cpu1\"]", folder.path()).unwrap();
        let one = b"version 15\ntimestamp 15\ncpu1 2 0 2 2 2 2 2 2 2\ncpu3 21 0 23 24 25 26 27 28 29\n";
        for (text, expected) in [(TEXT, vec![0, 3]), (&one[..], vec![3]), (TEXT, vec![0, 3])] {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            sampler.read().unwrap();
            let mut builder = FlatBufferBuilder::new();
            assert_eq!(sampler.build(0, &mut builder), Shortfall::NONE);
            let sample = flatbuffers::root::<Schedstat<'_>>(builder.finished_data()).unwrap();
            let cores: Vec<u64> = sample.cores().iter().map(CoreSchedule::core).collect();
            assert_eq!(cores, expected);
        }
    }

    // Goal: a captured host is read whole. Method: a naive parser beside ours, through the sampler.
    #[test]
    fn a_captured_host_is_read() {
        let Some(captured) = fixture("./proc/schedstat") else { return };
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join(FILE), &captured).unwrap();
        let (payload, shortfall) = sampled_under(&ENTRY, "", folder.path());
        assert_eq!(shortfall, Shortfall::NONE);
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
