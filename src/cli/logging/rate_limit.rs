//! Limits the rate of log lines per call site. A call site may log a burst. After that, it may log
//! nothing until the window ends. The functions take the time as an argument.

use std::collections::HashMap;
use std::hash::Hash;

/// Maximum number of lines that one call site may log in [`WINDOW_NS`]. At the start of the
/// recorder, one call site logs a line for each source that the host lacks. All of these lines are
/// within the limit.
pub(super) const BURST: u32 = 50;
/// Length of a window, in nanoseconds. A window of ten seconds begins with the first line of a call
/// site.
pub(super) const WINDOW_NS: u64 = 10_000_000_000;

/// The windows of all call sites that logged in the last ten seconds. There is one such map per
/// process. Its size is bounded by the number of call sites in the program.
#[derive(Debug)]
pub(super) struct RateLimit<Site>(HashMap<Site, RateWindow>);

#[derive(Debug)]
struct RateWindow {
    begin_ns: u64,
    allowed: u32, // at most BURST
    suppressed: u64,
}

impl<Site: Hash + Eq + Copy> RateLimit<Site> {
    pub(super) fn new() -> Self {
        Self(HashMap::new())
    }

    /// Counts a line of this call site and returns whether it may be logged.
    pub(super) fn allows(&mut self, site: Site, now_ns: u64) -> bool {
        let window = self.0.entry(site).or_insert(RateWindow { begin_ns: now_ns, allowed: 0, suppressed: 0 });
        if now_ns.saturating_sub(window.begin_ns) >= WINDOW_NS && window.suppressed == 0 {
            (window.begin_ns, window.allowed) = (now_ns, 0);
        }
        // A window with suppressed lines is kept until these lines are reported.
        if window.allowed < BURST {
            window.allowed += 1;
            return true;
        }
        window.suppressed = window.suppressed.saturating_add(1);
        false
    }

    /// Removes the windows that have ended. Returns each call site whose lines were suppressed,
    /// with the number of these lines.
    pub(super) fn close(&mut self, now_ns: u64) -> Vec<(Site, u64)> {
        let mut closed = Vec::new();
        self.0.retain(|site, window| {
            let is_open = now_ns.saturating_sub(window.begin_ns) < WINDOW_NS;
            if !is_open && window.suppressed > 0 {
                closed.push((*site, window.suppressed));
            }
            is_open
        });
        closed
    }

    /// Returns whether no window is open.
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a burst passes, and that later lines are suppressed and counted. Also proves that
    // other call sites are not affected, and that the next window allows a full burst again.
    #[test]
    fn a_burst_passes() {
        let mut limit = RateLimit::new();
        let passed = (0..200).filter(|step| limit.allows("a", *step)).count();
        assert_eq!(passed, 50);
        assert!(limit.allows("b", 100));
        assert_eq!(limit.close(WINDOW_NS - 1), []);
        assert!(!limit.allows("a", WINDOW_NS + 5), "not reported yet");
        assert_eq!(limit.close(WINDOW_NS + 5), [("a", 151)]);
        assert!(!limit.is_idle(), "the window of b started later");
        assert!(limit.allows("a", WINDOW_NS + 6));
        assert_eq!(limit.close(3 * WINDOW_NS), []);
        assert!(limit.is_idle());
    }

    // Proves that no line is suppressed if a call site logs one line a second.
    #[test]
    fn slow_lines_pass() {
        let mut limit = RateLimit::new();
        for second in 0..3600 {
            assert!(limit.allows((), second * 1_000_000_000));
            if second % 100 == 0 {
                assert_eq!(limit.close(second * 1_000_000_000), []);
            }
        }
    }
}
