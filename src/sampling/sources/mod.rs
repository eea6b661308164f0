//! The sources, one file each: the files that it reads, how it parses them, and how it fills its
//! schema (schemas/host/). docs/ARCHITECTURE.md shows how to add one.

use flatcap_tasks::schema::TASKS_NAME;

use super::source_spec::{OWN_SCHEMA, host_file};
use super::{OpenContext, OwnKeys, OwnSettings, SourceOpener, SourceSettings, SourceSpec, Unavailable};
use crate::os::host::HostRoot;

mod buddy;
mod by_schema;
mod cgroup;
mod command;
mod conntrack;
mod core_list;
mod counter_tables;
mod counters;
mod cpu;
mod cpufreq;
mod cursor;
mod devices;
mod disk;
mod ethtool;
mod file;
mod filesystem;
mod gpu;
mod guarded_reads;
mod hugepages;
mod hwmon;
mod interrupts;
mod json_numbers;
mod kmsg;
mod load;
mod memory;
mod named_series;
mod netstat;
mod network;
mod numa;
mod numbered_dirs;
mod perf;
mod perf_access;
mod perf_groups;
mod power;
mod pressure;
mod process;
mod profile;
mod prometheus;
mod ring_memory;
mod sched;
mod schedstat;
pub mod self_source;
mod skipped_values;
mod slab;
mod snmp;
mod sockets;
mod softirqs;
mod softnet;
pub mod synthetic;
mod text;
mod text_values;
mod thermal;
mod threads;
mod vmstat;
#[cfg(test)]
mod xfrm_example;

pub use ring_memory::RingMemory;

/// All sources, in the order in which the configuration, documents and recordings list them; those
/// with instances are last.
pub const CATALOG: &[SourceSpec] = &[
    cpu::SPEC,
    memory::SPEC,
    vmstat::SPEC,
    load::SPEC,
    disk::SPEC,
    network::SPEC,
    pressure::SPEC,
    self_source::SPEC,
    synthetic::SPEC,
    schedstat::SPEC,
    softirqs::SPEC,
    interrupts::SPEC,
    cpufreq::SPEC,
    thermal::SPEC,
    hwmon::SPEC,
    power::SPEC,
    numa::SPEC,
    slab::SPEC,
    buddy::SPEC,
    hugepages::SPEC,
    filesystem::SPEC,
    sockets::SPEC,
    snmp::SPEC,
    netstat::SPEC,
    softnet::SPEC,
    conntrack::SPEC,
    ethtool::SPEC,
    process::SPEC,
    cgroup::SPEC,
    perf::SPEC,
    sched::SPEC,
    profile::SPEC,
    kmsg::SPEC,
    gpu::SPEC,
    file::SPEC,
    command::SPEC,
];

/// Returns the memory of a source with these settings for the rings of all CPUs of the host. Empty
/// if it reads none.
pub fn ring_memory(settings: &SourceSettings<'_>, host: &HostRoot) -> Vec<RingMemory> {
    let sizes = match settings.own {
        OwnSettings::Sched(config) => sched::ring_sizes(config),
        OwnSettings::Profile(config) => profile::ring_sizes(config, settings.period),
        _ => return Vec::new(),
    };
    sizes.memory(host).to_vec()
}

/// Returns the source of this name.
pub fn find(name: &str) -> Option<&'static SourceSpec> {
    CATALOG.iter().find(|spec| spec.name == name)
}

/// Returns whether a name is reserved. Reserved are the names of the recorder's own sources and of
/// their instances, such as `file.raid`, and of sources that readers compute.
pub fn is_reserved(name: &str) -> bool {
    let first = name.split('.').next().unwrap_or(name);
    find(first).is_some() || first == TASKS_NAME
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use flatbuffers::FlatBufferBuilder;
    use flatcap_format::frame::FrameTemplate;
    use flatcap_format::schema::CompiledSchema;

    use super::*;
    use crate::config::Config;
    use crate::sampling::{Incomplete, OpenedSampler, Sampler};

    /// Returns the payload of a source of this host, which must be present and complete.
    pub(super) fn sample_this_host(entry: &SourceSpec) -> Vec<u8> {
        let (payload, incomplete) = sample_under(entry, "", Path::new("/"));
        assert_eq!(incomplete, Incomplete::NONE, "{}", entry.name);
        payload
    }

    /// Returns the payload of a source of the host under `root`, and the reasons for which it is
    /// incomplete. `keys` are lines of the source's table in a configuration.
    pub(super) fn sample_under(entry: &SourceSpec, keys: &str, root: &Path) -> (Vec<u8>, Incomplete) {
        let mut sampler = open_source(entry, keys, root).unwrap();
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        sampler.read().unwrap();
        sampler.payload(0, &mut builder)
    }

    /// Returns a payload as JSON, decoded by its schema. Absent values are null.
    pub(super) fn decoded(spec: &SourceSpec, payload: &[u8]) -> serde_json::Value {
        let mut json = Vec::new();
        let schema = CompiledSchema::compile(spec.schema, spec.root).unwrap();
        schema.append_json(payload, &mut json).unwrap();
        serde_json::from_slice(&json).unwrap()
    }

    /// Returns all values of a struct of 64-bit values, or of all elements (`field[]`).
    pub(super) fn values_at(spec: &SourceSpec, path: &str, payload: &[u8]) -> Vec<u64> {
        let template = FrameTemplate::with_root(payload, (spec.schema, spec.root), &[path]).unwrap();
        let list = template.list(path).unwrap();
        by_schema::values_of(template.view(payload).unwrap().elements(&list)).collect()
    }

    /// Opens a source whose payloads are built, under another root and with these keys in its
    /// table.
    pub(super) fn open_sampler(
        entry: &SourceSpec,
        keys: &str,
        root: &Path,
    ) -> Result<Box<dyn Sampler>, Unavailable> {
        open_source(entry, keys, root).map(|opened| match opened {
            OpenedSampler::Built(sampler) => sampler,
            OpenedSampler::Fixed(_) => panic!("the payloads of {} are fixed", entry.name),
        })
    }

    /// Opens a source under another root and with these keys in its table.
    pub(super) fn open_source(
        entry: &SourceSpec,
        keys: &str,
        root: &Path,
    ) -> Result<OpenedSampler, Unavailable> {
        let config = Config::parse(
            "test.toml",
            &format!("[source.{}{}]\n{keys}\n", entry.name, instance_suffix(entry)),
        )
        .unwrap();
        let source = config.sources.iter().find(|source| source.spec == entry).unwrap();
        entry.open(&OpenContext { host: &HostRoot::new(root), settings: source.settings() })
    }

    /// Returns the suffix that makes the name of an instance.
    fn instance_suffix(entry: &SourceSpec) -> &'static str {
        if entry.has_instances() { ".own" } else { "" }
    }

    /// Returns a file of a captured host, if the archive is present.
    pub(super) fn fixture(path: &str) -> Option<Vec<u8>> {
        let archive =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/hosts/procfs-fixtures.tar.gz");
        let unpacked = std::process::Command::new("tar")
            .arg("-xzOf")
            .arg(&archive)
            .args(["--wildcards", "--no-anchored", path])
            .output()
            .ok()
            .filter(|output| archive.exists() && !output.stdout.is_empty());
        if unpacked.is_none() {
            println!("skipped: no captured {path} in {}", archive.display());
        }
        unpacked.map(|output| output.stdout)
    }

    /// Unpacks the trees of a captured host below `prefixes`, such as `sys/class/hwmon`, with their
    /// links. `archive` is `procfs` or `node-exporter`.
    pub(super) fn captured_host(archive: &str, prefixes: &[&str]) -> Option<tempfile::TempDir> {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../shared/data/hosts/{archive}-fixtures.tar.gz"));
        if !archive.exists() {
            println!("skipped: no captured host in {}", archive.display());
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut tar = std::process::Command::new("tar");
        tar.arg("-xzf").arg(&archive).arg("-C").arg(folder.path());
        let status = tar.args(prefixes.iter().map(|prefix| format!("./{prefix}"))).status().unwrap();
        assert!(status.success(), "{prefixes:?} of {}", archive.display());
        Some(folder)
    }

    /// Creates a host from these files.
    pub(super) fn host_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        folder
    }

    /// Moves a part of such a host away, or back.
    #[allow(clippy::disallowed_methods, reason = "a tree of the test, not the recorder's")]
    pub(super) fn rename(from: &Path, to: &Path) {
        std::fs::rename(from, to).unwrap();
    }

    /// Returns the text of a fixed-size array.
    pub(super) fn fixed_text(place: impl IntoIterator<Item = u8>) -> String {
        place.into_iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    /// Cuts the text at every position, and replaces every byte. Nothing may panic, and no cut text
    /// may pass as complete. The text itself must.
    pub(super) fn assert_damage_is_marked(text: &[u8], mut is_whole: impl FnMut(&[u8]) -> bool) {
        assert!(is_whole(text));
        for cut in 0..text.len() {
            assert!(!is_whole(&text[..cut]), "cut at {cut}");
        }
        for at in 0..text.len() {
            for byte in [0, b' ', b'\n', b'9', b':', b'x', 0xFF] {
                let mut damaged = text.to_vec();
                damaged[at] = byte;
                is_whole(&damaged);
            }
        }
    }

    // Proves that names in the catalog are distinct, that each schema has its root, and that only
    // sources of the host have files; the files of instances are in the configuration.
    #[test]
    fn the_catalog_is_sound() {
        for (at, entry) in CATALOG.iter().enumerate() {
            assert!(CATALOG.iter().skip(at + 1).all(|other| other != entry));
            assert_eq!(find(entry.name), Some(entry));
            let schema = flatbuffers_reflection::reflection::root_as_schema(entry.schema).unwrap();
            assert!(schema.objects().iter().any(|object| object.name() == entry.root), "{}", entry.root);
            let reads_host = matches!(entry.opener, SourceOpener::Host(_)) && !entry.has_instances();
            assert_eq!(!entry.files.is_empty(), reads_host, "{}", entry.name);
        }
        assert!(CATALOG.is_sorted_by_key(SourceSpec::has_instances), "those with instances are last");
    }

    /// Collects the numbers of a sample, but for those that count others.
    fn numbers_of(value: &serde_json::Value, found: &mut Vec<u64>) {
        match value {
            serde_json::Value::Number(number) => found.push(number.as_f64().unwrap().to_bits()),
            serde_json::Value::Array(items) => items.iter().for_each(|item| numbers_of(item, found)),
            serde_json::Value::Object(fields) => {
                let is_count = |name: &str| matches!(name, "offset" | "length" | "is_per_core");
                fields
                    .iter()
                    .filter(|(name, _)| !is_count(name))
                    .for_each(|(_, item)| numbers_of(item, found));
            }
            _ => {}
        }
    }

    /// Returns the numbers of a line, wherever they are in it.
    fn numbers_in(line: &str) -> Vec<u64> {
        let numbers = line.split(|byte: char| !byte.is_ascii_digit() && byte != '.');
        numbers.filter_map(|number| number.parse::<f64>().ok()).map(f64::to_bits).collect()
    }

    /// Removes the second numbers from the first. Returns false if any is missing.
    fn remove_all(from: &mut Vec<u64>, what: &[u64]) -> bool {
        what.iter().all(|number| {
            let at = from.iter().position(|one| one == number);
            at.map(|at| from.swap_remove(at)).is_some()
        })
    }

    /// Files that are missing on the captured host, or contain no values there.
    const SLABINFO: &str = "slabinfo - version: 2.1\n# name <active_objs> <num_objs>\n\
        dentry 375 532 192 21 1 : tunables 0 0 0 : slabdata 19 22 0\n\
        kmalloc-64 1001 1002 64 65 2 : tunables 0 0 0 : slabdata 15 16 0\n";
    const BUDDYINFO: &str = "Node 0, zone DMA 1 2 3 4\nNode 0, zone Normal 4381 1093 185 7\n";
    const SOCKSTAT: &str = "sockets: used 290\nTCP: inuse 5 orphan 6 tw 7 alloc 8 mem 9\n\
        UDP: inuse 11 mem 12\nRAW: inuse 13\nFRAG: inuse 14 memory 15\n";
    const SNMP: &str = "Icmp: InMsgs InErrors\nIcmp: 14 15\n\
        Tcp: RtoMin MaxConn ActiveOpens\nTcp: 200 40 9\nUdp: InDatagrams NoPorts\nUdp: 31 32\n";
    const NETSTAT: &str = "TcpExt: SyncookiesSent SyncookiesRecv EmbryonicRsts\nTcpExt: 21 22 23\n\
        IpExt: InNoRoutes InTruncatedPkts\nIpExt: 24 25\n";

    /// Copies the captured host, and adds those files.
    fn host_to_damage() -> (tempfile::TempDir, std::path::PathBuf) {
        let captured = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts/kvm-2-cores");
        let folder = tempfile::tempdir().unwrap();
        let copied = std::process::Command::new("cp").arg("-r").arg(captured).arg(folder.path()).status();
        assert!(copied.unwrap().success());
        let root = folder.path().join("kvm-2-cores");
        std::fs::create_dir_all(root.join("proc/1/net")).unwrap();
        for (file, text) in [
            ("proc/slabinfo", SLABINFO),
            ("proc/buddyinfo", BUDDYINFO),
            ("proc/1/net/sockstat", SOCKSTAT),
            ("proc/1/net/snmp", SNMP),
            ("proc/1/net/netstat", NETSTAT),
        ] {
            std::fs::write(root.join(file), text).unwrap();
        }
        (folder, root)
    }

    // Proves that a bad value or line costs a sample only the values in it: no other value is
    // missing, and none is invented. Method: damages each number and each line of the files of a
    // host in turn. Missing values must come from the damaged line, or from the line below a
    // damaged heading.
    #[test]
    fn bad_text_costs_only_itself() {
        let (_folder, root) = host_to_damage();
        let mut damaged = 0;
        // The number: heading lines, which are not replaced as a whole.
        for (name, file, headings) in [
            ("cpu", "proc/stat", 0),
            ("memory", "proc/meminfo", 0),
            ("vmstat", "proc/vmstat", 0),
            ("load", "proc/loadavg", 0),
            ("disk", "proc/diskstats", 0),
            ("network", "proc/1/net/dev", 2),
            ("pressure", "proc/pressure/memory", 0),
            ("softirqs", "proc/softirqs", 1),
            ("interrupts", "proc/interrupts", 1),
            ("slab", "proc/slabinfo", 0),
            ("buddy", "proc/buddyinfo", 0),
            ("sockets", "proc/1/net/sockstat", 0),
            ("snmp", "proc/1/net/snmp", 0),
            ("netstat", "proc/1/net/netstat", 0),
        ] {
            let spec = find(name).unwrap();
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            let sample = |text: &str| {
                std::fs::write(root.join(file), text).unwrap();
                let keys = if name == "disk" { "include = [\"*\"]" } else { "" };
                let (payload, incomplete) = sample_under(spec, keys, &root);
                let mut found = Vec::new();
                numbers_of(&decoded(spec, &payload), &mut found);
                (found, incomplete)
            };
            let (whole, incomplete) = sample(&text);
            assert_eq!(incomplete, Incomplete::NONE, "{name}");
            let lines: Vec<&str> = text.lines().collect();
            for (at, line) in lines.iter().enumerate() {
                let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
                let words = line.split_whitespace().enumerate().filter(|(_, word)| is_number(word));
                let bad_words = words.take(24).map(|(place, _)| {
                    let words = line.split_whitespace().enumerate();
                    let words = words.map(|(other, word)| if other == place { "bad" } else { word });
                    words.collect::<Vec<_>>().join(" ")
                });
                let whole_line = (at >= headings).then(|| "bad".to_owned());
                let section = |line: &str| line.split_once(' ').map(|(section, _)| section.to_owned());
                let below = lines.get(at + 1).filter(|below| {
                    matches!(name, "snmp" | "netstat") && at % 2 == 0 && section(below) == section(line)
                });
                for damage in bad_words.chain(whole_line) {
                    let mut lines = lines.clone();
                    lines[at] = &damage;
                    let (found, incomplete) = sample(&(lines.join("\n") + "\n"));
                    let mut lost = whole.clone();
                    assert!(remove_all(&mut lost, &found), "{name}: invented by {damage:?}");
                    let mut own = numbers_in(line);
                    own.extend(below.into_iter().flat_map(|below| numbers_in(below)));
                    assert!(remove_all(&mut own, &lost), "{name}: {} values lost by {damage:?}", lost.len());
                    // A line that is not there may be one that this kernel lacks.
                    let is_marked = !incomplete.is_none() || damage == "bad";
                    assert!(lost.is_empty() || is_marked, "{name}: not marked: {damage:?}");
                    damaged += 1;
                }
            }
            std::fs::write(root.join(file), &text).unwrap();
        }
        assert!(damaged > 100, "{damaged}");
    }

    // Proves that the error names a missing file.
    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for entry in CATALOG.iter().filter(|entry| !entry.files.is_empty()) {
            let error = open_source(entry, "", folder.path()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("/{}: No such file", entry.files[0])), "{error}");
        }
    }
}
