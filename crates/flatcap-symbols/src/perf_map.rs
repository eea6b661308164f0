//! The functions that a just-in-time compiler writes to /tmp/perf-PID.map, in the format that the
//! tool perf defines. Each line contains the address and the length of a function, both in
//! hexadecimal, and the name of the function.
//!
//! Anybody may create a file in /tmp. Therefore the file must not be a symbolic link or have
//! several hard links, and the user of the process must own the file. The file also must not belong
//! to another process with the same id.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2};
use rustix::io::Errno;
use rustix::param::clock_ticks_per_second;
use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};

use crate::bounded_file::{BoundedFile, FilePart};
use crate::code_location::CodeProcess;
use crate::error::SymbolError;

/// Maximum length of a map file, in bytes. The map file of a large program in JavaScript has about
/// 20 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of functions in a map file. Further functions are left out.
const FUNCTIONS_MAX: usize = 1 << 20;
/// Maximum number of bytes that are read from a file in /proc about a process.
const PROC_BYTES_MAX: u64 = 16 << 10;
/// Approximate number of bytes that a function takes in memory.
const FUNCTION_BYTES: usize = 64;
/// Index of the process's start time among the fields after the name in /proc/PID/stat. The unit is
/// ticks since boot.
const START_FIELD: usize = 19;

/// The functions of a process, sorted by address. If two functions occupied the same address at
/// different times, the function on the later line is used.
#[derive(Debug)]
pub(crate) struct PerfMap {
    text: Vec<u8>,
    functions: BTreeMap<u64, CompiledFunction>,
}

/// A function, whose key in the map is its start address.
#[derive(Debug, Clone, Copy)]
struct CompiledFunction {
    end: u64,
    /// The range of the name in the text.
    name: (u32, u32),
}

/// A process that still runs.
struct RunningProcess {
    folder: OwnedFd,
    user: u32,
    /// The process id in the PID namespace of the process.
    own_id: u32,
    /// The start time of the process since boot, in nanoseconds.
    start_ns: u64,
}

impl PerfMap {
    /// Finds and reads the map file of a process. Returns `None` if the process has no map file. If
    /// `is_same_boot` is false or the process is unknown, the file is searched only in the
    /// directories that the user named.
    ///
    /// # Errors
    /// Fails if a map file exists but cannot be used.
    pub(crate) fn find(
        process: CodeProcess,
        directories: &[PathBuf],
        is_same_boot: bool,
    ) -> Result<Option<Self>, SymbolError> {
        let name = format!("perf-{}.map", process.id);
        for path in directories.iter().map(|directory| directory.join(&name)) {
            match BoundedFile::open(&path) {
                Ok(file) => return Self::read(&file).map(Some),
                Err(SymbolError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if !is_same_boot {
            return Ok(None);
        }
        let file = match RunningProcess::open(process.id) {
            Ok(running) => running.open_map(process)?,
            Err(Errno::NOENT | Errno::SRCH) => open_map_of_ended(process)?,
            Err(error) => {
                let path = PathBuf::from(format!("/proc/{}", process.id));
                return Err(SymbolError::Read { path, error: error.into() });
            }
        };
        file.map(|file| Self::read(&file)).transpose()
    }

    fn read(file: &BoundedFile) -> Result<Self, SymbolError> {
        let what = "the list of functions";
        let part = FilePart { what, offset: 0, bytes: file.length(), limit: FILE_BYTES_MAX };
        Ok(Self::of(file.read(part)?))
    }

    fn of(text: Vec<u8>) -> Self {
        let mut functions = FunctionsByAddress::default();
        let mut begin = 0;
        // If the last line has no line end, the process may still be writing the line.
        for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            if let Some((address, end, name_at)) = parse(line) {
                // The text has less than 4 GiB, so the offset fits.
                let at = u32::try_from(begin + name_at).unwrap_or(u32::MAX);
                let bytes = u32::try_from(line.len() - 1 - name_at).unwrap_or_default();
                functions.insert(address, CompiledFunction { end, name: (at, bytes) });
            }
            begin += line.len();
        }
        Self { text, functions: functions.0 }
    }

    /// Returns the name of the function that contains the code at an address.
    pub(crate) fn name_at(&self, address: u64) -> Option<String> {
        let (_, function) = self.functions.range(..=address).next_back()?;
        let (at, bytes) = function.name;
        let name = self.text.get(at as usize..)?.get(..bytes as usize)?;
        (address < function.end).then(|| String::from_utf8_lossy(name.trim_ascii()).into_owned())
    }

    /// Returns the approximate memory that this value takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.text.len() + self.functions.len() * FUNCTION_BYTES
    }
}

/// Functions by their start address. The functions do not overlap.
#[derive(Debug, Default)]
struct FunctionsByAddress(BTreeMap<u64, CompiledFunction>);

impl FunctionsByAddress {
    /// Adds a function, and removes the functions that overlap with its addresses.
    fn insert(&mut self, begin: u64, function: CompiledFunction) {
        let end = function.end;
        let before = self.0.range(..begin).next_back().map(|(begin, _)| *begin);
        let inside = self.0.range(begin..end).map(|(begin, _)| *begin);
        let overlapped: Vec<u64> = before.into_iter().chain(inside).collect();
        for at in overlapped {
            let Some(other) = self.0.get(&at).copied() else { continue };
            if at >= begin {
                self.0.remove(&at);
            } else if let Some(other) = self.0.get_mut(&at) {
                other.end = other.end.min(begin);
            }
            if other.end > end {
                self.0.insert(end, other);
            }
        }
        if self.0.len() < FUNCTIONS_MAX {
            self.0.insert(begin, function);
        }
    }
}

/// Parses a line. Returns the first address, the address after the last address, and the position
/// of the name in the line.
fn parse(line: &[u8]) -> Option<(u64, u64, usize)> {
    let mut fields = line.splitn(3, |byte| *byte == b' ');
    let (first, second, name) = (fields.next()?, fields.next()?, fields.next()?);
    let (address, length) = (hexadecimal(first)?, hexadecimal(second)?);
    let has_name = !name.trim_ascii().is_empty();
    let end = address.checked_add(length).filter(|end| *end > address && has_name)?;
    Some((address, end, first.len() + second.len() + 2))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    let text = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'))
}

impl RunningProcess {
    fn open(id: u32) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(format!("/proc/{id}"), flags, Mode::empty())?;
        let (status, stat) = (read_text(&folder, "status")?, read_text(&folder, "stat")?);
        let field = |name: &str, at: usize| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().nth(at)?.parse().ok()
        };
        // The line has the process ids from the outermost namespace to the process's own namespace.
        let own_id = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let own_id = own_id.and_then(|line| line.split_ascii_whitespace().last()?.parse().ok());
        // The process name before the fields may contain spaces and brackets.
        let ticks = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(START_FIELD)?.parse::<u64>().ok());
        let ticks = ticks.ok_or(Errno::SRCH)?;
        let start_ns = u128::from(ticks) * 1_000_000_000 / u128::from(clock_ticks_per_second().max(1));
        Ok(Self {
            folder,
            user: field("Uid:", 1).ok_or(Errno::SRCH)?,
            own_id: own_id.unwrap_or(id),
            start_ns: u64::try_from(start_ns).unwrap_or(u64::MAX),
        })
    }

    /// Opens the map file of a running process below the root directory that this process sees.
    /// Returns `None` if there is no file. Also returns `None` if the process started after the
    /// sample, because its id belonged to another process at the time of the sample.
    fn open_map(&self, process: CodeProcess) -> Result<Option<BoundedFile>, SymbolError> {
        // The total time for which the host was suspended. Suspends after the sample only increase
        // this time.
        let suspended_ns = now_ns(ClockId::Boottime).saturating_sub(now_ns(ClockId::Monotonic));
        if self.start_ns > process.first_ns.saturating_add(suspended_ns) {
            return Ok(None);
        }
        let shown = PathBuf::from(format!("/proc/{}/root/tmp/perf-{}.map", process.id, self.own_id));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match openat(&self.folder, "root", flags, Mode::empty()) {
            Ok(root) => root,
            // The process has ended, and its parent has not collected its status yet.
            Err(Errno::NOENT | Errno::SRCH) => return open_map_of_ended(process),
            Err(error) => return Err(SymbolError::Read { path: shown, error: error.into() }),
        };
        let file = Path::new("tmp").join(format!("perf-{}.map", self.own_id));
        let Some((file, status)) = open_in(&root, &file, &shown)? else { return Ok(None) };
        if status.st_uid != self.user {
            return Err(untrusted(shown, "it does not belong to the user of the process"));
        }
        opened(&file, shown).map(Some)
    }
}

/// Opens the map file of a process that has ended. The file must have been written after the first
/// sample of the process, by root or by the user who runs this program. The user who owned the
/// process is no longer known.
fn open_map_of_ended(process: CodeProcess) -> Result<Option<BoundedFile>, SymbolError> {
    let shown = PathBuf::from(format!("/tmp/perf-{}.map", process.id));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open("/", flags, Mode::empty())
        .map_err(|error| SymbolError::Read { path: shown.clone(), error: error.into() })?;
    let file = Path::new("tmp").join(format!("perf-{}.map", process.id));
    let Some((file, status)) = open_in(&root, &file, &shown)? else { return Ok(None) };
    if ![0, geteuid().as_raw()].contains(&status.st_uid) {
        return Err(untrusted(shown, "the process has ended, and the file belongs to another user"));
    }
    let first_ns = i128::from(process.first_ns) - i128::from(now_ns(ClockId::Monotonic))
        + i128::from(now_ns(ClockId::Realtime));
    let modified_ns = i128::from(status.st_mtime) * 1_000_000_000 + i128::from(status.st_mtime_nsec);
    if modified_ns < first_ns {
        return Err(untrusted(shown, "the process has ended, and the file is older than its samples"));
    }
    opened(&file, shown).map(Some)
}

/// Finds a file below a directory, and has no effect on the file. Returns `None` if the file does
/// not exist.
fn open_in(root: &OwnedFd, path: &Path, shown: &Path) -> Result<Option<(OwnedFd, Stat)>, SymbolError> {
    let failed = |error: Errno| SymbolError::Read { path: shown.to_owned(), error: error.into() };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    // The flags do not include NOFOLLOW, with which a link itself would be opened.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = match openat2(root, path, flags, Mode::empty(), resolve) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NOSYS) => return Ok(None),
        Err(Errno::LOOP) => return Err(untrusted(shown.to_owned(), "it is a symbolic link")),
        Err(error) => return Err(failed(error)),
    };
    let status = fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(untrusted(shown.to_owned(), "it is not a regular file"));
    }
    if status.st_nlink != 1 {
        return Err(untrusted(shown.to_owned(), "it has several hard links"));
    }
    Ok(Some((file, status)))
}

/// Opens a regular file for reading. The caller has found the file with `open_in`.
fn opened(found: &OwnedFd, shown: PathBuf) -> Result<BoundedFile, SymbolError> {
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    match openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => BoundedFile::of(shown, File::from(file)),
        Err(error) => Err(SymbolError::Read { path: shown, error: error.into() }),
    }
}

fn untrusted(path: PathBuf, why: &'static str) -> SymbolError {
    SymbolError::Untrusted { path, why }
}

fn read_text(folder: &OwnedFd, name: &str) -> Result<String, Errno> {
    let file = openat(folder, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    let read = File::from(file).take(PROC_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or_default().saturating_mul(1_000_000_000).saturating_add(ns.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    // Proves that lines with an address, a length and a name with spaces are parsed. Proves that
    // other lines and a line without a line end are skipped.
    #[test]
    fn lines_are_parsed() {
        let text = "1000 10 LazyCompile:*work /a b.js:1:2\n0x1010 0x8 tail \n1020 0 empty\n1030 8\n1040 8  \n\
                    ffffffffffffffff 8 over\nx 8 wrong\n+1 8 sign\n\n1050 8 unfinished";
        let map = PerfMap::of(text.as_bytes().to_vec());
        let name = |address| map.name_at(address);
        assert_eq!(name(0x1000).as_deref(), Some("LazyCompile:*work /a b.js:1:2"));
        assert_eq!((name(0x100F), name(0x1010)), (name(0x1000), Some("tail".to_owned())));
        assert_eq!(
            [name(0xFFF), name(0x1018), name(0x1030), name(0x1050), name(u64::MAX)],
            [const { None }; 5]
        );
        assert_eq!(map.functions.len(), 2);
    }

    proptest! {
        // Proves that each address gets the name of the last line that contains this address.
        // Method: comparison with a list of addresses.
        #[test]
        fn the_last_line_counts(lines in proptest::collection::vec((0_u64..64, 0_u64..24), 0..40)) {
            let mut expected = vec![None; 96];
            let mut text = String::new();
            for (number, (begin, length)) in lines.iter().enumerate() {
                writeln!(text, "{begin:x} {length:x} f{number}").unwrap();
                for address in *begin..begin + length {
                    expected[usize::try_from(address).unwrap()] = Some(format!("f{number}"));
                }
            }
            let map = PerfMap::of(text.into_bytes());
            for (address, expected) in (0..).zip(expected) {
                prop_assert_eq!(map.name_at(address), expected, "{}", address);
            }
        }

        // Proves that reading never fails, whatever the text contains.
        #[test]
        fn any_text_is_accepted(text in proptest::collection::vec(any::<u8>(), 0..400), address: u64) {
            let _any = PerfMap::of(text).name_at(address);
        }
    }
}
