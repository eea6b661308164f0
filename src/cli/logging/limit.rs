//! How many lines one call site may log: a burst, and then none until its time is over. Pure.

use std::collections::HashMap;
use std::hash::Hash;

/// So many lines of one call site pass in [`WINDOW_NS`]. A start names that many sources that the host lacks, each by the same line.
pub(super) const BURST: u32 = 50;
/// Ten seconds, in nanoseconds, from a call site's first line.
pub(super) const WINDOW_NS: u64 = 10_000_000_000;

/// One a process. As large as there are call sites that have logged in the last ten seconds: the program has so many.
#[derive(Debug)]
pub(super) struct RateLimit<Site>(HashMap<Site, Window>);

#[derive(Debug)]
struct Window {
    begin_ns: u64,
    passed: u32, // at most BURST
    left_out: u64,
}

impl<Site: Hash + Eq + Copy> RateLimit<Site> {
    pub(super) fn new() -> Self {
        Self(HashMap::new())
    }

    /// Whether a line of this call site may pass.
    pub(super) fn passes(&mut self, site: Site, now_ns: u64) -> bool {
        let window = self.0.entry(site).or_insert(Window { begin_ns: now_ns, passed: 0, left_out: 0 });
        if now_ns.saturating_sub(window.begin_ns) >= WINDOW_NS && window.left_out == 0 {
            (window.begin_ns, window.passed) = (now_ns, 0);
        }
        // What was left out is told first: until then the window stays.
        if window.passed < BURST {
            window.passed += 1;
            return true;
        }
        window.left_out = window.left_out.saturating_add(1);
        false
    }

    /// Closes the windows whose time is over: which call sites had lines left out, and how many.
    pub(super) fn close(&mut self, now_ns: u64) -> Vec<(Site, u64)> {
        let mut closed = Vec::new();
        self.0.retain(|site, window| {
            let is_open = now_ns.saturating_sub(window.begin_ns) < WINDOW_NS;
            if !is_open && window.left_out > 0 {
                closed.push((*site, window.left_out));
            }
            is_open
        });
        closed
    }

    /// Whether no window is open, and nothing has to be closed.
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a burst passes, what follows does not, and is counted to the last line; other call sites do not notice; after the window
    // all is as before. Method: times given by hand.
    #[test]
    fn a_burst_passes() {
        let mut limit = RateLimit::new();
        let passed = (0..200).filter(|step| limit.passes("a", *step)).count();
        assert_eq!(passed, 50);
        assert!(limit.passes("b", 100));
        assert_eq!(limit.close(WINDOW_NS - 1), []);
        assert!(!limit.passes("a", WINDOW_NS + 5), "not told yet");
        assert_eq!(limit.close(WINDOW_NS + 5), [("a", 151)]);
        assert!(!limit.is_idle(), "b began later");
        assert!(limit.passes("a", WINDOW_NS + 6));
        assert_eq!(limit.close(3 * WINDOW_NS), []);
        assert!(limit.is_idle());
    }

    // Goal: who logs slowly is never limited. Method: one line a second for an hour, windows closed now and then.
    #[test]
    fn slow_lines_pass() {
        let mut limit = RateLimit::new();
        for second in 0..3600 {
            assert!(limit.passes((), second * 1_000_000_000));
            if second % 100 == 0 {
                assert_eq!(limit.close(second * 1_000_000_000), []);
            }
        }
    }
}
