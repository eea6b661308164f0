//! Models of the queue protocols for loom. Loom checks them in every execution order that the
//! memory model allows.

use std::sync::Arc;

use flatcap_os::model::check;
use flatcap_os::wake_event::WakeEvent;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::ledger::{Causes, Loss, LossLedger};
use super::queue::{OnFull, QueueReceiver, TryRecvError, slab_queue};

fn loss(first_seq: u64) -> Loss {
    Loss { source: 0, first_seq, count: 1, causes: Causes::QueueFull }
}

/// Receives slabs until the group has ended. Checks that the entries or the overflow of the ledger
/// explain each jump in the sequence numbers. The function runs on its own thread because of a rule
/// of loom. After a thread yields, loom assumes that values that the thread has seen before are
/// outdated. The main thread has created all values, so it has seen all of them.
fn take_all(queue: QueueReceiver<u64>, ledger: &Arc<LossLedger>) -> (u64, Vec<u64>) {
    let ledger = Arc::clone(ledger);
    thread::spawn(move || take(queue, &ledger)).join().unwrap()
}

fn take(mut queue: QueueReceiver<u64>, ledger: &LossLedger) -> (u64, Vec<u64>) {
    let (mut next, mut lost) = (0, Vec::new());
    loop {
        match queue.try_recv() {
            Ok(seq) => {
                lost.extend(std::iter::from_fn(|| ledger.take()).map(|loss| loss.first_seq));
                for missing in next..seq {
                    let causes = ledger.overflowed(0, missing, missing + 1);
                    assert!(
                        lost.contains(&missing) || causes == Causes::QueueFull,
                        "{missing} is not explained"
                    );
                }
                assert!(!lost.contains(&seq), "{seq} is recorded and lost");
                next = seq + 1;
            }
            Err(TryRecvError::Disconnected) => return (next, lost),
            Err(TryRecvError::Empty) => thread::yield_now(),
        }
    }
}

// Proves that a waiter that clears the event before its check does not miss a change and does not
// sleep forever. If the event is cleared after the check, or by a store, this model hangs.
#[test]
fn model_event_wakes_whoever_has_looked() {
    check(|| {
        let (event, place) = (Arc::new(WakeEvent::new()), Arc::new(AtomicU64::new(0)));
        let setter = {
            let (event, place) = (Arc::clone(&event), Arc::clone(&place));
            thread::spawn(move || {
                for value in 1..=2 {
                    place.store(value, Ordering::Relaxed);
                    event.set();
                }
            })
        };
        loop {
            event.clear();
            if place.load(Ordering::Relaxed) == 2 {
                break;
            }
            event.wait_until(u64::MAX);
        }
        setter.join().unwrap();
    });
}

// Proves that an event that stays set, such as the stop event, wakes every waiter.
#[test]
fn model_event_wakes_everybody() {
    check(|| {
        let stop = Arc::new(WakeEvent::new());
        let waiters = [(); 2].map(|()| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || stop.wait_until(u64::MAX))
        });
        stop.set();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

// Proves that the recorder does not see a slab that follows an evicted slab before the ledger
// explains the jump. Proves that no sample is both recorded and lost. Without the mark of the
// queue, this test fails.
#[test]
fn model_drop_oldest_explains_every_jump() {
    check(|| {
        let (sender, receiver) = slab_queue(2, OnFull::DropOldest);
        let ledger = Arc::new(LossLedger::with_entries(2, 1));
        let group = {
            let ledger = Arc::clone(&ledger);
            thread::spawn(move || {
                for seq in 0_u64..3 {
                    if let Err(full) = sender.try_send(seq) {
                        sender.evict_oldest(|oldest| ledger.write(loss(*oldest)));
                        sender.try_send(full.into_inner()).unwrap();
                    }
                }
            })
        };
        let (next, lost) = take_all(receiver, &ledger);
        group.join().unwrap();
        assert!(next == 3 && lost.len() <= 1, "the newest are kept");
    });
}

// Proves that a group that waits for space gets the space in every order of the steps, and that all
// slabs arrive in order. A lost wake-up would make this model hang.
#[test]
fn model_block_loses_neither_slabs_nor_wake_ups() {
    check(|| {
        let (sender, receiver) = slab_queue(1, OnFull::Block);
        let group = thread::spawn(move || {
            for seq in 0_u64..3 {
                let attempt = |seq| sender.try_send(seq).map_err(|full| full.into_inner());
                sender.wait_for_space(seq, attempt, || Some(u64::MAX)).unwrap();
            }
        });
        let ledger = Arc::new(LossLedger::with_entries(1, 1));
        let (next, lost) = take_all(receiver, &ledger);
        assert_eq!((next, lost.len()), (3, 0));
        group.join().unwrap();
    });
}

// Proves that the ledger explains every jump that the recorder sees with drop-newest, even if the
// ledger has no free entries.
#[test]
fn model_full_ledger_keeps_the_causes() {
    check(|| {
        let (sender, receiver) = slab_queue(3, OnFull::DropNewest);
        let ledger = Arc::new(LossLedger::with_entries(1, 1));
        let group = {
            let ledger = Arc::clone(&ledger);
            thread::spawn(move || {
                for seq in [1, 3] {
                    ledger.write(loss(seq - 1));
                    sender.try_send(seq).unwrap();
                }
            })
        };
        let (next, _) = take_all(receiver, &ledger);
        assert_eq!(next, 4);
        group.join().unwrap();
    });
}
