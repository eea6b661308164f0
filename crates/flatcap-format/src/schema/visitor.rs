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
    /// An element of the current list, indexed from 0. The field is the list's field.
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
/// Each begin is followed by its end unless the walk fails; the values before a failure are
/// incomplete.
pub trait Visitor {
    /// A table or struct begins; its fields follow.
    fn begin_object(&mut self, step: PathStep<'_>);
    /// The current object ends.
    fn end_object(&mut self);
    /// A vector or array begins; exactly `length` elements follow.
    fn begin_list(&mut self, step: PathStep<'_>, length: usize);
    /// The current list ends.
    fn end_list(&mut self);
    /// One value, or the absence of an object, a list or a text.
    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>);

    /// A text that is not UTF-8. Unless this method is implemented, its escaped form is passed as
    /// the value.
    fn text_bytes(&mut self, step: PathStep<'_>, bytes: &[u8]) {
        self.value(step, FieldValue::Text(&text_of(bytes)));
    }

    /// The list that was begun consists of structs of numbers and texts, `stride` bytes each.
    /// Returns true if it read all of them, and false if it wants the elements one by one.
    #[inline]
    fn structs(&mut self, _elements: &[u8], _stride: usize) -> bool {
        false
    }

    /// The walk reads offsets, vtables and lengths, which determine the locations of the following
    /// values. A payload of the same length with the same bytes here has its values at the same
    /// locations.
    #[inline]
    fn reads_structure(&mut self, _bytes: Range<usize>) {}
    /// The walk reads the next value from these bytes. Not called for the default of an omitted
    /// field.
    #[inline]
    fn reads_value(&mut self, _bytes: Range<usize>) {}
}
