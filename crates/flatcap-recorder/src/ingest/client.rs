//! A client, with its connection, the identity that the kernel reports, and the registered sources.

use std::collections::BTreeMap;

use flatcap_lane::{PACKET_BYTES_MAX, PushReply};
use flatcap_os::local_socket::{PeerCredentials, peer_credentials};
use flatcap_os::packet_socket::{PacketConnection, ReceivedPacket};
use flatcap_os::peer_process::PeerProcess;

use super::cpu_budget::Payer;
use super::source_setup::RegisteredSource;

/// A client and its connection.
#[derive(Debug)]
pub(super) struct ConnectedClient {
    pub(super) connection: PacketConnection,
    pub(super) uid: u32,
    /// The process of the client, or `None` if the process is in another pid namespace or has just
    /// ended.
    pub(super) process: Option<PeerProcess>,
    pub(super) is_permitted: bool,
    /// The client's name, or `None` until the client has sent it.
    pub(super) name: Option<String>,
    /// The registered sources, by the client's own numbers.
    pub(super) sources: BTreeMap<u8, RegisteredSource>,
}

/// The result of receiving from a client.
pub(super) enum Incoming {
    /// A packet in the buffer, with its length and its descriptors.
    Packet(ReceivedPacket),
    /// Nothing was received.
    Nothing,
    /// The connection is closed.
    Closed,
}

impl ConnectedClient {
    /// Creates the client of a new connection, or returns `None` if the client's identity is
    /// unknown.
    pub(super) fn new(
        connection: PacketConnection,
        permits: impl FnOnce(&PeerCredentials) -> bool,
    ) -> Option<Self> {
        let peer = peer_credentials(&connection).ok()?;
        let is_permitted = permits(&peer);
        // If the peer may not push, only the work for the refusal is done.
        let process = peer.process.filter(|_| is_permitted).and_then(|id| PeerProcess::open(id).ok());
        Some(Self { connection, uid: peer.user, process, is_permitted, name: None, sources: BTreeMap::new() })
    }

    /// Returns the payer that is charged for the requests of the client.
    pub(super) fn payer(&self) -> Payer {
        if self.is_permitted { Payer::User(self.uid) } else { Payer::Stranger }
    }

    /// Returns the name of the client, which is empty until the client has sent it.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns the process id of the client.
    pub(super) fn process_id(&self) -> Option<i32> {
        self.process.as_ref().map(|process| process.id)
    }

    /// Receives the next packet of the client.
    pub(super) fn receive(&self, packet: &mut [u8; PACKET_BYTES_MAX]) -> Incoming {
        match self.connection.receive(packet) {
            Ok(Some(received)) if received.bytes > 0 => Incoming::Packet(received),
            Ok(None) => Incoming::Nothing,
            Ok(Some(_)) | Err(_) => Incoming::Closed,
        }
    }

    /// Notifies the client that one of its lanes has ended.
    pub(super) fn tell_ended(&self, lane: u32, reason: &str) {
        let message = PushReply::Ended { lane, reason: reason.to_owned() };
        // A lost message is harmless, because the lane's memory contains the same information.
        let _unheard = self.connection.send(&message.encode(), None);
    }

    /// Notifies a client that the samples of a lane that it handed over are in the recording. The
    /// lane is from an earlier run.
    pub(super) fn tell_rescued(&self, run_id: u64, lane: u32) {
        // If the client misses the message, it hands the lane over again. The second rescue of a
        // lane adds nothing to the recording.
        let _unheard = self.connection.send(&PushReply::Rescued { run_id, lane }.encode(), None);
    }
}
