//! Finds the locations and kinds of all numbers in a payload. Compression uses these locations and
//! kinds, and does not need the names of the numbers.

use std::ops::Range;

use super::bytes::{
    BoxedDecodeError, UOFFSET_BYTES, decode_error, field_offset, follow, read_length, vtable,
};
use super::compiled::{CompiledObject, CompiledSchema, DEPTH_MAX, ElementType, Field, FieldType};
use super::error::DecodeFault;
use super::value::ScalarType;

/// Maximum number of values, objects and strings in a payload. If a payload has more of these, the
/// function returns `None`. The limit is needed because several offsets may refer to the same
/// bytes, so a short payload can expand to any size.
pub(crate) const NUMERIC_FIELDS_MAX: usize = 1 << 16;

/// The kind of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumericKind {
    /// An unsigned integer or a bool.
    Unsigned,
    /// An integer in two's complement.
    Signed,
    /// An IEEE 754 number.
    Float,
}

/// A number in a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumericField {
    /// Range of the number's bytes.
    pub bytes: Range<usize>,
    /// The number's kind.
    pub kind: NumericKind,
}

struct NumericFieldFinder<'s> {
    schema: &'s CompiledSchema,
    count: usize,
    payload: &'s [u8],
    found: Vec<NumericField>,
}

type DecodeResult = Result<(), BoxedDecodeError>;

impl CompiledSchema {
    /// Returns the locations and kinds of the numbers in one payload. Returns `None` if the payload
    /// does not fit the schema or has more than [`NUMERIC_FIELDS_MAX`] values, objects and strings.
    /// Locations may be past the end of the payload, because the numbers themselves are not read.
    pub(crate) fn numeric_fields(&self, payload: &[u8]) -> Option<Vec<NumericField>> {
        let mut finder = NumericFieldFinder { schema: self, count: 0, payload, found: Vec::new() };
        let root = self.object(self.root);
        // The error is dropped, because a payload that does not match its schema is still
        // compressed.
        follow(payload, 0).and_then(|at| finder.object(root, at, 0)).ok()?;
        Some(finder.found)
    }
}

impl<'s> NumericFieldFinder<'s> {
    fn count_one(&mut self, at: usize) -> DecodeResult {
        self.count += 1;
        if self.count > NUMERIC_FIELDS_MAX {
            Err(decode_error(at, DecodeFault::TooManyValues))
        } else {
            Ok(())
        }
    }

    fn scalar(&mut self, scalar: ScalarType, at: usize) -> DecodeResult {
        let number = match scalar {
            ScalarType::I8 | ScalarType::I16 | ScalarType::I32 | ScalarType::I64 => NumericKind::Signed,
            ScalarType::F32 | ScalarType::F64 => NumericKind::Float,
            _ => NumericKind::Unsigned,
        };
        // The range is not checked, because the number is not read. A saturated range is past the
        // end of any payload.
        self.count_one(at)?;
        self.found.push(NumericField { bytes: at..at.saturating_add(scalar.size()), kind: number });
        Ok(())
    }

    fn object(&mut self, object: &'s CompiledObject, at: usize, depth: usize) -> DecodeResult {
        if depth >= DEPTH_MAX {
            return Err(decode_error(at, DecodeFault::TooDeep));
        }
        // Objects count too, because otherwise shared empty tables would expand without end.
        self.count_one(at)?;
        if object.struct_bytes.is_some() {
            return object
                .fields
                .iter()
                .try_for_each(|field| self.field(field, at.saturating_add(field.at.into()), depth));
        }
        let table = vtable(self.payload, at)?;
        for field in &object.fields {
            let offset = field_offset(table, field.at);
            if offset != 0 {
                self.field(field, at.saturating_add(offset), depth)?;
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &'s Field, at: usize, depth: usize) -> DecodeResult {
        match field.value_type {
            FieldType::Scalar(scalar) => self.scalar(scalar, at),
            // A string has no numbers.
            FieldType::String => self.count_one(at),
            FieldType::Object(object) => self.nested(object, at, depth),
            FieldType::Vector(element) => {
                let at = follow(self.payload, at)?;
                let length = read_length(self.payload, at)?;
                self.list(element, at.saturating_add(UOFFSET_BYTES), length, depth)
            }
            FieldType::Array(element, length) => self.list(element, at, length.into(), depth),
        }
    }

    fn nested(&mut self, object: usize, at: usize, depth: usize) -> DecodeResult {
        let plan = self.schema;
        let object = plan.object(object);
        let at = if object.struct_bytes.is_some() { at } else { follow(self.payload, at)? };
        self.object(object, at, depth + 1)
    }

    fn list(&mut self, element: ElementType, at: usize, length: usize, depth: usize) -> DecodeResult {
        let stride = match element {
            ElementType::Scalar(scalar) => scalar.size(),
            ElementType::String => UOFFSET_BYTES,
            ElementType::Object(object) => self.schema.object(object).struct_bytes.unwrap_or(UOFFSET_BYTES),
        };
        // `length` may be any 32-bit number. Every element counts, so the loop ends at
        // `NUMERIC_FIELDS_MAX`.
        for index in 0..length {
            let at = at.saturating_add(index.saturating_mul(stride));
            match element {
                ElementType::Scalar(scalar) => self.scalar(scalar, at)?,
                ElementType::String => self.count_one(at)?,
                ElementType::Object(object) => self.nested(object, at, depth)?,
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
    fn numbers_are_found_where_a_walk_reads() {
        // Proves that the locations and kinds of numbers in structs, tables and lists are found. If
        // the bytes at a location change, the value that a walk reads must change.
        let cases = [
            (marked(), MARKED_PAYLOAD, "/total/user", NumericKind::Unsigned),
            (marked(), MARKED_PAYLOAD, "/cores/0/times/user", NumericKind::Unsigned),
            (shapes(), SHAPES_PAYLOAD, "/points/1/y", NumericKind::Float),
            (shapes(), SHAPES_PAYLOAD, "/point/x", NumericKind::Signed),
        ];
        for (plan, payload, path, number) in cases {
            let value = |payload: &[u8]| {
                let mut json = Vec::new();
                plan.append_json(payload, &mut json).ok()?;
                let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
                Some(json.pointer(path).unwrap().to_string())
            };
            let spots = plan.numeric_fields(payload).unwrap();
            let changes = |bytes: &std::ops::Range<usize>| {
                let mut changed = payload.to_vec();
                changed[bytes.start] ^= 1;
                value(&changed) != value(payload)
            };
            let kinds: Vec<_> =
                spots.iter().filter(|spot| changes(&spot.bytes)).map(|spot| spot.kind).collect();
            assert_eq!(kinds, [number], "{path}");
        }
    }

    #[test]
    fn what_does_not_fit_has_none() {
        // Proves that payloads that do not match the schema cause no panic. The payloads are
        // truncated or belong to another schema.
        for length in 0..SHAPES_PAYLOAD.len() {
            if let Some(spots) = shapes().numeric_fields(&SHAPES_PAYLOAD[..length]) {
                assert!(spots.len() <= NUMERIC_FIELDS_MAX);
            }
            drop(recursive().numeric_fields(&SHAPES_PAYLOAD[..length]));
        }
        assert_eq!(marked().numeric_fields(&[]), None);
    }
}
