//! A Unix socket with a path, for processes of this host. This module manages the file of the
//! socket and reads the credentials of peers.

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

/// Maximum length of a socket path, in bytes. The limit is the length of a socket address minus the
/// four bytes of the temporary suffix.
pub const PATH_BYTES_MAX: usize = 103;
/// Mode of the socket, which gives access to owner and group.
const SOCKET_MODE: u32 = 0o660;
/// Mode of a packet socket. Any user may connect, because the listener decides which peers to
/// accept.
const PACKET_SOCKET_MODE: u32 = 0o666;
/// Maximum number of pending connections. If the limit is reached, the kernel delays or refuses
/// further connections.
const BACKLOG: i32 = 128;
/// Suffix of the file name until the socket listens.
const TEMPORARY_SUFFIX: &str = ".new";
/// Initial capacity for the supplementary groups of an account.
const GROUPS_INITIAL: usize = 64;
/// Maximum number of supplementary groups that are read, which is the kernel's limit per account.
const GROUPS_MAX: usize = 65_536;

/// The reason why a socket cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The path does not fit into a socket address.
    #[error(
        "the path has {bytes} bytes, more than the {PATH_BYTES_MAX} of a socket address; choose a shorter path"
    )]
    TooLong {
        /// The length of the path.
        bytes: usize,
    },
    /// The path exists and is not a socket.
    #[error("the path exists and is not a socket; remove it or choose another path")]
    NotASocket,
    /// Another process listens at this path.
    #[error("another process answers there{}", .0.map_or_else(String::new, |pid| format!(" (pid {pid})")))]
    InUse(Option<i32>),
    /// The system call's error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A listening socket. The file of the socket is removed when this value is dropped, unless another
/// process has replaced the file.
#[derive(Debug)]
pub struct LocalSocket {
    path: PathBuf,
    identity: (u64, u64), // device and inode of the file
    listener: Option<UnixListener>,
}

/// The credentials of a peer at the time it connected, as the kernel reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCredentials {
    /// User ID.
    pub user: u32,
    /// Group ID.
    pub group: u32,
    /// Supplementary group IDs.
    pub groups: Vec<u32>,
    /// Process ID; `None` if the process is outside our pid namespace.
    pub process: Option<i32>,
}

impl LocalSocket {
    /// Listens at `path`, accessible to the owner and the group of this process. Replaces the
    /// socket of a dead process and nothing else. The file has its final name only after the socket
    /// listens. If two processes call this function at the same time, both succeed, and the path
    /// refers to the socket of the last process.
    ///
    /// # Errors
    /// Any [`SocketError`].
    pub fn listen(path: &Path) -> Result<Self, SocketError> {
        Self::listen_as(path, SocketType::STREAM, SOCKET_MODE)
    }

    /// Like [`listen`](Self::listen), for a packet socket that every user may access.
    pub(super) fn listen_for_packets(path: &Path) -> Result<Self, SocketError> {
        Self::listen_as(path, SocketType::SEQPACKET, PACKET_SOCKET_MODE)
    }

    fn listen_as(path: &Path, kind: SocketType, mode: u32) -> Result<Self, SocketError> {
        let bytes = path.as_os_str().len();
        if bytes > PATH_BYTES_MAX {
            return Err(SocketError::TooLong { bytes });
        }
        check_path(path, kind)?;
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(TEMPORARY_SUFFIX);
        let temporary = PathBuf::from(temporary);
        if is_socket(&temporary)? {
            // If the file exists, a process that was killed at this point has left it.
            remove_file(&temporary)?;
        }
        let socket = socket(kind)?;
        bind(&socket, &SocketAddrUnix::new(&temporary).map_err(io::Error::from)?).map_err(io::Error::from)?;
        let finish = || -> io::Result<(u64, u64)> {
            // The mode is set before the socket listens, so that no other user can connect first.
            fs::set_permissions(&temporary, fs::Permissions::from_mode(mode))?;
            listen(&socket, BACKLOG)?;
            let metadata = fs::symlink_metadata(&temporary)?;
            rename_file(&temporary, path)?;
            Ok((metadata.dev(), metadata.ino()))
        };
        match finish() {
            Ok(identity) => {
                Ok(Self { path: path.to_owned(), identity, listener: Some(UnixListener::from(socket)) })
            }
            Err(error) => {
                let _gone = remove_file(&temporary);
                Err(error.into())
            }
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the non-blocking listener. Only the first call returns the listener.
    pub fn take_listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        let ours = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // If the directory has become read-only, the file stays until the next start replaces
            // it.
            let _stays = remove_file(&self.path);
        }
    }
}

/// Removes the sockets of dead processes in a directory. Considers only names that `is_ours`
/// accepts.
pub fn remove_stale(directory: &Path, is_ours: impl Fn(&str) -> bool) {
    for path in list_sockets(directory, is_ours) {
        if probe(&path, SocketType::STREAM).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            let _stays = remove_file(&path);
        }
    }
}

/// Returns the sockets in a directory whose names `is_ours` accepts, sorted by name. Returns an
/// empty list if the directory cannot be read.
pub fn list_sockets(directory: &Path, is_ours: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let ours = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(&is_ours));
    let mut paths: Vec<PathBuf> = ours.map(|entry| entry.path()).collect();
    paths.retain(|path| is_socket(path).unwrap_or_default());
    paths.sort();
    paths
}

/// Checks that a socket can be created at this path. Accepts the path if its socket belongs to a
/// dead process, because this socket can be replaced.
fn check_path(path: &Path, kind: SocketType) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(SocketError::NotASocket),
        Ok(_) => {}
    }
    match probe(path, kind) {
        Ok(pid) => Err(SocketError::InUse(pid)),
        // "Refused" means that no process listens. "Not found" means that another process has
        // removed the socket.
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => Ok(()),
        // The backlog is full, so a process is alive.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(SocketError::InUse(None)),
        Err(error) => Err(error.into()),
    }
}

/// Connects to the socket. Returns the peer's pid if a process listens. Never waits.
fn probe(path: &Path, kind: SocketType) -> io::Result<Option<i32>> {
    let socket = socket(kind)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(peer_credentials(&socket).ok().and_then(|peer| peer.process))
}

fn socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

/// Returns whether the path is a socket; false if it does not exist.
///
/// # Errors
/// Any error of the underlying system call.
pub fn is_socket(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(metadata.file_type().is_socket()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[allow(clippy::disallowed_methods, reason = "sockets are not data files")]
fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

#[allow(clippy::disallowed_methods, reason = "sockets are not data files")]
fn rename_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Returns the effective user and group IDs of this process.
pub fn own_account() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// Returns owner, group and mode of a file.
///
/// # Errors
/// Any error of the underlying system call.
pub fn file_access(path: &Path) -> io::Result<(u32, u32, u32)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777))
}

/// Returns the credentials of a connection's peer.
///
/// # Errors
/// Any error of the underlying system call.
pub fn peer_credentials(connection: &impl AsFd) -> io::Result<PeerCredentials> {
    // A `ucred` holds process, user and group. The structure is not read through rustix, because a
    // pid in rustix cannot be 0. The pid is 0 for a process in another namespace.
    let mut credentials = [0; 3];
    socket_option(connection, libc::SO_PEERCRED, &mut credentials)?;
    let [process, user, group] = credentials;
    Ok(PeerCredentials {
        user,
        group,
        // Kernels before 4.13 lack the socket option for supplementary groups. On such kernels,
        // only the primary group is used.
        groups: peer_groups(connection).unwrap_or_default(),
        process: i32::try_from(process).ok().filter(|process| *process > 0),
    })
}

/// Returns the supplementary groups of the peer.
fn peer_groups(connection: &impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; GROUPS_INITIAL];
    let mut result = socket_option(connection, libc::SO_PEERGROUPS, &mut groups);
    if result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ERANGE)) {
        groups.resize(GROUPS_MAX, 0);
        result = socket_option(connection, libc::SO_PEERGROUPS, &mut groups);
    }
    groups.truncate(result?);
    Ok(groups)
}

/// Reads a socket option made of 32-bit numbers. Returns the number of numbers read. Fails with
/// ERANGE if the numbers do not fit into `into`.
#[allow(unsafe_code, reason = "neither the standard library nor rustix has SO_PEERGROUPS")]
fn socket_option(connection: &impl AsFd, option: libc::c_int, into: &mut [u32]) -> io::Result<usize> {
    let mut bytes = libc::socklen_t::try_from(mem::size_of_val(into)).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the kernel writes at most `bytes` bytes at the pointer, which is the length of
    // `into`, and writes `bytes` itself. `into` and `bytes` live until the call returns, and any
    // bit pattern is a valid number.
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

/// Connects without waiting for the listener to accept.
///
/// # Errors
/// `ConnectionRefused` if no process listens, `WouldBlock` if the backlog is full, or any error of
/// the underlying system call.
pub fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let socket = socket(SocketType::STREAM)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Returns the name of an account from `/etc/passwd`, or of a group from `/etc/group`. If the
/// account or group has no name, returns its id as text.
pub fn account_name(file: &str, number: u32) -> String {
    let name = File::open(file).and_then(io::read_to_string).ok().and_then(|text| {
        let line = text.lines().find(|line| {
            line.split(':').nth(2).and_then(|field| field.parse::<u32>().ok()) == Some(number)
        })?;
        Some(line.split(':').next()?.to_owned())
    });
    name.unwrap_or_else(|| number.to_string())
}

/// Returns the id of an account in `/etc/passwd`, or of a group in `/etc/group`. Returns `None` if
/// the file does not contain the name.
pub fn account_number(file: &str, name: &str) -> Option<u32> {
    let text = File::open(file).and_then(io::read_to_string).ok()?;
    let fields = text.lines().map(|line| line.split(':'));
    let mut own = fields.filter(|fields| fields.clone().next() == Some(name));
    own.next()?.nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a socket is open to owner and group, listens and reports its peer. Its file is
    // removed when the socket is dropped.
    #[test]
    fn a_socket_is_there_while_it_lives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let mut socket = LocalSocket::listen(&path).unwrap();
        assert_eq!(file_access(&path).unwrap(), (geteuid().as_raw(), getegid().as_raw(), SOCKET_MODE));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let client = connect_to(&path).unwrap();
        let (connection, _) = socket.take_listener().unwrap().accept().unwrap();
        let peer = peer_credentials(&connection).unwrap();
        let own = rustix::process::getgroups().unwrap();
        assert_eq!((peer.user, peer.group), own_account());
        assert_eq!(peer.process, i32::try_from(std::process::id()).ok());
        assert_eq!(peer.groups, own.iter().map(|group| group.as_raw()).collect::<Vec<_>>());
        drop((client, socket));
        assert!(!path.exists());
    }

    // Proves that the socket of a dead process is replaced, while live sockets and other files are
    // left alone.
    #[test]
    fn only_dead_sockets_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(std::os::unix::net::UnixListener::bind(folder.path().join("a.sock.new")).unwrap());
        let first = LocalSocket::listen(&path).unwrap();
        let pid = i32::try_from(std::process::id()).ok();
        assert!(matches!(LocalSocket::listen(&path), Err(SocketError::InUse(found)) if found == pid));
        drop(first);
        fs::write(&path, "mine").unwrap();
        assert!(matches!(LocalSocket::listen(&path), Err(SocketError::NotASocket)));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(matches!(LocalSocket::listen(&path), Err(SocketError::NotASocket)));
        remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(LocalSocket::listen(&path), Err(SocketError::NotASocket)));
        let missing = folder.path().join("none/a.sock");
        let kind = |error| matches!(error, SocketError::Io(error) if error.kind() == ErrorKind::NotFound);
        assert!(kind(LocalSocket::listen(&missing).unwrap_err()));
        let long = folder.path().join("x".repeat(PATH_BYTES_MAX));
        let message = LocalSocket::listen(&long).unwrap_err().to_string();
        assert!(message.contains("103"), "{message}");
    }

    // Proves that a socket whose path was taken over does not remove the new file.
    #[test]
    fn the_file_of_another_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let first = LocalSocket::listen(&path).unwrap();
        remove_file(&path).unwrap();
        let second = LocalSocket::listen(&path).unwrap();
        drop(first);
        assert!(connect_to(&path).is_ok());
        drop(second);
        assert!(!path.exists());
    }

    // Proves that only stale sockets with our names are removed.
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
        assert_eq!(list_sockets(folder.path(), is_ours), [live.path()]);
        assert!(path("other.sock").exists());
    }

    // Proves that account names are found, and that an account without a name is shown as its
    // number.
    #[test]
    fn accounts_have_names() {
        assert_eq!(account_name("/etc/passwd", 0), "root");
        assert_eq!(account_name("/etc/passwd", 4_000_000_001), "4000000001");
        assert_eq!(account_number("/etc/passwd", "root"), Some(0));
        assert_eq!(account_number("/etc/group", "no such group"), None);
    }
}
