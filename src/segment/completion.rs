//! Everything that crashed runs left in a directory, in the order of its numbers.

use std::io;
use std::path::Path;

use super::header::Header;
use super::name::{Aside, SegmentName, State};
use super::reader::SegmentReader;
use super::recover::{Leftovers, RecoverError, Recovered, recover, resume};
use crate::os::storage::Storage;

/// Completes what runs have left unsealed.
#[derive(Debug, Clone, Copy)]
pub struct Completion<'a> {
    /// Where.
    pub storage: &'a dyn Storage,
    /// A run that is at work: left alone.
    pub spare_run: Option<u64>,
    /// Nothing is written; the results say what would be.
    pub dry_run: bool,
}

impl Completion<'_> {
    /// Goes through all of them. `leftovers` gives what the memory of a run still held, asked once a run, for its last
    /// segment that can be read; `each` is told of each segment.
    ///
    /// # Errors
    /// The directory cannot be listed. What goes wrong with one segment is told to `each` and stops no other.
    pub fn run(
        &self,
        leftovers: &mut dyn FnMut(u64) -> Leftovers,
        each: &mut dyn FnMut(SegmentName, Result<Recovered, RecoverError>),
    ) -> io::Result<()> {
        let entries = self.storage.entries()?;
        for (name, aside) in entries.iter().filter_map(|entry| SegmentName::parse_aside(&entry.name)) {
            if aside != Aside::Recovering || Some(name.run_id) == self.spare_run {
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
        // A segment may be sealed between two looks at the directory: each number counts once, sealed first.
        names.sort_unstable_by_key(|name| (name.number, name.state == State::Active));
        names.dedup_by_key(|name| name.number);
        let mut rest = names.as_slice();
        while let Some((name, behind)) = rest.split_first() {
            rest = behind;
            if name.state != State::Active {
                continue;
            }
            let same_run = behind.iter().filter(|later| later.run_id == name.run_id);
            let next = same_run.copied().find_map(|later| self.header(later));
            let memory = match next {
                Some(header) => Leftovers {
                    begun: header.sources.iter().map(|source| (source.id, source.next_seq)).collect(),
                    is_followed: true,
                    ..Leftovers::default()
                },
                None if self.header(*name).is_some() => leftovers(name.run_id),
                None => Leftovers::default(),
            };
            each(*name, recover(self.storage, *name, &memory, self.dry_run));
        }
        Ok(())
    }

    /// The header of a segment that can be read.
    fn header(&self, name: SegmentName) -> Option<Header> {
        let stored = name.to_string();
        let file = self.storage.open(&stored).ok()?;
        SegmentReader::over(Path::new(&stored), file).ok().map(|reader| reader.header().clone())
    }
}
