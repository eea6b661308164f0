//! The sampler of `memory`, `vmstat`, `netstat` and `sockets`. The payload of each of these sources
//! is one struct of counters. The kernel's files list these counters by name.

use std::iter::repeat_n;

use flatcap_format::frame::{FrameTemplate, TemplateList, frame_template};

use super::by_schema::{push_struct, slot};
use super::counters::{CounterFile, CounterKeys, CounterLayout, CounterSet, VALUE_BYTES};
use super::{OWN_SCHEMA, OpenContext, SourceSpec, Unavailable};
use crate::{FixedSampler, Incomplete, OpenedSampler, ReadError};

/// Name of the only field of each root table.
const FIELD: &str = "counters";
/// Each line has the form `name value` or `name: value kB`.
pub(super) const LINES: CounterLayout = CounterLayout::Lines { section: b"", skip: 0 };

/// A struct of counters that is filled in place. The struct is the only field of its table.
#[derive(Debug)]
pub(super) struct CounterTableSampler {
    counters: CounterSet,
    template: FrameTemplate,
    bytes: TemplateList, // of the struct
}

impl CounterTableSampler {
    /// Opens the files that have the counters of a source.
    pub(super) fn open(
        context: &OpenContext<'_>,
        spec: &SourceSpec,
        files: &[CounterFile],
    ) -> Result<OpenedSampler, Unavailable> {
        let keys = CounterKeys::of(spec, FIELD, &context.selection());
        let template = frame_template((spec.schema, spec.root), &[FIELD], |builder| {
            let table = builder.start_table();
            push_struct(builder, slot(spec, FIELD), repeat_n(0, keys.bytes() / VALUE_BYTES));
            builder.end_table(table)
        });
        let bytes = template.list(FIELD).expect(OWN_SCHEMA);
        let counters = CounterSet::open(context.host, spec, files, keys)?;
        Ok(OpenedSampler::fixed(Self { counters, template, bytes }))
    }
}

impl FixedSampler for CounterTableSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.counters.read()
    }

    fn template(&self) -> &FrameTemplate {
        &self.template
    }

    fn patch(&mut self, _seq: u64, payload: &mut [u8]) -> Incomplete {
        // Values whose names the schema does not have are skipped.
        self.counters.fill(self.template.patch(payload).elements(&self.bytes), |_, _, _| Incomplete::NONE)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flatbuffers::FlatBufferBuilder;

    use super::*;
    use crate::NameFilter;
    use crate::sources::by_schema::struct_of;
    use crate::sources::counters::CounterOrder;
    use crate::sources::counters::tests::filled;
    use crate::sources::tests::{
        assert_damage_is_marked, captured_host, decoded, fixture, open_source, sample_this_host, sample_under,
    };
    use crate::sources::{memory, netstat, sockets, vmstat};

    fn all_keys(spec: &SourceSpec) -> CounterKeys {
        CounterKeys::of(spec, FIELD, &NameFilter::default())
    }

    fn parsed(text: &[u8], order: &mut CounterOrder) -> (BTreeMap<String, u64>, Incomplete) {
        filled(&all_keys(&memory::SPEC), LINES, order, text)
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

    /// Parses lines of `section: names`, each followed by a line of `section: values`.
    fn naive_headed(text: &str) -> BTreeMap<String, i64> {
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let pairs = lines.chunks(2).flat_map(|pair| {
            assert_eq!(pair[0][0], pair[1][0]);
            let values = pair[1].iter().skip(1).map(|value| value.parse().unwrap());
            pair[0].iter().skip(1).map(|name| format!("{}{name}", pair[0][0])).zip(values)
        });
        pairs.collect()
    }

    fn naive_pairs(text: &str) -> BTreeMap<String, u64> {
        let pairs = text.lines().flat_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let section = words[0].to_owned();
            let pair = move |pair: &[&str]| (format!("{section}{}", pair[0]), pair[1].parse().unwrap());
            words[1..].chunks(2).map(pair).collect::<Vec<_>>()
        });
        pairs.collect()
    }

    // Proves that no two fields have the same origin, and that the fields fill the whole struct.
    #[test]
    fn every_counter_has_its_line() {
        for spec in [&memory::SPEC, &vmstat::SPEC, &netstat::SPEC, &sockets::SPEC] {
            let (keys, counters) = (all_keys(spec), struct_of(spec, FIELD));
            assert_eq!(keys.bytes(), usize::try_from(counters.bytesize()).unwrap());
            let origins = keys.origins();
            let distinct: std::collections::BTreeSet<_> = origins.iter().collect();
            assert_eq!(distinct.len(), origins.len());
        }
    }

    // Proves that values are assigned by name when the kernel reorders its lines, even after
    // another order was learned.
    #[test]
    fn values_follow_their_names() {
        let mut order = CounterOrder::default();
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
            assert_eq!(parsed(text.as_bytes(), &mut order), (expected.clone(), Incomplete::NONE));
        }
    }

    // Proves that damaged text never causes a panic, that a truncated file is always marked, and
    // that a number that is too large is absent.
    #[test]
    fn damaged_text_is_marked() {
        assert_damage_is_marked(b"MemTotal:  123 kB\nMemFree:  456 kB\n", |text| {
            let (values, incomplete) = parsed(text, &mut CounterOrder::default());
            incomplete.is_none() && values.len() == 2
        });
        let (values, incomplete) =
            parsed(b"MemTotal: 99999999999999999999 kB\nMemFree:\n", &mut CounterOrder::default());
        assert!(values.is_empty());
        assert_eq!(incomplete, Incomplete::UNREADABLE | Incomplete::CUT);
    }

    // Proves that all values of this host and of captured files are read, and that naive parsers
    // find the same values.
    #[test]
    fn agrees_with_a_naive_reading() {
        let both =
            |path: &'static str| std::fs::read(format!("/{path}")).ok().into_iter().chain(fixture(path));
        for spec in [&memory::SPEC, &vmstat::SPEC] {
            let (keys, path) = (all_keys(spec), spec.files[0]);
            for text in both(path) {
                let expected = naive(std::str::from_utf8(&text).unwrap());
                let found = filled(&keys, LINES, &mut CounterOrder::default(), &text);
                assert_eq!(found, (expected, Incomplete::NONE), "{path}");
            }
            sample_this_host(spec);
        }
        let (keys, path) = (all_keys(&netstat::SPEC), netstat::SPEC.files[0]);
        let old = captured_host("node-exporter", &[path]);
        let old = old.map(|folder| std::fs::read(folder.path().join(path)).unwrap());
        for text in both(path).chain(old) {
            let expected = naive_headed(std::str::from_utf8(&text).unwrap());
            let expected = expected.into_iter().map(|(name, value)| (name, value.cast_unsigned())).collect();
            let found = filled(&keys, CounterLayout::Headed, &mut CounterOrder::default(), &text);
            assert_eq!(found, (expected, Incomplete::NONE));
        }
        sample_this_host(&netstat::SPEC);
        let keys = all_keys(&sockets::SPEC);
        for text in sockets::SPEC.files.iter().flat_map(|path| both(path)) {
            let expected = naive_pairs(std::str::from_utf8(&text).unwrap());
            let found = filled(&keys, CounterLayout::Pairs, &mut CounterOrder::default(), &text);
            assert_eq!(found, (expected, Incomplete::NONE));
        }
        sample_this_host(&sockets::SPEC);
    }

    // Proves that an unwanted field is absent and is never reported as missing, and that a field
    // that disappears is reported as missing.
    #[test]
    fn fields_are_chosen_and_missed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let file = folder.path().join(memory::SPEC.files[0]);
        std::fs::write(&file, "MemTotal: 1 kB\nMemFree: 2 kB\nSwapFree: x kB\n").unwrap();
        let keys = "include = [\"mem_*\", \"swap*\"]\nexclude = [\"swap_free\"]";
        let (payload, incomplete) = sample_under(&memory::SPEC, keys, folder.path());
        let counters = &decoded(&memory::SPEC, &payload)[FIELD];
        assert_eq!((&counters["mem_total"], &counters["mem_free"]), (&1.into(), &2.into()));
        assert!(counters["swap_free"].is_null(), "{counters}");
        assert_eq!(incomplete, Incomplete::NONE);

        let mut sampler = open_source(&memory::SPEC, keys, folder.path()).unwrap();
        for (text, reason) in [
            ("MemTotal: 1 kB\nMemFree: 2 kB\n", Incomplete::NONE),
            ("MemTotal: 1 kB\n", Incomplete::MISSING),
            ("MemTotal: 1 kB\nMemFree: 2", Incomplete::CUT | Incomplete::MISSING),
            ("MemTotal: 1 kB\nMemFree: 2 kB\nMemAvailable: 3 kB\n", Incomplete::NONE),
        ] {
            std::fs::write(&file, text).unwrap();
            sampler.read().unwrap();
            assert_eq!(sampler.payload(0, &mut FlatBufferBuilder::new()).1, reason, "{text}");
        }
    }

    // Proves that under another root, the network namespace of that root's first process is read,
    // and that samples of a host without IPv6 are complete.
    #[test]
    fn another_root_has_its_own_namespace() {
        let folder = tempfile::tempdir().unwrap();
        for (at, used) in [("proc/net", 1), ("proc/1/net", 2)] {
            std::fs::create_dir_all(folder.path().join(at)).unwrap();
            std::fs::write(folder.path().join(at).join("sockstat"), format!("sockets: used {used}\n"))
                .unwrap();
        }
        let (payload, incomplete) = sample_under(&sockets::SPEC, "", folder.path());
        let counters = &decoded(&sockets::SPEC, &payload)[FIELD];
        assert_eq!((&counters["used"], incomplete), (&2.into(), Incomplete::NONE));
        assert!(counters["tcp6_inuse"].is_null(), "{counters}");
    }
}
