//! Detects a fork. A mark is a word in memory. In a child process, the kernel clears the page that
//! contains the mark (`MADV_WIPEONFORK`). Checking the mark takes one load instruction, and works
//! for every way of forking.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

const PAGE_BYTES: usize = 4096;

/// The mark of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessMark {
    word: &'static AtomicU64, // in the page that a fork clears
    value: u64,               // never 0
}

impl ProcessMark {
    /// Returns the mark of this process. Returns `None` if the kernel does not support
    /// `MADV_WIPEONFORK` (before 4.14).
    pub(crate) fn current() -> Option<Self> {
        static WORD: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
        let word = (*WORD.get_or_init(wiped_word))?;
        let value = u64::from(std::process::id());
        word.store(value, Ordering::Relaxed);
        Some(Self { word, value })
    }

    /// Returns whether this is the process that made the mark.
    #[inline]
    pub(crate) fn is_own_process(self) -> bool {
        self.word.load(Ordering::Relaxed) == self.value
    }
}

#[allow(unsafe_code, reason = "the kernel's interface: mappings are raw pointers")]
fn wiped_word() -> Option<&'static AtomicU64> {
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let page = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            PAGE_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }
    .ok()?;
    // SAFETY: the page was just mapped and is private and anonymous, as the advice requires.
    unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the page is aligned, zero, never unmapped, and only accessed as this atomic.
    Some(unsafe { AtomicU64::from_ptr(page.cast()) })
}
