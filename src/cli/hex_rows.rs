//! Prints samples of opaque sources: payloads without a schema, as hexadecimal bytes.

use std::io::{self, Write};

use super::human;
use super::row_printer::{Printer, TableHeading, begin_json, csv_error, write_csv_fields};
use crate::schema::{FieldValue, FlatColumns};
use crate::segment::SampleView;

/// The only field, and column, of such a sample.
pub(super) const PAYLOAD_COLUMN: &str = "payload";
/// Bytes that are shown in the formats for people.
const SHOWN_BYTES: usize = 16;

impl Printer<'_> {
    /// Prints one sample of an opaque source.
    pub(super) fn print_opaque(&mut self, name: &str, sample: &SampleView<'_>) -> io::Result<()> {
        match self {
            Self::Widths(_) => Ok(()),
            Self::Jsonl { out, line } => {
                begin_json(line, name, sample)?;
                write!(line, "{{\"{PAYLOAD_COLUMN}\":\"")?;
                push_hex(sample.payload, line);
                line.extend_from_slice(b"\"}}\n");
                out.write_all(line)
            }
            Self::Csv { writer, columns, cell, .. } => {
                let absent = columns.as_slice().iter().map(|_| FieldValue::Absent);
                write_csv_fields(writer, name, sample, absent, cell)?;
                cell.clear();
                push_hex(sample.payload, cell);
                writer.write_field(&cell).map_err(csv_error)?;
                writer.write_record(None::<&[u8]>).map_err(csv_error)
            }
            Self::Table { out, zone, heading } => {
                let is_same =
                    |heading: &TableHeading| heading.source == name && heading.columns.as_slice().is_empty();
                if !heading.as_ref().is_some_and(is_same) {
                    writeln!(out, "{:<26} {:<10} {:>8}  {PAYLOAD_COLUMN}", "time", "source", "seq")?;
                    *heading = Some(TableHeading { source: name.to_owned(), columns: FlatColumns::new() });
                }
                let (time, name) = (human::local_time(sample.wall_ns, zone), human::escaped(name));
                writeln!(out, "{time:<26} {name:<10} {:>8}  {}", sample.seq, hex_prefix(sample.payload))
            }
            Self::Pairs { out, zone, .. } => {
                let (time, name) = (human::local_time(sample.wall_ns, zone), human::escaped(name));
                writeln!(
                    out,
                    "{time} {name} seq={} {PAYLOAD_COLUMN}={}",
                    sample.seq,
                    hex_prefix(sample.payload)
                )
            }
        }
    }
}

/// Returns the start of a payload in hexadecimal, and its length if it is longer.
fn hex_prefix(payload: &[u8]) -> String {
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

fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
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
