//! The static description of a source, and the function that opens it.

use std::fmt;
use std::io;
use std::time::Duration;

use flatcap_os::host::{HostFile, HostRoot};

use super::name_filter::NameFilter;
use super::sampler::OpenedSampler;
use super::source_settings::SourceSettings;

/// The static properties of a source, which are known before the source is opened. The Rust file of
/// each source contains its description. The configuration, the documents and the commands use
/// these descriptions.
pub struct SourceSpec {
    /// Name of the source, which is also the name of its table in the configuration.
    pub name: &'static str,
    /// One sentence about the values that the source measures, which appears in
    /// config/flatcap.toml.
    pub about: &'static str,
    /// Full name of the root table of the source's payload.
    pub root: &'static str,
    /// Binary schema of the source's payload.
    pub schema: &'static [u8],
    /// Paths of the host's files that the source reads, without the leading slash. Empty for
    /// instances, because their files are specified in the configuration.
    pub files: &'static [&'static str],
    /// Default time between two samples. A comment in the file of each source explains the default.
    pub period: Duration,
    /// Whether the source is read by default. This is true for sources that are useful on any host
    /// at a small cost, and for instances, which exist only if configured.
    pub is_on_by_default: bool,
    /// Whether anything other than the kernel may delay a sample, such as a server, the firmware of
    /// a device, or a bus. The source then belongs to group `blocking`. For example, a read of a
    /// disk's temperature sensor queries the disk, which may hang.
    pub may_block: bool,
    /// Interval at which the kernel updates the values. A period that is shorter than this interval
    /// gives no additional information.
    pub refresh: &'static str,
    /// The items that `include` and `exclude` match. Empty if the source has no items to select.
    pub selects: &'static str,
    /// Capabilities that the source needs for complete samples.
    pub needs: &'static [&'static str],
    /// Usual cause or remedy if a host lacks the source, which is appended to the error. May be
    /// empty.
    pub hint: &'static str,
    /// The keys of the source's configuration table that are specific to this source.
    pub keys: OwnKeys,
    /// The function that opens the source.
    pub opener: SourceOpener,
}

/// The keys of a source's configuration table that are specific to the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnKeys {
    /// The table has only the keys that all sources have.
    None,
    /// Keys for shape, size and seed of generated values.
    Synthetic,
    /// Keys for users, control groups and ranks of processes.
    Process,
    /// Key for the depth of the tree.
    Cgroup,
    /// Keys for the events and processes to count.
    Perf,
    /// Keys for context switches and wakeups, and for the storage in which they are recorded.
    Sched,
    /// Keys for the sampling frequency of call chains, and for the storage in which they are
    /// recorded.
    Profile,
    /// Key for the storage in which batches of events are recorded.
    Batches,
    /// Keys for the file of an instance, and the format of its values.
    File,
    /// Keys for the program of an instance, and the format of its values.
    Command,
}

/// The type of a function that opens a source, and reads the source one time to prove that it can
/// be read.
pub type OpenSource = fn(&OpenContext<'_>) -> Result<OpenedSampler, Unavailable>;

/// The function that opens a source. The variants show the origin of the source's values.
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
    /// The values that most source descriptions share. The description of each source states only
    /// the values that differ from these defaults, and the values that have no default.
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

    /// Returns whether the source has items that `include` and `exclude` can select.
    pub fn has_filters(&self) -> bool {
        !self.selects.is_empty()
    }

    /// Opens the source.
    ///
    /// # Errors
    /// Returns the reason why this host lacks the source. For a source of the recorder's own
    /// counters, this function always returns an error.
    #[cfg(any(test, feature = "testing"))]
    pub fn open(&self, context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
        match self.opener {
            SourceOpener::Host(open) | SourceOpener::Synthetic(open) => open(context),
            SourceOpener::Recorder => Err(Unavailable::of(io::ErrorKind::Unsupported.into())),
        }
    }
}

// The name identifies a source uniquely. A test of the list of sources proves this.
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
    /// The file trees of the host.
    pub host: &'a HostRoot,
    /// The settings of the source.
    pub settings: SourceSettings<'a>,
}

impl OpenContext<'_> {
    /// Returns the selection of items to record.
    pub fn selection(&self) -> NameFilter {
        self.settings.selection()
    }
}

/// Reason for which a source cannot be opened on this host.
#[derive(Debug, thiserror::Error)]
#[error("{}{file}{}{error}{hint}", if file.is_empty() { "" } else { "/" }, if file.is_empty() { "" } else { ": " })]
pub struct Unavailable {
    /// Path of the file without the leading slash. Empty if the error already names the file.
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

/// Message of `expect` calls for flatcap's own schemas and paths. These schemas and paths are
/// valid, because tests open every source.
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
