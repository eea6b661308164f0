//! What the tests of sealing share: segments on a simulated storage, and what a reader makes of them.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::Path;

use super::{Job, NamedWays, Outcome, Placing, SealError, Slice, pack};
use crate::block::Way;
use crate::frame::{ENVELOPE_BYTES, Envelope, Shortfall, Stamp};
use crate::os::clock::ClockReading;
use crate::os::simulated::{Random, SimulatedStorage};
use crate::os::storage::{ReadAt, Storage};
use crate::segment::{
    Form, Frames, Gap, Header, HostName, Marker, MarkerOrigin, SegmentName, SegmentReader, SegmentWriter,
    SourceInfo, SourceKind, State,
};
use crate::stream::{ChecksumKind, Framer};

/// Bytes of frames in a block of these tests.
pub(super) const BLOCK_BYTES: usize = 2048;

/// The storage of segments with these numbers, in order, and their bytes by name.
pub(super) fn storage(
    seed: u64,
    numbers: std::ops::Range<u64>,
) -> (SimulatedStorage, BTreeMap<String, Vec<u8>>) {
    let storage = SimulatedStorage::new(seed);
    let mut raw = BTreeMap::new();
    for number in numbers {
        let name = segment(&storage, number, ChecksumKind::Xxh3, 40).to_string();
        let bytes = storage.content(&name).unwrap();
        raw.insert(name, bytes);
    }
    (storage, raw)
}

/// Writes a closed segment with so many samples of each source: one of counters, one of noise of changing length; beside them gaps,
/// markers and indices.
pub(super) fn segment(
    storage: &dyn Storage,
    number: u64,
    checksum: ChecksumKind,
    samples: u64,
) -> SegmentName {
    segment_as(storage, header(number, checksum), samples, Form::default())
}

/// The same in any form.
pub(super) fn segment_as(storage: &dyn Storage, header: Header, samples: u64, form: Form) -> SegmentName {
    let number = header.segment;
    let mut random = Random::new(number);
    let name = SegmentName { number, created_s: 1_700_000_000, run_id: 5, state: State::Active };
    let mut writer = SegmentWriter::create_as(storage, name, header, &[], form).unwrap();
    for seq in 0..samples {
        let counters: Vec<u8> =
            (0..40_u64).flat_map(|at| (at * 1000 + seq * (at % 3)).to_le_bytes()).collect();
        append(&mut writer, 0, seq, &counters);
        let noise: Vec<u8> = (0..=random.below(4)).flat_map(|_| random.next().to_le_bytes()).collect();
        append(&mut writer, 1, seq, &noise);
        match random.below(12) {
            0 => {
                let gap = Gap {
                    source: 0,
                    first: 1 << 20,
                    count: 1,
                    causes: 1,
                    after_mono_ns: 0,
                    before_mono_ns: 0,
                };
                writer.append_gaps(&[gap]).unwrap();
            }
            1 => {
                let text = "note".to_owned();
                let origin = MarkerOrigin::Person;
                writer.append_marker(&Marker { mono_ns: 1, wall_ns: 1, origin, text }).unwrap();
            }
            2 => writer.append_index(0).unwrap(),
            _ => {}
        }
    }
    let sealed = writer.seal().unwrap();
    sealed.publish(storage).unwrap();
    sealed.name()
}

fn append(writer: &mut SegmentWriter, source: u16, seq: u64, body: &[u8]) {
    let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
    let (mono_ns, wall_ns) = (1_000_000 + seq, 0);
    let stamp = Stamp { mono_ns, wall_ns, seq, shortfall: Shortfall::NONE, duration_ns: 1 };
    Envelope::new(source).write(&mut payload, &stamp, body);
    let (mut frame, kind) = (Vec::new(), writer.checksum());
    kind.frame_and_write(&mut frame, &payload).unwrap();
    let heads = [&frame[..kind.frame_bytes(0)]];
    writer.append(Frames { pieces: &mut [IoSlice::new(&frame)], heads: &heads, count: 1 }).unwrap();
}

pub(super) fn header(segment: u64, checksum: ChecksumKind) -> Header {
    let source = |id: u16| SourceInfo {
        id,
        name: format!("source{id}"),
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: 1000,
        root: "flatcap.synthetic.Point".into(),
        schema: vec![0; 100],
        next_seq: 0,
    };
    Header {
        segment,
        run_id: 5,
        host: HostName { name: "test".into(), machine_id: None, boot_id: None },
        agent_version: "test".into(),
        checksum,
        frame_max: 1 << 16,
        clocks: ClockReading { mono_ns: 10, boot_ns: 20, wall_ns: 30 },
        reorder_window_ns: 0,
        sources: (0..2).map(source).collect(),
        clock_table: Vec::new(),
    }
}

/// Packs one, told by `pace` whether to go on.
pub(super) fn pack_with(
    storage: &dyn Storage,
    name: SegmentName,
    way: Way,
    placing: Placing,
    pace: &mut dyn FnMut(Slice) -> bool,
) -> Result<Outcome, SealError> {
    let ways = NamedWays { general: way, sources: Vec::new() };
    pack(&mut Job { storage, ways: &ways, block_bytes: BLOCK_BYTES, keep_free: 0, placing, pace }, name)
}

/// Packs one to the end, as the agent does.
pub(super) fn pack_one(storage: &dyn Storage, name: SegmentName) -> Result<Outcome, SealError> {
    pack_with(storage, name, Way::default(), Placing::Exchange, &mut |_| true)
}

/// The raw bytes of a segment, packed or not, and whether it is.
pub(super) fn read(storage: &SimulatedStorage, name: &str) -> (Vec<u8>, bool) {
    let file = storage.open(name).unwrap();
    let reader = SegmentReader::over(Path::new(name), file).unwrap_or_else(|error| panic!("{error}"));
    let Some(packed) = reader.packed() else { return (storage.content(name).unwrap(), false) };
    assert_eq!(packed.flaw(), None, "{name}");
    let mut bytes = vec![0; usize::try_from(packed.raw_bytes()).unwrap()];
    let mut filled = 0;
    while filled < bytes.len() {
        let count = packed.read_at(&mut bytes[filled..], filled as u64).unwrap();
        assert!(count > 0, "{name}");
        filled += count;
    }
    (bytes, true)
}

pub(super) fn parsed(name: &str) -> SegmentName {
    SegmentName::parse(name).unwrap()
}
