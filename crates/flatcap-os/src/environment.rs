//! Environment variables of the process, for example variables that name directories created by the
//! service manager.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Returns the directory that this environment variable names. systemd separates several
/// directories by colons. If the variable names several directories, returns the first absolute
/// path.
pub fn directory(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).and_then(|list| first_absolute(&list))
}

fn first_absolute(list: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(list).find(|path| path.is_absolute())
}

/// Returns all variables whose names start with `prefix`.
pub fn variables(prefix: &str) -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(prefix.as_bytes())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a list yields its first absolute path, or nothing without an absolute path.
    #[test]
    fn lists_of_directories() {
        let first = |list: &str| first_absolute(OsStr::new(list));
        assert_eq!(first("/etc/flatcap"), Some("/etc/flatcap".into()));
        assert_eq!(first(":relative:/a:/b"), Some("/a".into()));
        assert_eq!((first(""), first("relative")), (None, None));
    }

    // Proves that variables are selected by the prefix of their names.
    #[test]
    fn variables_by_prefix() {
        let found = variables("CARGO_PKG_");
        assert!(found.iter().any(|(name, value)| name == "CARGO_PKG_NAME" && value == "flatcap-os"));
        assert!(found.iter().all(|(name, _)| name.as_bytes().starts_with(b"CARGO_PKG_")));
        assert!(variables("FLATCAP_NO_SUCH_VARIABLE_").is_empty());
    }
}
