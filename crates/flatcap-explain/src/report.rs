//! The answers of `spikes` and `explain`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use flatcap_format::query::{ElementNames, TableInfo};
use flatcap_format::replay::{Notice, ReplayFilter};
use flatcap_format::segment::Marker;

use super::attribution::{FOR_OTHERS_PART, SuspectKind, SuspectedElement, label_of, name_of, suspects};
use super::baseline::Baseline;
use super::clock::RunClock;
use super::departures::{Departure, DepartureFinder, FORGETS_AFTER_NS};
use super::events::events;
use super::measure::{ValueClass, ValueUnit};
use super::observation::SeriesInfo;
use super::reading::{ExplainError, ReadResults, RecordingChoice, read};
use super::recorder_work::{DepartureActor, explained};
use super::window::{AFTER_NS, ComparedWindow, WindowSteps, WindowValue};

/// Time before `since` that is read for the first baseline.
const LEAD_NS: u64 = 60_000_000_000;
/// Departures that may be grouped: comparing all pairs of thousands would take seconds.
const GROUPED_MAX: usize = 200;
/// What a device does is an incident if a process takes part in it: the kernel discards, flushes
/// and reads ahead by itself.
const DEVICE_PART: f64 = 0.5;
/// Series that correlate so much move together.
const TOGETHER: f64 = 0.9;

/// A value of a field that departs from what is usual.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldDeparture {
    /// The source.
    pub source: String,
    /// Path of the field below the source; that of a list has `[*]`.
    pub field: String,
    /// The element of the list.
    pub element: Option<String>,
    /// The value of a text whose share of time is counted.
    pub state: Option<String>,
    /// The value, in `unit`.
    pub value: f64,
    /// The usual level.
    pub usual: f64,
    /// Begin and end of the usual range.
    pub usual_range: (f64, f64),
    /// The unit.
    pub unit: ValueUnit,
    /// How unusual it is.
    pub score: f64,
    /// When: of a spike, its middle; in a window, the first sample that differs.
    pub wall_ns: i64,
    /// Further fields that move together with it.
    pub together: usize,
}

impl FieldDeparture {
    /// Returns the path of the field below the source, with the state whose share is counted:
    /// `processes[*].state=D`.
    pub fn path(&self) -> String {
        match &self.state {
            Some(state) => format!("{}={state}", self.field),
            None => self.field.clone(),
        }
    }
}

/// The spikes of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Spikes {
    /// Best first.
    pub departures: Vec<FieldDeparture>,
    /// The host.
    pub host: String,
    /// At least so many series were left out to bound memory.
    pub left_out: u64,
    /// There was damage, or a file that cannot be read.
    pub has_findings: bool,
}

/// A process, control group, disk or interface that may be the cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspect {
    /// What it is.
    pub kind: SuspectKind,
    /// Its name.
    pub name: String,
    /// Its process id.
    pub pid: Option<u64>,
    /// How much more than usual it did.
    pub score: f64,
    /// What it did, best first.
    pub evidence: Vec<FieldDeparture>,
    /// The first sample in which any of it differed.
    pub first_wall_ns: i64,
}

/// Processes that ended or began below another one.
#[derive(Debug, Clone, PartialEq)]
pub struct Offspring {
    /// The list that says so.
    pub list: String,
    /// The parent.
    pub parent: String,
    /// How many.
    pub count: u64,
}

/// What was different in a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The host.
    pub host: String,
    /// Wall time at which the window begins and ends.
    pub window: (i64, i64),
    /// Length of the baseline before it, in nanoseconds.
    pub before_ns: u64,
    /// Best first.
    pub suspects: Vec<Suspect>,
    /// Best first.
    pub fields: Vec<FieldDeparture>,
    /// Processes that ended or began, by parent.
    pub offspring: Vec<Offspring>,
    /// Notes in the window.
    pub markers: Vec<Marker>,
    /// Samples that were lost in the window.
    pub lost: u64,
    /// Longest lateness of the recorder's samples at the window, in nanoseconds, if it recorded it.
    pub late_ns: Option<u64>,
    /// Steps of the wall clock in the time that was read: when, and by how many nanoseconds.
    pub clock_steps: Vec<(i64, i64)>,
    /// At least so many series were left out to bound memory.
    pub left_out: u64,
    /// There was damage, or a file that cannot be read.
    pub has_findings: bool,
}

/// Finds the events of a recording, best first. Reads a minute before `filter`'s begin, too.
///
/// # Errors
/// Those of the recording, several hosts, no samples.
pub fn find_spikes(
    choice: &RecordingChoice,
    filter: ReplayFilter,
    report: &mut dyn FnMut(&Notice),
) -> Result<Spikes, ExplainError> {
    let mut finder = DepartureFinder::new(filter.since_ns);
    let since_ns = filter.since_ns.map(|since| since.saturating_sub_unsigned(LEAD_NS));
    let filter = ReplayFilter { since_ns, ..filter };
    let read = read(choice, filter, FORGETS_AFTER_NS, &mut finder, report)?;
    finder.finish(&read.clock, &read.set);
    let tables = read.results.tables();
    let source_of =
        |table: usize| tables.get(table).map(|table| table.source.to_string()).unwrap_or_default();
    let mut departures = std::mem::take(&mut finder.departures);
    let actor = |departure: &Departure| DepartureActor {
        kind: departure.element.and_then(|element| {
            SuspectKind::of(tables.get(departure.table)?, read.results.elements(), element)
        }),
        is_recorder: departure.element.is_some_and(|element| read.set.is_recorder(element)),
    };
    let actors: Vec<DepartureActor> = departures.iter().map(actor).collect();
    let explained = explained(&departures, &actors);
    for (departure, (actor, is_explained)) in departures.iter_mut().zip(actors.iter().zip(explained)) {
        if matches!(actor.kind, Some(SuspectKind::Disk | SuspectKind::Interface)) {
            departure.score *= DEVICE_PART;
        }
        if actor.is_recorder || is_explained {
            departure.score *= FOR_OTHERS_PART;
        }
    }
    let spikes = events(departures, source_of)
        .into_iter()
        .map(|event| {
            let place = SeriesPlace::of_departure(&event.departure);
            let Departure { class, value, usual, wall_ns, .. } = event.departure;
            let parts = ValueParts { class, value, usual, score: event.score, wall_ns };
            place.departure(&parts, tables, read.results.elements())
        })
        .collect();
    let left_out = read.left_out();
    Ok(Spikes {
        departures: spikes,
        host: read.host.map(|host| host.name).unwrap_or_default(),
        left_out,
        has_findings: read.has_findings,
    })
}

/// Explains a window of `length_ns` around a wall time.
///
/// # Errors
/// Those of the recording, several hosts, no samples.
pub fn explain(
    choice: &RecordingChoice,
    wall_ns: i64,
    length_ns: u64,
    before_ns: u64,
    report: &mut dyn FnMut(&Notice),
) -> Result<Explanation, ExplainError> {
    let window = ComparedWindow::around(wall_ns, length_ns, before_ns);
    let span = window.read_span();
    let filter =
        ReplayFilter { since_ns: Some(span.start), until_ns: Some(span.end), ..ReplayFilter::default() };
    let mut steps = WindowSteps::new(window);
    let read = read(choice, filter, u64::MAX, &mut steps, report)?;
    let mono = steps.mono_span().ok_or(ExplainError::NoSamples)?;
    if !steps.has_window() {
        return Err(ExplainError::NoSamples);
    }
    let mut departures = steps.departures(&read.set);
    // Of two states with the same share, the one that was seen says more than `not S`.
    let is_composed = |departure: &WindowValue| {
        let state = read.set.info(departure.series).and_then(|info| info.state.as_deref());
        state.is_some_and(|state| state.starts_with("not "))
    };
    departures.sort_by(|one, other| {
        other.score.total_cmp(&one.score).then_with(|| is_composed(one).cmp(&is_composed(other)))
    });
    let (tables, names) = (read.results.tables(), read.results.elements());
    let describe = |departure: &WindowValue, clock: &RunClock| {
        let info = read.set.info(departure.series)?;
        Some(described(departure, info, tables, names, clock))
    };
    let suspects = suspects(&departures, &read.set, tables, names)
        .into_iter()
        .map(|found| {
            let SuspectedElement { element, kind, score, evidence } = found;
            let (name, pid) = name_of(kind, names, element);
            let evidence: Vec<FieldDeparture> =
                evidence.iter().filter_map(|departure| describe(departure, &read.clock)).collect();
            let first_wall_ns = evidence.iter().map(|field| field.wall_ns).min().unwrap_or(window.first_ns);
            Suspect { kind, name, pid, score, evidence, first_wall_ns }
        })
        .collect();
    let is_own = |departure: &WindowValue| is_of_actor(departure, &read, tables);
    let fields = grouped(departures.iter().filter(|departure| !is_own(departure)), &steps)
        .into_iter()
        .filter_map(|(leader, together)| {
            describe(leader, &read.clock).map(|field| FieldDeparture { together, ..field })
        })
        .collect();
    let in_window = |wall_ns: i64| (window.first_ns..window.end_ns()).contains(&wall_ns);
    let late = read.lateness.iter().filter(|(at, _)| (mono.start..mono.end + AFTER_NS).contains(at));
    Ok(Explanation {
        host: read.host.as_ref().map(|host| host.name.clone()).unwrap_or_default(),
        window: (window.first_ns, window.end_ns()),
        before_ns: window.before_ns(),
        suspects,
        fields,
        offspring: offspring(&steps, &read, window.length_ns),
        markers: read.markers.iter().filter(|marker| in_window(marker.wall_ns)).cloned().collect(),
        lost: read
            .gaps
            .iter()
            .filter(|gap| gap.after_mono_ns < mono.end && gap.before_mono_ns > mono.start)
            .fold(0, |sum: u64, gap| sum.saturating_add(gap.count)),
        late_ns: late.map(|(_, late)| *late).max(),
        clock_steps: read.clock.steps().map(|(at, step)| (read.clock.wall_ns(at), step)).collect(),
        left_out: read.left_out() + steps.left_out,
        has_findings: read.has_findings,
    })
}

/// Whether a departure is of a process or a control group, which are named as suspects.
fn is_of_actor(departure: &WindowValue, read: &ReadResults, tables: &[TableInfo]) -> bool {
    let Some(info) = read.set.info(departure.series) else { return true };
    let kind = info.element.and_then(|element| {
        let table = tables.get(info.table)?;
        SuspectKind::of(table, read.results.elements(), element)
    });
    info.measure.class == ValueClass::Offspring
        || matches!(kind, Some(SuspectKind::Process | SuspectKind::Cgroup))
}

/// Groups departures that move together: the best of each group, and how many more it has.
fn grouped<'d>(
    departures: impl Iterator<Item = &'d WindowValue>,
    steps: &WindowSteps,
) -> Vec<(&'d WindowValue, usize)> {
    let mut groups: Vec<(&WindowValue, usize)> = Vec::new();
    for departure in departures.take(GROUPED_MAX) {
        let leader = groups
            .iter_mut()
            .find(|(leader, _)| steps.correlation(leader.series, departure.series).abs() >= TOGETHER);
        match leader {
            Some((_, together)) => *together += 1,
            None => groups.push((departure, 0)),
        }
    }
    groups
}

/// Returns how many processes ended or began below each parent in the window.
fn offspring(steps: &WindowSteps, read: &ReadResults, length_ns: u64) -> Vec<Offspring> {
    let mut counts: BTreeMap<(usize, u32), f64> = BTreeMap::new();
    for (series, rate) in steps.offspring(&read.set) {
        if let Some((table, element)) =
            read.set.info(series).and_then(|info| Some((info.table, info.element?)))
        {
            #[allow(clippy::cast_precision_loss, reason = "a length of time")]
            let seconds = length_ns as f64 / 1e9;
            *counts.entry((table, element)).or_default() += rate * seconds;
        }
    }
    let mut found: Vec<Offspring> = counts
        .into_iter()
        .map(|((table, element), count)| {
            let list = read.results.tables().get(table).and_then(|table| table.list.as_deref());
            let list = list.unwrap_or_default();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
            let count = count.round() as u64;
            let names = read.results.elements();
            let parent = names.label(names.latest(element)).to_owned();
            Offspring { list: list.split('[').next().unwrap_or_default().to_owned(), parent, count }
        })
        .filter(|offspring| offspring.count > 0)
        .collect();
    found.sort_by_key(|offspring| Reverse(offspring.count));
    found
}

/// Where a series is.
struct SeriesPlace<'s> {
    table: usize,
    column: usize,
    element: Option<u32>,
    state: Option<&'s str>,
}

/// A value with what is usual for it, in the unit of its class.
struct ValueParts {
    class: ValueClass,
    value: f64,
    usual: Baseline,
    score: f64,
    wall_ns: i64,
}

impl<'s> SeriesPlace<'s> {
    fn of_departure(departure: &'s Departure) -> Self {
        let Departure { table, column, element, state, .. } = departure;
        Self { table: *table, column: *column, element: *element, state: state.as_deref() }
    }

    fn departure(&self, parts: &ValueParts, tables: &[TableInfo], names: &ElementNames) -> FieldDeparture {
        let table = tables.get(self.table);
        let field = table.map(|table| match table.columns.get(self.column) {
            Some(column) => table.path(column),
            None => table.list.as_deref().unwrap_or_default().to_owned(),
        });
        let (unit, factor) = parts.class.unit();
        FieldDeparture {
            source: table.map(|table| table.source.to_string()).unwrap_or_default(),
            field: field.unwrap_or_default(),
            element: self.element.map(|element| label_of(names, element)),
            state: self.state.map(str::to_owned),
            value: parts.value * factor,
            usual: parts.usual.level * factor,
            usual_range: (parts.usual.low * factor, parts.usual.high * factor),
            unit,
            score: parts.score,
            wall_ns: parts.wall_ns,
            together: 0,
        }
    }
}

fn described(
    departure: &WindowValue,
    info: &SeriesInfo,
    tables: &[TableInfo],
    names: &ElementNames,
    clock: &RunClock,
) -> FieldDeparture {
    let place = SeriesPlace {
        table: info.table,
        column: info.column,
        element: info.element,
        state: info.state.as_deref(),
    };
    let parts = ValueParts {
        class: info.measure.class,
        value: departure.value,
        usual: departure.usual,
        score: departure.score,
        wall_ns: clock.wall_ns(departure.first_ns),
    };
    place.departure(&parts, tables, names)
}
