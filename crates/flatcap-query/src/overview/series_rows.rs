//! Joins the series of successive segments, and adds their values to pixels.

use std::collections::{BTreeMap, HashMap};

use flatcap_format::replay::HostIdentity;

use super::pixel::{OverviewRow, PixelGrid, PixelValues};
use super::segment_overview::RunOverview;
use super::series_cells::{SampleNumber, SeriesCells, SeriesEnds, SeriesField, SourceSpan};
use crate::names::column_meaning::ColumnMeaning;
use crate::names::elements::ElementIdentity;
use crate::rows::layout::RowColumn;

/// The series of a field. If the field is in a list, the series of one element.
#[derive(Debug, Clone, PartialEq)]
pub struct OverviewSeries {
    /// The host that recorded the series.
    pub host: HostIdentity,
    /// Path, unit and kind of the field, in the form of a column.
    pub column: RowColumn,
    /// The element's label, or `None` if the field is not in a list.
    pub label: Option<Box<str>>,
    /// The values of the fields that identify the element.
    pub identity: Vec<ElementIdentity>,
    /// The time for which a value is valid if no later value follows, in nanoseconds.
    pub held_ns: u64,
    /// The pixels that have values, in time order, and the gaps between them.
    pub rows: Vec<OverviewRow>,
}

/// Host, field and element of a series.
pub(super) type SeriesKey = (HostIdentity, SeriesField, Box<[u8]>);

/// The series of an overview that is being built.
#[derive(Debug)]
pub(super) struct OverviewRows {
    grid: PixelGrid,
    series_max: usize,
    series: Vec<SeriesRows>,
    known: HashMap<SeriesKey, usize>,
    /// The state of each source, by host and name of the source.
    sources: HashMap<(HostIdentity, Box<str>), SourceRun>,
    left_out: u64,
}

/// The state of a source in the last run that was added.
#[derive(Debug)]
struct SourceRun {
    run_id: u64,
    last: SampleNumber,
    /// Monotonic time at which the last hole ended. 0 if there was no hole.
    hole_end_ns: u64,
    /// Number of segments with samples of the source.
    segments: u64,
}

/// A series that is being built.
#[derive(Debug)]
struct SeriesRows {
    host: HostIdentity,
    column: RowColumn,
    label: Option<Box<str>>,
    identity: Vec<ElementIdentity>,
    held_ns: u64,
    /// The run id, the segment number and the ends of the series, for the last segment that
    /// contains the series.
    before: Option<(u64, u64, SeriesEnds)>,
    /// Whether values are missing between the last value and the next value.
    is_after_hole: bool,
    /// Wall time of the last value that was added to a pixel.
    last_ns: Option<i64>,
    pixels: Vec<Option<DrawnPixel>>,
}

#[derive(Debug, Clone, Copy)]
struct DrawnPixel {
    values: PixelValues,
    /// The time of the last value before the gap that ends in this pixel.
    gap_since_ns: Option<i64>,
}

impl OverviewRows {
    pub(super) fn new(grid: PixelGrid, series_max: usize) -> Self {
        let (series, known, sources) = (Vec::new(), HashMap::new(), HashMap::new());
        Self { grid, series_max, series, known, sources, left_out: 0 }
    }

    /// Adds the series of a run. The caller must add runs and segments in the order of the
    /// recording.
    pub(super) fn add(&mut self, run: &RunOverview) {
        let mut hole_ends = BTreeMap::new();
        for (source, span) in &run.sources {
            let known = self.sources.entry((run.host.clone(), source.clone()));
            let state = known.or_insert_with(|| SourceRun::new(run.run_id, span));
            let hole_end_ns = state.add(run.run_id, span);
            hole_ends.insert(&**source, (hole_end_ns, state.segments));
        }
        let mut left_out = run.left_out;
        for series in &run.series {
            let place = hole_ends.get(&*series.column.source).copied().unwrap_or_default();
            match self.number(run, series).and_then(|number| self.series.get_mut(number)) {
                Some(own) => own.add(&self.grid, run.run_id, series, place),
                None => left_out += 1,
            }
        }
        // Many runs leave out the same series, so a sum would count these series repeatedly.
        self.left_out = self.left_out.max(left_out);
    }

    /// Returns the index of a series. Adds the series if it is new. Returns `None` if there are too
    /// many series.
    fn number(&mut self, run: &RunOverview, series: &SeriesCells) -> Option<usize> {
        let key = (run.host.clone(), series.field.clone(), series.element.clone());
        if let Some(number) = self.known.get(&key) {
            return Some(*number);
        }
        let number = self.series.len();
        if number >= self.series_max {
            return None;
        }
        self.known.insert(key, number);
        self.series.push(SeriesRows {
            host: run.host.clone(),
            column: series.column.clone(),
            label: None,
            identity: Vec::new(),
            held_ns: 0,
            before: None,
            is_after_hole: false,
            last_ns: None,
            pixels: vec![None; self.grid.count],
        });
        Some(number)
    }

    /// Returns the series that have values, in the order of the query, and the number of series
    /// that were left out.
    pub(super) fn finish(self) -> (Vec<OverviewSeries>, u64) {
        let mut series: Vec<OverviewSeries> =
            self.series.into_iter().filter_map(SeriesRows::finish).collect();
        series.sort_by_key(|series| series.column.order);
        name_meanings(&mut series);
        (series, self.left_out)
    }
}

/// Adds the type, unit or kind to the names of fields that have the same name but differ in type,
/// unit or kind.
fn name_meanings(series: &mut [OverviewSeries]) {
    let mut meanings: HashMap<_, Vec<ColumnMeaning>> = HashMap::new();
    // A formula has no name.
    for own in series.iter().filter(|own| !own.column.name.is_empty()) {
        let all = meanings.entry((own.host.clone(), own.column.name.clone())).or_default();
        let meaning = own.column.meaning();
        if !all.contains(&meaning) {
            all.push(meaning);
        }
    }
    for own in series {
        if let Some(all) = meanings.get(&(own.host.clone(), own.column.name.clone())) {
            let suffix = own.column.meaning().suffix(all);
            own.column.name.push_str(&suffix);
        }
    }
}

impl SourceRun {
    fn new(run_id: u64, span: &SourceSpan) -> Self {
        Self { run_id, last: span.first, hole_end_ns: 0, segments: 0 }
    }

    /// Adds the samples of a segment. Returns the end time of the source's last hole before the
    /// first sample.
    fn add(&mut self, run_id: u64, span: &SourceSpan) -> u64 {
        // Sequence numbers begin again with each run.
        if self.run_id != run_id {
            *self = Self::new(run_id, span);
        }
        self.segments += 1;
        if self.last.is_followed_by_hole(span.first, span.hole_ns) {
            self.hole_end_ns = span.first.mono_ns;
        }
        let before_ns = self.hole_end_ns;
        self.last = span.last;
        self.hole_end_ns = before_ns.max(span.hole_end_ns);
        before_ns
    }
}

impl SeriesRows {
    /// Adds the part of the series that a segment contains. `hole_end_ns` is the end time of the
    /// source's last hole before the segment. `segment` is the number of the segment in the run.
    fn add(
        &mut self,
        grid: &PixelGrid,
        run_id: u64,
        series: &SeriesCells,
        (hole_end_ns, segment): (u64, u64),
    ) {
        // From this segment on, another element may have the same label, so the label may have
        // become longer.
        self.column.name.clone_from(&series.column.name);
        self.label.clone_from(&series.label);
        self.identity.clone_from(&series.identity);
        self.held_ns = series.limits.series_ns();
        let ends = &series.ends;
        let before = self.before.replace((run_id, segment, *ends));
        let mut is_after_hole = self.is_after_hole
            || before.is_some_and(|(before_id, _, before)| {
                before_id != run_id
                    || ends.is_after_hole
                    || series.limits.is_hole(before.tail.mono_ns, ends.head.mono_ns, hole_end_ns)
            });
        // If a segment between these two segments does not contain the element, the element has
        // ended.
        let is_next = |before: u64| series.label.is_none() || before + 1 == segment;
        // Segments are summarized separately, so the rate between the last sample of a segment and
        // the first sample of the next segment is computed here.
        if let Some((before_id, before_segment, before)) = before
            && before_id == run_id
            && is_next(before_segment)
            && series.column.is_rate
            && let Some(rate) = series.limits.rate(&before.tail, &ends.head)
        {
            let wall_ns = ends.head.wall_ns;
            self.draw(
                grid.place(wall_ns >> series.bits, series.bits),
                &PixelValues::of(wall_ns, rate),
                is_after_hole,
            );
            is_after_hole = false;
        }
        for cell in &series.cells {
            let place = grid.place(cell.number, series.bits);
            self.draw(place, &cell.values, cell.is_after_hole || is_after_hole);
            is_after_hole = false;
        }
        self.is_after_hole = is_after_hole || ends.is_before_hole;
    }

    fn draw(&mut self, place: Option<usize>, values: &PixelValues, is_after_hole: bool) {
        let Some(pixel) = place.and_then(|place| self.pixels.get_mut(place)) else { return };
        if let Some(known) = pixel {
            known.values.add(values, is_after_hole);
        } else {
            // After the clock was set back, the end of a gap would be before its start, so no gap
            // is added.
            let gap_since_ns = self.last_ns.filter(|last_ns| is_after_hole && *last_ns < values.first_ns);
            *pixel = Some(DrawnPixel { values: *values, gap_since_ns });
        }
        self.last_ns = Some(values.last_ns);
    }

    fn finish(self) -> Option<OverviewSeries> {
        let mut rows = Vec::new();
        for pixel in self.pixels.into_iter().flatten() {
            rows.extend(pixel.gap_since_ns.map(|since_ns| OverviewRow::Gap(since_ns..pixel.values.first_ns)));
            rows.push(OverviewRow::Pixel(pixel.values));
        }
        let Self { host, column, label, identity, held_ns, .. } = self;
        (!rows.is_empty()).then_some(OverviewSeries { host, column, label, identity, held_ns, rows })
    }
}
