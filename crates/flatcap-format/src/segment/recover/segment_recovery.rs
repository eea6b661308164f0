//! Recovers a segment of a crashed run. The recovery cuts off the segment's torn tail, adds the
//! samples in the run's memory, and seals the segment (docs/FORMAT.md, "Recovery").
//!
//! A recovery can be interrupted after every step and started again. A restarted recovery does not
//! repeat completed steps.

use std::io::{self, ErrorKind, IoSlice};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::full_scan::FullScan;
use super::leftovers::Leftovers;
use super::recovered::{RecoverError, Recovered, RecoveryStep};
use crate::schema::segment::GapCause;
use crate::segment::format::block_table::BlockTable;
use crate::segment::format::control_frames::{Attachment, ClockSync, Gap, lost_samples};
use crate::segment::format::damage::Damage;
use crate::segment::format::error::SegmentError;
use crate::segment::format::footer::BlockEntry;
use crate::segment::format::footer_totals::SampleSpan;
use crate::segment::format::frame_kind::{FrameKind, FrameLocation, SampleView};
use crate::segment::format::header::{SegmentHeader, SourceInfo};
use crate::segment::format::segment_counts::SegmentCounts;
use crate::segment::format::segment_name::{SealState, SegmentName, SideFile};
use crate::segment::open::torn_tail::{copy_tail, is_empty_after, is_prefix_of_tail};
use crate::segment::read::reader::{Advance, SegmentReader};
use crate::segment::read::sequence_progress::{SampleStatus, SequenceProgress};
use crate::segment::write::live_compression::{SegmentCompressor, seal_after_blocks};
use crate::segment::write::sealed::SealedSegment;
use crate::segment::write::writer::{Frames, SegmentWriter};
use crate::storage::{ReadAt, Storage, StorageFile};

/// Number of bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;
/// Length in bytes at which an interval of a rewritten segment ends.
const INTERVAL_BYTES: u64 = 4 << 20;

/// Completes one segment. Leaves a sealed segment unchanged unless it is damaged. If `dry_run` is
/// true, writes nothing, and the result describes what a recovery would do.
///
/// # Errors
/// Returns `Unreadable` for a file of a later version, and `Storage` with the step that failed. If
/// the function fails, no data is lost.
pub fn recover(
    storage: &dyn Storage,
    name: SegmentName,
    leftovers: &Leftovers,
    dry_run: bool,
) -> Result<Recovered, RecoverError> {
    SegmentRecovery::new(storage, name, leftovers, dry_run).run()
}

/// Finishes an interrupted recovery that was rewriting a segment. If the old file is already set
/// aside and the new file is complete, renames the new file to the segment's name. Otherwise
/// removes the new file. Returns whether the new file becomes the sealed segment.
///
/// # Errors
/// `Storage`.
pub(crate) fn resume(storage: &dyn Storage, name: SegmentName, dry_run: bool) -> Result<bool, RecoverError> {
    let step = RecoveryStep { name };
    let (unfinished, sealed) = (name.side_file(SideFile::Recovering), name.sealed().to_string());
    let entries = storage.entries().map_err(step.fails("list the directory"))?;
    let exists = |name: &str| entries.iter().any(|entry| entry.name == name);
    let was_replaced =
        exists(&name.side_file(SideFile::Damaged)) && !exists(&sealed) && !exists(&active_name(name));
    let file = storage.open(&unfinished).map_err(step.fails("open the unfinished work"))?;
    let is_complete = was_replaced
        && SegmentReader::over(Path::new(&unfinished), file).is_ok_and(|reader| reader.is_sealed());
    if dry_run {
        return Ok(is_complete);
    }
    if is_complete {
        storage.rename(&unfinished, &sealed).map_err(step.fails("rename the recovered file"))?;
    } else {
        storage.remove(&unfinished).map_err(step.fails("remove unfinished work"))?;
    }
    storage.sync_directory().map_err(step.fails("sync the directory"))?;
    Ok(is_complete)
}

fn active_name(name: SegmentName) -> String {
    SegmentName { state: SealState::Active, ..name }.to_string()
}

pub(in crate::segment) struct SegmentRecovery<'a> {
    storage: &'a dyn Storage,
    pub(in crate::segment) name: SegmentName,
    pub(in crate::segment) leftovers: &'a Leftovers,
    dry_run: bool,
    pub(in crate::segment) result: Recovered,
    pending: PendingFrames,
}

/// Frames that are collected to be written together.
#[derive(Default)]
struct PendingFrames {
    bytes: Vec<u8>,
    headers: Vec<u8>,
    count: u64,
    samples: Vec<(u16, SampleSpan)>,
}

impl<'a> SegmentRecovery<'a> {
    pub(in crate::segment) fn new(
        storage: &'a dyn Storage,
        name: SegmentName,
        leftovers: &'a Leftovers,
        dry_run: bool,
    ) -> Self {
        let (result, pending) = (Recovered::default(), PendingFrames::default());
        Self { storage, name, leftovers, dry_run, result, pending }
    }

    fn run(mut self) -> Result<Recovered, RecoverError> {
        let step = RecoveryStep { name: self.name };
        let stored = self.name.to_string();
        let file = self.storage.open(&stored).map_err(step.fails("open the file"))?;
        let length = file.length().map_err(step.fails("read the file"))?;
        // A file with this name is the output of an interrupted recovery.
        let unfinished = self.name.side_file(SideFile::Recovering);
        if !self.dry_run {
            self.remove_if_there(&unfinished)?;
        }
        let mut reader = match SegmentReader::over(Path::new(&stored), Arc::clone(&file) as Arc<dyn ReadAt>) {
            Ok(reader) => reader,
            Err(SegmentError::Empty { .. }) => {
                self.unless_dry_run(|recovery| recovery.storage.remove(&stored), "remove the empty file")?;
                return Ok(self.result);
            }
            Err(SegmentError::NotASegment { .. } | SegmentError::BadHeader { .. }) => {
                let what = "nothing can be read: the header is damaged, and neither a footer nor a copy of it was found";
                self.result.damage.push(Damage { offset: 0, length, what });
                self.set_aside(&stored)?;
                return Ok(self.result);
            }
            Err(error) => return Err(error.into()),
        };
        let is_complete = reader.is_sealed();
        let mut scan = FullScan::read(&mut reader, self.leftovers)?;
        if reader.compressed().is_none() {
            scan.ignore_rescued_tail(&*file, self.leftovers).map_err(step.fails("read the file's end"))?;
        }
        self.result.frames = scan.samples;
        self.result.damage.extend_from_slice(&scan.damage);
        let compressed = reader.compressed();
        if let Some((compressed, what)) =
            compressed.and_then(|compressed| compressed.flaw().map(|what| (compressed, what)))
            && !is_complete
        {
            // This damage is added here because the full scan does not see damage outside of the
            // blocks.
            self.result.damage.insert(0, Damage { offset: 0, length: compressed.stored_offset(0), what });
        }
        let has_end = compressed.map_or(is_complete, |compressed| is_complete && compressed.flaw().is_none());
        // The blocks of a compressed file that the recovery keeps. The inner `None` means that the
        // intact frames do not end at the end of a block.
        let blocks = compressed.map(|compressed| {
            compressed.blocks_up_to(if is_complete { compressed.raw_bytes() } else { scan.end })
        });
        if scan.is_damaged || (!has_end && matches!(blocks, Some(None))) {
            self.rewrite(&stored, &file)?;
        } else if has_end {
            if self.name.state == SealState::Active {
                let sealed = SealedSegment::new(self.name, file, length);
                self.publish(&sealed)?;
            }
            self.result.sealed = Some(self.name.sealed().to_string());
        } else {
            self.complete(&reader, file, scan, blocks.flatten())?;
        }
        Ok(self.result)
    }

    /// Completes the file in place. If the file is compressed, continues after the last block of
    /// the file.
    fn complete(
        &mut self,
        reader: &SegmentReader,
        file: Arc<dyn StorageFile>,
        scan: FullScan,
        blocks: Option<Vec<BlockEntry>>,
    ) -> Result<(), RecoverError> {
        let step = RecoveryStep { name: self.name };
        let FullScan { counts, progress, end, mut has_tail, .. } = scan;
        let mut stored_end = end;
        if let Some(blocks) = &blocks {
            stored_end = blocks.last().map_or(0, BlockEntry::end);
            has_tail = !is_empty_after(&*file, stored_end).map_err(step.fails("read the file"))?;
        }
        if has_tail {
            self.save_tail(&*file, stored_end)?;
        }
        if self.dry_run {
            if reader.is_sealed() {
                self.result.sealed = Some(self.name.sealed().to_string());
            } else {
                self.preview(progress);
            }
            return Ok(());
        }
        file.truncate(stored_end).map_err(step.fails("cut the torn tail off"))?;
        let header = reader.header().clone();
        let table = match (reader.compressed(), blocks) {
            (Some(compressed), Some(blocks)) => {
                let sizes = compressed.sizes_of(&blocks).map_err(step.fails("read the file"))?;
                Some(BlockTable::resume(blocks, compressed.features(), sizes))
            }
            _ => None,
        };
        let sealed = match (table, reader.footer()) {
            // The raw segment is sealed, but the compressed file is not.
            (Some(table), Some(footer)) => seal_after_blocks(self.name, file, table, footer)
                .map_err(step.fails("write footer and trailer"))?,
            (table, _) => {
                let compressor = table.map(|table| SegmentCompressor::resume(table, &header));
                let writer =
                    SegmentWriter::resume(self.name, header, file, counts).with_compressor(compressor);
                self.complete_and_seal(writer, progress)?
            }
        };
        self.publish(&sealed)?;
        self.result.sealed = Some(self.name.sealed().to_string());
        Ok(())
    }

    /// Copies the intact frames into a new file, sets the old file aside, and renames the new file
    /// to the segment's name.
    fn rewrite(&mut self, stored: &str, file: &Arc<dyn StorageFile>) -> Result<(), RecoverError> {
        let step = RecoveryStep { name: self.name };
        let is_copied = self.copy_intact(file)?;
        self.set_aside(stored)?;
        if !is_copied {
            return Ok(());
        }
        let (unfinished, name) = (self.name.side_file(SideFile::Recovering), self.name.sealed().to_string());
        self.storage.rename(&unfinished, &name).map_err(step.fails("rename the new file"))?;
        self.storage.sync_directory().map_err(step.fails("sync the directory"))?;
        self.result.sealed = Some(name);
        Ok(())
    }

    /// Writes a new segment with this header, these attachments, and the leftovers. Completes and
    /// syncs the new file, and then renames it to the name of the sealed segment. Discards the
    /// `.recovering` file of an earlier recovery.
    pub(in crate::segment) fn write_new(
        mut self,
        header: SegmentHeader,
        attachments: &[Attachment],
    ) -> Result<Recovered, RecoverError> {
        let step = RecoveryStep { name: self.name };
        let progress = SequenceProgress::after(&header);
        if self.dry_run {
            self.preview(progress);
            return Ok(self.result);
        }
        let unfinished = self.name.side_file(SideFile::Recovering);
        self.remove_if_there(&unfinished)?;
        let target = self.storage.create(&unfinished).map_err(step.fails("create a new file"))?;
        let counts = SegmentCounts::new(&header);
        let mut writer = SegmentWriter::resume(self.name, header, target, counts);
        writer.begin(attachments).map_err(step.fails("write the new file"))?;
        let sealed = self.complete_and_seal(writer, progress)?;
        sealed.sync().map_err(step.fails("sync the new file"))?;
        let name = self.name.sealed().to_string();
        self.storage.rename(&unfinished, &name).map_err(step.fails("rename the new file"))?;
        self.storage.sync_directory().map_err(step.fails("sync the directory"))?;
        self.result.sealed = Some(name);
        Ok(self.result)
    }

    /// Copies the intact frames into the `.recovering` file, completes this file, and syncs the
    /// file and the directory. Returns false for a dry run.
    fn copy_intact(&mut self, file: &Arc<dyn StorageFile>) -> Result<bool, RecoverError> {
        let step = RecoveryStep { name: self.name };
        let stored = self.name.to_string();
        let mut reader = SegmentReader::over(Path::new(&stored), Arc::clone(file) as Arc<dyn ReadAt>)?;
        self.result.frames = 0; // count only samples that are copied
        if self.dry_run {
            self.preview_rewrite(reader)?;
            return Ok(false);
        }
        let unfinished = self.name.side_file(SideFile::Recovering);
        let target = self.storage.create(&unfinished).map_err(step.fails("create a new file"))?;
        let header = reader.header().clone();
        let counts = SegmentCounts::new(&header);
        let mut progress = SequenceProgress::of(&reader);
        let mut writer = SegmentWriter::resume(self.name, header, target, counts);
        writer.begin(&[]).map_err(step.fails("write the new file"))?;
        while let Some(advance) = reader.advance()? {
            if let Advance::Frame(at) = advance
                && self.copy_frame(&reader, at, &mut writer, &mut progress)?.is_break()
            {
                break;
            }
        }
        self.flush(&mut writer)?;
        reader.footer().into_iter().for_each(|footer| writer.copy_totals(&footer.totals));
        let sealed = self.complete_and_seal(writer, progress)?;
        sealed.sync().map_err(step.fails("sync the new file"))?;
        // The new name must be on disk before the old file is renamed.
        self.storage.sync_directory().map_err(step.fails("sync the directory"))?;
        Ok(true)
    }

    /// Copies a frame into a new file. If sequence numbers are missing before the frame, writes a
    /// gap first. Returns `Break` after the last frame that belongs to the segment.
    fn copy_frame(
        &mut self,
        reader: &SegmentReader,
        at: FrameLocation,
        writer: &mut SegmentWriter,
        progress: &mut SequenceProgress,
    ) -> Result<ControlFlow<()>, RecoverError> {
        let step = RecoveryStep { name: self.name };
        let payload = reader.payload(at);
        progress.add_sources(reader.header());
        if self.leftovers.is_counted_later(reader, at) {
            return Ok(ControlFlow::Break(()));
        }
        match at.kind {
            // Frames after a second header belong to another segment.
            FrameKind::Header if at.offset > 0 => return Ok(ControlFlow::Break(())),
            FrameKind::Header | FrameKind::Index | FrameKind::Footer | FrameKind::Trailer => {}
            FrameKind::Descriptor => {
                let source = SourceInfo::decode(payload);
                if let Some(source) = source.filter(|source| writer.header().source(source.id).is_none()) {
                    self.flush(writer)?;
                    writer.append_source(source).map_err(step.fails("write"))?;
                }
            }
            FrameKind::ClockSync => {
                if let Some(sync) = ClockSync::decode(payload) {
                    self.flush(writer)?;
                    writer.append_clock_sync(&sync).map_err(step.fails("write"))?;
                }
            }
            FrameKind::Telemetry => {
                let is_known = |sample: &SampleView<'_>| writer.header().source(sample.source).is_some();
                let Some(sample) = reader.sample(at).filter(is_known) else {
                    return Ok(ControlFlow::Continue(()));
                };
                if let SampleStatus::New(gaps) = progress.add_sample(&sample, GapCause::Damaged) {
                    self.append_gaps(writer, &gaps)?;
                    let mut frame = Vec::with_capacity(at.bytes);
                    reader.copy_frame(at, &mut frame);
                    self.append(writer, &frame, reader.frame_header(at), Some(&sample))?;
                    self.result.frames += 1;
                }
            }
            FrameKind::Gap => {
                let gap = Gap::decode(payload).filter(|gap| progress.add_gap(gap));
                self.append_gaps(writer, gap.as_slice())?;
            }
            FrameKind::Marker | FrameKind::Attachment | FrameKind::Unknown(_) => {
                let mut frame = Vec::with_capacity(at.bytes);
                reader.copy_frame(at, &mut frame);
                self.append(writer, &frame, reader.frame_header(at), None)?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Appends the samples in the run's memory and the remaining gaps, and seals the segment.
    fn complete_and_seal(
        &mut self,
        mut writer: SegmentWriter,
        mut progress: SequenceProgress,
    ) -> Result<SealedSegment, RecoverError> {
        let step = RecoveryStep { name: self.name };
        let leftovers = self.leftovers;
        self.describe_sources(&mut writer)?;
        progress.add_sources(writer.header());
        let head_bytes = writer.checksum().frame_bytes(0);
        for frame in &leftovers.frames {
            let Some((head, payload)) = frame.split_at_checked(head_bytes) else { continue };
            let Some(sample) = SampleView::read(payload) else { continue };
            if writer.header().source(sample.source).is_none() {
                continue;
            }
            let SampleStatus::New(gaps) = progress.add_sample(&sample, GapCause::Crash) else { continue };
            self.append_gaps(&mut writer, &gaps)?;
            self.append(&mut writer, frame, head, Some(&sample))?;
            self.result.frames += 1;
            self.result.from_memory += 1;
        }
        for source in progress.sources() {
            let begun = leftovers.begun.get(&source).copied().unwrap_or(0);
            let is_refused = leftovers.refused.contains(&source);
            let cause = if is_refused { GapCause::Damaged } else { GapCause::Crash };
            let gaps = progress.missing(source, begun, cause);
            self.append_gaps(&mut writer, &gaps)?;
        }
        self.flush(&mut writer)?;
        writer.seal_recovered().map_err(step.fails("write footer and trailer"))
    }

    /// Appends the descriptors of those sources of the run that the segment does not describe yet.
    fn describe_sources(&mut self, writer: &mut SegmentWriter) -> Result<(), RecoverError> {
        for source in &self.leftovers.sources {
            if writer.header().source(source.id).is_none() {
                self.flush(writer)?;
                let described = writer.append_source(source.clone());
                described.map_err(RecoveryStep { name: self.name }.fails("write"))?;
            }
        }
        Ok(())
    }

    /// Appends a frame to the pending frames.
    fn append(
        &mut self,
        writer: &mut SegmentWriter,
        frame: &[u8],
        head: impl AsRef<[u8]>,
        sample: Option<&SampleView<'_>>,
    ) -> Result<(), RecoverError> {
        self.pending.bytes.extend_from_slice(frame);
        self.pending.headers.extend_from_slice(head.as_ref());
        self.pending.count += 1;
        self.pending.samples.extend(
            sample.map(|sample| (sample.source, SampleSpan::of(sample.seq, sample.mono_ns, sample.wall_ns))),
        );
        if self.pending.bytes.len() >= WRITE_BYTES { self.flush(writer) } else { Ok(()) }
    }

    /// Writes the pending frames.
    fn flush(&mut self, writer: &mut SegmentWriter) -> Result<(), RecoverError> {
        let step = RecoveryStep { name: self.name };
        if writer.unindexed_bytes().is_some_and(|bytes| bytes >= INTERVAL_BYTES) {
            writer.append_index(0).map_err(step.fails("write"))?;
        }
        let PendingFrames { bytes, headers, count, samples } = &mut self.pending;
        if *count > 0 {
            let frames = Frames { pieces: &mut [IoSlice::new(bytes)], headers: &[headers], count: *count };
            writer.append(frames).map_err(step.fails("write"))?;
        }
        for (source, span) in samples.drain(..) {
            writer.count_samples(source, 1, span);
        }
        bytes.clear();
        headers.clear();
        *count = 0;
        Ok(())
    }

    fn append_gaps(&mut self, writer: &mut SegmentWriter, gaps: &[Gap]) -> Result<(), RecoverError> {
        if gaps.is_empty() {
            return Ok(());
        }
        self.flush(writer)?;
        self.result.lost = self.result.lost.saturating_add(lost_samples(gaps));
        writer.append_gaps(gaps).map_err(RecoveryStep { name: self.name }.fails("write"))
    }

    /// Copies the bytes from `end` on into the `.cut` file, and syncs this file.
    fn save_tail(&mut self, file: &dyn StorageFile, end: u64) -> Result<(), RecoverError> {
        let step = RecoveryStep { name: self.name };
        let name = self.name.side_file(SideFile::Cut);
        self.result.set_aside.push(name.clone());
        if self.dry_run {
            return Ok(());
        }
        let cut = match self.storage.open(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.storage.create(&name),
            // If an interrupted recovery has begun to copy the same tail, the copy starts again
            // from the beginning. If the interrupted recovery has already truncated the segment,
            // the current tail is the unfinished output of that recovery, and is appended to the
            // `.cut` file.
            opened => opened.and_then(|cut| {
                if is_prefix_of_tail(&*cut, file, end)? {
                    cut.truncate(0)?;
                }
                Ok(cut)
            }),
        };
        let cut = cut.map_err(step.fails("open a file for the torn tail"))?;
        copy_tail(file, end, &*cut).map_err(step.fails("copy the torn tail"))?;
        cut.sync().map_err(step.fails("sync the torn tail"))?;
        self.storage.sync_directory().map_err(step.fails("sync the directory"))
    }

    fn set_aside(&mut self, stored: &str) -> Result<(), RecoverError> {
        let side_file = self.name.side_file(SideFile::Damaged);
        self.unless_dry_run(
            |recovery| {
                recovery.storage.rename(stored, &side_file)?;
                recovery.storage.sync_directory()
            },
            "set the damaged file aside",
        )?;
        self.result.set_aside.push(side_file);
        Ok(())
    }

    fn publish(&self, sealed: &SealedSegment) -> Result<(), RecoverError> {
        self.unless_dry_run(|recovery| sealed.publish(recovery.storage), "publish the sealed file")
    }

    fn remove_if_there(&self, name: &str) -> Result<(), RecoverError> {
        match self.storage.remove(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(RecoveryStep { name: self.name }.fails("remove unfinished work")(error))
            }
            _ => Ok(()),
        }
    }

    /// Performs a step, unless this is a dry run.
    fn unless_dry_run(
        &self,
        act: impl FnOnce(&Self) -> io::Result<()>,
        action: &'static str,
    ) -> Result<(), RecoverError> {
        if self.dry_run {
            return Ok(());
        }
        act(self).map_err(RecoveryStep { name: self.name }.fails(action))
    }
}
