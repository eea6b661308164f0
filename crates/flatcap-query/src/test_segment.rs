//! Writes segments for tests of queries.

use std::io::IoSlice;
use std::path::Path;

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::segment::{Frames, SampleSpan, SegmentHeader, SegmentName, SegmentWriter};
use flatcap_format::testing::Folder;
use flatcap_stream::Framer;

/// A sample, and its time.
pub(super) struct TimedSample {
    pub(super) source: u16,
    pub(super) seq: u64,
    pub(super) mono_ns: u64,
    pub(super) wall_ns: i64,
    pub(super) incomplete: Incomplete,
    pub(super) body: Vec<u8>,
}

/// Writes samples of the header's sources to a segment.
pub(super) fn write_samples(
    folder: &Path,
    name: SegmentName,
    header: SegmentHeader,
    samples: impl Iterator<Item = TimedSample>,
) -> SegmentWriter {
    let mut writer = SegmentWriter::create(&Folder(folder.to_owned()), name, header, &[], 0).unwrap();
    for (number, sample) in (0_u64..).zip(samples) {
        let TimedSample { source, seq, mono_ns, wall_ns, incomplete, body } = sample;
        let stamp = Stamp { mono_ns, wall_ns, seq, incomplete, duration_ns: 1 };
        let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
        Envelope::new(source).write(&mut payload, &stamp, &body);
        let kind = writer.checksum();
        let mut frame = Vec::new();
        kind.frame_and_write(&mut frame, &payload).unwrap();
        let headers = [&frame[..kind.frame_bytes(0)]];
        let mut pieces = [IoSlice::new(&frame)];
        writer.append(Frames { pieces: &mut pieces, headers: &headers, count: 1 }).unwrap();
        writer.count_samples(source, 1, SampleSpan::of(seq, mono_ns, wall_ns));
        if number % 50 == 49 {
            writer.append_index(0).unwrap();
        }
    }
    writer
}
