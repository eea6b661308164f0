//! Samples of one source as batches with the types of its schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{Schema, SchemaRef, TimeUnit};
use arrow_select::filter::filter_record_batch;
use flatcap_format::query::{Recording, RunInfo, TableInfo};

use crate::columns::IntegerTypes;
use crate::error::BatchError;
use crate::layout::{Descriptions, FileLayout, LayoutOptions, encoding_error};
use crate::sample_reader::{SampleBatch, SampleReader};
use crate::step_filter::StepFilter;

/// Turns samples of one source into batches of the same columns.
#[derive(Debug)]
pub struct SourceBatches {
    layout: FileLayout,
    tables: Vec<usize>,
    step: Option<StepFilter>,
    run: String,
}

impl SourceBatches {
    /// Creates the batches of a source with these tables of a reader. With `step_ns` only the first
    /// sample of each step of this length is in them.
    ///
    /// # Errors
    /// `Encode` without a table.
    pub fn new(
        tables: Vec<usize>,
        reader: &SampleReader,
        recording: &Recording,
        step_ns: Option<u64>,
    ) -> Result<Self, BatchError> {
        let infos: Vec<&TableInfo> = tables.iter().filter_map(|table| reader.table(*table)).collect();
        let options = LayoutOptions {
            integers: IntegerTypes::Exact,
            time_unit: TimeUnit::Nanosecond,
            is_exploded: false,
        };
        let layouts = FileLayout::of(&infos, options, &Descriptions::of(recording));
        let mut layout =
            layouts.into_iter().next().ok_or_else(|| BatchError::Encode("no columns".to_owned()))?;
        let about =
            [("flatcap.source", layout.source.as_str()), ("flatcap.version", env!("CARGO_PKG_VERSION"))];
        let about = about.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let schema = Schema::clone(&layout.schema).with_metadata(BTreeMap::from(about));
        layout.schema = Arc::new(schema);
        Ok(Self { layout, tables, step: step_ns.map(StepFilter::new), run: String::new() })
    }

    /// Notes that the following samples are of this run.
    pub fn begin_run(&mut self, run: &RunInfo) {
        self.run = format!("{:016x}", run.run_id);
        if let Some(step) = &mut self.step {
            step.begin_run(&run.host.name, run.host.machine_id.as_deref());
        }
    }

    /// Returns the source.
    pub fn source(&self) -> &str {
        &self.layout.source
    }

    /// Returns the columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.layout.schema
    }

    /// Returns samples of the run as a batch.
    ///
    /// # Errors
    /// `SeveralSources` for samples of another source, `OtherSchema` for those of another schema.
    pub fn batch(&mut self, samples: &SampleBatch, reader: &SampleReader) -> Result<RecordBatch, BatchError> {
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
        let batch = self.layout.batch(samples, &self.run, reader.elements())?;
        let Some(step) = &mut self.step else { return Ok(batch) };
        let selected = step.select(&self.layout.source, &samples.times().wall_ns);
        filter_record_batch(&batch, &BooleanArray::from(selected)).map_err(encoding_error)
    }
}
