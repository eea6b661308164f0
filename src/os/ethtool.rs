//! Statistics of network drivers: the ioctl SIOCETHTOOL, for which there is no file and no safe interface. The newer way, netlink,
//! does not tell drivers' own statistics.
//!
//! The kernel writes as many statistics as the driver has at that moment; before Linux 6.19 it did not look how many there is
//! room for. So it writes into a mapping that ends in pages that nobody can write to: too many are an error (EFAULT)
//! instead of a write into memory that belongs to somebody else. What it wrote is read through the mapped file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::ioctl::{Opcode, Updater, ioctl};

/// Most statistics of one interface; one with more is an error (`FileTooLarge`). Drivers have some hundreds, with a queue for each of
/// many cores some thousands.
pub const STATISTICS_MAX: usize = 16_384;
/// Bytes of an interface's name, its end included.
pub const INTERFACE_BYTES: usize = 16;
/// Bytes of a statistic's name; it may fill them all.
pub const NAME_BYTES: usize = 32;

const SIOCGIFINDEX: Opcode = 0x8933;
const SIOCETHTOOL: Opcode = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETH_SS_STATS: u32 = 1;
/// Room for the names of all statistics and what stands before them; whole pages of any size.
const AREA_BYTES: usize = 1 << 20;
/// Beyond the end of the mapped file: at least a page of the largest size.
const GUARD_BYTES: usize = 64 << 10;
const _: () =
    assert!(AREA_BYTES.is_multiple_of(GUARD_BYTES) && STATISTICS_MAX * NAME_BYTES + 12 <= AREA_BYTES);

/// Asks drivers of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Ethtool {
    socket: UnixDatagram, // any socket will do, and this kind opens nothing to the network
    area: MmapRaw,        // AREA_BYTES of `file`, GUARD_BYTES beyond its end
    file: File,
    buffer: Vec<u8>,
}

/// What a driver tells of itself, as `ethtool -i` shows it; texts end with a zero byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// The driver's name.
    pub driver: [u8; 32],
    /// Its version.
    pub version: [u8; 32],
    /// The version of the firmware.
    pub firmware: [u8; 32],
    /// Where on its bus the device is.
    pub bus: [u8; 32],
    /// How many statistics it has; they may become more or fewer.
    pub statistics: usize,
}

/// `struct ifreq` with a pointer or a number: 40 bytes where pointers have 8.
#[repr(C)]
struct Request<Data> {
    name: [u8; INTERFACE_BYTES],
    data: Data,
    rest: [u64; 2],
}
// The kernel's has a name and a union of 24 bytes, 16 where pointers have 4.
const _: () = assert!(size_of::<Request<*mut u8>>() >= INTERFACE_BYTES + 16 + size_of::<*mut u8>());

impl Ethtool {
    /// Opens a socket and maps the area.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open() -> io::Result<Self> {
        let file = File::from(memfd_create("flatcap-ethtool", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, AREA_BYTES as u64)?;
        let area = MmapOptions::new().len(AREA_BYTES + GUARD_BYTES).map_raw(&file)?;
        Ok(Self { socket: UnixDatagram::unbound()?, area, file, buffer: Vec::new() })
    }

    /// The kernel's number of an interface, which no later one gets under the same name.
    ///
    /// # Errors
    /// What the kernel says; `NotFound` or ENODEV if there is none of this name.
    pub fn index(&self, name: &[u8; INTERFACE_BYTES]) -> io::Result<u32> {
        let mut request = Request { name: *name, data: [0_u32; 2], rest: [0; 2] };
        self.ask::<SIOCGIFINDEX, _>(&mut request)?;
        let [index, _] = request.data;
        Ok(index)
    }

    /// What the driver of an interface tells of itself.
    ///
    /// # Errors
    /// What the kernel says; `Unsupported` if the driver tells nothing.
    pub fn driver(&mut self, name: &[u8; INTERFACE_BYTES]) -> io::Result<DriverInfo> {
        // struct ethtool_drvinfo: its command, five texts of 32 bytes, 12 bytes reserved, five numbers.
        self.command(name, &[ETHTOOL_GDRVINFO])?;
        let mut info = [0; 4 + 5 * 32 + 12 + 5 * 4];
        self.file.read_exact_at(&mut info, 0)?;
        let text = |at: usize| *info.get(4 + 32 * at..).unwrap_or_default().first_chunk().unwrap_or(&[0; 32]);
        let counts = info.get(4 + 5 * 32 + 12 + 4..).unwrap_or_default();
        Ok(DriverInfo {
            driver: text(0),
            version: text(1),
            firmware: text(2),
            bus: text(3),
            statistics: counts.first_chunk().map_or(0, |count| number(*count)),
        })
    }

    /// Fills in the names of all statistics. `expected` is how many there were.
    ///
    /// # Errors
    /// What the kernel says; `FileTooLarge` if there are more than [`STATISTICS_MAX`].
    pub fn names(
        &mut self,
        name: &[u8; INTERFACE_BYTES],
        expected: usize,
        names: &mut Vec<[u8; NAME_BYTES]>,
    ) -> io::Result<()> {
        names.clear();
        self.command(name, &[ETHTOOL_GSTRINGS, ETH_SS_STATS, count(expected)?])?;
        let told = self.read::<NAME_BYTES>(8)?;
        names.extend(told.iter());
        Ok(())
    }

    /// Fills in the values of all statistics, in the order of their names. There may be none or another number of them than were
    /// expected: then their names have changed.
    ///
    /// # Errors
    /// What the kernel says; `FileTooLarge` if there are more than [`STATISTICS_MAX`].
    pub fn values(
        &mut self,
        name: &[u8; INTERFACE_BYTES],
        expected: usize,
        values: &mut Vec<u64>,
    ) -> io::Result<()> {
        values.clear();
        self.command(name, &[ETHTOOL_GSTATS, count(expected)?])?;
        let told = self.read::<8>(4)?;
        values.extend(told.iter().map(|value| native(*value)));
        Ok(())
    }

    /// What the last command left: a number at `at`, and behind it as many pieces.
    fn read<const BYTES: usize>(&mut self, at: usize) -> io::Result<&[[u8; BYTES]]> {
        let mut length = [0; 4];
        self.file.read_exact_at(&mut length, at as u64)?;
        let pieces = number(length);
        count(pieces)?;
        self.buffer.resize(pieces * BYTES, 0);
        self.file.read_exact_at(&mut self.buffer, at as u64 + 4)?;
        Ok(self.buffer.as_chunks().0)
    }

    /// Gives a driver a command and leaves its answer in the area.
    fn command(&mut self, name: &[u8; INTERFACE_BYTES], words: &[u32]) -> io::Result<()> {
        for (word, at) in words.iter().zip((0..).step_by(4)) {
            self.file.write_all_at(&bytes(*word), at)?;
        }
        let mut request = Request { name: *name, data: self.area.as_mut_ptr(), rest: [0; 2] };
        self.ask::<SIOCETHTOOL, _>(&mut request)
    }

    #[allow(
        unsafe_code,
        reason = "the kernel's interface: what an ioctl reads and writes only its number tells"
    )]
    fn ask<const OPCODE: Opcode, Data>(&self, request: &mut Request<Data>) -> io::Result<()> {
        // SAFETY: both numbers take a `struct ifreq`, which `Request` is at least as long as, and change nothing else by
        // SIOCGIFINDEX. SIOCETHTOOL also reads and writes from `data` on, which is the start of a mapping that this
        // process reaches in no other way; it writes upwards from there and stops with EFAULT at the pages beyond the end of the
        // file, which it reaches before the end of the mapping. `&mut` of all that gives commands keeps others away.
        unsafe { ioctl(&self.socket, Updater::<OPCODE, _>::new(request)) }.map_err(Into::into)
    }
}

fn count(statistics: usize) -> io::Result<u32> {
    let fits = u32::try_from(statistics).ok().filter(|_| statistics <= STATISTICS_MAX);
    fits.ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

#[expect(clippy::host_endian_bytes, reason = "numbers of the kernel in this host's memory")]
fn number(bytes: [u8; 4]) -> usize {
    usize::try_from(u32::from_ne_bytes(bytes)).unwrap_or(usize::MAX)
}

#[expect(clippy::host_endian_bytes, reason = "numbers of the kernel in this host's memory")]
fn native(bytes: [u8; 8]) -> u64 {
    u64::from_ne_bytes(bytes)
}

#[expect(clippy::host_endian_bytes, reason = "numbers of the kernel in this host's memory")]
fn bytes(word: u32) -> [u8; 4] {
    word.to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> [u8; INTERFACE_BYTES] {
        let mut bytes = [0; INTERFACE_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes
    }

    // Goal: what is not there is an error that says so. Method: an interface that nobody has, and the loopback, which has no
    // statistics.
    #[test]
    fn what_is_not_there_is_an_error() {
        let mut ethtool = Ethtool::open().unwrap();
        assert_eq!(ethtool.index(&named("none-such")).unwrap_err().raw_os_error(), Some(19));
        assert!(ethtool.index(&named("lo")).unwrap() > 0);
        assert!(ethtool.driver(&named("none-such")).is_err());
        let (mut names, mut values) = (Vec::new(), Vec::new());
        assert!(ethtool.values(&named("lo"), 0, &mut values).is_err());
        let refused = ethtool.names(&named("lo"), STATISTICS_MAX + 1, &mut names).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }

    // Goal: the kernel cannot write beyond the area. Method: an area of which all but the last bytes are in front of where it is told to
    // write; the answer does not fit and is an error.
    #[test]
    fn the_guard_holds() {
        let ethtool = Ethtool::open().unwrap();
        for (room, fits) in [(4, false), (100, false), (4096, true)] {
            let start = AREA_BYTES - room;
            ethtool.file.write_all_at(&bytes(ETHTOOL_GDRVINFO), start as u64).unwrap();
            let data = ethtool.area.as_mut_ptr().wrapping_add(start);
            let Some(name) = ["eth0", "lo"].map(named).into_iter().find(|name| ethtool.index(name).is_ok())
            else {
                return;
            };
            let mut request = Request { name, data, rest: [0; 2] };
            let told = ethtool.ask::<SIOCETHTOOL, _>(&mut request);
            let is_fault = told.as_ref().is_err_and(|error| error.raw_os_error() == Some(14));
            assert_eq!(is_fault, !fits, "{room} {told:?}");
        }
    }
}
