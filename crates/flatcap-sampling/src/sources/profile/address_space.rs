//! The code that a process has mapped, by address.

use std::sync::Arc;

use flatcap_tasks::schema::CodeKind;

use super::code_file::CodeFile;

/// Maximum number of mappings of a process. Code in further mappings is unknown.
pub(super) const SPACE_MAPPINGS_MAX: usize = 4096;

/// A range of addresses to which a process has mapped code.
#[derive(Debug, Clone)]
pub(super) struct CodeMapping {
    /// First address.
    pub(super) start: u64,
    /// First address after the range.
    pub(super) end: u64, // > start
    /// Offset in the file that corresponds to the first address. For memory without a file, this is
    /// the address itself.
    pub(super) offset: u64,
    /// The mapped file.
    pub(super) file: Arc<CodeFile>,
}

impl CodeMapping {
    /// Creates a mapping of `file` from `offset` on. The mapping covers the addresses from `start`
    /// up to but not including `end`.
    pub(super) fn new((start, end): (u64, u64), offset: u64, file: Arc<CodeFile>) -> Self {
        let offset = if file.kind == CodeKind::File { offset } else { start };
        Self { start, end, offset, file }
    }

    /// Returns the offset in the file for an address in this mapping or for the first address after
    /// it.
    pub(super) fn offset_of(&self, address: u64) -> u64 {
        self.offset.wrapping_add(address.wrapping_sub(self.start))
    }

    /// Returns the part of the mapping from `start` to `end`. Returns `None` if the mapping has no
    /// address in this range.
    fn part(&self, start: u64, end: u64) -> Option<Self> {
        let (start, end) = (start.max(self.start), end.min(self.end));
        (start < end).then(|| Self {
            start,
            end,
            offset: self.offset_of(start),
            file: Arc::clone(&self.file),
        })
    }

    /// Returns whether `next` continues this mapping.
    fn continues_in(&self, next: &Self) -> bool {
        self.end == next.start
            && Arc::ptr_eq(&self.file, &next.file)
            && self.offset_of(next.start) == next.offset
    }
}

/// The mappings of a process.
#[derive(Debug, Clone, Default)]
pub(super) struct AddressSpace {
    mappings: Vec<CodeMapping>, // by address, without overlaps
}

impl AddressSpace {
    /// Returns the number of mappings.
    pub(super) fn len(&self) -> usize {
        self.mappings.len()
    }

    /// Returns the mapping that contains an address.
    pub(super) fn find(&self, address: u64) -> Option<&CodeMapping> {
        let index = self.mappings.partition_point(|mapping| mapping.end <= address);
        self.mappings.get(index).filter(|mapping| mapping.start <= address)
    }

    /// Adds a mapping, which replaces earlier mappings at the same addresses. If the process then
    /// has too many mappings, the new mapping is not stored, and code at its addresses is unknown.
    pub(super) fn insert(&mut self, mapping: CodeMapping) {
        if mapping.start >= mapping.end {
            return;
        }
        // Adjacent mappings are included, because they may be the same range of a file.
        let from = self.mappings.partition_point(|other| other.end < mapping.start);
        let to = self.mappings.partition_point(|other| other.start <= mapping.end);
        let touched = self.mappings.get(from..to).unwrap_or_default();
        let mut before = touched.first().and_then(|first| first.part(0, mapping.start));
        let mut after = touched.last().and_then(|last| last.part(mapping.end, u64::MAX));
        let parts = 1 + usize::from(before.is_some()) + usize::from(after.is_some());
        let mut inserted = None;
        if self.mappings.len() - touched.len() + parts <= SPACE_MAPPINGS_MAX {
            let mut mapping = mapping;
            if let Some(before) = before.take_if(|before| before.continues_in(&mapping)) {
                (mapping.start, mapping.offset) = (before.start, before.offset);
            }
            if let Some(after) = after.take_if(|after| mapping.continues_in(after)) {
                mapping.end = after.end;
            }
            inserted = Some(mapping);
        }
        self.mappings.splice(from..to, before.into_iter().chain(inserted).chain(after));
        // The limit may be exceeded even then, because a mapping that has lost its middle becomes
        // two.
        self.mappings.truncate(SPACE_MAPPINGS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn files() -> [Arc<CodeFile>; 3] {
        [0, 1, 2].map(|id| Arc::new(CodeFile::other(id, CodeKind::File, "/file", None)))
    }

    proptest! {
        // Proves that each address belongs to the mapping that was added last at this address, with
        // the correct offset. Mappings stay in order and do not overlap. The test compares the
        // mappings with a list of addresses.
        #[test]
        fn the_last_mapping_counts(
            inserted in proptest::collection::vec((0_u64..64, 0_u64..24, 0_u64..4, 0_usize..3), 0..40),
        ) {
            let files = files();
            let mut space = AddressSpace::default();
            let mut expected = [None; 96];
            for (start, length, offset, file) in inserted {
                // Only a few different offsets are used, so that adjacent mappings often continue
                // each other.
                let offset = start + offset / 3;
                let (end, file) = (start + length, &files[file]);
                space.insert(CodeMapping { start, end, offset, file: Arc::clone(file) });
                for address in start..end {
                    expected[usize::try_from(address).unwrap()] = Some((file.id, offset + address - start));
                }
                for (address, expected) in (0..).zip(&expected) {
                    let found = space.find(address).map(|found| (found.file.id, found.offset_of(address)));
                    prop_assert_eq!(&found, expected, "{} of {:?}", address, space);
                }
                let mappings = &space.mappings;
                prop_assert!(mappings.iter().all(|mapping| mapping.start < mapping.end));
                prop_assert!(mappings.is_sorted_by(|one, next| one.end <= next.start));
                prop_assert!(mappings.windows(2).all(|pair| !pair[0].continues_in(&pair[1])));
            }
        }
    }

    // Proves that the number of mappings is limited, that mappings that do not fit are unknown, and
    // that memory that grows stays one mapping.
    #[test]
    fn mappings_are_limited() {
        let [file, memory, _] = files();
        let mut space = AddressSpace::default();
        let mapping = |start, file: &Arc<CodeFile>| CodeMapping {
            start,
            end: start + 16,
            offset: start,
            file: Arc::clone(file),
        };
        for index in 0..SPACE_MAPPINGS_MAX as u64 * 2 {
            space.insert(mapping(index * 32, &file));
        }
        assert_eq!(space.len(), SPACE_MAPPINGS_MAX);
        assert!(space.find(32).is_some() && space.find(SPACE_MAPPINGS_MAX as u64 * 32).is_none());
        // A mapping that is inserted in the middle of another mapping would result in three
        // mappings.
        space.insert(CodeMapping { start: 36, end: 40, offset: 0, file: Arc::clone(&memory) });
        assert!(space.len() <= SPACE_MAPPINGS_MAX && space.find(37).is_none());
        let mut space = AddressSpace::default();
        for index in (0..100).chain((200..300).rev()) {
            space.insert(mapping(index * 16, &memory));
        }
        assert_eq!(space.len(), 2);
    }
}
