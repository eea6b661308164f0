//! What a crashed run left is completed: cut, filled up with what was rescued, sealed (docs/FORMAT.md, "Recovery").
//!
//! Every step leaves a state from which recovery can begin again, and repeats nothing that is done.

use std::io::{self, ErrorKind, IoSlice};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::block_table::BlockTable;
use super::control::{ClockSync, Gap, count_of};
use super::error::SegmentError;
use super::footer::BlockEntry;
use super::header::SourceInfo;
use super::kind::{FrameAt, FrameKind, Telemetry};
use super::leftovers::Leftovers;
use super::name::{Aside, SegmentName, State};
use super::packing::{Packer, end_behind};
use super::progress::{Progress, Taken};
use super::reader::{Advance, Damage, SegmentReader};
use super::recovered::{RecoverError, Recovered, Step};
use super::sealed::SealedSegment;
use super::tail::{copy_tail, is_beginning, is_empty_behind};
use super::tally::Tally;
use super::totals::Span;
use super::walk::{Walk, span_of};
use super::writer::{Frames, SegmentWriter};
use crate::os::storage::{ReadAt, Storage, StorageFile};
use crate::schema::segment::GapCause;

/// How much is written at once.
const WRITE_BYTES: usize = 256 << 10;
/// An interval of a rewritten segment ends when it has so many bytes.
const INTERVAL_BYTES: u64 = 4 << 20;

/// Completes one segment. A sealed one is left as it is unless it is damaged or `leftovers` holds more than it counts.
/// With `dry_run` nothing is written, and the result says what would be.
///
/// # Errors
/// `Unreadable` for a file of a later version, `Storage` with the step that failed. Nothing is lost by an error.
pub fn recover(
    storage: &dyn Storage,
    name: SegmentName,
    leftovers: &Leftovers,
    dry_run: bool,
) -> Result<Recovered, RecoverError> {
    Recovery { storage, name, leftovers, dry_run, result: Recovered::default(), batch: Batch::default() }
        .run()
}

/// Finishes what an interrupted recovery has left of a rewritten segment, whose old file is set aside already: gives the new
/// one its name. Work that is not finished is thrown away. Says whether there is one more sealed segment.
///
/// # Errors
/// `Storage`.
pub fn resume(storage: &dyn Storage, name: SegmentName, dry_run: bool) -> Result<bool, RecoverError> {
    let step = Step { name };
    let (unfinished, sealed) = (name.aside(Aside::Recovering), name.sealed().to_string());
    let entries = storage.entries().map_err(step.fails("list the directory"))?;
    let exists = |name: &str| entries.iter().any(|entry| entry.name == name);
    let was_replaced = exists(&name.aside(Aside::Damaged)) && !exists(&sealed) && !exists(&active(name));
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

fn active(name: SegmentName) -> String {
    SegmentName { state: State::Active, ..name }.to_string()
}

pub(super) struct Recovery<'a> {
    storage: &'a dyn Storage,
    pub(super) name: SegmentName,
    pub(super) leftovers: &'a Leftovers,
    dry_run: bool,
    pub(super) result: Recovered,
    batch: Batch,
}

/// Frames that are written together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    heads: Vec<u8>,
    count: u64,
    samples: Vec<(u16, Span)>,
}

impl Recovery<'_> {
    fn run(mut self) -> Result<Recovered, RecoverError> {
        let step = Step { name: self.name };
        let stored = self.name.to_string();
        let file = self.storage.open(&stored).map_err(step.fails("open the file"))?;
        let length = file.length().map_err(step.fails("read the file"))?;
        // Work of a recovery that was interrupted.
        let unfinished = self.name.aside(Aside::Recovering);
        if !self.dry_run {
            self.remove_if_there(&unfinished)?;
        }
        let mut reader = match SegmentReader::over(Path::new(&stored), Arc::clone(&file) as Arc<dyn ReadAt>) {
            Ok(reader) => reader,
            Err(SegmentError::Empty { .. }) => {
                self.write(|recovery| recovery.storage.remove(&stored), "remove the empty file")?;
                return Ok(self.result);
            }
            Err(SegmentError::NotASegment { .. } | SegmentError::BadHeader { .. }) => {
                let what = "nothing in it can be read: its header is damaged, and neither a footer nor a copy replaces it";
                self.result.damage.push(Damage { offset: 0, length, what });
                self.set_aside(&stored)?;
                return Ok(self.result);
            }
            Err(error) => return Err(error.into()),
        };
        let is_complete = reader.is_sealed();
        let mut walk = Walk::through(&mut reader, self.leftovers)?;
        if reader.packed().is_none() {
            walk.pass_over_tail(&*file, self.leftovers).map_err(step.fails("read the file's end"))?;
        }
        self.result.frames = walk.samples;
        self.result.damage.extend_from_slice(&walk.damage);
        let packed = reader.packed();
        if let Some((packed, what)) = packed.and_then(|packed| packed.flaw().map(|what| (packed, what)))
            && !is_complete
        {
            // Around the blocks, so that the walk did not come upon it.
            self.result.damage.insert(0, Damage { offset: 0, length: packed.stored_offset(0), what });
        }
        let has_end = packed.map_or(is_complete, |packed| is_complete && packed.flaw().is_none());
        // What a packed file goes on behind; none where that is not the end of a whole block.
        let blocks =
            packed.map(|packed| packed.blocks_up_to(if is_complete { packed.raw_bytes() } else { walk.end }));
        let lacks = reader.footer().is_some_and(|footer| self.leftovers.exceeds(footer));
        if walk.is_damaged || (!has_end && matches!(blocks, Some(None))) {
            self.rewrite(&stored, &file)?;
        } else if has_end && lacks && !self.leftovers.is_followed {
            self.extend(&file)?;
        } else if has_end {
            if self.name.state == State::Active {
                let sealed = SealedSegment::new(self.name, file, length);
                self.publish(&sealed)?;
            }
            self.result.sealed = Some(self.name.sealed().to_string());
        } else {
            self.complete(&reader, file, walk, blocks.flatten())?;
        }
        Ok(self.result)
    }

    /// Completes the file in place: behind its blocks if it is packed.
    fn complete(
        &mut self,
        reader: &SegmentReader,
        file: Arc<dyn StorageFile>,
        walk: Walk,
        blocks: Option<Vec<BlockEntry>>,
    ) -> Result<(), RecoverError> {
        let step = Step { name: self.name };
        let Walk { tally, progress, end, mut has_tail, .. } = walk;
        let mut stored_end = end;
        if let Some(blocks) = &blocks {
            stored_end = blocks.last().map_or(0, BlockEntry::end);
            has_tail = !is_empty_behind(&*file, stored_end).map_err(step.fails("read the file"))?;
        }
        if has_tail {
            self.keep_tail(&*file, stored_end)?;
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
        let table = match (reader.packed(), blocks) {
            (Some(packed), Some(blocks)) => {
                let sizes = packed.sizes_of(&blocks).map_err(step.fails("read the file"))?;
                Some(BlockTable::behind(blocks, sizes))
            }
            _ => None,
        };
        let sealed = match (table, reader.footer()) {
            // Sealed within, but not around.
            (Some(table), Some(footer)) => {
                end_behind(self.name, file, table, footer).map_err(step.fails("write footer and trailer"))?
            }
            (table, _) => {
                let packer = table.map(|table| Packer::behind(table, &header));
                let writer = SegmentWriter::resume(self.name, header, file, tally).packed_by(packer);
                self.fill_up(writer, progress)?
            }
        };
        self.publish(&sealed)?;
        self.result.sealed = Some(self.name.sealed().to_string());
        Ok(())
    }

    /// Copies what is intact into a new file, and puts it in the place of the old one, which is kept aside.
    fn rewrite(&mut self, stored: &str, file: &Arc<dyn StorageFile>) -> Result<(), RecoverError> {
        let step = Step { name: self.name };
        let is_copied = self.copy_intact(file)?;
        self.set_aside(stored)?;
        if !is_copied {
            return Ok(());
        }
        let (unfinished, name) = (self.name.aside(Aside::Recovering), self.name.sealed().to_string());
        self.storage.rename(&unfinished, &name).map_err(step.fails("rename the new file"))?;
        self.storage.sync_directory().map_err(step.fails("sync the directory"))?;
        self.result.sealed = Some(name);
        Ok(())
    }

    /// Adds what the memory of the run holds beyond a segment that is whole: copies it into a new file that takes its place. The
    /// old one is unsealed first, so that nobody compresses it meanwhile.
    fn extend(&mut self, file: &Arc<dyn StorageFile>) -> Result<(), RecoverError> {
        let step = Step { name: self.name };
        let (active, sealed) = (active(self.name), self.name.sealed().to_string());
        if self.name.state == State::Sealed {
            self.write(
                |recovery| {
                    recovery.storage.rename(&sealed, &active)?;
                    recovery.storage.sync_directory()
                },
                "unseal the file",
            )?;
        }
        if !self.copy_intact(file)? {
            return Ok(());
        }
        let unfinished = self.name.aside(Aside::Recovering);
        self.storage.replace(&unfinished, &active).map_err(step.fails("replace the file"))?;
        self.storage.sync_directory().map_err(step.fails("sync the directory"))?;
        self.storage.rename(&active, &sealed).map_err(step.fails("rename the new file"))?;
        self.storage.sync_directory().map_err(step.fails("sync the directory"))?;
        self.result.sealed = Some(sealed);
        Ok(())
    }

    /// Copies what is intact into `.recovering`, completes it, and syncs it and its name. Returns false for a dry run.
    fn copy_intact(&mut self, file: &Arc<dyn StorageFile>) -> Result<bool, RecoverError> {
        let step = Step { name: self.name };
        let stored = self.name.to_string();
        let mut reader = SegmentReader::over(Path::new(&stored), Arc::clone(file) as Arc<dyn ReadAt>)?;
        self.result.frames = 0; // those that are copied count
        if self.dry_run {
            self.preview_rewrite(reader)?;
            return Ok(false);
        }
        let unfinished = self.name.aside(Aside::Recovering);
        let target = self.storage.create(&unfinished).map_err(step.fails("create a new file"))?;
        let header = reader.header().clone();
        let tally = Tally::new(&header);
        let mut progress = Progress::of(&reader);
        let mut writer = SegmentWriter::resume(self.name, header, target, tally);
        writer.begin(&[]).map_err(step.fails("write the new file"))?;
        while let Some(advance) = reader.advance()? {
            if let Advance::Frame(at) = advance
                && self.transfer(&reader, at, &mut writer, &mut progress)?.is_break()
            {
                break;
            }
        }
        self.flush(&mut writer)?;
        reader.footer().into_iter().for_each(|footer| writer.take_over(&footer.totals));
        let sealed = self.fill_up(writer, progress)?;
        sealed.sync().map_err(step.fails("sync the new file"))?;
        // Its name too, before the old one goes.
        self.storage.sync_directory().map_err(step.fails("sync the directory"))?;
        Ok(true)
    }

    /// Copies a frame into a new file, with a gap in front where numbers are missing. Says where what belongs to it ends.
    fn transfer(
        &mut self,
        reader: &SegmentReader,
        at: FrameAt,
        writer: &mut SegmentWriter,
        progress: &mut Progress,
    ) -> Result<ControlFlow<()>, RecoverError> {
        let step = Step { name: self.name };
        let payload = reader.payload(at);
        progress.describe(reader.header());
        match at.kind {
            // What follows a second header belongs to another segment.
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
                let is_known = |sample: &Telemetry<'_>| writer.header().source(sample.source).is_some();
                let Some(sample) = reader.telemetry(at).filter(is_known) else {
                    return Ok(ControlFlow::Continue(()));
                };
                if self.leftovers.was_given_up(sample.source, sample.seq) {
                    return Ok(ControlFlow::Break(()));
                }
                if let Taken::New(gaps) = progress.sample(&sample, GapCause::Damaged) {
                    self.append_gaps(writer, &gaps)?;
                    let mut frame = Vec::with_capacity(at.bytes);
                    reader.copy_frame(at, &mut frame);
                    self.append(writer, &frame, reader.head(at), Some(&sample))?;
                    self.result.frames += 1;
                }
            }
            FrameKind::Gap => {
                let gap = Gap::decode(payload).filter(|gap| progress.gap(gap));
                self.append_gaps(writer, gap.as_slice())?;
            }
            FrameKind::Marker | FrameKind::Attachment | FrameKind::Unknown(_) => {
                let mut frame = Vec::with_capacity(at.bytes);
                reader.copy_frame(at, &mut frame);
                self.append(writer, &frame, reader.head(at), None)?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Appends what was rescued and the gaps that remain, and seals.
    fn fill_up(
        &mut self,
        mut writer: SegmentWriter,
        mut progress: Progress,
    ) -> Result<SealedSegment, RecoverError> {
        let step = Step { name: self.name };
        let leftovers = self.leftovers;
        let head_bytes = writer.checksum().frame_bytes(0);
        for frame in &leftovers.frames {
            let Some((head, payload)) = frame.split_at_checked(head_bytes) else { continue };
            let Some(sample) = Telemetry::read(payload) else { continue };
            if writer.header().source(sample.source).is_none() {
                continue;
            }
            let Taken::New(gaps) = progress.sample(&sample, GapCause::Crash) else { continue };
            self.append_gaps(&mut writer, &gaps)?;
            self.append(&mut writer, frame, head, Some(&sample))?;
            self.result.frames += 1;
            self.result.rescued += 1;
        }
        for source in progress.sources() {
            let begun = leftovers.begun.get(&source).copied().unwrap_or(0);
            let gaps = progress.missing(source, begun);
            self.append_gaps(&mut writer, &gaps)?;
        }
        self.flush(&mut writer)?;
        writer.seal_recovered().map_err(step.fails("write footer and trailer"))
    }

    /// Appends a frame to what is written next.
    fn append(
        &mut self,
        writer: &mut SegmentWriter,
        frame: &[u8],
        head: impl AsRef<[u8]>,
        sample: Option<&Telemetry<'_>>,
    ) -> Result<(), RecoverError> {
        self.batch.bytes.extend_from_slice(frame);
        self.batch.heads.extend_from_slice(head.as_ref());
        self.batch.count += 1;
        self.batch.samples.extend(sample.map(|sample| (sample.source, span_of(sample))));
        if self.batch.bytes.len() >= WRITE_BYTES { self.flush(writer) } else { Ok(()) }
    }

    /// Writes what was appended.
    fn flush(&mut self, writer: &mut SegmentWriter) -> Result<(), RecoverError> {
        let step = Step { name: self.name };
        if writer.unindexed_bytes().is_some_and(|bytes| bytes >= INTERVAL_BYTES) {
            writer.append_index(0).map_err(step.fails("write"))?;
        }
        let Batch { bytes, heads, count, samples } = &mut self.batch;
        if *count > 0 {
            let frames = Frames { pieces: &mut [IoSlice::new(bytes)], heads: &[heads], count: *count };
            writer.append(frames).map_err(step.fails("write"))?;
        }
        for (source, span) in samples.drain(..) {
            writer.tally(source, 1, span);
        }
        bytes.clear();
        heads.clear();
        *count = 0;
        Ok(())
    }

    fn append_gaps(&mut self, writer: &mut SegmentWriter, gaps: &[Gap]) -> Result<(), RecoverError> {
        if gaps.is_empty() {
            return Ok(());
        }
        self.flush(writer)?;
        self.result.lost = self.result.lost.saturating_add(count_of(gaps));
        writer.append_gaps(gaps).map_err(Step { name: self.name }.fails("write"))
    }

    /// Copies what stands behind `end` into a file of its own, and brings that to the medium.
    fn keep_tail(&mut self, file: &dyn StorageFile, end: u64) -> Result<(), RecoverError> {
        let step = Step { name: self.name };
        let name = self.name.aside(Aside::Cut);
        self.result.set_aside.push(name.clone());
        if self.dry_run {
            return Ok(());
        }
        let cut = match self.storage.open(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.storage.create(&name),
            // An interrupted recovery was about to copy this tail: from its start again. Or it has cut one off already, and
            // this is what it wrote itself: behind it.
            opened => opened.and_then(|cut| {
                if is_beginning(&*cut, file, end)? {
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
        let aside = self.name.aside(Aside::Damaged);
        self.write(
            |recovery| {
                recovery.storage.rename(stored, &aside)?;
                recovery.storage.sync_directory()
            },
            "set the damaged file aside",
        )?;
        self.result.set_aside.push(aside);
        Ok(())
    }

    fn publish(&self, sealed: &SealedSegment) -> Result<(), RecoverError> {
        self.write(|recovery| sealed.publish(recovery.storage), "publish the sealed file")
    }

    fn remove_if_there(&self, name: &str) -> Result<(), RecoverError> {
        match self.storage.remove(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Step { name: self.name }.fails("remove unfinished work")(error))
            }
            _ => Ok(()),
        }
    }

    /// Does a step, unless it is only to be said.
    fn write(
        &self,
        act: impl FnOnce(&Self) -> io::Result<()>,
        action: &'static str,
    ) -> Result<(), RecoverError> {
        if self.dry_run {
            return Ok(());
        }
        act(self).map_err(Step { name: self.name }.fails(action))
    }
}
