//! The processes that ended around a window, as suspects.

use std::ops::Range;

use super::answers::{ProcessEnding, Suspect, SuspectIdentity};
use super::attribution::{CLEAR_SCORE, SuspectKind, SuspectRole, name_of, sort_suspects};
use super::baseline::Baseline;
use super::measure::{Measure, ValueClass};
use super::process_exits::ProcessEnd;
use super::reading::ReadResults;
use super::score::use_score;
use super::text::ending_text;
use super::window::WindowSteps;

/// Time before the window in which the end of a process is listed.
// The process is missing in the window, although it ended before.
const ENDED_BEFORE_NS: u64 = 2_000_000_000;
/// Signals that end a process in an orderly way: SIGHUP, SIGINT, SIGPIPE and SIGTERM. Any other
/// signal is evidence of an incident, whatever the process had used.
const ORDERLY_SIGNALS: [u64; 4] = [1, 2, 13, 15];
/// Minimum usual CPU time of a listed process that ended by itself, as a share of a core.
const ENDED_CPU_MIN: f64 = 0.01;
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
        let is_orderly = end.signal.is_none_or(|signal| ORDERLY_SIGNALS.contains(&signal));
        let has_worked = usual.is_some_and(|usual| usual >= ENDED_CPU_MIN);
        let ending = ProcessEnding {
            wall_ns,
            exit_code: end.exit_code,
            signal: end.signal,
            usual_cpu_percent: usual.map(|usual| 100.0 * usual),
        };
        let time = Measure { class: ValueClass::TimeShare, ..Measure::STATE };
        let worked = use_score(usual.unwrap_or_default(), &Baseline::NOTHING, time);
        let suspect = Suspect {
            kind: SuspectKind::Process,
            name: name.unwrap_or_default(),
            pid: Some(end.pid),
            start: end.start,
            identity: SuspectIdentity::default(),
            role: SuspectRole::Ended,
            score: if is_orderly { worked } else { worked + CLEAR_SCORE },
            what: ending_text(&ending),
            evidence: Vec::new(),
            children: Vec::new(),
            ended: Some(ending),
            first_wall_ns: wall_ns,
        };
        (has_worked || !is_orderly).then_some((element, suspect))
    };
    let span = window.start.saturating_sub(ENDED_BEFORE_NS)..window.end;
    read.set.ends(&span).filter_map(describe).collect()
}
