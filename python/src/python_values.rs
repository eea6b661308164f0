//! Converts Arrow arrays to Python lists, for users without a library for data frames.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

const NS_PER_US: i64 = 1_000;

/// Converts Arrow values to Python values.
pub(crate) struct ValueConverter<'py> {
    py: Python<'py>,
    epoch: Bound<'py, PyAny>,
    timedelta: Bound<'py, PyAny>,
}

impl<'py> ValueConverter<'py> {
    pub(crate) fn new(py: Python<'py>) -> PyResult<Self> {
        let datetime = py.import("datetime")?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        let epoch = datetime.getattr("datetime")?.call_method1("fromtimestamp", (0, utc))?;
        Ok(Self { py, epoch, timedelta: datetime.getattr("timedelta")? })
    }

    /// Appends all values of an array.
    pub(crate) fn append(&self, array: &ArrayRef, list: &Bound<'py, PyList>) -> PyResult<()> {
        (0..array.len()).try_for_each(|row| list.append(self.value(array, row)?))
    }

    /// Returns a value, or None if the value is absent. Times become datetimes with microseconds.
    fn value(&self, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        if array.is_null(row) {
            return Ok(py.None().into_bound(py));
        }
        macro_rules! number {
            ($type:ty) => {
                array.as_primitive::<$type>().value(row).into_pyobject(py)?.into_any()
            };
        }
        Ok(match array.data_type() {
            DataType::UInt8 => number!(UInt8Type),
            DataType::UInt16 => number!(UInt16Type),
            DataType::UInt32 => number!(UInt32Type),
            DataType::UInt64 => number!(UInt64Type),
            DataType::Int8 => number!(Int8Type),
            DataType::Int16 => number!(Int16Type),
            DataType::Int32 => number!(Int32Type),
            DataType::Int64 => number!(Int64Type),
            DataType::Float32 => number!(Float32Type),
            DataType::Float64 => number!(Float64Type),
            DataType::Boolean => array.as_boolean().value(row).into_pyobject(py)?.to_owned().into_any(),
            DataType::Utf8 => array.as_string::<i32>().value(row).into_pyobject(py)?.into_any(),
            DataType::Timestamp(..) => {
                let ns = array.as_primitive::<TimestampNanosecondType>().value(row);
                let distance = self.timedelta.call1((0, 0, ns.div_euclid(NS_PER_US)))?;
                self.epoch.add(distance)?
            }
            DataType::List(_) => {
                let list = PyList::empty(py);
                self.append(&array.as_list::<i32>().value(row), &list)?;
                list.into_any()
            }
            DataType::Struct(fields) => {
                let (dict, columns) = (PyDict::new(py), array.as_struct().columns());
                for (field, column) in fields.iter().zip(columns) {
                    dict.set_item(field.name(), self.value(column, row)?)?;
                }
                dict.into_any()
            }
            // The library creates no other types.
            _ => py.None().into_bound(py),
        })
    }
}
