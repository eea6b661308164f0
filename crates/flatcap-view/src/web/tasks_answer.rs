//! Encodes the data of the CPU timeline as a JSON header, followed by columns of numbers.

use std::collections::HashMap;

use flatcap_format::schema::text_of;
use flatcap_tasks::{IntervalEnd, ThreadInfo};
use serde::Serialize;

use crate::tracks::{Stretch, StretchKind, TrackCell, TrackSlice, WaitCell};

/// Maximum number of cells in an answer. A cell has 18 bytes.
// An answer with this many cells, all threads and all other parts stays below 1 MiB, whatever the
// names contain.
pub(super) const CELLS_MAX: usize = 28_672;
/// Maximum number of slices in an answer. A slice has 40 bytes.
pub(super) const SLICES_MAX: usize = 8192;
/// Maximum number of threads that an answer names.
// A name takes at most 120 bytes, with escapes.
pub(super) const THREADS_MAX: usize = 3072;
/// Index that means no thread.
const NO_THREAD: u16 = u16::MAX;
/// Index that stands for every thread that did not fit into the table.
const UNNAMED_THREAD: u16 = u16::MAX - 1;
/// The encoded share that means 100 % of a pixel.
const WHOLE: u64 = u16::MAX as u64;
/// Size in bytes of the length field, which precedes the header. The field contains the header's
/// length.
const LENGTH_BYTES: usize = 4;
/// Columns are padded to multiples of this number of bytes.
// The page reads the columns as arrays of numbers, which must be aligned.
const COLUMN_ALIGNMENT: usize = 8;

/// The data of the CPU timeline. The encoding starts with the length of the header (4 bytes) and
/// the header, padded with spaces. The columns follow. The numbers in all columns are
/// little-endian, and each column is padded to a multiple of eight bytes.
///
/// The first columns have one number (f64) per pixel: the average number of waiting threads, and
/// the longest wait in nanoseconds. The columns of each track follow. A track of slices has these
/// columns: begin and end (i64), ready and sleep time before the slice (f64), thread, waker and
/// reason of the end (u16). Ready and sleep time are in nanoseconds, and NaN if not known. A track
/// of pixels has these columns (u16): the thread that ran longest, the number of threads, and five
/// shares of the pixel. The five shares are: all threads, the longest-running thread, the process
/// of this thread, the time with known activity, and the chosen process. The value 65,535 means 100
/// % of the pixel. The last column is the number of switches (u32).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TasksAnswer {
    pub(super) pixel_ns: i64,
    /// Start of the first pixel, in wall nanoseconds.
    pub(super) first_ns: i64,
    /// Whether all data was read. If false, the client repeats the request, and the server
    /// continues to read.
    pub(super) is_complete: bool,
    /// Whether wakeups were recorded.
    pub(super) has_wakeups: bool,
    /// Number of CPUs that were left out.
    pub(super) left_out: usize,
    /// Number of damaged ranges, invalid payloads and unreadable segments.
    pub(super) unreadable: u64,
    pub(super) stretches: Vec<Stretch>,
    pub(super) waiting: Vec<WaitCell>,
    pub(super) tracks: TracksAnswer,
}

/// The activity of each CPU.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TracksAnswer {
    Slices(Vec<(u16, Vec<TrackSlice>)>),
    /// One cell per pixel for each CPU, starting at the first pixel.
    Pixels(Vec<(u16, Vec<TrackCell>)>),
}

#[derive(Serialize)]
struct TasksHeader {
    /// Length of a pixel in nanoseconds, and start of the first pixel in wall nanoseconds.
    // These are strings, because a JavaScript number has only 53 bits of integer precision.
    pixel_ns: String,
    first_ns: String,
    pixels: usize,
    is_complete: bool,
    is_exact: bool,
    has_wakeups: bool,
    left_out: usize,
    unreadable: u64,
    /// A thread: thread id, process id, and name.
    threads: Vec<(u32, u32, String)>,
    /// A time range whose activity is not completely known: begin, end, kind, and number of dropped
    /// events.
    stretches: Vec<(String, String, &'static str, u64)>,
    tracks: Vec<TrackRows>,
}

#[derive(Serialize)]
struct TrackRows {
    cpu: u16,
    rows: usize,
}

/// The threads that an answer names.
#[derive(Default)]
struct AnsweredThreads {
    threads: Vec<ThreadInfo>,
    indexes: HashMap<ThreadInfo, u16>,
}

impl AnsweredThreads {
    fn index(&mut self, thread: Option<ThreadInfo>) -> u16 {
        let Some(thread) = thread else { return NO_THREAD };
        if let Some(index) = self.indexes.get(&thread) {
            return *index;
        }
        let index = u16::try_from(self.threads.len()).ok().filter(|index| usize::from(*index) < THREADS_MAX);
        let Some(index) = index else { return UNNAMED_THREAD };
        self.threads.push(thread);
        self.indexes.insert(thread, index);
        index
    }
}

impl TasksAnswer {
    pub(super) fn encode(&self) -> Vec<u8> {
        // The columns are encoded before the header, because they determine which threads the
        // header names.
        let mut table = AnsweredThreads::default();
        let mut columns = Vec::new();
        self.encode_waiting(&mut columns);
        let tracks = match &self.tracks {
            TracksAnswer::Slices(tracks) => {
                let encoded = tracks.iter().map(|(cpu, slices)| {
                    encode_slices(&mut columns, &mut table, slices);
                    TrackRows { cpu: *cpu, rows: slices.len() }
                });
                encoded.collect()
            }
            TracksAnswer::Pixels(tracks) => {
                let encoded = tracks.iter().map(|(cpu, cells)| {
                    self.encode_cells(&mut columns, &mut table, cells);
                    TrackRows { cpu: *cpu, rows: cells.len() }
                });
                encoded.collect()
            }
        };
        let thread =
            |info: &ThreadInfo| (info.thread, info.process, text_of(info.name.as_bytes()).into_owned());
        let header = TasksHeader {
            pixel_ns: self.pixel_ns.to_string(),
            first_ns: self.first_ns.to_string(),
            pixels: self.waiting.len(),
            is_complete: self.is_complete,
            is_exact: matches!(self.tracks, TracksAnswer::Slices(_)),
            has_wakeups: self.has_wakeups,
            left_out: self.left_out,
            unreadable: self.unreadable,
            threads: table.threads.iter().map(thread).collect(),
            stretches: self.stretches.iter().map(stretch_row).collect(),
            tracks,
        };
        // Serialization cannot fail, because the header has only numbers and strings.
        let mut header = serde_json::to_string(&header).unwrap_or_default();
        while !(header.len() + LENGTH_BYTES).is_multiple_of(COLUMN_ALIGNMENT) {
            header.push(' ');
        }
        let mut bytes = u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.append(&mut columns);
        bytes
    }

    fn encode_waiting(&self, bytes: &mut Vec<u8>) {
        let pixel_ns = number(self.pixel_ns.unsigned_abs());
        column(bytes, self.waiting.iter().map(|cell| (number(cell.waited_ns) / pixel_ns).to_le_bytes()));
        column(bytes, self.waiting.iter().map(|cell| number(cell.longest_ns).to_le_bytes()));
    }

    fn encode_cells(&self, bytes: &mut Vec<u8>, table: &mut AnsweredThreads, cells: &[TrackCell]) {
        let cells = || cells.iter();
        let top = |cell: &TrackCell| cell.top.map(|(thread, _)| thread);
        column(bytes, cells().map(|cell| table.index(top(cell)).to_le_bytes()));
        column(bytes, cells().map(|cell| u16::try_from(cell.threads).unwrap_or(u16::MAX).to_le_bytes()));
        let lengths: [fn(&TrackCell) -> u64; 5] = [
            |cell| cell.busy_ns,
            |cell| cell.top.map_or(0, |(_, top_ns)| top_ns),
            |cell| cell.top_process_ns,
            |cell| cell.known_ns,
            |cell| cell.own_ns,
        ];
        for length_ns in lengths {
            column(bytes, cells().map(|cell| self.share(length_ns(cell)).to_le_bytes()));
        }
        column(bytes, cells().map(|cell| cell.switches.to_le_bytes()));
    }

    /// Returns a time as a share of the pixel. A time longer than 0 never becomes the share 0.
    fn share(&self, length_ns: u64) -> u16 {
        // For pixels that are longer than 3 days, the product exceeds 64 bits.
        let of = u128::from(self.pixel_ns.unsigned_abs().max(1));
        // The share is rounded up, so that a short time is still visible.
        let share = (u128::from(length_ns) * u128::from(WHOLE)).div_ceil(of).min(u128::from(WHOLE));
        u16::try_from(share).unwrap_or(u16::MAX)
    }
}

fn encode_slices(bytes: &mut Vec<u8>, table: &mut AnsweredThreads, slices: &[TrackSlice]) {
    let slices = || slices.iter();
    let length = |length_ns: Option<u64>| length_ns.map_or(f64::NAN, number);
    column(bytes, slices().map(|slice| slice.begin_ns.to_le_bytes()));
    column(bytes, slices().map(|slice| slice.end_ns.to_le_bytes()));
    column(bytes, slices().map(|slice| length(slice.waited.ready_ns).to_le_bytes()));
    column(bytes, slices().map(|slice| length(slice.waited.slept_ns).to_le_bytes()));
    column(bytes, slices().map(|slice| table.index(Some(slice.thread)).to_le_bytes()));
    column(bytes, slices().map(|slice| table.index(slice.waited.waker).to_le_bytes()));
    column(bytes, slices().map(|slice| end_code(slice.end).to_le_bytes()));
}

/// Returns the code that the answer uses for the reason why a slice ended.
fn end_code(end: IntervalEnd) -> u16 {
    match end {
        IntervalEnd::Preempted => 0,
        IntervalEnd::Slept => 1,
        IntervalEnd::Exited => 2,
        // A slice cannot end in any other way.
        IntervalEnd::Open => 4,
        _ => 3,
    }
}

fn stretch_row(stretch: &Stretch) -> (String, String, &'static str, u64) {
    let kind = match stretch.kind {
        StretchKind::NotRecorded => "gap",
        StretchKind::Lost => "lost",
        StretchKind::Stopped => "stopped",
    };
    (stretch.begin_ns.to_string(), stretch.end_ns.to_string(), kind, stretch.lost)
}

#[allow(clippy::cast_precision_loss, reason = "53 bits are 104 days in nanoseconds")]
fn number(length_ns: u64) -> f64 {
    length_ns as f64
}

fn column<const N: usize>(bytes: &mut Vec<u8>, numbers: impl Iterator<Item = [u8; N]>) {
    numbers.for_each(|number| bytes.extend(number));
    bytes.resize(bytes.len().next_multiple_of(COLUMN_ALIGNMENT), 0);
}
