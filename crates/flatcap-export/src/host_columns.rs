//! Adds columns that contain the host of each row.

use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use flatcap_format::consumer_names::DistinctNames;

use crate::error::{ColumnarError, encoding_error};

/// Key and value of a label of a host. The value is absent for a host without the label.
pub(crate) type HostLabel = (String, Option<String>);

/// Adds columns that contain the host of each row, and the labels of this host.
pub(crate) fn with_host(
    batch: &RecordBatch,
    (host, labels): (&str, &[HostLabel]),
) -> Result<RecordBatch, ColumnarError> {
    let schema = batch.schema();
    let mut names = DistinctNames::default();
    for field in schema.fields() {
        names.take(field.name(), '-');
    }
    let mut fields = schema.fields().to_vec();
    let mut columns = batch.columns().to_vec();
    let mut add = |name: &str, value: Option<&str>, is_nullable: bool| {
        fields.push(Arc::new(Field::new(names.take(name, '-'), DataType::Utf8, is_nullable)));
        columns.push(Arc::new(std::iter::repeat_n(value, batch.num_rows()).collect::<StringArray>()));
    };
    add("host", Some(host), false);
    for (key, value) in labels {
        add(key, value.as_deref(), true);
    }
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    RecordBatch::try_new(Arc::new(schema), columns).map_err(encoding_error)
}
