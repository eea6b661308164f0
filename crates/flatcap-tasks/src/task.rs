//! Types that identify threads in events and intervals.

use std::fmt;

/// Size of a thread's name in bytes, including the terminating zero byte (`TASK_COMM_LEN`).
const NAME_BYTES: usize = 16;

/// The name of a thread, which has up to 15 arbitrary bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TaskName([u8; NAME_BYTES]);

/// A thread, identified by the kernel's ids. The kernel reuses ids after a thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ThreadInfo {
    /// Thread id, or 0 for the idle loop of each CPU.
    pub thread: u32,
    /// Process id of the thread.
    pub process: u32,
    /// Name of the thread, which is empty if it is unknown.
    pub name: TaskName,
}

/// A thread from its start to its end. If the kernel reuses a thread id, the new thread is another
/// task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Task {
    /// Id of the task in its timeline, counted from 1. The idle loops have the id 0.
    pub number: u64,
    /// The thread id and process id of the task, and its name at the time of the event or interval.
    pub info: ThreadInfo,
}

impl TaskName {
    /// Creates a name from the bytes before the first zero byte, truncated to 15 bytes.
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; NAME_BYTES];
        let own = name.iter().take_while(|byte| **byte != 0).take(NAME_BYTES - 1);
        for (place, byte) in bytes.iter_mut().zip(own) {
            *place = *byte;
        }
        Self(bytes)
    }

    /// Returns the bytes of the name, which may not be UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Returns the name padded with zero bytes, as it is in payloads.
    pub(crate) fn bytes(&self) -> &[u8; NAME_BYTES] {
        &self.0
    }

    /// Returns whether the name is unknown.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl fmt::Debug for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl ThreadInfo {
    /// Returns whether the thread is the idle loop of a CPU.
    pub fn is_idle(&self) -> bool {
        self.thread == 0
    }
}

impl Task {
    /// The idle loop of any CPU.
    pub(crate) const IDLE: Self =
        Self { number: 0, info: ThreadInfo { thread: 0, process: 0, name: TaskName([0; NAME_BYTES]) } };

    /// Returns whether the thread is the idle loop of a CPU.
    pub fn is_idle(&self) -> bool {
        self.number == 0
    }
}
