//! Reads a compressed segment as the raw segment from which it was made (docs/FORMAT.md, section
//! 11). Therefore all offsets are offsets in the raw segment. Blocks are decompressed one by one.
//!
//! The bytes of a damaged block read as zeros, and [`CompressedSegment::damage_at`] reports the
//! damage. A file without a footer may grow. Therefore a read past the last block searches for new
//! blocks.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flatcap_stream::{DeframeStatus, SliceDeframer};

use super::source_selection::SourceSelector;
use crate::block::{
    Block, BlockDecoder, BlockFeatures, ColumnSelection, FieldSelection, SeekResult, SourceSize,
};
use crate::segment::format::block_frame::{block_checksum, deframer, has_valid_lengths, parse_block_entry};
use crate::segment::format::block_table::add_sizes;
use crate::segment::format::damage::Damage;
use crate::segment::format::footer::BlockEntry;
use crate::segment::format::header::SegmentHeader;
use crate::segment::open::block_search::{
    NextBlock, find_blocks, next_block, raw_bytes_max, with_missing_blocks,
};
use crate::segment::open::file_window::FileWindow;
use crate::segment::open::header_and_footer::HeaderAndFooter;
use crate::segment::open::header_copy::HeaderCopy;
use crate::segment::open::torn_tail::is_empty_after;
use crate::storage::ReadAt;

/// Number of decompressed blocks that are kept. One block is for sequential reading, and the other
/// block is for reads at other offsets.
const OPEN_MAX: usize = 2;

/// Provides the raw bytes of a compressed segment.
#[derive(Debug)]
pub struct CompressedSegment {
    file: Arc<dyn ReadAt>,
    header: Option<SegmentHeader>, // of the file, or the copy in its footer, without schemas
    features: BlockFeatures,       // features that the blocks may have
    sizes: Vec<SourceSize>,
    has_header: bool,
    has_table: bool,
    has_small_blocks: bool,
    inner_sealed: OnceLock<bool>, // whether the raw segment has a footer
    cache: Mutex<BlockCache>,
}

/// The decoder, the table of blocks, and the decompressed blocks.
#[derive(Default)]
struct BlockCache {
    // The blocks are consecutive and begin at raw offset 0. Missing blocks have `bytes` 0.
    blocks: Vec<BlockEntry>,
    end: u64, // end of the last block, as an offset in the file
    may_grow: bool,
    decoder: BlockDecoder,
    selector: Option<Arc<SourceSelector>>, // `None`: everything is decompressed
    frame: BlockFrame,
    open: Vec<(usize, Block)>, // the latest block first, at most OPEN_MAX
    damaged: BTreeMap<usize, String>,
    checks_bounds: bool,
    wrong_bounds: BTreeMap<usize, String>,
}

/// The cached frame of a block. The cache avoids reading a block twice, because first a seek
/// examines the payload of the block, and then the reader decompresses the same payload.
#[derive(Default)]
struct BlockFrame {
    bytes: Vec<u8>,
    entry: Option<BlockEntry>, // the block of this frame; `None` if the frame is invalid
}

impl BlockFrame {
    /// Returns the buffer for another frame, and invalidates the cached frame.
    fn buffer_for_read(&mut self) -> &mut Vec<u8> {
        self.entry = None;
        &mut self.bytes
    }

    /// Returns the payload of this block if its frame is cached.
    fn payload_of(&self, entry: &BlockEntry) -> Option<&[u8]> {
        if self.entry.as_ref() == Some(entry) { self.bytes.get(deframer().header_bytes()..) } else { None }
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open: Vec<usize> = self.open.iter().map(|(at, _)| *at).collect();
        f.debug_struct("BlockCache")
            .field("open", &open)
            .field("damaged", &self.damaged)
            .finish_non_exhaustive()
    }
}

impl CompressedSegment {
    /// Opens a file whose header declares blocks or whose footer lists blocks. If the table of
    /// blocks is not intact, searches the file for blocks.
    pub(in crate::segment) fn open(file: Arc<dyn ReadAt>, ends: &HeaderAndFooter) -> io::Result<Self> {
        let file_bytes = file.length()?;
        let footer = ends.footer.as_ref().map(|(footer, _)| footer);
        let table = footer.filter(|footer| is_valid_table(&footer.blocks, file_bytes));
        let (blocks, end) = if let Some(footer) = table {
            (footer.blocks.clone(), footer.bytes)
        } else {
            let found = find_blocks(&mut FileWindow::over(Arc::clone(&file)).probe_window())?;
            let end = found.last().map_or(0, BlockEntry::end);
            (with_missing_blocks(found), end)
        };
        let features = match (&ends.leading, footer) {
            (Some(leading), _) => leading.features,
            (None, Some(footer)) => footer.features,
            (None, None) => BlockFeatures::EVERY,
        };
        let mut decoder = BlockDecoder::default();
        decoder.set_announced(features);
        Ok(Self {
            file,
            header: footer.map(|footer| &footer.header).or(ends.header()).cloned(),
            features,
            sizes: footer.map(|footer| footer.sizes.clone()).unwrap_or_default(),
            has_header: ends.leading.is_some(),
            has_table: table.is_some(),
            has_small_blocks: footer.is_some_and(|footer| footer.small_blocks),
            inner_sealed: OnceLock::new(),
            cache: Mutex::new(BlockCache {
                blocks,
                end,
                may_grow: table.is_none(),
                decoder,
                ..BlockCache::default()
            }),
        })
    }

    /// Sets whether the raw segment has a footer.
    pub(in crate::segment) fn set_inner_sealed(&self, is_sealed: bool) {
        // The value is set only once, when the file is opened.
        let _said = self.inner_sealed.set(is_sealed);
    }

    /// Returns the features that the blocks may have.
    pub fn features(&self) -> BlockFeatures {
        self.features
    }

    /// Returns the header of the compressed file, for use if the raw header cannot be read. The
    /// header has no schemas, so samples cannot be decoded. Returns `None` if the file has no
    /// intact header or no intact block.
    pub(in crate::segment) fn header_without_schemas(&self) -> io::Result<Option<SegmentHeader>> {
        let Some(header) = &self.header else { return Ok(None) };
        let mut frame = Vec::new();
        for entry in self.blocks() {
            if let Ok(payload) = self.payload(&entry, &mut frame)?
                && let Some(checksum) = block_checksum(payload)
            {
                return Ok(Some(SegmentHeader { checksum, ..header.clone() }));
            }
        }
        Ok(None)
    }

    /// Replaces a damaged first block by a copy of the raw header's frame, which is the only
    /// content of the first block. The replacement is needed because the last block cannot be
    /// decompressed without the first block. Returns whether the copy can belong to this segment.
    pub(in crate::segment) fn replace_first_block(&self, copy: &HeaderCopy) -> bool {
        let mut cache = self.lock_cache();
        let first = cache.blocks.first().filter(|entry| entry.raw_offset == 0);
        let is_own = first.is_some_and(|entry| entry.raw_bytes as usize == copy.frame.len())
            && self.header.as_ref().is_none_or(|header| {
                (header.segment, header.run_id) == (copy.header.segment, copy.header.run_id)
            });
        if is_own && !cache.decoder.has_first_block() {
            cache.decoder.set_first_block(copy.frame.clone());
            cache.damaged.clear();
        }
        is_own
    }

    /// Enables a check of each column's bounds against the values in the column.
    pub(in crate::segment) fn check_bounds(&self) {
        let mut cache = self.lock_cache();
        cache.checks_bounds = true;
        cache.open.clear();
    }

    /// Returns each block that was read and has wrong bounds, with a description of the error.
    pub(in crate::segment) fn wrong_bounds(&self) -> Vec<(BlockEntry, String)> {
        let cache = self.lock_cache();
        let found = cache.wrong_bounds.iter();
        found.filter_map(|(at, what)| Some((*cache.blocks.get(*at)?, what.clone()))).collect()
    }

    /// Returns the length of the raw segment up to the end of the last listed block, in bytes.
    pub fn raw_bytes(&self) -> u64 {
        raw_end(&self.lock_cache().blocks)
    }

    /// Returns the length of the file, in bytes.
    ///
    /// # Errors
    /// Returns any error of the kernel.
    #[cfg(any(test, feature = "testing"))]
    pub fn stored_bytes(&self) -> io::Result<u64> {
        self.file.length()
    }

    /// Returns the blocks of the file, in the order of their raw offsets. Missing blocks have
    /// `bytes` 0.
    pub fn blocks(&self) -> Vec<BlockEntry> {
        self.lock_cache().blocks.clone()
    }

    /// Returns the raw and the stored size of each source, or an empty slice if the sizes are
    /// unknown.
    pub fn sizes(&self) -> &[SourceSize] {
        &self.sizes
    }

    /// Describes damage of the file outside of the blocks. A missing footer does not count as
    /// damage.
    pub fn flaw(&self) -> Option<&'static str> {
        match (self.has_header, self.has_table) {
            (_, false) if self.inner_sealed.get() == Some(&true) => {
                Some("the footer of the compressed file is damaged: its blocks were found by a search")
            }
            (false, true) => Some("the header of the compressed file is damaged: its footer has a copy"),
            (false, false) => {
                Some("the header of the compressed file is damaged: its blocks were found by a search")
            }
            _ => None,
        }
    }

    /// Returns whether the segment was compressed while it was recorded. The blocks of such a
    /// segment are smaller than the blocks of a later compression.
    pub fn has_small_blocks(&self) -> bool {
        self.has_small_blocks
    }

    /// Returns the offset, in the compressed file, of the block that contains `raw_offset`. For an
    /// offset after the last block, returns the end of the last block.
    pub fn stored_offset(&self, raw_offset: u64) -> u64 {
        let state = self.lock_cache();
        state.block_at(raw_offset).map_or(state.end, |(_, entry)| entry.offset)
    }

    /// Returns the last block, or `None` if the file has no table of blocks or the checksum of this
    /// block is wrong.
    pub(in crate::segment) fn intact_last_block(&self) -> io::Result<Option<BlockEntry>> {
        let last = self.lock_cache().blocks.last().copied();
        let Some(last) = last.filter(|_| self.has_table) else { return Ok(None) };
        Ok(self.payload(&last, &mut Vec::new())?.is_ok().then_some(last))
    }

    /// Returns the blocks up to a raw offset, for a file without a footer. Returns `None` if a
    /// block is missing, or if no block ends at this offset.
    pub(in crate::segment) fn blocks_up_to(&self, raw_offset: u64) -> Option<Vec<BlockEntry>> {
        let mut blocks = self.blocks();
        blocks.truncate(blocks.partition_point(|entry| entry.raw_end() <= raw_offset));
        let is_whole = is_valid_table(&blocks, u64::MAX) && raw_end(&blocks) == raw_offset;
        (is_whole && self.has_header && !self.has_table).then_some(blocks)
    }

    /// Returns the bytes after the last block of a file without a footer, as damage at the end of
    /// the raw segment.
    pub(in crate::segment) fn tail(&self) -> io::Result<Option<Damage>> {
        let (offset, end, may_grow) = {
            let state = self.lock_cache();
            (raw_end(&state.blocks), state.end, state.may_grow)
        };
        let length = self.file.length()?.saturating_sub(end);
        if !may_grow || length == 0 || self.inner_sealed.get() == Some(&true) {
            return Ok(None);
        }
        let is_empty = is_empty_after(&*self.file, end)?;
        let what = if is_empty {
            "empty: zeros, space that was never written"
        } else {
            "a block that is cut off, or still being written"
        };
        Ok(Some(Damage { offset, length, what }))
    }

    fn lock_cache(&self) -> MutexGuard<'_, BlockCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restricts the decompression of later blocks to the selected fields of samples. The fields
    /// that are not selected contain the bytes of another sample of the same source and shape.
    pub(in crate::segment) fn set_selector(&self, selector: Arc<SourceSelector>) {
        let mut cache = self.lock_cache();
        cache.selector = Some(selector);
        cache.open.clear();
    }

    /// Returns the damaged range from `raw_offset` to the end of its block, if that block was read
    /// and is damaged.
    pub(in crate::segment) fn damage_at(&self, raw_offset: u64) -> Option<Damage> {
        let state = self.lock_cache();
        let (at, entry) = state.block_at(raw_offset)?;
        state.damaged.get(&at)?;
        let what = "a block that cannot be decompressed";
        Some(Damage { offset: raw_offset, length: entry.raw_end() - raw_offset, what })
    }

    /// Describes the damage of the block that contains `raw_offset`, with the block's offset in the
    /// file.
    pub(in crate::segment) fn explain(&self, raw_offset: u64) -> Option<String> {
        let state = self.lock_cache();
        let (at, entry) = state.block_at(raw_offset)?;
        let what = state.damaged.get(&at)?;
        Some(match entry.bytes {
            0 => format!("a block that is not in the file: {what}"),
            bytes => format!("a block of {bytes} bytes at {} of the compressed file: {what}", entry.offset),
        })
    }

    /// Finds the next frame at or after `raw_offset` in the same block. Skips Index frames, and
    /// samples older than `wall_ns`. The caller must ensure that a frame begins at `raw_offset`.
    /// Returns `Other` if the block is damaged.
    pub(in crate::segment) fn next_from(&self, raw_offset: u64, wall_ns: i64) -> io::Result<SeekResult<u64>> {
        let other = Ok(SeekResult::Other(raw_offset));
        let mut state = self.lock_cache();
        let Some((at, entry)) = state.block_at(raw_offset) else { return other };
        let from = usize::try_from(raw_offset - entry.raw_offset).map_err(io::Error::other)?;
        let state = &mut *state;
        let next = if let Some((_, block)) = state.open.iter().find(|(open, _)| *open == at) {
            block.next_from(from, wall_ns)
        } else {
            // A seek skips most blocks completely. It decompresses only the times in these blocks.
            let Ok(payload) = self.cached_payload(&entry, &mut state.frame)? else { return other };
            let Ok(next) = state.decoder.next_from(payload, from, wall_ns) else { return other };
            next
        };
        let raw = |offset: usize| entry.raw_offset + offset as u64;
        Ok(match next {
            SeekResult::Sample(offset) => SeekResult::Sample(raw(offset)),
            SeekResult::Other(offset) => SeekResult::Other(raw(offset)),
            SeekResult::End(offset) => SeekResult::End(raw(offset)),
        })
    }

    /// Passes the raw bytes of the first block to the decoder, if `payload` is the payload of a
    /// block that refers to the first block.
    fn provide_first_block(
        &self,
        payload: &[u8],
        (blocks, open): (&[BlockEntry], &[(usize, Block)]),
        decoder: &mut BlockDecoder,
    ) -> io::Result<()> {
        let first = blocks.first().filter(|entry| entry.raw_offset == 0);
        let (false, true, Some(first)) =
            (decoder.has_first_block(), BlockDecoder::needs_first_block(payload), first)
        else {
            return Ok(());
        };
        let mut raw = Vec::new();
        // The first block is usually in the cache, because reading the header has decompressed it.
        if let Some((_, block)) = open.iter().find(|(at, _)| *at == 0) {
            raw.resize(block.raw_bytes(), 0);
            block.copy(0, &mut raw);
            decoder.set_first_block(raw);
            return Ok(());
        }
        let mut frame = Vec::new();
        // A damaged first block is not an error here. The error is reported when a block that
        // refers to the first block is opened.
        if let Ok(payload) = self.payload(first, &mut frame)?
            && let Ok(block) = decoder.open(payload, &ColumnSelection::ALL)
        {
            raw.resize(block.raw_bytes(), 0);
            block.copy(0, &mut raw);
            decoder.set_first_block(raw);
        }
        Ok(())
    }

    /// Calls `decompress` with the decoder, for work other than decompressing the block that is
    /// being read.
    pub(in crate::segment) fn with_decoder<T>(&self, decompress: impl FnOnce(&mut BlockDecoder) -> T) -> T {
        decompress(&mut self.lock_cache().decoder)
    }

    /// Reads the payload of a block. The inner error describes the damage of the block.
    ///
    /// # Errors
    /// Returns any error of the kernel.
    pub fn payload<'a>(
        &self,
        entry: &BlockEntry,
        frame: &'a mut Vec<u8>,
    ) -> io::Result<Result<&'a [u8], &'static str>> {
        if entry.bytes == 0 {
            return Ok(Err("neither the table of blocks nor a search found it"));
        }
        // Old bytes in the buffer are not cleared, because the read overwrites all of them.
        frame.resize(entry.bytes as usize, 0);
        if self.file.read_all_at(frame, entry.offset)? < frame.len() {
            return Ok(Err("it ends beyond the file"));
        }
        Ok(match deframer().deframe(frame) {
            Ok(DeframeStatus::Frame(found)) if found.bytes().len() == entry.bytes as usize => {
                let found = found.payload();
                match parse_block_entry(found, entry.offset, entry.bytes as usize) {
                    Some(own) if own == *entry => Ok(found),
                    Some(_) => Err("it is not the block in the table"),
                    None => Err("it is not a block"),
                }
            }
            Ok(_) => Err("its length differs from the table"),
            Err(error) if error.is_checksum_mismatch() => Err("its checksum is wrong"),
            Err(_) => Err("its length is impossible"),
        })
    }

    /// Returns the payload of a block in the same way as [`payload`](Self::payload). If the block's
    /// frame is cached, the file is not read again.
    fn cached_payload<'a>(
        &self,
        entry: &BlockEntry,
        frame: &'a mut BlockFrame,
    ) -> io::Result<Result<&'a [u8], &'static str>> {
        if frame.payload_of(entry).is_none() {
            if let Err(what) = self.payload(entry, frame.buffer_for_read())? {
                return Ok(Err(what));
            }
            frame.entry = Some(*entry);
        }
        // The payload is always present, because the frame was just read.
        Ok(frame.payload_of(entry).ok_or("it is not a block"))
    }

    /// Returns the size of each source, summed over these blocks. Returns `None` if one of the
    /// blocks cannot be read.
    ///
    /// # Errors
    /// Returns any error of the kernel.
    pub(in crate::segment) fn sizes_of(&self, blocks: &[BlockEntry]) -> io::Result<Option<Vec<SourceSize>>> {
        let (mut sums, mut frame) = (Vec::new(), Vec::new());
        for entry in blocks {
            let Ok(payload) = self.payload(entry, &mut frame)? else { return Ok(None) };
            let Ok(sizes) = self.with_decoder(|decoder| decoder.sizes(payload)) else { return Ok(None) };
            add_sizes(&mut sums, &sizes);
        }
        Ok(Some(sums))
    }

    /// Searches for new blocks after the last known block.
    fn grow(&self, state: &mut BlockCache) -> io::Result<()> {
        if !state.may_grow {
            return Ok(());
        }
        let raw_max = raw_bytes_max(&*self.file)?;
        while state.may_grow {
            match next_block(&*self.file, state.end, state.frame.buffer_for_read())? {
                NextBlock::Block(entry)
                    if entry.raw_offset == raw_end(&state.blocks) && entry.raw_end() <= raw_max =>
                {
                    state.end += u64::from(entry.bytes);
                    state.blocks.push(entry);
                }
                NextBlock::Nothing => break,
                // The other frame is usually the footer.
                NextBlock::Block(_) | NextBlock::Other => state.may_grow = false,
            }
        }
        Ok(())
    }

    /// Decompresses a block unless it is cached, and moves it to the front of the cache. Returns
    /// whether the block can be read.
    fn decompress(&self, at: usize, entry: BlockEntry, cache: &mut BlockCache) -> io::Result<bool> {
        if let Some(open) = cache.open.iter().position(|(open, _)| *open == at) {
            if let Some(front) = cache.open.get_mut(..=open) {
                front.rotate_right(1);
            }
            return Ok(true);
        }
        if cache.damaged.contains_key(&at) {
            return Ok(false);
        }
        let selector = cache.selector.clone();
        let select = move |source: u16| match &selector {
            Some(selector) => selector(source),
            None => FieldSelection::All,
        };
        // The buffers of a removed block are reused for the next one.
        while cache.open.len() >= OPEN_MAX
            && let Some((_, block)) = cache.open.pop()
        {
            cache.decoder.reuse(block);
        }
        let BlockCache { blocks, decoder, frame, open, .. } = cache;
        let opened = match self.cached_payload(&entry, frame)? {
            Ok(payload) => {
                self.provide_first_block(payload, (blocks, open), decoder)?;
                decoder.open(payload, &ColumnSelection::by(&select)).map_err(|fault| fault.to_string())
            }
            Err(what) => Err(what.to_owned()),
        };
        match opened {
            Ok(block) => {
                if cache.checks_bounds
                    && let Some((source, field)) = block.wrong_bounds()
                {
                    let (from, to) = (field.at, field.at + u32::from(field.bytes) - 1);
                    let what = format!(
                        "wrong bounds: the column of bytes {from} to {to} of samples of source {source} has other \
                         values than its block states"
                    );
                    cache.wrong_bounds.insert(at, what);
                }
                cache.open.insert(0, (at, block));
                Ok(true)
            }
            Err(what) => {
                cache.damaged.insert(at, what);
                Ok(false)
            }
        }
    }
}

impl ReadAt for CompressedSegment {
    /// Reads bytes, but never past the end of a block. Returns zeros for a damaged block.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.lock_cache();
        if state.block_at(offset).is_none() {
            self.grow(&mut state)?;
        }
        let Some((at, entry)) = state.block_at(offset) else { return Ok(0) };
        let from = usize::try_from(offset - entry.raw_offset).map_err(io::Error::other)?;
        let count = buffer.len().min(entry.raw_bytes as usize - from);
        let to = buffer.get_mut(..count).unwrap_or_default();
        if self.decompress(at, entry, &mut state)?
            && let Some((_, block)) = state.open.first()
        {
            block.copy(from, to);
        } else {
            to.fill(0);
        }
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        let mut state = self.lock_cache();
        self.grow(&mut state)?;
        Ok(raw_end(&state.blocks))
    }
}

impl BlockCache {
    /// Returns the block that contains a raw offset, and the block's index.
    fn block_at(&self, raw_offset: u64) -> Option<(usize, BlockEntry)> {
        let at = self.blocks.partition_point(|entry| entry.raw_end() <= raw_offset);
        self.blocks.get(at).map(|entry| (at, *entry))
    }
}

fn raw_end(blocks: &[BlockEntry]) -> u64 {
    blocks.last().map_or(0, BlockEntry::raw_end)
}

/// Returns whether a file of this length can contain these blocks, and whether they have no gaps in
/// the raw segment.
fn is_valid_table(blocks: &[BlockEntry], file_bytes: u64) -> bool {
    let (mut raw_end, mut end) = (0, 0);
    !blocks.is_empty()
        && blocks.iter().all(|entry| {
            // Blocks must not overlap in the file, so that a short file cannot claim to be a long
            // segment.
            let follows = entry.raw_offset == raw_end && entry.offset >= end;
            (raw_end, end) = (entry.raw_end(), entry.offset.saturating_add(u64::from(entry.bytes)));
            follows && has_valid_lengths(entry) && end <= file_bytes
        })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use flatcap_stream::Framer as _;
    use proptest::prelude::*;

    use super::*;
    use crate::block::{BlockEncoder, Codec, CompressionOptions, Layout, SourceCompression};
    use crate::segment::format::header::COMPRESSED_CHECKSUM;
    use crate::segment::recover::segment_recovery::recover;
    use crate::segment::verify::verification::tests::{Act, acts, written};
    use crate::segment::{
        Advance, CompressedWriter, Leftovers, SegmentName, SegmentReader, SideFile, SourceInfo, Verification,
        VerificationReport,
    };
    use crate::storage::Storage as _;
    use crate::testing::Folder;
    use crate::testing::compressed;
    use crate::testing::effort;

    /// Reads a segment frame by frame. Returns the frames, the damage, and a summary of the header
    /// and the footer.
    fn read_through(mut reader: SegmentReader) -> (Vec<u8>, Vec<Damage>, String) {
        let (mut frames, mut damage) = (Vec::new(), Vec::new());
        while let Some(advance) = reader.advance().unwrap() {
            match advance {
                Advance::Frame(at) => reader.copy_frame(at, &mut frames),
                Advance::Damage(found) => damage.push(found),
            }
        }
        let footer = reader.footer().map(|footer| {
            let totals: Vec<_> = footer.totals.iter().map(|totals| (totals.recorded, totals.span)).collect();
            let numbers = (footer.frames, footer.bytes, footer.reorder_window_ns, footer.recovered);
            (footer.header.clone(), totals, numbers, footer.blocks.len(), footer.features)
        });
        let known = (footer, reader.header(), reader.footer_offset(), reader.tail());
        (frames, damage, format!("{known:?}"))
    }

    fn verdict(path: &Path) -> VerificationReport {
        let mut verification = Verification::default();
        verification.verify(&mut SegmentReader::open(path).unwrap(), false, &mut |_| {}).unwrap();
        verification.finish()
    }

    // Proves that a reader reads the opened file to the end, even if the compressed file takes over
    // the name of the opened file before the reader maps the file.
    #[test]
    fn a_segment_is_opened_once() {
        let folder = tempfile::tempdir().unwrap();
        let samples = [Act::Samples { source: 0, count: 500, body: 100 }];
        let path = written(folder.path(), &samples);
        let raw_bytes = std::fs::metadata(&path).unwrap().len();
        let expected = verdict(&path);
        let mut reader = SegmentReader::open(&path).unwrap();
        std::fs::write(folder.path().join("compressed"), compressed(&path, 4096)).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        Folder(folder.path().to_owned()).replace("compressed", name).unwrap();
        reader.map().unwrap();
        let mut verification = Verification::default();
        verification.verify(&mut reader, false, &mut |_| {}).unwrap();
        assert_eq!(verification.finish(), expected);
        assert!(expected.is_intact() && expected.frames == 500);
        assert_eq!(reader.metadata().unwrap().unwrap().len(), raw_bytes);
    }

    /// Writes a segment and compresses it. Returns the raw bytes and the path of the compressed
    /// file.
    fn both(folder: &Path, acts: &[Act]) -> (Vec<u8>, PathBuf) {
        let path = written(folder, acts);
        let (raw, bytes) = (std::fs::read(&path).unwrap(), compressed(&path, 4096));
        std::fs::write(&path, bytes).unwrap();
        (raw, path)
    }

    fn samples(count: u64) -> Vec<Act> {
        (0..count)
            .flat_map(|at| [Act::Samples { source: (at % 2) as u16, count: 40, body: 200 }, Act::Index])
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::cases(16, 64)))]
        // Proves that reading a compressed segment returns the bytes of the raw segment, for random
        // segments and random ranges.
        #[test]
        fn a_compressed_segment_reads_as_the_raw_one(
            acts in acts(),
            pieces in prop::collection::vec((any::<prop::sample::Index>(), 0..9000_usize), 1..12),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let (raw, path) = both(folder.path(), &acts);
            let reader = SegmentReader::open(&path).unwrap();
            let segment = reader.compressed().unwrap();
            prop_assert_eq!((segment.raw_bytes(), segment.flaw()), (raw.len() as u64, None));
            for (at, bytes) in pieces {
                let from = at.index(raw.len());
                let mut piece = vec![0xAA; bytes.min(raw.len() - from)];
                prop_assert_eq!(segment.read_all_at(&mut piece, from as u64).unwrap(), piece.len());
                prop_assert_eq!(&piece, &raw[from..from + piece.len()]);
            }
            let of_compressed = verdict(&path);
            std::fs::write(&path, &raw).unwrap();
            prop_assert_eq!(of_compressed, verdict(&path));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::cases(16, 64)))]
        // Proves that a segment opened without its index has the same content as a segment opened
        // with the index. Cases: an intact file, and a file with one changed byte at any offset.
        #[test]
        fn the_index_is_not_needed_to_read(
            acts in acts(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 4),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let (_, path) = both(folder.path(), &acts);
            let bytes = std::fs::read(&path).unwrap();
            let short = SegmentReader::open_without_index(&path).unwrap();
            prop_assert!(short.footer().unwrap().index.is_empty() && short.compressed().unwrap().flaw().is_none());
            prop_assert_eq!(read_through(short), read_through(SegmentReader::open(&path).unwrap()));
            for (at, change) in changes {
                let mut wrong = bytes.clone();
                wrong[at.index(bytes.len())] ^= change;
                std::fs::write(&path, wrong).unwrap();
                match (SegmentReader::open(&path), SegmentReader::open_without_index(&path)) {
                    (Ok(one), Ok(other)) => {
                        prop_assert_eq!(one.compressed().map(CompressedSegment::flaw), other.compressed().map(CompressedSegment::flaw));
                        prop_assert_eq!(read_through(one), read_through(other));
                    }
                    (Err(one), Err(other)) => prop_assert_eq!(one.to_string(), other.to_string()),
                    (one, other) => prop_assert!(false, "{one:?} {other:?}"),
                }
            }
        }
    }

    // Proves that damage to a block affects only the frames in this block, and that the damage is
    // reported exactly once.
    #[test]
    fn a_damaged_block_costs_its_own_frames() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(12));
        let intact = verdict(&path);
        assert!(intact.is_intact() && intact.frames == 480, "{intact:?}");
        let bytes = std::fs::read(&path).unwrap();
        let blocks = SegmentReader::open(&path).unwrap().compressed().unwrap().blocks();
        assert!(blocks.len() > 12, "{}", blocks.len());
        let mut lost = Vec::new();
        for (number, block) in blocks.iter().enumerate() {
            let mut damaged = bytes.clone();
            damaged[usize::try_from(block.offset).unwrap() + block.bytes as usize / 2] ^= 0x40;
            std::fs::write(&path, &damaged).unwrap();
            let verdict = verdict(&path);
            let what = &verdict.flaws.first().unwrap().what;
            assert_eq!(verdict.flaws.first().unwrap().offset, block.raw_offset, "{number}");
            assert_eq!(verdict.flaws.first().unwrap().length, u64::from(block.raw_bytes), "{number}");
            assert!(what.contains("of the compressed file: its checksum is wrong"), "{what}");
            lost.push(intact.frames - verdict.frames);
        }
        assert_eq!(lost.iter().sum::<u64>(), intact.frames, "each frame is lost once: {lost:?}");
        assert!(
            lost.iter().all(|lost| *lost <= 40) && lost[0] == 0 && lost[blocks.len() - 1] == 0,
            "{lost:?}"
        );
    }

    // Proves that blocks that are thousands of times smaller than their frames are found without
    // the table of blocks.
    #[test]
    fn very_small_blocks_are_found_without_their_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), &[Act::Samples { source: 0, count: 600, body: 60_000 }]);
        let mut bytes = compressed(&path, 16 << 20);
        let raw_bytes = path.metadata().unwrap().len();
        assert!(raw_bytes / bytes.len() as u64 > 4096, "{raw_bytes} became {}", bytes.len());
        let end = bytes.len();
        bytes[end - 10] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(verdict(&path).frames, 600);
    }

    // Proves that damage to the header or footer of the compressed file is reported and does not
    // affect any frame.
    #[test]
    fn damage_around_the_blocks_costs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(12));
        let intact = verdict(&path);
        let bytes = std::fs::read(&path).unwrap();
        let blocks = SegmentReader::open(&path).unwrap().compressed().unwrap().blocks();
        let end =
            blocks.last().map(|block| usize::try_from(block.offset).unwrap() + block.bytes as usize).unwrap();
        for (at, expected) in [(40, "header"), (end + 40, "footer"), (bytes.len() - 9, "footer")] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            std::fs::write(&path, &damaged).unwrap();
            let verdict = verdict(&path);
            assert_eq!((verdict.frames, verdict.flaws.len()), (intact.frames, 1), "{verdict:?}");
            assert!(
                verdict.flaws[0].what.contains(&format!("the {expected} of the compressed file is damaged")),
                "{verdict:?}"
            );
        }
        std::fs::write(&path, &bytes[..end - 5]).unwrap();
        let cut = verdict(&path);
        assert_eq!(cut.frames, intact.frames);
        assert!(cut.flaws.iter().any(|flaw| flaw.what.starts_with("not sealed")), "{cut:?}");
    }

    // Proves that recovery completes a truncated compressed file in place, that the file stays
    // compressed, and that the torn tail of the file is kept. Method: truncate the file at and
    // after the end of each block.
    #[test]
    fn a_cut_compressed_file_is_recovered() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(4));
        let name = SegmentName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let blocks = SegmentReader::open(&path).unwrap().compressed().unwrap().blocks();
        let ends = blocks.iter().map(|block| usize::try_from(block.end()).unwrap());
        for (end, cut) in
            ends.flat_map(|end| [(end, end), (end, end + 20)]).filter(|(_, cut)| *cut < bytes.len())
        {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name.to_string());
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let before = verdict(&path).frames;
            let storage = Folder(folder.path().to_owned());
            let recovered = recover(&storage, name, &Leftovers::default(), false).unwrap();
            let torn = name.side_file(SideFile::Cut);
            let set_aside = if cut > end { vec![torn.clone()] } else { Vec::new() };
            assert_eq!((recovered.frames, recovered.set_aside), (before, set_aside), "{cut}");
            if cut > end {
                assert!(std::fs::read(folder.path().join(torn)).unwrap() == bytes[end..cut]);
            }
            let after = verdict(&path);
            assert!(after.is_intact() && after.frames == before, "{cut}: {after:?}");
            let reader = SegmentReader::open(&path).unwrap();
            assert!(
                reader
                    .compressed()
                    .is_some_and(|segment| segment.has_small_blocks() && segment.flaw().is_none())
            );
            assert!(std::fs::read(&path).unwrap().starts_with(&bytes[..end]), "{cut}: complete blocks stay");
        }
    }

    // Proves that impossible tables of blocks are rejected. The rejection limits the cost of
    // reading a table.
    #[test]
    fn impossible_tables_are_not_believed() {
        let entry = |raw_offset, offset| BlockEntry { raw_offset, offset, raw_bytes: 100, bytes: 50 };
        let tables = [
            (vec![entry(0, 10), entry(100, 60)], true),
            (vec![entry(0, 10), entry(100, 59)], false),
            (vec![entry(0, 10), entry(100, 10)], false),
            (vec![entry(0, 60), entry(100, 10)], false),
            (vec![entry(0, 10), entry(99, 60)], false),
            (vec![entry(0, 10), entry(101, 60)], false),
            (vec![entry(1, 10), entry(101, 60)], false),
            (vec![entry(0, 10), entry(100, 61)], false),
            (vec![entry(0, 10), entry(100, u64::MAX)], false),
            (Vec::new(), false),
        ];
        for (number, (table, expected)) in tables.iter().enumerate() {
            assert_eq!(is_valid_table(table, 110), *expected, "{number}");
        }
    }

    // Proves that the frame of a block is read only once, and that the cache never returns another
    // block or other bytes.
    #[test]
    fn a_cached_frame_is_that_of_its_block() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(4));
        let reader = SegmentReader::open(&path).unwrap();
        let segment = reader.compressed().unwrap();
        let blocks = segment.blocks();
        let mut cached = BlockFrame::default();
        for number in [0, 1, 1, 2, 1, 0] {
            let expected = segment.payload(&blocks[number], &mut Vec::new()).unwrap().unwrap().to_vec();
            assert!(segment.cached_payload(&blocks[number], &mut cached).unwrap() == Ok(expected.as_slice()));
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let damaged = usize::try_from(blocks[1].offset).unwrap() + 30;
        bytes[damaged] ^= 1;
        segment.cached_payload(&blocks[1], &mut cached).unwrap().unwrap();
        std::fs::write(&path, bytes).unwrap();
        assert!(segment.cached_payload(&blocks[1], &mut cached).unwrap().is_ok(), "not read again");
        cached.buffer_for_read();
        assert!(segment.cached_payload(&blocks[1], &mut cached).unwrap().is_err());
        assert!(
            segment.cached_payload(&blocks[1], &mut cached).unwrap().is_err(),
            "no damaged frame is cached"
        );
        segment.cached_payload(&blocks[0], &mut cached).unwrap().unwrap();
    }

    // Proves that a block stays the same if the file grows between the seek to the block and the
    // read of the block.
    #[test]
    fn growth_does_not_change_blocks_read() {
        let folder = tempfile::tempdir().unwrap();
        let (raw, path) = both(folder.path(), &samples(4));
        let bytes = std::fs::read(&path).unwrap();
        let blocks = SegmentReader::open(&path).unwrap().compressed().unwrap().blocks();
        let cut = usize::try_from(blocks[3].offset).unwrap();
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let reader = SegmentReader::open(&path).unwrap();
        let segment = reader.compressed().unwrap();
        segment.next_from(blocks[1].raw_offset, i64::MAX).unwrap();
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, &bytes[cut..usize::try_from(blocks[4].end()).unwrap()]).unwrap();
        assert_eq!(segment.length().unwrap(), blocks[4].raw_end(), "it has grown");
        let start = usize::try_from(blocks[1].raw_offset).unwrap();
        let mut read = vec![0; blocks[1].raw_bytes as usize];
        assert_eq!(segment.read_at(&mut read, blocks[1].raw_offset).unwrap(), read.len());
        assert!(read == raw[start..start + read.len()]);
    }

    // Proves that two errors name their reason: blocks within blocks, and a damaged first block in
    // a file whose own header and footer are damaged. Proves that the samples are still read if
    // only the first block is damaged.
    #[test]
    fn undecodable_blocks_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(3));
        let mut bytes = std::fs::read(&path).unwrap();
        let reader = SegmentReader::open(&path).unwrap();
        let (footer, blocks) = (reader.footer().unwrap().clone(), reader.compressed().unwrap().blocks());
        let intact = verdict(&path);
        let mut encoder = BlockEncoder::new(SourceCompression::default());
        let mut writer = CompressedWriter::begin(Vec::new(), &footer, BlockFeatures::ROWS).unwrap();
        if let Ok(payload) = encoder.encode(&bytes, 0, COMPRESSED_CHECKSUM).map(<[u8]>::to_vec) {
            writer.append_block(&payload, encoder.features(), &[]).unwrap();
            let (nested, _) = writer.finish().unwrap();
            std::fs::write(&path, nested).unwrap();
            let error = SegmentReader::open(&path).unwrap_err().to_string();
            assert!(error.ends_with("invalid header: blocks within blocks"), "{error}");
        }
        bytes[usize::try_from(blocks[0].offset).unwrap() + 30] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let reader = SegmentReader::open(&path).unwrap();
        let header = reader.header();
        assert!(
            header.sources.iter().all(SourceInfo::is_opaque) && header.checksum == footer.header.checksum
        );
        assert_eq!(verdict(&path).frames, intact.frames, "no sample is lost");
        let end = bytes.len();
        for at in [40, end - 9] {
            bytes[at] ^= 1;
        }
        std::fs::write(&path, bytes).unwrap();
        let error = SegmentReader::open(&path).unwrap_err().to_string();
        assert!(error.contains("neither the first block nor the header"), "{error}");
    }

    // Proves that schemas are stored only once. The raw footer repeats the schemas, but the
    // repetition takes no space in a compressed file, and decompression restores it.
    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "the highest byte")]
    fn schemas_are_stored_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), &samples(2));
        let mut raw = std::fs::read(&path).unwrap();
        let mut reader = SegmentReader::open(&path).unwrap();
        let Some(Advance::Frame(first)) = reader.advance().unwrap() else { panic!("no header") };
        let mut footer = reader.footer().unwrap().clone();
        let mut state = 1_u64;
        footer.header.sources[0].schema = (0..20_000)
            .map(|_| {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        let header = footer.header.encode();
        let kind = footer.header.checksum;
        let mut whole = Vec::new();
        kind.frame_and_write(&mut whole, &header).unwrap();
        let first_block = whole.clone();
        let content = first.bytes..usize::try_from(footer.bytes).unwrap();
        whole.extend(raw.drain(..content.end).skip(content.start));
        let (samples_end, header_end) = (whole.len(), first_block.len());
        kind.frame_and_write(&mut whole, &footer.encode()).unwrap();
        let mut encoder = BlockEncoder::new(SourceCompression::default());
        let mut last = Vec::new();
        let (frames, from) = (&whole[samples_end..], samples_end as u64);
        encoder.append_last(frames, from, kind, &first_block, &mut last).unwrap();
        assert!(frames.len() > 20_000 && last.len() < 2_500, "{} became {}", frames.len(), last.len());
        let mut decoder = BlockDecoder::default();
        let error = decoder.open(&last, &ColumnSelection::ALL).unwrap_err().to_string();
        assert!(error.contains("refers to the first block, which cannot be read"), "{error}");
        decoder.set_first_block(whole[..header_end].to_vec());
        let block = decoder.open(&last, &ColumnSelection::ALL).unwrap();
        let mut back = vec![0; frames.len()];
        block.copy(0, &mut back);
        assert!(back == frames);
    }

    // Proves that a wrong bound of a column is a flaw of its block. Method: in a file with correct
    // checksums, the directory of a block states a range of a column that is longer by one.
    #[test]
    fn wrong_bounds_are_flaws() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), &[Act::Samples { source: 1, count: 300, body: 40 }]);
        let raw = std::fs::read(&path).unwrap();
        let ways = SourceCompression {
            general: CompressionOptions { layout: Layout::Columnar, codec: Codec::None },
            sources: Vec::new(),
        };
        let mut reader = SegmentReader::open(&path).unwrap();
        let footer = reader.footer().unwrap().clone();
        let Some(Advance::Frame(first)) = reader.advance().unwrap() else { panic!("no header") };
        let content = first.bytes..usize::try_from(footer.bytes).unwrap();
        let compressed_with = |change: u8| {
            let mut encoder = BlockEncoder::new(ways.clone());
            let mut writer = CompressedWriter::begin(Vec::new(), &footer, ways.features()).unwrap();
            for range in [0..content.start, content.clone(), content.end..raw.len()] {
                let from = range.start as u64;
                let mut payload = encoder.encode(&raw[range], from, footer.header.checksum).unwrap().to_vec();
                if from == content.start as u64 {
                    // The values of the two columns, mono_ns and seq, are from 9 to 308. The
                    // directory ends with the difference between the highest and the first value of
                    // each column, which is 299.
                    let ends = [0xAB, 0x02, 0xAB, 0x02];
                    let at = payload.windows(4).position(|bytes| bytes == ends).unwrap();
                    payload[at] += change;
                }
                writer.append_block(&payload, encoder.features(), encoder.sizes()).unwrap();
            }
            std::fs::write(&path, writer.finish().unwrap().0).unwrap();
            verdict(&path)
        };
        assert!(compressed_with(0).is_intact());
        let report = compressed_with(1);
        let [flaw] = report.flaws.as_slice() else { panic!("{report:?}") };
        assert_eq!((flaw.offset, flaw.length), (content.start as u64, content.len() as u64));
        assert!(
            flaw.what.starts_with("wrong bounds: the column of bytes 24 to 31 of samples of source 1"),
            "{flaw:?}"
        );
        assert_eq!(report.frames, 300);
    }
}
