//! The state that keys change: the screen, the time and the selection. This module neither reads
//! nor draws.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::ElementShape;

/// Available step lengths in nanoseconds, from 1 ms to 1 min.
const STEPS_NS: [i64; 15] = [
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
];
/// Index of the initial step, 1 s.
const FIRST_STEP: usize = 9;
/// Maximum length of the input in bytes.
// This is the maximum length of a mark.
const INPUT_BYTES_MAX: usize = 4096;

/// A screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// The screen with the charts of the host.
    Overview,
    /// The screen with the elements of a list.
    Elements(ElementShape),
    /// All fields.
    Fields,
}

/// The purpose of the line that the user types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputKind {
    Filter,
    Jump,
    Mark,
}

/// A panel that is drawn over the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Panel {
    Help,
    Explanation,
}

/// Movement of the displayed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Movement {
    /// The displayed time follows the current time.
    Live,
    /// The displayed time does not change.
    Paused,
    /// The displayed time advances by one step each tenth of a second.
    Playing,
}

/// A request to the loop that reads the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// End the view.
    Quit,
    /// Go to the next sample.
    NextSample,
    /// Go to the previous sample.
    SampleBefore,
    /// Go to a time.
    Jump(String),
    /// Explain the displayed time.
    Explain,
    /// Write a mark.
    Mark(String),
}

/// Sort order of the rows of a screen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sorting {
    /// Index among the columns with numbers. The index after the last column represents the name.
    pub(super) column: usize,
    pub(super) is_reversed: bool,
}

/// The state that keys change.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewState {
    pub(super) screen: Screen,
    pub(super) panel: Option<Panel>,
    pub(super) movement: Movement,
    /// The displayed time, in wall nanoseconds.
    pub(super) at_ns: i64,
    /// First and last wall time of the recording.
    pub(super) span_ns: (i64, i64),
    /// Whether a recorder adds to the recording.
    pub(super) is_growing: bool,
    step: usize,
    pub(super) filter: String,
    pub(super) input: Option<(InputKind, String)>,
    pub(super) sortings: [Sorting; 6],
    pub(super) selected: usize,
    /// Index of the first visible row.
    pub(super) first: usize,
    /// Index of the first visible line of the panel.
    pub(super) panel_first: usize,
    /// A message or an error, shown until the next key.
    pub(super) message: Option<String>,
    /// Number of rows. The next field is the number of rows that fit on the screen.
    pub(super) rows: usize,
    pub(super) page: usize,
}

impl Screen {
    /// All screens, in the order of their keys.
    pub(super) const ALL: [Self; 6] = [
        Self::Overview,
        Self::Elements(ElementShape::Processes),
        Self::Elements(ElementShape::ControlGroups),
        Self::Elements(ElementShape::Disks),
        Self::Elements(ElementShape::Interfaces),
        Self::Fields,
    ];

    pub(super) fn number(self) -> usize {
        Self::ALL.iter().position(|screen| *screen == self).unwrap_or(0)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Elements(ElementShape::Processes) => "processes",
            Self::Elements(ElementShape::ControlGroups) => "cgroups",
            Self::Elements(ElementShape::Disks) => "disks",
            Self::Elements(ElementShape::Interfaces) => "network",
            Self::Fields => "fields",
        }
    }
}

impl ViewState {
    /// Creates the initial state. The view is live if `is_live` is true, otherwise it shows the
    /// time `at_ns`.
    pub fn new(span_ns: (i64, i64), is_live: bool, at_ns: i64) -> Self {
        Self {
            screen: Screen::Overview,
            panel: None,
            movement: if is_live { Movement::Live } else { Movement::Paused },
            at_ns,
            span_ns,
            is_growing: is_live,
            step: FIRST_STEP,
            filter: String::new(),
            input: None,
            sortings: [Sorting::default(); 6],
            selected: 0,
            first: 0,
            panel_first: 0,
            message: None,
            rows: 0,
            page: 1,
        }
    }

    /// Returns the length of a step, in nanoseconds.
    pub fn step_ns(&self) -> i64 {
        STEPS_NS.get(self.step).copied().unwrap_or(1_000_000_000)
    }

    pub(super) fn sorting(&self) -> Sorting {
        self.sortings.get(self.screen.number()).copied().unwrap_or_default()
    }

    /// Moves to a time and leaves live mode.
    pub(super) fn go_to(&mut self, at_ns: i64) {
        self.at_ns = at_ns.clamp(self.span_ns.0, self.span_ns.1.max(self.span_ns.0));
        if self.movement == Movement::Live {
            self.movement = Movement::Paused;
        }
    }

    /// Advances one step if playing, or moves to `now_ns` if live.
    pub(super) fn tick(&mut self, now_ns: i64) {
        if self.is_growing {
            self.span_ns.1 = self.span_ns.1.max(now_ns);
        }
        match self.movement {
            Movement::Live => self.at_ns = now_ns,
            Movement::Playing => {
                let at_ns = self.at_ns.saturating_add(self.step_ns());
                self.go_to(at_ns);
                if at_ns >= self.span_ns.1 {
                    // A recording that grows has no end, so playing changes to live mode.
                    self.movement = if self.is_growing { Movement::Live } else { Movement::Paused };
                }
            }
            Movement::Paused => {}
        }
    }

    /// Keeps the selected row within the rows and on the visible page.
    pub(super) fn fit(&mut self, rows: usize, page: usize) {
        (self.rows, self.page) = (rows, page.max(1));
        self.selected = self.selected.min(rows.saturating_sub(1));
        self.first = self.first.clamp((self.selected + 1).saturating_sub(self.page), self.selected);
        self.first = self.first.min(rows.saturating_sub(self.page));
    }

    /// Applies a key. Returns a request to the loop that reads keys, or `None`.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Option<Request> {
        self.message = None;
        // In raw mode the terminal sends no signal for Ctrl-C.
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return matches!(key.code, KeyCode::Char('c')).then_some(Request::Quit);
        }
        // While the user types a line, letters are not commands.
        if let Some((kind, text)) = self.input.take() {
            return self.edit(kind, text, key.code);
        }
        if self.panel.is_some() && self.press_in_panel(key.code) {
            return None;
        }
        match key.code {
            KeyCode::Char('q') => return Some(Request::Quit),
            KeyCode::Char('t') => return Some(Request::NextSample),
            KeyCode::Char('T') => return Some(Request::SampleBefore),
            KeyCode::Char('e') => return Some(Request::Explain),
            KeyCode::Char('j') => self.input = Some((InputKind::Jump, String::new())),
            KeyCode::Char('m') => self.input = Some((InputKind::Mark, String::new())),
            KeyCode::Char('/') => self.input = Some((InputKind::Filter, self.filter.clone())),
            KeyCode::Char('?' | 'h') => (self.panel, self.panel_first) = (Some(Panel::Help), 0),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char(' ') => {
                self.movement = match self.movement {
                    Movement::Paused => Movement::Playing,
                    Movement::Live | Movement::Playing => Movement::Paused,
                }
            }
            KeyCode::Char('+' | '=') => self.step = (self.step + 1).min(STEPS_NS.len() - 1),
            KeyCode::Char('-') => self.step = self.step.saturating_sub(1),
            KeyCode::Right => self.go_to(self.at_ns.saturating_add(self.step_ns())),
            KeyCode::Left => self.go_to(self.at_ns.saturating_sub(self.step_ns())),
            KeyCode::Home | KeyCode::Char('g') => self.go_to(self.span_ns.0),
            KeyCode::End | KeyCode::Char('G') => {
                self.at_ns = self.span_ns.1;
                self.movement = if self.is_growing { Movement::Live } else { Movement::Paused };
            }
            code => self.press_in_screen(code),
        }
        None
    }

    fn press_in_screen(&mut self, code: KeyCode) {
        let number = self.screen.number();
        let screens = Screen::ALL.len();
        match code {
            KeyCode::Char('s' | 'r') => {
                if let Some(sorting) = self.sortings.get_mut(number) {
                    if code == KeyCode::Char('s') {
                        sorting.column += 1;
                    } else {
                        sorting.is_reversed = !sorting.is_reversed;
                    }
                }
            }
            KeyCode::Char('1' | 'o') => self.show(0),
            KeyCode::Char('2' | 'p') => self.show(1),
            KeyCode::Char('3' | 'c') => self.show(2),
            KeyCode::Char('4' | 'd') => self.show(3),
            KeyCode::Char('5' | 'n') => self.show(4),
            KeyCode::Char('6' | 'f') => self.show(5),
            KeyCode::Tab => self.show((number + 1) % screens),
            KeyCode::BackTab => self.show((number + screens - 1) % screens),
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected += 1,
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(self.page),
            KeyCode::PageDown => self.selected += self.page,
            _ => {}
        }
        self.selected = self.selected.min(self.rows.saturating_sub(1));
    }

    fn show(&mut self, number: usize) {
        if let Some(screen) = Screen::ALL.get(number)
            && *screen != self.screen
        {
            self.screen = *screen;
            (self.selected, self.first, self.rows) = (0, 0, 0);
            self.filter.clear();
        }
    }

    /// Handles a key of the open panel. Returns whether the panel used the key.
    fn press_in_panel(&mut self, code: KeyCode) -> bool {
        match code {
            KeyCode::Esc | KeyCode::Char('?' | 'h' | 'q') => self.panel = None,
            KeyCode::Up => self.panel_first = self.panel_first.saturating_sub(1),
            KeyCode::Down => self.panel_first += 1,
            KeyCode::PageUp => self.panel_first = self.panel_first.saturating_sub(self.page),
            KeyCode::PageDown => self.panel_first += self.page,
            _ => {
                // The help hides the screen; an explanation leaves the screen visible.
                if self.panel == Some(Panel::Help) {
                    self.panel = None;
                }
                return false;
            }
        }
        true
    }

    fn edit(&mut self, kind: InputKind, mut text: String, code: KeyCode) -> Option<Request> {
        match code {
            KeyCode::Esc => {
                if kind == InputKind::Filter {
                    self.filter.clear();
                }
                return None;
            }
            KeyCode::Enter => {
                return match kind {
                    InputKind::Filter => None,
                    _ if text.trim().is_empty() => None,
                    InputKind::Jump => Some(Request::Jump(text)),
                    InputKind::Mark => Some(Request::Mark(text)),
                };
            }
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(letter) if text.len() + letter.len_utf8() <= INPUT_BYTES_MAX => text.push(letter),
            _ => {}
        }
        if kind == InputKind::Filter {
            // The rows change with each letter, so the selection starts again at the first row.
            self.filter.clone_from(&text);
            (self.selected, self.first) = (0, 0);
        }
        self.input = Some((kind, text));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(state: &mut ViewState, codes: &[KeyCode]) -> Option<Request> {
        codes.iter().map(|code| state.press(KeyEvent::new(*code, KeyModifiers::NONE))).last().flatten()
    }

    fn typed(text: &str) -> Vec<KeyCode> {
        text.chars().map(KeyCode::Char).collect()
    }

    // Proves that keys change screen, time and step, and that the time stays within the recording.
    #[test]
    fn keys_move_screen_time_and_step() {
        let mut state = ViewState::new((0, 100_000_000_000), false, 50_000_000_000);
        assert_eq!(press(&mut state, &typed("p")), None);
        assert_eq!(state.screen, Screen::Elements(ElementShape::Processes));
        press(&mut state, &[KeyCode::Tab, KeyCode::Char('6'), KeyCode::Tab]);
        assert_eq!(state.screen, Screen::Overview);
        press(&mut state, &[KeyCode::Right, KeyCode::Right, KeyCode::Left]);
        assert_eq!(state.at_ns, 51_000_000_000);
        press(&mut state, &typed(&"-".repeat(40)));
        assert_eq!(state.step_ns(), 1_000_000);
        press(&mut state, &typed(&"+".repeat(40)));
        assert_eq!(state.step_ns(), 60_000_000_000);
        press(&mut state, &[KeyCode::Right]);
        assert_eq!(state.at_ns, 100_000_000_000);
        press(&mut state, &[KeyCode::Home, KeyCode::Left]);
        assert_eq!(state.at_ns, 0);
        assert_eq!(press(&mut state, &typed("t")), Some(Request::NextSample));
        assert_eq!(press(&mut state, &typed("T")), Some(Request::SampleBefore));
        assert_eq!(press(&mut state, &typed("q")), Some(Request::Quit));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.press(interrupt), Some(Request::Quit));
    }

    // Proves that a replay plays to the end and stops, and that a live view follows the present
    // until a key moves its time. The End key returns to the present.
    #[test]
    fn time_plays_and_follows() {
        let mut state = ViewState::new((0, 3_000_000_000), false, 0);
        press(&mut state, &typed(" "));
        for _ in 0..10 {
            state.tick(99);
        }
        assert_eq!((state.at_ns, state.movement), (3_000_000_000, Movement::Paused));
        let mut live = ViewState::new((0, 0), true, 0);
        live.tick(7_000_000_000);
        assert_eq!(live.at_ns, 7_000_000_000);
        press(&mut live, &[KeyCode::Left]);
        live.tick(8_000_000_000);
        assert_eq!((live.at_ns, live.movement), (6_000_000_000, Movement::Paused));
        press(&mut live, &[KeyCode::End]);
        live.tick(9_000_000_000);
        assert_eq!((live.at_ns, live.movement), (9_000_000_000, Movement::Live));
    }

    // Proves that input can be edited, and that command keys in the input are inserted as letters.
    // Proves that each kind of input makes its request.
    #[test]
    fn input_is_edited() {
        let mut state = ViewState::new((0, 10), false, 0);
        press(&mut state, &typed("/pqst"));
        press(&mut state, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!((state.filter.as_str(), state.input.as_ref()), ("pqs", None));
        press(&mut state, &[KeyCode::Esc]);
        assert_eq!(state.filter, "");
        press(&mut state, &typed("j+10s"));
        assert_eq!(press(&mut state, &[KeyCode::Enter]), Some(Request::Jump("+10s".to_owned())));
        press(&mut state, &typed("m"));
        assert_eq!(press(&mut state, &[KeyCode::Enter]), None, "an empty mark is none");
        press(&mut state, &typed("mdeploy 2"));
        assert_eq!(press(&mut state, &[KeyCode::Enter]), Some(Request::Mark("deploy 2".to_owned())));
    }

    // Proves that the selected row stays within the rows and on the page when the number of rows or
    // the page changes.
    #[test]
    fn the_selection_stays_on_the_page() {
        let mut state = ViewState::new((0, 10), false, 0);
        state.fit(100, 10);
        press(&mut state, &[KeyCode::PageDown, KeyCode::PageDown, KeyCode::Down]);
        state.fit(100, 10);
        assert_eq!((state.selected, state.first), (21, 12));
        state.fit(5, 10);
        assert_eq!((state.selected, state.first), (4, 0));
        state.fit(0, 0);
        assert_eq!((state.selected, state.first), (0, 0));
        press(&mut state, &[KeyCode::Down, KeyCode::PageDown]);
        assert_eq!(state.selected, 0);
    }
}
