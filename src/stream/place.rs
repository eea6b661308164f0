//! Where the values of a finished FlatBuffer stand: a path of names, followed through the buffer by its binary schema.

use std::fmt;
use std::ops::Range;

use flatbuffers::InvalidFlatbuffer;
use flatbuffers_reflection::reflection::{self, BaseType, Object, Schema, Type};

use super::error::Error;

/// A value that may be patched: where it stands, and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    at: u32,
    bytes: u32,
    kind: BaseType,
}

impl Place {
    #[inline]
    pub(super) fn range(self) -> Range<usize> {
        self.at as usize..self.at as usize + self.bytes as usize
    }

    /// Whether it is all elements of a vector or array.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.kind, BaseType::Vector | BaseType::Array)
    }

    /// Whether the value is a `T`.
    pub(super) fn holds<T: Scalar>(&self) -> bool {
        self.kind == T::KIND && self.bytes as usize == size_of::<T>()
    }
}

/// A type of value that can stand in a slot: a scalar of FlatBuffers, or the bytes of a structure (`[u8; N]`, as the
/// generated type holds them).
pub trait Scalar: Copy + sealed::Sealed {
    /// Writes the value to `room`, which has its length.
    fn store(self, room: &mut [u8]);

    /// Reads the value from `bytes`, which have its length.
    fn load(bytes: &[u8]) -> Self;
}

mod sealed {
    use super::BaseType;

    /// What a schema calls the type.
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
    fn store(self, room: &mut [u8]) {
        u8::from(self).store(room);
    }

    #[inline]
    fn load(bytes: &[u8]) -> Self {
        u8::load(bytes) != 0
    }
}

impl<const N: usize> sealed::Sealed for [u8; N] {
    const KIND: BaseType = BaseType::Obj;
    const NAME: &'static str = "a structure of that length";
}

impl<const N: usize> Scalar for [u8; N] {
    #[inline]
    fn store(self, room: &mut [u8]) {
        if let Some(room) = room.first_chunk_mut() {
            *room = self;
        }
    }

    #[inline]
    fn load(bytes: &[u8]) -> Self {
        bytes.first_chunk().copied().unwrap_or([0; N])
    }
}

/// Why a buffer, a schema and paths make no template.
#[derive(Debug)]
#[non_exhaustive]
pub enum TemplateError {
    /// The message could not be built.
    Message(Error),
    /// The schema is no binary schema (.bfbs), or has no root table.
    Schema(Option<InvalidFlatbuffer>),
    /// The schema has no table of this name.
    Root(String),
    /// A path cannot be followed, or leads to something that cannot be patched.
    Path {
        /// The path.
        path: String,
        /// What is wrong with it, and what to do.
        reason: String,
    },
}

impl TemplateError {
    pub(super) fn message(error: Error) -> Self {
        Self::Message(error)
    }

    pub(super) fn unknown<'k>(path: &str, known: impl Iterator<Item = &'k str>) -> Self {
        let known: Vec<&str> = known.collect();
        refuse(path, format!("the template was not made with it, but with: {}", known.join(", ")))
    }

    pub(super) fn other_type(path: &str, place: &Place, asked: &str) -> Self {
        let kind = place.kind.variant_name().unwrap_or("unknown");
        refuse(path, format!("its type is {kind} of {} bytes, not {asked}", place.bytes))
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(error) => write!(f, "the template's message: {error}"),
            // The verifier ends its message with empty lines.
            Self::Schema(Some(error)) => {
                write!(
                    f,
                    "the template's schema is no binary schema (.bfbs): {}",
                    error.to_string().trim_end()
                )
            }
            Self::Schema(None) => f.write_str("the template's schema names no root table: add `root_type`"),
            Self::Root(name) => {
                write!(f, "the template's schema has no table {name}: name it with its namespace")
            }
            Self::Path { path, reason } => write!(f, "the template's path `{path}`: {reason}"),
        }
    }
}

impl std::error::Error for TemplateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Message(error) => Some(error),
            Self::Schema(error) => error.as_ref().map(|error| error as _),
            Self::Root(_) | Self::Path { .. } => None,
        }
    }
}

fn refuse(path: &str, reason: impl Into<String>) -> TemplateError {
    TemplateError::Path { path: path.to_owned(), reason: reason.into() }
}

/// The places of the values that the paths name.
///
/// `root` names the root table if that is not the schema's own.
pub(super) fn resolve(
    finished: &[u8],
    schema: &[u8],
    root: Option<&str>,
    paths: &[&str],
) -> Result<Vec<Place>, TemplateError> {
    let schema = reflection::root_as_schema(schema).map_err(|error| TemplateError::Schema(Some(error)))?;
    let root = match root {
        None => schema.root_table().ok_or(TemplateError::Schema(None))?,
        Some(name) => {
            let mut objects = schema.objects().iter();
            objects
                .find(|object| object.name() == name)
                .ok_or_else(|| TemplateError::Root(name.to_owned()))?
        }
    };
    let buffer = Buffer(finished);
    paths
        .iter()
        .map(|path| {
            let beyond =
                || refuse(path, "it leads beyond the buffer: the buffer is of another schema, or damaged");
            let table = buffer.offset(0).ok_or_else(beyond)?;
            let walk = Walk { schema, buffer, path };
            walk.follow(root, table)?.ok_or_else(beyond)
        })
        .collect()
}

/// Which elements of a vector or array.
#[derive(Clone, Copy)]
enum Index {
    One(usize),
    All,
}

/// One path on its way through one buffer.
#[derive(Clone, Copy)]
struct Walk<'a> {
    schema: Schema<'a>,
    buffer: Buffer<'a>,
    path: &'a str,
}

/// A value of some type, somewhere in the buffer. For an element its type is that of the vector, and its kind the
/// element's.
#[derive(Clone, Copy)]
struct Thing<'a> {
    at: usize,
    kind: BaseType,
    r#type: Type<'a>,
}

impl<'a> Walk<'a> {
    /// Follows the path from a table. None where the buffer ends before the path does.
    fn follow(&self, root: Object<'a>, table: usize) -> Result<Option<Place>, TemplateError> {
        let (mut object, mut at) = (root, table);
        let mut names = self.path.split('.').peekable();
        while let Some(name) = names.next() {
            let (name, index) = self.split_index(name)?;
            let Some(mut thing) = self.field(object, at, name)? else { return Ok(None) };
            match index {
                None => {}
                Some(Index::All) if names.peek().is_none() => return self.list(thing, name),
                Some(Index::All) => return Err(self.refuse(format!("`{name}[]` ends a path"))),
                Some(Index::One(index)) => {
                    let Some(element) = self.element(thing, name, index)? else { return Ok(None) };
                    thing = element;
                }
            }
            if names.peek().is_none() {
                return self.place(thing, name);
            }
            let Some(next) = self.object(thing) else {
                return Err(self.refuse(format!("`{name}` has no fields of its own")));
            };
            let next_at = if next.is_struct() { Some(thing.at) } else { self.buffer.offset(thing.at) };
            let Some(next_at) = next_at else { return Ok(None) };
            (object, at) = (next, next_at);
        }
        Err(self.refuse("it is empty"))
    }

    /// `name`, `name[index]` or `name[]`.
    fn split_index<'n>(&self, name: &'n str) -> Result<(&'n str, Option<Index>), TemplateError> {
        let Some((name, rest)) = name.split_once('[') else { return Ok((name, None)) };
        match rest.strip_suffix(']').map(|index| (index, index.parse())) {
            Some(("", _)) => Ok((name, Some(Index::All))),
            Some((_, Ok(index))) => Ok((name, Some(Index::One(index)))),
            _ => Err(self.refuse(format!("`{name}[{rest}` is no index: write `{name}[0]`"))),
        }
    }

    /// A field of the table or structure at `at`.
    fn field(&self, object: Object<'a>, at: usize, name: &str) -> Result<Option<Thing<'a>>, TemplateError> {
        let Some(field) = object.fields().iter().find(|field| field.name() == name) else {
            let known: Vec<&str> = object.fields().iter().map(|field| field.name()).collect();
            let reason = format!("`{}` has no field `{name}`, but: {}", object.name(), known.join(", "));
            return Err(self.refuse(reason));
        };
        let offset = usize::from(field.offset());
        let within = if object.is_struct() {
            Some(offset)
        } else {
            match self.buffer.table_field(at, offset) {
                Some(0) => {
                    return Err(self.refuse(format!(
                        "`{name}` is not present in the buffer: build it with `force_defaults(true)`"
                    )));
                }
                within => within,
            }
        };
        let r#type = field.type_();
        Ok(within.map(|within| Thing { at: at + within, kind: r#type.base_type(), r#type }))
    }

    /// An element of a vector or array.
    fn element(&self, list: Thing<'a>, name: &str, index: usize) -> Result<Option<Thing<'a>>, TemplateError> {
        let Some((first, length)) = self.elements(list, name)? else { return Ok(None) };
        if index >= length {
            return Err(self.refuse(format!("`{name}` has {length} elements in the buffer, counted from 0")));
        }
        let bytes = self.value_bytes(first).unwrap_or(4); // an offset
        Ok(index.checked_mul(bytes).map(|within| Thing { at: first.at.saturating_add(within), ..first }))
    }

    /// All elements of a vector or array of scalars or structures.
    fn list(&self, list: Thing<'a>, name: &str) -> Result<Option<Place>, TemplateError> {
        let Some((first, length)) = self.elements(list, name)? else { return Ok(None) };
        let Some(bytes) = self.value_bytes(first) else {
            return Err(self.refuse(format!("`{name}` has elements that are no scalars or structures")));
        };
        Ok(length.checked_mul(bytes).and_then(|bytes| self.within(first.at, bytes, list.kind)))
    }

    /// Where a vector or array begins, as its first element if it has one, and how many it has.
    fn elements(&self, list: Thing<'a>, name: &str) -> Result<Option<(Thing<'a>, usize)>, TemplateError> {
        let (at, length) = match list.kind {
            BaseType::Vector => {
                let Some(vector) = self.buffer.offset(list.at) else { return Ok(None) };
                let Some(length) = self.buffer.word(vector) else { return Ok(None) };
                (vector + 4, length as usize)
            }
            BaseType::Array => (list.at, usize::from(list.r#type.fixed_length())),
            _ => return Err(self.refuse(format!("`{name}` is no vector"))),
        };
        Ok(Some((Thing { at, kind: list.r#type.element(), r#type: list.r#type }, length)))
    }

    /// Length of a scalar or structure; none of anything else.
    fn value_bytes(&self, thing: Thing<'a>) -> Option<usize> {
        match self.object(thing) {
            Some(object) if object.is_struct() => usize::try_from(object.bytesize()).ok(),
            _ => scalar_bytes(thing.kind),
        }
    }

    /// What a path ends at.
    fn place(&self, thing: Thing<'a>, name: &str) -> Result<Option<Place>, TemplateError> {
        let Some(bytes) = self.value_bytes(thing) else {
            let kind = thing.kind.variant_name().unwrap_or("unknown");
            return Err(self.refuse(format!("`{name}` is a {kind}, not a scalar or a structure")));
        };
        Ok(self.within(thing.at, bytes, thing.kind))
    }

    /// A place, if the buffer has it.
    fn within(&self, at: usize, bytes: usize, kind: BaseType) -> Option<Place> {
        let is_within = at.checked_add(bytes).is_some_and(|end| end <= self.buffer.0.len());
        let (at, bytes) = (u32::try_from(at).ok()?, u32::try_from(bytes).ok()?);
        is_within.then_some(Place { at, bytes, kind })
    }

    /// The table or structure that a value is.
    fn object(&self, thing: Thing<'a>) -> Option<Object<'a>> {
        let index = usize::try_from(thing.r#type.index()).ok()?;
        let objects = self.schema.objects();
        (thing.kind == BaseType::Obj && index < objects.len()).then(|| objects.get(index))
    }

    fn refuse(&self, reason: impl Into<String>) -> TemplateError {
        refuse(self.path, reason)
    }
}

/// Length of a scalar that may be patched. The type of a union says how another field is read: it may not.
fn scalar_bytes(kind: BaseType) -> Option<usize> {
    Some(match kind {
        BaseType::Bool | BaseType::Byte | BaseType::UByte => 1,
        BaseType::Short | BaseType::UShort => 2,
        BaseType::Int | BaseType::UInt | BaseType::Float => 4,
        BaseType::Long | BaseType::ULong | BaseType::Double => 8,
        _ => return None,
    })
}

/// A finished FlatBuffer, read with every step checked.
#[derive(Clone, Copy)]
struct Buffer<'a>(&'a [u8]);

impl Buffer<'_> {
    fn word(self, at: usize) -> Option<u32> {
        self.0.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn half_word(self, at: usize) -> Option<usize> {
        self.0.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes).into())
    }

    /// Where the offset at `at` leads.
    fn offset(self, at: usize) -> Option<usize> {
        at.checked_add(self.word(at)? as usize)
    }

    /// Where in its table a field stands, by the vtable; 0 if it is absent.
    fn table_field(self, table: usize, slot: usize) -> Option<usize> {
        let to_vtable = self.word(table)?.cast_signed();
        let vtable = usize::try_from(i64::try_from(table).ok()? - i64::from(to_vtable)).ok()?;
        if slot + 2 > self.half_word(vtable)? {
            return Some(0);
        }
        self.half_word(vtable.checked_add(slot)?)
    }
}
