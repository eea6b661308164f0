//! The push socket. Each packet has one message, and may carry descriptors.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use flatcap_lane::{PACKET_BYTES_MAX, PushReply, PushRequest};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, send,
    sendmsg, socket_with,
};

use crate::clock::monotonic_ns;

/// Minimum timeout. A shorter timeout could become 0, which the kernel treats as no timeout.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// An open connection to a recorder.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    reply_limit: Duration,
    /// Messages that arrived while the client waited for a reply, except the reply.
    unasked: Vec<PushReply>,
}

/// A message of the recorder, with its descriptor if it has one.
type Received = (PushReply, Option<OwnedFd>);

impl Connection {
    /// Connects. Fails immediately if no recorder listens. After connecting, a reply that takes
    /// longer than `reply_limit` is an error.
    pub(crate) fn open(path: &Path, reply_limit: Duration) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, timeout, Some(reply_limit))?;
        }
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self { socket, reply_limit, unasked: Vec::new() })
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn ask(
        &mut self,
        request: &PushRequest,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<Received> {
        let descriptors: &[BorrowedFd<'_>] = &descriptor.into_iter().collect::<Vec<_>>();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        sendmsg(&self.socket, &[IoSlice::new(&request.encode())], &mut control, SendFlags::NOSIGNAL)?;
        let begin_ns = monotonic_ns();
        let mut left = self.reply_limit;
        loop {
            set_socket_timeout(&self.socket, Timeout::Recv, Some(left))?;
            match self.receive(RecvFlags::empty()) {
                Ok((news @ (PushReply::Ended { .. } | PushReply::Rescued { .. }), _)) => {
                    self.unasked.push(news);
                }
                // A timer that interrupts repeatedly must not extend this wait.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                reply => return reply,
            }
            let waited = Duration::from_nanos(monotonic_ns().saturating_sub(begin_ns));
            left = self
                .reply_limit
                .checked_sub(waited)
                .filter(|left| *left >= WAIT_MIN)
                .ok_or(io::ErrorKind::TimedOut)?;
        }
    }

    /// Sends a request that has no reply. The request is dropped if the recorder does not read.
    pub(crate) fn tell(&self, request: &PushRequest) {
        // An error needs no handling here, because `poll` detects a closed connection.
        let _closed = send(&self.socket, &request.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Returns the next message that the recorder has sent without a request. Does not wait.
    ///
    /// # Errors
    /// The connection is closed.
    pub(crate) fn poll(&mut self) -> io::Result<Option<PushReply>> {
        if let Some(news) = self.unasked.pop() {
            return Ok(Some(news));
        }
        match self.receive(RecvFlags::DONTWAIT) {
            Ok((reply, _)) => Ok(Some(reply)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn receive(&self, flags: RecvFlags) -> io::Result<Received> {
        let mut packet = [0; PACKET_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut packet)];
        let received = recvmsg(&self.socket, &mut parts, &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
        let rights = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptor = rights.flatten().next();
        let packet = packet.get(..received.bytes).filter(|packet| !packet.is_empty());
        let packet = packet.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((PushReply::decode(packet).map_err(io::Error::other)?, descriptor))
    }
}

/// Returns sealed memory with these bytes. No process can change sealed memory.
pub(crate) fn sealed_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let memory = memfd_create("flatcap-schema", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(memory);
    file.write_all(bytes)?;
    fcntl_add_seals(file.as_fd(), SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file.into())
}
