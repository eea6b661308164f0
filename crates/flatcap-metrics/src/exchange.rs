//! Passes sets of histograms between two threads without a lock. Full sets go to the consumer, and
//! cleared sets return to the producer.

use std::sync::Arc;

#[cfg(not(flatcap_model))]
use crossbeam_queue::ArrayQueue;

#[cfg(flatcap_model)]
use flatcap_os::model::ArrayQueue;

/// Number of sets that an exchange creates. One set is being filled, and the others are spare.
pub const EXCHANGE_SETS: usize = 1 + SPARE_SETS;
/// Number of spare sets in addition to the set that is being filled. Each direction of the exchange
/// needs one spare set.
const SPARE_SETS: usize = 2;

/// The end that fills sets.
#[derive(Debug)]
pub struct Producer<T> {
    current: Box<T>,
    full: Arc<ArrayQueue<Box<T>>>,
    empty: Arc<ArrayQueue<Box<T>>>,
}

/// The end that empties sets.
#[derive(Debug)]
pub struct Consumer<T> {
    full: Arc<ArrayQueue<Box<T>>>,
    empty: Arc<ArrayQueue<Box<T>>>,
}

/// Creates both ends of an exchange. Calls `make` once per set before the function returns.
pub fn exchange<T>(make: impl Fn() -> T) -> (Producer<T>, Consumer<T>) {
    let full = Arc::new(ArrayQueue::new(SPARE_SETS + 1));
    let empty = Arc::new(ArrayQueue::new(SPARE_SETS + 1));
    for _ in 0..SPARE_SETS {
        // The queue cannot be full, because it has space for one more set.
        drop(empty.push(Box::new(make())));
    }
    let producer = Producer { current: Box::new(make()), full: Arc::clone(&full), empty: Arc::clone(&empty) };
    (producer, Consumer { full, empty })
}

impl<T> Producer<T> {
    /// Returns the set being filled.
    #[inline]
    pub fn current(&mut self) -> &mut T {
        &mut self.current
    }

    /// Passes the current set to the consumer if an empty set is available; otherwise continues to
    /// fill the current set. No counts are lost.
    pub fn publish(&mut self) {
        if let Some(empty) = self.empty.pop() {
            let full = std::mem::replace(&mut self.current, empty);
            // The queue cannot be full, because it has more slots than there are sets.
            drop(self.full.push(full));
        }
    }

    /// Passes the last set to the consumer, and ends the exchange.
    pub fn finish(self) {
        // The queue cannot be full, because it has as many slots as there are sets.
        drop(self.full.push(self.current));
    }
}

impl<T> Consumer<T> {
    /// Returns whether the producer has ended. If the producer has ended, the sets that are
    /// available now are the last sets.
    pub fn is_last(&mut self) -> bool {
        // The producer drops its reference after it has passed on its last set, and this call
        // synchronizes with that drop.
        Arc::get_mut(&mut self.full).is_some()
    }

    /// Calls `take` with each set that the producer has passed on. `take` reads and clears the set.
    pub fn drain(&self, mut take: impl FnMut(&mut T)) {
        while let Some(mut set) = self.full.pop() {
            take(&mut set);
            // The queue cannot be full, because it has as many slots as there are sets.
            drop(self.empty.push(set));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each count arrives exactly once, even if the consumer drains less often than the
    // producer publishes.
    #[test]
    fn nothing_is_lost_when_the_consumer_lags() {
        let (mut producer, consumer) = exchange(|| 0_u64);
        let mut arrived = 0;
        for round in 0..100 {
            *producer.current() += 1;
            producer.publish();
            if round % 7 == 0 {
                consumer.drain(|set| arrived += std::mem::take(set));
            }
        }
        producer.finish();
        consumer.drain(|set| arrived += std::mem::take(set));
        assert_eq!(arrived, 100);
    }

    // Proves that a consumer detects the end of its producer, and then finds the last set.
    #[test]
    fn a_consumer_knows_the_last_set() {
        let (mut producer, mut consumer) = exchange(|| 0_u64);
        *producer.current() = 7;
        assert!(!consumer.is_last());
        producer.finish();
        assert!(consumer.is_last());
        let mut seen = Vec::new();
        consumer.drain(|set| seen.push(*set));
        assert_eq!(seen, [7]);
    }
}
