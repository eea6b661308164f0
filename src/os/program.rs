//! Programs that are run for what they print: never longer, and never more, than the caller allows.

use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, geteuid, kill_process_group, pidfd_open, waitid,
};

use super::clock::monotonic_ns;

/// Most bytes of its output that are kept.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Where programs look for others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Without a descriptor of the process (before Linux 5.3) its end is looked for this often.
const LOOK_EVERY_NS: u64 = 5_000_000;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal, and not ours.
    Signalled(i32),
    /// Killed at its deadline.
    TimedOut,
    /// Killed for printing more than [`OUTPUT_BYTES_MAX`].
    PrintedTooMuch,
}

/// A run that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// How it ended.
    pub end: End,
    /// How long it took.
    pub duration_ns: u64,
}

/// Lets another thread end the run that is under way, if one is.
#[derive(Debug, Clone, Default)]
pub struct Leash {
    group: Arc<Mutex<Option<Pid>>>, // the running program's, until it is waited for
}

impl Leash {
    /// Kills the program and its process group. The run then ends as one that a signal ended.
    pub fn pull(&self) {
        if let Some(group) = *self.group() {
            // While it is here it was not waited for, so the number is its own. That nobody is left is no error.
            let _nobody_left = kill_process_group(group, Signal::KILL);
        }
    }

    fn group(&self) -> MutexGuard<'_, Option<Pid>> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a program, given by its absolute path and its arguments, and keeps what it prints to standard output in `output`.
/// It has an environment of its own (PATH and LANG=C), no input, the directory / and a process group of its own, all of
/// which is killed in the end: nothing stays behind but what leaves that group on purpose (setsid).
///
/// # Errors
/// What the kernel said when it was to be started.
pub fn run(words: &[String], timeout_ns: u64, leash: &Leash, output: &mut Vec<u8>) -> io::Result<Run> {
    output.clear();
    let (program, arguments) = words.split_first().ok_or(ErrorKind::InvalidInput)?;
    let begin = monotonic_ns();
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let group = Pid::from_child(&child);
    *leash.group() = Some(group);
    let stopped = follow(&mut child, group, begin.saturating_add(timeout_ns), output);
    // The child was not waited for yet, so the number is still its own. That nobody is left to be killed is no error.
    let _nobody_left = kill_process_group(group, Signal::KILL);
    let _has_ended = child.kill();
    *leash.group() = None;
    let status = child.wait()?;
    let duration_ns = monotonic_ns() - begin;
    Ok(Run { end: stopped?.unwrap_or_else(|| end(status)), duration_ns })
}

/// Reads until the child ends; says why it must be killed, if it must.
fn follow(child: &mut Child, pid: Pid, deadline_ns: u64, output: &mut Vec<u8>) -> io::Result<Option<End>> {
    let process = pidfd_open(pid, PidfdFlags::empty()).ok();
    let mut pipe = child.stdout.take();
    if let Some(pipe) = &pipe {
        ioctl_fionbio(pipe, true)?;
    }
    loop {
        // First the end, then the output: what it printed before its end is in the pipe by then.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let has_ended = waitid(WaitId::Pid(pid), look)?.is_some();
        if let Some(open) = &mut pipe
            && !take(open, output)?
        {
            pipe = None;
        }
        if output.len() > OUTPUT_BYTES_MAX {
            output.truncate(OUTPUT_BYTES_MAX);
            return Ok(Some(End::PrintedTooMuch));
        }
        // What it started may hold the pipe open; it is not waited for.
        if has_ended {
            return Ok(None);
        }
        let left_ns = deadline_ns.saturating_sub(monotonic_ns());
        if left_ns == 0 {
            return Ok(Some(End::TimedOut));
        }
        wait(pipe.as_ref(), process.as_ref(), left_ns)?;
    }
}

/// Takes what is in the pipe, at most one byte more than the limit. False if nothing can follow.
fn take(pipe: &mut ChildStdout, output: &mut Vec<u8>) -> io::Result<bool> {
    let room = (OUTPUT_BYTES_MAX + 1).saturating_sub(output.len());
    match pipe.take(room as u64).read_to_end(output) {
        Ok(count) => Ok(count == room),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Waits until something is printed, the process ends, or the time is over.
fn wait(pipe: Option<&ChildStdout>, process: Option<&OwnedFd>, left_ns: u64) -> io::Result<()> {
    let wait_ns = if process.is_some() { left_ns } else { left_ns.min(LOOK_EVERY_NS) };
    let second = 1_000_000_000;
    let timeout = Timespec {
        tv_sec: i64::try_from(wait_ns / second).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(wait_ns % second).unwrap_or(0),
    };
    let polled = match (pipe, process) {
        (Some(pipe), Some(process)) => {
            poll(&mut [PollFd::new(pipe, PollFlags::IN), PollFd::new(process, PollFlags::IN)], Some(&timeout))
        }
        (Some(pipe), None) => poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout)),
        (None, Some(process)) => poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)),
        (None, None) => poll(&mut [], Some(&timeout)),
    };
    match polled {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn end(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, signal) => End::Signalled(signal.unwrap_or(0)),
    }
}

/// What lies at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The owner's number.
    pub owner: u32,
    /// The lower twelve bits of its mode.
    pub mode: u32,
    /// Where it leads, if it is a symbolic link.
    pub target: Option<PathBuf>,
}

/// Looks at what lies at a path; a link there is not followed.
///
/// # Errors
/// What the kernel says.
pub fn entry(path: &Path) -> io::Result<Entry> {
    let metadata = path.symlink_metadata()?;
    let target = if metadata.is_symlink() { Some(path.read_link()?) } else { None };
    Ok(Entry { owner: metadata.uid(), mode: metadata.mode() & 0o7777, target })
}

/// The user whose rights this process has.
pub fn own_user() -> u32 {
    geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// For what has to end by itself, on a machine of any speed.
    const WATCHDOG_NS: u64 = 120 * SECOND;
    /// For what is to be cut short, after its first line of output.
    const TIMEOUT_NS: u64 = SECOND;

    fn shell(script: &str, timeout_ns: u64) -> (Run, Vec<u8>) {
        let mut output = b"old".to_vec();
        let words = ["/bin/sh", "-c", script].map(str::to_owned);
        (run(&words, timeout_ns, &Leash::default(), &mut output).unwrap(), output)
    }

    // Goal: output, status and signal arrive; the environment is empty and the directory is the root. Method: /bin/sh.
    #[test]
    fn what_is_printed_arrives() {
        let (run, output) = shell("pwd; env | sort | grep -v ^_=; cat; exit 3", WATCHDOG_NS);
        let expected = format!("/\nLANG=C\nPATH={PATH}\nPWD=/\n");
        assert_eq!((run.end, String::from_utf8(output).unwrap()), (End::Exited(3), expected));
        assert_eq!(shell("kill -9 $$", WATCHDOG_NS).0.end, End::Signalled(9));
        let missing = super::run(&["/nowhere/x".to_owned()], SECOND, &Leash::default(), &mut Vec::new());
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    }

    // Goal: a run ends at its time-out with all that it started, and one that ends leaves nothing behind. Method: children
    // that sleep, told apart by their number; they are gone, or dead and not yet collected by whoever adopted them.
    #[test]
    fn nothing_stays_behind() {
        for (script, timeout_ns, expected) in [
            ("sleep 1000 & echo $!; sleep 1000", TIMEOUT_NS, End::TimedOut),
            ("sleep 1000 & echo $!; exit 0", WATCHDOG_NS, End::Exited(0)),
            ("sleep 1000 & echo $!; exec >&-; sleep 1000", TIMEOUT_NS, End::TimedOut),
        ] {
            let begin = monotonic_ns();
            let (run, output) = shell(script, timeout_ns);
            assert_eq!(run.end, expected);
            // The sleepers would hold it up for 1,000 s.
            assert!(monotonic_ns() - begin < WATCHDOG_NS);
            let pid: u32 = String::from_utf8(output).unwrap().trim().parse().unwrap();
            let is_alive = || {
                std::fs::read_to_string(format!("/proc/{pid}/stat"))
                    .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
            };
            while is_alive() {
                assert!(monotonic_ns() - begin < WATCHDOG_NS, "{pid} lives");
                std::thread::yield_now();
            }
        }
    }

    // Goal: another thread can end a run, and nothing happens where none is under way. Method: a shell that ignores what can be
    // ignored.
    #[test]
    fn a_leash_ends_a_run() {
        let leash = Leash::default();
        leash.pull();
        let words = ["/bin/sh", "-c", "trap '' TERM INT HUP; sleep 1000"].map(str::to_owned);
        let run = std::thread::scope(|scope| {
            scope.spawn(|| {
                while leash.group().is_none() {
                    std::thread::yield_now();
                }
                leash.pull();
            });
            run(&words, WATCHDOG_NS, &leash, &mut Vec::new()).unwrap()
        });
        assert_eq!(run.end, End::Signalled(9), "{run:?}");
        leash.pull();
    }

    // Goal: endless output takes neither memory nor time. Method: yes(1), and just what is allowed.
    #[test]
    fn output_is_limited() {
        let (run, output) = shell("while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyy; done", WATCHDOG_NS);
        assert_eq!((run.end, output.len()), (End::PrintedTooMuch, OUTPUT_BYTES_MAX));
        let (run, output) = shell("head -c 65536 /dev/zero", WATCHDOG_NS);
        assert_eq!((run.end, output.len()), (End::Exited(0), OUTPUT_BYTES_MAX));
    }
}
