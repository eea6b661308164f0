//! The manifests that are not announced yet. The outbox keeps the manifests in order, limits their
//! number, and stores the time of the next attempt after a failure.

use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of manifests that are kept. A full outbox needs about 500 KB.
// This is enough for almost three days with a segment per minute.
pub(crate) const UNSENT_MAX: usize = 4096;

/// The outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageOutcome {
    /// The bus has acknowledged the message.
    Acknowledged,
    /// The bus accepts other messages, but will never accept this message.
    Refused,
    /// The store has no such manifest, because the process ended before it put the manifest.
    NoManifest,
}

/// A manifest whose message is not acknowledged. The manifest is in the store, or it is unknown
/// whether the store has it.
#[derive(Debug)]
struct UnsentMessage {
    /// The identifier of this entry.
    // Entries have numbers because the same manifest may be removed and added again while its
    // message is being sent.
    ticket: u64,
    manifest: String,
    /// Whether the put of the manifest is known to have succeeded.
    is_put: bool,
}

/// Prefix of a manifest's line in the outbox file if it is unknown whether the manifest was put.
const NOT_KNOWN: char = '?';

/// The names of the manifests to announce, in the order in which their segments were shipped.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The manifest that is about to be put.
    prepared: Option<String>,
    unsent: VecDeque<UnsentMessage>,
    next_ticket: u64,
    sent: u64,
    dropped: u64,
    failures: u32,
    /// The time of the next attempt, by the caller's clock.
    retry_ns: u64,
}

impl Outbox {
    /// Creates an outbox with the [`lines`](Self::lines) that an earlier process has left.
    pub(crate) fn of(lines: Vec<String>) -> Self {
        let mut outbox = Self::default();
        for line in lines {
            let manifest = manifest_of(&line);
            outbox.add(manifest.to_owned(), manifest == line);
        }
        outbox
    }

    /// Adds a manifest that is about to be put. Returns whether the outbox accepts the manifest. A
    /// full outbox does not accept the manifest.
    pub(crate) fn prepare(&mut self, manifest: &str) -> bool {
        // An earlier attempt may have left the same manifest, so remove that entry.
        self.unsent.retain(|message| message.manifest != manifest);
        let is_kept = self.unsent.len() < UNSENT_MAX;
        self.prepared = is_kept.then(|| manifest.to_owned());
        is_kept
    }

    /// Makes the message of the prepared manifest due. The caller must call this function even if
    /// the put of the manifest failed. Returns false if the manifest was put but will not be
    /// announced.
    pub(crate) fn post(&mut self, manifest: &str, is_put: bool) -> bool {
        // After a failed put, keep the manifest, because perhaps only the response of the store was
        // lost.
        let is_kept = self.prepared.take().is_some_and(|prepared| prepared == manifest);
        if is_kept {
            self.add(manifest.to_owned(), is_put);
        } else if is_put {
            self.dropped += 1;
        }
        is_kept || !is_put
    }

    fn add(&mut self, manifest: String, is_put: bool) {
        if self.unsent.len() < UNSENT_MAX {
            self.unsent.push_back(UnsentMessage { ticket: self.next_ticket, manifest, is_put });
            self.next_ticket += 1;
        } else {
            self.dropped += 1;
        }
    }

    /// Returns the manifest whose message is due, with its ticket. Returns `None` while the pause
    /// after a failed attempt lasts.
    pub(crate) fn due(&self, now_ns: u64) -> Option<(u64, &str)> {
        let first = self.unsent.front()?;
        (now_ns >= self.retry_ns).then_some((first.ticket, first.manifest.as_str()))
    }

    /// Returns the time until the next message is due, or `None` if there is no message.
    pub(crate) fn wait(&self, now_ns: u64) -> Option<Duration> {
        self.unsent.front().map(|_| Duration::from_nanos(self.retry_ns.saturating_sub(now_ns)))
    }

    /// Removes the entry with this ticket if it still exists. Returns whether the message will
    /// never be sent.
    pub(crate) fn settle(&mut self, ticket: u64, outcome: MessageOutcome) -> bool {
        let place = self.unsent.iter().position(|message| message.ticket == ticket);
        let was_put = place.and_then(|place| self.unsent.remove(place)).is_some_and(|message| message.is_put);
        let is_lost = match outcome {
            MessageOutcome::Acknowledged => false,
            MessageOutcome::Refused => true,
            MessageOutcome::NoManifest => was_put,
        };
        self.dropped += u64::from(is_lost);
        self.sent += u64::from(outcome == MessageOutcome::Acknowledged);
        if outcome != MessageOutcome::NoManifest {
            // The bus has answered.
            self.failures = 0;
        }
        is_lost
    }

    /// Counts a failed attempt. The next attempt is due after a pause. If there is another message,
    /// the next attempt sends the other message first.
    pub(crate) fn fail(&mut self, now_ns: u64, pause: Duration) {
        self.failures = self.failures.saturating_add(1);
        let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.retry_ns = now_ns.saturating_add(pause_ns);
        // Move the message to the end, because it may be the only message that fails.
        if let Some(failed) = self.unsent.pop_front() {
            self.unsent.push_back(failed);
        }
    }

    /// Returns a line for each manifest whose message may be unsent. The last line is for the
    /// manifest that is about to be put.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let line = |manifest: &str, is_put: bool| {
            if is_put { manifest.to_owned() } else { format!("{NOT_KNOWN}{manifest}") }
        };
        let unsent = self.unsent.iter().map(move |message| line(&message.manifest, message.is_put));
        unsent.chain(self.prepared.iter().map(move |manifest| line(manifest, false)))
    }

    /// Returns the number of messages that are not acknowledged.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent.len() as u64
    }

    /// Returns the number of acknowledged messages.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number of manifests that will not be announced. A manifest is not announced if
    /// the outbox was full, the bus refused the message, or the store no longer has the manifest.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the number of consecutive failed attempts.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

/// Returns the name of the manifest in a line of the outbox file.
pub(crate) fn manifest_of(line: &str) -> &str {
    line.strip_prefix(NOT_KNOWN).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(outbox: &mut Outbox, manifest: &str) -> bool {
        outbox.prepare(manifest);
        outbox.post(manifest, true)
    }

    fn lines(outbox: &Outbox) -> Vec<String> {
        outbox.lines().collect()
    }

    fn settle_first(outbox: &mut Outbox, outcome: MessageOutcome) -> bool {
        let (ticket, _) = outbox.due(u64::MAX).unwrap();
        outbox.settle(ticket, outcome)
    }

    // Proves that messages are due in the order of shipping, after the messages that an earlier
    // process has left. Each outcome is counted exactly once. A manifest that no longer exists is
    // counted as a loss if it was put.
    #[test]
    fn messages_are_due_in_order() {
        let mut outbox = Outbox::of(["a", "?b", "c"].map(str::to_owned).to_vec());
        assert!(put(&mut outbox, "d") && outbox.prepare("e"));
        assert_eq!(lines(&outbox), ["a", "?b", "c", "d", "?e"], "what is about to be put is kept, too");
        assert_eq!(outbox.unsent(), 4, "but not due");
        assert!(!settle_first(&mut outbox, MessageOutcome::Acknowledged));
        assert!(!settle_first(&mut outbox, MessageOutcome::NoManifest));
        assert_eq!((outbox.due(0), outbox.sent(), outbox.dropped()), (Some((2, "c")), 1, 0));
        assert!(settle_first(&mut outbox, MessageOutcome::NoManifest));
        assert!(settle_first(&mut outbox, MessageOutcome::Refused));
        assert_eq!((outbox.due(0), outbox.wait(0), outbox.dropped()), (None, None, 2));
        assert!(outbox.post("e", false), "its put failed, and may have been done");
        assert_eq!((outbox.due(0), lines(&outbox)), (Some((4, "e")), vec!["?e".to_owned()]));
    }

    // Proves that the outcome of a message does not settle a later message of the same manifest.
    // Method: the manifest is put only after the first attempt did not find it.
    #[test]
    fn tickets_tell_attempts_apart() {
        let mut outbox = Outbox::of(vec!["a".to_owned()]);
        let (before, _) = outbox.due(0).unwrap();
        assert!(put(&mut outbox, "a"));
        outbox.settle(before, MessageOutcome::NoManifest);
        assert_eq!(lines(&outbox), ["a"]);
        settle_first(&mut outbox, MessageOutcome::Acknowledged);
        assert_eq!((outbox.unsent(), outbox.sent()), (0, 1));
    }

    // Proves that the oldest messages are kept up to the maximum number. Each further manifest that
    // was put is counted exactly once as dropped. A manifest whose put failed is not counted.
    #[test]
    fn the_bound_is_kept_and_counted() {
        let mut outbox = Outbox::of((0..UNSENT_MAX + 2).map(|number| number.to_string()).collect());
        assert_eq!((outbox.unsent(), outbox.dropped()), (UNSENT_MAX as u64, 2));
        assert!(!outbox.prepare("more") && !outbox.post("more", true));
        assert!(!outbox.prepare("more") && outbox.post("more", false));
        assert_eq!((outbox.unsent(), outbox.dropped()), (UNSENT_MAX as u64, 3));
        settle_first(&mut outbox, MessageOutcome::Acknowledged);
        assert!(put(&mut outbox, "last") && !put(&mut outbox, "beyond"));
        let lines = lines(&outbox);
        assert_eq!((lines[0].as_str(), lines[lines.len() - 1].as_str()), ("1", "last"));
    }

    // Proves that after a failure no message is due before the pause is over, not even a new one.
    // After the pause, another message is due. A response of the bus ends the sequence of failures.
    #[test]
    fn failures_delay_the_next_attempt() {
        let mut outbox = Outbox::of(vec!["a".to_owned(), "b".to_owned()]);
        outbox.fail(100, Duration::from_nanos(50));
        assert!(put(&mut outbox, "c"));
        assert_eq!((outbox.due(149), outbox.wait(149)), (None, Some(Duration::from_nanos(1))));
        assert_eq!((outbox.due(150), outbox.wait(151)), (Some((1, "b")), Some(Duration::ZERO)));
        outbox.fail(150, Duration::MAX);
        assert_eq!((outbox.failures(), outbox.due(u64::MAX - 1)), (2, None), "nothing overflows");
        settle_first(&mut outbox, MessageOutcome::NoManifest);
        assert_eq!(outbox.failures(), 2, "only the store has answered");
        settle_first(&mut outbox, MessageOutcome::Refused);
        assert_eq!(outbox.failures(), 0);
    }
}
