//! A service whose configuration is refused, or names a directory that the service may not write
//! to.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;

use serde_json::Value;

use crate::rig::{CallResult, Rig, eventually, finish, has_segment, signal};

const BAD: &str = "[source.load]\nperiod = \"fast\"\n[storage]\nsegment_sise = \"4MiB\"\n";

/// Starts `record` as the unit does, and waits until it answers.
fn start(rig: &Rig) -> Child {
    let child = rig.start(&["record", "--quiet", "--config", "etc.toml", "--last-good", "kept.toml"]);
    eventually("a recorder that answers", || status(rig).0 != Some(1));
    child
}

/// Returns the exit status of `status`, and its report on the configuration.
fn status(rig: &Rig) -> (Option<i32>, Value) {
    let called = rig.call(&["status", "--json"]);
    let reload = if called.status == Some(1) { Value::Null } else { called.json()["reload"].clone() };
    (called.status, reload)
}

fn end(child: Child) -> CallResult {
    signal(&child, "TERM");
    finish(child)
}

// Proves that a service with a refused configuration records with the last good one, reports it
// everywhere, and accepts the corrected one on a reload; without --last-good, or without a saved
// one, the start fails.
#[test]
fn a_refused_configuration_is_replaced_by_the_last_good_one() {
    let rig = Rig::new();
    rig.write("etc.toml", BAD);
    let record = ["record", "--quiet", "--config", "etc.toml"];
    let none = rig.call(&[&record[..], &["--last-good", "kept.toml"]].concat());
    assert_eq!(none.status, Some(2), "{none:?}");
    assert!(none.err.contains("etc.toml:2:10: ") && none.err.contains("there is no last good"), "{none:?}");
    assert!(!has_segment(&rig.data(), 0) && !rig.path("kept.toml").exists());

    rig.write("etc.toml", "[source.load]\nperiod = \"20ms\"\n");
    let good = end(start(&rig));
    assert_eq!(good.status, Some(0), "{good:?}");
    assert!(!good.err.contains("last good"), "{good:?}");
    assert_eq!(mode(&rig.path("kept.toml")), 0o600);

    rig.write("etc.toml", BAD);
    let plain = rig.call(&record);
    assert_eq!(plain.status, Some(2), "reported, without a fallback: {plain:?}");
    let mut command = rig.command(&[&record[..], &["--last-good", "kept.toml", "--for", "300ms"]].concat());
    let by_variable = CallResult::from(command.env("FLATCAP_STORAGE__DRAIN", "1ms").output().unwrap());
    assert_eq!(by_variable.status, Some(0), "{by_variable:?}");

    let child = start(&rig);
    let (status_code, reload) = status(&rig);
    assert_eq!(
        (status_code, &reload["fallback"], &reload["current"]),
        (Some(3), &true.into(), &false.into())
    );
    assert!(reload["last"].as_str().unwrap().contains("etc.toml:2:10: "), "{reload}");
    let page = rig.call(&["status"]).text();
    assert!(page.contains("refused, recording with the last good configuration: etc.toml:2:10: "), "{page}");
    let refused = rig.call(&["reload"]);
    assert_eq!((refused.status, status(&rig).0), (Some(1), Some(3)), "{refused:?}");

    rig.write("etc.toml", "[source.load]\nperiod = \"30ms\"\n");
    let done = rig.call(&["reload"]);
    assert_eq!(done.status, Some(0), "{done:?}");
    let (status_code, reload) = status(&rig);
    assert_eq!(
        (status_code, &reload["fallback"], &reload["current"]),
        (Some(0), &false.into(), &true.into())
    );
    let kept = || std::fs::read_to_string(rig.path("kept.toml")).unwrap();
    eventually("the corrected one is saved", || kept().contains("period = \"30ms\""));
    let ended = end(child);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    for part in ["etc.toml:2:10: ", "etc.toml:4:1: ", "recording with the last good configuration, kept.toml"]
    {
        assert!(ended.err.contains(part), "{part}: {ended:?}");
    }
    assert_eq!(rig.verify()["unexplained"], 0);
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

// Proves that a command that is not trusted, because others may change its configuration, is not
// run through the last good configuration either. Method: a group-writable configuration, then a
// refused one.
#[test]
fn an_untrusted_command_is_not_saved() {
    let rig = Rig::new();
    let mark = rig.path("mark");
    let command = format!("[source.command.x]\ncommand = [\"/usr/bin/touch\", \"{}\"]\n", mark.display());
    let config = rig.write("etc.toml", format!("[source.load]\nperiod = \"20ms\"\n{command}"));
    std::fs::set_permissions(&config, Permissions::from_mode(0o666)).unwrap();
    let ended = end(start(&rig));
    assert!(ended.err.contains("so the command is not run"), "{ended:?}");
    rig.write("etc.toml", BAD);
    let record = ["record", "--quiet", "--config", "etc.toml", "--last-good", "kept.toml", "--for", "1500ms"];
    let ended = rig.call(&record);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(!mark.exists(), "the command was run");
}

// Proves that a data directory that the service may not write to is reported with a remedy, by
// check-config and at the start. Method: the unit's variables, and a directory that is not
// writable.
#[test]
fn a_directory_outside_the_service_is_explained() {
    let rig = Rig::new();
    std::fs::create_dir(rig.path("etc")).unwrap();
    rig.write("etc/flatcap.toml", "[recorder]\ndata_dir = \"/proc/recordings\"\n");
    let state = rig.path("state");
    let call = |args: &[&str]| {
        let mut command = rig.command(args);
        command.env("CONFIGURATION_DIRECTORY", rig.path("etc")).env("STATE_DIRECTORY", &state);
        CallResult::from(command.output().unwrap())
    };
    let what = "a drop-in of the unit, ReadWritePaths=/proc/recordings; flatcap-service(8)";
    let checked = call(&["check-config"]);
    assert_eq!(checked.status, Some(0), "{checked:?}");
    assert!(checked.err.contains(what) && checked.err.lines().count() == 1, "{checked:?}");
    rig.write("etc/flatcap.toml", format!("[recorder]\ndata_dir = \"{}/below\"\n", state.display()));
    assert_eq!(call(&["check-config"]).err, "");

    // As another account: root may write where no one else may.
    std::fs::create_dir(rig.path("roots")).unwrap();
    let roots = rig.path("roots").join("rec");
    rig.write("roots.toml", format!("[recorder]\ndata_dir = \"{}\"\n", roots.display()));
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to run the program as another account");
        return;
    }
    let mut command = rig.command_as(65534, &["record", "--config", "roots.toml", "--for", "100ms"]);
    let started = CallResult::from(command.env("STATE_DIRECTORY", &state).output().unwrap());
    assert_eq!(started.status, Some(1), "{started:?}");
    assert!(
        started.err.contains("Permission denied") && started.err.contains("ReadWritePaths="),
        "{started:?}"
    );
}
