//! The sources, one file each: what it reads, how it parses that, and how it fills its schema
//! (schemas/host/).

use std::io;

use super::{NameFilter, OpenedSampler};
use crate::config::SourceConfig;
use crate::os::host::{HostFile, HostRoot};

mod buddy;
mod cgroup;
mod command;
mod conntrack;
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
mod hugepages;
mod hwmon;
mod interrupts;
mod load;
mod network;
mod numa;
mod numbered_dirs;
mod perf;
mod perf_groups;
mod power;
mod pressure;
mod process;
mod schedstat;
pub mod self_source;
mod slab;
mod snmp;
mod softirqs;
mod softnet;
pub mod synthetic;
mod text;
mod text_values;
mod thermal;
mod threads;

/// Description of a source before it is opened.
#[derive(Debug)]
pub struct SourceSpec {
    /// Name of the source.
    pub name: &'static str,
    /// Full name of its payload's root table.
    pub root: &'static str,
    /// Binary schema of its payload.
    pub schema: &'static [u8],
    /// Files it reads, without the leading slash; none for instances, which read what the
    /// configuration names.
    pub files: &'static [&'static str],
    /// How often the kernel updates the values: a shorter period gains nothing.
    pub refresh: &'static str,
    /// The things that `include` and `exclude` match; empty if there is nothing to choose.
    pub selects: &'static str,
    /// Capabilities it needs.
    pub needs: &'static [&'static str],
    /// Opens the source, and reads it once to prove that it can be read.
    pub open: fn(&OpenContext<'_>) -> Result<OpenedSampler, Unavailable>,
}

/// Arguments for opening a source.
#[derive(Debug, Clone, Copy)]
pub struct OpenContext<'a> {
    /// The host's file trees.
    pub host: &'a HostRoot,
    /// Configuration of the source.
    pub config: &'a SourceConfig,
}

impl OpenContext<'_> {
    /// Returns the selection of things to record.
    pub fn selection(&self) -> NameFilter {
        NameFilter::of(self.config)
    }
}

/// All sources that read the host.
pub const CATALOG: &[SourceSpec] = &[
    cpu::SPEC,
    counter_tables::MEMORY_SPEC,
    counter_tables::VMSTAT_SPEC,
    load::SPEC,
    disk::SPEC,
    network::SPEC,
    pressure::SPEC,
    snmp::SPEC,
    counter_tables::NETSTAT_SPEC,
    counter_tables::SOCKETS_SPEC,
    softnet::SPEC,
    conntrack::SPEC,
    buddy::SPEC,
    slab::SPEC,
    schedstat::SPEC,
    softirqs::SPEC,
    interrupts::SPEC,
    cpufreq::SPEC,
    thermal::SPEC,
    hwmon::SPEC,
    power::SPEC,
    ethtool::SPEC,
    numa::SPEC,
    hugepages::SPEC,
    process::SPEC,
    cgroup::SPEC,
    filesystem::SPEC,
    file::SPEC,
    command::SPEC,
    perf::SPEC,
    gpu::SPEC,
];

/// Reason for which a source cannot be opened on this host.
#[derive(Debug, thiserror::Error)]
#[error("{}{file}{}{error}{hint}", if file.is_empty() { "" } else { "/" }, if file.is_empty() { "" } else { ": " })]
pub struct Unavailable {
    /// Path of the file without the leading slash; empty if the error itself names it.
    pub file: &'static str,
    /// The kernel's error.
    #[source]
    pub error: io::Error,
    /// Usual cause or remedy; may be empty.
    pub hint: &'static str,
}

impl Unavailable {
    /// Wraps an error that needs neither file nor hint.
    fn of(error: io::Error) -> Self {
        Self { file: "", error, hint: "" }
    }
}

/// Message of `expect` for flatcap's own schemas and paths: tests open every source.
const OWN_SCHEMA: &str = "flatcap's own schema and paths";

/// Opens a file and reads it once: some files can be opened but not read.
fn host_file(host: &HostRoot, file: &'static str, hint: &'static str) -> Result<HostFile, Unavailable> {
    let unavailable = |error| Unavailable { file, error, hint };
    let mut opened = host.open(file).map_err(unavailable)?;
    opened.read().map_err(unavailable)?;
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use flatbuffers::FlatBufferBuilder;

    use super::*;
    use crate::config::Config;
    use crate::sampling::{Incomplete, Sampler};

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
        let config = config.sources.iter().find(|source| source.name.as_str() == entry.name).unwrap();
        (entry.open)(&OpenContext { host: &HostRoot::new(root), config })
    }

    /// Returns the suffix that makes the name of an instance.
    fn instance_suffix(entry: &SourceSpec) -> &'static str {
        if entry.files.is_empty() { ".own" } else { "" }
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

    // Proves that names in the catalog are distinct and that each schema has its root.
    #[test]
    fn the_catalog_is_sound() {
        for (at, entry) in CATALOG.iter().enumerate() {
            assert!(CATALOG.iter().skip(at + 1).all(|other| other.name != entry.name));
            let schema = flatbuffers_reflection::reflection::root_as_schema(entry.schema).unwrap();
            assert_eq!(schema.root_table().unwrap().name(), entry.root);
            let is_single = Config::default().sources.iter().any(|source| source.name.as_str() == entry.name);
            assert_eq!(
                !entry.files.is_empty(),
                is_single,
                "only instances, which read what the configuration names, have no files"
            );
        }
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
