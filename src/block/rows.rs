//! Payloads of one source's frames without the frames: no checksum is made, and one row becomes the next by what differs.

use super::decode::{Block, Decoder, Group, Packed, Parts};
use super::directory::value_at;
use super::error::Fault;
use super::scan::{Value, Within};
use super::sort::source_of;
use super::wanted::{Choice, Kind, Place, Wanted};
use crate::schema::envelope;
use crate::schema::segment as wire;

/// What is asked of the values at a place of payloads that have the shape of a certain one, and on which places that place depends.
#[derive(Debug, Clone)]
pub struct Test {
    /// Where one of them differs from row to row, the place is not to be trusted.
    pub steady: Vec<Place>,
    /// What is asked.
    pub within: Within,
}

impl Block {
    /// Gives the payloads of a source's frames, in the order of the frames; of frames with wrong checksums none. What was not wanted when
    /// the block was opened stands in them as in the first one of the same shape.
    pub fn payloads(&self, source: u16, mut each: impl FnMut(&[u8])) {
        let mut rows: Vec<Option<Vec<u8>>> = self
            .groups
            .iter()
            .map(|group| match group {
                Group::Matrix(decoded) if source_of(decoded.first()) == Some(source) => {
                    Some(decoded.first().to_vec())
                }
                _ => None,
            })
            .collect();
        let head_bytes = self.checksum.frame_bytes(0);
        for (number, frame) in self.frames.iter().enumerate() {
            let (at, group) = (frame.at as usize, usize::from(frame.group));
            match (self.groups.get(group), rows.get_mut(group)) {
                (Some(Group::Matrix(decoded)), Some(Some(row))) => {
                    decoded.patch(at, row);
                    each(row);
                }
                (Some(Group::Payloads(bytes)), _) => {
                    let end = self.frames.get(number + 1).map_or(self.raw_bytes, |next| next.offset as usize);
                    let payload_bytes = end - frame.offset as usize - head_bytes;
                    let payload = bytes.get(at..at + payload_bytes).unwrap_or_default();
                    if source_of(payload) == Some(source) {
                        each(payload);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Where in a payload the wall time of a reading stands.
#[allow(clippy::cast_possible_truncation, reason = "an offset in the envelope")]
const WALL: Place = Place { at: (envelope::HEADER_AT + 8) as u32, bytes: 8, kind: Kind::Signed };

/// What stands next in a block, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<T> {
    /// A sample of then or later.
    Wanted(T),
    /// A frame that has to be looked at: of another kind, or a sample that is in no matrix.
    Other(T),
    /// The end of the block.
    Behind(T),
}

impl Block {
    /// What stands from an offset within the block on, at which a frame begins, but for samples of before a wall time, in nanoseconds. The lanes of
    /// envelopes must be wanted. Makes no frames.
    pub fn next_from(&self, from: usize, wall_ns: i64) -> Next<usize> {
        let mut walls: Vec<Option<Value>> = self.groups.iter().map(|_| None).collect();
        let first = self.frames.partition_point(|frame| (frame.offset as usize) < from);
        for frame in self.frames.iter().skip(first) {
            let (offset, group) = (frame.offset as usize, usize::from(frame.group));
            let (Some(Group::Matrix(decoded)), Some(wall)) = (self.groups.get(group), walls.get_mut(group))
            else {
                return Next::Other(offset);
            };
            let wall = wall.get_or_insert_with(|| Value::of(WALL, decoded));
            if wall.get(decoded, frame.at as usize).cast_signed() >= wall_ns {
                return Next::Wanted(offset);
            }
        }
        Next::Behind(self.raw_bytes)
    }
}

impl Decoder {
    /// As [`Block::next_from`], of a block that is not open: of its lanes only the wall times are unpacked.
    ///
    /// # Errors
    /// What is wrong with what had to be read.
    pub fn next_from(&mut self, payload: &[u8], from: usize, wall_ns: i64) -> Result<Next<usize>, Fault> {
        let stamps = |_: u16, _: &[u8]| Choice::Places { steady: Vec::new(), values: vec![WALL] };
        let block = self.open(payload, &Wanted::these(&stamps))?;
        let next = block.next_from(from, wall_ns);
        self.reuse(block);
        Ok(next)
    }

    /// Whether the payload of a Block frame can have frames of a source that pass a test, as far as the bounds of its lanes tell. Only directories
    /// are unpacked for that. `test` is asked once for each shape, with the payload of its first frame; none: every frame may pass.
    ///
    /// # Errors
    /// What is wrong with what had to be read.
    pub fn may_hold(
        &mut self,
        payload: &[u8],
        source: u16,
        test: &dyn Fn(&[u8]) -> Option<Test>,
    ) -> Result<bool, Fault> {
        let block = Packed::open(payload)?;
        let mut parts = Parts::new(self.decompressor(), &block)?;
        for group in block.groups {
            match group.layout() {
                wire::BlockLayout::Matrix if group.source() == source => {
                    let decoded = parts.matrix(group)?;
                    let Some(Test { steady, within }) = test(decoded.first()) else { return Ok(true) };
                    let meets = |places: &[Place]| places.iter().any(|place| decoded.may_change(*place));
                    let is_out = if meets(&[within.place]) {
                        decoded.lanes().iter().any(|lane| within.excludes(lane))
                    } else {
                        !within.holds(value_at(decoded.first(), within.place))
                    };
                    if meets(&steady) || !is_out {
                        return Ok(true);
                    }
                }
                wire::BlockLayout::Payloads => {
                    let lengths = parts.lengths(group)?;
                    let bytes = parts.any(group.first_part() as usize + 1)?;
                    let mut rest = bytes.as_slice();
                    for length in lengths {
                        let (payload, behind) = rest.split_at_checked(length as usize).ok_or(LENGTH)?;
                        rest = behind;
                        let passes =
                            |Test { within, .. }: Test| within.holds(value_at(payload, within.place));
                        if source_of(payload) == Some(source) && test(payload).is_none_or(passes) {
                            return Ok(true);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(false)
    }
}

const LENGTH: Fault = Fault::Group("has another length than its frames need");
