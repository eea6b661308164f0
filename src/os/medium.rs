//! What a simulated medium holds: of files and of a directory, what a process sees, what is there for sure, and what
//! may have arrived in between.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// What the medium writes whole, but for the one it was writing when the power went.
const SECTOR_BYTES: usize = 512;
/// The unit of allocation.
pub(super) const PAGE_BYTES: u64 = 4096;

/// A file's content, in the page cache and on the medium.
#[derive(Debug, Default)]
pub(super) struct Inode {
    pub(super) content: Vec<u8>,
    medium: Vec<u8>, // as the last sync left it
    unsynced: Vec<Change>,
    dropped: BTreeSet<usize>,    // sectors that a failed sync has given up
    pub(super) reserved: u64,    // end of the room taken by preallocation
    pub(super) handles: Arc<()>, // one more than there are open files
}

#[derive(Debug, Clone)]
enum Change {
    Append(Vec<u8>),
    Truncate(usize),
}

/// The entries: which name leads to which file.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) names: BTreeMap<String, usize>,
    synced: BTreeMap<String, usize>,
    unsynced: Vec<EntryChange>,
}

#[derive(Debug, Clone)]
struct EntryChange {
    inode: usize,
    from: Option<String>, // none: created
    to: Option<String>,   // none: removed
    goes: Goes,
}

/// What becomes of the file that has the new name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goes {
    /// There is none.
    Nobody,
    /// It goes.
    Away,
    /// It gets the old name, in the same step.
    Back(usize),
}

impl Inode {
    /// A file that is on the medium.
    pub(super) fn holding(content: Vec<u8>) -> Self {
        Self { medium: content.clone(), content, ..Self::default() }
    }

    pub(super) fn allocated(&self) -> u64 {
        (self.content.len() as u64).max(self.reserved).next_multiple_of(PAGE_BYTES)
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        let offset = self.content.len();
        self.content.extend_from_slice(bytes);
        // A sector that is written to again is written back whole.
        self.dropped.retain(|sector| !sectors(offset, bytes.len()).contains(sector));
        self.unsynced.push(Change::Append(bytes.to_vec()));
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.content.resize(length, 0);
        self.reserved = 0;
        self.dropped.retain(|sector| sector * SECTOR_BYTES < length);
        self.unsynced.push(Change::Truncate(length));
    }

    pub(super) fn sync(&mut self) {
        let mut medium = self.content.clone();
        self.medium.resize(medium.len(), 0);
        for sector in &self.dropped {
            let range = bytes_of(*sector, medium.len());
            medium[range.clone()].copy_from_slice(&self.medium[range]);
        }
        self.medium = medium;
        self.unsynced.clear();
        self.dropped.clear();
    }

    /// The kernel reports the error once and forgets some of what it could not write.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        let (_, dirty) = self.changed(self.unsynced.len(), 0);
        self.dropped.extend(dirty.into_iter().filter(|_| random.below(2) == 1));
    }

    /// The content once the first `count` unsynced changes and `part` bytes of the next have happened, and which of
    /// its sectors were written to.
    fn changed(&self, count: usize, part: usize) -> (Vec<u8>, BTreeSet<usize>) {
        let mut content = self.medium.clone();
        let mut dirty = BTreeSet::new();
        for (at, change) in self.unsynced.iter().take(count + 1).enumerate() {
            match change {
                Change::Append(bytes) => {
                    let bytes = if at == count { &bytes[..part] } else { bytes };
                    dirty.extend(sectors(content.len(), bytes.len()));
                    content.extend_from_slice(bytes);
                }
                Change::Truncate(_) if at == count => {}
                Change::Truncate(length) => {
                    content.resize(*length, 0);
                    dirty.retain(|sector| sector * SECTOR_BYTES < *length);
                }
            }
        }
        (content, dirty)
    }

    /// The size follows the changes in their order, up to anywhere; of the content any sectors arrive.
    pub(super) fn after_power_cut(&self, random: &mut Random) -> Vec<u8> {
        let all = self.unsynced.len();
        let count = if random.below(2) == 1 { all } else { random.below(all + 1) };
        let part = match self.unsynced.get(count) {
            Some(Change::Append(bytes)) if random.below(4) > 0 => random.below(bytes.len() + 1),
            _ => 0,
        };
        let (content, dirty) = self.changed(count, part);
        let shortest = self.unsynced.iter().take(count).filter_map(|change| match change {
            Change::Truncate(length) => Some(*length),
            Change::Append(_) => None,
        });
        let mut image = self.medium.clone();
        image.truncate(shortest.min().unwrap_or(usize::MAX));
        image.resize(content.len(), 0);
        let odds = random.below(5);
        let mut may_tear = true;
        for sector in dirty.difference(&self.dropped) {
            if random.below(4) < odds {
                let mut range = bytes_of(*sector, content.len());
                if may_tear && random.below(8) == 0 {
                    may_tear = false;
                    range.end = range.start + random.below(range.len() + 1);
                }
                image[range.clone()].copy_from_slice(&content[range]);
            }
        }
        image
    }
}

impl Directory {
    pub(super) fn holding(names: BTreeMap<String, usize>) -> Self {
        Self { synced: names.clone(), names, unsynced: Vec::new() }
    }

    pub(super) fn change(&mut self, inode: usize, from: Option<&str>, to: Option<&str>) {
        self.change_with(inode, from, to, Goes::Nobody);
    }

    pub(super) fn change_with(&mut self, inode: usize, from: Option<&str>, to: Option<&str>, goes: Goes) {
        if let Some(from) = from {
            self.names.remove(from);
        }
        if let Some(to) = to {
            self.names.insert(to.to_owned(), inode);
        }
        if let (Some(from), Goes::Back(other)) = (from, goes) {
            self.names.insert(from.to_owned(), other);
        }
        let (from, to) = (from.map(str::to_owned), to.map(str::to_owned));
        self.unsynced.push(EntryChange { inode, from, to, goes });
    }

    pub(super) fn sync(&mut self) {
        self.synced = self.names.clone();
        self.unsynced.clear();
    }

    /// The changes of one file's entry arrive in their order, up to any of them; those of different files
    /// independently, except that a name must be free before it is given again.
    pub(super) fn after_power_cut(&self, random: &mut Random) -> BTreeMap<String, usize> {
        let mut names = self.synced.clone();
        let mut behind: BTreeSet<usize> = BTreeSet::new(); // files none of whose later changes arrived
        let odds = random.below(5);
        for EntryChange { inode, from, to, goes } in &self.unsynced {
            let is_free = to.as_ref().is_none_or(|to| match goes {
                Goes::Nobody => !names.contains_key(to),
                Goes::Away => true,
                Goes::Back(other) => names.get(to) == Some(other) && !behind.contains(other),
            });
            if behind.contains(inode) || !is_free || random.below(4) >= odds {
                behind.insert(*inode);
                if let Goes::Back(other) = goes {
                    behind.insert(*other);
                }
                continue;
            }
            if let Some(from) = from {
                names.remove(from);
            }
            if let Some(to) = to {
                names.insert(to.clone(), *inode);
            }
            if let (Some(from), Goes::Back(other)) = (from, goes) {
                names.insert(from.clone(), *other);
            }
        }
        names
    }
}

fn sectors(offset: usize, bytes: usize) -> Range<usize> {
    let first = offset / SECTOR_BYTES;
    if bytes == 0 { first..first } else { first..(offset + bytes).div_ceil(SECTOR_BYTES) }
}

fn bytes_of(sector: usize, length: usize) -> Range<usize> {
    sector * SECTOR_BYTES..length.min((sector + 1) * SECTOR_BYTES)
}

/// Choices by a seed (xorshift64*).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not begin alike, and the state is never 0.
        let mixed = (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Self((mixed ^ (mixed >> 31)).max(1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from((self.next() >> 16) % end as u64).unwrap()
    }
}
