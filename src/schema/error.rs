//! Why could a schema not be compiled, or a payload not be read?

use std::fmt;

use flatbuffers::InvalidFlatbuffer;

/// A binary schema that cannot be compiled into a plan, or a path that the plan does not have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// Longer than a schema may be; the source that brought it must split or shrink it.
    #[error("the schema has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Length of the schema.
        bytes: usize,
        /// Longest schema that is read.
        limit: usize,
    },
    /// Not a binary schema: what `flatc --binary --schema` writes bears the identifier BFBS.
    #[error("not a binary schema (no identifier BFBS)")]
    NotSchema,
    /// Damaged, or not written by flatc.
    #[error("the schema is damaged")]
    Damaged {
        /// What the verifier said.
        #[source]
        error: InvalidFlatbuffer,
    },
    /// The descriptor names a root table that its schema does not have.
    #[error("the schema has no table {root}")]
    NoRoot {
        /// The name that was looked for.
        root: String,
    },
    /// More of something than a schema may have.
    #[error("the schema has more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// Objects nested deeper than a payload is read.
    #[error("{object} lies deeper than {limit} objects inside one another")]
    TooDeep {
        /// The innermost object, or the path that goes too deep.
        object: String,
        /// How deep objects may lie.
        limit: usize,
    },
    /// A schema that contradicts itself; flatc writes none such.
    #[error("{object}, field {field:?}: {what}")]
    Invalid {
        /// Full name of the table or struct.
        object: String,
        /// The field, empty where it is the object itself.
        field: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A type that cannot be decoded; the source must do without it.
    #[error("{object}, field {field:?}: {what} is not supported")]
    Unsupported {
        /// Full name of the table or struct.
        object: String,
        /// The field.
        field: String,
        /// The type.
        what: &'static str,
    },
    /// A selected path that leads nowhere.
    #[error("{path:?}: {object} has no field {segment:?}{}", Hint(nearest.as_deref()))]
    NoField {
        /// The whole path.
        path: String,
        /// The part of it that was not found.
        segment: String,
        /// Where it was looked for: a table, a struct, or a type without fields.
        object: String,
        /// The most similar name that is there.
        nearest: Option<String>,
    },
    /// A path of a projection that goes through a list without saying which element.
    #[error("{path:?}: {list} is a list; its index must follow, as in {list}.0")]
    NoIndex {
        /// The whole path.
        path: String,
        /// The part of it that leads to the list.
        list: String,
    },
    /// A path of a projection that leads to an object or a text.
    #[error("{path:?}: {type_name} is not a single number, truth value or enum")]
    NotSingle {
        /// The whole path.
        path: String,
        /// What is there.
        type_name: String,
    },
}

/// The end of a message that offers a name.
struct Hint<'h>(Option<&'h str>);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(formatter, "; did you mean {name:?}?"),
            None => Ok(()),
        }
    }
}

/// A payload that does not fit its schema: damaged, or written by other means than its schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("payload, at byte {offset}, {path:?}: {fault}")]
pub struct DecodeError {
    /// Dotted path of the field, with the indices of list elements; empty at the root.
    pub path: String,
    /// Offset in the payload.
    pub offset: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What can be wrong with a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Something would lie behind the end of the payload.
    #[error("lies beyond the end of the payload")]
    OutOfBounds,
    /// A table whose list of fields lies outside the payload or has an impossible length.
    #[error("the table has no valid vtable")]
    Vtable,
    /// Objects nested deeper than [`DEPTH_MAX`](super::DEPTH_MAX).
    #[error("objects are nested too deep")]
    TooDeep,
    /// More values than [`VALUES_MAX`](super::VALUES_MAX).
    #[error("too many values")]
    TooManyValues,
    /// More bytes of text than [`TEXT_BYTES_MAX`](super::TEXT_BYTES_MAX).
    #[error("too much text")]
    TooMuchText,
    /// More columns than [`COLUMNS_MAX`](super::COLUMNS_MAX).
    #[error("too many columns")]
    TooManyColumns,
}
