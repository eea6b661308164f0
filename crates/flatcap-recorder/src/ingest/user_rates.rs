//! The rate limit of each user. For each user, the pushed amount of data is checked against limits
//! per second.

use std::collections::BTreeMap;

use flatcap_os::clock::NS_PER_S;
use flatcap_os::throttle::Throttle;

use super::limits::PushLimits;

/// Maximum time over which a user's unused rate accumulates. The accumulated amount can be used in
/// one burst.
const BURST_NS: u64 = NS_PER_S;
/// Maximum number of users with accounts. If there are more users, accounts without debt are
/// dropped.
const USERS_MAX: usize = 64;
/// The configuration keys of the limits.
const BYTES_KEY: &str = "user_bytes_per_second";
const FRAMES_KEY: &str = "user_frames_per_second";
/// Minimum interval between two warnings about the same user.
const WARNING_INTERVAL_NS: u64 = 60 * NS_PER_S;

/// The amount of data read from a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PushedAmount {
    pub(super) bytes: u64,
    pub(super) frames: u64,
}

/// The accounts of all users.
#[derive(Debug)]
pub(super) struct UserRates {
    bytes_per_second: u64,
    frames_per_second: u64,
    users: BTreeMap<u32, UserAccount>, // by uid
}

#[derive(Debug)]
struct UserAccount {
    bytes: Option<Throttle>,
    frames: Option<Throttle>,
    next_warning_ns: u64,
}

impl UserRates {
    pub(super) fn new(limits: &PushLimits) -> Self {
        Self {
            bytes_per_second: limits.user_bytes_per_second,
            frames_per_second: limits.user_frames_per_second,
            users: BTreeMap::new(),
        }
    }

    /// Returns whether the recorder may read more data from a user. If the user has exceeded a
    /// limit, logs a warning, at most once a minute per user.
    pub(super) fn permits(&mut self, uid: u32, now_ns: u64) -> bool {
        let Some(account) = self.users.get_mut(&uid) else { return true };
        let Some(key) = account.exceeded(now_ns) else { return true };
        if now_ns >= account.next_warning_ns {
            account.next_warning_ns = now_ns.saturating_add(WARNING_INTERVAL_NS);
            let limit = if key == BYTES_KEY { self.bytes_per_second } else { self.frames_per_second };
            tracing::warn!(
                uid,
                limit,
                "the applications of a user push more than [push] {key} allows: their lanes wait"
            );
        }
        false
    }

    /// Charges a user for the amount of data that was read.
    pub(super) fn charge(&mut self, uid: u32, amount: PushedAmount, now_ns: u64) {
        let rates = (self.bytes_per_second, self.frames_per_second);
        if rates == (0, 0) || amount.frames == 0 {
            return;
        }
        if self.users.len() >= USERS_MAX {
            self.users.retain(|_, account| account.wait_ns(now_ns.saturating_sub(BURST_NS)) > 0);
        }
        let account = self.users.entry(uid).or_insert_with(|| UserAccount::new(rates));
        for (throttle, amount) in [(&account.bytes, amount.bytes), (&account.frames, amount.frames)] {
            if let Some(throttle) = throttle {
                throttle.charge(now_ns, amount);
            }
        }
    }
}

impl UserAccount {
    fn new((bytes_per_second, frames_per_second): (u64, u64)) -> Self {
        let throttle = |rate: u64| (rate > 0).then(|| Throttle::new(rate).with_burst(BURST_NS));
        Self { bytes: throttle(bytes_per_second), frames: throttle(frames_per_second), next_warning_ns: 0 }
    }

    /// Returns the configuration key of the limit that the user has exceeded, so that the user must
    /// wait.
    fn exceeded(&self, now_ns: u64) -> Option<&'static str> {
        let limits = [(&self.bytes, BYTES_KEY), (&self.frames, FRAMES_KEY)];
        let is_exceeded = |throttle: &&Throttle| throttle.wait_ns(now_ns) > 0;
        limits.into_iter().find_map(|(throttle, key)| throttle.as_ref().filter(is_exceeded).map(|_| key))
    }

    fn wait_ns(&self, now_ns: u64) -> u64 {
        let throttles = [&self.bytes, &self.frames].into_iter().flatten();
        throttles.map(|throttle| throttle.wait_ns(now_ns)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::limits::tests::LIMITS;

    const MS: u64 = 1_000_000;

    fn rates(bytes: u64, frames: u64) -> UserRates {
        UserRates::new(&PushLimits { user_bytes_per_second: bytes, user_frames_per_second: frames, ..LIMITS })
    }

    /// Returns the number of bytes that may be read within a time interval if the user always has
    /// more data.
    fn read_in(rates: &mut UserRates, uid: u32, from_ns: u64, to_ns: u64) -> u64 {
        let amount = PushedAmount { bytes: 1000, frames: 10 };
        let mut read = 0;
        for now_ns in (from_ns..to_ns).step_by(usize::try_from(10 * MS).unwrap()) {
            while rates.permits(uid, now_ns) {
                rates.charge(uid, amount, now_ns);
                read += amount.bytes;
            }
        }
        read
    }

    // Proves that, after a burst of one second, a user gets the rate of the lower limit, and that
    // other users do not affect this rate.
    #[test]
    fn each_user_gets_its_rate() {
        for (bytes, frames) in [(1 << 20, 0), (0, 10_486), (1 << 20, 1 << 30), (1 << 40, 10_486)] {
            let mut rates = rates(bytes, frames);
            let (start_ns, rate) = (5 * NS_PER_S, f64::from(1 << 20));
            for uid in [1, 2] {
                let burst = read_in(&mut rates, uid, start_ns, start_ns + 1);
                let steady = read_in(&mut rates, uid, start_ns + 1, start_ns + 10 * NS_PER_S);
                let relative =
                    |read: u64, seconds: f64| f64::from(u32::try_from(read).unwrap()) / (rate * seconds);
                assert!((0.99..1.01).contains(&relative(burst, 1.0)), "{bytes} {frames}: {burst}");
                assert!((0.99..1.01).contains(&relative(steady, 10.0)), "{bytes} {frames}: {steady}");
            }
        }
    }

    // Proves that without a limit no user waits, that a large amount causes a wait, that no sum
    // overflows, and that the number of accounts is bounded.
    #[test]
    fn accounts_are_bounded() {
        let mut unlimited = rates(0, 0);
        unlimited.charge(1, PushedAmount { bytes: u64::MAX, frames: u64::MAX }, 1);
        assert!(unlimited.permits(1, 1) && unlimited.users.is_empty());
        let mut rates = rates(1000, 0);
        rates.charge(1, PushedAmount { bytes: 5000, frames: 1 }, NS_PER_S);
        assert!(!rates.permits(1, NS_PER_S) && !rates.permits(1, 5 * NS_PER_S - 1));
        assert!(rates.permits(1, 5 * NS_PER_S), "5 s of rate, less the burst");
        rates.charge(1, PushedAmount { bytes: u64::MAX, frames: 1 }, u64::MAX);
        assert!(rates.permits(1, u64::MAX));
        for uid in 2..1000 {
            rates.charge(uid, PushedAmount { bytes: 1, frames: 1 }, u64::from(uid) * NS_PER_S);
        }
        assert!(rates.users.len() <= USERS_MAX, "{}", rates.users.len());
    }
}
