//! Payloads of opaque sources, which have no schema, as hexadecimal bytes.

/// The only field, and column, of a sample of such a source.
pub(super) const PAYLOAD_COLUMN: &str = "payload";
/// Bytes that are shown in the formats for people.
const SHOWN_BYTES: usize = 16;

/// Returns the start of a payload in hexadecimal, and its length if it is longer.
pub(super) fn hex_prefix(payload: &[u8]) -> String {
    let start = payload.get(..SHOWN_BYTES).unwrap_or(payload);
    let mut hex = Vec::with_capacity(2 * SHOWN_BYTES);
    push_hex(start, &mut hex);
    let hex = String::from_utf8_lossy(&hex);
    match payload.len() {
        0 => "(empty)".to_owned(),
        length if length > start.len() => format!("{hex}...({length} bytes)"),
        _ => hex.into_owned(),
    }
}

/// Appends bytes in hexadecimal.
pub(super) fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    out.reserve(2 * bytes.len());
    for byte in bytes {
        for digit in [byte >> 4, byte & 0xF] {
            out.extend(DIGITS.get(usize::from(digit)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that omitted bytes are visible in the output.
    #[test]
    fn omitted_bytes_are_visible() {
        assert_eq!(hex_prefix(&[]), "(empty)");
        assert_eq!(hex_prefix(&[0xAB; 16]), "ab".repeat(16));
        assert_eq!(hex_prefix(&[0x0F; 17]), format!("{}...(17 bytes)", "0f".repeat(16)));
    }
}
