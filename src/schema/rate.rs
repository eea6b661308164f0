//! How fast does each counter move? Rates between one payload of a source and the next.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::error::DecodeError;
use super::plan::{Meaning, Plan};
use super::value::{Place, Value, Visitor};

/// What a source's last payload said, and how fast its counters moved since.
#[derive(Debug, Default)]
pub struct Rates {
    last: Snapshot,
    next: Snapshot,            // reused
    moved: Vec<Option<f64>>,   // one a value in the order of the walk: its rate
    last_mono_ns: Option<u64>, // of `last`
}

/// The values of a payload in the order of a walk.
#[derive(Debug, Default)]
struct Snapshot {
    values: Vec<Option<u64>>, // counters alone
    shape: u64,               // lengths of lists, and what identifies their elements
    depth: usize,             // lists that are open
}

impl Rates {
    /// Compares a payload with the one before. A counter that went back (it wrapped or was reset) has no rate, nor has
    /// any where the payloads do not hold the same things in the same places: a disk that came must not be compared
    /// with the one whose index it took.
    ///
    /// # Errors
    /// The payload does not fit its schema.
    pub fn observe(&mut self, plan: &Plan, mono_ns: u64, payload: &[u8]) -> Result<(), DecodeError> {
        self.next.clear();
        plan.walk(payload, &mut self.next)?;
        let elapsed_ns = self.last_mono_ns.and_then(|last| mono_ns.checked_sub(last)).filter(|ns| *ns > 0);
        let comparable =
            self.last.shape == self.next.shape && self.last.values.len() == self.next.values.len();
        self.moved.clear();
        self.moved.extend(self.next.values.iter().enumerate().map(|(index, value)| {
            let before = self.last.values.get(index).copied().flatten().filter(|_| comparable)?;
            let moved = value.as_ref()?.checked_sub(before)?;
            #[allow(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
            Some(moved as f64 / (elapsed_ns? as f64 / 1e9))
        }));
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
        self.shape = 0;
        self.depth = 0;
    }

    fn mix(&mut self, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        (self.shape, what).hash(&mut hasher);
        self.shape = hasher.finish();
    }
}

impl Visitor for Snapshot {
    fn begin_object(&mut self, _: Place<'_>) {}

    fn end_object(&mut self) {}

    fn begin_list(&mut self, _: Place<'_>, length: usize) {
        self.depth += 1;
        self.mix(length);
    }

    fn end_list(&mut self) {
        self.depth -= 1;
    }

    fn value(&mut self, place: Place<'_>, value: Value<'_>) {
        let meaning = place.field().map_or(Meaning::Unknown, super::plan::Field::meaning);
        match value {
            Value::Text(text) => self.mix(text),
            // Inside a list, a state (the number of a core) tells which thing an element is.
            Value::Unsigned(number) if meaning == Meaning::State && self.depth > 0 => self.mix(number),
            _ => {}
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

    // Goal: two things that had the same index are never mixed up. Method: a device goes, another takes its place.
    #[test]
    fn things_are_told_apart_by_name() {
        let seen = rates(&[
            (0, payload(&[("a", 10), ("b", 20)])),
            (1_000_000_000, payload(&[("b", 21), ("c", 99)])),
            (2_000_000_000, payload(&[("b", 22), ("c", 99)])),
        ]);
        assert_eq!(seen[1], r#"{"devices":[{"name":"b","reads":null},{"name":"c","reads":null}]}"#);
        assert_eq!(seen[2], r#"{"devices":[{"name":"b","reads":1.0},{"name":"c","reads":0.0}]}"#);
    }
}
