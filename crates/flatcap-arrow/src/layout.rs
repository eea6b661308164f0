//! The columns of a file, and the conversion of samples to rows of the file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray, TimestampNanosecondArray, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use flatcap_format::consumer_names::DistinctNames;
use flatcap_query::{BatchTimes, ColumnBatch, ColumnInfo, ElementNames, FieldPath, Recording, TableInfo};

use crate::columns::{IntegerTypes, TooLarge, array, data_type};
use crate::error::BatchError;
use crate::large_values::LargeValues;
use crate::sample_reader::SampleBatch;

/// Time zone of all timestamps.
pub const ZONE: &str = "UTC";
/// Name of a list's element (struct or value) in Parquet, as the specification of Parquet requires.
const LIST_ELEMENT: &str = "element";
/// Name of the column with the names of elements, unless a field of the elements has this name.
const ELEMENT: &str = "element";
/// Name of the column with the value of an element, if elements are values and not structs.
const VALUE: &str = "value";
/// Character between the name of a column and the number that makes the name unique.
pub(crate) const SEPARATOR: char = '-';

/// Options for the conversion of values to columns.
#[derive(Debug, Clone, Copy)]
pub struct LayoutOptions {
    /// The Arrow types of integer columns.
    pub integers: IntegerTypes,
    /// The unit of times.
    pub time_unit: TimeUnit,
    /// Whether the elements of each list become the rows of a separate file.
    pub is_exploded: bool,
}

/// The columns of a file.
#[derive(Debug)]
pub struct FileLayout {
    /// The name of the source.
    pub source: String,
    /// The path of the list whose elements are the rows. `None` if each row is a sample.
    pub list: Option<String>,
    /// The columns with their types and metadata.
    pub schema: SchemaRef,
    columns: Vec<LayoutColumn>,
    options: LayoutOptions,
}

/// A column that follows the columns of the envelope. A table is identified by its position in a
/// [`SampleBatch`].
#[derive(Debug, Clone)]
enum LayoutColumn {
    /// The values of a field.
    Values { table: usize, column: usize, path: String, data_type: DataType },
    /// The names of the elements.
    Elements { table: usize },
    /// A list of structs.
    Structs { table: usize, fields: Fields, columns: Vec<LayoutColumn> },
    /// A list of values.
    List { table: usize, field: Arc<Field>, value: Box<LayoutColumn> },
}

/// Descriptions of fields from the schemas. The key is the source and a path such as
/// `devices[*].reads`.
#[derive(Debug, Default)]
pub struct Descriptions {
    texts: BTreeMap<(String, String), String>,
    /// The fields in which all 64 bits are significant.
    all_bits: BTreeSet<(String, String)>,
}

impl Descriptions {
    /// Returns the comments of all fields of a recording.
    pub fn of(recording: &Recording) -> Self {
        let mut all = Self::default();
        for source in recording.fields() {
            for field in source.fields {
                let key = (source.source.clone(), field.path);
                if field.uses_all_bits {
                    all.all_bits.insert(key.clone());
                }
                all.texts.entry(key).or_insert(field.meaning);
            }
        }
        all
    }

    pub(crate) fn find(&self, source: &str, path: &str) -> Option<&str> {
        self.texts.get(&key(source, path)).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Returns whether all 64 bits of the values of a field are significant.
    fn has_all_bits(&self, source: &str, path: &str) -> bool {
        self.all_bits.contains(&key(source, path))
    }
}

/// Returns the source and the path of a field. In the path, `[*]` replaces each selection of
/// elements.
fn key(source: &str, path: &str) -> (String, String) {
    let path = path
        .parse::<FieldPath>()
        .map_or_else(|_| path.to_owned(), |path| path.of_all_elements().as_str().to_owned());
    (source.to_owned(), path)
}

impl FileLayout {
    /// Returns the layout of the samples of a source. With `is_exploded`, also returns one layout
    /// for the elements of each list of the source.
    pub fn of(tables: &[&TableInfo], options: LayoutOptions, descriptions: &Descriptions) -> Vec<Self> {
        let source = tables.first().map(|table| table.source.to_string()).unwrap_or_default();
        let mut samples = SchemaBuilder::new(options, descriptions);
        let mut files = Vec::new();
        for (number, table) in tables.iter().enumerate() {
            match &table.list {
                None => samples.add_values(number, table),
                Some(_) if !options.is_exploded => samples.add_list(number, table),
                Some(list) => {
                    let mut elements = SchemaBuilder::new(options, descriptions);
                    elements.add_element_columns(number, table);
                    files.push(elements.build(source.clone(), Some(list_name(list))));
                }
            }
        }
        files.insert(0, samples.build(source, None));
        files
    }

    /// Converts samples to rows. Moves the values out of `samples`. A value that the type of its
    /// column cannot hold is left out, and added to `large`.
    ///
    /// # Errors
    /// Returns `TooLarge` if the number or the time of a sample does not fit its column.
    pub fn batch(
        &self,
        samples: &mut SampleBatch,
        run: &str,
        (names, large): (&ElementNames, &mut LargeValues),
    ) -> Result<RecordBatch, BatchError> {
        let times = samples.times();
        let row_samples: Vec<usize> = match (&self.list, self.element_table(samples)) {
            (Some(_), Some(batch)) => (0..batch.rows()).map(|row| batch.sample(row)).collect(),
            _ => (0..times.len()).collect(),
        };
        let mut arrays = envelope(times, &row_samples, run, self.options)
            .map_err(|place| self.too_large(times, place.row, ("seq or mono_ns", place.value)))?;
        for column in &self.columns {
            arrays.push(self.array(column, samples, (names, large))?);
        }
        RecordBatch::try_new(Arc::clone(&self.schema), arrays).map_err(encoding_error)
    }

    /// Returns, for each row, the position of its sample.
    pub fn row_samples(&self, samples: &SampleBatch) -> Vec<usize> {
        match self.element_table(samples) {
            Some(batch) if self.list.is_some() => (0..batch.rows()).map(|row| batch.sample(row)).collect(),
            _ => (0..samples.times().len()).collect(),
        }
    }

    /// Returns the table whose rows are the rows of the file.
    fn element_table<'b>(&self, samples: &'b SampleBatch) -> Option<&'b ColumnBatch> {
        match self.columns.first()? {
            LayoutColumn::Values { table, .. } | LayoutColumn::Elements { table } => {
                samples.tables.get(*table)
            }
            LayoutColumn::Structs { .. } | LayoutColumn::List { .. } => None,
        }
    }

    fn array(
        &self,
        column: &LayoutColumn,
        samples: &mut SampleBatch,
        (names, large): (&ElementNames, &mut LargeValues),
    ) -> Result<ArrayRef, BatchError> {
        let missing = || encoding_error(ArrowError::SchemaError("a table is missing".to_owned()));
        match column {
            LayoutColumn::Values { table, column, path, data_type } => {
                let batch = samples.tables.get_mut(*table).ok_or_else(missing)?;
                let values = std::mem::take(batch.columns.get_mut(*column).ok_or_else(missing)?);
                let (array, too_large) = array(values, data_type);
                if let Some(TooLarge { row, value, count }) = too_large {
                    let sample = batch.sample(row);
                    let element = batch.name(row).map(|name| format!(" of {}", names.label(name)));
                    let place = format!("{path}{}", element.unwrap_or_default());
                    let first = self.too_large(&batch.times, sample, (&place, value));
                    large.add((&self.source, path), count, &first.to_string());
                }
                Ok(array)
            }
            LayoutColumn::Elements { table } => {
                let batch = samples.tables.get(*table).ok_or_else(missing)?;
                let labels = (0..batch.rows()).map(|row| batch.name(row).map(|at| names.label(at)));
                Ok(Arc::new(labels.collect::<StringArray>()))
            }
            LayoutColumn::Structs { table, fields, columns } => {
                let arrays: Result<Vec<ArrayRef>, BatchError> =
                    columns.iter().map(|column| self.array(column, samples, (names, large))).collect();
                let structs = StructArray::try_new(fields.clone(), arrays?, None).map_err(encoding_error)?;
                let field = Arc::new(Field::new(LIST_ELEMENT, DataType::Struct(fields.clone()), false));
                let batch = samples.tables.get(*table).ok_or_else(missing)?;
                list_array(field, batch, Arc::new(structs))
            }
            LayoutColumn::List { table, field, value } => {
                let values = self.array(value, samples, (names, large))?;
                let batch = samples.tables.get(*table).ok_or_else(missing)?;
                list_array(Arc::clone(field), batch, values)
            }
        }
    }

    fn too_large(&self, times: &BatchTimes, sample: usize, (path, value): (&str, u64)) -> BatchError {
        BatchError::TooLarge {
            place: format!("{}.{path}", self.source),
            seq: times.seq.get(sample).copied().unwrap_or_default(),
            wall_ns: times.wall_ns.get(sample).copied().unwrap_or_default(),
            value,
            limit: i64::MAX,
        }
    }
}

/// Groups the rows of a list's table by their samples, and returns them as an array of lists.
fn list_array(field: Arc<Field>, batch: &ColumnBatch, values: ArrayRef) -> Result<ArrayRef, BatchError> {
    let mut lengths = vec![0_usize; batch.times.len()];
    for row in 0..batch.rows() {
        if let Some(length) = lengths.get_mut(batch.sample(row)) {
            *length += 1;
        }
    }
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(field, offsets, values, None).map_err(encoding_error)?))
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn encoding_error(error: ArrowError) -> BatchError {
    BatchError::Encode(error.to_string())
}

/// Builds the schema of a file.
struct SchemaBuilder<'d> {
    options: LayoutOptions,
    descriptions: &'d Descriptions,
    fields: Vec<Field>,
    columns: Vec<LayoutColumn>,
    names: DistinctNames,
}

impl<'d> SchemaBuilder<'d> {
    fn new(options: LayoutOptions, descriptions: &'d Descriptions) -> Self {
        let fields = envelope_fields(options);
        let mut names = DistinctNames::default();
        for field in &fields {
            names.take(field.name(), SEPARATOR);
        }
        Self { options, descriptions, fields, columns: Vec::new(), names }
    }

    /// Adds the fields of a table as columns.
    fn add_values(&mut self, number: usize, table: &TableInfo) {
        for (column, info) in table.columns.iter().enumerate() {
            let path = table.path(info);
            let name = self.names.take(&info.path, SEPARATOR);
            let (field, column) = self.values((number, column), table, (info, &name, &path));
            self.add(field, column);
        }
    }

    /// Adds a list as one column.
    fn add_list(&mut self, number: usize, table: &TableInfo) {
        let list = table.list.as_deref().unwrap_or_default();
        let name = self.names.take(&list_name(list), SEPARATOR);
        if let [only] = table.columns.as_slice()
            && only.path.is_empty()
            && !is_nested(list)
        {
            let path = table.path(only);
            let (field, value) = self.values((number, 0), table, (only, LIST_ELEMENT, &path));
            let field = Arc::new(field);
            let list = Field::new(&name, DataType::List(Arc::clone(&field)), false);
            self.add(
                list.with_metadata(field.metadata().clone()),
                LayoutColumn::List { table: number, field, value: Box::new(value) },
            );
            return;
        }
        let (fields, columns): (Vec<Field>, Vec<LayoutColumn>) =
            self.element_columns(number, table, &mut DistinctNames::default()).into_iter().unzip();
        let fields = Fields::from(fields);
        let element = Arc::new(Field::new(LIST_ELEMENT, DataType::Struct(fields.clone()), false));
        let field = Field::new(&name, DataType::List(element), false);
        self.add(field, LayoutColumn::Structs { table: number, fields, columns });
    }

    /// Adds the fields of a list's elements as columns.
    fn add_element_columns(&mut self, number: usize, table: &TableInfo) {
        let mut names = std::mem::take(&mut self.names);
        for (field, column) in self.element_columns(number, table, &mut names) {
            self.add(field, column);
        }
        self.names = names;
    }

    /// Returns the columns of a list's elements. If no field contains the name of an element, there
    /// is an additional column for the name. The elements of a list of values, and of a list inside
    /// another list, have this column.
    fn element_columns(
        &self,
        number: usize,
        table: &TableInfo,
        names: &mut DistinctNames,
    ) -> Vec<(Field, LayoutColumn)> {
        let list = table.list.as_deref().unwrap_or_default();
        let mut all = Vec::new();
        if is_nested(list) || table.columns.iter().any(|info| info.path.is_empty()) {
            let name = names.take(ELEMENT, SEPARATOR);
            all.push((Field::new(name, DataType::Utf8, true), LayoutColumn::Elements { table: number }));
        }
        for (column, info) in table.columns.iter().enumerate() {
            let name = names.take(if info.path.is_empty() { VALUE } else { &info.path }, SEPARATOR);
            all.push(self.values((number, column), table, (info, &name, &table.path(info))));
        }
        all
    }

    fn values(
        &self,
        (number, column): (usize, usize),
        table: &TableInfo,
        (info, name, path): (&ColumnInfo, &str, &str),
    ) -> (Field, LayoutColumn) {
        let uses_all_bits = self.descriptions.has_all_bits(&table.source, path);
        let data_type = data_type(info, self.options.integers, uses_all_bits);
        let about = [
            ("path", Some(format!("{}.{path}", table.source))),
            ("type", Some(info.type_name.to_string())),
            ("unit", info.unit.as_deref().map(str::to_owned)),
            ("meaning", info.kind.word().map(str::to_owned)),
            ("description", self.descriptions.find(&table.source, path).map(str::to_owned)),
        ];
        let about: BTreeMap<String, String> =
            about.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text?))).collect();
        let field = Field::new(name, data_type.clone(), true).with_metadata(about);
        (field, LayoutColumn::Values { table: number, column, path: path.to_owned(), data_type })
    }

    fn add(&mut self, field: Field, column: LayoutColumn) {
        self.fields.push(field);
        self.columns.push(column);
    }

    fn build(self, source: String, list: Option<String>) -> FileLayout {
        let schema = Arc::new(Schema::new(self.fields));
        FileLayout { source, list, schema, columns: self.columns, options: self.options }
    }
}

/// Returns whether a list is inside the elements of another list.
fn is_nested(list: &str) -> bool {
    list.matches('[').count() > 1
}

/// Returns the name of a list, such as `zones.free`, without the brackets that select all elements.
fn list_name(list: &str) -> String {
    list.replace("[*]", "")
}

/// Returns the Arrow type of timestamps.
pub fn time_type(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, Some(ZONE.into()))
}

fn envelope_fields(options: LayoutOptions) -> Vec<Field> {
    let exact = |exact: DataType, other: DataType| {
        if options.integers == IntegerTypes::Exact { exact } else { other }
    };
    let field = |name: &str, data_type: DataType, unit: Option<&str>, description: &str| {
        let unit = unit.map(|unit| ("unit".to_owned(), unit.to_owned()));
        let about = [("description".to_owned(), description.to_owned())].into_iter().chain(unit);
        Field::new(name, data_type, false).with_metadata(about.collect::<BTreeMap<_, _>>())
    };
    let number = || exact(DataType::UInt64, DataType::Int64);
    vec![
        field("time", time_type(options.time_unit), None, "Begin of the sample, UTC"),
        field("wall_ns", DataType::Int64, Some("ns"), "Begin of the sample since 1970, UTC"),
        field("mono_ns", number(), Some("ns"), "Begin of the sample by CLOCK_MONOTONIC"),
        field(
            "duration_ns",
            exact(DataType::UInt32, DataType::Int64),
            Some("ns"),
            "Time that the sample took",
        ),
        field("seq", number(), None, "Number of the sample in its run"),
        field("flags", exact(DataType::UInt16, DataType::Int32), None, "Bits of flatcap.frame.Flags"),
        field("run", DataType::Utf8, None, "Run of the recorder, as in the names of its segments"),
    ]
}

/// Returns the columns of the envelope for the rows of these samples.
fn envelope(
    times: &BatchTimes,
    rows: &[usize],
    run: &str,
    options: LayoutOptions,
) -> Result<Vec<ArrayRef>, TooLarge> {
    fn picked<T: Copy>(values: &[T], rows: &[usize]) -> Vec<T> {
        rows.iter().filter_map(|row| values.get(*row).copied()).collect()
    }
    let wall_ns = picked(&times.wall_ns, rows);
    let mono_ns = picked(&times.mono_ns, rows);
    let seq = picked(&times.seq, rows);
    let duration_ns = picked(&times.duration_ns, rows);
    let flags = picked(&times.flags, rows);
    let time: ArrayRef = if options.time_unit == TimeUnit::Nanosecond {
        Arc::new(TimestampNanosecondArray::from(wall_ns.clone()).with_timezone(ZONE))
    } else {
        let micros: Vec<i64> = wall_ns.iter().map(|ns| ns.div_euclid(1000)).collect();
        Arc::new(TimestampMicrosecondArray::from(micros).with_timezone(ZONE))
    };
    let runs: ArrayRef = Arc::new(StringArray::from_iter_values(std::iter::repeat_n(run, rows.len())));
    let wall: ArrayRef = Arc::new(Int64Array::from(wall_ns));
    if options.integers == IntegerTypes::Exact {
        return Ok(vec![
            time,
            wall,
            Arc::new(UInt64Array::from(mono_ns)),
            Arc::new(UInt32Array::from(duration_ns)),
            Arc::new(UInt64Array::from(seq)),
            Arc::new(UInt16Array::from(flags)),
            runs,
        ]);
    }
    let signed = |values: &[u64]| -> Result<ArrayRef, TooLarge> {
        let is_large = |value: &u64| *value > i64::MAX.cast_unsigned();
        if let Some(at) = values.iter().position(is_large) {
            let value = values.get(at).copied().unwrap_or_default();
            return Err(TooLarge { row: rows.get(at).copied().unwrap_or_default(), value, count: 1 });
        }
        Ok(Arc::new(Int64Array::from_iter_values(values.iter().map(|value| value.cast_signed()))))
    };
    Ok(vec![
        time,
        wall,
        signed(&mono_ns)?,
        Arc::new(Int64Array::from_iter_values(duration_ns.into_iter().map(i64::from))),
        signed(&seq)?,
        Arc::new(Int32Array::from_iter_values(flags.into_iter().map(i32::from))),
        runs,
    ])
}
