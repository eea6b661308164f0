//! Finds the answers of `spikes` and `explain`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use flatcap_format::replay::{Notice, ReplayFilter};
use flatcap_format::schema::ColumnType;
use flatcap_query::TableInfo;

use super::answers::{
    ChildrenUse, ClockStep, ExplainedBaseline, ExplainedWindow, Explanation, FieldDeparture, FieldGroup,
    FieldName, MarkerText, Offspring, ProcessEnding, Spikes, Suspect, SuspectIdentity, UnrankedFields,
    UnrankedReason,
};
use super::attribution::{
    AttributedElement, FALLEN_PART, FOR_OTHERS_PART, SuspectKind, SuspectRole, attribute, name_of,
    sort_suspects,
};
use super::departure::{Departure, FORGETS_AFTER_NS, WINDOW_NS};
use super::departures::DepartureFinder;
use super::element_slot::BUSY;
use super::ended_processes::{ended_processes, with_ends};
use super::events::{Event, events};
use super::identities::identify;
use super::kernel_causes::KernelCauses;
use super::measure::ValueClass;
use super::measured_samples::{Measured, WantedSeries, measure};
use super::reading::{ExplainError, OWN_SOURCE, ReadResults, RecordingChoice, read};
use super::recorder_work::{DepartureActor, explained};
use super::series::start_in;
use super::series_place::{SeriesPlace, ValueParts};
use super::text::{answer, deeds};
use super::window::{AFTER_NS, ComparedWindow, WindowSteps, WindowValue};

/// Time before `since` that is read for the first baseline.
const LEAD_NS: u64 = 60_000_000_000;
/// Maximum number of departures that are compared to form groups.
// Comparing all pairs of thousands of departures would take seconds.
const GROUPED_MAX: usize = 200;
/// The weight of departures of devices.
// Activity of a device is an incident only if a process takes part in it, because the kernel also
// discards, flushes and reads ahead by itself.
const DEVICE_PART: f64 = 0.5;
/// Maximum number of suspects, and maximum number of fields, in an explanation.
const LISTED_MAX: usize = 200;
/// Maximum number of names of unranked fields, for each reason.
const UNRANKED_MAX: usize = 1000;
/// Minimum length of the baseline, as a multiple of the length of the window.
// A shorter baseline contains too few windows of the same length to show usual values.
const BEFORE_WINDOWS_MIN: u64 = 2;
/// Minimum correlation of series that move together.
const TOGETHER: f64 = 0.9;

/// Finds at most `limit` events of a recording, best first. Also reads the minute before the
/// selected time.
///
/// # Errors
/// Fails if the recording cannot be read, has several hosts, or has no samples.
pub fn find_spikes(
    choice: &RecordingChoice,
    filter: ReplayFilter,
    limit: usize,
    report: &mut dyn FnMut(&Notice),
) -> Result<Spikes, ExplainError> {
    let mut finder = DepartureFinder::new(filter.since_ns);
    let since_ns = filter.since_ns.map(|since| since.saturating_sub_unsigned(LEAD_NS));
    let filter = ReplayFilter { since_ns, ..filter };
    let read = read(choice, filter, FORGETS_AFTER_NS, &mut finder, report)?;
    finder.finish(&read.clock, &read.set);
    let (tables, names) = (read.results.tables(), read.results.elements());
    let source_of = |table: usize| tables.get(table).map(TableInfo::source_name).unwrap_or_default();
    let mut departures = std::mem::take(&mut finder.departures);
    let actor = |departure: &Departure| DepartureActor {
        kind: departure
            .element
            .filter(|_| !read.set.is_pushed(departure.table))
            .and_then(|element| SuspectKind::of(tables.get(departure.table)?, names, element)),
        is_recorder: departure.element.is_some_and(|element| read.set.is_recorder(element)),
    };
    let actors: Vec<DepartureActor> = departures.iter().map(actor).collect();
    let explained = explained(&departures, &actors);
    // The scores are weighted before departures are joined, so that a device seldom names an event
    // in which a process takes part.
    for (departure, (actor, is_explained)) in departures.iter_mut().zip(actors.iter().zip(explained)) {
        if matches!(actor.kind, Some(SuspectKind::Disk | SuspectKind::Interface)) {
            departure.score *= DEVICE_PART;
        }
        if actor.is_recorder || is_explained {
            departure.score *= FOR_OTHERS_PART;
        }
    }
    let mut events = events(departures, source_of);
    events.truncate(limit);
    // The end of a process is an event that the kernel reported, not a measured value.
    let is_measured = |event: &&Event| event.departure.ended.is_none();
    let wanted: Vec<WantedSeries> =
        events.iter().filter(is_measured).map(|event| wanted_departure(&event.departure, &read)).collect();
    // Measuring reads the samples a second time, so only the reported events are measured.
    let mut measured = measure(choice, &read.recording, &wanted)?.into_iter();
    let spikes = events.into_iter().map(|event| {
        let place = SeriesPlace::of_departure(&event.departure);
        let Departure { class, value, usual, wall_ns, is_early, ended, .. } = event.departure;
        let ended = ended.map(|end| ProcessEnding::new(&end, wall_ns, Some(usual.level)));
        let measured = if ended.is_none() { measured.next().flatten() } else { None };
        let parts = ValueParts { class, value, usual, score: event.score, wall_ns, is_early, ended };
        place.departure(&parts, measured, &read)
    });
    let spikes = spikes.collect();
    let (ranked, unranked) = ranked_and_not(&read, &choice.sources, &finder.without_baseline(&read.set));
    let left_out = read.left_out();
    Ok(Spikes {
        departures: spikes,
        host: read.host.map(|host| host.name).unwrap_or_default(),
        ranked,
        unranked,
        left_out,
        has_findings: read.has_findings,
    })
}

/// Returns the series to measure for a departure of `spikes`.
fn wanted_departure(departure: &Departure, read: &ReadResults) -> WantedSeries {
    let half_ns = WINDOW_NS / 2;
    let middle_ns = departure.observed_ns;
    WantedSeries {
        born_wall_ns: departure.born_wall_ns,
        ..SeriesPlace::of_departure(departure).wanted(
            departure.measure,
            middle_ns.saturating_sub_unsigned(half_ns)..middle_ns.saturating_add_unsigned(half_ns),
            read,
        )
    }
}

/// Explains a window of `length_ns` around a wall time. The baseline is the time of `before_ns`
/// before the window, or twice the length of the window if that is longer.
///
/// # Errors
/// Fails if the recording cannot be read, has several hosts, or has no samples.
pub fn explain(
    choice: &RecordingChoice,
    wall_ns: i64,
    length_ns: u64,
    before_ns: u64,
    report: &mut dyn FnMut(&Notice),
) -> Result<Explanation, ExplainError> {
    let wanted_ns = before_ns.max(length_ns.saturating_mul(BEFORE_WINDOWS_MIN));
    let window = ComparedWindow::around(wall_ns, length_ns, wanted_ns);
    let span = window.read_span();
    let filter =
        ReplayFilter { since_ns: Some(span.start), until_ns: Some(span.end), ..ReplayFilter::default() };
    let mut steps = WindowSteps::new(window);
    let read = read(choice, filter, u64::MAX, &mut steps, report)?;
    let mono = steps.mono_span().ok_or(ExplainError::NoSamples)?;
    if !steps.has_window() {
        return Err(ExplainError::NoSamples);
    }
    let before_ns = steps.recorded_before_ns();
    let before_least_ns = window.before_least_ns();
    // In this case, no baseline is known, not even for new elements.
    let is_too_early = before_ns < before_least_ns;
    let mut departures = if is_too_early { Vec::new() } else { steps.departures(&read.set) };
    sort_best_first(&mut departures, &read);
    let (tables, names) = (read.results.tables(), read.results.elements());
    let mut found = attribute(&departures, &steps, &read.set, tables, names);
    sort_suspects(&mut found, |own| (own.role != SuspectRole::UsedMore, own.score));
    found.truncate(LISTED_MAX);
    let is_own = |departure: &WindowValue| is_of_actor(departure, &read, tables);
    let of_host = departures.iter().filter(|departure| departure.score > 0.0 && !is_own(departure));
    let mut groups = grouped(of_host, &steps);
    groups.truncate(LISTED_MAX);
    let of_suspects = found.iter().flat_map(|own| own.evidence.iter().chain(own.children.iter().flatten()));
    let printed: Vec<&WindowValue> = of_suspects.chain(groups.iter().map(|(leader, _)| *leader)).collect();
    let measured = measured_values(choice, &printed, &window, &read)?;
    let describe = |departure: &WindowValue| described(departure, measured.get(&departure.series), &read);
    let suspects = found.into_iter().filter_map(|found| {
        let element = found.element;
        Some((Some(element), described_suspect(found, &window, &read, &describe)?))
    });
    let mut suspects = with_ends(suspects.collect(), ended_processes(&mono, &steps, &read));
    suspects.truncate(LISTED_MAX);
    identify(&mut suspects, (choice, &read.recording), &(window.first_ns..window.end_ns()))?;
    let fields = described_groups(&groups, &read, &describe);
    let late = read.lateness.iter().filter(|(at, _)| (mono.start..mono.end + AFTER_NS).contains(at));
    let without_baseline = if is_too_early { all_columns(&read) } else { steps.without_baseline(&read.set) };
    let (ranked, unranked) = ranked_and_not(&read, &choice.sources, &without_baseline);
    let mut found = Explanation {
        answer: String::new(),
        window: ExplainedWindow { first_wall_ns: window.first_ns, last_wall_ns: window.end_ns() },
        baseline: ExplainedBaseline {
            recorded_ns: before_ns,
            least_ns: before_least_ns,
            is_too_short: is_too_early,
        },
        suspects,
        fields,
        ranked,
        unranked,
        markers: markers_in(&read, &window),
        lost: read
            .gaps
            .iter()
            .filter(|gap| gap.after_mono_ns < mono.end && gap.before_mono_ns > mono.start)
            .fold(0, |sum: u64, gap| sum.saturating_add(gap.count)),
        causes: KernelCauses::default(),
        host: read.host.as_ref().map(|host| host.name.clone()).unwrap_or_default(),
        offspring: offspring(&steps, &read, &window),
        late_ns: late.map(|(_, late)| *late).max(),
        clock_steps: clock_steps(&read),
        left_out: read.left_out() + steps.left_out,
        has_findings: read.has_findings,
        before_ns: wanted_ns,
    };
    found.answer = answer(&found);
    Ok(found)
}

fn markers_in(read: &ReadResults, window: &ComparedWindow) -> Vec<MarkerText> {
    let span = window.first_ns..window.end_ns();
    let own = read.markers.iter().filter(|marker| span.contains(&marker.wall_ns));
    own.map(|marker| MarkerText { wall_ns: marker.wall_ns, text: marker.text.clone() }).collect()
}

fn clock_steps(read: &ReadResults) -> Vec<ClockStep> {
    let steps = read.clock.steps();
    steps.map(|(at, step_ns)| ClockStep { wall_ns: read.clock.wall_ns(at), step_ns }).collect()
}

/// Sorts departures, the best first. If two states have the same score, a single state comes before
/// a combination of states, because the single state is more informative.
fn sort_best_first(departures: &mut [WindowValue], read: &ReadResults) {
    let is_composed = |departure: &WindowValue| {
        let state = read.set.info(departure.series).and_then(|info| info.state.as_deref());
        state.is_some_and(|state| state.starts_with("not ") || state == BUSY)
    };
    departures.sort_by(|one, other| {
        other.score.total_cmp(&one.score).then_with(|| is_composed(one).cmp(&is_composed(other)))
    });
}

/// Returns the measured values of departures, by series.
fn measured_values(
    choice: &RecordingChoice,
    departures: &[&WindowValue],
    window: &ComparedWindow,
    read: &ReadResults,
) -> Result<HashMap<usize, Measured>, ExplainError> {
    let known = departures
        .iter()
        .filter_map(|departure| Some((departure.series, wanted_value(departure, window, read)?)));
    let (series, wanted): (Vec<usize>, Vec<WantedSeries>) = known.unzip();
    let measured = measure(choice, &read.recording, &wanted)?;
    Ok(series.into_iter().zip(measured).filter_map(|(series, measured)| Some((series, measured?))).collect())
}

/// Returns the series that must be measured for a departure in a window.
fn wanted_value(
    departure: &WindowValue,
    window: &ComparedWindow,
    read: &ReadResults,
) -> Option<WantedSeries> {
    let info = read.set.info(departure.series)?;
    let born_ns = info.born_ns.filter(|_| info.is_newcomer);
    let span = window.first_ns..window.end_ns();
    Some(WantedSeries {
        born_wall_ns: born_ns.map(|born_ns| read.clock.wall_ns(born_ns)),
        ..SeriesPlace::of_series(info).wanted(info.measure, span, read)
    })
}

/// Returns a suspect with measured values. Returns `None` if the samples do not show that the
/// suspect, or one of its new children, used more than usual.
fn described_suspect(
    found: AttributedElement,
    window: &ComparedWindow,
    read: &ReadResults,
    describe: &impl Fn(&WindowValue) -> Option<FieldDeparture>,
) -> Option<Suspect> {
    let AttributedElement { element, kind, role, score, evidence, children } = found;
    // The ranking compares means over time, but `dump` prints samples. A suspect whose samples show
    // no difference would contradict the printed samples.
    let is_shown = |field: &FieldDeparture| match role {
        // A stopped process has a state, whose share rises.
        SuspectRole::UsedLess if field.state.is_none() => field.value <= FALLEN_PART * field.usual,
        _ => field.value > field.usual,
    };
    let is_more = |field: &FieldDeparture| field.measurement.is_some() && is_shown(field);
    let all = |departures: &[WindowValue]| -> Vec<FieldDeparture> {
        departures.iter().filter_map(describe).filter(is_more).collect()
    };
    let evidence = all(&evidence);
    let children: Vec<ChildrenUse> = children.iter().filter_map(|class| children_use(all(class))).collect();
    let times = evidence.iter().chain(children.iter().flat_map(|children| &children.parts));
    let first_wall_ns = times.map(|field| field.wall_ns).min().unwrap_or(window.first_ns);
    // The best evidence comes first.
    let at_ns = evidence.first().map_or(first_wall_ns, |field| field.wall_ns);
    let names = read.results.elements();
    let element_name = read.set.name_at(names, element, at_ns);
    let (name, pid) = name_of(kind, names, element_name);
    let is_known = !(evidence.is_empty() && children.is_empty());
    let what = deeds(&evidence, &children);
    let ended = None;
    is_known.then_some(Suspect {
        kind,
        name,
        pid,
        start: start_in(names, element_name),
        identity: SuspectIdentity::default(),
        role,
        score,
        what,
        evidence,
        children,
        ended,
        first_wall_ns,
    })
}

/// Returns groups of fields with measured values.
fn described_groups(
    groups: &[(&WindowValue, Vec<&WindowValue>)],
    read: &ReadResults,
    describe: &impl Fn(&WindowValue) -> Option<FieldDeparture>,
) -> Vec<FieldGroup> {
    let described = |(leader, together): &(&WindowValue, Vec<&WindowValue>)| {
        let together = together.iter().filter_map(|other| field_name(other, read)).collect();
        let departure = describe(leader)?;
        Some(FieldGroup { first_wall_ns: departure.wall_ns, departure, together })
    };
    groups.iter().filter_map(described).collect()
}

/// Returns the use of a resource by children. Only the field with the largest sum is used. Other
/// fields of the same class would count the same use again.
fn children_use(parts: Vec<FieldDeparture>) -> Option<ChildrenUse> {
    let mut by_field: BTreeMap<String, Vec<FieldDeparture>> = BTreeMap::new();
    for part in parts {
        by_field.entry(part.field.clone()).or_default().push(part);
    }
    let sum = |parts: &[FieldDeparture]| parts.iter().map(|part| part.value).sum::<f64>();
    let (field, parts) = by_field.into_iter().max_by(|one, other| sum(&one.1).total_cmp(&sum(&other.1)))?;
    let unit = parts.first()?.unit;
    Some(ChildrenUse { field, count: parts.len(), sum: sum(&parts), unit, parts })
}

/// Returns the columns of all tables.
fn all_columns(read: &ReadResults) -> BTreeSet<(usize, usize)> {
    let tables = read.results.tables().iter().enumerate();
    tables.flat_map(|(at, table)| (0..table.columns.len()).map(move |column| (at, column))).collect()
}

/// Returns the number of ranked fields, and the fields that were not ranked. The columns in
/// `without_baseline` have no usual level.
fn ranked_and_not(
    read: &ReadResults,
    wanted: &BTreeSet<String>,
    without_baseline: &BTreeSet<(usize, usize)>,
) -> (usize, Vec<UnrankedFields>) {
    let mut ranked = 0;
    let mut unranked: BTreeMap<UnrankedReason, BTreeSet<String>> = BTreeMap::new();
    for (at, table) in read.results.tables().iter().enumerate() {
        if &*table.source == OWN_SOURCE {
            continue;
        }
        for (column, info) in table.columns.iter().enumerate().filter(|(_, info)| !info.is_identity) {
            let reason = match (read.set.is_ranked(at, column), without_baseline.contains(&(at, column))) {
                (true, false) => {
                    ranked += 1;
                    continue;
                }
                // A string that differs in each sample has no states.
                (true, true) if info.column_type == ColumnType::Text => UnrankedReason::NoQuantity,
                (true, true) => UnrankedReason::ShortBaseline,
                (false, _) => UnrankedReason::NoQuantity,
            };
            let name = read.recording.path((&table.source, table.instance), &table.path(info));
            unranked.entry(reason).or_default().insert(name);
        }
    }
    for source in &read.sources {
        let is_wanted = wanted.is_empty() || wanted.contains(&source.name);
        let reason = match &source.schema {
            None => UnrankedReason::NoSchema,
            Some(schema) if schema.is_opaque() => UnrankedReason::NoSchema,
            Some(schema) if schema.has_events() => UnrankedReason::Events,
            Some(_) => continue,
        };
        if is_wanted && !source.is_computed {
            unranked.entry(reason).or_default().insert(source.name.clone());
        }
    }
    let unranked = unranked.into_iter().map(|(reason, fields)| UnrankedFields {
        reason,
        count: fields.len(),
        fields: fields.into_iter().take(UNRANKED_MAX).collect(),
    });
    (ranked, unranked.collect())
}

/// Returns whether a departure belongs to a process or a control group, which are named as
/// suspects.
fn is_of_actor(departure: &WindowValue, read: &ReadResults, tables: &[TableInfo]) -> bool {
    let Some(info) = read.set.info(departure.series) else { return true };
    if read.set.is_pushed(info.table) {
        return false;
    }
    let kind = info.element.and_then(|element| {
        let table = tables.get(info.table)?;
        SuspectKind::of(table, read.results.elements(), element)
    });
    info.measure.class == ValueClass::Offspring
        || matches!(kind, Some(SuspectKind::Process | SuspectKind::Cgroup))
}

/// Groups departures that move together. Returns the best departure of each group, and the other
/// departures of the group.
fn grouped<'d>(
    departures: impl Iterator<Item = &'d WindowValue>,
    steps: &WindowSteps,
) -> Vec<(&'d WindowValue, Vec<&'d WindowValue>)> {
    let mut groups: Vec<(&WindowValue, Vec<&WindowValue>)> = Vec::new();
    for departure in departures.take(GROUPED_MAX) {
        let leader = groups
            .iter_mut()
            .find(|(leader, _)| steps.correlation(leader.series, departure.series).abs() >= TOGETHER);
        match leader {
            Some((_, together)) => together.push(departure),
            None => groups.push((departure, Vec::new())),
        }
    }
    groups
}

/// Returns the number of processes that ended or began below each parent in the window.
fn offspring(steps: &WindowSteps, read: &ReadResults, window: &ComparedWindow) -> Vec<Offspring> {
    let mut counts: BTreeMap<(usize, u32), f64> = BTreeMap::new();
    for (series, rate) in steps.offspring(&read.set) {
        if let Some((table, element)) =
            read.set.info(series).and_then(|info| Some((info.table, info.element?)))
        {
            #[allow(clippy::cast_precision_loss, reason = "a length of time")]
            let seconds = window.length_ns as f64 / 1e9;
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
            let parent = names.label(read.set.name_at(names, element, window.end_ns())).to_owned();
            Offspring { list: list.split('[').next().unwrap_or_default().to_owned(), parent, count }
        })
        .filter(|offspring| offspring.count > 0)
        .collect();
    found.sort_by_key(|offspring| Reverse(offspring.count));
    found
}

fn described(
    departure: &WindowValue,
    measured: Option<&Measured>,
    read: &ReadResults,
) -> Option<FieldDeparture> {
    let info = read.set.info(departure.series)?;
    let parts = ValueParts {
        class: info.measure.class,
        value: departure.value,
        usual: departure.usual,
        score: departure.score,
        wall_ns: read.clock.wall_ns(departure.first_ns),
        is_early: departure.is_early,
        ended: None,
    };
    Some(SeriesPlace::of_series(info).departure(&parts, measured.cloned(), read))
}

/// Returns the name of the field of a departure.
fn field_name(departure: &WindowValue, read: &ReadResults) -> Option<FieldName> {
    let place = SeriesPlace::of_series(read.set.info(departure.series)?);
    Some(place.field_name(read.clock.wall_ns(departure.first_ns), read))
}
