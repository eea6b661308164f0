//! Forks, execs and exits of processes, from the kernel's process events connector (netlink).

use std::io::{self, ErrorKind};
use std::mem::size_of;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, send, socket_with, sockopt,
};

use super::poll_event::PollEvent;

/// Size of the receive buffer, in bytes. The buffer holds the events that arrive between two reads.
/// It holds about 5,000 events by the kernel's accounting.
const BUFFER_BYTES: usize = 4 << 20;
/// Maximum number of events per read; further events wait for the next read. This bounds the delay
/// that many forks can cause to a sampler.
pub(crate) const EVENTS_MAX: usize = 1 << 16;
/// Size of the buffer for one message, in bytes. An event has 76 bytes, and later kernels may
/// extend it.
const MESSAGE_BYTES: usize = 256;

/// The only multicast group of the process events connector, and the connector's message id
/// (`CN_IDX_PROC`, `CN_VAL_PROC`).
const GROUP: u32 = 1;
const CONNECTOR_ID: [u32; 2] = [1, 1];
const SUBSCRIBE: u32 = 1;
const UNSUBSCRIBE: u32 = 2;
/// Lengths of the netlink header and of the connector header, and the offsets of the event and of
/// its data after these headers.
const HEADER_BYTES: usize = 16;
const CONNECTOR_BYTES: usize = 20;
const EVENT_OFFSET: usize = HEADER_BYTES + CONNECTOR_BYTES;
const DATA_OFFSET: usize = EVENT_OFFSET + 16;
const DONE: u16 = 3;
const EVENT_ANSWER: u32 = 0;
const EVENT_FORK: u32 = 1;
const EVENT_EXEC: u32 = 2;
const EVENT_USER: u32 = 4;
const EVENT_NAME: u32 = 0x200;
const EVENT_EXIT: u32 = 0x8000_0000;

/// A process event. Pids are in the host's pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEvent {
    /// A process was created.
    Forked {
        /// The new process.
        pid: u32,
    },
    /// A process started a further thread.
    ThreadStarted,
    /// A process runs another program.
    Executed {
        /// The process.
        pid: u32,
        /// The time at which the process started to run the program, on CLOCK_MONOTONIC.
        mono_ns: u64,
    },
    /// The user or the name of a process has changed.
    Changed {
        /// The process.
        pid: u32,
    },
    /// A process ended.
    Exited {
        /// The process.
        pid: u32,
        /// The parent of the process.
        parent: u32,
        /// Wait status (wait(2)), with the signal in the low seven bits and the exit code in the
        /// second byte.
        status: u32,
        /// Time of the exit, CLOCK_MONOTONIC.
        mono_ns: u64,
    },
    /// The receive buffer overflowed, so events are lost.
    Overrun,
}

/// A subscription to process events.
#[derive(Debug)]
pub struct ProcessEvents {
    socket: OwnedFd,
}

impl ProcessEvents {
    /// Subscribes to process events.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_ADMIN` before Linux 6.6; `Unsupported` outside the
    /// initial user and pid namespaces, where the kernel sends no answer; or any error of the
    /// underlying system call.
    pub fn subscribe() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::CONNECTOR);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUP))?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
            // Any process may request a buffer up to the host's limit. A smaller buffer loses
            // events sooner, and the losses are counted.
            sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
        }
        let events = Self { socket };
        send(&events.socket, &request(&[SUBSCRIBE]), SendFlags::empty())?;
        // The kernel answers before `send` returns. The events that it has already sent to all
        // listeners come before the answer.
        let mut message = [0; MESSAGE_BYTES];
        for _ in 0..EVENTS_MAX {
            match events.receive(&mut message) {
                Ok(length) => {
                    let message = message.get(..length).unwrap_or_default();
                    if read_u32(message, EVENT_OFFSET) == Some(EVENT_ANSWER) {
                        return match read_u32(message, DATA_OFFSET) {
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

    /// Subscribes to the execs of processes. Kernels before 6.6 also send all other events.
    ///
    /// # Errors
    /// The same errors as [`subscribe`](Self::subscribe).
    pub fn subscribe_to_execs() -> io::Result<Self> {
        let events = Self::subscribe()?;
        // The filter is not part of the first request, because the kernel would also apply it to
        // the answer to this request. Kernels before 6.6 ignore a request of this length.
        send(&events.socket, &request(&[SUBSCRIBE, EVENT_EXEC]), SendFlags::empty())?;
        Ok(events)
    }

    /// Waits for events. Returns false once `stop` is set.
    pub fn wait(&self, stop: &PollEvent) -> bool {
        loop {
            let mut waits = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            match poll(&mut waits, None) {
                Err(Errno::INTR) => {}
                Ok(_) => return waits.get(1).is_some_and(|stop| stop.revents().is_empty()),
                // The kernel is out of memory. If the loop continued without a wait, the thread
                // would use a whole core.
                Err(_) => return false,
            }
        }
    }

    /// Reports the events since the last call. Never waits and does not allocate.
    pub fn drain(&mut self, mut on_event: impl FnMut(ProcessEvent)) {
        let mut message = [0; MESSAGE_BYTES];
        for _ in 0..EVENTS_MAX {
            match self.receive(&mut message) {
                Ok(length) => {
                    if let Some(event) = message.get(..length).and_then(decode_event) {
                        on_event(event);
                    }
                }
                Err(Errno::NOBUFS) => on_event(ProcessEvent::Overrun),
                Err(Errno::INTR) => {}
                // There are no more events. A broken connection would look the same, but no such
                // case is known.
                Err(_) => break,
            }
        }
    }

    /// Receives one message of the kernel. Returns 0 for a message from another sender, otherwise
    /// the message's length in bytes.
    fn receive(&self, message: &mut [u8; MESSAGE_BYTES]) -> Result<usize, Errno> {
        let (_, length, sender) = recvfrom(&self.socket, &mut message[..], RecvFlags::DONTWAIT)?;
        let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
        Ok(if sender.is_some_and(|sender| sender.pid() == 0) { length.min(MESSAGE_BYTES) } else { 0 })
    }
}

impl Drop for ProcessEvents {
    fn drop(&mut self) {
        // Kernels before 6.6 keep preparing events for closed listeners unless they unsubscribe.
        let _refused = send(&self.socket, &request(&[UNSUBSCRIBE]), SendFlags::empty());
    }
}

/// Builds a message to the kernel with these words as its data.
fn request(words: &[u32]) -> Vec<u8> {
    let data_bytes = size_of_val(words);
    let mut bytes = vec![0; EVENT_OFFSET + data_bytes];
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let [id, value] = CONNECTOR_ID.map(u32::to_le_bytes);
    let mut place = |at: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    place(0, &length);
    place(4, &DONE.to_le_bytes());
    place(HEADER_BYTES, &id);
    place(HEADER_BYTES + 4, &value);
    // This is the length of the data after the headers.
    place(HEADER_BYTES + 16, &u16::try_from(data_bytes).unwrap_or(u16::MAX).to_le_bytes());
    for (index, word) in words.iter().enumerate() {
        place(EVENT_OFFSET + index * size_of::<u32>(), &word.to_le_bytes());
    }
    bytes
}

/// Decodes a message. Returns `None` for a message that is not needed.
fn decode_event(message: &[u8]) -> Option<ProcessEvent> {
    let id = [read_u32(message, HEADER_BYTES)?, read_u32(message, HEADER_BYTES + 4)?];
    let data = |index: usize| read_u32(message, DATA_OFFSET + index * size_of::<u32>());
    if id != CONNECTOR_ID {
        return None;
    }
    match read_u32(message, EVENT_OFFSET)? {
        // The data are the parent's pid and thread group, and the child's pid and thread group.
        EVENT_FORK => {
            let (pid, group) = (data(2)?, data(3)?);
            Some(if pid == group { ProcessEvent::Forked { pid } } else { ProcessEvent::ThreadStarted })
        }
        EVENT_EXEC => Some(ProcessEvent::Executed { pid: data(1)?, mono_ns: timestamp(message)? }),
        EVENT_USER | EVENT_NAME => Some(ProcessEvent::Changed { pid: data(1)? }),
        // The data are pid, thread group, status, signal to the parent, and the parent's pid and
        // thread group (since Linux 4.18).
        EVENT_EXIT => {
            let (pid, group) = (data(0)?, data(1)?);
            (pid == group).then_some(ProcessEvent::Exited {
                pid,
                parent: data(5)?,
                status: data(2)?,
                mono_ns: timestamp(message)?,
            })
        }
        _ => None,
    }
}

/// Returns the time of an event, CLOCK_MONOTONIC.
fn timestamp(message: &[u8]) -> Option<u64> {
    let low = read_u32(message, EVENT_OFFSET + 8)?;
    let high = read_u32(message, EVENT_OFFSET + 12)?;
    Some(u64::from(high) << 32 | u64::from(low))
}

fn read_u32(message: &[u8], at: usize) -> Option<u32> {
    let bytes = message.get(at..at.checked_add(size_of::<u32>())?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    // Proves that truncated messages never panic, and that fields are read from their offsets.
    #[test]
    fn messages_are_read_or_skipped() {
        let mut message = request(&[EVENT_EXIT]);
        let mut push = |words: &[u32]| words.iter().for_each(|word| message.extend(word.to_le_bytes()));
        push(&[0, 5, 1, 77, 77, 0x0300, 17, 66, 66]);
        let expected = ProcessEvent::Exited { pid: 77, parent: 66, status: 0x0300, mono_ns: (1 << 32) + 5 };
        assert_eq!(decode_event(&message), Some(expected));
        for cut in 0..message.len() {
            assert_eq!(decode_event(&message[..cut]), None);
        }
        message[DATA_OFFSET] = 78;
        assert_eq!(decode_event(&message), None, "the end of a thread");
        message[HEADER_BYTES] = 9;
        assert_eq!(decode_event(&message), None, "another connector");
    }

    // Proves that a wait ends with an exec, and that a subscription to execs reports the exec. A
    // requested stop ends the current wait, and also a wait that begins later.
    #[test]
    fn a_wait_ends_with_an_exec_or_a_stop() {
        let mut events = match ProcessEvents::subscribe_to_execs() {
            Ok(events) => events,
            Err(error) => return println!("skipped: {error}"),
        };
        let stop = PollEvent::new().unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        let mut is_reported = false;
        while !is_reported {
            assert!(events.wait(&stop));
            events.drain(|event| {
                is_reported |= matches!(event, ProcessEvent::Executed { pid, .. } if pid == child.id());
            });
        }
        child.wait().unwrap();
        stop.set();
        stop.set();
        assert!(!events.wait(&stop));
    }

    // Proves that the fork, exec and exit of a child are reported, where this is permitted.
    #[test]
    fn a_child_is_reported() {
        let mut events = match ProcessEvents::subscribe() {
            Ok(events) => events,
            Err(error) => return println!("skipped: {error}"),
        };
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let mut reported = Vec::new();
        events.drain(|event| reported.push(event));
        assert!(reported.contains(&ProcessEvent::Forked { pid }));
        let is_exec = |event: &ProcessEvent| matches!(event, ProcessEvent::Executed { pid: program, mono_ns } if *program == pid && *mono_ns > 0);
        assert!(reported.iter().any(is_exec));
        assert!(reported.iter().any(|event| matches!(
            event,
            ProcessEvent::Exited { pid: ended, parent, status: 0x0700, .. }
                if *ended == pid && *parent == std::process::id()
        )));
    }
}
