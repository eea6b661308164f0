//! Limits the number of log lines about refused requests, so that a user who repeats a request does
//! not fill the log.

use std::collections::BTreeMap;

use flatcap_lane::PushErrorCode;
use flatcap_os::clock::NS_PER_S;

use super::cpu_budget::Payer;

/// Time after a logged refusal during which further refusals of the same user and kind are counted
/// but not logged, in nanoseconds.
const INTERVAL_NS: u64 = 60 * NS_PER_S;
/// Maximum number of recorded pairs, each of a user and a kind of refusal. Refusals of further
/// pairs are not logged during the interval.
const ENTRIES_MAX: usize = 64;

/// The recently logged refusals.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    entries: BTreeMap<(Payer, u32), LoggedRefusal>, // by user and code
}

#[derive(Debug)]
struct LoggedRefusal {
    logged_ns: u64,
    repeats: u64, // since then
}

impl RefusalLog {
    /// Returns `Some` if a refusal must be logged. The value is the number of refusals of the same
    /// user and kind that were not logged since the previous log line. Returns `None` if the
    /// refusal must not be logged.
    pub(super) fn note(&mut self, payer: Payer, code: PushErrorCode, now_ns: u64) -> Option<u64> {
        let key = (payer, code as u32);
        let is_recent = |entry: &LoggedRefusal| now_ns.saturating_sub(entry.logged_ns) < INTERVAL_NS;
        if let Some(entry) = self.entries.get_mut(&key) {
            if is_recent(entry) {
                entry.repeats += 1;
                return None;
            }
            entry.logged_ns = now_ns;
            return Some(std::mem::take(&mut entry.repeats));
        }
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.retain(|_, entry| is_recent(entry));
        }
        if self.entries.len() >= ENTRIES_MAX {
            return None;
        }
        self.entries.insert(key, LoggedRefusal { logged_ns: now_ns, repeats: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that one refusal per user, kind and interval is logged with the number of suppressed
    // refusals, and that memory is bounded.
    #[test]
    fn refusals_are_logged_once() {
        let mut log = RefusalLog::default();
        let mut note = |payer, code, now_ns| log.note(payer, code, now_ns);
        let user = Payer::User(7);
        assert_eq!(note(user, PushErrorCode::Limit, 1), Some(0));
        for repeat in 0..5 {
            assert_eq!(note(user, PushErrorCode::Limit, 2 + repeat), None);
        }
        assert_eq!(note(user, PushErrorCode::Schema, 3), Some(0));
        assert_eq!(note(Payer::Stranger, PushErrorCode::Denied, 3), Some(0));
        assert_eq!(note(user, PushErrorCode::Limit, 1 + INTERVAL_NS), Some(5));
        assert_eq!(note(user, PushErrorCode::Limit, 1 + 2 * INTERVAL_NS), Some(0));
        for uid in 0..10_000 {
            note(Payer::User(uid), PushErrorCode::Limit, 2 + 2 * INTERVAL_NS);
        }
        assert!(log.entries.len() <= ENTRIES_MAX);
        assert_eq!(log.note(Payer::User(9_999), PushErrorCode::Limit, 3 + 3 * INTERVAL_NS), Some(0));
    }
}
