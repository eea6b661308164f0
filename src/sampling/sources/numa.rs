//! `numa`: memory of each node, from meminfo, numastat and vmstat below /sys/devices/system/node.

use flatbuffers::FlatBufferBuilder;

use super::counters::{CounterKeys, CounterLayout, CounterOrder, CounterWriter};
use super::numbered_dirs::{NumberedDirKind, NumberedDirs};
use super::{OpenContext, SourceSpec, Unavailable};
use crate::sampling::{Incomplete, NameFilter, OpenedSampler, ReadError, Sampler};
use crate::schemas::host::{Numa, NumaArgs, NumaNode};

const DIRECTORY: &str = "sys/devices/system/node";
const DIR_KIND: NumberedDirKind<3> = NumberedDirKind {
    directory: DIRECTORY,
    prefix: "node",
    suffix: "",
    files: ["meminfo", "numastat", "vmstat"],
    dirs_max: 1024, // Linux supports no more
    hint: ": this kernel was built without NUMA support (CONFIG_NUMA)",
};
/// Layouts of these files. Lines of the first begin with the node.
const LAYOUTS: [CounterLayout; 3] = [
    CounterLayout::Lines { section: b"meminfo:", skip: 2 },
    CounterLayout::Lines { section: b"numastat:", skip: 0 },
    CounterLayout::Lines { section: b"vmstat:", skip: 0 },
];

/// `include` and `exclude` match nodes, such as `node0`.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "numa",
    root: "flatcap.host.Numa",
    schema: include_bytes!("../../../generated/host/numa.bfbs"),
    files: &[DIRECTORY],
    refresh: "hundreds of times a second, as memory is used; some counters are summed up once a second",
    selects: "nodes, such as node0",
    needs: &[],
    open,
};

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    Ok(OpenedSampler::built(NumaSampler {
        dirs: NumberedDirs::open(context, DIR_KIND)?,
        keys: CounterKeys::of(SPEC.schema, "flatcap.host.NumaNode", &NameFilter::default()),
        orders: Default::default(),
        nodes: Vec::new(),
    }))
}

#[derive(Debug)]
struct NumaSampler {
    dirs: NumberedDirs<3>,
    keys: CounterKeys,
    orders: [CounterOrder; 3], // all nodes have the same lines
    nodes: Vec<NumaNode>,      // reused
}

impl Sampler for NumaSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.dirs.read()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let Self { dirs, keys, orders, nodes } = self;
        nodes.clear();
        let mut incomplete = dirs.incomplete();
        for folder in dirs.dirs() {
            let mut node = NumaNode::default();
            let mut writer = CounterWriter::new(keys, &mut node.0);
            for ((content, layout), order) in folder.contents().into_iter().zip(LAYOUTS).zip(&mut *orders) {
                if let Some(content) = content {
                    // Names that the schema does not have are skipped.
                    writer.read_file(layout, order, content, |_, _, _| Incomplete::NONE);
                }
            }
            // A value that was ever present counts as missing when it is gone.
            incomplete |= writer.incomplete | Incomplete::MISSING.unless(writer.found >= folder.found_max);
            folder.found_max = writer.found.max(folder.found_max);
            node.set_node(folder.number);
            nodes.push(node);
        }
        let nodes = builder.create_vector(nodes);
        let root = Numa::create(builder, &NumaArgs { nodes: Some(nodes) });
        builder.finish_minimal(root);
        incomplete
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::sampling::sources::counters::VALUE_BYTES;
    use crate::sampling::sources::tests::{captured_host, open_sampler, sample_this_host, sample_under};
    use crate::sampling::sources::text::ABSENT;

    /// Returns the values of a node, by `origin`.
    fn values(node: &NumaNode) -> BTreeMap<String, u64> {
        let origins = CounterKeys::of(SPEC.schema, "flatcap.host.NumaNode", &NameFilter::default()).origins();
        let places = node.0.chunks_exact(VALUE_BYTES);
        let values = places.map(|place| u64::from_le_bytes(place.try_into().unwrap()));
        origins.into_iter().zip(values).skip(1).filter(|(_, value)| *value != ABSENT).collect()
    }

    /// The same by an independent parser. The events of vmstat are those of numastat.
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

    fn numbers(payload: &[u8]) -> Vec<(u64, u64)> {
        let numa = flatbuffers::root::<Numa<'_>>(payload).unwrap();
        numa.nodes().iter().map(|node| (node.node(), node.mem_total())).collect()
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
        let numa = flatbuffers::root::<Numa<'_>>(&payload).unwrap();
        let node = numa.nodes().get(0);
        assert!(incomplete.is_none());
        assert_eq!(
            (node.node(), node.mem_total(), node.active_anon(), node.huge_pages_free()),
            (10, 1, 2, 3)
        );
        assert_eq!((node.numa_hit(), node.nr_free_pages(), node.mem_free()), (4, 5, ABSENT));
        let origins = CounterKeys::of(SPEC.schema, "flatcap.host.NumaNode", &NameFilter::default()).origins();
        assert_eq!(origins.len() * VALUE_BYTES, size_of::<NumaNode>());
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
        assert_eq!(sample(), (vec![(0, 1), (2, 3)], Incomplete::NONE));
        total("node1", 2);
        total("node5", 9);
        assert_eq!(sample(), (vec![(0, 1), (1, 2), (2, 3)], Incomplete::NONE));
        std::fs::remove_dir_all(folder.path().join(DIRECTORY).join("node0")).unwrap();
        assert_eq!(sample(), (vec![(1, 2), (2, 3)], Incomplete::NONE));
        total("node0", 4);
        assert_eq!(sample(), (vec![(0, 4), (1, 2), (2, 3)], Incomplete::NONE));
        write(folder.path(), "node1", &[("meminfo", "Node 1 MemFree: 7")]);
        assert_eq!(sample(), (vec![(0, 4), (1, ABSENT), (2, 3)], Incomplete::CUT | Incomplete::MISSING));
    }

    // Proves that all nodes of captured hosts are read, as by a naive parser.
    #[test]
    fn captured_hosts_are_read() {
        for archive in ["procfs", "node-exporter"] {
            let Some(folder) = captured_host(archive, &[DIRECTORY]) else { continue };
            let (payload, incomplete) = sample_under(&SPEC, "", folder.path());
            assert!(incomplete.is_none(), "{archive} {incomplete}");
            let numa = flatbuffers::root::<Numa<'_>>(&payload).unwrap();
            assert!(numa.nodes().len() >= 2);
            for node in &numa.nodes() {
                let files = folder.path().join(DIRECTORY).join(format!("node{}", node.node()));
                assert_eq!(values(node), naive(&files), "{archive}");
            }
        }
    }

    // Proves that all values of this host are read: the names that a naive parser finds, and values
    // that do not change.
    #[test]
    fn agrees_with_this_host() {
        if let Err(missing) = open_sampler(&SPEC, "", Path::new("/")) {
            println!("skipped: {missing}");
            return;
        }
        let payload = sample_this_host(&SPEC);
        let numa = flatbuffers::root::<Numa<'_>>(&payload).unwrap();
        for node in &numa.nodes() {
            let expected = naive(&Path::new("/").join(DIRECTORY).join(format!("node{}", node.node())));
            let values = values(node);
            assert_eq!(values.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
            assert_eq!(values["meminfo:MemTotal"], expected["meminfo:MemTotal"]);
            let (ours, theirs) = (values["numastat:numa_hit"], expected["numastat:numa_hit"]);
            assert!(ours <= theirs && theirs - ours < 10_000_000, "{ours} {theirs}");
        }
    }
}
