//! Compares two ways of reading payloads. One way reads columns and uses templates. The other way
//! walks each payload.

use std::path::{Path, PathBuf};

use flatcap_format::frame::Incomplete;
use flatcap_format::replay::ReplayFilter;
use flatcap_format::segment::{
    SealState, SegmentHeader, SegmentName, SegmentReader, SegmentWriter, SourceInfo, Verification,
};
use flatcap_format::testing::{Folder, TimedSample, compressed, effort, example, write_samples};
use flatcap_schemas::host::{
    CoreTimes, Cpu, CpuArgs, CpuTimes, Process, ProcessArgs, ProcessCounters, ProcessExit,
};
use proptest::prelude::*;

use super::segment_files::files;
use super::*;

/// Compares both ways of reading. Returns the summary of the query that reads columns and uses
/// templates.
fn compare(path: &Path, query: &Query) -> Option<QuerySummary> {
    fuzzing::compare(path, query, None)
}

/// Compares both ways of reading. Compares only the rows for which a condition holds.
fn compare_where(path: &Path, query: &Query, condition: Option<&str>) -> Option<QuerySummary> {
    fuzzing::compare(path, query, condition.map(|condition| condition.parse().unwrap()).as_ref())
}

pub(super) fn asking(fields: &[&str]) -> Query {
    Query { fields: fields.iter().map(|field| field.parse().unwrap()).collect(), ..Query::default() }
}

/// Compares both ways of reading for all fields together, for each field alone, and for parts of
/// the recorded time.
fn compare_all(path: &Path) -> u64 {
    let recording = Recording::open(&[path.to_owned()]).unwrap();
    let mut read = compare(path, &Query::default()).map_or(0, |summary| summary.blocks_read);
    let (mut paths, mut walls) = (Vec::new(), Vec::new());
    let mut results = recording.query(&Query::default()).unwrap();
    while let Some(item) = results.next().unwrap() {
        if let QueryItem::Batch(batch) = item {
            walls.extend(batch.times.wall_ns);
        }
    }
    for table in results.tables() {
        paths.extend(table.columns.iter().map(|column| format!("{}.{}", table.source, table.path(column))));
    }
    for field in paths.iter().step_by(effort::of(3, 1)) {
        read += compare(path, &asking(&[field])).map_or(0, |summary| summary.blocks_read);
    }
    walls.sort_unstable();
    let wall = |part: usize| walls.get(walls.len() * part / 5).copied();
    for (since_ns, until_ns) in [(wall(1), wall(2)), (wall(3), None), (None, wall(1)), (wall(2), wall(2))] {
        let filter = ReplayFilter { since_ns, until_ns, ..ReplayFilter::default() };
        compare(path, &Query { filter, ..Query::default() });
    }
    read
}

// Proves that both ways of reading give the same results for each conformance and corpus file. The
// raw files are also tested after compression with small and with large blocks. The test queries
// all fields, each field alone, and ranges of time.
#[test]
fn columns_are_as_a_walk_of_each_payload() {
    let folder = tempfile::tempdir().unwrap();
    let mut read = 0;
    for path in files("conformance").into_iter().chain(files("corpus")) {
        let Ok(recording) = Recording::open(std::slice::from_ref(&path)) else { continue };
        if recording.sources().is_empty() {
            continue;
        }
        read += compare_all(&path);
        let Ok(mut reader) = SegmentReader::open(&path) else { continue };
        let mut verification = Verification::default();
        verification.verify(&mut reader, false, &mut |_| {}).unwrap();
        if !verification.finish().is_intact() || reader.compressed().is_some() {
            continue;
        }
        for block_bytes in [2 << 10, 1 << 20] {
            let other = folder.path().join(path.file_name().unwrap());
            std::fs::write(&other, compressed(&path, block_bytes)).unwrap();
            read += compare_all(&other);
        }
    }
    assert!(read > 100, "{read} blocks were read by columns");
}

/// A sample, given by its source and its payload.
type Written = (u16, Vec<u8>);

const SCHEMAS: [(&str, &[u8]); 4] = [
    ("flatcap.host.Cpu", include_bytes!("../../../../generated/host/cpu.bfbs")),
    ("flatcap.test.Marked", include_bytes!("../../../../tests/data/schema/marked.bfbs")),
    ("flatcap.test.Shapes", include_bytes!("../../../../tests/data/schema/shapes.bfbs")),
    ("flatcap.host.Process", include_bytes!("../../../../generated/host/process.bfbs")),
];
const MARKED: &[u8] = include_bytes!("../../../../tests/data/schema/marked.bin");
const SHAPES: &[u8] = include_bytes!("../../../../tests/data/schema/shapes.bin");

/// Writes a sealed segment of samples, one per microsecond. Returns its path.
pub(super) fn segment_of(folder: &Path, samples: &[Written]) -> PathBuf {
    let mut next = [0_u64; 4];
    let samples = (0_u64..).zip(samples).map(|(number, (source, body))| {
        let seq = next[usize::from(*source)];
        next[usize::from(*source)] += 1;
        let (mono_ns, wall_ns) = (1000 * number, 1_000_000 + 1000 * number.cast_signed());
        let (incomplete, body) = (Incomplete::NONE, body.clone());
        TimedSample { source: *source, seq, mono_ns, wall_ns, incomplete, body }
    });
    let name = SegmentName { number: 7, created_s: 1_700_000_000, run_id: 5, state: SealState::Active };
    let writer = write_segment(folder, name, example(), samples);
    let sealed = writer.seal().unwrap();
    sealed.publish(&Folder(folder.to_owned())).unwrap();
    folder.join(sealed.name().to_string())
}

/// Writes samples of the sources of [`SCHEMAS`] to a segment.
pub(super) fn write_segment(
    folder: &Path,
    name: SegmentName,
    mut header: SegmentHeader,
    samples: impl Iterator<Item = TimedSample>,
) -> SegmentWriter {
    let first = header.sources[0].clone();
    header.sources = (0..)
        .zip(SCHEMAS)
        .map(|(id, (root, schema))| SourceInfo {
            id,
            name: root.rsplit('.').next().unwrap().to_lowercase(),
            root: root.to_owned(),
            schema: schema.to_vec(),
            next_seq: 0,
            ..first.clone()
        })
        .collect();
    write_samples(folder, name, header, samples)
}

pub(super) fn cpu(counts: &[u64], cores: u16) -> Vec<u8> {
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let count = |at: usize| counts[at % counts.len()];
    let times = |at: usize| {
        let count = |offset: usize| count(at + offset);
        CpuTimes::new(
            count(0),
            count(1),
            count(2),
            count(3),
            count(4),
            count(5),
            count(6),
            count(7),
            u64::MAX,
            0,
        )
    };
    let cores: Vec<_> =
        (0..cores).map(|core| CoreTimes::new(core.into(), &times(usize::from(core)))).collect();
    let cores = Some(builder.create_vector(&cores));
    let total = times(3);
    let args = CpuArgs {
        total: Some(&total),
        context_switches: count(2),
        forks: count(5),
        cores,
        ..Default::default()
    };
    let root = Cpu::create(&mut builder, &args);
    builder.finish_minimal(root);
    builder.finished_data().to_vec()
}

/// Returns payloads that differ from `base` in some bytes, at a few positions.
fn series(base: &[u8], places: &[prop::sample::Index], steps: &[u8], keeps: bool) -> Vec<Vec<u8>> {
    let mut payload = base.to_vec();
    steps
        .iter()
        .map(|step| {
            if !keeps {
                payload = base.to_vec();
            }
            for place in places {
                let at = place.index(payload.len());
                payload[at] = payload[at].wrapping_add(*step);
            }
            payload.clone()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::cases(12, 200)))]

    // Proves that both ways of reading give the same results for random samples, raw and
    // compressed. The samples contain numbers that change or stay, and cores that come and go. In
    // payloads with strings, enums, tables and lists, arbitrary bytes change. Structures, elements
    // and strings therefore change, and some payloads are malformed.
    #[test]
    fn columns_are_as_a_walk_of_random_payloads(
        counts in prop::collection::vec(prop_oneof![0..9_u64, any::<u64>(), Just(u64::MAX)], 1..12),
        cores in prop::collection::vec(prop_oneof![8 => Just(4_u16), 1 => 0..6_u16], 20..60),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        steps in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 20..60),
        keeps in any::<bool>(),
        turns in 1..30_usize,
        fields in prop::collection::vec(0..12_usize, 1..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut all: [Vec<Written>; 3] = Default::default();
        all[0] = (0..).zip(&cores).map(|(at, cores)| {
            let counts: Vec<u64> = counts.iter().map(|count| count.wrapping_add(at)).collect();
            (0, cpu(&counts, *cores))
        }).collect();
        all[1] = series(MARKED, &places, &steps, keeps).into_iter().map(|payload| (1, payload)).collect();
        all[2] = series(SHAPES, &places, &steps, keeps).into_iter().map(|payload| (2, payload)).collect();
        // The samples of the sources alternate in the file.
        let mut samples = Vec::new();
        while all.iter().any(|own| !own.is_empty()) {
            for own in &mut all {
                samples.extend(own.drain(..turns.min(own.len())));
            }
        }
        let path = segment_of(folder.path(), &samples);
        let fields: Vec<&str> = fields.iter().map(|field| FIELDS[*field]).collect();
        let raw = compare(&path, &asking(&fields));
        prop_assert!(raw.is_some());
        let small = folder.path().join("small.bin");
        std::fs::write(&small, compressed(&path, 3000)).unwrap();
        let summary = compare(&small, &asking(&fields)).unwrap();
        prop_assert!(summary.blocks_read > 0);
        std::fs::write(&path, compressed(&path, 1 << 20)).unwrap();
        compare(&path, &asking(&fields)).unwrap();
        compare(&path, &Query::default()).unwrap();
        let filter = ReplayFilter {
            since_ns: Some(1_010_000),
            until_ns: Some(1_060_000),
            ..ReplayFilter::default()
        };
        compare(&path, &Query { filter, ..asking(&fields) }).unwrap();
        for path in [&path, &small] {
            for condition in CONDITIONS {
                compare_where(path, &asking(&fields), Some(condition)).unwrap();
            }
        }
    }
}

pub(super) fn any_process() -> impl Strategy<Value = (u64, u8, u64)> {
    (0..7_u64, prop_oneof![Just(0_u8), 97..100_u8, Just(200)], any::<u64>())
}

/// Returns a payload with equal numbers of processes and ended processes.
pub(super) fn processes(all: &[(u64, u8, u64)]) -> Vec<u8> {
    let (mut builder, mut counters) = (flatbuffers::FlatBufferBuilder::new(), Vec::new());
    for (pid, name, count) in all {
        let mut process = ProcessCounters([0; 240]);
        process.set_pid(pid % 5);
        // The start may be absent.
        process.set_start(if *pid == 4 { u64::MAX } else { 7 });
        process.set_parent(pid % 2);
        let mut text = [0; 64];
        // Bytes from 128 on are not UTF-8.
        text[..3].fill(*name);
        process.set_name(&text);
        process.set_user_time(*count);
        process.set_run_time(count.wrapping_mul(3));
        counters.push(process);
    }
    let exits: Vec<ProcessExit> =
        all.iter().map(|(pid, _, count)| ProcessExit::new(*pid, 1, 2, *count, 0, 0)).collect();
    let args = ProcessArgs {
        count: all.iter().map(|(.., count)| count % 1000).sum(),
        processes: Some(builder.create_vector(&counters)),
        exits: Some(builder.create_vector(&exits)),
        command_lines: Some(builder.create_vector::<flatcap_schemas::host::CommandLine>(&[])),
        groups: Some(builder.create_vector::<flatcap_schemas::host::ProcessGroup>(&[])),
        ..Default::default()
    };
    let root = Process::create(&mut builder, &args);
    builder.finish_minimal(root);
    builder.finished_data().to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::cases(20, 300)))]

    // Proves that both ways of reading give the same results for lists of structs of any length. In
    // these lists, elements appear, disappear, change their names and share identities. Some
    // strings are not UTF-8, and some identities are absent. Also proves that elements of unnamed
    // lists are not distinguished.
    #[test]
    fn structs_are_as_a_walk_of_each(
        samples in prop::collection::vec(
            prop::collection::vec(any_process(), 0..6),
            1..40,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let samples: Vec<Written> = samples.iter().map(|all| (3, processes(all))).collect();
        let path = segment_of(folder.path(), &samples);
        let mut unnamed = asking(&["process.processes", "process.exits"]);
        unnamed.unnamed_lists.insert("process.exits".to_owned());
        for is_compressed in [false, true] {
            if is_compressed {
                std::fs::write(&path, compressed(&path, 3000)).unwrap();
            }
            for field in ["process", "process.processes[*].run_time", "process.exits[*].parent"] {
                compare(&path, &asking(&[field])).unwrap();
            }
            compare(&path, &asking(&["process.processes[pid=2].name"])).unwrap();
            compare(&path, &unnamed).unwrap();
        }
        let mut results = Recording::open(&[path]).unwrap().query(&unnamed).unwrap();
        let mut elements = Vec::new();
        while let Some(item) = results.next().unwrap() {
            let QueryItem::Batch(batch) = item else { continue };
            if results.tables()[batch.table].list.as_deref() == Some("exits[*]") {
                elements.extend((0..batch.rows()).filter_map(|row| batch.element(row)));
            }
        }
        prop_assert!(elements.iter().all(|element| *element == NO_ELEMENT));
        // There are six identities, and a sample contains at most five elements with the same
        // identity.
        prop_assert!(results.elements().len() <= 6 * 5);
    }
}

const FIELDS: [&str; 12] = [
    "cpu.cores[*].times.user",
    "cpu.total.user",
    "cpu.context_switches",
    "cpu.cores[2].times",
    "marked.total",
    "marked.cores",
    "marked.unit.name",
    "marked",
    "shapes.points",
    "shapes.words",
    "shapes.moods",
    "shapes",
];

fn asking_where(fields: &[&str], condition: &str) -> Query {
    Query { condition: Some(condition.parse().unwrap()), ..asking(fields) }
}

const CONDITIONS: [&str; 7] = [
    "cpu.total.user > 200ms or cpu.context_switches = 18446744073709551615",
    "cpu.cores[*].times.user < 0.3s and not cpu.cores[*].times.nice = 7jiffies",
    "cpu.cores[2].times.system >= 25 jiffies or all(cores[*].times.user > 5s or cores[*].times.user < 1s)",
    "marked.state = \"On\" or marked.load > 1",
    "marked.unit.name =~ \"e.*\" and not marked.total.user < 10ns",
    "shapes.points[*].y > 4 or shapes.last != 3",
    "not (shapes.scalars.u8 < 200 and shapes.last = 1) or shapes.point.x < -3.5",
];

/// Returns the sequence numbers and elements of the rows for which a condition holds.
fn rows_where(path: &Path, field: &str, condition: &str) -> (Vec<(u64, Option<String>)>, QuerySummary) {
    let recording = Recording::open(&[path.to_owned()]).unwrap();
    let mut results = recording.query(&asking_where(&[field], condition)).unwrap();
    let mut rows = Vec::new();
    while let Some(item) = results.next().unwrap() {
        let QueryItem::Batch(batch) = item else { continue };
        assert!(results.tables()[batch.table].columns.iter().all(|column| column.order == 0));
        rows.extend((0..batch.rows()).map(|row| {
            let element = batch.name(row).map(|name| results.elements().label(name).to_owned());
            (batch.times.seq[batch.sample(row)], element)
        }));
    }
    (rows, results.summary())
}

// Proves which rows a condition keeps. A condition on a field of the sample keeps all rows of the
// sample. A condition on a field of a list keeps the rows of the elements for which it holds. A
// condition that selects one element keeps the rows of all elements, in the samples in which the
// condition holds. Also proves that blocks without rows that pass are skipped.
#[test]
fn conditions_keep_the_rows_they_are_about() {
    let folder = tempfile::tempdir().unwrap();
    // In sample `at`, the user time of core c is c + at, and the total user time is 3 + at.
    let samples: Vec<Written> =
        (0..2000_u64).map(|at| (0, cpu(&(0..16).map(|value| at + value).collect::<Vec<_>>(), 3))).collect();
    let path = segment_of(folder.path(), &samples);
    let packed = folder.path().join("packed.bin");
    std::fs::write(&packed, compressed(&path, 20_000)).unwrap();
    for path in [&path, &packed] {
        let (rows, summary) =
            rows_where(path, "cpu.forks", "cpu.total.user >= 19.99s and total.user != 2001 jiffies");
        assert_eq!(rows.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [1996, 1997, 1999]);
        assert!(path != &packed || summary.blocks_skipped >= 10, "{summary:?}");
        let (rows, _) = rows_where(path, "cpu.cores[*].times.idle", "cpu.cores[*].times.user = 5s");
        let expected = [(498, "2"), (499, "1"), (500, "0")];
        assert_eq!(rows, expected.map(|(seq, label)| (seq, Some(label.to_owned()))));
        let (rows, _) = rows_where(path, "cpu.cores[*].times.idle", "cpu.cores[1].times.user = 5s");
        let expected = ["0", "1", "2"].map(|label| (499, Some(label.to_owned())));
        assert_eq!(rows, expected);
        let (rows, _) = rows_where(path, "cpu.forks", "cpu.cores[*].times.user = 5s");
        assert_eq!(rows, [(498, None), (499, None), (500, None)]);
        assert!(rows_where(path, "cpu.forks", "cpu.total.user > 1e9s").0.is_empty());
    }
    let recording = Recording::open(&[path]).unwrap();
    let refused = |condition: &str| {
        let asked = recording.query(&asking_where(&["cpu.forks"], condition));
        asked.unwrap_err().to_string()
    };
    assert_eq!(
        refused("cpu.total.user > 3"),
        r#""cpu.total.user > 3": write the number with a unit, such as 3 jiffies"#
    );
    assert!(refused("cpu.total.usr > 1s").contains("did you mean cpu.total.user"));
    assert!(refused("cpu.total > 1").contains("is 10 fields; name one of them: cpu.total.user, "));
    assert!(refused("cpu.forks > 1 and marked.load > 1").contains("no source has all"));
}

// Proves that values, names and strings that are constant in a block are read from each block, even
// if all blocks have the same structure. The test queries with and without a condition.
#[test]
fn each_block_has_its_own_constants() {
    let folder = tempfile::tempdir().unwrap();
    let marked = |at: u64| {
        let mut payload = MARKED.to_vec();
        let places =
            payload.windows(3).enumerate().filter(|(_, text)| text.iter().all(u8::is_ascii_lowercase));
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        for place in places {
            payload[place] = b'a' + u8::try_from(at / 60 % 20).unwrap();
        }
        payload
    };
    let samples: Vec<Written> = (0..1200_u64)
        .flat_map(|at| {
            let named = (3, b'a' + u8::try_from(at / 90 % 20).unwrap(), at / 70);
            [(0, cpu(&[at / 100, at, at / 40], 3)), (1, marked(at)), (3, processes(&[(2, 97, at), named]))]
        })
        .collect();
    let path = segment_of(folder.path(), &samples);
    std::fs::write(&path, compressed(&path, 40_000)).unwrap();
    let summary = compare(&path, &asking(&["cpu", "marked", "process.processes"])).unwrap();
    assert!(summary.blocks_read > 20 && summary.samples == 3600, "{summary:?}");
    compare_where(&path, &asking(&["cpu"]), Some("cpu.context_switches = 7 or cpu.forks = 900")).unwrap();
}

// Proves that blocks whose rows are all outside of the requested time are not read.
#[test]
fn blocks_outside_of_the_time_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let samples: Vec<Written> = (0..2000_u64).map(|at| (0, cpu(&[at, 7], 3))).collect();
    let path = segment_of(folder.path(), &samples);
    std::fs::write(&path, compressed(&path, 20_000)).unwrap();
    let filter =
        ReplayFilter { since_ns: Some(1_500_000), until_ns: Some(1_510_000), ..ReplayFilter::default() };
    let summary = compare(&path, &Query { filter, ..asking(&["cpu.forks"]) }).unwrap();
    assert_eq!((summary.samples, summary.damage), (10, 0));
    assert!(summary.blocks_read <= 2 && summary.blocks_skipped > 10, "{summary:?}");
}

// Proves that only the rows of a damaged block are missing, and that the block is reported exactly
// one time and counted.
#[test]
fn damaged_blocks_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let samples: Vec<Written> = (0..600).map(|at| (0, cpu(&[at, 3], 2))).collect();
    let path = segment_of(folder.path(), &samples);
    let bytes = compressed(&path, 20_000);
    std::fs::write(&path, &bytes).unwrap();
    let query = asking(&["cpu.cores[*].times.user"]);
    assert_eq!(compare(&path, &query).unwrap().samples, 600);
    let blocks = SegmentReader::open(&path).unwrap().compressed().unwrap().blocks();
    assert!(blocks.len() > 5, "{}", blocks.len());
    for block in &blocks[1..blocks.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[usize::try_from(block.offset).unwrap() + block.bytes as usize / 2] ^= 0x40;
        std::fs::write(&path, &damaged).unwrap();
        let summary = compare(&path, &query).unwrap();
        assert_eq!(summary.damage, 1, "{block:?}");
        assert!(summary.samples >= 400, "{summary:?}");
    }
}

// Proves that both ways of reading agree on mutated corpus files. The fuzz target makes the same
// comparison.
#[test]
fn both_ways_agree_on_damaged_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fuzz.bin");
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % below.max(1)
    };
    for file in files("conformance").into_iter().chain(files("corpus")) {
        let original = std::fs::read(&file).unwrap();
        for _ in 0..effort::of(2, 30) {
            let mut bytes = original.clone();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                match random(3) {
                    0 => bytes[at] ^= 1 << random(8),
                    1 => bytes.truncate(at.max(200)),
                    _ => drop(bytes.drain(at..(at + random(300)).min(bytes.len()))),
                }
            }
            std::fs::write(&path, &bytes).unwrap();
            fuzzing::agree(&path);
        }
    }
}

// Proves that both ways of reading agree on inputs on which they differed in the past.
#[test]
fn both_ways_agree_on_inputs_that_failed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions/query");
    let inputs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!inputs.is_empty());
    for input in inputs {
        fuzzing::agree(&input);
    }
}
