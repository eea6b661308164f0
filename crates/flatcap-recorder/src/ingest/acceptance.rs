//! Accepts connections. Until the user of a connection is known, a separate throttle limits the CPU
//! time for the connection. After that, the CPU time is charged to the user.

use flatcap_os::clock::{NS_PER_S, monotonic_ns, thread_cpu_ns};
use flatcap_os::packet_socket::PacketConnection;

use super::client::ConnectedClient;
use super::cpu_budget::Payer;
use super::wakeup::Wakeup;
use super::worker::PushWorker;

/// Maximum number of connections accepted per turn.
const CONNECTIONS_PER_TURN: usize = 16;
/// Maximum number of connections whose client has not sent a name. A further connection replaces
/// the oldest one.
const UNNAMED_MAX: usize = 64;
/// Maximum number of connections per payer whose client has not sent a name. All users who may not
/// push count as one payer. A further connection replaces the oldest one of the same payer.
const UNNAMED_OF_PAYER_MAX: usize = 16;
/// Pause after a failed accept. The usual reason for the failure is that the process has no free
/// file descriptors.
const ACCEPT_PAUSE_NS: u64 = NS_PER_S;

impl PushWorker {
    /// Accepts connections, up to the limit per turn and while the budget allows.
    pub(super) fn accept(&mut self, now_ns: u64) {
        if self.listener.closer().is_full() {
            tracing::warn!(
                "descriptors that applications have sent cannot be closed, since they wait for other programs: no further \
                 application is accepted; end the programs that connect to the push socket"
            );
            return self.accept_later(now_ns.saturating_add(ACCEPT_PAUSE_NS));
        }
        for _ in 0..CONNECTIONS_PER_TURN {
            let wait_ns = self.cpu.accept_wait_ns(monotonic_ns());
            if wait_ns > 0 {
                self.metrics.accept_waits.add(1);
                return self.accept_later(now_ns.saturating_add(wait_ns));
            }
            let accepted = self.listener.accept();
            let added = accepted.and_then(|connection| {
                let Some(connection) = connection else { return Ok(None) };
                self.metrics.connections.add(1);
                self.add_client(connection, now_ns).map(Some)
            });
            let payer = added.as_ref().map_or(Payer::Stranger, |payer| payer.unwrap_or(Payer::Stranger));
            self.cpu.charge(payer, thread_cpu_ns(), monotonic_ns());
            match added {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an application on the push socket; trying again");
                    return self.accept_later(now_ns.saturating_add(ACCEPT_PAUSE_NS));
                }
            }
        }
    }

    /// Stops accepting connections until this time.
    fn accept_later(&mut self, accept_ns: u64) {
        self.ready.remove(&self.listener);
        self.accept_ns = Some(accept_ns);
    }

    /// Accepts connections again after a pause.
    pub(super) fn accept_again(&mut self, now_ns: u64) {
        if self.accept_ns.is_some_and(|accept_ns| now_ns >= accept_ns) {
            let is_added = self.ready.add(&self.listener, Wakeup::Listener.number()).is_ok();
            self.accept_ns = (!is_added).then(|| now_ns.saturating_add(ACCEPT_PAUSE_NS));
        }
    }

    /// Adds the client of a new connection, unless its identity is unknown or it has disconnected.
    /// Returns the payer that is charged.
    fn add_client(&mut self, connection: PacketConnection, now_ns: u64) -> std::io::Result<Payer> {
        let client = ConnectedClient::new(connection, |peer| self.allowed.permits(peer));
        let Some(client) = client else { return Ok(Payer::Stranger) };
        let payer = client.payer();
        self.displace_unnamed(payer);
        let id = self.next_client;
        self.next_client += 1;
        self.registry.clients.insert(id, client);
        if payer == Payer::Stranger {
            // Usually the client has already sent a request or disconnected, so there is no need to
            // wait.
            self.serve_one(id, now_ns);
        }
        let added = self.registry.clients.get(&id).map_or(Ok(()), |client| {
            self.ready.add(&client.connection, Wakeup::Connection(id).number())?;
            let process = client.process.as_ref();
            process.map_or(Ok(()), |process| self.ready.add(process, Wakeup::ProcessEnd(id).number()))
        });
        if added.is_err() {
            self.remove_client(id);
        }
        added.map(|()| payer)
    }

    /// If this payer has too many connections without a client name, closes the oldest of these
    /// connections. Otherwise, if all payers together have too many, closes the oldest connection
    /// without a client name.
    fn displace_unnamed(&mut self, payer: Payer) {
        let unnamed = || self.registry.clients.iter().filter(|(_, client)| client.name.is_none());
        let own = || unnamed().filter(|(_, client)| client.payer() == payer);
        let oldest = if own().count() >= UNNAMED_OF_PAYER_MAX {
            own().next()
        } else {
            unnamed().next().filter(|_| unnamed().count() >= UNNAMED_MAX)
        };
        if let Some(oldest) = oldest.map(|(id, _)| *id) {
            self.remove_client(oldest);
        }
    }

    /// Returns the payer that is charged for a wakeup.
    pub(super) fn payer(&self, wakeup: Wakeup) -> Payer {
        match wakeup {
            Wakeup::Stop | Wakeup::Listener => Payer::Stranger,
            Wakeup::Connection(id) | Wakeup::ProcessEnd(id) => self.payer_of(id),
        }
    }

    pub(super) fn payer_of(&self, client: u64) -> Payer {
        self.registry.clients.get(&client).map_or(Payer::Stranger, ConnectedClient::payer)
    }

    /// Removes a client, and charges the CPU time of the removal to the client's payer.
    pub(super) fn remove_client(&mut self, id: u64) {
        let payer = self.payer_of(id);
        if let Some(client) = self.registry.clients.get(&id) {
            // Another thread closes the connection, perhaps much later, so the connection is
            // deregistered here.
            self.ready.remove(&client.connection);
        }
        self.registry.remove_client(id);
        self.cpu.charge(payer, thread_cpu_ns(), monotonic_ns());
    }
}
