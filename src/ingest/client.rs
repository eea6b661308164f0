//! A client: its connection, what the kernel says of it, and what it has registered.

use std::collections::BTreeMap;

use flatcap_lane::{PACKET_BYTES_MAX, PushReply};

use super::cpu_budget::Payer;
use super::source_setup::RegisteredSource;
use crate::os::local_socket::{PeerCredentials, peer_credentials};
use crate::os::packet_socket::{PacketConnection, ReceivedPacket};
use crate::os::peer_process::PeerProcess;

/// A connection.
#[derive(Debug)]
pub(super) struct ConnectedClient {
    pub(super) connection: PacketConnection,
    pub(super) uid: u32,
    /// None if it is in another namespace of processes, or has just ended.
    pub(super) process: Option<PeerProcess>,
    pub(super) is_permitted: bool,
    /// Its name; none before it has said it.
    pub(super) name: Option<String>,
    /// By its own number of each.
    pub(super) sources: BTreeMap<u8, RegisteredSource>,
}

/// What a client has sent.
pub(super) enum Incoming {
    /// A packet, its length in the buffer, and its descriptors.
    Packet(ReceivedPacket),
    /// Nothing.
    Nothing,
    /// The connection is closed.
    Closed,
}

impl ConnectedClient {
    /// Creates a client of a new connection; none if the kernel does not say who it is.
    pub(super) fn new(
        connection: PacketConnection,
        permits: impl FnOnce(&PeerCredentials) -> bool,
    ) -> Option<Self> {
        let peer = peer_credentials(&connection).ok()?;
        let is_permitted = permits(&peer);
        // Only what is needed for the refusal is done for others.
        let process = peer.process.filter(|_| is_permitted).and_then(|id| PeerProcess::open(id).ok());
        Some(Self { connection, uid: peer.user, process, is_permitted, name: None, sources: BTreeMap::new() })
    }

    /// Returns who pays for what it asks.
    pub(super) fn payer(&self) -> Payer {
        if self.is_permitted { Payer::User(self.uid) } else { Payer::Stranger }
    }

    /// Returns its name.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns its process id.
    pub(super) fn process_id(&self) -> Option<i32> {
        self.process.as_ref().map(|process| process.id)
    }

    /// Returns what it has sent next.
    pub(super) fn receive(&self, packet: &mut [u8; PACKET_BYTES_MAX]) -> Incoming {
        match self.connection.receive(packet) {
            Ok(Some(received)) if received.bytes > 0 => Incoming::Packet(received),
            Ok(None) => Incoming::Nothing,
            Ok(Some(_)) | Err(_) => Incoming::Closed,
        }
    }

    /// Tells the client that one of its lanes has ended.
    pub(super) fn tell_ended(&self, lane: u32, reason: &str) {
        let message = PushReply::Ended { lane, reason: reason.to_owned() };
        // The lane says so, too.
        let _unheard = self.connection.send(&message.encode(), None);
    }

    /// Tells the client that a lane that it has handed over is in the recording.
    pub(super) fn tell_rescued(&self, run_id: u64, lane: u32) {
        // Who does not hear it hands the lane over again, of which nothing is new then.
        let _unheard = self.connection.send(&PushReply::Rescued { run_id, lane }.encode(), None);
    }
}
