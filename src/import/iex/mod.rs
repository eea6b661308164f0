//! IEX DEEP 1.0 and TOPS 1.6 from captures.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod message;
mod order;
mod transport;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use self::message::{Found, Models, Place, SCHEMA};
use self::order::{Arrival, Order, Placement};
use self::transport::{Carried, Segment};
use super::capture::{Capture, Packet, datagram};
use super::{Course, ImportError, Input, Job, Recording, Report, Source};
use crate::schema::market::iex::Header;
use crate::schema::segment::GapCause;

/// Most channels of a feed in one import; segments of others are a flaw.
const CHANNELS_MAX: usize = 64;

/// In a report: what is of this transport, and not of the feed that is wanted.
const OTHER_FEEDS: &str = "segments of other feeds";

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    /// Depth of book and last sale: DEEP 1.0.
    Deep,
    /// Top of book and last sale: TOPS 1.6.
    Tops,
}

impl Feed {
    fn protocol(self) -> u16 {
        match self {
            Self::Deep => 0x8004,
            Self::Tops => 0x8003,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Deep => "iex-deep",
            Self::Tops => "iex-tops",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Deep => "DEEP 1.0",
            Self::Tops => "TOPS 1.6",
        }
    }
}

/// Imports the captures, one behind the other: a feed goes on from one to the next.
///
/// # Errors
/// Every kind of [`ImportError`]. What was recorded before is sealed.
pub fn import(files: &[PathBuf], feed: Feed, job: Job<'_, '_>) -> Result<Report, ImportError> {
    let Job { storage, plan, mut course } = job;
    let mut import = Import::begin(feed, Recording::begin(storage, plan)?, Rc::new(Models::new()));
    let result = files.iter().try_for_each(|file| {
        if import.report.stopped { Ok(()) } else { import.read(course.open(file)?, &mut course) }
    });
    let report = import.finish(result)?;
    let others = report.passed_over.get(OTHER_FEEDS).copied().unwrap_or(0);
    match files.first() {
        Some(path) if report.written.sources.is_empty() && others > 0 => {
            let what = format!(
                "no segment of {}, but {others} of other feeds: import it as what it is (iex-deep, iex-tops)",
                feed.label()
            );
            Err(ImportError::Kind { path: path.clone(), what })
        }
        _ => Ok(report),
    }
}

/// An import at work.
struct Import<'s> {
    feed: Feed,
    recording: Recording<'s>,
    models: Rc<Models>,
    channels: Vec<Channel>, // <= CHANNELS_MAX
    report: Report,
}

/// One channel of the feed: a source.
struct Channel {
    number: u32,
    source: u16,
    epoch: u32,
    order: Order<HeldSegment>,
}

/// A segment that waits for those in front of it.
struct HeldSegment {
    datagram: Box<[u8]>,
    origin: Origin,
}

/// Where a segment was.
#[derive(Clone)]
struct Origin {
    path: Rc<Path>,
    offset: u64,
}

impl<'s> Import<'s> {
    fn begin(feed: Feed, recording: Recording<'s>, models: Rc<Models>) -> Self {
        Self { feed, recording, models, channels: Vec::new(), report: Report::default() }
    }

    /// Seals what was recorded, whatever came in between.
    fn finish(mut self, result: Result<(), ImportError>) -> Result<Report, ImportError> {
        let result = result.and_then(|()| self.release_all());
        let written = self.recording.finish();
        result?;
        Ok(Report { written: written?, ..self.report })
    }

    fn read(&mut self, input: Input, course: &mut Course<'_>) -> Result<(), ImportError> {
        let mut capture = Capture::open(input)?;
        let path: Rc<Path> = capture.path().into();
        while let Some(packet) = capture.next(&mut self.report)? {
            if packet.is_behind_damage {
                self.channels.iter_mut().for_each(|channel| channel.order.damage());
            }
            self.packet(&packet, &path)?;
            if !course.goes_on(self.recording.frames()) {
                self.report.stopped = true;
                break;
            }
        }
        self.report.bytes += capture.bytes();
        Ok(())
    }

    #[inline]
    fn packet(&mut self, packet: &Packet<'_>, path: &Rc<Path>) -> Result<(), ImportError> {
        let datagram = match datagram(packet.link, packet.bytes) {
            Ok(datagram) => datagram,
            Err(why) => {
                self.report.pass_over(why);
                return Ok(());
            }
        };
        let segment = match Segment::parse(datagram.payload) {
            Carried::Segment(segment) => segment,
            Carried::Other => {
                self.report.pass_over("datagrams of other protocols");
                return Ok(());
            }
            Carried::Cut => {
                self.report.flaw(path, packet.offset, None, "a segment is cut within its header");
                return Ok(());
            }
        };
        if segment.protocol != self.feed.protocol() {
            self.report.pass_over(OTHER_FEEDS);
            return Ok(());
        }
        if segment.is_beyond_numbers() {
            let what = format!(
                "a segment of {} messages from number {} on, which no feed reaches: damage",
                segment.count, segment.first
            );
            self.report.flaw(path, packet.offset, Some(segment.count.into()), what);
            return Ok(());
        }
        let Some(at) = self.channel(segment.channel)? else {
            let what =
                format!("a segment of channel {}, and {CHANNELS_MAX} others came before", segment.channel);
            self.report.flaw(path, packet.offset, Some(segment.count.into()), what);
            return Ok(());
        };
        let Some(channel) = self.channels.get_mut(at) else { return Ok(()) };
        let mut work =
            Work { channel, recording: &mut self.recording, models: &self.models, report: &mut self.report };
        work.segment(&segment, packet, (path, datagram.payload))
    }

    /// The place of a channel in the list; a new one becomes a source. None: there are too many.
    #[inline]
    fn channel(&mut self, number: u32) -> Result<Option<usize>, ImportError> {
        let known = self.channels.iter().position(|channel| channel.number == number);
        if known.is_some() || self.channels.len() >= CHANNELS_MAX {
            return Ok(known);
        }
        let place = self.channels.len();
        let name = match place {
            0 => self.feed.name().to_owned(),
            _ => format!("{}.{}", self.feed.name(), place + 1),
        };
        let label = |key: &str, value: String| (key.to_owned(), value);
        let source = self.recording.add_source(Source {
            name,
            labels: vec![
                label("protocol", self.feed.label().to_owned()),
                label("channel", number.to_string()),
            ],
            root: SCHEMA.1.to_owned(),
            schema: SCHEMA.0.to_owned(),
        })?;
        self.channels.push(Channel { number, source, epoch: 0, order: Order::new() });
        Ok(Some(place))
    }

    /// At the end nothing more will fill a hole.
    fn release_all(&mut self) -> Result<(), ImportError> {
        for channel in &mut self.channels {
            let mut work = Work {
                channel,
                recording: &mut self.recording,
                models: &self.models,
                report: &mut self.report,
            };
            work.release_all()?;
        }
        Ok(())
    }
}

/// Work on one channel.
struct Work<'i, 's> {
    channel: &'i mut Channel,
    recording: &'i mut Recording<'s>,
    models: &'i Models,
    report: &'i mut Report,
}

impl Work<'_, '_> {
    #[inline]
    fn segment(
        &mut self,
        segment: &Segment<'_>,
        packet: &Packet<'_>,
        (path, datagram): (&Rc<Path>, &[u8]),
    ) -> Result<(), ImportError> {
        while self.channel.order.is_overdue(packet.wall_ns) {
            self.give_up()?;
        }
        let whole = segment.whole();
        let first_ns = segment.messages().next().and_then(message::time_ns);
        let arrival = Arrival {
            session: segment.session,
            first: segment.first,
            count: whole,
            // No message is newer than the segment it is sent in: one that claims so must not hide a restart.
            first_ns: first_ns.unwrap_or(segment.send_ns).min(segment.send_ns),
            send_ns: segment.send_ns,
            wall_ns: packet.wall_ns,
        };
        match self.channel.order.place(&arrival) {
            Placement::Next(before) => self.record(segment, &arrival, before, (path, packet.offset))?,
            placement => {
                let origin = Origin { path: Rc::clone(path), offset: packet.offset };
                self.place(segment, &arrival, placement, (origin, datagram))?;
            }
        }
        if whole < segment.count {
            self.cut(segment, &arrival, (path, packet.offset));
        }
        self.drain()
    }

    /// A segment that is not next.
    #[cold]
    fn place(
        &mut self,
        segment: &Segment<'_>,
        arrival: &Arrival,
        placement: Placement,
        (origin, datagram): (Origin, &[u8]),
    ) -> Result<(), ImportError> {
        match placement {
            Placement::Next(before) => {
                self.record(segment, arrival, before, (&origin.path, origin.offset))?;
            }
            Placement::Ahead => {
                let held = HeldSegment { datagram: datagram.into(), origin };
                self.channel.order.hold(*arrival, datagram.len(), held);
            }
            Placement::Anew => {
                self.release_all()?;
                self.channel.order.begin(arrival);
                self.channel.epoch += 1;
                self.report.pass_over("restarts of the feed's numbers");
                let placement = self.channel.order.place(arrival);
                debug_assert_ne!(placement, Placement::Anew, "an epoch begins once");
                if placement != Placement::Anew {
                    self.place(segment, arrival, placement, (origin, datagram))?;
                }
            }
            Placement::Heartbeat => self.report.pass_over("heartbeats"),
            Placement::Repeat => self.report.pass_over("repeated segments"),
            Placement::Late => self.report.pass_over("segments that came too late"),
            Placement::Over => self.report.pass_over("segments of an epoch that is over"),
            Placement::Before => {
                let what = format!(
                    "a segment of {} messages was captured before the epoch began that is recorded, and is of another: \
                     give captures in the order of their times, and merge those of two lines first (mergecap)",
                    arrival.count
                );
                self.report.flaw(&origin.path, origin.offset, Some(arrival.count.into()), what);
            }
        }
        Ok(())
    }

    /// A segment has fewer messages than it says: the rest may come on another line, and is missing otherwise.
    #[cold]
    fn cut(&mut self, segment: &Segment<'_>, arrival: &Arrival, (path, offset): (&Rc<Path>, u64)) {
        let missing = u64::from(segment.count - arrival.count);
        let what = format!(
            "a segment of {} messages from number {} on has {} whole ones",
            segment.count, segment.first, arrival.count
        );
        self.report.flaw(path, offset, Some(missing), what);
        let first = segment.first.saturating_add(arrival.count.into());
        let end = segment.first.saturating_add(segment.count.into());
        let behind = Arrival { first: end, count: 0, ..*arrival };
        if self.channel.order.place(&behind) == Placement::Ahead {
            self.channel.order.damage_of(first..end);
            let origin = Origin { path: Rc::clone(path), offset };
            self.channel.order.hold(behind, 0, HeldSegment { datagram: Box::default(), origin });
        }
    }

    /// Records what has become next, by what was recorded last.
    #[inline]
    fn drain(&mut self) -> Result<(), ImportError> {
        while let Some((arrival, held, before)) = self.channel.order.take() {
            let HeldSegment { datagram, origin } = held;
            if let Carried::Segment(segment) = Segment::parse(&datagram) {
                self.record(&segment, &arrival, before, (&origin.path, origin.offset))?;
            }
        }
        Ok(())
    }

    fn release_all(&mut self) -> Result<(), ImportError> {
        while self.give_up()? {}
        Ok(())
    }

    /// The first hole is a gap. Returns whether there was one.
    #[cold]
    fn give_up(&mut self) -> Result<bool, ImportError> {
        let Some(hole) = self.channel.order.give_up() else { return Ok(false) };
        if hole.count > 0 {
            let cause = if hole.is_damage { GapCause::Damaged } else { GapCause::NotReceived };
            self.recording.skip(self.channel.source, hole.count, cause);
        }
        self.drain()?;
        Ok(true)
    }

    /// Records the messages of a segment, but for those that were there before.
    #[inline]
    fn record(
        &mut self,
        segment: &Segment<'_>,
        arrival: &Arrival,
        before: u16,
        (path, offset): (&Rc<Path>, u64),
    ) -> Result<(), ImportError> {
        let mut header = Header::default();
        header.set_send_ns(segment.send_ns);
        header.set_session(segment.session);
        header.set_channel(segment.channel);
        header.set_epoch(self.channel.epoch);
        let mut place =
            Place { recording: self.recording, source: self.channel.source, wall_ns: arrival.wall_ns };
        // A message without a time has that of its segment, as it had when it was placed.
        let mut newest_ns = arrival.first_ns;
        for (number, message) in (segment.first..).zip(segment.messages()).skip(before.into()) {
            header.set_sequence(number);
            let found = self.models.append(&mut place, &mut header, message)?;
            newest_ns = newest_ns.max(header.timestamp_ns().min(segment.send_ns));
            if found != Found::Whole {
                tell(self.report, found, message, (path, offset));
            }
        }
        if before > 0 {
            self.report.pass_over("segments of which a part was there before");
        }
        self.channel.order.record(arrival, newest_ns);
        Ok(())
    }
}

/// Tells of a message that is not known in all its bytes.
#[cold]
fn tell(report: &mut Report, found: Found, message: &[u8], (path, offset): (&Rc<Path>, u64)) {
    match found {
        Found::Whole => {}
        Found::Longer => report.pass_over("fields behind those of the specification"),
        Found::Unknown => report.pass_over("types of messages that are not known (their bytes are kept)"),
        Found::Short => {
            let kind = message.first().map_or('-', |kind| char::from(*kind)).escape_default();
            let what = format!(
                "a message of type {kind} has {} bytes, fewer than its type (they are kept)",
                message.len()
            );
            report.flaw(path, offset, None, what);
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/generators/iex.rs"]
pub(super) mod generator;
#[cfg(test)]
mod tests;
