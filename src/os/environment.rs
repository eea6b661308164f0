//! What was the process given to go by? Directories that the service manager made, and variables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The directory in this variable: of several, which systemd gives as a list with colons, the first that is absolute.
pub fn directory(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).and_then(|list| first_absolute(&list))
}

fn first_absolute(list: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(list).find(|path| path.is_absolute())
}

/// Every variable whose name begins with `prefix`, as it is.
pub fn variables(prefix: &str) -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(prefix.as_bytes())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a list gives its first usable path, and nothing where there is none. Method: by hand.
    #[test]
    fn lists_of_directories() {
        let first = |list: &str| first_absolute(OsStr::new(list));
        assert_eq!(first("/etc/flatcap"), Some("/etc/flatcap".into()));
        assert_eq!(first(":relative:/a:/b"), Some("/a".into()));
        assert_eq!((first(""), first("relative")), (None, None));
    }

    // Goal: variables are chosen by the beginning of their names. Method: what cargo sets for every test.
    #[test]
    fn variables_by_prefix() {
        let found = variables("CARGO_PKG_");
        assert!(found.iter().any(|(name, value)| name == "CARGO_PKG_NAME" && value == "flatcap"));
        assert!(found.iter().all(|(name, _)| name.as_bytes().starts_with(b"CARGO_PKG_")));
        assert!(variables("FLATCAP_NO_SUCH_VARIABLE_").is_empty());
    }
}
