//! The runs ahead of a reader: those that its crew has found, or its own.

use super::crew::Crew;
use super::reader::SegmentReader;
use super::survey::{Run, RunSamples, Survey};

/// How far the reader surveys by itself: a piece stays in the processor's cache until its run is taken.
const PIECE_BYTES: usize = 256 << 10;

/// Where the runs come from.
#[derive(Debug)]
pub(super) struct Runs<'a> {
    crew: Option<&'a Crew>,
    limit: u64,
    survey: Survey,
    next: usize,        // in its runs: none of those before begins at or behind the reader
    refused_until: u64, // the reader goes frame by frame up to here
}

impl<'a> Runs<'a> {
    /// From a crew, or the reader's own. None of them reaches beyond `limit`.
    pub(super) fn new(crew: Option<&'a Crew>, limit: u64) -> Self {
        Self { crew, limit, survey: Survey::default(), next: 0, refused_until: 0 }
    }

    /// The run that begins where the reader stands, which goes forward only.
    pub(super) fn at(&mut self, reader: &mut SegmentReader) -> Option<Run> {
        let offset = reader.offset();
        if offset < self.refused_until || !reader.is_at_ease() {
            return None;
        }
        if offset >= self.survey.end() {
            self.look(reader, offset);
        }
        let rest = self.survey.runs().get(self.next..).unwrap_or_default();
        self.next += rest.iter().take_while(|run| run.offset < offset).count();
        self.survey.runs().get(self.next).filter(|run| run.offset == offset).cloned()
    }

    /// The reader cannot take this run.
    pub(super) fn refuse(&mut self, run: &Run) {
        self.refused_until = run.end();
    }

    /// The headers of its frames.
    pub(super) fn heads(&self, run: &Run) -> &[u8] {
        self.survey.heads(run)
    }

    /// Its samples, one entry a source.
    pub(super) fn samples(&self, run: &Run) -> &[RunSamples] {
        self.survey.samples(run)
    }

    fn look(&mut self, reader: &mut SegmentReader, offset: u64) {
        self.next = 0;
        if self.crew.is_some_and(|crew| crew.survey(offset, &mut self.survey)) {
            reader.window.is_ahead(self.survey.end());
            if offset < self.survey.end() {
                return;
            }
        }
        let border = self.crew.map_or(u64::MAX, |crew| crew.border(offset)).min(self.limit);
        let most = usize::try_from(border.saturating_sub(offset)).unwrap_or(usize::MAX).min(PIECE_BYTES);
        reader.window.look_ahead(offset);
        let bytes = reader.window.cached(offset);
        self.survey.walk(reader.deframer, bytes.get(..most).unwrap_or(bytes), offset);
    }
}
