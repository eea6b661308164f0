//! Verification of payloads by the schema of their source.

use std::sync::{Arc, Mutex};

use flatbuffers::VerifierOptions;
use flatcap_format::schema::{CompiledSchema, PayloadVerifier, SchemaError};

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
