//! Locks the process's memory (mlockall(2)).

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};

/// Locks all memory that is mapped now, that is, program, heap, and shared mappings such as files
/// on tmpfs. Pages that are not resident are loaded, so that the first access to a page does not
/// wait for a disk. Takes milliseconds, during which page faults of other threads wait.
///
/// Later mappings are not locked. With `MCL_FUTURE` the kernel would refuse a mapping beyond
/// `RLIMIT_MEMLOCK`, so an allocation would fail in the middle of a run.
///
/// # Errors
/// Any error of `mlockall`. After an error, nothing is locked. Without `CAP_IPC_LOCK` the error is
/// `PermissionDenied` if `RLIMIT_MEMLOCK` is 0. The error is `OutOfMemory` if the process has
/// mapped more than `RLIMIT_MEMLOCK`, whether or not the memory is used.
pub fn lock_mapped_memory() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT)?)
}

/// Locks all memory that is mapped now, including mappings made since [`lock_mapped_memory`], such
/// as thread stacks. The call loads no pages, but a page stays resident after its first use.
///
/// # Errors
/// The same errors as [`lock_mapped_memory`].
pub fn lock_memory_on_fault() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT)?)
}
