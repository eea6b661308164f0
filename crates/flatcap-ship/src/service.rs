//! Ships what is not shipped: once, or again and again until the stop signal.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use flatcap_format::segment::SegmentName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::backlog::{SealedFile, sealed_files};
use crate::environment::wall_ns;
use crate::error::ShipError;
use crate::lake::{Lake, Patience};
use crate::shipper::{ShippedSegment, Shipper};

/// Most refused segments that the state names.
const REFUSED_MAX: usize = 100;

/// What happened, for the log.
#[derive(Debug)]
pub(crate) enum ShipEvent<'e> {
    /// A segment is in the store.
    Shipped(&'e ShippedSegment),
    /// A segment cannot be shipped; others are.
    Refused(&'e Path, &'e ShipError),
    /// Retention removed a segment before it was shipped.
    Gone(&'e Path),
    /// The store fails; it is tried again.
    Failed(&'e ShipError),
}

/// Takes what happens.
pub(crate) type ShipWatch<'w> = dyn FnMut(ShipEvent<'_>) + 'w;

/// What this process has shipped. The service writes it to `status_file`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ShipState {
    pub(crate) version: String,
    /// When the process began, and when this was written: RFC 3339, UTC.
    pub(crate) started: String,
    pub(crate) updated: String,
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    /// Recorded samples that could not be read.
    pub(crate) unreadable: u64,
    /// Segments with damage.
    pub(crate) damaged: u64,
    /// Segments that retention removed before they were shipped.
    pub(crate) gone: u64,
    /// The last manifest that was put.
    pub(crate) last: Option<String>,
    /// The error of the last attempt, if it failed.
    pub(crate) error: Option<String>,
    /// Attempts that failed in a row.
    pub(crate) failures: u32,
    /// Segments that cannot be shipped, and why; at most 100.
    pub(crate) refused: BTreeMap<PathBuf, String>,
}

impl ShipState {
    pub(crate) fn new() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), started: now(), ..Self::default() }
    }

    /// Returns whether data that was recorded is not in the store.
    pub(crate) fn has_losses(&self) -> bool {
        self.unreadable > 0 || self.damaged > 0 || self.gone > 0 || !self.refused.is_empty()
    }

    fn add(&mut self, segment: &ShippedSegment) {
        self.segments += 1;
        self.bytes += segment.bytes;
        self.rows += segment.rows;
        self.unreadable += segment.unreadable;
        self.damaged += u64::from(segment.is_damaged);
        self.last = Some(segment.manifest.clone());
    }

    /// Writes the state, complete or not at all.
    ///
    /// # Errors
    /// Any error of the system calls.
    pub(crate) fn write(&mut self, path: &Path) -> io::Result<()> {
        self.updated = now();
        write_whole(path, &serde_json::to_vec_pretty(self)?)
    }

    /// Reads the state that a service has written.
    ///
    /// # Errors
    /// There is none, or another file.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}

/// Writes the receipts of segments for the recorder ([storage] `keep_until_shipped`): a line each.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_receipts(path: &Path, shipped: &[SegmentName]) -> Result<(), ShipError> {
    let line = |name: &SegmentName| format!("{:016x}-{:010}\n", name.run_id, name.number);
    let lines: String = shipped.iter().map(line).collect();
    write_whole(path, lines.as_bytes()).map_err(|error| ShipError::File { path: path.to_owned(), error })
}

/// Replaces a file, complete or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("partial");
    std::fs::write(&partial, bytes)?;
    Ok(rustix::fs::rename(&partial, path)?)
}

/// Ships all that is not in the store. Returns the segments that then are.
///
/// # Errors
/// The directory cannot be read, the store fails, or the stop signal. Errors of one segment are
/// reported, and the others shipped.
pub(crate) fn ship_backlog(
    shipper: &mut Shipper<'_>,
    data_dir: &Path,
    state: &mut ShipState,
    watch: &mut ShipWatch<'_>,
) -> Result<Vec<SegmentName>, ShipError> {
    let mut done = Vec::new();
    for file in sealed_files(data_dir)? {
        if state.refused.contains_key(&file.path) {
            continue;
        }
        match ship_new(shipper, &file) {
            Ok(new) => {
                if let Some(segment) = new {
                    state.add(&segment);
                    watch(ShipEvent::Shipped(&segment));
                }
                if file.snapshot.is_none() {
                    done.push(file.name);
                }
            }
            Err(error) if error.is_gone() => {
                state.gone += 1;
                watch(ShipEvent::Gone(&file.path));
            }
            Err(error) if error.is_of_segment() => {
                watch(ShipEvent::Refused(&file.path, &error));
                if state.refused.len() < REFUSED_MAX {
                    state.refused.insert(file.path, error.to_string());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn ship_new(shipper: &mut Shipper<'_>, file: &SealedFile) -> Result<Option<ShippedSegment>, ShipError> {
    if shipper.is_shipped(file)? {
        return Ok(None);
    }
    shipper.ship(file).map(Some)
}

/// How the service looks for segments.
#[derive(Debug, Clone)]
pub(crate) struct ServiceOptions {
    pub(crate) data_dir: PathBuf,
    pub(crate) interval: std::time::Duration,
    pub(crate) status_file: Option<PathBuf>,
    pub(crate) receipts: Option<PathBuf>,
}

/// Ships until the stop signal. Errors of the store are reported and tried again.
///
/// # Errors
/// The state cannot be written.
pub(crate) fn serve(
    lake: &Lake,
    shipper: &mut Shipper<'_>,
    options: &ServiceOptions,
    watch: &mut ShipWatch<'_>,
) -> Result<(), ShipError> {
    let mut state = ShipState::new();
    loop {
        let result = ship_backlog(shipper, &options.data_dir, &mut state, watch);
        let pause = match result {
            Ok(done) => {
                (state.error, state.failures) = (None, 0);
                if let Some(path) = &options.receipts {
                    write_receipts(path, &done)?;
                }
                options.interval
            }
            Err(error) if error.is_stop() => return Ok(()),
            Err(error) => {
                watch(ShipEvent::Failed(&error));
                state.error = Some(error.to_string());
                state.failures = state.failures.saturating_add(1);
                Patience::default().pause(state.failures)
            }
        };
        if let Some(path) = &options.status_file {
            state.write(path).map_err(|error| ShipError::File { path: path.clone(), error })?;
        }
        if lake.pause(pause).is_err() {
            return Ok(());
        }
    }
}

fn now() -> String {
    Timestamp::from_nanosecond(i128::from(wall_ns())).unwrap_or_default().to_string()
}
