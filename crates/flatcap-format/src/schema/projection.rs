//! Projections: read a few fields from many payloads directly at their offsets, without a visitor,
//! without names, and without reading other fields.

use super::bytes::{
    BoxedDecodeError, UOFFSET_BYTES, bytes_at, field_offset, follow, out_of_bounds, read_length, vtable,
};
use super::compiled::{EnumNames, interpret};
use super::error::DecodeError;
use super::value::{FieldValue, ScalarType};

/// Reads single values of a source's payloads. Created by
/// [`CompiledSchema::project`](super::CompiledSchema::project).
///
/// Reading allocates memory only for an error. Values are the same as in
/// [`CompiledSchema::walk`](super::CompiledSchema::walk): [`FieldValue::Absent`] for the value that
/// represents absence, the default for an omitted field, the name for an enum value. Everything
/// below an omitted object is absent.
///
/// ```
/// use flatcap_format::schema::{CompiledSchema, FieldValue, segment};
///
/// let schema = std::fs::read("generated/segment.bfbs")?;
/// let schema = CompiledSchema::compile(&schema, "flatcap.segment.Trailer")?;
/// let projection = schema.project(&["run_id", "segment"])?;
///
/// let mut builder = flatbuffers::FlatBufferBuilder::new();
/// let fields = segment::TrailerArgs { segment: 7, ..Default::default() };
/// let trailer = segment::Trailer::create(&mut builder, &fields);
/// builder.finish(trailer, None);
///
/// let mut values = [FieldValue::Absent; 2];
/// projection.read(builder.finished_data(), &mut values)?;
/// assert_eq!(values, [FieldValue::Unsigned(0), FieldValue::Unsigned(7)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Projection {
    /// The projected fields of the root, in the order of the schema, which is also the order of a
    /// walk.
    pub(super) fields: Box<[ProjectedField]>,
    /// Source and target of each value whose path occurs more than once.
    pub(super) copies: Box<[(usize, usize)]>,
    pub(super) enums: Box<[EnumNames]>,
    /// The paths as given.
    pub(super) paths: Box<[Box<str>]>,
}

impl Projection {
    /// Reads one payload and stores the values in the order of the paths. If `values` is shorter
    /// than [`paths`](Self::paths), the excess values are dropped; if it is longer, its rest is
    /// unchanged.
    ///
    /// # Errors
    /// Any bytes are safe. If no path has an index, reading fails in the same cases and with the
    /// same error as [`CompiledSchema::walk`](super::CompiledSchema::walk) on the schema that
    /// selects the same paths. Otherwise, list elements that no path names are not read. The
    /// contents of `values` are unspecified after an error.
    #[inline]
    pub fn read<'p>(&'p self, payload: &[u8], values: &mut [FieldValue<'p>]) -> Result<(), DecodeError> {
        let mut reader = ProjectionReader { names: &self.enums, payload, values };
        let read = follow(payload, 0).and_then(|at| reader.table(&self.fields, at));
        read.map_err(|failure| *failure.0)?;
        for (from, to) in &self.copies {
            if let Some(value) = values.get(*from).copied()
                && let Some(target) = values.get_mut(*to)
            {
                *target = value;
            }
        }
        Ok(())
    }

    /// Returns the paths, in the order of the values.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &str> {
        self.paths.iter().map(|path| &**path)
    }
}

/// A projected field of a table.
#[derive(Debug, Clone)]
pub(super) struct ProjectedField {
    /// Slot in the vtable.
    pub(super) at: u16,
    pub(super) access: FieldAccess,
    /// The value if a table omits the field.
    pub(super) default: FieldValue<'static>,
    pub(super) path: Box<str>,
    /// The values that are absent if the field is absent.
    pub(super) targets: Box<[usize]>,
}

/// The way to the projected values of a field.
#[derive(Debug, Clone)]
pub(super) enum FieldAccess {
    /// Scalars at fixed offsets: the field itself, or projected fields of a struct.
    Fixed(Box<[ProjectedScalar]>),
    Table(Box<[ProjectedField]>),
    Vector {
        /// Bytes from one element to the next.
        stride: usize,
        elements: Box<[ProjectedElement]>,
    },
}

/// A projected element of a vector.
#[derive(Debug, Clone)]
pub(super) struct ProjectedElement {
    pub(super) index: usize,
    pub(super) access: FieldAccess,
    pub(super) path: Box<str>,
    /// The values that are absent if the element is absent.
    pub(super) targets: Box<[usize]>,
}

/// A projected value.
#[derive(Debug, Clone)]
pub(super) struct ProjectedScalar {
    /// Offset in the struct; 0 outside of one.
    pub(super) at: usize,
    pub(super) scalar: ScalarType,
    /// The value that represents absence, as bits for a signed type. Only integers have one.
    pub(super) absent: Option<u64>,
    pub(super) enumeration: Option<usize>,
    /// Position of the field's path.
    pub(super) target: usize,
    pub(super) path: Box<str>,
}

type DecodeResult = Result<(), BoxedDecodeError>;

struct ProjectionReader<'r, 'p> {
    names: &'p [EnumNames],
    payload: &'r [u8],
    values: &'r mut [FieldValue<'p>],
}

impl<'p> ProjectionReader<'_, 'p> {
    fn table(&mut self, fields: &'p [ProjectedField], at: usize) -> DecodeResult {
        let vtable = vtable(self.payload, at)?;
        for field in fields {
            let offset = field_offset(vtable, field.at);
            if offset == 0 {
                self.store_default(field);
            } else {
                let read = self.access(&field.access, at.saturating_add(offset));
                read.map_err(|failure| failure.or_path(&field.path))?;
            }
        }
        Ok(())
    }

    #[inline]
    fn access(&mut self, way: &'p FieldAccess, at: usize) -> DecodeResult {
        match way {
            FieldAccess::Fixed(leaves) => self.fixed(leaves, at),
            FieldAccess::Table(slots) => follow(self.payload, at).and_then(|at| self.table(slots, at)),
            FieldAccess::Vector { stride, elements } => self.vector(*stride, elements, at),
        }
    }

    #[inline]
    fn fixed(&mut self, leaves: &'p [ProjectedScalar], at: usize) -> DecodeResult {
        for leaf in leaves {
            let at = at.saturating_add(leaf.at);
            self.leaf(leaf, at).ok_or_else(|| out_of_bounds(at).or_path(&leaf.path))?;
        }
        Ok(())
    }

    fn vector(&mut self, stride: usize, elements: &'p [ProjectedElement], at: usize) -> DecodeResult {
        let at = follow(self.payload, at)?;
        let length = read_length(self.payload, at)?;
        let at = at.saturating_add(UOFFSET_BYTES);
        // The whole list must fit, as in a walk, although few elements are read: both reject the
        // same payloads. With this check the offset of an element below its length cannot overflow.
        let fits =
            length.checked_mul(stride).and_then(|bytes| self.payload.get(at..)?.get(..bytes)).is_some();
        if !fits {
            return Err(out_of_bounds(at));
        }
        for element in elements {
            if element.index < length {
                let read = self.access(&element.access, at + element.index * stride);
                read.map_err(|failure| failure.or_path(&element.path))?;
            } else {
                self.store_absent(&element.targets);
            }
        }
        Ok(())
    }

    /// Stores the value of a field that its table omits.
    // Omitted scalars are rare: payloads of this program omit none (docs/FORMAT.md, "Telemetry
    // frame").
    #[cold]
    fn store_default(&mut self, field: &'p ProjectedField) {
        // A struct with one projected field also matches the code below. Its default is absent, and
        // stays absent.
        self.store_absent(&field.targets);
        if let FieldAccess::Fixed(leaves) = &field.access
            && let [leaf] = &**leaves
            && let Some(target) = self.values.get_mut(leaf.target)
        {
            *target = interpret(self.names, leaf.absent(), leaf.enumeration, field.default);
        }
    }

    fn store_absent(&mut self, targets: &[usize]) {
        for target in targets {
            if let Some(target) = self.values.get_mut(*target) {
                *target = FieldValue::Absent;
            }
        }
    }

    /// Reads the value at `at`. Returns `None` if it would end past the end of the payload.
    ///
    /// Each arm writes directly to its place in `values`. If the value were passed on, it would be
    /// stored in parts and loaded as a whole each time, and the processor stalls on such loads.
    #[inline]
    fn leaf(&mut self, leaf: &ProjectedScalar, at: usize) -> Option<()> {
        if leaf.scalar != ScalarType::U64 || leaf.enumeration.is_some() {
            return self.other_leaf(leaf, at);
        }
        let number = u64::from_le_bytes(bytes_at(self.payload, at)?);
        if let Some(target) = self.values.get_mut(leaf.target) {
            leaf.unsigned(number, target);
        }
        Some(())
    }

    /// Reads the less frequent types. Not inlined, to keep the path of the most frequent type
    /// short.
    #[inline(never)]
    fn other_leaf(&mut self, leaf: &ProjectedScalar, at: usize) -> Option<()> {
        let bytes = self.payload;
        // The bytes are read even if the caller has no use for the value, so that errors do not
        // depend on the length of `values`.
        let unused = &mut FieldValue::Absent;
        let target = self.values.get_mut(leaf.target).unwrap_or(unused);
        if leaf.enumeration.is_some() {
            let raw = leaf.scalar.read(bytes, at)?;
            *target = interpret(self.names, leaf.absent(), leaf.enumeration, raw);
            return Some(());
        }
        match leaf.scalar {
            ScalarType::U64 => leaf.unsigned(u64::from_le_bytes(bytes_at(bytes, at)?), target),
            ScalarType::U32 => leaf.unsigned(u32::from_le_bytes(bytes_at(bytes, at)?).into(), target),
            ScalarType::U16 => leaf.unsigned(u16::from_le_bytes(bytes_at(bytes, at)?).into(), target),
            ScalarType::U8 => leaf.unsigned(u8::from_le_bytes(bytes_at(bytes, at)?).into(), target),
            ScalarType::I64 => leaf.signed(i64::from_le_bytes(bytes_at(bytes, at)?), target),
            ScalarType::I32 => leaf.signed(i32::from_le_bytes(bytes_at(bytes, at)?).into(), target),
            ScalarType::I16 => leaf.signed(i16::from_le_bytes(bytes_at(bytes, at)?).into(), target),
            ScalarType::I8 => leaf.signed(i8::from_le_bytes(bytes_at(bytes, at)?).into(), target),
            ScalarType::F64 => *target = FieldValue::Float(f64::from_le_bytes(bytes_at(bytes, at)?)),
            ScalarType::F32 => *target = FieldValue::Float32(f32::from_le_bytes(bytes_at(bytes, at)?)),
            ScalarType::Bool => *target = FieldValue::Bool(bytes_at::<1>(bytes, at)? != [0]),
        }
        Some(())
    }
}

impl ProjectedScalar {
    fn absent(&self) -> Option<FieldValue<'static>> {
        let is_signed = self.scalar.signed_min().is_some();
        self.absent.map(|bits| {
            if is_signed { FieldValue::Signed(bits.cast_signed()) } else { FieldValue::Unsigned(bits) }
        })
    }

    fn signed(&self, number: i64, target: &mut FieldValue<'_>) {
        let is_absent = self.absent == Some(number.cast_unsigned());
        *target = if is_absent { FieldValue::Absent } else { FieldValue::Signed(number) };
    }

    #[inline]
    fn unsigned(&self, number: u64, target: &mut FieldValue<'_>) {
        if self.absent == Some(number) {
            *target = FieldValue::Absent;
        } else {
            *target = FieldValue::Unsigned(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;

    use super::super::compiled::CompiledSchema;
    use super::super::error::DecodeFault;
    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_PAYLOAD, marked, recursive, shapes};
    use super::*;

    fn read(plan: &CompiledSchema, paths: &[&str], payload: &[u8]) -> String {
        let projection = plan.project(paths).unwrap();
        let mut values = vec![FieldValue::Bool(true); paths.len()];
        projection.read(payload, &mut values).unwrap();
        format!("{values:?}")
    }

    fn refused(plan: &CompiledSchema, path: &str) -> String {
        plan.project(&[path]).unwrap_err().to_string()
    }

    #[test]
    fn values_come_in_the_order_of_the_paths() {
        // Proves that each value is at the position of its path and equals that of a walk, for
        // paths out of order and repeated, through structs, tables, lists and arrays.
        let paths =
            ["unit.heat", "total.user", "cores.0.times.user", "total.user", "total.system", "cores.0.id"];
        let expected = "[Absent, Unsigned(10), Unsigned(1), Unsigned(10), Absent, Unsigned(0)]";
        assert_eq!(read(&marked(), &paths, MARKED_PAYLOAD), expected);
        let paths = ["points.1.y", "point.x", "grid.corners.1.x", "grid.moods.0", "numbers.1", "scalars.u8"];
        let expected = r#"[Float(6.0), Signed(-5), Signed(2), Text("Even"), Unsigned(1), Unsigned(255)]"#;
        assert_eq!(read(&shapes(), &paths, SHAPES_PAYLOAD), expected);
        assert_eq!(read(&shapes(), &[], SHAPES_PAYLOAD), "[]");
    }

    #[test]
    fn what_is_not_there_is_absent_or_its_default() {
        // Proves that omitted fields and elements read as in a walk: absent, or their default.
        let paths = ["cores.2.id", "cores.1.times.user", "cores.7.states.0"];
        assert_eq!(read(&marked(), &paths, MARKED_PAYLOAD), "[Absent, Absent, Absent]");
        let mut builder = FlatBufferBuilder::new();
        let start = builder.start_table();
        let root = builder.end_table(start);
        builder.finish(root, None);
        let paths = ["scalars.u8", "maybe", "last", "point.x", "numbers.0"];
        let expected = "[Absent, Absent, Unsigned(0), Absent, Absent]";
        assert_eq!(read(&shapes(), &paths, builder.finished_data()), expected);
        assert_eq!(read(&marked(), &["state"], builder.finished_data()), r#"[Text("Off")]"#);
    }

    #[test]
    fn a_slice_of_another_length_takes_what_fits() {
        // Proves that `values` may be shorter or longer than the paths.
        let plan = marked();
        let projection = plan.project(&["load", "total.user", "load"]).unwrap();
        assert_eq!(projection.paths().collect::<Vec<_>>(), ["load", "total.user", "load"]);
        let mut values = [FieldValue::Bool(true); 4];
        projection.read(MARKED_PAYLOAD, &mut values).unwrap();
        assert_eq!(
            (values[0], values[1], values[3]),
            (values[2], FieldValue::Unsigned(10), FieldValue::Bool(true))
        );
        let mut short = [FieldValue::Absent; 1];
        projection.read(MARKED_PAYLOAD, &mut short).unwrap();
        assert_eq!(short[0], values[0]);
        projection.read(MARKED_PAYLOAD, &mut []).unwrap();
    }

    #[test]
    fn paths_that_lead_to_no_single_value_are_refused() {
        // Proves that each kind of wrong path is rejected with a remedy.
        let (marked, shapes) = (marked(), shapes());
        let expected = r#""cores.times.user": cores is a list; add an index, as in cores.0"#;
        assert_eq!(refused(&marked, "cores.times.user"), expected);
        for path in ["cores", "cores.01.id", "cores.-1.id", "cores.99999999999999999999.id"] {
            assert!(refused(&marked, path).contains("cores is a list"), "{path}");
        }
        for path in ["total", "cores.0", "unit.name", "unit.name.0", "note.0"] {
            let message = refused(&marked, path);
            assert!(message.contains("is not a single number"), "{path}: {message}");
        }
        assert!(refused(&shapes, "text").contains("string is not a single number"));
        assert!(refused(&shapes, "words.0").contains("[string] is not a single number"));
        assert_eq!(refused(&shapes, "grid.cells.3"), r#""grid.cells.3": [ushort:3] has no field "3""#);
        assert_eq!(refused(&marked, "total.user.x"), r#""total.user.x": ulong has no field "x""#);
        assert!(refused(&marked, "total.usr").ends_with(r#"did you mean "user"?"#));
        assert!(refused(&marked, "").contains(r#"has no field """#));
        let deep = |length: usize| format!("{}value", "left.".repeat(length));
        assert!(recursive().project(&[&deep(15)]).is_ok());
        assert!(refused(&recursive(), &deep(16)).contains("deeper than 16"));
    }

    #[test]
    fn a_fault_is_named_by_its_path_and_place() {
        // Proves that an error names the path, for a payload truncated at every byte.
        let plan = marked();
        let projection = plan.project(&["load", "total.system", "cores.0.id"]).unwrap();
        let mut values = [FieldValue::Absent; 3];
        let mut faults = Vec::new();
        for length in 0..MARKED_PAYLOAD.len() {
            if let Err(error) = projection.read(&MARKED_PAYLOAD[..length], &mut values) {
                assert!(matches!(error.fault, DecodeFault::OutOfBounds | DecodeFault::Vtable));
                faults.push(error.path);
            }
        }
        faults.dedup();
        assert!(faults.contains(&"cores".to_owned()) && faults.contains(&String::new()), "{faults:?}");
    }

    #[test]
    fn a_list_beyond_the_payload_is_refused_whatever_its_element() {
        // Proves that a list that is longer than the payload is rejected although the projected
        // element is there, as a walk does.
        let mut builder = FlatBufferBuilder::new();
        let numbers = builder.create_vector(&[7_u64, 8]);
        let start = builder.start_table();
        builder.push_slot_always(18, numbers);
        let root = builder.end_table(start);
        builder.finish(root, None);
        let mut payload = builder.finished_data().to_vec();
        let plan = shapes();
        assert_eq!(read(&plan, &["numbers.0", "numbers.2"], &payload), "[Unsigned(7), Absent]");
        let length = payload.len() - 20;
        assert_eq!(payload[length..length + 4], [2, 0, 0, 0]);
        payload[length] = 3;
        let mut values = [FieldValue::Absent];
        let error = plan.project(&["numbers.0"]).unwrap().read(&payload, &mut values).unwrap_err();
        assert_eq!((error.path.as_str(), error.fault), ("numbers", DecodeFault::OutOfBounds));
        let walked = plan.select(&["numbers"]).unwrap().append_json(&payload, &mut Vec::new());
        assert_eq!(walked, Err(error));
    }
}
