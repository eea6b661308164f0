//! The tracepoint of wakeups, `sched:sched_waking`, with its id and the position of the thread id
//! in its data.

use std::path::{Path, PathBuf};

use flatcap_os::environment;
use flatcap_os::host::{HostFile, HostRoot};

use crate::sources::text;

/// The credential from which an unprivileged service reads the id of the tracepoint
/// (`LoadCredential=`, systemd.exec(5)).
const CREDENTIAL: &str = "sched_waking";
/// The directory of the tracepoint in tracefs, at the new and at the old mount point of tracefs.
const DIRECTORIES: [&str; 2] =
    ["sys/kernel/tracing/events/sched/sched_waking", "sys/kernel/debug/tracing/events/sched/sched_waking"];
/// Offset of the thread id in the tracepoint's data. The id follows the name of the thread, which
/// has 16 bytes. This offset has not changed since the tracepoint was added in Linux 4.3.
const THREAD_OFFSET: usize = 24;
/// Maximum offset of the thread id, because the data of a tracepoint has at most one page.
const OFFSET_MAX: usize = 4096;

/// The tracepoint with the id that this kernel gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WakeupTracepoint {
    /// The tracepoint's number.
    pub(super) number: u64,
    thread_offset: usize,
}

impl WakeupTracepoint {
    /// Reads the tracepoint's id from the credential, or from tracefs, which only root can read.
    /// Returns `None` if neither the credential nor tracefs has the id.
    pub(super) fn find(host: &HostRoot) -> Option<Self> {
        Self::find_in(host, environment::directory("CREDENTIALS_DIRECTORY"))
    }

    fn find_in(host: &HostRoot, credentials: Option<PathBuf>) -> Option<Self> {
        let directories = || DIRECTORIES.iter().map(|directory| host.path(directory));
        let credential = credentials.map(|directory| directory.join(CREDENTIAL));
        let mut files = credential.into_iter().chain(directories().map(|directory| directory.join("id")));
        // An empty credential has no number. In this case tracefs is tried.
        let number = files.find_map(|path| parse_number(&content(&path)?))?;
        let format = directories().find_map(|directory| content(&directory.join("format")));
        let thread_offset = format.and_then(|format| parse_thread_offset(&format));
        Some(Self { number, thread_offset: thread_offset.unwrap_or(THREAD_OFFSET) })
    }

    /// Returns the id of the thread that the wakeup makes ready, from the tracepoint's data.
    /// Returns `None` if the data are too short.
    #[allow(clippy::host_endian_bytes, reason = "a number of the kernel of this host, never stored")]
    pub(super) fn thread(self, data: &[u8]) -> Option<u32> {
        data.get(self.thread_offset..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }
}

fn content(path: &Path) -> Option<Vec<u8>> {
    let mut file = HostFile::open(path).ok()?;
    file.read().ok()?;
    Some(file.content().to_vec())
}

fn parse_number(content: &[u8]) -> Option<u64> {
    text::number(content.trim_ascii()).filter(|number| *number > 0)
}

/// Parses the tracepoint's file `format`, and returns the offset of the field `pid`, which must
/// have 4 bytes.
fn parse_thread_offset(format: &[u8]) -> Option<usize> {
    let mut lines = format.split(|byte| *byte == b'\n');
    let line = lines.find(|line| {
        let declaration = line.trim_ascii().split(|byte| *byte == b';').next().unwrap_or_default();
        declaration.starts_with(b"field:") && declaration.ends_with(b" pid")
    })?;
    let mut parts = line.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let mut value = |name: &[u8]| {
        let part = parts.find_map(|part| part.strip_prefix(name))?;
        text::number(part).and_then(|number| usize::try_from(number).ok())
    };
    let (offset, size) = (value(b"offset:")?, value(b"size:")?);
    (size == 4 && offset <= OFFSET_MAX).then_some(offset)
}

#[cfg(test)]
#[allow(clippy::host_endian_bytes, reason = "numbers as the kernel of this host writes them")]
mod tests {
    use super::*;
    use crate::sources::tests::host_with;

    const FORMAT: &str = "name: sched_waking\nID: 375\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:28;\tsize:4;\tsigned:1;\n\
        \tfield:int prio;\toffset:32;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"comm=%s pid=%d prio=%d\", REC->comm, REC->pid, REC->prio\n";

    // Proves that the number comes from the credential or, if there is none, from tracefs. The
    // offset comes from the format or, if the format is missing, from the layout that all kernels
    // have.
    #[test]
    fn the_tracepoint_is_found() {
        let [new, old] = DIRECTORIES;
        let (id, format) = (format!("{new}/id"), format!("{new}/format"));
        let found = |files: &[(&str, &str)], credential: Option<&str>| {
            let host = host_with(files);
            let credentials = credential.map(|text| host_with(&[(CREDENTIAL, text)]));
            let directory = credentials.as_ref().map(|directory| directory.path().to_owned());
            let found = WakeupTracepoint::find_in(&HostRoot::new(host.path()), directory);
            found.map(|found| (found.number, found.thread_offset))
        };
        assert_eq!(found(&[(&id, "375\n")], None), Some((375, 24)));
        assert_eq!(found(&[(&id, "375\n"), (&format, FORMAT)], Some("376\n")), Some((376, 28)));
        assert_eq!(found(&[(&format!("{old}/id"), "12\n")], Some("")), Some((12, 24)));
        assert_eq!(found(&[(&format!("{old}/id"), "12\n")], Some("0")), Some((12, 24)));
        for wrong in ["", "0\n", "x\n", "-1\n"] {
            assert_eq!(found(&[(&id, wrong)], None), None);
        }
        assert_eq!(found(&[], None), None);
    }

    // Proves that a format with another size or without the field gives no offset, and that data
    // that are too short give no thread.
    #[test]
    fn damage_is_noticed() {
        assert_eq!(parse_thread_offset(FORMAT.as_bytes()), Some(28));
        for (from, to) in [("size:4;\tsigned:1;\n\tfield:int prio", "size:8;"), (" pid;", " tid;")] {
            assert_eq!(parse_thread_offset(FORMAT.replace(from, to).as_bytes()), None);
        }
        assert_eq!(parse_thread_offset(FORMAT.replace("offset:28", "offset:4097").as_bytes()), None);
        for cut in 0..FORMAT.len() {
            parse_thread_offset(&FORMAT.as_bytes()[..cut]);
        }
        let tracepoint = WakeupTracepoint { number: 1, thread_offset: 4 };
        let data = [7_u32.to_ne_bytes(), 8_u32.to_ne_bytes()].concat();
        assert_eq!((tracepoint.thread(&data), tracepoint.thread(&data[..7])), (Some(8), None));
        assert_eq!(tracepoint.thread(&data[..3]), None);
    }
}
