//! The shape of a table, namely the columns that become series. This module also leaves out the
//! growth of counters that other processes caused.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use flatcap_format::schema::{FieldValue, MetricKind};
use flatcap_query::{ColumnBatch, ColumnInfo, NO_ELEMENT, RowSource, TableInfo};

use super::element_row::{growth, number, seconds};
use super::element_rows::ElementRows;
use super::element_slot::{ElementSlot, FollowedColumns, NumberCell, StateCell};
use super::fresh_values::FreshCell;
use super::measure::{Measure, ValueClass, unit_seconds};

/// An element counts as new if it was missing for this time before it appeared.
// One sample per second contains all elements.
pub(super) const NEW_AFTER_NS: u64 = 2_200_000_000;
/// Maximum length of a chain of parents.
const PARENTS_MAX: usize = 64;
/// Minimum share of the growth of a parent's counter that is attributed to ended processes. The
/// growth is left out if ended processes had counted at least this share, or if a list of ended
/// processes has an exit below the parent.
const INHERITED_PART: f64 = 0.05;
/// Maximum number of ended processes in memory.
pub(super) const EXITS_MAX: usize = 1 << 14;

/// Sources whose values the recorder did not measure on its host.
#[derive(Debug, Default)]
pub(super) struct ForeignSources {
    /// Sources of applications and imports. The scale of the values of these sources is unknown.
    pub(super) names: BTreeSet<String>,
    /// The sources that a program pushed. Their elements are not processes, control groups or
    /// devices of the host, whatever their names are.
    pub(super) pushed: BTreeSet<String>,
}

/// Facts about a process in addition to its series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessFacts {
    pub(super) pid: u64,
    /// The start time in the identity of the element.
    pub(super) start: Option<u64>,
    pub(super) parent: Option<u64>,
    /// Time of its first sample, if it began during the recording.
    pub(super) born_ns: Option<u64>,
}

/// The columns of a table that become series.
#[derive(Debug)]
pub(super) struct TableShape {
    /// Number of columns.
    pub(super) width: usize,
    /// Numeric columns that become series. If no numeric column becomes a series, only the presence
    /// of elements is used.
    pub(super) numbers: Vec<(usize, Measure)>,
    /// String columns that become series.
    pub(super) states: Vec<usize>,
    /// Column with the process id of a parent.
    pub(super) parent: Option<usize>,
    /// The columns of a list of ended processes.
    pub(super) exits: Option<ExitColumns>,
    /// Column with the time since boot at which an element began, and the length of the column's
    /// unit in seconds.
    pub(super) began: Option<(usize, f64)>,
    pub(super) is_list: bool,
    pub(super) origin: TableOrigin,
    /// Whether the elements are processes of the host.
    pub(super) are_processes: bool,
}

/// The columns of a list of ended processes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExitColumns {
    pub(super) pid: usize,
    /// Start time of the process, as in the identity of its element.
    pub(super) start: usize,
    /// Monotonic time of the end, in nanoseconds.
    pub(super) ended: usize,
    pub(super) exit_code: usize,
    pub(super) signal: usize,
}

impl ExitColumns {
    /// Finds the columns by their names. Returns `None` if the list is not one of ended processes.
    fn of(info: &TableInfo) -> Option<Self> {
        let column = |name: &str| info.columns.iter().position(|column| &*column.path == name);
        let (pid, start, ended) = (column("pid")?, column("start")?, column("ended")?);
        Some(Self { pid, start, ended, exit_code: column("exit_code")?, signal: column("signal")? })
    }
}

/// The origin of the values of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableOrigin {
    /// The recorder measured its host.
    Host,
    /// The samples come from an import, or from a file of an application. Its elements may be
    /// processes of a host.
    Foreign,
    /// A program pushed the samples.
    Pushed,
}

/// A row that is being read.
pub(super) struct RowReading<'b> {
    pub(super) batch: &'b ColumnBatch,
    pub(super) row: usize,
    /// The rows of the sample.
    pub(super) rows: Range<usize>,
    pub(super) mono_ns: u64,
    /// Time of the previous sample.
    pub(super) before_ns: Option<u64>,
}

impl RowReading<'_> {
    /// Returns whether the sample of the row contains this element.
    pub(super) fn has_element(&self, element: u32) -> bool {
        let RowSource::Elements { elements, .. } = &self.batch.rows else { return false };
        elements.get(self.rows.clone()).unwrap_or_default().contains(&element)
    }

    /// Returns the time since an element was last seen, in seconds.
    pub(super) fn seconds_since(&self, slot: &ElementSlot) -> f64 {
        seconds(self.mono_ns.saturating_sub(slot.seen_ns.unwrap_or(self.mono_ns)))
    }

    pub(super) fn unsigned(&self, column: usize) -> Option<u64> {
        match self.batch.columns.get(column)?.get(self.row) {
            FieldValue::Unsigned(number) => Some(number),
            _ => None,
        }
    }
}

/// Returns the elements of the descendants of a process that are missing from this sample. These
/// descendants have ended, or were left out because they do little. Descendants below a process
/// that is in the sample are not returned, because that process waits for them.
pub(super) fn ended_below(slots: &[Option<Box<ElementSlot>>], at: u32, reading: &RowReading<'_>) -> Vec<u32> {
    let mut found = Vec::new();
    let mut next = vec![at];
    while let Some(at) = next.pop() {
        let slot = slots.get(at as usize).and_then(Option::as_ref);
        for child in slot.into_iter().flat_map(|slot| &slot.children) {
            // Process ids are reused, so parents may form a circle. Each element is added only one
            // time.
            if !reading.has_element(*child) && !found.contains(child) && found.len() < EXITS_MAX {
                found.push(*child);
                next.push(*child);
            }
        }
    }
    found
}

/// Returns whether the counts of a child of process `pid` reach the process `ancestor`. This is so
/// if `pid` is the ancestor, or if `pid` and all processes between them have ended.
pub(super) fn ends_at(
    mut pid: u64,
    ancestor: u64,
    reading: &RowReading<'_>,
    (processes, elements): (&HashMap<u32, ProcessFacts>, &HashMap<u64, u32>),
) -> bool {
    // The search is bounded, because reused process ids may form a circle.
    for _ in 0..PARENTS_MAX {
        if pid == ancestor {
            return true;
        }
        let element = elements.get(&pid).filter(|element| !reading.has_element(**element));
        let facts = element.and_then(|element| processes.get(element));
        let Some(parent) = facts.and_then(|facts| facts.parent).filter(|parent| *parent != pid) else {
            return false;
        };
        pid = parent;
    }
    false
}

impl TableShape {
    pub(super) fn new(info: &TableInfo, foreign: &ForeignSources) -> Self {
        let is_list = info.list.is_some();
        let origin = if foreign.pushed.contains(&*info.source) {
            TableOrigin::Pushed
        } else if foreign.names.contains(&*info.source) {
            TableOrigin::Foreign
        } else {
            TableOrigin::Host
        };
        let (is_foreign, is_pushed) = (origin != TableOrigin::Host, origin == TableOrigin::Pushed);
        let measure = if is_foreign { Measure::of_foreign } else { Measure::of };
        let columns = || info.columns.iter().enumerate();
        let numbers = columns().filter_map(|(at, column)| Some((at, measure(column)?)));
        let is_text =
            |(_, column): &(usize, &ColumnInfo)| column.kind == MetricKind::Text && measure(column).is_none();
        // The first string of an element is its name; further strings are states. Outside of lists,
        // only applications have states.
        let names = usize::from(is_list);
        let states =
            columns().filter(|_| is_list || is_foreign).filter(is_text).skip(names).map(|(at, _)| at);
        let parent = info.columns.iter().position(|column| &*column.path == "parent");
        let are_processes =
            !is_pushed && info.columns.iter().any(|column| column.is_identity && &*column.path == "pid");
        let numbers = numbers.map(|(at, measure)| {
            // The kernel counts the wait of a process only for its first thread.
            let is_wait = are_processes && measure.class == ValueClass::WaitShare;
            (at, if is_wait { Measure { limit: 1.0, ..measure } } else { measure })
        });
        Self {
            width: info.columns.len(),
            numbers: numbers.collect(),
            states: states.collect(),
            parent: parent.filter(|_| is_list && !is_pushed),
            exits: ExitColumns::of(info).filter(|_| is_list && !is_pushed),
            // An identity with a unit of time is the time at which the element began.
            began: columns()
                .filter(|(_, column)| is_list && column.is_identity)
                .find_map(|(at, column)| Some((at, unit_seconds(column.unit.as_deref())?))),
            is_list,
            origin,
            are_processes,
        }
    }

    pub(super) fn columns(&self) -> FollowedColumns<'_> {
        FollowedColumns { numbers: &self.numbers, states: &self.states, are_processes: self.are_processes }
    }

    /// Returns whether only the presence of elements is used.
    pub(super) fn has_parents_alone(&self) -> bool {
        self.parent.is_some() && self.numbers.is_empty()
    }

    /// Returns whether the growth of a byte or call counter of a process is large enough for a
    /// departure. Smaller growth is not a departure, whichever process caused it.
    pub(super) fn may_inherit(
        &self,
        slots: &[Option<Box<ElementSlot>>],
        rows: &ElementRows,
        reading: &RowReading<'_>,
    ) -> bool {
        let at = reading.batch.element(reading.row).map_or(usize::MAX, |element| element as usize);
        let Some(Some(slot)) = slots.get(at).filter(|_| self.are_processes) else { return false };
        let seconds = reading.seconds_since(slot);
        let last = rows.last(at);
        self.inherited_counters().any(|(place, column, measure)| {
            let Some(values) = reading.batch.columns.get(column) else { return false };
            let before = match last {
                Some(row) => number(values, row.row),
                None => slot.numbers.get(place).and_then(|cell| cell.last),
            };
            growth(before, number(values, reading.row))
                .is_some_and(|growth| is_departure(growth, measure, seconds))
        })
    }

    /// Returns the counters of bytes and calls, each with its index in a slot, its column and its
    /// measure.
    fn inherited_counters(&self) -> impl Iterator<Item = (usize, usize, Measure)> {
        let numbers = self.numbers.iter().enumerate();
        let counters =
            numbers.filter(|(_, (_, measure))| measure.class.may_be_inherited() && measure.is_counter);
        counters.map(|(place, (column, measure))| (place, *column, *measure))
    }

    /// Leaves out the growth of a process's counters if this growth contains bytes and calls of
    /// ended descendants. The kernel adds these counts in one step when the parent waits for the
    /// ended process. No sample contains the final count of an ended process. Returns whether any
    /// growth was left out.
    pub(super) fn leave_out_inherited(
        &self,
        slots: &mut [Option<Box<ElementSlot>>],
        reading: &RowReading<'_>,
        (ended, has_ended_below): (&[u32], bool),
    ) -> bool {
        let at = reading.batch.element(reading.row).map_or(usize::MAX, |element| element as usize);
        let Some(Some(slot)) = slots.get(at) else { return false };
        let seconds = reading.seconds_since(slot);
        let mut is_left_out = false;
        for (place, column, measure) in self.inherited_counters() {
            let now = reading.batch.columns.get(column).and_then(|values| number(values, reading.row));
            let cell = slots.get(at).and_then(Option::as_ref).and_then(|slot| slot.numbers.get(place));
            let grown = growth(cell.and_then(|cell| cell.last), now);
            let Some(growth) = grown.filter(|growth| is_departure(*growth, measure, seconds)) else {
                continue;
            };
            let mut inherited = 0_u64;
            for child in ended {
                let child = slots.get_mut(*child as usize).and_then(Option::as_mut);
                let cell = child.and_then(|child| child.numbers.get_mut(place));
                inherited = inherited.saturating_add(cell.map_or(0, |cell| cell.inherit(growth)));
            }
            #[allow(clippy::cast_precision_loss, reason = "statistics: 53 bits are plenty")]
            let is_part = inherited as f64 >= INHERITED_PART * growth as f64;
            let cell = slots.get_mut(at).and_then(Option::as_mut);
            if let Some(cell) = cell.and_then(|slot| slot.numbers.get_mut(place))
                && (is_part || has_ended_below)
            {
                cell.forget();
                is_left_out = true;
            }
        }
        is_left_out
    }

    /// Returns whether the element of a row is old. An old element began long before the previous
    /// sample, although earlier samples may lack it. After a suspend, an old element may count as
    /// new, because time since boot includes suspends and monotonic time does not.
    fn is_old(&self, reading: &RowReading<'_>) -> bool {
        let Some((column, unit)) = self.began else { return false };
        let before = seconds(reading.before_ns.unwrap_or(reading.mono_ns).saturating_sub(NEW_AFTER_NS));
        #[allow(clippy::cast_precision_loss, reason = "a time to the microsecond")]
        reading.unsigned(column).is_some_and(|began| began as f64 * unit < before)
    }

    /// Returns the slot of an element, and whether it is new. Returns `None` for an element without
    /// an index.
    pub(super) fn slot<'s>(
        &self,
        slots: &'s mut Vec<Option<Box<ElementSlot>>>,
        first_ns: Option<u64>,
        reading: &RowReading<'_>,
    ) -> Option<(&'s mut ElementSlot, bool)> {
        let element = reading.batch.element(reading.row);
        if element == Some(NO_ELEMENT) {
            return None;
        }
        let at = element.unwrap_or_default() as usize;
        if slots.len() <= at {
            slots.resize_with(at + 1, || None);
        }
        let slot = slots.get_mut(at)?;
        let is_first = slot.is_none();
        let slot = slot.get_or_insert_with(|| {
            let is_late = first_ns.is_some_and(|first| first.saturating_add(NEW_AFTER_NS) < reading.mono_ns);
            let is_new = element.is_some() && is_late && !self.is_old(reading);
            Box::new(ElementSlot {
                seen_ns: Some(reading.before_ns.unwrap_or(reading.mono_ns)),
                seen_sample: 0,
                born_ns: if is_new { reading.before_ns } else { None },
                numbers: vec![NumberCell::default(); self.numbers.len()].into(),
                states: self.states.iter().map(|_| StateCell::default()).collect(),
                fresh: vec![
                    FreshCell::default();
                    if self.origin == TableOrigin::Host { 0 } else { self.numbers.len() }
                ]
                .into(),
                children: Vec::new(),
                is_of_kernel: false,
            })
        });
        Some((slot, is_first))
    }
}

/// Returns whether this growth of a counter in this time is a departure from rest.
#[allow(clippy::cast_precision_loss, reason = "statistics: 53 bits are plenty")]
fn is_departure(growth: u64, measure: Measure, seconds: f64) -> bool {
    growth as f64 * measure.factor / seconds > measure.class.least_departure()
}
