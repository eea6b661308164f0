//! Finds the bytes of a payload that a projection reads.
//!
//! If payloads of one layout are stored in columns, no columns of other bytes are needed to read
//! the same values.

use std::ops::Range;

use super::bytes::{
    BoxedDecodeError, UOFFSET_BYTES, field_offset, follow, out_of_bounds, read_length, vtable,
};
use super::error::DecodeError;
use super::projection::{FieldAccess, ProjectedField, ProjectedScalar, Projection};

/// The bytes of a payload that a [`Projection`] reads, as ranges in reading order. Ranges may touch
/// and repeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AccessedBytes {
    /// Offsets, vtables and lengths of lists, which determine the locations of the values. A
    /// payload of the same length with the same bytes here has its values at the same locations.
    pub structure: Vec<Range<usize>>,
    /// The values.
    pub values: Vec<Range<usize>>,
}

impl Projection {
    /// Returns the bytes that [`read`](Self::read) reads in this payload.
    ///
    /// # Errors
    /// The errors of `read` for an offset that leads out of the payload.
    pub(crate) fn accessed_bytes(&self, payload: &[u8]) -> Result<AccessedBytes, DecodeError> {
        let mut tracker = AccessTracker { payload, accessed: AccessedBytes::default() };
        let reached = tracker.follow(0).and_then(|at| tracker.table(&self.fields, at));
        reached.map_err(|failure| *failure.0)?;
        Ok(tracker.accessed)
    }
}

struct AccessTracker<'r> {
    payload: &'r [u8],
    accessed: AccessedBytes,
}

impl AccessTracker<'_> {
    /// Follows the offset at `at` and records it.
    fn follow(&mut self, at: usize) -> Result<usize, BoxedDecodeError> {
        let to = follow(self.payload, at)?;
        self.accessed.structure.push(at..at + UOFFSET_BYTES);
        Ok(to)
    }

    fn table(&mut self, fields: &[ProjectedField], at: usize) -> Result<(), BoxedDecodeError> {
        let own = vtable(self.payload, at)?;
        // `own` is a part of the payload, so the difference of the addresses is its offset and does
        // not underflow.
        let start = own.as_ptr().addr() - self.payload.as_ptr().addr();
        self.accessed.structure.push(at..at + UOFFSET_BYTES);
        // The whole vtable is recorded: its length also determines which fields are absent.
        self.accessed.structure.push(start..start + own.len());
        for field in fields {
            let offset = field_offset(own, field.at);
            // An absent field reads as its default, which no byte outside the vtable affects.
            if offset != 0 {
                self.access(&field.access, at.saturating_add(offset))
                    .map_err(|failure| failure.or_path(&field.path))?;
            }
        }
        Ok(())
    }

    fn access(&mut self, way: &FieldAccess, at: usize) -> Result<(), BoxedDecodeError> {
        match way {
            FieldAccess::Fixed(leaves) => leaves.iter().try_for_each(|leaf| self.leaf(leaf, at)),
            FieldAccess::Table(slots) => {
                let at = self.follow(at)?;
                self.table(slots, at)
            }
            FieldAccess::Vector { stride, elements } => {
                let at = self.follow(at)?;
                let length = read_length(self.payload, at)?;
                self.accessed.structure.push(at..at + UOFFSET_BYTES);
                // An element after the end is absent. Only the length determines that, and it is
                // recorded above.
                elements.iter().filter(|element| element.index < length).try_for_each(|element| {
                    let at = at
                        .saturating_add(UOFFSET_BYTES)
                        .saturating_add(element.index.saturating_mul(*stride));
                    self.access(&element.access, at)
                })
            }
        }
    }

    fn leaf(&mut self, leaf: &ProjectedScalar, at: usize) -> Result<(), BoxedDecodeError> {
        let at = at.saturating_add(leaf.at);
        // Offsets saturate: a sum that overflows is past the end of any payload and is rejected
        // here.
        let end = at.saturating_add(leaf.scalar.size());
        if end > self.payload.len() {
            return Err(out_of_bounds(at).or_path(&leaf.path));
        }
        self.accessed.values.push(at..end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_PAYLOAD, marked, shapes};
    use super::super::value::FieldValue;

    // Proves that no other byte affects the values, by inverting all other bytes, and that each
    // byte of a value does.
    #[test]
    fn only_accessed_bytes_decide_the_values() {
        let cases = [
            (marked(), MARKED_PAYLOAD, ["total.user", "cores.0.times.user", "unit.heat", "cores.7.id"]),
            (shapes(), SHAPES_PAYLOAD, ["points.1.y", "point.x", "grid.corners.1.x", "scalars.u8"]),
        ];
        for (plan, payload, paths) in cases {
            let projection = plan.project(&paths).unwrap();
            let read = |payload: &[u8]| {
                let mut values = [FieldValue::Absent; 4];
                projection.read(payload, &mut values).unwrap();
                format!("{values:?}")
            };
            let reach = projection.accessed_bytes(payload).unwrap();
            assert!(!reach.values.is_empty());
            let is_reached =
                |at: &usize| reach.structure.iter().chain(&reach.values).any(|range| range.contains(at));
            let mut other: Vec<u8> = payload.to_vec();
            for at in (0..other.len()).filter(|at| !is_reached(at)) {
                other[at] = !other[at];
            }
            assert_ne!(other, payload);
            assert_eq!(read(&other), read(payload));
            for at in reach.values.iter().cloned().flatten() {
                let mut other = payload.to_vec();
                other[at] ^= 0x41;
                assert_ne!(read(&other), read(payload), "byte {at}");
            }
        }
    }
}
