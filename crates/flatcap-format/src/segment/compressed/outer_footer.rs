//! Uses the footer of a compressed file instead of the raw footer, which is in the last block.
//! Decompressing the index and the histograms takes most of the time of opening a file, and some
//! readers need neither.

use std::path::Path;

use super::compressed_segment::CompressedSegment;
use crate::block::BlockFeatures;
use crate::segment::format::error::SegmentError;
use crate::segment::format::footer::Footer;
use crate::segment::format::header::{SegmentHeader, SourceInfo};
use crate::segment::open::file_window::FileWindow;
use crate::segment::open::header_and_footer::{HeaderAndFooter, find_leading_header};

/// Returns the header and the footer of the raw segment that `window` reads. The footer has no
/// index and no histograms. Returns `None` if something is damaged, or if the raw header lacks the
/// schema of a source that was added later. In both cases the caller must read the raw footer.
/// Afterwards the window is empty.
///
/// # Errors
/// `Io`.
pub(in crate::segment) fn find_ends(
    path: &Path,
    window: &mut FileWindow,
    compressed: &CompressedSegment,
    outer: &HeaderAndFooter,
) -> Result<Option<HeaderAndFooter>, SegmentError> {
    let io_error = |error| SegmentError::Io { path: path.to_owned(), error };
    let Some((outer, _)) = &outer.footer else { return Ok(None) };
    let Some(last) = compressed.intact_last_block().map_err(io_error)? else { return Ok(None) };
    let leading = find_leading_header(path, window);
    window.forget();
    let Some(leading) = leading?.filter(|leading| leading.features == BlockFeatures::NONE) else {
        return Ok(None);
    };
    let Some(header) = raw_header(&outer.header, &leading.header) else { return Ok(None) };
    let footer = Footer {
        header,
        bytes: last.raw_offset,
        blocks: Vec::new(),
        features: BlockFeatures::NONE,
        sizes: Vec::new(),
        small_blocks: false,
        ..outer.clone()
    };
    Ok(Some(HeaderAndFooter::new(leading, (footer, last.raw_offset))))
}

/// Returns the header that the raw footer contains. Combines the header in the compressed file's
/// footer with the checksum kind and the schemas of the raw segment's leading header.
fn raw_header(outer: &SegmentHeader, leading: &SegmentHeader) -> Option<SegmentHeader> {
    let with_schema = |source: &SourceInfo| {
        let SourceInfo { root, schema, .. } = leading.source(source.id)?.clone();
        Some(SourceInfo { root, schema, ..source.clone() })
    };
    let sources = outer.sources.iter().map(with_schema).collect::<Option<Vec<_>>>()?;
    let header = SegmentHeader { checksum: leading.checksum, sources, ..outer.clone() };
    header.is_same_segment(leading).then_some(header)
}
