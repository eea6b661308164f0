//! Verifies whole payloads with their schema. The checks are the same as in the verifier that flatc
//! generates.
//!
//! Tables of the same type usually share a vtable. So the fields are checked only for the first
//! table that uses a vtable. This check determines which fields a table has, and whether they are
//! aligned and within the table. For all later tables with this vtable, only the references to
//! strings, lists and tables are checked.

use flatbuffers::VerifierOptions;

use super::bytes::{UOFFSET_BYTES, bytes_at};
use super::compiled::{CompiledSchema, ElementType, FieldType};
use super::value::ScalarType;

/// Number of bytes of an entry of a vtable.
const SLOT_BYTES: usize = 2;
/// Maximum alignment of a field, in bytes. If the locations of two tables are congruent modulo this
/// number, both tables have the same alignment.
const ALIGNMENT_MAX: usize = 8;

/// A verifier of the payloads of one source. It accepts exactly the bytes that
/// `flatbuffers::root_with_opts` accepts with the code that flatc generates for the schema. The
/// verifier needs no generated code. It checks each vtable only once, not again for each table that
/// uses the vtable.
///
/// A payload that the verifier accepts is safe to read with `flatbuffers::root_unchecked`. The
/// readers of this crate need no verification, because they check each offset that they follow.
///
/// ```
/// use flatcap_format::schema::{CompiledSchema, segment};
///
/// let schema = std::fs::read("generated/segment.bfbs")?;
/// let schema = CompiledSchema::compile(&schema, "flatcap.segment.Marker")?;
/// let mut verifier = schema.verifier(flatbuffers::VerifierOptions::default());
///
/// let mut builder = flatbuffers::FlatBufferBuilder::new();
/// let text = Some(builder.create_string("deployed"));
/// let fields = segment::MarkerArgs { text, ..Default::default() };
/// let marker = segment::Marker::create(&mut builder, &fields);
/// builder.finish(marker, None);
/// let payload = builder.finished_data();
///
/// assert!(verifier.accepts(payload));
/// assert!(!verifier.accepts(&payload[..payload.len() - 4]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct PayloadVerifier {
    tables: Box<[TableFields]>,
    root: usize,
    options: VerifierOptions,
    known: Box<[KnownVtable]>, // the last vtable of each kind of table
    payload_number: u64,       // of the payload being verified; only its vtables are known
}

/// The fields of one type of table.
#[derive(Debug, Clone, Default)]
struct TableFields {
    fields: Box<[VerifiedField]>, // in the order of their slots
    required_end: usize,          // shortest vtable with a slot for each required field, in bytes
}

#[derive(Debug, Clone, Copy)]
struct VerifiedField {
    slot: u16,
    is_required: bool,
    content: FieldContent,
}

/// The content at the location of a field.
#[derive(Debug, Clone, Copy)]
enum FieldContent {
    Inline { bytes: usize, alignment: usize },
    Reference(Target),
}

/// The target of an offset.
#[derive(Debug, Clone, Copy)]
enum Target {
    Text,
    Table(usize),
    /// A vector of scalars or structs.
    Values {
        stride: usize,
        alignment: usize,
    },
    Texts,
    Tables(usize),
}

/// A vtable that was checked. The result is valid for tables of one kind and one alignment.
#[derive(Debug, Clone)]
struct KnownVtable {
    payload_number: u64,              // the payload that contains it, or 0 for none
    at: usize,                        // of the vtable
    alignment: usize,                 // of the table, modulo `ALIGNMENT_MAX`
    end: usize,                       // of the last field, from the start of the table
    visited: usize,                   // bytes that such a table adds to the apparent size
    references: Vec<(usize, Target)>, // offsets from the start of the table
}

impl CompiledSchema {
    /// Returns a verifier of payloads with this schema. If fields are [selected](Self::select), the
    /// verifier checks only these fields. Otherwise it checks all fields.
    pub fn verifier(&self, options: VerifierOptions) -> PayloadVerifier {
        let tables = self.objects.iter().map(|object| {
            let field = |field: &super::compiled::Field| VerifiedField {
                slot: field.at,
                is_required: field.is_required,
                content: self.content(field.value_type),
            };
            // Structs have no vtable, because they are a part of the table or vector that contains
            // them.
            if object.struct_bytes.is_some() {
                return TableFields::default();
            }
            let fields: Box<[VerifiedField]> = object.fields.iter().map(field).collect();
            let required = fields.iter().rfind(|field| field.is_required);
            let required_end = required.map_or(0, |field| usize::from(field.slot) + SLOT_BYTES);
            TableFields { fields, required_end }
        });
        let tables: Box<[TableFields]> = tables.collect();
        let known = tables.iter().map(|_| KnownVtable::none()).collect();
        PayloadVerifier { tables, root: self.root, options, known, payload_number: 0 }
    }

    fn content(&self, field_type: FieldType) -> FieldContent {
        let scalar =
            |scalar: ScalarType| FieldContent::Inline { bytes: scalar.size(), alignment: scalar.size() };
        // The code that flatc generates reads structs as bytes, without alignment.
        let structure = |object: usize| self.object(object).struct_bytes;
        match field_type {
            FieldType::Scalar(kind) | FieldType::Array(ElementType::Scalar(kind), _) => scalar(kind),
            FieldType::String | FieldType::Array(ElementType::String, _) => {
                FieldContent::Reference(Target::Text)
            }
            FieldType::Object(object) | FieldType::Array(ElementType::Object(object), _) => {
                structure(object).map_or(FieldContent::Reference(Target::Table(object)), |bytes| {
                    FieldContent::Inline { bytes, alignment: 1 }
                })
            }
            FieldType::Vector(element) => FieldContent::Reference(match element {
                ElementType::Scalar(kind) => Target::Values { stride: kind.size(), alignment: kind.size() },
                ElementType::String => Target::Texts,
                ElementType::Object(object) => structure(object)
                    .map_or(Target::Tables(object), |stride| Target::Values { stride, alignment: 1 }),
            }),
        }
    }
}

impl KnownVtable {
    fn none() -> Self {
        Self { payload_number: 0, at: 0, alignment: 0, end: 0, visited: 0, references: Vec::new() }
    }
}

impl PayloadVerifier {
    /// Sets the limit of the apparent size, in bytes. The apparent size counts shared bytes at each
    /// use. The time to verify a payload is proportional to its apparent size.
    pub fn set_max_apparent_size(&mut self, bytes: usize) {
        self.options.max_apparent_size = bytes;
    }

    /// Returns whether a payload is valid. In a valid payload, all offsets lead to complete and
    /// aligned values within the payload. Each string is UTF-8 and ends with a zero byte. All
    /// required fields are present, and the payload does not exceed the limits in the options. The
    /// time is proportional to the apparent size of the payload and does not depend on the schema.
    /// Allocates memory only for a vtable that has more references than any earlier vtable, and for
    /// tables within tables of the same type.
    pub fn accepts(&mut self, payload: &[u8]) -> bool {
        let mut walk = self.walk(payload);
        walk.root().is_some()
    }

    fn walk<'w>(&'w mut self, payload: &'w [u8]) -> VerifierWalk<'w> {
        let Self { tables, root, options, known, payload_number } = self;
        *payload_number += 1;
        let payload_number = *payload_number;
        VerifierWalk {
            tables,
            root: *root,
            options,
            known,
            payload,
            payload_number,
            visited: 0,
            learned: 0,
            count: 0,
            depth: 0,
        }
    }
}

/// The verification of one payload. All methods return `None` if the payload is invalid.
struct VerifierWalk<'w> {
    tables: &'w [TableFields],
    root: usize,
    options: &'w VerifierOptions,
    known: &'w mut [KnownVtable],
    payload: &'w [u8],
    payload_number: u64,
    visited: usize, // bytes, each time that they are reached
    learned: usize, // bytes of vtables, each time that they are checked
    count: usize,   // of tables
    depth: usize,
}

impl VerifierWalk<'_> {
    fn root(&mut self) -> Option<()> {
        self.visit(UOFFSET_BYTES)?;
        let at = self.target(0)?;
        self.table(self.root, at)
    }

    fn table(&mut self, kind: usize, at: usize) -> Option<()> {
        self.count += 1;
        self.depth += 1;
        if self.count > self.options.max_tables || self.depth > self.options.max_depth {
            return None;
        }
        let back = self.word(at)?.cast_signed();
        let distance = usize::try_from(back.unsigned_abs()).ok()?;
        let vtable = if back > 0 { at.checked_sub(distance)? } else { at.checked_add(distance)? };
        let is_known = self.known.get(kind).is_some_and(|known| {
            (known.payload_number, known.at, known.alignment)
                == (self.payload_number, vtable, at % ALIGNMENT_MAX)
        });
        if !is_known {
            self.learn(kind, vtable, at)?;
        }
        let known = self.known.get_mut(kind)?;
        if at.checked_add(known.end)? > self.payload.len() {
            return None;
        }
        let visited = known.visited;
        if known.references.is_empty() {
            self.visit(visited)?;
        } else {
            // A table of the same type that is nested in this table may have another vtable. If the
            // nested table's vtable replaced this table's vtable, the check of this table's vtable
            // would be repeated after each reference. The time would then be quadratic in the
            // length of the vtable.
            let own = std::mem::replace(known, KnownVtable::none());
            self.visit(visited)?;
            for (place, target) in &own.references {
                self.reference(at.checked_add(*place)?, *target)?;
            }
            *self.known.get_mut(kind)? = own;
        }
        self.depth -= 1;
        Some(())
    }

    /// Checks a vtable for a table at `at`. The cost is proportional to the length of the vtable
    /// and not to the number of fields in the schema. The length is added to the apparent size.
    #[cold]
    fn learn(&mut self, kind: usize, vtable: usize, at: usize) -> Option<()> {
        let bytes = usize::from(self.short(vtable)?);
        if !vtable.is_multiple_of(SLOT_BYTES) || !bytes.is_multiple_of(SLOT_BYTES) {
            return None;
        }
        let slots = self.payload.get(vtable..)?.get(..bytes)?;
        self.learned += bytes;
        let known = self.known.get_mut(kind)?;
        known.references.clear();
        // The first field of each table is the offset to the vtable.
        let (mut end, mut visited) = (UOFFSET_BYTES, UOFFSET_BYTES + SLOT_BYTES + bytes);
        let table = self.tables.get(kind)?;
        if table.required_end > bytes {
            return None;
        }
        for field in &table.fields {
            // If a slot is after the end of the vtable, this field and all later fields are
            // omitted.
            let Some(place) = bytes_at(slots, field.slot.into()).map(u16::from_le_bytes) else { break };
            visited += SLOT_BYTES;
            let place = usize::from(place);
            if place == 0 {
                if field.is_required {
                    return None;
                }
                continue;
            }
            let (bytes, alignment) = match field.content {
                FieldContent::Inline { bytes, alignment } => (bytes, alignment),
                FieldContent::Reference(target) => {
                    known.references.push((place, target));
                    (UOFFSET_BYTES, UOFFSET_BYTES)
                }
            };
            if !at.checked_add(place)?.is_multiple_of(alignment) {
                return None;
            }
            end = end.max(place + bytes);
            visited += bytes;
        }
        (known.at, known.alignment, known.end, known.visited) = (vtable, at % ALIGNMENT_MAX, end, visited);
        known.payload_number = self.payload_number;
        Some(())
    }

    /// Checks the target of the offset at `at`. The bytes of the offset itself were counted with
    /// its table.
    fn reference(&mut self, at: usize, target: Target) -> Option<()> {
        let to = self.target(at)?;
        match target {
            Target::Text => self.text(to),
            Target::Table(kind) => self.table(kind, to),
            Target::Values { stride, alignment } => self.vector(to, stride, alignment).map(|_| ()),
            Target::Texts => self.each(to, Self::text),
            Target::Tables(kind) => self.each(to, |walk, to| walk.table(kind, to)),
        }
    }

    /// Checks a vector of offsets and the values to which they lead.
    fn each(&mut self, at: usize, mut check: impl FnMut(&mut Self, usize) -> Option<()>) -> Option<()> {
        let (start, bytes) = self.vector(at, UOFFSET_BYTES, UOFFSET_BYTES)?;
        for element in (start..start + bytes).step_by(UOFFSET_BYTES) {
            // The bytes are counted at each use, as flatbuffers does.
            self.visit(UOFFSET_BYTES)?;
            let to = self.target(element)?;
            check(self, to)?;
        }
        Some(())
    }

    fn text(&mut self, at: usize) -> Option<()> {
        let (start, bytes) = self.vector(at, 1, 1)?;
        let (text, after) = self.payload.get(start..)?.split_at_checked(bytes)?;
        let has_end = self.options.ignore_missing_null_terminator || after.first() == Some(&0);
        (has_end && str::from_utf8(text).is_ok()).then_some(())
    }

    /// Checks that a vector is complete and aligned. Returns the offset of its first element, and
    /// the length of all elements in bytes.
    fn vector(&mut self, at: usize, stride: usize, alignment: usize) -> Option<(usize, usize)> {
        let length = usize::try_from(self.word(at)?).ok()?;
        let start = at.checked_add(UOFFSET_BYTES)?;
        let bytes = length.checked_mul(stride)?;
        if !start.is_multiple_of(alignment) || start.checked_add(bytes)? > self.payload.len() {
            return None;
        }
        self.visit(UOFFSET_BYTES.checked_add(bytes)?)?;
        Some((start, bytes))
    }

    /// Counts bytes. Shared bytes count at each use, so the limit bounds the cost of every payload.
    fn visit(&mut self, bytes: usize) -> Option<()> {
        self.visited = self.visited.checked_add(bytes)?;
        (self.visited <= self.options.max_apparent_size).then_some(())
    }

    /// Follows the offset at `at`.
    fn target(&self, at: usize) -> Option<usize> {
        at.checked_add(usize::try_from(self.word(at)?).ok()?)
    }

    fn word(&self, at: usize) -> Option<u32> {
        let word = bytes_at(self.payload, at).map(u32::from_le_bytes);
        word.filter(|_| at.is_multiple_of(UOFFSET_BYTES))
    }

    fn short(&self, at: usize) -> Option<u16> {
        bytes_at(self.payload, at).map(u16::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Vector, WIPOffset};
    use flatbuffers_reflection::reflection::BaseType;
    use proptest::prelude::*;

    use super::super::fixtures::{ForgedField, ForgedObject, SHAPES_PAYLOAD, forge};
    use super::*;
    use crate::fixtures::test::{Branch, BranchArgs, Shapes};
    use crate::schema::frame::TelemetryFrame;
    use crate::schema::segment as wire;

    /// The type of a reference verifier, which uses the verifier of flatbuffers and the code that
    /// flatc generates.
    type Judge = fn(&VerifierOptions, &[u8]) -> bool;

    /// A schema with its root, its reference verifier, and a valid payload.
    struct JudgedSchema {
        verifier: PayloadVerifier,
        judge: Judge,
        payload: Vec<u8>,
    }

    macro_rules! judged {
        ($schema:literal, $root:literal, $type:ty, $payload:expr) => {
            JudgedSchema {
                verifier: CompiledSchema::compile(include_bytes!($schema), $root)
                    .unwrap()
                    .verifier(VerifierOptions::default()),
                judge: |options, bytes| flatbuffers::root_with_opts::<$type>(options, bytes).is_ok(),
                payload: $payload,
            }
        };
    }

    fn finished<T>(make: impl FnOnce(&mut FlatBufferBuilder<'static>) -> WIPOffset<T>) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let root = make(&mut builder);
        builder.finish(root, None);
        builder.finished_data().to_vec()
    }

    type Offsets<T> = WIPOffset<Vector<'static, ForwardsUOffset<T>>>;

    /// Builds a tree whose nodes have four different vtables, so that nodes of the same type
    /// alternate between vtables.
    fn tree(builder: &mut FlatBufferBuilder<'static>, depth: i32) -> WIPOffset<Branch<'static>> {
        let left = (depth > 0).then(|| tree(builder, depth - 1));
        let right = (depth > 1).then(|| tree(builder, depth - 2));
        let children: Vec<_> = (0..depth % 3).map(|_| tree(builder, depth - 3)).collect();
        let children: Option<Offsets<Branch<'static>>> =
            (!children.is_empty()).then(|| builder.create_vector(&children));
        let name = (depth % 2 == 0).then(|| builder.create_string("n"));
        Branch::create(builder, &BranchArgs { value: depth, left, right, children, name })
    }

    fn header(builder: &mut FlatBufferBuilder<'static>) -> WIPOffset<wire::SegmentHeader<'static>> {
        let text = |builder: &mut FlatBufferBuilder<'static>, text: &str| Some(builder.create_string(text));
        let machine_id = text(builder, "0123456789abcdef");
        let host = wire::HostArgs { name: text(builder, "h\u{e4}st"), machine_id, boot_id: None };
        let host = Some(wire::Host::create(builder, &host));
        let sources: Vec<_> = (0..4)
            .map(|id| {
                let label = wire::LabelArgs { key: text(builder, "role"), value: text(builder, "db") };
                let label = wire::Label::create(builder, &label);
                let labels = (id % 2 == 0).then(|| builder.create_vector(&[label]));
                let (name, root) = (text(builder, "cpu"), text(builder, "flatcap.host.Cpu"));
                let schema = Some(builder.create_vector(&[1_u8, 2, 3]));
                let fields =
                    wire::SourceDescriptorArgs { id, name, labels, root, schema, ..Default::default() };
                wire::SourceDescriptor::create(builder, &fields)
            })
            .collect();
        let sources = Some(builder.create_vector(&sources));
        let pairing = wire::ClockPairing::new(1, 2, 3);
        let clock_table = Some(builder.create_vector(&[pairing, pairing]));
        let agent_version = text(builder, "1.0");
        let clocks = Some(&pairing);
        let fields = wire::SegmentHeaderArgs {
            host,
            agent_version,
            clocks,
            sources,
            clock_table,
            ..Default::default()
        };
        wire::SegmentHeader::create(builder, &fields)
    }

    fn footer(builder: &mut FlatBufferBuilder<'static>) -> WIPOffset<wire::Footer<'static>> {
        let header = Some(header(builder));
        let buckets = Some(builder.create_vector(&[wire::Bucket::new(1, 2)]));
        let totals: Vec<_> = (0..3)
            .map(|source| {
                let lateness = buckets.filter(|_| source != 1);
                let fields = wire::SourceTotalsArgs { source, lateness, ..Default::default() };
                wire::SourceTotals::create(builder, &fields)
            })
            .collect();
        let totals = Some(builder.create_vector(&totals));
        let entries: Vec<_> = (0..8)
            .map(|offset| {
                let sources = Some(builder.create_vector(&[wire::IndexedSource::new(1, 2, 3)]));
                let fields =
                    wire::IndexEntryArgs { offset, sources, digest: offset % 2, ..Default::default() };
                wire::IndexEntry::create(builder, &fields)
            })
            .collect();
        let index = Some(builder.create_vector(&entries));
        wire::Footer::create(builder, &wire::FooterArgs { header, totals, index, ..Default::default() })
    }

    fn judged_schemas() -> Vec<JudgedSchema> {
        let frame = finished(|builder| {
            let payload = Some(builder.create_vector(&[1_u8; 20]));
            let header = Some(&crate::schema::frame::FrameHeader::default());
            let fields = crate::schema::frame::TelemetryFrameArgs { header, payload };
            TelemetryFrame::create(builder, &fields)
        });
        vec![
            judged!(
                "../../../../tests/data/schema/shapes.bfbs",
                "flatcap.test.Shapes",
                Shapes<'_>,
                SHAPES_PAYLOAD.to_vec()
            ),
            judged!(
                "../../../../tests/data/schema/tree.bfbs",
                "flatcap.test.Branch",
                Branch<'_>,
                finished(|builder| tree(builder, 6))
            ),
            judged!(
                "../../generated/segment.bfbs",
                "flatcap.segment.Footer",
                wire::Footer<'_>,
                finished(footer)
            ),
            judged!(
                "../../generated/segment.bfbs",
                "flatcap.segment.SegmentHeader",
                wire::SegmentHeader<'_>,
                finished(header)
            ),
            judged!("../../generated/frame.bfbs", "flatcap.frame.TelemetryFrame", TelemetryFrame<'_>, frame),
        ]
    }

    /// Damages a payload. Replaces or slightly changes a byte, a 16-bit value or an offset, or
    /// truncates the payload.
    fn damage(payload: &mut Vec<u8>, (kind, place, value): (u8, u16, u32)) {
        let at = usize::from(place) % payload.len().max(1);
        let (short, word) = (at & !1, at & !3);
        let [low, high, ..] = value.to_le_bytes();
        match kind % 6 {
            0 => payload[at] = low,
            1 if short + 2 <= payload.len() => {
                payload[short..short + 2].copy_from_slice(&[low % 64, high % 2]);
            }
            2 if word + 4 <= payload.len() => {
                payload[word..word + 4].copy_from_slice(&(value % 256).to_le_bytes());
            }
            3 if word + 4 <= payload.len() => {
                let old = u32::from_le_bytes(payload[word..word + 4].try_into().unwrap());
                let moved = old.wrapping_add(value % 33).wrapping_sub(16);
                payload[word..word + 4].copy_from_slice(&moved.to_le_bytes());
            }
            4 => payload[at] ^= 1 << (value % 8),
            5 if value.is_multiple_of(4) => payload.truncate(at.max(1)),
            _ => {}
        }
    }

    /// Builds a table with `count` fields. All fields refer to one other table of the same type,
    /// which has no fields.
    fn fan(count: u16) -> (PayloadVerifier, Vec<u8>) {
        let name = |id: u16| -> &'static str { format!("field{id}").leak() };
        let field = |id: u16| ForgedField {
            name: name(id),
            id,
            offset: 4 + 2 * id,
            base: BaseType::Obj,
            element: BaseType::None,
            index: 0,
            fixed_length: 0,
        };
        let schema = forge(&[ForgedObject::table("Fan", (0..count).map(field).collect())]);
        let mut payload = Vec::new();
        let slots = 4 + 2 * count; // a multiple of 4, so everything after it is aligned
        payload.extend_from_slice(&u32::from(4 + slots).to_le_bytes());
        payload.extend([slots, 8].into_iter().chain((0..count).map(|_| 4)).flat_map(u16::to_le_bytes));
        payload.extend([u32::from(slots), 8].into_iter().flat_map(u32::to_le_bytes));
        payload.extend([4_u16, 4].into_iter().flat_map(u16::to_le_bytes));
        payload.extend_from_slice(&4_u32.to_le_bytes());
        let schema = CompiledSchema::compile(&schema, "Fan").unwrap();
        (schema.verifier(VerifierOptions::default()), payload)
    }

    // Proves that the number of checked vtable bytes never exceeds the apparent size, so that the
    // limit of the apparent size bounds the time. The test uses a table with many references to
    // tables of the same type.
    #[test]
    fn vtables_are_checked_in_proportion_to_the_apparent_size() {
        for count in [2, 30, 8_000] {
            let (mut verifier, payload) = fan(count);
            let mut walk = verifier.walk(&payload);
            assert!(walk.root().is_some());
            assert!(walk.learned <= walk.visited, "{count}: {} of {}", walk.learned, walk.visited);
            assert_eq!(walk.count, 1 + usize::from(count));
        }
    }

    // Proves that intact payloads are accepted, and that payloads that lack their last byte are
    // rejected. Proves that each limit of the options has exactly the same effect as in
    // flatbuffers.
    #[test]
    fn limits_are_those_of_flatbuffers() {
        for JudgedSchema { mut verifier, judge, payload } in judged_schemas() {
            assert!(verifier.accepts(&payload) && judge(&verifier.options, &payload));
            let default = VerifierOptions::default();
            let mut rejected = 0;
            for limit in 0..2000 {
                for options in [
                    VerifierOptions { max_depth: limit, ..default.clone() },
                    VerifierOptions { max_tables: limit, ..default.clone() },
                    VerifierOptions { max_apparent_size: limit, ..default.clone() },
                ] {
                    verifier.options = options;
                    let is_valid = judge(&verifier.options, &payload);
                    assert_eq!(verifier.accepts(&payload), is_valid, "{:?}", verifier.options);
                    rejected += u32::from(!is_valid);
                }
            }
            assert!(rejected > 3);
        }
    }

    proptest! {
        // Proves that the verifier accepts exactly the payloads that flatbuffers accepts, with any
        // damage and any limits. Proves that the check of a payload does not affect the check of
        // the next payload.
        #[test]
        fn agrees_with_flatbuffers(
            damages in prop::collection::vec((any::<u8>(), any::<u16>(), any::<u32>()), 0..6),
            limits in (0_usize..8, 0_usize..100, 0_usize..4000, any::<bool>(), 0..4_u8),
        ) {
            let (max_depth, max_tables, max_apparent_size, ignore_missing_null_terminator, is_limited) = limits;
            let options = VerifierOptions { max_depth, max_tables, max_apparent_size, ignore_missing_null_terminator };
            for JudgedSchema { mut verifier, judge, payload } in judged_schemas() {
                if is_limited == 0 {
                    verifier.options = options.clone();
                }
                // Checks each damage together with all earlier damages, and also alone.
                let mut all = payload.clone();
                for &one in &damages {
                    let mut single = payload.clone();
                    damage(&mut single, one);
                    damage(&mut all, one);
                    for damaged in [&single, &all] {
                        prop_assert_eq!(verifier.accepts(damaged), judge(&verifier.options, damaged));
                    }
                }
            }
        }

        // Proves that both verifiers give the same result for any bytes.
        #[test]
        fn any_bytes_are_judged_alike(words in prop::collection::vec(prop_oneof![0..40_u32, any::<u32>()], 0..60)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            for JudgedSchema { mut verifier, judge, .. } in judged_schemas() {
                prop_assert_eq!(verifier.accepts(&bytes), judge(&verifier.options, &bytes));
            }
        }
    }
}
