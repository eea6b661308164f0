//! Memory that is shared with another process and whose length or content is fixed.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, memfd_create,
};

/// Creates fully allocated memory of this length that nobody can lengthen or shorten.
///
/// # Errors
/// The kernel has no memory left, or this process cannot open another descriptor.
pub fn create_fixed_length(name: &str, bytes: u64) -> io::Result<File> {
    let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fallocate(&memory, FallocateFlags::empty(), 0, bytes)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory.into())
}

/// Opens memory that was received from a peer and whose length nobody can change. Returns the
/// memory and its length in bytes. Reading such memory never waits.
///
/// # Errors
/// `InvalidInput` if the length of the memory is not sealed, or any error of the underlying system
/// calls.
pub fn fixed_length(memory: BorrowedFd<'_>) -> io::Result<(File, u64)> {
    if !fcntl_get_seals(memory)?.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The duplicated descriptor refers to memory, so closing it does not block.
    let file = File::from(memory.try_clone_to_owned()?);
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

/// Frees the pages from an offset on, also for other processes that share the memory. The freed
/// pages then read as zeros.
///
/// # Errors
/// Any error of `fallocate(2)`.
pub fn free_pages_from(memory: &File, offset: u64) -> io::Result<()> {
    let bytes = memory.metadata()?.len().saturating_sub(offset);
    if bytes == 0 {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(memory, flags, offset, bytes)?)
}

/// Reads memory received from a peer. Accepts only memory with sealed content, because reading such
/// memory never waits, and nobody can change it during the read.
///
/// # Errors
/// `InvalidInput` if the content is not sealed, `FileTooLarge` if the content is longer than
/// `bytes_max`, or any error of the read.
pub fn read_sealed(memory: BorrowedFd<'_>, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Files of most other kinds have no seals, so this call fails or returns too few seals.
    let seals = fcntl_get_seals(memory)?;
    if !seals.contains(SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The duplicated descriptor refers to memory, so closing it does not block.
    let file = File::from(memory.try_clone_to_owned()?);
    let bytes = file.metadata()?.len();
    if bytes > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut content = vec![0; usize::try_from(bytes).unwrap_or_default()];
    file.read_exact_at(&mut content, 0)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// The unit of `st_blocks` (stat(2)), in bytes.
    const BLOCK_BYTES: u64 = 512;

    // Proves that memory of fixed length is fully allocated and cannot be shortened or lengthened.
    // Its pages can be freed.
    #[test]
    fn a_length_stays() {
        let memory = create_fixed_length("test", 1 << 16).unwrap();
        let allocated = || memory.metadata().unwrap().blocks() * BLOCK_BYTES;
        assert_eq!((memory.metadata().unwrap().len(), allocated()), (1 << 16, 1 << 16));
        for bytes in [0, 1 << 17] {
            assert_eq!(memory.set_len(bytes).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        memory.write_all_at(&[7; 8192], 0).unwrap();
        free_pages_from(&memory, 4096).unwrap();
        let mut read = [1; 8192];
        memory.read_exact_at(&mut read, 0).unwrap();
        assert!(read[..4096] == [7; 4096] && read[4096..] == [0; 4096]);
        assert_eq!(allocated(), 4096);
        assert_eq!(fixed_length(memory.as_fd()).unwrap().1, 1 << 16);
        assert!(fixed_length(tempfile::tempfile().unwrap().as_fd()).is_err());
    }

    // Proves that content is read only if it is sealed and not longer than the limit.
    #[test]
    fn only_sealed_content_is_read() {
        let memory = |seals: SealFlags| {
            let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            let mut file = File::from(memory);
            file.write_all(b"schema").unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            file
        };
        let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
        assert_eq!(read_sealed(memory(all).as_fd(), 6).unwrap(), b"schema");
        let kind = |memory: File, limit| read_sealed(memory.as_fd(), limit).unwrap_err().kind();
        assert_eq!(kind(memory(all), 5), io::ErrorKind::FileTooLarge);
        assert_eq!(kind(memory(SealFlags::SHRINK | SealFlags::GROW), 6), io::ErrorKind::InvalidInput);
        assert!(read_sealed(File::open("/proc/self/exe").unwrap().as_fd(), 1 << 40).is_err());
        assert!(read_sealed(tempfile::tempfile().unwrap().as_fd(), 6).is_err());
    }
}
