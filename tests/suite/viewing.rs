//! `view` in a real pseudo-terminal, in a replay and live.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::rig::{Process, Rig, eventually, signal};

/// Leaves the alternate screen.
const LEAVE: &str = "\x1b[?1049l";

/// A view in a terminal of 80 x 24.
struct TerminalRun {
    child: Child,
    keys: File,
    terminal: OwnedFd,
    output: Receiver<Vec<u8>>,
    text: String,
}

impl TerminalRun {
    fn start(rig: &Rig, args: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let stream = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = rig.command(args);
        command.stdin(stream()).stdout(stream()).stderr(stream());
        command.env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
        let child = command.spawn().unwrap();
        let keys = File::from(master);
        let mut reader = keys.try_clone().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = reader.read(&mut bytes) {
                if count == 0 || sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keys, terminal: terminal.into(), output, text: String::new() }
    }

    /// Waits until a text is written to the terminal after the last one that was waited for.
    fn wait_for(&mut self, text: &str) {
        eventually(text, || {
            for bytes in self.output.try_iter() {
                self.text += &String::from_utf8_lossy(&bytes);
            }
            let found = self.text.find(text);
            if let Some(at) = found {
                self.text.drain(..at + text.len());
            }
            found.is_some()
        });
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end, and checks that the terminal is as it was.
    fn assert_restored(mut self) {
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0));
        self.wait_for(LEAVE);
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG), "{modes:?}");
    }
}

// Proves that a replay is shown in a terminal, that keys lead to other screens, and that the
// terminal is restored at the end and at a signal.
#[test]
fn a_replay_is_shown_and_the_terminal_restored() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "cpu@10ms", "--source", "memory@10ms"], 30);
    let mut view = TerminalRun::start(&rig, &["view", "flatcap-data"]);
    view.wait_for("PAUSED");
    view.wait_for("busiest");
    view.press("d");
    view.wait_for("enable");
    view.press("f/mem_total\r");
    view.wait_for("counters.mem_total");
    view.press("\x1b[H");
    view.press("?");
    view.wait_for("Screens");
    view.press("?q");
    view.assert_restored();

    let mut view = TerminalRun::start(&rig, &["view", "flatcap-data", "--ascii"]);
    view.wait_for("PAUSED");
    signal(&view.child, "TERM");
    view.assert_restored();
}

// Proves that a view without a path follows the running recorder, and writes a mark into its
// recording.
#[test]
fn a_live_view_follows_and_marks() {
    let rig = Rig::new();
    let recorder = Process(Some(rig.start(&["record", "--quiet", "--source", "cpu@10ms"])));
    eventually("samples", || rig.has_samples(10));
    let mut view = TerminalRun::start(&rig, &["view"]);
    view.wait_for("LIVE");
    view.press("mdeploy 7\r");
    view.wait_for("marked");
    view.press("q");
    view.assert_restored();
    assert_eq!(recorder.end("TERM").status, Some(0));
    assert!(rig.call(&["marks", "flatcap-data"]).text().contains("deploy 7"));
}

// Proves that a view without a terminal names what to use instead, that one without a recording
// says so, and that a time outside of a zone is refused as everywhere.
#[test]
fn what_cannot_be_shown_is_said() {
    let rig = Rig::new();
    let called = rig.call(&["view", "missing"]);
    assert_eq!(called.status, Some(1), "{}", called.err);
    assert!(called.err.contains("missing: No such file"), "{}", called.err);
    std::fs::create_dir(rig.path("empty")).unwrap();
    let called = rig.call(&["view", "empty"]);
    assert_eq!(called.status, Some(1), "{}", called.err);
    assert!(called.err.contains("no segments in empty"), "{}", called.err);
    rig.record_samples(&["--source", "cpu@10ms"], 3);
    let called = rig.call(&["view", "flatcap-data"]);
    assert_eq!(called.status, Some(2), "{}", called.err);
    assert!(
        called.err.contains("standard output is not one; flatcap dump, spikes and explain"),
        "{}",
        called.err
    );
    let called = rig.call(&["view", "flatcap-data", "--at", "soon"]);
    assert_eq!(called.status, Some(2), "{}", called.err);
    assert!(called.err.contains("--at: \"soon\" is not a point in time"), "{}", called.err);
}
