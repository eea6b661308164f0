//! Where the control socket is: one rule for the agent and for whoever looks for it.

use std::path::{Path, PathBuf};

use crate::os::local_socket;
use crate::os::shared_memory::{default_directory, is_own_directory};

/// The service's own.
const SERVICE_SOCKET: &str = "/run/flatcap/control.sock";
/// Name of the one socket in a runtime directory.
const NAME: &str = "control.sock";
/// Several recordings of a user share a directory: each has its run in the name.
const PREFIX: &str = "control-";
const SUFFIX: &str = ".sock";

/// Where the socket of this run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPlace {
    /// Its path.
    pub path: PathBuf,
    /// The directory, if it is this user's own, to be made if it is not there and to be rid of dead runs' sockets.
    pub own_directory: Option<PathBuf>,
}

impl SocketPlace {
    /// As configured; if empty, in the service's runtime directory, else in this user's own, under the run's id.
    pub fn of(configured: &Path, run_id: u64) -> Self {
        if !configured.as_os_str().is_empty() {
            return Self { path: configured.to_owned(), own_directory: None };
        }
        let directory = default_directory();
        if is_runtime_directory(&directory) {
            return Self { path: directory.join(NAME), own_directory: None };
        }
        let path = directory.join(format!("{PREFIX}{run_id:016x}{SUFFIX}"));
        Self { path, own_directory: Some(directory) }
    }
}

/// Whether a file's name is that of a run's socket in a user's own directory.
pub fn is_socket_of_a_run(name: &str) -> bool {
    let run = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    run.is_some_and(|run| run.len() == 16 && run.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Where a running agent may be found, and what to say of the places when there is none.
pub(super) fn candidates() -> (Vec<PathBuf>, String) {
    let directory = default_directory();
    if is_runtime_directory(&directory) {
        // Called by the service itself, or by a test: its own agent and no other.
        let path = directory.join(NAME);
        let said = path.display().to_string();
        return (vec![path], said);
    }
    let mut paths = vec![PathBuf::from(SERVICE_SOCKET)];
    // Anybody may make a directory of that name in /dev/shm, and answer there.
    if is_own_directory(&directory) {
        paths.extend(local_socket::sockets(&directory, is_socket_of_a_run));
    }
    let said = format!("{SERVICE_SOCKET}, {}", directory.join(format!("{PREFIX}*{SUFFIX}")).display());
    (paths, said)
}

/// `$RUNTIME_DIRECTORY` belongs to one service; the other default belongs to a user.
fn is_runtime_directory(directory: &Path) -> bool {
    std::env::var_os("RUNTIME_DIRECTORY")
        .is_some_and(|paths| std::env::split_paths(&paths).any(|path| path == directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what is configured is taken as it is; names of runs are told from others. Method: each kind.
    #[test]
    fn names_are_told_apart() {
        let place = SocketPlace::of(Path::new("/a/b.sock"), 7);
        assert_eq!(place, SocketPlace { path: "/a/b.sock".into(), own_directory: None });
        assert!(is_socket_of_a_run("control-00000000000000af.sock"));
        for name in
            ["control.sock", "control-af.sock", "control-00000000000000ag.sock", "x-00000000000000af.sock"]
        {
            assert!(!is_socket_of_a_run(name), "{name}");
        }
    }
}
