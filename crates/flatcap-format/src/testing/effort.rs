//! The effort of a test: enough for `cargo test`, or everything, for which scripts/damage.sh has
//! time.

/// Returns `full` if `FLATCAP_FULL` is set, else `quick`.
pub fn of<T>(quick: T, full: T) -> T {
    if std::env::var_os("FLATCAP_FULL").is_some() { full } else { quick }
}
