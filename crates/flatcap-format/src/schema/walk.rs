//! Walks a payload according to its compiled schema. The walk checks every offset.

use super::bytes::{
    BoxedDecodeError, UOFFSET_BYTES, decode_error, field_offset, follow, out_of_bounds, read_length, vtable,
};
use super::compiled::{CompiledObject, CompiledSchema, DEPTH_MAX, ElementType, Field, FieldType};
use super::error::{DecodeError, DecodeFault};
use super::escaped_text::text_of;
use super::value::{FieldValue, ScalarType};
use super::visitor::{PathStep, Visitor};

/// Maximum number of values, objects and lists in one payload. If a payload has more bytes than
/// this number, the limit is the length of the payload in bytes. The limit is needed because
/// several offsets may refer to the same bytes, so a short payload can expand to any size.
pub const VALUES_MAX: usize = 1 << 20;

/// Maximum number of bytes of text in one payload, counting shared text at each use. For a payload
/// that is longer than this limit, the maximum is the length of the payload.
pub const TEXT_BYTES_MAX: usize = 64 << 20;

impl CompiledSchema {
    /// Decodes one payload and passes its values to the visitor. Allocates memory only for an
    /// error.
    ///
    /// # Errors
    /// Returns the first location at which the payload does not match the schema or exceeds a
    /// limit. No bytes can cause a panic.
    pub fn walk<V: Visitor>(&self, payload: &[u8], visitor: &mut V) -> Result<(), DecodeError> {
        let mut walker = PayloadWalker {
            schema: self,
            payload,
            visitor,
            values_left: VALUES_MAX.max(payload.len()),
            text_left: TEXT_BYTES_MAX.max(payload.len()),
        };
        let root = self.object(self.root);
        if self.is_opaque {
            return walker.opaque(root).map_err(|failure| *failure.0);
        }
        walker
            .follow(0)
            .and_then(|at| walker.object(PathStep::Root, root, at, 0))
            .map_err(|failure| *failure.0)
    }
}

type DecodeResult = Result<(), BoxedDecodeError>;

struct PayloadWalker<'w, V> {
    schema: &'w CompiledSchema,
    payload: &'w [u8],
    visitor: &'w mut V,
    values_left: usize,
    text_left: usize,
}

impl<'w, V: Visitor> PayloadWalker<'w, V> {
    /// Passes a payload without a schema as one string.
    fn opaque(&mut self, root: &'w CompiledObject) -> DecodeResult {
        self.visitor.begin_object(PathStep::Root);
        if let Some(field) = root.fields.first() {
            self.count(0, 1)?;
            // All bytes decide whether the payload is UTF-8, so only an equal payload can be read
            // in the same way.
            self.visitor.reads_structure(0..self.payload.len());
            let step = PathStep::Field(field);
            self.visitor.value(step, FieldValue::Text(&text_of(self.payload)));
        }
        self.visitor.end_object();
        Ok(())
    }

    /// Follows the offset at `at`.
    #[inline]
    fn follow(&mut self, at: usize) -> Result<usize, BoxedDecodeError> {
        let to = follow(self.payload, at)?;
        self.visitor.reads_structure(at..at + UOFFSET_BYTES);
        Ok(to)
    }

    /// Follows the offset at `at` to a length field. Returns the length, and the offset of the byte
    /// after the length field.
    #[inline]
    fn follow_to_length(&mut self, at: usize) -> Result<ListRange, BoxedDecodeError> {
        let at = self.follow(at)?;
        let length = read_length(self.payload, at)?;
        self.visitor.reads_structure(at..at + UOFFSET_BYTES);
        Ok(ListRange { at: at.saturating_add(UOFFSET_BYTES), length })
    }

    /// Walks an object. `depth` is the number of enclosing objects.
    fn object(
        &mut self,
        step: PathStep<'_>,
        object: &'w CompiledObject,
        at: usize,
        depth: usize,
    ) -> DecodeResult {
        // A table may contain itself, so the schema does not bound the depth.
        if depth >= DEPTH_MAX {
            return Err(decode_error(at, DecodeFault::TooDeep));
        }
        // The object is counted before each call of the visitor, so that a visitor never receives
        // more values than the limit.
        self.count(at, 1)?;
        self.visitor.begin_object(step);
        if object.struct_bytes.is_some() {
            for field in &object.fields {
                self.field(field, at.saturating_add(field.at.into()), depth)
                    .map_err(|failure| failure.prefix_path(&field.name))?;
            }
        } else {
            let vtable = vtable(self.payload, at)?;
            // The vtable is a part of the payload, so the difference of the addresses is the offset
            // of the vtable.
            let start = vtable.as_ptr().addr() - self.payload.as_ptr().addr();
            self.visitor.reads_structure(at..at + UOFFSET_BYTES);
            self.visitor.reads_structure(start..start + vtable.len());
            for field in &object.fields {
                // Slots of fields that are not selected are not read, so damage in these slots does
                // not matter.
                let offset = field_offset(vtable, field.at);
                if offset == 0 {
                    self.count(at, 1)?;
                    // The default of an object, list or string is absent, so this one call is
                    // correct for all types.
                    self.scalar(PathStep::Field(field), field, field.default);
                } else {
                    self.field(field, at.saturating_add(offset), depth)
                        .map_err(|failure| failure.prefix_path(&field.name))?;
                }
            }
        }
        self.visitor.end_object();
        Ok(())
    }

    /// Walks a field that is present. `at` is the offset of the field in the payload.
    #[inline]
    fn field(&mut self, field: &'w Field, at: usize, depth: usize) -> DecodeResult {
        let step = PathStep::Field(field);
        match field.value_type {
            FieldType::Scalar(scalar) => {
                self.count(at, 1)?;
                let value = scalar.read(self.payload, at).ok_or_else(|| out_of_bounds(at))?;
                self.visitor.reads_value(at..at + scalar.size());
                self.scalar(step, field, value);
                Ok(())
            }
            FieldType::String => self.string(step, field, at),
            FieldType::Object(object) => self.nested(step, object, at, depth),
            FieldType::Vector(element) => {
                let range = self.follow_to_length(at)?;
                self.list(field, element, range, depth)
            }
            FieldType::Array(element, length) => {
                self.list(field, element, ListRange { at, length: length.into() }, depth)
            }
        }
    }

    fn nested(&mut self, step: PathStep<'_>, object: usize, at: usize, depth: usize) -> DecodeResult {
        let object = self.schema.object(object);
        let at = if object.struct_bytes.is_some() { at } else { self.follow(at)? };
        self.object(step, object, at, depth + 1)
    }

    fn list(
        &mut self,
        field: &'w Field,
        element: ElementType,
        range: ListRange,
        depth: usize,
    ) -> DecodeResult {
        let ListRange { at, length } = range;
        let stride = match element {
            ElementType::Scalar(scalar) => scalar.size(),
            ElementType::String => UOFFSET_BYTES,
            ElementType::Object(object) => self.schema.object(object).struct_bytes.unwrap_or(UOFFSET_BYTES),
        };
        // The length is checked for the whole list and before `begin_list`, because the visitor may
        // reserve memory for `length` elements. So below, `at + index * stride` is always within
        // the payload.
        let bytes = length
            .checked_mul(stride)
            .and_then(|bytes| self.payload.get(at..)?.get(..bytes))
            .ok_or_else(|| out_of_bounds(at))?;
        if field.is_text {
            return self.text(PathStep::Field(field), field, bytes, at);
        }
        self.count(at, 1)?;
        self.visitor.begin_list(PathStep::Field(field), length);
        match element {
            ElementType::Scalar(scalar) => self.scalars(field, scalar, bytes, at)?,
            ElementType::String => {
                for index in 0..length {
                    self.string(PathStep::Element(field, index), field, at + index * stride)
                        .map_err(|failure| failure.prefix_path(&index))?;
                }
            }
            ElementType::Object(object) if self.structs(object, bytes, depth).is_some() => {}
            ElementType::Object(object) => {
                for index in 0..length {
                    self.nested(PathStep::Element(field, index), object, at + index * stride, depth)
                        .map_err(|failure| failure.prefix_path(&index))?;
                }
            }
        }
        self.visitor.end_list();
        Ok(())
    }

    /// Passes a list of structs as a whole to the visitor, if the list cannot exceed any limit.
    /// Returns `None` if the walk must pass the elements one by one.
    fn structs(&mut self, object: usize, bytes: &[u8], depth: usize) -> Option<()> {
        let object = self.schema.object(object);
        let stride = object.struct_bytes.filter(|stride| *stride > 0)?;
        let text_bytes = object.plain_text_bytes()?;
        let length = bytes.len() / stride;
        let values = length.checked_mul(1 + object.fields.len())?;
        let text = length.checked_mul(text_bytes)?;
        let is_within = values.checked_add(text)? <= self.values_left && text <= self.text_left;
        if !is_within || depth + 1 >= DEPTH_MAX || !self.visitor.structs(bytes, stride) {
            return None;
        }
        self.values_left -= values;
        self.text_left -= text;
        Some(())
    }

    fn scalars(&mut self, field: &'w Field, scalar: ScalarType, bytes: &'w [u8], at: usize) -> DecodeResult {
        self.count(at, bytes.len() / scalar.size())?;
        for (index, bytes) in bytes.chunks_exact(scalar.size()).enumerate() {
            // The read cannot fail, because each chunk has exactly the size of the scalar.
            let value = scalar.read(bytes, 0).ok_or_else(|| out_of_bounds(at))?;
            let at = at + index * scalar.size();
            self.visitor.reads_value(at..at + scalar.size());
            self.scalar(PathStep::Element(field, index), field, value);
        }
        Ok(())
    }

    /// Reads the string to which an offset refers.
    fn string(&mut self, step: PathStep<'_>, field: &Field, at: usize) -> DecodeResult {
        let ListRange { at: start, length } = self.follow_to_length(at)?;
        // The zero byte after a string is not required, because only the length is used.
        let bytes = self.payload.get(start..).and_then(|rest| rest.get(..length));
        let length_at = start.saturating_sub(UOFFSET_BYTES);
        self.text(step, field, bytes.ok_or_else(|| out_of_bounds(length_at))?, start)
    }

    /// Passes text to the visitor.
    fn text(&mut self, step: PathStep<'_>, field: &Field, bytes: &[u8], at: usize) -> DecodeResult {
        self.count(at, 1)?;
        // The limit counts bytes, because several offsets may refer to the same text. Each use of a
        // long text then costs the full length of the text.
        self.text_left = self
            .text_left
            .checked_sub(bytes.len())
            .ok_or_else(|| decode_error(at, DecodeFault::TooMuchText))?;
        // Arrays of bytes are padded with zeros. A string has a length and may contain zeros.
        let end = if field.is_text { bytes.iter().position(|byte| *byte == 0) } else { None };
        let text = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        self.visitor.reads_value(at..at + bytes.len());
        match str::from_utf8(text) {
            Ok(text) => self.visitor.value(step, FieldValue::Text(text)),
            Err(_) => self.visitor.text_bytes(step, text),
        }
        Ok(())
    }

    #[inline]
    fn scalar(&mut self, step: PathStep<'_>, field: &Field, raw: FieldValue<'static>) {
        let plain = field.absent.is_none() && field.enumeration.is_none();
        let value = if plain { raw } else { self.schema.interpret(field, raw) };
        self.visitor.value(step, value);
    }

    #[inline]
    fn count(&mut self, at: usize, values: usize) -> DecodeResult {
        match self.values_left.checked_sub(values) {
            Some(left) => {
                self.values_left = left;
                Ok(())
            }
            None => Err(decode_error(at, DecodeFault::TooManyValues)),
        }
    }
}

/// The elements of a list in the payload.
#[derive(Clone, Copy)]
struct ListRange {
    at: usize,
    length: usize,
}

#[cfg(test)]
mod tests {
    use flatbuffers::{FlatBufferBuilder, WIPOffset};

    use super::super::fixtures::{
        CountingVisitor, MARKED_PAYLOAD, SHAPES_PAYLOAD, json, marked, recursive, shapes,
    };
    use super::*;

    /// Returns the slot of a field of the table Shapes, by the field's id.
    fn slot(id: u16) -> u16 {
        4 + 2 * id
    }

    fn fault(plan: &CompiledSchema, payload: &[u8]) -> DecodeError {
        plan.walk(payload, &mut CountingVisitor::default()).unwrap_err()
    }

    // Proves that a payload without a schema is one string, which is escaped if it is not UTF-8.
    #[test]
    fn a_payload_without_a_schema_is_a_string() {
        let plan = CompiledSchema::of_source(&[], "").unwrap();
        let value = |payload: &[u8]| {
            let found: serde_json::Value = serde_json::from_str(&json(&plan, payload)).unwrap();
            found["payload"].as_str().unwrap().to_owned()
        };
        for text in ["", "{\"torque\": 12.5}", "two\nlines\tand \u{e4}"] {
            assert_eq!(value(text.as_bytes()), text);
        }
        assert_eq!(value(b"\\\xab\xcda"), r"\\\xab\xcda");
        assert_eq!(value(b"a\0"), "a\0");
        assert_eq!(json(&plan.select(&["payload"]).unwrap(), b"a"), "{\"payload\":\"a\"}");
        assert_eq!(json(&plan.select(&[]).unwrap(), b"a"), "{}");
    }

    #[test]
    fn an_empty_table_reads_as_its_defaults() {
        // Proves that omitted fields have their default values, or are absent if they have no
        // default.
        let mut builder = FlatBufferBuilder::new();
        let start = builder.start_table();
        let root = builder.end_table(start);
        builder.finish(root, None);
        let expected = concat!(
            r#"{"scalars":null,"untouched":null,"maybe":null,"text":null,"point":null,"grid":null,"leaf":null,"#,
            r#""numbers":null,"ratios":null,"flags":null,"moods":null,"points":null,"leaves":null,"words":null,"#,
            r#""last":0}"#
        );
        assert_eq!(json(&shapes(), builder.finished_data()), expected);
    }

    #[test]
    fn any_damage_to_a_payload_is_an_error_or_other_values() {
        // Proves that no bytes cause a panic, and that each begin call has a matching end call if
        // the walk succeeds. The test flips every bit, tries every truncation, and sets every 4
        // bytes to extreme values.
        for (plan, payload) in [(shapes(), SHAPES_PAYLOAD), (marked(), MARKED_PAYLOAD)] {
            let check = |bytes: &[u8]| {
                let mut tally = CountingVisitor::default();
                if plan.walk(bytes, &mut tally).is_ok() {
                    assert_eq!(tally.depth, 0);
                }
                assert!(tally.calls <= VALUES_MAX);
            };
            for length in 0..payload.len() {
                check(&payload[..length]);
            }
            let mut bytes = payload.to_vec();
            for position in 0..bytes.len() {
                for bit in 0..8 {
                    bytes[position] ^= 1 << bit;
                    check(&bytes);
                    bytes[position] ^= 1 << bit;
                }
            }
            for position in 0..bytes.len() - 4 {
                for word in [0, 1, u32::MAX, u32::MAX - 3, i32::MAX.cast_unsigned(), 1 << 31] {
                    let mut bytes = payload.to_vec();
                    bytes[position..position + 4].copy_from_slice(&word.to_le_bytes());
                    check(&bytes);
                }
            }
        }
    }

    #[test]
    fn a_length_beyond_the_payload_is_refused_before_the_list_begins() {
        // Proves that the length of a list is checked before the visitor receives the list.
        let mut builder = FlatBufferBuilder::new();
        let numbers = builder.create_vector(&[1_u64, 2]);
        let start = builder.start_table();
        builder.push_slot_always(slot(7), numbers);
        let root = builder.end_table(start);
        builder.finish(root, None);
        let mut bytes = builder.finished_data().to_vec();
        let length = bytes.windows(4).rposition(|window| window == 2_u32.to_le_bytes()).unwrap();
        // The length of the list is directly before the two numbers. The second number is also 2,
        // so the search continues before it.
        let length = bytes[..length].windows(4).rposition(|window| window == 2_u32.to_le_bytes()).unwrap();
        bytes[length..length + 4].fill(0xff);
        let mut tally = CountingVisitor::default();
        let error = shapes().walk(&bytes, &mut tally).unwrap_err();
        assert_eq!((error.path.as_str(), error.fault), ("numbers", DecodeFault::OutOfBounds));
        assert_eq!(
            error.to_string(),
            format!("payload, at byte {}, \"numbers\": {}", length + 4, error.fault)
        );
        assert_eq!(tally.depth, 1);
    }

    #[test]
    fn a_vtable_outside_the_payload_is_refused() {
        // Proves that it is an error if the signed offset to the vtable leads out of the payload in
        // either direction.
        for back in [i32::MIN, i32::MAX, 5, -100, 0] {
            let mut bytes = vec![4, 0, 0, 0];
            bytes.extend_from_slice(&back.to_le_bytes());
            let error = fault(&shapes(), &bytes);
            assert_eq!((error.fault, error.offset), (DecodeFault::Vtable, 4), "{back}");
        }
        assert_eq!(fault(&shapes(), &[]).fault, DecodeFault::OutOfBounds);
        assert_eq!(fault(&shapes(), &[0xff; 4]).fault, DecodeFault::OutOfBounds);
    }

    #[test]
    fn a_table_inside_itself_ends_at_the_depth_limit() {
        // Proves that recursion is bounded. The test uses chains of tables whose length is near the
        // limit. Offsets lead only forward, so a chain cannot contain a cycle.
        let plan = recursive();
        let chain = |length: usize| {
            let mut builder = FlatBufferBuilder::new();
            let mut inner = None;
            for _ in 0..length {
                let start = builder.start_table();
                if let Some(inner) = inner {
                    builder.push_slot_always(slot(1), inner);
                }
                inner = Some(builder.end_table(start));
            }
            builder.finish(inner.unwrap(), None);
            builder.finished_data().to_vec()
        };
        plan.walk(&chain(DEPTH_MAX), &mut CountingVisitor::default()).unwrap();
        let error = fault(&plan, &chain(DEPTH_MAX + 1));
        assert_eq!(error.fault, DecodeFault::TooDeep);
        assert_eq!(error.path, vec!["left"; DEPTH_MAX].join("."));
    }

    #[test]
    fn shared_offsets_cannot_unfold_without_end() {
        // Proves that a small payload with shared offsets cannot exceed the limit on values.
        let mut builder = FlatBufferBuilder::new();
        let start = builder.start_table();
        let mut node = builder.end_table(start);
        for _ in 0..DEPTH_MAX - 1 {
            let many: Vec<WIPOffset<_>> = vec![WIPOffset::<&str>::new(node.value()); 100];
            let children = builder.create_vector(&many);
            let start = builder.start_table();
            builder.push_slot_always(slot(3), children);
            node = builder.end_table(start);
        }
        builder.finish(node, None);
        let mut tally = CountingVisitor::default();
        let error = recursive().walk(builder.finished_data(), &mut tally).unwrap_err();
        assert_eq!(error.fault, DecodeFault::TooManyValues);
        assert!(tally.calls <= VALUES_MAX);
    }

    #[test]
    fn shared_text_cannot_unfold_without_end() {
        // Proves that shared text cannot exceed the limit on bytes of text.
        let mut builder = FlatBufferBuilder::new();
        let long = builder.create_string(&"x".repeat(1 << 16));
        let words = builder.create_vector(&vec![long; 4096]);
        let start = builder.start_table();
        builder.push_slot_always(slot(13), words);
        let root = builder.end_table(start);
        builder.finish(root, None);
        let mut tally = CountingVisitor::default();
        let error = shapes().walk(builder.finished_data(), &mut tally).unwrap_err();
        assert_eq!((error.fault, error.path.as_str()), (DecodeFault::TooMuchText, "words.1024"));
        assert_eq!(tally.text_bytes, TEXT_BYTES_MAX);
    }

    #[test]
    fn text_that_is_not_utf8_comes_escaped() {
        // Proves that text that is not UTF-8 is passed in its escaped form, also in a list of
        // strings.
        let mut builder = FlatBufferBuilder::new();
        let bad = WIPOffset::<&str>::new(builder.create_vector(&[0xff_u8, 0x41]).value());
        let good = builder.create_string("A");
        let words = builder.create_vector(&[bad, good]);
        let start = builder.start_table();
        builder.push_slot_always(slot(3), bad);
        builder.push_slot_always(slot(13), words);
        let root = builder.end_table(start);
        builder.finish(root, None);
        let plan = shapes().select(&["text", "words"]).unwrap();
        let expected = r#"{"text":"\\xffA","words":["\\xffA","A"]}"#;
        assert_eq!(json(&plan, builder.finished_data()), expected);
    }
}
