//! The visitor that receives the values of a payload.

use std::ops::Range;

use super::compiled::Field;
use super::escaped_text::text_of;
use super::value::FieldValue;

/// The last step of the path to a value, an object or a list.
#[derive(Debug, Clone, Copy)]
pub enum PathStep<'p> {
    /// The root object of the payload.
    Root,
    /// A field of the current object.
    Field(&'p Field),
    /// An element of the current list, indexed from 0. The field in this step is the list itself.
    Element(&'p Field, usize),
}

impl<'p> PathStep<'p> {
    /// Returns the current field, or `None` at the root.
    pub fn field(self) -> Option<&'p Field> {
        match self {
            Self::Root => None,
            Self::Field(field) | Self::Element(field, _) => Some(field),
        }
    }
}

/// Receives the values of a payload, in the order of the field ids.
///
/// Each object or list that begins also ends, unless the walk fails. The values that were received
/// before an error are incomplete.
pub trait Visitor {
    /// Called when a table or struct begins. Its fields follow.
    fn begin_object(&mut self, step: PathStep<'_>);
    /// Called when the current object ends.
    fn end_object(&mut self);
    /// Called when a vector or array begins. Exactly `length` elements follow.
    fn begin_list(&mut self, step: PathStep<'_>, length: usize);
    /// Called when the current list ends.
    fn end_list(&mut self);
    /// Receives one value, or the absence of an object, a list or a string.
    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>);

    /// Receives a text that is not UTF-8. The default implementation passes the escaped form of the
    /// text to [`value`](Self::value).
    fn text_bytes(&mut self, step: PathStep<'_>, bytes: &[u8]) {
        self.value(step, FieldValue::Text(&text_of(bytes)));
    }

    /// Receives the bytes of all structs of the list that has just begun. The structs contain only
    /// numbers and arrays of bytes with text. Each struct has `stride` bytes. Returns true if the
    /// visitor has read all structs, and false if the walk must pass the elements one by one.
    #[inline]
    fn structs(&mut self, _elements: &[u8], _stride: usize) -> bool {
        false
    }

    /// Receives the range of an offset, a vtable or a length that the walk reads. These bytes
    /// determine the locations of the following values. If another payload of the same length has
    /// the same bytes in all such ranges, the values of both payloads are at the same locations.
    #[inline]
    fn reads_structure(&mut self, _bytes: Range<usize>) {}
    /// Receives the range of bytes from which the walk reads the next value. This method is not
    /// called for the default of an omitted field.
    #[inline]
    fn reads_value(&mut self, _bytes: Range<usize>) {}
}
