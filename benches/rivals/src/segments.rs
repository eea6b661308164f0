//! Segments that the benches write and read: frames of one source, in slabs with a header for each.

use std::io::IoSlice;
use std::sync::Arc;

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::schema::envelope;
use flatcap_format::segment::{
    Frames, Gap, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};
use flatcap_format::storage::Storage;
use flatcap_stream::{ChecksumKind, Framer};

use crate::recording::{CHECKSUM, Recording};

/// Bytes of a slab.
pub const SLAB_BYTES: usize = 64 << 10;
/// Slabs in one write.
pub const BATCH_SLABS: usize = 4;
/// Bytes after which an interval of the index ends.
const INTERVAL_BYTES: u64 = 4 << 20;

/// A slab as the recorder receives it: frames, their headers, and their numbers.
pub struct FilledSlab {
    pub bytes: Vec<u8>,
    pub headers: Vec<u8>,
    pub first_seq: u64,
    pub count: u64,
}

/// The begin of a sample, at 1,000 per second.
pub fn mono_ns(seq: u64) -> u64 {
    1_000_000_000 + seq * 1_000_000
}

/// Creates slabs of frames with payloads of `payload_bytes`, starting with sample `seq`, of at
/// least `bytes` bytes.
pub fn slabs(kind: ChecksumKind, payload_bytes: usize, mut seq: u64, bytes: usize) -> Vec<FilledSlab> {
    let envelope = Envelope::new(0);
    let payload: Vec<u8> = (0..payload_bytes).map(|at| (at * 7) as u8).collect();
    let mut place = vec![0; ENVELOPE_BYTES + payload_bytes];
    let mut slabs = Vec::new();
    let mut made = 0;
    while made < bytes {
        let mut slab = FilledSlab { bytes: Vec::new(), headers: Vec::new(), first_seq: seq, count: 0 };
        while slab.bytes.len() + kind.frame_bytes(place.len()) <= SLAB_BYTES {
            let mono_ns = mono_ns(seq);
            let stamp = Stamp {
                mono_ns,
                wall_ns: mono_ns as i64,
                seq,
                incomplete: Incomplete::NONE,
                duration_ns: 500,
            };
            envelope.write(&mut place, &stamp, &payload);
            let at = slab.bytes.len();
            kind.frame_and_write(&mut slab.bytes, &place).expect("a vector takes everything");
            slab.headers.extend_from_slice(&slab.bytes[at..at + kind.frame_bytes(0)]);
            slab.count += 1;
            seq += 1;
        }
        made += slab.bytes.len();
        slabs.push(slab);
    }
    slabs
}

/// Creates a header with these sources.
pub fn header(segment: u64, kind: ChecksumKind, first_seq: u64, sources: Vec<SourceInfo>) -> SegmentHeader {
    let clocks = ClockReading { mono_ns: mono_ns(first_seq), boot_ns: 0, wall_ns: mono_ns(first_seq) as i64 };
    let start = ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: 0 };
    SegmentHeader {
        segment,
        run_id: 7,
        host: HostName { name: "bench".into(), machine_id: None, boot_id: None, labels: Vec::new() },
        agent_version: "0".into(),
        checksum: kind,
        frame_max: 16 << 20,
        clocks,
        reorder_window_ns: 0,
        sources,
        clock_table: vec![start],
        recorder_pid: 0,
    }
}

/// Creates a synthetic source.
pub fn source(next_seq: u64) -> SourceInfo {
    SourceInfo {
        id: 0,
        name: "bench".into(),
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: 1_000_000,
        root: "bench.Payload".into(),
        schema: vec![0; 1000],
        next_seq,
    }
}

pub fn name(number: u64) -> SegmentName {
    SegmentName { number, created_s: 1_700_000_000, run_id: 7, state: SealState::Active }
}

/// Creates a segment and writes slabs to it like a recorder: four at once, an Index frame every 4
/// MiB, and optionally a gap before each sixteenth batch.
pub fn write(
    storage: &Arc<dyn Storage>,
    number: u64,
    header: SegmentHeader,
    slabs: &[FilledSlab],
    preallocate: u64,
) -> SegmentWriter {
    let kind = header.checksum;
    let mut writer =
        SegmentWriter::create(&**storage, name(number), header, &[], preallocate).expect("enough space");
    let mut control = Vec::new();
    for (at, batch) in slabs.chunks(BATCH_SLABS).enumerate() {
        if writer.unindexed_bytes().is_some_and(|bytes| bytes >= INTERVAL_BYTES) {
            writer.append_index(0).expect("enough space");
        }
        control.clear();
        let gap = Gap {
            source: 0,
            first: u64::MAX - 1 - slabs.len() as u64 + at as u64,
            count: 1,
            causes: 1,
            after_mono_ns: 0,
            before_mono_ns: 0,
        };
        let has_gap = at % 16 == 0;
        if has_gap {
            kind.frame_and_write(&mut control, &gap.encode()).expect("a vector takes everything");
        }
        let control_head = if has_gap { &control[..kind.frame_bytes(0)] } else { &[] };
        let mut pieces = [IoSlice::new(&[]); BATCH_SLABS + 1];
        let mut headers = [control_head; BATCH_SLABS + 1];
        pieces[0] = IoSlice::new(&control);
        for (slab, (piece, head)) in batch.iter().zip(pieces[1..].iter_mut().zip(&mut headers[1..])) {
            *piece = IoSlice::new(&slab.bytes);
            *head = &slab.headers;
        }
        let count = batch.iter().map(|slab| slab.count).sum::<u64>() + u64::from(has_gap);
        let frames = Frames { pieces: &mut pieces[..=batch.len()], headers: &headers[..=batch.len()], count };
        writer.append(frames).expect("enough space");
        for slab in batch {
            writer.count_samples(0, slab.count, span(slab));
        }
        if has_gap {
            writer.count_gap(&gap);
        }
    }
    writer
}

/// Writes, seals and publishes a segment without gaps. Returns its name.
pub fn write_whole(
    storage: &Arc<dyn Storage>,
    number: u64,
    header: SegmentHeader,
    slabs: &[FilledSlab],
) -> SegmentName {
    let mut writer = SegmentWriter::create(&**storage, name(number), header, &[], 0).expect("enough space");
    for slab in slabs {
        if writer.unindexed_bytes().is_some_and(|bytes| bytes >= INTERVAL_BYTES) {
            writer.append_index(0).expect("enough space");
        }
        let mut pieces = [IoSlice::new(&slab.bytes)];
        let frames = Frames { pieces: &mut pieces, headers: &[&slab.headers], count: slab.count };
        writer.append(frames).expect("enough space");
        writer.count_samples(0, slab.count, span(slab));
    }
    let sealed = writer.seal().expect("enough space");
    sealed.publish(&**storage).expect("a disk");
    sealed.name()
}

/// Writes, seals and publishes a segment of a recording's frames. Returns its name.
pub fn write_recording(storage: &Arc<dyn Storage>, number: u64, recording: &Recording) -> SegmentName {
    let stamp = |frame: &[u8]| {
        let (header, _) = envelope::split(&frame[CHECKSUM.frame_bytes(0)..]).expect("a telemetry frame");
        header
    };
    let first = stamp(recording.frames().next().expect("frames"));
    let clocks = ClockReading { mono_ns: first.mono_ns(), boot_ns: 0, wall_ns: first.wall_ns() };
    let sources = (0..).zip(&recording.sources).map(|(id, of)| SourceInfo {
        id,
        name: of.name.clone(),
        root: of.root.clone(),
        schema: of.schema.clone(),
        ..source(0)
    });
    let mut header = header(number, CHECKSUM, 0, sources.collect());
    (header.clocks, header.clock_table, header.reorder_window_ns) = (clocks, vec![clocks], 100_000_000);
    let mut writer = SegmentWriter::create(&**storage, name(number), header, &[], 0).expect("enough space");
    let mut frames = recording.frames().peekable();
    while frames.peek().is_some() {
        if writer.unindexed_bytes().is_some_and(|bytes| bytes >= INTERVAL_BYTES) {
            writer.append_index(0).expect("enough space");
        }
        let (mut bytes, mut headers, mut count) = (Vec::new(), Vec::new(), 0);
        let mut spans: Vec<Option<(u64, SampleSpan)>> = vec![None; recording.sources.len()];
        while let Some(frame) =
            frames.next_if(|frame| bytes.len() + frame.len() <= SLAB_BYTES || bytes.is_empty())
        {
            bytes.extend_from_slice(frame);
            headers.extend_from_slice(&frame[..CHECKSUM.frame_bytes(0)]);
            count += 1;
            let of = stamp(frame);
            let (samples, span) = spans[usize::from(of.source())].get_or_insert((
                0,
                SampleSpan {
                    first_seq: of.seq(),
                    last_seq: of.seq(),
                    first_mono_ns: of.mono_ns(),
                    last_mono_ns: of.mono_ns(),
                    first_wall_ns: of.wall_ns(),
                    last_wall_ns: of.wall_ns(),
                },
            ));
            *samples += 1;
            (span.last_seq, span.last_mono_ns, span.last_wall_ns) = (of.seq(), of.mono_ns(), of.wall_ns());
        }
        let mut pieces = [IoSlice::new(&bytes)];
        writer.append(Frames { pieces: &mut pieces, headers: &[&headers], count }).expect("enough space");
        for (id, of) in (0..).zip(spans) {
            if let Some((samples, span)) = of {
                writer.count_samples(id, samples, span);
            }
        }
    }
    let sealed = writer.seal().expect("enough space");
    sealed.publish(&**storage).expect("a disk");
    sealed.name()
}

fn span(slab: &FilledSlab) -> SampleSpan {
    let last_seq = slab.first_seq + slab.count - 1;
    SampleSpan {
        first_seq: slab.first_seq,
        last_seq,
        first_mono_ns: mono_ns(slab.first_seq),
        last_mono_ns: mono_ns(last_seq),
        first_wall_ns: mono_ns(slab.first_seq) as i64,
        last_wall_ns: mono_ns(last_seq) as i64,
    }
}

/// The median.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
