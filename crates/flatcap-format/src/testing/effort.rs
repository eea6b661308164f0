//! The effort of a test. There are three levels. The lowest level is for `cargo test`. The full
//! level is for scripts/damage.sh. The highest level takes many minutes, and is for
//! scripts/proofs.sh, which people run by hand.

/// Returns `full` if `FLATCAP_FULL` is set, otherwise `quick`.
pub fn of<T>(quick: T, full: T) -> T {
    if std::env::var_os("FLATCAP_FULL").is_some() { full } else { quick }
}

/// Returns the number of random cases for a test. This is `full` if `FLATCAP_FULL` is set,
/// otherwise `quick`. If `FLATCAP_BRIEF` is set and `FLATCAP_FULL` is not, this is a fifth of
/// `quick`. `FLATCAP_BRIEF` is for emulated processors, on which tests take twenty times as long.
pub fn cases(quick: u32, full: u32) -> u32 {
    let is_brief = std::env::var_os("FLATCAP_BRIEF").is_some();
    of(if is_brief { quick.div_ceil(5) } else { quick }, full)
}

/// Returns `long` if `FLATCAP_LONG` is set, otherwise `quick`. This function is for proofs that
/// take many minutes.
pub fn by_hand<T>(quick: T, long: T) -> T {
    if std::env::var_os("FLATCAP_LONG").is_some() { long } else { quick }
}
