//! The nice value of the process's session.
//!
//! If the kernel uses autogroups (sched(7)), it divides the CPUs among sessions first. The nice
//! value of a process then counts only within its session, and the session has a nice value of its
//! own.

use std::io;

use rustix::process::getpriority_process;

const ENABLED: &str = "/proc/sys/kernel/sched_autogroup_enabled";
const OWN: &str = "/proc/self/autogroup";

/// The nice values that decide how much CPU time the process gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NiceValues {
    /// The nice value of the process.
    pub process: i32,
    /// The nice value of the session. `None` if the kernel does not use autogroups.
    pub session: Option<i32>,
}

/// Gives the session the nice value of the process, if that is lower. Returns the nice values, and
/// the error if the kernel refuses the change. Does nothing unless the process is the leader of the
/// session, as under systemd: otherwise the session has other programs.
///
/// A lower value needs `CAP_SYS_NICE` or a sufficient `RLIMIT_NICE`. In a control group with the
/// controller `cpu`, the weight of the group decides, and the change has no effect.
pub fn raise_session() -> (NiceValues, Option<io::Error>) {
    let process = getpriority_process(None).unwrap_or_default();
    let before = NiceValues { process, session: session_nice() };
    if !leads_session() || before.session.is_none_or(|session| session <= process) {
        return (before, None);
    }
    let refused = std::fs::write(OWN, process.to_string()).err();
    (NiceValues { process, session: session_nice() }, refused)
}

/// Returns whether the process is the leader of its session.
fn leads_session() -> bool {
    // The system call returns 0 for a session of another PID namespace, for which rustix panics.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program is in parentheses. State, parent and process group follow.
    let session = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(3)?.parse::<u32>().ok());
    session == Some(std::process::id())
}

/// Returns the nice value of the session, or `None` if the kernel does not use autogroups.
fn session_nice() -> Option<i32> {
    let enabled = std::fs::read_to_string(ENABLED).ok()?;
    (enabled.trim() == "1").then(|| std::fs::read_to_string(OWN).ok())?.and_then(|text| parse(&text))
}

/// Reads the content of `/proc/self/autogroup`, such as `/autogroup-42 nice 0`.
fn parse(text: &str) -> Option<i32> {
    text.trim_end().rsplit_once(" nice ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the nice value of a session is read, and that other text is not a value.
    #[test]
    fn the_value_of_a_session_is_read() {
        assert_eq!(parse("/autogroup-42 nice -10\n"), Some(-10));
        assert_eq!(parse("/autogroup-4 nice 0"), Some(0));
        assert_eq!((parse(""), parse("/autogroup-4 nice x")), (None, None));
    }

    // Proves that the session of the test, which has other programs, stays as it is.
    #[test]
    fn the_session_of_others_stays() {
        let before = session_nice();
        let (values, refused) = raise_session();
        assert_eq!((values.session, session_nice(), refused.is_none()), (before, before, true));
    }
}
