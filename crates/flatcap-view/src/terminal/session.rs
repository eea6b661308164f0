//! The loop that reads keys and the recording, and writes frames to the terminal.

use std::io::{self, IsTerminal, Stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{self, Event, KeyEventKind};
use flatcap_control::Client;
use flatcap_explain::{ExplainError, Explanation, RecordingChoice, TextLayout, explain};
use flatcap_format::replay::{HostIdentity, TimeSpec};
use flatcap_os::clock::{monotonic_ns, read_clocks};
use flatcap_os::signal::SignalWatch;
use flatcap_os::wake_event::WakeEvent;
use flatcap_query::Recording;
use flatcap_text::stack_names::StackNames;
use jiff::tz::TimeZone;
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Terminal;

use super::alternate_screen::AlternateScreen;
use super::appearance::Appearance;
use super::feeds::Feeds;
use super::frame::{draw, explanation_width, room_of};
use super::state::{Movement, Panel, Request, ViewState};
use crate::ViewError;
use crate::sample_search::SampleSearch;

/// Time between two frames while the displayed time moves, in nanoseconds.
const TICK_NS: u64 = 100_000_000;
/// Maximum reading time between two frames, in nanoseconds.
// Keys must be handled promptly.
const READ_NS: u64 = 60_000_000;
/// Interval at which the stop signal is checked while nothing changes on the screen.
const IDLE: Duration = Duration::from_millis(250);
/// Delay of a live view relative to the current time, in nanoseconds.
// A sample is written to the file within 15 ms.
const LIVE_LAG_NS: i64 = 100_000_000;
/// Number of ticks between two checks for new segments.
const SEGMENT_TICKS: u64 = 10;
/// Maximum number of suspects and fields of an explanation.
const EXPLAINED_MAX: usize = 12;
/// Minimum length of an explained window, and of the baseline before it.
const WINDOW_MIN_NS: i64 = 300_000_000;
const BEFORE_MIN_NS: u64 = 10_000_000_000;

/// The parameters of a view.
#[derive(Debug)]
pub struct Session {
    /// Segment files, or directories of segments.
    pub paths: Vec<PathBuf>,
    /// The host to show; `None` if all segments are from one host.
    pub host: Option<HostIdentity>,
    /// Name of the host.
    pub host_name: String,
    /// First and last wall time of the recording.
    pub span_ns: (i64, i64),
    /// The time that the view shows first. `None` means the current time, or the end of a recording
    /// that does not grow.
    pub at_ns: Option<i64>,
    /// Whether a recorder adds to the recording.
    pub is_growing: bool,
    /// Whether the view starts in live mode.
    pub is_live: bool,
    /// Connection to the recorder, if there is one.
    pub client: Option<Client>,
    /// The time zone of displayed times.
    pub zone: TimeZone,
    /// The capabilities of the terminal.
    pub appearance: Appearance,
}

/// Shows a recording until the user or a signal ends it.
///
/// # Errors
/// Standard output is not a terminal, the terminal fails, or the recording cannot be read.
pub fn show(session: &Session) -> Result<(), ViewError> {
    if !io::stdout().is_terminal() {
        return Err(ViewError::NoTerminal("standard output"));
    }
    // A dumb terminal cannot move the cursor, so frames cannot be drawn.
    if std::env::var_os("TERM").is_some_and(|name| name == "dumb") {
        return Err(ViewError::NoTerminal("TERM=dumb"));
    }
    let recording = Recording::open(&session.paths)?;
    // Signals are handled before the terminal changes, so that the terminal is always restored.
    let stop = Arc::new(WakeEvent::new());
    let _signals = SignalWatch::stop_only(Arc::clone(&stop))?;
    let mut terminal = Terminal::new(AlternateScreen::open()?)?;
    let mut run = ViewRun::new(session, Feeds::new(recording, session.host.clone()));
    run.show(&mut terminal, &stop)
}

/// The state of a running view.
struct ViewRun<'s> {
    session: &'s Session,
    state: ViewState,
    feeds: Feeds,
    explanation: Option<Explanation>,
    /// A request that is announced to the user. It runs after a frame with the announcement was
    /// drawn.
    announced: Option<Request>,
    ticks: u64,
}

impl<'s> ViewRun<'s> {
    fn new(session: &'s Session, feeds: Feeds) -> Self {
        let at_ns = session.at_ns.unwrap_or(session.span_ns.1);
        let mut state = ViewState::new(session.span_ns, session.is_live && session.at_ns.is_none(), at_ns);
        state.is_growing = session.is_growing;
        Self { session, state, feeds, explanation: None, announced: None, ticks: 0 }
    }

    fn show(
        &mut self,
        terminal: &mut Terminal<AlternateScreen<Stdout>>,
        stop: &WakeEvent,
    ) -> Result<(), ViewError> {
        let mut next_tick_ns = monotonic_ns();
        let mut is_changed = true;
        while !stop.is_set() {
            let now_ns = monotonic_ns();
            if now_ns >= next_tick_ns {
                next_tick_ns = now_ns + TICK_NS;
                is_changed |= self.tick()?;
            }
            let is_complete = if is_changed { self.draw(terminal)? } else { true };
            is_changed = !is_complete;
            if let Some(request) = self.announced.take() {
                self.act(request)?;
                is_changed = true;
                continue;
            }
            // More data remains to be read, so the loop only polls the keys.
            let wait = if !is_complete {
                Duration::ZERO
            } else if self.state.movement == Movement::Paused {
                IDLE
            } else {
                Duration::from_nanos(next_tick_ns.saturating_sub(monotonic_ns()))
            };
            let mut has_event = event::poll(wait)?;
            // All pending keys are handled before the next frame, so that a repeated key does not
            // lag.
            while has_event {
                is_changed = true;
                if self.handle(&event::read()?)? == Some(Request::Quit) {
                    return Ok(());
                }
                has_event = event::poll(Duration::ZERO)?;
            }
        }
        Ok(())
    }

    /// Advances the displayed time. Returns whether the time changed.
    fn tick(&mut self) -> Result<bool, ViewError> {
        self.ticks += 1;
        let now_ns = read_clocks().wall_ns.saturating_sub(LIVE_LAG_NS);
        if self.state.movement == Movement::Live && self.ticks.is_multiple_of(SEGMENT_TICKS) {
            self.feeds.refresh()?;
        }
        self.state.tick(now_ns);
        Ok(self.state.movement != Movement::Paused)
    }

    /// Reads and draws a frame. Returns whether all data for the frame was read.
    fn draw(&mut self, terminal: &mut Terminal<AlternateScreen<Stdout>>) -> Result<bool, ViewError> {
        let size = terminal.size()?;
        let room = room_of(Rect::new(0, 0, size.width, size.height), &self.state);
        let deadline_ns = monotonic_ns() + READ_NS;
        let is_complete = self.feeds.read(&mut self.state, room, &mut || monotonic_ns() < deadline_ns)?;
        let mut shown = self.feeds.screenful(&mut self.state, room, self.session.appearance);
        shown.host.clone_from(&self.session.host_name);
        shown.explanation = self.explanation_lines(size.width);
        let (state, session) = (&self.state, self.session);
        terminal.draw(|frame| draw(frame, state, &shown, session.appearance, &session.zone))?;
        Ok(is_complete)
    }

    /// Returns the lines of the explanation, as wide as its panel, or `None` while the panel is
    /// closed.
    fn explanation_lines(&self, screen_width: u16) -> Option<Vec<String>> {
        let found = self.explanation.as_ref().filter(|_| self.state.panel == Some(Panel::Explanation))?;
        let Session { zone, appearance, .. } = self.session;
        let layout = TextLayout { zone, width: explanation_width(screen_width) };
        Some(layout.explanation(found).iter().map(|line| appearance.text(line)).collect())
    }

    /// Handles a terminal event.
    fn handle(&mut self, event: &Event) -> Result<Option<Request>, ViewError> {
        let Event::Key(key) = event else { return Ok(None) };
        // Some terminals also report the release of a key.
        if key.kind == KeyEventKind::Release {
            return Ok(None);
        }
        match self.state.press(*key) {
            // Explaining may take seconds, so the message is drawn first.
            Some(Request::Explain) => {
                self.state.message = Some("explaining ...".to_owned());
                self.announced = Some(Request::Explain);
                Ok(None)
            }
            Some(Request::Quit) => Ok(Some(Request::Quit)),
            Some(request) => self.act(request).map(|()| None),
            None => Ok(None),
        }
    }

    fn act(&mut self, request: Request) -> Result<(), ViewError> {
        match request {
            Request::Quit => {}
            Request::NextSample => self.go_to_sample(true)?,
            Request::SampleBefore => self.go_to_sample(false)?,
            Request::Jump(text) => self.jump(&text),
            Request::Mark(text) => self.mark(&text),
            Request::Explain => self.explain(),
        }
        Ok(())
    }

    fn go_to_sample(&mut self, is_forward: bool) -> Result<(), ViewError> {
        let Some(source) = self.feeds.leading_source(&self.state) else { return Ok(()) };
        let search = SampleSearch { paths: self.session.paths.clone(), host: self.session.host.clone() };
        let at_ns = self.state.at_ns;
        let found = if is_forward {
            search.after(&source, at_ns)?
        } else {
            search.before(&source, at_ns, self.state.span_ns.0)?
        };
        match found {
            Some(wall_ns) => self.state.go_to(wall_ns),
            None if is_forward => self.state.message = Some(format!("{source} has no later sample")),
            None => self.state.message = Some(format!("{source} has no earlier sample")),
        }
        // If playback continued, the view would leave the sample immediately.
        if self.state.movement == Movement::Playing {
            self.state.movement = Movement::Paused;
        }
        Ok(())
    }

    fn jump(&mut self, text: &str) {
        let (first_ns, last_ns) = self.state.span_ns;
        let zone = &self.session.zone;
        let wall_ns = match TimeSpec::parse(text, read_clocks().wall_ns, zone) {
            Ok(TimeSpec::FromStart(ns)) => Some(first_ns.saturating_add_unsigned(ns)),
            Ok(time) => time.wall_ns(last_ns, zone),
            Err(_) => {
                let forms = "14:03:07.25, -5m, +10s, 2026-11-21T14:03:07Z, @1700000000.5";
                self.state.message = Some(format!("\"{text}\" is not a point in time; use {forms}"));
                return;
            }
        };
        match wall_ns.filter(|wall_ns| (first_ns..=last_ns).contains(wall_ns)) {
            Some(wall_ns) => self.state.go_to(wall_ns),
            None => {
                self.state.message =
                    Some(format!("{text} is outside of the recording; Home and End lead there"));
            }
        }
    }

    fn mark(&mut self, text: &str) {
        self.state.message = Some(match &self.session.client {
            None => "no recorder runs here: marks go into a running recording".to_owned(),
            Some(client) => match client.mark(text) {
                Ok(answer) => answer,
                Err(error) => error.to_string(),
            },
        });
    }

    /// Explains the last step, or a longer time around the step if the step is short.
    fn explain(&mut self) {
        let step_ns = self.state.step_ns();
        let (middle_ns, length_ns) = if step_ns > WINDOW_MIN_NS {
            (self.state.at_ns.saturating_sub(step_ns / 2), step_ns)
        } else {
            (self.state.at_ns, WINDOW_MIN_NS)
        };
        let choice = RecordingChoice {
            paths: self.session.paths.clone(),
            sources: std::collections::BTreeSet::default(),
            host: self.session.host.clone(),
        };
        match explain(&choice, middle_ns, length_ns.unsigned_abs(), BEFORE_MIN_NS, &mut |_| {}) {
            Ok(mut found) => {
                // The departures are useful even without their causes.
                let _unread = found.add_causes(&choice, |stacks, boot_id| {
                    let names = StackNames::of(stacks, boot_id, &[]);
                    move |object, offset| names.function(object, offset)
                });
                found.truncate(EXPLAINED_MAX);
                self.explanation = Some(found);
                (self.state.panel, self.state.panel_first) = (Some(Panel::Explanation), 0);
                self.state.message = None;
                // If playback continued, the view would leave the explained time.
                if self.state.movement == Movement::Playing {
                    self.state.movement = Movement::Paused;
                }
            }
            Err(ExplainError::NoSamples) => self.state.message = Some("no samples at this time".to_owned()),
            Err(error) => self.state.message = Some(error.to_string()),
        }
    }
}
