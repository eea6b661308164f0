//! The rights of a directory's owner, taken by root for single calls.
//!
//! Root may do anything anywhere, and whoever owns a directory decides what its names lead to. So root acts in a directory of
//! another user with that user's rights: nothing there can lead it to a file which that user could not change anyway, and what
//! it creates belongs to that user.

use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::sync::Arc;

use rustix::fs::Stat;
use rustix::process::{Gid, geteuid, getgroups};
use rustix::thread::set_thread_groups;

/// An argument that changes nothing: setfsuid(2) and setfsgid(2) then only say what is in force.
const ASK: u32 = u32::MAX;

/// Rights of a user other than root: those of the user and of one group, without further groups.
#[derive(Debug, Clone)]
pub(super) struct Rights {
    user: u32,
    group: u32,
    own_groups: Arc<[Gid]>, // of this process, to go back to
}

/// The rights are in force for this thread until this value goes.
#[derive(Debug)]
#[must_use = "the rights are in force while this value lives"]
pub(super) struct Taken<'a> {
    rights: &'a Rights,
    before: (u32, u32), // user and group
    _of_this_thread: PhantomData<*const ()>,
}

impl Rights {
    /// The rights of the owner of a file or directory. None where this process needs no others than its own: it is not root, or
    /// root is the owner.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn of_owner(status: &Stat) -> io::Result<Option<Self>> {
        if !geteuid().is_root() || status.st_uid == 0 {
            return Ok(None);
        }
        let own_groups = getgroups()?.into();
        Ok(Some(Self { user: status.st_uid, group: status.st_gid, own_groups }))
    }

    /// Takes them for the calling thread, for all that goes by paths and names. With the user the kernel takes every capability away
    /// that has to do with files, and gives them back later.
    ///
    /// # Errors
    /// `PermissionDenied` where root may not act as this user: a container without `CAP_SETUID` and `CAP_SETGID`, or one that does
    /// not know the user.
    pub(super) fn take(&self) -> io::Result<Taken<'_>> {
        let before = (file_user(ASK), file_group(ASK));
        let taken = Taken { rights: self, before, _of_this_thread: PhantomData };
        // Groups and group first: the user's change takes no right to make them, but an error then leaves less to undo.
        let groups = set_thread_groups(&[]);
        file_group(self.group);
        file_user(self.user);
        let is_in_force = (file_user(ASK), file_group(ASK)) == (self.user, self.group);
        if groups.is_ok() && is_in_force {
            return Ok(taken);
        }
        drop(taken);
        let user = self.user;
        Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "it belongs to user {user}, and root acts there with that user's rights, which this process may not take: call flatcap as user {user}"
            ),
        ))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        file_user(self.before.0);
        file_group(self.before.1);
        // Fails only if the kernel has no memory, and then leaves fewer rights than before, never more.
        let _fewer = set_thread_groups(&self.rights.own_groups);
    }
}

/// Sets the user that the calling thread accesses files as. Returns the one before.
///
/// Not the effective user: its owner could then slow this thread down (`sched_setaffinity(2)`), and the thread would lose
/// capabilities that have nothing to do with files.
#[allow(unsafe_code, reason = "neither the standard library nor rustix has this call")]
fn file_user(user: u32) -> u32 {
    // SAFETY: the call takes a number, touches no memory of this process, and changes the calling thread alone.
    unsafe { libc::setfsuid(user) }.cast_unsigned()
}

/// Sets the group that the calling thread accesses files as. Returns the one before.
#[allow(unsafe_code, reason = "neither the standard library nor rustix has this call")]
fn file_group(group: u32) -> u32 {
    // SAFETY: as above.
    unsafe { libc::setfsgid(group) }.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    // Goal: rights are those of the owner while they are taken, for this thread alone, and root's again afterwards. Method: as root,
    // files that the owner may and may not read or make; a second thread beside it.
    #[test]
    fn rights_are_taken_and_given_back() {
        let Some(folder) = super::super::directory::foreign_folder() else { return };
        let secret = tempfile::NamedTempFile::new().unwrap();
        let status = rustix::fs::stat(folder.path()).unwrap();
        let rights = Rights::of_owner(&status).unwrap().unwrap();
        let groups = getgroups().unwrap();
        {
            let _taken = rights.take().unwrap();
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
        assert!(Rights::of_owner(&own).unwrap().is_none(), "root's own directory");
    }
}
