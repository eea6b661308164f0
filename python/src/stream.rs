//! Rows as a stream of batches, for the C interface of Arrow.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use flatcap_arrow::{BatchError, BatchItem, FieldsReader, SourceReader};
use flatcap_query::QuerySummary;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::read_report::ReadReport;

/// The origin of batches.
pub(crate) enum BatchReader {
    Fields(Box<FieldsReader>),
    Samples(Box<SourceReader>),
}

/// Batches for a consumer, which may be on any thread.
pub(crate) struct BatchStream {
    reader: BatchReader,
    report: Arc<ReadReport>,
    /// The thread that requested the stream of rows.
    owner: ThreadId,
    is_over: bool,
}

impl BatchReader {
    pub(crate) fn schema(&self) -> &SchemaRef {
        match self {
            Self::Fields(reader) => reader.schema(),
            Self::Samples(reader) => reader.schema(),
        }
    }

    fn next(&mut self) -> Result<Option<BatchItem>, BatchError> {
        match self {
            Self::Fields(reader) => reader.next(),
            Self::Samples(reader) => reader.next(),
        }
    }

    fn summary(&self) -> QuerySummary {
        match self {
            Self::Fields(reader) => reader.summary(),
            Self::Samples(reader) => reader.summary(),
        }
    }
}

impl BatchStream {
    pub(crate) fn new(reader: BatchReader, report: Arc<ReadReport>) -> Self {
        report.clear();
        Self { reader, report, owner: thread::current().id(), is_over: false }
    }

    /// Returns the next batch, or `None` at the end and after an error.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, BatchError> {
        while !self.is_over {
            match self.reader.next() {
                Ok(Some(BatchItem::Batch(batch))) if batch.num_rows() == 0 => {}
                Ok(Some(BatchItem::Batch(batch))) => return Ok(Some(batch)),
                Ok(Some(BatchItem::Notice(notice))) => self.report.add(&notice),
                ended => {
                    self.is_over = true;
                    self.report.finish(self.reader.summary());
                    ended?;
                }
            }
        }
        Ok(None)
    }
}

impl Iterator for BatchStream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let external = |error: BatchError| ArrowError::ExternalError(Box::new(error));
        // Other threads of a consumer must not wait for the interpreter, because the thread that
        // holds it may wait for them. Interrupts are only for the main thread anyway.
        if thread::current().id() != self.owner {
            return self.next_batch().map_err(external).transpose();
        }
        let read = Python::try_attach(|py| {
            if is_interrupted(py) {
                self.is_over = true;
                return Err(ArrowError::ExternalError("interrupted".into()));
            }
            py.detach(|| self.next_batch()).map_err(external)
        });
        // If there is no interpreter, because Python is shutting down, nothing more is read.
        read.unwrap_or(Ok(None)).transpose()
    }
}

impl RecordBatchReader for BatchStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.reader.schema())
    }
}

/// Returns whether Python was interrupted. The interrupt stays pending. The consumer reports the
/// end of the stream as an error, and Python raises `KeyboardInterrupt` after this error.
fn is_interrupted(py: Python<'_>) -> bool {
    let Err(error) = py.check_signals() else { return false };
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        // If this call fails, only the error of the consumer is raised, which also ends the read.
        let _raised_later = py.import("_thread").and_then(|module| module.call_method0("interrupt_main"));
    }
    true
}
