//! Converts the bits of a scalar to a value. Columns contain only these bits, without the
//! surrounding payload.

use super::compiled::{CompiledSchema, ElementType, Field, FieldType, interpret};
use super::numeric_fields::NumericKind;
use super::value::{ColumnType, FieldValue, ScalarType};

/// Converts the bits of scalars of one type to values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalarReader {
    scalar: ScalarType,
    absent: Option<FieldValue<'static>>,
    enumeration: Option<usize>,
}

impl Field {
    /// Returns a reader for a value of the field or of one of its elements. Returns `None` for
    /// objects and strings.
    pub fn scalar_reader(&self) -> Option<ScalarReader> {
        match self.value_type {
            _ if self.is_text => None,
            FieldType::Scalar(scalar)
            | FieldType::Vector(ElementType::Scalar(scalar))
            | FieldType::Array(ElementType::Scalar(scalar), _) => {
                Some(ScalarReader { scalar, absent: self.absent, enumeration: self.enumeration })
            }
            _ => None,
        }
    }

    /// Returns whether the field is an array or list of bytes that contains text, which ends at the
    /// first zero.
    pub fn is_padded_text(&self) -> bool {
        self.is_text
    }
}

impl ScalarReader {
    /// Returns the zero-extended bits that represent absence.
    pub fn absent_bits(&self) -> Option<u64> {
        let bits = match self.absent? {
            FieldValue::Unsigned(number) => number,
            FieldValue::Signed(number) => number.cast_unsigned(),
            _ => return None,
        };
        Some(bits & u64::MAX >> self.unused_bits())
    }

    /// Returns the kind of number, which determines how values are ordered.
    pub fn number_kind(&self) -> NumericKind {
        match self.scalar.column_type() {
            ColumnType::Signed => NumericKind::Signed,
            ColumnType::Float | ColumnType::Float32 => NumericKind::Float,
            _ => NumericKind::Unsigned,
        }
    }

    /// Returns the length of the value, in bytes.
    pub fn bytes(&self) -> usize {
        self.scalar.size()
    }

    /// Returns how many bits of a 64-bit word a value of this type does not use.
    fn unused_bits(&self) -> u32 {
        64 - 8 * u32::try_from(self.scalar.size()).unwrap_or(8)
    }

    /// Converts the bits of a signed integer to a 64-bit integer by sign extension.
    #[inline]
    pub fn signed(&self, bits: u64) -> i64 {
        let unused = self.unused_bits();
        (bits << unused).cast_signed() >> unused
    }

    fn raw(&self, bits: u64) -> FieldValue<'static> {
        #[allow(clippy::cast_possible_truncation, reason = "a float of four bytes")]
        match self.scalar {
            ScalarType::Bool => FieldValue::Bool(bits != 0),
            ScalarType::U8 | ScalarType::U16 | ScalarType::U32 | ScalarType::U64 => {
                FieldValue::Unsigned(bits)
            }
            ScalarType::I8 | ScalarType::I16 | ScalarType::I32 | ScalarType::I64 => {
                FieldValue::Signed(self.signed(bits))
            }
            ScalarType::F32 => FieldValue::Float32(f32::from_bits(bits as u32)),
            ScalarType::F64 => FieldValue::Float(f64::from_bits(bits)),
        }
    }
}

impl CompiledSchema {
    /// Returns the value of a scalar that has these zero-extended bits.
    #[inline]
    pub fn read_bits(&self, reader: &ScalarReader, bits: u64) -> FieldValue<'_> {
        interpret(&self.enums, reader.absent, reader.enumeration, reader.raw(bits))
    }
}
