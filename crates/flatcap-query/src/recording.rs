//! A recording consists of the segments at some paths. A recording contains the sources of one or
//! several hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use flatcap_format::replay::{HostIdentity, run_ends};
use flatcap_format::schema::{CompiledSchema, SchemaError};
use flatcap_format::segment::{
    SegmentError, SegmentHeader, SegmentReader, SourceInfo, SourceKind, SourceSender, list, runs,
};
use flatcap_tasks::schema::SCHED_ROOT;

use super::computed::tasks_source;
use super::error::{ConditionError, QueryError};
use super::language::RowCondition;
use super::request::Query;
use super::results::QueryResults;
use crate::names::namesakes::Namesakes;
use crate::names::resolve::{KnownSource, resolve};
use crate::names::shared_paths::SharedPaths;
use crate::scan::compared::compared_fields;

/// The segments at some paths, and the sources in these segments.
#[derive(Debug)]
pub struct Recording {
    paths: Vec<PathBuf>,
    sources: Vec<RecordedSource>,
    namesakes: Arc<Namesakes>,
    shared_paths: Arc<SharedPaths>,
}

/// Maximum number of senders that are listed for each source id.
const SENDERS_MAX: usize = 16;

/// A source with its schema. If the schema of a source differs between runs, there is one entry for
/// each schema.
#[derive(Debug, Clone)]
pub struct RecordedSource {
    /// The source's name.
    pub name: String,
    /// The source's nominal period, in nanoseconds. 0 if there is no nominal period.
    pub period_ns: u64,
    /// The source's schema, or `None` if it is malformed. If the source has no schema, its payload
    /// is one field.
    pub schema: Option<CompiledSchema>,
    /// The error in its schema, if the schema is malformed.
    pub schema_error: Option<SchemaError>,
    /// Whether the source was imported from a recording in another format.
    pub is_imported: bool,
    /// Whether the source is computed. No segment contains a computed source, because its samples
    /// are computed from the samples of another source. A query returns the samples of a computed
    /// source only if the query names this source or one of its fields.
    pub is_computed: bool,
    /// The ids of the source in runs in which several sources share its name. The key is `None` for
    /// runs in which the name alone identifies the source. The value for an id is the set of at
    /// most 16 programs that pushed the samples. The set is empty if the recorder measured or
    /// imported the samples.
    pub instances: BTreeMap<Option<u16>, BTreeSet<SourceSender>>,
}

impl Recording {
    /// Opens a recording and reads its headers and footers.
    ///
    /// # Errors
    /// The error `Io` means that a path is missing or unreadable. A segment that cannot be read is
    /// not an error here, because the query reports it.
    pub fn open(paths: &[PathBuf]) -> Result<Self, SegmentError> {
        Self::read(paths, |_| {})
    }

    /// Opens a recording like [`open`](Self::open). Also reads unsealed segments in full, to find
    /// sources that were added after the header was written.
    ///
    /// # Errors
    /// The same errors as [`open`](Self::open).
    pub fn open_with_added_sources(paths: &[PathBuf]) -> Result<Self, SegmentError> {
        Self::read(paths, |reader| {
            while !reader.is_sealed()
                && let Ok(Some(_)) = reader.advance()
            {}
        })
    }

    fn read(paths: &[PathBuf], read_added: impl Fn(&mut SegmentReader)) -> Result<Self, SegmentError> {
        let (mut sources, mut namesakes) = (BTreeMap::new(), Namesakes::default());
        for run in runs(&list(paths)?) {
            // The header of a run's last segment contains all sources of the run, except the
            // sources that were added during this segment.
            if let Some(mut reader) =
                run.iter().rev().find_map(|listing| listing.open_without_index().ok()?)
            {
                read_added(&mut reader);
                let last = reader.footer().map_or(reader.header(), |footer| &footer.header);
                namesakes.add_run(run, last);
                add_sources(&mut sources, last, &namesakes);
                add_sources(&mut sources, reader.header(), &namesakes);
            }
        }
        let sources = with_computed(sources);
        let shared_paths = Arc::new(SharedPaths::of(sources.iter().filter_map(RecordedSource::known)));
        Ok(Self { paths: paths.to_vec(), sources, namesakes: Arc::new(namesakes), shared_paths })
    }

    /// Returns the sources, ordered by name.
    pub fn sources(&self) -> &[RecordedSource] {
        &self.sources
    }

    /// Returns the path of a field. The path leads to no field of another source. `path` has `[*]`
    /// after each list. With an id, the path leads only to the source with this id.
    pub fn path(&self, source: (&str, Option<u16>), path: &str) -> String {
        self.shared_paths.path(source, path)
    }

    /// Queries the values of some fields.
    ///
    /// # Errors
    /// A path leads to no field or to several fields, a condition fits no source, or a file is
    /// missing.
    pub fn query(&self, query: &Query) -> Result<QueryResults, QueryError> {
        self.check(query)?;
        if let Some(condition) = &query.condition {
            self.check_condition(query, condition)?;
        }
        Ok(QueryResults::open(&self.paths, query)?.with_namesakes(&self.namesakes))
    }

    fn check_condition(&self, query: &Query, condition: &RowCondition) -> Result<(), QueryError> {
        // Reading unsealed segments in full is slow, so they are read only if the condition applies
        // to no source that is already known.
        if applies(&self.sources, query, condition)? || applies(&self.all_sources()?, query, condition)? {
            return Ok(());
        }
        // The error of a misspelled path is more helpful, so each path is checked alone first.
        for operand in &condition.condition.operands {
            let path = Query { fields: vec![operand.path.clone()], ..query.clone() };
            self.check(&path).map_err(|error| match error {
                QueryError::Segment(_) | QueryError::Condition(_) => error,
                other => ConditionError::Field(other.to_string()).into(),
            })?;
        }
        Err(ConditionError::NoSource { text: condition.to_string() }.into())
    }

    /// Returns the wall time of the last sample of each run that has ended, by run id.
    ///
    /// # Errors
    /// The error `Io` means that a path is missing or unreadable.
    pub fn run_ends(&self, host: Option<&HostIdentity>) -> Result<BTreeMap<u64, i64>, SegmentError> {
        run_ends(&self.paths, host)
    }

    /// Returns the paths of the recording's segments and directories.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns the sources that share their name with another source of the same run at the same
    /// time.
    pub(super) fn namesakes(&self) -> &Arc<Namesakes> {
        &self.namesakes
    }

    /// Returns the paths that fields of several sources share.
    pub(super) fn shared_paths(&self) -> &Arc<SharedPaths> {
        &self.shared_paths
    }

    /// Checks that each path of the query leads to fields.
    pub(super) fn check(&self, query: &Query) -> Result<(), QueryError> {
        // Reading unsealed segments in full is slow, so they are read only if a path leads to no
        // field.
        if let Err(error) = check(&self.sources, query) {
            check(&self.all_sources()?, query).map_err(|_| error)?;
        }
        Ok(())
    }

    /// Returns all sources, including sources that were added to an unsealed segment. Reads each
    /// unsealed segment in full.
    pub(super) fn all_sources(&self) -> Result<Vec<RecordedSource>, SegmentError> {
        let mut sources = BTreeMap::new();
        for listing in list(&self.paths)? {
            let Ok(Some(mut reader)) = listing.open_without_index() else { continue };
            while !reader.is_sealed()
                && let Ok(Some(_)) = reader.advance()
            {}
            let header = reader.footer().map_or(reader.header(), |footer| &footer.header);
            add_sources(&mut sources, header, &self.namesakes);
        }
        Ok(with_computed(sources))
    }
}

/// Checks that each path of the query leads to a field of these sources.
fn check(sources: &[RecordedSource], query: &Query) -> Result<(), QueryError> {
    resolve(&known(sources, query), &query.fields).map(drop)
}

/// Returns whether one of these sources has all fields of a condition.
fn applies(sources: &[RecordedSource], query: &Query, condition: &RowCondition) -> Result<bool, QueryError> {
    let (mut applies, mut refused) = (false, None);
    for source in known(sources, query) {
        match compared_fields(condition, source, &mut Vec::new(), true) {
            Ok(compared) => applies |= compared.is_some(),
            Err(error) => refused = Some(error),
        }
    }
    // A field may have another type in another run, so an error is returned only if the condition
    // applies to no source.
    refused.filter(|_| !applies).map_or(Ok(applies), Err)
}

/// Returns the sources that a query requests and that have a valid schema.
fn known<'s>(sources: &'s [RecordedSource], query: &Query) -> Vec<KnownSource<'s>> {
    let wanted = sources.iter().filter(|source| query.wants(&source.name, source.is_computed));
    wanted.filter_map(RecordedSource::known).collect()
}

impl RecordedSource {
    /// Returns whether the source's payloads have a schema that can be read.
    pub fn has_schema(&self) -> bool {
        self.schema.as_ref().is_some_and(|schema| !schema.is_opaque())
    }

    /// Returns whether an application pushed the source.
    pub fn is_pushed(&self) -> bool {
        self.instances.values().any(|senders| !senders.is_empty())
    }

    /// Returns the source in the form that path resolution needs, or `None` if the source has no
    /// fields.
    pub(super) fn known(&self) -> Option<KnownSource<'_>> {
        let schema = self.schema.as_ref()?;
        Some(KnownSource { name: &self.name, id: None, schema, is_computed: self.is_computed })
    }
}

/// Returns these sources and the sources that are computed from them, ordered by name.
fn with_computed(sources: BTreeMap<SourceKey, RecordedSource>) -> Vec<RecordedSource> {
    let has_events = sources.keys().any(|(_, root, _, is_pushed)| root == SCHED_ROOT && !is_pushed);
    let mut sources: Vec<RecordedSource> = sources.into_values().collect();
    let SourceInfo { name, period_ns, root, schema, .. } = tasks_source();
    let schema = CompiledSchema::compile(&schema, &root).ok();
    let tasks = RecordedSource {
        name,
        period_ns,
        schema,
        schema_error: None,
        is_imported: false,
        is_computed: true,
        instances: [(None, BTreeSet::new())].into(),
    };
    if has_events {
        // The computed source comes before a recorded source with the same name, as the
        // documentation of `fields` states.
        let place = sources.partition_point(|source| source.name < tasks.name);
        sources.insert(place, tasks);
    }
    sources
}

/// The key of a source, which is its name, its root, its schema, and whether it was pushed.
type SourceKey = (String, String, Vec<u8>, bool);

fn add_sources(
    sources: &mut BTreeMap<SourceKey, RecordedSource>,
    header: &SegmentHeader,
    namesakes: &Namesakes,
) {
    for source in &header.sources {
        let instance = namesakes.contains(header.run_id, source.id).then_some(source.id);
        let sender = source.sender();
        let key = (source.name.clone(), source.root.clone(), source.schema.clone(), sender.is_some());
        let known = sources.entry(key).or_insert_with(|| {
            let compiled = CompiledSchema::of_source(&source.schema, &source.root);
            let (schema, schema_error) = match compiled {
                Ok(schema) => (Some(schema), None),
                Err(error) => (None, Some(error)),
            };
            RecordedSource {
                name: source.name.clone(),
                period_ns: source.period_ns,
                schema,
                schema_error,
                is_imported: source.kind == SourceKind::Imported,
                is_computed: false,
                instances: BTreeMap::new(),
            }
        });
        let senders = known.instances.entry(instance).or_default();
        if senders.len() < SENDERS_MAX {
            senders.extend(sender);
        }
        // The periods of a source may differ between runs. Gaps are found with the longest period.
        known.period_ns = known.period_ns.max(source.period_ns);
    }
}
