//! A lane of a killed run. The client kept the lane's memory after the recorder was killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::BorrowedFd;

use crossbeam_channel::Sender;
use flatcap_lane::{
    CONTROL_BYTES, LANE_BYTES_MAX, LaneBuffer, LaneClocks, LaneHeader, LaneReader, LaneResumption, SLABS_MAX,
};
use flatcap_os::clock::monotonic_ns;
use flatcap_os::sealed_memory::fixed_length;
use flatcap_stream::ChecksumKind;

/// Maximum number of slabs read from a lane. The number allows all slabs to be read twice, in case
/// the client still writes.
const SLABS_READ_MAX: usize = 2 * SLABS_MAX;
/// Memory that a frame needs in addition to its bytes.
const FRAME_EXTRA_BYTES: u64 = size_of::<Vec<u8>>() as u64;

/// A lane that a client has handed over.
#[derive(Debug)]
pub struct LeftLane {
    memory: File,
    reader: LaneReader,
    resumption: LaneResumption,
    uid: u32,
    wall_offset_ns: i64, // of this run
    receipt: Option<LaneReceipt>,
}

/// Reports the result of a handed-over lane, at the latest when the receipt is dropped.
#[derive(Debug)]
pub struct LaneReceipt {
    rescued: RescuedLane,
    receipts: Sender<RescuedLane>,
}

/// The result for a handed-over lane whose rescue has ended, with or without success.
#[derive(Debug, Clone, Copy)]
pub(super) struct RescuedLane {
    pub(super) client: u64,
    pub(super) uid: u32,
    pub(super) resumption: LaneResumption,
    /// Whether the lane's frames are in the files of the run.
    pub(super) is_rescued: bool,
}

/// The remaining content of a lane.
#[derive(Debug, Default)]
pub struct LeftFrames {
    /// Complete, verified sample frames, in order.
    pub frames: Vec<Vec<u8>>,
    /// For each source id in the lane, the sequence number of the next sample. The client may have
    /// modified these sequence numbers.
    pub begun: BTreeMap<u16, u64>,
}

impl LaneReceipt {
    /// Tells the thread that reads pushed frames that the lane has been rescued.
    pub fn send(mut self) {
        self.rescued.is_rescued = true;
    }
}

impl Drop for LaneReceipt {
    fn drop(&mut self) {
        // The send must not wait, because the receiving thread also drops receipts and would wait
        // for itself. If the receiving thread has ended, there are no clients to notify.
        let _unheard = self.receipts.try_send(self.rescued);
    }
}

impl LeftLane {
    /// Opens a lane of an earlier run. That run must have recorded to the data directory that the
    /// lane header `own` names. `uid` is the user of the client.
    ///
    /// # Errors
    /// The memory is not a lane of such a run. The message states the reason.
    pub fn open(
        memory: BorrowedFd<'_>,
        resumption: LaneResumption,
        uid: u32,
        (own, wall_offset_ns): (&LaneHeader, i64),
    ) -> Result<Self, String> {
        let (memory, bytes) = fixed_length(memory)
            .map_err(|error| format!("the descriptor is no memory of fixed length: {error}"))?;
        let reader = LaneReader::resume(&memory, bytes).map_err(|error| error.to_string())?;
        let header = reader.header();
        if (header.run_id, header.lane) != (resumption.run_id, resumption.lane) {
            return Err(format!("the memory is that of lane {} of run {:016x}", header.lane, header.run_id));
        }
        if (header.directory, header.boot) != (own.directory, own.boot) || header.run_id == own.run_id {
            return Err(
                "the lane is of no earlier run into this data directory since the last boot".to_owned()
            );
        }
        if header.bytes() > LANE_BYTES_MAX + CONTROL_BYTES as u64 {
            return Err(format!("it has {} bytes, more than a recorder gives", header.bytes()));
        }
        Ok(Self { memory, reader, resumption, uid, wall_offset_ns, receipt: None })
    }

    /// Sets the client that is notified after the lane was rescued.
    pub(super) fn for_client(self, client: u64, receipts: &Sender<RescuedLane>) -> Self {
        let rescued = RescuedLane { client, uid: self.uid, resumption: self.resumption, is_rescued: false };
        Self { receipt: Some(LaneReceipt { rescued, receipts: receipts.clone() }), ..self }
    }

    /// Takes the receipt, or returns `None` if no client handed the lane over.
    pub fn take_receipt(&mut self) -> Option<LaneReceipt> {
        self.receipt.take()
    }

    /// Returns the id of the run to which the lane belongs.
    pub fn run_id(&self) -> u64 {
        self.resumption.run_id
    }

    /// Returns the number of the lane in its run.
    pub fn number(&self) -> u32 {
        self.resumption.lane
    }

    /// Returns the length of the lane's memory, in bytes.
    pub fn bytes(&self) -> u64 {
        self.reader.header().bytes()
    }

    /// Returns the user of the client.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the checksum kind of the lane's frames.
    pub fn checksum(&self) -> ChecksumKind {
        self.reader.header().checksum
    }

    /// Reads the remaining frames up to the first invalid frame. The lane is not changed. So if
    /// this recorder is killed before it has written the frames, the next recorder reads them
    /// again.
    pub fn read(mut self) -> LeftFrames {
        let mut left = LeftFrames::default();
        // The lane's memory contains the last wall offset that the killed recorder set. If the
        // client has modified the offset, the reading ends at the first frame with another offset.
        let known = self.reader.wall_offset(&self.memory).ok().flatten();
        let offsets: Vec<i64> = known.into_iter().chain([self.wall_offset_ns]).collect();
        let clocks = LaneClocks { now_ns: &monotonic_ns, wall_offsets_ns: &offsets };
        let mut buffer = LaneBuffer::default();
        // A client that continues to write must not fill the memory of the recorder.
        let mut space = 2 * self.bytes();
        // Upper bound of sequence numbers, because fewer than one sample per nanosecond can have
        // begun since boot.
        let latest = monotonic_ns();
        'slabs: for _ in 0..SLABS_READ_MAX {
            let Ok(Some(batch)) = self.reader.look(&self.memory, &mut buffer, &clocks) else { break };
            let taken = batch.bytes.len() as u64 + batch.frames.len() as u64 * FRAME_EXTRA_BYTES;
            let Some(rest) = space.checked_sub(taken) else { break };
            space = rest;
            for frame in batch.frames {
                if frame.sample.seq >= latest {
                    break 'slabs;
                }
                let bytes = batch.bytes.get(frame.offset..frame.offset + frame.bytes);
                left.frames.extend(bytes.map(<[u8]>::to_vec));
                left.begun.insert(frame.sample.source, frame.sample.seq.saturating_add(1));
            }
            if self.reader.take(&self.memory, &buffer).is_err() {
                break;
            }
        }
        if self.resumption.is_final {
            let latest = monotonic_ns();
            let accounts = self.reader.accounts(&self.memory).unwrap_or_default();
            for account in accounts.iter().filter(|account| account.begun <= latest) {
                let begun = left.begun.entry(account.source).or_default();
                *begun = account.begun.max(*begun);
            }
        }
        left
    }
}
