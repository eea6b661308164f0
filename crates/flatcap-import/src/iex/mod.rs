//! Imports IEX DEEP 1.0 and TOPS 1.6 from network captures.
//!
//! Each channel becomes a source. The sources are in the order in which their channels appear. The
//! feed may restart its sequence numbers within a day. The sample numbers advance with the feed's
//! sequence numbers, but never step back.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod message;
mod reordering;
mod transport;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use flatcap_format::schema::segment::GapCause;
use flatcap_schemas::market::iex::Header;

use self::message::{IexTemplates, MessageForm, MessageTarget, SCHEMA};
use self::reordering::{Arrival, Placement, ReorderBuffer};
use self::transport::{DatagramContent, IexSegment};
use super::capture::{Capture, Packet, datagram};
use super::{ImportError, ImportJob, ImportProgress, ImportReport, ImportSource, Input, RunWriter};

/// Maximum number of channels of a feed in one import. Transport segments of channels beyond this
/// limit are reported as flaws.
const CHANNELS_MAX: usize = 64;

/// The name that reports use for segments of this transport protocol that belong to other feeds.
const OTHER_FEEDS: &str = "segments of other feeds";

/// The feed to import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    /// DEEP 1.0, with depth of book and last sale.
    Deep,
    /// TOPS 1.6, with top of book and last sale.
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

/// Imports the captures in sequence. The feed continues from one capture to the next.
///
/// # Errors
/// Any [`ImportError`]. Samples recorded before the error are sealed.
pub fn import(files: &[PathBuf], feed: Feed, job: ImportJob<'_, '_>) -> Result<ImportReport, ImportError> {
    let ImportJob { storage, limits: plan, mut progress } = job;
    let mut import = IexImport::begin(feed, RunWriter::begin(storage, plan)?, Rc::new(IexTemplates::new()));
    let result = files.iter().try_for_each(|file| import.read(progress.open(file)?, &mut progress));
    let report = import.finish(result)?;
    let others = report.skipped.get(OTHER_FEEDS).copied().unwrap_or(0);
    match files.first() {
        Some(path) if report.totals.sources.is_empty() && others > 0 => {
            let what = format!(
                "no segment of {}, but {others} of other feeds; import it as the other feed (iex-deep, iex-tops)",
                feed.label()
            );
            Err(ImportError::Kind { path: path.clone(), what })
        }
        _ => Ok(report),
    }
}

/// An import in progress.
struct IexImport<'s> {
    feed: Feed,
    recording: RunWriter<'s>,
    templates: Rc<IexTemplates>,
    channels: Vec<Channel>, // <= CHANNELS_MAX
    report: ImportReport,
}

/// A channel of the feed, recorded as a source.
struct Channel {
    number: u32,
    source: u16,
    epoch: u32,
    order: ReorderBuffer<HeldSegment>,
}

/// A segment that waits for earlier ones.
struct HeldSegment {
    datagram: Box<[u8]>,
    origin: CaptureLocation,
}

/// The location of a segment in a capture.
#[derive(Clone)]
struct CaptureLocation {
    path: Rc<Path>,
    offset: u64,
}

impl<'s> IexImport<'s> {
    fn begin(feed: Feed, recording: RunWriter<'s>, models: Rc<IexTemplates>) -> Self {
        Self { feed, recording, templates: models, channels: Vec::new(), report: ImportReport::default() }
    }

    /// Seals the recorded samples, also after an error.
    fn finish(mut self, result: Result<(), ImportError>) -> Result<ImportReport, ImportError> {
        self.report.stopped = matches!(result, Err(ImportError::Stopped));
        let result = if self.report.stopped { Ok(()) } else { result };
        let result = result.and_then(|()| self.release_all());
        let written = self.recording.finish();
        result?;
        Ok(ImportReport { totals: written?, ..self.report })
    }

    fn read(&mut self, input: Input, progress: &mut ImportProgress<'_>) -> Result<(), ImportError> {
        let mut capture = Capture::open(input)?;
        let result = self.import_packets(&mut capture, progress);
        self.report.bytes += capture.bytes();
        result
    }

    fn import_packets(
        &mut self,
        capture: &mut Capture,
        progress: &mut ImportProgress<'_>,
    ) -> Result<(), ImportError> {
        let path: Rc<Path> = capture.path().into();
        while let Some(packet) = capture.next(&mut self.report)? {
            if packet.follows_damage {
                self.channels.iter_mut().for_each(|channel| channel.order.note_damage());
            }
            self.import_packet(&packet, &path)?;
            if !progress.should_continue(self.recording.frames()) {
                return Err(ImportError::Stopped);
            }
        }
        Ok(())
    }

    #[inline]
    fn import_packet(&mut self, packet: &Packet<'_>, path: &Rc<Path>) -> Result<(), ImportError> {
        let payload = match datagram(packet.link, packet.bytes) {
            Ok(payload) => payload,
            Err(why) => {
                self.report.count_skipped(why);
                return Ok(());
            }
        };
        let segment = match IexSegment::parse(payload) {
            DatagramContent::Segment(segment) => segment,
            DatagramContent::Other => {
                self.report.count_skipped("datagrams of other protocols");
                return Ok(());
            }
            DatagramContent::Truncated => {
                self.report.add_flaw(path, packet.offset, None, "a segment is truncated within its header");
                return Ok(());
            }
        };
        if segment.protocol != self.feed.protocol() {
            self.report.count_skipped(OTHER_FEEDS);
            return Ok(());
        }
        if segment.exceeds_number_range() {
            let what = format!(
                "a segment of {} messages from number {} on exceeds the specification's range: damage",
                segment.count, segment.first
            );
            self.report.add_flaw(path, packet.offset, Some(segment.count.into()), what);
            return Ok(());
        }
        let Some(at) = self.channel_index(segment.channel)? else {
            let what = format!(
                "a segment of channel {}, beyond the limit of {CHANNELS_MAX} channels",
                segment.channel
            );
            self.report.add_flaw(path, packet.offset, Some(segment.count.into()), what);
            return Ok(());
        };
        let Some(channel) = self.channels.get_mut(at) else { return Ok(()) };
        let mut channel_import = ChannelImport {
            channel,
            recording: &mut self.recording,
            templates: &self.templates,
            report: &mut self.report,
        };
        channel_import.import_segment(&segment, packet, (path, payload))
    }

    /// Returns the index of a channel. Adds a source for a new channel. Returns `None` if there are
    /// too many channels.
    #[inline]
    fn channel_index(&mut self, number: u32) -> Result<Option<usize>, ImportError> {
        let known = self.channels.iter().position(|channel| channel.number == number);
        if known.is_some() || self.channels.len() >= CHANNELS_MAX {
            return Ok(known);
        }
        let index = self.channels.len();
        let name = match index {
            0 => self.feed.name().to_owned(),
            _ => format!("{}.{}", self.feed.name(), index + 1),
        };
        let label = |key: &str, value: String| (key.to_owned(), value);
        let source = self.recording.add_source(ImportSource {
            name,
            labels: vec![
                label("protocol", self.feed.label().to_owned()),
                label("channel", number.to_string()),
            ],
            root: SCHEMA.1.to_owned(),
            schema: SCHEMA.0.to_owned(),
        })?;
        self.channels.push(Channel { number, source, epoch: 0, order: ReorderBuffer::new() });
        Ok(Some(index))
    }

    /// Releases all held segments at the end of the input, when no more packets can fill a gap.
    fn release_all(&mut self) -> Result<(), ImportError> {
        for channel in &mut self.channels {
            let mut channel_import = ChannelImport {
                channel,
                recording: &mut self.recording,
                templates: &self.templates,
                report: &mut self.report,
            };
            channel_import.release_all()?;
        }
        Ok(())
    }
}

/// The state needed to import segments of one channel.
struct ChannelImport<'i, 's> {
    channel: &'i mut Channel,
    recording: &'i mut RunWriter<'s>,
    templates: &'i IexTemplates,
    report: &'i mut ImportReport,
}

impl ChannelImport<'_, '_> {
    #[inline]
    fn import_segment(
        &mut self,
        segment: &IexSegment<'_>,
        packet: &Packet<'_>,
        (path, datagram): (&Rc<Path>, &[u8]),
    ) -> Result<(), ImportError> {
        while self.channel.order.is_overdue(packet.wall_ns) {
            self.give_up_gap()?;
        }
        let whole = segment.complete_count();
        let first_ns = segment.messages().next().and_then(message::time_ns);
        let arrival = Arrival {
            session: segment.session,
            first: segment.first,
            count: whole,
            // No message is newer than the send time of its segment. Without this bound, a message
            // with a false time could hide a restart.
            first_ns: first_ns.unwrap_or(segment.send_ns).min(segment.send_ns),
            send_ns: segment.send_ns,
            wall_ns: packet.wall_ns,
        };
        match self.channel.order.classify(&arrival) {
            Placement::Next(before) => self.record(segment, &arrival, before, (path, packet.offset))?,
            placement => {
                let origin = CaptureLocation { path: Rc::clone(path), offset: packet.offset };
                self.import_out_of_order(segment, &arrival, placement, (origin, datagram))?;
            }
        }
        if whole < segment.count {
            self.report_truncated(segment, &arrival, (path, packet.offset));
        }
        self.record_held()
    }

    /// Handles a segment whose number is not the next in the sequence.
    #[cold]
    fn import_out_of_order(
        &mut self,
        segment: &IexSegment<'_>,
        arrival: &Arrival,
        placement: Placement,
        (origin, datagram): (CaptureLocation, &[u8]),
    ) -> Result<(), ImportError> {
        match placement {
            Placement::Next(before) => {
                self.record(segment, arrival, before, (&origin.path, origin.offset))?;
            }
            Placement::Ahead => {
                let held = HeldSegment { datagram: datagram.into(), origin };
                self.channel.order.hold(*arrival, datagram.len(), held);
            }
            Placement::NewEpoch => {
                self.release_all()?;
                self.channel.order.begin_epoch(arrival);
                self.channel.epoch += 1;
                self.report.count_skipped("restarts of the feed's numbers");
                let placement = self.channel.order.classify(arrival);
                debug_assert_ne!(placement, Placement::NewEpoch, "an epoch begins once");
                if placement != Placement::NewEpoch {
                    self.import_out_of_order(segment, arrival, placement, (origin, datagram))?;
                }
            }
            Placement::Heartbeat => self.report.count_skipped("heartbeats"),
            Placement::Repeat => self.report.count_skipped("repeated segments"),
            Placement::Late => self.report.count_skipped("segments that arrived too late"),
            Placement::OldEpoch => self.report.count_skipped("segments of an earlier epoch"),
            Placement::WrongOrder => {
                let what = format!(
                    "a segment of {} messages is from an earlier epoch, captured before the recorded one began; \
                     give captures in the order of their times, and merge those of two lines first (mergecap)",
                    arrival.count
                );
                self.report.add_flaw(&origin.path, origin.offset, Some(arrival.count.into()), what);
            }
        }
        Ok(())
    }

    /// Reports a segment with fewer messages than it claims. The missing messages may still arrive
    /// on another line. If they do not arrive, they are recorded as lost.
    #[cold]
    fn report_truncated(
        &mut self,
        segment: &IexSegment<'_>,
        arrival: &Arrival,
        (path, offset): (&Rc<Path>, u64),
    ) {
        let missing = u64::from(segment.count - arrival.count);
        let what = format!(
            "a segment of {} messages from number {} on has only {} complete ones",
            segment.count, segment.first, arrival.count
        );
        self.report.add_flaw(path, offset, Some(missing), what);
        let first = segment.first.saturating_add(arrival.count.into());
        let end = segment.first.saturating_add(segment.count.into());
        let after = Arrival { first: end, count: 0, ..*arrival };
        if self.channel.order.classify(&after) == Placement::Ahead {
            self.channel.order.note_damaged_numbers(first..end);
            let origin = CaptureLocation { path: Rc::clone(path), offset };
            self.channel.order.hold(after, 0, HeldSegment { datagram: Box::default(), origin });
        }
    }

    /// Records the held segments that are now the next in the sequence.
    #[inline]
    fn record_held(&mut self) -> Result<(), ImportError> {
        while let Some((arrival, held, before)) = self.channel.order.take_next() {
            let HeldSegment { datagram, origin } = held;
            if let DatagramContent::Segment(segment) = IexSegment::parse(&datagram) {
                self.record(&segment, &arrival, before, (&origin.path, origin.offset))?;
            }
        }
        Ok(())
    }

    fn release_all(&mut self) -> Result<(), ImportError> {
        while self.give_up_gap()? {}
        Ok(())
    }

    /// Records the first missing range as a gap. Returns whether there was a missing range.
    #[cold]
    fn give_up_gap(&mut self) -> Result<bool, ImportError> {
        let Some(hole) = self.channel.order.give_up_gap() else { return Ok(false) };
        if hole.count > 0 {
            let cause = if hole.is_damage { GapCause::Damaged } else { GapCause::NotReceived };
            self.recording.skip(self.channel.source, hole.count, cause);
        }
        self.record_held()?;
        Ok(true)
    }

    /// Records the messages of a segment, except for the first `before` messages, which are already
    /// recorded.
    #[inline]
    fn record(
        &mut self,
        segment: &IexSegment<'_>,
        arrival: &Arrival,
        before: u16,
        (path, offset): (&Rc<Path>, u64),
    ) -> Result<(), ImportError> {
        let mut header = Header::default();
        header.set_send_ns(segment.send_ns);
        header.set_session(segment.session);
        header.set_channel(segment.channel);
        header.set_epoch(self.channel.epoch);
        let mut target = MessageTarget {
            recording: self.recording,
            source: self.channel.source,
            wall_ns: arrival.wall_ns,
        };
        // A message without a time gets the time of its segment, as in the classification of the
        // segment.
        let mut newest_ns = arrival.first_ns;
        for (number, message) in (segment.first..).zip(segment.messages()).skip(before.into()) {
            header.set_sequence(number);
            let found = self.templates.append(&mut target, &mut header, message)?;
            newest_ns = newest_ns.max(header.timestamp_ns().min(segment.send_ns));
            if found != MessageForm::Exact {
                report_unexpected_message(self.report, found, message, (path, offset));
            }
        }
        if before > 0 {
            self.report.count_skipped("repeated parts of segments");
        }
        self.channel.order.record(arrival, newest_ns);
        Ok(())
    }
}

/// Reports a message that does not match its specification.
#[cold]
fn report_unexpected_message(
    report: &mut ImportReport,
    found: MessageForm,
    message: &[u8],
    (path, offset): (&Rc<Path>, u64),
) {
    match found {
        MessageForm::Exact => {}
        MessageForm::Longer => report.count_skipped("fields after those of the specification"),
        MessageForm::Unknown => {
            report.count_skipped("unknown message types (bytes kept)");
        }
        MessageForm::Short => {
            let kind = message.first().map_or('-', |kind| char::from(*kind)).escape_default();
            let what = format!(
                "a message of type {kind} has {} bytes, fewer than its type requires (they are kept)",
                message.len()
            );
            report.add_flaw(path, offset, None, what);
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/generators/iex.rs"]
pub(super) mod generator;
#[cfg(test)]
mod tests;
