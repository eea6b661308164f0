//! Collects the build ids of files by path.

use std::collections::HashMap;

use super::batch::ProfileBatch;
use crate::generated::kernel::CodeKind;

/// Maximum number of paths; files with further paths get no build id.
const PATHS_MAX: usize = 1 << 16;

/// Build ids from some payloads of a run, to complete other payloads in which they are missing. The
/// recorder looks up the build ids of files that were mapped before it started, and already takes
/// samples while it does.
#[derive(Debug, Default)]
pub struct KnownBuildIds {
    /// `None`: the path had two build ids, so a sample without one cannot be attributed.
    by_path: HashMap<Box<str>, Option<Box<[u8]>>>,
}

impl KnownBuildIds {
    /// Adds the files of a payload.
    pub fn add(&mut self, batch: &ProfileBatch<'_>) {
        for object in batch.objects() {
            if object.kind != CodeKind::File || object.build_id.is_empty() {
                continue;
            }
            let is_full = self.by_path.len() >= PATHS_MAX;
            match self.by_path.get_mut(object.path) {
                Some(known) => *known = known.take().filter(|known| **known == *object.build_id),
                None if is_full => {}
                None => {
                    self.by_path.insert(object.path.into(), Some(object.build_id.into()));
                }
            }
        }
    }

    /// Returns the build id of an object: `recorded`, or if that is empty, the build id of its
    /// path. Returns an empty slice if it is unknown, or if the path had two.
    pub fn completed<'a>(&'a self, kind: CodeKind, path: &str, recorded: &'a [u8]) -> &'a [u8] {
        if kind != CodeKind::File || !recorded.is_empty() {
            return recorded;
        }
        self.by_path.get(path).and_then(Option::as_deref).unwrap_or_default()
    }
}
