//! Memory that stays in memory.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};

/// Keeps all that the process has mapped by now in memory: program, heap, and shared mappings such as files on tmpfs. What was not
/// there yet is brought in, so that a page that is needed for the first time does not wait for a disk. Takes milliseconds, in
/// which page faults of other threads wait.
///
/// Memory that is mapped later is left as it is. Had it to be locked too, a mapping beyond `RLIMIT_MEMLOCK` would be refused: an
/// allocation would fail in the middle of a run.
///
/// # Errors
/// What `mlockall` says: without `CAP_IPC_LOCK`, `PermissionDenied` where `RLIMIT_MEMLOCK` is 0 and `OutOfMemory` where the process has
/// more than that mapped, used or not. Nothing is locked then.
pub fn lock_what_is_mapped() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT)?)
}

/// The same for what is mapped by now and was not then, such as stacks of threads, but brings nothing in: a page stays once it is
/// used.
///
/// # Errors
/// As [`lock_what_is_mapped`].
pub fn lock_what_is_used() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT)?)
}
