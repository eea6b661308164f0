//! Projection: selects the bytes of a payload that contain some fields, so that other bytes of a
//! compressed segment are not decompressed.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::block::{FieldRef, FieldSelection, ValueType};
use crate::schema::envelope::{ENVELOPE_BYTES, HEADER_AT, HEADER_BYTES, split};
use crate::schema::{CompiledSchema, Projection};
use crate::segment::format::header::SegmentHeader;

/// Selects the parts of a payload that a reader needs. The arguments are the source's id and a
/// sample payload of the same shape, with its envelope.
pub(in crate::segment) type FieldSelector = dyn Fn(u16, &[u8]) -> FieldSelection + Send + Sync;

/// Maximum length of a field reference, in bytes.
const FIELD_BYTES_MAX: usize = 8;

/// The projection of one source.
enum SourceProjection {
    All,
    EnvelopeOnly,
    Fields(Projection),
}

/// Selects some fields of some sources. `sources` are names, and `fields` dotted paths. An empty
/// list means all. For all other sources, selects only the envelope.
pub(in crate::segment) fn field_selector(
    header: &SegmentHeader,
    sources: &BTreeSet<String>,
    fields: &[String],
) -> Arc<FieldSelector> {
    let projections: Vec<(u16, SourceProjection)> = header
        .sources
        .iter()
        .map(|source| {
            let is_selected = sources.is_empty() || sources.contains(&source.name);
            let projection = match (is_selected, fields) {
                (false, _) => SourceProjection::EnvelopeOnly,
                (true, []) => SourceProjection::All,
                (true, fields) => source_projection(&source.schema, &source.root, fields),
            };
            (source.id, projection)
        })
        .collect();
    Arc::new(move |source, payload| match projections.iter().find(|(id, _)| *id == source) {
        Some((_, SourceProjection::EnvelopeOnly)) => select_ranges(&[], &[]),
        Some((_, SourceProjection::Fields(projection))) => select_projection(projection, payload),
        // A source that was described after the header is also read completely.
        Some((_, SourceProjection::All)) | None => FieldSelection::All,
    })
}

fn source_projection(schema: &[u8], root: &str, fields: &[String]) -> SourceProjection {
    let Ok(plan) = CompiledSchema::compile(schema, root) else { return SourceProjection::All };
    let own: Vec<&str> =
        fields.iter().map(String::as_str).filter(|field| plan.select(&[field]).is_ok()).collect();
    if own.is_empty() {
        return SourceProjection::EnvelopeOnly;
    }
    plan.project(&own).map_or(SourceProjection::All, SourceProjection::Fields)
}

/// Selects the envelope and the bytes that a projection reads in payloads of this shape.
fn select_projection(projection: &Projection, payload: &[u8]) -> FieldSelection {
    let Some((_, body)) = split(payload) else { return FieldSelection::All };
    match projection.accessed_bytes(body) {
        Ok(reach) => select_ranges(&reach.structure, &reach.values),
        Err(_) => FieldSelection::All,
    }
}

/// Selects the envelope and some ranges of the body after it.
fn select_ranges(structure: &[Range<usize>], values: &[Range<usize>]) -> FieldSelection {
    let shifted = |ranges: &[Range<usize>]| -> Vec<FieldRef> {
        ranges
            .iter()
            .flat_map(|range| field_refs(range.start + ENVELOPE_BYTES..range.end + ENVELOPE_BYTES))
            .collect()
    };
    let mut selected: Vec<FieldRef> = field_refs(HEADER_AT..HEADER_AT + HEADER_BYTES).collect();
    selected.extend(shifted(values));
    FieldSelection::Fields { dependencies: shifted(structure), values: selected }
}

fn field_refs(range: Range<usize>) -> impl Iterator<Item = FieldRef> {
    let end = range.end;
    range.step_by(FIELD_BYTES_MAX).map(move |at| FieldRef {
        at: u32::try_from(at).unwrap_or(u32::MAX),
        bytes: u8::try_from((end - at).min(FIELD_BYTES_MAX)).unwrap_or_default(),
        kind: ValueType::Unsigned,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::IoSlice;
    use std::path::PathBuf;

    use flatcap_stream::Framer;

    use super::super::compressed_segment::tests::compressed;
    use super::*;
    use crate::frame::{Envelope, Incomplete, Stamp};
    use crate::schema::FieldValue;
    use crate::segment::format::header::tests::example;
    use crate::segment::{
        Advance, FrameKind, Frames, SampleSpan, SealState, SegmentName, SegmentReader, SegmentWriter,
        SourceInfo, Trailer,
    };
    use crate::storage::Folder;

    pub(crate) const SAMPLES: u64 = 200;

    /// Writes a segment of two sources whose payloads are trailers; each sample has different
    /// values.
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

    /// Reads number, source, `segment` and `run_id` of each sample, restricted to these sources and
    /// fields.
    fn read(path: &std::path::Path, sources: &[&str], fields: &[&str]) -> Vec<(u64, u16, u64, u64)> {
        let mut reader = SegmentReader::open(path).unwrap();
        let sources = sources.iter().map(ToString::to_string).collect();
        let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
        reader.project_fields(&sources, &fields);
        let source = reader.header().sources[0].clone();
        let plan = CompiledSchema::compile(&source.schema, &source.root).unwrap();
        let projection = plan.project(&["segment", "run_id"]).unwrap();
        let mut samples = Vec::new();
        while let Some(advance) = reader.advance().unwrap() {
            let Advance::Frame(at) = advance else { panic!("{advance:?}") };
            let Some(sample) = reader.sample(at).filter(|_| at.kind == FrameKind::Telemetry) else {
                continue;
            };
            let mut values = [FieldValue::Absent; 2];
            projection.read(sample.payload, &mut values).unwrap();
            let [FieldValue::Unsigned(segment), FieldValue::Unsigned(run_id)] = values else {
                panic!("{values:?}")
            };
            samples.push((sample.seq, sample.source, segment, run_id));
        }
        samples
    }

    // Proves that selected fields are correct and that no other fields are decompressed: those have
    // the values of the first sample.
    #[test]
    fn projected_fields_are_right_and_others_stay_compressed() {
        let folder = tempfile::tempdir().unwrap();
        let path = raw_segment(folder.path());
        std::fs::write(&path, compressed(&path, 1 << 20)).unwrap();
        let all = read(&path, &[], &[]);
        assert_eq!(all.len() as u64, 2 * SAMPLES);
        assert!(all.iter().all(|(seq, _, segment, run_id)| (*segment, *run_id) == (seq * seq, !seq)));
        let one = read(&path, &[], &["segment"]);
        assert!(one.iter().all(|(seq, _, segment, run_id)| (*segment, *run_id) == (seq * seq, !0)));
        let other = read(&path, &["beta"], &["run_id"]);
        let expected = |seq: u64, source: u16| if source == 1 { !seq } else { !0 };
        assert!(
            other
                .iter()
                .all(|(seq, source, segment, run_id)| *segment == 0 && *run_id == expected(*seq, *source))
        );
        assert_eq!(read(&path, &["alpha", "beta"], &[]), all);
    }
}
