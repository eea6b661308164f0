//! The last values of an element, and what they make of the next ones.

use flatcap_format::query::{ColumnValues, ValueColumn};
use flatcap_format::schema::FieldValue;

use super::measure::Measure;
use super::observation::{Observer, SeriesInfo, SeriesStore};

/// Most values of a text that are told apart for one element: a state has a few, and a free text is
/// none.
const STATES_MAX: usize = 8;

/// The last values of an element.
#[derive(Debug)]
pub(super) struct ElementSlot {
    pub(super) seen_ns: u64,
    pub(super) born_ns: Option<u64>,
    pub(super) numbers: Box<[NumberCell]>,
    pub(super) states: Box<[StateCell]>,
    /// The elements of its child processes.
    pub(super) children: Vec<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NumberCell {
    pub(super) last: Option<Number>,
    pub(super) series: Option<u32>,
    /// The parent has what was counted here: it has waited for the process.
    is_inherited: bool,
}

#[derive(Debug, Default)]
pub(super) struct StateCell {
    known: Vec<StateSeries>,
    pub(super) last: Option<usize>,
    /// The series of all states but the usual one.
    away: Option<usize>,
}

#[derive(Debug)]
struct StateSeries {
    text: Box<str>,
    series: Option<usize>,
    /// Samples that have it.
    seen: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Integer(u64),
    Float(f64),
}

/// The element whose series are observed.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeriesPlace {
    pub(super) table: usize,
    pub(super) element: Option<u32>,
    pub(super) born_ns: Option<u64>,
}

impl SeriesPlace {
    pub(super) fn info(&self, column: usize, measure: Measure) -> SeriesInfo {
        SeriesInfo {
            table: self.table,
            column,
            element: self.element,
            measure,
            state: None,
            born_ns: self.born_ns,
            is_newcomer: self.born_ns.is_some(),
        }
    }
}

impl ElementSlot {
    /// Returns the series of the element.
    pub(super) fn series(&self) -> impl Iterator<Item = usize> {
        let numbers = self.numbers.iter().filter_map(|cell| cell.series.map(|series| series as usize));
        let states = self
            .states
            .iter()
            .flat_map(|cell| cell.away.into_iter().chain(cell.known.iter().filter_map(|state| state.series)));
        numbers.chain(states)
    }
}

impl NumberCell {
    /// Returns what a counter grew by since the last sample.
    pub(super) fn growth(&self, now: Option<Number>) -> Option<u64> {
        match (self.last?, now?) {
            (Number::Integer(before), Number::Integer(now)) => now.checked_sub(before),
            _ => None,
        }
    }

    /// Takes what a counter of a process that has ended counted, once, if it is at most `most`.
    pub(super) fn inherit(&mut self, most: u64) -> u64 {
        match self.last {
            Some(Number::Integer(counted)) if counted <= most && !self.is_inherited => {
                self.is_inherited = true;
                counted
            }
            _ => 0,
        }
    }

    /// Counts what others did as if it had been there before.
    pub(super) fn leave_out(&mut self, counted: u64) {
        if let Some(Number::Integer(last)) = &mut self.last {
            *last = last.saturating_add(counted);
        }
    }

    /// Returns the value between the last sample and this one. The counters of a new element were 0
    /// at the sample before.
    #[inline]
    pub(super) fn value(
        &self,
        now: Option<Number>,
        measure: Measure,
        interval_ns: u64,
        is_born: bool,
    ) -> Option<f64> {
        let now = now?;
        if !measure.is_counter {
            return Some(now.float() * measure.factor);
        }
        let before = if is_born { Some(Number::Integer(0)) } else { self.last };
        let grown = match (before?, now) {
            // Most counters stay as they are.
            (Number::Integer(before), Number::Integer(now)) if before == now => return Some(0.0),
            (Number::Integer(before), Number::Integer(now)) => {
                Number::Integer(now.checked_sub(before)?).float()
            }
            (before, now) => Some(now.float() - before.float()).filter(|grown| *grown >= 0.0)?,
        };
        Some(grown * measure.factor / seconds(interval_ns))
    }
}

impl StateCell {
    /// Observes the share of each state, and that of all but the usual one. One that is seen in a
    /// single sample may have been there for a microsecond, so time counts between two samples that
    /// both have it.
    pub(super) fn observe(
        &mut self,
        (place, column): (&SeriesPlace, usize),
        value: FieldValue<'_>,
        span: (u64, u64),
        store: &mut SeriesStore<'_, impl Observer>,
    ) {
        let FieldValue::Text(text) = value else {
            self.last = None;
            return;
        };
        let now = self.number(text);
        let usual = (0..self.known.len()).max_by_key(|at| self.known.get(*at).map(|state| state.seen));
        let before = std::mem::replace(&mut self.last, now);
        if let Some(state) = now.and_then(|now| self.known.get_mut(now)) {
            state.seen += 1;
        }
        if before.is_none() || span.0 == span.1 {
            return;
        }
        let info = |state: Box<str>| SeriesInfo { state: Some(state), ..place.info(column, Measure::STATE) };
        let was_observed = self.known.iter().any(|state| state.series.is_some());
        for (number, state) in self.known.iter_mut().enumerate() {
            let series = *state.series.get_or_insert_with(|| {
                // A state that is new after others was never there before.
                let born_ns = place.born_ns.or(was_observed.then_some(span.0));
                store.begin(SeriesInfo { born_ns, ..info(state.text.clone()) })
            });
            let is_there = now == Some(number) && before == now;
            store.observe(series, span, f64::from(u8::from(is_there)));
        }
        let Some(usual_text) = usual.and_then(|usual| Some(&self.known.get(usual)?.text)) else { return };
        let away = *self.away.get_or_insert_with(|| store.begin(info(format!("not {usual_text}").into())));
        store.observe(away, span, f64::from(u8::from(now != usual && before != usual)));
    }

    /// Returns the number of a state; none for a further one of too many.
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

impl Number {
    #[allow(clippy::cast_precision_loss, reason = "statistics: 53 bits are plenty")]
    fn float(self) -> f64 {
        match self {
            Self::Integer(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}

#[inline]
pub(super) fn number(column: &ValueColumn, row: usize) -> Option<Number> {
    match &column.values {
        ColumnValues::Unsigned(values) if column.valid.has(row) => {
            values.get(row).copied().map(Number::Integer)
        }
        ColumnValues::Unsigned(_) => None,
        _ => column.number(row).filter(|number| number.is_finite()).map(Number::Float),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a length of time")]
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
