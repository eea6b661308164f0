//! Tests the frames of a recording with known values, on ratatui's test backend at three sizes.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use flatcap_query::Recording;
use jiff::tz::TimeZone;
use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Cell;
use ratatui_core::layout::Rect;
use ratatui_core::style::Color;
use ratatui_core::terminal::Terminal;

use super::appearance::Appearance;
use super::feeds::Feeds;
use super::frame::{draw, room_of};
use super::screenful::Screenful;
use super::state::{Request, ViewState};
use crate::test_recording::{HOSTILE, LOST, MARK, SPIKE, TICKS, wall_ns, write_recording};

/// The sizes at which every screen is drawn.
const SIZES: [(u16, u16); 3] = [(60, 20), (80, 24), (140, 50)];
const COLORS: Appearance = Appearance { is_ascii: false, is_plain: false };
const PLAIN: Appearance = Appearance { is_ascii: true, is_plain: true };

/// A view of the test recording.
struct View {
    _folder: tempfile::TempDir,
    feeds: Feeds,
    state: ViewState,
}

impl View {
    /// Opens a view of the recording at the time of a tick.
    fn at(tick: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_recording(folder.path());
        let recording = Recording::open(&[folder.path().to_owned()]).unwrap();
        let span_ns = (wall_ns(0), wall_ns(TICKS - 1));
        Self {
            feeds: Feeds::new(recording, None),
            state: ViewState::new(span_ns, false, wall_ns(tick)),
            _folder: folder,
        }
    }

    fn press(&mut self, code: KeyCode) -> Option<Request> {
        self.state.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn type_text(&mut self, text: &str) {
        for letter in text.chars() {
            self.press(KeyCode::Char(letter));
        }
    }

    /// Reads the content of a frame.
    fn shown(&mut self, (width, height): (u16, u16), appearance: Appearance) -> Screenful {
        let room = room_of(Rect::new(0, 0, width, height), &self.state);
        assert!(self.feeds.read(&mut self.state, room, &mut || true).unwrap());
        let shown = self.feeds.screenful(&mut self.state, room, appearance);
        Screenful { host: "db1".to_owned(), ..shown }
    }

    fn terminal(&mut self, size: (u16, u16), appearance: Appearance) -> Terminal<TestBackend> {
        let shown = self.shown(size, appearance);
        drawn(&self.state, &shown, size, appearance)
    }

    /// Draws a frame and returns its lines.
    fn lines(&mut self, size: (u16, u16), appearance: Appearance) -> Vec<String> {
        lines_of(&self.terminal(size, appearance))
    }

    /// Returns the first line that starts with the given string.
    fn line(&mut self, size: (u16, u16), start: &str) -> String {
        let lines = self.lines(size, COLORS);
        let found = lines.iter().find(|line| line.trim_start().starts_with(start));
        found.unwrap_or_else(|| panic!("no line begins with {start:?}: {lines:#?}")).clone()
    }
}

fn drawn(
    state: &ViewState,
    shown: &Screenful,
    (width, height): (u16, u16),
    appearance: Appearance,
) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, shown, appearance, &TimeZone::UTC)).unwrap();
    terminal
}

fn lines_of(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(buffer.area().width));
    rows.map(|row| row.iter().map(Cell::symbol).collect::<String>().trim_end().to_owned()).collect()
}

/// Returns the words of a line.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

// Proves that at each size the overview shows the value at the displayed time. Proves that it also
// shows the largest value of the steps and the element with this value. The overview also shows
// date, time, state and step.
#[test]
fn the_overview_has_known_values() {
    let mut view = View::at(950);
    for size in SIZES {
        let header = view.lines(size, COLORS).remove(0);
        assert!(header.contains("db1  2023-11-14 22:13:29.500000"), "{header}");
        assert!(header.contains("PAUSED  step 1 s"), "{header}");
        assert_eq!(words(&view.line(size, "cpu "))[..2], ["cpu", "25%"]);
        assert_eq!(words(&view.line(size, "busiest core"))[..3], ["busiest", "core", "50%"]);
        assert_eq!(words(&view.line(size, "disk busy"))[2..4], ["10%", "10%"]);
        assert_eq!(words(&view.line(size, "disk write"))[2..4], ["100K/s", "100K/s"]);
        assert_eq!(words(&view.line(size, "net receive"))[2..4], ["1M/s", "1M/s"]);
        assert_eq!(words(&view.line(size, "tasks running"))[2..4], ["3", "3"]);
        assert_eq!(words(&view.line(size, "new tasks"))[2..4], ["400/s", "400/s"]);
    }
    assert!(view.line((80, 24), "disk write").contains(" vda "));
    assert!(!view.line((80, 24), "disk read").contains(" vd"), "nothing was read");
}

// Proves that at any step length, a value that lasted one sample is drawn as the only high column,
// at the right position. Also proves that the displayed value is exact.
#[test]
fn a_spike_of_one_sample_is_seen_at_any_zoom() {
    let mut view = View::at(SPIKE + 5);
    for step in 0..15 {
        if step > 0 {
            view.press(KeyCode::Char('+'));
        } else {
            view.type_text("---------------");
        }
        let step_ns = view.state.step_ns();
        view.state.at_ns = (wall_ns(SPIKE) + step_ns * 2).min(wall_ns(TICKS - 1));
        let line = view.line((80, 24), "disk write");
        assert_eq!(words(&line)[3], "1000M/s", "step {step_ns}: {line}");
        let columns: Vec<char> = line.chars().collect();
        let back = view.state.at_ns.div_euclid(step_ns) - wall_ns(SPIKE).div_euclid(step_ns);
        let place = usize::try_from(79 - back).unwrap();
        assert_eq!(columns[place], '\u{2585}', "step {step_ns}: {line}");
        // A change covers the time since the previous sample, which spans several short steps, and
        // holds until the next sample.
        let high = columns.iter().filter(|c| **c == '\u{2585}').count();
        let widest = usize::try_from(10_000_000 / step_ns).unwrap() + 4;
        assert!(high <= widest, "step {step_ns}: {high} columns: {line}");
    }
}

// Proves that lost samples are not drawn as data. Their steps have an x and no other chart
// character, and the axis also has an x.
#[test]
fn a_gap_is_no_data() {
    let mut view = View::at(LOST.end + 150);
    for _ in 0..3 {
        view.press(KeyCode::Char('-'));
    }
    // Each step is 100 ms long. Ten steps were lost, 15 steps before the end.
    let line = view.line((80, 24), "tasks running");
    let columns: Vec<char> = line.chars().collect();
    let lost: Vec<usize> = (0..columns.len()).filter(|at| columns[*at] == 'x').collect();
    assert_eq!(lost, (54..64).collect::<Vec<_>>(), "{line}");
    let lines = view.lines((80, 24), PLAIN);
    let axis = lines.iter().find(|line| line.contains("xxxxx") && line.contains("--")).unwrap();
    assert!(axis.trim().len() < 70, "{axis}");
    // Other sources have all their samples.
    assert!(!view.line((80, 24), "disk busy").contains('x'));
    // No data exists before the start of the recording.
    let mut early = View::at(100);
    let line = early.line((80, 24), "net receive");
    assert!(line.ends_with("eth0                                     \u{2585}\u{2585}"), "{line}");
}

// Proves that at each size processes have their values over the last step, and that keys sort and
// filter them.
#[test]
fn processes_have_known_values() {
    let mut view = View::at(1100);
    view.type_text("p");
    for size in SIZES {
        let billing = view.line(size, "812");
        assert_eq!(words(&billing)[..5], ["812", "billing", "R", "100", "512M"], "{billing}");
        let steady = view.line(size, "10 ");
        assert_eq!(words(&steady)[..5], ["10", "steady", "S", "10", "50M"], "{steady}");
        let lines = view.lines(size, COLORS);
        let place = |text: &str| lines.iter().position(|line| line.contains(text)).unwrap();
        assert!(place("billing") < place("steady"));
        assert!(lines[usize::from(size.1) - 2].starts_with("3 rows, by CPU%"), "{lines:#?}");
    }
    view.type_text("r");
    let lines = view.lines((80, 24), COLORS);
    let place = |text: &str| lines.iter().position(|line| line.contains(text)).unwrap();
    assert!(place("steady") < place("billing"), "reversed");
    view.type_text("/bill");
    view.press(KeyCode::Enter);
    let lines = view.lines((80, 24), COLORS);
    assert!(lines[22].starts_with("1 of 3 rows"), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("steady")));
    // Four seconds later, the process `billing` is idle.
    view.press(KeyCode::Esc);
    view.state.at_ns = wall_ns(1500);
    assert_eq!(words(&view.line((80, 24), "812"))[..4], ["812", "billing", "R", "0"]);
    // At the earlier time, the earlier values are shown again.
    view.state.at_ns = wall_ns(1100);
    assert_eq!(words(&view.line((80, 24), "812"))[..4], ["812", "billing", "R", "100"]);
}

// Proves that disks, interfaces, control groups and fields have their values, at each size.
#[test]
fn other_screens_have_known_values() {
    let mut view = View::at(950);
    for size in SIZES {
        view.type_text("d");
        let vda = view.line(size, "vda");
        assert_eq!(words(&view.line(size, "NAME"))[..4], ["NAME", "BUSY%v", "READ/s", "WRITE/s"]);
        assert_eq!(words(&vda)[..4], ["vda", "10", "0", "100K"], "{vda}");
        view.type_text("n");
        assert_eq!(words(&view.line(size, "eth0"))[..4], ["eth0", "1M", "0", "1k"]);
        view.type_text("c");
        assert_eq!(words(&view.line(size, "/ "))[..3], ["/", "100", "2G"]);
        assert!(view.lines(size, COLORS).iter().any(|line| {
            line.starts_with("syst") && line.contains("service") && words(line)[1..3] == ["50", "1G"]
        }));
        view.type_text("f");
        view.type_text("/cpu.running");
        view.press(KeyCode::Enter);
        assert_eq!(words(&view.line(size, "cpu.running"))[1..3], ["3", "3"]);
        assert!(view.lines(size, COLORS)[usize::from(size.1) - 2].contains("cpu.running: 3 to 3"));
        view.press(KeyCode::Esc);
        view.type_text("o");
    }
    let latency = view.line((140, 50), "disk busy");
    assert!(latency.contains("10%"));
    view.type_text("d");
    assert!(words(&view.line((140, 50), "vda")).contains(&"2ms"), "2 ms a write");
}

// Proves that a name from a recording cannot change colors, cursor or text direction, because it is
// shown escaped and no cell has a control character.
#[test]
fn hostile_names_are_harmless() {
    let mut view = View::at(MARK + 10);
    assert!(HOSTILE.contains('\x1b'));
    for appearance in [COLORS, PLAIN] {
        for screen in ["o", "p"] {
            view.type_text(screen);
            let lines = view.lines((140, 50), appearance);
            let is_harmful = |c: char| c.is_control() || ('\u{200e}'..='\u{202e}').contains(&c);
            assert!(!lines.iter().any(|line| line.contains(is_harmful)), "{lines:#?}");
            if screen == "p" {
                let shown = "\\u{1b}[31m\\u{202e}evil";
                assert!(lines.iter().any(|line| line.contains(shown)), "{lines:#?}");
            } else {
                assert!(lines.iter().any(|line| line.contains("deploy 1.2.3 \\u{1b}[2J")), "{lines:#?}");
            }
        }
    }
}

// Proves that every screen is drawn in ASCII and without color if the terminal has neither, and
// otherwise with the sixteen standard colors only.
#[test]
fn plain_terminals_are_enough() {
    let mut view = View::at(MARK + 10);
    for screen in ["o", "p", "c", "d", "n", "f", "?"] {
        view.type_text(screen);
        for size in SIZES {
            let lines = view.lines(size, PLAIN);
            assert!(lines.iter().all(|line| line.is_ascii()), "{lines:#?}");
            let terminal = view.terminal(size, PLAIN);
            let cells = terminal.backend().buffer().content();
            assert!(cells.iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
            let terminal = view.terminal(size, COLORS);
            let cells = terminal.backend().buffer().content();
            assert!(!cells.iter().any(|cell| matches!(cell.fg, Color::Rgb(..) | Color::Indexed(_))));
        }
    }
}

// Proves that a marker is drawn as a named flag at its position on the axis, and is not drawn
// before it was written.
#[test]
fn markers_are_flags() {
    let mut view = View::at(MARK + 200);
    let lines = view.lines((80, 24), COLORS);
    let axis = lines.iter().find(|line| line.contains('\u{2500}') && line.contains('\u{25b2}')).unwrap();
    let columns: Vec<char> = axis.chars().collect();
    assert_eq!(columns.iter().position(|c| *c == '\u{25b2}'), Some(77), "{axis}");
    assert!(lines[22].contains("22:13:33.000 deploy"), "{lines:#?}");
    let mut before = View::at(MARK - 1);
    assert!(!before.lines((80, 24), COLORS).iter().any(|line| line.contains("deploy")));
}

// Proves that any size is drawn without a panic, and that the frame for a size that is too small
// names the minimum.
#[test]
fn any_size_is_drawn() {
    let mut view = View::at(950);
    for screen in ["o", "p", "f", "?"] {
        view.type_text(screen);
        let shown = view.shown((140, 50), COLORS);
        for width in [1, 7, 59, 60, 61, 75, 76, 109, 123, 124, 200, 300] {
            for height in [1, 2, 19, 20, 23, 24, 35, 60] {
                let terminal = drawn(&view.state, &shown, (width, height), COLORS);
                if width < 60 || height < 20 {
                    let all: String = lines_of(&terminal).concat();
                    let needed = format!("{width} x {height}: needs 60 x 20; q ends");
                    assert!(needed.starts_with(all.trim()), "{all}");
                }
            }
        }
    }
}

// Proves that the help names every key that does something, and scrolls if it does not fit.
#[test]
fn help_is_complete() {
    let mut view = View::at(950);
    view.type_text("?");
    let lines = view.lines((140, 50), COLORS).join("\n");
    for key in
        ["t  T", "Right  Left", "+  -", "space", "j  ", "Home  End", "/  ", "s  r", "e  ", "m  ", "q  end"]
    {
        assert!(lines.contains(key), "{key}: {lines}");
    }
    assert!(!view.lines((60, 20), COLORS).join("\n").contains("q  end"));
    for _ in 0..3 {
        view.press(KeyCode::PageDown);
    }
    assert!(view.lines((60, 20), COLORS).join("\n").contains("q  end"));
}
