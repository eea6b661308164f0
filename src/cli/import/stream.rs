//! `import stream`.

use std::io::Write;
use std::path::PathBuf;

use super::{Common, import};
use crate::cli::Outcome;
use crate::cli::error::CliError;
use crate::config::{format_size, parse_size};
use crate::frame::ENVELOPE_BYTES;
use crate::import::ImportError;
use crate::import::stream::{self, Typed};
use crate::stream::ChecksumKind;

/// Least and most bytes that --frame-max can be: what a reader takes at least, and at most (docs/FORMAT.md, section 2).
const FRAME_MAX_RANGE: std::ops::RangeInclusive<u64> = (64 << 10)..=((1 << 30) - ENVELOPE_BYTES as u64);

/// Streams of plain frames, as flatstream and this program's library write them: a length, a checksum or none, a payload.
///
/// Each file becomes a source; payloads are kept byte for byte.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// The checksum in front of each payload. auto: tried out on the start of each file, which is refused where several fit or none.
    #[arg(long, value_enum, default_value_t = Checksum::Auto)]
    checksum: Checksum,
    /// Binary schema (.bfbs) of the payloads, kept in the recording. A payload that does not fit it is not imported. Without one payloads
    /// are opaque bytes.
    #[arg(long, value_name = "FILE.bfbs")]
    schema: Option<PathBuf>,
    /// Full name of the payloads' root table; without it the schema's own.
    #[arg(long, value_name = "NAME", requires = "schema")]
    root: Option<String>,
    /// What the source is called, in place of the file's name; for several files once for each, in their order.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Longest payload; longer ones are not imported. 64KiB to just below 1GiB.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = frame_max)]
    frame_max: u64,
}

/// Checksum kinds, and finding them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Checksum {
    Auto,
    None,
    Crc16,
    Crc32,
    Xxh3,
}

impl Checksum {
    fn kind(self) -> Option<ChecksumKind> {
        match self {
            Self::Auto => None,
            Self::None => Some(ChecksumKind::None),
            Self::Crc16 => Some(ChecksumKind::Crc16),
            Self::Crc32 => Some(ChecksumKind::Crc32),
            Self::Xxh3 => Some(ChecksumKind::Xxh3),
        }
    }
}

fn frame_max(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    let (least, most) = (format_size(*FRAME_MAX_RANGE.start()), format_size(*FRAME_MAX_RANGE.end()));
    let fitting = Some(bytes).filter(|bytes| FRAME_MAX_RANGE.contains(bytes));
    fitting.ok_or_else(|| format!("write a size from {least} to {most}"))
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let schema = match &args.schema {
        None => None,
        Some(path) => {
            let schema =
                std::fs::read(path).map_err(|error| ImportError::Read { path: path.clone(), error })?;
            Some(Typed { schema, root: args.root.clone() })
        }
    };
    let options = stream::Options { checksum: args.checksum.kind(), schema, names: args.names.clone() };
    let importer = |files: &[PathBuf], mut job: crate::import::Job<'_, '_>| {
        job.plan.frame_max = u32::try_from(args.frame_max + ENVELOPE_BYTES as u64).unwrap_or(u32::MAX);
        stream::import(files, &options, job)
    };
    import(&args.common, importer, out)
}
