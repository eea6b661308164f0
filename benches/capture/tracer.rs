//! How is one thread of another process held, and no other? By `ptrace(2)`: to the program it looks like a disk that does not answer.
//! Budget: none.

use std::io;
use std::ptr::null_mut;

/// A thread that stands still for as long as this lives. For the thread that made it alone.
#[derive(Debug)]
pub struct Held {
    thread: i32,
}

impl Held {
    /// Stops a thread of a process of ours; the process's other threads go on.
    pub fn hold(thread: i32) -> io::Result<Self> {
        request(libc::PTRACE_SEIZE, thread)?;
        let held = Self { thread };
        request(libc::PTRACE_INTERRUPT, thread)?;
        wait_until_stopped(thread)?;
        Ok(held)
    }

    /// Lets it go on.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A thread that was killed meanwhile needs no letting go.
        let _gone = request(libc::PTRACE_DETACH, self.thread);
    }
}

/// One request without data.
#[allow(unsafe_code, reason = "the kernel's interface: ptrace takes pointers")]
fn request(what: libc::c_uint, thread: i32) -> io::Result<()> {
    // SAFETY: these requests (SEIZE, INTERRUPT, DETACH) take numbers in place of both pointers; 0 is no option, no signal.
    match unsafe { libc::ptrace(what, thread, null_mut::<libc::c_void>(), null_mut::<libc::c_void>()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until a thread that was asked to stop has done so.
#[allow(
    unsafe_code,
    reason = "the kernel's interface: threads of others are waited for with __WALL, which rustix lacks"
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
