//! Names of the causes of a gap. People and other formats use these names.

use std::fmt;

/// Names of the bits of `GapCause` (schemas/segment.fbs), the lowest bit first.
const NAMES: [&str; 10] = [
    "queue_full",
    "pool_empty",
    "too_large",
    "read_failed",
    "storage",
    "crash",
    "damaged",
    "timed_out",
    "not_received",
    "thinned",
];

/// A set of causes of a gap. The set is displayed as names joined by `+`, or as `unknown` if no
/// cause is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GapCauseNames(pub u32);

impl fmt::Display for GapCauseNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names =
            NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1).map(|(_, name)| name);
        match names.next() {
            None => f.write_str("unknown"),
            Some(first) => {
                f.write_str(first)?;
                names.try_for_each(|name| write!(f, "+{name}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::segment::GapCause;

    // Proves that each cause in the schema has a name, and that a set is displayed with all of its
    // causes.
    #[test]
    fn causes_have_names() {
        let name = |cause: GapCause| GapCauseNames(cause.bits()).to_string();
        assert_eq!(GapCause::all().iter().count(), NAMES.len());
        assert_eq!(name(GapCause::PoolEmpty | GapCause::NotReceived), "pool_empty+not_received");
        assert_eq!(name(GapCause::empty()), "unknown");
    }
}
