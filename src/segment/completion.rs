//! Completes what crashed runs left in a directory, run by run.
//!
//! A run's last readable segment gets what the run's memory still holds, whether that segment is sealed or not. A segment
//! that another one of its run follows ends where the next header says (docs/ARCHITECTURE.md, "Recovery").

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::footer::Footer;
use super::header::Header;
use super::leftovers::Leftovers;
use super::name::{Aside, SegmentName, State};
use super::reader::SegmentReader;
use super::recover::{recover, resume};
use super::recovered::{RecoverError, Recovered};
use crate::os::storage::Storage;

/// Completes what runs have left unsealed.
#[derive(Debug, Clone, Copy)]
pub struct Completion<'a> {
    /// Where.
    pub storage: &'a dyn Storage,
    /// A run that is at work: left alone.
    pub spare_run: Option<u64>,
    /// The only segment to complete, sealed ones with damage too; none: all that are unsealed.
    pub only: Option<SegmentName>,
    /// Nothing is written; the results say what would be.
    pub dry_run: bool,
}

/// What the files of a run hold of the readings that it had begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// Each is recorded, or counted as lost.
    All,
    /// Some are missing, or the last segment is not sealed.
    Short,
    /// The directory has no file of this run.
    NoFile,
}

impl Completion<'_> {
    /// Completes segments, run by run in the order of their first numbers. `leftovers` returns what the memory of a run
    /// still holds; it is called at most once a run. `each` gets the result of each segment.
    ///
    /// # Errors
    /// The directory cannot be listed. `each` gets the errors of single segments; they stop no other.
    pub fn run(
        &self,
        leftovers: &mut dyn FnMut(u64) -> io::Result<Leftovers>,
        each: &mut dyn FnMut(SegmentName, Result<Recovered, RecoverError>),
    ) -> io::Result<()> {
        let entries = self.storage.entries()?;
        for (name, aside) in entries.iter().filter_map(|entry| SegmentName::parse_aside(&entry.name)) {
            if aside != Aside::Recovering || !self.is_wanted(name) {
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
        names.retain(|name| Some(name.run_id) != self.spare_run);
        let first_numbers = names.iter().fold(BTreeMap::new(), |mut first: BTreeMap<u64, u64>, name| {
            let number = first.entry(name.run_id).or_insert(name.number);
            *number = name.number.min(*number);
            first
        });
        names.sort_unstable_by_key(|name| (first_numbers.get(&name.run_id), name.run_id, order(name)));
        // A segment may be sealed between two looks at the directory: it counts once, sealed first.
        names.dedup_by_key(|name| (name.run_id, name.number));
        for names in names.chunk_by(|one, other| one.run_id == other.run_id) {
            self.complete_run(names, leftovers, each);
        }
        Ok(())
    }

    /// Completes one run, whose segments these are.
    fn complete_run(
        &self,
        names: &[SegmentName],
        leftovers: &mut dyn FnMut(u64) -> io::Result<Leftovers>,
        each: &mut dyn FnMut(SegmentName, Result<Recovered, RecoverError>),
    ) {
        let Some(run_id) = names.first().map(|name| name.run_id) else { return };
        let is_candidate = |name: &SegmentName| {
            self.is_wanted(*name) && (name.state == State::Active || self.only.is_some())
        };
        let mut memory = leftovers(run_id);
        let is_empty = memory.as_ref().is_ok_and(|memory| memory.begun.is_empty());
        if is_empty && !names.iter().any(is_candidate) {
            return;
        }
        let last = names.iter().rev().copied().find(|name| self.header(*name).is_some());
        for (at, name) in names.iter().enumerate() {
            let is_last = last == Some(*name);
            let is_looked_at = is_candidate(name) || (is_last && self.is_wanted(*name));
            if !is_looked_at {
                continue;
            }
            let later = names.get(at + 1..).unwrap_or_default();
            let of_next = || later.iter().copied().find_map(|later| self.header(later));
            let own = match &mut memory {
                _ if !is_last => of_next().map_or_else(Leftovers::default, |next| Leftovers::of_next(&next)),
                // The last one alone has it.
                Ok(memory) => std::mem::take(memory),
                Err(error) => {
                    let error = io::Error::new(error.kind(), error.to_string());
                    each(*name, Err(RecoverError::memory(*name, error)));
                    continue;
                }
            };
            let exceeds = || self.footer(*name).is_some_and(|footer| own.exceeds(&footer));
            if is_candidate(name) || exceeds() {
                each(*name, recover(self.storage, *name, &own, self.dry_run));
            }
        }
    }

    /// Looks whether the files of a run hold what it had begun: each source's next number.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn account(&self, run_id: u64, begun: &BTreeMap<u16, u64>) -> io::Result<Account> {
        let entries = self.storage.entries()?;
        let of_run = |name: &SegmentName| name.run_id == run_id;
        let mut names: Vec<SegmentName> =
            entries.iter().filter_map(|entry| SegmentName::parse(&entry.name)).filter(of_run).collect();
        names.sort_unstable_by_key(order);
        let mut asides = entries.iter().filter_map(|entry| SegmentName::parse_aside(&entry.name));
        let is_there = !names.is_empty() || asides.any(|(name, _)| of_run(&name));
        let last = names.iter().rev().copied().find(|name| self.header(*name).is_some());
        let footer = last.filter(|last| last.state == State::Sealed).and_then(|last| self.footer(last));
        let begun = Leftovers { begun: begun.clone(), ..Leftovers::default() };
        Ok(match footer {
            _ if begun.begun.values().all(|begun| *begun == 0) => Account::All,
            Some(footer) if begun.is_counted(&footer) => Account::All,
            None if !is_there => Account::NoFile,
            _ => Account::Short,
        })
    }

    fn is_wanted(&self, name: SegmentName) -> bool {
        let is_only = |only: SegmentName| (only.run_id, only.number) == (name.run_id, name.number);
        Some(name.run_id) != self.spare_run && self.only.is_none_or(is_only)
    }

    /// The header of a segment that can be read.
    fn header(&self, name: SegmentName) -> Option<Header> {
        self.open(name).map(|reader| reader.header().clone())
    }

    /// The footer of a sealed segment that can be read.
    fn footer(&self, name: SegmentName) -> Option<Footer> {
        self.open(name)?.footer().cloned()
    }

    fn open(&self, name: SegmentName) -> Option<SegmentReader> {
        let stored = name.to_string();
        let file = self.storage.open(&stored).ok()?;
        SegmentReader::over(Path::new(&stored), file).ok()
    }
}

/// The order of a run's segments.
fn order(name: &SegmentName) -> (u64, bool) {
    (name.number, name.state == State::Active)
}
