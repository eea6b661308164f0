//! The events that the thread waits for. Each event has an id in the set of ready events.

/// An event that ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wakeup {
    Stop,
    Listener,
    /// A client has sent a packet or closed its connection.
    Connection(u64),
    /// The process of a client has ended.
    ProcessEnd(u64),
}

impl Wakeup {
    /// Returns the id of the event in a [`ReadySet`].
    pub(super) const fn number(self) -> u64 {
        match self {
            Self::Stop => 0,
            Self::Listener => 1,
            Self::Connection(id) => 2 + 2 * id,
            Self::ProcessEnd(id) => 3 + 2 * id,
        }
    }

    pub(super) const fn from_number(number: u64) -> Self {
        match (number, number % 2) {
            (0, _) => Self::Stop,
            (1, _) => Self::Listener,
            (_, 0) => Self::Connection((number - 2) / 2),
            (_, _) => Self::ProcessEnd((number - 3) / 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each wakeup has a unique number and can be decoded from this number.
    #[test]
    fn a_wakeup_is_found_by_its_number() {
        let of_client = |id| [Wakeup::Connection(id), Wakeup::ProcessEnd(id)];
        let all = [Wakeup::Stop, Wakeup::Listener].into_iter().chain((0..100).flat_map(of_client));
        for (number, wakeup) in (0..).zip(all) {
            assert_eq!((wakeup.number(), Wakeup::from_number(number)), (number, wakeup));
        }
    }
}
