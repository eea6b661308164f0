//! Tests of the policies for a full queue. Groups with each policy run concurrently, together with
//! a recorder that takes slabs from all groups.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatcap_metrics::GroupMetrics;
use flatcap_os::clock::monotonic_ns;
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;
use flatcap_stream::ChecksumKind;
use proptest::prelude::*;

use super::arena::{Arena, Geometry};
use super::{
    Causes, Inbox, Loss, LossLedger, OnFull, SampleMeta, Slab, SlabPool, SlabProducer, SlabProducerSettings,
    TryRecvError, slab_queue,
};

const SOURCES_A_GROUP: u16 = 2;
const SLAB_BYTES: usize = 256;
const LARGE_BYTES: usize = 1500;
const QUEUED: usize = 3;
const BATCH: usize = 2;

const POLICIES: [OnFull; 3] = [OnFull::DropNewest, OnFull::DropOldest, OnFull::Block];

struct PolicyRig {
    groups: Vec<SlabProducer>,
    counters: Vec<Arc<GroupMetrics>>,
    stop: Arc<WakeEvent>,
    end: RecorderEnd,
}

/// The parts of a test that the recorder uses.
struct RecorderEnd {
    inbox: Inbox,
    pool: Arc<SlabPool>,
    ledger: Arc<LossLedger>,
    wake: Arc<WakeEvent>,
}

/// Creates one group per policy, and as many slabs as the groups, the queues and the recorder can
/// hold together.
fn rig(policies: &[OnFull], queued: usize, frame_max: u32) -> PolicyRig {
    let sources = policies.len() * usize::from(SOURCES_A_GROUP);
    let geometry = Geometry {
        sources,
        slabs: policies.len() * (queued + 2) + BATCH,
        slab_bytes: SLAB_BYTES,
        large_slabs: 2,
        large_slab_bytes: 4096,
    };
    let arena = Arena::anonymous(geometry).unwrap();
    let begun = arena.sequence_counters();
    let pool = Arc::new(SlabPool::new(arena));
    let ledger = Arc::new(LossLedger::new(sources));
    let (wake, stop) = (Arc::new(WakeEvent::new()), Arc::new(WakeEvent::new()));
    let mut rig = PolicyRig {
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
        rig.groups.push(SlabProducer::new(SlabProducerSettings {
            pool: Arc::clone(&pool),
            queue,
            ledger: Arc::clone(&ledger),
            wake: Arc::clone(&wake),
            checksum: ChecksumKind::None,
            frame_max,
            flush_interval_ns: 5,
            sequence_counters: Arc::clone(&begun),
            sources,
            metrics,
            stop: Arc::clone(&stop),
        }));
    }
    rig.end.inbox = Inbox::new(receivers);
    rig
}

/// All slabs and losses that a recorder has received.
#[derive(Default)]
struct ReceivedSlabs {
    next: BTreeMap<u16, u64>,
    losses: Vec<Loss>, // not yet covered by a jump
    lost: BTreeMap<u16, u64>,
    causes: BTreeMap<u16, u32>,
    recorded: BTreeMap<u16, u64>,
}

impl ReceivedSlabs {
    fn read_ledger(&mut self, ledger: &LossLedger) {
        while let Some(loss) = ledger.take() {
            *self.lost.entry(loss.source).or_default() += loss.count;
            *self.causes.entry(loss.source).or_default() |= loss.causes.bits();
            self.losses.push(loss);
        }
    }

    /// Takes a slab as the recorder does. Then reads the ledger and checks that it explains every
    /// jump in the sequence numbers.
    fn take(&mut self, slab: &Slab, ledger: &LossLedger) {
        self.read_ledger(ledger);
        for run in slab.ranges() {
            let next = self.next.entry(run.source).or_default();
            assert!(run.first_seq >= *next, "out of order: {run:?} after {next}");
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

    /// Checks that every begun sample is either recorded once or lost once, and that each loss has
    /// one of these causes.
    fn check(&mut self, ledger: &LossLedger, source: u16, begun: u64, causes: Causes) {
        self.read_ledger(ledger);
        let of = |numbers: &BTreeMap<u16, u64>| numbers.get(&source).copied().unwrap_or_default();
        assert_eq!(of(&self.recorded) + of(&self.lost), begun, "source {source}");
        let next = of(&self.next);
        assert_eq!(explained(&self.losses, source, next, begun), begun - next, "the end of source {source}");
        let seen = self.causes.get(&source).copied().unwrap_or_default();
        assert_eq!(seen & !causes.bits(), 0, "source {source}: {:?}", Causes::from_bits_retain(seen));
    }
}

/// Returns how many sequence numbers in `first..end` the losses contain.
fn explained(losses: &[Loss], source: u16, first: u64, end: u64) -> u64 {
    let of_source = losses.iter().filter(|loss| loss.source == source);
    of_source
        .map(|loss| (loss.first_seq + loss.count).min(end).saturating_sub(loss.first_seq.max(first)))
        .sum()
}

fn causes_of(policy: OnFull) -> Causes {
    match policy {
        // Two groups may hold the only two large slabs.
        OnFull::DropNewest | OnFull::DropOldest => Causes::QueueFull | Causes::PoolEmpty | Causes::ReadFailed,
        OnFull::Block => Causes::ReadFailed,
    }
}

fn append(group: &mut SlabProducer, source: u16, seq: u64, mono_ns: u64, bytes: usize) {
    group.begin_sample(source, seq);
    group.append(&SampleMeta { source, seq, mono_ns, wall_offset_ns: 0 }, bytes, |payload| payload.fill(7));
}

proptest! {
    // Proves that with every policy, the recorded and lost samples add up to the samples that were
    // begun. Proves that each loss has the right cause, and that the pool has a free slab while a
    // queue has space. The test runs on one thread, so the recorder takes a slab before a group
    // would wait.
    #[test]
    fn every_policy_is_exact(
        policies in proptest::collection::vec(proptest::sample::select(&POLICIES), 1..4),
        queued in 1_usize..5,
        steps in proptest::collection::vec((0_u16..6, 0_u8..12, 0_u8..4), 0..400),
    ) {
        let PolicyRig { mut groups, mut end, counters, .. } = rig(&policies, queued, 2048);
        let slabs = end.pool.free();
        let mut next = vec![0_u64; groups.len() * usize::from(SOURCES_A_GROUP)];
        let mut seen = ReceivedSlabs::default();
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
                0 => group.lose(SampleMeta { source, seq, mono_ns: clock, wall_offset_ns: 0 }, Causes::ReadFailed),
                // On one thread, a large slab would never be returned, so a blocking group would
                // wait forever.
                1 if policies[index] != OnFull::Block => append(group, source, seq, clock, LARGE_BYTES),
                _ => append(group, source, seq, clock, 60),
            }
            if group.is_due(clock, clock + 1) {
                if policies[index] == OnFull::Block {
                    drain(&mut end, usize::MAX);
                }
                group.queue_open_slab(clock);
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
            seen.check(&end.ledger, source, begun, causes_of(policy));
        }
        prop_assert_eq!(end.pool.free(), slabs, "every slab came back");
        prop_assert!(counters.iter().zip(policies).all(|(it, policy)| policy != OnFull::Block || it.slabs_dropped.get() == 0));
    }
}

// Proves with threads that the recorded and lost samples add up, and that the recorder sees no jump
// before the ledger explains it. A group per policy and one more group run at full speed. A
// recorder runs concurrently, takes a batch, and pauses.
#[test]
fn every_policy_is_exact_beside_a_recorder() {
    const READINGS: u64 = 10_000;
    // The ledger has space for 4,096 losses. Another test covers an overflow of the ledger.
    const LOSSES_WAITING_MAX: usize = 2000;
    let policies = [OnFull::DropNewest, OnFull::DropOldest, OnFull::Block, OnFull::DropOldest];
    let PolicyRig { groups, counters, mut end, .. } = rig(&policies, QUEUED, 2048);
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
    let mut seen = ReceivedSlabs::default();
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
        seen.read_ledger(&end.ledger);
        for slab in batch.drain(..) {
            seen.take(&slab, &end.ledger);
            end.pool.give_back(slab);
        }
        end.inbox.notify_not_full();
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
            seen.check(&end.ledger, source, READINGS, causes_of(policy));
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

// Proves that each policy keeps the right slabs in a queue that is never emptied.
#[test]
fn each_policy_keeps_its_slabs() {
    for (policy, kept) in [(OnFull::DropNewest, [0, 1, 2]), (OnFull::DropOldest, [7, 8, 9])] {
        let PolicyRig { mut groups, mut end, .. } = rig(&[policy], QUEUED, 2048);
        for seq in 0..10 {
            append(&mut groups[0], 0, seq, seq, 60);
            groups[0].queue_open_slab(seq);
        }
        let slabs = std::iter::from_fn(|| end.inbox.try_recv().ok());
        let seen: Vec<u64> = slabs.flat_map(|slab| slab.ranges().to_vec()).map(|run| run.first_seq).collect();
        assert_eq!(seen, kept, "{policy:?}");
    }
}

// Proves that the pool is never empty while a queue has space. The test fills every queue. The
// recorder holds a batch and one slab of each group, and each group has a full open slab. Then all
// slabs are in use.
#[test]
fn the_pool_covers_every_queue_slot() {
    let policies = [OnFull::DropNewest, OnFull::DropOldest, OnFull::DropNewest];
    let PolicyRig { mut groups, mut end, .. } = rig(&policies, QUEUED, 2048);
    let mut batch = Vec::new();
    let mut seq = 0;
    let mut fill = |groups: &mut Vec<SlabProducer>| {
        for _ in 0..QUEUED + 2 {
            for (source, group) in (0_u16..).step_by(SOURCES_A_GROUP.into()).zip(groups.iter_mut()) {
                append(group, source, seq, seq, 200);
                seq += 1;
            }
        }
    };
    fill(&mut groups);
    // The recorder holds one slab of each group, and takes a batch of two.
    batch.extend((0..BATCH).map(|_| end.inbox.try_recv().unwrap()));
    fill(&mut groups);
    assert!(end.inbox.len() >= policies.len() * QUEUED);
    let losses: Vec<Loss> = std::iter::from_fn(|| end.ledger.take()).collect();
    assert!(losses.iter().all(|loss| loss.causes == Causes::QueueFull), "{losses:?}");
    assert!(end.pool.free() <= 1, "{} are free: the rig has not filled every slot", end.pool.free());
}

// Proves that a group that floods its queue does not delay another group. A slab is taken before
// all slabs that were queued later, and no slab is lost.
#[test]
fn a_busy_group_starves_no_other() {
    let PolicyRig { mut groups, mut end, .. } = rig(&[OnFull::DropOldest, OnFull::DropNewest], QUEUED, 2048);
    let mut waits_since = None;
    let mut taken = 0;
    for clock in 0..1000 {
        append(&mut groups[0], 0, clock, clock, 60);
        groups[0].queue_open_slab(clock);
        if clock % 50 == 49 {
            append(&mut groups[1], SOURCES_A_GROUP, clock / 50, clock, 60);
            groups[1].queue_open_slab(clock);
            waits_since = Some(clock);
        }
        if clock % 3 == 0 {
            let slab = end.inbox.try_recv().unwrap();
            assert!(waits_since.is_none_or(|since| slab.queued_ns <= since), "taken before an older one");
            if slab.ranges()[0].source == SOURCES_A_GROUP {
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

// Proves that a waiting group gives up exactly one second after the stop. The group waits for a
// large slab or for space in the queue. Proves that the group gets space if the recorder makes
// space.
#[test]
fn a_wait_ends_with_the_run() {
    for is_large in [false, true] {
        for makes_room in [false, true] {
            let PolicyRig { mut groups, mut end, counters, stop } = rig(&[OnFull::Block], 2, 2048);
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
            let mut seen = ReceivedSlabs::default();
            if makes_room {
                while !sampler.is_finished() {
                    if let Ok(slab) = end.inbox.try_recv() {
                        seen.take(&slab, &end.ledger);
                        end.pool.give_back(slab);
                        end.inbox.notify_not_full();
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
            seen.check(&end.ledger, 0, 5, Causes::QueueFull | Causes::PoolEmpty);
            assert_eq!(seen.lost.is_empty(), makes_room, "{:?}", seen.lost);
        }
    }
}

// Proves that during a backlog, an old slab stays open until it is full, so that a queue of the
// same capacity bridges a longer stall of the recorder. Proves that a slab is queued if the next
// tick is a long time away.
#[test]
fn a_backlog_fills_its_slabs() {
    let PolicyRig { mut groups, end, .. } = rig(&[OnFull::DropNewest], 8, 2048);
    let group = &mut groups[0];
    let mut bridged = 0;
    loop {
        append(group, 0, bridged, bridged * 10, 12);
        if group.is_due(bridged * 10, bridged * 10 + 10) {
            group.queue_open_slab(bridged * 10);
        }
        let is_lost = group.open_slab().is_some_and(Slab::is_empty) || end.ledger.take().is_some();
        if is_lost || bridged > 1000 {
            break;
        }
        bridged += 1;
    }
    // The sum counts four slabs with one frame each, then four full slabs and the full open slab.
    assert_eq!(bridged, 4 + 4 * 4 + 4, "{bridged} frames");
    assert!(group.is_due(u64::MAX / 2, u64::MAX) || group.open_slab().is_none_or(Slab::is_empty));
}
