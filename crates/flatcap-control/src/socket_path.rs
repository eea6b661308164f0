//! The path of the control socket. The recorder and its clients find it by the same rule.

use std::path::{Path, PathBuf};

use flatcap_os::local_socket;
use flatcap_os::shared_memory::{default_directory, is_private_directory};

/// The socket of the system service.
const SERVICE_SOCKET: &str = "/run/flatcap/control.sock";
/// The socket's name in the runtime directory of a service.
const NAME: &str = "control.sock";
/// Prefix of the socket's name in a user's own directory. Several recordings of a user share this
/// directory, so each name also contains the run id.
const PREFIX: &str = "control-";
const SUFFIX: &str = ".sock";

/// The socket path of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPath {
    /// The path.
    pub path: PathBuf,
    /// The directory that contains the socket, if it is this user's own directory. This directory
    /// is created if it is missing, and stale sockets in it are removed.
    pub own_directory: Option<PathBuf>,
}

impl SocketPath {
    /// Returns the configured path. If it is empty, returns a path in the service's runtime
    /// directory. If that directory does not exist, returns a path in the user's own directory. The
    /// file name then contains the run id.
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

/// Returns whether `name` is the name of a run's socket in a user's own directory.
pub fn is_socket_of_a_run(name: &str) -> bool {
    let run = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    run.is_some_and(|run| run.len() == 16 && run.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns the paths at which a running recorder may be found, and a description of these paths for
/// error messages.
pub(super) fn candidates() -> (Vec<PathBuf>, String) {
    let directory = default_directory();
    if is_runtime_directory(&directory) {
        // The caller is the service itself or a test, so only the recorder of this directory is a
        // candidate.
        let path = directory.join(NAME);
        let description = path.display().to_string();
        return (vec![path], description);
    }
    let mut paths = vec![PathBuf::from(SERVICE_SOCKET)];
    // The directory must be private, because anyone can create a directory of that name in /dev/shm
    // and answer there.
    if is_private_directory(&directory) {
        paths.extend(local_socket::list_sockets(&directory, is_socket_of_a_run));
    }
    let description = format!("{SERVICE_SOCKET}, {}", directory.join(format!("{PREFIX}*{SUFFIX}")).display());
    (paths, description)
}

/// Returns whether the directory is `$RUNTIME_DIRECTORY`, which belongs to one service. Without
/// this variable, the default directory belongs to a user.
fn is_runtime_directory(directory: &Path) -> bool {
    std::env::var_os("RUNTIME_DIRECTORY")
        .is_some_and(|paths| std::env::split_paths(&paths).any(|path| path == directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a configured path is used as it is, and that socket names of runs are recognized.
    #[test]
    fn socket_names_are_recognized() {
        let place = SocketPath::of(Path::new("/a/b.sock"), 7);
        assert_eq!(place, SocketPath { path: "/a/b.sock".into(), own_directory: None });
        assert!(is_socket_of_a_run("control-00000000000000af.sock"));
        for name in
            ["control.sock", "control-af.sock", "control-00000000000000ag.sock", "x-00000000000000af.sock"]
        {
            assert!(!is_socket_of_a_run(name), "{name}");
        }
    }
}
