//! Bytes that are not what was written, and bounded lists of them.

/// Bytes that are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub offset: u64,
    /// How many bytes, up to the next intact frame or the end.
    pub length: u64,
    /// What is wrong, in a few words.
    pub what: &'static str,
}

/// Most places of damage that are kept one by one: a hostile file may have one every twenty bytes.
const DAMAGE_KEPT_MAX: usize = 1000;
/// What the last place is once there are more.
const DAMAGE_GOES_ON: &str = "more damage from here on, up to the last damaged place";

impl Damage {
    /// Adds it to a list of bounded length, in the order of offsets: the last place grows over what the list does not take.
    pub(super) fn add_to(self, kept: &mut Vec<Self>) {
        let is_full = kept.len() >= DAMAGE_KEPT_MAX;
        match kept.last_mut().filter(|_| is_full) {
            Some(last) => {
                let end = self.offset.saturating_add(self.length);
                last.length = last.length.max(end.saturating_sub(last.offset));
                last.what = DAMAGE_GOES_ON;
            }
            None => kept.push(self),
        }
    }
}
