//! Usage of the file system mounted at a path, with the identity of the mount.

use std::ffi::CStr;
use std::io;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstatvfs, openat, statx};

/// The space of a file system, as reported by statvfs(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilesystemSpace {
    /// Block size, in bytes.
    pub block_size: u64,
    /// Total blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for unprivileged users.
    pub blocks_available: u64,
    /// Total inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Mount flags of statvfs(3).
    pub flags: u64,
}

/// The identity of the mount that was queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountIdentity {
    /// Mount ID in the caller's mount namespace; `None` before Linux 5.8.
    pub mount: Option<u64>,
    /// Major and minor number of the device that the path's directory reports.
    pub device: (u64, u64),
}

/// Queries the file system visible at `path`. May block indefinitely on a network file system.
///
/// # Errors
/// Any error of the underlying system calls. For example, the path does not exist or may not be
/// entered, or the file server is unreachable.
pub fn filesystem_space(path: &CStr) -> io::Result<(MountIdentity, FilesystemSpace)> {
    // With O_PATH nothing is opened for reading, and the mount cannot change between the two
    // queries.
    let directory = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let status = statx(&directory, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID)?;
    let identity = MountIdentity {
        mount: (status.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(status.stx_mnt_id),
        device: (u64::from(status.stx_dev_major), u64::from(status.stx_dev_minor)),
    };
    let space = fstatvfs(&directory)?;
    Ok((
        identity,
        FilesystemSpace {
            block_size: space.f_frsize,
            blocks: space.f_blocks,
            blocks_free: space.f_bfree,
            blocks_available: space.f_bavail,
            inodes: space.f_files,
            inodes_free: space.f_ffree,
            flags: space.f_flag.bits(),
        },
    ))
}
