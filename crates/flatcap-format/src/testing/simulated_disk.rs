//! The state of a simulated disk. The state of a file or directory has three parts: the content
//! that a process sees, the durable content, and the changes between them. These changes may have
//! reached the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Size of a sector in bytes. The disk writes each sector atomically. The only exception is the
/// sector that the disk is writing when the power fails.
const SECTOR_BYTES: usize = 512;
/// Size in bytes of the unit in which the disk allocates space.
pub(super) const PAGE_BYTES: u64 = 4096;

/// A file's content, in the page cache and on disk.
#[derive(Debug, Default)]
pub(super) struct SimulatedInode {
    content: Vec<u8>,
    zeros: usize,     // number after `content`, so that a file of large size takes no memory
    durable: Vec<u8>, // state after the last sync
    unsynced: Vec<ContentChange>,
    dropped: BTreeSet<usize>,    // sectors dropped by a failed sync
    pub(super) reserved: u64,    // end of the preallocation
    pub(super) handles: Arc<()>, // strong count: number of open handles + 1
}

#[derive(Debug, Clone)]
enum ContentChange {
    Append(Vec<u8>),
    Truncate(usize),
}

/// Directory entries, which are names and the files to which they refer.
#[derive(Debug)]
pub(super) struct SimulatedDirectory {
    pub(super) names: BTreeMap<String, usize>,
    synced: BTreeMap<String, usize>,
    unsynced: Vec<EntryChange>,
}

#[derive(Debug, Clone)]
struct EntryChange {
    inode: usize,
    from: Option<String>, // `None` if the file is created
    to: Option<String>,   // `None` if the file is removed
    displaced: Displaced,
}

/// The effect of a rename on another file that already had the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Displaced {
    /// No other file had the name.
    Nothing,
    /// The other file is removed.
    Removed,
    /// The other file gets the old name, in the same step.
    Swapped(usize),
}

impl SimulatedInode {
    /// Creates a file whose content is on disk.
    pub(super) fn with_content(content: Vec<u8>) -> Self {
        Self { durable: content.clone(), content, ..Self::default() }
    }

    pub(super) fn length(&self) -> usize {
        self.content.len() + self.zeros
    }

    /// Returns the whole content, as the process sees it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.content.clone();
        bytes.resize(self.length(), 0);
        bytes
    }

    /// Reads the bytes at `offset` into the buffer. Returns the number of bytes read.
    pub(super) fn read(&self, buffer: &mut [u8], offset: usize) -> usize {
        let count = self.length().saturating_sub(offset).min(buffer.len());
        let stored = self.content.get(offset..).unwrap_or_default();
        let stored = &stored[..stored.len().min(count)];
        buffer[..stored.len()].copy_from_slice(stored);
        buffer[stored.len()..count].fill(0);
        count
    }

    pub(super) fn allocated(&self) -> u64 {
        (self.length() as u64).max(self.reserved).next_multiple_of(PAGE_BYTES)
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        let offset = self.length();
        self.content.resize(offset, 0);
        self.zeros = 0;
        self.content.extend_from_slice(bytes);
        // A dropped sector that is written to again becomes dirty, and is then written back
        // completely.
        self.dropped.retain(|sector| !sectors(offset, bytes.len()).contains(sector));
        self.unsynced.push(ContentChange::Append(bytes.to_vec()));
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.content.truncate(length);
        self.zeros = length - self.content.len();
        self.reserved = 0;
        self.dropped.retain(|sector| sector * SECTOR_BYTES < length);
        self.unsynced.push(ContentChange::Truncate(length));
    }

    pub(super) fn sync(&mut self) {
        let mut medium = self.bytes();
        self.durable.resize(medium.len(), 0);
        for sector in &self.dropped {
            let range = sector_range(*sector, medium.len());
            medium[range.clone()].copy_from_slice(&self.durable[range]);
        }
        self.durable = medium;
        self.unsynced.clear();
        self.dropped.clear();
    }

    /// Drops some dirty sectors. This simulates the kernel, which reports a failed sync only once,
    /// and may forget data that it could not write.
    pub(super) fn fail_sync(&mut self, random: &mut SimulationRandom) {
        let (_, dirty) = self.changed(self.unsynced.len(), 0);
        self.dropped.extend(dirty.into_iter().filter(|_| random.below(2) == 1));
    }

    /// Returns the content after the first `count` unsynced changes and `part` bytes of the next
    /// change. Also returns the sectors to which these changes wrote.
    fn changed(&self, count: usize, part: usize) -> (Vec<u8>, BTreeSet<usize>) {
        let mut content = self.durable.clone();
        let mut dirty = BTreeSet::new();
        for (at, change) in self.unsynced.iter().take(count + 1).enumerate() {
            match change {
                ContentChange::Append(bytes) => {
                    let bytes = if at == count { &bytes[..part] } else { bytes };
                    dirty.extend(sectors(content.len(), bytes.len()));
                    content.extend_from_slice(bytes);
                }
                ContentChange::Truncate(_) if at == count => {}
                ContentChange::Truncate(length) => {
                    content.resize(*length, 0);
                    dirty.retain(|sector| sector * SECTOR_BYTES < *length);
                }
            }
        }
        (content, dirty)
    }

    /// Returns a possible content after a power cut. The file has the length that it had after some
    /// prefix of the changes. Any subset of the dirty sectors is on disk.
    pub(super) fn after_power_cut(&self, random: &mut SimulationRandom) -> Vec<u8> {
        let all = self.unsynced.len();
        let count = if random.below(2) == 1 { all } else { random.below(all + 1) };
        let part = match self.unsynced.get(count) {
            Some(ContentChange::Append(bytes)) if random.below(4) > 0 => random.below(bytes.len() + 1),
            _ => 0,
        };
        let (content, dirty) = self.changed(count, part);
        let shortest = self.unsynced.iter().take(count).filter_map(|change| match change {
            ContentChange::Truncate(length) => Some(*length),
            ContentChange::Append(_) => None,
        });
        let mut image = self.durable.clone();
        image.truncate(shortest.min().unwrap_or(usize::MAX));
        image.resize(content.len(), 0);
        let odds = random.below(5);
        let mut may_tear = true;
        for sector in dirty.difference(&self.dropped) {
            if random.below(4) < odds {
                let mut range = sector_range(*sector, content.len());
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

impl SimulatedDirectory {
    pub(super) fn with_names(names: BTreeMap<String, usize>) -> Self {
        Self { synced: names.clone(), names, unsynced: Vec::new() }
    }

    pub(super) fn change(&mut self, inode: usize, from: Option<&str>, to: Option<&str>) {
        self.change_with(inode, from, to, Displaced::Nothing);
    }

    pub(super) fn change_with(
        &mut self,
        inode: usize,
        from: Option<&str>,
        to: Option<&str>,
        goes: Displaced,
    ) {
        if let Some(from) = from {
            self.names.remove(from);
        }
        if let Some(to) = to {
            self.names.insert(to.to_owned(), inode);
        }
        if let (Some(from), Displaced::Swapped(other)) = (from, goes) {
            self.names.insert(from.to_owned(), other);
        }
        let (from, to) = (from.map(str::to_owned), to.map(str::to_owned));
        self.unsynced.push(EntryChange { inode, from, to, displaced: goes });
    }

    pub(super) fn sync(&mut self) {
        self.synced = self.names.clone();
        self.unsynced.clear();
    }

    /// Returns possible entries after a power cut. For each file, a prefix of the changes to its
    /// entry is on disk. This prefix is independent of the other files, except that a name must be
    /// free before another file gets it.
    pub(super) fn after_power_cut(&self, random: &mut SimulationRandom) -> BTreeMap<String, usize> {
        let mut names = self.synced.clone();
        // Files whose remaining changes do not reach the disk.
        let mut stalled: BTreeSet<usize> = BTreeSet::new();
        let odds = random.below(5);
        for EntryChange { inode, from, to, displaced: goes } in &self.unsynced {
            let is_free = to.as_ref().is_none_or(|to| match goes {
                Displaced::Nothing => !names.contains_key(to),
                Displaced::Removed => true,
                Displaced::Swapped(other) => names.get(to) == Some(other) && !stalled.contains(other),
            });
            if stalled.contains(inode) || !is_free || random.below(4) >= odds {
                stalled.insert(*inode);
                if let Displaced::Swapped(other) = goes {
                    stalled.insert(*other);
                }
                continue;
            }
            if let Some(from) = from {
                names.remove(from);
            }
            if let Some(to) = to {
                names.insert(to.clone(), *inode);
            }
            if let (Some(from), Displaced::Swapped(other)) = (from, goes) {
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

fn sector_range(sector: usize, length: usize) -> Range<usize> {
    sector * SECTOR_BYTES..length.min((sector + 1) * SECTOR_BYTES)
}

/// A seeded random number generator (xorshift64*).
#[derive(Debug, Clone)]
pub struct SimulationRandom(u64);

impl SimulationRandom {
    pub fn new(seed: u64) -> Self {
        // The bits of the seed are mixed so that adjacent seeds result in different states. The
        // state must not be 0.
        let mixed = (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Self((mixed ^ (mixed >> 31)).max(1))
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from((self.next() >> 16) % end as u64).unwrap()
    }
}
