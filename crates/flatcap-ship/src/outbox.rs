//! Which manifests are still to be announced: their order, how many are kept, and when a failed
//! attempt is repeated.

use std::collections::VecDeque;
use std::time::Duration;

/// Most manifests that are kept, some 500 KB: those of three days with a segment a minute.
pub(crate) const UNSENT_MAX: usize = 4096;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageOutcome {
    /// The bus has it.
    Acknowledged,
    /// The bus takes others, but never this one.
    Refused,
    /// The store has no such manifest: the process that was about to put it ended before.
    NoManifest,
}

/// A manifest that is in the store, or may be, and whose message is not acknowledged.
#[derive(Debug)]
struct UnsentMessage {
    /// Names this entry: the same manifest may leave the outbox and come again while it is sent.
    ticket: u64,
    manifest: String,
}

/// The manifests to announce, by name and in the order in which they were shipped.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The manifest that is about to be put.
    prepared: Option<String>,
    unsent: VecDeque<UnsentMessage>,
    next_ticket: u64,
    sent: u64,
    dropped: u64,
    failures: u32,
    /// When the next attempt is due, on the caller's clock.
    retry_ns: u64,
}

impl Outbox {
    /// Creates an outbox with what an earlier process left.
    pub(crate) fn of(manifests: Vec<String>) -> Self {
        let mut outbox = Self::default();
        for manifest in manifests {
            outbox.add(manifest);
        }
        outbox
    }

    /// Takes a manifest that is about to be put. Returns whether it is kept: the outbox may be
    /// full.
    pub(crate) fn prepare(&mut self, manifest: &str) -> bool {
        // An attempt before this one has left it.
        self.unsent.retain(|message| message.manifest != manifest);
        let is_kept = self.unsent.len() < UNSENT_MAX;
        self.prepared = is_kept.then(|| manifest.to_owned());
        is_kept
    }

    /// Makes the manifest that was prepared due. Also if it could not be put: the answer of the
    /// store may be lost alone. Returns false if a manifest that was put is not announced.
    pub(crate) fn post(&mut self, manifest: &str, is_put: bool) -> bool {
        let is_kept = self.prepared.take().is_some_and(|prepared| prepared == manifest);
        if is_kept {
            self.add(manifest.to_owned());
        } else if is_put {
            self.dropped += 1;
        }
        is_kept || !is_put
    }

    fn add(&mut self, manifest: String) {
        if self.unsent.len() < UNSENT_MAX {
            self.unsent.push_back(UnsentMessage { ticket: self.next_ticket, manifest });
            self.next_ticket += 1;
        } else {
            self.dropped += 1;
        }
    }

    /// Returns the manifest whose message is due, with its ticket. None while a failed attempt is
    /// not to be repeated yet.
    pub(crate) fn due(&self, now_ns: u64) -> Option<(u64, &str)> {
        let first = self.unsent.front()?;
        (now_ns >= self.retry_ns).then_some((first.ticket, first.manifest.as_str()))
    }

    /// Returns how long to wait for the next message to be due. None if there is none.
    pub(crate) fn wait(&self, now_ns: u64) -> Option<Duration> {
        self.unsent.front().map(|_| Duration::from_nanos(self.retry_ns.saturating_sub(now_ns)))
    }

    /// Removes the entry with a ticket, if it is still there.
    pub(crate) fn settle(&mut self, ticket: u64, outcome: MessageOutcome) {
        self.unsent.retain(|message| message.ticket != ticket);
        match outcome {
            MessageOutcome::Acknowledged => self.sent += 1,
            MessageOutcome::Refused => self.dropped += 1,
            MessageOutcome::NoManifest => return,
        }
        // The bus has answered.
        self.failures = 0;
    }

    /// Counts an attempt that failed. The next one is due after a pause.
    pub(crate) fn fail(&mut self, now_ns: u64, pause: Duration) {
        self.failures = self.failures.saturating_add(1);
        let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.retry_ns = now_ns.saturating_add(pause_ns);
    }

    /// Returns all manifests that may be unsent, the one that is about to be put last.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = &str> {
        self.unsent.iter().map(|message| &message.manifest).chain(&self.prepared).map(String::as_str)
    }

    /// Returns how many messages are not acknowledged.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent.len() as u64
    }

    /// Returns how many messages were acknowledged.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns how many manifests are not announced: the outbox was full, or the bus has refused
    /// the message.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns how many attempts failed in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(outbox: &mut Outbox, manifest: &str) -> bool {
        outbox.prepare(manifest);
        outbox.post(manifest, true)
    }

    fn manifests(outbox: &Outbox) -> Vec<&str> {
        outbox.manifests().collect()
    }

    fn settle_first(outbox: &mut Outbox, outcome: MessageOutcome) {
        let (ticket, _) = outbox.due(u64::MAX).unwrap();
        outbox.settle(ticket, outcome);
    }

    // Proves that messages are due in the order of shipping, after what an earlier process left,
    // and that each outcome is counted once.
    #[test]
    fn messages_are_due_in_order() {
        let mut outbox = Outbox::of(vec!["a".to_owned(), "b".to_owned()]);
        assert!(put(&mut outbox, "c") && outbox.prepare("d"));
        assert_eq!(manifests(&outbox), ["a", "b", "c", "d"], "what is about to be put is kept, too");
        assert_eq!(outbox.unsent(), 3, "but not due");
        settle_first(&mut outbox, MessageOutcome::Acknowledged);
        settle_first(&mut outbox, MessageOutcome::NoManifest);
        assert_eq!((outbox.due(0), outbox.sent(), outbox.dropped()), (Some((2, "c")), 1, 0));
        settle_first(&mut outbox, MessageOutcome::Refused);
        assert_eq!((outbox.due(0), outbox.wait(0), outbox.dropped()), (None, None, 1));
        assert!(outbox.post("d", false), "its put failed, and may have been done");
        assert_eq!(outbox.due(0), Some((3, "d")));
    }

    // Proves that the outcome of a message does not settle a later one of the same manifest: one
    // that was put after nobody found it.
    #[test]
    fn tickets_tell_attempts_apart() {
        let mut outbox = Outbox::of(vec!["a".to_owned()]);
        let (before, _) = outbox.due(0).unwrap();
        assert!(put(&mut outbox, "a"));
        outbox.settle(before, MessageOutcome::NoManifest);
        assert_eq!(manifests(&outbox), ["a"]);
        settle_first(&mut outbox, MessageOutcome::Acknowledged);
        assert_eq!((outbox.unsent(), outbox.sent()), (0, 1));
    }

    // Proves that the oldest are kept up to the bound, that each one beyond it is counted once, and
    // that a failed put is not.
    #[test]
    fn the_bound_is_kept_and_counted() {
        let mut outbox = Outbox::of((0..UNSENT_MAX + 2).map(|number| number.to_string()).collect());
        assert_eq!((outbox.unsent(), outbox.dropped()), (UNSENT_MAX as u64, 2));
        assert!(!outbox.prepare("more") && !outbox.post("more", true));
        assert!(!outbox.prepare("more") && outbox.post("more", false));
        assert_eq!((outbox.unsent(), outbox.dropped()), (UNSENT_MAX as u64, 3));
        settle_first(&mut outbox, MessageOutcome::Acknowledged);
        assert!(put(&mut outbox, "last") && !put(&mut outbox, "beyond"));
        assert_eq!((manifests(&outbox).first(), manifests(&outbox).last()), (Some(&"1"), Some(&"last")));
    }

    // Proves that nothing is due before the pause after a failure is over, new messages included,
    // and that an answer of the bus ends the row of failures.
    #[test]
    fn failures_delay_the_next_attempt() {
        let mut outbox = Outbox::of(vec!["a".to_owned(), "b".to_owned()]);
        outbox.fail(100, Duration::from_nanos(50));
        assert!(put(&mut outbox, "c"));
        assert_eq!((outbox.due(149), outbox.wait(149)), (None, Some(Duration::from_nanos(1))));
        assert_eq!((outbox.due(150), outbox.wait(151)), (Some((0, "a")), Some(Duration::ZERO)));
        outbox.fail(150, Duration::MAX);
        assert_eq!((outbox.failures(), outbox.due(u64::MAX - 1)), (2, None), "nothing overflows");
        settle_first(&mut outbox, MessageOutcome::NoManifest);
        assert_eq!(outbox.failures(), 2, "only the store has answered");
        settle_first(&mut outbox, MessageOutcome::Refused);
        assert_eq!(outbox.failures(), 0);
    }
}
