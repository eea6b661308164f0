//! Attribution: decides for each element whether it used more of a resource than usual, waited, or
//! used less. The kind of an element follows from the shape of its list.

use std::collections::BTreeMap;

use flatcap_query::{ElementName, ElementNames, TableInfo};
use serde::Serialize;

use super::baseline::Baseline;
use super::measure::{Measure, ValueClass};
use super::score::{CLEAR_SCORE, EFFECT_PART, use_score};
use super::series::{KERNEL_PARENT, SeriesSet, pid_in};
use super::table_shape::ProcessFacts;
use super::window::{WindowSteps, WindowValue};

/// Minimum score of an element that used more than usual, waited, or used less.
const LISTED_SCORE_MIN: f64 = 0.25;
/// Minimum score of a field that is evidence of use.
const EVIDENCE_SCORE_MIN: f64 = 0.05;
/// An element used less if its use fell to at most this share of its usual level.
pub(super) const FALLEN_PART: f64 = 0.5;
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

/// The role of a suspect in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspectRole {
    /// It used more of a resource than usual, so it may be the cause.
    UsedMore,
    /// It ended, and did not use more than usual before.
    Ended,
    /// It used less than usual and did not wait, or was stopped.
    UsedLess,
    /// It used no more than usual, and waited for a CPU, a device or a lock. It is a victim.
    Waited,
}

impl SuspectRole {
    pub(super) const ALL: [Self; 4] = [Self::UsedMore, Self::Ended, Self::UsedLess, Self::Waited];
}

/// An element with the departures that give it its role.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AttributedElement {
    pub(super) element: u32,
    pub(super) kind: SuspectKind,
    pub(super) role: SuspectRole,
    pub(super) score: f64,
    /// Departures of the element's fields, best first, one per class.
    pub(super) evidence: Vec<WindowValue>,
    /// Departures of the element's new children, by class, best class first. These departures count
    /// for the element's score, although the values belong to the children.
    pub(super) children: Vec<Vec<WindowValue>>,
}

/// The departure with the highest score, for each class, with this score.
type Evidence = BTreeMap<ValueClass, (f64, WindowValue)>;

/// The departures of an element.
#[derive(Debug)]
struct ElementDepartures {
    kind: SuspectKind,
    /// Fields with a use above the usual level.
    used: Evidence,
    of_children: BTreeMap<ValueClass, Vec<WindowValue>>,
    /// The waits of the element, and its states.
    waited: Evidence,
    /// Fields with a use below the usual level.
    fallen: Evidence,
}

impl ElementDepartures {
    fn new(kind: SuspectKind) -> Self {
        Self {
            kind,
            used: Evidence::new(),
            of_children: BTreeMap::new(),
            waited: Evidence::new(),
            fallen: Evidence::new(),
        }
    }

    fn add(&mut self, class: ValueClass, state: Option<&str>, departure: &WindowValue) {
        let is_more = departure.value >= departure.usual.level;
        let score = departure.score;
        if !class.is_use() {
            match effect_of(class, state) {
                Some(SuspectRole::Waited) if is_more => keep_best(&mut self.waited, class, departure, score),
                Some(SuspectRole::UsedLess) if is_more => {
                    keep_best(&mut self.fallen, class, departure, score);
                }
                _ => {}
            }
        } else if is_more {
            let score = departure.use_score;
            if score >= EVIDENCE_SCORE_MIN {
                keep_best(&mut self.used, class, departure, score);
            }
        } else if departure.value <= FALLEN_PART * departure.usual.level {
            keep_best(&mut self.fallen, class, departure, departure.score);
        }
    }

    /// Returns the score of each class of use, for the element or for all of its new children
    /// together.
    fn use_scores(&self) -> BTreeMap<ValueClass, f64> {
        let mut scores: BTreeMap<ValueClass, f64> =
            self.used.iter().map(|(class, (score, _))| (*class, *score)).collect();
        for (class, departures) in &self.of_children {
            // A process may start many children that each do little, so only their sum shows the
            // activity that it caused.
            let value = CHILDREN_PART * departures.iter().map(|departure| departure.value).sum::<f64>();
            let measure = Measure { class: *class, ..Measure::STATE };
            // New children did nothing before the window.
            let score = use_score(value, &Baseline::NOTHING, measure);
            let known = scores.entry(*class).or_default();
            *known = known.max(score);
        }
        scores
    }
}

/// Returns the elements whose use of resources differs from what is usual for them. Each element
/// has one role.
pub(super) fn attribute(
    departures: &[WindowValue],
    steps: &WindowSteps,
    set: &SeriesSet,
    tables: &[TableInfo],
    names: &ElementNames,
) -> Vec<AttributedElement> {
    let mut by_element: BTreeMap<u32, ElementDepartures> = BTreeMap::new();
    for departure in departures {
        let Some((info, element)) = set.info(departure.series).and_then(|info| Some((info, info.element?)))
        else {
            continue;
        };
        // A pushed source describes the application that pushed it, not the host.
        if set.is_pushed(info.table) {
            continue;
        }
        let kind = if info.measure.class == ValueClass::Offspring {
            Some(SuspectKind::Process)
        } else {
            tables.get(info.table).and_then(|table| SuspectKind::of(table, names, element))
        };
        let Some(kind) = kind else { continue };
        let own = by_element.entry(element).or_insert_with(|| ElementDepartures::new(kind));
        own.add(info.measure.class, info.state.as_deref(), departure);
    }
    credit_parents(&mut by_element, steps, set);
    let found = by_element.into_iter().filter_map(|(element, own)| {
        user(element, &own, set)
            .or_else(|| affected(element, SuspectRole::Waited, (own.kind, &own.waited), set))
            .or_else(|| affected(element, SuspectRole::UsedLess, (own.kind, &own.fallen), set))
    });
    without_outer_groups(found.collect(), names)
}

/// Sorts suspects, best first. `rank` returns for a suspect whether what it did is usually an
/// effect and not a cause, and its score. If a suspect clearly did what may be the cause, effects
/// come last.
pub(super) fn sort_suspects<T>(suspects: &mut [T], rank: impl Fn(&T) -> (bool, f64)) {
    let is_clear = suspects.iter().map(&rank).any(|(is_effect, score)| !is_effect && score >= CLEAR_SCORE);
    let key = |suspect: &T| {
        let (is_effect, score) = rank(suspect);
        (is_clear && is_effect, if is_effect { EFFECT_PART * score } else { score })
    };
    // Equal scores keep their order, so that each call prints the same answer.
    suspects.sort_by(|one, other| {
        let ((one_last, one), (other_last, other)) = (key(one), key(other));
        one_last.cmp(&other_last).then_with(|| other.total_cmp(&one))
    });
}

/// Returns what a wait or a state of an element is evidence for.
fn effect_of(class: ValueClass, state: Option<&str>) -> Option<SuspectRole> {
    match (class, state) {
        (ValueClass::WaitShare, _) | (ValueClass::StateShare, Some("D")) => Some(SuspectRole::Waited),
        (ValueClass::StateShare, Some("T" | "t")) => Some(SuspectRole::UsedLess),
        // A process that is ready to run may run, and other states are neither.
        _ => None,
    }
}

fn keep_best(evidence: &mut Evidence, class: ValueClass, departure: &WindowValue, score: f64) {
    if score > evidence.get(&class).map_or(0.0, |(best, _)| *best) {
        evidence.insert(class, (score, departure.clone()));
    }
}

/// Returns the departures, best first.
fn best_first(evidence: &Evidence) -> Vec<WindowValue> {
    let mut found: Vec<&(f64, WindowValue)> = evidence.values().collect();
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    found.into_iter().map(|(_, departure)| departure.clone()).collect()
}

/// Adds the departures of new processes to their parents. A parent may do nothing except start
/// children.
fn credit_parents(by_element: &mut BTreeMap<u32, ElementDepartures>, steps: &WindowSteps, set: &SeriesSet) {
    let mut credits: Vec<(u32, ValueClass, WindowValue)> = Vec::new();
    for (element, own) in by_element.iter() {
        let parent = set.processes.get(element).and_then(|facts| {
            // A child that existed before the window is a separate suspect.
            let is_new = steps.began_in_baseline(facts.born_ns);
            set.element_of(facts.parent.filter(|_| is_new)?)
        });
        if let Some(parent) = parent.filter(|parent| parent != element) {
            credits
                .extend(own.used.iter().map(|(class, (_, departure))| (parent, *class, departure.clone())));
        }
    }
    for (parent, class, departure) in credits {
        let own = by_element.entry(parent).or_insert_with(|| ElementDepartures::new(SuspectKind::Process));
        own.of_children.entry(class).or_default().push(departure);
    }
}

/// Returns an element as a user, or `None` if it used too little above its usual level.
fn user(element: u32, own: &ElementDepartures, set: &SeriesSet) -> Option<AttributedElement> {
    let part = part_of(element, own.kind, set);
    let scores = own.use_scores();
    let score = part * scores.values().sum::<f64>();
    if score < LISTED_SCORE_MIN {
        return None;
    }
    let mut children: Vec<(f64, Vec<WindowValue>)> = own
        .of_children
        .iter()
        .map(|(class, departures)| (scores.get(class).copied().unwrap_or_default(), departures.clone()))
        .collect();
    children.sort_by(|one, other| other.0.total_cmp(&one.0));
    let children = children.into_iter().map(|(_, departures)| departures).collect();
    let (role, evidence) = (SuspectRole::UsedMore, best_first(&own.used));
    Some(AttributedElement { element, kind: own.kind, role, score, evidence, children })
}

/// Returns the weight of an element.
fn part_of(element: u32, kind: SuspectKind, set: &SeriesSet) -> f64 {
    let works_for_others =
        set.is_recorder(element) || set.processes.get(&element).is_some_and(is_kernel_thread);
    if works_for_others { FOR_OTHERS_PART * kind.part() } else { kind.part() }
}

/// Returns an element that waited or used less, or `None` if the evidence is too weak.
fn affected(
    element: u32,
    role: SuspectRole,
    (kind, evidence): (SuspectKind, &Evidence),
    set: &SeriesSet,
) -> Option<AttributedElement> {
    let evidence = best_first(evidence);
    let score = part_of(element, kind, set) * evidence.first()?.score;
    (score >= LISTED_SCORE_MIN).then(|| AttributedElement {
        element,
        kind,
        role,
        score,
        evidence,
        children: Vec::new(),
    })
}

fn is_kernel_thread(facts: &ProcessFacts) -> bool {
    facts.pid == KERNEL_PARENT || facts.parent == Some(KERNEL_PARENT)
}

/// Removes control groups whose score is explained by a control group within them. Also removes the
/// root control group, because it is the host.
fn without_outer_groups(found: Vec<AttributedElement>, names: &ElementNames) -> Vec<AttributedElement> {
    let groups: Vec<(String, f64)> = found
        .iter()
        .filter(|suspect| suspect.kind == SuspectKind::Cgroup)
        .map(|suspect| (path_of(names, suspect.element), suspect.score))
        .collect();
    let is_explained = |suspect: &AttributedElement| {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns scores in the order of suspects. The flag marks an effect.
    fn sorted(mut suspects: Vec<(bool, f64)>) -> Vec<f64> {
        sort_suspects(&mut suspects, |suspect| *suspect);
        suspects.into_iter().map(|(_, score)| score).collect()
    }

    // Proves that a victim with a high score comes after each clear cause, and that it comes first
    // if no cause is clear and its weighted score is higher.
    #[test]
    fn effects_come_after_a_clear_cause() {
        assert_eq!(sorted(vec![(true, 3.0), (false, 0.3), (false, CLEAR_SCORE)]), [CLEAR_SCORE, 0.3, 3.0]);
        assert_eq!(sorted(vec![(false, 0.3), (true, 3.0)]), [3.0, 0.3]);
        assert_eq!(sorted(vec![(true, 1.0), (false, 0.5)]), [0.5, 1.0]);
        assert_eq!(sorted(vec![(false, 1.0), (false, 2.0), (true, 9.0)]), [2.0, 1.0, 9.0]);
    }

    // Proves that only waits and uninterruptible sleep make a victim, and that a stopped process
    // used less.
    #[test]
    fn waits_and_stops_are_effects() {
        let state = |state| effect_of(ValueClass::StateShare, Some(state));
        assert_eq!((state("D"), state("R")), (Some(SuspectRole::Waited), None));
        assert_eq!((state("T"), state("t")), (Some(SuspectRole::UsedLess), Some(SuspectRole::UsedLess)));
        assert_eq!(effect_of(ValueClass::WaitShare, None), Some(SuspectRole::Waited));
    }
}
