//! A configuration from several places, as the program reads it: drop-ins, environment variables
//! and the service manager's directories.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::rig::{CallResult, Rig, eventually, finish, has_segment, signal};

/// Calls the program with these variables.
fn call(rig: &Rig, args: &[&str], variables: &[(&str, &str)]) -> CallResult {
    let mut command = rig.command(args);
    command.envs(variables.iter().copied());
    CallResult::from(command.output().unwrap())
}

/// Records with these variables until there is a sample of each source.
fn record(rig: &Rig, args: &[&str], variables: &[(&str, &str)]) -> CallResult {
    let mut command = rig.command(&[&["record"], args].concat());
    command.envs(variables.iter().copied());
    rig.run_until(command, "a sample", || rig.has_samples(1))
}

/// Writes a file and two drop-ins to a folder of their own.
fn write_drop_ins(rig: &Rig) -> String {
    fs::create_dir_all(rig.path("etc/conf.d")).unwrap();
    rig.write("etc/flatcap.toml", "[source.load]\nperiod = \"20ms\"\n[storage]\nsegment_size = \"3MiB\"\n");
    rig.write("etc/conf.d/10-load.toml", "[source.load]\nperiod = \"30ms\"\n");
    rig.write("etc/conf.d/20-load.toml", "# later\n[source.load]\nperiod = \"40ms\"\n");
    rig.path("etc").to_str().unwrap().to_owned()
}

fn line<'t>(text: &'t str, start: &str) -> &'t str {
    text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in {text}"))
}

// Proves that check-config shows the configuration that record reads, with its origins, and that
// its output is a configuration again. Method: a file, drop-ins and a variable; a recording's
// header.
#[test]
fn check_config_shows_the_recorded_configuration() {
    let rig = Rig::new();
    let etc = write_drop_ins(&rig);
    let directory = ("CONFIGURATION_DIRECTORY", etc.as_str());
    let size = ("FLATCAP_STORAGE__SEGMENT_SIZE", "4MiB");
    let named = call(&rig, &["check-config", "etc/flatcap.toml"], &[size]);
    assert_eq!((named.status, named.err.as_str()), (Some(0), ""), "{named:?}");
    let text = named.text();
    assert_eq!(line(&text, "period = \"40ms\""), "period = \"40ms\" # etc/conf.d/20-load.toml:3");
    assert_eq!(line(&text, "segment_size"), "segment_size = \"4MiB\" # FLATCAP_STORAGE__SEGMENT_SIZE");
    let order = ["#   etc/flatcap.toml", "#   etc/conf.d/10-load.toml", "#   etc/conf.d/20-load.toml"];
    let at: Vec<_> = order.iter().map(|name| text.find(name).unwrap()).collect();
    assert!(at.is_sorted(), "{text}");
    assert!(
        text.contains("\n# Memory used with these settings:\n#   192KiB  3 slabs being filled\n"),
        "{text}"
    );
    assert!(text.contains("  sum, at most memory_max\n\n[recorder]\n"), "{text}");

    let found = call(&rig, &["check-config"], &[size, directory]);
    assert_eq!(found.text(), text.replace("etc/", &format!("{etc}/")));
    let printed = rig.write("printed.toml", &found.out);
    let settings = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| line.split(" # ").next().unwrap().to_owned())
            .filter(|line| !line.starts_with('#'))
            .collect()
    };
    let again = rig.call(&["check-config", printed.to_str().unwrap()]);
    assert_eq!(settings(&again.text()), settings(&text));

    record(&rig, &["--source", "load"], &[size, directory]);
    let kept = rig.call(&["info", "flatcap-data", "--attachment", "flatcap.toml"]).text();
    line(&kept, "segment_size = \"4MiB\"");
    line(&kept, "period = \"40ms\"");
    assert_eq!(rig.info()["sources"][0]["period_ns"], 40_000_000);
}

// Proves that command-line arguments override files and variables.
#[test]
fn arguments_override_everything() {
    let rig = Rig::new();
    let etc = write_drop_ins(&rig);
    let variables = [
        ("CONFIGURATION_DIRECTORY", etc.as_str()),
        ("FLATCAP_SOURCE__LOAD__PERIOD", "50ms"),
        ("FLATCAP_RECORDER__DATA_DIR", "from-variable"),
    ];
    record(&rig, &["--source", "load@10ms", "--data-dir", "flatcap-data"], &variables);
    assert_eq!(rig.info()["sources"][0]["period_ns"], 10_000_000);
    assert!(!rig.path("from-variable").exists());
    let named = rig.write("other.toml", "[source.load]\nperiod = \"60ms\"\n");
    let called = call(&rig, &["check-config", named.to_str().unwrap()], &variables[..1]);
    assert!(
        line(&called.text(), "period = \"60ms\"").ends_with("other.toml:2"),
        "a named file comes before the directory"
    );
}

// Proves that a service without its own data_dir records into the manager's state directory.
// Method: the variable, a relative path in it, which is ignored, and data_dir beside it.
#[test]
fn a_service_records_into_its_state_directory() {
    let rig = Rig::new();
    let state = rig.path("state");
    let state = state.to_str().unwrap();
    let args = ["--source", "load@10ms"];
    for (value, expected) in [(state, "state"), ("relative", "flatcap-data")] {
        let called = record(&rig, &args, &[("STATE_DIRECTORY", value)]);
        assert!(has_segment(&rig.path(expected), 1), "{called:?}");
    }
    let both = [("STATE_DIRECTORY", state), ("FLATCAP_RECORDER__DATA_DIR", "own")];
    let checked = call(&rig, &["check-config"], &both);
    assert_eq!(line(&checked.text(), "# Recordings"), "# Recordings go to own.");
    record(&rig, &args, &both);
    assert!(has_segment(&rig.path("own"), 1));
    assert_eq!(rig.call(&["record", "--data-dir", ""]).status, Some(2), "an empty argument is a usage error");
}

// Proves that both verbs report every mistake of every place at once, with status 2, and record
// nothing. Method: one mistake in each place, one with a terminal escape sequence in a file name.
#[test]
fn mistakes_are_reported_with_their_locations() {
    let rig = Rig::new();
    let etc = write_drop_ins(&rig);
    rig.write("etc/conf.d/30\u{1b}[2J.toml", "[storage]\nsegmnt_size = \"1MiB\"\n");
    rig.write("etc/conf.d/40.toml", "[source.cpu]\nperiod = 10ms\n");
    let variables = [
        ("CONFIGURATION_DIRECTORY", etc.as_str()),
        ("FLATCAP_STORAGE_SEGMENT_SIZE", "1MiB"),
        ("FLATCAP_STORAGE__MIN_FREE", "99%"),
        ("FLATCAP_LOG", "warn"),
    ];
    for verb in [&["check-config"][..], &["record", "--for", "50ms"]] {
        let called = call(&rig, verb, &variables);
        assert_eq!(called.status, Some(2), "{called:?}");
        for wanted in [
            "/etc/conf.d/30\\u{1b}[2J.toml:2:1: [storage] segmnt_size: no such key here; did you mean segment_size?",
            "/etc/conf.d/40.toml:2:10: not TOML: ",
            "environment variable FLATCAP_STORAGE_SEGMENT_SIZE: no such setting; did you mean FLATCAP_STORAGE__SEGMENT_SIZE?",
            "environment variable FLATCAP_STORAGE__MIN_FREE: [storage] min_free = 99%: too large;",
        ] {
            assert!(called.err.contains(wanted), "{wanted} in {}", called.err);
        }
        assert_eq!(called.err.lines().count(), 4, "{}", called.err);
        assert!(called.out.is_empty() && !rig.data().exists());
    }
}

// Proves that an unreadable drop-in or value is an error, not skipped, and that a pipe does not
// block. Method: a pipe, a file instead of the drop-in folder, a value that is not UTF-8; a
// deadline.
#[test]
fn unreadable_settings_are_reported() {
    let rig = Rig::new();
    let etc = write_drop_ins(&rig);
    let pipe = rig.path("etc/conf.d/pipe.toml");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    let mut command = rig.command(&["check-config"]);
    command.env("CONFIGURATION_DIRECTORY", &etc);
    command.env("FLATCAP_RECORDER__DATA_DIR", std::ffi::OsStr::from_bytes(b"/\xff"));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    eventually("check-config ends", || child.try_wait().unwrap().is_some());
    let called = finish(child);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(called.err.contains("pipe.toml: is a pipe; write the path of a file"), "{called:?}");
    assert!(called.err.contains("environment variable FLATCAP_RECORDER__DATA_DIR: not UTF-8;"), "{called:?}");
    fs::remove_dir_all(rig.path("etc/conf.d")).unwrap();
    rig.write("etc/conf.d", "a file");
    let called = call(&rig, &["record", "--for", "50ms"], &[("CONFIGURATION_DIRECTORY", &etc)]);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(called.err.contains("etc/conf.d: cannot be read: Not a directory"), "{called:?}");
}

// Proves that an unknown user costs the source, not the recording, unless the source is required,
// and that the reason is logged.
#[test]
fn an_unknown_user_is_reported() {
    let rig = Rig::new();
    let set = ("FLATCAP_SOURCE__PROCESS__USERS", "[\"no-such-user-at-all\"]");
    let on = ("FLATCAP_SOURCE__PROCESS__ENABLED", "true");
    let reason = "/etc/passwd: no such user: no-such-user-at-all; correct `users`, or use numeric user ids";
    let called = call(&rig, &["record", "--for", "100ms"], &[set, on]);
    assert_eq!(called.status, Some(0), "{called:?}");
    assert!(called.err.contains(reason), "{called:?}");
    let called =
        call(&rig, &["record", "--for", "100ms"], &[set, on, ("FLATCAP_SOURCE__PROCESS__REQUIRED", "true")]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains(reason), "{called:?}");
}

// Proves that a reload of a configuration with mistakes reports all of them, and recording
// continues. Method: SIGHUP after a drop-in was spoiled.
#[test]
fn a_spoiled_drop_in_does_not_end_a_recording() {
    let rig = Rig::new();
    let etc = write_drop_ins(&rig);
    let mut command = rig.command(&["record", "--quiet", "--source", "load@10ms"]);
    command.env("CONFIGURATION_DIRECTORY", &etc);
    let log = rig.path("log");
    let child = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    eventually("the first segment", || has_segment(&rig.data(), 1));
    rig.write("etc/conf.d/30.toml", "[storage]\nsegmnt_size = \"1MiB\"\n[source.cpu]\nperiod = \"1\"\n");
    signal(&child, "HUP");
    let said = || fs::read_to_string(&log).unwrap();
    eventually("both mistakes are reported", || {
        said().contains("30.toml:2:1:") && said().contains("30.toml:4:10:")
    });
    signal(&child, "TERM");
    let called = finish(child);
    assert_eq!(called.status, Some(0), "{}", said());
}
