//! From configured sources to opened ones: which this host has, and what each descriptor says.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::plan::{count, nanoseconds};
use crate::config::{Config, GroupName, RUN_SOURCES_MAX, Shape, Source, SourceName};
use crate::metrics::{GroupMetrics, Metrics, SourceMetrics};
use crate::os::host::{HostFile, HostRoot};
use crate::sampling::Opened;
use crate::sampling::sources::agent::{self, AgentSampler};
use crate::sampling::sources::synthetic::{self, Synthetic};
use crate::sampling::sources::{CATALOG, Opening};
use crate::segment::{SourceInfo, SourceKind};

/// A configured source that this host has.
#[derive(Debug)]
pub struct OpenedSource {
    /// How it is configured.
    pub config: Source,
    /// Its descriptor; the id is its place among the opened sources.
    pub info: SourceInfo,
    /// Its way from the kernel to a payload.
    pub sampler: Opened,
}

/// A configured source that this host lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedSource {
    /// Its full name.
    pub name: String,
    /// What is missing.
    pub reason: String,
}

/// Why sampling cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The host's root is not there.
    #[error("host_root = \"{}\": {error}; write the directory that has the host's proc and sys", path.display())]
    NoHost {
        /// As configured.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// A source that was marked required, or named on the command line, is not there.
    #[error("source {name}: {reason}; it is required: leave it out, or set required = false")]
    Required {
        /// Which one, by its full name.
        name: String,
        /// What is missing.
        reason: String,
    },
    /// None of the configured sources is there.
    #[error("this host has none of the configured sources; the last one: {name}: {reason}")]
    NoneLeft {
        /// The last one.
        name: String,
        /// What is missing of it.
        reason: String,
    },
}

/// A source that is there, before it is known which id it gets.
pub(super) struct Candidate {
    pub(super) config: Source,
    pub(super) root: &'static str,
    pub(super) schema: &'static [u8],
    kind: SourceKind,
    origin: Origin,
}

enum Origin {
    Sampler(Opened),
    /// `self` samples the counters of all sources, which exist once it is known which those are.
    Itself(HostFile),
}

impl Candidate {
    /// Its descriptor under this id.
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

    /// The source under this id; `metrics` are those of the run.
    pub(super) fn open_as(self, id: u16, metrics: &Arc<Metrics>) -> OpenedSource {
        let info = self.info(id);
        let sampler = match self.origin {
            Origin::Sampler(sampler) => sampler,
            Origin::Itself(stat) => Opened::built(AgentSampler::new(stat, Arc::clone(metrics))),
        };
        OpenedSource { config: self.config, info, sampler }
    }
}

/// Counters for a source, all zero.
pub(super) fn counters(source: &Source) -> SourceMetrics {
    SourceMetrics::new(source.full_name().into_owned(), nanoseconds(source.period))
}

/// The configured sources, as far as this host has them.
#[derive(Debug)]
pub struct OpenedSources {
    /// Those it has, in the order of their ids.
    pub sources: Vec<OpenedSource>,
    /// Those it lacks.
    pub skipped: Vec<SkippedSource>,
    /// The counters of those it has.
    pub metrics: Arc<Metrics>,
}

/// Opens every enabled source that this host has, and makes the counters for them.
///
/// # Errors
/// `NoHost`, `Required`, `NoneLeft`.
pub fn open_sources(config: &Config) -> Result<OpenedSources, SourceError> {
    let host = HostRoot::new(&config.agent.host_root);
    host.look().map_err(|error| SourceError::NoHost { path: config.agent.host_root.clone(), error })?;
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

/// Opens one source; the error says what this host lacks.
pub(super) fn open(source: &Source, host: &HostRoot) -> Result<Candidate, String> {
    let candidate =
        |root, schema, kind, origin| Candidate { config: source.clone(), root, schema, kind, origin };
    if source.name == SourceName::Itself {
        let stat = AgentSampler::open_stat().map_err(|error| format!("/proc/self/stat: {error}"))?;
        return Ok(candidate(agent::ROOT, agent::SCHEMA, SourceKind::Agent, Origin::Itself(stat)));
    }
    if let Some(settings) = source.synthetic {
        let (root, sampler) = match settings.shape {
            Shape::Point => (synthetic::POINT_ROOT, Synthetic::point(settings.seed)),
            Shape::Wide { fields, payload_bytes } => {
                (synthetic::WIDE_ROOT, Synthetic::wide(settings.seed, fields, payload_bytes))
            }
        };
        let origin = Origin::Sampler(Opened::fixed(sampler));
        return Ok(candidate(root, synthetic::SCHEMA, SourceKind::Synthetic, origin));
    }
    let entry = CATALOG.iter().find(|entry| entry.name == source.name.as_str());
    let entry = entry.ok_or_else(|| "not in this build".to_owned())?;
    let sampler = (entry.open)(&Opening { host, config: source }).map_err(|error| error.to_string())?;
    Ok(candidate(entry.root, entry.schema, SourceKind::Host, Origin::Sampler(sampler)))
}
