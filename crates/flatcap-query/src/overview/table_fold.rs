//! Summarizes the series of one table in one run.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use flatcap_format::schema::{ColumnType, CountedValue, CounterHistory, ElementPresence};

use super::drawn_value::{DrawnFields, DrawnValue};
use super::formula_fold::FormulaFold;
use super::series_cells::{HoleLimits, SampleNumber, SamplePoint, SeriesFold, SourceSpan};
use super::thinned_numbers::ThinnedNumbers;
use super::whole_samples::WholeTimes;
use crate::columns::batch::{BatchTimes, ColumnBatch, RowSource};
use crate::names::elements::{ElementName, ElementNames, NO_ELEMENT};
use crate::plan::TableInfo;

/// The parameters of the summary of a segment.
#[derive(Debug, Clone)]
pub(super) struct SegmentRequest {
    pub(super) fields: Arc<DrawnFields>,
    /// Whether counters are drawn as their change per second.
    pub(super) is_rate: bool,
    /// Binary logarithm of the length of a cell in nanoseconds. A cell is 2^`bits` nanoseconds
    /// long.
    pub(super) bits: u32,
    /// Maximum number of series. Series above this limit are only counted.
    pub(super) series_max: usize,
    /// The period of each source.
    pub(super) periods: Arc<BTreeMap<String, u64>>,
}

/// The number of series that may still be added, and the number of series that were left out.
#[derive(Debug)]
pub(super) struct SeriesLimit {
    pub(super) remaining: usize,
    pub(super) left_out: u64,
}

/// Summarizes the series of one table.
#[derive(Debug)]
pub(super) struct TableFold {
    pub(super) limits: HoleLimits,
    /// The columns that are drawn. The flag of a column is true if the column is drawn as a rate.
    /// These columns contain numbers.
    pub(super) columns: Vec<(usize, bool)>,
    pub(super) formulas: Vec<FormulaFold>,
    pub(super) bits: u32,
    /// For each name of an element, the location of its series. The index is the id of the name.
    places: Vec<ElementPlace>,
    /// The elements that have series, with their names. Each name of an element has its own series.
    pub(super) elements: Vec<Option<(u32, ElementName)>>,
    known: HashMap<(u32, ElementName), ElementPlace>,
    /// For each element, the last name of the element and the name of its current series. The index
    /// is the id of the element.
    pub(super) latest: Vec<(ElementName, ElementName)>,
    /// For each entry of `elements`, its series, one per column.
    pub(super) series: Vec<SeriesFold>,
    /// The first and the last sample of the source. `None` before the first sample.
    pub(super) span: Option<SourceSpan>,
    /// The id of the source to which the latest samples belong.
    pub(super) source: Option<u16>,
    /// The elements in the samples that were read so far, with their counters.
    pub(super) history: CounterHistory,
}

/// The location of an element's series.
#[derive(Debug, Clone, Copy)]
enum ElementPlace {
    Unknown,
    /// The position of the series in the list of elements that have series.
    At(usize),
    LeftOut,
}

/// Successive samples of a batch. There is no hole between these samples.
pub(super) struct WholePart {
    pub(super) samples: Range<usize>,
    pub(super) hole_end_ns: u64,
}

impl TableFold {
    pub(super) fn new(info: &TableInfo, request: &SegmentRequest) -> Self {
        let period_ns = request.periods.get(&*info.source).copied().unwrap_or_default();
        let (mut columns, mut formulas) = (Vec::new(), Vec::<FormulaFold>::new());
        for (number, column) in info.columns.iter().enumerate() {
            let (value, field) = request.fields.owner(column.order);
            if let Some(DrawnValue::Formula(formula, _)) = request.fields.values.get(value) {
                let place = formulas.iter().position(|own| own.value == value).unwrap_or_else(|| {
                    formulas.push(FormulaFold::new(value, formula, request.bits));
                    formulas.len() - 1
                });
                if let Some(own) = formulas.get_mut(place) {
                    own.bind(field, number);
                }
            } else if column.column_type != ColumnType::Text {
                columns.push((number, request.is_rate && column.has_rate()));
            }
        }
        Self {
            limits: HoleLimits::of(period_ns, info.list.is_some()),
            columns,
            formulas,
            bits: request.bits,
            places: Vec::new(),
            elements: Vec::new(),
            known: HashMap::new(),
            latest: Vec::new(),
            series: Vec::new(),
            span: None,
            source: None,
            history: CounterHistory::default(),
        }
    }

    /// Splits the samples of a batch at the holes of the source. A hole is a place at which
    /// sequence numbers are missing or the time between two samples is too long.
    pub(super) fn parts(
        &mut self,
        source: u16,
        times: &BatchTimes,
        thinned: &ThinnedNumbers,
    ) -> Vec<WholePart> {
        let (mut parts, mut start) = (Vec::new(), 0);
        let numbers = times.seq.iter().zip(&times.mono_ns);
        let numbers = numbers.map(|(seq, mono_ns)| SampleNumber { seq: *seq, mono_ns: *mono_ns });
        let Some(first) = numbers.clone().next() else { return parts };
        let is_other = self.source.replace(source).is_some_and(|last| last != source);
        let span = self.span.get_or_insert(SourceSpan::new(first, self.limits));
        if is_other {
            // Another source with this name has begun. The sequence numbers of the new source are
            // independent of the sequence numbers of the earlier source.
            (span.hole_end_ns, span.last) = (first.mono_ns, first);
        }
        for (sample, now) in numbers.enumerate() {
            let next_seq = span.last.seq.wrapping_add(1);
            let between_ns = now.mono_ns.saturating_sub(span.last.mono_ns);
            // If the only missing samples of a source were left out on purpose, the source has no
            // hole.
            let is_thinned = now.seq > next_seq
                && thinned.skip(next_seq) == now.seq
                && self.limits.follow(between_ns, now.seq - span.last.seq);
            if is_thinned {
                span.hole_ns = self.limits.source_ns();
            } else if span.last.is_followed_by_hole(now, span.hole_ns) {
                parts.push(WholePart { samples: start..sample, hole_end_ns: span.hole_end_ns });
                span.hole_end_ns = now.mono_ns;
                start = sample;
            }
            span.last = now;
        }
        parts.push(WholePart { samples: start..times.len(), hole_end_ns: span.hole_end_ns });
        parts
    }

    pub(super) fn add(
        &mut self,
        batch: &ColumnBatch,
        (rows, kinds): (Range<usize>, &[ElementPresence]),
        (hole_end_ns, names): (u64, &ElementNames),
        limit: &mut SeriesLimit,
    ) {
        for row in rows.clone() {
            self.begin((batch.element(row), batch.name(row)), names, limit);
        }
        let Self { columns, places, series, limits, .. } = self;
        // Only a table without elements has exactly one row in each sample.
        let whole = match (&batch.rows, places.as_slice()) {
            (RowSource::Samples, [ElementPlace::At(0)]) => {
                WholeTimes::of(&batch.times, rows.clone(), limits.series_ns())
            }
            _ => None,
        };
        for (number, (column, is_rate)) in columns.iter().enumerate() {
            let Some(values) = batch.columns.get(*column) else { continue };
            if let (Some(whole), Some(fold)) = (&whole, series.get_mut(number))
                && fold.add_whole(whole, (values, rows.clone()), (*limits, hole_end_ns))
            {
                continue;
            }
            for row in rows.clone() {
                let Some(ElementPlace::At(at)) = places.get(slot_of(batch.name(row))) else { continue };
                let Some(fold) = series.get_mut(at * columns.len() + number) else { continue };
                let Some(value) = values.number(row) else { continue };
                let sample = batch.sample(row);
                let times = (batch.times.mono_ns.get(sample), batch.times.wall_ns.get(sample));
                let (Some(mono_ns), Some(wall_ns)) = times else { continue };
                let kind = kinds.get(row).copied().unwrap_or(ElementPresence::Known);
                let is_counted = *is_rate && kind != ElementPresence::Ambiguous;
                let counted = if is_counted { CountedValue::of(values.get(row)) } else { None };
                let point = SamplePoint { mono_ns: *mono_ns, wall_ns: *wall_ns, counted };
                fold.add(point, value, (*limits, hole_end_ns), kind == ElementPresence::New);
            }
        }
    }

    /// Records the names of the elements in a batch. A row begins a series if its name differs from
    /// the last name of its element.
    pub(super) fn note_names(
        &mut self,
        batch: &ColumnBatch,
        names: &ElementNames,
        kinds: &mut [ElementPresence],
    ) {
        for (row, kind) in kinds.iter_mut().enumerate() {
            let (Some(element), Some(name)) = (batch.element(row), batch.name(row)) else { continue };
            let place = element as usize;
            if element == NO_ELEMENT || self.latest.get(place).is_some_and(|(last, _)| *last == name) {
                continue;
            }
            if self.latest.len() <= place {
                self.latest.resize(place + 1, (ElementName::NONE, ElementName::NONE));
            }
            let Some(own) = self.latest.get_mut(place) else { continue };
            let title = names.title(name);
            let (_, before) = std::mem::replace(own, (name, title));
            // A field that only describes the element may change at any time, so a new series
            // begins only if the title changes.
            if *kind == ElementPresence::Known && before != ElementName::NONE && before != title {
                *kind = ElementPresence::New;
            }
        }
    }

    /// Begins the series of an element with this name, unless the series has begun already.
    fn begin(
        &mut self,
        (element, name): (Option<u32>, Option<ElementName>),
        names: &ElementNames,
        limit: &mut SeriesLimit,
    ) {
        if element == Some(NO_ELEMENT) || name == Some(ElementName::NONE) {
            // Elements without an id cannot be counted, so the number of series that were left out
            // is only a lower bound.
            limit.left_out = limit.left_out.max(self.columns.len() as u64);
            return;
        }
        let slot = slot_of(name);
        if !matches!(self.places.get(slot), None | Some(ElementPlace::Unknown)) {
            return;
        }
        if self.places.len() <= slot {
            self.places.resize(slot + 1, ElementPlace::Unknown);
        }
        let key = element.zip(name.map(|name| names.title(name)));
        let known = key.and_then(|key| self.known.get(&key)).copied();
        // Either all series of an element are kept, or none of them.
        let is_possible = self.columns.len() <= limit.remaining;
        let new = if is_possible { ElementPlace::At(self.elements.len()) } else { ElementPlace::LeftOut };
        let own = known.unwrap_or(new);
        if let Some(place) = self.places.get_mut(slot) {
            *place = own;
        }
        if known.is_some() {
            return;
        }
        self.known.extend(key.map(|key| (key, own)));
        if is_possible {
            limit.remaining -= self.columns.len();
            self.elements.push(key);
            let new = self.columns.iter().map(|(_, is_rate)| SeriesFold::new(self.bits, *is_rate));
            self.series.extend(new);
        } else {
            limit.left_out += self.columns.len() as u64;
        }
    }
}

/// Adds the samples of a batch to the history of its elements. Returns, for each row, whether its
/// element is new, already known, or ambiguous. Returns an empty list if the table is not a list.
pub(super) fn element_rows(
    history: &mut CounterHistory,
    batch: &ColumnBatch,
    names: &ElementNames,
) -> Vec<ElementPresence> {
    let RowSource::Elements { elements, .. } = &batch.rows else { return Vec::new() };
    let (mut rows, mut places) = (Vec::with_capacity(elements.len()), Vec::new());
    for sample in 0..batch.times.len() {
        history.begin_sample(batch.leaves_out(sample));
        places.clear();
        while rows.len() + places.len() < elements.len() && batch.sample(rows.len() + places.len()) == sample
        {
            let element = elements.get(rows.len() + places.len()).filter(|element| **element != NO_ELEMENT);
            places.push(
                element
                    .map_or(usize::MAX, |element| history.add_element(u64::from(names.first_of(*element)))),
            );
        }
        rows.extend(places.iter().map(|place| history.row(*place)));
    }
    rows
}

/// Returns the index in `places` for a name of an element. A table that is not a list has only the
/// index 0.
fn slot_of(name: Option<ElementName>) -> usize {
    name.map_or(0, |name| name.0 as usize)
}
