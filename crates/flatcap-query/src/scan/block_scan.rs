//! Reads a compressed segment block by block. Reads the rows of matrices by their columns, and
//! reads other frames one by one.

use std::collections::VecDeque;

use flatcap_format::block::BlockDecoder;
use flatcap_format::replay::{Notice, WholeSegment};
use flatcap_format::segment::{BlockEntry, Damage, SampleView, SegmentError};

use super::collector::{Collector, Collectors};
use super::open_block::{OpenBlock, OpenGroup};
use super::step::ScanStep;
use super::template_pool::TemplatePool;
use crate::names::elements::ElementNames;
use crate::summary::QuerySummary;

/// Number of values that are appended in one step.
// This many values justify opening their columns. They are also so few that the values of a list,
// which are written column by column, stay in the cache.
const CHUNK_VALUES: usize = 1 << 14;
/// Number of rows that are appended in one step.
const CHUNK_ROWS: usize = 1 << 13;

/// A compressed segment that is being read.
#[derive(Debug)]
pub(crate) struct BlockScan {
    segment: Box<WholeSegment>,
    blocks: VecDeque<BlockEntry>,
    decoder: BlockDecoder,
    frame: Vec<u8>,
    open: Option<OpenBlock>,
    templates: TemplatePool,
    /// Time of the latest sample in the blocks that were read so far.
    newest_ns: u64,
}

impl BlockScan {
    pub(super) fn new(segment: Box<WholeSegment>, summary: &mut QuerySummary) -> Self {
        let (blocks, skipped) = segment.reader.blocks_in(segment.mono_ns.as_ref());
        summary.blocks_skipped += skipped;
        let mut decoder = BlockDecoder::default();
        if let Some(compressed) = segment.reader.compressed() {
            decoder.set_announced(compressed.features());
        }
        Self {
            segment,
            blocks: blocks.into(),
            decoder,
            frame: Vec::new(),
            open: None,
            templates: TemplatePool::default(),
            newest_ns: 0,
        }
    }

    /// Appends some rows of the open block, or opens the next block.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn step(
        &mut self,
        sources: &mut Collectors,
        names: &mut ElementNames,
        summary: &mut QuerySummary,
    ) -> Result<ScanStep, SegmentError> {
        if let Some(block) = &mut self.open
            && let Some(step) = read_rows(block, &self.segment, sources, names, summary)
        {
            return Ok(step);
        }
        // The templates of the last block are returned to the pool first, because the next block
        // usually needs the same templates.
        if let Some(block) = self.open.take() {
            block.close(&mut self.templates);
        }
        let Some(entry) = self.blocks.pop_front() else { return Ok(ScanStep::End) };
        let Some(compressed) = self.segment.reader.compressed() else { return Ok(ScanStep::End) };
        let path = || self.segment.reader.path().to_owned();
        let payload = compressed.payload(&entry, &mut self.frame);
        let opened = match payload.map_err(|error| SegmentError::Io { path: path(), error })? {
            Ok(payload) => {
                let (decoder, templates) = (&mut self.decoder, &mut self.templates);
                OpenBlock::open(payload, decoder, sources, (names, templates), &self.segment).ok()
            }
            Err(_) => None,
        };
        let Some(block) = opened else {
            let offset = entry.raw_offset.max(self.segment.reader.offset());
            let what = "a block that cannot be decompressed";
            let damage = Damage { offset, length: entry.raw_end() - offset, what };
            return Ok(ScanStep::Notice(Notice::Damaged(path(), damage)));
        };
        if block.is_needed() {
            summary.blocks_read += 1;
        } else {
            summary.blocks_skipped += 1;
        }
        self.newest_ns = self.newest_ns.max(block.newest_ns());
        self.open = Some(block);
        Ok(ScanStep::Continue)
    }

    /// Returns a monotonic time. All rows that are read later have this time or a later time.
    pub(super) fn complete_ns(&self, sources: usize) -> u64 {
        // The samples of each source are in the order of time. Between samples of different
        // sources, the time may step back by at most the reorder window.
        let window_ns = if sources > 1 { self.segment.window_ns } else { 0 };
        let of_blocks = self.newest_ns.saturating_sub(window_ns);
        self.open.as_ref().and_then(OpenBlock::next_ns).map_or(of_blocks, |next| next.min(of_blocks))
    }
}

/// Appends the next rows of an open block. Returns `None` at the end of the block.
fn read_rows(
    block: &mut OpenBlock,
    segment: &WholeSegment,
    sources: &mut Collectors,
    names: &mut ElementNames,
    summary: &mut QuerySummary,
) -> Option<ScanStep> {
    let queue = block.earliest()?;
    let (source, run) = block.run(queue)?;
    let mut taken = 1;
    let mut step = ScanStep::Continue;
    match (block.group(run.group), source.and_then(|source| sources.get_mut(&source))) {
        (Some(OpenGroup::Columns { matrix, template, .. }), Some(collector)) => {
            let most = (CHUNK_VALUES / template.values().max(1)).clamp(1, CHUNK_ROWS);
            taken = run.rows.len().min(most);
            collector.add_rows(template, matrix, run.rows.start..run.rows.start + taken, names);
            summary.samples += taken as u64;
        }
        (Some(OpenGroup::Rows { matrix, row }), Some(collector)) => {
            // Rows of different shapes have no common template, so each of these rows is rebuilt as
            // a frame.
            matrix.patch_row(run.rows.start, row);
            add(collector, row, names, summary);
        }
        (Some(OpenGroup::Payloads(rows)), Some(collector)) => {
            add(collector, rows.payload(run.rows.start), names, summary);
        }
        (Some(OpenGroup::Payloads(rows)), None) => {
            step = ScanStep::of_frame(rows.payload(run.rows.start), segment);
        }
        _ => taken = run.rows.len(),
    }
    block.advance(queue, taken);
    Some(step)
}

fn add(collector: &mut Collector, payload: &[u8], names: &mut ElementNames, summary: &mut QuerySummary) {
    if let Some(sample) = SampleView::read(payload) {
        summary.add(collector.add(&sample, names).is_ok());
    }
}
