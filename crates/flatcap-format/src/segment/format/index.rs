//! The index of a segment, which has one entry per interval. While the segment is written, the
//! index is stored in Index frames, one per entry. The footer of the segment contains all entries
//! (docs/FORMAT.md, "Index and digest").

use flatbuffers::{FlatBufferBuilder, WIPOffset};

use super::digest::Digest;
use super::payload_codec::{ENTRIES_MAX, fixed_size_builder, verified};
use crate::schema::segment as wire;

/// The index entry of one interval of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexEntry {
    /// Offset in the file at which the interval begins.
    pub offset: u64,
    /// The interval's length in bytes.
    pub bytes: u64,
    /// Number of frames in the interval, of all kinds.
    pub frames: u64,
    /// Time bounds of the interval's samples, or `None` if the interval has no samples.
    pub bounds: Option<Bounds>,
    /// The samples of the interval, with one element per source.
    pub sources: Vec<IndexedSource>,
    /// The digest at the end of the interval.
    pub digest: u64,
}

/// The earliest and the latest start time in a group of samples, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Earliest time, by the monotonic clock.
    pub first_mono_ns: u64,
    /// Latest time, by the monotonic clock.
    pub last_mono_ns: u64,
    /// Earliest time, by the wall clock.
    pub first_wall_ns: i64,
    /// Latest time, by the wall clock.
    pub last_wall_ns: i64,
}

/// Samples of one source in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedSource {
    /// The source's id.
    pub source: u16,
    /// Sequence number of the first sample.
    pub first_seq: u64,
    /// Number of samples.
    pub count: u64,
}

/// The content of an Index frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFrame {
    /// Number of the Index frame in its segment. The first Index frame of each segment has number
    /// 0.
    pub number: u64,
    /// Offset up to which the segment was on disk when the frame was written.
    pub synced_offset: u64,
    /// The interval that the frame ends.
    pub entry: IndexEntry,
}

/// Builds the index of a segment while the segment is written or scanned. Holds the entries of the
/// complete intervals and the entry of the open interval.
#[derive(Debug)]
pub(in crate::segment) struct IndexBuilder {
    entries: Vec<IndexEntry>,
    open: IndexEntry,
    digest: Digest,
    number: u64,
}

impl IndexEntry {
    /// Returns the offset of the end of the interval.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    fn join(&mut self, next: &Self) {
        self.bytes = self.bytes.saturating_add(next.bytes);
        self.frames = self.frames.saturating_add(next.frames);
        self.bounds = match (self.bounds, next.bounds) {
            (Some(own), Some(next)) => Some(own.union(next)),
            (own, next) => own.or(next),
        };
        for source in &next.sources {
            self.add_samples(*source);
        }
        self.digest = next.digest;
    }

    fn add_samples(&mut self, samples: IndexedSource) {
        match self.sources.iter_mut().find(|known| known.source == samples.source) {
            Some(known) => known.count = known.count.saturating_add(samples.count),
            None => self.sources.push(samples),
        }
    }

    pub(in crate::segment) fn build<'a>(
        &self,
        builder: &mut FlatBufferBuilder<'a>,
    ) -> WIPOffset<wire::IndexEntry<'a>> {
        let sources: Vec<_> = self
            .sources
            .iter()
            .map(|source| wire::IndexedSource::new(source.first_seq, source.count, source.source))
            .collect();
        let sources = builder.create_vector(&sources);
        let bounds = self.bounds.as_ref();
        wire::IndexEntry::create(
            builder,
            &wire::IndexEntryArgs {
                offset: self.offset,
                bytes: self.bytes,
                frames: self.frames,
                first_mono_ns: bounds.map_or(0, |bounds| bounds.first_mono_ns),
                last_mono_ns: bounds.map_or(0, |bounds| bounds.last_mono_ns),
                first_wall_ns: bounds.map_or(0, |bounds| bounds.first_wall_ns),
                last_wall_ns: bounds.map_or(0, |bounds| bounds.last_wall_ns),
                sources: Some(sources),
                digest: self.digest,
            },
        )
    }

    pub(in crate::segment) fn read(entry: wire::IndexEntry<'_>) -> Self {
        let sources: Vec<IndexedSource> = entry
            .sources()
            .into_iter()
            .flatten()
            .map(|source| IndexedSource {
                source: source.source(),
                first_seq: source.first_seq(),
                count: source.count(),
            })
            .collect();
        Self {
            offset: entry.offset(),
            bytes: entry.bytes(),
            frames: entry.frames(),
            bounds: (!sources.is_empty()).then(|| Bounds {
                first_mono_ns: entry.first_mono_ns(),
                last_mono_ns: entry.last_mono_ns(),
                first_wall_ns: entry.first_wall_ns(),
                last_wall_ns: entry.last_wall_ns(),
            }),
            sources,
            digest: entry.digest(),
        }
    }
}

impl Bounds {
    /// Returns the smallest bounds that contain both `self` and `other`.
    #[must_use]
    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            first_mono_ns: self.first_mono_ns.min(other.first_mono_ns),
            last_mono_ns: self.last_mono_ns.max(other.last_mono_ns),
            first_wall_ns: self.first_wall_ns.min(other.first_wall_ns),
            last_wall_ns: self.last_wall_ns.max(other.last_wall_ns),
        }
    }
}

impl IndexFrame {
    /// Returns the payload of the Index frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut builder = fixed_size_builder();
        let entry = self.entry.build(&mut builder);
        let root = wire::Index::create(
            &mut builder,
            &wire::IndexArgs { number: self.number, synced_offset: self.synced_offset, entry: Some(entry) },
        );
        builder.finish(root, Some("FCIX"));
        builder.finished_data().to_vec()
    }

    /// Reads the payload of an Index frame. Returns `None` if the payload is malformed.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let index = verified::<wire::Index<'_>>(payload)?;
        Some(Self {
            number: index.number(),
            synced_offset: index.synced_offset(),
            entry: IndexEntry::read(index.entry()),
        })
    }
}

impl IndexBuilder {
    /// Starts the index of an empty segment.
    pub(in crate::segment) fn new() -> Self {
        Self { entries: Vec::new(), open: IndexEntry::default(), digest: Digest::after(0), number: 0 }
    }

    /// Returns the entry of the open interval.
    pub(in crate::segment) fn open(&self) -> &IndexEntry {
        &self.open
    }

    /// Counts frames, given the concatenated headers of the frames.
    pub(in crate::segment) fn add_frames(&mut self, heads: &[u8], frames: u64, bytes: u64) {
        self.digest.add(heads);
        self.open.frames += frames;
        self.open.bytes += bytes;
    }

    /// Counts samples whose frames were already counted.
    pub(in crate::segment) fn add_samples(&mut self, samples: IndexedSource, bounds: Bounds) {
        self.open.add_samples(samples);
        self.open.bounds = Some(self.open.bounds.map_or(bounds, |open| open.union(bounds)));
    }

    /// Ends the open interval and begins the next one. Returns the Index frame.
    pub(in crate::segment) fn close(&mut self, synced_offset: u64) -> IndexFrame {
        let digest = self.digest.value();
        let next = IndexEntry { offset: self.open.end(), ..IndexEntry::default() };
        let entry = IndexEntry { digest, ..std::mem::replace(&mut self.open, next) };
        self.digest = Digest::after(digest);
        self.push_entry(entry.clone());
        let number = self.number;
        self.number += 1;
        IndexFrame { number, synced_offset, entry }
    }

    /// Returns the entries of all intervals. The last interval ends at the footer.
    pub(in crate::segment) fn finish(&mut self) -> Vec<IndexEntry> {
        let _last = self.close(0);
        std::mem::take(&mut self.entries)
    }

    fn push_entry(&mut self, entry: IndexEntry) {
        if self.entries.len() + 1 >= ENTRIES_MAX {
            let mut joined = Vec::with_capacity(ENTRIES_MAX);
            for pair in std::mem::take(&mut self.entries).chunks(2) {
                if let [first, rest @ ..] = pair {
                    let mut first = first.clone();
                    for next in rest {
                        first.join(next);
                    }
                    joined.push(first);
                }
            }
            self.entries = joined;
        }
        self.entries.push(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(at: u64) -> Bounds {
        let wall_ns = at.cast_signed() - 50;
        Bounds { first_mono_ns: at, last_mono_ns: at + 5, first_wall_ns: wall_ns, last_wall_ns: wall_ns + 5 }
    }

    // Proves that an Index frame is read back, with and without samples.
    #[test]
    fn indexes_are_read_back() {
        let mut builder = IndexBuilder::new();
        builder.add_frames(&[1; 24], 2, 200);
        let empty = builder.close(0);
        builder.add_frames(&[2; 12], 1, 100);
        builder.add_samples(IndexedSource { source: 3, first_seq: 9, count: 1 }, bounds(7));
        let second = builder.close(150);
        for index in [&empty, &second] {
            assert_eq!(IndexFrame::decode(&index.encode()).as_ref(), Some(index));
        }
        assert_eq!((empty.entry.offset, empty.entry.bytes, empty.entry.frames), (0, 200, 2));
        assert_eq!((second.number, second.entry.offset, second.entry.end()), (1, 200, 300));
        assert_ne!(empty.entry.digest, second.entry.digest);
    }

    // Proves that the index of a footer is bounded and covers the whole file. Method: write three
    // times as many intervals as the maximum number of entries in a footer.
    #[test]
    fn a_full_index_joins_neighbours() {
        let mut builder = IndexBuilder::new();
        let intervals = 3 * ENTRIES_MAX as u64;
        let mut digests = Vec::new();
        for k in 0..intervals {
            builder.add_frames(&k.to_le_bytes(), 1, 10);
            builder.add_samples(IndexedSource { source: (k % 2) as u16, first_seq: k, count: 1 }, bounds(k));
            digests.push(builder.close(0).entry.digest);
        }
        let entries = builder.finish();
        assert!(entries.len() <= ENTRIES_MAX && entries.len() >= ENTRIES_MAX / 2, "{}", entries.len());
        let mut end = 0;
        for entry in &entries[..entries.len() - 1] {
            assert_eq!(entry.offset, end);
            end = entry.end();
            let (first, last) = (entry.offset / 10, end / 10 - 1);
            assert_eq!(entry.digest, digests[usize::try_from(last).unwrap()], "the digest of the last");
            assert_eq!(entry.frames, last + 1 - first);
            assert_eq!(entry.bounds, Some(bounds(first).union(bounds(last))));
            assert_eq!(entry.sources.iter().map(|source| source.count).sum::<u64>(), entry.frames);
        }
        assert_eq!(end, intervals * 10);
    }
}
