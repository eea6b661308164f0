//! `cpufreq`: the frequency of each core, from /sys/devices/system/cpu.

use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::{HostDirectory, HostFile};
use flatcap_schemas::host::{CoreFrequency, Cpufreq, CpufreqArgs};

use super::devices::{self, DeviceClass, DeviceKey, DeviceListing, NumberFile};
use super::text::ABSENT;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, NameFilter, OpenedSampler, ReadError, Sampler, odd_text};

const DIRECTORY: &str = "sys/devices/system/cpu";
const ONLINE: &str = "sys/devices/system/cpu/online";
const DEVICE_CLASS: DeviceClass = DeviceClass {
    path: DIRECTORY,
    is_device: |name| devices::is_numbered(name, CORE),
    // Linux does not support more cores.
    devices_max: 8192,
};
const CORE: &[u8] = b"cpu";
/// Name in `include` that requests the field `hardware`.
const HARDWARE_FIELD: &[u8] = b"hardware";
/// Error number that the kernel returns if the average frequency of an idle core is read.
const EAGAIN: u64 = 11;

/// `include` and `exclude` match names of cores, such as `cpu0`. With `hardware` in `include`,
/// `cpuinfo_cur_freq` is read too.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "cpufreq",
    about: "Current frequency of each core.",
    root: "flatcap.host.Cpufreq",
    schema: include_bytes!("../../../../generated/host/cpufreq.bfbs"),
    files: &[DIRECTORY],
    // Frequency governors select a frequency every few milliseconds. A sample queries each core.
    period: Duration::from_millis(100),
    refresh: "every few milliseconds, as the governor decides",
    selects: "cores, such as cpu0; hardware, by this name, also reads the frequency from the processor itself",
    hint: ": usual on virtual machines; other hosts need a driver for their processor",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let unavailable = |error| Unavailable { file: DIRECTORY, error, hint: SPEC.hint };
    let listing =
        DeviceListing::open(context.host, DEVICE_CLASS, context.settings.period).map_err(unavailable)?;
    let mut sampler = CpufreqSampler {
        listing,
        selection: context.selection(),
        // Kernels without CPU hotplug have no such file.
        online: context.host.open(ONLINE).ok(),
        last_online: Vec::new(),
        cores: Vec::new(),
        has_frequencies: false,
        samples: Vec::new(),
    };
    if let Some(online) = &mut sampler.online {
        online.read().map_err(unavailable)?;
        sampler.last_online.extend_from_slice(online.content());
    }
    sampler.open_new();
    if !sampler.has_frequencies {
        return Err(unavailable(devices::none_found("no core has a cpufreq directory")));
    }
    Ok(OpenedSampler::built(sampler))
}

#[derive(Debug)]
struct CpufreqSampler {
    listing: DeviceListing,
    selection: NameFilter,
    online: Option<HostFile>,
    last_online: Vec<u8>,
    cores: Vec<FrequencyCore>,   // ascending by number
    has_frequencies: bool,       // whether any core has a frequency, wanted or not
    samples: Vec<CoreFrequency>, // reused
}

#[derive(Debug)]
struct FrequencyCore {
    key: DeviceKey,
    number: u64,
    current: NumberFile,
    hardware: NumberFile,
    average: NumberFile,
    hardware_min: u64,
    hardware_max: u64,
}

impl CpufreqSampler {
    fn open_new(&mut self) {
        let Self { listing, selection, cores, has_frequencies, .. } = self;
        cores.retain(|core| listing.keeps(&core.key));
        listing.each_new(|directory, key| {
            let core = core(directory, key, selection);
            *has_frequencies |= core.is_some();
            cores.extend(core.filter(|_| selection.matches(key.name.bytes())));
        });
        cores.sort_unstable_by_key(|core| core.number);
    }
}

/// Opens a core. Returns `None` if the core has no frequency, for example because it is offline.
fn core(directory: &HostDirectory, key: DeviceKey, selection: &NameFilter) -> Option<FrequencyCore> {
    let name = key.name.bytes();
    let file = |file: &[u8]| NumberFile::open(directory, &[name, b"/cpufreq/", file]);
    let once = |file: &[u8]| NumberFile::read_once(directory, &[name, b"/cpufreq/", file]);
    let current = file(b"scaling_cur_freq");
    let is_requested = !current.exists() || selection.includes_exactly(HARDWARE_FIELD);
    let hardware = if is_requested { file(b"cpuinfo_cur_freq") } else { NumberFile::NONE };
    if !current.exists() && !hardware.exists() {
        return None;
    }
    Some(FrequencyCore {
        key,
        number: devices::number_after(name, CORE)?,
        current,
        hardware,
        average: file(b"cpuinfo_avg_freq"),
        hardware_min: once(b"cpuinfo_min_freq"),
        hardware_max: once(b"cpuinfo_max_freq"),
    })
}

impl FrequencyCore {
    fn sample(&self, incomplete: &mut Incomplete) -> CoreFrequency {
        let average = match self.average.error() {
            EAGAIN => ABSENT,
            _ => self.average.unsigned(incomplete),
        };
        CoreFrequency::new(
            self.number,
            self.current.unsigned(incomplete),
            self.hardware.unsigned(incomplete),
            average,
            self.hardware_min,
            self.hardware_max,
        )
    }
}

impl Sampler for CpufreqSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        // The files of a policy stay while any of its cores is online, so they do not show which
        // cores are online.
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

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let mut incomplete = self.listing.incomplete();
        self.samples.clear();
        self.samples.extend(self.cores.iter().map(|core| {
            let mut lacks = Incomplete::NONE;
            let sample = core.sample(&mut lacks);
            incomplete |= odd_text::of_element(lacks, || format!("cpu{}", core.number));
            sample
        }));
        let cores = builder.create_vector(&self.samples);
        let root = Cpufreq::create(builder, &CpufreqArgs { cores: Some(cores) });
        builder.finish_minimal(root);
        incomplete
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::sources::tests::{captured_host, host_with, open_sampler, rename, sample_under};

    /// Creates a host with four cores of two kinds. Cores 0 and 1 share a policy, and cores 2 and 3
    /// have a policy each.
    fn hybrid() -> tempfile::TempDir {
        let host = host_with(&[("sys/devices/system/cpu/online", "0-3\n")]);
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

    // Proves that every value ends up in its field, that kinds of cores are distinguished, and that
    // the hardware field is read only if `include` names it.
    #[test]
    fn every_value_is_in_its_place() {
        let host = hybrid();
        let (payload, incomplete) = sample_under(&SPEC, "", host.path());
        assert_eq!(incomplete, Incomplete::NONE);
        let expected = [
            CoreFrequency::new(0, 3001, ABSENT, 3021, 400, 5000),
            CoreFrequency::new(1, 3001, ABSENT, 3021, 400, 5000),
            CoreFrequency::new(2, 2002, ABSENT, 2022, 400, 3000),
            CoreFrequency::new(3, 2003, ABSENT, 2023, 400, 3000),
        ];
        assert_eq!(rows(&payload), expected);
        let (payload, _) = sample_under(&SPEC, "include = [\"cpu[23]\", \"hardware\"]", host.path());
        let expected = [
            CoreFrequency::new(2, 2002, 2012, 2022, 400, 3000),
            CoreFrequency::new(3, 2003, 2013, 2023, 400, 3000),
        ];
        assert_eq!(rows(&payload), expected);
        let policy = host.path().join(DIRECTORY).join("cpufreq/policy3");
        rename(&policy.join("scaling_cur_freq"), &policy.join("other"));
        let (payload, _) = sample_under(&SPEC, "include = [\"cpu3\"]", host.path());
        assert_eq!(rows(&payload), [CoreFrequency::new(3, ABSENT, 2013, 2023, 400, 3000)]);
    }

    // Proves that a core that goes offline disappears at once although its policy stays, and that
    // the core also returns at once.
    #[test]
    fn cores_come_and_go() {
        let host = hybrid();
        let cpu = host.path().join(DIRECTORY);
        let mut sampler = open_sampler(&SPEC, "period = \"100ms\"", host.path()).unwrap();
        let mut numbers = || {
            sampler.read().unwrap();
            let mut builder = FlatBufferBuilder::new();
            assert_eq!(sampler.build(0, &mut builder), Incomplete::NONE);
            rows(builder.finished_data()).iter().map(CoreFrequency::core).collect::<Vec<_>>()
        };
        assert_eq!(numbers(), [0, 1, 2, 3]);
        rename(&cpu.join("cpu1/cpufreq"), &cpu.join("away"));
        fs::write(cpu.join("online"), "0,2-3\n").unwrap();
        assert_eq!(numbers(), [0, 2, 3]);
        rename(&cpu.join("away"), &cpu.join("cpu1/cpufreq"));
        fs::write(cpu.join("online"), "0-3\n").unwrap();
        assert_eq!(numbers(), [0, 1, 2, 3]);
        assert_eq!(numbers(), [0, 1, 2, 3]);
    }

    // Proves that invalid values are absent and marked, and that a host without frequencies is
    // reported.
    #[test]
    fn damaged_values_are_marked() {
        let host = hybrid();
        let policy = host.path().join(DIRECTORY).join("cpufreq/policy2");
        for (content, expected) in [("<unknown>\n", Incomplete::UNREADABLE), ("", Incomplete::CUT)] {
            fs::write(policy.join("scaling_cur_freq"), content).unwrap();
            let (payload, incomplete) = sample_under(&SPEC, "", host.path());
            assert_eq!((rows(&payload)[2].current(), incomplete), (ABSENT, expected));
            assert_eq!(rows(&payload)[3].current(), 2003);
        }
        let host = host_with(&[
            ("sys/devices/system/cpu/online", "0\n"),
            ("sys/devices/system/cpu/cpu0/online", "1\n"),
        ]);
        let error = open_sampler(&SPEC, "", host.path()).unwrap_err().to_string();
        assert_eq!(error, format!("/{DIRECTORY}: no core has a cpufreq directory{}", SPEC.hint));
    }

    // Proves that the files captured from hosts are read completely.
    #[test]
    fn captured_hosts_are_read() {
        if let Some(host) = captured_host("procfs", &[DIRECTORY]) {
            let (payload, _) = sample_under(&SPEC, "", host.path());
            let cpu = host.path().join(DIRECTORY);
            for core in rows(&payload) {
                let value_of = |file: &str| {
                    let path = cpu.join(format!("cpu{}/cpufreq/{file}", core.core()));
                    fs::read_to_string(path).map_or(ABSENT, |text| text.trim().parse().unwrap())
                };
                assert_eq!(
                    (core.current(), core.average()),
                    (value_of("scaling_cur_freq"), value_of("cpuinfo_avg_freq"))
                );
                let limits = (value_of("cpuinfo_min_freq"), value_of("cpuinfo_max_freq"));
                assert_eq!((core.hardware_min(), core.hardware_max()), limits);
                assert!(core.current() != ABSENT || core.hardware() == value_of("cpuinfo_cur_freq"));
            }
            assert_eq!(rows(&payload).len(), 2);
        }
        if let Some(host) = captured_host("node-exporter", &[DIRECTORY]) {
            let (payload, incomplete) = sample_under(&SPEC, "", host.path());
            assert!(!rows(&payload).is_empty() && incomplete.is_none());
        }
    }
}
