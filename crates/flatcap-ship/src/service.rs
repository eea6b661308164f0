//! Ships unshipped segments, either once or repeatedly until the stop signal is set.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flatcap_format::schema::to_visible_json_lines;
use flatcap_format::segment::SegmentName;
use flatcap_format::storage::linux::Directory;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use crate::backlog::{SealedFile, UnshippedFiles, sealed_files};
use crate::environment::{cpu_ns, monotonic_ns, wall_ns};
use crate::error::ShipError;
use crate::lake::{Lake, Patience};
use crate::metrics_file::MetricsText;
use crate::shared_outbox::MessageCounts;
use crate::shipper::{ShippedSegment, Shipper};

/// Mode of a file that other programs read.
const FILE_MODE: u32 = 0o644;
/// Maximum number of refused segments that the status file names.
const REFUSED_MAX: usize = 100;
/// Interval between two writes of the state while a backlog is shipped, in nanoseconds.
const REPORT_NS: u64 = 10_000_000_000;

/// An event that is reported to the log.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ShipEvent<'e> {
    /// A segment is in the store.
    Shipped(&'e ShippedSegment),
    /// A segment cannot be shipped. The other segments are still shipped.
    Refused(&'e Path, &'e ShipError),
    /// Retention removed a segment before it was shipped.
    Gone(&'e Path),
    /// A request to the store failed, or a file could not be written. The service tries the failed
    /// operation again.
    Failed(&'e ShipError),
    /// A segment file was checked, and was shipped if the store did not have it.
    Progress(&'e ShipState, &'e Shipper<'e>),
}

/// The function that receives the events.
pub(crate) type ShipWatch<'w> = dyn FnMut(ShipEvent<'_>) + 'w;

/// The state of this process and the results so far. The service writes this state to
/// `status_file`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ShipState {
    pub(crate) version: String,
    /// The times at which the process began and at which this state was written, in the form of RFC
    /// 3339, in UTC.
    pub(crate) started: String,
    pub(crate) updated: String,
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    /// Number of recorded samples that could not be read.
    pub(crate) unreadable: u64,
    /// Number of values that are left out of their rows, because INT64 cannot represent them.
    pub(crate) left_out: u64,
    /// Number of segments with damage.
    pub(crate) damaged: u64,
    /// Number of segments that retention removed before they were shipped.
    pub(crate) gone: u64,
    /// The name of the last manifest that was put.
    pub(crate) last: Option<String>,
    /// The last time at which the store had all sealed segments except the refused ones, in RFC
    /// 3339 form (UTC).
    pub(crate) complete: Option<String>,
    /// The error of the last attempt, if it failed.
    pub(crate) error: Option<String>,
    /// Number of consecutive failed attempts.
    pub(crate) failures: u32,
    /// Counts of the messages about shipped segments, or `None` if messages are not configured.
    pub(crate) messages: Option<MessageCounts>,
    /// Segments in the directory that cannot be shipped, with the reason. At most 100 are written.
    #[serde(serialize_with = "first_refused")]
    pub(crate) refused: BTreeMap<PathBuf, String>,
    /// Files in the directory that were still unshipped after the last check.
    #[serde(skip)]
    waiting: BTreeSet<PathBuf>,
}

impl ShipState {
    pub(crate) fn new() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), started: now(), ..Self::default() }
    }

    /// Returns whether some recorded data is not in the store.
    pub(crate) fn has_losses(&self) -> bool {
        self.unreadable > 0
            || self.left_out > 0
            || self.damaged > 0
            || self.gone > 0
            || !self.refused.is_empty()
    }

    /// Counts the unshipped files that were removed since the last check.
    fn note_removed(&mut self, files: &[SealedFile], watch: &mut ShipWatch<'_>) {
        let paths: BTreeSet<&Path> = files.iter().map(|file| file.path.as_path()).collect();
        let refused = std::mem::take(&mut self.refused);
        let (refused, gone) = refused.into_iter().partition(|(path, _)| paths.contains(path.as_path()));
        self.refused = refused;
        let gone: BTreeMap<PathBuf, String> = gone;
        for path in gone.keys() {
            self.gone += 1;
            watch(ShipEvent::Gone(path));
        }
        for path in self.waiting.iter().filter(|path| !paths.contains(path.as_path())) {
            self.gone += 1;
            watch(ShipEvent::Gone(path));
        }
    }

    fn add(&mut self, segment: &ShippedSegment) {
        self.segments += 1;
        self.bytes += segment.bytes;
        self.rows += segment.rows;
        self.unreadable += segment.unreadable;
        self.left_out += segment.left_out;
        self.damaged += u64::from(segment.is_damaged);
        self.last = Some(segment.manifest.clone());
    }

    /// Returns the metrics of this process.
    pub(crate) fn metrics(&self, backlog: &UnshippedFiles) -> String {
        let mut text = MetricsText::default();
        text.version(&self.version);
        text.gauge("start_time_seconds", "When the process began, since 1970.", seconds(&self.started));
        text.gauge("updated_time_seconds", "When this was written, since 1970.", seconds(&self.updated));
        text.gauge(
            "complete_time_seconds",
            "When the store last had all that was sealed, since 1970; 0 if not since the start.",
            self.complete.as_deref().map_or(0, seconds),
        );
        text.counter("segments_total", "Segments and snapshots shipped.", self.segments);
        text.counter("rows_total", "Samples shipped.", self.rows);
        text.counter("bytes_total", "Bytes of the objects put.", self.bytes);
        text.counter("unreadable_samples_total", "Recorded samples that could not be read.", self.unreadable);
        text.counter("damaged_segments_total", "Segments shipped of which a part is damaged.", self.damaged);
        text.counter(
            "removed_segments_total",
            "Segments that retention removed before they were shipped.",
            self.gone,
        );
        text.gauge("refused_segments", "Segments that cannot be shipped.", self.refused.len());
        text.gauge("failures", "Attempts that failed in a row.", self.failures);
        text.gauge(
            "backlog_segments",
            "Sealed segments that the store is not known to have.",
            backlog.segments,
        );
        text.gauge("backlog_bytes", "Bytes of these segments.", backlog.bytes);
        if let Some(oldest_s) = backlog.oldest_s {
            let help = "When the oldest of these segments was created, since 1970.";
            text.gauge("backlog_oldest_time_seconds", help, oldest_s);
        }
        let messages = self.messages.clone().unwrap_or_default();
        text.counter("messages_total", "Messages that the server has acknowledged.", messages.sent);
        text.counter(
            "dropped_messages_total",
            "Messages that are not sent: too many were unsent, the server refused this one, or its manifest is gone.",
            messages.dropped,
        );
        text.gauge("unsent_messages", "Messages that the server has not acknowledged yet.", messages.unsent);
        text.gauge("message_failures", "Attempts to send that failed in a row.", messages.failures);
        let cpu = Duration::from_nanos(cpu_ns());
        text.counter("cpu_seconds_total", "CPU time of the process.", cpu.as_secs_f64());
        text.into_text()
    }

    /// Reads the state that a service has written.
    ///
    /// # Errors
    /// Fails if the file does not exist, cannot be read, or does not contain a state.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}

/// Writes the receipts of segments for the recorder ([storage] `keep_until_shipped`). The file has
/// one line per segment.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn write_receipts(path: &Path, shipped: &[SegmentName]) -> Result<(), ShipError> {
    let line = |name: &SegmentName| format!("{:016x}-{:010}\n", name.run_id, name.number);
    let lines: String = shipped.iter().map(line).collect();
    write_whole(path, lines.as_bytes()).map_err(|error| ShipError::File { path: path.to_owned(), error })
}

/// Replaces a file atomically.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it names no file"))?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Directory::open(folder.unwrap_or(Path::new(".")))?.put(name, bytes, FILE_MODE)
}

/// Ships all files that are not in the store. Returns the segments that are in the store
/// afterwards.
///
/// # Errors
/// Fails if the directory cannot be read, the store fails, or the stop signal is set. Errors of a
/// single segment are reported, and the other segments are shipped.
pub(crate) fn ship_backlog(
    shipper: &mut Shipper<'_>,
    data_dir: &Path,
    state: &mut ShipState,
    watch: &mut ShipWatch<'_>,
) -> Result<Vec<SegmentName>, ShipError> {
    let files = sealed_files(data_dir)?;
    state.note_removed(&files, watch);
    state.waiting = files.iter().map(|file| file.path.clone()).collect();
    let result = ship_files(shipper, &files, state, watch);
    let started_s = seconds(&state.started);
    for file in &files {
        // If the store was not asked about a segment, another process may have shipped it. A
        // segment that is younger than this process is treated as not shipped.
        if shipper.known(file).unwrap_or(file.name.created_s < started_s) {
            state.waiting.remove(&file.path);
        }
    }
    result
}

fn ship_files(
    shipper: &mut Shipper<'_>,
    files: &[SealedFile],
    state: &mut ShipState,
    watch: &mut ShipWatch<'_>,
) -> Result<Vec<SegmentName>, ShipError> {
    let mut done = Vec::new();
    for file in files {
        // A refused segment is not converted again, because the error would be the same.
        if state.refused.contains_key(&file.path) {
            state.waiting.remove(&file.path);
            continue;
        }
        match ship_new(shipper, file) {
            Ok(new) => {
                if let Some(segment) = new {
                    state.add(&segment);
                    watch(ShipEvent::Shipped(&segment));
                }
                // The recorder waits for receipts of segments only.
                if file.snapshot.is_none() {
                    done.push(file.name);
                }
            }
            Err(error) if error.is_gone() => {
                state.waiting.remove(&file.path);
                state.gone += 1;
                watch(ShipEvent::Gone(&file.path));
            }
            Err(error) if error.is_of_segment() && error.may_pass() => {
                // The segment is tried again at the next check.
                watch(ShipEvent::Refused(&file.path, &error));
            }
            Err(error) if error.is_of_segment() => {
                watch(ShipEvent::Refused(&file.path, &error));
                state.waiting.remove(&file.path);
                state.refused.insert(file.path.clone(), error.to_string());
            }
            Err(error) => return Err(error),
        }
        watch(ShipEvent::Progress(state, shipper));
    }
    Ok(done)
}

fn ship_new(shipper: &mut Shipper<'_>, file: &SealedFile) -> Result<Option<ShippedSegment>, ShipError> {
    if shipper.is_shipped(file)? {
        return Ok(None);
    }
    shipper.ship(file).map(Some)
}

/// Options of the service.
#[derive(Debug, Clone)]
pub(crate) struct ServiceOptions {
    pub(crate) data_dir: PathBuf,
    pub(crate) interval: Duration,
    pub(crate) status_file: Option<PathBuf>,
    pub(crate) metrics_file: Option<PathBuf>,
    pub(crate) receipts: Option<PathBuf>,
}

/// Ships until the stop signal is set. Errors of the store and of the files that the service writes
/// are reported, and the operations are tried again.
pub(crate) fn serve(
    lake: &Lake,
    shipper: &mut Shipper<'_>,
    options: &ServiceOptions,
    watch: &mut ShipWatch<'_>,
) {
    let mut state = ShipState::new();
    let mut written_ns = 0;
    loop {
        // While a long backlog is shipped, write the state from time to time.
        let mut observed = |event: ShipEvent<'_>| match event {
            ShipEvent::Progress(state, shipper) if monotonic_ns() - written_ns > REPORT_NS => {
                written_ns = monotonic_ns();
                if let Err(error) = write_state(state, shipper, options) {
                    watch(ShipEvent::Failed(&error));
                }
            }
            event => watch(event),
        };
        let result = ship_backlog(shipper, &options.data_dir, &mut state, &mut observed);
        let result = result.and_then(|done| match &options.receipts {
            Some(path) => write_receipts(path, &done),
            None => Ok(()),
        });
        let pause = match result {
            Ok(()) => {
                (state.error, state.failures) = (None, 0);
                if state.refused.is_empty() && state.waiting.is_empty() {
                    state.complete = Some(now());
                }
                options.interval
            }
            Err(error) if error.is_stop() => return,
            Err(error) => {
                watch(ShipEvent::Failed(&error));
                state.error = Some(error.to_string());
                state.failures = state.failures.saturating_add(1);
                Patience::default().pause(state.failures)
            }
        };
        if let Err(error) = write_state(&state, shipper, options) {
            watch(ShipEvent::Failed(&error));
        }
        if lake.pause(pause).is_err() {
            return;
        }
    }
}

/// Writes the state and the metrics of the service, if files for them are configured.
fn write_state(state: &ShipState, shipper: &Shipper<'_>, options: &ServiceOptions) -> Result<(), ShipError> {
    let state = ShipState { updated: now(), messages: shipper.messages(), ..state.clone() };
    let write = |path: &Option<PathBuf>, content: &dyn Fn() -> Vec<u8>| match path {
        Some(path) => {
            write_whole(path, &content()).map_err(|error| ShipError::File { path: path.clone(), error })
        }
        None => Ok(()),
    };
    // Strings and numbers can always be represented in JSON.
    write(&options.status_file, &|| to_visible_json_lines(&state).unwrap_or_default().into_bytes())?;
    write(&options.metrics_file, &|| {
        state.metrics(&known_backlog(shipper, &options.data_dir, &state)).into_bytes()
    })
}

/// Returns the segment files that may be missing in the store. Makes no request.
fn known_backlog(shipper: &Shipper<'_>, data_dir: &Path, state: &ShipState) -> UnshippedFiles {
    let mut backlog = UnshippedFiles::default();
    // If the directory cannot be listed, this was already reported as the error of the attempt.
    for file in sealed_files(data_dir).unwrap_or_default() {
        if !state.refused.contains_key(&file.path) && shipper.known(&file) != Some(true) {
            backlog.add(&file);
        }
    }
    backlog
}

fn first_refused<S: Serializer>(
    refused: &BTreeMap<PathBuf, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(refused.iter().take(REFUSED_MAX))
}

/// Converts a time that [`now`] has returned to seconds since 1970.
fn seconds(time: &str) -> i64 {
    time.parse::<Timestamp>().map_or(0, Timestamp::as_second)
}

fn now() -> String {
    Timestamp::from_nanosecond(i128::from(wall_ns())).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/LAKE.md");
    const ALERTS: &str = include_str!("../../../deploy/prometheus/ship-alerts.yaml");
    const DASHBOARD: &str = include_str!("../../../deploy/grafana/flatcap-ship.json");

    fn metrics() -> String {
        let state = ShipState { rows: 7, failures: 2, ..ShipState::new() };
        state.metrics(&UnshippedFiles {
            segments: 3,
            bytes: 4,
            oldest_s: Some(1_700_000_000),
            ..UnshippedFiles::default()
        })
    }

    /// Runs a program with `text` as its input. Returns `None` if the program is not installed.
    fn judged(program: &str, args: &[&str], text: &str) -> Option<(bool, String)> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            println!("skipped: {program} is not installed");
            return None;
        };
        // A program that does not read its input may close it.
        let _closed = child.stdin.take().unwrap().write_all(text.as_bytes());
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    }

    // Proves that the rules and the dashboard name only metrics that exist, and that the document
    // has every alert.
    #[test]
    fn rules_and_dashboard_name_metrics_that_exist() {
        let text = metrics();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let written: BTreeSet<&str> = types.map(|(name, _)| name).collect();
        assert_eq!(written.len(), 20);
        for (what, text, least) in [("rules", ALERTS, 7), ("dashboard", DASHBOARD, 15)] {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("flatcap_ship_"));
            let named: BTreeSet<&str> = words.collect();
            let unknown: Vec<_> = named.difference(&written).collect();
            assert!(unknown.is_empty() && named.len() >= least, "{what}: {unknown:?} of {named:?}");
        }
        let alerts: Vec<&str> =
            ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
        assert!(alerts.iter().all(|alert| DOCUMENT.contains(&format!("| `{alert}` |"))) && alerts.len() == 6);
    }

    // Proves that Prometheus can read the metrics, and that the rules fire as intended. Method:
    // promtool, if it is installed.
    #[test]
    fn promtool_accepts_metrics_and_rules() {
        let text = metrics();
        assert!(text.contains("\nflatcap_ship_rows_total 7\n") && text.ends_with('\n'), "{text}");
        assert!(text.contains("\nflatcap_ship_backlog_oldest_time_seconds 1700000000\n"), "{text}");
        let Some((is_valid, said)) = judged("promtool", &["check", "metrics"], &text) else { return };
        assert!(is_valid && said.is_empty(), "{said}");
        let broken = text.replace("# TYPE", "# TIPE").replace("_total 7", "_total seven");
        assert!(!judged("promtool", &["check", "metrics"], &broken).unwrap().0, "it judges nothing");
        for args in [
            ["check", "rules", "deploy/prometheus/ship-alerts.yaml"],
            ["test", "rules", "tests/data/prometheus/ship-alerts.test.yaml"],
        ] {
            let (is_valid, said) = judged("promtool", &args, "").unwrap();
            assert!(is_valid, "{said}");
        }
    }
}
