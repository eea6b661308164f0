//! Converts the columns of a query to Arrow arrays.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array,
    StringArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use flatcap_format::schema::ColumnType;
use flatcap_query::{ColumnInfo, ColumnValues, TextColumn, ValidRows, ValueColumn};

/// The Arrow types of integer columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerTypes {
    /// INT64, which is the only integer type that every reader of Parquet supports. UINT64 for
    /// fields in which all 64 bits are significant.
    Signed,
    /// The same types as `Signed`, except that `ulong` columns have the type UINT64.
    Unsigned,
    /// The integer types of the schema.
    Exact,
}

/// Values that the type of their column cannot hold. The cells of these values become null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge {
    /// The row of the first value that the type of the column cannot hold, followed by this value.
    pub(crate) row: usize,
    pub(crate) value: u64,
    /// Number of values that the type of the column cannot hold.
    pub(crate) count: u64,
}

/// Returns the Arrow type of a column.
pub(crate) fn data_type(info: &ColumnInfo, integers: IntegerTypes, uses_all_bits: bool) -> DataType {
    match info.column_type {
        ColumnType::Bool => DataType::Boolean,
        ColumnType::Float32 => DataType::Float32,
        ColumnType::Float => DataType::Float64,
        ColumnType::Text => DataType::Utf8,
        ColumnType::Unsigned if uses_all_bits => DataType::UInt64,
        ColumnType::Unsigned | ColumnType::Signed => integer_type(info, integers),
    }
}

fn integer_type(info: &ColumnInfo, integers: IntegerTypes) -> DataType {
    // The type of a list is spelled `[ulong]` or `[ulong:16]`.
    let name = info.type_name.trim_matches(['[', ']']);
    let name = name.split(':').next().unwrap_or(name);
    match (integers, name) {
        (IntegerTypes::Unsigned | IntegerTypes::Exact, "ulong") => DataType::UInt64,
        (IntegerTypes::Signed | IntegerTypes::Unsigned, _) | (_, "long") => DataType::Int64,
        (_, "ubyte") => DataType::UInt8,
        (_, "byte") => DataType::Int8,
        (_, "ushort") => DataType::UInt16,
        (_, "short") => DataType::Int16,
        (_, "uint") => DataType::UInt32,
        (_, "int") => DataType::Int32,
        _ if info.column_type == ColumnType::Signed => DataType::Int64,
        _ => DataType::UInt64,
    }
}

/// Returns the values of a column as an Arrow array. `data_type` is the type that [`data_type`]
/// returned for the column. Values of 64 bits are moved and not copied. Also returns the values
/// that the type cannot hold.
pub(crate) fn array(column: ValueColumn, data_type: &DataType) -> (ArrayRef, Option<TooLarge>) {
    let ValueColumn { values, valid } = column;
    let nulls = nulls(&valid, rows_of(&values));
    let array: ArrayRef = match values {
        ColumnValues::Unsigned(values) => return unsigned(values, data_type, nulls, &valid),
        ColumnValues::Signed(values) => signed(values, data_type, nulls),
        ColumnValues::Float32(values) => Arc::new(Float32Array::new(values.into(), nulls)),
        ColumnValues::Float(values) => Arc::new(Float64Array::new(values.into(), nulls)),
        ColumnValues::Bool(values) => {
            Arc::new(BooleanArray::new(BooleanBuffer::from(values.as_slice()), nulls))
        }
        ColumnValues::Text(texts) => Arc::new(text_array(&texts, &valid)),
    };
    (array, None)
}

fn rows_of(values: &ColumnValues) -> usize {
    match values {
        ColumnValues::Unsigned(values) => values.len(),
        ColumnValues::Signed(values) => values.len(),
        ColumnValues::Float32(values) => values.len(),
        ColumnValues::Float(values) => values.len(),
        ColumnValues::Bool(values) => values.len(),
        ColumnValues::Text(texts) => texts.codes().len(),
    }
}

fn nulls(valid: &ValidRows, rows: usize) -> Option<NullBuffer> {
    if valid.are_all() {
        return None;
    }
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(rows, |row| valid.has(row)));
    Some(nulls).filter(|nulls| nulls.null_count() > 0)
}

fn text_array(texts: &TextColumn, valid: &ValidRows) -> StringArray {
    let rows = texts.codes().len();
    (0..rows).map(|row| texts.get(row).filter(|_| valid.has(row))).collect()
}

fn unsigned(
    mut values: Vec<u64>,
    data_type: &DataType,
    mut nulls: Option<NullBuffer>,
    valid: &ValidRows,
) -> (ArrayRef, Option<TooLarge>) {
    let limit = match data_type {
        DataType::UInt64 => u64::MAX,
        DataType::UInt32 => u32::MAX.into(),
        DataType::UInt16 => u16::MAX.into(),
        DataType::UInt8 => u8::MAX.into(),
        _ => i64::MAX.cast_unsigned(),
    };
    // The set bits of a limit are its lowest bits, so a value above the limit has a higher bit set.
    // Rows without a value contain 0.
    let mut too_large = None;
    if values.iter().fold(0, |bits, value| bits | value) > limit {
        let large = |(row, value): (usize, &u64)| (*value > limit).then_some((row, *value));
        let mut rows = values.iter().enumerate().filter_map(large).filter(|(row, _)| valid.has(*row));
        too_large = rows.next().map(|(row, value)| TooLarge { row, value, count: 1 + rows.count() as u64 });
        let fits = |row: usize| valid.has(row) && values.get(row).is_some_and(|value| *value <= limit);
        nulls = Some(NullBuffer::new(BooleanBuffer::collect_bool(values.len(), fits)));
        for value in &mut values {
            if *value > limit {
                *value = 0;
            }
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "compared with the limit of the type")]
    let array: ArrayRef = match data_type {
        DataType::UInt64 => Arc::new(UInt64Array::new(values.into(), nulls)),
        DataType::UInt32 => {
            Arc::new(UInt32Array::new(values.iter().map(|value| *value as u32).collect(), nulls))
        }
        DataType::UInt16 => {
            Arc::new(UInt16Array::new(values.iter().map(|value| *value as u16).collect(), nulls))
        }
        DataType::UInt8 => {
            Arc::new(UInt8Array::new(values.iter().map(|value| *value as u8).collect(), nulls))
        }
        _ => Arc::new(Int64Array::new(ScalarBuffer::from(Buffer::from_vec(values)), nulls)),
    };
    (array, too_large)
}

fn signed(values: Vec<i64>, data_type: &DataType, nulls: Option<NullBuffer>) -> ArrayRef {
    #[expect(clippy::cast_possible_truncation, reason = "the schema's own type held the value")]
    match data_type {
        DataType::Int32 => {
            Arc::new(Int32Array::new(values.iter().map(|value| *value as i32).collect(), nulls))
        }
        DataType::Int16 => {
            Arc::new(Int16Array::new(values.iter().map(|value| *value as i16).collect(), nulls))
        }
        DataType::Int8 => Arc::new(Int8Array::new(values.iter().map(|value| *value as i8).collect(), nulls)),
        _ => Arc::new(Int64Array::new(values.into(), nulls)),
    }
}
