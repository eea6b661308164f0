//! The processes of the host and their open files. The files stay open between samples, so that a
//! sample needs only one read per file.
//!
//! An open file belongs to the process for which it was opened. After that process is gone, reads
//! fail, and a later process with the same pid gets files of its own.
//!
//! A pass reads all processes or only the active ones. Active processes are those whose CPU clock
//! has advanced since their last read, and those that were ready to run or waited for a device at
//! that read. Without CPU clocks, the sampler makes processes active.

use std::cmp::Reverse;
use std::io::{self, ErrorKind};

use flatcap_os::clock::cpu_ns_of;
use flatcap_os::directory_handle::{DirectoryHandle, raise_open_files_limit};
use flatcap_os::host::{HostDirectory, HostRoot};

use super::slot::{
    ContentSpan, DUE_IN_ANY_PASS, DUE_IN_FULL_PASS, ExitState, ProcessContent, ProcessSlot, open_once,
};
use super::texts::{DETAIL_BYTES, RequestedTexts, with_path};
use crate::Incomplete;
use crate::sources::text::{self, ABSENT};

/// Maximum number of processes. Linux allows 32,768 by default.
pub(super) const PROCESSES_MAX: usize = 1 << 16;
/// Maximum lengths of `stat` and `io`. `stat` has a name and 52 numbers of up to 20 digits, and
/// `io` has 7 lines.
const STAT_BYTES_MAX: usize = 2048;
const IO_BYTES_MAX: usize = 512;
/// Maximum number of processes that begin between two full passes and are then read in each pass.
/// Other new processes are read only once. Without this limit, on a host that starts thousands of
/// processes, each of them would be read ten times a second.
const NEW_ACTIVE_MAX: usize = 256;
/// Maximum number of processes that are read between two full passes because they have run. Reading
/// this many takes 2 ms.
const ACTIVE_MAX: usize = 256;
/// CPU time since its last read from which a process is read between two full passes, in
/// nanoseconds.
// On an idle host, most processes only wake up for a timer. They would double the cost of a sample,
// and their few microseconds explain nothing.
const ACTIVE_NS_MIN: u64 = 100_000;
/// User and control group change rarely and are read again after about this time.
const DETAIL_INTERVAL_NS: u64 = 1_000_000_000;
/// Interval between reads of a process's details if the kernel reports all changes of the requested
/// details.
const EVENT_DETAIL_INTERVAL_NS: u64 = 8 * DETAIL_INTERVAL_NS;
/// The details of processes that were found in the same pass are not all read in one later pass.
/// Instead their reads are spread over half the interval in this many steps.
const DETAIL_SPREAD: u64 = 16;
/// Maximum number of forks between two samples that the table can handle one by one. If there are
/// more forks, all processes are listed again.
const FORKS_MAX: usize = 4096;
/// Memory is reserved for twice the number of processes at the start, plus this many.
const RESERVED_EXTRA: usize = 256;
/// Number of open files that the recorder needs for other purposes.
const OTHER_FILES: usize = 256;
/// Error of opening a file if the whole host has reached its limit of open files. The next constant
/// is the error if the recorder's process has reached its limit.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// The processes that a pass reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassScope {
    /// All processes.
    All,
    /// Processes that are active, and processes with an exec or an exit since the last pass.
    Active,
}

/// The table of all processes.
#[derive(Debug)]
pub(super) struct ProcessTable {
    listing: HostDirectory,
    proc: DirectoryHandle,
    visibility: Visibility,
    details: RequestedTexts,
    order: Vec<ListedProcess>,      // all listed processes, by ascending pid
    next_order: Vec<ListedProcess>, // the next order; empty between samples
    listed: Vec<u32>,
    forked_pids: Vec<u32>, // reported by the kernel since the last sample
    departed: Vec<DepartedProcess>,
    slots: Vec<ProcessSlot>,
    free: Vec<usize>,
    candidates: Vec<(u64, usize)>, // CPU time since the last read, and slot; reused
    raw: Vec<u8>,
    raw_used: usize, // number of bytes used in `raw`
    detail: Vec<u8>,
    files_open: usize, // open files; at most `files_open_max` between samples
    files_open_max: usize,
    detail_interval_ns: u64,
    scope: PassScope,
    new_active: usize, // number of new active processes since the last full pass
    has_clocks: bool,  // whether the host's pids are valid for this process
    has_schedstat: bool,
    skipped: usize, // number of processes skipped in the last pass
    incomplete: Incomplete,
}

/// The processes that /proc shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    /// All processes of the namespace.
    All,
    /// Only processes of the recorder's own user, because of the mount option hidepid.
    Own,
    /// Processes of a captured tree, which may lack the first process.
    Captured,
}

/// A process and the index of its slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListedProcess {
    pub(super) pid: u32,
    pub(super) slot: usize,
}

/// A process that is no longer listed and whose exit the kernel has not reported yet.
#[derive(Debug, Clone, Copy)]
struct DepartedProcess {
    pid: u32,
    start: u64,
}

impl ProcessTable {
    /// Opens the table. `has_events` states whether the kernel reports changes.
    pub(super) fn open(host: &HostRoot, details: RequestedTexts, has_events: bool) -> io::Result<Self> {
        let has_events = has_events && details.groups.is_none();
        let mut table = Self {
            listing: host.directory("proc")?,
            proc: DirectoryHandle::open(&host.path("proc"))?,
            visibility: if host.has_procfs() { Visibility::All } else { Visibility::Captured },
            details,
            order: Vec::new(),
            next_order: Vec::new(),
            listed: Vec::new(),
            forked_pids: Vec::with_capacity(FORKS_MAX),
            departed: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            candidates: Vec::new(),
            raw: Vec::new(),
            raw_used: 0,
            detail: vec![0; DETAIL_BYTES],
            files_open: 0,
            files_open_max: raise_open_files_limit(0) / 2,
            detail_interval_ns: if has_events { EVENT_DETAIL_INTERVAL_NS } else { DETAIL_INTERVAL_NS },
            scope: PassScope::All,
            new_active: 0,
            has_clocks: host.shares_pid_namespace(),
            has_schedstat: false,
            skipped: 0,
            incomplete: Incomplete::NONE,
        };
        table.list()?;
        table.has_schedstat = table
            .order
            .iter()
            .any(|process| with_path(process.pid, "/schedstat", |path| table.proc.open_file(path)).is_ok());
        table.reserve();
        Ok(table)
    }

    /// Reserves memory for twice the current number of processes, and some more. Up to that number
    /// of processes, the table later allocates nothing.
    fn reserve(&mut self) {
        let count = self.reserved();
        self.order.reserve(count);
        self.next_order.reserve(count);
        self.listed.reserve(count);
        self.departed.reserve(count);
        self.slots.reserve(count);
        self.free.reserve(count);
        self.candidates.reserve(count);
        self.raw.resize(count * (STAT_BYTES_MAX + IO_BYTES_MAX) / 4, 0);
    }

    /// Returns the number of processes for which memory is reserved at the start.
    pub(super) fn reserved(&self) -> usize {
        2 * self.order.len() + RESERVED_EXTRA
    }

    /// Reads the processes that `scope` selects. If /proc is not listed again, the function reads
    /// the processes of the last sample and the processes [`forked`](Self::forked) since then.
    pub(super) fn read(&mut self, now_ns: u64, scope: PassScope, must_list: bool) -> io::Result<()> {
        self.incomplete = Incomplete::NONE;
        self.departed.clear();
        self.scope = scope;
        self.skipped = 0;
        if scope == PassScope::All {
            self.new_active = 0;
        }
        if must_list || self.forked_pids.len() == FORKS_MAX {
            self.list()?;
        } else {
            self.apply_events();
        }
        self.forked_pids.clear();
        self.incomplete |= Incomplete::DENIED.unless(!self.is_hiding());
        self.incomplete |= Incomplete::TOO_MANY.unless(self.order.len() < PROCESSES_MAX);
        self.raw_used = 0;
        if scope == PassScope::Active && self.has_clocks {
            self.choose_by_clock();
        }
        for index in 0..self.order.len() {
            if let Some(process) = self.order.get(index).copied() {
                self.read_process(process, now_ns);
            }
        }
        // Sorted, because exits that are reported later are looked up by pid.
        self.departed.sort_unstable_by_key(|departed| departed.pid);
        Ok(())
    }

    /// Makes those processes active that have run for [`ACTIVE_NS_MIN`] since their last read, or
    /// that were ready to run or waited at that read. If there are too many, those that have run
    /// longest are chosen.
    fn choose_by_clock(&mut self) {
        let Self { order, slots, candidates, .. } = self;
        candidates.clear();
        for process in order.iter() {
            let Some(slot) = slots.get_mut(process.slot) else { continue };
            let now = cpu_ns_of(process.pid).unwrap_or(ABSENT);
            let ran_ns = ran_ns(slot.run_time, now);
            if slot.is_active || ran_ns >= ACTIVE_NS_MIN {
                candidates.push((ran_ns, process.slot));
            }
            slot.is_active = false;
        }
        if candidates.len() > ACTIVE_MAX {
            candidates.select_nth_unstable_by_key(ACTIVE_MAX - 1, |(ran_ns, _)| Reverse(*ran_ns));
            candidates.truncate(ACTIVE_MAX);
        }
        for (_, slot) in candidates.iter() {
            if let Some(slot) = slots.get_mut(*slot) {
                slot.is_active = true;
            }
        }
    }

    /// Returns all listed processes, by ascending pid.
    pub(super) fn order(&self) -> &[ListedProcess] {
        &self.order
    }

    /// Returns the number of listed processes that still existed at the last [`read`](Self::read).
    /// A process whose fork the kernel has reported may have ended before this read.
    pub(super) fn count(&self) -> usize {
        let is_there =
            |process: &&ListedProcess| self.slots.get(process.slot).is_some_and(|slot| !slot.is_gone);
        self.order.iter().filter(is_there).count()
    }

    /// Returns whether the kernel hides the processes of other users, so that their number is
    /// unknown.
    pub(super) fn is_hiding(&self) -> bool {
        self.visibility == Visibility::Own
    }

    /// Returns the number of processes that the last [`read`](Self::read) skipped.
    pub(super) fn skipped(&self) -> usize {
        self.skipped
    }

    /// Returns whether the CPU clocks of processes can be read.
    pub(super) fn has_clocks(&self) -> bool {
        self.has_clocks
    }

    /// Makes a process active, or inactive, until the next call for it.
    pub(super) fn set_active(&mut self, slot: usize, is_active: bool) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.is_active = is_active;
        }
    }

    /// Returns the reasons why the last [`read`](Self::read) was incomplete.
    pub(super) fn incomplete(&self) -> Incomplete {
        self.incomplete
    }

    /// Returns the state and the content of a process, or `None` if nothing was read.
    pub(super) fn get(&mut self, process: ListedProcess) -> Option<(&mut ProcessSlot, ProcessContent<'_>)> {
        let slot = self.slots.get_mut(process.slot)?;
        let ContentSpan { at, stat, io } = slot.content;
        let (stat, io) = self.raw.get(at..at + stat + io)?.split_at_checked(stat)?;
        let is_io_denied = slot.is_io_denied;
        let io = (!io.is_empty()).then_some(io);
        (!stat.is_empty()).then_some((slot, ProcessContent { stat, io, is_io_denied }))
    }

    /// Returns the state of a process.
    pub(super) fn slot(&self, index: usize) -> Option<&ProcessSlot> {
        self.slots.get(index)
    }

    /// Returns the state of a process, for changes.
    pub(super) fn slot_mut(&mut self, index: usize) -> Option<&mut ProcessSlot> {
        self.slots.get_mut(index)
    }

    /// Handles a new process, as reported by the kernel.
    pub(super) fn forked(&mut self, pid: u32) {
        if self.forked_pids.len() < FORKS_MAX {
            self.forked_pids.push(pid);
        }
    }

    /// Handles the exit of a process, as reported by the kernel. Returns the start time of the
    /// process if a sample contained the process.
    pub(super) fn exited(&mut self, pid: u32) -> u64 {
        let reported = DepartedProcess { pid, start: ABSENT };
        if let Ok(at) = self.departed.binary_search_by_key(&pid, |departed| departed.pid)
            && let Some(departed) = self.departed.get_mut(at)
            && departed.start != ABSENT
        {
            return std::mem::replace(departed, reported).start;
        }
        match self.slot_of(pid) {
            Some(slot) if slot.exit != ExitState::Reported => {
                let is_uncertain =
                    std::mem::replace(&mut slot.exit, ExitState::Reported) == ExitState::Uncertain;
                slot.detail_due_ns = DUE_IN_ANY_PASS;
                if is_uncertain { ABSENT } else { slot.start }
            }
            _ => ABSENT,
        }
    }

    /// Returns the number of new processes that the kernel has reported since the last sample.
    pub(super) fn fork_count(&self) -> usize {
        self.forked_pids.len()
    }

    /// Handles an exec that the kernel has reported after it reported an exit of the same pid.
    /// `forks_before` is the number of forks that were reported before that exit. Returns whether
    /// the pid still belongs to the same process. If a thread other than the first one runs a
    /// program, the first thread ends, but the process continues under the same pid.
    pub(super) fn survives_exec(&mut self, pid: u32, forks_before: usize) -> bool {
        let since = self.forked_pids.get(forks_before..).unwrap_or_default();
        if self.forked_pids.len() == FORKS_MAX || since.contains(&pid) {
            return false;
        }
        if let Some(slot) = self.slot_of(pid).filter(|slot| slot.exit == ExitState::Reported) {
            slot.exit = ExitState::NotReported;
        }
        true
    }

    /// Handles a change of a process's program, user or name, as reported by the kernel. The filter
    /// may now select the process differently.
    pub(super) fn changed(&mut self, pid: u32) {
        if let Some(slot) = self.slot_of(pid) {
            slot.detail_due_ns = DUE_IN_ANY_PASS;
            slot.names.set_changed();
        }
    }

    /// Handles lost events. Until the next sample, reported exits are not assigned to known
    /// processes. Every process may have changed.
    pub(super) fn events_lost(&mut self) {
        self.departed.clear();
        for process in &self.order {
            if let Some(slot) = self.slots.get_mut(process.slot) {
                if slot.exit == ExitState::NotReported {
                    slot.exit = ExitState::Uncertain;
                }
                slot.detail_due_ns = DUE_IN_ANY_PASS;
                slot.names.set_changed();
            }
        }
    }

    fn slot_of(&mut self, pid: u32) -> Option<&mut ProcessSlot> {
        let at = self.order.binary_search_by_key(&pid, |process| process.pid).ok()?;
        self.slots.get_mut(self.order.get(at)?.slot)
    }

    /// Lists the processes and updates the order.
    fn list(&mut self) -> io::Result<()> {
        let listed = &mut self.listed;
        listed.clear();
        self.listing.list(|name| {
            if let Some(pid) = text::number(name.to_bytes()).and_then(|pid| u32::try_from(pid).ok())
                && listed.len() < PROCESSES_MAX
            {
                listed.push(pid);
            }
        })?;
        // The kernel lists processes by ascending pid, but the file system of a captured tree may
        // not.
        if !listed.is_sorted() {
            listed.sort_unstable();
        }
        listed.dedup(); // the names 07 and 7, possible only in a captured tree
        // The first process lives as long as its namespace.
        if self.visibility != Visibility::Captured {
            let first = self.proc.ownership_of(c"1");
            let is_hidden = first.is_err_and(|error| error.kind() == ErrorKind::NotFound);
            self.visibility = if is_hidden { Visibility::Own } else { Visibility::All };
        }
        self.reconcile();
        Ok(())
    }

    /// Updates the order from events. Removes processes that are gone, and adds new ones.
    fn apply_events(&mut self) {
        let Self { listed, forked_pids, order, slots, .. } = self;
        let is_there = |process: &&ListedProcess| slots.get(process.slot).is_some_and(|slot| !slot.is_gone);
        if forked_pids.is_empty() && order.iter().all(|process| is_there(&process)) {
            return;
        }
        listed.clear();
        listed.extend(
            order.iter().filter(is_there).map(|process| process.pid).chain(forked_pids.iter().copied()),
        );
        listed.sort_unstable();
        listed.dedup();
        listed.truncate(PROCESSES_MAX);
        self.reconcile();
    }

    /// Replaces the order by `listed`, which is ascending.
    fn reconcile(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let order = std::mem::take(&mut self.order);
        let mut old = order.iter().copied().peekable();
        for pid in listed.iter().copied() {
            while let Some(gone) = old.next_if(|process| process.pid < pid) {
                self.release(gone);
            }
            let process = old.next_if(|known| known.pid == pid);
            let process = process.unwrap_or_else(|| self.add(pid));
            self.next_order.push(process);
        }
        for gone in old {
            self.release(gone);
        }
        self.listed = listed;
        self.order = std::mem::replace(&mut self.next_order, order);
        self.next_order.clear();
    }

    /// Adds a new process.
    fn add(&mut self, pid: u32) -> ListedProcess {
        let slot = self.take_slot();
        self.set_active(slot, self.new_active < NEW_ACTIVE_MAX);
        self.new_active += 1;
        ListedProcess { pid, slot }
    }

    fn take_slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(ProcessSlot::new());
            // Reserves memory, because all slots may be free at the same time.
            self.free.reserve(self.slots.len().saturating_sub(self.free.len()));
            self.slots.len() - 1
        })
    }

    fn release(&mut self, gone: ListedProcess) {
        self.clear_slot(gone);
        self.free.push(gone.slot);
    }

    /// Clears the slot of a process that is gone.
    fn clear_slot(&mut self, gone: ListedProcess) {
        let Some(slot) = self.slots.get_mut(gone.slot) else { return };
        if slot.exit == ExitState::NotReported && slot.start != ABSENT {
            self.departed.push(DepartedProcess { pid: gone.pid, start: slot.start });
        }
        self.files_open -= slot.clear();
    }

    fn read_process(&mut self, process: ListedProcess, now_ns: u64) {
        let was_open = self.slots.get(process.slot).is_some_and(|slot| slot.files.stat.is_some());
        let mut result = self.read_files(process, now_ns);
        if was_open && result.as_ref().is_err_and(is_gone) {
            // Another process may have this pid by now.
            self.clear_slot(process);
            self.set_active(process.slot, true);
            result = self.read_files(process, now_ns);
        }
        if let Err(error) = result {
            self.clear_slot(process);
            if let Some(slot) = self.slots.get_mut(process.slot) {
                slot.is_gone = is_gone(&error);
            }
            self.incomplete |= match error.kind() {
                _ if is_gone(&error) => Incomplete::NONE,
                ErrorKind::PermissionDenied => Incomplete::DENIED,
                _ if matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) => Incomplete::TOO_MANY,
                _ => Incomplete::UNREADABLE,
            };
        }
        // If more files are open than may be kept open, the files of this process are opened again
        // at each sample.
        if self.files_open > self.files_open_max {
            self.files_open_max = raise_open_files_limit(4 * self.files_open + OTHER_FILES) / 2;
        }
        if self.files_open > self.files_open_max
            && let Some(slot) = self.slots.get_mut(process.slot)
        {
            self.files_open -= slot.files.close();
            // Without open files, the next sample cannot detect whether this pid then belongs to
            // another process, so the user is read again as well.
            slot.detail_due_ns = if slot.is_active { DUE_IN_ANY_PASS } else { DUE_IN_FULL_PASS };
        }
    }

    /// Reads one process. `stat` is opened first and read last, so everything that is read in
    /// between belongs to the same process.
    fn read_files(&mut self, process: ListedProcess, now_ns: u64) -> io::Result<()> {
        let Self { slots, proc, raw, raw_used, files_open, .. } = self;
        let Some(slot) = slots.get_mut(process.slot) else { return Ok(()) };
        slot.content = ContentSpan::default();
        slot.is_gone = false;
        // A process that has ended is read until its parent has waited for it. After that its files
        // report that the process is gone.
        let is_urgent = slot.detail_due_ns == DUE_IN_ANY_PASS || slot.exit == ExitState::Reported;
        let is_due = is_urgent || (self.scope == PassScope::All && now_ns >= slot.detail_due_ns);
        if !is_due && !slot.is_wanted {
            return Ok(());
        }
        if self.scope == PassScope::Active && !is_urgent && !slot.is_active {
            self.skipped += 1;
            return Ok(());
        }
        let run_time = if self.has_clocks { cpu_ns_of(process.pid).unwrap_or(ABSENT) } else { ABSENT };
        let has_run = self.has_clocks && run_time != slot.run_time;
        slot.run_time = run_time;
        open_once(&mut slot.files.stat, proc, process.pid, "/stat", files_open)?;
        if is_due {
            let spread =
                u64::from(process.pid) % DETAIL_SPREAD * (self.detail_interval_ns / 2 / DETAIL_SPREAD);
            slot.detail_due_ns = now_ns + self.detail_interval_ns - spread;
            slot.read_details(proc, process.pid, &mut self.detail, &self.details)?;
        }
        // The wait time is in a third file. Reading it for all processes would take a quarter of
        // the time of the pass, and it changes only for a process that runs or is ready to run.
        let has_waited = slot.is_active || has_run;
        if !self.has_schedstat || !(has_waited || self.has_clocks) {
            slot.wait_time = ABSENT;
        } else if has_waited || slot.wait_time == ABSENT {
            slot.wait_time = slot.read_wait_time(proc, process.pid, files_open).unwrap_or(ABSENT);
        }

        let end = *raw_used + STAT_BYTES_MAX + IO_BYTES_MAX;
        if raw.len() < end {
            raw.resize(end.max(2 * raw.len()), 0);
        }
        let buffer = raw.get_mut(*raw_used..end).unwrap_or_default();
        let (stat_buffer, io_buffer) = buffer.split_at_mut(STAT_BYTES_MAX);
        let io_bytes = slot.read_io(proc, process.pid, io_buffer, files_open)?;
        let stat_file = open_once(&mut slot.files.stat, proc, process.pid, "/stat", files_open)?;
        let stat_bytes = stat_file.read(stat_buffer)?;
        buffer.copy_within(STAT_BYTES_MAX..STAT_BYTES_MAX + io_bytes, stat_bytes);
        if slot.exit == ExitState::Uncertain {
            slot.exit = ExitState::NotReported;
        }
        slot.content = ContentSpan { at: *raw_used, stat: stat_bytes, io: io_bytes };
        *raw_used += stat_bytes + io_bytes;
        Ok(())
    }
}

/// Returns whether the error of a process's file means that the process has ended.
fn is_gone(error: &io::Error) -> bool {
    const ESRCH: i32 = 3;
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

/// Returns the CPU time of a process between its last read and now. A process that has only one of
/// the two values has ended, or was never read. It counts as one that has run for the longest time.
fn ran_ns(last: u64, now: u64) -> u64 {
    match (last, now) {
        // A zombie has no clock.
        (ABSENT, ABSENT) => 0,
        (ABSENT, _) | (_, ABSENT) => u64::MAX,
        _ => now.saturating_sub(last),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const DETAILS: RequestedTexts = RequestedTexts { groups: None };

    fn process(root: &Path, pid: u32) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("stat"), format!("{pid} (x) S 1\n")).unwrap();
    }

    // Proves that a reported process that ended before it could be read is not counted.
    #[test]
    fn an_ended_process_is_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        process(folder.path(), 7);
        let mut table = ProcessTable::open(&HostRoot::new(folder.path()), DETAILS, true).unwrap();
        table.read(1, PassScope::All, true).unwrap();
        assert_eq!(table.count(), 1);
        process(folder.path(), 8);
        for pid in [8, 9, 10] {
            table.forked(pid);
        }
        table.read(2, PassScope::All, false).unwrap();
        assert_eq!((table.order().len(), table.count()), (4, 2));
    }

    // Proves that between two full passes, active and new processes are read, and that the others
    // are skipped and counted. A skipped process is read after a change or an exit.
    #[test]
    fn only_active_processes_are_read_between_full_passes() {
        let folder = tempfile::tempdir().unwrap();
        (5..=8).for_each(|pid| process(folder.path(), pid));
        let mut table = ProcessTable::open(&HostRoot::new(folder.path()), DETAILS, true).unwrap();
        let read = |table: &mut ProcessTable, now_ns, scope| -> (Vec<u32>, usize) {
            table.read(now_ns, scope, false).unwrap();
            let order = table.order().to_vec();
            let read = order.iter().filter(|process| table.get(**process).is_some());
            (read.map(|process| process.pid).collect(), table.skipped())
        };
        assert_eq!(read(&mut table, 1, PassScope::All), (vec![5, 6, 7, 8], 0));
        for process in table.order().to_vec() {
            table.set_active(process.slot, process.pid == 6);
        }
        assert_eq!(read(&mut table, 2, PassScope::Active), (vec![6], 3));
        process(folder.path(), 9);
        table.forked(9);
        assert_eq!(read(&mut table, 3, PassScope::Active), (vec![6, 9], 3));
        table.changed(7);
        assert_eq!(read(&mut table, 4, PassScope::Active), (vec![6, 7, 9], 2));
        table.exited(5);
        assert_eq!(read(&mut table, 5, PassScope::Active), (vec![5, 6, 9], 2));
        assert_eq!(table.count(), 5, "skipped processes exist");
        table.events_lost();
        assert_eq!(read(&mut table, 6, PassScope::Active), (vec![5, 6, 7, 8, 9], 0));
        assert_eq!(read(&mut table, 7, PassScope::Active), (vec![5, 6, 9], 2));
        assert_eq!(read(&mut table, 8, PassScope::All), (vec![5, 6, 7, 8, 9], 0));
    }

    // Proves that a process that was never read or has ended is read, whatever its clock says.
    #[test]
    fn a_process_without_a_clock_is_read() {
        assert_eq!((ran_ns(5, 12), ran_ns(12, 12)), (7, 0));
        assert_eq!((ran_ns(ABSENT, 12), ran_ns(12, ABSENT)), (u64::MAX, u64::MAX));
        assert_eq!(ran_ns(ABSENT, ABSENT), 0);
    }

    // Proves that a reused pid is shown with its new user at once, even if no file may be kept
    // open.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a process of the test's own host ends")]
    fn a_reused_pid_has_its_new_user() {
        let folder = tempfile::tempdir().unwrap();
        process(folder.path(), 7);
        let mut table = ProcessTable::open(&HostRoot::new(folder.path()), DETAILS, false).unwrap();
        let user = |table: &mut ProcessTable, now_ns| {
            (table.files_open, table.files_open_max) = (usize::MAX / 8, 0);
            table.read(now_ns, PassScope::All, true).unwrap();
            table.get(table.order()[0]).unwrap().0.user
        };
        let own = user(&mut table, 1);
        fs::remove_dir_all(folder.path().join("proc/7")).unwrap();
        process(folder.path(), 7);
        if std::os::unix::fs::chown(folder.path().join("proc/7"), Some(4711), None).is_err() {
            return println!("skipped: only root can change the owner of a file");
        }
        assert_ne!(own, 4711);
        assert_eq!(user(&mut table, 2), 4711);
    }
}
