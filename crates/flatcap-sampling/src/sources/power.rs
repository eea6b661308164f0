//! `power`: energy meters, batteries and adapters, from `/sys/class/powercap` and
//! `/sys/class/power_supply`.

use std::fmt::Debug;
use std::io::{Error, ErrorKind};
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostDirectory;
use flatcap_schemas::host::{EnergyZone, Power, PowerArgs, PowerSupply};

use super::devices::{self, DeviceClass, DeviceKey, DeviceListing, NumberFile};
use super::guarded_reads::{BlockingRead, GuardedElement, GuardedReads};
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, NameFilter, OpenedSampler, ReadError, Sampler, odd_text};

const FILES: [&str; 2] = ["sys/class/powercap", "sys/class/power_supply"];
const HINT_DENIED: &str = ": since Linux 5.10 only root may read energy_uj: \
     grant CAP_DAC_READ_SEARCH, or change the mode of the file";
const ZONE_CLASS: DeviceClass = DeviceClass {
    path: FILES[0],
    // A zone is named after its control type and its numbers, as in intel-rapl:0:0.
    is_device: |name| name.contains(&b':'),
    devices_max: 1024,
};
const SUPPLY_CLASS: DeviceClass = DeviceClass { path: FILES[1], is_device: |_| true, devices_max: 256 };

/// `include` and `exclude` match the names of directories, such as `intel-rapl:0` or `BAT0`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "power",
    about: "Energy meters (RAPL) and batteries.",
    root: "flatcap.host.Power",
    schema: include_bytes!("../../../../generated/host/power.bfbs"),
    files: &FILES,
    // Energy counters change every millisecond, and power averaged over 100 ms is steady.
    period: Duration::from_millis(100),
    may_block: true,
    refresh: "energy every millisecond, batteries every second to every minute",
    selects: "zones and supplies, such as intel-rapl:0 and BAT0",
    needs: &["CAP_DAC_READ_SEARCH"],
    hint: ", and no supply in /sys/class/power_supply: usual on virtual machines; \
     other hosts need drivers (intel_rapl_msr)",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let listing = |place| DeviceListing::open(context.host, place, context.settings.period);
    let unavailable = |error, hint| Unavailable { file: FILES[0], error, hint };
    let (zones, supplies) = match (listing(ZONE_CLASS), listing(SUPPLY_CLASS)) {
        (Err(error), Err(_)) => return Err(unavailable(error, SPEC.hint)),
        (zones, supplies) => (zones.ok(), supplies.ok()),
    };
    let selection = context.selection();
    let mut sampler = PowerSampler {
        zones: PowerDevices::new(zones, selection.clone()),
        supplies: PowerDevices::new(supplies, selection),
    };
    sampler.zones.open_new();
    sampler.supplies.open_new();
    if sampler.zones.is_empty() && sampler.supplies.is_empty() {
        return Err(unavailable(devices::none_found("no zone"), SPEC.hint));
    }
    let zones = &sampler.zones.open;
    let all_denied = !zones.is_empty()
        && zones.iter().all(|zone| {
            // No other thread reads the zone yet.
            zone.device.with(|zone| zone.energy.is_denied()) == Some(true)
        });
    if all_denied && sampler.supplies.open.is_empty() {
        return Err(unavailable(Error::from(ErrorKind::PermissionDenied), HINT_DENIED));
    }
    Ok(OpenedSampler::built(sampler))
}

#[derive(Debug)]
struct PowerSampler {
    zones: PowerDevices<PowerZone>,
    supplies: PowerDevices<Supply>,
}

/// The devices of one class, which the host may lack.
#[derive(Debug)]
struct PowerDevices<Device: PowerDevice> {
    listing: Option<DeviceListing>,
    selection: NameFilter,
    open: Vec<OpenDevice<Device>>, // ascending by name
    reads: GuardedReads<Device>,
    samples: Vec<Device::Sample>, // reused
}

#[derive(Debug)]
struct OpenDevice<Device> {
    key: DeviceKey,
    device: GuardedElement<Device>,
}

impl<Device> OpenDevice<Device> {
    fn name(&self) -> String {
        String::from_utf8_lossy(self.key.name.bytes()).into_owned()
    }
}

/// A powercap zone or a power supply whose files are read.
trait PowerDevice: BlockingRead {
    type Sample: Debug;

    /// Opens the files of the device with this name.
    fn open(directory: &HostDirectory, name: &[u8]) -> Self;

    /// Returns whether the last read reported that the device is gone.
    fn is_gone(&self) -> bool;

    /// Returns the values that the last read found.
    fn sample(&self, name: &[u8], incomplete: &mut Incomplete) -> Self::Sample;
}

impl<Device: PowerDevice> PowerDevices<Device> {
    fn new(listing: Option<DeviceListing>, selection: NameFilter) -> Self {
        let reads = GuardedReads::new(SPEC.name);
        Self { listing, selection, open: Vec::new(), reads, samples: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.listing.as_ref().is_none_or(DeviceListing::is_empty)
    }

    fn open_new(&mut self) {
        let Self { listing: Some(listing), selection, open, reads, .. } = self else { return };
        reads.retain(open, |one| listing.keeps(&one.key), |one| &mut one.device);
        listing.each_new(|directory, key| {
            if selection.matches(key.name.bytes()) {
                let device = reads.element(Device::open(directory, key.name.bytes()));
                open.push(OpenDevice { key, device });
            }
        });
        open.sort_unstable_by_key(|one| one.key.name);
    }

    /// Lists the class again if that is due, then reads each device.
    fn read(&mut self) -> Result<(), ReadError> {
        let Some(listing) = &mut self.listing else { return Ok(()) };
        if listing.refresh()? {
            self.open_new();
        }
        let Some(listing) = &mut self.listing else { return Ok(()) };
        let read = self.reads.read(&mut self.open, |one| &mut one.device, OpenDevice::name);
        read.map_err(|error| ReadError { file: FILES[0], error })?;
        for one in &self.open {
            if one.device.with(|device| device.is_gone()) == Some(true) {
                listing.forget(&one.key);
            }
        }
        Ok(())
    }

    /// Fills `samples` with the devices that do not hang.
    fn sample(&mut self) -> Incomplete {
        let mut incomplete = self.listing.as_ref().map_or(Incomplete::NONE, DeviceListing::incomplete);
        self.samples.clear();
        for one in &self.open {
            let mut lacks = Incomplete::NONE;
            let sample = one.device.with(|device| device.sample(one.key.name.bytes(), &mut lacks));
            incomplete |= odd_text::of_element(lacks, || one.name());
            if sample.is_none() {
                incomplete |= Incomplete::UNREADABLE;
                odd_text::note_hanging(&one.name());
            }
            self.samples.extend(sample);
        }
        incomplete
    }
}

#[derive(Debug)]
struct PowerZone {
    name: [u8; 32],
    energy: NumberFile,
    energy_max: u64,
    power: NumberFile,
}

impl BlockingRead for PowerZone {
    fn read(&mut self) {
        self.energy.read();
        self.power.read();
    }
}

impl PowerDevice for PowerZone {
    type Sample = EnergyZone;

    fn open(directory: &HostDirectory, name: &[u8]) -> Self {
        Self {
            name: devices::read_line(directory, &[name, b"/name"]).unwrap_or_default(),
            energy: NumberFile::open(directory, &[name, b"/energy_uj"]),
            energy_max: NumberFile::read_once(directory, &[name, b"/max_energy_range_uj"]),
            power: NumberFile::open(directory, &[name, b"/power_uw"]),
        }
    }

    fn is_gone(&self) -> bool {
        self.energy.is_gone() || self.power.is_gone()
    }

    fn sample(&self, zone: &[u8], incomplete: &mut Incomplete) -> EnergyZone {
        let energy = self.energy.unsigned(incomplete);
        let power = self.power.unsigned(incomplete);
        let error = self.energy.error();
        EnergyZone::new(&devices::truncated(zone), &self.name, energy, self.energy_max, power, error)
    }
}

#[derive(Debug)]
struct Supply {
    kind: [u8; 16],
    status: NumberFile, // text
    numbers: [NumberFile; PROPERTIES.len()],
}

/// The numbers of a supply, in the order of the schema. A supply has only the numbers that its
/// driver provides.
const PROPERTIES: [&[u8]; 14] = [
    b"/online",
    b"/present",
    b"/capacity",
    b"/cycle_count",
    b"/energy_now",
    b"/energy_full",
    b"/energy_full_design",
    b"/charge_now",
    b"/charge_full",
    b"/charge_full_design",
    b"/voltage_now",
    b"/current_now",
    b"/power_now",
    b"/temp",
];

impl BlockingRead for Supply {
    fn read(&mut self) {
        self.status.read();
        self.numbers.iter_mut().for_each(NumberFile::read);
    }
}

impl PowerDevice for Supply {
    type Sample = PowerSupply;

    fn open(directory: &HostDirectory, name: &[u8]) -> Self {
        Self {
            kind: devices::read_line(directory, &[name, b"/type"]).unwrap_or_default(),
            status: NumberFile::open(directory, &[name, b"/status"]),
            numbers: PROPERTIES.map(|property| NumberFile::open(directory, &[name, property])),
        }
    }

    /// Returns whether every file of the supply reports that the device is gone. In a bay without a
    /// battery, only some files report that the device is gone.
    fn is_gone(&self) -> bool {
        let numbers = || self.numbers.iter();
        numbers().all(|number| number.is_gone() || !number.exists()) && numbers().any(NumberFile::is_gone)
    }

    fn sample(&self, supply: &[u8], incomplete: &mut Incomplete) -> PowerSupply {
        let mut lacks = Incomplete::NONE;
        let [online, present, capacity, cycles, signed @ ..] = &self.numbers;
        let [online, present, capacity, cycles] =
            [online, present, capacity, cycles].map(|number| number.unsigned(&mut lacks));
        let signed = signed.each_ref().map(|number| number.signed(&mut lacks));
        let [energy, energy_full, energy_design, charge, charge_full, charge_design, rest @ ..] = signed;
        let [voltage, current, power, temperature] = rest;
        let status = self.status.text(&mut lacks);
        // A bay without a battery has no other values.
        if present != 0 {
            *incomplete |= lacks;
        }
        let numbers = self.numbers.iter().chain([&self.status]);
        let error = numbers.map(NumberFile::error).find(|error| *error != 0).unwrap_or(0);
        PowerSupply::new(
            &devices::truncated(supply),
            &self.kind,
            &status,
            online,
            present,
            capacity,
            cycles,
            energy,
            energy_full,
            energy_design,
            charge,
            charge_full,
            charge_design,
            voltage,
            current,
            power,
            temperature,
            error,
        )
    }
}

impl Sampler for PowerSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.zones.read()?;
        self.supplies.read()
    }

    fn helper_cpu_ns(&self) -> u64 {
        self.zones.reads.cpu_ns() + self.supplies.reads.cpu_ns()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let incomplete = self.zones.sample() | self.supplies.sample();
        let zones = builder.create_vector(&self.zones.samples);
        let supplies = builder.create_vector(&self.supplies.samples);
        let root = Power::create(builder, &PowerArgs { zones: Some(zones), supplies: Some(supplies) });
        builder.finish_minimal(root);
        incomplete
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::sources::tests::{captured_host, fixed_text, host_with, open_sampler, sample_under};
    use crate::sources::text::ABSENT;

    fn power(payload: &[u8]) -> Power<'_> {
        flatbuffers::root::<Power<'_>>(payload).unwrap()
    }

    /// Creates a laptop that has a package with its cores and memory, an adapter, and two
    /// batteries, of which one is removed.
    fn laptop() -> tempfile::TempDir {
        let mut files: Vec<(String, String)> = Vec::new();
        let mut add =
            |path: &str, content: &str| files.push((format!("sys/class/{path}"), format!("{content}\n")));
        for (at, (zone, name)) in
            [("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:0:1", "dram")]
                .iter()
                .enumerate()
        {
            add(&format!("powercap/{zone}/name"), name);
            add(&format!("powercap/{zone}/energy_uj"), &format!("{}", 240_422_366_267_u64 + at as u64));
            add(
                &format!("powercap/{zone}/max_energy_range_uj"),
                &format!("{}", 262_143_328_850_u64 + at as u64),
            );
        }
        add("powercap/intel-rapl/enabled", "1");
        for (at, (property, value)) in PROPERTIES.iter().zip(1..).enumerate() {
            let property = std::str::from_utf8(property).unwrap();
            let sign = if at >= 11 { "-" } else { "" };
            add(&format!("power_supply/BAT0{property}"), &format!("{sign}{}", value * 11));
        }
        add("power_supply/BAT0/type", "Battery");
        add("power_supply/BAT0/status", "Not charging");
        add("power_supply/BAT1/type", "Battery");
        add("power_supply/BAT1/present", "0");
        add("power_supply/AC/type", "Mains");
        add("power_supply/AC/online", "1");
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        host_with(&files)
    }

    // Proves that every value ends up in its field, with its sign.
    #[test]
    fn every_value_is_in_its_place() {
        let host = laptop();
        let (payload, incomplete) = sample_under(&SPEC, "", host.path());
        assert_eq!(incomplete, Incomplete::NONE);
        let zones = power(&payload).zones().iter();
        let zones = zones.map(|zone| {
            let numbers = (zone.energy(), zone.energy_max(), zone.power(), zone.error());
            (fixed_text(zone.zone()), fixed_text(zone.name()), numbers)
        });
        let numbers = |at: u64| (240_422_366_267 + at, 262_143_328_850 + at, ABSENT, 0);
        let expected = [
            ("intel-rapl:0".into(), "package-0".into(), numbers(0)),
            ("intel-rapl:0:0".into(), "core".into(), numbers(1)),
            ("intel-rapl:0:1".into(), "dram".into(), numbers(2)),
        ];
        assert_eq!(zones.collect::<Vec<_>>(), expected);
        let supplies = power(&payload).supplies();
        let names = supplies
            .iter()
            .map(|one| (fixed_text(one.supply()), fixed_text(one.type_()), fixed_text(one.status())));
        let name =
            |name: &str, kind: &str, status: &str| (name.to_owned(), kind.to_owned(), status.to_owned());
        let expected =
            [name("AC", "Mains", ""), name("BAT0", "Battery", "Not charging"), name("BAT1", "Battery", "")];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        let full = supplies.get(1);
        assert_eq!([full.online(), full.present(), full.capacity(), full.cycle_count()], [11, 22, 33, 44]);
        let energies = [full.energy_now(), full.energy_full(), full.energy_full_design()];
        let charges = [full.charge_now(), full.charge_full(), full.charge_full_design()];
        assert_eq!((energies, charges), ([55.0, 66.0, 77.0], [88.0, 99.0, 110.0]));
        let flows = [full.voltage_now(), full.current_now(), full.power_now(), full.temperature()];
        assert_eq!(flows.map(|value| value.to_string()), ["121", "-132", "-143", "-154"]);
        let (adapter, bay) = (supplies.get(0), supplies.get(2));
        assert_eq!((adapter.online(), adapter.capacity(), bay.present()), (1, ABSENT, 0));
        assert!(adapter.voltage_now().is_nan());

        let keys = "include = [\"intel-rapl:?\", \"BAT*\"]\nexclude = [\"BAT1\"]";
        let (payload, _) = sample_under(&SPEC, keys, host.path());
        assert_eq!((power(&payload).zones().len(), power(&payload).supplies().len()), (1, 1));
    }

    // Proves that invalid values are absent and marked, unless the battery is removed.
    #[test]
    fn damaged_values_are_marked() {
        for (path, content, expected) in [
            ("powercap/intel-rapl:0/energy_uj", "", Incomplete::CUT),
            ("powercap/intel-rapl:0/energy_uj", "-1\n", Incomplete::UNREADABLE),
            ("power_supply/BAT0/power_now", "x\n", Incomplete::UNREADABLE),
            ("power_supply/BAT0/status", "", Incomplete::CUT),
            ("power_supply/BAT1/capacity", "?\n", Incomplete::NONE),
        ] {
            let host = laptop();
            fs::write(host.path().join("sys/class").join(path), content).unwrap();
            let (payload, incomplete) = sample_under(&SPEC, "", host.path());
            assert_eq!(incomplete, expected, "{path}");
            assert_eq!((power(&payload).zones().len(), power(&payload).supplies().len()), (3, 3));
        }
    }

    // Proves that batteries and zones come and go.
    #[test]
    fn devices_come_and_go() {
        let host = laptop();
        let class = host.path().join("sys/class");
        let mut sampler = open_sampler(&SPEC, "period = \"1s\"", host.path()).unwrap();
        let mut counts = || {
            sampler.read().unwrap();
            let mut builder = FlatBufferBuilder::new();
            assert_eq!(sampler.build(0, &mut builder), Incomplete::NONE);
            let power = power(builder.finished_data());
            (power.zones().len(), power.supplies().len())
        };
        assert_eq!(counts(), (3, 3));
        fs::remove_dir_all(class.join("power_supply/BAT0")).unwrap();
        fs::remove_dir_all(class.join("powercap/intel-rapl:0:1")).unwrap();
        assert_eq!(counts(), (2, 2));
        fs::create_dir(class.join("power_supply/hidpp_battery_0")).unwrap();
        assert_eq!(counts(), (2, 3));
        fs::write(class.join("power_supply/hidpp_battery_0/capacity"), "5\n").unwrap();
        assert_eq!(counts(), (2, 3));
    }

    // Proves that an energy meter that only root may read is reported, with and without other
    // supplies. The test is skipped for root, who may read this meter.
    #[test]
    fn denied_energy_is_reported() {
        let host = laptop();
        let class = host.path().join("sys/class");
        for zone in ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1"] {
            let file = class.join("powercap").join(zone).join("energy_uj");
            fs::set_permissions(file, fs::Permissions::from_mode(0o000)).unwrap();
        }
        if fs::read(class.join("powercap/intel-rapl:0/energy_uj")).is_ok() {
            println!("skipped: this user may read everything");
            return;
        }
        let (payload, incomplete) = sample_under(&SPEC, "", host.path());
        assert_eq!(incomplete, Incomplete::DENIED);
        let zone = *power(&payload).zones().get(0);
        assert_eq!((zone.energy(), zone.energy_max(), zone.error()), (ABSENT, 262_143_328_850, 13));
        fs::remove_dir_all(class.join("power_supply")).unwrap();
        let error = open_sampler(&SPEC, "", host.path()).unwrap_err().to_string();
        assert_eq!(error, format!("/sys/class/powercap: permission denied{HINT_DENIED}"));
    }

    // Proves that a host without zones and supplies is reported.
    #[test]
    fn a_host_without_power_is_reported() {
        let host = host_with(&[("sys/class/powercap/intel-rapl/enabled", "1\n")]);
        fs::create_dir(host.path().join("sys/class/power_supply")).unwrap();
        let error = open_sampler(&SPEC, "", host.path()).unwrap_err().to_string();
        assert_eq!(error, format!("/sys/class/powercap: no zone{}", SPEC.hint));
    }

    // Proves that the files captured from hosts are read completely, including symbolic links.
    #[test]
    fn captured_hosts_are_read() {
        for (archive, zones, energy) in [("procfs", 3, 49_450_000.0), ("node-exporter", 2, 36_580_000.0)] {
            let Some(host) = captured_host(archive, &["sys"]) else { return };
            let (payload, incomplete) = sample_under(&SPEC, "", host.path());
            assert_eq!(incomplete, Incomplete::NONE);
            let sample = power(&payload);
            assert_eq!((sample.zones().len(), sample.supplies().len()), (zones, 2));
            assert_eq!(fixed_text(sample.zones().get(0).name()), "package-0");
            assert_eq!(sample.zones().get(0).energy(), 240_422_366_267);
            let battery = sample.supplies().get(1);
            assert_eq!(
                (fixed_text(battery.status()).as_str(), battery.energy_now()),
                ("Discharging", energy)
            );
            assert_eq!((battery.present(), sample.supplies().get(0).online()), (1, 0));
        }
    }
}
