//! Devices in /sys that come and go. Each device is a directory whose files have one value each.

use std::cmp::Ordering;
use std::ffi::CStr;
use std::io::{Error, ErrorKind};
use std::time::Duration;

use flatcap_os::host::{HostDirectory, HostRoot, SmallFile};

use super::guarded_reads::BlockingRead;
use super::text;
use crate::{Incomplete, ReadError, odd_text};

/// Maximum length of a file or device name, including its terminating zero byte.
const NAME_BYTES: usize = 64;
/// Maximum length of a path below a listed directory, including its terminating zero byte.
const PATH_BYTES: usize = 3 * NAME_BYTES;
/// Interval between listings. A new device is found within this time.
const LISTING_INTERVAL: Duration = Duration::from_secs(1);
/// Error number of "no such device", returned by a file whose device is gone.
const ENODEV: i32 = 19;

/// The name of a file, in an array of fixed size. Shorter names sort first, so that trailing
/// numbers ascend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileName([u8; NAME_BYTES]); // ends with a zero byte

impl FileName {
    /// Returns `None` if the name does not fit.
    pub(super) fn new(name: &[u8]) -> Option<Self> {
        text::name(name).map(Self)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        until_zero(&self.0)
    }
}

impl Ord for FileName {
    fn cmp(&self, other: &Self) -> Ordering {
        let (own, others) = (self.bytes(), other.bytes());
        own.len().cmp(&others.len()).then_with(|| own.cmp(others))
    }
}

impl PartialOrd for FileName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Identifies a listed device. A later device with the same name has another inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceKey {
    pub(super) name: FileName,
    inode: u64,
}

/// A class of devices.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceClass {
    /// The directory, without the leading slash.
    pub(super) path: &'static str,
    /// Returns whether an entry with this name is a device.
    pub(super) is_device: fn(&[u8]) -> bool,
    /// Maximum number of devices.
    pub(super) devices_max: usize,
}

/// The devices in a directory. The directory is listed again once a second. If a device turns out
/// to be gone, the directory is listed again at the next sample.
#[derive(Debug)]
pub(super) struct DeviceListing {
    host: HostRoot,
    class: DeviceClass,
    directory: HostDirectory,
    samples_per_listing: u64,   // between two listings; at least 1
    samples_until_listing: u64, // samples until the next listing
    incomplete: Incomplete,
    devices: Vec<ListedDevice>, // ascending by name
}

#[derive(Debug)]
struct ListedDevice {
    key: DeviceKey,
    is_listed: bool, // whether the current listing found the device
    opens_left: u8,  // number of opens still to be done, one after each listing
}

/// Number of times that a device is opened if it is present from the start.
const OPENS: u8 = 1;
/// Number of times that a device is opened if it appears later. The device may be listed before all
/// its files exist, so it is opened again after the next listing.
const OPENS_OF_NEW: u8 = 2;

impl DeviceListing {
    /// Lists the devices for the first time.
    pub(super) fn open(host: &HostRoot, place: DeviceClass, period: Duration) -> Result<Self, Error> {
        let directory = host.directory(place.path)?;
        let samples = LISTING_INTERVAL.as_nanos().div_ceil(period.as_nanos().max(1));
        let samples = u64::try_from(samples).unwrap_or(u64::MAX).max(1);
        let (host, incomplete, devices) = (host.clone(), Incomplete::NONE, Vec::new());
        let mut listing = Self {
            host,
            class: place,
            directory,
            samples_per_listing: samples,
            samples_until_listing: samples - 1,
            incomplete,
            devices,
        };
        listing.list()?;
        for device in &mut listing.devices {
            device.opens_left = OPENS;
        }
        Ok(listing)
    }

    /// Lists the devices again if that is due. Returns whether the devices were listed. After a
    /// listing, the caller must close the devices that are not [`kept`](Self::keeps), and open
    /// [`each_new`](Self::each_new) device.
    pub(super) fn refresh(&mut self) -> Result<bool, ReadError> {
        if self.samples_until_listing > 0 {
            self.samples_until_listing -= 1;
            return Ok(false);
        }
        if self.list().is_err() {
            // The kernel module that provides the directory may have been reloaded.
            let again = self.host.directory(self.class.path).and_then(|directory| {
                self.directory = directory;
                self.list()
            });
            again.map_err(|error| ReadError { file: self.class.path, error })?;
        }
        self.samples_until_listing = self.samples_per_listing - 1;
        Ok(true)
    }

    fn list(&mut self) -> Result<(), Error> {
        let Self { directory, devices, class: place, .. } = self;
        let mut incomplete = Incomplete::NONE;
        for device in devices.iter_mut() {
            device.is_listed = false;
        }
        let known = devices.len(); // later elements are new and unsorted
        directory.list_with_inodes(|name, inode| {
            if !(place.is_device)(name.to_bytes()) {
                return;
            }
            let Some(name) = FileName::new(name.to_bytes()) else {
                incomplete |= Incomplete::UNREADABLE;
                return;
            };
            let new =
                ListedDevice { key: DeviceKey { name, inode }, is_listed: true, opens_left: OPENS_OF_NEW };
            let sorted = devices.get(..known).unwrap_or_default();
            let found = sorted.binary_search_by(|device| device.key.name.cmp(&name)).ok();
            // Only new devices count towards the limit here, because known devices may be gone.
            let has_space = devices.len() - known < place.devices_max;
            match found.and_then(|at| devices.get_mut(at)) {
                Some(device) if device.key == new.key => device.is_listed = true,
                Some(device) => *device = new,
                None if has_space => devices.push(new),
                None => incomplete |= Incomplete::TOO_MANY,
            }
        })?;
        self.devices.retain(|device| device.is_listed);
        self.devices.sort_unstable_by_key(|device| device.key.name);
        incomplete |= Incomplete::TOO_MANY.unless(self.devices.len() <= self.class.devices_max);
        self.devices.truncate(self.class.devices_max);
        self.incomplete = incomplete;
        Ok(())
    }

    /// Returns whether there are no devices.
    pub(super) fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// Returns the reasons why the last listing is incomplete.
    pub(super) fn incomplete(&self) -> Incomplete {
        self.incomplete
    }

    /// Returns whether a device is still present and need not be opened again.
    pub(super) fn keeps(&self, key: &DeviceKey) -> bool {
        let found = self.devices.binary_search_by(|device| device.key.name.cmp(&key.name)).ok();
        let device = found.and_then(|at| self.devices.get(at));
        device.is_some_and(|device| device.key == *key && device.opens_left == 0)
    }

    /// Calls `open` with each device that is to be opened. The caller has closed the previous files
    /// of this device.
    pub(super) fn each_new(&mut self, mut open: impl FnMut(&mut HostDirectory, DeviceKey)) {
        for device in self.devices.iter_mut().filter(|device| device.opens_left > 0) {
            device.opens_left -= 1;
            open(&mut self.directory, device.key);
        }
    }

    /// Marks a device whose files report that it is gone, to be opened again at the next sample.
    pub(super) fn forget(&mut self, key: &DeviceKey) {
        for device in self.devices.iter_mut().filter(|device| device.key == *key) {
            device.opens_left = OPENS;
        }
        self.samples_until_listing = 0;
    }

    /// Marks all devices to be opened again, after a change that their own files do not show.
    pub(super) fn forget_all(&mut self) {
        for device in &mut self.devices {
            device.opens_left = OPENS_OF_NEW;
        }
        self.samples_until_listing = 0;
    }
}

/// Calls `act` with a path that is composed of `parts`. Returns `None` if the path is too long or
/// contains a zero byte.
pub(super) fn with_path<Got>(parts: &[&[u8]], act: impl FnOnce(&CStr) -> Got) -> Option<Got> {
    let mut path = [0; PATH_BYTES];
    let mut places = path.iter_mut().take(PATH_BYTES - 1);
    for byte in parts.iter().copied().flatten() {
        *places.next()? = *byte;
    }
    let whole = CStr::from_bytes_until_nul(&path).ok()?;
    (whole.count_bytes() == parts.iter().map(|part| part.len()).sum::<usize>()).then(|| act(whole))
}

/// Opens a file and reads its first line, such as a device's name. The line is truncated to fit
/// into the array. Returns `None` if there is no such file.
pub(super) fn read_line<const BYTES: usize>(
    directory: &HostDirectory,
    parts: &[&[u8]],
) -> Option<[u8; BYTES]> {
    let file = with_path(parts, |path| directory.open_small_file(path))?.ok()?;
    let mut buffer = [0; BYTES];
    let content = file.read(&mut buffer).ok()?;
    let line = content.split(|byte| matches!(byte, b'\n' | 0)).next()?.trim_ascii();
    Some(truncated(line))
}

/// Returns the name of the parent of a class device, truncated to fit. For example, the parent is
/// `applesmc.768` if the link of the class leads to
/// `../../devices/platform/applesmc.768/hwmon/hwmon2`. The name is empty if the device has no
/// parent or is not a link.
pub(super) fn parent<const BYTES: usize>(
    directory: &HostDirectory,
    name: &[u8],
    class: &[u8],
) -> [u8; BYTES] {
    let mut buffer = [0; 4 * PATH_BYTES];
    let target = with_path(&[name], |path| directory.read_link(path, &mut buffer).ok()).flatten();
    let mut parts = target.unwrap_or_default().rsplit(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let parent = parts.nth(1).and_then(|part| if part == class { parts.next() } else { Some(part) });
    truncated(parent.filter(|part| !matches!(*part, b"virtual" | b"..")).unwrap_or_default())
}

/// Returns the text of an array up to its first zero byte.
pub(super) fn until_zero(place: &[u8]) -> &[u8] {
    place.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Returns the text of a field of the schema, for a log line.
pub(super) fn shown(field: impl IntoIterator<Item = u8>) -> String {
    let bytes: Vec<u8> = field.into_iter().take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a text as an array, truncated if necessary, with a terminating zero byte.
pub(super) fn truncated<const BYTES: usize>(text: &[u8]) -> [u8; BYTES] {
    let mut place = [0; BYTES];
    for (to, from) in place.iter_mut().take(BYTES - 1).zip(text) {
        *to = *from;
    }
    place
}

/// A file with one number. The file stays open and is read at each sample, and the result of the
/// last read is kept.
#[derive(Debug)]
pub(super) struct NumberFile {
    file: Option<SmallFile>,
    content: [u8; NUMBER_BYTES],
    length: usize, // <= NUMBER_BYTES
    error: i32,    // error number of the last read; 0 if it succeeded
}

/// Size of the buffer for a number, which is longer than any number with its sign and newline. If
/// the content fills the buffer, the file has something other than a number.
const NUMBER_BYTES: usize = 32;

impl NumberFile {
    /// Placeholder for a number that the device does not have. Such a number is absent, but does
    /// not make a sample incomplete.
    pub(super) const NONE: Self = Self { file: None, content: [0; NUMBER_BYTES], length: 0, error: 0 };

    /// Opens a file. A missing file is not an error. If the file exists but cannot be opened, the
    /// error is kept.
    pub(super) fn open(directory: &HostDirectory, parts: &[&[u8]]) -> Self {
        match with_path(parts, |path| directory.open_small_file(path)) {
            Some(Ok(file)) => Self { file: Some(file), ..Self::NONE },
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => Self::NONE,
            Some(Err(error)) => Self { error: errno_of(&error), ..Self::NONE },
            None => Self::NONE,
        }
    }

    /// Returns whether the device has such a file, whether it is readable or not.
    pub(super) fn exists(&self) -> bool {
        self.file.is_some() || self.error != 0
    }

    /// Opens, reads and closes a file whose number does not change. Returns `ABSENT` if the file
    /// cannot be read.
    pub(super) fn read_once(directory: &HostDirectory, parts: &[&[u8]]) -> u64 {
        let mut number = Self::open(directory, parts);
        number.read();
        let mut lacks = Incomplete::NONE;
        number.unsigned(&mut lacks)
    }

    /// Returns the file's text, truncated to fit into the array. If the file cannot be read,
    /// returns an empty text and adds the reason to `incomplete`.
    pub(super) fn text<const BYTES: usize>(&self, incomplete: &mut Incomplete) -> [u8; BYTES] {
        truncated(until_zero(self.line(incomplete).unwrap_or_default()))
    }

    /// Reads the file.
    pub(super) fn read(&mut self) {
        let Some(file) = &self.file else { return };
        (self.length, self.error) = match file.read(&mut self.content) {
            Ok(content) => (content.len(), 0),
            Err(error) => (0, errno_of(&error)),
        };
    }

    /// Returns whether the last read reported that the device is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.error == ENODEV
    }

    /// Returns whether the last read was refused for lack of a privilege.
    pub(super) fn is_denied(&self) -> bool {
        self.incomplete_reason() == Incomplete::DENIED
    }

    /// Returns the error number of the last read, or 0 if it succeeded.
    pub(super) fn error(&self) -> u64 {
        u64::from(self.error.unsigned_abs())
    }

    /// Returns the value if it is not negative. If the value is negative or cannot be read, returns
    /// `ABSENT` and adds the reason to `incomplete`.
    pub(super) fn unsigned(&self, incomplete: &mut Incomplete) -> u64 {
        self.number(incomplete, text::lenient_number).unwrap_or(text::ABSENT)
    }

    /// Returns the value, which may be negative. If there is no value, returns NaN and adds the
    /// reason to `incomplete`.
    pub(super) fn signed(&self, incomplete: &mut Incomplete) -> f64 {
        self.number(incomplete, text::lenient_signed).unwrap_or(f64::NAN)
    }

    fn number<Got>(&self, incomplete: &mut Incomplete, parse: fn(&[u8]) -> Option<Got>) -> Option<Got> {
        let line = self.line(incomplete)?;
        let value = parse(line);
        if value.is_none() {
            *incomplete |= odd_text::unreadable(line);
        }
        value
    }

    fn line(&self, incomplete: &mut Incomplete) -> Option<&[u8]> {
        if !self.exists() {
            return None;
        }
        if self.error != 0 {
            *incomplete |= self.incomplete_reason();
            odd_text::note(Error::from_raw_os_error(self.error).to_string().as_bytes(), 0);
            return None;
        }
        // The kernel writes such a file in one piece, so a missing newline does not mean that the
        // file was truncated. Not every driver adds a newline. If the content fills the buffer, the
        // file may be longer.
        let content = self.content.get(..self.length).map(<[u8]>::trim_ascii);
        let line = content.filter(|content| !content.is_empty() && self.length < NUMBER_BYTES);
        *incomplete |= Incomplete::CUT.unless(line.is_some());
        line
    }

    fn incomplete_reason(&self) -> Incomplete {
        match Error::from_raw_os_error(self.error).kind() {
            _ if self.error == 0 => Incomplete::NONE,
            ErrorKind::PermissionDenied => Incomplete::DENIED,
            _ if self.is_gone() => Incomplete::MISSING,
            _ => Incomplete::UNREADABLE,
        }
    }
}

impl BlockingRead for NumberFile {
    fn read(&mut self) {
        NumberFile::read(self);
    }
}

/// ETIMEDOUT, the error number that a sample contains for an element that does not answer.
pub(super) const HANGS: u64 = 110;

fn errno_of(error: &Error) -> i32 {
    error.raw_os_error().unwrap_or(i32::MAX)
}

/// Returns whether a name consists of `word` followed by a number.
pub(super) fn is_numbered(name: &[u8], word: &[u8]) -> bool {
    number_after(name, word).is_some()
}

/// Returns the number after a word, such as 3 for `hwmon3`.
pub(super) fn number_after(name: &[u8], word: &[u8]) -> Option<u64> {
    name.strip_prefix(word).and_then(text::number)
}

/// Returns the error for a directory that contains no device of the required kind.
pub(super) fn none_found(what: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::rename;

    fn listing(root: &std::path::Path, period: Duration) -> DeviceListing {
        let place = DeviceClass { path: "class", is_device: |name| is_numbered(name, b"d"), devices_max: 3 };
        DeviceListing::open(&HostRoot::new(root), place, period).unwrap()
    }

    fn new_ones(listing: &mut DeviceListing) -> Vec<String> {
        let mut names = Vec::new();
        listing.each_new(|_, key| names.push(String::from_utf8(key.name.bytes().to_vec()).unwrap()));
        names
    }

    // Proves that new devices are found and opened twice, that other devices of the same name are
    // distinguished, and that the number of devices is limited.
    #[test]
    fn devices_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("class");
        let add = |name: &str| std::fs::create_dir_all(class.join(name)).unwrap();
        for name in ["d10", "d9", "other", "d", "dx"] {
            add(name);
        }
        let mut listing = listing(folder.path(), Duration::from_secs(1));
        assert_eq!(new_ones(&mut listing), ["d9", "d10"]);
        let keys: Vec<DeviceKey> = listing.devices.iter().map(|device| device.key).collect();
        assert!(listing.refresh().unwrap() && new_ones(&mut listing).is_empty());
        assert!(keys.iter().all(|key| listing.keeps(key)));

        // Another device of the same name is created before the old one is removed, so that it
        // cannot reuse the inode of the old one.
        add("spare");
        std::fs::remove_dir(class.join("d9")).unwrap();
        rename(&class.join("spare"), &class.join("d9"));
        listing.refresh().unwrap();
        assert!(!listing.keeps(&keys[0]) && listing.keeps(&keys[1]));
        assert_eq!(new_ones(&mut listing), ["d9"]);
        listing.refresh().unwrap();
        assert_eq!(new_ones(&mut listing), ["d9"], "its files may appear late");
        listing.refresh().unwrap();
        assert!(new_ones(&mut listing).is_empty());

        listing.forget(&keys[1]);
        assert!(!listing.keeps(&keys[1]) && new_ones(&mut listing) == ["d10"]);
        for name in ["d11", "d12"] {
            add(name);
        }
        listing.refresh().unwrap();
        assert_eq!((listing.devices.len(), listing.incomplete()), (3, Incomplete::TOO_MANY));
        std::fs::remove_dir(class.join("d9")).unwrap();
        listing.refresh().unwrap();
        assert_eq!((listing.devices.len(), listing.incomplete()), (3, Incomplete::NONE));
    }

    // Proves that a source with a period of 100 ms lists once a second, and at once after
    // `forget_all`.
    #[test]
    fn listings_are_a_second_apart() {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("class");
        std::fs::create_dir(&class).unwrap();
        let mut listing = listing(folder.path(), Duration::from_millis(100));
        let due: Vec<bool> = (0..21).map(|_| listing.refresh().unwrap()).collect();
        let samples: Vec<usize> = (0..21).filter(|at| due[*at]).collect();
        assert_eq!(samples, [9, 19]);
        listing.forget_all();
        assert!(listing.refresh().unwrap());
    }

    fn number_file(content: &[u8]) -> NumberFile {
        let mut number = NumberFile::NONE;
        number.content[..content.len()].copy_from_slice(content);
        number.length = content.len();
        number.file = std::fs::File::open("/dev/null")
            .ok()
            .map(|_| HostRoot::new("/").directory("dev").unwrap().open_small_file(c"null").unwrap());
        number
    }

    // Proves that damaged numbers never panic, and are absent if and only if they are marked.
    #[test]
    fn numbers_are_exact_or_marked() {
        for whole in [&b"-12345\n"[..], b"18446744073709551614\n"] {
            for at in 0..whole.len() {
                for byte in [0, b' ', b'\n', b'9', b':', b'x', b'-', b'.', 0xFF] {
                    let mut text = whole.to_vec();
                    text[at] = byte;
                    let mut incomplete = Incomplete::NONE;
                    let is_value = if whole.starts_with(b"-") {
                        !number_file(&text).signed(&mut incomplete).is_nan()
                    } else {
                        number_file(&text).unsigned(&mut incomplete) != text::ABSENT
                    };
                    assert_eq!(is_value, incomplete.is_none());
                }
            }
        }
    }

    // Proves that numbers are read as drivers write them, and that nothing else is a number.
    #[test]
    fn odd_spellings_are_read() {
        let read = |text: &[u8]| {
            let mut incomplete = Incomplete::NONE;
            let file = number_file(text);
            (file.unsigned(&mut incomplete), file.signed(&mut Incomplete::NONE.clone()), incomplete)
        };
        for text in [&b"42\n"[..], b"42", b"42 \n", b" 42", b"+42\n", b"42.0\n", b"42\n\0"] {
            let is_zero_ended = text.ends_with(b"\0");
            let expected = if is_zero_ended { text::ABSENT } else { 42 };
            assert_eq!(read(text).0, expected, "{:?}", text.escape_ascii().to_string());
        }
        assert_eq!(read(b"42.5\n").0, text::ABSENT);
        assert!((read(b"-42.5\n").1 + 42.5).abs() < f64::EPSILON);
        for wrong in
            [&b"+-1\n"[..], b"1e5\n", b"1.e5\n", b"nan\n", b"inf", b"4 2\n", b"0x1\n", b"--1\n", b"."]
        {
            let (number, value, incomplete) = read(wrong);
            assert!(number == text::ABSENT && value.is_nan(), "{:?}", wrong.escape_ascii().to_string());
            assert_eq!(incomplete, Incomplete::UNREADABLE);
        }
        for cut in [&b""[..], b"\n", b"11111111111111111111111111111111"] {
            assert_eq!(read(cut).2, Incomplete::CUT);
        }
    }

    // Proves that each error of the kernel leads to the correct reason for an incomplete sample.
    #[test]
    fn errors_have_their_marks() {
        for (error, expected) in [
            (11, Incomplete::UNREADABLE), // EAGAIN
            (61, Incomplete::UNREADABLE), // ENODATA
            (5, Incomplete::UNREADABLE),  // EIO
            (19, Incomplete::MISSING),    // ENODEV
            (1, Incomplete::DENIED),      // EPERM
            (13, Incomplete::DENIED),     // EACCES
        ] {
            let number = NumberFile { error, ..number_file(b"1\n") };
            let mut incomplete = Incomplete::NONE;
            assert!(number.signed(&mut incomplete).is_nan());
            assert_eq!((incomplete, number.error()), (expected, u64::from(error.unsigned_abs())));
            assert_eq!(number.is_gone(), error == ENODEV);
        }
        let mut incomplete = Incomplete::NONE;
        assert_eq!(NumberFile::NONE.unsigned(&mut incomplete), text::ABSENT);
        assert_eq!(incomplete, Incomplete::NONE);
    }

    // Proves that a path is refused if it is too long or contains a zero byte, and that a path of
    // the maximum length is accepted.
    #[test]
    fn paths_fit_or_are_refused() {
        let length = |parts: &[&[u8]]| with_path(parts, CStr::count_bytes);
        assert_eq!(length(&[b"hwmon3", b"/", b"name"]), Some(11));
        assert_eq!(length(&[&[b'a'; PATH_BYTES - 1]]), Some(PATH_BYTES - 1));
        assert_eq!(length(&[&[b'a'; PATH_BYTES]]), None);
        assert_eq!(length(&[b"a\0b"]), None);
    }
}
