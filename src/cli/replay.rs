//! `replay`: sends recorded frames again, byte for byte, at the pace at which they were recorded.

use std::io::{self, Write};
use std::sync::Arc;

use flatcap_format::replay::{MergedReader, Notice, ReplayClock, ReplayItem, Speed};
use flatcap_os::clock::monotonic_ns;
use flatcap_os::signal::SignalWatch;
use flatcap_os::sink::{ReplaySink, SinkAddress};
use flatcap_os::wake_event::{WakeEvent, WakeReason};

use super::ExitStatus;
use super::error::CliError;
use super::report_notice;
use super::selection::RecordingSelection;

/// Send recorded frames again, at their recorded pace.
///
/// Frames are the recorded ones, byte for byte: header first, then samples and gaps, so that the
/// output is itself a segment stream. Over UDP, one frame per datagram.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: RecordingSelection,
    /// Multiple of the recorded pace, or max for no pauses.
    #[arg(long, value_name = "N|max", default_value_t = Speed::Times(1.0))]
    speed: Speed,
    /// Destination: stdout, unix:PATH (a listening stream socket), udp:HOST:PORT.
    #[arg(long, value_name = "WHERE", default_value_t = SinkAddress::Stdout)]
    to: SinkAddress,
    /// Restart at the end, until a signal.
    #[arg(long = "loop")]
    repeat: bool,
}

/// The state of a replay.
struct Player<'a, 'out> {
    sink: ReplaySink<&'out mut (dyn Write + 'out)>,
    to: &'a SinkAddress,
    pace: ReplayClock,
    stop: Arc<WakeEvent>,
    oversized: u64, // frames that do not fit into a datagram
    frames: u64,
    has_read: bool,       // a segment could be read
    has_unreadable: bool, // a segment could not be read
    outcome: ExitStatus,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    use io::IsTerminal;
    if args.to == SinkAddress::Stdout && io::stdout().is_terminal() {
        return Err(CliError::Usage(
            "the output is binary: send it to a file or a pipe, or use --to; dump prints readable rows"
                .to_owned(),
        ));
    }
    let zone = args.selection.zone.zone()?;
    let filter = args.selection.filter(&zone)?;
    let stop = Arc::new(WakeEvent::new());
    let _signals = SignalWatch::stop_with_grace_period(Arc::clone(&stop))?;
    let sink = ReplaySink::connect(&args.to, out)
        .map_err(|error| CliError::Send { to: args.to.to_string(), error })?;
    let mut player = Player {
        sink,
        to: &args.to,
        pace: ReplayClock::new(args.speed),
        stop,
        oversized: 0,
        frames: 0,
        has_read: false,
        has_unreadable: false,
        outcome: ExitStatus::Done,
    };
    loop {
        let before = player.frames;
        let reader = MergedReader::open(&args.selection.paths, filter.clone())?;
        player.play(reader)?;
        if !args.repeat || player.stop.is_set() {
            break;
        }
        if player.frames == before {
            if player.is_all_unreadable() {
                return player.end();
            }
            return Err(CliError::Usage("--loop: there is no frame to repeat".to_owned()));
        }
        player.pace.restart();
    }
    let is_empty = player.frames == 0 && args.selection.has_times() && !player.stop.is_set();
    match player.end()? {
        ExitStatus::Failed => Ok(ExitStatus::Failed),
        _ if is_empty => Err(args.selection.no_samples(zone)?),
        outcome => Ok(outcome),
    }
}

impl Player<'_, '_> {
    /// Sends each frame of a reader at the time when it is due.
    fn play(&mut self, mut reader: MergedReader) -> Result<(), CliError> {
        while let Some(item) = reader.next()? {
            if self.stop.is_set() {
                return Ok(());
            }
            match item {
                ReplayItem::Header(_, frame) => {
                    self.has_read = true;
                    self.pace.restart();
                    self.send(frame)?;
                }
                ReplayItem::Sample(sample) => {
                    if self.wait(sample.telemetry.mono_ns)? == WakeReason::Set {
                        return Ok(());
                    }
                    self.frames += 1;
                    self.send(sample.frame)?;
                }
                ReplayItem::Source(_, frame)
                | ReplayItem::Gap(_, frame)
                | ReplayItem::Marker(_, frame)
                | ReplayItem::Other(_, frame) => self.send(frame)?,
                ReplayItem::Notice(what) => {
                    self.has_unreadable |= matches!(what, Notice::Unreadable(_));
                    self.outcome = report_notice(&what)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until a frame is due. Before it waits, flushes the frames that were already sent.
    fn wait(&mut self, recorded_ns: u64) -> Result<WakeReason, CliError> {
        if self.stop.is_set() {
            return Ok(WakeReason::Set);
        }
        let now = monotonic_ns();
        let due_ns = self.pace.due_ns(recorded_ns, now);
        if due_ns <= now {
            return Ok(WakeReason::Deadline);
        }
        self.flush()?;
        Ok(self.stop.wait_until(due_ns))
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), CliError> {
        match self.sink.send(frame) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.oversized += 1;
                Ok(())
            }
            Err(error) => Err(self.error(error)),
        }
    }

    fn flush(&mut self) -> Result<(), CliError> {
        self.sink.flush().map_err(|error| self.error(error))
    }

    fn error(&self, error: io::Error) -> CliError {
        if *self.to == SinkAddress::Stdout {
            CliError::Output(error)
        } else {
            CliError::Send { to: self.to.to_string(), error }
        }
    }

    /// Returns whether there are segments and none of them could be read.
    fn is_all_unreadable(&self) -> bool {
        self.has_unreadable && !self.has_read
    }

    fn end(mut self) -> Result<ExitStatus, CliError> {
        self.flush()?;
        if self.is_all_unreadable() {
            return Ok(ExitStatus::Failed);
        }
        if self.oversized > 0 {
            tracing::warn!(
                frames = self.oversized,
                "frames longer than a datagram (65,507 bytes) were not sent; send to a stream instead"
            );
            return Ok(ExitStatus::DataLoss);
        }
        Ok(self.outcome)
    }
}
