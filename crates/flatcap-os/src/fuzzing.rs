//! Properties that must hold for any bytes in perf rings. This module is the entry point of
//! `fuzz/`; tests also use it.
//!
//! Only tests and the feature `fuzzing` compile this module; releases do not.

use super::perf_batch::PerfBatch;
use super::perf_record::{PerfRecord, PerfRecords, RecordedEvent, SampleContent};

/// The length of a record is a multiple of this size, in bytes.
const WORD_BYTES: usize = 8;
/// Maximum number of rings in an input.
const RINGS_MAX: usize = 3;

/// Reads the records of several rings. The first byte selects the content of samples and the number
/// of rings. The rings share the remaining bytes.
///
/// # Panics
/// Panics if more bytes are read than a ring has. Also panics if a merged batch does not contain
/// each record exactly once, in time order and in the order of its ring.
pub fn perf(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let content = if choice & 1 == 0 { SampleContent::Tracepoint } else { SampleContent::CallChain };
    let rings = 1 + usize::from(choice >> 1) % RINGS_MAX;
    let rings: Vec<Vec<u8>> = rest.chunks(rest.len().div_ceil(rings).max(1)).map(<[u8]>::to_vec).collect();
    let (expected, malformed): (Vec<Vec<PerfRecord<'_>>>, Vec<u64>) =
        rings.iter().map(|bytes| records_of(bytes, content)).unzip();
    let mut batch = PerfBatch::of_bytes(content, &rings);
    batch.begin(0, u64::MAX);
    let (mut taken, mut last_ns) = (vec![0_usize; rings.len()], 0);
    batch.take(|ring, record| {
        assert!(record.time >= last_ns, "records are not in the order of time");
        last_ns = record.time;
        let own = taken.get_mut(ring).expect("a ring that there is");
        let found = expected.get(ring).and_then(|records| records.get(*own)).expect("a record that there is");
        assert_eq!((record.current, record.event), (found.current, found.event));
        assert!(record.time >= found.time);
        *own += 1;
    });
    assert_eq!(batch.end_ns(), u64::MAX);
    // A ring ends at a record with the largest possible time.
    let in_time =
        |records: &Vec<PerfRecord<'_>>| records.iter().take_while(|record| record.time < u64::MAX).count();
    assert!(expected.iter().map(in_time).eq(taken.iter().copied()), "a record is missing");
    let (used, found_malformed) = batch.used();
    assert!(used.iter().zip(&rings).all(|(used, bytes)| *used <= bytes.len()));
    let malformed: u64 = malformed.iter().sum();
    assert!(found_malformed <= malformed);
    if expected.iter().map(Vec::len).eq(taken) {
        assert_eq!(found_malformed, malformed);
    }
}

/// Returns the records of a ring, and the number of malformed records.
fn records_of(bytes: &[u8], content: SampleContent) -> (Vec<PerfRecord<'_>>, u64) {
    let mut records = PerfRecords::new(bytes, content);
    let mut found = Vec::new();
    loop {
        let switch_ns = records.next_switch_time();
        let Some(record) = records.next() else { break };
        assert!(switch_ns.is_none_or(|time_ns| time_ns == record.time));
        found.push(record);
    }
    assert!(records.position() <= bytes.len(), "more was read than there is");
    let all = found.len() as u64 + records.malformed();
    assert!(all <= (bytes.len() / WORD_BYTES + 1) as u64, "more records than fit");
    for record in &found {
        if let RecordedEvent::CallChain(chain) = record.event {
            assert!(chain.addresses().count() * WORD_BYTES <= bytes.len());
        }
    }
    (found, records.malformed())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::perf_record::{THREAD_NAME_BYTES, ThreadId};

    fn id(thread: u32) -> ThreadId {
        ThreadId { process: thread, thread }
    }

    /// Returns two rings with a record of each kind that tests can encode.
    fn seeds() -> [(&'static str, Vec<u8>); 2] {
        let record = |time, event| PerfRecord { time, current: id(7), event }.encode();
        let mut name = [0; THREAD_NAME_BYTES];
        name[..5].copy_from_slice(b"shell");
        let of_sched = [
            record(10, RecordedEvent::SwitchOut { next: id(8), is_preempted: true }),
            record(11, RecordedEvent::Tracepoint(&[1; 32])),
            record(12, RecordedEvent::Fork { child: id(9), parent: id(7) }),
            record(12, RecordedEvent::Name { thread: id(9), name, is_exec: true }),
            record(11, RecordedEvent::SwitchIn { previous: id(8) }),
            record(13, RecordedEvent::Exit { thread: id(9), parent: 7 }),
            record(14, RecordedEvent::Lost(3)),
            record(u64::MAX, RecordedEvent::Lost(4)),
        ];
        let of_profile = [
            record(20, RecordedEvent::Name { thread: id(7), name, is_exec: false }),
            record(21, RecordedEvent::Lost(1)),
        ];
        let seed = |choice: u8, records: &[Vec<u8>]| [&[choice][..], &records.concat().repeat(2)].concat();
        [("sched", seed(2, &of_sched)), ("profile", seed(3, &of_profile))]
    }

    // Proves that the properties hold for the seeds, and that the seeds in fuzz/corpus are current.
    // FLATCAP_CORPUS=write writes them.
    #[test]
    fn the_corpus_has_the_seeds() {
        for (name, seed) in seeds() {
            perf(&seed);
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/perf").join(name);
            if std::env::var_os("FLATCAP_CORPUS").is_some_and(|value| value == "write") {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &seed).unwrap();
            }
            let is_current = std::fs::read(&path).is_ok_and(|bytes| bytes == seed);
            assert!(is_current, "{} is not the seed: FLATCAP_CORPUS=write", path.display());
        }
    }

    proptest! {
        // Proves that the properties hold for random bytes and for damaged records.
        #[test]
        fn perf_holds_for_any_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            perf(&bytes);
            for (_, mut seed) in seeds() {
                for (place, value) in &damage {
                    let place = place.index(seed.len());
                    seed[place] = *value;
                }
                perf(&seed);
            }
        }
    }
}
