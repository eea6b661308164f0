//! Some fields of one source over a whole segment, as fast as it goes: of a packed one only the lanes that hold them are unpacked, and no
//! block that lies outside of the time or the values that are asked for.

use std::ops::{Range, RangeInclusive};

use super::error::SegmentError;
use super::examine::WRONG;
use super::fields::{Choose, projected};
use super::footer::{BlockEntry, Footer};
use super::kind::{FrameKind, Telemetry};
use super::packed::Packed;
use super::reader::{Advance, Damage, SegmentReader};
use crate::block::{Choice, Kind, Place, Test, Within};
use crate::schema::envelope::{ENVELOPE_BYTES, split};
use crate::schema::{Projection, Value};

/// What is asked of the samples of one source.
#[derive(Debug)]
pub struct Scan<'s> {
    /// The source's id.
    pub source: u16,
    /// The fields.
    pub fields: &'s Projection,
    /// Only samples whose readings began then, in monotonic nanoseconds.
    pub mono_ns: Range<u64>,
    /// Only samples in which a number lies within bounds.
    pub condition: Option<Condition<'s>>,
}

/// A number that has to lie within bounds.
#[derive(Debug)]
pub struct Condition<'s> {
    /// The way to it: a projection of one path.
    pub field: &'s Projection,
    /// The bounds. Integers are compared as the nearest 64-bit float.
    pub range: RangeInclusive<f64>,
}

/// What a scan came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Samples that were given.
    pub samples: u64,
    /// Samples whose payloads do not fit the fields' schema; they were not given.
    pub unreadable: u64,
    /// Of a packed segment: blocks that were unpacked, in parts...
    pub blocks_read: u64,
    /// ...and blocks that nothing can be in.
    pub blocks_skipped: u64,
    /// Holes in what was looked at, at raw offsets: blocks that cannot be unpacked, and frames that are not what was written, of whichever source.
    /// What is looked at is, where only some time is asked for, a raw segment from there to its end, and of a packed one the blocks in which it may be.
    /// Of very many places the last one stands for the rest.
    pub damage: Vec<Damage>,
}

impl SegmentReader {
    /// Gives every sample that is asked for, in the order of the file: its envelope, and the values of the fields. The reader stands anywhere
    /// afterwards.
    ///
    /// A sample's `payload` is right in the fields that were asked for, and only there.
    ///
    /// # Errors
    /// `Io`. Damage is no error; it is in what is returned.
    pub fn scan(
        &mut self,
        scan: &Scan<'_>,
        each: &mut dyn FnMut(&Telemetry<'_>, &[Value<'_>]),
    ) -> Result<Scanned, SegmentError> {
        let mut giving = Giving {
            scan,
            values: vec![Value::Absent; scan.fields.paths().len()],
            each,
            scanned: Scanned::default(),
        };
        if self.packed().is_some() {
            let path = self.path().to_owned();
            let raw = self.footer().map_or(0..u64::MAX, |footer| raw_range(footer, &scan.mono_ns));
            if let Some(packed) = self.packed() {
                packed.scan(raw, &mut giving).map_err(|error| SegmentError::Io { path, error })?;
            }
        } else {
            self.seek(0);
            self.seek_time(scan.mono_ns.start);
            while let Some(advance) = self.advance()? {
                match advance {
                    Advance::Frame(at) if at.kind == FrameKind::Telemetry => giving.payload(self.payload(at)),
                    Advance::Frame(_) => {}
                    Advance::Damage(damage) => damage.add_to(&mut giving.scanned.damage),
                }
            }
        }
        Ok(giving.scanned)
    }
}

impl Packed {
    fn scan(&self, raw: Range<u64>, giving: &mut Giving<'_, '_>) -> std::io::Result<()> {
        let source = giving.scan.source;
        let choose = chooser(giving.scan);
        let overlaps = |entry: &&BlockEntry| entry.raw_offset < raw.end && raw.start < entry.raw_end();
        let mut frame = Vec::new();
        for entry in &self.blocks() {
            if !overlaps(&entry) {
                giving.scanned.blocks_skipped += 1;
                continue;
            }
            let test =
                |payload: &[u8]| giving.scan.condition.as_ref().and_then(|condition| condition.test(payload));
            let has_condition = giving.scan.condition.is_some();
            let opened = match self.payload(entry, &mut frame)? {
                Ok(payload) => self.with_decoder(|decoder| {
                    if has_condition && !decoder.may_hold(payload, source, &test)? {
                        return Ok(None);
                    }
                    decoder.open(payload, &crate::block::Wanted::these(&*choose)).map(Some)
                }),
                Err(_) => Err(crate::block::Fault::Block("cannot be read")),
            };
            match opened {
                Ok(Some(block)) => {
                    giving.scanned.blocks_read += 1;
                    block.payloads(source, |payload| giving.payload(payload));
                    for wrong in block.wrong_frames() {
                        giving.scanned.add_wrong(entry.raw_offset + wrong.start as u64, wrong.len() as u64);
                    }
                    self.with_decoder(|decoder| decoder.reuse(block));
                }
                Ok(None) => giving.scanned.blocks_skipped += 1,
                Err(_) => Damage {
                    offset: entry.raw_offset,
                    length: entry.raw_end() - entry.raw_offset,
                    what: "a block that cannot be unpacked",
                }
                .add_to(&mut giving.scanned.damage),
            }
        }
        Ok(())
    }
}

impl Scanned {
    /// Tells of frames that are not what was written; together with those right in front of them, in the block before.
    fn add_wrong(&mut self, offset: u64, length: u64) {
        match self.damage.last_mut() {
            Some(last) if last.what == WRONG && last.offset + last.length == offset => last.length += length,
            _ => Damage { offset, length, what: WRONG }.add_to(&mut self.damage),
        }
    }
}

/// What is wanted of which source's payloads.
fn chooser(scan: &Scan<'_>) -> Box<Choose> {
    let (own, fields) = (scan.source, scan.fields.clone());
    let condition = scan.condition.as_ref().map(|condition| condition.field.clone());
    Box::new(move |source, payload| {
        if source != own {
            return Choice::Places { steady: Vec::new(), values: Vec::new() };
        }
        match (projected(&fields, payload), condition.as_ref().map(|field| projected(field, payload))) {
            (choice, None) => choice,
            (
                Choice::Places { mut steady, mut values },
                Some(Choice::Places { steady: also_steady, values: also_values }),
            ) => {
                steady.extend(also_steady);
                values.extend(also_values);
                Choice::Places { steady, values }
            }
            _ => Choice::All,
        }
    })
}

/// Where in a segment everything stands that was sampled then, by its index.
fn raw_range(footer: &Footer, mono_ns: &Range<u64>) -> Range<u64> {
    let overlaps = |bounds: super::index::Bounds| {
        bounds.first_mono_ns < mono_ns.end && mono_ns.start <= bounds.last_mono_ns
    };
    let entries = footer.index.iter().filter(|entry| entry.bounds.is_some_and(overlaps));
    let range = entries.fold(None, |range: Option<Range<u64>>, entry| match range {
        Some(range) => Some(range.start.min(entry.offset)..range.end.max(entry.end())),
        None => Some(entry.offset..entry.end()),
    });
    range.unwrap_or(0..0)
}

/// Samples on their way out.
struct Giving<'g, 's> {
    scan: &'g Scan<'s>,
    values: Vec<Value<'g>>,
    each: &'g mut dyn FnMut(&Telemetry<'_>, &[Value<'_>]),
    scanned: Scanned,
}

impl Giving<'_, '_> {
    fn payload(&mut self, payload: &[u8]) {
        let Some(sample) = Telemetry::read(payload) else { return };
        if sample.source != self.scan.source || !self.scan.mono_ns.contains(&sample.mono_ns) {
            return;
        }
        if let Some(condition) = &self.scan.condition
            && !condition.holds(sample.payload)
        {
            return;
        }
        if self.scan.fields.read(sample.payload, &mut self.values).is_err() {
            self.scanned.unreadable += 1;
            return;
        }
        self.scanned.samples += 1;
        (self.each)(&sample, &self.values);
    }
}

impl Condition<'_> {
    fn value<'v>(&'v self, body: &[u8]) -> Value<'v> {
        let mut values = [Value::Absent];
        match self.field.read(body, &mut values) {
            Ok(()) => values[0],
            Err(_) => Value::Absent,
        }
    }

    /// What has no number lies within no bounds.
    fn holds(&self, body: &[u8]) -> bool {
        number(self.value(body)).is_some_and(|number| self.range.contains(&number))
    }

    /// The same, asked of the bounds of lanes of payloads like this one. None where they cannot tell.
    #[allow(clippy::cast_possible_truncation, reason = "to the nearest float, and then one further out")]
    fn test(&self, payload: &[u8]) -> Option<Test> {
        let (_, body) = split(payload)?;
        let kind = match self.value(body) {
            Value::Unsigned(_) => Kind::Unsigned,
            Value::Signed(_) => Kind::Signed,
            Value::Float(_) | Value::Float32(_) => Kind::Float,
            _ => return None,
        };
        let Choice::Places { steady, .. } = projected(self.field, payload) else { return None };
        // A field that is left out has no place, only a default.
        let place = self.field.reach(body).ok()?.values.pop()?;
        let at = u32::try_from(place.start + ENVELOPE_BYTES).ok()?;
        let place = Place { at, bytes: u8::try_from(place.len()).ok()?, kind };
        // A float stands for all integers that are rounded to it.
        let (lowest, highest) = (self.range.start().next_down(), self.range.end().next_up());
        let (lowest, highest) = match (kind, place.bytes) {
            (Kind::Float, 4) => {
                let (lowest, highest) = ((lowest as f32).next_down(), (highest as f32).next_up());
                (u64::from(lowest.to_bits()), u64::from(highest.to_bits()))
            }
            (Kind::Float, _) => (lowest.to_bits(), highest.to_bits()),
            (Kind::Signed, bytes) => (signed(lowest.floor(), bytes), signed(highest.ceil(), bytes)),
            (Kind::Unsigned, bytes) => (unsigned(lowest.floor(), bytes), unsigned(highest.ceil(), bytes)),
        };
        Some(Test { steady, within: Within { place, lowest, highest } })
    }
}

/// Bits of the nearest unsigned integer of a length.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is meant")]
fn unsigned(number: f64, bytes: u8) -> u64 {
    (number as u64).min(u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8))))
}

/// Bits of the nearest signed integer of a length.
#[allow(clippy::cast_possible_truncation, reason = "saturates, which is meant")]
fn signed(number: f64, bytes: u8) -> u64 {
    let unused = 64 - 8 * u32::from(bytes.clamp(1, 8));
    let number = (number as i64).clamp(i64::MIN >> unused, i64::MAX >> unused);
    number.cast_unsigned() & u64::MAX >> unused
}

#[allow(clippy::cast_precision_loss, reason = "as the condition says")]
fn number(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Unsigned(number) => Some(number as f64),
        Value::Signed(number) => Some(number as f64),
        Value::Float(number) => Some(number),
        Value::Float32(number) => Some(f64::from(number)),
        Value::Bool(_) | Value::Text(_) | Value::Absent => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::fields::tests::{SAMPLES, raw_segment};
    use super::super::packed::tests::{packed, packed_as};
    use super::*;
    use crate::schema::Plan;

    /// Numbers, `segment` and `run_id` of the samples, and what the scan came to.
    fn scanned(
        path: &Path,
        mono_ns: Range<u64>,
        condition: Option<(&str, RangeInclusive<f64>)>,
    ) -> (Vec<(u64, Value<'static>, Value<'static>)>, Scanned) {
        let mut reader = SegmentReader::open(path).unwrap();
        let source = reader.header().sources[1].clone();
        let plan = Plan::compile(&source.schema, &source.root).unwrap();
        let fields = plan.project(&["run_id", "segment"]).unwrap();
        let field = condition.as_ref().map(|(path, _)| plan.project(&[path]).unwrap());
        let condition = condition.zip(field.as_ref()).map(|((_, range), field)| Condition { field, range });
        let mut samples = Vec::new();
        let mut each = |sample: &Telemetry<'_>, values: &[Value<'_>]| {
            let [Value::Unsigned(run_id), Value::Unsigned(segment)] = values else { panic!("{values:?}") };
            samples.push((sample.seq, Value::Unsigned(*segment), Value::Unsigned(*run_id)));
        };
        let scan = Scan { source: 1, fields: &fields, mono_ns, condition };
        let scanned = reader.scan(&scan, &mut each).unwrap();
        // Wherever it stands now, a second one is the same.
        let (again, mut count) = (reader.scan(&scan, &mut |_, _| ()).unwrap(), 0);
        reader.scan(&scan, &mut |_, _| count += 1).unwrap();
        assert_eq!((&again, count), (&scanned, scanned.samples));
        (samples, scanned)
    }

    // Goal: a scan of a packed segment gives what one of the raw segment gives, and leaves out blocks in which nothing can be. Method: stretches of time and
    // bounds of values, all, some and none of them; a damaged block.
    #[test]
    fn packed_segments_are_scanned_as_raw_ones() {
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
            .map(|(time, condition, _)| scanned(&path, time.clone(), condition.clone()))
            .collect();
        std::fs::write(&path, packed(&path, 4096)).unwrap();
        for ((time, condition, count), (samples, _)) in asked.into_iter().zip(of_raw) {
            let (packed, came_to) = scanned(&path, time.clone(), condition.clone());
            assert_eq!(packed.len() as u64, count, "{time:?} {condition:?}");
            assert_eq!((packed, came_to.samples), (samples, count));
            assert!(came_to.damage.is_empty() && came_to.unreadable == 0);
            assert_eq!(
                came_to.blocks_skipped > came_to.blocks_read,
                count < SAMPLES,
                "{time:?} {condition:?} {came_to:?}"
            );
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let block = SegmentReader::open(&path).unwrap().packed().unwrap().blocks()[3];
        bytes[usize::try_from(block.offset).unwrap() + 60] ^= 4;
        std::fs::write(&path, bytes).unwrap();
        let (samples, came_to) = scanned(&path, 0..u64::MAX, None);
        assert!(!samples.is_empty() && (samples.len() as u64) < SAMPLES);
        assert_eq!(came_to.damage.iter().map(|damage| damage.offset).collect::<Vec<_>>(), [block.raw_offset]);
    }

    // Goal: frames with wrong checksums are told by a scan of a packed segment as by one of the raw segment, and are not given. Method: one frame, two that
    // follow each other in a block, two on both sides of a block's end, one of another source; with and without a condition that excludes all blocks.
    #[test]
    fn frames_that_are_wrong_are_told_of_raw_and_packed_segments_alike() {
        let folder = tempfile::tempdir().unwrap();
        let path = raw_segment(folder.path());
        let raw = std::fs::read(&path).unwrap();
        let mut reader = SegmentReader::open(&path).unwrap();
        let mut frames = Vec::new();
        while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
            let start = usize::try_from(at.offset).unwrap();
            let sample = reader.telemetry(at).filter(|_| at.kind == FrameKind::Telemetry);
            frames.extend(sample.map(|sample| (sample.source, start..start + at.bytes)));
        }
        assert_eq!(frames.len() as u64, 2 * SAMPLES);
        std::fs::write(&path, packed(&path, 4096)).unwrap();
        let blocks = SegmentReader::open(&path).unwrap().packed().unwrap().blocks();
        // The first frame of a block that has a sample right in front of it.
        let begins = |at: usize| blocks.iter().any(|block| block.raw_offset == frames[at].1.start as u64);
        let first =
            (1..frames.len()).find(|at| begins(*at) && frames[at - 1].1.end == frames[*at].1.start).unwrap();
        for (wrong, holes) in
            [(vec![7], 1), (vec![first + 1, first + 2], 1), (vec![8, 9, 31], 2), (vec![first - 1, first], 1)]
        {
            let mut damaged = raw.clone();
            for number in &wrong {
                damaged[frames[*number].1.end - 1] ^= 1;
            }
            std::fs::write(&path, &damaged).unwrap();
            let none = Some(("segment", -2.0..=-1.0));
            let of_raw = [None, none.clone()].map(|condition| scanned(&path, 0..u64::MAX, condition));
            std::fs::write(&path, &raw).unwrap();
            std::fs::write(&path, packed_as(&path, 4096, &damaged)).unwrap();
            let of_packed = [None, none].map(|condition| scanned(&path, 0..u64::MAX, condition));
            for ((raw_samples, of_raw), (samples, of_packed)) in of_raw.iter().zip(&of_packed) {
                assert_eq!(of_raw.damage.len(), holes, "{of_raw:?}");
                assert_eq!((&of_packed.damage, samples), (&of_raw.damage, raw_samples), "{wrong:?}");
            }
            let lost = wrong.iter().filter(|number| frames[**number].0 == 1).count() as u64;
            assert_eq!((of_raw[0].1.samples, of_raw[1].1.samples), (SAMPLES - lost, 0), "{wrong:?}");
        }
    }
}
