//! Exports to a trace for Perfetto. The trace has a counter track for each numeric field of each
//! element, marks as instants, and lost samples as slices. It also has the scheduler, sampled
//! stacks, and the kernel log.
//!
//! Time in the trace is the time since the boot of the host. Runs of other boots are placed
//! according to their wall time. A value that equals the previous one is left out, since a counter
//! keeps its value. After an element has ended, its values are 0. Between two runs, all values are
//! 0.

use std::collections::HashMap;
use std::path::Path;

use flatcap_arrow::{RecordedItem, SampleBatch, SampleReader, StepFilter};
use flatcap_format::replay::{RecordedHosts, recording_span};
use flatcap_format::schema::{ColumnType, FieldValue, GapCauseNames};
use flatcap_format::segment::{Gap, Marker, list};
use flatcap_query::metric::{BLOCKS, element_factor, is_measured};
use flatcap_query::{
    ColumnBatch, ColumnInfo, CommonUnit, CounterRates, ElementEnds, EndedElement, NO_ELEMENT, Query,
    Recording, RunInfo, TableInfo, unnamed_end_list,
};
use prost::Message;

use crate::asked_fields::fields_of_ends;
use crate::error::ColumnarError;
use crate::kernel_samples::KernelRun;
use crate::perfetto_clock::TraceClock;
use crate::perfetto_kernel::{KernelSequence, KernelTrace, KernelTraceSink, read_kernel_trace};
use crate::perfetto_log::LOG_TRACK;
use crate::perfetto_packets::{
    CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, COUNTER, Clock, ClockSnapshot, INSTANT, PACKET_KEY,
    SEQUENCE_BEGINS, SLICE_BEGIN, SLICE_END, TracePacket, TrackEvent,
};
use crate::perfetto_tracks::TrackTree;
use crate::request::{ColumnarFile, ColumnarReport, ColumnarRequest};
use crate::single_output::SingleOutput;
use crate::stack_lines::StackOptions;
use crate::watch::{ColumnarEvent, ExportWatch};

/// The sequences of packets. Only packets with stacks refer to interned data of earlier packets of
/// the same sequence.
const SEQUENCE: u32 = 1;
const STACKS_SEQUENCE: u32 = 2;
/// The id of the track of marks.
const MARKS_TRACK: u64 = 1;

/// Writes the selected fields as a trace. With a path, the trace becomes a file, which gets its
/// name when it is complete. Without a path, it is written to standard output. Counters are written
/// as rates per second, in common units. If no fields are named, the trace has the scheduler and
/// stacks, too.
///
/// # Errors
/// Any [`ColumnarError`].
pub(crate) fn to_perfetto(
    request: &ColumnarRequest,
    path: Option<&Path>,
    options: &StackOptions,
    watch: &mut ExportWatch<'_>,
) -> Result<ColumnarReport, ColumnarError> {
    let recording = Recording::open(&request.paths)?;
    let mut query =
        Query { fields: request.fields.clone(), filter: request.filter.clone(), ..Query::default() };
    // This check is made first, so that an unknown field is refused before other fields are added.
    drop(recording.query(&query)?);
    let ends = fields_of_ends(&recording, request);
    query.unnamed_lists = recording.sources().iter().map(|source| unnamed_end_list(&source.name)).collect();
    query.unnamed_lists.retain(|_| !ends.is_empty());
    query.fields.extend(ends);
    let mut reader = SampleReader::new(recording.query(&query)?);
    let out = SingleOutput::create(path, request.should_replace)?;
    let span = recording_span(&request.paths, request.filter.host.as_ref())?;
    let earliest_ns = span.map(|span| (*span.start()).max(request.filter.since_ns.unwrap_or(i64::MIN)));
    let clock = TraceClock::new(earliest_ns);
    let mut export = PerfettoExport::new(out, clock, request.step_ns.map(StepFilter::new));
    export.asked = request.fields.len();
    export.add_processes(&recording, request)?;
    while let Some(item) = reader.next()? {
        match item {
            RecordedItem::Run(run) => export.begin_run(run)?,
            RecordedItem::Samples(samples) => {
                let progress = ColumnarEvent::after(&samples);
                export.add(samples, &reader)?;
                watch.report(progress)?;
            }
            RecordedItem::Gap(source, gap) => export.add_gap(source, gap)?,
            RecordedItem::Marker(marker) => export.add_mark(&marker)?,
            RecordedItem::Notice(notice) => watch.report(ColumnarEvent::Notice(notice))?,
        }
    }
    let kernel = if request.fields.is_empty() {
        // The first reading has already reported the problems with the files.
        watch.silence_notices();
        read_kernel_trace(request, options, watch, &mut export)?
    } else {
        KernelTrace::default()
    };
    watch.check_samples(export.events, request)?;
    let summary = reader.summary();
    Ok(ColumnarReport {
        files: export.complete(request.should_replace)?,
        undecodable: summary.undecodable + summary.malformed_schemas + kernel.malformed,
        has_unnamed_elements: summary.has_more_elements,
        remarks: kernel.remarks,
        ..ColumnarReport::default()
    })
}

/// The key of a series. It consists of host, table, column and element.
type SeriesKey = (u64, usize, usize, Option<u32>);

/// The trace that is written.
struct PerfettoExport {
    out: SingleOutput,
    step: Option<StepFilter>,
    /// Number of requested fields. Further fields of the query are not drawn. If the number is 0,
    /// all fields except states are drawn.
    asked: usize,
    rates: CounterRates,
    ends: ElementEnds,
    /// The track and the last value of each field of each element.
    series: HashMap<SeriesKey, (u64, Option<TrackValue>)>,
    tracks: TrackTree,
    run_id: u64,
    clock: TraceClock,
    /// The time of the run's last sample, as time in the trace.
    last_ns: Option<u64>,
    /// Time in the trace minus monotonic time, for each run so far, in nanoseconds.
    offsets: HashMap<u64, i64>,
    /// Gaps of the run that came before the first sample of the run.
    early_gaps: Vec<(String, Gap)>,
    packet: Vec<u8>,
    events: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum TrackValue {
    Integer(i64),
    Float(f64),
}

impl TrackValue {
    /// Returns the value 0 for an element that has ended, or `None` if its value is already 0.
    fn zero(self) -> Option<Self> {
        match self {
            Self::Integer(number) => (number != 0).then_some(Self::Integer(0)),
            Self::Float(number) => (number != 0.0).then_some(Self::Float(0.0)),
        }
    }
}

impl PerfettoExport {
    fn new(out: SingleOutput, clock: TraceClock, step: Option<StepFilter>) -> Self {
        Self {
            out,
            step,
            asked: 0,
            rates: CounterRates::default(),
            ends: ElementEnds::default(),
            series: HashMap::new(),
            tracks: TrackTree::new(LOG_TRACK + 1),
            run_id: 0,
            clock,
            last_ns: None,
            offsets: HashMap::new(),
            early_gaps: Vec::new(),
            packet: Vec::new(),
            events: 0,
        }
    }

    /// Draws the values of processes on the tracks of the processes. If there are several hosts,
    /// does nothing.
    fn add_processes(
        &mut self,
        recording: &Recording,
        request: &ColumnarRequest,
    ) -> Result<(), ColumnarError> {
        if request.filter.host.is_some() || !RecordedHosts::of(&list(&request.paths)?).are_several() {
            self.tracks.add_processes(recording);
        }
        Ok(())
    }

    fn begin_run(&mut self, run: RunInfo) -> Result<(), ColumnarError> {
        if run.run_id != self.run_id {
            self.end_run()?;
        }
        if let Some(step) = &mut self.step {
            step.begin_run(&run.host.name, run.host.machine_id.as_deref());
        }
        self.begin_host_run((run.run_id, run.suspended_ns), run.host.name);
        Ok(())
    }

    /// Ends the run's values after its last sample.
    fn end_run(&mut self) -> Result<(), ColumnarError> {
        let Some(last_ns) = self.last_ns.take() else { return Ok(()) };
        let ended = self.series.values_mut().filter_map(|(track, last)| Some((*track, last.take()?.zero()?)));
        let mut ended: Vec<(u64, TrackValue)> = ended.collect();
        // The order is fixed, so that the same recording gives the same trace.
        ended.sort_unstable_by_key(|(track, _)| *track);
        for (track, zero) in ended {
            self.put_counter(last_ns.saturating_add(1), track, zero)?;
        }
        Ok(())
    }

    fn begin_host_run(&mut self, (run_id, suspended_ns): (u64, u64), host: String) {
        self.run_id = run_id;
        self.tracks.set_host(host);
        self.clock.begin_run(suspended_ns);
        // These are gaps of a run without samples. Such a run has no time in the trace.
        self.early_gaps.clear();
        self.rates.clear();
        self.ends.clear();
        for (_, last) in self.series.values_mut() {
            *last = None;
        }
    }

    /// Begins the clocks at the first sample of a run.
    fn set_clocks(&mut self, mono_ns: u64, wall_ns: i64) -> Result<(), ColumnarError> {
        let is_first = self.clock.begin(mono_ns, wall_ns);
        self.offsets.extend(self.clock.offset_ns().map(|offset_ns| (self.run_id, offset_ns)));
        if !is_first {
            return Ok(());
        }
        let clock = |id, ns| Clock { clock_id: Some(id), timestamp: Some(ns) };
        let trace_ns = self.clock.trace_ns(mono_ns);
        let clocks = vec![
            clock(CLOCK_BOOTTIME, trace_ns),
            clock(CLOCK_MONOTONIC, mono_ns),
            clock(CLOCK_REALTIME, u64::try_from(wall_ns).unwrap_or_default()),
        ];
        let snapshot = ClockSnapshot { clocks, primary_trace_clock: Some(CLOCK_BOOTTIME) };
        self.put(TracePacket {
            timestamp: Some(trace_ns),
            sequence_flags: Some(SEQUENCE_BEGINS),
            clock_snapshot: Some(snapshot),
            ..TracePacket::default()
        })?;
        self.tracks.describe(MARKS_TRACK, "marks", None, None);
        Ok(())
    }

    fn add(&mut self, samples: SampleBatch, reader: &SampleReader) -> Result<(), ColumnarError> {
        let times = samples.times();
        if let (Some(mono_ns), Some(wall_ns)) = (times.mono_ns.first(), times.wall_ns.first()) {
            self.set_clocks(*mono_ns, *wall_ns)?;
            for (source, gap) in std::mem::take(&mut self.early_gaps) {
                self.put_gap(&source, &gap)?;
            }
        }
        let last_ns = times.mono_ns.iter().max().map(|mono_ns| self.clock.trace_ns(*mono_ns));
        self.last_ns = self.last_ns.max(last_ns);
        let source = samples.tables.first().and_then(|batch| reader.table(batch.table));
        let source = source.map(|table| table.source.to_string()).unwrap_or_default();
        let selected = self.step.as_mut().map(|step| step.select(&source, &times.wall_ns));
        let ends = self.ends.add(&samples.tables, |table| reader.table(table), reader.elements());
        for (position, mut batch) in samples.tables.into_iter().enumerate() {
            let Some(table) = reader.table(batch.table) else { continue };
            self.rates.apply(&mut batch, table, reader.elements());
            self.add_table(&batch, table, reader, (selected.as_deref(), ends.of_table(position)))?;
        }
        Ok(())
    }

    fn add_table(
        &mut self,
        batch: &ColumnBatch,
        table: &TableInfo,
        reader: &SampleReader,
        (selected, ended): (Option<&[bool]>, &[EndedElement]),
    ) -> Result<(), ColumnarError> {
        // Fields that only identify an element or state its start are drawn only if they are
        // selected.
        let asked = self.asked;
        let numeric = |column: &(usize, &ColumnInfo)| {
            let (_, info) = column;
            let is_wanted =
                if asked > 0 { info.order < asked } else { is_measured(info.kind, &info.type_name) };
            info.column_type != ColumnType::Text && !info.is_identity && is_wanted
        };
        let host = self.tracks.host_track();
        let columns = table
            .columns
            .iter()
            .enumerate()
            .filter(numeric)
            .map(|(number, info)| (number, info, CommonUnit::of(info.unit.as_deref(), info.has_rate())));
        let columns: Vec<_> = columns.collect();
        let own_list = (host, batch.table);
        let mut ended = ended.iter().peekable();
        for row in 0..batch.rows() {
            let sample = batch.sample(row);
            while let Some(end) = ended.next_if(|end| end.sample <= sample) {
                self.end_element((own_list, end.element), &columns, batch.times.mono_ns.get(end.sample))?;
            }
            let Some(mono_ns) = batch.times.mono_ns.get(sample).copied() else { continue };
            let element = batch.element(row).filter(|element| *element != NO_ELEMENT);
            if selected.is_some_and(|selected| selected.get(sample) != Some(&true)) {
                continue;
            }
            for (number, info, unit) in &columns {
                let value = batch.columns.get(*number).map(|column| column.get(row));
                // Numbers of blocks are drawn in bytes.
                let in_bytes = (info.unit.as_deref() == Some(BLOCKS)).then(|| {
                    let factor = element_factor(Some(BLOCKS), batch.name(row), reader.elements())?;
                    Some(CommonUnit { factor, name: "B".to_owned() })
                });
                let unit = match &in_bytes {
                    None => unit,
                    Some(Some(bytes)) => bytes,
                    Some(None) => continue,
                };
                let Some(value) = value.and_then(|value| track_value(value, unit)) else { continue };
                let key = (host, batch.table, *number, element);
                let track = match self.series.get(&key) {
                    Some((_, Some(last))) if *last == value => continue,
                    Some((track, _)) => *track,
                    None => {
                        let name = if info.path.is_empty() { "value" } else { &info.path };
                        self.tracks.add_series((table, batch.name(row), reader.elements()), name, unit)
                    }
                };
                self.series.insert(key, (track, Some(value)));
                self.put_counter(self.clock.trace_ns(mono_ns), track, value)?;
            }
        }
        for end in ended {
            self.end_element((own_list, end.element), &columns, batch.times.mono_ns.get(end.sample))?;
        }
        Ok(())
    }

    /// Ends the series of an element at the first sample without this element.
    fn end_element(
        &mut self,
        ((host, table), element): ((u64, usize), u32),
        columns: &[(usize, &ColumnInfo, CommonUnit)],
        mono_ns: Option<&u64>,
    ) -> Result<(), ColumnarError> {
        let Some(mono_ns) = mono_ns else { return Ok(()) };
        for (number, ..) in columns {
            let Some((track, last)) = self.series.get_mut(&(host, table, *number, Some(element))) else {
                continue;
            };
            let track = *track;
            let Some(zero) = last.take().and_then(TrackValue::zero) else { continue };
            self.put_counter(self.clock.trace_ns(*mono_ns), track, zero)?;
        }
        Ok(())
    }

    fn add_gap(&mut self, source: String, gap: Gap) -> Result<(), ColumnarError> {
        if gap.is_thinned() {
            return Ok(());
        }
        if self.clock.offset_ns().is_none() {
            self.early_gaps.push((source, gap));
            return Ok(());
        }
        self.put_gap(&source, &gap)
    }

    fn put_gap(&mut self, source: &str, gap: &Gap) -> Result<(), ColumnarError> {
        let track = self.tracks.lost_track(source);
        let causes = GapCauseNames(gap.causes);
        let name = format!("{} samples of {source} lost: {causes}", gap.count);
        // A time of 0 means that no sample is on that side of the gap, so only the time of the
        // other side is known.
        let known = [gap.after_mono_ns, gap.before_mono_ns].into_iter().filter(|mono_ns| *mono_ns > 0);
        let begin_ns = self.clock.trace_ns(known.clone().min().unwrap_or_default());
        let end_ns = self.clock.trace_ns(known.max().unwrap_or_default());
        self.put_event(begin_ns, (SLICE_BEGIN, track), Some(name))?;
        self.put_event(end_ns, (SLICE_END, track), None)
    }

    fn add_mark(&mut self, marker: &Marker) -> Result<(), ColumnarError> {
        self.set_clocks(marker.mono_ns, marker.wall_ns)?;
        let at_ns = self.clock.trace_ns(marker.mono_ns);
        self.put_event(at_ns, (INSTANT, MARKS_TRACK), Some(marker.text.clone()))
    }

    fn put_counter(&mut self, at_ns: u64, track: u64, value: TrackValue) -> Result<(), ColumnarError> {
        self.put_tracks()?;
        self.events += 1;
        let (integer, float) = match value {
            TrackValue::Integer(value) => (Some(value), None),
            TrackValue::Float(value) => (None, Some(value)),
        };
        let event = TrackEvent {
            event_type: Some(COUNTER),
            track_uuid: Some(track),
            counter_value: integer,
            double_counter_value: float,
            name: None,
        };
        self.put(TracePacket { timestamp: Some(at_ns), track_event: Some(event), ..TracePacket::default() })
    }

    fn put_event(
        &mut self,
        at_ns: u64,
        (event_type, track): (i32, u64),
        name: Option<String>,
    ) -> Result<(), ColumnarError> {
        self.put_tracks()?;
        let event = TrackEvent {
            event_type: Some(event_type),
            track_uuid: Some(track),
            name,
            ..TrackEvent::default()
        };
        self.put(TracePacket { timestamp: Some(at_ns), track_event: Some(event), ..TracePacket::default() })
    }

    /// Writes the descriptions of new tracks, which must come before the events of these tracks.
    fn put_tracks(&mut self) -> Result<(), ColumnarError> {
        for track in self.tracks.take_fresh() {
            self.put(TracePacket { track_descriptor: Some(track), ..TracePacket::default() })?;
        }
        Ok(())
    }

    fn put(&mut self, packet: TracePacket) -> Result<(), ColumnarError> {
        self.put_on(SEQUENCE, packet)
    }

    fn put_on(&mut self, sequence: u32, packet: TracePacket) -> Result<(), ColumnarError> {
        let packet = TracePacket { trusted_packet_sequence_id: Some(sequence), ..packet };
        self.packet.clear();
        self.packet.push(PACKET_KEY);
        packet.encode_length_delimited(&mut self.packet).map_err(|error| self.out.failed(error.into()))?;
        self.out.put(&self.packet)
    }

    fn complete(self, should_replace: bool) -> Result<Vec<ColumnarFile>, ColumnarError> {
        self.out.complete(should_replace, (None, self.events))
    }
}

impl KernelTraceSink for PerfettoExport {
    fn offset_ns(&mut self, run: &KernelRun, mono_ns: u64, wall_ns: i64) -> Result<i64, ColumnarError> {
        if let Some(offset_ns) = self.offsets.get(&run.run_id) {
            return Ok(*offset_ns);
        }
        self.begin_host_run((run.run_id, run.suspended_ns), run.host.clone());
        self.set_clocks(mono_ns, wall_ns)?;
        Ok(self.clock.offset_ns().unwrap_or_default())
    }

    fn put_kernel(&mut self, sequence: KernelSequence, packet: TracePacket) -> Result<(), ColumnarError> {
        self.events += 1;
        self.put_on(if sequence == KernelSequence::Stacks { STACKS_SEQUENCE } else { SEQUENCE }, packet)
    }
}

/// Returns the value of a track, or `None` for an absent value, a string, or a number that is not
/// finite. An integer that needs no conversion stays an integer.
fn track_value(value: FieldValue<'_>, unit: &CommonUnit) -> Option<TrackValue> {
    let is_own = unit.factor.total_cmp(&1.0).is_eq();
    let number = match value {
        FieldValue::Unsigned(number) if is_own && i64::try_from(number).is_ok() => {
            return i64::try_from(number).ok().map(TrackValue::Integer);
        }
        FieldValue::Signed(number) if is_own => return Some(TrackValue::Integer(number)),
        FieldValue::Bool(value) => return Some(TrackValue::Integer(i64::from(value))),
        other => other.number()?,
    };
    let number = if is_own { number } else { unit.convert(number) };
    Some(TrackValue::Float(number)).filter(|_| number.is_finite())
}
