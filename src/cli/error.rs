//! The errors of all modules. One function prints them.

use std::io;
use std::path::PathBuf;

use flatcap_control::ClientError;
use flatcap_explain::ExplainError;
use flatcap_format::segment::SegmentError;
use flatcap_query::QueryError;

use super::ExitStatus;
use crate::config::ConfigErrors;
use crate::daemon::{DaemonError, SourceError};
use crate::export::ExportError;
#[cfg(feature = "view")]
use flatcap_view::ViewError;

/// The reason why a verb failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// Arguments that are invalid or conflict.
    #[error("{0}")]
    Usage(String),
    /// The configuration is invalid.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// The configuration is unusable, and so is the last good configuration that should replace it.
    #[error("{errors}\nthere is no last good configuration to record with instead: {unusable}")]
    NoLastGood {
        /// The errors of the configuration.
        errors: ConfigErrors,
        /// The errors of the last good configuration. Usually its file does not exist yet.
        unusable: ConfigErrors,
    },
    /// A recording failed.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A segment cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// An export failed.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A recording cannot be explained.
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// A recording cannot be shown.
    #[cfg(feature = "view")]
    #[error(transparent)]
    View(#[from] ViewError),
    /// The file with the access token of a page cannot be used.
    #[cfg(feature = "view")]
    #[error("--token-file {}: {reason}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The reason why the file is refused.
        reason: String,
    },
    /// The running recorder cannot be reached, or refused a command.
    #[error(transparent)]
    Control(#[from] ClientError),
    /// The status of the running recorder cannot be parsed.
    #[error("cannot parse the recorder's answer: {0}; it may be of another version")]
    Status(String),
    /// There are no segments in the paths.
    #[error("no segments in {0}")]
    NoSegments(String),
    /// The search found no match.
    #[error("{0}")]
    NoMatch(String),
    /// The fields in a query are invalid.
    #[error("{option}: {0}{hint}", option = option_of(.0), hint = fields_hint(.0))]
    Query(QueryError),
    /// There are no samples in the selected time.
    #[error("{0}")]
    NoSamples(String),
    /// A recorder uses the directory, so no other program may change its segments now.
    #[error(
        "{} is in use by a recorder, which compresses its sealed segments itself ([compress] in its configuration); \
         stop it, or copy the segments elsewhere",
        .0.display()
    )]
    InUseByRecorder(PathBuf),
    /// Standard output failed.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// A manual page cannot be written.
    #[error("cannot write {}: {error}; name a writable directory", path.display())]
    Manual {
        /// The path of the directory or the page.
        path: PathBuf,
        /// The error of the kernel.
        #[source]
        error: io::Error,
    },
    /// The snapshots of a data directory cannot be read or changed.
    #[error("cannot read or change the snapshots in {}: {error}; check its permissions", path.display())]
    Snapshots {
        /// The path of the directory that contains the snapshots.
        path: PathBuf,
        /// The error of the kernel.
        #[source]
        error: io::Error,
    },
    /// This build of the program does not contain the part that the verb needs.
    #[cfg(not(feature = "manual"))]
    #[error(
        "this build has no {what}; the packages of flatcap have them, and \
         cargo build --release --features {feature} builds them"
    )]
    NotBuilt {
        /// The missing part.
        what: &'static str,
        /// The feature of the package `flatcap` that adds this part.
        feature: &'static str,
    },
    /// The program `flatcap-convert` cannot be started. The text has the reason and the remedy.
    #[error("{0}")]
    ConvertProgram(String),
    /// Sending to the destination of a replay failed.
    #[error("cannot send to {to}: {error}; check the address and that a receiver is listening")]
    Send {
        /// The destination.
        to: String,
        /// The error of the kernel.
        #[source]
        error: io::Error,
    },
}

impl From<QueryError> for CliError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Segment(error) => Self::Segment(error),
            other => Self::Query(other),
        }
    }
}

/// Returns the name of the option whose value caused the error.
fn option_of(error: &QueryError) -> &'static str {
    if matches!(error, QueryError::Condition(_)) { "--where" } else { "--fields" }
}

/// Returns advice for a field name that does not exist and is not similar to any existing name.
fn fields_hint(error: &QueryError) -> &'static str {
    match error {
        QueryError::NoField { nearest, .. } if nearest.is_empty() => "; flatcap fields shows all",
        _ => "",
    }
}

impl CliError {
    /// Returns the exit status for this error.
    pub fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Query(_)
            | Self::Usage(_)
            | Self::Config(_)
            | Self::NoLastGood { .. }
            | Self::Explain(ExplainError::SeveralHosts(_)) => ExitStatus::Usage,
            #[cfg(feature = "view")]
            Self::View(ViewError::NoTerminal(_) | ViewError::NotLoopback(_)) | Self::TokenFile { .. } => {
                ExitStatus::Usage
            }
            _ => ExitStatus::Failed,
        }
    }
}
