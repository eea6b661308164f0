//! A block into frames.

use flatbuffers::VerifierOptions;

use super::checksum::checksum_from_wire;
use super::codec::Decompressor;
use super::decoded::Decoded;
use super::error::Fault;
use super::lengths;
use super::sort::{ROWS_MAX, is_block};
use super::wanted::Wanted;
use crate::schema::segment as wire;
use crate::stream::{ChecksumKind, SliceFramer};

/// Longest run of frames in a block, in bytes. What reading one takes is a multiple of it (docs/FORMAT.md, section 11).
pub const RAW_BYTES_MAX: u64 = 128 << 20;
/// Most frames of a block.
pub(super) const FRAMES_MAX: u32 = 1 << 22;
/// Most groups and most parts of a block.
const GROUPS_MAX: usize = 1 << 16;

/// A block that is read: its frames are made as they are asked for.
#[derive(Debug)]
pub struct Block {
    raw_offset: u64,
    pub(super) raw_bytes: usize,
    pub(super) checksum: ChecksumKind,
    pub(super) frames: Vec<Frame>,
    pub(super) groups: Vec<Group>,
}

/// A frame: where it begins in the run, where its payload is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) offset: u32,
    /// Number of its row, or where it begins in the bytes of its group.
    pub(super) at: u32,
    pub(super) group: u16,
}

#[derive(Debug)]
pub(super) enum Group {
    Payloads(Vec<u8>),
    Frames(Vec<u8>),
    Matrix(Decoded),
}

/// Reads blocks. Keeps its memory from block to block, that of blocks which are given back too.
#[derive(Debug, Default)]
pub struct Decoder {
    decompressor: Decompressor,
    spare: Spare,
}

/// Memory to be filled again.
#[derive(Debug, Default)]
pub(super) struct Spare {
    pub(super) bytes: Vec<u8>, // of frames or payloads; the longest that was given back
    pub(super) lengths: Vec<u32>,
    pub(super) room: Vec<u8>, // what lengths were packed in
    frames: Vec<Frame>,
}

impl Decoder {
    /// Unpacks what is wanted of a Block frame's payload; frames are made of it as they are asked for.
    ///
    /// # Errors
    /// What is wrong with it. Every length met its limit before memory was taken for it.
    pub fn open(&mut self, payload: &[u8], wanted: &Wanted<'_>) -> Result<Block, Fault> {
        let block = Packed::open(payload)?;
        let mut parts = Parts::new(&mut self.decompressor, &block)?;
        let order = block.order(&mut parts)?;
        let groups =
            block.groups.iter().map(|group| open_group(group, &mut parts)).collect::<Result<Vec<_>, _>>()?;
        let mut frames = std::mem::take(&mut self.spare.frames);
        place(&block, &order, &groups, &mut frames)?;
        let spare = &mut self.spare.bytes;
        let groups = groups
            .into_iter()
            .map(|group| group.fill(&mut parts, wanted, spare))
            .collect::<Result<_, _>>()?;
        Ok(Block {
            raw_offset: block.raw_offset,
            raw_bytes: block.raw_bytes,
            checksum: block.checksum,
            frames,
            groups,
        })
    }
}

impl Decoder {
    /// Takes back the memory of a block that nobody needs any more, for the next one. Without it blocks take new memory each time, which
    /// the kernel fills with zeros first.
    pub fn reuse(&mut self, block: Block) {
        if block.frames.capacity() > self.spare.frames.capacity() {
            self.spare.frames = block.frames;
        }
        for group in block.groups {
            if let Group::Payloads(bytes) | Group::Frames(bytes) = group
                && bytes.capacity() > self.spare.bytes.capacity()
            {
                self.spare.bytes = bytes;
            }
        }
    }

    pub(super) fn decompressor(&mut self) -> &mut Decompressor {
        &mut self.decompressor
    }

    pub(super) fn split(&mut self) -> (&mut Decompressor, &mut Spare) {
        (&mut self.decompressor, &mut self.spare)
    }
}

impl Block {
    /// Where its first frame stood in the segment as it was recorded.
    pub fn raw_offset(&self) -> u64 {
        self.raw_offset
    }

    /// Length of its frames, unpacked.
    pub fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// Which checksum the frames within have; the Block's own frame may have another.
    pub fn checksum(&self) -> ChecksumKind {
        self.checksum
    }

    /// How many frames it has.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Writes the bytes of its frames from the offset `from` within the block on, and says how many: fewer than there is room for only at
    /// its end. Only frames that are touched are made.
    pub fn copy(&self, from: usize, out: &mut [u8]) -> usize {
        let end = self.raw_bytes.min(from.saturating_add(out.len()));
        let mut rest = out.get_mut(..end.saturating_sub(from)).unwrap_or_default();
        let length = rest.len();
        let first = self.frames.partition_point(|frame| frame.offset as usize <= from).saturating_sub(1);
        let mut whole = Vec::new(); // a frame of which only a part is asked for
        let mut at = from;
        for (number, frame) in self.frames.iter().enumerate().skip(first) {
            if rest.is_empty() {
                break;
            }
            let behind = self.frames.get(number + 1).map_or(self.raw_bytes, |next| next.offset as usize);
            let (frame_bytes, skipped) = (behind - frame.offset as usize, at - frame.offset as usize);
            let (room, next) = rest.split_at_mut((frame_bytes - skipped).min(rest.len()));
            if room.len() == frame_bytes {
                self.make(frame, room);
            } else {
                whole.clear();
                whole.resize(frame_bytes, 0);
                self.make(frame, &mut whole);
                room.copy_from_slice(whole.get(skipped..skipped + room.len()).unwrap_or_default());
            }
            (rest, at) = (next, behind);
        }
        length
    }

    /// Length of the frame with this number.
    pub(super) fn frame_bytes(&self, number: usize) -> usize {
        let start = self.frames.get(number).map_or(self.raw_bytes, |frame| frame.offset as usize);
        let end = self.frames.get(number + 1).map_or(self.raw_bytes, |next| next.offset as usize);
        end - start
    }

    /// Makes a frame; `to` has its length, which the limit of a block has made short enough for a head.
    fn make(&self, frame: &Frame, to: &mut [u8]) {
        let (at, head_bytes) = (frame.at as usize, self.checksum.frame_bytes(0));
        match self.groups.get(usize::from(frame.group)) {
            Some(Group::Frames(bytes)) => {
                to.copy_from_slice(bytes.get(at..at + to.len()).unwrap_or_default());
            }
            Some(Group::Payloads(bytes)) => {
                let payload = bytes.get(at..at + to.len().saturating_sub(head_bytes)).unwrap_or_default();
                let _fits = self.checksum.frame_into(to, payload);
            }
            Some(Group::Matrix(decoded)) => {
                decoded.row(at, to.get_mut(head_bytes..).unwrap_or_default());
                let _fits = self.checksum.seal(to);
            }
            None => {}
        }
    }
}

/// A Block's own table, its numbers checked.
pub(super) struct Packed<'a> {
    raw_offset: u64,
    pub(super) raw_bytes: usize,
    frames: usize,
    pub(super) checksum: ChecksumKind,
    pub(super) groups: flatbuffers::Vector<'a, wire::BlockGroup>,
    parts: flatbuffers::Vector<'a, wire::BlockPart>,
    data: &'a [u8],
}

impl<'a> Packed<'a> {
    pub(super) fn open(payload: &'a [u8]) -> Result<Self, Fault> {
        let options = VerifierOptions { max_depth: 4, max_tables: 4, ..VerifierOptions::default() };
        let block = flatbuffers::root_with_opts::<wire::Block<'_>>(&options, payload)
            .map_err(|_| Fault::Block("is no FlatBuffer of its schema"))?;
        let (groups, parts) = (block.groups(), block.parts());
        if block.raw_bytes() > RAW_BYTES_MAX || block.frames() > FRAMES_MAX {
            return Err(Fault::Block("claims more frames or bytes than a block may have"));
        }
        if groups.len() > GROUPS_MAX || parts.len() > GROUPS_MAX {
            return Err(Fault::Block("claims more groups or parts than a block may have"));
        }
        let frames = groups.iter().map(|group| u64::from(group.frames())).sum::<u64>();
        if frames != u64::from(block.frames()) {
            return Err(Fault::Block("has groups with another sum of frames than it says"));
        }
        let checksum = checksum_from_wire(block.checksum())
            .ok_or(Fault::Block("has frames with a checksum that this build does not know"))?;
        let head_bytes = checksum.frame_bytes(0) as u64;
        // Neither factor has more than 32 bits and a few, and there are at most 65,536 of them.
        let bytes = |group: &wire::BlockGroup| {
            u128::from(group.frames()) * u128::from(head_bytes + u64::from(group.row_bytes()))
        };
        if groups.iter().map(bytes).sum::<u128>() > u128::from(block.raw_bytes()) {
            return Err(Fault::Block("has groups of more bytes than it says"));
        }
        Ok(Self {
            raw_offset: block.raw_offset(),
            raw_bytes: usize::try_from(block.raw_bytes()).map_err(|_| Fault::Block("is too long"))?,
            frames: block.frames() as usize,
            checksum,
            groups,
            parts,
            data: block.data().bytes(),
        })
    }

    /// The group of all frames, if there is one.
    pub(super) fn only_group(&self) -> Option<&'a wire::BlockGroup> {
        let mut groups = self.groups.iter();
        groups.next().filter(|_| groups.next().is_none())
    }

    /// Length of the heads of all frames.
    pub(super) fn heads_bytes(&self) -> u64 {
        (self.frames * self.checksum.frame_bytes(0)) as u64
    }

    /// For each frame its group.
    pub(super) fn order(&self, parts: &mut Parts<'_>) -> Result<Vec<u16>, Fault> {
        let order: Vec<u16> = match self.groups.len() {
            0 => return Err(Fault::Block("has no groups")),
            // Its frames are as many as the block's, as was seen.
            1 => return Ok(vec![0; self.frames]),
            2..=256 => parts.exactly(0, self.frames)?.iter().map(|group| u16::from(*group)).collect(),
            _ => {
                let order = parts.exactly(0, 2 * self.frames)?;
                order.as_chunks().0.iter().map(|group| u16::from_le_bytes(*group)).collect()
            }
        };
        let mut counts = vec![0_u32; self.groups.len()];
        for group in &order {
            *counts
                .get_mut(usize::from(*group))
                .ok_or(Fault::Block("orders frames of a group that it has not"))? += 1;
        }
        if counts.iter().zip(self.groups).any(|(count, group)| *count != group.frames()) {
            return Err(Fault::Block("orders more or fewer frames of a group than that has"));
        }
        Ok(order)
    }
}

/// A group of which only the lengths are known.
enum Opened {
    Matrix { decoded: Decoded, source: u16, first_part: usize },
    Rows { lengths: Vec<u32>, part: usize, is_framed: bool },
}

fn open_group(group: &wire::BlockGroup, parts: &mut Parts<'_>) -> Result<Opened, Fault> {
    let first_part = group.first_part() as usize;
    let is_framed = match group.layout() {
        wire::BlockLayout::Matrix => {
            let decoded = parts.matrix(group)?;
            return Ok(Opened::Matrix { decoded, source: group.source(), first_part });
        }
        wire::BlockLayout::Payloads => false,
        wire::BlockLayout::Frames => true,
        _ => return Err(Fault::Group("has a layout that this build does not know")),
    };
    Ok(Opened::Rows { lengths: parts.lengths(group)?, part: first_part + 1, is_framed })
}

impl Opened {
    /// `spare` is memory for one group that lies in rows.
    fn fill(self, parts: &mut Parts<'_>, wanted: &Wanted<'_>, spare: &mut Vec<u8>) -> Result<Group, Fault> {
        Ok(match self {
            Self::Matrix { mut decoded, source, first_part } => {
                decoded.choose(source, wanted);
                decoded.fill(|bucket| parts.any(first_part + 1 + bucket))?;
                Group::Matrix(decoded)
            }
            Self::Rows { lengths, part, is_framed } => {
                let mut bytes = std::mem::take(spare);
                parts.unpack(part, &mut bytes)?;
                let head_bytes = if is_framed { parts.head_bytes } else { 0 };
                let mut rest = bytes.as_slice();
                for length in lengths {
                    let frame = rest.split_at_checked(head_bytes + length as usize);
                    let (frame, behind) =
                        frame.ok_or(Fault::Group("has another length than its frames need"))?;
                    if is_block(frame.get(head_bytes..).unwrap_or_default()) {
                        return Err(Fault::Group("holds a block, and a block holds no blocks"));
                    }
                    rest = behind;
                }
                if !rest.is_empty() {
                    return Err(Fault::Group("has another length than its frames need"));
                }
                if is_framed { Group::Frames(bytes) } else { Group::Payloads(bytes) }
            }
        })
    }
}

/// Says where each frame begins.
fn place(block: &Packed<'_>, order: &[u16], groups: &[Opened], frames: &mut Vec<Frame>) -> Result<(), Fault> {
    const LENGTH: Fault = Fault::Block("has frames of another length than it says");
    let head_bytes = block.checksum.frame_bytes(0);
    let mut cursors = vec![(0_usize, 0_usize); groups.len()]; // frame and byte, of each group
    frames.clear();
    frames.reserve_exact(order.len());
    let mut offset = 0_usize;
    for group in order {
        let number = usize::from(*group);
        let (Some(cursor), Some(opened)) = (cursors.get_mut(number), groups.get(number)) else {
            return Err(LENGTH);
        };
        let (at, payload_bytes) = match opened {
            Opened::Matrix { decoded, .. } => (cursor.0, decoded.row_bytes()),
            Opened::Rows { lengths, is_framed, .. } => {
                let (at, length) = (cursor.1, lengths.get(cursor.0).copied().ok_or(LENGTH)? as usize);
                cursor.1 += length + if *is_framed { head_bytes } else { 0 };
                (at, length)
            }
        };
        cursor.0 += 1;
        let number = |bytes: usize| u32::try_from(bytes).map_err(|_| LENGTH);
        frames.push(Frame { offset: number(offset)?, at: number(at)?, group: *group });
        offset += head_bytes + payload_bytes;
        if offset > block.raw_bytes {
            return Err(LENGTH);
        }
    }
    if offset == block.raw_bytes { Ok(()) } else { Err(LENGTH) }
}

/// The parts of a block, unpacked when they are asked for.
pub(super) struct Parts<'a> {
    decompressor: &'a mut Decompressor,
    list: Vec<(wire::BlockPart, usize)>, // and where each begins
    data: &'a [u8],
    raw_bytes: u64,
    head_bytes: usize,
    left: u64,       // that may still be unpacked
    lanes_left: u64, // that matrices may still have
}

impl<'a> Parts<'a> {
    pub(super) fn new(decompressor: &'a mut Decompressor, block: &Packed<'a>) -> Result<Self, Fault> {
        let mut end = 0_usize;
        let list = block
            .parts
            .iter()
            .map(|part| {
                let start = end;
                end = end.saturating_add(part.stored_bytes() as usize);
                (*part, start)
            })
            .collect();
        if end != block.data.len() {
            return Err(Fault::Block("has parts with another sum of bytes than its data"));
        }
        // What is coded never takes more than four times the frames: lanes have a directory.
        let left = (block.raw_bytes as u64).saturating_mul(4).saturating_add(1 << 20);
        let head_bytes = block.checksum.frame_bytes(0);
        let raw_bytes = block.raw_bytes as u64;
        // A lane takes some hundred bytes of memory, however few rows it has; of frames it has at least two bytes in each of eight rows.
        let lanes_left = raw_bytes / 16;
        Ok(Self { decompressor, list, data: block.data, raw_bytes, head_bytes, left, lanes_left })
    }

    /// A part in memory of its own.
    pub(super) fn any(&mut self, number: usize) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        self.unpack(number, &mut out)?;
        Ok(out)
    }

    /// A part in place of what is in `out`.
    fn unpack(&mut self, number: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        let (part, stored) = self.stored(number)?;
        self.decompressor.decompress(part.codec(), stored, part.bytes() as usize, out)
    }

    /// A part that is only looked at: one that is not packed where it lies in the block, any other in `room`.
    pub(super) fn look<'r>(&mut self, number: usize, room: &'r mut Vec<u8>) -> Result<&'r [u8], Fault>
    where
        'a: 'r,
    {
        let (part, stored) = self.stored(number)?;
        if part.codec() == 0 && part.bytes() == part.stored_bytes() {
            return Ok(stored);
        }
        self.decompressor.decompress(part.codec(), stored, part.bytes() as usize, room)?;
        Ok(room)
    }

    /// A part as it lies in the block, which may still have as many bytes as it says.
    fn stored(&mut self, number: usize) -> Result<(wire::BlockPart, &'a [u8]), Fault> {
        let (part, start) =
            *self.list.get(number).ok_or(Fault::Group("has a part that the block has not"))?;
        self.left = self
            .left
            .checked_sub(u64::from(part.bytes()))
            .ok_or(Fault::Part("claims more bytes than its block can need"))?;
        Ok((part, self.data.get(start..start + part.stored_bytes() as usize).unwrap_or_default()))
    }

    /// What the parts of a group take in the block, in bytes.
    pub(super) fn stored_bytes(&self, group: &wire::BlockGroup) -> u64 {
        let first = group.first_part() as usize;
        let start = |number: usize| self.list.get(number).map_or(self.data.len(), |(_, start)| *start);
        start(first.saturating_add(group.parts() as usize)).saturating_sub(start(first)) as u64
    }

    /// The directory of a matrix; none of its columns is read.
    pub(super) fn matrix(&mut self, group: &wire::BlockGroup) -> Result<Decoded, Fault> {
        let (rows, row_bytes) = (group.frames() as usize, group.row_bytes() as usize);
        if rows == 0 || rows > ROWS_MAX || row_bytes as u64 * rows as u64 > self.raw_bytes {
            return Err(Fault::Group("has no rows, or more than a matrix or its block may have"));
        }
        let decoded = Decoded::open(&self.any(group.first_part() as usize)?, rows, row_bytes)?;
        let lanes = (decoded.lanes().len() + decoded.spans().len()) as u64;
        let left = self.lanes_left.checked_sub(lanes);
        self.lanes_left = left.ok_or(Fault::Group("has more lanes and spans than its block can need"))?;
        if decoded.buckets() + 1 != group.parts() as usize {
            return Err(Fault::Group("has another number of parts than of buckets"));
        }
        Ok(decoded)
    }

    /// Lengths of the payloads of a group whose frames lie one behind the other.
    pub(super) fn lengths(&mut self, group: &wire::BlockGroup) -> Result<Vec<u32>, Fault> {
        let mut lengths = Vec::new();
        self.lengths_into(group, &mut Vec::new(), &mut lengths)?;
        Ok(lengths)
    }

    /// The same in place of what is in `lengths`; `room` is for what they are packed in.
    pub(super) fn lengths_into(
        &mut self,
        group: &wire::BlockGroup,
        room: &mut Vec<u8>,
        lengths: &mut Vec<u32>,
    ) -> Result<(), Fault> {
        if group.parts() != 2 {
            return Err(Fault::Group("has another number of parts than lengths and bytes"));
        }
        let part = self.look(group.first_part() as usize, room)?;
        // A frame has four bytes at least, so these are no more than the block's raw bytes.
        lengths::decode(part, group.frames() as usize, lengths)
    }

    fn exactly(&mut self, number: usize, bytes: usize) -> Result<Vec<u8>, Fault> {
        let part = self.any(number)?;
        if part.len() == bytes {
            Ok(part)
        } else {
            Err(Fault::Part("has another length than its frames need"))
        }
    }
}
