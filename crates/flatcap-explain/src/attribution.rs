//! Finds suspects. Adds up the departures of the fields of each element, according to the kind of
//! the element's list.

use std::collections::BTreeMap;

use flatcap_query::{ElementName, ElementNames, TableInfo};
use serde::Serialize;

use super::baseline::Baseline;
use super::measure::{Measure, ValueClass};
use super::score::departure_score;
use super::series::{KERNEL_PARENT, SeriesSet, pid_in};
use super::table_shape::ProcessFacts;
use super::window::WindowValue;

/// Minimum score of the evidence against a suspect. An element with a lower score is not a suspect.
const SUSPECT_SCORE_MIN: f64 = 0.5;
/// The weight of threads that work on behalf of other processes. These are the kernel's threads and
/// the recorder's threads. The recorder samples the activity of other processes, and copies the
/// ring when they trigger a snapshot.
pub(super) const FOR_OTHERS_PART: f64 = 0.4;
/// The weight of the children's activity in the score of their parent process. It is a little less
/// than the weight of this activity in the children's own scores.
const CHILDREN_PART: f64 = 0.9;
/// Share of a control group's score. If one group within it explains at least this share, the outer
/// group is not a suspect.
const EXPLAINED_PART: f64 = 0.7;

/// The kind of a suspect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SuspectKind {
    /// A process.
    Process,
    /// A control group.
    Cgroup,
    /// A block device.
    Disk,
    /// A network interface.
    Interface,
}

impl SuspectKind {
    /// Returns the kind of the elements of a list, or `None` if such elements cannot be the cause.
    pub(super) fn of(table: &TableInfo, names: &ElementNames, element: u32) -> Option<Self> {
        let list = table.list.as_deref()?;
        let has =
            |field: &str| names.identity(names.latest(element)).iter().any(|part| &*part.field == field);
        let has_unit = |unit: &str| table.columns.iter().any(|column| column.unit.as_deref() == Some(unit));
        if has("pid") {
            Some(Self::Process)
        } else if has("path") {
            Some(Self::Cgroup)
        // No field states that an element is a disk, but only block devices count in sectors.
        } else if has_unit("sectors") {
            Some(Self::Disk)
        } else if list.starts_with("interfaces") {
            Some(Self::Interface)
        } else {
            None
        }
    }

    /// Returns the weight of this kind in a suspect's score. Devices have less weight, because an
    /// incident is visible on a device but seldom caused by it.
    fn part(self) -> f64 {
        match self {
            Self::Process => 1.0,
            Self::Cgroup => 0.8,
            Self::Disk | Self::Interface => 0.3,
        }
    }
}

/// An element that may be the cause.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SuspectedElement {
    pub(super) element: u32,
    pub(super) kind: SuspectKind,
    pub(super) score: f64,
    /// Departures of the element's fields, best first, one per class.
    pub(super) evidence: Vec<WindowValue>,
    /// Departures of the element's new children, by class, best class first. These departures count
    /// for the element's score, although the values belong to the children.
    pub(super) children: Vec<Vec<WindowValue>>,
}

/// The departure with the highest score, for each class.
type Evidence = BTreeMap<ValueClass, WindowValue>;

/// The evidence against an element.
#[derive(Debug)]
struct Suspicion {
    kind: SuspectKind,
    own: Evidence,
    of_children: BTreeMap<ValueClass, Vec<WindowValue>>,
}

impl Suspicion {
    fn new(kind: SuspectKind) -> Self {
        Self { kind, own: Evidence::new(), of_children: BTreeMap::new() }
    }

    /// Returns the score of each class, for the element or for all of its new children together.
    fn scores(&self) -> BTreeMap<ValueClass, f64> {
        let mut scores: BTreeMap<ValueClass, f64> =
            self.own.iter().map(|(class, best)| (*class, best.score)).collect();
        for (class, departures) in &self.of_children {
            // A process may start many children that each do little, so only their sum shows the
            // activity that it caused.
            let value = CHILDREN_PART * departures.iter().map(|departure| departure.value).sum::<f64>();
            let measure = Measure { class: *class, ..Measure::STATE };
            // New children did nothing before the window.
            let score = departure_score(value, &Baseline::NOTHING, measure);
            let known = scores.entry(*class).or_default();
            *known = known.max(score);
        }
        scores
    }
}

/// Returns the suspects, best first.
pub(super) fn suspects(
    departures: &[WindowValue],
    set: &SeriesSet,
    tables: &[TableInfo],
    names: &ElementNames,
) -> Vec<SuspectedElement> {
    let mut by_element: BTreeMap<u32, Suspicion> = BTreeMap::new();
    for departure in departures {
        let Some((info, element)) = set.info(departure.series).and_then(|info| Some((info, info.element?)))
        else {
            continue;
        };
        // An element that did less than usual is not a cause, at most a victim. A pushed source
        // describes the application that pushed it, not the host.
        if departure.value < departure.usual.level || set.is_pushed(info.table) {
            continue;
        }
        let kind = if info.measure.class == ValueClass::Offspring {
            Some(SuspectKind::Process)
        } else {
            tables.get(info.table).and_then(|table| SuspectKind::of(table, names, element))
        };
        let Some(kind) = kind else { continue };
        let suspicion = by_element.entry(element).or_insert_with(|| Suspicion::new(kind));
        add(&mut suspicion.own, info.measure.class, departure);
    }
    credit_parents(&mut by_element, set);
    let mut found: Vec<SuspectedElement> =
        by_element.into_iter().filter_map(|(element, suspicion)| suspect(element, suspicion, set)).collect();
    // Equal scores keep the order of elements, so that each call prints the same answer.
    found.sort_by(|one, other| {
        other.score.total_cmp(&one.score).then_with(|| one.element.cmp(&other.element))
    });
    without_outer_groups(found, names)
}

fn add(evidence: &mut Evidence, class: ValueClass, departure: &WindowValue) {
    let best = evidence.entry(class).or_insert_with(|| departure.clone());
    if departure.score > best.score {
        *best = departure.clone();
    }
}

/// Adds the departures of new processes to their parents. A parent may do nothing except start
/// children.
fn credit_parents(by_element: &mut BTreeMap<u32, Suspicion>, set: &SeriesSet) {
    let mut credits: Vec<(u32, ValueClass, WindowValue)> = Vec::new();
    for (element, suspicion) in by_element.iter() {
        let parent = set.processes.get(element).and_then(|facts| {
            // A child that existed before the window is a separate suspect.
            facts.born_ns?;
            set.element_of(facts.parent?)
        });
        if let Some(parent) = parent.filter(|parent| parent != element) {
            let own = suspicion.own.iter();
            credits.extend(own.map(|(class, departure)| (parent, *class, departure.clone())));
        }
    }
    for (parent, class, departure) in credits {
        let suspicion = by_element.entry(parent).or_insert_with(|| Suspicion::new(SuspectKind::Process));
        suspicion.of_children.entry(class).or_default().push(departure);
    }
}

/// Returns an element as a suspect, or `None` if its evidence is too weak. An element that only
/// waits is also a suspect, since there may be no other.
fn suspect(element: u32, suspicion: Suspicion, set: &SeriesSet) -> Option<SuspectedElement> {
    let works_for_others =
        set.is_recorder(element) || set.processes.get(&element).is_some_and(is_kernel_thread);
    let own = if works_for_others { FOR_OTHERS_PART } else { 1.0 };
    let part = own * suspicion.kind.part();
    let scores = suspicion.scores();
    // The minimum applies before waits are weighted down, so that an element that only waits is
    // listed too.
    if part * scores.values().sum::<f64>() < SUSPECT_SCORE_MIN {
        return None;
    }
    let sum: f64 = scores.iter().map(|(class, score)| class.suspect_part() * score).sum();
    let Suspicion { kind, own, of_children } = suspicion;
    let mut evidence: Vec<WindowValue> = own.into_values().collect();
    evidence.sort_by(|one, other| other.score.total_cmp(&one.score));
    let mut children: Vec<(f64, Vec<WindowValue>)> = of_children
        .into_iter()
        .map(|(class, departures)| (scores.get(&class).copied().unwrap_or_default(), departures))
        .collect();
    children.sort_by(|one, other| other.0.total_cmp(&one.0));
    let children = children.into_iter().map(|(_, departures)| departures).collect();
    Some(SuspectedElement { element, kind, score: sum * part, evidence, children })
}

fn is_kernel_thread(facts: &ProcessFacts) -> bool {
    facts.pid == KERNEL_PARENT || facts.parent == Some(KERNEL_PARENT)
}

/// Removes control groups whose score is explained by a control group within them. Also removes the
/// root control group, because it is the host.
fn without_outer_groups(found: Vec<SuspectedElement>, names: &ElementNames) -> Vec<SuspectedElement> {
    let groups: Vec<(String, f64)> = found
        .iter()
        .filter(|suspect| suspect.kind == SuspectKind::Cgroup)
        .map(|suspect| (path_of(names, suspect.element), suspect.score))
        .collect();
    let is_explained = |suspect: &SuspectedElement| {
        let path = path_of(names, suspect.element);
        path.is_empty()
            || groups.iter().any(|(inner, score)| {
                // `/a/bc` is not in `/a/b`, so a slash must follow.
                inner.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('/'))
                    && *score >= EXPLAINED_PART * suspect.score
            })
    };
    found
        .into_iter()
        .filter(|suspect| suspect.kind != SuspectKind::Cgroup || !is_explained(suspect))
        .collect()
}

fn path_of(names: &ElementNames, element: u32) -> String {
    path_in(names, names.latest(element))
}

fn path_in(names: &ElementNames, name: ElementName) -> String {
    let path = names.identity(name).iter().find(|part| &*part.field == "path");
    path.map(|part| part.value.to_string()).unwrap_or_default()
}

/// Returns the name of an element. The name of a process includes its id; other names omit numbers
/// that only identify the element.
pub(super) fn label_of(names: &ElementNames, name: ElementName) -> String {
    let label = names.label(name);
    if pid_in(names, name).is_some() {
        return label.to_owned();
    }
    let path = path_in(names, name);
    if path.is_empty() { label.split_once('[').map_or(label, |(name, _)| name).to_owned() } else { path }
}

/// Returns the name and the process id of a suspect. The name omits numbers that only identify the
/// suspect.
pub(super) fn name_of(kind: SuspectKind, names: &ElementNames, name: ElementName) -> (String, Option<u64>) {
    match kind {
        SuspectKind::Process => {
            let label = names.label(name);
            let program = label.rsplit_once('[').map_or(label, |(program, _)| program);
            (program.to_owned(), pid_in(names, name))
        }
        // This is the spelling of systemd and /proc/PID/cgroup.
        SuspectKind::Cgroup => (format!("/{}", path_in(names, name)), None),
        SuspectKind::Disk | SuspectKind::Interface => (label_of(names, name), None),
    }
}
