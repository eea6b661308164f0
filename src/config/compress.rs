//! Sources that are compressed differently from the others.

use std::fmt;
use std::str::FromStr;

use flatcap_format::block::{Codec, Layout};
use flatcap_sampling::SourceSpec;
use flatcap_sampling::sources::find;

use super::instance_name::is_instance_name;

/// Maximum number of sources for which a codec or layout is configured.
pub const COMPRESS_SOURCES_MAX: usize = 256;

/// The compression of one source. It is written as `NAME=CODEC/LAYOUT`, or as `NAME=CODEC` for the
/// general layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceCompressionConfig {
    /// The full name of the source, as in `info`.
    pub name: String,
    /// Codec of the source's blocks.
    pub codec: Codec,
    /// Layout of the source's frames in a block; `None` for the general layout.
    pub layout: Option<Layout>,
}

impl FromStr for SourceCompressionConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, way) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("{text:?} is not NAME=CODEC/LAYOUT, such as process=zstd:9/row"))?;
        // If no layout is given for a source, the general layout applies, even if a later text
        // changes the general layout.
        let (codec, layout) = match way.split_once('/') {
            Some((codec, layout)) => (codec, Some(layout.parse::<Layout>()?)),
            None => (way, None),
        };
        Ok(Self { name: name.to_owned(), codec: codec.parse()?, layout })
    }
}

impl fmt::Display for SourceCompressionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.codec)?;
        self.layout.map_or(Ok(()), |layout| write!(f, "/{layout}"))
    }
}

impl SourceCompressionConfig {
    /// Returns whether a configuration can have a source of this name.
    pub(super) fn names_a_source(&self) -> bool {
        // The instance need not exist yet, because another text may define it, and `compress` is
        // read before the sources.
        match self.name.split_once('.') {
            None => find(&self.name).is_some_and(|spec| !spec.has_instances()),
            Some((name, instance)) => {
                find(name).is_some_and(SourceSpec::has_instances) && is_instance_name(instance)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a setting is printed as it was parsed, and that an invalid one is rejected with a
    // reason.
    #[test]
    fn source_compression_is_parsed() {
        for text in ["cpu=zstd:3/row", "file.raid=none", "process=brotli:11/columnar"] {
            let way: SourceCompressionConfig = text.parse().unwrap();
            assert_eq!((way.to_string().as_str(), way.names_a_source()), (text, true));
        }
        for text in ["imported=lz4", "file=lz4", "cpu.x=lz4", "file.A b=lz4", "command.=lz4"] {
            assert!(!text.parse::<SourceCompressionConfig>().unwrap().names_a_source(), "{text}");
        }
        for (text, what) in [
            ("cpu", "is not NAME=CODEC/LAYOUT"),
            ("=zstd", "is not NAME=CODEC/LAYOUT"),
            ("cpu=zstd:20", "from 1 to 19"),
            ("cpu=gzip", "is not a codec"),
            ("cpu=lz4/rows", "is not a layout"),
            ("cpu=lz4/", "is not a layout"),
        ] {
            let told = text.parse::<SourceCompressionConfig>().unwrap_err();
            assert!(told.contains(what), "{text}: {told}");
        }
    }
}
