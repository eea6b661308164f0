//! Defines the end of a sealed segment, which consists of the footer and the trailer that contains
//! the footer's offset.

use std::io;

use super::footer_totals::FooterTotals;
use super::header::{HeaderError, SegmentHeader};
use super::index::IndexEntry;
use super::payload_codec::{fixed_size_builder, verified};
use crate::block::{BlockFeatures, SourceSize};
use crate::schema::segment as wire;

/// The footer of a sealed segment. The trailer follows the footer.
#[derive(Debug, Clone)]
pub struct Footer {
    /// A copy of the header of the segment.
    pub header: SegmentHeader,
    /// The totals of each source, in the order of the header.
    pub totals: Vec<FooterTotals>,
    /// Number of frames before the footer.
    pub frames: u64,
    /// Number of bytes before the footer.
    pub bytes: u64,
    /// Maximum amount by which a frame is older than a preceding frame of another source, in
    /// nanoseconds.
    pub reorder_window_ns: u64,
    /// Whether the segment was completed after a crash.
    pub recovered: bool,
    /// The index entries of all intervals before the footer.
    pub index: Vec<IndexEntry>,
    /// The blocks of a compressed segment, in the order of their raw offsets and without gaps
    /// between the blocks. Empty for other segments.
    pub blocks: Vec<BlockEntry>,
    /// The features of the blocks. Only compressed segments have such features.
    pub features: BlockFeatures,
    /// The raw and the stored size of each source's frames. Only compressed segments have these
    /// sizes.
    pub sizes: Vec<SourceSize>,
    /// Whether the segment was compressed while it was recorded. The blocks of such a segment are
    /// smaller than the blocks of a later compression.
    pub small_blocks: bool,
}

/// Location of a block of a compressed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockEntry {
    /// Offset in the raw segment at which the block's frames begin, in bytes.
    pub raw_offset: u64,
    /// Offset of the block's frame in the file, in bytes.
    pub offset: u64,
    /// Total length of the block's frames after decompression, in bytes.
    pub raw_bytes: u32,
    /// Length of the block's own frame in the file, including its header, in bytes.
    pub bytes: u32,
}

impl BlockEntry {
    /// Returns the raw offset at which the next block begins.
    pub fn raw_end(&self) -> u64 {
        self.raw_offset.saturating_add(u64::from(self.raw_bytes))
    }

    /// Returns the offset in the file at which the block's frame ends.
    pub(in crate::segment) fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes))
    }
}

impl Footer {
    /// Returns the sequence number of a source's next sample, after all samples that this segment
    /// and earlier segments contain or count in a gap. Returns 0 for a source that the footer does
    /// not describe.
    pub(in crate::segment) fn next_seq(&self, source: u16) -> u64 {
        let first = self.header.source(source).map_or(0, |source| source.next_seq);
        let totals = self.totals.iter().find(|totals| totals.source == source);
        totals.map_or(first, |totals| {
            [totals.recorded, totals.lost, totals.thinned].into_iter().fold(first, u64::saturating_add)
        })
    }

    /// Returns whether no sample is missing between this segment and the next segment of the run,
    /// whose header is `next`. That is the case if the next segment begins where this segment ends,
    /// or before.
    pub fn is_followed_by(&self, next: &SegmentHeader) -> bool {
        next.sources.iter().all(|source| source.next_seq <= self.next_seq(source.id))
    }

    /// Returns the payload of the footer frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut builder = fixed_size_builder();
        let header = self.header.build(&mut builder, self.features);
        let totals: Vec<_> = self.totals.iter().map(|totals| totals.build(&mut builder)).collect();
        let totals = builder.create_vector(&totals);
        let index: Vec<_> = self.index.iter().map(|entry| entry.build(&mut builder)).collect();
        let index = builder.create_vector(&index);
        let blocks = (!self.blocks.is_empty()).then(|| {
            let blocks = self.blocks.iter().map(|entry| {
                wire::BlockEntry::new(entry.raw_offset, entry.offset, entry.raw_bytes, entry.bytes)
            });
            builder.create_vector(&blocks.collect::<Vec<_>>())
        });
        let sizes = (!self.sizes.is_empty()).then(|| {
            let size =
                |size: &SourceSize| wire::PackedSize::new(size.raw_bytes, size.stored_bytes, size.source);
            builder.create_vector(&self.sizes.iter().map(size).collect::<Vec<_>>())
        });
        let root = wire::Footer::create(
            &mut builder,
            &wire::FooterArgs {
                header: Some(header),
                totals: Some(totals),
                frames: self.frames,
                bytes: self.bytes,
                reorder_window_ns: self.reorder_window_ns,
                recovered: self.recovered,
                index: Some(index),
                blocks,
                sizes,
                small_blocks: self.small_blocks.then_some(true),
            },
        );
        builder.finish(root, Some("FCFT"));
        builder.finished_data().to_vec()
    }

    /// Reads the payload of a footer frame.
    pub(in crate::segment) fn decode(payload: &[u8]) -> Result<Self, HeaderError> {
        let footer = verified::<wire::Footer<'_>>(payload).ok_or(HeaderError::Malformed)?;
        Ok(Self {
            header: SegmentHeader::check(footer.header())?,
            totals: footer.totals().iter().map(FooterTotals::read).collect(),
            frames: footer.frames(),
            bytes: footer.bytes(),
            reorder_window_ns: footer.reorder_window_ns(),
            recovered: footer.recovered(),
            index: footer.index().into_iter().flatten().map(IndexEntry::read).collect(),
            blocks: footer.blocks().into_iter().flatten().map(read_block).collect(),
            features: BlockFeatures::from_bits(footer.header().incompatible()),
            sizes: footer.sizes().into_iter().flatten().map(read_size).collect(),
            small_blocks: footer.small_blocks().unwrap_or(false),
        })
    }
}

fn read_block(entry: &wire::BlockEntry) -> BlockEntry {
    BlockEntry {
        raw_offset: entry.raw_offset(),
        offset: entry.offset(),
        raw_bytes: entry.raw_bytes(),
        bytes: entry.bytes(),
    }
}

fn read_size(size: &wire::PackedSize) -> SourceSize {
    SourceSize { source: size.source(), raw_bytes: size.raw_bytes(), stored_bytes: size.stored_bytes() }
}

/// The last frame of a sealed segment. The trailer contains the offset of the footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Offset of the footer's frame in the file.
    pub footer_offset: u64,
    /// Length of the footer's payload, in bytes.
    pub footer_length: u32,
    /// Number of the segment.
    pub segment: u64,
    /// The run that wrote the segment.
    pub run_id: u64,
}

impl Trailer {
    /// Length of the payload of every trailer, in bytes.
    pub const PAYLOAD_BYTES: usize = 56;

    /// Returns the payload of the trailer frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut builder = fixed_size_builder();
        let root = wire::Trailer::create(
            &mut builder,
            &wire::TrailerArgs {
                footer_offset: self.footer_offset,
                footer_length: self.footer_length,
                segment: self.segment,
                run_id: self.run_id,
            },
        );
        builder.finish(root, Some("FCTR"));
        builder.finished_data().to_vec()
    }

    /// Reads the payload of a trailer frame. Returns `None` if the payload is malformed.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let trailer = verified::<wire::Trailer<'_>>(payload)?;
        Some(Self {
            footer_offset: trailer.footer_offset(),
            footer_length: trailer.footer_length(),
            segment: trailer.segment(),
            run_id: trailer.run_id(),
        })
    }
}

/// Returns the payload of a footer and the payload of the trailer that follows it.
pub(in crate::segment) fn footer_and_trailer(footer: &Footer) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let payload = footer.encode();
    let trailer = Trailer {
        footer_offset: footer.bytes,
        footer_length: u32::try_from(payload.len()).map_err(io::Error::other)?,
        segment: footer.header.segment,
        run_id: footer.header.run_id,
    };
    Ok((payload, trailer.encode()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::example;

    // Proves that a trailer is read back as it was written, and that its size is the same for all
    // values.
    #[test]
    fn trailers_have_one_size() {
        for value in [0, 1, u64::MAX / 2] {
            let trailer = Trailer { footer_offset: value, footer_length: 0, segment: value, run_id: value };
            let payload = trailer.encode();
            assert_eq!(payload.len(), Trailer::PAYLOAD_BYTES);
            assert_eq!(Trailer::decode(&payload), Some(trailer));
        }
    }

    // Proves that a footer is read back with its header, totals and histograms.
    #[test]
    fn footers_are_read_back() {
        let mut totals = FooterTotals::new(1);
        totals.lost = 4;
        totals.missed = 5;
        totals.incomplete = 6;
        totals.causes = 0b1001;
        totals.lateness.add_bucket(1000, 3);
        let footer = Footer {
            header: example(),
            totals: vec![FooterTotals::new(0), totals],
            frames: 10,
            bytes: 1000,
            reorder_window_ns: 77,
            recovered: false,
            index: vec![IndexEntry { offset: 5, digest: 9, ..IndexEntry::default() }],
            blocks: vec![BlockEntry { raw_offset: 1, offset: 2, raw_bytes: 3, bytes: 4 }],
            features: BlockFeatures::ROWS.and(BlockFeatures::COLUMNS),
            sizes: vec![SourceSize { source: 5, raw_bytes: 6, stored_bytes: 7 }],
            small_blocks: true,
        };
        let back = Footer::decode(&footer.encode()).unwrap();
        assert_eq!(back.header, footer.header);
        assert_eq!((back.frames, back.bytes, back.reorder_window_ns, back.recovered), (10, 1000, 77, false));
        assert_eq!((&back.index, &back.blocks, &back.sizes), (&footer.index, &footer.blocks, &footer.sizes));
        assert_eq!((back.small_blocks, back.features), (true, footer.features));
        let back_1 = &back.totals[1];
        assert_eq!((back_1.lost, back_1.missed, back_1.incomplete, back_1.causes), (4, 5, 6, 0b1001));
        assert_eq!(back.totals[1].lateness.summary().count, 3);
        assert!(back.totals[0].span.is_none());
    }
}
