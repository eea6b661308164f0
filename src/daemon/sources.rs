//! Opens the configured sources. Finds out which of them this host has, and creates their
//! descriptors.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use flatcap_format::segment::{SourceInfo, SourceKind};
use flatcap_metrics::{GroupMetrics, Metrics, SourceMetrics};
use flatcap_os::host::{HostFile, HostRoot};
use flatcap_sampling::sources::self_source::SelfSampler;
use flatcap_sampling::sources::synthetic;
use flatcap_sampling::{GroupName, OpenContext, OpenedSampler, SourceOpener, Unavailable};

use super::memory_budget::RUN_SOURCES_MAX;
use super::settings::{count, nanoseconds};
use crate::config::{Config, SourceConfig};

/// A configured source that this host has.
#[derive(Debug)]
pub struct OpenedSource {
    /// The source's configuration.
    pub config: SourceConfig,
    /// The source's descriptor. Its id is the index of the source among the opened sources.
    pub info: SourceInfo,
    /// Reads the source and builds its payloads.
    pub sampler: OpenedSampler,
}

/// A configured source that this host lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedSource {
    /// The source's full name.
    pub name: String,
    /// The reason why the source is skipped, that is, what is missing.
    pub reason: String,
}

/// Errors that prevent sampling.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The directory that is configured as the root of the host does not exist.
    #[error("host_root = \"{}\": {error}; set it to the directory that contains the host's proc and sys", path.display())]
    NoHost {
        /// The configured path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// A source that is marked as required, or named on the command line, is missing.
    #[error("source {name}: {reason}; this source is required: remove it, or set required = false")]
    Required {
        /// The source's full name.
        name: String,
        /// The reason why the source cannot be opened, that is, what is missing.
        reason: String,
    },
    /// The host has none of the configured sources.
    #[error("this host has none of the configured sources; the last one: {name}: {reason}")]
    NoneLeft {
        /// The last source that was tried.
        name: String,
        /// The reason why that source cannot be opened, that is, what is missing.
        reason: String,
    },
}

/// A source that the host has, before an id is assigned to it.
pub(super) struct Candidate {
    pub(super) config: SourceConfig,
    pub(super) root: &'static str,
    pub(super) schema: &'static [u8],
    kind: SourceKind,
    origin: SamplerOrigin,
}

enum SamplerOrigin {
    Sampler(OpenedSampler),
    /// The source `self` samples the counters of all sources. These counters are created after all
    /// sources are opened.
    Itself(HostFile),
}

impl Candidate {
    /// Returns the descriptor of the source with this id.
    pub(super) fn info(&self, id: u16) -> SourceInfo {
        SourceInfo {
            id,
            name: self.config.full_name().into_owned(),
            labels: Vec::new(),
            kind: self.kind,
            period_ns: nanoseconds(self.config.period),
            root: self.root.to_owned(),
            schema: self.schema.to_vec(),
            next_seq: 0,
        }
    }

    /// Opens the source under this id. `metrics` contains the metrics of the run.
    pub(super) fn open_as(self, id: u16, metrics: &Arc<Metrics>) -> OpenedSource {
        let info = self.info(id);
        let sampler = match self.origin {
            SamplerOrigin::Sampler(sampler) => sampler,
            SamplerOrigin::Itself(stat) => OpenedSampler::built(SelfSampler::new(stat, Arc::clone(metrics))),
        };
        OpenedSource { config: self.config, info, sampler }
    }
}

/// Creates the counters of a source.
pub(super) fn counters(source: &SourceConfig) -> SourceMetrics {
    SourceMetrics::new(source.full_name().into_owned(), nanoseconds(source.period))
}

/// The configured sources, opened or skipped.
#[derive(Debug)]
pub struct OpenedSources {
    /// The sources that this host has, in the order of their ids.
    pub sources: Vec<OpenedSource>,
    /// The sources that this host lacks.
    pub skipped: Vec<SkippedSource>,
    /// The counters of the opened sources.
    pub metrics: Arc<Metrics>,
}

/// Opens every enabled source that this host has, and creates its counters.
///
/// # Errors
/// The error is `NoHost`, `Required` or `NoneLeft`.
pub fn open_sources(config: &Config) -> Result<OpenedSources, SourceError> {
    let host = HostRoot::new(&config.recorder.host_root);
    host.check().map_err(|error| SourceError::NoHost { path: config.recorder.host_root.clone(), error })?;
    let mut candidates = Vec::new();
    let mut skipped = Vec::new();
    for source in config.enabled_sources() {
        match open(source, &host) {
            Ok(candidate) => candidates.push(candidate),
            Err(reason) if source.required => {
                return Err(SourceError::Required { name: source.full_name().into_owned(), reason });
            }
            Err(reason) => skipped.push(SkippedSource { name: source.full_name().into_owned(), reason }),
        }
    }
    if candidates.is_empty() {
        let (name, reason) = skipped.pop().map(|last| (last.name, last.reason)).unwrap_or_default();
        return Err(SourceError::NoneLeft { name, reason });
    }
    let groups = (0..).zip(GroupName::ALL);
    let metrics = Arc::new(Metrics::new(
        candidates.iter().map(|candidate| counters(&candidate.config)),
        count(RUN_SOURCES_MAX),
        groups.map(|(number, group)| Arc::new(GroupMetrics::new(group.as_str(), number))).collect(),
    ));
    let sources = candidates.into_iter().zip(0..).map(|(candidate, id)| candidate.open_as(id, &metrics));
    let sources = sources.collect();
    Ok(OpenedSources { sources, skipped, metrics })
}

/// Opens one source. The error names what this host lacks.
pub(super) fn open(source: &SourceConfig, host: &HostRoot) -> Result<Candidate, String> {
    let context = OpenContext { host, settings: source.settings() };
    let (kind, origin) = match source.spec.opener {
        SourceOpener::Recorder => {
            let stat = SelfSampler::open_stat().map_err(|error| format!("/proc/self/stat: {error}"))?;
            (SourceKind::Agent, SamplerOrigin::Itself(stat))
        }
        SourceOpener::Synthetic(open) => (SourceKind::Synthetic, opened(open(&context))?),
        SourceOpener::Host(open) => (SourceKind::Host, opened(open(&context))?),
    };
    let root = source.synthetic.map_or(source.spec.root, |settings| synthetic::root(settings.shape));
    Ok(Candidate { config: source.clone(), root, schema: source.spec.schema, kind, origin })
}

fn opened(result: Result<OpenedSampler, Unavailable>) -> Result<SamplerOrigin, String> {
    result.map(SamplerOrigin::Sampler).map_err(|error| error.to_string())
}
