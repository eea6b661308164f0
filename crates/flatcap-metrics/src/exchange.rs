//! Passes histograms between two threads without a lock: full ones go one way, cleared ones return.

use std::sync::Arc;

#[cfg(not(flatcap_model))]
use crossbeam_queue::ArrayQueue;

#[cfg(flatcap_model)]
use flatcap_os::model::ArrayQueue;

/// Number of sets that an exchange creates: one being filled, and the spare ones.
pub const EXCHANGE_SETS: usize = 1 + SPARE_SETS;
/// Number of sets in circulation in addition to the one being filled: one in each direction.
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

/// Creates both ends of an exchange. `make` creates every set now.
pub fn exchange<T>(make: impl Fn() -> T) -> (Producer<T>, Consumer<T>) {
    let full = Arc::new(ArrayQueue::new(SPARE_SETS + 1));
    let empty = Arc::new(ArrayQueue::new(SPARE_SETS + 1));
    for _ in 0..SPARE_SETS {
        // Cannot be full: it has space for one more.
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

    /// Publishes the current set if an empty one is available; else keeps filling it. Loses
    /// nothing.
    pub fn publish(&mut self) {
        if let Some(empty) = self.empty.pop() {
            let full = std::mem::replace(&mut self.current, empty);
            // Cannot be full: it has more slots than there are sets.
            drop(self.full.push(full));
        }
    }

    /// Publishes the last set.
    pub fn finish(self) {
        // Cannot be full: it has as many slots as there are sets.
        drop(self.full.push(self.current));
    }
}

impl<T> Consumer<T> {
    /// Returns whether the producer has ended: the sets available now are the last.
    pub fn is_last(&mut self) -> bool {
        // The producer drops its reference after its last set; this synchronizes with that.
        Arc::get_mut(&mut self.full).is_some()
    }

    /// Takes every published set; `take` reads it and clears it.
    pub fn drain(&self, mut take: impl FnMut(&mut T)) {
        while let Some(mut set) = self.full.pop() {
            take(&mut set);
            // Cannot be full: it has as many slots as there are sets.
            drop(self.empty.push(set));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that everything counted arrives once, even if the consumer drains less often than the
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
