//! Lists the files of a control group, with the values and the text format of each file.

use std::ffi::CStr;

use flatcap_os::host::HostRoot;

use super::io_stat::{self, IoStatReader};
use crate::sources::text::{self, ABSENT};
use crate::{Incomplete, odd_text};

/// The files that are read for each group.
pub(super) const FILES: [&CStr; FILE_COUNT] = [
    c"cgroup.events",
    c"cpu.stat",
    c"memory.current",
    c"memory.peak",
    c"memory.events",
    c"memory.stat",
    c"io.stat",
    c"pids.current",
    c"pids.max",
    c"cpu.pressure",
    c"memory.pressure",
    c"io.pressure",
];
pub(super) const FILE_COUNT: usize = 12;

/// The format of each file, in the order of the schema.
const FORMATS: [CgroupFileFormat; FILE_COUNT] = [
    CgroupFileFormat::Keyed(&[b"populated", b"frozen"]),
    CgroupFileFormat::Keyed(&[
        b"usage_usec",
        b"user_usec",
        b"system_usec",
        b"nr_periods",
        b"nr_throttled",
        b"throttled_usec",
    ]),
    CgroupFileFormat::Number,
    CgroupFileFormat::Number,
    CgroupFileFormat::Keyed(&[b"low", b"high", b"max", b"oom", b"oom_kill"]),
    CgroupFileFormat::Keyed(&[
        b"anon",
        b"file",
        b"kernel",
        b"sock",
        b"shmem",
        b"file_mapped",
        b"file_dirty",
        b"file_writeback",
        b"inactive_anon",
        b"active_anon",
        b"inactive_file",
        b"active_file",
        b"unevictable",
        b"slab",
        b"slab_reclaimable",
        b"slab_unreclaimable",
        b"pgfault",
        b"pgmajfault",
        b"workingset_refault_anon",
        b"workingset_refault_file",
        b"pgscan",
        b"pgsteal",
    ]),
    CgroupFileFormat::Devices,
    CgroupFileFormat::Number,
    CgroupFileFormat::Limit,
    CgroupFileFormat::Pressure,
    CgroupFileFormat::Pressure,
    CgroupFileFormat::Pressure,
];

/// Maximum number of lines read from a file.
const LINES_MAX: usize = 1024;
/// Number of values of all files together.
pub(super) const VALUE_COUNT: usize = 51;

/// Format of a file.
#[derive(Debug, Clone, Copy)]
enum CgroupFileFormat {
    /// Each line has a name and a number. Kernels differ in the names that they write.
    Keyed(&'static [&'static [u8]]),
    /// The file has one number.
    Number,
    /// The file has one number, or `max` for no limit.
    Limit,
    /// Each line has a device and `name=number` pairs, which are summed over devices (`io_stat`).
    Devices,
    /// The file has the lines `some` and `full`. Only the totals of these lines are read.
    Pressure,
}

impl CgroupFileFormat {
    fn values(self) -> usize {
        match self {
            Self::Keyed(keys) => keys.len(),
            Self::Devices => io_stat::KEY_COUNT,
            Self::Number | Self::Limit => 1,
            Self::Pressure => 2,
        }
    }
}

/// Parses the files of groups. The reader remembers the name of each line, because all groups of a
/// kernel have the same lines.
#[derive(Debug)]
pub(super) struct CgroupFileReader {
    orders: [Vec<Option<usize>>; FILE_COUNT],
    io_stat: IoStatReader,
}

impl CgroupFileReader {
    pub(super) fn new(host: &HostRoot) -> Self {
        Self { orders: [const { Vec::new() }; FILE_COUNT], io_stat: IoStatReader::new(host) }
    }

    /// Causes the block devices to be examined again, because a device may now lie on other devices
    /// than before.
    pub(super) fn forget_devices(&mut self) {
        self.io_stat.forget_devices();
    }

    /// Parses one file into its part of `values`. An absent file leaves its values absent. `most`
    /// is the largest number of values that this group's file has had.
    pub(super) fn read(
        &mut self,
        file: usize,
        content: Option<&[u8]>,
        values: &mut [u64; VALUE_COUNT],
        values_max: &mut usize,
    ) -> Incomplete {
        let Some(format) = FORMATS.get(file) else { return Incomplete::NONE };
        let first: usize = FORMATS.iter().take(file).map(|format| format.values()).sum();
        let Some(places) = values.get_mut(first..first + format.values()) else { return Incomplete::NONE };
        places.fill(ABSENT);
        let Some(content) = content else { return Incomplete::NONE };
        let incomplete = match format {
            CgroupFileFormat::Keyed(keys) => self
                .orders
                .get_mut(file)
                .map_or(Incomplete::NONE, |order| keyed(content, keys, order, places)),
            CgroupFileFormat::Number => number(content, places, false),
            CgroupFileFormat::Limit => number(content, places, true),
            CgroupFileFormat::Devices => self.io_stat.read(content, places),
            CgroupFileFormat::Pressure => pressure(content, places),
        };
        let found = places.iter().filter(|value| **value != ABSENT).count();
        // If a limit is removed, its value is absent, but no value is lost. For io.stat, the parser
        // of that file marks the values that a device lacks.
        let is_less =
            found < *values_max && !matches!(format, CgroupFileFormat::Limit | CgroupFileFormat::Devices);
        *values_max = found.max(*values_max);
        incomplete | Incomplete::MISSING.unless(!is_less)
    }
}

fn keyed(content: &[u8], keys: &[&[u8]], order: &mut Vec<Option<usize>>, places: &mut [u64]) -> Incomplete {
    let (lines, mut incomplete) = text::whole_lines(content);
    for (at, line) in lines.take(LINES_MAX).enumerate() {
        let mut fields = text::fields(line);
        let name = fields.next().unwrap_or_default();
        if order.len() <= at {
            order.push(None);
        }
        let Some(last) = order.get_mut(at) else { continue };
        if last.and_then(|index| keys.get(index)).is_none_or(|key| *key != name) {
            *last = keys.iter().position(|key| *key == name);
        }
        // Names that the schema does not have are skipped.
        if let Some(place) = last.and_then(|index| places.get_mut(index)) {
            *place = text::value(fields.next(), &mut incomplete);
        }
    }
    incomplete
}

fn number(content: &[u8], places: &mut [u64], is_limit: bool) -> Incomplete {
    let (mut lines, mut incomplete) = text::whole_lines(content);
    let line = lines.next();
    if let Some(place) = places.first_mut()
        && !(is_limit && line == Some(b"max"))
    {
        *place = text::value(line, &mut incomplete);
    }
    lines.next().map_or(incomplete, |line| incomplete | odd_text::unreadable(line))
}

fn pressure(content: &[u8], places: &mut [u64]) -> Incomplete {
    let (lines, mut incomplete) = text::whole_lines(content);
    for line in lines.take(LINES_MAX) {
        let mut fields = text::fields(line);
        let index = match fields.next() {
            Some(b"some") => 0,
            Some(b"full") => 1,
            _ => {
                incomplete |= odd_text::unreadable(line);
                continue;
            }
        };
        let total = fields.find_map(|field| field.strip_prefix(b"total="));
        if let Some(place) = places.get_mut(index) {
            *place = text::value(total, &mut incomplete);
        }
    }
    incomplete
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::assert_damage_is_marked;

    fn reader() -> CgroupFileReader {
        CgroupFileReader::new(&HostRoot::new("/nonexistent"))
    }

    fn read(file: usize, content: &[u8]) -> (Vec<u64>, Incomplete) {
        let mut values = [0; VALUE_COUNT];
        let incomplete = reader().read(file, Some(content), &mut values, &mut 0);
        let first: usize = FORMATS.iter().take(file).map(|format| format.values()).sum();
        (values[first..first + FORMATS[file].values()].to_vec(), incomplete)
    }

    fn at(name: &CStr) -> usize {
        FILES.iter().position(|file| *file == name).unwrap()
    }

    // Proves that the formats have as many values as the schema.
    #[test]
    fn every_value_has_a_place() {
        assert_eq!(FORMATS.iter().map(|format| format.values()).sum::<usize>(), VALUE_COUNT);
    }

    // Proves that each format is parsed as the kernel writes it, including other kernels' variants.
    #[test]
    fn each_kind_is_read() {
        let cpu = b"usage_usec 6\nuser_usec 4\nsystem_usec 2\nnice_usec 9\ncore_sched.force_idle_usec 0\n";
        let expected = vec![6, 4, 2, ABSENT, ABSENT, ABSENT];
        assert_eq!(read(at(c"cpu.stat"), cpu), (expected, Incomplete::NONE));
        assert_eq!(read(at(c"memory.current"), b"123\n"), (vec![123], Incomplete::NONE));
        assert_eq!(read(at(c"pids.max"), b"max\n"), (vec![ABSENT], Incomplete::NONE));
        assert_eq!(read(at(c"pids.max"), b"77\n"), (vec![77], Incomplete::NONE));
        assert_eq!(read(at(c"pids.current"), b"max\n"), (vec![ABSENT], Incomplete::UNREADABLE));
        let io = b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n";
        assert_eq!(read(at(c"io.stat"), io), (vec![1, 2, 3, 4, 5, 6], Incomplete::NONE));
        let pressure = b"some avg10=0.10 avg60=0.20 avg300=0.30 total=4\n\
            full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(read(at(c"cpu.pressure"), pressure), (vec![4, 5], Incomplete::NONE));
        let some = b"some avg10=0.10 avg60=0.20 avg300=0.30 total=4\n";
        assert_eq!(read(at(c"cpu.pressure"), some), (vec![4, ABSENT], Incomplete::NONE));
    }

    // Proves that damaged text never causes a panic, that truncated text is always marked, and that
    // a number that is too large is absent.
    #[test]
    fn damaged_text_is_marked() {
        let events = b"low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\n";
        let pressure = b"some avg10=0.00 total=4\nfull avg10=0.00 total=5\n";
        let cases: [(&CStr, &[u8]); 4] = [
            (c"memory.events", events),
            (c"memory.peak", b"12\n"),
            (c"pids.max", b"max\n"),
            (c"io.pressure", pressure),
        ];
        for (name, content) in cases {
            assert_damage_is_marked(content, |content| {
                let (values, incomplete) = read(at(name), content);
                let is_all = values.iter().all(|value| *value != ABSENT) || name == c"pids.max";
                incomplete.is_none() && is_all && !content.is_empty()
            });
        }
        let (values, incomplete) = read(at(c"memory.events"), b"low 18446744073709551616\nhigh 2\n");
        assert_eq!((values[0], values[1], incomplete), (ABSENT, 2, Incomplete::UNREADABLE));
    }

    // Proves that a line that disappears is marked as missing.
    #[test]
    fn a_line_that_goes_is_marked() {
        let mut reader = reader();
        let mut values = [0; VALUE_COUNT];
        let mut values_max = 0;
        let file = at(c"memory.events");
        let all = b"low 1\nhigh 2\n";
        assert_eq!(reader.read(file, Some(all), &mut values, &mut values_max), Incomplete::NONE);
        assert_eq!(reader.read(file, Some(b"high 2\n"), &mut values, &mut values_max), Incomplete::MISSING);
    }
}
