//! Payloads of one source's frames without the frames: no checksum is made, and one row becomes the next by what differs.

use std::ops::Range;

use super::decode::{Block, Decoder, Group, Packed, Parts};
use super::decoded::Decoded;
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

    /// Where in the run its frames with wrong checksums stand, in bytes; those that follow each other together. Nobody can say what they held.
    pub fn wrong_frames(&self) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let is_wrong = |group: &Group| matches!(group, Group::Frames(_));
        if !self.groups.iter().any(is_wrong) {
            return found;
        }
        for (number, frame) in self.frames.iter().enumerate() {
            if !self.groups.get(usize::from(frame.group)).is_some_and(is_wrong) {
                continue;
            }
            let start = frame.offset as usize;
            let end = start + self.frame_bytes(number);
            match found.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => found.push(start..end),
            }
        }
        found
    }
}

/// Where in a payload the wall time of a reading stands.
#[allow(clippy::cast_possible_truncation, reason = "an offset in the envelope")]
const WALL: Place = Place { at: (envelope::HEADER_AT + 8) as u32, bytes: 8, kind: Kind::Signed };

/// The identifier of an Index frame, in its payload.
const INDEX: &[u8] = b"FCIX";

/// Whether a payload is that of an Index frame: it repeats what the footer has.
fn is_index(payload: &[u8]) -> bool {
    payload.get(4..8) == Some(INDEX)
}

/// The wall time of a sample in nanoseconds; none where a payload is no telemetry frame of the fixed shape.
fn wall_of(payload: &[u8]) -> Option<i64> {
    envelope::split(payload).map(|(header, _)| header.wall_ns())
}

/// What stands next in a block, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<T> {
    /// A sample of then or later.
    Wanted(T),
    /// A frame that has to be looked at: of another kind, with a wrong checksum, or a sample of another shape.
    Other(T),
    /// The end of the block.
    Behind(T),
}

impl Block {
    /// What stands from an offset within the block on, at which a frame begins, but for samples of before a wall time, in nanoseconds, and for
    /// Index frames. The lanes of envelopes must be wanted. Makes no frames.
    pub fn next_from(&self, from: usize, wall_ns: i64) -> Next<usize> {
        let mut walls: Vec<Option<Value>> = self.groups.iter().map(|_| None).collect();
        let first = self.frames.partition_point(|frame| (frame.offset as usize) < from);
        for (number, frame) in self.frames.iter().enumerate().skip(first) {
            let (offset, at, group) = (frame.offset as usize, frame.at as usize, usize::from(frame.group));
            let sample_ns = match (self.groups.get(group), walls.get_mut(group)) {
                (Some(Group::Matrix(decoded)), Some(wall)) => {
                    let wall = wall.get_or_insert_with(|| Value::of(WALL, decoded));
                    Some(wall.get(decoded, at).cast_signed())
                }
                (Some(Group::Payloads(bytes)), _) => {
                    let payload_bytes = self.frame_bytes(number) - self.checksum.frame_bytes(0);
                    let payload = bytes.get(at..at + payload_bytes).unwrap_or_default();
                    if is_index(payload) {
                        continue;
                    }
                    wall_of(payload)
                }
                _ => None,
            };
            match sample_ns {
                None => return Next::Other(offset),
                Some(sample_ns) if sample_ns >= wall_ns => return Next::Wanted(offset),
                Some(_) => {}
            }
        }
        Next::Behind(self.raw_bytes)
    }
}

impl Decoder {
    /// As [`Block::next_from`], of a block that is not open: of its lanes only the wall times are unpacked, and none where their bounds tell enough.
    ///
    /// # Errors
    /// What is wrong with what had to be read.
    pub fn next_from(&mut self, payload: &[u8], from: usize, wall_ns: i64) -> Result<Next<usize>, Fault> {
        let packed = Packed::open(payload)?;
        if self.is_passed(&packed, wall_ns)? {
            return Ok(Next::Behind(packed.raw_bytes));
        }
        let stamps = |_: u16, _: &[u8]| Choice::Places { steady: Vec::new(), values: vec![WALL] };
        let block = self.open(payload, &Wanted::these(&stamps))?;
        let next = block.next_from(from, wall_ns);
        self.reuse(block);
        Ok(next)
    }

    /// Whether a block has nothing but samples of before a wall time and Index frames, as far as bounds tell; they are believed.
    fn is_passed(&mut self, block: &Packed<'_>, wall_ns: i64) -> Result<bool, Fault> {
        let is_plain = |group: &wire::BlockGroup| {
            matches!(group.layout(), wire::BlockLayout::Matrix | wire::BlockLayout::Payloads)
        };
        if !block.groups.iter().all(is_plain) {
            return Ok(false);
        }
        let (lowest, highest) = (wall_ns.cast_unsigned(), i64::MAX.cast_unsigned());
        let wanted = Within { place: WALL, lowest, highest };
        let mut parts = Parts::new(self.decompressor(), block)?;
        let mut bytes = block.heads_bytes();
        for group in block.groups {
            if group.layout() == wire::BlockLayout::Matrix {
                let decoded = parts.matrix(group)?;
                if !is_out(&decoded, &wanted) {
                    return Ok(false);
                }
                bytes += decoded.rows() as u64 * decoded.row_bytes() as u64;
            } else {
                let passes = |payload: &[u8]| {
                    bytes += payload.len() as u64;
                    is_index(payload) || wall_of(payload).is_some_and(|wall| wall < wall_ns)
                };
                if !every_payload(group, &mut parts, passes)? {
                    return Ok(false);
                }
            }
        }
        // Where they do not add up, whoever opens it says what is wrong.
        Ok(bytes == block.raw_bytes as u64)
    }

    /// Whether the payload of a Block frame can have frames of a source that pass a test, as far as the bounds of its lanes tell. Only directories
    /// are unpacked for that. `test` is asked once for each shape, with the payload of its first frame; none: every frame may pass. So may any frame
    /// whose checksum is wrong, of whichever source.
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
                    if steady.iter().any(|place| decoded.may_change(*place)) || !is_out(&decoded, &within) {
                        return Ok(true);
                    }
                }
                wire::BlockLayout::Payloads => {
                    let fails = |payload: &[u8]| {
                        let passes =
                            |Test { within, .. }: Test| within.holds(value_at(payload, within.place));
                        source_of(payload) != Some(source) || !test(payload).is_none_or(passes)
                    };
                    if !every_payload(group, &mut parts, fails)? {
                        return Ok(true);
                    }
                }
                wire::BlockLayout::Matrix => {}
                _ => return Ok(true),
            }
        }
        Ok(false)
    }
}

/// Whether bounds of lanes tell that no row of a matrix has a value that is wanted.
fn is_out(decoded: &Decoded, wanted: &Within) -> bool {
    if decoded.may_change(wanted.place) {
        decoded.lanes().iter().any(|lane| wanted.excludes(lane))
    } else {
        !wanted.holds(value_at(decoded.first(), wanted.place))
    }
}

/// Whether something holds for each payload of a group whose payloads lie one behind the other.
pub(super) fn every_payload(
    group: &wire::BlockGroup,
    parts: &mut Parts<'_>,
    mut holds: impl FnMut(&[u8]) -> bool,
) -> Result<bool, Fault> {
    let lengths = parts.lengths(group)?;
    let bytes = parts.any(group.first_part() as usize + 1)?;
    let mut rest = bytes.as_slice();
    for length in lengths {
        let (payload, behind) = rest.split_at_checked(length as usize).ok_or(LENGTH)?;
        rest = behind;
        if !holds(payload) {
            return Ok(false);
        }
    }
    if rest.is_empty() { Ok(true) } else { Err(LENGTH) }
}

const LENGTH: Fault = Fault::Group("has another length than its frames need");

#[cfg(test)]
mod tests {
    use super::super::table::{Numbers, Table};
    use super::super::{Encoder, Ways};
    use super::*;
    use crate::frame::{ENVELOPE_BYTES, Envelope, Shortfall, Stamp};
    use crate::stream::{ChecksumKind, Framer};

    const KIND: ChecksumKind = ChecksumKind::Xxh3;

    fn sample(source: u16, wall_ns: i64, body: &[u8]) -> Vec<u8> {
        let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
        let number = wall_ns.unsigned_abs();
        let stamp =
            Stamp { mono_ns: number, wall_ns, seq: number, shortfall: Shortfall::NONE, duration_ns: 1 };
        Envelope::new(source).write(&mut payload, &stamp, body);
        payload
    }

    fn other(identifier: [u8; 4]) -> Vec<u8> {
        [&[16, 0, 0, 0][..], &identifier, &[0; 24]].concat()
    }

    /// What a frame is to whoever seeks.
    #[derive(Clone, Copy)]
    enum Known {
        Sample(i64),
        Nothing,
        Other,
    }

    /// A block, and of each frame where it begins and what it is. One may get a wrong checksum.
    fn block(payloads: &[Vec<u8>], wrong: usize) -> (Vec<u8>, Vec<(usize, Known)>) {
        let (mut frames, mut known) = (Vec::new(), Vec::new());
        for (number, payload) in payloads.iter().enumerate() {
            let start = frames.len();
            KIND.frame_and_write(&mut frames, payload).unwrap();
            let what = match wall_of(payload) {
                _ if number == wrong => {
                    *frames.last_mut().unwrap() ^= 1;
                    Known::Other
                }
                Some(wall_ns) => Known::Sample(wall_ns),
                None if &payload[4..8] == b"FCIX" => Known::Nothing,
                None => Known::Other,
            };
            known.push((start, what));
        }
        (Encoder::new(Ways::default()).encode(&frames, 0, KIND).unwrap().to_vec(), known)
    }

    // Goal: a block that cannot be right is passed by no bounds: whoever opens it says what is wrong. Method: one without groups; blocks that say more or less
    // bytes than their groups have.
    #[test]
    fn what_does_not_add_up_is_not_passed() {
        let mut decoder = Decoder::default();
        let calm: Vec<Vec<u8>> = (0..40).map(|at| sample(0, at, &[7; 24])).collect();
        let mixed: Vec<Vec<u8>> = calm.iter().cloned().chain([other(*b"FCIX")]).collect();
        let blocks = [block(&calm, usize::MAX).0, block(&mixed, usize::MAX).0];
        for good in blocks {
            assert!(decoder.is_passed(&Packed::open(&good).unwrap(), 40).unwrap());
            let raw_bytes = Packed::open(&good).unwrap().raw_bytes as u64;
            let at = good.windows(8).position(|bytes| bytes == raw_bytes.to_le_bytes()).unwrap();
            for claimed in [raw_bytes - 1, raw_bytes + 1] {
                let mut wrong = good.clone();
                wrong[at..at + 8].copy_from_slice(&claimed.to_le_bytes());
                let expected = decoder.open(&wrong, &Wanted::ALL).unwrap_err();
                assert_eq!(decoder.next_from(&wrong, 0, 40), Err(expected));
            }
        }
        let mut empty = Vec::new();
        let checksum = wire::ChecksumKind::Xxh3;
        let numbers = Numbers { raw_offset: 0, raw_bytes: 100, frames: 0, checksum };
        Table::begin(&mut empty).finish(&numbers, &[], &[]).unwrap();
        assert!(decoder.next_from(&empty, 0, 40).is_err());
    }

    // Goal: what is passed are samples of before a time and Index frames, and nothing else, in a block that is open and in one that is not. Method:
    // blocks of samples in a matrix and of many lengths, with and without frames of other kinds and wrong ones; every place, every time; a plain
    // walk says what comes next.
    #[test]
    fn early_samples_and_index_frames_are_passed_and_nothing_else() {
        let in_rows = |at: i64| sample(0, at, &[at.to_le_bytes().first().copied().unwrap(); 24]);
        let mut calm: Vec<Vec<u8>> = (-20..20).map(in_rows).collect();
        calm.insert(17, other(*b"FCIX"));
        calm.push(other(*b"FCIX"));
        let mut uneven = calm.clone();
        uneven.splice(9..9, (0..4).map(|at| sample(1, -12, &vec![7; 8 * at])));
        let with = |identifier| {
            let mut payloads = uneven.clone();
            payloads.insert(30, other(identifier));
            payloads
        };
        let blocks = [
            block(&calm, usize::MAX),
            block(&uneven, usize::MAX),
            block(&with(*b"FCGP"), usize::MAX),
            block(&with(*b"FCCS"), usize::MAX),
            block(&with(*b"XXZZ"), usize::MAX),
            block(&calm, 17),
            block(&calm, 5),
            block(&[other(*b"FCIX"), other(*b"FCIX")], usize::MAX),
        ];
        let mut decoder = Decoder::default();
        let mut passed = |number: usize, wall_ns| {
            decoder.is_passed(&Packed::open(&blocks[number].0).unwrap(), wall_ns).unwrap()
        };
        assert!(passed(0, 20) && passed(1, 20) && passed(7, 0), "whole blocks by bounds");
        assert!(![0, 1].map(|number| passed(number, 19)).contains(&true));
        assert!(![2, 3, 4, 5, 6].map(|number| passed(number, 20)).contains(&true));
        for (number, (payload, known)) in blocks.iter().enumerate() {
            let open = decoder.open(payload, &Wanted::ALL).unwrap();
            for (from, wall_ns) in known.iter().flat_map(|(from, _)| (-22..22).map(|at| (*from, at))) {
                let mut rest = known.iter().filter(|(start, _)| *start >= from);
                let expected = rest.find_map(|(start, what)| match *what {
                    Known::Nothing => None,
                    Known::Other => Some(Next::Other(*start)),
                    Known::Sample(sample_ns) => (sample_ns >= wall_ns).then_some(Next::Wanted(*start)),
                });
                let expected = expected.unwrap_or(Next::Behind(open.raw_bytes()));
                assert_eq!(open.next_from(from, wall_ns), expected, "{number}: {from} {wall_ns}");
                let next = decoder.next_from(payload, from, wall_ns).unwrap();
                assert_eq!(next, expected, "{number}, not open: {from} {wall_ns}");
            }
        }
    }
}
