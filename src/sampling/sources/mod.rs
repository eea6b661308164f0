//! One file a source: what it reads, how it parses, how it fills its schema (schemas/host/).

use std::io;

use super::{Opened, Selection};
use crate::config::Source;
use crate::os::host::{HostFile, HostRoot};

pub mod agent;
mod buddy;
mod cgroup;
mod command;
mod conntrack;
mod counters;
mod cpu;
mod cpufreq;
mod cursor;
mod devices;
mod disk;
mod ethtool;
mod file;
mod filesystem;
mod folders;
mod gpu;
mod hugepages;
mod hwmon;
mod interrupts;
mod keyed;
mod load;
mod network;
mod numa;
mod perf;
mod power;
mod pressure;
mod process;
mod schedstat;
mod slab;
mod snmp;
mod softirqs;
mod softnet;
pub mod synthetic;
mod text;
mod thermal;
mod threads;
mod values;

/// What is known of a source before it is opened.
#[derive(Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Full name of its payload's root table.
    pub root: &'static str,
    /// Binary schema of its payload.
    pub schema: &'static [u8],
    /// What it reads, without the leading slash; nothing for instances, which read what the configuration names.
    pub files: &'static [&'static str],
    /// How often the kernel changes it: what a shorter period cannot beat.
    pub refresh: &'static str,
    /// What `include` and `exclude` speak of; empty where there is nothing to choose from.
    pub selects: &'static str,
    /// Capabilities it needs.
    pub needs: &'static [&'static str],
    /// Opens it, and reads once to see that it can be read.
    pub open: fn(&Opening<'_>) -> Result<Opened, Unavailable>,
}

/// What a source is opened with.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// Where the host's trees are.
    pub host: &'a HostRoot,
    /// How it is configured.
    pub config: &'a Source,
}

impl Opening<'_> {
    /// Which of its things are recorded.
    pub fn selection(&self) -> Selection {
        Selection::of(self.config)
    }
}

/// All sources that read the host.
pub const CATALOG: &[Entry] = &[
    cpu::ENTRY,
    keyed::MEMORY,
    keyed::VMSTAT_ENTRY,
    load::ENTRY,
    disk::ENTRY,
    network::ENTRY,
    pressure::ENTRY,
    snmp::ENTRY,
    keyed::NETSTAT_ENTRY,
    keyed::SOCKETS,
    softnet::ENTRY,
    conntrack::ENTRY,
    buddy::ENTRY,
    slab::ENTRY,
    schedstat::ENTRY,
    softirqs::ENTRY,
    interrupts::ENTRY,
    cpufreq::ENTRY,
    thermal::ENTRY,
    hwmon::ENTRY,
    power::ENTRY,
    ethtool::ENTRY,
    numa::ENTRY,
    hugepages::ENTRY,
    process::ENTRY,
    cgroup::ENTRY,
    filesystem::ENTRY,
    file::ENTRY,
    command::ENTRY,
    perf::ENTRY,
    gpu::ENTRY,
];

/// What this host lacks for a source.
#[derive(Debug, thiserror::Error)]
#[error("{}{file}{}{error}{hint}", if file.is_empty() { "" } else { "/" }, if file.is_empty() { "" } else { ": " })]
pub struct Unavailable {
    /// The file's path without the leading slash; empty where the error itself names it.
    pub file: &'static str,
    /// What the kernel said.
    #[source]
    pub error: io::Error,
    /// What that usually means; may be empty.
    pub hint: &'static str,
}

impl Unavailable {
    /// Of an error that says everything.
    fn of(error: io::Error) -> Self {
        Self { file: "", error, hint: "" }
    }
}

/// What our own schemas and paths are; tests open every source.
const OWN: &str = "our own schema and paths";

/// Opens a file and reads it once: some files open and then refuse to be read.
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
    use crate::sampling::{Sampler, Shortfall};

    /// The payload of a source of this host; it must be there and whole.
    pub(super) fn sampled(entry: &Entry) -> Vec<u8> {
        let (payload, shortfall) = sampled_under(entry, "", Path::new("/"));
        assert_eq!(shortfall, Shortfall::NONE, "{}", entry.name);
        payload
    }

    /// The payload of a source of the host whose trees lie under `root`, and what it lacks. `keys` are lines of the
    /// source's table in a configuration.
    pub(super) fn sampled_under(entry: &Entry, keys: &str, root: &Path) -> (Vec<u8>, Shortfall) {
        let mut sampler = entered(entry, keys, root).unwrap();
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        sampler.read().unwrap();
        sampler.payload(0, &mut builder)
    }

    /// A source whose payloads are built, under another root, with these keys in its table.
    pub(super) fn opened(entry: &Entry, keys: &str, root: &Path) -> Result<Box<dyn Sampler>, Unavailable> {
        entered(entry, keys, root).map(|opened| match opened {
            Opened::Built(sampler) => sampler,
            Opened::Fixed(_) => panic!("{} has a model", entry.name),
        })
    }

    /// A source under another root, with these keys in its table.
    pub(super) fn entered(entry: &Entry, keys: &str, root: &Path) -> Result<Opened, Unavailable> {
        let config =
            Config::parse("test.toml", &format!("[source.{}{}]\n{keys}\n", entry.name, instance(entry)))
                .unwrap();
        let config = config.sources.iter().find(|source| source.name.as_str() == entry.name).unwrap();
        (entry.open)(&Opening { host: &HostRoot::new(root), config })
    }

    /// What stands behind the name of a source that is there only by name.
    fn instance(entry: &Entry) -> &'static str {
        if entry.files.is_empty() { ".own" } else { "" }
    }

    /// A file of a captured host, where the recordings are at hand.
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
            println!("passed over: no captured {path} in {}", archive.display());
        }
        unpacked.map(|output| output.stdout)
    }

    /// The trees of a captured host below `prefix`, such as `sys/class/hwmon`, unpacked with their links: `archive` is `procfs` or
    /// `node-exporter`.
    pub(super) fn captured(archive: &str, prefixes: &[&str]) -> Option<tempfile::TempDir> {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../shared/data/hosts/{archive}-fixtures.tar.gz"));
        if !archive.exists() {
            println!("passed over: no captured host in {}", archive.display());
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut tar = std::process::Command::new("tar");
        tar.arg("-xzf").arg(&archive).arg("-C").arg(folder.path());
        let status = tar.args(prefixes.iter().map(|prefix| format!("./{prefix}"))).status().unwrap();
        assert!(status.success(), "{prefixes:?} of {}", archive.display());
        Some(folder)
    }

    /// A host made of these files.
    pub(super) fn planted(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        folder
    }

    /// Moves a part of a planted host away, or back.
    #[allow(clippy::disallowed_methods, reason = "a tree of the test, not the recorder's")]
    pub(super) fn moved(from: &Path, to: &Path) {
        std::fs::rename(from, to).unwrap();
    }

    /// A text of a fixed place.
    pub(super) fn shown(place: impl IntoIterator<Item = u8>) -> String {
        place.into_iter().take_while(|byte| *byte != 0).map(char::from).collect()
    }

    /// Every cut and every replaced byte: no panic, and no cut is called whole. The text itself is.
    pub(super) fn assert_composed(text: &[u8], mut is_whole: impl FnMut(&[u8]) -> bool) {
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

    // Goal: names in the catalog are distinct and each schema has its root. Method: all entries.
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
                "what an instance reads is for the configuration to say"
            );
        }
    }

    // Goal: a file that is not there is named, with what it means. Method: an empty root.
    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for entry in CATALOG.iter().filter(|entry| !entry.files.is_empty()) {
            let error = entered(entry, "", folder.path()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("/{}: No such file", entry.files[0])), "{error}");
        }
    }
}
