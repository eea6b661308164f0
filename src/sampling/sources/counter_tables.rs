//! `memory`, `vmstat`, `netstat` and `sockets`: structs of counters that are named in their files.

use flatbuffers::{FlatBufferBuilder, WIPOffset};
use flatcap_format::frame::{FrameTemplate, TemplateField, frame_template};

use super::counters::{CounterFile, CounterKeys, CounterLayout, CounterSet};
use super::network::namespace_path;
use super::{OWN_SCHEMA, OpenContext, SourceSpec, Unavailable};
use crate::os::host::RecordStructure;
use crate::sampling::{FixedSampler, Incomplete, OpenedSampler, ReadError};
use crate::schemas::host::{
    Memory, MemoryArgs, MemoryCounters, Netstat, NetstatArgs, NetstatCounters, SocketCounters, Sockets,
    SocketsArgs, Vmstat, VmstatArgs, VmstatCounters,
};

/// The only field of each root table.
const FIELD: &str = "counters";
const MEMINFO: &str = "proc/meminfo";
const VMSTAT: &str = "proc/vmstat";
/// Longest line of /proc/vmstat: a name and a number, both far shorter in the kernel.
const LINE_BYTES_MAX: usize = 128;
const NETSTAT: &str = "proc/net/netstat";
const SOCKSTAT: &str = "proc/net/sockstat";
const SOCKSTAT6: &str = "proc/net/sockstat6";
/// Lines `name value` or `name: value kB`.
const LINES: CounterLayout = CounterLayout::Lines { section: b"", skip: 0 };

/// `include` and `exclude` match fields, such as `mem_free`.
pub(super) const MEMORY_SPEC: SourceSpec = SourceSpec {
    name: "memory",
    root: "flatcap.host.Memory",
    schema: include_bytes!("../../../generated/host/memory.bfbs"),
    files: &[MEMINFO],
    refresh: "some values hundreds of times a second, as memory is used",
    selects: "fields, such as mem_free",
    needs: &[],
    open: |context| {
        let file =
            CounterFile { path: MEMINFO, layout: LINES, records: RecordStructure::One, is_optional: false };
        CounterSampler::open(
            context,
            &[file],
            (&MEMORY_SPEC, "flatcap.host.MemoryCounters"),
            |builder, bytes| Memory::create(builder, &MemoryArgs { counters: Some(&MemoryCounters(*bytes)) }),
        )
    },
};

/// `include` and `exclude` match fields, such as `pgfault`.
pub(super) const VMSTAT_SPEC: SourceSpec = SourceSpec {
    name: "vmstat",
    root: "flatcap.host.Vmstat",
    schema: include_bytes!("../../../generated/host/vmstat.bfbs"),
    files: &[VMSTAT],
    refresh: "page faults hundreds of times a second; some counters are summed up once a second",
    selects: "fields, such as pgfault",
    needs: &[],
    open: |context| {
        let file = CounterFile {
            path: VMSTAT,
            layout: LINES,
            records: RecordStructure::UpTo(LINE_BYTES_MAX),
            is_optional: false,
        };
        CounterSampler::open(
            context,
            &[file],
            (&VMSTAT_SPEC, "flatcap.host.VmstatCounters"),
            |builder, bytes| Vmstat::create(builder, &VmstatArgs { counters: Some(&VmstatCounters(*bytes)) }),
        )
    },
};

/// `include` and `exclude` match fields, such as `tcp_timeouts`.
pub(super) const NETSTAT_SPEC: SourceSpec = SourceSpec {
    name: "netstat",
    root: "flatcap.host.Netstat",
    schema: include_bytes!("../../../generated/host/netstat.bfbs"),
    files: &[NETSTAT],
    refresh: "at each packet",
    selects: "fields, such as tcp_timeouts",
    needs: &[],
    open: |context| {
        let path = namespace_path(context.host, NETSTAT, "proc/1/net/netstat");
        let file = CounterFile {
            path,
            layout: CounterLayout::Headed,
            records: RecordStructure::One,
            is_optional: false,
        };
        CounterSampler::open(
            context,
            &[file],
            (&NETSTAT_SPEC, "flatcap.host.NetstatCounters"),
            |builder, bytes| {
                Netstat::create(builder, &NetstatArgs { counters: Some(&NetstatCounters(*bytes)) })
            },
        )
    },
};

/// `include` and `exclude` match fields, such as `tcp_inuse`. A host without IPv6 lacks the second
/// file: its fields are absent.
pub(super) const SOCKETS_SPEC: SourceSpec = SourceSpec {
    name: "sockets",
    root: "flatcap.host.Sockets",
    schema: include_bytes!("../../../generated/host/sockets.bfbs"),
    files: &[SOCKSTAT, SOCKSTAT6],
    refresh: "whenever a socket is opened or closed",
    selects: "fields, such as tcp_inuse",
    needs: &[],
    open: |context| {
        let file = |own, another, is_optional| {
            let path = namespace_path(context.host, own, another);
            CounterFile { path, layout: CounterLayout::Pairs, records: RecordStructure::One, is_optional }
        };
        let files =
            [file(SOCKSTAT, "proc/1/net/sockstat", false), file(SOCKSTAT6, "proc/1/net/sockstat6", true)];
        CounterSampler::open(
            context,
            &files,
            (&SOCKETS_SPEC, "flatcap.host.SocketCounters"),
            |builder, bytes| {
                Sockets::create(builder, &SocketsArgs { counters: Some(&SocketCounters(*bytes)) })
            },
        )
    },
};

/// A struct of counters, the only field of its table, filled in place.
#[derive(Debug)]
struct CounterSampler<const BYTES: usize> {
    counters: CounterSet,
    template: FrameTemplate,
    slot: TemplateField<[u8; BYTES]>,
}

impl<const BYTES: usize> CounterSampler<BYTES> {
    /// `counters` names the struct of `BYTES` bytes; `build` builds the table around one.
    fn open<T>(
        context: &OpenContext<'_>,
        files: &[CounterFile],
        (entry, counters): (&SourceSpec, &str),
        build: fn(&mut FlatBufferBuilder<'static>, &[u8; BYTES]) -> WIPOffset<T>,
    ) -> Result<OpenedSampler, Unavailable> {
        let keys = CounterKeys::of(entry.schema, counters, &context.selection());
        let template =
            frame_template((entry.schema, entry.root), &[FIELD], |builder| build(builder, &[0; BYTES]));
        let place = template.field(FIELD).expect(OWN_SCHEMA);
        Ok(OpenedSampler::fixed(Self {
            counters: CounterSet::open(context.host, files, keys)?,
            template,
            slot: place,
        }))
    }
}

impl<const BYTES: usize> FixedSampler for CounterSampler<BYTES> {
    fn read(&mut self) -> Result<(), ReadError> {
        self.counters.read()
    }

    fn template(&self) -> &FrameTemplate {
        &self.template
    }

    fn patch(&mut self, _seq: u64, payload: &mut [u8]) -> Incomplete {
        // Names that the schema does not have are skipped.
        self.counters.fill(self.template.patch(payload).struct_bytes(self.slot), |_, _, _| Incomplete::NONE)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sampling::NameFilter;
    use crate::sampling::sources::counters::tests::filled;
    use crate::sampling::sources::counters::{CounterOrder, VALUE_BYTES};
    use crate::sampling::sources::tests::{
        assert_damage_is_marked, captured_host, fixture, open_source, sample_this_host, sample_under,
    };

    fn all_keys(entry: &SourceSpec, counters: &str) -> CounterKeys {
        CounterKeys::of(entry.schema, counters, &NameFilter::default())
    }

    fn memory_keys() -> CounterKeys {
        all_keys(&MEMORY_SPEC, "flatcap.host.MemoryCounters")
    }

    fn parsed(text: &[u8], order: &mut CounterOrder) -> (BTreeMap<String, u64>, Incomplete) {
        filled(&memory_keys(), LINES, order, text)
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

    // Proves that each field has an origin of its own, and that the fields fill the whole struct.
    #[test]
    fn every_counter_has_its_line() {
        for (entry, counters, bytes) in [
            (&MEMORY_SPEC, "flatcap.host.MemoryCounters", size_of::<MemoryCounters>()),
            (&VMSTAT_SPEC, "flatcap.host.VmstatCounters", size_of::<VmstatCounters>()),
            (&NETSTAT_SPEC, "flatcap.host.NetstatCounters", size_of::<NetstatCounters>()),
            (&SOCKETS_SPEC, "flatcap.host.SocketCounters", size_of::<SocketCounters>()),
        ] {
            let origins = all_keys(entry, counters).origins();
            assert_eq!(origins.len() * VALUE_BYTES, bytes);
            let distinct: std::collections::BTreeSet<_> = origins.iter().collect();
            assert_eq!(distinct.len(), origins.len());
        }
    }

    // Proves that values follow their names when the kernel reorders its lines, also with the order
    // learned before.
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

    // Proves that damaged text never panics, a cut file is always marked, and a number too large is
    // absent.
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

    // Proves that all values of this host and of captured ones are read, as by naive parsers.
    #[test]
    fn agrees_with_a_naive_reading() {
        let both =
            |path: &'static str| std::fs::read(format!("/{path}")).ok().into_iter().chain(fixture(path));
        for (entry, counters, path) in [
            (&MEMORY_SPEC, "flatcap.host.MemoryCounters", MEMINFO),
            (&VMSTAT_SPEC, "flatcap.host.VmstatCounters", VMSTAT),
        ] {
            let keys = all_keys(entry, counters);
            for text in both(path) {
                let expected = naive(std::str::from_utf8(&text).unwrap());
                let found = filled(&keys, LINES, &mut CounterOrder::default(), &text);
                assert_eq!(found, (expected, Incomplete::NONE), "{path}");
            }
            sample_this_host(entry);
        }
        let keys = all_keys(&NETSTAT_SPEC, "flatcap.host.NetstatCounters");
        let old = captured_host("node-exporter", &[NETSTAT]);
        let old = old.map(|folder| std::fs::read(folder.path().join(NETSTAT)).unwrap());
        for text in both(NETSTAT).chain(old) {
            let expected = naive_headed(std::str::from_utf8(&text).unwrap());
            let expected = expected.into_iter().map(|(name, value)| (name, value.cast_unsigned())).collect();
            let found = filled(&keys, CounterLayout::Headed, &mut CounterOrder::default(), &text);
            assert_eq!(found, (expected, Incomplete::NONE));
        }
        sample_this_host(&NETSTAT_SPEC);
        let keys = all_keys(&SOCKETS_SPEC, "flatcap.host.SocketCounters");
        for text in both(SOCKSTAT).chain(both(SOCKSTAT6)) {
            let expected = naive_pairs(std::str::from_utf8(&text).unwrap());
            let found = filled(&keys, CounterLayout::Pairs, &mut CounterOrder::default(), &text);
            assert_eq!(found, (expected, Incomplete::NONE));
        }
        sample_this_host(&SOCKETS_SPEC);
    }

    // Proves that an unwanted field is absent and never missing, while a field that disappears is.
    #[test]
    fn fields_are_chosen_and_missed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let file = folder.path().join(MEMINFO);
        std::fs::write(&file, "MemTotal: 1 kB\nMemFree: 2 kB\nSwapFree: x kB\n").unwrap();
        let keys = "include = [\"mem_*\", \"swap*\"]\nexclude = [\"swap_free\"]";
        let (payload, incomplete) = sample_under(&MEMORY_SPEC, keys, folder.path());
        let counters = *flatbuffers::root::<Memory<'_>>(&payload).unwrap().counters();
        assert_eq!((counters.mem_total(), counters.mem_free(), counters.swap_free()), (1, 2, u64::MAX));
        assert_eq!(incomplete, Incomplete::NONE);

        let mut sampler = open_source(&MEMORY_SPEC, keys, folder.path()).unwrap();
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

    // Proves that under another root the namespace of its first process is read, and that a host
    // without IPv6 is complete.
    #[test]
    fn another_root_has_its_own_namespace() {
        let folder = tempfile::tempdir().unwrap();
        for (at, used) in [("proc/net", 1), ("proc/1/net", 2)] {
            std::fs::create_dir_all(folder.path().join(at)).unwrap();
            std::fs::write(folder.path().join(at).join("sockstat"), format!("sockets: used {used}\n"))
                .unwrap();
        }
        let (payload, incomplete) = sample_under(&SOCKETS_SPEC, "", folder.path());
        let counters = *flatbuffers::root::<Sockets<'_>>(&payload).unwrap().counters();
        assert_eq!((counters.used(), counters.tcp6_inuse(), incomplete), (2, u64::MAX, Incomplete::NONE));
    }
}
