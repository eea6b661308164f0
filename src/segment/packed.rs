//! A packed segment as the bytes it was made of (docs/FORMAT.md, section 11): a file of raw offsets, unpacked a block at a time.
//!
//! Whoever reads segments reads this one as any other. A block that is damaged reads as zeros, and is told apart by [`Packed::damage_at`].

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::fields::Choose;
use super::footer::BlockEntry;
use super::header::PACKED_CHECKSUM;
use super::opening::Ends;
use super::packed_search::{entry_of, find_blocks};
use super::reader::Damage;
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
    blocks: Vec<BlockEntry>, // one behind the other from raw offset 0 on; those that were not found have no bytes
    sizes: Vec<SourceSize>,
    flaw: Option<&'static str>,
    unpacking: Mutex<Unpacking>,
}

/// Who unpacks, and what is unpacked.
struct Unpacking {
    decoder: Decoder,
    choose: Option<Arc<Choose>>, // none: all is wanted
    frame: Vec<u8>,
    open: Vec<(usize, Block)>, // the latest first, at most OPEN_MAX
    damaged: BTreeMap<usize, String>,
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
        let blocks = match table {
            Some(footer) => footer.blocks.clone(),
            None => with_holes(find_blocks(&mut Window::over(Arc::clone(&file)).aside())?),
        };
        Ok(Self {
            file,
            blocks,
            sizes: footer.map(|footer| footer.sizes.clone()).unwrap_or_default(),
            flaw: match (&ends.front, table) {
                (_, None) => Some("the footer of the packed file is damaged: its blocks were searched for"),
                (None, _) => Some("the header of the packed file is damaged: its footer has a copy"),
                _ => None,
            },
            unpacking: Mutex::new(Unpacking {
                decoder: Decoder::default(),
                choose: None,
                frame: Vec::new(),
                open: Vec::new(),
                damaged: BTreeMap::new(),
            }),
        })
    }

    /// Length of the segment as it was recorded, in bytes.
    pub fn raw_bytes(&self) -> u64 {
        self.blocks.last().map_or(0, BlockEntry::raw_end)
    }

    /// Length of the file, in bytes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn stored_bytes(&self) -> io::Result<u64> {
        self.file.length()
    }

    /// Its blocks, in the order of their raw offsets. Those that were not found have no bytes.
    pub fn blocks(&self) -> &[BlockEntry] {
        &self.blocks
    }

    /// What became of each source's frames; empty where that is damaged.
    pub fn sizes(&self) -> &[SourceSize] {
        &self.sizes
    }

    /// What is wrong with the file around the blocks.
    pub fn flaw(&self) -> Option<&'static str> {
        self.flaw
    }

    /// From now on only what is wanted is unpacked; the rest of a sample stands as in another one of its source and shape.
    pub(super) fn want(&self, choose: Arc<Choose>) {
        let mut unpacking = self.unpacking.lock().unwrap_or_else(PoisonError::into_inner);
        unpacking.choose = Some(choose);
        unpacking.open.clear();
    }

    /// The hole that a raw offset lies in, if its block is damaged, as far as that was found out by reading it: from there to the block's end.
    pub(super) fn damage_at(&self, raw_offset: u64) -> Option<Damage> {
        let unpacking = self.unpacking.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.block_at(raw_offset)?;
        let entry = self.blocks.get(at)?;
        unpacking.damaged.get(&at)?;
        let what = "a block that cannot be unpacked";
        Some(Damage { offset: raw_offset, length: entry.raw_end() - raw_offset, what })
    }

    /// What is wrong with the block that a raw offset lies in, and where in the file that stands.
    pub(super) fn explain(&self, raw_offset: u64) -> Option<String> {
        let unpacking = self.unpacking.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.block_at(raw_offset)?;
        let entry = self.blocks.get(at)?;
        let what = unpacking.damaged.get(&at)?;
        Some(match entry.bytes {
            0 => format!("a block that is not in the file: {what}"),
            bytes => format!("a block of {bytes} bytes at {} of the packed file: {what}", entry.offset),
        })
    }

    /// What stands from a raw offset on, at which a frame begins, but for samples of before a wall time; as far as the block goes that it lies in. Of
    /// a block that is damaged the reader tells: something else.
    pub(super) fn next_from(&self, raw_offset: u64, wall_ns: i64) -> io::Result<Next<u64>> {
        let other = Ok(Next::Other(raw_offset));
        let Some(at) = self.block_at(raw_offset) else { return other };
        let mut unpacking = self.unpacking.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.unpack(at, &mut unpacking)? {
            return other;
        }
        let (Some(entry), Some((_, block))) = (self.blocks.get(at), unpacking.open.first()) else {
            return other;
        };
        let from = usize::try_from(raw_offset - entry.raw_offset).map_err(io::Error::other)?;
        let raw = |offset: usize| entry.raw_offset + offset as u64;
        Ok(match block.next_from(from, wall_ns) {
            Next::Wanted(offset) => Next::Wanted(raw(offset)),
            Next::Other(offset) => Next::Other(raw(offset)),
            Next::Behind(offset) => Next::Behind(raw(offset)),
        })
    }

    /// Unpacks something else than what a reader is at.
    pub(super) fn with_decoder<T>(&self, unpack: impl FnOnce(&mut Decoder) -> T) -> T {
        unpack(&mut self.unpacking.lock().unwrap_or_else(PoisonError::into_inner).decoder)
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
        frame.clear();
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

    fn block_at(&self, raw_offset: u64) -> Option<usize> {
        let at = self.blocks.partition_point(|entry| entry.raw_end() <= raw_offset);
        (at < self.blocks.len()).then_some(at)
    }

    /// Unpacks a block unless it is unpacked already, as the first of those that are open. Says whether it can be read.
    fn unpack(&self, at: usize, unpacking: &mut Unpacking) -> io::Result<bool> {
        if let Some(open) = unpacking.open.iter().position(|(open, _)| *open == at) {
            if let Some(front) = unpacking.open.get_mut(..=open) {
                front.rotate_right(1);
            }
            return Ok(true);
        }
        if unpacking.damaged.contains_key(&at) {
            return Ok(false);
        }
        let Some(entry) = self.blocks.get(at) else { return Ok(false) };
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
        let opened = match self.payload(entry, &mut unpacking.frame)? {
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
        let Some(at) = self.block_at(offset) else { return Ok(0) };
        let Some(entry) = self.blocks.get(at) else { return Ok(0) };
        let from = usize::try_from(offset - entry.raw_offset).map_err(io::Error::other)?;
        let count = buffer.len().min(entry.raw_bytes as usize - from);
        let to = buffer.get_mut(..count).unwrap_or_default();
        let mut unpacking = self.unpacking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.unpack(at, &mut unpacking)?
            && let Some((_, block)) = unpacking.open.first()
        {
            block.copy(from, to);
        } else {
            to.fill(0);
        }
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.raw_bytes())
    }
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
            blocks.push(BlockEntry { raw_offset: raw_end, offset: 0, raw_bytes: missing, bytes: 0 });
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
    use crate::os::storage::DataDirectory;

    /// The file of a segment, packed in blocks of about `block_bytes`.
    pub(crate) fn packed(path: &Path, block_bytes: usize) -> Vec<u8> {
        let raw = std::fs::read(path).unwrap();
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
        #![proptest_config(ProptestConfig::with_cases(64))]
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
        let blocks = SegmentReader::open(&path).unwrap().packed().unwrap().blocks().to_vec();
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

    // Goal: a packed file whose own header or footer is damaged loses nothing, and says so. Method: a byte of each inverted; the end cut off.
    #[test]
    fn damage_around_the_blocks_costs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(12));
        let intact = verdict(&path);
        let bytes = std::fs::read(&path).unwrap();
        let blocks = SegmentReader::open(&path).unwrap().packed().unwrap().blocks().to_vec();
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

    // Goal: a packed file that has lost its end is recovered into a new raw one with all that is left, and is itself kept as it was. Method: cut at each end of a
    // block, in the middle of one, and behind the last; recovered, verified.
    #[test]
    fn a_cut_packed_file_is_recovered() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(4));
        let name = SegmentName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let blocks = SegmentReader::open(&path).unwrap().packed().unwrap().blocks().to_vec();
        let ends = blocks.iter().map(|block| usize::try_from(block.offset).unwrap() + block.bytes as usize);
        for cut in ends.flat_map(|end| [end, end + 20]).filter(|cut| *cut < bytes.len()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name.to_string());
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let left = verdict(&path).frames;
            let storage = DataDirectory::open(folder.path()).unwrap();
            let recovered = recover(&storage, name, &Leftovers::default(), false).unwrap();
            assert_eq!(
                (recovered.frames, recovered.set_aside),
                (left, vec![name.aside(Aside::Damaged)]),
                "{cut}"
            );
            assert!(std::fs::read(folder.path().join(name.aside(Aside::Damaged))).unwrap() == bytes[..cut]);
            let mended = verdict(&path);
            assert!(mended.is_intact() && mended.frames == left, "{cut}: {mended:?}");
            assert!(SegmentReader::open(&path).unwrap().packed().is_none());
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

    // Goal: what cannot be read says why. Method: the first and the last block damaged; blocks within blocks.
    #[test]
    fn what_cannot_be_unpacked_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = both(folder.path(), &samples(3));
        let mut bytes = std::fs::read(&path).unwrap();
        let reader = SegmentReader::open(&path).unwrap();
        let (footer, blocks) = (reader.footer().unwrap().clone(), reader.packed().unwrap().blocks().to_vec());
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
