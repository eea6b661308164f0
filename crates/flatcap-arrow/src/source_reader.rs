//! Reads the samples of one source.

use std::collections::VecDeque;

use arrow_schema::SchemaRef;
use flatcap_format::replay::RecordedHosts;
use flatcap_query::{Query, QuerySummary, Recording};

use crate::batch_item::BatchItem;
use crate::error::BatchError;
use crate::sample_reader::{RecordedItem, SampleBatch, SampleReader};
use crate::source_batches::SourceBatches;

/// Reads the samples of one source. Each row is a sample, with the exact types of the source's
/// schema and the envelope of the sample. Lists are lists of structs.
#[derive(Debug)]
pub struct SourceReader {
    reader: SampleReader,
    batches: SourceBatches,
    /// The first items, which were read to determine the columns and have not been returned yet.
    held: VecDeque<FirstItem>,
}

#[derive(Debug)]
enum FirstItem {
    Samples(SampleBatch),
    Item(BatchItem),
}

impl SourceReader {
    /// Requests the samples of a source, and reads the first samples, because their schema
    /// determines the columns. `query` must select one source. With `step_ns`, only the first
    /// sample of each step of this length, in nanoseconds, is returned. If there are several
    /// `hosts`, there is a column for the host.
    ///
    /// # Errors
    /// Returns the errors of the query.
    pub fn open(
        recording: &Recording,
        query: &Query,
        hosts: RecordedHosts,
        step_ns: Option<u64>,
    ) -> Result<Self, BatchError> {
        let mut reader = SampleReader::new(recording.query(query)?);
        let (mut run, mut tables, mut held) = (None, Vec::new(), VecDeque::new());
        while let Some(item) = reader.next()? {
            match item {
                RecordedItem::Run(info) => {
                    run = Some(info);
                    if tables.is_empty() {
                        // A run without samples still determines the columns.
                        tables = (0..reader.tables().len()).collect();
                    }
                }
                RecordedItem::Samples(samples) => {
                    tables = samples.table_numbers();
                    held.push_back(FirstItem::Samples(samples));
                    break;
                }
                RecordedItem::Notice(notice) => held.push_back(FirstItem::Item(BatchItem::Notice(notice))),
                RecordedItem::Gap(..) | RecordedItem::Marker(_) => {}
            }
        }
        let hosts = Some(hosts).filter(|hosts| hosts.are_several() && query.filter.host.is_none());
        let mut batches = SourceBatches::new(tables, &reader, recording, hosts, step_ns)?;
        if let Some(run) = &run {
            batches.begin_run(run);
        }
        Ok(Self { reader, batches, held })
    }

    /// Returns the columns.
    pub fn schema(&self) -> &SchemaRef {
        self.batches.schema()
    }

    /// Returns a summary of the data read so far.
    pub fn summary(&self) -> QuerySummary {
        self.reader.summary()
    }

    /// Returns the next part, or `None` at the end.
    ///
    /// # Errors
    /// Returns the errors of the query. Also returns `OtherSchema` if the schema of the source
    /// changed.
    #[allow(clippy::should_implement_trait, reason = "an Iterator could not be asked for a summary between")]
    pub fn next(&mut self) -> Result<Option<BatchItem>, BatchError> {
        match self.held.pop_front() {
            Some(FirstItem::Item(item)) => return Ok(Some(item)),
            Some(FirstItem::Samples(samples)) => return self.batch(samples).map(Some),
            None => {}
        }
        while let Some(item) = self.reader.next()? {
            match item {
                RecordedItem::Run(run) => self.batches.begin_run(&run),
                RecordedItem::Samples(samples) => return self.batch(samples).map(Some),
                RecordedItem::Notice(notice) => return Ok(Some(BatchItem::Notice(notice))),
                RecordedItem::Gap(..) | RecordedItem::Marker(_) => {}
            }
        }
        Ok(None)
    }

    fn batch(&mut self, mut samples: SampleBatch) -> Result<BatchItem, BatchError> {
        self.batches.batch(&mut samples, &self.reader).map(BatchItem::Batch)
    }
}
