//! Scans some fields of one source over a whole segment, as fast as possible. In a compressed
//! segment only the columns of these fields are decompressed, and blocks outside of the time range
//! or the predicate are skipped.

use std::ops::{Range, RangeInclusive};

use super::reader::{Advance, SegmentReader};
use crate::block::{FieldPredicate, FieldRef, FieldSelection, ValueRange, ValueType};
use crate::schema::envelope::{ENVELOPE_BYTES, split};
use crate::schema::{FieldValue, Projection};
use crate::segment::compressed::compressed_segment::CompressedSegment;
use crate::segment::compressed::field_projection::{FieldSelector, select_projection};
use crate::segment::format::damage::Damage;
use crate::segment::format::error::SegmentError;
use crate::segment::format::footer::{BlockEntry, Footer};
use crate::segment::format::frame_kind::{FrameKind, SampleView};

/// A scan of the samples of one source.
#[derive(Debug)]
pub struct Scan<'s> {
    /// The source's id.
    pub source: u16,
    /// The fields to read.
    pub fields: &'s Projection,
    /// Only samples that were begun in this range, in monotonic nanoseconds.
    pub mono_ns: Range<u64>,
    /// Only samples that match this predicate.
    pub predicate: Option<Predicate<'s>>,
}

/// A predicate: a number must be within a range.
#[derive(Debug)]
pub struct Predicate<'s> {
    /// A projection of one path, to the number.
    pub field: &'s Projection,
    /// The range. Integers are compared as the nearest 64-bit float.
    pub range: RangeInclusive<f64>,
}

/// The result of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanSummary {
    /// Samples that were returned.
    pub samples: u64,
    /// Samples whose payloads do not match the fields' schema; they were not returned.
    pub unreadable: u64,
    /// Compressed segments only: blocks that were decompressed, at least in part...
    pub blocks_read: u64,
    /// ...and blocks that cannot hold a matching sample.
    pub blocks_skipped: u64,
    /// Damaged ranges in the scanned part, as raw offsets: blocks that cannot be decompressed, and
    /// frames of any source that differ from what was written. With a time range, the scanned part
    /// of a raw segment is from its start to the end of the segment, and of a compressed one the
    /// blocks that may overlap it. If there are very many, the last one covers the rest.
    pub damage: Vec<Damage>,
}

impl SegmentReader {
    /// Calls `each` for every matching sample in file order, with its envelope and the values of
    /// the fields. Afterwards the offset of the reader is undefined.
    ///
    /// A sample's `payload` is correct only in the requested fields.
    ///
    /// # Errors
    /// `Io`. Damage is not an error; it is in the result.
    pub fn scan(
        &mut self,
        scan: &Scan<'_>,
        each: &mut dyn FnMut(&SampleView<'_>, &[FieldValue<'_>]),
    ) -> Result<ScanSummary, SegmentError> {
        let mut sink = SampleSink {
            scan,
            values: vec![FieldValue::Absent; scan.fields.paths().len()],
            each,
            summary: ScanSummary::default(),
        };
        if self.compressed().is_some() {
            let path = self.path().to_owned();
            let raw = self.footer().map_or(0..u64::MAX, |footer| raw_range(footer, &scan.mono_ns));
            if let Some(compressed) = self.compressed() {
                compressed.scan_blocks(raw, &mut sink).map_err(|error| SegmentError::Io { path, error })?;
            }
        } else {
            self.seek(0);
            self.seek_time(scan.mono_ns.start);
            while let Some(advance) = self.advance()? {
                match advance {
                    Advance::Frame(at) if at.kind == FrameKind::Telemetry => sink.payload(self.payload(at)),
                    Advance::Frame(_) => {}
                    Advance::Damage(damage) => damage.add_to(&mut sink.summary.damage),
                }
            }
        }
        Ok(sink.summary)
    }
}

impl CompressedSegment {
    fn scan_blocks(&self, raw: Range<u64>, sink: &mut SampleSink<'_, '_>) -> std::io::Result<()> {
        let source = sink.scan.source;
        let selector = scan_selector(sink.scan);
        let overlaps = |entry: &&BlockEntry| entry.raw_offset < raw.end && raw.start < entry.raw_end();
        let mut frame = Vec::new();
        for entry in &self.blocks() {
            if !overlaps(&entry) {
                sink.summary.blocks_skipped += 1;
                continue;
            }
            let test = |payload: &[u8]| {
                sink.scan.predicate.as_ref().and_then(|predicate| predicate.column_test(payload))
            };
            let has_predicate = sink.scan.predicate.is_some();
            let opened = match self.payload(entry, &mut frame)? {
                Ok(payload) => self.with_decoder_of(payload, |decoder| {
                    if has_predicate && !decoder.may_hold(payload, source, &test)? {
                        return Ok(None);
                    }
                    decoder.open(payload, &crate::block::ColumnSelection::by(&*selector)).map(Some)
                })?,
                Err(_) => Err(crate::block::BlockError::Block("cannot be read")),
            };
            match opened {
                Ok(Some(block)) => {
                    sink.summary.blocks_read += 1;
                    block.payloads(source, |payload| sink.payload(payload));
                    self.with_decoder(|decoder| decoder.reuse(block));
                }
                Ok(None) => sink.summary.blocks_skipped += 1,
                Err(_) => Damage {
                    offset: entry.raw_offset,
                    length: entry.raw_end() - entry.raw_offset,
                    what: "a block that cannot be decompressed",
                }
                .add_to(&mut sink.summary.damage),
            }
        }
        Ok(())
    }
}

/// Selects the fields of the scan and of its predicate.
fn scan_selector(scan: &Scan<'_>) -> Box<FieldSelector> {
    let (own, fields) = (scan.source, scan.fields.clone());
    let predicate = scan.predicate.as_ref().map(|predicate| predicate.field.clone());
    Box::new(move |source, payload| {
        if source != own {
            return FieldSelection::Fields { dependencies: Vec::new(), values: Vec::new() };
        }
        match (
            select_projection(&fields, payload),
            predicate.as_ref().map(|field| select_projection(field, payload)),
        ) {
            (choice, None) => choice,
            (
                FieldSelection::Fields { dependencies: mut steady, mut values },
                Some(FieldSelection::Fields { dependencies: also_steady, values: also_values }),
            ) => {
                steady.extend(also_steady);
                values.extend(also_values);
                FieldSelection::Fields { dependencies: steady, values }
            }
            _ => FieldSelection::All,
        }
    })
}

/// Returns the raw range with all samples of a time range, by the index.
fn raw_range(footer: &Footer, mono_ns: &Range<u64>) -> Range<u64> {
    let overlaps = |bounds: crate::segment::format::index::Bounds| {
        bounds.first_mono_ns < mono_ns.end && mono_ns.start <= bounds.last_mono_ns
    };
    let entries = footer.index.iter().filter(|entry| entry.bounds.is_some_and(overlaps));
    let range = entries.fold(None, |range: Option<Range<u64>>, entry| match range {
        Some(range) => Some(range.start.min(entry.offset)..range.end.max(entry.end())),
        None => Some(entry.offset..entry.end()),
    });
    range.unwrap_or(0..0)
}

/// Passes matching samples to the caller.
struct SampleSink<'g, 's> {
    scan: &'g Scan<'s>,
    values: Vec<FieldValue<'g>>,
    each: &'g mut dyn FnMut(&SampleView<'_>, &[FieldValue<'_>]),
    summary: ScanSummary,
}

impl SampleSink<'_, '_> {
    fn payload(&mut self, payload: &[u8]) {
        let Some(sample) = SampleView::read(payload) else { return };
        if sample.source != self.scan.source || !self.scan.mono_ns.contains(&sample.mono_ns) {
            return;
        }
        if let Some(predicate) = &self.scan.predicate
            && !predicate.matches(sample.payload)
        {
            return;
        }
        if self.scan.fields.read(sample.payload, &mut self.values).is_err() {
            self.summary.unreadable += 1;
            return;
        }
        self.summary.samples += 1;
        (self.each)(&sample, &self.values);
    }
}

impl Predicate<'_> {
    fn value<'v>(&'v self, body: &[u8]) -> FieldValue<'v> {
        let mut values = [FieldValue::Absent];
        match self.field.read(body, &mut values) {
            Ok(()) => values[0],
            Err(_) => FieldValue::Absent,
        }
    }

    /// A field without a number never matches.
    fn matches(&self, body: &[u8]) -> bool {
        number(self.value(body)).is_some_and(|number| self.range.contains(&number))
    }

    /// Converts the predicate into a test on the value ranges of columns, for payloads of this
    /// shape. None if that is not possible.
    #[allow(clippy::cast_possible_truncation, reason = "rounded to the nearest float, then widened by one")]
    fn column_test(&self, payload: &[u8]) -> Option<FieldPredicate> {
        let (_, body) = split(payload)?;
        let kind = match self.value(body) {
            FieldValue::Unsigned(_) => ValueType::Unsigned,
            FieldValue::Signed(_) => ValueType::Signed,
            FieldValue::Float(_) | FieldValue::Float32(_) => ValueType::Float,
            _ => return None,
        };
        let FieldSelection::Fields { dependencies: steady, .. } = select_projection(self.field, payload)
        else {
            return None;
        };
        // A field that is left out has no location, only a default.
        let place = self.field.accessed_bytes(body).ok()?.values.pop()?;
        let at = u32::try_from(place.start + ENVELOPE_BYTES).ok()?;
        let place = FieldRef { at, bytes: u8::try_from(place.len()).ok()?, kind };
        // A float represents all integers that are rounded to it.
        let (lowest, highest) = (self.range.start().next_down(), self.range.end().next_up());
        let (lowest, highest) = match (kind, place.bytes) {
            (ValueType::Float, 4) => {
                let (lowest, highest) = ((lowest as f32).next_down(), (highest as f32).next_up());
                (u64::from(lowest.to_bits()), u64::from(highest.to_bits()))
            }
            (ValueType::Float, _) => (lowest.to_bits(), highest.to_bits()),
            (ValueType::Signed, bytes) => (signed(lowest.floor(), bytes), signed(highest.ceil(), bytes)),
            (ValueType::Unsigned, bytes) => {
                (unsigned(lowest.floor(), bytes), unsigned(highest.ceil(), bytes))
            }
        };
        Some(FieldPredicate { dependencies: steady, range: ValueRange { field: place, lowest, highest } })
    }
}

/// Returns the bits of the nearest unsigned integer of `bytes` bytes.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturation is intended")]
fn unsigned(number: f64, bytes: u8) -> u64 {
    (number as u64).min(u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8))))
}

/// Returns the bits of the nearest signed integer of `bytes` bytes.
#[allow(clippy::cast_possible_truncation, reason = "saturation is intended")]
fn signed(number: f64, bytes: u8) -> u64 {
    let unused = 64 - 8 * u32::from(bytes.clamp(1, 8));
    let number = (number as i64).clamp(i64::MIN >> unused, i64::MAX >> unused);
    number.cast_unsigned() & u64::MAX >> unused
}

#[allow(clippy::cast_precision_loss, reason = "integers are compared as floats")]
fn number(value: FieldValue<'_>) -> Option<f64> {
    match value {
        FieldValue::Unsigned(number) => Some(number as f64),
        FieldValue::Signed(number) => Some(number as f64),
        FieldValue::Float(number) => Some(number),
        FieldValue::Float32(number) => Some(f64::from(number)),
        FieldValue::Bool(_) | FieldValue::Text(_) | FieldValue::Absent => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::schema::CompiledSchema;
    use crate::segment::compressed::compressed_segment::tests::compressed;
    use crate::segment::compressed::field_projection::tests::{SAMPLES, raw_segment};

    /// Scans a segment. Returns number, `segment` and `run_id` of the samples, and the result.
    fn scanned(
        path: &Path,
        mono_ns: Range<u64>,
        predicate: Option<(&str, RangeInclusive<f64>)>,
    ) -> (Vec<(u64, FieldValue<'static>, FieldValue<'static>)>, ScanSummary) {
        let mut reader = SegmentReader::open(path).unwrap();
        let source = reader.header().sources[1].clone();
        let plan = CompiledSchema::compile(&source.schema, &source.root).unwrap();
        let fields = plan.project(&["run_id", "segment"]).unwrap();
        let field = predicate.as_ref().map(|(path, _)| plan.project(&[path]).unwrap());
        let predicate = predicate.zip(field.as_ref()).map(|((_, range), field)| Predicate { field, range });
        let mut samples = Vec::new();
        let mut each = |sample: &SampleView<'_>, values: &[FieldValue<'_>]| {
            let [FieldValue::Unsigned(run_id), FieldValue::Unsigned(segment)] = values else {
                panic!("{values:?}")
            };
            samples.push((sample.seq, FieldValue::Unsigned(*segment), FieldValue::Unsigned(*run_id)));
        };
        let scan = Scan { source: 1, fields: &fields, mono_ns, predicate };
        let scanned = reader.scan(&scan, &mut each).unwrap();
        // A second scan has the same result, from any offset of the reader.
        let (again, mut count) = (reader.scan(&scan, &mut |_, _| ()).unwrap(), 0);
        reader.scan(&scan, &mut |_, _| count += 1).unwrap();
        assert_eq!((&again, count), (&scanned, scanned.samples));
        (samples, scanned)
    }

    // Proves that a scan returns the same for a compressed and for the raw segment, and skips
    // blocks that cannot match, for several time ranges and predicates, and with a damaged block.
    #[test]
    fn compressed_segments_are_scanned_as_raw_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = raw_segment(folder.path());
        let square = |number: u32| f64::from(number * number);
        let asked = [
            (0..u64::MAX, None, SAMPLES),
            (50..60, None, 10),
            (SAMPLES..u64::MAX, None, 0),
            (0..u64::MAX, Some(("segment", square(10)..=square(20))), 11),
            (0..u64::MAX, Some(("segment", -5.0..=0.5)), 1),
            (0..u64::MAX, Some(("segment", f64::NEG_INFINITY..=f64::INFINITY)), SAMPLES),
            (15..SAMPLES, Some(("footer_offset", 50.0..=100.0)), 6),
            (0..u64::MAX, Some(("segment", 2.5..=3.5)), 0),
            // Integers near the top are compared as floats.
            (0..u64::MAX, Some(("run_id", 1.8e19..=2e19)), SAMPLES),
        ];
        let of_raw: Vec<_> = asked
            .iter()
            .map(|(time, predicate, _)| scanned(&path, time.clone(), predicate.clone()))
            .collect();
        std::fs::write(&path, compressed(&path, 4096)).unwrap();
        for ((time, predicate, count), (samples, _)) in asked.into_iter().zip(of_raw) {
            let (compressed, summary) = scanned(&path, time.clone(), predicate.clone());
            assert_eq!(compressed.len() as u64, count, "{time:?} {predicate:?}");
            assert_eq!((compressed, summary.samples), (samples, count));
            assert!(summary.damage.is_empty() && summary.unreadable == 0);
            assert_eq!(
                summary.blocks_skipped > summary.blocks_read,
                count < SAMPLES,
                "{time:?} {predicate:?} {summary:?}"
            );
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let block = SegmentReader::open(&path).unwrap().compressed().unwrap().blocks()[3];
        bytes[usize::try_from(block.offset).unwrap() + 60] ^= 4;
        std::fs::write(&path, bytes).unwrap();
        let (samples, came_to) = scanned(&path, 0..u64::MAX, None);
        assert!(!samples.is_empty() && (samples.len() as u64) < SAMPLES);
        assert_eq!(came_to.damage.iter().map(|damage| damage.offset).collect::<Vec<_>>(), [block.raw_offset]);
    }
}
