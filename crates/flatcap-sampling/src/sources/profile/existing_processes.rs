//! The code that processes had mapped before the source was opened, from /proc/PID/maps.

use std::ffi::{CStr, CString};
use std::io::{self, ErrorKind};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use flatcap_os::clock::monotonic_ns;
use flatcap_os::host::{HostDirectory, HostFile, HostRoot};
use flatcap_os::thread;

use super::super::text;
use super::address_space::CodeMapping;
use super::code_file::{CodeFiles, FileIdentity};
use super::task_table::TaskTable;

/// Maximum time for which opening the source waits for the mappings of existing processes. The
/// mappings of each process take about 100 us to read. If the read blocks on the memory lock of a
/// process, the processes after it are not read.
const READ_NS_MAX: u64 = 2_000_000_000;
/// Maximum number of processes that were read but are not yet added to the task table.
const QUEUE_MAX: usize = 16;

/// A process and the mappings that it had when it was read.
#[derive(Debug)]
struct ExistingProcess {
    number: u32,
    threads: Vec<u32>,
    maps: Vec<u8>, // the content of its file `maps`
}

/// The result of reading the processes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadProcesses {
    /// Number of processes whose mappings are known.
    pub(super) known: usize,
    /// Number of processes whose mappings the recorder may not read.
    pub(super) denied: usize,
    /// Number of processes whose list of mappings cannot be read or is too long.
    pub(super) failed: usize,
    /// Whether all processes were read in time.
    pub(super) is_complete: bool,
}

/// Reads the mappings of all processes of the host into `tasks`. The lock of a process's memory may
/// be held for a long time. Therefore a separate thread reads the mappings, and is abandoned if it
/// takes too long.
///
/// # Errors
/// Fails if the list of processes cannot be read, or if the kernel refuses another thread.
pub(super) fn read(
    host: &HostRoot,
    files: &mut CodeFiles,
    tasks: &mut TaskTable,
) -> io::Result<ReadProcesses> {
    let directory = host.directory("proc")?;
    let (sender, receiver) = bounded(QUEUE_MAX);
    thread::spawn("profile-maps", move || read_all(directory, &sender))?;
    Ok(note_all(&receiver, monotonic_ns() + READ_NS_MAX, files, tasks))
}

/// Reads the processes until the receiver is dropped.
fn read_all(mut directory: HostDirectory, sender: &Sender<io::Result<ExistingProcess>>) {
    let mut numbers = Vec::new();
    // A listing that ends early only leads to fewer processes.
    let _cut = directory.list(|name| numbers.extend(number(name)));
    let mut file = None;
    for number in numbers {
        let process = match read_process(&mut directory, number, &mut file) {
            // The process has ended.
            Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(NO_PROCESS) => {
                continue;
            }
            process => process,
        };
        if sender.send(process).is_err() {
            break;
        }
    }
}

/// Error number ESRCH.
const NO_PROCESS: i32 = 3;

fn read_process(
    directory: &mut HostDirectory,
    number: u32,
    file: &mut Option<HostFile>,
) -> io::Result<ExistingProcess> {
    let path = |name: &str| CString::new(format!("{number}/{name}")).unwrap_or_default();
    let maps = match file {
        Some(file) => {
            directory.reopen(&path("maps"), file)?;
            file
        }
        None => file.insert(directory.open(&path("maps"))?),
    };
    maps.read()?;
    let maps = maps.content().to_vec();
    let mut threads = Vec::new();
    directory.list_subdirectory(&path("task"), |name| threads.extend(self::number(name)))?;
    Ok(ExistingProcess { number, threads, maps })
}

fn number(name: &CStr) -> Option<u32> {
    text::number(name.to_bytes()).and_then(|number| u32::try_from(number).ok())
}

fn note_all(
    receiver: &Receiver<io::Result<ExistingProcess>>,
    deadline_ns: u64,
    files: &mut CodeFiles,
    tasks: &mut TaskTable,
) -> ReadProcesses {
    let mut read = ReadProcesses::default();
    loop {
        let rest = std::time::Duration::from_nanos(deadline_ns.saturating_sub(monotonic_ns()));
        match receiver.recv_timeout(rest) {
            Ok(Ok(process)) => {
                note(&process, files, tasks);
                read.known += 1;
            }
            Ok(Err(error)) if error.kind() == ErrorKind::PermissionDenied => read.denied += 1,
            Ok(Err(_)) => read.failed += 1,
            Err(RecvTimeoutError::Timeout) => return read,
            Err(RecvTimeoutError::Disconnected) => return ReadProcesses { is_complete: true, ..read },
        }
    }
}

/// Adds a process with its threads to the task table. Threads of the kernel have no mappings and
/// are skipped.
fn note(process: &ExistingProcess, files: &mut CodeFiles, tasks: &mut TaskTable) {
    let (lines, _) = text::whole_lines(&process.maps);
    let Some(first) = process.threads.first() else { return };
    let mut has_code = false;
    for line in lines.filter_map(MappedLine::parse) {
        if let Some(file) = files.get(&line.identity) {
            tasks.map(process.number, *first, CodeMapping::new((line.start, line.end), line.offset, file));
            has_code = true;
        }
    }
    if has_code {
        process.threads.iter().for_each(|thread| tasks.add(process.number, *thread));
    }
}

/// A line of /proc/PID/maps that describes executable memory.
#[derive(Debug, PartialEq, Eq)]
struct MappedLine<'l> {
    start: u64,
    end: u64,
    offset: u64,
    identity: FileIdentity<'l>,
}

impl<'l> MappedLine<'l> {
    /// Parses a line such as `7f2a1c000000-7f2a1c021000 r-xp 00001000 08:01 1234    /lib/a.so`.
    /// Returns `None` for memory that is not executable and for a malformed line.
    fn parse(line: &'l [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let (start, end) = split_pair(fields.next()?, b'-')?;
        let is_executable = fields.next()?.get(2) == Some(&b'x');
        let offset = text::hexadecimal(fields.next()?)?;
        let (major, minor) = split_pair(fields.next()?, b':')?;
        let device = (u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
        let inode = text::number(fields.next()?)?;
        let path = fields.next().unwrap_or_default().trim_ascii_start();
        let path = if path.is_empty() { ANONYMOUS } else { path };
        let identity = FileIdentity { path, build_id: None, device, inode };
        is_executable.then_some(Self { start, end, offset, identity })
    }
}

/// The name that perf records use for memory without a file.
const ANONYMOUS: &[u8] = b"//anon";

fn split_pair(field: &[u8], separator: u8) -> Option<(u64, u64)> {
    let mut parts = field.splitn(2, |byte| *byte == separator);
    text::hexadecimal(parts.next()?).zip(text::hexadecimal(parts.next()?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use flatcap_tasks::schema::CodeKind;

    use super::*;
    use crate::sources::tests::host_with;

    const MAPS: &str = "\
00400000-00401000 r--p 00000000 08:01 77 /bin/a program
00401000-00409000 r-xp 00001000 08:01 77                         /bin/a program
7f0000000000-7f0000001000 rwxp 00000000 00:00 0 
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                          [vdso]
7ffd00000000-7ffd00002000 rw-p 00000000 00:00 0                          [stack]
";

    // Proves that memory with code is found with its file, and that other lines and malformed lines
    // are skipped.
    #[test]
    fn lines_are_parsed() {
        let found: Vec<MappedLine<'_>> =
            MAPS.as_bytes().split(|byte| *byte == b'\n').filter_map(MappedLine::parse).collect();
        let paths: Vec<&[u8]> = found.iter().map(|line| line.identity.path).collect();
        assert_eq!(paths, [&b"/bin/a program"[..], b"//anon", b"[vdso]"]);
        let first = MappedLine {
            start: 0x40_1000,
            end: 0x40_9000,
            offset: 0x1000,
            identity: FileIdentity { path: b"/bin/a program", build_id: None, device: (8, 1), inode: 77 },
        };
        assert_eq!(found[0], first);
        let line = MAPS.lines().nth(1).unwrap().as_bytes();
        for cut in 0..60 {
            let parsed = MappedLine::parse(&line[..cut]);
            assert!(parsed.is_none_or(|line| line.identity.path == b"//anon"), "{cut}");
        }
        for at in 0..line.len() {
            let mut damaged = line.to_vec();
            damaged[at] = 0xFF;
            let _any = MappedLine::parse(&damaged);
        }
    }

    // Proves that processes are added with their code and threads, but kernel threads are not. A
    // process that ends during the read, or whose list is truncated, affects no other process.
    #[test]
    fn processes_are_noted() {
        let host = host_with(&[
            ("proc/5/maps", MAPS),
            ("proc/6/maps", ""),
            ("proc/7/maps", "00401000-00409000 r-xp 00001000 08:01 77 /b\n00501000-00509000 r-xp 00"),
            ("proc/uptime", ""),
        ]);
        for task in ["5/task/5", "5/task/9", "6/task/6", "7/task/7", "8/task/8"] {
            std::fs::create_dir_all(host.path().join("proc").join(task)).unwrap();
        }
        let (mut files, mut tasks) = (CodeFiles::new(0), TaskTable::default());
        let read = read(&HostRoot::new(host.path()), &mut files, &mut tasks).unwrap();
        assert_eq!(read, ReadProcesses { known: 3, denied: 0, failed: 0, is_complete: true });
        let found = tasks.find(5, 0x40_1010).unwrap();
        assert_eq!((&*found.file.path, found.offset_of(0x40_1010)), ("/bin/a program", 0x1010));
        // The offset is an address, because there is no file.
        let memory = tasks.find(5, 0x7F00_0000_0010).unwrap();
        assert_eq!(
            (memory.file.kind, memory.offset_of(0x7F00_0000_0010)),
            (CodeKind::Unknown, 0x7F00_0000_0010)
        );
        assert!(tasks.find(7, 0x40_1000).is_some() && tasks.find(7, 0x50_1000).is_none());
        tasks.exit(5);
        assert!(tasks.find(5, 0x40_1010).is_some(), "its thread 9 still runs");
        tasks.exit(9);
        assert!(tasks.find(5, 0x40_1010).is_none());
    }

    // Proves that the code of this process is known, that is, the address of one of its functions
    // is found in its executable.
    #[test]
    fn this_process_is_known() {
        let (mut files, mut tasks) = (CodeFiles::new(0), TaskTable::default());
        let read = read(&HostRoot::new(Path::new("/")), &mut files, &mut tasks).unwrap();
        assert!(read.known > 0);
        let address = this_process_is_known as fn() as usize as u64;
        let found = tasks.find(std::process::id(), address).unwrap();
        assert_eq!(Path::new(&*found.file.path), std::env::current_exe().unwrap());
    }
}
