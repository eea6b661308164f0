//! The tables of gaps, marks and sources, which exist in addition to the tables of samples. The
//! module also adds the column that states the segment of each row.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use flatcap_export::{Cell, CellType, ColumnarError, RecordTable};
use flatcap_format::host::ClockReading;
use flatcap_format::schema::{GapCauseNames, to_visible_json};
use flatcap_format::segment::{Gap, Marker};

use crate::manifest::{Manifest, ManifestSource};

/// The cause of a gap whose samples were recorded but cannot be read.
const UNREADABLE: &str = "unreadable";

/// Columns that query engines take from the names of objects.
const PARTITION_COLUMNS: [&str; 3] = ["source", "date", "host"];

const GAP_COLUMNS: [(&str, CellType); 8] = [
    ("gap_source", CellType::Text),
    ("run", CellType::Text),
    ("first_seq", CellType::Number),
    ("count", CellType::Number),
    ("causes", CellType::Text),
    ("after_mono_ns", CellType::Number),
    ("before_mono_ns", CellType::Number),
    ("before_time", CellType::Time),
];
const MARK_COLUMNS: [(&str, CellType); 6] = [
    ("time", CellType::Time),
    ("wall_ns", CellType::Number),
    ("mono_ns", CellType::Number),
    ("run", CellType::Text),
    ("origin", CellType::Text),
    ("text", CellType::Text),
];
const SOURCE_COLUMNS: [(&str, CellType); 17] = [
    ("name", CellType::Text),
    ("run", CellType::Text),
    ("host_name", CellType::Text),
    ("boot_id", CellType::Text),
    ("labels", CellType::Text),
    ("period_ns", CellType::Number),
    ("first_seq", CellType::Number),
    ("next_seq", CellType::Number),
    ("rows", CellType::Number),
    ("recorded", CellType::Number),
    ("lost", CellType::Number),
    ("thinned", CellType::Number),
    ("missed", CellType::Number),
    ("unreadable", CellType::Number),
    ("first_time", CellType::Time),
    ("last_time", CellType::Time),
    ("problem", CellType::Text),
];

/// The origin of rows, which is a column of each table.
#[derive(Debug, Clone)]
pub(crate) enum RowOrigin {
    /// The segment number, in the column `segment`.
    Segment(u64),
    /// The name of the snapshot, in the column `snapshot`.
    Snapshot(String),
}

impl RowOrigin {
    fn field(&self) -> Field {
        match self {
            Self::Segment(_) => Field::new("segment", DataType::Int64, false),
            Self::Snapshot(_) => Field::new("snapshot", DataType::Utf8, false),
        }
    }

    /// Returns the columns with the origin's column added. If a field of the source has the same
    /// name as the origin column or a partition column, `-2` is appended to the field's name.
    pub(crate) fn schema(&self, columns: &SchemaRef) -> SchemaRef {
        let own = self.field();
        let renamed = |field: &Arc<Field>| {
            let is_taken = field.name() == own.name() || PARTITION_COLUMNS.contains(&field.name().as_str());
            let field = field.as_ref().clone();
            let name = format!("{}-2", field.name());
            if is_taken { field.with_name(name) } else { field }
        };
        let fields: Vec<Field> = columns.fields().iter().map(renamed).chain([own.clone()]).collect();
        Arc::new(Schema::new(fields))
    }

    /// Returns the rows with the origin's column added.
    pub(crate) fn add_to(&self, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let rows = batch.num_rows();
        let origin: ArrayRef = match self {
            Self::Segment(number) => Arc::new(Int64Array::from_value(number.cast_signed(), rows)),
            Self::Snapshot(name) => {
                Arc::new(StringArray::from_iter_values(std::iter::repeat_n(name.as_str(), rows)))
            }
        };
        let columns = batch.columns().iter().cloned().chain([origin]);
        RecordBatch::try_new(Arc::clone(schema), columns.collect())
    }
}

/// A gap in the samples of a source.
#[derive(Debug, Clone)]
pub(crate) enum SourceGap {
    /// Samples that the recorder lost.
    Recorded(Gap),
    /// Recorded samples that cannot be read: the first sequence number and the count.
    Unreadable(u64, u64),
}

impl SourceGap {
    pub(crate) fn first(&self) -> u64 {
        match self {
            Self::Recorded(gap) => gap.first,
            Self::Unreadable(first, _) => *first,
        }
    }
}

/// Returns the table of gaps, in the given order.
pub(crate) fn gap_table(
    gaps: &[(String, SourceGap)],
    run: &str,
    clocks: &[ClockReading],
) -> Result<RecordBatch, ColumnarError> {
    let mut table = RecordTable::new(&GAP_COLUMNS);
    for (source, gap) in gaps {
        let (first, count, causes, times) = match gap {
            SourceGap::Recorded(gap) => {
                let causes = GapCauseNames(gap.causes).to_string();
                (gap.first, gap.count, causes, Some((gap.after_mono_ns, gap.before_mono_ns)))
            }
            SourceGap::Unreadable(first, count) => (*first, *count, UNREADABLE.to_owned(), None),
        };
        let before_ns = times.and_then(|(_, before_ns)| wall_ns(before_ns, clocks));
        table.push(vec![
            Cell::Text(source.clone()),
            Cell::Text(run.to_owned()),
            Cell::number(first),
            Cell::number(count),
            Cell::Text(causes),
            times.map_or(Cell::Absent, |(after_ns, _)| Cell::number(after_ns)),
            times.map_or(Cell::Absent, |(_, before_ns)| Cell::number(before_ns)),
            before_ns.map_or(Cell::Absent, Cell::Time),
        ]);
    }
    table.take()
}

/// Returns the table of marks.
pub(crate) fn mark_table(markers: &[Marker], run: &str) -> Result<RecordBatch, ColumnarError> {
    let mut table = RecordTable::new(&MARK_COLUMNS);
    for marker in markers {
        table.push(vec![
            Cell::Time(marker.wall_ns),
            Cell::Number(marker.wall_ns),
            Cell::number(marker.mono_ns),
            Cell::Text(run.to_owned()),
            Cell::Text(marker.origin_name().to_owned()),
            Cell::Text(marker.text.clone()),
        ]);
    }
    table.take()
}

/// Returns the table of the sources of a manifest.
pub(crate) fn source_rows(manifest: &Manifest) -> Result<RecordBatch, ColumnarError> {
    let mut table = RecordTable::new(&SOURCE_COLUMNS);
    let labels = to_visible_json(&manifest.host.labels).unwrap_or_default();
    for source in &manifest.sources {
        let ManifestSource { source: name, period_ns, first_seq, next_seq, rows, .. } = source;
        let ManifestSource { recorded, lost, thinned, missed, unreadable, problem, .. } = source;
        let time = |wall_ns: Option<i64>| wall_ns.map_or(Cell::Absent, Cell::Time);
        let text = |text: &str| Cell::Text(text.to_owned());
        table.push(vec![
            text(name),
            text(&manifest.run),
            text(&manifest.host.name),
            text(&manifest.host.boot_id),
            text(&labels),
            Cell::number(*period_ns),
            Cell::number(*first_seq),
            Cell::number(*next_seq),
            Cell::number(*rows),
            Cell::number(*recorded),
            Cell::number(*lost),
            Cell::number(*thinned),
            Cell::number(*missed),
            Cell::number(*unreadable),
            time(source.first_wall_ns),
            time(source.last_wall_ns),
            text(problem),
        ]);
    }
    table.take()
}

/// Returns the wall time that corresponds to a monotonic time. Uses the last reading of the clocks
/// at or before that time. If there is no such reading, uses the first reading. Returns `None` for
/// time 0, which means no time.
fn wall_ns(mono_ns: u64, clocks: &[ClockReading]) -> Option<i64> {
    let last = clocks.iter().rev().find(|clocks| clocks.mono_ns <= mono_ns).or(clocks.first())?;
    (mono_ns > 0).then(|| last.wall_offset_ns().wrapping_add_unsigned(mono_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a time of day is computed from the clock reading that was valid at that time.
    #[test]
    fn times_follow_the_clocks() {
        let clocks = |mono_ns, wall_ns| ClockReading { mono_ns, boot_ns: mono_ns, wall_ns };
        let table = [clocks(10, 1010), clocks(20, 5020)];
        let found = [0, 5, 10, 19, 20, 30].map(|mono_ns| wall_ns(mono_ns, &table));
        assert_eq!(found, [None, Some(1005), Some(1010), Some(1019), Some(5020), Some(5030)]);
        assert_eq!(wall_ns(5, &[]), None);
    }
}
