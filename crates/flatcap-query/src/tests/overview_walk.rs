//! Walks all values of a recording. The results are compared with overviews.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;

pub(super) const PERIOD_NS: u64 = 50_000_000;
/// Minimum lengths of holes, as documented. A hole of a source is longer than four periods, and a
/// hole of an element is longer than three seconds.
const SOURCE_HOLE_NS: u64 = 4 * PERIOD_NS;
const ELEMENT_HOLE_NS: u64 = 3_000_000_000;
/// A value of the walk, and whether there is a gap before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walked {
    pub(super) wall_ns: i64,
    pub(super) value: f64,
    pub(super) is_after_gap: bool,
}

/// The previous sample of a series in the walk.
struct Before {
    run_id: u64,
    mono_ns: u64,
    count: u64,
    /// The index of the sample among the samples of its run and table.
    sample: u64,
}

/// Walks all values of a recording. Returns the values of each series.
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
pub(super) fn walked(
    paths: &[PathBuf],
    fields: &[FieldPath],
    is_rate: bool,
) -> BTreeMap<String, Vec<Walked>> {
    let recording = Recording::open(paths).unwrap();
    let mut results = recording.query(&Query { fields: fields.to_vec(), ..Query::default() }).unwrap();
    let (mut series, mut before): (BTreeMap<String, Vec<Walked>>, BTreeMap<String, Before>) =
        Default::default();
    let (mut run_id, mut has_gap) = (0, BTreeMap::new());
    // For each table, the number and the time of the last sample, and the end time of the last hole
    // in the samples of the source.
    let mut samples: BTreeMap<usize, (u64, u64, u64)> = BTreeMap::new();
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    while let Some(item) = results.next().unwrap() {
        if let QueryItem::Run(run) = &item {
            run_id = run.run_id;
            samples.clear();
        }
        let QueryItem::Batch(batch) = item else { continue };
        let table = &results.tables()[batch.table];
        let (mut row, times) = (0, &batch.times);
        for sample in 0..times.len() {
            let (seq, mono_ns) = (times.seq[sample], times.mono_ns[sample]);
            let number = counts.entry(batch.table).or_default();
            *number += 1;
            let (last_seq, last_ns, hole_ns) = samples.entry(batch.table).or_insert((seq - 1, mono_ns, 0));
            if seq != *last_seq + 1 || mono_ns - *last_ns > SOURCE_HOLE_NS {
                *hole_ns = mono_ns;
            }
            (*last_seq, *last_ns) = (seq, mono_ns);
            while row < batch.rows() && batch.sample(row) == sample {
                for (column, info) in batch.columns.iter().zip(&table.columns) {
                    let label = batch.name(row).map(|name| results.elements().label(name));
                    let path = label.map_or(table.path(info), |label| table.element_path(info, label));
                    let path = format!("cpu.{path}");
                    let flatcap_format::schema::FieldValue::Unsigned(count) = column.get(row) else {
                        continue;
                    };
                    let last =
                        before.insert(path.clone(), Before { run_id, mono_ns, count, sample: *number });
                    let limit_ns = if table.list.is_some() { ELEMENT_HOLE_NS } else { SOURCE_HOLE_NS };
                    let is_gap = last.as_ref().is_some_and(|last| {
                        last.run_id != run_id || *hole_ns > last.mono_ns || mono_ns - last.mono_ns > limit_ns
                    });
                    *has_gap.entry(path.clone()).or_insert(false) |= is_gap;
                    let rate =
                        // If an element is missing from a sample, the element has ended.
                        last.filter(|last| last.run_id == run_id && last.sample + 1 == *number)
                            .filter(|last| count >= last.count)
                            .and_then(|last| {
                            let elapsed_ns = mono_ns - last.mono_ns;
                            (elapsed_ns <= ELEMENT_HOLE_NS)
                                .then(|| (count - last.count) as f64 / (elapsed_ns as f64 / 1e9))
                        });
                    let Some(value) = (if is_rate { rate } else { Some(count as f64) }) else { continue };
                    let is_after_gap = has_gap.insert(path.clone(), false) == Some(true);
                    let wall_ns = times.wall_ns[sample];
                    series.entry(path).or_default().push(Walked { wall_ns, value, is_after_gap });
                }
                row += 1;
            }
        }
    }
    series
}

/// Returns the formulas that tests draw. The formulas are a share over 100 ms, the largest sum over
/// a list's elements, the same sum over 250 ms, and a gauge.
pub(super) fn formulas() -> Vec<DrawnValue> {
    let field = |path: &str, part: f64, whole: f64| FormulaField {
        path: path.to_owned(),
        is_counter: path != "total.nice",
        part,
        whole,
    };
    let formula = |fields: Vec<FormulaField>, quotient: Option<f64>, resolution_ms: u64| Formula {
        fields,
        unit: "%".to_owned(),
        quotient,
        resolution_ns: resolution_ms * 1_000_000,
    };
    let share = vec![field("total.user", 1.0, 1.0), field("total.system", 0.0, 1.0)];
    let sum = || vec![field("cores[*].times.user", 1.0, 0.0), field("cores[*].times.system", 0.5, 0.0)];
    [
        formula(share, Some(100.0), 100),
        formula(sum(), None, 0),
        formula(sum(), None, 250),
        formula(vec![field("total.nice", 2.0, 0.0)], None, 0),
    ]
    .iter()
    .map(|formula| DrawnValue::of_formula("cpu", formula).unwrap())
    .collect()
}

/// Computes a formula from the counts of one element in two samples. Each sample is given with its
/// time.
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn computed(
    formula: &Formula,
    (before_ns, before): (u64, &[u64]),
    (now_ns, now): (u64, &[u64]),
) -> Option<f64> {
    let (mut part, mut whole) = (0.0, 0.0);
    for (field, (now, before)) in formula.fields.iter().zip(now.iter().zip(before)) {
        let number = if field.is_counter {
            // A decrease of at most 1 % is a correction, not a reset.
            if now < before && (before - now) as f64 > *before as f64 / 100.0 {
                return None;
            }
            (*now as f64 - *before as f64) / ((now_ns - before_ns) as f64 / 1e9)
        } else {
            *now as f64
        };
        part += field.part * number;
        whole += field.whole * number;
    }
    match formula.quotient {
        None => Some(part),
        Some(factor) => (whole.abs() > 0.0).then(|| factor * part / whole),
    }
}

/// The time of a sample, and its counts.
type Reading = (u64, Vec<u64>);

/// Walks all values of a formula.
pub(super) fn walked_formula(paths: &[PathBuf], drawn: &DrawnValue) -> Vec<Walked> {
    let DrawnValue::Formula(formula, fields) = drawn else { panic!("{drawn:?}") };
    let recording = Recording::open(paths).unwrap();
    let mut results = recording.query(&Query { fields: fields.clone(), ..Query::default() }).unwrap();
    let (mut values, mut last_value, mut run_id) = (Vec::new(), None, 0);
    // For each label, the number of the last sample that contains the element, and the element's
    // readings since it began.
    let mut readings: BTreeMap<String, (u64, Vec<Reading>)> = BTreeMap::new();
    let (mut number, mut last_sample, mut hole_ns) = (0, None, 0);
    while let Some(item) = results.next().unwrap() {
        if let QueryItem::Run(run) = &item {
            run_id = run.run_id;
            (last_sample, hole_ns) = (None, 0);
            readings.clear();
        }
        let QueryItem::Batch(batch) = item else { continue };
        let is_list = results.tables()[batch.table].list.is_some();
        let limit_ns = if is_list { ELEMENT_HOLE_NS } else { SOURCE_HOLE_NS };
        for sample in 0..batch.times.len() {
            let (seq, mono_ns) = (batch.times.seq[sample], batch.times.mono_ns[sample]);
            number += 1;
            if last_sample
                .is_some_and(|(last_seq, last_ns)| seq != last_seq + 1 || mono_ns - last_ns > SOURCE_HOLE_NS)
            {
                hole_ns = mono_ns;
            }
            last_sample = Some((seq, mono_ns));
            let mut largest: Option<f64> = None;
            for row in (0..batch.rows()).filter(|row| batch.sample(*row) == sample) {
                let label = batch.name(row).map_or("", |name| results.elements().label(name));
                let count = |column: &ValueColumn| match column.get(row) {
                    flatcap_format::schema::FieldValue::Unsigned(count) => count,
                    other => panic!("{other:?}"),
                };
                let now: Vec<u64> = batch.columns.iter().map(count).collect();
                let (seen, own) = readings.entry(label.to_owned()).or_default();
                if *seen + 1 != number {
                    own.clear();
                }
                *seen = number;
                let value = if formula.fields.iter().any(|field| field.is_counter) {
                    let age = |at: u64| mono_ns - at;
                    let least_ns = formula.resolution_ns.max(1);
                    let base = own.iter().rfind(|(at, _)| (least_ns..=ELEMENT_HOLE_NS).contains(&age(*at)));
                    base.and_then(|(at, before)| computed(formula, (*at, before), (mono_ns, &now)))
                } else {
                    computed(formula, (0, &now), (0, &now))
                };
                own.push((mono_ns, now));
                if let Some(value) = value {
                    largest = Some(largest.map_or(value, |largest| largest.max(value)));
                }
            }
            let Some(value) = largest else { continue };
            let is_after_gap = last_value.is_some_and(|(last_run, last_ns)| {
                last_run != run_id || hole_ns > last_ns || mono_ns - last_ns > limit_ns
            });
            last_value = Some((run_id, mono_ns));
            values.push(Walked { wall_ns: batch.times.wall_ns[sample], value, is_after_gap });
        }
    }
    values
}
