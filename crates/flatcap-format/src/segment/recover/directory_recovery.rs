//! Completes the unsealed segments of crashed runs in a directory, run by run.
//!
//! The recovery adds the samples in the memory of a crashed run to the last readable segment of the
//! run. If this segment is sealed, the recovery adds the samples to a new segment. A segment that
//! is not the last one of its run ends at the sequence numbers in the next header
//! (docs/ARCHITECTURE.md, "Crash memory and recovery").

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::leftovers::Leftovers;
use super::recovered::{RecoverError, Recovered, RecoveryStep};
use super::segment_recovery::{recover, resume};
use super::supplement::supplement;
use crate::segment::format::footer::Footer;
use crate::segment::format::frame_kind::{FrameKind, FrameLocation};
use crate::segment::format::header::SegmentHeader;
use crate::segment::format::segment_name::{SealState, SegmentName, SideFile};
use crate::segment::read::reader::{Advance, SegmentReader};
use crate::storage::Storage;

/// A recovery of all crashed runs in a directory.
#[derive(Debug, Clone, Copy)]
pub struct DirectoryRecovery<'a> {
    /// The directory.
    pub storage: &'a dyn Storage,
    /// The id of a run whose recorder is still running. The recovery skips this run.
    pub skip_run: Option<u64>,
    /// The only segment that the recovery completes. It is completed even if it is sealed and
    /// damaged. If the value is `None`, all unsealed segments are completed.
    pub only: Option<SegmentName>,
    /// Whether the recovery writes nothing. The results then describe what a recovery would do.
    pub dry_run: bool,
}

/// Whether the files of a run account for all samples that the run had begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunCompleteness {
    /// Every sample is recorded or counted as lost.
    Complete,
    /// Some samples are missing, or the last segment is not sealed.
    Incomplete,
    /// The directory contains no file of this run.
    NoFile,
}

impl DirectoryRecovery<'_> {
    /// Completes segments run by run, in the order of the runs' first segment numbers. `leftovers`
    /// returns the samples in the memory of a run, and is called at most once per run. `each` is
    /// called with the result for each segment.
    ///
    /// # Errors
    /// Fails if the directory cannot be listed. Errors of single segments are passed to `each`, and
    /// the recovery continues with the next segment.
    pub fn run(
        &self,
        leftovers: &mut dyn FnMut(u64) -> io::Result<Leftovers>,
        each: &mut dyn FnMut(SegmentName, Result<Recovered, RecoverError>),
    ) -> io::Result<()> {
        let entries = self.storage.entries()?;
        for (name, aside) in entries.iter().filter_map(|entry| SegmentName::parse_side_file(&entry.name)) {
            if aside != SideFile::Recovering || !self.is_selected(name) {
                continue;
            }
            match resume(self.storage, name, self.dry_run) {
                Ok(false) => {}
                Ok(true) => {
                    let sealed = Some(name.sealed().to_string());
                    each(name, Ok(Recovered { sealed, ..Recovered::default() }));
                }
                Err(error) => each(name, Err(error)),
            }
        }
        let mut names: Vec<SegmentName> =
            entries.iter().filter_map(|entry| SegmentName::parse(&entry.name)).collect();
        names.retain(|name| Some(name.run_id) != self.skip_run);
        let first_numbers = names.iter().fold(BTreeMap::new(), |mut first: BTreeMap<u64, u64>, name| {
            let number = first.entry(name.run_id).or_insert(name.number);
            *number = name.number.min(*number);
            first
        });
        names.sort_unstable_by_key(|name| (first_numbers.get(&name.run_id), name.run_id, order(name)));
        // If a segment was sealed while the directory was read, the list contains it twice. In this
        // case the sealed name is kept.
        names.dedup_by_key(|name| (name.run_id, name.number));
        for names in names.chunk_by(|one, other| one.run_id == other.run_id) {
            self.recover_run(names, leftovers, each);
        }
        Ok(())
    }

    /// Completes the segments of one run.
    fn recover_run(
        &self,
        names: &[SegmentName],
        leftovers: &mut dyn FnMut(u64) -> io::Result<Leftovers>,
        each: &mut dyn FnMut(SegmentName, Result<Recovered, RecoverError>),
    ) {
        let Some(run_id) = names.first().map(|name| name.run_id) else { return };
        let is_candidate = |name: &SegmentName| {
            self.is_selected(*name) && (name.state == SealState::Active || self.only.is_some())
        };
        let mut memory = leftovers(run_id);
        let is_empty = memory.as_ref().is_ok_and(|memory| memory.begun.is_empty());
        if is_empty && !names.iter().any(is_candidate) {
            return;
        }
        let (given_up, names) = self.without_given_up(names);
        for name in given_up.into_iter().filter(|name| self.is_selected(*name)) {
            each(name, self.remove_given_up(name));
        }
        let last = names.iter().rev().copied().find(|name| self.header(*name).is_some());
        for (at, name) in names.iter().enumerate() {
            let is_last = last == Some(*name);
            let is_examined = is_candidate(name) || (is_last && self.is_selected(*name));
            if !is_examined {
                continue;
            }
            let later = names.get(at + 1..).unwrap_or_default();
            let of_next = || later.iter().copied().find_map(|later| self.header(later));
            let own = match &mut memory {
                _ if !is_last => {
                    of_next().map_or_else(Leftovers::default, |next| Leftovers::from_successor(&next))
                }
                // The samples in the memory of the run are added only to its last segment.
                Ok(memory) => std::mem::take(memory),
                Err(error) => {
                    let error = io::Error::new(error.kind(), error.to_string());
                    each(*name, Err(RecoverError::memory(*name, error)));
                    continue;
                }
            };
            if is_candidate(name) {
                each(*name, recover(self.storage, *name, &own, self.dry_run));
            }
            let last = name.sealed();
            if is_last && self.footer(last).is_some() {
                match supplement(self.storage, last, &own, self.dry_run) {
                    Ok(None) => {}
                    Ok(Some((name, recovered))) => each(name, Ok(recovered)),
                    Err(error) => each(last, Err(error)),
                }
            }
        }
    }

    /// Separates the given-up segments of a run from the others. The recorder gives up a segment if
    /// the creation of the segment fails after its header was written. The recorder then continues
    /// with the previous segment. A given-up segment is unsealed and has neither samples nor gaps.
    /// The previous segment contains a sequence number at or above the `next_seq` of the given-up
    /// segment.
    fn without_given_up(&self, names: &[SegmentName]) -> (Vec<SegmentName>, Vec<SegmentName>) {
        let (mut given_up, mut others) = (Vec::new(), Vec::<SegmentName>::new());
        for name in names {
            let is_given_up = name.state == SealState::Active
                && others
                    .iter()
                    .rev()
                    .find_map(|before| self.open(*before))
                    .zip(self.open(*name))
                    .is_some_and(|(before, reader)| was_given_up(reader, before));
            if is_given_up { &mut given_up } else { &mut others }.push(*name);
        }
        (given_up, others)
    }

    fn remove_given_up(&self, name: SegmentName) -> Result<Recovered, RecoverError> {
        let step = RecoveryStep { name };
        if !self.dry_run {
            self.storage.remove(&name.to_string()).map_err(step.fails("remove a segment without content"))?;
        }
        Ok(Recovered::default())
    }

    /// Checks whether the files of a run account for the samples that the run had begun. `begun` is
    /// the next sequence number of each source.
    ///
    /// # Errors
    /// Fails if the directory cannot be listed.
    pub fn run_completeness(&self, run_id: u64, begun: &BTreeMap<u16, u64>) -> io::Result<RunCompleteness> {
        let entries = self.storage.entries()?;
        let of_run = |name: &SegmentName| name.run_id == run_id;
        let mut names: Vec<SegmentName> =
            entries.iter().filter_map(|entry| SegmentName::parse(&entry.name)).filter(of_run).collect();
        names.sort_unstable_by_key(order);
        let mut asides = entries.iter().filter_map(|entry| SegmentName::parse_side_file(&entry.name));
        let is_there = !names.is_empty() || asides.any(|(name, _)| of_run(&name));
        let last = names.iter().rev().copied().find(|name| self.header(*name).is_some());
        let footer = last.filter(|last| last.state == SealState::Sealed).and_then(|last| self.footer(last));
        let begun = Leftovers { begun: begun.clone(), ..Leftovers::default() };
        Ok(match footer {
            _ if begun.begun.values().all(|begun| *begun == 0) => RunCompleteness::Complete,
            Some(footer) if begun.is_covered_by(&footer) => RunCompleteness::Complete,
            None if !is_there => RunCompleteness::NoFile,
            _ => RunCompleteness::Incomplete,
        })
    }

    fn is_selected(&self, name: SegmentName) -> bool {
        let is_only = |only: SegmentName| (only.run_id, only.number) == (name.run_id, name.number);
        Some(name.run_id) != self.skip_run && self.only.is_none_or(is_only)
    }

    /// Returns the header of a segment, or `None` if the segment cannot be read.
    fn header(&self, name: SegmentName) -> Option<SegmentHeader> {
        self.open(name).map(|reader| reader.header().clone())
    }

    /// Returns the footer of a sealed segment, or `None` if the segment cannot be read.
    fn footer(&self, name: SegmentName) -> Option<Footer> {
        self.open(name)?.footer().cloned()
    }

    fn open(&self, name: SegmentName) -> Option<SegmentReader> {
        let stored = name.to_string();
        let file = self.storage.open(&stored).ok()?;
        SegmentReader::over(Path::new(&stored), file).ok()
    }
}

/// Returns whether an unsealed segment was given up. Such a segment contains no sample and no gap.
/// Also, the previous segment must have a sequence number at or above the unsealed segment's
/// `next_seq`.
fn was_given_up(mut reader: SegmentReader, mut before: SegmentReader) -> bool {
    let header = reader.header().clone();
    let counts = |at: FrameLocation| matches!(at.kind, FrameKind::Telemetry | FrameKind::Gap);
    loop {
        match reader.advance() {
            Ok(Some(Advance::Frame(at))) if !counts(at) => {}
            Ok(None) => break,
            // A file that is damaged or cannot be read may have samples or gaps.
            _ => return false,
        }
    }
    let first = Leftovers::from_successor(&header);
    if let Some(footer) = before.footer() {
        return first.begun.iter().any(|(source, begun)| footer.next_seq(*source) > *begun);
    }
    while let Ok(Some(advance)) = before.advance() {
        if let Advance::Frame(at) = advance
            && first.is_counted_later(&before, at)
        {
            return true;
        }
    }
    false
}

/// Returns the sort key of a segment within its run.
fn order(name: &SegmentName) -> (u64, bool) {
    (name.number, name.state == SealState::Active)
}
