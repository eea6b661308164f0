//! The processes that ended around a window, as suspects.

use std::ops::Range;

use super::answers::{ProcessEnding, Suspect, SuspectIdentity};
use super::attribution::{SuspectKind, SuspectRole, name_of, sort_suspects};
use super::measure::ValueClass;
use super::process_exits::ProcessEnd;
use super::reading::ReadResults;
use super::text::ending_text;
use super::window::WindowSteps;

/// Time before the window in which the end of a process is listed.
// The process is missing in the window, although it ended before.
const ENDED_BEFORE_NS: u64 = 2_000_000_000;
/// A suspect, and its element if a sample contains it.
pub(super) type ElementSuspect = (Option<u32>, Suspect);

/// Adds the processes that ended to the suspects, and sorts the suspects, best first. A process
/// that used more than usual and ended is one suspect.
pub(super) fn with_ends(mut suspects: Vec<ElementSuspect>, ended: Vec<ElementSuspect>) -> Vec<Suspect> {
    for (element, end) in ended {
        let known = suspects.iter_mut().find(|(own, _)| element.is_some() && *own == element);
        match known {
            Some((_, own)) if own.role == SuspectRole::UsedMore => {
                own.what = format!("{}, {}", own.what, end.what);
                own.score = own.score.max(end.score);
                own.ended = end.ended;
            }
            Some((_, own)) => *own = end,
            None => suspects.push((element, end)),
        }
    }
    let mut suspects: Vec<Suspect> = suspects.into_iter().map(|(_, suspect)| suspect).collect();
    sort_suspects(&mut suspects, |own| {
        let is_signalled = own.ended.as_ref().is_some_and(|ended| ended.signal.is_some());
        let is_cause = own.role == SuspectRole::UsedMore || (own.role == SuspectRole::Ended && is_signalled);
        (!is_cause, own.score)
    });
    suspects
}

/// Returns the processes that a signal ended shortly before or in the window, and those that ended
/// and had used CPU time before. The score of a process rises with its usual CPU time before its
/// end.
pub(super) fn ended_processes(
    window: &Range<u64>,
    steps: &WindowSteps,
    read: &ReadResults,
) -> Vec<ElementSuspect> {
    let names = read.results.elements();
    let describe = |end: &ProcessEnd| {
        let wall_ns = read.clock.wall_ns(end.mono_ns);
        let element = read.set.element_of_end(end);
        let name = element
            .map(|element| name_of(SuspectKind::Process, names, read.set.name_at(names, element, wall_ns)).0);
        let times = element.into_iter().flat_map(|element| read.set.series_of(element));
        let times = times.filter(|(_, info)| info.measure.class == ValueClass::TimeShare);
        // The exact CPU time is the largest of the times, since the others are its parts.
        let usual = times.filter_map(|(series, _)| steps.usual_level(series)).max_by(f64::total_cmp);
        let score = end.score(usual)?;
        let ending = ProcessEnding::new(end, wall_ns, usual);
        let suspect = Suspect {
            kind: SuspectKind::Process,
            name: name.unwrap_or_default(),
            pid: Some(end.pid),
            start: end.start,
            identity: SuspectIdentity::default(),
            role: SuspectRole::Ended,
            score,
            what: ending_text(&ending),
            evidence: Vec::new(),
            children: Vec::new(),
            ended: Some(ending),
            first_wall_ns: wall_ns,
        };
        Some((element, suspect))
    };
    let span = window.start.saturating_sub(ENDED_BEFORE_NS)..window.end;
    read.set.ends(&span).filter_map(describe).collect()
}
