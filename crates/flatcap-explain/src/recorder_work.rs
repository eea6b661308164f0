//! Finds departures that the recorder itself causes. The recorder reads each finished segment to
//! compress it, and the host's counters include this work.

use super::attribution::SuspectKind;
use super::departure::Departure;
use super::events::SAME_TIME_NS;
use super::measure::ValueClass;

/// The recorder's own work explains a departure if the recorder moved at least this share of the
/// bytes.
const MOVED_PART: f64 = 0.5;

/// The properties of a departure's element that are needed to detect the recorder's work.
#[derive(Debug, Clone, Copy)]
pub(super) struct DepartureActor {
    /// The kind of the element, or `None` for the host and for elements that cannot be the cause.
    pub(super) kind: Option<SuspectKind>,
    pub(super) is_recorder: bool,
}

/// Returns for each departure whether the recorder's own work explains it.
///
/// The result is true for bytes per second of the host, a control group or a disk if the recorder
/// moved at least [`MOVED_PART`] of these bytes at the same time. If it is true for a disk, it is
/// true for all departures of that disk at the same time.
pub(super) fn explained(departures: &[Departure], actors: &[DepartureActor]) -> Vec<bool> {
    let all = || departures.iter().zip(actors);
    let mut own: Vec<&Departure> =
        all().filter(|(_, actor)| actor.is_recorder).filter_map(|(own, _)| moved(own).map(|_| own)).collect();
    own.sort_by_key(|own| own.wall_ns);
    let is_by_bytes = |(departure, actor): (&Departure, &DepartureActor)| {
        actor.kind != Some(SuspectKind::Process)
            && moved(departure).is_some_and(|bytes| {
                near(&own, departure).iter().any(|own| moved(own) >= Some(MOVED_PART * bytes))
            })
    };
    let by_bytes: Vec<bool> = all().map(is_by_bytes).collect();
    let mut disks: Vec<&Departure> = all()
        .zip(&by_bytes)
        .filter(|((_, actor), is_explained)| **is_explained && actor.kind == Some(SuspectKind::Disk))
        .map(|((departure, _), _)| departure)
        .collect();
    disks.sort_by_key(|disk| disk.wall_ns);
    let is_of_disk =
        |departure: &Departure| near(&disks, departure).iter().any(|disk| disk.element == departure.element);
    departures.iter().zip(by_bytes).map(|(own, is_by_bytes)| is_by_bytes || is_of_disk(own)).collect()
}

/// Returns how far the byte rate exceeds the usual level. Returns `None` for a decrease, and for a
/// departure that is not a byte rate.
fn moved(departure: &Departure) -> Option<f64> {
    let more = departure.value - departure.usual.level;
    (departure.class == ValueClass::ByteRate && more > 0.0).then_some(more)
}

/// Returns the departures at the same time as `departure`. `sorted` contains departures in time
/// order.
fn near<'s, 'd>(sorted: &'s [&'d Departure], departure: &Departure) -> &'s [&'d Departure] {
    let at_ns = departure.wall_ns;
    let first = sorted.partition_point(|other| other.wall_ns < at_ns.saturating_sub_unsigned(SAME_TIME_NS));
    let end = sorted.partition_point(|other| other.wall_ns <= at_ns.saturating_add_unsigned(SAME_TIME_NS));
    sorted.get(first..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Baseline;
    use crate::departure::STEP_NS;
    use crate::measure::Measure;

    const HOST: DepartureActor = DepartureActor { kind: None, is_recorder: false };
    const DISK: DepartureActor = DepartureActor { kind: Some(SuspectKind::Disk), is_recorder: false };
    const OTHER: DepartureActor = DepartureActor { kind: Some(SuspectKind::Process), is_recorder: false };
    const RECORDER: DepartureActor = DepartureActor { is_recorder: true, ..OTHER };

    fn departure(wall_ms: i64, element: u32, class: ValueClass, value: f64) -> Departure {
        Departure {
            table: 0,
            column: 0,
            element: Some(element),
            state: None,
            observed_ns: 0,
            born_wall_ns: None,
            measure: Measure::STATE,
            class,
            wall_ns: wall_ms * 1_000_000,
            period_ns: STEP_NS,
            value,
            usual: Baseline::NOTHING,
            score: 1.0,
            is_early: false,
            ended: None,
        }
    }

    // Proves that the bytes that the recorder moved explain the bytes of the host and of a disk at
    // the same time, and the busy time of that disk. These bytes do not explain the bytes of
    // another process, or more than twice as many bytes. They also do not explain a departure at
    // another time, of another disk or of another class.
    #[test]
    fn the_work_of_the_recorder_explains_what_the_host_shows_of_it() {
        let (bytes, time) = (ValueClass::ByteRate, ValueClass::TimeShare);
        let all = [
            (departure(5_000, 9, bytes, 32e6), RECORDER, false),
            (departure(5_100, 0, bytes, 40e6), HOST, true),
            (departure(5_600, 1, bytes, 64e6), DISK, true),
            (departure(6_000, 1, time, 7.0), DISK, true),
            (departure(5_000, 2, bytes, 65e6), DISK, false),
            (departure(5_000, 2, time, 7.0), DISK, false),
            (departure(5_000, 3, bytes, 32e6), OTHER, false),
            (departure(5_000, 0, time, 1.0), HOST, false),
            (departure(5_700, 0, bytes, 32e6), HOST, false),
            (departure(4_300, 0, bytes, 32e6), HOST, false),
            (departure(5_000, 0, bytes, -32e6), HOST, false),
        ];
        let departures: Vec<Departure> = all.iter().map(|(departure, ..)| departure.clone()).collect();
        let actors: Vec<DepartureActor> = all.iter().map(|(_, actor, _)| *actor).collect();
        let expected: Vec<bool> = all.iter().map(|(.., is_explained)| *is_explained).collect();
        assert_eq!(explained(&departures, &actors), expected);
        assert_eq!(explained(&departures, &[HOST; 11]), [false; 11], "no recorder");
    }
}
