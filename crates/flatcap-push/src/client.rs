//! A client, which connects to a recorder, sets up sources and fires triggers.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::clock::{ClockPoint, monotonic_ns};
use super::error::SetupError;
use super::process_mark::ProcessMark;
use super::setup::{
    ClientOptions, ClientSetup, ClientSource, PushBudget, SOURCES_MAX, SocketPlace, SourceOptions,
    SourceSlot, check_name,
};
use super::shared::{ClientHandle, ClientShared};
use super::source::PushSource;

/// The socket of the service.
const SOCKET: &str = "/run/flatcap/push.sock";
/// The environment variable that selects another socket.
const SOCKET_VARIABLE: &str = "FLATCAP_PUSH_SOCKET";
/// Maximum length of the path of a Unix socket (`sun_path` minus the zero byte).
const SOCKET_BYTES_MAX: usize = 107;

/// A client. A client stays open as long as one of its sources exists.
#[derive(Debug, Clone)]
pub struct PushClient {
    pub(crate) handle: Arc<ClientHandle>,
}

impl PushClient {
    /// Opens a client. Connects if there is a recorder. The call also succeeds without a recorder,
    /// because the threads that push search for a recorder once a second.
    ///
    /// # Errors
    /// The name or the socket's path is not valid.
    pub fn open(name: &str, options: ClientOptions) -> Result<Self, SetupError> {
        check_name(name)?;
        let from_variable = || std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from);
        let given = options.socket.clone().or_else(from_variable);
        let sockets = given.map_or_else(default_places, |path| vec![SocketPlace { path, owner: None }]);
        if sockets.iter().any(|place| place.path.as_os_str().len() > SOCKET_BYTES_MAX) {
            return Err(SetupError::Socket);
        }
        let setup = ClientSetup {
            name: name.to_owned(),
            sockets,
            sources: [const { OnceLock::new() }; SOURCES_MAX],
            opened: if options.use_counter { ClockPoint::if_trusted() } else { None },
            options,
        };
        let shared = ClientShared::new(setup);
        // If the kernel cannot distinguish a child from its parent, the client never connects.
        if ProcessMark::current().is_some() {
            shared.process().registry.check(&shared.setup, monotonic_ns());
        }
        Ok(Self { handle: Arc::new(ClientHandle { shared: Arc::new(shared) }) })
    }

    /// Sets up a source, or returns the existing source with the same options.
    ///
    /// # Errors
    /// A name is not valid, or the client already has 64 sources.
    pub fn source(&self, options: SourceOptions<'_>) -> Result<PushSource, SetupError> {
        let shared = &self.handle.shared;
        let mut source = ClientSource::new(&options)?;
        for (number, place) in (0_u8..).zip(&shared.setup.sources) {
            source.registration.number = number.into();
            let slot = SourceSlot { number, on_full: options.on_full };
            let found = || PushSource::new(Arc::clone(&self.handle), slot);
            if place.get().is_some_and(|known| known.is_same(&source)) {
                return Ok(found());
            }
            match place.set(source) {
                Ok(()) => {
                    shared.process().registry.register(&shared.setup, number);
                    return Ok(found());
                }
                Err(back) => source = back,
            }
        }
        Err(SetupError::TooManySources)
    }

    /// Fires the recorder's black box, if the black box is configured.
    ///
    /// # Errors
    /// There is no recorder, or the recorder reports an error.
    pub fn trigger(&self, text: &str) -> std::io::Result<()> {
        self.handle.shared.process().registry.trigger(&self.handle.shared.setup, text)
    }

    /// Returns whether there was a connection to a recorder at the last check.
    pub fn is_connected(&self) -> bool {
        self.handle.shared.process().registry.is_connected()
    }

    /// Returns the recorder's budget for pushed frames. The client gets the budget with the first
    /// push of a connection. Returns `None` before this push, and if the recorder's version does
    /// not report a budget.
    pub fn budget(&self) -> Option<PushBudget> {
        self.handle.shared.process().registry.budget()
    }

    /// Returns the first refusal on this connection with its reason, and also the last refusal if
    /// it differs from the first. Without a connection, returns the reason of the failure for each
    /// socket that was tried. Returns an empty string if nothing was refused.
    pub fn last_error(&self) -> String {
        self.handle.shared.process().registry.last_error()
    }
}

/// Returns the sockets on which recorders listen by default. These are the socket of the service,
/// and the socket of a recorder that this user has started.
fn default_places() -> Vec<SocketPlace> {
    let uid = rustix::process::geteuid().as_raw();
    vec![
        SocketPlace { path: SOCKET.into(), owner: None },
        SocketPlace { path: format!("/dev/shm/flatcap-{uid}/push.sock").into(), owner: Some(uid) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the error of a client names each socket that it has tried, with the reason of the
    // failure. The client does not connect to a socket in a directory of another user.
    #[test]
    fn missing_recorders_are_named() {
        let own = default_places();
        assert_eq!(own.len(), 2);
        assert!(own[1].path.starts_with("/dev/shm") && own[1].owner.is_some());
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent.sock");
        let options = ClientOptions { socket: Some(absent.clone()), ..ClientOptions::default() };
        let client = PushClient::open("test", options).unwrap();
        let error = client.last_error();
        assert!(error.contains(absent.to_str().unwrap()) && error.contains("No such file"), "{error}");
        let stranger = rustix::process::geteuid().as_raw().wrapping_add(1);
        let place = SocketPlace { path: folder.path().join("push.sock"), owner: Some(stranger) };
        let refused = place.check_owner().unwrap_err().to_string();
        assert!(refused.contains("another user"), "{refused}");
    }

    // Proves that the lane of a closed client is released when its thread pushes for another
    // client, not only at the end of the thread.
    #[test]
    fn closed_clients_leave_no_lane() {
        let folder = tempfile::tempdir().unwrap();
        let mut earlier = None;
        for _ in 0..3 {
            let socket = Some(folder.path().join("push.sock"));
            let client =
                PushClient::open("test", ClientOptions { socket, ..ClientOptions::default() }).unwrap();
            let source = client.source(SourceOptions { name: "a", ..SourceOptions::default() }).unwrap();
            assert!(source.push(b"x").is_err(), "there is no recorder");
            let shared = Arc::downgrade(&client.handle.shared);
            let earlier = earlier.replace(shared);
            assert!(earlier.is_none_or(|earlier| earlier.upgrade().is_none()));
        }
    }
}
