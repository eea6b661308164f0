//! `memory`, `vmstat`, `netstat` and `sockets`: each a struct of counters that have their names in the files.

use flatbuffers::{FlatBufferBuilder, WIPOffset};

use super::counters::{Keyed, Keys, Layout, Part};
use super::network::of_namespace;
use super::{Entry, OWN, Opening, Unavailable};
use crate::frame::{FrameTemplate, Slot, model};
use crate::os::host::Records;
use crate::sampling::{FixedSampler, Opened, ReadError, Shortfall};
use crate::schema::host::{
    Memory, MemoryArgs, MemoryCounters, Netstat, NetstatArgs, NetstatCounters, SocketCounters, Sockets,
    SocketsArgs, Vmstat, VmstatArgs, VmstatCounters,
};

/// The only field of each of the tables.
const FIELD: &str = "counters";
const MEMINFO: &str = "proc/meminfo";
const VMSTAT: &str = "proc/vmstat";
/// Longest line of that: a name and a number, each of which the kernel keeps far shorter.
const LINE_BYTES_MAX: usize = 128;
const NETSTAT: &str = "proc/net/netstat";
const SOCKSTAT: &str = "proc/net/sockstat";
const SOCKSTAT6: &str = "proc/net/sockstat6";
/// A line `name value` or `name: value kB`.
const LINES: Layout = Layout::Lines { section: b"", skip: 0 };

/// Include and exclude speak of fields, such as `mem_free`.
pub(super) const MEMORY: Entry = Entry {
    name: "memory",
    root: "flatcap.host.Memory",
    schema: include_bytes!("../../../generated/host/memory.bfbs"),
    files: &[MEMINFO],
    refresh: "some values hundreds of times a second, as memory is used",
    selects: "fields, such as mem_free",
    needs: &[],
    open: |opening| {
        let part = Part { path: MEMINFO, layout: LINES, records: Records::One, is_optional: false };
        KeyedSampler::open(opening, &[part], (&MEMORY, "flatcap.host.MemoryCounters"), |builder, bytes| {
            Memory::create(builder, &MemoryArgs { counters: Some(&MemoryCounters(*bytes)) })
        })
    },
};

/// Include and exclude speak of fields, such as `pgfault`.
pub(super) const VMSTAT_ENTRY: Entry = Entry {
    name: "vmstat",
    root: "flatcap.host.Vmstat",
    schema: include_bytes!("../../../generated/host/vmstat.bfbs"),
    files: &[VMSTAT],
    refresh: "page faults hundreds of times a second; some counters are summed up once a second",
    selects: "fields, such as pgfault",
    needs: &[],
    open: |opening| {
        let part =
            Part { path: VMSTAT, layout: LINES, records: Records::UpTo(LINE_BYTES_MAX), is_optional: false };
        KeyedSampler::open(
            opening,
            &[part],
            (&VMSTAT_ENTRY, "flatcap.host.VmstatCounters"),
            |builder, bytes| Vmstat::create(builder, &VmstatArgs { counters: Some(&VmstatCounters(*bytes)) }),
        )
    },
};

/// Include and exclude speak of fields, such as `tcp_timeouts`.
pub(super) const NETSTAT_ENTRY: Entry = Entry {
    name: "netstat",
    root: "flatcap.host.Netstat",
    schema: include_bytes!("../../../generated/host/netstat.bfbs"),
    files: &[NETSTAT],
    refresh: "at each packet",
    selects: "fields, such as tcp_timeouts",
    needs: &[],
    open: |opening| {
        let path = of_namespace(opening.host, NETSTAT, "proc/1/net/netstat");
        let part = Part { path, layout: Layout::Headed, records: Records::One, is_optional: false };
        KeyedSampler::open(
            opening,
            &[part],
            (&NETSTAT_ENTRY, "flatcap.host.NetstatCounters"),
            |builder, bytes| {
                Netstat::create(builder, &NetstatArgs { counters: Some(&NetstatCounters(*bytes)) })
            },
        )
    },
};

/// Include and exclude speak of fields, such as `tcp_inuse`. A host without IPv6 lacks the second file: its fields are absent.
pub(super) const SOCKETS: Entry = Entry {
    name: "sockets",
    root: "flatcap.host.Sockets",
    schema: include_bytes!("../../../generated/host/sockets.bfbs"),
    files: &[SOCKSTAT, SOCKSTAT6],
    refresh: "whenever a socket is opened or closed",
    selects: "fields, such as tcp_inuse",
    needs: &[],
    open: |opening| {
        let part = |own, another, is_optional| {
            let path = of_namespace(opening.host, own, another);
            Part { path, layout: Layout::Pairs, records: Records::One, is_optional }
        };
        let parts =
            [part(SOCKSTAT, "proc/1/net/sockstat", false), part(SOCKSTAT6, "proc/1/net/sockstat6", true)];
        KeyedSampler::open(opening, &parts, (&SOCKETS, "flatcap.host.SocketCounters"), |builder, bytes| {
            Sockets::create(builder, &SocketsArgs { counters: Some(&SocketCounters(*bytes)) })
        })
    },
};

/// A struct of counters, the only field of its table, filled where it stands.
#[derive(Debug)]
struct KeyedSampler<const BYTES: usize> {
    counters: Keyed,
    model: FrameTemplate,
    place: Slot<[u8; BYTES]>,
}

impl<const BYTES: usize> KeyedSampler<BYTES> {
    /// `counters` names the struct, of `BYTES` bytes; `build` builds the table around one.
    fn open<T>(
        opening: &Opening<'_>,
        parts: &[Part],
        (entry, counters): (&Entry, &str),
        build: fn(&mut FlatBufferBuilder<'static>, &[u8; BYTES]) -> WIPOffset<T>,
    ) -> Result<Opened, Unavailable> {
        let keys = Keys::of(entry.schema, counters, &opening.selection());
        let model = model((entry.schema, entry.root), &[FIELD], |builder| build(builder, &[0; BYTES]));
        let place = model.slot(FIELD).expect(OWN);
        Ok(Opened::fixed(Self { counters: Keyed::open(opening.host, parts, keys)?, model, place }))
    }
}

impl<const BYTES: usize> FixedSampler for KeyedSampler<BYTES> {
    fn read(&mut self) -> Result<(), ReadError> {
        self.counters.read()
    }

    fn model(&self) -> &FrameTemplate {
        &self.model
    }

    fn patch(&mut self, _seq: u64, payload: &mut [u8]) -> Shortfall {
        // A name that the schema does not have is passed over.
        self.counters.fill(self.model.patch(payload).place(self.place), |_, _, _| Shortfall::NONE)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sampling::Selection;
    use crate::sampling::sources::counters::tests::filled;
    use crate::sampling::sources::counters::{Order, VALUE_BYTES};
    use crate::sampling::sources::tests::{
        assert_composed, captured, entered, fixture, sampled, sampled_under,
    };

    fn all(entry: &Entry, counters: &str) -> Keys {
        Keys::of(entry.schema, counters, &Selection::default())
    }

    fn memory_keys() -> Keys {
        all(&MEMORY, "flatcap.host.MemoryCounters")
    }

    fn parsed(text: &[u8], order: &mut Order) -> (BTreeMap<String, u64>, Shortfall) {
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

    /// `section: names` above `section: values`.
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

    // Goal: each field has an origin, none twice, and fills its whole struct. Method: count them.
    #[test]
    fn every_counter_has_its_line() {
        for (entry, counters, bytes) in [
            (&MEMORY, "flatcap.host.MemoryCounters", size_of::<MemoryCounters>()),
            (&VMSTAT_ENTRY, "flatcap.host.VmstatCounters", size_of::<VmstatCounters>()),
            (&NETSTAT_ENTRY, "flatcap.host.NetstatCounters", size_of::<NetstatCounters>()),
            (&SOCKETS, "flatcap.host.SocketCounters", size_of::<SocketCounters>()),
        ] {
            let origins = all(entry, counters).origins();
            assert_eq!(origins.len() * VALUE_BYTES, bytes);
            let distinct: std::collections::BTreeSet<_> = origins.iter().collect();
            assert_eq!(distinct.len(), origins.len());
        }
    }

    // Goal: values follow their names when the kernel changes the order of its lines, also with the order learnt before.
    // Method: the same lines forwards and backwards, with unknown ones between.
    #[test]
    fn values_follow_their_names() {
        let mut order = Order::default();
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
            assert_eq!(parsed(text.as_bytes(), &mut order), (expected.clone(), Shortfall::NONE));
        }
    }

    // Goal: damaged text never panics, a cut file is never called whole, a number too large is absent. Method: every cut,
    // every byte replaced.
    #[test]
    fn damaged_text_is_marked() {
        assert_composed(b"MemTotal:  123 kB\nMemFree:  456 kB\n", |text| {
            let (values, shortfall) = parsed(text, &mut Order::default());
            shortfall.is_none() && values.len() == 2
        });
        let (values, shortfall) =
            parsed(b"MemTotal: 99999999999999999999 kB\nMemFree:\n", &mut Order::default());
        assert!(values.is_empty());
        assert_eq!(shortfall, Shortfall::UNREADABLE | Shortfall::CUT);
    }

    // Goal: all values of this host and of captured ones are read, none is left out. Method: a naive parser beside ours.
    #[test]
    fn agrees_with_a_naive_reading() {
        let both =
            |path: &'static str| std::fs::read(format!("/{path}")).ok().into_iter().chain(fixture(path));
        for (entry, counters, path) in [
            (&MEMORY, "flatcap.host.MemoryCounters", MEMINFO),
            (&VMSTAT_ENTRY, "flatcap.host.VmstatCounters", VMSTAT),
        ] {
            let keys = all(entry, counters);
            for text in both(path) {
                let expected = naive(std::str::from_utf8(&text).unwrap());
                let found = filled(&keys, LINES, &mut Order::default(), &text);
                assert_eq!(found, (expected, Shortfall::NONE), "{path}");
            }
            sampled(entry);
        }
        let keys = all(&NETSTAT_ENTRY, "flatcap.host.NetstatCounters");
        let old = captured("node-exporter", &[NETSTAT]);
        let old = old.map(|folder| std::fs::read(folder.path().join(NETSTAT)).unwrap());
        for text in both(NETSTAT).chain(old) {
            let expected = naive_headed(std::str::from_utf8(&text).unwrap());
            let expected = expected.into_iter().map(|(name, value)| (name, value.cast_unsigned())).collect();
            let found = filled(&keys, Layout::Headed, &mut Order::default(), &text);
            assert_eq!(found, (expected, Shortfall::NONE));
        }
        sampled(&NETSTAT_ENTRY);
        let keys = all(&SOCKETS, "flatcap.host.SocketCounters");
        for text in both(SOCKSTAT).chain(both(SOCKSTAT6)) {
            let expected = naive_pairs(std::str::from_utf8(&text).unwrap());
            let found = filled(&keys, Layout::Pairs, &mut Order::default(), &text);
            assert_eq!(found, (expected, Shortfall::NONE));
        }
        sampled(&SOCKETS);
    }

    // Goal: a field that nobody wants is absent and is not missed; one that was there and is gone is. Method: a tree whose
    // file changes between two samples.
    #[test]
    fn fields_are_chosen_and_missed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let file = folder.path().join(MEMINFO);
        std::fs::write(&file, "MemTotal: 1 kB\nMemFree: 2 kB\nSwapFree: x kB\n").unwrap();
        let keys = "include = [\"mem_*\", \"swap*\"]\nexclude = [\"swap_free\"]";
        let (payload, shortfall) = sampled_under(&MEMORY, keys, folder.path());
        let counters = *flatbuffers::root::<Memory<'_>>(&payload).unwrap().counters();
        assert_eq!((counters.mem_total(), counters.mem_free(), counters.swap_free()), (1, 2, u64::MAX));
        assert_eq!(shortfall, Shortfall::NONE);

        let mut sampler = entered(&MEMORY, keys, folder.path()).unwrap();
        for (text, reason) in [
            ("MemTotal: 1 kB\nMemFree: 2 kB\n", Shortfall::NONE),
            ("MemTotal: 1 kB\n", Shortfall::MISSING),
            ("MemTotal: 1 kB\nMemFree: 2", Shortfall::CUT | Shortfall::MISSING),
            ("MemTotal: 1 kB\nMemFree: 2 kB\nMemAvailable: 3 kB\n", Shortfall::NONE),
        ] {
            std::fs::write(&file, text).unwrap();
            sampler.read().unwrap();
            assert_eq!(sampler.payload(0, &mut FlatBufferBuilder::new()).1, reason, "{text}");
        }
    }

    // Goal: under another root the namespace of its first process is read, and a host without IPv6 is whole. Method: a tree
    // with both, and one file alone.
    #[test]
    fn another_root_has_its_own_namespace() {
        let folder = tempfile::tempdir().unwrap();
        for (at, used) in [("proc/net", 1), ("proc/1/net", 2)] {
            std::fs::create_dir_all(folder.path().join(at)).unwrap();
            std::fs::write(folder.path().join(at).join("sockstat"), format!("sockets: used {used}\n"))
                .unwrap();
        }
        let (payload, shortfall) = sampled_under(&SOCKETS, "", folder.path());
        let counters = *flatbuffers::root::<Sockets<'_>>(&payload).unwrap().counters();
        assert_eq!((counters.used(), counters.tcp6_inuse(), shortfall), (2, u64::MAX, Shortfall::NONE));
    }
}
