//! Looks up the build ids that the kernel did not report with a mapping, for example because the
//! file was mapped before the source was opened. A file without a build id has a version instead.
//! Only files in recorded stacks are looked up.

use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use flatcap_os::build_id::{ElfBuildId, FileContentId};
use flatcap_os::host::HostRoot;
use flatcap_os::thread;

use super::code_file::CodeFile;

/// Maximum number of files that wait for a lookup. A file beyond this limit is looked up the next
/// time that a stack contains it.
const QUEUE_MAX: usize = 64;

/// Looks up build ids in a separate thread, because a file may be on a disk or a server that does
/// not answer. The thread ends after the last lookup. The thread is not joined, because it may wait
/// for ever.
#[derive(Debug)]
pub(super) struct BuildIdLookups {
    requests: Sender<LookupRequest>,
}

#[derive(Debug)]
struct LookupRequest {
    file: Arc<CodeFile>,
    process: u32, // process that has mapped the file
}

impl BuildIdLookups {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if the kernel refuses another thread.
    pub(super) fn start(host: &HostRoot) -> io::Result<Self> {
        let (requests, receiver) = bounded(QUEUE_MAX);
        let host = host.clone();
        thread::spawn("profile-files", move || {
            // No thread waits for a build id, and the host's own work comes first.
            let _refused = thread::reset_negative_nice();
            look_up_all(&host, &receiver);
        })?;
        Ok(Self { requests })
    }

    /// Requests a lookup of the build id of a file that a process has mapped, unless the lookup is
    /// pointless. The result is stored in the `CodeFile`.
    pub(super) fn request(&self, file: &Arc<CodeFile>, process: u32) {
        if file.take_lookup() {
            let request = LookupRequest { file: Arc::clone(file), process };
            if self.requests.try_send(request).is_err() {
                file.return_lookup();
            }
        }
    }
}

fn look_up_all(host: &HostRoot, requests: &Receiver<LookupRequest>) {
    for LookupRequest { file, process } in requests {
        // After an error, the next lookup may succeed by means of another process.
        if let Ok(content) = look_up(host, &file, process) {
            file.finish_lookup(content);
        }
    }
}

fn look_up(host: &HostRoot, file: &CodeFile, process: u32) -> io::Result<Option<FileContentId>> {
    let path = CString::new(&*file.path).map_err(|_| ErrorKind::InvalidInput)?;
    let root = host.path(&format!("proc/{process}/root"));
    ElfBuildId::of_mapped_file(&root, &path, file.inode)
        // If the process has ended, or the recorder may not access it, the file is searched under
        // the host's root, because most processes have that root.
        .or_else(|_| ElfBuildId::of_mapped_file(&host.path(""), &path, file.inode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::super::code_file::{CodeFiles, FileIdentity};
    use super::*;

    // Proves that the build id of a file that this process has mapped is found, even after the
    // process has ended. After some lookups, a file that was removed is no longer looked up.
    #[test]
    fn build_ids_are_found() {
        let host = HostRoot::new(Path::new("/"));
        let program = std::env::current_exe().unwrap();
        let path = program.to_str().unwrap().as_bytes();
        let inode = std::fs::metadata(&program).unwrap().ino();
        let mut files = CodeFiles::new(0);
        let mut file =
            |path, inode| files.get(&FileIdentity { path, build_id: None, device: (0, 0), inode }).unwrap();
        let expected = look_up(&host, &file(path, inode), std::process::id()).unwrap();
        assert_eq!(look_up(&host, &file(path, inode), u32::MAX).unwrap(), expected);
        let (found, gone) = (file(path, inode), file(b"/gone", 1));
        let lookups = BuildIdLookups::start(&host).unwrap();
        for _ in 0..10 {
            lookups.request(&found, std::process::id());
            lookups.request(&gone, std::process::id());
        }
        // Waits until the thread has ended and has dropped the files.
        drop(lookups);
        drop(files);
        while Arc::strong_count(&found) + Arc::strong_count(&gone) > 2 {
            std::thread::yield_now();
        }
        assert_eq!((found.content(), gone.content()), (expected, None));
        assert!(!found.take_lookup() && !gone.take_lookup());
    }
}
