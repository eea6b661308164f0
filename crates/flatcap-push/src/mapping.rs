//! The mapped memory of a lane. Only this module accesses the memory, through a raw pointer,
//! because Rust has no safe way to share memory with another process.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64;

use flatcap_lane::{CONTROL_BYTES, LaneHeader, WriterMemory};
use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::process_mark::ProcessMark;

/// A lane, mapped as shared memory. One thread at a time owns it.
#[derive(Debug)]
pub(crate) struct Mapping {
    map: ManuallyDrop<MmapRaw>, // longer than CONTROL_BYTES
    /// The mark of the process that made the mapping. If the kernel does not support marks, the
    /// process is identified by its process id.
    mark: Option<ProcessMark>,
    process: u32,
}

impl Mapping {
    /// Maps a lane. The recorder has sealed the size of the mapped file, so no access can fail.
    pub(crate) fn new(file: &File) -> io::Result<(Self, LaneHeader)> {
        let bytes = file.metadata()?.len();
        let page = {
            let mut page = vec![0; CONTROL_BYTES];
            std::os::unix::fs::FileExt::read_exact_at(file, &mut page, 0)?;
            page
        };
        let header = LaneHeader::parse(&page, bytes).map_err(io::Error::other)?;
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        // The mapping is populated, so that no push causes a page fault.
        let map = MmapOptions::new().len(length).populate().map_raw(file)?;
        // A child process does not need the mapping, and could only damage the lane. Kernels since
        // 2.6.16 support this.
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
        // A child process does not have this mapping. At the same address there may be another
        // mapping.
        if is_own {
            // SAFETY: the mapping is dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.map) };
        }
    }
}

impl WriterMemory for Mapping {
    #[inline]
    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    fn number(&self, at: usize) -> &AtomicU64 {
        // Inlined with a constant offset, this check takes no time.
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
        // SAFETY: the range lies within the mapping and after the first page, so no number is in
        // it. `&mut self` excludes every other reference in this process, because each lane is
        // mapped only once and no child inherits the mapping. The recorder only reads the memory,
        // through the kernel, and checks its copy.
        fill(unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(at), length) })
    }
}

#[cfg(test)]
mod tests {
    use flatcap_lane::{LaneBudget, LaneWriter, OnFullSlab, Refusal};
    use flatcap_stream::{ChecksumKind, DeframeStatus, KindDeframer, SliceDeframer};
    use memmap2::MmapMut;

    use super::*;

    const SLAB_BYTES: usize = 4096;

    /// Returns a lane in private memory of this process, which miri's memory model supports.
    fn lane() -> (Mapping, LaneHeader) {
        let header = LaneHeader {
            slabs: 2,
            slab_bytes: SLAB_BYTES,
            checksum: ChecksumKind::Xxh3,
            frame_max: 1000,
            run_id: 1,
            directory: (1, 2),
            boot: (3, 4),
            lane: 5,
            uid: 6,
            budget: LaneBudget::default(),
        };
        let mut map = MmapMut::map_anon(CONTROL_BYTES + 2 * SLAB_BYTES).unwrap();
        map[..CONTROL_BYTES].copy_from_slice(&header.first_page(7));
        let map = ManuallyDrop::new(MmapRaw::from(map));
        (Mapping { map, mark: None, process: std::process::id() }, header)
    }

    // Proves that frames are written one after the other into the slabs, and numbers into the first
    // page, through the raw pointer. Under miri, the test also proves that no access is out of
    // bounds or violates the aliasing rules.
    #[test]
    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    fn a_lane_is_written() {
        let (mapping, header) = lane();
        let mut writer = LaneWriter::new(mapping, header);
        assert_eq!(writer.ready(0, 8), Err(Refusal::Unbound));
        writer.bind(0, 9, 0);
        let mut pushed = 0;
        for slab in 0..2 {
            while writer.ready(0, 100).is_ok() {
                writer.push(0, 100, 1, |place| place.fill(0xA5));
                pushed += 1;
            }
            assert_eq!(writer.open_next(OnFullSlab::Keep), slab == 0);
        }
        assert_eq!(writer.counts(0), (pushed, 0));
        let map = &writer.memory().map;
        // SAFETY: the mapping has this number of bytes, and no thread writes to it any more.
        let bytes = unsafe { std::slice::from_raw_parts(map.as_ptr(), map.len()) };
        let mut frames = 0;
        for slab in bytes[CONTROL_BYTES..].chunks(SLAB_BYTES) {
            let mut at = 0;
            while let Ok(DeframeStatus::Frame(frame)) =
                KindDeframer::new(ChecksumKind::Xxh3).deframe(&slab[at..])
            {
                assert!(frame.payload().ends_with(&[0xA5; 100]));
                at += frame.bytes().len();
                frames += 1;
            }
        }
        assert_eq!(frames, pushed);
    }

    // Proves that a range outside of the slabs is refused.
    #[test]
    #[should_panic(expected = "frames lie in the slabs")]
    fn a_place_outside_is_refused() {
        lane().0.write(CONTROL_BYTES + 2 * SLAB_BYTES - 7, 8, |_| ());
    }
}
