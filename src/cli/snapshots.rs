//! `snapshot` requests a snapshot. `snapshots` lists, shows, keeps and removes snapshots.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flatcap_format::schema::to_visible_json_lines;
use flatcap_os::directory_tree::DirectoryTree;
use flatcap_recorder::snapshot::{
    ListedSnapshot, SNAPSHOTS_NAME, SnapshotFolder, listed, read_record, set_kept,
};
use flatcap_text::quantity::duration_argument;
use serde::Serialize;

use super::error::CliError;
use super::recordings::{default_recordings, no_data_directory};
use super::remote::RecorderSocket;
use super::tables::table;
use super::zone_option::ZoneOption;
use super::{ExitStatus, human, print_json};
use flatcap_text::time_printer::TimePrinter;

/// Save the last seconds of every source at its own rate.
///
/// The snapshot contains what is in the ring of `[blackbox]`. The snapshot is a directory of
/// segments in `snapshots` of the data directory.
#[derive(Debug, clap::Args)]
pub(super) struct OrderArgs {
    /// How much time before now to save.
    #[arg(long, value_name = "DURATION", value_parser = duration_argument)]
    last: Duration,
    /// How much time after now to save, too, at most 10m [default: nothing].
    #[arg(long, value_name = "DURATION", value_parser = duration_argument)]
    after: Option<Duration>,
    /// The reason, as one line, which becomes part of the directory's name.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    recorder: RecorderSocket,
}

/// List the snapshots of a data directory, or show, keep or remove one.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The action: list all snapshots, show the details of one, keep one so that it is never
    /// removed for lack of space (--undo ends this), or remove one, even if it is kept.
    #[arg(value_name = "ACTION", value_enum, default_value_t = SnapshotAction::List)]
    action: SnapshotAction,
    /// The snapshot, by its listed name. The action list does not take one.
    #[arg(value_name = "NAME", required_if_eq_any([("action", "show"), ("action", "keep"), ("action", "remove")]))]
    name: Option<String>,
    /// With keep: the snapshot may be removed for lack of space again.
    #[arg(long)]
    undo: bool,
    /// Data directory [default: ./flatcap-data, else /var/lib/flatcap].
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// With list: print a JSON array of the snapshots.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    zone: ZoneOption,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SnapshotAction {
    List,
    Show,
    Keep,
    Remove,
}

/// A snapshot, for scripts.
#[derive(Debug, Serialize)]
struct SnapshotRow<'a> {
    name: &'a str,
    rule: Option<&'a str>,
    path: PathBuf,
    first_wall_ns: i64,
    last_wall_ns: i64,
    fired_wall_ns: i64,
    bytes: u64,
    complete: bool,
    kept: bool,
    reason: &'a str,
}

pub(super) fn order(args: &OrderArgs, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let answer =
        args.recorder.connect()?.snapshot(args.last, args.after.unwrap_or_default(), &args.reason)?;
    writeln!(out, "{answer}")?;
    Ok(ExitStatus::Done)
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    // Actions that change a snapshot also search the directory of the service, because the user
    // names the snapshot.
    let data_dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => default_recordings().into_iter().next().ok_or_else(no_data_directory)?,
    };
    let path = data_dir.join(SNAPSHOTS_NAME);
    let failed = |error: io::Error| CliError::Snapshots { path: path.clone(), error };
    let folder = match DirectoryTree::open_existing(&path) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
                && !data_dir.is_dir() =>
        {
            let place = data_dir.display();
            return Err(CliError::Usage(format!(
                "{place} is no directory: name a data directory with --dir"
            )));
        }
        // The directory of snapshots is created only when the data directory gets its first
        // snapshot.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        opened => Some(opened.map_err(failed)?),
    };
    let all = folder.as_ref().map_or_else(|| Ok(Vec::new()), |folder| listed(folder)).map_err(failed)?;
    let name = args.name.as_deref().unwrap_or_default();
    let found = all.iter().find(|snapshot| snapshot.name == name).ok_or_else(|| {
        CliError::Usage(format!("no snapshot {name} in {}; flatcap snapshots lists them", path.display()))
    });
    match (args.action, folder) {
        (SnapshotAction::List, _) if args.json => {
            let rows: Vec<SnapshotRow<'_>> = all.iter().map(|snapshot| row(snapshot, &path)).collect();
            print_json(&rows, out)?;
        }
        (SnapshotAction::List, _) if all.is_empty() => {
            let place = human::escaped(&data_dir.to_string_lossy()).into_owned();
            writeln!(
                io::stderr(),
                "flatcap: no snapshots in {place}; flatcap snapshot --last 10s orders one"
            )?;
        }
        (SnapshotAction::List, _) => print(&all, TimePrinter::new(args.zone.zone()?), out)?,
        (SnapshotAction::Show, _) | (_, None) => show(found?, &path, out)?,
        (SnapshotAction::Keep, Some(folder)) => {
            set_kept(&folder, &found?.name, !args.undo).map_err(failed)?;
        }
        (SnapshotAction::Remove, Some(folder)) => {
            SnapshotFolder::remove(&folder, &found?.name).map_err(failed)?;
        }
    }
    Ok(ExitStatus::Done)
}

/// Returns the time at which a snapshot was requested, if the only path is a snapshot. Users
/// usually want an explanation of this time.
pub(super) fn snapshot_time(paths: &[PathBuf]) -> Option<i64> {
    let [path] = paths else { return None };
    read_record(path).map(|record| record.fired_wall_ns)
}

/// Returns the names of the host's logs that are attached to a snapshot, if the only path is a
/// snapshot.
pub(super) fn attached_logs(paths: &[PathBuf]) -> Vec<String> {
    let [path] = paths else { return Vec::new() };
    let logs = read_record(path).map(|record| record.logs).unwrap_or_default();
    logs.into_iter().filter_map(|log| log.attachment).collect()
}

fn row<'a>(snapshot: &'a ListedSnapshot, path: &Path) -> SnapshotRow<'a> {
    let record = &snapshot.record;
    SnapshotRow {
        name: &snapshot.name,
        rule: record.rule.as_deref(),
        path: path.join(&snapshot.name),
        first_wall_ns: record.first_wall_ns,
        last_wall_ns: record.last_wall_ns,
        fired_wall_ns: record.fired_wall_ns,
        bytes: snapshot.bytes,
        complete: record.complete,
        kept: snapshot.is_kept,
        reason: &record.reason,
    }
}

fn print(all: &[ListedSnapshot], mut times: TimePrinter, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = table(["snapshot", "fired", "seconds", "size", "state", "reason"]);
    for snapshot in all {
        let record = &snapshot.record;
        let length_ns = record.last_wall_ns.saturating_sub(record.first_wall_ns);
        let state = match (record.complete, snapshot.is_kept) {
            (true, false) => "whole",
            (true, true) => "whole, kept",
            (false, false) => "part",
            (false, true) => "part, kept",
        };
        rows.add_row([
            human::escaped(&snapshot.name).into_owned(),
            times.microseconds(record.fired_wall_ns),
            format!("{:.1}", Duration::from_nanos(length_ns.unsigned_abs()).as_secs_f64()),
            human::bytes(snapshot.bytes),
            state.to_owned(),
            human::escaped(&record.reason).into_owned(),
        ]);
    }
    writeln!(out, "{}", rows.trim_fmt())
}

fn show(snapshot: &ListedSnapshot, path: &Path, out: &mut dyn Write) -> Result<(), CliError> {
    write!(out, "{}", to_visible_json_lines(&snapshot.record).map_err(io::Error::from)?)?;
    writeln!(out)?;
    let place = path.join(&snapshot.name).display().to_string();
    writeln!(io::stderr(), "flatcap: {}, {}", human::escaped(&place), human::bytes(snapshot.bytes))?;
    Ok(())
}
