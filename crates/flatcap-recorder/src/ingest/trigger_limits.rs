//! Limits how often applications fire triggers. Each trigger writes a mark and preserves a time
//! window of the ring.

use std::collections::BTreeMap;

use flatcap_os::clock::NS_PER_S;

/// Minimum time between two triggers of one program of one user. All processes of the program share
/// this limit.
const INTERVAL_NS: u64 = NS_PER_S;
/// Maximum number of triggers per `INTERVAL_NS` from all programs of a user, because a user can run
/// any number of programs.
const TRIGGERS_OF_USER_MAX: usize = 4;

/// The triggers that applications fired in the last second.
#[derive(Debug, Default)]
pub(super) struct TriggerLimits {
    last_ns: BTreeMap<(u32, String), u64>, // by user and program
}

impl TriggerLimits {
    /// Checks whether a program of a user may fire a trigger now.
    ///
    /// # Errors
    /// The application may not fire a trigger now. The message states the reason.
    pub(super) fn permit(&mut self, uid: u32, program: &str, now_ns: u64) -> Result<(), String> {
        self.last_ns.retain(|_, last_ns| now_ns.saturating_sub(*last_ns) < INTERVAL_NS);
        let programs = || self.last_ns.keys().filter(|(user, _)| *user == uid).map(|(_, program)| program);
        if programs().any(|known| known == program) {
            return Err(format!("{program} may fire one trigger a second, all its processes together"));
        }
        if programs().count() >= TRIGGERS_OF_USER_MAX {
            return Err(format!("user {uid} may fire {TRIGGERS_OF_USER_MAX} triggers a second"));
        }
        Ok(())
    }

    /// Records that a program of a user has fired a trigger.
    pub(super) fn note(&mut self, uid: u32, program: String, now_ns: u64) {
        self.last_ns.insert((uid, program), now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a program fires at most one trigger per second and that a user with many programs
    // is limited too. Another program and another user are not affected. Memory is bounded.
    #[test]
    fn triggers_are_limited_by_program_and_user() {
        let mut limits = TriggerLimits::default();
        let mut fire = |uid, program: &str, now_ns| {
            let permitted = limits.permit(uid, program, now_ns).is_ok();
            if permitted {
                limits.note(uid, program.to_owned(), now_ns);
            }
            permitted
        };
        let start_ns = 5 * NS_PER_S;
        assert!(fire(1, "a", start_ns) && !fire(1, "a", start_ns + NS_PER_S - 1));
        assert!(fire(1, "b", start_ns + 1) && fire(2, "a", start_ns + 1));
        assert!(fire(1, "a", start_ns + NS_PER_S));
        let mut fired = 0;
        for step in 0..100_000_u64 {
            fired += usize::from(fire(3, &step.to_string(), 10 * NS_PER_S + step * NS_PER_S / 10_000));
        }
        assert_eq!(fired, 10 * TRIGGERS_OF_USER_MAX);
        assert!(limits.last_ns.len() <= TRIGGERS_OF_USER_MAX + 2);
    }
}
