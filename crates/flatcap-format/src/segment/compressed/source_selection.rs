//! Selection of sources. If only some sources of a compressed segment are selected, the fields of
//! the other sources are not decompressed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::block::{FieldRef, FieldSelection, ValueType};
use crate::schema::envelope::{HEADER_AT, HEADER_BYTES};
use crate::segment::format::header::SegmentHeader;

/// Returns the fields that a reader needs from the samples of the source with this id.
pub(in crate::segment) type SourceSelector = dyn Fn(u16) -> FieldSelection + Send + Sync;

/// Maximum number of bytes that one field reference covers.
const FIELD_BYTES_MAX: usize = 8;

/// Returns a selector that selects all fields of the sources with these names, and only the
/// envelope of other sources.
pub(in crate::segment) fn source_selector(
    header: &SegmentHeader,
    sources: &BTreeSet<String>,
) -> Arc<SourceSelector> {
    let others = header.sources.iter().filter(|source| !sources.contains(&source.name));
    let others: BTreeSet<u16> = others.map(|source| source.id).collect();
    // All fields of a source are selected if the header does not contain the source.
    Arc::new(move |source| if others.contains(&source) { envelope_only() } else { FieldSelection::All })
}

fn envelope_only() -> FieldSelection {
    let starts = (HEADER_AT..HEADER_AT + HEADER_BYTES).step_by(FIELD_BYTES_MAX);
    FieldSelection::Fields(
        starts
            .map(|at| FieldRef {
                at: u32::try_from(at).unwrap_or(u32::MAX),
                bytes: u8::try_from((HEADER_AT + HEADER_BYTES - at).min(FIELD_BYTES_MAX)).unwrap_or_default(),
                kind: ValueType::Unsigned,
            })
            .collect(),
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::IoSlice;
    use std::path::PathBuf;

    use flatcap_stream::Framer;

    use crate::frame::{Envelope, Incomplete, Stamp};
    use crate::schema::envelope::ENVELOPE_BYTES;
    use crate::segment::{
        Advance, FrameKind, Frames, SampleSpan, SealState, SegmentName, SegmentReader, SegmentWriter,
        SourceInfo, Trailer,
    };
    use crate::testing::Folder;
    use crate::testing::compressed;
    use crate::testing::example;

    pub(crate) const SAMPLES: u64 = 200;

    /// Writes a segment that contains two sources. The payload of each sample is the trailer of a
    /// segment, and its values differ from sample to sample.
    pub(crate) fn raw_segment(folder: &std::path::Path) -> PathBuf {
        let schema = std::fs::read("generated/segment.bfbs").unwrap();
        let mut header = example();
        for source in &mut header.sources {
            let root = "flatcap.segment.Trailer".to_owned();
            *source = SourceInfo { schema: schema.clone(), root, next_seq: 0, ..source.clone() };
        }
        let storage = Folder(folder.to_owned());
        let name = SegmentName { number: 7, created_s: 1_700_000_000, run_id: 5, state: SealState::Active };
        let mut writer = SegmentWriter::create(&storage, name, header, &[], 0).unwrap();
        for at in 0..SAMPLES {
            for source in 0..2 {
                let body = Trailer { footer_offset: 5 * at, footer_length: 7, segment: at * at, run_id: !at };
                let body = body.encode();
                let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
                let stamp = Stamp {
                    mono_ns: at,
                    wall_ns: at.cast_signed(),
                    seq: at,
                    incomplete: Incomplete::NONE,
                    duration_ns: 1,
                };
                Envelope::new(source).write(&mut payload, &stamp, &body);
                let kind = writer.checksum();
                let mut frame = Vec::new();
                kind.frame_and_write(&mut frame, &payload).unwrap();
                let headers = [&frame[..kind.frame_bytes(0)]];
                let mut pieces = [IoSlice::new(&frame)];
                writer.append(Frames { pieces: &mut pieces, headers: &headers, count: 1 }).unwrap();
                let span = SampleSpan::of(at, at, at.cast_signed());
                writer.count_samples(source, 1, span);
            }
            if at % 10 == 9 {
                writer.append_index(0).unwrap();
            }
        }
        let sealed = writer.seal().unwrap();
        sealed.publish(&storage).unwrap();
        folder.join(sealed.name().to_string())
    }

    /// Reads the number, the source, `segment` and `run_id` of each sample, with these sources
    /// selected.
    fn read(path: &std::path::Path, sources: &[&str]) -> Vec<(u64, u16, u64, u64)> {
        let mut reader = SegmentReader::open(path).unwrap();
        reader.select_sources(&sources.iter().map(ToString::to_string).collect());
        let mut samples = Vec::new();
        while let Some(advance) = reader.advance().unwrap() {
            let Advance::Frame(at) = advance else { panic!("{advance:?}") };
            let Some(sample) = reader.sample(at).filter(|_| at.kind == FrameKind::Telemetry) else {
                continue;
            };
            let trailer = Trailer::decode(sample.payload).unwrap();
            samples.push((sample.seq, sample.source, trailer.segment, trailer.run_id));
        }
        samples
    }

    // Proves that selected sources are correct and that the fields of other sources are not
    // decompressed, because these fields have the values of the first sample.
    #[test]
    fn selected_sources_are_right_and_others_stay_compressed() {
        let folder = tempfile::tempdir().unwrap();
        let path = raw_segment(folder.path());
        std::fs::write(&path, compressed(&path, 1 << 20)).unwrap();
        let all = read(&path, &[]);
        assert_eq!(all.len() as u64, 2 * SAMPLES);
        assert!(all.iter().all(|(seq, _, segment, run_id)| (*segment, *run_id) == (seq * seq, !seq)));
        let expected = |seq: u64, source: u16| if source == 1 { (seq * seq, !seq) } else { (0, !0) };
        let one = read(&path, &["beta"]);
        assert_eq!(one.len() as u64, 2 * SAMPLES);
        assert!(
            one.iter().all(|(seq, source, segment, run_id)| (*segment, *run_id) == expected(*seq, *source))
        );
        assert_eq!(read(&path, &["alpha", "beta"]), all);
    }
}
