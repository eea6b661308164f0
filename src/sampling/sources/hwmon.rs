//! `hwmon`: every sensor of every chip that measures the host, from /sys/class/hwmon.

use flatbuffers::FlatBufferBuilder;

use super::devices::{self, FileName, Key, Listing, OneNumber, Place};
use super::text;
use super::{Entry, Opening, Unavailable};
use crate::os::host::HostDirectory;
use crate::sampling::{Opened, ReadError, Sampler, Selection, Shortfall};
use crate::schema::host::{
    CurrentSensor, EnergyUseSensor, FanSensor, FrequencySensor, HumiditySensor, Hwmon, HwmonArgs,
    PowerDrawSensor, SensorPlace, TemperatureSensor, VoltageSensor,
};

const DIRECTORY: &str = "sys/class/hwmon";
const HINT: &str = ": virtual machines have none, other hosts a driver for each chip (CONFIG_HWMON)";
const CHIP: &[u8] = b"hwmon";
const PLACE: Place =
    Place { path: DIRECTORY, is_device: |name| devices::is_numbered(name, CHIP), devices_max: 512 };
/// Most sensors in one sample; each costs a file and a call of the kernel.
const SENSORS_MAX: usize = 4096;
/// Most files of one chip that are looked at.
const FILES_MAX: usize = 2048;

/// Patterns of its configuration match chip and sensor: `coretemp/temp1`, so `coretemp*` is a whole chip.
pub(super) const ENTRY: Entry = Entry {
    name: "hwmon",
    root: "flatcap.host.Hwmon",
    schema: include_bytes!("../../../generated/host/hwmon.bfbs"),
    files: &[DIRECTORY],
    refresh: "by chip: most once or twice a second, some at each reading",
    selects: "sensors, such as coretemp/temp1",
    needs: &[],
    open,
};

/// In the order of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Temperature,
    Voltage,
    Fan,
    Power,
    Current,
    Energy,
    Humidity,
    Frequency,
}

/// What the names of their files begin with; a number follows.
const KINDS: [(&[u8], Kind); 8] = [
    (b"temp", Kind::Temperature),
    (b"in", Kind::Voltage),
    (b"fan", Kind::Fan),
    (b"power", Kind::Power),
    (b"curr", Kind::Current),
    (b"energy", Kind::Energy),
    (b"humidity", Kind::Humidity),
    (b"freq", Kind::Frequency),
];

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let unavailable = |error| Unavailable { file: DIRECTORY, error, hint: HINT };
    let listing = Listing::open(opening.host, PLACE, opening.config.period).map_err(unavailable)?;
    let sensors = Sensors { selection: opening.selection(), ..Sensors::default() };
    let mut sampler = HwmonSampler { listing, sensors, samples: Samples::default() };
    sampler.open_new();
    if !sampler.sensors.are_any {
        return Err(unavailable(devices::empty("no chip with a sensor")));
    }
    Ok(Opened::built(sampler))
}

#[derive(Debug)]
struct HwmonSampler {
    listing: Listing,
    sensors: Sensors,
    samples: Samples, // reused
}

#[derive(Debug, Default)]
struct Sensors {
    selection: Selection,
    open: Vec<Sensor>,    // ascending by kind, chip and number; at most SENSORS_MAX
    are_any: bool,        // wanted or not
    shortfall: Shortfall, // more sensors or files than the limits, or names that do not fit, at some time
    files: Vec<FileName>, // reused: of one chip
    wanted_name: Vec<u8>, // reused: what patterns match
}

#[derive(Debug)]
struct Sensor {
    key: Key,
    kind: Kind,
    number: u64,
    place: SensorPlace,
    value: OneNumber,
}

/// One vector a kind.
#[derive(Debug, Default)]
struct Samples {
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
        let Self { listing, sensors, .. } = self;
        sensors.open.retain(|sensor| listing.keeps(&sensor.key));
        listing.each_new(|directory, key| sensors.push_chip(directory, key));
        sensors.open.sort_unstable_by_key(|sensor| (sensor.kind, sensor.key.name, sensor.number));
    }
}

impl Sensors {
    /// Opens the sensors of a chip.
    fn push_chip(&mut self, directory: &mut HostDirectory, key: Key) {
        let name = key.name.bytes();
        let Some(chip) = devices::number_behind(name, CHIP) else { return };
        let named = devices::words(directory, &[name, b"/name"]);
        // Drivers of old have everything beside the chip, in its device.
        let of_device =
            named.is_none().then(|| devices::words(directory, &[name, b"/device/name"])).flatten();
        let way: &[u8] = if of_device.is_some() { b"/device/" } else { b"/" };
        let chip_name: [u8; 32] = named.or(of_device).unwrap_or_default();
        let device = devices::parent(directory, name, CHIP);
        self.list_files(directory, &[name, way]);
        let files = std::mem::take(&mut self.files);
        for file in &files {
            let Some((sensor, kind, number)) = sensor(file.bytes(), &files) else { continue };
            let Some(sensor_name) = text::name(sensor) else {
                self.shortfall |= Shortfall::UNREADABLE;
                continue;
            };
            self.are_any = true;
            if !self.wants(devices::until_end(&chip_name), sensor) {
                continue;
            }
            if self.open.len() == SENSORS_MAX {
                self.shortfall |= Shortfall::TOO_MANY;
                break;
            }
            let label = devices::words(directory, &[name, way, sensor, b"_label"]).unwrap_or_default();
            let place = SensorPlace::new(chip, &chip_name, &device, &sensor_name, &label, 0);
            let value = OneNumber::open(directory, &[name, way, file.bytes()]);
            self.open.push(Sensor { key, kind, number, place, value });
        }
        self.files = files;
    }

    fn list_files(&mut self, directory: &mut HostDirectory, parts: &[&[u8]]) {
        let Self { files, shortfall, .. } = self;
        files.clear();
        let listed = devices::with_path(parts, |path| {
            directory.list_beneath(path, |name| {
                let name = name.to_bytes();
                // Everything else that lies beside a sensor is passed over.
                if !name.ends_with(b"_input") && !name.ends_with(b"_average") {
                    return;
                }
                match FileName::new(name).filter(|_| files.len() < FILES_MAX) {
                    Some(name) => files.push(name),
                    None => *shortfall |= Shortfall::TOO_MANY,
                }
            })
        });
        // A chip that went since it was listed has no files; the next listing knows.
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
        self.selection.wants(&self.wanted_name)
    }
}

/// The sensor that a file is the value of. An average is one where the sensor has no other.
fn sensor<'a>(file: &'a [u8], files: &[FileName]) -> Option<(&'a [u8], Kind, u64)> {
    let is_input_of = |file: &FileName, sensor| file.bytes().strip_suffix(b"_input") == Some(sensor);
    let name = file.strip_suffix(b"_input").or_else(|| {
        let name = file.strip_suffix(b"_average")?;
        files.iter().all(|file| !is_input_of(file, name)).then_some(name)
    })?;
    KINDS.iter().find_map(|(word, kind)| Some((name, *kind, devices::number_behind(name, word)?)))
}

impl Samples {
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

    fn push(&mut self, sensor: &Sensor) -> Shortfall {
        let mut shortfall = Shortfall::NONE;
        let mut place = sensor.place;
        place.set_error(sensor.value.error());
        if sensor.kind == Kind::Energy {
            let value = sensor.value.unsigned(&mut shortfall);
            self.energies.push(EnergyUseSensor::new(&place, value));
            return shortfall;
        }
        let value = sensor.value.signed(&mut shortfall);
        match sensor.kind {
            Kind::Temperature => self.temperatures.push(TemperatureSensor::new(&place, value)),
            Kind::Voltage => self.voltages.push(VoltageSensor::new(&place, value)),
            Kind::Fan => self.fans.push(FanSensor::new(&place, value)),
            Kind::Power => self.powers.push(PowerDrawSensor::new(&place, value)),
            Kind::Current => self.currents.push(CurrentSensor::new(&place, value)),
            Kind::Humidity => self.humidities.push(HumiditySensor::new(&place, value)),
            Kind::Frequency => self.frequencies.push(FrequencySensor::new(&place, value)),
            Kind::Energy => {}
        }
        shortfall
    }
}

impl Sampler for HwmonSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        if self.listing.refresh()? {
            self.open_new();
        }
        for sensor in &mut self.sensors.open {
            sensor.value.read();
            if sensor.value.is_gone() {
                self.listing.forget(&sensor.key);
            }
        }
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let mut shortfall = self.listing.shortfall() | self.sensors.shortfall;
        self.samples.clear();
        for sensor in &self.sensors.open {
            shortfall |= self.samples.push(sensor);
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
        shortfall
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::sampling::sources::tests::{captured, moved, opened, planted, sampled_under, shown};

    /// "hwmon0 coretemp(coretemp.0) temp1 [Core 0]" and the value.
    type Rows = Vec<(String, f64)>;

    fn place(place: &SensorPlace) -> String {
        let [name, device] = [shown(place.chip_name()), shown(place.device())];
        let [sensor, label] = [shown(place.sensor()), shown(place.label())];
        format!("hwmon{} {name}({device}) {sensor} [{label}]", place.chip())
    }

    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    fn rows(payload: &[u8]) -> Rows {
        let sample = flatbuffers::root::<Hwmon<'_>>(payload).unwrap();
        let mut rows = Rows::new();
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

    fn sample(sampler: &mut dyn Sampler) -> (Rows, Shortfall) {
        sampler.read().unwrap();
        let mut builder = FlatBufferBuilder::new();
        let shortfall = sampler.build(0, &mut builder);
        (rows(builder.finished_data()), shortfall)
    }

    fn row(place: &str, value: f64) -> (String, f64) {
        (place.to_owned(), value)
    }

    /// A chip with a sensor of each kind, in `sys/class/hwmon/NAME`.
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

    // Goal: each sensor stands in the vector of its kind, with its label and sign, in the order of chips and numbers. Method: all
    // different; files that are no sensors beside them.
    #[test]
    fn every_value_is_in_its_place() {
        let host = planted(&[]);
        chip(host.path(), "hwmon2", "test");
        let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
        assert_eq!(shortfall, Shortfall::NONE);
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
        let (payload, _) = sampled_under(&ENTRY, keys, host.path());
        assert_eq!(rows(&payload), [expected[1].clone(), expected[3].clone()]);
    }

    // Goal: chips come and go without a restart, and one that takes another's name is not taken for it. Method: a tree that changes
    // between samples.
    #[test]
    fn chips_come_and_go() {
        let host = planted(&[
            ("sys/class/hwmon/hwmon1/name", "one\n"),
            ("sys/class/hwmon/hwmon1/temp1_input", "1\n"),
            ("spare/name", "two\n"),
            ("spare/temp1_input", "2\n"),
            ("spare/temp3_input", "3\n"),
        ]);
        let class = host.path().join(DIRECTORY);
        let mut sampler = opened(&ENTRY, "period = \"1s\"", host.path()).unwrap();
        assert_eq!(sample(&mut *sampler), (vec![row("hwmon1 one() temp1 []", 1.0)], Shortfall::NONE));
        fs::remove_dir_all(class.join("hwmon1")).unwrap();
        moved(&host.path().join("spare"), &class.join("hwmon1"));
        let two = [row("hwmon1 two() temp1 []", 2.0), row("hwmon1 two() temp3 []", 3.0)];
        for _ in 0..3 {
            assert_eq!(sample(&mut *sampler), (two.to_vec(), Shortfall::NONE));
        }
        chip(host.path(), "hwmon0", "test");
        assert_eq!(sample(&mut *sampler).0.len(), 12);
        fs::remove_dir_all(class.join("hwmon0")).unwrap();
        assert_eq!(sample(&mut *sampler), (two.to_vec(), Shortfall::NONE));
    }

    // Goal: a sensor that gives no value is absent and marked, and the others stay. Method: contents of one file, a directory in
    // place of a file (EISDIR).
    #[test]
    fn damaged_values_are_marked() {
        for (content, expected) in
            [("5400", Shortfall::CUT), ("x\n", Shortfall::UNREADABLE), ("1e9\n", Shortfall::UNREADABLE)]
        {
            let host = planted(&[
                ("sys/class/hwmon/hwmon0/name", "a\n"),
                ("sys/class/hwmon/hwmon0/temp1_input", content),
                ("sys/class/hwmon/hwmon0/temp2_input", "2\n"),
            ]);
            let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
            let rows = rows(&payload);
            assert!(rows[0].1.is_nan() && shortfall == expected, "{content:?}");
            assert_eq!(rows[1], row("hwmon0 a() temp2 []", 2.0));
        }
        let host = planted(&[("sys/class/hwmon/hwmon0/temp1_input/x", "")]);
        fs::write(host.path().join(DIRECTORY).join("hwmon0/name"), "a\n").unwrap();
        let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
        let sample = flatbuffers::root::<Hwmon<'_>>(&payload).unwrap();
        assert_eq!((sample.temperatures().get(0).place().error(), shortfall), (21, Shortfall::UNREADABLE));
    }

    // Goal: chips without sensors are no source. Method: a chip with a fan's switch alone.
    #[test]
    fn a_host_without_sensors_says_so() {
        let host = planted(&[("sys/class/hwmon/hwmon0/name", "a\n"), ("sys/class/hwmon/hwmon0/pwm1", "1\n")]);
        let error = opened(&ENTRY, "", host.path()).unwrap_err().to_string();
        assert_eq!(error, format!("/{DIRECTORY}: no chip with a sensor{HINT}"));
    }

    // Goal: no more sensors than the limit, and that is said. Method: one chip too many.
    #[test]
    fn too_many_sensors_are_marked() {
        let host = planted(&[]);
        for chip in 0..9 {
            let chip = host.path().join(DIRECTORY).join(format!("hwmon{chip}"));
            fs::create_dir_all(&chip).unwrap();
            fs::write(chip.join("name"), "many\n").unwrap();
            for sensor in 0..500 {
                fs::write(chip.join(format!("in{sensor}_input")), "1\n").unwrap();
            }
        }
        let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
        let sample = flatbuffers::root::<Hwmon<'_>>(&payload).unwrap();
        assert_eq!(sample.voltages().len(), SENSORS_MAX);
        assert!((shortfall | Shortfall::UNREADABLE) == Shortfall::TOO_MANY | Shortfall::UNREADABLE);
    }

    // Goal: a captured host is read whole: chips in class and device directories, links, odd names. Method: what its files say.
    #[test]
    fn a_captured_host_is_read() {
        let Some(host) = captured("node-exporter", &["sys"]) else { return };
        let (payload, shortfall) = sampled_under(&ENTRY, "", host.path());
        assert_eq!(shortfall, Shortfall::NONE);
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
