//! Returns the rows of a recording in memory, for programs that do not store them in files.

use std::collections::HashMap;
use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_schema::{SchemaRef, TimeUnit};
use flatcap_format::replay::{Notice, ReplayFilter};
use flatcap_format::segment::{Gap, Marker};
use flatcap_query::{BatchTimes, Query, Recording, TableInfo};

use crate::columns::IntegerTypes;
use crate::error::BatchError;
use crate::large_values::LargeValues;
use crate::layout::{Descriptions, FileLayout, LayoutOptions};
use crate::sample_reader::{RecordedItem, SampleReader};

/// Reads samples of any number of sources as rows. The rows are the same as in the Parquet files
/// that `flatcap export` writes without options.
#[derive(Debug)]
pub struct RowBatches {
    reader: SampleReader,
    descriptions: Descriptions,
    layouts: Vec<FileLayout>,
    /// The index of each layout in `layouts`. The key is the list of the tables that belong to one
    /// source and schema.
    by_tables: HashMap<Vec<usize>, usize>,
    run_name: String,
    large: LargeValues,
}

/// The next part of a recording. Rows of one source are returned in the order of time. Rows of
/// different sources may overlap in time.
#[derive(Debug)]
pub enum RowBatchItem {
    /// Rows of one source.
    Rows {
        /// Index of the layout, for [`RowBatches::schema`]. There is one layout per source and
        /// schema.
        layout: usize,
        /// The rows. Each row is a sample.
        batch: RecordBatch,
        /// The times of the samples.
        times: BatchTimes,
    },
    /// The name of a source, and a gap that describes its lost samples.
    Gap(String, Gap),
    /// A note at a point in time.
    Marker(Marker),
    /// A problem with a file.
    Notice(Notice),
}

impl RowBatches {
    /// Opens the segments at `paths`. `filter` selects the sources and the times to read.
    ///
    /// # Errors
    /// Returns `Query` if a path is missing or unreadable.
    pub fn open(paths: &[PathBuf], filter: ReplayFilter) -> Result<Self, BatchError> {
        let recording = Recording::open(paths)?;
        let query = Query { filter, ..Query::default() };
        Ok(Self {
            reader: SampleReader::new(recording.query(&query)?),
            descriptions: Descriptions::of(&recording),
            layouts: Vec::new(),
            by_tables: HashMap::new(),
            run_name: String::new(),
            large: LargeValues::default(),
        })
    }

    /// Returns the next part, or `None` at the end.
    ///
    /// # Errors
    /// Returns `Query` if a file cannot be read.
    #[allow(clippy::should_implement_trait, reason = "an Iterator could not be asked for schemas between")]
    pub fn next(&mut self) -> Result<Option<RowBatchItem>, BatchError> {
        while let Some(item) = self.reader.next()? {
            return Ok(Some(match item {
                RecordedItem::Run(run) => {
                    self.run_name = format!("{:016x}", run.run_id);
                    continue;
                }
                RecordedItem::Samples(mut samples) => {
                    let layout = self.layout_of(samples.table_numbers());
                    let Some(columns) = self.layouts.get(layout) else { continue };
                    let of = (self.reader.elements(), &mut self.large);
                    let batch = columns.batch(&mut samples, &self.run_name, of)?;
                    let times = samples.tables.into_iter().next().map(|table| table.times);
                    RowBatchItem::Rows { layout, batch, times: times.unwrap_or_default() }
                }
                RecordedItem::Gap(source, gap) => RowBatchItem::Gap(source, gap),
                RecordedItem::Marker(marker) => RowBatchItem::Marker(marker),
                RecordedItem::Notice(notice) => RowBatchItem::Notice(notice),
            }));
        }
        Ok(None)
    }

    /// Returns the source and the columns of a layout.
    pub fn schema(&self, layout: usize) -> Option<(&str, &SchemaRef)> {
        self.layouts.get(layout).map(|layout| (layout.source.as_str(), &layout.schema))
    }

    /// Returns the values that were left out so far, because INT64 cannot hold them.
    pub fn large_values(&self) -> &LargeValues {
        &self.large
    }

    /// Returns the index of the layout for samples with these tables. Adds the layout if it is new.
    fn layout_of(&mut self, tables: Vec<usize>) -> usize {
        if let Some(known) = self.by_tables.get(&tables) {
            return *known;
        }
        let infos: Vec<&TableInfo> = tables.iter().filter_map(|table| self.reader.table(*table)).collect();
        let options = LayoutOptions {
            integers: IntegerTypes::Signed,
            time_unit: TimeUnit::Microsecond,
            is_exploded: false,
        };
        let number = self.layouts.len();
        self.layouts.extend(FileLayout::of(&infos, options, &self.descriptions));
        self.by_tables.insert(tables, number);
        number
    }
}
