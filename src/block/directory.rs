//! What lanes has a matrix? Where each stands in a row, how it is written, and its bounds: enough to know what need not be unpacked.

use super::error::Fault;
use super::lane::{Coding, put_varint, take_varint};
use super::wanted::{Kind, Place};

/// A lane that follows no other.
pub(super) const ALONE: u16 = u16::MAX;
/// A bucket ends with the lane that makes it this long, in bytes before the codec: what is unpacked to get at one lane.
const BUCKET_BYTES: u32 = 16 << 10;
/// Most lanes of a matrix: their numbers fit beside [`ALONE`].
pub(super) const LANES_MAX: u32 = 1 << 15;

/// A value of each row that is not always the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane {
    /// Where it stands in a row, and as what its bounds are ordered.
    pub(super) place: Place,
    /// How its column is written, unless it follows another one.
    pub(super) coding: Coding,
    /// Which lane it follows, always a constant apart: number of one in front of it that follows none, or [`ALONE`].
    pub(super) follows: u16,
    /// Bytes of its column in its bucket.
    pub(super) bytes: u32,
    /// Key of its lowest value.
    pub(super) lowest: u64,
    /// Key of its highest value.
    pub(super) highest: u64,
}

/// The value at a place of a row; what lies behind the row is 0.
#[inline]
pub(super) fn value_at(row: &[u8], place: Place) -> u64 {
    let rest = row.get(place.at as usize..).unwrap_or_default();
    let mut word = [0; 8];
    word.iter_mut().zip(rest.iter().take(usize::from(place.bytes))).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(word)
}

/// Where each bucket begins: numbers of lanes, and their count behind the last one.
pub(super) fn buckets(lanes: &[Lane]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut bytes = BUCKET_BYTES;
    for (number, lane) in lanes.iter().enumerate() {
        if bytes >= BUCKET_BYTES {
            starts.push(number);
            bytes = 0;
        }
        bytes = bytes.saturating_add(lane.bytes);
    }
    starts.push(lanes.len());
    starts
}

/// Appends the lanes, field by field: what is alike stands together, for the codec behind.
pub(super) fn put(lanes: &[Lane], first: &[u8], out: &mut Vec<u8>) {
    for lane in lanes {
        out.push(lane.place.bytes | (lane.place.kind as u8) << 4);
    }
    for lane in lanes {
        out.push(lane.coding as u8);
    }
    let mut end = 0;
    for lane in lanes {
        put_varint(u64::from(lane.place.at - end), out);
        end = lane.place.at + u32::from(lane.place.bytes);
    }
    for lane in lanes {
        put_varint(u64::from(lane.follows.wrapping_add(1)), out);
    }
    for lane in lanes {
        put_varint(u64::from(lane.bytes), out);
    }
    let key = |lane: &Lane| lane.place.key(value_at(first, lane.place));
    for lane in lanes {
        put_varint(key(lane).wrapping_sub(lane.lowest), out);
    }
    for lane in lanes {
        put_varint(lane.highest.wrapping_sub(key(lane)), out);
    }
}

/// Reads lanes of rows like the first one.
pub(super) fn take(mut bytes: &[u8], first: &[u8]) -> Result<Vec<Lane>, Fault> {
    const END: Fault = Fault::Group("has a directory that ends before its lanes");
    let count = take_varint(&mut bytes).ok_or(END)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // Of the lanes that are written only the last one may be shorter than four bytes. This bounds what columns take.
    if count > LANES_MAX as usize || count > first.len() / 4 + 1 {
        return Err(Fault::Group("has more lanes than its rows have places for"));
    }
    let (forms, rest) = bytes.split_at_checked(count).ok_or(END)?;
    let (codings, mut rest) = rest.split_at_checked(count).ok_or(END)?;
    let mut lanes = Vec::with_capacity(count);
    let mut end = 0_u64;
    for (form, coding) in forms.iter().zip(codings) {
        let at = end.saturating_add(take_varint(&mut rest).ok_or(END)?);
        let kind = Kind::of(form >> 4).ok_or(Fault::Lane("is of a kind that this build does not know"))?;
        end = at.saturating_add(u64::from(form & 0xF));
        let place = Place { at: u32::try_from(at).unwrap_or(u32::MAX), bytes: form & 0xF, kind };
        if !(1..=8).contains(&place.bytes) || end > first.len() as u64 {
            return Err(Fault::Lane("stands outside of its rows"));
        }
        let coding = Coding::of(*coding).ok_or(Fault::Lane("has a coding that this build does not know"))?;
        lanes.push(Lane { place, coding, follows: ALONE, bytes: 0, lowest: 0, highest: 0 });
    }
    for number in 0..count {
        let follows = take_varint(&mut rest).ok_or(END)?.wrapping_sub(1);
        let follows = u16::try_from(follows & 0xFFFF).unwrap_or(ALONE);
        let leader = lanes.get(usize::from(follows)).filter(|lane| lane.follows == ALONE);
        if follows != ALONE && (usize::from(follows) >= number || leader.is_none()) {
            return Err(Fault::Lane("follows no lane in front of it that stands alone"));
        }
        lanes.get_mut(number).ok_or(END)?.follows = follows;
    }
    for lane in &mut lanes {
        lane.bytes = u32::try_from(take_varint(&mut rest).ok_or(END)?).map_err(|_| END)?;
    }
    for lane in &mut lanes {
        let key = lane.place.key(value_at(first, lane.place));
        lane.lowest = key.wrapping_sub(take_varint(&mut rest).ok_or(END)?);
    }
    for lane in &mut lanes {
        let key = lane.place.key(value_at(first, lane.place));
        lane.highest = key.wrapping_add(take_varint(&mut rest).ok_or(END)?);
    }
    if rest.is_empty() { Ok(lanes) } else { Err(Fault::Group("has bytes behind its directory")) }
}
