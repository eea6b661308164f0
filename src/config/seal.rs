//! How are closed segments packed, and what may that cost?

use std::fmt;
use std::str::FromStr;

use super::default;
use super::readout::is_instance_name;
use super::source::{CpuShare, SourceName};
use super::word::Word;
use crate::block::{Codec, Layout};

/// How closed segments are rewritten as compressed blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// Whether they are.
    pub enabled: bool,
    /// What packs them while they are recorded; none: they are recorded as they are.
    pub active: Option<Codec>,
    /// What makes the bytes fewer.
    pub codec: Codec,
    /// How frames lie in a block.
    pub layout: Layout,
    /// Bytes of frames in a block, 64 KiB to 16 MiB.
    pub block_size: usize,
    /// Most of a core that it may take, 0.1 % to 100 %.
    pub cpu_budget: CpuShare,
    /// Bytes a second that it may read and write, together, 64 KiB to 64 GiB.
    pub io_budget: u64,
    /// Sources that are packed in another way, at most [`SEAL_SOURCES_MAX`].
    pub sources: Vec<SealSource>,
}

/// Most sources that are packed in a way of their own.
pub const SEAL_SOURCES_MAX: usize = 256;

/// How one source is packed: `NAME=CODEC/LAYOUT`, or `NAME=CODEC` for the layout of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealSource {
    /// Its full name, as in `info`.
    pub name: String,
    /// What makes its bytes fewer.
    pub codec: Codec,
    /// How its frames lie in a block; none for the layout of all.
    pub layout: Option<Layout>,
}

impl FromStr for SealSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, way) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("{text:?} is not NAME=CODEC/LAYOUT, such as process=zstd:9/row"))?;
        let (codec, layout) = match way.split_once('/') {
            Some((codec, layout)) => (codec, Some(layout.parse::<Layout>()?)),
            None => (way, None),
        };
        Ok(Self { name: name.to_owned(), codec: codec.parse()?, layout })
    }
}

impl fmt::Display for SealSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.codec)?;
        self.layout.map_or(Ok(()), |layout| write!(f, "/{layout}"))
    }
}

impl SealSource {
    /// Whether a configuration can have a source of this name.
    pub(super) fn is_of_a_source(&self) -> bool {
        match self.name.split_once('.') {
            None => SourceName::find(&self.name).is_some_and(|name| !name.has_instances()),
            Some((name, instance)) => {
                SourceName::find(name).is_some_and(SourceName::has_instances) && is_instance_name(instance)
            }
        }
    }
}

impl Default for Seal {
    fn default() -> Self {
        Self {
            enabled: default::SEAL,
            active: default::SEAL_ACTIVE,
            codec: default::SEAL_CODEC,
            layout: default::SEAL_LAYOUT,
            block_size: usize::try_from(default::SEAL_BLOCK_SIZE).unwrap_or(usize::MAX),
            cpu_budget: default::SEAL_CPU_BUDGET,
            io_budget: default::SEAL_IO_BUDGET,
            sources: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what is written is read back, and what means nothing is told so. Method: by hand.
    #[test]
    fn ways_of_sources_are_read() {
        for text in ["cpu=zstd:3/row", "file.raid=none", "process=brotli:11/columnar"] {
            let way: SealSource = text.parse().unwrap();
            assert_eq!((way.to_string().as_str(), way.is_of_a_source()), (text, true));
        }
        for text in ["imported=lz4", "file=lz4", "cpu.x=lz4", "file.A b=lz4", "command.=lz4"] {
            assert!(!text.parse::<SealSource>().unwrap().is_of_a_source(), "{text}");
        }
        for (text, what) in [
            ("cpu", "is not NAME=CODEC/LAYOUT"),
            ("=zstd", "is not NAME=CODEC/LAYOUT"),
            ("cpu=zstd:20", "from 1 to 19"),
            ("cpu=gzip", "is no codec"),
            ("cpu=lz4/rows", "is no layout"),
            ("cpu=lz4/", "is no layout"),
        ] {
            let told = text.parse::<SealSource>().unwrap_err();
            assert!(told.contains(what), "{text}: {told}");
        }
    }
}
