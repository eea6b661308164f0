//! Rates of counters, from one payload of a source to the next.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::compiled::{CompiledSchema, Field, MetricKind, Sparse};
use super::counter::{CountedValue, has_rate};
use super::counter_history::CounterHistory;
use super::envelope::leaves_out_elements;
use super::error::DecodeError;
use super::value::{ColumnType, FieldValue};
use super::visitor::{PathStep, Visitor};

/// The counters of a source, and their rates since the previous payload.
#[derive(Debug, Default)]
pub struct Rates {
    lists: HashMap<u64, ListHistory>, // by path; 0 for values that are in no list
    read: PayloadCounters,            // kept for its buffers
    per_value: Vec<Option<f64>>,      // rate of each value, in the order of a walk
}

/// The counters of the elements of one list.
#[derive(Debug, Default)]
struct ListHistory {
    history: CounterHistory,
    sparse: Option<Sparse>,
    columns: HashMap<u64, usize>, // by path within the element
}

/// The counters of a payload, in the order of a walk.
#[derive(Debug, Default)]
struct PayloadCounters {
    are_events: bool,
    has_ranges: bool,                 // whether a counter has a field at whose value it wraps
    values: Vec<Option<CounterRead>>, // None unless a counter with a value
    elements: Vec<ElementRead>,       // the first one has the values that are in no list
    ranges: HashMap<(usize, u64), CountedValue>, // other numbers, by element and path
    root_values: HashMap<u64, bool>,  // numbers in the root table: whether they are 0
    seen_lists: Vec<(u64, Option<Sparse>)>,
    lists: Vec<OpenList>,      // current lists, outermost first
    open: Vec<CountedElement>, // current elements, outermost first
    paths: Vec<u64>,           // of current objects, within their elements
    steps: Vec<bool>,          // whether the current objects are elements
}

/// The value of a counter in a payload.
#[derive(Debug, Clone, Copy)]
struct CounterRead {
    element: usize,
    path: u64, // within the element
    value: CountedValue,
    wraps_at: Option<u64>, // path of the field that has the range
}

/// An element of a list of a payload.
#[derive(Debug, Clone, Copy)]
struct ElementRead {
    list: u64,
    key: u64, // hash of what identifies it, and the elements around it
}

#[derive(Debug)]
struct OpenList {
    path: u64,
    length: usize,
}

/// An element that is being read.
#[derive(Debug)]
struct CountedElement {
    number: usize,
    outer_key: u64,
    position: usize,
    length: usize,
    declared: Option<u64>, // hash of its identity fields
    fallback: Option<u64>, // hash of its texts and states
    declares_identity: bool,
}

fn mix_hash(hash: u64, what: impl Hash) -> u64 {
    // This hasher has fixed keys, unlike the hasher of a `HashMap`, so hashes of two payloads can
    // be compared.
    let mut hasher = DefaultHasher::new();
    (hash, what).hash(&mut hasher);
    hasher.finish()
}

impl CountedElement {
    /// Returns the hash that identifies the element in the next payload. It covers the identity
    /// fields of the schema. Without any, it covers all strings and unsigned states (the number of
    /// a core, the name of a disk). Without those, it covers the position and the length of the
    /// list. Positions of events count from the first event.
    fn key(&self, are_events: bool) -> u64 {
        let own = if self.declares_identity { self.declared } else { self.fallback.filter(|_| !are_events) };
        let length = if are_events { 0 } else { self.length };
        own.map_or_else(
            || mix_hash(self.outer_key, (length, self.position)),
            |own| mix_hash(self.outer_key, own),
        )
    }

    fn add(&mut self, field: &Field, value: FieldValue<'_>) {
        self.declares_identity |= field.is_identity();
        let hash = match value {
            FieldValue::Text(text) => mix_hash(0, text),
            FieldValue::Unsigned(number) => mix_hash(1, number),
            FieldValue::Signed(number) => mix_hash(2, number),
            FieldValue::Bool(value) => mix_hash(3, value),
            FieldValue::Float32(_) | FieldValue::Float(_) | FieldValue::Absent => return,
        };
        self.add_hash(field, hash);
    }

    fn add_hash(&mut self, field: &Field, hash: u64) {
        self.declares_identity |= field.is_identity();
        if field.is_identity() {
            self.declared = Some(mix_hash(self.declared.unwrap_or_default(), hash));
        }
        let is_state =
            field.column_type() == Some(ColumnType::Unsigned) && field.metric_kind() == MetricKind::State;
        if is_state || field.column_type() == Some(ColumnType::Text) {
            self.fallback = Some(mix_hash(self.fallback.unwrap_or_default(), hash));
        }
    }
}

impl Rates {
    /// Compares a payload with earlier payloads, by the time and the flags of its sample. The first
    /// value of a counter has no rate, and neither has a value below the previous one (the counter
    /// wrapped or was reset). An element that is missing in a complete sample has ended: a disk
    /// must not be compared with another disk that had its name before. Elements with the same
    /// identity in one payload have no rates.
    ///
    /// # Errors
    /// The payload does not fit its schema.
    pub fn observe(
        &mut self,
        schema: &CompiledSchema,
        (mono_ns, flags): (u64, u16),
        payload: &[u8],
    ) -> Result<(), DecodeError> {
        self.read.clear();
        self.read.are_events = schema.has_events();
        self.read.has_ranges = schema.has_wraps();
        // After an error the history is unchanged: the next intact payload is compared with the
        // last one.
        schema.walk(payload, &mut self.read)?;
        self.compare(mono_ns, leaves_out_elements(flags));
        Ok(())
    }

    fn compare(&mut self, mono_ns: u64, is_cut: bool) {
        let Self { lists, read, per_value } = self;
        for (path, sparse) in &read.seen_lists {
            let new = || ListHistory { sparse: sparse.clone(), ..ListHistory::default() };
            lists.entry(*path).or_insert_with(new);
        }
        for list in lists.values_mut() {
            let leaves_out = match &list.sparse {
                None => false,
                Some(Sparse::Always) => true,
                // If the field is missing, it is unknown whether the sample leaves elements out.
                Some(Sparse::Unless0(field)) => read.root_values.get(&mix_hash(0, &**field)) != Some(&true),
            };
            list.history.begin_sample(is_cut || leaves_out);
        }
        let place = |element: &ElementRead| {
            lists.get_mut(&element.list).map_or(usize::MAX, |list| list.history.add_element(element.key))
        };
        let places: Vec<usize> = read.elements.iter().map(place).collect();
        per_value.clear();
        per_value.extend(read.values.iter().map(|value| {
            let value = value.as_ref()?;
            let list = lists.get_mut(&read.elements.get(value.element)?.list)?;
            let next = list.columns.len();
            let column = *list.columns.entry(value.path).or_insert(next);
            let wraps_at = value.wraps_at.and_then(|path| read.ranges.get(&(value.element, path)).copied());
            let place = *places.get(value.element)?;
            list.history.growth(place, column, (mono_ns, value.value), wraps_at).rate()
        }));
    }

    /// Returns a visitor that passes each counter's rate to `inner` instead of its value, and
    /// everything else unchanged. The caller uses it to walk the payload that was observed last.
    pub fn replace_counters<'r, V: Visitor>(&'r self, inner: &'r mut V) -> impl Visitor + use<'r, V> {
        RateVisitor { rates: &self.per_value, next: 0, inner }
    }
}

impl PayloadCounters {
    fn clear(&mut self) {
        self.values.clear();
        self.elements.clear();
        self.elements.push(ElementRead { list: 0, key: 0 });
        self.ranges.clear();
        self.root_values.clear();
        self.seen_lists.clear();
        self.seen_lists.push((0, None));
        self.lists.clear();
        self.open.clear();
        self.paths.clear();
        self.steps.clear();
    }

    fn begin_element(&mut self, position: usize) {
        let Some(list) = self.lists.last() else { return };
        let outer_key = self.open.last().map_or(0, |outer| outer.key(self.are_events));
        let number = self.elements.len();
        self.elements.push(ElementRead { list: list.path, key: 0 });
        let length = list.length;
        self.open.push(CountedElement {
            number,
            outer_key,
            position,
            length,
            declared: None,
            fallback: None,
            declares_identity: false,
        });
    }

    fn end_element(&mut self) {
        let Some(open) = self.open.pop() else { return };
        if let Some(own) = self.elements.get_mut(open.number) {
            own.key = open.key(self.are_events);
        }
    }

    /// Returns the path of a field of the current object.
    fn path(&self, name: &str) -> u64 {
        mix_hash(self.paths.last().copied().unwrap_or_default(), name)
    }

    /// Takes a value of the current element.
    fn take(&mut self, field: &Field, value: FieldValue<'_>) {
        let counted = CountedValue::of(value);
        let is_counter =
            field.column_type().is_some_and(|column_type| has_rate(field.metric_kind(), column_type));
        let element = self.open.last().map_or(0, |open| open.number);
        let read = counted.filter(|_| is_counter).map(|value| CounterRead {
            element,
            path: self.path(field.name()),
            value,
            wraps_at: field.wraps_at().map(|name| self.path(name)),
        });
        self.values.push(read);
        if let Some(value) = counted.filter(|_| !is_counter && self.has_ranges) {
            self.ranges.insert((element, self.path(field.name())), value);
        }
    }
}

impl Visitor for PayloadCounters {
    fn begin_object(&mut self, step: PathStep<'_>) {
        let path = match step {
            PathStep::Root => 0,
            PathStep::Field(field) => self.path(field.name()),
            PathStep::Element(_, position) => {
                self.begin_element(position);
                0
            }
        };
        self.paths.push(path);
        self.steps.push(matches!(step, PathStep::Element(..)));
    }

    fn end_object(&mut self) {
        self.paths.pop();
        if self.steps.pop() == Some(true) {
            self.end_element();
        }
    }

    fn begin_list(&mut self, step: PathStep<'_>, length: usize) {
        let Some(field) = step.field() else { return };
        let outer = self.lists.last().map_or(0, |list| list.path);
        let path = mix_hash(outer, self.path(field.name()));
        self.lists.push(OpenList { path, length });
        if self.seen_lists.iter().all(|(known, _)| *known != path) {
            // A list within an element leaves out elements in the same samples as the list around
            // it, unless it has its own attribute.
            let around = self.seen_lists.iter().find(|(known, _)| *known == outer);
            let sparse = field.sparse.clone().or_else(|| around.and_then(|(_, sparse)| sparse.clone()));
            self.seen_lists.push((path, sparse));
        }
    }

    fn end_list(&mut self) {
        self.lists.pop();
    }

    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>) {
        let Some(field) = step.field() else { return self.values.push(None) };
        if let PathStep::Element(_, position) = step {
            // An element that is a value.
            if field.metric_kind() == MetricKind::Counter {
                self.begin_element(position);
                self.take(field, value);
                self.end_element();
            } else {
                self.values.push(None);
            }
            return;
        }
        self.take(field, value);
        if let Some(open) = self.open.last_mut() {
            open.add(field, value);
        } else if self.paths.len() == 1
            && let FieldValue::Unsigned(number) = value
        {
            self.root_values.insert(mix_hash(0, field.name()), number == 0);
        }
    }

    fn text_bytes(&mut self, step: PathStep<'_>, bytes: &[u8]) {
        self.values.push(None);
        // Another text may have the same escaped form.
        if let (PathStep::Field(field), Some(open)) = (step, self.open.last_mut()) {
            open.add_hash(field, mix_hash(4, bytes));
        }
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
        // There is an entry for each value of a walk, so each call advances, also for values that
        // are not counters.
        self.next += 1;
        let is_counter = step.field().is_some_and(|field| {
            field.column_type().is_some_and(|column_type| has_rate(field.metric_kind(), column_type))
        });
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

    fn text_bytes(&mut self, step: PathStep<'_>, bytes: &[u8]) {
        self.next += 1;
        self.inner.text_bytes(step, bytes);
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
                rates.observe(&plan, (*mono_ns, 0), payload).unwrap();
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
    // elements with the same name have no rate.
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
            rates.observe(&plan, (mono_ns, 0), &payload).unwrap();
            rates.per_value.last().copied().flatten()
        };
        assert_eq!(rate(0, payload(1, b'R', 10)), None);
        assert_eq!(rate(1_000_000_000, payload(1, b'S', 14)), Some(4.0));
        assert_eq!(rate(2_000_000_000, payload(2, b'S', 15)), None);
    }

    // Proves that fractional counters have rates, by name and labels, and that a counter that
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
            rates.observe(&plan, (mono_ns, 0), &payload(counters)).unwrap();
            // Name, labels and value of each element.
            rates.per_value.iter().skip(2).step_by(3).copied().collect::<Vec<_>>()
        };
        observe(0, &[("a", 1.0), ("b", 7.5), ("c", 1.0)]);
        let seen = observe(500_000_000, &[("b", 7.75), ("a", 0.5), ("c", f64::NAN), ("d", 1.0)]);
        assert_eq!(seen, [Some(0.5), None, None, None]);
    }

    // Proves that a value is not compared with one of the next element if an inner list got shorter
    // or longer, and that rates return once its length is the same again. Method: elements with a
    // number, an inner list of counters, and a counter, in the order of a walk.
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
            rates.read.clear();
            let walk = &mut rates.read;
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
            rates.compare(seconds * 1_000_000_000, false);
            rates.per_value.clone()
        };
        observe(&[(0, &[1, 2], 5), (1, &[3], 6)]);
        let shorter = observe(&[(0, &[2], 7), (1, &[4], 9)]);
        assert_eq!(shorter, [None, None, Some(2.0), None, Some(1.0), Some(3.0)]);
        let longer = observe(&[(0, &[3, 100], 9), (1, &[5], 10)]);
        assert_eq!(longer, [None, None, None, Some(2.0), None, Some(1.0), Some(1.0)]);
        let same = observe(&[(1, &[7], 10), (0, &[4, 103], 11)]);
        assert_eq!(same, [None, Some(2.0), Some(0.0), None, Some(1.0), Some(3.0), Some(2.0)]);
    }

    // Proves that a device is not compared with another device that gets its index.
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
