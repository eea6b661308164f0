//! Threads that share a simulated storage and run alternately. Only one thread runs at a time, from
//! one operation of the storage to the next. A seed determines the order of the threads.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex};

use flatcap_format::storage::{DiskSpace, FileAttributes, FileEntry, ReadAt, Storage, StorageFile};
use flatcap_format::testing::simulated::{SimulatedStorage, SimulationRandom};

/// Decides which thread runs.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TurnState {
    waiting: BTreeSet<usize>,
    running: BTreeSet<usize>, // neither waiting nor done
}

impl Turns {
    /// Waits until this thread may run.
    fn wait(&self, thread: usize) {
        let mut state = self.state.lock().unwrap();
        state.running.remove(&thread);
        state.waiting.insert(thread);
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.waiting.contains(&thread)).unwrap());
    }

    /// Records that `threads` threads are running.
    pub(super) fn begin(&self, threads: usize) {
        self.state.lock().unwrap().running.extend(0..threads);
    }

    fn end(&self, thread: usize) {
        self.state.lock().unwrap().running.remove(&thread);
        self.changed.notify_all();
    }

    /// Waits until no thread runs. Returns the threads that wait until they may run.
    pub(super) fn waiting(&self) -> Vec<usize> {
        let state = self.state.lock().unwrap();
        let state = self.changed.wait_while(state, |state| !state.running.is_empty()).unwrap();
        state.waiting.iter().copied().collect()
    }

    pub(super) fn give(&self, thread: usize) {
        let mut state = self.state.lock().unwrap();
        state.waiting.remove(&thread);
        state.running.insert(thread);
        self.changed.notify_all();
    }
}

/// Ends the turns of a thread when it is dropped, even if the thread panics.
pub(super) struct TurnsEnd<'t>(pub(super) &'t Turns, pub(super) usize);

impl Drop for TurnsEnd<'_> {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}

/// A storage that, before each operation, waits until its thread may run.
#[derive(Debug, Clone)]
pub(super) struct TurnStorage {
    pub(super) disk: SimulatedStorage,
    pub(super) turns: Arc<Turns>,
    pub(super) thread: usize,
}

#[derive(Debug)]
struct TurnFile {
    file: Arc<dyn StorageFile>,
    turns: Arc<Turns>,
    thread: usize,
}

impl TurnStorage {
    fn turn(&self) -> &SimulatedStorage {
        self.turns.wait(self.thread);
        &self.disk
    }

    fn file(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(TurnFile { file, turns: Arc::clone(&self.turns), thread: self.thread })
    }
}

impl Storage for TurnStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.turn().create(name).map(|file| self.file(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.turn().open(name).map(|file| self.file(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.turn().rename(from, to)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.turn().exchange(one, other)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.turn().replace(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.turn().remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.turn().sync_directory()
    }

    fn entries(&self) -> io::Result<Vec<FileEntry>> {
        self.turn().entries()
    }

    fn space(&self) -> io::Result<DiskSpace> {
        self.disk.space()
    }
}

impl ReadAt for TurnFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

impl StorageFile for TurnFile {
    fn append(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.turns.wait(self.thread);
        self.file.append(slices)
    }

    fn preallocate(&self, end: u64) -> io::Result<()> {
        self.file.preallocate(end)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.turns.wait(self.thread);
        self.file.truncate(length)
    }

    fn allocated(&self) -> io::Result<u64> {
        self.file.allocated()
    }

    fn attributes(&self) -> io::Result<FileAttributes> {
        self.file.attributes()
    }

    fn set_attributes(&self, attributes: &FileAttributes) -> io::Result<()> {
        self.file.set_attributes(attributes)
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        self.file.identity()
    }

    fn sync(&self) -> io::Result<()> {
        self.turns.wait(self.thread);
        self.file.sync()
    }
}

/// Selects the next thread.
pub(super) struct Order<'r> {
    random: &'r mut SimulationRandom,
    /// The priority of each thread. The thread with the highest priority runs until its priority
    /// becomes the lowest. If the list is empty, the next thread is random.
    priorities: Vec<usize>,
}

impl Order<'_> {
    pub(super) fn new(random: &mut SimulationRandom, threads: usize) -> Order<'_> {
        let mut priorities: Vec<usize> = Vec::new();
        if random.below(2) == 0 {
            while priorities.len() < threads {
                priorities.insert(random.below(priorities.len() + 1), priorities.len());
            }
        }
        Order { random, priorities }
    }

    pub(super) fn next(&mut self, waiting: &[usize]) -> usize {
        let Some(at) = self.priorities.iter().position(|thread| waiting.contains(thread)) else {
            return waiting[self.random.below(waiting.len())];
        };
        let thread = self.priorities[at];
        if self.random.below(12) == 0 {
            self.priorities.remove(at);
            self.priorities.push(thread);
        }
        thread
    }
}
