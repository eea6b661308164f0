//! Packs frames while they are recorded: each write of whole frames becomes one block, written at once.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::appender::{into_io, write_all};
use super::block_table::BlockTable;
use super::footer::{BlockEntry, Footer, ended};
use super::header::{Header, PACKED_CHECKSUM, SourceInfo};
use super::name::SegmentName;
use super::sealed::SealedSegment;
use crate::block::{Encoder, Ways};
use crate::os::storage::StorageFile;
use crate::stream::{ChecksumKind, Framer, SliceFramer};

/// Blocks of a segment from which on the next one should begin: a footer of 24 MiB.
const BLOCKS_MAX: usize = 1 << 20;
/// What a frame of blocks takes beside its frames at most, where nothing gets shorter: groups, parts, the table's entry.
const BLOCK_EXTRA_BYTES: u64 = 512;
/// What one write usually has.
const WRITE_BYTES: usize = 256 << 10;

/// What packs the segments of a run, one after the other. A copy is the same one.
#[derive(Clone)]
pub struct Packing(Arc<Mutex<Encoding>>);

struct Encoding {
    encoder: Encoder,
    frames: Vec<u8>, // of the block in the making, in one piece
}

impl fmt::Debug for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packing").finish_non_exhaustive()
    }
}

impl Packing {
    /// One that packs sources of this header, and those that come later, in these ways.
    pub fn new(ways: Ways, header: &Header) -> Self {
        let encoding = Encoding { encoder: Encoder::new(ways), frames: Vec::with_capacity(WRITE_BYTES) };
        let packing = Self(Arc::new(Mutex::new(encoding)));
        header.sources.iter().for_each(|source| packing.describe(source));
        packing
    }

    /// One that packs all sources in the usual way.
    pub fn usual(header: &Header) -> Self {
        Self::new(Ways::default(), header)
    }

    fn describe(&self, source: &SourceInfo) {
        if !source.is_opaque() {
            self.lock().encoder.describe(source.id, &source.root, &source.schema);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Encoding> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The packed file of one segment in the making.
#[derive(Debug)]
pub(super) struct Packer {
    packing: Packing,
    front: Vec<u8>, // the header's frame, until it is written with the first block
    table: BlockTable,
}

impl Packer {
    /// Of a new file.
    ///
    /// # Errors
    /// The header is too long for a frame.
    pub(super) fn begin(packing: Packing, header: &Header) -> io::Result<Self> {
        header.sources.iter().for_each(|source| packing.describe(source));
        let mut front = Vec::new();
        let payload = header.without_schemas().encode_packed();
        PACKED_CHECKSUM.frame_and_write(&mut front, &payload).map_err(into_io)?;
        Ok(Self { packing, front, table: BlockTable::recording() })
    }

    /// Of a file that holds the blocks of this table already.
    pub(super) fn behind(table: BlockTable, header: &Header) -> Self {
        Self { packing: Packing::usual(header), front: Vec::new(), table }
    }

    /// Learns of a source that is not in the header.
    pub(super) fn describe(&self, source: &SourceInfo) {
        self.packing.describe(source);
    }

    /// Length of the file so far, in bytes.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Whether it has as many blocks as it should have at most.
    pub(super) fn is_crowded(&self) -> bool {
        self.table.len() >= BLOCKS_MAX
    }

    /// What has to be kept free for the end of the file, where `raw_bytes` are for that of the segment as it is recorded: a block of that, and a
    /// footer that says the same once more and where the blocks are.
    pub(super) fn keep_bytes(&self, raw_bytes: u64) -> u64 {
        3 * raw_bytes + BLOCK_EXTRA_BYTES + (self.table.len() * size_of::<BlockEntry>()) as u64
    }

    /// Packs whole frames into a block and has it written: `write` is told where the file will end. If that fails, nothing has changed here.
    ///
    /// # Errors
    /// As [`Encoder::encode`], and what `write` says.
    pub(super) fn append(
        &mut self,
        pieces: &[IoSlice<'_>],
        checksum: ChecksumKind,
        write: impl FnOnce(u64, &mut [IoSlice<'_>]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut encoding = self.packing.lock();
        let raw_bytes = encoding.gather(pieces);
        let Encoding { encoder, frames } = &mut *encoding;
        let payload = encoder.encode(frames, self.table.raw_end(), checksum)?;
        let head = PACKED_CHECKSUM.header(payload).map_err(into_io)?;
        let (front, bytes) = (self.front.len() as u64, (head.as_bytes().len() + payload.len()) as u64);
        let end = self.table.bytes() + front + bytes;
        write(end, &mut [&self.front, head.as_bytes(), payload].map(IoSlice::new))?;
        self.table.pass(front);
        self.front = Vec::new();
        self.table.add(raw_bytes, bytes, encoder.sizes())
    }

    /// The same with the last frames, those that seal the segment, whose footer is `raw`; the file's own footer and trailer behind them. Returns the
    /// length of the file.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub(super) fn append_last(
        &mut self,
        pieces: &[IoSlice<'_>],
        raw: &Footer,
        write: impl FnOnce(&mut [IoSlice<'_>]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut encoding = self.packing.lock();
        let raw_bytes = encoding.gather(pieces);
        let Encoding { encoder, frames } = &mut *encoding;
        // Room for the head, the block behind it, and then what ends the file.
        let mut end = vec![0; PACKED_CHECKSUM.frame_bytes(0)];
        encoder.append(frames, self.table.raw_end(), raw.header.checksum, &mut end)?;
        PACKED_CHECKSUM.seal(&mut end).map_err(into_io)?;
        // Of a copy: where this finds no space it is tried again with a shorter footer.
        let mut table = self.table.clone();
        table.add(raw_bytes, end.len() as u64, encoder.sizes())?;
        let bytes = append_end(&mut table, raw, &mut end)?;
        write(&mut [IoSlice::new(&end)])?;
        Ok(bytes)
    }
}

impl Encoding {
    /// Brings frames together. Returns how many bytes they are.
    fn gather(&mut self, pieces: &[IoSlice<'_>]) -> u64 {
        self.frames.clear();
        for piece in pieces {
            self.frames.extend_from_slice(piece);
        }
        self.frames.len() as u64
    }
}

/// Appends footer and trailer of a packed file, whole frames, and returns the length of the file with them. `raw` is the footer of what is packed.
fn append_end(table: &mut BlockTable, raw: &Footer, out: &mut Vec<u8>) -> io::Result<u64> {
    let footer = table.footer(raw.header.without_schemas(), raw);
    let (payload, trailer) = ended(&footer)?;
    let bytes = PACKED_CHECKSUM.frame_bytes(payload.len()) + PACKED_CHECKSUM.frame_bytes(trailer.len());
    out.reserve(bytes);
    for payload in [payload, trailer] {
        PACKED_CHECKSUM.frame_and_write(out, &payload).map_err(into_io)?;
    }
    Ok(footer.bytes + bytes as u64)
}

/// Writes footer and trailer of a packed file behind the last block of its table, which has the footer `raw`.
///
/// # Errors
/// What the storage says.
pub(super) fn end_behind(
    name: SegmentName,
    file: Arc<dyn StorageFile>,
    mut table: BlockTable,
    raw: &Footer,
) -> io::Result<SealedSegment> {
    let mut end = Vec::new();
    let bytes = append_end(&mut table, raw, &mut end)?;
    write_all(&file, &mut [IoSlice::new(&end)])?;
    Ok(SealedSegment::new(name, file, bytes))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::header::tests::example;
    use super::super::verification::tests::{Act, acts, written, written_as};
    use super::super::{
        Advance, Form, FrameKind, Leftovers, SegmentName, SegmentReader, Verdict, Verification, recover,
    };

    use super::*;
    use crate::effort;
    use crate::os::storage::DataDirectory;

    fn verdict(path: &Path) -> Verdict {
        let mut verification = Verification::default();
        verification.segment(&mut SegmentReader::open(path).unwrap(), false, &mut |_| {}).unwrap();
        verification.finish()
    }

    /// Reads what has come, as it was written.
    fn read_on(reader: &mut SegmentReader, seen: &mut Vec<u8>) {
        while let Some(advance) = reader.advance().unwrap() {
            let Advance::Frame(at) = advance else { panic!("{advance:?}") };
            reader.copy_frame(at, seen);
        }
        assert_eq!(reader.tail(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::of(12, 48)))]
        // Goal: what is packed while it is written reads as what is written as it is, byte for byte, now and while it grows. Method: segments of random
        // samples, gaps, losses and notes; a reader that follows from the header on; the whole, and the verdict.
        #[test]
        fn packing_while_writing_changes_nothing(acts in acts()) {
            let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
            let plain = written(folders[0].path(), &acts);
            let raw = std::fs::read(&plain).unwrap();
            let (mut follower, mut seen) = (None, Vec::new());
            let form = Form { packing: Some(Packing::usual(&example())), ..Form::default() };
            let path = written_as(folders[1].path(), &acts, form, &mut |path| {
                let reader = follower.get_or_insert_with(|| SegmentReader::open(path).unwrap());
                read_on(reader, &mut seen);
            });
            let mut reader = follower.unwrap();
            read_on(&mut reader, &mut seen);
            prop_assert!(seen == raw, "{} bytes of {}", seen.len(), raw.len());
            let reader = SegmentReader::open(&path).unwrap();
            let packed = reader.packed().unwrap();
            prop_assert_eq!((packed.flaw(), packed.has_small_blocks()), (None, true));
            let mut whole = vec![0; raw.len()];
            reader.unpacked().unwrap().read_all_at(&mut whole, 0).unwrap();
            prop_assert!(whole == raw && packed.raw_bytes() == raw.len() as u64);
            let of_packed = verdict(&path);
            std::fs::copy(&plain, &path).unwrap();
            prop_assert_eq!(of_packed, verdict(&path));
        }
    }

    /// Length of each source's frames, as a reader comes upon them.
    fn raw_bytes(path: &Path) -> BTreeMap<u16, u64> {
        let (mut reader, mut sums) = (SegmentReader::open(path).unwrap(), BTreeMap::new());
        while let Some(advance) = reader.advance().unwrap() {
            let Advance::Frame(at) = advance else { panic!("{advance:?}") };
            let sample = reader.telemetry(at).filter(|_| at.kind == FrameKind::Telemetry);
            if let Some(sample) = sample {
                *sums.entry(sample.source).or_default() += at.bytes as u64;
            }
        }
        sums
    }

    // Goal: a recovery finds out from the blocks alone what became of each source's frames. Method: a segment that was packed while it was written, cut in
    // front of its footer, of its last block, and in the middle; sizes as they were told when it was packed, and those of the frames that are left.
    #[test]
    fn a_recovery_knows_the_sizes_of_sources() {
        let folder = tempfile::tempdir().unwrap();
        let acts: Vec<Act> = (0..8)
            .flat_map(|at| {
                [Act::Samples { source: at % 2, count: 30, body: 50 + usize::from(at) }, Act::Index]
            })
            .collect();
        let form = Form { packing: Some(Packing::usual(&example())), ..Form::default() };
        let path = written_as(folder.path(), &acts, form, &mut |_| {});
        let name = SegmentName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let reader = SegmentReader::open(&path).unwrap();
        let (blocks, sizes) = (reader.packed().unwrap().blocks(), reader.packed().unwrap().sizes().to_vec());
        assert!(sizes.len() == 2 && raw_bytes(&path).len() == 2);
        let last = blocks.last().unwrap();
        for (cut, is_all) in
            [(last.end(), true), (last.offset, true), (blocks[blocks.len() / 2].end(), false)]
        {
            std::fs::write(&path, &bytes[..usize::try_from(cut).unwrap()]).unwrap();
            let torn = SegmentReader::open(&path).unwrap();
            assert!(torn.packed().unwrap().sizes().is_empty(), "nobody has told");
            let storage = DataDirectory::open(folder.path()).unwrap();
            let recovered = recover(&storage, name, &Leftovers::default(), false).unwrap();
            assert!(recovered.sealed.is_some() && recovered.set_aside.is_empty(), "{recovered:?}");
            let reader = SegmentReader::open(&path).unwrap();
            let found = reader.packed().unwrap().sizes();
            assert!((found == sizes) == is_all, "{cut}: {found:?} {sizes:?}");
            let of_frames = raw_bytes(&path);
            assert!(found.iter().all(|size| of_frames.get(&size.source) == Some(&size.raw_bytes)));
            assert!(found.len() == 2 && found.iter().all(|size| size.stored_bytes > 0));
        }
    }
}
