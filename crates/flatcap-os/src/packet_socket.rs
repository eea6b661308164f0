//! A Unix packet socket (`SOCK_SEQPACKET`) that can transfer descriptors. Nothing here waits.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, accept_with, recvmsg, sendmsg,
};

use super::local_socket::{LocalSocket, SocketError};
use super::peer_descriptor::{DescriptorCloser, PeerDescriptor};

/// Maximum number of descriptors of a packet, which is the kernel's limit (`SCM_MAX_FD`). With a
/// lower limit, the kernel would close the surplus descriptors in the thread that receives the
/// packet, and closing may wait.
const DESCRIPTORS_MAX: usize = 253;

/// A listening socket. The file of the socket is removed when this value is dropped.
#[derive(Debug)]
pub struct PacketListener {
    socket: LocalSocket,
    listener: OwnedFd,
    closer: DescriptorCloser,
}

/// A connection.
#[derive(Debug)]
pub struct PacketConnection {
    socket: PeerDescriptor,
    closer: DescriptorCloser,
}

/// A packet that was received.
#[derive(Debug)]
pub struct ReceivedPacket {
    /// The packet's length in bytes; 0 if the peer has closed the connection.
    pub bytes: usize,
    /// The packet's descriptors.
    pub descriptors: Vec<PeerDescriptor>,
    /// Whether the packet was longer than the buffer, or not all of its descriptors were received.
    pub is_cut: bool,
}

impl PacketListener {
    /// Listens at `path`, as [`LocalSocket::listen`] does. Any process that reaches the path may
    /// connect.
    ///
    /// # Errors
    /// The same errors as [`LocalSocket::listen`].
    pub fn listen(path: &Path) -> Result<Self, SocketError> {
        let mut socket = LocalSocket::listen_for_packets(path)?;
        let listener = socket.take_listener().ok_or(io::ErrorKind::NotConnected).map_err(io::Error::from)?;
        Ok(Self { socket, listener: listener.into(), closer: DescriptorCloser::default() })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.socket.path()
    }

    /// Returns the closer for connections and for the descriptors that peers send.
    pub fn closer(&self) -> &DescriptorCloser {
        &self.closer
    }

    /// Returns the next connection, or `None` if no client waits.
    ///
    /// # Errors
    /// The kernel has no descriptors left, or any other error of `accept(2)`.
    pub fn accept(&self) -> io::Result<Option<PacketConnection>> {
        match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(connection) => Ok(Some(PacketConnection::new(connection, &self.closer))),
            // The peer may have disconnected.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for PacketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl PacketConnection {
    fn new(socket: OwnedFd, closer: &DescriptorCloser) -> Self {
        Self { socket: closer.guard(socket), closer: closer.clone() }
    }

    /// Receives the next packet into `packet`. Returns `None` if no packet has arrived.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn receive(&self, packet: &mut [u8]) -> io::Result<Option<ReceivedPacket>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(packet)];
        let received = match recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights.map(|descriptor| self.closer.guard(descriptor)));
            }
        }
        let is_cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        Ok(Some(ReceivedPacket { bytes: received.bytes, descriptors, is_cut }))
    }

    /// Sends a packet, with a descriptor if there is one.
    ///
    /// # Errors
    /// `WouldBlock` if the peer does not read, or any other error of `sendmsg(2)`.
    pub fn send(&self, packet: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let rights = descriptor.map(|descriptor| [descriptor]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(rights) = &rights {
            control.push(SendAncillaryMessage::ScmRights(rights));
        }
        sendmsg(&self.socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

impl AsFd for PacketConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket_with};

    use super::*;
    use crate::local_socket::peer_credentials;

    // Proves that packets keep their boundaries and descriptors in both directions. A packet that
    // is too long or has too many descriptors is reported, and a closed connection is detected.
    #[test]
    fn packets_arrive_whole() {
        let folder = tempfile::tempdir().unwrap();
        let listener = PacketListener::listen(&folder.path().join("push.sock")).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let client = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&client, &SocketAddrUnix::new(listener.path()).unwrap()).unwrap();
        let client = PacketConnection::new(client, listener.closer());
        let server = listener.accept().unwrap().unwrap();
        assert_eq!(peer_credentials(&server).unwrap().process, i32::try_from(std::process::id()).ok());
        let mut packet = [0; 8];
        assert!(server.receive(&mut packet).unwrap().is_none());
        let file = File::open("/dev/null").unwrap();
        client.send(b"one", Some(file.as_fd())).unwrap();
        client.send(b"twotwotwo", None).unwrap();
        let first = server.receive(&mut packet).unwrap().unwrap();
        assert_eq!((&packet[..first.bytes], first.descriptors.len(), first.is_cut), (&b"one"[..], 1, false));
        assert!(server.receive(&mut packet).unwrap().unwrap().is_cut);
        server.send(b"back", None).unwrap();
        assert_eq!(client.receive(&mut packet).unwrap().unwrap().bytes, 4);
        drop(client);
        // Another thread closes the connection.
        let end = loop {
            if let Some(end) = server.receive(&mut packet).unwrap() {
                break end;
            }
            std::thread::yield_now();
        };
        assert_eq!(end.bytes, 0);
        let path = listener.path().to_owned();
        assert!(PacketListener::listen(&path).is_err(), "in use");
        drop(listener);
        assert!(!path.exists());
    }
}
