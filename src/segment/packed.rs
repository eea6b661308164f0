//! A packed segment as the bytes it was made of (docs/FORMAT.md, section 11): a file of raw offsets, unpacked a block at a time.
//!
//! Whoever reads segments reads this one as any other. A block that is damaged reads as zeros, and is told apart by [`Packed::damage_at`]. A file
//! without a footer may grow: blocks that have come behind the last one are found whenever somebody asks for more than there is.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::block_table::add_sizes;
use super::fields::Choose;
use super::footer::BlockEntry;
use super::header::PACKED_CHECKSUM;
use super::opening::Ends;
use super::packed_search::{Behind, block_behind, entry_of, find_blocks, raw_bytes_max};
use super::reader::Damage;
use super::tail::is_empty_behind;
use super::window::Window;
use crate::block::{Block, Choice, Decoder, Next, RAW_BYTES_MAX, SourceSize, Wanted};
use crate::os::storage::ReadAt;
use crate::stream::{KindDeframer, SliceDeframer, Step};

/// Longest frame of a block that is read, in bytes: incompressible frames with their lengths beside them.
pub(super) const BLOCK_FRAME_BYTES_MAX: u64 = 2 * RAW_BYTES_MAX;
/// How a block's frame is identified.
pub(super) const IDENTIFIER: &[u8; 4] = b"FCBK";
/// Blocks that stay unpacked: the one that is read, and one for a look elsewhere.
const OPEN_MAX: usize = 2;

/// The raw bytes of a packed segment.
#[derive(Debug)]
pub struct Packed {
    file: Arc<dyn ReadAt>,
    sizes: Vec<SourceSize>,
    has_front: bool,
    has_table: bool,
    has_small_blocks: bool,
    holds_sealed: OnceLock<bool>, // what is packed has a footer
    unpacking: Mutex<Unpacking>,
}

/// Who unpacks, and what is unpacked.
struct Unpacking {
    blocks: Vec<BlockEntry>, // one behind the other from raw offset 0 on; those that were not found have no bytes
    end: u64,                // of the last one, in the file
    may_grow: bool,
    decoder: Decoder,
    choose: Option<Arc<Choose>>, // none: all is wanted
    frame: BlockFrame,
    open: Vec<(usize, Block)>, // the latest first, at most OPEN_MAX
    damaged: BTreeMap<usize, String>,
}

/// The frame of a block, kept: a seek asks a block what is in it first, and then for the frames.
#[derive(Default)]
struct BlockFrame {
    bytes: Vec<u8>,
    of: Option<BlockEntry>, // whose frame these are, whole; none if nobody knows
}

impl BlockFrame {
    /// Room for something else.
    fn room(&mut self) -> &mut Vec<u8> {
        self.of = None;
        &mut self.bytes
    }

    /// The payload, if it is that of this block.
    fn payload_of(&self, entry: &BlockEntry) -> Option<&[u8]> {
        if self.of.as_ref() == Some(entry) { self.bytes.get(deframer().header_bytes()..) } else { None }
    }
}

impl fmt::Debug for Unpacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open: Vec<usize> = self.open.iter().map(|(at, _)| *at).collect();
        f.debug_struct("Unpacking")
            .field("open", &open)
            .field("damaged", &self.damaged)
            .finish_non_exhaustive()
    }
}

impl Packed {
    /// Of a file whose header announces blocks, or whose footer has them. Without an intact table the blocks are searched for.
    pub(super) fn open(file: Arc<dyn ReadAt>, ends: &Ends) -> io::Result<Self> {
        let file_bytes = file.length()?;
        let footer = ends.footer.as_ref().map(|(footer, _)| footer);
        let table = footer.filter(|footer| is_possible(&footer.blocks, file_bytes));
        let (blocks, end) = if let Some(footer) = table {
            (footer.blocks.clone(), footer.bytes)
        } else {
            let found = find_blocks(&mut Window::over(Arc::clone(&file)).aside())?;
            let end = found.last().map_or(0, BlockEntry::end);
            (with_holes(found), end)
        };
        Ok(Self {
            file,
            sizes: footer.map(|footer| footer.sizes.clone()).unwrap_or_default(),
            has_front: ends.front.is_some(),
            has_table: table.is_some(),
            has_small_blocks: footer.is_some_and(|footer| footer.small_blocks),
            holds_sealed: OnceLock::new(),
            unpacking: Mutex::new(Unpacking {
                blocks,
                end,
                may_grow: table.is_none(),
                decoder: Decoder::default(),
                choose: None,
                frame: BlockFrame::default(),
                open: Vec::new(),
                damaged: BTreeMap::new(),
            }),
        })
    }

    /// Whether what is packed was found to have a footer.
    pub(super) fn holds_sealed(&self, is_sealed: bool) {
        // Said once, when the file is opened.
        let _said = self.holds_sealed.set(is_sealed);
    }

    /// Length of the segment as it was recorded, in bytes, as far as it is known.
    pub fn raw_bytes(&self) -> u64 {
        raw_end(&self.state().blocks)
    }

    /// Length of the file, in bytes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn stored_bytes(&self) -> io::Result<u64> {
        self.file.length()
    }

    /// Its blocks, in the order of their raw offsets. Those that were not found have no bytes.
    pub fn blocks(&self) -> Vec<BlockEntry> {
        self.state().blocks.clone()
    }

    /// What became of each source's frames; empty where nobody knows.
    pub fn sizes(&self) -> &[SourceSize] {
        &self.sizes
    }

    /// What is wrong with the file around the blocks. That it was never sealed is not.
    pub fn flaw(&self) -> Option<&'static str> {
        match (self.has_front, self.has_table) {
            (_, false) if self.holds_sealed.get() == Some(&true) => {
                Some("the footer of the packed file is damaged: its blocks were searched for")
            }
            (false, true) => Some("the header of the packed file is damaged: its footer has a copy"),
            (false, false) => Some("the header of the packed file is damaged: its blocks were searched for"),
            _ => None,
        }
    }

    /// Whether it was packed while it was recorded, in blocks that are smaller than they could be.
    pub fn has_small_blocks(&self) -> bool {
        self.has_small_blocks
    }

    /// Where in the file the block begins that a raw offset lies in; behind the last one, where that ends.
    pub fn stored_offset(&self, raw_offset: u64) -> u64 {
        let state = self.state();
        state.block_at(raw_offset).map_or(state.end, |(_, entry)| entry.offset)
    }

    /// Its blocks up to a raw offset, if the file has no footer and what stands in front of that place is whole: nothing is missing there, and a block ends
    /// there.
    pub(super) fn blocks_up_to(&self, raw_offset: u64) -> Option<Vec<BlockEntry>> {
        let mut blocks = self.blocks();
        blocks.truncate(blocks.partition_point(|entry| entry.raw_end() <= raw_offset));
        let is_whole = is_possible(&blocks, u64::MAX) && raw_end(&blocks) == raw_offset;
        (is_whole && self.has_front && !self.has_table).then_some(blocks)
    }

    /// What stands behind the last block of a file without a footer, at the raw offset where more would be.
    pub(super) fn tail(&self) -> io::Result<Option<Damage>> {
        let (offset, end, may_grow) = {
            let state = self.state();
            (raw_end(&state.blocks), state.end, state.may_grow)
        };
        let length = self.file.length()?.saturating_sub(end);
        if !may_grow || length == 0 || self.holds_sealed.get() == Some(&true) {
            return Ok(None);
        }
        let is_empty = is_empty_behind(&*self.file, end)?;
        let what = if is_empty {
            "empty: zeros, space that was never written"
        } else {
            "a block that is cut off, or still being written"
        };
        Ok(Some(Damage { offset, length, what }))
    }

    fn state(&self) -> MutexGuard<'_, Unpacking> {
        self.unpacking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on only what is wanted is unpacked; the rest of a sample stands as in another one of its source and shape.
    pub(super) fn want(&self, choose: Arc<Choose>) {
        let mut unpacking = self.state();
        unpacking.choose = Some(choose);
        unpacking.open.clear();
    }

    /// The hole that a raw offset lies in, if its block is damaged, as far as that was found out by reading it: from there to the block's end.
    pub(super) fn damage_at(&self, raw_offset: u64) -> Option<Damage> {
        let state = self.state();
        let (at, entry) = state.block_at(raw_offset)?;
        state.damaged.get(&at)?;
        let what = "a block that cannot be unpacked";
        Some(Damage { offset: raw_offset, length: entry.raw_end() - raw_offset, what })
    }

    /// What is wrong with the block that a raw offset lies in, and where in the file that stands.
    pub(super) fn explain(&self, raw_offset: u64) -> Option<String> {
        let state = self.state();
        let (at, entry) = state.block_at(raw_offset)?;
        let what = state.damaged.get(&at)?;
        Some(match entry.bytes {
            0 => format!("a block that is not in the file: {what}"),
            bytes => format!("a block of {bytes} bytes at {} of the packed file: {what}", entry.offset),
        })
    }

    /// What stands from a raw offset on, at which a frame begins, but for samples of before a wall time and Index frames; as far as the block goes that
    /// it lies in. Of a block that is damaged the reader tells: something else.
    pub(super) fn next_from(&self, raw_offset: u64, wall_ns: i64) -> io::Result<Next<u64>> {
        let other = Ok(Next::Other(raw_offset));
        let mut state = self.state();
        let Some((at, entry)) = state.block_at(raw_offset) else { return other };
        let from = usize::try_from(raw_offset - entry.raw_offset).map_err(io::Error::other)?;
        let state = &mut *state;
        let next = if let Some((_, block)) = state.open.iter().find(|(open, _)| *open == at) {
            block.next_from(from, wall_ns)
        } else {
            // Most of what a seek passes it passes whole: of such a block only the stamps are unpacked.
            let Ok(payload) = self.payload_kept(&entry, &mut state.frame)? else { return other };
            let Ok(next) = state.decoder.next_from(payload, from, wall_ns) else { return other };
            next
        };
        let raw = |offset: usize| entry.raw_offset + offset as u64;
        Ok(match next {
            Next::Wanted(offset) => Next::Wanted(raw(offset)),
            Next::Other(offset) => Next::Other(raw(offset)),
            Next::Behind(offset) => Next::Behind(raw(offset)),
        })
    }

    /// Unpacks something else than what a reader is at.
    pub(super) fn with_decoder<T>(&self, unpack: impl FnOnce(&mut Decoder) -> T) -> T {
        unpack(&mut self.state().decoder)
    }

    /// Reads the payload of a block. The inner error says what is wrong with it.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn payload<'a>(
        &self,
        entry: &BlockEntry,
        frame: &'a mut Vec<u8>,
    ) -> io::Result<Result<&'a [u8], &'static str>> {
        if entry.bytes == 0 {
            return Ok(Err("neither the table of blocks nor a search has found it"));
        }
        // Room that was filled before is not cleared: all of it is read into.
        frame.resize(entry.bytes as usize, 0);
        if self.file.read_all_at(frame, entry.offset)? < frame.len() {
            return Ok(Err("it ends beyond the file"));
        }
        Ok(match deframer().deframe(frame) {
            Ok(Step::Frame(found)) if found.bytes().len() == entry.bytes as usize => {
                let found = found.payload();
                match entry_of(found, entry.offset, entry.bytes as usize) {
                    Some(own) if own == *entry => Ok(found),
                    Some(_) => Err("it is another block than the table says"),
                    None => Err("it is no block"),
                }
            }
            Ok(_) => Err("its length is not that of the table"),
            Err(error) if error.is_checksum_mismatch() => Err("its checksum is wrong"),
            Err(_) => Err("its length is impossible"),
        })
    }

    /// As [`payload`](Self::payload), of what was read last without another look at the file.
    fn payload_kept<'a>(
        &self,
        entry: &BlockEntry,
        frame: &'a mut BlockFrame,
    ) -> io::Result<Result<&'a [u8], &'static str>> {
        if frame.payload_of(entry).is_none() {
            if let Err(what) = self.payload(entry, frame.room())? {
                return Ok(Err(what));
            }
            frame.of = Some(*entry);
        }
        // It is: what was read is there.
        Ok(frame.payload_of(entry).ok_or("it is no block"))
    }

    /// What became of each source's frames in these blocks, by their own words; none where one of them cannot be read.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn sizes_of(&self, blocks: &[BlockEntry]) -> io::Result<Option<Vec<SourceSize>>> {
        let (mut sums, mut frame) = (Vec::new(), Vec::new());
        for entry in blocks {
            let Ok(payload) = self.payload(entry, &mut frame)? else { return Ok(None) };
            let Ok(sizes) = self.with_decoder(|decoder| decoder.sizes(payload)) else { return Ok(None) };
            add_sizes(&mut sums, &sizes);
        }
        Ok(Some(sums))
    }

    /// Looks for blocks that have come behind the last one.
    fn grow(&self, state: &mut Unpacking) -> io::Result<()> {
        if !state.may_grow {
            return Ok(());
        }
        let raw_max = raw_bytes_max(&*self.file)?;
        while state.may_grow {
            match block_behind(&*self.file, state.end, state.frame.room())? {
                Behind::Block(entry)
                    if entry.raw_offset == raw_end(&state.blocks) && entry.raw_end() <= raw_max =>
                {
                    state.end += u64::from(entry.bytes);
                    state.blocks.push(entry);
                }
                Behind::Nothing => break,
                // The footer, mostly.
                Behind::Block(_) | Behind::Other => state.may_grow = false,
            }
        }
        Ok(())
    }

    /// Unpacks a block unless it is unpacked already, as the first of those that are open. Says whether it can be read.
    fn unpack(&self, at: usize, entry: BlockEntry, unpacking: &mut Unpacking) -> io::Result<bool> {
        if let Some(open) = unpacking.open.iter().position(|(open, _)| *open == at) {
            if let Some(front) = unpacking.open.get_mut(..=open) {
                front.rotate_right(1);
            }
            return Ok(true);
        }
        if unpacking.damaged.contains_key(&at) {
            return Ok(false);
        }
        let choose = unpacking.choose.clone();
        let choose = move |source: u16, payload: &[u8]| match &choose {
            Some(choose) => choose(source, payload),
            None => Choice::All,
        };
        // Its room for the next one.
        while unpacking.open.len() >= OPEN_MAX
            && let Some((_, block)) = unpacking.open.pop()
        {
            unpacking.decoder.reuse(block);
        }
        let opened = match self.payload_kept(&entry, &mut unpacking.frame)? {
            Ok(payload) => {
                unpacking.decoder.open(payload, &Wanted::these(&choose)).map_err(|fault| fault.to_string())
            }
            Err(what) => Err(what.to_owned()),
        };
        match opened {
            Ok(block) => {
                unpacking.open.insert(0, (at, block));
                Ok(true)
            }
            Err(what) => {
                unpacking.damaged.insert(at, what);
                Ok(false)
            }
        }
    }
}

impl ReadAt for Packed {
    /// As much as one block has; zeros of one that is damaged.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state();
        if state.block_at(offset).is_none() {
            self.grow(&mut state)?;
        }
        let Some((at, entry)) = state.block_at(offset) else { return Ok(0) };
        let from = usize::try_from(offset - entry.raw_offset).map_err(io::Error::other)?;
        let count = buffer.len().min(entry.raw_bytes as usize - from);
        let to = buffer.get_mut(..count).unwrap_or_default();
        if self.unpack(at, entry, &mut state)?
            && let Some((_, block)) = state.open.first()
        {
            block.copy(from, to);
        } else {
            to.fill(0);
        }
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        let mut state = self.state();
        self.grow(&mut state)?;
        Ok(raw_end(&state.blocks))
    }
}

impl Unpacking {
    /// The block that a raw offset lies in, and its place in the table.
    fn block_at(&self, raw_offset: u64) -> Option<(usize, BlockEntry)> {
        let at = self.blocks.partition_point(|entry| entry.raw_end() <= raw_offset);
        self.blocks.get(at).map(|entry| (at, *entry))
    }
}

fn raw_end(blocks: &[BlockEntry]) -> u64 {
    blocks.last().map_or(0, BlockEntry::raw_end)
}

/// Of a packed segment's own frames.
pub(super) fn deframer() -> KindDeframer {
    let limit = usize::try_from(BLOCK_FRAME_BYTES_MAX).unwrap_or(usize::MAX);
    KindDeframer::new(PACKED_CHECKSUM).with_max_frame_len(limit)
}

/// Whether blocks can stand in a file of this length, and leave nothing out.
fn is_possible(blocks: &[BlockEntry], file_bytes: u64) -> bool {
    let (mut raw_end, mut end) = (0, 0);
    !blocks.is_empty()
        && blocks.iter().all(|entry| {
            // Each has bytes of its own: no short file claims to be a long one's work.
            let follows = entry.raw_offset == raw_end && entry.offset >= end;
            (raw_end, end) = (entry.raw_end(), entry.offset.saturating_add(u64::from(entry.bytes)));
            follows && is_long_enough(entry) && end <= file_bytes
        })
}

/// Whether the lengths of a block are among those that one can have.
pub(super) fn is_long_enough(entry: &BlockEntry) -> bool {
    entry.raw_bytes > 0
        && u64::from(entry.raw_bytes) <= RAW_BYTES_MAX
        && entry.bytes > 0
        && u64::from(entry.bytes) <= BLOCK_FRAME_BYTES_MAX
}

/// Blocks that were found, and what is missing between them. Of two that claim the same raw bytes the one that begins earlier in them counts.
fn with_holes(mut found: Vec<BlockEntry>) -> Vec<BlockEntry> {
    found.sort_unstable();
    let mut blocks: Vec<BlockEntry> = Vec::with_capacity(found.len());
    for entry in found {
        let mut raw_end = blocks.last().map_or(0, BlockEntry::raw_end);
        if entry.raw_offset < raw_end {
            continue;
        }
        // A hole as long as none may be is cut in pieces: what is far behind it was made up.
        while raw_end < entry.raw_offset {
            let missing = u32::try_from(entry.raw_offset - raw_end).unwrap_or(u32::MAX);
            let offset = blocks.last().map_or(0, BlockEntry::end);
            blocks.push(BlockEntry { raw_offset: raw_end, offset, raw_bytes: missing, bytes: 0 });
            raw_end += u64::from(missing);
        }
        blocks.push(entry);
    }
    blocks
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;

    use super::super::verification::tests::{Act, acts, written};
    use super::super::{
        Advance, Aside, Leftovers, PackedWriter, SegmentName, SegmentReader, Verdict, Verification, recover,
    };
    use super::*;
    use crate::block::{Encoder, Ways};
    use crate::effort;
    use crate::os::storage::{DataDirectory, Storage as _};

    /// The file of a segment, packed in blocks of about `block_bytes`.
    pub(crate) fn packed(path: &Path, block_bytes: usize) -> Vec<u8> {
        packed_as(path, block_bytes, &std::fs::read(path).unwrap())
    }

    /// The same of other bytes, whose frames stand at the same places.
    pub(crate) fn packed_as(path: &Path, block_bytes: usize, raw: &[u8]) -> Vec<u8> {
        let mut reader = SegmentReader::open(path).unwrap();
        let footer = reader.footer().unwrap().clone();
        let (mut cuts, mut last) = (vec![0], 0);
        while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
            let end = at.offset + at.bytes as u64;
            let is_full = end - last >= block_bytes as u64 && end < footer.bytes;
            if at.offset == 0 || is_full || end == footer.bytes {
                cuts.push(end);
                last = end;
            }
        }
        cuts.push(raw.len() as u64);
        cuts.dedup();
        let mut writer = PackedWriter::begin(Vec::new(), &footer).unwrap();
        let mut encoder = Encoder::new(Ways::default());
        for source in &footer.header.sources {
            encoder.describe(source.id, &source.root, &source.schema);
        }
        for pair in cuts.windows(2) {
            let frames = &raw[usize::try_from(pair[0]).unwrap()..usize::try_from(pair[1]).unwrap()];
            let payload = encoder.encode(frames, pair[0], footer.header.checksum).unwrap();
            writer.block(payload, &[]).unwrap();
        }
        let (bytes, length) = writer.finish().unwrap();
        assert_eq!(bytes.len() as u64, length);
        bytes
    }

    fn verdict(path: &Path) -> Verdict {
        let mut verification = Verification::default();
        verification.segment(&mut SegmentReader::open(path).unwrap(), false, &mut |_| {}).unwrap();
        verification.finish()
    }

    // Goal: a reader reads the file that it has opened, to the end. Method: the compressed file takes the name of the raw one before that
    // is mapped.
    #[test]
    fn a_segment_is_opened_once() {
        let folder = tempfile::tempdir().unwrap();
        let samples = [Act::Samples { source: 0, count: 500, body: 100 }];
        let path = written(folder.path(), &samples);
        let raw_bytes = std::fs::metadata(&path).unwrap().len();
        let expected = verdict(&path);
        let mut reader = SegmentReader::open(&path).unwrap();
        std::fs::write(folder.path().join("compressed"), packed(&path, 4096)).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        DataDirectory::open(folder.path()).unwrap().replace("compressed", name).unwrap();
        reader.map().unwrap();
        let mut verification = Verification::default();
        verification.segment(&mut reader, false, &mut |_| {}).unwrap();
        assert_eq!(verification.finish(), expected);
        assert!(expected.is_intact() && expected.frames == 500);
        assert_eq!(reader.metadata().unwrap().unwrap().len(), raw_bytes);
    }

    /// A segment, and a packed one beside it.
    fn both(folder: &Path, acts: &[Act]) -> (Vec<u8>, PathBuf) {
        let path = written(folder, acts);
        let (raw, bytes) = (std::fs::read(&path).unwrap(), packed(&path, 4096));
        std::fs::write(&path, bytes).unwrap();
        (raw, path)
    }

    fn samples(count: u64) -> Vec<Act> {
        (0..count)
            .flat_map(|at| [Act::Samples { source: (at % 2) as u16, count: 40, body: 200 }, Act::Index])
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::of(16, 64)))]
        // Goal: a packed segment reads as the raw one, wherever and however much is asked for. Method: segments of random samples, gaps, losses
        // and notes; the whole, and random pieces; the verdict of both.
        #[test]
        fn a_packed_segment_reads_as_the_raw_one(
            acts in acts(),
            pieces in prop::collection::vec((any::<prop::sample::Index>(), 0..9000_usize), 1..12),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let (raw, path) = both(folder.path(), &acts);
            let reader = SegmentReader::open(&path).unwrap();
            let packed = reader.packed().unwrap();
            prop_assert_eq!((packed.raw_bytes(), packed.flaw()), (raw.len() as u64, None));
            for (at, bytes) in pieces {
                let from = at.index(raw.len());
                let mut piece = vec![0xAA; bytes.min(raw.len() - from)];
                prop_assert_eq!(packed.read_all_at(&mut piece, from as u64).unwrap(), piece.len());
                prop_assert_eq!(&piece, &raw[from..from + piece.len()]);
            }
            let of_packed = verdict(&path);
            std::fs::write(&path, &raw).unwrap();
            prop_assert_eq!(of_packed, verdict(&path));
        }
    }

    // Goal: damage costs the frames of its own block and no others, wherever it is, and is told once. Method: a byte of each of the file's own frames
    // inverted: headers, blocks, footer, trailer.
    #[test]
    fn a_damaged_block_costs_its_own_frames() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(12));
        let intact = verdict(&path);
        assert!(intact.is_intact() && intact.frames == 480, "{intact:?}");
        let bytes = std::fs::read(&path).unwrap();
        let blocks = SegmentReader::open(&path).unwrap().packed().unwrap().blocks();
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
            assert!(what.contains("of the packed file: its checksum is wrong"), "{what}");
            lost.push(intact.frames - verdict.frames);
        }
        assert_eq!(lost.iter().sum::<u64>(), intact.frames, "together all, each once: {lost:?}");
        assert!(
            lost.iter().all(|lost| *lost <= 40) && lost[0] == 0 && lost[blocks.len() - 1] == 0,
            "{lost:?}"
        );
    }

    // Goal: blocks of payloads that are all equal, which become thousands of times smaller, are found without the table too. Method: such a
    // segment with a damaged end.
    #[test]
    fn very_small_blocks_are_found_without_their_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), &[Act::Samples { source: 0, count: 600, body: 60_000 }]);
        let mut bytes = packed(&path, 16 << 20);
        let raw_bytes = path.metadata().unwrap().len();
        assert!(raw_bytes / bytes.len() as u64 > 4096, "{raw_bytes} became {}", bytes.len());
        let end = bytes.len();
        bytes[end - 10] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(verdict(&path).frames, 600);
    }

    // Goal: a packed file whose own header or footer is damaged loses nothing, and says so. Method: a byte of each inverted; the end cut off.
    #[test]
    fn damage_around_the_blocks_costs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(12));
        let intact = verdict(&path);
        let bytes = std::fs::read(&path).unwrap();
        let blocks = SegmentReader::open(&path).unwrap().packed().unwrap().blocks();
        let end =
            blocks.last().map(|block| usize::try_from(block.offset).unwrap() + block.bytes as usize).unwrap();
        for (at, expected) in [(40, "header"), (end + 40, "footer"), (bytes.len() - 9, "footer")] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            std::fs::write(&path, &damaged).unwrap();
            let verdict = verdict(&path);
            assert_eq!((verdict.frames, verdict.flaws.len()), (intact.frames, 1), "{verdict:?}");
            assert!(
                verdict.flaws[0].what.contains(&format!("the {expected} of the packed file is damaged")),
                "{verdict:?}"
            );
        }
        std::fs::write(&path, &bytes[..end - 5]).unwrap();
        let cut = verdict(&path);
        assert_eq!(cut.frames, intact.frames);
        assert!(cut.flaws.iter().any(|flaw| flaw.what.starts_with("not sealed")), "{cut:?}");
    }

    // Goal: a packed file that has lost its end is completed in place, stays packed, and what was torn is kept. Method: cut at each end of a block, in the
    // middle of one, and behind the last; recovered, verified, compared.
    #[test]
    fn a_cut_packed_file_is_recovered() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(4));
        let name = SegmentName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let blocks = SegmentReader::open(&path).unwrap().packed().unwrap().blocks();
        let ends = blocks.iter().map(|block| usize::try_from(block.end()).unwrap());
        for (end, cut) in
            ends.flat_map(|end| [(end, end), (end, end + 20)]).filter(|(_, cut)| *cut < bytes.len())
        {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name.to_string());
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let left = verdict(&path).frames;
            let storage = DataDirectory::open(folder.path()).unwrap();
            let recovered = recover(&storage, name, &Leftovers::default(), false).unwrap();
            let torn = name.aside(Aside::Cut);
            let set_aside = if cut > end { vec![torn.clone()] } else { Vec::new() };
            assert_eq!((recovered.frames, recovered.set_aside), (left, set_aside), "{cut}");
            if cut > end {
                assert!(std::fs::read(folder.path().join(torn)).unwrap() == bytes[end..cut]);
            }
            let mended = verdict(&path);
            assert!(mended.is_intact() && mended.frames == left, "{cut}: {mended:?}");
            let reader = SegmentReader::open(&path).unwrap();
            assert!(
                reader.packed().is_some_and(|packed| packed.has_small_blocks() && packed.flaw().is_none())
            );
            assert!(std::fs::read(&path).unwrap().starts_with(&bytes[..end]), "{cut}: what was whole stays");
        }
    }

    // Goal: a table of blocks that no file can have is not believed: what it costs to read it has a bound. Method: blocks that overlap in the file or
    // in the segment, leave something out, or lie behind the end.
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
            assert_eq!(is_possible(table, 110), *expected, "{number}");
        }
    }

    // Goal: what a block's frame holds is read once, and is never taken for another block's or for what came into its room later. Method: blocks in turns, those of
    // a file that is damaged meanwhile too.
    #[test]
    fn a_frame_that_is_kept_is_that_of_its_block() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(4));
        let reader = SegmentReader::open(&path).unwrap();
        let packed = reader.packed().unwrap();
        let blocks = packed.blocks();
        let mut kept = BlockFrame::default();
        for number in [0, 1, 1, 2, 1, 0] {
            let expected = packed.payload(&blocks[number], &mut Vec::new()).unwrap().unwrap().to_vec();
            assert!(packed.payload_kept(&blocks[number], &mut kept).unwrap() == Ok(expected.as_slice()));
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let damaged = usize::try_from(blocks[1].offset).unwrap() + 30;
        bytes[damaged] ^= 1;
        packed.payload_kept(&blocks[1], &mut kept).unwrap().unwrap();
        std::fs::write(&path, bytes).unwrap();
        assert!(packed.payload_kept(&blocks[1], &mut kept).unwrap().is_ok(), "it was not read again");
        kept.room();
        assert!(packed.payload_kept(&blocks[1], &mut kept).unwrap().is_err());
        assert!(packed.payload_kept(&blocks[1], &mut kept).unwrap().is_err(), "nothing wrong is kept");
        packed.payload_kept(&blocks[0], &mut kept).unwrap().unwrap();
    }

    // Goal: a block that was asked what is in it is unpacked as itself, although others were found behind the last one meanwhile. Method: a file that grows
    // between the question and the reading.
    #[test]
    fn what_grows_does_not_change_what_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let (raw, path) = both(folder.path(), &samples(4));
        let bytes = std::fs::read(&path).unwrap();
        let blocks = SegmentReader::open(&path).unwrap().packed().unwrap().blocks();
        let cut = usize::try_from(blocks[3].offset).unwrap();
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let reader = SegmentReader::open(&path).unwrap();
        let packed = reader.packed().unwrap();
        packed.next_from(blocks[1].raw_offset, i64::MAX).unwrap();
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, &bytes[cut..usize::try_from(blocks[4].end()).unwrap()]).unwrap();
        assert_eq!(packed.length().unwrap(), blocks[4].raw_end(), "it has grown");
        let start = usize::try_from(blocks[1].raw_offset).unwrap();
        let mut read = vec![0; blocks[1].raw_bytes as usize];
        assert_eq!(packed.read_at(&mut read, blocks[1].raw_offset).unwrap(), read.len());
        assert!(read == raw[start..start + read.len()]);
    }

    // Goal: what cannot be read says why. Method: the first and the last block damaged; blocks within blocks.
    #[test]
    fn what_cannot_be_unpacked_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(3));
        let mut bytes = std::fs::read(&path).unwrap();
        let reader = SegmentReader::open(&path).unwrap();
        let (footer, blocks) = (reader.footer().unwrap().clone(), reader.packed().unwrap().blocks());
        let mut writer = PackedWriter::begin(Vec::new(), &footer).unwrap();
        let whole = Encoder::new(Ways::default()).encode(&bytes, 0, PACKED_CHECKSUM).map(<[u8]>::to_vec);
        if let Ok(payload) = whole {
            writer.block(&payload, &[]).unwrap();
            let (nested, _) = writer.finish().unwrap();
            std::fs::write(&path, nested).unwrap();
            let error = SegmentReader::open(&path).unwrap_err().to_string();
            assert!(
                error.ends_with("its header says that blocks hold blocks, which they never do"),
                "{error}"
            );
        }
        for block in [blocks.first(), blocks.last()].into_iter().flatten() {
            bytes[usize::try_from(block.offset).unwrap() + 30] ^= 1;
        }
        std::fs::write(&path, bytes).unwrap();
        let error = SegmentReader::open(&path).unwrap_err().to_string();
        assert!(error.contains("neither its first block nor its last one can be unpacked"), "{error}");
    }
}
