//! The static description of a source, and the function that opens it.

use std::fmt;
use std::io;
use std::time::Duration;

use flatcap_os::host::{HostFile, HostRoot};

use super::name_filter::NameFilter;
use super::sampler::OpenedSampler;
use super::source_settings::SourceSettings;

/// Everything that is known of a source before it is opened. The Rust file of each source contains
/// its description. The configuration, the documents and the commands use these descriptions.
pub struct SourceSpec {
    /// Name of the source, which is also the name of its table in the configuration.
    pub name: &'static str,
    /// One sentence about the values that the source measures, for config/flatcap.toml.
    pub about: &'static str,
    /// Full name of its payload's root table.
    pub root: &'static str,
    /// Binary schema of its payload.
    pub schema: &'static [u8],
    /// Paths of the host's files that the source reads, without the leading slash. Empty for
    /// instances, because the configuration names their files.
    pub files: &'static [&'static str],
    /// Default time from one sample to the next. Each source explains its default in a comment.
    pub period: Duration,
    /// Whether the source is read by default. This is true for sources that are useful on any host
    /// at a small cost, and for instances, which exist only if configured.
    pub is_on_by_default: bool,
    /// Whether anything besides the kernel may delay a sample, such as a server, a device's
    /// firmware or a bus. The source then belongs to group `blocking`. For example, a read of a
    /// disk's temperature sensor queries the disk, which may hang.
    pub may_block: bool,
    /// Interval at which the kernel updates the values. A period that is shorter than this interval
    /// yields no more information.
    pub refresh: &'static str,
    /// The things that `include` and `exclude` match. Empty if there is nothing to select.
    pub selects: &'static str,
    /// Capabilities that the source needs for complete samples.
    pub needs: &'static [&'static str],
    /// Usual cause or remedy if a host lacks the source, appended to the error. May be empty.
    pub hint: &'static str,
    /// The keys of the source's table that not all sources have.
    pub keys: OwnKeys,
    /// The function that opens the source.
    pub opener: SourceOpener,
}

/// The keys of a source's table that not all sources have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnKeys {
    /// The table has no keys of its own.
    None,
    /// Keys for shape, size and seed of generated values.
    Synthetic,
    /// Keys for users, control groups and ranks of processes.
    Process,
    /// Key for the depth of the tree.
    Cgroup,
    /// Keys for the events and processes to count.
    Perf,
    /// Keys for context switches and wakeups, and the place where they are recorded.
    Sched,
    /// Keys for the sampling frequency of call chains, and the place where they are recorded.
    Profile,
    /// Key for the store in which batches of events are recorded.
    Batches,
    /// Keys for the file of an instance, and the format of its values.
    File,
    /// Keys for the program of an instance, and the format of its values.
    Command,
}

/// Opens a source, and reads it one time to prove that the source can be read.
pub type OpenSource = fn(&OpenContext<'_>) -> Result<OpenedSampler, Unavailable>;

/// The function that opens a source, by the origin of its values.
#[derive(Debug, Clone, Copy)]
pub enum SourceOpener {
    /// Opens a source whose values come from the host.
    Host(OpenSource),
    /// Opens a source whose values come from a generator.
    Synthetic(OpenSource),
    /// The values come from the recorder's own counters. The daemon opens this source, because
    /// these counters exist only after all other sources are open.
    Recorder,
}

impl SourceSpec {
    /// The values that most sources share. Each source states only the values that differ, and what
    /// it measures.
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

    /// Returns whether the configuration defines the instances of this source, as in
    /// `[source.file.NAME]`.
    pub fn has_instances(&self) -> bool {
        matches!(self.keys, OwnKeys::File | OwnKeys::Command)
    }

    /// Returns whether `include` and `exclude` have anything to select.
    pub fn has_filters(&self) -> bool {
        !self.selects.is_empty()
    }

    /// Opens the source.
    ///
    /// # Errors
    /// Returns the reason why this host lacks the source. For a source of the recorder's own
    /// counters, always returns an error.
    #[cfg(any(test, feature = "testing"))]
    pub fn open(&self, context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
        match self.opener {
            SourceOpener::Host(open) | SourceOpener::Synthetic(open) => open(context),
            SourceOpener::Recorder => Err(Unavailable::of(io::ErrorKind::Unsupported.into())),
        }
    }
}

// A name identifies a source uniquely, as a test of the list of sources proves.
impl PartialEq for SourceSpec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SourceSpec {}

impl fmt::Debug for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the name is shown, because the schema alone has thousands of bytes.
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
    /// Path of the file without the leading slash. Empty if the error itself names the file.
    pub file: &'static str,
    /// The kernel's error.
    #[source]
    pub error: io::Error,
    /// Usual cause or remedy. May be empty.
    pub hint: &'static str,
}

impl Unavailable {
    /// Wraps an error that needs neither a file nor a hint.
    pub(super) fn of(error: io::Error) -> Self {
        Self { file: "", error, hint: "" }
    }
}

/// Message of `expect` for flatcap's own schemas and paths. They are valid, because tests open
/// every source.
pub(super) const OWN_SCHEMA: &str = "flatcap's own schema and paths";

/// Opens a file and reads it one time, because some files can be opened but not read.
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
