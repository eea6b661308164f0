//! How much a test tries: enough for `cargo test`, or everything there is, which scripts/damage.sh has time for.

/// The second of these where `FLATCAP_FULL` is set, else the first.
pub(crate) fn of<T>(quick: T, full: T) -> T {
    if std::env::var_os("FLATCAP_FULL").is_some() { full } else { quick }
}
