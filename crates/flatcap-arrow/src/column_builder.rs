//! Builds a column from values that come row by row.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BooleanBuilder, Float32Builder, Float64Builder, Int64Builder, StringBuilder, UInt64Builder,
};
use arrow_schema::DataType;
use flatcap_query::HeldValue;

/// The values of one column that have been added so far.
#[derive(Debug)]
pub(crate) enum ColumnBuilder {
    Unsigned(UInt64Builder),
    Signed(Int64Builder),
    Float32(Float32Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringBuilder),
}

impl ColumnBuilder {
    /// Creates an empty column. Its type must be a type that a column of selected fields can have.
    pub(crate) fn new(data_type: &DataType) -> Self {
        match data_type {
            DataType::UInt64 => Self::Unsigned(UInt64Builder::new()),
            DataType::Int64 => Self::Signed(Int64Builder::new()),
            DataType::Float32 => Self::Float32(Float32Builder::new()),
            DataType::Boolean => Self::Bool(BooleanBuilder::new()),
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            _ => Self::Float(Float64Builder::new()),
        }
    }

    /// Appends a value. Returns false if the value has another type than the column. A column of
    /// 64-bit floats, such as an aggregate or a rate, accepts every number.
    #[allow(clippy::cast_precision_loss, reason = "documented: an aggregate")]
    pub(crate) fn push(&mut self, value: &HeldValue) -> bool {
        match (&mut *self, value) {
            (_, HeldValue::Absent) => self.push_null(),
            (Self::Unsigned(values), HeldValue::Unsigned(number)) => values.append_value(*number),
            (Self::Signed(values), HeldValue::Signed(number)) => values.append_value(*number),
            (Self::Float32(values), HeldValue::Float32(number)) => values.append_value(*number),
            (Self::Float(values), HeldValue::Float(number)) => values.append_value(*number),
            (Self::Float(values), HeldValue::Float32(number)) => values.append_value((*number).into()),
            (Self::Float(values), HeldValue::Unsigned(number)) => values.append_value(*number as f64),
            (Self::Float(values), HeldValue::Signed(number)) => values.append_value(*number as f64),
            (Self::Float(values), HeldValue::Bool(value)) => values.append_value(u8::from(*value).into()),
            (Self::Bool(values), HeldValue::Bool(value)) => values.append_value(*value),
            (Self::Text(values), HeldValue::Text(text)) => values.append_value(text),
            _ => return false,
        }
        true
    }

    /// Appends a row without a value.
    pub(crate) fn push_null(&mut self) {
        match self {
            Self::Unsigned(values) => values.append_null(),
            Self::Signed(values) => values.append_null(),
            Self::Float32(values) => values.append_null(),
            Self::Float(values) => values.append_null(),
            Self::Bool(values) => values.append_null(),
            Self::Text(values) => values.append_null(),
        }
    }

    /// Returns the values, and clears the builder.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Unsigned(values) => Arc::new(values.finish()),
            Self::Signed(values) => Arc::new(values.finish()),
            Self::Float32(values) => Arc::new(values.finish()),
            Self::Float(values) => Arc::new(values.finish()),
            Self::Bool(values) => Arc::new(values.finish()),
            Self::Text(values) => Arc::new(values.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, Float64Array, UInt64Array};

    use super::*;

    // Proves that values keep their type and absence, that a column of aggregates accepts every
    // number, and that a value of another type is rejected.
    #[test]
    fn values_become_columns() {
        let mut numbers = ColumnBuilder::new(&DataType::UInt64);
        assert!(numbers.push(&HeldValue::Unsigned(u64::MAX)) && numbers.push(&HeldValue::Absent));
        assert!(!numbers.push(&HeldValue::Float(1.0)) && !numbers.push(&HeldValue::Text("1".into())));
        let column = numbers.finish();
        let column: &UInt64Array = column.as_any().downcast_ref().unwrap();
        assert_eq!((column.value(0), column.is_null(1), column.len()), (u64::MAX, true, 2));
        let mut means = ColumnBuilder::new(&DataType::Float64);
        for value in [HeldValue::Float(0.5), HeldValue::Unsigned(3), HeldValue::Bool(true)] {
            assert!(means.push(&value));
        }
        let column = means.finish();
        let column: &Float64Array = column.as_any().downcast_ref().unwrap();
        assert_eq!(column.values().as_ref(), [0.5, 3.0, 1.0]);
        assert_eq!(means.finish().len(), 0);
    }
}
