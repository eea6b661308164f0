//! Compares rows with the rows of a naive reader. The naive reader walks each payload, and
//! identifies sources and elements only by their ids.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use flatcap_format::frame::Incomplete;
use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
use flatcap_format::schema::CompiledSchema;
use flatcap_format::segment::{SealState, SegmentName, SourceInfo};
use flatcap_format::testing::{Folder, TimedSample, compressed, effort, example, write_samples};
use proptest::prelude::*;
use serde_json::Value;

use super::engine::{any_process, asking, processes};
use super::sample_rates::check_processes;
use super::*;

const SCHEMA: &[u8] = include_bytes!("../../../../generated/host/process.bfbs");
const ROOT: &str = "flatcap.host.Process";
/// For each source id in a run, the name of the source.
const NAMES: [&str; 4] = ["app", "app", "other", "app"];

/// The number of consecutive samples of a source, and the processes in each of these samples.
type Phase = (usize, Vec<Vec<(u64, u8, u64)>>);

/// The sources of a run, and whether the run stores times in microseconds.
type SourceRun = (bool, Vec<Phase>);

/// The identity of an element in a sample. The identity consists of the run, the id of the source,
/// the process id, and the start time. The last part of the identity is the number of earlier
/// elements with the same process id and start time.
type Identity = (u64, u16, u64, Option<u64>, u32);

/// A row that is an element of a list.
#[derive(Debug, Clone, PartialEq)]
struct NaiveRow {
    wall_ns: i64,
    mono_ns: u64,
    identity: Identity,
    /// The beginning of the element's label.
    label: String,
    /// The unit of the element's times in the run.
    unit: &'static str,
    value: u64,
}

/// A sample of a source.
#[derive(Debug, Clone, Copy)]
struct NaiveSample {
    run: u64,
    id: u16,
    wall_ns: i64,
    count: u64,
}

/// A condition, and the function that returns whether the condition holds.
type NaiveCondition<'c, T> = (Option<String>, &'c dyn Fn(&T) -> bool);

/// Returns the schema, with microseconds as the unit of times if `is_in_us` is true.
fn schema(is_in_us: bool) -> Vec<u8> {
    const UNIT: &[u8] = b"\x02\0\0\0ns\0";
    let mut schema = SCHEMA.to_vec();
    let places: Vec<usize> = (0..schema.len()).filter(|at| schema[*at..].starts_with(UNIT)).collect();
    assert!(!places.is_empty());
    places.into_iter().filter(|_| is_in_us).for_each(|at| schema[at + 4] = b'u');
    schema
}

/// Writes a segment for each run.
fn write_runs(folder: &Path, runs: &[SourceRun]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for (number, (is_in_us, phases)) in (0_u64..).zip(runs) {
        let mut header = example();
        header.run_id = 100 + number;
        header.segment = number;
        let first = header.sources[0].clone();
        let source = |(id, name): (u16, &&str)| SourceInfo {
            id,
            name: (*name).to_owned(),
            root: ROOT.to_owned(),
            schema: schema(*is_in_us),
            next_seq: 0,
            period_ns: 0,
            ..first.clone()
        };
        header.sources = (0..).zip(&NAMES).map(source).collect();
        let mut next = [0_u64; 4];
        let mut at = 0_u64;
        let mut samples = Vec::new();
        for (source, all) in phases {
            for body in all {
                at += 1;
                let (mono_ns, wall_ns) = (1000 * at, (1_000_000 * (number + 1) + 1000 * at).cast_signed());
                let seq = next[*source];
                next[*source] += 1;
                let source = u16::try_from(*source).unwrap();
                let (incomplete, body) = (Incomplete::NONE, processes(body));
                samples.push(TimedSample { source, seq, mono_ns, wall_ns, incomplete, body });
            }
        }
        let created_s = 1_700_000_000 + number.cast_signed();
        let name = SegmentName { number, created_s, run_id: 100 + number, state: SealState::Active };
        let sealed = write_samples(folder, name, header, samples.into_iter()).seal().unwrap();
        sealed.publish(&Folder(folder.to_owned())).unwrap();
        paths.push(folder.join(sealed.name().to_string()));
    }
    paths
}

/// Returns the samples of all sources, and the elements of the sources with the name `source_name`.
fn naive_rows(folder: &Path, source_name: &str) -> (Vec<NaiveSample>, Vec<NaiveRow>) {
    let compiled = CompiledSchema::compile(SCHEMA, ROOT).unwrap();
    let in_us = schema(true);
    let mut reader = MergedReader::open(&[folder.to_owned()], ReplayFilter::default()).unwrap();
    let (mut run, mut unit, mut rows, mut samples) = (0, "", Vec::new(), Vec::new());
    while let Some(item) = reader.next().unwrap() {
        let sample = match item {
            ReplayItem::Header(header, _) => {
                run = header.run_id;
                unit = if header.sources[0].schema == in_us { "us" } else { "ns" };
                continue;
            }
            ReplayItem::Sample(sample) => sample.telemetry,
            _ => continue,
        };
        let mut line = Vec::new();
        compiled.append_json(sample.payload, &mut line).unwrap();
        let json: Value = serde_json::from_slice(&line).unwrap();
        let count = json["count"].as_u64().unwrap();
        samples.push(NaiveSample { run, id: sample.source, wall_ns: sample.wall_ns, count });
        if NAMES[usize::from(sample.source)] != source_name {
            continue;
        }
        let mut seen: BTreeMap<(u64, Option<u64>), u32> = BTreeMap::new();
        for process in json["processes"].as_array().unwrap() {
            let (pid, start) = (process["pid"].as_u64().unwrap(), process["start"].as_u64());
            let before = seen.entry((pid, start)).or_default();
            let name = match &process["name"] {
                Value::String(name) => name.clone(),
                // The printed form of bytes that are not UTF-8.
                _ => "\\xc8\\xc8\\xc8".to_owned(),
            };
            let label = if name.is_empty() { pid.to_string() } else { format!("{name}[{pid}]") };
            let identity = (run, sample.source, pid, start, *before);
            *before += 1;
            let value = process["run_time"].as_u64();
            let (wall_ns, mono_ns) = (sample.wall_ns, sample.mono_ns);
            let value = value.unwrap_or(u64::MAX);
            rows.push(NaiveRow { wall_ns, mono_ns, identity, label, unit, value });
        }
    }
    (samples, rows)
}

fn options(is_long: bool, is_rate: bool, steps: Option<Steps>) -> RowOptions {
    RowOptions { is_long, is_rate, steps, ..RowOptions::default() }
}

/// A value of a row, with the time of the row, the label of the element if rows are elements, and
/// the name of the column.
type Cell = (i64, Option<String>, String, HeldValue);

fn cells(folder: &Path, fields: &[&str], options: RowOptions) -> Vec<Cell> {
    cells_where(folder, fields, options, None)
}

fn cells_where(folder: &Path, fields: &[&str], options: RowOptions, condition: Option<&str>) -> Vec<Cell> {
    let recording = Recording::open(&[folder.to_owned()]).unwrap();
    let condition = condition.map(|condition| condition.parse().unwrap());
    let mut reader = recording.rows(&Query { condition, ..asking(fields) }, options).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        let RowItem::Row(stamp) = item else { continue };
        let columns = reader.columns().iter().map(|column| column.name.clone()).collect::<Vec<_>>();
        for (column, value) in columns.into_iter().zip(reader.values()) {
            if *value != HeldValue::Absent {
                let label = stamp.element.map(|element| reader.label(element).to_owned());
                found.push((stamp.wall_ns, label, column, value.clone()));
            }
        }
    }
    found
}

fn is_label(label: &str, base: &str) -> bool {
    label.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with(['{', '#']))
}

/// Checks that printed names distinguish elements, that is, no two identities of a run have the
/// same name.
fn check_names(
    names: &mut BTreeMap<(u64, String, String), Identity>,
    key: &(u64, String, String),
    own: Identity,
) {
    let known = names.entry(key.clone()).or_insert(own);
    assert_eq!(*known, own, "{key:?} are two");
}

#[allow(clippy::too_many_lines, reason = "one check after the other of the same rows")]
fn check(folder: &Path) {
    let (samples, rows) = naive_rows(folder, "app");
    let rows: Vec<NaiveRow> = rows.into_iter().filter(|row| row.value != u64::MAX).collect();
    // Rows in long form contain each value in the order of the samples, with the name that the
    // element had in the sample.
    let field = "app.processes[*].run_time";
    let long = cells(folder, &[field], options(true, false, None));
    assert_eq!(long.len(), rows.len());
    let mut names = BTreeMap::new();
    let units: BTreeSet<&str> = runs_of(folder).into_values().collect();
    for ((wall_ns, label, column, value), row) in long.iter().zip(&rows) {
        let label = label.clone().unwrap();
        assert_eq!((*wall_ns, value), (row.wall_ns, &HeldValue::Unsigned(row.value)));
        assert!(is_label(&label, &row.label), "{label} of {row:?}");
        // If runs have different units, the name of a column contains the unit of its run.
        let suffix = if units.len() > 1 { format!("{{{}}}", row.unit) } else { String::new() };
        assert!(column.ends_with(&format!("processes[*].run_time{suffix}")), "{column} of {row:?}");
        // Two sources that exist one after the other share their columns.
        let (run, id, pid, start, before) = row.identity;
        let id = if column.starts_with("app[") { id } else { 0 };
        check_names(&mut names, &(run, column.clone(), label), (run, id, pid, start, before));
    }
    // Rows in wide form contain each value in the column of its element, and no other values.
    let wide = cells(folder, &[field], options(false, false, None));
    let by_time = |cells: &[Cell]| {
        let mut found: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for (wall_ns, _, _, value) in cells {
            found.entry(*wall_ns).or_default().push(format!("{value:?}"));
        }
        for values in found.values_mut() {
            values.sort();
        }
        found
    };
    assert_eq!(by_time(&wide), by_time(&long));
    check_rates(folder, field, (&samples, &rows));
    check_joins(folder, &samples);
    check_steps(folder, field, &long, &rows);
    check_picks(folder, &wide);
    check_counts(folder);
}

/// Returns the unit of times in each run.
fn runs_of(folder: &Path) -> BTreeMap<u64, &'static str> {
    let mut reader = MergedReader::open(&[folder.to_owned()], ReplayFilter::default()).unwrap();
    let (mut runs, in_us) = (BTreeMap::new(), schema(true));
    while let Some(item) = reader.next().unwrap() {
        if let ReplayItem::Header(header, _) = item {
            runs.insert(header.run_id, if header.sources[0].schema == in_us { "us" } else { "ns" });
        }
    }
    runs
}

/// Checks rates, and the rows that conditions select.
fn check_rates(folder: &Path, field: &str, (samples, rows): (&[NaiveSample], &[NaiveRow])) {
    // A rate covers the time since the previous sample of the source. Both samples must contain the
    // element exactly once.
    let of_sample = |run: u64, id: u16, wall_ns: i64, of: &NaiveRow| -> Vec<(u64, u64)> {
        let is_same = |row: &&NaiveRow| {
            let (own_run, own_id, pid, start, _) = row.identity;
            let (.., of_pid, of_start, _) = of.identity;
            (own_run, own_id, row.wall_ns) == (run, id, wall_ns) && (pid, start) == (of_pid, of_start)
        };
        rows.iter().filter(is_same).map(|row| (row.mono_ns, row.value)).collect()
    };
    let rate = |row: &NaiveRow| {
        let (run, id, ..) = row.identity;
        let is_before = |own: &&NaiveSample| (own.run, own.id) == (run, id) && own.wall_ns < row.wall_ns;
        let before = samples.iter().rev().find(is_before)?;
        let now = of_sample(run, id, row.wall_ns, row);
        let ([(now_ns, now)], [(last_ns, last)]) = (&now[..], &of_sample(run, id, before.wall_ns, row)[..])
        else {
            return None;
        };
        #[allow(clippy::cast_precision_loss, reason = "a rate")]
        Some(now.checked_sub(*last)? as f64 / ((now_ns - last_ns) as f64 / 1e9))
    };
    let all_rates: Vec<Option<f64>> = rows.iter().map(rate).collect();
    let process = |(row, rate): (&NaiveRow, &Option<f64>)| (row.wall_ns, row.identity.2, row.value, *rate);
    check_processes(folder, &rows.iter().zip(&all_rates).map(process).collect::<Vec<_>>());
    let limit = rows.get(rows.len() / 2).map_or(0, |row| row.value);
    let own_limit = |row: &NaiveRow| if row.unit == "us" { limit.div_ceil(1000) } else { limit };
    let of_count = |row: &NaiveRow| {
        let own = (row.identity.0, row.identity.1, row.wall_ns);
        samples.iter().find(|sample| (sample.run, sample.id, sample.wall_ns) == own).unwrap().count
    };
    let conditions: [NaiveCondition<'_, NaiveRow>; 4] = [
        (None, &|_| true),
        (Some(format!("app.processes[*].run_time >= {limit}ns")), &|row| row.value >= own_limit(row)),
        (Some("app.processes[*].pid = 2 or app.count > 900".into()), &|row| {
            row.identity.2 == 2 || of_count(row) > 900
        }),
        (Some("not app.count > 900".into()), &|row| of_count(row) <= 900),
    ];
    for (condition, holds) in &conditions {
        let own = |is_rate| {
            let found = cells_where(folder, &[field], options(true, is_rate, None), condition.as_deref());
            found.into_iter().map(|(wall_ns, .., value)| (wall_ns, value)).collect::<Vec<_>>()
        };
        let selected = rows.iter().zip(&all_rates).filter(|(row, _)| holds(row));
        let values: Vec<(i64, HeldValue)> =
            selected.clone().map(|(row, _)| (row.wall_ns, HeldValue::Unsigned(row.value))).collect();
        assert_eq!(own(false), values, "{condition:?}");
        let rates: Vec<(i64, HeldValue)> =
            selected.filter_map(|(row, rate)| Some((row.wall_ns, HeldValue::Float((*rate)?)))).collect();
        assert_eq!(own(true), rates, "{condition:?}");
    }
}

/// Checks joined rows of two sources. Each sample of the leading source is a row. The row has the
/// value of this sample of the leading source. From the other source, it has the most recent value
/// that passes the condition.
fn check_joins(folder: &Path, samples: &[NaiveSample]) {
    let (fields, is_app) =
        (["app.count", "other.count"], |own: &NaiveSample| NAMES[usize::from(own.id)] == "app");
    let conditions: [NaiveCondition<'_, NaiveSample>; 3] = [
        (None, &|_| true),
        (Some("other.count > 500".into()), &|own| is_app(own) || own.count > 500),
        (Some("app.count > 900".into()), &|own| !is_app(own) || own.count > 900),
    ];
    for (condition, holds) in conditions {
        let mut found: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        for (wall_ns, .., value) in
            cells_where(folder, &fields, options(false, false, None), condition.as_deref())
        {
            let HeldValue::Unsigned(count) = value else { panic!("{value:?}") };
            found.entry(wall_ns).or_default().push(count);
        }
        let selected: Vec<&NaiveSample> = samples.iter().filter(|own| holds(own)).collect();
        let mut expected: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        for sample in &selected {
            let of_run = || selected.iter().filter(|other| other.run == sample.run);
            if is_app(sample) != of_run().any(|other| is_app(other)) {
                continue;
            }
            let is_held = |other: &&&NaiveSample| !is_app(other) && other.wall_ns < sample.wall_ns;
            let held = of_run().rev().find(is_held).filter(|_| is_app(sample));
            expected.insert(
                sample.wall_ns,
                [sample.count].into_iter().chain(held.map(|own| own.count)).collect(),
            );
        }
        for values in found.values_mut().chain(expected.values_mut()) {
            values.sort_unstable();
        }
        assert_eq!(found, expected, "{condition:?}");
    }
}

/// Checks that the aggregate `Max` gives the largest value in each step.
fn check_steps(folder: &Path, field: &str, long: &[Cell], rows: &[NaiveRow]) {
    // For each name, a step has the largest value with this name.
    let mut most: BTreeMap<(i64, String, String), u64> = BTreeMap::new();
    for ((_, label, column, _), row) in long.iter().zip(rows) {
        let key = (row.wall_ns.div_euclid(7000), label.clone().unwrap(), column.clone());
        let own = most.entry(key).or_default();
        *own = (*own).max(row.value);
    }
    let steps = Steps { step_ns: 7000, aggregate: Some(Aggregate::Max) };
    let steps = cells(folder, &[field], options(true, false, Some(steps)));
    let found: BTreeMap<(i64, String, String), u64> = steps
        .into_iter()
        .map(|(wall_ns, label, column, value)| {
            let number = match value {
                HeldValue::Unsigned(number) => number,
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^53")]
                HeldValue::Float(number) => number as u64,
                other => panic!("{other:?}"),
            };
            ((wall_ns.div_euclid(7000), label.unwrap(), column), number)
        })
        .collect();
    assert_eq!(found, most);
}

/// Checks that each printed name is a path to the values with this name. The name of a column leads
/// to all values of the column. If all elements were read before, the name of an element leads to
/// no values with another name.
fn check_picks(folder: &Path, wide: &[Cell]) {
    // If a query reads fewer elements, their names may be shorter, so the test compares values and
    // not names.
    let values = |cells: &[Cell]| cells.iter().map(|cell| (cell.0, cell.3.clone())).collect::<Vec<_>>();
    let columns: BTreeSet<&str> = wide.iter().map(|cell| cell.2.as_str()).collect();
    for column in columns.into_iter().take(3) {
        let picked = values(&cells(folder, &[column], options(false, false, None)));
        let mut own = wide.iter().filter(|cell| cell.2 == column);
        assert!(own.all(|cell| picked.contains(&(cell.0, cell.3.clone()))), "{column}");
    }
    let named = named_values(folder);
    let labels: BTreeSet<&str> = named.iter().map(|(label, ..)| label.as_str()).collect();
    for label in labels.into_iter().take(3) {
        let path = format!("app.processes[\"{label}\"].run_time");
        let picked = values(&cells(folder, &[&path], options(true, false, None)));
        let own = named.iter().filter(|own| own.0 == label).map(|own| (own.1, own.2.clone()));
        assert_eq!(picked, own.collect::<Vec<_>>(), "{path}");
    }
}

/// Returns the label, the time and the value of each row. The labels are the final labels of the
/// elements, after the last row was read.
fn named_values(folder: &Path) -> Vec<(String, i64, HeldValue)> {
    let recording = Recording::open(&[folder.to_owned()]).unwrap();
    let query = asking(&["app.processes[*].run_time"]);
    let mut reader = recording.rows(&query, options(true, false, None)).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        let RowItem::Row(stamp) = item else { continue };
        let value = reader.values().iter().find(|value| **value != HeldValue::Absent);
        found.extend(value.map(|value| (stamp.element.unwrap(), stamp.wall_ns, value.clone())));
    }
    found.into_iter().map(|(name, wall_ns, value)| (reader.label(name).to_owned(), wall_ns, value)).collect()
}

/// Checks that no sample is missing.
fn check_counts(folder: &Path) {
    // Each sample of each source with this name has its own row with its own value.
    let count = cells(folder, &["app.skipped"], options(false, false, None));
    let recording = Recording::open(&[folder.to_owned()]).unwrap();
    let mut results = recording.query(&asking(&["app.skipped"])).unwrap();
    let mut samples = 0;
    while let Some(item) = results.next().unwrap() {
        samples += if let QueryItem::Batch(batch) = item { batch.times.len() } else { 0 };
    }
    assert_eq!(count.len(), samples);
}

fn any_phase() -> impl Strategy<Value = Phase> {
    let process = any_process().prop_map(|(pid, name, count)| (pid, name, count % (1 << 40)));
    (0..4_usize, prop::collection::vec(prop::collection::vec(process, 0..5), 1..6))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::cases(40, 10_000)))]

    // Proves that rows contain each value exactly once, with its source, element and name. In the
    // samples, sources and elements share names, appear, end, are renamed, replace each other and
    // occur twice. A unit differs between runs. A rate covers two consecutive samples of an
    // element, regardless of the rows that a condition selects. Joins use the last sample. Raw and
    // compressed files have the same rows.
    #[test]
    fn rows_are_those_of_a_reader_by_ids(
        runs in prop::collection::vec((any::<bool>(), prop::collection::vec(any_phase(), 0..6)), 1..3),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let paths = write_runs(folder.path(), &runs);
        check(folder.path());
        let field = "app.processes[*].run_time";
        let raw = cells(folder.path(), &[field], options(true, false, None));
        for path in &paths {
            std::fs::write(path, compressed(path, 3000)).unwrap();
        }
        prop_assert_eq!(raw, cells(folder.path(), &[field], options(true, false, None)));
        check(folder.path());
    }
}

// Proves that sources with one name share a column if they exist one after the other, and have
// separate columns if they exist at the same time. Also proves that a path can select one of the
// sources, and that no row is missing.
#[test]
fn sources_of_one_name_are_all_read() {
    let one = |value: u64| vec![vec![(1_u64, 97_u8, value)]];
    let path = "app.processes[*].run_time";
    let read = |phases: Vec<Phase>, path: &str| {
        let folder = tempfile::tempdir().unwrap();
        write_runs(folder.path(), &[(false, phases)]);
        let cells = cells(folder.path(), &[path], options(true, false, None));
        cells.into_iter().map(|(.., column, value)| (column, value.number().unwrap())).collect::<Vec<_>>()
    };
    let plain = |value: f64| (path.to_owned(), value);
    assert_eq!(read(vec![(0, one(1)), (1, one(2)), (3, one(3))], path), [plain(3.0), plain(6.0), plain(9.0)]);
    let phases = vec![(0, one(1)), (1, one(2)), (0, one(3))];
    let of = |id: u16, value: f64| (format!("app[{id}].processes[*].run_time"), value);
    assert_eq!(read(phases.clone(), path), [of(0, 3.0), of(1, 6.0), of(0, 9.0)]);
    let picked = read(phases, "app[1].processes[*].run_time");
    assert_eq!(picked, [of(1, 6.0)]);
}

// Proves that a value of a process has the name of the process at that time. Also proves that
// selecting a process by name returns only values that the process had under this name.
#[test]
fn a_process_has_the_name_of_its_sample() {
    let folder = tempfile::tempdir().unwrap();
    let phases = vec![(0_usize, vec![vec![(1, 97, 5)], vec![(1, 97, 6)], vec![(1, 98, 7)]])];
    write_runs(folder.path(), &[(false, phases)]);
    for (path, expected) in [
        ("app.processes[*].run_time", vec!["aaa[1]", "aaa[1]", "bbb[1]"]),
        ("app.processes[aaa].run_time", vec!["aaa[1]", "aaa[1]"]),
        ("app.processes[\"bbb[1]\"].run_time", vec!["bbb[1]"]),
    ] {
        let labels: Vec<String> = cells(folder.path(), &[path], options(true, false, None))
            .into_iter()
            .filter_map(|(_, label, ..)| label)
            .collect();
        assert_eq!(labels, expected, "{path}");
    }
}

// Proves that an overview draws the values of a process under its name at that time, and that no
// rate spans a change of the name.
#[test]
fn an_overview_has_the_names_of_the_samples() {
    let folder = tempfile::tempdir().unwrap();
    // The process changes its name by executing other programs. The names are the single bytes 97
    // and 98.
    let of = |name: u8, count: u64| vec![(1_u64, name, count)];
    let samples = vec![of(97, 5), of(97, 9), of(98, 20), of(98, 22), of(97, 40), of(97, 41)];
    let paths = write_runs(folder.path(), &[(false, vec![(0, samples)])]);
    let draw = |is_rate| {
        let request = OverviewRequest {
            values: vec!["app.processes[*].run_time".parse().unwrap()],
            wall_ns: 0..10_000_000,
            pixels: 1,
            is_rate,
            host: None,
        };
        let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
        let overview = recording.overview(&request, &mut OverviewCache::new(1 << 20)).unwrap();
        let series = overview.series.into_iter().map(|series| {
            let pixels = series.rows.iter().filter_map(|row| match row {
                OverviewRow::Pixel(pixel) => Some((pixel.count, pixel.min, pixel.max)),
                OverviewRow::Gap(_) => None,
            });
            (series.label.unwrap().into(), pixels.collect())
        });
        series.collect::<BTreeMap<String, Vec<(u64, f64, f64)>>>()
    };
    let names = |first, second| {
        BTreeMap::from([("aaa[1]".to_owned(), vec![first]), ("bbb[1]".to_owned(), vec![second])])
    };
    for is_compressed in [false, true] {
        if is_compressed {
            std::fs::write(&paths[0], compressed(&paths[0], 3000)).unwrap();
        }
        assert_eq!(draw(false), names((4, 15.0, 123.0), (2, 60.0, 66.0)));
        assert_eq!(draw(true), names((2, 3e6, 12e6), (1, 6e6, 6e6)));
    }
}
