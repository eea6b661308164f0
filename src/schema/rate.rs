//! How fast does each counter move? Rates between one payload of a source and the next.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::error::DecodeError;
use super::plan::{Meaning, Plan};
use super::value::{Place, Value, Visitor};

/// What a source's last payload said, and how fast its counters moved since.
#[derive(Debug, Default)]
pub struct Rates {
    last: Snapshot,
    next: Snapshot,                      // reused
    places: HashMap<u64, Option<usize>>, // where each thing of `last` begins; none for two that cannot be told apart
    moved: Vec<Option<f64>>,             // one a value in the order of the walk: its rate
    last_mono_ns: Option<u64>,           // of `last`
}

/// The values of a payload in the order of a walk.
#[derive(Debug, Default)]
struct Snapshot {
    values: Vec<Option<u64>>, // counters alone
    things: Vec<Thing>,       // in the order of their values
    shape: u64,               // lengths of lists, and what identifies their elements
    lists: Vec<List>,         // those that are open
    objects: usize,           // so many are open
    open: Option<Thing>,
}

/// An element of a list: what tells it from others, and which values are its own.
#[derive(Debug, Clone, Copy)]
struct Thing {
    key: u64,        // of fields that identify it by attribute
    other_key: u64,  // of its texts and states
    has_key: bool,   // whether there was a field of the first kind
    has_other: bool, // or of the second
    position: u64,   // of the list and the place in it
    begin: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy)]
struct List {
    name: u64,
    length: usize,
    objects: usize, // that were open when it began
    elements: usize,
}

impl Thing {
    /// By what it is found again in the next payload: what the schema says, else all texts and states (the number of a core, the name
    /// of a disk), else its place.
    fn identity(&self) -> u64 {
        match (self.has_key, self.has_other) {
            (true, _) => mixed(self.position_free(), self.key),
            (false, true) => mixed(self.position_free(), self.other_key),
            (false, false) => self.position,
        }
    }

    /// Two kinds of keys are never equal by chance alone.
    fn position_free(&self) -> u64 {
        u64::from(self.has_key)
    }
}

fn mixed(hash: u64, what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (hash, what).hash(&mut hasher);
    hasher.finish()
}

impl Rates {
    /// Compares a payload with the one before. A counter that went back (it wrapped or was reset) has no rate, nor has one of
    /// a thing that was not there before: a disk that came must not be compared with the one whose index it took. Values in
    /// lists without names have rates only where the payloads hold the same things in the same places.
    ///
    /// # Errors
    /// The payload does not fit its schema.
    pub fn observe(&mut self, plan: &Plan, mono_ns: u64, payload: &[u8]) -> Result<(), DecodeError> {
        self.next.clear();
        plan.walk(payload, &mut self.next)?;
        let elapsed_ns = self.last_mono_ns.and_then(|last| mono_ns.checked_sub(last)).filter(|ns| *ns > 0);
        self.places.clear();
        for thing in &self.last.things {
            let is_known = self.places.contains_key(&thing.identity());
            self.places.insert(thing.identity(), (!is_known).then_some(thing.begin));
        }
        let is_alike = self.last.shape == self.next.shape && self.last.values.len() == self.next.values.len();
        let mut things = self.next.things.iter().peekable();
        self.moved.clear();
        for (index, value) in self.next.values.iter().enumerate() {
            while things.next_if(|thing| thing.end <= index).is_some() {}
            let before = match things.peek().filter(|thing| thing.begin <= index) {
                Some(thing) => {
                    let begin = self.places.get(&thing.identity()).copied().flatten();
                    begin.map(|begin| begin + index - thing.begin)
                }
                None => Some(index).filter(|_| is_alike),
            };
            let before = before.and_then(|before| self.last.values.get(before).copied().flatten());
            let moved = value.zip(before).and_then(|(value, before)| value.checked_sub(before));
            #[allow(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
            self.moved.push(moved.zip(elapsed_ns).map(|(moved, ns)| moved as f64 / (ns as f64 / 1e9)));
        }
        std::mem::swap(&mut self.last, &mut self.next);
        self.last_mono_ns = Some(mono_ns);
        Ok(())
    }

    /// Hands `inner` each counter's rate in place of its value; all else as it is. For a walk through the payload that
    /// was observed last.
    pub fn in_place_of_counters<'r, V: Visitor>(&'r self, inner: &'r mut V) -> impl Visitor + use<'r, V> {
        Rated { rates: &self.moved, next: 0, inner }
    }
}

impl Snapshot {
    fn clear(&mut self) {
        self.values.clear();
        self.things.clear();
        self.lists.clear();
        self.shape = 0;
        self.objects = 0;
        self.open = None;
    }

    /// Whether what begins or ends now is an element of an outermost list.
    fn is_at_element(&self) -> bool {
        matches!(self.lists.as_slice(), [list] if list.objects == self.objects)
    }
}

impl Visitor for Snapshot {
    fn begin_object(&mut self, _: Place<'_>) {
        if self.is_at_element()
            && let Some(list) = self.lists.last_mut()
        {
            let position = mixed(list.name, (list.length, list.elements));
            list.elements += 1;
            let (begin, end) = (self.values.len(), self.values.len());
            self.open = Some(Thing {
                key: list.name,
                other_key: list.name,
                has_key: false,
                has_other: false,
                position,
                begin,
                end,
            });
        }
        self.objects += 1;
    }

    fn end_object(&mut self) {
        self.objects = self.objects.saturating_sub(1);
        if self.is_at_element()
            && let Some(thing) = self.open.take()
        {
            self.things.push(Thing { end: self.values.len(), ..thing });
        }
    }

    fn begin_list(&mut self, place: Place<'_>, length: usize) {
        let name = mixed(0, place.field().map(super::plan::Field::name));
        self.lists.push(List { name, length, objects: self.objects, elements: 0 });
        self.shape = mixed(self.shape, length);
    }

    fn end_list(&mut self) {
        self.lists.pop();
    }

    fn value(&mut self, place: Place<'_>, value: Value<'_>) {
        let meaning = place.field().map_or(Meaning::Unknown, super::plan::Field::meaning);
        let is_key = place.field().is_some_and(super::plan::Field::is_identity);
        // Inside a list, a state (the number of a core) tells which thing an element is.
        let hash = match value {
            Value::Text(text) => Some(mixed(0, text)),
            Value::Unsigned(number) if meaning == Meaning::State && !self.lists.is_empty() => {
                Some(mixed(1, number))
            }
            _ => None,
        };
        if let Some(hash) = hash {
            self.shape = mixed(self.shape, hash);
            if let Some(thing) = &mut self.open {
                thing.other_key = mixed(thing.other_key, hash);
                thing.has_other = true;
                if is_key {
                    thing.key = mixed(thing.key, hash);
                    thing.has_key = true;
                }
            }
        }
        self.values.push(match value {
            Value::Unsigned(number) if meaning == Meaning::Counter => Some(number),
            _ => None,
        });
    }
}

struct Rated<'r, V> {
    rates: &'r [Option<f64>],
    next: usize,
    inner: &'r mut V,
}

impl<V: Visitor> Visitor for Rated<'_, V> {
    fn begin_object(&mut self, place: Place<'_>) {
        self.inner.begin_object(place);
    }

    fn end_object(&mut self) {
        self.inner.end_object();
    }

    fn begin_list(&mut self, place: Place<'_>, length: usize) {
        self.inner.begin_list(place, length);
    }

    fn end_list(&mut self) {
        self.inner.end_list();
    }

    fn value(&mut self, place: Place<'_>, value: Value<'_>) {
        let rate = self.rates.get(self.next).copied().flatten();
        self.next += 1;
        let is_counter = place.field().is_some_and(|field| field.meaning() == Meaning::Counter);
        let value = match value {
            Value::Unsigned(_) | Value::Signed(_) if is_counter => rate.map_or(Value::Absent, Value::Float),
            other => other,
        };
        self.inner.value(place, value);
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;

    use super::*;
    use crate::schema::host::{Disk, DiskArgs, DiskCounters};
    use crate::schema::{JsonWriter, Plan};

    const SCHEMA: &[u8] = include_bytes!("../../generated/host/disk.bfbs");

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
        let plan = Plan::compile(SCHEMA, "flatcap.host.Disk").unwrap();
        let plan = plan.select(&["devices.name", "devices.reads"]).unwrap();
        let mut rates = Rates::default();
        payloads
            .iter()
            .map(|(mono_ns, payload)| {
                rates.observe(&plan, *mono_ns, payload).unwrap();
                let mut json = Vec::new();
                plan.walk(payload, &mut rates.in_place_of_counters(&mut JsonWriter::new(&mut json))).unwrap();
                String::from_utf8(json).unwrap()
            })
            .collect()
    }

    // Goal: a counter becomes its movement a second; the first, and one that went back, become nothing. Method: half a
    // second apart, by hand.
    #[test]
    fn counters_become_rates() {
        let seen =
            rates(&[(0, payload(&[("a", 10), ("b", 7)])), (500_000_000, payload(&[("a", 15), ("b", 6)]))]);
        assert_eq!(seen[0], r#"{"devices":[{"name":"a","reads":null},{"name":"b","reads":null}]}"#);
        assert_eq!(seen[1], r#"{"devices":[{"name":"a","reads":10.0},{"name":"b","reads":null}]}"#);
    }

    // Goal: what comes and goes costs the others no rate; of two things by one name neither has one. Method: a disk comes in
    // front of another; then two of one name.
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

    // Goal: a thing is known by what the schema calls its identity, whatever else of it changes. Method: a process that is seen
    // running, then sleeping; then its number is another one's.
    #[test]
    fn what_identifies_a_thing_is_said_by_its_schema() {
        use crate::schema::host::{
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
            };
            let root = Process::create(&mut builder, &args);
            builder.finish_minimal(root);
            builder.finished_data().to_vec()
        };
        let schema = include_bytes!("../../generated/host/process.bfbs");
        let plan = Plan::compile(schema, "flatcap.host.Process").unwrap();
        let plan = plan
            .select(&["processes.pid", "processes.start", "processes.state", "processes.user_time"])
            .unwrap();
        let mut rates = Rates::default();
        let mut rate = |mono_ns, payload: Vec<u8>| {
            rates.observe(&plan, mono_ns, &payload).unwrap();
            rates.moved.last().copied().flatten()
        };
        assert_eq!(rate(0, payload(1, b'R', 10)), None);
        assert_eq!(rate(1_000_000_000, payload(1, b'S', 14)), Some(4.0));
        assert_eq!(rate(2_000_000_000, payload(2, b'S', 15)), None);
    }

    // Goal: two things that had the same index are never mixed up. Method: a device goes, another takes its place.
    #[test]
    fn things_are_told_apart_by_name() {
        let seen = rates(&[
            (0, payload(&[("a", 10), ("b", 20)])),
            (1_000_000_000, payload(&[("b", 21), ("c", 99)])),
            (2_000_000_000, payload(&[("b", 22), ("c", 99)])),
        ]);
        assert_eq!(seen[1], r#"{"devices":[{"name":"b","reads":1.0},{"name":"c","reads":null}]}"#);
        assert_eq!(seen[2], r#"{"devices":[{"name":"b","reads":1.0},{"name":"c","reads":0.0}]}"#);
    }
}
