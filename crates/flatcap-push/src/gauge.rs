//! Single values of an application, pushed with one call.
//!
//! Each name is a separate source. The schema of this source (`schemas/gauge.fbs`) is compiled in
//! advance, with a placeholder for the unit. This module replaces the placeholder, so that the
//! library needs no schema compiler.

use std::sync::Arc;

use super::client::PushClient;
use super::error::{PushError, SetupError};
use super::setup::{ClientSource, SourceOptions, SourceSlot};
use super::source::PushSource;

const SCHEMA: &[u8] = include_bytes!("../generated/gauge.bfbs");
const ROOT: &str = "flatcap.push.Gauge";
/// Maximum length of a unit, in bytes, which is the length of the placeholder.
const UNIT_BYTES_MAX: usize = 32;
const PLACEHOLDER: [u8; UNIT_BYTES_MAX] = [b'*'; UNIT_BYTES_MAX];
/// A payload with the value 0. It consists of the offset of the table, the vtable with one field,
/// the table, and the value.
const PAYLOAD: [u8; 24] = [12, 0, 0, 0, 6, 0, 12, 0, 4, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const VALUE_AT: usize = 16;

impl PushClient {
    /// Pushes one value with the current time. In recordings, the value is the field `NAME.value`,
    /// and its unit is `unit`, which may be empty. The first push of a name sets up a source. Each
    /// client can have 64 sources.
    ///
    /// # Errors
    /// The reason why the value was dropped. A dropped value is counted, except if the source
    /// cannot be set up ([`PushError::Setup`]), for example because the name or the unit is not
    /// valid.
    pub fn gauge(&self, name: &str, unit: &str, value: f64) -> Result<(), PushError> {
        let source = match self.known_gauge(name, unit) {
            Some(source) => source,
            None => self.new_gauge(name, unit).map_err(PushError::Setup)?,
        };
        let mut payload = PAYLOAD;
        if let Some(place) = payload.get_mut(VALUE_AT..) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        source.push(&payload)
    }

    fn known_gauge(&self, name: &str, unit: &str) -> Option<PushSource> {
        for (number, source) in (0_u8..).zip(&self.handle.shared.setup.sources) {
            // Sources are set up in the order of their numbers.
            let source = source.get()?;
            if is_gauge(source, name, unit) {
                let slot = SourceSlot { number, on_full: SourceOptions::default().on_full };
                return Some(PushSource::new(Arc::clone(&self.handle), slot));
            }
        }
        None
    }

    #[cold]
    fn new_gauge(&self, name: &str, unit: &str) -> Result<PushSource, SetupError> {
        let schema = schema_with_unit(unit).ok_or(SetupError::Unit)?;
        self.source(SourceOptions { name, root: ROOT, schema: &schema, ..SourceOptions::default() })
    }
}

/// Returns whether a source is the gauge with this name and unit.
fn is_gauge(source: &ClientSource, name: &str, unit: &str) -> bool {
    let registration = &source.registration;
    registration.name == name && registration.root == ROOT && unit_of(&source.schema) == Some(unit.as_bytes())
}

/// Returns the offset of the unit's length in the schema.
fn unit_at() -> Option<usize> {
    SCHEMA.windows(PLACEHOLDER.len()).position(|window| window == PLACEHOLDER)?.checked_sub(size_of::<u32>())
}

/// Returns the schema with this unit, or `None` if the unit is too long or has control characters.
fn schema_with_unit(unit: &str) -> Option<Vec<u8>> {
    if unit.len() > UNIT_BYTES_MAX || unit.chars().any(char::is_control) {
        return None;
    }
    let mut schema = SCHEMA.to_vec();
    let place = schema.get_mut(unit_at()?..)?.get_mut(..size_of::<u32>() + UNIT_BYTES_MAX)?;
    let (length, text) = place.split_first_chunk_mut::<{ size_of::<u32>() }>()?;
    *length = u32::try_from(unit.len()).ok()?.to_le_bytes();
    // A string of FlatBuffers ends with a zero byte.
    text.fill(0);
    text.get_mut(..unit.len())?.copy_from_slice(unit.as_bytes());
    Some(schema)
}

fn unit_of(schema: &[u8]) -> Option<&[u8]> {
    let (length, rest) = schema.get(unit_at()?..)?.split_first_chunk::<{ size_of::<u32>() }>()?;
    rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::ClientOptions;

    // Proves that a client sets up one source for each name and unit, and refuses invalid names and
    // units.
    #[test]
    fn each_name_has_a_source() {
        let folder = tempfile::tempdir().unwrap();
        let socket = Some(folder.path().join("push.sock"));
        let client = PushClient::open("test", ClientOptions { socket, ..ClientOptions::default() }).unwrap();
        for (name, unit) in [("torque", "Nm"), ("speed", ""), ("torque", "Nm"), ("torque", "lbf")] {
            assert_eq!(client.gauge(name, unit, 1.5), Err(PushError::NoRecorder));
        }
        let sources = &client.handle.shared.setup.sources;
        assert_eq!(sources.iter().filter(|source| source.get().is_some()).count(), 3);
        assert_eq!(client.known_gauge("torque", "Nm").unwrap().dropped(), 2);
        assert_eq!(client.gauge("", "", 0.0), Err(PushError::Setup(SetupError::Name)));
        for unit in ["a\n", &"x".repeat(UNIT_BYTES_MAX + 1)] {
            assert_eq!(client.gauge("a", unit, 0.0), Err(PushError::Setup(SetupError::Unit)));
        }
    }

    // Proves that the schema is valid for units of every length, and that the payload contains the
    // pushed value.
    #[test]
    fn schemas_and_payload_are_valid() {
        for length in 0..=UNIT_BYTES_MAX {
            let unit = "u".repeat(length);
            let schema = schema_with_unit(&unit).unwrap();
            assert_eq!(unit_of(&schema), Some(unit.as_bytes()));
            let compiled = flatcap_format::schema::CompiledSchema::compile(&schema, ROOT).unwrap();
            let field = compiled.fields().next().unwrap();
            assert_eq!(field.path, "value");
            let mut payload = PAYLOAD;
            payload[VALUE_AT..].copy_from_slice(&12.5_f64.to_le_bytes());
            let mut json = Vec::new();
            compiled.append_json(&payload, &mut json).unwrap();
            assert_eq!(json, b"{\"value\":12.5}");
        }
    }
}
