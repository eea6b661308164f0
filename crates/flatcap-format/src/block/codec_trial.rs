//! Trial compressions with a block's codec. A trial finds the compressed length of some bytes.

use super::codec::{Codec, PartCompressor};

/// A block's codec, and buffers for its output. Successive trials reuse the codec and the buffers.
#[derive(Debug, Default)]
pub(super) struct CodecTrial {
    compressor: Option<PartCompressor>,
    compressed: Vec<u8>,
}

impl CodecTrial {
    /// Sets the block's codec. Trials use Zstandard level 1 in place of slower codecs, so a
    /// comparison of nearly equal sizes may be wrong.
    pub(super) fn set_codec(&mut self, codec: Codec) {
        let codec = match codec {
            Codec::Zstd(_) | Codec::Brotli(_) => Codec::Zstd(1),
            fast => fast,
        };
        if self.codec() != codec {
            self.compressor = Some(PartCompressor::new(codec));
        }
    }

    pub(super) fn codec(&self) -> Codec {
        self.compressor.as_ref().map_or(Codec::None, PartCompressor::codec)
    }

    /// Returns the compressed length of some bytes.
    pub(super) fn compressed_bytes(&mut self, bytes: &[u8]) -> usize {
        self.compressed.clear();
        match self.compressor.as_mut().map(|codec| codec.compress(bytes, &mut self.compressed)) {
            Some(Ok(_)) => self.compressed.len(),
            _ => bytes.len(),
        }
    }
}
