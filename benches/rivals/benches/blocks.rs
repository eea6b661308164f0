//! Measures reading one field from blocks against decoding everything, and seeking in a compressed
//! segment. Budget: one field of a wide source over a whole segment 20 x as fast as decoding
//! everything; a seek 2 ms with warm caches.
//!
//! Two segments on tmpfs: six sources of this host at 500 Hz for 20 seconds, read for one field of
//! `vmstat`, and a rig of 64 noisy floats (src/rig.rs), read for one of them. The compressor's own
//! function compresses each with its defaults. *Everything* decodes each block, restores all frames
//! and walks the field of each by its schema; *reader* is the segment reader with its source
//! selected; *query* returns the field's values as columns, without frames, and the times of the
//! samples. All compute the same sum. A seek opens the directory and reads the first sample at a
//! random time, compared with the raw segment; by wall time, and by CPU time for busy machines.
//! Medians of rounds in turns.
//!
//! `cargo bench --bench blocks`

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use flatcap_format::block::{BlockDecoder, ColumnSelection};
use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
use flatcap_format::schema::{CompiledSchema, FieldValue, PathStep, Visitor, envelope};
use flatcap_format::segment::{Advance, FrameKind, list};
use flatcap_format::storage::Storage;
use flatcap_os::clock::thread_cpu_ns;
use flatcap_os::storage::DataDirectory;
use flatcap_query::{self, ColumnValues, Query, QueryItem};
use flatcap_recorder::compress::{
    CompressJob, CompressOutcome, NamedSourceCompression, ReplaceJob, ReplaceMode, compress_segment,
};
use flatcap_rivals::blocks::blocks;
use flatcap_rivals::recording::{CHECKSUM, Recording};
use flatcap_rivals::records::Random;
use flatcap_rivals::rig::{self, Kind};
use flatcap_rivals::rounds::Quartiles;
use flatcap_rivals::segments::write_recording;
use flatcap_stream::{KindDeframer, SliceReader};

const SOURCES: [&str; 6] = ["cpu", "memory", "vmstat", "disk", "network", "pressure"];
const ROUNDS: usize = 15;
const SEEKS: usize = 200;

/// A recording as raw and as compressed segment, and the field that is read.
struct Subject {
    title: &'static str,
    recording: Recording,
    raw: tempfile::TempDir,
    packed: tempfile::TempDir,
    file: Vec<u8>,
    source: u16,
    field: &'static str,
    /// The schema of the source, of which only the field is selected.
    schema: CompiledSchema,
}

/// The bits of the last number of a walk.
struct Number(Option<u64>);

impl Visitor for Number {
    fn begin_object(&mut self, _: PathStep<'_>) {}
    fn end_object(&mut self) {}
    fn begin_list(&mut self, _: PathStep<'_>, _: usize) {}
    fn end_list(&mut self) {}
    fn value(&mut self, _: PathStep<'_>, value: FieldValue<'_>) {
        self.0 = match value {
            FieldValue::Unsigned(number) => Some(number),
            FieldValue::Float(number) => Some(number.to_bits()),
            _ => None,
        };
    }
}

impl Subject {
    fn new(title: &'static str, recording: Recording, source: u16, field: &'static str) -> Self {
        let of = &recording.sources[usize::from(source)];
        let plan = CompiledSchema::compile(&of.schema, &of.root).expect("a schema");
        let schema = plan.select(&[field]).expect("a field");
        let folder = || tempfile::tempdir_in("/dev/shm").expect("tmpfs");
        let (raw, packed) = (folder(), folder());
        write_recording(&open(raw.path()), 0, &recording);
        let storage = open(packed.path());
        let name = write_recording(&storage, 0, &recording);
        let mut job = CompressJob {
            replace: ReplaceJob {
                storage: &*storage,
                min_free: 0,
                replace_mode: ReplaceMode::ExchangeOrReplace,
                after_slice: &mut |_| true,
            },
            compression: &NamedSourceCompression::default(),
            block_bytes: flatcap_format::block::RAW_BYTES_DEFAULT,
        };
        assert!(
            matches!(compress_segment(&mut job, name), Ok(CompressOutcome::Compressed { .. })),
            "it is compressed"
        );
        let file = std::fs::read(packed.path().join(name.to_string())).expect("just made");
        Self { title, recording, raw, packed, file, source, field, schema }
    }

    fn value(&self, body: &[u8]) -> u64 {
        let mut number = Number(None);
        self.schema.walk(body, &mut number).expect("its schema");
        number.0.expect("a number")
    }

    /// Blocks of the compressed file.
    fn blocks(&self) -> impl Iterator<Item = &[u8]> {
        blocks(&self.file).filter(|payload| payload.get(4..8) == Some(b"FCBK"))
    }

    fn everything(&self, decoder: &mut BlockDecoder, frames: &mut Vec<u8>) -> u64 {
        let mut sum = 0_u64;
        for payload in self.blocks() {
            let block = decoder.open(payload, &ColumnSelection::ALL).expect("a block");
            frames.resize(block.raw_bytes(), 0);
            block.copy(0, frames);
            // The last block refers to the first one.
            if block.raw_offset() == 0 {
                decoder.set_first_block(frames.clone());
            }
            for payload in SliceReader::new(frames, KindDeframer::new(CHECKSUM)) {
                if let Some((header, body)) = envelope::split(payload.expect("intact"))
                    && header.source() == self.source
                {
                    sum = sum.wrapping_add(self.value(body));
                }
            }
        }
        sum
    }

    fn by_reader(&self) -> u64 {
        let name = self.recording.sources[usize::from(self.source)].name.clone();
        let mut sum = 0_u64;
        for listing in list(&[self.packed.path().to_owned()]).expect("a directory") {
            let mut reader = listing.open().expect("a segment").expect("a segment");
            reader.select_sources(&BTreeSet::from([name.clone()]));
            while let Some(Advance::Frame(at)) = reader.advance().expect("intact") {
                if at.kind == FrameKind::Telemetry
                    && let Some(sample) = reader.sample(at)
                    && sample.source == self.source
                {
                    sum = sum.wrapping_add(self.value(sample.payload));
                }
            }
        }
        sum
    }

    fn by_query(&self) -> u64 {
        let name = &self.recording.sources[usize::from(self.source)].name;
        let recording =
            flatcap_query::Recording::open(&[self.packed.path().to_owned()]).expect("a directory");
        let field = format!("{name}.{}", self.field).parse().expect("a path");
        let query = Query { fields: vec![field], ..Query::default() };
        let mut results = recording.query(&query).expect("a field");
        let mut sum = 0_u64;
        while let Some(item) = results.next().expect("intact") {
            let QueryItem::Batch(batch) = item else { continue };
            let values = &batch.columns.first().expect("a column").values;
            sum = match values {
                ColumnValues::Unsigned(values) => {
                    values.iter().fold(sum, |sum, value| sum.wrapping_add(*value))
                }
                ColumnValues::Float(values) => {
                    values.iter().fold(sum, |sum, value| sum.wrapping_add(value.to_bits()))
                }
                other => panic!("a number: {other:?}"),
            };
        }
        sum
    }

    fn fields(&self) {
        let (mut decoder, mut frames) = (BlockDecoder::default(), Vec::new());
        let sum = self.everything(&mut decoder, &mut frames);
        assert!(self.by_query() == sum && self.by_reader() == sum, "the same values");
        let (mut everything, mut reader, mut query) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            everything.push(seconds(|| self.everything(&mut decoder, &mut frames)));
            reader.push(seconds(|| self.by_reader()));
            query.push(seconds(|| self.by_query()));
        }
        for (name, times) in
            [("everything", &everything), ("reader of one source", &reader), ("query", &query)]
        {
            let ratio = Quartiles::of_ratios(&everything, times);
            println!(
                "| {}, {} | {name} | {:.2} ms | {:.1} ({:.1} to {:.1}) | {} |",
                self.title,
                self.field,
                Quartiles::of(times.iter().copied()).median * 1e3,
                ratio.median,
                ratio.low,
                ratio.high,
                if name == "query" { ">= 20" } else { "-" }
            );
        }
    }

    fn seeks(&self) {
        let times: Vec<i64> = self.recording.messages().map(|(_, time, _)| time as i64).collect();
        let shift = self.recording.payloads().next().and_then(envelope::split).expect("a sample").0;
        let to_wall = shift.wall_ns() - shift.mono_ns() as i64;
        let mut random = Random(5);
        let (mut raw, mut packed) = (Vec::new(), Vec::new());
        for _ in 0..SEEKS {
            let wall_ns = to_wall + times[random.below(times.len() as u64) as usize];
            for (folder, times) in [(&self.raw, &mut raw), (&self.packed, &mut packed)] {
                let cpu_ns = thread_cpu_ns();
                let clock = seconds(|| seek(folder.path(), wall_ns));
                times.push((clock, (thread_cpu_ns() - cpu_ns) as f64 / 1e9));
            }
        }
        let of = |times: &[(f64, f64)]| {
            let clock = Quartiles::of(times.iter().map(|(clock, _)| *clock)).median * 1e3;
            let cpu = Quartiles::of(times.iter().map(|(_, cpu)| *cpu)).median * 1e3;
            let longest = times.iter().map(|(_, cpu)| *cpu).fold(0.0, f64::max) * 1e3;
            format!("{clock:.2} ms | {cpu:.2} ms, longest {longest:.2}")
        };
        println!("| {} | {} | {} | <= 2 ms |", self.title, of(&raw), of(&packed));
    }
}

fn open(folder: &Path) -> Arc<dyn Storage> {
    Arc::new(DataDirectory::open(folder).expect("just made"))
}

fn seconds(work: impl FnOnce() -> u64) -> f64 {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed().as_secs_f64()
}

/// Returns the time of the first sample at or after `wall_ns`.
fn seek(folder: &Path, wall_ns: i64) -> u64 {
    let filter = ReplayFilter {
        since_ns: Some(wall_ns),
        until_ns: Some(wall_ns + 2_000_000),
        ..ReplayFilter::default()
    };
    let mut reader = MergedReader::open(&[folder.to_owned()], filter).expect("a directory");
    loop {
        if let ReplayItem::Sample(sample) = reader.next().expect("readable").expect("a sample at that time") {
            return sample.telemetry.mono_ns;
        }
    }
}

fn main() {
    let live = Recording::live(&SOURCES, 2_000_000, 10_000);
    let rig = rig::recording(60_000, [Kind::Adc, Kind::Decimal, Kind::Single, Kind::Walk]);
    let subjects = [
        Subject::new("live, six sources", live, 2, "counters.pgfault"),
        Subject::new("rig, 64 floats", rig, 0, "c20"),
    ];
    println!("| data, field | method | time | speed / everything | target |\n|---|---|---|---|---|");
    subjects.iter().for_each(Subject::fields);
    println!(
        "\n| seek to a time, warm | raw: wall time | CPU time | compressed: wall time | CPU time | target |\n|---|---|---|---|---|---|"
    );
    subjects.iter().for_each(Subject::seeks);
}
