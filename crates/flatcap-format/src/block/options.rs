//! Compression options. They consist of a layout and a codec, for single sources or for all
//! sources.

use std::fmt;
use std::str::FromStr;

use super::codec::{Codec, features_of_codec};
use super::features::BlockFeatures;

/// The layout of frames in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Frames are concatenated.
    Row,
    /// Frames of one source and length are stored column by column.
    Columnar,
}

/// A layout and the codec that compresses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompressionOptions {
    /// The layout of frames.
    pub layout: Layout,
    /// The codec.
    pub codec: Codec,
}

/// The compression options of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceCompression {
    /// The options of frames without a source, and of sources that `sources` does not contain.
    pub general: CompressionOptions,
    /// Options of some sources, by id. If an id has several entries, the first one is used.
    pub sources: Vec<(u16, CompressionOptions)>,
}

impl Default for CompressionOptions {
    /// Returns the columnar layout with zstd:1. After columnar encoding, zstd:3 saves less than 1
    /// %, and higher levels take much more time.
    fn default() -> Self {
        Self { layout: Layout::Columnar, codec: Codec::Zstd(1) }
    }
}

impl CompressionOptions {
    /// Returns the features that blocks with these options may have.
    fn features(self) -> BlockFeatures {
        let of_layout = match self.layout {
            Layout::Row => BlockFeatures::ROWS,
            // Any column may turn out to be noise that the numeric codec makes smaller.
            Layout::Columnar => BlockFeatures::ROWS.and(BlockFeatures::COLUMNS).and(BlockFeatures::ALL),
        };
        of_layout.and(features_of_codec(self.codec.number()))
    }
}

impl SourceCompression {
    /// Returns the features that blocks with these options may have.
    pub fn features(&self) -> BlockFeatures {
        let of_sources = self.sources.iter().map(|(_, options)| options.features());
        of_sources.fold(self.general.features(), BlockFeatures::and)
    }

    /// Returns the options of a source's frames. `None` means frames without a source.
    pub(super) fn options_of(&self, source: Option<u16>) -> CompressionOptions {
        let own = self.sources.iter().find(|(id, _)| Some(*id) == source);
        own.map_or(self.general, |(_, options)| *options)
    }
}

impl Layout {
    /// All layouts.
    pub const ALL: &'static [Self] = &[Self::Row, Self::Columnar];

    /// Returns the name of the layout in settings and arguments.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::Columnar => "columnar",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let layout = Self::ALL.iter().find(|layout| layout.name() == text);
        layout.copied().ok_or_else(|| format!("{text:?} is not a layout; use row or columnar"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_print() {
        // Proves that layouts and codecs parse as they print, and that errors name the valid
        // values.
        for layout in Layout::ALL {
            assert_eq!(layout.to_string().parse(), Ok(*layout));
        }
        let codecs = [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd(19), Codec::Brotli(0)];
        for codec in codecs {
            assert_eq!(codec.to_string().parse(), Ok(codec));
        }
        assert_eq!("zstd".parse(), Ok(Codec::Zstd(1)));
        assert!("rows".parse::<Layout>().unwrap_err().contains("row or columnar"));
        for wrong in ["zstd:0", "zstd:20", "zstd:", "brotli:12", "lz4:1", "none:0", "gzip", ""] {
            assert!(wrong.parse::<Codec>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_source_has_its_own_options_or_the_general_ones() {
        // Proves that the options of a source apply to this source only.
        let own = CompressionOptions { layout: Layout::Row, codec: Codec::Lz4 };
        let compression =
            SourceCompression { general: CompressionOptions::default(), sources: vec![(3, own)] };
        assert_eq!(
            (compression.options_of(Some(3)), compression.options_of(Some(4)), compression.options_of(None)),
            (own, CompressionOptions::default(), CompressionOptions::default())
        );
    }
}
