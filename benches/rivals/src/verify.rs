//! A FlatBuffers verifier that checks a vtable once. It checks the same as the crate's own
//! verifier.
//!
//! The crate's verifier looks up every field of every table in its vtable and passes a large error
//! type from call to call; by profile it spends most of its time there. The tables of a vector
//! mostly share a vtable, so the positions of the fields, and that these are within the table, need
//! to be checked only for the first one.

use std::iter::StepBy;
use std::ops::Range;

/// Bytes of an offset, and of a length.
const OFFSET_BYTES: usize = 4;
/// Maximum number of bytes visited, the same as in the crate. Shared data counts each time, so that
/// no buffer costs more than this.
const VISITED_BYTES_MAX: usize = 1 << 31;
/// Maximum number of tables, the same as in the crate.
const TABLES_MAX: usize = 1_000_000;

/// The verification state of a buffer. All methods return none if the buffer is invalid.
pub struct Verifier<'a> {
    bytes: &'a [u8],
    visited: usize,
    tables: usize,
}

/// Positions of the fields of a table by the last vtable.
pub struct Layout<const FIELDS: usize> {
    /// For each field its slot in the vtable, and its size, which is its alignment, too.
    fields: &'static [(u16, u8); FIELDS],
    /// From the table to each field; 0 if it is absent.
    places: [u16; FIELDS],
    /// Position of the vtable; none is at the largest address.
    vtable: usize,
    vtable_bytes: usize,
    /// Position of the first table with this vtable: its alignment holds for all tables congruent
    /// modulo 8.
    table: usize,
    /// From the table to the end of its last field.
    end: usize,
}

impl<const FIELDS: usize> Layout<FIELDS> {
    /// A table of these fields, before any vtable was checked.
    pub fn of(fields: &'static [(u16, u8); FIELDS]) -> Self {
        Self { fields, places: [0; FIELDS], vtable: usize::MAX, vtable_bytes: 0, table: 0, end: 0 }
    }
}

impl<'a> Verifier<'a> {
    /// Starts verifying a buffer.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, visited: 0, tables: 0 }
    }

    /// Returns the target of the offset at `at`.
    #[inline]
    pub fn target(&self, at: usize) -> Option<usize> {
        Some(at + self.offset(at)? as usize)
    }

    /// Returns the positions of the fields of the table at `table`, from its start; 0 for absent
    /// ones.
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

    /// Checks a vtable.
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

    /// Checks the text in a field of a table, if present: it must be UTF-8 followed by a zero byte.
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

    /// Returns the positions of the offsets in the vector in a field of a table; none if it is
    /// absent.
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

    /// Returns the offset or length at `at`.
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
