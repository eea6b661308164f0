//! Every room's errors, joined for the one place that prints them.

use std::io;
use std::path::PathBuf;

use super::Outcome;
use crate::config::ConfigErrors;
use crate::control::ClientError;
use crate::daemon::{DaemonError, SourceError};
use crate::export::ExportError;
use crate::import::ImportError;
use crate::replay::TimeError;
use crate::segment::SegmentError;

/// Why a verb could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// Arguments that parse but make no sense together.
    #[error("{0}")]
    Usage(String),
    /// The configuration.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// The configuration, and the last good one that should have taken its place.
    #[error("{errors}\nthere is no last good configuration to record by instead: {unusable}")]
    NoLastGood {
        /// What is wrong with the configuration.
        errors: ConfigErrors,
        /// What is wrong with the last good one, mostly that it is not there yet.
        unusable: ConfigErrors,
    },
    /// A point in time.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// A run.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A file.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A foreign recording.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// Foreign files.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The running agent.
    #[error(transparent)]
    Control(#[from] ClientError),
    /// What it says of itself.
    #[error("the agent's answer makes no sense: {0}; is it of another version?")]
    Status(String),
    /// Paths without a single segment.
    #[error("no segments in {}", list(.0))]
    NoSegments(Vec<PathBuf>),
    /// A directory whose segments are not to be changed now.
    #[error(
        "a recorder is at work in {}: it seals closed segments by itself ([seal] in its configuration); stop it, or copy them elsewhere",
        .0.display()
    )]
    SealsItself(PathBuf),
    /// Standard output.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// A manual page.
    #[error("cannot write {}: {error}; name a directory that can be written", path.display())]
    Manual {
        /// The directory or the page.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// Where a replay goes.
    #[error("cannot send to {to}: {error}")]
    Send {
        /// Where.
        to: String,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
}

impl CliError {
    /// The exit status it calls for.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Usage(_)
            | Self::Config(_)
            | Self::NoLastGood { .. }
            | Self::Time(_)
            | Self::Import(ImportError::Options(_)) => Outcome::Usage,
            _ => Outcome::Failed,
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
