//! Statistics of network drivers through the SIOCETHTOOL ioctl. These statistics have no file and
//! no safe interface, and netlink does not report driver-specific statistics.
//!
//! The kernel writes all statistics that the driver has at that moment. Before Linux 6.19, the
//! kernel did not check the size of the buffer. So the buffer is a mapping followed by inaccessible
//! pages. Too many statistics then cause an error (EFAULT) instead of a write into other memory.
//! The result is read through the mapped file.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::ioctl::{Opcode, Updater, ioctl};

/// Maximum number of statistics of an interface; more are an error (`FileTooLarge`). Typical
/// drivers have some hundreds of statistics. Drivers with one queue per core have some thousands on
/// a host with many cores.
pub const STATISTICS_MAX: usize = 16_384;
/// Length of an interface's name with its terminating zero, in bytes.
pub const INTERFACE_BYTES: usize = 16;
/// Length of a statistic's name, in bytes; a name may fill it without a terminating zero.
pub const NAME_BYTES: usize = 32;

const SIOCGIFINDEX: Opcode = 0x8933;
const SIOCETHTOOL: Opcode = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETH_SS_STATS: u32 = 1;
/// Size of the buffer for the names of all statistics and the header before them. The size is a
/// multiple of every page size.
const AREA_BYTES: usize = 1 << 20;
/// Size of the inaccessible pages after the buffer, in bytes. The size is at least the largest page
/// size.
const GUARD_BYTES: usize = 64 << 10;
const _: () =
    assert!(AREA_BYTES.is_multiple_of(GUARD_BYTES) && STATISTICS_MAX * NAME_BYTES + 12 <= AREA_BYTES);

/// Queries drivers in the network namespace in which this value was opened.
#[derive(Debug)]
pub struct Ethtool {
    socket: UnixDatagram, // any kind of socket works; this one opens nothing to the network
    area: MmapRaw,        // AREA_BYTES of `file`, then GUARD_BYTES beyond its end
    file: File,
    buffer: Vec<u8>,
}

/// Information about a driver, as `ethtool -i` shows it. Strings end with a zero byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// Name of the driver.
    pub driver: [u8; 32],
    /// Version of the driver.
    pub version: [u8; 32],
    /// Version of the firmware.
    pub firmware: [u8; 32],
    /// Bus address of the device.
    pub bus: [u8; 32],
    /// Number of statistics; it may change.
    pub statistics: usize,
}

/// `struct ifreq` with a pointer or a number. The structure has 40 bytes if pointers have 8 bytes.
#[repr(C)]
struct InterfaceRequest<Data> {
    name: [u8; INTERFACE_BYTES],
    data: Data,
    rest: [u64; 2],
}
// The kernel's structure is a name and a union of 24 bytes, or of 16 bytes where pointers have 4.
const _: () = assert!(size_of::<InterfaceRequest<*mut u8>>() >= INTERFACE_BYTES + 16 + size_of::<*mut u8>());

/// Queries about network interfaces. The kernel or a driver answers them.
pub trait DriverQueries: Debug + Send {
    /// Returns the kernel's index of an interface. A later interface of the same name has another
    /// index.
    ///
    /// # Errors
    /// `NotFound` or ENODEV if there is no such interface, or any error of the underlying system
    /// call.
    fn index(&self, name: &[u8; INTERFACE_BYTES]) -> io::Result<u32>;

    /// Returns information about the driver of an interface.
    ///
    /// # Errors
    /// `Unsupported` if the driver reports no information, or any error of the underlying system
    /// call.
    fn driver(&mut self, name: &[u8; INTERFACE_BYTES]) -> io::Result<DriverInfo>;

    /// Fills `names` with the names of all statistics. `expected` is the last known number of
    /// statistics.
    ///
    /// # Errors
    /// `FileTooLarge` if there are more than [`STATISTICS_MAX`] statistics, or any error of the
    /// underlying system call.
    fn names(
        &mut self,
        name: &[u8; INTERFACE_BYTES],
        expected: usize,
        names: &mut Vec<[u8; NAME_BYTES]>,
    ) -> io::Result<()>;

    /// Fills `values` with the values of all statistics, in the order of their names. If the number
    /// of values is not `expected`, the names have changed.
    ///
    /// # Errors
    /// `FileTooLarge` if there are more than [`STATISTICS_MAX`] statistics, or any error of the
    /// underlying system call.
    fn values(
        &mut self,
        name: &[u8; INTERFACE_BYTES],
        expected: usize,
        values: &mut Vec<u64>,
    ) -> io::Result<()>;
}

impl Ethtool {
    /// Opens a socket and maps the buffer.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn open() -> io::Result<Self> {
        let file = File::from(memfd_create("flatcap-ethtool", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, AREA_BYTES as u64)?;
        let area = MmapOptions::new().len(AREA_BYTES + GUARD_BYTES).map_raw(&file)?;
        Ok(Self { socket: UnixDatagram::unbound()?, area, file, buffer: Vec::new() })
    }

    /// Reads the result of the last command. The result is a 32-bit count at offset `at`, followed
    /// by the counted items.
    fn read<const BYTES: usize>(&mut self, at: usize) -> io::Result<&[[u8; BYTES]]> {
        let mut length = [0; 4];
        self.file.read_exact_at(&mut length, at as u64)?;
        let pieces = u32_from_kernel(length);
        count(pieces)?;
        self.buffer.resize(pieces * BYTES, 0);
        self.file.read_exact_at(&mut self.buffer, at as u64 + 4)?;
        Ok(self.buffer.as_chunks().0)
    }

    /// Sends a command to a driver. The kernel writes the answer into the buffer.
    fn command(&mut self, name: &[u8; INTERFACE_BYTES], words: &[u32]) -> io::Result<()> {
        for (word, at) in words.iter().zip((0..).step_by(4)) {
            self.file.write_all_at(&word.to_ne_bytes(), at)?;
        }
        let mut request = InterfaceRequest { name: *name, data: self.area.as_mut_ptr(), rest: [0; 2] };
        self.call_ioctl::<SIOCETHTOOL, _>(&mut request)
    }

    #[allow(
        unsafe_code,
        reason = "the kernel's interface: only the request number of an ioctl says what it reads and writes"
    )]
    fn call_ioctl<const OPCODE: Opcode, Data>(&self, request: &mut InterfaceRequest<Data>) -> io::Result<()> {
        // SAFETY: both requests take a `struct ifreq`, and `InterfaceRequest` is at least as long
        // as that structure. SIOCGIFINDEX changes nothing else. SIOCETHTOOL also reads and writes
        // from `data` on, which is the start of a mapping that this process reaches in no other
        // way. The kernel writes from `data` towards higher addresses. The kernel stops with EFAULT
        // at the pages beyond the end of the file, which come before the end of the mapping. Every
        // method that sends commands takes `&mut self`, so no other thread uses the buffer.
        unsafe { ioctl(&self.socket, Updater::<OPCODE, _>::new(request)) }.map_err(Into::into)
    }
}

impl DriverQueries for Ethtool {
    fn index(&self, name: &[u8; INTERFACE_BYTES]) -> io::Result<u32> {
        let mut request = InterfaceRequest { name: *name, data: [0_u32; 2], rest: [0; 2] };
        self.call_ioctl::<SIOCGIFINDEX, _>(&mut request)?;
        let [index, _] = request.data;
        Ok(index)
    }

    fn driver(&mut self, name: &[u8; INTERFACE_BYTES]) -> io::Result<DriverInfo> {
        // struct ethtool_drvinfo: command, five strings of 32 bytes, 12 bytes reserved, five
        // numbers.
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
            statistics: counts.first_chunk().map_or(0, |count| u32_from_kernel(*count)),
        })
    }

    fn names(
        &mut self,
        name: &[u8; INTERFACE_BYTES],
        expected: usize,
        names: &mut Vec<[u8; NAME_BYTES]>,
    ) -> io::Result<()> {
        names.clear();
        self.command(name, &[ETHTOOL_GSTRINGS, ETH_SS_STATS, count(expected)?])?;
        let items = self.read::<NAME_BYTES>(8)?;
        names.extend(items.iter());
        Ok(())
    }

    fn values(
        &mut self,
        name: &[u8; INTERFACE_BYTES],
        expected: usize,
        values: &mut Vec<u64>,
    ) -> io::Result<()> {
        values.clear();
        self.command(name, &[ETHTOOL_GSTATS, count(expected)?])?;
        let items = self.read::<8>(4)?;
        values.extend(items.iter().map(|value| u64::from_ne_bytes(*value)));
        Ok(())
    }
}

fn count(statistics: usize) -> io::Result<u32> {
    let fits = u32::try_from(statistics).ok().filter(|_| statistics <= STATISTICS_MAX);
    fits.ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

fn u32_from_kernel(bytes: [u8; 4]) -> usize {
    usize::try_from(u32::from_ne_bytes(bytes)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded_name(name: &str) -> [u8; INTERFACE_BYTES] {
        let mut bytes = [0; INTERFACE_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes
    }

    // Proves that a missing interface is an error, and that an interface without statistics is also
    // an error.
    #[test]
    fn a_missing_interface_is_an_error() {
        let mut ethtool = Ethtool::open().unwrap();
        assert_eq!(ethtool.index(&padded_name("none-such")).unwrap_err().raw_os_error(), Some(19));
        assert!(ethtool.index(&padded_name("lo")).unwrap() > 0);
        assert!(ethtool.driver(&padded_name("none-such")).is_err());
        let (mut names, mut values) = (Vec::new(), Vec::new());
        assert!(ethtool.values(&padded_name("lo"), 0, &mut values).is_err());
        let refused = ethtool.names(&padded_name("lo"), STATISTICS_MAX + 1, &mut names).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }

    // Proves that the kernel cannot write beyond the buffer. An answer that does not fit before the
    // end of the buffer causes EFAULT.
    #[test]
    fn the_guard_holds() {
        let ethtool = Ethtool::open().unwrap();
        for (space, fits) in [(4, false), (100, false), (4096, true)] {
            let start = AREA_BYTES - space;
            ethtool.file.write_all_at(&ETHTOOL_GDRVINFO.to_ne_bytes(), start as u64).unwrap();
            let data = ethtool.area.as_mut_ptr().wrapping_add(start);
            let Some(name) =
                ["eth0", "lo"].map(padded_name).into_iter().find(|name| ethtool.index(name).is_ok())
            else {
                return;
            };
            let mut request = InterfaceRequest { name, data, rest: [0; 2] };
            let result = ethtool.call_ioctl::<SIOCETHTOOL, _>(&mut request);
            let is_fault = result.as_ref().is_err_and(|error| error.raw_os_error() == Some(14));
            assert_eq!(is_fault, !fits, "{space} {result:?}");
        }
    }
}
