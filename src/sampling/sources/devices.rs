//! Devices of /sys that come and go, each a directory of files with one value.

use std::cmp::Ordering;
use std::ffi::CStr;
use std::io::{Error, ErrorKind};
use std::time::Duration;

use super::text;
use crate::os::host::{HostDirectory, HostRoot, ShortFile};
use crate::sampling::{ReadError, Shortfall};

/// Longest name of a file or device that is taken, its end included.
const NAME_BYTES: usize = 64;
/// Longest path below a listed directory, its end included.
const PATH_BYTES: usize = 3 * NAME_BYTES;
/// A new device is found within this time.
const LISTED_AGAIN: Duration = Duration::from_secs(1);
/// The kernel's number for "no such device": the answer of a file whose device is gone.
const ENODEV: i32 = 19;

/// The name of a file, in a place of fixed size. Shorter names come first, so that numbers at their ends ascend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileName([u8; NAME_BYTES]); // ends with a zero byte

impl FileName {
    /// None if it does not fit.
    pub(super) fn new(name: &[u8]) -> Option<Self> {
        text::name(name).map(Self)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        until_end(&self.0)
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

/// A device as it was listed. One that took its name later has another inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) name: FileName,
    inode: u64,
}

/// Which devices are looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The directory, without the leading slash.
    pub(super) path: &'static str,
    /// Tells them from other entries by their names.
    pub(super) is_device: fn(&[u8]) -> bool,
    /// Most of them.
    pub(super) devices_max: usize,
}

/// The devices in a directory, listed again once a second, or at once when one of them turns out to be gone.
#[derive(Debug)]
pub(super) struct Listing {
    host: HostRoot,
    place: Place,
    directory: HostDirectory,
    samples: u64, // from one listing to the next; at least 1
    waits: u64,   // samples until the next one
    shortfall: Shortfall,
    devices: Vec<Listed>, // ascending by name
}

#[derive(Debug)]
struct Listed {
    key: Key,
    is_there: bool, // at the listing under way
    openings: u8,   // still to be made, one after each listing
}

/// A device that was there from the start is opened once.
const OPENINGS: u8 = 1;
/// One that comes later may be found before all its files are there: it is opened again after the next listing.
const OPENINGS_OF_NEW: u8 = 2;

impl Listing {
    /// Lists the devices for the first time.
    pub(super) fn open(host: &HostRoot, place: Place, period: Duration) -> Result<Self, Error> {
        let directory = host.directory(place.path)?;
        let samples = LISTED_AGAIN.as_nanos().div_ceil(period.as_nanos().max(1));
        let samples = u64::try_from(samples).unwrap_or(u64::MAX).max(1);
        let (host, shortfall, devices) = (host.clone(), Shortfall::NONE, Vec::new());
        let mut listing = Self { host, place, directory, samples, waits: samples - 1, shortfall, devices };
        listing.list()?;
        for device in &mut listing.devices {
            device.openings = OPENINGS;
        }
        Ok(listing)
    }

    /// Lists again if that is due. Whether it was: what is not kept is then to be let go, and what is new to be opened.
    pub(super) fn refresh(&mut self) -> Result<bool, ReadError> {
        if self.waits > 0 {
            self.waits -= 1;
            return Ok(false);
        }
        if self.list().is_err() {
            // The module that owned the directory may have been loaded anew.
            let again = self.host.directory(self.place.path).and_then(|directory| {
                self.directory = directory;
                self.list()
            });
            again.map_err(|error| ReadError { file: self.place.path, error })?;
        }
        self.waits = self.samples - 1;
        Ok(true)
    }

    fn list(&mut self) -> Result<(), Error> {
        let Self { directory, devices, place, .. } = self;
        let mut shortfall = Shortfall::NONE;
        for device in devices.iter_mut() {
            device.is_there = false;
        }
        let known = devices.len(); // those behind are new and in no order
        directory.list_numbered(|name, inode| {
            if !(place.is_device)(name.to_bytes()) {
                return;
            }
            let Some(name) = FileName::new(name.to_bytes()) else {
                shortfall |= Shortfall::UNREADABLE;
                return;
            };
            let new = Listed { key: Key { name, inode }, is_there: true, openings: OPENINGS_OF_NEW };
            let sorted = devices.get(..known).unwrap_or_default();
            let found = sorted.binary_search_by(|device| device.key.name.cmp(&name)).ok();
            let has_room = devices.len() - known < place.devices_max; // some of the known ones may have gone
            match found.and_then(|at| devices.get_mut(at)) {
                Some(device) if device.key == new.key => device.is_there = true,
                Some(device) => *device = new,
                None if has_room => devices.push(new),
                None => shortfall |= Shortfall::TOO_MANY,
            }
        })?;
        self.devices.retain(|device| device.is_there);
        self.devices.sort_unstable_by_key(|device| device.key.name);
        shortfall |= Shortfall::TOO_MANY.unless(self.devices.len() <= self.place.devices_max);
        self.devices.truncate(self.place.devices_max);
        self.shortfall = shortfall;
        Ok(())
    }

    /// Whether there are none at all.
    pub(super) fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// What the last listing lacks.
    pub(super) fn shortfall(&self) -> Shortfall {
        self.shortfall
    }

    /// Whether a device is still there and need not be opened again.
    pub(super) fn keeps(&self, key: &Key) -> bool {
        let found = self.devices.binary_search_by(|device| device.key.name.cmp(&key.name)).ok();
        let device = found.and_then(|at| self.devices.get(at));
        device.is_some_and(|device| device.key == *key && device.openings == 0)
    }

    /// Hands out each device that is to be opened. What was opened of it before must have been let go.
    pub(super) fn each_new(&mut self, mut open: impl FnMut(&mut HostDirectory, Key)) {
        for device in self.devices.iter_mut().filter(|device| device.openings > 0) {
            device.openings -= 1;
            open(&mut self.directory, device.key);
        }
    }

    /// Has this device opened again at the next sample: it answered that it is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        for device in self.devices.iter_mut().filter(|device| device.key == *key) {
            device.openings = OPENINGS;
        }
        self.waits = 0;
    }

    /// Has all devices opened again now: something that none of them tells has changed.
    pub(super) fn forget_all(&mut self) {
        for device in &mut self.devices {
            device.openings = OPENINGS_OF_NEW;
        }
        self.waits = 0;
    }
}

/// Calls `act` with a path made of parts; none if it is too long or holds a zero byte.
pub(super) fn with_path<Got>(parts: &[&[u8]], act: impl FnOnce(&CStr) -> Got) -> Option<Got> {
    let mut path = [0; PATH_BYTES];
    let mut places = path.iter_mut().take(PATH_BYTES - 1);
    for byte in parts.iter().copied().flatten() {
        *places.next()? = *byte;
    }
    let whole = CStr::from_bytes_until_nul(&path).ok()?;
    (whole.count_bytes() == parts.iter().map(|part| part.len()).sum::<usize>()).then(|| act(whole))
}

/// The words of a file beneath that is read once, such as a device's name, as far as they fit; none without the file.
pub(super) fn words<const BYTES: usize>(directory: &HostDirectory, parts: &[&[u8]]) -> Option<[u8; BYTES]> {
    let file = with_path(parts, |path| directory.short_file(path))?.ok()?;
    let mut buffer = [0; BYTES];
    let content = file.read(&mut buffer).ok()?;
    let line = content.split(|byte| matches!(byte, b'\n' | 0)).next()?.trim_ascii();
    Some(fitted(line))
}

/// The device to which a device of a class belongs, as far as it fits: `applesmc.768` where the class's link leads to
/// `../../devices/platform/applesmc.768/hwmon/hwmon2`. Empty for one that belongs to none, or is no link.
pub(super) fn parent<const BYTES: usize>(
    directory: &HostDirectory,
    name: &[u8],
    class: &[u8],
) -> [u8; BYTES] {
    let mut buffer = [0; 4 * PATH_BYTES];
    let target = with_path(&[name], |path| directory.link(path, &mut buffer).ok()).flatten();
    let mut parts = target.unwrap_or_default().rsplit(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let parent = parts.nth(1).and_then(|part| if part == class { parts.next() } else { Some(part) });
    fitted(parent.filter(|part| !matches!(*part, b"virtual" | b"..")).unwrap_or_default())
}

/// A text of a fixed place up to its end.
pub(super) fn until_end(place: &[u8]) -> &[u8] {
    place.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A text cut off where it does not fit, its end included.
pub(super) fn fitted<const BYTES: usize>(text: &[u8]) -> [u8; BYTES] {
    let mut place = [0; BYTES];
    for (to, from) in place.iter_mut().take(BYTES - 1).zip(text) {
        *to = *from;
    }
    place
}

/// A file with one number: kept open, read at each sample, and what came of that.
#[derive(Debug)]
pub(super) struct OneNumber {
    file: Option<ShortFile>,
    content: [u8; NUMBER_BYTES],
    length: usize, // <= NUMBER_BYTES
    error: i32,    // number of the kernel's last error; 0: none
}

/// Longest number with its sign and line end, and more: a file that fills it holds something else.
const NUMBER_BYTES: usize = 32;

impl OneNumber {
    /// A number that this device does not have: absent, and nothing lacks.
    pub(super) const NONE: Self = Self { file: None, content: [0; NUMBER_BYTES], length: 0, error: 0 };

    /// Opens it beneath. A file that is not there is no error, one that may not be opened stays so.
    pub(super) fn open(directory: &HostDirectory, parts: &[&[u8]]) -> Self {
        match with_path(parts, |path| directory.short_file(path)) {
            Some(Ok(file)) => Self { file: Some(file), ..Self::NONE },
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => Self::NONE,
            Some(Err(error)) => Self { error: number_of(&error), ..Self::NONE },
            None => Self::NONE,
        }
    }

    /// Whether the device has such a file, readable or not.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_some() || self.error != 0
    }

    /// Opens, reads and closes one that does not change; absent if it cannot be read.
    pub(super) fn once(directory: &HostDirectory, parts: &[&[u8]]) -> u64 {
        let mut number = Self::open(directory, parts);
        number.read();
        let mut lacks = Shortfall::NONE;
        number.unsigned(&mut lacks)
    }

    /// What the file says, where it says words, as far as they fit; else empty, with the reason added to `shortfall`.
    pub(super) fn words<const BYTES: usize>(&self, shortfall: &mut Shortfall) -> [u8; BYTES] {
        fitted(until_end(self.line(shortfall).unwrap_or_default()))
    }

    /// Reads it.
    pub(super) fn read(&mut self) {
        let Some(file) = &self.file else { return };
        (self.length, self.error) = match file.read(&mut self.content) {
            Ok(content) => (content.len(), 0),
            Err(error) => (0, number_of(&error)),
        };
    }

    /// Whether the last reading said that the device is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.error == ENODEV
    }

    /// Whether the kernel refused it for want of a privilege.
    pub(super) fn is_denied(&self) -> bool {
        self.lacks() == Shortfall::DENIED
    }

    /// The number of the error with which the kernel refused the value; 0 if it gave one.
    pub(super) fn error(&self) -> u64 {
        u64::from(self.error.unsigned_abs())
    }

    /// The value, if it is no negative one; else absent, with the reason added to `shortfall`.
    pub(super) fn unsigned(&self, shortfall: &mut Shortfall) -> u64 {
        let value = self.line(shortfall).map(text::number);
        *shortfall |= Shortfall::UNREADABLE.unless(value != Some(None));
        value.flatten().unwrap_or(text::ABSENT)
    }

    /// The value, which may be negative; else not a number, with the reason added to `shortfall`.
    pub(super) fn signed(&self, shortfall: &mut Shortfall) -> f64 {
        let value = self.line(shortfall).map(text::signed);
        *shortfall |= Shortfall::UNREADABLE.unless(value != Some(None));
        value.flatten().unwrap_or(f64::NAN)
    }

    fn line(&self, shortfall: &mut Shortfall) -> Option<&[u8]> {
        if !self.is_there() {
            return None;
        }
        if self.error != 0 {
            *shortfall |= self.lacks();
            return None;
        }
        let line = self.content.get(..self.length).and_then(|content| content.strip_suffix(b"\n"));
        // Without its end, the number may lack digits.
        *shortfall |= Shortfall::CUT.unless(line.is_some());
        line
    }

    fn lacks(&self) -> Shortfall {
        match Error::from_raw_os_error(self.error).kind() {
            _ if self.error == 0 => Shortfall::NONE,
            ErrorKind::PermissionDenied => Shortfall::DENIED,
            _ if self.is_gone() => Shortfall::MISSING,
            _ => Shortfall::UNREADABLE,
        }
    }
}

fn number_of(error: &Error) -> i32 {
    error.raw_os_error().unwrap_or(i32::MAX)
}

/// Whether a name is this word with a number behind.
pub(super) fn is_numbered(name: &[u8], word: &[u8]) -> bool {
    number_behind(name, word).is_some()
}

/// The number behind a word: 3 of `hwmon3`.
pub(super) fn number_behind(name: &[u8], word: &[u8]) -> Option<u64> {
    name.strip_prefix(word).and_then(text::number)
}

/// Says that a directory holds none of what is looked for.
pub(super) fn empty(what: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::sources::tests::{assert_composed, moved};

    fn listing(root: &std::path::Path, period: Duration) -> Listing {
        let place = Place { path: "class", is_device: |name| is_numbered(name, b"d"), devices_max: 3 };
        Listing::open(&HostRoot::new(root), place, period).unwrap()
    }

    fn new_ones(listing: &mut Listing) -> Vec<String> {
        let mut names = Vec::new();
        listing.each_new(|_, key| names.push(String::from_utf8(key.name.bytes().to_vec()).unwrap()));
        names
    }

    // Goal: devices are found when they come, opened twice, told from others of their name, and no more than the limit. Method: a
    // directory that changes between listings.
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
        let keys: Vec<Key> = listing.devices.iter().map(|device| device.key).collect();
        assert!(listing.refresh().unwrap() && new_ones(&mut listing).is_empty());
        assert!(keys.iter().all(|key| listing.keeps(key)));

        // Another device of the same name: made before the old one goes, so that it cannot get its inode.
        add("spare");
        std::fs::remove_dir(class.join("d9")).unwrap();
        moved(&class.join("spare"), &class.join("d9"));
        listing.refresh().unwrap();
        assert!(!listing.keeps(&keys[0]) && listing.keeps(&keys[1]));
        assert_eq!(new_ones(&mut listing), ["d9"]);
        listing.refresh().unwrap();
        assert_eq!(new_ones(&mut listing), ["d9"], "its files may have come late");
        listing.refresh().unwrap();
        assert!(new_ones(&mut listing).is_empty());

        listing.forget(&keys[1]);
        assert!(!listing.keeps(&keys[1]) && new_ones(&mut listing) == ["d10"]);
        for name in ["d11", "d12"] {
            add(name);
        }
        listing.refresh().unwrap();
        assert_eq!((listing.devices.len(), listing.shortfall()), (3, Shortfall::TOO_MANY));
        std::fs::remove_dir(class.join("d9")).unwrap();
        listing.refresh().unwrap();
        assert_eq!((listing.devices.len(), listing.shortfall()), (3, Shortfall::NONE));
    }

    // Goal: a fast source lists once a second, and a directory that was made anew is found again. Method: 100 ms; remove and make.
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

    fn number(content: &[u8]) -> OneNumber {
        let mut number = OneNumber::NONE;
        number.content[..content.len()].copy_from_slice(content);
        number.length = content.len();
        number.file = std::fs::File::open("/dev/null")
            .ok()
            .map(|_| HostRoot::new("/").directory("dev").unwrap().short_file(c"null").unwrap());
        number
    }

    // Goal: numbers are read exactly, marked, or absent. Method: every cut and each replaced byte; edges; words.
    #[test]
    fn numbers_are_exact_or_marked() {
        for text in [&b"-12345\n"[..], b"18446744073709551614\n"] {
            assert_composed(text, |text| {
                let mut shortfall = Shortfall::NONE;
                if text.starts_with(b"-") {
                    let is_value = !number(text).signed(&mut shortfall).is_nan();
                    assert_eq!(is_value, shortfall.is_none());
                } else {
                    let is_value = number(text).unsigned(&mut shortfall) != text::ABSENT;
                    assert_eq!(is_value, shortfall.is_none());
                }
                shortfall.is_none()
            });
        }
    }

    // Goal: what the kernel says instead of a value becomes its mark. Method: each error.
    #[test]
    fn errors_have_their_marks() {
        for (error, expected) in [
            (11, Shortfall::UNREADABLE), // EAGAIN
            (61, Shortfall::UNREADABLE), // ENODATA
            (5, Shortfall::UNREADABLE),  // EIO
            (19, Shortfall::MISSING),    // ENODEV
            (1, Shortfall::DENIED),      // EPERM
            (13, Shortfall::DENIED),     // EACCES
        ] {
            let number = OneNumber { error, ..number(b"1\n") };
            let mut shortfall = Shortfall::NONE;
            assert!(number.signed(&mut shortfall).is_nan());
            assert_eq!((shortfall, number.error()), (expected, u64::from(error.unsigned_abs())));
            assert_eq!(number.is_gone(), error == ENODEV);
        }
        let mut shortfall = Shortfall::NONE;
        assert_eq!(OneNumber::NONE.unsigned(&mut shortfall), text::ABSENT);
        assert_eq!(shortfall, Shortfall::NONE);
    }

    // Goal: paths fit or are refused. Method: around the size, and a zero byte.
    #[test]
    fn paths_fit_or_are_refused() {
        let length = |parts: &[&[u8]]| with_path(parts, CStr::count_bytes);
        assert_eq!(length(&[b"hwmon3", b"/", b"name"]), Some(11));
        assert_eq!(length(&[&[b'a'; PATH_BYTES - 1]]), Some(PATH_BYTES - 1));
        assert_eq!(length(&[&[b'a'; PATH_BYTES]]), None);
        assert_eq!(length(&[b"a\0b"]), None);
    }
}
