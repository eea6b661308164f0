//! The service manager's descriptor store (`FDSTORE=1` of `sd_notify(3)`). Descriptors in the store
//! outlive this process, and the service manager passes them back when the service starts again.

use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, sendmsg_addr, socket_with,
};

/// The descriptor store. No method waits: if the service manager does not read, the descriptor is
/// not stored.
#[derive(Debug)]
pub struct DescriptorStore {
    socket: OwnedFd,
    address: SocketAddrUnix,
}

impl DescriptorStore {
    /// Connects to the service manager that started this process (`NOTIFY_SOCKET`). Returns `None`
    /// if no service manager started this process.
    ///
    /// # Errors
    /// The socket's name is invalid, or the kernel refuses a socket.
    pub fn from_environment() -> io::Result<Option<Self>> {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        name.map(|name| Self::at(name.as_bytes())).transpose()
    }

    fn at(name: &[u8]) -> io::Result<Self> {
        let address = match name {
            [b'@', rest @ ..] => SocketAddrUnix::new_abstract_name(rest)?,
            path => SocketAddrUnix::new(Path::new(std::ffi::OsStr::from_bytes(path)))?,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        Ok(Self { socket, address })
    }

    /// Stores a descriptor under a name. The name has up to 255 printable ASCII characters and no
    /// colon.
    ///
    /// # Errors
    /// `WouldBlock` if the service manager does not read, or any other error of `sendmsg(2)`. The
    /// service manager does not report that its store is full (`FileDescriptorStoreMax=`).
    pub fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.send(&format!("FDSTORE=1\nFDNAME={name}\n"), &[descriptor])
    }

    /// Removes the descriptors stored under a name, if there are any.
    ///
    /// # Errors
    /// The same errors as [`keep`](Self::keep).
    pub fn forget(&self, name: &str) -> io::Result<()> {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), &[])
    }

    fn send(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let text = [IoSlice::new(text.as_bytes())];
        sendmsg_addr(self.socket.as_fd(), &self.address, &text, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// Returns the descriptors that the service manager had stored, with their names. A second call
/// returns nothing.
///
/// # Errors
/// The environment variables that list the descriptors are malformed, or the kernel refuses a
/// descriptor.
#[allow(unsafe_code, reason = "the service manager passes descriptors by their numbers")]
pub fn stored_descriptors() -> io::Result<Vec<(String, OwnedFd)>> {
    use std::sync::atomic::{AtomicBool, Ordering};
    /// Whether the descriptors were already returned. A second call returns none, because each
    /// descriptor has only one owner.
    static ARE_TAKEN: AtomicBool = AtomicBool::new(false);
    if ARE_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let passed = sd_notify::listen_fds_with_names()?;
    // SAFETY: the service manager opened these descriptors for this process before it started
    // (`LISTEN_PID` is its id), and the flag above ensures that no other value owns them.
    Ok(passed.map(|(number, name)| (name, unsafe { OwnedFd::from_raw_fd(number) })).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{IoSliceMut, Read};

    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, bind, recvmsg};

    use super::*;

    // Proves that the messages follow sd_notify(3) and that the first message carries the
    // descriptor. A service manager that does not read does not block the sender.
    #[test]
    fn descriptors_are_stored_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager =
            socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&manager, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let store = DescriptorStore::at(path.as_os_str().as_bytes()).unwrap();
        let receive = || {
            let mut bytes = [0; 256];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let length = recvmsg(&manager, &mut slices, &mut control, RecvFlags::empty()).unwrap().bytes;
            let received: Vec<OwnedFd> = control
                .drain()
                .filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                    _ => None,
                })
                .flatten()
                .collect();
            (String::from_utf8(bytes[..length].to_vec()).unwrap(), received)
        };
        let file = folder.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        store.keep("lane-1", File::open(&file).unwrap().as_fd()).unwrap();
        let (text, mut received) = receive();
        assert_eq!(text, "FDSTORE=1\nFDNAME=lane-1\n");
        let mut content = String::new();
        File::from(received.remove(0)).read_to_string(&mut content).unwrap();
        assert_eq!(content, "kept");
        store.forget("lane-1").unwrap();
        let (text, received) = receive();
        assert_eq!((text.as_str(), received.len()), ("FDSTOREREMOVE=1\nFDNAME=lane-1\n", 0));
        let full = loop {
            if let Err(error) = store.forget("lane-1") {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    }
}
