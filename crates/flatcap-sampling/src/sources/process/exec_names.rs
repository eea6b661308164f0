//! Reads the names of programs when they start. A process that starts and ends between two samples
//! is in neither sample, and its name would be lost. Therefore a separate thread reads the name at
//! each exec.

use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_queue::ArrayQueue;
use flatcap_os::directory_handle::DirectoryHandle;
use flatcap_os::host::HostRoot;
use flatcap_os::poll_event::PollEvent;
use flatcap_os::process_events::{ProcessEvent, ProcessEvents};
use flatcap_os::thread;
use flatcap_schemas::host::ProcessExec;

use super::texts::with_path;

/// Maximum number of execs in one sample.
pub(super) const EXECS_MAX: usize = 1024;
/// Maximum length of a name, including its terminating zero byte.
const NAME_BYTES: usize = 16;

/// Reads the names of programs in a separate thread.
#[derive(Debug)]
pub(super) struct ExecWatcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    execs: ArrayQueue<ProcessExec>,
    has_lost: AtomicBool,
    stop: PollEvent,
}

impl ExecWatcher {
    /// Starts the thread. The thread uses no CPU time while no program starts. For each program
    /// that starts, the thread uses about 65 us. This is a small part of the cost of the start
    /// itself.
    ///
    /// # Errors
    /// Fails for the same reasons as [`ProcessEvents::subscribe_to_execs`], or if the kernel
    /// refuses another thread.
    pub(super) fn start(host: &HostRoot) -> io::Result<Self> {
        let mut events = ProcessEvents::subscribe_to_execs()?;
        let proc = DirectoryHandle::open(&host.path("proc"))?;
        let shared = Arc::new(Shared {
            execs: ArrayQueue::new(EXECS_MAX),
            has_lost: AtomicBool::new(false),
            stop: PollEvent::new()?,
        });
        let its = Arc::clone(&shared);
        let thread = thread::spawn("exec-names", move || {
            while events.wait(&its.stop) {
                events.drain(|event| its.record(event, &proc));
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Replaces `execs` by the execs since the last call, in the order in which they occurred.
    /// Returns whether the list contains all execs.
    pub(super) fn drain(&self, execs: &mut Vec<ProcessExec>) -> bool {
        execs.clear();
        let has_lost = self.shared.has_lost.swap(false, Ordering::Relaxed);
        // The loop has a limit and does not run until the queue is empty, because execs are added
        // concurrently.
        execs.extend((0..EXECS_MAX).map_while(|_| self.shared.execs.pop()));
        !has_lost
    }
}

impl Shared {
    fn record(&self, event: ProcessEvent, proc: &DirectoryHandle) {
        let is_kept = match event {
            ProcessEvent::Executed { pid, mono_ns } => {
                // The name is read only if there is space for it, because a name that is not
                // recorded should take no time.
                !self.execs.is_full() && {
                    let name = name(proc, pid).unwrap_or_default();
                    self.execs.push(ProcessExec::new(pid.into(), mono_ns, &name)).is_ok()
                }
            }
            ProcessEvent::Overrun => false,
            _ => true,
        };
        if !is_kept {
            self.has_lost.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for ExecWatcher {
    fn drop(&mut self) {
        self.shared.stop.set();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported, and only the names are missing.
            let _panicked = thread.join();
        }
    }
}

/// Reads the name of a process. Right after an exec, the name of the process is the name of the
/// program.
fn name(proc: &DirectoryHandle, pid: u32) -> io::Result<[u8; NAME_BYTES]> {
    let mut content = [0; NAME_BYTES];
    // The name has at most 15 bytes and a newline, which is replaced by the zero byte.
    let read = |path: &CStr| proc.open_file(path)?.read(&mut content);
    let length = with_path(pid, "/comm", read)?;
    if let Some(last) = length.checked_sub(1).and_then(|at| content.get_mut(at)) {
        *last = 0;
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use flatcap_os::clock::monotonic_ns;
    use flatcap_os::wake_event::WakeEvent;

    use super::*;
    use crate::sources::tests::fixed_text;

    // Proves that a program that has ended before the recorder reads its name is recorded with its
    // name and time. The test runs a program that ends at once, in a process that stays until its
    // parent waits for it. The test is skipped if the kernel sends no process events.
    #[test]
    fn a_program_that_ended_has_its_name() {
        let watcher = match ExecWatcher::start(&HostRoot::new(Path::new("/"))) {
            Ok(watcher) => watcher,
            Err(error) => return println!("skipped: {error}"),
        };
        let before = monotonic_ns();
        let mut child = Command::new("true").spawn().unwrap();
        let mut execs = Vec::new();
        let found = loop {
            watcher.drain(&mut execs);
            if let Some(exec) = execs.iter().find(|exec| exec.pid() == u64::from(child.id())) {
                break *exec;
            }
            WakeEvent::new().wait_until(monotonic_ns() + 1_000_000);
        };
        child.wait().unwrap();
        assert_eq!(fixed_text(found.name()), "true");
        assert!(found.started() > before && found.started() < monotonic_ns());
    }

    // Proves that execs beyond the limit are reported as missing exactly once.
    #[test]
    fn execs_beyond_the_limit_are_missing() {
        let proc = DirectoryHandle::open(Path::new("/proc")).unwrap();
        let shared = Arc::new(Shared {
            execs: ArrayQueue::new(EXECS_MAX),
            has_lost: AtomicBool::new(false),
            stop: PollEvent::new().unwrap(),
        });
        let watcher = ExecWatcher { shared: Arc::clone(&shared), thread: None };
        let mut execs = Vec::new();
        let pid = std::process::id();
        let record = |count: u64| {
            for mono_ns in 0..count {
                shared.record(ProcessEvent::Executed { pid, mono_ns }, &proc);
                shared.record(ProcessEvent::Forked { pid }, &proc);
            }
        };
        record(EXECS_MAX as u64 + 1);
        assert!(!watcher.drain(&mut execs));
        assert!(execs.iter().map(ProcessExec::started).eq(0..EXECS_MAX as u64));
        record(1);
        assert!(watcher.drain(&mut execs) && execs.len() == 1);
        assert!(watcher.drain(&mut execs) && execs.is_empty());
        shared.record(ProcessEvent::Overrun, &proc);
        assert!(!watcher.drain(&mut execs));
    }
}
