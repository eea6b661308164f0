//! Measures reading imported LOBSTER files completely, each file alone and both as pairs. No
//! budget: the rows are compared with each other.
//!
//! Files are imported, and their payloads also framed as plain streams in memory, with XXH3-64 and
//! without a checksum. Then every field of every payload is summed: through a copy of each payload
//! and in place; with and without verification, and through a template's view, which compares the
//! shape and reads the values in place; from the segments by the reader of `replay`, which merges
//! and copies, and by the segment reader. As pairs, row k of both files is read in turn and their
//! times are compared. All sums must be equal. Rates are of messages or books and of their
//! payloads' bytes, with both of a pair counted; those of the import are of rows and text.
//!
//! All rows of a column take turns of at least 50 ms, round by round; the table shows medians. A
//! pass over segments includes opening them, and one over streams starts at the beginning: the
//! published sample has 999 rows. Import is from tmpfs to tmpfs, segments sealed, by the thread's
//! CPU time. The sample is read from ../shared/data or FLATCAP_SHARED_DATA, if present.
//!
//! `cargo bench --bench lobster`

use std::collections::BTreeSet;
use std::fs::File;
use std::hint::black_box;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flatcap_format::frame::{FrameTemplate, TemplateField, TemplateList};
use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
use flatcap_format::segment::{Advance, FrameKind, SegmentReader, list};
use flatcap_import::{ImportJob, ImportLimits, ImportProgress, lobster};
use flatcap_os::storage::DataDirectory;
use flatcap_rivals::rounds::{Quartiles, Runner, Work, rounds};
use flatcap_schemas::market::lobster as wire;
use flatcap_stream::{
    ChecksumDeframer, ChecksumFramer, DefaultDeframer, DefaultFramer, Deframer, Framer, SliceDeframer,
    SliceReader, StreamReader, StreamWriter, XxHash64,
};

#[path = "../../../tests/generators/lobster.rs"]
mod generator;

const ROWS: u64 = 1_000_000;
const ROUNDS: usize = 15;
const TURN: Duration = Duration::from_millis(50);
const IMPORTS: usize = 5;
const SCHEMA: &[u8] = include_bytes!("../../../generated/market/lobster.bfbs");

/// The files that are read.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Which {
    Messages,
    Books,
    Pairs,
}

impl Which {
    fn has(self, is_book: bool) -> bool {
        self == Self::Pairs || (self == Self::Books) == is_book
    }
}

/// Access to the values of a payload: the bits of its time, and the sum of all others.
trait Fields {
    fn message(&self, payload: &[u8]) -> (u64, i64);
    fn book(&self, payload: &[u8]) -> (u64, i64);
}

fn of_message(message: wire::Message<'_>) -> (u64, i64) {
    let small = i64::from(message.type_().0) + i64::from(message.direction());
    let large = message.order_id().wrapping_add(message.size()).wrapping_add(message.price());
    (message.time().to_bits(), large.wrapping_add(small))
}

fn of_book(book: wire::OrderBook<'_>) -> (u64, i64) {
    let sum = book.levels().iter().fold(0_i64, |sum, level| {
        let ask = level.ask_price().wrapping_add(level.ask_size());
        sum.wrapping_add(ask).wrapping_add(level.bid_price()).wrapping_add(level.bid_size())
    });
    (book.time().to_bits(), sum)
}

struct Verified;

impl Fields for Verified {
    fn message(&self, payload: &[u8]) -> (u64, i64) {
        of_message(flatbuffers::root::<wire::Message<'_>>(payload).expect("verified"))
    }

    fn book(&self, payload: &[u8]) -> (u64, i64) {
        of_book(flatbuffers::root::<wire::OrderBook<'_>>(payload).expect("verified"))
    }
}

struct Unverified;

impl Fields for Unverified {
    fn message(&self, payload: &[u8]) -> (u64, i64) {
        // SAFETY: payloads of our own import; `Verified` has read all of them before any
        // measurement.
        of_message(unsafe { flatbuffers::root_unchecked::<wire::Message<'_>>(payload) })
    }

    fn book(&self, payload: &[u8]) -> (u64, i64) {
        // SAFETY: as above.
        of_book(unsafe { flatbuffers::root_unchecked::<wire::OrderBook<'_>>(payload) })
    }
}

/// Templates of the first payloads.
struct Viewed {
    message: FrameTemplate,
    time: TemplateField<f64>,
    kind: TemplateField<u8>,
    numbers: [TemplateField<i64>; 3],
    direction: TemplateField<i8>,
    book: FrameTemplate,
    book_time: TemplateField<f64>,
    levels: TemplateList,
}

impl Viewed {
    fn new(message: &[u8], book: &[u8]) -> Self {
        let paths = ["time", "type", "order_id", "size", "price", "direction"];
        let message = FrameTemplate::with_root(message, (SCHEMA, "flatcap.market.lobster.Message"), &paths);
        let book = FrameTemplate::with_root(
            book,
            (SCHEMA, "flatcap.market.lobster.OrderBook"),
            &["time", "levels[]"],
        );
        let (message, book) = (message.expect("its schema"), book.expect("its schema"));
        Self {
            time: message.field("time").expect("a path"),
            kind: message.field("type").expect("a path"),
            numbers: ["order_id", "size", "price"].map(|path| message.field(path).expect("a path")),
            direction: message.field("direction").expect("a path"),
            book_time: book.field("time").expect("a path"),
            levels: book.list("levels[]").expect("a path"),
            message,
            book,
        }
    }
}

impl Fields for &Viewed {
    fn message(&self, payload: &[u8]) -> (u64, i64) {
        let view = self.message.view(payload).expect("its shape");
        let small = i64::from(view.get(self.kind)) + i64::from(view.get(self.direction));
        let sum = self.numbers.iter().fold(small, |sum, slot| sum.wrapping_add(view.get(*slot)));
        (view.get(self.time).to_bits(), sum)
    }

    fn book(&self, payload: &[u8]) -> (u64, i64) {
        let view = self.book.view(payload).expect("its shape");
        let numbers = view.elements(&self.levels).as_chunks().0.iter();
        let sum = numbers.fold(0_i64, |sum, bytes| sum.wrapping_add(i64::from_le_bytes(*bytes)));
        (view.get(self.book_time).to_bits(), sum)
    }
}

/// The payloads of a stream, one by one.
trait Payloads {
    fn next(&mut self) -> Option<&[u8]>;
}

impl<D: Deframer> Payloads for StreamReader<&[u8], D> {
    fn next(&mut self) -> Option<&[u8]> {
        self.read_message().expect("intact")
    }
}

impl<D: SliceDeframer> Payloads for SliceReader<'_, D> {
    fn next(&mut self) -> Option<&[u8]> {
        Iterator::next(self).map(|payload| payload.expect("intact"))
    }
}

/// The sum over all payloads.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, (time, others): (u64, i64)) {
        self.0 = self.0.wrapping_add(time).wrapping_add(others.cast_unsigned());
    }
}

fn sum_streams<P: Payloads>([mut messages, mut books]: [P; 2], which: Which, fields: &impl Fields) -> u64 {
    let mut sum = Sum::default();
    match which {
        Which::Messages => {
            while let Some(payload) = messages.next() {
                sum.add(fields.message(payload));
            }
        }
        Which::Books => {
            while let Some(payload) = books.next() {
                sum.add(fields.book(payload));
            }
        }
        Which::Pairs => {
            while let (Some(message), Some(book)) = (messages.next(), books.next()) {
                let (message, book) = (fields.message(message), fields.book(book));
                assert!(message.0 == book.0, "row k of both has one time");
                sum.add(message);
                sum.add(book);
            }
        }
    }
    sum.0
}

/// Adds a payload of a segment; source 0 is the messages.
fn add_sample(
    sum: &mut Sum,
    last: &mut u64,
    (source, payload): (u16, &[u8]),
    which: Which,
    fields: &impl Fields,
) {
    if !which.has(source == 1) {
        return;
    }
    if source == 0 {
        let message = fields.message(payload);
        *last = message.0;
        sum.add(message);
    } else {
        let book = fields.book(payload);
        assert!(which != Which::Pairs || *last == book.0, "row k of both has one time");
        sum.add(book);
    }
}

fn sum_replayed(directory: &Path, names: &[String; 2], which: Which, fields: &impl Fields) -> u64 {
    let sources: BTreeSet<String> = match which {
        Which::Pairs => BTreeSet::new(),
        Which::Messages => [names[0].clone()].into(),
        Which::Books => [names[1].clone()].into(),
    };
    let filter = ReplayFilter { sources, ..ReplayFilter::default() };
    let mut reader = MergedReader::open(&[directory.to_owned()], filter).expect("segments");
    let (mut sum, mut last) = (Sum::default(), 0);
    while let Some(item) = reader.next().expect("intact") {
        if let ReplayItem::Sample(sample) = item {
            let sample = (sample.telemetry.source, sample.telemetry.payload);
            add_sample(&mut sum, &mut last, sample, which, fields);
        }
    }
    sum.0
}

fn sum_segments(directory: &Path, which: Which, fields: &impl Fields) -> u64 {
    let (mut sum, mut last) = (Sum::default(), 0);
    for listing in list(&[directory.to_owned()]).expect("a directory") {
        let mut reader: SegmentReader = listing.open().expect("a segment").expect("a segment");
        reader.map().expect("a file");
        while let Some(Advance::Frame(at)) = reader.advance().expect("intact") {
            if at.kind == FrameKind::Telemetry
                && let Some(sample) = reader.sample(at)
            {
                add_sample(&mut sum, &mut last, (sample.source, sample.payload), which, fields);
            }
        }
    }
    sum.0
}

/// Plain streams of both sources, with XXH3-64 or without a checksum.
struct Streams {
    messages: Vec<u8>,
    books: Vec<u8>,
}

/// Files, and the segments and streams made from them.
struct Set {
    name: &'static str,
    files: [PathBuf; 2],
    rows: u64,
    segments: tempfile::TempDir,
    sources: [String; 2],
    plain: Streams,
    hashed: Streams,
    payload_bytes: [u64; 2],
    viewed: Viewed,
}

/// Imports files into a directory.
fn import(files: &[PathBuf], directory: &Path) -> u64 {
    let storage = DataDirectory::open(directory).expect("a directory");
    let mut watch = |_| true;
    let limits = ImportLimits { segment_bytes: 256 << 20, frame_max: 16 << 20 };
    let job = ImportJob { storage: &storage, limits, progress: ImportProgress::new(&mut watch) };
    let report = lobster::import(files, &lobster::LobsterOptions::default(), job).expect("LOBSTER files");
    assert!(report.is_complete());
    report.totals.sources.iter().map(|source| source.recorded).sum()
}

fn shm() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("tmpfs")
}

fn framed<F: Framer>(framer: impl Fn() -> F, payloads: &[Vec<u8>], bounds: &[Vec<usize>]) -> Streams {
    let frame = |source: usize| {
        let mut writer = StreamWriter::new(Vec::new(), framer());
        let mut start = 0;
        for end in &bounds[source] {
            writer.write_payload(&payloads[source][start..*end]).expect("a vector takes everything");
            start = *end;
        }
        writer.into_inner()
    };
    Streams { messages: frame(0), books: frame(1) }
}

impl Set {
    fn new(name: &'static str, files: [PathBuf; 2], symbol: &str) -> Self {
        let segments = shm();
        let rows = import(&files, segments.path()) / 2;
        let mut payloads = [Vec::new(), Vec::new()];
        let mut bounds = [Vec::new(), Vec::new()];
        let mut reader =
            MergedReader::open(&[segments.path().to_owned()], ReplayFilter::default()).expect("segments");
        while let Some(item) = reader.next().expect("intact") {
            if let ReplayItem::Sample(sample) = item {
                let source = usize::from(sample.telemetry.source);
                payloads[source].extend_from_slice(sample.telemetry.payload);
                bounds[source].push(payloads[source].len());
            }
        }
        assert!(bounds.iter().all(|bounds| bounds.len() as u64 == rows));
        Self {
            name,
            files,
            rows,
            segments,
            sources: ["message", "orderbook"].map(|kind| format!("{symbol}-{kind}")),
            plain: framed(|| DefaultFramer, &payloads, &bounds),
            hashed: framed(|| ChecksumFramer::new(XxHash64), &payloads, &bounds),
            payload_bytes: [payloads[0].len() as u64, payloads[1].len() as u64],
            viewed: Viewed::new(&payloads[0][..bounds[0][0]], &payloads[1][..bounds[1][0]]),
        }
    }

    /// Number and bytes of the items that one pass reads.
    fn amounts(&self, which: Which, bytes: [u64; 2]) -> (u64, u64) {
        let parts = [false, true].map(|is_book| u64::from(which.has(is_book)));
        (self.rows * (parts[0] + parts[1]), parts[0] * bytes[0] + parts[1] * bytes[1])
    }

    /// Names and functions of the rows, in the order of the table.
    fn ways(&self, which: Which) -> Vec<([&'static str; 3], Work<'_>)> {
        let mut ways = Vec::new();
        self.ways_by("verified", which, || Verified, &mut ways);
        self.ways_by("not verified", which, || Unverified, &mut ways);
        self.ways_by("template's view", which, || &self.viewed, &mut ways);
        ways
    }

    fn ways_by<'a, F: Fields + Send + 'a>(
        &'a self,
        read: &'static str,
        which: Which,
        fields: impl Fn() -> F,
        ways: &mut Vec<([&'static str; 3], Work<'a>)>,
    ) {
        let (plain, hashed) = (&self.plain, &self.hashed);
        let mut way = |name, checksum, work: Box<dyn Fn() -> u64 + Send + 'a>| {
            let work: Work<'a> = Box::new(move |calls| (0..calls).fold(0, |_, _| black_box(work())));
            ways.push(([name, checksum, read], work));
        };
        let by = fields();
        way(
            "stream, by copy",
            "none",
            Box::new(move || {
                let read = |bytes: &'a [u8]| StreamReader::new(black_box(bytes), DefaultDeframer::new());
                sum_streams([read(&plain.messages), read(&plain.books)], which, &by)
            }),
        );
        let by = fields();
        way(
            "stream, by copy",
            "XXH3-64",
            Box::new(move || {
                let read =
                    |bytes: &'a [u8]| StreamReader::new(black_box(bytes), ChecksumDeframer::new(XxHash64));
                sum_streams([read(&hashed.messages), read(&hashed.books)], which, &by)
            }),
        );
        let by = fields();
        way(
            "stream, by slice",
            "none",
            Box::new(move || {
                let read = |bytes: &'a [u8]| SliceReader::new(black_box(bytes), DefaultDeframer::new());
                sum_streams([read(&plain.messages), read(&plain.books)], which, &by)
            }),
        );
        let by = fields();
        way(
            "stream, by slice",
            "XXH3-64",
            Box::new(move || {
                let read =
                    |bytes: &'a [u8]| SliceReader::new(black_box(bytes), ChecksumDeframer::new(XxHash64));
                sum_streams([read(&hashed.messages), read(&hashed.books)], which, &by)
            }),
        );
        let by = fields();
        way(
            "segments, `replay`'s reader",
            "XXH3-64",
            Box::new(move || sum_replayed(self.segments.path(), &self.sources, which, &by)),
        );
        let by = fields();
        way(
            "segments, segment reader",
            "XXH3-64",
            Box::new(move || sum_segments(self.segments.path(), which, &by)),
        );
    }

    /// The cells of a column: one per row, then that of the import.
    fn column(&self, which: Which) -> Vec<([&'static str; 3], String)> {
        let mut ways = self.ways(which);
        // `Verified` comes first, so everything read without verification has been verified.
        let sums: Vec<u64> = ways.iter_mut().map(|(_, work)| work(1)).collect();
        assert!(sums.iter().all(|sum| *sum == sums[0]), "sums differ: {sums:?}");
        let names: Vec<_> = ways.iter().map(|(name, _)| *name).collect();
        let mut runners: Vec<Runner<'_>> = Vec::new();
        for (_, work) in ways {
            let mut work = Some(work);
            runners.push(Runner::new(1, TURN, || work.take().expect("one thread")));
        }
        let (count, bytes) = self.amounts(which, self.payload_bytes);
        let medians = rounds(&mut runners, ROUNDS).into_iter().map(|seconds| Quartiles::of(seconds).median);
        let mut cells: Vec<_> =
            names.into_iter().zip(medians.map(|seconds| cell(count, bytes, seconds))).collect();
        cells.push((["import, CSV to segments", "XXH3-64", "-"], self.import(which)));
        cells
    }

    fn import(&self, which: Which) -> String {
        let wanted = [false, true].map(|is_book| which.has(is_book));
        let files: Vec<PathBuf> = self
            .files
            .iter()
            .zip(wanted)
            .filter(|(_, wanted)| *wanted)
            .map(|(file, _)| file.clone())
            .collect();
        let lengths = [0, 1].map(|file| std::fs::metadata(&self.files[file]).expect("a file").len());
        let (count, bytes) = self.amounts(which, lengths);
        let seconds = (0..IMPORTS).map(|_| {
            let directory = shm();
            let start = processor_seconds();
            assert_eq!(import(&files, directory.path()), count);
            processor_seconds() - start
        });
        cell(count, bytes, Quartiles::of(seconds).median)
    }
}

fn cell(count: u64, bytes: u64, seconds: f64) -> String {
    format!("{:.2} M/s, {:.2} GB/s", count as f64 / seconds / 1e6, bytes as f64 / seconds / 1e9)
}

/// CPU time of this thread so far.
fn processor_seconds() -> f64 {
    let taken = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    taken.tv_sec as f64 + taken.tv_nsec as f64 / 1e9
}

/// The published sample, if present.
fn sample() -> Option<[PathBuf; 2]> {
    let folder = std::env::var_os("FLATCAP_SHARED_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let files = ["message", "orderbook"]
        .map(|kind| folder.join(format!("lobster/AAPL_2012-06-21_34200000_57600000_{kind}_10.csv")));
    files.iter().all(|file| file.exists()).then_some(files)
}

fn main() {
    let made_up = shm();
    let files = ["message", "orderbook"]
        .map(|kind| made_up.path().join(format!("ABC_2012-06-21_34200000_57600000_{kind}_10.csv")));
    let create = |path: &PathBuf| BufWriter::new(File::create(path).expect("tmpfs"));
    let day = generator::Day { rows: ROWS, levels: 10, seed: 1 };
    day.write(&mut create(&files[0]), &mut create(&files[1])).expect("space on tmpfs");
    let mut sets = Vec::new();
    match sample() {
        Some(files) => sets.push(Set::new("sample", files, "AAPL")),
        None => println!("skipped: no LOBSTER files in ../shared/data or FLATCAP_SHARED_DATA"),
    }
    sets.push(Set::new("generated", files, "ABC"));

    let columns: Vec<(String, Vec<_>)> = sets
        .iter()
        .flat_map(|set| {
            [Which::Messages, Which::Books, Which::Pairs].map(|which| {
                let things = format!("{which:?}").to_lowercase();
                (format!("{}, {} rows: {things}", set.name, set.rows), set.column(which))
            })
        })
        .collect();
    let heads: Vec<&str> = columns.iter().map(|(head, _)| head.as_str()).collect();
    println!("| method | checksum | fields | {} |", heads.join(" | "));
    println!("|---|---|---|{}", "---|".repeat(heads.len()));
    for (row, (names, _)) in columns[0].1.iter().enumerate() {
        let cells: Vec<&str> = columns.iter().map(|(_, cells)| cells[row].1.as_str()).collect();
        println!("| {} | {} |", names.join(" | "), cells.join(" | "));
    }
}
