//! The files and processes of a run, as the run's payloads describe them.

use std::collections::HashMap;

use super::batch::{CodeObjectView, FileVersion, ProfileBatch};
use crate::generated::kernel::CodeKind;

/// Maximum number of known paths. Files with further paths get no build id.
const PATHS_MAX: usize = 1 << 16;
/// Maximum number of processes for which the first sample is stored. For processes beyond the
/// limit, just-in-time compiled code has no function names.
const PROCESSES_MAX: usize = 1 << 16;

/// The identities of files by path, and the first sample of each process. The recorder looks up the
/// build ids of files that were mapped before the recording began. Samples that were taken before
/// this lookup get the build id from later payloads.
#[derive(Debug, Default)]
pub struct KnownCode {
    /// The identities of files by path. The value is `None` for a path that two different files
    /// have had, because a sample without an identity may belong to either file.
    by_path: HashMap<Box<str>, Option<FileIdentity>>,
    first_samples: HashMap<u32, u64>, // by process; monotonic nanoseconds
}

/// The build id and the version, which identify the content of a file.
type FileIdentity = (Box<[u8]>, Option<FileVersion>);

impl KnownCode {
    /// Records the files and processes of a payload.
    pub fn add(&mut self, batch: &ProfileBatch<'_>) {
        for sample in batch.samples() {
            let is_full = self.first_samples.len() >= PROCESSES_MAX;
            match self.first_samples.get_mut(&sample.thread.process) {
                Some(first_ns) => *first_ns = sample.time_ns.min(*first_ns),
                None if is_full => {}
                None => {
                    self.first_samples.insert(sample.thread.process, sample.time_ns);
                }
            }
        }
        for object in batch.objects() {
            if object.kind != CodeKind::File || !object.is_identified() {
                continue;
            }
            let is_full = self.by_path.len() >= PATHS_MAX;
            let is_same = |known: &FileIdentity| (&*known.0, known.1) == (object.build_id, object.version);
            match self.by_path.get_mut(object.path) {
                Some(known) => *known = known.take().filter(is_same),
                None if is_full => {}
                None => {
                    self.by_path.insert(object.path.into(), Some((object.build_id.into(), object.version)));
                }
            }
        }
    }

    /// Returns an object with its build id or version. An object without a recorded build id or
    /// version gets the identity of its path, if exactly one identity is known for that path.
    pub(crate) fn completed<'a>(&'a self, object: CodeObjectView<'a>) -> CodeObjectView<'a> {
        if object.kind != CodeKind::File || object.is_identified() {
            return object;
        }
        match self.by_path.get(object.path) {
            Some(Some((build_id, version))) => CodeObjectView { build_id, version: *version, ..object },
            _ => object,
        }
    }

    /// Returns the time at which a process was first sampled, in monotonic nanoseconds.
    pub(crate) fn first_sample_ns(&self, process: u32) -> Option<u64> {
        self.first_samples.get(&process).copied()
    }
}
