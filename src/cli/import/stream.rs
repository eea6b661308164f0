//! `import stream`.

use std::io::Write;
use std::path::PathBuf;

use flatcap_format::frame::ENVELOPE_BYTES;
use flatcap_import::ImportError;
use flatcap_import::stream::{self, PayloadSchema};

use super::{ImportArgs, import};
use crate::cli::ExitStatus;
use crate::cli::checksum::{DetectableChecksum, checksum_or_auto};
use crate::cli::error::CliError;
use crate::config::size_argument;

/// Range of --frame-max in bytes. The bounds are the smallest and the largest limit that a reader
/// may set (docs/FORMAT.md, section 2).
const FRAME_MAX_RANGE: std::ops::RangeInclusive<u64> = (64 << 10)..=((1 << 30) - ENVELOPE_BYTES as u64);

/// Import streams of plain frames, as flatstream and flatcap's stream library write them: a length,
/// an optional checksum, and a payload.
///
/// Each file becomes a source; payloads are kept byte for byte.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: ImportArgs,
    /// Checksum before each payload. auto: detect from the start of each file; fails if none or
    /// several match.
    #[arg(long, value_parser = checksum_or_auto(), default_value = "auto")]
    checksum: DetectableChecksum,
    /// Binary schema (.bfbs) of the payloads, which is stored in the recording. Payloads that do
    /// not fit it are skipped. Without a schema, payloads are opaque bytes.
    #[arg(long, value_name = "FILE.bfbs")]
    schema: Option<PathBuf>,
    /// Full name of the payloads' root table; by default that of the schema.
    #[arg(long, value_name = "NAME", requires = "schema")]
    root: Option<String>,
    /// Name of the source, instead of the file name. With several files, repeat the option once per
    /// file, in the same order.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Limit on the length of a payload, from 64KiB to just below 1GiB. Larger payloads are
    /// skipped.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = frame_max)]
    frame_max: u64,
}

fn frame_max(text: &str) -> Result<u64, String> {
    size_argument(text, &FRAME_MAX_RANGE)
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let schema = match &args.schema {
        None => None,
        Some(path) => {
            let schema =
                std::fs::read(path).map_err(|error| ImportError::Read { path: path.clone(), error })?;
            Some(PayloadSchema { path: path.clone(), schema, root: args.root.clone() })
        }
    };
    let options = stream::StreamOptions { checksum: args.checksum.0, schema, names: args.names.clone() };
    let importer = |files: &[PathBuf], mut job: flatcap_import::ImportJob<'_, '_>| {
        job.limits.frame_max = u32::try_from(args.frame_max + ENVELOPE_BYTES as u64).unwrap_or(u32::MAX);
        stream::import(files, &options, job)
    };
    import(&args.common, importer, out)
}
