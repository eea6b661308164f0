//! The last values of an element, and the observations that result from the next values.

use std::ops::Range;

use flatcap_format::schema::FieldValue;
use flatcap_query::{ColumnBatch, ColumnValues, ValueColumn};

use super::element_row::{ElementRow, INTERVAL_MAX_NS, Number, SeriesPlace, grown, number, seconds};
use super::fresh_values::FreshCell;
use super::measure::{Measure, ValueClass};
use super::observation::{Observation, Observer, SeriesInfo, SeriesStore};

/// Maximum number of different string values per element.
// A field with states has few different values, and free text is not a state.
const STATES_MAX: usize = 8;
/// Length of the time after the start of a new element in which its observations are not joined.
// This time covers the blocks that the element's baseline needs, and one more block.
const YOUNG_NS: u64 = 10_000_000_000;
/// Length of the first observation after the end of an element.
const REST_BEGIN_NS: u64 = 1_000_000;
/// The columns of a table that become series.
#[derive(Debug, Clone, Copy)]
pub(super) struct FollowedColumns<'t> {
    /// Columns with numbers.
    pub(super) numbers: &'t [(usize, Measure)],
    /// Columns with strings.
    pub(super) states: &'t [usize],
    /// Whether the elements are processes of the host, whose states the kernel defines.
    pub(super) are_processes: bool,
}

/// States in which a process sleeps or has ended.
// These states are not evidence, because the process used nothing and no other process delays it.
const IDLE_STATES: [&str; 8] = ["S", "I", "Z", "X", "x", "P", "K", "W"];
/// The states of a process that runs, or waits for a device or a lock.
pub(super) const BUSY_STATES: [&str; 2] = ["R", "D"];
/// The name of the series with the combined share of [`BUSY_STATES`].
pub(super) const BUSY: &str = "R or D";
/// The last values of an element.
#[derive(Debug)]
pub(super) struct ElementSlot {
    pub(super) seen_ns: Option<u64>,
    /// Index of the last sample of the table that contains the element.
    pub(super) seen_sample: u64,
    pub(super) born_ns: Option<u64>,
    pub(super) numbers: Box<[NumberCell]>,
    pub(super) states: Box<[StateCell]>,
    /// Repeated and missing values in columns of applications and imports; empty for columns of the
    /// host.
    pub(super) fresh: Box<[FreshCell]>,
    /// The elements of the child processes.
    pub(super) children: Vec<u32>,
    /// Whether the element is a kernel thread. The states of kernel threads are not observed,
    /// because these threads wait until other threads need them.
    pub(super) is_of_kernel: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NumberCell {
    pub(super) last: Option<Number>,
    series: Option<u32>,
    /// The last observation. It is held back until a different value is observed.
    held: Option<Observation>,
    /// Whether the counts of this process were added to its parent, because the parent has waited
    /// for it.
    is_inherited: bool,
}

#[derive(Debug, Default)]
pub(super) struct StateCell {
    known: Vec<StateSeries>,
    pub(super) last: Option<usize>,
    /// The series with the combined share of all states except the usual state.
    away: Option<usize>,
}

#[derive(Debug)]
struct StateSeries {
    text: Box<str>,
    series: Option<usize>,
    /// Number of samples in which the element had the state.
    seen: u64,
}

/// The rows of an element that are observed together.
#[derive(Debug)]
struct ElementRun<'r> {
    rows: &'r [ElementRow],
    /// Distance between the indexes of neighbouring rows, or `None` if the distances differ.
    stride: Option<usize>,
    /// Whether all rows belong to the same element and none comes after a hole.
    are_close: bool,
}

impl<'r> ElementRun<'r> {
    fn new(rows: &'r [ElementRow]) -> Self {
        let mut distances =
            rows.iter().zip(rows.iter().skip(1)).map(|(one, next)| next.row.saturating_sub(one.row));
        let stride = distances.next().filter(|first| *first > 0 && distances.all(|other| other == *first));
        Self {
            rows,
            stride,
            are_close: rows.iter().all(|row| row.interval_ns().is_some() && !row.is_another),
        }
    }
}

impl ElementSlot {
    /// Observes the next rows of the element.
    pub(super) fn observe<O: Observer>(
        &mut self,
        batch: &ColumnBatch,
        rows: &[ElementRow],
        columns: FollowedColumns<'_>,
        store: &mut SeriesStore<'_, O>,
    ) {
        let Some(first) = rows.first() else { return };
        let place =
            SeriesPlace { table: batch.table, element: batch.element(first.row), born_ns: self.born_ns };
        // New elements are compared with other elements soon after they begin.
        let is_young = self.born_ns.is_some_and(|born_ns| first.from_ns < born_ns.saturating_add(YOUNG_NS));
        let joins = O::JOINS && !is_young;
        let mut observations = std::mem::take(store.observations);
        let run = ElementRun::new(rows);
        for ((column, measure), cell) in columns.numbers.iter().zip(&mut self.numbers) {
            let Some(values) = batch.columns.get(*column) else { continue };
            observations.clear();
            let ranges = batch.ranges.iter().find(|(counter, _)| counter == column).map(|(_, ranges)| ranges);
            cell.add((values, ranges), &run, *measure, (joins, &mut observations));
            cell.observe(&observations, || place.info(*column, *measure), store);
        }
        *store.observations = observations;
        for ((column, _), cell) in columns.numbers.iter().zip(&mut self.fresh) {
            let Some(values) = batch.columns.get(*column) else { continue };
            for row in rows {
                cell.observe((&place, *column), number(values, row.row), row, store);
            }
        }
        let states = if self.is_of_kernel { &[] } else { columns.states };
        for (column, cell) in states.iter().zip(&mut self.states) {
            let Some(values) = batch.columns.get(*column) else { continue };
            for row in rows {
                if row.is_another {
                    cell.last = None;
                }
                let span = (row.from_ns, row.to_ns);
                if columns.are_processes {
                    cell.observe_process((&place, *column), values.get(row.row), span, store);
                } else {
                    cell.observe((&place, *column), values.get(row.row), span, store);
                }
            }
        }
    }

    /// Passes the observations that are held back to the observer.
    pub(super) fn flush(
        &mut self,
        (table, element): (usize, Option<u32>),
        columns: FollowedColumns<'_>,
        store: &mut SeriesStore<'_, impl Observer>,
    ) {
        let place = SeriesPlace { table, element, born_ns: self.born_ns };
        for ((column, measure), cell) in columns.numbers.iter().zip(&mut self.numbers) {
            let held = cell.held.take();
            cell.observe(held.as_slice(), || place.info(*column, *measure), store);
        }
    }

    /// Returns the time after the end of the element, up to a time.
    pub(super) fn time_after(&self, end_ns: u64, until_ns: u64) -> Range<u64> {
        let from_ns = self.seen_ns.unwrap_or_default().max(end_ns);
        from_ns..until_ns.max(from_ns)
    }

    /// Observes that the element used nothing in a range of time, because it had ended.
    pub(super) fn rest(
        &mut self,
        span: &Range<u64>,
        columns: FollowedColumns<'_>,
        store: &mut SeriesStore<'_, impl Observer>,
    ) {
        if span.is_empty() {
            return;
        }
        // A short first part shows when the rest begins.
        let first_end = span.start.saturating_add(REST_BEGIN_NS).min(span.end);
        let part = |from_ns, to_ns| Observation { from_ns, to_ns, value: 0.0 };
        let parts = [part(span.start, first_end), part(first_end, span.end)];
        let nothing = parts.get(..1 + usize::from(first_end < span.end)).unwrap_or_default();
        for ((_, measure), cell) in columns.numbers.iter().zip(&self.numbers) {
            // Memory that an ended process no longer uses is no finding of its own.
            if let Some(series) = cell.series.filter(|_| measure.class == ValueClass::TimeShare) {
                store.observe(series as usize, nothing);
            }
        }
    }

    /// Returns the series of the element.
    pub(super) fn series(&self) -> impl Iterator<Item = usize> {
        let numbers = self.numbers.iter().filter_map(|cell| cell.series.map(|series| series as usize));
        let states = self
            .states
            .iter()
            .flat_map(|cell| cell.away.into_iter().chain(cell.known.iter().filter_map(|state| state.series)));
        let fresh = self.fresh.iter().flat_map(|cell| cell.unchanged.into_iter().chain(cell.absent));
        numbers.chain(states).chain(fresh)
    }
}

impl NumberCell {
    fn observe(
        &mut self,
        observations: &[Observation],
        info: impl FnOnce() -> SeriesInfo,
        store: &mut SeriesStore<'_, impl Observer>,
    ) {
        if observations.is_empty() {
            return;
        }
        let begin = || u32::try_from(store.begin(info())).unwrap_or(u32::MAX);
        let series = *self.series.get_or_insert_with(begin);
        store.observe(series as usize, observations);
    }

    /// Returns the value of a counter of an ended process if it is at most `most`, otherwise 0.
    /// Only the first call returns the value.
    pub(super) fn inherit(&mut self, most: u64) -> u64 {
        match self.last {
            Some(Number::Integer(counted)) if counted <= most && !self.is_inherited => {
                self.is_inherited = true;
                counted
            }
            _ => 0,
        }
    }

    /// Forgets the last value, because later growth may come from other elements.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Adds the observations of the next rows to `observations`. If observations are joined, an
    /// observation continues while the value stays the same. The observation is held back until the
    /// value changes.
    fn add(
        &mut self,
        (values, ranges): (&ValueColumn, Option<&ValueColumn>),
        run: &ElementRun<'_>,
        measure: Measure,
        (joins, observations): (bool, &mut Vec<Observation>),
    ) {
        // The values of absent rows are arbitrary numbers, which must not be compared.
        let may_continue = joins && run.are_close && values.valid.are_all();
        let numbers = match &values.values {
            ColumnValues::Unsigned(numbers) if may_continue => numbers,
            _ => &[][..],
        };
        let mut rest = run.rows;
        while let Some((row, after)) = rest.split_first() {
            // Most values of most columns do not change.
            let continued = self.continue_held(numbers, run.stride, rest, measure);
            if continued == 0 {
                let wraps_at = ranges.and_then(|ranges| number(ranges, row.row));
                self.add_row((number(values, row.row), wraps_at), row, measure, (joins, observations));
                rest = after;
            } else {
                rest = rest.get(continued..).unwrap_or_default();
            }
        }
    }

    /// Extends the held observation to the next rows that have the same value. Returns the number
    /// of these rows, or 0 if `numbers` is empty.
    #[inline]
    fn continue_held(
        &mut self,
        numbers: &[u64],
        stride: Option<usize>,
        rows: &[ElementRow],
        measure: Measure,
    ) -> usize {
        let (Some(first), Some(Number::Integer(last))) = (rows.first(), self.last) else { return 0 };
        if numbers.get(first.row) != Some(&last) {
            return 0;
        }
        let value = if measure.is_counter { 0.0 } else { Number::Integer(last).float() * measure.factor };
        let Some(held) = self.held.as_mut().filter(|held| held.continues(first.from_ns, value)) else {
            return 0;
        };
        let equal = rows.get(..equal_rows(numbers, stride, rows, last)).unwrap_or_default();
        // Times rise, so the check of the last row usually avoids the search.
        let count = match equal.last() {
            Some(last) if held.may_grow(last.from_ns) => equal.len(),
            _ => equal.partition_point(|row| held.may_grow(row.from_ns)),
        };
        if let Some(last) = count.checked_sub(1).and_then(|last| equal.get(last)) {
            held.to_ns = last.to_ns;
        }
        count
    }

    #[inline]
    fn add_row(
        &mut self,
        (now, wraps_at): (Option<Number>, Option<Number>),
        row: &ElementRow,
        measure: Measure,
        (joins, observations): (bool, &mut Vec<Observation>),
    ) {
        if row.is_another {
            self.last = None;
        }
        let value = self.value((now, wraps_at), measure, row);
        let before = std::mem::replace(&mut self.last, now);
        let Some(value) = value else { return };
        let mut next = Observation { from_ns: row.from_ns, to_ns: row.to_ns, value };
        // Intermediate samples left out the element because it did little, so its level was
        // unchanged.
        if !measure.is_counter
            && row.from_ns < row.before_ns
            && let Some(level) = before.map(|before| before.float() * measure.factor)
            && level.to_bits() != value.to_bits()
        {
            next.from_ns = row.before_ns;
            let resting = Observation { from_ns: row.from_ns, to_ns: row.before_ns, value: level };
            self.push(resting, (joins, observations));
        }
        self.push(next, (joins, observations));
    }

    #[inline]
    fn push(&mut self, next: Observation, (joins, observations): (bool, &mut Vec<Observation>)) {
        if let Some(held) = self.held.as_mut().filter(|held| held.continues(next.from_ns, next.value)) {
            held.to_ns = next.to_ns;
        } else if joins {
            observations.extend(self.held.replace(next));
        } else {
            observations.push(next);
        }
    }

    /// Returns the value for the time between the previous sample and the current sample. The
    /// counters of a new element count as 0 at the previous sample.
    #[inline]
    fn value(
        &self,
        (now, wraps_at): (Option<Number>, Option<Number>),
        measure: Measure,
        row: &ElementRow,
    ) -> Option<f64> {
        let (now, interval_ns) = (now?, row.interval_ns()?);
        if !measure.is_counter {
            return Some(now.float() * measure.factor);
        }
        let before = if row.is_born { Some(Number::Integer(0)) } else { self.last };
        let grown = match (before?, now) {
            // Most counters do not change.
            (Number::Integer(before), Number::Integer(now)) if before == now => return Some(0.0),
            // A counter of fractions was also 0 before its element began.
            (Number::Integer(0), Number::Float(_)) => grown(Number::Float(0.0), now, wraps_at, interval_ns)?,
            (before, now) => grown(before, now, wraps_at, interval_ns)?,
        };
        Some(grown * measure.factor / seconds(interval_ns))
    }
}

impl StateCell {
    /// Observes the share of each state in which a process runs, waits or is stopped. Also observes
    /// the combined share of [`BUSY_STATES`].
    fn observe_process(
        &mut self,
        (place, column): (&SeriesPlace, usize),
        value: FieldValue<'_>,
        span: (u64, u64),
        store: &mut SeriesStore<'_, impl Observer>,
    ) {
        let Some((before, now)) = self.follow(value, span) else { return };
        let info =
            |state: &str| SeriesInfo { state: Some(state.into()), ..place.info(column, Measure::STATE) };
        // If the element had other states before, the share of a new state was 0 until now.
        let born_ns = place.born_ns.or((self.known.len() > 1).then_some(span.0));
        for (number, state) in self.known.iter_mut().enumerate() {
            if IDLE_STATES.contains(&&*state.text) {
                continue;
            }
            let begin = || store.begin(SeriesInfo { born_ns, ..info(&state.text) });
            let series = *state.series.get_or_insert_with(begin);
            let is_there = now == Some(number) && before == now;
            store.observe(series, &[state_observation(span, is_there)]);
        }
        let is_busy = |state: Option<usize>| {
            let state = state.and_then(|number| self.known.get(number));
            state.is_some_and(|state| BUSY_STATES.contains(&&*state.text))
        };
        let busy = (is_busy(before), is_busy(now));
        let count = self.known.iter().filter(|state| BUSY_STATES.contains(&&*state.text)).count();
        // For a single state, the combined share would repeat the share of that state.
        if count == BUSY_STATES.len() {
            let begin = || store.begin(info(BUSY));
            let series = *self.away.get_or_insert_with(begin);
            store.observe(series, &[state_observation(span, busy.0 && busy.1)]);
        }
    }

    /// Observes the share of each state, and the combined share of all states except the usual one.
    /// A state in a single sample may have lasted only a microsecond. So only the time between two
    /// samples that both have the state counts as time in the state.
    pub(super) fn observe(
        &mut self,
        (place, column): (&SeriesPlace, usize),
        value: FieldValue<'_>,
        span: (u64, u64),
        store: &mut SeriesStore<'_, impl Observer>,
    ) {
        // The usual state is found before this sample is counted, so that a new state cannot become
        // the usual one by itself.
        let usual = (0..self.known.len()).max_by_key(|at| self.known.get(*at).map(|state| state.seen));
        let Some((before, now)) = self.follow(value, span) else { return };
        let info = |state: Box<str>| SeriesInfo { state: Some(state), ..place.info(column, Measure::STATE) };
        let was_observed = self.known.iter().any(|state| state.series.is_some());
        for (number, state) in self.known.iter_mut().enumerate() {
            let series = *state.series.get_or_insert_with(|| {
                // If the element had other states before, the share of a new state was 0 until now.
                let born_ns = place.born_ns.or(was_observed.then_some(span.0));
                store.begin(SeriesInfo { born_ns, ..info(state.text.clone()) })
            });
            let is_there = now == Some(number) && before == now;
            store.observe(series, &[state_observation(span, is_there)]);
        }
        let Some(usual_text) = usual.and_then(|usual| Some(&self.known.get(usual)?.text)) else { return };
        let away = *self.away.get_or_insert_with(|| store.begin(info(format!("not {usual_text}").into())));
        store.observe(away, &[state_observation(span, now != usual && before != usual)]);
    }

    /// Stores the state of the next sample. Returns the states at the previous sample and at the
    /// current sample. Returns `None` for the first sample and after a hole.
    fn follow(
        &mut self,
        value: FieldValue<'_>,
        (from_ns, to_ns): (u64, u64),
    ) -> Option<(Option<usize>, Option<usize>)> {
        let now = if let FieldValue::Text(text) = value { self.number(text) } else { None };
        if let Some(state) = now.and_then(|now| self.known.get_mut(now)) {
            state.seen += 1;
        }
        let before = std::mem::replace(&mut self.last, now);
        let has_text = matches!(value, FieldValue::Text(_));
        let is_interval = (1..=INTERVAL_MAX_NS).contains(&to_ns.saturating_sub(from_ns));
        (has_text && before.is_some() && is_interval).then_some((before, now))
    }

    /// Returns the index of a state, or `None` if the limit on states is reached.
    fn number(&mut self, text: &str) -> Option<usize> {
        let known = self.known.iter().position(|state| *state.text == *text);
        known.or_else(|| {
            (self.known.len() < STATES_MAX).then(|| {
                self.known.push(StateSeries { text: text.into(), series: None, seen: 0 });
                self.known.len() - 1
            })
        })
    }
}

/// Returns the number of next rows that have this value.
#[inline]
fn equal_rows(numbers: &[u64], stride: Option<usize>, rows: &[ElementRow], value: u64) -> usize {
    let [first, _, ..] = rows else {
        return rows.iter().filter(|row| numbers.get(row.row) == Some(&value)).count();
    };
    let from_first = numbers.get(first.row..).unwrap_or_default();
    match stride {
        Some(1) => {
            let own = from_first.get(..rows.len()).unwrap_or(from_first);
            own.iter().take_while(|number| **number == value).count()
        }
        Some(stride) => {
            let own = from_first.iter().step_by(stride).take(rows.len());
            own.take_while(|number| **number == value).count()
        }
        None => rows.iter().take_while(|row| numbers.get(row.row) == Some(&value)).count(),
    }
}

fn state_observation((from_ns, to_ns): (u64, u64), is_there: bool) -> Observation {
    Observation { from_ns, to_ns, value: f64::from(u8::from(is_there)) }
}

#[cfg(test)]
mod tests {
    use flatcap_query::{BatchTimes, RowSource, ValidRows};

    use super::super::measure::ValueClass;
    use super::super::series::tests::Recorded;
    use super::*;

    /// Observes rows (time, value) in batches of these lengths. Before each row, the batch contains
    /// the given number of rows of other elements.
    fn observed<const JOINS: bool>(
        rows: &[(u64, u64)],
        (batches, others): (&[usize], usize),
        measure: Measure,
    ) -> Recorded<JOINS> {
        let mut observer = Recorded::<JOINS>::default();
        let (mut series, mut free, mut left_out, mut observations) = (Vec::new(), Vec::new(), 0, Vec::new());
        let mut store = SeriesStore {
            series: &mut series,
            free: &mut free,
            left_out: &mut left_out,
            observer: &mut observer,
            observations: &mut observations,
        };
        let mut slot = ElementSlot {
            seen_ns: None,
            seen_sample: 0,
            born_ns: None,
            numbers: Box::new([NumberCell::default()]),
            states: Box::new([]),
            fresh: Box::new([]),
            children: Vec::new(),
            is_of_kernel: false,
        };
        let columns = FollowedColumns { numbers: &[(0, measure)], states: &[], are_processes: false };
        let (mut rest, mut before_ns) = (rows, rows[0].0);
        for length in batches.iter().cycle() {
            let (own, after) = rest.split_at((*length).min(rest.len()));
            let batch = ColumnBatch {
                table: 0,
                times: BatchTimes::default(),
                rows: RowSource::Samples,
                columns: vec![ValueColumn {
                    values: ColumnValues::Unsigned(
                        own.iter()
                            .flat_map(|(_, value)| std::iter::repeat_n(7, others).chain([*value]))
                            .collect(),
                    ),
                    valid: ValidRows::all(own.len() * (others + 1)),
                }],
                ..ColumnBatch::default()
            };
            let mut element_rows = Vec::new();
            for (row, (to_ns, _)) in own.iter().enumerate() {
                let (from_ns, to_ns) = (std::mem::replace(&mut before_ns, *to_ns), *to_ns);
                let row = row * (others + 1) + others;
                element_rows.push(ElementRow {
                    row,
                    from_ns,
                    to_ns,
                    before_ns: from_ns,
                    is_born: false,
                    is_another: false,
                });
            }
            slot.observe(&batch, &element_rows, columns, &mut store);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        slot.flush((0, None), columns, &mut store);
        observer
    }

    // Proves that joined observations describe the same values as single observations, and are far
    // fewer. The test uses counters and gauges that change or rest, holes, and batches with one row
    // or many rows. The numbers are random with fixed seeds.
    #[test]
    fn joined_observations_say_what_single_ones_say() {
        let (mut single_calls, mut joined_calls) = (0, 0);
        for seed in 1..400_u64 {
            let mut state = seed;
            let mut random = |below: u64| {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                (state >> 33) % below
            };
            let (mut now_ns, mut value, changes) = (1_000_000_000, random(3), 1 + random(40));
            let rows: Vec<(u64, u64)> = (0..600)
                .map(|_| {
                    now_ns += if random(200) == 0 { INTERVAL_MAX_NS + 7 } else { 100_000_000 };
                    // A counter may start again at 0.
                    if random(changes) == 0 {
                        value = if random(9) == 0 { random(3) } else { value + random(1000) };
                    }
                    (now_ns, value)
                })
                .collect();
            let batches: Vec<usize> = (0..5).map(|_| if random(2) == 0 { 1 } else { 300 }).collect();
            for is_counter in [false, true] {
                let measure = Measure { class: ValueClass::Count, factor: 0.5, is_counter, ..Measure::STATE };
                let single = observed::<false>(&rows, (&[1], 0), measure);
                let joined = observed::<true>(&rows, (&batches, usize::from(seed % 3 == 0)), measure);
                assert_eq!(
                    joined.functions, single.functions,
                    "seed {seed}, counter: {is_counter}, {batches:?}"
                );
                (single_calls, joined_calls) = (single_calls + single.calls, joined_calls + joined.calls);
            }
        }
        assert!(joined_calls * 3 < single_calls, "{joined_calls} of {single_calls}");
    }
}
