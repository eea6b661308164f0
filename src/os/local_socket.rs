//! A socket with a path that the processes of this host connect to: its file, and who is at the other end.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::{getegid, geteuid};

/// Bytes of a path that an address has room for, less four that the name needs while the socket is being made.
pub const PATH_BYTES_MAX: usize = 103;
/// Access to the socket: its owner and its group.
const SOCKET_MODE: u32 = 0o660;
/// Connections that wait to be taken; whoever comes beyond them waits, or is refused by the kernel.
const BACKLOG: i32 = 128;
/// The name while the socket does not answer yet.
const UNFINISHED: &str = ".new";
/// Further groups of an account that are first made room for.
const GROUPS_FEW: usize = 64;
/// Groups of one account that are looked at: what the kernel allows one.
const GROUPS_MAX: usize = 65_536;

/// Why a socket cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The path does not fit an address.
    #[error("the path has {bytes} bytes; an address has room for {PATH_BYTES_MAX}: choose a shorter one")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// Something else has the name.
    #[error("there is something else of that name, which is no socket: remove it, or choose another path")]
    NoSocket,
    /// Another process answers there.
    #[error("another process answers there{}", .0.map_or_else(String::new, |pid| format!(" (pid {pid})")))]
    InUse(Option<i32>),
    /// What the kernel says.
    #[error(transparent)]
    Kernel(#[from] io::Error),
}

/// A socket that listens; its file goes with this value, unless another process has put its own there.
#[derive(Debug)]
pub struct LocalSocket {
    path: PathBuf,
    identity: (u64, u64), // device and inode of the file
    listener: Option<UnixListener>,
}

/// Who is at the other end of a connection, as the kernel knows it: when it was connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// User.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Process; none where it is in no namespace of ours.
    pub process: Option<i32>,
}

impl LocalSocket {
    /// Listens at `path`, for the owner and the group of this process. The file of a process that is dead is replaced; nothing else
    /// is. The name is there once the socket answers, and not before. Two that do this at the same moment both succeed; the last
    /// one has the name.
    ///
    /// # Errors
    /// Every kind of [`SocketError`].
    pub fn listen(path: &Path) -> Result<Self, SocketError> {
        let bytes = path.as_os_str().len();
        if bytes > PATH_BYTES_MAX {
            return Err(SocketError::TooLong { bytes });
        }
        look(path)?;
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(UNFINISHED);
        let unfinished = PathBuf::from(unfinished);
        if is_socket(&unfinished)? {
            // Left by one that was killed in here.
            remove(&unfinished)?;
        }
        let socket = socket()?;
        bind(&socket, &SocketAddrUnix::new(&unfinished).map_err(io::Error::from)?)
            .map_err(io::Error::from)?;
        let finish = || -> io::Result<(u64, u64)> {
            // Before it answers: nobody else connects in between.
            fs::set_permissions(&unfinished, fs::Permissions::from_mode(SOCKET_MODE))?;
            listen(&socket, BACKLOG)?;
            let metadata = fs::symlink_metadata(&unfinished)?;
            put(&unfinished, path)?;
            Ok((metadata.dev(), metadata.ino()))
        };
        match finish() {
            Ok(identity) => {
                Ok(Self { path: path.to_owned(), identity, listener: Some(UnixListener::from(socket)) })
            }
            Err(error) => {
                let _gone = remove(&unfinished);
                Err(error.into())
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What takes connections, without waiting for one. Only once.
    pub fn take_listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        let ours = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // Where the directory has become read-only the file stays; the next start replaces it.
            let _stays = remove(&self.path);
        }
    }
}

/// Removes the sockets of dead processes in a directory, those whose names `is_ours` knows.
pub fn remove_stale(directory: &Path, is_ours: impl Fn(&str) -> bool) {
    for path in sockets(directory, is_ours) {
        if answers(&path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            let _stays = remove(&path);
        }
    }
}

/// The sockets in a directory, those whose names `is_ours` knows, in the order of their names; none where it cannot be read.
pub fn sockets(directory: &Path, is_ours: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let ours = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(&is_ours));
    let mut paths: Vec<PathBuf> = ours.map(|entry| entry.path()).collect();
    paths.retain(|path| is_socket(path).unwrap_or_default());
    paths.sort();
    paths
}

/// Whether a socket may take this path; one that is dead may be replaced.
fn look(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(SocketError::NoSocket),
        Ok(_) => {}
    }
    match answers(path) {
        Ok(pid) => Err(SocketError::InUse(pid)),
        // Refused: nobody listens. Not found: removed meanwhile.
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => Ok(()),
        // Its backlog is full: it is alive.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(SocketError::InUse(None)),
        Err(error) => Err(error.into()),
    }
}

/// Whether somebody takes connections there, and who. Never waits.
fn answers(path: &Path) -> io::Result<Option<i32>> {
    let socket = socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(peer(&socket).ok().and_then(|peer| peer.process))
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Whether a socket has this name; nothing at all is none.
///
/// # Errors
/// What the kernel says.
pub fn is_socket(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(metadata.file_type().is_socket()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[allow(clippy::disallowed_methods, reason = "sockets are no data files, and this is their door")]
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

#[allow(clippy::disallowed_methods, reason = "sockets are no data files, and this is their door")]
fn put(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// User and group that this process acts as.
pub fn own_account() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// Owner, group and mode of a file, to say who may use it.
///
/// # Errors
/// What the kernel says.
pub fn access(path: &Path) -> io::Result<(u32, u32, u32)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777))
}

/// Who is at the other end of a connection.
///
/// # Errors
/// What the kernel says.
pub fn peer(connection: &impl AsFd) -> io::Result<Peer> {
    // A `ucred` is process, user, group. Not by rustix, whose process cannot be 0: that of another namespace is.
    let mut credentials = [0; 3];
    numbers(connection, libc::SO_PEERCRED, &mut credentials)?;
    let [process, user, group] = credentials;
    Ok(Peer {
        user,
        group,
        // Before Linux 4.13 there is no such question; the first group counts alone.
        groups: peer_groups(connection).unwrap_or_default(),
        process: i32::try_from(process).ok().filter(|process| *process > 0),
    })
}

/// The further groups of whoever is at the other end.
fn peer_groups(connection: &impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; GROUPS_FEW];
    let mut result = numbers(connection, libc::SO_PEERGROUPS, &mut groups);
    if result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ERANGE)) {
        groups.resize(GROUPS_MAX, 0);
        result = numbers(connection, libc::SO_PEERGROUPS, &mut groups);
    }
    groups.truncate(result?);
    Ok(groups)
}

/// What an option of a socket says, in numbers of 32 bits; how many there are. ERANGE where there are more than have
/// room.
#[allow(unsafe_code, reason = "neither the standard library nor rustix has SO_PEERGROUPS")]
fn numbers(connection: &impl AsFd, option: libc::c_int, into: &mut [u32]) -> io::Result<usize> {
    let mut bytes = libc::socklen_t::try_from(mem::size_of_val(into)).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the kernel writes at most `bytes` bytes behind the pointer, no more than `into` has, and into `bytes` itself; both live
    // until the call returns, and any bits are a number.
    let result = unsafe {
        libc::getsockopt(
            connection.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            into.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(bytes).unwrap_or_default() / size_of::<u32>())
}

/// Connects, without waiting for one who does not take the connection.
///
/// # Errors
/// What the kernel says: `ConnectionRefused` where nobody listens, `WouldBlock` where too many wait already.
pub fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let socket = socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// The name that an account has in `/etc/passwd` (`/etc/group` for a group); its number where it has none there.
pub fn account_name(file: &str, number: u32) -> String {
    let name = File::open(file).and_then(io::read_to_string).ok().and_then(|text| {
        let line = text.lines().find(|line| {
            line.split(':').nth(2).and_then(|field| field.parse::<u32>().ok()) == Some(number)
        })?;
        Some(line.split(':').next()?.to_owned())
    });
    name.unwrap_or_else(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a socket is there for owner and group, answers, knows who asks, and its file goes with it. Method: connect to it.
    #[test]
    fn a_socket_is_there_while_it_lives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let mut socket = LocalSocket::listen(&path).unwrap();
        assert_eq!(access(&path).unwrap(), (geteuid().as_raw(), getegid().as_raw(), SOCKET_MODE));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let client = connect_to(&path).unwrap();
        let (connection, _) = socket.take_listener().unwrap().accept().unwrap();
        let peer = peer(&connection).unwrap();
        let own = rustix::process::getgroups().unwrap();
        assert_eq!((peer.user, peer.group), own_account());
        assert_eq!(peer.process, i32::try_from(std::process::id()).ok());
        assert_eq!(peer.groups, own.iter().map(|group| group.as_raw()).collect::<Vec<_>>());
        drop((client, socket));
        assert!(!path.exists());
    }

    // Goal: what a dead process left is replaced, what lives is left alone, and so is everything that is no socket. Method: each
    // of them at the path.
    #[test]
    fn only_what_is_dead_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(std::os::unix::net::UnixListener::bind(folder.path().join("a.sock.new")).unwrap());
        let first = LocalSocket::listen(&path).unwrap();
        let pid = i32::try_from(std::process::id()).ok();
        assert!(matches!(LocalSocket::listen(&path), Err(SocketError::InUse(found)) if found == pid));
        drop(first);
        fs::write(&path, "mine").unwrap();
        assert!(matches!(LocalSocket::listen(&path), Err(SocketError::NoSocket)));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        remove(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(matches!(LocalSocket::listen(&path), Err(SocketError::NoSocket)));
        remove(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(LocalSocket::listen(&path), Err(SocketError::NoSocket)));
        let missing = folder.path().join("none/a.sock");
        let kind = |error| matches!(error, SocketError::Kernel(error) if error.kind() == ErrorKind::NotFound);
        assert!(kind(LocalSocket::listen(&missing).unwrap_err()));
        let long = folder.path().join("x".repeat(PATH_BYTES_MAX));
        let message = LocalSocket::listen(&long).unwrap_err().to_string();
        assert!(message.contains("103"), "{message}");
    }

    // Goal: one that finds its name taken over leaves it to the other. Method: replace the file of a living one.
    #[test]
    fn the_file_of_another_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let first = LocalSocket::listen(&path).unwrap();
        remove(&path).unwrap();
        let second = LocalSocket::listen(&path).unwrap();
        drop(first);
        assert!(connect_to(&path).is_ok());
        drop(second);
        assert!(!path.exists());
    }

    // Goal: sockets of the dead go, others stay. Method: one of each, and one of another name.
    #[test]
    fn stale_sockets_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["control-1.sock", "other.sock"] {
            drop(std::os::unix::net::UnixListener::bind(path(name)).unwrap());
        }
        let live = LocalSocket::listen(&path("control-2.sock")).unwrap();
        let is_ours = |name: &str| name.starts_with("control-");
        remove_stale(folder.path(), is_ours);
        assert_eq!(sockets(folder.path(), is_ours), [live.path()]);
        assert!(path("other.sock").exists());
    }

    // Goal: names of accounts are found, and a number stands for one without. Method: root, and a number that no file has.
    #[test]
    fn accounts_have_names() {
        assert_eq!(account_name("/etc/passwd", 0), "root");
        assert_eq!(account_name("/etc/passwd", 4_000_000_001), "4000000001");
    }
}
