//! Tests of what happens to slabs that find their queue full: groups by every policy, beside one another and beside a recorder
//! that takes from all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::arena::{Arena, Geometry};
use super::{
    Causes, HandOver, HandOverSettings, Inbox, Loss, LossLedger, OnFull, Reading, Slab, SlabPool,
    TryRecvError, slab_queue,
};
use crate::metrics::GroupMetrics;
use crate::os::clock::monotonic_ns;
use crate::os::event::Event;
use crate::os::thread;
use crate::stream::ChecksumKind;

const SOURCES_A_GROUP: u16 = 2;
const SLAB_BYTES: usize = 256;
const LARGE_BYTES: usize = 1500;
const QUEUED: usize = 3;
const BATCH: usize = 2;

const POLICIES: [OnFull; 3] = [OnFull::DropNewest, OnFull::DropOldest, OnFull::Block];

struct Rig {
    groups: Vec<HandOver>,
    counters: Vec<Arc<GroupMetrics>>,
    stop: Arc<Event>,
    end: RecorderEnd,
}

/// What a recorder has.
struct RecorderEnd {
    inbox: Inbox,
    pool: Arc<SlabPool>,
    ledger: Arc<LossLedger>,
    wake: Arc<Event>,
}

/// A group by each of these, with as many slabs as the sum of all holders.
fn rig(policies: &[OnFull], queued: usize, frame_max: u32) -> Rig {
    let sources = policies.len() * usize::from(SOURCES_A_GROUP);
    let geometry = Geometry {
        sources,
        slabs: policies.len() * (queued + 2) + BATCH,
        slab_bytes: SLAB_BYTES,
        large_slabs: 2,
        large_slab_bytes: 4096,
    };
    let arena = Arena::anonymous(geometry).unwrap();
    let begun = arena.begun();
    let pool = Arc::new(SlabPool::new(arena));
    let ledger = Arc::new(LossLedger::new(sources));
    let (wake, stop) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let mut rig = Rig {
        groups: Vec::new(),
        counters: Vec::new(),
        stop: Arc::clone(&stop),
        end: RecorderEnd {
            inbox: Inbox::new(Vec::new()),
            pool: Arc::clone(&pool),
            ledger: Arc::clone(&ledger),
            wake: Arc::clone(&wake),
        },
    };
    let mut receivers = Vec::new();
    for policy in policies {
        let (queue, receiver) = slab_queue(queued, *policy);
        receivers.push(receiver);
        let metrics = Arc::new(GroupMetrics::default());
        rig.counters.push(Arc::clone(&metrics));
        rig.groups.push(HandOver::new(HandOverSettings {
            pool: Arc::clone(&pool),
            queue,
            ledger: Arc::clone(&ledger),
            wake: Arc::clone(&wake),
            checksum: ChecksumKind::None,
            frame_max,
            interval_ns: 5,
            begun: Arc::clone(&begun),
            sources,
            metrics,
            stop: Arc::clone(&stop),
        }));
    }
    rig.end.inbox = Inbox::new(receivers);
    rig
}

/// What a recorder has seen.
#[derive(Default)]
struct Seen {
    next: BTreeMap<u16, u64>,
    losses: Vec<Loss>, // that no jump has covered yet
    lost: BTreeMap<u16, u64>,
    causes: BTreeMap<u16, u32>,
    recorded: BTreeMap<u16, u64>,
}

impl Seen {
    fn read(&mut self, ledger: &LossLedger) {
        while let Some(loss) = ledger.take() {
            *self.lost.entry(loss.source).or_default() += loss.count;
            *self.causes.entry(loss.source).or_default() |= loss.causes.bits();
            self.losses.push(loss);
        }
    }

    /// Takes a slab as the recorder does: the ledger behind it, and then the ledger explains every jump.
    fn take(&mut self, slab: &Slab, ledger: &LossLedger) {
        self.read(ledger);
        for run in slab.runs() {
            let next = self.next.entry(run.source).or_default();
            assert!(run.first_seq >= *next, "out of order: {run:?} behind {next}");
            let explained = explained(&self.losses, run.source, *next, run.first_seq);
            assert_eq!(
                explained,
                run.first_seq - *next,
                "a jump to {run:?} that the ledger does not explain"
            );
            self.losses.retain(|loss| loss.source != run.source || loss.first_seq > run.first_seq);
            *next = run.last_seq + 1;
            *self.recorded.entry(run.source).or_default() += run.count();
        }
    }

    /// Every reading begun is recorded or lost, once, and lost for one of these.
    fn judge(&mut self, ledger: &LossLedger, source: u16, begun: u64, causes: Causes) {
        self.read(ledger);
        let of = |numbers: &BTreeMap<u16, u64>| numbers.get(&source).copied().unwrap_or_default();
        assert_eq!(of(&self.recorded) + of(&self.lost), begun, "source {source}");
        let next = of(&self.next);
        assert_eq!(explained(&self.losses, source, next, begun), begun - next, "the end of source {source}");
        let seen = self.causes.get(&source).copied().unwrap_or_default();
        assert_eq!(seen & !causes.bits(), 0, "source {source}: {}", Causes::from_bits(seen));
    }
}

/// How many of these numbers are in the losses.
fn explained(losses: &[Loss], source: u16, first: u64, end: u64) -> u64 {
    let of_source = losses.iter().filter(|loss| loss.source == source);
    of_source
        .map(|loss| (loss.first_seq + loss.count).min(end).saturating_sub(loss.first_seq.max(first)))
        .sum()
}

fn causes_of(policy: OnFull) -> Causes {
    match policy {
        // Two groups may have both large slabs.
        OnFull::DropNewest | OnFull::DropOldest => {
            Causes::QUEUE_FULL | Causes::POOL_EMPTY | Causes::READ_FAILED
        }
        OnFull::Block => Causes::READ_FAILED,
    }
}

fn append(group: &mut HandOver, source: u16, seq: u64, mono_ns: u64, bytes: usize) {
    group.begin(source, seq);
    group.append(&Reading { source, seq, mono_ns, wall_offset_ns: 0 }, bytes, |payload| payload.fill(7));
}

proptest! {
    // Goal: by every policy recorded and lost add up to begun, each loss has its cause, and no slab is missing where a queue
    // has room. Method: groups in random steps and drains, on one thread; a group that would wait has the recorder take first.
    #[test]
    fn every_policy_is_exact(
        policies in proptest::collection::vec(proptest::sample::select(&POLICIES), 1..4),
        queued in 1_usize..5,
        steps in proptest::collection::vec((0_u16..6, 0_u8..12, 0_u8..4), 0..400),
    ) {
        let Rig { mut groups, mut end, counters, .. } = rig(&policies, queued, 2048);
        let slabs = end.pool.free();
        let mut next = vec![0_u64; groups.len() * usize::from(SOURCES_A_GROUP)];
        let mut seen = Seen::default();
        let mut drain = |end: &mut RecorderEnd, most: usize| {
            for _ in 0..most {
                let Ok(slab) = end.inbox.try_recv() else { break };
                seen.take(&slab, &end.ledger);
                end.pool.give_back(slab);
            }
        };
        for (clock, (source, kind, drains)) in (0_u64..).zip(steps) {
            let source = source % u16::try_from(next.len()).unwrap();
            let index = usize::from(source / SOURCES_A_GROUP);
            let group = &mut groups[index];
            if policies[index] == OnFull::Block {
                drain(&mut end, usize::MAX);
            }
            let seq = next[usize::from(source)];
            next[usize::from(source)] += 1;
            match kind {
                0 => group.lose(Reading { source, seq, mono_ns: clock, wall_offset_ns: 0 }, Causes::READ_FAILED),
                // With one thread nobody would give a large one back.
                1 if policies[index] != OnFull::Block => append(group, source, seq, clock, LARGE_BYTES),
                _ => append(group, source, seq, clock, 60),
            }
            if group.is_due(clock, clock + 1) {
                if policies[index] == OnFull::Block {
                    drain(&mut end, usize::MAX);
                }
                group.hand_over(clock);
            }
            drain(&mut end, usize::from(drains == 0) * BATCH);
        }
        for (group, policy) in groups.into_iter().zip(&policies) {
            if *policy == OnFull::Block {
                drain(&mut end, usize::MAX);
            }
            group.finish(1000);
        }
        drain(&mut end, usize::MAX);
        prop_assert_eq!(end.inbox.try_recv().unwrap_err(), TryRecvError::Disconnected);
        for (source, begun) in (0_u16..).zip(next) {
            let policy = policies[usize::from(source / SOURCES_A_GROUP)];
            seen.judge(&end.ledger, source, begun, causes_of(policy));
        }
        prop_assert_eq!(end.pool.free(), slabs, "every slab came back");
        prop_assert!(counters.iter().zip(policies).all(|(it, policy)| policy != OnFull::Block || it.slabs_dropped.get() == 0));
    }
}

// Goal: the same with threads, and no jump is seen before the ledger explains it. Method: a group by each policy and one more, each
// as fast as it can, beside a recorder that takes a batch and pauses; causes and sums are judged at each slab and at the end.
#[test]
fn every_policy_is_exact_beside_a_recorder() {
    const READINGS: u64 = 10_000;
    // The ledger holds 4,096: this is not the test of what happens beyond.
    const LOSSES_WAITING_MAX: usize = 2000;
    let policies = [OnFull::DropNewest, OnFull::DropOldest, OnFull::Block, OnFull::DropOldest];
    let Rig { groups, counters, mut end, .. } = rig(&policies, QUEUED, 2048);
    let slabs = end.pool.free();
    let samplers: Vec<_> = (0_u16..)
        .zip(groups)
        .map(|(index, mut group)| {
            let ledger = Arc::clone(&end.ledger);
            thread::spawn("sampler", move || {
                for seq in 0..READINGS {
                    while ledger.waiting() > LOSSES_WAITING_MAX {
                        std::thread::yield_now();
                    }
                    for source in index * SOURCES_A_GROUP..(index + 1) * SOURCES_A_GROUP {
                        let bytes = if seq % 500 == 0 { LARGE_BYTES } else { 60 };
                        append(&mut group, source, seq, monotonic_ns(), bytes);
                    }
                }
                group.finish(monotonic_ns());
            })
            .unwrap()
        })
        .collect();
    let mut seen = Seen::default();
    let mut batch = Vec::new();
    loop {
        let ended = loop {
            match end.inbox.try_recv() {
                Ok(slab) => batch.push(slab),
                Err(error) => break error == TryRecvError::Disconnected,
            }
            if batch.len() == BATCH {
                break false;
            }
        };
        seen.read(&end.ledger);
        for slab in batch.drain(..) {
            seen.take(&slab, &end.ledger);
            end.pool.give_back(slab);
        }
        end.inbox.tell_room();
        if ended {
            break;
        }
        end.wake.wait_until(monotonic_ns() + 20_000);
        end.wake.clear();
    }
    for sampler in samplers {
        sampler.join().unwrap();
    }
    for (index, policy) in (0_u16..).zip(policies) {
        for source in index * SOURCES_A_GROUP..(index + 1) * SOURCES_A_GROUP {
            seen.judge(&end.ledger, source, READINGS, causes_of(policy));
        }
        let counters = &counters[usize::from(index)];
        let waits = policy == OnFull::Block;
        assert_eq!(
            (counters.waited_ns.get() > 0, counters.slabs_dropped.get() > 0),
            (waits, !waits),
            "{policy:?}"
        );
    }
    assert_eq!(end.pool.free(), slabs);
}

// Goal: what is kept is what each policy says. Method: ten slabs of a frame each into a queue of three that nobody empties.
#[test]
fn policies_keep_what_they_say() {
    for (policy, kept) in [(OnFull::DropNewest, [0, 1, 2]), (OnFull::DropOldest, [7, 8, 9])] {
        let Rig { mut groups, mut end, .. } = rig(&[policy], QUEUED, 2048);
        for seq in 0..10 {
            append(&mut groups[0], 0, seq, seq, 60);
            groups[0].hand_over(seq);
        }
        let slabs = std::iter::from_fn(|| end.inbox.try_recv().ok());
        let seen: Vec<u64> = slabs.flat_map(|slab| slab.runs().to_vec()).map(|run| run.first_seq).collect();
        assert_eq!(seen, kept, "{policy:?}");
    }
}

// Goal: the pool is never empty while a queue has room, wherever slabs are. Method: every queue full, the recorder at work on a
// batch and looking at a slab of each group, each group with a full one: only then, and by every policy, are all in use.
#[test]
fn there_is_a_slab_for_every_place() {
    let policies = [OnFull::DropNewest, OnFull::DropOldest, OnFull::DropNewest];
    let Rig { mut groups, mut end, .. } = rig(&policies, QUEUED, 2048);
    let mut batch = Vec::new();
    let mut seq = 0;
    let mut fill = |groups: &mut Vec<HandOver>| {
        for _ in 0..QUEUED + 2 {
            for (source, group) in (0_u16..).step_by(SOURCES_A_GROUP.into()).zip(groups.iter_mut()) {
                append(group, source, seq, seq, 200);
                seq += 1;
            }
        }
    };
    fill(&mut groups);
    // Looks at one of each group, and has taken two of them by the end.
    batch.extend((0..BATCH).map(|_| end.inbox.try_recv().unwrap()));
    fill(&mut groups);
    assert!(end.inbox.len() >= policies.len() * QUEUED);
    let losses: Vec<Loss> = std::iter::from_fn(|| end.ledger.take()).collect();
    assert!(losses.iter().all(|loss| loss.causes == Causes::QUEUE_FULL), "{losses:?}");
    assert!(end.pool.free() <= 1, "{} are free: the rig has not filled every place", end.pool.free());
}

// Goal: a group that floods its queue does not hold up another one: what that one hands over comes before everything that was
// handed over later, and all of it comes. Method: a queue kept full, one slab of the other group now and then, a third taken.
#[test]
fn a_busy_group_starves_nobody() {
    let Rig { mut groups, mut end, .. } = rig(&[OnFull::DropOldest, OnFull::DropNewest], QUEUED, 2048);
    let mut waits_since = None;
    let mut taken = 0;
    for clock in 0..1000 {
        append(&mut groups[0], 0, clock, clock, 60);
        groups[0].hand_over(clock);
        if clock % 50 == 49 {
            append(&mut groups[1], SOURCES_A_GROUP, clock / 50, clock, 60);
            groups[1].hand_over(clock);
            waits_since = Some(clock);
        }
        if clock % 3 == 0 {
            let slab = end.inbox.try_recv().unwrap();
            assert!(
                waits_since.is_none_or(|since| slab.handed_over_ns <= since),
                "taken before an older one"
            );
            if slab.runs()[0].source == SOURCES_A_GROUP {
                waits_since = None;
                taken += 1;
            }
            end.pool.give_back(slab);
        }
    }
    assert!(taken >= 19, "{taken} of 20");
    let losses: Vec<Loss> = std::iter::from_fn(|| end.ledger.take()).collect();
    assert!(!losses.is_empty() && losses.iter().all(|loss| loss.source == 0), "the quiet group lost nothing");
}

// Goal: a group that waits gives up a second after the stop, and not before; a large slab is waited for as a queue is. Method:
// nobody takes; the stop comes once it waits; and the same with a recorder that makes room when it is told so.
#[test]
fn a_wait_ends_with_the_run() {
    for is_large in [false, true] {
        for makes_room in [false, true] {
            let Rig { mut groups, mut end, counters, stop } = rig(&[OnFull::Block], 2, 2048);
            let bytes = if is_large { LARGE_BYTES } else { 200 };
            let is_over = Arc::new(AtomicBool::new(false));
            let over = Arc::clone(&is_over);
            let mut group = groups.pop().unwrap();
            let sampler = thread::spawn("sampler", move || {
                for seq in 0..5 {
                    append(&mut group, 0, seq, seq, bytes);
                }
                over.store(true, Ordering::Release);
                group.finish(9);
            })
            .unwrap();
            while counters[0].waited_ns.get() == 0 {
                std::thread::yield_now();
            }
            assert!(!is_over.load(Ordering::Acquire));
            let mut seen = Seen::default();
            if makes_room {
                while !sampler.is_finished() {
                    if let Ok(slab) = end.inbox.try_recv() {
                        seen.take(&slab, &end.ledger);
                        end.pool.give_back(slab);
                        end.inbox.tell_room();
                    }
                }
            } else {
                stop.set();
            }
            sampler.join().unwrap();
            while let Ok(slab) = end.inbox.try_recv() {
                seen.take(&slab, &end.ledger);
                end.pool.give_back(slab);
            }
            seen.judge(&end.ledger, 0, 5, Causes::QUEUE_FULL | Causes::POOL_EMPTY);
            assert_eq!(seen.lost.is_empty(), makes_room, "{:?}", seen.lost);
        }
    }
}

// Goal: behind a backlog an old slab stays open until it is full, so that the same queue bridges a longer stall; a slab whose next
// tick is far off goes. Method: a tick each hand-over interval and no recorder, until something is lost.
#[test]
fn a_backlog_fills_its_slabs() {
    let Rig { mut groups, end, .. } = rig(&[OnFull::DropNewest], 8, 2048);
    let group = &mut groups[0];
    let mut bridged = 0;
    loop {
        append(group, 0, bridged, bridged * 10, 12);
        if group.is_due(bridged * 10, bridged * 10 + 10) {
            group.hand_over(bridged * 10);
        }
        let is_lost = group.open_slab().is_some_and(Slab::is_empty) || end.ledger.take().is_some();
        if is_lost || bridged > 1000 {
            break;
        }
        bridged += 1;
    }
    // Four slabs of a frame each; then four, and the open one, of as many frames as there are 64 bytes in it.
    assert_eq!(bridged, 4 + 4 * 4 + 4, "{bridged} frames");
    assert!(group.is_due(u64::MAX / 2, u64::MAX) || group.open_slab().is_none_or(Slab::is_empty));
}
