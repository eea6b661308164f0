//! Joins departures at the same time into an event.

use super::departure::{Departure, WINDOW_NS};

/// Minimum score of an event. An event below this score is not reported.
// On idle hosts, the rarest changes of five thousand fields reach this score about once in twenty
// minutes.
const EVENT_SCORE_MIN: f64 = 1.5;
/// The weight of the best departure of another source in the score of an event.
const OTHER_SOURCE_WEIGHT: f64 = 0.5;
/// Maximum time between the best departure of an event and its other departures.
// Effects follow their cause, and the kernel updates its averages every two seconds.
const JOINED_NS: i64 = 2_200_000_000;
/// Maximum time between gradual changes that form an event.
// The begin of a gradual change is not exact.
const GRADUAL_JOINED_NS: i64 = 20_000_000_000;
/// A departure is strong if its score is at least this share of the best score. The earliest strong
/// departure determines the time of the event.
const STRONG_PART: f64 = 0.8;
/// Maximum time between departures that count as simultaneous, namely two windows.
pub(super) const SAME_TIME_NS: u64 = 2 * WINDOW_NS;

/// An event, which consists of departures at the same time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// The departure that gives the event its name.
    pub(super) departure: Departure,
    pub(super) score: f64,
}

/// Joins departures to events and returns the events above the threshold, best first. `source_of`
/// returns the source of a table.
pub(super) fn events(mut departures: Vec<Departure>, source_of: impl Fn(usize) -> String) -> Vec<Event> {
    departures.sort_by_key(|departure| departure.wall_ns);
    let mut by_score: Vec<usize> = (0..departures.len()).collect();
    let score = |at: &usize| departures.get(*at).map_or(0.0, |departure| departure.score);
    by_score.sort_by(|one, other| score(other).total_cmp(&score(one)));
    let mut is_joined = vec![false; departures.len()];
    let mut events = Vec::new();
    // The strongest departure is joined with its neighbours first, since it is most likely to name
    // the event.
    for at in by_score {
        let Some(best) = departures.get(at).filter(|_| is_joined.get(at) == Some(&false)) else { continue };
        let distance_ns = if best.is_early { GRADUAL_JOINED_NS } else { JOINED_NS };
        let first = departures.partition_point(|other| other.wall_ns < best.wall_ns - distance_ns);
        let end = departures.partition_point(|other| other.wall_ns <= best.wall_ns + distance_ns);
        let mut own = Vec::new();
        for (other, is_joined) in (first..end).zip(is_joined.get_mut(first..end).unwrap_or_default()) {
            let Some(other) = departures.get(other).filter(|_| !*is_joined) else { continue };
            let is_near = (other.wall_ns - best.wall_ns).abs() <= JOINED_NS;
            if is_near || other.is_early {
                own.push(other);
                *is_joined = true;
            }
        }
        let event = event_of(best, &own, &source_of);
        events.extend(Some(event).filter(|event| event.score >= EVENT_SCORE_MIN));
    }
    events.sort_by(|one, other| other.score.total_cmp(&one.score));
    events
}

/// Returns the event that these departures form. `best` is the departure with the best score. The
/// departures are in time order.
fn event_of(best: &Departure, departures: &[&Departure], source_of: impl Fn(usize) -> String) -> Event {
    let source = source_of(best.table);
    // Fields of one source often move together, so only another source confirms an event.
    let other = departures
        .iter()
        .filter(|departure| source_of(departure.table) != source)
        .map(|departure| departure.score)
        .fold(0.0, f64::max);
    let is_strong = |departure: &&&Departure| departure.score >= STRONG_PART * best.score;
    let earliest_ns = departures.iter().find(is_strong).map_or(best.wall_ns, |earliest| earliest.wall_ns);
    // The best of the simultaneous departures names the event.
    let span_ns = i64::try_from(SAME_TIME_NS).unwrap_or(i64::MAX);
    let named = departures
        .iter()
        .filter(|departure| departure.wall_ns - earliest_ns <= span_ns)
        .filter(is_strong)
        .max_by(|one, other| one.score.total_cmp(&other.score));
    let mut departure = named.map_or_else(|| best.clone(), |named| (*named).clone());
    departure.wall_ns = finer_moment(&departure, departures).unwrap_or(departure.wall_ns);
    Event { departure, score: best.score + OTHER_SOURCE_WEIGHT * other }
}

/// Returns a more exact time for a departure of a coarse source. This is the time of the best
/// departure of a finer source in the same period.
fn finer_moment(coarse: &Departure, departures: &[&Departure]) -> Option<i64> {
    let is_fine = |departure: &Departure| departure.period_ns <= WINDOW_NS;
    if is_fine(coarse) {
        return None;
    }
    departures
        .iter()
        .filter(|other| is_fine(other) && other.wall_ns.abs_diff(coarse.wall_ns) <= coarse.period_ns)
        .max_by(|one, other| one.score.total_cmp(&other.score))
        .map(|finest| finest.wall_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Baseline;
    use crate::departure::STEP_NS;
    use crate::measure::{Measure, ValueClass};

    fn departure(table: usize, wall_ns: i64, score: f64) -> Departure {
        Departure {
            table,
            column: 0,
            element: None,
            state: None,
            observed_ns: 0,
            born_wall_ns: None,
            measure: Measure::STATE,
            class: ValueClass::TimeShare,
            wall_ns,
            period_ns: STEP_NS,
            value: 1.0,
            usual: Baseline::NOTHING,
            score,
            is_early: false,
            ended: None,
        }
    }

    // Proves that simultaneous departures are one event, with the time of the earliest strong
    // departure. A departure of another source adds to the event's score, and weak departures cause
    // no event.
    #[test]
    fn departures_of_a_moment_are_one_event() {
        let second = 1_000_000_000;
        let all = vec![
            departure(1, 50 * second, 1.4),
            departure(0, 51 * second, 1.6),
            departure(1, 80 * second, 1.4),
            departure(0, 90 * second, 0.9),
            departure(1, 90 * second, 0.9),
        ];
        let found = events(all, |table| table.to_string());
        let shown: Vec<_> =
            found.iter().map(|event| (event.departure.wall_ns / second, event.score)).collect();
        assert_eq!(shown, [(50, 1.6 + 0.7)]);
        assert!(events(Vec::new(), |_| String::new()).is_empty());
    }

    // Proves that a departure of a source of 1 Hz names the event, while a departure of a finer
    // source in the same second sets its time. A departure in another second does not set the time.
    #[test]
    fn a_finer_source_says_when() {
        let ms = 1_000_000;
        let second = |table, wall_ms, score| Departure {
            period_ns: 1_000_000_000,
            ..departure(table, wall_ms * ms, score)
        };
        let all = vec![
            second(1, 49_820, 2.0),
            departure(0, 50_150 * ms, 0.9),
            departure(2, 50_700 * ms, 0.7),
            departure(0, 51_000 * ms, 1.0),
        ];
        let found = events(all.clone(), |table| table.to_string());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].departure.table, found[0].departure.wall_ns), (1, 50_150 * ms));
        let alone = events(vec![all[0].clone(), all[3].clone()], |table| table.to_string());
        assert_eq!((alone[0].departure.table, alone[0].departure.wall_ns), (1, 49_820 * ms));
    }
}
