//! Frames into a block.

use std::collections::HashMap;
use std::fmt;
use std::io;

use super::checksum::checksum_to_wire;
use super::codec::{Codec, Compressor};
use super::decode::{FRAMES_MAX, RAW_BYTES_MAX};
use super::lengths;
use super::matrix::{Coded, Fields, Matrix};
use super::payloads::Payloads;
use super::sizes::{SourceSize, share};
use super::sort::{List, Shape, Sorter};
use super::table::{Numbers, Table};
use super::way::Ways;
use crate::schema::Plan;
use crate::schema::envelope::ENVELOPE_BYTES;
use crate::schema::segment as wire;
use crate::stream::ChecksumKind;

/// A good length for a run of frames: longer ones pack a little better, and cost more to seek into.
pub const RAW_BYTES_DEFAULT: usize = 4 << 20;

/// Packs runs of frames. Keeps its memory from block to block; the same frames give the same block.
pub struct Encoder {
    ways: Ways,
    plans: HashMap<u16, Plan>,
    sorter: Sorter,
    matrix: Matrix,
    coded: Coded,
    parts: Parts,
    groups: Vec<wire::BlockGroup>,
    out: Vec<u8>,
    sizes: Vec<SourceSize>,
}

/// A run of frames to be packed.
#[derive(Clone, Copy)]
struct Run<'r> {
    /// What payloads lie in.
    bytes: &'r [u8],
    /// Whether nothing else lies in it.
    is_bare: bool,
    raw_offset: u64,
    raw_bytes: u64,
    checksum: ChecksumKind,
}

/// Parts of a block in the making.
#[derive(Debug, Default)]
struct Parts {
    compressors: HashMap<Codec, Compressor>,
    list: Vec<wire::BlockPart>,
    lengths: Vec<u8>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("ways", &self.ways).finish_non_exhaustive()
    }
}

impl Encoder {
    /// One that packs in these ways.
    pub fn new(ways: Ways) -> Self {
        Self {
            ways,
            plans: HashMap::new(),
            sorter: Sorter::default(),
            matrix: Matrix::default(),
            coded: Coded::default(),
            parts: Parts::default(),
            groups: Vec::new(),
            out: Vec::new(),
            sizes: Vec::new(),
        }
    }

    /// Tells what a source's payloads are: its root table in a binary schema. Lanes are then the fields of four and eight bytes, and their bounds
    /// those of signed numbers and floats where they are such; without it both are found out from the values. Blocks decode without it; what is no
    /// schema, or does not fit the payloads, is ignored.
    pub fn describe(&mut self, source: u16, root: &str, schema: &[u8]) {
        if let Ok(plan) = Plan::compile(schema, root) {
            self.plans.insert(source, plan);
        }
    }

    /// The places of the values in a payload of a source, as far as they are known.
    fn fields(&self, source: u16, payload: &[u8]) -> Fields {
        let plan = self.plans.get(&source);
        let body = payload.get(ENVELOPE_BYTES..).unwrap_or_default();
        Fields::new(&plan.and_then(|plan| plan.spots(body)).unwrap_or_default())
    }

    /// The payload of a Block frame that holds these frames, which stand at `raw_offset` of their segment. `checksum` is theirs.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn encode(&mut self, frames: &[u8], raw_offset: u64, checksum: ChecksumKind) -> io::Result<&[u8]> {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let appended = self.append(frames, raw_offset, checksum, &mut out);
        self.out = out;
        appended.map(|()| self.out.as_slice())
    }

    /// Appends what [`encode`](Self::encode) gives: behind room for the head of its frame, say.
    ///
    /// # Errors
    /// `InvalidData`: the bytes are not whole frames, or one of them is a Block. `InvalidInput`: they are more than
    /// [`RAW_BYTES_MAX`], or there are none. What a codec says. Nothing is appended then.
    pub fn append(
        &mut self,
        frames: &[u8],
        raw_offset: u64,
        checksum: ChecksumKind,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let raw_bytes = frames.len() as u64;
        is_possible(raw_bytes)?;
        self.sorter.sort(frames, checksum, &self.ways)?;
        self.write(Run { bytes: frames, is_bare: false, raw_offset, raw_bytes, checksum }, out)
    }

    /// The same of payloads, as if the frames were there that they have with the right checksums: the block is no other, and needs neither frames nor
    /// checksums to be made for it.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_payloads(
        &mut self,
        payloads: &Payloads,
        raw_offset: u64,
        checksum: ChecksumKind,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let raw_bytes = payloads.frames_bytes(checksum);
        is_possible(raw_bytes)?;
        self.sorter.sort_payloads(payloads, checksum, &self.ways)?;
        self.write(Run { bytes: payloads.bytes(), is_bare: true, raw_offset, raw_bytes, checksum }, out)
    }

    /// Writes what was sorted.
    fn write(&mut self, run: Run<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        let written = self.try_write(run, out);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn try_write(&mut self, run: Run<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        let frames = u32::try_from(self.sorter.order.len()).unwrap_or(u32::MAX);
        if frames > FRAMES_MAX {
            let message = format!("{frames} frames for a block: at most {FRAMES_MAX} fit");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.parts.list.clear();
        self.groups.clear();
        self.sizes.clear();
        let sources = self.sorter.sources.iter();
        self.sizes.extend(sources.map(|&(source, raw_bytes)| SourceSize {
            source,
            raw_bytes,
            stored_bytes: 0,
        }));
        let mut table = Table::begin(out);
        self.order(&mut table)?;
        for number in 0..self.sorter.lists.len() {
            let group = self.group(number, &run, &mut table)?;
            self.groups.push(group);
        }
        let Run { raw_offset, raw_bytes, checksum, .. } = run;
        let numbers = Numbers { raw_offset, raw_bytes, frames, checksum: checksum_to_wire(checksum) };
        let stored_bytes = table.finish(&numbers, &self.groups, &self.parts.list)?;
        share(&mut self.sizes, raw_bytes, stored_bytes as u64);
        Ok(())
    }

    /// What became of each source's frames in the last block.
    pub fn sizes(&self) -> &[SourceSize] {
        &self.sizes
    }

    /// The first part: for each frame its group.
    fn order(&mut self, table: &mut Table<'_>) -> io::Result<()> {
        let (lists, order) = (self.sorter.lists.len(), &self.sorter.order);
        let bytes: Vec<u8> = match lists {
            0 | 1 => Vec::new(),
            2..=256 => order.iter().map(|group| (group & 0xFF) as u8).collect(),
            _ => order.iter().flat_map(|group| group.to_le_bytes()).collect(),
        };
        self.parts.add(self.ways.general.codec, &bytes, table)
    }

    fn group(&mut self, number: usize, run: &Run<'_>, table: &mut Table<'_>) -> io::Result<wire::BlockGroup> {
        let (first_part, start) = (self.parts.list.len(), table.data_bytes());
        let Some(list) = self.sorter.lists.get(number) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let codec = list.way.codec;
        let (layout, source, row_bytes) = match list.shape {
            Shape::Rows { source, row_bytes } => {
                let payload = |number: usize| {
                    let (at, length) = list.rows.get(number).copied().unwrap_or_default();
                    run.bytes.get(at as usize..(at + length) as usize).unwrap_or_default()
                };
                let fields = self.fields(source, payload(0));
                let rows = list.rows.len();
                self.coded.codec = Some(codec);
                self.matrix.encode(rows, payload, &fields, &mut self.coded);
                self.parts.add(codec, &self.coded.directory, table)?;
                for bucket in self.coded.buckets() {
                    self.parts.add(codec, bucket, table)?;
                }
                for span in self.matrix.spans() {
                    // The first row is in the directory.
                    self.parts.add_gathered(
                        codec,
                        (1..rows).map(|number| span.of(payload(number))),
                        table,
                    )?;
                }
                (wire::BlockLayout::Matrix, source, row_bytes)
            }
            Shape::Any(_) => {
                self.parts.add_lengths(list, table)?;
                if run.is_bare && self.sorter.lists.len() == 1 {
                    self.parts.add(codec, run.bytes, table)?;
                } else {
                    self.parts.add_rows(list, 0, run.bytes, table)?;
                }
                (wire::BlockLayout::Payloads, 0, 0)
            }
            Shape::Wrong => {
                self.parts.add_lengths(list, table)?;
                self.parts.add_rows(list, run.checksum.frame_bytes(0), run.bytes, table)?;
                (wire::BlockLayout::Frames, 0, 0)
            }
        };
        if layout == wire::BlockLayout::Matrix
            && let Some(size) = self.sizes.iter_mut().find(|size| size.source == source)
        {
            size.stored_bytes += (table.data_bytes() - start) as u64;
        }
        let number = |count: usize| u32::try_from(count).map_err(io::Error::other);
        let parts = number(self.parts.list.len() - first_part)?;
        Ok(wire::BlockGroup::new(
            number(first_part)?,
            parts,
            number(list.rows.len())?,
            row_bytes,
            source,
            layout,
        ))
    }
}

fn is_possible(raw_bytes: u64) -> io::Result<()> {
    if (1..=RAW_BYTES_MAX).contains(&raw_bytes) {
        return Ok(());
    }
    let message = format!("{raw_bytes} bytes of frames for a block: from 1 to {RAW_BYTES_MAX} fit");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

impl Parts {
    fn add(&mut self, codec: Codec, bytes: &[u8], table: &mut Table<'_>) -> io::Result<()> {
        let start = table.data_bytes();
        let codec = self.compressor(codec).compress(bytes, table.data())?;
        self.note(codec, bytes.len(), table.data_bytes() - start)
    }

    /// The one of a codec.
    fn compressor(&mut self, codec: Codec) -> &mut Compressor {
        self.compressors.entry(codec).or_insert_with(|| Compressor::new(codec))
    }

    fn note(&mut self, codec: u8, bytes: usize, stored_bytes: usize) -> io::Result<()> {
        let number = |count: usize| u32::try_from(count).map_err(io::Error::other);
        self.list.push(wire::BlockPart::new(number(stored_bytes)?, number(bytes)?, codec));
        Ok(())
    }

    fn add_lengths(&mut self, list: &List, table: &mut Table<'_>) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.lengths);
        lengths::encode(list.rows.iter().map(|(_, length)| *length), &mut bytes);
        let added = self.add(list.way.codec, &bytes, table);
        self.lengths = bytes;
        added
    }

    /// Payloads with as many bytes as stand in front of each.
    fn add_rows(
        &mut self,
        list: &List,
        head_bytes: usize,
        frames: &[u8],
        table: &mut Table<'_>,
    ) -> io::Result<()> {
        let rows = list.rows.iter().map(|(at, length)| {
            let from = *at as usize - head_bytes;
            frames.get(from..(at + length) as usize).unwrap_or_default()
        });
        self.add_gathered(list.way.codec, rows, table)
    }

    /// What lies at many places.
    fn add_gathered<'r>(
        &mut self,
        codec: Codec,
        rows: impl Iterator<Item = &'r [u8]> + Clone,
        table: &mut Table<'_>,
    ) -> io::Result<()> {
        let start = table.data_bytes();
        let (codec, bytes) = self.compressor(codec).compress_rows(rows, table.data())?;
        self.note(codec, bytes, table.data_bytes() - start)
    }
}
