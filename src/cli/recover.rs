//! `recover`: seals what a crash left, sets damaged bytes aside, says what was lost.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::CliError;
use super::{Outcome, text};
use crate::daemon::{DaemonError, memories, recover_all};
use crate::os::shared_memory;
use crate::os::storage::{self, DataDirectory, Storage};
use crate::segment::{Completion, RecoverError, Recovered, SegmentError, SegmentName};
use crate::slab::Rescue;

/// Seal what a crash left: torn tails are cut off and kept beside, damaged files are rewritten without what is damaged and
/// kept too. `record` does the same by itself when it starts.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A directory of segments: all that are unsealed; or one segment, sealed ones with damage in them too.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Where killed runs have left what was not written yet; the default is that of `record`.
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Say what would be done, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// One JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    sealed: Vec<PathBuf>,
    frames: u64,
    rescued: u64,
    lost: u64,
    damage: Vec<DamageRow>,
    set_aside: Vec<PathBuf>,
    failed: Vec<String>,
}

#[derive(Debug, Serialize)]
struct DamageRow {
    path: PathBuf,
    offset: u64,
    length: u64,
    what: String,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let is_directory = args.path.is_dir();
    let folder = if is_directory { args.path.as_path() } else { folder_of(&args.path) };
    let segment = if is_directory { None } else { Some(segment_of(&args.path)?) };
    if segment.is_none() && !holds_segments(folder)? {
        // Not even a lock file is left in a directory that is none of ours.
        return Err(CliError::NoSegments(vec![folder.to_owned()]));
    }
    let directory = DataDirectory::open_existing(folder).map_err(DaemonError::from)?;
    let mut report = Report::default();
    let storage: &dyn Storage = &directory;
    let completion = Completion { storage, spare_run: None, only: segment, dry_run: args.dry_run };
    let mut each = |name, result| report.add(folder, name, result);
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| SegmentError::Io { path, error }
    };
    let run_dir = args.run_dir.clone().unwrap_or_else(shared_memory::default_directory);
    if !args.dry_run {
        // What cannot be looked into is said by those that look for memory.
        let _is_looked_into = Rescue::remove_blank(&run_dir);
    }
    let dead = match args.run_dir {
        Some(_) => dead_runs(&run_dir, directory.identity()),
        None => memories(&run_dir, directory.identity(), None),
    };
    let dead = dead.map_err(io(&run_dir))?;
    recover_all(&completion, dead, &mut each).map_err(io(folder))?;
    if args.json {
        serde_json::to_writer(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&report, args.dry_run, out)?;
    }
    for failed in &report.failed {
        writeln!(io::stderr(), "flatcap: {failed}")?;
    }
    Ok(if !report.failed.is_empty() {
        Outcome::Failed
    } else if report.damage.is_empty() {
        Outcome::Done
    } else {
        Outcome::DataLoss
    })
}

/// What lies in a directory that was asked for by name: one that is not there or not to be believed is no reason to seal
/// without it.
fn dead_runs(run_dir: &Path, directory: (u64, u64)) -> io::Result<Vec<Rescue>> {
    std::fs::metadata(run_dir)?;
    Rescue::find(run_dir, directory, None)
}

fn holds_segments(folder: &Path) -> Result<bool, CliError> {
    let names =
        storage::names(folder).map_err(|error| SegmentError::Io { path: folder.to_owned(), error })?;
    Ok(names
        .iter()
        .any(|name| SegmentName::parse(name).is_some() || SegmentName::parse_aside(name).is_some()))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Only a file whose name parses in full is ours to change.
fn segment_of(path: &Path) -> Result<SegmentName, CliError> {
    std::fs::metadata(path).map_err(|error| SegmentError::Io { path: path.to_owned(), error })?;
    let name = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
    name.ok_or_else(|| {
        CliError::Usage(format!(
            "{}: not the name of a segment (NNNNNNNNNN-YYYYMMDDTHHMMSSZ-RUN.bin or .bin.active): \
             recover changes files, and only those that a recorder has named",
            path.display()
        ))
    })
}

impl Report {
    fn add(&mut self, folder: &Path, name: SegmentName, result: Result<Recovered, RecoverError>) {
        match result {
            Ok(recovered) => {
                self.sealed.extend(recovered.sealed.map(|name| folder.join(name)));
                self.frames += recovered.frames;
                self.rescued += recovered.rescued;
                self.lost = self.lost.saturating_add(recovered.lost);
                self.damage.extend(recovered.damage.into_iter().map(|damage| DamageRow {
                    path: folder.join(name.to_string()),
                    offset: damage.offset,
                    length: damage.length,
                    what: damage.what.to_owned(),
                }));
                self.set_aside.extend(recovered.set_aside.into_iter().map(|name| folder.join(name)));
            }
            Err(error) => self.failed.push(error.to_string()),
        }
    }
}

fn print(report: &Report, dry_run: bool, out: &mut dyn Write) -> io::Result<()> {
    for damage in &report.damage {
        let (path, size) = (damage.path.display(), text::bytes(damage.length));
        writeln!(out, "damage: {path} at {}, {size}: {}", damage.offset, damage.what)?;
    }
    let would = if dry_run { "would be " } else { "" };
    for path in &report.set_aside {
        writeln!(out, "{would}set aside: {}", path.display())?;
    }
    for path in &report.sealed {
        writeln!(out, "{would}sealed: {}", path.display())?;
    }
    if report.sealed.is_empty() && report.set_aside.is_empty() && report.failed.is_empty() {
        return writeln!(out, "nothing to recover: every segment is sealed");
    }
    let (sealed, frames, rescued, lost) = (report.sealed.len(), report.frames, report.rescued, report.lost);
    writeln!(
        out,
        "{sealed} segment(s) {would}sealed with {frames} frames, {rescued} of them rescued; {lost} lost"
    )
}
