//! `cpufreq`: at what frequency each core runs, from /sys/devices/system/cpu.

use flatbuffers::FlatBufferBuilder;

use super::devices::{self, Key, Listing, OneNumber, Place};
use super::text::ABSENT;
use super::{Entry, Opening, Unavailable};
use crate::os::host::{HostDirectory, HostFile};
use crate::sampling::{Opened, ReadError, Sampler, Selection, Shortfall};
use crate::schema::host::{CoreFrequency, Cpufreq, CpufreqArgs};

const DIRECTORY: &str = "sys/devices/system/cpu";
const ONLINE: &str = "sys/devices/system/cpu/online";
const HINT: &str = ": virtual machines have none, other hosts a driver for their processor";
const PLACE: Place = Place {
    path: DIRECTORY,
    is_device: |name| devices::is_numbered(name, CORE),
    // Linux is built for at most as many.
    devices_max: 8192,
};
const CORE: &[u8] = b"cpu";
/// The field that is read only where it is asked for by this name.
const HARDWARE: &[u8] = b"hardware";
/// The kernel's answer for the average of a core that was idle.
const EAGAIN: u64 = 11;

/// Patterns of its configuration match cores by their names: `cpu0`. `hardware` among those of `include` has `cpuinfo_cur_freq` read,
/// too.
pub(super) const ENTRY: Entry = Entry {
    name: "cpufreq",
    root: "flatcap.host.Cpufreq",
    schema: include_bytes!("../../../generated/host/cpufreq.bfbs"),
    files: &[DIRECTORY],
    refresh: "each few milliseconds, as the governor decides",
    selects: "cores, such as cpu0; hardware by its own name asks the processor itself",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let unavailable = |error| Unavailable { file: DIRECTORY, error, hint: HINT };
    let listing = Listing::open(opening.host, PLACE, opening.config.period).map_err(unavailable)?;
    let mut sampler = CpufreqSampler {
        listing,
        selection: opening.selection(),
        // Kernels without hot-plug of cores have no such file.
        online: opening.host.open(ONLINE).ok(),
        last_online: Vec::new(),
        cores: Vec::new(),
        are_any: false,
        samples: Vec::new(),
    };
    if let Some(online) = &mut sampler.online {
        online.read().map_err(unavailable)?;
        sampler.last_online.extend_from_slice(online.content());
    }
    sampler.open_new();
    if !sampler.are_any {
        return Err(unavailable(devices::empty("no core has a cpufreq directory")));
    }
    Ok(Opened::built(sampler))
}

#[derive(Debug)]
struct CpufreqSampler {
    listing: Listing,
    selection: Selection,
    online: Option<HostFile>,
    last_online: Vec<u8>,
    cores: Vec<Core>,            // ascending by number
    are_any: bool,               // cores with a frequency, wanted or not
    samples: Vec<CoreFrequency>, // reused
}

#[derive(Debug)]
struct Core {
    key: Key,
    number: u64,
    current: OneNumber,
    hardware: OneNumber,
    average: OneNumber,
    hardware_min: u64,
    hardware_max: u64,
}

impl CpufreqSampler {
    fn open_new(&mut self) {
        let Self { listing, selection, cores, are_any, .. } = self;
        cores.retain(|core| listing.keeps(&core.key));
        listing.each_new(|directory, key| {
            let core = core(directory, key, selection);
            *are_any |= core.is_some();
            cores.extend(core.filter(|_| selection.wants(key.name.bytes())));
        });
        cores.sort_unstable_by_key(|core| core.number);
    }
}

/// Opens a core; none if it has no frequency, as one that is offline.
fn core(directory: &HostDirectory, key: Key, selection: &Selection) -> Option<Core> {
    let name = key.name.bytes();
    let file = |file: &[u8]| OneNumber::open(directory, &[name, b"/cpufreq/", file]);
    let once = |file: &[u8]| OneNumber::once(directory, &[name, b"/cpufreq/", file]);
    let current = file(b"scaling_cur_freq");
    let is_asked_for = !current.is_there() || selection.names(HARDWARE);
    let hardware = if is_asked_for { file(b"cpuinfo_cur_freq") } else { OneNumber::NONE };
    if !current.is_there() && !hardware.is_there() {
        return None;
    }
    Some(Core {
        key,
        number: devices::number_behind(name, CORE)?,
        current,
        hardware,
        average: file(b"cpuinfo_avg_freq"),
        hardware_min: once(b"cpuinfo_min_freq"),
        hardware_max: once(b"cpuinfo_max_freq"),
    })
}

impl Core {
    fn sample(&self, shortfall: &mut Shortfall) -> CoreFrequency {
        let average = match self.average.error() {
            EAGAIN => ABSENT,
            _ => self.average.unsigned(shortfall),
        };
        CoreFrequency::new(
            self.number,
            self.current.unsigned(shortfall),
            self.hardware.unsigned(shortfall),
            average,
            self.hardware_min,
            self.hardware_max,
        )
    }
}

impl Sampler for CpufreqSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        // The files of a policy stay while any of its cores is online, so they do not tell which are.
        if let Some(online) = &mut self.online {
            online.read().map_err(|error| ReadError { file: ONLINE, error })?;
            if online.content() != self.last_online {
                self.last_online.clear();
                self.last_online.extend_from_slice(online.content());
                self.listing.forget_all();
            }
        }
        if self.listing.refresh()? {
            self.open_new();
        }
        for core in &mut self.cores {
            let mut is_gone = false;
            for number in [&mut core.current, &mut core.hardware, &mut core.average] {
                number.read();
                is_gone |= number.is_gone();
            }
            if is_gone {
                self.listing.forget(&core.key);
            }
        }
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let mut shortfall = self.listing.shortfall();
        self.samples.clear();
        self.samples.extend(self.cores.iter().map(|core| core.sample(&mut shortfall)));
        let cores = builder.create_vector(&self.samples);
        let root = Cpufreq::create(builder, &CpufreqArgs { cores: Some(cores) });
        builder.finish_minimal(root);
        shortfall
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::sampling::sources::tests::{captured, moved, opened, planted, sampled_under};

    /// Four cores of two kinds: 0 and 1 share a policy, 2 and 3 have their own.
    fn hybrid() -> tempfile::TempDir {
        let host = planted(&[("sys/devices/system/cpu/online", "0-3\n")]);
        let cpu = host.path().join(DIRECTORY);
        for (policy, max, current) in [("0", 5_000, 3_001), ("2", 3_000, 2_002), ("3", 3_000, 2_003)] {
            let policy = cpu.join(format!("cpufreq/policy{policy}"));
            fs::create_dir_all(&policy).unwrap();
            for (file, value) in [
                ("scaling_cur_freq", current),
                ("cpuinfo_cur_freq", current + 10),
                ("cpuinfo_avg_freq", current + 20),
                ("cpuinfo_min_freq", 400),
                ("cpuinfo_max_freq", max),
            ] {
                fs::write(policy.join(file), format!("{value}\n")).unwrap();
            }
        }
        for (core, policy) in [(0, 0), (1, 0), (2, 2), (3, 3)] {
            fs::create_dir_all(cpu.join(format!("cpu{core}/topology"))).unwrap();
            bring_online(&cpu, core, policy);
        }
        host
    }

    fn bring_online(cpu: &Path, core: u64, policy: u64) {
        symlink(format!("../cpufreq/policy{policy}"), cpu.join(format!("cpu{core}/cpufreq"))).unwrap();
    }

    fn rows(payload: &[u8]) -> Vec<CoreFrequency> {
        flatbuffers::root::<Cpufreq<'_>>(payload).unwrap().cores().iter().copied().collect()
    }

    // Goal: every value is in its place, kinds of cores are told apart, and the hardware is asked only by name. Method: all different.
    #[test]
    fn every_value_is_in_its_place() {
        let host = hybrid();
        let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
        assert_eq!(shortfall, Shortfall::NONE);
        let expected = [
            CoreFrequency::new(0, 3001, ABSENT, 3021, 400, 5000),
            CoreFrequency::new(1, 3001, ABSENT, 3021, 400, 5000),
            CoreFrequency::new(2, 2002, ABSENT, 2022, 400, 3000),
            CoreFrequency::new(3, 2003, ABSENT, 2023, 400, 3000),
        ];
        assert_eq!(rows(&payload), expected);
        let (payload, _) = sampled_under(&ENTRY, "include = [\"cpu[23]\", \"hardware\"]", host.path());
        let expected = [
            CoreFrequency::new(2, 2002, 2012, 2022, 400, 3000),
            CoreFrequency::new(3, 2003, 2013, 2023, 400, 3000),
        ];
        assert_eq!(rows(&payload), expected);
        let policy = host.path().join(DIRECTORY).join("cpufreq/policy3");
        moved(&policy.join("scaling_cur_freq"), &policy.join("other"));
        let (payload, _) = sampled_under(&ENTRY, "include = [\"cpu3\"]", host.path());
        assert_eq!(rows(&payload), [CoreFrequency::new(3, ABSENT, 2013, 2023, 400, 3000)]);
    }

    // Goal: a core that goes offline is gone at once, though its policy stays, and comes back at once. Method: take core 1 away and
    // bring it back between samples of a fast source.
    #[test]
    fn cores_come_and_go() {
        let host = hybrid();
        let cpu = host.path().join(DIRECTORY);
        let mut sampler = opened(&ENTRY, "period = \"100ms\"", host.path()).unwrap();
        let mut numbers = || {
            sampler.read().unwrap();
            let mut builder = FlatBufferBuilder::new();
            assert_eq!(sampler.build(0, &mut builder), Shortfall::NONE);
            rows(builder.finished_data()).iter().map(CoreFrequency::core).collect::<Vec<_>>()
        };
        assert_eq!(numbers(), [0, 1, 2, 3]);
        moved(&cpu.join("cpu1/cpufreq"), &cpu.join("away"));
        fs::write(cpu.join("online"), "0,2-3\n").unwrap();
        assert_eq!(numbers(), [0, 2, 3]);
        moved(&cpu.join("away"), &cpu.join("cpu1/cpufreq"));
        fs::write(cpu.join("online"), "0-3\n").unwrap();
        assert_eq!(numbers(), [0, 1, 2, 3]);
        assert_eq!(numbers(), [0, 1, 2, 3]);
    }

    // Goal: values that are none are absent and marked; a host without frequencies says so. Method: words; a tree without cpufreq.
    #[test]
    fn damaged_values_are_marked() {
        let host = hybrid();
        let policy = host.path().join(DIRECTORY).join("cpufreq/policy2");
        for (content, expected) in [("<unknown>\n", Shortfall::UNREADABLE), ("20", Shortfall::CUT)] {
            fs::write(policy.join("scaling_cur_freq"), content).unwrap();
            let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
            assert_eq!((rows(&payload)[2].current(), shortfall), (ABSENT, expected));
            assert_eq!(rows(&payload)[3].current(), 2003);
        }
        let host = planted(&[
            ("sys/devices/system/cpu/online", "0\n"),
            ("sys/devices/system/cpu/cpu0/online", "1\n"),
        ]);
        let error = opened(&ENTRY, "", host.path()).unwrap_err().to_string();
        assert_eq!(error, format!("/{DIRECTORY}: no core has a cpufreq directory{HINT}"));
    }

    // Goal: captured hosts are read whole. Method: what their files say.
    #[test]
    fn captured_hosts_are_read() {
        if let Some(host) = captured("procfs", &[DIRECTORY]) {
            let (payload, _) = sampled_under(&ENTRY, "", host.path());
            let cpu = host.path().join(DIRECTORY);
            for core in rows(&payload) {
                let said = |file: &str| {
                    let path = cpu.join(format!("cpu{}/cpufreq/{file}", core.core()));
                    fs::read_to_string(path).map_or(ABSENT, |text| text.trim().parse().unwrap())
                };
                assert_eq!(
                    (core.current(), core.average()),
                    (said("scaling_cur_freq"), said("cpuinfo_avg_freq"))
                );
                let limits = (said("cpuinfo_min_freq"), said("cpuinfo_max_freq"));
                assert_eq!((core.hardware_min(), core.hardware_max()), limits);
                assert!(core.current() != ABSENT || core.hardware() == said("cpuinfo_cur_freq"));
            }
            assert_eq!(rows(&payload).len(), 2);
        }
        if let Some(host) = captured("node-exporter", &[DIRECTORY]) {
            let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
            assert!(!rows(&payload).is_empty() && shortfall.is_none());
        }
    }
}
