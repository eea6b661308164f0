//! Verification of payloads by the schema of their source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use flatbuffers::VerifierOptions;
use flatcap_format::schema::{CompiledSchema, PayloadVerifier, SchemaError};
use flatcap_format::segment::{SampleView, SegmentHeader};

/// Which payloads are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadVerification {
    /// Each one.
    All,
    /// The first one of each source in each lane.
    First,
    /// None: what reads them checks each access anyway.
    None,
}

/// Most tables of a payload: few bytes can refer to the same ones again and again, and one thread
/// verifies the payloads of all applications.
const TABLES_MAX: usize = 16_384;

/// Returns a verifier of payloads with this root; none if the source is opaque.
///
/// # Errors
/// The schema is not one, or has no such root.
pub(super) fn verifier(
    schema: &[u8],
    root: &str,
) -> Result<Option<Arc<Mutex<PayloadVerifier>>>, SchemaError> {
    if root.is_empty() {
        return Ok(None);
    }
    let compiled = CompiledSchema::compile(schema, root)?;
    let options = VerifierOptions { max_tables: TABLES_MAX, ..VerifierOptions::default() };
    Ok(Some(Arc::new(Mutex::new(compiled.verifier(options)))))
}

/// Verifies the payloads that were left in the lanes of a killed run, by the descriptors in its
/// files.
#[derive(Debug)]
pub struct LeftVerification<'h> {
    header: &'h SegmentHeader,
    check: PayloadVerification,
    verifiers: BTreeMap<u16, Option<Arc<Mutex<PayloadVerifier>>>>,
}

impl<'h> LeftVerification<'h> {
    /// Creates a verification by the descriptors of this header.
    pub fn new(header: &'h SegmentHeader, check: PayloadVerification) -> Self {
        Self { header, check, verifiers: BTreeMap::new() }
    }

    /// Returns how many frames of a lane come before the first one whose payload does not fit the
    /// schema of its source.
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
            // The recorder that was killed had refused a schema that is none.
            verifier(&described.schema, &described.root).ok().flatten()
        });
        let verifier = verifier.as_ref();
        verifier
            .is_none_or(|verifier| verifier.lock().unwrap_or_else(PoisonError::into_inner).accepts(payload))
    }
}
