//! The verb `symbolize`. It names functions for `flatcap explain`, which does not contain the
//! libraries for symbolization.
//!
//! Each line of standard input is a JSON object that identifies a code location. Each output line
//! is a JSON object with the names of the functions at one code location. The output lines have the
//! order of the input lines.

use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;

use flatcap_format::schema::to_visible_json;
use flatcap_symbols::{BuildId, CodeLocation, CodeProcess, ObjectKey, ObjectKind, ObjectVersion, Symbolizer};
use serde::{Deserialize, Serialize};

use flatcap_export::ColumnarError;

/// Maximum length of a line, in bytes. A path has at most 4,096 bytes, and JSON may need six
/// characters per byte.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Name functions: read places as JSON lines, and write the names as JSON lines. Called by flatcap.
#[derive(Debug, clap::Args)]
pub(crate) struct SymbolizeArguments {
    /// Look for executables and debug files in this directory first; can be repeated.
    #[arg(long = "symbols", value_name = "DIR")]
    directories: Vec<PathBuf>,
}

/// A code location.
#[derive(Debug, Deserialize)]
struct PlaceObject {
    kind: ObjectKind,
    path: String,
    build_id: Option<String>,
    /// Size and time of modification of a file without a build id.
    version: Option<ObjectVersion>,
    /// The process, if no file backs the memory at this place.
    process: Option<CodeProcess>,
    offset: u64,
    #[serde(default)]
    is_return: bool,
    boot_id: Option<String>,
}

/// The names of the functions at a code location.
#[derive(Debug, Serialize)]
struct NamesObject {
    /// The names of the functions, the innermost function first.
    names: Vec<String>,
    /// Whether the names are names of functions. If not, they consist of file and offset.
    is_known: bool,
}

/// Reads code locations from `input` and writes the names of their functions to `out`.
///
/// # Errors
/// Returns `Usage` if a line does not identify a code location. The message contains the line
/// number. Returns `Output` if a write fails.
pub(crate) fn symbolize(
    arguments: &SymbolizeArguments,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), ColumnarError> {
    let mut symbolizer = Symbolizer::new(arguments.directories.clone());
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        if (&mut *input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let place: PlaceObject = serde_json::from_slice(&line)
            .map_err(|error| ColumnarError::Usage(format!("line {number} of standard input: {error}")))?;
        let (object, location) = place.parts();
        let found = symbolizer.names(&object, location);
        let answer = NamesObject { names: found.names, is_known: found.is_known };
        writeln!(out, "{}", to_visible_json(&answer).map_err(io::Error::from)?)?;
    }
    Ok(out.flush()?)
}

impl PlaceObject {
    fn parts(self) -> (ObjectKey, CodeLocation) {
        let build_id = self.build_id.as_deref().and_then(BuildId::from_hex);
        let PlaceObject { kind, path, version, process, boot_id, .. } = self;
        let object = ObjectKey { kind, path, build_id, version, process, boot_id };
        (object, CodeLocation { offset: self.offset, is_return: self.is_return })
    }
}
