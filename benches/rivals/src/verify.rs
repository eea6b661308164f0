//! A verifier of FlatBuffers that looks at a vtable once: what the crate's own verifier checks, table for table.
//!
//! The crate's verifier takes every field of every table through its vtable and hands a large error from call to call; by
//! profile it spends most of its time there. Tables of a vector mostly share a vtable, so that where their fields stand,
//! and that these lie within the table, need be found out for the first alone.

use std::iter::StepBy;
use std::ops::Range;

/// Bytes of an offset, and of a length.
const OFFSET_BYTES: usize = 4;
/// Most bytes that may be visited: what is shared counts each time, so that no buffer can cost more than its limit. That of
/// the crate.
const VISITED_BYTES_MAX: usize = 1 << 31;
/// Most tables, as the crate has it.
const TABLES_MAX: usize = 1_000_000;

/// What has been verified of a buffer. All answers are none where the buffer is wrong.
pub struct Verifier<'a> {
    bytes: &'a [u8],
    visited: usize,
    tables: usize,
}

/// Where the fields of a table stand by the vtable that was seen last.
pub struct Layout<const FIELDS: usize> {
    /// For each field its place in the vtable, and its bytes, which are its alignment too.
    fields: &'static [(u16, u8); FIELDS],
    /// From the table to each field; 0 if it has none.
    places: [u16; FIELDS],
    /// Of the vtable; nothing stands at the end of memory.
    vtable: usize,
    vtable_bytes: usize,
    /// Of the first table with it: alignment holds for all that stand alike within 8 bytes.
    table: usize,
    /// From the table to the end of its last field.
    end: usize,
}

impl<const FIELDS: usize> Layout<FIELDS> {
    /// A table of these fields, no vtable of which has been seen.
    pub fn of(fields: &'static [(u16, u8); FIELDS]) -> Self {
        Self { fields, places: [0; FIELDS], vtable: usize::MAX, vtable_bytes: 0, table: 0, end: 0 }
    }
}

impl<'a> Verifier<'a> {
    /// Of a buffer nothing of which has been verified.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, visited: 0, tables: 0 }
    }

    /// Where the offset that stands at `at` leads to.
    #[inline]
    pub fn target(&self, at: usize) -> Option<usize> {
        Some(at + self.offset(at)? as usize)
    }

    /// Where the fields of the table at `table` stand, from its start; 0 for one that it has not.
    #[inline]
    pub fn table<const FIELDS: usize>(
        &mut self,
        table: usize,
        layout: &mut Layout<FIELDS>,
    ) -> Option<[u16; FIELDS]> {
        let back = self.offset(table)? as i32;
        let vtable = table.checked_add_signed(-(back as isize))?;
        if vtable != layout.vtable || (table ^ layout.table) % 8 != 0 {
            self.learn(table, vtable, layout)?;
        }
        self.tables += 1;
        if self.tables > TABLES_MAX || table + layout.end > self.bytes.len() {
            return None;
        }
        self.visit(layout.vtable_bytes + layout.end)?;
        Some(layout.places)
    }

    /// Looks at a vtable.
    #[inline(never)]
    fn learn<const FIELDS: usize>(
        &self,
        table: usize,
        vtable: usize,
        layout: &mut Layout<FIELDS>,
    ) -> Option<()> {
        let vtable_bytes = usize::from(self.short(vtable)?);
        if vtable % 2 != 0 || vtable_bytes % 2 != 0 || vtable + vtable_bytes > self.bytes.len() {
            return None;
        }
        let mut end = OFFSET_BYTES;
        for (place, &(entry, bytes)) in layout.places.iter_mut().zip(layout.fields) {
            let (entry, bytes) = (usize::from(entry), usize::from(bytes));
            *place = if entry < vtable_bytes { self.short(vtable + entry)? } else { 0 };
            if *place != 0 {
                if (table + usize::from(*place)) % bytes != 0 {
                    return None;
                }
                end = end.max(usize::from(*place) + bytes);
            }
        }
        (layout.vtable, layout.vtable_bytes, layout.table, layout.end) = (vtable, vtable_bytes, table, end);
        Some(())
    }

    /// The text in the field at `place` of a table, if it has one: it is UTF-8 and a zero stands behind it.
    #[inline]
    pub fn text(&mut self, table: usize, place: u16) -> Option<()> {
        if place == 0 {
            return Some(());
        }
        let at = self.target(table + usize::from(place))?;
        let length = self.offset(at)? as usize;
        let text = self.bytes.get(at + OFFSET_BYTES..)?;
        let (text, behind) = text.split_at_checked(length)?;
        self.visit(length)?;
        let is_text = text.is_ascii() || std::str::from_utf8(text).is_ok();
        (is_text && behind.first() == Some(&0)).then_some(())
    }

    /// Where the offsets of the vector stand that is in the field at `place` of a table; none if it has none.
    pub fn vector(&mut self, table: usize, place: u16) -> Option<StepBy<Range<usize>>> {
        if place == 0 {
            return Some((0..0).step_by(OFFSET_BYTES));
        }
        let at = self.target(table + usize::from(place))?;
        let bytes = OFFSET_BYTES * self.offset(at)? as usize;
        let start = at + OFFSET_BYTES;
        self.visit(bytes)?;
        (start + bytes <= self.bytes.len()).then(|| (start..start + bytes).step_by(OFFSET_BYTES))
    }

    #[inline]
    fn visit(&mut self, bytes: usize) -> Option<()> {
        self.visited += bytes;
        (self.visited <= VISITED_BYTES_MAX).then_some(())
    }

    /// The offset or length at `at`.
    #[inline]
    fn offset(&self, at: usize) -> Option<u32> {
        if at % OFFSET_BYTES != 0 {
            return None;
        }
        self.bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    #[inline]
    fn short(&self, at: usize) -> Option<u16> {
        self.bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
    }
}
