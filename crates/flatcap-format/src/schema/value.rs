//! Decoded values, and the types of fixed width.

use super::bytes::bytes_at;

/// One decoded value of a payload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FieldValue<'v> {
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// A signed integer of any width.
    Signed(i64),
    /// A 32-bit float. This type has its own variant so that a value is printed as 0.1 and not as
    /// 0.10000000149.
    Float32(f32),
    /// A 64-bit float.
    Float(f64),
    /// A bool.
    Bool(bool),
    /// A string, a text in an array of bytes, or the name of an enum's value.
    Text(&'v str),
    /// No value. The field is omitted from the table, or has the value that the schema reserves for
    /// absence.
    Absent,
}

impl FieldValue<'_> {
    /// Returns the value as a float. Returns 1 or 0 for a bool, and `None` for a string or an
    /// absent value. Integers above 2^53 are rounded to the nearest float.
    #[allow(clippy::cast_precision_loss, reason = "documented")]
    #[inline]
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Unsigned(number) => Some(number as f64),
            Self::Signed(number) => Some(number as f64),
            Self::Float32(number) => Some(number.into()),
            Self::Float(number) => Some(number),
            Self::Bool(value) => Some(u8::from(value).into()),
            Self::Text(_) | Self::Absent => None,
        }
    }
}

/// The type of all values of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// Unsigned integers.
    Unsigned,
    /// Signed integers.
    Signed,
    /// 32-bit floats.
    Float32,
    /// 64-bit floats.
    Float,
    /// Bools.
    Bool,
    /// Strings, and the names of enum values.
    Text,
}

/// The types of fixed width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarType {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

impl ScalarType {
    /// Returns the type of a column that contains values of this type.
    pub(super) fn column_type(self) -> ColumnType {
        match self {
            Self::Bool => ColumnType::Bool,
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => ColumnType::Unsigned,
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => ColumnType::Signed,
            Self::F32 => ColumnType::Float32,
            Self::F64 => ColumnType::Float,
        }
    }

    /// Returns the length of a value in the payload, in bytes.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Returns the name of the type in a schema.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "ubyte",
            Self::I8 => "byte",
            Self::U16 => "ushort",
            Self::I16 => "short",
            Self::U32 => "uint",
            Self::I32 => "int",
            Self::U64 => "ulong",
            Self::I64 => "long",
            Self::F32 => "float",
            Self::F64 => "double",
        }
    }

    /// Returns the largest value that an integer type can represent.
    pub(super) fn highest(self) -> Option<FieldValue<'static>> {
        Some(match self {
            Self::U8 => FieldValue::Unsigned(u8::MAX.into()),
            Self::U16 => FieldValue::Unsigned(u16::MAX.into()),
            Self::U32 => FieldValue::Unsigned(u32::MAX.into()),
            Self::U64 => FieldValue::Unsigned(u64::MAX),
            Self::I8 => FieldValue::Signed(i8::MAX.into()),
            Self::I16 => FieldValue::Signed(i16::MAX.into()),
            Self::I32 => FieldValue::Signed(i32::MAX.into()),
            Self::I64 => FieldValue::Signed(i64::MAX),
            Self::Bool | Self::F32 | Self::F64 => return None,
        })
    }

    /// Returns the smallest value that a signed integer type can represent.
    pub(super) fn signed_min(self) -> Option<i64> {
        match self {
            Self::I8 => Some(i8::MIN.into()),
            Self::I16 => Some(i16::MIN.into()),
            Self::I32 => Some(i32::MIN.into()),
            Self::I64 => Some(i64::MIN),
            _ => None,
        }
    }

    /// Reads a value of this type at an offset. Returns `None` if the value would extend past the
    /// end of the bytes.
    #[inline]
    pub(super) fn read(self, bytes: &[u8], at: usize) -> Option<FieldValue<'static>> {
        // Values are copied, so they need no alignment. The alignment of values has not been
        // verified. A bool is compared with 0, because a damaged byte may have any value.
        Some(match self {
            Self::Bool => FieldValue::Bool(bytes_at::<1>(bytes, at)? != [0]),
            Self::U8 => FieldValue::Unsigned(u8::from_le_bytes(bytes_at(bytes, at)?).into()),
            Self::I8 => FieldValue::Signed(i8::from_le_bytes(bytes_at(bytes, at)?).into()),
            Self::U16 => FieldValue::Unsigned(u16::from_le_bytes(bytes_at(bytes, at)?).into()),
            Self::I16 => FieldValue::Signed(i16::from_le_bytes(bytes_at(bytes, at)?).into()),
            Self::U32 => FieldValue::Unsigned(u32::from_le_bytes(bytes_at(bytes, at)?).into()),
            Self::I32 => FieldValue::Signed(i32::from_le_bytes(bytes_at(bytes, at)?).into()),
            Self::U64 => FieldValue::Unsigned(u64::from_le_bytes(bytes_at(bytes, at)?)),
            Self::I64 => FieldValue::Signed(i64::from_le_bytes(bytes_at(bytes, at)?)),
            Self::F32 => FieldValue::Float32(f32::from_le_bytes(bytes_at(bytes, at)?)),
            Self::F64 => FieldValue::Float(f64::from_le_bytes(bytes_at(bytes, at)?)),
        })
    }
}
