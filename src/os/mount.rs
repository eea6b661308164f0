//! How full is what is mounted at a path, and is it still the mount that was meant?

use std::ffi::CStr;
use std::io;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstatvfs, openat, statx};

/// The room of a file system, as the kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes of a block.
    pub block_size: u64,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for users without privilege.
    pub blocks_available: u64,
    /// All inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Bits of statvfs(3).
    pub flags: u64,
}

/// Which mount answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountIdentity {
    /// Its number in the caller's mount namespace; none before Linux 5.8.
    pub mount: Option<u64>,
    /// Major and minor number of the device that the path's directory says it lies on.
    pub device: (u64, u64),
}

/// Asks the file system that is visible at `path`. May wait for a server for as long as that pleases.
///
/// # Errors
/// What the kernel says: there is no such path, it may not be entered, the server is gone.
pub fn room(path: &CStr) -> io::Result<(MountIdentity, Room)> {
    // A path alone: nothing is opened for reading, and the mount cannot change between the two questions.
    let place = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let found = statx(&place, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID)?;
    let identity = MountIdentity {
        mount: (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id),
        device: (u64::from(found.stx_dev_major), u64::from(found.stx_dev_minor)),
    };
    let room = fstatvfs(&place)?;
    Ok((
        identity,
        Room {
            block_size: room.f_frsize,
            blocks: room.f_blocks,
            blocks_free: room.f_bfree,
            blocks_available: room.f_bavail,
            inodes: room.f_files,
            inodes_free: room.f_ffree,
            flags: room.f_flag.bits(),
        },
    ))
}
