//! Whole samples. A whole sample consists of a payload with all its values. Samples are returned in
//! time order.
//!
//! Columns do not represent everything that a payload contains. In columns, an empty list cannot be
//! distinguished from an absent list. Columns also do not contain the relation between elements of
//! nested lists, nor a table that contains itself. So a whole sample is walked by its schema, in
//! the same way as a template is made from a payload. The rates in a whole sample come from
//! columns.

use std::collections::BTreeMap;

use flatcap_format::replay::{MergedReader, Notice, ReplayFilter, ReplayItem};
use flatcap_format::schema::{CompiledSchema, DecodeError, JsonWriter, Visitor};
use flatcap_format::segment::{SampleView, SegmentError, SourceInfo};

use super::join::RowStamp;
use super::reader::RowItem;
use super::window::RowWindow;
use crate::error::QueryError;
use crate::rates::sample_rates::SampleRates;
use crate::recording::Recording;
use crate::request::Query;
use crate::results::RunInfo;
use crate::summary::QuerySummary;

/// Reads whole samples of all sources, in time order.
#[derive(Debug)]
pub struct SampleReader {
    reader: MergedReader,
    filter: ReplayFilter,
    is_rate: bool,
    window: RowWindow,
    sources: BTreeMap<u16, SampleSource>,
    /// The id of the source of the last sample.
    current: u16,
    summary: QuerySummary,
}

/// A source of the current run, and its last sample.
#[derive(Debug)]
struct SampleSource {
    name: String,
    schema: CompiledSchema,
    rates: Option<SampleRates>,
    /// The last sample, without its payload.
    envelope: SampleView<'static>,
    payload: Vec<u8>,
}

impl Recording {
    /// Returns a reader of the whole samples that a filter selects. With `is_rate`, counters are
    /// replaced by their change per second. The samples of a computed source are not returned.
    ///
    /// # Errors
    /// The error `Io` means that a path is missing or unreadable.
    pub fn samples(&self, filter: &ReplayFilter, is_rate: bool) -> Result<SampleReader, SegmentError> {
        let (mut query, mut window) =
            (Query { filter: filter.clone(), ..Query::default() }, RowWindow::default());
        // The rates of the first samples depend on the samples before them.
        if is_rate {
            let wanted = self.sources().iter().filter(|source| query.wants(&source.name, source.is_computed));
            let periods: Vec<u64> = wanted.map(|source| source.period_ns).collect();
            window.widen(&mut query, periods.into_iter());
        }
        Ok(SampleReader {
            reader: MergedReader::open(self.paths(), query.filter)?,
            filter: filter.clone(),
            is_rate,
            window,
            sources: BTreeMap::new(),
            current: 0,
            summary: QuerySummary::default(),
        })
    }
}

impl SampleReader {
    /// Returns the next item, or `None` at the end of the recording. Each row is a sample.
    ///
    /// # Errors
    /// `Io`.
    #[allow(clippy::should_implement_trait, reason = "an item is about the reader's current sample")]
    pub fn next(&mut self) -> Result<Option<RowItem>, QueryError> {
        while let Some(item) = self.reader.next()? {
            match item {
                ReplayItem::Header(header, _) => {
                    let run = RunInfo::of(header);
                    self.window.begin_run(&run);
                    self.sources.clear();
                    for source in header.sources.clone() {
                        self.add_source(&source);
                    }
                    return Ok(Some(RowItem::Run(run)));
                }
                ReplayItem::Source(source, _) => {
                    let source = source.clone();
                    self.add_source(&source);
                }
                ReplayItem::Sample(sample) => {
                    // Samples before the window are used, because the rates of the first sample in
                    // the window depend on them. They are not returned.
                    let SampleView { source, mono_ns, wall_ns, .. } = sample.telemetry;
                    let Some(own) = self.sources.get_mut(&source) else { continue };
                    self.summary.has_more_elements |= own.take(&sample.telemetry);
                    if !self.window.is_before(mono_ns, wall_ns) {
                        self.summary.samples += 1;
                        self.current = source;
                        return Ok(Some(RowItem::Row(RowStamp { mono_ns, wall_ns, element: None })));
                    }
                }
                ReplayItem::Gap(gap, _) => {
                    let is_before = self.window.is_gap_before(&gap);
                    if let Some(source) = self.sources.get(&gap.source).filter(|_| !is_before) {
                        return Ok(Some(RowItem::Gap(source.name.clone(), gap)));
                    }
                }
                ReplayItem::Marker(marker, _) => {
                    if !self.window.is_before(marker.mono_ns, marker.wall_ns) {
                        return Ok(Some(RowItem::Marker(marker)));
                    }
                }
                ReplayItem::Notice(notice) => {
                    self.summary.damage += u64::from(matches!(notice, Notice::Damaged(..)));
                    return Ok(Some(RowItem::Notice(notice)));
                }
                ReplayItem::Other(..) => {}
            }
        }
        Ok(None)
    }

    /// Compiles the schema of a source, if the filter selects the source.
    fn add_source(&mut self, source: &SourceInfo) {
        if !self.filter.sources.is_empty() && !self.filter.sources.contains(&source.name) {
            return;
        }
        let compiled = CompiledSchema::of_source(&source.schema, &source.root).and_then(|schema| {
            let rates = if self.is_rate { Some(SampleRates::new(&source.name, &schema)?) } else { None };
            Ok((schema, rates))
        });
        match compiled {
            Ok((schema, rates)) => {
                let own = SampleSource::new(source, schema, rates);
                self.sources.insert(source.id, own);
            }
            // The source's samples cannot be decoded, so they are left out, and the summary counts
            // the malformed schema. This is not an error, because the samples of other sources are
            // still useful.
            Err(_) => self.summary.malformed_schemas += 1,
        }
    }

    /// Returns the name of the last sample's source.
    pub fn source(&self) -> &str {
        self.sources.get(&self.current).map_or("", |source| &source.name)
    }

    /// Returns the last sample.
    pub fn sample(&self) -> Option<SampleView<'_>> {
        self.sources.get(&self.current).map(SampleSource::sample)
    }

    /// Returns the schema of the last sample's source.
    pub fn schema(&self) -> Option<&CompiledSchema> {
        self.sources.get(&self.current).map(|source| &source.schema)
    }

    /// Passes the values of the last sample to a visitor. If rates were requested, passes rates
    /// instead of the values of counters.
    ///
    /// # Errors
    /// The payload does not fit its schema. The values before the error have already been passed to
    /// the visitor.
    pub fn walk<V: Visitor>(&self, visitor: &mut V) -> Result<(), DecodeError> {
        let Some(source) = self.sources.get(&self.current) else { return Ok(()) };
        match &source.rates {
            None => source.schema.walk(&source.payload, visitor),
            Some(rates) => source.schema.walk(&source.payload, &mut rates.replace_counters(visitor)),
        }
    }

    /// Appends the values of the last sample as a JSON object.
    ///
    /// # Errors
    /// The payload does not fit its schema. In this case, the output ends with a part of the
    /// object.
    pub fn append_json(&self, output: &mut Vec<u8>) -> Result<(), DecodeError> {
        self.walk(&mut JsonWriter::new(output))
    }

    /// Returns the summary of the data read so far. Samples that do not fit their schema are
    /// counted as samples that were read.
    pub fn summary(&self) -> QuerySummary {
        self.summary
    }

    /// Looks for new segments, so that the reader follows a running recorder.
    ///
    /// # Errors
    /// The error `Io` means that a path is missing or unreadable.
    pub fn refresh(&mut self) -> Result<(), SegmentError> {
        self.reader.refresh()
    }
}

impl SampleSource {
    fn new(source: &SourceInfo, schema: CompiledSchema, rates: Option<SampleRates>) -> Self {
        let envelope = SampleView {
            source: source.id,
            seq: 0,
            mono_ns: 0,
            wall_ns: 0,
            flags: 0,
            duration_ns: 0,
            payload: &[],
        };
        Self { name: source.name.clone(), schema, rates, envelope, payload: Vec::new() }
    }

    fn sample(&self) -> SampleView<'_> {
        SampleView { payload: &self.payload, ..self.envelope }
    }

    /// Stores a sample as the last sample. Returns whether the sample has more elements than can be
    /// distinguished.
    fn take(&mut self, sample: &SampleView<'_>) -> bool {
        // The new rates begin with the last sample, so that the next sample has rates as usual.
        if self.rates.as_ref().is_some_and(SampleRates::is_full)
            && let Ok(mut rates) = SampleRates::new(&self.name, &self.schema)
        {
            rates.observe(&self.sample());
            self.rates = Some(rates);
        }
        let has_more = self.rates.as_mut().is_some_and(|rates| rates.observe(sample));
        // The payload is copied, because the caller reads the sample after this call, when the item
        // of the reader no longer exists.
        self.envelope = SampleView { payload: &[], ..*sample };
        self.payload.clear();
        self.payload.extend_from_slice(sample.payload);
        has_more
    }
}
