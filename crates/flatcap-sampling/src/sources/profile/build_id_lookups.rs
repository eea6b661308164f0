//! Build ids of files that the kernel has mapped without reading them, such as those mapped before
//! the source was opened, and versions of files without one. Only files in recorded stacks are
//! looked up.

use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use flatcap_os::build_id::{ElfBuildId, FileContentId};
use flatcap_os::host::HostRoot;
use flatcap_os::thread;

use super::code_file::CodeFile;

/// Files that wait to be looked up. Further files are looked up when they are next in a stack.
const QUEUE_MAX: usize = 64;

/// Looks up build ids in a thread of its own, since a file may be on a disk or a server that does
/// not answer. The thread ends after the last lookup; it is not joined, since it may wait for ever.
#[derive(Debug)]
pub(super) struct BuildIdLookups {
    requests: Sender<LookupRequest>,
}

#[derive(Debug)]
struct LookupRequest {
    file: Arc<CodeFile>,
    process: u32, // that has mapped it
}

impl BuildIdLookups {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel refuses another thread.
    pub(super) fn start(host: &HostRoot) -> io::Result<Self> {
        let (requests, receiver) = bounded(QUEUE_MAX);
        let host = host.clone();
        thread::spawn("profile-files", move || {
            // Nobody waits for a build id, and the host's own work comes first.
            let _refused = thread::reset_negative_nice();
            look_up_all(&host, &receiver);
        })?;
        Ok(Self { requests })
    }

    /// Has the build id of a file looked up that a process has mapped, if that is worth it. The
    /// file has it when it was found.
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
        // An error may be over at the next lookup, by another process.
        if let Ok(content) = look_up(host, &file, process) {
            file.finish_lookup(content);
        }
    }
}

fn look_up(host: &HostRoot, file: &CodeFile, process: u32) -> io::Result<Option<FileContentId>> {
    let path = CString::new(&*file.path).map_err(|_| ErrorKind::InvalidInput)?;
    let root = host.path(&format!("proc/{process}/root"));
    ElfBuildId::of_mapped_file(&root, &path, file.inode)
        // The process has ended, or this one may not look into it: most have the host's root.
        .or_else(|_| ElfBuildId::of_mapped_file(&host.path(""), &path, file.inode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::super::code_file::{CodeFiles, FileIdentity};
    use super::*;

    // Proves that the build id of a file that this process has mapped is found, also after the
    // process has ended, and that a file that is gone is given up after some lookups.
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
        // Until the thread has ended, which lets go of the files.
        drop(lookups);
        drop(files);
        while Arc::strong_count(&found) + Arc::strong_count(&gone) > 2 {
            std::thread::yield_now();
        }
        assert_eq!((found.content(), gone.content()), (expected, None));
        assert!(!found.take_lookup() && !gone.take_lookup());
    }
}
