//! Which frames of a run lie together? Those of one source and length as rows of a matrix, others one behind the other.

use std::collections::{BTreeMap, HashMap};
use std::io;

use super::directory::LANES_MAX;
use super::payloads::Payloads;
use super::way::{Layout, Way, Ways};
use crate::schema::envelope;
use crate::stream::ChecksumKind;

/// Rows in a matrix at most.
pub(super) const ROWS_MAX: usize = 1 << 16;
/// Longest row of a matrix: every four bytes of it may be a lane. Longer frames lie one behind the other.
const ROW_BYTES_MAX: u32 = 4 * LANES_MAX;
/// Fewer rows than this are not worth a matrix of their own.
const ROWS_MIN: usize = 8;
/// Lists that are told apart; frames of other shapes lie one behind the other.
const LISTS_MAX: usize = 4096;
/// The identifier of a Block, in its payload.
const BLOCK: &[u8] = b"FCBK";

/// What frames of a list have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// Their source and the length of their payloads.
    Rows { source: u16, row_bytes: u32 },
    /// Nothing but that they are packed in the same way.
    Any(Way),
    /// Wrong checksums.
    Wrong,
}

/// Frames that become one group.
#[derive(Debug)]
pub(super) struct List {
    pub(super) shape: Shape,
    pub(super) way: Way,
    /// Offsets and lengths of their payloads.
    pub(super) rows: Vec<(u32, u32)>,
    /// Number of the list that the frame behind one of this list was in last.
    next: usize,
}

impl List {
    fn is_full(&self) -> bool {
        matches!(self.shape, Shape::Rows { .. }) && self.rows.len() >= ROWS_MAX
    }
}

/// Which right frames of a source are in the list of the one before without looking for it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Steady {
    #[default]
    None,
    /// Those with a payload of this length.
    Rows(u32),
    All,
}

/// What is known of a frame: where its payload is, and whose.
#[derive(Clone, Copy)]
struct Seen {
    at: usize,
    bytes: usize,
    source: Option<u16>,
    is_right: bool,
}

/// Frames, sorted. Keeps its memory from run to run.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    shapes: HashMap<Shape, usize>,
    /// Frames that lie together.
    pub(super) lists: Vec<List>,
    /// For each frame the number of its list.
    pub(super) order: Vec<u16>,
    /// Length of whole frames, by source.
    pub(super) sources: Vec<(u16, u64)>,
    last: usize,                 // list of the frame before
    source: Option<u16>,         // its source
    steady: Steady,              // and which of that source's right frames are in that list too
    spare: Vec<(u32, u32)>,      // what the longest list had its rows in
    sums: BTreeMap<u16, u64>,    // length of whole frames by source, but for those in rows of a matrix and
    running: Option<(u16, u64)>, // those of the latest source since another one's
}

/// Whether a payload calls itself a Block.
pub(super) fn is_block(payload: &[u8]) -> bool {
    payload.get(4..8) == Some(BLOCK)
}

/// The source of a payload: none where it is no telemetry frame of the fixed shape.
pub(super) fn source_of(payload: &[u8]) -> Option<u16> {
    envelope::split(payload).map(|(header, _)| header.source())
}

impl Sorter {
    /// Finds out what kind of frame each is.
    ///
    /// # Errors
    /// `InvalidData`: the bytes are not whole frames, or one of them is a Block.
    pub(super) fn sort(&mut self, frames: &[u8], checksum: ChecksumKind, ways: &Ways) -> io::Result<()> {
        self.clear();
        let head_bytes = checksum.frame_bytes(0);
        let mut at = 0;
        while at < frames.len() {
            let (head, payload) = split(frames, at, head_bytes)?;
            let right = checksum.calculate(payload).to_le_bytes();
            let is_right = head.iter().skip(4).eq(right.iter().take(head_bytes - 4));
            if is_block(payload) {
                return Err(nested(at));
            }
            let source = if is_right { source_of(payload) } else { None };
            let place = at + head_bytes;
            self.add(Seen { at: place, bytes: payload.len(), source, is_right }, head_bytes, ways)?;
            at = place + payload.len();
        }
        self.end(head_bytes);
        Ok(())
    }

    /// The same of payloads whose frames are right, wherever they are.
    ///
    /// # Errors
    /// `InvalidData`: one of them is a Block.
    pub(super) fn sort_payloads(
        &mut self,
        payloads: &Payloads,
        checksum: ChecksumKind,
        ways: &Ways,
    ) -> io::Result<()> {
        self.clear();
        let head_bytes = checksum.frame_bytes(0);
        let (mut at, mut rest, mut lengths) = (0, payloads.bytes(), payloads.lengths());
        while let Some((length, others)) = lengths.split_first() {
            let bytes = *length as usize;
            let (payload, behind) = rest.split_at_checked(bytes).unwrap_or_default();
            if is_block(payload) {
                return Err(nested(at + self.order.len() * head_bytes));
            }
            let seen = Seen { at, bytes, source: source_of(payload), is_right: true };
            self.add(seen, head_bytes, ways)?;
            (at, rest, lengths) = (at + bytes, behind, others);
            let (count, bytes) = self.add_run(at, rest, lengths, head_bytes);
            at += bytes;
            rest = rest.get(bytes..).unwrap_or_default();
            lengths = lengths.get(count..).unwrap_or_default();
        }
        self.end(head_bytes);
        Ok(())
    }

    /// Adds payloads for as long as they are in the list of the one before without looking for it. Tells how many, and of how many bytes.
    fn add_run(&mut self, mut at: usize, bytes: &[u8], lengths: &[u32], head_bytes: usize) -> (usize, usize) {
        let Some(list) = self.lists.get_mut(self.last) else { return (0, 0) };
        let (room, row_bytes) = match self.steady {
            Steady::None => return (0, 0),
            Steady::Rows(row_bytes) => (ROWS_MAX.saturating_sub(list.rows.len()), Some(row_bytes)),
            Steady::All => (usize::MAX, None),
        };
        let (first, mut rest) = (list.rows.len(), bytes);
        for length in lengths.iter().take(room) {
            let Some((payload, behind)) = rest.split_at_checked(*length as usize) else { break };
            let Ok(place) = u32::try_from(at) else { break };
            let is_like = row_bytes.is_none_or(|bytes| bytes == *length);
            if !is_like || is_block(payload) || source_of(payload) != self.source {
                break;
            }
            list.rows.push((place, *length));
            at += payload.len();
            rest = behind;
        }
        let (count, bytes) = (list.rows.len() - first, bytes.len() - rest.len());
        // The number was one that fits when the one before was added.
        let number = self.order.last().copied().unwrap_or_default();
        self.order.resize(self.order.len() + count, number);
        if list.is_full() {
            self.steady = Steady::None;
        }
        // Rows of a matrix are added up at the end.
        if let (Some(source), None) = (self.source, row_bytes) {
            *self.sums.entry(source).or_default() += (count * head_bytes + bytes) as u64;
        }
        (count, bytes)
    }

    fn clear(&mut self) {
        let longest = self.lists.drain(..).map(|list| list.rows).max_by_key(Vec::capacity);
        if let Some(rows) = longest.filter(|rows| rows.capacity() > self.spare.capacity()) {
            self.spare = rows;
        }
        self.spare.clear();
        self.shapes.clear();
        self.order.clear();
        self.sources.clear();
        self.sums.clear();
        self.running = None;
        self.last = 0;
        self.steady = Steady::None;
    }

    #[inline]
    fn add(&mut self, seen: Seen, head_bytes: usize, ways: &Ways) -> io::Result<()> {
        let row_bytes = u32::try_from(seen.bytes).map_err(io::Error::other)?;
        let place = u32::try_from(seen.at).map_err(io::Error::other)?;
        let is_steady = match self.steady {
            Steady::None => false,
            Steady::Rows(bytes) => bytes == row_bytes,
            Steady::All => true,
        };
        if !is_steady || self.source != seen.source || !seen.is_right {
            self.last = self.list(seen, row_bytes, ways);
            self.source = seen.source;
            let shape = self.lists.get(self.last).map(|list| list.shape);
            self.steady = match shape {
                Some(Shape::Rows { row_bytes, .. }) => Steady::Rows(row_bytes),
                Some(Shape::Any(way)) if way.layout == Layout::Row => Steady::All,
                _ => Steady::None,
            };
        }
        let number = self.last;
        self.order.push(u16::try_from(number).map_err(io::Error::other)?);
        let Some(list) = self.lists.get_mut(number) else { return Ok(()) };
        list.rows.push((place, row_bytes));
        if list.is_full() {
            self.steady = Steady::None;
        }
        if let (Some(source), Shape::Any(_)) = (seen.source, list.shape) {
            let frame_bytes = (head_bytes + seen.bytes) as u64;
            match &mut self.running {
                Some((running, sum)) if *running == source => *sum += frame_bytes,
                other => {
                    if let Some((source, sum)) = other.replace((source, frame_bytes)) {
                        *self.sums.entry(source).or_default() += sum;
                    }
                }
            }
        }
        Ok(())
    }

    /// Number of the list for a payload. Frames of a shape follow each other, or sources take turns, so the list behind the last one is
    /// tried first.
    #[inline]
    fn list(&mut self, seen: Seen, row_bytes: u32, ways: &Ways) -> usize {
        let Seen { source, is_right, .. } = seen;
        let way = if is_right { ways.of(source) } else { ways.general };
        let shape = match source {
            _ if !is_right => Shape::Wrong,
            Some(source) if way.layout == Layout::Columnar && row_bytes <= ROW_BYTES_MAX => {
                Shape::Rows { source, row_bytes }
            }
            _ => Shape::Any(way),
        };
        let guess = self.lists.get(self.last).map_or(0, |list| list.next);
        match self.lists.get(guess) {
            Some(list) if list.shape == shape && !list.is_full() => guess,
            _ => self.find(shape, way),
        }
    }

    /// Number of the list for a shape, which is made if there is none.
    fn find(&mut self, mut shape: Shape, way: Way) -> usize {
        if self.lists.len() >= LISTS_MAX && !self.shapes.contains_key(&shape) && shape != Shape::Wrong {
            shape = Shape::Any(way);
        }
        let next = self.lists.len();
        let mut number = *self.shapes.entry(shape).or_insert(next);
        if self.lists.get(number).is_some_and(List::is_full) {
            self.shapes.insert(shape, next);
            number = next;
        }
        if number == next {
            self.lists.push(List { shape, way, rows: std::mem::take(&mut self.spare), next });
        }
        if let Some(list) = self.lists.get_mut(self.last) {
            list.next = number;
        }
        number
    }

    /// Adds up the lengths of whole frames, by source, and joins what are only a few.
    fn end(&mut self, head_bytes: usize) {
        if let Some((source, sum)) = self.running.take() {
            *self.sums.entry(source).or_default() += sum;
        }
        for list in &self.lists {
            if let Shape::Rows { source, row_bytes } = list.shape {
                let sum = list.rows.len() * (head_bytes + row_bytes as usize);
                *self.sums.entry(source).or_default() += sum as u64;
            }
        }
        self.sources.extend(std::mem::take(&mut self.sums));
        self.join_few();
    }

    /// Shapes that only a few frames have go together.
    fn join_few(&mut self) {
        let is_few = |list: &List| matches!(list.shape, Shape::Rows { .. }) && list.rows.len() < ROWS_MIN;
        if !self.lists.iter().any(is_few) {
            return;
        }
        let mut numbers = Vec::with_capacity(self.lists.len());
        let mut kept: Vec<List> = Vec::new();
        for mut list in self.lists.drain(..) {
            if is_few(&list) {
                list.shape = Shape::Any(list.way);
            }
            let same = |kept: &List| kept.shape == list.shape && !matches!(list.shape, Shape::Rows { .. });
            if let Some(number) = kept.iter().position(same) {
                if let Some(kept) = kept.get_mut(number) {
                    kept.rows.append(&mut list.rows);
                }
                numbers.push(number);
            } else {
                numbers.push(kept.len());
                kept.push(list);
            }
        }
        for list in &mut kept {
            // In the order of the frames: a reader takes them one after the other.
            if !matches!(list.shape, Shape::Rows { .. }) {
                list.rows.sort_unstable();
            }
        }
        self.lists = kept;
        for list in &mut self.order {
            let number = numbers.get(usize::from(*list)).copied().unwrap_or_default();
            *list = u16::try_from(number).unwrap_or_default();
        }
    }
}

/// The header and the payload of the frame at `at`.
fn split(frames: &[u8], at: usize, head_bytes: usize) -> io::Result<(&[u8], &[u8])> {
    let rest = frames.get(at..).unwrap_or_default();
    let length = rest.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    length
        .and_then(|length| rest.get(..length.checked_add(head_bytes)?)?.split_at_checked(head_bytes))
        .ok_or_else(|| {
            invalid(format!("the run of frames has no whole frame at {at}; a block is made of whole frames"))
        })
}

fn nested(at: usize) -> io::Error {
    invalid(format!("the frame at {at} of the run is a block, and a block holds no blocks"))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
