//! Describes damaged ranges of a file, and keeps bounded lists of them.

/// A range of bytes that differ from the bytes that were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the damaged range in the file.
    pub offset: u64,
    /// The length of the damage in bytes, up to the next intact frame or the end of the file.
    pub length: u64,
    /// A short description of the damage.
    pub what: &'static str,
}

/// Maximum number of damaged ranges that are listed one by one. The limit is needed because a
/// hostile file may have a damaged range every twenty bytes.
const DAMAGE_KEPT_MAX: usize = 1000;
/// Description of the last range of a full list. This range covers all further damage.
const MORE_DAMAGE: &str = "more damage from here on, up to the last damaged place";

impl Damage {
    /// Appends this range to a list of bounded length, in the order of offsets. If the list is
    /// full, extends the last range of the list to the end of this range.
    pub(in crate::segment) fn add_to(self, list: &mut Vec<Self>) {
        let is_full = list.len() >= DAMAGE_KEPT_MAX;
        match list.last_mut().filter(|_| is_full) {
            Some(newest) => {
                let end = self.offset.saturating_add(self.length);
                newest.length = newest.length.max(end.saturating_sub(newest.offset));
                newest.what = MORE_DAMAGE;
            }
            None => list.push(self),
        }
    }
}
