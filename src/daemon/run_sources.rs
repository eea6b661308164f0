//! The sources of a run, both the configured ones and those that applications add later.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use flatcap_format::segment::SourceInfo;
use flatcap_metrics::{Metrics, SourceMetrics};
use flatcap_recorder::RecorderHandle;
use flatcap_slab::RunNotes;

use super::memory_budget::RUN_SOURCES_MAX;

/// Space that a source needs in each segment in addition to its schema and names, in bytes. It is
/// for the source's counts and histograms in the footer.
const FOOTER_BYTES: u64 = 4 << 10;

/// All sources of the run so far. Ids are assigned in order and never reused. Therefore a thread
/// that adds sources holds the lock until the recorders have received them.
pub(super) struct RunSources {
    infos: Mutex<Vec<SourceInfo>>, // by id
    metrics: Arc<Metrics>,
    ring_metrics: Option<Arc<Metrics>>,
    recorders: Vec<SourceReceiver>, // the ring's recorder first, because it has the samples first
    /// The notes. `None` if the memory of the run ends with the process.
    // The notes have their own lock, because a caller of `note` already holds the lock of the list,
    // which `lock` has returned to a reload. So no thread waits for this lock.
    notes: Mutex<Option<RunNotes>>,
}

/// A recorder that must be notified of new sources.
pub(super) struct SourceReceiver {
    pub(super) recorder: RecorderHandle,
    /// The minimum period of sources in this recorder's recording, in nanoseconds.
    pub(super) period_min_ns: u64,
}

/// The reason why a source was not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddSourceError {
    /// A reload is adding sources, or a recorder has not yet processed the sources added before.
    Busy,
    /// The run has the maximum number of sources.
    TooMany,
}

impl RunSources {
    /// Creates the list with the sources at the start of the run, which the recorders already have.
    pub(super) fn new(
        infos: Vec<SourceInfo>,
        metrics: Arc<Metrics>,
        ring_metrics: Option<Arc<Metrics>>,
        recorders: Vec<SourceReceiver>,
        notes: Option<RunNotes>,
    ) -> Self {
        Self { infos: Mutex::new(infos), metrics, ring_metrics, recorders, notes: Mutex::new(notes) }
    }

    /// Locks the list for a reload, and returns the descriptors, ordered by id. While the list is
    /// locked, no other thread adds sources.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<SourceInfo>> {
        self.infos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the counters of the source that is added next. The caller must hold the lock.
    pub(super) fn add_counters(&self, counters: Arc<SourceMetrics>) {
        // There is space in the list, because the number of ids was checked before.
        if let Some(ring) = &self.ring_metrics {
            let (name, period_ns) = (counters.name.clone(), counters.period_ns.get());
            let copy = match &counters.sender {
                Some(sender) => SourceMetrics::pushed(name, period_ns, sender.clone()),
                None => SourceMetrics::new(name, period_ns),
            };
            drop(ring.sources.push(Arc::new(copy)));
        }
        drop(self.metrics.sources.push(counters));
    }

    /// Adds a source that an application pushes under a new id, which replaces the id in `info`.
    /// The recorders describe it before its first sample. Never waits.
    pub(super) fn add_pushed(
        &self,
        mut info: SourceInfo,
    ) -> Result<(u16, Arc<SourceMetrics>), AddSourceError> {
        let mut infos = match self.infos.try_lock() {
            Ok(infos) => infos,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(AddSourceError::Busy),
        };
        if !self.recorders.iter().all(|receiver| receiver.recorder.takes_source()) {
            return Err(AddSourceError::Busy);
        }
        let id = u16::try_from(infos.len()).unwrap_or(u16::MAX);
        if u64::from(id) >= RUN_SOURCES_MAX {
            return Err(AddSourceError::TooMany);
        }
        info.id = id;
        self.note(std::slice::from_ref(&info));
        let sender = info.sender().unwrap_or_default();
        let counters = Arc::new(SourceMetrics::pushed(info.name.clone(), info.period_ns, sender));
        self.add_counters(Arc::clone(&counters));
        for SourceReceiver { recorder, period_min_ns } in &self.recorders {
            recorder.add_source(with_period_min(&info, *period_min_ns));
        }
        infos.push(info);
        Ok((id, counters))
    }

    /// Stores notes about sources in memory that outlives this process. The notes are stored before
    /// the sources have samples, because a recorder may be killed before it has described the
    /// sources. The caller must hold the lock of the list.
    // A note is a whole descriptor, even if another source has the same schema. A recovery writes
    // it into the segment as it is, so notes need no format of their own.
    pub(super) fn note(&self, sources: &[SourceInfo]) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(notes) = notes.as_mut() else { return };
        let period_mins: Vec<u64> = self.recorders.iter().map(|receiver| receiver.period_min_ns).collect();
        for source in sources {
            for described in notes_of(source, &period_mins) {
                if let Err(error) = notes.append(&described.encode()) {
                    tracing::warn!(
                        source = source.name,
                        %error,
                        "cannot note a source in run_dir: if this process is killed within moments, its first samples are lost"
                    );
                }
            }
        }
    }
}

/// Returns the notes of a source. The first is its description in the recording on disk. The second
/// is its description in the ring, if that differs. `period_mins` contains the minimum period of
/// each recorder. The period of the ring's recorder comes first.
fn notes_of(source: &SourceInfo, period_mins: &[u64]) -> Vec<SourceInfo> {
    let mut notes: Vec<SourceInfo> =
        period_mins.iter().rev().map(|period_min_ns| with_period_min(source, *period_min_ns)).collect();
    notes.dedup();
    notes
}

/// Returns the descriptor of a source in a recording with this minimum period.
fn with_period_min(source: &SourceInfo, period_min_ns: u64) -> SourceInfo {
    // A period of 0 means that there is no period, because each sample is an event.
    let period_ns = if source.period_ns == 0 { 0 } else { source.period_ns.max(period_min_ns) };
    SourceInfo { period_ns, ..source.clone() }
}

/// Returns the space that a source needs in each segment, in bytes. It is needed because header and
/// footer describe the source.
pub(super) fn description_bytes(source: &SourceInfo) -> u64 {
    source.schema.len() as u64 * 2 + FOOTER_BYTES
}

#[cfg(test)]
mod tests {
    use flatcap_format::segment::SourceKind;

    use super::*;

    // Proves that a source has a note for each recording, and that the first note has the period of
    // the thinned recording. Also proves that there is only one note if there is no ring, or if the
    // period of the source is longer than the minimum period.
    #[test]
    fn notes_have_the_period_of_each_store() {
        let source = |period_ns| SourceInfo {
            id: 3,
            name: "orders".to_owned(),
            labels: Vec::new(),
            kind: SourceKind::Host,
            period_ns,
            root: String::new(),
            schema: Vec::new(),
            next_seq: 0,
        };
        let periods = |period_ns, mins: &[u64]| -> Vec<u64> {
            notes_of(&source(period_ns), mins).iter().map(|note| note.period_ns).collect()
        };
        assert_eq!(periods(10, &[0, 1000]), [1000, 10]);
        assert_eq!(periods(5000, &[0, 1000]), [5000]);
        assert_eq!(periods(0, &[0, 1000]), [0], "events have no period");
        assert_eq!(periods(10, &[0]), [10]);
    }
}
