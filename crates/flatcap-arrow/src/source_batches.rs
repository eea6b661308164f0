//! Converts samples of one source to batches with the types of the source's schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::filter::filter_record_batch;
use flatcap_format::consumer_names::DistinctNames;
use flatcap_format::replay::RecordedHosts;
use flatcap_query::{Recording, RunInfo, TableInfo};

use crate::columns::IntegerTypes;
use crate::error::BatchError;
use crate::large_values::LargeValues;
use crate::layout::{Descriptions, FileLayout, LayoutOptions, SEPARATOR, encoding_error};
use crate::sample_reader::{SampleBatch, SampleReader};
use crate::step_filter::StepFilter;

/// Converts samples of one source to batches that have the same columns.
#[derive(Debug)]
pub struct SourceBatches {
    layout: FileLayout,
    schema: SchemaRef,
    tables: Vec<usize>,
    step: Option<StepFilter>,
    run: String,
    /// The hosts, if there is a column with the host of each row.
    hosts: Option<RecordedHosts>,
    host: String,
}

impl SourceBatches {
    /// Creates a converter for one source, to which the given tables of a reader belong. With
    /// `step_ns`, the batches contain only the first sample of each step of this length, in
    /// nanoseconds. With `hosts`, there is a column with the host of each sample.
    ///
    /// # Errors
    /// Returns `Encode` if there is no table.
    pub fn new(
        tables: Vec<usize>,
        reader: &SampleReader,
        recording: &Recording,
        hosts: Option<RecordedHosts>,
        step_ns: Option<u64>,
    ) -> Result<Self, BatchError> {
        let infos: Vec<&TableInfo> = tables.iter().filter_map(|table| reader.table(*table)).collect();
        let options = LayoutOptions {
            integers: IntegerTypes::Exact,
            time_unit: TimeUnit::Nanosecond,
            is_exploded: false,
        };
        let layouts = FileLayout::of(&infos, options, &Descriptions::of(recording));
        let layout = layouts.into_iter().next().ok_or_else(|| BatchError::Encode("no columns".to_owned()))?;
        let about =
            [("flatcap.source", layout.source.as_str()), ("flatcap.version", env!("CARGO_PKG_VERSION"))];
        let about = about.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut fields = layout.schema.fields().to_vec();
        if hosts.is_some() {
            let mut names = DistinctNames::default();
            for field in &fields {
                names.take(field.name(), SEPARATOR);
            }
            let name = names.take("host", SEPARATOR);
            fields.push(Arc::new(Field::new(name, DataType::Utf8, false)));
        }
        let schema = Arc::new(Schema::new(fields).with_metadata(BTreeMap::from(about)));
        let step = step_ns.map(StepFilter::new);
        Ok(Self { layout, schema, tables, step, run: String::new(), hosts, host: String::new() })
    }

    /// Sets the run to which the following samples belong.
    pub fn begin_run(&mut self, run: &RunInfo) {
        self.run = format!("{:016x}", run.run_id);
        self.host = self.hosts.as_ref().map(|hosts| hosts.name_of(run.run_id).to_owned()).unwrap_or_default();
        if let Some(step) = &mut self.step {
            step.begin_run(&run.host.name, run.host.machine_id.as_deref());
        }
    }

    /// Returns the name of the source.
    pub fn source(&self) -> &str {
        &self.layout.source
    }

    /// Returns the columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Converts samples of the run to a batch. Moves the values out of `samples`.
    ///
    /// # Errors
    /// Returns `SeveralSources` if the samples belong to another source, and `OtherSchema` if they
    /// have another schema.
    pub fn batch(
        &mut self,
        samples: &mut SampleBatch,
        reader: &SampleReader,
    ) -> Result<RecordBatch, BatchError> {
        let tables = samples.table_numbers();
        if tables != self.tables {
            let source = tables.first().and_then(|table| reader.table(*table)).map(|table| &*table.source);
            let (source, own) = (source.unwrap_or_default().to_owned(), self.layout.source.clone());
            return Err(if source == own {
                BatchError::OtherSchema { source_name: source, run: self.run.clone() }
            } else {
                BatchError::SeveralSources { one: own, other: source }
            });
        }
        // The column has the type of the field in the schema, which can hold all values.
        let large = &mut LargeValues::default();
        let batch = self.layout.batch(samples, &self.run, (reader.elements(), large))?;
        let mut columns = batch.columns().to_vec();
        if self.hosts.is_some() {
            let hosts = std::iter::repeat_n(&self.host, batch.num_rows());
            columns.push(Arc::new(StringArray::from_iter_values(hosts)) as ArrayRef);
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(encoding_error)?;
        let Some(step) = &mut self.step else { return Ok(batch) };
        let selected = step.select(&self.layout.source, &samples.times().wall_ns);
        filter_record_batch(&batch, &BooleanArray::from(selected)).map_err(encoding_error)
    }
}
