//! The option `--symbols`.

use std::path::PathBuf;

/// Parses the value of `--symbols`, which must be an existing directory. It is not an error if
/// files are missing in that directory.
pub(super) fn symbol_directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_dir() {
        Ok(path)
    } else {
        Err("no such directory; name one with executables or debug files".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that only an existing directory is accepted.
    #[test]
    fn symbols_are_in_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(symbol_directory(folder.path().to_str().unwrap()), Ok(folder.path().to_owned()));
        assert!(symbol_directory(folder.path().join("missing").to_str().unwrap()).is_err());
    }
}
