//! Takes over lanes of killed runs from the clients that hand them over. Adds the committed frames
//! of these lanes to the files of their run, as a separate segment.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use flatcap_format::segment::{
    Leftovers, SampleView, SealState, SegmentHeader, SegmentName, SegmentReader, SourceInfo, last_segment,
    supplement,
};
use flatcap_format::storage::Storage;
use flatcap_os::clock::monotonic_ns;
use flatcap_os::thread;
use flatcap_os::wake_event::WakeEvent;
use flatcap_recorder::QuotaStorage;
use flatcap_recorder::ingest::{
    LEFT_LANES_MAX, LaneReceipt, LeftFrames, LeftLane, LeftVerification, PayloadVerification,
};

use super::lane_store::{LaneStore, StoredLane};

/// Maximum time between the arrival of two lanes that are rescued together. Lanes are collected
/// because each rescue writes a segment.
const COLLECT_TIME: Duration = Duration::from_millis(500);
/// Maximum time for collecting lanes. Without it, lanes that arrive one by one could make the
/// others wait forever.
const COLLECT_NS_MAX: u64 = 1_000_000_000;
/// Maximum total size of the lanes that are rescued together, in bytes. It is limited, because
/// their frames are in memory during the rescue.
const TOGETHER_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of rescues per user for one earlier run. Each rescue writes a segment, and a
/// client must not be able to keep this recorder busy.
const RESCUES_MAX: u32 = 64;
const LOOK_EVERY_NS: u64 = 20_000_000;
/// Maximum time that the end of a run waits for the last rescue.
const STOP_MAX_NS: u64 = 10_000_000_000;

/// Creates the queue for lanes that clients hand over.
pub(super) fn left_lanes() -> (Sender<LeftLane>, Receiver<LeftLane>) {
    bounded(LEFT_LANES_MAX)
}

/// The running thread. It ends when all senders of lanes are dropped.
pub(super) struct RescueThread(JoinHandle<()>);

impl RescueThread {
    /// Starts the thread. `recovered` is set when the earlier runs have been recovered.
    pub(super) fn start(
        (storage, store): (Arc<QuotaStorage>, Arc<LaneStore>),
        (lanes, check): (Receiver<LeftLane>, PayloadVerification),
        recovered: Arc<OnceLock<Vec<u64>>>,
    ) -> io::Result<Self> {
        let run = move || {
            let mut rescues = RescueCounts::default();
            while let Ok(first) = lanes.recv() {
                wait_until_recovered(&recovered);
                let mut bytes = first.bytes();
                let mut together = vec![first];
                let until_ns = monotonic_ns().saturating_add(COLLECT_NS_MAX);
                while bytes < TOGETHER_BYTES_MAX
                    && monotonic_ns() < until_ns
                    && let Ok(next) = lanes.recv_timeout(COLLECT_TIME)
                {
                    bytes += next.bytes();
                    together.push(next);
                }
                let mut runs: BTreeMap<u64, Vec<LeftLane>> = BTreeMap::new();
                for lane in together {
                    runs.entry(lane.run_id()).or_default().push(lane);
                }
                for (run_id, mut lanes) in runs {
                    lanes.retain(|lane| rescues.permits(run_id, lane.uid()));
                    if lanes.is_empty() {
                        continue;
                    }
                    let users: BTreeSet<u32> = lanes.iter().map(LeftLane::uid).collect();
                    let stored: Vec<StoredLane> = lanes.iter().map(StoredLane::of_left).collect();
                    let receipts: Vec<LaneReceipt> =
                        lanes.iter_mut().filter_map(LeftLane::take_receipt).collect();
                    match rescue(&*storage, run_id, lanes, check) {
                        Ok(true) => users.into_iter().for_each(|uid| rescues.add(run_id, uid)),
                        Ok(false) => {}
                        Err(error) => {
                            tracing::warn!(
                                %error,
                                "cannot add to the files of a killed run; what was in lanes of applications stays there for the next start"
                            );
                            continue;
                        }
                    }
                    for lane in stored {
                        store.forget(lane);
                    }
                    receipts.into_iter().for_each(LaneReceipt::send);
                }
            }
        };
        thread::spawn("rescue", run).map(Self)
    }

    /// Waits until the thread ends, up to a time limit. Calls `on_wait` again and again until
    /// then, with the current time.
    pub(super) fn finish(self, on_wait: &mut dyn FnMut(u64)) {
        if thread::wait_for_exit(&self.0, monotonic_ns() + STOP_MAX_NS, on_wait) {
            // If the thread panicked, the panic hook has reported it.
            let _panicked = self.0.join();
        } else {
            tracing::warn!("lanes of a killed run are not all rescued; what was in the others is lost");
        }
    }
}

/// The number of rescues of each earlier run that has files, by run and user.
#[derive(Debug, Default)]
struct RescueCounts(BTreeMap<(u64, u32), u32>);

impl RescueCounts {
    /// Returns whether lanes of this user may still be added to the run. Logs a refusal.
    fn permits(&self, run_id: u64, uid: u32) -> bool {
        let is_permitted = self.0.get(&(run_id, uid)).is_none_or(|count| *count < RESCUES_MAX);
        if !is_permitted {
            tracing::warn!(
                run_id,
                uid,
                "lanes of a killed run come again and again from one user; no more of them are taken"
            );
        }
        is_permitted
    }

    fn add(&mut self, run_id: u64, uid: u32) {
        *self.0.entry((run_id, uid)).or_default() += 1;
    }
}

/// Waits without a time limit until earlier runs are recovered. The files of a run have only one
/// writer at a time, and the samples in the memory of the run precede the frames in its lanes.
fn wait_until_recovered(recovered: &OnceLock<Vec<u64>>) {
    let never = WakeEvent::new();
    while recovered.get().is_none() {
        never.wait_until(monotonic_ns() + LOOK_EVERY_NS);
    }
}

/// Adds the remaining frames in the lanes of a run to the files of the run. Returns whether the run
/// has any files. An error may be temporary, so the next start tries again.
fn rescue(
    storage: &dyn Storage,
    run_id: u64,
    lanes: Vec<LeftLane>,
    check: PayloadVerification,
) -> io::Result<bool> {
    let Some((last, header)) = last_sealed(storage, run_id)? else {
        tracing::warn!(
            run_id,
            "the directory has no segment of a killed run; what was in lanes of applications is dropped"
        );
        return Ok(false);
    };
    let mut leftovers = Leftovers::default();
    let mut verification = LeftVerification::new(&header, check);
    let header_bytes = header.checksum.frame_bytes(0);
    for lane in lanes.into_iter().filter(|lane| lane.checksum() == header.checksum) {
        let uid = lane.uid().to_string();
        // The ids come from the client, so only sources that the client's user has pushed are
        // accepted.
        let is_own = |id: u16| header.source(id).is_some_and(|source| is_pushed_by(source, &uid));
        let LeftFrames { mut frames, mut begun } = lane.read();
        let source = |frame: &Vec<u8>| {
            frame.get(header_bytes..).and_then(SampleView::read).map(|sample| sample.source)
        };
        frames.retain(|frame| source(frame).is_some_and(is_own));
        begun.retain(|id, _| is_own(*id));
        let accepted = verification.accepted(&frames);
        if accepted < frames.len() {
            tracing::warn!(
                run_id,
                refused = frames.len() - accepted,
                "a payload in a lane of a killed run does not fit the schema of its source; it and what follows it in the lane is lost"
            );
            frames.truncate(accepted);
            leftovers.refused.extend(begun.keys().copied());
        }
        leftovers.frames.append(&mut frames);
        for (id, next) in begun {
            let known = leftovers.begun.entry(id).or_default();
            *known = next.max(*known);
        }
    }
    leftovers.frames.sort_by_cached_key(|frame| {
        frame.get(header_bytes..).and_then(SampleView::read).map_or(0, |sample| sample.mono_ns)
    });
    let added = supplement(storage, last, &leftovers, false).map_err(io::Error::other)?;
    if let Some((name, recovered)) = added {
        tracing::info!(
            segment = %name,
            frames = recovered.from_memory,
            lost = recovered.lost,
            "frames of applications that a killed run had not taken are rescued"
        );
    }
    Ok(true)
}

/// Returns the last segment of a run, which must be sealed, and the header of this segment with all
/// sources. Returns `None` if the run has no segments.
fn last_sealed(storage: &dyn Storage, run_id: u64) -> io::Result<Option<(SegmentName, SegmentHeader)>> {
    let Some(name) = last_segment(&storage.entries()?, run_id) else { return Ok(None) };
    if name.state != SealState::Sealed {
        return Err(io::Error::other(format!("{name} is not completed")));
    }
    let file = storage.open(&name.to_string())?;
    let reader = SegmentReader::over(Path::new(&name.to_string()), file).map_err(io::Error::other)?;
    let footer = reader.footer().ok_or_else(|| io::Error::other(format!("{name} has no footer")))?;
    Ok(Some((name, footer.header.clone())))
}

/// Returns whether a source was pushed by a user.
fn is_pushed_by(source: &SourceInfo, uid: &str) -> bool {
    source.sender().is_some_and(|sender| sender.user.as_deref() == Some(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a user who repeatedly hands over lanes of a killed run is refused in the end, and
    // that other users can still hand over their lanes.
    #[test]
    fn rescues_are_limited_by_user() {
        let mut rescues = RescueCounts::default();
        let mut taken = 0;
        while rescues.permits(7, 1) {
            rescues.add(7, 1);
            taken += 1;
        }
        assert_eq!(taken, RESCUES_MAX);
        assert!(rescues.permits(7, 2) && rescues.permits(8, 1));
    }
}
