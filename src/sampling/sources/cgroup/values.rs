//! The texts of one control group: which file holds which values, and how it is read.

use std::ffi::CStr;

use crate::sampling::Shortfall;
use crate::sampling::sources::text::{self, ABSENT};

/// The files that are read of each group.
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

/// What is in each file, in the order of the schema.
const KINDS: [Kind; FILE_COUNT] = [
    Kind::Keyed(&[b"populated", b"frozen"]),
    Kind::Keyed(&[
        b"usage_usec",
        b"user_usec",
        b"system_usec",
        b"nr_periods",
        b"nr_throttled",
        b"throttled_usec",
    ]),
    Kind::Number,
    Kind::Number,
    Kind::Keyed(&[b"low", b"high", b"max", b"oom", b"oom_kill"]),
    Kind::Keyed(&[
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
    Kind::Devices(&[b"rbytes", b"wbytes", b"rios", b"wios", b"dbytes", b"dios"]),
    Kind::Number,
    Kind::Limit,
    Kind::Pressure,
    Kind::Pressure,
    Kind::Pressure,
];

/// Most lines of a file that are read.
const LINES_MAX: usize = 1024;
/// Values of all files together.
pub(super) const VALUE_COUNT: usize = 51;

/// How a file is written.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A name and a number a line. Kernels differ in which they have.
    Keyed(&'static [&'static [u8]]),
    /// One number.
    Number,
    /// One number, or `max` for none.
    Limit,
    /// A device a line with `name=number`, to be added up.
    Devices(&'static [&'static [u8]]),
    /// `some` and `full`, of which the totals count.
    Pressure,
}

impl Kind {
    fn values(self) -> usize {
        match self {
            Self::Keyed(keys) | Self::Devices(keys) => keys.len(),
            Self::Number | Self::Limit => 1,
            Self::Pressure => 2,
        }
    }
}

/// Reads the files of groups. It remembers which line had which name: groups of one kernel are alike.
#[derive(Debug, Default)]
pub(super) struct Reader {
    orders: [Vec<Option<usize>>; FILE_COUNT],
}

impl Reader {
    /// The values of one file into their places of `values`. An absent file leaves them absent. `most` is how many the
    /// group's file had at most.
    pub(super) fn read(
        &mut self,
        file: usize,
        content: Option<&[u8]>,
        values: &mut [u64; VALUE_COUNT],
        most: &mut usize,
    ) -> Shortfall {
        let Some(kind) = KINDS.get(file) else { return Shortfall::NONE };
        let first: usize = KINDS.iter().take(file).map(|kind| kind.values()).sum();
        let Some(places) = values.get_mut(first..first + kind.values()) else { return Shortfall::NONE };
        places.fill(ABSENT);
        let Some(content) = content else { return Shortfall::NONE };
        let shortfall = match kind {
            Kind::Keyed(keys) => {
                self.orders.get_mut(file).map_or(Shortfall::NONE, |order| keyed(content, keys, order, places))
            }
            Kind::Number => number(content, places, false),
            Kind::Limit => number(content, places, true),
            Kind::Devices(keys) => devices(content, keys, places),
            Kind::Pressure => pressure(content, places),
        };
        let found = places.iter().filter(|value| **value != ABSENT).count();
        // A limit may be lifted.
        let is_less = found < *most && !matches!(kind, Kind::Limit);
        *most = found.max(*most);
        shortfall | Shortfall::MISSING.unless(!is_less)
    }
}

fn keyed(content: &[u8], keys: &[&[u8]], order: &mut Vec<Option<usize>>, places: &mut [u64]) -> Shortfall {
    let (lines, mut shortfall) = text::whole_lines(content);
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
        // A name that the schema does not have is passed over.
        if let Some(place) = last.and_then(|index| places.get_mut(index)) {
            *place = text::value(fields.next(), &mut shortfall);
        }
    }
    shortfall
}

fn number(content: &[u8], places: &mut [u64], is_limit: bool) -> Shortfall {
    let (mut lines, mut shortfall) = text::whole_lines(content);
    let line = lines.next();
    if let Some(place) = places.first_mut()
        && !(is_limit && line == Some(b"max"))
    {
        *place = text::value(line, &mut shortfall);
    }
    shortfall | Shortfall::UNREADABLE.unless(lines.next().is_none())
}

/// Sums over devices. A group that did no I/O yet has an empty file; a device that it did not use, a line of a name alone.
fn devices(content: &[u8], keys: &[&[u8]], places: &mut [u64]) -> Shortfall {
    places.fill(0);
    let (lines, cut) = text::whole_lines(content);
    let mut shortfall = if content.is_empty() { Shortfall::NONE } else { cut };
    for line in lines.take(LINES_MAX) {
        let mut found = 0;
        for field in text::fields(line).skip(1) {
            let mut halves = field.splitn(2, |byte| *byte == b'=');
            let name = halves.next().unwrap_or_default();
            let Some(index) = keys.iter().position(|key| *key == name) else { continue };
            let value = text::value(halves.next(), &mut shortfall);
            found += 1;
            if let Some(place) = places.get_mut(index) {
                // One value that cannot be read makes its sum unknown.
                let is_known = *place != ABSENT && value != ABSENT;
                let sum = if is_known { place.checked_add(value) } else { None };
                shortfall |= Shortfall::UNREADABLE.unless(!is_known || sum.is_some());
                *place = sum.unwrap_or(ABSENT);
            }
        }
        shortfall |= Shortfall::CUT.unless(found == 0 || found == keys.len());
    }
    if !shortfall.is_none() {
        // A device that is cut off would make its sums too small.
        places.fill(ABSENT);
    }
    shortfall
}

fn pressure(content: &[u8], places: &mut [u64]) -> Shortfall {
    let (lines, mut shortfall) = text::whole_lines(content);
    for line in lines.take(LINES_MAX) {
        let mut fields = text::fields(line);
        let index = match fields.next() {
            Some(b"some") => 0,
            Some(b"full") => 1,
            _ => {
                shortfall |= Shortfall::UNREADABLE;
                continue;
            }
        };
        let total = fields.find_map(|field| field.strip_prefix(b"total="));
        if let Some(place) = places.get_mut(index) {
            *place = text::value(total, &mut shortfall);
        }
    }
    shortfall
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::assert_composed;

    fn read(file: usize, content: &[u8]) -> (Vec<u64>, Shortfall) {
        let mut values = [0; VALUE_COUNT];
        let shortfall = Reader::default().read(file, Some(content), &mut values, &mut 0);
        let first: usize = KINDS.iter().take(file).map(|kind| kind.values()).sum();
        (values[first..first + KINDS[file].values()].to_vec(), shortfall)
    }

    fn at(name: &CStr) -> usize {
        FILES.iter().position(|file| *file == name).unwrap()
    }

    // Goal: every value has its place. Method: count them.
    #[test]
    fn every_value_has_a_place() {
        assert_eq!(KINDS.iter().map(|kind| kind.values()).sum::<usize>(), VALUE_COUNT);
    }

    // Goal: every kind of file is read as the kernel writes it, other kernels' too. Method: by hand.
    #[test]
    fn each_kind_is_read() {
        let cpu = b"usage_usec 6\nuser_usec 4\nsystem_usec 2\nnice_usec 9\ncore_sched.force_idle_usec 0\n";
        let expected = vec![6, 4, 2, ABSENT, ABSENT, ABSENT];
        assert_eq!(read(at(c"cpu.stat"), cpu), (expected, Shortfall::NONE));
        assert_eq!(read(at(c"memory.current"), b"123\n"), (vec![123], Shortfall::NONE));
        assert_eq!(read(at(c"pids.max"), b"max\n"), (vec![ABSENT], Shortfall::NONE));
        assert_eq!(read(at(c"pids.max"), b"77\n"), (vec![77], Shortfall::NONE));
        assert_eq!(read(at(c"pids.current"), b"max\n"), (vec![ABSENT], Shortfall::UNREADABLE));
        let io = b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6 cost.vrate=100.00\n259:1 \n\
            253:0 rbytes=10 wbytes=20 rios=30 wios=40 dbytes=50 dios=60\n";
        assert_eq!(read(at(c"io.stat"), io), (vec![11, 22, 33, 44, 55, 66], Shortfall::NONE));
        assert_eq!(read(at(c"io.stat"), b""), (vec![0; 6], Shortfall::NONE));
        let pressure = b"some avg10=0.10 avg60=0.20 avg300=0.30 total=4\n\
            full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(read(at(c"cpu.pressure"), pressure), (vec![4, 5], Shortfall::NONE));
        let some = b"some avg10=0.10 avg60=0.20 avg300=0.30 total=4\n";
        assert_eq!(read(at(c"cpu.pressure"), some), (vec![4, ABSENT], Shortfall::NONE));
    }

    // Goal: damaged text never panics, a cut one is never called whole, a number too large is absent, and a sum over devices is
    // never too small. Method: every cut, every byte replaced.
    #[test]
    fn damaged_text_is_marked() {
        let io = b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n";
        let events = b"low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\n";
        let pressure = b"some avg10=0.00 total=4\nfull avg10=0.00 total=5\n";
        let cases: [(&CStr, &[u8]); 5] = [
            (c"io.stat", io),
            (c"memory.events", events),
            (c"memory.peak", b"12\n"),
            (c"pids.max", b"max\n"),
            (c"io.pressure", pressure),
        ];
        for (name, content) in cases {
            assert_composed(content, |content| {
                let (values, shortfall) = read(at(name), content);
                let is_all = values.iter().all(|value| *value != ABSENT) || name == c"pids.max";
                shortfall.is_none() && is_all && !content.is_empty()
            });
        }
        let huge = b"8:0 rbytes=18446744073709551614 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n";
        let twice = [&huge[..], &huge[..]].concat();
        assert_eq!(read(at(c"io.stat"), &twice).1, Shortfall::UNREADABLE);
        let (values, shortfall) = read(at(c"memory.events"), b"low 18446744073709551616\nhigh 2\n");
        assert_eq!((values[0], values[1], shortfall), (ABSENT, 2, Shortfall::UNREADABLE));
    }

    // Goal: a line that was there and is gone is marked. Method: one less than before.
    #[test]
    fn a_line_that_goes_is_marked() {
        let mut reader = Reader::default();
        let mut values = [0; VALUE_COUNT];
        let mut most = 0;
        let file = at(c"memory.events");
        let all = b"low 1\nhigh 2\n";
        assert_eq!(reader.read(file, Some(all), &mut values, &mut most), Shortfall::NONE);
        assert_eq!(reader.read(file, Some(b"high 2\n"), &mut values, &mut most), Shortfall::MISSING);
    }
}
