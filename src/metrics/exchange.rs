//! Handing filled histograms to another thread without a lock: full ones go, cleared ones come back.

use std::sync::Arc;

#[cfg(not(all(test, flatcap_model)))]
use crossbeam_queue::ArrayQueue;

#[cfg(all(test, flatcap_model))]
use crate::model::ArrayQueue;

/// Sets in circulation beside the one being filled: one on its way there, one on its way back.
const SPARE_SETS: usize = 2;

/// The filling side.
#[derive(Debug)]
pub struct Producer<T> {
    current: Box<T>,
    full: Arc<ArrayQueue<Box<T>>>,
    empty: Arc<ArrayQueue<Box<T>>>,
}

/// The emptying side.
#[derive(Debug)]
pub struct Consumer<T> {
    full: Arc<ArrayQueue<Box<T>>>,
    empty: Arc<ArrayQueue<Box<T>>>,
}

/// An exchange of sets that `make` makes, all of them now.
pub fn exchange<T>(make: impl Fn() -> T) -> (Producer<T>, Consumer<T>) {
    let full = Arc::new(ArrayQueue::new(SPARE_SETS + 1));
    let empty = Arc::new(ArrayQueue::new(SPARE_SETS + 1));
    for _ in 0..SPARE_SETS {
        // Cannot be full: it was made for one more.
        drop(empty.push(Box::new(make())));
    }
    let producer = Producer { current: Box::new(make()), full: Arc::clone(&full), empty: Arc::clone(&empty) };
    (producer, Consumer { full, empty })
}

impl<T> Producer<T> {
    /// The set being filled.
    #[inline]
    pub fn current(&mut self) -> &mut T {
        &mut self.current
    }

    /// Hands the current set over if an empty one is there to go on with; else goes on filling it, losing nothing.
    pub fn publish(&mut self) {
        if let Some(empty) = self.empty.pop() {
            let full = std::mem::replace(&mut self.current, empty);
            // Cannot be full: there are fewer sets than places.
            drop(self.full.push(full));
        }
    }

    /// Hands the last set over.
    pub fn finish(self) {
        // Cannot be full: there are as many places as sets.
        drop(self.full.push(self.current));
    }
}

impl<T> Consumer<T> {
    /// Whether nobody fills sets any more: what is there now is the last.
    pub fn is_last(&mut self) -> bool {
        // The producer lets go of it behind its last set; this synchronizes with that.
        Arc::get_mut(&mut self.full).is_some()
    }

    /// Takes every set that was handed over; `take` reads it and clears it.
    pub fn drain(&self, mut take: impl FnMut(&mut T)) {
        while let Some(mut set) = self.full.pop() {
            take(&mut set);
            // Cannot be full: there are as many places as sets.
            drop(self.empty.push(set));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: everything that is counted arrives once, also when the consumer lags. Method: counts, publishing more
    // often than draining.
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

    // Goal: a consumer learns that its producer is gone, and finds the last set then. Method: one set, before and behind the end.
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
