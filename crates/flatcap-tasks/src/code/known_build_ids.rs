//! The build ids of files, by their paths.

use std::collections::HashMap;

use super::batch::ProfileBatch;
use crate::generated::kernel::CodeKind;

/// Most paths that are known; files of further ones get no build id.
const PATHS_MAX: usize = 1 << 16;

/// Build ids that payloads of a run have, for files of which others do not have it: the recorder
/// looks up those of files that were mapped before it began, and takes samples meanwhile.
#[derive(Debug, Default)]
pub struct KnownBuildIds {
    /// None: the path has had two, so nobody knows of which one a sample without is.
    by_path: HashMap<Box<str>, Option<Box<[u8]>>>,
}

impl KnownBuildIds {
    /// Takes note of the files of a payload.
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

    /// Returns the build id of an object that was recorded with this one: that, or if it is empty,
    /// the one of its path. Empty if that is not known, or the path had two.
    pub fn completed<'a>(&'a self, kind: CodeKind, path: &str, recorded: &'a [u8]) -> &'a [u8] {
        if kind != CodeKind::File || !recorded.is_empty() {
            return recorded;
        }
        self.by_path.get(path).and_then(Option::as_deref).unwrap_or_default()
    }
}
