//! The events of an export. The caller of the export receives them and may stop it.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use flatcap_arrow::SampleBatch;
use flatcap_format::replay::Notice;

use crate::error::ColumnarError;
use crate::request::ColumnarRequest;

/// An event reported to the progress callback.
#[derive(Debug)]
pub(crate) enum ColumnarEvent {
    /// A notice about the recording, for the user.
    Notice(Notice),
    /// The recording is read again from its beginning, to export further files.
    Reading {
        /// The number of this reading, starting at 0.
        number: usize,
        /// The number of readings.
        count: usize,
    },
    /// In this reading, the samples up to this wall time have been exported. The time is in
    /// nanoseconds.
    Progress(i64),
}

impl ColumnarEvent {
    /// Returns the progress after these samples are exported.
    pub(crate) fn after(samples: &SampleBatch) -> Self {
        Self::Progress(samples.times().wall_ns.last().copied().unwrap_or_default())
    }
}

/// Reports the events of an export to the caller, who may stop the export.
pub(crate) struct ExportWatch<'w> {
    /// Returns false to stop the export.
    callback: &'w mut dyn FnMut(ColumnarEvent) -> bool,
    /// Whether a file could not be read at all.
    is_unreadable: bool,
    /// Whether notices are left out, because an earlier reading of the files has reported them.
    is_quiet: bool,
    /// The notices so far, or `None` if repeated notices are not left out.
    seen: Option<SeenNotices>,
}

/// The hashes of the notices so far. The notices themselves are not stored, because a damaged
/// recording may have millions of them.
#[derive(Default)]
struct SeenNotices {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl<'w> ExportWatch<'w> {
    pub(crate) fn new(callback: &'w mut dyn FnMut(ColumnarEvent) -> bool) -> Self {
        Self { callback, is_unreadable: false, is_quiet: false, seen: None }
    }

    /// Leaves out all further notices.
    pub(crate) fn silence_notices(&mut self) {
        self.is_quiet = true;
    }

    /// Leaves out repeated notices, because several readings find the same damage.
    pub(crate) fn leave_out_repeated_notices(&mut self) {
        self.seen = Some(SeenNotices::default());
    }

    /// Passes an event on to the caller.
    ///
    /// # Errors
    /// Returns `Stopped` if the caller stops the export.
    pub(crate) fn report(&mut self, event: ColumnarEvent) -> Result<(), ColumnarError> {
        if let ColumnarEvent::Notice(notice) = &event {
            if self.is_quiet {
                return Ok(());
            }
            self.is_unreadable |= matches!(notice, Notice::Unreadable(_));
            if self.seen.as_mut().is_some_and(|seen| !seen.is_new(notice)) {
                return Ok(());
            }
        }
        if (self.callback)(event) { Ok(()) } else { Err(ColumnarError::Stopped) }
    }

    /// Checks that all files could be read.
    ///
    /// # Errors
    /// The error is `NothingRead`. It has no message, because the notices already say why the
    /// export has no samples.
    pub(crate) fn check_readable(&self) -> Result<(), ColumnarError> {
        if self.is_unreadable { Err(ColumnarError::NothingRead) } else { Ok(()) }
    }

    /// Checks that an export has samples, unless all times were selected.
    ///
    /// # Errors
    /// Returns `NothingRead`, `NoSamples`, or an error of reading.
    pub(crate) fn check_samples(&self, count: u64, request: &ColumnarRequest) -> Result<(), ColumnarError> {
        if count > 0 {
            return Ok(());
        }
        self.check_readable()?;
        request.no_samples()?.map_or(Ok(()), Err)
    }
}

impl SeenNotices {
    fn is_new(&mut self, notice: &Notice) -> bool {
        self.hashes.insert(self.hasher.hash_one(notice.to_string()))
    }
}
