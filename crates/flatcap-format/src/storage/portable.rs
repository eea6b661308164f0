//! Opens files on systems other than Linux.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Opens a regular file for reading by its path.
///
/// # Errors
/// The file is of another kind, or any error of the underlying system call.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // The kind is checked before the file is opened, because opening a FIFO would wait for a
    // writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "is not a regular file"));
    }
    File::open(path)
}

/// Returns the names of the files in a directory, in no particular order. Skips names that are not
/// UTF-8, because flatcap does not create files with such names.
///
/// # Errors
/// Returns any error of the underlying system call.
pub fn file_names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}
