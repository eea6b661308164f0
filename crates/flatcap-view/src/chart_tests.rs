//! Compares the time steps of charts with values that the test computes from the samples of the
//! recording.

use std::path::Path;

use flatcap_query::Recording;
use proptest::prelude::*;

use crate::test_recording::{CpuCounts, CpuRecording, START_NS};
use crate::{Catalog, Chart, ChartFeed, StepColumn};

const TITLES: [&str; 4] = ["tasks running", "new tasks", "cpu", "busiest core"];
/// Time for which a value is valid. As documented, this is four periods, and a period is 10 ms
/// here. For elements of lists, a value is valid for at least three seconds.
const HELD_NS: i64 = 40_000_000;
const ELEMENT_HELD_NS: i64 = 3_000_000_000;
/// Time over which shares of times in jiffies are computed (100 ms), and maximum time between two
/// samples for a change (3 s).
const RESOLUTION_NS: i64 = 100_000_000;
const CHANGE_MAX_NS: i64 = 3_000_000_000;

/// A value that the test computes, and whether it directly follows the previous value.
#[derive(Debug, Clone, Copy)]
struct Walked {
    at_ns: i64,
    value: f64,
    is_next: bool,
}

fn any_counts() -> impl Strategy<Value = CpuCounts> {
    let after_ms = prop_oneof![20 => 8..13_u64, 2 => 39..43_u64, 1 => 2_900..3_100_u64];
    let lost = prop_oneof![20 => Just(0_u64), 1 => 1..4_u64];
    (after_ms, lost, 0..9_u32, prop::array::uniform3(0..20_u64)).prop_map(
        |(after_ms, lost, running, grown)| CpuCounts { after_ns: after_ms * 1_000_000, lost, running, grown },
    )
}

/// Returns the running totals of the samples' changes, with the times of the samples.
fn totals(samples: &[CpuCounts]) -> Vec<(i64, [f64; 3])> {
    let (mut at_ns, mut counts) = (START_NS, [0.0; 3]);
    let sample = |own: &CpuCounts| {
        at_ns += own.after_ns.cast_signed();
        for (count, grown) in counts.iter_mut().zip(own.grown) {
            *count += f64::from(u32::try_from(grown).unwrap());
        }
        (at_ns, counts)
    };
    samples.iter().map(sample).collect()
}

/// Computes the values of a chart from the samples up to a time. Returns these values in time
/// order.
#[allow(clippy::cast_precision_loss, reason = "times of a few seconds")]
fn walked(chart: usize, samples: &[CpuCounts], until_ns: i64) -> Vec<Walked> {
    let totals = totals(samples);
    let (mut values, mut last_ns, mut is_whole): (Vec<Walked>, Option<i64>, bool) = Default::default();
    let held_ns = if chart == 3 { ELEMENT_HELD_NS } else { HELD_NS };
    for (number, own) in samples.iter().enumerate() {
        let (at_ns, now) = totals[number];
        if at_ns > until_ns {
            break;
        }
        is_whole &= own.lost == 0 && own.after_ns.cast_signed() <= HELD_NS;
        let resolution_ns = if chart >= 2 { RESOLUTION_NS } else { 1 };
        let is_base = |(before_ns, _): &&(i64, [f64; 3])| {
            (resolution_ns..=CHANGE_MAX_NS).contains(&(at_ns - before_ns))
        };
        let base = totals[..number].iter().rfind(is_base);
        let share = |part: f64, rest: f64| (part + rest > 0.0).then(|| 100.0 * part / (part + rest));
        let value = match (chart, base) {
            (0, _) => Some(f64::from(own.running)),
            (_, None) => None,
            (1, Some((before_ns, before))) => Some((now[0] - before[0]) / ((at_ns - before_ns) as f64 / 1e9)),
            (2, Some((_, before))) => share(now[1] - before[1], now[2] - before[2]),
            (_, Some((_, before))) => {
                let one = share(now[1] - before[1], now[2] - before[2]);
                let other = share(now[0] - before[0], now[1] - before[1]);
                one.into_iter().chain(other).reduce(f64::max)
            }
        };
        let Some(value) = value else { continue };
        let is_next = is_whole && last_ns.is_some_and(|last_ns| at_ns - last_ns <= held_ns);
        values.push(Walked { at_ns, value, is_next });
        (last_ns, is_whole) = (Some(at_ns), true);
    }
    values
}

/// Returns the expected steps of a chart, from its values and from the times at which samples were
/// lost.
fn drawn(
    chart: usize,
    samples: &[CpuCounts],
    (steps, step_ns): (i64, i64),
    until_ns: i64,
) -> Vec<StepColumn> {
    let (values, totals) = (walked(chart, samples, until_ns), totals(samples));
    let lost: Vec<(i64, i64)> = (1..samples.len())
        .filter(|number| samples[*number].lost > 0 && totals[number - 1].0 <= until_ns)
        .map(|number| (totals[number - 1].0 + 1, totals[number].0 - 1))
        .collect();
    let end = until_ns.div_euclid(step_ns);
    let held_ns = if chart == 3 { ELEMENT_HELD_NS } else { HELD_NS };
    let step = |number: i64| {
        let (begin_ns, end_ns) = (number * step_ns, (number + 1) * step_ns - 1);
        let meets = |from_ns: i64, to_ns: i64| from_ns <= end_ns && to_ns >= begin_ns;
        let is_lost = lost.iter().any(|(from_ns, to_ns)| meets(*from_ns, *to_ns));
        let mut found: Vec<f64> =
            values.iter().filter(|own| meets(own.at_ns, own.at_ns)).map(|own| own.value).collect();
        for pair in values.windows(2).filter(|pair| pair[1].is_next) {
            // A change covers the time since the previous sample. Other values cover the time after
            // their sample.
            let (from_ns, to_ns, value) = match chart {
                0 => (pair[0].at_ns, pair[1].at_ns - 1, pair[0].value),
                _ => (pair[0].at_ns + 1, pair[1].at_ns, pair[1].value),
            };
            found.extend(meets(from_ns, to_ns).then_some(value));
        }
        if let Some(newest) = values.last()
            && begin_ns > newest.at_ns
            && until_ns - newest.at_ns <= held_ns
        {
            found.push(newest.value);
        }
        let extrema = found.iter().map(|value| (*value, *value));
        let extrema = extrema.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        StepColumn { extrema, is_lost }
    };
    (end - steps + 1..=end).map(step).collect()
}

fn charts(folder: &Path) -> (Recording, Vec<Chart>) {
    let recording = Recording::open(&[folder.to_owned()]).unwrap();
    let catalog = Catalog::of(&recording);
    let chart = |title: &&str| catalog.charts.iter().find(|chart| chart.title == *title).unwrap().clone();
    let charts = TITLES.iter().map(chart).collect();
    (recording, charts)
}

/// Compares all charts with the values that the test computes.
fn compare(feed: &ChartFeed, samples: &[CpuCounts], (steps, step_ns): (i64, i64), until_ns: i64) {
    let near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * other.abs().max(1.0);
    for (number, series) in feed.series().iter().enumerate() {
        let expected = drawn(number, samples, (steps, step_ns), until_ns);
        let columns = series.columns(usize::try_from(steps).unwrap(), until_ns);
        let is_equal = |(own, other): (&StepColumn, &StepColumn)| {
            own.is_lost == other.is_lost
                && match (own.extrema, other.extrema) {
                    (Some(own), Some(other)) => near(own.0, other.0) && near(own.1, other.1),
                    (own, other) => own.is_none() && other.is_none(),
                }
        };
        let wrong = columns.iter().zip(&expected).position(|pair| !is_equal(pair));
        let shown = wrong.map(|at| (at, columns[at], expected[at]));
        assert_eq!(shown, None, "{} up to {until_ns} in steps of {step_ns} ns", TITLES[number]);
        let newest = walked(number, samples, until_ns).last().copied();
        let held_ns = if number == 3 { ELEMENT_HELD_NS } else { HELD_NS };
        let newest = newest.filter(|own| until_ns - own.at_ns <= held_ns);
        let value = feed.value(number, until_ns).map(|(value, _)| value);
        assert!(
            value.zip(newest).is_none_or(|(value, own)| near(value, own.value))
                && value.is_some() == newest.is_some(),
            "{}: {value:?} {newest:?}",
            TITLES[number]
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(flatcap_format::testing::effort::of(24, 500)))]

    // Proves that each step of the terminal has the extrema of its samples and of the values that
    // hold in the step. No value holds over lost samples or longer than documented. The test uses
    // gauges, rates, formulas and the largest value of a list. The samples are random with losses
    // and holes, and are read at random times and steps, from a complete recording and while it
    // grows.
    #[test]
    fn steps_have_the_extrema_of_their_samples(
        samples in prop::collection::vec(any_counts(), 2..90),
        mut times in prop::collection::vec(0..1000_i64, 1..6),
        step_ms in 20..1500_i64,
        ahead in 1..20_usize,
        parts in 1..4_u64,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let totals = totals(&samples);
        let length_ns = totals.last().unwrap().0 - START_NS;
        let mut recording = CpuRecording::begin(folder.path());
        recording.grow(&samples[..1]);
        let (opened, charts) = charts(folder.path());
        let (from_ns, step_ns) = (START_NS, step_ms * 1_000_000);
        let open = || ChartFeed::open(&opened, &charts, None, (from_ns, step_ns)).unwrap();
        let mut feed = open();
        times.sort_unstable();
        let (mut written, mut calls) = (1, 0);
        for part in times.iter().chain([&1000]) {
            let until_ns = START_NS + length_ns / 1000 * part + length_ns % 1000;
            let wanted = (totals.partition_point(|(at_ns, _)| *at_ns <= until_ns) + ahead).min(samples.len());
            if wanted > written {
                recording.grow(&samples[written..wanted]);
                written = wanted;
            }
            // If no recorder runs, the reader follows a segment only after a refresh.
            feed.refresh().unwrap();
            // The reading is interrupted after some parts.
            let mut has_time = || { calls += 1; calls % parts == 0 };
            while !feed.advance(until_ns, &mut has_time).unwrap() {}
            let steps = (until_ns.div_euclid(step_ns) - from_ns.div_euclid(step_ns) + 1).min(50);
            compare(&feed, &samples[..written], (steps, step_ns), until_ns);
            let mut whole = open();
            prop_assert!(whole.advance(until_ns, &mut || true).unwrap());
            compare(&whole, &samples[..written], (steps, step_ns), until_ns);
        }
    }
}
