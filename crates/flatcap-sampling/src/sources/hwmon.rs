//! `hwmon`: every sensor of every hardware monitoring chip, from /sys/class/hwmon.

use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::host::HostDirectory;
use flatcap_schemas::host::{
    CurrentSensor, EnergyUseSensor, FanSensor, FrequencySensor, HumiditySensor, Hwmon, HwmonArgs,
    PowerDrawSensor, SensorPlace, TemperatureSensor, VoltageSensor,
};

use super::devices::{self, DeviceClass, DeviceKey, DeviceListing, FileName, NumberFile};
use super::guarded_reads::{GuardedElement, GuardedReads};
use super::text;
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, NameFilter, OpenedSampler, ReadError, Sampler, odd_text};

const DIRECTORY: &str = "sys/class/hwmon";
const CHIP: &[u8] = b"hwmon";
const DEVICE_CLASS: DeviceClass =
    DeviceClass { path: DIRECTORY, is_device: |name| devices::is_numbered(name, CHIP), devices_max: 512 };
/// Maximum number of sensors in one sample. Each sensor needs an open file and a system call.
const SENSORS_MAX: usize = 4096;
/// Maximum number of files of one chip that are examined.
const FILES_MAX: usize = 2048;

/// `include` and `exclude` match chip and sensor, as in `coretemp/temp1`, so `coretemp*` matches a
/// whole chip.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "hwmon",
    about: "Every hardware sensor: volts, degrees, fans, watts.",
    root: "flatcap.host.Hwmon",
    schema: include_bytes!("../../../../generated/host/hwmon.bfbs"),
    files: &[DIRECTORY],
    // Sensors are refreshed once or twice a second, and some buses are slow.
    period: Duration::from_secs(1),
    may_block: true,
    refresh: "depends on the chip: most once or twice a second, some at each read",
    selects: "sensors, such as coretemp/temp1",
    hint: ": usual on virtual machines; other hosts need a driver for each chip (CONFIG_HWMON)",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

/// Kinds of sensors, in the order of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SensorKind {
    Temperature,
    Voltage,
    Fan,
    Power,
    Current,
    Energy,
    Humidity,
    Frequency,
}

/// Prefixes of file names. In a file name, a number follows the prefix.
const KINDS: [(&[u8], SensorKind); 8] = [
    (b"temp", SensorKind::Temperature),
    (b"in", SensorKind::Voltage),
    (b"fan", SensorKind::Fan),
    (b"power", SensorKind::Power),
    (b"curr", SensorKind::Current),
    (b"energy", SensorKind::Energy),
    (b"humidity", SensorKind::Humidity),
    (b"freq", SensorKind::Frequency),
];

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    let unavailable = |error| Unavailable { file: DIRECTORY, error, hint: SPEC.hint };
    let listing =
        DeviceListing::open(context.host, DEVICE_CLASS, context.settings.period).map_err(unavailable)?;
    let sensors = Sensors { selection: context.selection(), ..Sensors::default() };
    let reads = GuardedReads::new(SPEC.name);
    let mut sampler = HwmonSampler { listing, sensors, reads, samples: HwmonSamples::default() };
    sampler.open_new();
    if !sampler.sensors.has_any {
        return Err(unavailable(devices::none_found("no chip with a sensor")));
    }
    Ok(OpenedSampler::built(sampler))
}

#[derive(Debug)]
struct HwmonSampler {
    listing: DeviceListing,
    sensors: Sensors,
    reads: GuardedReads<NumberFile>,
    samples: HwmonSamples, // reused
}

#[derive(Debug, Default)]
struct Sensors {
    selection: NameFilter,
    open: Vec<Sensor>,      // ascending by kind, chip and number; at most SENSORS_MAX
    has_any: bool,          // whether there is any sensor, wanted or not
    incomplete: Incomplete, // a limit was exceeded, or a name did not fit
    files: Vec<FileName>,   // reused; files of one chip
    wanted_name: Vec<u8>,   // reused; the name that patterns match
}

#[derive(Debug)]
struct Sensor {
    key: DeviceKey,
    kind: SensorKind,
    number: u64,
    place: SensorPlace,
    value: GuardedElement<NumberFile>,
}

impl Sensor {
    /// Returns the name of the sensor in the form that patterns match.
    fn name(&self) -> String {
        format!("{}/{}", devices::shown(self.place.chip_name()), devices::shown(self.place.sensor()))
    }
}

/// The values of all sensors, in one vector per kind.
#[derive(Debug, Default)]
struct HwmonSamples {
    temperatures: Vec<TemperatureSensor>,
    voltages: Vec<VoltageSensor>,
    fans: Vec<FanSensor>,
    powers: Vec<PowerDrawSensor>,
    currents: Vec<CurrentSensor>,
    energies: Vec<EnergyUseSensor>,
    humidities: Vec<HumiditySensor>,
    frequencies: Vec<FrequencySensor>,
}

impl HwmonSampler {
    fn open_new(&mut self) {
        let Self { listing, sensors, reads, .. } = self;
        reads.retain(&mut sensors.open, |sensor| listing.keeps(&sensor.key), |sensor| &mut sensor.value);
        listing.each_new(|directory, key| sensors.push_chip(directory, key, reads));
        sensors.open.sort_unstable_by_key(|sensor| (sensor.kind, sensor.key.name, sensor.number));
    }
}

impl Sensors {
    /// Opens the sensors of a chip.
    fn push_chip(
        &mut self,
        directory: &mut HostDirectory,
        key: DeviceKey,
        reads: &mut GuardedReads<NumberFile>,
    ) {
        let name = key.name.bytes();
        let Some(chip) = devices::number_after(name, CHIP) else { return };
        let name_file = devices::read_line(directory, &[name, b"/name"]);
        // Old drivers put all files into the chip's `device` directory.
        let device_name =
            name_file.is_none().then(|| devices::read_line(directory, &[name, b"/device/name"])).flatten();
        let directory_part: &[u8] = if device_name.is_some() { b"/device/" } else { b"/" };
        let chip_name: [u8; 32] = name_file.or(device_name).unwrap_or_default();
        let device = devices::parent(directory, name, CHIP);
        self.list_files(directory, &[name, directory_part]);
        let files = std::mem::take(&mut self.files);
        for file in &files {
            let Some((sensor, kind, number)) = sensor(file.bytes(), &files) else { continue };
            let Some(sensor_name) = text::name(sensor) else {
                self.incomplete |= Incomplete::UNREADABLE;
                continue;
            };
            self.has_any = true;
            if !self.wants(devices::until_zero(&chip_name), sensor) {
                continue;
            }
            if self.open.len() == SENSORS_MAX {
                self.incomplete |= Incomplete::TOO_MANY;
                break;
            }
            let label =
                devices::read_line(directory, &[name, directory_part, sensor, b"_label"]).unwrap_or_default();
            let place = SensorPlace::new(chip, &chip_name, &device, &sensor_name, &label, 0);
            let value = reads.element(NumberFile::open(directory, &[name, directory_part, file.bytes()]));
            self.open.push(Sensor { key, kind, number, place, value });
        }
        self.files = files;
    }

    fn list_files(&mut self, directory: &mut HostDirectory, parts: &[&[u8]]) {
        let Self { files, incomplete, .. } = self;
        files.clear();
        let listed = devices::with_path(parts, |path| {
            directory.list_subdirectory(path, |name| {
                let name = name.to_bytes();
                // Other files of a sensor are skipped.
                if !name.ends_with(b"_input") && !name.ends_with(b"_average") {
                    return;
                }
                match FileName::new(name).filter(|_| files.len() < FILES_MAX) {
                    Some(name) => files.push(name),
                    None => *incomplete |= Incomplete::TOO_MANY,
                }
            })
        });
        // A chip that disappeared since it was listed has no files. The next listing removes the
        // chip.
        if !matches!(listed, Some(Ok(()))) {
            files.clear();
        }
        files.sort_unstable();
    }

    fn wants(&mut self, chip: &[u8], sensor: &[u8]) -> bool {
        self.wanted_name.clear();
        for part in [chip, b"/", sensor] {
            self.wanted_name.extend_from_slice(part);
        }
        self.selection.matches(&self.wanted_name)
    }
}

/// Returns the sensor whose value is in a file. A file with an average is used only if the sensor
/// has no input file.
fn sensor<'a>(file: &'a [u8], files: &[FileName]) -> Option<(&'a [u8], SensorKind, u64)> {
    let is_input_of = |file: &FileName, sensor| file.bytes().strip_suffix(b"_input") == Some(sensor);
    let name = file.strip_suffix(b"_input").or_else(|| {
        let name = file.strip_suffix(b"_average")?;
        files.iter().all(|file| !is_input_of(file, name)).then_some(name)
    })?;
    KINDS.iter().find_map(|(word, kind)| Some((name, *kind, devices::number_after(name, word)?)))
}

impl HwmonSamples {
    fn clear(&mut self) {
        self.temperatures.clear();
        self.voltages.clear();
        self.fans.clear();
        self.powers.clear();
        self.currents.clear();
        self.energies.clear();
        self.humidities.clear();
        self.frequencies.clear();
    }

    fn push(&mut self, sensor: &Sensor) -> Incomplete {
        let mut incomplete = Incomplete::NONE;
        let mut place = sensor.place;
        let is_energy = sensor.kind == SensorKind::Energy;
        let read = sensor.value.with(|file| {
            let energy = if is_energy { file.unsigned(&mut incomplete) } else { text::ABSENT };
            let value = if is_energy { f64::NAN } else { file.signed(&mut incomplete) };
            (file.error(), energy, value)
        });
        if read.is_none() {
            incomplete |= Incomplete::UNREADABLE;
            odd_text::note_hanging(&sensor.name());
        }
        let (error, energy, value) = read.unwrap_or((devices::HANGS, text::ABSENT, f64::NAN));
        place.set_error(error);
        match sensor.kind {
            SensorKind::Temperature => self.temperatures.push(TemperatureSensor::new(&place, value)),
            SensorKind::Voltage => self.voltages.push(VoltageSensor::new(&place, value)),
            SensorKind::Fan => self.fans.push(FanSensor::new(&place, value)),
            SensorKind::Power => self.powers.push(PowerDrawSensor::new(&place, value)),
            SensorKind::Current => self.currents.push(CurrentSensor::new(&place, value)),
            SensorKind::Humidity => self.humidities.push(HumiditySensor::new(&place, value)),
            SensorKind::Frequency => self.frequencies.push(FrequencySensor::new(&place, value)),
            SensorKind::Energy => self.energies.push(EnergyUseSensor::new(&place, energy)),
        }
        odd_text::of_element(incomplete, || sensor.name())
    }
}

impl Sampler for HwmonSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        if self.listing.refresh()? {
            self.open_new();
        }
        let read = self.reads.read(&mut self.sensors.open, |sensor| &mut sensor.value, Sensor::name);
        read.map_err(|error| ReadError { file: DIRECTORY, error })?;
        for sensor in &self.sensors.open {
            if sensor.value.with(|file| file.is_gone()) == Some(true) {
                self.listing.forget(&sensor.key);
            }
        }
        Ok(())
    }

    fn helper_cpu_ns(&self) -> u64 {
        self.reads.cpu_ns()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let mut incomplete = self.listing.incomplete() | self.sensors.incomplete;
        self.samples.clear();
        for sensor in &self.sensors.open {
            incomplete |= self.samples.push(sensor);
        }
        let args = HwmonArgs {
            temperatures: Some(builder.create_vector(&self.samples.temperatures)),
            voltages: Some(builder.create_vector(&self.samples.voltages)),
            fans: Some(builder.create_vector(&self.samples.fans)),
            powers: Some(builder.create_vector(&self.samples.powers)),
            currents: Some(builder.create_vector(&self.samples.currents)),
            energies: Some(builder.create_vector(&self.samples.energies)),
            humidities: Some(builder.create_vector(&self.samples.humidities)),
            frequencies: Some(builder.create_vector(&self.samples.frequencies)),
        };
        let root = Hwmon::create(builder, &args);
        builder.finish_minimal(root);
        incomplete
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::sources::tests::{captured_host, fixed_text, host_with, open_sampler, rename, sample_under};

    /// Pairs of a sensor such as "hwmon0 coretemp(coretemp.0) temp1 [Core 0]" and its value.
    type SensorRows = Vec<(String, f64)>;

    fn place(place: &SensorPlace) -> String {
        let [name, device] = [fixed_text(place.chip_name()), fixed_text(place.device())];
        let [sensor, label] = [fixed_text(place.sensor()), fixed_text(place.label())];
        format!("hwmon{} {name}({device}) {sensor} [{label}]", place.chip())
    }

    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    fn rows(payload: &[u8]) -> SensorRows {
        let sample = flatbuffers::root::<Hwmon<'_>>(payload).unwrap();
        let mut rows = SensorRows::new();
        rows.extend(sample.temperatures().iter().map(|one| (place(one.place()), one.value())));
        rows.extend(sample.voltages().iter().map(|one| (place(one.place()), one.value())));
        rows.extend(sample.fans().iter().map(|one| (place(one.place()), one.value())));
        rows.extend(sample.powers().iter().map(|one| (place(one.place()), one.value())));
        rows.extend(sample.currents().iter().map(|one| (place(one.place()), one.value())));
        rows.extend(sample.energies().iter().map(|one| (place(one.place()), one.value() as f64)));
        rows.extend(sample.humidities().iter().map(|one| (place(one.place()), one.value())));
        rows.extend(sample.frequencies().iter().map(|one| (place(one.place()), one.value())));
        rows
    }

    fn sample(sampler: &mut dyn Sampler) -> (SensorRows, Incomplete) {
        sampler.read().unwrap();
        let mut builder = FlatBufferBuilder::new();
        let incomplete = sampler.build(0, &mut builder);
        (rows(builder.finished_data()), incomplete)
    }

    fn row(place: &str, value: f64) -> (String, f64) {
        (place.to_owned(), value)
    }

    /// Creates a chip with a sensor of each kind, in `sys/class/hwmon/NAME`.
    fn chip(host: &Path, directory: &str, name: &str) {
        let chip = host.join(DIRECTORY).join(directory);
        fs::create_dir_all(&chip).unwrap();
        for (file, content) in [
            ("name", name),
            ("temp10_input", "-5000"),
            ("temp10_label", "Core 9"),
            ("temp2_input", "54000"),
            ("temp2_max", "100000"),
            ("in0_input", "-12000"),
            ("fan1_input", "1098"),
            ("power1_average", "15000000"),
            ("power2_average", "1"),
            ("power2_input", "25000000"),
            ("curr1_input", "-250"),
            ("energy1_input", "18446744073709551614"),
            ("humidity1_input", "45300"),
            ("freq1_input", "214000000"),
            ("pwm1", "128"),
            ("intrusion0_alarm", "0"),
            ("other1_input", "1"),
        ] {
            fs::write(chip.join(file), format!("{content}\n")).unwrap();
        }
    }

    // Proves that each sensor is in the vector of its kind, with its label and the sign of its
    // value, in the order of chips and sensor numbers. Other files are ignored.
    #[test]
    fn every_value_is_in_its_place() {
        let host = host_with(&[]);
        chip(host.path(), "hwmon2", "test");
        let (payload, incomplete) = sample_under(&SPEC, "", host.path());
        assert_eq!(incomplete, Incomplete::NONE);
        #[allow(clippy::cast_precision_loss, reason = "as the rows of this test")]
        let expected = [
            row("hwmon2 test() temp2 []", 54_000.0),
            row("hwmon2 test() temp10 [Core 9]", -5_000.0),
            row("hwmon2 test() in0 []", -12_000.0),
            row("hwmon2 test() fan1 []", 1_098.0),
            row("hwmon2 test() power1 []", 15_000_000.0),
            row("hwmon2 test() power2 []", 25_000_000.0),
            row("hwmon2 test() curr1 []", -250.0),
            row("hwmon2 test() energy1 []", (u64::MAX - 1) as f64),
            row("hwmon2 test() humidity1 []", 45_300.0),
            row("hwmon2 test() freq1 []", 214_000_000.0),
        ];
        assert_eq!(rows(&payload), expected);
        let keys = "include = [\"test/temp*\", \"*/fan1\"]\nexclude = [\"test/temp2\"]";
        let (payload, _) = sample_under(&SPEC, keys, host.path());
        assert_eq!(rows(&payload), [expected[1].clone(), expected[3].clone()]);
    }

    // Proves that chips come and go without a restart, and that a chip that takes the name of
    // another chip is not confused with that chip.
    #[test]
    fn chips_come_and_go() {
        let host = host_with(&[
            ("sys/class/hwmon/hwmon1/name", "one\n"),
            ("sys/class/hwmon/hwmon1/temp1_input", "1\n"),
            ("spare/name", "two\n"),
            ("spare/temp1_input", "2\n"),
            ("spare/temp3_input", "3\n"),
        ]);
        let class = host.path().join(DIRECTORY);
        let mut sampler = open_sampler(&SPEC, "period = \"1s\"", host.path()).unwrap();
        assert_eq!(sample(&mut *sampler), (vec![row("hwmon1 one() temp1 []", 1.0)], Incomplete::NONE));
        fs::remove_dir_all(class.join("hwmon1")).unwrap();
        rename(&host.path().join("spare"), &class.join("hwmon1"));
        let two = [row("hwmon1 two() temp1 []", 2.0), row("hwmon1 two() temp3 []", 3.0)];
        for _ in 0..3 {
            assert_eq!(sample(&mut *sampler), (two.to_vec(), Incomplete::NONE));
        }
        chip(host.path(), "hwmon0", "test");
        assert_eq!(sample(&mut *sampler).0.len(), 12);
        fs::remove_dir_all(class.join("hwmon0")).unwrap();
        assert_eq!(sample(&mut *sampler), (two.to_vec(), Incomplete::NONE));
    }

    // Proves that a sensor without a value is absent and marked, and that the other sensors are
    // still recorded, even if the file of the sensor is a directory (EISDIR).
    #[test]
    fn damaged_values_are_marked() {
        for (content, expected) in
            [("", Incomplete::CUT), ("x\n", Incomplete::UNREADABLE), ("1e9\n", Incomplete::UNREADABLE)]
        {
            let host = host_with(&[
                ("sys/class/hwmon/hwmon0/name", "a\n"),
                ("sys/class/hwmon/hwmon0/temp1_input", content),
                ("sys/class/hwmon/hwmon0/temp2_input", "2\n"),
            ]);
            let (payload, incomplete) = sample_under(&SPEC, "", host.path());
            let rows = rows(&payload);
            assert!(rows[0].1.is_nan() && incomplete == expected, "{content:?}");
            assert_eq!(rows[1], row("hwmon0 a() temp2 []", 2.0));
        }
        let host = host_with(&[("sys/class/hwmon/hwmon0/temp1_input/x", "")]);
        fs::write(host.path().join(DIRECTORY).join("hwmon0/name"), "a\n").unwrap();
        let (payload, incomplete) = sample_under(&SPEC, "", host.path());
        let sample = flatbuffers::root::<Hwmon<'_>>(&payload).unwrap();
        assert_eq!((sample.temperatures().get(0).place().error(), incomplete), (21, Incomplete::UNREADABLE));
    }

    // Proves that a host whose chips have no sensors is reported.
    #[test]
    fn a_host_without_sensors_is_reported() {
        let host =
            host_with(&[("sys/class/hwmon/hwmon0/name", "a\n"), ("sys/class/hwmon/hwmon0/pwm1", "1\n")]);
        let error = open_sampler(&SPEC, "", host.path()).unwrap_err().to_string();
        assert_eq!(error, format!("/{DIRECTORY}: no chip with a sensor{}", SPEC.hint));
    }

    // Proves that sensors beyond the limit are skipped and marked.
    #[test]
    fn too_many_sensors_are_marked() {
        let host = host_with(&[]);
        for chip in 0..9 {
            let chip = host.path().join(DIRECTORY).join(format!("hwmon{chip}"));
            fs::create_dir_all(&chip).unwrap();
            fs::write(chip.join("name"), "many\n").unwrap();
            for sensor in 0..500 {
                fs::write(chip.join(format!("in{sensor}_input")), "1\n").unwrap();
            }
        }
        let (payload, incomplete) = sample_under(&SPEC, "", host.path());
        let sample = flatbuffers::root::<Hwmon<'_>>(&payload).unwrap();
        assert_eq!(sample.voltages().len(), SENSORS_MAX);
        assert!((incomplete | Incomplete::UNREADABLE) == Incomplete::TOO_MANY | Incomplete::UNREADABLE);
    }

    // Proves that the files captured from a host are read completely, including chips in class and
    // device directories, symbolic links and unusual names.
    #[test]
    fn a_captured_host_is_read() {
        let Some(host) = captured_host("node-exporter", &["sys"]) else { return };
        let (payload, incomplete) = sample_under(&SPEC, "", host.path());
        assert_eq!(incomplete, Incomplete::NONE);
        let rows = rows(&payload);
        for expected in [
            row("hwmon0 coretemp(coretemp.0) temp1 [Physical id 0]", 55_000.0),
            row("hwmon1 coretemp(coretemp.1) temp5 [Core 3]", 50_000.0),
            row("hwmon2 applesmc(applesmc.768) fan2 [Right side]", 1_998.0),
            row("hwmon3 nct6779(nct6775.656) in1 []", 1_024.0),
            row("hwmon4 () freq2 [mclk]", 300_000_000.0),
            row("hwmon10 mt7996_phy0_2(phy0) temp1 []", 57_000.0),
        ] {
            assert!(rows.contains(&expected), "{expected:?} in {rows:#?}");
        }
        assert_eq!(rows.len(), 22);
    }
}
