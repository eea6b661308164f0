//! The effort of a test: enough for `cargo test`; everything, for which scripts/damage.sh has time;
//! or many minutes, for scripts/proofs.sh, which is run by hand.

/// Returns `full` if `FLATCAP_FULL` is set, else `quick`.
pub fn of<T>(quick: T, full: T) -> T {
    if std::env::var_os("FLATCAP_FULL").is_some() { full } else { quick }
}

/// Returns the number of random cases: `full` if `FLATCAP_FULL` is set, else `quick`, or a fifth of
/// it if `FLATCAP_BRIEF` is set, for emulated processors, which take twenty times as long.
pub fn cases(quick: u32, full: u32) -> u32 {
    let is_brief = std::env::var_os("FLATCAP_BRIEF").is_some();
    of(if is_brief { quick.div_ceil(5) } else { quick }, full)
}

/// Returns `long` if `FLATCAP_LONG` is set, else `quick`: for proofs that take many minutes.
pub fn by_hand<T>(quick: T, long: T) -> T {
    if std::env::var_os("FLATCAP_LONG").is_some() { long } else { quick }
}
