//! The static description of a source, and the function that opens it.

use std::fmt;
use std::io;
use std::time::Duration;

use flatcap_os::host::{HostFile, HostRoot};

use super::name_filter::NameFilter;
use super::sampler::OpenedSampler;
use super::source_settings::SourceSettings;

/// Everything that is known of a source before it is opened. Each source states it in its own file;
/// configuration, documents and commands take it from there.
pub struct SourceSpec {
    /// Name of the source, which is also the name of its table in the configuration.
    pub name: &'static str,
    /// The values that it measures: one sentence for config/flatcap.toml.
    pub about: &'static str,
    /// Full name of its payload's root table.
    pub root: &'static str,
    /// Binary schema of its payload.
    pub schema: &'static [u8],
    /// Files of the host that it reads, without the leading slash; empty for instances, which read
    /// files from the configuration.
    pub files: &'static [&'static str],
    /// Default time from one sample to the next. The source has a comment with the reason.
    pub period: Duration,
    /// Whether it is read by default: for sources that are useful on any host at a small cost, and
    /// for instances, which exist only if configured.
    pub is_on_by_default: bool,
    /// Whether something other than the kernel may delay a sample: a server, a device's firmware, a
    /// bus. The source then belongs to group `blocking`. For example, the temperature sensor of a
    /// hanging disk queries that disk.
    pub may_block: bool,
    /// Interval at which the kernel updates the values: a shorter period gains nothing.
    pub refresh: &'static str,
    /// The things that `include` and `exclude` match; empty if there is nothing to choose.
    pub selects: &'static str,
    /// Capabilities that it needs for complete samples.
    pub needs: &'static [&'static str],
    /// Usual cause or remedy if a host lacks it, which ends the error; may be empty.
    pub hint: &'static str,
    /// The keys of its table in addition to the keys of all sources.
    pub keys: OwnKeys,
    /// The function that opens it.
    pub opener: SourceOpener,
}

/// The keys of a source's table in addition to the keys of all sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnKeys {
    /// The table has no keys of its own.
    None,
    /// Shape, size and seed of generated values.
    Synthetic,
    /// Users, control groups and ranks of processes.
    Process,
    /// Depth of the tree.
    Cgroup,
    /// Events and processes to count.
    Perf,
    /// Context switches and wakeups, and where they are recorded.
    Sched,
    /// The sampling interval of call chains, and where they are recorded.
    Profile,
    /// The store in which batches of events are recorded.
    Batches,
    /// The file of an instance, and the format of its values.
    File,
    /// The program of an instance, and the format of its values.
    Command,
}

/// Opens a source, and reads it once to prove that it can be read.
pub type OpenSource = fn(&OpenContext<'_>) -> Result<OpenedSampler, Unavailable>;

/// The function that opens a source, by the origin of its values.
#[derive(Debug, Clone, Copy)]
pub enum SourceOpener {
    /// From the host.
    Host(OpenSource),
    /// From a generator.
    Synthetic(OpenSource),
    /// From the recorder's own counters, which exist once all other sources are open: the daemon
    /// opens this one.
    Recorder,
}

impl SourceSpec {
    /// The values that most sources share. Each states only its differences and what it measures.
    pub(super) const DEFAULTS: Self = Self {
        name: "",
        about: "",
        root: "",
        schema: &[],
        files: &[],
        period: Duration::ZERO,
        is_on_by_default: false,
        may_block: false,
        refresh: "",
        selects: "",
        needs: &[],
        hint: "",
        keys: OwnKeys::None,
        opener: SourceOpener::Recorder,
    };

    /// Whether the configuration defines the instances of this source: `[source.file.NAME]`.
    pub fn has_instances(&self) -> bool {
        matches!(self.keys, OwnKeys::File | OwnKeys::Command)
    }

    /// Whether `include` and `exclude` have anything to select.
    pub fn has_filters(&self) -> bool {
        !self.selects.is_empty()
    }

    /// Opens the source.
    ///
    /// # Errors
    /// The reason why this host lacks the source. Always an error for a source of the recorder's
    /// own counters.
    #[cfg(any(test, feature = "testing"))]
    pub fn open(&self, context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
        match self.opener {
            SourceOpener::Host(open) | SourceOpener::Synthetic(open) => open(context),
            SourceOpener::Recorder => Err(Unavailable::of(io::ErrorKind::Unsupported.into())),
        }
    }
}

// A name identifies a source, as a test of the list of sources proves.
impl PartialEq for SourceSpec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SourceSpec {}

impl fmt::Debug for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The schema alone has thousands of bytes.
        f.debug_struct("SourceSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Arguments for opening a source.
#[derive(Debug, Clone, Copy)]
pub struct OpenContext<'a> {
    /// The host's file trees.
    pub host: &'a HostRoot,
    /// The settings of the source.
    pub settings: SourceSettings<'a>,
}

impl OpenContext<'_> {
    /// Returns the selection of things to record.
    pub fn selection(&self) -> NameFilter {
        self.settings.selection()
    }
}

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
    pub(super) fn of(error: io::Error) -> Self {
        Self { file: "", error, hint: "" }
    }
}

/// Message of `expect` for flatcap's own schemas and paths: tests open every source.
pub(super) const OWN_SCHEMA: &str = "flatcap's own schema and paths";

/// Opens a file and reads it once: some files can be opened but not read.
pub(super) fn host_file(
    host: &HostRoot,
    file: &'static str,
    hint: &'static str,
) -> Result<HostFile, Unavailable> {
    let unavailable = |error| Unavailable { file, error, hint };
    let mut opened = host.open(file).map_err(unavailable)?;
    opened.read().map_err(unavailable)?;
    Ok(opened)
}
