//! What the sources of streams are called.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::os::output::{numbered, plain_name};

/// One name a file, after the file's own, each another one: `a.bin` is `a`, a second `a`, or `a.bin.gz`, is `a-2`.
pub(super) fn of_files(files: &[PathBuf]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    files.iter().map(|file| numbered(&of_file(file), |name| taken.insert(name.to_owned()))).collect()
}

/// Whether a source may be called so: it then is the name of a file too, and an argument.
pub(super) fn is_valid(name: &str) -> bool {
    !name.is_empty() && plain_name(name) == name
}

fn of_file(file: &Path) -> String {
    if file == Path::new("-") {
        return "stdin".to_owned();
    }
    let is_packed = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
    let unpacked = if is_packed { file.with_extension("") } else { file.to_owned() };
    let name = plain_name(&unpacked.file_stem().unwrap_or_default().to_string_lossy());
    if name.is_empty() { "stream".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: whatever files are called, their sources have valid names, each another one. Method: odd names, repeated ones, and one that is
    // what a repeated one would be called.
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
        let names = of_files(&files.map(PathBuf::from));
        assert_eq!(names, ["a", "a-2", "a-2-2", "a-3", "stdin", "_hidden", "b_c_", "stream", "_x", "v1.2"]);
        assert!(names.iter().all(|name| is_valid(name)));
        let long = of_files(&[PathBuf::from("n".repeat(200))]);
        assert!(long[0].len() < 200 && is_valid(&long[0]));
        for name in ["", ".a", "-a", "a/b", "a b", "\u{e9}", "a\n"] {
            assert!(!is_valid(name), "{name:?}");
        }
    }
}
