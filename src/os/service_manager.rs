//! The service manager, if one has started this process: it is told what the agent is doing (`sd_notify(3)`).
//!
//! The messages are those of the crate `sd-notify`. The socket is ours: it waits for a service manager that does not read for a
//! limited time, and knows sockets without a name in the file system.

use std::env;
use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sd_notify::NotifyState;

/// A service manager whose socket is full is waited for so long, then the message waits for the next one.
const SEND_MAX: Duration = Duration::from_millis(100);

/// Something that the service manager acts on, and must hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The agent records: after the start, and after a reload.
    Ready,
    /// A reload has begun at this time of the monotonic clock, in nanoseconds.
    Reloading(u64),
    /// The end has begun.
    Stopping,
}

/// Who is told. Without a service manager nobody is, and nothing costs anything.
#[derive(Debug)]
pub struct ServiceManager {
    place: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    owed: Option<State>, // the last one, while it could not be sent
}

impl ServiceManager {
    /// As the environment says: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`, read now and never again. They stay there, but
    /// what this process starts is not its main process, which alone is listened to.
    ///
    /// # Errors
    /// The socket's name is none, or the kernel refuses a socket. [`ServiceManager::none`] goes on without.
    pub fn of_environment() -> io::Result<Self> {
        Self::new(env::var_os("NOTIFY_SOCKET"), sd_notify::watchdog_enabled())
    }

    /// Nobody.
    pub fn none() -> Self {
        Self { place: None, watchdog: None, owed: None }
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
        Ok(Self { place: Some((socket, address)), watchdog, owed: None })
    }

    /// Whether somebody listens.
    pub fn is_there(&self) -> bool {
        self.place.is_some()
    }

    /// Within which time it wants to be fed; none if it does not.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Tells a state, with one line for people. Where that cannot be sent now, it goes with the next message; of several such states
    /// the last one does.
    ///
    /// # Errors
    /// What the kernel says; `WouldBlock` after 100 ms if the service manager does not read.
    pub fn tell(&mut self, state: State, status: &str) -> io::Result<()> {
        self.owed = Some(state);
        self.send(&[NotifyState::Status(status)])
    }

    /// Shows one line to people. A line that cannot be sent is forgotten.
    ///
    /// # Errors
    /// As [`ServiceManager::tell`].
    pub fn show(&mut self, status: &str) -> io::Result<()> {
        self.send(&[NotifyState::Status(status)])
    }

    /// Feeds the watchdog.
    ///
    /// # Errors
    /// As [`ServiceManager::tell`].
    pub fn feed(&mut self) -> io::Result<()> {
        self.send(&[NotifyState::Watchdog])
    }

    /// Asks for so much time from now on, where the end takes longer than the service manager would wait.
    ///
    /// # Errors
    /// As [`ServiceManager::tell`].
    pub fn ask_for_time(&mut self, time: Duration) -> io::Result<()> {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.send(&[NotifyState::ExtendTimeoutUsec(micros)])
    }

    /// Sends what is owed, if there is anything.
    ///
    /// # Errors
    /// As [`ServiceManager::tell`].
    pub fn settle(&mut self) -> io::Result<()> {
        if self.owed.is_some() { self.send(&[]) } else { Ok(()) }
    }

    fn send(&mut self, lines: &[NotifyState<'_>]) -> io::Result<()> {
        let Some((socket, address)) = &self.place else {
            self.owed = None;
            return Ok(());
        };
        let owed: &[NotifyState<'_>] = match self.owed {
            None => &[],
            Some(State::Ready) => &[NotifyState::Ready],
            Some(State::Reloading(mono_ns)) => {
                &[NotifyState::Reloading, NotifyState::MonotonicUsec(i128::from(mono_ns / 1000))]
            }
            Some(State::Stopping) => &[NotifyState::Stopping],
        };
        let mut text = String::new();
        for line in owed.iter().chain(lines) {
            // Writing to a text cannot fail.
            let _written = writeln!(text, "{line}");
        }
        socket.send_to_addr(text.as_bytes(), address)?;
        self.owed = None;
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

    // Goal: each message is what sd_notify(3) says, by a name in the file system and by one that is not. Method: sockets of our own.
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
            assert_eq!((manager.is_there(), manager.watchdog()), (true, Some(Duration::from_secs(30))));
            manager.tell(State::Ready, "recording").unwrap();
            assert_eq!(received(&socket), "READY=1\nSTATUS=recording\n");
            manager.tell(State::Reloading(5_000_999), "reading").unwrap();
            assert_eq!(received(&socket), "RELOADING=1\nMONOTONIC_USEC=5000\nSTATUS=reading\n");
            manager.feed().unwrap();
            assert_eq!(received(&socket), "WATCHDOG=1\n");
            manager.ask_for_time(Duration::from_secs(2)).unwrap();
            assert_eq!(received(&socket), "EXTEND_TIMEOUT_USEC=2000000\n");
            manager.tell(State::Stopping, "ending").unwrap();
            assert_eq!(received(&socket), "STOPPING=1\nSTATUS=ending\n");
        }
    }

    // Goal: a service manager that reads nothing holds nobody up for long, and hears the last state once it reads. Method: a socket
    // that is filled, then emptied.
    #[test]
    fn a_full_socket_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let mut manager = ServiceManager::new(Some(path.into()), None).unwrap();
        let mut sent = 0;
        let error = loop {
            match manager.show("full") {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(manager.tell(State::Reloading(1), "lost").is_err());
        assert!(manager.tell(State::Ready, "lost").is_err());
        for _ in 0..sent {
            assert_eq!(received(&socket), "STATUS=full\n");
        }
        manager.settle().unwrap();
        assert_eq!(received(&socket), "READY=1\n");
        manager.settle().unwrap();
        manager.feed().unwrap();
        assert_eq!(received(&socket), "WATCHDOG=1\n", "once");
    }

    // Goal: without a service manager nothing is sent and nothing fails; a name that cannot be one is told. Method: no name, an empty
    // one, one that is too long, and one that nobody listens to.
    #[test]
    fn nobody_is_nobody() {
        for name in [None, Some(OsString::new())] {
            let mut manager = ServiceManager::new(name, Some(Duration::from_secs(1))).unwrap();
            assert_eq!((manager.is_there(), manager.watchdog()), (false, None));
            manager.tell(State::Ready, "").unwrap();
        }
        assert!(ServiceManager::new(Some("/x".repeat(99).into()), None).is_err());
        let mut manager = ServiceManager::new(Some("/nobody/listens".into()), None).unwrap();
        assert!(manager.tell(State::Ready, "").is_err());
        let zero = ServiceManager::new(Some("/x".into()), Some(Duration::ZERO)).unwrap();
        assert_eq!(zero.watchdog(), None);
    }
}
