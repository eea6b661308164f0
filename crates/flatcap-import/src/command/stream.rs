//! `import stream`.

use std::io::Write;
use std::path::PathBuf;

use crate::ImportError;
use crate::stream::{self, PayloadSchema};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use flatcap_format::frame::ENVELOPE_BYTES;
use flatcap_stream::ChecksumKind;

use super::{CommonArguments, ImportCommandError, ImportEnd, import};
use flatcap_text::quantity::size_argument;

/// Range of --frame-max in bytes. The bounds are the smallest and the largest limit that a reader
/// may set (docs/FORMAT.md, section 2).
const FRAME_MAX_RANGE: std::ops::RangeInclusive<u64> = (64 << 10)..=((1 << 30) - ENVELOPE_BYTES as u64);

/// Import streams of plain frames, as flatstream and flatcap's stream library write them: a length,
/// an optional checksum, and a payload.
///
/// Each file becomes a source; payloads are kept byte for byte.
#[derive(Debug, clap::Args)]
pub(super) struct StreamArguments {
    #[command(flatten)]
    common: CommonArguments,
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

/// The keyword that requests detection of the kind of checksum.
const AUTO: &str = "auto";

/// A kind of checksum; `None` if the kind is to be detected.
#[derive(Debug, Clone, Copy)]
struct DetectableChecksum(Option<ChecksumKind>);

/// Returns the parser of a checksum's name or `auto`.
fn checksum_or_auto() -> impl TypedValueParser<Value = DetectableChecksum> {
    let names = ChecksumKind::ALL.iter().map(|kind| kind.name());
    PossibleValuesParser::new(std::iter::once(AUTO).chain(names))
        .map(|name| DetectableChecksum(name.parse().ok()))
}

fn frame_max(text: &str) -> Result<u64, String> {
    size_argument(text, &FRAME_MAX_RANGE)
}

pub(super) fn run(args: &StreamArguments, out: &mut dyn Write) -> Result<ImportEnd, ImportCommandError> {
    let schema = match &args.schema {
        None => None,
        Some(path) => {
            let schema =
                std::fs::read(path).map_err(|error| ImportError::Read { path: path.clone(), error })?;
            Some(PayloadSchema { path: path.clone(), schema, root: args.root.clone() })
        }
    };
    let options = stream::StreamOptions { checksum: args.checksum.0, schema, names: args.names.clone() };
    let importer = |files: &[PathBuf], mut job: crate::ImportJob<'_, '_>| {
        job.limits.frame_max = u32::try_from(args.frame_max + ENVELOPE_BYTES as u64).unwrap_or(u32::MAX);
        stream::import(files, &options, job)
    };
    import(&args.common, importer, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each name is parsed as its checksum, that auto means no fixed checksum, and that
    // other words are rejected.
    #[test]
    fn names_are_checksums() {
        let command = clap::Command::new("test");
        let parsed = |word: &str| checksum_or_auto().parse_ref(&command, None, word.as_ref());
        for kind in ChecksumKind::ALL {
            assert_eq!(parsed(kind.name()).unwrap().0, Some(*kind));
        }
        assert_eq!(parsed(AUTO).unwrap().0, None);
        for word in ["md5", ""] {
            assert!(parsed(word).is_err(), "{word}");
        }
    }
}
