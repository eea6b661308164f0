//! The results of a query: batches of columns, and what happened between them.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use super::batch::ColumnBatch;
use super::collector::Collector;
use super::elements::ElementNames;
use super::error::QueryError;
use super::path::FieldPath;
use super::plan::{SourcePlan, TableInfo};
use super::resolve::{KnownSource, resolve};
use crate::host::HostName;
use crate::replay::{MergedReader, Notice, ReplayFilter, ReplayItem};
use crate::schema::CompiledSchema;
use crate::segment::{Gap, Marker, SegmentError, SegmentHeader, SourceInfo};

/// Values held before batches are returned: some 8 MiB.
const HELD_VALUES_MAX: usize = 1 << 20;
/// Samples held before batches are returned: with few columns, memory is in the times.
const HELD_SAMPLES_MAX: usize = 1 << 16;

/// A question: which fields, of which time.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The fields; empty for all.
    pub fields: Vec<FieldPath>,
    /// The sources and times; its `fields` are not used.
    pub filter: ReplayFilter,
}

/// Returns the answers to a query, in parts.
#[derive(Debug)]
pub struct QueryResults {
    reader: MergedReader,
    fields: Vec<FieldPath>,
    filter: ReplayFilter,
    tables: Vec<TableInfo>,
    names: ElementNames,
    lists: BTreeMap<String, u32>,
    run: RunInfo,
    sources: BTreeMap<u16, Collector>,
    held_samples: usize,
    held_values: usize,
    ready: VecDeque<QueryItem>,
    summary: QuerySummary,
}

/// A part of the answer. Batches of one table come in the order of time; those of several tables
/// overlap.
#[derive(Debug)]
pub enum QueryItem {
    /// A run begins; all parts up to the next are of it.
    Run(RunInfo),
    /// Values.
    Batch(ColumnBatch),
    /// Samples that were lost, with the source's name.
    Gap(String, Gap),
    /// A note at a point in time.
    Marker(Marker),
    /// A problem with a file.
    Notice(Notice),
    /// All rows before this monotonic time, in nanoseconds, were returned.
    Complete(u64),
}

/// The run of the values that follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInfo {
    /// Its id.
    pub run_id: u64,
    /// The host that recorded it.
    pub host: HostName,
}

/// What a query has read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuerySummary {
    /// Samples whose values were returned.
    pub samples: u64,
    /// Samples that do not fit their schema.
    pub undecodable: u64,
    /// Sources whose schema is malformed.
    pub malformed_schemas: u64,
}

impl QueryResults {
    pub(super) fn open(paths: &[PathBuf], query: &Query) -> Result<Self, QueryError> {
        let filter = ReplayFilter { fields: Vec::new(), ..query.filter.clone() };
        let reader = MergedReader::open(paths, filter.clone())?;
        let host = HostName { name: String::new(), machine_id: None, boot_id: None, labels: Vec::new() };
        Ok(Self {
            reader,
            fields: query.fields.clone(),
            filter,
            tables: Vec::new(),
            names: ElementNames::default(),
            lists: BTreeMap::new(),
            run: RunInfo { run_id: 0, host },
            sources: BTreeMap::new(),
            held_samples: 0,
            held_values: 0,
            ready: VecDeque::new(),
            summary: QuerySummary::default(),
        })
    }

    /// Returns the tables of the batches so far. A run may add tables.
    pub fn tables(&self) -> &[TableInfo] {
        &self.tables
    }

    /// Returns the elements of the batches so far.
    pub fn elements(&self) -> &ElementNames {
        &self.names
    }

    /// Returns what was read so far.
    pub fn summary(&self) -> QuerySummary {
        self.summary
    }

    /// Returns the next part; none at the end.
    ///
    /// # Errors
    /// `Io`, and errors of the paths in a run whose sources differ from the others'.
    #[allow(clippy::should_implement_trait, reason = "an Iterator could not be asked for tables between")]
    pub fn next(&mut self) -> Result<Option<QueryItem>, QueryError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            if !self.advance()? {
                self.flush(None);
                return Ok(self.ready.pop_front());
            }
        }
    }

    /// Reads one item of the recording. Returns false at its end.
    fn advance(&mut self) -> Result<bool, QueryError> {
        let Some(item) = self.reader.next()? else { return Ok(false) };
        match item {
            ReplayItem::Header(header, _) => {
                let header = header.clone();
                self.begin_run(&header)?;
            }
            ReplayItem::Source(source, _) => {
                let source = source.clone();
                self.add_sources(std::slice::from_ref(&source))?;
            }
            ReplayItem::Sample(sample) => {
                let sample = &sample.telemetry;
                let Some(collector) = self.sources.get_mut(&sample.source) else { return Ok(true) };
                let before = collector.values();
                if collector.add(sample, &mut self.names).is_err() {
                    self.summary.undecodable += 1;
                    return Ok(true);
                }
                self.summary.samples += 1;
                self.held_samples += 1;
                self.held_values += collector.values() - before;
                let mono_ns = sample.mono_ns;
                if self.held_samples >= HELD_SAMPLES_MAX || self.held_values >= HELD_VALUES_MAX {
                    self.flush(Some(mono_ns));
                }
            }
            ReplayItem::Gap(gap, _) => {
                if let Some(collector) = self.sources.get(&gap.source) {
                    let name = collector.plan.tables.first().map(|table| table.source.to_string());
                    self.ready.extend(name.map(|name| QueryItem::Gap(name, gap)));
                }
            }
            ReplayItem::Marker(marker, _) => self.ready.push_back(QueryItem::Marker(marker)),
            ReplayItem::Notice(notice) => self.ready.push_back(QueryItem::Notice(notice)),
            ReplayItem::Other(..) => {}
        }
        Ok(true)
    }

    fn begin_run(&mut self, header: &SegmentHeader) -> Result<(), QueryError> {
        self.flush(Some(u64::MAX));
        self.sources.clear();
        self.run = RunInfo { run_id: header.run_id, host: header.host.clone() };
        self.ready.push_back(QueryItem::Run(self.run.clone()));
        self.add_sources(&header.sources)
    }

    /// Plans the wanted sources of these. A path that none of them has was found in another run.
    fn add_sources(&mut self, sources: &[SourceInfo]) -> Result<(), QueryError> {
        let is_wanted = |source: &&SourceInfo| {
            self.filter.sources.is_empty() || self.filter.sources.contains(&source.name)
        };
        let mut compiled = Vec::new();
        for source in sources.iter().filter(is_wanted).filter(|source| !source.is_opaque()) {
            match CompiledSchema::compile(&source.schema, &source.root) {
                Ok(schema) => compiled.push((source, schema)),
                Err(_) => self.summary.malformed_schemas += 1,
            }
        }
        let known: Vec<KnownSource<'_>> =
            compiled.iter().map(|(source, schema)| KnownSource { name: &source.name, schema }).collect();
        let mut selected = vec![Vec::new(); known.len()];
        if self.fields.is_empty() {
            selected = resolve(&known, &[])?;
        }
        for (order, path) in self.fields.iter().enumerate() {
            let found = match resolve(&known, std::slice::from_ref(path)) {
                Ok(found) => found,
                Err(QueryError::NoField { .. }) => continue,
                Err(error) => return Err(error),
            };
            for (all, mut own) in selected.iter_mut().zip(found) {
                for field in &mut own {
                    field.order = order;
                }
                all.extend(own);
            }
        }
        for ((source, schema), selected) in compiled.iter().zip(&selected) {
            if selected.is_empty() {
                continue;
            }
            let lists = &mut self.lists;
            let number = |path: &str| {
                let next = u32::try_from(lists.len()).unwrap_or(u32::MAX);
                *lists.entry(path.to_owned()).or_insert(next)
            };
            let Ok(mut plan) = SourcePlan::new(&source.name, schema, selected, number) else {
                self.summary.malformed_schemas += 1;
                continue;
            };
            plan.numbers = plan.tables.iter().map(|table| number_of(&mut self.tables, table)).collect();
            self.sources.insert(source.id, Collector::new(plan));
        }
        Ok(())
    }

    /// Returns the rows so far as batches. All rows before `reached_ns` are then returned.
    fn flush(&mut self, reached_ns: Option<u64>) {
        let mut batches = Vec::new();
        self.sources.values_mut().for_each(|collector| collector.take(&mut batches));
        let any = !batches.is_empty();
        self.ready.extend(batches.into_iter().map(QueryItem::Batch));
        if let Some(reached_ns) = reached_ns.filter(|_| any) {
            self.ready.push_back(QueryItem::Complete(reached_ns));
        }
        (self.held_samples, self.held_values) = (0, 0);
    }

    /// Looks for new segments, to follow a running recorder; [`next`](Self::next) then returns what
    /// is new.
    ///
    /// # Errors
    /// `Io` for a path that is missing or unreadable.
    pub fn refresh(&mut self) -> Result<(), SegmentError> {
        self.reader.refresh()
    }
}

/// Returns the index of a table, which is added if it is new.
fn number_of(tables: &mut Vec<TableInfo>, table: &TableInfo) -> usize {
    tables.iter().position(|known| known == table).unwrap_or_else(|| {
        tables.push(table.clone());
        tables.len() - 1
    })
}
