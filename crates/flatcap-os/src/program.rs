//! Runs external programs for their output, with limits on time and output size.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::ioctl_fionbio;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use super::clock::monotonic_ns;

/// Maximum number of output bytes that are kept. This is enough for the metrics of most programs.
pub(crate) const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// PATH of the programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Poll interval for the end of the process if there is no pidfd (before Linux 5.3).
const POLL_NS: u64 = 5_000_000;

/// The way in which a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramEnd {
    /// Exited with this status.
    Exited(i32),
    /// Killed by a signal, but not because of a limit.
    Signalled(i32),
    /// Killed at its deadline.
    TimedOut,
    /// Killed because it printed more than `OUTPUT_BYTES_MAX`.
    OutputTooLong,
}

/// The result of a finished program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramRun {
    /// The way in which the program ended.
    pub end: ProgramEnd,
    /// Run time.
    pub duration_ns: u64,
}

/// Lets another thread kill the running program, if there is one.
#[derive(Debug, Clone, Default)]
pub struct KillHandle {
    group: Arc<Mutex<Option<Pid>>>, // of the running program, until it is reaped
}

impl KillHandle {
    /// Kills the program and its process group. The run then returns [`ProgramEnd::Signalled`].
    pub fn kill(&self) {
        if let Some(group) = *self.group() {
            // The group id is set only until the process is reaped. Until then, the kernel does not
            // reuse the id. It is no error if no process is left.
            let _nobody_left = kill_process_group(group, Signal::KILL);
        }
    }

    fn group(&self) -> MutexGuard<'_, Option<Pid>> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the path of another program of flatcap, in the directory of this program. PATH is not
/// searched, because it may contain another version, or, when running as root, another user's
/// program.
///
/// # Errors
/// Any error of reading /proc/self/exe.
pub fn beside_this(name: &str) -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}

/// Runs a program, given by its absolute path and its arguments, and stores its standard output in
/// `output`. The program gets a minimal environment (PATH and LANG=C), no input, the working
/// directory / and its own process group. The whole group is killed at the end, so only processes
/// that leave the group on purpose (setsid) survive.
///
/// # Errors
/// The program cannot be started.
pub fn run(
    words: &[String],
    timeout_ns: u64,
    kill_handle: &KillHandle,
    output: &mut Vec<u8>,
) -> io::Result<ProgramRun> {
    run_with(Stdio::null(), words, (timeout_ns, kill_handle), output)
}

/// Runs a program as [`run`] does, with `input` on its standard input.
///
/// # Errors
/// The program cannot be started.
pub fn run_with_input(
    words: &[String],
    input: &[u8],
    timeout_ns: u64,
    output: &mut Vec<u8>,
) -> io::Result<ProgramRun> {
    run_with(input_file(input)?.into(), words, (timeout_ns, &KillHandle::default()), output)
}

fn run_with(
    input: Stdio,
    words: &[String],
    (timeout_ns, kill_handle): (u64, &KillHandle),
    output: &mut Vec<u8>,
) -> io::Result<ProgramRun> {
    output.clear();
    let begin = monotonic_ns();
    let mut child = command(words)?.stdin(input).stdout(Stdio::piped()).spawn()?;
    let group = Pid::from_child(&child);
    *kill_handle.group() = Some(group);
    let stopped = read_until_exit(&mut child, group, begin.saturating_add(timeout_ns), output);
    // The child is not reaped yet, so the kernel has not reused its process id. It is no error if
    // no process is left.
    let _nobody_left = kill_process_group(group, Signal::KILL);
    let _has_ended = child.kill();
    *kill_handle.group() = None;
    let status = child.wait()?;
    let duration_ns = monotonic_ns() - begin;
    Ok(ProgramRun { end: stopped?.unwrap_or_else(|| program_end(status)), duration_ns })
}

/// Returns a file with these bytes, positioned at its start. A file is used, because a pipe could
/// be full before the program reads.
fn input_file(input: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("flatcap-input", MemfdFlags::CLOEXEC)?);
    file.write_all(input)?;
    file.rewind()?;
    Ok(file)
}

/// Starts a program as [`run`] does, with `input` on its standard input and without output. The
/// caller waits for the program.
///
/// # Errors
/// The program cannot be started.
pub fn start_with_input(words: &[String], input: &[u8]) -> io::Result<Child> {
    command(words)?.stdin(input_file(input)?).stdout(Stdio::null()).spawn()
}

/// Returns the command of a program, with a minimal environment and a separate process group.
fn command(words: &[String]) -> io::Result<Command> {
    let (program, arguments) = words.split_first().ok_or(ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", "C")
        .current_dir("/")
        .stderr(Stdio::null())
        .process_group(0);
    Ok(command)
}

/// Reads until the child ends. Returns the reason if it must be killed.
fn read_until_exit(
    child: &mut Child,
    pid: Pid,
    deadline_ns: u64,
    output: &mut Vec<u8>,
) -> io::Result<Option<ProgramEnd>> {
    let process = pidfd_open(pid, PidfdFlags::empty()).ok();
    let mut pipe = child.stdout.take();
    if let Some(pipe) = &pipe {
        ioctl_fionbio(pipe, true)?;
    }
    loop {
        // The exit is checked before the read. The read then finds all output that the program
        // wrote before its exit.
        let wait_options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let has_ended = waitid(WaitId::Pid(pid), wait_options)?.is_some();
        if let Some(open) = &mut pipe
            && !read_pipe(open, output)?
        {
            pipe = None;
        }
        if output.len() > OUTPUT_BYTES_MAX {
            output.truncate(OUTPUT_BYTES_MAX);
            return Ok(Some(ProgramEnd::OutputTooLong));
        }
        // Children of the program may keep the pipe open, so this function does not wait for the
        // end of the pipe.
        if has_ended {
            return Ok(None);
        }
        let remaining_ns = deadline_ns.saturating_sub(monotonic_ns());
        if remaining_ns == 0 {
            return Ok(Some(ProgramEnd::TimedOut));
        }
        wait_for_activity(pipe.as_ref(), process.as_ref(), remaining_ns)?;
    }
}

/// Reads from the pipe, up to one byte more than the limit. Returns false if no more output can
/// follow.
fn read_pipe(pipe: &mut ChildStdout, output: &mut Vec<u8>) -> io::Result<bool> {
    let space = (OUTPUT_BYTES_MAX + 1).saturating_sub(output.len());
    match pipe.take(space as u64).read_to_end(output) {
        Ok(count) => Ok(count == space),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Waits until there is output, the process ends, or the timeout has passed.
fn wait_for_activity(
    pipe: Option<&ChildStdout>,
    process: Option<&OwnedFd>,
    remaining_ns: u64,
) -> io::Result<()> {
    let wait_ns = if process.is_some() { remaining_ns } else { remaining_ns.min(POLL_NS) };
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

/// Returns how a program ended if it was not killed because of a limit.
pub fn program_end(status: ExitStatus) -> ProgramEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramEnd::Exited(code),
        (None, signal) => ProgramEnd::Signalled(signal.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// Time limit for test scripts that end by themselves. It is long enough for machines of any
    /// speed.
    const WATCHDOG_NS: u64 = 120 * SECOND;
    /// Time from a script's first line of output until the script is to be killed.
    const TIMEOUT_NS: u64 = SECOND;

    fn shell(script: &str, timeout_ns: u64) -> (ProgramRun, Vec<u8>) {
        let mut output = b"old".to_vec();
        let words = ["/bin/sh", "-c", script].map(str::to_owned);
        (run(&words, timeout_ns, &KillHandle::default(), &mut output).unwrap(), output)
    }

    // Proves that output, status and signal are returned, and that environment and working
    // directory are as documented.
    #[test]
    fn output_and_status_are_returned() {
        let (run, output) = shell("pwd; env | sort | grep -v ^_=; cat; exit 3", WATCHDOG_NS);
        let expected = format!("/\nLANG=C\nPATH={PATH}\nPWD=/\n");
        assert_eq!((run.end, String::from_utf8(output).unwrap()), (ProgramEnd::Exited(3), expected));
        assert_eq!(shell("kill -9 $$", WATCHDOG_NS).0.end, ProgramEnd::Signalled(9));
        let missing = super::run(&["/nowhere/x".to_owned()], SECOND, &KillHandle::default(), &mut Vec::new());
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    }

    // Proves that a program is killed at its timeout with all its children, and that a program that
    // exits leaves no children. The children are gone, or are zombies that the adopting process has
    // not yet reaped.
    #[test]
    fn children_are_killed() {
        for (script, timeout_ns, expected) in [
            ("sleep 1000 & echo $!; sleep 1000", TIMEOUT_NS, ProgramEnd::TimedOut),
            ("sleep 1000 & echo $!; exit 0", WATCHDOG_NS, ProgramEnd::Exited(0)),
            ("sleep 1000 & echo $!; exec >&-; sleep 1000", TIMEOUT_NS, ProgramEnd::TimedOut),
        ] {
            let begin = monotonic_ns();
            let (run, output) = shell(script, timeout_ns);
            assert_eq!(run.end, expected);
            // If the run waited for the sleeping children, it would take 1,000 s.
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

    // Proves that another thread can kill a program that ignores signals, and that killing is
    // harmless when no program runs.
    #[test]
    fn a_kill_handle_ends_a_run() {
        let kill_handle = KillHandle::default();
        kill_handle.kill();
        let words = ["/bin/sh", "-c", "trap '' TERM INT HUP; sleep 1000"].map(str::to_owned);
        let run = std::thread::scope(|scope| {
            scope.spawn(|| {
                while kill_handle.group().is_none() {
                    std::thread::yield_now();
                }
                kill_handle.kill();
            });
            run(&words, WATCHDOG_NS, &kill_handle, &mut Vec::new()).unwrap()
        });
        assert_eq!(run.end, ProgramEnd::Signalled(9), "{run:?}");
        kill_handle.kill();
    }

    // Proves that endless output exhausts neither memory nor time, and that output up to the limit
    // is kept.
    #[test]
    fn output_is_limited() {
        let (run, output) = shell("while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyy; done", WATCHDOG_NS);
        assert_eq!((run.end, output.len()), (ProgramEnd::OutputTooLong, OUTPUT_BYTES_MAX));
        let (run, output) = shell(&format!("head -c {OUTPUT_BYTES_MAX} /dev/zero"), WATCHDOG_NS);
        assert_eq!((run.end, output.len()), (ProgramEnd::Exited(0), OUTPUT_BYTES_MAX));
    }
}
