//! Determines how block devices lie on each other in layers, from /sys/dev/block. A block device
//! can lie on other devices, as an encrypted volume lies on a partition.
//!
//! The file `io.stat` of a group has a line per device. A byte is counted in the line of each
//! device that it passes through, such as the volume, the encrypted partition's device, and the
//! disk. A sum over devices must count the byte only one time. Therefore devices that lie on each
//! other, directly or indirectly, form a *stack*, and only one layer of each stack is added up.
//!
//! For each value, the layer with the largest sum is used. Usually this is the lowest layer, the
//! disks. But if a thread of the kernel executes the I/O, the kernel charges this I/O to no group.
//! Kernel threads execute the I/O of RAID 5 and the writes of dm-crypt. In these cases, the sum
//! over the disks is smaller than the amount that the group wrote.

use std::io::{ErrorKind, Write};

use flatcap_os::host::{HostDirectory, HostRoot};

use crate::sources::devices::{self, FileName, with_path};
use crate::sources::text;

pub(super) const DIRECTORY: &str = "sys/dev/block";
/// Major number of loop devices. A loop device reads and writes a file. The device that holds this
/// file already counts the I/O.
const LOOP: u64 = 7;
/// Maximum number of devices. Further devices are not examined.
const DEVICES_MAX: usize = 8192;
/// Maximum number of layers above the lowest layer of a stack.
const HEIGHT_MAX: usize = 32;
/// Maximum length of a device number as text, including its terminating zero byte.
const NUMBER_BYTES: usize = 44;
/// Major numbers that the kernel assigns only to disks: IDE, SCSI, MMC and Xen
/// (Documentation/admin-guide/devices.txt in the kernel). Other major numbers are shared or
/// assigned at boot.
const DISK_MAJORS: [u64; 28] = [
    3, 8, 22, 33, 34, 56, 57, 65, 66, 67, 68, 69, 70, 71, 88, 89, 90, 91, 128, 129, 130, 131, 132, 133, 134,
    135, 179, 202,
];

/// Major and minor number.
pub(super) type DeviceNumber = (u64, u64);

/// The devices that the groups' files have named so far, and the devices below them.
#[derive(Debug, Default)]
pub(super) struct BlockDevices {
    directory: Option<HostDirectory>,
    devices: Vec<BlockDevice>,    // ascending by number
    lies_on: Vec<(usize, usize)>, // a device, and one directly below it
    layers: Vec<usize>,           // the stack of each layer; layers of a stack are neighbours
    edges: Vec<(DeviceNumber, DeviceNumber)>,
    names: Vec<FileName>, // reused
}

#[derive(Debug, Clone, Copy)]
struct BlockDevice {
    number: DeviceNumber,
    is_visible: bool,    // whether the devices below it are known
    height: usize,       // 0 if the device lies on no other
    is_top: bool,        // whether no other device lies on this one
    stack: usize,        // the index of one device of the stack
    stack_height: usize, // largest height; set in the device with that index
    first_layer: usize,  // set in the device with that index
    role: DeviceRole,
}

/// Specifies whether the I/O of a device is added to the sums, and to which sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceRole {
    /// The I/O is added to the sum of this layer of the device's stack. If no other device lies on
    /// this one, the I/O is also added to the sum of the stack's top layer.
    Layer { layer: usize, top_layer: Option<usize> },
    /// The I/O is not added, because another device already accounts for it.
    Repeated,
    /// The devices below this one are not visible.
    Unknown,
    /// The device was not examined yet. [`BlockDevices::learn`] examines it.
    New,
}

impl BlockDevices {
    pub(super) fn open(host: &HostRoot) -> Self {
        let directory = host.directory(DIRECTORY).inspect_err(|error| {
            tracing::warn!(
                source = "cgroup",
                file = DIRECTORY,
                %error,
                "cannot see which block devices lie on others; the I/O of a group that used several \
                 devices is absent"
            );
        });
        Self { directory: directory.ok(), ..Self::default() }
    }

    /// Returns, for each layer, the index of its stack. The layers of one stack are adjacent.
    pub(super) fn layers(&self) -> &[usize] {
        &self.layers
    }

    /// Forgets all devices so that they are examined again. A device may now lie on other devices
    /// than before.
    pub(super) fn forget(&mut self) {
        self.devices.clear();
        self.edges.clear();
    }

    /// Returns whether the I/O of a device is added to the sums, and to which sums.
    #[inline]
    pub(super) fn role(&self, number: DeviceNumber) -> DeviceRole {
        if number.0 == LOOP {
            return DeviceRole::Repeated;
        }
        match self.find(number).ok().and_then(|at| self.devices.get(at)) {
            Some(device) => device.role,
            None if self.devices.len() < DEVICES_MAX => DeviceRole::New,
            None => DeviceRole::Unknown,
        }
    }

    /// Examines a device and the devices below it. The caller must then call
    /// [`arrange`](Self::arrange).
    pub(super) fn learn(&mut self, number: DeviceNumber) {
        if number.0 != LOOP {
            self.add(number, HEIGHT_MAX);
        }
    }

    fn find(&self, number: DeviceNumber) -> Result<usize, usize> {
        self.devices.binary_search_by_key(&number, |device| device.number)
    }

    /// Adds a device and the devices below it. Recursion ends after `depth` layers.
    fn add(&mut self, number: DeviceNumber, depth: usize) {
        let Err(at) = self.find(number) else { return };
        if self.devices.len() >= DEVICES_MAX {
            return;
        }
        let first = self.edges.len();
        let is_visible = self.list_below(number).is_some();
        self.devices.insert(
            at,
            BlockDevice {
                number,
                is_visible,
                height: 0,
                is_top: true,
                stack: 0,
                stack_height: 0,
                first_layer: 0,
                role: DeviceRole::Unknown,
            },
        );
        for edge in first..self.edges.len() {
            let below = self.edges.get(edge).map(|(_, below)| *below);
            if let Some(below) = below.filter(|_| depth > 0) {
                self.add(below, depth - 1);
            }
        }
    }

    /// Records the devices directly below one device in `edges`. Returns `None` if these devices
    /// are not visible.
    fn list_below(&mut self, number: DeviceNumber) -> Option<()> {
        let Self { directory, names, edges, .. } = self;
        let is_disk = DISK_MAJORS.contains(&number.0);
        let Some(directory) = directory else { return is_disk.then_some(()) };
        let mut text = [0; NUMBER_BYTES];
        let own = text_of(number, &mut text)?;
        let is_present = with_path(&[own], |path| directory.open_small_file(path).is_ok())?;
        if !is_present {
            return is_disk.then_some(());
        }
        names.clear();
        let mut fit = true;
        let listed = with_path(&[own, b"/slaves"], |path| {
            directory.list_subdirectory(path, |name| match FileName::new(name.to_bytes()) {
                Some(name) => names.push(name),
                None => fit = false,
            })
        })?;
        match listed {
            Ok(()) if fit => {}
            // A device without a `slaves` directory does not lie on another device.
            Err(error) if error.kind() == ErrorKind::NotFound => return Some(()),
            _ => return None,
        }
        for name in names {
            let places: [[&[u8]; 3]; 2] =
                [[own, b"/slaves/", name.bytes()], [b"../../class/block/", name.bytes(), b""]];
            let below = places.iter().find_map(|place| disk_at(directory, *place))?;
            edges.push((number, below));
        }
        Some(())
    }

    /// Assigns the stack and the layers of each device, after devices were added.
    pub(super) fn arrange(&mut self) {
        let Self { devices, lies_on, edges, layers, .. } = self;
        let index = |number: DeviceNumber| devices.binary_search_by_key(&number, |device| device.number).ok();
        lies_on.clear();
        lies_on.extend(edges.iter().filter_map(|(upper, lower)| Some((index(*upper)?, index(*lower)?))));
        for (at, device) in devices.iter_mut().enumerate() {
            (device.stack, device.height, device.is_top) = (at, 0, true);
        }
        // Each pass propagates heights and stacks by at least one layer.
        for _pass in 0..=devices.len() {
            let mut is_changed = false;
            for (upper, lower) in lies_on.iter() {
                let (Some(above), Some(below)) = (devices.get(*upper), devices.get(*lower)) else { continue };
                let stack = above.stack.min(below.stack);
                let height = above.height.max((below.height + 1).min(HEIGHT_MAX));
                let is_visible = above.is_visible && below.is_visible;
                is_changed |= (above.stack, below.stack, above.height, above.is_visible)
                    != (stack, stack, height, is_visible);
                if let Some(above) = devices.get_mut(*upper) {
                    (above.stack, above.height, above.is_visible) = (stack, height, is_visible);
                }
                if let Some(below) = devices.get_mut(*lower) {
                    (below.stack, below.is_top) = (stack, false);
                }
            }
            if !is_changed {
                break;
            }
        }
        // The index of the first device of a stack identifies the stack.
        for at in 0..devices.len() {
            let Some(BlockDevice { stack, height, .. }) = devices.get(at).copied() else { continue };
            if let Some(first) = devices.get_mut(stack) {
                first.stack_height = if at == stack { height } else { first.stack_height.max(height) };
            }
        }
        layers.clear();
        for at in 0..devices.len() {
            let Some(device) = devices.get_mut(at).filter(|device| device.stack == at) else { continue };
            device.first_layer = layers.len();
            layers.extend(std::iter::repeat_n(at, layers_of(device.stack_height)));
        }
        for at in 0..devices.len() {
            let Some(BlockDevice { stack, height, is_top, is_visible, .. }) = devices.get(at).copied() else {
                continue;
            };
            let Some(BlockDevice { stack_height, first_layer, .. }) = devices.get(stack).copied() else {
                continue;
            };
            let last_layer = first_layer + layers_of(stack_height) - 1;
            let role = if is_visible {
                let top_layer = (is_top && stack_height > 0).then_some(last_layer);
                DeviceRole::Layer { layer: first_layer + height, top_layer }
            } else {
                DeviceRole::Unknown
            };
            if let Some(device) = devices.get_mut(at) {
                device.role = role;
            }
        }
    }
}

/// Returns the number of layers of a stack. There is one layer per height. A stack with more than
/// one height has an additional last layer. That layer contains the devices, at any height, on
/// which no other device lies.
fn layers_of(stack_height: usize) -> usize {
    if stack_height == 0 { 1 } else { stack_height + 2 }
}

/// Returns the device number of the disk that a directory of /sys/class/block describes. For a
/// partition, returns the device number of its disk.
fn disk_at(directory: &HostDirectory, [one, two, three]: [&[u8]; 3]) -> Option<DeviceNumber> {
    let partition = [one, two, three, b"/partition"];
    let is_partition = with_path(&partition, |path| directory.open_small_file(path).is_ok())?;
    let file: &[u8] = if is_partition { b"/../dev" } else { b"/dev" };
    let line: [u8; NUMBER_BYTES] = devices::read_line(directory, &[one, two, three, file])?;
    parse(devices::until_zero(&line))
}

/// Parses a device number such as `8:0`.
pub(super) fn parse(text: &[u8]) -> Option<DeviceNumber> {
    let (major, rest) = text::leading_number(text)?;
    Some((major, text::number(rest.strip_prefix(b":")?)?))
}

/// Formats a device number as text such as `8:0`.
fn text_of(number: DeviceNumber, place: &mut [u8; NUMBER_BYTES]) -> Option<&[u8]> {
    let mut rest = place.as_mut_slice();
    write!(rest, "{}:{}", number.0, number.1).ok()?;
    Some(devices::until_zero(place))
}
