//! Verifies payloads against the schema of their source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use flatbuffers::VerifierOptions;
use flatcap_format::schema::{CompiledSchema, PayloadVerifier};
use flatcap_format::segment::{SampleView, SegmentHeader};

/// The selection of payloads to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadVerification {
    /// Every payload.
    All,
    /// The first payload of each source in each lane.
    First,
    /// No payload. Even without this verification, readers check each access to a payload.
    None,
}

/// Maximum apparent size of a payload, as a multiple of its length. An apparent size of
/// [`APPARENT_BYTES_MIN`] is always allowed. The apparent size counts shared bytes at each use. For
/// example, a string that thousands of tables share would be checked thousands of times.
/// Applications share vtables, but these are short.
const APPARENT_FACTOR: usize = 32;
const APPARENT_BYTES_MIN: usize = 64 << 10;
/// Maximum number of tables that a payload may contain. The limit is needed because a few bytes can
/// refer to the same table many times, and one thread verifies the payloads of all applications.
const TABLES_MAX: usize = 16_384;

/// Returns whether a payload matches the schema and can be verified in time proportional to its
/// length.
pub(super) fn is_valid(verifier: &mut PayloadVerifier, payload: &[u8]) -> bool {
    verifier.set_max_apparent_size(payload.len().saturating_mul(APPARENT_FACTOR).max(APPARENT_BYTES_MIN));
    verifier.accepts(payload)
}

/// Returns a verifier of payloads with this root table, or `None` if the source is opaque.
///
/// # Errors
/// The schema is invalid, lacks the root table, or has a field that no path can name. The message
/// states the applicable reason.
pub(super) fn verifier(schema: &[u8], root: &str) -> Result<Option<Arc<Mutex<PayloadVerifier>>>, String> {
    if root.is_empty() {
        return Ok(None);
    }
    let compiled = CompiledSchema::compile(schema, root).map_err(|error| error.to_string())?;
    if let Some(name) = compiled.unnamed_fields().next() {
        return Err(format!("the schema's field {name:?}: its name is no identifier, as flatc makes them"));
    }
    let options = VerifierOptions { max_tables: TABLES_MAX, ..VerifierOptions::default() };
    Ok(Some(Arc::new(Mutex::new(compiled.verifier(options)))))
}

/// Verifies the payloads that were left in the lanes of a killed run. The verification uses the
/// descriptors in the files of that run.
#[derive(Debug)]
pub struct LeftVerification<'h> {
    header: &'h SegmentHeader,
    check: PayloadVerification,
    verifiers: BTreeMap<u16, Option<Arc<Mutex<PayloadVerifier>>>>,
}

impl<'h> LeftVerification<'h> {
    /// Creates a verification that uses the descriptors of this header.
    pub fn new(header: &'h SegmentHeader, check: PayloadVerification) -> Self {
        Self { header, check, verifiers: BTreeMap::new() }
    }

    /// Returns the number of a lane's frames that precede the first frame whose payload does not
    /// match the schema of its source.
    pub fn accepted(&mut self, frames: &[Vec<u8>]) -> usize {
        let mut verified = BTreeSet::new();
        let header_bytes = self.header.checksum.frame_bytes(0);
        let is_refused = |frame: &Vec<u8>| {
            let sample = frame.get(header_bytes..).and_then(SampleView::read);
            let Some(SampleView { source, payload, .. }) = sample else { return true };
            let is_due = match self.check {
                PayloadVerification::All => true,
                PayloadVerification::First => verified.insert(source),
                PayloadVerification::None => false,
            };
            is_due && !self.accepts(source, payload)
        };
        frames.iter().position(is_refused).unwrap_or(frames.len())
    }

    fn accepts(&mut self, source: u16, payload: &[u8]) -> bool {
        let Self { header, verifiers, .. } = self;
        let verifier = verifiers.entry(source).or_insert_with(|| {
            let described = header.source(source)?;
            // The schema cannot be invalid, because the killed recorder would have refused the
            // source.
            verifier(&described.schema, &described.root).ok().flatten()
        });
        let verifier = verifier.as_ref();
        verifier.is_none_or(|verifier| {
            is_valid(&mut verifier.lock().unwrap_or_else(PoisonError::into_inner), payload)
        })
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::{FlatBufferBuilder, WIPOffset};
    use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
    use flatcap_format::host::{ClockReading, HostName};
    use flatcap_format::segment::{SourceInfo, SourceKind};
    use flatcap_stream::{ChecksumKind, Framer};

    use super::*;

    const SCHEMA: &[u8] = include_bytes!("../../../flatcap-tasks/generated/kmsg.bfbs");
    /// Offsets in vtables. `LINES` is the offset of the lines in the root, and `TEXT` is the offset
    /// of the text in a line.
    const LINES: u16 = 4;
    const TEXT: u16 = 12;

    /// Returns a payload of `count` log lines. If `shared` is `Some(n)`, all lines refer to one
    /// string of about `n` bytes. Otherwise, each line has a separate string.
    fn lines(count: usize, shared: Option<usize>) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let text = shared.map(|bytes| builder.create_string(&"\u{20ac}".repeat(bytes / 3)));
        let mut lines = Vec::new();
        for number in 0..count {
            let text = text.unwrap_or_else(|| builder.create_string(&number.to_string()));
            let line = builder.start_table();
            builder.push_slot_always(TEXT, text);
            lines.push(WIPOffset::<WIPOffset<()>>::new(builder.end_table(line).value()));
        }
        let lines = builder.create_vector(&lines);
        let root = builder.start_table();
        builder.push_slot_always(LINES, lines);
        let root = builder.end_table(root);
        builder.finish(root, None);
        builder.finished_data().to_vec()
    }

    /// Returns the header of a run with two sources of log lines and one opaque source.
    fn header() -> SegmentHeader {
        let source = |id: u16| SourceInfo {
            id,
            name: format!("source{id}"),
            labels: Vec::new(),
            kind: SourceKind::Agent,
            period_ns: 0,
            root: if id < 2 { "flatcap.kernel.Kmsg" } else { "" }.to_owned(),
            schema: if id < 2 { SCHEMA } else { &[] }.to_vec(),
            next_seq: 0,
        };
        SegmentHeader {
            segment: 0,
            run_id: 1,
            host: HostName { name: "test".into(), machine_id: None, boot_id: None, labels: Vec::new() },
            agent_version: "test".into(),
            checksum: ChecksumKind::Xxh3,
            frame_max: 1 << 20,
            clocks: ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: 0 },
            reorder_window_ns: 0,
            sources: (0..3).map(source).collect(),
            clock_table: Vec::new(),
            recorder_pid: 0,
        }
    }

    /// Returns the frame of a sample.
    fn frame(source: u16, payload: &[u8]) -> Vec<u8> {
        let stamp = Stamp { mono_ns: 1, wall_ns: 1, seq: 0, incomplete: Incomplete::NONE, duration_ns: 0 };
        let mut bytes = vec![0; ENVELOPE_BYTES + payload.len()];
        Envelope::new(source).write(&mut bytes, &stamp, payload);
        let mut frame = Vec::new();
        ChecksumKind::Xxh3.frame_and_write(&mut frame, &bytes).unwrap();
        frame
    }

    // Proves that a valid payload is refused if it refers to the same bytes too often, and is
    // accepted if it refers to them only a moderate number of times.
    #[test]
    fn shared_bytes_are_checked_a_bounded_number_of_times() {
        let verifier = verifier(SCHEMA, "flatcap.kernel.Kmsg").unwrap().unwrap();
        let mut verifier = verifier.lock().unwrap();
        for (payload, is_accepted) in [
            (lines(2000, None), true),
            (lines(2000, Some(300)), true),
            (lines(4000, Some(28_000)), false),
            (lines(0, None), true),
        ] {
            assert_eq!(is_valid(&mut verifier, &payload), is_accepted, "{} bytes", payload.len());
            verifier.set_max_apparent_size(usize::MAX);
            assert!(verifier.accepts(&payload));
        }
    }

    // Proves that frames left in a lane are recorded up to the first payload that does not match
    // the schema of its source. The settings decide whether all payloads are verified, only the
    // first payload of each source, or no payload. A frame that is not a sample is always refused.
    #[test]
    fn payloads_left_in_a_lane_are_verified() {
        use PayloadVerification::{All, First, None as Nothing};
        let described = header();
        let good = || lines(3, None);
        // The offset of the root table is beyond the end of the payload.
        let bad = || [&[0xff; 4], &good()[4..]].concat();
        let frames = |payloads: &[(u16, Vec<u8>)]| -> Vec<Vec<u8>> {
            payloads.iter().map(|(source, payload)| frame(*source, payload)).collect()
        };
        let accepted = |check, frames: &[Vec<u8>]| LeftVerification::new(&described, check).accepted(frames);
        let of_two = frames(&[(0, good()), (1, good()), (0, good()), (1, bad()), (0, good())]);
        assert_eq!([All, First, Nothing].map(|check| accepted(check, &of_two)), [3, 5, 5]);
        let bad_first = frames(&[(0, good()), (1, bad()), (0, good())]);
        assert_eq!([All, First, Nothing].map(|check| accepted(check, &bad_first)), [1, 1, 3]);
        let of_opaque = frames(&[(2, bad()), (2, Vec::new())]);
        assert_eq!([All, First, Nothing].map(|check| accepted(check, &of_opaque)), [2, 2, 2]);
        let broken = [frames(&[(0, good())]), vec![vec![0; 20]]].concat();
        assert_eq!([All, First, Nothing].map(|check| accepted(check, &broken)), [1, 1, 1]);
        // Verification starts again with each lane, so the first payload of each source is verified
        // in each lane.
        let mut verification = LeftVerification::new(&described, First);
        assert_eq!([&of_two, &bad_first].map(|frames| verification.accepted(frames)), [5, 1]);
    }
}
