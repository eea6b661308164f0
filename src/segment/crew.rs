//! Threads that survey a mapped segment ahead of its reader, stretch by stretch, and the reader among them while it waits.
//!
//! What they find changes nothing but the time it takes: see `survey`.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, available_parallelism, scope};

use super::footer::Footer;
use super::index::IndexEntry;
use super::reader::SegmentReader;
use super::survey::Survey;
use crate::os::mapped_file::MappedFile;
use crate::stream::KindDeframer;

/// Most surveyors, whatever the host has: one reader takes what so many find.
const SURVEYORS_MAX: usize = 7;
/// Shortest file that is worth a thread: starting one takes as long as reading half a megabyte.
const FILE_BYTES_MIN: u64 = 4 << 20;
/// Longest stretch. What an index entry covers beyond that is left to the reader.
const STRETCH_BYTES_MAX: u64 = 8 << 20;
/// So many stretches a thread may be taken or done ahead of the reader.
const AHEAD_PER_THREAD: usize = 3;

/// How many surveyors a file is worth on a host with so many processors for us.
fn surveyors(file_bytes: u64, processors: usize) -> usize {
    if file_bytes < FILE_BYTES_MIN { 0 } else { processors.saturating_sub(1).min(SURVEYORS_MAX) }
}

/// The stretches that an index names, as far as they ascend, do not overlap and end at `limit` at most. It may say anything.
pub(super) fn stretches(index: &[IndexEntry], limit: u64) -> Vec<Range<u64>> {
    let mut end = 0;
    let mut stretches = Vec::new();
    for entry in index {
        if entry.offset >= end && entry.bytes > 0 && entry.end() <= limit {
            end = entry.end();
            stretches.push(entry.offset..end.min(entry.offset.saturating_add(STRETCH_BYTES_MAX)));
        }
    }
    stretches
}

/// Those who survey one file.
#[derive(Debug)]
pub(super) struct Crew {
    map: Arc<MappedFile>,
    deframer: KindDeframer,
    stretches: Vec<Range<u64>>, // ascending
    surveyors: usize,
    board: Mutex<Board>,
    changed: Condvar,
}

/// Who does what.
#[derive(Debug, Default)]
struct Board {
    passed: usize,         // stretches that the reader has taken or passed
    slots: VecDeque<Slot>, // of the stretches from there on that somebody has taken
    spare: Vec<Survey>,
    is_over: bool,
}

#[derive(Debug)]
enum Slot {
    InProgress,
    Done(Survey),
}

/// What the reader does when it has come to a stretch.
enum Turn {
    Take(Survey),
    Survey(usize, Survey),
    Wait,
}

/// A stretch that somebody surveys. It is done when this goes, whatever the end of it.
struct Claim<'a> {
    crew: &'a Crew,
    at: usize,
    survey: Survey,
}

impl SegmentReader {
    /// Those who survey a mapped segment for this reader.
    pub(super) fn crew(&self) -> Option<Crew> {
        let (map, footer, limit) = (self.window.mapped()?, self.footer.as_ref()?, self.footer_offset?);
        Some(Crew::new(Arc::clone(map), self.deframer, footer, limit))
    }
}

impl Crew {
    /// A crew for a mapped segment whose footer stands at `limit`.
    pub(super) fn new(map: Arc<MappedFile>, deframer: KindDeframer, footer: &Footer, limit: u64) -> Self {
        let surveyors = surveyors(map.bytes().len() as u64, available_parallelism().map_or(1, usize::from));
        Self::of(map, deframer, stretches(&footer.index, limit), surveyors)
    }

    pub(super) fn of(
        map: Arc<MappedFile>,
        deframer: KindDeframer,
        stretches: Vec<Range<u64>>,
        surveyors: usize,
    ) -> Self {
        Self { map, deframer, stretches, surveyors, board: Mutex::default(), changed: Condvar::new() }
    }

    /// Reads while the surveyors survey. With one that cannot be started there is one less.
    pub(super) fn during<T>(&self, read: impl FnOnce() -> T) -> T {
        if self.surveyors == 0 {
            return read();
        }
        scope(|scope| {
            for number in 1..=self.surveyors {
                let named = Builder::new().name(format!("survey-{number}"));
                let _refused = named.spawn_scoped(scope, || self.help());
            }
            let _end = End(self);
            read()
        })
    }

    /// The survey of the stretch that holds `offset`, if there are surveyors and the reader has not asked for it before.
    /// `used` goes round. None leaves it to the reader, up to the next stretch: see [`border`](Self::border).
    pub(super) fn survey(&self, offset: u64, used: &mut Survey) -> bool {
        let at = self.stretches.partition_point(|stretch| stretch.end <= offset);
        if self.surveyors == 0 || self.stretches.get(at).is_none_or(|stretch| stretch.start > offset) {
            return false;
        }
        let mut board = self.board();
        if at < board.passed {
            return false;
        }
        board.pass(at);
        self.changed.notify_all();
        loop {
            match board.turn(self.stretches.len(), self.ahead_max()) {
                Turn::Take(survey) => {
                    board.spare.push(std::mem::replace(used, survey));
                    self.changed.notify_all();
                    return true;
                }
                Turn::Survey(at, survey) => {
                    drop(board);
                    self.walk(at, survey);
                    board = self.board();
                }
                Turn::Wait => board = self.changed.wait(board).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Up to where a reader at `offset` that was given no survey may make one itself.
    pub(super) fn border(&self, offset: u64) -> u64 {
        let at = self.stretches.partition_point(|stretch| stretch.end <= offset);
        let stretch = self.stretches.get(at).filter(|_| self.surveyors > 0);
        stretch.map_or(u64::MAX, |stretch| if stretch.start > offset { stretch.start } else { stretch.end })
    }

    /// What a surveyor does.
    fn help(&self) {
        let mut board = self.board();
        while !board.is_over && board.next() < self.stretches.len() {
            if board.slots.len() >= self.ahead_max() {
                board = self.changed.wait(board).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (at, survey) = board.claim();
            drop(board);
            self.walk(at, survey);
            board = self.board();
        }
    }

    fn walk(&self, at: usize, survey: Survey) {
        let mut claim = Claim { crew: self, at, survey };
        let Some(stretch) = self.stretches.get(at) else { return };
        let (from, to) = (usize::try_from(stretch.start), usize::try_from(stretch.end));
        let (from, to) = (from.unwrap_or(usize::MAX), to.unwrap_or(usize::MAX));
        self.map.populate(from, to.saturating_sub(from));
        let bytes = self.map.bytes().get(from..to).unwrap_or_default();
        claim.survey.walk(self.deframer, bytes, stretch.start);
    }

    fn ahead_max(&self) -> usize {
        (self.surveyors + 1) * AHEAD_PER_THREAD
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    /// The first stretch that nobody has taken.
    fn next(&self) -> usize {
        self.passed + self.slots.len()
    }

    /// The reader stands at this stretch: those in front of it are of no use any more.
    fn pass(&mut self, at: usize) {
        while self.passed < at {
            if let Some(Slot::Done(survey)) = self.slots.pop_front() {
                self.spare.push(survey);
            }
            self.passed += 1;
        }
    }

    fn claim(&mut self) -> (usize, Survey) {
        let at = self.next();
        self.slots.push_back(Slot::InProgress);
        (at, self.spare.pop().unwrap_or_default())
    }

    fn done(&mut self, at: usize, survey: Survey) {
        match at.checked_sub(self.passed).and_then(|at| self.slots.get_mut(at)) {
            Some(slot) => *slot = Slot::Done(survey),
            // The reader has gone on without it.
            None => self.spare.push(survey),
        }
    }

    /// What the reader does at the first stretch that it has not passed.
    fn turn(&mut self, stretches: usize, ahead_max: usize) -> Turn {
        match self.slots.pop_front() {
            Some(Slot::Done(survey)) => {
                self.passed += 1;
                return Turn::Take(survey);
            }
            Some(slot @ Slot::InProgress) => self.slots.push_front(slot),
            None => {}
        }
        if self.next() < stretches && self.slots.len() < ahead_max {
            let (at, survey) = self.claim();
            Turn::Survey(at, survey)
        } else {
            Turn::Wait
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.crew.board().done(self.at, std::mem::take(&mut self.survey));
        self.crew.changed.notify_all();
    }
}

/// Sends the surveyors home, however the reading ends.
struct End<'a>(&'a Crew);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.board().is_over = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(entries: &[(u64, u64)]) -> Vec<IndexEntry> {
        let entry = |(offset, bytes): &(u64, u64)| IndexEntry {
            offset: *offset,
            bytes: *bytes,
            ..IndexEntry::default()
        };
        entries.iter().map(entry).collect()
    }

    // Goal: stretches ascend, lie in front of the limit and are bounded, whatever an index says. Method: a true one, and lies of
    // every kind among true entries.
    #[test]
    fn an_index_may_lie() {
        let of = |said: &[(u64, u64)]| stretches(&entries(said), 1000);
        assert_eq!(of(&[(0, 400), (400, 600)]), [0..400, 400..1000]);
        assert_eq!(of(&[(0, 400), (300, 200), (400, 0), (500, 501), (500, 500)]), [0..400, 500..1000]);
        assert_eq!(of(&[(900, 50), (0, 400), (u64::MAX, u64::MAX), (950, 50)]), [900..950, 950..1000]);
        let endless = stretches(&entries(&[(5, u64::MAX)]), u64::MAX);
        assert_eq!(endless.first(), Some(&(5..5 + STRETCH_BYTES_MAX)));
    }

    // Goal: surveyors for what is worth it. Method: sizes and numbers of processors.
    #[test]
    fn small_files_need_no_help() {
        assert_eq!([0, 1, 2, 8, 99].map(|processors| surveyors(1 << 30, processors)), [0, 0, 1, 7, 7]);
        assert_eq!(surveyors(FILE_BYTES_MIN - 1, 8), 0);
    }

    /// A file of empty frames without checksums: 4 zero bytes each.
    fn crew(surveyors: usize, stretches: Vec<Range<u64>>) -> (tempfile::NamedTempFile, Crew) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![0; 4000]).unwrap();
        let map = Arc::new(MappedFile::map(file.as_file()).unwrap());
        let deframer = KindDeframer::new(crate::stream::ChecksumKind::None);
        (file, Crew::of(map, deframer, stretches, surveyors))
    }

    // Goal: each stretch is given once, those that the reader jumps over never, and no way of reading hangs. Method: forty
    // stretches, one, two and five surveyors, a reader that takes each, every third, each twice, none, or stops in the middle.
    #[test]
    fn readers_get_each_stretch_once() {
        let stretches: Vec<Range<u64>> = (0..40).map(|at| at * 100..at * 100 + 96).collect();
        for surveyors in [1, 2, 5] {
            for step in [1, 3, 50] {
                for stop in [0, 20, 40] {
                    let (_file, crew) = crew(surveyors, stretches.clone());
                    crew.during(|| {
                        let mut survey = Survey::default();
                        for at in (0..stop).step_by(step) {
                            let (offset, end) = (at * 100 + 40, at * 100 + 96);
                            assert_eq!(crew.border(offset), end);
                            assert!(crew.survey(offset, &mut survey));
                            assert_eq!(survey.end(), end);
                            assert!(!crew.survey(offset, &mut survey), "given once");
                            assert!(!crew.survey(end + 1, &mut survey), "between two");
                            assert_eq!(crew.border(end + 1), if at == 39 { u64::MAX } else { end + 4 });
                        }
                    });
                    let board = crew.board();
                    let surveys = board.spare.len() + board.slots.len();
                    assert!(
                        surveys <= crew.ahead_max() + surveyors + 2,
                        "{surveys} surveys, {surveyors} surveyors"
                    );
                }
            }
        }
    }

    // Goal: a stretch is done however its survey ends. Method: a claim that is let go at once.
    #[test]
    fn claims_that_are_let_go_are_done() {
        let (_file, crew) = crew(1, vec![0..96, 100..196]);
        let (at, survey) = crew.board().claim();
        drop(Claim { crew: &crew, at, survey });
        assert!(crew.survey(0, &mut Survey::default()));
    }
}
