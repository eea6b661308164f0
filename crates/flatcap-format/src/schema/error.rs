//! Errors that occur when a schema is compiled or a payload is decoded.

use std::fmt;

use flatbuffers::InvalidFlatbuffer;

/// The error for a binary schema that cannot be compiled, or for a path that the schema does not
/// contain.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The schema is too long. The user should split or shrink the schema of the source.
    #[error("the schema has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Length of the schema in bytes.
        bytes: usize,
        /// Maximum length of a schema in bytes.
        limit: usize,
    },
    /// The bytes are not a binary schema. The output of `flatc --binary --schema` has the
    /// identifier BFBS.
    #[error("not a binary schema (.bfbs): identifier BFBS is missing")]
    NotSchema,
    /// The schema is damaged, or flatc did not write it.
    #[error("the schema is damaged")]
    Damaged {
        /// The error of the verifier.
        #[source]
        error: InvalidFlatbuffer,
    },
    /// The descriptor of the source names a root table that the schema does not contain.
    #[error("the schema has no table {root}")]
    NoRoot {
        /// The name of the root table.
        root: String,
    },
    /// The schema exceeds a limit.
    #[error("the schema has more than {limit} {what}")]
    TooMany {
        /// The counted items.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Objects or a path are nested deeper than the limit for payloads.
    #[error("{object} is nested deeper than {limit} objects")]
    TooDeep {
        /// The innermost object, or the path that is too deep.
        object: String,
        /// The limit on nesting.
        limit: usize,
    },
    /// A schema that contradicts itself. flatc does not write such schemas.
    #[error("{object}, field {field:?}: {what}")]
    Invalid {
        /// Full name of the table or struct.
        object: String,
        /// The field. Empty if the object itself is invalid.
        field: String,
        /// The contradiction.
        what: &'static str,
    },
    /// The schema contains a type that cannot be decoded. The user should remove the type from the
    /// schema of the source.
    #[error("{object}, field {field:?}: {what} is not supported")]
    Unsupported {
        /// Full name of the table or struct.
        object: String,
        /// The field.
        field: String,
        /// The type.
        what: &'static str,
    },
    /// A selected path that does not exist.
    #[error("{path:?}: {object} has no field {segment:?}{}", NameHint(nearest.as_deref(), known))]
    NoField {
        /// The whole path.
        path: String,
        /// The part of the path that was not found.
        segment: String,
        /// The object in which the part was looked up. This is a table, a struct, or a type without
        /// fields.
        object: String,
        /// The most similar existing name, if any name is similar.
        nearest: Option<String>,
        /// All existing names.
        known: Vec<String>,
    },
}

/// Maximum number of names that a message lists.
const NAMES_LISTED_MAX: usize = 16;

/// The end of an error message about a missing name. It suggests a similar name, or lists the
/// existing names.
struct NameHint<'h>(Option<&'h str>, &'h [String]);

impl fmt::Display for NameHint<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(nearest, known) = self;
        match (nearest, known.get(NAMES_LISTED_MAX..)) {
            (Some(name), _) => write!(formatter, "; did you mean {name:?}?"),
            (None, _) if known.is_empty() => Ok(()),
            (None, None | Some([])) => write!(formatter, "; its fields are {}", known.join(", ")),
            (None, Some(more)) => {
                let listed = known.get(..NAMES_LISTED_MAX).unwrap_or_default().join(", ");
                write!(formatter, "; its fields are {listed} and {} more", more.len())
            }
        }
    }
}

/// The error for a payload that does not match its schema, because it is damaged or was written
/// with another schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("payload, at byte {offset}, {path:?}: {fault}")]
pub struct DecodeError {
    /// Dotted path of the field, with the indices of list elements. Empty at the root.
    pub path: String,
    /// Offset of the error in the payload.
    pub offset: usize,
    /// The kind of the error at this offset.
    pub fault: DecodeFault,
}

/// The kind of an error in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeFault {
    /// An offset or length leads past the end of the payload.
    #[error("lies beyond the end of the payload")]
    OutOfBounds,
    /// The vtable of a table is outside the payload or has an impossible length.
    #[error("the table has no valid vtable")]
    Vtable,
    /// Objects are nested deeper than [`DEPTH_MAX`](super::DEPTH_MAX).
    #[error("objects are nested too deep")]
    TooDeep,
    /// The payload has more values than [`VALUES_MAX`](super::VALUES_MAX).
    #[error("too many values")]
    TooManyValues,
    /// The payload has more bytes of text than [`TEXT_BYTES_MAX`](super::TEXT_BYTES_MAX).
    #[error("too much text")]
    TooMuchText,
    /// The payload needs more columns than [`COLUMNS_MAX`](super::COLUMNS_MAX).
    #[error("too many columns")]
    TooManyColumns,
}
