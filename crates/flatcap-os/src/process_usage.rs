//! Resource usage of this process: memory, CPU time, open files.

use std::fs;
use std::io;

use rustix::process::{Resource, getrlimit};

use super::host::page_bytes;

/// Current resource usage of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Mapped memory, in bytes.
    pub virtual_bytes: u64,
    /// Resident memory, in bytes, including the file on tmpfs that holds the slabs.
    pub resident_bytes: u64,
    /// Number of open files.
    pub open_files: u64,
    /// Limit on open files.
    pub open_files_max: u64,
}

impl ProcessUsage {
    /// Reads the usage from the kernel.
    ///
    /// # Errors
    /// `/proc` is not mounted or not readable.
    pub fn now() -> io::Result<Self> {
        let statm = fs::read_to_string("/proc/self/statm")?;
        let mut pages = statm.split_ascii_whitespace().map(|field| field.parse::<u64>().unwrap_or_default());
        let mut bytes = || pages.next().unwrap_or_default().saturating_mul(page_bytes());
        let (virtual_bytes, resident_bytes) = (bytes(), bytes());
        // The descriptor of the listing itself does not count.
        let open_files = (fs::read_dir("/proc/self/fd")?.count() as u64).saturating_sub(1);
        let open_files_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Ok(Self { virtual_bytes, resident_bytes, open_files, open_files_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the numbers describe this process, because they include the memory and files that
    // the test holds.
    #[test]
    fn usage_covers_what_is_held() {
        let memory = vec![1_u8; 32 << 20];
        let files: Vec<_> = (0..40).map(|_| fs::File::open("/proc/self/statm").unwrap()).collect();
        let after = ProcessUsage::now().unwrap();
        assert!(after.resident_bytes >= memory.len() as u64, "{after:?}");
        assert!(after.open_files >= files.len() as u64 && after.open_files <= after.open_files_max);
        assert!(after.virtual_bytes >= after.resident_bytes);
        drop(memory);
    }
}
