//! Wrong arguments and configurations: all mistakes are reported at once, with the exit status that
//! scripts rely on.

use std::path::Path;

use crate::rig::{CallResult, Rig};

// Proves that help and version go to standard output, and that wrong usage exits with status 2.
#[test]
fn usage() {
    let rig = Rig::new();
    for args in [&["--help"][..], &["record", "--help"], &["--version"]] {
        let called = rig.call(args);
        assert_eq!(called.status, Some(0), "{called:?}");
        assert!(!called.out.is_empty() && called.err.is_empty(), "{called:?}");
    }
    assert_eq!(rig.call(&["--version"]).text(), format!("flatcap {}\n", env!("CARGO_PKG_VERSION")));
    for args in [
        &[][..],
        &["recrod"],
        &["record", "--fro", "3s"],
        &["record", "--for", "3"],
        &["record", "--for", "0s"],
        &["info"],
        &["replay", "x", "--speed", "0"],
        &["replay", "x", "--to", "tcp:1"],
        &["dump", "x", "--format", "xml"],
    ] {
        let called = rig.call(args);
        assert_eq!(called.status, Some(2), "{args:?}: {called:?}");
        assert!(called.out.is_empty() && !called.err.is_empty(), "{called:?}");
    }
}

// Proves that the error of a wrong duration or size says what to write, with the limits.
#[test]
fn wrong_values_say_what_to_write() {
    let rig = Rig::new();
    let duration = "write a number with ns, us, ms, s, m, h or d";
    let size = "write a number with B, KiB, MiB, GiB or TiB, from 64KiB to";
    for (args, error) in [
        (&["record", "--for", "10"][..], format!("no unit, as in 10s; {duration}")),
        (&["record", "--for", "0s"], format!("too small; {duration}, more than 0s")),
        (&["import", "stream", "x", "--frame-max", "1"], format!("no unit, as in 1MiB; {size}")),
        (&["import", "stream", "x", "--frame-max", "1KiB"], format!("too small; {size}")),
        (&["compress", "x", "--block-size", "5MB"], format!("5MiB is 1024-based; {size} 16MiB")),
        (&["compress", "x", "--block-size", "5GiB"], format!("too large; {size} 16MiB")),
        (
            &["export", "x", "--to", "stream", "-o", "y", "--checksum", "md5"],
            "xxh3, crc32, crc16, none".to_owned(),
        ),
    ] {
        let called = rig.call(args);
        assert_eq!(called.status, Some(2), "{args:?}: {called:?}");
        assert!(called.err.contains(&error), "{args:?}: {called:?}");
    }
}

// Proves that the error about `--from` and similar words names the option of the verb, and that
// `explain` succeeds on a recording without spikes, with text and with JSON.
#[test]
fn other_words_name_the_option() {
    let rig = Rig::new();
    for (args, option) in [
        (&["spikes", "--from", "-5m"][..], Some("--since")),
        (&["dump", "--end", "-5m"], Some("--until")),
        (&["explain", "--from", "-5m"], None),
    ] {
        let called = rig.call(args);
        assert_eq!(called.status, Some(2), "{called:?}");
        let named = ["--since", "--until"].into_iter().find(|option| called.err.contains(option));
        assert_eq!(named, option, "{called:?}");
    }
    rig.record_samples(&["--quiet", "--source", "load@10ms"], 3);
    let explained = rig.call(&["explain"]);
    assert_eq!(explained.status, Some(0), "{explained:?}");
    assert!(explained.text().starts_with("no spikes: the recording is too short"), "{explained:?}");
    let explained = rig.call(&["explain", "--json"]);
    assert_eq!((explained.status, explained.json()), (Some(0), serde_json::Value::Null));
}

// Proves that every mistake of a configuration is reported at once, with its location.
#[test]
fn all_mistakes_of_a_configuration_at_once() {
    let rig = Rig::new();
    let file = rig.write(
        "bad.toml",
        "[storage]\nsegmnt_size = \"64MiB\"\nchecksum = \"md5\"\n[source.cpu]\nperiod = \"0ms\"\n\
         [source.memory]\nperiod = \"10\"\n[sources]\n",
    );
    for verb in
        [&["check-config", file.to_str().unwrap()][..], &["record", "--config", file.to_str().unwrap()]]
    {
        let called = rig.call(verb);
        assert_eq!(called.status, Some(2), "{called:?}");
        for wanted in [
            "bad.toml:2:",
            "segment_size",
            "bad.toml:3:",
            "xxh3",
            "bad.toml:5:",
            "50us",
            "bad.toml:7:",
            "no unit",
            "bad.toml:8:",
        ] {
            assert!(called.err.contains(wanted), "{wanted} in {}", called.err);
        }
    }
}

// Proves that a configuration that is missing, not TOML or not text exits with status 2 and is
// named.
#[test]
fn unreadable_configurations() {
    let rig = Rig::new();
    rig.write("not.toml", "this is = not [toml\n");
    rig.write("binary.toml", [0xFF, 0xFE, 0, 1]);
    for name in ["not.toml", "binary.toml", "missing.toml", "."] {
        let called = rig.call(&["check-config", name]);
        assert_eq!(called.status, Some(2), "{called:?}");
        assert!(called.err.contains(name), "{called:?}");
    }
}

// Proves that the output of check-config is a configuration with the same meaning.
#[test]
fn check_config_prints_what_it_reads() {
    let rig = Rig::new();
    rig.write("own.toml", "[source.cpu]\nperiod = \"1ms\"\n[storage]\nsegment_size = \"64MiB\"\n");
    let first = rig.call(&["check-config", "own.toml"]);
    assert_eq!(first.status, Some(0), "{first:?}");
    assert!(first.text().contains("period = \"1ms\"") && first.text().contains("sync_interval"));
    rig.write("printed.toml", &first.out);
    // The comment after each value names its origin, which is now another file.
    let plain = |text: String| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split(" # ").next().unwrap_or_default().to_owned()).collect()
    };
    let second = rig.call(&["check-config", "printed.toml"]);
    assert_eq!(plain(second.text()), plain(first.text()));
}

// Proves that every verb that reads recordings finds the recordings of `record` without a path,
// that for a path with recordings in subdirectories the error names these, and that a missing
// recording is an error of usage.
#[test]
fn a_path_may_be_left_out() {
    let rig = Rig::new();
    let verbs = [
        &["info", "--json"][..],
        &["verify", "--json"],
        &["dump", "--format", "jsonl"],
        &["replay", "--speed", "max"],
        &["export", "--to", "stream", "-o", "out", "--force"],
        &["recover"],
        &["compress"],
    ];
    let has_service = Path::new("/var/lib/flatcap").is_dir();
    for verb in verbs {
        let changes_files = matches!(verb[0], "recover" | "compress");
        if has_service && !changes_files {
            eprintln!("skipped: {verb:?} reads the recording of this host's service");
            continue;
        }
        let called = rig.call(verb);
        assert!(called.status == Some(2) && called.out.is_empty(), "{called:?}");
        let says = if changes_files {
            "no PATH is given, and there is no ./flatcap-data: name a segment"
        } else {
            "no PATH is given, and there is neither ./flatcap-data nor /var/lib/flatcap: name a segment"
        };
        assert!(called.err.contains(says), "{called:?}");
    }
    rig.record_samples(&["--source", "load@10ms"], 3);
    for verb in verbs {
        let (named, left_out) = (rig.call(&[verb, &["./flatcap-data"]].concat()), rig.call(verb));
        assert_eq!((named.status, left_out.status), (Some(0), Some(0)), "{left_out:?}");
        // The first call has compressed.
        assert!(verb == ["compress"] || named.out == left_out.out, "{left_out:?}");
    }
    std::fs::create_dir(rig.path("inc")).unwrap();
    std::fs::create_dir(rig.path("inc/empty")).unwrap();
    std::fs::rename(rig.data(), rig.path("inc/cpu")).unwrap();
    for verb in verbs {
        let called = rig.call(&[verb, &["inc"]].concat());
        assert_eq!(called.status, Some(1), "{called:?}");
        assert!(called.err.contains("no segments in inc; name those with segments: inc/cpu\n"), "{called:?}");
    }
}

// Proves that a misspelled source is answered with the nearest name, by record and dump.
#[test]
fn misspelled_sources() {
    let rig = Rig::new();
    let called = rig.call(&["record", "--source", "memroy"]);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(called.err.contains("memory"), "{called:?}");
    rig.record_samples(&["--source", "load@10ms"], 1);
    let called = rig.call(&["dump", "flatcap-data", "--source", "laod"]);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(called.err.contains("the nearest name is load"), "{called:?}");
    // A name that is similar to none is answered with all names.
    let called = rig.call(&["dump", "flatcap-data", "--source", "nope"]);
    assert!(called.status == Some(2) && !called.err.contains("nearest"), "{called:?}");
    assert!(called.err.contains("they have load"), "{called:?}");
    let called = rig.call(&["dump", "flatcap-data", "--fields", "speed"]);
    assert!(called.err.contains("flatcap fields shows all"), "{called:?}");
    // compress answers the same way, and leaves no lock file where there was none.
    let lock = rig.data().join("flatcap.lock");
    std::fs::remove_file(&lock).unwrap();
    let called = rig.call(&["compress", "flatcap-data", "--source", "laod=zstd:1"]);
    assert!(called.status == Some(2) && called.err.contains("the nearest name is load"), "{called:?}");
    assert_eq!(rig.call(&["recover", "flatcap-data"]).status, Some(0));
    assert!(!lock.exists());
}

// Proves that --source +NAME and -NAME change the configured set, in every spelling of an option
// whose value begins with a hyphen, and with the short options of record.
#[test]
fn sources_are_added_and_removed() {
    let rig = Rig::new();
    let text = "[source.cpu]\nenabled = false\n[source.synthetic]\nperiod = \"10ms\"\n";
    rig.write("own.toml", text);
    let recorded = |directory: &str, args: &[&str]| -> Vec<String> {
        let fixed = ["record", "-q", "-f", "300ms", "-c", "own.toml", "-o", directory];
        let called = rig.call(&[&fixed[..], args].concat());
        assert_eq!(called.status, Some(0), "{called:?}");
        let found = rig.call(&["info", "--json", directory]).json();
        let sources = found["sources"].as_array().unwrap();
        sources.iter().map(|source| source["name"].as_str().unwrap().to_owned()).collect()
    };
    let has = |sources: &[String], name: &str| sources.iter().any(|source| source == name);
    let before = recorded("before", &[]);
    assert!(!has(&before, "cpu") && !has(&before, "synthetic") && has(&before, "load"), "{before:?}");
    for (directory, args) in [
        ("apart", &["--source", "-load", "--source", "+synthetic"][..]),
        ("equals", &["--source=-load", "--source=+synthetic"]),
        ("short", &["-s", "-load", "-s", "+synthetic@5ms"]),
        ("list", &["-s", "+synthetic,-load"]),
    ] {
        let after = recorded(directory, args);
        assert!(has(&after, "synthetic") && !has(&after, "load"), "{after:?}");
        assert_eq!(after.len(), before.len(), "{after:?}");
    }
    let called = rig.call(&["record", "--source", "-laod"]);
    assert_eq!(called.status, Some(2), "{called:?}");
    assert!(called.err.contains("--source -laod: no such source; did you mean load?"), "{called:?}");
}

// Proves the rule for the exit status: 1 if no file can be read, 3 if only some can, with the
// reason on standard error; for verify, an unreadable segment is a finding. Method: a file of noise
// with a segment's name, alone and together with a segment.
#[test]
fn the_exit_status_follows_one_rule() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "load@10ms"], 3);
    let name = "0000000009-20231114T221320Z-0000000000000009.bin";
    rig.write(name, "noise, not a segment".repeat(100));
    let good = rig.segments("bin")[0].to_str().unwrap().to_owned();
    for (verb, options, alone) in [
        ("info", &[][..], 1),
        ("dump", &[], 1),
        ("replay", &["--speed", "max"], 1),
        ("export", &["--to", "stream", "-o", "out", "--force"], 1),
        ("compress", &[], 1),
        ("verify", &[], 3),
    ] {
        for (paths, status) in [(&[name][..], alone), (&[name, &good], 3)] {
            let called = rig.call(&[&[verb], paths, options].concat());
            assert_eq!(called.status, Some(status), "{verb} {paths:?}: {called:?}");
            assert!((called.err + &String::from_utf8_lossy(&called.out)).contains(name), "{verb} {paths:?}");
        }
    }
    assert_eq!(rig.call(&["info", "--attachment", "flatcap.toml", name]).status, Some(1));
}

// Proves that an output that cannot be written is reported once, and that record announces itself
// only once it records.
#[test]
fn failures_are_reported_once() {
    let rig = Rig::new();
    rig.record_samples(&["--source", "load@10ms"], 3);
    for args in [&["dump", "flatcap-data"][..], &["replay", "flatcap-data", "--speed", "max"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let called = CallResult::from(rig.command(args).stdout(full).output().unwrap());
        assert_eq!((called.status, called.err.lines().count()), (Some(1), 1), "{called:?}");
        assert!(called.err.starts_with("flatcap: cannot write the output: "), "{called:?}");
    }
    rig.write("file", "");
    let called = rig.call(&["record", "--data-dir", "file/data"]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(!called.err.contains("recording"), "{called:?}");
}

// Proves that `sources` lists the sources with their cost, as JSON for scripts.
#[test]
fn sources_are_listed_with_their_cost() {
    let rig = Rig::new();
    let called = rig.call(&["sources", "--json"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let json = called.json();
    let rows = json.as_array().unwrap();
    assert!(rows.len() >= 9);
    for row in rows {
        if row["available"] == true {
            assert!(row["cost_ns"].as_u64().unwrap() > 0 && row["reason"].is_null(), "{row}");
        } else {
            assert!(row["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{row}");
        }
        assert!(row["default_period_ns"].as_u64().unwrap() >= 1_000_000 && row["needs"].is_array(), "{row}");
    }
    let called = rig.call(&["sources"]);
    assert!(called.text().lines().count() >= 10 && !called.err.contains(" INFO "), "{called:?}");
}

// Proves that recover refuses paths that are not its own, names them and creates nothing there: no
// path, a missing one, no segments, a foreign file name, a directory in use by a recorder.
#[test]
fn recover_touches_only_its_own_files() {
    let rig = Rig::new();
    std::fs::create_dir(rig.path("other")).unwrap();
    rig.write("notes.bin", "not a segment");
    for (args, status, words) in [
        (&["recover"][..], 2, "no PATH is given"),
        (&["recover", "missing"], 1, "missing: No such file"),
        (&["recover", "other"], 1, "no segments in other"),
        (&["recover", "notes.bin"], 2, "not the name of a segment"),
    ] {
        let called = rig.call(args);
        assert_eq!(called.status, Some(status), "{called:?}");
        assert!(called.err.contains(words), "{called:?}");
    }
    assert_eq!(std::fs::read_dir(rig.path("other")).unwrap().count(), 0, "not even a lock file");
    let child = rig.start(&["record", "--source", "load", "--quiet"]);
    crate::rig::eventually("the first segment", || crate::rig::has_segment(&rig.data(), 1));
    let called = rig.call(&["recover", "flatcap-data"]);
    assert_eq!(called.status, Some(1), "{called:?}");
    assert!(called.err.contains("in use by another recorder"), "{called:?}");
    crate::rig::signal(&child, "TERM");
    assert_eq!(crate::rig::finish(child).status, Some(0));
    let called = rig.call(&["recover", "flatcap-data"]);
    assert_eq!(
        (called.status, called.text().trim()),
        (Some(0), "nothing to recover: no unsealed segment; name a damaged file to repair it")
    );
}

// Proves that COLUMNS is heeded in a pipe: no line is wider, unless it is one long word, and none
// ends with blanks. Without it, nothing is left out.
#[test]
fn output_fits_the_columns() {
    let rig = Rig::new();
    let call = |args: &[&str], columns: &str| {
        let mut command = rig.command(args);
        CallResult::from(command.env("COLUMNS", columns).env("FLATCAP_LOG", "off").output().unwrap())
    };
    let assert_fits = |text: &str, width: usize| {
        for line in text.lines() {
            let is_one_word = !line.trim_start().contains(' ');
            assert!(line.chars().count() <= width || is_one_word, "{}: {line}", line.len());
            assert!(!line.ends_with(' '), "{line:?}");
        }
    };
    let recorded = call(&["record", "--for", "300ms", "--source", "cpu@10ms,load@10ms"], "80");
    assert_eq!(recorded.status, Some(0), "{recorded:?}");
    assert_fits(&recorded.err, 80);
    assert!(recorded.err.contains("too narrow for: read times"), "{recorded:?}");
    let child = rig.start(&["record", "--quiet", "--data-dir", "other", "--source", "cpu@10ms,load@10ms"]);
    crate::rig::eventually("samples", || rig.has_samples(5));
    for verb in [&["status"][..], &["info"], &["verify"], &["sources"]] {
        let called = call(verb, "80");
        assert_eq!(called.status, Some(0), "{called:?}");
        assert_fits(&called.text(), 80);
    }
    crate::rig::signal(&child, "TERM");
    assert_eq!(crate::rig::finish(child).status, Some(0));
    let wide = rig.call(&["info"]).text();
    assert!(wide.contains("read p50") && !wide.contains("too narrow"), "{wide}");
    assert!(call(&["info"], "0").text() == wide && call(&["info"], "wide").text() == wide);
}

/// Returns the verbs that a help lists, in groups or under "Commands:".
fn verbs_of(help: &str) -> Vec<String> {
    let listed = help.lines().take_while(|line| *line != "Options:");
    listed
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .map(ToOwned::to_owned)
        .collect()
}

// Proves that every verb of the help has a manual page with its exit status, and that the shells
// can complete it.
#[test]
fn manual_and_completions_have_every_verb() {
    let rig = Rig::new();
    let called = rig.call(&["manual", "pages/man", "--date", "2026-01-02"]);
    assert_eq!(called.status, Some(0), "{called:?}");
    let pages = called.text().lines().count();
    assert_eq!(std::fs::read_dir(rig.path("pages/man")).unwrap().count(), pages);
    let mut verbs = verbs_of(&rig.call(&["--help"]).text());
    assert!(
        ["record", "marks", "completions", "manual"]
            .iter()
            .all(|verb| verbs.iter().any(|known| known == verb)),
        "{verbs:?}"
    );
    for shell in ["bash", "zsh", "fish"] {
        let completions = rig.call(&["completions", shell]).text();
        let kinds = verbs_of(&rig.call(&["import", "--help"]).text());
        assert!(kinds.iter().any(|kind| kind == "stream"), "{kinds:?}");
        for verb in verbs.iter().chain(&kinds) {
            assert!(completions.contains(verb), "{verb} in {shell}");
        }
        for source in ["pressure", "softirqs", "hugepages"] {
            let verbs = completions.matches(source).count();
            assert!(verbs >= 4, "{source} after --source of each verb in {shell}: {verbs}");
        }
    }
    verbs.extend(
        verbs_of(&rig.call(&["import", "--help"]).text()).iter().map(|kind| format!("import-{kind}")),
    );
    for verb in &verbs {
        let page = std::fs::read_to_string(rig.path(&format!("pages/man/flatcap-{verb}.1"))).unwrap();
        assert!(page.contains(".SH EXIT STATUS\n"), "{verb}");
    }
    let others = "flatcap.1, flatcap-convert.1, flatcap-ship.1, flatcap.toml.5, flatcap-service.8";
    assert_eq!(pages, verbs.len() + 5, "{others} and one page per verb");
}

// Proves that a manual that cannot be written is reported with its path. Method: a file instead of
// the directory, a directory instead of a page, an invalid date, an unknown shell.
#[test]
fn a_manual_that_cannot_be_written() {
    let rig = Rig::new();
    rig.write("file", "");
    std::fs::create_dir_all(rig.path("pages/flatcap.1")).unwrap();
    for (args, status, said) in [
        (&["manual", "file"][..], 1, "file: "),
        (&["manual", "pages"], 1, "flatcap.1: "),
        (&["manual", "x", "--date", "yesterday"], 2, "--date"),
        (&["completions", "cmd"], 2, "possible values: bash, zsh, fish"),
    ] {
        let called = rig.call(args);
        assert_eq!(called.status, Some(status), "{called:?}");
        assert!(called.err.contains(said), "{called:?}");
    }
}
