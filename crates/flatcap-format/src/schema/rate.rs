//! Rates of counters, from one payload of a source to the next.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::compiled::{CompiledSchema, MetricKind};
use super::error::DecodeError;
use super::value::FieldValue;
use super::visitor::{PathStep, Visitor};

/// The last payload of a source, and the rates of its counters since the one before.
#[derive(Debug, Default)]
pub struct Rates {
    last: CounterSnapshot,
    next: CounterSnapshot,                // kept for its buffers
    matches: HashMap<u64, Option<usize>>, // identity -> index in `last.elements`; None if ambiguous
    per_value: Vec<Option<f64>>,          // rate of each value, in the order of a walk
    last_mono_ns: Option<u64>,            // of `last`
}

/// The counters of a payload, in the order of a walk.
#[derive(Debug, Default)]
struct CounterSnapshot {
    values: Vec<Option<CountedValue>>, // None unless a counter
    elements: Vec<ListElement>,        // complete elements, in order
    shape: u64,                        // hash of list lengths and identifying values
    lists: Vec<OpenList>,              // current lists, outermost first
    objects: usize,                    // number of current objects
    open_element: Option<ListElement>,
}

/// The value of a counter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CountedValue {
    Integer(u64),
    Fraction(f64),
}

/// An element of an outermost list: its identity, and the range of its values. Elements of inner
/// lists have no identity of their own; their values belong to it.
#[derive(Debug, Clone, Copy)]
struct ListElement {
    key: u64,               // hash of its identity fields
    fallback_key: u64,      // hash of its texts and states
    has_key: bool,          // whether it has identity fields
    has_fallback_key: bool, // whether it has texts or states
    position: u64,          // hash of the list and the index in it
    shape: u64,             // hash of its objects, inner list lengths, and what identifies their elements
    begin: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy)]
struct OpenList {
    name: u64,
    length: usize,
    objects: usize, // current objects when it began
    elements: usize,
}

impl CountedValue {
    /// Returns the count of a counter's value; None for other values.
    pub(crate) fn of(value: FieldValue<'_>) -> Option<Self> {
        match value {
            FieldValue::Unsigned(number) => Some(Self::Integer(number)),
            FieldValue::Float(number) => Some(Self::Fraction(number)),
            FieldValue::Float32(number) => Some(Self::Fraction(number.into())),
            _ => None,
        }
    }

    /// Returns by how much the counter grew; None if it decreased or is not a number.
    #[allow(clippy::cast_precision_loss, reason = "a difference: 53 bits are plenty")]
    pub(crate) fn growth_since(self, before: Self) -> Option<f64> {
        match (self, before) {
            (Self::Integer(now), Self::Integer(before)) => now.checked_sub(before).map(|grown| grown as f64),
            (Self::Fraction(now), Self::Fraction(before)) => {
                Some(now - before).filter(|grown| grown.is_finite() && *grown >= 0.0)
            }
            _ => None,
        }
    }
}

impl ListElement {
    /// Returns the hash that identifies the element in the next payload: of its identity fields by
    /// schema, as far as they are texts or unsigned states, else of all its texts and unsigned
    /// states (the number of a core, the name of a disk), else of its position and the length of
    /// the list.
    fn identity(&self) -> u64 {
        match (self.has_key, self.has_fallback_key) {
            (true, _) => mix_hash(self.key_kind(), self.key),
            (false, true) => mix_hash(self.key_kind(), self.fallback_key),
            (false, false) => self.position,
        }
    }

    /// Returns whether each of its values has the same meaning as that of `other` at the same
    /// offset.
    fn has_layout_of(&self, other: &Self) -> bool {
        (self.shape, self.end - self.begin) == (other.shape, other.end - other.begin)
    }

    /// Separates the hashes of the two kinds of keys, so that equal values do not make them equal.
    fn key_kind(&self) -> u64 {
        u64::from(self.has_key)
    }
}

fn mix_hash(hash: u64, what: impl Hash) -> u64 {
    // This hasher has fixed keys, unlike those of a `HashMap`: hashes of two payloads compare.
    let mut hasher = DefaultHasher::new();
    (hash, what).hash(&mut hasher);
    hasher.finish()
}

impl Rates {
    /// Compares a payload with the previous one. A counter that decreased (it wrapped or was reset)
    /// has no rate, and neither has one of an element that is new: a new disk must not be compared
    /// with the one that had its index before. The counters of an element have rates only if its
    /// inner lists have the same elements at the same positions as before, and so have counters
    /// outside of lists, for all lists.
    ///
    /// # Errors
    /// If the payload does not fit its schema.
    pub fn observe(
        &mut self,
        schema: &CompiledSchema,
        mono_ns: u64,
        payload: &[u8],
    ) -> Result<(), DecodeError> {
        self.next.clear();
        // After an error `last` is unchanged: the next intact payload is compared with the last
        // one.
        schema.walk(payload, &mut self.next)?;
        self.compare(mono_ns);
        Ok(())
    }

    /// Compares `next`, the payload of this time, with `last`, and makes it the last one.
    fn compare(&mut self, mono_ns: u64) {
        // Without elapsed time there is no rate; dividing by it would give infinity.
        let elapsed_ns = self.last_mono_ns.and_then(|last| mono_ns.checked_sub(last)).filter(|ns| *ns > 0);
        self.matches.clear();
        for (index, element) in self.last.elements.iter().enumerate() {
            // Two elements of one identity cannot be told apart, so neither has a rate. The entry
            // stays, so that a third one finds it.
            let is_known = self.matches.contains_key(&element.identity());
            self.matches.insert(element.identity(), (!is_known).then_some(index));
        }
        let is_alike = self.last.shape == self.next.shape && self.last.values.len() == self.next.values.len();
        let mut elements = self.next.elements.iter().peekable();
        self.per_value.clear();
        for (index, value) in self.next.values.iter().enumerate() {
            // The elements of outermost lists do not overlap and are in the order of the values.
            while elements.next_if(|element| element.end <= index).is_some() {}
            let before = match elements.peek().filter(|element| element.begin <= index) {
                Some(element) => {
                    let before = self.matches.get(&element.identity()).copied().flatten();
                    let before = before.and_then(|before| self.last.elements.get(before));
                    // With other inner lists, the same offset would be another value.
                    before
                        .filter(|before| before.has_layout_of(element))
                        .map(|before| before.begin + index - element.begin)
                }
                None => Some(index).filter(|_| is_alike),
            };
            let before = before.and_then(|before| self.last.values.get(before).copied().flatten());
            let grown = value.zip(before).and_then(|(value, before)| value.growth_since(before));
            #[allow(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
            self.per_value.push(grown.zip(elapsed_ns).map(|(grown, ns)| grown / (ns as f64 / 1e9)));
        }
        std::mem::swap(&mut self.last, &mut self.next);
        self.last_mono_ns = Some(mono_ns);
    }

    /// Returns a visitor that passes each counter's rate to `inner` instead of its value, and
    /// everything else unchanged. Use it to walk the payload that was observed last.
    pub fn replace_counters<'r, V: Visitor>(&'r self, inner: &'r mut V) -> impl Visitor + use<'r, V> {
        RateVisitor { rates: &self.per_value, next: 0, inner }
    }
}

impl CounterSnapshot {
    fn clear(&mut self) {
        self.values.clear();
        self.elements.clear();
        self.lists.clear();
        self.shape = 0;
        self.objects = 0;
        self.open_element = None;
    }

    /// Returns whether the current object is an element of an outermost list.
    fn is_at_element(&self) -> bool {
        matches!(self.lists.as_slice(), [list] if list.objects == self.objects)
    }
}

impl Visitor for CounterSnapshot {
    fn begin_object(&mut self, _: PathStep<'_>) {
        if self.is_at_element()
            && let Some(list) = self.lists.last_mut()
        {
            // The length is part of it: after an insertion an index may mean another element.
            let position = mix_hash(list.name, (list.length, list.elements));
            list.elements += 1;
            let (begin, end) = (self.values.len(), self.values.len());
            self.open_element = Some(ListElement {
                key: list.name,
                fallback_key: list.name,
                has_key: false,
                has_fallback_key: false,
                position,
                shape: 0,
                begin,
                end,
            });
        } else if let Some(element) = &mut self.open_element {
            element.shape = mix_hash(element.shape, "object");
        }
        self.objects += 1;
    }

    fn end_object(&mut self) {
        self.objects = self.objects.saturating_sub(1);
        if self.is_at_element()
            && let Some(element) = self.open_element.take()
        {
            self.elements.push(ListElement { end: self.values.len(), ..element });
        }
    }

    fn begin_list(&mut self, step: PathStep<'_>, length: usize) {
        let name = mix_hash(0, step.field().map(super::compiled::Field::name));
        self.lists.push(OpenList { name, length, objects: self.objects, elements: 0 });
        self.shape = mix_hash(self.shape, length);
        if let Some(element) = &mut self.open_element {
            element.shape = mix_hash(element.shape, length);
        }
    }

    fn end_list(&mut self) {
        self.lists.pop();
    }

    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>) {
        let meaning = step.field().map_or(MetricKind::Unknown, super::compiled::Field::metric_kind);
        let is_key = step.field().is_some_and(super::compiled::Field::is_identity);
        // Inside a list, a state (the number of a core) identifies its element.
        let hash = match value {
            FieldValue::Text(text) => Some(mix_hash(0, text)),
            FieldValue::Unsigned(number) if meaning == MetricKind::State && !self.lists.is_empty() => {
                Some(mix_hash(1, number))
            }
            _ => None,
        };
        if let Some(hash) = hash {
            self.shape = mix_hash(self.shape, hash);
            let is_inner = self.lists.len() > 1;
            if let Some(element) = &mut self.open_element {
                if is_inner {
                    element.shape = mix_hash(element.shape, hash);
                }
                element.fallback_key = mix_hash(element.fallback_key, hash);
                element.has_fallback_key = true;
                if is_key {
                    element.key = mix_hash(element.key, hash);
                    element.has_key = true;
                }
            }
        }
        self.values.push(CountedValue::of(value).filter(|_| meaning == MetricKind::Counter));
    }
}

struct RateVisitor<'r, V> {
    rates: &'r [Option<f64>],
    next: usize,
    inner: &'r mut V,
}

impl<V: Visitor> Visitor for RateVisitor<'_, V> {
    fn begin_object(&mut self, step: PathStep<'_>) {
        self.inner.begin_object(step);
    }

    fn end_object(&mut self) {
        self.inner.end_object();
    }

    fn begin_list(&mut self, step: PathStep<'_>, length: usize) {
        self.inner.begin_list(step, length);
    }

    fn end_list(&mut self) {
        self.inner.end_list();
    }

    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>) {
        let rate = self.rates.get(self.next).copied().flatten();
        // There is an entry for each value of a walk, so each call advances, counter or not.
        self.next += 1;
        let is_counter = step.field().is_some_and(|field| field.metric_kind() == MetricKind::Counter);
        let value = match value {
            FieldValue::Unsigned(_)
            | FieldValue::Signed(_)
            | FieldValue::Float32(_)
            | FieldValue::Float(_)
                if is_counter =>
            {
                rate.map_or(FieldValue::Absent, FieldValue::Float)
            }
            other => other,
        };
        self.inner.value(step, value);
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;

    use super::*;
    use crate::fixtures::host::{Disk, DiskArgs, DiskCounters};
    use crate::schema::{CompiledSchema, JsonWriter};

    const SCHEMA: &[u8] = include_bytes!("../../../../generated/host/disk.bfbs");

    fn payload(devices: &[(&str, u64)]) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let devices: Vec<DiskCounters> = devices
            .iter()
            .map(|(name, reads)| {
                let mut device = DiskCounters::default();
                let mut bytes = [0; 32];
                bytes[..name.len()].copy_from_slice(name.as_bytes());
                device.set_name(&bytes);
                device.set_reads(*reads);
                device
            })
            .collect();
        let devices = builder.create_vector(&devices);
        let root = Disk::create(&mut builder, &DiskArgs { devices: Some(devices) });
        builder.finish_minimal(root);
        builder.finished_data().to_vec()
    }

    fn rates(payloads: &[(u64, Vec<u8>)]) -> Vec<String> {
        let plan = CompiledSchema::compile(SCHEMA, "flatcap.host.Disk").unwrap();
        let plan = plan.select(&["devices.name", "devices.reads"]).unwrap();
        let mut rates = Rates::default();
        payloads
            .iter()
            .map(|(mono_ns, payload)| {
                rates.observe(&plan, *mono_ns, payload).unwrap();
                let mut json = Vec::new();
                plan.walk(payload, &mut rates.replace_counters(&mut JsonWriter::new(&mut json))).unwrap();
                String::from_utf8(json).unwrap()
            })
            .collect()
    }

    // Proves that a counter becomes its change per second, and that the first value and one that
    // decreased have no rate.
    #[test]
    fn counters_become_rates() {
        let seen =
            rates(&[(0, payload(&[("a", 10), ("b", 7)])), (500_000_000, payload(&[("a", 15), ("b", 6)]))]);
        assert_eq!(seen[0], r#"{"devices":[{"name":"a","reads":null},{"name":"b","reads":null}]}"#);
        assert_eq!(seen[1], r#"{"devices":[{"name":"a","reads":10.0},{"name":"b","reads":null}]}"#);
    }

    // Proves that elements that come and go do not affect the rates of others, and that two
    // elements of one name have no rate.
    #[test]
    fn others_keep_their_rates() {
        let seen = rates(&[
            (0, payload(&[("b", 20)])),
            (1_000_000_000, payload(&[("a", 5), ("b", 23)])),
            (2_000_000_000, payload(&[("b", 24), ("b", 25), ("a", 6)])),
            (3_000_000_000, payload(&[("b", 26), ("a", 8)])),
        ]);
        assert_eq!(seen[1], r#"{"devices":[{"name":"a","reads":null},{"name":"b","reads":3.0}]}"#);
        assert_eq!(seen[3], r#"{"devices":[{"name":"b","reads":null},{"name":"a","reads":2.0}]}"#);
    }

    // Proves that an element is identified by the schema's identity fields alone: a process keeps
    // its rate when its state changes, and loses it when its PID is reused.
    #[test]
    fn elements_are_identified_by_schema_fields() {
        use crate::fixtures::host::{
            CommandLine, Process, ProcessArgs, ProcessCounters, ProcessEvents, ProcessExit, ProcessGroup,
        };
        let payload = |start: u64, state: u8, time: u64| {
            let mut builder = FlatBufferBuilder::new();
            let mut process = ProcessCounters::default();
            process.set_pid(7);
            process.set_start(start);
            process.set_state(&[state, 0, 0, 0, 0, 0, 0, 0]);
            process.set_user_time(time);
            let processes = builder.create_vector(&[process]);
            let events = ProcessEvents::default();
            let exits = Some(builder.create_vector::<ProcessExit>(&[]));
            let command_lines = Some(builder.create_vector::<CommandLine>(&[]));
            let groups = Some(builder.create_vector::<ProcessGroup>(&[]));
            let args = ProcessArgs {
                count: 1,
                processes: Some(processes),
                events: Some(&events),
                exits,
                command_lines,
                groups,
                ..ProcessArgs::default()
            };
            let root = Process::create(&mut builder, &args);
            builder.finish_minimal(root);
            builder.finished_data().to_vec()
        };
        let schema = include_bytes!("../../../../generated/host/process.bfbs");
        let plan = CompiledSchema::compile(schema, "flatcap.host.Process").unwrap();
        let plan = plan
            .select(&["processes.pid", "processes.start", "processes.state", "processes.user_time"])
            .unwrap();
        let mut rates = Rates::default();
        let mut rate = |mono_ns, payload: Vec<u8>| {
            rates.observe(&plan, mono_ns, &payload).unwrap();
            rates.per_value.last().copied().flatten()
        };
        assert_eq!(rate(0, payload(1, b'R', 10)), None);
        assert_eq!(rate(1_000_000_000, payload(1, b'S', 14)), Some(4.0));
        assert_eq!(rate(2_000_000_000, payload(2, b'S', 15)), None);
    }

    // Proves that counters that are fractions have rates, by name and labels, and that one that
    // decreased or is not a number has none.
    #[test]
    fn fractions_become_rates() {
        use crate::fixtures::host::{File, FileArgs, FileCounter, FileCounterArgs, FileValue};
        let payload = |counters: &[(&str, f64)]| {
            let mut builder = FlatBufferBuilder::new();
            let name = Some(builder.create_string("m"));
            let counters: Vec<_> = counters
                .iter()
                .map(|(labels, value)| {
                    let labels = Some(builder.create_string(labels));
                    FileCounter::create(&mut builder, &FileCounterArgs { name, labels, value: *value })
                })
                .collect();
            let counters = Some(builder.create_vector(&counters));
            let values = Some(builder.create_vector::<FileValue>(&[]));
            let args = FileArgs { values, counters, ..FileArgs::default() };
            let root = File::create(&mut builder, &args);
            builder.finish_minimal(root);
            builder.finished_data().to_vec()
        };
        let schema = include_bytes!("../../../../generated/host/file.bfbs");
        let plan = CompiledSchema::compile(schema, "flatcap.host.File").unwrap();
        let plan = plan.select(&["counters"]).unwrap();
        let mut rates = Rates::default();
        let mut observe = |mono_ns, counters: &[(&str, f64)]| {
            rates.observe(&plan, mono_ns, &payload(counters)).unwrap();
            // Name, labels and value of each element.
            rates.per_value.iter().skip(2).step_by(3).copied().collect::<Vec<_>>()
        };
        observe(0, &[("a", 1.0), ("b", 7.5), ("c", 1.0)]);
        let seen = observe(500_000_000, &[("b", 7.75), ("a", 0.5), ("c", f64::NAN), ("d", 1.0)]);
        assert_eq!(seen, [Some(0.5), None, None, None]);
    }

    // Proves that a value is not compared with one of the next element if an inner list got shorter
    // or longer, and that rates return once its length is the same again. Method: elements of a
    // number, an inner list of counters, and a counter, as a payload would be walked.
    #[test]
    fn other_inner_lists_have_no_rates() {
        let schema = include_bytes!("../../../../tests/data/schema/marked.bfbs");
        let plan = CompiledSchema::compile(schema, "flatcap.test.Marked").unwrap();
        let field = |object: &str, name: &str| {
            let object = plan.objects.iter().find(|found| found.name.ends_with(object)).unwrap();
            object.fields.iter().find(|field| field.name() == name).unwrap().clone()
        };
        let (list, inner) = (field("Marked", "cores"), field("Core", "states"));
        let (id, counter) = (field("Core", "id"), field("Times", "user"));
        let mut rates = Rates::default();
        let mut seconds = 0;
        let mut observe = |elements: &[(u64, &[u64], u64)]| {
            rates.next.clear();
            let walk = &mut rates.next;
            walk.begin_object(PathStep::Root);
            walk.begin_list(PathStep::Field(&list), elements.len());
            for (index, (number, counts, total)) in elements.iter().enumerate() {
                walk.begin_object(PathStep::Element(&list, index));
                walk.value(PathStep::Field(&id), FieldValue::Unsigned(*number));
                walk.begin_list(PathStep::Field(&inner), counts.len());
                for (at, count) in counts.iter().enumerate() {
                    walk.value(PathStep::Element(&counter, at), FieldValue::Unsigned(*count));
                }
                walk.end_list();
                walk.value(PathStep::Field(&counter), FieldValue::Unsigned(*total));
                walk.end_object();
            }
            walk.end_list();
            walk.end_object();
            seconds += 1;
            rates.compare(seconds * 1_000_000_000);
            rates.per_value.clone()
        };
        observe(&[(0, &[1, 2], 5), (1, &[3], 6)]);
        let shorter = observe(&[(0, &[2], 7), (1, &[4], 9)]);
        assert_eq!(shorter, [None, None, None, None, Some(1.0), Some(3.0)]);
        let longer = observe(&[(0, &[3, 100], 9), (1, &[5], 10)]);
        assert_eq!(longer, [None, None, None, None, None, Some(1.0), Some(1.0)]);
        let same = observe(&[(1, &[7], 10), (0, &[4, 103], 11)]);
        assert_eq!(same, [None, Some(2.0), Some(0.0), None, Some(1.0), Some(3.0), Some(2.0)]);
    }

    // Proves that a device is not compared with another that takes its index.
    #[test]
    fn elements_are_matched_by_name() {
        let seen = rates(&[
            (0, payload(&[("a", 10), ("b", 20)])),
            (1_000_000_000, payload(&[("b", 21), ("c", 99)])),
            (2_000_000_000, payload(&[("b", 22), ("c", 99)])),
        ]);
        assert_eq!(seen[1], r#"{"devices":[{"name":"b","reads":1.0},{"name":"c","reads":null}]}"#);
        assert_eq!(seen[2], r#"{"devices":[{"name":"b","reads":1.0},{"name":"c","reads":0.0}]}"#);
    }
}
