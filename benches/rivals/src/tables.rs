//! Typed columns as a Parquet file in memory, with settings that an expert would choose for
//! samples.
//!
//! Integers and times are INT64 with DELTA_BINARY_PACKED, text is dictionary-encoded, floats as
//! requested; data pages of version 2, one row group for all rows, zstd:3, minimum and maximum per
//! chunk but not per page. Columns with absent values have definition levels.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

/// Rows of typed columns.
#[derive(Default)]
pub struct Table {
    pub columns: Vec<Column>,
}

/// One column: the present values, and the rows that have one.
pub struct Column {
    pub name: String,
    pub values: Values,
    /// One per row, 1 if it has a value; `None` if every row has one.
    pub levels: Option<Vec<i16>>,
}

/// Values of one type.
pub enum Values {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Floats32(Vec<f32>),
    Bools(Vec<bool>),
    Texts(Vec<ByteArray>),
}

impl Values {
    fn physical(&self) -> Physical {
        match self {
            Self::Integers(_) => Physical::INT64,
            Self::Floats(_) => Physical::DOUBLE,
            Self::Floats32(_) => Physical::FLOAT,
            Self::Bools(_) => Physical::BOOLEAN,
            Self::Texts(_) => Physical::BYTE_ARRAY,
        }
    }
}

/// The encoding of floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floats {
    Plain,
    /// All first bytes, then all second ones, and so on.
    ByteStreamSplit,
    /// Distinct values, as long as they are few.
    Dictionary,
}

/// Writes a file of a table.
pub fn write_parquet(table: &Table, floats: Floats) -> Vec<u8> {
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).expect("a level")))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(None);
    let mut fields = Vec::with_capacity(table.columns.len());
    for column in &table.columns {
        let path = ColumnPath::from(column.name.as_str());
        properties = match column.values {
            Values::Integers(_) => properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            Values::Floats(_) | Values::Floats32(_) => match floats {
                Floats::Plain => properties.set_column_encoding(path, Encoding::PLAIN),
                Floats::ByteStreamSplit => properties.set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT),
                Floats::Dictionary => properties.set_column_dictionary_enabled(path, true),
            },
            Values::Bools(_) => properties.set_column_encoding(path, Encoding::RLE),
            Values::Texts(_) => properties.set_column_dictionary_enabled(path, true),
        };
        let repetition = if column.levels.is_some() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = Type::primitive_type_builder(&column.name, column.values.physical());
        fields.push(Arc::new(field.with_repetition(repetition).build().expect("a type")));
    }
    let schema = Type::group_type_builder("frames").with_fields(fields).build().expect("names differ");
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build()))
        .expect("a vector takes everything");
    let mut group = writer.next_row_group().expect("a vector takes everything");
    for column in &table.columns {
        let mut to = group.next_column().expect("a column").expect("as many as fields");
        let levels = column.levels.as_deref();
        let written = match (to.untyped(), &column.values) {
            (ColumnWriter::Int64ColumnWriter(to), Values::Integers(values)) => {
                to.write_batch(values, levels, None)
            }
            (ColumnWriter::DoubleColumnWriter(to), Values::Floats(values)) => {
                to.write_batch(values, levels, None)
            }
            (ColumnWriter::FloatColumnWriter(to), Values::Floats32(values)) => {
                to.write_batch(values, levels, None)
            }
            (ColumnWriter::BoolColumnWriter(to), Values::Bools(values)) => {
                to.write_batch(values, levels, None)
            }
            (ColumnWriter::ByteArrayColumnWriter(to), Values::Texts(values)) => {
                to.write_batch(values, levels, None)
            }
            _ => panic!("a column has the type of its values"),
        };
        written.expect("a vector takes everything");
        to.close().expect("a vector takes everything");
    }
    group.close().expect("a vector takes everything");
    writer.into_inner().expect("a vector takes everything")
}

/// Reads all values of the named columns of a file, or of all columns if `names` is empty. Returns
/// the sum of their bits, so that nothing is optimized away.
pub fn read_parquet(file: &Bytes, names: &[&str]) -> u64 {
    let reader = SerializedFileReader::new(file.clone()).expect("a file of Parquet");
    let mut sum = 0_u64;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).expect("a group");
        let rows = group.metadata().num_rows() as usize;
        for column in 0..group.num_columns() {
            if names.is_empty() || names.contains(&group.metadata().column(column).column_descr().name()) {
                sum = sum.wrapping_add(read_column(group.get_column_reader(column).expect("a column"), rows));
            }
        }
    }
    sum
}

fn read_column(reader: ColumnReader, rows: usize) -> u64 {
    let mut levels = Vec::new();
    match reader {
        ColumnReader::Int64ColumnReader(mut reader) => {
            let mut values = Vec::with_capacity(rows);
            reader.read_records(rows, Some(&mut levels), None, &mut values).expect("intact");
            sum(&values, |value| value as u64)
        }
        ColumnReader::DoubleColumnReader(mut reader) => {
            let mut values = Vec::with_capacity(rows);
            reader.read_records(rows, Some(&mut levels), None, &mut values).expect("intact");
            sum(&values, f64::to_bits)
        }
        ColumnReader::FloatColumnReader(mut reader) => {
            let mut values = Vec::with_capacity(rows);
            reader.read_records(rows, Some(&mut levels), None, &mut values).expect("intact");
            sum(&values, |value| u64::from(value.to_bits()))
        }
        ColumnReader::BoolColumnReader(mut reader) => {
            let mut values = Vec::with_capacity(rows);
            reader.read_records(rows, Some(&mut levels), None, &mut values).expect("intact");
            sum(&values, u64::from)
        }
        ColumnReader::ByteArrayColumnReader(mut reader) => {
            let mut values = Vec::with_capacity(rows);
            reader.read_records(rows, Some(&mut levels), None, &mut values).expect("intact");
            values.iter().map(|value: &ByteArray| value.len() as u64).sum()
        }
        _ => panic!("no such columns are written"),
    }
}

fn sum<T: Copy>(values: &[T], bits: impl Fn(T) -> u64) -> u64 {
    values.iter().fold(0, |sum, value| sum.wrapping_add(bits(*value)))
}

impl Table {
    pub fn has_floats(&self) -> bool {
        self.columns.iter().any(|column| matches!(column.values, Values::Floats(_) | Values::Floats32(_)))
    }

    /// The expected result of [`read_parquet`].
    pub fn sum(&self) -> u64 {
        let of = |column: &Column| match &column.values {
            Values::Integers(values) => sum(values, |value| value as u64),
            Values::Floats(values) => sum(values, f64::to_bits),
            Values::Floats32(values) => sum(values, |value| u64::from(value.to_bits())),
            Values::Bools(values) => sum(values, u64::from),
            Values::Texts(values) => values.iter().map(|value| value.len() as u64).sum(),
        };
        self.columns.iter().map(of).fold(0, u64::wrapping_add)
    }
}
