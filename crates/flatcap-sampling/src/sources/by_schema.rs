//! Builds payloads that contain counters from the binary schema of a source, without generated
//! code. Fields are found by name, and all values have 64 bits.

use flatbuffers::{FlatBufferBuilder, VOffsetT, Vector, WIPOffset};
use flatbuffers_reflection::reflection::{Field, Object, Schema, root_as_schema};

use super::{OWN_SCHEMA, SourceSpec};

/// Returns a field of the root table of a source, and the schema.
fn root_field(spec: &SourceSpec, name: &str) -> (Schema<'static>, Field<'static>) {
    let schema = root_as_schema(spec.schema).expect(OWN_SCHEMA);
    let root = schema.objects().iter().find(|object| object.name() == spec.root).expect(OWN_SCHEMA);
    let field = root.fields().iter().find(|field| field.name() == name).expect(OWN_SCHEMA);
    (schema, field)
}

/// Returns the slot of a field of the root table, which is a constant in generated code.
pub(super) fn slot(spec: &SourceSpec, name: &str) -> VOffsetT {
    root_field(spec, name).1.offset()
}

/// Returns the struct type of a field of the root table. If the field is a vector, returns the
/// struct type of its elements.
pub(super) fn struct_of(spec: &SourceSpec, name: &str) -> Object<'static> {
    let (schema, field) = root_field(spec, name);
    schema.objects().get(usize::try_from(field.type_().index()).expect(OWN_SCHEMA))
}

/// Adds a struct to the table under construction. `values` are the values of all fields of the
/// struct.
pub(super) fn push_struct(
    builder: &mut FlatBufferBuilder<'static>,
    slot: VOffsetT,
    mut values: impl DoubleEndedIterator<Item = u64>,
) {
    let first = values.next();
    // The builder writes backwards, from the last field to the first. The offset of the first field
    // is the offset of the struct.
    for value in values.rev() {
        builder.push(value);
    }
    if let Some(first) = first {
        builder.push_slot_always(slot, first);
    }
}

/// Creates a vector of `count` structs. `values` are the values of all fields of all structs.
pub(super) fn create_structs(
    builder: &mut FlatBufferBuilder<'static>,
    count: usize,
    values: impl DoubleEndedIterator<Item = u64> + ExactSizeIterator,
) -> WIPOffset<Vector<'static, u64>> {
    builder.start_vector::<u64>(values.len());
    for value in values.rev() {
        builder.push(value);
    }
    builder.end_vector(count)
}

/// Decodes 64-bit counters from the byte format that payloads use.
pub(super) fn values_of(counters: &[u8]) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator {
    let (values, _) = counters.as_chunks();
    values.iter().map(|value| u64::from_le_bytes(*value))
}

#[cfg(test)]
mod tests {
    use flatcap_schemas::host::{Conntrack, ConntrackArgs, ConntrackCore, Cpu, CpuTimes};

    use super::*;
    use crate::sources::{conntrack, cpu};

    fn finished<T>(build: impl FnOnce(&mut FlatBufferBuilder<'static>) -> WIPOffset<T>) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        let root = build(&mut builder);
        builder.finish_minimal(root);
        builder.finished_data().to_vec()
    }

    // Proves that a struct in a table has the same bytes as a struct that generated code builds.
    #[test]
    fn a_struct_is_built_as_by_generated_code() {
        let times = CpuTimes::new(1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
        let generated = finished(|builder| {
            let table = builder.start_table();
            builder.push_slot_always(Cpu::VT_TOTAL, times);
            builder.end_table(table)
        });
        let by_schema = finished(|builder| {
            let table = builder.start_table();
            push_struct(builder, slot(&cpu::SPEC, "total"), values_of(&times.0));
            builder.end_table(table)
        });
        assert_eq!(by_schema, generated);
    }

    // Proves that a vector of structs, even an empty one, has the same bytes as a vector that
    // generated code builds.
    #[test]
    fn a_vector_is_built_as_by_generated_code() {
        let mut core = ConntrackCore::default();
        for (place, value) in core.0.as_chunks_mut().0.iter_mut().zip(1_u64..) {
            *place = value.to_le_bytes();
        }
        for cores in [&[core, core, core][..], &[]] {
            let generated = finished(|builder| {
                let cores = builder.create_vector(cores);
                Conntrack::create(builder, &ConntrackArgs { count: 1, count_max: 2, cores: Some(cores) })
            });
            let bytes: Vec<u8> = cores.iter().flat_map(|core| core.0).collect();
            let by_schema = finished(|builder| {
                let vector = create_structs(builder, cores.len(), values_of(&bytes));
                let table = builder.start_table();
                let slot = |name| slot(&conntrack::SPEC, name);
                builder.push_slot_always(slot("count_max"), 2_u64);
                builder.push_slot_always(slot("count"), 1_u64);
                builder.push_slot_always(slot("cores"), vector);
                builder.end_table(table)
            });
            assert_eq!(by_schema, generated);
        }
    }
}
