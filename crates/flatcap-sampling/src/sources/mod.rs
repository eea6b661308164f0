//! The sources, each in a file of its own. The Rust file of a source names the files of the host
//! that the source reads. The Rust file also contains the parser of the host's files, and the code
//! that fills the source's schema (schemas/host/). docs/ARCHITECTURE.md shows how to add a source.

use flatcap_os::host::HostRoot;
use flatcap_tasks::schema::TASKS_NAME;

use super::source_spec::{OWN_SCHEMA, host_file};
use super::{OpenContext, OwnKeys, OwnSettings, SourceOpener, SourceSettings, SourceSpec, Unavailable};

#[cfg(test)]
mod bad_elements;
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

/// All sources, in the order in which the configuration, documents and recordings list them.
/// Sources with instances are last.
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

/// Returns the memory that a source with these settings needs for the rings of all CPUs of the
/// host. The list is empty if the source reads no rings.
pub fn ring_memory(settings: &SourceSettings<'_>, host: &HostRoot) -> Vec<RingMemory> {
    let sizes = match settings.own {
        OwnSettings::Sched(config) => sched::ring_sizes(config),
        OwnSettings::Profile(config) => profile::ring_sizes(config, settings.period),
        _ => return Vec::new(),
    };
    sizes.memory(host).to_vec()
}

/// Returns the source with this name.
pub fn find(name: &str) -> Option<&'static SourceSpec> {
    CATALOG.iter().find(|spec| spec.name == name)
}

/// Returns whether a name is reserved. The reserved names are the names of the recorder's sources,
/// of their instances, such as `file.raid`, and of sources that readers compute.
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
    use crate::test_settings::TestSettings;
    use crate::{Incomplete, OpenedSampler, Sampler};

    /// Returns the payload of a sample of a source on this host. The source must be present, and
    /// its sample must be complete.
    pub(super) fn sample_this_host(entry: &SourceSpec) -> Vec<u8> {
        let (payload, incomplete) = sample_under(entry, "", Path::new("/"));
        assert_eq!(incomplete, Incomplete::NONE, "{}", entry.name);
        payload
    }

    /// Returns the payload of a sample of a source on the host under `root`, and the reasons why
    /// the sample is incomplete. `keys` are lines of the source's table in a configuration.
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

    /// Returns all values of a struct of 64-bit values. For a list (`field[]`), returns the values
    /// of all elements.
    pub(super) fn values_at(spec: &SourceSpec, path: &str, payload: &[u8]) -> Vec<u64> {
        let template = FrameTemplate::with_root(payload, (spec.schema, spec.root), &[path]).unwrap();
        let list = template.list(path).unwrap();
        by_schema::values_of(template.view(payload).unwrap().elements(&list)).collect()
    }

    /// Opens a source whose payloads are built at each sample. Uses the root `root`, and the keys
    /// `keys` in the source's table.
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

    /// Opens a source under the root `root`, with `keys` in the source's table.
    pub(super) fn open_source(
        entry: &SourceSpec,
        keys: &str,
        root: &Path,
    ) -> Result<OpenedSampler, Unavailable> {
        let settings = TestSettings::new(entry, keys);
        entry.open(&OpenContext { host: &HostRoot::new(root), settings: settings.get() })
    }

    /// Returns the content of a file that was captured from a host, if the archive is present.
    pub(super) fn fixture(path: &str) -> Option<Vec<u8>> {
        let archive =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/hosts/procfs-fixtures.tar.gz");
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

    /// Unpacks the directory trees that were captured from a host below `prefixes`, such as
    /// `sys/class/hwmon`, with their symbolic links. `archive` is `procfs` or `node-exporter`.
    pub(super) fn captured_host(archive: &str, prefixes: &[&str]) -> Option<tempfile::TempDir> {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../../shared/data/hosts/{archive}-fixtures.tar.gz"));
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

    /// Creates a simulated host that contains `files`.
    pub(super) fn host_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        folder
    }

    /// Renames a part of a simulated host, so that this part disappears or appears again.
    #[allow(clippy::disallowed_methods, reason = "a tree of the test, not the recorder's")]
    pub(super) fn rename(from: &Path, to: &Path) {
        std::fs::rename(from, to).unwrap();
    }

    /// Returns the text of a fixed-size array.
    pub(super) fn fixed_text(place: impl IntoIterator<Item = u8>) -> String {
        place.into_iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    /// Tests a parser with the text truncated at every position, and with every byte replaced. The
    /// parser must never panic, and must never accept a truncated text as complete. The parser must
    /// accept the unchanged text as complete.
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

    // Proves that names in the catalog are distinct, that each source states its name, meaning and
    // period, and that each schema has its root. Only sources of the host have files, because the
    // configuration names the files of instances.
    #[test]
    fn the_catalog_is_sound() {
        for (at, entry) in CATALOG.iter().enumerate() {
            assert!(CATALOG.iter().skip(at + 1).all(|other| other != entry));
            assert_eq!(find(entry.name), Some(entry));
            assert!(
                !entry.name.is_empty() && !entry.about.is_empty() && !entry.period.is_zero(),
                "{entry:?}"
            );
            let is_own = entry.name == "self";
            assert_eq!(matches!(entry.opener, SourceOpener::Recorder), is_own, "{}", entry.name);
            let schema = flatbuffers_reflection::reflection::root_as_schema(entry.schema).unwrap();
            assert!(schema.objects().iter().any(|object| object.name() == entry.root), "{}", entry.root);
            let reads_host = matches!(entry.opener, SourceOpener::Host(_)) && !entry.has_instances();
            assert_eq!(!entry.files.is_empty(), reads_host, "{}", entry.name);
        }
        assert!(CATALOG.is_sorted_by_key(SourceSpec::has_instances), "those with instances are last");
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
