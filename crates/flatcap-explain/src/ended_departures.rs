//! The ends of processes as departures of a recording. The kernel reports the signal or the
//! status with which a process ended.

use std::collections::{HashMap, VecDeque};

use super::baseline::Baseline;
use super::clock::RunClock;
use super::departure::{Departure, FORGETS_AFTER_NS};
use super::events::SAME_TIME_NS;
use super::measure::ValueClass;
use super::observation::SeriesInfo;
use super::process_exits::ProcessEnd;
use super::score::EFFECT_PART;
use super::series::SeriesSet;
use super::table_shape::EXITS_MAX;

/// The processes of a recording that have ended, and their usual CPU time.
#[derive(Debug, Default)]
pub(super) struct EndedProcesses {
    /// The ends in time order, with their wall time.
    ends: VecDeque<(ProcessEnd, i64)>,
    /// Monotonic time after the last end in `ends`, within the current run.
    next_ns: u64,
    /// The usual CPU time of elements whose series have ended.
    usual: HashMap<u32, UsualTime>,
}

/// The series of an element with the largest usual CPU time.
// The other times of a process, such as its time in the kernel, are parts of it.
#[derive(Debug)]
struct UsualTime {
    info: SeriesInfo,
    usual: Baseline,
}

impl EndedProcesses {
    pub(super) fn begin_run(&mut self) {
        self.next_ns = 0;
    }

    /// Adds the ends that the kernel reported since the last call.
    pub(super) fn add(&mut self, clock: &RunClock, set: &SeriesSet) {
        for end in set.ends(&(self.next_ns..u64::MAX)) {
            if self.ends.len() == EXITS_MAX {
                // Most processes end by themselves after a short time, which is no departure.
                self.ends.retain(|(end, _)| !end.is_orderly());
            }
            if self.ends.len() == EXITS_MAX {
                self.ends.pop_front();
            }
            self.next_ns = self.next_ns.max(end.mono_ns + 1);
            self.ends.push_back((*end, clock.wall_ns(end.mono_ns)));
        }
    }

    /// Adds the usual level of a series that ends. Series that are not the CPU time of an element
    /// are ignored.
    pub(super) fn add_series(&mut self, info: &SeriesInfo, usual: Option<Baseline>) {
        let (Some(element), Some(usual)) = (info.element, usual) else { return };
        if info.measure.class != ValueClass::TimeShare {
            return;
        }
        let is_full = self.usual.len() == EXITS_MAX;
        let is_better = match self.usual.get(&element) {
            Some(known) => usual.level > known.usual.level,
            None => !is_full,
        };
        if is_better {
            self.usual.insert(element, UsualTime { info: info.clone(), usual });
        }
    }

    /// Replaces the falls of the CPU time of ended processes by departures that describe their end.
    /// Ends before the wall time `since_ns` are no departures.
    pub(super) fn replace_falls(
        &self,
        since_ns: Option<i64>,
        departures: &mut Vec<Departure>,
        set: &SeriesSet,
    ) {
        let own = self.ends.iter().filter(|(_, wall_ns)| since_ns.is_none_or(|since| *wall_ns >= since));
        let found: Vec<Departure> = own.filter_map(|end| self.departure(end, set)).collect();
        let mut end_times: HashMap<u32, i64> = HashMap::new();
        for (end, wall_ns) in &self.ends {
            end_times.extend(set.element_of_end(end).map(|element| (element, *wall_ns)));
        }
        departures.retain(|departure| {
            let end_ns = departure.element.and_then(|element| end_times.get(&element));
            let is_fall = departure.class == ValueClass::TimeShare && departure.value < departure.usual.level;
            // A fall that precedes the end has another reason.
            let is_at_end = |end_ns: i64| {
                let first_ns = end_ns.saturating_sub_unsigned(SAME_TIME_NS);
                let last_ns = end_ns.saturating_add_unsigned(FORGETS_AFTER_NS);
                (first_ns..=last_ns).contains(&departure.wall_ns)
            };
            !end_ns.is_some_and(|end_ns| is_fall && is_at_end(*end_ns))
        });
        departures.extend(found);
    }

    /// Returns the departure of an end. Returns `None` if the end is no evidence, or if the
    /// usual CPU time of the process is not known.
    fn departure(&self, (end, wall_ns): &(ProcessEnd, i64), set: &SeriesSet) -> Option<Departure> {
        let element = set.element_of_end(end)?;
        let UsualTime { info, usual } = self.usual.get(&element)?;
        let score = end.score(Some(usual.level))?;
        Some(Departure {
            table: info.table,
            column: info.column,
            element: Some(element),
            state: None,
            class: info.measure.class,
            wall_ns: *wall_ns,
            observed_ns: *wall_ns,
            born_wall_ns: None,
            measure: info.measure,
            period_ns: 0,
            value: 0.0,
            usual: *usual,
            // A process that ends by itself has usually done its work.
            score: if end.signal.is_some() { score } else { EFFECT_PART * score },
            is_early: false,
            ended: Some(*end),
        })
    }
}
