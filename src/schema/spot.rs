//! Where in one payload does which kind of number stand? For whoever packs payloads value by value, and does not care what they mean.

use std::ops::Range;

use super::bytes::{Failure, WORD, fail, follow, length, slot, vtable};
use super::compile::DEPTH_MAX;
use super::error::Fault;
use super::plan::{Element, Field, Kind, Object, Plan};
use super::value::Scalar;

/// Most values, objects and texts of a payload whose places are told; one with more tells none. Offsets may be shared, so a short payload can unfold
/// without end.
pub const SPOTS_MAX: usize = 1 << 16;

/// As what the bytes of a value are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// An unsigned integer, a truth value.
    Unsigned,
    /// An integer in two's complement.
    Signed,
    /// An IEEE 754 number.
    Float,
}

/// A value in a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Its bytes.
    pub bytes: Range<usize>,
    /// As what they are read.
    pub number: Number,
}

struct Search<'s> {
    plan: &'s Plan,
    steps: usize,
    payload: &'s [u8],
    spots: Vec<Spot>,
}

type Step = Result<(), Failure>;

pub(super) fn spots(plan: &Plan, payload: &[u8]) -> Option<Vec<Spot>> {
    let mut search = Search { plan, steps: 0, payload, spots: Vec::new() };
    let root = plan.object(plan.root);
    follow(payload, 0).and_then(|at| search.object(root, at, 0)).ok()?;
    Some(search.spots)
}

impl<'s> Search<'s> {
    fn step(&mut self, at: usize) -> Step {
        self.steps += 1;
        if self.steps > SPOTS_MAX { Err(fail(at, Fault::TooManyValues)) } else { Ok(()) }
    }

    fn scalar(&mut self, scalar: Scalar, at: usize) -> Step {
        let number = match scalar {
            Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64 => Number::Signed,
            Scalar::F32 | Scalar::F64 => Number::Float,
            _ => Number::Unsigned,
        };
        self.step(at)?;
        self.spots.push(Spot { bytes: at..at.saturating_add(scalar.size()), number });
        Ok(())
    }

    fn object(&mut self, object: &'s Object, at: usize, depth: usize) -> Step {
        if depth >= DEPTH_MAX {
            return Err(fail(at, Fault::TooDeep));
        }
        self.step(at)?;
        if object.struct_bytes.is_some() {
            return object
                .fields
                .iter()
                .try_for_each(|field| self.field(field, at.saturating_add(field.at.into()), depth));
        }
        let table = vtable(self.payload, at)?;
        for field in &object.fields {
            let offset = slot(table, field.at);
            if offset != 0 {
                self.field(field, at.saturating_add(offset), depth)?;
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &'s Field, at: usize, depth: usize) -> Step {
        match field.kind {
            Kind::Scalar(scalar) => self.scalar(scalar, at),
            // Text has no number in it.
            Kind::String => self.step(at),
            Kind::Object(object) => self.nested(object, at, depth),
            Kind::Vector(element) => {
                let at = follow(self.payload, at)?;
                let length = length(self.payload, at)?;
                self.list(element, at.saturating_add(WORD), length, depth)
            }
            Kind::Array(element, length) => self.list(element, at, length.into(), depth),
        }
    }

    fn nested(&mut self, object: usize, at: usize, depth: usize) -> Step {
        let plan = self.plan;
        let object = plan.object(object);
        let at = if object.struct_bytes.is_some() { at } else { follow(self.payload, at)? };
        self.object(object, at, depth + 1)
    }

    fn list(&mut self, element: Element, at: usize, length: usize, depth: usize) -> Step {
        let stride = match element {
            Element::Scalar(scalar) => scalar.size(),
            Element::String => WORD,
            Element::Object(object) => self.plan.object(object).struct_bytes.unwrap_or(WORD),
        };
        for index in 0..length {
            let at = at.saturating_add(index.saturating_mul(stride));
            match element {
                Element::Scalar(scalar) => self.scalar(scalar, at)?,
                Element::String => self.step(at)?,
                Element::Object(object) => self.nested(object, at, depth)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_PAYLOAD, marked, recursive, shapes};
    use super::*;

    #[test]
    fn spots_are_where_a_projection_reads() {
        // Goal: each number is found, with its kind. Method: values of example payloads, through structs, tables, lists; a projection reads the same.
        let cases = [
            (marked(), MARKED_PAYLOAD, "total.user", Number::Unsigned),
            (marked(), MARKED_PAYLOAD, "cores.0.times.user", Number::Unsigned),
            (shapes(), SHAPES_PAYLOAD, "points.1.y", Number::Float),
            (shapes(), SHAPES_PAYLOAD, "point.x", Number::Signed),
        ];
        for (plan, payload, path, number) in cases {
            let reach = plan.project(&[path]).unwrap().reach(payload).unwrap();
            let spots = plan.spots(payload).unwrap();
            let spot = spots.iter().find(|spot| spot.bytes == reach.values[0]);
            assert_eq!(spot.map(|spot| spot.number), Some(number), "{path}");
        }
    }

    #[test]
    fn what_does_not_fit_has_none() {
        // Goal: bytes that are no payload are no harm. Method: cuts of a payload; another schema.
        for length in 0..SHAPES_PAYLOAD.len() {
            if let Some(spots) = shapes().spots(&SHAPES_PAYLOAD[..length]) {
                assert!(spots.len() <= SPOTS_MAX);
            }
            drop(recursive().spots(&SHAPES_PAYLOAD[..length]));
        }
        assert_eq!(marked().spots(&[]), None);
    }
}
