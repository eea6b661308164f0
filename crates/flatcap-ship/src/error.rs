//! Errors that end either a call or the shipping of one segment.

use std::io;
use std::path::PathBuf;

use arrow_schema::ArrowError;
use flatcap_export::ColumnarError;
use flatcap_format::segment::SegmentError;

use crate::lake_error::LakeError;
use crate::object_writer::ObjectWriterError;

/// An error of shipping.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShipError {
    /// The arguments or the configuration are wrong.
    #[error("{0}")]
    Usage(String),
    /// A segment cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The data directory or the outbox cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The state, the receipts or the outbox cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    File {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The content of a segment cannot be converted to rows.
    #[error("{}: {error}", path.display())]
    Rows {
        path: PathBuf,
        #[source]
        error: Box<ColumnarError>,
    },
    /// Rows cannot be encoded.
    #[error(transparent)]
    Encode(#[from] ObjectWriterError),
    /// An object in the store is damaged, or does not belong to this program.
    #[error("{name} in the store: {what}")]
    Object { name: String, what: String },
    /// The store does not return an object that it has accepted.
    #[error(
        "{name}: the store accepted it, and returns something else or nothing; it does not count as shipped"
    )]
    NotStored { name: String },
    /// An error of the store.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// Messages about shipped segments were not sent.
    #[error("{0}")]
    Messages(String),
    /// A segment does not identify its host.
    #[error("{}: neither machine id nor name of the host; name it with `host` in the configuration", path.display())]
    NoIdentity { path: PathBuf },
    /// Two hosts have the same identity.
    #[error(transparent)]
    SameIdentity(Box<IdentityConflict>),
    /// A table needs more objects than the largest allowed part number.
    #[error("{}: more than {limit} objects of {table}", path.display())]
    Parts { path: PathBuf, table: String, limit: u32 },
    /// Standard output or standard error cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

/// The error for a host that uses the identity of another host.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: the host \"{own}\" (boot {own_boot}) has the identity {id}, which in the lake belongs to \"{known}\" (boot {known_boot}); copied systems share /etc/machine-id: give this one an id of its own, or `host` in the configuration; after renaming the host, remove {object}",
    path.display()
)]
pub(crate) struct IdentityConflict {
    /// The segment of the refused host.
    pub(crate) path: PathBuf,
    pub(crate) id: String,
    pub(crate) own: String,
    pub(crate) own_boot: String,
    pub(crate) known: String,
    pub(crate) known_boot: String,
    /// The object in the store that names the owner of the identity.
    pub(crate) object: String,
}

impl From<ArrowError> for ShipError {
    fn from(error: ArrowError) -> Self {
        Self::Encode(ObjectWriterError::Arrow(error))
    }
}

impl ShipError {
    /// Returns whether the segment file no longer exists. Retention may have removed it.
    pub(crate) fn is_gone(&self) -> bool {
        let (Self::Segment(SegmentError::Io { error, .. }) | Self::Directory { error, .. }) = self else {
            return false;
        };
        error.kind() == io::ErrorKind::NotFound
    }

    /// Returns whether the stop signal caused this error.
    pub(crate) fn is_stop(&self) -> bool {
        matches!(self, Self::Lake(LakeError::Stopped))
    }

    /// Returns whether the error concerns only one segment, so that other segments can be shipped.
    pub(crate) fn is_of_segment(&self) -> bool {
        matches!(
            self,
            Self::Segment(_)
                | Self::Rows { .. }
                | Self::Encode(_)
                | Self::NoIdentity { .. }
                | Self::SameIdentity(_)
                | Self::Parts { .. }
                | Self::Lake(LakeError::File { .. })
        )
    }

    /// Returns whether the error may be temporary. If the error is temporary, the segment itself
    /// may be valid.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Segment(SegmentError::Io { .. }) | Self::Lake(LakeError::File { .. }))
    }
}
