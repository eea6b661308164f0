//! Errors of batches.

use flatcap_format::segment::SegmentError;
use flatcap_query::QueryError;

/// The reason why values cannot be converted to a batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The recording cannot be read, or does not have the fields.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// An integer that the type of its column cannot hold.
    #[error("{place}, sample {seq} at {wall_ns} ns, is {value}: larger than {limit}, the limit of INT64")]
    TooLarge {
        /// The names of the source and the field.
        place: String,
        /// The sample's number.
        seq: u64,
        /// The sample's wall time.
        wall_ns: i64,
        /// The value.
        value: u64,
        /// The largest value that the type can hold.
        limit: i64,
    },
    /// The columns belong to one source, but the samples belong to several sources.
    #[error("the samples are of several sources, among them {one} and {other}; choose one")]
    SeveralSources {
        /// The name of the source to which the columns belong.
        one: String,
        /// The name of the other source, to which some samples belong.
        other: String,
    },
    /// The columns of the source change in a later run.
    #[error(
        "{source_name} has another schema from run {run} on: choose a time before or after, or fields that both have"
    )]
    OtherSchema {
        /// The source.
        source_name: String,
        /// The first run in which the schema is different.
        run: String,
    },
    /// The type of a field changes in a later run.
    #[error("{field} has another type from run {run} on: choose a time before or after")]
    OtherType {
        /// The field.
        field: String,
        /// The first run in which the type is different.
        run: String,
    },
    /// Values that cannot be converted to a column. This is a defect of this library.
    #[error("cannot encode the values: {0}; please report it as a defect")]
    Encode(String),
}

impl From<SegmentError> for BatchError {
    fn from(error: SegmentError) -> Self {
        Self::Query(error.into())
    }
}
