//! Reads the file `io.stat` of a control group, and sums its values over devices. Each byte is
//! counted once.

use flatcap_os::host::HostRoot;

use super::block_devices::{self, BlockDevices, DeviceNumber, DeviceRole};
use crate::Incomplete;
use crate::sources::text::{self, ABSENT};

/// Keys of the values of a device, in the order of the schema. Kernels before 4.19 lack the last
/// two values.
const KEYS: [&[u8]; KEY_COUNT] = [b"rbytes", b"wbytes", b"rios", b"wios", b"dbytes", b"dios"];
pub(super) const KEY_COUNT: usize = 6;
/// Maximum length of the file. A longer file is treated as truncated.
pub(super) const FILE_BYTES_MAX: usize = 1 << 20;

/// One value per key of `io.stat`.
type Values = [u64; KEY_COUNT];

/// Parses `io.stat`. Stores the block devices of the host, and the keys that the host's kernel
/// writes.
#[derive(Debug)]
pub(super) struct IoStatReader {
    devices: BlockDevices,
    kernel_keys: [bool; KEY_COUNT], // keys that any device had
    layer_sums: Vec<Values>,        // reused; one per layer of `devices`
}

/// One line of `io.stat`, which names a device. The line also has values if the device has had any
/// I/O.
#[derive(Debug)]
struct DeviceLine {
    device: Option<DeviceNumber>, // `None` for a hidden path to a device with its own line
    values: [Option<u64>; KEY_COUNT], // ABSENT if it cannot be read
    incomplete: Incomplete,
}

/// The sums over all lines, and flags that show which values the sums lack.
#[derive(Debug, Default)]
struct Totals {
    lines: usize,               // lines with values
    found: [usize; KEY_COUNT],  // number of lines that have the key
    is_lost: [bool; KEY_COUNT], // whether any value could not be read or added
    hidden: Values,             // sums over devices whose layer is unknown
    hidden_lines: usize,        // lines of these devices with values other than 0
    other_lines: usize,         // lines of other devices with values other than 0
    incomplete: Incomplete,
}

impl IoStatReader {
    pub(super) fn new(host: &HostRoot) -> Self {
        Self { devices: BlockDevices::open(host), kernel_keys: [false; KEY_COUNT], layer_sums: Vec::new() }
    }

    /// Causes the block devices to be examined again, because a device may now lie on other devices
    /// than before.
    pub(super) fn forget_devices(&mut self) {
        self.devices.forget();
    }

    /// Parses the file. If a value of a device cannot be read, only the sum of this value is
    /// absent.
    pub(super) fn read(&mut self, content: &[u8], places: &mut [u64]) -> Incomplete {
        let totals = self.add_up(content).unwrap_or_else(|| {
            for (line, is_whole) in lines(content) {
                if let Some(number) = DeviceLine::of(line, is_whole).device {
                    self.devices.learn(number);
                }
            }
            self.devices.arrange();
            // All devices of the file have now been examined.
            self.add_up(content).unwrap_or(Totals {
                is_lost: [true; KEY_COUNT],
                incomplete: Incomplete::UNREADABLE,
                ..Totals::default()
            })
        });
        self.finish(&totals, places)
    }

    /// Adds up the lines. Returns `None` if a device was not examined yet.
    fn add_up(&mut self, content: &[u8]) -> Option<Totals> {
        let Self { devices, layer_sums, .. } = self;
        layer_sums.clear();
        layer_sums.resize(devices.layers().len(), Values::default());
        let mut totals = Totals::default();
        // A file that fills the buffer may be longer, so lines may be missing.
        if content.len() >= FILE_BYTES_MAX {
            (totals.is_lost, totals.incomplete) = ([true; KEY_COUNT], Incomplete::CUT);
        }
        for (line, is_whole) in lines(content) {
            let line = DeviceLine::of(line, is_whole);
            totals.incomplete |= line.incomplete;
            if line.values.iter().all(Option::is_none) {
                continue;
            }
            totals.lines += 1;
            for (found, value) in totals.found.iter_mut().zip(&line.values) {
                *found += usize::from(value.is_some());
            }
            let is_used = usize::from(line.values.iter().flatten().any(|value| *value > 0));
            match line.device.map_or(DeviceRole::Repeated, |number| devices.role(number)) {
                DeviceRole::New => return None,
                DeviceRole::Repeated => {}
                DeviceRole::Unknown => {
                    totals.hidden_lines += is_used;
                    line.add_to(&mut totals.hidden, &mut totals.is_lost);
                }
                DeviceRole::Layer { layer, top_layer } => {
                    totals.other_lines += is_used;
                    for layer in [Some(layer), top_layer].into_iter().flatten() {
                        if let Some(sums) = layer_sums.get_mut(layer) {
                            line.add_to(sums, &mut totals.is_lost);
                        }
                    }
                }
            }
        }
        Some(totals)
    }

    fn finish(&mut self, totals: &Totals, places: &mut [u64]) -> Incomplete {
        let Totals { lines, found, is_lost, hidden, hidden_lines, other_lines, incomplete } = totals;
        let mut incomplete = *incomplete;
        let Self { devices, kernel_keys, layer_sums } = self;
        for (known, found) in kernel_keys.iter_mut().zip(found) {
            *known |= *found > 0;
        }
        // Another device may count a part of the same I/O.
        let is_ambiguous = *hidden_lines > 1 || (*hidden_lines == 1 && *other_lines > 0);
        incomplete |= Incomplete::MISSING.unless(!is_ambiguous);
        let is_kernel_known = kernel_keys.contains(&true);
        for (key, place) in places.iter_mut().enumerate() {
            let get = |values: &Values| values.get(key).copied().unwrap_or(ABSENT);
            let is_known_key = kernel_keys.get(key).copied().unwrap_or(false) || !is_kernel_known;
            let is_short = is_known_key && found.get(key).is_some_and(|found| found < lines);
            incomplete |= Incomplete::MISSING.unless(!is_short || !incomplete.is_none());
            // For each stack, the layer with the largest sum is used. The layers of one stack are
            // adjacent.
            let mut sum = Some(get(hidden));
            let stacks = devices.layers().iter().zip(layer_sums.iter());
            let (mut stack, mut most) = (usize::MAX, 0);
            for (of, sums) in stacks {
                if *of != stack {
                    sum = sum.and_then(|sum| plus(sum, most));
                    (stack, most) = (*of, 0);
                }
                most = get(sums).max(most);
            }
            sum = sum.and_then(|sum| plus(sum, most));
            incomplete |= Incomplete::UNREADABLE.unless(sum.is_some());
            let is_lost = is_lost.get(key).copied().unwrap_or(true);
            let is_absent = !is_known_key || is_short || is_lost || is_ambiguous;
            *place = sum.filter(|_| !is_absent).unwrap_or(ABSENT);
        }
        incomplete
    }
}

/// Returns a sum. Returns `None` if the sum is too large, or if it equals the number that marks
/// absent values.
fn plus(one: u64, other: u64) -> Option<u64> {
    one.checked_add(other).filter(|sum| *sum != ABSENT)
}

/// Returns the lines, and for each line whether it is complete. Some kernels end the entry of a
/// device without values with a space instead of a newline, so that a line has several devices. The
/// values of such a line belong to its last device.
fn lines(content: &[u8]) -> impl Iterator<Item = (&[u8], bool)> {
    content.split_inclusive(|byte| *byte == b'\n').map(|line| match line.strip_suffix(b"\n") {
        Some(line) => (line, true),
        None => (line, false),
    })
}

impl DeviceLine {
    fn of(line: &[u8], is_whole: bool) -> Self {
        let mut found = Self { device: None, values: [None; KEY_COUNT], incomplete: Incomplete::NONE };
        let (mut has_values, mut last) = (false, None);
        for field in text::fields(line) {
            let Some(at) = memchr::memchr(b'=', field) else {
                if !has_values {
                    found.device = block_devices::parse(field);
                }
                continue;
            };
            has_values = true;
            let (name, value) = field.split_at(at);
            last = KEYS.iter().position(|key| *key == name);
            if let Some(place) = last.and_then(|key| found.values.get_mut(key)) {
                *place = Some(text::value(value.get(1..), &mut found.incomplete));
            }
        }
        if has_values && !is_whole {
            found.incomplete |= Incomplete::CUT;
            // The last number of a truncated line may lack digits.
            if let Some(last) = last.and_then(|key| found.values.get_mut(key)) {
                *last = Some(ABSENT);
            }
        }
        found
    }

    fn add_to(&self, sums: &mut Values, is_lost: &mut [bool; KEY_COUNT]) {
        for ((sum, value), is_lost) in sums.iter_mut().zip(&self.values).zip(is_lost) {
            let Some(value) = *value else { continue };
            match plus(*sum, value) {
                Some(added) => *sum = added,
                None => *is_lost = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::sources::cgroup::block_devices::DIRECTORY;
    use crate::sources::tests::assert_damage_is_marked;

    /// Creates a disk with one partition, or a device that lies on other devices.
    fn device(root: &Path, name: &str, number: &str, below: &[&str]) {
        let path = root.join("sys/block").join(name);
        fs::create_dir_all(path.join("slaves")).unwrap();
        fs::write(path.join("dev"), format!("{number}\n")).unwrap();
        fs::create_dir_all(root.join(DIRECTORY)).unwrap();
        symlink(format!("../../block/{name}"), root.join(DIRECTORY).join(number)).unwrap();
        for name in below {
            // `below` is the name of a disk, or a partition such as `sda/sda1`.
            let link = path.join("slaves").join(name.rsplit('/').next().unwrap());
            symlink(format!("../../{name}"), link).unwrap();
        }
        if below.is_empty() {
            let partition = path.join(format!("{name}1"));
            fs::create_dir_all(&partition).unwrap();
            fs::write(partition.join("partition"), "1\n").unwrap();
            fs::write(partition.join("dev"), "259:9\n").unwrap();
        }
    }

    /// Creates a disk with LVM on an encrypted partition, two disks with a mirror, and a device
    /// whose lower device is not visible.
    fn host() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        device(root, "sda", "8:0", &[]);
        device(root, "dm-0", "253:0", &["sda/sda1"]);
        device(root, "dm-1", "253:1", &["dm-0"]);
        device(root, "dm-2", "253:2", &["dm-0"]);
        device(root, "sdb", "8:16", &[]);
        device(root, "sdc", "8:32", &[]);
        device(root, "md0", "9:0", &["sdb/sdb1", "sdc/sdc1"]);
        device(root, "dm-3", "253:3", &["missing"]);
        folder
    }

    /// Returns a line in which every value is `value`.
    fn line(device: &str, value: u64) -> String {
        let values = KEYS.map(|key| format!(" {}={value}", String::from_utf8_lossy(key)));
        format!("{device}{}\n", values.concat())
    }

    fn read(reader: &mut IoStatReader, content: &str) -> (Vec<u64>, Incomplete) {
        let mut places = [7; KEY_COUNT];
        let incomplete = reader.read(content.as_bytes(), &mut places);
        (places.to_vec(), incomplete)
    }

    fn reader(host: &Path) -> IoStatReader {
        IoStatReader::new(&HostRoot::new(host))
    }

    // Proves that each byte is counted once, because only the layer with the largest sum in each
    // stack is used.
    #[test]
    fn devices_on_devices_count_once() {
        let host = host();
        let mut reader = reader(host.path());
        for (lines, expected) in [
            // LVM on LUKS on a disk, where the kernel charges the I/O to all three devices.
            (&[("253:1", 100), ("253:0", 100), ("8:0", 100)][..], 100),
            (&[("253:1", 60), ("253:2", 40), ("253:0", 100), ("8:0", 100)], 100),
            // Other partitions of that disk are used as well.
            (&[("253:1", 100), ("253:0", 100), ("8:0", 130)], 130),
            // A thread of the kernel, which belongs to no group, writes to the lower layers.
            (&[("253:1", 60), ("253:2", 40)], 100),
            (&[("253:1", 60), ("253:2", 40), ("8:0", 1)], 100),
            // The sum of a mirror is either the I/O of the disks or the I/O of the mirror device,
            // whichever is larger.
            (&[("9:0", 50), ("8:16", 50), ("8:32", 50)], 100),
            (&[("9:0", 50)], 50),
            // Stacks that have no device in common.
            (&[("253:1", 100), ("8:0", 100), ("9:0", 5), ("8:16", 5), ("8:32", 5)], 110),
            // The path of a device that has a line of its own, and a loop device whose file lies on
            // that device.
            (&[("(unknown)", 100), ("8:0", 100), ("7:3", 50)], 100),
            // A device whose stack is not visible and which alone has values.
            (&[("253:3", 100), ("8:0", 0)], 100),
        ] {
            let content: String = lines.iter().map(|(device, value)| line(device, *value)).collect();
            assert_eq!(
                read(&mut reader, &content),
                (vec![expected; KEY_COUNT], Incomplete::NONE),
                "{content}"
            );
        }
        let both = line("253:3", 100) + &line("8:0", 100);
        assert_eq!(read(&mut reader, &both), (vec![ABSENT; KEY_COUNT], Incomplete::MISSING));
    }

    // Proves that without /sys/dev/block, only devices whose major number belongs to disks alone
    // are added up.
    #[test]
    fn without_sysfs_sums_are_known_or_absent() {
        let folder = tempfile::tempdir().unwrap();
        let mut reader = reader(folder.path());
        let disks = line("8:0", 1) + &line("8:16", 2);
        assert_eq!(read(&mut reader, &disks), (vec![3; KEY_COUNT], Incomplete::NONE));
        assert_eq!(read(&mut reader, &line("253:0", 5)), (vec![5; KEY_COUNT], Incomplete::NONE));
        let both = line("8:0", 5) + &line("253:0", 5);
        assert_eq!(read(&mut reader, &both), (vec![ABSENT; KEY_COUNT], Incomplete::MISSING));
    }

    // Proves that a device which moves to another disk belongs to the stack of that disk after the
    // next examination.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a link of the test's own host")]
    fn a_device_that_moves_is_seen() {
        let host = host();
        let mut reader = reader(host.path());
        let content = line("253:0", 10) + &line("8:16", 10);
        assert_eq!(read(&mut reader, &content).0, [20; KEY_COUNT]);
        let link = host.path().join("sys/block/dm-0/slaves/sda1");
        fs::remove_file(&link).unwrap();
        symlink("../../sdb/sdb1", host.path().join("sys/block/dm-0/slaves/sdb1")).unwrap();
        reader.forget_devices();
        assert_eq!(read(&mut reader, &content).0, [10; KEY_COUNT]);
    }

    // Proves that devices without I/O, on lines of their own or on an unfinished line, cause no
    // loss.
    #[test]
    fn idle_devices_cost_nothing() {
        let host = host();
        let mut reader = reader(host.path());
        for content in ["", "252:0 ", "7:7 7:6 \n", "252:0 \n253:0 \n", "8:0 cost.vrate=100.00\n"] {
            assert_eq!(read(&mut reader, content), (vec![0; KEY_COUNT], Incomplete::NONE), "{content:?}");
        }
        let busy = line("8:0", 4);
        for content in [
            format!("{busy}7:7 7:6 "),
            format!("7:7 7:6 {busy}"),
            format!("7:7 \n{busy}252:0 \n"),
            busy.replace('\n', " cost.usage=1\n"),
        ] {
            assert_eq!(read(&mut reader, &content), (vec![4; KEY_COUNT], Incomplete::NONE), "{content:?}");
        }
    }

    // Proves that a kernel without discards leads to absent values but to complete samples. If only
    // some devices lack discards, the sample is marked.
    #[test]
    fn old_kernels_have_no_discards() {
        let host = host();
        let mut reader = reader(host.path());
        let old = "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n8:16 rbytes=1 wbytes=1 rios=1 wios=1\n";
        for content in [old.to_owned(), old.to_owned() + "7:7 "] {
            let expected = (vec![2, 3, 4, 5, ABSENT, ABSENT], Incomplete::NONE);
            assert_eq!(read(&mut reader, &content), expected);
        }
        assert_eq!(read(&mut reader, "").0, [0, 0, 0, 0, ABSENT, ABSENT]);
        let mixed = old.to_owned() + &line("8:32", 1);
        assert_eq!(read(&mut reader, &mixed), (vec![3, 4, 5, 6, ABSENT, ABSENT], Incomplete::MISSING));
    }

    // Proves that a value that cannot be read makes only its own sum absent. A truncated line is
    // marked unless the line consists of a name alone.
    #[test]
    fn a_bad_value_costs_itself() {
        let host = host();
        let mut reader = reader(host.path());
        let busy = line("8:0", 4);
        for bad in ["x", "", "-1", "18446744073709551615"] {
            let content = busy.replace("rios=4", &format!("rios={bad}")) + &line("8:16", 1);
            let expected = vec![5, 5, ABSENT, 5, 5, 5];
            assert_eq!(read(&mut reader, &content), (expected, Incomplete::UNREADABLE), "{bad}");
        }
        let huge = line("8:0", u64::MAX - 1) + &line("8:16", 1);
        assert_eq!(read(&mut reader, &huge), (vec![ABSENT; KEY_COUNT], Incomplete::UNREADABLE));
        let cut = "8:0 rbytes=4 wbytes=4 rios=4";
        let expected = vec![4, 4, ABSENT, ABSENT, ABSENT, ABSENT];
        assert_eq!(read(&mut reader, cut), (expected, Incomplete::CUT));
        let long = line("8:0", 1).repeat(FILE_BYTES_MAX / 10);
        assert_eq!(read(&mut reader, &long[..FILE_BYTES_MAX]).0, [ABSENT; KEY_COUNT]);
        assert_damage_is_marked(busy.as_bytes(), |content| {
            let mut places = [0; KEY_COUNT];
            let incomplete = reader.read(content, &mut places);
            incomplete.is_none() && places.iter().all(|value| *value != ABSENT && *value != 0)
        });
    }

    proptest! {
        // Proves that the layer with the largest sum is used for any values and any order of lines.
        // A naive computation over all layers gives the same sum.
        #[test]
        fn the_largest_layer_counts(values in proptest::array::uniform7(0..1000_u64), rotation in 0..7_usize) {
            let host = host();
            let [sda, crypt, one, two, sdb, sdc, mirror] = values;
            let devices = ["8:0", "253:0", "253:1", "253:2", "8:16", "8:32", "9:0"];
            let mut lines: Vec<String> = devices.iter().zip(values).map(|(device, value)| line(device, value)).collect();
            lines.rotate_left(rotation);
            let expected = sda.max(crypt).max(one + two) + mirror.max(sdb + sdc);
            let found = read(&mut reader(host.path()), &lines.concat());
            prop_assert_eq!(found, (vec![expected; KEY_COUNT], Incomplete::NONE));
        }

        // Proves that no input causes a panic.
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(prop_oneof![b'0'..=b'9', Just(b' '), Just(b':'), Just(b'='), Just(b'\n'), any::<u8>()], 0..60)) {
            let mut places = [0; KEY_COUNT];
            reader(Path::new("/nonexistent")).read(&bytes, &mut places);
        }
    }
}
