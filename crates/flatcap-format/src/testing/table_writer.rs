//! Writes FlatBuffers whose tables have known fields. Each table is written as one sequence of
//! bytes.
//!
//! The builder of the FlatBuffers library collects the fields of each table, sorts them, and
//! searches for an equal vtable. This module does not repeat these steps for each table. All tables
//! with the same layout share one vtable, and a table is a sequence of bytes in which each field
//! has a fixed offset. Parents are written before their children, and the tables of a list follow
//! each other, so that no bytes are moved.

use std::cmp::Reverse;

use crate::frame::{Scalar, TemplateError};
use crate::schema::{CompiledSchema, SlotContent, TableSlot};

/// Size of an offset, and of the length of a list, in bytes.
const OFFSET_BYTES: usize = 4;
/// Size of an entry of a vtable, in bytes.
const SLOT_BYTES: usize = 2;
/// The alignment of structs in bytes, which is the largest alignment that a struct may need.
const STRUCT_ALIGNMENT: usize = 8;
/// Maximum length of a buffer, in bytes. The limit is needed because offsets to vtables are signed.
const BUFFER_BYTES_MAX: usize = i32::MAX as usize;

/// The fields that all tables of one kind have, and the offsets of these fields.
///
/// See [`TableWriter`] for an example.
#[derive(Debug, Clone)]
pub struct TableLayout {
    vtable: Box<[u8]>,
    fields: Box<[(Box<str>, TableField)]>, // as named by the caller
    bytes: usize,                          // length of a table, a multiple of the alignment
    alignment: usize,
    references: usize,
}

/// A handle to a field of a [`TableLayout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableField {
    place: usize,
    content: SlotContent,
}

/// The position of a table in the buffer of a [`TableWriter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TablePosition(usize);

/// The positions of a list's tables in the buffer of a [`TableWriter`].
#[derive(Debug, Clone, Copy)]
pub struct TableList {
    first: usize,
    stride: usize,
}

impl TableList {
    /// Returns the location of a table of the list.
    #[inline]
    #[must_use]
    pub fn position(self, index: usize) -> TablePosition {
        TablePosition(self.first + index * self.stride)
    }
}

impl TableLayout {
    /// Creates the layout of tables that have the fields with these names. Tables omit all other
    /// fields, and readers get the default values of these fields. `schema` is a compiled schema
    /// that has this table as its root. Any table can be the root, because
    /// [`CompiledSchema::compile`] accepts the name of any table.
    ///
    /// # Errors
    /// Returns `Path` if the table in the schema lacks one of the fields.
    pub fn new(schema: &CompiledSchema, names: &[&str]) -> Result<Self, TemplateError> {
        let slots: Vec<TableSlot<'_>> = schema.root_slots().collect();
        let mut chosen = Vec::with_capacity(names.len());
        for name in names {
            let slot = slots.iter().find(|slot| slot.name == *name);
            let known = || slots.iter().map(|slot| slot.name);
            chosen.push(slot.ok_or_else(|| TemplateError::unknown_path(name, known()))?);
        }
        // The field with the largest alignment comes first, so that there is padding only before
        // the first field.
        let mut by_alignment: Vec<usize> = (0..chosen.len()).collect();
        let alignment = |slot: &TableSlot<'_>| size_and_alignment(slot.content).1;
        by_alignment.sort_by_key(|index| Reverse(chosen.get(*index).map(|slot| alignment(slot))));
        let largest = chosen.iter().map(|slot| alignment(slot)).max().unwrap_or(1).max(OFFSET_BYTES);
        let vtable_bytes = chosen.iter().map(|slot| usize::from(slot.slot) + SLOT_BYTES).max().unwrap_or(0);
        let mut vtable = vec![0; vtable_bytes.max(2 * SLOT_BYTES)];
        let mut fields: Vec<_> = names.iter().map(|name| (Box::from(*name), None)).collect();
        let mut end = OFFSET_BYTES;
        for index in by_alignment {
            let (Some(slot), Some((_, field))) = (chosen.get(index), fields.get_mut(index)) else { continue };
            let (size, alignment) = size_and_alignment(slot.content);
            let place = end.next_multiple_of(alignment);
            store_short(&mut vtable, slot.slot.into(), place);
            *field = Some(TableField { place, content: slot.content });
            end = place + size;
        }
        let bytes = end.next_multiple_of(largest);
        let length = vtable.len();
        store_short(&mut vtable, 0, length);
        store_short(&mut vtable, SLOT_BYTES, end);
        let fields: Box<[_]> = fields.into_iter().filter_map(|(name, field)| Some((name, field?))).collect();
        let references = fields.iter().filter(|(_, field)| field.is_reference()).count();
        Ok(Self { vtable: vtable.into(), fields, bytes, alignment: largest, references })
    }

    /// Returns the handle of a field of the layout.
    ///
    /// # Errors
    /// Returns `Path` if the layout does not contain the field.
    pub fn field(&self, name: &str) -> Result<TableField, TemplateError> {
        let known = || self.fields.iter().map(|(known, _)| &**known);
        let field = self.fields.iter().find(|(known, _)| **known == *name);
        field.map(|(_, field)| *field).ok_or_else(|| TemplateError::unknown_path(name, known()))
    }
}

impl TableField {
    fn is_reference(self) -> bool {
        !matches!(self.content, SlotContent::Value { .. } | SlotContent::Struct { .. })
    }
}

/// Returns the length and the alignment of a field in its table, in bytes.
fn size_and_alignment(content: SlotContent) -> (usize, usize) {
    match content {
        SlotContent::Value { bytes } => (bytes, bytes),
        SlotContent::Struct { bytes } => (bytes, STRUCT_ALIGNMENT),
        _ => (OFFSET_BYTES, OFFSET_BYTES),
    }
}

/// Stores a 16-bit value in a vtable. All values are less than 64 KiB, because a table of a schema
/// has at most 64 KiB of fields.
fn store_short(vtable: &mut [u8], at: usize, value: usize) {
    let value = u16::try_from(value).unwrap_or(u16::MAX);
    if let Some(slot) = vtable.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *slot = value.to_le_bytes();
    }
}

/// Writes one FlatBuffer after the other, and reuses the memory.
///
/// ```
/// use flatcap_format::testing::{TableLayout, TableWriter};
/// use flatcap_format::schema::{CompiledSchema, segment};
///
/// let schema = std::fs::read("generated/segment.bfbs")?;
/// let layout = |table: &str, fields: &[&str]| {
///     let schema = CompiledSchema::compile(&schema, table)?;
///     Ok::<_, Box<dyn std::error::Error>>(TableLayout::new(&schema, fields)?)
/// };
/// let fields = ["id", "name", "root", "schema", "labels"];
/// let descriptor = layout("flatcap.segment.SourceDescriptor", &fields)?;
/// let label = layout("flatcap.segment.Label", &["key", "value"])?;
/// let (key, value) = (label.field("key")?, label.field("value")?);
///
/// let mut writer = TableWriter::new();
/// let root = writer.start(&descriptor);
/// writer.set(root, descriptor.field("id")?, 7_u16);
/// writer.text(root, descriptor.field("name")?, "cpu");
/// writer.text(root, descriptor.field("root")?, "flatcap.host.Cpu");
/// writer.values(root, descriptor.field("schema")?, &[1_u8, 2, 3]);
/// let labels = writer.tables(root, descriptor.field("labels")?, &label, 2);
/// for (index, site) in ["fra", "ams"].into_iter().enumerate() {
///     writer.text(labels.position(index), key, "site");
///     writer.text(labels.position(index), value, site);
/// }
///
/// let payload = writer.finished().ok_or("a reference is missing")?;
/// let read = flatbuffers::root::<segment::SourceDescriptor>(payload)?;
/// assert_eq!((read.id(), read.name(), read.schema().len()), (7, "cpu", 3));
/// assert_eq!(read.labels().ok_or("none")?.get(1).value(), "ams");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TableWriter {
    bytes: Vec<u8>,
    vtables: Vec<(usize, usize)>, // start and end of each vtable
    missing: usize,               // number of references that do not lead to anything yet
}

impl TableWriter {
    /// Creates a writer that has not allocated memory yet. Later buffers reuse the memory of
    /// earlier buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a buffer, and appends the root table of the buffer.
    pub fn start(&mut self, layout: &TableLayout) -> TablePosition {
        self.bytes.clear();
        self.vtables.clear();
        self.missing = 0;
        self.bytes.resize(OFFSET_BYTES, 0);
        let root = self.append_tables(layout, 1);
        self.store_offset(0, root);
        TablePosition(root)
    }

    /// Returns the finished buffer. Returns `None` if a string, list or table of the layouts was
    /// not written, or if the buffer is longer than the 2 GiB that FlatBuffers allows.
    pub fn finished(&self) -> Option<&[u8]> {
        (self.missing == 0 && self.bytes.len() <= BUFFER_BYTES_MAX).then_some(&self.bytes)
    }

    /// Sets a number, a bool, or the bytes of a struct.
    ///
    /// # Panics
    /// Panics if the length of the field differs from the length of the value.
    #[inline]
    pub fn set<T: Scalar>(&mut self, table: TablePosition, field: TableField, value: T) {
        let bytes = match field.content {
            SlotContent::Value { bytes } | SlotContent::Struct { bytes } => bytes,
            _ => 0,
        };
        assert_eq!(bytes, size_of::<T>(), "the length of the field");
        let start = table.0 + field.place;
        if let Some(place) = self.bytes.get_mut(start..start + size_of::<T>()) {
            value.store(place);
        }
    }

    /// Writes a string.
    ///
    /// # Panics
    /// Panics if the field is not a string.
    #[inline]
    pub fn text(&mut self, table: TablePosition, field: TableField, text: &str) {
        assert_eq!(field.content, SlotContent::Text, "the type of the field");
        let at = self.append_text(text);
        self.refer(table.0 + field.place, at);
    }

    /// Writes a list of strings.
    ///
    /// # Panics
    /// Panics if the field is not a list of strings.
    pub fn texts(&mut self, table: TablePosition, field: TableField, texts: &[&str]) {
        assert_eq!(field.content, SlotContent::Texts, "the type of the field");
        let at = self.append_length(texts.len(), OFFSET_BYTES);
        let first = self.bytes.len();
        self.bytes.resize(first + OFFSET_BYTES * texts.len(), 0);
        self.refer(table.0 + field.place, at);
        for (index, text) in texts.iter().enumerate() {
            let to = self.append_text(text);
            self.store_offset(first + OFFSET_BYTES * index, to);
        }
    }

    /// Writes a list of numbers, of bools, or of structs. A struct is passed as its bytes.
    ///
    /// # Panics
    /// Panics if the field is not a list whose elements have this length.
    pub fn values<T: Scalar>(&mut self, table: TablePosition, field: TableField, values: &[T]) {
        let stride = size_of::<T>();
        let (expected, alignment) = match field.content {
            SlotContent::Values { stride } => (stride, stride),
            SlotContent::Structs { stride } => (stride, STRUCT_ALIGNMENT),
            _ => (0, 1),
        };
        assert_eq!(expected, stride, "the length of the elements");
        let at = self.append_length(values.len(), alignment);
        let first = self.bytes.len();
        self.bytes.resize(first + size_of_val(values), 0);
        let places = self.bytes.get_mut(first..).unwrap_or_default().chunks_exact_mut(stride);
        places.zip(values).for_each(|(place, value)| value.store(place));
        self.refer(table.0 + field.place, at);
    }

    /// Writes a child table of another table. The fields of the child are zero until they are set.
    ///
    /// # Panics
    /// Panics if the field is not a table.
    pub fn table(&mut self, table: TablePosition, field: TableField, layout: &TableLayout) -> TablePosition {
        assert_eq!(field.content, SlotContent::Table, "the type of the field");
        let at = self.append_tables(layout, 1);
        self.refer(table.0 + field.place, at);
        TablePosition(at)
    }

    /// Writes a list of tables. The fields of the tables are zero until they are set.
    ///
    /// # Panics
    /// Panics if the field is not a list of tables.
    pub fn tables(
        &mut self,
        table: TablePosition,
        field: TableField,
        layout: &TableLayout,
        count: usize,
    ) -> TableList {
        assert_eq!(field.content, SlotContent::Tables, "the type of the field");
        let at = self.append_length(count, OFFSET_BYTES);
        let offsets = self.bytes.len();
        self.bytes.resize(offsets + OFFSET_BYTES * count, 0);
        self.refer(table.0 + field.place, at);
        let list = TableList { first: self.append_tables(layout, count), stride: layout.bytes };
        for index in 0..count {
            self.store_offset(offsets + OFFSET_BYTES * index, list.position(index).0);
        }
        list
    }

    /// Appends consecutive tables. If their vtable is new, appends it before the tables. Returns
    /// the offset of the first table.
    fn append_tables(&mut self, layout: &TableLayout, count: usize) -> usize {
        let known =
            self.vtables.iter().find(|(start, end)| self.bytes.get(*start..*end) == Some(&layout.vtable));
        let vtable = known.map_or(self.bytes.len().next_multiple_of(SLOT_BYTES), |(start, _)| *start);
        if known.is_none() {
            self.bytes.resize(vtable, 0);
            self.bytes.extend_from_slice(&layout.vtable);
            self.vtables.push((vtable, self.bytes.len()));
        }
        self.align(layout.alignment, 0);
        let first = self.bytes.len();
        self.bytes.resize(first + layout.bytes * count, 0);
        self.missing += layout.references * count;
        for index in 0..count {
            let table = first + layout.bytes * index;
            // The offset leads from the table back to its vtable. If the buffer is too long for
            // this offset, `finished` returns `None`.
            self.store(table, u32::try_from(table - vtable).unwrap_or_default());
        }
        first
    }

    /// Appends a string and its terminating zero byte. Returns the offset of the string's length.
    #[inline]
    fn append_text(&mut self, text: &str) -> usize {
        let at = self.append_length(text.len(), 1);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        at
    }

    /// Appends the length of a list so that the elements, which the caller appends next, are
    /// aligned. Returns the offset of the length.
    #[inline]
    fn append_length(&mut self, length: usize, alignment: usize) -> usize {
        self.align(alignment.max(OFFSET_BYTES), OFFSET_BYTES);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&u32::try_from(length).unwrap_or_default().to_le_bytes());
        at
    }

    /// Appends zeros until the offset that is `distance` bytes after the end of the buffer is
    /// aligned.
    #[inline]
    fn align(&mut self, alignment: usize, distance: usize) {
        let end = self.bytes.len() + distance;
        self.bytes.resize(end.next_multiple_of(alignment) - distance, 0);
    }

    /// Makes the reference at offset `at` lead to offset `to`.
    #[inline]
    fn refer(&mut self, at: usize, to: usize) {
        let is_new = self.bytes.get(at..at + OFFSET_BYTES) == Some(&[0; OFFSET_BYTES]);
        self.missing -= usize::from(is_new);
        self.store_offset(at, to);
    }

    #[inline]
    fn store_offset(&mut self, at: usize, to: usize) {
        self.store(at, u32::try_from(to - at).unwrap_or_default());
    }

    #[inline]
    fn store(&mut self, at: usize, word: u32) {
        if let Some(place) = self.bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *place = word.to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::host::{File, FileArgs, FileCounter, FileCounterArgs, FileValue};
    use crate::fixtures::test::{Point, Shapes};

    const FILE: &[u8] = include_bytes!("../../../../generated/host/file.bfbs");
    const SHAPES: &[u8] = include_bytes!("../../../../tests/data/schema/shapes.bfbs");

    fn layout(schema: &[u8], table: &str, fields: &[&str]) -> TableLayout {
        TableLayout::new(&CompiledSchema::compile(schema, table).unwrap(), fields).unwrap()
    }

    /// Returns a payload as JSON.
    fn json(payload: &[u8]) -> String {
        let mut json = Vec::new();
        let schema = CompiledSchema::compile(FILE, "flatcap.host.File").unwrap();
        schema.append_json(payload, &mut json).unwrap();
        String::from_utf8(json).unwrap()
    }

    // Proves that flatbuffers accepts and reads each type of field. Method: write the fields with a
    // writer that has already been used.
    #[test]
    fn every_type_is_written() {
        let shapes = layout(
            SHAPES,
            "flatcap.test.Shapes",
            &["words", "point", "last", "scalars", "text", "leaf", "numbers", "flags", "points", "leaves"],
        );
        let scalars = layout(SHAPES, "flatcap.test.Scalars", &["flag", "i8", "u16", "f64", "f32", "u64"]);
        let leaf = layout(SHAPES, "flatcap.test.Leaf", &["name", "weight"]);
        let of = |layout: &TableLayout, name: &str| layout.field(name).unwrap();
        let mut writer = TableWriter::new();
        for round in 0..2 {
            let root = writer.start(&shapes);
            let point: [u8; 16] = std::array::from_fn(|at| if at == 0 { 7 } else { 0 });
            writer.set(root, of(&shapes, "last"), 9_u64);
            writer.set(root, of(&shapes, "point"), point);
            writer.text(root, of(&shapes, "text"), "h\u{e4}");
            writer.texts(root, of(&shapes, "words"), &["a", "", "bcd"]);
            writer.values(root, of(&shapes, "numbers"), &[1_u64, 2]);
            writer.values(root, of(&shapes, "flags"), &[true, false, true]);
            writer.values(root, of(&shapes, "points"), &[point, point]);
            let below = writer.table(root, of(&shapes, "scalars"), &scalars);
            writer.set(below, of(&scalars, "flag"), false);
            writer.set(below, of(&scalars, "i8"), -3_i8);
            writer.set(below, of(&scalars, "u16"), 500_u16);
            writer.set(below, of(&scalars, "f64"), 1.5_f64);
            assert!(writer.finished().is_none(), "two references lead nowhere");
            let one = writer.table(root, of(&shapes, "leaf"), &leaf);
            writer.text(one, of(&leaf, "name"), "one");
            writer.set(one, of(&leaf, "weight"), 2.5_f32);
            let leaves = writer.tables(root, of(&shapes, "leaves"), &leaf, 3);
            for index in 0..3 {
                writer.text(leaves.position(index), of(&leaf, "name"), &"x".repeat(index + round));
            }
            let read = flatbuffers::root::<Shapes<'_>>(writer.finished().unwrap()).unwrap();
            assert_eq!((read.last(), read.text(), read.point().map(Point::x)), (9, Some("h\u{e4}"), Some(7)));
            assert_eq!(read.words().unwrap().iter().collect::<Vec<_>>(), ["a", "", "bcd"]);
            assert_eq!(read.numbers().unwrap().iter().collect::<Vec<_>>(), [1, 2]);
            assert_eq!(read.flags().unwrap().iter().collect::<Vec<_>>(), [true, false, true]);
            assert_eq!(read.points().unwrap().get(1).x(), 7);
            let below = read.scalars().unwrap();
            assert_eq!((below.flag(), below.i8_(), below.u16_()), (false, -3, 500));
            assert_eq!(
                (below.f64_().to_bits(), below.u64_(), below.i32_()),
                (1.5_f64.to_bits(), 0, -2_000_000_000)
            );
            assert_eq!(read.leaf().unwrap().name(), Some("one"));
            let names: Vec<_> =
                read.leaves().unwrap().iter().map(|leaf| leaf.name().unwrap().len()).collect();
            assert_eq!(names, [round, 1 + round, 2 + round]);
        }
    }

    // Proves that the name of an unknown field is refused, and that the error lists the fields of
    // the table.
    #[test]
    fn unknown_fields_are_refused() {
        let schema = CompiledSchema::compile(FILE, "flatcap.host.File").unwrap();
        let error = TableLayout::new(&schema, &["values", "gauge"]).unwrap_err().to_string();
        assert!(error.contains("gauge") && error.contains("gauges"), "{error}");
        let error = layout(FILE, "flatcap.host.File", &["values"]).field("skipped").unwrap_err().to_string();
        assert!(error.contains("skipped"), "{error}");
    }

    // Proves that a value whose length differs from the length of the field is refused, and does
    // not overwrite the next field.
    #[test]
    #[should_panic(expected = "the length of the field")]
    fn another_length_is_refused() {
        let file = layout(FILE, "flatcap.host.File", &["skipped"]);
        let mut writer = TableWriter::new();
        let root = writer.start(&file);
        writer.set(root, file.field("skipped").unwrap(), 1_u32);
    }

    proptest! {
        // Proves that readers read the same content as from a buffer of the builder in flatbuffers,
        // and that flatbuffers accepts the buffer.
        #[test]
        fn reads_as_built(series in prop::collection::vec(("[a-z]{0,9}", "\\PC{0,20}", -1e9..1e9_f64), 0..20), skipped: u64) {
            let mut builder = FlatBufferBuilder::new();
            let counters: Vec<_> = series
                .iter()
                .map(|(name, labels, value)| {
                    let (name, labels) = (builder.create_string(name), builder.create_string(labels));
                    let fields = FileCounterArgs { name: Some(name), labels: Some(labels), value: *value };
                    FileCounter::create(&mut builder, &fields)
                })
                .collect();
            let counters = Some(builder.create_vector(&counters));
            let value = FileValue::new(&[b'v'; 56], 1.0, 2);
            let values = Some(builder.create_vector(&[value, value]));
            let fields = FileArgs { values, counters, skipped, ..FileArgs::default() };
            let root = File::create(&mut builder, &fields);
            builder.finish_minimal(root);

            let file = layout(FILE, "flatcap.host.File", &["values", "counters", "skipped"]);
            let counter = layout(FILE, "flatcap.host.FileCounter", &["name", "labels", "value"]);
            let mut writer = TableWriter::new();
            let root = writer.start(&file);
            writer.set(root, file.field("skipped").unwrap(), skipped);
            writer.values(root, file.field("values").unwrap(), &[value.0, value.0]);
            let list = writer.tables(root, file.field("counters").unwrap(), &counter, series.len());
            for (index, (name, labels, value)) in series.iter().enumerate() {
                writer.text(list.position(index), counter.field("name").unwrap(), name);
                writer.text(list.position(index), counter.field("labels").unwrap(), labels);
                writer.set(list.position(index), counter.field("value").unwrap(), *value);
            }
            let written = writer.finished().unwrap();
            prop_assert!(flatbuffers::root::<File<'_>>(written).is_ok());
            prop_assert_eq!(json(written), json(builder.finished_data()));
        }
    }
}
