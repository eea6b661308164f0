//! Notifies the service manager that started this process, if any (`sd_notify(3)`).
//!
//! The crate `sd-notify` formats the messages. This module uses its own socket instead of the
//! crate's socket, for two reasons. First, sending through this socket has a timeout, in case the
//! service manager does not read. Second, this socket also supports abstract socket names.

use std::env;
use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sd_notify::NotifyState;

/// Send timeout for a full socket. After the timeout, a state is kept and sent with the next
/// message; any other message is dropped.
const SEND_MAX: Duration = Duration::from_millis(100);

/// A state that must be delivered, because the service manager acts on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// The recorder runs. This is sent after the start and after each reload.
    Ready,
    /// A reload began at this time of the monotonic clock, in nanoseconds.
    Reloading(u64),
    /// The shutdown has begun.
    Stopping,
}

/// The connection to the service manager. Without a service manager, all calls do nothing.
#[derive(Debug)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    pending: Option<ServiceState>, // the last state that could not be sent
}

impl ServiceManager {
    /// Connects according to the environment: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    /// Each variable is read only here. The variables stay set, which is harmless for child
    /// processes, because the service manager listens only to the main process.
    ///
    /// # Errors
    /// The socket's name is invalid, or the kernel refuses a socket. The caller can continue with
    /// [`ServiceManager::none`].
    pub fn from_environment() -> io::Result<Self> {
        Self::new(env::var_os("NOTIFY_SOCKET"), sd_notify::watchdog_enabled())
    }

    /// Returns a value that sends nothing.
    pub fn none() -> Self {
        Self { socket: None, watchdog: None, pending: None }
    }

    fn new(name: Option<OsString>, watchdog: Option<Duration>) -> io::Result<Self> {
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(Self::none()) };
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            _ => SocketAddr::from_pathname(&name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_MAX))?;
        let watchdog = watchdog.filter(|interval| !interval.is_zero());
        Ok(Self { socket: Some((socket, address)), watchdog, pending: None })
    }

    /// Returns whether there is a service manager.
    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Returns the watchdog interval, if the watchdog is enabled.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Sends a state with a status line. If the state cannot be sent, it is sent with the next
    /// message, unless a newer state replaces it.
    ///
    /// # Errors
    /// `WouldBlock` after 100 ms if the service manager does not read, or any error of the
    /// underlying system call.
    pub fn notify_state(&mut self, state: ServiceState, status: &str) -> io::Result<()> {
        self.pending = Some(state);
        self.send(&[NotifyState::Status(status)])
    }

    /// Sends a status line. A line that cannot be sent is dropped.
    ///
    /// # Errors
    /// The same errors as [`ServiceManager::notify_state`].
    pub fn notify_status(&mut self, status: &str) -> io::Result<()> {
        self.send(&[NotifyState::Status(status)])
    }

    /// Sends a keep-alive to the watchdog.
    ///
    /// # Errors
    /// The same errors as [`ServiceManager::notify_state`].
    pub fn ping_watchdog(&mut self) -> io::Result<()> {
        self.send(&[NotifyState::Watchdog])
    }

    /// Extends the service manager's timeout to `time` from now, for a shutdown that takes longer.
    ///
    /// # Errors
    /// The same errors as [`ServiceManager::notify_state`].
    pub fn extend_timeout(&mut self, time: Duration) -> io::Result<()> {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.send(&[NotifyState::ExtendTimeoutUsec(micros)])
    }

    /// Sends the pending state, if any.
    ///
    /// # Errors
    /// The same errors as [`ServiceManager::notify_state`].
    pub fn send_pending(&mut self) -> io::Result<()> {
        if self.pending.is_some() { self.send(&[]) } else { Ok(()) }
    }

    fn send(&mut self, lines: &[NotifyState<'_>]) -> io::Result<()> {
        let Some((socket, address)) = &self.socket else {
            self.pending = None;
            return Ok(());
        };
        let owed: &[NotifyState<'_>] = match self.pending {
            None => &[],
            Some(ServiceState::Ready) => &[NotifyState::Ready],
            Some(ServiceState::Reloading(mono_ns)) => {
                &[NotifyState::Reloading, NotifyState::MonotonicUsec(i128::from(mono_ns / 1000))]
            }
            Some(ServiceState::Stopping) => &[NotifyState::Stopping],
        };
        let mut text = String::new();
        for line in owed.iter().chain(lines) {
            // Writing to a String cannot fail.
            let _written = writeln!(text, "{line}");
        }
        socket.send_to_addr(text.as_bytes(), address)?;
        self.pending = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    // Proves that the messages follow sd_notify(3), both over sockets with a path and over abstract
    // sockets.
    #[test]
    fn messages_are_those_of_the_protocol() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("flatcap-test-{}", std::process::id());
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
                OsString::from(format!("@{name}")),
            ),
        ];
        for (socket, name) in sockets {
            let mut manager = ServiceManager::new(Some(name), Some(Duration::from_secs(30))).unwrap();
            assert_eq!((manager.is_connected(), manager.watchdog()), (true, Some(Duration::from_secs(30))));
            manager.notify_state(ServiceState::Ready, "recording").unwrap();
            assert_eq!(received(&socket), "READY=1\nSTATUS=recording\n");
            manager.notify_state(ServiceState::Reloading(5_000_999), "reading").unwrap();
            assert_eq!(received(&socket), "RELOADING=1\nMONOTONIC_USEC=5000\nSTATUS=reading\n");
            manager.ping_watchdog().unwrap();
            assert_eq!(received(&socket), "WATCHDOG=1\n");
            manager.extend_timeout(Duration::from_secs(2)).unwrap();
            assert_eq!(received(&socket), "EXTEND_TIMEOUT_USEC=2000000\n");
            manager.notify_state(ServiceState::Stopping, "ending").unwrap();
            assert_eq!(received(&socket), "STOPPING=1\nSTATUS=ending\n");
        }
    }

    // Proves that a service manager that does not read delays the sender only briefly, and gets the
    // last state when it reads again.
    #[test]
    fn a_full_socket_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let mut manager = ServiceManager::new(Some(path.into()), None).unwrap();
        let mut sent = 0;
        let error = loop {
            match manager.notify_status("full") {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(manager.notify_state(ServiceState::Reloading(1), "lost").is_err());
        assert!(manager.notify_state(ServiceState::Ready, "lost").is_err());
        for _ in 0..sent {
            assert_eq!(received(&socket), "STATUS=full\n");
        }
        manager.send_pending().unwrap();
        assert_eq!(received(&socket), "READY=1\n");
        manager.send_pending().unwrap();
        manager.ping_watchdog().unwrap();
        assert_eq!(received(&socket), "WATCHDOG=1\n", "once");
    }

    // Proves that without a service manager nothing is sent and nothing fails, and that an invalid
    // socket name is an error.
    #[test]
    fn without_a_manager_nothing_is_sent() {
        for name in [None, Some(OsString::new())] {
            let mut manager = ServiceManager::new(name, Some(Duration::from_secs(1))).unwrap();
            assert_eq!((manager.is_connected(), manager.watchdog()), (false, None));
            manager.notify_state(ServiceState::Ready, "").unwrap();
        }
        assert!(ServiceManager::new(Some("/x".repeat(99).into()), None).is_err());
        let mut manager = ServiceManager::new(Some("/nobody/listens".into()), None).unwrap();
        assert!(manager.notify_state(ServiceState::Ready, "").is_err());
        let zero = ServiceManager::new(Some("/x".into()), Some(Duration::ZERO)).unwrap();
        assert_eq!(zero.watchdog(), None);
    }
}
