//! The mapped memory of a lane: the only place that reaches it, through a raw pointer. Rust has no
//! safe way to share memory with another process.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64;

use flatcap_lane::{CONTROL_BYTES, LaneHeader, WriterMemory};
use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::process_mark::ProcessMark;

/// A lane, mapped shared. One thread at a time has it.
#[derive(Debug)]
pub(crate) struct Mapping {
    map: ManuallyDrop<MmapRaw>, // longer than CONTROL_BYTES
    /// The process that made it; by its id where the kernel has no marks.
    mark: Option<ProcessMark>,
    process: u32,
}

impl Mapping {
    /// Maps a lane. The recorder has sealed its size, so no access can fail.
    pub(crate) fn new(file: &File) -> io::Result<(Self, LaneHeader)> {
        let bytes = file.metadata()?.len();
        let page = {
            let mut page = vec![0; CONTROL_BYTES];
            std::os::unix::fs::FileExt::read_exact_at(file, &mut page, 0)?;
            page
        };
        let header = LaneHeader::parse(&page, bytes).map_err(io::Error::other)?;
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        // Populated, so that no push meets a page fault.
        let map = MmapOptions::new().len(length).populate().map_raw(file)?;
        // A child has no use for it, and could only damage it. Kernels since 2.6.16 have this.
        map.advise(Advice::DontFork)?;
        let (mark, process) = (ProcessMark::current(), std::process::id());
        Ok((Self { map: ManuallyDrop::new(map), mark, process }, header))
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code, reason = "memmap2 cannot know that a child does not have the mapping")]
    fn drop(&mut self) {
        let is_own =
            self.mark.map_or_else(|| std::process::id() == self.process, ProcessMark::is_own_process);
        // A child has no such mapping: at its address there may be something else by now.
        if is_own {
            // SAFETY: it is dropped once, here, and not used any more.
            unsafe { ManuallyDrop::drop(&mut self.map) };
        }
    }
}

impl WriterMemory for Mapping {
    #[inline]
    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    fn number(&self, at: usize) -> &AtomicU64 {
        // Inlined with a constant offset, this costs nothing.
        assert!(at < CONTROL_BYTES && at.is_multiple_of(8), "a number lies in the first page");
        // SAFETY: the eight bytes lie within the mapping, which is longer than the first page and
        // lives as long as `self`; the address is a multiple of 8, since mappings begin at a page.
        // Every access to the first page, of this process and through the kernel, is atomic.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(at).cast()) }
    }

    #[inline]
    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    fn write<R>(&mut self, at: usize, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let is_inside = at >= CONTROL_BYTES && self.map.len() - at >= length && at <= self.map.len();
        assert!(is_inside, "frames lie in the slabs");
        // SAFETY: the range lies within the mapping and behind the first page, so no number is in
        // it. `&mut self` excludes every other reference in this process: the mapping is made once
        // a lane, and no child inherits it. The recorder only reads the memory, through the kernel,
        // and checks its copy.
        fill(unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(at), length) })
    }
}
