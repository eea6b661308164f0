//! `disk`: requests, sectors and times of block devices, from /proc/diskstats.

use flatbuffers::FlatBufferBuilder;

use super::cursor::Cursor;
use super::text::{self, ABSENT};
use super::{Entry, host_file};
use crate::os::host::HostFile;
use crate::sampling::{Chosen, Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{Disk, DiskArgs, DiskCounters};

const FILE: &str = "proc/diskstats";
/// Most devices in one sample.
const DEVICES_MAX: usize = 4096;
/// Counters behind the name; a kernel before 5.5 has 15, before 4.18 it has 11.
const COUNTERS: usize = 17;
const COUNTERS_OF_KERNELS: [usize; 3] = [COUNTERS, 15, 11];

/// Include and exclude speak of devices.
pub(super) const ENTRY: Entry = Entry {
    name: "disk",
    root: "flatcap.host.Disk",
    schema: include_bytes!("../../../generated/host/disk.bfbs"),
    files: &[FILE],
    refresh: "at each request; hundreds of times a second under load",
    selects: "devices, such as nvme0n1",
    needs: &[],
    open: |opening| {
        // The kernel composes a disk and all its partitions as one record, of a length that nothing limits: a short read says nothing.
        let file = host_file(opening.host, FILE, "")?;
        let chosen = Chosen::new(opening.selection());
        Ok(Opened::built(DiskSampler { file, chosen, devices: Vec::new() }))
    },
};

#[derive(Debug)]
struct DiskSampler {
    file: HostFile,
    chosen: Chosen,
    devices: Vec<DiskCounters>, // reused
}

impl Sampler for DiskSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let shortfall = parse(self.file.content(), &mut self.chosen, &mut self.devices);
        let devices = builder.create_vector(&self.devices);
        let root = Disk::create(builder, &DiskArgs { devices: Some(devices) });
        builder.finish_minimal(root);
        shortfall
    }
}

fn parse(content: &[u8], chosen: &mut Chosen, devices: &mut Vec<DiskCounters>) -> Shortfall {
    devices.clear();
    // A host without block devices has an empty file.
    if content.is_empty() {
        return Shortfall::NONE;
    }
    let (mut cursor, mut shortfall) = Cursor::of(content);
    let mut at = 0;
    while !cursor.is_at_end() {
        shortfall |= line(&mut cursor, at, chosen, devices);
        cursor.next_line();
        at += 1;
    }
    shortfall
}

/// Takes the device of one line, if it is wanted. What it lacks.
fn line(
    cursor: &mut Cursor<'_>,
    at: usize,
    chosen: &mut Chosen,
    devices: &mut Vec<DiskCounters>,
) -> Shortfall {
    let mut lacks = Shortfall::NONE;
    let numbers = cursor.numbers(&mut lacks);
    let Some(name) = cursor.word() else { return Shortfall::CUT };
    if !chosen.wants(at, name) {
        return Shortfall::NONE;
    }
    let Some(name) = text::name::<32>(name) else { return Shortfall::UNREADABLE };
    if devices.len() == DEVICES_MAX {
        return Shortfall::TOO_MANY;
    }
    devices.push(device(numbers, &name, cursor, &mut lacks));
    lacks
}

/// One device.
fn device(
    [major, minor]: [u64; 2],
    name: &[u8; 32],
    cursor: &mut Cursor<'_>,
    lacks: &mut Shortfall,
) -> DiskCounters {
    let mut counters = [ABSENT; COUNTERS];
    let mut given = 0;
    for place in &mut counters {
        if cursor.is_at_line_end() {
            break;
        }
        *place = cursor.number(lacks);
        given += 1;
    }
    // Counters that a later kernel adds behind are passed over.
    *lacks |= Shortfall::CUT.unless(COUNTERS_OF_KERNELS.contains(&given));
    let [
        reads,
        reads_merged,
        sectors_read,
        read_time,
        writes,
        writes_merged,
        sectors_written,
        write_time,
        rest @ ..,
    ] = counters;
    let [
        in_flight,
        io_time,
        weighted_io_time,
        discards,
        discards_merged,
        sectors_discarded,
        discard_time,
        flushes,
        flush_time,
    ] = rest;
    DiskCounters::new(
        major,
        minor,
        name,
        reads,
        reads_merged,
        sectors_read,
        read_time,
        writes,
        writes_merged,
        sectors_written,
        write_time,
        in_flight,
        io_time,
        weighted_io_time,
        discards,
        discards_merged,
        sectors_discarded,
        discard_time,
        flushes,
        flush_time,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{assert_composed, fixture, sampled, sampled_under};

    fn name(device: &DiskCounters) -> String {
        device.name().iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    fn parsed(text: &[u8]) -> (Vec<DiskCounters>, Shortfall) {
        let mut devices = Vec::new();
        let shortfall = parse(text, &mut Chosen::default(), &mut devices);
        (devices, shortfall)
    }

    // Goal: every value is in its place, for each generation of kernels. Method: counters equal to their place.
    #[test]
    fn every_value_is_in_its_place() {
        for count in COUNTERS_OF_KERNELS.into_iter().chain([20]) {
            let counters: Vec<String> = (1..=count).map(|at| at.to_string()).collect();
            let counters = counters.join(" ");
            let (devices, shortfall) = parsed(format!("   8       1 sda1 {counters}\n").as_bytes());
            assert!(shortfall.is_none());
            let device = devices[0];
            assert_eq!((device.major(), device.minor(), name(&device).as_str()), (8, 1, "sda1"));
            assert_eq!((device.reads(), device.write_time(), device.weighted_io_time()), (1, 8, 11));
            assert_eq!(device.discard_time(), if count >= 15 { 15 } else { ABSENT });
            assert_eq!(device.flush_time(), if count >= 17 { 17 } else { ABSENT });
        }
    }

    // Goal: damaged text never panics, a cut file is never called whole, each damage has its reason. Method: every cut,
    // every byte replaced, and one of each kind.
    #[test]
    fn damaged_text_is_marked() {
        assert_composed(b" 8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n", |text| {
            let (devices, shortfall) = parsed(text);
            shortfall.is_none() && devices.len() == 1
        });
        let long = "x".repeat(32);
        let (devices, shortfall) = parsed(format!("8 0 {long} 1 2 3 4 5 6 7 8 9 10 11\n").as_bytes());
        assert!(devices.is_empty(), "a name that does not fit is not cut into another one");
        assert_eq!(shortfall, Shortfall::UNREADABLE);
        assert_eq!(parsed(b"8 0 sda 1 2 3 4 5 6 7 8 9 10\n").1, Shortfall::CUT);
        assert_eq!(parsed(b"8 0 sda 1 2 3 4 5 6 7 8 9 10 -1\n").1, Shortfall::UNREADABLE);
        assert_eq!(parsed(b"8 0\n").1, Shortfall::CUT);
        let many: Vec<String> =
            (0..=DEVICES_MAX).map(|at| format!("8 {at} d{at} 1 2 3 4 5 6 7 8 9 10 11\n")).collect();
        let (devices, shortfall) = parsed(many.concat().as_bytes());
        assert_eq!((devices.len(), shortfall), (DEVICES_MAX, Shortfall::TOO_MANY));
    }

    // Goal: devices are chosen by name, and one that nobody wants is no shortfall, however it reads. Method: a tree.
    #[test]
    fn devices_are_chosen() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let text = "7 0 loop0 x\n8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n8 1 sda1 1 2 3 4 5 6 7 8 9 10 11\n";
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let keys = "include = [\"sd*\"]\nexclude = [\"sd?[0-9]\"]";
        let (payload, shortfall) = sampled_under(&ENTRY, keys, folder.path());
        let disk = flatbuffers::root::<Disk<'_>>(&payload).unwrap();
        assert_eq!(disk.devices().iter().map(name).collect::<Vec<_>>(), ["sda"]);
        assert_eq!(shortfall, Shortfall::NONE);
    }

    // Goal: live and captured hosts are read whole, device by device, also where a disk of many partitions comes last. Method: a
    // naive parser beside ours.
    #[test]
    fn agrees_with_a_naive_reading() {
        let payload = sampled(&ENTRY);
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

    // Goal: no device is lacking where the kernel stops between two disks, since the partitions of the next one do not fit its buffer.
    // Method: every line of this host's file, which on a host with many partitions takes several reads.
    #[test]
    fn every_line_is_a_device() {
        let devices = sampled(&ENTRY);
        let disk = flatbuffers::root::<Disk<'_>>(&devices).unwrap();
        let lines = std::fs::read_to_string("/proc/diskstats").unwrap().lines().count();
        assert_eq!(disk.devices().len(), lines);
    }
}
