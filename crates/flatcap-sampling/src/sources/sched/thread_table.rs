//! The threads of the host, with their processes and names, and the list of threads that a sample
//! mentions.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString};
use std::io;

use flatcap_os::clock::NS_PER_S;
use flatcap_os::host::{HostDirectory, HostRoot};
use flatcap_os::perf_record::{THREAD_NAME_BYTES, ThreadId};
use flatcap_tasks::schema::ScheduledThread;

use crate::Incomplete;
use crate::sources::text;

/// Maximum number of threads. Events of further threads are counted as lost, and samples that lack
/// such events are marked as incomplete.
const THREADS_MAX: usize = 1 << 17;
/// Maximum number of threads that a sample mentions, because events refer to threads by 16-bit
/// indexes.
const MENTIONS_MAX: usize = 1 << 16;
/// Memory is reserved for twice the number of threads at the start, plus this many.
const RESERVED_EXTRA: usize = 1024;
/// Time for which the table contains a thread after the thread's end. The table still needs the
/// thread, because the kernel reports its end before the thread runs for the last time.
const FORGET_AFTER_NS: u64 = NS_PER_S;
/// Number of samples after which a full table drops a thread that none of these samples mentions.
/// The next constant is the number of samples between two sweeps that drop such threads. The sweeps
/// are needed because the end of some threads is never recorded. Such a thread blocks while it
/// exits, or loses its id to another thread of its process that has run a program.
const UNMENTIONED_SAMPLES: u64 = 6_000;
const SWEEP_SAMPLES: u64 = 100;
/// The name of the idle loop, which the kernel calls swapper.
const IDLE_NAME: &[u8] = b"idle";

pub(super) type ThreadName = [u8; THREAD_NAME_BYTES];

/// The threads of the host.
#[derive(Debug, Default)]
pub(super) struct ThreadTable {
    threads: HashMap<u32, KnownThread>, // all known threads by id
    ended: VecDeque<(u64, u32)>,        // time and id of ends, in the order of time
    sample: u64,                        // number of the current sample
    swept: u64,                         // number of the sample of the last sweep
    mentioned: Vec<u32>,                // thread ids, in the order of their indexes
    rows: Vec<ScheduledThread>,         // reused
    is_full: bool,                      // whether the current sample lacks a thread
}

#[derive(Debug, Clone, Copy)]
struct KnownThread {
    process: u32, // 0 if the process is not known
    name: ThreadName,
    ended_ns: u64, // 0 while the thread lives
    sample: u64,   // the last sample that mentions the thread
    index: u16,    // index in that sample
}

impl ThreadTable {
    /// Creates a table that has only the idle loop.
    pub(super) fn new() -> Self {
        let mut table = Self::default();
        table.set_name(ThreadId { process: 0, thread: 0 }, truncated(IDLE_NAME));
        table
    }

    /// Adds the threads that /proc lists, and reserves memory for as many additional threads.
    /// Threads that end during the listing are left out.
    pub(super) fn add_existing(&mut self, host: &HostRoot) -> io::Result<()> {
        let mut proc = host.directory("proc")?;
        let mut processes = Vec::new();
        proc.list(|name| processes.extend(number(name)))?;
        let mut threads = Vec::new();
        for process in processes {
            threads.clear();
            let Ok(tasks) = CString::new(format!("{process}/task")) else { continue };
            if proc.list_subdirectory(&tasks, |name| threads.extend(number(name))).is_err() {
                continue;
            }
            for thread in &threads {
                if let Some(name) = name_in_proc(&proc, process, *thread) {
                    self.set_name(ThreadId { process, thread: *thread }, name);
                }
            }
        }
        let reserved = self.threads.len() + RESERVED_EXTRA;
        self.threads.reserve(reserved);
        self.ended.reserve(reserved);
        self.mentioned.reserve(2 * reserved);
        self.rows.reserve(2 * reserved);
        Ok(())
    }

    /// Begins a sample that mentions only the idle loop.
    pub(super) fn begin_sample(&mut self) {
        self.sample += 1;
        self.is_full = false;
        self.mentioned.clear();
        if self.threads.len() >= THREADS_MAX && self.sample >= self.swept + SWEEP_SAMPLES {
            self.swept = self.sample;
            let oldest = self.sample.saturating_sub(UNMENTIONED_SAMPLES);
            self.threads.retain(|id, thread| *id == 0 || thread.sample >= oldest);
        }
        self.mention(ThreadId { process: 0, thread: 0 });
    }

    /// Returns the index of a thread in this sample, or `None` if there are too many threads.
    pub(super) fn mention(&mut self, id: ThreadId) -> Option<u16> {
        let next = self.mentioned.len();
        let sample = self.sample;
        let thread = self.known(id)?;
        if thread.sample != sample {
            if next >= MENTIONS_MAX {
                self.is_full = true;
                return None;
            }
            thread.sample = sample;
            thread.index = u16::try_from(next).ok()?;
            self.mentioned.push(id.thread);
            return u16::try_from(next).ok();
        }
        Some(thread.index)
    }

    /// If there are too many threads, returns the reason why the sample lacks threads, and
    /// therefore events.
    pub(super) fn incomplete(&self) -> Incomplete {
        Incomplete::TOO_MANY.unless(!self.is_full)
    }

    /// Returns the process of a thread, or 0 if it is not known.
    pub(super) fn process_of(&self, thread: u32) -> u32 {
        self.threads.get(&thread).map_or(0, |known| known.process)
    }

    /// Returns whether a running thread has taken over the id of its process. A thread that
    /// executes another program takes over this id after the first thread has ended. The kernel
    /// reports the exec only later.
    pub(super) fn has_taken_over(&self, running: ThreadId, now: ThreadId) -> bool {
        now.thread == now.process
            && running.process == now.process
            && self.threads.get(&now.thread).is_some_and(|first| first.ended_ns != 0)
    }

    /// Handles the begin of a thread, which inherits the name of its parent.
    pub(super) fn fork(&mut self, child: ThreadId, parent: ThreadId) {
        let name = self.threads.get(&parent.thread).map_or([0; THREAD_NAME_BYTES], |parent| parent.name);
        // A child may have the id of an earlier thread that has ended.
        if let Some(thread) = self.known(child) {
            (thread.process, thread.name, thread.ended_ns) = (child.process, name, 0);
        }
    }

    /// Handles the new name of a thread.
    pub(super) fn set_name(&mut self, id: ThreadId, name: ThreadName) {
        if let Some(thread) = self.known(id) {
            // The thread lives, even if an end was recorded, because a thread that runs another
            // program takes over the id of the first thread, which has ended.
            (thread.process, thread.name, thread.ended_ns) = (id.process, name, 0);
        }
    }

    /// Handles the end of a thread.
    pub(super) fn end(&mut self, id: ThreadId, time: u64) {
        if let Some(thread) = self.known(id) {
            thread.ended_ns = time.max(1);
            // Each thread in the queue is in the table, or has been replaced by a thread with the
            // same id.
            if self.ended.len() < THREADS_MAX {
                self.ended.push_back((time.max(1), id.thread));
            }
        }
    }

    /// Returns the rows of the threads that this sample mentions, with their last names, and drops
    /// threads that ended long before `end_ns`.
    pub(super) fn end_sample(&mut self, end_ns: u64) -> &[ScheduledThread] {
        let Self { threads, mentioned, rows, .. } = self;
        rows.clear();
        rows.extend(mentioned.iter().map(|thread| {
            let known = threads.get(thread);
            let (process, name) =
                known.map_or((0, [0; THREAD_NAME_BYTES]), |known| (known.process, known.name));
            ScheduledThread::new(*thread, process, &name)
        }));
        while let Some((ended_ns, thread)) = self.ended.front().copied()
            && ended_ns.saturating_add(FORGET_AFTER_NS) < end_ns
        {
            self.ended.pop_front();
            if self.threads.get(&thread).is_some_and(|known| known.ended_ns == ended_ns) {
                self.threads.remove(&thread);
            }
        }
        &self.rows
    }

    /// Returns a thread, and adds it first if it is new. Returns `None` if the table is full.
    fn known(&mut self, id: ThreadId) -> Option<&mut KnownThread> {
        let is_full = self.threads.len() >= THREADS_MAX;
        match self.threads.entry(id.thread) {
            Entry::Occupied(entry) => {
                let thread = entry.into_mut();
                if thread.process == 0 {
                    thread.process = id.process;
                }
                Some(thread)
            }
            Entry::Vacant(_) if is_full => {
                self.is_full = true;
                None
            }
            Entry::Vacant(entry) => Some(entry.insert(KnownThread {
                process: id.process,
                name: [0; THREAD_NAME_BYTES],
                ended_ns: 0,
                sample: 0,
                index: 0,
            })),
        }
    }
}

fn number(name: &CStr) -> Option<u32> {
    text::number(name.to_bytes()).and_then(|number| u32::try_from(number).ok())
}

fn name_in_proc(proc: &HostDirectory, process: u32, thread: u32) -> Option<ThreadName> {
    let path = CString::new(format!("{process}/task/{thread}/comm")).ok()?;
    // The kernel's own threads have longer names than other threads.
    let mut buffer = [0; 64];
    let file = proc.open_small_file(&path).ok()?;
    Some(truncated(file.read(&mut buffer).ok()?.trim_ascii_end()))
}

/// Returns a name with at least one zero byte at its end.
fn truncated(text: &[u8]) -> ThreadName {
    let mut name = [0; THREAD_NAME_BYTES];
    let places = name.iter_mut().take(THREAD_NAME_BYTES - 1);
    places.zip(text).for_each(|(place, byte)| *place = *byte);
    name
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sources::tests::{fixed_text, host_with};

    fn id(process: u32, thread: u32) -> ThreadId {
        ThreadId { process, thread }
    }

    /// Returns thread, process and name of each row.
    fn rows(table: &mut ThreadTable, end_ns: u64) -> Vec<(u32, u32, String)> {
        let rows = table.end_sample(end_ns).iter();
        rows.map(|row| (row.thread(), row.process(), fixed_text(row.name()))).collect()
    }

    // Proves that each sample has its own indexes, and that names are inherited and replaced. A new
    // thread gets its process as soon as the process is known.
    #[test]
    fn samples_mention_threads() {
        let mut table = ThreadTable::new();
        table.set_name(id(7, 7), truncated(b"shell"));
        table.begin_sample();
        assert_eq!(table.mention(id(7, 7)), Some(1));
        table.fork(id(8, 8), id(7, 7));
        assert_eq!((table.mention(id(0, 9)), table.mention(id(8, 8))), (Some(2), Some(3)));
        assert_eq!((table.mention(id(7, 7)), table.mention(id(0, 0))), (Some(1), Some(0)));
        table.set_name(id(7, 7), truncated(b"a name that is too long"));
        let row = |thread, process, name: &str| (thread, process, name.to_owned());
        assert_eq!(
            rows(&mut table, 1),
            [row(0, 0, "idle"), row(7, 7, "a name that is "), row(9, 0, ""), row(8, 8, "shell")]
        );
        table.begin_sample();
        assert_eq!((table.mention(id(90, 9)), table.process_of(9)), (Some(1), 90));
        assert_eq!(rows(&mut table, 2), [row(0, 0, "idle"), row(9, 90, "")]);
    }

    // Proves that a thread is known for a while after its end, and that a later thread with the
    // same id is treated as a different thread.
    #[test]
    fn threads_are_forgotten() {
        let mut table = ThreadTable::new();
        for thread in [5, 6] {
            table.set_name(id(5, thread), truncated(b"old"));
            table.end(id(5, thread), 100);
        }
        table.fork(id(6, 6), id(1, 1));
        rows(&mut table, 100 + FORGET_AFTER_NS);
        assert_eq!(table.threads.len(), 3);
        rows(&mut table, 101 + FORGET_AFTER_NS);
        let mut left: Vec<u32> = table.threads.keys().copied().collect();
        left.sort_unstable();
        assert_eq!(left, [0, 6]);
        assert!(table.ended.is_empty());
    }

    // Proves that a sample mentions at most as many threads as 16 bits can name, and that the table
    // has at most the limit of threads. Only samples that lack a thread because of these limits are
    // marked.
    #[test]
    fn tables_are_bounded() {
        let mut table = ThreadTable::new();
        table.begin_sample();
        let named = (0..70_000).filter(|thread| table.mention(id(1, *thread)).is_some()).count();
        assert_eq!(named, MENTIONS_MAX);
        assert_eq!(table.incomplete(), Incomplete::TOO_MANY);
        table.begin_sample();
        assert_eq!(table.incomplete(), Incomplete::NONE, "this sample mentions one thread");
        let limit = u32::try_from(THREADS_MAX).unwrap();
        (0..limit + 10).for_each(|thread| table.set_name(id(1, thread), truncated(b"x")));
        assert_eq!(table.threads.len(), THREADS_MAX);
        table.begin_sample();
        assert_eq!((table.mention(id(1, 5)), table.incomplete()), (Some(1), Incomplete::NONE));
        assert_eq!((table.mention(id(1, limit + 1)), table.incomplete()), (None, Incomplete::TOO_MANY));
        for _ in 0..UNMENTIONED_SAMPLES + 2 * SWEEP_SAMPLES {
            table.begin_sample();
            table.mention(id(1, 7));
        }
        table.begin_sample();
        assert_eq!((table.mention(id(1, limit + 1)), table.mention(id(1, 7))), (Some(1), Some(2)));
        assert_eq!(table.incomplete(), Incomplete::NONE);
        assert_eq!(table.threads.len(), 3, "those that nothing mentions are forgotten");
    }

    // Proves that a program keeps its name if the thread that runs it was not the first thread of
    // the process. The first thread ends, but the id of the first thread continues to exist.
    #[test]
    fn a_new_program_lives_on() {
        let mut table = ThreadTable::new();
        table.set_name(id(5, 5), truncated(b"old"));
        table.end(id(5, 5), 100);
        table.set_name(id(5, 5), truncated(b"new"));
        table.begin_sample();
        rows(&mut table, 101 + FORGET_AFTER_NS);
        table.begin_sample();
        table.mention(id(5, 5));
        assert_eq!(rows(&mut table, 200)[1], (5, 5, "new".to_owned()));
    }

    // Proves that existing threads are found with their names, and that entries that are not
    // threads are ignored.
    #[test]
    fn existing_threads_are_found() {
        let host = host_with(&[
            ("proc/7/task/7/comm", "shell\n"),
            ("proc/7/task/8/comm", "a kernel thread's long name\n"),
            ("proc/sys/kernel/x", "1\n"),
            ("proc/9/stat", "9\n"),
        ]);
        let mut table = ThreadTable::new();
        table.add_existing(&HostRoot::new(host.path())).unwrap();
        assert_eq!(table.threads.len(), 3);
        assert_eq!((table.process_of(7), table.process_of(8), table.process_of(9)), (7, 7, 0));
        assert_eq!(table.threads[&8].name, truncated(b"a kernel thread"));
        assert!(ThreadTable::new().add_existing(&HostRoot::new(Path::new("/nowhere"))).is_err());
    }
}
