//! Reads the names by which people know a process: its command line, its control group and its
//! user.
//!
//! Reading a command line waits for the lock of the process's memory, and reading a group for a
//! lock of all groups. Both locks may be held for long while a host has a problem. Therefore a
//! separate thread reads the names, and a sample contains the names that the thread has read by
//! then. Names seldom change, so they are read only from time to time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use flatcap_os::clock::monotonic_ns;
use flatcap_os::directory_handle::DirectoryHandle;
use flatcap_os::host::HostRoot;
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;
use flatcap_schemas::host::{CommandLine, ProcessCounters, ProcessGroup, UserName};

use super::group_naming::GroupNaming;
use super::secret_filter::scrubbed;
use super::stat::{self, NAME_BYTES};
use super::texts::{TEXT_BYTES, with_path};
use crate::CommandLines;
use crate::sources::text::{self, ABSENT};

/// The file with the names of users.
pub(super) const PASSWD: &str = "etc/passwd";
/// Maximum number of processes whose names are read for one sample.
pub(super) const READS_MAX: usize = 256;
/// Maximum number of names that wait for a sample. A process has two names, and the thread may be
/// reading one more process than the queue of reads contains.
pub(super) const NAMES_MAX: usize = 2 * READS_MAX + 4;
/// Time after which the names of a process are read again. With the interval of full passes, it is
/// less than the 60 s that the schema states.
const INTERVAL_NS: u64 = 57_000_000_000;
/// The same for the name of a user. It is shorter, because users are read together with processes.
const USER_INTERVAL_NS: u64 = 55_000_000_000;
/// Time after which the names of a new process are read a second time. A service manager moves a
/// process to its group, and a shell starts a program, shortly after the begin of the process.
const SECOND_READ_NS: u64 = 2_000_000_000;
/// Minimum time between two reads of a process that changes its name. Some programs change their
/// names all the time.
const CHANGE_INTERVAL_NS: u64 = 1_000_000_000;
/// Age of a request up to which the start time of the process is not checked. The kernel assigns
/// all other pids before it assigns the same one again, which takes longer.
const UNCHECKED_NS: u64 = 200_000_000;
/// The reads of processes that began at the same time are spread over this many steps of a second.
const SPREAD: u64 = 16;
/// Maximum number of known users.
const USERS_MAX: usize = 1024;
/// Maximum number of bytes that are read from a command line or a group. Longer command lines have
/// no length.
const CONTENT_BYTES_MAX: usize = 64 << 10;
/// Number of bytes of a command line of which secrets are removed. Few command lines are longer.
const FILTERED_BYTES_MAX: usize = 4096;
const STAT_BYTES_MAX: usize = 2048;

/// State of a process's names between samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameState {
    due_ns: u64,
    read_ns: u64,
    /// Number of reads; at most 2, because later reads are the same.
    reads: u8,
    /// The name that the kernel had for the process at the last sample.
    name: [u8; NAME_BYTES],
}

/// The names to read.
#[derive(Debug)]
enum NameRequest {
    Process { pid: u32, start: u64, requested_ns: u64 },
    User(u64),
}

/// A name that was read.
#[derive(Debug)]
enum ReadName {
    CommandLine(CommandLine),
    Group(ProcessGroup),
    User(UserName),
}

/// The names that were read since the last sample.
#[derive(Debug)]
pub(super) struct NewNames {
    pub(super) command_lines: Vec<CommandLine>,
    pub(super) groups: Vec<ProcessGroup>,
    pub(super) users: Vec<UserName>,
}

/// Reads names in a separate thread.
#[derive(Debug)]
pub(super) struct NameReader {
    shared: Arc<Shared>,
    users_due: Vec<(u64, u64)>, // the number of a user, and the time at which its name is due
    pub(super) new: NewNames,
}

#[derive(Debug)]
struct Shared {
    requests: ArrayQueue<NameRequest>,
    names: ArrayQueue<ReadName>,
    wake: WakeEvent,
    is_stopped: AtomicBool,
}

/// The files with the names.
#[derive(Debug)]
struct NameFiles {
    host: HostRoot,
    proc: DirectoryHandle,
    command_lines: CommandLines,
    groups: Option<GroupNaming>,
    content: Vec<u8>,
    path: Vec<u8>, // reused
}

impl NameState {
    pub(super) const NEW: Self = Self { due_ns: 0, read_ns: 0, reads: 0, name: [0; NAME_BYTES] };

    /// Makes the names due, because the process may have changed them.
    pub(super) fn set_changed(&mut self) {
        self.due_ns = self.due_ns.min(self.read_ns.saturating_add(CHANGE_INTERVAL_NS));
    }

    /// Handles the name that the kernel has for the process. With another name, the process may
    /// have another command line.
    pub(super) fn set_name(&mut self, name: &[u8; NAME_BYTES]) {
        if self.name != *name {
            self.name = *name;
            self.set_changed();
        }
    }

    /// Returns whether the names are due only because some time has passed.
    fn is_repeated(&self) -> bool {
        self.reads > 0 && self.due_ns > self.read_ns.saturating_add(CHANGE_INTERVAL_NS)
    }

    fn set_read(&mut self, pid: u64, now_ns: u64) {
        let interval_ns = match self.reads {
            0 => SECOND_READ_NS,
            1 => INTERVAL_NS - pid % SPREAD * 1_000_000_000,
            _ => INTERVAL_NS,
        };
        let reads = self.reads.saturating_add(1).min(2);
        *self = Self { due_ns: now_ns + interval_ns, read_ns: now_ns, reads, name: self.name };
    }
}

impl NameReader {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if /proc cannot be opened, or if the kernel refuses another thread.
    pub(super) fn start(
        host: &HostRoot,
        command_lines: CommandLines,
        groups: Option<GroupNaming>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            requests: ArrayQueue::new(READS_MAX),
            names: ArrayQueue::new(NAMES_MAX),
            wake: WakeEvent::new(),
            is_stopped: AtomicBool::new(false),
        });
        let mut files = NameFiles {
            host: host.clone(),
            proc: DirectoryHandle::open(&host.path("proc"))?,
            command_lines,
            groups,
            content: vec![0; CONTENT_BYTES_MAX],
            path: Vec::with_capacity(TEXT_BYTES),
        };
        let its = Arc::clone(&shared);
        let _detached = thread::spawn("process-names", move || {
            // Any user can cause reads, so they must not precede other work.
            let _unchanged = thread::reset_negative_nice();
            its.serve(&mut files);
        })?;
        let new = NewNames {
            command_lines: Vec::with_capacity(NAMES_MAX),
            groups: Vec::with_capacity(NAMES_MAX),
            users: Vec::with_capacity(NAMES_MAX),
        };
        Ok(Self { shared, users_due: Vec::with_capacity(USERS_MAX), new })
    }

    /// Replaces the new names by those that were read since the last call.
    pub(super) fn drain(&mut self) {
        let NewNames { command_lines, groups, users } = &mut self.new;
        command_lines.clear();
        groups.clear();
        users.clear();
        // The loop has a limit, because names are added concurrently.
        for name in (0..NAMES_MAX).map_while(|_| self.shared.names.pop()) {
            match name {
                ReadName::CommandLine(command_line) => command_lines.push(command_line),
                ReadName::Group(group) => groups.push(group),
                ReadName::User(user) => users.push(user),
            }
        }
    }

    /// Requests the names of a recorded process if they are due. If too many other names are
    /// requested, the names are requested at the next sample.
    pub(super) fn request(
        &mut self,
        row: &ProcessCounters,
        state: &mut NameState,
        (now_ns, is_full_pass): (u64, bool),
    ) {
        // Kernel threads and processes that have ended have no memory, and no command line.
        if row.virtual_size() == 0 {
            return;
        }
        // Names that are only repeated wait for the next full pass, so that the thread reads many
        // of them at a time. Waking the thread costs as much as reading a name.
        let is_due = now_ns >= state.due_ns && (is_full_pass || !state.is_repeated());
        if !is_due || !self.has_space() {
            return;
        }
        let Ok(pid) = u32::try_from(row.pid()) else { return };
        if self
            .shared
            .requests
            .push(NameRequest::Process { pid, start: row.start(), requested_ns: now_ns })
            .is_ok()
        {
            state.set_read(row.pid(), now_ns);
            self.request_user(row.user(), now_ns);
        }
    }

    /// Starts the reads that were requested for this sample.
    pub(super) fn begin_reads(&self) {
        if !self.shared.requests.is_empty() {
            self.shared.wake.set();
        }
    }

    fn request_user(&mut self, user: u64, now_ns: u64) {
        if user == ABSENT || !self.has_space() {
            return;
        }
        let due_ns = now_ns + USER_INTERVAL_NS;
        match self.users_due.binary_search_by_key(&user, |(known, _)| *known) {
            Ok(at) => match self.users_due.get_mut(at) {
                Some((_, due)) if *due <= now_ns => *due = due_ns,
                _ => return,
            },
            Err(at) => {
                if self.users_due.len() == USERS_MAX {
                    self.users_due.clear();
                }
                self.users_due.insert(at.min(self.users_due.len()), (user, due_ns));
            }
        }
        if self.shared.requests.push(NameRequest::User(user)).is_err() {
            self.users_due.retain(|(known, _)| *known != user);
        }
    }

    /// Returns whether the names of another process and its user fit into the queues.
    fn has_space(&self) -> bool {
        let Shared { requests, names, .. } = &*self.shared;
        2 * (requests.len() + 2) + names.len() < NAMES_MAX
    }
}

impl Drop for NameReader {
    fn drop(&mut self) {
        // The thread may wait for a lock, so its end is not awaited.
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        self.shared.wake.set();
    }
}

impl Shared {
    /// Reads requested names until the source is closed.
    fn serve(&self, files: &mut NameFiles) {
        while !self.is_stopped.load(Ordering::Relaxed) {
            self.wake.clear();
            while let Some(request) = self.requests.pop() {
                if self.is_stopped.load(Ordering::Relaxed) {
                    return;
                }
                match request {
                    // A process that has ended has no names.
                    NameRequest::Process { pid, start, requested_ns } => {
                        let is_old = monotonic_ns().saturating_sub(requested_ns) > UNCHECKED_NS;
                        let _ended = files.read_process(pid, start, is_old, |name| self.add(name));
                    }
                    NameRequest::User(number) => files.user(number).into_iter().for_each(|user| {
                        self.add(ReadName::User(user));
                    }),
                }
            }
            if !self.is_stopped.load(Ordering::Relaxed) {
                self.wake.wait();
            }
        }
    }

    fn add(&self, name: ReadName) {
        // There is space, because requests are limited by the space.
        let _full = self.names.push(name);
    }
}

impl NameFiles {
    /// Reads the names of a process. If `is_checked`, reads its start time, too. The start time is
    /// read last, so that the names belong to the process even if the kernel reuses its pid.
    fn read_process(
        &mut self,
        pid: u32,
        start: u64,
        is_checked: bool,
        mut add: impl FnMut(ReadName),
    ) -> io::Result<()> {
        let open = || with_path(pid, "/stat", |path| self.proc.open_file(path));
        let stat_file = if is_checked { Some(open()?) } else { None };
        let command_line =
            if self.command_lines == CommandLines::Off { None } else { self.command_line(pid, start) };
        let group = self.group(pid, start);
        let mut is_same = true;
        if let Some(stat_file) = stat_file {
            let mut content = [0; STAT_BYTES_MAX];
            let length = stat_file.read(&mut content)?;
            let (found, _) = stat::stat(content.get(..length).unwrap_or_default(), pid);
            is_same = found.is_some_and(|found| found.start == start);
        }
        if is_same {
            if let Some(command_line) = command_line {
                add(ReadName::CommandLine(command_line));
            }
            if let Some(group) = group {
                add(ReadName::Group(group));
            }
        }
        Ok(())
    }

    /// Returns the command line of a process, or `None` if it is empty or cannot be read.
    fn command_line(&mut self, pid: u32, start: u64) -> Option<CommandLine> {
        let length = self.read(pid, "/cmdline").ok()?;
        let line = self.content.get_mut(..length)?;
        // A process that sets its title leaves zero bytes or blanks at the end.
        let end = line.iter().rposition(|byte| !matches!(byte, 0 | b' ')).map_or(0, |at| at + 1);
        let line = line.get_mut(..end).filter(|line| !line.is_empty())?;
        let whole = if length < CONTENT_BYTES_MAX { end as u64 } else { ABSENT };
        let text: [u8; TEXT_BYTES] = if self.command_lines == CommandLines::Full {
            line.iter_mut().take(TEXT_BYTES).filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
            stat::text_prefix(line)
        } else {
            let is_cut = line.len() > FILTERED_BYTES_MAX || whole == ABSENT;
            let line = line.get(..FILTERED_BYTES_MAX).unwrap_or(line);
            stat::text_prefix(scrubbed(line, is_cut).as_bytes())
        };
        Some(CommandLine::new(pid.into(), start, whole, &text))
    }

    /// Returns the control group of a process, or `None` if groups are not configured or cannot be
    /// read.
    fn group(&mut self, pid: u32, start: u64) -> Option<ProcessGroup> {
        self.groups.as_ref()?;
        let length = self.read(pid, "/cgroup").ok()?;
        let (shown, _) = stat::unified_group(self.content.get(..length)?);
        self.path.clear();
        let naming = self.groups.as_ref()?;
        if !shown.is_none_or(|shown| naming.resolve(shown, &mut self.path)) {
            self.path.clear();
        }
        Some(ProcessGroup::new(pid.into(), start, &text::suffix(&self.path)))
    }

    fn read(&mut self, pid: u32, name: &str) -> io::Result<usize> {
        with_path(pid, name, |path| self.proc.open_file(path))?.read(&mut self.content)
    }

    /// Returns the name of a user, or `None` if the host's file has no such user. The file is read
    /// for each user, because it may change.
    fn user(&self, number: u64) -> Option<UserName> {
        let mut file = self.host.open(PASSWD).ok()?;
        file.read().ok()?;
        let name = user_name(file.content(), number)?;
        Some(UserName::new(number, &text::name(name)?))
    }
}

/// Returns the name of a user from the content of passwd(5).
fn user_name(content: &[u8], number: u64) -> Option<&[u8]> {
    content.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next()?;
        (fields.nth(1).and_then(text::number) == Some(number)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn files(folder: &std::path::Path, command_lines: CommandLines) -> NameFiles {
        NameFiles {
            host: HostRoot::new(folder),
            proc: DirectoryHandle::open(&folder.join("proc")).unwrap(),
            command_lines,
            groups: Some(GroupNaming::AsShown),
            content: vec![0; CONTENT_BYTES_MAX],
            path: Vec::new(),
        }
    }

    /// Writes the files of process 7, which started at 22.
    fn host(group: &str, command_line: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("proc/7");
        fs::create_dir_all(&process).unwrap();
        let rest: Vec<String> = (4..=52).map(|at| at.to_string()).collect();
        fs::write(process.join("stat"), format!("7 (x) S {}\n", rest.join(" "))).unwrap();
        fs::write(process.join("cgroup"), format!("3:cpu:/old\n0::{group}\n")).unwrap();
        fs::write(process.join("cmdline"), command_line).unwrap();
        folder
    }

    fn names(mut files: NameFiles, start: u64) -> (Option<(u64, String)>, Option<String>) {
        let (mut line, mut group) = (None, None);
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes.into_iter().take_while(|byte| *byte != 0).collect()).unwrap()
        };
        files
            .read_process(7, start, true, |name| match name {
                ReadName::CommandLine(own) => line = Some((own.length(), text(own.text().iter().collect()))),
                ReadName::Group(own) => group = Some(text(own.path().iter().collect())),
                ReadName::User(_) => panic!("no user is read"),
            })
            .unwrap();
        (line, group)
    }

    // Proves that command lines are recorded as configured, and that the names of another process
    // with the same pid are not.
    #[test]
    fn names_are_read_as_configured() {
        let folder = host("/a.slice/x.service", b"app\0--token\0hunter2\0\0");
        let group = Some("/a.slice/x.service".to_owned());
        for (command_lines, expected) in [
            (CommandLines::Full, Some((19, "app --token hunter2".to_owned()))),
            (CommandLines::Scrubbed, Some((19, "app --token ***".to_owned()))),
            (CommandLines::Off, None),
        ] {
            assert_eq!(names(files(folder.path(), command_lines), 22), (expected, group.clone()));
        }
        assert_eq!(names(files(folder.path(), CommandLines::Full), 23), (None, None));
    }

    // Proves that a kernel thread has no command line, that a group outside of the visible tree is
    // not another group, and that long names are cut.
    #[test]
    fn unusual_names_are_read() {
        let folder = host("/../host.service", b"");
        assert_eq!(names(files(folder.path(), CommandLines::Full), 22), (None, Some(String::new())));
        let folder = host("/", &vec![b'x'; CONTENT_BYTES_MAX + 1]);
        let (line, _) = names(files(folder.path(), CommandLines::Full), 22);
        assert_eq!(line, Some((ABSENT, "x".repeat(255))));
        let (line, _) = names(files(folder.path(), CommandLines::Scrubbed), 22);
        assert_eq!(line, Some((ABSENT, " ***".to_owned())));
        let deep = "/pod".repeat(1500);
        let folder = host(&deep, b"x");
        let (_, group) = names(files(folder.path(), CommandLines::Full), 22);
        assert_eq!(group.unwrap(), deep[deep.len() - 255..]);
    }

    // Proves that names are read again after a change, a second time soon after the first, and then
    // within 60 s.
    #[test]
    fn names_are_due_from_time_to_time() {
        const SECOND: u64 = 1_000_000_000;
        let (one, other) = ([1; NAME_BYTES], [2; NAME_BYTES]);
        let mut state = NameState::NEW;
        state.set_name(&one);
        assert_eq!(state.due_ns, 0);
        state.set_read(5, 10 * SECOND);
        state.set_name(&one);
        assert_eq!(state.due_ns, 12 * SECOND);
        state.set_read(5, 12 * SECOND);
        assert_eq!(state.due_ns, 64 * SECOND);
        state.set_read(5, 64 * SECOND);
        assert_eq!(state.due_ns, 121 * SECOND);
        state.set_name(&other);
        assert_eq!(state.due_ns, 65 * SECOND);
        state.set_read(5, 70 * SECOND);
        state.set_changed();
        assert_eq!(state.due_ns, 71 * SECOND);
    }

    // Proves that users have the names of the host's file, and that invalid lines are skipped.
    #[test]
    fn users_have_names() {
        let content = b"root:x:0:0:root:/root:/bin/sh\n# none\nbad:x:y:0::\nftp:x:14:50::/:\n";
        let name = |number| user_name(content, number);
        assert_eq!((name(0), name(14), name(50)), (Some(&b"root"[..]), Some(&b"ftp"[..]), None));
    }
}
