//! The fields of the root table, with their slots in the vtable and their contents. Writers use
//! them.

use super::compiled::{CompiledSchema, ElementType, FieldType};

/// A field of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableSlot<'s> {
    pub(crate) name: &'s str,
    /// The offset of the field's entry in the vtable.
    pub(crate) slot: u16,
    pub(crate) content: SlotContent,
}

/// The content of a field of a table. The length of a scalar equals its alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotContent {
    Value { bytes: usize },
    Struct { bytes: usize },
    Text,
    Table,
    Values { stride: usize },
    Structs { stride: usize },
    Texts,
    Tables,
}

impl CompiledSchema {
    /// Returns the fields of the root table.
    pub(crate) fn root_slots(&self) -> impl Iterator<Item = TableSlot<'_>> {
        let fields = self.object(self.root).fields.iter();
        fields.map(|field| TableSlot {
            name: field.name(),
            slot: field.at,
            content: self.slot_content(field.value_type),
        })
    }

    fn slot_content(&self, field_type: FieldType) -> SlotContent {
        match field_type {
            FieldType::Scalar(scalar) => SlotContent::Value { bytes: scalar.size() },
            FieldType::String => SlotContent::Text,
            FieldType::Object(object) => match self.object(object).struct_bytes {
                Some(bytes) => SlotContent::Struct { bytes },
                None => SlotContent::Table,
            },
            // Only structs can contain arrays. A list in a table is a vector.
            FieldType::Vector(element) | FieldType::Array(element, _) => match element {
                ElementType::Scalar(scalar) => SlotContent::Values { stride: scalar.size() },
                ElementType::String => SlotContent::Texts,
                ElementType::Object(object) => match self.object(object).struct_bytes {
                    Some(stride) => SlotContent::Structs { stride },
                    None => SlotContent::Tables,
                },
            },
        }
    }
}
