//! Lays out Arrow columns for rows of selected fields.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, TimestampNanosecondArray};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use flatcap_format::consumer_names::DistinctNames;
use flatcap_format::schema::{ColumnType, MetricKind, visible_text};
use flatcap_query::{Aggregate, ColumnValues, CommonUnit, RowColumn, RowOptions};

use crate::layout::{Descriptions, SEPARATOR, ZONE, time_type};

/// The Arrow columns of selected fields, in the order of the query.
#[derive(Debug)]
pub(crate) struct FieldColumns {
    pub(crate) schema: SchemaRef,
    pub(crate) values: Vec<FieldColumn>,
    pub(crate) has_host: bool,
    pub(crate) has_element: bool,
}

/// An Arrow column that contains the values of a column of the reader.
#[derive(Debug)]
pub(crate) struct FieldColumn {
    pub(crate) name: String,
    /// The index of the column among the columns of the reader.
    pub(crate) place: usize,
    pub(crate) data_type: DataType,
}

impl FieldColumns {
    /// Lays out the columns of a reader that was opened with these options. If the rows belong to
    /// several hosts, there is a column for the host.
    pub(crate) fn new(
        columns: &[RowColumn],
        options: &RowOptions,
        descriptions: &Descriptions,
        has_host: bool,
    ) -> Self {
        let mut fields = vec![
            Field::new("time", time_type(TimeUnit::Nanosecond), false),
            Field::new("wall_ns", DataType::Int64, false).with_metadata(about(&[("unit", "ns")])),
        ];
        fields.extend(has_host.then(|| Field::new("host", DataType::Utf8, false)));
        fields.extend(options.is_long.then(|| Field::new("element", DataType::Utf8, false)));
        let mut names = DistinctNames::default();
        for field in &fields {
            names.take(field.name(), SEPARATOR);
        }
        let mut places: Vec<usize> = (0..columns.len()).collect();
        places.sort_by_key(|place| columns.get(*place).map(|column| column.order));
        let mut values = Vec::with_capacity(columns.len());
        for (place, column) in places.into_iter().filter_map(|place| Some((place, columns.get(place)?))) {
            let data_type = data_type(column, options);
            // Names of elements may contain any character, but the C interface of Arrow does not
            // accept a zero byte in a name.
            let name = names.take(&visible_text(&column.name), SEPARATOR);
            let unit = CommonUnit::own(column.unit.as_deref(), column.is_rate).name;
            let path = column.name.strip_prefix(&*column.source).and_then(|path| path.strip_prefix('.'));
            let about = about(&[
                ("source", &column.source),
                ("unit", &unit),
                ("meaning", column.kind.word().filter(|_| !column.is_rate).unwrap_or_default()),
                (
                    "description",
                    path.and_then(|path| descriptions.find(&column.source, path)).unwrap_or_default(),
                ),
            ]);
            fields.push(Field::new(&name, data_type.clone(), true).with_metadata(about));
            values.push(FieldColumn { name, place, data_type });
        }
        let schema = Arc::new(Schema::new(fields));
        Self { schema, values, has_host, has_element: options.is_long }
    }
}

impl FieldColumn {
    /// Returns whether the values have the type of the column.
    pub(crate) fn fits(&self, values: &ColumnValues) -> bool {
        let own = match values {
            ColumnValues::Unsigned(_) => DataType::UInt64,
            ColumnValues::Signed(_) => DataType::Int64,
            ColumnValues::Float32(_) => DataType::Float32,
            ColumnValues::Float(_) => DataType::Float64,
            ColumnValues::Bool(_) => DataType::Boolean,
            ColumnValues::Text(_) => DataType::Utf8,
        };
        own == self.data_type
    }
}

/// Returns two columns that contain the wall time at the start of each row, in nanoseconds. The
/// first column contains timestamps, and the second one contains the same values as integers. The
/// arrays share their memory.
pub(crate) fn time_arrays(wall_ns: Vec<i64>) -> [ArrayRef; 2] {
    let values = ScalarBuffer::from(wall_ns);
    let times = TimestampNanosecondArray::new(values.clone(), None).with_timezone(ZONE);
    [Arc::new(times), Arc::new(Int64Array::new(values, None))]
}

/// Returns the Arrow type of a column. Integers are 64 bits wide, because the width of a field may
/// differ between runs.
fn data_type(column: &RowColumn, options: &RowOptions) -> DataType {
    let own = match column.column_type {
        ColumnType::Unsigned => DataType::UInt64,
        ColumnType::Signed => DataType::Int64,
        ColumnType::Float32 => DataType::Float32,
        ColumnType::Float => DataType::Float64,
        ColumnType::Bool => DataType::Boolean,
        ColumnType::Text => DataType::Utf8,
    };
    let aggregate = options.steps.map(|steps| steps.aggregate);
    let is_text = column.column_type == ColumnType::Text;
    match (aggregate, column.kind) {
        (Some(Some(Aggregate::Count)), _) => DataType::UInt64,
        _ if column.is_rate => DataType::Float64,
        // The steps of a query follow the same rule: states and counters have their last value.
        (None | Some(Some(Aggregate::Last)), _)
        | (Some(None), MetricKind::Counter)
        | (Some(_), MetricKind::State | MetricKind::Text) => own,
        (Some(_), _) if is_text => own,
        // A sum of many 32-bit floats is a 64-bit float.
        (Some(Some(Aggregate::Sum)), _) if column.column_type == ColumnType::Float32 => DataType::Float64,
        (Some(Some(Aggregate::Min | Aggregate::Max | Aggregate::Quantile(_) | Aggregate::Sum)), _)
            if column.column_type != ColumnType::Bool =>
        {
            own
        }
        (Some(_), _) => DataType::Float64,
    }
}

fn about(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let known = entries.iter().filter(|(_, text)| !text.is_empty());
    known.map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use flatcap_query::Steps;

    use super::*;

    fn column(name: &str, column_type: ColumnType, kind: MetricKind, order: usize) -> RowColumn {
        RowColumn {
            name: name.to_owned(),
            source: "cpu".into(),
            column_type,
            unit: Some("jiffies".into()),
            kind,
            is_rate: false,
            order: (order, 0),
        }
    }

    // Proves that columns are in the order of the query, that a name that is already in use gets a
    // number, and that units are in the metadata.
    #[test]
    fn columns_are_in_order() {
        let all = [
            column("b", ColumnType::Text, MetricKind::Text, 1),
            column("time", ColumnType::Unsigned, MetricKind::Counter, 0),
        ];
        let laid = FieldColumns::new(&all, &RowOptions::default(), &Descriptions::default(), true);
        let names: Vec<&str> = laid.schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["time", "wall_ns", "host", "time-2", "b"]);
        assert_eq!(laid.values.iter().map(|column| column.place).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(laid.schema.field(3).metadata()["unit"], "jiffies");
        assert_eq!(laid.schema.field(3).metadata()["meaning"], "counter");
    }

    // Proves that means are floats, that counts are integers, and that all other aggregates have
    // the type of the values.
    #[test]
    fn types_follow_the_steps() {
        let of = |column_type, kind, aggregate: Option<&str>| {
            let aggregate = aggregate.map(|name| name.parse().unwrap());
            let steps = Some(Steps { step_ns: 1, aggregate });
            data_type(&column("a", column_type, kind, 0), &RowOptions { steps, ..RowOptions::default() })
        };
        assert_eq!(of(ColumnType::Unsigned, MetricKind::Counter, None), DataType::UInt64);
        assert_eq!(of(ColumnType::Unsigned, MetricKind::Gauge, None), DataType::Float64);
        assert_eq!(of(ColumnType::Unsigned, MetricKind::Gauge, Some("max")), DataType::UInt64);
        assert_eq!(of(ColumnType::Signed, MetricKind::Gauge, Some("sum")), DataType::Int64);
        assert_eq!(of(ColumnType::Float32, MetricKind::Gauge, Some("p50")), DataType::Float32);
        assert_eq!(of(ColumnType::Float32, MetricKind::Gauge, Some("sum")), DataType::Float64);
        assert_eq!(of(ColumnType::Unsigned, MetricKind::Gauge, Some("mean")), DataType::Float64);
        assert_eq!(of(ColumnType::Unsigned, MetricKind::Gauge, Some("last")), DataType::UInt64);
        assert_eq!(of(ColumnType::Text, MetricKind::Text, Some("count")), DataType::UInt64);
        assert_eq!(of(ColumnType::Text, MetricKind::Text, Some("max")), DataType::Utf8);
        assert_eq!(of(ColumnType::Bool, MetricKind::Gauge, Some("mean")), DataType::Float64);
        let rate = RowColumn { is_rate: true, ..column("a", ColumnType::Unsigned, MetricKind::Counter, 0) };
        assert_eq!(data_type(&rate, &RowOptions::default()), DataType::Float64);
    }
}
