//! `numa`: memory of each node, from meminfo, numastat and vmstat below /sys/devices/system/node.

use std::time::Duration;

use flatbuffers::{FlatBufferBuilder, VOffsetT};

use super::by_schema::{create_structs, slot, values_of};
use super::counters::{CounterKeys, CounterLayout, CounterOrder, CounterWriter};
use super::numbered_dirs::{NumberedDirKind, NumberedDirs};
use super::{OpenContext, SourceOpener, SourceSpec, Unavailable};
use crate::{Incomplete, NameFilter, OpenedSampler, ReadError, Sampler};

const DIRECTORY: &str = "sys/devices/system/node";
/// Name of the only field of the root table. The first value of a node is the node's id.
const FIELD: &str = "nodes";
const DIR_KIND: NumberedDirKind<3> = NumberedDirKind {
    directory: DIRECTORY,
    prefix: "node",
    suffix: "",
    files: ["meminfo", "numastat", "vmstat"],
    dirs_max: 1024, // Linux does not support more
    hint: SPEC.hint,
};
/// Layouts of these three files. Each line of meminfo begins with the node, as in `Node 0`.
const LAYOUTS: [CounterLayout; 3] = [
    CounterLayout::Lines { section: b"meminfo:", skip: 2 },
    CounterLayout::Lines { section: b"numastat:", skip: 0 },
    CounterLayout::Lines { section: b"vmstat:", skip: 0 },
];

/// `include` and `exclude` match nodes, such as `node0`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "numa",
    about: "Memory and allocations of each NUMA node.",
    root: "flatcap.host.Numa",
    schema: include_bytes!("../../../../generated/host/numa.bfbs"),
    files: &[DIRECTORY],
    // Placement shifts slowly. A sample queries each node.
    period: Duration::from_secs(1),
    refresh: "hundreds of times a second, as memory is used; some counters are summed up once a second",
    selects: "nodes, such as node0",
    hint: ": this kernel was built without NUMA support (CONFIG_NUMA)",
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    Ok(OpenedSampler::built(NumaSampler {
        dirs: NumberedDirs::open(context, DIR_KIND)?,
        keys: CounterKeys::of(&SPEC, FIELD, &NameFilter::default()),
        orders: Default::default(),
        nodes: Vec::new(),
        slot: slot(&SPEC, FIELD),
    }))
}

#[derive(Debug)]
struct NumaSampler {
    dirs: NumberedDirs<3>,
    keys: CounterKeys,
    orders: [CounterOrder; 3], // all nodes have the same lines
    nodes: Vec<u8>,            // reused
    slot: VOffsetT,
}

impl Sampler for NumaSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.dirs.read()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let Self { dirs, keys, orders, nodes, slot } = self;
        nodes.clear();
        let mut count = 0;
        let mut incomplete = dirs.incomplete();
        for folder in dirs.dirs() {
            let at = nodes.len();
            nodes.resize(at + keys.bytes(), 0);
            let (_, node) = nodes.split_at_mut(at);
            let mut writer = CounterWriter::new(keys, node);
            let contents = folder.contents().into_iter().zip(DIR_KIND.files);
            for (((content, name), layout), order) in contents.zip(LAYOUTS).zip(&mut *orders) {
                if let Some(content) = content {
                    // Values whose names the schema does not have are skipped.
                    writer.read_file(layout, order, content, |_, _, _| Incomplete::NONE);
                    let lacks = std::mem::take(&mut writer.incomplete);
                    incomplete |= DIR_KIND.in_file(lacks, content, (folder.number, name));
                }
            }
            // A value that was present in an earlier read and is now absent is reported as missing.
            incomplete |= writer.incomplete | Incomplete::MISSING.unless(writer.found >= folder.found_max);
            folder.found_max = writer.found.max(folder.found_max);
            if let Some(number) = node.first_chunk_mut() {
                *number = folder.number.to_le_bytes();
            }
            count += 1;
        }
        let nodes = create_structs(builder, count, values_of(nodes));
        let table = builder.start_table();
        builder.push_slot_always(*slot, nodes);
        let root = builder.end_table(table);
        builder.finish_minimal(root);
        incomplete
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::sources::by_schema::struct_of;
    use crate::sources::tests::{
        captured_host, decoded, open_sampler, sample_this_host, sample_under, values_at,
    };
    use crate::sources::text::ABSENT;

    fn origins() -> Vec<String> {
        CounterKeys::of(&SPEC, FIELD, &NameFilter::default()).origins()
    }

    /// Returns the id of each node, and its values by `origin`.
    fn nodes(payload: &[u8]) -> Vec<(u64, BTreeMap<String, u64>)> {
        let origins = origins();
        let values = values_at(&SPEC, "nodes[]", payload);
        let nodes = values.chunks_exact(origins.len()).map(|node| {
            let values = origins.iter().cloned().zip(node.iter().copied()).skip(1);
            (node[0], values.filter(|(_, value)| *value != ABSENT).collect())
        });
        nodes.collect()
    }

    /// Returns the same values as found by an independent parser. The events of vmstat have the
    /// same values as the events of numastat.
    fn naive(folder: &Path) -> BTreeMap<String, u64> {
        let mut values = BTreeMap::new();
        for (file, skip) in [("meminfo", 2), ("numastat", 0), ("vmstat", 0)] {
            for line in std::fs::read_to_string(folder.join(file)).unwrap_or_default().lines() {
                let words: Vec<&str> = line.split_whitespace().skip(skip).collect();
                if !(file == "vmstat" && words[0].starts_with("numa_")) {
                    values.insert(
                        format!("{file}:{}", words[0].trim_end_matches(':')),
                        words[1].parse().unwrap(),
                    );
                }
            }
        }
        values
    }

    fn write(folder: &Path, node: &str, files: &[(&str, &str)]) {
        let folder = folder.join(DIRECTORY).join(node);
        std::fs::create_dir_all(&folder).unwrap();
        for (file, text) in files {
            std::fs::write(folder.join(file), text).unwrap();
        }
    }

    /// Returns the id and the memory of each node.
    fn numbers(payload: &[u8]) -> Vec<(u64, Option<u64>)> {
        let numa = decoded(&SPEC, payload);
        let nodes = numa[FIELD].as_array().unwrap().iter();
        nodes.map(|node| (node["node"].as_u64().unwrap(), node["mem_total"].as_u64())).collect()
    }

    // Proves that each value of each file ends up in its field, and that no two fields have the
    // same origin.
    #[test]
    fn every_value_is_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let meminfo = "Node 10 MemTotal:  1 kB\nNode 10 Active(anon): 2 kB\nNode 10 HugePages_Free: 3\n";
        let files =
            [("meminfo", meminfo), ("numastat", "numa_hit 4\n"), ("vmstat", "nr_free_pages 5\nnuma_hit 6\n")];
        write(folder.path(), "node10", &files);
        let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
        assert!(incomplete.is_none());
        let node = &decoded(&SPEC, &payload)[FIELD][0];
        for (field, value) in [
            ("node", 10),
            ("mem_total", 1),
            ("active_anon", 2),
            ("huge_pages_free", 3),
            ("numa_hit", 4),
            ("nr_free_pages", 5),
        ] {
            assert_eq!(node[field], value, "{field}");
        }
        assert!(node["mem_free"].is_null(), "{node}");
        let origins = origins();
        let fields = struct_of(&SPEC, FIELD).fields();
        assert_eq!((origins.len(), origins[0].as_str()), (fields.len(), ""));
        assert_eq!(origins.iter().collect::<std::collections::BTreeSet<_>>().len(), origins.len());
    }

    // Proves that nodes come and go without a restart and are never confused, and that a value that
    // disappears from a node is marked as missing.
    #[test]
    fn nodes_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let total = |node: &str, total: u64| {
            let meminfo = format!("Node {} MemTotal: {total} kB\n", &node[4..]);
            write(folder.path(), node, &[("meminfo", &meminfo)]);
        };
        total("node0", 1);
        total("node2", 3);
        write(folder.path(), "power", &[]);
        let mut sampler = open_sampler(&SPEC, "exclude = [\"node5\"]", folder.path()).unwrap();
        let mut sample = || {
            let mut builder = FlatBufferBuilder::new();
            builder.force_defaults(true);
            sampler.read().unwrap();
            let incomplete = sampler.build(0, &mut builder);
            (numbers(builder.finished_data()), incomplete)
        };
        assert_eq!(sample(), (vec![(0, Some(1)), (2, Some(3))], Incomplete::NONE));
        total("node1", 2);
        total("node5", 9);
        assert_eq!(sample(), (vec![(0, Some(1)), (1, Some(2)), (2, Some(3))], Incomplete::NONE));
        std::fs::remove_dir_all(folder.path().join(DIRECTORY).join("node0")).unwrap();
        assert_eq!(sample(), (vec![(1, Some(2)), (2, Some(3))], Incomplete::NONE));
        total("node0", 4);
        assert_eq!(sample(), (vec![(0, Some(4)), (1, Some(2)), (2, Some(3))], Incomplete::NONE));
        write(folder.path(), "node1", &[("meminfo", "Node 1 MemFree: 7")]);
        let expected = vec![(0, Some(4)), (1, None), (2, Some(3))];
        assert_eq!(sample(), (expected, Incomplete::CUT | Incomplete::MISSING));
    }

    // Proves that all nodes of files captured from other hosts are read, and that a naive parser
    // finds the same values.
    #[test]
    fn captured_hosts_are_read() {
        for archive in ["procfs", "node-exporter"] {
            let Some(folder) = captured_host(archive, &[DIRECTORY]) else { continue };
            let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
            assert!(incomplete.is_none(), "{archive} {incomplete}");
            let nodes = nodes(&payload);
            assert!(nodes.len() >= 2);
            for (number, values) in nodes {
                let files = folder.path().join(DIRECTORY).join(format!("node{number}"));
                assert_eq!(values, naive(&files), "{archive}");
            }
        }
    }

    // Proves that all values of this host are read. The names must equal the names that a naive
    // parser finds, and values that do not change must be equal.
    #[test]
    fn agrees_with_this_host() {
        if let Err(missing) = open_sampler(&SPEC, "", Path::new("/")) {
            println!("skipped: {missing}");
            return;
        }
        let payload = sample_this_host(&SPEC);
        for (number, values) in nodes(&payload) {
            let expected = naive(&Path::new("/").join(DIRECTORY).join(format!("node{number}")));
            assert_eq!(values.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
            assert_eq!(values["meminfo:MemTotal"], expected["meminfo:MemTotal"]);
            let (ours, theirs) = (values["numastat:numa_hit"], expected["numastat:numa_hit"]);
            assert!(ours <= theirs && theirs - ours < 10_000_000, "{ours} {theirs}");
        }
    }
}
