//! Compression options by source name, because source ids differ between segments.

use flatcap_format::block::{CompressionOptions, SourceCompression};
use flatcap_format::segment::SegmentHeader;

/// The compression options of all segments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamedSourceCompression {
    /// Options for the frames of sources that are not in the list `sources`, and for frames that
    /// belong to no source.
    pub general: CompressionOptions,
    /// Options of some sources, by full name. If a name occurs twice, its first entry is used.
    pub sources: Vec<(String, CompressionOptions)>,
}

impl NamedSourceCompression {
    /// Returns the options for the segment with this header.
    pub fn for_segment(&self, header: &SegmentHeader) -> SourceCompression {
        let options =
            |name: &str| self.sources.iter().find(|(known, _)| known == name).map(|(_, options)| *options);
        let sources = header.sources.iter().filter_map(|source| Some((source.id, options(&source.name)?)));
        SourceCompression { general: self.general, sources: sources.collect() }
    }
}
