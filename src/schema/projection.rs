//! How are a few fields read from many payloads? Straight from where they lie: no visitor, no names, no field that is
//! not wanted.

use super::bytes::{Failure, WORD, follow, length, out_of_bounds, slot, take, vtable};
use super::error::DecodeError;
use super::plan::{Names, interpret};
use super::value::{Scalar, Value};

/// The way to single values of a source's payloads, made once by [`Plan::project`](super::Plan::project).
///
/// Reading allocates nothing unless it fails. Values come as [`Plan::walk`](super::Plan::walk) has them: the value that stands for absence
/// as [`Value::Absent`], a field that its table leaves out as its default, an enum's value by its name. What lies below
/// something that is left out is absent.
///
/// ```
/// use flatcap::schema::{Plan, Value, segment};
///
/// let schema = std::fs::read("generated/segment.bfbs")?;
/// let plan = Plan::compile(&schema, "flatcap.segment.Trailer")?;
/// let projection = plan.project(&["run_id", "segment"])?;
///
/// let mut builder = flatbuffers::FlatBufferBuilder::new();
/// let fields = segment::TrailerArgs { segment: 7, ..Default::default() };
/// let trailer = segment::Trailer::create(&mut builder, &fields);
/// builder.finish(trailer, None);
///
/// let mut values = [Value::Absent; 2];
/// projection.read(builder.finished_data(), &mut values)?;
/// assert_eq!(values, [Value::Unsigned(0), Value::Unsigned(7)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Projection {
    /// The wanted fields of the root, in the order of the schema, in which the walk reads them too.
    pub(super) slots: Box<[Slot]>,
    /// From and to, for paths that were named before.
    pub(super) copies: Box<[(usize, usize)]>,
    pub(super) names: Box<[Names]>,
    /// As they were asked for.
    pub(super) paths: Box<[Box<str>]>,
}

impl Projection {
    /// Reads one payload: of each path its value, in the order of the paths. A slice that is not as long as
    /// [`paths`](Self::paths) takes what it has room for, and keeps what is behind.
    ///
    /// # Errors
    /// Any bytes are safe. Without an index in a path, it fails exactly where and as [`Plan::walk`](super::Plan::walk) does on the plan
    /// that selects the same paths. With one, elements that are not asked for are not looked at. What the slice holds
    /// after an error is unspecified.
    #[inline]
    pub fn read<'p>(&'p self, payload: &[u8], values: &mut [Value<'p>]) -> Result<(), DecodeError> {
        let mut reading = Reading { names: &self.names, payload, values };
        let read = follow(payload, 0).and_then(|at| reading.table(&self.slots, at));
        read.map_err(|failure| *failure.0)?;
        for (from, to) in &self.copies {
            if let Some(value) = values.get(*from).copied()
                && let Some(place) = values.get_mut(*to)
            {
                *place = value;
            }
        }
        Ok(())
    }

    /// The paths, in the order of the values.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &str> {
        self.paths.iter().map(|path| &**path)
    }
}

/// A wanted field of a table.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    /// Of the vtable.
    pub(super) at: u16,
    pub(super) way: Way,
    /// What a table that leaves the field out means by it.
    pub(super) default: Value<'static>,
    pub(super) path: Box<str>,
    /// The values that are absent when the field is.
    pub(super) below: Box<[usize]>,
}

/// How what is wanted lies within a field.
#[derive(Debug, Clone)]
pub(super) enum Way {
    /// Scalars at fixed offsets: the field itself, or what is wanted of a struct.
    Fixed(Box<[Leaf]>),
    Table(Box<[Slot]>),
    Vector {
        /// Bytes from one element to the next.
        stride: usize,
        elements: Box<[Wanted]>,
    },
}

/// A wanted element of a vector.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) index: usize,
    pub(super) way: Way,
    pub(super) path: Box<str>,
    /// The values that are absent when the element is.
    pub(super) below: Box<[usize]>,
}

/// A wanted value.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    /// Offset in the struct; 0 outside one.
    pub(super) at: usize,
    pub(super) scalar: Scalar,
    /// The value that stands for absence, that of a signed type by its bits; only integers have one.
    pub(super) absent: Option<u64>,
    pub(super) enumeration: Option<usize>,
    /// Position of its path.
    pub(super) target: usize,
    pub(super) path: Box<str>,
}

type Step = Result<(), Failure>;

struct Reading<'r, 'p> {
    names: &'p [Names],
    payload: &'r [u8],
    values: &'r mut [Value<'p>],
}

impl<'p> Reading<'_, 'p> {
    fn table(&mut self, slots: &'p [Slot], at: usize) -> Step {
        let vtable = vtable(self.payload, at)?;
        for wanted in slots {
            let offset = slot(vtable, wanted.at);
            if offset == 0 {
                self.missing(wanted);
            } else {
                let read = self.way(&wanted.way, at.saturating_add(offset));
                read.map_err(|failure| failure.at_path(&wanted.path))?;
            }
        }
        Ok(())
    }

    #[inline]
    fn way(&mut self, way: &'p Way, at: usize) -> Step {
        match way {
            Way::Fixed(leaves) => self.fixed(leaves, at),
            Way::Table(slots) => follow(self.payload, at).and_then(|at| self.table(slots, at)),
            Way::Vector { stride, elements } => self.vector(*stride, elements, at),
        }
    }

    #[inline]
    fn fixed(&mut self, leaves: &'p [Leaf], at: usize) -> Step {
        for leaf in leaves {
            let at = at.saturating_add(leaf.at);
            self.leaf(leaf, at).ok_or_else(|| out_of_bounds(at).at_path(&leaf.path))?;
        }
        Ok(())
    }

    fn vector(&mut self, stride: usize, elements: &'p [Wanted], at: usize) -> Step {
        let at = follow(self.payload, at)?;
        let length = length(self.payload, at)?;
        let at = at.saturating_add(WORD);
        let fits =
            length.checked_mul(stride).and_then(|bytes| self.payload.get(at..)?.get(..bytes)).is_some();
        if !fits {
            return Err(out_of_bounds(at));
        }
        for element in elements {
            if element.index < length {
                let read = self.way(&element.way, at + element.index * stride);
                read.map_err(|failure| failure.at_path(&element.path))?;
            } else {
                self.absent(&element.below);
            }
        }
        Ok(())
    }

    /// A field that its table leaves out.
    #[cold]
    fn missing(&mut self, wanted: &'p Slot) {
        self.absent(&wanted.below);
        if let Way::Fixed(leaves) = &wanted.way
            && let [leaf] = &**leaves
            && let Some(place) = self.values.get_mut(leaf.target)
        {
            *place = interpret(self.names, leaf.absent(), leaf.enumeration, wanted.default);
        }
    }

    fn absent(&mut self, targets: &[usize]) {
        for target in targets {
            if let Some(place) = self.values.get_mut(*target) {
                *place = Value::Absent;
            }
        }
    }

    /// The value at `at`, none where it would end behind the payload.
    ///
    /// Each arm writes what it read straight to its place. A value that went from hand to hand as a whole would be
    /// stored in parts and loaded at once each time, for which the processor has to wait.
    #[inline]
    fn leaf(&mut self, leaf: &Leaf, at: usize) -> Option<()> {
        if leaf.scalar != Scalar::U64 || leaf.enumeration.is_some() {
            return self.rare_leaf(leaf, at);
        }
        let number = u64::from_le_bytes(take(self.payload, at)?);
        if let Some(place) = self.values.get_mut(leaf.target) {
            leaf.unsigned(number, place);
        }
        Some(())
    }

    /// The other types, apart from the most frequent so that its way stays short.
    #[inline(never)]
    fn rare_leaf(&mut self, leaf: &Leaf, at: usize) -> Option<()> {
        let bytes = self.payload;
        let unused = &mut Value::Absent;
        let place = self.values.get_mut(leaf.target).unwrap_or(unused);
        if leaf.enumeration.is_some() {
            let raw = leaf.scalar.read(bytes, at)?;
            *place = interpret(self.names, leaf.absent(), leaf.enumeration, raw);
            return Some(());
        }
        match leaf.scalar {
            Scalar::U64 => leaf.unsigned(u64::from_le_bytes(take(bytes, at)?), place),
            Scalar::U32 => leaf.unsigned(u32::from_le_bytes(take(bytes, at)?).into(), place),
            Scalar::U16 => leaf.unsigned(u16::from_le_bytes(take(bytes, at)?).into(), place),
            Scalar::U8 => leaf.unsigned(u8::from_le_bytes(take(bytes, at)?).into(), place),
            Scalar::I64 => leaf.signed(i64::from_le_bytes(take(bytes, at)?), place),
            Scalar::I32 => leaf.signed(i32::from_le_bytes(take(bytes, at)?).into(), place),
            Scalar::I16 => leaf.signed(i16::from_le_bytes(take(bytes, at)?).into(), place),
            Scalar::I8 => leaf.signed(i8::from_le_bytes(take(bytes, at)?).into(), place),
            Scalar::F64 => *place = Value::Float(f64::from_le_bytes(take(bytes, at)?)),
            Scalar::F32 => *place = Value::Float32(f32::from_le_bytes(take(bytes, at)?)),
            Scalar::Bool => *place = Value::Bool(take::<1>(bytes, at)? != [0]),
        }
        Some(())
    }
}

impl Leaf {
    fn absent(&self) -> Option<Value<'static>> {
        let is_signed = self.scalar.signed_min().is_some();
        self.absent.map(
            |bits| {
                if is_signed { Value::Signed(bits.cast_signed()) } else { Value::Unsigned(bits) }
            },
        )
    }

    fn signed(&self, number: i64, place: &mut Value<'_>) {
        let is_absent = self.absent == Some(number.cast_unsigned());
        *place = if is_absent { Value::Absent } else { Value::Signed(number) };
    }

    #[inline]
    fn unsigned(&self, number: u64, place: &mut Value<'_>) {
        if self.absent == Some(number) {
            *place = Value::Absent;
        } else {
            *place = Value::Unsigned(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;

    use super::super::error::Fault;
    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_PAYLOAD, marked, recursive, shapes};
    use super::super::plan::Plan;
    use super::*;

    fn read(plan: &Plan, paths: &[&str], payload: &[u8]) -> String {
        let projection = plan.project(paths).unwrap();
        let mut values = vec![Value::Bool(true); paths.len()];
        projection.read(payload, &mut values).unwrap();
        format!("{values:?}")
    }

    fn refused(plan: &Plan, path: &str) -> String {
        plan.project(&[path]).unwrap_err().to_string()
    }

    #[test]
    fn values_come_in_the_order_of_the_paths() {
        // Goal: each value is where its path is, as a walk has it. Method: paths out of order and twice, through
        // structs, tables, lists and arrays; names, absence.
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
        // Goal: what a table leaves out is as a walk has it. Method: elements beyond the list, a table left out whose
        // fields have defaults, an empty table.
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
        // Goal: lengths need not agree. Method: one place too few, one too many.
        let plan = marked();
        let projection = plan.project(&["load", "total.user", "load"]).unwrap();
        assert_eq!(projection.paths().collect::<Vec<_>>(), ["load", "total.user", "load"]);
        let mut values = [Value::Bool(true); 4];
        projection.read(MARKED_PAYLOAD, &mut values).unwrap();
        assert_eq!((values[0], values[1], values[3]), (values[2], Value::Unsigned(10), Value::Bool(true)));
        let mut short = [Value::Absent; 1];
        projection.read(MARKED_PAYLOAD, &mut short).unwrap();
        assert_eq!(short[0], values[0]);
        projection.read(MARKED_PAYLOAD, &mut []).unwrap();
    }

    #[test]
    fn paths_that_lead_to_no_single_value_are_refused() {
        // Goal: the message tells what to write instead. Method: each kind of wrong end, misspelt names, depth.
        let (marked, shapes) = (marked(), shapes());
        let expected = r#""cores.times.user": cores is a list; its index must follow, as in cores.0"#;
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
        // Goal: an error says where. Method: a payload that ends before a struct, a list beyond the payload.
        let plan = marked();
        let projection = plan.project(&["load", "total.system", "cores.0.id"]).unwrap();
        let mut values = [Value::Absent; 3];
        let mut faults = Vec::new();
        for length in 0..MARKED_PAYLOAD.len() {
            if let Err(error) = projection.read(&MARKED_PAYLOAD[..length], &mut values) {
                assert!(matches!(error.fault, Fault::OutOfBounds | Fault::Vtable));
                faults.push(error.path);
            }
        }
        faults.dedup();
        assert!(faults.contains(&"cores".to_owned()) && faults.contains(&String::new()), "{faults:?}");
    }

    #[test]
    fn a_list_beyond_the_payload_is_refused_whatever_its_element() {
        // Goal: a length that lies is no length, even where the wanted element is there. Method: a vector that says it
        // has more numbers than the payload has bytes; the walk says the same.
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
        let mut values = [Value::Absent];
        let error = plan.project(&["numbers.0"]).unwrap().read(&payload, &mut values).unwrap_err();
        assert_eq!((error.path.as_str(), error.fault), ("numbers", Fault::OutOfBounds));
        let walked = plan.select(&["numbers"]).unwrap().append_json(&payload, &mut Vec::new());
        assert_eq!(walked, Err(error));
    }
}
