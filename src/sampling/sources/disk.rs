//! `disk`: requests, sectors and times of block devices, from /proc/diskstats.

use flatbuffers::FlatBufferBuilder;

use super::text::{self, ABSENT};
use super::{Entry, host_file};
use crate::os::host::HostFile;
use crate::sampling::{ReadError, Sampler, Shortfall};
use crate::schema::host::{Disk, DiskArgs, DiskCounters};

const FILE: &str = "proc/diskstats";
/// Most devices in one sample.
const DEVICES_MAX: usize = 4096;
/// Counters behind the name; a kernel before 5.5 has 15, before 4.18 it has 11.
const COUNTERS: usize = 17;
const COUNTERS_OF_KERNELS: [usize; 3] = [COUNTERS, 15, 11];

pub(super) const ENTRY: Entry = Entry {
    name: "disk",
    root: "flatcap.host.Disk",
    schema: include_bytes!("../../../generated/host/disk.bfbs"),
    files: &[FILE],
    refresh: "at each request; hundreds of times a second under load",
    needs: &[],
    open: |opening| {
        Ok(Box::new(DiskSampler { file: host_file(opening.host, FILE, "")?, devices: Vec::new() }))
    },
};

#[derive(Debug)]
struct DiskSampler {
    file: HostFile,
    devices: Vec<DiskCounters>, // reused
}

impl Sampler for DiskSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: FILE, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let is_whole = parse(self.file.content(), &mut self.devices);
        let devices = builder.create_vector(&self.devices);
        let root = Disk::create(builder, &DiskArgs { devices: Some(devices) });
        builder.finish_minimal(root);
        Shortfall::UNREADABLE.unless(is_whole)
    }
}

fn parse(content: &[u8], devices: &mut Vec<DiskCounters>) -> bool {
    devices.clear();
    // A host without block devices has an empty file.
    let (lines, cut) = text::whole_lines(content);
    let mut is_whole = cut.is_none() || content.is_empty();
    for line in lines {
        match device(line).filter(|_| devices.len() < DEVICES_MAX) {
            Some((device, all)) => {
                devices.push(device);
                is_whole &= all;
            }
            None => is_whole = false,
        }
    }
    is_whole
}

/// One device, and whether all its counters were there; none without a name that fits.
fn device(line: &[u8]) -> Option<(DiskCounters, bool)> {
    let mut fields = text::fields(line);
    let ([major, minor], lacks) = text::numbers(fields.by_ref().take(2));
    let name = text::name::<32>(fields.next()?)?;
    let mut counters = [ABSENT; COUNTERS];
    let mut given = 0;
    for field in fields {
        // Counters that a later kernel adds behind are passed over.
        if let Some(place) = counters.get_mut(given) {
            *place = text::number(field).unwrap_or(ABSENT);
        }
        given += 1;
    }
    let known = given.min(COUNTERS);
    let are_read = counters.iter().take(known).all(|value| *value != ABSENT);
    let all = lacks.is_none() && are_read && COUNTERS_OF_KERNELS.contains(&known);
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
    let device = DiskCounters::new(
        major,
        minor,
        &name,
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
    );
    Some((device, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{assert_composed, fixture, sampled};

    fn name(device: &DiskCounters) -> String {
        device.name().iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    // Goal: every value is in its place, for each generation of kernels. Method: counters equal to their place.
    #[test]
    fn every_value_is_in_its_place() {
        for count in COUNTERS_OF_KERNELS.into_iter().chain([20]) {
            let counters: Vec<String> = (1..=count).map(|at| at.to_string()).collect();
            let counters = counters.join(" ");
            let mut devices = Vec::new();
            assert!(parse(format!("   8       1 sda1 {counters}\n").as_bytes(), &mut devices));
            let device = devices[0];
            assert_eq!((device.major(), device.minor(), name(&device).as_str()), (8, 1, "sda1"));
            assert_eq!((device.reads(), device.write_time(), device.weighted_io_time()), (1, 8, 11));
            assert_eq!(device.discard_time(), if count >= 15 { 15 } else { ABSENT });
            assert_eq!(device.flush_time(), if count >= 17 { 17 } else { ABSENT });
        }
    }

    // Goal: damaged text never panics and a cut file is never called whole. Method: every cut, every byte replaced.
    #[test]
    fn damaged_text_is_marked() {
        assert_composed(b" 8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n", |text| {
            let mut devices = Vec::new();
            parse(text, &mut devices) && devices.len() == 1
        });
        let mut devices = Vec::new();
        let long = "x".repeat(32);
        assert!(!parse(format!("8 0 {long} 1 2 3 4 5 6 7 8 9 10 11\n").as_bytes(), &mut devices));
        assert!(devices.is_empty(), "a name that does not fit is not cut into another one");
    }

    // Goal: live and captured hosts are read whole, device by device. Method: a naive parser beside ours.
    #[test]
    fn agrees_with_a_naive_reading() {
        let payload = sampled(&ENTRY);
        let disk = flatbuffers::root::<Disk<'_>>(&payload).unwrap();
        let text = std::fs::read_to_string("/proc/diskstats").unwrap();
        let names: Vec<String> =
            text.lines().map(|line| line.split_whitespace().nth(2).unwrap().to_owned()).collect();
        assert_eq!(disk.devices().iter().map(name).collect::<Vec<_>>(), names);
        if let Some(text) = fixture(FILE) {
            let mut devices = Vec::new();
            parse(&text, &mut devices);
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
}
