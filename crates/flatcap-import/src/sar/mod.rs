//! Imports the JSON of sadf (`sadf -j FILE -- -A`), which prints the archives of sar.
//!
//! Each host becomes a run, and each group of statistics a source: `sar-cpu-load`, `sar-disk`, ...
//! If a group is a list, such as the disks, the first field of an element identifies this element.
//! The first pass finds the fields and types in the whole file, and the second pass writes the
//! samples. Design: docs/ARCHITECTURE.md, "Import and export".

mod document;
mod groups;
mod options;
mod sar_time;
mod text;
mod value;

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use flatcap_format::host::HostName;
use serde::de::DeserializeSeed;

pub use options::SarOptions;

use super::findings::{FindingKind, ImportFindings, Tally};
use super::limited_input::{ElementBudget, LimitedInput};
use super::payload::PayloadBuilder;
use super::{ImportError, ImportJob, ImportReport, ImportSource, RunWriter};
use document::{SarConsumer, SarDocument, SarHost};
use groups::{SarGroups, groups_of};
use sar_time::SarClock;
use text::{LineNumber, SarText};
use value::SarValue;

/// Read size, in bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// Maximum number of hosts in a file.
const HOSTS_MAX: usize = 1024;

/// Imports the files. Only the statistics of one time are in memory.
///
/// # Errors
/// Any [`ImportError`]. Samples imported before the error are kept.
pub fn import(
    files: &[PathBuf],
    options: &SarOptions,
    job: ImportJob<'_, '_>,
) -> Result<ImportReport, ImportError> {
    let mut importer = SarImporter { options, job, report: ImportReport::default(), frames: 0 };
    for path in files {
        match importer.import_file(path) {
            Err(ImportError::Stopped) => {
                importer.report.stopped = true;
                break;
            }
            ended => ended?,
        }
    }
    Ok(importer.report)
}

/// An import in progress.
struct SarImporter<'a, 's, 'w> {
    options: &'a SarOptions,
    job: ImportJob<'s, 'w>,
    report: ImportReport,
    frames: u64, // recorded
}

impl SarImporter<'_, '_, '_> {
    fn import_file(&mut self, path: &Path) -> Result<(), ImportError> {
        if !path.is_file() {
            let what =
                "fields are found by reading the input twice, which a pipe does not allow; import a file";
            return Err(ImportError::Kind { path: path.to_owned(), what: what.to_owned() });
        }
        let mut finder = GroupFinder { hosts: Vec::new(), skipped: 0, is_stopped: false, importer: self };
        let (end, commas) = read_document(path, &mut finder)?;
        let (hosts, skipped) = (finder.hosts, finder.skipped);
        match &end {
            DocumentEnd::Stopped => return Err(ImportError::Stopped),
            DocumentEnd::Failed { what, .. } if hosts.is_empty() => {
                let what = format!("{what}; import what sadf -j FILE -- -A prints");
                return Err(ImportError::Kind { path: path.to_owned(), what });
            }
            _ => {}
        }
        if skipped > 0 {
            let what = format!(
                "{skipped} statistics are of hosts after the first {HOSTS_MAX}, the most of one import; split the file"
            );
            self.report.add_flaw(path, 0, Some(skipped), what);
        }
        let left_out: u64 = hosts.iter().map(|groups| groups.left_out).sum();
        if left_out > 0 {
            let what = format!("{left_out} values are of more groups or fields than can be imported");
            self.report.add_flaw(path, 0, Some(left_out), what);
        }
        let mut findings = ImportFindings::new(path);
        let what = "commas between digits are taken for decimal marks";
        let option = "LC_ALL=C sadf -j, which prints points".to_owned();
        findings.add(FindingKind::Decimal, commas, what, Some(option));
        let mut writer = HostWriter {
            path,
            hosts: &hosts,
            run: None,
            clock: SarClock::new(self.options.clone(), findings),
            importer: self,
            payload: PayloadBuilder::default(),
            error: None,
        };
        let end = read_document(path, &mut writer);
        let (failed, run) = (writer.error.take(), writer.run.take());
        let (zone, findings) = writer.clock.finish();
        if let Some(zone) = zone {
            self.report.recognized.push(format!("{}: times are in {zone}", path.display()));
        }
        self.report.findings.extend(findings.into_sorted());
        if let Some(error @ ImportError::Write(_)) = failed {
            return Err(error);
        }
        run.map_or(Ok(()), |run| self.finish(run))?;
        if let Some(error) = failed {
            return Err(error);
        }
        match end?.0 {
            DocumentEnd::Stopped => return Err(ImportError::Stopped),
            DocumentEnd::Failed { what, bytes } => {
                self.report.bytes += bytes;
                self.report.add_flaw(path, bytes, None, format!("{what}; what is before it is imported"));
            }
            DocumentEnd::Complete { bytes } => self.report.bytes += bytes,
        }
        Ok(())
    }

    /// Ends the run of a host.
    fn finish(&mut self, run: HostRun<'_>) -> Result<(), ImportError> {
        self.report.totals.add(run.writer.finish()?);
        Ok(())
    }

    fn open(&self, path: &Path, budget: &ElementBudget) -> Result<LimitedInput, ImportError> {
        Ok(LimitedInput::new(self.job.progress.open(path)?, budget.clone()))
    }
}

/// The result of reading a document.
enum DocumentEnd {
    Complete { bytes: u64 },
    Failed { what: String, bytes: u64 },
    Stopped,
}

/// A consumer that opens its input and can stop reading.
trait DocumentReader: SarConsumer {
    /// Opens the input.
    fn open(&self, path: &Path, budget: &ElementBudget) -> Result<LimitedInput, ImportError>;

    /// Returns whether the consumer stopped reading.
    fn has_ended(&self) -> bool;
}

/// Reads a file to its end, or to the first damage. Also returns the tally of decimal commas.
fn read_document(
    path: &Path,
    consumer: &mut impl DocumentReader,
) -> Result<(DocumentEnd, Tally), ImportError> {
    let (budget, line) = (ElementBudget::new(), LineNumber::new());
    let input = BufReader::with_capacity(BUFFER_BYTES, consumer.open(path, &budget)?);
    let mut text = SarText::new(input, line.clone());
    let mut json = serde_json::Deserializer::from_reader(&mut text);
    let result = SarDocument { consumer, budget, line }.deserialize(&mut json).and_then(|()| json.end());
    let input = text.input();
    let bytes = input.get_ref().bytes();
    let Err(error) = result else { return Ok((DocumentEnd::Complete { bytes }, text.commas)) };
    if consumer.has_ended() {
        return Ok((DocumentEnd::Stopped, text.commas));
    }
    let (line, column) = (error.line(), error.column());
    if error.is_io() {
        let error = std::io::Error::from(error);
        let is_damage = input.get_ref().input.is_damage(&error) || LimitedInput::is_too_long(&error);
        if !is_damage {
            return Err(ImportError::read(path)(error));
        }
        let what = format!("line {line}, column {column}: {error}");
        return Ok((DocumentEnd::Failed { what, bytes }, text.commas));
    }
    // The message of the error already contains line and column.
    Ok((DocumentEnd::Failed { what: error.to_string(), bytes }, text.commas))
}

/// Finds the groups of each host.
struct GroupFinder<'i, 'a, 's, 'w> {
    hosts: Vec<SarGroups>,
    skipped: u64, // statistics of further hosts
    is_stopped: bool,
    importer: &'i mut SarImporter<'a, 's, 'w>,
}

impl SarConsumer for GroupFinder<'_, '_, '_, '_> {
    fn statistics(&mut self, host: &SarHost, entry: &SarValue, _line: u64) -> bool {
        while self.hosts.len() <= host.number.min(HOSTS_MAX - 1) {
            self.hosts.push(SarGroups::default());
        }
        match self.hosts.get_mut(host.number) {
            Some(groups) => groups.add(entry),
            None => self.skipped += 1,
        }
        self.is_stopped = !self.importer.job.progress.should_continue(self.importer.frames);
        !self.is_stopped
    }

    fn other(&mut self, _what: &str, _count: u64) {}
}

impl DocumentReader for GroupFinder<'_, '_, '_, '_> {
    fn open(&self, path: &Path, budget: &ElementBudget) -> Result<LimitedInput, ImportError> {
        self.importer.open(path, budget)
    }

    fn has_ended(&self) -> bool {
        self.is_stopped
    }
}

/// The run of a host that is being written.
struct HostRun<'s> {
    number: usize,
    writer: RunWriter<'s>,
    sources: BTreeMap<String, u16>,
}

/// Writes the samples of each host.
struct HostWriter<'i, 'a, 's, 'w> {
    path: &'i Path,
    hosts: &'i [SarGroups],
    run: Option<HostRun<'s>>,
    clock: SarClock,
    importer: &'i mut SarImporter<'a, 's, 'w>,
    payload: PayloadBuilder,
    error: Option<ImportError>,
}

impl SarConsumer for HostWriter<'_, '_, '_, '_> {
    fn statistics(&mut self, host: &SarHost, entry: &SarValue, line: u64) -> bool {
        if let Err(error) = self.write(host, entry, line) {
            self.error = Some(error);
            return false;
        }
        let goes_on = self.importer.job.progress.should_continue(self.importer.frames);
        if !goes_on {
            self.error = Some(ImportError::Stopped);
        }
        goes_on
    }

    fn other(&mut self, what: &str, count: u64) {
        let what = if what == "restarts" { "restarts of the host" } else { "comments" };
        for _ in 0..count {
            self.importer.report.count_skipped(what);
        }
    }
}

impl DocumentReader for HostWriter<'_, '_, '_, '_> {
    fn open(&self, path: &Path, budget: &ElementBudget) -> Result<LimitedInput, ImportError> {
        self.importer.open(path, budget)
    }

    fn has_ended(&self) -> bool {
        self.error.is_some()
    }
}

impl HostWriter<'_, '_, '_, '_> {
    fn write(&mut self, host: &SarHost, entry: &SarValue, line: u64) -> Result<(), ImportError> {
        let Some(groups) = self.hosts.get(host.number) else { return Ok(()) };
        self.begin_host(host)?;
        let wall_ns = match self.clock.instant(host, entry, line) {
            Ok(wall_ns) => wall_ns,
            Err(what) => {
                let what = format!("line {line}: {what}; skipped");
                self.importer.report.add_flaw(self.path, 0, Some(1), what);
                return Ok(());
            }
        };
        let Some(run) = &mut self.run else { return Ok(()) };
        for found in groups_of(entry) {
            let Some(group) = groups.get(&found.name) else { continue };
            let source = if let Some(source) = run.sources.get(&found.name) {
                *source
            } else {
                let (schema, root) = group.schema(&found.name).map_err(|error| ImportError::Kind {
                    path: self.path.to_owned(),
                    what: format!("{}: {error}", found.name),
                })?;
                let labels = vec![("file".to_owned(), self.path.display().to_string())];
                let name = format!("sar-{}", found.name);
                let source =
                    run.writer.add_source(ImportSource { name, labels, root: root.to_owned(), schema })?;
                run.sources.insert(found.name.clone(), source);
                source
            };
            let mut misfits = Vec::new();
            let payload = group.payload(&found, &mut self.payload, &mut misfits);
            if !misfits.is_empty() {
                let (name, fields) = (&found.name, misfits.join(", "));
                let what = format!("line {line}, {name}: values of another kind are left out: {fields}");
                self.importer.report.add_flaw(self.path, 0, None, what);
            }
            if !run.writer.fits(payload.len()) {
                let what = format!("{}: {} bytes exceed the frame limit; skipped", found.name, payload.len());
                self.importer.report.add_flaw(self.path, 0, Some(1), what);
                continue;
            }
            self.importer.frames += 1;
            run.writer.append(source, wall_ns, payload.len(), |place| place.copy_from_slice(payload))?;
        }
        Ok(())
    }

    /// Begins the run of a host, unless this run is already open.
    fn begin_host(&mut self, host: &SarHost) -> Result<(), ImportError> {
        if self.run.as_ref().is_some_and(|run| run.number == host.number) {
            return Ok(());
        }
        if let Some(run) = self.run.take() {
            self.importer.finish(run)?;
        }
        let mut writer = RunWriter::begin(self.importer.job.storage, self.importer.job.limits.clone())?;
        let labels = [("release", &host.release), ("machine", &host.machine)];
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
        writer.set_host(HostName {
            name: host.name.clone(),
            machine_id: None,
            boot_id: None,
            labels: labels.map(|(name, value)| (name.to_owned(), value.clone())).collect(),
        });
        self.run = Some(HostRun { number: host.number, writer, sources: BTreeMap::new() });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
