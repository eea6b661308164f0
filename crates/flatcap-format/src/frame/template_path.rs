//! Resolves paths of field names to locations in a finished FlatBuffer, with the help of the binary
//! schema.

use std::ops::Range;

use flatbuffers::InvalidFlatbuffer;
use flatbuffers_reflection::reflection::{self, BaseType, Object, Schema, Type};

/// The location and the type of a value that may be patched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldLocation {
    at: u32,
    bytes: u32,
    kind: BaseType,
}

impl FieldLocation {
    #[inline]
    pub(super) fn range(self) -> Range<usize> {
        self.at as usize..self.at as usize + self.bytes as usize
    }

    /// Returns whether the location covers all elements of a vector or array, or a struct.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.kind, BaseType::Vector | BaseType::Array | BaseType::Obj)
    }

    /// Returns whether the value is a `T`.
    pub(super) fn holds<T: Scalar>(&self) -> bool {
        self.kind == T::KIND && self.bytes as usize == size_of::<T>()
    }
}

/// A type of value that a template may change. The types are the scalar types of FlatBuffers, and
/// `[u8; N]` for a struct. The type that flatc generates for a struct wraps such an array.
pub trait Scalar: Copy + sealed::Sealed {
    /// Writes the value to `output`, which must have the length of the value.
    fn store(self, output: &mut [u8]);

    /// Reads the value from `bytes`, which must have the length of the value.
    fn load(bytes: &[u8]) -> Self;
}

mod sealed {
    use super::BaseType;

    /// The names of the type in schemas and in errors.
    #[allow(unnameable_types, reason = "that it cannot be named is its purpose")]
    pub trait Sealed {
        const KIND: BaseType;
        const NAME: &'static str;
    }
}

macro_rules! scalars {
    ($($name:ident $kind:ident),*) => {$(
        impl sealed::Sealed for $name {
            const KIND: BaseType = BaseType::$kind;
            const NAME: &'static str = stringify!($name);
        }

        impl Scalar for $name {
            #[inline]
            fn store(self, room: &mut [u8]) {
                if let Some(room) = room.first_chunk_mut() {
                    *room = self.to_le_bytes();
                }
            }

            #[inline]
            fn load(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or($name::default(), |bytes| $name::from_le_bytes(*bytes))
            }
        }
    )*};
}

scalars!(i8 Byte, u8 UByte, i16 Short, u16 UShort, i32 Int, u32 UInt, i64 Long, u64 ULong, f32 Float, f64 Double);

impl sealed::Sealed for bool {
    const KIND: BaseType = BaseType::Bool;
    const NAME: &'static str = "bool";
}

impl Scalar for bool {
    #[inline]
    fn store(self, output: &mut [u8]) {
        u8::from(self).store(output);
    }

    #[inline]
    fn load(bytes: &[u8]) -> Self {
        u8::load(bytes) != 0
    }
}

impl<const N: usize> sealed::Sealed for [u8; N] {
    const KIND: BaseType = BaseType::Obj;
    const NAME: &'static str = "a struct of that length";
}

impl<const N: usize> Scalar for [u8; N] {
    #[inline]
    fn store(self, output: &mut [u8]) {
        if let Some(output) = output.first_chunk_mut() {
            *output = self;
        }
    }

    #[inline]
    fn load(bytes: &[u8]) -> Self {
        bytes.first_chunk().copied().unwrap_or([0; N])
    }
}

/// An error in creating or using a template.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The bytes are not a binary schema (.bfbs), or the schema has no root table.
    #[error("template schema: {}", schema_fault(.0.as_ref()))]
    Schema(#[source] Option<InvalidFlatbuffer>),
    /// The schema has no table of this name.
    #[error("template schema: no table {0}; write its name with its namespace")]
    Root(String),
    /// A path that does not exist, or that leads to a value that cannot be patched.
    #[error("template path `{path}`: {reason}")]
    Path {
        /// The path.
        path: String,
        /// Describes the problem and its solution.
        reason: String,
    },
}

impl TemplateError {
    pub(crate) fn unknown_path<'k>(path: &str, known: impl Iterator<Item = &'k str>) -> Self {
        let known: Vec<&str> = known.collect();
        path_error(path, format!("not a path of this template; its paths are: {}", known.join(", ")))
    }

    pub(super) fn type_mismatch(path: &str, location: &FieldLocation, asked: &str) -> Self {
        let kind = location.kind.variant_name().unwrap_or("unknown");
        path_error(path, format!("type is {kind} of {} bytes, not {asked}", location.bytes))
    }
}

fn schema_fault(error: Option<&InvalidFlatbuffer>) -> String {
    error.map_or("no root table; add `root_type`".to_owned(), |error| {
        // The verifier ends its message with empty lines.
        format!("not a binary schema (.bfbs): {}", error.to_string().trim_end())
    })
}

fn path_error(path: &str, reason: impl Into<String>) -> TemplateError {
    TemplateError::Path { path: path.to_owned(), reason: reason.into() }
}

/// Returns the location of the value at each path. The paths begin at the table with the name
/// `root`.
pub(super) fn resolve(
    finished: &[u8],
    (schema, root): (&[u8], &str),
    paths: &[&str],
) -> Result<Vec<FieldLocation>, TemplateError> {
    let schema = reflection::root_as_schema(schema).map_err(|error| TemplateError::Schema(Some(error)))?;
    let named = schema.objects().iter().find(|object| object.name() == root);
    let root = named.ok_or_else(|| TemplateError::Root(root.to_owned()))?;
    let buffer = CheckedBuffer(finished);
    paths
        .iter()
        .map(|path| {
            let out_of_bounds = || {
                path_error(
                    path,
                    "leads past the end of the buffer; the buffer has another schema or is damaged",
                )
            };
            let table = buffer.follow_offset(0).ok_or_else(out_of_bounds)?;
            let resolver = PathResolver { schema, buffer, path };
            resolver.resolve(root, table)?.ok_or_else(out_of_bounds)
        })
        .collect()
}

/// The part of a path that selects elements of a vector or array.
#[derive(Clone, Copy)]
enum ElementIndex {
    One(usize),
    All,
}

/// Resolves one path in one buffer.
#[derive(Clone, Copy)]
struct PathResolver<'a> {
    schema: Schema<'a>,
    buffer: CheckedBuffer<'a>,
    path: &'a str,
}

/// The offset and type of a value. For an element, `type` is the type of the vector and `kind` is
/// the kind of the element.
#[derive(Clone, Copy)]
struct TypedOffset<'a> {
    at: usize,
    kind: BaseType,
    r#type: Type<'a>,
}

impl<'a> PathResolver<'a> {
    /// Resolves the path from a table. Returns `None` if the path leads out of the buffer.
    fn resolve(&self, root: Object<'a>, table: usize) -> Result<Option<FieldLocation>, TemplateError> {
        let (mut object, mut at) = (root, table);
        let mut names = self.path.split('.').peekable();
        while let Some(name) = names.next() {
            let (name, index) = self.split_index(name)?;
            let Some(mut value) = self.field(object, at, name)? else { return Ok(None) };
            match index {
                None => {}
                Some(ElementIndex::All) if names.peek().is_none() => return self.list(value, name),
                Some(ElementIndex::All) => {
                    return Err(self.error(format!("`{name}[]` must be the last part of a path")));
                }
                Some(ElementIndex::One(index)) => {
                    let Some(element) = self.element(value, name, index)? else { return Ok(None) };
                    value = element;
                }
            }
            if names.peek().is_none() {
                return self.location(value, name);
            }
            let Some(next) = self.object(value) else {
                return Err(self.error(format!("`{name}` has no fields of its own")));
            };
            let next_at = if next.is_struct() { Some(value.at) } else { self.buffer.follow_offset(value.at) };
            let Some(next_at) = next_at else { return Ok(None) };
            (object, at) = (next, next_at);
        }
        Err(self.error("is empty"))
    }

    /// Splits a path segment of the form `name`, `name[index]` or `name[]`.
    fn split_index<'n>(&self, name: &'n str) -> Result<(&'n str, Option<ElementIndex>), TemplateError> {
        let Some((name, rest)) = name.split_once('[') else { return Ok((name, None)) };
        match rest.strip_suffix(']').map(|index| (index, index.parse())) {
            Some(("", _)) => Ok((name, Some(ElementIndex::All))),
            Some((_, Ok(index))) => Ok((name, Some(ElementIndex::One(index)))),
            _ => Err(self.error(format!("`{name}[{rest}` is not an index; write `{name}[0]`"))),
        }
    }

    /// Returns a field of the table or struct at `at`.
    fn field(
        &self,
        object: Object<'a>,
        at: usize,
        name: &str,
    ) -> Result<Option<TypedOffset<'a>>, TemplateError> {
        let Some(field) = object.fields().iter().find(|field| field.name() == name) else {
            let known: Vec<&str> = object.fields().iter().map(|field| field.name()).collect();
            let reason =
                format!("`{}` has no field `{name}`; its fields are: {}", object.name(), known.join(", "));
            return Err(self.error(reason));
        };
        let offset = usize::from(field.offset());
        let within = if object.is_struct() {
            Some(offset)
        } else {
            match self.buffer.table_field(at, offset) {
                Some(0) => {
                    return Err(self.error(format!(
                        "`{name}` is not present in the buffer; build it with `force_defaults(true)`"
                    )));
                }
                within => within,
            }
        };
        let r#type = field.type_();
        Ok(within.map(|within| TypedOffset { at: at + within, kind: r#type.base_type(), r#type }))
    }

    /// Returns an element of a vector or array.
    fn element(
        &self,
        list: TypedOffset<'a>,
        name: &str,
        index: usize,
    ) -> Result<Option<TypedOffset<'a>>, TemplateError> {
        let Some((first, length)) = self.elements(list, name)? else { return Ok(None) };
        if index >= length {
            return Err(self.error(format!("`{name}` has {length} elements in the buffer, indexed from 0")));
        }
        let bytes = self.value_bytes(first).unwrap_or(4); // the length of an offset
        Ok(index
            .checked_mul(bytes)
            .map(|within| TypedOffset { at: first.at.saturating_add(within), ..first }))
    }

    /// Returns the location of all elements of a vector or array of scalars or structs.
    fn list(&self, list: TypedOffset<'a>, name: &str) -> Result<Option<FieldLocation>, TemplateError> {
        let Some((first, length)) = self.elements(list, name)? else { return Ok(None) };
        let Some(bytes) = self.value_bytes(first) else {
            return Err(self.error(format!("`{name}` has elements that are not scalars or structs")));
        };
        Ok(length.checked_mul(bytes).and_then(|bytes| self.checked_location(first.at, bytes, list.kind)))
    }

    /// Returns the offset of the first element of a vector or array, and the number of elements.
    fn elements(
        &self,
        list: TypedOffset<'a>,
        name: &str,
    ) -> Result<Option<(TypedOffset<'a>, usize)>, TemplateError> {
        let (at, length) = match list.kind {
            BaseType::Vector => {
                let Some(vector) = self.buffer.follow_offset(list.at) else { return Ok(None) };
                let Some(length) = self.buffer.u32_at(vector) else { return Ok(None) };
                (vector + 4, length as usize)
            }
            BaseType::Array => (list.at, usize::from(list.r#type.fixed_length())),
            _ => return Err(self.error(format!("`{name}` is not a vector"))),
        };
        Ok(Some((TypedOffset { at, kind: list.r#type.element(), r#type: list.r#type }, length)))
    }

    /// Returns the length of a scalar or struct in bytes, or `None` for any other type.
    fn value_bytes(&self, value: TypedOffset<'a>) -> Option<usize> {
        match self.object(value) {
            Some(object) if object.is_struct() => usize::try_from(object.bytesize()).ok(),
            _ => scalar_bytes(value.kind),
        }
    }

    /// Returns the location of the value at the end of a path.
    fn location(&self, value: TypedOffset<'a>, name: &str) -> Result<Option<FieldLocation>, TemplateError> {
        let Some(bytes) = self.value_bytes(value) else {
            let kind = value.kind.variant_name().unwrap_or("unknown");
            return Err(self.error(format!("`{name}` is a {kind}, not a scalar or a struct")));
        };
        Ok(self.checked_location(value.at, bytes, value.kind))
    }

    /// Returns the location, or `None` if it is not within the buffer.
    fn checked_location(&self, at: usize, bytes: usize, kind: BaseType) -> Option<FieldLocation> {
        let is_within = at.checked_add(bytes).is_some_and(|end| end <= self.buffer.0.len());
        let (at, bytes) = (u32::try_from(at).ok()?, u32::try_from(bytes).ok()?);
        is_within.then_some(FieldLocation { at, bytes, kind })
    }

    /// Returns the table or struct that is the type of a value.
    fn object(&self, value: TypedOffset<'a>) -> Option<Object<'a>> {
        let index = usize::try_from(value.r#type.index()).ok()?;
        let objects = self.schema.objects();
        (value.kind == BaseType::Obj && index < objects.len()).then(|| objects.get(index))
    }

    fn error(&self, reason: impl Into<String>) -> TemplateError {
        path_error(self.path, reason)
    }
}

/// Returns the length of a scalar that may be patched. Returns `None` for the type field of a
/// union, because its value decides how another field is read.
fn scalar_bytes(kind: BaseType) -> Option<usize> {
    Some(match kind {
        BaseType::Bool | BaseType::Byte | BaseType::UByte => 1,
        BaseType::Short | BaseType::UShort => 2,
        BaseType::Int | BaseType::UInt | BaseType::Float => 4,
        BaseType::Long | BaseType::ULong | BaseType::Double => 8,
        _ => return None,
    })
}

/// A finished FlatBuffer. Every read checks the bounds of the buffer.
#[derive(Clone, Copy)]
struct CheckedBuffer<'a>(&'a [u8]);

impl CheckedBuffer<'_> {
    fn u32_at(self, at: usize) -> Option<u32> {
        self.0.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u16_at(self, at: usize) -> Option<usize> {
        self.0.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes).into())
    }

    /// Follows the offset at `at`.
    fn follow_offset(self, at: usize) -> Option<usize> {
        at.checked_add(self.u32_at(at)? as usize)
    }

    /// Returns the offset of a field in its table, as stated in the vtable. The offset is 0 if the
    /// field is absent.
    fn table_field(self, table: usize, slot: usize) -> Option<usize> {
        let to_vtable = self.u32_at(table)?.cast_signed();
        let vtable = usize::try_from(i64::try_from(table).ok()? - i64::from(to_vtable)).ok()?;
        if slot + 2 > self.u16_at(vtable)? {
            return Some(0);
        }
        self.u16_at(vtable.checked_add(slot)?)
    }
}
