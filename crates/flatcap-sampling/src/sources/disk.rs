//! `disk`: requests, sectors and times of block devices, from /proc/diskstats.

use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostFile;
use flatcap_schemas::host::{Disk, DiskArgs, DiskCounters};

use super::cursor::Cursor;
use super::text::{self, ABSENT};
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{CachedNameFilter, Incomplete, OpenedSampler, ReadError, Sampler, odd_text};

const FILE: &str = "proc/diskstats";
/// Maximum number of devices in one sample.
const DEVICES_MAX: usize = 4096;
/// Number of counters after the name. Kernels before 5.5 have 15 counters, and kernels before 4.18
/// have 11.
const COUNTERS: usize = 17;
/// Index of the number of requests in flight.
const IN_FLIGHT: usize = 8;
const COUNTERS_OF_KERNELS: [usize; 3] = [COUNTERS, 15, 11];
/// Name prefixes of devices that many hosts have in large numbers but do not use. In a name, a
/// number follows the prefix.
const OFTEN_UNUSED: [&[u8]; 3] = [b"loop", b"ram", b"zram"];

/// `include` and `exclude` match devices. Without `include`, loop devices and RAM disks are
/// recorded only after they have had a request.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "disk",
    about: "Requests, bytes and times of each block device.",
    root: "flatcap.host.Disk",
    schema: include_bytes!("../../../../generated/host/disk.bfbs"),
    files: &[FILE],
    // The counters change several hundred times a second under load. A sample costs 8 us.
    period: Duration::from_millis(10),
    is_on_by_default: true,
    refresh: "at each request; hundreds of times a second under load",
    selects: "devices, such as nvme0n1; without include, loop devices and RAM disks (loop*, ram*, zram*) are recorded once they had a request",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    // The kernel writes a disk and all its partitions as one record of unlimited length, so a
    // short read does not prove the end of the file.
    let file = host_file(context.host, FILE, "")?;
    let filter = CachedNameFilter::new(context.selection());
    Ok(OpenedSampler::built(DiskSampler { file, filter, devices: Vec::new() }))
}

#[derive(Debug)]
struct DiskSampler {
    file: HostFile,
    filter: CachedNameFilter,
    devices: Vec<DiskCounters>, // reused
}

impl Sampler for DiskSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let incomplete = parse(self.file.content(), &mut self.filter, &mut self.devices);
        let incomplete = odd_text::in_file(incomplete, self.file.content(), format_args!("/{FILE}"));
        let devices = builder.create_vector(&self.devices);
        let root = Disk::create(builder, &DiskArgs { devices: Some(devices) });
        builder.finish_minimal(root);
        incomplete
    }
}

fn parse(content: &[u8], filter: &mut CachedNameFilter, devices: &mut Vec<DiskCounters>) -> Incomplete {
    devices.clear();
    // A host without block devices has an empty file.
    if content.is_empty() {
        return Incomplete::NONE;
    }
    let (mut cursor, incomplete) = Cursor::of(content);
    incomplete | cursor.each_line(|cursor, at| line(cursor, at, filter, devices))
}

/// Adds the device of one line, if the filter selects it. Returns the reasons why this line is
/// incomplete.
fn line(
    cursor: &mut Cursor<'_>,
    at: usize,
    filter: &mut CachedNameFilter,
    devices: &mut Vec<DiskCounters>,
) -> Incomplete {
    let mut lacks = Incomplete::NONE;
    let numbers: [u64; 2] = cursor.numbers(&mut lacks);
    let Some(name) = cursor.word() else { return Incomplete::CUT };
    if !filter.matches(at, name) {
        return Incomplete::NONE;
    }
    let Some(name) = text::name::<32>(name) else { return odd_text::unreadable(name) };
    if devices.len() == DEVICES_MAX {
        return Incomplete::TOO_MANY;
    }
    let (counters, read_lacks) = counters(cursor);
    lacks |= read_lacks;
    if filter.has_include() || !is_unused(&name, &counters) {
        devices.push(DiskCounters(text::row(&numbers, &name, &counters)));
    }
    lacks
}

/// Reads the counters of one device, which are in the same order in the schema and in the file.
fn counters(cursor: &mut Cursor<'_>) -> ([u64; COUNTERS], Incomplete) {
    let mut lacks = Incomplete::NONE;
    let mut counters = [ABSENT; COUNTERS];
    let mut count = 0;
    for place in &mut counters {
        if cursor.is_at_line_end() {
            break;
        }
        *place = cursor.number(&mut lacks);
        count += 1;
    }
    // This is a negative count that was printed as an unsigned 32-bit number, which means that the
    // kernel does not know the count.
    if let Some(in_flight) = counters.get_mut(IN_FLIGHT).filter(|count| **count > i32::MAX as u64) {
        *in_flight = ABSENT;
    }
    // Additional counters are skipped, because a later kernel may append counters.
    lacks |= Incomplete::CUT.unless(COUNTERS_OF_KERNELS.contains(&count));
    (counters, lacks)
}

/// Returns whether this is a loop device or a RAM disk that never had a request.
fn is_unused(name: &[u8], counters: &[u64]) -> bool {
    let is_virtual =
        |prefix: &&[u8]| name.strip_prefix(*prefix).and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit);
    // The counters are checked first, because one of the first counters of a device in use is not
    // 0.
    counters.iter().all(|count| matches!(*count, 0 | ABSENT)) && OFTEN_UNUSED.iter().any(is_virtual)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sources::tests::{assert_damage_is_marked, fixture, sample_under};
    use crate::{NameFilter, Pattern};

    fn name(device: &DiskCounters) -> String {
        device.name().iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    fn parsed(text: &[u8]) -> (Vec<DiskCounters>, Incomplete) {
        let mut devices = Vec::new();
        let all = vec![Pattern::new("*").unwrap()];
        let mut filter = CachedNameFilter::new(NameFilter::new(all, Vec::new()));
        let incomplete = parse(text, &mut filter, &mut devices);
        (devices, incomplete)
    }

    // Proves that every value ends up in its field, for each generation of kernels. In this test,
    // the value of each counter equals the counter's position.
    #[test]
    fn every_value_is_in_its_place() {
        for count in COUNTERS_OF_KERNELS.into_iter().chain([20]) {
            let counters: Vec<String> = (1..=count).map(|at| at.to_string()).collect();
            let counters = counters.join(" ");
            let (devices, incomplete) = parsed(format!("   8       1 sda1 {counters}\n").as_bytes());
            assert!(incomplete.is_none());
            let device = devices[0];
            assert_eq!((device.major(), device.minor(), name(&device).as_str()), (8, 1, "sda1"));
            assert_eq!((device.reads(), device.write_time(), device.weighted_io_time()), (1, 8, 11));
            assert_eq!(device.discard_time(), if count >= 15 { 15 } else { ABSENT });
            assert_eq!(device.flush_time(), if count >= 17 { 17 } else { ABSENT });
        }
    }

    // Proves that a negative count of requests in flight, which the kernel prints without a sign,
    // is absent, while all other values are present.
    #[test]
    fn a_negative_count_is_absent() {
        for (count, expected) in [(0, 0), (2_147_483_647, 2_147_483_647), (4_294_967_295_u64, ABSENT)] {
            let (devices, incomplete) = parsed(format!("8 0 sda 1 2 3 4 5 6 7 8 {count} 10 11\n").as_bytes());
            assert_eq!((devices[0].in_flight(), devices[0].io_time()), (expected, 10));
            assert_eq!(incomplete, Incomplete::NONE);
        }
    }

    // Proves that damaged text never causes a panic, that a truncated file is always marked, and
    // that each kind of damage has its own reason.
    #[test]
    fn damaged_text_is_marked() {
        assert_damage_is_marked(b" 8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n", |text| {
            let (devices, incomplete) = parsed(text);
            incomplete.is_none() && devices.len() == 1
        });
        let long = "x".repeat(32);
        let (devices, incomplete) = parsed(format!("8 0 {long} 1 2 3 4 5 6 7 8 9 10 11\n").as_bytes());
        assert!(devices.is_empty(), "a name that does not fit is not cut into another one");
        assert_eq!(incomplete, Incomplete::UNREADABLE);
        assert_eq!(parsed(b"8 0 sda 1 2 3 4 5 6 7 8 9 10\n").1, Incomplete::CUT);
        assert_eq!(parsed(b"8 0 sda 1 2 3 4 5 6 7 8 9 10 -1\n").1, Incomplete::UNREADABLE);
        assert_eq!(parsed(b"8 0\n").1, Incomplete::CUT);
        let many: Vec<String> =
            (0..=DEVICES_MAX).map(|at| format!("8 {at} d{at} 1 2 3 4 5 6 7 8 9 10 11\n")).collect();
        let (devices, incomplete) = parsed(many.concat().as_bytes());
        assert_eq!((devices.len(), incomplete), (DEVICES_MAX, Incomplete::TOO_MANY));
    }

    // Proves that devices are selected by name, and that an unwanted line never makes a sample
    // incomplete.
    #[test]
    fn devices_are_chosen() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let text = "7 0 loop0 x\n8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n8 1 sda1 1 2 3 4 5 6 7 8 9 10 11\n";
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let keys = "include = [\"sd*\"]\nexclude = [\"sd?[0-9]\"]";
        let (payload, incomplete) = sample_under(&SPEC, keys, folder.path());
        let disk = flatbuffers::root::<Disk<'_>>(&payload).unwrap();
        assert_eq!(disk.devices().iter().map(name).collect::<Vec<_>>(), ["sda"]);
        assert_eq!(incomplete, Incomplete::NONE);
    }

    // Proves that loop devices and RAM disks without a request are left out unless `include` names
    // them. Other idle devices are not left out, nor are devices whose names merely begin with the
    // same letters.
    #[test]
    fn unused_loop_devices_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let idle = "0 0 0 0 0 0 0 0 0 0 0";
        let names = ["loop0", "ram1", "zram0", "sda", "ramdisk", "loop"];
        let mut text = names.map(|name| format!("7 0 {name} {idle}\n")).concat();
        text += "7 1 loop1 0 0 0 0 0 0 0 0 0 0 1\n7 2 zram1 5 0 0 0 0 0 0 0 0 0 0\n";
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let recorded = |keys: &str| {
            let (payload, incomplete) = sample_under(&SPEC, keys, folder.path());
            assert_eq!(incomplete, Incomplete::NONE);
            let disk = flatbuffers::root::<Disk<'_>>(&payload).unwrap();
            disk.devices().iter().map(name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(recorded(""), "sda ramdisk loop loop1 zram1");
        assert_eq!(recorded("exclude = [\"sd*\"]"), "ramdisk loop loop1 zram1");
        assert_eq!(recorded("include = [\"loop*\", \"zram?\"]"), "loop0 zram0 loop loop1 zram1");
    }

    // Proves that all devices of this host and of files captured from other hosts are read, and
    // that a naive parser finds the same values.
    #[test]
    fn agrees_with_a_naive_reading() {
        let (payload, incomplete) = sample_under(&SPEC, "include = [\"*\"]", Path::new("/"));
        assert_eq!(incomplete, Incomplete::NONE);
        let disk = flatbuffers::root::<Disk<'_>>(&payload).unwrap();
        let text = std::fs::read_to_string("/proc/diskstats").unwrap();
        let names: Vec<String> =
            text.lines().map(|line| line.split_whitespace().nth(2).unwrap().to_owned()).collect();
        assert_eq!(disk.devices().iter().map(name).collect::<Vec<_>>(), names);
        if let Some(text) = fixture(FILE) {
            let (devices, _) = parsed(&text);
            let text = String::from_utf8(text).unwrap();
            for (line, device) in text.lines().zip(&devices) {
                let words: Vec<&str> = line.split_whitespace().collect();
                assert_eq!(
                    (words[2], words[3]),
                    (name(device).as_str(), device.reads().to_string().as_str())
                );
            }
            assert_eq!(devices.len(), text.lines().count());
        }
    }

    // Proves that no device is missing if the kernel ends a read between two disks because the
    // partitions of the next disk do not fit into the kernel's buffer. On a host with many
    // partitions, reading the file takes several read calls.
    #[test]
    fn every_line_is_a_device() {
        let (devices, _) = sample_under(&SPEC, "include = [\"*\"]", Path::new("/"));
        let disk = flatbuffers::root::<Disk<'_>>(&devices).unwrap();
        let lines = std::fs::read_to_string("/proc/diskstats").unwrap().lines().count();
        assert_eq!(disk.devices().len(), lines);
    }
}
