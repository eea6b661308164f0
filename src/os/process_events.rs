//! What the kernel tells of processes as it happens: forks, execs and exits, by the process events connector.

use std::io::{self, ErrorKind};
use std::mem::size_of;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, send, socket_with, sockopt,
};

/// The kernel holds so many bytes of events for us between two looks: some 5,000 events, as it counts their room.
const BUFFER_BYTES: usize = 4 << 20;
/// Most events that one look takes; the others wait for the next. A storm of forks must not keep a sampler.
pub const EVENTS_MAX: usize = 1 << 16;
/// An event has 76 bytes; later kernels may add to it.
const MESSAGE_BYTES: usize = 256;

/// The one group of the connector of process events, and its message ids (`CN_IDX_PROC`, `CN_VAL_PROC`).
const GROUP: u32 = 1;
const CONNECTOR_ID: [u32; 2] = [1, 1];
const LISTEN: u32 = 1;
const IGNORE: u32 = 2;
/// A netlink header, a connector header, and where they hold what.
const HEADER_BYTES: usize = 16;
const CONNECTOR_BYTES: usize = 20;
const EVENT_AT: usize = HEADER_BYTES + CONNECTOR_BYTES;
const DATA_AT: usize = EVENT_AT + 16;
const DONE: u16 = 3;
const EVENT_ANSWER: u32 = 0;
const EVENT_FORK: u32 = 1;
const EVENT_EXEC: u32 = 2;
const EVENT_USER: u32 = 4;
const EVENT_NAME: u32 = 0x200;
const EVENT_EXIT: u32 = 0x8000_0000;

/// One thing that happened. Pids are those of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEvent {
    /// A process was created.
    Forked {
        /// The new one.
        pid: u32,
    },
    /// A thread was created beside a process's first.
    ThreadStarted,
    /// A process runs another program.
    Executed {
        /// Which.
        pid: u32,
    },
    /// A process has another user or another name.
    Changed {
        /// Which.
        pid: u32,
    },
    /// A process ended.
    Exited {
        /// Which.
        pid: u32,
        /// Its parent.
        parent: u32,
        /// As wait(2) tells it: signal in the low seven bits, code in the second byte.
        status: u32,
        /// When, on CLOCK_MONOTONIC.
        mono_ns: u64,
    },
    /// The kernel had more to tell than it could hold for us: events are lost.
    Overrun,
}

/// The connection on which they come.
#[derive(Debug)]
pub struct ProcessEvents {
    socket: OwnedFd,
}

impl ProcessEvents {
    /// Asks the kernel to tell.
    ///
    /// # Errors
    /// What the kernel says: without `CAP_NET_ADMIN` `PermissionDenied`, before Linux 6.6. Outside the first namespaces of users and processes it
    /// says nothing at all, which is `Unsupported` here.
    pub fn listen() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::CONNECTOR);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUP))?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
            // Up to the host's limit anybody may ask; with less, events are lost sooner, and that is counted.
            sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
        }
        let events = Self { socket };
        send(&events.socket, &request(LISTEN), SendFlags::empty())?;
        // The kernel answers before `send` returns, behind what others were told meanwhile.
        let mut message = [0; MESSAGE_BYTES];
        for _ in 0..EVENTS_MAX {
            match events.receive(&mut message) {
                Ok(length) => {
                    let message = message.get(..length).unwrap_or_default();
                    if word(message, EVENT_AT) == Some(EVENT_ANSWER) {
                        return match word(message, DATA_AT) {
                            Some(0) => Ok(events),
                            error => Err(io::Error::from_raw_os_error(
                                error.and_then(|error| i32::try_from(error).ok()).unwrap_or(0),
                            )),
                        };
                    }
                }
                Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => break,
            }
        }
        Err(ErrorKind::Unsupported.into())
    }

    /// Tells what happened since the last look. Never waits, and allocates nothing.
    pub fn drain(&mut self, mut told: impl FnMut(ProcessEvent)) {
        let mut message = [0; MESSAGE_BYTES];
        for _ in 0..EVENTS_MAX {
            match self.receive(&mut message) {
                Ok(length) => {
                    if let Some(event) = message.get(..length).and_then(event) {
                        told(event);
                    }
                }
                Err(Errno::NOBUFS) => told(ProcessEvent::Overrun),
                Err(Errno::INTR) => {}
                // Nothing more; a broken connection would look the same from now on, and none is known to break.
                Err(_) => break,
            }
        }
    }

    /// One message of the kernel; 0 bytes for one of anybody else.
    fn receive(&self, message: &mut [u8; MESSAGE_BYTES]) -> Result<usize, Errno> {
        let (_, length, sender) = recvfrom(&self.socket, &mut message[..], RecvFlags::DONTWAIT)?;
        let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
        Ok(if sender.is_some_and(|sender| sender.pid() == 0) { length.min(MESSAGE_BYTES) } else { 0 })
    }
}

impl Drop for ProcessEvents {
    fn drop(&mut self) {
        // Kernels before 6.6 go on preparing events for listeners that are gone, unless told.
        let _refused = send(&self.socket, &request(IGNORE), SendFlags::empty());
    }
}

/// A message to the kernel with one word.
fn request(word: u32) -> [u8; EVENT_AT + size_of::<u32>()] {
    let mut bytes = [0; EVENT_AT + size_of::<u32>()];
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let [id, value] = CONNECTOR_ID.map(u32::to_le_bytes);
    let places: [(usize, &[u8]); 6] = [
        (0, &length),
        (4, &DONE.to_le_bytes()),
        (HEADER_BYTES, &id),
        (HEADER_BYTES + 4, &value),
        (HEADER_BYTES + 16, &4_u16.to_le_bytes()), // length of what follows the headers
        (EVENT_AT, &word.to_le_bytes()),
    ];
    for (at, value) in places {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    }
    bytes
}

/// What a message tells, if it is one that counts.
fn event(message: &[u8]) -> Option<ProcessEvent> {
    let id = [word(message, HEADER_BYTES)?, word(message, HEADER_BYTES + 4)?];
    let data = |index: usize| word(message, DATA_AT + index * size_of::<u32>());
    if id != CONNECTOR_ID {
        return None;
    }
    match word(message, EVENT_AT)? {
        // Parent's pid and thread group, child's pid and thread group.
        EVENT_FORK => {
            let (pid, group) = (data(2)?, data(3)?);
            Some(if pid == group { ProcessEvent::Forked { pid } } else { ProcessEvent::ThreadStarted })
        }
        EVENT_EXEC => Some(ProcessEvent::Executed { pid: data(1)? }),
        EVENT_USER | EVENT_NAME => Some(ProcessEvent::Changed { pid: data(1)? }),
        // Pid, thread group, status, signal to the parent, parent's pid and thread group (since Linux 4.18).
        EVENT_EXIT => {
            let (pid, group) = (data(0)?, data(1)?);
            let low = word(message, EVENT_AT + 8)?;
            let high = word(message, EVENT_AT + 12)?;
            (pid == group).then_some(ProcessEvent::Exited {
                pid,
                parent: data(5)?,
                status: data(2)?,
                mono_ns: u64::from(high) << 32 | u64::from(low),
            })
        }
        _ => None,
    }
}

fn word(message: &[u8], at: usize) -> Option<u32> {
    let bytes = message.get(at..at.checked_add(size_of::<u32>())?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    // Goal: messages cut anywhere never panic, and each kind is read from its places. Method: messages as the kernel sent them.
    #[test]
    fn messages_are_read_or_passed_over() {
        let mut message = request(EVENT_EXIT).to_vec();
        let mut push = |words: &[u32]| words.iter().for_each(|word| message.extend(word.to_le_bytes()));
        push(&[0, 5, 1, 77, 77, 0x0300, 17, 66, 66]);
        let expected = ProcessEvent::Exited { pid: 77, parent: 66, status: 0x0300, mono_ns: (1 << 32) + 5 };
        assert_eq!(event(&message), Some(expected));
        for cut in 0..message.len() {
            assert_eq!(event(&message[..cut]), None);
        }
        message[DATA_AT] = 78;
        assert_eq!(event(&message), None, "the end of a thread");
        message[HEADER_BYTES] = 9;
        assert_eq!(event(&message), None, "another connector");
    }

    // Goal: a child's fork, exec and exit are told. Method: run one where this is allowed.
    #[test]
    fn a_child_is_told() {
        let mut events = match ProcessEvents::listen() {
            Ok(events) => events,
            Err(error) => return println!("passed over: {error}"),
        };
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let mut told = Vec::new();
        events.drain(|event| told.push(event));
        assert!(told.contains(&ProcessEvent::Forked { pid }));
        assert!(told.contains(&ProcessEvent::Executed { pid }));
        assert!(told.iter().any(|event| matches!(
            event,
            ProcessEvent::Exited { pid: ended, parent, status: 0x0700, .. }
                if *ended == pid && *parent == std::process::id()
        )));
    }
}
