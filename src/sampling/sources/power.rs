//! `power`: energy meters, batteries and adapters, from `/sys/class/powercap` and `/sys/class/power_supply`.

use std::io::{Error, ErrorKind};

use flatbuffers::FlatBufferBuilder;

use super::devices::{self, Key, Listing, OneNumber, Place};
use super::{Entry, Opening, Unavailable};
use crate::os::host::HostDirectory;
use crate::sampling::{Opened, ReadError, Sampler, Selection, Shortfall};
use crate::schema::host::{EnergyZone, Power, PowerArgs, PowerSupply};

const FILES: [&str; 2] = ["sys/class/powercap", "sys/class/power_supply"];
const HINT: &str = ", nor is there any in /sys/class/power_supply: virtual machines have neither, other hosts drivers (intel_rapl_msr)";
const HINT_DENIED: &str =
    ": since Linux 5.10 energy_uj is for root alone: give CAP_DAC_READ_SEARCH, or change the file's mode";
const ZONES: Place = Place {
    path: FILES[0],
    // A zone is named after its control type and its numbers: intel-rapl:0:0.
    is_device: |name| name.contains(&b':'),
    devices_max: 1024,
};
const SUPPLIES: Place = Place { path: FILES[1], is_device: |_| true, devices_max: 256 };

/// Patterns of its configuration match the names of directories: `intel-rapl:0`, `BAT0`.
pub(super) const ENTRY: Entry = Entry {
    name: "power",
    root: "flatcap.host.Power",
    schema: include_bytes!("../../../generated/host/power.bfbs"),
    files: &FILES,
    refresh: "energy each millisecond, batteries each second to each minute",
    selects: "zones and supplies, such as intel-rapl:0 and BAT0",
    needs: &["CAP_DAC_READ_SEARCH"],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let listing = |place| Listing::open(opening.host, place, opening.config.period);
    let unavailable = |error, hint| Unavailable { file: FILES[0], error, hint };
    let (zones, supplies) = match (listing(ZONES), listing(SUPPLIES)) {
        (Err(error), Err(_)) => return Err(unavailable(error, HINT)),
        (zones, supplies) => (zones.ok(), supplies.ok()),
    };
    let mut sampler = PowerSampler {
        zones: Devices { listing: zones, open: Vec::new() },
        supplies: Devices { listing: supplies, open: Vec::new() },
        selection: opening.selection(),
        zone_samples: Vec::new(),
        supply_samples: Vec::new(),
    };
    sampler.zones.open_new(&sampler.selection, zone);
    sampler.supplies.open_new(&sampler.selection, supply);
    if sampler.zones.is_empty() && sampler.supplies.is_empty() {
        return Err(unavailable(devices::empty("no zone"), HINT));
    }
    let zones = &sampler.zones.open;
    let are_denied = !zones.is_empty() && zones.iter().all(|zone| zone.device.energy.is_denied());
    if are_denied && sampler.supplies.open.is_empty() {
        return Err(unavailable(Error::from(ErrorKind::PermissionDenied), HINT_DENIED));
    }
    Ok(Opened::built(sampler))
}

#[derive(Debug)]
struct PowerSampler {
    zones: Devices<Zone>,
    supplies: Devices<Supply>,
    selection: Selection,
    zone_samples: Vec<EnergyZone>,    // reused
    supply_samples: Vec<PowerSupply>, // reused
}

/// The devices of one class; it may be missing.
#[derive(Debug)]
struct Devices<Device> {
    listing: Option<Listing>,
    open: Vec<Held<Device>>, // ascending by name
}

#[derive(Debug)]
struct Held<Device> {
    key: Key,
    device: Device,
}

impl<Device> Devices<Device> {
    fn is_empty(&self) -> bool {
        self.listing.as_ref().is_none_or(Listing::is_empty)
    }

    fn shortfall(&self) -> Shortfall {
        self.listing.as_ref().map_or(Shortfall::NONE, Listing::shortfall)
    }

    fn open_new(&mut self, selection: &Selection, open: fn(&HostDirectory, &[u8]) -> Device) {
        let Self { listing: Some(listing), open: opened } = self else { return };
        opened.retain(|one| listing.keeps(&one.key));
        listing.each_new(|directory, key| {
            if selection.wants(key.name.bytes()) {
                opened.push(Held { key, device: open(directory, key.name.bytes()) });
            }
        });
        opened.sort_unstable_by_key(|one| one.key.name);
    }

    /// Lists the class again if that is due, then reads each device; `read` says whether it is gone.
    fn read(
        &mut self,
        selection: &Selection,
        open: fn(&HostDirectory, &[u8]) -> Device,
        read: fn(&mut Device) -> bool,
    ) -> Result<(), ReadError> {
        let Some(listing) = &mut self.listing else { return Ok(()) };
        if listing.refresh()? {
            self.open_new(selection, open);
        }
        let Some(listing) = &mut self.listing else { return Ok(()) };
        for one in &mut self.open {
            if read(&mut one.device) {
                listing.forget(&one.key);
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Zone {
    name: [u8; 32],
    energy: OneNumber,
    energy_max: u64,
    power: OneNumber,
}

fn zone(directory: &HostDirectory, name: &[u8]) -> Zone {
    Zone {
        name: devices::words(directory, &[name, b"/name"]).unwrap_or_default(),
        energy: OneNumber::open(directory, &[name, b"/energy_uj"]),
        energy_max: OneNumber::once(directory, &[name, b"/max_energy_range_uj"]),
        power: OneNumber::open(directory, &[name, b"/power_uw"]),
    }
}

impl Zone {
    fn read(&mut self) -> bool {
        self.energy.read();
        self.power.read();
        self.energy.is_gone() || self.power.is_gone()
    }

    fn sample(&self, zone: &[u8], shortfall: &mut Shortfall) -> EnergyZone {
        let energy = self.energy.unsigned(shortfall);
        let power = self.power.unsigned(shortfall);
        let error = self.energy.error();
        EnergyZone::new(&devices::fitted(zone), &self.name, energy, self.energy_max, power, error)
    }
}

#[derive(Debug)]
struct Supply {
    kind: [u8; 16],
    status: OneNumber, // words
    numbers: [OneNumber; PROPERTIES.len()],
}

/// The numbers of a supply, in the order of the schema; each has those that its driver knows.
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

fn supply(directory: &HostDirectory, name: &[u8]) -> Supply {
    Supply {
        kind: devices::words(directory, &[name, b"/type"]).unwrap_or_default(),
        status: OneNumber::open(directory, &[name, b"/status"]),
        numbers: PROPERTIES.map(|property| OneNumber::open(directory, &[name, property])),
    }
}

impl Supply {
    /// Gone is what says so in each of its files: one that says it in some is a bay without its battery.
    fn read(&mut self) -> bool {
        self.status.read();
        let mut are_gone = true;
        for number in &mut self.numbers {
            number.read();
            are_gone &= number.is_gone() || !number.is_there();
        }
        are_gone && self.numbers.iter().any(OneNumber::is_gone)
    }

    fn sample(&self, supply: &[u8], shortfall: &mut Shortfall) -> PowerSupply {
        let mut lacks = Shortfall::NONE;
        let [online, present, capacity, cycles, signed @ ..] = &self.numbers;
        let [online, present, capacity, cycles] =
            [online, present, capacity, cycles].map(|number| number.unsigned(&mut lacks));
        let signed = signed.each_ref().map(|number| number.signed(&mut lacks));
        let [energy, energy_full, energy_design, charge, charge_full, charge_design, rest @ ..] = signed;
        let [voltage, current, power, temperature] = rest;
        let status = self.status.words(&mut lacks);
        // A bay without its battery has nothing else to tell.
        if present != 0 {
            *shortfall |= lacks;
        }
        let numbers = self.numbers.iter().chain([&self.status]);
        let error = numbers.map(OneNumber::error).find(|error| *error != 0).unwrap_or(0);
        PowerSupply::new(
            &devices::fitted(supply),
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
        self.zones.read(&self.selection, zone, Zone::read)?;
        self.supplies.read(&self.selection, supply, Supply::read)
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let mut shortfall = self.zones.shortfall() | self.supplies.shortfall();
        self.zone_samples.clear();
        let zones = self.zones.open.iter();
        self.zone_samples.extend(zones.map(|one| one.device.sample(one.key.name.bytes(), &mut shortfall)));
        self.supply_samples.clear();
        let supplies = self.supplies.open.iter();
        self.supply_samples
            .extend(supplies.map(|one| one.device.sample(one.key.name.bytes(), &mut shortfall)));
        let zones = builder.create_vector(&self.zone_samples);
        let supplies = builder.create_vector(&self.supply_samples);
        let root = Power::create(builder, &PowerArgs { zones: Some(zones), supplies: Some(supplies) });
        builder.finish_minimal(root);
        shortfall
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::sampling::sources::tests::{captured, opened, planted, sampled_under, shown};
    use crate::sampling::sources::text::ABSENT;

    fn power(payload: &[u8]) -> Power<'_> {
        flatbuffers::root::<Power<'_>>(payload).unwrap()
    }

    /// A laptop: a package with its cores and memory, two batteries, of which one is out, and an adapter.
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
        planted(&files)
    }

    // Goal: every value is in its place, with its sign. Method: a laptop with all values different.
    #[test]
    fn every_value_is_in_its_place() {
        let host = laptop();
        let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
        assert_eq!(shortfall, Shortfall::NONE);
        let zones = power(&payload).zones().iter();
        let zones = zones.map(|zone| {
            let numbers = (zone.energy(), zone.energy_max(), zone.power(), zone.error());
            (shown(zone.zone()), shown(zone.name()), numbers)
        });
        let numbers = |at: u64| (240_422_366_267 + at, 262_143_328_850 + at, ABSENT, 0);
        let expected = [
            ("intel-rapl:0".into(), "package-0".into(), numbers(0)),
            ("intel-rapl:0:0".into(), "core".into(), numbers(1)),
            ("intel-rapl:0:1".into(), "dram".into(), numbers(2)),
        ];
        assert_eq!(zones.collect::<Vec<_>>(), expected);
        let supplies = power(&payload).supplies();
        let names = supplies.iter().map(|one| (shown(one.supply()), shown(one.type_()), shown(one.status())));
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
        let (payload, _) = sampled_under(&ENTRY, keys, host.path());
        assert_eq!((power(&payload).zones().len(), power(&payload).supplies().len()), (1, 1));
    }

    // Goal: a value that is none is absent and marked, unless the battery is out. Method: words and cuts in a laptop.
    #[test]
    fn damaged_values_are_marked() {
        for (path, content, expected) in [
            ("powercap/intel-rapl:0/energy_uj", "12", Shortfall::CUT),
            ("powercap/intel-rapl:0/energy_uj", "-1\n", Shortfall::UNREADABLE),
            ("power_supply/BAT0/power_now", "x\n", Shortfall::UNREADABLE),
            ("power_supply/BAT0/status", "Char", Shortfall::CUT),
            ("power_supply/BAT1/capacity", "?\n", Shortfall::NONE),
        ] {
            let host = laptop();
            fs::write(host.path().join("sys/class").join(path), content).unwrap();
            let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
            assert_eq!(shortfall, expected, "{path}");
            assert_eq!((power(&payload).zones().len(), power(&payload).supplies().len()), (3, 3));
        }
    }

    // Goal: batteries and zones come and go. Method: a tree that changes between samples; a module that is loaded anew.
    #[test]
    fn devices_come_and_go() {
        let host = laptop();
        let class = host.path().join("sys/class");
        let mut sampler = opened(&ENTRY, "period = \"1s\"", host.path()).unwrap();
        let mut counts = || {
            sampler.read().unwrap();
            let mut builder = FlatBufferBuilder::new();
            assert_eq!(sampler.build(0, &mut builder), Shortfall::NONE);
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

    // Goal: energy that is for root alone is said to be, in whole or in part. Method: files without rights; root may read them all the
    // same, and has nothing to see here.
    #[test]
    fn denied_energy_is_said() {
        let host = laptop();
        let class = host.path().join("sys/class");
        for zone in ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1"] {
            let file = class.join("powercap").join(zone).join("energy_uj");
            fs::set_permissions(file, fs::Permissions::from_mode(0o000)).unwrap();
        }
        if fs::read(class.join("powercap/intel-rapl:0/energy_uj")).is_ok() {
            println!("passed over: this user may read everything");
            return;
        }
        let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
        assert_eq!(shortfall, Shortfall::DENIED);
        let zone = *power(&payload).zones().get(0);
        assert_eq!((zone.energy(), zone.energy_max(), zone.error()), (ABSENT, 262_143_328_850, 13));
        fs::remove_dir_all(class.join("power_supply")).unwrap();
        let error = opened(&ENTRY, "", host.path()).unwrap_err().to_string();
        assert_eq!(error, format!("/sys/class/powercap: permission denied{HINT_DENIED}"));
    }

    // Goal: a host with neither says so. Method: empty directories.
    #[test]
    fn a_host_without_power_says_so() {
        let host = planted(&[("sys/class/powercap/intel-rapl/enabled", "1\n")]);
        fs::create_dir(host.path().join("sys/class/power_supply")).unwrap();
        let error = opened(&ENTRY, "", host.path()).unwrap_err().to_string();
        assert_eq!(error, format!("/sys/class/powercap: no zone{HINT}"));
    }

    // Goal: captured hosts are read whole, links too. Method: what their files say.
    #[test]
    fn captured_hosts_are_read() {
        for (archive, zones, energy) in [("procfs", 3, 49_450_000.0), ("node-exporter", 2, 36_580_000.0)] {
            let Some(host) = captured(archive, &["sys"]) else { return };
            let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
            assert_eq!(shortfall, Shortfall::NONE);
            let sample = power(&payload);
            assert_eq!((sample.zones().len(), sample.supplies().len()), (zones, 2));
            assert_eq!(shown(sample.zones().get(0).name()), "package-0");
            assert_eq!(sample.zones().get(0).energy(), 240_422_366_267);
            let battery = sample.supplies().get(1);
            assert_eq!((shown(battery.status()).as_str(), battery.energy_now()), ("Discharging", energy));
            assert_eq!((battery.present(), sample.supplies().get(0).online()), (1, 0));
        }
    }
}
