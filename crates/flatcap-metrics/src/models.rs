//! Models of the shared structures. The models are checked in every execution order that the memory
//! model allows.

use std::sync::Arc;

use flatcap_os::model::check;
use loom::thread;

use super::counter::Counter;
use super::exchange::exchange;

// Proves that every filled set arrives exactly once, with all its counts, while the consumer drains
// concurrently with a producer that publishes twice and ends.
#[test]
fn model_exchange_loses_nothing() {
    check(|| {
        let (mut producer, consumer) = exchange(|| 0_u64);
        let filling = thread::spawn(move || {
            for _ in 0..2 {
                *producer.current() += 1;
                producer.publish();
            }
            *producer.current() += 1;
            producer.finish();
        });
        let mut arrived = 0;
        consumer.drain(|set| arrived += std::mem::take(set));
        filling.join().unwrap();
        consumer.drain(|set| arrived += std::mem::take(set));
        assert_eq!(arrived, 3);
    });
}

// Proves that a counter with one writer loses no counts and never decreases for a reader.
#[test]
fn model_counter_never_runs_backwards() {
    check(|| {
        let counter = Arc::new(Counter::default());
        let writer = {
            let counter = Arc::clone(&counter);
            thread::spawn(move || (0..2).for_each(|_| counter.add(1)))
        };
        let first = counter.get();
        assert!(counter.get() >= first);
        writer.join().unwrap();
        assert_eq!(counter.get(), 2);
    });
}
