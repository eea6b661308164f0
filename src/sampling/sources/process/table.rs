//! Which processes there are, with their open files, kept from sample to sample: a sample costs one read a file.
//!
//! A file that is kept open belongs to the process it was opened for: once that is gone its reads fail, and whoever has the same
//! pid then gets files of its own.

use std::io::{self, ErrorKind};

use super::stat::NAME_BYTES;
use super::texts::{DETAIL_BYTES_MAX, Details, Texts, with_path};
use super::told::End;
use crate::os::host::{HostDirectory, HostRoot};
use crate::os::host_node::{HostNode, ShortFile, allow_open_files};
use crate::sampling::Shortfall;
use crate::sampling::sources::text::{self, ABSENT};

/// Most processes that are looked at. Linux allows 32,768 unless told otherwise.
pub(super) const PROCESSES_MAX: usize = 1 << 16;
/// Longest `stat` and `io`: a name and 52 numbers of 20 digits, 7 lines.
const STAT_BYTES_MAX: usize = 2048;
const IO_BYTES_MAX: usize = 512;
/// User, control group and command line change rarely and are looked at so often, or a little more.
const DETAIL_INTERVAL_NS: u64 = 1_000_000_000;
/// So often where the kernel tells of a change, and nothing is asked for of which it does not.
const TOLD_INTERVAL_NS: u64 = 8 * DETAIL_INTERVAL_NS;
/// Processes that were found together do not stay together: they are spread over half the interval in so many steps.
const DETAIL_SPREAD: u64 = 16;
/// After more forks than these between two samples all processes are listed anew.
const BORN_MAX: usize = 4096;
/// Memory is taken for so many processes more than twice those that there are.
const SPARE_PROCESSES: usize = 256;
/// Files that are opened beside those of processes.
const OTHER_FILES: usize = 256;
/// The process, or the whole host, has as many files open as it may.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
/// All processes.
#[derive(Debug)]
pub(super) struct Table {
    listing: HostDirectory,
    proc: HostNode,
    details: Details,
    order: Vec<Known>, // by rising pid
    next: Vec<Known>,  // the order to come; empty between samples
    listed: Vec<u32>,
    born: Vec<u32>, // since the last sample, as the kernel told
    departed: Vec<Departed>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    raw: Vec<u8>,
    used: usize, // of raw
    detail: Vec<u8>,
    kept: usize, // files that are open; at most `kept_max` between samples
    kept_max: usize,
    detail_interval_ns: u64,
    shortfall: Shortfall,
}

/// A process and its place among the slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) pid: u32,
    pub(super) slot: usize,
}

/// A process that is no longer listed, until the kernel has told of its end.
#[derive(Debug, Clone, Copy)]
struct Departed {
    pid: u32,
    start: u64,
}

/// What is kept of one process.
#[derive(Debug)]
pub(super) struct Slot {
    stat: Option<ShortFile>,
    io: Option<ShortFile>,
    reading: Reading,
    is_io_denied: bool,
    detail_due_ns: u64,
    end: End,
    is_gone: bool, // its files said so at the last sample
    /// When it started, as the last sample said.
    pub(super) start: u64,
    /// Its user's number.
    pub(super) user: u64,
    /// Whether the last sample recorded it. What is not recorded is looked at when its details are.
    pub(super) is_wanted: bool,
    /// What that was decided on.
    pub(super) judged: Option<([u8; NAME_BYTES], u64)>,
    /// Processor time and bytes to and from storage at the last sample.
    pub(super) totals: [u64; 2],
    /// Group and command line, where asked for.
    pub(super) texts: Option<Box<Texts>>,
}

/// Where a reading lies in the table's buffer.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    at: usize,
    stat: usize, // 0: not read
    io: usize,   // follows stat
}

/// What was read of one process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content<'a> {
    pub(super) stat: &'a [u8],
    /// None where it could not be read.
    pub(super) io: Option<&'a [u8]>,
    pub(super) is_io_denied: bool,
}

impl Slot {
    fn new() -> Self {
        Self {
            stat: None,
            io: None,
            reading: Reading::default(),
            is_io_denied: false,
            detail_due_ns: 0,
            end: End::NotTold,
            is_gone: false,
            start: ABSENT,
            user: ABSENT,
            is_wanted: true,
            judged: None,
            totals: [0; 2],
            texts: None,
        }
    }

    /// Forgets the process and keeps the memory. Returns how many files that closes.
    fn clear(&mut self) -> usize {
        let open = usize::from(self.stat.is_some()) + usize::from(self.io.is_some());
        let texts = self.texts.take();
        *self = Self { texts, ..Self::new() };
        open
    }
}

impl Table {
    /// `is_told` is whether the kernel tells of changes.
    pub(super) fn open(host: &HostRoot, details: Details, is_told: bool) -> io::Result<Self> {
        let is_told = is_told && !details.groups && !details.command_lines;
        let mut table = Self {
            listing: host.directory("proc")?,
            proc: HostNode::open(&host.path("proc"))?,
            details,
            order: Vec::new(),
            next: Vec::new(),
            listed: Vec::new(),
            born: Vec::with_capacity(BORN_MAX),
            departed: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            raw: Vec::new(),
            used: 0,
            detail: vec![0; DETAIL_BYTES_MAX],
            kept: 0,
            kept_max: allow_open_files(0) / 2,
            detail_interval_ns: if is_told { TOLD_INTERVAL_NS } else { DETAIL_INTERVAL_NS },
            shortfall: Shortfall::NONE,
        };
        table.list()?;
        table.reserve();
        Ok(table)
    }

    /// Takes memory for twice as many processes as there are, and some: below, none is taken later.
    fn reserve(&mut self) {
        let count = self.room();
        self.order.reserve(count);
        self.next.reserve(count);
        self.listed.reserve(count);
        self.departed.reserve(count);
        self.slots.reserve(count);
        self.free.reserve(count);
        self.raw.resize(count * (STAT_BYTES_MAX + IO_BYTES_MAX) / 4, 0);
    }

    /// For how many processes memory is taken at the start.
    pub(super) fn room(&self) -> usize {
        2 * self.order.len() + SPARE_PROCESSES
    }

    /// Reads all processes whose turn it is. Unless they are listed anew, they are those of the last sample and those
    /// that were [`forked`](Self::forked) since.
    pub(super) fn read(&mut self, now_ns: u64, must_list: bool) -> io::Result<()> {
        self.shortfall = Shortfall::NONE;
        self.departed.clear();
        if must_list || self.born.len() == BORN_MAX {
            self.list()?;
        } else {
            self.follow();
        }
        self.born.clear();
        self.shortfall |= Shortfall::TOO_MANY.unless(self.order.len() < PROCESSES_MAX);
        self.used = 0;
        for index in 0..self.order.len() {
            if let Some(known) = self.order.get(index).copied() {
                self.read_process(known, now_ns);
            }
        }
        // Ends that were not told yet are looked up by pid.
        self.departed.sort_unstable_by_key(|departed| departed.pid);
        Ok(())
    }

    /// All processes that were listed, by rising pid.
    pub(super) fn order(&self) -> &[Known] {
        &self.order
    }

    /// How many of them there were at the last [`read`](Self::read): one that was told of may have ended before.
    pub(super) fn count(&self) -> usize {
        let is_there = |known: &&Known| self.slots.get(known.slot).is_some_and(|slot| !slot.is_gone);
        self.order.iter().filter(is_there).count()
    }

    /// What the last [`read`](Self::read) lacked.
    pub(super) fn shortfall(&self) -> Shortfall {
        self.shortfall
    }

    /// What is kept of a process, and what was read of it; none where that was nothing.
    pub(super) fn get(&mut self, known: Known) -> Option<(&mut Slot, Content<'_>)> {
        let slot = self.slots.get_mut(known.slot)?;
        let Reading { at, stat, io } = slot.reading;
        let (stat, io) = self.raw.get(at..at + stat + io)?.split_at_checked(stat)?;
        let is_io_denied = slot.is_io_denied;
        let io = (!io.is_empty()).then_some(io);
        (!stat.is_empty()).then_some((slot, Content { stat, io, is_io_denied }))
    }

    /// What is kept of a process.
    pub(super) fn slot(&self, index: usize) -> Option<&Slot> {
        self.slots.get(index)
    }

    /// The kernel told of a new process.
    pub(super) fn forked(&mut self, pid: u32) {
        if self.born.len() < BORN_MAX {
            self.born.push(pid);
        }
    }

    /// The kernel told that a process ended. Returns when it had started, where it was in a sample.
    pub(super) fn ended(&mut self, pid: u32) -> u64 {
        let told = Departed { pid, start: ABSENT };
        if let Ok(at) = self.departed.binary_search_by_key(&pid, |departed| departed.pid)
            && let Some(departed) = self.departed.get_mut(at)
            && departed.start != ABSENT
        {
            return std::mem::replace(departed, told).start;
        }
        match self.known(pid) {
            Some(slot) if slot.end != End::Told => {
                let is_doubtful = std::mem::replace(&mut slot.end, End::Told) == End::Doubtful;
                slot.detail_due_ns = 0;
                if is_doubtful { ABSENT } else { slot.start }
            }
            _ => ABSENT,
        }
    }

    /// How many processes were told of since the last sample.
    pub(super) fn born(&self) -> usize {
        self.born.len()
    }

    /// The kernel told that a process runs another program after it told of its end, when so many processes had been told of. Says
    /// whether it is the same process: one that a thread beside the first has it run, by which the first one ends.
    pub(super) fn lives(&mut self, pid: u32, born_before: usize) -> bool {
        let since = self.born.get(born_before..).unwrap_or_default();
        if self.born.len() == BORN_MAX || since.contains(&pid) {
            return false;
        }
        if let Some(slot) = self.known(pid).filter(|slot| slot.end == End::Told) {
            slot.end = End::NotTold;
        }
        true
    }

    /// The kernel told that a process has another program, user or name: it may be another one's to record.
    pub(super) fn changed(&mut self, pid: u32) {
        if let Some(slot) = self.known(pid) {
            slot.detail_due_ns = 0;
        }
    }

    /// Events were lost: no end told before the next sample is taken for that of a known process, and every process may
    /// have changed.
    pub(super) fn doubt(&mut self) {
        self.departed.clear();
        for known in &self.order {
            if let Some(slot) = self.slots.get_mut(known.slot) {
                if slot.end == End::NotTold {
                    slot.end = End::Doubtful;
                }
                slot.detail_due_ns = 0;
            }
        }
    }

    fn known(&mut self, pid: u32) -> Option<&mut Slot> {
        let at = self.order.binary_search_by_key(&pid, |known| known.pid).ok()?;
        self.slots.get_mut(self.order.get(at)?.slot)
    }

    /// Brings the order up to what is there now.
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
        // The kernel lists by rising pid; a file system that holds a captured tree need not.
        if !listed.is_sorted() {
            listed.sort_unstable();
        }
        listed.dedup(); // 07 and 7, which only a captured tree can have
        self.reconcile();
        Ok(())
    }

    /// Brings the order up to what was told: those that went leave, those that came join.
    fn follow(&mut self) {
        let Self { listed, born, order, slots, .. } = self;
        let is_there = |known: &&Known| slots.get(known.slot).is_some_and(|slot| !slot.is_gone);
        if born.is_empty() && order.iter().all(|known| is_there(&known)) {
            return;
        }
        listed.clear();
        listed.extend(order.iter().filter(is_there).map(|known| known.pid).chain(born.iter().copied()));
        listed.sort_unstable();
        listed.dedup();
        listed.truncate(PROCESSES_MAX);
        self.reconcile();
    }

    /// Makes the order that of `listed`, which rises.
    fn reconcile(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let order = std::mem::take(&mut self.order);
        let mut old = order.iter().copied().peekable();
        for pid in listed.iter().copied() {
            while let Some(gone) = old.next_if(|known| known.pid < pid) {
                self.release(gone);
            }
            let known = old.next_if(|known| known.pid == pid);
            let known = known.unwrap_or_else(|| Known { pid, slot: self.take_slot() });
            self.next.push(known);
        }
        for gone in old {
            self.release(gone);
        }
        self.listed = listed;
        self.order = std::mem::replace(&mut self.next, order);
        self.next.clear();
    }

    fn take_slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new());
            // So many can be free at once.
            self.free.reserve(self.slots.len().saturating_sub(self.free.len()));
            self.slots.len() - 1
        })
    }

    fn release(&mut self, gone: Known) {
        self.forget(gone);
        self.free.push(gone.slot);
    }

    /// The process is gone; its slot is as new.
    fn forget(&mut self, gone: Known) {
        let Some(slot) = self.slots.get_mut(gone.slot) else { return };
        if slot.end == End::NotTold && slot.start != ABSENT {
            self.departed.push(Departed { pid: gone.pid, start: slot.start });
        }
        self.kept -= slot.clear();
    }

    fn read_process(&mut self, known: Known, now_ns: u64) {
        let was_open = self.slots.get(known.slot).is_some_and(|slot| slot.stat.is_some());
        let mut result = self.read_files(known, now_ns);
        if was_open && result.as_ref().is_err_and(is_gone) {
            // Somebody else may have this pid by now.
            self.forget(known);
            result = self.read_files(known, now_ns);
        }
        if let Err(error) = result {
            self.forget(known);
            if let Some(slot) = self.slots.get_mut(known.slot) {
                slot.is_gone = is_gone(&error);
            }
            self.shortfall |= match error.kind() {
                _ if is_gone(&error) => Shortfall::NONE,
                ErrorKind::PermissionDenied => Shortfall::DENIED,
                _ if matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) => Shortfall::TOO_MANY,
                _ => Shortfall::UNREADABLE,
            };
        }
        // What goes beyond the number of files that this process may keep open is opened at each sample.
        if self.kept > self.kept_max {
            self.kept_max = allow_open_files(4 * self.kept + OTHER_FILES) / 2;
        }
        if self.kept > self.kept_max
            && let Some(slot) = self.slots.get_mut(known.slot)
        {
            self.kept -= usize::from(slot.stat.take().is_some()) + usize::from(slot.io.take().is_some());
            // Without its files nothing tells whether this pid is another one's next time: its user is asked for again, too.
            slot.detail_due_ns = 0;
        }
    }

    /// Reads one process. `stat` is opened first and read last, by which everything between belongs to the same process.
    fn read_files(&mut self, known: Known, now_ns: u64) -> io::Result<()> {
        let Self { slots, proc, raw, used, detail, kept, details, detail_interval_ns, .. } = self;
        let Some(slot) = slots.get_mut(known.slot) else { return Ok(()) };
        slot.reading = Reading::default();
        slot.is_gone = false;
        // One that ended is asked until its parent has waited for it, and its files tell that it is gone.
        let is_due = now_ns >= slot.detail_due_ns || slot.end == End::Told;
        if !is_due && !slot.is_wanted {
            return Ok(());
        }
        let stat_file = open_once(&mut slot.stat, proc, known.pid, "/stat", kept)?;
        if is_due {
            let spread = u64::from(known.pid) % DETAIL_SPREAD * (*detail_interval_ns / 2 / DETAIL_SPREAD);
            slot.detail_due_ns = now_ns + *detail_interval_ns - spread;
            slot.user = with_path(known.pid, "", |path| proc.ownership_of(path))?.user.into();
            slot.is_io_denied = false;
            if details.groups || details.command_lines {
                let texts = slot.texts.get_or_insert_with(Texts::empty);
                if texts.read(proc, known.pid, detail, *details)? {
                    slot.judged = None;
                }
            }
        }

        let end = *used + STAT_BYTES_MAX + IO_BYTES_MAX;
        if raw.len() < end {
            raw.resize(end.max(2 * raw.len()), 0);
        }
        let room = raw.get_mut(*used..end).unwrap_or_default();
        let (_, io_room) = room.split_at_mut(STAT_BYTES_MAX);
        let mut io_bytes = 0;
        if !slot.is_io_denied {
            match open_once(&mut slot.io, proc, known.pid, "/io", kept).and_then(|io| io.read(io_room)) {
                Ok(length) => io_bytes = length,
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    slot.is_io_denied = true;
                    *kept -= usize::from(slot.io.take().is_some());
                }
                // A kernel that does not account for I/O has no such file.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let (stat_room, _) = room.split_at_mut(STAT_BYTES_MAX);
        let stat_bytes = stat_file.read(stat_room)?;
        room.copy_within(STAT_BYTES_MAX..STAT_BYTES_MAX + io_bytes, stat_bytes);
        if slot.end == End::Doubtful {
            slot.end = End::NotTold;
        }
        slot.reading = Reading { at: *used, stat: stat_bytes, io: io_bytes };
        *used += stat_bytes + io_bytes;
        Ok(())
    }
}

/// A file that is opened unless it is open.
fn open_once<'a>(
    file: &'a mut Option<ShortFile>,
    proc: &HostNode,
    pid: u32,
    name: &str,
    kept: &mut usize,
) -> io::Result<&'a ShortFile> {
    if file.is_none() {
        *file = Some(with_path(pid, name, |path| proc.file(path))?);
        *kept += 1;
    }
    file.as_ref().ok_or_else(|| ErrorKind::NotFound.into())
}

/// Whether a process ended, as its files tell it.
fn is_gone(error: &io::Error) -> bool {
    const ESRCH: i32 = 3;
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const DETAILS: Details = Details { groups: false, command_lines: false };

    fn process(root: &Path, pid: u32) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("stat"), format!("{pid} (x) S 1\n")).unwrap();
    }

    // Goal: a process that was told of and ended before it could be read is none that is there. Method: a fork of a pid that nobody
    // has, beside one that has come.
    #[test]
    fn who_ended_before_is_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        process(folder.path(), 7);
        let mut table = Table::open(&HostRoot::new(folder.path()), DETAILS, true).unwrap();
        table.read(1, true).unwrap();
        assert_eq!(table.count(), 1);
        process(folder.path(), 8);
        for pid in [8, 9, 10] {
            table.forked(pid);
        }
        table.read(2, false).unwrap();
        assert_eq!((table.order().len(), table.count()), (4, 2));
    }

    // Goal: where no file may be kept open, a pid that is used again has its new user at once. Method: a limit of none, and a
    // folder that gets another owner.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a process of the test's own host ends")]
    fn a_user_is_never_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        process(folder.path(), 7);
        let mut table = Table::open(&HostRoot::new(folder.path()), DETAILS, false).unwrap();
        let user = |table: &mut Table, now_ns| {
            (table.kept, table.kept_max) = (usize::MAX / 8, 0);
            table.read(now_ns, true).unwrap();
            table.get(table.order()[0]).unwrap().0.user
        };
        let own = user(&mut table, 1);
        fs::remove_dir_all(folder.path().join("proc/7")).unwrap();
        process(folder.path(), 7);
        if std::os::unix::fs::chown(folder.path().join("proc/7"), Some(4711), None).is_err() {
            return println!("passed over: only root gives files away");
        }
        assert_ne!(own, 4711);
        assert_eq!(user(&mut table, 2), 4711);
    }
}
