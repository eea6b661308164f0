//! A matrix as it is read: its first row, its lanes, and the columns of those that are wanted.

use super::directory::{ALONE, Directory, Lane, Span, buckets, take, value_at};
use super::error::Fault;
use super::wanted::{Choice, Place, Wanted};
use crate::schema::envelope;

/// Bytes at the front of every telemetry frame's payload, up to its header: they are the same in all.
const FRONT_BYTES: usize = envelope::HEADER_AT;

/// A matrix in the making.
#[derive(Debug)]
pub(super) struct Decoded {
    rows: usize,
    first: Vec<u8>,
    lanes: Vec<Lane>,
    buckets: Vec<usize>,
    /// Whether each lane is wanted.
    wanted: Vec<bool>,
    /// Where each lane's column is, if it is wanted: number of a stretch of `columns`.
    stretches: Vec<Option<usize>>,
    columns: Vec<u64>, // one behind the other, `rows` each
    patches: Vec<Patch>,
    spans: Vec<Stretch>,
}

/// A span, and what rows have of it.
#[derive(Debug)]
struct Stretch {
    span: Span,
    is_wanted: bool,
    bytes: Vec<u8>, // of all rows but the first, one behind the other; nothing if it is not wanted
}

/// What a row has else than the first one.
#[derive(Debug, Clone, Copy)]
struct Patch {
    at: usize,
    bytes: u8,
    column: usize, // where it begins in `columns`
}

impl Decoded {
    /// From the unpacked directory of a group.
    pub(super) fn open(directory: &[u8], rows: usize, row_bytes: usize) -> Result<Self, Fault> {
        let (first, rest) =
            directory.split_at_checked(row_bytes).ok_or(Fault::Group("has less than its first row"))?;
        let Directory { lanes, spans } = take(rest, first)?;
        // The front says what kind of frame it is; a block among rows could not be told otherwise.
        let is_fixed = lanes.iter().all(|lane| lane.place.at as usize >= FRONT_BYTES)
            && spans.iter().all(|span| span.at as usize >= FRONT_BYTES);
        if !is_fixed || first.get(..FRONT_BYTES) != envelope::PREFIX.get(..FRONT_BYTES) {
            return Err(Fault::Group("has rows that are no telemetry frames"));
        }
        Ok(Self {
            rows,
            first: first.to_vec(),
            buckets: buckets(&lanes),
            wanted: vec![true; lanes.len()],
            stretches: vec![None; lanes.len()],
            lanes,
            columns: Vec::new(),
            patches: Vec::new(),
            spans: spans
                .into_iter()
                .map(|span| Stretch { span, is_wanted: true, bytes: Vec::new() })
                .collect(),
        })
    }

    /// Length of a row.
    pub(super) fn row_bytes(&self) -> usize {
        self.first.len()
    }

    /// How many rows it has.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// How many buckets it has: of lanes, then one for each span.
    pub(super) fn buckets(&self) -> usize {
        self.lane_buckets() + self.spans.len()
    }

    fn lane_buckets(&self) -> usize {
        self.buckets.len() - 1
    }

    /// Its first row.
    pub(super) fn first(&self) -> &[u8] {
        &self.first
    }

    /// Its lanes, in the order of their places.
    pub(super) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Its spans, in the order of their places.
    pub(super) fn spans(&self) -> impl ExactSizeIterator<Item = Span> {
        self.spans.iter().map(|stretch| stretch.span)
    }

    /// Whether a value at a place may differ from row to row.
    pub(super) fn may_change(&self, place: Place) -> bool {
        self.lanes.iter().any(|lane| lane.place.meets(place)) || self.spans().any(|span| span.meets(place))
    }

    /// Chooses which lanes and spans will be unpacked.
    pub(super) fn choose(&mut self, source: u16, wanted: &Wanted<'_>) {
        let Choice::Places { steady, values } = wanted.of(source, &self.first) else { return };
        if !steady.iter().any(|place| self.may_change(*place)) {
            self.choose_places(&values);
        }
    }

    /// Chooses the lanes and spans that meet these places.
    pub(super) fn choose_places(&mut self, places: &[Place]) {
        for (wanted, lane) in self.wanted.iter_mut().zip(&self.lanes) {
            *wanted = places.iter().any(|place| lane.place.meets(*place));
        }
        for stretch in &mut self.spans {
            stretch.is_wanted = places.iter().any(|place| stretch.span.meets(*place));
        }
    }

    /// Reads the columns that are wanted. `bucket` unpacks the bucket with a number.
    pub(super) fn fill(
        &mut self,
        mut bucket: impl FnMut(usize) -> Result<Vec<u8>, Fault>,
    ) -> Result<(), Fault> {
        let mut needed = self.wanted.clone();
        for (lane, _) in
            self.lanes.iter().zip(&self.wanted).filter(|(lane, wanted)| **wanted && lane.follows != ALONE)
        {
            if let Some(leader) = needed.get_mut(usize::from(lane.follows)) {
                *leader = true;
            }
        }
        let count = needed.iter().filter(|needed| **needed).count();
        self.columns.clear();
        self.columns.resize(count * self.rows, 0);
        let mut next = 0;
        for number in 0..self.lane_buckets() {
            let (from, to) = (self.start(number), self.start(number + 1));
            if needed.get(from..to).is_some_and(|needed| needed.contains(&true)) {
                let alone = self.lanes.get(from..to).unwrap_or_default();
                // Lanes that follow others need no bytes of their own bucket.
                let is_needed = |(lane, needed): (&Lane, &bool)| *needed && lane.follows == ALONE;
                let bytes = if alone.iter().zip(needed.get(from..to).unwrap_or_default()).any(is_needed) {
                    bucket(number)?
                } else {
                    Vec::new()
                };
                self.fill_bucket(from..to, &bytes, &needed, &mut next)?;
            }
        }
        self.patches.clear();
        for (number, lane) in self.lanes.iter().enumerate() {
            if let (Some(true), Some(Some(stretch))) = (self.wanted.get(number), self.stretches.get(number)) {
                let (at, bytes) = (lane.place.at as usize, lane.place.bytes);
                self.patches.push(Patch { at, bytes, column: stretch * self.rows });
            }
        }
        let lane_buckets = self.lane_buckets();
        for (number, stretch) in self.spans.iter_mut().enumerate().filter(|(_, stretch)| stretch.is_wanted) {
            stretch.bytes = bucket(lane_buckets + number)?;
            if stretch.bytes.len() != (self.rows - 1) * stretch.span.bytes as usize {
                return Err(Fault::Group("has a span of another length than its rows need"));
            }
        }
        Ok(())
    }

    fn start(&self, bucket: usize) -> usize {
        self.buckets.get(bucket).copied().unwrap_or(self.lanes.len())
    }

    fn fill_bucket(
        &mut self,
        lanes: std::ops::Range<usize>,
        bytes: &[u8],
        needed: &[bool],
        next: &mut usize,
    ) -> Result<(), Fault> {
        const LENGTH: Fault = Fault::Lane("has another length than its bucket says");
        let mut rest = bytes;
        for number in lanes {
            let Some(lane) = self.lanes.get(number) else { return Err(LENGTH) };
            let own = if lane.follows == ALONE && !bytes.is_empty() {
                let (own, behind) = rest.split_at_checked(lane.bytes as usize).ok_or(LENGTH)?;
                rest = behind;
                own
            } else {
                &[]
            };
            if needed.get(number) != Some(&true) {
                continue;
            }
            let (before, column) = self.columns.split_at_mut(*next * self.rows);
            let column = column.get_mut(..self.rows).ok_or(LENGTH)?;
            if lane.follows == ALONE {
                lane.coding.decode(own, lane.place.bytes, column)?;
            } else {
                let leader =
                    self.stretches.get(usize::from(lane.follows)).copied().flatten().ok_or(LENGTH)?;
                let leader = before.get(leader * self.rows..).unwrap_or_default();
                let apart = value_at(&self.first, lane.place)
                    .wrapping_sub(leader.first().copied().unwrap_or_default());
                column.iter_mut().zip(leader).for_each(|(value, leader)| *value = leader.wrapping_add(apart));
            }
            if let Some(stretch) = self.stretches.get_mut(number) {
                *stretch = Some(*next);
            }
            *next += 1;
        }
        if rest.is_empty() { Ok(()) } else { Err(LENGTH) }
    }

    /// The bytes of a row in the span with a number, if it was wanted.
    #[inline]
    pub(super) fn span(&self, span: usize, row: usize) -> &[u8] {
        self.spans.get(span).map_or(&[], |stretch| stretch.of(row, &self.first))
    }

    /// Writes a row; `to` has its length.
    #[inline]
    pub(super) fn row(&self, number: usize, to: &mut [u8]) {
        to.copy_from_slice(&self.first);
        self.patch(number, to);
    }

    /// Makes a row of any other one, as far as lanes are wanted.
    #[inline]
    pub(super) fn patch(&self, number: usize, to: &mut [u8]) {
        for patch in &self.patches {
            let value = self.columns.get(patch.column + number).copied().unwrap_or_default().to_le_bytes();
            let rest = to.get_mut(patch.at..).unwrap_or_default();
            match patch.bytes {
                8 => {
                    if let Some(place) = rest.first_chunk_mut() {
                        *place = value;
                    }
                }
                4 => {
                    if let (Some(place), Some(value)) = (rest.first_chunk_mut::<4>(), value.first_chunk()) {
                        *place = *value;
                    }
                }
                bytes => {
                    let value = value.iter().take(usize::from(bytes));
                    rest.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
                }
            }
        }
        for stretch in self.spans.iter().filter(|stretch| stretch.is_wanted) {
            let own = stretch.of(number, &self.first);
            let at = stretch.span.at as usize;
            if let Some(to) = to.get_mut(at..at + own.len()) {
                to.copy_from_slice(own);
            }
        }
    }

    /// The column of a lane that was wanted.
    pub(super) fn column(&self, lane: usize) -> Option<&[u64]> {
        let stretch = self.stretches.get(lane).copied().flatten()?;
        self.columns.get(stretch * self.rows..)?.get(..self.rows)
    }
}

impl Stretch {
    /// What a row has of it. The first one's stands in the first row itself.
    #[inline]
    fn of<'s>(&'s self, row: usize, first: &'s [u8]) -> &'s [u8] {
        let Some(before) = row.checked_sub(1) else { return self.span.of(first) };
        let length = self.span.bytes as usize;
        self.bytes.get(before * length..).and_then(|rest| rest.get(..length)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::directory::put;
    use crate::block::wanted::Kind;

    /// A matrix of three rows with one span of 40 bytes at a place.
    fn opened(at: u32) -> Result<Decoded, Fault> {
        let mut first = envelope::PREFIX.to_vec();
        first.resize(120, 7);
        let mut directory = first.clone();
        put(&[Span { at, bytes: 40 }], &[], &first, &mut directory);
        Decoded::open(&directory, 3, 120)
    }

    #[test]
    fn spans_are_as_long_as_their_rows_and_behind_the_front() {
        // Goal: a span's rows are those of its part, behind the first one, and its part has their length; none changes what kind of frame a row is.
        // Method: a part that is right, too short, too long; one that is not asked for; a span in the front.
        let part: Vec<u8> = (0..80).collect();
        let mut decoded = opened(70).unwrap();
        assert_eq!((decoded.buckets(), decoded.row_bytes()), (1, 120));
        decoded.fill(|bucket| Ok(part[bucket..].to_vec())).unwrap();
        let mut row = vec![0; 120];
        decoded.row(2, &mut row);
        assert_eq!(
            (&row[..70], &row[70..110], &row[110..]),
            (&decoded.first()[..70], &part[40..], &[7; 10][..])
        );
        decoded.patch(0, &mut row);
        assert_eq!(row, decoded.first());
        for length in [0, 79, 81, 120] {
            let fault = opened(70).unwrap().fill(|_| Ok(vec![0; length])).unwrap_err();
            assert!(fault.to_string().contains("span"), "{fault}");
        }
        let place = |at| Place { at, bytes: 8, kind: Kind::Unsigned };
        assert!(decoded.may_change(place(109)) && !decoded.may_change(place(110)));
        decoded.choose_places(&[place(62), place(110)]);
        decoded.fill(|_| panic!("nothing is wanted")).unwrap();
        assert!(opened(24).is_ok() && opened(23).is_err());
    }
}
