//! Compresses frames while they are recorded. Each write consists of whole frames, which become one
//! block that is written immediately.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatcap_stream::{ChecksumKind, Framer, SliceFramer};

use super::sealed::SealedSegment;
use crate::block::{BlockEncoder, BlockFeatures, Codec, CompressionOptions, Layout, SourceCompression};
use crate::segment::format::block_table::BlockTable;
use crate::segment::format::footer::{BlockEntry, Footer, footer_and_trailer};
use crate::segment::format::frame_kind::IDENTIFIER_AT;
use crate::segment::format::header::{COMPRESSED_CHECKSUM, SegmentHeader, SourceInfo};
use crate::segment::format::segment_name::SegmentName;
use crate::storage::StorageFile;

/// Number of blocks in a segment after which the recorder should begin the next segment. The footer
/// entries of this number of blocks take 24 MiB.
const BLOCKS_MAX: usize = 1 << 20;
/// Maximum number of bytes that a block adds to frames that cannot be compressed. These bytes are
/// the groups, the parts, and the block's entry in the table of blocks.
const BLOCK_EXTRA_BYTES: u64 = 512;
/// Usual length of the frames in one write, in bytes.
const WRITE_BYTES: usize = 256 << 10;

/// Compresses the segments of a run, one after the other. Clones of a compressor share the same
/// encoder.
#[derive(Clone)]
pub struct LiveCompressor(Arc<Mutex<LiveEncoder>>);

struct LiveEncoder {
    features: BlockFeatures, // features that blocks may have
    encoder: BlockEncoder,
    frames: Vec<u8>, // concatenated frames of the current block
}

impl fmt::Debug for LiveCompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveCompressor").finish_non_exhaustive()
    }
}

impl LiveCompressor {
    /// Creates a compressor with these options. It compresses the sources in this header, and
    /// sources that are added later.
    pub fn new(ways: SourceCompression, header: &SegmentHeader) -> Self {
        let encoding = LiveEncoder {
            features: ways.features(),
            encoder: BlockEncoder::new(ways),
            frames: Vec::with_capacity(WRITE_BYTES),
        };
        let compressor = Self(Arc::new(Mutex::new(encoding)));
        header.sources.iter().for_each(|source| compressor.describe(source));
        compressor
    }

    /// Creates a compressor with the default options for all sources.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_defaults(header: &SegmentHeader) -> Self {
        Self::new(SourceCompression::default(), header)
    }

    fn describe(&self, source: &SourceInfo) {
        if !source.is_opaque() {
            self.lock().encoder.set_schema(source.id, &source.root, &source.schema);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LiveEncoder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compresses one segment, and keeps the state of the compressed file while it is written.
#[derive(Debug)]
pub(in crate::segment) struct SegmentCompressor {
    compressor: LiveCompressor,
    header_frame: Vec<u8>, // the header's frame, until the first block is written
    first_block: Vec<u8>,  // its frames, to which the last block refers; empty if not known
    table: BlockTable,
}

impl SegmentCompressor {
    /// Begins a new file.
    ///
    /// # Errors
    /// Fails if the header is too long for a frame.
    pub(in crate::segment) fn begin(compressor: LiveCompressor, header: &SegmentHeader) -> io::Result<Self> {
        header.sources.iter().for_each(|source| compressor.describe(source));
        let mut header_frame = Vec::new();
        let payload = header.without_schemas().encode_with(compressor.lock().features);
        COMPRESSED_CHECKSUM.frame_and_write(&mut header_frame, &payload).map_err(io::Error::other)?;
        let (first_block, table) = (Vec::new(), BlockTable::while_recording());
        Ok(Self { compressor, header_frame, first_block, table })
    }

    /// Continues a file that contains the blocks of this table.
    pub(in crate::segment) fn resume(table: BlockTable, header: &SegmentHeader) -> Self {
        let (header_frame, first_block) = (Vec::new(), Vec::new());
        let compressor = LiveCompressor::new(options_within(table.features()), header);
        Self { compressor, header_frame, first_block, table }
    }

    /// Adds a source that is not in the header.
    pub(in crate::segment) fn describe(&self, source: &SourceInfo) {
        self.compressor.describe(source);
    }

    /// Returns the length of the file so far, in bytes.
    pub(in crate::segment) fn stored_bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Returns whether the file has reached the limit on the number of blocks.
    pub(in crate::segment) fn has_max_blocks(&self) -> bool {
        self.table.len() >= BLOCKS_MAX
    }

    /// Returns the space to keep free for the end of the file, in bytes. The end consists of a
    /// block with the end of the raw segment, a footer that repeats the raw footer, and the table
    /// of blocks. `raw_bytes` is the space for the end of the raw segment.
    pub(in crate::segment) fn reserve_bytes(&self, raw_bytes: u64) -> u64 {
        3 * raw_bytes + BLOCK_EXTRA_BYTES + (self.table.len() * size_of::<BlockEntry>()) as u64
    }

    /// Compresses whole frames into a block and calls `write` with the block and the new length of
    /// the file. If the write fails, the compressor is unchanged.
    ///
    /// # Errors
    /// Returns the errors of [`Encoder::encode`] and of `write`.
    pub(in crate::segment) fn append(
        &mut self,
        pieces: &[IoSlice<'_>],
        checksum: ChecksumKind,
        write: impl FnOnce(u64, &mut [IoSlice<'_>]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut encoding = self.compressor.lock();
        let raw_bytes = encoding.gather(pieces);
        let LiveEncoder { encoder, frames, .. } = &mut *encoding;
        let from = self.table.raw_end();
        let payload = match encoder.encode(frames, from, checksum) {
            Err(error)
                if error.kind() == io::ErrorKind::InvalidData && blank_damaged_frames(frames, checksum) =>
            {
                encoder.encode(frames, from, checksum)?
            }
            encoded => encoded?,
        };
        let head = COMPRESSED_CHECKSUM.header(payload).map_err(io::Error::other)?;
        let (header_bytes, bytes) =
            (self.header_frame.len() as u64, (head.as_bytes().len() + payload.len()) as u64);
        let end = self.table.bytes() + header_bytes + bytes;
        write(end, &mut [&self.header_frame, head.as_bytes(), payload].map(IoSlice::new))?;
        self.table.add_other_bytes(header_bytes);
        self.header_frame = Vec::new();
        if self.table.len() == 0 {
            self.first_block.extend_from_slice(frames);
        }
        self.table.add(raw_bytes, bytes, encoder.features(), encoder.sizes())
    }

    /// Compresses and writes the last frames, like [`append`](Self::append). These frames seal the
    /// raw segment and include the raw footer. `raw` is the decoded content of this footer. Also
    /// writes the footer and the trailer of the compressed file. Returns the length of the file.
    ///
    /// # Errors
    /// Returns the errors of [`append`](Self::append).
    pub(in crate::segment) fn append_last(
        &mut self,
        pieces: &[IoSlice<'_>],
        raw: &Footer,
        write: impl FnOnce(&mut [IoSlice<'_>]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut encoding = self.compressor.lock();
        let raw_bytes = encoding.gather(pieces);
        let LiveEncoder { encoder, frames, .. } = &mut *encoding;
        // The start of the buffer is space for the frame header of the block. The block and the end
        // of the file follow this space.
        let mut end = vec![0; COMPRESSED_CHECKSUM.frame_bytes(0)];
        let (from, checksum) = (self.table.raw_end(), raw.header.checksum);
        match encoder.append_last(frames, from, checksum, &self.first_block, &mut end) {
            Err(error)
                if error.kind() == io::ErrorKind::InvalidData && blank_damaged_frames(frames, checksum) =>
            {
                encoder.append_last(frames, from, checksum, &self.first_block, &mut end)?;
            }
            encoded => encoded?,
        }
        COMPRESSED_CHECKSUM.frame_in_place(&mut end).map_err(io::Error::other)?;
        // The table is copied, because the caller calls this function again with a shorter footer
        // if the disk is full.
        let mut table = self.table.clone();
        table.add(raw_bytes, end.len() as u64, encoder.features(), encoder.sizes())?;
        let bytes = append_end(&mut table, raw, &mut end)?;
        write(&mut [IoSlice::new(&end)])?;
        Ok(bytes)
    }
}

impl LiveEncoder {
    /// Concatenates frames. Returns the total length of the frames, in bytes.
    fn gather(&mut self, pieces: &[IoSlice<'_>]) -> u64 {
        self.frames.clear();
        for piece in pieces {
            self.frames.extend_from_slice(piece);
        }
        self.frames.len() as u64
    }
}

/// Returns options for a file whose header declares these features. If these features are
/// sufficient for the default options, returns the default options. Otherwise returns options for
/// compression by rows.
fn options_within(features: BlockFeatures) -> SourceCompression {
    let default = SourceCompression::default();
    if features.has(default.features()) {
        return default;
    }
    let rows = CompressionOptions { layout: Layout::Row, codec: Codec::Zstd(1) };
    SourceCompression { general: rows, sources: Vec::new() }
}

/// Sets the identifier of each frame with a wrong checksum to zeros. The checksum is wrong because
/// the memory of the frame has changed since the frame was made. A block does not store checksums,
/// so without this function readers would accept the frame as intact. Without an identifier,
/// readers report the frame as damage of the same length (docs/FORMAT.md, section 8), and the other
/// frames of the write stay intact. Returns whether a frame had a wrong checksum.
#[cold]
fn blank_damaged_frames(frames: &mut [u8], checksum: ChecksumKind) -> bool {
    let (mut rest, mut found) = (frames, false);
    while let Some(length) = rest.first_chunk().map(|length| u32::from_le_bytes(*length) as usize) {
        let Some((frame, after)) = rest.split_at_mut_checked(checksum.frame_bytes(length)) else { break };
        let (header, payload) = frame.split_at_mut(checksum.frame_bytes(0));
        if checksum.header(payload).is_ok_and(|right| right.as_bytes() != header) {
            found = true;
            payload.iter_mut().skip(IDENTIFIER_AT).take(4).for_each(|byte| *byte = 0);
            // This cannot fail, because `frame` begins with space for the header.
            let _framed = checksum.frame_in_place(frame);
        }
        rest = after;
    }
    found
}

/// Appends two frames to `out`: the footer and the trailer of a compressed file. Returns the length
/// of the file including these frames. `raw` is the footer of the raw segment.
fn append_end(table: &mut BlockTable, raw: &Footer, out: &mut Vec<u8>) -> io::Result<u64> {
    let footer = table.footer(raw.header.without_schemas(), raw);
    let (payload, trailer) = footer_and_trailer(&footer)?;
    let bytes =
        COMPRESSED_CHECKSUM.frame_bytes(payload.len()) + COMPRESSED_CHECKSUM.frame_bytes(trailer.len());
    out.reserve(bytes);
    for payload in [payload, trailer] {
        COMPRESSED_CHECKSUM.frame_and_write(out, &payload).map_err(io::Error::other)?;
    }
    Ok(footer.bytes + bytes as u64)
}

/// Writes the footer and the trailer of a compressed file after the last block of its table. `raw`
/// is the footer of the raw segment.
///
/// # Errors
/// Returns any error of the storage.
pub(in crate::segment) fn seal_after_blocks(
    name: SegmentName,
    file: Arc<dyn StorageFile>,
    mut table: BlockTable,
    raw: &Footer,
) -> io::Result<SealedSegment> {
    let mut end = Vec::new();
    let bytes = append_end(&mut table, raw, &mut end)?;
    file.append_all(&mut [IoSlice::new(&end)])?;
    Ok(SealedSegment::new(name, file, bytes))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use proptest::prelude::*;

    use crate::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
    use crate::segment::recover::segment_recovery::recover;
    use crate::segment::verify::verification::tests::{Act, acts, written, written_as};
    use crate::segment::{
        Advance, Damage, FrameKind, Frames, Leftovers, SampleSpan, SealState, SegmentName, SegmentOptions,
        SegmentReader, SegmentWriter, Verification, VerificationReport,
    };
    use crate::testing::example;

    use super::*;
    use crate::storage::Storage as _;
    use crate::testing::Folder;
    use crate::testing::effort;
    use crate::testing::simulated::SimulatedStorage;

    fn verdict(path: &Path) -> VerificationReport {
        let mut verification = Verification::default();
        verification.verify(&mut SegmentReader::open(path).unwrap(), false, &mut |_| {}).unwrap();
        verification.finish()
    }

    /// Reads the new frames, and appends the bytes that were written for these frames to `seen`.
    fn read_on(reader: &mut SegmentReader, seen: &mut Vec<u8>) {
        while let Some(advance) = reader.advance().unwrap() {
            let Advance::Frame(at) = advance else { panic!("{advance:?}") };
            reader.copy_frame(at, seen);
        }
        assert_eq!(reader.tail(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::cases(12, 48)))]
        // Proves that a segment that is compressed while it is written has the same raw bytes as an
        // uncompressed segment, even while it grows. Method: write random segments, and let a
        // reader follow each segment from its header on.
        #[test]
        fn compressing_while_writing_changes_nothing(acts in acts()) {
            let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
            let plain = written(folders[0].path(), &acts);
            let raw = std::fs::read(&plain).unwrap();
            let (mut follower, mut seen) = (None, Vec::new());
            let options = SegmentOptions { compressor: Some(LiveCompressor::with_defaults(&example())), ..SegmentOptions::default() };
            let path = written_as(folders[1].path(), &acts, options, &mut |path| {
                let reader = follower.get_or_insert_with(|| SegmentReader::open(path).unwrap());
                read_on(reader, &mut seen);
            });
            let mut reader = follower.unwrap();
            read_on(&mut reader, &mut seen);
            prop_assert!(seen == raw, "{} bytes of {}", seen.len(), raw.len());
            let reader = SegmentReader::open(&path).unwrap();
            let segment = reader.compressed().unwrap();
            prop_assert_eq!((segment.flaw(), segment.has_small_blocks()), (None, true));
            let mut whole = vec![0; raw.len()];
            reader.decompressed().unwrap().read_all_at(&mut whole, 0).unwrap();
            prop_assert!(whole == raw && segment.raw_bytes() == raw.len() as u64);
            let of_compressed = verdict(&path);
            std::fs::copy(&plain, &path).unwrap();
            prop_assert_eq!(of_compressed, verdict(&path));
        }
    }

    /// Returns the total length of each source's frames.
    fn raw_bytes(path: &Path) -> BTreeMap<u16, u64> {
        let (mut reader, mut sums) = (SegmentReader::open(path).unwrap(), BTreeMap::new());
        while let Some(advance) = reader.advance().unwrap() {
            let Advance::Frame(at) = advance else { panic!("{advance:?}") };
            let sample = reader.sample(at).filter(|_| at.kind == FrameKind::Telemetry);
            if let Some(sample) = sample {
                *sums.entry(sample.source).or_default() += at.bytes as u64;
            }
        }
        sums
    }

    /// Returns the frame of a sample whose body is noise.
    fn frame_of(source: u16, seq: u64) -> Vec<u8> {
        let body: Vec<u8> =
            (0..12).flat_map(|at| (seq + at).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect();
        let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
        let (wall_ns, incomplete) = (0, Incomplete::NONE);
        let stamp = Stamp { mono_ns: seq, wall_ns, seq, incomplete, duration_ns: 1 };
        Envelope::new(source).write(&mut payload, &stamp, &body);
        let mut frame = Vec::new();
        example().checksum.frame_and_write(&mut frame, &payload).unwrap();
        frame
    }

    fn name() -> SegmentName {
        SegmentName { number: 7, created_s: 0, run_id: 5, state: SealState::Active }
    }

    /// Writes a sealed segment of 20 samples in one block with this layout. `damage` changes the
    /// frames after their checksums were computed.
    fn sealed(storage: &SimulatedStorage, layout: Layout, damage: impl Fn(u64, &mut Vec<u8>)) -> Vec<u8> {
        let general = CompressionOptions { layout, codec: Codec::Zstd(1) };
        let ways = SourceCompression { general, sources: Vec::new() };
        let compressor = Some(LiveCompressor::new(ways, &example()));
        let options = SegmentOptions { compressor, copies_header: true, ..SegmentOptions::default() };
        let mut writer = SegmentWriter::create_with(storage, name(), example(), &[], options).unwrap();
        let frames = (9..29).map(|seq| frame_of(0, seq)).collect::<Vec<_>>();
        let head_bytes = example().checksum.frame_bytes(0);
        let headers: Vec<&[u8]> = frames.iter().map(|frame| &frame[..head_bytes]).collect();
        let mut written = frames.clone();
        (9..).zip(&mut written).for_each(|(seq, frame)| damage(seq, frame));
        let mut pieces: Vec<IoSlice<'_>> = written.iter().map(|frame| IoSlice::new(frame)).collect();
        writer.append(Frames { pieces: &mut pieces, headers: &headers, count: 20 }).unwrap();
        for seq in 9..29 {
            writer.count_samples(0, 1, SampleSpan::of(seq, seq, 0));
        }
        writer.append_index(0).unwrap();
        writer.seal().unwrap().publish(storage).unwrap();
        storage.content(&name().sealed().to_string()).unwrap()
    }

    /// Reads a file. Returns the sequence numbers of the samples, the damage, and whether the
    /// segment is sealed.
    fn read(bytes: &[u8]) -> (Vec<u64>, Vec<Damage>, bool) {
        let storage = SimulatedStorage::new(0);
        storage.create("file").unwrap().append(&[IoSlice::new(bytes)]).unwrap();
        let mut reader = SegmentReader::over(Path::new("file"), storage.open("file").unwrap()).unwrap();
        let (mut samples, mut damage) = (Vec::new(), Vec::new());
        while let Some(advance) = reader.advance().unwrap() {
            match advance {
                Advance::Frame(at) if at.kind == FrameKind::Telemetry => {
                    samples.extend(reader.sample(at).map(|sample| sample.seq));
                }
                Advance::Frame(_) => {}
                Advance::Damage(found) => damage.push(found),
            }
        }
        assert!(!reader.header().sources[0].is_opaque(), "schemas are known");
        (samples, damage, reader.is_sealed())
    }

    // Proves that frames whose memory has changed since they were made are reported as damage, and
    // that the other frames of the same write stay intact.
    #[test]
    fn damaged_memory_costs_only_its_frames() {
        for layout in [Layout::Row, Layout::Columnar] {
            for at in [4, 11, 16, 40, 90] {
                let storage = SimulatedStorage::new(0);
                let bytes = sealed(&storage, layout, |seq, frame| {
                    if seq == 15 || seq == 20 {
                        frame[at] ^= 4;
                    }
                });
                let (samples, damage, is_sealed) = read(&bytes);
                let intact: Vec<u64> = (9..29).filter(|seq| *seq != 15 && *seq != 20).collect();
                assert_eq!((samples, is_sealed), (intact, true), "{at}: {damage:?}");
                let length = frame_of(0, 15).len() as u64;
                assert!(
                    damage.len() == 2 && damage.iter().all(|damage| damage.length == length),
                    "{damage:?}"
                );
            }
        }
    }

    // Proves that a damaged first block affects no other block if the file has a copy of the
    // header. The schemas, and the raw footer, which refers to the first block, can still be read.
    #[test]
    fn a_header_copy_replaces_the_first_block() {
        let mut bytes = sealed(&SimulatedStorage::new(0), Layout::Columnar, |_, _| {});
        let all: Vec<u64> = (9..29).collect();
        assert_eq!(read(&bytes), (all.clone(), Vec::new(), true));
        let first = bytes.windows(4).position(|four| four == b"FCBK").unwrap();
        bytes[first + 40] ^= 1;
        let (samples, damage, is_sealed) = read(&bytes);
        assert_eq!((samples, is_sealed), (all, true));
        assert!(damage.len() == 1 && damage[0].offset == 0, "{damage:?}");
    }

    // Proves that a recovery adds only blocks whose features are declared in the header of the
    // compressed file, because readers would reject other blocks.
    #[test]
    fn recovery_adds_only_announced_features() {
        for layout in [Layout::Row, Layout::Columnar] {
            let storage = SimulatedStorage::new(0);
            let bytes = sealed(&storage, layout, |_, _| {});
            let stored = name().sealed().to_string();
            let reader = SegmentReader::over(Path::new(&stored), storage.open(&stored).unwrap()).unwrap();
            let last = *reader.compressed().unwrap().blocks().last().unwrap();
            let storage = SimulatedStorage::new(0);
            let torn = &bytes[..usize::try_from(last.offset).unwrap()];
            storage.create(&name().to_string()).unwrap().append(&[IoSlice::new(torn)]).unwrap();
            let frames = (29..69).map(|seq| frame_of(0, seq)).collect();
            let leftovers = Leftovers { frames, begun: BTreeMap::from([(0, 69)]), ..Leftovers::default() };
            let recovered = recover(&storage, name(), &leftovers, false).unwrap();
            let (samples, damage, is_sealed) = read(&storage.content(&recovered.sealed.unwrap()).unwrap());
            assert_eq!((samples, damage, is_sealed), ((9..69).collect(), Vec::new(), true), "{layout:?}");
        }
    }

    // Proves that a recovery computes the sizes of sources from the blocks alone. Method: a segment
    // that was compressed while it was recorded is cut before its footer, before its last block,
    // and in the middle.
    #[test]
    fn a_recovery_knows_the_sizes_of_sources() {
        let folder = tempfile::tempdir().unwrap();
        let acts: Vec<Act> = (0..8)
            .flat_map(|at| {
                [Act::Samples { source: at % 2, count: 30, body: 50 + usize::from(at) }, Act::Index]
            })
            .collect();
        let options = SegmentOptions {
            compressor: Some(LiveCompressor::with_defaults(&example())),
            ..SegmentOptions::default()
        };
        let path = written_as(folder.path(), &acts, options, &mut |_| {});
        let name = SegmentName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let reader = SegmentReader::open(&path).unwrap();
        let (blocks, sizes) =
            (reader.compressed().unwrap().blocks(), reader.compressed().unwrap().sizes().to_vec());
        assert!(sizes.len() == 2 && raw_bytes(&path).len() == 2);
        let last = blocks.last().unwrap();
        for (cut, is_all) in
            [(last.end(), true), (last.offset, true), (blocks[blocks.len() / 2].end(), false)]
        {
            std::fs::write(&path, &bytes[..usize::try_from(cut).unwrap()]).unwrap();
            let torn = SegmentReader::open(&path).unwrap();
            assert!(torn.compressed().unwrap().sizes().is_empty(), "the sizes are unknown");
            let storage = Folder(folder.path().to_owned());
            let recovered = recover(&storage, name, &Leftovers::default(), false).unwrap();
            assert!(recovered.sealed.is_some() && recovered.set_aside.is_empty(), "{recovered:?}");
            let reader = SegmentReader::open(&path).unwrap();
            let found = reader.compressed().unwrap().sizes();
            assert!((found == sizes) == is_all, "{cut}: {found:?} {sizes:?}");
            let of_frames = raw_bytes(&path);
            assert!(found.iter().all(|size| of_frames.get(&size.source) == Some(&size.raw_bytes)));
            assert!(found.len() == 2 && found.iter().all(|size| size.stored_bytes > 0));
        }
    }
}
