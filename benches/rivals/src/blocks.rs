//! Frames in blocks, as in a compressed segment, but in memory. The rest of such a file takes only
//! some hundred bytes.

use flatcap_format::block::{
    BlockDecoder, BlockEncoder, ColumnSelection, CompressionOptions, SourceCompression,
};
use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_stream::{ChecksumKind, Framer, KindDeframer, SliceFramer, SliceReader};

/// The checksum of a compressed file's own frames, independent of that of the frames inside.
const OUTER: ChecksumKind = ChecksumKind::Xxh3;

/// Writes frames into blocks, from payloads or from whole frames. Reuses its memory between files.
pub struct BlockWriter {
    encoder: BlockEncoder,
    inner: ChecksumKind,
    block_bytes: usize,
    /// Frames of the block that is not full.
    frames: Vec<u8>,
    raw_offset: u64,
    file: Vec<u8>,
}

impl BlockWriter {
    /// Blocks end after the frame that reaches `block_bytes`.
    pub fn new(way: CompressionOptions, inner: ChecksumKind, block_bytes: usize) -> Self {
        let encoder = BlockEncoder::new(SourceCompression { general: way, sources: Vec::new() });
        Self { encoder, inner, block_bytes, frames: Vec::new(), raw_offset: 0, file: Vec::new() }
    }

    /// Describes the fields of a source.
    pub fn describe(&mut self, source: u16, root: &str, schema: &[u8]) {
        self.encoder.set_schema(source, root, schema);
    }

    /// Writes a file with one frame per payload.
    pub fn write<'p>(&mut self, payloads: impl Iterator<Item = &'p [u8]>) -> &[u8] {
        self.begin();
        for payload in payloads {
            self.push(payload);
        }
        self.end()
    }

    /// Writes a file of samples of one source with these records, a millisecond apart.
    pub fn write_samples<'p>(&mut self, records: impl Iterator<Item = &'p [u8]>) -> &[u8] {
        self.begin();
        let envelope = Envelope::new(0);
        let mut sample = Vec::new();
        for (seq, record) in (0..).zip(records) {
            let mono_ns = seq * 1_000_000;
            let stamp =
                Stamp { mono_ns, wall_ns: mono_ns as i64, seq, incomplete: Incomplete::NONE, duration_ns: 0 };
            sample.resize(ENVELOPE_BYTES + record.len(), 0);
            envelope.write(&mut sample, &stamp, record);
            self.push(&sample);
        }
        self.end()
    }

    /// Writes a file of complete frames, as in a segment. `ends` are the ends of the blocks, each
    /// at the end of a frame.
    pub fn write_frames(&mut self, frames: &[u8], ends: &[usize]) -> &[u8] {
        self.begin();
        let mut start = 0;
        for end in ends {
            let frames = &frames[start..*end];
            let (offset, inner) = (self.raw_offset, self.inner);
            self.block(frames.len() as u64, |encoder, file| encoder.append(frames, offset, inner, file));
            start = *end;
        }
        &self.file
    }

    /// The last file written.
    pub fn file(&self) -> &[u8] {
        &self.file
    }

    fn begin(&mut self) {
        self.file.clear();
        self.frames.clear();
        self.raw_offset = 0;
    }

    fn push(&mut self, payload: &[u8]) {
        self.inner.frame_and_write(&mut self.frames, payload).expect("a vector takes everything");
        if self.frames.len() >= self.block_bytes {
            self.pack();
        }
    }

    fn end(&mut self) -> &[u8] {
        if !self.frames.is_empty() {
            self.pack();
        }
        &self.file
    }

    fn pack(&mut self) {
        let mut frames = std::mem::take(&mut self.frames);
        let (offset, inner) = (self.raw_offset, self.inner);
        self.block(frames.len() as u64, |encoder, file| encoder.append(&frames, offset, inner, file));
        frames.clear();
        self.frames = frames;
    }

    /// Appends a block's frame to the file.
    fn block(
        &mut self,
        raw_bytes: u64,
        append: impl FnOnce(&mut BlockEncoder, &mut Vec<u8>) -> std::io::Result<()>,
    ) {
        let start = self.file.len();
        self.file.resize(start + OUTER.frame_bytes(0), 0);
        append(&mut self.encoder, &mut self.file).expect("whole frames");
        OUTER.frame_in_place(&mut self.file[start..]).expect("shorter than 4 GiB");
        self.raw_offset += raw_bytes;
    }
}

/// Reads files of [`BlockWriter`]. Reuses its memory between files.
#[derive(Default)]
pub struct BlockReader {
    decoder: BlockDecoder,
    frames: Vec<u8>,
}

impl BlockReader {
    /// Calls `take` with each frame's payload.
    pub fn read(&mut self, file: &[u8], mut take: impl FnMut(&[u8])) {
        self.read_blocks(file, |checksum, frames| {
            for payload in SliceReader::new(frames, KindDeframer::new(checksum)) {
                take(payload.expect("intact"));
            }
        });
    }

    /// Calls `take` with each record of [`BlockWriter::write_samples`].
    pub fn read_samples(&mut self, file: &[u8], mut take: impl FnMut(&[u8])) {
        self.read(file, |payload| {
            let (_, record) = flatcap_format::schema::envelope::split(payload).expect("a sample");
            take(record);
        });
    }

    /// Calls `take` with the bytes of each block's frames. Verifies the block's own checksum and
    /// computes those of the frames.
    pub fn read_blocks(&mut self, file: &[u8], mut take: impl FnMut(ChecksumKind, &[u8])) {
        for payload in blocks(file) {
            let block = self.decoder.open(payload, &ColumnSelection::ALL).expect("a block");
            if self.frames.len() < block.raw_bytes() {
                self.frames.resize(block.raw_bytes(), 0);
            }
            let frames = &mut self.frames[..block.raw_bytes()];
            block.copy(0, frames);
            take(block.checksum(), frames);
            self.decoder.reuse(block);
        }
    }
}

/// Returns the payloads of a file's Block frames.
pub fn blocks(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let deframer = KindDeframer::new(OUTER).with_max_frame_len(256 << 20);
    SliceReader::new(file, deframer).map(|payload| payload.expect("intact"))
}

/// Returns ends of blocks of whole frames, each of at least `block_bytes`.
pub fn block_ends(frames: &[u8], checksum: ChecksumKind, block_bytes: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    let (mut start, mut end) = (0, 0);
    while let Some(length) = frames.get(end..).and_then(<[u8]>::first_chunk) {
        end += checksum.frame_bytes(u32::from_le_bytes(*length) as usize);
        if end - start >= block_bytes {
            ends.push(end);
            start = end;
        }
    }
    if start < end {
        ends.push(end);
    }
    ends
}
