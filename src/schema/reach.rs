//! Which bytes of a payload does a projection look at?
//!
//! Whoever keeps payloads of one shape in columns needs no others to read the same values.

use std::ops::Range;

use super::bytes::{Failure, WORD, follow, length, out_of_bounds, slot, vtable};
use super::error::DecodeError;
use super::projection::{Leaf, Projection, Slot, Way};

/// The bytes of a payload that a [`Projection`] looks at, as ranges in the order in which it does; they may touch and repeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// Offsets, vtables and lengths of lists: what decides where the values lie. A payload of the same length that has the same bytes there has its
    /// values at the same places.
    pub structure: Vec<Range<usize>>,
    /// The values.
    pub values: Vec<Range<usize>>,
}

impl Projection {
    /// What [`read`](Self::read) looks at in this payload.
    ///
    /// # Errors
    /// As `read`, where an offset leads outside.
    pub fn reach(&self, payload: &[u8]) -> Result<Reach, DecodeError> {
        let mut reaching = Reaching { payload, reach: Reach::default() };
        let reached = reaching.follow(0).and_then(|at| reaching.table(&self.slots, at));
        reached.map_err(|failure| *failure.0)?;
        Ok(reaching.reach)
    }
}

struct Reaching<'r> {
    payload: &'r [u8],
    reach: Reach,
}

impl Reaching<'_> {
    /// Where the offset at `at` leads.
    fn follow(&mut self, at: usize) -> Result<usize, Failure> {
        let to = follow(self.payload, at)?;
        self.reach.structure.push(at..at + WORD);
        Ok(to)
    }

    fn table(&mut self, slots: &[Slot], at: usize) -> Result<(), Failure> {
        let own = vtable(self.payload, at)?;
        let start = own.as_ptr().addr() - self.payload.as_ptr().addr();
        self.reach.structure.push(at..at + WORD);
        self.reach.structure.push(start..start + own.len());
        for wanted in slots {
            let offset = slot(own, wanted.at);
            if offset != 0 {
                self.way(&wanted.way, at.saturating_add(offset))
                    .map_err(|failure| failure.at_path(&wanted.path))?;
            }
        }
        Ok(())
    }

    fn way(&mut self, way: &Way, at: usize) -> Result<(), Failure> {
        match way {
            Way::Fixed(leaves) => leaves.iter().try_for_each(|leaf| self.leaf(leaf, at)),
            Way::Table(slots) => {
                let at = self.follow(at)?;
                self.table(slots, at)
            }
            Way::Vector { stride, elements } => {
                let at = self.follow(at)?;
                let length = length(self.payload, at)?;
                self.reach.structure.push(at..at + WORD);
                elements.iter().filter(|element| element.index < length).try_for_each(|element| {
                    let at = at.saturating_add(WORD).saturating_add(element.index.saturating_mul(*stride));
                    self.way(&element.way, at)
                })
            }
        }
    }

    fn leaf(&mut self, leaf: &Leaf, at: usize) -> Result<(), Failure> {
        let at = at.saturating_add(leaf.at);
        let end = at.saturating_add(leaf.scalar.size());
        if end > self.payload.len() {
            return Err(out_of_bounds(at).at_path(&leaf.path));
        }
        self.reach.values.push(at..end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_PAYLOAD, marked, shapes};
    use super::super::value::Value;

    // Goal: nothing but what is reached decides what is read, and each byte of a value does. Method: every other byte of example payloads
    // inverted; each byte of the values alone.
    #[test]
    fn what_is_not_reached_is_not_looked_at() {
        let cases = [
            (marked(), MARKED_PAYLOAD, ["total.user", "cores.0.times.user", "unit.heat", "cores.7.id"]),
            (shapes(), SHAPES_PAYLOAD, ["points.1.y", "point.x", "grid.corners.1.x", "scalars.u8"]),
        ];
        for (plan, payload, paths) in cases {
            let projection = plan.project(&paths).unwrap();
            let read = |payload: &[u8]| {
                let mut values = [Value::Absent; 4];
                projection.read(payload, &mut values).unwrap();
                format!("{values:?}")
            };
            let reach = projection.reach(payload).unwrap();
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
