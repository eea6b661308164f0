//! What does one payload hold? Reads it step by step, as its plan says, and believes none of its offsets.

use super::bytes::{Failure, WORD, fail, follow, length, out_of_bounds, slot, vtable};
use super::compile::DEPTH_MAX;
use super::error::{DecodeError, Fault};
use super::plan::{Element, Field, Kind, Object, Plan};
use super::value::{Place, Scalar, Value, Visitor};

/// Most values, objects and lists that one payload may hold. A payload that is longer than this may hold one
/// for each of its bytes. Offsets may be shared, so a short payload can unfold without end.
pub const VALUES_MAX: usize = 1 << 20;

/// Most bytes of text that one payload may hold, the same text counted as often as it is used. A payload that
/// is longer than this may hold its own length.
pub const TEXT_BYTES_MAX: usize = 64 << 20;

pub(super) fn walk<V: Visitor>(plan: &Plan, payload: &[u8], visitor: &mut V) -> Result<(), DecodeError> {
    let mut walk = Walk {
        plan,
        payload,
        visitor,
        values_left: VALUES_MAX.max(payload.len()),
        text_left: TEXT_BYTES_MAX.max(payload.len()),
    };
    let root = plan.object(plan.root);
    follow(payload, 0).and_then(|at| walk.object(Place::Root, root, at, 0)).map_err(|failure| *failure.0)
}

type Step = Result<(), Failure>;

struct Walk<'w, V> {
    plan: &'w Plan,
    payload: &'w [u8],
    visitor: &'w mut V,
    values_left: usize,
    text_left: usize,
}

impl<'w, V: Visitor> Walk<'w, V> {
    /// `depth` counts the objects around this one.
    fn object(&mut self, place: Place<'_>, object: &'w Object, at: usize, depth: usize) -> Step {
        if depth >= DEPTH_MAX {
            return Err(fail(at, Fault::TooDeep));
        }
        self.count(at, 1)?;
        self.visitor.begin_object(place);
        if object.struct_bytes.is_some() {
            for field in &object.fields {
                self.field(field, at.saturating_add(field.at.into()), depth)
                    .map_err(|failure| failure.within(&field.name))?;
            }
        } else {
            let vtable = vtable(self.payload, at)?;
            for field in &object.fields {
                let offset = slot(vtable, field.at);
                if offset == 0 {
                    self.count(at, 1)?;
                    self.scalar(Place::Field(field), field, field.default);
                } else {
                    self.field(field, at.saturating_add(offset), depth)
                        .map_err(|failure| failure.within(&field.name))?;
                }
            }
        }
        self.visitor.end_object();
        Ok(())
    }

    /// A field that is there, at its offset in the payload.
    #[inline]
    fn field(&mut self, field: &'w Field, at: usize, depth: usize) -> Step {
        let place = Place::Field(field);
        match field.kind {
            Kind::Scalar(scalar) => {
                self.count(at, 1)?;
                let value = scalar.read(self.payload, at).ok_or_else(|| out_of_bounds(at))?;
                self.scalar(place, field, value);
                Ok(())
            }
            Kind::String => self.string(place, field, at),
            Kind::Object(object) => self.nested(place, object, at, depth),
            Kind::Vector(element) => {
                let at = follow(self.payload, at)?;
                let length = length(self.payload, at)?;
                self.list(field, element, Span { at: at.saturating_add(WORD), length }, depth)
            }
            Kind::Array(element, length) => {
                self.list(field, element, Span { at, length: length.into() }, depth)
            }
        }
    }

    fn nested(&mut self, place: Place<'_>, object: usize, at: usize, depth: usize) -> Step {
        let object = self.plan.object(object);
        let at = if object.struct_bytes.is_some() { at } else { follow(self.payload, at)? };
        self.object(place, object, at, depth + 1)
    }

    fn list(&mut self, field: &'w Field, element: Element, span: Span, depth: usize) -> Step {
        let Span { at, length } = span;
        let stride = match element {
            Element::Scalar(scalar) => scalar.size(),
            Element::String => WORD,
            Element::Object(object) => self.plan.object(object).struct_bytes.unwrap_or(WORD),
        };
        let bytes = length
            .checked_mul(stride)
            .and_then(|bytes| self.payload.get(at..)?.get(..bytes))
            .ok_or_else(|| out_of_bounds(at))?;
        if field.text {
            return self.text(Place::Field(field), field, bytes, at);
        }
        self.count(at, 1)?;
        self.visitor.begin_list(Place::Field(field), length);
        match element {
            Element::Scalar(scalar) => self.scalars(field, scalar, bytes, at)?,
            Element::String => {
                for index in 0..length {
                    self.string(Place::Element(field, index), field, at + index * stride)
                        .map_err(|failure| failure.within(&index))?;
                }
            }
            Element::Object(object) => {
                for index in 0..length {
                    self.nested(Place::Element(field, index), object, at + index * stride, depth)
                        .map_err(|failure| failure.within(&index))?;
                }
            }
        }
        self.visitor.end_list();
        Ok(())
    }

    fn scalars(&mut self, field: &'w Field, scalar: Scalar, bytes: &'w [u8], at: usize) -> Step {
        self.count(at, bytes.len() / scalar.size())?;
        for (index, bytes) in bytes.chunks_exact(scalar.size()).enumerate() {
            let value = scalar.read(bytes, 0).ok_or_else(|| out_of_bounds(at))?;
            self.scalar(Place::Element(field, index), field, value);
        }
        Ok(())
    }

    /// A string through its offset.
    fn string(&mut self, place: Place<'_>, field: &Field, at: usize) -> Step {
        let at = follow(self.payload, at)?;
        let length = length(self.payload, at)?;
        let start = at.saturating_add(WORD);
        let bytes = self.payload.get(start..).and_then(|rest| rest.get(..length));
        self.text(place, field, bytes.ok_or_else(|| out_of_bounds(at))?, start)
    }

    /// Text, or the list of its bytes where it is not UTF-8, so that nothing is lost.
    fn text(&mut self, place: Place<'_>, field: &Field, bytes: &[u8], at: usize) -> Step {
        self.count(at, 1)?;
        self.text_left =
            self.text_left.checked_sub(bytes.len()).ok_or_else(|| fail(at, Fault::TooMuchText))?;
        let end = if field.text { bytes.iter().position(|byte| *byte == 0) } else { None };
        let text = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        if let Ok(text) = str::from_utf8(text) {
            self.visitor.value(place, Value::Text(text));
            return Ok(());
        }
        self.count(at, bytes.len())?;
        self.visitor.begin_list(place, bytes.len());
        for (index, byte) in bytes.iter().enumerate() {
            self.visitor.value(Place::Element(field, index), Value::Unsigned((*byte).into()));
        }
        self.visitor.end_list();
        Ok(())
    }

    #[inline]
    fn scalar(&mut self, place: Place<'_>, field: &Field, raw: Value<'static>) {
        let plain = field.absent.is_none() && field.enumeration.is_none();
        let value = if plain { raw } else { self.plan.interpret(field, raw) };
        self.visitor.value(place, value);
    }

    #[inline]
    fn count(&mut self, at: usize, values: usize) -> Step {
        match self.values_left.checked_sub(values) {
            Some(left) => {
                self.values_left = left;
                Ok(())
            }
            None => Err(fail(at, Fault::TooManyValues)),
        }
    }
}

/// The elements of a list in the payload.
#[derive(Clone, Copy)]
struct Span {
    at: usize,
    length: usize,
}

#[cfg(test)]
mod tests {
    use flatbuffers::{FlatBufferBuilder, WIPOffset};

    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_PAYLOAD, Tally, json, marked, recursive, shapes};
    use super::*;

    /// Slots of the table Shapes, by field id.
    fn slot(id: u16) -> u16 {
        4 + 2 * id
    }

    fn fault(plan: &Plan, payload: &[u8]) -> DecodeError {
        plan.walk(payload, &mut Tally::default()).unwrap_err()
    }

    #[test]
    fn an_empty_table_reads_as_its_defaults() {
        // Goal: what a table leaves out is its default, or absent where it can have none. Method: no fields.
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
        // Goal: no bytes panic and begins and ends match where the walk succeeds. Method: every bit flipped,
        // every truncation, every run of 4 bytes set to the ends of the range.
        for (plan, payload) in [(shapes(), SHAPES_PAYLOAD), (marked(), MARKED_PAYLOAD)] {
            let check = |bytes: &[u8]| {
                let mut tally = Tally::default();
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
        // Goal: a length is checked before anyone hears of it. Method: a vector of the largest length.
        let mut builder = FlatBufferBuilder::new();
        let numbers = builder.create_vector(&[1_u64, 2]);
        let start = builder.start_table();
        builder.push_slot_always(slot(7), numbers);
        let root = builder.end_table(start);
        builder.finish(root, None);
        let mut bytes = builder.finished_data().to_vec();
        let length = bytes.windows(4).rposition(|window| window == 2_u32.to_le_bytes()).unwrap();
        // The length stands right in front of the two numbers, of which the second is 2 as well.
        let length = bytes[..length].windows(4).rposition(|window| window == 2_u32.to_le_bytes()).unwrap();
        bytes[length..length + 4].fill(0xff);
        let mut tally = Tally::default();
        let error = shapes().walk(&bytes, &mut tally).unwrap_err();
        assert_eq!((error.path.as_str(), error.fault), ("numbers", Fault::OutOfBounds));
        assert_eq!(
            error.to_string(),
            format!("payload, at byte {}, \"numbers\": {}", length + 4, error.fault)
        );
        assert_eq!(tally.depth, 1);
    }

    #[test]
    fn a_vtable_outside_the_payload_is_refused() {
        // Goal: neither direction of the signed offset leads out. Method: roots with hostile offsets.
        for back in [i32::MIN, i32::MAX, 5, -100, 0] {
            let mut bytes = vec![4, 0, 0, 0];
            bytes.extend_from_slice(&back.to_le_bytes());
            let error = fault(&shapes(), &bytes);
            assert_eq!((error.fault, error.offset), (Fault::Vtable, 4), "{back}");
        }
        assert_eq!(fault(&shapes(), &[]).fault, Fault::OutOfBounds);
        assert_eq!(fault(&shapes(), &[0xff; 4]).fault, Fault::OutOfBounds);
    }

    #[test]
    fn a_table_inside_itself_ends_at_the_depth_limit() {
        // Goal: recursion is bounded whatever the offsets say. Method: chains of tables around the limit.
        // Offsets only lead forward, so a chain cannot close.
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
        plan.walk(&chain(DEPTH_MAX), &mut Tally::default()).unwrap();
        let error = fault(&plan, &chain(DEPTH_MAX + 1));
        assert_eq!(error.fault, Fault::TooDeep);
        assert_eq!(error.path, vec!["left"; DEPTH_MAX].join("."));
    }

    #[test]
    fn shared_offsets_cannot_unfold_without_end() {
        // Goal: a small payload cannot cost more than the limits. Method: each level lists the one below many
        // times over.
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
        let mut tally = Tally::default();
        let error = recursive().walk(builder.finished_data(), &mut tally).unwrap_err();
        assert_eq!(error.fault, Fault::TooManyValues);
        assert!(tally.calls <= VALUES_MAX);
    }

    #[test]
    fn shared_text_cannot_unfold_without_end() {
        // Goal: text is bounded in bytes too. Method: one long string, listed many times.
        let mut builder = FlatBufferBuilder::new();
        let long = builder.create_string(&"x".repeat(1 << 16));
        let words = builder.create_vector(&vec![long; 4096]);
        let start = builder.start_table();
        builder.push_slot_always(slot(13), words);
        let root = builder.end_table(start);
        builder.finish(root, None);
        let mut tally = Tally::default();
        let error = shapes().walk(builder.finished_data(), &mut tally).unwrap_err();
        assert_eq!((error.fault, error.path.as_str()), (Fault::TooMuchText, "words.1024"));
        assert_eq!(tally.text_bytes, TEXT_BYTES_MAX);
    }

    #[test]
    fn text_that_is_not_utf8_comes_as_its_bytes() {
        // Goal: wrong text costs neither the payload nor a byte. Method: a string and a list of strings.
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
        let expected = r#"{"text":[255,65],"words":[[255,65],"A"]}"#;
        assert_eq!(json(&plan, builder.finished_data()), expected);
    }
}
