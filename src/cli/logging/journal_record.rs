//! Converts events to records of the journal's native protocol, with their fields
//! (systemd.journal-fields(7)).

use std::fmt::{self, Write};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::writer::{LogQueue, one_line};

/// Prefix of the names of fields, as in `FLATCAP_SOURCE`. The prefix avoids conflicts with the
/// fields of other programs.
const FIELD_PREFIX: &str = "FLATCAP_";
/// Maximum length of a record, in bytes. Fields beyond this length are left out, because the kernel
/// accepts datagrams of at most 200 KiB.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// The layer that queues events as records.
#[derive(Debug)]
pub(super) struct JournalLayer(pub(super) Arc<LogQueue>);

impl<S: Subscriber> Layer<S> for JournalLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut fields = EventFields { record: metadata(event.metadata()), message: String::new() };
        event.record(&mut fields);
        // The message contains the fields too, because by default the journal shows only the
        // message.
        put_field(&mut fields.record, "MESSAGE", &one_line(&fields.message));
        self.0.push(fields.record);
    }
}

fn metadata(metadata: &Metadata<'_>) -> Vec<u8> {
    let priority = match *metadata.level() {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    };
    let mut record = Vec::new();
    put_field(&mut record, "PRIORITY", priority);
    put_field(&mut record, "SYSLOG_IDENTIFIER", "flatcap");
    put_field(&mut record, "TARGET", metadata.target());
    if let (Some(file), Some(line)) = (metadata.file(), metadata.line()) {
        put_field(&mut record, "CODE_FILE", file);
        put_field(&mut record, "CODE_LINE", &line.to_string());
    }
    record
}

struct EventFields {
    record: Vec<u8>,
    message: String, // with the fields
}

impl EventFields {
    fn add(&mut self, name: &str, text: &str) {
        // Writing to a string cannot fail.
        let _written = match name {
            "message" => write!(self.message, "{text}"),
            name => write!(self.message, " {name}={text}"),
        };
        if name != "message" && self.record.len() + text.len() <= RECORD_BYTES_MAX {
            let name = format!("{FIELD_PREFIX}{}", name.to_ascii_uppercase().replace('.', "_"));
            put_field(&mut self.record, &name, text);
        }
    }
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), &one_line(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), &one_line(&format!("{value:?}")));
    }
}

/// Appends a field in the form that allows any bytes in the value.
fn put_field(record: &mut Vec<u8>, name: &str, value: &str) {
    record.extend_from_slice(name.as_bytes());
    record.push(b'\n');
    record.extend_from_slice(&(value.len() as u64).to_le_bytes());
    record.extend_from_slice(value.as_bytes());
    record.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::cli::logging::writer::TEXT_BYTES_MAX;

    /// Returns the fields of a record.
    fn fields(mut record: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        while !record.is_empty() {
            let name_bytes = record.iter().position(|byte| *byte == b'\n').unwrap();
            let (name, rest) = record.split_at(name_bytes);
            let (length, rest) = rest[1..].split_first_chunk().unwrap();
            let (value, rest) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
            record = rest.strip_prefix(b"\n").unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            fields.push((text(name), text(value)));
        }
        fields
    }

    // Proves that a record contains the event's fields of all types, and a message with these
    // fields on one line. Also proves that the longest strings still fit into a datagram.
    #[test]
    fn events_become_records() {
        let records = Arc::new(Mutex::new(Vec::new()));
        let queue = LogQueue::start({
            let records = Arc::clone(&records);
            Box::new(move |record: &[u8]| records.lock().unwrap().push(record.to_vec()))
        });
        let layer = JournalLayer(Arc::clone(&queue));
        tracing::subscriber::with_default(Registry::default().with(layer), || {
            let error = io::Error::from(io::ErrorKind::StorageFull);
            tracing::warn!(source = "cpu", stride = 3_u64, step = -4_i64, is = true, %error, "one\nin {}", 7);
            let long = "\u{20ac}".repeat(TEXT_BYTES_MAX);
            tracing::info!(a = long, b = long, c = long, d = long, e = long, f = long, g = long);
        });
        queue.flush();
        let records = records.lock().unwrap();
        let [first, second] = &records[..] else { panic!("{} records", records.len()) };
        let first = fields(first);
        let expected = [
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "flatcap"),
            ("TARGET", "flatcap::cli::logging::journal_record::tests"),
            ("CODE_FILE", file!()),
        ];
        let is_equal = |(field, expected): (&(String, String), &(&str, &str))| {
            assert_eq!((&*field.0, &*field.1), *expected);
        };
        first.iter().zip(&expected).for_each(is_equal);
        assert_eq!(first[4].0, "CODE_LINE");
        let expected = [
            ("FLATCAP_SOURCE", "cpu"),
            ("FLATCAP_STRIDE", "3"),
            ("FLATCAP_STEP", "-4"),
            ("FLATCAP_IS", "true"),
            ("FLATCAP_ERROR", "no storage space"),
            ("MESSAGE", "one; in 7 source=cpu stride=3 step=-4 is=true error=no storage space"),
        ];
        first[5..].iter().zip(&expected).for_each(is_equal);
        assert_eq!(first.len(), 11);
        assert!(second.len() < 2 * RECORD_BYTES_MAX, "{}", second.len());
        assert!(fields(second).last().unwrap().1.ends_with("\u{20ac} ..."));
    }
}
