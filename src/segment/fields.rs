//! A reader that needs to be right in some fields only: of a packed segment nothing else is unpacked.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::header::Header;
use super::reader::SegmentReader;
use crate::block::{Choice, Kind, Place};
use crate::schema::envelope::{ENVELOPE_BYTES, HEADER_AT, HEADER_BYTES, split};
use crate::schema::{Plan, Projection};

/// What is wanted of payloads of a source that have the shape of the one given: the source's id, the payload with its envelope.
pub(super) type Choose = dyn Fn(u16, &[u8]) -> Choice + Send + Sync;

/// Most bytes of a [`Place`].
const PLACE_BYTES_MAX: usize = 8;

/// What is wanted of one source.
enum Wish {
    All,
    Nothing,
    Fields(Projection),
}

impl SegmentReader {
    /// From now on samples need to be right in their envelopes and these fields alone, and those of other sources in their envelopes alone.
    /// Of a packed segment the rest is not unpacked, and stands as in another sample of the same shape. A raw segment is read as before.
    ///
    /// `sources` are names, none for all of them; `fields` dotted paths, none for all. A source that has none of these fields is read
    /// as one that is not wanted; one in which a path leads to more than a number (a list, an object), as a whole.
    pub fn want_fields(&mut self, sources: &BTreeSet<String>, fields: &[String]) {
        let wants_all = sources.is_empty() && fields.is_empty();
        if let Some(packed) = self.packed()
            && !wants_all
        {
            packed.want(chooser(self.header(), sources, fields));
        }
    }
}

fn chooser(header: &Header, sources: &BTreeSet<String>, fields: &[String]) -> Arc<Choose> {
    let wishes: Vec<(u16, Wish)> = header
        .sources
        .iter()
        .map(|source| {
            let is_wanted = sources.is_empty() || sources.contains(&source.name);
            let wish = match (is_wanted, fields) {
                (false, _) => Wish::Nothing,
                (true, []) => Wish::All,
                (true, fields) => wish(&source.schema, &source.root, fields),
            };
            (source.id, wish)
        })
        .collect();
    Arc::new(move |source, payload| match wishes.iter().find(|(id, _)| *id == source) {
        Some((_, Wish::Nothing)) => choice(&[], &[]),
        Some((_, Wish::Fields(projection))) => projected(projection, payload),
        // A source that came later, too.
        Some((_, Wish::All)) | None => Choice::All,
    })
}

fn wish(schema: &[u8], root: &str, fields: &[String]) -> Wish {
    let Ok(plan) = Plan::compile(schema, root) else { return Wish::All };
    let own: Vec<&str> =
        fields.iter().map(String::as_str).filter(|field| plan.select(&[field]).is_ok()).collect();
    if own.is_empty() {
        return Wish::Nothing;
    }
    plan.project(&own).map_or(Wish::All, Wish::Fields)
}

/// The envelope, and what a projection looks at in the body of payloads like this one.
pub(super) fn projected(projection: &Projection, payload: &[u8]) -> Choice {
    let Some((_, body)) = split(payload) else { return Choice::All };
    match projection.reach(body) {
        Ok(reach) => choice(&reach.structure, &reach.values),
        Err(_) => Choice::All,
    }
}

/// The envelope and some ranges of the body behind it.
fn choice(structure: &[Range<usize>], values: &[Range<usize>]) -> Choice {
    let shifted = |ranges: &[Range<usize>]| -> Vec<Place> {
        ranges
            .iter()
            .flat_map(|range| places(range.start + ENVELOPE_BYTES..range.end + ENVELOPE_BYTES))
            .collect()
    };
    let mut wanted: Vec<Place> = places(HEADER_AT..HEADER_AT + HEADER_BYTES).collect();
    wanted.extend(shifted(values));
    Choice::Places { steady: shifted(structure), values: wanted }
}

fn places(range: Range<usize>) -> impl Iterator<Item = Place> {
    let end = range.end;
    range.step_by(PLACE_BYTES_MAX).map(move |at| Place {
        at: u32::try_from(at).unwrap_or(u32::MAX),
        bytes: u8::try_from((end - at).min(PLACE_BYTES_MAX)).unwrap_or_default(),
        kind: Kind::Unsigned,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::IoSlice;
    use std::path::PathBuf;

    use super::super::header::tests::example;
    use super::super::packed::tests::packed;
    use super::super::{
        Advance, FrameKind, Frames, SegmentName, SegmentWriter, SourceInfo, Span, State, Trailer,
    };
    use super::*;
    use crate::frame::{Envelope, Shortfall, Stamp};
    use crate::os::storage::DataDirectory;
    use crate::schema::Value;
    use crate::stream::Framer;

    pub(crate) const SAMPLES: u64 = 200;

    /// A segment of two sources whose payloads are trailers, every field another one in each sample.
    pub(crate) fn raw_segment(folder: &std::path::Path) -> PathBuf {
        let schema = std::fs::read("generated/segment.bfbs").unwrap();
        let mut header = example();
        for source in &mut header.sources {
            let root = "flatcap.segment.Trailer".to_owned();
            *source = SourceInfo { schema: schema.clone(), root, next_seq: 0, ..source.clone() };
        }
        let storage = DataDirectory::open(folder).unwrap();
        let name = SegmentName { number: 7, created_s: 1_700_000_000, run_id: 5, state: State::Active };
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
                    shortfall: Shortfall::NONE,
                    duration_ns: 1,
                };
                Envelope::new(source).write(&mut payload, &stamp, &body);
                let kind = writer.checksum();
                let mut frame = Vec::new();
                kind.frame_and_write(&mut frame, &payload).unwrap();
                let heads = [&frame[..kind.frame_bytes(0)]];
                let mut pieces = [IoSlice::new(&frame)];
                writer.append(Frames { pieces: &mut pieces, heads: &heads, count: 1 }).unwrap();
                let span = Span {
                    first_seq: at,
                    last_seq: at,
                    first_mono_ns: at,
                    last_mono_ns: at,
                    first_wall_ns: at.cast_signed(),
                    last_wall_ns: at.cast_signed(),
                };
                writer.tally(source, 1, span);
            }
            if at % 10 == 9 {
                writer.append_index(0).unwrap();
            }
        }
        let sealed = writer.seal().unwrap();
        sealed.publish(&storage).unwrap();
        folder.join(sealed.name().to_string())
    }

    /// Number, source, `segment` and `run_id` of each sample, as a reader with these wishes has them.
    fn read(path: &std::path::Path, sources: &[&str], fields: &[&str]) -> Vec<(u64, u16, u64, u64)> {
        let mut reader = SegmentReader::open(path).unwrap();
        let sources = sources.iter().map(ToString::to_string).collect();
        let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
        reader.want_fields(&sources, &fields);
        let source = reader.header().sources[0].clone();
        let plan = Plan::compile(&source.schema, &source.root).unwrap();
        let projection = plan.project(&["segment", "run_id"]).unwrap();
        let mut samples = Vec::new();
        while let Some(advance) = reader.advance().unwrap() {
            let Advance::Frame(at) = advance else { panic!("{advance:?}") };
            let Some(sample) = reader.telemetry(at).filter(|_| at.kind == FrameKind::Telemetry) else {
                continue;
            };
            let mut values = [Value::Absent; 2];
            projection.read(sample.payload, &mut values).unwrap();
            let [Value::Unsigned(segment), Value::Unsigned(run_id)] = values else { panic!("{values:?}") };
            samples.push((sample.seq, sample.source, segment, run_id));
        }
        samples
    }

    // Goal: what is wanted is right, and nothing else was unpacked. Method: a packed segment of two sources whose fields differ in each sample, read
    // with several wishes; a field that is not wanted stands as in the first sample.
    #[test]
    fn what_is_wanted_is_right_and_nothing_else_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let path = raw_segment(folder.path());
        std::fs::write(&path, packed(&path, 1 << 20)).unwrap();
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
