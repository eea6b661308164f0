//! Hosts of which the recorder sees only a part: /proc that hides processes, and namespaces of a
//! container. The recorder reports these limits. It records neither zero nor the container's
//! values.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use crate::rig::{CallResult, Process, Rig, without_settings};

/// The account "nobody".
const NOBODY: u32 = 65_534;

/// Returns whether this host lets the test make namespaces.
fn can_unshare() -> bool {
    let made = geteuid().is_root()
        && Command::new("unshare")
            .args(["-m", "-n", "-C", "--propagation", "private", "true"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    if !made {
        println!("skipped: only root can make namespaces");
    }
    made
}

/// Records for a moment as nobody, in a network namespace of its own, a host whose /proc is mounted
/// with this option.
fn record_hidden(rig: &Rig, hidepid: &str, sources: &[&str]) -> CallResult {
    fs::create_dir_all(rig.path("host/proc")).unwrap();
    fs::create_dir_all(rig.path("host/sys")).unwrap();
    let program = rig.path("flatcap");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_flatcap")).arg(&program).status().unwrap();
    assert!(copied.success());
    for folder in rig.folders() {
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let host = rig.path("host");
    let config = rig.write("host.toml", format!("[recorder]\nhost_root = \"{}\"\n", host.display()));
    let script = format!(
        "mount -t proc -o hidepid={hidepid} proc {0}/proc && exec unshare -n setpriv --reuid {NOBODY} \
         --regid {NOBODY} --clear-groups \"$@\"",
        host.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script, "sh"]).arg(program);
    command.args(["record", "--config", config.to_str().unwrap(), "--for", "1s"]);
    command.args(sources.iter().flat_map(|source| ["--source", source]));
    command.current_dir(rig.path("")).stdin(Stdio::null());
    without_settings(&mut command);
    command.env("RUNTIME_DIRECTORY", rig.folders()[1]).env("FLATCAP_COMPRESS__ENABLED", "false");
    command.env("FLATCAP_STORAGE__MIN_FREE", "0");
    CallResult::from(command.output().unwrap())
}

// Proves that hidden processes are reported: the count is absent, each sample is marked, and the
// log and `info` say why.
#[test]
fn hidden_processes_are_reported() {
    if !can_unshare() {
        return;
    }
    for hidepid in ["2", "invisible"] {
        let rig = Rig::new();
        let called = record_hidden(&rig, hidepid, &["process@100ms", "load@100ms"]);
        assert!(called.err.contains("hidepid"), "{called:?}");
        let rows = rig.call(&["dump", "flatcap-data", "--source", "process", "--format", "jsonl"]).lines();
        assert!(!rows.is_empty(), "{called:?}");
        for row in &rows {
            assert!(row["data"]["count"].is_null() && row["flags"] == 0b10_0001, "{row}");
        }
        let info = rig.call(&["info", "flatcap-data"]);
        let text = String::from_utf8_lossy(&info.out).replace('\n', " ");
        assert!(text.contains("of process: the kernel refused access"), "{text}");
    }
}

// Proves that the recorder skips sources of the network and logs the reason if it may not look at
// the host's first process.
#[test]
fn the_network_of_the_recorder_is_not_the_hosts() {
    if !can_unshare() {
        return;
    }
    let sources = ["network", "snmp", "netstat", "sockets", "softnet", "load"];
    for hidepid in ["1", "2"] {
        let rig = Rig::new();
        let called = record_hidden(&rig, hidepid, &sources);
        let rows = rig.call(&["dump", "flatcap-data", "--format", "jsonl"]).lines();
        assert!(rows.iter().all(|row| row["source"] == "load"), "{rows:?}");
        assert!(called.err.contains("/proc/1/net/dev: "), "{called:?}");
        assert!(called.err.contains("hidepid"), "{called:?}");
    }
}

/// Returns the unified tree, where it is mounted.
fn unified_tree() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    Some(Path::new(line.split(' ').nth(1)?).to_owned())
}

// Proves that a recorder in a cgroup namespace of its own names the groups of the host's processes
// as the tree does, and selects by these names.
#[test]
fn groups_have_the_names_of_the_host() {
    let Some(tree) = unified_tree().filter(|_| can_unshare()) else { return };
    let name = format!("flatcap-test-{}.slice", std::process::id());
    let group = tree.join(&name);
    let (own, other) = (group.join("agent.scope"), group.join("host.service"));
    if fs::create_dir_all(&own).and_then(|()| fs::create_dir_all(&other)).is_err() {
        return println!("skipped: no groups can be made here");
    }
    let sleep = Command::new("sh")
        .args(["-c", &format!("echo $$ > {}/cgroup.procs; exec sleep 60", other.display())])
        .spawn()
        .unwrap();
    let pid = sleep.id();
    let mut sleep = Process(Some(sleep));
    let rig = Rig::new();
    let mount = rig.path("host");
    fs::create_dir(&mount).unwrap();
    for keys in
        ["cgroup_paths = true".to_owned(), format!("cgroup_paths = true\ncgroups = [\"/{name}/host*\"]")]
    {
        let config = rig.write(
            "host.toml",
            format!("[recorder]\nhost_root = {mount:?}\n[source.process]\nperiod = \"100ms\"\n{keys}\n"),
        );
        let script = format!(
            "echo $$ > {0}/cgroup.procs; exec unshare -m -C --propagation private sh -c \
             'mount --rbind / {1}; exec \"$@\"' sh \"$@\"",
            own.display(),
            mount.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(env!("CARGO_BIN_EXE_flatcap"));
        command.args(["record", "--config", config.to_str().unwrap(), "--source", "process", "--for", "2s"]);
        command.current_dir(rig.path("")).stdin(Stdio::null());
        without_settings(&mut command);
        command.env("RUNTIME_DIRECTORY", rig.folders()[1]).env("FLATCAP_COMPRESS__ENABLED", "false");
        command.env("FLATCAP_STORAGE__MIN_FREE", "0");
        let called = CallResult::from(command.output().unwrap());
        assert_eq!(called.status, Some(0), "{called:?}");
        let rows = rig.call(&["dump", "flatcap-data", "--source", "process", "--format", "jsonl"]).lines();
        let lists = rows.iter().filter_map(|row| row["data"]["groups"].as_array());
        let groups: Vec<_> = lists.flatten().collect();
        let path = groups.iter().find(|group| group["pid"] == pid).map(|group| &group["path"]);
        let path = path.unwrap_or_else(|| panic!("{pid} {keys} {groups:?} {called:?}"));
        assert_eq!(path.as_str().unwrap(), format!("/{name}/host.service"), "{called:?}");
        assert!(groups.iter().all(|group| !group["path"].as_str().unwrap().starts_with("/..")), "{groups:?}");
        assert!(!keys.contains("cgroups") || groups.iter().all(|group| group["pid"] == pid), "{groups:?}");
        fs::remove_dir_all(rig.data()).unwrap();
    }
    sleep.kill();
    for folder in [own, other, group] {
        let _left = fs::remove_dir(folder);
    }
}
