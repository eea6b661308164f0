//! `numa`: memory of each node, from meminfo, numastat and vmstat below /sys/devices/system/node.

use flatbuffers::FlatBufferBuilder;

use super::counters::{Filling, Keys, Layout, Order};
use super::folders::{Folders, Kind};
use super::{Entry, Opening, Unavailable};
use crate::sampling::{Opened, ReadError, Sampler, Selection, Shortfall};
use crate::schema::host::{Numa, NumaArgs, NumaNode};

const DIRECTORY: &str = "sys/devices/system/node";
const KIND: Kind<3> = Kind {
    directory: DIRECTORY,
    prefix: "node",
    suffix: "",
    files: ["meminfo", "numastat", "vmstat"],
    folders_max: 1024, // Linux is built for at most as many
    hint: ": this kernel knows no nodes (CONFIG_NUMA)",
};
/// Of the files of the kind. The lines of the first begin with the node.
const LAYOUTS: [Layout; 3] = [
    Layout::Lines { section: b"meminfo:", skip: 2 },
    Layout::Lines { section: b"numastat:", skip: 0 },
    Layout::Lines { section: b"vmstat:", skip: 0 },
];

/// Include and exclude speak of nodes, such as `node0`.
pub(super) const ENTRY: Entry = Entry {
    name: "numa",
    root: "flatcap.host.Numa",
    schema: include_bytes!("../../../generated/host/numa.bfbs"),
    files: &[DIRECTORY],
    refresh: "hundreds of times a second, as memory is used; some counters are summed up once a second",
    selects: "nodes, such as node0",
    needs: &[],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    Ok(Opened::built(NumaSampler {
        folders: Folders::open(opening, KIND)?,
        keys: Keys::of(ENTRY.schema, "flatcap.host.NumaNode", &Selection::default()),
        orders: Default::default(),
        nodes: Vec::new(),
    }))
}

#[derive(Debug)]
struct NumaSampler {
    folders: Folders<3>,
    keys: Keys,
    orders: [Order; 3],   // all nodes have the same lines
    nodes: Vec<NumaNode>, // reused
}

impl Sampler for NumaSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.folders.read()
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let Self { folders, keys, orders, nodes } = self;
        nodes.clear();
        let mut shortfall = folders.shortfall();
        for folder in folders.folders() {
            let mut node = NumaNode::default();
            let mut filling = Filling::new(keys, &mut node.0);
            for ((content, layout), order) in folder.contents().into_iter().zip(LAYOUTS).zip(&mut *orders) {
                if let Some(content) = content {
                    // A name that the schema does not have is passed over.
                    filling.file(layout, order, content, |_, _, _| Shortfall::NONE);
                }
            }
            // What was ever there is missed when it is gone.
            shortfall |= filling.shortfall | Shortfall::MISSING.unless(filling.found >= folder.present);
            folder.present = filling.found.max(folder.present);
            node.set_node(folder.number);
            nodes.push(node);
        }
        let nodes = builder.create_vector(nodes);
        let root = Numa::create(builder, &NumaArgs { nodes: Some(nodes) });
        builder.finish_minimal(root);
        shortfall
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::sampling::sources::counters::VALUE_BYTES;
    use crate::sampling::sources::tests::{captured, opened, sampled, sampled_under};
    use crate::sampling::sources::text::ABSENT;

    /// What a node has, by `origin`.
    fn values(node: &NumaNode) -> BTreeMap<String, u64> {
        let origins = Keys::of(ENTRY.schema, "flatcap.host.NumaNode", &Selection::default()).origins();
        let places = node.0.chunks_exact(VALUE_BYTES);
        let values = places.map(|place| u64::from_le_bytes(place.try_into().unwrap()));
        origins.into_iter().zip(values).skip(1).filter(|(_, value)| *value != ABSENT).collect()
    }

    /// The same by a parser that knows nothing of ours. The events of vmstat are those of numastat.
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

    // Goal: each value is in its place, of each file, and no field has the origin of another. Method: a tree by hand.
    #[test]
    fn every_value_is_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let meminfo = "Node 10 MemTotal:  1 kB\nNode 10 Active(anon): 2 kB\nNode 10 HugePages_Free: 3\n";
        let files =
            [("meminfo", meminfo), ("numastat", "numa_hit 4\n"), ("vmstat", "nr_free_pages 5\nnuma_hit 6\n")];
        write(folder.path(), "node10", &files);
        let (payload, shortfall) = sampled_under(&ENTRY, "", folder.path());
        let numa = flatbuffers::root::<Numa<'_>>(&payload).unwrap();
        let node = numa.nodes().get(0);
        assert!(shortfall.is_none());
        assert_eq!(
            (node.node(), node.mem_total(), node.active_anon(), node.huge_pages_free()),
            (10, 1, 2, 3)
        );
        assert_eq!((node.numa_hit(), node.nr_free_pages(), node.mem_free()), (4, 5, ABSENT));
        let origins = Keys::of(ENTRY.schema, "flatcap.host.NumaNode", &Selection::default()).origins();
        assert_eq!(origins.len() * VALUE_BYTES, size_of::<NumaNode>());
        assert_eq!(origins.iter().collect::<std::collections::BTreeSet<_>>().len(), origins.len());
    }

    // Goal: nodes come and go without a restart, are never mixed up, and what is gone of one that stays is missed. Method: a
    // tree that changes between samples.
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
        let mut sampler = opened(&ENTRY, "exclude = [\"node5\"]", folder.path()).unwrap();
        let mut sample = || {
            let mut builder = FlatBufferBuilder::new();
            builder.force_defaults(true);
            sampler.read().unwrap();
            let shortfall = sampler.build(0, &mut builder);
            (numbers(builder.finished_data()), shortfall)
        };
        assert_eq!(sample(), (vec![(0, 1), (2, 3)], Shortfall::NONE));
        total("node1", 2);
        total("node5", 9);
        assert_eq!(sample(), (vec![(0, 1), (1, 2), (2, 3)], Shortfall::NONE));
        std::fs::remove_dir_all(folder.path().join(DIRECTORY).join("node0")).unwrap();
        assert_eq!(sample(), (vec![(1, 2), (2, 3)], Shortfall::NONE));
        total("node0", 4);
        assert_eq!(sample(), (vec![(0, 4), (1, 2), (2, 3)], Shortfall::NONE));
        write(folder.path(), "node1", &[("meminfo", "Node 1 MemFree: 7")]);
        assert_eq!(sample(), (vec![(0, 4), (1, ABSENT), (2, 3)], Shortfall::CUT | Shortfall::MISSING));
    }

    // Goal: captured hosts are read whole, none is left out. Method: a naive parser beside ours, over all their nodes.
    #[test]
    fn captured_hosts_are_read() {
        for archive in ["procfs", "node-exporter"] {
            let Some(folder) = captured(archive, &[DIRECTORY]) else { continue };
            let (payload, shortfall) = sampled_under(&ENTRY, "", folder.path());
            assert!(shortfall.is_none(), "{archive} {shortfall}");
            let numa = flatbuffers::root::<Numa<'_>>(&payload).unwrap();
            assert!(numa.nodes().len() >= 2);
            for node in &numa.nodes() {
                let files = folder.path().join(DIRECTORY).join(format!("node{}", node.node()));
                assert_eq!(values(node), naive(&files), "{archive}");
            }
        }
    }

    // Goal: all values of this host are read, none is left out. Method: the names that a naive parser finds, and values that
    // do not change.
    #[test]
    fn agrees_with_this_host() {
        if let Err(missing) = opened(&ENTRY, "", Path::new("/")) {
            println!("passed over: {missing}");
            return;
        }
        let payload = sampled(&ENTRY);
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
