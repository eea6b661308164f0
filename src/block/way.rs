//! In which ways are frames packed? As the operator has chosen, for each source or for all.

use std::fmt;
use std::str::FromStr;

use super::codec::Codec;

/// How frames of a block lie in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One behind the other.
    Row,
    /// Those of one source and length lane by lane.
    Columnar,
}

/// A layout and the codec behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Way {
    /// How frames lie.
    pub layout: Layout,
    /// What packs the bytes of that.
    pub codec: Codec,
}

/// The ways of all frames of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ways {
    /// Of all frames that have no other.
    pub general: Way,
    /// Of some sources, by id. The first one of an id counts.
    pub sources: Vec<(u16, Way)>,
}

impl Default for Way {
    /// Columnar, with zstd at level 1: behind lanes, higher levels take far more time for little (docs/BENCHMARKS.md).
    fn default() -> Self {
        Self { layout: Layout::Columnar, codec: Codec::Zstd(1) }
    }
}

impl Ways {
    /// The way of a source's frames; none: frames that are of no source.
    pub(super) fn of(&self, source: Option<u16>) -> Way {
        let own = self.sources.iter().find(|(id, _)| Some(*id) == source);
        own.map_or(self.general, |(_, way)| *way)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Row => "row",
            Self::Columnar => "columnar",
        })
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "row" => Ok(Self::Row),
            "columnar" => Ok(Self::Columnar),
            _ => Err(format!("{text:?} is no layout; there are row and columnar")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_print() {
        // Goal: configuration and reports spell alike, and a wrong word names the right ones. Method: each there and back; wrong ones.
        for layout in [Layout::Row, Layout::Columnar] {
            assert_eq!(layout.to_string().parse(), Ok(layout));
        }
        let codecs = [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd(19), Codec::Brotli(0)];
        for codec in codecs {
            assert_eq!(codec.to_string().parse(), Ok(codec));
        }
        assert_eq!("zstd".parse(), Ok(Codec::Zstd(1)));
        assert!("rows".parse::<Layout>().unwrap_err().contains("row and columnar"));
        for wrong in ["zstd:0", "zstd:20", "zstd:", "brotli:12", "lz4:1", "none:0", "gzip", ""] {
            assert!(wrong.parse::<Codec>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_source_has_its_own_way_or_the_general_one() {
        // Goal: what was chosen for a source holds for it alone. Method: one source with a way, others without.
        let own = Way { layout: Layout::Row, codec: Codec::Lz4 };
        let ways = Ways { general: Way::default(), sources: vec![(3, own)] };
        assert_eq!(
            (ways.of(Some(3)), ways.of(Some(4)), ways.of(None)),
            (own, Way::default(), Way::default())
        );
    }
}
