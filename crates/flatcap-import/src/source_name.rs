//! Names of sources, each of which is imported from a whole file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use flatcap_os::file_name::{sanitized_name, unique_name};

use super::error::ImportError;

/// Returns a distinct name for each file, derived from the file's name. For example, `a.bin`
/// becomes `a`, and a second `a`, or `a.bin.gz`, becomes `a-2`. `nameless` is the name for a file
/// whose name has no letter.
pub(super) fn source_names(files: &[PathBuf], nameless: &str) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let name = |file: &PathBuf| source_name(file, nameless);
    files.iter().map(|file| unique_name(&name(file), |name| taken.insert(name.to_owned()))).collect()
}

/// Returns the names that a user gave, one per file.
///
/// # Errors
/// [`ImportError::Options`] if the number of names differs from the number of files, or if a name
/// is invalid or given twice.
pub(super) fn given_names(given: &[String], files: usize) -> Result<Vec<String>, ImportError> {
    if given.len() != files {
        let names = given.len();
        let what = format!(
            "--name: {names} name(s) for {files} file(s); give one for each, in their order, or none"
        );
        return Err(ImportError::Options(what));
    }
    let mut taken = BTreeSet::new();
    match given.iter().find(|name| !is_valid(name) || !taken.insert(name.as_str())) {
        None => Ok(given.to_vec()),
        Some(name) => Err(ImportError::Options(format!(
            "--name {name:?}: a name has 1 to 128 letters, digits, '.', '_' and '-', does not start with '.' or '-', and \
             is unique"
        ))),
    }
}

/// Returns whether a name is valid for a source. The name must also be usable as a file name and as
/// an argument.
fn is_valid(name: &str) -> bool {
    !name.is_empty() && sanitized_name(name) == name
}

fn source_name(file: &Path, nameless: &str) -> String {
    if file == Path::new("-") {
        return "stdin".to_owned();
    }
    let is_packed = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
    let unpacked = if is_packed { file.with_extension("") } else { file.to_owned() };
    let name = sanitized_name(&unpacked.file_stem().unwrap_or_default().to_string_lossy());
    if name.is_empty() { nameless.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that derived names are valid and distinct, whatever the names of the files are.
    #[test]
    fn names_are_valid_and_distinct() {
        let files = [
            "a.bin",
            "x/a.dat",
            "a-2",
            "a.bin.gz",
            "-",
            ".hidden",
            "b c\u{e9}.bin",
            "..",
            "-x.bin",
            "v1.2.bin",
        ];
        let names = source_names(&files.map(PathBuf::from), "stream");
        assert_eq!(names, ["a", "a-2", "a-2-2", "a-3", "stdin", "_hidden", "b_c_", "stream", "_x", "v1.2"]);
        assert!(names.iter().all(|name| is_valid(name)));
        let long = source_names(&[PathBuf::from("n".repeat(200))], "stream");
        assert!(long[0].len() < 200 && is_valid(&long[0]));
        for name in ["", ".a", "-a", "a/b", "a b", "\u{e9}", "a\n"] {
            assert!(!is_valid(name), "{name:?}");
        }
    }
}
