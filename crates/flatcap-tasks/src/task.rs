//! Threads, as events and intervals name them.

use std::borrow::Cow;
use std::fmt;

/// Bytes of a thread's name, with the zero byte that ends it (`TASK_COMM_LEN`).
const NAME_BYTES: usize = 16;

/// The name of a thread: up to 15 bytes of any value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TaskName([u8; NAME_BYTES]);

/// A thread, by the ids that the kernel gives it. Ids are given again after a thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ThreadInfo {
    /// Thread id; 0 for the idle loop of each CPU.
    pub thread: u32,
    /// Process id of the thread.
    pub process: u32,
    /// Name of the thread; empty if it is not known.
    pub name: TaskName,
}

/// One life of a thread: a thread id that is given again is another task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    /// Number of the task in its timeline, from 1 on; 0 for the idle loops.
    pub number: u64,
    /// Its ids, and its name at the time in question.
    pub info: ThreadInfo,
}

impl TaskName {
    /// Takes a name from the bytes before the first zero byte; more than 15 bytes are cut off.
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; NAME_BYTES];
        let own = name.iter().take_while(|byte| **byte != 0).take(NAME_BYTES - 1);
        for (place, byte) in bytes.iter_mut().zip(own) {
            *place = *byte;
        }
        Self(bytes)
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// The name filled up with zero bytes, as payloads have it.
    pub(crate) fn bytes(&self) -> &[u8; NAME_BYTES] {
        &self.0
    }

    /// Returns the name; bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.as_bytes())
    }

    /// Whether the name is not known.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text())
    }
}

impl fmt::Debug for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text(), f)
    }
}

impl ThreadInfo {
    /// Whether it is the idle loop of a CPU.
    pub fn is_idle(&self) -> bool {
        self.thread == 0
    }
}

impl Task {
    /// The idle loop of any CPU.
    pub const IDLE: Self =
        Self { number: 0, info: ThreadInfo { thread: 0, process: 0, name: TaskName([0; NAME_BYTES]) } };

    /// Whether it is the idle loop of a CPU.
    pub fn is_idle(&self) -> bool {
        self.number == 0
    }
}
