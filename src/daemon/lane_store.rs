//! Lanes in the service manager's store. A lane's memory in the store survives even if recorder and
//! application end at the same time. The next run rescues the remaining frames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossbeam_channel::Sender;
use flatcap_lane::{LaneHeader, LaneResumption};
use flatcap_os::descriptor_store::{DescriptorStore, stored_descriptors};
use flatcap_recorder::ingest::LeftLane;

/// Prefix of the names of lanes in the store.
const PREFIX: &str = "lane";

/// The store. Without a service manager, nothing is stored.
#[derive(Debug)]
pub(super) struct LaneStore(Option<DescriptorStore>);

/// The lanes that earlier runs have stored, by name.
#[derive(Debug)]
pub(super) struct StoredLanes(Vec<(String, OwnedFd)>);

/// The identity of a lane, encoded in its name. The memory contains the identity too, but the
/// client can modify that memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredLane {
    run_id: u64,
    lane: u32,
    uid: u32,
}

impl LaneStore {
    /// Connects to the service manager, if there is one, and takes over the descriptors that
    /// earlier runs stored. This must happen early, because programs that this process started
    /// earlier would inherit the descriptors.
    pub(super) fn connect() -> (Self, StoredLanes) {
        let store = DescriptorStore::from_environment().unwrap_or_else(|error| {
            tracing::warn!(%error, "lanes of applications are not stored by the service manager: cannot connect to it");
            None
        });
        let stored = stored_descriptors().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot take the lanes that the service manager has stored");
            Vec::new()
        });
        (Self(store), StoredLanes(stored))
    }

    /// Stores the memory of a lane.
    pub(super) fn keep(&self, header: &LaneHeader, memory: BorrowedFd<'_>) {
        let Some(store) = &self.0 else { return };
        if let Err(error) = store.keep(&StoredLane::of(header).to_string(), memory) {
            tracing::debug!(%error, lane = header.lane, "the service manager does not store a lane");
        }
    }

    /// Removes from the store a lane that was read completely.
    pub(super) fn forget(&self, lane: StoredLane) {
        self.forget_name(&lane.to_string());
    }

    fn forget_name(&self, name: &str) {
        if let Some(store) = &self.0
            && let Err(error) = store.forget(name)
        {
            tracing::debug!(%error, name, "the service manager still stores a lane");
        }
    }

    /// Passes the lanes that earlier runs stored to the rescue thread. `own` is the header of this
    /// run's lanes, or `None` if applications may not push.
    pub(super) fn pass_on(
        &self,
        stored: StoredLanes,
        own: Option<&LaneHeader>,
        wall_offset_ns: i64,
        lanes: &Sender<LeftLane>,
    ) {
        for (name, memory) in stored.0 {
            let left = match own {
                Some(own) => open(&name, &memory, (own, wall_offset_ns)),
                None => Err("[push] is not enabled".to_owned()),
            };
            match left {
                Ok(left) => {
                    if lanes.try_send(left).is_err() {
                        // The lane stays in the store for the next start.
                        tracing::warn!("a stored lane is not rescued yet: {name}: too many of them wait");
                    }
                }
                Err(refusal) => {
                    tracing::info!("a stored lane is not rescued: {name}: {refusal}");
                    self.forget_name(&name);
                }
            }
        }
    }
}

/// Opens a stored lane. The error is the message to log.
fn open(name: &str, memory: &OwnedFd, own: (&LaneHeader, i64)) -> Result<LeftLane, String> {
    let StoredLane { run_id, lane, uid } =
        StoredLane::parse(name).ok_or_else(|| "it is no lane".to_owned())?;
    // The lane is not final. If its client is still alive, the client hands over the remaining
    // frames.
    let resumption = LaneResumption { run_id, lane, is_final: false };
    LeftLane::open(memory.as_fd(), resumption, uid, own)
}

impl StoredLane {
    pub(super) fn of(header: &LaneHeader) -> Self {
        Self { run_id: header.run_id, lane: header.lane, uid: header.uid }
    }

    pub(super) fn of_left(lane: &LeftLane) -> Self {
        Self { run_id: lane.run_id(), lane: lane.number(), uid: lane.uid() }
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-');
        let run_id = u64::from_str_radix(parts.next()?, 16).ok()?;
        let (lane, uid) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next().is_none().then_some(Self { run_id, lane, uid })
    }
}

impl std::fmt::Display for StoredLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { run_id, lane, uid } = self;
        write!(f, "{PREFIX}-{run_id:016x}-{lane}-{uid}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a written name can be parsed, and that other names are rejected.
    #[test]
    fn names_are_read_as_written() {
        let lane = StoredLane { run_id: 0xAB, lane: 7, uid: 1000 };
        assert_eq!(lane.to_string(), "lane-00000000000000ab-7-1000");
        assert_eq!(StoredLane::parse(&lane.to_string()), Some(lane));
        for name in ["", "lane", "lane-", "lane-ab-7", "lane-ab-7-1000-2", "lane-xy-7-1", "socket-ab-7-1"] {
            assert_eq!(StoredLane::parse(name), None, "{name}");
        }
    }
}
