//! The threads and processes of the host, with the names and the mapped code that samples need.

use std::collections::HashMap;
use std::sync::Arc;

use super::address_space::{AddressSpace, CodeMapping};

/// Maximum number of threads, and maximum number of processes. Nothing is stored about further
/// threads and processes.
const THREADS_MAX: usize = 1 << 16;
const PROCESSES_MAX: usize = 1 << 14;
/// Maximum number of mappings of all processes, of 32 bytes each. Code in further mappings is
/// unknown.
const MAPPINGS_MAX: usize = 1 << 18;

/// Name of a thread, ended by a zero byte.
pub(super) type ThreadName = [u8; 16];

/// Threads and processes.
#[derive(Debug, Default)]
pub(super) struct TaskTable {
    threads: HashMap<u32, Thread>,
    processes: HashMap<u32, Process>,
    mappings: usize, // of all processes; a shared address space counts one time
}

#[derive(Debug)]
struct Thread {
    process: u32,
    name: Option<ThreadName>,
}

/// A process of which at least one thread is known.
#[derive(Debug, Default)]
struct Process {
    threads: usize,
    /// The process shares its address space with its parent until one of the two maps other code.
    space: Arc<AddressSpace>,
}

impl TaskTable {
    /// Returns the name of a thread, if it is known.
    pub(super) fn name(&self, thread: u32) -> Option<ThreadName> {
        self.threads.get(&thread)?.name
    }

    /// Returns the mapping that contains an address of a process.
    pub(super) fn find(&self, process: u32, address: u64) -> Option<&CodeMapping> {
        self.processes.get(&process)?.space.find(address)
    }

    /// Records the name of a thread.
    pub(super) fn set_name(&mut self, process: u32, thread: u32, name: ThreadName) {
        if self.note(process, thread)
            && let Some(thread) = self.threads.get_mut(&thread)
        {
            thread.name = Some(name);
        }
    }

    /// Records that a process has a thread.
    pub(super) fn add(&mut self, process: u32, thread: u32) {
        let _has_space = self.note(process, thread);
    }

    /// Records that a thread was started by another thread. The first thread of a process inherits
    /// the code of its parent.
    pub(super) fn fork(&mut self, (process, thread): (u32, u32), parent: (u32, u32)) {
        if process != parent.0 {
            // Earlier threads with these numbers have ended, even if the records of their ends were
            // lost.
            self.exit(thread);
            self.remove_process(process);
        }
        let name = self.name(parent.1);
        if !self.note(process, thread) {
            return;
        }
        if let Some(thread) = self.threads.get_mut(&thread) {
            thread.name = name;
        }
        let parent = self.processes.get(&parent.0).filter(|_| process != parent.0);
        if let Some(space) = parent.map(|parent| Arc::clone(&parent.space))
            && let Some(process) = self.processes.get_mut(&process)
        {
            process.space = space;
        }
    }

    /// Records that a process runs another program, so that it loses its old code and has only one
    /// thread.
    pub(super) fn exec(&mut self, process: u32, thread: u32) {
        self.remove_process(process);
        self.note(process, thread);
    }

    /// Records that a thread has ended. The process ends with its last thread.
    pub(super) fn exit(&mut self, thread: u32) {
        let Some(Thread { process: number, .. }) = self.threads.remove(&thread) else { return };
        if let Some(process) = self.processes.get_mut(&number) {
            process.threads -= 1;
            if process.threads == 0 {
                self.remove_space(number);
            }
        }
    }

    /// Records that a thread has mapped code. If there are too many mappings, the mapping is not
    /// stored and its code is unknown.
    pub(super) fn map(&mut self, process: u32, thread: u32, mapping: CodeMapping) {
        if !self.note(process, thread) {
            return;
        }
        let Some(process) = self.processes.get_mut(&process) else { return };
        let before = process.space.len();
        let is_shared = Arc::strong_count(&process.space) > 1;
        // The maximum number of mappings that a copy would add.
        let added = 2 + if is_shared { before } else { 0 };
        if self.mappings + added > MAPPINGS_MAX {
            return;
        }
        let space = Arc::make_mut(&mut process.space);
        space.insert(mapping);
        self.mappings = self.mappings + space.len() - if is_shared { 0 } else { before };
    }

    /// Adds a thread if it is not in the table yet. Returns false if there are too many threads or
    /// processes.
    fn note(&mut self, process: u32, thread: u32) -> bool {
        match self.threads.get(&thread) {
            Some(known) if known.process == process => return true,
            // The record of the end of an earlier thread with this number was lost.
            Some(_) => self.exit(thread),
            None => {}
        }
        let has_space = self.threads.len() < THREADS_MAX
            && (self.processes.len() < PROCESSES_MAX || self.processes.contains_key(&process));
        if has_space {
            self.threads.insert(thread, Thread { process, name: None });
            self.processes.entry(process).or_default().threads += 1;
        }
        has_space
    }

    /// Forgets a process with its threads.
    fn remove_process(&mut self, number: u32) {
        if let Some(process) = self.processes.get(&number) {
            if process.threads == 1
                && self.threads.get(&number).is_some_and(|thread| thread.process == number)
            {
                self.threads.remove(&number);
            } else {
                // This search is rare, because it is needed only if a process with several threads
                // runs another program.
                self.threads.retain(|_, thread| thread.process != number);
            }
            self.remove_space(number);
        }
    }

    fn remove_space(&mut self, number: u32) {
        if let Some(process) = self.processes.remove(&number)
            && let Some(space) = Arc::into_inner(process.space)
        {
            self.mappings -= space.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use flatcap_tasks::schema::CodeKind;
    use proptest::prelude::*;

    use super::super::code_file::CodeFile;
    use super::*;

    const NAME: ThreadName = *b"worker\0\0\0\0\0\0\0\0\0\0";

    fn mapping(start: u64) -> CodeMapping {
        let file = Arc::new(CodeFile::other(start, CodeKind::File, "/file", None));
        CodeMapping { start, end: start + 16, offset: 0, file }
    }

    /// Checks that the table is consistent.
    fn assert_sound(table: &TaskTable) {
        for (number, process) in &table.processes {
            let threads = table.threads.values().filter(|thread| thread.process == *number).count();
            assert!(threads > 0 && process.threads == threads, "{table:?}");
        }
        assert!(table.threads.values().all(|thread| table.processes.contains_key(&thread.process)));
        let mut spaces: Vec<_> = table
            .processes
            .values()
            .map(|process| (Arc::as_ptr(&process.space), process.space.len()))
            .collect();
        spaces.sort_unstable();
        spaces.dedup();
        assert_eq!(table.mappings, spaces.iter().map(|(_, mappings)| mappings).sum::<usize>());
    }

    // Proves that a child has the code and the name of its parent until it runs another program.
    // Code that the child or the parent maps later does not belong to the other process.
    #[test]
    fn code_is_inherited() {
        let mut table = TaskTable::default();
        table.set_name(1, 1, NAME);
        table.map(1, 1, mapping(0x1000));
        table.fork((2, 2), (1, 1));
        assert_eq!((table.name(2), table.mappings), (Some(NAME), 1));
        table.map(2, 2, mapping(0x2000));
        table.map(1, 1, mapping(0x3000));
        let found = |table: &TaskTable, process, address| table.find(process, address).is_some();
        assert!(found(&table, 2, 0x100F) && found(&table, 2, 0x2000) && !found(&table, 2, 0x3000));
        assert!(found(&table, 1, 0x1000) && !found(&table, 1, 0x2000) && found(&table, 1, 0x3000));
        table.exec(2, 2);
        assert!(!found(&table, 2, 0x1000) && found(&table, 1, 0x1000) && table.name(2).is_none());
        assert_sound(&table);
    }

    // Proves that a process is known until its last thread ends, whichever thread this is. Only one
    // thread is left after the process runs another program.
    #[test]
    fn a_process_ends_with_its_last_thread() {
        let mut table = TaskTable::default();
        table.map(1, 1, mapping(0x1000));
        table.fork((1, 5), (1, 1));
        table.exit(1);
        assert!(table.find(1, 0x1000).is_some());
        table.fork((1, 6), (1, 5));
        table.exit(5);
        table.exit(6);
        assert!(table.find(1, 0x1000).is_none() && table.processes.is_empty() && table.mappings == 0);
        table.fork((2, 2), (1, 1));
        table.fork((2, 7), (2, 2));
        table.exec(2, 2);
        table.map(2, 2, mapping(0x2000));
        table.exit(2);
        assert!(table.threads.is_empty() && table.processes.is_empty());
    }

    // Proves that the mappings of all processes together are limited, and that the end of a process
    // makes space for further mappings.
    #[test]
    fn mappings_are_limited() {
        let mut table = TaskTable::default();
        let processes =
            u32::try_from(MAPPINGS_MAX / super::super::address_space::SPACE_MAPPINGS_MAX).unwrap();
        for process in 1..=processes + 1 {
            for index in 0..super::super::address_space::SPACE_MAPPINGS_MAX as u64 {
                table.map(process, process, mapping(index * 32));
            }
        }
        assert!(table.mappings <= MAPPINGS_MAX && table.mappings > MAPPINGS_MAX - 8);
        table.map(processes + 1, processes + 1, mapping(1 << 40));
        assert!(table.find(processes + 1, 1 << 40).is_none());
        table.exit(1);
        table.map(processes + 1, processes + 1, mapping(1 << 40));
        assert!(table.find(processes + 1, 1 << 40).is_some());
        assert_sound(&table);
    }

    proptest! {
        // Proves that the table stays consistent for any order of events, even if numbers are
        // reused and events are lost.
        #[test]
        fn any_events_are_accepted(
            events in proptest::collection::vec((0_u8..5, 1_u32..5, 1_u32..8, 1_u32..5, 1_u32..8), 0..200),
        ) {
            let mut table = TaskTable::default();
            for (event, process, thread, parent, parent_thread) in events {
                match event {
                    0 => table.fork((process, thread), (parent, parent_thread)),
                    1 => table.exec(process, thread),
                    2 => table.exit(thread),
                    3 => table.map(process, thread, mapping(u64::from(parent) * 8)),
                    _ => table.set_name(process, thread, NAME),
                }
                assert_sound(&table);
            }
        }
    }
}
