//! The fuzz target of the schema module. Tests also run this fuzz target over the corpus.
//!
//! The target accepts arbitrary bytes and panics if the module violates a guarantee. This code is
//! compiled only for tests and with the feature `fuzzing`, so a release does not contain it.

use std::collections::HashSet;

use serde::de::IgnoredAny;

use super::compiled::CompiledSchema;
use super::flatten::FlatRow;
use super::value::FieldValue;
use super::visitor::{PathStep, Visitor};
use super::walk::VALUES_MAX;

/// Maximum number of selected fields per input, and maximum number of values in a walk that is
/// compared with another walk. The limits are needed because each walk takes a long time if an
/// input expands to many values.
const COMPARED_MAX: usize = 64;
const RECORDED_MAX: usize = 20_000;
/// Number of bytes of the field that contains the length of the schema.
const SCHEMA_LENGTH_BYTES: usize = 2;

/// Compiles the schema in `data`. Decodes the payload, which follows the schema in `data`, in every
/// possible way.
///
/// `data` consists of the length of the root's name (one byte), the name, the length of the binary
/// schema (two bytes, little-endian), the schema, and the payload.
///
/// # Panics
/// Panics if the schema module violates a guarantee.
pub fn reflect(data: &[u8]) {
    let Some((root, schema, payload)) = parts(data) else { return };
    match CompiledSchema::compile(schema, root) {
        Ok(plan) => decode(&plan, payload),
        Err(error) => assert!(!error.to_string().is_empty(), "an error has a message"),
    }
}

fn parts(data: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let (length, rest) = data.split_first()?;
    let (root, rest) = rest.split_at_checked((*length).into())?;
    let (length, rest) = rest.split_first_chunk::<SCHEMA_LENGTH_BYTES>()?;
    let (schema, payload) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    Some((str::from_utf8(root).ok()?, schema, payload))
}

/// Checks that all ways of decoding a payload give the same result.
pub(super) fn decode(plan: &CompiledSchema, payload: &[u8]) {
    let mut checker = NestingChecker::default();
    let walked = plan.walk(payload, &mut checker);
    assert!(checker.calls <= VALUES_MAX.max(payload.len()), "values are bounded");
    if let Err(error) = &walked {
        assert!(!error.to_string().is_empty(), "an error has a message");
    } else {
        assert!(checker.open.is_empty(), "every begin has its end");
    }

    let mut line = b"before".to_vec();
    assert_eq!(plan.append_json(payload, &mut line), walked, "JSON gives the result of the walk");
    let (before, json) = line.split_at_checked(6).unwrap_or_default();
    assert_eq!(before, b"before", "earlier output is unchanged");
    match walked {
        Ok(()) => assert!(serde_json::from_slice::<IgnoredAny>(json).is_ok(), "the output is valid JSON"),
        Err(_) => assert!(json.is_empty(), "a failure leaves no output"),
    }
    assert_eq!(plan.walk(payload, &mut FlatRow::default()), walked, "a row gives the result of the walk");
    selections(plan, payload);
}

/// Checks that decoding with selected fields gives the same values for these fields as decoding
/// with the complete schema.
fn selections(plan: &CompiledSchema, payload: &[u8]) {
    let paths: Vec<String> = plan.fields().take(COMPARED_MAX).map(|leaf| leaf.path).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    // flatc does not allow two fields with the same name, but damaged schemas may have such fields.
    let has_duplicates = paths.iter().collect::<HashSet<_>>().len() < paths.len();
    let Ok(selected) = plan.select(&paths) else { return };
    let values = |plan: &CompiledSchema| {
        let mut recorder = RecordingVisitor { paths: &paths, path: Vec::new(), values: Vec::new(), calls: 0 };
        let walked = plan.walk(payload, &mut recorder);
        (recorder.calls <= RECORDED_MAX).then_some((walked, recorder.values))
    };
    if let (false, Some((Ok(()), all)), Some(some)) = (has_duplicates, values(plan), values(&selected)) {
        assert_eq!(some, (Ok(()), all), "{paths:?}");
    }
}

/// Records the values of some paths during a walk. The values are recorded as text, so that NaN
/// equals itself.
struct RecordingVisitor<'r> {
    paths: &'r [&'r str],
    values: Vec<String>,
    /// The names of the current path. `None` for an element of a list.
    path: Vec<Option<String>>,
    calls: usize,
}

impl RecordingVisitor<'_> {
    fn enter(&mut self, step: PathStep<'_>) {
        self.calls += 1;
        self.path.push(match step {
            PathStep::Root | PathStep::Element(..) => None,
            PathStep::Field(field) => Some(field.name().to_owned()),
        });
    }
}

impl Visitor for RecordingVisitor<'_> {
    fn begin_object(&mut self, step: PathStep<'_>) {
        self.enter(step);
    }

    fn end_object(&mut self) {
        self.path.pop();
    }

    fn begin_list(&mut self, step: PathStep<'_>, _: usize) {
        self.enter(step);
    }

    fn end_list(&mut self) {
        self.path.pop();
    }

    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>) {
        self.enter(step);
        if self.calls <= RECORDED_MAX {
            let current = self.path.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(".");
            if self.paths.contains(&current.as_str()) {
                self.values.push(format!("{current} {value:?}"));
            }
        }
        self.path.pop();
    }
}

/// Panics if a walk ends an object early, or if the number of elements differs from the count that
/// the walk announced.
#[derive(Default)]
struct NestingChecker {
    calls: usize,
    /// The number of remaining elements of each current list. `None` for an object.
    open: Vec<Option<usize>>,
}

impl NestingChecker {
    fn enter(&mut self, step: PathStep<'_>) {
        self.calls += 1;
        match (step, self.open.last_mut()) {
            (PathStep::Root, None) | (PathStep::Field(_), Some(None)) => {}
            (PathStep::Element(..), Some(Some(left))) => {
                assert!(*left > 0, "no more elements than announced");
                *left -= 1;
            }
            (place, _) => unreachable!("unexpected position: {place:?}"),
        }
    }
}

impl Visitor for NestingChecker {
    fn begin_object(&mut self, step: PathStep<'_>) {
        self.enter(step);
        self.open.push(None);
    }

    fn end_object(&mut self) {
        assert_eq!(self.open.pop(), Some(None), "the end belongs to an object");
    }

    fn begin_list(&mut self, step: PathStep<'_>, length: usize) {
        self.enter(step);
        self.open.push(Some(length));
    }

    fn end_list(&mut self) {
        assert_eq!(self.open.pop(), Some(Some(0)), "a list ends with its last element");
    }

    fn value(&mut self, step: PathStep<'_>, _: FieldValue<'_>) {
        self.enter(step);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use flatbuffers::FlatBufferBuilder;
    use proptest::prelude::*;

    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_PAYLOAD, marked, shapes};
    use super::*;
    use crate::fixtures::host::{CoreTimes, Cpu, CpuArgs, CpuTimes};
    use crate::testing::effort;

    /// The position, the kind and the value of a change. A change affects a bit, a byte, two bytes
    /// or four bytes, or truncates the input.
    type Mutation = (prop::sample::Index, u8, u32);

    fn mutations(most: usize) -> impl Strategy<Value = Vec<Mutation>> {
        let word = prop_oneof![0_u32..64, any::<u32>(), Just(u32::MAX), Just(1 << 31), Just(i32::MAX as u32)];
        prop::collection::vec((any::<prop::sample::Index>(), 0_u8..5, word), 0..most)
    }

    fn mutate(bytes: &mut Vec<u8>, changes: &[Mutation]) {
        for (at, what, word) in changes {
            if bytes.is_empty() {
                return;
            }
            let at = at.index(bytes.len());
            let new = word.to_le_bytes();
            match what {
                0 => bytes[at] ^= 1 << (word % 8),
                1 => bytes[at] = new[0],
                2 => bytes.iter_mut().skip(at).zip(&new[..2]).for_each(|(byte, new)| *byte = *new),
                3 => bytes.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = new),
                _ => bytes.truncate(at.max(4)),
            }
        }
    }

    fn corpus() -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/reflect");
        let Ok(entries) = std::fs::read_dir(&folder) else {
            println!("skipped: no corpus in {}", folder.display());
            return vec![Vec::new()];
        };
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| std::fs::read(file).unwrap()).collect()
    }

    #[test]
    fn the_corpus_holds() {
        // Proves that the module keeps its guarantees on the corpus, and that the corpus contains
        // payloads that match their schemas.
        let files = corpus();
        for file in &files {
            reflect(file);
        }
        let compiled = files.iter().filter(|file| {
            parts(file).is_some_and(|(root, schema, _)| CompiledSchema::compile(schema, root).is_ok())
        });
        assert!(files.len() == 1 || compiled.count() * 2 > files.len());
        let whole = files.iter().filter_map(|file| parts(file)).filter(|(root, schema, payload)| {
            CompiledSchema::compile(schema, root)
                .is_ok_and(|plan| plan.walk(payload, &mut NestingChecker::default()).is_ok())
        });
        assert!(files.len() == 1 || whole.count() >= 5, "the corpus has payloads that fit");
    }

    fn cpu() -> CompiledSchema {
        CompiledSchema::compile(include_bytes!("../../../../generated/host/cpu.bfbs"), "flatcap.host.Cpu")
            .unwrap()
    }

    fn counts() -> impl Strategy<Value = [u64; 10]> {
        prop::array::uniform10(prop_oneof![any::<u64>(), Just(u64::MAX), Just(0)])
    }

    fn times(
        [user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice]: [u64; 10],
    ) -> CpuTimes {
        CpuTimes::new(user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: effort::cases(125, 500), ..ProptestConfig::default() })]

        #[test]
        fn near_the_corpus_it_holds(file in any::<prop::sample::Index>(), changed in mutations(5)) {
            // Proves that mutations of corpus files break no guarantee.
            let files = corpus();
            let mut bytes = files[file.index(files.len())].clone();
            mutate(&mut bytes, &changed);
            reflect(&bytes);
        }

        #[test]
        fn all_ways_of_decoding_agree(
            total in counts(),
            others in counts(),
            cores in prop::collection::vec(counts(), 0..4),
            changed in mutations(4),
        ) {
            // Proves that all ways of decoding give the same result, including errors. The inputs
            // are samples of `cpu` with absent values and few cores, both unchanged and mutated.
            let mut builder = FlatBufferBuilder::new();
            let cores: Vec<_> = (0..).zip(cores).map(|(core, counts)| CoreTimes::new(core, &times(counts))).collect();
            let cores = Some(builder.create_vector(&cores));
            let [context_switches, forks, interrupts, softirqs, running, ..] = others;
            let total = times(total);
            let args = CpuArgs {
                total: Some(&total), context_switches, forks, interrupts, softirqs, running, cores,
                ..Default::default()
            };
            let root = Cpu::create(&mut builder, &args);
            builder.finish_minimal(root);
            let mut payload = builder.finished_data().to_vec();
            let plan = cpu();
            decode(&plan, &payload);
            mutate(&mut payload, &changed);
            decode(&plan, &payload);
        }

        #[test]
        fn what_is_left_out_is_left_out_for_all(slots in any::<u16>(), changed in mutations(3)) {
            // Proves that all ways of decoding give the same result for omitted fields. The test
            // omits fields by zeroing their slots in the vtables of payloads that flatc wrote.
            for (plan, payload) in [(shapes(), SHAPES_PAYLOAD), (marked(), MARKED_PAYLOAD)] {
                let mut payload = payload.to_vec();
                let word = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap()) as usize;
                let vtable = word(0) - word(word(0));
                let length = usize::from(payload[vtable]);
                for slot in (4..length).step_by(2).filter(|slot| slots & (1 << (slot / 2 - 2)) != 0) {
                    payload[vtable + slot..vtable + slot + 2].fill(0);
                }
                decode(&plan, &payload);
                mutate(&mut payload, &changed);
                decode(&plan, &payload);
            }
        }
    }
}
