//! The effort of a test: enough for `cargo test`; everything, for which scripts/damage.sh has time;
//! or many minutes, for scripts/proofs.sh, which is run by hand.

/// Returns `full` if `FLATCAP_FULL` is set, else `quick`.
pub fn of<T>(quick: T, full: T) -> T {
    if std::env::var_os("FLATCAP_FULL").is_some() { full } else { quick }
}

/// Returns `long` if `FLATCAP_LONG` is set, else `quick`: for proofs that take many minutes.
pub fn by_hand<T>(quick: T, long: T) -> T {
    if std::env::var_os("FLATCAP_LONG").is_some() { long } else { quick }
}
