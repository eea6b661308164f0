//! Chooses the encodings of the columns of a Parquet file.

use std::collections::BTreeMap;
use std::io;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Fields};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

/// Maximum number of rows of a row group. A reader either skips a row group or reads it completely.
pub const GROUP_ROWS: usize = 128 << 10;
/// Maximum number of rows of a row group in files that are read from a local disk. Small groups let
/// a reader skip more.
const LOCAL_GROUP_ROWS: usize = 4 << 10;
/// Compression level. Level 3 takes the same time as level 1 and makes files a tenth smaller.
const ZSTD_LEVEL: i32 = 3;
/// Number of rows on which the encodings are tried.
const TRIED_ROWS: usize = 1024;

/// Options of Parquet files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct ParquetOptions {
    /// Unsigned 64-bit integers as UINT64 instead of INT64.
    #[arg(long = "unsigned")]
    pub is_unsigned: bool,
    /// The elements of each list become rows of a separate file.
    #[arg(long = "explode")]
    pub is_exploded: bool,
    /// Small row groups, for reading from a local disk.
    #[arg(long = "local")]
    pub is_local: bool,
}

/// Returns the encodings of the columns for a file that begins with these rows.
///
/// Counters outside of lists are best stored as differences, and floats byte by byte. In a list,
/// successive values belong to different elements. Their differences are therefore large, and the
/// codec compresses the plain values better. The sizes depend on the values, so both encodings are
/// tried with the first rows. Numeric columns have no dictionaries, because their dictionaries are
/// not worth the memory. Strings have dictionaries, because strings repeat.
///
/// # Errors
/// Fails if the rows cannot be encoded.
pub(crate) fn parquet_properties(
    first: &RecordBatch,
    options: ParquetOptions,
) -> Result<WriterProperties, ParquetError> {
    let first = first.slice(0, first.num_rows().min(TRIED_ROWS));
    let schema = first.schema();
    let as_is = column_sizes(&first, base_properties(options).build())?;
    let transformed = leaves(schema.fields()).fold(base_properties(options), transform);
    let transformed = column_sizes(&first, transformed.build())?;
    let is_worth_it = |column: &(ColumnPath, &DataType)| {
        let size = |sizes: &BTreeMap<String, i64>| sizes.get(&column.0.string()).copied();
        size(&transformed) <= size(&as_is)
    };
    Ok(leaves(schema.fields()).filter(is_worth_it).fold(base_properties(options), transform).build())
}

/// Returns the maximum number of rows of a row group.
pub(crate) fn group_rows(options: ParquetOptions) -> usize {
    if options.is_local { LOCAL_GROUP_ROWS } else { GROUP_ROWS }
}

/// Returns the properties that all files have.
fn base_properties(options: ParquetOptions) -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_created_by(concat!("flatcap-export ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).unwrap_or_default()))
        .set_dictionary_enabled(false)
        // A column of a row group usually has one page, so an index of pages would repeat the
        // statistics of the column.
        .set_data_page_row_count_limit(GROUP_ROWS)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(group_rows(options)))
}

/// Returns the compressed size of each column.
fn column_sizes(
    rows: &RecordBatch,
    properties: WriterProperties,
) -> Result<BTreeMap<String, i64>, ParquetError> {
    let mut writer = ArrowWriter::try_new(io::sink(), rows.schema(), Some(properties))?;
    writer.write(rows)?;
    let file = writer.close()?;
    let columns = file.row_groups().iter().flat_map(RowGroupMetaData::columns);
    Ok(columns.map(|column| (column.column_path().string(), column.compressed_size())).collect())
}

/// Sets the encoding that suits the type of a column.
fn transform(
    builder: WriterPropertiesBuilder,
    (path, data_type): (ColumnPath, &DataType),
) -> WriterPropertiesBuilder {
    match data_type {
        DataType::Utf8 => builder.set_column_dictionary_enabled(path, true),
        DataType::Float32 | DataType::Float64 => {
            builder.set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT)
        }
        DataType::Boolean => builder,
        _ => builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
    }
}

/// Returns all columns below some fields, with their types.
fn leaves(fields: &Fields) -> impl Iterator<Item = (ColumnPath, &DataType)> {
    let mut found = Vec::new();
    fields.iter().for_each(|field| add_leaves(field, &[], &mut found));
    found.into_iter()
}

fn add_leaves<'f>(field: &'f Field, outer: &[String], found: &mut Vec<(ColumnPath, &'f DataType)>) {
    let mut path = [outer, &[field.name().clone()]].concat();
    match field.data_type() {
        DataType::Struct(fields) => fields.iter().for_each(|field| add_leaves(field, &path, found)),
        DataType::List(element) => {
            path.push("list".to_owned());
            add_leaves(element, &path, found);
        }
        data_type => found.push((ColumnPath::new(path), data_type)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int64Type;
    use arrow_array::{Array, Int64Array, ListArray};
    use arrow_schema::Schema;

    use super::*;

    // Proves that a counter is stored as differences, and that differences are the default without
    // rows. Also proves that a counter in a list of two alternating elements with very different
    // values is stored plain.
    #[test]
    fn the_smaller_encoding_is_chosen() {
        const ROWS: i64 = 500;
        let counter = Int64Array::from_iter_values((0..ROWS).map(|row| 1_700_000_000 + row * row));
        let pair = || Some([Some(0x0123_4567_89ab_cdef), Some(-7)]);
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>((0..ROWS).map(|_| pair()));
        let schema = Arc::new(Schema::new(vec![
            Field::new("counter", DataType::Int64, false),
            Field::new("elements", list.data_type().clone(), true),
        ]));
        let rows =
            RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(counter), Arc::new(list)]).unwrap();
        let encodings = |rows: &RecordBatch| {
            let properties = parquet_properties(rows, ParquetOptions::default()).unwrap();
            let paths = [vec!["counter"], vec!["elements", "list", "item"]];
            paths.map(|path| {
                let path: Vec<String> = path.into_iter().map(str::to_owned).collect();
                properties.encoding(&ColumnPath::new(path))
            })
        };
        assert_eq!(encodings(&rows), [Some(Encoding::DELTA_BINARY_PACKED), None]);
        let none = RecordBatch::new_empty(schema);
        assert_eq!(encodings(&none), [Some(Encoding::DELTA_BINARY_PACKED); 2]);
    }
}
