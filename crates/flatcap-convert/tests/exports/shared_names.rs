//! Exports random recordings in which sources and elements share names, and compares the exports
//! with the content of the recordings by ids.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::reader::FileReader;
use flatcap_format::schema::CompiledSchema;
use flatcap_format::testing::effort;
use flatcap_format::testing::shared_names::{KnownSample, write_recording};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

/// Samples by wall time, each with the name of the source, the run, the number, and the values.
type Found = BTreeMap<i64, (String, u64, u64, Value)>;

fn export(folder: &Path, to: &str, output: &Path, more: &[&str]) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatcap-convert"));
    command.arg("export").arg(format!("--to={to}")).arg(format!("--output={}", output.display())).args(more);
    command.arg("--").arg(folder).output().unwrap().status.code()
}

fn values(sample: &KnownSample) -> Value {
    let devices = sample.devices.iter().map(|device| {
        json!({
            "pid": device.pid, "name": device.printed_name(), "size": device.size, "count": device.count,
        })
    });
    json!({ "level": sample.level, "devices": devices.collect::<Vec<_>>() })
}

fn expected(samples: &[KnownSample], is_wanted: impl Fn(&KnownSample) -> bool) -> Found {
    let wanted = samples.iter().filter(|sample| is_wanted(sample));
    let entry = |sample: &KnownSample| {
        let KnownSample { run_id, seq, wall_ns, .. } = *sample;
        (wall_ns, (sample.name().to_owned(), run_id, seq, values(sample)))
    };
    wanted.map(entry).collect()
}

/// Returns a number of a column that is unsigned in Arrow and signed in Parquet.
fn number(column: &ArrayRef, row: usize) -> u64 {
    let signed = column.as_primitive_opt::<Int64Type>().map(|own| own.value(row).cast_unsigned());
    signed.unwrap_or_else(|| column.as_primitive::<UInt64Type>().value(row))
}

/// Adds the samples of a batch. Each sample has a different time.
fn add(found: &mut Found, name: &str, batch: &RecordBatch) {
    let column = |name: &str| batch.column_by_name(name).unwrap_or_else(|| panic!("{name}: {batch:?}"));
    let (runs, wall_ns) = (column("run").as_string::<i32>(), column("wall_ns").as_primitive::<Int64Type>());
    let devices = column("devices").as_list::<i32>();
    for row in 0..batch.num_rows() {
        let elements = devices.value(row);
        let elements = elements.as_struct();
        let of = |name: &str, at: usize| number(elements.column_by_name(name).unwrap(), at);
        let names = elements.column_by_name("name").unwrap().as_string::<i32>();
        let elements = (0..elements.len()).map(|at| {
            json!({
                "pid": of("pid", at), "name": names.value(at), "size": of("size", at),
                "count": of("count", at),
            })
        });
        let values =
            json!({ "level": number(column("level"), row), "devices": elements.collect::<Vec<_>>() });
        let run_id = u64::from_str_radix(runs.value(row), 16).unwrap();
        let own = (name.to_owned(), run_id, number(column("seq"), row), values);
        assert_eq!(found.insert(wall_ns.value(row), own), None, "a sample is there twice");
    }
}

/// Returns the samples in the files of Parquet.
fn in_parquet(folder: &Path, output: &Path) -> Found {
    assert_eq!(export(folder, "parquet", output, &[]), Some(0));
    let mut found = Found::new();
    for entry in std::fs::read_dir(output).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let Some(name) = ["app", "other"].into_iter().find(|name| stem.starts_with(name)) else { continue };
        let file = std::fs::File::open(&path).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        reader.for_each(|batch| add(&mut found, name, &batch.unwrap()));
    }
    found
}

/// Returns the samples in a file of MCAP. The topic of each sample begins with the name of the
/// sample's source.
fn in_mcap(folder: &Path, output: &Path) -> Found {
    assert_eq!(export(folder, "mcap", output, &[]), Some(0));
    let bytes = std::fs::read(output).unwrap();
    let mut found = Found::new();
    for message in mcap::MessageStream::new(&bytes).unwrap().map(Result::unwrap) {
        let Some(schema) = message.channel.schema.as_ref().filter(|own| own.encoding == "flatbuffer") else {
            continue;
        };
        let mut line = Vec::new();
        let compiled = CompiledSchema::compile(&schema.data, &schema.name).unwrap();
        compiled.append_json(&message.data, &mut line).unwrap();
        let topic = &message.channel.topic;
        let name = ["app", "other"].into_iter().find(|name| topic.starts_with(name)).unwrap();
        let values = serde_json::from_slice(&line).unwrap();
        let own = (name.to_owned(), 0, message.sequence.into(), values);
        assert_eq!(found.insert(message.log_time.cast_signed(), own), None, "a sample is there twice");
    }
    found
}

/// Returns the samples of one source in a file of Arrow; `None` if the schemas of its runs differ.
fn in_arrow(folder: &Path, output: &Path) -> Option<Found> {
    if export(folder, "arrow", output, &["--source=app"]) != Some(0) {
        return None;
    }
    let mut found = Found::new();
    let reader = FileReader::try_new(std::fs::File::open(output).unwrap(), None).unwrap();
    reader.for_each(|batch| add(&mut found, "app", &batch.unwrap()));
    Some(found)
}

// Proves that Parquet, Arrow and MCAP have each sample exactly once, with its source, run, number,
// and the name that each element had. The test uses random recordings.
#[test]
fn exports_have_each_sample_once() {
    let mut arrows = 0;
    for seed in 0..effort::of(30, 1000) {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let samples = write_recording(&data, seed);
        if samples.is_empty() {
            continue;
        }
        assert_eq!(in_parquet(&data, &folder.path().join("parquet")), expected(&samples, |_| true), "{seed}");
        let mut found = expected(&samples, |_| true);
        for (_, run_id, ..) in found.values_mut() {
            *run_id = 0;
        }
        assert_eq!(in_mcap(&data, &folder.path().join("out.mcap")), found, "{seed}");
        if let Some(found) = in_arrow(&data, &folder.path().join("out.arrow")) {
            assert_eq!(found, expected(&samples, |sample| sample.name() == "app"), "{seed}");
            arrows += 1;
        }
    }
    assert!(arrows > 5, "{arrows}");
}
