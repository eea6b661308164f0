//! Values of a few places in all frames of one source, without making a frame: only the lanes that hold them are unpacked, and nothing
//! where bounds tell that no row is wanted.

use super::decode::{Decoder, Packed, Parts};
use super::decoded::Decoded;
use super::directory::{Lane, value_at};
use super::error::Fault;
use super::sort::source_of;
use super::wanted::{Kind, Place};
use crate::schema::segment as wire;

/// Only frames whose value at a place lies between bounds, these included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Within {
    /// Where the value stands, and as what it is compared.
    pub place: Place,
    /// The lowest value that is wanted, its bits.
    pub lowest: u64,
    /// The highest value that is wanted, its bits.
    pub highest: u64,
}

/// Rows of a group that may be given: each place as pieces of lanes.
struct Table {
    decoded: Decoded,
    values: Vec<Value>,
    tested: Option<Value>,
}

/// A value: bits that are the same in all rows, and pieces of lanes and spans.
pub(super) struct Value {
    fixed: u64,
    pieces: Vec<Piece>,
    stretches: Vec<Stretch>,
}

/// Bytes of a span that belong to a value at a place.
struct Stretch {
    span: usize,
    /// Where in the span they are.
    part: Place,
    /// To the left.
    shift: u32,
}

/// Bits of a lane's value that belong to a value at a place.
struct Piece {
    lane: usize,
    /// To the left; to the right where it is negative.
    shift: i32,
    mask: u64,
}

/// Frames of one group.
enum Rows {
    Table(Box<Table>),
    /// Offsets and lengths of payloads in bytes.
    Payloads(Vec<u8>, Vec<(usize, usize)>),
    /// None of them is wanted.
    None,
}

impl Within {
    pub(super) fn holds(&self, bits: u64) -> bool {
        let key = self.place.key(bits);
        self.place.key(self.lowest) <= key && key <= self.place.key(self.highest)
    }

    /// Whether bounds of a lane tell that no row holds.
    pub(super) fn excludes(&self, lane: &Lane) -> bool {
        let (mine, own) = (self.place, lane.place);
        if (mine.at, mine.bytes) != (own.at, own.bytes) {
            return false;
        }
        let (from, to) = (mine.key(self.lowest), mine.key(self.highest));
        if mine.kind == own.kind {
            return to < lane.lowest || lane.highest < from;
        }
        // Keys of another kind say the same only of values that all have one sign.
        let sign = 1_u64 << (8 * u32::from(own.bytes) - 1);
        let (Some(lowest), Some(highest)) = (unkey(own, lane.lowest), unkey(own, lane.highest)) else {
            return false;
        };
        if (lowest ^ highest) & sign != 0 {
            return false;
        }
        let (lowest, highest) = (mine.key(lowest), mine.key(highest));
        to < lowest.min(highest) || lowest.max(highest) < from
    }
}

/// The bits of a value from its key.
fn unkey(place: Place, key: u64) -> Option<u64> {
    let sign = 1_u64 << (8 * u32::from(place.bytes) - 1);
    let bits = match place.kind {
        Kind::Unsigned => key,
        Kind::Signed => key ^ sign,
        Kind::Float if key & sign != 0 => key ^ sign,
        Kind::Float => key ^ (sign | (sign - 1)),
    };
    (bits <= sign | (sign - 1)).then_some(bits)
}

impl Decoder {
    /// Gives the values at some places (their bits, behind them zeros) of all frames of a source in the payload of a Block frame, in the order of the
    /// frames. `within` leaves out frames, and spares whole groups by the bounds of their lanes. Frames that are too short for a
    /// place are left out, and so are those whose checksums are wrong; how many of the block these are, of whichever source, is returned.
    ///
    /// A place is that of a value only in frames that are built alike; see [`Choice`](super::Choice).
    ///
    /// # Errors
    /// What is wrong with what had to be read.
    #[allow(clippy::too_many_arguments, reason = "what, whose, where, which, and what to do")]
    pub fn scan(
        &mut self,
        payload: &[u8],
        source: u16,
        places: &[Place],
        within: Option<Within>,
        mut each: impl FnMut(&[u64]),
    ) -> Result<usize, Fault> {
        let block = Packed::open(payload)?;
        let mut parts = Parts::new(self.decompressor(), &block)?;
        let wish = Wish { source, places, within };
        let mut groups = Vec::with_capacity(block.groups.len());
        let mut wrong = 0;
        for group in block.groups {
            if group.layout() == wire::BlockLayout::Frames {
                wrong += group.frames() as usize;
            }
            groups.push(wish.open(group, &mut parts)?);
        }
        let mut values = vec![0; places.len()];
        let mut wanted = groups.iter().filter(|rows| !matches!(rows, Rows::None));
        match (wanted.next(), wanted.next()) {
            (None, _) => {}
            (Some(only), None) => match only.as_column() {
                Some(column) => column.iter().for_each(|value| each(std::slice::from_ref(value))),
                None => (0..only.count()).for_each(|row| wish.give(only, row, &mut values, &mut each)),
            },
            _ => {
                let mut cursors = vec![0; groups.len()];
                for group in block.order(&mut parts)? {
                    let (Some(cursor), Some(rows)) =
                        (cursors.get_mut(usize::from(group)), groups.get(usize::from(group)))
                    else {
                        continue;
                    };
                    wish.give(rows, *cursor, &mut values, &mut each);
                    *cursor += 1;
                }
            }
        }
        Ok(wrong)
    }
}

/// What is asked for.
struct Wish<'w> {
    source: u16,
    places: &'w [Place],
    within: Option<Within>,
}

impl Wish<'_> {
    fn open(&self, group: &wire::BlockGroup, parts: &mut Parts<'_>) -> Result<Rows, Fault> {
        let first_part = group.first_part() as usize;
        match group.layout() {
            wire::BlockLayout::Matrix if group.source() != self.source => Ok(Rows::None),
            wire::BlockLayout::Matrix => {
                let decoded = parts.matrix(group)?;
                self.table(decoded, |bucket| parts.any(first_part + 1 + bucket))
            }
            wire::BlockLayout::Payloads => {
                let lengths = parts.lengths(group)?;
                let bytes = parts.any(first_part + 1)?;
                let mut end = 0_usize;
                let places = lengths.iter().map(|length| {
                    let start = end;
                    end = end.saturating_add(*length as usize);
                    (start, *length as usize)
                });
                let places: Vec<(usize, usize)> = places.collect();
                if end != bytes.len() {
                    return Err(Fault::Group("has another length than its frames need"));
                }
                let payload = |(start, length): (usize, usize)| bytes.get(start..start + length);
                let is_own =
                    |place: &(usize, usize)| payload(*place).and_then(source_of) == Some(self.source);
                // Where it has none, only one group may be left, and then nobody needs the order.
                Ok(if places.iter().any(is_own) { Rows::Payloads(bytes, places) } else { Rows::None })
            }
            wire::BlockLayout::Frames => Ok(Rows::None),
            _ => Err(Fault::Group("has a layout that this build does not know")),
        }
    }

    fn table(
        &self,
        mut decoded: Decoded,
        bucket: impl FnMut(usize) -> Result<Vec<u8>, Fault>,
    ) -> Result<Rows, Fault> {
        let row_bytes = decoded.row_bytes() as u64;
        let tested = self.within.map(|within| within.place);
        if self.places.iter().chain(&tested).any(|place| place.end() > row_bytes) {
            return Ok(Rows::None);
        }
        if let Some(within) = self.within {
            let is_fixed = !decoded.may_change(within.place);
            let is_out = is_fixed && !within.holds(value_at(decoded.first(), within.place));
            if is_out || decoded.lanes().iter().any(|lane| within.excludes(lane)) {
                return Ok(Rows::None);
            }
        }
        let wanted: Vec<Place> = self.places.iter().chain(&tested).copied().collect();
        decoded.choose_places(&wanted);
        decoded.fill(bucket)?;
        let values = self.places.iter().map(|place| Value::of(*place, &decoded)).collect();
        let tested = tested.map(|place| Value::of(place, &decoded));
        Ok(Rows::Table(Box::new(Table { decoded, values, tested })))
    }

    fn give(&self, rows: &Rows, row: usize, values: &mut [u64], each: &mut impl FnMut(&[u64])) {
        match rows {
            Rows::None => return,
            Rows::Table(table) => {
                if let (Some(within), Some(tested)) = (&self.within, &table.tested)
                    && !within.holds(tested.get(&table.decoded, row))
                {
                    return;
                }
                for (to, value) in values.iter_mut().zip(&table.values) {
                    *to = value.get(&table.decoded, row);
                }
            }
            Rows::Payloads(bytes, places) => {
                let (start, length) = places.get(row).copied().unwrap_or_default();
                let payload = bytes.get(start..start + length).unwrap_or_default();
                let tested = self.within.map(|within| within.place);
                let is_short = |place: &Place| place.end() > length as u64;
                if source_of(payload) != Some(self.source)
                    || self.places.iter().chain(&tested).any(is_short)
                    || self.within.is_some_and(|within| !within.holds(value_at(payload, within.place)))
                {
                    return;
                }
                for (to, place) in values.iter_mut().zip(self.places) {
                    *to = value_at(payload, *place);
                }
            }
        }
        each(values);
    }
}

impl Rows {
    /// The values of the only place, of all rows, where a lane has nothing else.
    fn as_column(&self) -> Option<&[u64]> {
        let Self::Table(table) = self else { return None };
        match (table.values.as_slice(), &table.tested) {
            ([value], None) => value.as_column(&table.decoded),
            _ => None,
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Table(table) => table.decoded.rows(),
            Self::Payloads(_, places) => places.len(),
            Self::None => 0,
        }
    }
}

impl Value {
    pub(super) fn of(place: Place, decoded: &Decoded) -> Self {
        // No value is longer than eight bytes.
        let place = Place { bytes: place.bytes.min(8), ..place };
        let mut fixed = value_at(decoded.first(), place);
        let mut pieces = Vec::new();
        let whole = u64::MAX >> (64 - 8 * u32::from(place.bytes.clamp(1, 8)));
        for (lane, own) in decoded.lanes().iter().enumerate().filter(|(_, lane)| lane.place.meets(place)) {
            let own = own.place;
            let shift = 8 * (i64::from(own.at) - i64::from(place.at));
            // Two that meet are less than eight bytes apart.
            let shift = i32::try_from(shift).unwrap_or_default();
            let covered = u64::MAX >> (64 - 8 * u32::from(own.bytes));
            let mask = shifted(covered, shift) & whole;
            fixed &= !mask;
            pieces.push(Piece { lane, shift, mask });
        }
        let mut stretches = Vec::new();
        for (number, span) in decoded.spans().enumerate().filter(|(_, span)| span.meets(place)) {
            let (from, to) = (span.at.max(place.at), span.end().min(place.end()));
            let bytes = u8::try_from(to.saturating_sub(u64::from(from))).unwrap_or_default();
            let shift = 8 * (from - place.at);
            fixed &= !((u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8)))) << shift);
            let part = Place { at: from - span.at, bytes, kind: Kind::Unsigned };
            stretches.push(Stretch { span: number, part, shift });
        }
        Self { fixed, pieces, stretches }
    }

    /// The lane that is the value and nothing else.
    fn as_column<'d>(&self, decoded: &'d Decoded) -> Option<&'d [u64]> {
        let [Piece { lane, shift: 0, mask }] = self.pieces.as_slice() else { return None };
        let own = decoded.lanes().get(*lane)?.place;
        let is_whole = *mask == u64::MAX >> (64 - 8 * u32::from(own.bytes.clamp(1, 8)));
        decoded.column(*lane).filter(|_| is_whole && self.fixed == 0 && self.stretches.is_empty())
    }

    #[inline]
    pub(super) fn get(&self, decoded: &Decoded, row: usize) -> u64 {
        let value = self.pieces.iter().fold(self.fixed, |value, piece| {
            let own = decoded.column(piece.lane).and_then(|column| column.get(row)).copied();
            value | shifted(own.unwrap_or_default(), piece.shift) & piece.mask
        });
        self.stretches.iter().fold(value, |value, stretch| {
            value | value_at(decoded.span(stretch.span, row), stretch.part) << stretch.shift
        })
    }
}

#[inline]
fn shifted(bits: u64, shift: i32) -> u64 {
    if shift < 0 { bits >> shift.unsigned_abs() } else { bits << shift }
}
