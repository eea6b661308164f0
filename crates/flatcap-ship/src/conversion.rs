//! Converts a segment into objects. There is a table for each source, and one each for gaps, marks
//! and sources.
//!
//! A few sources are read at a time, so that memory is bounded whatever the segment contains.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::RecordBatch;
use flatcap_arrow::{BatchError, RowBatchItem, RowBatches};
use flatcap_format::replay::{Notice, ReplayFilter};
use flatcap_format::segment::{
    CompressedSegment, Damage, Footer, FooterTotals, Marker, SegmentHeader, SegmentReader, SourceInfo,
    markers,
};
use flatcap_query::{BatchTimes, QueryError};
use jiff::Timestamp;

use crate::backlog::SealedFile;
use crate::error::ShipError;
use crate::manifest::{
    DAMAGE_MAX, FORMAT, Manifest, ManifestClocks, ManifestDamage, ManifestHost, ManifestKind, ManifestSource,
};
use crate::names::{GAPS, MARKS, PARTS_MAX, SOURCES, source_table};
use crate::object_writer::{ObjectWriter, WrittenObject};
use crate::sequence::SequenceNumbers;
use crate::tables::{RowOrigin, SourceGap, gap_table, mark_table, source_rows};

/// Limit on the total size of sources that are read at the same time, in bytes before compression.
// The encoded form of these sources in memory is smaller than this limit.
const PASS_BYTES: u64 = 32 << 20;

/// Receives the objects of a segment.
pub(crate) trait ObjectSink {
    /// Receives a complete object, which is one part of a table. Parts are numbered from 1.
    ///
    /// # Errors
    /// Any error ends the conversion.
    fn put(&mut self, table: &str, part: u32, object: WrittenObject) -> Result<(), ShipError>;

    /// The conversion calls this function between batches of rows. The function may pause.
    ///
    /// # Errors
    /// Fails if the stop signal was set.
    fn rest(&mut self) -> Result<(), ShipError>;
}

/// A segment whose header and footer were read.
#[derive(Debug)]
pub(crate) struct SegmentContent {
    file: SealedFile,
    header: SegmentHeader,
    footer: Option<Footer>,
    markers: Vec<Marker>,
    /// Size of each source's frames in bytes. Empty for a raw segment, because it does not state
    /// these sizes.
    sizes: BTreeMap<u16, u64>,
}

impl SegmentContent {
    /// Reads header, footer and marks of a segment.
    ///
    /// # Errors
    /// Fails with `Segment` if the file is not a segment or was removed.
    pub(crate) fn open(file: &SealedFile) -> Result<Self, ShipError> {
        let mut reader = SegmentReader::open(&file.path)?;
        let footer = reader.footer().cloned();
        // Use the footer's copy of the header, because it has the sources that were added later.
        let header = footer.as_ref().map_or(reader.header(), |footer| &footer.header).clone();
        let sizes = reader.compressed().into_iter().flat_map(CompressedSegment::sizes);
        let sizes = sizes.map(|size| (size.source, size.raw_bytes)).collect();
        let markers = markers(&mut reader)?;
        Ok(Self { file: file.clone(), header, footer, markers, sizes })
    }

    /// Returns the origin of the segment's rows.
    fn origin(&self) -> RowOrigin {
        match &self.file.snapshot {
            Some(name) => RowOrigin::Snapshot(name.clone()),
            None => RowOrigin::Segment(self.file.name.number),
        }
    }

    fn run(&self) -> String {
        format!("{:016x}", self.header.run_id)
    }

    /// Makes the objects. Returns the manifest, which does not yet list the objects.
    ///
    /// # Errors
    /// Fails if reading, encoding or the sink fails.
    pub(crate) fn convert(
        &self,
        host: ManifestHost,
        sink: &mut dyn ObjectSink,
    ) -> Result<Manifest, ShipError> {
        let mut conversion = Conversion::new(self);
        for pass in self.passes() {
            conversion.read(&pass, sink)?;
        }
        conversion.add_unreadable();
        let run = self.run();
        let rows_error = |error| ShipError::Rows { path: self.file.path.clone(), error: Box::new(error) };
        let gaps = gap_table(&conversion.gaps, &run, &self.header.clock_table).map_err(rows_error)?;
        conversion.put_table(GAPS, &gaps, sink)?;
        let marks = mark_table(&self.markers, &run).map_err(rows_error)?;
        conversion.put_table(MARKS, &marks, sink)?;
        let manifest = conversion.manifest(host);
        let sources = source_rows(&manifest).map_err(rows_error)?;
        conversion.put_table(SOURCES, &sources, sink)?;
        Ok(manifest)
    }

    /// Returns the groups of sources that are read together, as the names of the sources.
    fn passes(&self) -> Vec<BTreeSet<String>> {
        let has_samples = |source: &&SourceInfo| {
            // Without a footer, only reading the source would show whether it has any samples.
            self.totals(source.id).is_none_or(|totals| totals.recorded + totals.lost + totals.thinned > 0)
        };
        let wanted = self.header.sources.iter().filter(has_samples);
        // Sources with the same name, such as those of several applications, are read together,
        // because a filter selects by name.
        let mut sizes: Vec<(&str, Option<u64>)> = Vec::new();
        for source in wanted {
            let bytes = self.sizes.get(&source.id).copied();
            match sizes.iter_mut().find(|(name, _)| *name == source.name) {
                Some((_, sum)) => *sum = sum.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes)),
                None => sizes.push((&source.name, bytes)),
            }
        }
        grouped(sizes.into_iter())
    }

    fn totals(&self, source: u16) -> Option<&FooterTotals> {
        self.footer.as_ref()?.totals.iter().find(|totals| totals.source == source)
    }
}

/// Groups sources so that the size of each group is within the limit. A source of unknown size is a
/// separate group.
fn grouped<'s>(sources: impl Iterator<Item = (&'s str, Option<u64>)>) -> Vec<BTreeSet<String>> {
    let mut groups: Vec<BTreeSet<String>> = Vec::new();
    let mut free_bytes = 0_u64;
    for (name, bytes) in sources {
        match (groups.last_mut(), bytes) {
            (Some(group), Some(bytes)) if bytes <= free_bytes => {
                group.insert(name.to_owned());
                free_bytes -= bytes;
            }
            _ => {
                groups.push(BTreeSet::from([name.to_owned()]));
                free_bytes = bytes.map_or(0, |bytes| PASS_BYTES.saturating_sub(bytes));
            }
        }
    }
    groups
}

/// The data that was read from a source.
#[derive(Debug, Default)]
struct ReadSource {
    numbers: SequenceNumbers,
    rows: u64,
    end_seq: u64,
    wall_ns: Option<(i64, i64)>,
    left_out: u64,
    problem: String,
}

/// The conversion of a segment into objects.
struct Conversion<'s> {
    segment: &'s SegmentContent,
    origin: RowOrigin,
    parts: BTreeMap<String, u32>,
    sources: BTreeMap<String, ReadSource>,
    gaps: Vec<(String, SourceGap)>,
    damage: BTreeSet<ManifestDamage>,
}

/// A table that is being written.
struct UnfinishedTable {
    source: String,
    writer: ObjectWriter,
}

impl<'s> Conversion<'s> {
    fn new(segment: &'s SegmentContent) -> Self {
        Self {
            segment,
            origin: segment.origin(),
            parts: BTreeMap::new(),
            sources: BTreeMap::new(),
            gaps: Vec::new(),
            damage: BTreeSet::new(),
        }
    }

    /// Reads some sources, and passes their tables to the sink.
    fn read(&mut self, sources: &BTreeSet<String>, sink: &mut dyn ObjectSink) -> Result<(), ShipError> {
        let segment = self.segment;
        let path = &segment.file.path;
        let rows_error = |error| match error {
            BatchError::Query(QueryError::Segment(error)) => ShipError::Segment(error),
            error => ShipError::Rows { path: path.clone(), error: Box::new(error.into()) },
        };
        let filter = ReplayFilter { sources: sources.clone(), ..ReplayFilter::default() };
        let mut rows = RowBatches::open(std::slice::from_ref(path), filter).map_err(rows_error)?;
        let mut tables: BTreeMap<usize, UnfinishedTable> = BTreeMap::new();
        loop {
            sink.rest()?;
            let item = match rows.next() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(error) => return Err(rows_error(error)),
            };
            match item {
                RowBatchItem::Rows { layout, batch, times } => {
                    let Some((source, columns)) = rows.schema(layout) else { continue };
                    // An object has one schema. So if the schema of a source changed within the
                    // segment, the source gets further objects.
                    let table = tables.entry(layout).or_insert_with(|| UnfinishedTable {
                        source: source.to_owned(),
                        writer: ObjectWriter::new(self.origin.schema(columns)),
                    });
                    let batch = self.origin.add_to(&batch, table.writer.schema())?;
                    self.sources.entry(source.to_owned()).or_default().add(&times);
                    for object in table.writer.write(&batch)? {
                        self.put(&source_table(source), object, sink)?;
                    }
                }
                RowBatchItem::Gap(source, gap) => {
                    self.sources.entry(source.clone()).or_default().add_numbers(gap.first, gap.count);
                    self.gaps.push((source, SourceGap::Recorded(gap)));
                }
                RowBatchItem::Notice(notice) => self.add_notice(notice)?,
                // Markers are read once for all sources.
                RowBatchItem::Marker(_) => {}
            }
        }
        for (source, line) in rows.large_values().lines() {
            let own = self.sources.entry(source.to_owned()).or_default();
            own.add_problem(&line);
            own.left_out = rows.large_values().count(source);
        }
        for table in tables.into_values() {
            if let Some(object) = table.writer.finish(false)? {
                self.put(&source_table(&table.source), object, sink)?;
            }
        }
        Ok(())
    }

    fn put(
        &mut self,
        table: &str,
        object: WrittenObject,
        sink: &mut dyn ObjectSink,
    ) -> Result<(), ShipError> {
        let part = self.parts.entry(table.to_owned()).or_default();
        *part += 1;
        if *part > PARTS_MAX {
            let path = self.segment.file.path.clone();
            return Err(ShipError::Parts { path, table: table.to_owned(), limit: PARTS_MAX });
        }
        sink.put(table, *part, object)
    }

    /// Passes a small table to the sink, even if it is empty.
    fn put_table(
        &mut self,
        table: &str,
        rows: &RecordBatch,
        sink: &mut dyn ObjectSink,
    ) -> Result<(), ShipError> {
        // Engines need at least one object to know the columns.
        let mut writer = ObjectWriter::new(self.origin.schema(&rows.schema()));
        let batch = self.origin.add_to(rows, writer.schema())?;
        let mut objects = writer.write(&batch)?;
        objects.extend(writer.finish(rows.num_rows() == 0)?);
        objects.into_iter().try_for_each(|object| self.put(table, object, sink))
    }

    fn add_notice(&mut self, notice: Notice) -> Result<(), ShipError> {
        match notice {
            Notice::Damaged(_, damage) | Notice::Torn(_, damage) => {
                let Damage { offset, length, what } = damage;
                if self.damage.len() < DAMAGE_MAX {
                    self.damage.insert(ManifestDamage { offset, length, what: what.to_owned() });
                }
                Ok(())
            }
            Notice::Unreadable(error) => Err(error.into()),
            Notice::Unrecovered(_) | Notice::Truncated(..) => Ok(()),
        }
    }

    /// Adds gaps for sequence numbers that the footer counts but that could not be read. Then sorts
    /// all gaps.
    fn add_unreadable(&mut self) {
        for info in &self.segment.header.sources {
            if self.is_ambiguous(info) {
                continue;
            }
            let numbers = self.sources.get(&info.name).map(|source| source.numbers.clone());
            let mut unreadable = 0_u64;
            for range in numbers.unwrap_or_default().missing(info.next_seq..self.next_seq(info)) {
                let count = range.end - range.start;
                unreadable = unreadable.saturating_add(count);
                self.gaps.push((info.name.clone(), SourceGap::Unreadable(range.start, count)));
            }
            if unreadable > 0 {
                let line = format!(
                    "{unreadable} recorded samples cannot be read: the file is damaged, or they do not fit the schema"
                );
                self.sources.entry(info.name.clone()).or_default().add_problem(&line);
            }
        }
        self.gaps.sort_by(|(name, gap), (other_name, other)| {
            (name, gap.first()).cmp(&(other_name, other.first()))
        });
    }

    /// Returns the sequence number that follows the last sequence number of a source.
    fn next_seq(&self, info: &SourceInfo) -> u64 {
        match self.segment.totals(info.id) {
            Some(totals) => [totals.recorded, totals.lost, totals.thinned]
                .into_iter()
                .fold(info.next_seq, u64::saturating_add),
            None => self.sources.get(&info.name).map_or(info.next_seq, |source| source.end_seq),
        }
    }

    /// Returns whether another source of the segment has the same name. If so, the source of a
    /// sequence number is ambiguous.
    fn is_ambiguous(&self, info: &SourceInfo) -> bool {
        self.segment.header.sources.iter().filter(|other| other.name == info.name).count() > 1
    }

    fn manifest(&self, host: ManifestHost) -> Manifest {
        let SegmentContent { file, header, footer, .. } = self.segment;
        let sources: Vec<ManifestSource> = header.sources.iter().map(|info| self.source(info)).collect();
        let sum = |value: fn(&ManifestSource) -> u64| sources.iter().map(value).fold(0, u64::saturating_add);
        let created = Timestamp::from_second(file.name.created_s).unwrap_or(Timestamp::UNIX_EPOCH);
        let digest = footer.as_ref().and_then(|footer| footer.index.last()).map(|entry| entry.digest);
        Manifest {
            format: FORMAT,
            kind: if file.snapshot.is_some() { ManifestKind::Snapshot } else { ManifestKind::Segment },
            converter: env!("CARGO_PKG_VERSION").to_owned(),
            run: self.segment.run(),
            segment: if file.snapshot.is_some() { 0 } else { file.name.number },
            snapshot: file.snapshot.clone().unwrap_or_default(),
            file: file.name.to_string(),
            host,
            agent_version: header.agent_version.clone(),
            created: created.to_string(),
            clocks: ManifestClocks {
                mono_ns: header.clocks.mono_ns,
                boot_ns: header.clocks.boot_ns,
                wall_ns: header.clocks.wall_ns,
            },
            first_wall_ns: sources.iter().filter_map(|source| source.first_wall_ns).min(),
            last_wall_ns: sources.iter().filter_map(|source| source.last_wall_ns).max(),
            recovered: footer.as_ref().is_some_and(|footer| footer.recovered),
            raw_bytes: footer.as_ref().map_or(0, |footer| footer.bytes),
            digest: digest.map(|digest| format!("{digest:016x}")).unwrap_or_default(),
            rows: sum(|source| source.rows),
            lost: sum(|source| source.lost),
            unreadable: sum(|source| source.unreadable),
            damage: self.damage.iter().cloned().collect(),
            sources,
            ..Manifest::default()
        }
    }

    fn source(&self, info: &SourceInfo) -> ManifestSource {
        let none = ReadSource::default();
        // The data of all sources with the same name is stored for the first of these sources.
        let first = self.segment.header.sources.iter().find(|source| source.name == info.name);
        let is_first = first.is_some_and(|first| first.id == info.id);
        let read = self.sources.get(&info.name).filter(|_| is_first).unwrap_or(&none);
        let totals = self.segment.totals(info.id).cloned().unwrap_or_default();
        let unreadable = self.gaps.iter().filter(|(name, _)| *name == info.name);
        let unreadable = unreadable.map(|(_, gap)| match gap {
            SourceGap::Unreadable(_, count) => *count,
            SourceGap::Recorded(_) => 0,
        });
        let problem = if self.is_ambiguous(info) {
            "several sources of the segment have this name".to_owned()
        } else {
            read.problem.clone()
        };
        ManifestSource {
            source: info.name.clone(),
            table: source_table(&info.name),
            period_ns: info.period_ns,
            first_seq: info.next_seq,
            next_seq: self.next_seq(info),
            rows: read.rows,
            recorded: totals.recorded,
            lost: totals.lost,
            thinned: totals.thinned,
            missed: totals.missed,
            unreadable: unreadable.sum(),
            left_out: read.left_out,
            first_wall_ns: read.wall_ns.map(|(first, _)| first),
            last_wall_ns: read.wall_ns.map(|(_, last)| last),
            problem,
        }
    }
}

impl ReadSource {
    /// Adds the sequence numbers and times of samples.
    fn add(&mut self, times: &BatchTimes) {
        self.rows += times.len() as u64;
        times.seq.iter().for_each(|seq| self.add_numbers(*seq, 1));
        if let (Some(first), Some(last)) = (times.wall_ns.first(), times.wall_ns.last()) {
            let (known_first, _) = self.wall_ns.unwrap_or((*first, *last));
            self.wall_ns = Some((known_first, *last));
        }
    }

    /// Records which values are left out of the rows, or why there are no rows.
    fn add_problem(&mut self, problem: &str) {
        if !self.problem.is_empty() {
            self.problem.push_str("; ");
        }
        self.problem.push_str(problem);
    }

    fn add_numbers(&mut self, first: u64, count: u64) {
        self.numbers.add(first, count);
        self.end_seq = self.end_seq.max(first.saturating_add(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that sources are grouped by size and in order, and that each source of unknown size is
    // a separate group.
    #[test]
    fn passes_are_bounded() {
        let groups = |sizes: &[(&'static str, Option<u64>)]| -> Vec<String> {
            let groups = grouped(sizes.iter().copied());
            groups.iter().map(|group| group.iter().cloned().collect::<String>()).collect()
        };
        let (small, half, large) = (Some(10), Some(PASS_BYTES / 2), Some(PASS_BYTES * 2));
        assert_eq!(groups(&[("a", small), ("b", half), ("c", half), ("d", small)]), ["ab", "cd"]);
        assert_eq!(groups(&[("a", None), ("b", small), ("c", None), ("d", None)]), ["a", "b", "c", "d"]);
        assert_eq!(groups(&[("a", small), ("b", large), ("c", small)]), ["a", "b", "c"]);
        assert_eq!(groups(&[]), [""; 0]);
    }
}
