//! The output of an export that has only one output. It is standard output, or a file that gets its
//! name when it is complete.

use std::io::{self, BufWriter, Seek, SeekFrom, Stdout, Write};
use std::path::{Path, PathBuf};

use flatcap_format::storage::linux::{OpenPendingFile, OutputDirectory};

use crate::error::ColumnarError;
use crate::request::ColumnarFile;

/// Number of bytes that are collected before a write.
const BUFFER_BYTES: usize = 256 << 10;

/// The destination of the bytes.
#[derive(Debug)]
pub(crate) enum SingleOutput {
    Stdout(BufWriter<Stdout>),
    File { path: PathBuf, directory: OutputDirectory, file: BufWriter<OpenPendingFile> },
}

impl SingleOutput {
    /// Begins the file at `path`. Without a path, uses standard output.
    ///
    /// # Errors
    /// Returns `Exists` or `Write`. Returns `Usage` if the path does not name a file.
    pub(crate) fn create(path: Option<&Path>, should_replace: bool) -> Result<Self, ColumnarError> {
        let Some(path) = path else {
            return Ok(Self::Stdout(BufWriter::with_capacity(BUFFER_BYTES, io::stdout())));
        };
        let failed = |error| ColumnarError::Write { path: path.to_owned(), error };
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            ColumnarError::Usage(format!(
                "--output {}: name a file, or - for standard output",
                path.display()
            ))
        })?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = OutputDirectory::create(parent.unwrap_or(Path::new("."))).map_err(failed)?;
        // This check only lets the export fail early. The same check is made again when the file is
        // renamed.
        if !should_replace && directory.contains(name) {
            return Err(ColumnarError::Exists { path: path.to_owned() });
        }
        let pending = directory.begin_open(name.to_owned()).map_err(failed)?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, pending);
        Ok(Self::File { path: path.to_owned(), directory, file })
    }

    /// Returns the error of a failed write.
    pub(crate) fn failed(&self, error: io::Error) -> ColumnarError {
        match self {
            Self::Stdout(_) => ColumnarError::Output(error),
            Self::File { path, .. } => ColumnarError::Write { path: path.clone(), error },
        }
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// `Output` or `Write`.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), ColumnarError> {
        self.write_all(bytes).map_err(|error| self.failed(error))
    }

    /// Flushes the output. A file is also synced and renamed to its final name. Returns the file.
    /// For standard output, returns only the number of rows.
    ///
    /// # Errors
    /// Returns `Output`, `Write`, `Exists` or `Publish`.
    pub(crate) fn complete(
        self,
        should_replace: bool,
        (source, rows): (Option<String>, u64),
    ) -> Result<Vec<ColumnarFile>, ColumnarError> {
        match self {
            Self::Stdout(mut out) => {
                out.flush()?;
                Ok(vec![ColumnarFile { source, path: PathBuf::from("-"), rows, bytes: 0 }])
            }
            Self::File { path, directory, file } => {
                let failed = |error| ColumnarError::Write { path: path.clone(), error };
                let pending = file.into_inner().map_err(|error| failed(error.into_error()))?;
                let bytes = pending.sync().map_err(failed)?;
                let published = pending.publish(should_replace).and_then(|()| directory.sync());
                published.map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => ColumnarError::Exists { path: path.clone() },
                    _ => ColumnarError::Publish { path: path.clone(), done: 0, error },
                })?;
                Ok(vec![ColumnarFile { source, path, rows, bytes }])
            }
        }
    }
}

impl Write for SingleOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[expect(clippy::disallowed_methods, reason = "forwards; the caller handles the count")]
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::File { file, .. } => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::File { file, .. } => file.flush(),
        }
    }
}

impl Seek for SingleOutput {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Stdout(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::File { file, .. } => file.seek(to),
        }
    }
}
