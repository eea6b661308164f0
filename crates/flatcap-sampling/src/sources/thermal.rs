//! `thermal`: temperatures by zone, from /sys/class/thermal.

use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostDirectory;
use flatcap_schemas::host::{Thermal, ThermalArgs, ThermalZone};

use super::devices::{self, DeviceClass, DeviceKey, DeviceListing, NumberFile};
use super::guarded_reads::{GuardedElement, GuardedReads};
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, NameFilter, OpenedSampler, ReadError, Sampler, odd_text};

const DIRECTORY: &str = "sys/class/thermal";
const DEVICE_CLASS: DeviceClass = DeviceClass {
    path: DIRECTORY,
    is_device: |name| devices::is_numbered(name, ZONE),
    // No host has more zones. Each zone is read at each sample.
    devices_max: 1024,
};
const ZONE: &[u8] = b"thermal_zone";

/// `include` and `exclude` match the types of zones, such as `x86_pkg_temp`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "thermal",
    about: "Temperature of each thermal zone.",
    root: "flatcap.host.Thermal",
    schema: include_bytes!("../../../../generated/host/thermal.bfbs"),
    files: &[DIRECTORY],
    // Temperatures change in seconds, and some zones query slow firmware.
    period: Duration::from_secs(1),
    may_block: true,
    refresh: "depends on the zone: some at each read, others every 2 s",
    selects: "types of zones, such as x86_pkg_temp",
    hint: ": usual on virtual machines and on hosts whose kernel measures no temperatures",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let unavailable = |error| Unavailable { file: DIRECTORY, error, hint: SPEC.hint };
    let listing =
        DeviceListing::open(context.host, DEVICE_CLASS, context.settings.period).map_err(unavailable)?;
    if listing.is_empty() {
        return Err(unavailable(devices::none_found("no thermal zone")));
    }
    let mut sampler = ThermalSampler {
        listing,
        selection: context.selection(),
        zones: Vec::new(),
        reads: GuardedReads::new(SPEC.name),
        samples: Vec::new(),
    };
    sampler.open_new();
    Ok(OpenedSampler::built(sampler))
}

#[derive(Debug)]
struct ThermalSampler {
    listing: DeviceListing,
    selection: NameFilter,
    zones: Vec<ThermalZoneFile>, // ascending by number
    reads: GuardedReads<NumberFile>,
    samples: Vec<ThermalZone>, // reused
}

#[derive(Debug)]
struct ThermalZoneFile {
    key: DeviceKey,
    number: u64,
    kind: [u8; 32],
    temperature: GuardedElement<NumberFile>,
}

impl ThermalZoneFile {
    fn name(&self) -> String {
        let kind = String::from_utf8_lossy(devices::until_zero(&self.kind));
        format!("thermal_zone{} ({kind})", self.number)
    }
}

impl ThermalSampler {
    fn open_new(&mut self) {
        let Self { listing, selection, zones, reads, .. } = self;
        reads.retain(zones, |zone| listing.keeps(&zone.key), |zone| &mut zone.temperature);
        listing.each_new(|directory, key| zones.extend(zone(directory, key, selection, reads)));
        zones.sort_unstable_by_key(|zone| zone.number);
    }
}

/// Opens a zone, if the filter selects it.
fn zone(
    directory: &HostDirectory,
    key: DeviceKey,
    selection: &NameFilter,
    reads: &mut GuardedReads<NumberFile>,
) -> Option<ThermalZoneFile> {
    let name = key.name.bytes();
    let number = devices::number_after(name, ZONE)?;
    let kind: [u8; 32] = devices::read_line(directory, &[name, b"/type"]).unwrap_or_default();
    if !selection.matches(devices::until_zero(&kind)) {
        return None;
    }
    let temperature = reads.element(NumberFile::open(directory, &[name, b"/temp"]));
    Some(ThermalZoneFile { key, number, kind, temperature })
}

impl Sampler for ThermalSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        if self.listing.refresh()? {
            self.open_new();
        }
        let read = self.reads.read(&mut self.zones, |zone| &mut zone.temperature, ThermalZoneFile::name);
        read.map_err(|error| ReadError { file: DIRECTORY, error })?;
        for zone in &self.zones {
            if zone.temperature.with(|file| file.is_gone()) == Some(true) {
                self.listing.forget(&zone.key);
            }
        }
        Ok(())
    }

    fn helper_cpu_ns(&self) -> u64 {
        self.reads.cpu_ns()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let mut incomplete = self.listing.incomplete();
        self.samples.clear();
        self.samples.extend(self.zones.iter().map(|zone| {
            let mut lacks = Incomplete::NONE;
            let read = zone.temperature.with(|file| (file.signed(&mut lacks), file.error()));
            incomplete |= odd_text::of_element(lacks, || zone.name());
            if read.is_none() {
                incomplete |= Incomplete::UNREADABLE;
                odd_text::note_hanging(&zone.name());
            }
            let (temperature, error) = read.unwrap_or((f64::NAN, devices::HANGS));
            ThermalZone::new(zone.number, &zone.kind, temperature, error)
        }));
        let zones = builder.create_vector(&self.samples);
        let root = Thermal::create(builder, &ThermalArgs { zones: Some(zones) });
        builder.finish_minimal(root);
        incomplete
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::{captured_host, fixed_text, host_with, open_sampler, sample_under};

    type ZoneRows = Vec<(u64, String, f64)>;

    fn rows(payload: &[u8]) -> ZoneRows {
        let sample = flatbuffers::root::<Thermal<'_>>(payload).unwrap();
        let zones = sample.zones().iter();
        zones.map(|zone| (zone.zone(), fixed_text(zone.type_()), zone.temperature())).collect()
    }

    fn sample(sampler: &mut dyn Sampler) -> (ZoneRows, Incomplete) {
        sampler.read().unwrap();
        let mut builder = FlatBufferBuilder::new();
        let incomplete = sampler.build(0, &mut builder);
        (rows(builder.finished_data()), incomplete)
    }

    // Proves that zones are ordered by number, that values may be negative, and that patterns match
    // types.
    #[test]
    fn every_value_is_in_its_place() {
        let host = host_with(&[
            ("sys/class/thermal/thermal_zone10/type", "acpitz\n"),
            ("sys/class/thermal/thermal_zone10/temp", "-44000\n"),
            ("sys/class/thermal/thermal_zone2/type", "x86_pkg_temp\n"),
            ("sys/class/thermal/thermal_zone2/temp", "49925\n"),
            ("sys/class/thermal/cooling_device0/type", "Processor\n"),
        ]);
        let expected = [(2, "x86_pkg_temp".to_owned(), 49_925.0), (10, "acpitz".to_owned(), -44_000.0)];
        let (payload, incomplete) = sample_under(&SPEC, "", host.path());
        assert_eq!((rows(&payload), incomplete), (expected.to_vec(), Incomplete::NONE));
        let (payload, _) = sample_under(&SPEC, "exclude = [\"x86_*\"]", host.path());
        assert_eq!(rows(&payload), expected[1..]);
    }

    // Proves that a value that is truncated or is not a number is absent and marked, and that the
    // other values are still recorded.
    #[test]
    fn damaged_values_are_marked() {
        let path = "sys/class/thermal/thermal_zone0/temp";
        for (content, expected) in [
            ("4 8", Incomplete::UNREADABLE),
            ("", Incomplete::CUT),
            ("warm\n", Incomplete::UNREADABLE),
            ("99999999999999999999\n", Incomplete::UNREADABLE),
        ] {
            let host = host_with(&[
                (path, content),
                ("sys/class/thermal/thermal_zone1/type", "b\n"),
                ("sys/class/thermal/thermal_zone1/temp", "1\n"),
            ]);
            let (payload, incomplete) = sample_under(&SPEC, "", host.path());
            let rows = rows(&payload);
            assert_eq!((incomplete, rows[1].2), (expected, 1.0), "{content:?}");
            assert!(rows[0].2.is_nan());
        }
    }

    // Proves that zones come and go without a restart.
    #[test]
    fn zones_come_and_go() {
        let host = host_with(&[
            ("sys/class/thermal/thermal_zone0/type", "a\n"),
            ("sys/class/thermal/thermal_zone0/temp", "1\n"),
        ]);
        let class = host.path().join(DIRECTORY);
        let mut sampler = open_sampler(&SPEC, "period = \"1s\"", host.path()).unwrap();
        let row = |zone, kind: &str, value| (zone, kind.to_owned(), value);
        assert_eq!(sample(&mut *sampler), (vec![row(0, "a", 1.0)], Incomplete::NONE));
        std::fs::create_dir(class.join("thermal_zone1")).unwrap();
        std::fs::write(class.join("thermal_zone1/type"), "b\n").unwrap();
        std::fs::write(class.join("thermal_zone1/temp"), "2\n").unwrap();
        let both = vec![row(0, "a", 1.0), row(1, "b", 2.0)];
        assert_eq!(sample(&mut *sampler), (both, Incomplete::NONE));
        std::fs::remove_dir_all(class.join("thermal_zone0")).unwrap();
        assert_eq!(sample(&mut *sampler), (vec![row(1, "b", 2.0)], Incomplete::NONE));
    }

    // Proves that a host without zones is reported.
    #[test]
    fn a_host_without_zones_is_reported() {
        let host = host_with(&[("sys/class/thermal/cooling_device0/type", "Processor\n")]);
        let error = open_sampler(&SPEC, "", host.path()).unwrap_err().to_string();
        assert_eq!(error, format!("/{DIRECTORY}: no thermal zone{}", SPEC.hint));
    }

    // Proves that the files captured from hosts are read completely.
    #[test]
    fn captured_hosts_are_read() {
        if let Some(host) = captured_host("procfs", &[DIRECTORY]) {
            let (payload, incomplete) = sample_under(&SPEC, "", host.path());
            let expected = [(0, "bcm2835_thermal".to_owned(), 49_925.0), (1, "acpitz".to_owned(), -44_000.0)];
            assert_eq!((rows(&payload), incomplete), (expected.to_vec(), Incomplete::NONE));
        }
        if let Some(host) = captured_host("node-exporter", &[DIRECTORY, "sys/devices/virtual/thermal"]) {
            let (payload, incomplete) = sample_under(&SPEC, "", host.path());
            assert_eq!(
                (rows(&payload), incomplete),
                (vec![(0, "cpu-thermal".to_owned(), 12_376.0)], Incomplete::NONE)
            );
        }
    }
}
