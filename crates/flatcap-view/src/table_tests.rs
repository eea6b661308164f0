//! Compares the rows of a table with rows that the test computes from the samples in the recording.

use std::collections::BTreeMap;

use flatbuffers::FlatBufferBuilder;
use flatcap_query::Recording;
use flatcap_schemas::host::{Process, ProcessArgs, ProcessCounters};
use proptest::prelude::*;

use crate::test_recording::{TICK_NS, TestSource, text, wall_ns, write_sources};
use crate::{Catalog, ColumnValue, ElementShape, TableFeed};

/// Number of ticks from one sample to the next. These ticks take 200 ms.
const TICKS: u64 = 20;
const PROCESSES: u64 = 4;
/// Time for which an element without a sample is shown: three seconds, as documented.
const HELD_NS: i64 = 3_000_000_000;

/// A sample: whether it leaves out running processes, and a bit mask of the processes that it
/// contains.
type Sample = (bool, u8);

fn payload(number: u64, (leaves_out, present): Sample) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let processes = (0..PROCESSES).filter(|process| present >> process & 1 == 1).map(|process| {
        // All fields that are not set below are absent.
        let mut counters = ProcessCounters([0xff; size_of::<ProcessCounters>()]);
        counters.set_pid(process + 1);
        counters.set_start(1);
        counters.set_name(&text("work"));
        counters.set_state(&text("S"));
        counters.set_resident_size(number);
        counters
    });
    let processes: Vec<ProcessCounters> = processes.collect();
    let args = ProcessArgs {
        processes: Some(builder.create_vector(&processes)),
        skipped: leaves_out.into(),
        exits: Some(builder.create_vector::<flatcap_schemas::host::ProcessExit>(&[])),
        command_lines: Some(builder.create_vector::<flatcap_schemas::host::CommandLine>(&[])),
        groups: Some(builder.create_vector::<flatcap_schemas::host::ProcessGroup>(&[])),
        ..ProcessArgs::default()
    };
    let root = Process::create(&mut builder, &args);
    builder.finish_minimal(root);
    builder.finished_data().to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(flatcap_format::testing::effort::cases(24, 500)))]

    // Proves that a table shows the processes of the last samples with their values. A process that
    // a complete sample lacks disappears at that sample, and a process that incomplete samples
    // leave out stays for three seconds. The samples are random and are read at random times.
    #[test]
    fn ended_processes_are_gone(
        samples in prop::collection::vec((prop::bool::weighted(0.7), 0..16_u8), 2..60),
        mut times in prop::collection::vec(0..1000_u64, 1..8),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let schema = include_bytes!("../../../generated/host/process.bfbs");
        let source = TestSource { name: "process", root: "flatcap.host.Process", schema, labels: Vec::new() };
        let count = samples.len() as u64;
        write_sources(folder.path(), (count, TICKS), &[source], |_, number| {
            payload(number, samples[usize::try_from(number).unwrap()])
        });
        let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
        let catalog = Catalog::of(&recording);
        let table = catalog.table(ElementShape::Processes).unwrap();
        let is_size = |title: &str, value: &ColumnValue| title == "RSS" && matches!(value, ColumnValue::Number(_));
        let size = table.columns.iter().position(|column| is_size(&column.title, &column.value)).unwrap();
        let mut feed = TableFeed::open(&recording, table, None, (wall_ns(0), 1_000_000_000)).unwrap();
        times.sort_unstable();
        for part in times {
            let until_ns = wall_ns(count * TICKS * part / 1000) + TICK_NS / 2;
            prop_assert!(feed.advance(until_ns, &mut || true).unwrap());
            let mut expected = BTreeMap::new();
            for (number, (leaves_out, present)) in samples.iter().enumerate() {
                let (number, seen_ns) = (number as u64, wall_ns(number as u64 * TICKS));
                if seen_ns > until_ns {
                    break;
                }
                if !leaves_out {
                    expected.clear();
                }
                let seen = (0..PROCESSES).filter(|process| present >> process & 1 == 1);
                expected.extend(seen.map(|process| (process + 1, (number, seen_ns))));
            }
            expected.retain(|_, (_, seen_ns)| until_ns - *seen_ns <= HELD_NS);
            let expected: BTreeMap<u64, u64> = expected.into_iter().map(|(pid, own)| (pid, own.0)).collect();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
            let shown: BTreeMap<u64, u64> = (feed.elements().into_iter())
                .map(|own| (own.pid.unwrap(), own.numbers[size].unwrap() as u64))
                .collect();
            prop_assert_eq!(shown, expected, "up to {}", until_ns - wall_ns(0));
        }
    }
}
