//! In which ways is a segment packed? Sources are chosen by name, and have other ids in each segment.

use crate::block::{Way, Ways};
use crate::segment::Header;

/// The ways of all segments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamedWays {
    /// Of all frames that have no other.
    pub general: Way,
    /// Of some sources, by full name. The first one of a name counts.
    pub sources: Vec<(String, Way)>,
}

impl NamedWays {
    /// The ways of the segment with this header.
    pub fn of(&self, header: &Header) -> Ways {
        let way = |name: &str| self.sources.iter().find(|(known, _)| known == name).map(|(_, way)| *way);
        let sources = header.sources.iter().filter_map(|source| Some((source.id, way(&source.name)?)));
        Ways { general: self.general, sources: sources.collect() }
    }
}
