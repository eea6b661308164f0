//! `thermal`: temperatures by zone, from /sys/class/thermal.

use flatbuffers::FlatBufferBuilder;

use super::devices::{self, Key, Listing, OneNumber, Place};
use super::{Entry, Opening, Unavailable};
use crate::os::host::HostDirectory;
use crate::sampling::{Opened, ReadError, Sampler, Selection, Shortfall};
use crate::schema::host::{Thermal, ThermalArgs, ThermalZone};

const DIRECTORY: &str = "sys/class/thermal";
const HINT: &str = ": virtual machines and some hosts have none; their kernel measures no temperatures";
const PLACE: Place = Place {
    path: DIRECTORY,
    is_device: |name| devices::is_numbered(name, ZONE),
    // More than any host has; a reading asks each.
    devices_max: 1024,
};
const ZONE: &[u8] = b"thermal_zone";

/// Patterns of its configuration match the types of zones: `x86_pkg_temp`.
pub(super) const ENTRY: Entry = Entry {
    name: "thermal",
    root: "flatcap.host.Thermal",
    schema: include_bytes!("../../../generated/host/thermal.bfbs"),
    files: &[DIRECTORY],
    refresh: "by zone: some at each reading, others each 2 s",
    selects: "types of zones, such as x86_pkg_temp",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let unavailable = |error| Unavailable { file: DIRECTORY, error, hint: HINT };
    let listing = Listing::open(opening.host, PLACE, opening.config.period).map_err(unavailable)?;
    if listing.is_empty() {
        return Err(unavailable(devices::empty("no thermal zone")));
    }
    let mut sampler =
        ThermalSampler { listing, selection: opening.selection(), zones: Vec::new(), samples: Vec::new() };
    sampler.open_new();
    Ok(Opened::built(sampler))
}

#[derive(Debug)]
struct ThermalSampler {
    listing: Listing,
    selection: Selection,
    zones: Vec<Zone>,          // ascending by number
    samples: Vec<ThermalZone>, // reused
}

#[derive(Debug)]
struct Zone {
    key: Key,
    number: u64,
    kind: [u8; 32],
    temperature: OneNumber,
}

impl ThermalSampler {
    fn open_new(&mut self) {
        let Self { listing, selection, zones, .. } = self;
        zones.retain(|zone| listing.keeps(&zone.key));
        listing.each_new(|directory, key| zones.extend(zone(directory, key, selection)));
        zones.sort_unstable_by_key(|zone| zone.number);
    }
}

/// Opens a zone, unless it is not wanted.
fn zone(directory: &HostDirectory, key: Key, selection: &Selection) -> Option<Zone> {
    let name = key.name.bytes();
    let number = devices::number_behind(name, ZONE)?;
    let kind: [u8; 32] = devices::words(directory, &[name, b"/type"]).unwrap_or_default();
    if !selection.wants(devices::until_end(&kind)) {
        return None;
    }
    let temperature = OneNumber::open(directory, &[name, b"/temp"]);
    Some(Zone { key, number, kind, temperature })
}

impl Sampler for ThermalSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        if self.listing.refresh()? {
            self.open_new();
        }
        for zone in &mut self.zones {
            zone.temperature.read();
            if zone.temperature.is_gone() {
                self.listing.forget(&zone.key);
            }
        }
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let mut shortfall = self.listing.shortfall();
        self.samples.clear();
        self.samples.extend(self.zones.iter().map(|zone| {
            let temperature = zone.temperature.signed(&mut shortfall);
            ThermalZone::new(zone.number, &zone.kind, temperature, zone.temperature.error())
        }));
        let zones = builder.create_vector(&self.samples);
        let root = Thermal::create(builder, &ThermalArgs { zones: Some(zones) });
        builder.finish_minimal(root);
        shortfall
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{captured, opened, planted, sampled_under, shown};

    type Rows = Vec<(u64, String, f64)>;

    fn rows(payload: &[u8]) -> Rows {
        let sample = flatbuffers::root::<Thermal<'_>>(payload).unwrap();
        let zones = sample.zones().iter();
        zones.map(|zone| (zone.zone(), shown(zone.type_()), zone.temperature())).collect()
    }

    fn sample(sampler: &mut dyn Sampler) -> (Rows, Shortfall) {
        sampler.read().unwrap();
        let mut builder = FlatBufferBuilder::new();
        let shortfall = sampler.build(0, &mut builder);
        (rows(builder.finished_data()), shortfall)
    }

    // Goal: every zone in its place, in the order of numbers, negative values too, and patterns match types. Method: zones 2 and 10,
    // one below zero, a cooling device beside them.
    #[test]
    fn every_value_is_in_its_place() {
        let host = planted(&[
            ("sys/class/thermal/thermal_zone10/type", "acpitz\n"),
            ("sys/class/thermal/thermal_zone10/temp", "-44000\n"),
            ("sys/class/thermal/thermal_zone2/type", "x86_pkg_temp\n"),
            ("sys/class/thermal/thermal_zone2/temp", "49925\n"),
            ("sys/class/thermal/cooling_device0/type", "Processor\n"),
        ]);
        let expected = [(2, "x86_pkg_temp".to_owned(), 49_925.0), (10, "acpitz".to_owned(), -44_000.0)];
        let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
        assert_eq!((rows(&payload), shortfall), (expected.to_vec(), Shortfall::NONE));
        let (payload, _) = sampled_under(&ENTRY, "exclude = [\"x86_*\"]", host.path());
        assert_eq!(rows(&payload), expected[1..]);
    }

    // Goal: a value that is cut, no number or away is absent and marked, and the others stay. Method: contents of one zone.
    #[test]
    fn damaged_values_are_marked() {
        let path = "sys/class/thermal/thermal_zone0/temp";
        for (content, expected) in [
            ("48", Shortfall::CUT),
            ("", Shortfall::CUT),
            ("warm\n", Shortfall::UNREADABLE),
            ("99999999999999999999\n", Shortfall::UNREADABLE),
        ] {
            let host = planted(&[
                (path, content),
                ("sys/class/thermal/thermal_zone1/type", "b\n"),
                ("sys/class/thermal/thermal_zone1/temp", "1\n"),
            ]);
            let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
            let rows = rows(&payload);
            assert_eq!((shortfall, rows[1].2), (expected, 1.0), "{content:?}");
            assert!(rows[0].2.is_nan());
        }
    }

    // Goal: zones come and go without a restart. Method: a tree that changes between samples.
    #[test]
    fn zones_come_and_go() {
        let host = planted(&[
            ("sys/class/thermal/thermal_zone0/type", "a\n"),
            ("sys/class/thermal/thermal_zone0/temp", "1\n"),
        ]);
        let class = host.path().join(DIRECTORY);
        let mut sampler = opened(&ENTRY, "period = \"1s\"", host.path()).unwrap();
        let row = |zone, kind: &str, value| (zone, kind.to_owned(), value);
        assert_eq!(sample(&mut *sampler), (vec![row(0, "a", 1.0)], Shortfall::NONE));
        std::fs::create_dir(class.join("thermal_zone1")).unwrap();
        std::fs::write(class.join("thermal_zone1/type"), "b\n").unwrap();
        std::fs::write(class.join("thermal_zone1/temp"), "2\n").unwrap();
        let both = vec![row(0, "a", 1.0), row(1, "b", 2.0)];
        assert_eq!(sample(&mut *sampler), (both, Shortfall::NONE));
        std::fs::remove_dir_all(class.join("thermal_zone0")).unwrap();
        assert_eq!(sample(&mut *sampler), (vec![row(1, "b", 2.0)], Shortfall::NONE));
    }

    // Goal: a host without zones says so. Method: an empty directory.
    #[test]
    fn a_host_without_zones_says_so() {
        let host = planted(&[("sys/class/thermal/cooling_device0/type", "Processor\n")]);
        let error = opened(&ENTRY, "", host.path()).unwrap_err().to_string();
        assert_eq!(error, format!("/{DIRECTORY}: no thermal zone{HINT}"));
    }

    // Goal: captured hosts are read whole. Method: what their files say.
    #[test]
    fn captured_hosts_are_read() {
        if let Some(host) = captured("procfs", &[DIRECTORY]) {
            let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
            let expected = [(0, "bcm2835_thermal".to_owned(), 49_925.0), (1, "acpitz".to_owned(), -44_000.0)];
            assert_eq!((rows(&payload), shortfall), (expected.to_vec(), Shortfall::NONE));
        }
        if let Some(host) = captured("node-exporter", &[DIRECTORY, "sys/devices/virtual/thermal"]) {
            let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
            assert_eq!(
                (rows(&payload), shortfall),
                (vec![(0, "cpu-thermal".to_owned(), 12_376.0)], Shortfall::NONE)
            );
        }
    }
}
