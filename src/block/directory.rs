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
/// Most spans of a matrix: each is a part of its block.
pub(super) const SPANS_MAX: usize = 8;
/// Shortest span, in bytes.
pub(super) const SPAN_BYTES_MIN: u32 = 32;

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

/// A stretch of each row that is kept as it is, row by row: no lane has anything of it, and it has no bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Where it begins in a row.
    pub(super) at: u32,
    /// Its length.
    pub(super) bytes: u32,
}

/// What a matrix has beside its first row.
#[derive(Debug)]
pub(super) struct Directory {
    /// In the order of their places.
    pub(super) lanes: Vec<Lane>,
    /// In the order of their places.
    pub(super) spans: Vec<Span>,
}

impl Span {
    /// Where it ends.
    pub(super) fn end(self) -> u64 {
        u64::from(self.at) + u64::from(self.bytes)
    }

    /// Its bytes of a row.
    pub(super) fn of(self, row: &[u8]) -> &[u8] {
        row.get(self.at as usize..).and_then(|rest| rest.get(..self.bytes as usize)).unwrap_or_default()
    }

    /// Whether it has a byte of a value.
    pub(super) fn meets(self, place: Place) -> bool {
        u64::from(self.at) < place.end() && u64::from(place.at) < self.end()
    }
}

/// The value at a place of a row; what lies behind the row is 0.
#[inline]
pub(super) fn value_at(row: &[u8], place: Place) -> u64 {
    let rest = row.get(place.at as usize..).unwrap_or_default();
    // Most lanes have one of these lengths.
    match (place.bytes, rest.first_chunk(), rest.first_chunk()) {
        (8, Some(bytes), _) => u64::from_le_bytes(*bytes),
        (4, _, Some(bytes)) => u64::from(u32::from_le_bytes(*bytes)),
        _ => {
            let mut word = [0; 8];
            word.iter_mut()
                .zip(rest.iter().take(usize::from(place.bytes)))
                .for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(word)
        }
    }
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

/// Appends the number of spans and these, then that of lanes and these, field by field: what is alike stands together, for the codec behind.
pub(super) fn put(spans: &[Span], lanes: &[Lane], first: &[u8], out: &mut Vec<u8>) {
    put_varint(spans.len() as u64, out);
    let mut end = 0;
    for span in spans {
        put_varint(u64::from(span.at).wrapping_sub(end), out);
        put_varint(u64::from(span.bytes), out);
        end = span.end();
    }
    put_varint(lanes.len() as u64, out);
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

const END: Fault = Fault::Group("has a directory that ends before its lanes");

/// Reads spans and lanes of rows like the first one.
pub(super) fn take(mut bytes: &[u8], first: &[u8]) -> Result<Directory, Fault> {
    let spans = take_spans(&mut bytes, first)?;
    let mut lanes = take_places(&mut bytes, first)?;
    let mut rest = bytes;
    let is_apart = |lane: &Lane| !spans.iter().any(|span| span.meets(lane.place));
    if !lanes.iter().all(is_apart) {
        return Err(Fault::Lane("stands in a span"));
    }
    for number in 0..lanes.len() {
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
    if rest.is_empty() {
        Ok(Directory { lanes, spans })
    } else {
        Err(Fault::Group("has bytes behind its directory"))
    }
}

fn take_spans(bytes: &mut &[u8], first: &[u8]) -> Result<Vec<Span>, Fault> {
    let count = take_varint(bytes).ok_or(END)?;
    if count > SPANS_MAX as u64 {
        return Err(Fault::Group("has more spans than a matrix may have"));
    }
    let mut spans = Vec::new();
    let mut end = 0_u64;
    for _ in 0..count {
        let at = end.saturating_add(take_varint(bytes).ok_or(END)?);
        let length = take_varint(bytes).ok_or(END)?;
        end = at.saturating_add(length);
        if length < u64::from(SPAN_BYTES_MIN) || end > first.len() as u64 {
            return Err(Fault::Group("has a span that is too short or stands outside of its rows"));
        }
        let number = |number: u64| u32::try_from(number).map_err(|_| END);
        spans.push(Span { at: number(at)?, bytes: number(length)? });
    }
    Ok(spans)
}

/// Lanes of which only place and coding are known.
fn take_places(bytes: &mut &[u8], first: &[u8]) -> Result<Vec<Lane>, Fault> {
    let count = take_varint(bytes).ok_or(END)?;
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
    *bytes = rest;
    Ok(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(at: u32) -> Lane {
        let place = Place { at, bytes: 8, kind: Kind::Unsigned };
        Lane { place, coding: Coding::Plain, follows: ALONE, bytes: 5, lowest: 0, highest: 9 }
    }

    #[test]
    fn spans_and_lanes_come_back_and_wrong_ones_are_refused() {
        // Goal: a directory says what it was told; spans that are too many or too short, or overlap, and lanes in them, are faults. Method: such
        // directories; each of them cut.
        let first = [0; 400];
        let read = |spans: &[Span], lanes: &[Lane]| {
            let mut bytes = Vec::new();
            put(spans, lanes, &first, &mut bytes);
            for cut in 0..bytes.len() {
                assert!(take(&bytes[..cut], &first).is_err());
            }
            take(&bytes, &first)
        };
        let span = |at, bytes| Span { at, bytes };
        let (spans, lanes) = ([span(64, 32), span(96, 40)], [lane(24), lane(56), lane(136)]);
        let back = read(&spans, &lanes).unwrap();
        assert_eq!((back.spans.as_slice(), back.lanes.as_slice()), (spans.as_slice(), lanes.as_slice()));
        assert!(read(&[], &[]).is_ok());
        assert!(read(&[span(64, 31)], &[]).is_err());
        assert!(read(&[span(369, 32)], &[]).is_err());
        assert!(read(&[span(64, u32::MAX)], &[]).is_err());
        assert!(read(&[span(64, 40), span(96, 40)], &[]).is_err());
        assert!(read(&spans, &[lane(57)]).is_err());
        assert!(read(&spans, &[lane(80)]).is_err());
        assert!(read(&spans, &[lane(135)]).is_err());
        let many: Vec<Span> = (0..9).map(|number| span(32 * number, 32)).collect();
        assert!(read(&many[..8], &[]).is_ok());
        assert!(read(&many, &[]).is_err());
    }
}
