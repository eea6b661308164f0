//! Lists of structs that contain only numbers and arrays of bytes with text. In such a list, the
//! distance between the values of a field in successive elements is constant.

use super::compiled::{CompiledObject, CompiledSchema, ElementType, FieldType};
use super::scalar_reader::ScalarReader;

/// A list of structs that contain only numbers and arrays of bytes with text.
#[derive(Debug, Clone)]
pub struct StructList {
    /// The positions of the fields on the path to the list. Each position is the position of a
    /// field in the object that contains the field.
    pub positions: Vec<usize>,
    /// The fields of the struct.
    pub fields: Vec<StructField>,
}

impl StructField {
    /// Returns the bytes of this field from the bytes of a struct. The result is empty if the
    /// struct is truncated.
    #[inline]
    pub fn bytes_of<'b>(&self, element: &'b [u8]) -> &'b [u8] {
        element.get(self.at..self.at + self.bytes).unwrap_or_default()
    }
}

/// A field of the structs in the list.
#[derive(Debug, Clone)]
pub struct StructField {
    /// Position of the field among the selected fields of the struct.
    pub index: usize,
    /// Offset of the field in the struct, in bytes.
    pub at: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// The reader of the field if the field is a number. `None` for a text, which ends at the first
    /// zero byte.
    pub reader: Option<ScalarReader>,
}

impl CompiledSchema {
    /// Returns all lists of such structs, except lists within other lists.
    pub fn struct_lists(&self) -> Vec<StructList> {
        let mut found = Vec::new();
        // A table may contain itself, so only the first levels are searched.
        let mut open = vec![(self.root, Vec::new())];
        while let Some((object, positions)) = open.pop() {
            for field in &self.object(object).fields {
                let mut positions: Vec<usize> = positions.clone();
                positions.push(field.index);
                match field.value_type {
                    FieldType::Object(inner) if positions.len() < LEVELS_MAX => open.push((inner, positions)),
                    FieldType::Vector(ElementType::Object(element)) => {
                        let fields = self.object(element).plain_fields();
                        found.extend(fields.map(|fields| StructList { positions, fields }));
                    }
                    _ => {}
                }
            }
        }
        found
    }
}

/// Maximum nesting depth of a list that `struct_lists` returns. Deeper lists are read value by
/// value.
const LEVELS_MAX: usize = 4;

impl CompiledObject {
    /// Returns the fields of a struct, or `None` if the struct has a field that is neither a number
    /// nor an array of bytes with text.
    pub(super) fn plain_fields(&self) -> Option<Vec<StructField>> {
        self.struct_bytes?;
        let plain = self.fields.iter().map(|field| {
            let bytes = match field.value_type {
                FieldType::Scalar(scalar) => scalar.size(),
                FieldType::Array(_, length) if field.is_text => length.into(),
                _ => return None,
            };
            Some(StructField {
                index: field.index,
                at: field.at.into(),
                bytes,
                reader: field.scalar_reader(),
            })
        });
        plain.collect()
    }

    /// Returns the number of bytes of text in such a struct, or `None` if it has fields of other
    /// types.
    pub(super) fn plain_text_bytes(&self) -> Option<usize> {
        self.struct_bytes?;
        self.fields.iter().try_fold(0, |sum, field| match field.value_type {
            FieldType::Scalar(_) => Some(sum),
            FieldType::Array(_, length) if field.is_text => Some(sum + usize::from(length)),
            _ => None,
        })
    }
}
