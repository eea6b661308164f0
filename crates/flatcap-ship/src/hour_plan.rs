//! Selects the hours that are merged, and the segments of these hours.

use std::collections::BTreeMap;

use crate::names::{ObjectGroup, Partition};

const SECONDS_PER_HOUR: i64 = 3600;

/// A segment whose hot objects are in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HotSegment {
    pub(crate) partition: Partition,
    pub(crate) run_id: u64,
    pub(crate) number: u64,
    /// Creation time, in seconds since 1970.
    pub(crate) created_s: i64,
    /// Time at which the segment's manifest was put, by the clock of the store, in seconds since
    /// 1970.
    pub(crate) put_s: i64,
}

/// An hour of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunHour {
    pub(crate) partition: Partition,
    pub(crate) run_id: u64,
    /// The hour, as the number of hours since 1970.
    hour: i64,
}

impl RunHour {
    fn of(segment: &HotSegment) -> Self {
        let hour = segment.created_s.div_euclid(SECONDS_PER_HOUR);
        Self { partition: segment.partition.clone(), run_id: segment.run_id, hour }
    }

    /// Returns the group that determines the names of the hour's objects.
    pub(crate) fn group(&self) -> ObjectGroup {
        // The hour of the day, from 0 to 23.
        let hour = u8::try_from(self.hour.rem_euclid(24)).unwrap_or_default();
        ObjectGroup::of_hour(self.partition.clone(), self.run_id, hour)
    }
}

/// Returns the complete hours, each with its segment numbers in ascending order. An hour is
/// complete if its run has a later segment in another hour, or if the last segment of the hour was
/// put at least `settle_s` seconds ago.
pub(crate) fn complete_hours(
    segments: &[HotSegment],
    now_s: i64,
    settle_s: i64,
) -> BTreeMap<RunHour, Vec<u64>> {
    let mut last_numbers: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    let mut hours: BTreeMap<RunHour, Vec<&HotSegment>> = BTreeMap::new();
    for segment in segments {
        let last = last_numbers.entry((segment.partition.host(), segment.run_id)).or_default();
        *last = segment.number.max(*last);
        hours.entry(RunHour::of(segment)).or_default().push(segment);
    }
    let mut complete = BTreeMap::new();
    for (hour, segments) in hours {
        let mut numbers: Vec<u64> = segments.iter().map(|segment| segment.number).collect();
        numbers.sort_unstable();
        let last = last_numbers.get(&(hour.partition.host(), hour.run_id));
        let is_followed = last > numbers.last();
        let put_s = segments.iter().map(|segment| segment.put_s).max();
        let is_settled = put_s.is_some_and(|put_s| put_s.saturating_add(settle_s) <= now_s);
        if is_followed || is_settled {
            complete.insert(hour, numbers);
        }
    }
    complete
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON_S: i64 = 1_700_049_600;

    fn segment(host: &str, run_id: u64, number: u64, minute: i64) -> HotSegment {
        let created_s = NOON_S + minute * 60;
        let partition = Partition::new(created_s, host);
        HotSegment { partition, run_id, number, created_s, put_s: created_s + 900 }
    }

    fn complete(segments: &[HotSegment], now_s: i64) -> Vec<(String, Vec<u64>)> {
        let hours = complete_hours(segments, now_s, 3600);
        hours.into_iter().map(|(hour, numbers)| (hour.group().stem().to_owned(), numbers)).collect()
    }

    // Proves that an hour is complete when the run continues in another hour, or when nothing was
    // put for some time. Each host and run is treated separately.
    #[test]
    fn hours_are_complete() {
        let run = |minutes: &[i64]| -> Vec<HotSegment> {
            let numbered = minutes.iter().zip(5..);
            numbered.map(|(minute, number)| segment("a", 1, number, *minute)).collect()
        };
        let (h12, h13) = ("0000000000000001-H12", "0000000000000001-H13");
        let open = run(&[0, 15, 30, 45]);
        assert_eq!(complete(&open, NOON_S + 3600), []);
        let settled = NOON_S + 45 * 60 + 900 + 3600;
        assert_eq!(complete(&open, settled - 1), []);
        assert_eq!(complete(&open, settled), [(h12.to_owned(), vec![5, 6, 7, 8])]);
        let followed = run(&[0, 30, 59, 61]);
        assert_eq!(complete(&followed, NOON_S + 3700), [(h12.to_owned(), vec![5, 6, 7])]);
        let late = [segment("a", 1, 7, 61), segment("a", 1, 6, 30), segment("a", 1, 5, 0)];
        assert_eq!(complete(&late, NOON_S), [(h12.to_owned(), vec![5, 6])]);
        let others = [&open[..], &[segment("b", 1, 99, 70), segment("a", 2, 99, 70)]].concat();
        assert_eq!(complete(&others, NOON_S + 3600), [], "{h13} of other hosts and runs");
    }
}
