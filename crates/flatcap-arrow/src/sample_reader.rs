//! Reads a recording as groups of columns. A group consists of all tables of one source for the
//! same samples.

use flatcap_format::replay::Notice;
use flatcap_format::segment::{Gap, Marker};
use flatcap_query::{
    BatchTimes, ColumnBatch, ElementNames, QueryError, QueryItem, QueryResults, QuerySummary, RunInfo,
    TableInfo,
};

/// Samples of one source in one run.
#[derive(Debug, Clone)]
pub struct SampleBatch {
    /// One batch per table of the source. All batches contain the same samples.
    pub tables: Vec<ColumnBatch>,
}

/// The next part of a recording.
#[derive(Debug)]
pub enum RecordedItem {
    /// A run begins. All following parts belong to this run, up to the next run.
    Run(RunInfo),
    /// Samples of one source.
    Samples(SampleBatch),
    /// The name of a source, and a gap that describes its lost samples.
    Gap(String, Gap),
    /// A note at a point in time.
    Marker(Marker),
    /// A problem with a file.
    Notice(Notice),
}

/// Reads a recording, and returns it in parts.
#[derive(Debug)]
pub struct SampleReader {
    results: QueryResults,
    /// The tables that have been read so far for the current samples. Further tables may follow.
    open: Option<SampleBatch>,
    /// The item that follows the open samples and is returned after them.
    held: Option<RecordedItem>,
}

impl SampleBatch {
    /// Returns the times of the samples.
    pub fn times(&self) -> &BatchTimes {
        static NONE: BatchTimes = BatchTimes {
            seq: Vec::new(),
            mono_ns: Vec::new(),
            wall_ns: Vec::new(),
            duration_ns: Vec::new(),
            flags: Vec::new(),
        };
        self.tables.first().map_or(&NONE, |batch| &batch.times)
    }

    /// Returns the numbers of the tables. These numbers identify the source and its schema.
    pub fn table_numbers(&self) -> Vec<usize> {
        self.tables.iter().map(|batch| batch.table).collect()
    }
}

impl SampleReader {
    /// Creates a reader of the results of a query. Sources with the same name share the same
    /// tables.
    pub fn new(results: QueryResults) -> Self {
        Self::by_source(results.by_name())
    }

    /// Creates a reader in which sources with the same name have separate tables if they exist at
    /// the same time.
    pub fn by_source(results: QueryResults) -> Self {
        Self { results, open: None, held: None }
    }

    /// Returns a table by its number.
    pub fn table(&self, number: usize) -> Option<&TableInfo> {
        self.results.tables().get(number)
    }

    /// Returns the tables that are known so far. A run may add tables.
    pub(crate) fn tables(&self) -> &[TableInfo] {
        self.results.tables()
    }

    /// Returns the elements that are known so far.
    pub fn elements(&self) -> &ElementNames {
        self.results.elements()
    }

    /// Returns a summary of the data read so far.
    pub fn summary(&self) -> QuerySummary {
        self.results.summary()
    }

    /// Returns the next part, or `None` at the end.
    ///
    /// # Errors
    /// Returns the same errors as [`QueryResults::next`].
    #[allow(clippy::should_implement_trait, reason = "an Iterator could not be asked for tables between")]
    pub fn next(&mut self) -> Result<Option<RecordedItem>, QueryError> {
        if let Some(item) = self.held.take() {
            return Ok(Some(item));
        }
        while let Some(item) = self.results.next()? {
            let item = match item {
                QueryItem::Batch(batch) => match self.add(batch) {
                    Some(complete) => return Ok(Some(RecordedItem::Samples(complete))),
                    None => continue,
                },
                QueryItem::Complete(_) => continue,
                QueryItem::Run(run) => RecordedItem::Run(run),
                QueryItem::Gap(source, gap) => RecordedItem::Gap(source, gap),
                QueryItem::Marker(marker) => RecordedItem::Marker(marker),
                QueryItem::Notice(notice) => RecordedItem::Notice(notice),
            };
            return Ok(Some(match self.open.take() {
                None => item,
                Some(complete) => {
                    self.held = Some(item);
                    RecordedItem::Samples(complete)
                }
            }));
        }
        Ok(self.open.take().map(RecordedItem::Samples))
    }

    /// Adds a table to the open samples. If the table belongs to other samples, the open samples
    /// are complete, because a query returns all tables of the same samples in succession. In this
    /// case, returns the open samples.
    fn add(&mut self, batch: ColumnBatch) -> Option<SampleBatch> {
        let source = |number: usize| self.results.tables().get(number).map(|table| &table.source);
        if let Some(open) = &mut self.open
            && open.tables.first().is_some_and(|first| {
                source(first.table) == source(batch.table)
                    && first.source == batch.source
                    && first.times == batch.times
            })
            && open.tables.iter().all(|known| known.table != batch.table)
        {
            open.tables.push(batch);
            return None;
        }
        self.open.replace(SampleBatch { tables: vec![batch] })
    }
}
