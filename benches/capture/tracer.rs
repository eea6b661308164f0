//! Stops one thread of another process by `ptrace(2)` while the others run: to the program this
//! looks like a disk that does not respond. Budget: none.

use std::io;
use std::ptr::null_mut;

/// A thread that is stopped while this value lives. Usable only on the thread that created it.
#[derive(Debug)]
pub struct StoppedThread {
    thread: i32,
}

impl StoppedThread {
    /// Stops a thread of a child process; the other threads continue.
    pub fn stop(thread: i32) -> io::Result<Self> {
        request(libc::PTRACE_SEIZE, thread)?;
        let stopped = Self { thread };
        request(libc::PTRACE_INTERRUPT, thread)?;
        wait_until_stopped(thread)?;
        Ok(stopped)
    }

    /// Lets the thread continue.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // Fails if the thread was killed in the meantime, which is fine.
        let _gone = request(libc::PTRACE_DETACH, self.thread);
    }
}

/// Makes a request without data.
#[allow(unsafe_code, reason = "the kernel's interface: ptrace takes pointers")]
fn request(what: libc::c_uint, thread: i32) -> io::Result<()> {
    // SAFETY: these requests (SEIZE, INTERRUPT, DETACH) take numbers in place of both pointers; 0
    // means no options and no signal.
    match unsafe { libc::ptrace(what, thread, null_mut::<libc::c_void>(), null_mut::<libc::c_void>()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until a thread that was asked to stop has stopped.
#[allow(
    unsafe_code,
    reason = "the kernel's interface: waiting for another process's thread needs __WALL, which rustix lacks"
)]
fn wait_until_stopped(thread: i32) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: the kernel writes one number to `status`, which outlives the call.
    let stopped = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    if stopped < 0 {
        return Err(io::Error::last_os_error());
    }
    if stopped != thread || !libc::WIFSTOPPED(status) {
        return Err(io::Error::other("the thread ended instead of being stopped"));
    }
    Ok(())
}
