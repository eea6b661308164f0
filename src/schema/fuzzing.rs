//! What must hold for any schema and any payload: the entry of `fuzz/`, and of the tests that run its corpus.
//!
//! It takes bytes of a stranger and panics where this room breaks a promise. None of it is in a release: the module is
//! there for tests and under the feature `fuzzing`.

use serde::de::IgnoredAny;

use super::error::{DecodeError, SchemaError};
use super::flat::Row;
use super::plan::Plan;
use super::rate::Rates;
use super::value::{Place, Value, Visitor};
use super::walk::VALUES_MAX;

/// Most fields that one input is projected to, and most values of a walk that are set beside a projection: an input
/// that unfolds is to cost time once, not many times over.
const COMPARED_MAX: usize = 64;
const RECORDED_MAX: usize = 20_000;
/// Bytes in front of the schema: the length of the root's name, its bytes, the length of the schema.
const SCHEMA_LENGTH_BYTES: usize = 2;

/// Compiles a schema that `data` holds, and decodes the payload behind it in every way there is.
///
/// `data` is a byte of length and so many bytes of the root's name, two bytes of length (little-endian) and so many of
/// the binary schema, and the payload.
///
/// # Panics
/// A promise of the schema room is broken.
pub fn reflect(data: &[u8]) {
    let Some((root, schema, payload)) = parts(data) else { return };
    match Plan::compile(schema, root) {
        Ok(plan) => decode(&plan, payload),
        Err(error) => assert!(!error.to_string().is_empty(), "an error says something"),
    }
}

fn parts(data: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let (length, rest) = data.split_first()?;
    let (root, rest) = rest.split_at_checked((*length).into())?;
    let (length, rest) = rest.split_first_chunk::<SCHEMA_LENGTH_BYTES>()?;
    let (schema, payload) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    Some((str::from_utf8(root).ok()?, schema, payload))
}

/// All ways of decoding one payload say the same.
pub(super) fn decode(plan: &Plan, payload: &[u8]) {
    let mut checker = Checker::default();
    let walked = plan.walk(payload, &mut checker);
    assert!(checker.calls <= VALUES_MAX.max(payload.len()), "values are bounded");
    if let Err(error) = &walked {
        assert!(!error.to_string().is_empty(), "an error says something");
    } else {
        assert!(checker.open.is_empty(), "what begins ends");
    }

    let mut line = b"before".to_vec();
    assert_eq!(plan.append_json(payload, &mut line), walked, "JSON is a walk");
    let (before, json) = line.split_at_checked(6).unwrap_or_default();
    assert_eq!(before, b"before", "what stood there stays");
    match walked {
        Ok(()) => assert!(serde_json::from_slice::<IgnoredAny>(json).is_ok(), "JSON is JSON"),
        Err(_) => assert!(json.is_empty(), "nothing stays of a failure"),
    }
    let mut row = Row::new();
    assert_eq!(row.fill(plan, payload), walked, "a row is a walk");
    assert!(walked.is_ok() || row.is_empty(), "nothing stays of a failure");
    assert_eq!(Rates::default().observe(plan, 0, payload), walked, "rates are a walk");
    projections(plan, payload);
}

/// Projections are what a walk finds at their paths, faults too unless elements are picked.
fn projections(plan: &Plan, payload: &[u8]) {
    let (mut fixed, mut picked) = (Vec::new(), Vec::new());
    for leaf in plan.fields().take(COMPARED_MAX) {
        match plan.project(&[&leaf.path]) {
            Ok(_) => fixed.push(leaf.path),
            Err(SchemaError::NoIndex { list, .. }) => pick(plan, &leaf.path, &list, &mut picked),
            Err(SchemaError::NotSingle { .. } | SchemaError::TooDeep { .. }) => {}
            Err(other) => unreachable!("a field of the plan cannot fail so: {other}"),
        }
    }
    if let Some((projected, walked)) = both(plan, &fixed, &fixed, payload) {
        assert_eq!(projected, walked, "{fixed:?}");
    }
    for (path, unpicked) in picked {
        let both = both(plan, std::slice::from_ref(&path), std::slice::from_ref(&unpicked), payload);
        if let Some((projected, Ok(walked))) = both {
            assert_eq!(projected, Ok(walked), "{path}");
        }
    }
}

/// The path with an index behind each list, if it leads to single values then; beside it the path without.
fn pick(plan: &Plan, path: &str, list: &str, picked: &mut Vec<(String, String)>) {
    for index in 0..3 {
        let Some(below) = path.strip_prefix(list) else { return };
        let longer = format!("{list}.{index}{below}");
        match plan.project(&[&longer]) {
            Ok(_) => picked.push((longer, path.to_owned())),
            Err(SchemaError::NoIndex { list, .. }) => {
                let mut deeper = Vec::new();
                pick(plan, &longer, &list, &mut deeper);
                picked.extend(deeper.into_iter().map(|(longest, _)| (longest, path.to_owned())));
            }
            Err(_) => {}
        }
    }
}

type Values = Result<Vec<String>, DecodeError>;

/// What a projection and a walk of the selected plan have at some paths, as text so that what is not a number equals
/// itself; none where the walk brings more than is compared.
fn both(plan: &Plan, paths: &[String], selected: &[String], payload: &[u8]) -> Option<(Values, Values)> {
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let selected: Vec<&str> = selected.iter().map(String::as_str).collect();
    let (Ok(projection), Ok(plan)) = (plan.project(&paths), plan.select(&selected)) else {
        unreachable!("these paths were projected before: {paths:?}");
    };
    let mut values = vec![Value::Bool(true); paths.len()];
    let projected = projection.read(payload, &mut values);
    let projected = projected.map(|()| values.iter().map(|value| format!("{value:?}")).collect());
    let absent = format!("{:?}", Value::Absent);
    let mut recorder = Recorder { values: vec![absent; paths.len()], paths, way: Vec::new(), calls: 0 };
    let walked = plan.walk(payload, &mut recorder);
    (recorder.calls <= RECORDED_MAX).then(|| (projected, walked.map(|()| recorder.values)))
}

/// Keeps what a walk brings at some paths.
struct Recorder<'r> {
    paths: Vec<&'r str>,
    values: Vec<String>,
    /// Names and indices to the place at hand.
    way: Vec<String>,
    calls: usize,
}

impl Recorder<'_> {
    fn enter(&mut self, place: Place<'_>) {
        self.calls += 1;
        self.way.push(match place {
            Place::Root => return,
            Place::Field(field) => field.name().to_owned(),
            Place::Element(_, index) => index.to_string(),
        });
    }
}

impl Visitor for Recorder<'_> {
    fn begin_object(&mut self, place: Place<'_>) {
        self.enter(place);
    }

    fn end_object(&mut self) {
        self.way.pop();
    }

    fn begin_list(&mut self, place: Place<'_>, _: usize) {
        self.enter(place);
    }

    fn end_list(&mut self) {
        self.way.pop();
    }

    fn value(&mut self, place: Place<'_>, value: Value<'_>) {
        self.enter(place);
        if self.calls <= RECORDED_MAX {
            let way = self.way.join(".");
            for (_, kept) in self.paths.iter().zip(&mut self.values).filter(|(path, _)| **path == way) {
                *kept = format!("{value:?}");
            }
        }
        self.way.pop();
    }
}

/// Fails where a walk breaks off an object or brings another number of elements than it said.
#[derive(Default)]
struct Checker {
    calls: usize,
    /// Elements that are still to come of each list that is open; none for an object.
    open: Vec<Option<usize>>,
}

impl Checker {
    fn enter(&mut self, place: Place<'_>) {
        self.calls += 1;
        match (place, self.open.last_mut()) {
            (Place::Root, None) | (Place::Field(_), Some(None)) => {}
            (Place::Element(..), Some(Some(left))) => {
                assert!(*left > 0, "no more elements than were said");
                *left -= 1;
            }
            (place, _) => unreachable!("out of place: {place:?}"),
        }
    }
}

impl Visitor for Checker {
    fn begin_object(&mut self, place: Place<'_>) {
        self.enter(place);
        self.open.push(None);
    }

    fn end_object(&mut self) {
        assert_eq!(self.open.pop(), Some(None), "an object ends where it began");
    }

    fn begin_list(&mut self, place: Place<'_>, length: usize) {
        self.enter(place);
        self.open.push(Some(length));
    }

    fn end_list(&mut self) {
        assert_eq!(self.open.pop(), Some(Some(0)), "a list ends with its last element");
    }

    fn value(&mut self, place: Place<'_>, _: Value<'_>) {
        self.enter(place);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use flatbuffers::FlatBufferBuilder;
    use proptest::prelude::*;

    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_PAYLOAD, marked, shapes};
    use super::super::host::{CoreTimes, Cpu, CpuArgs, CpuTimes};
    use super::*;
    use crate::effort;

    /// Where, and what is written there: a small number, the end of a range, a bit, a cut.
    type Change = (prop::sample::Index, u8, u32);

    fn changes(most: usize) -> impl Strategy<Value = Vec<Change>> {
        let word = prop_oneof![0_u32..64, any::<u32>(), Just(u32::MAX), Just(1 << 31), Just(i32::MAX as u32)];
        prop::collection::vec((any::<prop::sample::Index>(), 0_u8..5, word), 0..most)
    }

    fn change(bytes: &mut Vec<u8>, changes: &[Change]) {
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
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/reflect");
        let Ok(entries) = std::fs::read_dir(&folder) else {
            println!("passed over: no corpus in {}", folder.display());
            return vec![Vec::new()];
        };
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| std::fs::read(file).unwrap()).collect()
    }

    #[test]
    fn the_corpus_holds() {
        // Goal: the room keeps its promises on the whole corpus, and the corpus reaches a payload. Method: every
        // file through the entry.
        let files = corpus();
        for file in &files {
            reflect(file);
        }
        let compiled = files
            .iter()
            .filter(|file| parts(file).is_some_and(|(root, schema, _)| Plan::compile(schema, root).is_ok()));
        assert!(files.len() == 1 || compiled.count() * 2 > files.len());
        let whole = files.iter().filter_map(|file| parts(file)).filter(|(root, schema, payload)| {
            Plan::compile(schema, root).is_ok_and(|plan| plan.walk(payload, &mut Checker::default()).is_ok())
        });
        assert!(files.len() == 1 || whole.count() >= 5, "the corpus has payloads that fit");
    }

    fn cpu() -> Plan {
        Plan::compile(include_bytes!("../../generated/host/cpu.bfbs"), "flatcap.host.Cpu").unwrap()
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
        #![proptest_config(ProptestConfig { cases: effort::of(125, 500), ..ProptestConfig::default() })]

        #[test]
        fn near_the_corpus_it_holds(file in any::<prop::sample::Index>(), changed in changes(5)) {
            // Goal: no schema and no payload breaks a promise. Method: changes of every file of the corpus.
            let files = corpus();
            let mut bytes = files[file.index(files.len())].clone();
            change(&mut bytes, &changed);
            reflect(&bytes);
        }

        #[test]
        fn projections_are_walks(
            total in counts(),
            others in counts(),
            cores in prop::collection::vec(counts(), 0..4),
            changed in changes(4),
        ) {
            // Goal: a projection has what the walk has, and fails as it does. Method: samples of `cpu` with
            // absent values, of few cores; as they are, and changed.
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
            change(&mut payload, &changed);
            decode(&plan, &payload);
        }

        #[test]
        fn what_is_left_out_is_left_out_for_both(slots in any::<u16>(), changed in changes(3)) {
            // Goal: absence and defaults agree. Method: zero in some of a table's slots, by the vtable of payloads that
            // flatc made.
            for (plan, payload) in [(shapes(), SHAPES_PAYLOAD), (marked(), MARKED_PAYLOAD)] {
                let mut payload = payload.to_vec();
                let word = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap()) as usize;
                let vtable = word(0) - word(word(0));
                let length = usize::from(payload[vtable]);
                for slot in (4..length).step_by(2).filter(|slot| slots & (1 << (slot / 2 - 2)) != 0) {
                    payload[vtable + slot..vtable + slot + 2].fill(0);
                }
                decode(&plan, &payload);
                change(&mut payload, &changed);
                decode(&plan, &payload);
            }
        }
    }
}
