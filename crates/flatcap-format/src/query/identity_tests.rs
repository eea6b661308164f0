//! Rows against a reader that walks each payload and knows sources and elements by their ids alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value;

use super::engine_tests::{any_process, asking, processes};
use super::test_segment::{TimedSample, write_samples};
use super::*;
use crate::frame::Incomplete;
use crate::replay::{MergedReader, ReplayFilter, ReplayItem};
use crate::schema::CompiledSchema;
use crate::segment::{SealState, SegmentName, SourceInfo, compressed, example};
use crate::storage::Folder;
use crate::testing::effort;

const SCHEMA: &[u8] = include_bytes!("../../../../generated/host/process.bfbs");
const ROOT: &str = "flatcap.host.Process";
/// The names of the sources of a run, by id.
const NAMES: [&str; 4] = ["app", "app", "other", "app"];

/// So many samples of a source, with these processes.
type Phase = (usize, Vec<Vec<(u64, u8, u64)>>);

/// An element of a sample: run, id of the source, process, start, and how many like it were before.
type Identity = (u64, u16, u64, Option<u64>, u32);

/// A row that is an element.
#[derive(Debug, Clone, PartialEq)]
struct NaiveRow {
    wall_ns: i64,
    mono_ns: u64,
    identity: Identity,
    /// The begin of its label.
    label: String,
    value: u64,
}

/// Writes a segment for each run.
fn write_runs(folder: &Path, runs: &[Vec<Phase>]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for (number, phases) in (0_u64..).zip(runs) {
        let mut header = example();
        header.run_id = 100 + number;
        header.segment = number;
        let first = header.sources[0].clone();
        let source = |(id, name): (u16, &&str)| SourceInfo {
            id,
            name: (*name).to_owned(),
            root: ROOT.to_owned(),
            schema: SCHEMA.to_vec(),
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

fn naive_rows(folder: &Path, source_name: &str) -> Vec<NaiveRow> {
    let schema = CompiledSchema::compile(SCHEMA, ROOT).unwrap();
    let mut reader = MergedReader::open(&[folder.to_owned()], ReplayFilter::default()).unwrap();
    let (mut run, mut rows) = (0, Vec::new());
    while let Some(item) = reader.next().unwrap() {
        let sample = match item {
            ReplayItem::Header(header, _) => {
                run = header.run_id;
                continue;
            }
            ReplayItem::Sample(sample) if NAMES[usize::from(sample.telemetry.source)] == source_name => {
                sample.telemetry
            }
            _ => continue,
        };
        let mut line = Vec::new();
        schema.append_json(sample.payload, &mut line).unwrap();
        let json: Value = serde_json::from_slice(&line).unwrap();
        let mut seen: BTreeMap<(u64, Option<u64>), u32> = BTreeMap::new();
        for process in json["processes"].as_array().unwrap() {
            let (pid, start) = (process["pid"].as_u64().unwrap(), process["start"].as_u64());
            let before = seen.entry((pid, start)).or_default();
            let name = match &process["name"] {
                Value::String(name) => name.clone(),
                // Bytes that are not UTF-8.
                _ => "\\xc8\\xc8\\xc8".to_owned(),
            };
            let label = if name.is_empty() { pid.to_string() } else { format!("{name}[{pid}]") };
            let identity = (run, sample.source, pid, start, *before);
            *before += 1;
            let value = process["run_time"].as_u64();
            let (wall_ns, mono_ns) = (sample.wall_ns, sample.mono_ns);
            rows.push(NaiveRow { wall_ns, mono_ns, identity, label, value: value.unwrap_or(u64::MAX) });
        }
    }
    rows
}

fn options(is_long: bool, is_rate: bool, steps: Option<Steps>) -> RowOptions {
    RowOptions { is_long, is_rate, steps, ..RowOptions::default() }
}

/// A value of a row: its time, the label of the element if rows are elements, its column.
type Cell = (i64, Option<String>, String, HeldValue);

fn cells(folder: &Path, fields: &[&str], options: RowOptions) -> Vec<Cell> {
    let recording = Recording::open(&[folder.to_owned()]).unwrap();
    let mut reader = recording.rows(&asking(fields), options).unwrap();
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

/// Checks that what is printed tells elements apart: no name of a run is of two identities.
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
    let rows: Vec<NaiveRow> =
        naive_rows(folder, "app").into_iter().filter(|row| row.value != u64::MAX).collect();
    // Long: each value in the order of the samples, with the name that its element had.
    let field = "app.processes[*].run_time";
    let long = cells(folder, &[field], options(true, false, None));
    assert_eq!(long.len(), rows.len());
    let mut names = BTreeMap::new();
    for ((wall_ns, label, column, value), row) in long.iter().zip(&rows) {
        let label = label.clone().unwrap();
        assert_eq!((*wall_ns, value), (row.wall_ns, &HeldValue::Unsigned(row.value)));
        assert!(is_label(&label, &row.label), "{label} of {row:?}");
        // Sources that follow each other have the same columns.
        let (run, id, pid, start, before) = row.identity;
        let id = if column.starts_with("app[") { id } else { 0 };
        check_names(&mut names, &(run, column.clone(), label), (run, id, pid, start, before));
    }
    // Wide: each value in the column of its element, and nothing else.
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
    check_rates(folder, field, &rows);
    check_steps(folder, field, &long, &rows);
    check_picks(folder, &long);
    check_counts(folder);
}

/// Checks rates.
fn check_rates(folder: &Path, field: &str, rows: &[NaiveRow]) {
    // Rates: of the same counter of the same source, in the sample before that has it.
    let mut before: BTreeMap<Identity, (u64, u64)> = BTreeMap::new();
    let mut expected = Vec::new();
    for row in rows {
        let last = before.insert(row.identity, (row.mono_ns, row.value));
        let change = last.and_then(|(_, last)| row.value.checked_sub(last));
        if let (Some((last_ns, _)), Some(change)) = (last, change) {
            #[allow(clippy::cast_precision_loss, reason = "a rate")]
            let rate = change as f64 / ((row.mono_ns - last_ns) as f64 / 1e9);
            expected.push((row.wall_ns, rate));
        }
    }
    let rates = cells(
        folder,
        &[field],
        options(true, true, Some(Steps { step_ns: 1000, aggregate: Some(Aggregate::Max) })),
    );
    let rates: Vec<(i64, f64)> =
        rates.into_iter().filter_map(|(wall_ns, .., value)| Some((wall_ns, value.number()?))).collect();
    // A rate over an absence is another question: those of adjacent samples must be there.
    for own in &rates {
        assert!(expected.contains(own), "{own:?} is made up");
    }
}

/// Checks the largest values of steps.
fn check_steps(folder: &Path, field: &str, long: &[Cell], rows: &[NaiveRow]) {
    // Steps: the largest value under each name.
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

/// Checks that names pick what they are printed for.
fn check_picks(folder: &Path, long: &[Cell]) {
    // Each printed name picks the element that it was printed for.
    let labels: BTreeSet<String> = long.iter().filter_map(|cell| cell.1.clone()).collect();
    for label in labels.iter().take(3) {
        let path = format!("app.processes[\"{label}\"].run_time");
        let picked: Vec<Cell> = cells(folder, &[&path], options(true, false, None));
        let wanted = long.iter().filter(|cell| cell.1.as_ref() == Some(label));
        for cell in wanted {
            assert!(picked.iter().any(|own| (own.0, &own.3) == (cell.0, &cell.3)), "{path} lacks {cell:?}");
        }
    }
}

/// Checks that no sample is missing.
fn check_counts(folder: &Path) {
    // Rows of all samples of the name, each with its own value.
    let count = cells(folder, &["app.skipped"], options(false, false, None));
    let recording = Recording::open(&[folder.to_owned()]).unwrap();
    let mut results = recording.query(&asking(&["app.skipped"])).unwrap();
    let mut samples = 0;
    while let Some(item) = results.next().unwrap() {
        if let QueryItem::Batch(batch) = item {
            samples += batch.times.len();
        }
    }
    assert_eq!(count.len(), samples);
}

fn any_phase() -> impl Strategy<Value = Phase> {
    let process = any_process().prop_map(|(pid, name, count)| (pid, name, count % (1 << 40)));
    (0..4_usize, prop::collection::vec(prop::collection::vec(process, 0..5), 1..6))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::of(200, 10_000)))]

    // Proves that rows have each value once, for the source, element and name that it was sampled
    // of: sources and elements share names, appear, end, are renamed, follow each other and are
    // there twice. Raw and compressed files have the same rows.
    #[test]
    fn rows_are_those_of_a_reader_by_ids(
        runs in prop::collection::vec(prop::collection::vec(any_phase(), 0..6), 1..3),
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

// Proves that a source that follows another one of its name has the same column, that two at the
// same time have columns of their own, that a path may name one, and that none loses a row.
#[test]
fn sources_of_one_name_are_all_read() {
    let one = |value: u64| vec![vec![(1_u64, 97_u8, value)]];
    let path = "app.processes[*].run_time";
    let read = |phases: Vec<Phase>, path: &str| {
        let folder = tempfile::tempdir().unwrap();
        write_runs(folder.path(), &[phases]);
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

// Proves that values of a process stay with the name that it had, and that a selection by a name
// has those alone.
#[test]
fn a_process_has_the_name_of_its_sample() {
    let folder = tempfile::tempdir().unwrap();
    let phases = vec![(0_usize, vec![vec![(1, 97, 5)], vec![(1, 97, 6)], vec![(1, 98, 7)]])];
    write_runs(folder.path(), &[phases]);
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
