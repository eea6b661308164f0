//! Assumes the file access rights of a directory's owner. Only root assumes such rights, and only
//! during single calls.
//!
//! Root may access every file, but the owner of a directory decides to which files the names in the
//! directory refer. Therefore root acts with that user's rights in another user's directory. Then a
//! name in this directory cannot make root change a file that the user is not allowed to change.
//! The files that root creates belong to the user.

use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::sync::Arc;

use rustix::fs::Stat;
use rustix::process::{Gid, geteuid, getgroups};
use rustix::thread::set_thread_groups;

/// An argument with which setfsuid(2) and setfsgid(2) change nothing and only return the current
/// value.
const QUERY: u32 = u32::MAX;

/// The file access rights of a user other than root. They consist of the user and one group,
/// without supplementary groups.
#[derive(Debug, Clone)]
pub struct OwnerRights {
    user: u32,
    group: u32,
    own_groups: Arc<[Gid]>, // groups of this process, which are restored later
}

/// Rights that a thread has assumed. The rights are in effect for this thread until this value is
/// dropped.
#[derive(Debug)]
#[must_use = "the rights are in force while this value lives"]
pub struct AssumedRights<'a> {
    rights: &'a OwnerRights,
    before: (u32, u32), // previous user and group
    _of_this_thread: PhantomData<*const ()>,
}

impl OwnerRights {
    /// Returns the rights of the owner of a file or directory. Returns `None` if this process must
    /// keep its own rights, because it is not root, or because root is the owner.
    ///
    /// # Errors
    /// Returns any error of the underlying system call.
    pub(crate) fn of_owner(status: &Stat) -> io::Result<Option<Self>> {
        if !geteuid().is_root() || status.st_uid == 0 {
            return Ok(None);
        }
        let own_groups = getgroups()?.into();
        Ok(Some(Self { user: status.st_uid, group: status.st_gid, own_groups }))
    }

    /// Assumes the rights for the calling thread. The rights apply to all access by path or name.
    /// While another user is set, the thread lacks the capabilities that concern files. Dropping
    /// the result restores these capabilities.
    ///
    /// # Errors
    /// `PermissionDenied` if root may not act as this user. This happens in a container without
    /// `CAP_SETUID` and `CAP_SETGID`, or in a container that does not map the user.
    pub fn assume(&self) -> io::Result<AssumedRights<'_>> {
        let before = (set_fs_user(QUERY), set_fs_group(QUERY));
        let taken = AssumedRights { rights: self, before, _of_this_thread: PhantomData };
        // The supplementary groups and the group are changed before the user. Any order would work,
        // because changing the user does not affect the right to change groups. In this order, less
        // must be undone if a call fails.
        let groups = set_thread_groups(&[]);
        set_fs_group(self.group);
        set_fs_user(self.user);
        let is_in_force = (set_fs_user(QUERY), set_fs_group(QUERY)) == (self.user, self.group);
        if groups.is_ok() && is_in_force {
            return Ok(taken);
        }
        drop(taken);
        let user = self.user;
        Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "it belongs to user {user}; root acts there with that user's rights, which this process may not assume; run flatcap as user {user}"
            ),
        ))
    }
}

impl Drop for AssumedRights<'_> {
    fn drop(&mut self) {
        set_fs_user(self.before.0);
        set_fs_group(self.before.1);
        // The call fails only if the kernel is out of memory. The thread then has fewer rights than
        // before, never more.
        let _fewer = set_thread_groups(&self.rights.own_groups);
    }
}

/// Sets the user for the calling thread's file access (setfsuid(2)). Returns the user that was set
/// before.
///
/// Does not change the effective user of the thread. If the effective user were changed, this user
/// could slow down the thread (`sched_setaffinity(2)`), and the thread would lose capabilities that
/// do not concern files.
#[allow(unsafe_code, reason = "neither the standard library nor rustix has this call")]
fn set_fs_user(user: u32) -> u32 {
    // SAFETY: the call takes a number, touches no memory of this process, and changes only the
    // calling thread.
    unsafe { libc::setfsuid(user) }.cast_unsigned()
}

/// Sets the group for the calling thread's file access (setfsgid(2)). Returns the group that was
/// set before.
#[allow(unsafe_code, reason = "neither the standard library nor rustix has this call")]
fn set_fs_group(group: u32) -> u32 {
    // SAFETY: the call takes a number and changes only the calling thread, as in `set_fs_user`.
    unsafe { libc::setfsgid(group) }.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    // Proves that only this thread has the owner's rights, that it has these rights only while they
    // are assumed, and that it has root's rights afterwards. Needs root.
    #[test]
    fn rights_are_taken_and_given_back() {
        let Some(folder) = super::super::directory::foreign_folder() else { return };
        let secret = tempfile::NamedTempFile::new().unwrap();
        let status = rustix::fs::stat(folder.path()).unwrap();
        let rights = OwnerRights::of_owner(&status).unwrap().unwrap();
        let groups = getgroups().unwrap();
        {
            let _taken = rights.assume().unwrap();
            assert_eq!(getgroups().unwrap(), []);
            assert_eq!(std::fs::read(secret.path()).unwrap_err().kind(), ErrorKind::PermissionDenied);
            std::fs::write(folder.path().join("a"), "a").unwrap();
            let beside = std::thread::scope(|scope| scope.spawn(|| std::fs::read(secret.path())).join());
            assert!(beside.unwrap().is_err(), "a thread inherits the rights it is started under");
        }
        std::fs::set_permissions(secret.path(), std::fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(std::fs::read(secret.path()).unwrap(), b"", "root again");
        assert_eq!(getgroups().unwrap(), groups);
        let made = std::fs::metadata(folder.path().join("a")).unwrap();
        assert_eq!((made.uid(), made.gid()), (status.st_uid, status.st_gid));
        let own = rustix::fs::stat("/").unwrap();
        assert!(OwnerRights::of_owner(&own).unwrap().is_none(), "root's own directory");
    }
}
