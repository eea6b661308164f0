//! `replay`: whole frames again, byte for byte, at their recorded pace.

use std::io::{self, Write};
use std::sync::Arc;

use super::Outcome;
use super::error::CliError;
use super::notice;
use super::selection::Selection;
use crate::os::clock::monotonic_ns;
use crate::os::event::{Event, Woken};
use crate::os::signal::SignalWatch;
use crate::os::sink::{Address, Sink};
use crate::replay::{Item, MergedReader, Pace, Speed};

/// Send whole frames again, byte for byte, at their recorded pace: header first, then samples and gaps, so that the
/// output is itself a segment stream. Over UDP, one frame a datagram.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Times the recorded pace, or max.
    #[arg(long, value_name = "N|max", default_value_t = Speed::Times(1.0))]
    speed: Speed,
    /// Where to: stdout, unix:PATH (a listening stream socket), udp:HOST:PORT.
    #[arg(long, value_name = "WHERE", default_value_t = Address::Stdout)]
    to: Address,
    /// Start again at the end, until a signal.
    #[arg(long = "loop")]
    repeat: bool,
}

/// One replay on its way.
struct Player<'a, 'out> {
    sink: Sink<&'out mut (dyn Write + 'out)>,
    to: &'a Address,
    pace: Pace,
    stop: Arc<Event>,
    too_long: u64, // frames that fit no datagram
    frames: u64,
    outcome: Outcome,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    use io::IsTerminal;
    if args.to == Address::Stdout && io::stdout().is_terminal() {
        return Err(CliError::Usage(
            "the output is binary: send it to a file or a pipe, or use --to; for people there is dump"
                .to_owned(),
        ));
    }
    let filter = args.selection.filter()?;
    let stop = Arc::new(Event::new());
    let _signals = SignalWatch::stop_soon(Arc::clone(&stop))?;
    let sink =
        Sink::connect(&args.to, out).map_err(|error| CliError::Send { to: args.to.to_string(), error })?;
    let mut player = Player {
        sink,
        to: &args.to,
        pace: Pace::new(args.speed),
        stop,
        too_long: 0,
        frames: 0,
        outcome: Outcome::Done,
    };
    loop {
        let before = player.frames;
        let reader = MergedReader::open(&args.selection.paths, filter.clone())?;
        player.play(reader)?;
        if !args.repeat || player.stop.is_set() {
            break;
        }
        if player.frames == before {
            return Err(CliError::Usage("--loop: there is no frame to repeat".to_owned()));
        }
        player.pace.restart();
    }
    player.end()
}

impl Player<'_, '_> {
    /// Sends what the reader gives, each frame when it is due.
    fn play(&mut self, mut reader: MergedReader) -> Result<(), CliError> {
        while let Some(item) = reader.next()? {
            if self.stop.is_set() {
                return Ok(());
            }
            match item {
                Item::Header(_, frame) => {
                    self.pace.restart();
                    self.send(frame)?;
                }
                Item::Sample(sample) => {
                    if self.wait(sample.telemetry.mono_ns)? == Woken::Set {
                        return Ok(());
                    }
                    self.frames += 1;
                    self.send(sample.frame)?;
                }
                Item::Source(_, frame)
                | Item::Gap(_, frame)
                | Item::Marker(_, frame)
                | Item::Other(_, frame) => self.send(frame)?,
                Item::Notice(what) => self.outcome = notice(&what)?,
            }
        }
        Ok(())
    }

    /// Waits until a frame is due; what was sent before goes out meanwhile.
    fn wait(&mut self, recorded_ns: u64) -> Result<Woken, CliError> {
        if self.stop.is_set() {
            return Ok(Woken::Set);
        }
        let now = monotonic_ns();
        let due_ns = self.pace.due_ns(recorded_ns, now);
        if due_ns <= now {
            return Ok(Woken::Deadline);
        }
        self.flush()?;
        Ok(self.stop.wait_until(due_ns))
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), CliError> {
        match self.sink.send(frame) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.too_long += 1;
                Ok(())
            }
            Err(error) => Err(self.error(error)),
        }
    }

    fn flush(&mut self) -> Result<(), CliError> {
        self.sink.flush().map_err(|error| self.error(error))
    }

    fn error(&self, error: io::Error) -> CliError {
        if *self.to == Address::Stdout {
            CliError::Output(error)
        } else {
            CliError::Send { to: self.to.to_string(), error }
        }
    }

    fn end(mut self) -> Result<Outcome, CliError> {
        self.flush()?;
        if self.too_long > 0 {
            tracing::warn!(
                frames = self.too_long,
                "frames longer than a datagram can be (65,507 bytes) were not sent; a stream takes them"
            );
            return Ok(Outcome::DataLoss);
        }
        Ok(self.outcome)
    }
}
