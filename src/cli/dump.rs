//! `dump`: prints samples as rows, decoded with the schema in the file.

use std::io::Write;

use flatcap_format::replay::ReplayFilter;
use flatcap_query::Recording;

use super::error::CliError;
use super::rows::row_request::{Follow, RowArgs, RowOutput, RowRequest};
use super::selection::{RecordingSelection, known_sources};
use super::{ExitStatus, human, rows};

/// Time for which `--follow` continues after --until, for samples that are written late. By default
/// a sample is in the file after 15 ms, and a read of a blocking source may take a second.
const LATE_SAMPLES_NS: i64 = 2_000_000_000;

/// Print samples as rows, decoded with the schema in the file.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    selection: RecordingSelection,
    #[command(flatten)]
    rows: RowArgs,
    /// table: for people; jsonl: one object per row; csv: with a header line. Without --fields,
    /// jsonl prints whole samples, and csv prints the whole samples of one source. A table without
    /// --source is a digest of the recording.
    #[arg(long, value_enum, default_value_t = RowOutput::Table)]
    format: RowOutput,
    /// Show counters as change per second since the previous sample.
    #[arg(long)]
    rate: bool,
    /// Continue while the recording grows, until a signal. With --until, continue up to 2 s after
    /// that time, for samples that are written late.
    #[arg(long)]
    follow: bool,
}

impl Args {
    /// Returns the arguments of a dump that prints this selection in a format for programs.
    pub(super) fn of_selection(selection: RecordingSelection, rows: RowArgs, format: RowOutput) -> Self {
        Self { selection, rows, format, rate: false, follow: false }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let zone = args.selection.zone.zone()?;
    let filter = args.selection.filter(&zone)?;
    let recording = Recording::open_with_added_sources(&args.selection.paths)?;
    let has_schema =
        |name: &str| recording.sources().iter().any(|source| source.name == name && source.has_schema());
    // The samples of a computed source are not in any file.
    let is_computed =
        |name: &String| recording.sources().iter().any(|source| source.name == *name && source.is_computed);
    let are_fields_asked = args.rows.are_given()
        || (args.format != RowOutput::Table && filter.sources.iter().any(is_computed))
        || (args.format == RowOutput::Csv && filter.sources.len() > 1);
    // If no segment can be read, there are no sources. In this case, the samples are read anyway,
    // so that the reader reports the reason. Payloads without a schema have only one field.
    let have_no_schema = recording.sources().iter().all(|source| !source.has_schema());
    let request = || RowRequest {
        selection: &args.selection,
        filter: filter.clone(),
        zone: zone.clone(),
        args: &args.rows,
        fields: args.rows.fields.clone().map(|list| list.0).unwrap_or_default(),
        output: args.format,
        is_rate: args.rate,
        is_long: args.rows.long,
        is_turned: false,
        follow: match (args.follow, follow_end_ns(&filter)) {
            (false, _) => Follow::No,
            (true, None) => Follow::ToSignal,
            (true, Some(end_ns)) => Follow::Until(end_ns),
        },
    };
    if recording.sources().is_empty() || (have_no_schema && !args.rows.are_given()) {
        return whole_samples(&recording, &request(), out);
    }
    if are_fields_asked {
        return rows::run(&request(), out);
    }
    if args.format != RowOutput::Table || args.follow {
        return whole_samples(&recording, &request(), out);
    }
    let mut named = filter.sources.iter();
    match (named.next(), named.next()) {
        (Some(one), None) if has_schema(one) => rows::source_table::print(request(), one, out),
        (Some(_), None) => whole_samples(&recording, &request(), out),
        _ => rows::digest::print(&request(), out),
    }
}

/// Prints whole samples.
fn whole_samples(
    recording: &Recording,
    request: &RowRequest<'_>,
    out: &mut dyn Write,
) -> Result<ExitStatus, CliError> {
    // The list of sources is needed only for columns. JSON lines have no columns, so the sources
    // are not read for them.
    let has_one_source = request.output == RowOutput::Jsonl
        || has_one_source(request.selection, request.filter.sources.len())?;
    if request.output == RowOutput::Csv {
        if request.follow != Follow::No {
            let why =
                "--follow: the columns of csv must be known before the first row; use jsonl, or --fields";
            return Err(CliError::Usage(why.to_owned()));
        }
        if !has_one_source {
            let known = known_sources(&request.selection.paths)?;
            let known = human::escaped_list(&known);
            let why = format!(
                "csv needs sources or fields: name them with --source or --fields; these recordings have {known}"
            );
            return Err(CliError::Usage(why));
        }
    }
    rows::samples(recording, request, has_one_source, out)
}

/// Returns whether all rows belong to one source. If so, they have the same columns.
fn has_one_source(selection: &RecordingSelection, selected: usize) -> Result<bool, CliError> {
    Ok(selected == 1 || (selected == 0 && !selection.have_several_sources()?))
}

/// Returns the wall time at which `--follow` ends; `None` if only a signal ends it.
fn follow_end_ns(filter: &ReplayFilter) -> Option<i64> {
    let from_start = filter.elapsed.as_ref().filter(|elapsed| elapsed.ns.end < u64::MAX);
    let from_start = from_start.map(|elapsed| elapsed.start.wall_ns.saturating_add_unsigned(elapsed.ns.end));
    filter.until_ns.or(from_start).map(|until_ns| until_ns.saturating_add(LATE_SAMPLES_NS))
}

#[cfg(test)]
mod tests {
    use flatcap_format::segment::{Elapsed, RecordingStart};

    use super::*;

    // Proves that a dump with `--follow` ends after --until, which is an absolute time or a time
    // relative to the start of the recording. Also proves that without --until only a signal ends
    // it.
    #[test]
    fn following_ends_after_the_wanted_time() {
        let start = RecordingStart { run_id: 1, boot_id: None, mono_ns: 5, wall_ns: 1_000 };
        let elapsed = |end| Some(Elapsed { start: start.clone(), ns: 0..end });
        let all = ReplayFilter::default();
        assert_eq!(follow_end_ns(&ReplayFilter { since_ns: Some(7), ..all.clone() }), None);
        assert_eq!(follow_end_ns(&ReplayFilter { elapsed: elapsed(u64::MAX), ..all.clone() }), None);
        let until = ReplayFilter { until_ns: Some(500), ..all.clone() };
        assert_eq!(follow_end_ns(&until), Some(500 + LATE_SAMPLES_NS));
        let until = ReplayFilter { elapsed: elapsed(30), ..all };
        assert_eq!(follow_end_ns(&until), Some(1_030 + LATE_SAMPLES_NS));
    }
}
