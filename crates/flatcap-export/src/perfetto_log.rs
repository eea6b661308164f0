//! The kernel log in a trace of Perfetto. It is a track with an instant for each line.

use std::ops::Range;

use flatcap_tasks::LogBatch;

use crate::perfetto_packets::{INSTANT, TracePacket, TrackDescriptor, TrackEvent};

/// The id of the track that contains the lines of the log. No other track has this id.
pub(crate) const LOG_TRACK: u64 = 2;
const LOG_TRACK_NAME: &str = "kernel log";

/// Creates packets from the lines of a host.
#[derive(Debug, Default)]
pub(crate) struct LogTrack {
    is_described: bool,
    /// Time of the previous sample of the same run, in nanoseconds.
    before_ns: u64,
    packets: Vec<TracePacket>,
}

impl LogTrack {
    /// Begins another run.
    pub(crate) fn begin_run(&mut self) {
        self.before_ns = 0;
    }

    /// Adds the lines of the sample that was read at `read_ns`, if they are in the selected time.
    /// `offset_ns` is time in the trace minus monotonic time.
    pub(crate) fn add(
        &mut self,
        (batch, read_ns): (&LogBatch<'_>, u64),
        window: &Range<u64>,
        offset_ns: i64,
    ) {
        let before_ns = std::mem::replace(&mut self.before_ns, read_ns).min(read_ns);
        for line in batch.lines() {
            // The clock of the log deviates, but each line was written between two samples.
            let time_ns = line.time_ns.clamp(before_ns, read_ns);
            if !window.contains(&time_ns) {
                continue;
            }
            if !std::mem::replace(&mut self.is_described, true) {
                let descriptor = TrackDescriptor {
                    uuid: Some(LOG_TRACK),
                    name: Some(LOG_TRACK_NAME.to_owned()),
                    ..TrackDescriptor::default()
                };
                self.packets
                    .push(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() });
            }
            let event = TrackEvent {
                event_type: Some(INSTANT),
                track_uuid: Some(LOG_TRACK),
                name: Some(line.text.to_owned()),
                ..TrackEvent::default()
            };
            self.packets.push(TracePacket {
                timestamp: Some(time_ns.saturating_add_signed(offset_ns)),
                track_event: Some(event),
                ..TracePacket::default()
            });
        }
    }

    /// Returns the packets that were added since the last call.
    pub(crate) fn take(&mut self) -> Vec<TracePacket> {
        std::mem::take(&mut self.packets)
    }
}
