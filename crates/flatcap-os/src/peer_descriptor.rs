//! Descriptors that a peer controls: its connection, and the descriptors that it has sent. Separate
//! threads close them, because the peer decides how long `close(2)` waits. `close(2)` can wait for
//! unsent data of a socket (`SO_LINGER`) or for a file system that a user provides. If such
//! descriptors are queued in a socket, closing the socket can also wait for them.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::clock::thread_cpu_ns;
use super::thread;

/// Maximum number of threads that close descriptors. A thread is started when all others are busy.
const THREADS_MAX: usize = 16;
/// Number of descriptors waiting to be closed at which no more descriptors should be accepted from
/// peers.
const UNCLOSED_MAX: usize = 1024;
/// Maximum number of queued descriptors. The limit is higher than the number of descriptors that
/// all peers can send after `UNCLOSED_MAX` is reached. A descriptor beyond this limit stays open.
const QUEUED_MAX: usize = 8192;

/// Closes descriptors. Clones of this value share the threads, which end with the process.
#[derive(Debug, Clone)]
pub struct DescriptorCloser(Arc<CloserState>);

#[derive(Debug)]
struct CloserState {
    queue: (Sender<OwnedFd>, Receiver<OwnedFd>),
    unclosed: AtomicUsize,
    threads: AtomicUsize,
    cpu_ns: AtomicU64,
}

/// A descriptor that a peer controls.
#[derive(Debug)]
pub struct PeerDescriptor {
    descriptor: ManuallyDrop<OwnedFd>,
    closer: DescriptorCloser,
}

impl Default for DescriptorCloser {
    /// Creates a closer that has no threads yet.
    fn default() -> Self {
        Self(Arc::new(CloserState {
            queue: bounded(QUEUED_MAX),
            unclosed: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
            cpu_ns: AtomicU64::new(0),
        }))
    }
}

impl DescriptorCloser {
    /// Returns whether no more descriptors should be accepted, because `UNCLOSED_MAX` descriptors
    /// still wait to be closed.
    pub fn is_full(&self) -> bool {
        self.0.unclosed.load(Ordering::Relaxed) >= UNCLOSED_MAX
    }

    /// Returns the CPU time that closing has used.
    pub fn cpu_ns(&self) -> u64 {
        self.0.cpu_ns.load(Ordering::Relaxed)
    }

    /// Returns a guard of a descriptor. Dropping the guard makes this closer close the descriptor.
    pub fn guard(&self, descriptor: OwnedFd) -> PeerDescriptor {
        PeerDescriptor { descriptor: ManuallyDrop::new(descriptor), closer: self.clone() }
    }

    fn close(&self, descriptor: OwnedFd) {
        let unclosed = 1 + self.0.unclosed.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.0.queue.0.try_send(descriptor) {
            let _stays_open = error.into_inner().into_raw_fd();
        }
        let threads = self.0.threads.load(Ordering::Relaxed);
        if unclosed <= threads || threads >= THREADS_MAX {
            return;
        }
        let state = Arc::clone(&self.0);
        match thread::spawn("push-close", move || state.run()) {
            Ok(_detached) => drop(self.0.threads.fetch_add(1, Ordering::Relaxed)),
            // The next descriptor causes another attempt to start a thread.
            Err(error) => tracing::debug!(%error, "no thread to close descriptors of applications"),
        }
    }
}

impl CloserState {
    fn run(&self) {
        let mut before_ns = 0;
        for descriptor in &self.queue.1 {
            drop(descriptor);
            self.unclosed.fetch_sub(1, Ordering::Relaxed);
            let now_ns = thread_cpu_ns();
            self.cpu_ns.fetch_add(now_ns.saturating_sub(before_ns), Ordering::Relaxed);
            before_ns = now_ns;
        }
    }
}

impl AsFd for PeerDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for PeerDescriptor {
    #[allow(unsafe_code, reason = "the descriptor must not be closed here, where its owner would wait")]
    fn drop(&mut self) {
        // SAFETY: this code runs once, and nothing uses the descriptor afterwards.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.descriptor) };
        self.closer.close(descriptor);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use rustix::net::sockopt::set_socket_linger;

    use super::*;

    /// Returns both ends of a connection. Closing the first end waits until the second end is
    /// closed.
    fn lingering() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let full = loop {
            if let Err(error) = stream.write_all(&[7; 1 << 13]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        set_socket_linger(&stream, Some(Duration::from_secs(3600))).unwrap();
        (stream, other)
    }

    // Proves that a descriptor does not delay the other descriptors if its peer blocks `close(2)`.
    // The number of threads is bounded, and all descriptors are closed when the peers stop
    // blocking.
    #[test]
    fn nobody_waits_for_a_close() {
        let closer = DescriptorCloser::default();
        let mut others = Vec::new();
        for _ in 0..THREADS_MAX - 1 {
            let (stream, other) = lingering();
            drop(closer.guard(stream.into()));
            others.push(other);
        }
        let (mut reader, writer) = std::io::pipe().unwrap();
        drop(closer.guard(writer.into()));
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0, "it is closed");
        for _ in 0..100 {
            drop(closer.guard(std::io::pipe().unwrap().1.into()));
        }
        assert!(closer.0.threads.load(Ordering::Relaxed) <= THREADS_MAX);
        drop(others);
        while closer.0.unclosed.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert!(!closer.is_full());
    }
}
