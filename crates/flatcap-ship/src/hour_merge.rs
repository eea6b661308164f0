//! Merges the objects of segments into the objects of an hour, table by table.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::error::ShipError;
use crate::lake::Lake;
use crate::manifest::{FORMAT, Manifest, ManifestKind, ManifestObject};
use crate::names::ObjectGroup;
use crate::object_rows::{damaged, open_object};
use crate::object_writer::{ObjectWriter, WrittenObject};
use crate::shipper::put_object;

/// Puts the objects of an hour, and returns its manifest. `segments` must be sorted by segment
/// number, and the name of each object must contain the group of its segment.
///
/// # Errors
/// Fails with `Object` for an object that is missing, damaged, or named by the manifest of another
/// segment. Also returns errors of the store.
pub(crate) fn merge_hour(
    lake: &Lake,
    group: &ObjectGroup,
    segments: &[(&ObjectGroup, &Manifest)],
) -> Result<Manifest, ShipError> {
    let mut objects = Vec::new();
    for (table, names) in tables(segments)? {
        let mut merge = TableMerge { lake, group, table: &table, part: 0, objects: &mut objects };
        merge.run(&names)?;
    }
    let manifests = || segments.iter().map(|(_, manifest)| *manifest);
    let sum = |value: fn(&Manifest) -> u64| manifests().map(value).fold(0, u64::saturating_add);
    // Labels and versions may change within the hour. The last segment has the latest labels and
    // versions.
    let last = manifests().next_back().cloned().unwrap_or_default();
    Ok(Manifest {
        format: FORMAT,
        kind: ManifestKind::Hour,
        converter: env!("CARGO_PKG_VERSION").to_owned(),
        run: last.run,
        segments: manifests().map(|manifest| manifest.segment).collect(),
        host: last.host,
        agent_version: last.agent_version,
        first_wall_ns: manifests().filter_map(|manifest| manifest.first_wall_ns).min(),
        last_wall_ns: manifests().filter_map(|manifest| manifest.last_wall_ns).max(),
        raw_bytes: sum(|manifest| manifest.raw_bytes),
        rows: sum(|manifest| manifest.rows),
        lost: sum(|manifest| manifest.lost),
        unreadable: sum(|manifest| manifest.unreadable),
        objects,
        ..Manifest::default()
    })
}

/// Returns the objects of each table, in the order of segments and parts.
fn tables(segments: &[(&ObjectGroup, &Manifest)]) -> Result<BTreeMap<String, Vec<String>>, ShipError> {
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (group, manifest) in segments {
        let mut parts = Vec::new();
        for object in &manifest.objects {
            // Any client may have put a manifest in the store, so accept only names of its own
            // group.
            match ObjectGroup::parse_table(&object.name) {
                Some((own, table, part)) if own == **group => parts.push((table, part, &object.name)),
                _ => {
                    let what = "named by a manifest of another segment".to_owned();
                    return Err(ShipError::Object { name: object.name.clone(), what });
                }
            }
        }
        parts.sort_unstable();
        for (table, _, name) in parts {
            tables.entry(table.to_owned()).or_default().push(name.clone());
        }
    }
    Ok(tables)
}

/// Merges the objects of one table.
struct TableMerge<'m> {
    lake: &'m Lake,
    group: &'m ObjectGroup,
    table: &'m str,
    part: u32,
    objects: &'m mut Vec<ManifestObject>,
}

impl TableMerge<'_> {
    fn run(&mut self, names: &[String]) -> Result<(), ShipError> {
        let mut writer: Option<ObjectWriter> = None;
        for name in names {
            let (schema, reader) = open_object(self.lake, name)?;
            // If the columns of a source changed within the hour, the source gets another object.
            if let Some(before) = writer.take_if(|writer| *writer.schema() != schema) {
                self.finish(before)?;
            }
            let own = writer.get_or_insert_with(|| ObjectWriter::new(schema));
            for batch in reader {
                for object in own.write(&batch.map_err(|error| damaged(name, error))?)? {
                    self.put(object)?;
                }
            }
        }
        writer.map_or(Ok(()), |writer| self.finish(writer))
    }

    fn finish(&mut self, writer: ObjectWriter) -> Result<(), ShipError> {
        // A table without rows gets an object too, because engines need it to know the table's
        // columns.
        let may_be_empty = self.part == 0;
        writer.finish(may_be_empty)?.map_or(Ok(()), |object| self.put(object))
    }

    fn put(&mut self, object: WrittenObject) -> Result<(), ShipError> {
        self.part += 1;
        let name = self.group.table(self.table, self.part);
        let bytes = Bytes::from(object.bytes);
        put_object(self.lake, &name, &bytes)?;
        self.objects.push(ManifestObject { name, rows: object.rows, bytes: bytes.len() as u64 });
        Ok(())
    }
}
