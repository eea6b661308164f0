//! What seals a segment: the footer, and the trailer that says where it stands.

use std::io;

use super::control::forcing_builder;
use super::header::{BLOCKS, Header, HeaderFault, verified};
use super::index::IndexEntry;
use super::totals::Totals;
use crate::block::SourceSize;
use crate::schema::segment as wire;

/// What stands at the end of a sealed segment, in front of the trailer.
#[derive(Debug, Clone)]
pub struct Footer {
    /// A copy of the header.
    pub header: Header,
    /// One a source, in the order of the header.
    pub totals: Vec<Totals>,
    /// Frames in front of the footer.
    pub frames: u64,
    /// Bytes in front of the footer.
    pub bytes: u64,
    /// The largest step back in time between frames of different sources, in nanoseconds.
    pub reorder_window_ns: u64,
    /// Completed after a crash.
    pub recovered: bool,
    /// All intervals in front of the footer.
    pub index: Vec<IndexEntry>,
    /// Of a packed segment: its blocks, in the order of their raw offsets, which leave nothing out. Else none.
    pub blocks: Vec<BlockEntry>,
    /// Of a packed segment: what became of each source's frames. Else none.
    pub sizes: Vec<SourceSize>,
    /// Of a packed segment: it was packed while it was recorded, in blocks that are smaller than they could be.
    pub small_blocks: bool,
}

/// Where a block of a packed segment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockEntry {
    /// Of its first frame, in the segment as it was recorded, in bytes.
    pub raw_offset: u64,
    /// Of its own frame, in the file, in bytes.
    pub offset: u64,
    /// Length of its frames, unpacked.
    pub raw_bytes: u32,
    /// Length of its own frame, with its header.
    pub bytes: u32,
}

impl BlockEntry {
    /// Where in the segment as it was recorded the next block begins.
    pub fn raw_end(&self) -> u64 {
        self.raw_offset.saturating_add(u64::from(self.raw_bytes))
    }

    /// Where in the file its frame ends.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes))
    }
}

impl Footer {
    /// The number of a source's first reading that is neither in this segment nor in an earlier one, nor counted as lost there;
    /// 0 for a source that the footer does not know.
    pub(super) fn next_seq(&self, source: u16) -> u64 {
        let first = self.header.source(source).map_or(0, |source| source.next_seq);
        let totals = self.totals.iter().find(|totals| totals.source == source);
        totals.map_or(first, |totals| first.saturating_add(totals.recorded).saturating_add(totals.lost))
    }

    /// The payload of the footer frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut builder = forcing_builder();
        let incompatible = if self.blocks.is_empty() { 0 } else { BLOCKS };
        let header = self.header.build(&mut builder, incompatible);
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
    pub(super) fn decode(payload: &[u8]) -> Result<Self, HeaderFault> {
        let footer = verified::<wire::Footer<'_>>(payload).ok_or(HeaderFault::Malformed)?;
        Ok(Self {
            header: Header::check(footer.header())?,
            totals: footer.totals().iter().map(Totals::read).collect(),
            frames: footer.frames(),
            bytes: footer.bytes(),
            reorder_window_ns: footer.reorder_window_ns(),
            recovered: footer.recovered(),
            index: footer.index().into_iter().flatten().map(IndexEntry::read).collect(),
            blocks: footer.blocks().into_iter().flatten().map(read_block).collect(),
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

/// The last frame of a sealed segment: where the footer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Offset of the footer's frame.
    pub footer_offset: u64,
    /// Length of the footer's payload.
    pub footer_length: u32,
    /// Number of the segment.
    pub segment: u64,
    /// The run that wrote it.
    pub run_id: u64,
}

impl Trailer {
    /// Length of its payload, always.
    pub const PAYLOAD_BYTES: usize = 56;

    /// The payload of the trailer frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut builder = forcing_builder();
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

    /// Reads the payload of a trailer frame; none if it is none.
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

/// The payloads of a footer and of the trailer that points to it.
pub(super) fn ended(footer: &Footer) -> io::Result<(Vec<u8>, Vec<u8>)> {
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
    use crate::segment::header::tests::example;

    // Goal: a trailer is read back and has one size whatever it says. Method: extreme values.
    #[test]
    fn trailers_have_one_size() {
        for value in [0, 1, u64::MAX / 2] {
            let trailer = Trailer { footer_offset: value, footer_length: 0, segment: value, run_id: value };
            let payload = trailer.encode();
            assert_eq!(payload.len(), Trailer::PAYLOAD_BYTES);
            assert_eq!(Trailer::decode(&payload), Some(trailer));
        }
    }

    // Goal: a footer carries header and totals, histograms too. Method: an example.
    #[test]
    fn footers_are_read_back() {
        let mut totals = Totals::new(1);
        totals.lost = 4;
        totals.missed = 5;
        totals.partial = 6;
        totals.causes = 0b1001;
        totals.lateness.add_bucket(1000, 3);
        let footer = Footer {
            header: example(),
            totals: vec![Totals::new(0), totals],
            frames: 10,
            bytes: 1000,
            reorder_window_ns: 77,
            recovered: false,
            index: vec![IndexEntry { offset: 5, digest: 9, ..IndexEntry::default() }],
            blocks: vec![BlockEntry { raw_offset: 1, offset: 2, raw_bytes: 3, bytes: 4 }],
            sizes: vec![SourceSize { source: 5, raw_bytes: 6, stored_bytes: 7 }],
            small_blocks: true,
        };
        let back = Footer::decode(&footer.encode()).unwrap();
        assert_eq!(back.header, footer.header);
        assert_eq!((back.frames, back.bytes, back.reorder_window_ns, back.recovered), (10, 1000, 77, false));
        assert_eq!((&back.index, &back.blocks, &back.sizes), (&footer.index, &footer.blocks, &footer.sizes));
        assert!(back.small_blocks);
        let back_1 = &back.totals[1];
        assert_eq!((back_1.lost, back_1.missed, back_1.partial, back_1.causes), (4, 5, 6, 0b1001));
        assert_eq!(back.totals[1].lateness.summary().count, 3);
        assert!(back.totals[0].span.is_none());
    }
}
