//! `recover`: seals the segments of a crashed recorder, saves damaged bytes in separate files, and
//! reports losses.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flatcap_format::segment::{
    DirectoryRecovery, RecoverError, Recovered, SegmentError, SegmentFlaw, SegmentName,
};
use flatcap_format::storage::Storage;
use flatcap_os::shared_memory;
use flatcap_os::storage::DataDirectory;
use flatcap_slab::CrashedRun;
use serde::Serialize;

use super::error::CliError;
use super::recordings::{no_own_recordings, no_segments, own_recordings};
use super::{ExitStatus, human, print_json};
use crate::daemon::{DaemonError, crashed_runs, existing_ring, recover_all};

/// Recover the segments of a crashed recorder.
///
/// Seals the segments that the recorder left unsealed, without torn tails and damage. Removed bytes
/// and damaged files are kept in separate files. `record` does the same when it starts.
///
/// Sealed segments of a directory are not read: verify finds the damaged ones, and recover repairs
/// those that are given as arguments.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A directory, to recover all its unsealed segments; or one segment, sealed or not, to rewrite
    /// it without its damage [default: ./flatcap-data].
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Directory with the unwritten samples of killed runs; that of the service is /run/flatcap
    /// [default: the runtime directory of this user].
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Print what would be done, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct RecoverReport {
    sealed: Vec<PathBuf>,
    frames: u64,
    from_memory: u64,
    lost: u64,
    damage: Vec<SegmentFlaw>,
    set_aside: Vec<PathBuf>,
    failed: Vec<String>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let path = args.path.clone().or_else(own_recordings).ok_or_else(no_own_recordings)?;
    let is_directory = path.is_dir();
    let folder = if is_directory { path.as_path() } else { parent_directory(&path) };
    let segment = if is_directory { None } else { Some(segment_name(&path)?) };
    if segment.is_none() && !holds_segments(folder)? {
        // This is checked before the lock, so that no lock file is created in a foreign directory.
        return Err(no_segments(&[folder.to_owned()]));
    }
    let directory = DataDirectory::open_existing(folder).map_err(DaemonError::from)?;
    let mut report = RecoverReport::default();
    let storage: &dyn Storage = &directory;
    let completion = DirectoryRecovery { storage, skip_run: None, only: segment, dry_run: args.dry_run };
    let mut each = |name, result| report.add(folder, name, result);
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| SegmentError::Io { path, error }
    };
    let run_dir = args.run_dir.clone().unwrap_or_else(shared_memory::default_directory);
    if !args.dry_run {
        // If a directory cannot be read, the search below reports the error.
        let _is_looked_into = CrashedRun::remove_blank(&run_dir);
    }
    let crashed = match args.run_dir {
        Some(_) => named_crashed_runs(&run_dir, directory.identity()),
        None => crashed_runs(&run_dir, directory.identity(), None),
    };
    let dead = crashed.map_err(io(&run_dir))?;
    let ring = if dead.is_empty() { None } else { existing_ring(&run_dir, &directory)? };
    let ring = ring.as_ref().map(|ring| ring as &dyn Storage);
    recover_all(&completion, ring, dead, &mut each).map_err(io(folder))?;
    if args.json {
        print_json(&report, out)?;
    } else {
        print(&report, args.dry_run, out)?;
    }
    for failed in &report.failed {
        writeln!(io::stderr(), "flatcap: {failed}")?;
    }
    Ok(if !report.failed.is_empty() {
        ExitStatus::Failed
    } else if report.damage.is_empty() {
        ExitStatus::Done
    } else {
        ExitStatus::DataLoss
    })
}

/// Finds the crashed runs in a directory that the user named. It is an error if the directory is
/// missing or not trusted, because segments must not be sealed without the samples in this
/// directory.
fn named_crashed_runs(run_dir: &Path, directory: (u64, u64)) -> io::Result<Vec<CrashedRun>> {
    std::fs::metadata(run_dir)?;
    CrashedRun::find(run_dir, directory, None)
}

fn holds_segments(folder: &Path) -> Result<bool, CliError> {
    let names = flatcap_format::storage::file_names(folder)
        .map_err(|error| SegmentError::Io { path: folder.to_owned(), error })?;
    Ok(names
        .iter()
        .any(|name| SegmentName::parse(name).is_some() || SegmentName::parse_side_file(name).is_some()))
}

fn parent_directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Parses the name of a segment. Files with other names must not be changed.
fn segment_name(path: &Path) -> Result<SegmentName, CliError> {
    std::fs::metadata(path).map_err(|error| SegmentError::Io { path: path.to_owned(), error })?;
    let name = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
    name.ok_or_else(|| {
        CliError::Usage(format!(
            "{}: not the name of a segment (NNNNNNNNNN-YYYYMMDDTHHMMSSZ-RUN.bin or .bin.active); \
             recover changes only files that a recorder named",
            path.display()
        ))
    })
}

impl RecoverReport {
    fn add(&mut self, folder: &Path, name: SegmentName, result: Result<Recovered, RecoverError>) {
        match result {
            Ok(recovered) => {
                self.sealed.extend(recovered.sealed.map(|name| folder.join(name)));
                self.frames += recovered.frames;
                self.from_memory += recovered.from_memory;
                self.lost = self.lost.saturating_add(recovered.lost);
                self.damage.extend(recovered.damage.into_iter().map(|damage| SegmentFlaw {
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

fn print(report: &RecoverReport, dry_run: bool, out: &mut dyn Write) -> io::Result<()> {
    for damage in &report.damage {
        let (path, size) = (damage.path.display(), human::bytes(damage.length));
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
        return writeln!(out, "nothing to recover: no unsealed segment; name a damaged file to repair it");
    }
    let (sealed, frames, rescued, lost) =
        (report.sealed.len(), report.frames, report.from_memory, report.lost);
    writeln!(
        out,
        "{sealed} segment(s) {would}sealed with {frames} frames, {rescued} of them rescued; {lost} lost"
    )
}
