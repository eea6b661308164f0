//! `memory` and `vmstat`: files of lines `name value`. The schema is the only list of names: each field's `origin`, or its
//! own name, says which line it takes.

use flatbuffers::FlatBufferBuilder;
use flatbuffers_reflection::reflection::root_as_schema;

use super::text::{self, ABSENT};
use super::{Entry, host_file};
use crate::os::host::HostFile;
use crate::sampling::{ReadError, Sampler, Shortfall};
use crate::schema::host::{Memory, MemoryArgs, MemoryCounters, Vmstat, VmstatArgs, VmstatCounters};

const MEMINFO: &str = "proc/meminfo";
const VMSTAT: &str = "proc/vmstat";
/// Most lines that are looked at; the kernel has some 220.
const LINES_MAX: usize = 4096;
const VALUE_BYTES: usize = size_of::<u64>();

pub(super) const MEMORY: Entry = Entry {
    name: "memory",
    root: "flatcap.host.Memory",
    schema: include_bytes!("../../../generated/host/memory.bfbs"),
    files: &[MEMINFO],
    refresh: "some values hundreds of times a second, as memory is used",
    needs: &[],
    open: |opening| {
        let file = host_file(opening.host, MEMINFO, "")?;
        let keys = keys(MEMORY.schema, "flatcap.host.MemoryCounters");
        Ok(Box::new(KeyedSampler::new(MEMINFO, file, keys, |builder, bytes| {
            let root = Memory::create(builder, &MemoryArgs { counters: Some(&MemoryCounters(*bytes)) });
            builder.finish_minimal(root);
        })))
    },
};

pub(super) const VMSTAT_ENTRY: Entry = Entry {
    name: "vmstat",
    root: "flatcap.host.Vmstat",
    schema: include_bytes!("../../../generated/host/vmstat.bfbs"),
    files: &[VMSTAT],
    refresh: "page faults hundreds of times a second; some counters are summed up once a second",
    needs: &[],
    open: |opening| {
        let file = host_file(opening.host, VMSTAT, "")?;
        let keys = keys(VMSTAT_ENTRY.schema, "flatcap.host.VmstatCounters");
        Ok(Box::new(KeyedSampler::new(VMSTAT, file, keys, |builder, bytes| {
            let root = Vmstat::create(builder, &VmstatArgs { counters: Some(&VmstatCounters(*bytes)) });
            builder.finish_minimal(root);
        })))
    },
};

/// Finishes the table around the struct of counters.
type Build<const BYTES: usize> = fn(&mut FlatBufferBuilder<'static>, &[u8; BYTES]);

/// Fills a struct of `BYTES / 8` counters, little-endian, in the order of the schema.
#[derive(Debug)]
struct KeyedSampler<const BYTES: usize> {
    path: &'static str,
    file: HostFile,
    keys: Vec<Vec<u8>>,        // one a counter
    order: Vec<Option<usize>>, // which counter each line was last time
    present: usize,            // counters that this kernel has
    bytes: [u8; BYTES],
    build: Build<BYTES>,
}

impl<const BYTES: usize> KeyedSampler<BYTES> {
    fn new(path: &'static str, file: HostFile, keys: Vec<Vec<u8>>, build: Build<BYTES>) -> Self {
        let mut sampler =
            Self { path, file, keys, order: Vec::new(), present: 0, bytes: [0xFF; BYTES], build };
        // The reading that proved the file readable also teaches the order of its lines.
        sampler.parse();
        sampler
    }

    /// Fills the counters from the file's content. Says whether every counter that was ever there is.
    fn parse(&mut self) -> bool {
        let Self { file, keys, order, present, bytes, .. } = self;
        let (found, is_whole) = parse(file.content(), keys, order, bytes);
        *present = found.max(*present);
        is_whole && found == *present
    }
}

impl<const BYTES: usize> Sampler for KeyedSampler<BYTES> {
    fn read(&mut self) -> Result<(), ReadError> {
        self.file.read().map_err(|error| ReadError { file: self.path, error })
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let is_whole = self.parse();
        (self.build)(builder, &self.bytes);
        Shortfall::UNREADABLE.unless(is_whole)
    }
}

/// Fills `bytes`; returns how many counters were found, and whether the file was whole. `order` is what each line was
/// last time: one comparison a line while the kernel keeps its order.
fn parse(
    content: &[u8],
    keys: &[Vec<u8>],
    order: &mut Vec<Option<usize>>,
    bytes: &mut [u8],
) -> (usize, bool) {
    bytes.fill(0xFF); // ABSENT in every place
    let (lines, cut) = text::whole_lines(content);
    let mut is_whole = cut.is_none();
    let mut found = 0;
    for (at, line) in lines.take(LINES_MAX).enumerate() {
        let end = line.iter().position(|byte| matches!(byte, b' ' | b':')).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        if order.len() <= at {
            order.push(None);
        }
        let Some(last) = order.get_mut(at) else { continue };
        if last.and_then(|index| keys.get(index)).is_none_or(|key| key != name) {
            *last = keys.iter().position(|key| key == name);
        }
        // A name that the schema does not have is passed over.
        let Some(index) = *last else { continue };
        let value = text::fields(rest.strip_prefix(b":").unwrap_or(rest)).next().and_then(text::number);
        is_whole &= value.is_some();
        found += 1;
        if let Some(place) = bytes.chunks_exact_mut(VALUE_BYTES).nth(index) {
            place.copy_from_slice(&value.unwrap_or(ABSENT).to_le_bytes());
        }
    }
    (found, is_whole)
}

/// The name of each counter in its file, by its place in the struct: the field's `origin`, else its own name.
fn keys(schema: &[u8], counters: &str) -> Vec<Vec<u8>> {
    let schema = root_as_schema(schema).expect("our own schema, checked by a test");
    let object = schema.objects().iter().find(|object| object.name() == counters);
    let mut keys: Vec<(u16, Vec<u8>)> = object
        .into_iter()
        .flat_map(|object| object.fields())
        .map(|field| {
            let attributes = field.attributes().into_iter().flatten();
            let origin =
                attributes.filter(|attribute| attribute.key() == "origin").find_map(|origin| origin.value());
            (field.offset(), origin.unwrap_or(field.name()).as_bytes().to_vec())
        })
        .collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, key)| key).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sampling::sources::tests::{assert_composed, fixture, sampled};

    fn memory_keys() -> Vec<Vec<u8>> {
        keys(MEMORY.schema, "flatcap.host.MemoryCounters")
    }

    fn parsed(
        text: &[u8],
        keys: &[Vec<u8>],
        order: &mut Vec<Option<usize>>,
    ) -> (BTreeMap<String, u64>, bool) {
        let mut bytes = vec![0; keys.len() * VALUE_BYTES];
        let (_, is_whole) = parse(text, keys, order, &mut bytes);
        let values =
            bytes.chunks_exact(VALUE_BYTES).map(|place| u64::from_le_bytes(place.try_into().unwrap()));
        let names = keys.iter().map(|key| String::from_utf8(key.clone()).unwrap());
        (names.zip(values).filter(|(_, value)| *value != ABSENT).collect(), is_whole)
    }

    fn naive(text: &str) -> BTreeMap<String, u64> {
        text.lines()
            .map(|line| {
                let mut words = line.split_whitespace();
                let name = words.next().unwrap().trim_end_matches(':').to_owned();
                (name, words.next().unwrap().parse().unwrap())
            })
            .collect()
    }

    // Goal: each field has an origin, none twice, and fills its whole struct. Method: count them.
    #[test]
    fn every_counter_has_its_line() {
        for (keys, bytes) in [
            (memory_keys(), size_of::<MemoryCounters>()),
            (keys(VMSTAT_ENTRY.schema, "flatcap.host.VmstatCounters"), size_of::<VmstatCounters>()),
        ] {
            assert_eq!(keys.len() * VALUE_BYTES, bytes);
            let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
            assert_eq!(distinct.len(), keys.len());
        }
    }

    // Goal: values follow their names when the kernel changes the order of its lines, also with the order learnt before.
    // Method: the same lines forwards and backwards, with unknown ones between.
    #[test]
    fn values_follow_their_names() {
        let keys = memory_keys();
        let mut order = Vec::new();
        let lines = ["MemTotal:     10 kB", "Brand:  5 kB", "Active(anon): 30 kB", "HugePages_Total:   4"];
        let expected: BTreeMap<String, u64> =
            [("MemTotal", 10), ("Active(anon)", 30), ("HugePages_Total", 4)]
                .map(|(n, v)| (n.to_owned(), v))
                .into();
        for reversed in [false, true, false] {
            let mut lines = lines.to_vec();
            if reversed {
                lines.reverse();
            }
            let text = lines.join("\n") + "\n";
            assert_eq!(parsed(text.as_bytes(), &keys, &mut order), (expected.clone(), true));
        }
    }

    // Goal: damaged text never panics, a cut file is never called whole, a number too large is absent. Method: every cut,
    // every byte replaced.
    #[test]
    fn damaged_text_is_marked() {
        let keys = memory_keys();
        let text = b"MemTotal:  123 kB\nMemFree:  456 kB\n";
        assert_composed(text, |text| {
            let (values, is_whole) = parsed(text, &keys, &mut Vec::new());
            is_whole && values.len() == 2
        });
        let (values, is_whole) = parsed(b"MemTotal: 99999999999999999999 kB\n", &keys, &mut Vec::new());
        assert!(values.is_empty() && !is_whole);
    }

    // Goal: all values of this host and of captured ones are read, none is left out. Method: a naive parser beside ours.
    #[test]
    fn agrees_with_a_naive_reading() {
        for (entry, counters, path) in [
            (&MEMORY, "flatcap.host.MemoryCounters", MEMINFO),
            (&VMSTAT_ENTRY, "flatcap.host.VmstatCounters", VMSTAT),
        ] {
            let keys = keys(entry.schema, counters);
            let live = std::fs::read(format!("/{path}")).ok();
            for text in live.into_iter().chain(fixture(path)) {
                let expected = naive(std::str::from_utf8(&text).unwrap());
                assert_eq!(parsed(&text, &keys, &mut Vec::new()), (expected, true), "{path}");
            }
            sampled(entry);
        }
    }
}
