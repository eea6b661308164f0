//! Writes supplements. A sealed segment never changes. The compressor, the shipper, retention and
//! caches rely on this. If the memory of a run has samples that the sealed segments lack, these
//! samples become another segment of the run, which is called a supplement.

use std::path::Path;

use super::leftovers::Leftovers;
use super::recovered::{RecoverError, Recovered, RecoveryStep};
use super::segment_recovery::SegmentRecovery;
use crate::host::ClockReading;
use crate::segment::format::control_frames::Attachment;
use crate::segment::format::footer::Footer;
use crate::segment::format::frame_kind::{FrameKind, SampleView};
use crate::segment::format::header::SegmentHeader;
use crate::segment::format::segment_name::{SealState, SegmentName};
use crate::segment::open::header_copy;
use crate::segment::read::reader::{Advance, SegmentReader};
use crate::segment::verify::removed::RemovedSegments;
use crate::storage::{FileEntry, Storage};

/// Returns the run's segment with the highest segment number in a directory listing.
pub fn last_segment(entries: &[FileEntry], run_id: u64) -> Option<SegmentName> {
    let names = entries.iter().filter_map(|entry| SegmentName::parse(&entry.name));
    // If a segment was sealed while the directory was read, the listing contains it twice. In this
    // case the sealed name is used.
    names
        .filter(|name| name.run_id == run_id)
        .max_by_key(|name| (name.number, name.state == SealState::Sealed))
}

/// Writes a new segment for a killed run whose last segment is sealed. The new segment contains the
/// leftovers that the last segment does not count. Returns the name of the new segment, or `None`
/// if the last segment counts all samples. If `dry_run` is true, writes nothing. The run has never
/// used the segment number of the new segment, not even for a segment that retention has removed.
/// This is necessary because receipts and the lake identify a file by its run and its segment
/// number.
///
/// The new segment is complete and synced before it gets its name. The caller must ensure that no
/// other thread or process recovers the same run at the same time.
///
/// # Errors
/// Returns `Unreadable` if the last segment cannot be read or has no footer, and `Storage` with the
/// step that failed. If the function fails, no data is lost.
pub fn supplement(
    storage: &dyn Storage,
    last: SegmentName,
    leftovers: &Leftovers,
    dry_run: bool,
) -> Result<Option<(SegmentName, Recovered)>, RecoverError> {
    let step = RecoveryStep { name: last };
    let stored = last.to_string();
    let file = storage.open(&stored).map_err(step.fails("open the file"))?;
    let mut reader = SegmentReader::over(Path::new(&stored), file)?;
    let Some(footer) = reader.footer().cloned() else {
        let error = std::io::Error::other("it has no footer");
        return Err(step.fails("read what it counts")(error));
    };
    if !leftovers.exceeds(&footer) {
        return Ok(None);
    }
    let removed = RemovedSegments::read(storage).map_err(step.fails("read the list of removed segments"))?;
    let last_removed = removed.last_before(last.run_id, u64::MAX).filter(|removed| *removed > last.number);
    let number = SegmentName::next_number(last_removed.unwrap_or(last.number)).ok_or_else(|| {
        step.fails("find a number for the rest of its run")(std::io::ErrorKind::StorageFull.into())
    })?;
    let mut header = header_after(&footer, leftovers, number);
    if last_removed.is_some() {
        begin_with(leftovers, &mut header);
    }
    let name = SegmentName {
        number,
        created_s: header.clocks.wall_ns.div_euclid(1_000_000_000),
        run_id: last.run_id,
        state: SealState::Sealed,
    };
    let attachments = attachments(&mut reader)?;
    let recovered =
        SegmentRecovery::new(storage, name, leftovers, dry_run).write_new(header, &attachments)?;
    Ok(Some((name, recovered)))
}

/// Returns the header of a new segment that follows the segment with this footer. The new segment
/// begins with the first leftover sample.
fn header_after(footer: &Footer, leftovers: &Leftovers, number: u64) -> SegmentHeader {
    let mut header = footer.header.clone();
    header.segment = number;
    for source in &mut header.sources {
        source.next_seq = footer.next_seq(source.id);
    }
    let head_bytes = header.checksum.frame_bytes(0);
    let samples = leftovers.frames.iter().filter_map(|frame| SampleView::read(frame.get(head_bytes..)?));
    let is_new = |sample: &SampleView<'_>| {
        header.source(sample.source).is_none_or(|source| sample.seq >= source.next_seq)
    };
    let first_ns = samples.filter(is_new).map(|sample| sample.mono_ns).min();
    let last_ns = footer.totals.iter().filter_map(|totals| Some(totals.span?.last_mono_ns)).max();
    let mono_ns = first_ns.or(last_ns).unwrap_or(header.clocks.mono_ns);
    header.clocks = clocks_at(&header, mono_ns);
    header
}

/// Sets the `next_seq` of each source to the sequence number of the source's first leftover sample.
/// If the previous segment does not count earlier sequence numbers, they were in a segment that
/// retention has removed.
fn begin_with(leftovers: &Leftovers, header: &mut SegmentHeader) {
    let head_bytes = header.checksum.frame_bytes(0);
    for source in &mut header.sources {
        let samples = leftovers.frames.iter().filter_map(|frame| SampleView::read(frame.get(head_bytes..)?));
        let own = samples.filter(|sample| sample.source == source.id && sample.seq >= source.next_seq);
        let first = own.map(|sample| sample.seq).min().or(leftovers.begun.get(&source.id).copied());
        source.next_seq = first.unwrap_or_default().max(source.next_seq);
    }
}

/// Returns the values of the clocks at a monotonic time, computed from the run's clock pairings.
fn clocks_at(header: &SegmentHeader, mono_ns: u64) -> ClockReading {
    let before = header.clock_table.iter().rfind(|clocks| clocks.mono_ns <= mono_ns);
    let suspended_ns = before.unwrap_or(&header.clocks).suspended_ns();
    ClockReading { mono_ns, boot_ns: mono_ns.saturating_add(suspended_ns), wall_ns: header.wall_ns(mono_ns) }
}

/// Returns the attachments that follow the header of each segment of the run.
fn attachments(reader: &mut SegmentReader) -> Result<Vec<Attachment>, RecoverError> {
    let mut attachments = Vec::new();
    while let Some(Advance::Frame(at)) = reader.advance()? {
        match at.kind {
            FrameKind::Header => {}
            FrameKind::Attachment => attachments.extend(Attachment::decode(reader.payload(at))),
            _ => break,
        }
    }
    attachments.retain(|attachment| attachment.name != header_copy::NAME);
    Ok(attachments)
}
