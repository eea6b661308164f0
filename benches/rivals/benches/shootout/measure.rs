//! Measures each row: all rows in turns, messages in groups as small as the clock allows, and all
//! messages together.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Format;
use super::messages::Message;
use super::sink::{Copies, Sum, Tally, of_messages};

/// Messages timed together. One takes a few nanoseconds, but reading the clock some 20, and it
/// waits for instructions in flight, so single messages cannot be timed. Quantiles are of groups:
/// an interruption of a group for a microsecond appears as 16 ns per message.
pub const GROUP: usize = 64;

/// Turns of each row. Medians are over rounds.
pub const ROUNDS: usize = 21;

/// Enough for any message of any format with its framing.
const MESSAGE_BYTES_MAX: usize = 160;

/// The measurements of one row.
pub struct Row {
    pub name: &'static str,
    pub format: Box<dyn AnyFormat>,
    /// In bytes.
    pub length: usize,
    pub write: Times,
    /// Reading with the aggregation.
    pub read: Times,
    /// Reading with the sum of all fields.
    pub sum: Times,
}

/// Nanoseconds per message.
pub struct Times {
    /// Picoseconds per message, of groups, over all rounds.
    groups: Histogram<u64>,
    /// All messages of a round.
    totals: Vec<f64>,
}

impl Times {
    fn new() -> Self {
        Self { groups: Histogram::new(3).unwrap(), totals: Vec::new() }
    }

    /// Returns a quantile of the groups.
    pub fn at(&self, quantile: f64) -> f64 {
        self.groups.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// Returns the median of the rounds.
    pub fn total(&self) -> f64 {
        let mut totals = self.totals.clone();
        totals.sort_by(f64::total_cmp);
        totals[totals.len() / 2]
    }

    fn add_group(&mut self, took: Duration, clock: Duration, messages: usize) {
        let took = took.saturating_sub(clock).as_nanos() as u64;
        self.groups.record(took * 1000 / messages as u64).unwrap();
    }

    fn add_total(&mut self, took: Duration, messages: usize) {
        self.totals.push(took.as_nanos() as f64 / messages as f64);
    }
}

/// A format as a trait object.
pub trait AnyFormat {
    fn write(&mut self, messages: &[Message], room: &mut [u8]) -> usize;
    fn tally(&mut self, stream: &[u8], count: usize, tally: &mut Tally) -> usize;
    fn sum(&mut self, stream: &[u8], count: usize, sum: &mut Sum) -> usize;
    fn copies(&mut self, stream: &[u8], count: usize, copies: &mut Copies) -> usize;
}

impl<F: Format> AnyFormat for F {
    fn write(&mut self, messages: &[Message], room: &mut [u8]) -> usize {
        Format::write(self, messages, room)
    }

    fn tally(&mut self, stream: &[u8], count: usize, tally: &mut Tally) -> usize {
        self.read(stream, count, tally)
    }

    fn sum(&mut self, stream: &[u8], count: usize, sum: &mut Sum) -> usize {
        self.read(stream, count, sum)
    }

    fn copies(&mut self, stream: &[u8], count: usize, copies: &mut Copies) -> usize {
        self.read(stream, count, copies)
    }
}

impl Row {
    pub fn new(name: &'static str, format: impl Format + 'static) -> Self {
        let (write, read, sum) = (Times::new(), Times::new(), Times::new());
        Self { name, format: Box::new(format), length: 0, write, read, sum }
    }
}

/// Data shared by all rows.
struct Course<'m> {
    messages: &'m [Message],
    /// The expected result of each row.
    tally: Tally,
    sum: Sum,
    /// The cost of reading the clock, included in each group.
    clock: Duration,
}

/// Runs all rows in turns. Each round begins with another row and reverses the order, so that no
/// row always finds the caches of the same predecessor.
pub fn measure(messages: &[Message], rows: &mut [Row], rounds: usize) {
    let course = Course {
        messages,
        tally: of_messages(messages, Tally::default()),
        sum: of_messages(messages, Sum::default()),
        clock: clock_cost(),
    };
    let mut bytes = vec![1; messages.len() * MESSAGE_BYTES_MAX + 8];
    let aligned = bytes.as_ptr().align_offset(8);
    let room = &mut bytes[aligned..];
    let mut tally = course.tally.clone();
    for row in rows.iter_mut() {
        course.check(row, room);
    }
    let count = rows.len();
    for round in 0..rounds {
        for step in 0..count {
            let index = (round + step) % count;
            let index = if round % 2 == 0 { index } else { count - 1 - index };
            course.write(&mut rows[index], room);
            course.read(&mut rows[index], room, &mut tally);
            course.sum(&mut rows[index], room);
        }
    }
}

impl Course<'_> {
    /// Checks that all messages written are read back.
    fn check(&self, row: &mut Row, room: &mut [u8]) {
        row.length = row.format.write(self.messages, room);
        let mut copies = Copies::default();
        assert_eq!(row.format.copies(&room[..row.length], self.messages.len(), &mut copies), row.length);
        assert!(copies.0 == self.messages, "{}: the messages read differ from those written", row.name);
    }

    fn write(&self, row: &mut Row, room: &mut [u8]) {
        let start = processor_time();
        assert_eq!(row.format.write(black_box(self.messages), room), row.length);
        black_box(&mut *room);
        row.write.add_total(processor_time() - start, self.messages.len());

        let mut end = 0;
        let mut before = Instant::now();
        for group in self.messages.chunks(GROUP) {
            end += row.format.write(black_box(group), &mut room[end..]);
            let now = Instant::now();
            row.write.add_group(now - before, self.clock, group.len());
            before = now;
        }
        assert_eq!(end, row.length);
        black_box(room);
    }

    fn read(&self, row: &mut Row, room: &[u8], tally: &mut Tally) {
        let stream = &room[..row.length];
        tally.restart();
        let start = processor_time();
        assert_eq!(row.format.tally(black_box(stream), self.messages.len(), tally), row.length);
        row.read.add_total(processor_time() - start, self.messages.len());
        assert!(*tally == self.tally, "{}: the aggregation differs", row.name);

        tally.restart();
        self.in_groups(stream, &mut row.read, |rest, count| row.format.tally(rest, count, tally));
        assert!(*tally == self.tally, "{}: the aggregation differs", row.name);
    }

    fn sum(&self, row: &mut Row, room: &[u8]) {
        let stream = &room[..row.length];
        let mut sum = Sum::default();
        let start = processor_time();
        assert_eq!(row.format.sum(black_box(stream), self.messages.len(), &mut sum), row.length);
        row.sum.add_total(processor_time() - start, self.messages.len());
        assert_eq!(sum, self.sum, "{}: the sum differs", row.name);

        let mut sum = Sum::default();
        self.in_groups(stream, &mut row.sum, |rest, count| row.format.sum(rest, count, &mut sum));
        assert_eq!(sum, self.sum, "{}: the sum differs", row.name);
    }

    fn in_groups(&self, stream: &[u8], times: &mut Times, mut read: impl FnMut(&[u8], usize) -> usize) {
        let mut rest = stream;
        let mut before = Instant::now();
        for group in self.messages.chunks(GROUP) {
            rest = &rest[read(black_box(rest), group.len())..];
            let now = Instant::now();
            times.add_group(now - before, self.clock, group.len());
            before = now;
        }
        assert!(rest.is_empty());
    }
}

/// CPU time of this thread, used for totals: other load then affects them only through caches.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// The median time between two clock reads.
fn clock_cost() -> Duration {
    let mut times: Vec<Duration> = (0..10_001)
        .map(|_| {
            let before = Instant::now();
            Instant::now() - before
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}
