//! How samples of opaque sources look: payloads that nobody described, as bytes in hexadecimal.

use std::io::{self, Write};

use super::rows::{Heading, Printer, begin_json, csv_error, stamped};
use super::text;
use crate::schema::{Columns, Value};
use crate::segment::Telemetry;

/// The one field, and column, that such a sample has.
pub(super) const COLUMN: &str = "payload";
/// So many bytes are shown to people.
const SHOWN_BYTES: usize = 16;

impl Printer<'_> {
    /// Prints one sample of an opaque source.
    pub(super) fn print_opaque(&mut self, name: &str, sample: &Telemetry<'_>) -> io::Result<()> {
        match self {
            Self::Widths(_) => Ok(()),
            Self::Jsonl { out, line } => {
                begin_json(line, name, sample)?;
                write!(line, "{{\"{COLUMN}\":\"")?;
                push_hex(sample.payload, line);
                line.extend_from_slice(b"\"}}\n");
                out.write_all(line)
            }
            Self::Csv { writer, columns, cell, .. } => {
                let absent = columns.as_slice().iter().map(|_| Value::Absent);
                stamped(writer, name, sample, absent, cell)?;
                cell.clear();
                push_hex(sample.payload, cell);
                writer.write_field(&cell).map_err(csv_error)?;
                writer.write_record(None::<&[u8]>).map_err(csv_error)
            }
            Self::Table { out, zone, heading } => {
                let is_same =
                    |heading: &Heading| heading.source == name && heading.columns.as_slice().is_empty();
                if !heading.as_ref().is_some_and(is_same) {
                    writeln!(out, "{:<26} {:<10} {:>8}  {COLUMN}", "time", "source", "seq")?;
                    *heading = Some(Heading { source: name.to_owned(), columns: Columns::new() });
                }
                let (time, name) = (text::local(sample.wall_ns, zone), text::plain(name));
                writeln!(out, "{time:<26} {name:<10} {:>8}  {}", sample.seq, shown(sample.payload))
            }
            Self::Pairs { out, zone, .. } => {
                let (time, name) = (text::local(sample.wall_ns, zone), text::plain(name));
                writeln!(out, "{time} {name} seq={} {COLUMN}={}", sample.seq, shown(sample.payload))
            }
        }
    }
}

/// A payload for people: its begin and its length.
fn shown(payload: &[u8]) -> String {
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

    // Goal: people see where bytes were left out. Method: none, as many as are shown, one more.
    #[test]
    fn what_is_left_out_is_said() {
        assert_eq!(shown(&[]), "(empty)");
        assert_eq!(shown(&[0xAB; 16]), "ab".repeat(16));
        assert_eq!(shown(&[0x0F; 17]), format!("{}...(17 bytes)", "0f".repeat(16)));
    }
}
