//! How is a decoded value handed to whoever wants it?

use super::bytes::take;
use super::plan::Field;

/// One value of a payload, as its schema says to read it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'v> {
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// A signed integer of any width.
    Signed(i64),
    /// A number of 32 bits, kept apart so that it prints as short as it was meant: 0.1, not 0.10000000149.
    Float32(f32),
    /// A number of 64 bits.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A string, a text in bytes, or the name of an enum's value.
    Text(&'v str),
    /// Not there: left out of the table, or marked so by the value that the schema reserves for it.
    Absent,
}

/// Where a value, an object or a list stands.
#[derive(Debug, Clone, Copy)]
pub enum Place<'p> {
    /// The payload itself; only ever an object.
    Root,
    /// A field of the object that was begun last.
    Field(&'p Field),
    /// An element, counted from 0, of the list that was begun last; the field is the list's own.
    Element(&'p Field, usize),
}

impl<'p> Place<'p> {
    /// The field that is being read, none at the root.
    pub fn field(self) -> Option<&'p Field> {
        match self {
            Self::Root => None,
            Self::Field(field) | Self::Element(field, _) => Some(field),
        }
    }
}

/// What a walk through a payload calls, in the order of the field ids.
///
/// Each begin is followed by its end unless the walk fails; what was handed out before a failure is incomplete.
pub trait Visitor {
    /// A table or struct begins; its fields follow.
    fn begin_object(&mut self, place: Place<'_>);
    /// The object that was begun last is complete.
    fn end_object(&mut self);
    /// A vector or array begins; exactly `length` elements follow. Text that is not UTF-8 comes as the list of
    /// its bytes.
    fn begin_list(&mut self, place: Place<'_>, length: usize);
    /// The list that was begun last is complete.
    fn end_list(&mut self);
    /// One value, or the absence of an object, a list or a text.
    fn value(&mut self, place: Place<'_>, value: Value<'_>);
}

/// The types of fixed width, and how each lies in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
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

impl Scalar {
    /// Bytes in the payload.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The name in a schema.
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

    /// The largest value of an unsigned type.
    pub(super) fn unsigned_max(self) -> Option<u64> {
        match self {
            Self::U8 => Some(u8::MAX.into()),
            Self::U16 => Some(u16::MAX.into()),
            Self::U32 => Some(u32::MAX.into()),
            Self::U64 => Some(u64::MAX),
            _ => None,
        }
    }

    /// The smallest value of a signed type.
    pub(super) fn signed_min(self) -> Option<i64> {
        match self {
            Self::I8 => Some(i8::MIN.into()),
            Self::I16 => Some(i16::MIN.into()),
            Self::I32 => Some(i32::MIN.into()),
            Self::I64 => Some(i64::MIN),
            _ => None,
        }
    }

    /// The value at an offset, none where it would end behind the bytes.
    #[inline]
    pub(super) fn read(self, bytes: &[u8], at: usize) -> Option<Value<'static>> {
        Some(match self {
            Self::Bool => Value::Bool(take::<1>(bytes, at)? != [0]),
            Self::U8 => Value::Unsigned(u8::from_le_bytes(take(bytes, at)?).into()),
            Self::I8 => Value::Signed(i8::from_le_bytes(take(bytes, at)?).into()),
            Self::U16 => Value::Unsigned(u16::from_le_bytes(take(bytes, at)?).into()),
            Self::I16 => Value::Signed(i16::from_le_bytes(take(bytes, at)?).into()),
            Self::U32 => Value::Unsigned(u32::from_le_bytes(take(bytes, at)?).into()),
            Self::I32 => Value::Signed(i32::from_le_bytes(take(bytes, at)?).into()),
            Self::U64 => Value::Unsigned(u64::from_le_bytes(take(bytes, at)?)),
            Self::I64 => Value::Signed(i64::from_le_bytes(take(bytes, at)?)),
            Self::F32 => Value::Float32(f32::from_le_bytes(take(bytes, at)?)),
            Self::F64 => Value::Float(f64::from_le_bytes(take(bytes, at)?)),
        })
    }
}
